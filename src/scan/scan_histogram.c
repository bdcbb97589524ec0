/*
 * Exponent histograms. Exact: the raw exponent field (of 8 bits the whole code, of F16 the upper half) indexes one of eight small
 * tables in turn, so that equal neighbours, which are the rule, do not wait for each other's store; the fields are mapped to bins
 * once a chunk. Sampled: one place in each 16 elements, chosen by a hash of the flat index, because a fixed place would see one
 * column of a matrix alone.
 */
#include "scan/scan_finite_math.h"

#include "scan/scan_pass.h"

/* Index into a table: the bin itself for F64, whose field has 11 bits, the code for 8 bits, else the exponent field. */
static inline __attribute__((always_inline)) unsigned raw_index(unsigned bits, unsigned shift, uint64_t mask, uint64_t code)
{
    int field;
    if (bits < 64) return (unsigned)((code >> shift) & mask);
    field = (int)((code >> 52) & 0x7ff);
    if (field == 0) return 0;
    if (field == 0x7ff) return 255;
    field -= 1023 - 127;
    return (unsigned)(field < 1 ? 1 : field > 254 ? 254 : field);
}

static inline __attribute__((always_inline)) void exact(unsigned bits, unsigned shift, uint64_t mask, const uint8_t *data, size_t n,
                                                        fb_raw_bins *raw)
{
    size_t i, k;
    for (i = 0; i + FB_RAW_TABLES <= n; i += FB_RAW_TABLES)
        for (k = 0; k < FB_RAW_TABLES; k++) raw->counts[k][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, i + k))]++;
    for (; i < n; i++) raw->counts[0][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, i))]++;
}

/* start is the flat index of data[0], a multiple of 16 since blocks are. */
static inline __attribute__((always_inline)) void sampled(unsigned bits, unsigned shift, uint64_t mask, const uint8_t *data,
                                                          uint64_t start, size_t n, fb_raw_bins *raw)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hash = start / 16 * step;
    size_t i = 0, at, k;
    /* Whole rounds over the tables first, in which no place lies beyond the end. */
    for (; i + 16 * FB_RAW_TABLES <= n; i += 16 * FB_RAW_TABLES, hash += FB_RAW_TABLES * step)
        for (k = 0; k < FB_RAW_TABLES; k++) {
            at = i + 16 * k + (size_t)((hash + k * step) >> 60);
            raw->counts[k][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, at))]++;
        }
    for (; i < n; i += 16, hash += step) {
        at = i + (size_t)(hash >> 60);
        if (at < n) raw->counts[0][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, at))]++;
    }
}

#define EITHER(bits, shift, mask)                                                          \
    do {                                                                                   \
        if (mode == FB_HISTOGRAM_SAMPLED) sampled(bits, shift, mask, data, start, n, raw); \
        else exact(bits, shift, mask, data, n, raw);                                       \
    } while (0)

void fb_pass_histogram(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, int32_t mode, fb_raw_bins *raw)
{
    start *= format->parts;
    n *= format->parts;
    switch (format->part_bits) {
    case 8: EITHER(8, 0, 255); return;
    case 16:
        if (format->dtype == FB_F16) EITHER(16, 8, 255); /* a byte of its own in memory */
        else EITHER(16, 7, 255);
        return;
    case 32: EITHER(32, 23, 255); return;
    default: EITHER(64, 0, 0); return;
    }
}

/* Where in a code the index of the tables begins. */
static int raw_shift(const fb_format *format)
{
    if (format->part_bits == 8) return 0;
    return format->dtype == FB_F16 ? 8 : format->mantissa_bits;
}

void fb_raw_bins_fold(const fb_format *format, fb_raw_bins *raw, uint64_t bins[256])
{
    size_t field, k;
    for (field = 0; field < 256; field++) {
        uint64_t total = 0;
        for (k = 0; k < FB_RAW_TABLES; k++) total += raw->counts[k][field];
        if (!total) continue;
        bins[format->part_bits == 64 ? field : fb_format_bin(format, (uint64_t)field << raw_shift(format))] += total;
    }
    memset(raw, 0, sizeof *raw);
}
