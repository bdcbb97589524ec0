/*
 * capture.h: what a replay starts from, as a bundle on the disk and back (firstbad/bundle.h, docs/gpt.md).
 *
 * Every rank puts in its own batch and random state. The state goes in by value, once for all ranks that hold the same bytes, where
 * it fits; else the bundle names the checkpoint it descends from.
 */
#ifndef GPT_CAPTURE_H
#define GPT_CAPTURE_H

#include "replay.h"
#include "trainer.h"

#include <firstbad/bundle.h>

/* The smallest batch that shows it: of the finding's micro-step on one rank. */
typedef struct minimal_batch {
    const uint32_t *rows;
    size_t row_count;
    const uint8_t *keep; /* [row_count x block] 1: this token is needed; NULL: all are */
    int32_t rank;        /* whose rows they are */
} minimal_batch;

/*
 * Write and seal one. minimal NULL: the whole batch. case_id and run_id for the manifest. Collective; every rank comes to the same
 * answer. 0; or -1 with a sentence on the ranks that failed.
 */
int capture_write(const trainer *t, const replay_start *start, const minimal_batch *minimal, const char *folder,
                  const char *case_id, const char *run_id, fb_error *err);

/* What was read back; capture_read takes the memory, capture_free gives it back. */
typedef struct captured {
    replay_start start;
    batch batch;
    float *state; /* parameters, exp_avg, exp_avg_sq */
    uint32_t *rows;
    int64_t *sample_ids; /* [rows that run] of the finding's micro-step; NULL: this rank has none of them */
    char differences[8][256];
    const char *difference[8];
    uint32_t difference_count;
} captured;

/*
 * Read what rank `rank` of the run put in; options and model are those of this process, and must have the shape of the bundle.
 * 0; EXIT_WRONG_USE or EXIT_FAILED with a sentence.
 */
int capture_read(captured *c, const fb_bundle *bundle, const trainer *t, int32_t rank, fb_error *err);
void capture_free(captured *c);

uint64_t capture_build(void);
uint64_t capture_mix(uint64_t hash, const void *data, size_t bytes);
/* For comparing states: over ranks, and before and after a replay. Not made against somebody who forges. */
uint64_t capture_digest(const float *parameters, const float *exp_avg, const float *exp_avg_sq, size_t count, int64_t updates);

#endif
