#include "ckpt/zip_end.h"

#include <string.h>

#include "base/alloc.h"

enum { END_BYTES = 22, COMMENT_MAX = 65535, LOCATOR_BYTES = 20, END64_BYTES = 56, TAIL_MAX = END_BYTES + COMMENT_MAX };

uint16_t fb_zip_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

uint32_t fb_zip_u32(const uint8_t *p)
{
    return (uint32_t)fb_zip_u16(p) | (uint32_t)fb_zip_u16(p + 2) << 16;
}

uint64_t fb_zip_u64(const uint8_t *p)
{
    return (uint64_t)fb_zip_u32(p) | (uint64_t)fb_zip_u32(p + 4) << 32;
}

/* ---- the end record --------------------------------------------------------------------------------------------------------- */

/* Place of the next "PK\5\6" in tail[from ..) with a whole record behind it, or bytes. */
static size_t next_end(const uint8_t *tail, size_t bytes, size_t from)
{
    while (from + END_BYTES <= bytes) {
        const uint8_t *p = memchr(tail + from, 'P', bytes - END_BYTES + 1 - from);
        if (!p) break;
        from = (size_t)(p - tail);
        if (memcmp(p, "PK\5\6", 4) == 0) return from;
        from++;
    }
    return bytes;
}

/*
 * The one end record whose comment ends with the archive. A second one that fits, or any later signature inside the comment, is
 * what another loader would take; an earlier signature that does not fit is data, in which any bytes may occur.
 */
static fb_status choose_end(const fb_ckpt_range *range, const uint8_t *tail, size_t bytes, size_t *chosen, fb_error *err)
{
    const char *path = range->file->path;
    uint64_t tail_at = range->offset_bytes + (range->bytes - bytes);
    int found = 0;
    for (size_t at = next_end(tail, bytes, 0); at < bytes; at = next_end(tail, bytes, at + 1)) {
        int fits = fb_zip_u16(tail + at + 20) == bytes - at - END_BYTES;
        if (found) {
            return fb_fail_at(err, tail_at + at, "read zip archive %s: two end records, of which loaders could take either", path);
        }
        if (!fits) continue;
        found = 1;
        *chosen = at;
    }
    if (found) return FB_OK;
    return fb_fail_at(err, range->offset_bytes + range->bytes,
                      "read zip archive %s: no end record, or bytes after its comment: the file is incomplete or was added to",
                      path);
}

/* ---- zip64 ------------------------------------------------------------------------------------------------------------------ */

static fb_status take_end64(fb_zip_end *end, const fb_ckpt_range *range, uint64_t end_at, const uint8_t *record, fb_error *err)
{
    const char *path = range->file->path;
    uint8_t wide[END64_BYTES];
    uint64_t at = end_at - LOCATOR_BYTES - END64_BYTES;
    uint64_t members, size, begin;
    uint8_t locator[LOCATOR_BYTES];
    fb_status status = fb_ckpt_file_read(range->file, range->offset_bytes + end_at - LOCATOR_BYTES, locator, sizeof locator, err);
    if (status == FB_OK) status = fb_ckpt_file_read(range->file, range->offset_bytes + at, wide, sizeof wide, err);
    if (status != FB_OK) return status;
    if (fb_zip_u64(locator + 8) != at || memcmp(wide, "PK\6\6", 4) != 0 || fb_zip_u64(wide + 4) != END64_BYTES - 12) {
        return fb_fail_at(err, range->offset_bytes + at,
                          "read zip archive %s: the zip64 locator does not lead to a zip64 end record", path);
    }
    if (fb_zip_u32(locator + 4) != 0 || fb_zip_u32(locator + 16) > 1 || fb_zip_u32(wide + 16) != 0 || fb_zip_u32(wide + 20) != 0) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read zip archive %s: it is spread over several disks", path);
    }
    members = fb_zip_u64(wide + 32);
    size = fb_zip_u64(wide + 40);
    begin = fb_zip_u64(wide + 48);
    if (fb_zip_u64(wide + 24) != members || (fb_zip_u16(record + 10) != FB_ZIP_FULL_16 && fb_zip_u16(record + 10) != members) ||
        (fb_zip_u32(record + 12) != FB_ZIP_FULL_32 && fb_zip_u32(record + 12) != size) ||
        (fb_zip_u32(record + 16) != FB_ZIP_FULL_32 && fb_zip_u32(record + 16) != begin)) {
        return fb_fail_at(err, range->offset_bytes + end_at, "read zip archive %s: its two end records disagree", path);
    }
    end->members = members;
    end->directory_bytes = size;
    end->directory_at = begin;
    return FB_OK;
}

static fb_status has_locator(const fb_ckpt_range *range, uint64_t end_at, int *there, fb_error *err)
{
    uint8_t mark[4];
    fb_status status;
    *there = 0;
    if (end_at < LOCATOR_BYTES + END64_BYTES) return FB_OK;
    status = fb_ckpt_file_read(range->file, range->offset_bytes + end_at - LOCATOR_BYTES, mark, sizeof mark, err);
    *there = status == FB_OK && memcmp(mark, "PK\6\7", 4) == 0;
    return status;
}

/* ---- together --------------------------------------------------------------------------------------------------------------- */

static fb_status take_end(fb_zip_end *end, const fb_ckpt_range *range, uint64_t end_at, const uint8_t *record, fb_error *err)
{
    const char *path = range->file->path;
    uint64_t directory_end = end_at;
    fb_status status;
    int wide;
    if (fb_zip_u16(record + 4) != 0 || fb_zip_u16(record + 6) != 0) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read zip archive %s: it is spread over several disks", path);
    }
    if (fb_zip_u16(record + 8) != fb_zip_u16(record + 10)) {
        return fb_fail_at(err, range->offset_bytes + end_at,
                          "read zip archive %s: %u members on this disk, %u on all of the one disk", path,
                          (unsigned)fb_zip_u16(record + 8), (unsigned)fb_zip_u16(record + 10));
    }
    end->members = fb_zip_u16(record + 10);
    end->directory_bytes = fb_zip_u32(record + 12);
    end->directory_at = fb_zip_u32(record + 16);
    if ((status = has_locator(range, end_at, &wide, err)) != FB_OK) return status;
    if (wide) {
        if ((status = take_end64(end, range, end_at, record, err)) != FB_OK) return status;
        directory_end = end_at - LOCATOR_BYTES - END64_BYTES;
    } else if (end->directory_bytes == FB_ZIP_FULL_32 || end->directory_at == FB_ZIP_FULL_32) {
        return fb_fail_at(err, range->offset_bytes + end_at,
                          "read zip archive %s: the end record refers to a zip64 one, which is missing", path);
    }
    /* Loaders tolerate bytes before an archive by taking the directory's end as the truth instead of its offset. One truth only: */
    if (end->directory_at > directory_end || end->directory_bytes != directory_end - end->directory_at) {
        return fb_fail_at(
            err, range->offset_bytes + end_at,
            "read zip archive %s: a directory of %llu bytes at %llu does not end at the end record (%llu): bytes were put "
            "in front, cut out or added",
            path, (unsigned long long)end->directory_bytes, (unsigned long long)end->directory_at,
            (unsigned long long)directory_end);
    }
    return FB_OK;
}

fb_status fb_zip_end_find(fb_zip_end *end, const fb_ckpt_range *range, fb_error *err)
{
    size_t bytes = range->bytes < TAIL_MAX ? (size_t)range->bytes : TAIL_MAX;
    size_t at = 0;
    uint8_t *tail = fb_calloc(bytes + 1, 1);
    fb_status status;
    memset(end, 0, sizeof *end);
    if (!tail) return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory for %zu bytes", range->file->path, bytes);
    status = fb_ckpt_file_read(range->file, range->offset_bytes + (range->bytes - bytes), tail, bytes, err);
    if (status == FB_OK) status = choose_end(range, tail, bytes, &at, err);
    if (status == FB_OK) status = take_end(end, range, range->bytes - bytes + at, tail + at, err);
    fb_free(tail);
    return status;
}
