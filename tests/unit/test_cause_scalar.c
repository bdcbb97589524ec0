/* Numbers that an operator is given beside its tensors: beyond the kernel's format, not finite, or not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/one_witness.h"

#define says(o, text) assert_non_null(strstr((o)->cause.explanation, (text)))
#define says_not(o, text) assert_null(strstr((o)->cause.explanation, (text)))

/* op(a) by a number, which came to `made` in the kernel and to `exact` in FP64. */
typedef struct scaled {
    one_witness o;
    double a[1], out[1], exact[1];
} scaled;

static void begin_scaled(scaled *s, const char *op, int32_t boundary, int32_t format, double a, double made, double exact)
{
    begin(&s->o, op, "", boundary);
    s->a[0] = a;
    s->out[0] = made;
    s->exact[0] = exact;
    add_input(&s->o, "sum", format, s->a, 1, 0);
    add_output(&s->o, "mul", format, s->out, 1, 0);
    set_exact(&s->o, s->exact);
}

static void test_cause__a_number_beyond_the_format_is_inf_in_the_kernel(void **state)
{
    static const struct {
        int32_t boundary;
        const char *name, *class_name;
        int certain;
    } cases[] = {{FB_LOSS, "other", "scale_runaway", 0},
                 {FB_FORWARD, "other", "overflow", 1},
                 {FB_FORWARD, "loss_scale", "scale_runaway", 1},
                 {FB_UPDATE, "other", "lr_instability", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scaled s;
        begin_scaled(&s, "aten.mul.Tensor", cases[i].boundary, FB_F32, 0, a_nan(), 0);
        add_attribute(&s.o, cases[i].name, 0x1p128);
        s.o.facts.other_ranks_tried = s.o.facts.other_ranks_bad = 3;
        assert_string_equal(judge(&s.o), cases[i].class_name);
        assert_int_equal(s.o.cause.certain, cases[i].certain);
        assert_int_equal(s.o.cause.rule, FB_RULE_RANGE);
        assert_true(s.o.cause.has_value && s.o.cause.value == 0x1p128);
        says(&s.o,
             "= 3.402824e+38, and the largest number of fp32 is 3.402823e+38: it is Inf in the kernel, and 0 times that is NaN.");
    }
}

static void test_cause__a_result_of_the_sign_that_such_a_number_gives_is_its_own(void **state)
{
    scaled s;
    (void)state;
    begin_scaled(&s, "mul", FB_FORWARD, FB_F32, -0.25, an_inf(), 0.25e39);
    add_attribute(&s.o, "other", -1e39);
    assert_string_equal(judge(&s.o), "overflow");
    says(&s.o, "it was given \"other\" = -1e+39");
    says(&s.o, "and so is the result");
    says_not(&s.o, "the other sign");
    /* NaN is not what comes of it. */
    begin_scaled(&s, "mul", FB_FORWARD, FB_F32, -0.25, a_nan(), 0.25);
    add_attribute(&s.o, "other", -1e39);
    (void)judge(&s.o);
    says_not(&s.o, "and 0 times that is NaN");
    /* x/Inf is 0. */
    begin_scaled(&s, "div", FB_FORWARD, FB_F32, 1, a_nan(), 1e-39);
    add_attribute(&s.o, "other", 1e39);
    (void)judge(&s.o);
    says_not(&s.o, "it was given \"other\"");
}

static void test_cause__what_is_added_with_such_a_factor_is_told_by_the_second_operand(void **state)
{
    double b[] = {0};
    scaled s;
    (void)state;
    begin_scaled(&s, "aten.add.Tensor", FB_FORWARD, FB_F32, 3, a_nan(), 3);
    add_input(&s.o, "mask", FB_F32, b, 1, 0);
    add_attribute(&s.o, "alpha", 1e39);
    assert_string_equal(judge(&s.o), "overflow");
    says(&s.o, "it was given \"alpha\" = 1e+39");
    assert_true(s.o.cause.certain);
    begin_scaled(&s, "aten.sub.Tensor", FB_FORWARD, FB_F32, 3, -an_inf(), -1e39);
    add_attribute(&s.o, "other", 1e39);
    add_attribute(&s.o, "alpha", 1);
    assert_string_equal(judge(&s.o), "overflow");
    says(&s.o, "it was given \"other\" = 1e+39");
}

/* Most kernels compute in FP32, where 100000 is a number. */
static void test_cause__a_number_that_only_the_narrow_format_does_not_hold_proves_nothing(void **state)
{
    scaled s;
    (void)state;
    begin_scaled(&s, "mul", FB_FORWARD, FB_F16, 0, a_nan(), 0);
    add_attribute(&s.o, "other", 1e5);
    assert_string_equal(judge(&s.o), "fp16_forward_overflow");
    assert_false(s.o.cause.certain);
    says(&s.o, "in a kernel that works in that format");
    begin_scaled(&s, "mul", FB_FORWARD, FB_F64, 0, a_nan(), 0);
    add_attribute(&s.o, "other", 1e300);
    (void)judge(&s.o);
    says_not(&s.o, "it was given \"other\" = 1e+300, and the largest");
}

static void test_cause__the_kernel_is_not_blamed_where_not_all_it_was_given_is_known(void **state)
{
    static const struct {
        const char *op, *name;
        double number, a;
        const char *text;
    } cases[] = {{"mul", NULL, 0, 1, "its second operand was not kept"},
                 {"softplus", NULL, 0, 100, "is not known here"},
                 {"softplus", NULL, 0, 1e-30, "is not known here"},
                 {"softplus", "beta", 1e39, 1, "what the operator makes of that is not known here"},
                 {"clamp", "max", 1e39, 1, "what the operator makes of that is not known here"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scaled s;
        begin_scaled(&s, cases[i].op, FB_FORWARD, FB_F32, cases[i].a, a_nan(), cases[i].a);
        if (cases[i].name) add_attribute(&s.o, cases[i].name, cases[i].number);
        s.o.facts.other_ranks_tried = s.o.facts.other_ranks_bad = 3;
        assert_string_not_equal(judge(&s.o), "kernel_bug");
        assert_false(s.o.cause.certain);
        says(&s.o, cases[i].text);
    }
}

static void test_cause__a_number_that_is_nan_and_was_not_used_leaves_the_kernel_in_peace(void **state)
{
    scaled s;
    (void)state;
    begin_scaled(&s, "copy", FB_FORWARD, FB_F32, 1, a_nan(), 1);
    add_attribute(&s.o, "ignored", a_nan());
    assert_string_equal(judge(&s.o), "unknown");
    says(&s.o, "it was given a number that is not finite");
    begin_scaled(&s, "copy", FB_FORWARD, FB_F32, 1, a_nan(), 1);
    s.o.w.attribute_count = FB_TAPE_ATTRIBUTES_MAX;
    {
        fb_tape_attribute many[FB_TAPE_ATTRIBUTES_MAX] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}};
        s.o.w.attributes = many;
        assert_string_equal(judge(&s.o), "unknown");
        says(&s.o, "more numbers than were kept");
    }
}

static void test_cause__a_bound_of_inf_is_no_bad_number(void **state)
{
    scaled s;
    (void)state;
    begin_scaled(&s, "aten.linalg_vector_norm.default", FB_FORWARD, FB_F32, 1, a_nan(), a_nan());
    add_attribute(&s.o, "ord", an_inf());
    (void)judge(&s.o);
    says_not(&s.o, "it was built with");
    begin_scaled(&s, "mul", FB_FORWARD, FB_F32, 1, a_nan(), a_nan());
    add_attribute(&s.o, "p", a_nan());
    (void)judge(&s.o);
    says(&s.o, "it was built with \"p\" = NaN");
}

static void test_cause__a_rate_that_is_nan_is_the_number_of_a_step(void **state)
{
    static const char *const names[] = {"other", "value", "alpha", "scalar", "weight"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        scaled s;
        begin_scaled(&s, "aten.mul_.Tensor", FB_UPDATE, FB_F32, 1, a_nan(), a_nan());
        add_attribute(&s.o, names[i], a_nan());
        /* An epsilon elsewhere in the optimizer is nothing to it. */
        add_number(&s.o, "add", "eps", 1e-30, FB_F16);
        s.o.w.module_ops = 5;
        assert_string_equal(judge(&s.o), "lr_instability");
        assert_int_equal(s.o.cause.rule, FB_RULE_DOMAIN);
        assert_false(s.o.cause.certain);
        says(&s.o, names[i]);
        says(&s.o, "= NaN, which is no finite number. In an update such a number is made of the learning rate");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause__a_number_beyond_the_format_is_inf_in_the_kernel),
        cmocka_unit_test(test_cause__a_result_of_the_sign_that_such_a_number_gives_is_its_own),
        cmocka_unit_test(test_cause__what_is_added_with_such_a_factor_is_told_by_the_second_operand),
        cmocka_unit_test(test_cause__a_number_that_only_the_narrow_format_does_not_hold_proves_nothing),
        cmocka_unit_test(test_cause__the_kernel_is_not_blamed_where_not_all_it_was_given_is_known),
        cmocka_unit_test(test_cause__a_number_that_is_nan_and_was_not_used_leaves_the_kernel_in_peace),
        cmocka_unit_test(test_cause__a_bound_of_inf_is_no_bad_number),
        cmocka_unit_test(test_cause__a_rate_that_is_nan_is_the_number_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
