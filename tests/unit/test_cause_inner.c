/* What an operator computes on the way, and what may be said where that is not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/one_witness.h"

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))

static void make_unexplained(one_witness *o, double *a, double *out, double *exact)
{
    for (int i = 0; i < 6; i++) a[i] = exact[i] = 1;
    for (int i = 0; i < 6; i++) out[i] = i == 3 ? a_nan() : 1;
    begin(o, "copy", "h.1", FB_FORWARD);
    add_input(o, "x", FB_F32, a, 6, 2, 3, 2);
    add_output(o, "y", FB_F32, out, 6, 2, 3, 2);
    set_exact(o, exact);
}

static void test_cause__what_an_unknown_operator_does_inside_is_not_claimed(void **state)
{
    double a[6], out[6], exact[6];
    one_witness o;
    (void)state;
    make_unexplained(&o, a, out, exact);
    set_place(&o.w.place, "softplus", "h.1", "out", FB_FORWARD);
    o.facts.other_ranks_tried = o.facts.other_ranks_bad = 3;
    assert_string_equal(judge(&o), "kernel_bug");
    assert_false(o.cause.certain);
    says(&o, "not known here");
    assert_null(strstr(o.cause.explanation, "Nothing that such an operator"));
    set_place(&o.w.place, "softmax_backward", "h.1", "out", FB_LOCAL_GRAD);
    assert_string_equal(judge(&o), "kernel_bug");
    assert_false(o.cause.certain);
}

/* Four numbers of two lanes: 3e38 + 3e38 in one of them, although no sum from left to right is above 3e38. */
static void test_cause__a_sum_may_leave_the_format_in_another_order(void **state)
{
    double a[] = {3e38, -3e38, 3e38, -3e38}, out[1], exact[] = {0};
    one_witness o;
    (void)state;
    out[0] = a_nan();
    begin(&o, "sum", "loss", FB_LOSS);
    add_input(&o, "x", FB_F32, a, 4, 1, 4);
    add_output(&o, "y", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    o.facts.other_ranks_tried = o.facts.other_ranks_bad = 3;
    assert_string_equal(judge(&o), "overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    assert_false(o.cause.certain);
    says(&o, "the sum of all terms above 0 is 6e+38");
    /* On other ranks the same additions gave a number. */
    o.facts.other_ranks_bad = 0;
    assert_string_equal(judge(&o), "hardware_fault");
}

static void test_cause__a_norm_is_a_root_without_its_rerun_too(void **state)
{
    double a[] = {1e20, 1e20}, out[1], large[] = {1e200, 1e200}, exact[] = {1.4142135623730951e200};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "norm", "optimizer", FB_REDUCED_GRAD);
    add_input(&o, "g", FB_F32, a, 2, 1, 2);
    add_output(&o, "grad_norm", FB_F32, out, 1, 0);
    (void)judge(&o);
    says(&o, "in FP64 it comes to 1.41421e+20");
    says(&o, "Inside of it");
    /* In FP64 the squares leave FP64. */
    begin(&o, "norm", "optimizer", FB_REDUCED_GRAD);
    add_input(&o, "g", FB_F64, large, 2, 1, 2);
    add_output(&o, "grad_norm", FB_F64, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "overflow");
    says(&o, "the largest number of fp64");
}

static void test_cause__a_sum_with_alpha_or_of_three_is_not_taken_for_a_sum_of_two(void **state)
{
    double a[] = {1}, b[] = {1e38}, c[] = {3e38}, out[1];
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "aten::add.Tensor", "h.1", FB_FORWARD);
    add_input(&o, "a", FB_F32, a, 1, 0);
    add_input(&o, "b", FB_F32, b, 1, 0);
    add_output(&o, "y", FB_F32, out, 1, 0);
    add_attribute(&o, "alpha", 100);
    assert_string_equal(judge(&o), "overflow");
    says(&o, "the exact value is 1e+40");
    begin(&o, "accumulate", "h.1", FB_LOCAL_GRAD);
    add_input(&o, "a", FB_F32, a, 1, 0);
    add_input(&o, "b", FB_F32, b, 1, 0);
    add_input(&o, "c", FB_F32, c, 1, 0);
    add_output(&o, "y", FB_F32, out, 1, 0);
    (void)judge(&o);
    assert_false(o.cause.certain);
    assert_null(strstr(o.cause.explanation, "in FP64 it comes to 1e+38"));
}

static void test_cause__a_result_of_the_other_sign_is_not_that_value(void **state)
{
    double a[] = {300}, out[1], exact[] = {90000};
    one_witness o;
    (void)state;
    out[0] = -an_inf();
    begin(&o, "square", "h.0", FB_FORWARD);
    add_input(&o, "x", FB_F16, a, 1, 0);
    add_output(&o, "y", FB_F16, out, 1, 0);
    set_exact(&o, exact);
    (void)judge(&o);
    assert_false(o.cause.certain);
    says(&o, "has the other sign");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__what_an_unknown_operator_does_inside_is_not_claimed),
        cmocka_unit_test(test_cause__a_sum_may_leave_the_format_in_another_order),
        cmocka_unit_test(test_cause__a_norm_is_a_root_without_its_rerun_too),
        cmocka_unit_test(test_cause__a_sum_with_alpha_or_of_three_is_not_taken_for_a_sum_of_two),
        cmocka_unit_test(test_cause__a_result_of_the_other_sign_is_not_that_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
