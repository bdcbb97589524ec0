/* The model proved right: gradients against finite differences, the loss on text, what a fault does,
 * and what a checkpoint keeps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint.h"
#include "data.h"
#include "model.h"
#include "optim.h"

static const gpt_config TINY = {
    .layers = 2,
    .heads = 2,
    .channels = 16,
    .block = 12,
    .batch = 3,
    .dropout = 0.1f,
    .activation_gain = 1.0f,
    .seed = 3,
};

typedef struct tiny_batch {
    int32_t tokens[36], targets[36];
    float weights[36];
} tiny_batch;

static uint32_t draw(uint32_t n)
{
    rng_stream stream = {.seed = 99, .site = RNG_DATA};
    uint32_t word;
    rng_draw(&stream, n, &word, 1);
    return word;
}

static tiny_batch make_batch(void)
{
    tiny_batch b;
    for (uint32_t i = 0; i < 36; i++) {
        b.tokens[i] = (int32_t)(draw(i) % GPT_VOCAB);
        b.targets[i] = i % 7 == 2 ? GPT_IGNORE : (int32_t)(draw(100 + i) % GPT_VOCAB);
        b.weights[i] = 0.5f + (float)(i % 4) * 0.5f;
    }
    return b;
}

static gpt_input input_of(const tiny_batch *b)
{
    return (gpt_input){.tokens = b->tokens, .targets = b->targets, .weights = b->weights};
}

/* The usual start is nearly linear; parameters of size 0.3 give every tensor a gradient that can be measured. */
static gpt_model *open_rough(const gpt_config *config)
{
    gpt_model *model = gpt_open(config);
    rng_stream stream = {.seed = 17, .site = RNG_INIT, .layer = 1};
    assert_non_null(model);
    float *noise = calloc(model->parameter_count, sizeof *noise);
    assert_non_null(noise);
    rng_normal(&stream, noise, model->parameter_count);
    for (size_t i = 0; i < model->parameter_count; i++) model->parameters[i] += 0.3f * noise[i];
    free(noise);
    gpt_load_weights(model);
    return model;
}

/* The loss once more from the logits, in double: a difference of two losses in FP32 has too few bits for a slope. */
static double loss_at(gpt_model *model, const tiny_batch *b, gpt_place place)
{
    double sum = 0.0, weight_sum = 0.0;
    gpt_load_weights(model);
    gpt_forward(model, input_of(b), place, 1.0);
    for (size_t i = 0; i < 36; i++) {
        const float *x = model->logits + i * GPT_VOCAB; // (V)
        double total = 0.0;
        if (b->targets[i] == GPT_IGNORE) continue;
        for (size_t v = 0; v < GPT_VOCAB; v++) total += exp((double)x[v] - (double)x[b->targets[i]]);
        sum += (double)b->weights[i] * log(total);
        weight_sum += (double)b->weights[i];
    }
    assert_true(fabs(model->loss - sum / weight_sum) <= 1e-6 * fabs(model->loss));
    return sum / weight_sum;
}

/*
 * The slope of the loss along a direction within one tensor, by the five-point formula (error of fourth order in h), must equal the
 * product of direction and gradient. Two directions: the gradient itself, in which no element can hide an error that matters to
 * training, and random signs, in which every element counts alike.
 */
static void check_direction(gpt_model *model, const tiny_batch *b, gpt_place place, const gpt_tensor *t, const float *gradient,
                            int signs)
{
    double length = 0.0, slope = 0.0, loss[4];
    const double h = 0.01, at[4] = {-2.0 * h, -h, h, 2.0 * h};
    float *p = model->parameters + t->offset, *start = calloc(t->count, sizeof *start),
          *direction = calloc(t->count, sizeof *direction);
    assert_non_null(start);
    assert_non_null(direction);
    memcpy(start, p, t->count * sizeof *p);
    for (size_t i = 0; i < t->count; i++) {
        direction[i] = signs ? (draw((uint32_t)(1000 + i)) & 1u ? 1.0f : -1.0f) : gradient[t->offset + i];
        length += (double)direction[i] * (double)direction[i];
    }
    length = sqrt(length);
    assert_true(length > 0.0);
    for (size_t i = 0; i < t->count; i++) slope += (double)direction[i] / length * (double)gradient[t->offset + i];
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < t->count; i++) p[i] = (float)((double)start[i] + at[k] * (double)direction[i] / length);
        loss[k] = loss_at(model, b, place);
    }
    memcpy(p, start, t->count * sizeof *p);
    double measured = (loss[0] - 8.0 * loss[1] + 8.0 * loss[2] - loss[3]) / (12.0 * h);
    double error = fabs(measured - slope), tolerance = 2e-5 + 2e-4 * fabs(slope);
    if (!(error <= tolerance))
        fail_msg("%s.%s along %s: slope %.9g, measured %.9g", t->module, t->name, signs ? "signs" : "the gradient", slope,
                 measured);
    free(start);
    free(direction);
}

static void check_all_gradients(const gpt_config *config, gpt_place place)
{
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(config);
    float *gradient = calloc(model->parameter_count, sizeof *gradient);
    assert_non_null(gradient);
    gpt_forward(model, input_of(&b), place, 1.0);
    gpt_backward(model, input_of(&b), place);
    memcpy(gradient, model->gradients, model->parameter_count * sizeof *gradient);
    for (size_t i = 0; i < model->tensor_count; i++) {
        check_direction(model, &b, place, &model->tensors[i], gradient, 0);
        check_direction(model, &b, place, &model->tensors[i], gradient, 1);
    }
    free(gradient);
    gpt_close(model);
}

static void test_backward__equals_finite_differences_in_every_tensor(void **state)
{
    (void)state;
    gpt_config plain = TINY;
    plain.dropout = 0.0f;
    check_all_gradients(&plain, (gpt_place){1, 0, 0});
}

static void test_backward__draws_the_dropout_masks_of_forward_again(void **state)
{
    (void)state;
    check_all_gradients(&TINY, (gpt_place){5, 1, 3});
}

static void test_backward__knows_the_gain_of_the_fault_switch(void **state)
{
    (void)state;
    gpt_config gained = TINY;
    gained.activation_gain = 1.5f;
    check_all_gradients(&gained, (gpt_place){2, 0, 0});
}

static void test_backward__adds_over_micro_steps_and_is_linear_in_the_loss_scale(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_place place = {1, 0, 0};
    gpt_model *model = open_rough(&TINY);
    float *once = calloc(model->parameter_count, sizeof *once);
    assert_non_null(once);
    gpt_forward(model, input_of(&b), place, 1.0);
    gpt_backward(model, input_of(&b), place);
    memcpy(once, model->gradients, model->parameter_count * sizeof *once);
    memset(model->gradients, 0, model->parameter_count * sizeof *once);
    gpt_forward(model, input_of(&b), place, 2048.0); /* a power of two changes no bit of a fraction */
    gpt_backward(model, input_of(&b), place);
    for (size_t i = 0; i < model->parameter_count; i++) assert_true(model->gradients[i] == 2048.0f * once[i]);
    gpt_forward(model, input_of(&b), place, 2048.0);
    gpt_backward(model, input_of(&b), place);
    for (size_t i = 0; i < model->parameter_count; i++)
        if (!(fabsf(model->gradients[i] - 4096.0f * once[i]) <= 0.01f + 1e-4f * fabsf(4096.0f * once[i])))
            fail_msg("element %zu: %g, expected %g", i, (double)model->gradients[i], 4096.0 * (double)once[i]);
    free(once);
    gpt_close(model);
}

static int is_nan_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
}

static size_t bad_count(const float *x, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) bad += (float_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    return bad;
}

static void test_loss__of_a_batch_with_all_targets_ignored_is_nan_and_the_gradient_zero(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(&TINY);
    for (size_t i = 0; i < 36; i++) b.targets[i] = GPT_IGNORE;
    gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
    gpt_backward(model, input_of(&b), (gpt_place){1, 0, 0});
    assert_true(is_nan_bits(model->loss));
    for (size_t i = 0; i < model->parameter_count; i++) assert_true(model->gradients[i] == 0.0f);
    gpt_close(model);
}

static void test_loss__ignored_targets_do_not_count(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(&TINY);
    double with_three = 0.0, sum = 0.0, weight = 0.0;
    for (size_t i = 0; i < 36; i++) b.targets[i] = i < 3 ? (int32_t)i : GPT_IGNORE;
    with_three = loss_at(model, &b, (gpt_place){1, 0, 0});
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 36; k++) b.targets[k] = k == i ? (int32_t)i : GPT_IGNORE;
        sum += (double)b.weights[i] * loss_at(model, &b, (gpt_place){1, 0, 0});
        weight += (double)b.weights[i];
    }
    assert_true(fabs(with_three - sum / weight) <= 1e-9);
    gpt_close(model);
}

static void test_forward__a_token_without_embedding_makes_its_row_nan_and_touches_no_other_memory(void **state)
{
    (void)state;
    const int32_t wrong[3] = {GPT_VOCAB, -1, INT32_MAX};
    for (size_t k = 0; k < 3; k++) {
        tiny_batch b = make_batch();
        gpt_model *model = open_rough(&TINY);
        b.tokens[13] = wrong[k];
        gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
        gpt_backward(model, input_of(&b), (gpt_place){1, 0, 0});
        assert_int_equal(bad_count(model->embedded, 36 * 16), 16);
        assert_int_equal(bad_count(model->embedded + (size_t)13 * 16, 16), 16);
        assert_true(is_nan_bits(model->loss));
        gpt_close(model);
    }
}

static void test_forward__a_target_out_of_range_makes_the_loss_nan(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(&TINY);
    b.targets[5] = GPT_VOCAB;
    gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
    gpt_backward(model, input_of(&b), (gpt_place){1, 0, 0});
    assert_true(is_nan_bits(model->loss));
    assert_int_equal(bad_count(model->d_logits, 36 * GPT_VOCAB), GPT_VOCAB);
    gpt_close(model);
}

/* Where the watcher saw the first bad activation. */
typedef struct first_seen {
    const gpt_activation *at;
    size_t calls;
} first_seen;

static void note_first(void *watcher, size_t index, const gpt_activation *activation)
{
    first_seen *seen = watcher;
    assert_int_equal(index, seen->calls++);
    if (!seen->at && bad_count(activation->data, activation->count)) seen->at = activation;
}

static void test_forward__activation_gain_overflows_fp16_in_the_middle_block_and_not_fp32(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    for (int half = 0; half < 2; half++) {
        gpt_config config = TINY;
        first_seen seen = {NULL, 0};
        config.activation_gain = 16.0f;
        config.format = half ? PRECISION_FP16 : PRECISION_FP32;
        gpt_model *model = open_rough(&config);
        model->watch = note_first;
        model->watcher = &seen;
        gpt_forward(model, input_of(&b), (gpt_place){5, 0, 0}, 1.0);
        assert_int_equal(seen.calls, model->activation_count);
        assert_true(half ? seen.at != NULL : seen.at == NULL);
        if (half) {
            assert_string_equal(seen.at->module, "h.1.mlp");
            assert_string_equal(seen.at->name, "output");
        }
        gpt_close(model);
    }
}

static void test_model__positions_grow_along_the_dataflow(void **state)
{
    (void)state;
    gpt_model *model = gpt_open(&TINY);
    for (size_t i = 1; i < model->tensor_count; i++) assert_true(model->tensors[i].position > model->tensors[i - 1].position);
    for (size_t i = 1; i < model->activation_count; i++)
        assert_true(model->activations[i].position > model->activations[i - 1].position);
    for (size_t i = 0; i < model->tensor_count; i++)
        for (size_t k = 0; k < model->activation_count; k++)
            assert_int_not_equal(model->tensors[i].position, model->activations[k].position);
    gpt_close(model);
}

static void test_model__impossible_shapes_are_refused(void **state)
{
    (void)state;
    gpt_config odd = TINY, empty = TINY;
    odd.heads = 3;
    empty.block = 0;
    assert_null(gpt_open(&odd));
    assert_null(gpt_open(&empty));
}

/* ---- the optimizer ----------------------------------------------------------------------------------------------------------- */

static void test_optim__a_norm_that_is_nan_does_not_pass_the_clip(void **state)
{
    (void)state;
    adamw o = {.clip = 1.0};
    assert_true(adamw_clip_coefficient(&o, 0.5) == 1.0);
    assert_true(adamw_clip_coefficient(&o, 4.0) == 0.25);
    assert_true(is_nan_bits(adamw_clip_coefficient(&o, (double)float_from_bits(0x7fc00000u))));
}

static void test_optim__learning_rate_warms_up_and_follows_half_a_cosine(void **state)
{
    (void)state;
    adamw o = {.learning_rate_max = 1.0, .learning_rate_min = 0.1, .warmup_steps = 10, .decay_steps = 110};
    assert_true(fabs(adamw_learning_rate(&o, 1) - 0.1) <= 1e-12);
    assert_true(fabs(adamw_learning_rate(&o, 10) - 1.0) <= 1e-12);
    assert_true(fabs(adamw_learning_rate(&o, 60) - 0.55) <= 1e-12);
    assert_true(fabs(adamw_learning_rate(&o, 110) - 0.1) <= 1e-12);
    assert_true(fabs(adamw_learning_rate(&o, 500) - 0.1) <= 1e-12);
}

static void test_optim__norms_and_biases_do_not_decay(void **state)
{
    (void)state;
    gpt_model *model = open_rough(&TINY);
    adamw o = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.5};
    assert_int_equal(adamw_open(&o, model->parameter_count), 0);
    float *before = calloc(model->parameter_count, sizeof *before);
    assert_non_null(before);
    memcpy(before, model->parameters, model->parameter_count * sizeof *before);
    adamw_update(&o, model, 0.1, 1.0); /* the gradient is zero: only decay can move anything */
    for (size_t i = 0; i < model->tensor_count; i++) {
        const gpt_tensor *t = &model->tensors[i];
        float factor = t->ndim == 1 ? 1.0f : 0.95f;
        for (size_t k = t->offset; k < t->offset + t->count; k++) assert_true(model->parameters[k] == before[k] * factor);
    }
    free(before);
    adamw_close(&o);
    gpt_close(model);
}

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

static const char TEXT[] = "/usr/share/common-licenses/GPL-3";

/* Trains on one rank; loss_scale as fp16 needs it. Returns the mean loss of the last five steps, that
 * of the first five in *early. */
static double train(gpt_model *model, adamw *o, int64_t first, int64_t last, double loss_scale, double *early)
{
    dataset data;
    batch b;
    double late = 0.0;
    *early = 0.0;
    assert_int_equal(dataset_open(&data, TEXT, model->config.block), 0);
    assert_int_equal(batch_open(&b, 1, model->config.batch, model->config.block), 0);
    for (int64_t step = first; step <= last; step++) {
        gpt_input input = {.tokens = b.tokens, .targets = b.targets, .weights = b.weights};
        gpt_place place = {step, 0, 0};
        gpt_load_weights(model);
        batch_draw(&b, &data, model->config.seed, step, 0);
        memset(model->gradients, 0, model->parameter_count * sizeof *model->gradients);
        gpt_forward(model, input, place, loss_scale);
        gpt_backward(model, input, place);
        precision_round(model->config.format, model->gradients, model->parameter_count);
        adamw_update(o, model, adamw_learning_rate(o, step), 1.0 / loss_scale);
        *early += step < first + 5 ? model->loss / 5.0 : 0.0;
        late += step > last - 5 ? model->loss / 5.0 : 0.0;
    }
    batch_close(&b);
    dataset_close(&data);
    return late;
}

static gpt_config small(precision format)
{
    return (gpt_config){.layers = 2,
                        .heads = 2,
                        .channels = 32,
                        .block = 32,
                        .batch = 2,
                        .dropout = 0.1f,
                        .format = format,
                        .activation_gain = 1.0f,
                        .seed = 1};
}

static adamw small_optimizer(void)
{
    return (adamw){.learning_rate_max = 3e-3,
                   .learning_rate_min = 3e-4,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1,
                   .clip = 1.0,
                   .warmup_steps = 10,
                   .decay_steps = 40};
}

static void test_train__loss_on_real_text_falls_in_every_precision(void **state)
{
    (void)state;
    for (int format = PRECISION_FP32; format <= PRECISION_FP16; format++) {
        gpt_config config = small((precision)format);
        gpt_model *model = gpt_open(&config);
        adamw o = small_optimizer();
        double early, late;
        assert_int_equal(adamw_open(&o, model->parameter_count), 0);
        late = train(model, &o, 1, 40, format == PRECISION_FP16 ? 1024.0 : 1.0, &early);
        print_message("%s: loss %.3f, then %.3f\n", precision_name((precision)format), early, late);
        assert_true(fabs(early - 5.5) < 0.3); /* log(256) is 5.545 */
        assert_true(late < 4.2);
        adamw_close(&o);
        gpt_close(model);
    }
}

static void test_train__the_same_seed_gives_the_same_bits_and_another_seed_does_not(void **state)
{
    (void)state;
    gpt_config config = small(PRECISION_FP32);
    float *first = NULL;
    for (int run = 0; run < 3; run++) {
        config.seed = run == 2 ? 2 : 1;
        gpt_model *model = gpt_open(&config);
        adamw o = small_optimizer();
        double early;
        size_t bytes = model->parameter_count * sizeof *first;
        assert_int_equal(adamw_open(&o, model->parameter_count), 0);
        train(model, &o, 1, 6, 1.0, &early);
        if (run == 0) {
            first = malloc(bytes);
            assert_non_null(first);
            memcpy(first, model->parameters, bytes);
        } else if (run == 1) {
            assert_memory_equal(first, model->parameters, bytes);
        } else {
            assert_memory_not_equal(first, model->parameters, bytes);
        }
        adamw_close(&o);
        gpt_close(model);
    }
    free(first);
}

static void test_checkpoint__a_resumed_run_continues_to_the_same_bits(void **state)
{
    (void)state;
    char folder[] = "/tmp/firstbad-gpt-XXXXXX", path[256], whole[256];
    assert_non_null(mkdtemp(folder));
    checkpoint_path(path, sizeof path, folder, 4);
    checkpoint_path(whole, sizeof whole, folder, 9);
    gpt_config config = small(PRECISION_BF16);
    gpt_model *straight = gpt_open(&config), *resumed;
    adamw o = small_optimizer(), p = small_optimizer();
    train_state kept = {4, 4, 1, 65536.0, 12, 1}, loaded = {0};
    file_error err = {""};
    double early;
    assert_int_equal(adamw_open(&o, straight->parameter_count), 0);
    train(straight, &o, 1, 4, 1.0, &early);
    assert_int_equal(checkpoint_save(path, straight, &o, &kept, &err), 0);
    train(straight, &o, 5, 9, 1.0, &early);

    config.seed = 77; /* other first parameters, all of which the checkpoint must replace */
    resumed = gpt_open(&config);
    assert_int_equal(adamw_open(&p, resumed->parameter_count), 0);
    assert_int_equal(checkpoint_load(path, resumed, &p, &loaded, &err), 0);
    assert_memory_equal(&kept, &loaded, sizeof kept);
    resumed->config.seed = loaded.seed;
    p.updates = loaded.updates;
    train(resumed, &p, 5, 9, 1.0, &early);
    assert_memory_equal(straight->parameters, resumed->parameters, straight->parameter_count * sizeof(float));
    assert_memory_equal(o.exp_avg, p.exp_avg, straight->parameter_count * sizeof(float));
    assert_memory_equal(o.exp_avg_sq, p.exp_avg_sq, straight->parameter_count * sizeof(float));

    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
    adamw_close(&o);
    adamw_close(&p);
    gpt_close(straight);
    gpt_close(resumed);
}

static void test_checkpoint__a_file_that_is_cut_longer_or_of_another_model_is_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/firstbad-gpt-XXXXXX", path[256];
    assert_non_null(mkdtemp(folder));
    checkpoint_path(path, sizeof path, folder, 1);
    gpt_config config = TINY, other = TINY;
    other.channels = 32;
    gpt_model *model = gpt_open(&config), *wider = gpt_open(&other);
    adamw o = {0}, p = {0};
    train_state kept = {0};
    file_error err = {""};
    assert_int_equal(adamw_open(&o, model->parameter_count), 0);
    assert_int_equal(adamw_open(&p, wider->parameter_count), 0);
    assert_int_equal(checkpoint_load(path, model, &o, &kept, &err), -1);
    assert_int_equal(checkpoint_save(path, model, &o, &kept, &err), 0);
    assert_int_equal(checkpoint_load(path, wider, &p, &kept, &err), -1);
    assert_non_null(strstr(err.message, "\"channels\":\"16\""));
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_int_equal(fputc(0, file), 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(checkpoint_load(path, model, &o, &kept, &err), -1);
    assert_non_null(strstr(err.message, "after the last tensor"));
    for (long cut = size - 1; cut > 0; cut = cut > 5000 ? cut - 4999 : cut - 499) {
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(checkpoint_load(path, model, &o, &kept, &err), -1);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    adamw_close(&o);
    adamw_close(&p);
    gpt_close(model);
    gpt_close(wider);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backward__equals_finite_differences_in_every_tensor),
        cmocka_unit_test(test_backward__draws_the_dropout_masks_of_forward_again),
        cmocka_unit_test(test_backward__knows_the_gain_of_the_fault_switch),
        cmocka_unit_test(test_backward__adds_over_micro_steps_and_is_linear_in_the_loss_scale),
        cmocka_unit_test(test_loss__of_a_batch_with_all_targets_ignored_is_nan_and_the_gradient_zero),
        cmocka_unit_test(test_loss__ignored_targets_do_not_count),
        cmocka_unit_test(test_forward__a_token_without_embedding_makes_its_row_nan_and_touches_no_other_memory),
        cmocka_unit_test(test_forward__a_target_out_of_range_makes_the_loss_nan),
        cmocka_unit_test(test_forward__activation_gain_overflows_fp16_in_the_middle_block_and_not_fp32),
        cmocka_unit_test(test_model__positions_grow_along_the_dataflow),
        cmocka_unit_test(test_model__impossible_shapes_are_refused),
        cmocka_unit_test(test_optim__a_norm_that_is_nan_does_not_pass_the_clip),
        cmocka_unit_test(test_optim__learning_rate_warms_up_and_follows_half_a_cosine),
        cmocka_unit_test(test_optim__norms_and_biases_do_not_decay),
        cmocka_unit_test(test_train__loss_on_real_text_falls_in_every_precision),
        cmocka_unit_test(test_train__the_same_seed_gives_the_same_bits_and_another_seed_does_not),
        cmocka_unit_test(test_checkpoint__a_resumed_run_continues_to_the_same_bits),
        cmocka_unit_test(test_checkpoint__a_file_that_is_cut_longer_or_of_another_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
