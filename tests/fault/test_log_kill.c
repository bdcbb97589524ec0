/*
 * kill -9, for real: a child writes records as fast as it can and tells through a pipe what was acknowledged; the parent kills it
 * at some random moment and reads what is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/os_sim.h"
#include "log/log.h"

enum { ROUNDS = 300, ID = 0x6b696c6c };
enum { APPEND = 1, PULSE = 2, FREEZE = 3, KINDS = 4 };

static char dir[64];
static char path[128];

/* What the child acknowledged: the highest number of each kind. A message is one word, kind in its top byte. */
struct acknowledged {
    int created;
    uint64_t number[KINDS];
};

/* Every fifth record is large: the system may stop such a write between two pages when the process is killed. */
static uint32_t fill(unsigned char *out, int kind, uint64_t number)
{
    static const uint32_t bytes_max[KINDS] = {0, FB_LOG_PAYLOAD_MAX, FB_LOG_PULSE_PAYLOAD_MAX, FB_LOG_FROZEN_PAYLOAD_MAX};
    uint64_t seed = (uint64_t)kind << 32 | number;
    uint32_t bytes = (uint32_t)(os_sim_random(&seed) % (kind == APPEND && number % 5 ? 500 : bytes_max[kind]));
    memset(out, (int)(os_sim_random(&seed) & 255), bytes);
    for (uint32_t i = 0; i + 8 <= bytes; i += 512) memcpy(out + i, &seed, sizeof seed);
    return bytes;
}

/* ---- the child -------------------------------------------------------------------------------------------------------------- */

static void tell(int pipe_fd, int kind, uint64_t number)
{
    uint64_t message = (uint64_t)kind << 56 | number;
    if (write(pipe_fd, &message, sizeof message) != (ssize_t)sizeof message) _exit(3);
}

static void write_for_ever(int pipe_fd)
{
    static unsigned char data[FB_LOG_PAYLOAD_MAX];
    fb_log *log;
    uint64_t freezes = 0;
    if (fb_log_create(&log, fb_os_posix(), path, ID, NULL) != FB_OK) _exit(1);
    tell(pipe_fd, 0, 1);
    for (uint64_t number = 1;; number++) {
        if (fb_log_append(log, APPEND, data, fill(data, APPEND, number), 0, NULL) != FB_OK) _exit(2);
        tell(pipe_fd, APPEND, number);
        if (fb_log_pulse(log, data, fill(data, PULSE, number), NULL) != FB_OK) _exit(2);
        tell(pipe_fd, PULSE, number);
        if (number % 3 == 1 && freezes < FB_LOG_FROZEN_SLOTS) {
            freezes++;
            if (fb_log_freeze(log, FREEZE, data, fill(data, FREEZE, freezes), NULL, NULL) != FB_OK) _exit(2);
            tell(pipe_fd, FREEZE, freezes);
        }
    }
}

/* ---- the parent ------------------------------------------------------------------------------------------------------------- */

static int hear(int pipe_fd, struct acknowledged *ack)
{
    uint64_t message;
    ssize_t got = read(pipe_fd, &message, sizeof message);
    if (got != (ssize_t)sizeof message) return 0; /* whole words: a pipe does not split writes this small */
    if (message >> 56 == 0) ack->created = 1;
    else ack->number[message >> 56] = message & 0xffffffffffffffu;
    return 1;
}

static void judge_record(const fb_log_record *record, int kind, uint64_t number)
{
    static unsigned char expected[FB_LOG_PAYLOAD_MAX];
    uint32_t bytes = fill(expected, kind, number);
    assert_int_equal(record->sequence, number);
    assert_int_equal(record->bytes, bytes);
    assert_memory_equal(record->payload, expected, bytes);
}

static void judge(const struct acknowledged *ack)
{
    fb_log_reader *reader;
    fb_log_record record;
    fb_log_tail tail;
    uint64_t number = 0;
    fb_status status = fb_log_reader_open(&reader, fb_os_posix(), path, NULL);
    if (!ack->created && status != FB_OK) return;
    assert_int_equal(status, FB_OK);
    while (fb_log_reader_next(reader, &record, NULL) == FB_OK) judge_record(&record, APPEND, ++number);
    assert_true(number >= ack->number[APPEND]);
    assert_int_equal(fb_log_reader_tail(reader, &tail, NULL), FB_OK);
    assert_int_equal(tail.lost, 0);
    status = fb_log_reader_pulse(reader, &record, NULL);
    if (ack->number[PULSE] || status == FB_OK) {
        assert_int_equal(status, FB_OK);
        assert_true(record.sequence >= ack->number[PULSE]);
        judge_record(&record, PULSE, record.sequence);
    }
    for (uint32_t slot = 0; slot < FB_LOG_FROZEN_SLOTS; slot++) {
        status = fb_log_reader_frozen(reader, slot, &record, NULL);
        if (slot < ack->number[FREEZE]) assert_int_equal(status, FB_OK);
        if (status == FB_OK) judge_record(&record, FREEZE, slot + 1);
    }
    fb_log_reader_close(reader);
}

static void test_log__kill_9_at_any_moment_leaves_all_that_was_acknowledged(void **state)
{
    uint64_t seed = (uint64_t)time(NULL), whole = 0;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct acknowledged ack = {0};
        uint64_t wait_for = os_sim_random(&seed) % 60;
        int ends[2], status;
        pid_t child;
        assert_int_equal(pipe(ends), 0);
        child = fork();
        if (child == 0) {
            (void)close(ends[0]);
            write_for_ever(ends[1]);
        }
        assert_true(child > 0);
        (void)close(ends[1]);
        for (uint64_t i = 0; i < wait_for; i++) assert_true(hear(ends[0], &ack));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        while (hear(ends[0], &ack)) continue;
        (void)close(ends[0]);
        judge(&ack);
        whole += ack.number[APPEND];
        assert_true(unlink(path) == 0 || errno == ENOENT);
    }
    assert_true(whole > ROUNDS); /* the children did get to write */
}

static int set_up(void **state)
{
    (void)state;
    /* In memory where there is such a place: the death of a process asks nothing of the disk, and syncs would only take time. */
    strcpy(dir, "/dev/shm/fb-test-kill-XXXXXX");
    if (!mkdtemp(dir)) {
        strcpy(dir, "/tmp/fb-test-kill-XXXXXX");
        if (!mkdtemp(dir)) return -1;
    }
    (void)snprintf(path, sizeof path, "%s/r00000.log", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_log__kill_9_at_any_moment_leaves_all_that_was_acknowledged, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
