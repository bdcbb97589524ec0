/* rng.c: Philox4x32-10 and what is drawn with it. */
#include "rng.h"
#include "clones.h"

#include <math.h>

/* As many lanes as keep gcc from unrolling the loop over them, which would leave it nothing to vectorise. */
enum { LANES = 64, ROUNDS = 10, CHUNK = 4 * LANES };

/* Constants of the paper: two multipliers, and Weyl increments of the key (golden ratio, square root of 3, less 1). */
static const uint32_t MULTIPLIER_0 = 0xD2511F53u, MULTIPLIER_1 = 0xCD9E8D57u;
static const uint32_t WEYL_0 = 0x9E3779B9u, WEYL_1 = 0xBB67AE85u;

/* Counters that follow each other, side by side, so that a vector unit runs them together. out[4 * lane + word]. */
GPT_INLINE void philox_lanes(const rng_stream *stream, uint32_t first_block, uint32_t out[CHUNK])
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t key_0 = (uint32_t)stream->seed, key_1 = (uint32_t)(stream->seed >> 32);
    uint32_t place = (uint32_t)stream->site << 29 | (stream->layer & 0x1fffu) << 16 | (stream->micro_step & 0xffffu);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        c0[lane] = first_block + lane;
        c1[lane] = place;
        c2[lane] = stream->step;
        c3[lane] = stream->rank;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t product_0 = (uint64_t)MULTIPLIER_0 * c0[lane], product_1 = (uint64_t)MULTIPLIER_1 * c2[lane];
            c0[lane] = (uint32_t)(product_1 >> 32) ^ c1[lane] ^ key_0;
            c2[lane] = (uint32_t)(product_0 >> 32) ^ c3[lane] ^ key_1;
            c1[lane] = (uint32_t)product_1;
            c3[lane] = (uint32_t)product_0;
        }
        key_0 += WEYL_0;
        key_1 += WEYL_1;
    }
    for (int lane = 0; lane < LANES; lane++) {
        out[4 * lane] = c0[lane];
        out[4 * lane + 1] = c1[lane];
        out[4 * lane + 2] = c2[lane];
        out[4 * lane + 3] = c3[lane];
    }
}

GPT_CLONES void rng_draw(const rng_stream *stream, uint64_t first, uint32_t *out, size_t n)
{
    uint32_t words[CHUNK];
    uint64_t block = first / 4;
    size_t skip = (size_t)(first % 4), done = 0;
    while (done < n) {
        philox_lanes(stream, (uint32_t)block, words);
        for (size_t i = skip; i < CHUNK && done < n; i++) out[done++] = words[i];
        skip = 0;
        block += LANES;
    }
}

void rng_normal(const rng_stream *stream, float *out, size_t n)
{
    uint32_t words[CHUNK];
    for (size_t i = 0; i < n; i += 2) {
        if (i % CHUNK == 0) rng_draw(stream, i, words, CHUNK);
        double u = ((double)words[i % CHUNK] + 1.0) / 4294967296.0; /* in (0, 1]: the logarithm of 0 is never taken */
        double angle = 6.283185307179586 * (double)words[i % CHUNK + 1] / 4294967296.0;
        double radius = sqrt(-2.0 * log(u));
        out[i] = (float)(radius * cos(angle));
        if (i + 1 < n) out[i + 1] = (float)(radius * sin(angle));
    }
}

uint64_t rng_hash(const rng_stream *stream)
{
    uint32_t words[4];
    rng_draw(stream, 0, words, 4);
    return ((uint64_t)words[0] << 32 | words[1]) ^ ((uint64_t)words[2] << 32 | words[3]);
}

GPT_CLONES void dropout(const rng_stream *stream, uint64_t first, float probability, float *x, size_t n)
{
    uint32_t words[CHUNK];
    /* At 1 the scale is 1/0 and nothing is kept: 0/0 for all. Below 1 it is finite, and 0 times it is 0. */
    float scale = 1.0f / (1.0f - probability), dropped = 0.0f * scale, kept = probability < 1.0f ? scale : dropped;
    uint32_t threshold = probability < 1.0f ? (uint32_t)((double)probability * 4294967296.0) : UINT32_MAX;
    uint32_t block = (uint32_t)(first / 4);
    if (!(probability > 0.0f)) return;
    for (size_t i = 0; i < n; i += CHUNK, block += LANES) {
        size_t count = n - i < CHUNK ? n - i : CHUNK;
        philox_lanes(stream, block, words);
        for (size_t k = 0; k < count; k++) x[i + k] *= words[k] >= threshold ? kept : dropped;
    }
}
