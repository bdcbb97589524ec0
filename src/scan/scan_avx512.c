/*
 * Kernels for AVX-512 (F, BW, VL, DQ). The same lanes as everywhere, two AVX2 registers at a time; see scan_avx2.c for the reasons.
 */
#include "scan/scan_finite_math.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "scan/scan_count.h"
#include "scan/scan_fpenv.h"

#define TARGET "avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,popcnt"
#define AVX512 __attribute__((target(TARGET)))
#define BODY static inline __attribute__((always_inline, target(TARGET)))

BODY __m512i load(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

/* ---- largest code ------------------------------------------------------------------------------------------------------------ */

BODY __m512i max_of(int bits, __m512i a, __m512i b)
{
    switch (bits) {
    case 8: return _mm512_max_epu8(a, b);
    case 16: return _mm512_max_epu16(a, b);
    case 32: return _mm512_max_epu32(a, b);
    default: return _mm512_max_epu64(a, b);
    }
}

BODY __m512i min_of(int bits, __m512i a, __m512i b)
{
    switch (bits) {
    case 8: return _mm512_min_epu8(a, b);
    case 16: return _mm512_min_epu16(a, b);
    case 32: return _mm512_min_epu32(a, b);
    default: return _mm512_min_epu64(a, b);
    }
}

BODY __m512i broadcast(int bits, uint64_t value)
{
    switch (bits) {
    case 8: return _mm512_set1_epi8((char)value);
    case 16: return _mm512_set1_epi16((short)value);
    case 32: return _mm512_set1_epi32((int)value);
    default: return _mm512_set1_epi64((long long)value);
    }
}

BODY __m512i less_one(int bits, __m512i v)
{
    switch (bits) {
    case 8: return _mm512_sub_epi8(v, _mm512_set1_epi8(1));
    case 16: return _mm512_sub_epi16(v, _mm512_set1_epi16(1));
    case 32: return _mm512_sub_epi32(v, _mm512_set1_epi32(1));
    default: return _mm512_sub_epi64(v, _mm512_set1_epi64(1));
    }
}

BODY uint64_t zeros_of(int bits, __m512i v)
{
    switch (bits) {
    case 8: return (uint64_t)_mm_popcnt_u64(_mm512_testn_epi8_mask(v, v));
    case 16: return (uint64_t)_mm_popcnt_u32(_mm512_testn_epi16_mask(v, v));
    case 32: return (uint64_t)_mm_popcnt_u32(_mm512_testn_epi32_mask(v, v));
    default: return (uint64_t)_mm_popcnt_u32(_mm512_testn_epi64_mask(v, v));
    }
}

/* Largest or smallest part of a register. In registers: these few steps are all that is between two blocks. */
BODY uint64_t reduce(int bits, __m512i v, int smallest)
{
    __m256i half = _mm512_castsi512_si256(v), other = _mm512_extracti64x4_epi64(v, 1);
    __m128i quarter, fourth, none = _mm_set1_epi32(-1);
    if (bits == 64) return smallest ? _mm512_reduce_min_epu64(v) : _mm512_reduce_max_epu64(v);
    if (bits == 32) return smallest ? _mm512_reduce_min_epu32(v) : _mm512_reduce_max_epu32(v);
    if (bits == 16) half = smallest ? _mm256_min_epu16(half, other) : _mm256_max_epu16(half, other);
    else half = smallest ? _mm256_min_epu8(half, other) : _mm256_max_epu8(half, other);
    quarter = _mm256_castsi256_si128(half);
    fourth = _mm256_extracti128_si256(half, 1);
    if (bits == 16) quarter = smallest ? _mm_min_epu16(quarter, fourth) : _mm_max_epu16(quarter, fourth);
    else quarter = smallest ? _mm_min_epu8(quarter, fourth) : _mm_max_epu8(quarter, fourth);
    /* There is one instruction for it, the smallest of eight; the largest is the smallest complement. */
    if (!smallest) quarter = _mm_xor_si128(quarter, none);
    if (bits == 8) quarter = _mm_min_epu8(quarter, _mm_srli_epi16(quarter, 8));
    if (bits == 8) quarter = _mm_and_si128(quarter, _mm_set1_epi16(0xff));
    quarter = _mm_minpos_epu16(quarter);
    return ((uint64_t)_mm_extract_epi16(quarter, 0) ^ (smallest ? 0 : UINT64_MAX)) & ((UINT64_C(1) << bits) - 1);
}

/* fb_lanes_sum of eight lanes. */
BODY double eight_lanes_sum(__m512d v)
{
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

BODY uint64_t peak_body(int bits, unsigned how, uint64_t flip_bits, uint64_t mask_bits, const uint8_t *data, size_t n)
{
    const __m512i flip = broadcast(bits, flip_bits), mask = broadcast(bits, mask_bits);
    __m512i m0 = _mm512_setzero_si512(), m1 = m0, m2 = m0, m3 = m0;
    size_t bytes = n * (size_t)bits / 8, i = 0;
    for (; i + 256 <= bytes; i += 256) {
        fb_ahead(how, data + i, 256);
        if (!(how & FB_AHEAD)) fb_near(data + i, 256);
        m0 = max_of(bits, m0, _mm512_and_si512(_mm512_xor_si512(load(data + i), flip), mask));
        m1 = max_of(bits, m1, _mm512_and_si512(_mm512_xor_si512(load(data + i + 64), flip), mask));
        m2 = max_of(bits, m2, _mm512_and_si512(_mm512_xor_si512(load(data + i + 128), flip), mask));
        m3 = max_of(bits, m3, _mm512_and_si512(_mm512_xor_si512(load(data + i + 192), flip), mask));
    }
    for (; i + 64 <= bytes; i += 64) m0 = max_of(bits, m0, _mm512_and_si512(_mm512_xor_si512(load(data + i), flip), mask));
    if (i < bytes) {
        /* What is missing must be no code at all, so it stays as it was. */
        __mmask64 present = ((__mmask64)1 << (bytes - i)) - 1;
        __m512i v = _mm512_and_si512(_mm512_xor_si512(_mm512_maskz_loadu_epi8(present, data + i), flip), mask);
        m0 = max_of(bits, m0, _mm512_maskz_mov_epi8(present, v));
    }
    return reduce(bits, max_of(bits, max_of(bits, m0, m1), max_of(bits, m2, m3)), 0);
}

AVX512 static uint64_t avx512_peak(const fb_format *format, unsigned how, const uint8_t *data, size_t n)
{
    switch (format->part_bits) {
    case 8:
        if (format->test_mask == 0x7f) return peak_body(8, how, 0, 0x7f, data, n);
        return peak_body(8, how, format->test_flip, 0xff, data, n);
    case 16: return peak_body(16, how, 0, 0x7fff, data, n);
    case 32: return peak_body(32, how, 0, 0x7fffffff, data, n);
    default: return peak_body(64, how, 0, UINT64_MAX >> 1, data, n);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------ */

/* Statistics take the smallest magnitude along; what it says is in the block (zeros, subnormals) is
 * then counted in a second look. */
typedef struct seen {
    __m512i mask, peak, low;
} seen;

BODY seen see_nothing(const fb_format *format, int bits)
{
    seen s;
    s.mask = broadcast(bits, format->abs_mask);
    s.peak = _mm512_setzero_si512();
    s.low = _mm512_set1_epi32(-1);
    return s;
}

BODY void see(int bits, int statistics, __m512i v, seen *s)
{
    v = _mm512_and_si512(v, s->mask);
    s->peak = max_of(bits, s->peak, v);
    if (statistics) s->low = min_of(bits, s->low, v);
}

BODY uint64_t below_of(int bits, __m512i v, __m512i limit)
{
    switch (bits) {
    case 8: return (uint64_t)_mm_popcnt_u64(_mm512_cmplt_epu8_mask(v, limit));
    case 16: return (uint64_t)_mm_popcnt_u32(_mm512_cmplt_epu16_mask(v, limit));
    case 32: return (uint64_t)_mm_popcnt_u32(_mm512_cmplt_epu32_mask(v, limit));
    default: return (uint64_t)_mm_popcnt_u32(_mm512_cmplt_epu64_mask(v, limit));
    }
}

/* Parts below min_normal, of which zeros; the smallest other than zero, minus 1. The block is in L1 by now. */
BODY void see_small(const fb_format *format, int bits, const uint8_t *data, size_t n, fb_block *out)
{
    const __m512i mask = broadcast(bits, format->abs_mask), limit = broadcast(bits, format->min_normal);
    const size_t bytes = n * (size_t)bits / 8;
    __m512i low = _mm512_set1_epi32(-1), v;
    uint64_t small = 0, zeros = 0;
    uint8_t rest[64] = {0};
    size_t i;
    for (i = 0; i < bytes; i += 64) {
        if (bytes - i < 64) memcpy(rest, data + i, (bytes - i) % 64); /* less than 64 in any case; gcc 12 at -O0 does not see it */
        v = _mm512_and_si512(load(bytes - i < 64 ? rest : data + i), mask);
        low = min_of(bits, low, less_one(bits, v));
        small += below_of(bits, v, limit);
        zeros += zeros_of(bits, v);
    }
    out->low_less1 = reduce(bits, low, 1);
    if (bits < 64 && out->low_less1 == (UINT64_C(1) << bits % 64) - 1) out->low_less1 = UINT64_MAX;
    out->subnormals = small - zeros;
    out->zeros = zeros - (64 - bytes % 64) % 64 / ((size_t)bits / 8); /* what fills the last register up is zeros */
}

/* What is counted of a block once `seen` is known. Padding only ever makes low a zero, so that the second look decides. */
BODY void see_end(int bits, int statistics, const fb_format *format, const uint8_t *data, size_t n, const seen *s, fb_block *out)
{
    memset(out, 0, sizeof *out);
    out->peak = reduce(bits, s->peak, 0);
    if (!statistics) return;
    out->low_less1 = reduce(bits, s->low, 1) - 1;
    if (out->low_less1 + 1 < format->min_normal) see_small(format, bits, data, n, out);
    if (out->peak >= format->max_bits) out->at_max = fb_count(format, data, n, format->max_bits, format->max_bits);
}

BODY __m512d add_square(__m512d lane, __m512d v)
{
    return _mm512_add_pd(lane, _mm512_mul_pd(v, v));
}

/* 32 parts of 64 bits. */
BODY void wide_group(int statistics, const uint8_t *p, __m512d lanes[4], seen *s)
{
    int k;
    for (k = 0; k < 4; k++) {
        __m512i v = load(p + 64 * k);
        see(64, statistics, v, s);
        lanes[k] = add_square(lanes[k], _mm512_castsi512_pd(v));
    }
}

BODY void wide_block(const fb_format *format, int statistics, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    __m512d lanes[4];
    uint8_t rest[256] = {0};
    size_t i;
    const uint8_t *start = data;
    seen s = see_nothing(format, 64);
    for (i = 0; i < 4; i++) lanes[i] = _mm512_setzero_pd();
    for (i = 0; i + 32 <= n; i += 32) {
        fb_ahead(how, data + 8 * i, 256);
        fb_near(data + 8 * i, 256);
        wide_group(statistics, data + 8 * i, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data + 8 * i, 8 * (n - i));
        wide_group(statistics, rest, lanes, &s);
    }
    see_end(64, statistics, format, start, n, &s, out);
    out->sum = eight_lanes_sum(_mm512_add_pd(_mm512_add_pd(lanes[0], lanes[2]), _mm512_add_pd(lanes[1], lanes[3])));
}

BODY __m512 square(__m512 v)
{
    return _mm512_mul_ps(v, v);
}

BODY void add_quads(__m512 quads, __m512d lanes[2])
{
    lanes[0] = _mm512_add_pd(lanes[0], _mm512_cvtps_pd(_mm512_castps512_ps256(quads)));
    lanes[1] = _mm512_add_pd(lanes[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(quads, 1)));
}

enum { QUAD_F32, QUAD_BF16, QUAD_F16, QUAD_E4, QUAD_E5 };

BODY int bits_of(int kind)
{
    return kind == QUAD_F32 ? 32 : kind == QUAD_E4 || kind == QUAD_E5 ? 8 : 16;
}

BODY __m512 square_pairs(__m512i v)
{
    __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
    return _mm512_fmadd_ps(even, even, square(odd));
}

BODY __m512 sixteen_floats(int kind, const uint8_t *p)
{
    __m256i wide;
    if (kind == QUAD_F32) return _mm512_castsi512_ps(load(p));
    if (kind == QUAD_F16) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
    wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    if (kind == QUAD_E5) return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7));
}

/* (a + b) + (c + d). Squares of F16 and less are exact, so that fused operations give the same. */
BODY __m512 sum_of_squares(int kind, __m512 a, __m512 b, __m512 c, __m512 d)
{
    if (kind == QUAD_F32) return _mm512_add_ps(_mm512_add_ps(square(a), square(b)), _mm512_add_ps(square(c), square(d)));
    return _mm512_add_ps(_mm512_fmadd_ps(b, b, square(a)), _mm512_fmadd_ps(d, d, square(c)));
}

/* The quads of 64 parts. */
BODY __m512 quads_of(int kind, const uint8_t *p)
{
    const size_t row = 2 * (size_t)bits_of(kind);
    if (kind == QUAD_BF16) return _mm512_add_ps(square_pairs(load(p)), square_pairs(load(p + 64)));
    return sum_of_squares(kind, sixteen_floats(kind, p), sixteen_floats(kind, p + row), sixteen_floats(kind, p + 2 * row),
                          sixteen_floats(kind, p + 3 * row));
}

/* 64 parts of F32, 128 of the others. */
BODY void quad_group(int kind, int statistics, const uint8_t *p, size_t group_bytes, __m512d lanes[2], seen *s)
{
    size_t i;
    for (i = 0; i < group_bytes; i += 64) see(bits_of(kind), statistics, load(p + i), s);
    if (kind == QUAD_F32) add_quads(quads_of(kind, p), lanes);
    else add_quads(_mm512_add_ps(quads_of(kind, p), quads_of(kind, p + group_bytes / 2)), lanes);
}

BODY void quad_end(int bits, int statistics, __m512d lanes[2], const fb_format *format, const uint8_t *data, size_t n,
                   const seen *s, fb_block *out)
{
    see_end(bits, statistics, format, data, n, s, out);
    out->sum = eight_lanes_sum(_mm512_add_pd(lanes[0], lanes[1]));
}

BODY void quad_block(const fb_format *format, int kind, int statistics, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    const size_t bits = (size_t)bits_of(kind), group = kind == QUAD_F32 ? 64 : 128, group_bytes = group * bits / 8;
    __m512d lanes[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    uint8_t rest[256] = {0};
    size_t i;
    const uint8_t *start = data;
    seen s = see_nothing(format, (int)bits);
    for (i = 0; i + group <= n; i += group, data += group_bytes) {
        fb_ahead(how, data, group_bytes);
        fb_near(data, group_bytes);
        quad_group(kind, statistics, data, group_bytes, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data, (n - i) * bits / 8);
        quad_group(kind, statistics, rest, group_bytes, lanes, &s);
    }
    quad_end((int)bits, statistics, lanes, format, start, n, &s, out);
    out->sum *= fb_pow2(format->fast_shift);
}

/* One function an operation and format, not inlined: the floating-point modes are set around them. */
#define BLOCK(name, call, ...)                                                                                                    \
    AVX512 static                                                                                                                 \
        __attribute__((noinline)) void name##_plain(const fb_format *f, unsigned how, const uint8_t *p, size_t n, fb_block *out)  \
    {                                                                                                                             \
        call(f, __VA_ARGS__ 0, how, p, n, out);                                                                                   \
    }                                                                                                                             \
    AVX512 static                                                                                                                 \
        __attribute__((noinline)) void name##_counts(const fb_format *f, unsigned how, const uint8_t *p, size_t n, fb_block *out) \
    {                                                                                                                             \
        call(f, __VA_ARGS__ 1, how, p, n, out);                                                                                   \
    }                                                                                                                             \
    static void name(const fb_format *f, unsigned how, const uint8_t *p, size_t n, fb_block *out)                                 \
    {                                                                                                                             \
        if (how & FB_COUNTS) name##_counts(f, how, p, n, out);                                                                    \
        else name##_plain(f, how, p, n, out);                                                                                     \
    }
#define NO_KIND
BLOCK(block_f64, wide_block, NO_KIND)
BLOCK(block_f32, quad_block, QUAD_F32, )
BLOCK(block_f16, quad_block, QUAD_F16, )
BLOCK(block_bf16, quad_block, QUAD_BF16, )
BLOCK(block_e4, quad_block, QUAD_E4, )
BLOCK(block_e5, quad_block, QUAD_E5, )

static void avx512_block(const fb_format *format, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    fb_fpenv modes;
    switch (format->dtype) {
    case FB_F64:
    case FB_C128: block_f64(format, how, data, n, out); return;
    case FB_F32:
    case FB_C64:
        modes = fb_fpenv_enter_flushing();
        block_f32(format, how, data, n, out);
        fb_fpenv_leave(modes);
        return;
    case FB_F16: block_f16(format, how, data, n, out); return;
    case FB_BF16:
        modes = fb_fpenv_enter_flushing();
        block_bf16(format, how, data, n, out);
        fb_fpenv_leave(modes);
        return;
    case FB_F8_E4M3FN:
    case FB_F8_E4M3FNUZ: block_e4(format, how, data, n, out); return;
    case FB_F8_E5M2: block_e5(format, how, data, n, out); return;
    default: fb_kernel_ref.block(format, how, data, n, out); return;
    }
}

/* ---- multiply ---------------------------------------------------------------------------------------------------------------- */

/* A NaN passes: it came from a BF16, its lower half is zero, and nothing is carried out of there. */
BODY __m512i round_bf16(__m512i v)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(v, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(0x7fff)), odd);
}

AVX512 static __attribute__((noinline)) size_t scale_f64(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512d f = _mm512_set1_pd(factor);
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        fb_ahead(FB_AHEAD, source + 8 * i, 64);
        fb_near(source + 8 * i, 64);
        _mm512_storeu_pd((void *)(target + 8 * i), _mm512_mul_pd(_mm512_castsi512_pd(load(source + 8 * i)), f));
    }
    return i;
}

AVX512 static __attribute__((noinline)) size_t scale_f32(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512 f = _mm512_set1_ps((float)factor);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        fb_ahead(FB_AHEAD, source + 4 * i, 64);
        fb_near(source + 4 * i, 64);
        _mm512_storeu_ps((void *)(target + 4 * i), _mm512_mul_ps(_mm512_castsi512_ps(load(source + 4 * i)), f));
    }
    return i;
}

AVX512 static __attribute__((noinline)) size_t scale_bf16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512 f = _mm512_set1_ps((float)factor);
    __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    size_t i;
    for (i = 0; i + 32 <= n; i += 32) {
        fb_ahead(FB_AHEAD, source + 2 * i, 64);
        fb_near(source + 2 * i, 64);
        __m512i v = load(source + 2 * i);
        __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)), f);
        __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(v, upper)), f);
        __m512i low = _mm512_srli_epi32(round_bf16(_mm512_castps_si512(even)), 16);
        __m512i high = round_bf16(_mm512_castps_si512(odd));
        _mm512_storeu_si512((void *)(target + 2 * i), _mm512_mask_blend_epi16(0xaaaaaaaau, low, high));
    }
    return i;
}

AVX512 static __attribute__((noinline)) size_t scale_f16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512 f = _mm512_set1_ps((float)factor);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        fb_ahead(FB_AHEAD, source + 2 * i, 64);
        fb_near(source + 2 * i, 64);
        _mm512_storeu_ps((void *)(target + 4 * i), _mm512_mul_ps(sixteen_floats(QUAD_F16, source + 2 * i), f));
    }
    return i;
}

static void avx512_scale(const fb_format *format, const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    size_t done;
    size_t target_bytes = format->dtype == FB_F16 ? 4 : fb_format_part_bytes(format);
    switch (format->dtype) {
    case FB_F64: done = scale_f64(source, target, n, factor); break;
    case FB_F32: done = scale_f32(source, target, n, factor); break;
    case FB_BF16: done = scale_bf16(source, target, n, factor); break;
    default: done = scale_f16(source, target, n, factor); break;
    }
    fb_kernel_ref.scale(format, source + done * fb_format_part_bytes(format), target + done * target_bytes, n - done, factor);
}

/* ---- multiply and judge ------------------------------------------------------------------------------------------------------ */

/*
 * Products must keep their subnormals and squares must lose theirs, in one loop and so in one floating-point mode: squares of what
 * is below 2^-63 are left out by a mask, which is the same as flushing them.
 */
BODY __m512 judged_square(__m512 v, seen *s)
{
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(v), s->mask);
    s->peak = _mm512_max_epu32(s->peak, magnitude);
    return _mm512_maskz_mul_ps(_mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(64 << 23)), v, v);
}

/* 64 elements of F32 or F16 into F32. */
BODY void scaled_group(int kind, const uint8_t *p, uint8_t *target, __m512 factor, __m512d lanes[2], seen *s)
{
    __m512 squares[4];
    size_t k;
    for (k = 0; k < 4; k++) {
        __m512 v = _mm512_mul_ps(sixteen_floats(kind, p + k * 2 * (size_t)bits_of(kind)), factor);
        _mm512_storeu_ps((void *)(target + 64 * k), v);
        squares[k] = judged_square(v, s);
    }
    add_quads(_mm512_add_ps(_mm512_add_ps(squares[0], squares[1]), _mm512_add_ps(squares[2], squares[3])), lanes);
}

BODY void scaled_block(int kind, unsigned how, const uint8_t *source, uint8_t *target, size_t n, double factor, fb_block *out)
{
    const size_t bytes = (size_t)bits_of(kind) / 8;
    __m512 f = _mm512_set1_ps((float)factor);
    __m512d lanes[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    uint8_t rest[256] = {0}, products[256];
    size_t i;
    seen s = see_nothing(fb_format_of(FB_F32), 32);
    for (i = 0; i + 64 <= n; i += 64, source += 64 * bytes, target += 256) {
        fb_ahead(how, source, 64 * bytes);
        fb_near(source, 64 * bytes);
        scaled_group(kind, source, target, f, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, source, (n - i) * bytes);
        scaled_group(kind, rest, products, f, lanes, &s);
        memcpy(target, products, (n - i) * 4);
    }
    quad_end(32, 0, lanes, NULL, NULL, 0, &s, out);
}

AVX512 static __attribute__((noinline)) int avx512_scale_block(const fb_format *format, unsigned how, const uint8_t *source,
                                                               uint8_t *target, size_t n, double factor, fb_block *out)
{
    if (format->dtype == FB_F32) scaled_block(QUAD_F32, how, source, target, n, factor, out);
    else if (format->dtype == FB_F16) scaled_block(QUAD_F16, how, source, target, n, factor, out);
    else return 0;
    return 1;
}

const fb_kernel fb_kernel_avx512 = {"avx512", avx512_peak, avx512_block, avx512_scale, avx512_scale_block};

#else
typedef int fb_scan_avx512_is_not_for_this_machine;
#endif
