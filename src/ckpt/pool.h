/*
 * Memory for many small things that live and die together: names, shapes. Pointers stay valid until the pool is released.
 */
#ifndef FB_CKPT_POOL_H
#define FB_CKPT_POOL_H

#include <stddef.h>

typedef struct fb_pool {
    void *newest; /* block, which begins with a pointer to the one before */
    size_t used, room;
} fb_pool;

/* Zeroed memory, aligned for 64-bit numbers, or NULL. A pool that is all zero is ready for use. */
void *fb_pool_take(fb_pool *pool, size_t bytes);
/* The bytes with a NUL after them, or NULL. */
char *fb_pool_text(fb_pool *pool, const char *text, size_t bytes);
void fb_pool_release(fb_pool *pool);

#endif
