/*
 * Kernels for AVX2 with F16C. Only these functions use those instructions; they are called after the CPU was asked.
 * Sums follow the lanes of docs/format/numbers.md, so they equal the reference bit for bit. Fused operations stand
 * only where they give the same.
 * A tail is copied into a group padded with zeros, which add nothing to sums and are taken off the count of zeros.
 */
#include "scan/scan_finite_math.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "scan/scan_count.h"
#include "scan/scan_fpenv.h"

#define AVX2 __attribute__((target("avx2,fma,f16c,popcnt")))
#define BODY static inline __attribute__((always_inline, target("avx2,fma,f16c,popcnt")))

BODY __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

BODY __m128i load_half(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* ---- largest code ------------------------------------------------------------------------------------------------------------ */

BODY __m256i max_epu64(__m256i a, __m256i b)
{
    /* Signs are cleared, so a signed comparison serves. */
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a));
}

BODY __m256i max_of(int bits, __m256i a, __m256i b)
{
    switch (bits) {
    case 8: return _mm256_max_epu8(a, b);
    case 16: return _mm256_max_epu16(a, b);
    case 32: return _mm256_max_epu32(a, b);
    default: return max_epu64(a, b);
    }
}

BODY __m256i min_of(int bits, __m256i a, __m256i b)
{
    switch (bits) {
    case 8: return _mm256_min_epu8(a, b);
    case 16: return _mm256_min_epu16(a, b);
    case 32: return _mm256_min_epu32(a, b);
    default: {
        /* Here the largest value means "none" and must not look negative. */
        __m256i flip = _mm256_set1_epi64x(INT64_MIN);
        __m256i less = _mm256_cmpgt_epi64(_mm256_xor_si256(a, flip), _mm256_xor_si256(b, flip));
        return _mm256_blendv_epi8(a, b, less);
    }
    }
}

BODY __m256i broadcast(int bits, uint64_t value)
{
    switch (bits) {
    case 8: return _mm256_set1_epi8((char)value);
    case 16: return _mm256_set1_epi16((short)value);
    case 32: return _mm256_set1_epi32((int)value);
    default: return _mm256_set1_epi64x((long long)value);
    }
}

/* Largest (or smallest) of the parts of one register. */
BODY uint64_t reduce(int bits, __m256i v, int smallest)
{
    uint8_t bytes[32];
    uint64_t best;
    size_t i, width = (size_t)bits / 8;
    _mm256_storeu_si256((__m256i *)(void *)bytes, v);
    best = fb_part_bits(bytes, width, 0);
    for (i = 1; i < 32 / width; i++) {
        uint64_t part = fb_part_bits(bytes, width, i);
        if (smallest ? part < best : part > best) best = part;
    }
    return best;
}

BODY uint64_t peak_body(int bits, unsigned how, uint64_t flip_bits, uint64_t mask_bits, const uint8_t *data, size_t n)
{
    const size_t step = 256 / (size_t)bits;
    const __m256i flip = broadcast(bits, flip_bits), mask = broadcast(bits, mask_bits);
    __m256i m0 = _mm256_setzero_si256(), m1 = m0, m2 = m0, m3 = m0;
    uint64_t peak, tail;
    size_t i = 0;
    for (; i + 4 * step <= n; i += 4 * step, data += 128) {
        fb_ahead(how, data, 128);
        if (!(how & FB_AHEAD)) fb_near(data, 128);
        m0 = max_of(bits, m0, _mm256_and_si256(_mm256_xor_si256(load(data), flip), mask));
        m1 = max_of(bits, m1, _mm256_and_si256(_mm256_xor_si256(load(data + 32), flip), mask));
        m2 = max_of(bits, m2, _mm256_and_si256(_mm256_xor_si256(load(data + 64), flip), mask));
        m3 = max_of(bits, m3, _mm256_and_si256(_mm256_xor_si256(load(data + 96), flip), mask));
    }
    for (; i + step <= n; i += step, data += 32) m0 = max_of(bits, m0, _mm256_and_si256(_mm256_xor_si256(load(data), flip), mask));
    peak = reduce(bits, max_of(bits, max_of(bits, m0, m1), max_of(bits, m2, m3)), 0);
    for (; i < n; i++, data += bits / 8) {
        tail = (fb_part_bits(data, (size_t)bits / 8, 0) ^ flip_bits) & mask_bits;
        if (tail > peak) peak = tail;
    }
    return peak;
}

AVX2 static uint64_t avx2_peak(const fb_format *format, unsigned how, const uint8_t *data, size_t n)
{
    /* Constants, so that a format without a flip pays nothing for it. */
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

/* Extremes and zeros of the registers of one group, carried along beside the sum. */
typedef struct seen {
    __m256i mask, peak, low;
    __m256i zeros; /* per lane, negative; not for 8 bits */
    uint64_t zeros8;
} seen;

BODY void see(int bits, int statistics, __m256i v, seen *s)
{
    __m256i zero = _mm256_setzero_si256();
    v = _mm256_and_si256(v, s->mask);
    s->peak = max_of(bits, s->peak, v);
    if (!statistics) return;
    switch (bits) {
    case 8:
        s->low = min_of(8, s->low, _mm256_sub_epi8(v, _mm256_set1_epi8(1)));
        s->zeros8 += (uint64_t)_mm_popcnt_u32((unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, zero)));
        break;
    case 16:
        s->low = min_of(16, s->low, _mm256_sub_epi16(v, _mm256_set1_epi16(1)));
        s->zeros = _mm256_add_epi16(s->zeros, _mm256_cmpeq_epi16(v, zero));
        break;
    case 32:
        s->low = min_of(32, s->low, _mm256_sub_epi32(v, _mm256_set1_epi32(1)));
        s->zeros = _mm256_add_epi32(s->zeros, _mm256_cmpeq_epi32(v, zero));
        break;
    default:
        s->low = min_of(64, s->low, _mm256_sub_epi64(v, _mm256_set1_epi64x(1)));
        s->zeros = _mm256_add_epi64(s->zeros, _mm256_cmpeq_epi64(v, zero));
        break;
    }
}

BODY seen see_nothing(const fb_format *format, int bits)
{
    seen s;
    s.mask = broadcast(bits, format->abs_mask);
    s.peak = _mm256_setzero_si256();
    s.low = _mm256_set1_epi32(-1);
    s.zeros = _mm256_setzero_si256();
    s.zeros8 = 0;
    return s;
}

BODY void see_end(int bits, int statistics, const seen *s, size_t padding, fb_block *out)
{
    uint8_t bytes[32];
    size_t i, width = (size_t)bits / 8;
    memset(out, 0, sizeof *out);
    out->peak = reduce(bits, s->peak, 0);
    out->low_less1 = UINT64_MAX;
    if (!statistics) return;
    out->low_less1 = reduce(bits, s->low, 1);
    if (bits < 64 && out->low_less1 == (UINT64_C(1) << bits % 64) - 1) out->low_less1 = UINT64_MAX;
    _mm256_storeu_si256((__m256i *)(void *)bytes, _mm256_sub_epi64(_mm256_setzero_si256(), s->zeros));
    switch (bits) {
    case 8: out->zeros = s->zeros8; break;
    case 16: _mm256_storeu_si256((__m256i *)(void *)bytes, _mm256_sub_epi16(_mm256_setzero_si256(), s->zeros)); break;
    case 32: _mm256_storeu_si256((__m256i *)(void *)bytes, _mm256_sub_epi32(_mm256_setzero_si256(), s->zeros)); break;
    default: break;
    }
    if (bits != 8)
        for (i = 0; i < 32 / width; i++) out->zeros += fb_part_bits(bytes, width, i);
    out->zeros -= padding;
}

BODY __m256d add_square(__m256d lane, __m256d v)
{
    return _mm256_add_pd(lane, _mm256_mul_pd(v, v));
}

/* 32 parts of 64 bits: lane i takes part i. */
BODY void wide_group(int statistics, const uint8_t *p, __m256d lanes[8], seen *s)
{
    int k;
    for (k = 0; k < 8; k++) {
        __m256i v = load(p + 32 * k);
        see(64, statistics, v, s);
        lanes[k] = add_square(lanes[k], _mm256_castsi256_pd(v));
    }
}

BODY void wide_block(const fb_format *format, int statistics, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    __m256d lanes[8];
    double flat[32];
    uint8_t rest[256] = {0};
    size_t i;
    seen s = see_nothing(format, 64);
    for (i = 0; i < 8; i++) lanes[i] = _mm256_setzero_pd();
    for (i = 0; i + 32 <= n; i += 32) {
        fb_ahead(how, data + 8 * i, 256);
        fb_near(data + 8 * i, 256);
        wide_group(statistics, data + 8 * i, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data + 8 * i, 8 * (n - i));
        wide_group(statistics, rest, lanes, &s);
    }
    for (i = 0; i < 8; i++) _mm256_storeu_pd(flat + 4 * i, lanes[i]);
    see_end(64, statistics, &s, (32 - n % 32) % 32, out);
    out->sum = fb_lanes_sum(flat, 32);
}

BODY __m256 square(__m256 v)
{
    return _mm256_mul_ps(v, v);
}

BODY void add_quads(__m256 quads, __m256d lanes[2])
{
    lanes[0] = _mm256_add_pd(lanes[0], _mm256_cvtps_pd(_mm256_castps256_ps128(quads)));
    lanes[1] = _mm256_add_pd(lanes[1], _mm256_cvtps_pd(_mm256_extractf128_ps(quads, 1)));
}

enum { QUAD_F32, QUAD_BF16, QUAD_F16, QUAD_E4, QUAD_E5 };

BODY int bits_of(int kind)
{
    return kind == QUAD_F32 ? 32 : kind == QUAD_E4 || kind == QUAD_E5 ? 8 : 16;
}

/* BF16: a register holds 8 pairs of neighbours; the even one of a pair is moved up, the odd one is masked. */
BODY __m256 square_pairs(__m256i v)
{
    __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
    return _mm256_fmadd_ps(even, even, square(odd));
}

/* Codes of 8 bits become F16 codes that differ from their values by a power of two; the sign does not matter for a square. */
BODY __m256 eight_floats(int kind, const uint8_t *p)
{
    __m128i wide;
    if (kind == QUAD_F32) return _mm256_castsi256_ps(load(p));
    if (kind == QUAD_F16) return _mm256_cvtph_ps(load_half(p));
    wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
    if (kind == QUAD_E5) return _mm256_cvtph_ps(_mm_slli_epi16(wide, 8));
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7f)), 7));
}

/* (a + b) + (c + d). Squares of F16 and less are exact, so that fused operations give the same. */
BODY __m256 sum_of_squares(int kind, __m256 a, __m256 b, __m256 c, __m256 d)
{
    if (kind == QUAD_F32) return _mm256_add_ps(_mm256_add_ps(square(a), square(b)), _mm256_add_ps(square(c), square(d)));
    return _mm256_add_ps(_mm256_fmadd_ps(b, b, square(a)), _mm256_fmadd_ps(d, d, square(c)));
}

/* Quads 8 * half to 8 * half + 7 of 64 parts. */
BODY __m256 quads_of(int kind, const uint8_t *p, size_t half)
{
    const size_t row = 2 * (size_t)bits_of(kind);
    p += half * (kind == QUAD_BF16 ? 32 : row / 2);
    if (kind == QUAD_BF16) return _mm256_add_ps(square_pairs(load(p)), square_pairs(load(p + 64)));
    return sum_of_squares(kind, eight_floats(kind, p), eight_floats(kind, p + row), eight_floats(kind, p + 2 * row),
                          eight_floats(kind, p + 3 * row));
}

/* 64 parts of F32, 128 of the others. */
BODY void quad_group(int kind, int statistics, const uint8_t *p, size_t group_bytes, __m256d lanes[4], seen *s)
{
    size_t i;
    for (i = 0; i < group_bytes; i += 32) see(bits_of(kind), statistics, load(p + i), s);
    for (i = 0; i < 2; i++) {
        __m256 sums = quads_of(kind, p, i);
        if (kind != QUAD_F32) sums = _mm256_add_ps(sums, quads_of(kind, p + group_bytes / 2, i));
        add_quads(sums, lanes + 2 * i);
    }
}

BODY void quad_end(int bits, int statistics, __m256d lanes[4], const seen *s, size_t padding, fb_block *out)
{
    double flat[16];
    size_t i;
    for (i = 0; i < 4; i++) _mm256_storeu_pd(flat + 4 * i, lanes[i]);
    see_end(bits, statistics, s, padding, out);
    out->sum = fb_lanes_sum(flat, 16);
}

BODY void quad_block(const fb_format *format, int kind, int statistics, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    const size_t bits = (size_t)bits_of(kind), group = kind == QUAD_F32 ? 64 : 128, group_bytes = group * bits / 8;
    __m256d lanes[4];
    uint8_t rest[256] = {0};
    size_t i;
    seen s = see_nothing(format, (int)bits);
    for (i = 0; i < 4; i++) lanes[i] = _mm256_setzero_pd();
    for (i = 0; i + group <= n; i += group, data += group_bytes) {
        fb_ahead(how, data, group_bytes);
        fb_near(data, group_bytes);
        quad_group(kind, statistics, data, group_bytes, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data, (n - i) * bits / 8);
        quad_group(kind, statistics, rest, group_bytes, lanes, &s);
    }
    quad_end((int)bits, statistics, lanes, &s, (group - n % group) % group, out);
    out->sum *= fb_pow2(format->fast_shift);
}

/* One function an operation and format, not inlined: the floating-point modes are set around them. */
#define BLOCK(name, call, ...)                                                                                                    \
    AVX2 static                                                                                                                   \
        __attribute__((noinline)) void name##_plain(const fb_format *f, unsigned how, const uint8_t *p, size_t n, fb_block *out)  \
    {                                                                                                                             \
        call(f, __VA_ARGS__ 0, how, p, n, out);                                                                                   \
    }                                                                                                                             \
    AVX2 static                                                                                                                   \
        __attribute__((noinline)) void name##_counts(const fb_format *f, unsigned how, const uint8_t *p, size_t n, fb_block *out) \
    {                                                                                                                             \
        call(f, __VA_ARGS__ 1, how, p, n, out);                                                                                   \
        fb_count_rare(f, p, n, out);                                                                                              \
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

static void avx2_block(const fb_format *format, unsigned how, const uint8_t *data, size_t n, fb_block *out)
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

/* Upper halves of 8 F32, rounded to nearest even; NaN are quiet already and are cut, so that none becomes an infinity. */
BODY __m256i round_bf16(__m256i v)
{
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(v, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(v, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i magnitude = _mm256_and_si256(v, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    return _mm256_blendv_epi8(rounded, v, nan);
}

AVX2 static __attribute__((noinline)) size_t scale_f64(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m256d f = _mm256_set1_pd(factor);
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        fb_ahead(FB_AHEAD, source + 8 * i, 64);
        fb_near(source + 8 * i, 64);
        _mm256_storeu_pd((double *)(void *)(target + 8 * i), _mm256_mul_pd(_mm256_castsi256_pd(load(source + 8 * i)), f));
    }
    return i;
}

AVX2 static __attribute__((noinline)) size_t scale_f32(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m256 f = _mm256_set1_ps((float)factor);
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        fb_ahead(FB_AHEAD, source + 4 * i, 64);
        fb_near(source + 4 * i, 64);
        _mm256_storeu_ps((float *)(void *)(target + 4 * i), _mm256_mul_ps(_mm256_castsi256_ps(load(source + 4 * i)), f));
    }
    return i;
}

AVX2 static __attribute__((noinline)) size_t scale_bf16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m256 f = _mm256_set1_ps((float)factor);
    __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        fb_ahead(FB_AHEAD, source + 2 * i, 64);
        fb_near(source + 2 * i, 64);
        __m256i v = load(source + 2 * i);
        __m256 even = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)), f);
        __m256 odd = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_and_si256(v, upper)), f);
        __m256i low = _mm256_srli_epi32(round_bf16(_mm256_castps_si256(even)), 16);
        __m256i high = _mm256_and_si256(round_bf16(_mm256_castps_si256(odd)), upper);
        _mm256_storeu_si256((__m256i *)(void *)(target + 2 * i), _mm256_or_si256(low, high));
    }
    return i;
}

AVX2 static __attribute__((noinline)) size_t scale_f16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    __m256 f = _mm256_set1_ps((float)factor);
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        fb_ahead(FB_AHEAD, source + 2 * i, 64);
        fb_near(source + 2 * i, 64);
        _mm256_storeu_ps((float *)(void *)(target + 4 * i), _mm256_mul_ps(eight_floats(QUAD_F16, source + 2 * i), f));
    }
    return i;
}

static void avx2_scale(const fb_format *format, const uint8_t *source, uint8_t *target, size_t n, double factor)
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
 * Products must keep their subnormals and squares must lose theirs, in one loop and so in one floating-point mode: what is below
 * 2^-63 is taken as zero, whose square is the same as a flushed one.
 */
BODY __m256 judged_square(__m256 v, seen *s)
{
    __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(v), s->mask);
    __m256i counts = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((64 << 23) - 1));
    s->peak = _mm256_max_epu32(s->peak, magnitude);
    return square(_mm256_castsi256_ps(_mm256_and_si256(magnitude, counts)));
}

/* 64 elements of F32 or F16 into F32. */
BODY void scaled_group(int kind, const uint8_t *p, uint8_t *target, __m256 factor, __m256d lanes[4], seen *s)
{
    const size_t row = 2 * (size_t)bits_of(kind);
    size_t half, k;
    for (half = 0; half < 2; half++) {
        __m256 squares[4];
        for (k = 0; k < 4; k++) {
            __m256 v = _mm256_mul_ps(eight_floats(kind, p + k * row + half * row / 2), factor);
            _mm256_storeu_ps((float *)(void *)(target + 64 * k + 32 * half), v);
            squares[k] = judged_square(v, s);
        }
        add_quads(_mm256_add_ps(_mm256_add_ps(squares[0], squares[1]), _mm256_add_ps(squares[2], squares[3])), lanes + 2 * half);
    }
}

BODY void scaled_block(int kind, unsigned how, const uint8_t *source, uint8_t *target, size_t n, double factor, fb_block *out)
{
    const size_t bytes = (size_t)bits_of(kind) / 8;
    __m256 f = _mm256_set1_ps((float)factor);
    __m256d lanes[4];
    uint8_t rest[256] = {0}, products[256];
    size_t i;
    seen s = see_nothing(fb_format_of(FB_F32), 32);
    for (i = 0; i < 4; i++) lanes[i] = _mm256_setzero_pd();
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
    quad_end(32, 0, lanes, &s, 0, out);
}

AVX2 static __attribute__((noinline)) int avx2_scale_block(const fb_format *format, unsigned how, const uint8_t *source,
                                                           uint8_t *target, size_t n, double factor, fb_block *out)
{
    if (format->dtype == FB_F32) scaled_block(QUAD_F32, how, source, target, n, factor, out);
    else if (format->dtype == FB_F16) scaled_block(QUAD_F16, how, source, target, n, factor, out);
    else return 0;
    return 1;
}

const fb_kernel fb_kernel_avx2 = {"avx2", avx2_peak, avx2_block, avx2_scale, avx2_scale_block};

#else
typedef int fb_scan_avx2_is_not_for_this_machine;
#endif
