/*
 * A *_optim_states.pt of DeepSpeed: a file of torch.save whose flat buffers are handed out as the parameters that lie in them. What
 * lies between and behind them is padding, which DeepSpeed never initialises: a NaN there is of no consequence.
 */
#ifndef FB_CKPT_DEEPSPEED_SHARD_H
#define FB_CKPT_DEEPSPEED_SHARD_H

#include "ckpt/reader.h"

/* A run of elements of one parameter in a flat buffer. */
typedef struct fb_ds_piece {
    const char *parameter;
    const uint64_t *shape; /* of the parameter */
    int32_t ndim;
    uint64_t elements_whole;  /* of the parameter */
    uint64_t start, elements; /* in the buffer */
    uint64_t start_whole;     /* of the run, in the flat parameter */
} fb_ds_piece;

typedef struct fb_ds_group {
    const fb_ds_piece *pieces;
    uint64_t count;
} fb_ds_group;

/* The setup of fb_ckpt_deepspeed_shard. */
typedef struct fb_ds_shard_map {
    const fb_ds_group *groups;
    uint64_t count;
} fb_ds_shard_map;

extern const fb_ckpt_reader fb_ckpt_deepspeed_shard;

#endif
