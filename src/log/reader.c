/* The reader of a record log. The file is hostile input: lengths are bounded before use, and memory is taken once, at open. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "log/layout.h"
#include "log/log.h"

enum { RECORD_MAX_BYTES = FB_LOG_HEADER_BYTES + FB_LOG_PAYLOAD_MAX, WINDOW_BYTES = 2 * 65536 + 64 };
_Static_assert(WINDOW_BYTES >= RECORD_MAX_BYTES, "the longest record fits the window");
_Static_assert(RECORD_MAX_BYTES % 8 == 0, "records keep payloads aligned");

struct fb_log_reader {
    const fb_os *os;
    char *path;
    int fd;
    fb_log_head head;
    /* A window over the append area: `filled` bytes of the file from `window_offset` on, of which `used` were given out. */
    unsigned char *window;
    uint64_t window_offset;
    size_t filled, used;
    uint64_t sequence; /* of the record given last; 0 before the first */
    uint64_t records;
    unsigned char *slot;  /* FB_LOG_FROZEN_BYTES, for frozen */
    unsigned char *pulse; /* all pulse slots, FB_LOG_PULSE_BYTES each */
};

void fb_log_reader_close(fb_log_reader *reader)
{
    if (!reader) return;
    if (reader->fd >= 0) (void)reader->os->close(reader->os->ctx, reader->fd);
    fb_free(reader->window);
    fb_free(reader->slot);
    fb_free(reader->pulse);
    fb_free(reader->path);
    fb_free(reader);
}

static fb_status take_memory(fb_log_reader *reader, const char *path, fb_error *err)
{
    reader->path = fb_strdup(path);
    reader->window = fb_calloc(WINDOW_BYTES, 1);
    reader->slot = fb_calloc(FB_LOG_FROZEN_BYTES, 1);
    reader->pulse = fb_calloc(FB_LOG_PULSE_SLOTS, FB_LOG_PULSE_BYTES);
    if (reader->path && reader->window && reader->slot && reader->pulse) return FB_OK;
    return fb_fail(err, FB_E_NOMEM, "open log %s: no memory for a window of %d bytes", path, WINDOW_BYTES);
}

static fb_status read_head(fb_log_reader *reader, fb_error *err)
{
    const char *path = reader->path;
    int64_t got = fb_os_pread_full(reader->os, reader->fd, reader->window, FB_LOG_HEAD_BYTES, 0);
    if (got < 0) return fb_fail_os(err, (int)-got, "read the head of log %s", path);
    if (got < FB_LOG_HEAD_BYTES) {
        return fb_fail_at(err, (uint64_t)got, "open log %s: it ends inside its head, so its creation was never finished", path);
    }
    switch (fb_log_head_decode(&reader->head, reader->window)) {
    case FB_LOG_HEAD_OK: return FB_OK;
    case FB_LOG_HEAD_NONE: return fb_fail_at(err, 0, "open log %s: its head is empty, so its creation was never finished", path);
    case FB_LOG_HEAD_FOREIGN: return fb_fail_at(err, 0, "open log %s: this is no record log", path);
    case FB_LOG_HEAD_LATER:
        return fb_fail(err, FB_E_UNSUPPORTED, "open log %s: written by a later version of firstbad; this one reads version %d",
                       path, FB_LOG_VERSION);
    default: return fb_fail_at(err, 0, "open log %s: its head is damaged", path);
    }
}

static fb_status open_file(fb_log_reader *reader, fb_error *err)
{
    fb_os_info info;
    /* Not blocking: the name may be that of a pipe. */
    int64_t got = fb_os_open(reader->os, reader->path, O_RDONLY | O_NONBLOCK, 0);
    if (got == -ENOENT) return fb_fail(err, FB_E_NOTFOUND, "open log %s: no such file", reader->path);
    if (got < 0) return fb_fail_os(err, (int)-got, "open log %s", reader->path);
    reader->fd = (int)got;
    got = reader->os->fstat(reader->os->ctx, reader->fd, &info);
    if (got < 0) return fb_fail_os(err, (int)-got, "open log %s: ask for its kind", reader->path);
    if (info.kind != FB_OS_FILE) return fb_fail_at(err, 0, "open log %s: this is no regular file", reader->path);
    return FB_OK;
}

fb_status fb_log_reader_open(fb_log_reader **out, const fb_os *os, const char *path, fb_error *err)
{
    fb_status status;
    fb_log_reader *reader;
    if (!out || !os || !path) return fb_fail(err, FB_E_USAGE, "open log: an argument is NULL");
    *out = NULL;
    reader = fb_calloc(1, sizeof *reader);
    if (!reader) return fb_fail(err, FB_E_NOMEM, "open log %s: no memory for %zu bytes", path, sizeof *reader);
    reader->os = os;
    reader->fd = -1;
    reader->window_offset = FB_LOG_APPEND_OFFSET;
    if ((status = take_memory(reader, path, err)) != FB_OK) goto done;
    if ((status = open_file(reader, err)) != FB_OK) goto done;
    if ((status = read_head(reader, err)) != FB_OK) goto done;
    *out = reader; /* the caller owns it from here */
    reader = NULL;
done:
    fb_log_reader_close(reader);
    return status;
}

fb_status fb_log_reader_info(const fb_log_reader *reader, fb_log_info *info, fb_error *err)
{
    if (!reader || !info) return fb_fail(err, FB_E_USAGE, "describe log: an argument is NULL");
    info->file_id = reader->head.file_id;
    info->created_ns = reader->head.created_ns;
    info->frozen_slots = FB_LOG_FROZEN_SLOTS;
    info->reserved = 0;
    return FB_OK;
}

static void fill_record(fb_log_record *record, const fb_log_header *header, uint64_t offset, const unsigned char *at)
{
    record->type = header->type;
    record->reserved = 0;
    record->bytes = header->bytes;
    record->sequence = header->sequence;
    record->time_ns = header->time_ns;
    record->offset_bytes = offset;
    record->payload = at + FB_LOG_HEADER_BYTES;
}

/* Look at the place of the next record. A number later than the last one is part of being valid: records never repeat. */
static int check_next(const fb_log_reader *reader, fb_log_header *header)
{
    int found = fb_log_record_check(header, reader->window + reader->used, reader->filled - reader->used, FB_LOG_REGION_APPEND,
                                    FB_LOG_PAYLOAD_MAX, reader->head.file_id, reader->window_offset + reader->used);
    if (found == FB_LOG_RECORD_OK && header->sequence <= reader->sequence) return FB_LOG_RECORD_BAD;
    return found;
}

/* Read the file anew from the place of the next record on: the window was used up, or the writer has written meanwhile. */
static fb_status refill(fb_log_reader *reader, fb_error *err)
{
    uint64_t offset = reader->window_offset + reader->used;
    int64_t got = fb_os_pread_full(reader->os, reader->fd, reader->window, WINDOW_BYTES, offset);
    reader->window_offset = offset;
    reader->used = 0;
    reader->filled = got < 0 ? 0 : (size_t)got;
    if (got < 0) return fb_fail_os(err, (int)-got, "read log %s at offset %llu", reader->path, (unsigned long long)offset);
    return FB_OK;
}

fb_status fb_log_reader_next(fb_log_reader *reader, fb_log_record *record, fb_error *err)
{
    fb_log_header header;
    int found;
    if (!reader || !record) return fb_fail(err, FB_E_USAGE, "read log: an argument is NULL");
    found = check_next(reader, &header);
    if (found != FB_LOG_RECORD_OK) {
        fb_status status = refill(reader, err);
        if (status != FB_OK) return status;
        found = check_next(reader, &header);
    }
    if (found != FB_LOG_RECORD_OK) return FB_E_NOTFOUND;
    fill_record(record, &header, reader->window_offset + reader->used, reader->window + reader->used);
    reader->used += fb_log_record_bytes(header.bytes);
    reader->sequence = header.sequence;
    reader->records++;
    return FB_OK;
}

fb_status fb_log_reader_frozen(fb_log_reader *reader, uint32_t index, fb_log_record *record, fb_error *err)
{
    fb_log_header header;
    uint64_t offset = FB_LOG_FROZEN_OFFSET + (uint64_t)index * FB_LOG_FROZEN_BYTES;
    int64_t got;
    int found;
    if (!reader || !record) return fb_fail(err, FB_E_USAGE, "read a frozen record: an argument is NULL");
    if (index >= FB_LOG_FROZEN_SLOTS) {
        return fb_fail(err, FB_E_USAGE, "read frozen record %u: a log has %d", index, FB_LOG_FROZEN_SLOTS);
    }
    got = fb_os_pread_full(reader->os, reader->fd, reader->slot, FB_LOG_FROZEN_BYTES, offset);
    if (got < 0) return fb_fail_os(err, (int)-got, "read slot %u of log %s", index, reader->path);
    found = fb_log_record_check(&header, reader->slot, (size_t)got, FB_LOG_REGION_FROZEN, FB_LOG_FROZEN_PAYLOAD_MAX,
                                reader->head.file_id, offset);
    if (found == FB_LOG_RECORD_OK) {
        fill_record(record, &header, offset, reader->slot);
        return FB_OK;
    }
    if (got == FB_LOG_FROZEN_BYTES && fb_log_all_zero(reader->slot, FB_LOG_FROZEN_BYTES)) {
        return fb_fail(err, FB_E_NOTFOUND, "read slot %u of log %s: it is empty", index, reader->path);
    }
    return fb_fail_at(err, offset, "read slot %u of log %s: neither empty nor a record", index, reader->path);
}

fb_status fb_log_reader_pulse(fb_log_reader *reader, fb_log_record *record, fb_error *err)
{
    fb_status status = FB_E_NOTFOUND;
    uint64_t newest = 0;
    if (!reader || !record) return fb_fail(err, FB_E_USAGE, "read the pulse: an argument is NULL");
    for (uint32_t i = 0; i < FB_LOG_PULSE_SLOTS; i++) {
        fb_log_header header;
        uint64_t offset = FB_LOG_PULSE_OFFSET + (uint64_t)i * FB_LOG_PULSE_STRIDE_BYTES;
        unsigned char *at = reader->pulse + (size_t)i * FB_LOG_PULSE_BYTES;
        int64_t got = fb_os_pread_full(reader->os, reader->fd, at, FB_LOG_PULSE_BYTES, offset);
        int found;
        if (got < 0) return fb_fail_os(err, (int)-got, "read the pulse of log %s", reader->path);
        found = fb_log_record_check(&header, at, (size_t)got, FB_LOG_REGION_PULSE, FB_LOG_PULSE_PAYLOAD_MAX, reader->head.file_id,
                                    offset);
        if (found != FB_LOG_RECORD_OK || header.sequence <= newest) continue;
        newest = header.sequence;
        fill_record(record, &header, offset, at);
        status = FB_OK;
    }
    if (status == FB_OK) return FB_OK;
    return fb_fail(err, status, "read the pulse of log %s: none was written, or none is whole", reader->path);
}

fb_status fb_log_reader_tail(fb_log_reader *reader, fb_log_tail *tail, fb_error *err)
{
    fb_os_info info;
    uint64_t end;
    size_t rest;
    int64_t got;
    if (!reader || !tail) return fb_fail(err, FB_E_USAGE, "describe the end of a log: an argument is NULL");
    got = reader->os->fstat(reader->os->ctx, reader->fd, &info);
    if (got < 0) return fb_fail_os(err, (int)-got, "ask for the size of log %s", reader->path);
    end = reader->window_offset + reader->used;
    rest = reader->filled - reader->used;
    memset(tail, 0, sizeof *tail);
    tail->offset_bytes = end;
    tail->after_bytes = info.size_bytes > end ? info.size_bytes - end : 0;
    tail->records = reader->records;
    tail->lost = reader->sequence - reader->records;
    if (tail->after_bytes == 0) tail->kind = FB_LOG_TAIL_CLEAN;
    else if (fb_log_begins_record(reader->window + reader->used, rest)) tail->kind = FB_LOG_TAIL_TORN;
    else tail->kind = FB_LOG_TAIL_GARBAGE;
    return FB_OK;
}
