/*
 * A bundle while memory or the system fails: the k-th request or call, once or for good, for every k; a full disk; a process that
 * is killed before any call; a power cut. There is no sealed bundle, or a whole one, and whoever comes after can write it again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "support/bundles.h"

static fb_error err;

/* 1: whole; 0: there is none. Anything else fails the test. */
static int is_sealed(const fb_os *os, const char *when, uint64_t k)
{
    fb_bundle *bundle = NULL;
    int whole;
    fb_status status = fb_bundle_open_on(os, &bundle, "/b", &err);
    if (status == FB_E_NOTFOUND) return 0;
    if (status != FB_OK) fail_msg("%s %llu: a sealed bundle that is not whole: %s", when, (unsigned long long)k, err.message);
    whole = bundles_whole(bundle);
    fb_bundle_close(bundle);
    assert_true(whole);
    return 1;
}

/* What the first attempt left behind is no obstacle: parts that are there are taken, the others written. */
static void again(const fb_os *os, uint64_t k)
{
    for (int32_t rank = 0; rank < 3; rank += 2) {
        fb_status status = bundles_write(os, "/b", rank, &err);
        if (status != FB_OK && status != FB_E_EXISTS) fail_msg("after call %llu: %s", (unsigned long long)k, err.message);
    }
    assert_int_equal(fb_bundle_seal_on(os, "/b", 3, &err), FB_OK);
    assert_int_equal(is_sealed(os, "after call", k), 1);
}

static void test_bundle_faults__whatever_call_fails_there_is_a_whole_bundle_or_none(void **state)
{
    static const int errnos[] = {5, 28, OS_SIM_SHORT, 4};
    (void)state;
    for (size_t e = 0; e < sizeof errnos / sizeof errnos[0]; e++) {
        for (int for_good = 0; for_good < 2; for_good++) {
            for (uint64_t k = 1;; k++) {
                os_sim *sim = os_sim_new();
                fb_status status;
                uint64_t calls;
                memset(&err, 0, sizeof err);
                os_sim_fail(sim, k, errnos[e], for_good);
                status = bundles_make(os_sim_os(sim), "/b", &err);
                calls = os_sim_calls(sim);
                os_sim_fail(sim, 0, 0, 0);
                if (status != FB_OK) assert_true(err.code == status && err.message[0]);
                if (errnos[e] == OS_SIM_SHORT && !for_good) assert_int_equal(status, FB_OK); /* no failure, only slower */
                if (is_sealed(os_sim_os(sim), "call", k)) assert_true(status == FB_OK || status == FB_E_IO);
                else {
                    assert_true(status != FB_OK);
                    again(os_sim_os(sim), k);
                }
                os_sim_free(sim);
                if (calls < k) break;
                assert_true(k < 2000);
            }
        }
    }
}

static void test_bundle_faults__whatever_memory_fails_there_is_a_whole_bundle_or_none(void **state)
{
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        for (uint64_t k = 1;; k++) {
            os_sim *sim = os_sim_new();
            fb_status status;
            uint64_t requests;
            fb_alloc_fail_at(k, for_good);
            status = bundles_make(os_sim_os(sim), "/b", &err);
            requests = fb_alloc_requests();
            fb_alloc_fail_at(0, 0);
            if (!is_sealed(os_sim_os(sim), "request", k)) {
                assert_int_equal(status, FB_E_NOMEM);
                again(os_sim_os(sim), k);
            }
            os_sim_free(sim);
            if (requests < k) break;
            assert_true(k < 2000);
        }
    }
}

static void test_bundle_faults__reading_gives_an_error_and_never_wrong_numbers(void **state)
{
    (void)state;
    for (int memory = 0; memory < 2; memory++) {
        for (uint64_t k = 1;; k++) {
            os_sim *sim = os_sim_new();
            fb_bundle *bundle = NULL;
            uint32_t weights[4];
            uint64_t made;
            fb_status status;
            assert_int_equal(bundles_make(os_sim_os(sim), "/b", &err), FB_OK);
            if (memory) fb_alloc_fail_at(k, 0);
            else os_sim_fail(sim, k, 5, 0);
            status = fb_bundle_open_on(os_sim_os(sim), &bundle, "/b", &err);
            if (status == FB_OK) status = fb_bundle_get(bundle, 2, FB_BUNDLE_STATE, "w", FB_F32, 4, weights, &err);
            if (status == FB_OK) assert_memory_equal(weights, bundles_weights, sizeof weights);
            else assert_true(status == (memory ? FB_E_NOMEM : FB_E_IO));
            made = memory ? fb_alloc_requests() : os_sim_calls(sim);
            fb_alloc_fail_at(0, 0);
            fb_bundle_close(bundle);
            os_sim_free(sim);
            if (made < k) break;
            assert_true(k < 2000);
        }
    }
}

static void test_bundle_faults__a_full_disk_leaves_no_sealed_bundle(void **state)
{
    (void)state;
    for (uint64_t blocks = 0; blocks < 12; blocks++) {
        os_sim *sim = os_sim_new();
        fb_status status;
        os_sim_capacity(sim, blocks * 4096);
        status = bundles_make(os_sim_os(sim), "/b", &err);
        if (status != FB_OK) assert_int_equal(err.os_errno, 28);
        assert_int_equal(is_sealed(os_sim_os(sim), "blocks", blocks), status == FB_OK);
        os_sim_capacity(sim, 1 << 20);
        if (status != FB_OK) again(os_sim_os(sim), blocks);
        os_sim_free(sim);
    }
}

static os_sim_fate kept(void *arg, size_t index, size_t bytes)
{
    const os_sim_fate fate = {OS_SIM_KEPT, 0};
    (void)arg;
    (void)index;
    (void)bytes;
    return fate;
}

static os_sim_fate any(void *arg, size_t index, size_t bytes)
{
    uint64_t *seed = arg;
    os_sim_fate fate = {(int)(os_sim_random(seed) % 7), os_sim_random(seed)};
    (void)index;
    if (fate.kind == OS_SIM_PREFIX || fate.kind == OS_SIM_SUFFIX) fate.value %= bytes + 1;
    return fate;
}

/* Killed before any call: everything that was done up to there stays, nothing else happens, locks are gone. */
static void test_bundle_faults__a_killed_writer_leaves_a_whole_bundle_or_none(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        os_sim *sim = os_sim_new(), *after;
        fb_status status;
        os_sim_cut(sim, k);
        status = bundles_make(os_sim_os(sim), "/b", &err);
        after = os_sim_after_power_cut(sim, kept, NULL, os_sim_waiting_names(sim));
        if (!is_sealed(os_sim_os(after), "killed at call", k)) again(os_sim_os(after), k);
        os_sim_free(after);
        os_sim_free(sim);
        if (status == FB_OK) break;
        assert_true(k < 2000);
    }
}

static void test_bundle_faults__after_a_power_cut_what_was_sealed_is_whole(void **state)
{
    uint64_t seed = 20260412;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t k = 1;; k++) {
        fb_status status = FB_OK;
        for (int round = 0; round < 12; round++) {
            os_sim *sim = os_sim_new(), *after;
            os_sim_cut(sim, k);
            status = bundles_make(os_sim_os(sim), "/b", &err);
            after = os_sim_after_power_cut(sim, any, &seed, os_sim_random(&seed) % (os_sim_waiting_names(sim) + 1));
            assert_true(is_sealed(os_sim_os(after), "power cut at call", k) || status != FB_OK);
            os_sim_free(after);
            os_sim_free(sim);
        }
        if (status == FB_OK) break;
        assert_true(k < 2000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundle_faults__whatever_call_fails_there_is_a_whole_bundle_or_none),
        cmocka_unit_test(test_bundle_faults__whatever_memory_fails_there_is_a_whole_bundle_or_none),
        cmocka_unit_test(test_bundle_faults__reading_gives_an_error_and_never_wrong_numbers),
        cmocka_unit_test(test_bundle_faults__a_full_disk_leaves_no_sealed_bundle),
        cmocka_unit_test(test_bundle_faults__a_killed_writer_leaves_a_whole_bundle_or_none),
        cmocka_unit_test(test_bundle_faults__after_a_power_cut_what_was_sealed_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
