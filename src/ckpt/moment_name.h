/* Names of optimizer state as their owner knows them, made from the flat names that distributed checkpoints keep. */
#ifndef FB_CKPT_MOMENT_NAME_H
#define FB_CKPT_MOMENT_NAME_H

#include "ckpt/pool.h"

/*
 * "optim.state.h.0.weight.exp_avg" and "optim.state.exp_avg.h.0.weight" become "optim.state.exp_avg of h.0.weight"; any other name
 * comes back as it is. The result lives in the pool, or is `name`. NULL: no memory.
 */
const char *fb_moment_name(fb_pool *pool, const char *name);

#endif
