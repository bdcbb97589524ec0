#include "ckpt/zip_entry.h"

#include <string.h>

#include "ckpt/zip_end.h"

enum {
    EXTRA_ZIP64 = 0x0001,
    EXTRA_OTHER_NAME = 0x7075 /* Info-ZIP's second name, in Unicode: some loaders use it, some do not */
};
enum {
    FLAG_ENCRYPTED = 1 << 0,
    FLAG_PATCH = 1 << 5,
    FLAG_STRONG = 1 << 6,
    FLAG_MASKED = 1 << 13,
    FLAGS_REFUSED = FLAG_ENCRYPTED | FLAG_PATCH | FLAG_STRONG | FLAG_MASKED,
    FLAGS_KNOWN = FB_ZIP_FLAG_DESCRIPTOR | FB_ZIP_FLAG_UTF8 | FB_ZIP_FLAG_LEVEL
};

/* Length of the UTF-8 character at p, 0: none, or a control character. */
static size_t character(const uint8_t *p, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = p[0];
    size_t bytes = code < 0x80                   ? 1
                   : code >= 0xf0 && code < 0xf8 ? 4
                   : code >= 0xe0 && code < 0xf0 ? 3
                   : code >= 0xc0 && code < 0xe0 ? 2
                                                 : 0;
    if (bytes == 0 || bytes > left) return 0;
    if (bytes > 1) code &= 0x7fu >> bytes;
    for (size_t i = 1; i < bytes; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3fu);
    }
    if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return 0;
    return bytes;
}

/* NULL, or what is wrong with a name. */
static const char *name_fault(const uint8_t *name, size_t bytes)
{
    size_t part = 0; /* where the part between two slashes begins */
    if (bytes == 0) return "a member without a name";
    if (name[0] == '/') return "a member whose name is an absolute path";
    for (size_t i = 0; i < bytes;) {
        size_t step = character(name + i, bytes - i);
        if (step == 0) return "a member whose name holds a control character, or is no UTF-8";
        if (name[i] == '\\') return "a member whose name holds a backslash";
        i += step;
        if (i == bytes || name[i] == '/') {
            if (i - part == 2 && name[part] == '.' && name[part + 1] == '.') return "a member whose name leads out of the archive";
            part = i + 1;
        }
    }
    return NULL;
}

/* Finds the zip64 field. 0: the extra fields are not well formed. */
static int walk_extra(const uint8_t *extra, size_t bytes, const uint8_t **zip64, size_t *zip64_bytes, int *other_name)
{
    *zip64 = NULL;
    *zip64_bytes = 0;
    *other_name = 0;
    while (bytes >= 4) {
        uint16_t id = fb_zip_u16(extra), size = fb_zip_u16(extra + 2);
        if (size > bytes - 4) return 0;
        if (id == EXTRA_OTHER_NAME) *other_name = 1;
        if (id == EXTRA_ZIP64) {
            if (*zip64) return 0;
            *zip64 = extra + 4;
            *zip64_bytes = size;
        }
        extra += 4 + size;
        bytes -= 4u + size;
    }
    return bytes == 0;
}

int fb_zip_extra_take(const uint8_t *extra, size_t bytes, uint64_t **values, size_t count, int *other_name)
{
    const uint8_t *wide;
    size_t wide_bytes, used = 0;
    if (!walk_extra(extra, bytes, &wide, &wide_bytes, other_name)) return 0;
    for (size_t i = 0; i < count; i++) {
        if (*values[i] != FB_ZIP_FULL_32) continue;
        if (wide_bytes - used < 8) return 0;
        *values[i] = fb_zip_u64(wide + used);
        used += 8;
    }
    return used == wide_bytes && (used > 0 || !wide);
}

static fb_status take_sizes(fb_zip_entry *e, const char *path, const uint8_t *p, uint64_t at, fb_error *err)
{
    uint64_t *values[] = {&e->member.bytes, &e->member.stored_bytes, &e->member.header_bytes_at};
    int other_name;
    e->member.stored_bytes = fb_zip_u32(p + 20);
    e->member.bytes = fb_zip_u32(p + 24);
    e->member.header_bytes_at = fb_zip_u32(p + 42);
    if (!fb_zip_extra_take(p + FB_ZIP_CENTRAL_BYTES + e->name_bytes, fb_zip_u16(p + 30), values, 3, &other_name)) {
        return fb_fail_at(err, at, "read zip archive %s: a directory entry whose extra fields are damaged, or do not fit its sizes",
                          path);
    }
    if (other_name)
        return fb_fail_at(err, at, "read zip archive %s: a member with two names, of which loaders could use either", path);
    return FB_OK;
}

static fb_status check_entry(const fb_zip_entry *e, const char *path, const uint8_t *p, uint64_t at, fb_error *err)
{
    const char *fault = name_fault(p + FB_ZIP_CENTRAL_BYTES, e->name_bytes);
    if (fault) return fb_fail_at(err, at, "read zip archive %s: %s", path, fault);
    if (fb_zip_u16(p + 34) != 0)
        return fb_fail(err, FB_E_UNSUPPORTED, "read zip archive %s: it is spread over several disks", path);
    if (e->flags & FLAGS_REFUSED) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read zip archive %s: member %.*s is encrypted or patched (flags 0x%04x)", path,
                       (int)e->name_bytes, (const char *)p + FB_ZIP_CENTRAL_BYTES, (unsigned)e->flags);
    }
    if (e->flags & ~FLAGS_KNOWN) {
        return fb_fail_at(err, at, "read zip archive %s: a member with flags that mean nothing (0x%04x)", path, (unsigned)e->flags);
    }
    if (e->method != 0 && e->method != 8) {
        return fb_fail(err, FB_E_UNSUPPORTED,
                       "read zip archive %s: member %.*s is compressed by method %u; stored and deflated ones are read", path,
                       (int)e->name_bytes, (const char *)p + FB_ZIP_CENTRAL_BYTES, (unsigned)e->method);
    }
    if (e->method == 0 && e->member.stored_bytes != e->member.bytes) {
        return fb_fail_at(err, at, "read zip archive %s: a stored member has two sizes, %llu and %llu", path,
                          (unsigned long long)e->member.stored_bytes, (unsigned long long)e->member.bytes);
    }
    return FB_OK;
}

fb_status fb_zip_entry_take(fb_zip_entry *e, const char *path, uint8_t *p, uint64_t left, uint64_t at, uint64_t *used,
                            fb_error *err)
{
    fb_status status;
    if (left < FB_ZIP_CENTRAL_BYTES || memcmp(p, "PK\1\2", 4) != 0) {
        return fb_fail_at(err, at, "read zip archive %s: a directory entry was due, and there is none", path);
    }
    e->flags = fb_zip_u16(p + 8);
    e->method = fb_zip_u16(p + 10);
    e->name_bytes = fb_zip_u16(p + 28);
    e->member.crc32 = fb_zip_u32(p + 16);
    e->member.encoding = e->method == 8 ? FB_CKPT_DEFLATED : FB_CKPT_STORED;
    *used = FB_ZIP_CENTRAL_BYTES + (uint64_t)e->name_bytes + fb_zip_u16(p + 30) + fb_zip_u16(p + 32);
    if (*used > left) return fb_fail_at(err, at, "read zip archive %s: a directory entry reaches beyond the directory", path);
    if (e->name_bytes > FB_ZIP_NAME_MAX) {
        return fb_fail(err, FB_E_LIMIT, "read zip archive %s: a name of %u bytes, at most %d are taken", path,
                       (unsigned)e->name_bytes, FB_ZIP_NAME_MAX);
    }
    if ((status = take_sizes(e, path, p, at, err)) != FB_OK) return status;
    if ((status = check_entry(e, path, p, at, err)) != FB_OK) return status;
    memmove(p, p + FB_ZIP_CENTRAL_BYTES, e->name_bytes);
    p[e->name_bytes] = '\0';
    e->member.name = (const char *)p;
    return FB_OK;
}
