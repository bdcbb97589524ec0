/* The record log on the real file system: what goes in comes out, and what is damaged is seen. Crashes are in tests/fault/. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log/layout.h"
#include "log/log.h"
#include "os/os.h"

static const uint64_t file_id = 0x1122334455667788u;
static char dir[64];
static char path[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/fb-test-log-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(path, sizeof path, "%s/r00000.log", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static fb_log *create(void)
{
    fb_error err = {0};
    fb_log *log = NULL;
    if (fb_log_create(&log, fb_os_posix(), path, file_id, &err) != FB_OK) fail_msg("%s", err.message);
    return log;
}

static fb_log_reader *open_reader(void)
{
    fb_error err = {0};
    fb_log_reader *reader = NULL;
    if (fb_log_reader_open(&reader, fb_os_posix(), path, &err) != FB_OK) fail_msg("%s", err.message);
    return reader;
}

static void overwrite(uint64_t offset, const void *data, size_t bytes)
{
    const fb_os *os = fb_os_posix();
    int64_t fd = fb_os_open(os, path, O_WRONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(fb_os_pwrite_all(os, (int)fd, data, bytes, offset, NULL), 0);
    (void)os->close(os->ctx, (int)fd);
}

static void cut(uint64_t bytes)
{
    const fb_os *os = fb_os_posix();
    int64_t fd = fb_os_open(os, path, O_WRONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(os->ftruncate(os->ctx, (int)fd, bytes), 0);
    (void)os->close(os->ctx, (int)fd);
}

static uint64_t file_bytes(void)
{
    fb_os_info info;
    assert_int_equal(fb_os_posix()->stat(NULL, path, &info), 0);
    return info.size_bytes;
}

/* Payload number k: a length and bytes that depend on k alone. */
static uint32_t payload(unsigned char *out, uint32_t k, uint32_t bytes_max)
{
    uint32_t bytes = (k * 2654435761u >> 7) % (bytes_max + 1);
    for (uint32_t i = 0; i < bytes; i++) out[i] = (unsigned char)(k * 31 + i * 7);
    return bytes;
}

static void test_log__records_come_back_in_order(void **state)
{
    static unsigned char data[FB_LOG_PAYLOAD_MAX];
    fb_error err;
    fb_log_record record;
    fb_log_tail tail;
    fb_log *log = create();
    fb_log_reader *reader;
    (void)state;
    for (uint32_t k = 0; k < 300; k++) {
        uint32_t bytes = payload(data, k, k % 17 ? 700 : FB_LOG_PAYLOAD_MAX);
        assert_int_equal(fb_log_append(log, (uint16_t)k, data, bytes, k % 100 == 0, &err), FB_OK);
    }
    assert_int_equal(fb_log_lost(log), 0);
    fb_log_close(log);
    reader = open_reader();
    for (uint32_t k = 0; k < 300; k++) {
        uint32_t bytes = payload(data, k, k % 17 ? 700 : FB_LOG_PAYLOAD_MAX);
        assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
        assert_int_equal(record.type, k);
        assert_int_equal(record.sequence, k + 1);
        assert_int_equal(record.bytes, bytes);
        assert_memory_equal(record.payload, data, bytes);
        assert_int_equal((uintptr_t)record.payload % 8, 0);
        assert_true(record.time_ns > 1600000000u * 1000000000ull);
    }
    assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_log_reader_tail(reader, &tail, &err), FB_OK);
    assert_int_equal(tail.kind, FB_LOG_TAIL_CLEAN);
    assert_int_equal(tail.records, 300);
    assert_int_equal(tail.lost, 0);
    assert_int_equal(tail.offset_bytes, file_bytes());
    fb_log_reader_close(reader);
}

static void test_log__the_largest_record_fits_and_one_byte_more_does_not(void **state)
{
    static unsigned char data[FB_LOG_PAYLOAD_MAX + 1];
    fb_error err;
    fb_log_record record;
    fb_log *log = create();
    fb_log_reader *reader;
    uint64_t before = file_bytes();
    (void)state;
    memset(data, 0xa5, sizeof data);
    assert_int_equal(fb_log_append(log, 1, data, FB_LOG_PAYLOAD_MAX + 1, 0, &err), FB_E_LIMIT);
    assert_int_equal(fb_log_append(log, 1, data, UINT32_MAX, 0, &err), FB_E_LIMIT);
    assert_int_equal(fb_log_pulse(log, data, FB_LOG_PULSE_PAYLOAD_MAX + 1, &err), FB_E_LIMIT);
    assert_int_equal(fb_log_freeze(log, 1, data, FB_LOG_FROZEN_PAYLOAD_MAX + 1, NULL, &err), FB_E_LIMIT);
    assert_int_equal(fb_log_slots_free(log), FB_LOG_FROZEN_SLOTS);
    assert_int_equal(file_bytes(), before);
    assert_int_equal(fb_log_append(log, 1, data, FB_LOG_PAYLOAD_MAX, 0, &err), FB_OK);
    assert_int_equal(fb_log_append(log, 2, NULL, 0, 0, &err), FB_OK);
    assert_int_equal(fb_log_pulse(log, data, FB_LOG_PULSE_PAYLOAD_MAX, &err), FB_OK);
    assert_int_equal(fb_log_freeze(log, 1, data, FB_LOG_FROZEN_PAYLOAD_MAX, NULL, &err), FB_OK);
    fb_log_close(log);
    reader = open_reader();
    assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
    assert_int_equal(record.bytes, FB_LOG_PAYLOAD_MAX);
    assert_int_equal(record.sequence, 1); /* a refused record is not a lost one */
    assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
    assert_int_equal(record.bytes, 0);
    assert_int_equal(fb_log_reader_frozen(reader, 0, &record, &err), FB_OK);
    assert_int_equal(record.bytes, FB_LOG_FROZEN_PAYLOAD_MAX);
    assert_int_equal(fb_log_reader_frozen(reader, 1, &record, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_OK);
    assert_int_equal(record.bytes, FB_LOG_PULSE_PAYLOAD_MAX);
    fb_log_reader_close(reader);
}

static void test_log__a_second_writer_is_refused_and_changes_nothing(void **state)
{
    fb_error err = {0};
    fb_log_record record;
    fb_log *log = create(), *second = (fb_log *)&err;
    fb_log_reader *reader;
    (void)state;
    assert_int_equal(fb_log_append(log, 7, "first", 5, 0, &err), FB_OK);
    assert_int_equal(fb_log_create(&second, fb_os_posix(), path, 99, &err), FB_E_EXISTS);
    assert_null(second);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(fb_log_append(log, 8, "second", 6, 0, &err), FB_OK);
    fb_log_close(log);
    assert_int_equal(fb_log_create(&second, fb_os_posix(), path, 99, &err), FB_E_EXISTS);
    reader = open_reader();
    assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
    assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
    assert_memory_equal(record.payload, "second", 6);
    fb_log_reader_close(reader);
}

static void test_log__the_newest_whole_pulse_wins(void **state)
{
    static const unsigned char noise[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    fb_error err;
    fb_log_record record;
    fb_log *log = create();
    fb_log_reader *reader = open_reader();
    (void)state;
    assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_E_NOTFOUND);
    for (uint32_t k = 1; k <= 9; k++) {
        assert_int_equal(fb_log_pulse(log, &k, sizeof k, &err), FB_OK);
        assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_OK); /* read while it is written */
        assert_int_equal(record.sequence, k);
        assert_memory_equal(record.payload, &k, sizeof k);
    }
    overwrite(record.offset_bytes + 20, noise, sizeof noise); /* the ninth is torn: the eighth is still there */
    assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_OK);
    assert_int_equal(record.sequence, 8);
    overwrite(record.offset_bytes + 20, noise, sizeof noise);
    assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_E_NOTFOUND);
    fb_log_reader_close(reader);
    fb_log_close(log);
}

static void test_log__frozen_records_fill_their_slots_and_then_no_more(void **state)
{
    fb_error err;
    fb_log_record record;
    fb_log *log = create();
    fb_log_reader *reader;
    uint64_t bytes = file_bytes();
    (void)state;
    for (uint32_t k = 0; k < FB_LOG_FROZEN_SLOTS; k++) {
        uint32_t slot = 99;
        assert_int_equal(fb_log_freeze(log, (uint16_t)(k + 1), &k, sizeof k, &slot, &err), FB_OK);
        assert_int_equal(slot, k);
    }
    assert_int_equal(fb_log_freeze(log, 1, "late", 4, NULL, &err), FB_E_LIMIT);
    assert_int_equal(file_bytes(), bytes); /* set-aside space: the file did not grow */
    fb_log_close(log);
    reader = open_reader();
    for (uint32_t k = 0; k < FB_LOG_FROZEN_SLOTS; k++) {
        assert_int_equal(fb_log_reader_frozen(reader, k, &record, &err), FB_OK);
        assert_int_equal(record.type, k + 1);
        assert_int_equal(record.sequence, k + 1);
        assert_memory_equal(record.payload, &k, sizeof k);
    }
    assert_int_equal(fb_log_reader_frozen(reader, FB_LOG_FROZEN_SLOTS, &record, &err), FB_E_USAGE);
    fb_log_reader_close(reader);
}

static void test_log__a_slot_that_is_not_empty_is_left_alone(void **state)
{
    fb_error err;
    uint32_t slot = 99;
    fb_log *log = create();
    fb_log_record record;
    fb_log_reader *reader;
    (void)state;
    overwrite(FB_LOG_FROZEN_OFFSET + 5000, "somebody else", 13);
    assert_int_equal(fb_log_freeze(log, 3, "bad step", 8, &slot, &err), FB_OK);
    assert_int_equal(slot, 1);
    fb_log_close(log);
    reader = open_reader();
    assert_int_equal(fb_log_reader_frozen(reader, 0, &record, &err), FB_E_CORRUPT);
    assert_int_equal(err.offset_bytes, FB_LOG_FROZEN_OFFSET);
    assert_int_equal(fb_log_reader_frozen(reader, 1, &record, &err), FB_OK);
    assert_memory_equal(record.payload, "bad step", 8);
    fb_log_reader_close(reader);
}

static uint64_t count_records(fb_log_tail *tail)
{
    fb_error err;
    fb_log_record record;
    uint64_t records = 0;
    fb_log_reader *reader = open_reader();
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) records++;
    assert_int_equal(fb_log_reader_tail(reader, tail, &err), FB_OK);
    assert_int_equal(tail->records, records);
    fb_log_reader_close(reader);
    return records;
}

static void test_log__a_file_cut_at_any_byte_gives_the_records_before(void **state)
{
    fb_error err;
    fb_log_tail tail;
    fb_log *log = create();
    (void)state;
    for (int k = 0; k < 3; k++) assert_int_equal(fb_log_append(log, 1, "0123456789", 10, 0, &err), FB_OK); /* 56 bytes each */
    fb_log_close(log);
    for (uint64_t bytes = 3 * 56; bytes-- > 0;) {
        cut(FB_LOG_APPEND_OFFSET + bytes);
        assert_int_equal(count_records(&tail), bytes / 56);
        assert_int_equal(tail.kind, bytes % 56 ? FB_LOG_TAIL_TORN : FB_LOG_TAIL_CLEAN);
        assert_int_equal(tail.offset_bytes, FB_LOG_APPEND_OFFSET + bytes / 56 * 56);
        assert_int_equal(tail.after_bytes, bytes % 56);
    }
}

static void test_log__any_flipped_bit_ends_the_valid_prefix(void **state)
{
    fb_error err;
    fb_log_tail tail;
    unsigned char good[56], bad[56];
    const fb_os *os = fb_os_posix();
    fb_log *log = create();
    int64_t fd;
    (void)state;
    for (int k = 0; k < 3; k++) assert_int_equal(fb_log_append(log, 1, "0123456789", 10, 0, &err), FB_OK);
    fb_log_close(log);
    fd = fb_os_open(os, path, O_RDONLY, 0);
    assert_int_equal(fb_os_pread_full(os, (int)fd, good, 56, FB_LOG_APPEND_OFFSET + 56), 56);
    (void)os->close(os->ctx, (int)fd);
    for (int bit = 0; bit < 56 * 8; bit++) {
        memcpy(bad, good, sizeof bad);
        bad[bit / 8] = (unsigned char)(bad[bit / 8] ^ (1u << (bit % 8)));
        overwrite(FB_LOG_APPEND_OFFSET + 56, bad, sizeof bad);
        assert_int_equal(count_records(&tail), 1);
        assert_int_not_equal(tail.kind, FB_LOG_TAIL_CLEAN);
    }
    overwrite(FB_LOG_APPEND_OFFSET + 56, good, sizeof good);
    assert_int_equal(count_records(&tail), 3);
}

static void test_log__a_record_is_valid_at_its_own_place_only(void **state)
{
    fb_error err;
    fb_log_tail tail;
    unsigned char first[56];
    const fb_os *os = fb_os_posix();
    fb_log *log = create();
    int64_t fd;
    (void)state;
    for (int k = 0; k < 2; k++) assert_int_equal(fb_log_append(log, 1, "0123456789", 10, 0, &err), FB_OK);
    fb_log_close(log);
    fd = fb_os_open(os, path, O_RDONLY, 0);
    assert_int_equal(fb_os_pread_full(os, (int)fd, first, 56, FB_LOG_APPEND_OFFSET), 56);
    (void)os->close(os->ctx, (int)fd);
    overwrite(FB_LOG_APPEND_OFFSET + 56, first, sizeof first);
    assert_int_equal(count_records(&tail), 1);
}

static void test_log__a_number_that_repeats_ends_the_valid_prefix(void **state)
{
    static const uint64_t numbers[] = {1, 4, 4, 5}; /* 2 and 3 were lost; the second 4 is whole, and yet no record of this log */
    fb_log_tail tail;
    (void)state;
    fb_log_close(create());
    for (uint64_t i = 0; i < 4; i++) {
        unsigned char record[56];
        const fb_log_header header = {FB_LOG_REGION_APPEND, 1, 10, numbers[i], 0};
        assert_int_equal(fb_log_record_encode(record, &header, "0123456789", file_id, FB_LOG_APPEND_OFFSET + i * 56), 56);
        overwrite(FB_LOG_APPEND_OFFSET + i * 56, record, sizeof record);
    }
    assert_int_equal(count_records(&tail), 2);
    assert_int_equal(tail.lost, 2);
    assert_int_equal(tail.after_bytes, 112);
}

static void test_log__a_reader_follows_a_file_that_grows(void **state)
{
    fb_error err;
    fb_log_record record;
    fb_log *log = create();
    fb_log_reader *reader = open_reader();
    (void)state;
    for (uint32_t k = 1; k < 2000; k++) {
        static unsigned char data[900];
        uint32_t bytes = payload(data, k, sizeof data);
        assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_E_NOTFOUND);
        assert_int_equal(fb_log_append(log, 1, data, bytes, 0, &err), FB_OK);
        assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
        assert_int_equal(record.sequence, k);
        assert_memory_equal(record.payload, data, bytes);
    }
    fb_log_reader_close(reader);
    fb_log_close(log);
}

static void test_log__what_is_no_log_is_refused_with_a_reason(void **state)
{
    fb_error err;
    fb_log_reader *reader;
    unsigned char byte;
    (void)state;
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_E_NOTFOUND);
    assert_null(reader);
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), dir, &err), FB_E_CORRUPT);
    fb_log_close(create());
    byte = 2; /* version */
    overwrite(8, &byte, 1);
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_E_UNSUPPORTED);
    byte = 1;
    overwrite(8, &byte, 1);
    overwrite(41, &byte, 1); /* number of pulse slots */
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "damaged"));
    overwrite(0, &byte, 1);
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "no record log"));
    cut(4095);
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "never finished"));
    cut(0);
    cut(9000);
    assert_int_equal(fb_log_reader_open(&reader, fb_os_posix(), path, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "never finished"));
}

static void test_log__wrong_use_has_a_sentence(void **state)
{
    fb_error err;
    fb_log_record record;
    fb_log_tail tail;
    fb_log_info info;
    fb_log *log;
    fb_log_reader *reader;
    (void)state;
    assert_int_equal(fb_log_create(NULL, fb_os_posix(), path, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_log_create(&log, NULL, path, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_log_create(&log, fb_os_posix(), NULL, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_log_append(NULL, 1, "", 0, 0, &err), FB_E_USAGE);
    assert_int_equal(fb_log_sync(NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_log_pulse(NULL, "", 0, &err), FB_E_USAGE);
    assert_int_equal(fb_log_freeze(NULL, 1, "", 0, NULL, &err), FB_E_USAGE);
    log = create();
    assert_int_equal(fb_log_append(log, 1, NULL, 1, 0, &err), FB_E_USAGE);
    assert_int_equal(fb_log_pulse(log, NULL, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_log_freeze(log, 1, NULL, 1, NULL, NULL), FB_E_USAGE);
    fb_log_close(log);
    fb_log_close(NULL);
    assert_int_equal(fb_log_lost(NULL), 0);
    assert_int_equal(fb_log_reader_open(NULL, fb_os_posix(), path, &err), FB_E_USAGE);
    assert_int_equal(fb_log_reader_open(&reader, NULL, path, &err), FB_E_USAGE);
    assert_int_equal(fb_log_reader_next(NULL, &record, &err), FB_E_USAGE);
    assert_int_equal(fb_log_reader_frozen(NULL, 0, &record, &err), FB_E_USAGE);
    assert_int_equal(fb_log_reader_pulse(NULL, &record, &err), FB_E_USAGE);
    assert_int_equal(fb_log_reader_tail(NULL, &tail, &err), FB_E_USAGE);
    assert_int_equal(fb_log_reader_info(NULL, &info, &err), FB_E_USAGE);
    fb_log_reader_close(NULL);
    reader = open_reader();
    assert_int_equal(fb_log_reader_info(reader, &info, &err), FB_OK);
    assert_int_equal(info.file_id, file_id);
    fb_log_reader_close(reader);
}

/* Runs in the child. Its exit code says what went wrong; 0 is the pass. */
static int use_in_child(fb_log *log)
{
    fb_error err;
    if (fb_log_append(log, 1, "child", 5, 1, &err) != FB_E_FORKED) return 1;
    if (fb_log_pulse(log, "child", 5, &err) != FB_E_FORKED) return 2;
    if (fb_log_freeze(log, 1, "child", 5, NULL, &err) != FB_E_FORKED) return 3;
    if (fb_log_sync(log, &err) != FB_E_FORKED) return 4;
    fb_log_close(log);
    return 0;
}

static void test_log__a_forked_child_is_refused_and_touches_nothing(void **state)
{
    fb_error err;
    fb_log_tail tail;
    fb_log_record record;
    fb_log_reader *reader;
    fb_log *log = create();
    uint64_t bytes;
    int status;
    pid_t child;
    (void)state;
    assert_int_equal(fb_log_append(log, 1, "parent", 6, 0, &err), FB_OK);
    bytes = file_bytes();
    child = fork();
    if (child == 0) _exit(use_in_child(log));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(file_bytes(), bytes);
    assert_int_equal(fb_log_append(log, 1, "parent", 6, 1, &err), FB_OK); /* the parent's log is as it was */
    assert_int_equal(fb_log_freeze(log, 1, "parent", 6, NULL, &err), FB_OK);
    fb_log_close(log);
    assert_int_equal(count_records(&tail), 2);
    reader = open_reader();
    assert_int_equal(fb_log_reader_frozen(reader, 1, &record, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_E_NOTFOUND);
    fb_log_reader_close(reader);
}

/* In a child, since the limit cannot be told apart from the rest of a process. The system's own answer would be a deadly signal. */
static int live_under_a_size_limit(void)
{
    static unsigned char data[1000];
    struct rlimit limit;
    fb_error err = {0};
    fb_log *log;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    limit.rlim_cur = FB_LOG_APPEND_OFFSET - 1;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    if (fb_log_create(&log, fb_os_posix(), path, file_id, &err) != FB_E_IO || err.os_errno != EFBIG) return 3;
    limit.rlim_cur = FB_LOG_APPEND_OFFSET + 2 * 1040;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 4;
    if (fb_log_create(&log, fb_os_posix(), path, file_id, &err) != FB_OK) return 5;
    for (int i = 0; i < 4; i++) {
        fb_status status = fb_log_append(log, 1, data, sizeof data, 0, &err);
        if (status != (i < 2 ? FB_OK : FB_E_IO)) return 6;
    }
    if (fb_log_lost(log) != 2 || err.os_errno != EFBIG) return 7;
    if (fb_log_freeze(log, 2, data, sizeof data, NULL, &err) != FB_OK) return 8;
    if (fb_log_pulse(log, data, 100, &err) != FB_OK) return 9;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    if (fb_log_append(log, 1, data, sizeof data, 1, &err) != FB_OK) return 11;
    fb_log_close(log);
    return 0;
}

static void test_log__a_file_size_limit_costs_records_and_not_the_process(void **state)
{
    fb_log_tail tail;
    int status;
    pid_t child = fork();
    (void)state;
    if (child == 0) _exit(live_under_a_size_limit());
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count_records(&tail), 3);
    assert_int_equal(tail.lost, 2);
}

enum { FOLLOWED = 20000 };

static void write_fast(void)
{
    static unsigned char data[3000];
    fb_log *log;
    if (fb_log_create(&log, fb_os_posix(), path, file_id, NULL) != FB_OK) _exit(1);
    for (uint32_t k = 1; k <= FOLLOWED; k++) {
        uint32_t bytes = payload(data, k, sizeof data);
        if (fb_log_append(log, 1, data, bytes, 0, NULL) != FB_OK || fb_log_pulse(log, &k, sizeof k, NULL) != FB_OK) _exit(2);
    }
    _exit(0);
}

static void test_log__another_process_reads_while_records_are_written(void **state)
{
    static unsigned char expected[3000];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    uint64_t pulse = 0;
    int status;
    pid_t child = fork();
    (void)state;
    if (child == 0) write_fast();
    assert_true(child > 0);
    while (fb_log_reader_open(&reader, fb_os_posix(), path, NULL) != FB_OK) assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    for (uint32_t k = 1; k <= FOLLOWED; k++) {
        uint32_t bytes = payload(expected, k, sizeof expected);
        while (fb_log_reader_next(reader, &record, NULL) != FB_OK) { /* not there yet, or half there */
            if (waitpid(child, &status, WNOHANG) != 0) {
                assert_int_equal(status, 0);
                child = -1; /* all is written now, so that one more look must find it */
                assert_int_equal(fb_log_reader_next(reader, &record, NULL), FB_OK);
                break;
            }
        }
        assert_int_equal(record.sequence, k);
        assert_int_equal(record.bytes, bytes);
        assert_memory_equal(record.payload, expected, bytes);
        if (k % 16 == 0 && fb_log_reader_pulse(reader, &record, NULL) == FB_OK) {
            const uint32_t number = (uint32_t)record.sequence;
            assert_true(record.sequence >= pulse);
            assert_memory_equal(record.payload, &number, sizeof number);
            pulse = record.sequence;
        }
    }
    if (child > 0) assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fb_log_reader_close(reader);
}

/* The posix table with a clock of our own that runs backwards. */
static int64_t backward_ns(void *ctx)
{
    static int64_t ns = 1700000000000000000;
    (void)ctx;
    return ns -= 1000000000;
}

static void test_log__a_clock_that_goes_back_changes_nothing_but_the_times(void **state)
{
    fb_os os = *fb_os_posix();
    fb_error err;
    fb_log_record record;
    fb_log *log;
    fb_log_reader *reader;
    (void)state;
    os.realtime_ns = backward_ns;
    assert_int_equal(fb_log_create(&log, &os, path, file_id, &err), FB_OK);
    for (uint32_t k = 1; k <= 5; k++) {
        assert_int_equal(fb_log_append(log, 1, &k, sizeof k, 0, &err), FB_OK);
        assert_int_equal(fb_log_pulse(log, &k, sizeof k, &err), FB_OK);
        assert_int_equal(fb_log_freeze(log, 1, &k, sizeof k, NULL, &err), FB_OK);
    }
    fb_log_close(log);
    reader = open_reader();
    for (uint32_t k = 1; k <= 5; k++) {
        assert_int_equal(fb_log_reader_next(reader, &record, &err), FB_OK);
        assert_memory_equal(record.payload, &k, sizeof k);
        assert_int_equal(fb_log_reader_frozen(reader, k - 1, &record, &err), FB_OK);
        assert_memory_equal(record.payload, &k, sizeof k);
    }
    assert_int_equal(fb_log_reader_pulse(reader, &record, &err), FB_OK);
    assert_int_equal(record.sequence, 5);
    fb_log_reader_close(reader);
}

static int check(const unsigned char *in, size_t available, uint32_t region, uint32_t payload_max, uint64_t id, uint64_t offset)
{
    fb_log_header header;
    return fb_log_record_check(&header, in, available, region, payload_max, id, offset);
}

static void test_layout__bytes_on_disk_are_pinned(void **state)
{
    static const unsigned char expected_head[72] = {
        0x89, 'F',  'B', 'L', '\r', '\n', 0x1a, '\n', 1,  0,    0, 0, 4, 3,    2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        8,    7,    6,   5,   4,    3,    2,    1,    0,  0x10, 0, 0, 0, 0,    0, 0, 2,    0,    0,    0,    0,    0x10, 0,    0,
        0,    0x30, 0,   0,   0,    0,    0,    0,    16, 0,    0, 0, 0, 0x20, 0, 0, 0,    0x30, 2,    0,    0,    0,    0,    0};
    static const unsigned char expected_record[32] = {0xfb, 'R', 'e', 'c', 0x34, 0x12, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0,
                                                      7,    0,   0,   0,   0,    0,    0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
    const fb_log_head head = {file_id, 0x0102030405060708u};
    const fb_log_header header = {FB_LOG_REGION_APPEND, 0x1234, 5, 7, 0x0102030405060708u};
    unsigned char out[FB_LOG_HEAD_BYTES];
    (void)state;
    fb_log_head_encode(out, &head);
    assert_memory_equal(out, expected_head, sizeof expected_head);
    assert_true(fb_log_all_zero(out + 72, FB_LOG_HEAD_BYTES - 8 - 72));
    assert_false(fb_log_all_zero(out + FB_LOG_HEAD_BYTES - 8, 8));
    memset(out, 0xff, sizeof out);
    assert_int_equal(fb_log_record_encode(out, &header, "hello", file_id, FB_LOG_APPEND_OFFSET), 48);
    assert_memory_equal(out, expected_record, sizeof expected_record);
    assert_memory_equal(out + 40, "hello\0\0\0", 8);
    assert_int_equal(out[48], 0xff);
    assert_int_equal(check(out, 48, FB_LOG_REGION_APPEND, 5, file_id, FB_LOG_APPEND_OFFSET), FB_LOG_RECORD_OK);
    assert_int_equal(check(out, 47, FB_LOG_REGION_APPEND, 5, file_id, FB_LOG_APPEND_OFFSET), FB_LOG_RECORD_SHORT);
    assert_int_equal(check(out, 48, FB_LOG_REGION_APPEND, 4, file_id, FB_LOG_APPEND_OFFSET), FB_LOG_RECORD_BAD);
    assert_int_equal(check(out, 48, FB_LOG_REGION_PULSE, 5, file_id, FB_LOG_APPEND_OFFSET), FB_LOG_RECORD_BAD);
    assert_int_equal(check(out, 48, FB_LOG_REGION_APPEND, 5, file_id + 1, FB_LOG_APPEND_OFFSET), FB_LOG_RECORD_BAD);
    assert_int_equal(check(out, 48, FB_LOG_REGION_APPEND, 5, file_id, FB_LOG_APPEND_OFFSET + 8), FB_LOG_RECORD_BAD);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_log__records_come_back_in_order),
        TEST(test_log__the_largest_record_fits_and_one_byte_more_does_not),
        TEST(test_log__a_second_writer_is_refused_and_changes_nothing),
        TEST(test_log__the_newest_whole_pulse_wins),
        TEST(test_log__frozen_records_fill_their_slots_and_then_no_more),
        TEST(test_log__a_slot_that_is_not_empty_is_left_alone),
        TEST(test_log__a_file_cut_at_any_byte_gives_the_records_before),
        TEST(test_log__any_flipped_bit_ends_the_valid_prefix),
        TEST(test_log__a_record_is_valid_at_its_own_place_only),
        TEST(test_log__a_number_that_repeats_ends_the_valid_prefix),
        TEST(test_log__a_reader_follows_a_file_that_grows),
        TEST(test_log__what_is_no_log_is_refused_with_a_reason),
        TEST(test_log__wrong_use_has_a_sentence),
        TEST(test_log__a_forked_child_is_refused_and_touches_nothing),
        TEST(test_log__a_file_size_limit_costs_records_and_not_the_process),
        TEST(test_log__another_process_reads_while_records_are_written),
        TEST(test_log__a_clock_that_goes_back_changes_nothing_but_the_times),
        cmocka_unit_test(test_layout__bytes_on_disk_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
