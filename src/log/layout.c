#include "log/layout.h"

#include <string.h>

#include "base/hash.h"
#include "log/log.h"

/* The first byte has its top bit set and CR LF follow, so that a copy through a text channel is seen at once (as PNG does). */
static const unsigned char file_magic[8] = {0x89, 'F', 'B', 'L', '\r', '\n', 0x1a, '\n'};
static const unsigned char record_magic[4] = {0xfb, 'R', 'e', 'c'};
#define ENDIAN_MARK 0x01020304u
/* Seed of the head's checksum, which cannot be seeded with the id it carries. "firstbad" in ASCII. */
#define HEAD_SEED 0x6669727374626164u

_Static_assert(FB_LOG_FROZEN_OFFSET == FB_LOG_PULSE_OFFSET + FB_LOG_PULSE_SLOTS * FB_LOG_PULSE_STRIDE_BYTES, "places follow on");
_Static_assert(FB_LOG_APPEND_OFFSET == FB_LOG_FROZEN_OFFSET + FB_LOG_FROZEN_SLOTS * FB_LOG_FROZEN_BYTES, "places follow on");
_Static_assert(FB_LOG_FROZEN_PAYLOAD_MAX == FB_LOG_FROZEN_BYTES - FB_LOG_HEADER_BYTES, "a frozen record fits its slot");
_Static_assert(FB_LOG_PULSE_PAYLOAD_MAX + FB_LOG_HEADER_BYTES <= FB_LOG_PULSE_BYTES, "a pulse fits its slot");

static void put(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

/* Everything of a version 1 head that is the same in every file; a reader compares it instead of believing it. */
static void encode_constants(unsigned char *out)
{
    memset(out, 0, FB_LOG_HEAD_BYTES);
    memcpy(out, file_magic, sizeof file_magic);
    put(out + 8, FB_LOG_VERSION, 4);
    put(out + 12, ENDIAN_MARK, 4);
    put(out + 32, FB_LOG_PULSE_OFFSET, 8);
    put(out + 40, FB_LOG_PULSE_SLOTS, 4);
    put(out + 44, FB_LOG_PULSE_STRIDE_BYTES, 4);
    put(out + 48, FB_LOG_FROZEN_OFFSET, 8);
    put(out + 56, FB_LOG_FROZEN_SLOTS, 4);
    put(out + 60, FB_LOG_FROZEN_BYTES, 4);
    put(out + 64, FB_LOG_APPEND_OFFSET, 8);
}

void fb_log_head_encode(unsigned char out[FB_LOG_HEAD_BYTES], const fb_log_head *head)
{
    encode_constants(out);
    put(out + 16, head->file_id, 8);
    put(out + 24, head->created_ns, 8);
    put(out + FB_LOG_HEAD_BYTES - 8, fb_hash64(out, FB_LOG_HEAD_BYTES - 8, HEAD_SEED), 8);
}

int fb_log_head_decode(fb_log_head *head, const unsigned char in[FB_LOG_HEAD_BYTES])
{
    unsigned char expected[FB_LOG_HEAD_BYTES];
    if (fb_log_all_zero(in, FB_LOG_HEAD_BYTES)) return FB_LOG_HEAD_NONE;
    if (memcmp(in, file_magic, sizeof file_magic) != 0) return FB_LOG_HEAD_FOREIGN;
    if (get(in + 8, 4) > FB_LOG_VERSION) return FB_LOG_HEAD_LATER;
    head->file_id = get(in + 16, 8);
    head->created_ns = get(in + 24, 8);
    fb_log_head_encode(expected, head);
    return memcmp(expected, in, FB_LOG_HEAD_BYTES) == 0 ? FB_LOG_HEAD_OK : FB_LOG_HEAD_DAMAGED;
}

/*
 * A record is valid at its own place in its own file only: bytes that a payload happens to carry, that an earlier and longer record
 * left behind, or that the file system mixed up, are none. The odd constant spreads neighbouring offsets over all bits.
 */
static uint64_t record_seed(uint64_t file_id, uint64_t offset)
{
    return file_id ^ (offset * 0x9e3779b97f4a7c15u);
}

/* Over the header without its checksum field, then the payload with its padding: two hashes, so that nothing need be moved. */
static uint64_t record_hash(const unsigned char *record, size_t bytes, uint64_t file_id, uint64_t offset)
{
    uint64_t header = fb_hash64(record, FB_LOG_HEADER_BYTES - 8, record_seed(file_id, offset));
    return fb_hash64(record + FB_LOG_HEADER_BYTES, bytes - FB_LOG_HEADER_BYTES, header);
}

size_t fb_log_record_encode(unsigned char *out, const fb_log_header *header, const void *payload, uint64_t file_id, uint64_t offset)
{
    size_t bytes = fb_log_record_bytes(header->bytes);
    memcpy(out, record_magic, sizeof record_magic);
    put(out + 4, header->type, 2);
    put(out + 6, header->region, 2);
    put(out + 8, header->bytes, 4);
    put(out + 12, 0, 4);
    put(out + 16, header->sequence, 8);
    put(out + 24, header->time_ns, 8);
    memset(out + bytes - 8, 0, header->bytes ? 8 : 0); /* the padding lies in the last eight bytes */
    if (header->bytes) memcpy(out + FB_LOG_HEADER_BYTES, payload, header->bytes);
    put(out + 32, record_hash(out, bytes, file_id, offset), 8);
    return bytes;
}

int fb_log_record_check(fb_log_header *header, const unsigned char *in, size_t available, uint32_t region, uint32_t payload_max,
                        uint64_t file_id, uint64_t offset)
{
    size_t bytes;
    if (available < FB_LOG_HEADER_BYTES) return fb_log_begins_record(in, available) ? FB_LOG_RECORD_SHORT : FB_LOG_RECORD_BAD;
    if (!fb_log_begins_record(in, available)) return FB_LOG_RECORD_BAD;
    header->type = (uint16_t)get(in + 4, 2);
    header->region = (uint32_t)get(in + 6, 2);
    header->bytes = (uint32_t)get(in + 8, 4);
    header->sequence = get(in + 16, 8);
    header->time_ns = get(in + 24, 8);
    if (header->region != region || header->bytes > payload_max || get(in + 12, 4) != 0) return FB_LOG_RECORD_BAD;
    bytes = fb_log_record_bytes(header->bytes);
    if (bytes > available) return FB_LOG_RECORD_SHORT;
#ifdef FB_BREAK_P9
    (void)file_id;
    (void)offset;
    return FB_LOG_RECORD_OK; /* believes what it reads */
#else
    return get(in + 32, 8) == record_hash(in, bytes, file_id, offset) ? FB_LOG_RECORD_OK : FB_LOG_RECORD_BAD;
#endif
}

int fb_log_all_zero(const unsigned char *in, size_t bytes)
{
    return bytes == 0 || (in[0] == 0 && memcmp(in, in + 1, bytes - 1) == 0);
}

int fb_log_begins_record(const unsigned char *in, size_t bytes)
{
    return bytes > 0 && memcmp(in, record_magic, bytes < sizeof record_magic ? bytes : sizeof record_magic) == 0;
}
