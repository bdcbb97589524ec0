/*
 * Kernels for AVX-512 (F, BW, VL, DQ). The same lanes as everywhere, two AVX2 registers at a time; see scan_avx2.c for the reasons.
 */
#include "scan/scan_finite_math.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "scan/scan_count.h"
#include "scan/scan_fpenv.h"

#define TARGET "avx512f,avx512bw,avx512vl,avx512dq,f16c,popcnt"
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

BODY uint64_t reduce(int bits, __m512i v, int smallest)
{
    uint8_t bytes[64];
    uint64_t best;
    size_t i, width = (size_t)bits / 8;
    _mm512_storeu_si512((void *)bytes, v);
    best = fb_part_bits(bytes, width, 0);
    for (i = 1; i < 64 / width; i++) {
        uint64_t part = fb_part_bits(bytes, width, i);
        if (smallest ? part < best : part > best) best = part;
    }
    return best;
}

BODY uint64_t peak_body(int bits, uint64_t flip_bits, uint64_t mask_bits, const uint8_t *data, size_t n)
{
    const __m512i flip = broadcast(bits, flip_bits), mask = broadcast(bits, mask_bits);
    __m512i m0 = _mm512_setzero_si512(), m1 = m0, m2 = m0, m3 = m0;
    size_t bytes = n * (size_t)bits / 8, i = 0;
    for (; i + 256 <= bytes; i += 256) {
        fb_ahead(data + i, 256);
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

AVX512 static uint64_t avx512_peak(const fb_format *format, const uint8_t *data, size_t n)
{
    switch (format->part_bits) {
    case 8:
        if (format->test_mask == 0x7f) return peak_body(8, 0, 0x7f, data, n);
        return peak_body(8, format->test_flip, 0xff, data, n);
    case 16: return peak_body(16, 0, 0x7fff, data, n);
    case 32: return peak_body(32, 0, 0x7fffffff, data, n);
    default: return peak_body(64, 0, UINT64_MAX >> 1, data, n);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------ */

typedef struct seen {
    __m512i mask, peak, low;
    uint64_t zeros;
} seen;

BODY seen see_nothing(const fb_format *format, int bits)
{
    seen s;
    s.mask = broadcast(bits, format->abs_mask);
    s.peak = _mm512_setzero_si512();
    s.low = _mm512_set1_epi32(-1);
    s.zeros = 0;
    return s;
}

BODY void see(int bits, int statistics, __m512i v, seen *s)
{
    v = _mm512_and_si512(v, s->mask);
    s->peak = max_of(bits, s->peak, v);
    if (!statistics) return;
    s->low = min_of(bits, s->low, less_one(bits, v));
    s->zeros += zeros_of(bits, v);
}

BODY void see_end(int bits, int statistics, const seen *s, size_t padding, fb_block *out)
{
    memset(out, 0, sizeof *out);
    out->peak = reduce(bits, s->peak, 0);
    out->low_less1 = UINT64_MAX;
    if (!statistics) return;
    out->low_less1 = reduce(bits, s->low, 1);
    if (bits < 64 && out->low_less1 == (UINT64_C(1) << bits % 64) - 1) out->low_less1 = UINT64_MAX;
    out->zeros = s->zeros - padding;
}

BODY __m512d add_square(__m512d lane, __m512d v)
{
    return _mm512_add_pd(lane, _mm512_mul_pd(v, v));
}

/* 32 parts of 64 or 32 bits. */
BODY void wide_group(int bits, int statistics, const uint8_t *p, __m512d lanes[4], seen *s)
{
    int k;
    for (k = 0; k < 4; k++) {
        if (bits == 64) {
            __m512i v = load(p + 64 * k);
            see(64, statistics, v, s);
            lanes[k] = add_square(lanes[k], _mm512_castsi512_pd(v));
        } else {
            if (k % 2 == 0) see(32, statistics, load(p + 32 * k), s);
            lanes[k] = add_square(lanes[k], _mm512_cvtps_pd(_mm256_loadu_ps((const float *)(const void *)(p + 32 * k))));
        }
    }
}

BODY void wide_block(const fb_format *format, int bits, int statistics, const uint8_t *data, size_t n, fb_block *out)
{
    const size_t group_bytes = 4 * (size_t)bits;
    __m512d lanes[4];
    double flat[32];
    uint8_t rest[256] = {0};
    size_t padding = (32 - n % 32) % 32, i;
    seen s = see_nothing(format, bits);
    for (i = 0; i < 4; i++) lanes[i] = _mm512_setzero_pd();
    for (i = 0; i + 32 <= n; i += 32, data += group_bytes) {
        fb_ahead(data, group_bytes);
        wide_group(bits, statistics, data, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data, (n - i) * (size_t)bits / 8);
        wide_group(bits, statistics, rest, lanes, &s);
    }
    for (i = 0; i < 4; i++) _mm512_storeu_pd(flat + 8 * i, lanes[i]);
    see_end(bits, statistics, &s, padding, out);
    out->sum = fb_lanes_sum(flat, 32);
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

BODY __m512 square_pairs(__m512i v)
{
    __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
    return _mm512_add_ps(square(even), square(odd));
}

BODY __m512 sixteen_floats(int bits, int e5, const uint8_t *p)
{
    __m256i wide;
    if (bits == 16) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
    wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    if (e5) return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7));
}

enum { QUAD_BF16, QUAD_F16, QUAD_E4, QUAD_E5 };

BODY void quad_group(int kind, int statistics, const uint8_t *p, __m512d lanes[2], seen *s)
{
    const int bits = kind == QUAD_BF16 || kind == QUAD_F16 ? 16 : 8;
    const size_t row = 2 * (size_t)bits;
    see(bits, statistics, load(p), s);
    if (bits == 16) see(bits, statistics, load(p + 64), s);
    if (kind == QUAD_BF16) {
        add_quads(_mm512_add_ps(square_pairs(load(p)), square_pairs(load(p + 64))), lanes);
    } else {
        __m512 a = square(sixteen_floats(bits, kind == QUAD_E5, p));
        __m512 b = square(sixteen_floats(bits, kind == QUAD_E5, p + row));
        __m512 c = square(sixteen_floats(bits, kind == QUAD_E5, p + 2 * row));
        __m512 d = square(sixteen_floats(bits, kind == QUAD_E5, p + 3 * row));
        add_quads(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)), lanes);
    }
}

BODY void quad_block(const fb_format *format, int kind, int statistics, const uint8_t *data, size_t n, fb_block *out)
{
    const int bits = kind == QUAD_BF16 || kind == QUAD_F16 ? 16 : 8;
    const size_t group_bytes = 8 * (size_t)bits;
    __m512d lanes[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    double flat[16];
    uint8_t rest[128] = {0};
    size_t padding = (64 - n % 64) % 64, i;
    seen s = see_nothing(format, bits);
    for (i = 0; i + 64 <= n; i += 64, data += group_bytes) {
        fb_ahead(data, group_bytes);
        quad_group(kind, statistics, data, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data, (n - i) * (size_t)bits / 8);
        quad_group(kind, statistics, rest, lanes, &s);
    }
    _mm512_storeu_pd(flat, lanes[0]);
    _mm512_storeu_pd(flat + 8, lanes[1]);
    see_end(bits, statistics, &s, padding, out);
    out->sum = fb_lanes_sum(flat, 16) * fb_pow2(format->fast_shift);
}

/* One function an operation and format, not inlined: the floating-point modes are set around them. */
#define BLOCK(name, call, ...)                                                                                                \
    AVX512 static __attribute__((noinline)) void name##_plain(const fb_format *f, const uint8_t *p, size_t n, fb_block *out)  \
    {                                                                                                                         \
        call(f, __VA_ARGS__, 0, p, n, out);                                                                                   \
    }                                                                                                                         \
    AVX512 static __attribute__((noinline)) void name##_counts(const fb_format *f, const uint8_t *p, size_t n, fb_block *out) \
    {                                                                                                                         \
        call(f, __VA_ARGS__, 1, p, n, out);                                                                                   \
        fb_count_rare(f, p, n, out);                                                                                          \
    }                                                                                                                         \
    static void name(const fb_format *f, const uint8_t *p, size_t n, int statistics, fb_block *out)                           \
    {                                                                                                                         \
        if (statistics) name##_counts(f, p, n, out);                                                                          \
        else name##_plain(f, p, n, out);                                                                                      \
    }
BLOCK(block_f64, wide_block, 64)
BLOCK(block_f32, wide_block, 32)
BLOCK(block_f16, quad_block, QUAD_F16)
BLOCK(block_bf16, quad_block, QUAD_BF16)
BLOCK(block_e4, quad_block, QUAD_E4)
BLOCK(block_e5, quad_block, QUAD_E5)

static void avx512_block(const fb_format *format, const uint8_t *data, size_t n, int statistics, fb_block *out)
{
    fb_fpenv modes;
    switch (format->dtype) {
    case FB_F64:
    case FB_C128: block_f64(format, data, n, statistics, out); return;
    case FB_F32:
    case FB_C64: block_f32(format, data, n, statistics, out); return;
    case FB_F16: block_f16(format, data, n, statistics, out); return;
    case FB_BF16:
        modes = fb_fpenv_enter_flushing();
        block_bf16(format, data, n, statistics, out);
        fb_fpenv_leave(modes);
        return;
    case FB_F8_E4M3FN:
    case FB_F8_E4M3FNUZ: block_e4(format, data, n, statistics, out); return;
    case FB_F8_E5M2: block_e5(format, data, n, statistics, out); return;
    default: fb_kernel_ref.block(format, data, n, statistics, out); return;
    }
}

/* ---- multiply ---------------------------------------------------------------------------------------------------------------- */

BODY __m512i round_bf16(__m512i v)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(v, 16), _mm512_set1_epi32(1));
    __m512i magnitude = _mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff));
    __mmask16 number = _mm512_cmple_epu32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    return _mm512_mask_add_epi32(v, number, v, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

AVX512 static __attribute__((noinline)) size_t scale_f64(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512d f = _mm512_set1_pd(factor);
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        fb_ahead(source + 8 * i, 64);
        _mm512_storeu_pd((void *)(target + 8 * i), _mm512_mul_pd(_mm512_castsi512_pd(load(source + 8 * i)), f));
    }
    return i;
}

AVX512 static __attribute__((noinline)) size_t scale_f32(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512 f = _mm512_set1_ps((float)factor);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        fb_ahead(source + 4 * i, 64);
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
        fb_ahead(source + 2 * i, 64);
        __m512i v = load(source + 2 * i);
        __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)), f);
        __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(v, upper)), f);
        __m512i low = _mm512_srli_epi32(round_bf16(_mm512_castps_si512(even)), 16);
        __m512i high = _mm512_and_si512(round_bf16(_mm512_castps_si512(odd)), upper);
        _mm512_storeu_si512((void *)(target + 2 * i), _mm512_or_si512(low, high));
    }
    return i;
}

AVX512 static __attribute__((noinline)) size_t scale_f16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m512 f = _mm512_set1_ps((float)factor);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        fb_ahead(source + 2 * i, 64);
        _mm512_storeu_ps((void *)(target + 4 * i), _mm512_mul_ps(sixteen_floats(16, 0, source + 2 * i), f));
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

/* wide_group for 32 F32, multiplied and stored on the way. */
BODY void scaled_group(const uint8_t *p, uint8_t *target, __m512 factor, __m512d lanes[4], seen *s)
{
    int k;
    for (k = 0; k < 2; k++) {
        __m512 v = _mm512_mul_ps(_mm512_castsi512_ps(load(p + 64 * k)), factor);
        _mm512_storeu_ps((void *)(target + 64 * k), v);
        see(32, 0, _mm512_castps_si512(v), s);
        lanes[2 * k] = add_square(lanes[2 * k], _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
        lanes[2 * k + 1] = add_square(lanes[2 * k + 1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
    }
}

AVX512 static __attribute__((noinline)) int avx512_scale_block(const fb_format *format, const uint8_t *source, uint8_t *target,
                                                               size_t n, double factor, fb_block *out)
{
    __m512 f = _mm512_set1_ps((float)factor);
    __m512d lanes[4];
    double flat[32];
    uint8_t rest[128] = {0};
    size_t i;
    seen s;
    if (format->dtype != FB_F32) return 0;
    s = see_nothing(format, 32);
    for (i = 0; i < 4; i++) lanes[i] = _mm512_setzero_pd();
    for (i = 0; i + 32 <= n; i += 32, source += 128, target += 128) {
        fb_ahead(source, 128);
        scaled_group(source, target, f, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, source, (n - i) * 4);
        scaled_group(rest, rest, f, lanes, &s);
        memcpy(target, rest, (n - i) * 4);
    }
    for (i = 0; i < 4; i++) _mm512_storeu_pd(flat + 8 * i, lanes[i]);
    see_end(32, 0, &s, 0, out);
    out->sum = fb_lanes_sum(flat, 32);
    return 1;
}

const fb_kernel fb_kernel_avx512 = {"avx512", avx512_peak, avx512_block, avx512_scale, avx512_scale_block};

#else
typedef int fb_scan_avx512_is_not_for_this_machine;
#endif
