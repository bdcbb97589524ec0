#include "ckpt/pool.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

enum { BLOCK_BYTES = 65536, HEAD_BYTES = 16, GRAIN = 8 };

void *fb_pool_take(fb_pool *pool, size_t bytes)
{
    uint8_t *block = pool->newest;
    size_t rounded, room;
    void *place;
    if (bytes > SIZE_MAX / 2) return NULL;
    rounded = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    if (!block || rounded > pool->room - pool->used) {
        room = rounded > BLOCK_BYTES - HEAD_BYTES ? rounded + HEAD_BYTES : BLOCK_BYTES;
        block = fb_calloc(room, 1);
        if (!block) return NULL;
        memcpy(block, &pool->newest, sizeof pool->newest);
        pool->newest = block;
        pool->used = HEAD_BYTES;
        pool->room = room;
    }
    place = block + pool->used;
    pool->used += rounded;
    return place;
}

char *fb_pool_text(fb_pool *pool, const char *text, size_t bytes)
{
    char *copy = fb_pool_take(pool, bytes + 1);
    if (copy && bytes) memcpy(copy, text, bytes);
    return copy;
}

void fb_pool_release(fb_pool *pool)
{
    void *block = pool->newest;
    while (block) {
        void *before;
        memcpy(&before, block, sizeof before);
        fb_free(block);
        block = before;
    }
    memset(pool, 0, sizeof *pool);
}
