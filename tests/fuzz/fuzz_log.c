/*
 * Any bytes as a record log. The reader must not crash, overrun or loop; every record it gives must pass the writer's own test at
 * its place, come in order and lie inside the file; and reading twice gives the same.
 *
 * Checksums would keep a fuzzer out of everything behind them, so an input is a program that builds a log and then damages it,
 * unless it begins with the magic of a log: then it is taken as the file itself.
 *   byte 0          number of records to append, modulo 16
 *   byte 1          freezes, modulo 4 | pulses, modulo 4 (bits 2, 3)
 *   4 bytes each    damage: offset (24 bits, over the interesting places), value to XOR
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log/layout.h"
#include "log/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FILE_BYTES_MAX = 1 << 20, ID = 77 };

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "fuzz_log: %s (line %d)\n", #condition, __LINE__); \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* ---- one file, in memory ---------------------------------------------------------------------------------------------------- */

static unsigned char file[FILE_BYTES_MAX];
static size_t file_bytes;

static int64_t mem_open(void *ctx, const char *path, int flags, int mode)
{
    (void)ctx;
    (void)mode;
    if (flags & O_DIRECTORY) return 4;
    if (strcmp(path, "log") != 0) return -ENOENT;
    return 3;
}

static int64_t mem_nothing(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static int64_t mem_pread(void *ctx, int fd, void *out, size_t bytes, uint64_t offset)
{
    (void)ctx;
    (void)fd;
    if (offset >= file_bytes) return 0;
    if (bytes > file_bytes - offset) bytes = file_bytes - (size_t)offset;
    memcpy(out, file + offset, bytes);
    return (int64_t)bytes;
}

static int64_t mem_pwrite(void *ctx, int fd, const void *in, size_t bytes, uint64_t offset)
{
    (void)ctx;
    (void)fd;
    if (offset + bytes > sizeof file) return -ENOSPC;
    memcpy(file + offset, in, bytes);
    if (offset + bytes > file_bytes) file_bytes = (size_t)offset + bytes;
    return (int64_t)bytes;
}

static int64_t mem_fallocate(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    (void)ctx;
    (void)fd;
    (void)offset;
    (void)bytes;
    return -EOPNOTSUPP;
}

static int64_t mem_fstat(void *ctx, int fd, fb_os_info *info)
{
    (void)ctx;
    (void)fd;
    memset(info, 0, sizeof *info);
    info->size_bytes = file_bytes;
    info->kind = FB_OS_FILE;
    return 0;
}

static int64_t mem_number(void *ctx)
{
    (void)ctx;
    return 1000;
}

static const fb_os memory = {.open = mem_open,
                             .close = mem_nothing,
                             .fsync = mem_nothing,
                             .fdatasync = mem_nothing,
                             .pread = mem_pread,
                             .pwrite = mem_pwrite,
                             .fallocate = mem_fallocate,
                             .fstat = mem_fstat,
                             .realtime_ns = mem_number,
                             .monotonic_ns = mem_number,
                             .getpid = mem_number};

/* ---- build and damage ------------------------------------------------------------------------------------------------------- */

static void build(const uint8_t *data, size_t bytes)
{
    static unsigned char payload[FB_LOG_PAYLOAD_MAX];
    fb_log *log;
    uint32_t records = bytes > 0 ? data[0] % 16 : 0;
    uint32_t freezes = bytes > 1 ? data[1] & 3 : 0, pulses = bytes > 1 ? data[1] >> 2 & 3 : 0;
    file_bytes = 0;
    memset(file, 0, sizeof file);
    CHECK(fb_log_create(&log, &memory, "log", ID, NULL) == FB_OK);
    for (uint32_t i = 0; i < records; i++) {
        /* Two in sixteen are as large as can be, so that the reader's window has to move. */
        CHECK(fb_log_append(log, 1, payload, i % 8 == 7 ? FB_LOG_PAYLOAD_MAX : i * 37, 0, NULL) == FB_OK);
    }
    for (uint32_t i = 0; i < freezes; i++) CHECK(fb_log_freeze(log, 2, payload, i * 4000, NULL, NULL) == FB_OK);
    for (uint32_t i = 0; i < pulses; i++) CHECK(fb_log_pulse(log, payload, i * 60, NULL) == FB_OK);
    fb_log_close(log);
}

static void damage(const uint8_t *data, size_t bytes)
{
    for (size_t i = 2; i + 4 <= bytes; i += 4) {
        size_t offset = (size_t)data[i] | (size_t)data[i + 1] << 8 | (size_t)(data[i + 2] & 15) << 16;
        if (data[i + 2] & 128) offset = FB_LOG_APPEND_OFFSET + offset % 2048; /* the first records */
        if (data[i + 2] & 64) offset = FB_LOG_FROZEN_OFFSET + offset % 64;    /* the first frozen header */
        if ((data[i + 2] & 192) == 192 && offset < file_bytes) file_bytes = offset;
        else if (offset < file_bytes) file[offset] ^= data[i + 3];
    }
}

/* ---- read ------------------------------------------------------------------------------------------------------------------- */

static void check_record(const fb_log_record *record, uint32_t region, uint32_t payload_max, uint64_t id)
{
    fb_log_header header;
    size_t record_bytes = fb_log_record_bytes(record->bytes);
    CHECK(record->bytes <= payload_max);
    CHECK(record->offset_bytes <= file_bytes && record_bytes <= file_bytes - record->offset_bytes);
    CHECK(memcmp(record->payload, file + record->offset_bytes + FB_LOG_HEADER_BYTES, record->bytes) == 0);
    CHECK(fb_log_record_check(&header, file + record->offset_bytes, record_bytes, region, payload_max, id, record->offset_bytes) ==
          FB_LOG_RECORD_OK);
    CHECK(header.sequence == record->sequence && header.type == record->type);
}

static uint64_t read_all(void)
{
    fb_log_reader *reader;
    fb_log_record record;
    fb_log_info info;
    fb_log_tail tail;
    fb_error err = {0};
    uint64_t last = 0, records = 0, end = FB_LOG_APPEND_OFFSET;
    fb_status status = fb_log_reader_open(&reader, &memory, "log", &err);
    if (status != FB_OK) {
        CHECK(reader == NULL && err.message[0] && (status == FB_E_CORRUPT || status == FB_E_UNSUPPORTED));
        return 0;
    }
    CHECK(fb_log_reader_info(reader, &info, NULL) == FB_OK);
    while ((status = fb_log_reader_next(reader, &record, &err)) == FB_OK) {
        check_record(&record, FB_LOG_REGION_APPEND, FB_LOG_PAYLOAD_MAX, info.file_id);
        CHECK(record.sequence > last && record.offset_bytes == end);
        last = record.sequence;
        end += fb_log_record_bytes(record.bytes);
        records++;
    }
    CHECK(status == FB_E_NOTFOUND);
    CHECK(fb_log_reader_tail(reader, &tail, NULL) == FB_OK);
    CHECK(tail.records == records && tail.offset_bytes == end && tail.lost == last - records);
    for (uint32_t slot = 0; slot < FB_LOG_FROZEN_SLOTS; slot++) {
        status = fb_log_reader_frozen(reader, slot, &record, &err);
        CHECK(status == FB_OK || status == FB_E_NOTFOUND || status == FB_E_CORRUPT);
        if (status == FB_OK) check_record(&record, FB_LOG_REGION_FROZEN, FB_LOG_FROZEN_PAYLOAD_MAX, info.file_id);
    }
    status = fb_log_reader_pulse(reader, &record, &err);
    CHECK(status == FB_OK || status == FB_E_NOTFOUND);
    if (status == FB_OK) check_record(&record, FB_LOG_REGION_PULSE, FB_LOG_PULSE_PAYLOAD_MAX, info.file_id);
    fb_log_reader_close(reader);
    return records;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint64_t records;
    if (bytes > sizeof file) return 0;
    if (bytes >= 4 && data[0] == 0x89 && data[1] == 'F') {
        memset(file, 0, sizeof file);
        memcpy(file, data, bytes);
        file_bytes = bytes;
    } else {
        build(data, bytes);
        damage(data, bytes);
    }
    records = read_all();
    CHECK(read_all() == records);
    return 0;
}
