/*
 * The guard on a machine that fails: every system call and every request for memory, one by one, once and for good; a full disk;
 * power cut at every call. What must hold: the gate decides as on a healthy machine, the first-bad record once acknowledged is
 * there after the power came back, and what was lost is told.
 */
#include "support/world.h"

#include <errno.h>

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "log/log.h"

enum { RANKS = 2, BAD_STEP = 3, STEPS = 5, BAD_RANK = 1 };

static void spoil(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == BAD_RANK) w->rank[rank].grad[1][2] = world_bits(0x7fc00000u);
}

static void setup(world *w, os_sim *sim)
{
    world_init(w, RANKS);
    w->os = os_sim_os(sim);
    w->config.dir = "/runs";
}

static void training(world *w)
{
    for (int64_t step = 0; step < STEPS; step++) {
        int bad = step == BAD_STEP;
        float before = w->rank[0].param[0][0];
        assert_int_equal(world_step(w, step, bad ? spoil : NULL, NULL), bad ? FB_SKIP : FB_PROCEED);
        assert_true((w->rank[0].param[0][0] != before) == !bad);
        assert_int_equal(w->rank[1].verdict.first_rank, bad ? BAD_RANK : -1);
    }
}

/* 1 when rank BAD_RANK's ledger holds the frozen record, whole and right; 0 when it is not there; anything else fails. */
static int frozen_is_there(const fb_os *os)
{
    fb_log_reader *reader = NULL;
    fb_log_record record;
    fb_rec_finding finding;
    fb_error err;
    int there = 0;
    if (fb_log_reader_open(&reader, os, "/runs/test/ledger/a1/r00001.log", &err) != FB_OK) return 0;
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        if (fb_log_reader_frozen(reader, i, &record, &err) != FB_OK || record.type != FB_REC_FIRST_BAD) continue;
        assert_int_equal(fb_rec_finding_decode(record.payload, record.bytes, &finding, &err), FB_OK);
        assert_int_equal(finding.step, BAD_STEP);
        assert_int_equal(finding.rank, BAD_RANK);
        assert_int_equal(finding.first_index, 2);
        there = 1;
    }
    fb_log_reader_close(reader);
    return there;
}

/* Calls that opening and training make on a healthy machine. */
static uint64_t healthy_calls(uint64_t *opening)
{
    os_sim *sim = os_sim_new();
    world w;
    uint64_t calls;
    setup(&w, sim);
    world_open(&w);
    *opening = os_sim_calls(sim);
    training(&w);
    calls = os_sim_calls(sim);
    assert_int_equal(frozen_is_there(w.os), 1);
    assert_int_equal(fb_run_evidence_lost(w.rank[0].run, NULL), 0);
    world_close(&w);
    os_sim_free(sim);
    return calls;
}

static void test_guard_faults__every_failing_system_call_leaves_the_gate_as_it_is(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EINTR, OS_SIM_SHORT};
    uint64_t opening, calls = healthy_calls(&opening);
    (void)state;
    assert_true(calls > opening && opening > 10);
    for (int for_good = 0; for_good < 2; for_good++) {
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            for (uint64_t k = 1; k <= calls; k++) {
                os_sim *sim = os_sim_new();
                world w;
                setup(&w, sim);
                os_sim_fail(sim, k, errors[e], for_good);
                world_open(&w);
                training(&w);
                os_sim_fail(sim, 0, 0, 0);
                /* One failure after opening never costs the first-bad record. */
                if (!for_good && k > opening) assert_int_equal(frozen_is_there(w.os), 1);
                if (frozen_is_there(w.os) == 0) assert_true(fb_run_evidence_lost(w.rank[BAD_RANK].run, NULL) > 0);
                world_close(&w);
                os_sim_free(sim);
            }
        }
    }
}

static void test_guard_faults__full_disk_still_keeps_the_first_bad_record_and_tells_the_loss(void **state)
{
    os_sim *sim = os_sim_new();
    world w;
    fb_error why;
    fb_log_reader *reader = NULL;
    fb_log_record record;
    int told = 0;
    (void)state;
    setup(&w, sim);
    world_open(&w);
    os_sim_capacity(sim, 1); /* from here on no file gets another block */
    training(&w);
    assert_int_equal(frozen_is_there(w.os), 1);
    assert_true(fb_run_evidence_lost(w.rank[BAD_RANK].run, &why) > 0);
    assert_int_equal(why.os_errno, ENOSPC);
    /* The loss itself stands in set-aside space, where a reader finds it. */
    assert_int_equal(fb_log_reader_open(&reader, w.os, "/runs/test/ledger/a1/r00001.log", &why), FB_OK);
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        fb_rec_event event;
        if (fb_log_reader_frozen(reader, i, &record, &why) != FB_OK || record.type != FB_REC_EVENT) continue;
        assert_int_equal(fb_rec_event_decode(record.payload, record.bytes, &event, &why), FB_OK);
        told += event.event == FB_EVENT_EVIDENCE_LOST && event.text.bytes > 20;
    }
    assert_int_equal(told, 1);
    fb_log_reader_close(reader);
    world_close(&w);
    os_sim_free(sim);
}

/* Fates by a seed: each waiting write is lost, kept, torn or garbled. */
static os_sim_fate any_fate(void *arg, size_t index, size_t bytes)
{
    uint64_t random = os_sim_random(arg);
    os_sim_fate fate;
    (void)index;
    fate.kind = (int)(random % 7);
    fate.value = (random >> 8) % (bytes + 1);
    return fate;
}

static void test_guard_faults__power_cut_after_the_ballot_keeps_the_first_bad_record(void **state)
{
    uint64_t opening, calls = healthy_calls(&opening);
    (void)state;
    for (uint64_t k = opening + 1; k <= calls + 1; k++) {
        for (uint64_t round = 0; round < 8; round++) {
            os_sim *sim = os_sim_new(), *after;
            uint64_t seed = k * 1000 + round;
            world w;
            int acknowledged;
            setup(&w, sim);
            world_open(&w);
            os_sim_cut(sim, k - opening);
            training(&w); /* the process does not know that the power is gone; nothing it does matters any more */
            /* Acknowledged: rank 1 froze it while the machine still ran. The freeze is durable on return, so it must be there. */
            acknowledged = w.rank[BAD_RANK].run->lost == 0;
            after = os_sim_after_power_cut(sim, any_fate, &seed, os_sim_waiting_names(sim));
            if (acknowledged && !frozen_is_there(os_sim_os(after)))
                fail_msg("call %llu, seed %llu", (unsigned long long)k, (unsigned long long)(k * 1000 + round));
            if (!acknowledged) (void)frozen_is_there(os_sim_os(after)); /* if there, it must be right */
            world_close(&w);
            os_sim_free(after);
            os_sim_free(sim);
        }
    }
}

static void test_guard_faults__every_failing_request_for_memory_fails_the_call_or_nothing(void **state)
{
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        int clean = 0;
        for (uint64_t k = 1; !clean; k++) {
            os_sim *sim = os_sim_new();
            world w;
            fb_run *run = NULL;
            fb_error err;
            fb_site site = FB_SITE_INIT;
            uint32_t id;
            setup(&w, sim);
            w.config.rank = 0;
            fb_alloc_fail_at(k, for_good);
            fb_error_clear(&err);
            if (fb_run_open_with(&run, &w.config, w.os, &err) != FB_OK) {
                assert_int_equal(err.code, FB_E_NOMEM);
                assert_null(run);
            } else {
                site.role = FB_ROLE_GRADIENT;
                if (fb_run_add_site(run, &site, &id, &err) != FB_OK) assert_int_equal(err.code, FB_E_NOMEM);
                else assert_int_equal(id, 0);
            }
            clean = fb_alloc_requests() < k;
            fb_alloc_fail_at(0, 0);
            fb_run_close(run);
            w.ranks = 0; /* nothing of it is open */
            world_close(&w);
            os_sim_free(sim);
            assert_true(k < 1000);
        }
    }
}

static void test_guard_faults__steps_ask_for_no_memory(void **state)
{
    world w;
    (void)state;
    world_init(&w, RANKS);
    world_open(&w);
    for (int64_t step = 0; step < 3; step++) {
        fb_alloc_fail_at(0, 0);
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        assert_int_equal(fb_alloc_requests(), 0);
    }
    world_close(&w);
}

/* P11: on a healthy step one record, a pulse for each ballot and each verdict, and no wait for the disk. */
static void test_guard_faults__healthy_step_makes_five_small_writes_and_no_sync(void **state)
{
    os_sim *sim = os_sim_new();
    world w;
    (void)state;
    setup(&w, sim);
    world_open(&w);
    for (int64_t step = 0; step < 20; step++) {
        os_sim_fail(sim, 0, 0, 0);
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        assert_int_equal(os_sim_calls(sim), 5 * RANKS);
        for (uint64_t k = 1; k <= os_sim_calls(sim); k++) assert_string_equal(os_sim_call_name(sim, k), "pwrite");
    }
    world_close(&w);
    os_sim_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_faults__every_failing_system_call_leaves_the_gate_as_it_is),
        cmocka_unit_test(test_guard_faults__full_disk_still_keeps_the_first_bad_record_and_tells_the_loss),
        cmocka_unit_test(test_guard_faults__power_cut_after_the_ballot_keeps_the_first_bad_record),
        cmocka_unit_test(test_guard_faults__every_failing_request_for_memory_fails_the_call_or_nothing),
        cmocka_unit_test(test_guard_faults__steps_ask_for_no_memory),
        cmocka_unit_test(test_guard_faults__healthy_step_makes_five_small_writes_and_no_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
