/*
 * The plain reference: every operation by its definition, one element at a time. It is the kernel of machines without a better one,
 * the judge of all other kernels in tests, and the second look at any block that holds something bad or extreme.
 */
#include "scan/scan_finite_math.h"

#include "scan/scan_kernel.h"

#include <float.h>

static uint64_t ref_peak(const fb_format *format, unsigned how, const uint8_t *data, size_t n)
{
    size_t bytes = fb_format_part_bytes(format), i;
    uint64_t peak = 0;
    (void)how;
    for (i = 0; i < n; i++) {
        uint64_t test = (fb_part_bits(data, bytes, i) ^ format->test_flip) & format->test_mask;
        if (test > peak) peak = test;
    }
    return peak;
}

enum { GROUP = 128 };

typedef struct decoder {
    const fb_format *format;
    double table[256]; /* formats of 8 bits: the value of each code, 0 for bad ones */
} decoder;

static void decoder_init(decoder *d, const fb_format *format)
{
    uint64_t code;
    d->format = format;
    if (format->part_bits != 8) return;
    for (code = 0; code < 256; code++) d->table[code] = fb_format_is_bad(format, code) ? 0.0 : fb_format_value(format, code);
}

/* Values of the n parts at data, at most a group, and zeros up to a whole one. Elements with a bad part count as zeros. */
static void decode(const decoder *d, const uint8_t *data, size_t n, double values[GROUP])
{
    const fb_format *format = d->format;
    size_t bytes = fb_format_part_bytes(format), i;
    for (i = 0; i < n; i++) {
        uint64_t bits = fb_part_bits(data, bytes, i);
        if (bytes == 1) values[i] = d->table[bits];
        else values[i] = fb_format_is_bad(format, bits) ? 0.0 : fb_format_value(format, bits);
    }
    for (; i < GROUP; i++) values[i] = 0.0;
    if (format->parts == 1) return;
    for (i = 0; i < n; i++)
        if (fb_format_is_bad(format, fb_part_bits(data, bytes, i))) values[i] = values[i ^ 1u] = 0.0;
}

static double sum_wide(const fb_format *format, const uint8_t *data, size_t n, double factor)
{
    size_t bytes = fb_format_part_bytes(format), start, i;
    double lanes[32] = {0.0}, values[GROUP];
    decoder d;
    decoder_init(&d, format);
    for (start = 0; start < n; start += GROUP) {
        decode(&d, data + start * bytes, n - start < GROUP ? n - start : GROUP, values);
        for (i = 0; i < GROUP; i++) {
            double value = values[i] * factor;
            double square = value * value;
            lanes[i % 32] = lanes[i % 32] + square;
        }
    }
    return fb_lanes_sum(lanes, 32);
}

/* A square that is subnormal in F32 counts as zero: beside a block's largest it is nothing, and hardware takes long over it. */
static float square_float(double value)
{
    float narrow = (float)value;
    float square = narrow * narrow;
    return square < FLT_MIN ? 0.0f : square;
}

/*
 * Two squares. F32 and the rest: each rounded, then added. BF16: the second is added to the first with one rounding. In doubles
 * that is exact, or else one square is so much smaller that the other, of 16 bits, is the rounded sum; so it equals a fused
 * operation.
 */
static float add_pair(const fb_format *format, double first, double second)
{
    float square = square_float(first);
    if (!format->pair_order) return square + square_float(second);
    square = (float)((double)square + second * second);
    return square < FLT_MIN ? 0.0f : square;
}

/* Sum of the four squares that make quad j of 64 parts. */
static double quad(const fb_format *format, const double *values, size_t j, int in_double)
{
    double a = values[format->pair_order ? 2 * j + 1 : j], b = values[format->pair_order ? 2 * j : j + 16];
    double c = values[format->pair_order ? 2 * j + 33 : j + 32], d = values[format->pair_order ? 2 * j + 32 : j + 48];
    float first, second;
    if (in_double) return (a * a + b * b) + (c * c + d * d);
    first = add_pair(format, a, b);
    second = add_pair(format, c, d);
    first = first + second;
    return (double)first;
}

static double sum_quads(const fb_format *format, const uint8_t *data, size_t n, int in_double)
{
    size_t bytes = fb_format_part_bytes(format), start, j;
    double lanes[16] = {0.0}, values[GROUP];
    decoder d;
    decoder_init(&d, format);
    for (start = 0; start < n; start += GROUP) {
        decode(&d, data + start * bytes, n - start < GROUP ? n - start : GROUP, values);
        for (j = 0; j < 16; j++) {
            double first = quad(format, values, j, in_double), second = quad(format, values + 64, j, in_double);
            if (format->sum == FB_SUM_QUAD) {
                lanes[j] = lanes[j] + first;
                lanes[j] = lanes[j] + second;
            } else if (in_double) {
                lanes[j] = lanes[j] + (first + second);
            } else {
                float oct = (float)first + (float)second;
                lanes[j] = lanes[j] + (double)oct;
            }
        }
    }
    return fb_lanes_sum(lanes, 16);
}

double fb_ref_sum(const fb_format *format, const uint8_t *data, size_t n, uint64_t peak, int *shift)
{
    *shift = 0;
    if (format->sum != FB_SUM_WIDE) return sum_quads(format, data, n, !fb_block_is_plain(format, peak));
    if (fb_block_is_plain(format, peak)) return sum_wide(format, data, n, 1.0);
    /* F64 alone comes here: bring the block near 1 by a power of two, which is exact. */
    if (peak < format->plain_from) {
        *shift = -1200;
        return sum_wide(format, data, n, fb_pow2(600));
    }
    *shift = 1200;
    return sum_wide(format, data, n, fb_pow2(-600));
}

static void ref_block(const fb_format *format, unsigned how, const uint8_t *data, size_t n, fb_block *out)
{
    size_t bytes = fb_format_part_bytes(format), i;
    int shift = 0;
    memset(out, 0, sizeof *out);
    out->low_less1 = UINT64_MAX;
    for (i = 0; i < n; i++) {
        uint64_t magnitude = fb_part_bits(data, bytes, i) & format->abs_mask;
        if (magnitude > out->peak) out->peak = magnitude;
        if (!(how & FB_COUNTS)) continue;
        if (magnitude == 0) out->zeros++;
        else if (magnitude - 1 < out->low_less1) out->low_less1 = magnitude - 1;
        out->subnormals += magnitude != 0 && magnitude < format->min_normal;
        out->at_max += magnitude == format->max_bits;
    }
    out->sum = fb_block_is_plain(format, out->peak) ? fb_ref_sum(format, data, n, out->peak, &shift) : 0.0;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Non-finite bits stay what they are, quieted as the hardware does it; a product is never made of them. */
static uint32_t scale_float(uint32_t bits, float factor)
{
    float product;
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits | 0x00400000u;
    product = float_of(bits) * factor;
    memcpy(&bits, &product, sizeof bits);
    return bits;
}

static uint64_t scale_double(uint64_t bits, double factor)
{
    double value;
    if ((bits & (UINT64_MAX >> 1)) > UINT64_C(0x7ff) << 52) return bits | UINT64_C(1) << 51;
    memcpy(&value, &bits, sizeof value);
    value = value * factor;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t round_to_bf16(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16); /* quiet already, so it cannot become an infinity */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static uint32_t widen_f16(const fb_format *format, uint16_t bits)
{
    uint32_t wide;
    float value;
    if ((bits & 0x7fffu) >= 0x7c00u) {
        wide = (bits & 0x8000u) << 16 | 0x7f800000u | (bits & 0x03ffu) << 13;
        return wide & 0x007fffffu ? wide | 0x00400000u : wide;
    }
    value = (float)fb_format_value(format, bits);
    memcpy(&wide, &value, sizeof wide);
    return wide;
}

static void ref_scale(const fb_format *format, const uint8_t *source, uint8_t *target, size_t n, double factor)
{
    size_t bytes = fb_format_part_bytes(format), i;
    float narrow = (float)factor;
    for (i = 0; i < n; i++) {
        uint64_t bits = fb_part_bits(source, bytes, i);
        uint32_t bits32;
        uint16_t bits16;
        switch (format->dtype) {
        case FB_F64:
            bits = scale_double(bits, factor);
            memcpy(target + 8 * i, &bits, 8);
            break;
        case FB_F32:
            bits32 = scale_float((uint32_t)bits, narrow);
            memcpy(target + 4 * i, &bits32, 4);
            break;
        case FB_BF16:
            bits16 = round_to_bf16(scale_float((uint32_t)bits << 16, narrow));
            memcpy(target + 2 * i, &bits16, 2);
            break;
        default:
            bits32 = scale_float(widen_f16(format, (uint16_t)bits), narrow);
            memcpy(target + 4 * i, &bits32, 4);
            break;
        }
    }
}

const fb_kernel fb_kernel_ref = {"ref", ref_peak, ref_block, ref_scale, NULL};
