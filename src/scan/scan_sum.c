#include "scan/scan_finite_math.h"

#include "scan/scan_sum.h"

#include <string.h>

#include "scan/scan_format.h"

#define LOW32 UINT64_C(0xffffffff)

void fb_sum_add(fb_sum *sum, double value, int shift)
{
    uint64_t bits, mantissa, low, high;
    int exponent, place, offset;
    memcpy(&bits, &value, sizeof bits);
    if (bits == 0) return;
    mantissa = bits & ((UINT64_C(1) << 52) - 1);
    exponent = (int)(bits >> 52);
    if (exponent == 0)
        exponent = 1;
    else
        mantissa |= UINT64_C(1) << 52;
    place = exponent - 1075 + shift + FB_SUM_BIAS;
    offset = place & 31;
    low = (mantissa & LOW32) << offset;
    high = (mantissa >> 32) << offset;
    sum->limbs[place >> 5] += low & LOW32;
    sum->limbs[(place >> 5) + 1] += (low >> 32) + (high & LOW32);
    sum->limbs[(place >> 5) + 2] += high >> 32;
}

void fb_sum_merge(fb_sum *into, const fb_sum *from)
{
    int i;
    for (i = 0; i < FB_SUM_LIMBS; i++) into->limbs[i] += from->limbs[i];
}

/* mantissa (53 bits, top bit set) times 2^place, as value and power of four. */
static double compose(uint64_t mantissa, int place, int32_t *exponent)
{
    int top = place + 52; /* floor(log2 of it) */
    *exponent = 0;
    if (top < -1022 || top > 1023) {
        *exponent = (top - (top & 1)) / 2;
        top -= 2 * *exponent;
    }
    return (double)mantissa * fb_pow2(-52) * fb_pow2(top);
}

double fb_sum_round(const fb_sum *sum, int32_t *exponent)
{
    uint64_t digits[FB_SUM_LIMBS], carry = 0, window, rest = 0;
    int i, top, shift, place;
    *exponent = 0;
    for (i = 0; i < FB_SUM_LIMBS; i++) {
        uint64_t limb = sum->limbs[i] + carry;
        digits[i] = limb & LOW32;
        carry = limb >> 32;
    }
    for (top = FB_SUM_LIMBS - 1; top >= 0 && digits[top] == 0; top--)
        ;
    if (top < 0) return 0.0;
    /* The leading 64 bits, then whether anything is left below them. */
    shift = __builtin_clz((unsigned)digits[top]);
    window = digits[top] << 32 | (top >= 1 ? digits[top - 1] : 0);
    if (shift) window = window << shift | (top >= 2 ? digits[top - 2] >> (32 - shift) : 0);
    if (top >= 2) rest |= shift ? (digits[top - 2] << shift) & LOW32 : digits[top - 2];
    for (i = 0; i < top - 2; i++) rest |= digits[i];
    place = 32 * (top - 1) - shift - FB_SUM_BIAS + 11;
    {
        uint64_t tail = window & 0x7ff, mantissa = window >> 11;
        if (tail > 0x400 || (tail == 0x400 && (rest != 0 || (mantissa & 1)))) mantissa++;
        if (mantissa >> 53) {
            mantissa >>= 1;
            place++;
        }
        return compose(mantissa, place, exponent);
    }
}

/* value = mantissa * 2^place with 53 bits and the top bit set; value is positive and finite. */
static uint64_t take_apart(double value, int *place)
{
    uint64_t bits, mantissa;
    int exponent, shift;
    memcpy(&bits, &value, sizeof bits);
    mantissa = bits & ((UINT64_C(1) << 52) - 1);
    exponent = (int)(bits >> 52);
    if (exponent == 0)
        exponent = 1;
    else
        mantissa |= UINT64_C(1) << 52;
    shift = __builtin_clzll(mantissa) - 11;
    *place = exponent - 1075 - shift;
    return mantissa << shift;
}

double fb_sum_scale(double value, double factor, int32_t *exponent)
{
    int value_place, factor_place, square_place, product_place;
    double square, product;
    if (factor == 1.0 || value == 0.0) return value;
    /* Both are brought into [1, 2) first, so that only the two roundings of the products are left and nothing leaves FP64. */
    square = (double)take_apart(factor, &factor_place) * fb_pow2(-52);
    square = square * square;
    product = (double)take_apart(value, &value_place) * fb_pow2(-52) * square;
    square_place = 2 * (factor_place + 52);
    value = (double)take_apart(product, &product_place);
    product_place += square_place + value_place + 52 + 2 * *exponent;
    return compose((uint64_t)value, product_place, exponent);
}
