/* The rules of domain and of rounding upstream: each argument outside of a domain is named, and the class that it has there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/one_witness.h"

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))

/* One element: op(a, b) was not finite, in FP64 neither. */
typedef struct single {
    one_witness o;
    double a[1], b[1], c[1], out[1], exact[1], module[1];
} single;

static void begin_single(single *s, const char *op, int32_t boundary, double a, int operands, double b)
{
    begin(&s->o, op, "h.3.attn", boundary);
    s->a[0] = a;
    s->b[0] = b;
    s->out[0] = s->exact[0] = a_nan();
    add_input(&s->o, "first", FB_F32, s->a, 1, 0);
    if (operands > 1) add_input(&s->o, "second", FB_F32, s->b, 1, 0);
    add_output(&s->o, "out", FB_F32, s->out, 1, 0);
    set_exact(&s->o, s->exact);
}

static void test_cause__each_argument_outside_of_its_domain_is_named(void **state)
{
    static const struct {
        const char *op;
        int32_t boundary;
        double a;
        int operands;
        double b;
        const char *text;
    } cases[] = {
        {"div", FB_FORWARD, 0, 2, 0, "0/0: \"second\" at [0] is 0, and so is what is divided by it"},
        {"div", FB_FORWARD, 3, 2, 0, "3/0: \"second\" at [0] is 0"},
        {"reciprocal", FB_FORWARD, 0, 1, 0, "1/0: \"first\""},
        {"rsqrt", FB_FORWARD, 0, 1, 0, "1/0: \"first\""},
        {"log", FB_FORWARD, 0, 1, 0, "the logarithm of 0: \"first\" at [0] is 0"},
        {"log", FB_FORWARD, -2, 1, 0, "the logarithm of a negative number: \"first\" at [0] is -2"},
        {"log1p", FB_FORWARD, -1, 1, 0, "the logarithm of 0: \"first\" at [0] is -1"},
        {"log1p", FB_FORWARD, -3, 1, 0, "the logarithm of a negative number"},
        {"sqrt", FB_FORWARD, -0.25, 1, 0, "the square root of a negative number: \"first\" at [0] is -0.25"},
        {"sqrt_backward", FB_LOCAL_GRAD, 5, 2, 0, "the slope of the square root at 0 is infinite"},
        {"log_backward", FB_LOCAL_GRAD, 1, 2, 0, "1/0: \"second\""},
        {"log1p_backward", FB_LOCAL_GRAD, 0, 2, -1, "0/0: \"second\""},
        {"pow", FB_FORWARD, 0, 2, -1, "1/0: \"first\""},
        {"pow", FB_FORWARD, -2, 2, 0.5, "a broken power of a negative number"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        single s;
        begin_single(&s, cases[i].op, cases[i].boundary, cases[i].a, cases[i].operands, cases[i].b);
        assert_string_equal(judge(&s.o), "domain_math");
        assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
        assert_true(s.o.cause.certain);
        says(&s.o, cases[i].text);
        says(&s.o, "FP64 comes to the same");
    }
}

static void test_cause__intended_infinities_that_meet_are_named(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "sub", FB_FORWARD, -an_inf(), 2, -an_inf());
    assert_string_equal(judge(&s.o), "domain_math");
    says(&s.o, "Inf - Inf: \"first\" at [0] is -Inf");
    begin_single(&s, "mul", FB_FORWARD, 0, 2, -an_inf());
    assert_string_equal(judge(&s.o), "domain_math");
    says(&s.o, "0 * Inf");
    begin_single(&s, "dropout", FB_FORWARD, 1, 1, 0);
    add_attribute(&s.o, "probability", 1.0);
    assert_string_equal(judge(&s.o), "domain_math");
    says(&s.o, "with a probability of 1 all is dropped");
}

static void test_cause__a_temperature_of_zero_is_a_number_it_was_built_with(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "div", FB_FORWARD, 3, 1, 0);
    add_attribute(&s.o, "temperature", 0.0);
    s.o.w.module_ops = 5;
    assert_string_equal(judge(&s.o), "domain_math");
    assert_true(s.o.cause.certain);
    says(&s.o, "3/0: the number it was built with is 0.");
}

static void test_cause__a_number_that_is_none_is_named(void **state)
{
    static const struct {
        const char *name, *class_name;
    } cases[] = {{"inverse_scale", "scale_runaway"}, {"decay", "lr_instability"}, {"factor", "domain_math"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        single s;
        begin_single(&s, "mul", FB_UPDATE, 0, 1, 0);
        add_attribute(&s.o, cases[i].name, an_inf());
        assert_string_equal(judge(&s.o), cases[i].class_name);
        assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
        says(&s.o, "= +Inf, which is no finite number");
    }
}

static void test_cause__a_number_over_a_tensor_that_is_zero_is_named(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "div", FB_FORWARD, 0, 1, 0);
    add_attribute(&s.o, "max_norm", 1.0);
    assert_string_equal(judge(&s.o), "domain_math");
    says(&s.o, "1/0: \"first\" at [0] is 0");
}

static void test_cause__a_fully_masked_row_is_named_with_batch_head_and_query(void **state)
{
    double scores[16], out[16], exact[16];
    int64_t ids[] = {11, 12};
    one_witness o;
    (void)state;
    /* (B 2, NH 2, T 2, T 2): row 5 is batch row 1, head 0, query 1. */
    for (int i = 0; i < 16; i++) scores[i] = i % 2 ? -an_inf() : 1;
    for (int i = 0; i < 16; i++) out[i] = exact[i] = i / 2 == 5 ? a_nan() : 0.5;
    scores[10] = -an_inf();
    begin(&o, "softmax", "h.7.attn", FB_FORWARD);
    add_input(&o, "masked", FB_BF16, scores, 16, 4, 2, 2, 2, 2);
    o.in[0].flags = FB_TAPE_MASK;
    add_output(&o, "probabilities", FB_BF16, out, 16, 4, 2, 2, 2, 2);
    set_exact(&o, exact);
    o.facts.rows = 2;
    o.facts.columns = 2;
    o.facts.sample_ids = ids;
    assert_string_equal(judge(&o), "mask_full_row");
    assert_int_equal(o.cause.rule, FB_RULE_DOMAIN);
    assert_true(o.cause.certain);
    assert_int_equal(o.cause.row, 5);
    assert_int_equal(o.cause.sample, 1);
    assert_int_equal(o.cause.sample_id, 12);
    says(&o, "all 2 scores of row 5 (batch row 1, head 0, query 1) of \"masked\" are -Inf");
    assert_non_null(strstr(o.cause.witness, "all finite but for -Inf where it may be intended"));
    /* The same without a rerun, and inside of a fused kernel that is given the mask. */
    o.w.exact = NULL;
    assert_string_equal(judge(&o), "mask_full_row");
    assert_true(o.cause.certain);
    set_place(&o.w.place, "ScaledDotProductEfficientAttentionBackward0", "h.7.attn", "out", FB_LOCAL_GRAD);
    assert_string_equal(judge(&o), "mask_full_row");
}

static void test_cause__a_row_with_one_score_left_is_not_called_masked(void **state)
{
    double scores[] = {-1, 0}, out[2], exact[] = {0.25, 0.75};
    one_witness o;
    (void)state;
    scores[0] = -an_inf();
    out[0] = out[1] = a_nan();
    begin(&o, "softmax", "h.7.attn", FB_FORWARD);
    add_input(&o, "masked", FB_F32, scores, 2, 2, 1, 2);
    add_output(&o, "probabilities", FB_F32, out, 2, 2, 1, 2);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "kernel_bug");
}

static void test_cause__a_deviation_over_one_element_is_named(void **state)
{
    double a[] = {1, 2}, out[2], exact[2];
    one_witness o;
    (void)state;
    out[0] = out[1] = exact[0] = exact[1] = a_nan();
    begin(&o, "std", "loss", FB_LOSS);
    add_input(&o, "rewards", FB_F32, a, 2, 2, 2, 1);
    add_output(&o, "std", FB_F32, out, 2, 1, 2);
    add_attribute(&o, "correction", 1.0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "domain_math");
    says(&o, "a variance over 1 element with a correction of 1");
}

/* ---- tables, labels ---------------------------------------------------------------------------------------------------------- */

static void begin_table(one_witness *o, const char *module, const char *ids_name, double *ids, double *table, double *out,
                        double *exact)
{
    for (int i = 0; i < 4; i++) out[i] = exact[i] = i < 2 ? 0.5 : a_nan();
    begin(o, "embedding", module, FB_FORWARD);
    add_input(o, ids_name, FB_I32, ids, 2, 1, 2);
    add_input(o, "table", FB_F32, table, 6, 2, 3, 2);
    add_output(o, "embedded", FB_F32, out, 4, 2, 2, 2);
    set_exact(o, exact);
}

static void test_cause__a_token_or_position_without_a_row_is_the_batchs(void **state)
{
    double ids[] = {2, 3}, table[6] = {0}, out[4], exact[4];
    one_witness o;
    (void)state;
    begin_table(&o, "wte", "tokens", ids, table, out, exact);
    assert_string_equal(judge(&o), "token_out_of_range");
    assert_int_equal(o.cause.rule, FB_RULE_BATCH);
    says(&o, "there is no such row: \"tokens\" at [1] is 3, and allowed are 0 to 2");
    begin_table(&o, "wpe", "positions", ids, table, out, exact);
    assert_string_equal(judge(&o), "position_out_of_range");
    assert_int_equal(o.cause.rule, FB_RULE_BATCH);
}

static void test_cause__a_negative_id_of_sixteen_bits_is_recognised(void **state)
{
    double ids[] = {2, -25536}, out[2], exact[2];
    one_witness o;
    (void)state;
    out[0] = exact[0] = 1;
    out[1] = exact[1] = a_nan();
    begin(&o, "embedding", "wte", FB_FORWARD);
    add_input(&o, "tokens", FB_I64, ids, 2, 1, 2);
    add_input(&o, "table", FB_F32, NULL, 50257, 2, 50257, 1);
    add_output(&o, "embedded", FB_F32, out, 2, 2, 2, 1);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "token_out_of_range");
    says(&o, "It is 40000 - 65536: an id that was stored in 16 bits.");
}

static void test_cause__labels_out_of_range_ignored_or_of_no_probability_are_told_apart(void **state)
{
    double logp[] = {-1, -1, 0, -1}, labels[] = {1, 5}, out[2], exact[2];
    one_witness o;
    (void)state;
    out[0] = exact[0] = 1;
    out[1] = exact[1] = a_nan();
    begin(&o, "nll_loss", "loss", FB_LOSS);
    add_input(&o, "log_probabilities", FB_F32, logp, 4, 2, 2, 2);
    add_input(&o, "targets", FB_I32, labels, 2, 1, 2);
    add_output(&o, "nll", FB_F32, out, 2, 1, 2);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "token_out_of_range");
    assert_int_equal(o.cause.rule, FB_RULE_BATCH);
    labels[1] = 0;
    logp[2] = -an_inf();
    assert_string_equal(judge(&o), "domain_math");
    says(&o, "the probability of the label");
    labels[0] = labels[1] = -100;
    out[0] = exact[0] = a_nan();
    o.out[0].count = 1;
    o.out[0].shape[0] = 1;
    o.w.bad_index = 0;
    assert_string_equal(judge(&o), "label_all_ignored");
    says(&o, "all labels");
}

/* ---- the same 0/0 in other places -------------------------------------------------------------------------------------------- */

static void test_cause__nothing_by_nothing_in_the_loss_is_labels_or_weights(void **state)
{
    double ignored[] = {-100, -100}, some[] = {-100, 4}, zeros[] = {0, 0}, weights[] = {1, 0};
    single s;
    (void)state;
    begin_single(&s, "div", FB_LOSS, 0, 2, 0);
    assert_string_equal(judge(&s.o), "zero_denominator");
    assert_false(s.o.cause.certain);
    s.o.facts.finding_kind = FB_KIND_ALL_IGNORED;
    assert_string_equal(judge(&s.o), "label_all_ignored");
    s.o.facts.finding_kind = FB_KIND_NAN;
    add_module_input(&s.o, "targets", FB_I32, ignored, 2);
    add_module_input(&s.o, "loss_weights", FB_F32, weights, 2);
    assert_string_equal(judge(&s.o), "label_all_ignored");
    assert_true(s.o.cause.certain);
    says(&s.o, "All 2 labels of \"targets\" are ignored.");
    s.o.module[0].values = some;
    s.o.module[1].values = zeros;
    assert_string_equal(judge(&s.o), "zero_denominator");
    says(&s.o, "All 2 weights of \"loss_weights\" are 0.");
    s.o.module[1].values = weights;
    assert_string_equal(judge(&s.o), "zero_denominator");
    says(&s.o, "no label that counts has a weight above 0");
}

static void test_cause__a_zero_denominator_in_the_optimizer_is_epsilon_or_counter(void **state)
{
    double m[] = {0, 1}, denominator[] = {0, 1}, correction[] = {0}, out[2], exact[2];
    one_witness o;
    (void)state;
    out[0] = exact[0] = a_nan();
    out[1] = exact[1] = 1;
    begin(&o, "div", "h.0.mlp", FB_UPDATE);
    add_input(&o, "m", FB_F32, m, 2, 0);
    add_input(&o, "denominator", FB_F32, denominator, 2, 0);
    add_output(&o, "step", FB_F32, out, 2, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "epsilon_underflow");
    assert_int_equal(o.cause.rule, FB_RULE_DOMAIN);
    assert_false(o.cause.certain);
    add_number(&o, "add", "epsilon", 0.0, FB_F32);
    assert_string_equal(judge(&o), "epsilon_underflow");
    assert_true(o.cause.certain);
    says(&o, "The epsilon of the denominator is 0.");
    o.in[1].name = (char *)(uintptr_t) "bias_correction";
    o.in[1].values = correction;
    o.in[1].count = 1;
    assert_string_equal(judge(&o), "optimizer_state");
    o.facts.first_step_of_attempt = 2;
    assert_string_equal(judge(&o), "resume_mismatch");
    o.out[0].name = (char *)(uintptr_t) "learning_rate";
    assert_string_equal(judge(&o), "lr_instability");
}

static void test_cause__a_negative_second_moment_is_state_of_the_optimizer(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "sqrt", FB_UPDATE, -1e-8, 1, 0);
    assert_string_equal(judge(&s.o), "optimizer_state");
    assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
}

static void test_cause__an_fp8_scale_of_nothing_is_named(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "div", FB_FORWARD, 448, 2, 0);
    s.o.in[1].name = (char *)(uintptr_t) "amax";
    assert_string_equal(judge(&s.o), "fp8_scaling");
    says(&s.o, "448/0");
}

/* ---- rounding upstream ------------------------------------------------------------------------------------------------------- */

static void test_cause__an_epsilon_that_vanished_upstream_is_named(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "rsqrt", FB_FORWARD, 0, 1, 0);
    s.module[0] = 1e4;
    set_module_exact(&s.o, s.module, 4);
    add_number(&s.o, "add", "epsilon", 1e-8, FB_F16);
    assert_string_equal(judge(&s.o), "epsilon_underflow");
    assert_int_equal(s.o.cause.rule, FB_RULE_ROUNDING_UPSTREAM);
    assert_true(s.o.cause.certain);
    says(&s.o, "1/0: \"first\" at [0] is 0.");
    says(&s.o, "\"epsilon\" = 1e-08 is 0 in fp16");
    says(&s.o, "gives 10000");
    /* The module could not be run: the vanished number is still what it looks like, and not certain. */
    s.o.w.module_exact = NULL;
    assert_string_equal(judge(&s.o), "epsilon_underflow");
    assert_int_equal(s.o.cause.rule, FB_RULE_ROUNDING_UPSTREAM);
    assert_false(s.o.cause.certain);
    /* A format that holds the epsilon: it is the argument. */
    s.o.numbers[0].format = FB_F32;
    assert_string_equal(judge(&s.o), "domain_math");
    assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
    assert_false(s.o.cause.certain);
}

static void test_cause__a_clamp_whose_bound_rounds_to_one_is_named(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "log1p", FB_FORWARD, -1, 1, 0);
    s.module[0] = -13.8;
    set_module_exact(&s.o, s.module, 3);
    add_number(&s.o, "clamp", "max", 1.0 - 1e-6, FB_BF16);
    assert_string_equal(judge(&s.o), "domain_math");
    assert_int_equal(s.o.cause.rule, FB_RULE_ROUNDING_UPSTREAM);
    says(&s.o, "The bound 0.999999 of clamp is 1 in bf16");
}

static void test_cause__a_variance_below_zero_is_cancellation(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "sqrt", FB_FORWARD, -0.004, 1, 0);
    s.module[0] = 0.01;
    set_module_exact(&s.o, s.module, 5);
    assert_string_equal(judge(&s.o), "domain_math");
    assert_int_equal(s.o.cause.rule, FB_RULE_ROUNDING_UPSTREAM);
    assert_true(s.o.cause.certain);
    says(&s.o, "by cancellation");
    /* FP64 comes to a number that the format does not hold: then it is range after all. */
    s.module[0] = 1e39;
    assert_string_equal(judge(&s.o), "overflow");
    assert_int_equal(s.o.cause.rule, FB_RULE_RANGE);
    /* And where the module is not finite in FP64 either, the argument is the fault. */
    s.module[0] = a_nan();
    assert_string_equal(judge(&s.o), "domain_math");
    assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
    says(&s.o, "in the operator and in all of its module");
    s.o.facts.persists = 0;
    (void)judge(&s.o);
    assert_false(s.o.cause.certain);
}

static void test_cause__an_operator_that_is_not_known_gets_the_rule_without_a_name(void **state)
{
    single s;
    (void)state;
    begin_single(&s, "my_fused_kernel", FB_FORWARD, 1, 1, 0);
    assert_string_equal(judge(&s.o), "domain_math");
    assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
    assert_false(s.o.cause.certain);
    s.exact[0] = 2e39;
    assert_string_equal(judge(&s.o), "overflow");
    assert_int_equal(s.o.cause.rule, FB_RULE_RANGE);
    s.o.w.exact = NULL;
    assert_string_equal(judge(&s.o), "unknown");
    assert_int_equal(s.o.cause.rule, FB_RULE_NONE);
}

/* Numbers one a row and one a column cannot be told apart by their count in a square: the one that explains the zero is taken. */
static void test_cause__a_square_is_read_by_rows_where_columns_explain_nothing(void **state)
{
    double a[] = {1, 2, 3, 4}, std[] = {5, 0}, out[] = {1, 1, 0, 0}, exact[4];
    one_witness o;
    (void)state;
    out[2] = out[3] = exact[2] = exact[3] = an_inf();
    exact[0] = exact[1] = 1;
    begin(&o, "div", "h.0.ln_1", FB_FORWARD);
    add_input(&o, "x", FB_F32, a, 4, 2, 2, 2);
    add_input(&o, "std", FB_F32, std, 2, 1, 2);
    add_output(&o, "y", FB_F32, out, 4, 2, 2, 2);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "domain_math");
    says(&o, "3/0: \"std\" at [1] is 0.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__each_argument_outside_of_its_domain_is_named),
        cmocka_unit_test(test_cause__intended_infinities_that_meet_are_named),
        cmocka_unit_test(test_cause__a_temperature_of_zero_is_a_number_it_was_built_with),
        cmocka_unit_test(test_cause__a_number_that_is_none_is_named),
        cmocka_unit_test(test_cause__a_number_over_a_tensor_that_is_zero_is_named),
        cmocka_unit_test(test_cause__a_fully_masked_row_is_named_with_batch_head_and_query),
        cmocka_unit_test(test_cause__a_row_with_one_score_left_is_not_called_masked),
        cmocka_unit_test(test_cause__a_deviation_over_one_element_is_named),
        cmocka_unit_test(test_cause__a_token_or_position_without_a_row_is_the_batchs),
        cmocka_unit_test(test_cause__a_negative_id_of_sixteen_bits_is_recognised),
        cmocka_unit_test(test_cause__labels_out_of_range_ignored_or_of_no_probability_are_told_apart),
        cmocka_unit_test(test_cause__nothing_by_nothing_in_the_loss_is_labels_or_weights),
        cmocka_unit_test(test_cause__a_zero_denominator_in_the_optimizer_is_epsilon_or_counter),
        cmocka_unit_test(test_cause__a_negative_second_moment_is_state_of_the_optimizer),
        cmocka_unit_test(test_cause__an_fp8_scale_of_nothing_is_named),
        cmocka_unit_test(test_cause__an_epsilon_that_vanished_upstream_is_named),
        cmocka_unit_test(test_cause__a_clamp_whose_bound_rounds_to_one_is_named),
        cmocka_unit_test(test_cause__a_variance_below_zero_is_cancellation),
        cmocka_unit_test(test_cause__an_operator_that_is_not_known_gets_the_rule_without_a_name),
        cmocka_unit_test(test_cause__a_square_is_read_by_rows_where_columns_explain_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
