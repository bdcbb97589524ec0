/* The rules of range and rounding, each with numbers that were worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "locate/cause_inside.h"
#include "support/one_witness.h"

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))

/* ---- numbers ----------------------------------------------------------------------------------------------------------------- */

static void test_cause__limits_are_those_of_the_formats(void **state)
{
    (void)state;
    assert_true(fb_number_limit(FB_F16) == 65504.0);
    assert_true(fb_number_edge(FB_F16) == 65520.0);
    assert_true(fb_number_limit(FB_F32) == 0x1.fffffep127);
    assert_true(fb_number_edge(FB_F32) == 0x1.ffffffp127);
    assert_true(fb_number_limit(FB_BF16) == 0x1.fep127);
    assert_true(fb_number_edge(FB_BF16) == 0x1.ffp127);
    assert_true(fb_number_limit(FB_F8_E5M2) == 57344.0);
    assert_true(fb_number_limit(FB_I32) == 0.0);
    assert_true(fb_number_fits(FB_F16, 65519.99) && !fb_number_fits(FB_F16, -65520.0));
    assert_int_equal(fb_number_needs(70000.0), FB_BF16);
    assert_int_equal(fb_number_needs(-65504.0), FB_F16);
    assert_int_equal(fb_number_needs(0x1.ff8p127), FB_F32);
    assert_int_equal(fb_number_needs(1e39), 0);
}

static void test_cause__numbers_round_as_the_format_does(void **state)
{
    (void)state;
    assert_true(fb_number_rounded(FB_F16, 1e-8) == 0.0);
    assert_true(fb_number_rounded(FB_F16, 0x1.8p-25) == 0x1p-24);
    assert_true(fb_number_rounded(FB_F16, 0x1p-25) == 0.0);
    assert_true(fb_number_rounded(FB_BF16, 1.0 - 1e-6) == 1.0);
    assert_true(fb_number_rounded(FB_F16, 1.0 - 1e-3) == 0x1.ff8p-1);
    assert_true(fb_number_rounded(FB_F32, 0.1) == (double)0.1f);
    assert_true(fb_number_rounded(FB_BF16, 257.0) == 256.0 && fb_number_rounded(FB_BF16, 259.0) == 260.0);
}

static void test_cause__numbers_that_are_none_are_written_in_words(void **state)
{
    char text[FB_NUMBER_BYTES];
    (void)state;
    assert_string_equal(fb_number_text(text, an_inf()), "+Inf");
    assert_string_equal(fb_number_text(text, -an_inf()), "-Inf");
    assert_string_equal(fb_number_text(text, a_nan()), "NaN");
    assert_string_equal(fb_number_text(text, 65504.0), "65504");
}

static void test_cause__operators_are_known_by_all_their_names(void **state)
{
    static const struct {
        const char *name;
        int32_t kind, backward;
    } names[] = {{"softmax", FB_OP_SOFTMAX, 0},
                 {"aten::_softmax", FB_OP_SOFTMAX, 0},
                 {"SoftmaxBackward0", FB_OP_SOFTMAX, 1},
                 {"aten::_softmax_backward_data", FB_OP_SOFTMAX, 1},
                 {"LogSoftmaxBackward0", FB_OP_LOG_SOFTMAX, 1},
                 {"NativeLayerNormBackward0", FB_OP_LAYER_NORM, 1},
                 {"torch.ops.aten.sum.dim_IntList", FB_OP_SUM, 0},
                 {"aten::div_.Tensor", FB_OP_DIV, 0},
                 {"linear_backward", FB_OP_LINEAR, 1},
                 {"NllLossBackward0", FB_OP_NLL, 1},
                 {"c10d::allreduce_", FB_OP_COLLECTIVE, 0},
                 {"Log1PBackward0", FB_OP_LOG1P, 1},
                 {"my_kernel", FB_OP_OTHER, 0},
                 {"", FB_OP_OTHER, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t backward = -1;
        assert_int_equal(fb_op_kind(names[i].name, &backward), names[i].kind);
        assert_int_equal(backward, names[i].backward);
    }
    assert_int_equal(fb_op_kind(NULL, &(int32_t){0}), FB_OP_OTHER);
}

static void test_cause__a_text_that_is_cut_keeps_whole_characters(void **state)
{
    char text[8] = "";
    (void)state;
    fb_say(text, sizeof text, "abcde\xc3\xa9\xc3\xa9");
    assert_string_equal(text, "abcde\xc3\xa9");
    text[0] = '\0';
    fb_say(text, sizeof text, "abcdef\xc3\xa9");
    assert_string_equal(text, "abcdef");
}

/* ---- range ------------------------------------------------------------------------------------------------------------------- */

static void test_cause__a_sum_of_products_beyond_fp16_names_its_largest_term(void **state)
{
    /* Row 1 is 200 * 300 + 100 * 100 = 70000. */
    double a[] = {1, 1, 200, 100}, weight[] = {300, 100}, out[] = {400, 0}, exact[] = {400, 70000};
    int64_t ids[] = {20416, 20417};
    one_witness o;
    (void)state;
    out[1] = an_inf();
    begin(&o, "linear", "h.2.mlp", FB_FORWARD);
    add_input(&o, "x", FB_F16, a, 4, 2, 2, 2);
    add_input(&o, "c_fc.weight", FB_F16, weight, 2, 2, 1, 2);
    add_output(&o, "c_fc", FB_F16, out, 2, 2, 2, 1);
    set_exact(&o, exact);
    o.facts.rows = 2;
    o.facts.columns = 1;
    o.facts.sample_ids = ids;
    assert_string_equal(judge(&o), "fp16_forward_overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    assert_true(o.cause.certain && o.cause.has_value && o.cause.value == 70000.0 && o.cause.limit == 65504.0);
    assert_int_equal(o.cause.format_needed, FB_BF16);
    assert_int_equal(o.cause.sample, 1);
    assert_int_equal(o.cause.sample_id, 20417);
    says(&o, "linear (forward) in h.2.mlp: the exact value is 70000, and the largest number of fp16 is 65504; bf16 holds it.");
    says(&o, "a sum of 2 products; the largest, number 0, is 60000 = 200 (\"x\") x 300 (\"c_fc.weight\")");
    says(&o, "row 1 of the batch (sample 20417)");
    assert_string_equal(o.cause.verify, "firstbad replay a1-000412 --batch minimal (exit 0 once the fix is in)");
    assert_non_null(
        strstr(o.cause.witness, "read 2 tensors, all finite (largest magnitude 300), and made +inf at [1, 0] of \"c_fc\""));
}

static void test_cause__the_gradient_of_a_weight_belongs_to_no_sample(void **state)
{
    /* d_weight (2,1): sum over rows of g * a = 200 * 300 + 100 * 100 for output 0. */
    double g[] = {200, 1, 100, 1}, a[] = {300, 100}, weight[] = {1, 1}, d_a[] = {1, 1}, d_weight[] = {0, 400},
           exact[] = {70000, 400};
    one_witness o;
    (void)state;
    d_weight[0] = an_inf();
    begin(&o, "linear_backward", "h.2.mlp", FB_LOCAL_GRAD);
    add_input(&o, "d_c_fc", FB_F16, g, 4, 2, 2, 2);
    add_input(&o, "x", FB_F16, a, 2, 2, 2, 1);
    add_input(&o, "c_fc.weight", FB_F16, weight, 2, 2, 2, 1);
    add_output(&o, "d_x", FB_F16, d_a, 2, 2, 2, 1);
    add_output(&o, "grad.c_fc", FB_F16, d_weight, 2, 2, 2, 1);
    set_exact(&o, exact);
    o.facts.rows = 2;
    o.facts.columns = 1;
    assert_string_equal(judge(&o), "fp16_backward_overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    assert_int_equal(o.cause.sample, -1);
    says(&o, "60000 = 200 (\"d_c_fc\") x 300 (\"x\")");
}

static void test_cause__an_exponential_beyond_fp32_is_range_even_beyond_fp64(void **state)
{
    double a[] = {100}, out[1], exact[] = {0x1.3494a9b171bf5p+144};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "exp", "h.0.attn", FB_FORWARD);
    add_input(&o, "scaled", FB_F32, a, 1, 0);
    add_output(&o, "e", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "no format of fp16, bf16 and fp32 holds it. It is made of 100 (\"scaled\")");
    a[0] = 1000;
    exact[0] = an_inf();
    assert_string_equal(judge(&o), "overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "exceeds FP64 itself");
}

static void test_cause__the_limit_is_where_rounding_leaves_the_format(void **state)
{
    double a[] = {65000}, b[] = {519}, out[1], exact[] = {65519};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "add", "h.0", FB_FORWARD);
    add_input(&o, "a", FB_F16, a, 1, 0);
    add_input(&o, "b", FB_F16, b, 1, 0);
    add_output(&o, "sum", FB_F16, out, 1, 0);
    set_exact(&o, exact);
    (void)judge(&o);
    assert_int_equal(o.cause.rule, FB_RULE_ROUNDING);
    b[0] = 520;
    exact[0] = 65520;
    (void)judge(&o);
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "It is made of 65000 (\"a\") and 520 (\"b\").");
}

static void test_cause__a_collective_sum_beyond_the_format_is_range(void **state)
{
    double mine[] = {30000}, out[1], exact[] = {120000};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "all_reduce", "", FB_REDUCED_GRAD);
    o.w.op_flags = FB_TAPE_COLLECTIVE;
    add_input(&o, "grad", FB_F16, mine, 1, 0);
    add_output(&o, "grad", FB_F16, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "fp16_backward_overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    assert_true(o.cause.certain);
    /* In FP32 the same is an overflow without a name of its own. */
    o.out[0].format = FB_F32;
    exact[0] = 1e39;
    assert_string_equal(judge(&o), "overflow");
}

static void test_cause__a_scale_or_a_rate_among_the_operands_is_named(void **state)
{
    double g[] = {4}, scale[] = {0x1p126}, out[1], exact[] = {0x1p128};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "mul", "loss", FB_LOCAL_GRAD);
    add_input(&o, "d_loss", FB_F32, g, 1, 0);
    add_input(&o, "loss_scale", FB_F32, scale, 1, 0);
    o.in[1].flags = FB_TAPE_SCALAR | FB_TAPE_STATE;
    add_output(&o, "scaled", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "scale_runaway");
    o.in[1].name = (char *)(uintptr_t) "learning_rate";
    assert_string_equal(judge(&o), "lr_instability");
    assert_false(o.cause.certain);
    /* A scale that any scaler would start with is not the fault of the scaler. */
    o.in[1].name = (char *)(uintptr_t) "loss_scale";
    scale[0] = 65536;
    g[0] = exact[0] = 1e39;
    assert_string_equal(judge(&o), "overflow");
}

static void test_cause__weights_too_large_before_any_update_are_the_initialisation(void **state)
{
    double a[] = {1e4, 1e4, 1e4, 1e4}, weight[] = {50, 50, 50, 50}, out[1], exact[] = {2e6};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "linear", "h.0.mlp", FB_FORWARD);
    add_input(&o, "x", FB_F16, a, 4, 2, 1, 4);
    add_input(&o, "c_fc.weight", FB_F16, weight, 4, 2, 1, 4);
    o.in[1].entry = 1;
    o.in[1].flags = FB_TAPE_STATE;
    add_output(&o, "c_fc", FB_F16, out, 1, 2, 1, 1);
    set_exact(&o, exact);
    o.facts.first_step_of_attempt = 1;
    assert_string_equal(judge(&o), "init_scale");
    assert_false(o.cause.certain);
    o.facts.first_step_of_attempt = 0;
    assert_string_equal(judge(&o), "fp16_forward_overflow");
}

static void test_cause__range_that_persists_in_fp32_is_not_certain(void **state)
{
    double a[] = {300}, out[1], exact[] = {90000};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "square", "h.0", FB_FORWARD);
    add_input(&o, "x", FB_F16, a, 1, 0);
    add_output(&o, "y", FB_F16, out, 1, 0);
    set_exact(&o, exact);
    (void)judge(&o);
    assert_true(o.cause.certain);
    o.facts.persists = 1;
    (void)judge(&o);
    assert_false(o.cause.certain);
    says(&o, "in FP32 shows the finding as well");
}

/* ---- rounding ---------------------------------------------------------------------------------------------------------------- */

static void test_cause__a_partial_sum_beyond_the_format_is_told_from_the_sum(void **state)
{
    double a[] = {60000, 60000, -60000, -60000}, out[1], exact[] = {0};
    one_witness o;
    (void)state;
    out[0] = a_nan();
    begin(&o, "sum", "loss", FB_FORWARD);
    add_input(&o, "x", FB_F16, a, 4, 0);
    add_output(&o, "total", FB_F16, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "fp16_forward_overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "in FP64 it comes to 0, which fp16 holds");
    says(&o, "a partial sum is 120000");
    says(&o, "after 2 of them it stands at 120000");
}

static void test_cause__the_cube_inside_of_gelu_is_found(void **state)
{
    double a[] = {50}, out[1], exact[] = {50};
    one_witness o;
    (void)state;
    out[0] = a_nan();
    begin(&o, "gelu", "h.0.mlp", FB_FORWARD);
    add_input(&o, "c_fc", FB_F16, a, 1, 0);
    add_output(&o, "gelu", FB_F16, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "fp16_forward_overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "the cube of its input is 125000");
}

static void test_cause__squares_beyond_fp32_inside_of_a_norm_are_found(void **state)
{
    double a[] = {1e20, 1e20}, out[1], exact[] = {1.4142135623730951e20};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    begin(&o, "norm", "", FB_REDUCED_GRAD);
    add_input(&o, "grad", FB_F32, a, 2, 0);
    add_output(&o, "grad_norm", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "a partial sum is 2e+40");
    /* The norm of several tensors is one sum. */
    exact[0] = 2e20;
    add_input(&o, "other", FB_F32, a, 2, 0);
    assert_string_equal(judge(&o), "overflow");
    assert_int_equal(o.cause.rule, FB_RULE_RANGE);
    says(&o, "a partial sum is 4e+40");
}

static void test_cause__an_epsilon_inside_of_a_fused_norm_can_vanish(void **state)
{
    double a[] = {1, 1}, out[2], exact[] = {0, 0};
    one_witness o;
    (void)state;
    out[0] = out[1] = a_nan();
    begin(&o, "native_layer_norm", "h.0.ln_1", FB_FORWARD);
    add_input(&o, "x", FB_F16, a, 2, 2, 1, 2);
    add_output(&o, "y", FB_F16, out, 2, 2, 1, 2);
    add_attribute(&o, "eps", 1e-8);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "epsilon_underflow");
    assert_int_equal(o.cause.rule, FB_RULE_ROUNDING);
    says(&o, "Its epsilon 1e-08 is 0 in fp16.");
}

static void make_unexplained(one_witness *o, double *a, double *out, double *exact)
{
    for (int i = 0; i < 6; i++) a[i] = exact[i] = 1;
    for (int i = 0; i < 6; i++) out[i] = i == 3 ? a_nan() : 1;
    begin(o, "copy", "h.1", FB_FORWARD);
    add_input(o, "x", FB_F32, a, 6, 2, 3, 2);
    add_output(o, "y", FB_F32, out, 6, 2, 3, 2);
    set_exact(o, exact);
}

static void test_cause__what_arithmetic_does_not_explain_is_kernel_device_or_memory(void **state)
{
    double a[6], out[6], exact[6];
    one_witness o;
    (void)state;
    make_unexplained(&o, a, out, exact);
    assert_string_equal(judge(&o), "kernel_bug");
    assert_int_equal(o.cause.rule, FB_RULE_NONE);
    assert_false(o.cause.certain);
    says(&o, "not ruled out");
    o.facts.other_ranks_tried = o.facts.other_ranks_bad = 3;
    assert_string_equal(judge(&o), "kernel_bug");
    assert_true(o.cause.certain);
    o.facts.other_ranks_bad = 0;
    assert_string_equal(judge(&o), "hardware_fault");
    assert_true(o.cause.certain);
    says(&o, "the device of rank 1");
    assert_non_null(strstr(o.cause.verify, "on another machine"));
    o.facts.other_ranks_tried = 0;
    out[4] = a_nan();
    assert_string_equal(judge(&o), "uninitialised_memory");
    says(&o, "All rows from 1 on");
    out[0] = a_nan();
    assert_string_equal(judge(&o), "kernel_bug");
}

static void test_cause__a_collective_that_gives_no_sum_is_a_race_or_one_ranks_memory(void **state)
{
    double a[6], out[6], exact[6];
    one_witness o;
    (void)state;
    make_unexplained(&o, a, out, exact);
    o.w.op_flags = FB_TAPE_COLLECTIVE;
    assert_string_equal(judge(&o), "collective_race");
    o.w.ranks_bad = 4;
    assert_string_equal(judge(&o), "collective_race");
    o.w.ranks_bad = 1;
    assert_string_equal(judge(&o), "hardware_fault");
    assert_false(o.cause.certain);
    says(&o, "Only 1 of 4 ranks received it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__limits_are_those_of_the_formats),
        cmocka_unit_test(test_cause__numbers_round_as_the_format_does),
        cmocka_unit_test(test_cause__numbers_that_are_none_are_written_in_words),
        cmocka_unit_test(test_cause__operators_are_known_by_all_their_names),
        cmocka_unit_test(test_cause__a_text_that_is_cut_keeps_whole_characters),
        cmocka_unit_test(test_cause__a_sum_of_products_beyond_fp16_names_its_largest_term),
        cmocka_unit_test(test_cause__the_gradient_of_a_weight_belongs_to_no_sample),
        cmocka_unit_test(test_cause__an_exponential_beyond_fp32_is_range_even_beyond_fp64),
        cmocka_unit_test(test_cause__the_limit_is_where_rounding_leaves_the_format),
        cmocka_unit_test(test_cause__a_collective_sum_beyond_the_format_is_range),
        cmocka_unit_test(test_cause__a_scale_or_a_rate_among_the_operands_is_named),
        cmocka_unit_test(test_cause__weights_too_large_before_any_update_are_the_initialisation),
        cmocka_unit_test(test_cause__range_that_persists_in_fp32_is_not_certain),
        cmocka_unit_test(test_cause__a_partial_sum_beyond_the_format_is_told_from_the_sum),
        cmocka_unit_test(test_cause__the_cube_inside_of_gelu_is_found),
        cmocka_unit_test(test_cause__squares_beyond_fp32_inside_of_a_norm_are_found),
        cmocka_unit_test(test_cause__an_epsilon_inside_of_a_fused_norm_can_vanish),
        cmocka_unit_test(test_cause__what_arithmetic_does_not_explain_is_kernel_device_or_memory),
        cmocka_unit_test(test_cause__a_collective_that_gives_no_sum_is_a_race_or_one_ranks_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
