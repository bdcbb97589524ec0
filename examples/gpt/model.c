/* model.c: names, shapes and memory of the model, and its first parameters. */
#include "model.h"
#include "ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters -------------------------------------------------------------------------------------------------------------- */

typedef struct block_row {
    const char *module, *name;
    int place;
    size_t rows, columns; /* in channels; columns 0: one dimension */
} block_row;

/* Places leave room for the activations that lie between the tensors; see program_build.c. */
static const block_row BLOCK_ROWS[BLOCK_TENSORS] = {
    {"ln_1", "weight", 0, 1, 0},      {"ln_1", "bias", 1, 1, 0},          {"attn", "c_attn.weight", 3, 3, 1},
    {"attn", "c_attn.bias", 4, 3, 0}, {"attn", "c_proj.weight", 8, 1, 1}, {"attn", "c_proj.bias", 9, 1, 0},
    {"ln_2", "weight", 12, 1, 0},     {"ln_2", "bias", 13, 1, 0},         {"mlp", "c_fc.weight", 15, 4, 1},
    {"mlp", "c_fc.bias", 16, 4, 0},   {"mlp", "c_proj.weight", 19, 1, 4}, {"mlp", "c_proj.bias", 20, 1, 0},
};

static void add_tensor(gpt_model *model, const char *module, const char *name, size_t place, size_t rows, size_t columns)
{
    gpt_tensor *t = &model->tensors[model->tensor_count++];
    snprintf(t->module, sizeof t->module, "%s", module);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->position = (int32_t)place;
    t->ndim = columns ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->offset = model->parameter_count;
    t->count = rows * (columns ? columns : 1);
    model->parameter_count += t->count;
}

static void list_tensors(gpt_model *model)
{
    const gpt_config *g = &model->config;
    size_t C = g->channels, last = GPT_PLACE_BLOCKS + g->layers * GPT_BLOCK_PLACES;
    add_tensor(model, "wte", "weight", 1, GPT_VOCAB, C);
    add_tensor(model, "wpe", "weight", 2, g->block, C);
    for (size_t l = 0; l < g->layers; l++) {
        for (size_t k = 0; k < BLOCK_TENSORS; k++) {
            const block_row *row = &BLOCK_ROWS[k];
            char module[24];
            snprintf(module, sizeof module, "h.%u.%s", (unsigned)l, row->module);
            add_tensor(model, module, row->name, GPT_PLACE_BLOCKS + l * GPT_BLOCK_PLACES + (size_t)row->place, row->rows * C,
                       row->columns * C);
        }
    }
    add_tensor(model, "ln_f", "weight", last, C, 0);
    add_tensor(model, "ln_f", "bias", last + 1, C, 0);
    add_tensor(model, "lm_head", "weight", last + 3, GPT_VOCAB, C);
}

/* GPT-2's start: normal with deviation 0.02, that of the two projections into the stream divided by
 * sqrt(2 L), biases 0, norms 1. */
static void draw_parameters(gpt_model *model)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const gpt_tensor *t = &model->tensors[i];
        float *p = model->parameters + t->offset;
        if (t->ndim == 1) {
            for (size_t k = 0; k < t->count; k++) p[k] = t->name[0] == 'w' ? 1.0f : 0.0f; /* "weight" of a norm, or a bias */
            continue;
        }
        rng_stream stream = {.seed = model->config.seed, .site = RNG_INIT, .step = (uint32_t)i};
        float deviation = 0.02f;
        if (t->name[2] == 'p' && t->name[0] == 'c') /* c_proj */
            deviation /= sqrtf(2.0f * (float)model->config.layers);
        rng_normal(&stream, p, t->count);
        for (size_t k = 0; k < t->count; k++) p[k] *= deviation;
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------ */

/* Called twice: first with memory NULL to count, then to hand out. Sixteen floats, a cache line, is what every array starts on. */
static float *take(float *memory, size_t *used, size_t count)
{
    float *at = memory ? memory + *used : NULL;
    *used += (count + 15) / 16 * 16;
    return at;
}

static gpt_run_shape whole_shape(const gpt_config *g)
{
    return (gpt_run_shape){
        .B = g->batch, .T = g->block, .C = g->channels, .NH = g->heads, .V = GPT_VOCAB, .whole = g->batch, .seed = g->seed};
}

static size_t scratch_needed(const gpt_model *model)
{
    const gpt_program *p = &model->program;
    gpt_run_shape shape = whole_shape(&model->config);
    size_t most = 1;
    for (int i = 0; i < p->op_count; i++) {
        size_t needed = gpt_op_scratch(&p->ops[i], &shape, p->values);
        most = needed > most ? needed : most;
    }
    return most;
}

/* SIZE_MAX: memory was short on the way. */
static size_t lay_out(gpt_model *model, float *memory)
{
    const gpt_config *g = &model->config;
    size_t used = 0, N = g->batch * g->block, P = model->parameter_count;
    model->parameters = take(memory, &used, P);
    model->weights = g->format == PRECISION_FP32 ? model->parameters : take(memory, &used, P);
    model->gradients = take(memory, &used, P);
    model->ones = take(memory, &used, N);
    model->first_positions = (int32_t *)(void *)take(memory, &used, N);
    model->scratch = take(memory, &used, scratch_needed(model));
    size_t values = gpt_lay_out_values(model, memory ? memory + used : NULL);
    return values == SIZE_MAX ? SIZE_MAX : used + values;
}

/* The activations in the order in which the program makes them. */
static int list_activations(gpt_model *model)
{
    const gpt_program *p = &model->program;
    model->activation_of = calloc((size_t)p->value_count, sizeof *model->activation_of);
    model->activations = calloc((size_t)p->value_count, sizeof *model->activations);
    if (!model->activation_of || !model->activations) return -1;
    for (int i = 0; i < p->value_count; i++) model->activation_of[i] = -1;
    for (int i = 0; i < p->op_count; i++) {
        for (int k = 0; k < p->ops[i].out_count; k++) {
            const gpt_value *v = &p->values[p->ops[i].out[k]];
            if (v->role != ROLE_ACTIVATION || v->internal) continue;
            model->activation_of[p->ops[i].out[k]] = (int)model->activation_count;
            gpt_activation *a = &model->activations[model->activation_count++];
            memcpy(a->module, v->module, sizeof a->module);
            memcpy(a->name, v->name, sizeof a->name);
            a->position = v->position;
            a->data = v->data;
            a->count = v->rows * v->columns;
            a->value = p->ops[i].out[k];
        }
    }
    return 0;
}

/* Values that the trainer knows by name. A fault leaves them where they are. */
static int find_values(gpt_model *model)
{
    const gpt_program *p = &model->program;
    int embedded = gpt_find_value(p, "", "embedded"), logits = gpt_find_value(p, "lm_head", "logits");
    model->tokens = gpt_find_value(p, "", "tokens");
    model->positions = gpt_find_value(p, "", "positions");
    model->key_mask = gpt_find_value(p, "", "key_mask");
    model->targets = gpt_find_value(p, "", "targets");
    model->loss_weights = gpt_find_value(p, "", "loss_weights");
    if (embedded < 0 || logits < 0 || p->values[logits].gradient < 0) return -1;
    model->embedded = p->values[embedded].data;
    model->logits = p->values[logits].data;
    model->d_logits = p->values[p->values[logits].gradient].data;
    return 0;
}

static int build(gpt_model *model)
{
    gpt_config *g = &model->config;
    model->tensors = calloc(5 + g->layers * BLOCK_TENSORS, sizeof *model->tensors);
    if (!model->tensors) return -1;
    list_tensors(model);
    if (!gpt_program_build(&model->program, g, model->tensors, model->tensor_count)) return -1;
    if (g->alter) g->alter(g->alter_ctx, &model->program, g);
    if (!gpt_program_sound(&model->program)) return -1;
    size_t floats = lay_out(model, NULL);
    if (floats == SIZE_MAX || posix_memalign((void **)&model->memory, 64, floats * sizeof *model->memory) != 0) {
        model->memory = NULL;
        return -1;
    }
    for (size_t i = 0; i < floats; i++) model->memory[i] = 0.0f;
    if (lay_out(model, model->memory) == SIZE_MAX || list_activations(model) != 0) return -1;
    return find_values(model);
}

gpt_model *gpt_open(const gpt_config *config)
{
    gpt_model *model = calloc(1, sizeof *model);
    if (!model) return NULL;
    model->config = *config;
    if (!config->layers || config->layers > GPT_LAYERS_MAX || !config->heads || !config->channels || !config->block ||
        !config->batch || config->channels % config->heads || build(model) != 0) {
        gpt_close(model);
        return NULL;
    }
    for (size_t i = 0; i < config->batch * config->block; i++) {
        model->ones[i] = 1.0f;
        model->first_positions[i] = (int32_t)(i % config->block);
    }
    draw_parameters(model);
    gpt_load_weights(model);
    return model;
}

void gpt_close(gpt_model *model)
{
    if (!model) return;
    free(model->tensors);
    free(model->activations);
    free(model->activation_of);
    gpt_program_release(&model->program);
    free(model->memory);
    free(model);
}

void gpt_load_weights(gpt_model *model)
{
    if (model->weights == model->parameters) return;
    for (size_t i = 0; i < model->parameter_count; i++) model->weights[i] = model->parameters[i];
    precision_round(model->config.format, model->weights, model->parameter_count);
}
