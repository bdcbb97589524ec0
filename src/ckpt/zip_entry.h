/*
 * One entry of a zip directory, judged on its own. Used by zip.c alone.
 */
#ifndef FB_CKPT_ZIP_ENTRY_H
#define FB_CKPT_ZIP_ENTRY_H

#include "ckpt/zip.h"

enum { FB_ZIP_CENTRAL_BYTES = 46, FB_ZIP_NAME_MAX = 4096 };
enum {
    FB_ZIP_FLAG_LEVEL = 3 << 1,      /* how hard the writer tried to compress: for people */
    FB_ZIP_FLAG_DESCRIPTOR = 1 << 3, /* sizes and checksum follow the data */
    FB_ZIP_FLAG_UTF8 = 1 << 11
};

typedef struct fb_zip_entry {
    fb_zip_member member;
    uint16_t flags, method, name_bytes;
} fb_zip_entry;

/**
 * Take in the entry at p, `left` bytes before the end of the directory. Its name is moved over its head, which makes room for a
 * NUL.
 * at    place of p in the file, for errors.
 * used  out: bytes that it takes.
 * The places of the member are as written: counted from the first byte of the archive; data_at is not known yet.
 */
fb_status fb_zip_entry_take(fb_zip_entry *entry, const char *path, uint8_t *p, uint64_t left, uint64_t at, uint64_t *used,
                            fb_error *err);

/*
 * The zip64 field among `bytes` bytes of extra fields replaces those of the `count` values that are all ones, in their order, and
 * holds nothing else. 1: done, or there was nothing to do. 0: the fields are not well formed, it is missing, twice there, too short
 * or too
 * long.
 */
int fb_zip_extra_take(const uint8_t *extra, size_t bytes, uint64_t **values, size_t count, int *other_name);

#endif
