/*
 * An exact sum of doubles: a fixed-point number wide enough for everything that block sums can be. Adding is exact, so the order in
 * which threads and tensors are added cannot show in the result, which is rounded once.
 */
#ifndef FB_SCAN_SUM_H
#define FB_SCAN_SUM_H

#include <stdint.h>

/*
 * Limb i counts units of 2^(32 i - FB_SUM_BIAS) and holds its carries until the end: each addition adds less than 2^34 to a limb,
 * so 2^30 additions fit, which is more blocks than 64 bits of address space hold of any tensor that fits into memory.
 */
enum { FB_SUM_BIAS = 2304, FB_SUM_LIMBS = 144 };

typedef struct fb_sum {
    uint64_t limbs[FB_SUM_LIMBS];
    int low, high; /* limbs in use lie in [low, high]; the others are zero */
} fb_sum;

void fb_sum_init(fb_sum *sum);
/* Add value * 2^shift. value is finite and not negative; -1230 <= shift <= 1230. */
void fb_sum_add(fb_sum *sum, double value, int shift);
void fb_sum_merge(fb_sum *into, const fb_sum *from);
/* Round to nearest even: the sum is the returned value times 4^exponent, and exponent is 0 when a normal double can hold it. */
double fb_sum_round(const fb_sum *sum, int32_t *exponent);
/* value * 4^exponent * factor^2, with the exponent chosen anew by the same rule. */
double fb_sum_scale(double value, double factor, int32_t *exponent);

#endif
