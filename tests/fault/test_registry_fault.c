/*
 * Committing checkpoints on a simulated machine: every call fails once and for good, and the power is cut at every call. What must
 * hold, whatever happens: what was acknowledged as committed is committed when the power is back, and its bytes are those that were
 * scanned; a checkpoint with NaN is never committed; an earlier committed one stays; and the next checkpoint can be committed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/os_sim.h"
#include "registry/registry.h"

#define RUN "/run"

static uint64_t seed;

/* As a careless trainer writes: not synced. */
static int save(const fb_os *os, const char *path, float value, int bad)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[700],\"data_offsets\":[0,2800]}}";
    static const uint32_t nan = 0x7fc00000;
    unsigned char file[8 + sizeof header - 1 + 2800];
    float data[700];
    int64_t fd = os->open(os->ctx, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return 0;
    for (int i = 0; i < 700; i++) data[i] = value;
    if (bad) memcpy(&data[500], &nan, sizeof nan);
    memset(file, 0, 8);
    file[0] = sizeof header - 1;
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, data, sizeof data);
    int64_t wrote = fb_os_write_all(os, (int)fd, file, sizeof file);
    (void)os->close(os->ctx, (int)fd);
    return wrote == 0;
}

typedef struct outcome {
    int32_t good, bad; /* states that were told, 0: an error was */
    fb_status good_status, bad_status;
} outcome;

static int32_t commit(const fb_os *os, const char *path, int64_t step, fb_status *status)
{
    int32_t state = 0;
    fb_error err;
    fb_error_clear(&err);
    *status = fb_registry_commit(os, RUN, path, step, 1, 0, 1, &state, &err);
    if (*status != FB_OK) {
        assert_int_equal(err.code, *status);
        assert_true(err.message[0] != '\0');
        assert_int_equal(state, FB_CKPT_SUSPECT);
        return 0;
    }
    return state;
}

/* A machine with one committed checkpoint, all of it durable, and two new files. */
static os_sim *prepare(void)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_error err;
    fb_status status;
    if (fb_os_mkdirs(os, RUN, &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(save(os, RUN "/old", 1.0f, 0));
    assert_int_equal(commit(os, RUN "/old", 10, &status), FB_CKPT_COMMITTED);
    assert_true(save(os, RUN "/good", 2.0f, 0));
    assert_true(save(os, RUN "/bad", 3.0f, 1));
    return sim;
}

static outcome work(const fb_os *os)
{
    outcome o;
    o.good = commit(os, RUN "/good", 20, &o.good_status);
    o.bad = commit(os, RUN "/bad", 30, &o.bad_status);
    return o;
}

typedef struct states {
    int32_t old, good, bad;
} states;

static fb_status note_state(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    states *s = ctx;
    (void)sequence;
    (void)time_ns;
    (void)err;
    if (rec->step == 10) s->old = rec->state;
    if (rec->step == 20) s->good = rec->state;
    if (rec->step == 30) s->bad = rec->state;
    return FB_OK;
}

/* What the registry says now must fit what was told, and one can go on from it. */
static void judge(const fb_os *os, const outcome *o, const char *where, uint64_t k)
{
    fb_registry_checkpoint best;
    fb_error err;
    fb_status status;
    states s = {0, 0, 0};
    status = fb_registry_each(os, RUN, note_state, &s, &err);
    if (status != FB_OK) fail_msg("%s %llu, seed %llu: %s", where, (unsigned long long)k, (unsigned long long)seed, err.message);
    if (s.old != FB_CKPT_COMMITTED)
        fail_msg("%s %llu, seed %llu: the old one is lost", where, (unsigned long long)k, (unsigned long long)seed);
    if (s.bad == FB_CKPT_COMMITTED)
        fail_msg("%s %llu, seed %llu: NaN is committed", where, (unsigned long long)k, (unsigned long long)seed);
    if (o->good == FB_CKPT_COMMITTED && s.good != FB_CKPT_COMMITTED) {
        fail_msg("%s %llu, seed %llu: told committed, and it is not", where, (unsigned long long)k, (unsigned long long)seed);
    }
    if (o->bad == FB_CKPT_QUARANTINED && s.bad != FB_CKPT_QUARANTINED) {
        fail_msg("%s %llu, seed %llu: told quarantined, and it is not", where, (unsigned long long)k, (unsigned long long)seed);
    }
    status = fb_registry_latest_committed(os, RUN, FB_REGISTRY_VERIFY, &best, &err);
    if (status != FB_OK) fail_msg("%s %llu, seed %llu: %s", where, (unsigned long long)k, (unsigned long long)seed, err.message);
    /* Verified: whatever the registry calls committed has the bytes that were scanned. */
    if (s.good == FB_CKPT_COMMITTED && best.step != 20) {
        fail_msg("%s %llu, seed %llu: committed, with other bytes", where, (unsigned long long)k, (unsigned long long)seed);
    }
    assert_true(save(os, RUN "/next", 4.0f, 0));
    if (commit(os, RUN "/next", 40, &status) != FB_CKPT_COMMITTED) {
        fail_msg("%s %llu, seed %llu: the next one cannot be committed", where, (unsigned long long)k, (unsigned long long)seed);
    }
}

typedef struct power {
    int kind; /* OS_SIM_*, or -1: each write its own */
    uint64_t random;
} power;

static os_sim_fate fate_of(void *arg, size_t index, size_t bytes)
{
    power *p = arg;
    os_sim_fate fate;
    (void)index;
    fate.value = os_sim_random(&p->random);
    fate.kind = p->kind >= 0 ? p->kind : (int)((fate.value >> 32) % (OS_SIM_LENGTH + 1));
    if (fate.kind == OS_SIM_PREFIX || fate.kind == OS_SIM_SUFFIX) fate.value = bytes ? fate.value % bytes : 0;
    return fate;
}

/*
 * A failed call may have left something that was never durable under what came later: cut the power, and nothing waiting survives.
 * Where the sync of a record failed and it could not be taken out again either, the hole may show now. It is then called damage,
 * and no older state passes for the newest.
 */
static void judge_after_cut(os_sim *sim, int for_good, const char *where, uint64_t k)
{
    power p = {OS_SIM_LOST, 0};
    os_sim *after = os_sim_after_power_cut(sim, fate_of, &p, 0);
    fb_registry_checkpoint best;
    fb_error err;
    fb_status status = fb_registry_latest_committed(os_sim_os(after), RUN, FB_REGISTRY_VERIFY, &best, &err);
    if (for_good && status == FB_E_CORRUPT) {
        os_sim_free(after);
        return;
    }
    if (status != FB_OK || best.step != 40) {
        fail_msg("%s %llu, then a power cut: step %lld: %s", where, (unsigned long long)k, (long long)best.step,
                 status == FB_OK ? "the one that was told last is lost" : err.message);
    }
    os_sim_free(after);
}

static uint64_t calls_of_work(void)
{
    os_sim *sim = prepare();
    uint64_t calls;
    outcome o;
    os_sim_fail(sim, 0, 0, 0);
    o = work(os_sim_os(sim));
    calls = os_sim_calls(sim);
    assert_int_equal(o.good, FB_CKPT_COMMITTED);
    assert_int_equal(o.bad, FB_CKPT_QUARANTINED);
    os_sim_free(sim);
    return calls;
}

static void test_registry_fault__every_failing_call_leaves_a_registry_that_tells_the_truth(void **ignored)
{
    static const struct {
        int error, for_good;
    } faults[] = {{EIO, 0}, {EIO, 1}, {ENOSPC, 0}, {EINTR, 0}, {OS_SIM_SHORT, 1}};
    uint64_t calls = calls_of_work();
    (void)ignored;
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        for (uint64_t k = 1; k <= calls; k++) {
            os_sim *sim = prepare();
            outcome o;
            char where[80];
            os_sim_fail(sim, k, faults[f].error, faults[f].for_good);
            o = work(os_sim_os(sim));
            (void)snprintf(where, sizeof where, "error %d, %s, %s", faults[f].error, faults[f].for_good ? "for good" : "once",
                           os_sim_call_name(sim, k));
            os_sim_fail(sim, 0, 0, 0);
            judge(os_sim_os(sim), &o, where, k);
            judge_after_cut(sim, faults[f].for_good, where, k);
            os_sim_free(sim);
        }
    }
}

/* Each cut is tried with four fates: each write its own, all lost, all kept, and in turn one of the others. */
enum { FATES = 4 };

static int fate_number(int i, uint64_t k)
{
    static const int fates[FATES - 1] = {-1, OS_SIM_LOST, OS_SIM_KEPT};
    return i < FATES - 1 ? fates[i] : OS_SIM_PREFIX + (int)(k % (OS_SIM_LENGTH - OS_SIM_PREFIX + 1));
}

static void test_registry_fault__no_power_cut_makes_a_verdict_that_its_bytes_do_not_have(void **ignored)
{
    uint64_t calls = calls_of_work();
    (void)ignored;
    for (uint64_t k = 1; k <= calls + 1; k++) { /* the last: after everything was told */
        for (int i = 0; i < FATES; i++) {
            os_sim *sim = prepare(), *after;
            outcome o;
            power p;
            p.kind = fate_number(i, k);
            p.random = seed + k * 64 + (uint64_t)i;
            os_sim_cut(sim, k);
            o = work(os_sim_os(sim));
            after = os_sim_after_power_cut(sim, fate_of, &p, os_sim_waiting_names(sim) * (size_t)(k % 3) / 2);
            judge(os_sim_os(after), &o, "power cut at", k);
            os_sim_free(after);
            os_sim_free(sim);
        }
    }
}

/* The very first record: the log itself is created under the cut. */
static void test_registry_fault__a_power_cut_while_the_registry_is_created_does_not_block_it(void **ignored)
{
    (void)ignored;
    for (uint64_t k = 1; k < 60; k++) {
        for (int i = 0; i < FATES; i++) {
            os_sim *sim = os_sim_new(), *after;
            fb_error err;
            fb_status status;
            power p;
            int32_t told;
            fb_registry_checkpoint best;
            p.kind = fate_number(i, k);
            p.random = seed + k;
            assert_int_equal(fb_os_mkdirs(os_sim_os(sim), RUN, &err), FB_OK);
            assert_true(save(os_sim_os(sim), RUN "/a", 1.0f, 0));
            os_sim_cut(sim, k);
            told = commit(os_sim_os(sim), RUN "/a", 10, &status);
            after = os_sim_after_power_cut(sim, fate_of, &p, os_sim_waiting_names(sim) * (size_t)(k % 3) / 2);
            status = fb_registry_latest_committed(os_sim_os(after), RUN, FB_REGISTRY_VERIFY, &best, &err);
            if (told == FB_CKPT_COMMITTED && status != FB_OK)
                fail_msg("cut at %llu, seed %llu: %s", (unsigned long long)k, (unsigned long long)seed, err.message);
            assert_true(save(os_sim_os(after), RUN "/a", 2.0f, 0));
            if (commit(os_sim_os(after), RUN "/a", 20, &status) != FB_CKPT_COMMITTED) {
                fail_msg("cut at %llu, kind %d, seed %llu: the registry is blocked", (unsigned long long)k, p.kind,
                         (unsigned long long)seed);
            }
            os_sim_free(after);
            os_sim_free(sim);
        }
    }
}

static void test_registry_fault__a_lock_that_is_never_given_back_does_not_hang_us(void **ignored)
{
    os_sim *sim = prepare();
    const fb_os *os = os_sim_os(sim);
    int64_t fd = os->open(os->ctx, RUN "/" FB_REGISTRY_FILE ".lock", O_RDWR, 0);
    fb_status status;
    (void)ignored;
    assert_true(fd >= 0);
    assert_int_equal(os->lock(os->ctx, (int)fd, FB_OS_LOCK), 0);
    assert_int_equal(commit(os, RUN "/good", 20, &status), 0);
    assert_int_equal(status, FB_E_IO);
    assert_int_equal(os->lock(os->ctx, (int)fd, FB_OS_UNLOCK), 0);
    assert_int_equal(commit(os, RUN "/good", 20, &status), FB_CKPT_COMMITTED);
    os_sim_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry_fault__every_failing_call_leaves_a_registry_that_tells_the_truth),
        cmocka_unit_test(test_registry_fault__no_power_cut_makes_a_verdict_that_its_bytes_do_not_have),
        cmocka_unit_test(test_registry_fault__a_power_cut_while_the_registry_is_created_does_not_block_it),
        cmocka_unit_test(test_registry_fault__a_lock_that_is_never_given_back_does_not_hang_us),
    };
    const char *given = getenv("FB_SEED");
    seed = given ? strtoull(given, NULL, 0) : 20240601;
    printf("FB_SEED=%llu replays this run\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
