/*
 * precision.h: what a number may be in fp32, bf16 and fp16.
 *
 * The trainer computes in float, and rounds every weight it uses, every activation and every gradient to the chosen format (to
 * nearest, ties to even), so that each value it holds is one that the format has: above 65504 an fp16 value is Inf, below 2^-24 it
 * is 0. Sums inside one kernel (a matrix product, a softmax, a layer norm) run in FP32 and are rounded once, as tensor cores do it.
 * Gradients that wait for the collective are really stored in 16 bits; pack and unpack convert them.
 *
 * All of it is integer arithmetic without a branch: the compiler vectorises it, and it gives the same bits on every machine.
 */
#ifndef GPT_PRECISION_H
#define GPT_PRECISION_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 } precision;

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Nearest BF16 value: the upper half of the float. A NaN stays one: its quiet bit is set, lest the cut leave an infinity. */
static inline float round_bf16(float x)
{
    uint32_t bits = float_bits(x);
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    uint32_t kept = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : rounded;
    return float_from_bits(kept & 0xffff0000u);
}

/*
 * Nearest binary16 value. Three ranges by magnitude: below 2^-14 the spacing is fixed at 2^-24, and adding 0.5, whose own spacing
 * is 2^-24, rounds to it; from there 13 of the 23 fraction bits go; from 65520 on (halfway between 65504 and 65536) it is Inf.
 */
static inline float round_fp16(float x)
{
    uint32_t bits = float_bits(x), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
    uint32_t small = float_bits((float_from_bits(magnitude) + 0.5f) - 0.5f);
    uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & 0xffffe000u;
    uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x477ff000u ? 0x7f800000u : result;
    result = magnitude > 0x7f800000u ? (magnitude | 0x00400000u) & 0xffffe000u : result;
    return float_from_bits(sign | result);
}

/* x[n] in place. Nothing to do for fp32. */
void precision_round(precision format, float *x, size_t n);

/* Bits of values that the format has already (bf16 or fp16), and back; exact both ways. */
uint16_t precision_pack_one(precision format, float x);
float precision_unpack_one(precision format, uint16_t bits);
void precision_pack(precision format, uint16_t *out, const float *in, size_t n);
void precision_unpack(precision format, float *out, const uint16_t *in, size_t n);

/* sum[i] = round(sum[i] + round(x[i])): how a gradient of 16 bits grows over the micro-steps, and over ranks with 16-bit x. */
void precision_accumulate(precision format, uint16_t *sum, const float *x, size_t n);
void precision_accumulate_packed(precision format, uint16_t *sum, const uint16_t *x, size_t n);

/* Largest finite value of the format. */
float precision_max(precision format);
const char *precision_name(precision format);

#endif
