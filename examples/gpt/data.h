/* data.h: any file as a stream of byte tokens, and windows of it drawn by step, so that a batch can be named and drawn again. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include "model.h"

typedef struct dataset {
    uint8_t *bytes;
    size_t count;
} dataset;

/* What one rank reads in one update: `micro_steps` batches of (B,T), one after the other. */
typedef struct batch {
    size_t micro_steps, rows, columns;
    int32_t *tokens, *targets; // (micro_steps,B,T), targets are the tokens one place on
    float *weights;            // (micro_steps,B,T) of the loss of each target: 1, except where somebody changes them
    float *key_mask;           // (micro_steps,B,T) 1: attention may look at this key; all 1, except where somebody changes them
    int32_t *positions;        // (micro_steps,B,T) 0, 1, ..., T-1
    int64_t *offsets;          // (micro_steps,B) where each window begins in the file: the sample's id
    uint64_t fingerprint;      /* FNV-1a of tokens and targets */
} batch;

/* Windows that are not to be trained on. NULL: there are none. */
typedef struct left_out {
    int (*is)(void *ctx, int64_t offset); /* 1: leave it out */
    void *ctx;
    uint64_t count; /* how often one was drawn, and another in its place */
} left_out;

/* 0, or -1 with errno set; EINVAL when the file has fewer than `block` + 2 bytes. */
int dataset_open(dataset *data, const char *path, size_t block);
void dataset_close(dataset *data);

int batch_open(batch *b, size_t micro_steps, size_t rows, size_t columns);
void batch_close(batch *b);
/* Put a token in this place that does no harm: a space, whose label is ignored. */
void batch_blank(batch *b, size_t at);

/* All batches of a step on a rank: a function of data, seed, step and rank alone. */
void batch_draw(batch *b, const dataset *data, uint64_t seed, int64_t step, int32_t rank);
/*
 * The same, but for what is left out: for such a window the next random words of its stream are taken, so that the other windows
 * are those they would have been. 0; or -1 when a window was still one to be left out after BATCH_DRAWS_MAX draws.
 */
enum { BATCH_DRAWS_MAX = 4096 };
int batch_draw_without(batch *b, const dataset *data, uint64_t seed, int64_t step, int32_t rank, left_out *out);

#endif
