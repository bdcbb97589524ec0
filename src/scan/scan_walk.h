/*
 * A view seen as a flat array, a block at a time: contiguous views give their own memory, others are gathered into a buffer.
 */
#ifndef FB_SCAN_WALK_H
#define FB_SCAN_WALK_H

#include "scan/scan_kernel.h"

typedef struct fb_walk {
    const fb_format *format;
    uint8_t *data;
    uint64_t elements;
    uint64_t blocks;
    size_t element_bytes, block_elements;
    int strided;
    int ndim; /* strided only: outermost first, dimensions of size 1 left out, neighbours merged where possible
                                      */
    uint64_t shape[FB_DIMS_MAX];
    int64_t strides[FB_DIMS_MAX]; /* in bytes */
} fb_walk;

/* Check the view and prepare. `name` and `number` say in the message which argument it is. Formats
 * with nothing to find pass too. */
fb_status fb_walk_init(fb_walk *walk, const fb_view *view, const char *name, size_t number, fb_error *err);
/* FB_E_USAGE unless each element has its own memory, so that a write happens once. */
fb_status fb_walk_writable(const fb_walk *walk, const char *name, size_t number, fb_error *err);

/* Elements of block b. */
static inline size_t fb_walk_count(const fb_walk *walk, uint64_t b)
{
    uint64_t start = b * walk->block_elements;
    uint64_t left = walk->elements - start;
    return left < walk->block_elements ? (size_t)left : walk->block_elements;
}

/* FB_AHEAD if kernels should ask for memory ahead. */
static inline unsigned fb_walk_how(const fb_walk *walk)
{
    return walk->elements * walk->element_bytes > FB_CACHED_BYTES_MAX ? FB_AHEAD : 0;
}

/* The elements of [start, start + n), n at most a block; `buffer` has FB_BLOCK_BYTES. */
const uint8_t *fb_walk_read(const fb_walk *walk, uint64_t start, size_t n, uint8_t *buffer);
/* Where to write [start, start + n): the memory itself, or `buffer`, which fb_walk_write_end then puts into place. */
uint8_t *fb_walk_write(const fb_walk *walk, uint64_t start, uint8_t *buffer);
void fb_walk_write_end(const fb_walk *walk, uint64_t start, size_t n, uint8_t *buffer);

#endif
