/* Where no operator is blamed, the table of classes, and what must never happen to a trainer that asks for a cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/one_witness.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))

static void begin_entry(one_witness *o, const char *tensor, uint32_t flags, int32_t first_step)
{
    begin(o, "", "", FB_ENTRY);
    o->facts.found = FB_LOCATED_ENTRY;
    o->facts.first_step_of_attempt = first_step;
    set_place(&o->candidate, "", "h.2.mlp", tensor, FB_ENTRY);
    o->candidate.entry = 1;
    o->candidate.flags = flags;
    o->w.candidates = &o->candidate;
    o->w.candidate_count = 1;
}

static void test_cause__state_that_was_bad_blames_no_operator(void **state)
{
    static const struct {
        const char *tensor;
        uint32_t flags;
        int32_t first_step, rule;
        const char *class_name;
    } cases[] = {
        {"c_fc.weight", FB_TAPE_STATE, 0, FB_RULE_STATE, "state_bad"},
        {"c_fc.weight", FB_TAPE_STATE, 1, FB_RULE_STATE, "uninitialised_memory"},
        {"c_fc.weight", FB_TAPE_STATE, 2, FB_RULE_STATE, "checkpoint_corrupt"},
        {"c_fc.weight.exp_avg_sq", FB_TAPE_STATE, 0, FB_RULE_STATE, "optimizer_state"},
        {"moment.c_fc.weight", FB_TAPE_STATE, 2, FB_RULE_STATE, "checkpoint_corrupt"},
        {"loss_scale", FB_TAPE_STATE | FB_TAPE_SCALAR, 0, FB_RULE_STATE, "scale_runaway"},
        {"learning_rate", FB_TAPE_SCALAR, 1, FB_RULE_STATE, "lr_instability"},
        {"loss_weights", FB_TAPE_BATCH, 1, FB_RULE_BATCH, "input_nonfinite"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one_witness o;
        begin_entry(&o, cases[i].tensor, cases[i].flags, cases[i].first_step);
        assert_string_equal(judge(&o), cases[i].class_name);
        assert_int_equal(o.cause.rule, cases[i].rule);
        says(&o, "was not finite before the first operator of step 412 ran");
        says(&o, "No operator is blamed.");
        says(&o, cases[i].tensor);
    }
}

static void test_cause__an_input_that_the_program_may_have_computed_is_not_laid_at_the_pipelines_door(void **state)
{
    one_witness o;
    (void)state;
    begin_entry(&o, "advantage", FB_TAPE_BATCH, 0);
    assert_string_equal(judge(&o), "input_nonfinite");
    assert_int_equal(o.cause.certain, 1);
    begin_entry(&o, "advantage", FB_TAPE_BATCH | FB_TAPE_UNSEEN, 0);
    assert_string_equal(judge(&o), "input_nonfinite");
    assert_int_equal(o.cause.certain, 0);
    assert_non_null(strstr(o.cause.explanation, "or code of the program that computes this input"));
}

static void test_cause__state_of_one_rank_alone_is_said_to_differ(void **state)
{
    one_witness o;
    (void)state;
    begin_entry(&o, "c_fc.weight", FB_TAPE_STATE, 0);
    o.facts.other_ranks_tried = 3;
    (void)judge(&o);
    says(&o, "stays finite on 3 other ranks, so the state of rank 1 differs from theirs");
    o.facts.witness = NULL;
    assert_string_equal(judge(&o), "state_bad");
    assert_false(o.cause.certain);
}

static void test_cause__integers_of_a_batch_need_no_replay(void **state)
{
    static const struct {
        const char *tensor;
        int32_t kind;
        const char *class_name;
    } cases[] = {
        {"tokens", FB_KIND_OUT_OF_RANGE, "token_out_of_range"},
        {"labels", FB_KIND_OUT_OF_RANGE, "token_out_of_range"},
        {"positions", FB_KIND_OUT_OF_RANGE, "position_out_of_range"},
        {"lengths", FB_KIND_OUT_OF_RANGE, "unknown"},
        {"labels", FB_KIND_ALL_IGNORED, "label_all_ignored"},
        {"mask", FB_KIND_ALL_IGNORED, "mask_full_row"},
        {"weights", FB_KIND_DOMAIN, "zero_denominator"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one_witness o;
        begin(&o, "", "", FB_INPUT);
        o.facts.found = FB_LOCATED_NOT_REPRODUCED;
        o.facts.finding_boundary = FB_INPUT;
        o.facts.finding_kind = cases[i].kind;
        o.facts.finding_tensor = cases[i].tensor;
        assert_string_equal(judge(&o), cases[i].class_name);
        assert_int_equal(o.cause.rule, FB_RULE_BATCH);
    }
}

static void test_cause__what_does_not_come_again_is_transient(void **state)
{
    one_witness o;
    (void)state;
    begin(&o, "", "", FB_LOSS);
    o.facts.found = FB_LOCATED_NOT_REPRODUCED;
    o.facts.reproduced = 0;
    assert_string_equal(judge(&o), "transient");
    assert_int_equal(o.cause.rule, FB_RULE_NOT_REPRODUCIBLE);
    assert_true(o.cause.certain);
    says(&o, "3 replays of the same step from the same state stay finite, operator by operator on the same bytes.");
    assert_string_equal(o.cause.verify,
                        "firstbad replay a1-000412 --times 20 (0 of 20: a single event; some of 20: it is still there)");
    o.facts.faithful = 0; /* what differs may be what made it: a device is not to be taken out for that */
    assert_string_equal(judge(&o), "unknown");
    assert_false(o.cause.certain);
    says(&o, "The replays were not the run itself");
}

static void test_cause__a_constant_of_the_program_is_no_state(void **state)
{
    one_witness o;
    (void)state;
    begin_entry(&o, "constant.1", FB_TAPE_MASK, 2);
    assert_string_equal(judge(&o), "domain_math");
    assert_false(o.cause.certain);
    says(&o, "a number that the program wrote down");
    begin_entry(&o, "c_fc.weight", FB_TAPE_STATE, 0);
    assert_string_equal(judge(&o), "state_bad");
}

static void test_cause__what_comes_now_and_then_is_not_steady(void **state)
{
    one_witness o;
    (void)state;
    begin(&o, "all_reduce", "", FB_REDUCED_GRAD);
    o.facts.found = FB_LOCATED_NOT_STEADY;
    o.facts.reproduced = 1;
    assert_string_equal(judge(&o), "transient");
    assert_int_equal(o.cause.rule, FB_RULE_NOT_REPRODUCIBLE);
    says(&o, "1 of 3 replays");
    o.w.op_flags = FB_TAPE_COLLECTIVE;
    assert_string_equal(judge(&o), "collective_race");
    o.facts.witness = NULL;
    assert_string_equal(judge(&o), "transient");
    o.facts.finding_boundary = FB_REDUCED_GRAD;
    assert_string_equal(judge(&o), "collective_race");
    assert_false(o.cause.certain);
    says(&o, "Every rank's own gradient was finite");
}

static void test_cause__no_cause_is_given_for_what_is_not_named(void **state)
{
    static const int32_t found[] = {FB_LOCATED_NOTHING, FB_LOCATED_INTERVAL, FB_LOCATED_UNDECIDED, FB_LOCATED_OPERATOR};
    (void)state;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        one_witness o;
        begin(&o, "softmax", "h.0.attn", FB_FORWARD);
        o.facts.found = found[i];
        o.facts.candidates = 4;
        if (found[i] == FB_LOCATED_OPERATOR) o.facts.witness = NULL;
        assert_string_equal(judge(&o), "unknown");
        assert_int_equal(o.cause.rule, FB_RULE_NONE);
        assert_false(o.cause.certain);
        says(&o, "no cause is given");
        assert_string_equal(o.cause.verify, "firstbad bisect a1-000412");
    }
}

static void test_cause__of_several_origins_one_is_explained(void **state)
{
    double a[] = {0}, out[1];
    one_witness o;
    (void)state;
    out[0] = -an_inf();
    begin(&o, "log", "loss", FB_LOSS);
    add_input(&o, "p", FB_F32, a, 1, 0);
    add_output(&o, "logp", FB_F32, out, 1, 0);
    o.facts.found = FB_LOCATED_SET;
    o.facts.candidates = 2;
    assert_string_equal(judge(&o), "domain_math");
    says(&o, "It is one of 2 origins, none of which comes after another.");
}

/* ---- the table --------------------------------------------------------------------------------------------------------------- */

static void test_cause__every_class_has_a_name_of_its_own_and_something_to_do(void **state)
{
    (void)state;
    for (int32_t i = 0; i < FB_CAUSES; i++) {
        const fb_cause_class *class_of = fb_cause_class_of(i);
        assert_non_null(class_of->name);
        assert_non_null(class_of->sentence);
        assert_non_null(class_of->fix);
        assert_true(strlen(class_of->name) < sizeof((fb_locate_result *)0)->cause_class);
        assert_true(strlen(class_of->fix) < 400);
        assert_int_equal(fb_cause_class_named(class_of->name), i);
    }
    assert_string_equal(fb_cause_class_of(-1)->name, "unknown");
    assert_string_equal(fb_cause_class_of(FB_CAUSES)->name, "unknown");
    assert_int_equal(fb_cause_class_named("no such class"), FB_CAUSE_UNKNOWN);
    assert_int_equal(fb_cause_class_named(NULL), FB_CAUSE_UNKNOWN);
}

static void test_cause__the_facts_are_those_of_the_call(void **state)
{
    fb_locate_config config = FB_LOCATE_CONFIG_INIT;
    fb_locate_result result = FB_LOCATE_RESULT_INIT;
    fb_cause_facts facts;
    one_witness o;
    (void)state;
    begin(&o, "log", "loss", FB_LOSS);
    config.world = 8;
    config.step = 99;
    config.finding_tensor = "loss";
    config.folder = "x/cases/a2-000099/replays/001";
    result.found = FB_LOCATED_NOT_REPRODUCED;
    result.tried = 5;
    result.persists = 1;
    fb_cause_facts_of(&facts, &config, &result, &o.w);
    assert_ptr_equal(facts.witness, &o.w);
    assert_int_equal(facts.world, 8);
    assert_int_equal(facts.step, 99);
    assert_int_equal(facts.tried, 5);
    assert_int_equal(facts.persists, 1);
    assert_string_equal(facts.finding_tensor, "loss");
    fb_cause_judge(&facts, &o.cause);
    assert_non_null(strstr(o.cause.verify, "firstbad replay a2-000099 "));
    facts.folder = NULL;
    fb_cause_judge(&facts, &o.cause);
    assert_non_null(strstr(o.cause.verify, "firstbad replay CASE "));
}

/* ---- a guest ----------------------------------------------------------------------------------------------------------------- */

/* A trainer may run with traps on: an evidence that divides by 0 would kill it at the moment it is needed. */
static void test_cause__nothing_traps_and_no_flag_is_left_behind(void **state)
{
#if defined(__x86_64__)
    double a[] = {0, 1e300}, out[2], exact[2];
    unsigned saved = _mm_getcsr(), after;
    one_witness o;
    out[0] = out[1] = exact[0] = exact[1] = a_nan();
    begin(&o, "div_backward", "loss", FB_LOCAL_GRAD);
    add_input(&o, "g", FB_F32, a, 2, 0);
    add_input(&o, "a", FB_F32, a, 2, 0);
    add_input(&o, "b", FB_F32, a, 2, 0);
    add_output(&o, "d_a", FB_F32, out, 2, 0);
    set_exact(&o, exact);
    for (uint64_t at = 0; at < 2; at++) {
        o.w.bad_index = at;
        _mm_setcsr(0x1f80u & ~(unsigned)(_MM_MASK_INVALID | _MM_MASK_DIV_ZERO | _MM_MASK_OVERFLOW));
        fb_cause_judge(&o.facts, &o.cause);
        after = _mm_getcsr();
        _mm_setcsr(saved);
        assert_int_equal(after & 0x3fu, 0);
        assert_true(o.cause.explanation[0] != '\0');
    }
    (void)state;
#else
    (void)state;
    skip();
#endif
}

static void test_cause__shapes_that_do_not_fit_and_names_without_end_are_borne(void **state)
{
    static char long_name[5000];
    static const char *const ops[] = {"linear",      "addmm",    "matmul",       "softmax",       "scores",
                                      "heads",       "sum",      "mean",         "norm",          "var",
                                      "embedding",   "nll_loss", "div",          "layer_norm",    "gelu",
                                      "exp",         "mul",      "dropout",      "all_reduce",    "linear_backward",
                                      "log_softmax", "pow",      "div_backward", "norm_backward", "scaled_dot_product_attention"};
    double a[6] = {1, 2, 3, 4, 5, 6}, out[6], exact[6] = {0};
    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    for (int i = 0; i < 6; i++) out[i] = a_nan();
    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++) {
        for (int variant = 0; variant < 6; variant++) {
            one_witness o;
            begin(&o, ops[op], long_name, FB_FORWARD);
            add_input(&o, long_name, FB_F32, variant == 1 ? NULL : a, variant == 2 ? 0 : 6, 3, 2, 1, 3);
            add_input(&o, "b", variant == 3 ? FB_I32 : FB_F16, a, variant == 4 ? 5 : 3, 2, 0, 3);
            add_input(&o, "c", FB_F32, a, 1, 0);
            add_output(&o, "y", variant == 5 ? 99 : FB_F32, out, 6, 2, 3, 2);
            set_exact(&o, exact);
            o.in[0].shape[2] = variant == 3 ? INT64_MAX : 3;
            o.facts.rows = 3;
            (void)judge(&o);
            assert_true(strlen(o.cause.explanation) < sizeof o.cause.explanation);
            o.w.exact = NULL;
            (void)judge(&o);
            o.w.input_count = 0;
            (void)judge(&o);
            o.w.bad_index = 6;
            assert_string_equal(judge(&o), "unknown");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__state_that_was_bad_blames_no_operator),
        cmocka_unit_test(test_cause__an_input_that_the_program_may_have_computed_is_not_laid_at_the_pipelines_door),
        cmocka_unit_test(test_cause__state_of_one_rank_alone_is_said_to_differ),
        cmocka_unit_test(test_cause__integers_of_a_batch_need_no_replay),
        cmocka_unit_test(test_cause__what_does_not_come_again_is_transient),
        cmocka_unit_test(test_cause__a_constant_of_the_program_is_no_state),
        cmocka_unit_test(test_cause__what_comes_now_and_then_is_not_steady),
        cmocka_unit_test(test_cause__no_cause_is_given_for_what_is_not_named),
        cmocka_unit_test(test_cause__of_several_origins_one_is_explained),
        cmocka_unit_test(test_cause__every_class_has_a_name_of_its_own_and_something_to_do),
        cmocka_unit_test(test_cause__the_facts_are_those_of_the_call),
        cmocka_unit_test(test_cause__nothing_traps_and_no_flag_is_left_behind),
        cmocka_unit_test(test_cause__shapes_that_do_not_fit_and_names_without_end_are_borne),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
