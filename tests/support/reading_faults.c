#include "reading_faults.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "reading.h"

static reading seen, whole;

void reading_every_prefix_is_refused(const fb_ckpt_reader *reader, const void *data, size_t bytes, size_t tail_bytes)
{
    reading_of(&whole, reader, data, bytes);
    if (whole.status != FB_OK) fail_msg("%s", whole.err.message);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *exact = malloc(n + 1); /* so that a read beyond it is seen by the sanitizer */
        assert_non_null(exact);
        memcpy(exact, data, n);
        reading_of(&seen, reader, exact, n);
        free(exact);
        if (n + tail_bytes >= bytes ? seen.status != FB_OK : seen.status != FB_E_CORRUPT)
            fail_msg("%zu of %zu bytes: status %d: %s", n, bytes, seen.status, seen.err.message);
        if (seen.status != FB_OK && seen.err.message[0] == '\0') fail_msg("%zu of %zu bytes: no sentence", n, bytes);
    }
}

void reading_every_failing_allocation_is_told(const fb_ckpt_reader *reader, const void *data, size_t bytes)
{
    uint64_t requests;
    fb_alloc_fail_at(0, 0);
    reading_of(&whole, reader, data, bytes);
    requests = fb_alloc_requests();
    for (uint64_t k = 1; k <= requests; k++) {
        fb_alloc_fail_at(k, 0);
        reading_of(&seen, reader, data, bytes);
        fb_alloc_fail_at(0, 0);
        if (seen.status != FB_E_NOMEM)
            fail_msg("request %llu: status %d: %s", (unsigned long long)k, seen.status, seen.err.message);
    }
}

static os_sim *simulated(const void *data, size_t bytes)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    int64_t fd = fb_os_open(os, "/memory", O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fb_os_write_all(os, (int)fd, data, bytes), 0);
    assert_int_equal(os->close(os->ctx, (int)fd), 0);
    return sim;
}

void reading_every_failing_call_is_told(const fb_ckpt_reader *reader, const void *data, size_t bytes)
{
    os_sim *sim = simulated(data, bytes);
    fb_ckpt_options options;
    uint64_t calls;
    memset(&options, 0, sizeof options);
    os_sim_fail(sim, 0, 0, 0);
    reading_range(&whole, reader, os_sim_os(sim), 0, bytes, &options, 4096);
    calls = os_sim_calls(sim);
    if (whole.status != FB_OK) fail_msg("%s", whole.err.message);
    for (uint64_t k = 1; k <= calls; k++) {
        const char *call = os_sim_call_name(sim, k);
        int is_close = strcmp(call, "close") == 0;
        os_sim_fail(sim, k, EIO, 0);
        reading_range(&seen, reader, os_sim_os(sim), 0, bytes, &options, 4096);
        if (seen.status != (is_close ? FB_OK : FB_E_IO)) fail_msg("call %llu: status %d", (unsigned long long)k, seen.status);
        os_sim_fail(sim, k, OS_SIM_SHORT, 0);
        reading_range(&seen, reader, os_sim_os(sim), 0, bytes, &options, 4096);
        if (seen.status != FB_OK || strcmp(seen.text, whole.text) != 0)
            fail_msg("short call %llu: status %d: %s", (unsigned long long)k, seen.status, seen.err.message);
        os_sim_fail(sim, 0, 0, 0);
        reading_range(&whole, reader, os_sim_os(sim), 0, bytes, &options,
                      4096); /* so that the names of calls are those of a good run */
    }
    os_sim_free(sim);
}

void reading_a_window_is_read_alone(const fb_ckpt_reader *reader, const void *data, size_t bytes)
{
    enum { BEFORE = 100, AFTER = 37 };
    memory_os memory;
    fb_ckpt_options options;
    uint8_t *around = calloc(bytes + BEFORE + AFTER, 1);
    assert_non_null(around);
    memcpy(around + BEFORE, data, bytes);
    memset(&options, 0, sizeof options);
    reading_of(&whole, reader, data, bytes);
    reading_range(&seen, reader, memory_os_init(&memory, around, bytes + BEFORE + AFTER), BEFORE, bytes, &options, 4096);
    free(around);
    if (seen.status != FB_OK) fail_msg("%s", seen.err.message);
    assert_int_equal(seen.tensors, whole.tensors);
}

void reading_survives(const fb_ckpt_reader *reader, const char *path, size_t tail_bytes)
{
    char *data;
    size_t bytes;
    fb_error err;
    if (fb_os_read_file(fb_os_posix(), path, 1 << 20, &data, &bytes, &err) != FB_OK) fail_msg("%s", err.message);
    reading_every_prefix_is_refused(reader, data, bytes, tail_bytes);
    reading_every_failing_allocation_is_told(reader, data, bytes);
    reading_every_failing_call_is_told(reader, data, bytes);
    reading_a_window_is_read_alone(reader, data, bytes);
    fb_free(data);
}
