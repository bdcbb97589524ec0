/*
 * elementary.h: exp and tanh in float, written out so that loops over them vectorise and so that every machine gives the same bits
 * (the C library picks a variant by CPU). NaN goes through; exp overflows to Inf and underflows to 0 as it should.
 */
#ifndef GPT_ELEMENTARY_H
#define GPT_ELEMENTARY_H

#include "clones.h"
#include "precision.h"

/* exp(x) = 2^n * exp(r), |r| <= log(2)/2. Coefficients of exp(r): Cephes expf. Error at most 2 units in the last place. */
GPT_INLINE float exp_float(float x)
{
    const float round_shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest whole number in the low bits */
    float bounded = x > 89.0f ? 89.0f : x; /* comparisons with NaN are false, so NaN stays */
    bounded = bounded < -105.0f ? -105.0f : bounded;
    float shifted = bounded * 1.44269504088896341f + round_shift;
    float n = shifted - round_shift;
    float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f; /* log(2) in two parts: the first product is exact */
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* 2^n in two factors, since n may be 128 or below -126. n is whole and small: the conversion is
     * exact; NaN is replaced first. */
    int32_t whole = (int32_t)(float_bits(shifted) - float_bits(round_shift));
    int32_t half = whole >> 1;
    float first = float_from_bits((uint32_t)(half + 127) << 23), second = float_from_bits((uint32_t)(whole - half + 127) << 23);
    return p * first * second;
}

GPT_INLINE float tanh_float(float x)
{
    return 1.0f - 2.0f / (exp_float(2.0f * x) + 1.0f);
}

#endif
