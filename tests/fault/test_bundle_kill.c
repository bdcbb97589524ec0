/*
 * Bundles on the real system: writers that are killed at a random moment, hundreds of times, and writers of one rank that all begin
 * at once. Whatever happens, a folder holds a whole bundle or none, and one writer of a rank wins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/os_sim.h"
#include "support/bundles.h"

enum { ROUNDS = 200, WRITERS = 6, CROWDS = 20 };

static fb_error err;
static char work[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(work, sizeof work, "%s/fb-bundle-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(work) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command);
}

static const char *folder_of(int number)
{
    static char folder[96];
    (void)snprintf(folder, sizeof folder, "%s/%d/bundle", work, number);
    return folder;
}

static void nap(uint64_t us)
{
    struct timespec t = {0, (long)us * 1000};
    (void)nanosleep(&t, NULL);
}

/* 1: sealed and whole; 0: not sealed. Else the test fails. */
static int is_sealed(const char *folder)
{
    fb_bundle *bundle = NULL;
    fb_status status = fb_bundle_open(&bundle, folder, &err);
    int whole = status == FB_OK && bundles_whole(bundle);
    fb_bundle_close(bundle);
    if (status != FB_OK && status != FB_E_NOTFOUND) fail_msg("%s", err.message);
    assert_int_equal(whole, status == FB_OK);
    return whole;
}

static void test_bundle_kill__a_writer_that_is_killed_leaves_a_whole_bundle_or_none(void **state)
{
    const char *given = getenv("FB_SEED");
    uint64_t seed = (uint64_t)time(NULL);
    int sealed = 0;
    (void)state;
    if (given) seed = strtoull(given, NULL, 10);
    print_message("FB_SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < ROUNDS; round++) {
        const char *folder = folder_of(round);
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(bundles_make(fb_os_posix(), folder, &err) == FB_OK ? 0 : 1);
        nap(os_sim_random(&seed) % 4000);
        (void)kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
        if (is_sealed(folder)) {
            sealed++;
            continue;
        }
        /* The next one takes what is whole and writes the rest. */
        for (int32_t rank = 0; rank < 3; rank += 2) {
            fb_status again = bundles_write(fb_os_posix(), folder, rank, &err);
            if (again != FB_OK && again != FB_E_EXISTS) fail_msg("%s", err.message);
        }
        assert_int_equal(fb_bundle_seal(folder, 3, &err), FB_OK);
        assert_int_equal(is_sealed(folder), 1);
    }
    print_message("%d of %d were done before they were killed\n", sealed, ROUNDS);
}

/* Each writer has other numbers, so that files of two of them do not fit together. */
static fb_status write_own(const char *folder, int number)
{
    static int32_t tokens[4096];
    const int64_t shape[] = {4096};
    fb_bundle_config config = bundles_config(folder, 0);
    fb_bundle_writer *writer = NULL;
    fb_status status;
    for (size_t i = 0; i < 4096; i++) tokens[i] = number;
    config.world = 1;
    status = fb_bundle_create(&writer, &config, &err);
    if (status != FB_OK) return status;
    status = fb_bundle_put(writer, FB_BUNDLE_BATCH, "tokens", FB_I32, 1, shape, tokens, &err);
    if (status == FB_OK) status = fb_bundle_put(writer, FB_BUNDLE_STATE, "w", FB_I32, 1, shape, tokens, &err);
    if (status == FB_OK) status = fb_bundle_set_integer(writer, "number", number, &err);
    if (status == FB_OK) return fb_bundle_finish(writer, &err);
    fb_bundle_abandon(writer);
    return status;
}

static void test_bundle_kill__of_writers_that_begin_at_once_one_wins(void **state)
{
    (void)state;
    for (int crowd = 0; crowd < CROWDS; crowd++) {
        const char *folder = folder_of(ROUNDS + crowd);
        pid_t child[WRITERS];
        int won = 0, gate[2];
        assert_int_equal(pipe(gate), 0);
        for (int i = 0; i < WRITERS; i++) {
            child[i] = fork();
            assert_true(child[i] >= 0);
            if (child[i] == 0) {
                fb_status status;
                char byte;
                (void)close(gate[1]);
                (void)!read(gate[0], &byte, 1); /* ends when the parent closes */
                status = write_own(folder, i);
                _exit(status == FB_OK ? 0 : status == FB_E_EXISTS ? 1 : 2);
            }
        }
        (void)close(gate[0]);
        (void)close(gate[1]);
        for (int i = 0; i < WRITERS; i++) {
            int status;
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
            won += WEXITSTATUS(status) == 0;
        }
        assert_int_equal(won, 1);
        if (fb_bundle_seal(folder, 1, &err) != FB_OK) fail_msg("%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundle_kill__a_writer_that_is_killed_leaves_a_whole_bundle_or_none),
        cmocka_unit_test(test_bundle_kill__of_writers_that_begin_at_once_one_wins),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
