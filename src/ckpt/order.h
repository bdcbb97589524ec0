/*
 * Sorting of indices. Heap sort, because the keys come from hostile files: it takes no memory and cannot be made quadratic, while
 * the C library's qsort may ask for memory and may be either.
 */
#ifndef FB_CKPT_ORDER_H
#define FB_CKPT_ORDER_H

#include <stdint.h>

typedef int (*fb_ckpt_compare)(const void *ctx, uint32_t a, uint32_t b);

/* Bring order[0 .. count) into rising order. Equal keys come out in any order. One pass when they are sorted already. */
void fb_ckpt_sort(uint32_t *order, uint64_t count, fb_ckpt_compare compare, const void *ctx);

#endif
