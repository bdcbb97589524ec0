/* Locking, finding the end, appending. What is valid is decided by layout.h alone, as for every other log. */
#include "log/shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log/layout.h"

static const int64_t LOCK_WAIT_NS = 10 * (int64_t)1000000000;
enum { LOCK_NAP_NS = 200000 };
enum { LOCK_TRIES_MAX = 50000 }; /* should the clock stand still */
enum { RECORD_BYTES_MAX = FB_LOG_HEADER_BYTES + FB_LOG_PAYLOAD_MAX };

struct fb_log_shared {
    const fb_os *os;
    char path[FB_OS_PATH_MAX], lock_path[FB_OS_PATH_MAX], new_path[FB_OS_PATH_MAX];
    int lock_fd, fd; /* -1: not open */
    uint64_t file_id, end, sequence;
    unsigned char *buffer; /* RECORD_BYTES_MAX */
};

void fb_log_shared_close(fb_log_shared *log)
{
    if (!log) return;
    if (log->fd >= 0) (void)log->os->close(log->os->ctx, log->fd);
    if (log->lock_fd >= 0) {
        (void)fb_os_lock(log->os, log->lock_fd, FB_OS_UNLOCK);
        (void)log->os->close(log->os->ctx, log->lock_fd);
    }
    fb_free(log->buffer);
    fb_free(log);
}

/*
 * Tried again and again instead of waited for: a process that was stopped while it holds the lock must not stop training with it.
 * A holder is done after one synced write, so the waiting is short, and a nap of a tenth of that spares the processor.
 */
static fb_status take_lock(fb_log_shared *log, fb_error *err)
{
    const fb_os *os = log->os;
    int64_t begin = os->monotonic_ns(os->ctx);
    int64_t got = fb_os_open(os, log->lock_path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (got < 0) return fb_fail_os(err, (int)-got, "open lock %s", log->lock_path);
    log->lock_fd = (int)got;
    for (uint64_t tries = 0; tries < LOCK_TRIES_MAX; tries++) {
        got = fb_os_lock(os, log->lock_fd, FB_OS_LOCK);
        if (got == 0) return FB_OK;
        if (got != -EAGAIN) return fb_fail_os(err, (int)-got, "lock %s", log->lock_path);
        if (os->monotonic_ns(os->ctx) - begin > LOCK_WAIT_NS) break;
        (void)os->sleep_ns(os->ctx, LOCK_NAP_NS);
    }
    return fb_fail_os(err, EAGAIN, "lock %s: another process holds it for more than ten seconds", log->lock_path);
}

/* ---- opening ---------------------------------------------------------------------------------------------------------------- */

/*
 * Under another name first, and given its own when it is whole and durable: so whatever stands under its own name was once
 * finished, and bytes that are no log there are damage or somebody else's file, never a creation that was cut short.
 */
static fb_status create(fb_log_shared *log, uint64_t file_id, fb_error *err)
{
    const fb_os *os = log->os;
    const char *temp = log->new_path;
    fb_log *made;
    int64_t got;
    fb_status status;
    got = os->unlink(os->ctx, temp); /* of a creation that was cut short; nobody else is here, we hold the lock */
    if (got < 0 && got != -ENOENT) return fb_fail_os(err, (int)-got, "remove %s, left behind by a crash", temp);
    if ((status = fb_log_create(&made, os, temp, file_id, err)) != FB_OK) return status;
    fb_log_close(made);
    got = os->link(os->ctx, temp, log->path);
    (void)os->unlink(os->ctx, temp);
    if (got == 0) got = fb_os_sync_parent(os, log->path);
    if (got < 0) return fb_fail_os(err, (int)-got, "put log %s in place", log->path);
    return FB_OK;
}

static fb_status open_for_writing(fb_log_shared *log, fb_error *err)
{
    int64_t got = fb_os_open(log->os, log->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (got == -ENOENT) return fb_fail(err, FB_E_NOTFOUND, "open log %s: no such file", log->path);
    if (got < 0) return fb_fail_os(err, (int)-got, "open log %s for appending", log->path);
    log->fd = (int)got;
    return FB_OK;
}

static fb_status open_or_create(fb_log_shared *log, uint64_t file_id, fb_error *err)
{
    fb_status status = open_for_writing(log, err);
    if (status != FB_E_NOTFOUND) return status;
    if ((status = create(log, file_id, err)) != FB_OK) return status;
    return open_for_writing(log, err);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------------- */

/* After damage in the middle the valid prefix ends early, and records that were acknowledged lie behind it. */
static int records_follow(const unsigned char *tail, size_t bytes, uint64_t file_id, uint64_t offset)
{
    fb_log_header header;
    for (size_t at = 8; at + FB_LOG_HEADER_BYTES <= bytes; at += 8) {
        if (!fb_log_begins_record(tail + at, 4)) continue;
        if (fb_log_record_check(&header, tail + at, bytes - at, FB_LOG_REGION_APPEND, FB_LOG_PAYLOAD_MAX, file_id, offset + at) ==
            FB_LOG_RECORD_OK) {
            return 1;
        }
    }
    return 0;
}

/* A half record at the end is cut off before the next one is written over it, so that no rest of it can follow the new end. */
static fb_status cut_tail(fb_log_shared *log, const fb_log_tail *tail, fb_error *err)
{
    int64_t got;
    log->end = tail->offset_bytes;
    if (tail->after_bytes == 0) return FB_OK;
    if (tail->after_bytes <= RECORD_BYTES_MAX) {
        got = fb_os_pread_full(log->os, log->fd, log->buffer, (size_t)tail->after_bytes, log->end);
        if (got < 0) return fb_fail_os(err, (int)-got, "read the end of log %s", log->path);
    }
    if (tail->after_bytes > RECORD_BYTES_MAX || records_follow(log->buffer, (size_t)tail->after_bytes, log->file_id, log->end)) {
        return fb_fail_at(err, log->end, "append to log %s: it is damaged here and %llu bytes follow, which are kept", log->path,
                          (unsigned long long)tail->after_bytes);
    }
    got = log->os->ftruncate(log->os->ctx, log->fd, log->end);
    if (got < 0) return fb_fail_os(err, (int)-got, "cut a half record off log %s", log->path);
    return FB_OK;
}

static fb_status read_to_end(fb_log_shared *log, fb_log_shared_each each, void *ctx, fb_error *err)
{
    fb_log_reader *reader;
    fb_log_info info;
    fb_log_record record;
    fb_log_tail tail;
    fb_status status = fb_log_reader_open(&reader, log->os, log->path, err);
    if (status != FB_OK) return status;
    status = fb_log_reader_info(reader, &info, err);
    if (status == FB_OK) log->file_id = info.file_id;
    while (status == FB_OK && (status = fb_log_reader_next(reader, &record, err)) == FB_OK) {
        log->sequence = record.sequence;
        if (each) status = each(ctx, &record, err);
    }
    if (status == FB_E_NOTFOUND) status = fb_log_reader_tail(reader, &tail, err);
    fb_log_reader_close(reader);
    return status == FB_OK ? cut_tail(log, &tail, err) : status;
}

fb_status fb_log_shared_open(fb_log_shared **out, const fb_os *os, const char *path, uint64_t file_id, fb_log_shared_each each,
                             void *ctx, fb_error *err)
{
    fb_status status;
    fb_log_shared *log;
    if (!out || !os || !path) return fb_fail(err, FB_E_USAGE, "open shared log: an argument is NULL");
    *out = NULL;
    if (strlen(path) + sizeof ".lock" > FB_OS_PATH_MAX) {
        return fb_fail(err, FB_E_LIMIT, "open log %.64s...: a path of more than %d bytes", path,
                       FB_OS_PATH_MAX - (int)sizeof ".lock");
    }
    log = fb_calloc(1, sizeof *log);
    if (!log) return fb_fail(err, FB_E_NOMEM, "open log %s: no memory for %zu bytes", path, sizeof *log);
    log->os = os;
    log->lock_fd = log->fd = -1;
    (void)snprintf(log->path, sizeof log->path, "%s", path);
    (void)snprintf(log->lock_path, sizeof log->lock_path, "%s.lock", path);
    (void)snprintf(log->new_path, sizeof log->new_path, "%s.new", path);
    log->buffer = fb_calloc(RECORD_BYTES_MAX, 1);
    if (!log->buffer) {
        status = fb_fail(err, FB_E_NOMEM, "open log %s: no memory for a buffer of %d bytes", path, RECORD_BYTES_MAX);
        goto done;
    }
    if ((status = take_lock(log, err)) != FB_OK) goto done;
    if ((status = open_or_create(log, file_id, err)) != FB_OK) goto done;
    if ((status = read_to_end(log, each, ctx, err)) != FB_OK) goto done;
    *out = log; /* the caller owns it from here */
    log = NULL;
done:
    fb_log_shared_close(log);
    return status;
}

/* ---- appending -------------------------------------------------------------------------------------------------------------- */

fb_status fb_log_shared_append(fb_log_shared *log, uint16_t type, const void *payload, uint32_t bytes, fb_error *err)
{
    fb_log_header header = {FB_LOG_REGION_APPEND, type, bytes, 0, 0};
    size_t record_bytes;
    int64_t got, now;
    if (!log || (!payload && bytes)) return fb_fail(err, FB_E_USAGE, "append to shared log: an argument is NULL");
    if (bytes > FB_LOG_PAYLOAD_MAX) {
        return fb_fail(err, FB_E_LIMIT, "append to log %s: %u bytes, at most %d are taken", log->path, bytes, FB_LOG_PAYLOAD_MAX);
    }
    now = log->os->realtime_ns(log->os->ctx);
    header.sequence = log->sequence + 1;
    header.time_ns = now < 0 ? 0 : (uint64_t)now;
    record_bytes = fb_log_record_encode(log->buffer, &header, payload, log->file_id, log->end);
    got = fb_os_pwrite_all(log->os, log->fd, log->buffer, record_bytes, log->end, NULL);
    if (got == 0) got = fb_os_fdatasync(log->os, log->fd);
    if (got < 0) {
        /* Left in the file it could be read now and be gone after a power cut, and then hide what the next writer put behind it. */
        (void)log->os->ftruncate(log->os->ctx, log->fd, log->end);
        return fb_fail_os(err, (int)-got, "append %zu bytes to log %s", record_bytes, log->path);
    }
    log->sequence++;
    log->end += record_bytes;
    return FB_OK;
}

uint64_t fb_log_shared_sequence(const fb_log_shared *log)
{
    return log->sequence;
}

/* ---- for readers ------------------------------------------------------------------------------------------------------------ */

static fb_status look_behind(const fb_os *os, int fd, const char *path, unsigned char *buffer, uint64_t offset, size_t bytes,
                             int *hidden, fb_error *err)
{
    fb_log_head head;
    int64_t got = fb_os_pread_full(os, fd, buffer, FB_LOG_HEAD_BYTES, 0);
    if (got < 0) return fb_fail_os(err, (int)-got, "read the head of log %s", path);
    if (got < FB_LOG_HEAD_BYTES || fb_log_head_decode(&head, buffer) != FB_LOG_HEAD_OK) {
        return fb_fail_at(err, 0, "read log %s: its head is damaged", path);
    }
    got = fb_os_pread_full(os, fd, buffer, bytes, offset);
    if (got < 0) return fb_fail_os(err, (int)-got, "read the end of log %s", path);
    *hidden = records_follow(buffer, (size_t)got, head.file_id, offset);
    return FB_OK;
}

fb_status fb_log_shared_hidden(const fb_os *os, const char *path, uint64_t offset_bytes, uint64_t after_bytes, int *hidden,
                               fb_error *err)
{
    unsigned char *buffer;
    int64_t fd;
    fb_status status;
    *hidden = after_bytes > RECORD_BYTES_MAX;
    if (after_bytes == 0 || *hidden) return FB_OK;
    buffer = fb_calloc(RECORD_BYTES_MAX, 1);
    if (!buffer) return fb_fail(err, FB_E_NOMEM, "read log %s: no memory for %d bytes", path, RECORD_BYTES_MAX);
    fd = fb_os_open(os, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0) {
        fb_free(buffer);
        return fb_fail_os(err, (int)-fd, "open log %s", path);
    }
    status = look_behind(os, (int)fd, path, buffer, offset_bytes, (size_t)after_bytes, hidden, err);
    (void)os->close(os->ctx, (int)fd);
    fb_free(buffer);
    return status;
}
