/*
 * The one place that asks for memory, so that tests can make the k-th request fail.
 */
#ifndef FB_BASE_ALLOC_H
#define FB_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for count elements of size bytes, or NULL (also when the product overflows). Release with fb_free. */
void *fb_calloc(size_t count, size_t size);
/* As realloc; the new part is not zeroed. On failure NULL, and the old block stays valid. */
void *fb_realloc(void *block, size_t bytes);
/* A copy of text, or NULL. NULL text gives NULL. */
char *fb_strdup(const char *text);
/* Accepts NULL. */
void fb_free(void *block);

/* Tests only: fail the request number `k` from now (1: the next), and all after it if `for_good`. 0 switches failing off. */
void fb_alloc_fail_at(uint64_t k, int for_good);
/* Requests made since the last call of fb_alloc_fail_at. */
uint64_t fb_alloc_requests(void);

#endif
