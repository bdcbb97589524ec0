/*
 * The number formats of GGUF: how elements are packed into blocks, and which numbers of a block can be non-finite.
 */
#ifndef FB_CKPT_GGUF_TYPES_H
#define FB_CKPT_GGUF_TYPES_H

#include "ckpt/reader.h"

typedef struct fb_gguf_type {
    const char *name;
    uint32_t block_elements, block_bytes;
    int32_t dtype; /* FB_*: blocks of one element; 0: see lanes */
    uint32_t lane_count;
    fb_ckpt_lane lanes[2];
} fb_gguf_type;

/* NULL for a type that this build does not know: removed ones, and later ones. */
const fb_gguf_type *fb_gguf_type_find(uint32_t id);

#endif
