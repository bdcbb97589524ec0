/*
 * What the ranks tell each other, all of it by one operation: the largest of integers. Every function here is collective; a rank
 * that cannot go on says so through fb_ranks_agree, so that no other waits for it.
 */
#ifndef FB_LOCATE_RANKS_H
#define FB_LOCATE_RANKS_H

#include "firstbad/locate.h"

typedef struct fb_ranks {
    int32_t rank, world;
    void *ctx;
    fb_reduce_max_fn max; /* NULL where world is 1 */
} fb_ranks;

/* Errors: what max returned. Nothing is done in a world of 1. */
fb_status fb_ranks_max(const fb_ranks *ranks, int32_t *values, size_t count, fb_error *err);
/* Did the work since the last collective succeed on all ranks? Returns mine where it failed, else the gravest of the others. */
fb_status fb_ranks_agree(const fb_ranks *ranks, fb_status mine, fb_error *err);
/* *yes becomes 1 where it is not 0 on some rank. */
fb_status fb_ranks_any(const fb_ranks *ranks, int32_t *yes, fb_error *err);
/* The lowest rank where `mine` is not 0; -1: none. */
fb_status fb_ranks_lowest(const fb_ranks *ranks, int mine, int32_t *lowest, fb_error *err);
/* *same becomes 1 where all ranks gave the same number. */
fb_status fb_ranks_same(const fb_ranks *ranks, uint64_t number, int32_t *same, fb_error *err);
/* value[count] of rank `from`, given to all. */
fb_status fb_ranks_from(const fb_ranks *ranks, int32_t from, int32_t *values, size_t count, fb_error *err);
/* text[room] of rank `from`, given to all; room at most 1024. */
fb_status fb_ranks_text_from(const fb_ranks *ranks, int32_t from, char *text, size_t room, fb_error *err);

#endif
