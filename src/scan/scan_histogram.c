/*
 * Exponent histograms. Exact: the raw exponent field indexes one of four small tables in turn, so that equal neighbours, which are
 * the rule, do not wait for each other's store; the fields are mapped to bins once, at the end of the block. Sampled: one place in
 * each 16 elements, chosen by a hash of the flat index, because a fixed place would see one column of a matrix alone.
 */
#include "scan/scan_finite_math.h"

#include "scan/scan_pass.h"

enum { TABLES = 4 };

/* Add the raw counts of field values into bins; every code with that field is in the same bin, 8-bit formats count whole codes. */
static void fold(const fb_format *format, const uint32_t *counts, size_t width, int shift, uint64_t bins[256])
{
    size_t field, table;
    for (field = 0; field < width; field++) {
        uint64_t total = 0;
        for (table = 0; table < TABLES; table++) total += counts[table * width + field];
        if (total) bins[fb_format_bin(format, (uint64_t)field << shift)] += total;
    }
}

static void exact8(const fb_format *format, const uint8_t *data, size_t n, uint64_t bins[256])
{
    uint32_t counts[TABLES * 256] = {0};
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        counts[data[i]]++;
        counts[256 + data[i + 1]]++;
        counts[512 + data[i + 2]]++;
        counts[768 + data[i + 3]]++;
    }
    for (; i < n; i++) counts[data[i]]++;
    fold(format, counts, 256, 0, bins);
}

static void exact16(const fb_format *format, const uint8_t *data, size_t n, uint64_t bins[256])
{
    uint32_t counts[TABLES * 256] = {0};
    unsigned shift = format->mantissa_bits, mask = (unsigned)(format->abs_mask >> shift);
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, data + 2 * i, 8);
        counts[(unsigned)(four >> shift) & mask]++;
        counts[256 + ((unsigned)(four >> (16 + shift)) & mask)]++;
        counts[512 + ((unsigned)(four >> (32 + shift)) & mask)]++;
        counts[768 + ((unsigned)(four >> (48 + shift)) & mask)]++;
    }
    for (; i < n; i++) counts[(unsigned)(fb_part_bits(data, 2, i) >> shift) & mask]++;
    fold(format, counts, 256, (int)shift, bins);
}

static void exact32(const fb_format *format, const uint8_t *data, size_t n, uint64_t bins[256])
{
    uint32_t counts[TABLES * 256] = {0};
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        uint64_t two, more;
        memcpy(&two, data + 4 * i, 8);
        memcpy(&more, data + 4 * i + 8, 8);
        counts[(two >> 23) & 255]++;
        counts[256 + ((two >> 55) & 255)]++;
        counts[512 + ((more >> 23) & 255)]++;
        counts[768 + ((more >> 55) & 255)]++;
    }
    for (; i < n; i++) counts[(fb_part_bits(data, 4, i) >> 23) & 255]++;
    fold(format, counts, 256, 23, bins);
}

static void exact64(const fb_format *format, const uint8_t *data, size_t n, uint64_t bins[256])
{
    size_t i;
    for (i = 0; i < n; i++) bins[fb_format_bin(format, fb_part_bits(data, 8, i))]++;
}

static void sampled(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, uint64_t bins[256])
{
    size_t bytes = fb_format_part_bytes(format);
    uint64_t group;
    for (group = start / 16; group * 16 < start + n; group++) {
        uint64_t index = group * 16 + (group * UINT64_C(0x9e3779b97f4a7c15) >> 60);
        if (index < start || index >= start + n) continue;
        bins[fb_format_bin(format, fb_part_bits(data, bytes, (size_t)(index - start)))]++;
    }
}

void fb_pass_histogram(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, int32_t mode, uint64_t bins[256])
{
    start *= format->parts;
    n *= format->parts;
    if (mode == FB_HISTOGRAM_SAMPLED) {
        sampled(format, data, start, n, bins);
        return;
    }
    switch (format->part_bits) {
    case 8: exact8(format, data, n, bins); return;
    case 16: exact16(format, data, n, bins); return;
    case 32: exact32(format, data, n, bins); return;
    default: exact64(format, data, n, bins); return;
    }
}
