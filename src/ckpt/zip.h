/*
 * The directory of a zip archive, read strictly: what two programs could understand differently is refused, not repaired, since
 * that is how a scanner is shown other bytes than the loader. Exactly one end record, nothing after its comment; entry counts that
 * agree; the directory inside the archive, before the end record, and full; no encryption, one disk; method stored or deflate; each
 * name equal in directory and local header, unique, without "..", leading "/" or backslash; members that follow each other from the
 * first byte of the archive to the directory, with nothing between them but data descriptors. Zip64 included. Sizes come from the
 * directory
 * alone: torch writes zeros into local headers. Source: PKWARE APPNOTE 6.3.10.
 */
#ifndef FB_CKPT_ZIP_H
#define FB_CKPT_ZIP_H

#include "ckpt/reader.h"

typedef struct fb_zip fb_zip;

typedef struct fb_zip_member {
    const char *name;                  /* UTF-8 without control characters, NUL-terminated; lives as long as the archive */
    uint64_t header_bytes_at, data_at; /* in the file */
    uint64_t stored_bytes, bytes;
    uint32_t crc32;   /* 0 may mean none: torch can be told to make none */
    int32_t encoding; /* FB_CKPT_STORED or FB_CKPT_DEFLATED */
} fb_zip_member;

/**
 * Read the directory of the archive that fills `range` exactly.
 * Errors: FB_E_CORRUPT, FB_E_LIMIT (over 2,000,000 members, names over 4096 bytes), FB_E_UNSUPPORTED (encryption, another method),
 * FB_E_IO, FB_E_NOMEM. Memory: in proportion to the directory, which is compared with the archive's size first.
 */
fb_status fb_zip_open(fb_zip **out, const fb_ckpt_range *range, fb_error *err);
uint64_t fb_zip_count(const fb_zip *zip);
/* In the order of the directory. */
const fb_zip_member *fb_zip_member_at(const fb_zip *zip, uint64_t i);
/* NULL when there is none of that name. Cost: a binary search. */
const fb_zip_member *fb_zip_find(const fb_zip *zip, const char *name);
/* The content of a small member in new memory, released with fb_free; a NUL follows. It is compared with its CRC. FB_E_LIMIT when
 * it is
   larger than bytes_max. */
fb_status fb_zip_load(fb_zip *zip, const fb_zip_member *member, uint64_t bytes_max, uint8_t **data, fb_error *err);
/* Accepts NULL. */
void fb_zip_close(fb_zip *zip);

#endif
