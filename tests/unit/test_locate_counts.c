/*
 * A step that is told operator by operator: what a denominator is found to be made of, and which constant a `where` did not take.
 * Each test writes down a few lines of a program, with the numbers that come out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "firstbad/locate.h"

enum { LINES = 12, WIDTH = 6 };

/* One line: an entry where op is NULL. Its numbers are floats, or integers and truth values made of them. */
typedef struct line {
    const char *op, *name;
    uint32_t flags;
    int32_t dtype;
    uint64_t count;
    float numbers[WIDTH];
    uint32_t reads[2], read_count;
    fb_tape_attribute attribute;
} line;

static const line *program;
static uint32_t lines;
static fb_locate_result result;

static const void *memory(const line *of, int64_t integers[WIDTH], uint8_t truths[WIDTH])
{
    for (uint64_t i = 0; i < of->count; i++) {
        integers[i] = of->dtype == FB_F32 ? 0 : (int64_t)of->numbers[i];
        truths[i] = of->dtype == FB_BOOL && of->numbers[i] > 0;
    }
    return of->dtype == FB_I64 ? (const void *)integers : of->dtype == FB_BOOL ? (const void *)truths : (const void *)of->numbers;
}

static fb_status tell(fb_tape *tape, const line *of, fb_error *err)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    fb_tape_op op = FB_TAPE_OP_INIT;
    int64_t integers[WIDTH];
    uint8_t truths[WIDTH];
    value.name = of->name;
    value.flags = of->flags;
    value.dtype = value.format = of->dtype;
    value.count = of->count;
    value.data = memory(of, integers, truths);
    if (!of->op) {
        value.module = "batch";
        return fb_tape_entry(tape, &value, NULL, err);
    }
    op.op = of->op;
    op.module = "head";
    op.boundary = FB_FORWARD;
    op.inputs = of->reads;
    op.input_count = of->read_count;
    op.outputs = &value;
    op.output_count = 1;
    op.attributes = &of->attribute;
    op.attribute_count = of->attribute.name != NULL;
    return fb_tape_op_ran(tape, &op, err);
}

static fb_status replay(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    fb_status status = FB_OK;
    (void)ctx;
    if (request->purpose != FB_REPLAY_AGAIN) return FB_E_UNSUPPORTED;
    for (uint32_t i = 0; i < lines && status == FB_OK; i++) status = tell(tape, &program[i], err);
    return status;
}

static void locate(const line *of, uint32_t count)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    fb_locate_config config = FB_LOCATE_CONFIG_INIT;
    fb_error err;
    memset(&err, 0, sizeof err);
    program = of;
    lines = count;
    result = empty;
    config.finding_boundary = FB_FORWARD;
    config.finding_kind = FB_KIND_NAN;
    config.finding_module = "head";
    config.finding_tensor = of[count - 1].name;
    config.replay = replay;
    if (fb_locate_run(&config, &result, &err) != FB_OK) fail_msg("%s", err.message);
    fb_locate_release(&result);
}

#define LOCATE(of) locate((of), sizeof(of) / sizeof *(of))
#define BATCH(name, type, n, ...)                                     \
    {                                                                 \
        NULL, name, FB_TAPE_BATCH, type, n, {__VA_ARGS__}, {0, 0}, 0, \
        {                                                             \
            NULL, 0                                                   \
        }                                                             \
    }
#define STATE(name, type, n, ...)                                     \
    {                                                                 \
        NULL, name, FB_TAPE_STATE, type, n, {__VA_ARGS__}, {0, 0}, 0, \
        {                                                             \
            NULL, 0                                                   \
        }                                                             \
    }
#define ONE(op, type, n, a, ...)                      \
    {                                                 \
        op, op, 0, type, n, {__VA_ARGS__}, {a, 0}, 1, \
        {                                             \
            NULL, 0                                   \
        }                                             \
    }
#define TWO(op, type, n, a, b, ...)                   \
    {                                                 \
        op, op, 0, type, n, {__VA_ARGS__}, {a, b}, 2, \
        {                                             \
            NULL, 0                                   \
        }                                             \
    }
#define NUMBER(op, type, n, a, key, x, ...)           \
    {                                                 \
        op, op, 0, type, n, {__VA_ARGS__}, {a, 0}, 1, \
        {                                             \
            key, x                                    \
        }                                             \
    }

static void test_locate__a_count_is_known_behind_views_and_comparisons(void **state)
{
    const line of[] = {BATCH("labels", FB_I64, 2, -1, -1),          BATCH("x", FB_F32, 1, 0),
                       ONE("alias", FB_I64, 2, 0, -1, -1),          NUMBER("aten.ne.Scalar", FB_BOOL, 2, 2, "other", -1, 0, 0),
                       ONE("aten.sum.default", FB_I64, 1, 3, 0),    ONE("aten._to_copy.default", FB_F32, 1, 4, 0),
                       TWO("aten.div.Tensor", FB_F32, 1, 1, 5, NAN)};
    (void)state;
    LOCATE(of);
    assert_int_equal(result.found, FB_LOCATED_OPERATOR);
    assert_string_equal(result.op, "div");
    assert_string_equal(result.cause_class, "label_all_ignored");
    assert_non_null(strstr(result.sentence, "It counts the labels of \"labels\" that are not ignored, and all are."));
}

static void test_locate__a_mask_of_zeros_that_came_with_the_batch_is_a_zero_denominator(void **state)
{
    const line of[] = {BATCH("mask", FB_F32, 2, 0, 0), BATCH("x", FB_F32, 1, 0), ONE("sum", FB_F32, 1, 0, 0),
                       TWO("div", FB_F32, 1, 1, 2, NAN)};
    (void)state;
    LOCATE(of);
    assert_string_equal(result.cause_class, "zero_denominator");
    assert_non_null(strstr(result.sentence, "It is a sum over \"mask\", and all that it adds up is 0."));
}

/* `(mask * weights).sum()`: a truth value times a number vanishes only where one of them is 0. */
static void test_locate__a_product_of_a_mask_and_weights_is_of_the_batch(void **state)
{
    const line of[] = {BATCH("keep", FB_BOOL, 2, 0, 0), BATCH("weights", FB_F32, 2, 0.5f, 0.5f), TWO("mul", FB_F32, 2, 0, 1, 0, 0),
                       ONE("sum", FB_F32, 1, 2, 0), TWO("div", FB_F32, 1, 3, 3, NAN)};
    (void)state;
    LOCATE(of);
    assert_string_equal(result.cause_class, "zero_denominator");
}

static void test_locate__a_sum_that_vanished_or_was_learned_is_no_count(void **state)
{
    /* 1e-30 * 1e-30 is 0 in FP32. */
    const line vanished[] = {BATCH("mask", FB_F32, 2, 1e-30f, 1e-30f), TWO("mul", FB_F32, 2, 0, 0, 0, 0),
                             ONE("sum", FB_F32, 1, 1, 0), TWO("div", FB_F32, 1, 2, 2, NAN)};
    const line underflow[] = {BATCH("age", FB_F32, 2, -200, -300), ONE("exp", FB_F32, 2, 0, 0, 0), ONE("sum", FB_F32, 1, 1, 0),
                              TWO("div", FB_F32, 1, 2, 2, NAN)};
    const line scaled[] = {BATCH("keep", FB_BOOL, 2, 1, 1), NUMBER("mul", FB_F32, 2, 0, "other", 1e-46, 0, 0),
                           ONE("sum", FB_F32, 1, 1, 0), TWO("div", FB_F32, 1, 2, 2, NAN)};
    const line learned[] = {STATE("gate", FB_F32, 2, 0, 0), ONE("relu", FB_F32, 2, 0, 0, 0), ONE("sum", FB_F32, 1, 1, 0),
                            TWO("div", FB_F32, 1, 2, 2, NAN)};
    const line cancelled[] = {BATCH("advantage", FB_F32, 2, 1, -1), ONE("sum", FB_F32, 1, 0, 0), TWO("div", FB_F32, 1, 1, 1, NAN)};
    (void)state;
    LOCATE(vanished);
    assert_string_equal(result.cause_class, "domain_math");
    LOCATE(underflow);
    assert_string_equal(result.cause_class, "domain_math");
    LOCATE(scaled);
    assert_string_equal(result.cause_class, "domain_math");
    LOCATE(learned);
    assert_string_equal(result.cause_class, "domain_math");
    LOCATE(cancelled);
    assert_string_equal(result.cause_class, "domain_math");
}

static void test_locate__a_count_that_was_handed_over_is_one(void **state)
{
    const line integer[] = {BATCH("n", FB_I64, 1, 0), BATCH("x", FB_F32, 1, 0), TWO("div", FB_F32, 1, 1, 0, NAN)};
    const line named[] = {BATCH("num_items_in_batch", FB_F32, 1, 0), BATCH("x", FB_F32, 1, 0), TWO("div", FB_F32, 1, 1, 0, NAN)};
    const line sigma[] = {BATCH("sigma", FB_F32, 1, 0), BATCH("x", FB_F32, 1, 0), TWO("div", FB_F32, 1, 1, 0, NAN)};
    (void)state;
    LOCATE(integer);
    assert_string_equal(result.cause_class, "zero_denominator");
    LOCATE(named);
    assert_string_equal(result.cause_class, "zero_denominator");
    assert_non_null(strstr(result.sentence, "It came with the batch (\"num_items_in_batch\"), as a count"));
    LOCATE(sigma);
    assert_string_equal(result.cause_class, "domain_math");
}

/* torch.logdet: where(sign == -1, NaN, logarithm), and the NaN is made in every call. */
static void test_locate__a_constant_that_was_not_taken_is_no_origin(void **state)
{
    line of[] = {STATE("w", FB_F32, 1, 0),
                 ONE("aten._linalg_slogdet.default", FB_F32, 1, 0, -INFINITY),
                 {"aten.scalar_tensor.default", "scalar_tensor", 0, FB_F32, 1, {NAN}, {0, 0}, 0, {"s", NAN}},
                 TWO("aten.where.self", FB_F32, 1, 2, 1, -INFINITY),
                 NUMBER("mul", FB_F32, 1, 3, "other", 0.5, -INFINITY)};
    (void)state;
    LOCATE(of);
    assert_int_equal(result.found, FB_LOCATED_OPERATOR);
    assert_string_equal(result.op, "linalg_slogdet");
    assert_int_equal(result.candidates, 1);
    /* What came out is NaN: either may have been taken. */
    of[3].numbers[0] = of[4].numbers[0] = NAN;
    LOCATE(of);
    assert_int_equal(result.found, FB_LOCATED_SET);
    assert_int_equal(result.candidates, 2);
    /* An operator that computes carries one kind of bad number over into another. */
    of[3].op = of[3].name = "add";
    of[3].numbers[0] = of[4].numbers[0] = -INFINITY;
    LOCATE(of);
    assert_int_equal(result.found, FB_LOCATED_SET);
    /* Of several numbers, another may be the one that was taken. */
    of[3].op = of[3].name = "where";
    of[2].count = 2;
    of[2].numbers[1] = -INFINITY;
    LOCATE(of);
    assert_int_equal(result.found, FB_LOCATED_SET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locate__a_count_is_known_behind_views_and_comparisons),
        cmocka_unit_test(test_locate__a_mask_of_zeros_that_came_with_the_batch_is_a_zero_denominator),
        cmocka_unit_test(test_locate__a_product_of_a_mask_and_weights_is_of_the_batch),
        cmocka_unit_test(test_locate__a_sum_that_vanished_or_was_learned_is_no_count),
        cmocka_unit_test(test_locate__a_count_that_was_handed_over_is_one),
        cmocka_unit_test(test_locate__a_constant_that_was_not_taken_is_no_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
