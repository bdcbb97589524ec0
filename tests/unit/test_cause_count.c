/* Denominators of 0 by where they come from, means over nothing, and labels by their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/one_witness.h"

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))
#define says_not(o, text) assert_null(strstr((o)->cause.explanation, (text)))

/* sum / count, 0/0 in the second of two rows. */
typedef struct quotient {
    one_witness o;
    double a[2], b[2], out[2], exact[2], summed[4];
    fb_witness_source sources[2];
} quotient;

static char mask[] = "mask", labels[] = "labels", other[] = "other", ne[] = "ne";

static void begin_quotient(quotient *q, int32_t boundary, int32_t is)
{
    memset(q, 0, sizeof *q);
    begin(&q->o, "aten.div.Tensor", "pool", boundary);
    q->b[0] = 2;
    q->out[0] = q->exact[0] = 1;
    q->a[0] = 2;
    q->out[1] = q->exact[1] = a_nan();
    q->summed[0] = q->summed[1] = 1;
    add_input(&q->o, "sum", FB_F32, q->a, 2, 0);
    add_input(&q->o, "sum", FB_F32, q->b, 2, 0);
    add_output(&q->o, "div", FB_F32, q->out, 2, 0);
    set_exact(&q->o, q->exact);
    q->o.w.sources = q->sources;
    q->sources[0].summed_id = FB_WITNESS_NONE;
    q->sources[1].is = is;
    q->sources[1].of = mask;
    q->sources[1].summed_id = 3;
    q->sources[1].summed.values = q->summed;
    q->sources[1].summed.count = 4;
    q->sources[1].summed.format = FB_F32;
}

static void test_cause__a_count_or_a_sum_over_the_batch_that_is_zero_is_a_zero_denominator(void **state)
{
    static const int32_t boundaries[] = {FB_FORWARD, FB_LOSS};
    (void)state;
    for (int i = 0; i < 2; i++) {
        quotient q;
        begin_quotient(&q, boundaries[i], FB_MADE_WEIGHTS);
        assert_string_equal(judge(&q.o), "zero_denominator");
        assert_true(q.o.cause.certain);
        says(&q.o, "0/0: \"sum\" at [1] is 0, and so is what is divided by it. It is a sum over \"mask\", and all that it adds up "
                   "there is 0.");
        q.sources[1].unseen = 1; /* the program may have computed those */
        assert_string_equal(judge(&q.o), "zero_denominator");
        assert_false(q.o.cause.certain);
        begin_quotient(&q, boundaries[i], FB_MADE_COUNT);
        q.sources[1].summed.format = FB_BOOL;
        q.sources[1].summed.values = NULL; /* too large to keep, and not needed */
        q.sources[1].of = other;
        assert_string_equal(judge(&q.o), "zero_denominator");
        assert_true(q.o.cause.certain);
        says(&q.o, "It counts what is set in the batch, and there nothing is.");
    }
}

static void test_cause__numbers_that_cancel_are_learned_or_vanish_are_no_count(void **state)
{
    quotient q;
    (void)state;
    begin_quotient(&q, FB_LOSS, FB_MADE_WEIGHTS);
    q.summed[3] = -1;
    assert_string_equal(judge(&q.o), "domain_math");
    begin_quotient(&q, FB_LOSS, FB_MADE_WEIGHTS);
    q.sources[1].summed.values = NULL;
    assert_string_equal(judge(&q.o), "domain_math");
    begin_quotient(&q, FB_FORWARD, FB_MADE_OTHERWISE);
    assert_string_equal(judge(&q.o), "domain_math");
    /* In FP64 it is not 0, so a number has vanished. */
    {
        double module[] = {1, 1};
        begin_quotient(&q, FB_FORWARD, FB_MADE_WEIGHTS);
        set_module_exact(&q.o, module, 3);
        assert_string_equal(judge(&q.o), "domain_math");
        assert_int_equal(q.o.cause.rule, FB_RULE_ROUNDING_UPSTREAM);
    }
}

/* One number below a loss is a normaliser, as a rule; not one that is known to be something else. */
static void test_cause__what_is_known_to_be_no_count_is_not_guessed_to_be_one(void **state)
{
    double a[] = {0}, b[] = {0}, out[1], exact[1];
    fb_witness_source sources[2];
    one_witness o;
    (void)state;
    memset(sources, 0, sizeof sources);
    out[0] = exact[0] = a_nan();
    begin(&o, "div", "", FB_LOSS);
    add_input(&o, "sub", FB_F32, a, 1, 0);
    add_input(&o, "std", FB_F32, b, 1, 0);
    add_output(&o, "div", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "zero_denominator");
    assert_false(o.cause.certain);
    o.w.sources = sources;
    sources[1].summed_id = FB_WITNESS_NONE;
    sources[1].is = FB_MADE_OTHERWISE;
    assert_string_equal(judge(&o), "domain_math");
    says_not(&o, "was not kept");
    /* Handed over with the batch, as a count. */
    sources[1].is = FB_MADE_COUNT;
    sources[1].entry = sources[1].of = other;
    assert_string_equal(judge(&o), "zero_denominator");
    assert_true(o.cause.certain);
    says(&o, "It came with the batch (the batch), as a count");
}

static void test_cause__a_count_of_labels_that_are_not_ignored_is_told_as_that(void **state)
{
    quotient q;
    (void)state;
    begin_quotient(&q, FB_FORWARD, FB_MADE_COUNT);
    q.sources[1].of = labels;
    q.sources[1].by = ne;
    q.sources[1].summed.format = FB_BOOL;
    assert_string_equal(judge(&q.o), "label_all_ignored");
    assert_true(q.o.cause.certain);
    says(&q.o, "It counts the labels of \"labels\" that are not ignored, and there all are.");
    q.sources[1].of = mask;
    assert_string_equal(judge(&q.o), "zero_denominator");
}

static void test_cause__the_weights_of_a_layer_are_none_of_the_loss(void **state)
{
    double a[] = {0}, b[] = {0}, out[1], exact[1], zeros[] = {0, 0}, ids[] = {1, 2};
    one_witness o;
    (void)state;
    out[0] = exact[0] = a_nan();
    begin(&o, "div", "", FB_LOSS);
    add_input(&o, "sub", FB_F32, a, 1, 0);
    add_input(&o, "std", FB_F32, b, 1, 0);
    add_output(&o, "div", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    add_module_input(&o, "labels", FB_I64, ids, 2);
    add_module_input(&o, "weight", FB_F32, zeros, 2);
    o.module[1].flags = FB_TAPE_STATE;
    assert_string_equal(judge(&o), "zero_denominator");
    assert_false(o.cause.certain);
    says_not(&o, "weights of \"weight\" are 0");
    o.module[1].flags = FB_TAPE_BATCH;
    assert_string_equal(judge(&o), "zero_denominator");
    assert_true(o.cause.certain);
    says(&o, "All 2 weights of \"weight\" are 0.");
}

static void test_cause__a_mean_over_nothing_divides_by_a_count_of_zero(void **state)
{
    static const struct {
        const char *op;
        double reduction;
        const char *class_name;
    } cases[] = {{"aten.mean.default", 1, "zero_denominator"},
                 {"aten.mse_loss.default", 1, "zero_denominator"},
                 {"aten.nll_loss_forward.default", 1, "zero_denominator"},
                 {"aten.mse_loss.default", 2, "domain_math"},
                 {"aten.median.default", 1, "domain_math"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double none[1] = {0}, out[1], exact[1];
        one_witness o;
        out[0] = exact[0] = a_nan();
        begin(&o, cases[i].op, "", FB_LOSS);
        add_input(&o, "index", FB_F32, none, 0, 2, 0, 5);
        add_input(&o, "labels", FB_I64, none, 0, 1, 0);
        add_output(&o, "mean", FB_F32, out, 1, 0);
        add_attribute(&o, "reduction", cases[i].reduction);
        set_exact(&o, exact);
        assert_string_equal(judge(&o), cases[i].class_name);
    }
}

static void test_cause__labels_are_called_by_a_name_that_the_program_knows(void **state)
{
    double p[] = {-1, -1, -1, -1}, ids[] = {-100, -100}, out[1], exact[1];
    fb_witness_source sources[2];
    one_witness o;
    (void)state;
    memset(sources, 0, sizeof sources);
    out[0] = exact[0] = a_nan();
    begin(&o, "aten.nll_loss_forward.default", "loss", FB_LOSS);
    add_input(&o, "log_softmax", FB_F32, p, 4, 2, 2, 2);
    add_input(&o, "alias", FB_I64, ids, 2, 1, 2);
    add_output(&o, "nll_loss_forward", FB_F32, out, 1, 0);
    set_exact(&o, exact);
    assert_string_equal(judge(&o), "label_all_ignored");
    says(&o, "all labels that it read are ignored");
    says_not(&o, "alias");
    o.w.sources = sources;
    sources[1].entry = labels;
    (void)judge(&o);
    says(&o, "all labels of \"labels\" are ignored");
    sources[1].entry = other;
    (void)judge(&o);
    says(&o, "all labels that it read are ignored");
    o.facts.finding_kind = FB_KIND_ALL_IGNORED;
    o.facts.finding_tensor = "targets";
    (void)judge(&o);
    says(&o, "all labels of \"targets\" are ignored");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__a_count_or_a_sum_over_the_batch_that_is_zero_is_a_zero_denominator),
        cmocka_unit_test(test_cause__numbers_that_cancel_are_learned_or_vanish_are_no_count),
        cmocka_unit_test(test_cause__what_is_known_to_be_no_count_is_not_guessed_to_be_one),
        cmocka_unit_test(test_cause__a_count_of_labels_that_are_not_ignored_is_told_as_that),
        cmocka_unit_test(test_cause__the_weights_of_a_layer_are_none_of_the_loss),
        cmocka_unit_test(test_cause__a_mean_over_nothing_divides_by_a_count_of_zero),
        cmocka_unit_test(test_cause__labels_are_called_by_a_name_that_the_program_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
