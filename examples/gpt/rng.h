/*
 * rng.h: random numbers that are a pure function of where they are used.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011) turns a 128-bit counter and a
 * 64-bit key into 128 random bits. The key is the seed; the counter names the use: which draw, which site and layer, which
 * micro-step, step and rank. There is no state to carry: backward draws the same dropout mask again instead of storing it, a
 * resumed run continues with the seed and the step alone, and a replay of one step needs nothing from the steps before.
 */
#ifndef GPT_RNG_H
#define GPT_RNG_H

#include <stddef.h>
#include <stdint.h>

/* What numbers are drawn for; streams with different sites never meet. */
typedef enum rng_site {
    RNG_INIT,
    RNG_DATA,
    RNG_DROP_EMBEDDING,
    RNG_DROP_ATTENTION,
    RNG_DROP_ATTENTION_OUT,
    RNG_DROP_MLP_OUT
} rng_site;

typedef struct rng_stream {
    uint64_t seed;
    rng_site site;
    uint32_t layer;      /* < 2^13; for RNG_INIT the number of the tensor */
    uint32_t micro_step; /* < 2^16 */
    uint32_t step;
    uint32_t rank;
} rng_stream;

/* Draws first .. first + n - 1 of the stream, 32 bits each. Any part of a stream can be drawn alone. */
void rng_draw(const rng_stream *stream, uint64_t first, uint32_t *out, size_t n);

/* Standard normal numbers, by Box and Muller. */
void rng_normal(const rng_stream *stream, float *out, size_t n);

/* A hash of what the numbers of one step depend on, for the record of that step. */
uint64_t rng_hash(const rng_stream *stream);

/*
 * Dropout in place: x[i] becomes x[i] * 0 with the given probability, else x[i] / (1 - probability). It multiplies, as torch does,
 * so that a NaN stays visible; a probability of 1 drops all, and 0/0 is what is left. Calling it on the gradient with the same
 * stream is the backward pass.
 * first  number of the first element within the stream; a multiple of 4.
 */
void dropout(const rng_stream *stream, uint64_t first, float probability, float *x, size_t n);

#endif
