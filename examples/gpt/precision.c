/* precision.c: rounding of whole arrays. The scalar functions in precision.h say how; here the loops
 * that the compiler vectorises. */
#include "precision.h"
#include "clones.h"

static inline uint16_t pack_fp16(float x)
{
    uint32_t bits = float_bits(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    /* The value is a multiple of 2^-24 below 2^-14, so this is a whole number of at most 10 bits. */
    uint32_t small = (uint32_t)(int32_t)(float_from_bits(magnitude < 0x38800000u ? magnitude : 0u) * 16777216.0f);
    uint32_t normal = (magnitude - 0x38000000u) >> 13;
    uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x7f800000u ? 0x7c00u | ((magnitude >> 13) & 0x3ffu) : result;
    return (uint16_t)(sign | result);
}

static inline float unpack_fp16(uint16_t half)
{
    uint32_t sign = ((uint32_t)half & 0x8000u) << 16, magnitude = (uint32_t)half & 0x7fffu;
    uint32_t small = float_bits((float)(int32_t)magnitude * 5.9604644775390625e-8f); /* 2^-24, the smallest subnormal */
    uint32_t normal = (magnitude << 13) + 0x38000000u;
    uint32_t result = magnitude < 0x400u ? small : normal;
    result = magnitude >= 0x7c00u ? 0x7f800000u | (magnitude & 0x3ffu) << 13 : result;
    return float_from_bits(sign | result);
}

static inline uint16_t pack_bf16(float x)
{
    return (uint16_t)(float_bits(x) >> 16);
}

static inline float unpack_bf16(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

GPT_CLONES void precision_round(precision format, float *x, size_t n)
{
    if (format == PRECISION_BF16)
        for (size_t i = 0; i < n; i++) x[i] = round_bf16(x[i]);
    if (format == PRECISION_FP16)
        for (size_t i = 0; i < n; i++) x[i] = round_fp16(x[i]);
}

uint16_t precision_pack_one(precision format, float x)
{
    return format == PRECISION_BF16 ? pack_bf16(x) : pack_fp16(x);
}

float precision_unpack_one(precision format, uint16_t bits)
{
    return format == PRECISION_BF16 ? unpack_bf16(bits) : unpack_fp16(bits);
}

GPT_CLONES void precision_pack(precision format, uint16_t *out, const float *in, size_t n)
{
    if (format == PRECISION_BF16)
        for (size_t i = 0; i < n; i++) out[i] = pack_bf16(in[i]);
    else
        for (size_t i = 0; i < n; i++) out[i] = pack_fp16(in[i]);
}

GPT_CLONES void precision_unpack(precision format, float *out, const uint16_t *in, size_t n)
{
    if (format == PRECISION_BF16)
        for (size_t i = 0; i < n; i++) out[i] = unpack_bf16(in[i]);
    else
        for (size_t i = 0; i < n; i++) out[i] = unpack_fp16(in[i]);
}

GPT_CLONES void precision_accumulate(precision format, uint16_t *sum, const float *x, size_t n)
{
    if (format == PRECISION_BF16)
        for (size_t i = 0; i < n; i++) sum[i] = pack_bf16(round_bf16(unpack_bf16(sum[i]) + round_bf16(x[i])));
    else
        for (size_t i = 0; i < n; i++) sum[i] = pack_fp16(round_fp16(unpack_fp16(sum[i]) + round_fp16(x[i])));
}

GPT_CLONES void precision_accumulate_packed(precision format, uint16_t *sum, const uint16_t *x, size_t n)
{
    if (format == PRECISION_BF16)
        for (size_t i = 0; i < n; i++) sum[i] = pack_bf16(round_bf16(unpack_bf16(sum[i]) + unpack_bf16(x[i])));
    else
        for (size_t i = 0; i < n; i++) sum[i] = pack_fp16(round_fp16(unpack_fp16(sum[i]) + unpack_fp16(x[i])));
}

float precision_max(precision format)
{
    switch (format) {
    case PRECISION_FP16: return 65504.0f;
    case PRECISION_BF16: return float_from_bits(0x7f7f0000u);
    default: return float_from_bits(0x7f7fffffu);
    }
}

const char *precision_name(precision format)
{
    return format == PRECISION_FP32 ? "fp32" : format == PRECISION_BF16 ? "bf16" : "fp16";
}
