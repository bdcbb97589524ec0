/*
 * Saving while memory or the system fails: the k-th request fails, once or for good, for every k. A checkpoint is never committed
 * on bytes that nobody read, training goes on, and who polls or closes is never kept waiting. The thread's requests fall between
 * those of the training as they like, so a k means a request and not a place; all places are met over the rounds.
 */
#include "support/world.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "registry/registry.h"

static fb_error err;

/* ---- a system whose k-th call fails ------------------------------------------------------------------------------------------ */

static atomic_ullong calls, fail_at;
static atomic_int for_good;

static int must_fail(void)
{
    unsigned long long call = atomic_fetch_add(&calls, 1) + 1, k = atomic_load(&fail_at);
    return k && (call == k || (call > k && atomic_load(&for_good)));
}

static void fail_from(uint64_t k, int good)
{
    atomic_store(&for_good, good);
    atomic_store(&calls, 0);
    atomic_store(&fail_at, k);
}

/* EIO, after a call that did nothing. */
#define FAILS(name, parameters, arguments)                       \
    static int64_t fails_##name parameters                       \
    {                                                            \
        return must_fail() ? -5 : fb_os_posix()->name arguments; \
    }
FAILS(open, (void *ctx, const char *path, int flags, int mode), (ctx, path, flags, mode))
FAILS(read, (void *ctx, int fd, void *data, size_t bytes), (ctx, fd, data, bytes))
FAILS(write, (void *ctx, int fd, const void *data, size_t bytes), (ctx, fd, data, bytes))
FAILS(pread, (void *ctx, int fd, void *data, size_t bytes, uint64_t offset), (ctx, fd, data, bytes, offset))
FAILS(pwrite, (void *ctx, int fd, const void *data, size_t bytes, uint64_t offset), (ctx, fd, data, bytes, offset))
FAILS(fsync, (void *ctx, int fd), (ctx, fd))
FAILS(fdatasync, (void *ctx, int fd), (ctx, fd))
FAILS(ftruncate, (void *ctx, int fd, uint64_t bytes), (ctx, fd, bytes))
FAILS(fstat, (void *ctx, int fd, fb_os_info *info), (ctx, fd, info))
FAILS(stat, (void *ctx, const char *path, fb_os_info *info), (ctx, path, info))
FAILS(lstat, (void *ctx, const char *path, fb_os_info *info), (ctx, path, info))
FAILS(rename, (void *ctx, const char *from, const char *to), (ctx, from, to))
FAILS(rename_new, (void *ctx, const char *from, const char *to), (ctx, from, to))
FAILS(link, (void *ctx, const char *from, const char *to), (ctx, from, to))
FAILS(mkdir, (void *ctx, const char *path, int mode), (ctx, path, mode))
FAILS(lock, (void *ctx, int fd, int how), (ctx, fd, how))
FAILS(realpath, (void *ctx, const char *path, char *text, size_t bytes), (ctx, path, text, bytes))

static const fb_os *failing_os(void)
{
    static fb_os os;
    os = *fb_os_posix();
    os.open = fails_open;
    os.read = fails_read;
    os.write = fails_write;
    os.pread = fails_pread;
    os.pwrite = fails_pwrite;
    os.fsync = fails_fsync;
    os.fdatasync = fails_fdatasync;
    os.ftruncate = fails_ftruncate;
    os.fstat = fails_fstat;
    os.stat = fails_stat;
    os.lstat = fails_lstat;
    os.rename = fails_rename;
    os.rename_new = fails_rename_new;
    os.link = fails_link;
    os.mkdir = fails_mkdir;
    os.lock = fails_lock;
    os.realpath = fails_realpath;
    return &os;
}

/* ---- two saves between two steps --------------------------------------------------------------------------------------------- */

enum { ONE = 0x3f800000, QUIET_NAN = 0x7fc00000 };

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

/* A good one and a bad one, and then a step. What a call refuses is no reason to stop. */
static void train(world *w)
{
    fb_run *run = w->rank[0].run;
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    for (int64_t step = 2; step <= 3; step++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/step-%lld.safetensors", w->dir, (long long)step);
        (void)fb_run_checkpoint_begin(run, path, step, &err);
        write_file(path, step == 2 ? ONE : QUIET_NAN);
        (void)fb_run_checkpoint_verify(run, path, step, &err);
        assert_int_equal(world_step(w, step, NULL, NULL), FB_PROCEED);
    }
    assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK);
    while (fb_run_checkpoint_poll(run, &result, &err) == FB_OK) {
        if (result.step == 3) assert_int_not_equal(result.state, FB_CKPT_COMMITTED);
        if (result.status != FB_OK) assert_int_equal(result.state, FB_CKPT_SUSPECT);
    }
}

static fb_status never_committed(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *e)
{
    (void)ctx;
    (void)sequence;
    (void)time_ns;
    (void)e;
    if (rec->step == 3) assert_int_not_equal(rec->state, FB_CKPT_COMMITTED);
    if (rec->step == 2) assert_int_not_equal(rec->state, FB_CKPT_QUARANTINED);
    return FB_OK;
}

static void check_registry(const world *w)
{
    char home[128];
    (void)snprintf(home, sizeof home, "%s/test", w->dir);
    (void)fb_registry_trail(fb_os_posix(), home, never_committed, NULL, &err);
}

static void open_world(world *w)
{
    world_init(w, 1);
    w->os = failing_os();
    world_open(w);
    assert_int_equal(world_step(w, 1, NULL, NULL), FB_PROCEED);
}

static void test_guard_checkpoint_faults__every_failing_request_for_memory(void **state)
{
    uint64_t most;
    world w;
    (void)state;
    open_world(&w);
    fb_alloc_fail_at(0, 0);
    train(&w);
    most = fb_alloc_requests();
    world_close(&w);
    assert_true(most > 10);
    for (int good = 0; good < 2; good++) {
        for (uint64_t k = 1; k <= most + 2; k++) {
            open_world(&w);
            fb_alloc_fail_at(k, good);
            train(&w);
            fb_alloc_fail_at(0, 0);
            check_registry(&w);
            world_close(&w);
        }
    }
}

static void test_guard_checkpoint_faults__every_failing_call_of_the_system(void **state)
{
    uint64_t most;
    world w;
    (void)state;
    open_world(&w);
    fail_from(0, 0);
    train(&w);
    most = atomic_load(&calls);
    world_close(&w);
    assert_true(most > 50);
    for (int good = 0; good < 2; good++) {
        for (uint64_t k = 1; k <= most + 2; k += good ? 3 : 1) {
            open_world(&w);
            fail_from(k, good);
            train(&w);
            fail_from(0, 0);
            check_registry(&w);
            world_close(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_checkpoint_faults__every_failing_request_for_memory),
        cmocka_unit_test(test_guard_checkpoint_faults__every_failing_call_of_the_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
