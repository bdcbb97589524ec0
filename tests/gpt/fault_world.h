/*
 * fault_world.h: a model with faults on one rank, trained for two steps and then looked at value by value. For tests; functions are
 * static, and one that includes this uses all of them.
 */
#ifndef TESTS_FAULT_WORLD_H
#define TESTS_FAULT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "faults.h"
#include "model.h"
#include "optim.h"
#include "reference.h"

enum { B = 2, T = 32, STEP = 3, SEEDS = 3, VALUES_MAX = 1024, ROWS = B * T };

/* ---- looking ----------------------------------------------------------------------------------------------------------------- */

typedef enum health { GOOD, NEGATIVE_INF, BAD } health;

/* What was seen of one micro-step. */
typedef struct sight {
    health of[VALUES_MAX];
    int made_by[VALUES_MAX]; /* operator, -1: there before */
    int parameter_gradients[VALUES_MAX], gradient_count;
    const char *rule[VALUES_MAX]; /* of a value that is bad although its operator read good ones: by the operator in FP64 */
} sight;

static health look(const gpt_value *v, size_t count)
{
    const float *x = v->data;
    health found = GOOD;
    for (size_t i = 0; !v->integers && i < count; i++) {
        uint32_t bits = float_bits(x[i]);
        if ((bits & 0x7fffffffu) < 0x7f800000u) continue;
        if (bits != 0xff800000u) return BAD;
        found = NEGATIVE_INF;
    }
    return found;
}

static bool is_bad(const sight *s, int value)
{
    return s->of[value] == BAD;
}

static double *widened(const gpt_value *v, size_t count)
{
    double *wide = calloc(count, sizeof *wide);
    assert_non_null(wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = v->integers ? (double)((const int32_t *)v->data)[i] : (double)((const float *)v->data)[i];
    return wide;
}

/*
 * Where FP64 has a finite number: beyond the format it is the range that is to blame, within it the rounding. Where it has none,
 * the operator was asked for what does not exist, by its own formula or because of what was rounded before.
 */
static const char *rule_of(const gpt_value *made, const double *exact, size_t count)
{
    const float *x = made->data;
    bool range = false, rounding = false;
    for (size_t i = 0; i < count; i++) {
        if ((float_bits(x[i]) & 0x7fffffffu) < 0x7f800000u) continue;
        if (reference_is_bad(exact[i])) return "domain";
        if (exact[i] > (double)precision_max(made->format) || exact[i] < -(double)precision_max(made->format)) range = true;
        else rounding = true;
    }
    return range ? "range" : rounding ? "rounding" : "nothing";
}

static void judge(sight *s, const gpt_model *model, const gpt_op *op)
{
    const gpt_value *values = model->program.values;
    double *in[GPT_IN_MAX], *out[GPT_OUT_MAX];
    uint64_t in_counts[GPT_IN_MAX], out_counts[GPT_OUT_MAX];
    for (int k = 0; k < op->in_count; k++) {
        in_counts[k] = gpt_value_count(&values[op->in[k]], &model->shape);
        in[k] = widened(&values[op->in[k]], in_counts[k]);
    }
    for (int k = 0; k < op->out_count; k++) {
        out_counts[k] = gpt_value_count(&values[op->out[k]], &model->shape);
        out[k] = calloc(out_counts[k], sizeof *out[k]);
        assert_non_null(out[k]);
    }
    double number = gpt_op_number(op, model->shape.place);
    assert_int_equal(reference_run(op, number, &model->shape, values, (const double *const *)in, in_counts, out, out_counts), 0);
    for (int k = 0; k < op->out_count; k++) s->rule[op->out[k]] = rule_of(&values[op->out[k]], out[k], out_counts[k]);
    for (int k = 0; k < op->in_count; k++) free(in[k]);
    for (int k = 0; k < op->out_count; k++) free(out[k]);
}

static void hear(void *listener, const gpt_model *model, int index)
{
    sight *s = listener;
    const gpt_op *op = &model->program.ops[index];
    bool reads = false, makes = false;
    for (int k = 0; k < op->in_count; k++) reads |= is_bad(s, op->in[k]);
    for (int k = 0; k < op->out_count; k++) {
        const gpt_value *v = &model->program.values[op->out[k]];
        health seen = look(v, gpt_value_count(v, &model->shape));
        /* A mask of -Inf alone is meant, where what made it read good values only. */
        if (seen == NEGATIVE_INF) seen = v->mask && !reads ? GOOD : BAD;
        s->of[op->out[k]] = seen;
        s->made_by[op->out[k]] = index;
        makes |= seen == BAD;
        if (v->role == ROLE_PARAMETER_GRADIENT) s->parameter_gradients[s->gradient_count++] = op->out[k];
    }
    if (makes && !reads) judge(s, model, op);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------------ */

typedef struct batch {
    int32_t tokens[ROWS], targets[ROWS], positions[ROWS];
    float weights[ROWS], key_mask[ROWS];
} batch;

typedef struct world {
    faults faults;
    gpt_model *model;
    adamw optimizer;
    batch batch;
    sight sight;
    double scale;
    uint64_t seed;
} world;

/* All that is wrong is told, not the first alone: the catalogue is long. */
static int mistakes;

static void mistake(const world *w, const char *format, ...)
{
    va_list list;
    char sentence[512];
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    print_error("%s, seed %llu: %s\n", w->faults.of[0].row->name, (unsigned long long)w->seed, sentence);
    mistakes++;
}

static uint64_t first_seed(void)
{
    const char *text = getenv("FB_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

static void draw(world *w, int64_t step)
{
    static const char TEXT[] = "the quick brown fox jumps over the lazy dog and then sleeps in the sun ";
    rng_stream stream = {.seed = w->seed, .site = RNG_DATA, .step = (uint32_t)step};
    uint32_t words[B];
    rng_draw(&stream, 0, words, B);
    for (size_t i = 0; i < ROWS; i++) {
        size_t at = words[i / T] + i % T;
        w->batch.tokens[i] = (unsigned char)TEXT[at % (sizeof TEXT - 1)];
        w->batch.targets[i] = (unsigned char)TEXT[(at + 1) % (sizeof TEXT - 1)];
        w->batch.positions[i] = (int32_t)(i % T);
        w->batch.weights[i] = w->batch.key_mask[i] = 1.0f;
    }
    fault_batch drawn = {B, T, w->batch.tokens, w->batch.targets, w->batch.positions, w->batch.weights, w->batch.key_mask};
    faults_batch(&w->faults, (gpt_place){step, 0, 1}, &drawn);
}

/* Rows first .. first + rows - 1 of the batch. */
static void run(world *w, gpt_model *model, int64_t step, size_t first, size_t rows)
{
    uint32_t ids[B];
    size_t at = first * T;
    gpt_place place = {step, 0, 1};
    for (size_t r = 0; r < rows; r++) ids[r] = (uint32_t)(first + r);
    gpt_input input = {.tokens = w->batch.tokens + at,
                       .targets = w->batch.targets + at,
                       .weights = w->batch.weights + at,
                       .key_mask = w->batch.key_mask + at,
                       .positions = w->batch.positions + at,
                       .rows = rows,
                       .row_ids = ids};
    memset(&w->sight, 0, sizeof w->sight);
    memset(model->gradients, 0, model->parameter_count * sizeof *model->gradients);
    faults_buffers(&w->faults, model, place);
    gpt_load_weights(model);
    for (int i = 0; i < model->program.value_count; i++) {
        const gpt_value *v = &model->program.values[i];
        bool there = v->role == ROLE_PARAMETER || v->role == ROLE_BUFFER || v->role == ROLE_SCALAR;
        w->sight.made_by[i] = -1;
        if (there && i != model->program.loss_seed && look(v, v->rows * v->columns) != GOOD) w->sight.of[i] = BAD;
    }
    for (size_t i = 0; i < rows * T; i++)
        if ((float_bits(w->batch.weights[at + i]) & 0x7fffffffu) >= 0x7f800000u) w->sight.of[model->loss_weights] = BAD;
    model->heard = hear;
    model->listener = &w->sight;
    gpt_forward(model, input, place, w->scale);
    gpt_backward(model, input, place);
}

static bool found(const world *w, const gpt_model *model)
{
    if (is_bad(&w->sight, model->program.loss)) return true;
    for (int i = 0; i < w->sight.gradient_count; i++)
        if (is_bad(&w->sight, w->sight.parameter_gradients[i])) return true;
    return false;
}

/* In the format that the fault's options ask for, unless another is given. */
static gpt_model *open_model(world *w, const char *options, precision format)
{
    gpt_config config = {.layers = 4,
                         .heads = 4,
                         .channels = 64,
                         .block = T,
                         .batch = B,
                         .activation_gain = 1.0f,
                         .format = format,
                         .seed = w->seed,
                         .alter = faults_alter,
                         .alter_ctx = &w->faults};
    const char *scale = strstr(options, "--loss-scale ");
    w->scale = format != PRECISION_FP16 ? 1.0 : scale ? strtod(scale + 13, NULL) : 65536.0;
    gpt_model *model = gpt_open(&config);
    assert_non_null(model);
    if (model && model->program.value_count > VALUES_MAX) fail_msg("%d values", model->program.value_count);
    return model;
}

static precision format_of(const char *options)
{
    if (strstr(options, "fp16")) return PRECISION_FP16;
    return strstr(options, "bf16") ? PRECISION_BF16 : PRECISION_FP32;
}

/* Trained for two steps, as an altered program has to bear, and in the third step. */
static void open_world(world *w, const fault_row *row, const char *keys, uint64_t seed)
{
    char spec[96], message[256];
    memset(w, 0, sizeof *w);
    w->seed = seed;
    snprintf(spec, sizeof spec, "%s@step=%d,rank=1%s", row->name, STEP, keys);
    if (faults_read(&w->faults, spec, message, sizeof message) != 0) fail_msg("%s", message);
    w->model = open_model(w, row->options, format_of(row->options));
    w->optimizer = (adamw){.learning_rate_max = 2e-3,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .warmup_steps = 20,
                           .decay_steps = 100};
    assert_int_equal(adamw_open(&w->optimizer, w->model->parameter_count), 0);
    for (int64_t step = 1; step < STEP; step++) {
        draw(w, step);
        run(w, w->model, step, 0, B);
        if (found(w, w->model)) mistake(w, "it shows at step %d already", (int)step);
        for (size_t i = 0; i < w->model->parameter_count; i++) w->model->gradients[i] /= (float)w->scale;
        adamw_update(&w->optimizer, w->model, 2e-4, 1.0);
    }
    draw(w, STEP);
}

static void close_world(world *w)
{
    adamw_close(&w->optimizer);
    gpt_close(w->model);
}

#endif
