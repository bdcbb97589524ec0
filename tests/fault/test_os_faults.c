/* Files that appear whole or not at all: the power is cut at every call of it, and every call fails. On the simulated machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "fault/os_sim.h"

enum { CONTENT_BYTES = 3000, CHANCES = 60 };

static char old_content[CONTENT_BYTES / 2], new_content[CONTENT_BYTES];

static os_sim *machine(int with_old)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    memset(old_content, 'o', sizeof old_content);
    memset(new_content, 'n', sizeof new_content);
    assert_int_equal(fb_os_mkdirs(os, "/run", NULL), FB_OK);
    if (with_old) assert_int_equal(fb_os_put_new(os, "/run", "f", old_content, sizeof old_content, NULL), FB_OK);
    os_sim_cut(sim, 0);
    return sim;
}

enum { NOTHING = 0, OLD = 1, NEW = 2, MIXTURE = 3 };

static int content(const fb_os *os)
{
    char *data;
    size_t bytes;
    int found = MIXTURE;
    fb_status status = fb_os_read_file(os, "/run/f", 1 << 20, &data, &bytes, NULL);
    if (status == FB_E_NOTFOUND) return NOTHING;
    assert_int_equal(status, FB_OK);
    if (bytes == sizeof old_content && memcmp(data, old_content, bytes) == 0) found = OLD;
    if (bytes == sizeof new_content && memcmp(data, new_content, bytes) == 0) found = NEW;
    fb_free(data);
    return found;
}

typedef fb_status (*placing)(const fb_os *os, const char *dir, const char *name, const void *data, size_t bytes, fb_error *err);

static fb_status place(placing how, os_sim *sim)
{
    return how(os_sim_os(sim), "/run", "f", new_content, sizeof new_content, NULL);
}

static uint64_t calls_of(placing how, int with_old)
{
    os_sim *sim = machine(with_old);
    uint64_t calls;
    (void)place(how, sim);
    calls = os_sim_calls(sim);
    os_sim_free(sim);
    return calls;
}

static os_sim_fate random_fate(void *arg, size_t index, size_t bytes)
{
    uint64_t *seed = arg;
    os_sim_fate fate = {(int)(os_sim_random(seed) % (OS_SIM_LENGTH + 1)), os_sim_random(seed)};
    (void)index;
    if (fate.kind == OS_SIM_PREFIX || fate.kind == OS_SIM_SUFFIX) fate.value %= bytes + 1;
    return fate;
}

/* before: what is there at first. acknowledged: what must be there once the call said FB_OK. */
static void cut_everywhere(placing how, int before, int acknowledged)
{
    uint64_t calls = calls_of(how, before == OLD);
    for (uint64_t k = 1; k <= calls + 1; k++) {
        os_sim *sim = machine(before == OLD);
        fb_status status;
        os_sim_cut(sim, k);
        status = place(how, sim);
        for (uint64_t chance = 0; chance < CHANCES; chance++) {
            uint64_t seed = k * 1000 + chance;
            os_sim *after = os_sim_after_power_cut(sim, random_fate, &seed, (size_t)(chance % (os_sim_waiting_names(sim) + 1)));
            int found = content(os_sim_os(after));
            if (status == FB_OK ? found != acknowledged : found != before && found != NEW) {
                fail_msg("power cut at call %llu (%s), chance %llu: status %d, content %d", (unsigned long long)k,
                         os_sim_call_name(sim, k), (unsigned long long)chance, (int)status, found);
            }
            os_sim_free(after);
        }
        os_sim_free(sim);
    }
}

static void test_os__put_new_is_whole_or_absent_after_a_power_cut_at_any_call(void **state)
{
    (void)state;
    cut_everywhere(fb_os_put_new, NOTHING, NEW);
}

static void test_os__replace_gives_the_old_or_the_new_after_a_power_cut_at_any_call(void **state)
{
    (void)state;
    cut_everywhere(fb_os_replace, OLD, NEW);
    cut_everywhere(fb_os_replace, NOTHING, NEW);
}

static int64_t count_one(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

/* What a single failure of a call must come to: an interruption or a short write to nothing, a close or write that fails to a
 * status. */
static void expect_status(const os_sim *sim, uint64_t k, int failure, fb_status status)
{
    const char *call = os_sim_call_name(sim, k);
    int first_close = strcmp(call, "close") == 0;
    int transfer = first_close || strcmp(call, "open") == 0 || strcmp(call, "write") == 0 || strcmp(call, "fsync") == 0;
    for (uint64_t i = 1; i < k; i++) first_close = first_close && strcmp(os_sim_call_name(sim, i), "close") != 0;
    if (failure == OS_SIM_SHORT || (failure == EINTR && transfer)) assert_int_equal(status, FB_OK);
    if (failure == ENOSPC && (first_close || (transfer && strcmp(call, "close") != 0))) assert_int_equal(status, FB_E_IO);
}

static void fail_everywhere(placing how, int before)
{
    static const int failures[] = {EIO, ENOSPC, EINTR, OS_SIM_SHORT};
    uint64_t calls = calls_of(how, before == OLD);
    for (size_t f = 0; f < sizeof failures / sizeof failures[0]; f++) {
        for (uint64_t k = 1; k <= 2 * (calls + 6); k++) {
            os_sim *sim = machine(before == OLD);
            const fb_os *os = os_sim_os(sim);
            int for_good = k % 2, names = 0, found;
            fb_status status;
            os_sim_fail(sim, (k + 1) / 2, failures[f], for_good);
            status = place(how, sim);
            if (!for_good) expect_status(sim, (k + 1) / 2, failures[f], status);
            os_sim_fail(sim, 0, 0, 0);
            found = content(os);
            assert_true(found == before || found == NEW);
            if (status == FB_OK) assert_int_equal(found, NEW);
            assert_int_equal(os->list(os->ctx, "/run", count_one, &names), 0);
            /* A single failure leaves no temporary file, unless it is the removal of that file which fails. */
            if (!for_good && !(status == FB_OK && names == 2)) assert_int_equal(names, found == NOTHING ? 0 : 1);
            os_sim_free(sim);
        }
    }
}

static void test_os__any_failing_call_leaves_the_old_file_or_the_new(void **state)
{
    (void)state;
    fail_everywhere(fb_os_put_new, NOTHING);
    fail_everywhere(fb_os_replace, OLD);
    fail_everywhere(fb_os_replace, NOTHING);
}

static void test_os__put_new_keeps_the_first_whatever_fails(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 20; k++) {
        os_sim *sim = machine(1);
        os_sim_fail(sim, k, EIO, 0);
        assert_true(place(fb_os_put_new, sim) < 0);
        os_sim_fail(sim, 0, 0, 0);
        assert_int_equal(content(os_sim_os(sim)), OLD);
        os_sim_free(sim);
    }
}

/* The answer to a link request was lost and the request repeated: the file system says that the name is taken, by us. */
static fb_os plain;

static int64_t link_twice(void *ctx, const char *from, const char *to)
{
    (void)plain.link(ctx, from, to);
    return plain.link(ctx, from, to);
}

static void test_os__put_new_knows_its_own_link(void **state)
{
    os_sim *sim = machine(0);
    fb_os network = *os_sim_os(sim);
    (void)state;
    plain = network;
    network.link = link_twice;
    assert_int_equal(fb_os_put_new(&network, "/run", "f", new_content, sizeof new_content, NULL), FB_OK);
    assert_int_equal(fb_os_put_new(&network, "/run", "f", old_content, sizeof old_content, NULL), FB_E_EXISTS);
    assert_int_equal(content(&network), NEW);
    os_sim_free(sim);
}

static os_sim_fate lost(void *arg, size_t index, size_t bytes)
{
    os_sim_fate fate = {OS_SIM_LOST, 0};
    (void)arg;
    (void)index;
    (void)bytes;
    return fate;
}

static void test_os__folders_made_are_there_after_a_power_cut(void **state)
{
    os_sim *sim = os_sim_new(), *after;
    fb_os_info info;
    (void)state;
    assert_int_equal(fb_os_mkdirs(os_sim_os(sim), "/runs/r1/ledger/a1", NULL), FB_OK);
    after = os_sim_after_power_cut(sim, lost, NULL, 0);
    assert_int_equal(os_sim_os(after)->stat(after, "/runs/r1/ledger/a1", &info), 0);
    assert_int_equal(info.kind, FB_OS_FOLDER);
    os_sim_free(after);
    os_sim_free(sim);
}

static void test_os__read_file_fails_cleanly(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 3; k++) { /* open, fstat, read */
        os_sim *sim = machine(1);
        fb_error err = {0};
        char *data;
        size_t bytes;
        os_sim_fail(sim, k, EIO, 0);
        assert_int_equal(fb_os_read_file(os_sim_os(sim), "/run/f", 1 << 20, &data, &bytes, &err), FB_E_IO);
        assert_null(data);
        assert_int_equal(err.os_errno, EIO);
        os_sim_fail(sim, 0, 0, 0);
        fb_alloc_fail_at(1, 0);
        assert_int_equal(fb_os_read_file(os_sim_os(sim), "/run/f", 1 << 20, &data, &bytes, &err), FB_E_NOMEM);
        fb_alloc_fail_at(0, 0);
        assert_null(data);
        os_sim_free(sim);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_os__put_new_is_whole_or_absent_after_a_power_cut_at_any_call),
        cmocka_unit_test(test_os__replace_gives_the_old_or_the_new_after_a_power_cut_at_any_call),
        cmocka_unit_test(test_os__any_failing_call_leaves_the_old_file_or_the_new),
        cmocka_unit_test(test_os__put_new_keeps_the_first_whatever_fails),
        cmocka_unit_test(test_os__put_new_knows_its_own_link),
        cmocka_unit_test(test_os__folders_made_are_there_after_a_power_cut),
        cmocka_unit_test(test_os__read_file_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
