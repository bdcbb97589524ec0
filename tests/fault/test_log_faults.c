/*
 * The record log on a simulated machine: the power is cut at every call, every call fails, every request for memory fails, the
 * disk is full. One scenario runs through all of it; a model of what was handed in and what was acknowledged judges what a reader
 * finds.
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

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "log/layout.h"
#include "log/log.h"

#define PATH "/run/r00000.log"
enum { ID = 0x5eed, ITEMS_MAX = 64 };

/* ---- the model -------------------------------------------------------------------------------------------------------------- */

struct item {
    uint32_t bytes;
    int written; /* the call said that it was */
    int slot;    /* frozen: where, when acknowledged; else -1 */
};

struct model {
    int created;
    uint32_t appended, frozen, pulses; /* handed in; item i has sequence number i + 1 */
    uint32_t durable;                  /* appended records with a number up to this one were acknowledged as durable */
    uint32_t newest_pulse;             /* number of the last pulse that was acknowledged */
    struct item append[ITEMS_MAX], freeze[ITEMS_MAX], pulse[ITEMS_MAX];
};

enum { APPEND = 1, FREEZE = 2, PULSE = 3 };

/* The payload of item `number` of a kind: it depends on nothing else, so that a reader can be judged by it. */
static void fill(unsigned char *out, int kind, uint64_t number, uint32_t bytes)
{
    uint64_t seed = (uint64_t)kind * 1000003 + number;
    for (uint32_t i = 0; i < bytes; i++) out[i] = (unsigned char)os_sim_random(&seed);
}

static unsigned char scratch[FB_LOG_PAYLOAD_MAX];

static fb_status append(fb_log *log, struct model *m, uint32_t bytes, int sync)
{
    fb_error err = {0};
    uint64_t lost = fb_log_lost(log);
    struct item *item = &m->append[m->appended++];
    fb_status status;
    fill(scratch, APPEND, m->appended, bytes);
    item->bytes = bytes;
    status = fb_log_append(log, (uint16_t)m->appended, scratch, bytes, sync, &err);
    item->written = fb_log_lost(log) == lost; /* a failed sync leaves it written, but not durable */
    if (status == FB_OK && sync) m->durable = m->appended;
    if (status != FB_OK) assert_true(err.code == status && err.message[0]);
    return status;
}

static fb_status freeze(fb_log *log, struct model *m, uint32_t bytes)
{
    fb_error err = {0};
    uint32_t slot = 0;
    struct item *item = &m->freeze[m->frozen++];
    fb_status status;
    fill(scratch, FREEZE, m->frozen, bytes);
    item->bytes = bytes;
    item->slot = -1;
    status = fb_log_freeze(log, (uint16_t)m->frozen, scratch, bytes, &slot, &err);
    if (status == FB_OK) item->slot = (int)slot;
    else assert_true(err.code == status && err.message[0]);
    return status;
}

static fb_status pulse(fb_log *log, struct model *m, uint32_t bytes)
{
    fb_status status;
    m->pulse[m->pulses++].bytes = bytes;
    fill(scratch, PULSE, m->pulses, bytes);
    status = fb_log_pulse(log, scratch, bytes, NULL);
    if (status == FB_OK) m->newest_pulse = m->pulses;
    return status;
}

/* A rank's life in short. What fails is not tried again, and the rest goes on: training does not stop for its log. */
static void scenario(const fb_os *os, struct model *m)
{
    fb_log *log = NULL;
    memset(m, 0, sizeof *m);
    if (fb_log_create(&log, os, PATH, ID, NULL) != FB_OK) return;
    m->created = 1;
    (void)append(log, m, 100, 0);
    (void)append(log, m, 700, 1);
    (void)pulse(log, m, 48);
    (void)append(log, m, 403, 0);
    (void)freeze(log, m, 1500);
    (void)append(log, m, 1300, 0);
    (void)pulse(log, m, 192);
    (void)freeze(log, m, 5000);
    (void)append(log, m, 0, 0);
    (void)pulse(log, m, 20);
    (void)append(log, m, 61, 1);
    (void)append(log, m, 900, 0);
    (void)freeze(log, m, 40);
    fb_log_close(log);
}

/* A machine with a durable folder for the log. Calls count from here. */
static os_sim *machine(void)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    assert_int_equal(os->mkdir(os->ctx, "/run", 0777), 0);
    assert_int_equal(fb_os_sync_dir(os, "/"), 0);
    os_sim_cut(sim, 0);
    return sim;
}

static uint64_t calls_of_scenario(void)
{
    struct model m;
    os_sim *sim = machine();
    uint64_t calls;
    scenario(os_sim_os(sim), &m);
    assert_true(m.created);
    calls = os_sim_calls(sim);
    os_sim_free(sim);
    return calls;
}

/* ---- the judge -------------------------------------------------------------------------------------------------------------- */

enum { AFTER_CRASH = 0, IN_CACHE = 1, AFTER_RUIN = 2 };

static char where[200]; /* what the judge is looking at, for its messages */

#define JUDGE(condition)                                                             \
    do {                                                                             \
        if (!(condition)) fail_msg("%s: %s (line %d)", where, #condition, __LINE__); \
    } while (0)

static void judge_payload(const fb_log_record *record, int kind, const struct item *item)
{
    JUDGE(record->bytes == item->bytes);
    fill(scratch, kind, record->sequence, item->bytes);
    JUDGE(memcmp(record->payload, scratch, item->bytes) == 0);
}

static void judge_appended(fb_log_reader *reader, const struct model *m, int when)
{
    fb_log_record record;
    fb_log_tail tail;
    uint64_t last = 0;
    while (fb_log_reader_next(reader, &record, NULL) == FB_OK) {
        JUDGE(record.sequence > last && record.sequence <= m->appended);
        JUDGE(record.type == record.sequence);
        judge_payload(&record, APPEND, &m->append[record.sequence - 1]);
        /* No hole: only a record that was reported as lost may be missing between two that are there. */
        for (uint64_t s = last + 1; s < record.sequence; s++) JUDGE(!m->append[s - 1].written);
        last = record.sequence;
    }
    JUDGE(fb_log_reader_tail(reader, &tail, NULL) == FB_OK);
    if (when == AFTER_CRASH) JUDGE(last >= m->durable);
    if (when == IN_CACHE) {
        for (uint64_t s = last + 1; s <= m->appended; s++) JUDGE(!m->append[s - 1].written);
    }
}

static void judge_frozen(fb_log_reader *reader, const struct model *m)
{
    fb_log_record record;
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        fb_status status = fb_log_reader_frozen(reader, i, &record, NULL);
        JUDGE(status == FB_OK || status == FB_E_NOTFOUND || status == FB_E_CORRUPT);
        if (status != FB_OK) continue;
        JUDGE(record.sequence >= 1 && record.sequence <= m->frozen);
        judge_payload(&record, FREEZE, &m->freeze[record.sequence - 1]);
    }
    for (uint32_t k = 0; k < m->frozen; k++) {
        if (m->freeze[k].slot < 0) continue;
        JUDGE(fb_log_reader_frozen(reader, (uint32_t)m->freeze[k].slot, &record, NULL) == FB_OK);
        JUDGE(record.sequence == k + 1 && record.type == k + 1);
    }
}

static void judge_pulse(fb_log_reader *reader, const struct model *m, int when)
{
    fb_log_record record;
    fb_status status = fb_log_reader_pulse(reader, &record, NULL);
    JUDGE(status == FB_OK || status == FB_E_NOTFOUND);
    if (when == IN_CACHE && m->newest_pulse) JUDGE(status == FB_OK && record.sequence >= m->newest_pulse);
    if (status != FB_OK) return;
    JUDGE(record.sequence >= 1 && record.sequence <= m->pulses);
    judge_payload(&record, PULSE, &m->pulse[record.sequence - 1]);
}

static void judge(const fb_os *os, const struct model *m, int when)
{
    fb_error err = {0};
    fb_log_reader *reader = NULL;
    fb_log_info info;
    fb_status status = fb_log_reader_open(&reader, os, PATH, &err);
    if (m->created) JUDGE(status == FB_OK);
    JUDGE(status == FB_OK || status == FB_E_NOTFOUND || status == FB_E_CORRUPT);
    if (status != FB_OK) return;
    JUDGE(fb_log_reader_info(reader, &info, NULL) == FB_OK && info.file_id == ID);
    judge_frozen(reader, m);
    judge_appended(reader, m, when);
    judge_pulse(reader, m, when);
    fb_log_reader_close(reader);
}

/* ---- power cuts ------------------------------------------------------------------------------------------------------------- */

enum { ENUMERATED = 3, FATES = 5 };

struct chance {
    uint64_t combination; /* fates of the newest writes, in base FATES; UINT64_MAX: random */
    uint64_t seed;
    int ruin;
};

static os_sim_fate some_fate(uint64_t *seed, size_t bytes)
{
    os_sim_fate fate;
    fate.kind = (int)(os_sim_random(seed) % (OS_SIM_LENGTH + 1));
    fate.value = os_sim_random(seed);
    if (fate.kind == OS_SIM_PREFIX || fate.kind == OS_SIM_SUFFIX) fate.value %= bytes + 1;
    return fate;
}

static os_sim_fate fate_of(void *arg, size_t index, size_t bytes)
{
    struct chance *chance = arg;
    uint64_t digits = chance->combination;
    os_sim_fate fate = some_fate(&chance->seed, bytes);
    if (chance->ruin) {
        fate.kind = fate.value & 1 ? OS_SIM_RUINED : OS_SIM_KEPT;
        return fate;
    }
    if (digits == UINT64_MAX || index >= ENUMERATED) return fate;
    for (size_t i = 0; i < index; i++) digits /= FATES;
    switch (digits % FATES) {
    case 0: fate.kind = OS_SIM_LOST; break;
    case 1: fate.kind = OS_SIM_KEPT; break;
    case 2:
        fate.kind = OS_SIM_PREFIX;
        fate.value = bytes / 2;
        break;
    case 3:
        fate.kind = OS_SIM_SUFFIX;
        fate.value = bytes / 2;
        break;
    default: fate.kind = fate.value & 1 ? OS_SIM_GARBLED : OS_SIM_LENGTH; break;
    }
    return fate;
}

static void judge_after(const os_sim *sim, const struct model *m, struct chance chance, uint64_t k)
{
    os_sim *after;
    size_t names = (size_t)(chance.seed % (os_sim_waiting_names(sim) + 1));
    (void)snprintf(where, sizeof where, "power cut at call %llu (%s), combination %lld, seed %llu, %zu names kept",
                   (unsigned long long)k, os_sim_call_name(sim, k), (long long)chance.combination, (unsigned long long)chance.seed,
                   names);
    after = os_sim_after_power_cut(sim, fate_of, &chance, names);
    judge(os_sim_os(after), m, chance.ruin ? AFTER_RUIN : AFTER_CRASH);
    os_sim_free(after);
}

static uint64_t combinations_of(const os_sim *sim)
{
    uint64_t combinations = 1;
    for (size_t i = 0; i < ENUMERATED && i < os_sim_waiting_writes(sim); i++) combinations *= FATES;
    return combinations;
}

static void test_log__a_power_cut_at_any_call_loses_nothing_that_was_acknowledged(void **state)
{
    uint64_t calls = calls_of_scenario();
    (void)state;
    assert_true(calls > 30);
    for (uint64_t k = 1; k <= calls + 1; k++) { /* the last: after the end, with what was never synced */
        struct model m;
        os_sim *sim = machine();
        uint64_t combinations;
        os_sim_cut(sim, k);
        scenario(os_sim_os(sim), &m);
        combinations = combinations_of(sim);
        for (uint64_t c = 0; c < combinations; c++) judge_after(sim, &m, (struct chance){c, k * 1000 + c, 0}, k);
        for (uint64_t r = 0; r < 60; r++) judge_after(sim, &m, (struct chance){UINT64_MAX, k * 77777 + r, 0}, k);
        os_sim_free(sim);
    }
}

static void test_log__a_frozen_record_survives_a_disk_that_ruins_the_blocks_it_was_writing(void **state)
{
    uint64_t calls = calls_of_scenario();
    (void)state;
    for (uint64_t k = 1; k <= calls + 1; k++) {
        struct model m;
        os_sim *sim = machine();
        os_sim_cut(sim, k);
        scenario(os_sim_os(sim), &m);
        /* While it is created nothing is acknowledged yet, and a ruined file is just no log. */
        for (uint64_t r = 0; m.created && r < 25; r++) judge_after(sim, &m, (struct chance){UINT64_MAX, k * 31337 + r, 1}, k);
        os_sim_free(sim);
    }
}

struct torn {
    int kind;
    size_t at;
};

static os_sim_fate torn_fate(void *arg, size_t index, size_t bytes)
{
    const struct torn *torn = arg;
    os_sim_fate fate = {OS_SIM_KEPT, 0};
    (void)bytes;
    if (index > 0) return fate; /* all but the newest reached the disk */
    fate.kind = torn->kind;
    fate.value = torn->at;
    return fate;
}

static void test_log__a_write_torn_at_any_byte_leaves_the_records_before_it(void **state)
{
    (void)state;
    for (int kind = OS_SIM_PREFIX; kind <= OS_SIM_SUFFIX; kind++) {
        for (size_t at = 0; at <= fb_log_record_bytes(403); at++) {
            struct model m = {0};
            struct torn torn = {kind, at};
            fb_log *log;
            fb_log_reader *reader;
            fb_log_record record;
            uint64_t whole = kind == OS_SIM_PREFIX ? fb_log_record_bytes(403) : 0, found = 0;
            os_sim *sim = machine(), *after;
            assert_int_equal(fb_log_create(&log, os_sim_os(sim), PATH, ID, NULL), FB_OK);
            m.created = 1;
            (void)append(log, &m, 61, 0);
            (void)append(log, &m, 403, 0);
            (void)snprintf(where, sizeof where, "torn: kind %d at %zu", kind, at);
            after = os_sim_after_power_cut(sim, torn_fate, &torn, 9);
            judge(os_sim_os(after), &m, AFTER_CRASH);
            assert_int_equal(fb_log_reader_open(&reader, os_sim_os(after), PATH, NULL), FB_OK);
            while (fb_log_reader_next(reader, &record, NULL) == FB_OK) found++;
            /* 403 bytes are padded with 5 zeros to 408, and zeros are what a longer file holds where nothing was written. */
            if (kind == OS_SIM_PREFIX && at >= whole - 5) assert_in_range(found, 1, 2);
            else assert_int_equal(found, at == whole ? 2 : 1);
            fb_log_reader_close(reader);
            fb_log_close(log);
            os_sim_free(after);
            os_sim_free(sim);
        }
    }
}

/* ---- failing calls ---------------------------------------------------------------------------------------------------------- */

static const int failures[] = {EIO, ENOSPC, EINTR, OS_SIM_SHORT};

static os_sim_fate all_lost(void *arg, size_t index, size_t bytes)
{
    os_sim_fate fate = {OS_SIM_LOST, 0};
    (void)arg;
    (void)index;
    (void)bytes;
    return fate;
}

static uint32_t lost_in(const struct model *m)
{
    uint32_t lost = 0;
    for (uint32_t i = 0; i < m->appended; i++) lost += !m->append[i].written;
    return lost;
}

static void judge_lost_by_gaps(const fb_os *os, const struct model *m)
{
    fb_log_reader *reader;
    fb_log_record record;
    fb_log_tail tail;
    uint32_t expected = lost_in(m), trailing = 0;
    while (trailing < m->appended && !m->append[m->appended - 1 - trailing].written) trailing++;
    if (fb_log_reader_open(&reader, os, PATH, NULL) != FB_OK) return;
    while (fb_log_reader_next(reader, &record, NULL) == FB_OK) continue;
    JUDGE(fb_log_reader_tail(reader, &tail, NULL) == FB_OK);
    /* What was lost at the very end shows in no gap; the writer knows, and the pulse can say so. */
    JUDGE(tail.lost == expected - trailing);
    fb_log_reader_close(reader);
}

static void fail_call(uint64_t k, int with_errno, int for_good)
{
    struct model m;
    os_sim *sim = machine(), *after;
    char call[32];
    os_sim_fail(sim, k, with_errno, for_good);
    scenario(os_sim_os(sim), &m);
    (void)snprintf(call, sizeof call, "%s", os_sim_call_name(sim, k));
    (void)snprintf(where, sizeof where, "call %llu (%s) fails with %d%s", (unsigned long long)k, call, with_errno,
                   for_good ? " for good" : "");
    os_sim_fail(sim, 0, 0, 0);
    judge(os_sim_os(sim), &m, IN_CACHE);
    judge_lost_by_gaps(os_sim_os(sim), &m);
    /* One failure is never the end: each first-bad record landed, and at most one record was lost. */
    if (m.created && !for_good) {
        for (uint32_t i = 0; i < m.frozen; i++) JUDGE(m.freeze[i].slot >= 0);
        JUDGE(lost_in(&m) <= 1);
    }
    /* Interruptions and short transfers are no failures at all. */
    if (!for_good && (with_errno == EINTR || with_errno == OS_SIM_SHORT)) {
        JUDGE(m.created || strcmp(call, "stat") == 0);
        JUDGE(lost_in(&m) == 0 && m.durable > 2 && m.newest_pulse == m.pulses);
    }
    /* A failed create leaves nothing behind, unless even that fails, and can be tried again. */
    if (!m.created && !for_good) {
        struct model again;
        scenario(os_sim_os(sim), &again);
        JUDGE(again.created);
        judge(os_sim_os(sim), &again, IN_CACHE);
    } else {
        after = os_sim_after_power_cut(sim, all_lost, NULL, 0);
        judge(os_sim_os(after), &m, AFTER_CRASH);
        os_sim_free(after);
    }
    os_sim_free(sim);
}

static void test_log__any_failing_call_costs_at_most_what_it_was_doing(void **state)
{
    uint64_t calls = calls_of_scenario();
    (void)state;
    for (size_t f = 0; f < sizeof failures / sizeof failures[0]; f++) {
        for (uint64_t k = 1; k <= calls + 12; k++) { /* a failure makes a few calls more than a healthy run has */
            fail_call(k, failures[f], 0);
            fail_call(k, failures[f], 1);
        }
    }
}

static void test_log__any_failing_allocation_is_a_status_and_leaves_no_file(void **state)
{
    struct model m;
    uint64_t requests;
    os_sim *sim = machine();
    (void)state;
    fb_alloc_fail_at(0, 0);
    scenario(os_sim_os(sim), &m);
    requests = fb_alloc_requests();
    assert_true(requests > 0);
    for (uint64_t k = 1; k <= requests; k++) {
        for (int for_good = 0; for_good < 2; for_good++) {
            fb_error err = {0};
            fb_log *log = NULL;
            fb_os_info info;
            os_sim *small = machine();
            const fb_os *os = os_sim_os(small);
            fb_alloc_fail_at(k, for_good);
            assert_int_equal(fb_log_create(&log, os, PATH, ID, &err), FB_E_NOMEM);
            fb_alloc_fail_at(0, 0);
            assert_null(log);
            assert_true(err.message[0]);
            assert_int_equal(os->stat(os->ctx, PATH, &info), -ENOENT);
            os_sim_free(small);
        }
    }
    fb_alloc_fail_at(0, 0);
    for (uint64_t k = 1;; k++) { /* the reader */
        fb_log_reader *reader;
        fb_status status;
        fb_alloc_fail_at(k, 0);
        status = fb_log_reader_open(&reader, os_sim_os(sim), PATH, NULL);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        if (status == FB_OK) {
            fb_log_reader_close(reader);
            assert_int_equal(k, requests + 1);
            break;
        }
        assert_int_equal(status, FB_E_NOMEM);
        assert_null(reader);
    }
    os_sim_free(sim);
}

static void test_log__no_call_after_create_takes_memory(void **state)
{
    struct model m = {0};
    fb_log *log;
    os_sim *sim = machine();
    (void)state;
    assert_int_equal(fb_log_create(&log, os_sim_os(sim), PATH, ID, NULL), FB_OK);
    fb_alloc_fail_at(1, 1);
    assert_int_equal(append(log, &m, FB_LOG_PAYLOAD_MAX, 1), FB_OK);
    assert_int_equal(freeze(log, &m, FB_LOG_FROZEN_PAYLOAD_MAX), FB_OK);
    assert_int_equal(pulse(log, &m, FB_LOG_PULSE_PAYLOAD_MAX), FB_OK);
    assert_int_equal(fb_alloc_requests(), 0);
    fb_alloc_fail_at(0, 0);
    fb_log_close(log);
    os_sim_free(sim);
}

/* ---- a full disk, a failed sync --------------------------------------------------------------------------------------------- */

static void test_log__a_full_disk_loses_steps_but_never_the_first_bad_record(void **state)
{
    struct model m = {0};
    fb_log *log;
    os_sim *sim = machine(), *after;
    uint32_t before;
    (void)state;
    (void)snprintf(where, sizeof where, "full disk");
    assert_int_equal(fb_log_create(&log, os_sim_os(sim), PATH, ID, NULL), FB_OK);
    m.created = 1;
    os_sim_capacity(sim, FB_LOG_APPEND_OFFSET + 4096);
    while (append(log, &m, 1000, 0) == FB_OK) assert_true(m.appended < 20);
    assert_int_equal(append(log, &m, 1000, 1), FB_E_IO);
    before = lost_in(&m);
    assert_int_equal(before, 2);
    assert_int_equal(freeze(log, &m, FB_LOG_FROZEN_PAYLOAD_MAX), FB_OK);
    assert_int_equal(pulse(log, &m, FB_LOG_PULSE_PAYLOAD_MAX), FB_OK);
    judge(os_sim_os(sim), &m, IN_CACHE);
    os_sim_capacity(sim, 1 << 20); /* somebody tidied up */
    assert_int_equal(append(log, &m, 1000, 1), FB_OK);
    assert_int_equal(fb_log_lost(log), before);
    judge(os_sim_os(sim), &m, IN_CACHE);
    judge_lost_by_gaps(os_sim_os(sim), &m);
    fb_log_close(log);
    after = os_sim_after_power_cut(sim, all_lost, NULL, 0);
    judge(os_sim_os(after), &m, AFTER_CRASH);
    os_sim_free(after);
    os_sim_free(sim);
}

static void test_log__a_disk_that_is_full_at_the_start_says_so_and_keeps_nothing(void **state)
{
    fb_error err;
    fb_log *log;
    fb_os_info info;
    os_sim *sim = machine();
    const fb_os *os = os_sim_os(sim);
    (void)state;
    os_sim_capacity(sim, 65536);
    assert_int_equal(fb_log_create(&log, os, PATH, ID, &err), FB_E_IO);
    assert_int_equal(err.os_errno, ENOSPC);
    assert_null(log);
    assert_int_equal(os->stat(os->ctx, PATH, &info), -ENOENT);
    os_sim_free(sim);
}

static void test_log__after_a_failed_sync_nothing_is_called_durable_but_freezing_still_is(void **state)
{
    struct model m = {0};
    fb_log *log;
    os_sim *sim = machine(), *after;
    (void)state;
    (void)snprintf(where, sizeof where, "failed sync");
    assert_int_equal(fb_log_create(&log, os_sim_os(sim), PATH, ID, NULL), FB_OK);
    m.created = 1;
    assert_int_equal(append(log, &m, 100, 1), FB_OK);
    os_sim_fail(sim, 2, EIO, 0); /* the write succeeds, its sync does not */
    assert_int_equal(append(log, &m, 100, 1), FB_E_IO);
    assert_int_equal(fb_log_sync_failed(log), 1);
    assert_int_equal(fb_log_lost(log), 0);
    assert_int_equal(append(log, &m, 100, 1), FB_E_IO); /* the system would say yes now, without the record before */
    assert_int_equal(fb_log_sync(log, NULL), FB_E_IO);
    assert_int_equal(append(log, &m, 100, 0), FB_OK);
    assert_int_equal(freeze(log, &m, 100), FB_OK);
    judge(os_sim_os(sim), &m, IN_CACHE);
    after = os_sim_after_power_cut(sim, all_lost, NULL, 0);
    judge(os_sim_os(after), &m, AFTER_CRASH);
    os_sim_free(after);
    fb_log_close(log);
    os_sim_free(sim);
}

static void test_log__a_dead_disk_does_not_eat_the_slots_of_later_cases(void **state)
{
    struct model m = {0};
    fb_log *log;
    os_sim *sim = machine();
    (void)state;
    assert_int_equal(fb_log_create(&log, os_sim_os(sim), PATH, ID, NULL), FB_OK);
    os_sim_fail(sim, 1, EIO, 1);
    assert_int_equal(freeze(log, &m, 100), FB_E_IO);
    os_sim_fail(sim, 0, 0, 0);
    assert_int_equal(fb_log_slots_free(log), FB_LOG_FROZEN_SLOTS - 3);
    assert_int_equal(freeze(log, &m, 100), FB_OK);
    assert_int_equal(m.freeze[1].slot, 3);
    fb_log_close(log);
    os_sim_free(sim);
}

static void test_log__a_process_with_another_pid_is_refused_without_one_call(void **state)
{
    struct model m = {0};
    fb_log *log;
    os_sim *sim = machine();
    (void)state;
    assert_int_equal(fb_log_create(&log, os_sim_os(sim), PATH, ID, NULL), FB_OK);
    os_sim_set_pid(sim, 4712);
    os_sim_fail(sim, 0, 0, 0);
    assert_int_equal(append(log, &m, 100, 1), FB_E_FORKED);
    assert_int_equal(freeze(log, &m, 100), FB_E_FORKED);
    assert_int_equal(pulse(log, &m, 100), FB_E_FORKED);
    assert_int_equal(fb_log_sync(log, NULL), FB_E_FORKED);
    fb_log_close(log);
    assert_int_equal(os_sim_calls(sim), 0);
    os_sim_free(sim);
}

/* The simulated table with a disk that stores one bit wrong in a write of record size, and says that all is well. */
static fb_os honest;
static uint64_t lies;

static int64_t lying_pwrite(void *ctx, int fd, const void *data, size_t bytes, uint64_t offset)
{
    unsigned char copy[16384];
    if (lies == 0 || bytes > 4000) return honest.pwrite(ctx, fd, data, bytes, offset);
    lies--;
    memcpy(copy, data, bytes);
    copy[bytes / 2] ^= 4;
    return honest.pwrite(ctx, fd, copy, bytes, offset);
}

static void test_log__a_disk_that_stores_other_bytes_is_found_out_before_the_record_is_acknowledged(void **state)
{
    struct model m = {0};
    fb_os lying;
    fb_log *log;
    os_sim *sim = machine();
    (void)state;
    honest = *os_sim_os(sim);
    lying = honest;
    lying.pwrite = lying_pwrite;
    assert_int_equal(fb_log_create(&log, &lying, PATH, ID, NULL), FB_OK);
    m.created = 1;
    lies = 1;
    assert_int_equal(freeze(log, &m, 300), FB_OK); /* into the second slot, after the first came back wrong */
    assert_int_equal(m.freeze[0].slot, 1);
    lies = UINT64_MAX;
    assert_int_equal(freeze(log, &m, 300), FB_E_CORRUPT);
    fb_log_close(log);
    judge(os_sim_os(sim), &m, IN_CACHE);
    os_sim_free(sim);
}

static int64_t no_fallocate(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    (void)ctx;
    (void)fd;
    (void)offset;
    (void)bytes;
    return -EOPNOTSUPP;
}

static void test_log__space_is_set_aside_where_the_file_system_cannot_reserve_it(void **state)
{
    struct model m = {0};
    fb_os plain;
    fb_log *log;
    os_sim *sim = machine(), *after;
    (void)state;
    plain = *os_sim_os(sim);
    plain.fallocate = no_fallocate;
    assert_int_equal(fb_log_create(&log, &plain, PATH, ID, NULL), FB_OK);
    m.created = 1;
    os_sim_capacity(sim, FB_LOG_APPEND_OFFSET);
    for (int i = 0; i < FB_LOG_FROZEN_SLOTS; i++) assert_int_equal(freeze(log, &m, FB_LOG_FROZEN_PAYLOAD_MAX), FB_OK);
    assert_int_equal(append(log, &m, 1, 0), FB_E_IO);
    fb_log_close(log);
    after = os_sim_after_power_cut(sim, all_lost, NULL, 0);
    judge(os_sim_os(after), &m, AFTER_CRASH);
    os_sim_free(after);
    os_sim_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__a_power_cut_at_any_call_loses_nothing_that_was_acknowledged),
        cmocka_unit_test(test_log__a_frozen_record_survives_a_disk_that_ruins_the_blocks_it_was_writing),
        cmocka_unit_test(test_log__a_write_torn_at_any_byte_leaves_the_records_before_it),
        cmocka_unit_test(test_log__any_failing_call_costs_at_most_what_it_was_doing),
        cmocka_unit_test(test_log__any_failing_allocation_is_a_status_and_leaves_no_file),
        cmocka_unit_test(test_log__no_call_after_create_takes_memory),
        cmocka_unit_test(test_log__a_full_disk_loses_steps_but_never_the_first_bad_record),
        cmocka_unit_test(test_log__a_disk_that_is_full_at_the_start_says_so_and_keeps_nothing),
        cmocka_unit_test(test_log__after_a_failed_sync_nothing_is_called_durable_but_freezing_still_is),
        cmocka_unit_test(test_log__a_dead_disk_does_not_eat_the_slots_of_later_cases),
        cmocka_unit_test(test_log__a_disk_that_stores_other_bytes_is_found_out_before_the_record_is_acknowledged),
        cmocka_unit_test(test_log__space_is_set_aside_where_the_file_system_cannot_reserve_it),
        cmocka_unit_test(test_log__a_process_with_another_pid_is_refused_without_one_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
