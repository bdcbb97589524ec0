/* data.h: any file as a stream of byte tokens, and windows of it drawn by step, so that a batch can be named and drawn again. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include "model.h"

typedef struct dataset {
    uint8_t *bytes;
    size_t count;
} dataset;

/* One micro-step's batch on one rank. */
typedef struct batch {
    size_t rows, columns;
    int32_t *tokens, *targets; // (B,T), targets are the tokens one place on
    int64_t *offsets;          // (B) where each window begins in the file: the sample's id
    uint64_t fingerprint;      /* FNV-1a of tokens and targets */
} batch;

/* 0, or -1 with errno set; EINVAL when the file has fewer than `block` + 2 bytes. */
int dataset_open(dataset *data, const char *path, size_t block);
void dataset_close(dataset *data);

int batch_open(batch *b, size_t rows, size_t columns);
void batch_close(batch *b);

/* The batch of a place: the same place gives the same batch. */
void batch_draw(batch *b, const dataset *data, uint64_t seed, gpt_place place);

#endif
