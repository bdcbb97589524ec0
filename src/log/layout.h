/*
 * Bytes of a record log, shared by its writer and its reader (docs/format/ledger.md). What the writer checks before it writes is
 * what the reader checks after it read: fb_log_record_check is the one predicate of both.
 */
#ifndef FB_LOG_LAYOUT_H
#define FB_LOG_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
    FB_LOG_VERSION = 1,
    FB_LOG_HEAD_BYTES = 4096,
    FB_LOG_HEADER_BYTES = 40, /* of a record */
    FB_LOG_PULSE_OFFSET = 4096,
    FB_LOG_PULSE_SLOTS = 2,
    FB_LOG_PULSE_STRIDE_BYTES = 4096, /* apart by the largest sector in use: one torn write cannot reach both */
    FB_LOG_PULSE_BYTES = 256,
    FB_LOG_FROZEN_OFFSET = 12288,
    FB_LOG_FROZEN_BYTES = 8192,
    FB_LOG_APPEND_OFFSET = 143360 /* 12288 + 16 * 8192 */
};

/* Which place of the file a record is for. Kept in its header, so that bytes of one place are no record in another. */
enum { FB_LOG_REGION_APPEND = 1, FB_LOG_REGION_PULSE = 2, FB_LOG_REGION_FROZEN = 3 };

/* The head, decoded. */
typedef struct fb_log_head {
    uint64_t file_id;
    uint64_t created_ns;
} fb_log_head;

enum { FB_LOG_HEAD_OK = 0, FB_LOG_HEAD_NONE = 1, FB_LOG_HEAD_FOREIGN = 2, FB_LOG_HEAD_LATER = 3, FB_LOG_HEAD_DAMAGED = 4 };

void fb_log_head_encode(unsigned char out[FB_LOG_HEAD_BYTES], const fb_log_head *head);
/* FB_LOG_HEAD_OK, or why not: all zero (creation not finished), another kind of file, a later version, damaged. */
int fb_log_head_decode(fb_log_head *head, const unsigned char in[FB_LOG_HEAD_BYTES]);

/* A record header, decoded. */
typedef struct fb_log_header {
    uint32_t region;
    uint16_t type;
    uint32_t bytes;
    uint64_t sequence, time_ns;
} fb_log_header;

/* Bytes that a record with this payload takes: header, payload, padding to 8. */
static inline size_t fb_log_record_bytes(uint32_t payload_bytes)
{
    return FB_LOG_HEADER_BYTES + (((size_t)payload_bytes + 7) & ~(size_t)7);
}

/* Lay out a record at `out`: header, payload, padding. `offset` is where in the file it goes. Returns its bytes. */
size_t fb_log_record_encode(unsigned char *out, const fb_log_header *header, const void *payload, uint64_t file_id,
                            uint64_t offset);

enum {
    FB_LOG_RECORD_OK = 0,
    FB_LOG_RECORD_SHORT = 1, /* a plausible header that asks for more than `available` bytes, or part of a header */
    FB_LOG_RECORD_BAD = 2    /* no record, or its checksum is wrong */
};

/* Is there a record of `region` at `in`, of which `available` bytes are in reach? payload_max bounds what a header may ask for. */
int fb_log_record_check(fb_log_header *header, const unsigned char *in, size_t available, uint32_t region, uint32_t payload_max,
                        uint64_t file_id, uint64_t offset);

/* 1 if all bytes are zero. */
int fb_log_all_zero(const unsigned char *in, size_t bytes);
/* 1 if the first bytes (up to 4 of them) are those a record begins with. */
int fb_log_begins_record(const unsigned char *in, size_t bytes);

#endif
