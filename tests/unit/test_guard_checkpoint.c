/*
 * Checkpoints of a run: the save gate, the threads that read back, lineage while they wait, and what a crash, a fork or a close in
 * the middle leaves. A table of system calls that stops at the checkpoint's bytes makes every interleaving a sure one.
 */
#include "support/world.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "firstbad/ckpt.h"
#include "log/log.h"
#include "registry/registry.h"

static fb_error err;

/* ---- a system that stops at a checkpoint's bytes ----------------------------------------------------------------------------- */

enum { FDS = 1024 };
static atomic_int held, reading, fails;
static atomic_char is_checkpoint[FDS];

static int64_t open_marked(void *ctx, const char *path, int flags, int mode)
{
    int64_t fd = fb_os_posix()->open(ctx, path, flags, mode);
    if (fd >= 0 && fd < FDS) atomic_store(&is_checkpoint[fd], strstr(path, ".safetensors") != NULL);
    return fd;
}

static int64_t pread_held(void *ctx, int fd, void *data, size_t bytes, uint64_t offset)
{
    if (fd >= 0 && fd < FDS && atomic_load(&is_checkpoint[fd])) {
        atomic_fetch_add(&reading, 1);
        while (atomic_load(&held)) (void)sched_yield();
        atomic_fetch_sub(&reading, 1);
        if (atomic_load(&fails)) return -5; /* EIO */
    }
    return fb_os_posix()->pread(ctx, fd, data, bytes, offset);
}

static const fb_os *held_os(void)
{
    static fb_os os;
    os = *fb_os_posix();
    os.open = open_marked;
    os.pread = pread_held;
    atomic_store(&held, 0);
    atomic_store(&fails, 0);
    return &os;
}

static void wait_until_reading(void)
{
    while (!atomic_load(&reading)) (void)sched_yield();
}

/* ---- a run that saves -------------------------------------------------------------------------------------------------------- */

static void open_world(world *w, int ranks)
{
    world_init(w, ranks);
    w->os = held_os();
    world_open(w);
}

static const char *path_of(const world *w, int64_t step)
{
    static char path[160];
    (void)snprintf(path, sizeof path, "%s/step-%lld.safetensors", w->dir, (long long)step);
    return path;
}

/* A checkpoint of one tensor "moment" of four F32, the third of which has these bits. */
static void write_file(const char *path, uint32_t bits)
{
    static const char header[] = "{\"moment\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    uint32_t data[4] = {0x3f800000u, 0x40000000u, bits, 0x3f000000u};
    uint64_t n = sizeof header - 1;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&n, 8, 1, file), 1);
    assert_int_equal(fwrite(header, n, 1, file), 1);
    assert_int_equal(fwrite(data, sizeof data, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

enum { ONE = 0x3f800000, QUIET_NAN = 0x7fc00000, INF = 0x7f800000 };

static void save_as(world *w, const char *path, int64_t step, uint32_t bits)
{
    fb_run *run = w->rank[0].run;
    if (fb_run_checkpoint_begin(run, path, step, &err) != FB_OK) fail_msg("%s", err.message);
    write_file(path, bits);
    if (fb_run_checkpoint_verify(run, path, step, &err) != FB_OK) fail_msg("%s", err.message);
}

static void save(world *w, int64_t step, uint32_t bits)
{
    save_as(w, path_of(w, step), step, bits);
}

static fb_checkpoint_result next_result(world *w)
{
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    if (fb_run_checkpoint_wait(w->rank[0].run, -1, &err) != FB_OK) fail_msg("%s", err.message);
    if (fb_run_checkpoint_poll(w->rank[0].run, &result, &err) != FB_OK) fail_msg("%s", err.message);
    return result;
}

static void no_result(world *w)
{
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    assert_int_equal(fb_run_checkpoint_poll(w->rank[0].run, &result, &err), FB_E_NOTFOUND);
}

/* What the registry says of a path now: "committed(read back and finite)"; "" when it knows nothing. */
typedef struct newest_of {
    const char *path;
    int32_t state, reason;
} newest_of;

static fb_status look_newest(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *e)
{
    newest_of *n = ctx;
    const char *name = strrchr(n->path, '/') + 1;
    size_t bytes = strlen(name);
    (void)sequence;
    (void)time_ns;
    (void)e;
    if (rec->path.bytes < bytes || memcmp(rec->path.data + rec->path.bytes - bytes, name, bytes) != 0) return FB_OK;
    n->state = rec->state;
    n->reason = rec->reason;
    return FB_OK;
}

static int32_t registry_says(const world *w, int64_t step)
{
    newest_of n = {path_of(w, step), 0, 0};
    char home[128];
    (void)snprintf(home, sizeof home, "%s/test", w->dir);
    if (fb_registry_each(fb_os_posix(), home, look_newest, &n, &err) != FB_OK) fail_msg("%s", err.message);
    return n.state;
}

/* ---- the ledger -------------------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int checkpoint_events, states[4], findings, frozen, lost;
    char text[256];
} seen;

static seen read_ledger(const world *w, int rank)
{
    seen s;
    char path[128];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    memset(&s, 0, sizeof s);
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        if (record.type == FB_REC_EVENT) {
            fb_rec_event event;
            assert_int_equal(fb_rec_event_decode(record.payload, record.bytes, &event, &err), FB_OK);
            s.lost += event.event == FB_EVENT_EVIDENCE_LOST;
            if (event.event != FB_EVENT_CHECKPOINT) continue;
            s.checkpoint_events++;
            if (event.a >= 1 && event.a <= 3) s.states[event.a]++;
        } else if (record.type == FB_REC_FINDING) {
            fb_rec_finding finding;
            assert_int_equal(fb_rec_finding_decode(record.payload, record.bytes, &finding, &err), FB_OK);
            s.findings += finding.boundary == FB_CHECKPOINT;
        }
    }
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        fb_rec_finding finding;
        if (fb_log_reader_frozen(reader, i, &record, &err) != FB_OK) continue;
        if (record.type == FB_REC_EVENT) s.lost++;
        if (record.type != FB_REC_FIRST_BAD) continue;
        assert_int_equal(fb_rec_finding_decode(record.payload, record.bytes, &finding, &err), FB_OK);
        s.frozen += finding.boundary == FB_CHECKPOINT;
    }
    fb_log_reader_close(reader);
    return s;
}

static void close_runs(world *w)
{
    for (int i = 0; i < w->ranks; i++) {
        fb_run_close(w->rank[i].run);
        w->rank[i].run = NULL;
    }
}

/* ---- reading back in the background ------------------------------------------------------------------------------------------ */

static void test_guard_checkpoint__is_committed_while_training_goes_on(void **state)
{
    world w;
    fb_checkpoint_result result;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    for (int64_t step = 2; step < 6; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED); /* nobody waits */
    no_result(&w);
    assert_int_equal(registry_says(&w, 1), FB_CKPT_SUSPECT);
    assert_int_equal(fb_run_checkpoint_wait(w.rank[0].run, 0, &err), FB_E_LIMIT);
    atomic_store(&held, 0);
    result = next_result(&w);
    assert_int_equal(result.state, FB_CKPT_COMMITTED);
    assert_int_equal(result.status, FB_OK);
    assert_int_equal(result.step, 1);
    assert_int_equal(result.elements, 4);
    assert_int_not_equal(result.digest, 0);
    assert_string_equal(result.reason, "");
    assert_non_null(strstr(result.path, "/step-1.safetensors"));
    no_result(&w);
    assert_int_equal(registry_says(&w, 1), FB_CKPT_COMMITTED);
    close_runs(&w);
    assert_int_equal(read_ledger(&w, 0).states[FB_CKPT_COMMITTED], 1);
    world_close(&w);
}

static void test_guard_checkpoint__one_that_holds_a_nan_is_quarantined_with_its_place(void **state)
{
    world w;
    fb_checkpoint_result result;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    save(&w, 1, QUIET_NAN);
    result = next_result(&w);
    assert_int_equal(result.state, FB_CKPT_QUARANTINED);
    assert_int_equal(result.bad, 1);
    assert_int_equal(result.first_index, 2);
    assert_int_equal(result.first_kind, FB_KIND_NAN);
    assert_int_equal(result.first_bits, QUIET_NAN);
    assert_string_equal(result.tensor, "moment");
    assert_string_equal(result.reason, "1 element is not finite; the first is element 2 of moment, nan");
    close_runs(&w);
    assert_int_equal(read_ledger(&w, 0).states[FB_CKPT_QUARANTINED], 1);
    world_close(&w);
}

/* The ledger gets each verdict at the end of a step, whether or not anybody polls. */
static void test_guard_checkpoint__verdicts_reach_the_ledger_without_a_poll(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    for (int64_t step = 1; step <= 40; step++) {
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        save(&w, step, ONE);
        if (step % 8 == 0) assert_int_equal(fb_run_checkpoint_wait(w.rank[0].run, -1, &err), FB_OK);
    }
    close_runs(&w);
    assert_int_equal(read_ledger(&w, 0).states[FB_CKPT_COMMITTED], 40);
    world_close(&w);
}

static void test_guard_checkpoint__history_counts_as_it_was_when_saved(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    save(&w, 2, ONE);
    fb_checkpoint_taint(w.rank[0].run, 3); /* a later update: neither of the two has it */
    save(&w, 3, ONE);
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    assert_int_equal(next_result(&w).state, FB_CKPT_SUSPECT); /* the last one is read before those that wait longer */
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    world_close(&w);
}

/* A rotation that keeps two, and a disk that takes longer to read one than the trainer to save another. */
static void test_guard_checkpoint__what_was_saved_last_is_read_before_rotation_takes_it(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    for (int64_t step = 2; step <= 5; step++) {
        save(&w, step, ONE);
        if (step > 3) assert_int_equal(unlink(path_of(&w, step - 2)), 0);
    }
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).step, 1);
    assert_int_equal(next_result(&w).step, 5);
    assert_int_equal(registry_says(&w, 5), FB_CKPT_COMMITTED);
    world_close(&w);
}

/* P8: what is found while the bytes are read, or wait to be, wins over their verdict. */
static void test_guard_checkpoint__taint_wins_over_a_verdict_that_is_on_its_way(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    save(&w, 2, ONE);
    fb_checkpoint_taint(w.rank[0].run, 1);
    atomic_store(&held, 0);
    for (int64_t step = 1; step <= 2; step++) {
        fb_checkpoint_result result = next_result(&w);
        assert_int_equal(result.state, FB_CKPT_SUSPECT);
        assert_string_not_equal(result.reason, "");
        assert_int_equal(registry_says(&w, step), FB_CKPT_SUSPECT);
    }
    world_close(&w);
}

/* The same without a moment of ours in between: a taint right behind the call. */
static void test_guard_checkpoint__taint_right_behind_the_call_is_never_overtaken(void **state)
{
    world w;
    (void)state;
    for (int round = 0; round < 60; round++) {
        open_world(&w, 1);
        assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
        save(&w, 1, ONE);
        for (int i = 0; i < round * 50; i++) (void)sched_yield();
        fb_checkpoint_taint(w.rank[0].run, 1);
        assert_int_equal(fb_run_checkpoint_wait(w.rank[0].run, -1, &err), FB_OK);
        assert_int_equal(registry_says(&w, 1), FB_CKPT_SUSPECT);
        world_close(&w);
    }
}

static void test_guard_checkpoint__taint_of_another_rank_reaches_what_waits_here(void **state)
{
    world w;
    (void)state;
    open_world(&w, 2);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    save(&w, 2, ONE);
    fb_checkpoint_taint(w.rank[1].run, 2); /* it knows nothing of our queue */
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    assert_int_equal(next_result(&w).state, FB_CKPT_SUSPECT);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_SUSPECT);
    world_close(&w);
}

static void test_guard_checkpoint__full_queue_leaves_a_suspect_and_says_so(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    for (int64_t step = 2; step < 2 + FB_CHECKPOINTS_QUEUED_MAX; step++) save(&w, step, ONE);
    assert_int_equal(fb_run_checkpoint_begin(w.rank[0].run, path_of(&w, 20), 20, &err), FB_OK);
    write_file(path_of(&w, 20), ONE);
    assert_int_equal(fb_run_checkpoint_verify(w.rank[0].run, path_of(&w, 20), 20, &err), FB_E_LIMIT);
    assert_non_null(strstr(err.message, "firstbad ckpt verify"));
    atomic_store(&held, 0);
    for (int64_t step = 1; step < 2 + FB_CHECKPOINTS_QUEUED_MAX; step++) assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    no_result(&w);
    assert_int_equal(registry_says(&w, 20), FB_CKPT_SUSPECT);
    close_runs(&w);
    assert_int_equal(read_ledger(&w, 0).states[FB_CKPT_SUSPECT], 1);
    world_close(&w);
}

/* P10: nobody could judge it, training went on, and that is told. */
static void test_guard_checkpoint__one_that_rotation_deleted_unread_is_told_and_no_evidence_lost(void **state)
{
    world w;
    fb_checkpoint_result result;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    save(&w, 2, ONE);
    assert_int_equal(unlink(path_of(&w, 2)), 0); /* a rotation that was faster */
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    result = next_result(&w);
    assert_int_equal(result.state, FB_CKPT_SUSPECT);
    assert_int_equal(result.status, FB_E_NOTFOUND);
    assert_non_null(strstr(result.reason, "no such file"));
    assert_int_equal(world_step(&w, 2, NULL, NULL), FB_PROCEED);
    assert_int_equal(fb_run_evidence_lost(w.rank[0].run, &err), 0);
    close_runs(&w);
    assert_int_equal(read_ledger(&w, 0).lost, 0);
    world_close(&w);
}

static void test_guard_checkpoint__disk_that_cannot_be_read_leaves_a_suspect(void **state)
{
    world w;
    fb_checkpoint_result result;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&fails, 1);
    save(&w, 1, ONE);
    result = next_result(&w);
    assert_int_equal(result.state, FB_CKPT_SUSPECT);
    assert_string_not_equal(result.reason, "");
    assert_int_equal(registry_says(&w, 1), FB_CKPT_SUSPECT);
    assert_int_equal(world_step(&w, 2, NULL, NULL), FB_PROCEED);
    assert_int_equal(fb_run_evidence_lost(w.rank[0].run, &err), 1); /* it is there, and nobody judged it */
    close_runs(&w);
    assert_true(read_ledger(&w, 0).lost >= 1);
    world_close(&w);
}

static void test_guard_checkpoint__saved_over_while_it_waits_is_not_read_for_the_older_one(void **state)
{
    world w;
    fb_checkpoint_result result;
    char path[160];
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    (void)snprintf(path, sizeof path, "%s", path_of(&w, 0));
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    save_as(&w, path, 2, ONE);
    save_as(&w, path, 3, QUIET_NAN);
    atomic_store(&held, 0);
    result = next_result(&w);
    assert_int_equal(result.step, 2);
    assert_int_equal(result.state, FB_CKPT_SUSPECT);
    assert_string_equal(result.reason, "it was written over before it was read back");
    assert_int_equal(next_result(&w).step, 1);
    result = next_result(&w);
    assert_int_equal(result.step, 3);
    assert_int_equal(result.state, FB_CKPT_QUARANTINED);
    world_close(&w);
}

/* Without a begin the older verdict must not stand for bytes that nobody read. */
static void test_guard_checkpoint__verify_alone_takes_the_older_verdict_back(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    write_file(path_of(&w, 1), ONE);
    assert_int_equal(fb_run_checkpoint_verify(w.rank[0].run, path_of(&w, 1), 1, &err), FB_OK);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    atomic_store(&held, 1);
    write_file(path_of(&w, 1), 0x40400000u);
    assert_int_equal(fb_run_checkpoint_verify(w.rank[0].run, path_of(&w, 1), 2, &err), FB_OK);
    assert_int_equal(registry_says(&w, 1), FB_CKPT_SUSPECT);
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    world_close(&w);
}

/* ---- crash, fork, close ------------------------------------------------------------------------------------------------------ */

static void test_guard_checkpoint__killed_while_it_reads_leaves_a_suspect(void **state)
{
    world w;
    pid_t child;
    int status = 0;
    char home[128];
    fb_registry_checkpoint latest;
    (void)state;
    world_init(&w, 1);
    w.os = held_os();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        world_open(&w);
        (void)world_step(&w, 1, NULL, NULL);
        atomic_store(&held, 1);
        save(&w, 1, ONE);
        wait_until_reading();
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(registry_says(&w, 1), FB_CKPT_SUSPECT);
    (void)snprintf(home, sizeof home, "%s/test", w.dir);
    assert_int_equal(fb_registry_latest_committed(fb_os_posix(), home, FB_REGISTRY_LOOK, &latest, &err), FB_E_NOTFOUND);
    world_close(&w);
}

static int in_child(world *w)
{
    fb_run *run = w->rank[0].run;
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    fb_save_result saved = FB_SAVE_RESULT_INIT;
    if (fb_run_checkpoint_begin(run, "x", 1, &err) != FB_E_FORKED) return 1;
    if (fb_run_checkpoint_verify(run, "x", 1, &err) != FB_E_FORKED) return 2;
    if (fb_run_checkpoint_poll(run, &result, &err) != FB_E_FORKED) return 3;
    if (fb_run_checkpoint_wait(run, -1, &err) != FB_E_FORKED) return 4;
    if (fb_run_save_gate(run, 1, NULL, 0, &saved, &err) != FB_E_FORKED) return 5;
    fb_run_close(run); /* must neither wait for a thread that is not here nor touch its lock */
    return 0;
}

static void test_guard_checkpoint__child_made_by_fork_waits_for_no_thread(void **state)
{
    world w;
    pid_t child;
    int status = 0;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    wait_until_reading();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(in_child(&w));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    world_close(&w);
}

static void *let_go(void *unused)
{
    wait_until_reading();
    for (int i = 0; i < 1000; i++) (void)sched_yield();
    atomic_store(&held, 0);
    return unused;
}

static void test_guard_checkpoint__close_waits_for_what_was_saved_last(void **state)
{
    world w;
    pthread_t thread;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    atomic_store(&held, 1);
    save(&w, 1, ONE);
    save(&w, 2, ONE);
    assert_int_equal(pthread_create(&thread, NULL, let_go, NULL), 0);
    close_runs(&w);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(registry_says(&w, 1), FB_CKPT_COMMITTED);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_COMMITTED);
    assert_int_equal(read_ledger(&w, 0).states[FB_CKPT_COMMITTED], 2);
    world_close(&w);
}

/* ---- a case opens ------------------------------------------------------------------------------------------------------------ */

static void bad_gradient(world *w, int rank, int micro, void *ctx)
{
    (void)ctx;
    if (rank == 0 && micro == 0) w->rank[0].grad[1][2] = world_bits(QUIET_NAN);
}

static void abandon(world *w, int64_t step)
{
    fb_step begin = FB_STEP_INIT;
    begin.step = step;
    for (int i = 0; i < w->ranks; i++) {
        if (fb_step_begin(w->rank[i].run, &begin, &err) != FB_OK) fail_msg("%s", err.message);
        if (fb_step_abandon(w->rank[i].run, &err) != FB_OK) fail_msg("%s", err.message);
    }
}

/* Step 1 was gated, step 2 was given up, and after it a checkpoint was saved and committed. Step 3 opens a case. */
static void saved_then_case(world *w, int in_background)
{
    assert_int_equal(world_step(w, 1, NULL, NULL), FB_PROCEED);
    save(w, 1, ONE);
    assert_int_equal(next_result(w).state, FB_CKPT_COMMITTED);
    abandon(w, 2);
    if (in_background) {
        save(w, 2, ONE);
        assert_int_equal(next_result(w).state, FB_CKPT_COMMITTED);
    } else {
        int32_t got = 0;
        write_file(path_of(w, 2), ONE);
        assert_int_equal(fb_run_checkpoint(w->rank[0].run, path_of(w, 2), 2, &got, &err), FB_OK);
        assert_int_equal(got, FB_CKPT_COMMITTED);
    }
    assert_int_equal(world_step(w, 3, bad_gradient, NULL), FB_SKIP);
}

static void test_guard_checkpoint__case_puts_what_was_saved_since_in_doubt_until_its_skip_is_proven(void **state)
{
    for (int in_background = 0; in_background < 2; in_background++) {
        world w;
        fb_checkpoint_result result;
        (void)state;
        open_world(&w, 1);
        saved_then_case(&w, in_background);
        assert_int_equal(fb_run_checkpoint_wait(w.rank[0].run, -1, &err), FB_OK);
        no_result(&w);
        assert_int_equal(registry_says(&w, 1), FB_CKPT_COMMITTED); /* a gated step lies between it and the case */
        assert_int_equal(registry_says(&w, 2), FB_CKPT_SUSPECT);
        assert_int_equal(world_step(&w, 4, NULL, NULL), FB_PROCEED); /* its begin compares the digests */
        result = next_result(&w);
        assert_int_equal(result.again, 1);
        assert_int_equal(result.step, 2);
        assert_int_equal(result.state, FB_CKPT_COMMITTED);
        assert_int_equal(registry_says(&w, 2), FB_CKPT_COMMITTED);
        world_close(&w);
    }
}

static void test_guard_checkpoint__last_step_of_a_halted_run_is_proven_at_close(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    w.os = held_os();
    w.config.on_bad = FB_ON_BAD_HALT;
    world_open(&w);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    abandon(&w, 2);
    save(&w, 2, ONE);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    assert_int_equal(world_step(&w, 3, bad_gradient, NULL), FB_HALT);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_SUSPECT);
    close_runs(&w);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_COMMITTED);
    world_close(&w);
}

static void test_guard_checkpoint__skip_that_changed_the_state_leaves_them_in_doubt(void **state)
{
    world w;
    fb_step begin = FB_STEP_INIT;
    (void)state;
    open_world(&w, 1);
    saved_then_case(&w, 1);
    w.rank[0].moment[0][0] += 1.0f; /* the trainer stepped all the same */
    begin.step = 4;
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_run_checkpoint_wait(w.rank[0].run, -1, &err), FB_OK);
    no_result(&w);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_SUSPECT);
    assert_int_equal(registry_says(&w, 1), FB_CKPT_COMMITTED);
    world_close(&w);
}

static void test_guard_checkpoint__what_waits_when_a_case_opens_waits_for_the_proof(void **state)
{
    world w;
    (void)state;
    open_world(&w, 1);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    abandon(&w, 2);
    atomic_store(&held, 1);
    save(&w, 2, ONE);
    wait_until_reading();
    save_as(&w, path_of(&w, 9), 2, ONE);
    assert_int_equal(world_step(&w, 3, bad_gradient, NULL), FB_SKIP);
    atomic_store(&held, 0);
    assert_int_equal(next_result(&w).state, FB_CKPT_SUSPECT); /* the one that was being read */
    no_result(&w);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_SUSPECT);
    assert_int_equal(registry_says(&w, 9), FB_CKPT_SUSPECT);
    assert_int_equal(world_step(&w, 4, NULL, NULL), FB_PROCEED);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    assert_int_equal(registry_says(&w, 2), FB_CKPT_COMMITTED);
    assert_int_equal(registry_says(&w, 9), FB_CKPT_COMMITTED);
    world_close(&w);
}

/* ---- the save gate ----------------------------------------------------------------------------------------------------------- */

static void state_of(world_rank *r, fb_view views[2 * WORLD_TENSORS])
{
    for (int t = 0; t < WORLD_TENSORS; t++) {
        views[2 * t] = world_view(r->param[t], r->param_site[t]);
        views[2 * t + 1] = world_view(r->moment[t], r->moment_site[t]);
    }
}

static void test_guard_checkpoint__save_gate_opens_for_a_finite_state(void **state)
{
    world w;
    fb_view views[2 * WORLD_TENSORS];
    fb_save_result result = FB_SAVE_RESULT_INIT;
    (void)state;
    open_world(&w, 1);
    state_of(&w.rank[0], views);
    assert_int_equal(fb_run_save_gate(w.rank[0].run, 0, views, 4, &result, &err), FB_OK); /* before the first step, too */
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_int_equal(fb_run_save_gate(w.rank[0].run, 1, views, 4, &result, &err), FB_OK);
    assert_int_equal(result.tensors, 4);
    assert_int_equal(result.elements, 16);
    assert_int_equal(result.passed_over, 0);
    assert_int_equal(result.bad, 0);
    assert_int_equal(result.first_site, UINT32_MAX);
    assert_string_equal(result.first_tensor, "");
    save(&w, 1, ONE);
    assert_int_equal(next_result(&w).state, FB_CKPT_COMMITTED);
    world_close(&w);
}

static void test_guard_checkpoint__save_gate_shuts_and_the_next_vote_hears_of_it(void **state)
{
    world w;
    fb_view views[2 * WORLD_TENSORS];
    fb_save_result result = FB_SAVE_RESULT_INIT;
    float before[WORLD_TENSORS][WORLD_ELEMENTS];
    seen s;
    (void)state;
    open_world(&w, 2);
    state_of(&w.rank[0], views);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    w.rank[0].moment[1][3] = world_bits(INF);
    w.rank[0].moment[1][2] = world_bits(0xffc00001u);
    memcpy(before, w.rank[0].moment, sizeof before);
    assert_int_equal(fb_run_save_gate(w.rank[0].run, 1, views, 4, &result, &err), FB_E_WITHHELD);
    assert_memory_equal(before, w.rank[0].moment, sizeof before); /* nothing is repaired */
    assert_non_null(strstr(err.message, "h.1.mlp.w.exp_avg holds nan at element 2"));
    assert_int_equal(result.bad, 2);
    assert_int_equal(result.bad_tensors, 1);
    assert_int_equal(result.first_index, 2);
    assert_int_equal(result.first_bits, 0xffc00001u);
    assert_int_equal(result.first_kind, FB_KIND_NAN);
    assert_int_equal(result.first_site, w.rank[0].moment_site[1]);
    assert_string_equal(result.first_tensor, "h.1.mlp.w.exp_avg");
    save(&w, 1, ONE); /* whoever writes all the same */
    assert_int_equal(next_result(&w).state, FB_CKPT_SUSPECT);
    assert_int_equal(world_step(&w, 2, NULL, NULL), FB_SKIP); /* both ranks, though only one looked */
    assert_int_equal(w.rank[1].verdict.first_rank, 0);
    assert_int_equal(w.rank[1].verdict.first_boundary, FB_ENTRY);
    assert_string_equal(w.rank[1].verdict.case_id, "a1-000002");
    close_runs(&w);
    s = read_ledger(&w, 0);
    assert_int_equal(s.findings, 1);
    assert_int_equal(s.frozen, 1);
    world_close(&w);
}

static void test_guard_checkpoint__run_that_observes_may_save_what_is_bad(void **state)
{
    world w;
    fb_view views[2 * WORLD_TENSORS];
    fb_save_result result = FB_SAVE_RESULT_INIT;
    (void)state;
    world_init(&w, 1);
    w.os = held_os();
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    state_of(&w.rank[0], views);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    w.rank[0].param[0][0] = world_bits(INF);
    assert_int_equal(fb_run_save_gate(w.rank[0].run, 1, views, 4, &result, &err), FB_OK);
    assert_int_equal(result.bad, 1);
    close_runs(&w);
    assert_int_equal(read_ledger(&w, 0).findings, 1);
    world_close(&w);
}

static void test_guard_checkpoint__save_gate_passes_over_what_is_exempt_or_has_nothing_to_find(void **state)
{
    world w;
    fb_site site = FB_SITE_INIT;
    uint32_t id;
    float garbage = world_bits(QUIET_NAN);
    int64_t counter = 7;
    fb_view views[3];
    fb_save_result result = FB_SAVE_RESULT_INIT;
    (void)state;
    open_world(&w, 1);
    site.role = FB_ROLE_BUFFER;
    site.tensor = "padding";
    site.legal = FB_LEGAL_PADDING;
    assert_int_equal(fb_run_add_site(w.rank[0].run, &site, &id, &err), FB_OK);
    views[0] = world_view(&garbage, id);
    views[0].count = 1;
    views[1] = world_view(&counter, w.rank[0].param_site[0]);
    views[1].count = 1;
    views[1].dtype = FB_I64;
    views[2] = world_view(NULL, w.rank[0].param_site[1]);
    views[2].count = 0;
    assert_int_equal(fb_run_save_gate(w.rank[0].run, 1, views, 3, &result, &err), FB_OK);
    assert_int_equal(result.passed_over, 3);
    assert_int_equal(result.tensors, 0);
    world_close(&w);
}

/* ---- misuse ------------------------------------------------------------------------------------------------------------------ */

static void test_guard_checkpoint__misuse_has_a_sentence_each(void **state)
{
    world w;
    fb_step begin = FB_STEP_INIT;
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    fb_save_result saved = FB_SAVE_RESULT_INIT;
    fb_view stranger = {NULL, 0, FB_F32, 9999, NULL, -1, 0, NULL, {0, 0}};
    fb_run *run;
    (void)state;
    open_world(&w, 1);
    run = w.rank[0].run;
    assert_int_equal(fb_run_checkpoint_begin(NULL, "x", 1, &err), FB_E_USAGE);
    assert_int_equal(fb_run_checkpoint_begin(run, NULL, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_run_checkpoint_begin(run, "", 1, &err), FB_E_USAGE);
    assert_int_equal(fb_run_checkpoint_verify(run, NULL, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_run_checkpoint_verify(run, "/nonexistent/file", 1, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_run_checkpoint_poll(run, NULL, &err), FB_E_USAGE);
    result.size = 8;
    assert_int_equal(fb_run_checkpoint_poll(run, &result, &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "FB_CHECKPOINT_RESULT_INIT"));
    assert_int_equal(fb_run_checkpoint_wait(NULL, 0, &err), FB_E_USAGE);
    assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK); /* nothing was ever queued */
    saved.size = 3;
    assert_int_equal(fb_run_save_gate(run, 1, NULL, 0, &saved, &err), FB_E_USAGE);
    assert_int_equal(fb_run_save_gate(run, 1, &stranger, 1, NULL, &err), FB_E_SITE);
    begin.step = 1;
    assert_int_equal(fb_step_begin(run, &begin, &err), FB_OK);
    assert_int_equal(fb_run_checkpoint_begin(run, "x", 1, &err), FB_E_ORDER);
    assert_int_equal(fb_run_checkpoint_verify(run, "x", 1, &err), FB_E_ORDER);
    assert_int_equal(fb_run_save_gate(run, 1, NULL, 0, NULL, &err), FB_E_ORDER);
    assert_int_equal(fb_step_abandon(run, &err), FB_OK);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_checkpoint__is_committed_while_training_goes_on),
        cmocka_unit_test(test_guard_checkpoint__one_that_holds_a_nan_is_quarantined_with_its_place),
        cmocka_unit_test(test_guard_checkpoint__verdicts_reach_the_ledger_without_a_poll),
        cmocka_unit_test(test_guard_checkpoint__history_counts_as_it_was_when_saved),
        cmocka_unit_test(test_guard_checkpoint__what_was_saved_last_is_read_before_rotation_takes_it),
        cmocka_unit_test(test_guard_checkpoint__taint_wins_over_a_verdict_that_is_on_its_way),
        cmocka_unit_test(test_guard_checkpoint__taint_right_behind_the_call_is_never_overtaken),
        cmocka_unit_test(test_guard_checkpoint__taint_of_another_rank_reaches_what_waits_here),
        cmocka_unit_test(test_guard_checkpoint__full_queue_leaves_a_suspect_and_says_so),
        cmocka_unit_test(test_guard_checkpoint__one_that_rotation_deleted_unread_is_told_and_no_evidence_lost),
        cmocka_unit_test(test_guard_checkpoint__disk_that_cannot_be_read_leaves_a_suspect),
        cmocka_unit_test(test_guard_checkpoint__saved_over_while_it_waits_is_not_read_for_the_older_one),
        cmocka_unit_test(test_guard_checkpoint__verify_alone_takes_the_older_verdict_back),
        cmocka_unit_test(test_guard_checkpoint__killed_while_it_reads_leaves_a_suspect),
        cmocka_unit_test(test_guard_checkpoint__child_made_by_fork_waits_for_no_thread),
        cmocka_unit_test(test_guard_checkpoint__close_waits_for_what_was_saved_last),
        cmocka_unit_test(test_guard_checkpoint__case_puts_what_was_saved_since_in_doubt_until_its_skip_is_proven),
        cmocka_unit_test(test_guard_checkpoint__last_step_of_a_halted_run_is_proven_at_close),
        cmocka_unit_test(test_guard_checkpoint__skip_that_changed_the_state_leaves_them_in_doubt),
        cmocka_unit_test(test_guard_checkpoint__what_waits_when_a_case_opens_waits_for_the_proof),
        cmocka_unit_test(test_guard_checkpoint__save_gate_opens_for_a_finite_state),
        cmocka_unit_test(test_guard_checkpoint__save_gate_shuts_and_the_next_vote_hears_of_it),
        cmocka_unit_test(test_guard_checkpoint__run_that_observes_may_save_what_is_bad),
        cmocka_unit_test(test_guard_checkpoint__save_gate_passes_over_what_is_exempt_or_has_nothing_to_find),
        cmocka_unit_test(test_guard_checkpoint__misuse_has_a_sentence_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
