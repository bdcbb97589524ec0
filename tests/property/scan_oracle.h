/*
 * What the scanners must say, worked out from the definitions of the formats and with none of their code: fields are taken apart
 * with shifts, values are built with ldexp, sums are in long double.
 */
#ifndef FB_TEST_SCAN_ORACLE_H
#define FB_TEST_SCAN_ORACLE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firstbad/scan.h"

static const int32_t oracle_dtypes[] = {FB_F64,         FB_F32,         FB_F16,     FB_BF16, FB_F8_E4M3FN, FB_F8_E5M2,
                                        FB_F8_E4M3FNUZ, FB_F8_E5M2FNUZ, FB_F8_E8M0, FB_C64,  FB_C128};
enum { ORACLE_DTYPES = (int)(sizeof oracle_dtypes / sizeof oracle_dtypes[0]) };

/* Kernels that this machine can run, "ref" first. */
static inline size_t oracle_kernels(const char *names[4])
{
    static const char *const all[] = {"ref", "avx2", "avx512", "neon"};
    size_t i, n = 0;
    for (i = 0; i < 4; i++)
        if (fb_scan_kernel_use(all[i], NULL) == FB_OK) names[n++] = all[i];
    (void)fb_scan_kernel_use("ref", NULL);
    return n;
}

/* splitmix64 */
static inline uint64_t oracle_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t oracle_seed(void)
{
    const char *text = getenv("FIRSTBAD_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : UINT64_C(20240229);
    printf("seed %llu (FIRSTBAD_TEST_SEED replays another)\n", (unsigned long long)seed);
    return seed;
}

static inline size_t oracle_parts(int32_t dtype)
{
    return dtype == FB_C64 || dtype == FB_C128 ? 2 : 1;
}

static inline size_t oracle_part_bytes(int32_t dtype)
{
    switch (dtype) {
    case FB_F64:
    case FB_C128: return 8;
    case FB_F32:
    case FB_C64: return 4;
    case FB_F16:
    case FB_BF16: return 2;
    default: return 1;
    }
}

typedef struct oracle_value {
    int32_t kind; /* FB_KIND_* */
    int zero, subnormal, at_max;
    double value;
    unsigned bin;
} oracle_value;

static inline oracle_value oracle_decode(int32_t dtype, uint64_t bits)
{
    oracle_value v = {FB_KIND_NONE, 0, 0, 0, 0.0, 0};
    int width = (int)oracle_part_bytes(dtype) * 8, mantissa_bits = 0, bias = 0, exponent, negative, all_ones;
    uint64_t mantissa;
    switch (dtype) {
    case FB_F64:
    case FB_C128: mantissa_bits = 52, bias = 1023; break;
    case FB_F32:
    case FB_C64: mantissa_bits = 23, bias = 127; break;
    case FB_F16: mantissa_bits = 10, bias = 15; break;
    case FB_BF16: mantissa_bits = 7, bias = 127; break;
    case FB_F8_E4M3FN: mantissa_bits = 3, bias = 7; break;
    case FB_F8_E5M2: mantissa_bits = 2, bias = 15; break;
    case FB_F8_E4M3FNUZ: mantissa_bits = 3, bias = 8; break;
    case FB_F8_E5M2FNUZ: mantissa_bits = 2, bias = 16; break;
    default:
        if (bits == 0xff) v.kind = FB_KIND_NAN, v.bin = 255;
        else v.value = ldexp(1.0, (int)bits - 127), v.at_max = bits == 0xfe, v.bin = bits == 0 ? 1 : (unsigned)bits;
        return v;
    }
    mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1);
    exponent = (int)(bits >> mantissa_bits) & ((1 << (width - 1 - mantissa_bits)) - 1);
    negative = (int)(bits >> (width - 1)) & 1;
    all_ones = exponent == (1 << (width - 1 - mantissa_bits)) - 1;
    if (dtype == FB_F8_E4M3FN) {
        if (all_ones && mantissa == 7) v.kind = FB_KIND_NAN;
        v.at_max = all_ones && mantissa == 6;
    } else if (dtype == FB_F8_E4M3FNUZ || dtype == FB_F8_E5M2FNUZ) {
        if (bits == 0x80) v.kind = FB_KIND_NAN;
        v.at_max = (bits & 0x7f) == 0x7f;
    } else {
        if (all_ones) v.kind = mantissa ? FB_KIND_NAN : negative ? FB_KIND_NEG_INF : FB_KIND_POS_INF;
        v.at_max = exponent == (1 << (width - 1 - mantissa_bits)) - 2 && mantissa == (UINT64_C(1) << mantissa_bits) - 1;
    }
    v.bin = 255;
    if (v.kind != FB_KIND_NONE) return v;
    v.zero = exponent == 0 && mantissa == 0;
    v.subnormal = exponent == 0 && mantissa != 0;
    v.value = exponent ? ldexp(1.0 + ldexp((double)mantissa, -mantissa_bits), exponent - bias)
                       : ldexp((double)mantissa, 1 - bias - mantissa_bits);
    v.bin = 0;
    if (exponent) v.bin = (unsigned)(exponent - bias + 127 < 1 ? 1 : exponent - bias + 127 > 254 ? 254 : exponent - bias + 127);
    if (negative) v.value = -v.value;
    return v;
}

static inline uint64_t oracle_get(int32_t dtype, const void *data, size_t part)
{
    uint64_t bits = 0;
    memcpy(&bits, (const uint8_t *)data + part * oracle_part_bytes(dtype), oracle_part_bytes(dtype)); /* little endian */
    return bits;
}

static inline void oracle_put(int32_t dtype, void *data, size_t part, uint64_t bits)
{
    memcpy((uint8_t *)data + part * oracle_part_bytes(dtype), &bits, oracle_part_bytes(dtype));
}

/* What fb_scan must fill, except the sum, which comes as a long double; and an exact histogram. */
static inline long double oracle_scan(int32_t dtype, const void *data, size_t n, fb_scan_result *r, uint64_t bins[256])
{
    size_t parts = oracle_parts(dtype), i, k;
    long double sum = 0.0L;
    memset(r, 0, sizeof *r);
    memset(bins, 0, 256 * sizeof *bins);
    r->size = (uint32_t)sizeof *r;
    r->dtype = dtype;
    r->elements = n;
    r->first_index = FB_NO_INDEX;
    r->checked = 1;
    for (i = 0; i < n; i++) {
        oracle_value v[2];
        int32_t kind = FB_KIND_NONE;
        size_t bad_part = 0;
        int zero = 1, subnormal = 0, at_max = 0;
        for (k = 0; k < parts; k++) {
            v[k] = oracle_decode(dtype, oracle_get(dtype, data, i * parts + k));
            bins[v[k].bin]++;
            if (v[k].kind != FB_KIND_NONE && (kind == FB_KIND_NONE || v[k].kind < kind)) kind = v[k].kind, bad_part = k;
        }
        if (kind != FB_KIND_NONE) {
            if (r->first_index == FB_NO_INDEX) {
                r->first_index = i;
                r->first_kind = kind;
                r->first_bits = oracle_get(dtype, data, i * parts + bad_part);
            }
            r->nan += kind == FB_KIND_NAN;
            r->pos_inf += kind == FB_KIND_POS_INF;
            r->neg_inf += kind == FB_KIND_NEG_INF;
            continue;
        }
        for (k = 0; k < parts; k++) {
            double magnitude = fabs(v[k].value);
            zero &= v[k].zero;
            subnormal |= v[k].subnormal;
            at_max |= v[k].at_max;
            if (magnitude > r->abs_max) r->abs_max = magnitude;
            if (magnitude > 0 && (r->abs_min == 0 || magnitude < r->abs_min)) r->abs_min = magnitude;
            sum += (long double)v[k].value * (long double)v[k].value;
        }
        r->zero += (uint64_t)zero;
        r->subnormal += (uint64_t)subnormal;
        r->at_max += (uint64_t)at_max;
    }
    return sum;
}

/* Fill with codes of one of several tempers, so that plain, extreme and bad blocks all come up. */
static inline void oracle_fill(int32_t dtype, void *data, size_t n, int temper, uint64_t *state)
{
    size_t parts = n * oracle_parts(dtype), i;
    uint64_t all = oracle_part_bytes(dtype) == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * oracle_part_bytes(dtype)) - 1;
    for (i = 0; i < parts; i++) {
        uint64_t bits = oracle_random(state) & all;
        oracle_value v;
        if (temper == 0) { /* any code */
            oracle_put(dtype, data, i, bits);
            continue;
        }
        if (temper == 1) bits = oracle_random(state) % 5 ? bits : 0;                     /* finite, many zeros */
        if (temper == 2 && dtype != FB_F8_E8M0) bits = bits & ~(all >> 2 & ~(all >> 6)); /* small: most exponent bits away */
        if (temper == 3 && dtype != FB_F8_E8M0) bits = bits | (all >> 2 & ~(all >> 4));  /* large */
        v = oracle_decode(dtype, bits);
        oracle_put(dtype, data, i, v.kind == FB_KIND_NONE ? bits : (dtype == FB_F8_E8M0 ? 0x7f : 0));
    }
}

static inline fb_view oracle_view(int32_t dtype, void *data, uint64_t count)
{
    fb_view view;
    memset(&view, 0, sizeof view);
    view.data = data;
    view.count = count;
    view.dtype = dtype;
    view.device = -1;
    return view;
}

#endif
