/* What PyTorch's operators, names and layouts make of a cause. Each of these was said wrongly, or not at all, of a real program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/one_witness.h"

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))
#define says_not(o, text) assert_null(strstr((o)->cause.explanation, (text)))

/* Scores (8,1,2) of a batch of 4 with 2 heads: row 2 is sample 1, and not sample 2. */
static void test_cause__samples_and_heads_in_one_dimension_name_no_sample(void **state)
{
    double scores[16] = {0}, out[16] = {0}, exact[16] = {0};
    one_witness o;
    (void)state;
    scores[4] = scores[5] = -an_inf();
    out[4] = out[5] = exact[4] = exact[5] = a_nan();
    begin(&o, "aten._softmax.default", "attn", FB_FORWARD);
    add_input(&o, "baddbmm", FB_F32, scores, 16, 3, 8, 1, 2);
    o.in[0].flags = FB_TAPE_MASK;
    add_output(&o, "_softmax", FB_F32, out, 16, 3, 8, 1, 2);
    set_exact(&o, exact);
    o.facts.rows = 4;
    assert_string_equal(judge(&o), "mask_full_row");
    says(&o, "row 2 (matrix 2, query 0) of \"baddbmm\"");
    says_not(&o, "batch");
    assert_int_equal(o.cause.sample, -1);
    o.facts.rows = 8;
    (void)judge(&o);
    says(&o, "row 2 (batch row 2, query 0)");
    assert_int_equal(o.cause.sample, 2);
    o.facts.rows = 0;
    (void)judge(&o);
    says_not(&o, "batch row");
}

static void test_cause__a_row_that_does_not_vary_is_told_with_its_number(void **state)
{
    double x[] = {1, 3, 2, 2}, out[] = {-1, 1, 0, 0}, exact[4];
    one_witness o;
    (void)state;
    out[2] = out[3] = exact[2] = exact[3] = a_nan();
    exact[0] = -1;
    exact[1] = 1;
    begin(&o, "aten.native_layer_norm.default", "norm", FB_FORWARD);
    add_input(&o, "x", FB_F32, x, 4, 2, 2, 2);
    add_output(&o, "native_layer_norm", FB_F32, out, 4, 2, 2, 2);
    add_attribute(&o, "eps", 0.0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "domain_math");
    assert_true(o.cause.certain);
    says(&o, "0/0: all 2 numbers of row 1 of \"x\" are 2, so that they do not vary, and its epsilon is 0.");
}

/* PyTorch calls the number of `x + 1e-8` "other". */
static void test_cause__a_number_that_is_added_and_vanishes_is_an_epsilon(void **state)
{
    static const struct {
        const char *op, *name, *class_name;
    } cases[] = {{"aten.add.Tensor", "other", "epsilon_underflow"},
                 {"aten.add_.Tensor", "other", "epsilon_underflow"},
                 {"aten.add.Tensor", "alpha", "domain_math"},
                 {"aten.mul.Tensor", "other", "domain_math"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double a[] = {0}, out[1], exact[1], module[] = {1e4};
        one_witness o;
        out[0] = exact[0] = an_inf();
        begin(&o, "aten.rsqrt.default", "norm", FB_FORWARD);
        add_input(&o, "add", FB_F16, a, 1, 0);
        add_output(&o, "rsqrt", FB_F16, out, 1, 0);
        set_exact(&o, exact);
        set_module_exact(&o, module, 4);
        add_number(&o, cases[i].op, cases[i].name, 1e-8, FB_F16);
        assert_string_equal(judge(&o), cases[i].class_name);
        assert_int_equal(o.cause.rule, FB_RULE_ROUNDING_UPSTREAM);
        says(&o, "= 1e-08 is 0 in fp16");
    }
}

static void begin_step(one_witness *o, double *p, double *m, double *denominator, double *out, double *exact)
{
    begin(o, "aten.addcdiv_.default", "optimizer", FB_UPDATE);
    add_input(o, "w", FB_F32, p, 2, 0);
    add_input(o, "lerp_", FB_F32, m, 2, 0);
    add_input(o, "add_", FB_F32, denominator, 2, 0);
    add_output(o, "addcdiv_", FB_F32, out, 2, 0);
    set_exact(o, exact);
}

static void test_cause__a_step_that_divides_by_zero_is_told_by_its_operands(void **state)
{
    double p[] = {1, 2}, m[] = {1, 0}, denominator[] = {1, 0}, out[] = {1, 0}, exact[] = {1, 0};
    one_witness o;
    (void)state;
    out[1] = exact[1] = a_nan();
    begin_step(&o, p, m, denominator, out, exact);
    assert_string_equal(judge(&o), "epsilon_underflow");
    assert_int_equal(o.cause.rule, FB_RULE_DOMAIN);
    says(&o, "0/0: \"add_\" at [1] is 0");
    /* A denominator that is not 0 explains nothing. */
    denominator[1] = 1;
    begin_step(&o, p, m, denominator, out, exact);
    assert_string_equal(judge(&o), "domain_math");
    assert_false(o.cause.certain);
}

static void test_cause__an_infinite_step_is_a_question_of_the_learning_rate(void **state)
{
    double p[] = {1}, g[] = {1}, out[1], exact[1];
    one_witness o;
    (void)state;
    out[0] = exact[0] = -an_inf();
    begin(&o, "aten.add_.Tensor", "optimizer", FB_UPDATE);
    add_input(&o, "w", FB_F32, p, 1, 0);
    add_input(&o, "grad", FB_F32, g, 1, 0);
    add_output(&o, "add_", FB_F32, out, 1, 0);
    add_attribute(&o, "alpha", -an_inf());
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "lr_instability");
    assert_false(o.cause.certain);
    o.w.place.boundary = FB_FORWARD;
    assert_string_equal(judge(&o), "domain_math");
}

static void test_cause__a_label_that_was_made_impossible_is_named_in_a_mean(void **state)
{
    double p[] = {-1, -1, -1, 0}, labels[] = {0, 1}, out[1], exact[1];
    one_witness o;
    (void)state;
    p[3] = -an_inf();
    out[0] = exact[0] = an_inf();
    begin(&o, "aten.nll_loss_forward.default", "loss", FB_LOSS);
    add_input(&o, "masked_fill", FB_F32, p, 4, 2, 2, 2);
    add_input(&o, "labels", FB_I64, labels, 2, 1, 2);
    add_output(&o, "nll_loss_forward", FB_F32, out, 1, 0);
    /* The columns are those of what it reads. */
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "domain_math");
    assert_true(o.cause.certain);
    says(&o, "the probability of the label, \"masked_fill\" at [1, 1], is 0");
    /* A label that is ignored asks for nothing. */
    labels[1] = -100;
    (void)judge(&o);
    says_not(&o, "the probability of the label");
}

static void test_cause__a_bias_is_no_product(void **state)
{
    double bias[] = {5}, a[] = {200, 100}, b[] = {300, 100}, out[1], exact[] = {70005};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "aten.addmm.default", "fc", FB_FORWARD);
    add_input(&o, "fc.bias", FB_F16, bias, 1, 1, 1);
    add_input(&o, "x", FB_F16, a, 2, 2, 1, 2);
    add_input(&o, "t", FB_F16, b, 2, 2, 2, 1);
    add_output(&o, "addmm", FB_F16, out, 1, 2, 1, 1);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "fp16_forward_overflow");
    says(&o, "It is a sum of 2 products and a bias; the largest, number 0, is 60000 = 200 (\"x\") x 300 (\"t\").");
    bias[0] = 65000;
    exact[0] = 135000;
    (void)judge(&o);
    says(&o, "It is a sum of 2 products and a bias; the largest, the bias (\"fc.bias\"), is 65000.");
}

static void test_cause__memory_that_nobody_wrote_is_no_arithmetic(void **state)
{
    static const char *const ops[] = {"aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty_strided.default"};
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        double out[1], exact[1];
        one_witness o;
        out[0] = exact[0] = a_nan();
        begin(&o, ops[i], "", FB_FORWARD);
        add_output(&o, "empty", FB_F32, out, 1, 0);
        if (i) set_exact(&o, exact);
        assert_string_equal(judge(&o), "uninitialised_memory");
        assert_int_equal(o.cause.rule, FB_RULE_NONE);
        assert_false(o.cause.certain);
        says(&o, "it computes nothing");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__samples_and_heads_in_one_dimension_name_no_sample),
        cmocka_unit_test(test_cause__a_row_that_does_not_vary_is_told_with_its_number),
        cmocka_unit_test(test_cause__a_number_that_is_added_and_vanishes_is_an_epsilon),
        cmocka_unit_test(test_cause__a_step_that_divides_by_zero_is_told_by_its_operands),
        cmocka_unit_test(test_cause__an_infinite_step_is_a_question_of_the_learning_rate),
        cmocka_unit_test(test_cause__a_label_that_was_made_impossible_is_named_in_a_mean),
        cmocka_unit_test(test_cause__a_bias_is_no_product),
        cmocka_unit_test(test_cause__memory_that_nobody_wrote_is_no_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
