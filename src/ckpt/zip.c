/*
 * Order of work: the end of the archive (zip_end.c), the directory into memory and parsed where it stands, names sorted and
 * compared, then every local header in the order in which the members lie. Members follow each other without a gap: where one ends,
 * its data descriptor or the next local header begins, and the last ends at the directory. That leaves no room for a member that
 * the directory does not list, for two members that share bytes, or for another format in front.
 */
#include "ckpt/zip.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "ckpt/inflate.h"
#include "ckpt/order.h"
#include "ckpt/zip_end.h"
#include "ckpt/zip_entry.h"

enum {
    LOCAL_BYTES = 30,
    EXTRA_MAX = 65535,
    DESCRIPTOR_MAX = 24,
    WINDOW_BYTES = 65536,
    AHEAD = 4 /* members; when that many lie inside one window, reading all of it at once is cheaper */
};
static const uint64_t MEMBERS_MAX = 2000000;

struct fb_zip {
    fb_ckpt_range range;
    const char *path;
    fb_zip_end end;
    uint8_t *directory; /* names are kept in it */
    fb_zip_entry *entries;
    uint64_t count;
    uint32_t *by_name;
    uint32_t *by_place; /* only while opening */
    uint8_t *window;    /* only while opening: [window_at, window_at + window_bytes) of the archive */
    uint64_t window_at, window_bytes;
};

static fb_status load_directory(fb_zip *zip, fb_error *err)
{
    const fb_zip_end *end = &zip->end;
    uint64_t at = 0;
    fb_status status;
    if (end->members > MEMBERS_MAX) {
        return fb_fail(err, FB_E_LIMIT, "read zip archive %s: %llu members, at most %llu are taken", zip->path,
                       (unsigned long long)end->members, (unsigned long long)MEMBERS_MAX);
    }
    if (end->members > end->directory_bytes / FB_ZIP_CENTRAL_BYTES) {
        return fb_fail_at(err, zip->range.offset_bytes + end->directory_at,
                          "read zip archive %s: %llu members announced, the directory of %llu bytes is too small for them",
                          zip->path, (unsigned long long)end->members, (unsigned long long)end->directory_bytes);
    }
    zip->directory = fb_calloc((size_t)end->directory_bytes + 1, 1);
    zip->entries = fb_calloc((size_t)end->members + 1, sizeof *zip->entries);
    if (!zip->directory || !zip->entries) {
        return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory for a directory of %llu bytes", zip->path,
                       (unsigned long long)end->directory_bytes);
    }
    status = fb_ckpt_file_read(zip->range.file, zip->range.offset_bytes + end->directory_at, zip->directory,
                               (size_t)end->directory_bytes, err);
    while (status == FB_OK && zip->count < end->members) {
        uint64_t used = 0;
        status = fb_zip_entry_take(&zip->entries[zip->count], zip->path, zip->directory + at, end->directory_bytes - at,
                                   zip->range.offset_bytes + end->directory_at + at, &used, err);
        if (status == FB_OK) zip->count++;
        at += used;
    }
    if (status == FB_OK && at != end->directory_bytes) {
        return fb_fail_at(err, zip->range.offset_bytes + end->directory_at + at,
                          "read zip archive %s: %llu bytes follow the last of %llu directory entries", zip->path,
                          (unsigned long long)(end->directory_bytes - at), (unsigned long long)zip->count);
    }
    return status;
}

/* ---- all entries together ---------------------------------------------------------------------------------------------------- */

static int compare_names(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_zip *zip = ctx;
    return strcmp(zip->entries[a].member.name, zip->entries[b].member.name);
}

static int compare_places(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_zip *zip = ctx;
    uint64_t x = zip->entries[a].member.header_bytes_at, y = zip->entries[b].member.header_bytes_at;
    return x < y ? -1 : x > y;
}

static fb_status sort_members(fb_zip *zip, fb_error *err)
{
    zip->by_name = fb_calloc((size_t)zip->count + 1, sizeof *zip->by_name);
    zip->by_place = fb_calloc((size_t)zip->count + 1, sizeof *zip->by_place);
    if (!zip->by_name || !zip->by_place) {
        return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory to sort %llu members", zip->path,
                       (unsigned long long)zip->count);
    }
    for (uint64_t i = 0; i < zip->count; i++) zip->by_name[i] = zip->by_place[i] = (uint32_t)i;
    fb_ckpt_sort(zip->by_place, zip->count, compare_places, zip);
    fb_ckpt_sort(zip->by_name, zip->count, compare_names, zip);
    for (uint64_t i = 1; i < zip->count; i++) {
        if (compare_names(zip, zip->by_name[i - 1], zip->by_name[i]) == 0) {
            const fb_zip_member *m = &zip->entries[zip->by_name[i]].member;
            return fb_fail_at(err, zip->range.offset_bytes + m->header_bytes_at,
                              "read zip archive %s: two members have the name %.200s", zip->path, m->name);
        }
    }
    return FB_OK;
}

/* ---- local headers ----------------------------------------------------------------------------------------------------------- */

/* [at, at + need) of the archive, which lies before the directory. `ahead`: read on as far as the window reaches. */
static fb_status look(fb_zip *zip, uint64_t at, uint64_t need, int ahead, const uint8_t **data, fb_error *err)
{
    if (at < zip->window_at || at - zip->window_at > zip->window_bytes || zip->window_bytes - (at - zip->window_at) < need) {
        uint64_t left = zip->end.directory_at - at;
        uint64_t load = ahead && need < WINDOW_BYTES ? WINDOW_BYTES : need;
        fb_status status;
        if (load > left) load = left;
        zip->window_bytes = 0;
        status = fb_ckpt_file_read(zip->range.file, zip->range.offset_bytes + at, zip->window, (size_t)load, err);
        if (status != FB_OK) return status;
        zip->window_at = at;
        zip->window_bytes = load;
    }
    *data = zip->window + (at - zip->window_at);
    return FB_OK;
}

/* A data descriptor, with or without its signature, in the old or the zip64 form, that repeats what the directory says. */
static int descriptor_fits(const uint8_t *p, uint64_t bytes, const fb_zip_member *m)
{
    if (bytes == 16 || bytes == 24) {
        if (memcmp(p, "PK\7\10", 4) != 0) return 0;
        p += 4;
        bytes -= 4;
    }
    if (fb_zip_u32(p) != m->crc32) return 0;
    if (bytes == 12) return fb_zip_u32(p + 4) == m->stored_bytes && fb_zip_u32(p + 8) == m->bytes;
    return bytes == 20 && fb_zip_u64(p + 4) == m->stored_bytes && fb_zip_u64(p + 12) == m->bytes;
}

/* Between the end of a member's data and what comes next: nothing, or its data descriptor. */
static fb_status check_gap(fb_zip *zip, const fb_zip_entry *before, uint64_t from, const uint8_t *p, uint64_t bytes, fb_error *err)
{
    int due = before && (before->flags & FB_ZIP_FLAG_DESCRIPTOR);
    if (!due && bytes == 0) return FB_OK;
    if (due && (bytes == 12 || bytes == 16 || bytes == 20 || bytes == 24) && descriptor_fits(p, bytes, &before->member))
        return FB_OK;
    if (!before) {
        return fb_fail_at(err, zip->range.offset_bytes, "read zip archive %s: %llu bytes lie in front of the first member",
                          zip->path, (unsigned long long)bytes);
    }
    return fb_fail_at(err, zip->range.offset_bytes + from,
                      "read zip archive %s: member %.200s is followed by %llu bytes that are not its data descriptor", zip->path,
                      before->member.name, (unsigned long long)bytes);
}

static fb_status disagree(const fb_zip *zip, const fb_zip_entry *e, const char *about, fb_error *err)
{
    return fb_fail_at(err, zip->range.offset_bytes + e->member.header_bytes_at,
                      "read zip archive %s: member %.200s has another %s in its local header than in the directory", zip->path,
                      e->member.name, about);
}

/* Sizes in a local header: those of the directory; with a data descriptor also zeros (torch) or all ones. p: whole local header. */
static int local_sizes_fit(const fb_zip_entry *e, const uint8_t *p)
{
    uint64_t stored = fb_zip_u32(p + 18), bytes = fb_zip_u32(p + 22);
    uint64_t *values[] = {&bytes, &stored};
    int other_name;
    if (e->flags & FB_ZIP_FLAG_DESCRIPTOR) {
        return (stored == 0 || stored == FB_ZIP_FULL_32 || stored == e->member.stored_bytes) &&
               (bytes == 0 || bytes == FB_ZIP_FULL_32 || bytes == e->member.bytes);
    }
    if (stored == FB_ZIP_FULL_32 || bytes == FB_ZIP_FULL_32) {
        if (!fb_zip_extra_take(p + LOCAL_BYTES + e->name_bytes, fb_zip_u16(p + 28), values, 2, &other_name)) return 0;
    }
    return stored == e->member.stored_bytes && bytes == e->member.bytes;
}

static fb_status check_local(fb_zip *zip, fb_zip_entry *e, const uint8_t *p, fb_error *err)
{
    uint32_t crc = fb_zip_u32(p + 14);
    uint64_t room = zip->end.directory_at - e->member.header_bytes_at,
             head = LOCAL_BYTES + (uint64_t)e->name_bytes + fb_zip_u16(p + 28);
    if (((fb_zip_u16(p + 6) ^ e->flags) & ~FB_ZIP_FLAG_LEVEL) != 0) return disagree(zip, e, "set of flags", err);
    if (fb_zip_u16(p + 8) != e->method) return disagree(zip, e, "method", err);
    if (crc != e->member.crc32 && !(crc == 0 && (e->flags & FB_ZIP_FLAG_DESCRIPTOR))) return disagree(zip, e, "checksum", err);
    if (!local_sizes_fit(e, p)) return disagree(zip, e, "size", err);
    if (head > room || e->member.stored_bytes > room - head) {
        return fb_fail_at(err, zip->range.offset_bytes + e->member.header_bytes_at,
                          "read zip archive %s: member %.200s of %llu bytes reaches into the directory", zip->path, e->member.name,
                          (unsigned long long)e->member.stored_bytes);
    }
    e->member.data_at = e->member.header_bytes_at + head;
    return FB_OK;
}

/* Member number i in the order of places; the one before ended at `from`, its data descriptor not counted. */
static fb_status check_member(fb_zip *zip, uint64_t i, uint64_t from, fb_error *err)
{
    fb_zip_entry *e = &zip->entries[zip->by_place[i]];
    const fb_zip_entry *before = i ? &zip->entries[zip->by_place[i - 1]] : NULL;
    uint64_t at = e->member.header_bytes_at, last = i + AHEAD < zip->count ? i + AHEAD : zip->count - 1;
    int ahead = zip->entries[zip->by_place[last]].member.header_bytes_at - from < WINDOW_BYTES;
    uint64_t gap = at - from, need = LOCAL_BYTES + (uint64_t)e->name_bytes;
    const uint8_t *p;
    fb_status status;
    if (at < from) {
        return fb_fail_at(err, zip->range.offset_bytes + at, "read zip archive %s: member %.200s begins inside another one",
                          zip->path, e->member.name);
    }
    if (at > zip->end.directory_at || need > zip->end.directory_at - at) {
        return fb_fail_at(err, zip->range.offset_bytes + from,
                          "read zip archive %s: member %.200s is said to begin at %llu, in the directory", zip->path,
                          e->member.name, (unsigned long long)at);
    }
    if (gap > DESCRIPTOR_MAX) return check_gap(zip, before, from, NULL, gap, err);
    if ((status = look(zip, from, gap + need, ahead, &p, err)) != FB_OK) return status;
    if ((status = check_gap(zip, before, from, p, gap, err)) != FB_OK) return status;
    p += gap;
    if (memcmp(p, "PK\3\4", 4) != 0) {
        return fb_fail_at(err, zip->range.offset_bytes + at,
                          "read zip archive %s: member %.200s has no local header where it should begin", zip->path,
                          e->member.name);
    }
    if (fb_zip_u16(p + 26) != e->name_bytes || memcmp(p + LOCAL_BYTES, e->member.name, e->name_bytes) != 0)
        return disagree(zip, e, "name", err);
    if (fb_zip_u16(p + 28) > zip->end.directory_at - at - need) return disagree(zip, e, "end", err);
    if ((status = look(zip, at, need + fb_zip_u16(p + 28), 0, &p, err)) != FB_OK) return status;
    return check_local(zip, e, p, err);
}

static fb_status check_members(fb_zip *zip, fb_error *err)
{
    uint64_t from = 0;
    const fb_zip_entry *last = NULL;
    const uint8_t *p = NULL;
    fb_status status;
    /* Not zeroed: for the archives of one tensor that distributed checkpoints are made of, that took longer than their members. */
    zip->window = fb_realloc(NULL, WINDOW_BYTES + DESCRIPTOR_MAX + LOCAL_BYTES + FB_ZIP_NAME_MAX + EXTRA_MAX);
    if (!zip->window) return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory for a buffer", zip->path);
    for (uint64_t i = 0; i < zip->count; i++) {
        if ((status = check_member(zip, i, from, err)) != FB_OK) return status;
        last = &zip->entries[zip->by_place[i]];
        from = last->member.data_at + last->member.stored_bytes;
    }
    if (zip->end.directory_at - from <= DESCRIPTOR_MAX) {
        if ((status = look(zip, from, zip->end.directory_at - from, 0, &p, err)) != FB_OK) return status;
    }
    return check_gap(zip, last, from, p, zip->end.directory_at - from, err);
}

/* ---- the archive ------------------------------------------------------------------------------------------------------------- */

void fb_zip_close(fb_zip *zip)
{
    if (!zip) return;
    fb_free(zip->directory);
    fb_free(zip->entries);
    fb_free(zip->by_name);
    fb_free(zip->by_place);
    fb_free(zip->window);
    fb_free(zip);
}

fb_status fb_zip_open(fb_zip **out, const fb_ckpt_range *range, fb_error *err)
{
    fb_zip *zip = fb_calloc(1, sizeof *zip);
    fb_status status;
    *out = NULL;
    if (!zip) return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory", range->file->path);
    zip->range = *range;
    zip->path = range->file->path;
    status = fb_zip_end_find(&zip->end, range, err);
    if (status == FB_OK) status = load_directory(zip, err);
    if (status == FB_OK) status = sort_members(zip, err);
    if (status == FB_OK) status = check_members(zip, err);
    if (status != FB_OK) {
        fb_zip_close(zip);
        return status;
    }
    /* From here on places are those in the file, which may hold more than this archive. */
    for (uint64_t i = 0; i < zip->count; i++) {
        zip->entries[i].member.header_bytes_at += range->offset_bytes;
        zip->entries[i].member.data_at += range->offset_bytes;
    }
    fb_free(zip->by_place);
    fb_free(zip->window);
    zip->by_place = NULL;
    zip->window = NULL;
    *out = zip;
    return FB_OK;
}

uint64_t fb_zip_count(const fb_zip *zip)
{
    return zip->count;
}

const fb_zip_member *fb_zip_member_at(const fb_zip *zip, uint64_t i)
{
    return &zip->entries[i].member;
}

const fb_zip_member *fb_zip_find(const fb_zip *zip, const char *name)
{
    uint64_t low = 0, high = zip->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const fb_zip_member *m = &zip->entries[zip->by_name[middle]].member;
        int order = strcmp(name, m->name);
        if (order == 0) return m;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

/* ---- small members ----------------------------------------------------------------------------------------------------------- */

/* A declared size proves nothing about a deflated member, so memory grows with what really comes out. *data stays the caller's. */
static fb_status load_deflated(fb_zip *zip, const fb_zip_member *m, uint8_t **data, fb_error *err)
{
    uint64_t room = 0, used = 0;
    fb_inflate *stream;
    size_t got = 1;
    fb_status status = fb_inflate_open(&stream, zip->range.file, m->data_at, m->stored_bytes, m->bytes, err);
    while (status == FB_OK && got > 0) {
        if (used == room) {
            uint64_t more = room ? 2 * room : 65536;
            uint8_t *grown;
            if (more > m->bytes) more = m->bytes;
            if (more == room) more++; /* everything is out; the stream still has to say that it is at its end */
            grown = fb_realloc(*data, (size_t)more + 1);
            if (!grown) {
                status = fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory for %llu bytes of member %.200s", zip->path,
                                 (unsigned long long)more, m->name);
                break;
            }
            *data = grown;
            room = more;
        }
        status = fb_inflate_read(stream, *data + used, (size_t)(room - used), &got, err);
        if (status == FB_OK) used += got;
    }
    fb_inflate_close(stream);
    return status;
}

static fb_status load_stored(fb_zip *zip, const fb_zip_member *m, uint8_t **data, fb_error *err)
{
    *data = fb_calloc((size_t)m->bytes + 1, 1);
    if (!*data) {
        return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory for %llu bytes of member %.200s", zip->path,
                       (unsigned long long)m->bytes, m->name);
    }
    return fb_ckpt_file_read(zip->range.file, m->data_at, *data, (size_t)m->bytes, err);
}

/* torch writes 0 for the checksum where it was told to make none, so 0 says nothing. */
static int crc_fits(const fb_zip_member *m, const uint8_t *data)
{
    return m->crc32 == 0 || crc32_z(0, data, (size_t)m->bytes) == m->crc32;
}

fb_status fb_zip_load(fb_zip *zip, const fb_zip_member *member, uint64_t bytes_max, uint8_t **data, fb_error *err)
{
    fb_status status;
    *data = NULL;
    if (member->bytes > bytes_max || member->bytes >= SIZE_MAX) {
        return fb_fail(err, FB_E_LIMIT, "read zip archive %s: member %.200s has %llu bytes, at most %llu are taken", zip->path,
                       member->name, (unsigned long long)member->bytes, (unsigned long long)bytes_max);
    }
    status = member->encoding == FB_CKPT_DEFLATED ? load_deflated(zip, member, data, err) : load_stored(zip, member, data, err);
    if (status == FB_OK && !crc_fits(member, *data)) {
        status = fb_fail_at(err, member->data_at, "read zip archive %s: the bytes of member %.200s do not have its checksum",
                            zip->path, member->name);
    }
    if (status == FB_OK && *data) {
        (*data)[member->bytes] = '\0';
        return FB_OK;
    }
    fb_free(*data);
    *data = NULL;
    return status;
}
