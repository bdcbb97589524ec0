/*
 * The end of a zip archive: where its directory lies, and how many members it says there are. Used by zip.c alone.
 *
 *   [directory] [zip64 end record, 56 bytes] [its locator, 20 bytes] [end record, 22 bytes] [comment]
 *
 * The zip64 pair is there or not; nothing lies in between. Loaders look for the end record in different ways (the last signature,
 * the first one whose comment fits, a locator or none), so a tail in which they could find different ones is refused.
 */
#ifndef FB_CKPT_ZIP_END_H
#define FB_CKPT_ZIP_END_H

#include "ckpt/reader.h"

typedef struct fb_zip_end {
    uint64_t members;
    uint64_t directory_at, directory_bytes; /* counted from the first byte of the archive; both lie inside it */
} fb_zip_end;

/* Errors: FB_E_CORRUPT, FB_E_UNSUPPORTED (several disks), FB_E_IO, FB_E_NOMEM. */
fb_status fb_zip_end_find(fb_zip_end *end, const fb_ckpt_range *range, fb_error *err);

/* Little-endian numbers of the format, at any alignment. */
uint16_t fb_zip_u16(const uint8_t *p);
uint32_t fb_zip_u32(const uint8_t *p);
uint64_t fb_zip_u64(const uint8_t *p);

enum { FB_ZIP_FULL_16 = 0xffff }; /* "see zip64" */
static const uint32_t FB_ZIP_FULL_32 = 0xffffffffu;

#endif
