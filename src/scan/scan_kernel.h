/*
 * What a kernel is: two functions over one block of contiguous memory, with the same results to the last bit in every kernel.
 * Everything else (views, threads, bad elements, histograms) is written once, around them.
 */
#ifndef FB_SCAN_KERNEL_H
#define FB_SCAN_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "scan/scan_format.h"

/* Bytes of a block. Sums are defined by blocks, so this number is part of docs/format/numbers.md. Two
 * of them fit into an L1 cache. */
enum { FB_BLOCK_BYTES = 16384 };

/*
 * Kernels ask for memory this many bytes ahead, two pages. The processor's own prefetcher stops at the end of a page, and a loop
 * that computes as much as these holds less than a page in flight, so each page would begin with a wait: measured here, sums gain
 * 20 to 25 percent and the verdict 5 to 15. It goes into L2 only (the 2 below): lines on their way into L1 occupy the few buffers
 * that the loop's own loads need. Asking for what is in a cache already would halve the speed there, hence FB_AHEAD. Asking beyond
 * the end of an array is harmless.
 */
enum { FB_AHEAD_BYTES = 8192, FB_NEAR_BYTES = 1024 };

/* How a kernel is to go about it. */
enum {
    FB_COUNTS = 1, /* statistics as well */
    FB_AHEAD = 2   /* the data is too large to be in a cache */
};

/* Larger than this is taken to come from memory. */
enum { FB_CACHED_BYTES_MAX = 1 << 20 };

static inline __attribute__((always_inline)) void fb_ahead(unsigned how, const uint8_t *data, size_t bytes)
{
    size_t i;
    if (!(how & FB_AHEAD)) return;
    for (i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)((uintptr_t)data + FB_AHEAD_BYTES + i), 0, 2);
}

/* From L2 into L1, so that the loads of a loop which computes much do not wait behind what fb_ahead asked for. */
static inline __attribute__((always_inline)) void fb_near(const uint8_t *data, size_t bytes)
{
    size_t i;
    for (i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)((uintptr_t)data + FB_NEAR_BYTES + i), 0, 3);
}

static inline size_t fb_block_parts(const fb_format *format)
{
    return FB_BLOCK_BYTES / fb_format_part_bytes(format);
}

typedef struct fb_block {
    uint64_t peak;       /* largest magnitude, as bits under abs_mask */
    uint64_t low_less1;  /* smallest magnitude that is not zero, as bits, minus 1; the largest value when all are zero. statistics
                           only */
    uint64_t zeros;      /* statistics only */
    uint64_t subnormals; /* statistics only */
    uint64_t at_max;     /* statistics only */
    double sum;          /* sum of squares; means nothing unless peak is in the plain range of the format and no part is bad */
} fb_block;

typedef struct fb_kernel {
    const char *name;
    /* Largest (code ^ test_flip) & test_mask of n parts, any alignment, n not limited. The verdict: bad if it reaches bad_from. */
    uint64_t (*peak)(const fb_format *format, unsigned how, const uint8_t *data, size_t n);
    /* All of fb_block, for at most a block. how: FB_COUNTS, FB_AHEAD. Bad parts are allowed, and leave sum without meaning. */
    void (*block)(const fb_format *format, unsigned how, const uint8_t *data, size_t n, fb_block *out);
    /* target = source * factor for n elements of F64, F32, BF16 in place or across, or F16 into F32. */
    void (*scale)(const fb_format *format, const uint8_t *source, uint8_t *target, size_t n, double factor);
    /* NULL, or scale and block of the products (no statistics) in one loop; returns 0, having done
     * nothing, for formats it leaves. */
    int (*scale_block)(const fb_format *format, unsigned how, const uint8_t *source, uint8_t *target, size_t n, double factor,
                       fb_block *out);
} fb_kernel;

extern const fb_kernel fb_kernel_ref;
#if defined(__x86_64__)
extern const fb_kernel fb_kernel_avx2;
extern const fb_kernel fb_kernel_avx512;
#elif defined(__aarch64__)
extern const fb_kernel fb_kernel_neon;
#endif

/* The kernel in use, or NULL with a sentence when FIRSTBAD_KERNEL asks for one that is not here. */
const fb_kernel *fb_kernel_get(fb_error *err);

/*
 * Sum of squares in the plain reference way, for any magnitudes. Elements with a bad part count as zeros. The result is to be
 * multiplied by 2^*shift. peak: the largest magnitude among elements without a bad part.
 */
double fb_ref_sum(const fb_format *format, const uint8_t *data, size_t n, uint64_t peak, int *shift);

/* No square of the block leaves the range in which its sum is exact enough, given the largest magnitude in it. */
static inline int fb_block_is_plain(const fb_format *format, uint64_t peak)
{
    return peak == 0 || (peak >= format->plain_from && peak < format->plain_below);
}

/*
 * The one place where a block is called bad. peak: what fb_kernel.peak gives.
 * The build that breaks promise 7 compares values instead, in the way that a NaN passes.
 */
static inline int fb_peak_is_bad(const fb_format *format, uint64_t peak)
{
#ifdef FB_BREAK_P7
    return fb_format_value(format, peak) > fb_format_value(format, format->max_bits);
#else
    return peak >= format->bad_from;
#endif
}

/* lanes[0] + ... + lanes[count - 1] in the fixed order: halves onto each other. count is a power of two, at most 32. */
static inline double fb_lanes_sum(double *lanes, size_t count)
{
    size_t half, i;
    for (half = count / 2; half; half /= 2)
        for (i = 0; i < half; i++) lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0];
}

#endif
