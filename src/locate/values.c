#include "scan/scan_finite_math.h"

#include "locate/values.h"

#include <string.h>

#include "scan/scan_format.h"
#include "scan/scan_fpenv.h"

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int is_integer(int32_t dtype)
{
    return dtype >= FB_I8 && dtype <= FB_BOOL;
}

int fb_values_readable(int32_t dtype)
{
    const fb_format *format = fb_format_of(dtype);
    if (is_integer(dtype)) return 1;
    return format && format->parts == 1 && format->scheme != FB_SCHEME_NONE;
}

/* Non-finite codes are made by hand: what a conversion makes of them depends on the format, and E4M3 has no infinity at all. */
static double of_code(const fb_format *format, uint64_t bits)
{
    uint64_t sign = format->part_bits > 1 && format->scheme != FB_SCHEME_E8M0 ? bits >> (format->part_bits - 1) & 1 : 0;
    switch (fb_format_kind(format, bits)) {
    case FB_KIND_NONE: return fb_format_value(format, bits);
    case FB_KIND_POS_INF: return from_bits(UINT64_C(0x7ff) << 52);
    case FB_KIND_NEG_INF: return from_bits(UINT64_C(0xfff) << 52);
    default: return from_bits((UINT64_C(0x7ff8) << 48) | (sign << 63));
    }
}

static double of_integer(int32_t dtype, const uint8_t *data, uint64_t i)
{
    int64_t signed64;
    int32_t signed32;
    int16_t signed16;
    switch (dtype) {
    case FB_I8: return (double)(int8_t)data[i];
    case FB_U8:
    case FB_BOOL: return (double)data[i];
    case FB_I16: memcpy(&signed16, data + 2 * i, 2); return (double)signed16;
    case FB_U16: memcpy(&signed16, data + 2 * i, 2); return (double)(uint16_t)signed16;
    case FB_I32: memcpy(&signed32, data + 4 * i, 4); return (double)signed32;
    case FB_U32: memcpy(&signed32, data + 4 * i, 4); return (double)(uint32_t)signed32;
    case FB_I64: memcpy(&signed64, data + 8 * i, 8); return (double)signed64;
    default: memcpy(&signed64, data + 8 * i, 8); return (double)(uint64_t)signed64;
    }
}

void fb_values_read(int32_t dtype, const void *data, uint64_t count, double *out)
{
    const fb_format *format = fb_format_of(dtype);
    size_t bytes = fb_format_part_bytes(format);
    /* A trainer may run with subnormals taken as zero, and a conversion would do so as well. */
    fb_fpenv saved = fb_fpenv_enter();
    for (uint64_t i = 0; i < count; i++)
        out[i] = is_integer(dtype) ? of_integer(dtype, data, i) : of_code(format, fb_part_bits(data, bytes, (size_t)i));
    fb_fpenv_leave(saved);
}

int32_t fb_values_kind(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return fb_format_kind(fb_format_of(FB_F64), bits);
}

double fb_values_vanish_at(int32_t dtype)
{
    const fb_format *format = fb_format_of(dtype);
    double half;
    fb_fpenv saved;
    if (!format || format->parts != 1 || format->scheme == FB_SCHEME_NONE || format->scheme == FB_SCHEME_E8M0) return 0.0;
    saved = fb_fpenv_enter();
    half = fb_format_value(format, 1) / 2.0; /* of the smallest subnormal; in FP64 itself that is 0 */
    fb_fpenv_leave(saved);
    return half;
}
