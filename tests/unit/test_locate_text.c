/* What is printed of an incident, how operators are called before people, and callers of an older header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "locate/op_title.h"
#include "support/locate_trainer.h"
#include "support/one_witness.h"

static fb_error err;

static int has(const char *text, const char *part)
{
    if (strstr(text, part)) return 1;
    (void)fprintf(stderr, "no \"%s\" in:\n%s\n", part, text);
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------- */

static void test_text__kernels_lose_what_only_a_dispatcher_reads(void **state)
{
    static const char *const names[][2] = {
        {"aten.div.Tensor", "div"},
        {"aten::div", "div"},
        {"aten._softmax.default", "softmax"},
        {"aten.add_.Tensor", "add_"},
        {"aten._softmax_backward_data.default", "softmax_backward_data"},
        {"mylib.swiglu.default", "mylib.swiglu"},
        {"loss.cross_entropy", "loss.cross_entropy"},
        {"div", "div"},
        {"", ""},
        {"aten.", "aten."},
    };
    char out[64], little[4];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(fb_op_plain(out, sizeof out, names[i][0]), names[i][1]);
    assert_string_equal(fb_op_plain(out, sizeof out, NULL), "");
    assert_string_equal(fb_op_plain(little, sizeof little, "aten.embedding.default"), "emb");
}

static void test_text__the_autograd_node_comes_first_and_the_kernel_second(void **state)
{
    static const char *const names[][3] = {
        {"aten.div.Tensor", "SqrtBackward0", "sqrt (div)"},
        {"aten.pow.Tensor_Scalar", "PowBackward0", "pow"},
        {"aten._softmax_backward_data.default", "SoftmaxBackward0", "softmax"},
        {"aten.div.Tensor", "LinalgVectorNormBackward0", "linalg_vector_norm (div)"},
        {"aten.div.Tensor", "Log1PBackward0", "log1p (div)"},
        {"aten.mul.Tensor", "MyRootBackward", "MyRoot (mul)"}, /* an autograd function of the program's own keeps its name */
        {"aten.add_.Tensor", "torch::autograd::AccumulateGrad", "accumulate_grad (add_)"},
        {"aten.mul.Tensor", "", "mul"},
    };
    char out[136];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(fb_op_title_text(out, sizeof out, names[i][0], names[i][1]), names[i][2]);
    assert_string_equal(fb_op_title_text(out, sizeof out, "div", NULL), "div");
}

/* ---- causes ------------------------------------------------------------------------------------------------------------------ */

static void in_node(one_witness *o, const char *op, const char *node, double *x, double *y, double *out)
{
    begin(o, op, "h.3", FB_LOCAL_GRAD);
    o->w.place.node = (char *)(uintptr_t)node;
    add_input(o, "ones_like", FB_F32, x, 1, 0);
    if (y) add_input(o, "mul", FB_F32, y, 1, 0);
    add_output(o, "div", FB_F32, out, 1, 0);
    set_exact(o, out);
}

static void test_text__a_division_in_the_node_of_a_root_is_the_slope_of_the_root(void **state)
{
    static const struct {
        const char *node, *says;
    } cases[] = {
        {"SqrtBackward0",
         "sqrt (backward, div) in h.3: the slope of the square root at 0 is infinite: \"mul\" at [0] is 0, and 1 is "
         "divided by it."},
        {"StdBackward0", "the slope of the standard deviation at a row in which all are equal is infinite"},
        {"LogBackward0", "the slope of the logarithm at 0 is infinite"},
        {"Log1PBackward0", "the slope of log1p at -1 is infinite"},
        {"LinalgVectorNormBackward0", "the slope of the norm at 0 is infinite"},
        {"DivBackward0", "div (backward) in h.3: 1/0: \"mul\" at [0] is 0."},
        {"SomethingBackward0", "something (backward, div) in h.3: 1/0: \"mul\" at [0] is 0."},
        {"", "div (backward) in h.3: 1/0: \"mul\" at [0] is 0."},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double g[] = {1}, zero[] = {0}, out[1];
        one_witness o;
        out[0] = an_inf();
        in_node(&o, "div", cases[i].node, g, zero, out);
        assert_string_equal(judge(&o), "domain_math");
        assert_int_equal(o.cause.rule, FB_RULE_DOMAIN);
        assert_true(has(o.cause.explanation, cases[i].says));
    }
}

static void test_text__zero_by_zero_in_the_node_of_a_root_is_its_slope_too(void **state)
{
    double g[] = {0}, zero[] = {0}, out[1];
    one_witness o;
    (void)state;
    out[0] = a_nan();
    in_node(&o, "div", "SqrtBackward0", g, zero, out);
    assert_string_equal(judge(&o), "domain_math");
    assert_true(
        has(o.cause.explanation, "the slope of the square root at 0 is infinite: \"mul\" at [0] is 0, and 0 is divided by it."));
}

static void test_text__a_power_and_a_reciprocal_root_in_backward_are_slopes(void **state)
{
    double zero[] = {0}, out[1];
    one_witness o;
    (void)state;
    out[0] = an_inf();
    in_node(&o, "pow", "PowBackward0", zero, NULL, out);
    add_attribute(&o, "exponent", -0.5);
    assert_string_equal(judge(&o), "domain_math");
    assert_true(
        has(o.cause.explanation, "pow (backward) in h.3: the slope of a power at 0, with an exponent below 1, is infinite"));
    in_node(&o, "rsqrt", "AcosBackward0", zero, NULL, out);
    assert_string_equal(judge(&o), "domain_math");
    assert_true(has(o.cause.explanation, "acos (backward, rsqrt) in h.3: the slope of acos at 1 and -1 is infinite"));
}

static void test_text__what_is_finite_in_the_node_of_a_root_is_no_slope(void **state)
{
    double g[] = {1e30}, y[] = {1e-20}, out[1], exact[] = {1e50};
    one_witness o;
    (void)state;
    out[0] = an_inf();
    in_node(&o, "div", "SqrtBackward0", g, y, out);
    set_exact(&o, exact);
    (void)judge(&o);
    assert_null(strstr(o.cause.explanation, "slope"));
    /* Nor is a division in forward that happens to be told with a node. */
    y[0] = 0;
    in_node(&o, "div", "SqrtBackward0", g, y, out);
    o.w.place.boundary = FB_FORWARD;
    (void)judge(&o);
    assert_null(strstr(o.cause.explanation, "slope"));
}

/* ---- the block --------------------------------------------------------------------------------------------------------------- */

static fb_locate_result a_result(void)
{
    fb_locate_result r = FB_LOCATE_RESULT_INIT;
    r.found = FB_LOCATED_OPERATOR;
    r.rule = FB_RULE_DOMAIN;
    r.owner = 5;
    r.boundary = FB_LOCAL_GRAD;
    r.micro_step = 2;
    r.reproduced = r.tried = 3;
    r.faithful = 1;
    r.replays = 4;
    (void)snprintf(r.module, sizeof r.module, "h.7.attn");
    (void)snprintf(r.op, sizeof r.op, "div");
    (void)snprintf(r.node, sizeof r.node, "SqrtBackward0");
    (void)snprintf(r.source, sizeof r.source, "train.py:88");
    (void)snprintf(r.cause_class, sizeof r.cause_class, "domain_math");
    (void)snprintf(r.sentence, sizeof r.sentence, "The slope of the square root at 0 is infinite.");
    return r;
}

static fb_locate_config a_config(void)
{
    fb_locate_config c = FB_LOCATE_CONFIG_INIT;
    c.finding_tensor = "w.grad";
    c.finding_module = "h.0";
    c.finding_boundary = FB_LOCAL_GRAD;
    c.rows = 8;
    return c;
}

static char *text_of(const fb_locate_config *c, const fb_locate_result *r, const fb_locate_words *w)
{
    static char text[8192];
    size_t bytes = 0, needed;
    assert_int_equal(fb_locate_text(c, r, w, NULL, &bytes, &err), FB_OK);
    needed = bytes;
    assert_in_range(needed, 2, sizeof text);
    memset(text, 'x', sizeof text);
    assert_int_equal(fb_locate_text(c, r, w, text, &bytes, &err), FB_OK);
    assert_int_equal(bytes, needed);
    assert_int_equal(strlen(text) + 1, needed);
    return text;
}

static void test_text__the_block_says_where_why_how_it_is_known_and_what_to_do(void **state)
{
    fb_locate_config c = a_config();
    fb_locate_result r = a_result();
    fb_locate_words w = FB_LOCATE_WORDS_INIT;
    (void)state;
    w.headline = "step 412 was not applied on any of 8 ranks: non-finite gradient on rank 5";
    w.spread = "collective: yes\nparameters: no";
    w.next = "skipped 1 of at most 3 in a row; training goes on";
    w.case_line = "runs/a/cases/a1-000412\nfirstbad why a1-000412";
    w.seconds = 1.25;
    r.rows_needed = 1;
    r.tokens_needed = 512;
    assert_string_equal(text_of(&c, &r, &w),
                        "firstbad: step 412 was not applied on any of 8 ranks: non-finite gradient on rank 5\n"
                        "  first bad   h.7.attn sqrt (backward, div), rank 5, micro-step 2, train.py:88\n"
                        "  what        The slope of the square root at 0 is infinite.\n"
                        "  cause       domain_math: an operator was given an argument outside of its domain\n"
                        "  fix         keep the argument inside the domain before the operator runs, not after: an epsilon\n"
                        "              inside the root or the denominator, a clamp in front of the logarithm\n"
                        "  proof       inputs finite, output not; reproduced 3 of 3 with the same batch and random state;\n"
                        "              smallest batch: 1 sample, 512 tokens\n"
                        "  spread      collective: yes   parameters: no\n"
                        "  next        skipped 1 of at most 3 in a row; training goes on\n"
                        "  case        runs/a/cases/a1-000412   firstbad why a1-000412\n"
                        "  cost        located in 1.2 s, 4 replays\n");
}

static void test_text__no_batch_is_called_smallest_where_none_was_smaller(void **state)
{
    fb_locate_config c = a_config();
    fb_locate_result r = a_result();
    (void)state;
    r.rows_needed = 1;
    assert_true(has(text_of(&c, &r, NULL), "smallest batch: 1 sample\n"));
    c.rows = 1;
    assert_null(strstr(text_of(&c, &r, NULL), "smallest"));
    c.rows = 8;
    r.rows_alone = -1;
    assert_null(strstr(text_of(&c, &r, NULL), "smallest"));
    r.rows_alone = 1;
    assert_true(has(text_of(&c, &r, NULL), "smallest"));
    r.rule = FB_RULE_STATE;
    assert_null(strstr(text_of(&c, &r, NULL), "smallest"));
}

static void test_text__each_outcome_is_said_and_no_more_than_it(void **state)
{
    static const struct {
        int32_t found;
        const char *says;
    } cases[] = {
        {FB_LOCATED_SET, "2 operators, independent of each other"},
        {FB_LOCATED_INTERVAL, "one of 2 places, up to h.7.attn sqrt (backward, div)"},
        {FB_LOCATED_ENTRY, "h.7.attn.w was bad before the step ran; no operator is blamed"},
        {FB_LOCATED_NOT_REPRODUCED, "h.0.w.grad (backward), rank 0, micro-step 0: where it was found"},
        {FB_LOCATED_NOT_STEADY, "micro-step 0: where it was found"},
        {FB_LOCATED_UNDECIDED, "micro-step 0: where it was found"},
    };
    fb_locate_config c = a_config();
    fb_locate_result r = a_result();
    (void)state;
    r.candidates = 2;
    (void)snprintf(r.tensor, sizeof r.tensor, "w");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        r.found = cases[i].found;
        text = text_of(&c, &r, NULL);
        assert_true(has(text, cases[i].says));
        if (r.found != FB_LOCATED_SET) assert_null(strstr(text, "inputs finite"));
    }
    (void)snprintf(r.cause_class, sizeof r.cause_class, "unknown");
    assert_null(strstr(text_of(&c, &r, NULL), "  fix"));
}

static void test_text__no_line_is_wider_than_a_hundred_columns(void **state)
{
    fb_locate_config c = a_config();
    fb_locate_result r = a_result();
    const char *line;
    (void)state;
    for (size_t i = 0; i + 2 < sizeof r.sentence; i++) r.sentence[i] = i % 7 == 6 ? ' ' : 'a';
    for (line = text_of(&c, &r, NULL); *line; line += strcspn(line, "\n") + 1) assert_in_range(strcspn(line, "\n"), 1, 100);
}

static void test_text__too_little_room_says_how_much_is_needed(void **state)
{
    fb_locate_config c = a_config();
    fb_locate_result r = a_result();
    fb_locate_words w = FB_LOCATE_WORDS_INIT;
    char text[64];
    size_t bytes = 0, needed;
    (void)state;
    assert_int_equal(fb_locate_text(&c, &r, &w, NULL, &bytes, &err), FB_OK);
    needed = bytes;
    bytes = sizeof text;
    assert_int_equal(fb_locate_text(&c, &r, &w, text, &bytes, &err), FB_E_LIMIT);
    assert_int_equal(bytes, needed);
    assert_string_equal(text, "");
    assert_int_equal(fb_locate_text(NULL, &r, &w, text, &bytes, &err), FB_E_USAGE);
    assert_int_equal(fb_locate_text(&c, NULL, &w, text, &bytes, &err), FB_E_USAGE);
    assert_int_equal(fb_locate_text(&c, &r, &w, text, NULL, &err), FB_E_USAGE);
    w.size = 4;
    assert_int_equal(fb_locate_text(&c, &r, &w, text, &bytes, &err), FB_E_USAGE);
}

/* ---- older callers ----------------------------------------------------------------------------------------------------------- */

static void test_text__a_result_of_an_older_header_is_filled_as_far_as_it_goes(void **state)
{
    struct {
        fb_locate_result result;
        char after[16];
    } old;
    fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    fb_locate_config c;
    trainer t;
    (void)state;
    trainer_init(&t);
    c = trainer_config(&t);
    memset(&old, 0x5a, sizeof old);
    memcpy(&old.result, &empty, offsetof(fb_locate_result, node));
    old.result.size = offsetof(fb_locate_result, node);
    assert_int_equal(fb_locate_run(&c, &old.result, &err), FB_OK);
    assert_int_equal(old.result.size, offsetof(fb_locate_result, node));
    assert_string_equal(old.result.op, "div");
    for (size_t i = 0; i < sizeof old.result.node; i++) assert_int_equal(old.result.node[i], 0x5a);
    assert_true(has(text_of(&c, &old.result, NULL), "h.0 div (forward), rank 0"));
    fb_locate_release(&old.result);
    old.result.size = 8;
    assert_int_equal(fb_locate_run(&c, &old.result, &err), FB_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__kernels_lose_what_only_a_dispatcher_reads),
        cmocka_unit_test(test_text__the_autograd_node_comes_first_and_the_kernel_second),
        cmocka_unit_test(test_text__a_division_in_the_node_of_a_root_is_the_slope_of_the_root),
        cmocka_unit_test(test_text__zero_by_zero_in_the_node_of_a_root_is_its_slope_too),
        cmocka_unit_test(test_text__a_power_and_a_reciprocal_root_in_backward_are_slopes),
        cmocka_unit_test(test_text__what_is_finite_in_the_node_of_a_root_is_no_slope),
        cmocka_unit_test(test_text__the_block_says_where_why_how_it_is_known_and_what_to_do),
        cmocka_unit_test(test_text__no_batch_is_called_smallest_where_none_was_smaller),
        cmocka_unit_test(test_text__each_outcome_is_said_and_no_more_than_it),
        cmocka_unit_test(test_text__no_line_is_wider_than_a_hundred_columns),
        cmocka_unit_test(test_text__too_little_room_says_how_much_is_needed),
        cmocka_unit_test(test_text__a_result_of_an_older_header_is_filled_as_far_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
