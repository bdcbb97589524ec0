/*
 * Deflated members as streams: any size of pieces, a second pass, damage at every byte, and streams made to exhaust.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/alloc.h"
#include "ckpt/inflate.h"
#include "fault/os_sim.h"
#include "support/memory_os.h"

enum { PLAIN_BYTES = 300000, FRONT = 7 };

typedef struct stream {
    memory_os memory;
    uint8_t *data; /* FRONT bytes of something else, then the stream */
    size_t count;  /* of the stream */
    fb_ckpt_file file;
    fb_inflate *inflate;
    fb_error err;
} stream;

/* Text that shrinks, but not to nothing. */
static uint8_t *plain(void)
{
    uint8_t *data = malloc(PLAIN_BYTES);
    uint64_t seed = 1;
    assert_non_null(data);
    for (size_t i = 0; i < PLAIN_BYTES; i++) data[i] = (uint8_t)(os_sim_random(&seed) & 15);
    return data;
}

static size_t pack(const uint8_t *data, size_t count, uint8_t *out, size_t room)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)count;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return room - z.avail_out;
}

static void make(stream *s, const uint8_t *data, size_t count)
{
    memset(s, 0, sizeof *s);
    s->data = calloc(FRONT + count + 1000, 1);
    assert_non_null(s->data);
    s->count = pack(data, count, s->data + FRONT, count + 1000);
}

static fb_status open_stream(stream *s, uint64_t stored_bytes, uint64_t plain_bytes)
{
    memory_os_init(&s->memory, s->data, FRONT + s->count);
    assert_int_equal(fb_ckpt_file_open(&s->file, &s->memory.os, "memory.zip", 4096, &s->err), FB_OK);
    return fb_inflate_open(&s->inflate, &s->file, FRONT, stored_bytes, plain_bytes, &s->err);
}

static void shut(stream *s)
{
    fb_inflate_close(s->inflate);
    s->inflate = NULL;
    fb_ckpt_file_close(&s->file);
}

/* Reads to the end, `room` bytes at a time, and compares. */
static fb_status drain(stream *s, const uint8_t *due, size_t due_count, size_t room)
{
    uint8_t *piece = malloc(room);
    size_t at = 0, got = 1;
    fb_status status = FB_OK;
    assert_non_null(piece);
    while (status == FB_OK && got > 0) {
        status = fb_inflate_read(s->inflate, piece, room, &got, &s->err);
        assert_true(got <= room);
        assert_true(got <= due_count - at);
        if (got) assert_memory_equal(piece, due + at, got);
        if (status == FB_OK && got < room) assert_int_equal(at + got, due_count);
        at += got;
    }
    if (status == FB_OK) assert_int_equal(at, due_count);
    free(piece);
    return status;
}

static void test_inflate__any_size_of_pieces_gives_the_same_bytes(void **ignored)
{
    static const size_t rooms[] = {1, 2, 7, 4096, 65535, 65536, PLAIN_BYTES - 1, PLAIN_BYTES, PLAIN_BYTES + 1};
    uint8_t *data = plain();
    stream s;
    (void)ignored;
    make(&s, data, PLAIN_BYTES);
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        assert_int_equal(open_stream(&s, s.count, PLAIN_BYTES), FB_OK);
        if (drain(&s, data, PLAIN_BYTES, rooms[i]) != FB_OK) fail_msg("%s", s.err.message);
        shut(&s);
    }
    free(s.data);
    free(data);
}

static void test_inflate__a_rewound_stream_gives_all_bytes_again(void **ignored)
{
    uint8_t *data = plain(), piece[1000];
    size_t got;
    stream s;
    (void)ignored;
    make(&s, data, PLAIN_BYTES);
    assert_int_equal(open_stream(&s, s.count, PLAIN_BYTES), FB_OK);
    assert_int_equal(fb_inflate_read(s.inflate, piece, sizeof piece, &got, &s.err), FB_OK);
    assert_int_equal(fb_inflate_rewind(s.inflate, &s.err), FB_OK);
    assert_int_equal(drain(&s, data, PLAIN_BYTES, 4096), FB_OK);
    assert_int_equal(fb_inflate_rewind(s.inflate, &s.err), FB_OK);
    assert_int_equal(drain(&s, data, PLAIN_BYTES, 70000), FB_OK);
    shut(&s);
    free(s.data);
    free(data);
}

static void test_inflate__an_empty_member_ends_at_once(void **ignored)
{
    uint8_t piece[8] = {0};
    size_t got = 5;
    stream s;
    (void)ignored;
    make(&s, piece, 0);
    assert_int_equal(open_stream(&s, s.count, 0), FB_OK);
    assert_int_equal(fb_inflate_read(s.inflate, piece, sizeof piece, &got, &s.err), FB_OK);
    assert_int_equal(got, 0);
    shut(&s);
    assert_int_equal(open_stream(&s, 0, 0), FB_OK); /* no stream at all is not an empty one */
    assert_int_equal(fb_inflate_read(s.inflate, piece, sizeof piece, &got, &s.err), FB_E_CORRUPT);
    shut(&s);
    free(s.data);
}

static void test_inflate__a_stream_of_another_length_is_refused_at_its_end(void **ignored)
{
    uint8_t *data = plain(), *longer = calloc(PLAIN_BYTES + 1, 1);
    stream s;
    (void)ignored;
    assert_non_null(longer);
    memcpy(longer, data, PLAIN_BYTES);
    make(&s, data, PLAIN_BYTES);
    assert_int_equal(open_stream(&s, s.count, PLAIN_BYTES - 1), FB_OK);
    assert_int_equal(drain(&s, data, PLAIN_BYTES - 1, 4096), FB_E_CORRUPT);
    assert_non_null(strstr(s.err.message, "goes on"));
    shut(&s);
    assert_int_equal(open_stream(&s, s.count, PLAIN_BYTES + 1), FB_OK);
    assert_int_equal(drain(&s, longer, PLAIN_BYTES + 1, 4096), FB_E_CORRUPT);
    assert_non_null(strstr(s.err.message, "ends"));
    shut(&s);
    s.count++; /* one byte more in the file, which the stream does not use */
    assert_int_equal(open_stream(&s, s.count, PLAIN_BYTES), FB_OK);
    assert_int_equal(drain(&s, data, PLAIN_BYTES, 4096), FB_E_CORRUPT);
    assert_non_null(strstr(s.err.message, "bytes follow"));
    shut(&s);
    free(s.data);
    free(longer);
    free(data);
}

static void test_inflate__every_truncation_is_noticed(void **ignored)
{
    uint8_t *data = plain();
    stream s;
    (void)ignored;
    make(&s, data, 500);
    for (size_t cut = 0; cut < s.count; cut++) {
        assert_int_equal(open_stream(&s, cut, 500), FB_OK);
        assert_int_equal(drain(&s, data, 500, 64), FB_E_CORRUPT);
        assert_true(s.err.offset_bytes <= FRONT + s.count);
        shut(&s);
    }
    free(s.data);
    free(data);
}

static void test_inflate__a_stream_that_grows_beyond_reason_is_a_limit(void **ignored)
{
    stream s;
    uint8_t zero[64] = {0};
    (void)ignored;
    make(&s, zero, sizeof zero);
    assert_int_equal(open_stream(&s, s.count, 256u << 20), FB_OK); /* small enough to be what it says */
    shut(&s);
    assert_int_equal(open_stream(&s, s.count, (256u << 20) + 1), FB_E_LIMIT);
    assert_null(s.inflate);
    shut(&s);
    assert_int_equal(open_stream(&s, s.count, UINT64_MAX), FB_E_LIMIT);
    shut(&s);
    free(s.data);
}

static fb_status read_all(const fb_os *os, size_t count, const uint8_t *data, fb_error *err)
{
    stream s;
    fb_status status;
    memset(&s, 0, sizeof s);
    if ((status = fb_ckpt_file_open(&s.file, os, "/a", 4096, err)) != FB_OK) return status;
    status = fb_inflate_open(&s.inflate, &s.file, FRONT, count, PLAIN_BYTES, err);
    if (status == FB_OK) status = drain(&s, data, PLAIN_BYTES, 65536);
    shut(&s);
    return status;
}

static void test_inflate__each_failing_allocation_and_call_is_reported(void **ignored)
{
    uint8_t *data = plain();
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_status status = FB_E_NOMEM;
    fb_error err;
    stream s;
    int fd;
    (void)ignored;
    make(&s, data, PLAIN_BYTES);
    fd = (int)fb_os_open(os, "/a", O_CREAT | O_WRONLY, 0600);
    assert_int_equal(fb_os_write_all(os, fd, s.data, FRONT + s.count), 0);
    (void)os->close(os->ctx, fd);
    for (uint64_t k = 1; status != FB_OK; k++) {
        fb_alloc_fail_at(k, 0);
        status = read_all(os, s.count, data, &err);
        fb_alloc_fail_at(0, 0);
        assert_true(status == FB_OK || status == FB_E_NOMEM);
        assert_true(k < 20);
    }
    for (uint64_t k = 1; k < 12; k++) {
        os_sim_fail(sim, k, EIO, 0);
        status = read_all(os, s.count, data, &err);
        if (os_sim_calls(sim) >= k && strcmp(os_sim_call_name(sim, k), "close") != 0) assert_int_equal(status, FB_E_IO);
        os_sim_fail(sim, k, OS_SIM_SHORT, 0);
        assert_int_equal(read_all(os, s.count, data, &err), FB_OK);
    }
    os_sim_free(sim);
    free(s.data);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inflate__any_size_of_pieces_gives_the_same_bytes),
        cmocka_unit_test(test_inflate__a_rewound_stream_gives_all_bytes_again),
        cmocka_unit_test(test_inflate__an_empty_member_ends_at_once),
        cmocka_unit_test(test_inflate__a_stream_of_another_length_is_refused_at_its_end),
        cmocka_unit_test(test_inflate__every_truncation_is_noticed),
        cmocka_unit_test(test_inflate__a_stream_that_grows_beyond_reason_is_a_limit),
        cmocka_unit_test(test_inflate__each_failing_allocation_and_call_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
