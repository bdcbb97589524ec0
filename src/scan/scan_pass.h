/*
 * One pass over blocks into one accumulator. Accumulators of different threads merge in any order to the same result: counts add,
 * extremes are extremes, the first bad element is the one with the smallest index, and the sum is exact until it is rounded.
 */
#ifndef FB_SCAN_PASS_H
#define FB_SCAN_PASS_H

#include "scan/scan_kernel.h"
#include "scan/scan_sum.h"
#include "scan/scan_walk.h"

#include "firstbad/scan.h"

typedef struct fb_tally {
    uint64_t nan, pos_inf, neg_inf, zeros, subnormals, at_max;
    uint64_t first_index, first_bits;
    int32_t first_kind;
    uint64_t peak, low_less1; /* bits, as in fb_block; E8M0, which has no zero, keeps the smallest code itself in low_less1 */
    uint64_t source_bad, source_first_index;
    uint64_t *bins; /* 256, or NULL; not owned. Indexed as fb_histogram */
    fb_sum sum;
} fb_tally;

void fb_tally_init(fb_tally *tally, uint64_t *bins);
/* bins are merged when both have them. */
void fb_tally_merge(fb_tally *into, const fb_tally *from);

/* Add one block of n elements whose first has the flat index `start`. how: FB_COUNTS, FB_AHEAD. */
void fb_pass_block(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n, unsigned how,
                   fb_tally *tally);

/* The second half of it: what the kernel said about the block goes into the tally, after the careful look where it is needed. */
void fb_pass_take(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n, unsigned how,
                  const fb_block *block, fb_tally *tally);

/* Count the non-finite elements of a block, as fb_tally.source_*. */
void fb_pass_source(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n,
                    fb_tally *tally);

/* Index in [0, n) of the first bad element, or n. */
size_t fb_pass_locate(const fb_kernel *kernel, const fb_format *format, unsigned how, const uint8_t *data, size_t n);

enum { FB_RAW_TABLES = 8 };

/* Counts on their way to bins; empty when all are zero. Fold them before 2^32 parts were counted. */
typedef struct fb_raw_bins {
    uint32_t counts[FB_RAW_TABLES][256];
} fb_raw_bins;

/* Histogram of n elements starting at flat index `start`: all of them, or one in 16. */
void fb_pass_histogram(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, int32_t mode, fb_raw_bins *raw);
/* Add to bins, and empty raw. */
void fb_raw_bins_fold(const fb_format *format, fb_raw_bins *raw, uint64_t bins[256]);

#endif
