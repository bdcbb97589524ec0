#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"
#include "scan/scan_format.h"

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

int fb_number_is_inf(double x)
{
    return (bits_of(x) & UINT64_C(0x7fffffffffffffff)) == UINT64_C(0x7ff0000000000000);
}

int fb_number_is_neg_inf(double x)
{
    return bits_of(x) == UINT64_C(0xfff0000000000000);
}

/* Integers, and scales that have no zero, have no limit that a value of the network could run into. */
static const fb_format *real_format(int32_t format)
{
    const fb_format *row = fb_format_of(format);
    return row && row->parts < 2 && (row->scheme == FB_SCHEME_IEEE || row->scheme == FB_SCHEME_FN || row->scheme == FB_SCHEME_FNUZ)
               ? row
               : NULL;
}

double fb_number_limit(int32_t format)
{
    const fb_format *row = real_format(format);
    return row ? fb_format_value(row, row->max_bits) : 0.0;
}

double fb_number_edge(int32_t format)
{
    const fb_format *row = real_format(format);
    double limit;
    if (!row) return 0.0;
    if (format == FB_F64) return HUGE_VAL;
    /* Half a step beyond the largest number rounding goes up, to a code that stands for no number. The tie goes up as well, since
     * the
       largest code is odd; that of e4m3fn is even, and the tie there stays. It saturates in most kernels and is not told apart. */
    limit = fb_format_value(row, row->max_bits);
    return limit + (limit - fb_format_value(row, row->max_bits - 1)) / 2.0;
}

int fb_number_fits(int32_t format, double x)
{
    double edge = fb_number_edge(format);
    return fb_json_is_number(x) && (edge == 0.0 || fabs(x) < edge);
}

double fb_number_rounded(int32_t format, double x)
{
    const fb_format *row = real_format(format);
    int exponent, smallest, step;
    if (!row || format == FB_F64 || x == 0.0) return x;
    (void)frexp(x, &exponent);
    (void)frexp(fb_format_value(row, row->min_normal), &smallest);
    step = (exponent > smallest ? exponent : smallest) - 1 - row->mantissa_bits;
    return ldexp(rint(ldexp(x, -step)), step);
}

int32_t fb_number_needs(double x)
{
    static const int32_t order[] = {FB_F16, FB_BF16, FB_F32};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (fb_number_fits(order[i], x)) return order[i];
    }
    return 0;
}

const char *fb_number_format(int32_t format)
{
    const char *name = fb_dtype_name(format);
    switch (format) {
    case FB_F16: return "fp16";
    case FB_F32: return "fp32";
    case FB_F64: return "fp64";
    default: return name ? name : "?";
    }
}

const char *fb_number_text(char out[FB_NUMBER_BYTES], double x)
{
    if (fb_json_is_number(x)) {
        snprintf(out, FB_NUMBER_BYTES, "%.6g", x);
        /* The host program may have set a locale with a decimal comma. */
        for (char *c = out; *c; c++) {
            if (*c == ',') *c = '.';
        }
    } else {
        snprintf(out, FB_NUMBER_BYTES, "%s", fb_number_is_neg_inf(x) ? "-Inf" : fb_number_is_inf(x) ? "+Inf" : "NaN");
    }
    return out;
}

/* A text that was cut must not end with the first bytes of a character. */
static void cut_whole(char *text, size_t room)
{
    size_t used = strlen(text), start = used;
    unsigned char first;
    if (used + 1 < room) return;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0u) == 0x80u) start--;
    if (start == 0) return;
    first = (unsigned char)text[--start];
    if (first >= 0xc0u && start + (first >= 0xf0u ? 4u : first >= 0xe0u ? 3u : 2u) > used) text[start] = '\0';
}

void fb_say(char *text, size_t room, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    if (used + 1 >= room) return;
    va_start(arguments, format);
    vsnprintf(text + used, room - used, format, arguments);
    va_end(arguments);
    cut_whole(text, room);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int fb_text_has(const char *text, const char *word)
{
    size_t bytes = strlen(word);
    for (; text && *text; text++) {
        size_t i = 0;
        while (i < bytes && lower(text[i]) == word[i]) i++;
        if (i == bytes) return 1;
    }
    return 0;
}
