#include "scan/scan_finite_math.h"

#include "scan/scan_format.h"

#define ONES(n) ((UINT64_C(1) << (n)) - 1)

/*
 * Sources: IEEE 754-2019 (F64, F32, F16); BF16 is the upper half of an F32; OCP 8-bit Floating Point Specification (E4M3FN, E5M2);
 * the FNUZ formats as in PyTorch and LLVM (one NaN, where negative zero would be; bias one larger); OCP Microscaling Formats
 * (E8M0). plain_from and plain_below of F64: 2^-400 and 2^480; of F32 and BF16: 2^-40 and 2^60 (docs/format/numbers.md says why).
 */
#define WIDE_F64                                                                                                                 \
    FB_SCHEME_IEEE, FB_SUM_WIDE, 52, 0, 1023, 0, 0, ONES(63), ONES(11) << 52, ONES(63), (ONES(11) << 52) - 1, UINT64_C(1) << 52, \
        UINT64_C(623) << 52, UINT64_C(1503) << 52
#define QUAD_F32 \
    FB_SCHEME_IEEE, FB_SUM_QUAD, 23, 0, 127, 0, 0, ONES(31), 0x7f800000, ONES(31), 0x7f7fffff, 0x00800000, 87u << 23, 187u << 23
#define NOTHING FB_SCHEME_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0

static const fb_format formats[] = {
    {"f64", FB_F64, 64, 1, WIDE_F64},
    {"f32", FB_F32, 32, 1, QUAD_F32},
    {"f16", FB_F16, 16, 1, FB_SCHEME_IEEE, FB_SUM_OCT, 10, 0, 15, 0, 0, 0x7fff, 0x7c00, 0x7fff, 0x7bff, 0x0400, 0, UINT64_MAX},
    {"bf16", FB_BF16, 16, 1, FB_SCHEME_IEEE, FB_SUM_OCT, 7, 1, 127, 0, 0, 0x7fff, 0x7f80, 0x7fff, 0x7f7f, 0x0080, 87u << 7,
     187u << 7},
    {"f8_e4m3fn", FB_F8_E4M3FN, 8, 1, FB_SCHEME_FN, FB_SUM_OCT, 3, 0, 7, 16, 0, 0x7f, 0x7f, 0x7f, 0x7e, 0x08, 0, UINT64_MAX},
    {"f8_e5m2", FB_F8_E5M2, 8, 1, FB_SCHEME_IEEE, FB_SUM_OCT, 2, 0, 15, 0, 0, 0x7f, 0x7c, 0x7f, 0x7b, 0x04, 0, UINT64_MAX},
    {"f8_e4m3fnuz", FB_F8_E4M3FNUZ, 8, 1, FB_SCHEME_FNUZ, FB_SUM_OCT, 3, 0, 8, 14, 0x7f, 0xff, 0xff, 0x7f, 0x7f, 0x08, 0,
     UINT64_MAX},
    {"f8_e5m2fnuz", FB_F8_E5M2FNUZ, 8, 1, FB_SCHEME_FNUZ, FB_SUM_OCT, 2, 0, 16, 0, 0x7f, 0xff, 0xff, 0x7f, 0x7f, 0x04, 0,
     UINT64_MAX},
    {"f8_e8m0", FB_F8_E8M0, 8, 1, FB_SCHEME_E8M0, FB_SUM_WIDE, 0, 0, 127, 0, 0, 0xff, 0xff, 0xff, 0xfe, 0, 0, UINT64_MAX},
    {"c64", FB_C64, 32, 2, QUAD_F32},
    {"c128", FB_C128, 64, 2, WIDE_F64},
    {"i8", FB_I8, 8, 1, NOTHING},
    {"u8", FB_U8, 8, 1, NOTHING},
    {"i16", FB_I16, 16, 1, NOTHING},
    {"u16", FB_U16, 16, 1, NOTHING},
    {"i32", FB_I32, 32, 1, NOTHING},
    {"u32", FB_U32, 32, 1, NOTHING},
    {"i64", FB_I64, 64, 1, NOTHING},
    {"u64", FB_U64, 64, 1, NOTHING},
    {"bool", FB_BOOL, 8, 1, NOTHING},
    {"f4_e2m1", FB_F4_E2M1, 4, 1, NOTHING},
    {"f6_e2m3", FB_F6_E2M3, 8, 1, NOTHING}, /* stored one a byte */
    {"f6_e3m2", FB_F6_E3M2, 8, 1, NOTHING},
};

const fb_format *fb_format_of(int32_t dtype)
{
    size_t i;
    for (i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].dtype == dtype) return &formats[i];
    return NULL;
}

const char *fb_dtype_name(int32_t dtype)
{
    const fb_format *format = fb_format_of(dtype);
    return format ? format->name : NULL;
}

uint64_t fb_dtype_bytes(int32_t dtype, uint64_t count)
{
    const fb_format *format = fb_format_of(dtype);
    uint64_t bytes;
    if (!format) return 0;
    if (format->part_bits == 4) return count / 2 + count % 2;
    if (__builtin_mul_overflow(count, (uint64_t)(format->part_bits / 8u) * format->parts, &bytes)) return 0;
    return bytes;
}

int32_t fb_format_kind(const fb_format *format, uint64_t bits)
{
    uint64_t sign = (format->abs_mask + 1) & ~format->abs_mask;
    if (!fb_format_is_bad(format, bits)) return FB_KIND_NONE;
    if (format->scheme != FB_SCHEME_IEEE || (bits & format->abs_mask) != format->bad_from) return FB_KIND_NAN;
    return bits & sign ? FB_KIND_NEG_INF : FB_KIND_POS_INF;
}

static double small_value(const fb_format *format, uint64_t bits)
{
    uint64_t magnitude = bits & format->abs_mask;
    uint64_t mantissa = magnitude & ONES(format->mantissa_bits);
    int exponent = (int)(magnitude >> format->mantissa_bits);
    double value;
    if (format->scheme == FB_SCHEME_E8M0) return fb_pow2((int)magnitude - 127);
    if (exponent == 0) exponent = 1;
    else mantissa |= UINT64_C(1) << format->mantissa_bits;
    value = (double)mantissa * fb_pow2(exponent - format->bias - format->mantissa_bits);
    return bits & (format->abs_mask + 1) ? -value : value;
}

double fb_format_value(const fb_format *format, uint64_t bits)
{
    uint32_t bits32 = (uint32_t)bits;
    double wide;
    float narrow;
    if (format->part_bits == 64) {
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
    if (format->part_bits == 8 || format->dtype == FB_F16) return small_value(format, bits);
    if (format->dtype == FB_BF16) bits32 <<= 16;
    memcpy(&narrow, &bits32, sizeof narrow);
    return (double)narrow;
}

unsigned fb_format_bin(const fb_format *format, uint64_t bits)
{
    uint64_t magnitude = bits & format->abs_mask;
    int64_t bin;
    if (fb_format_is_bad(format, bits)) return 255;
    if (format->scheme != FB_SCHEME_E8M0 && magnitude < format->min_normal) return 0;
    bin = (int64_t)(magnitude >> format->mantissa_bits) - format->bias + 127;
    return (unsigned)(bin < 1 ? 1 : bin > 254 ? 254 : bin);
}
