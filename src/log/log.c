/* The writer of a record log. Every byte goes out through a positioned write at an offset that this file alone decides. */
#include "log/log.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "log/layout.h"

/* Slots that one freeze may use up before it gives in. More would let one dead disk eat the space of later cases. */
enum { FREEZE_ATTEMPTS_MAX = 3 };
enum { BUFFER_BYTES = FB_LOG_HEADER_BYTES + FB_LOG_PAYLOAD_MAX };

_Static_assert((int)BUFFER_BYTES >= 2 * FB_LOG_FROZEN_BYTES, "freeze keeps what it wrote and what it reads back in one buffer");
_Static_assert((int)BUFFER_BYTES >= (int)FB_LOG_HEAD_BYTES, "create makes the head in the buffer");

struct fb_log {
    const fb_os *os;
    char *path;            /* for messages only */
    unsigned char *buffer; /* records are laid out here, so that no call takes memory */
    int64_t pid;           /* of the creator */
    int fd;                /* -1: not open */
    int sync_failed;
    uint64_t file_id;
    uint64_t end;      /* where the next record goes: the end of the last one that was written whole */
    uint64_t sequence; /* of the last record handed in, lost ones included */
    uint64_t pulse_sequence;
    uint64_t freezes;
    uint64_t lost;
    uint32_t pulse_slot; /* the next pulse goes here; the other slot holds the newest whole one */
    uint32_t slot_next;  /* slots before it are used or given up, and are not written again */
};

static uint64_t now_ns(const fb_os *os)
{
    int64_t ns = os->realtime_ns(os->ctx);
    return ns < 0 ? 0 : (uint64_t)ns;
}

/* The one gate of every call: NULL and forked children touch nothing. */
static fb_status refuse(const fb_log *log, const void *payload, uint32_t bytes, const char *what, fb_error *err)
{
    if (!log) return fb_fail(err, FB_E_USAGE, "%s: the log is NULL", what);
    if (!payload && bytes) return fb_fail(err, FB_E_USAGE, "%s of %s: %u bytes of a NULL payload", what, log->path, bytes);
    if (log->os->getpid(log->os->ctx) != log->pid) {
        return fb_fail(err, FB_E_FORKED, "%s of %s: this process was forked from its writer; nothing was touched", what, log->path);
    }
    return FB_OK;
}

static fb_status refuse_size(const fb_log *log, uint32_t bytes, uint32_t bytes_max, const char *what, fb_error *err)
{
    if (bytes <= bytes_max) return FB_OK;
    return fb_fail(err, FB_E_LIMIT, "%s of %s: %u bytes, at most %u are taken", what, log->path, bytes, bytes_max);
}

/* ---- create and close ------------------------------------------------------------------------------------------------------- */

/* All of it, then one sync: until create returns nothing was promised, and whatever part a crash leaves reads as an empty log. */
static int64_t write_first_bytes(fb_log *log)
{
    const fb_log_head head = {log->file_id, now_ns(log->os)};
    int64_t done = fb_os_set_aside(log->os, log->fd, 0, FB_LOG_APPEND_OFFSET);
    if (done < 0) return done;
    fb_log_head_encode(log->buffer, &head);
    done = fb_os_pwrite_all(log->os, log->fd, log->buffer, FB_LOG_HEAD_BYTES, 0, NULL);
    if (done < 0) return done;
    done = fb_os_fsync(log->os, log->fd);
    if (done < 0) return done;
    return fb_os_sync_parent(log->os, log->path);
}

static fb_status create_exclusively(fb_log *log, fb_error *err)
{
    const fb_os *os = log->os;
    int64_t done = fb_os_open(os, log->path, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (done == -EEXIST) {
        return fb_fail(err, FB_E_EXISTS, "create log %s: it exists already; a log has one writer, and a restart is a new attempt",
                       log->path);
    }
    if (done < 0) return fb_fail_os(err, (int)-done, "create log %s", log->path);
    log->fd = (int)done;
    done = write_first_bytes(log);
    if (done == 0) return FB_OK;
    /* Ours, since it did not exist a moment ago, and useless: left behind it would only keep a second try from succeeding. */
    (void)os->unlink(os->ctx, log->path);
    return fb_fail_os(err, (int)-done, "create log %s: set %d bytes aside", log->path, FB_LOG_APPEND_OFFSET);
}

static void release(fb_log *log)
{
    fb_free(log->buffer);
    fb_free(log->path);
    fb_free(log);
}

fb_status fb_log_create(fb_log **out, const fb_os *os, const char *path, uint64_t file_id, fb_error *err)
{
    fb_status status;
    fb_log *log;
    if (!out || !os || !path) return fb_fail(err, FB_E_USAGE, "create log: an argument is NULL");
    *out = NULL;
    log = fb_calloc(1, sizeof *log);
    if (!log) return fb_fail(err, FB_E_NOMEM, "create log %s: no memory for %zu bytes", path, sizeof *log);
    log->os = os;
    log->fd = -1;
    log->pid = os->getpid(os->ctx);
    log->file_id = file_id;
    log->end = FB_LOG_APPEND_OFFSET;
    log->path = fb_strdup(path);
    log->buffer = fb_calloc(BUFFER_BYTES, 1);
    if (!log->path || !log->buffer) {
        release(log);
        return fb_fail(err, FB_E_NOMEM, "create log %s: no memory for a buffer of %d bytes", path, BUFFER_BYTES);
    }
    status = create_exclusively(log, err);
    if (status == FB_OK) {
        *out = log; /* the caller owns it from here */
        return FB_OK;
    }
    if (log->fd >= 0) (void)os->close(os->ctx, log->fd);
    release(log);
    return status;
}

void fb_log_close(fb_log *log)
{
    if (!log) return;
    if (log->os->getpid(log->os->ctx) == log->pid) {
        /* Nobody waits for the outcome: what had to be durable was acknowledged before. */
        (void)fb_os_fdatasync(log->os, log->fd);
        (void)log->os->close(log->os->ctx, log->fd);
    }
    release(log);
}

/* ---- append ----------------------------------------------------------------------------------------------------------------- */

static fb_status sync_appended(fb_log *log, fb_error *err)
{
    int64_t done;
    if (log->sync_failed) {
        return fb_fail_os(err, EIO, "sync log %s: an earlier sync failed, so nothing more is promised to survive power loss",
                          log->path);
    }
    done = fb_os_fdatasync(log->os, log->fd);
    if (done == 0) return FB_OK;
    log->sync_failed = 1;
    return fb_fail_os(err, (int)-done, "sync log %s", log->path);
}

fb_status fb_log_append(fb_log *log, uint16_t type, const void *payload, uint32_t bytes, int sync, fb_error *err)
{
    fb_status status;
    fb_log_header header = {FB_LOG_REGION_APPEND, type, bytes, 0, 0};
    size_t record_bytes;
    int64_t done;
    if ((status = refuse(log, payload, bytes, "append", err)) != FB_OK) return status;
    if ((status = refuse_size(log, bytes, FB_LOG_PAYLOAD_MAX, "append", err)) != FB_OK) return status;
    header.sequence = ++log->sequence; /* also when the write fails: the gap tells the reader */
    header.time_ns = now_ns(log->os);
    record_bytes = fb_log_record_encode(log->buffer, &header, payload, log->file_id, log->end);
    done = fb_os_pwrite_all(log->os, log->fd, log->buffer, record_bytes, log->end, NULL);
    if (done < 0) {
        /* `end` stays: the next record overwrites what part of this one went out, so the valid prefix has no hole. */
        log->lost++;
        return fb_fail_os(err, (int)-done, "append %zu bytes to log %s: record %llu is lost", record_bytes, log->path,
                          (unsigned long long)log->sequence);
    }
    log->end += record_bytes;
    return sync ? sync_appended(log, err) : FB_OK;
}

fb_status fb_log_sync(fb_log *log, fb_error *err)
{
    fb_status status = refuse(log, NULL, 0, "sync", err);
    return status == FB_OK ? sync_appended(log, err) : status;
}

/* ---- pulse ------------------------------------------------------------------------------------------------------------------ */

fb_status fb_log_pulse(fb_log *log, const void *payload, uint32_t bytes, fb_error *err)
{
    fb_status status;
    fb_log_header header = {FB_LOG_REGION_PULSE, 0, bytes, 0, 0};
    uint64_t offset;
    size_t record_bytes;
    int64_t done;
    if ((status = refuse(log, payload, bytes, "pulse", err)) != FB_OK) return status;
    if ((status = refuse_size(log, bytes, FB_LOG_PULSE_PAYLOAD_MAX, "pulse", err)) != FB_OK) return status;
    header.sequence = ++log->pulse_sequence;
    header.time_ns = now_ns(log->os);
    offset = FB_LOG_PULSE_OFFSET + (uint64_t)log->pulse_slot * FB_LOG_PULSE_STRIDE_BYTES;
    record_bytes = fb_log_record_encode(log->buffer, &header, payload, log->file_id, offset);
    done = fb_os_pwrite_all(log->os, log->fd, log->buffer, record_bytes, offset, NULL);
    /* After a failure the slot stays the next one: it may be torn now, while the other holds the newest whole pulse. */
    if (done < 0) return fb_fail_os(err, (int)-done, "pulse of log %s", log->path);
    log->pulse_slot = (log->pulse_slot + 1) % FB_LOG_PULSE_SLOTS;
    return FB_OK;
}

/* ---- freeze ----------------------------------------------------------------------------------------------------------------- */

/* What the disk gave back must be the record, by the reader's own test, and the very bytes that were written. */
static fb_status read_back(const fb_log *log, size_t record_bytes, uint64_t offset, fb_error *err)
{
    unsigned char *copy = log->buffer + FB_LOG_FROZEN_BYTES;
    fb_log_header header;
    int64_t got = fb_os_pread_full(log->os, log->fd, copy, record_bytes, offset);
    int found;
    if (got < 0) return fb_fail_os(err, (int)-got, "read a frozen record of log %s back", log->path);
    found = fb_log_record_check(&header, copy, (size_t)got, FB_LOG_REGION_FROZEN, FB_LOG_FROZEN_PAYLOAD_MAX, log->file_id, offset);
    if (found != FB_LOG_RECORD_OK || memcmp(copy, log->buffer, record_bytes) != 0) {
        return fb_fail_at(err, offset, "freeze into log %s: other bytes were read back than were written", log->path);
    }
    return FB_OK;
}

/* The map in memory says that the slot is free; the file must say so too, or somebody else writes here. */
static fb_status expect_empty_slot(const fb_log *log, uint64_t offset, fb_error *err)
{
    unsigned char *copy = log->buffer + FB_LOG_FROZEN_BYTES;
    int64_t got = fb_os_pread_full(log->os, log->fd, copy, FB_LOG_FROZEN_BYTES, offset);
    if (got < 0) return fb_fail_os(err, (int)-got, "read a set-aside slot of log %s", log->path);
    if (got != FB_LOG_FROZEN_BYTES || !fb_log_all_zero(copy, FB_LOG_FROZEN_BYTES)) {
        return fb_fail_at(err, offset, "freeze into log %s: the slot should be empty and is not", log->path);
    }
    return FB_OK;
}

static fb_status freeze_into(fb_log *log, uint32_t slot, fb_log_header *header, const void *payload, fb_error *err)
{
    uint64_t offset = FB_LOG_FROZEN_OFFSET + (uint64_t)slot * FB_LOG_FROZEN_BYTES;
    fb_status status = expect_empty_slot(log, offset, err);
    size_t record_bytes;
    int64_t done;
    if (status != FB_OK) return status;
    record_bytes = fb_log_record_encode(log->buffer, header, payload, log->file_id, offset);
    done = fb_os_pwrite_all(log->os, log->fd, log->buffer, record_bytes, offset, NULL);
    if (done < 0) return fb_fail_os(err, (int)-done, "freeze %zu bytes into log %s", record_bytes, log->path);
#ifndef FB_BREAK_P3
    done = fb_os_fdatasync(log->os, log->fd);
    if (done < 0) {
        log->sync_failed = 1; /* the failure may have been that of an appended record, and is told only once */
        return fb_fail_os(err, (int)-done, "sync a frozen record of log %s", log->path);
    }
#endif
    return read_back(log, record_bytes, offset, err);
}

fb_status fb_log_freeze(fb_log *log, uint16_t type, const void *payload, uint32_t bytes, uint32_t *slot, fb_error *err)
{
    fb_status status;
    fb_log_header header = {FB_LOG_REGION_FROZEN, type, bytes, 0, 0};
    if ((status = refuse(log, payload, bytes, "freeze", err)) != FB_OK) return status;
    if ((status = refuse_size(log, bytes, FB_LOG_FROZEN_PAYLOAD_MAX, "freeze", err)) != FB_OK) return status;
    if (log->slot_next >= FB_LOG_FROZEN_SLOTS) {
        return fb_fail(err, FB_E_LIMIT, "freeze into log %s: all %d set-aside slots are used", log->path, FB_LOG_FROZEN_SLOTS);
    }
    header.sequence = ++log->freezes;
    header.time_ns = now_ns(log->os);
    for (int i = 0; i < FREEZE_ATTEMPTS_MAX && log->slot_next < FB_LOG_FROZEN_SLOTS; i++) {
        uint32_t tried = log->slot_next++; /* before the write: whatever happens, this slot is not written again */
        status = freeze_into(log, tried, &header, payload, err);
        if (status == FB_OK) {
            if (slot) *slot = tried;
            fb_error_clear(err);
            return FB_OK;
        }
    }
    return status;
}

/* ---- questions -------------------------------------------------------------------------------------------------------------- */

uint64_t fb_log_lost(const fb_log *log)
{
    return log ? log->lost : 0;
}

int fb_log_sync_failed(const fb_log *log)
{
    return log ? log->sync_failed : 0;
}

uint32_t fb_log_slots_free(const fb_log *log)
{
    return log ? FB_LOG_FROZEN_SLOTS - log->slot_next : 0;
}
