/*
 * Moves of checkpoints on a simulated machine: begin, commit with its pin, verify, quarantine, release, settle. Every call fails
 * once and for good, and the power is cut at every call. What must hold afterwards, when settle has run: each checkpoint is in one
 * state that the registry can tell, its bytes are in one of the places that the registry knows and are the bytes that were saved,
 * nothing that was not finite is committed, what was told is so, and there is a committed checkpoint to resume from whenever there
 * was one before.
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
#define DIR "/out"

static uint64_t seed;

static int write_file(const fb_os *os, const char *path, float value, int bad)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    static const uint32_t nan = 0x7fc00000;
    unsigned char file[8 + sizeof header - 1 + 16];
    float data[4] = {value, value, value, value};
    int64_t fd = os->open(os->ctx, path, O_WRONLY | O_CREAT | O_TRUNC, 0666), wrote;
    if (fd < 0) return 0;
    if (bad) memcpy(&data[3], &nan, sizeof nan);
    memset(file, 0, 8);
    file[0] = sizeof header - 1;
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, data, sizeof data);
    wrote = fb_os_write_all(os, (int)fd, file, sizeof file);
    (void)os->fsync(os->ctx, (int)fd);
    (void)os->close(os->ctx, (int)fd);
    (void)fb_os_sync_parent(os, path);
    return wrote == 0;
}

/* A file, or with a name that begins with "f" a folder of one shard, durable: what a trainer wrote is not what is tested here. */
static int save(const fb_os *os, const char *path, float value, int bad)
{
    char inside[200];
    if (strncmp(strrchr(path, '/'), "/f", 2) != 0) return write_file(os, path, value, bad);
    (void)os->mkdir(os->ctx, path, 0777);
    (void)fb_os_sync_parent(os, path);
    (void)snprintf(inside, sizeof inside, "%s/m.safetensors", path);
    return write_file(os, inside, value, bad);
}

/* ---- what is done ----------------------------------------------------------------------------------------------------------- */

typedef fb_status (*work_fn)(const fb_os *os, fb_error *err);

static fb_status commit_at(const fb_os *os, const char *path, int64_t step, fb_error *err)
{
    int32_t state;
    return fb_registry_commit(os, RUN, path, step, 1, 0, 1, &state, err);
}

static fb_status do_begin(const fb_os *os, fb_error *err)
{
    return fb_registry_begin(os, RUN, DIR "/last", 30, 1, 0, err);
}

static fb_status do_begin_folder(const fb_os *os, fb_error *err)
{
    return fb_registry_begin(os, RUN, DIR "/folder20", 30, 1, 0, err);
}

static fb_status do_commit_next(const fb_os *os, fb_error *err)
{
    return commit_at(os, DIR "/next40", 40, err);
}

static fb_status do_commit_folder(const fb_os *os, fb_error *err)
{
    return commit_at(os, DIR "/fresh40", 40, err);
}

static fb_status do_commit_bad(const fb_os *os, fb_error *err)
{
    return commit_at(os, DIR "/bad50", 50, err);
}

static fb_status do_verify(const fb_os *os, fb_error *err)
{
    int32_t state;
    return fb_registry_verify(os, RUN, DIR "/bad50", NULL, NULL, NULL, &state, err);
}

static fb_status do_verify_case(const fb_os *os, fb_error *err)
{
    int32_t state;
    fb_status status = fb_registry_doubt(os, RUN, 1, 15, NULL, err);
    return status == FB_OK ? fb_registry_verify(os, RUN, DIR "/folder20", NULL, NULL, NULL, &state, err) : status;
}

static fb_status do_quarantine(const fb_os *os, fb_error *err)
{
    return fb_registry_quarantine(os, RUN, DIR "/folder20", "why", err);
}

static fb_status do_release(const fb_os *os, fb_error *err)
{
    return fb_registry_release(os, RUN, DIR "/aside5", "why", NULL, err);
}

static fb_status do_settle(const fb_os *os, fb_error *err)
{
    return fb_registry_settle(os, RUN, NULL, err);
}

static const struct {
    const char *name;
    work_fn fn;
} works[] = {{"begin", do_begin},
             {"begin folder", do_begin_folder},
             {"commit", do_commit_next},
             {"commit folder", do_commit_folder},
             {"commit bad", do_commit_bad},
             {"verify bad", do_verify},
             {"verify after a case", do_verify_case},
             {"quarantine", do_quarantine},
             {"release", do_release},
             {"settle", do_settle}};
enum { WORKS = sizeof works / sizeof works[0] };

/* ---- the machine ------------------------------------------------------------------------------------------------------------ */

/*
 * Committed: "last" of step 10, a name that is saved over, and "folder20". Quarantined and aside: "aside5", finite. Not told to
 * anybody yet: "next40", the folder "fresh40", and "bad50" with NaN.
 */
static os_sim *prepare(void)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_error err;
    assert_int_equal(fb_os_mkdirs(os, RUN, &err), FB_OK);
    assert_int_equal(fb_os_mkdirs(os, DIR, &err), FB_OK);
    assert_true(save(os, DIR "/aside5", 5.0f, 0));
    if (commit_at(os, DIR "/aside5", 5, &err) != FB_OK) fail_msg("%s", err.message);
    if (fb_registry_quarantine(os, RUN, DIR "/aside5", "why", &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(save(os, DIR "/last", 10.0f, 0));
    if (commit_at(os, DIR "/last", 10, &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(save(os, DIR "/folder20", 20.0f, 0));
    if (commit_at(os, DIR "/folder20", 20, &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(save(os, DIR "/next40", 40.0f, 0));
    assert_true(save(os, DIR "/fresh40", 41.0f, 0));
    assert_true(save(os, DIR "/bad50", 50.0f, 1));
    return sim;
}

/* ---- what must hold --------------------------------------------------------------------------------------------------------- */

static float value_at(const fb_os *os, const char *path)
{
    char inside[400];
    unsigned char file[200];
    float value = -1;
    int64_t fd, got;
    fb_os_info info;
    if (os->lstat(os->ctx, path, &info) != 0) return -1;
    (void)snprintf(inside, sizeof inside, "%s%s", path, info.kind == FB_OS_FOLDER ? "/m.safetensors" : "");
    fd = os->open(os->ctx, inside, O_RDONLY, 0);
    if (fd < 0) return -1;
    got = fb_os_read_full(os, (int)fd, file, sizeof file);
    (void)os->close(os->ctx, (int)fd);
    if (got > 16) memcpy(&value, file + got - 16, sizeof value);
    return value;
}

typedef struct audit {
    const fb_os *os;
    int found5, found10, found20, found40, found41, found50; /* places that a record knows and that have these bytes */
    int bad_committed;
} audit;

static void audit_place(audit *a, fb_text place)
{
    char path[300];
    float value;
    if (place.bytes == 0) return;
    (void)snprintf(path, sizeof path, "%.*s", (int)place.bytes, place.data);
    value = value_at(a->os, path);
    a->found5 += value == 5.0f;
    a->found10 += value == 10.0f;
    a->found20 += value == 20.0f;
    a->found40 += value == 40.0f;
    a->found41 += value == 41.0f;
    a->found50 += value == 50.0f;
}

static fb_status audit_record(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    audit *a = ctx;
    (void)sequence;
    (void)time_ns;
    (void)err;
    audit_place(a, rec->path);
    audit_place(a, rec->aside);
    audit_place(a, rec->pin_path);
    if (rec->state == FB_CKPT_COMMITTED && rec->step == 50) a->bad_committed = 1;
    return FB_OK;
}

#define MUST(condition, what)                                                                                                 \
    do {                                                                                                                      \
        if (!(condition))                                                                                                     \
            fail_msg("%s, %s %llu, seed %llu: %s: %s", works[w].name, where, (unsigned long long)k, (unsigned long long)seed, \
                     what, err.message);                                                                                      \
    } while (0)

static void judge(const fb_os *os, size_t w, fb_status status, const char *where, uint64_t k)
{
    fb_registry_checkpoint best;
    fb_error err;
    uint64_t done = 0;
    audit a;
    memset(&a, 0, sizeof a);
    a.os = os;
    fb_error_clear(&err);
    MUST(fb_registry_settle(os, RUN, NULL, &err) == FB_OK, "settle fails");
    MUST(fb_registry_settle(os, RUN, &done, &err) == FB_OK && done == 0, "a second settle finds something to do");
    MUST(fb_registry_each(os, RUN, audit_record, &a, &err) == FB_OK, "the states are not known");
    MUST(!a.bad_committed, "NaN is committed");
    MUST(a.found5 && a.found20, "bytes are lost, or nobody knows where they are");
    MUST(a.found40 || value_at(os, DIR "/next40") == 40.0f, "what was just saved is lost");
    MUST(a.found41 || value_at(os, DIR "/fresh40") == 41.0f, "the folder that was just saved is lost");
    MUST(a.found50 || value_at(os, DIR "/bad50") == 50.0f, "the bad one is lost");
    MUST(fb_registry_latest_committed(os, RUN, FB_REGISTRY_VERIFY, &best, &err) == FB_OK, "nothing to resume from");
    MUST(value_at(os, best.path) == (best.step == 40 && strstr(best.path, "fresh") ? 41.0f : (float)best.step),
         "other bytes are committed");
    if (works[w].fn == do_quarantine && status == FB_OK) MUST(best.step != 20, "quarantined, and resumed from");
    if (works[w].fn == do_commit_next || works[w].fn == do_commit_folder) {
        MUST(status != FB_OK || best.step == 40, "told committed, and it is not");
        MUST(best.step >= 20, "an older one is resumed from");
    }
    if (works[w].fn == do_begin || works[w].fn == do_begin_folder) MUST(best.step == 20, "the newest committed one is lost");
    /* And one can go on from here. */
    MUST(save(os, DIR "/later60", 60.0f, 0) && commit_at(os, DIR "/later60", 60, &err) == FB_OK,
         "the next one cannot be committed");
    MUST(fb_registry_latest_committed(os, RUN, FB_REGISTRY_VERIFY, &best, &err) == FB_OK && best.step == 60,
         "the next one is not found");
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

static uint64_t calls_of(size_t w)
{
    os_sim *sim = prepare();
    fb_error err;
    uint64_t calls;
    os_sim_fail(sim, 0, 0, 0);
    if (works[w].fn(os_sim_os(sim), &err) != FB_OK) fail_msg("%s: %s", works[w].name, err.message);
    calls = os_sim_calls(sim);
    judge(os_sim_os(sim), w, FB_OK, "nothing fails", 0);
    os_sim_free(sim);
    return calls;
}

static void test_registry_moves__every_failing_call_leaves_all_bytes_where_they_are_known(void **ignored)
{
    static const struct {
        int error, for_good;
    } faults[] = {{EIO, 0}, {EIO, 1}, {ENOSPC, 1}, {EINTR, 0}, {EPERM, 0}, {OS_SIM_SHORT, 1}};
    (void)ignored;
    for (size_t w = 0; w < WORKS; w++) {
        uint64_t calls = calls_of(w);
        for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
            for (uint64_t k = 1; k <= calls; k++) {
                os_sim *sim = prepare();
                fb_error err;
                fb_status status;
                char where[100];
                os_sim_fail(sim, k, faults[f].error, faults[f].for_good);
                fb_error_clear(&err);
                status = works[w].fn(os_sim_os(sim), &err);
                if (status != FB_OK) assert_true(err.message[0] != '\0');
                (void)snprintf(where, sizeof where, "error %d, %s, %s", faults[f].error, faults[f].for_good ? "for good" : "once",
                               os_sim_call_name(sim, k));
                os_sim_fail(sim, 0, 0, 0);
                judge(os_sim_os(sim), w, status, where, k);
                os_sim_free(sim);
            }
        }
    }
}

enum { FATES = 4 };

static void test_registry_moves__no_power_cut_loses_a_checkpoint_or_commits_a_bad_one(void **ignored)
{
    static const int fates[FATES - 1] = {-1, OS_SIM_LOST, OS_SIM_KEPT};
    (void)ignored;
    for (size_t w = 0; w < WORKS; w++) {
        uint64_t calls = calls_of(w);
        for (uint64_t k = 1; k <= calls + 1; k++) { /* the last: after everything was told */
            for (int i = 0; i < FATES; i++) {
                os_sim *sim = prepare(), *after;
                fb_error err;
                fb_status status;
                power p;
                p.kind = i < FATES - 1 ? fates[i] : OS_SIM_PREFIX + (int)(k % (OS_SIM_LENGTH - OS_SIM_PREFIX + 1));
                p.random = seed + k * 64 + (uint64_t)i;
                os_sim_cut(sim, k);
                status = works[w].fn(os_sim_os(sim), &err);
                after = os_sim_after_power_cut(sim, fate_of, &p, os_sim_waiting_names(sim) * (size_t)((k + (uint64_t)i) % 3) / 2);
                judge(os_sim_os(after), w, status, "power cut", k);
                os_sim_free(after);
                os_sim_free(sim);
            }
        }
    }
}

static void test_registry_moves__a_full_disk_gets_no_copy_and_says_so(void **ignored)
{
    os_sim *sim = prepare();
    const fb_os *os = os_sim_os(sim);
    fb_registry_checkpoint best;
    fb_error err;
    int32_t state;
    (void)ignored;
    os_sim_capacity(sim, 1 << 20); /* less than the margin */
    assert_true(save(os, DIR "/other", 70.0f, 0));
    assert_int_equal(fb_registry_commit(os, RUN, DIR "/other", 70, 1, 0, 1, &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_latest_committed(os, RUN, FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    assert_int_equal(best.step, 70);
    assert_int_equal(os->unlink(os->ctx, DIR "/other"), 0); /* no pin: the one before is given, which still has its own */
    assert_int_equal(os->unlink(os->ctx, DIR "/folder20/m.safetensors"), 0);
    assert_int_equal(fb_registry_latest_committed(os, RUN, FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    assert_int_equal(best.step, 20);
    os_sim_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry_moves__every_failing_call_leaves_all_bytes_where_they_are_known),
        cmocka_unit_test(test_registry_moves__no_power_cut_loses_a_checkpoint_or_commits_a_bad_one),
        cmocka_unit_test(test_registry_moves__a_full_disk_gets_no_copy_and_says_so),
    };
    const char *given = getenv("FB_SEED");
    seed = given ? strtoull(given, NULL, 0) : 20240601;
    printf("FB_SEED=%llu replays this run\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
