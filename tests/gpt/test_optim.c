/* test_optim.c: the optimizer fused and in stages; and batches of which samples are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data.h"
#include "optim.h"

#include <stdlib.h>
#include <string.h>

static gpt_model *small_model(void)
{
    gpt_config config = {.layers = 1, .heads = 2, .channels = 8, .block = 8, .batch = 1, .activation_gain = 1.0f, .seed = 3};
    gpt_model *model = gpt_open(&config);
    assert_non_null(model);
    return model;
}

/* Gradients, and moments as they are after some updates; some are 0, some huge. */
static void fill(gpt_model *model, adamw *o)
{
    rng_stream stream = {.seed = 9, .site = RNG_INIT, .step = 77};
    size_t n = model->parameter_count;
    rng_normal(&stream, model->gradients, n);
    stream.step = 78;
    rng_normal(&stream, o->exp_avg, n);
    stream.step = 79;
    rng_normal(&stream, o->exp_avg_sq, n);
    for (size_t i = 0; i < n; i++) {
        o->exp_avg_sq[i] *= o->exp_avg_sq[i];
        if (i % 7 == 0) model->gradients[i] = o->exp_avg[i] = o->exp_avg_sq[i] = 0.0f;
        if (i % 11 == 0) model->gradients[i] *= 1e20f;
    }
    o->updates = 4;
}

/* One update, stage by stage over whole tensors, as a replay runs it. */
static void update_by_stages(adamw *o, gpt_model *model, const adamw_numbers *numbers)
{
    float *g = calloc(model->parameter_count, sizeof *g), *x = calloc(model->parameter_count, sizeof *x);
    assert_true(g && x);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const gpt_tensor *t = &model->tensors[i];
        adamw_factors u = adamw_factors_of(numbers, t->ndim > 1);
        precision f = numbers->moments;
        float *p = model->parameters + t->offset, *m = o->exp_avg + t->offset, *v = o->exp_avg_sq + t->offset;
        adamw_run_stage(STAGE_CLIP, &u, f, g, model->gradients + t->offset, NULL, t->count);
        adamw_run_stage(STAGE_DECAY, &u, f, p, p, NULL, t->count);
        adamw_run_stage(STAGE_EXP_AVG, &u, f, m, m, g, t->count);
        adamw_run_stage(STAGE_SQ_DECAY, &u, f, v, v, NULL, t->count);
        adamw_run_stage(STAGE_EXP_AVG_SQ, &u, f, v, v, g, t->count);
        adamw_run_stage(STAGE_ROOT, &u, f, x, v, NULL, t->count);
        adamw_run_stage(STAGE_CORRECT, &u, f, x, x, NULL, t->count);
        adamw_run_stage(STAGE_DENOMINATOR, &u, f, x, x, NULL, t->count);
        adamw_run_stage(STAGE_RATIO, &u, f, x, m, x, t->count);
        adamw_run_stage(STAGE_STEP, &u, f, x, x, NULL, t->count);
        adamw_run_stage(STAGE_PARAMETER, &u, f, p, p, x, t->count);
    }
    o->updates++;
    free(g);
    free(x);
}

static void compare(precision moments)
{
    gpt_model *fused = small_model(), *staged = small_model();
    adamw a = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1.0}, b = a;
    size_t bytes = fused->parameter_count * sizeof(float);
    assert_int_equal(adamw_open(&a, fused->parameter_count), 0);
    assert_int_equal(adamw_open(&b, fused->parameter_count), 0);
    fill(fused, &a);
    fill(staged, &b);
    for (int k = 0; k < 3; k++) {
        adamw_numbers numbers = adamw_numbers_of(&a, 1e-3, 0.25);
        numbers.moments = moments;
        adamw_update_with(&a, fused, &numbers);
        update_by_stages(&b, staged, &numbers);
    }
    assert_memory_equal(fused->parameters, staged->parameters, bytes);
    assert_memory_equal(a.exp_avg, b.exp_avg, bytes);
    assert_memory_equal(a.exp_avg_sq, b.exp_avg_sq, bytes);
    assert_int_equal(a.updates, b.updates);
    adamw_close(&a);
    adamw_close(&b);
    gpt_close(fused);
    gpt_close(staged);
}

static void test_optim__stages_come_to_the_bits_of_the_fused_update(void **state)
{
    (void)state;
    compare(PRECISION_FP32);
    compare(PRECISION_BF16);
    compare(PRECISION_FP16);
}

/* Beside the state: the bits of an update in place, and the state stays what it was. */
static void beside(precision moments)
{
    gpt_model *here = small_model(), *there = small_model();
    adamw a = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1.0}, b = a;
    size_t n = here->parameter_count, bytes = n * sizeof(float);
    adamw_state to = {calloc(n, sizeof(float)), calloc(n, sizeof(float)), calloc(n, sizeof(float))};
    assert_true(to.parameters && to.exp_avg && to.exp_avg_sq);
    assert_int_equal(adamw_open(&a, n), 0);
    assert_int_equal(adamw_open(&b, n), 0);
    fill(here, &a);
    fill(there, &b);
    adamw_numbers numbers = adamw_numbers_of(&a, 1e-3, 0.25);
    numbers.moments = moments;
    adamw_write(there, (adamw_state){there->parameters, b.exp_avg, b.exp_avg_sq}, to, &numbers);
    assert_memory_equal(there->parameters, here->parameters, bytes);
    assert_memory_equal(b.exp_avg, a.exp_avg, bytes);
    assert_memory_equal(b.exp_avg_sq, a.exp_avg_sq, bytes);
    adamw_update_with(&a, here, &numbers);
    assert_memory_not_equal(there->parameters, here->parameters, bytes);
    assert_memory_equal(to.parameters, here->parameters, bytes);
    assert_memory_equal(to.exp_avg, a.exp_avg, bytes);
    assert_memory_equal(to.exp_avg_sq, a.exp_avg_sq, bytes);
    free(to.parameters);
    free(to.exp_avg);
    free(to.exp_avg_sq);
    adamw_close(&a);
    adamw_close(&b);
    gpt_close(here);
    gpt_close(there);
}

static void test_optim__an_update_beside_the_state_has_the_bits_of_one_in_place(void **state)
{
    (void)state;
    beside(PRECISION_FP32);
    beside(PRECISION_FP16);
}

/* 1e-8 is below what fp16 has: a parameter without a gradient divides 0 by 0, and by 1e-8 in FP32. */
static void test_optim__an_epsilon_that_the_format_does_not_have_is_zero(void **state)
{
    (void)state;
    adamw o = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
    adamw_numbers numbers = adamw_numbers_of(&o, 1e-3, 1.0);
    assert_true(adamw_factors_of(&numbers, 0).epsilon > 0.0f);
    numbers.moments = PRECISION_FP16;
    assert_true(float_bits(adamw_factors_of(&numbers, 0).epsilon) == 0);
}

/* ---- samples that are left out ----------------------------------------------------------------------------------------------- */

enum { TEXT = 4096, STEPS = 6 };

static int is_this(void *ctx, int64_t offset)
{
    return offset == *(const int64_t *)ctx;
}

static int is_any(void *ctx, int64_t offset)
{
    (void)ctx;
    (void)offset;
    return 1;
}

static dataset some_text(void)
{
    dataset data = {calloc(1, TEXT), TEXT};
    assert_non_null(data.bytes);
    for (size_t i = 0; i < TEXT; i++) data.bytes[i] = (uint8_t)(i * 31 % 251);
    return data;
}

static void test_data__only_the_window_that_is_left_out_changes(void **state)
{
    (void)state;
    dataset data = some_text();
    batch whole, part;
    int64_t gone;
    left_out out = {is_this, &gone, 0};
    assert_int_equal(batch_open(&whole, 2, 3, 16), 0);
    assert_int_equal(batch_open(&part, 2, 3, 16), 0);
    batch_draw(&whole, &data, 5, 1, 0);
    gone = whole.offsets[4];
    for (int64_t step = 1; step <= STEPS; step++) {
        batch_draw(&whole, &data, 5, step, 0);
        assert_int_equal(batch_draw_without(&part, &data, 5, step, 0, &out), 0);
        for (size_t w = 0; w < 6; w++) {
            assert_true(part.offsets[w] != gone);
            if (whole.offsets[w] == gone) continue;
            assert_int_equal(part.offsets[w], whole.offsets[w]);
            assert_memory_equal(part.tokens + w * 16, whole.tokens + w * 16, 16 * sizeof *part.tokens);
        }
    }
    assert_true(out.count >= 1);
    batch_close(&whole);
    batch_close(&part);
    dataset_close(&data);
}

static void test_data__nothing_that_is_left_is_an_error_and_no_endless_search(void **state)
{
    (void)state;
    dataset data = some_text();
    batch b;
    left_out out = {is_any, NULL, 0};
    assert_int_equal(batch_open(&b, 1, 1, 16), 0);
    assert_int_equal(batch_draw_without(&b, &data, 5, 1, 0, &out), -1);
    assert_int_equal(out.count, BATCH_DRAWS_MAX);
    batch_close(&b);
    dataset_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optim__stages_come_to_the_bits_of_the_fused_update),
        cmocka_unit_test(test_optim__an_update_beside_the_state_has_the_bits_of_one_in_place),
        cmocka_unit_test(test_optim__an_epsilon_that_the_format_does_not_have_is_zero),
        cmocka_unit_test(test_data__only_the_window_that_is_left_out_changes),
        cmocka_unit_test(test_data__nothing_that_is_left_is_an_error_and_no_endless_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
