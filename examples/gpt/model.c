/* model.c: names, shapes and memory of the model, and its first parameters. */
#include "model.h"
#include "layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- parameters -------------------------------------------------------------------------------------------------------------- */

/* Places along the dataflow: tokens 0, wte and wpe 1 and 2, their sum 3, then BLOCK_PLACES a block. */
enum { PLACE_EMBEDDED = 3, PLACE_BLOCKS = 4, BLOCK_PLACES = 24 };

typedef struct block_row {
    const char *module, *name;
    int place;
    size_t rows, columns; /* in channels; columns 0: one dimension */
} block_row;

/* Places leave room for the activations that lie between the tensors; see list_activations. */
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
    size_t C = g->channels, last = PLACE_BLOCKS + g->layers * BLOCK_PLACES;
    add_tensor(model, "wte", "weight", 1, GPT_VOCAB, C);
    add_tensor(model, "wpe", "weight", 2, g->block, C);
    for (size_t l = 0; l < g->layers; l++) {
        for (size_t k = 0; k < BLOCK_TENSORS; k++) {
            const block_row *row = &BLOCK_ROWS[k];
            char module[24];
            snprintf(module, sizeof module, "h.%u.%s", (unsigned)l, row->module);
            add_tensor(model, module, row->name, PLACE_BLOCKS + l * BLOCK_PLACES + (size_t)row->place, row->rows * C,
                       row->columns * C);
        }
    }
    add_tensor(model, "ln_f", "weight", last, C, 0);
    add_tensor(model, "ln_f", "bias", last + 1, C, 0);
    add_tensor(model, "lm_head", "weight", last + 3, GPT_VOCAB, C);
}

float *gpt_block_tensor(const gpt_model *model, float *flat, size_t layer, block_tensor which)
{
    return flat + model->tensors[2 + layer * BLOCK_TENSORS + (size_t)which].offset;
}

rng_stream gpt_drop_stream(const gpt_model *model, gpt_place place, rng_site site, size_t layer)
{
    return (rng_stream){model->config.seed,  site, (uint32_t)layer, (uint32_t)place.micro_step, (uint32_t)place.step,
                        (uint32_t)place.rank};
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

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t lay_out(gpt_model *model, float *memory)
{
    const gpt_config *g = &model->config;
    size_t used = 0, N = g->batch * g->block, C = g->channels, P = model->parameter_count;
    model->parameters = take(memory, &used, P);
    model->weights = g->format == PRECISION_FP32 ? model->parameters : take(memory, &used, P);
    model->gradients = take(memory, &used, P);
    model->embedded = take(memory, &used, N * C);
    for (size_t l = 0; l < g->layers; l++) {
        block_activations *a = &model->blocks[l];
        *a = (block_activations){
            .ln_1 = take(memory, &used, N * C),
            .ln_1_mean = take(memory, &used, N),
            .ln_1_rstd = take(memory, &used, N),
            .qkv = take(memory, &used, N * 3 * C),
            .att = take(memory, &used, N * g->heads * g->block),
            .heads = take(memory, &used, N * C),
            .attn_out = take(memory, &used, N * C),
            .middle = take(memory, &used, N * C),
            .ln_2 = take(memory, &used, N * C),
            .ln_2_mean = take(memory, &used, N),
            .ln_2_rstd = take(memory, &used, N),
            .fc = take(memory, &used, N * 4 * C),
            .gelu = take(memory, &used, N * 4 * C),
            .mlp_out = take(memory, &used, N * C),
            .out = take(memory, &used, N * C),
        };
    }
    model->ln_f = take(memory, &used, N * C);
    model->ln_f_mean = take(memory, &used, N);
    model->ln_f_rstd = take(memory, &used, N);
    model->logits = take(memory, &used, N * GPT_VOCAB);
    model->d_logits = take(memory, &used, N * GPT_VOCAB);
    model->d_stream = take(memory, &used, N * C);
    model->d_branch = take(memory, &used, N * C);
    model->d_narrow = take(memory, &used, N * C);
    model->d_wide = take(memory, &used, N * 4 * C);
    model->d_hidden = take(memory, &used, N * 4 * C);
    model->scratch = take(memory, &used, larger(larger(4 * C * C, GPT_VOCAB * C), attention_scratch(g->block, C / g->heads)));
    return used;
}

static void add_activation(gpt_model *model, const char *module, const char *name, size_t place, float *data, size_t count)
{
    gpt_activation *a = &model->activations[model->activation_count++];
    snprintf(a->module, sizeof a->module, "%s", module);
    snprintf(a->name, sizeof a->name, "%s", name);
    a->position = (int32_t)place;
    a->data = data;
    a->count = count;
}

static void list_activations(gpt_model *model)
{
    const gpt_config *g = &model->config;
    size_t N = g->batch * g->block, C = g->channels, last = PLACE_BLOCKS + g->layers * BLOCK_PLACES;
    add_activation(model, "", "embedded", PLACE_EMBEDDED, model->embedded, N * C);
    for (size_t l = 0; l < g->layers; l++) {
        const block_activations *a = &model->blocks[l];
        const struct {
            const char *module, *name;
            int place;
            float *data;
            size_t count;
        } rows[BLOCK_ACTIVATIONS] = {
            {".ln_1", "output", 2, a->ln_1, N * C},
            {".attn", "qkv", 5, a->qkv, N * 3 * C},
            {".attn", "probabilities", 6, a->att, N * g->heads * g->block},
            {".attn", "heads", 7, a->heads, N * C},
            {".attn", "output", 10, a->attn_out, N * C},
            {"", "middle", 11, a->middle, N * C},
            {".ln_2", "output", 14, a->ln_2, N * C},
            {".mlp", "c_fc", 17, a->fc, N * 4 * C},
            {".mlp", "gelu", 18, a->gelu, N * 4 * C},
            {".mlp", "output", 21, a->mlp_out, N * C},
            {"", "output", 22, a->out, N * C},
        };
        char module[24];
        for (size_t k = 0; k < BLOCK_ACTIVATIONS; k++) {
            snprintf(module, sizeof module, "h.%u%s", (unsigned)l, rows[k].module);
            add_activation(model, module, rows[k].name, PLACE_BLOCKS + l * BLOCK_PLACES + (size_t)rows[k].place, rows[k].data,
                           rows[k].count);
        }
    }
    add_activation(model, "ln_f", "output", last + 2, model->ln_f, N * C);
    add_activation(model, "lm_head", "logits", last + 4, model->logits, N * GPT_VOCAB);
}

gpt_model *gpt_open(const gpt_config *config)
{
    gpt_model *model = calloc(1, sizeof *model);
    if (!model) return NULL;
    model->config = *config;
    if (!config->layers || config->layers > GPT_LAYERS_MAX || !config->heads || !config->channels || !config->block ||
        !config->batch || config->channels % config->heads)
        goto failed;
    model->tensors = calloc(5 + config->layers * BLOCK_TENSORS, sizeof *model->tensors);
    model->blocks = calloc(config->layers, sizeof *model->blocks);
    model->activations = calloc(3 + config->layers * BLOCK_ACTIVATIONS, sizeof *model->activations);
    if (!model->tensors || !model->blocks || !model->activations) goto failed;
    list_tensors(model);
    size_t floats = lay_out(model, NULL);
    if (posix_memalign((void **)&model->memory, 64, floats * sizeof *model->memory) != 0) {
        model->memory = NULL;
        goto failed;
    }
    for (size_t i = 0; i < floats; i++) model->memory[i] = 0.0f;
    lay_out(model, model->memory);
    list_activations(model);
    draw_parameters(model);
    gpt_load_weights(model);
    return model;
failed:
    gpt_close(model);
    return NULL;
}

void gpt_close(gpt_model *model)
{
    if (!model) return;
    free(model->tensors);
    free(model->blocks);
    free(model->activations);
    free(model->memory);
    free(model);
}

void gpt_load_weights(gpt_model *model)
{
    if (model->weights == model->parameters) return;
    for (size_t i = 0; i < model->parameter_count; i++) model->weights[i] = model->parameters[i];
    precision_round(model->config.format, model->weights, model->parameter_count);
}
