/* model_backward.c: from the gradient of the logits back to the embeddings; each step undoes one line of model_forward.c. */
#include "layers.h"
#include "model.h"

#include <string.h>

/* d_stream holds the gradient of the block's output on entry, that of its input on return. */
static void block_backward(gpt_model *model, size_t l, const float *stream, gpt_place place)
{
    const gpt_config *g = &model->config;
    const precision f = g->format;
    const size_t N = g->batch * g->block, C = g->channels;
    float *w = model->weights, *d = model->gradients;
    float *d_stream = model->d_stream, *d_branch = model->d_branch, *d_narrow = model->d_narrow; // (B,T,C)
    float *d_wide = model->d_wide, *d_hidden = model->d_hidden;                                  // (B,T,4C)
    const block_activations *a = &model->blocks[l];
    rng_stream drop_att = gpt_drop_stream(model, place, RNG_DROP_ATTENTION, l);
    rng_stream drop_attn_out = gpt_drop_stream(model, place, RNG_DROP_ATTENTION_OUT, l),
               drop_mlp_out = gpt_drop_stream(model, place, RNG_DROP_MLP_OUT, l);
    float gain = gpt_branch_gain(model, l, place);

    memcpy(d_branch, d_stream, N * C * sizeof *d_branch);
    dropout(&drop_mlp_out, 0, g->dropout, d_branch, N * C);
    if (gain != 1.0f)
        for (size_t i = 0; i < N * C; i++) d_branch[i] *= gain;
    precision_round(f, d_branch, N * C);
    linear_backward(f, d_wide, gpt_block_tensor(model, d, l, MLP_PROJ_WEIGHT), gpt_block_tensor(model, d, l, MLP_PROJ_BIAS),
                    d_branch, a->gelu, gpt_block_tensor(model, w, l, MLP_PROJ_WEIGHT), N, 4 * C, C);
    gelu_backward(f, d_hidden, d_wide, a->fc, N * 4 * C);
    linear_backward(f, d_narrow, gpt_block_tensor(model, d, l, C_FC_WEIGHT), gpt_block_tensor(model, d, l, C_FC_BIAS), d_hidden,
                    a->ln_2, gpt_block_tensor(model, w, l, C_FC_WEIGHT), N, C, 4 * C);
    layer_norm_backward(f, d_branch, gpt_block_tensor(model, d, l, LN_2_WEIGHT), gpt_block_tensor(model, d, l, LN_2_BIAS), d_narrow,
                        a->middle, gpt_block_tensor(model, w, l, LN_2_WEIGHT), a->ln_2_mean, a->ln_2_rstd, N, C);
    residual_backward(f, d_stream, d_branch, N * C);

    memcpy(d_branch, d_stream, N * C * sizeof *d_branch);
    dropout(&drop_attn_out, 0, g->dropout, d_branch, N * C);
    precision_round(f, d_branch, N * C);
    linear_backward(f, d_narrow, gpt_block_tensor(model, d, l, ATTN_PROJ_WEIGHT), gpt_block_tensor(model, d, l, ATTN_PROJ_BIAS),
                    d_branch, a->heads, gpt_block_tensor(model, w, l, ATTN_PROJ_WEIGHT), N, C, C);
    attention_backward(f, d_wide, d_narrow, a->att, a->qkv, (attention_shape){g->batch, g->block, C, g->heads}, g->dropout,
                       &drop_att,
                       model->scratch); // d_wide is (B,T,3C) here
    linear_backward(f, d_narrow, gpt_block_tensor(model, d, l, C_ATTN_WEIGHT), gpt_block_tensor(model, d, l, C_ATTN_BIAS), d_wide,
                    a->ln_1, gpt_block_tensor(model, w, l, C_ATTN_WEIGHT), N, C, 3 * C);
    layer_norm_backward(f, d_branch, gpt_block_tensor(model, d, l, LN_1_WEIGHT), gpt_block_tensor(model, d, l, LN_1_BIAS), d_narrow,
                        stream, gpt_block_tensor(model, w, l, LN_1_WEIGHT), a->ln_1_mean, a->ln_1_rstd, N, C);
    residual_backward(f, d_stream, d_branch, N * C);
}

void gpt_backward(gpt_model *model, gpt_input input, gpt_place place)
{
    const gpt_config *g = &model->config;
    const precision f = g->format;
    const size_t N = g->batch * g->block, C = g->channels;
    const gpt_tensor *t = model->tensors, *last = t + model->tensor_count;
    float *w = model->weights, *d = model->gradients;
    rng_stream drop_embedding = gpt_drop_stream(model, place, RNG_DROP_EMBEDDING, 0);

    linear_backward(f, model->d_narrow, d + last[-1].offset, NULL, model->d_logits, model->ln_f, w + last[-1].offset, N, C,
                    GPT_VOCAB);
    layer_norm_backward(f, model->d_stream, d + last[-3].offset, d + last[-2].offset, model->d_narrow,
                        model->blocks[g->layers - 1].out, w + last[-3].offset, model->ln_f_mean, model->ln_f_rstd, N, C);
    for (size_t l = g->layers; l-- > 0;) block_backward(model, l, l ? model->blocks[l - 1].out : model->embedded, place);
    dropout(&drop_embedding, 0, g->dropout, model->d_stream, N * C);
    precision_round(f, model->d_stream, N * C);
    embedding_backward(d + t[0].offset, d + t[1].offset, model->d_stream, input.tokens, g->batch, g->block, C, GPT_VOCAB);
}
