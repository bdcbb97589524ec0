/*
 * A real process that saves, announces, commits, rotates and quarantines, and a real kill -9 at a random moment, many times. It
 * saves a quarter of its checkpoints over one name that it announces, a quarter over one that it does not, and half under new ones,
 * with a torn or bad one now and then, and removes all but the newest two. (A name that was announced is pinned by a hard link, on
 * the word of the trainer that the next save will be announced as well: the two kinds do not mix under one name.)
 * After each kill, what it had been told is committed, or a later one, can be resumed from with the right bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/os_sim.h"
#include "registry/registry.h"

enum { ROUNDS = 60, STEPS_MAX = 100000 };

static char top[] = "/tmp/firstbad-regkill-XXXXXX";
static char run[256], out[256];

static int write_file(const char *path, float value, int bad, int torn)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[0,256]}}";
    static const uint32_t nan = 0x7fc00000;
    uint64_t n = sizeof header - 1;
    float data[64];
    FILE *file = fopen(path, "wb");
    if (!file) return 0;
    for (int i = 0; i < 64; i++) data[i] = value;
    if (bad) memcpy(&data[7], &nan, sizeof nan);
    (void)fwrite(&n, sizeof n, 1, file);
    (void)fwrite(header, sizeof header - 1, 1, file);
    (void)fwrite(data, torn ? 100 : sizeof data, 1, file);
    return fclose(file) == 0;
}

static float value_at(const char *path)
{
    float value = -1;
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    if (fseek(file, -4, SEEK_END) != 0 || fread(&value, sizeof value, 1, file) != 1) value = -1;
    (void)fclose(file);
    return value;
}

/* Runs until it is killed. Tells the step of each checkpoint that it was told is committed. */
static void train(int64_t first, int tell)
{
    const fb_os *os = fb_os_posix();
    for (int64_t step = first; step < STEPS_MAX; step++) {
        char path[400], old[400];
        int over = step % 2 == 0, announced = step % 4 == 0, bad = step % 7 == 0, torn = step % 11 == 0;
        int32_t state = 0;
        fb_error err;
        if (over) (void)snprintf(path, sizeof path, "%s/%s.pt", out, announced ? "announced" : "ckpt");
        else (void)snprintf(path, sizeof path, "%s/step-%lld", out, (long long)step);
        if (announced && fb_registry_begin(os, run, path, step, 1, 0, &err) != FB_OK) _exit(3);
        if (!write_file(path, (float)step, bad, torn)) _exit(4);
        if (fb_registry_commit(os, run, path, step, 1, 0, 1, &state, &err) != FB_OK) _exit(5);
        if (state == FB_CKPT_COMMITTED && (bad || torn)) _exit(6);
        if (state == FB_CKPT_COMMITTED && write(tell, &step, sizeof step) != (ssize_t)sizeof step) _exit(7);
        (void)snprintf(old, sizeof old, "%s/step-%lld", out, (long long)(step - 4));
        if (!over) (void)unlink(old); /* rotation, which knows nothing of verdicts */
    }
    _exit(0);
}

/* The last step that was told, or -1. */
static int64_t last_told(int fd)
{
    int64_t step, last = -1;
    while (read(fd, &step, sizeof step) == (ssize_t)sizeof step) last = step;
    return last;
}

static void nap_us(uint64_t us)
{
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    (void)nanosleep(&t, NULL);
}

static void test_registry_kill__what_was_told_can_be_resumed_from(void **ignored)
{
    const char *given = getenv("FB_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    int64_t told = -1, next = 1;
    (void)ignored;
    printf("FB_SEED=%llu replays the moments of this run\n", (unsigned long long)seed);
    for (int round = 0; round < ROUNDS; round++) {
        fb_registry_checkpoint best;
        fb_error err;
        int pipe_fds[2], status = 0;
        int64_t now;
        pid_t child;
        assert_int_equal(pipe(pipe_fds), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)close(pipe_fds[0]);
            train(next, pipe_fds[1]);
        }
        (void)close(pipe_fds[1]);
        nap_us(os_sim_random(&seed) % 60000);
        assert_int_equal(kill(child, SIGKILL), 0);
        now = last_told(pipe_fds[0]);
        (void)close(pipe_fds[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) fail_msg("round %d: the trainer ended with %d", round, WEXITSTATUS(status));
        if (now > told) told = now;
        if (told < 0) continue;
        if (fb_registry_latest_in(fb_os_posix(), out, NULL, FB_REGISTRY_VERIFY, 0, &best, &err) != FB_OK) {
            fail_msg("round %d: step %lld was told, and: %s", round, (long long)told, err.message);
        }
        if (best.step < told || value_at(best.path) != (float)best.step) {
            fail_msg("round %d: step %lld was told, and step %lld is given from %s", round, (long long)told, (long long)best.step,
                     best.path);
        }
        if (round % 5 == 0 && fb_registry_settle(fb_os_posix(), run, NULL, &err) != FB_OK)
            fail_msg("round %d: %s", round, err.message);
        next = best.step + 1;
    }
    assert_true(told > 0);
}

static int set_up(void **ignored)
{
    (void)ignored;
    if (!mkdtemp(top)) return -1;
    (void)snprintf(run, sizeof run, "%s/runs/r", top);
    (void)snprintf(out, sizeof out, "%s/out", top);
    if (mkdir(out, 0700) != 0) return -1;
    return fb_os_mkdirs(fb_os_posix(), run, NULL);
}

static int tear_down(void **ignored)
{
    char command[300];
    (void)ignored;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry_kill__what_was_told_can_be_resumed_from),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
