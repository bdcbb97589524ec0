/*
 * Number formats as data: everything the scanners know about a format is in one row of one table, and everything that tells a
 * non-finite code from a finite one compares integers.
 */
#ifndef FB_SCAN_FORMAT_H
#define FB_SCAN_FORMAT_H

#include <stdint.h>
#include <string.h>

#include "firstbad/firstbad.h"

enum { FB_SCHEME_NONE, FB_SCHEME_IEEE, FB_SCHEME_FN, FB_SCHEME_FNUZ, FB_SCHEME_E8M0 };

/* How the squares of a block are added up; docs/format/numbers.md has the definitions. */
enum {
    FB_SUM_WIDE, /* 32 lanes of doubles, one square a step */
    FB_SUM_QUAD, /* 16 lanes of doubles, which take in the float sum of four squares a step */
    FB_SUM_OCT   /* the same, of eight */
};

typedef struct fb_format {
    const char *name;
    int32_t dtype;
    uint8_t part_bits; /* of one part: half a complex number, else the element */
    uint8_t parts;     /* 2 for complex */
    uint8_t scheme;    /* FB_SCHEME_NONE: no non-finite code */
    uint8_t sum;       /* FB_SUM_* */
    uint8_t mantissa_bits;
    uint8_t pair_order; /* FB_SUM_OCT: 1 when neighbours are paired (BF16), 0 when rows of 16 are added */
    int16_t bias;
    int16_t fast_shift; /* a vector kernel's block sum of squares is to be multiplied by 2^fast_shift */
    uint64_t test_flip; /* a code is bad exactly if ((code ^ test_flip) & test_mask) >= bad_from */
    uint64_t test_mask;
    uint64_t bad_from;
    uint64_t abs_mask;   /* code & abs_mask orders finite magnitudes */
    uint64_t max_bits;   /* largest finite magnitude */
    uint64_t min_normal; /* smallest magnitude that is neither zero nor subnormal */
    uint64_t plain_from; /* largest magnitude of a block lies in [plain_from, plain_below), or is 0: squares need no scaling */
    uint64_t plain_below;
} fb_format;

/* NULL for an unknown format. */
const fb_format *fb_format_of(int32_t dtype);

static inline size_t fb_format_part_bytes(const fb_format *format)
{
    return format->part_bits / 8u;
}

static inline int fb_format_is_bad(const fb_format *format, uint64_t bits)
{
    return ((bits ^ format->test_flip) & format->test_mask) >= format->bad_from;
}

/* FB_KIND_* of a code. */
int32_t fb_format_kind(const fb_format *format, uint64_t bits);

/* Exact value of a finite code. Needs default floating-point modes (scan_fpenv.h). */
double fb_format_value(const fb_format *format, uint64_t bits);

/* Bin of fb_histogram. */
unsigned fb_format_bin(const fb_format *format, uint64_t bits);

/* Part number i of an array of any alignment, as bits. */
static inline uint64_t fb_part_bits(const uint8_t *data, size_t part_bytes, size_t i)
{
    uint64_t bits64;
    uint32_t bits32;
    uint16_t bits16;
    switch (part_bytes) {
    case 1: return data[i];
    case 2: memcpy(&bits16, data + 2 * i, 2); return bits16;
    case 4: memcpy(&bits32, data + 4 * i, 4); return bits32;
    default: memcpy(&bits64, data + 8 * i, 8); return bits64;
    }
}

/* 2^k for -1022 <= k <= 1023. */
static inline double fb_pow2(int k)
{
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
