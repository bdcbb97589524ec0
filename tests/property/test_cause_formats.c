/*
 * Range told from rounding: random operators on random numbers of fp16, bf16 and fp32, judged out of the rerun in FP64, against a
 * reference in long double that rounds by itself. 60,000 operators; FB_SEED draws others.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/one_witness.h"

static uint64_t seed;

static uint64_t draw(void)
{
    uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Precision and largest exponent of a format, written down here once more. */
typedef struct format {
    int32_t dtype;
    int bits, top;
} format;
static const format formats[] = {{FB_F16, 11, 15}, {FB_BF16, 8, 127}, {FB_F32, 24, 127}};

static long double largest(const format *f)
{
    return ldexpl(2.0L - ldexpl(1.0L, 1 - f->bits), f->top);
}

/* Does x round to a finite number? Ties go to the even neighbour, which beyond the largest is the one that does not exist. */
static int fits(const format *f, long double x)
{
    return fabsl(x) < ldexpl(2.0L - ldexpl(1.0L, -f->bits), f->top);
}

/* A number of the format, of some magnitude near 2^middle. */
static double number(const format *f, int middle)
{
    double mantissa = (double)((UINT64_C(1) << (f->bits - 1)) + draw() % (UINT64_C(1) << (f->bits - 1)));
    double x = ldexp(mantissa, middle + (int)(draw() % 5) - 2 - (f->bits - 1));
    if (x > (double)largest(f)) x = (double)largest(f);
    return draw() % 4 == 0 ? -x : x;
}

/* The smallest of the three that holds x. */
static int32_t holder(long double x)
{
    for (size_t i = 0; i < 3; i++) {
        if (fits(&formats[i], x)) return formats[i].dtype;
    }
    return 0;
}

enum { TERMS = 4 };

static void judge_one(const format *f, int kind)
{
    static const char *const ops[] = {"add", "mul", "square", "linear"};
    double a[TERMS], b[TERMS], out[1], exact[1];
    int middle = kind == 0 ? f->top : f->top / 2, count = kind == 3 ? TERMS : 1;
    long double truth = 0.0L;
    one_witness o;
    for (int i = 0; i < count; i++) {
        a[i] = number(f, middle);
        b[i] = number(f, middle);
        truth += kind == 0 ? (long double)a[i] + b[i] : kind == 2 ? (long double)a[i] * a[i] : (long double)a[i] * b[i];
    }
    exact[0] = (double)truth;
    out[0] = an_inf();
    begin(&o, ops[kind], "h.0", FB_FORWARD);
    add_input(&o, "a", f->dtype, a, (uint64_t)count, 2, 1, count);
    if (kind != 2) add_input(&o, "b", f->dtype, b, (uint64_t)count, 2, 1, count);
    add_output(&o, "y", f->dtype, out, 1, 2, 1, 1);
    /* Every other time without the rerun: the operands alone must tell the same. */
    if (draw() % 2) set_exact(&o, exact);
    (void)judge(&o);
    if (fits(f, truth)) {
        if (o.cause.rule == FB_RULE_RANGE && fabs(o.cause.value - exact[0]) <= 1e-12 * fabs(exact[0])) {
            fail_msg("%s: %a fits %s and was called too large (FB_SEED)", ops[kind], exact[0], fb_dtype_name(f->dtype));
        }
        return;
    }
    if (o.cause.rule != FB_RULE_RANGE)
        fail_msg("%s: %a does not fit %s and was not called range", ops[kind], exact[0], fb_dtype_name(f->dtype));
    /* Without the rerun it is a sum in FP64, which rounds where long double does not. */
    assert_true(fabs(o.cause.value - exact[0]) <= (o.w.exact ? 0.0 : 1e-12 * fabs(exact[0])));
    assert_true(o.cause.limit == (double)largest(f));
    assert_int_equal(o.cause.format_needed, holder(truth));
}

static void test_cause__range_is_what_does_not_round_to_a_number_of_the_format(void **state)
{
    const char *text = getenv("FB_SEED");
    uint64_t first = text ? strtoull(text, NULL, 10) : 1;
    (void)state;
    seed = first;
    printf("FB_SEED=%llu\n", (unsigned long long)first);
    for (int i = 0; i < 60000; i++) judge_one(&formats[draw() % 3], (int)(draw() % 4));
}

/* At the limit itself, one step to either side of it. */
static void test_cause__the_last_number_that_fits_is_told_from_the_first_that_does_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const format *f = &formats[i];
        double edge = (double)ldexpl(2.0L - ldexpl(1.0L, -f->bits), f->top), a[1] = {1}, b[1], out[1], exact[1];
        for (int beyond = 0; beyond < 2; beyond++) {
            one_witness o;
            b[0] = exact[0] = beyond ? edge : nextafter(edge, 0.0);
            out[0] = an_inf();
            begin(&o, "mul", "h.0", FB_FORWARD);
            add_input(&o, "a", FB_F64, a, 1, 0);
            add_input(&o, "b", FB_F64, b, 1, 0);
            add_output(&o, "y", f->dtype, out, 1, 0);
            set_exact(&o, exact);
            (void)judge(&o);
            assert_int_equal(o.cause.rule, beyond ? FB_RULE_RANGE : FB_RULE_ROUNDING);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__range_is_what_does_not_round_to_a_number_of_the_format),
        cmocka_unit_test(test_cause__the_last_number_that_fits_is_told_from_the_first_that_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
