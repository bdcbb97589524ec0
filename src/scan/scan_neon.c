/*
 * Kernels for NEON, which every aarch64 has. The same lanes as everywhere; see scan_avx2.c for the reasons.
 */
#include "scan/scan_finite_math.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "scan/scan_count.h"

#define BODY static inline __attribute__((always_inline))

/* ---- largest code ------------------------------------------------------------------------------------------------------------ */

BODY uint64x2_t max_u64(uint64x2_t a, uint64x2_t b)
{
    return vbslq_u64(vcgtq_u64(a, b), a, b);
}

BODY uint8x16_t max_of(int bits, uint8x16_t a, uint8x16_t b)
{
    switch (bits) {
    case 8: return vmaxq_u8(a, b);
    case 16: return vreinterpretq_u8_u16(vmaxq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
    case 32: return vreinterpretq_u8_u32(vmaxq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
    default: return vreinterpretq_u8_u64(max_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
    }
}

BODY uint8x16_t min_of(int bits, uint8x16_t a, uint8x16_t b)
{
    switch (bits) {
    case 8: return vminq_u8(a, b);
    case 16: return vreinterpretq_u8_u16(vminq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
    case 32: return vreinterpretq_u8_u32(vminq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
    default: {
        uint64x2_t x = vreinterpretq_u64_u8(a), y = vreinterpretq_u64_u8(b);
        return vreinterpretq_u8_u64(vbslq_u64(vcgtq_u64(x, y), y, x));
    }
    }
}

BODY uint8x16_t broadcast(int bits, uint64_t value)
{
    switch (bits) {
    case 8: return vdupq_n_u8((uint8_t)value);
    case 16: return vreinterpretq_u8_u16(vdupq_n_u16((uint16_t)value));
    case 32: return vreinterpretq_u8_u32(vdupq_n_u32((uint32_t)value));
    default: return vreinterpretq_u8_u64(vdupq_n_u64(value));
    }
}

BODY uint8x16_t less_one(int bits, uint8x16_t v)
{
    switch (bits) {
    case 8: return vsubq_u8(v, vdupq_n_u8(1));
    case 16: return vreinterpretq_u8_u16(vsubq_u16(vreinterpretq_u16_u8(v), vdupq_n_u16(1)));
    case 32: return vreinterpretq_u8_u32(vsubq_u32(vreinterpretq_u32_u8(v), vdupq_n_u32(1)));
    default: return vreinterpretq_u8_u64(vsubq_u64(vreinterpretq_u64_u8(v), vdupq_n_u64(1)));
    }
}

BODY uint64_t zeros_of(int bits, uint8x16_t v)
{
    switch (bits) {
    case 8: return vaddvq_u8(vshrq_n_u8(vceqzq_u8(v), 7));
    case 16: return vaddvq_u16(vshrq_n_u16(vceqzq_u16(vreinterpretq_u16_u8(v)), 15));
    case 32: return vaddvq_u32(vshrq_n_u32(vceqzq_u32(vreinterpretq_u32_u8(v)), 31));
    default: return vaddvq_u64(vshrq_n_u64(vceqzq_u64(vreinterpretq_u64_u8(v)), 63));
    }
}

BODY uint64_t reduce(int bits, uint8x16_t v, int smallest)
{
    uint8_t bytes[16];
    uint64_t best;
    size_t i, width = (size_t)bits / 8;
    vst1q_u8(bytes, v);
    best = fb_part_bits(bytes, width, 0);
    for (i = 1; i < 16 / width; i++) {
        uint64_t part = fb_part_bits(bytes, width, i);
        if (smallest ? part < best : part > best) best = part;
    }
    return best;
}

BODY uint64_t peak_body(int bits, unsigned how, uint64_t flip_bits, uint64_t mask_bits, const uint8_t *data, size_t n)
{
    const size_t step = 128 / (size_t)bits;
    const uint8x16_t flip = broadcast(bits, flip_bits), mask = broadcast(bits, mask_bits);
    uint8x16_t m0 = vdupq_n_u8(0), m1 = m0, m2 = m0, m3 = m0;
    uint64_t peak;
    size_t i = 0;
    for (; i + 4 * step <= n; i += 4 * step, data += 64) {
        fb_ahead(how, data, 64);
        if (!(how & FB_AHEAD)) fb_near(data, 64);
        m0 = max_of(bits, m0, vandq_u8(veorq_u8(vld1q_u8(data), flip), mask));
        m1 = max_of(bits, m1, vandq_u8(veorq_u8(vld1q_u8(data + 16), flip), mask));
        m2 = max_of(bits, m2, vandq_u8(veorq_u8(vld1q_u8(data + 32), flip), mask));
        m3 = max_of(bits, m3, vandq_u8(veorq_u8(vld1q_u8(data + 48), flip), mask));
    }
    for (; i + step <= n; i += step, data += 16) m0 = max_of(bits, m0, vandq_u8(veorq_u8(vld1q_u8(data), flip), mask));
    peak = reduce(bits, max_of(bits, max_of(bits, m0, m1), max_of(bits, m2, m3)), 0);
    for (; i < n; i++, data += bits / 8) {
        uint64_t tail = (fb_part_bits(data, (size_t)bits / 8, 0) ^ flip_bits) & mask_bits;
        if (tail > peak) peak = tail;
    }
    return peak;
}

static uint64_t neon_peak(const fb_format *format, unsigned how, const uint8_t *data, size_t n)
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

typedef struct seen {
    uint8x16_t mask, peak, low;
    uint64_t zeros;
} seen;

BODY seen see_nothing(const fb_format *format, int bits)
{
    seen s;
    s.mask = broadcast(bits, format->abs_mask);
    s.peak = vdupq_n_u8(0);
    s.low = vdupq_n_u8(0xff);
    s.zeros = 0;
    return s;
}

BODY void see(int bits, int statistics, uint8x16_t v, seen *s)
{
    v = vandq_u8(v, s->mask);
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

BODY float64x2_t add_square(float64x2_t lane, float64x2_t v)
{
    return vaddq_f64(lane, vmulq_f64(v, v));
}

/* 32 parts of 64 bits. */
BODY void wide_group(int statistics, const uint8_t *p, float64x2_t lanes[16], seen *s)
{
    int k;
    for (k = 0; k < 16; k++) {
        uint8x16_t v = vld1q_u8(p + 16 * k);
        see(64, statistics, v, s);
        lanes[k] = add_square(lanes[k], vreinterpretq_f64_u8(v));
    }
}

BODY void wide_block(const fb_format *format, int statistics, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    float64x2_t lanes[16];
    double flat[32];
    uint8_t rest[256] = {0};
    size_t i;
    seen s = see_nothing(format, 64);
    for (i = 0; i < 16; i++) lanes[i] = vdupq_n_f64(0.0);
    for (i = 0; i + 32 <= n; i += 32, data += 256) {
        fb_ahead(how, data, 256);
        fb_near(data, 256);
        wide_group(statistics, data, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data, (n - i) * 8);
        wide_group(statistics, rest, lanes, &s);
    }
    for (i = 0; i < 16; i++) vst1q_f64(flat + 2 * i, lanes[i]);
    see_end(64, statistics, &s, (32 - n % 32) % 32, out);
    out->sum = fb_lanes_sum(flat, 32);
}

/* A square that is subnormal counts as zero, as the flushing mode of other machines makes it. */
BODY float32x4_t flushed(float32x4_t v)
{
    uint32x4_t normal = vcgeq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x00800000u));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), normal));
}

BODY float32x4_t square(float32x4_t v)
{
    return flushed(vmulq_f32(v, v));
}

BODY void add_quads(float32x4_t quads, float64x2_t lanes[2])
{
    lanes[0] = vaddq_f64(lanes[0], vcvt_f64_f32(vget_low_f32(quads)));
    lanes[1] = vaddq_f64(lanes[1], vcvt_high_f64_f32(quads));
}

BODY float32x4_t square_pairs(uint8x16_t v)
{
    uint32x4_t pairs = vreinterpretq_u32_u8(v);
    float32x4_t even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    float32x4_t odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
    return flushed(vfmaq_f32(square(odd), even, even));
}

enum { QUAD_F32, QUAD_BF16, QUAD_F16, QUAD_E4, QUAD_E5 };

BODY int bits_of(int kind)
{
    return kind == QUAD_F32 ? 32 : kind == QUAD_E4 || kind == QUAD_E5 ? 8 : 16;
}

/* Four codes as floats; codes of 8 bits become F16 codes that differ by a power of two. */
BODY float32x4_t four_floats(int kind, const uint8_t *p)
{
    uint32_t four;
    uint16x4_t wide;
    if (kind == QUAD_F32) return vreinterpretq_f32_u8(vld1q_u8(p));
    if (kind == QUAD_F16) {
        wide = vreinterpret_u16_u8(vld1_u8(p));
    } else {
        memcpy(&four, p, sizeof four);
        wide = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))));
        wide = kind == QUAD_E5 ? vshl_n_u16(wide, 8) : vshl_n_u16(vand_u16(wide, vdup_n_u16(0x7f)), 7);
    }
    return vcvt_f32_f16(vreinterpret_f16_u16(wide));
}

/* Quads 4 * k to 4 * k + 3 of 64 parts. */
BODY float32x4_t quads_of(int kind, const uint8_t *p, size_t k)
{
    const size_t row = 2 * (size_t)bits_of(kind);
    float32x4_t first, second;
    p += k * (kind == QUAD_BF16 ? 16 : row / 4);
    if (kind == QUAD_BF16) return vaddq_f32(square_pairs(vld1q_u8(p)), square_pairs(vld1q_u8(p + 64)));
    first = vaddq_f32(square(four_floats(kind, p)), square(four_floats(kind, p + row)));
    second = vaddq_f32(square(four_floats(kind, p + 2 * row)), square(four_floats(kind, p + 3 * row)));
    return vaddq_f32(first, second);
}

/* 64 parts of F32, 128 of the others. */
BODY void quad_group(int kind, int statistics, const uint8_t *p, size_t group_bytes, float64x2_t lanes[8], seen *s)
{
    size_t k;
    for (k = 0; k < group_bytes; k += 16) see(bits_of(kind), statistics, vld1q_u8(p + k), s);
    for (k = 0; k < 4; k++) {
        float32x4_t sums = quads_of(kind, p, k);
        if (kind != QUAD_F32) sums = vaddq_f32(sums, quads_of(kind, p + group_bytes / 2, k));
        add_quads(sums, lanes + 2 * k);
    }
}

BODY void quad_block(const fb_format *format, int kind, int statistics, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    const size_t bits = (size_t)bits_of(kind), group = kind == QUAD_F32 ? 64 : 128, group_bytes = group * bits / 8;
    float64x2_t lanes[8];
    double flat[16];
    uint8_t rest[256] = {0};
    size_t i;
    seen s = see_nothing(format, (int)bits);
    for (i = 0; i < 8; i++) lanes[i] = vdupq_n_f64(0.0);
    for (i = 0; i + group <= n; i += group, data += group_bytes) {
        fb_ahead(how, data, group_bytes);
        fb_near(data, group_bytes);
        quad_group(kind, statistics, data, group_bytes, lanes, &s);
    }
    if (i < n) {
        memcpy(rest, data, (n - i) * bits / 8);
        quad_group(kind, statistics, rest, group_bytes, lanes, &s);
    }
    for (i = 0; i < 8; i++) vst1q_f64(flat + 2 * i, lanes[i]);
    see_end((int)bits, statistics, &s, (group - n % group) % group, out);
    out->sum = fb_lanes_sum(flat, 16) * fb_pow2(format->fast_shift);
}

#define BLOCK(name, call, ...)                                                                    \
    static void name(const fb_format *f, unsigned how, const uint8_t *p, size_t n, fb_block *out) \
    {                                                                                             \
        if (how & FB_COUNTS) {                                                                    \
            call(f, __VA_ARGS__ 1, how, p, n, out);                                               \
            fb_count_rare(f, p, n, out);                                                          \
        } else {                                                                                  \
            call(f, __VA_ARGS__ 0, how, p, n, out);                                               \
        }                                                                                         \
    }
#define NO_KIND
BLOCK(block_f64, wide_block, NO_KIND)
BLOCK(block_f32, quad_block, QUAD_F32, )
BLOCK(block_f16, quad_block, QUAD_F16, )
BLOCK(block_bf16, quad_block, QUAD_BF16, )
BLOCK(block_e4, quad_block, QUAD_E4, )
BLOCK(block_e5, quad_block, QUAD_E5, )

static void neon_block(const fb_format *format, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    switch (format->dtype) {
    case FB_F64:
    case FB_C128: block_f64(format, how, data, n, out); return;
    case FB_F32:
    case FB_C64: block_f32(format, how, data, n, out); return;
    case FB_F16: block_f16(format, how, data, n, out); return;
    case FB_BF16: block_bf16(format, how, data, n, out); return;
    case FB_F8_E4M3FN:
    case FB_F8_E4M3FNUZ: block_e4(format, how, data, n, out); return;
    case FB_F8_E5M2: block_e5(format, how, data, n, out); return;
    default: fb_kernel_ref.block(format, how, data, n, out); return;
    }
}

/* ---- multiply ---------------------------------------------------------------------------------------------------------------- */

BODY uint32x4_t round_bf16(uint32x4_t v)
{
    uint32x4_t odd = vandq_u32(vshrq_n_u32(v, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(v, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t nan = vcgtq_u32(vandq_u32(v, vdupq_n_u32(0x7fffffffu)), vdupq_n_u32(0x7f800000u));
    return vbslq_u32(nan, v, rounded);
}

BODY uint32x4_t product_f32(uint32x4_t v, float32x4_t factor)
{
    return vreinterpretq_u32_f32(vmulq_f32(vreinterpretq_f32_u32(v), factor));
}

static size_t scale_f64(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    size_t i;
    for (i = 0; i + 2 <= n; i += 2)
        vst1q_u8(target + 8 * i,
                 vreinterpretq_u8_f64(vmulq_f64(vreinterpretq_f64_u8(vld1q_u8(source + 8 * i)), vdupq_n_f64(factor))));
    return i;
}

static size_t scale_f32(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    float32x4_t f = vdupq_n_f32((float)factor);
    size_t i;
    for (i = 0; i + 4 <= n; i += 4)
        vst1q_u8(target + 4 * i, vreinterpretq_u8_u32(product_f32(vreinterpretq_u32_u8(vld1q_u8(source + 4 * i)), f)));
    return i;
}

static size_t scale_bf16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    float32x4_t f = vdupq_n_f32((float)factor);
    uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(source + 2 * i));
        uint32x4_t even = round_bf16(product_f32(vshlq_n_u32(v, 16), f));
        uint32x4_t odd = round_bf16(product_f32(vandq_u32(v, upper), f));
        vst1q_u8(target + 2 * i, vreinterpretq_u8_u32(vorrq_u32(vshrq_n_u32(even, 16), vandq_u32(odd, upper))));
    }
    return i;
}

static size_t scale_f16(const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    float32x4_t f = vdupq_n_f32((float)factor);
    size_t i;
    for (i = 0; i + 4 <= n; i += 4)
        vst1q_u8(target + 4 * i, vreinterpretq_u8_f32(vmulq_f32(four_floats(QUAD_F16, source + 2 * i), f)));
    return i;
}

static void neon_scale(const fb_format *format, const uint8_t *source, uint8_t *target, size_t n, double factor)
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

const fb_kernel fb_kernel_neon = {"neon", neon_peak, neon_block, neon_scale, NULL};

#else
typedef int fb_scan_neon_is_not_for_this_machine;
#endif
