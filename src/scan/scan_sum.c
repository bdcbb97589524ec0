#include "scan/scan_finite_math.h"

#include "scan/scan_sum.h"

#include <string.h>

#include "scan/scan_format.h"

#define LOW32 UINT64_C(0xffffffff)

void fb_sum_init(fb_sum *sum)
{
    memset(sum->limbs, 0, sizeof sum->limbs);
    sum->low = FB_SUM_LIMBS;
    sum->high = -1;
}

static void use_limbs(fb_sum *sum, int low, int high)
{
    if (low < sum->low) sum->low = low;
    if (high > sum->high) sum->high = high;
}

void fb_sum_add(fb_sum *sum, double value, int shift)
{
    uint64_t bits, mantissa, low, high;
    int exponent, place, offset;
    memcpy(&bits, &value, sizeof bits);
    if (bits == 0) return;
    mantissa = bits & ((UINT64_C(1) << 52) - 1);
    exponent = (int)(bits >> 52);
    if (exponent == 0) exponent = 1;
    else mantissa |= UINT64_C(1) << 52;
    place = exponent - 1075 + shift + FB_SUM_BIAS;
    offset = place & 31;
    low = (mantissa & LOW32) << offset;
    high = (mantissa >> 32) << offset;
    sum->limbs[place >> 5] += low & LOW32;
    sum->limbs[(place >> 5) + 1] += (low >> 32) + (high & LOW32);
    sum->limbs[(place >> 5) + 2] += high >> 32;
    use_limbs(sum, place >> 5, (place >> 5) + 2);
}

void fb_sum_merge(fb_sum *into, const fb_sum *from)
{
    int i;
    for (i = from->low; i <= from->high; i++) into->limbs[i] += from->limbs[i];
    use_limbs(into, from->low, from->high);
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

/* Digits of 32 bits with the carries worked in; those below `low` are zero and not there. */
typedef struct digits {
    uint64_t digit[FB_SUM_LIMBS];
    int low, top; /* top: the leading digit that is not zero; below low when the sum is zero */
} digits;

static void take_digits(const fb_sum *sum, digits *d)
{
    int high = sum->high + 2 < FB_SUM_LIMBS ? sum->high + 2 : FB_SUM_LIMBS - 1; /* room for carries */
    uint64_t carry = 0;
    int i;
    d->low = sum->low;
    for (i = sum->low; i <= high; i++) {
        uint64_t limb = sum->limbs[i] + carry;
        d->digit[i] = limb & LOW32;
        carry = limb >> 32;
    }
    d->top = sum->high < 0 ? sum->low - 1 : high;
    while (d->top >= d->low && d->digit[d->top] == 0) d->top--;
}

static uint64_t digit_at(const digits *d, int i)
{
    return i >= d->low ? d->digit[i] : 0;
}

double fb_sum_round(const fb_sum *sum, int32_t *exponent)
{
    digits d;
    uint64_t window, mantissa, tail, third, rest = 0;
    int i, shift, place;
    *exponent = 0;
    take_digits(sum, &d);
    if (d.top < d.low) return 0.0;
    /* The leading 64 bits, then whether anything is left below them. */
    shift = __builtin_clz((unsigned)d.digit[d.top]);
    third = digit_at(&d, d.top - 2);
    window = (d.digit[d.top] << 32 | digit_at(&d, d.top - 1)) << shift | third >> (32 - shift);
    rest = (third << shift) & LOW32;
    for (i = d.low; i < d.top - 2; i++) rest |= d.digit[i];
    place = 32 * (d.top - 1) - shift - FB_SUM_BIAS + 11;
    mantissa = window >> 11;
    tail = window & 0x7ff;
    if (tail > 0x400 || (tail == 0x400 && (rest != 0 || (mantissa & 1)))) mantissa++;
    if (mantissa >> 53) {
        mantissa >>= 1;
        place++;
    }
    return compose(mantissa, place, exponent);
}

/* value = mantissa * 2^place with 53 bits and the top bit set; value is positive and finite. */
static uint64_t take_apart(double value, int *place)
{
    uint64_t bits, mantissa;
    int exponent, shift;
    memcpy(&bits, &value, sizeof bits);
    mantissa = bits & ((UINT64_C(1) << 52) - 1);
    exponent = (int)(bits >> 52);
    if (exponent == 0) exponent = 1;
    else mantissa |= UINT64_C(1) << 52;
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
