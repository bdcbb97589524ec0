/* model_forward.c: from tokens to the loss, in the order of the paper. */
#include "layers.h"
#include "model.h"

#include <math.h>
#include <string.h>

float gpt_branch_gain(const gpt_model *model, size_t layer, gpt_place place)
{
    if (layer != model->config.layers / 2 || model->config.activation_gain == 1.0f) return 1.0f;
    return (float)pow((double)model->config.activation_gain, (double)place.step);
}

static void seen(const gpt_model *model, size_t activation)
{
    if (model->watch) model->watch(model->watcher, activation, &model->activations[activation]);
}

static void seen_in_block(const gpt_model *model, size_t layer, block_activation which)
{
    seen(model, 1 + layer * BLOCK_ACTIVATIONS + (size_t)which);
}

static void block_forward(gpt_model *model, size_t l, const float *stream, gpt_place place)
{
    const gpt_config *g = &model->config;
    const precision f = g->format;
    const size_t N = g->batch * g->block, C = g->channels;
    float *w = model->weights;
    block_activations *a = &model->blocks[l];
    rng_stream drop_att = gpt_drop_stream(model, place, RNG_DROP_ATTENTION, l);
    rng_stream drop_attn_out = gpt_drop_stream(model, place, RNG_DROP_ATTENTION_OUT, l),
               drop_mlp_out = gpt_drop_stream(model, place, RNG_DROP_MLP_OUT, l);
    float gain = gpt_branch_gain(model, l, place);

    layer_norm_forward(f, a->ln_1, a->ln_1_mean, a->ln_1_rstd, stream, gpt_block_tensor(model, w, l, LN_1_WEIGHT),
                       gpt_block_tensor(model, w, l, LN_1_BIAS), N, C);
    seen_in_block(model, l, LN_1_OUT);
    linear_forward(f, a->qkv, a->ln_1, gpt_block_tensor(model, w, l, C_ATTN_WEIGHT), gpt_block_tensor(model, w, l, C_ATTN_BIAS), N,
                   C, 3 * C, model->scratch);
    seen_in_block(model, l, QKV);
    attention_forward(f, a->heads, a->att, a->qkv, (attention_shape){g->batch, g->block, C, g->heads}, g->dropout, &drop_att,
                      model->scratch);
    seen_in_block(model, l, ATT);
    seen_in_block(model, l, HEADS);
    linear_forward(f, a->attn_out, a->heads, gpt_block_tensor(model, w, l, ATTN_PROJ_WEIGHT),
                   gpt_block_tensor(model, w, l, ATTN_PROJ_BIAS), N, C, C, model->scratch);
    dropout(&drop_attn_out, 0, g->dropout, a->attn_out, N * C);
    precision_round(f, a->attn_out, N * C);
    seen_in_block(model, l, ATTN_OUT);
    residual_forward(f, a->middle, stream, a->attn_out, N * C);
    seen_in_block(model, l, MIDDLE);

    layer_norm_forward(f, a->ln_2, a->ln_2_mean, a->ln_2_rstd, a->middle, gpt_block_tensor(model, w, l, LN_2_WEIGHT),
                       gpt_block_tensor(model, w, l, LN_2_BIAS), N, C);
    seen_in_block(model, l, LN_2_OUT);
    linear_forward(f, a->fc, a->ln_2, gpt_block_tensor(model, w, l, C_FC_WEIGHT), gpt_block_tensor(model, w, l, C_FC_BIAS), N, C,
                   4 * C, model->scratch);
    seen_in_block(model, l, FC);
    gelu_forward(f, a->gelu, a->fc, N * 4 * C);
    seen_in_block(model, l, GELU);
    linear_forward(f, a->mlp_out, a->gelu, gpt_block_tensor(model, w, l, MLP_PROJ_WEIGHT),
                   gpt_block_tensor(model, w, l, MLP_PROJ_BIAS), N, 4 * C, C, model->scratch);
    if (gain != 1.0f)
        for (size_t i = 0; i < N * C; i++) a->mlp_out[i] *= gain;
    dropout(&drop_mlp_out, 0, g->dropout, a->mlp_out, N * C);
    precision_round(f, a->mlp_out, N * C);
    seen_in_block(model, l, MLP_OUT);
    residual_forward(f, a->out, a->middle, a->mlp_out, N * C);
    seen_in_block(model, l, BLOCK_OUT);
}

void gpt_forward(gpt_model *model, gpt_input input, gpt_place place, double d_loss)
{
    const gpt_config *g = &model->config;
    const precision f = g->format;
    const size_t N = g->batch * g->block, C = g->channels;
    const gpt_tensor *t = model->tensors, *last = t + model->tensor_count;
    float *w = model->weights;
    rng_stream drop_embedding = gpt_drop_stream(model, place, RNG_DROP_EMBEDDING, 0);

    embedding_forward(f, model->embedded, input.tokens, w + t[0].offset, w + t[1].offset, g->batch, g->block, C, GPT_VOCAB);
    dropout(&drop_embedding, 0, g->dropout, model->embedded, N * C);
    precision_round(f, model->embedded, N * C);
    seen(model, 0);
    const float *stream = model->embedded; // (B,T,C)
    for (size_t l = 0; l < g->layers; l++) {
        block_forward(model, l, stream, place);
        stream = model->blocks[l].out;
    }
    layer_norm_forward(f, model->ln_f, model->ln_f_mean, model->ln_f_rstd, stream, w + last[-3].offset, w + last[-2].offset, N, C);
    seen(model, model->activation_count - 2);
    linear_forward(f, model->logits, model->ln_f, w + last[-1].offset, NULL, N, C, GPT_VOCAB, model->scratch);
    seen(model, model->activation_count - 1);
    model->loss = cross_entropy(f, model->d_logits, model->logits, (loss_targets){input.targets, input.weights, GPT_IGNORE}, d_loss,
                                N, GPT_VOCAB);
}
