/*
 * Statistics of an array that comes in pieces: a checkpoint that is larger than memory. Pieces may be taken by different threads
 * and merged in any order; the result is that of fb_scan_with over the whole, to the last bit, when each piece but the last begins
 * and ends at a multiple of FB_BLOCK_BYTES.
 */
#ifndef FB_SCAN_STREAM_H
#define FB_SCAN_STREAM_H

#include "scan/scan_pass.h"

typedef struct fb_stream {
    const fb_kernel *kernel;
    const fb_format *format;
    int full; /* 1: histogram and extremes with sign as well */
    uint64_t elements;
    uint64_t bins[256];
    /* Extremes with sign, of the finite parts, as magnitudes under abs_mask: the largest and the smallest of each sign. */
    uint64_t top[2], bottom[2]; /* [0]: sign clear, [1]: sign set; bottom is UINT64_MAX when there is none */
    fb_tally tally;
} fb_stream;

void fb_stream_init(fb_stream *stream, const fb_kernel *kernel, const fb_format *format, int full);
/* n elements that follow each other in memory, any alignment; the first has the flat index `start`. */
void fb_stream_add(fb_stream *stream, const uint8_t *data, uint64_t start, size_t n);
void fb_stream_merge(fb_stream *into, const fb_stream *from);
/* histogram: may be NULL, as min and max may; those two are 0 when nothing is finite. `size` of the structs is set here. */
void fb_stream_result(const fb_stream *stream, fb_scan_result *out, fb_histogram *histogram, double *min, double *max);

#endif
