/*
 * program_backward.c: the backward half: each operator undoes one of forward, from the loss to the embeddings. A sum hands its
 * gradient on to what it sums without an operator; where the stream was read twice, its two gradients are added.
 */
#include "program_build.h"

#include <stdio.h>

/* A new value for the gradient of another, "d_NAME". */
static int gradient_value(builder *b, int of, const char *module, const char *name)
{
    int made = gpt_value_like(b->program, of, module, name);
    if (made < 0) return -1;
    b->program->values[made].role = ROLE_GRADIENT;
    b->program->values[made].mask = false;
    return made;
}

static int gradient_of(builder *b, int value)
{
    char name[GPT_NAME_MAX];
    if (value < 0) return -1;
    snprintf(name, sizeof name, "d_%.*s", GPT_NAME_MAX - 3, b->program->values[value].name);
    int made = gradient_value(b, value, b->program->values[value].module, name);
    b->program->values[value].gradient = made;
    return made;
}

/* What the micro-step adds to the gradient of a parameter. */
static int parameter_gradient(builder *b, int parameter)
{
    char name[GPT_NAME_MAX];
    if (b->program->failed) return -1;
    gpt_value value = b->program->values[parameter];
    snprintf(name, sizeof name, "grad.%.*s", GPT_NAME_MAX - 6, value.name);
    snprintf(value.name, sizeof value.name, "%s", name);
    value.role = ROLE_PARAMETER_GRADIENT;
    value.format = PRECISION_FP32;
    value.internal = true;
    int made = gpt_add_value(b->program, &value);
    b->program->values[parameter].gradient = made;
    return made;
}

static int gradient_known(const builder *b, int value)
{
    return value < 0 ? -1 : b->program->values[value].gradient;
}

static void share_gradient(builder *b, int value, int gradient)
{
    if (value >= 0) b->program->values[value].gradient = gradient;
}

/* Undoing what made `of`. */
static gpt_op back(gpt_op op, int of)
{
    op.backward = true;
    op.of = of;
    return op;
}

static void undo_dropout(builder *b, int value, int dropped, rng_site site, size_t layer)
{
    if (dropped == value || b->program->failed) return;
    const char *module = b->program->values[dropped].module;
    gpt_op op = build_dropout(b, back(GPT_OP(OP_DROPOUT_BACKWARD, module, "dropout_backward"), dropped), site, layer);
    int d_value = gradient_of(b, value);
    build_op(b, op, BUILD_LIST(d_value), BUILD_LIST(gradient_known(b, dropped)));
}

static void undo_linear(builder *b, const char *module, int in, int out, int weight, int bias)
{
    gpt_op op = back(GPT_OP(OP_LINEAR_BACKWARD, module, "linear_backward"), out);
    int d_out = gradient_known(b, out), d_in = gradient_of(b, in), d_weight = parameter_gradient(b, weight);
    int d_bias = bias < 0 ? -1 : parameter_gradient(b, bias);
    if (bias < 0) build_op(b, op, BUILD_LIST(d_in, d_weight), BUILD_LIST(d_out, in, weight));
    else build_op(b, op, BUILD_LIST(d_in, d_weight, d_bias), BUILD_LIST(d_out, in, weight));
}

/* d_in: the value that receives the gradient of the norm's input. */
static void undo_norm(builder *b, const norm_values *n, int d_in)
{
    int d_weight = parameter_gradient(b, n->weight), d_bias = parameter_gradient(b, n->bias);
    build_op(b, back(GPT_OP(OP_LAYER_NORM_BACKWARD, n->module, "layer_norm_backward"), n->out), BUILD_LIST(d_in, d_weight, d_bias),
             BUILD_LIST(gradient_known(b, n->out), n->in, n->mean, n->rstd, n->weight));
}

/* The stream was read by a norm and by the sum behind it: its gradient is that of the sum and that through the norm. */
static void join_stream(builder *b, const char *module, const norm_values *n, int sum)
{
    int through = gradient_value(b, n->in, n->module, "d_input");
    undo_norm(b, n, through);
    int d_sum = gradient_known(b, sum), d_in = gradient_of(b, n->in);
    build_op(b, back(GPT_OP(OP_ADD, module, "add_backward"), sum), BUILD_LIST(d_in), BUILD_LIST(d_sum, through));
}

static void undo_loss(builder *b)
{
    gpt_program *p = b->program;
    share_gradient(b, p->loss, p->loss_seed);
    build_op(b, back(GPT_OP(OP_DIV_BACKWARD, "loss", "div_backward"), p->loss), BUILD_LIST(gradient_of(b, b->weighted_sum)),
             BUILD_LIST(p->loss_seed, b->weighted_sum, b->weight_sum));
    build_op(b, back(GPT_OP(OP_SUM_BACKWARD, "loss", "sum_backward"), b->weighted_sum), BUILD_LIST(gradient_of(b, b->weighted)),
             BUILD_LIST(gradient_known(b, b->weighted_sum), b->weighted));
    build_op(b, back(GPT_OP(OP_MUL_BACKWARD, "loss", "mul_backward"), b->weighted), BUILD_LIST(gradient_of(b, b->nll)),
             BUILD_LIST(gradient_known(b, b->weighted), b->nll, b->valid_weights));
    build_op(b, back(GPT_OP(OP_NLL_BACKWARD, "loss", "nll_loss_backward"), b->nll),
             BUILD_LIST(gradient_of(b, b->log_probabilities)), BUILD_LIST(gradient_known(b, b->nll), b->targets));
    build_op(b, back(GPT_OP(OP_LOG_SOFTMAX_BACKWARD, "loss", "log_softmax_backward"), b->log_probabilities),
             BUILD_LIST(gradient_of(b, b->logits)), BUILD_LIST(gradient_known(b, b->log_probabilities), b->log_probabilities));
}

static void undo_mlp(builder *b, const block_values *v, size_t l)
{
    undo_dropout(b, v->mlp_gained, v->mlp_out, RNG_DROP_MLP_OUT, l);
    if (v->mlp_gained != v->mlp_projected) {
        int d_gained = gradient_known(b, v->mlp_gained), d_projected = gradient_of(b, v->mlp_projected);
        build_op(b, build_gain(b, back(GPT_OP(OP_MUL_NUMBER, v->mlp, "mul_backward"), v->mlp_gained)), BUILD_LIST(d_projected),
                 BUILD_LIST(d_gained));
    }
    undo_linear(b, v->mlp, v->gelu, v->mlp_projected, build_block_tensor(b, l, MLP_PROJ_WEIGHT),
                build_block_tensor(b, l, MLP_PROJ_BIAS));
    build_op(b, back(GPT_OP(OP_GELU_BACKWARD, v->mlp, "gelu_backward"), v->gelu), BUILD_LIST(gradient_of(b, v->fc)),
             BUILD_LIST(gradient_known(b, v->gelu), v->fc));
    undo_linear(b, v->mlp, v->ln_2.out, v->fc, build_block_tensor(b, l, C_FC_WEIGHT), build_block_tensor(b, l, C_FC_BIAS));
}

/* The gradient of qkv comes in two parts, which are joined. */
static void undo_scores_and_heads(builder *b, const block_values *v, size_t l)
{
    gpt_program *p = b->program;
    int d_value = gradient_value(b, v->heads, v->attn, "d_value"),
        d_query_key = gradient_value(b, v->heads, v->attn, "d_query_key");
    if (p->failed) return;
    p->values[d_query_key].columns = p->values[d_query_key].shape[2] = 2 * b->config->channels;
    build_op(b, back(GPT_OP(OP_HEADS_BACKWARD, v->attn, "matmul_backward"), v->heads),
             BUILD_LIST(gradient_of(b, v->dropped), d_value), BUILD_LIST(gradient_known(b, v->heads), v->dropped, v->qkv));
    undo_dropout(b, v->probabilities, v->dropped, RNG_DROP_ATTENTION, l);
    build_op(b, back(GPT_OP(OP_SOFTMAX_BACKWARD, v->attn, "softmax_backward"), v->probabilities),
             BUILD_LIST(gradient_of(b, v->masked)), BUILD_LIST(gradient_known(b, v->probabilities), v->probabilities));
    build_op(b, back(GPT_OP(OP_MASK_BACKWARD, v->attn, "masked_fill_backward"), v->masked), BUILD_LIST(gradient_of(b, v->scaled)),
             BUILD_LIST(gradient_known(b, v->masked), b->key_mask));
    gpt_op scale = build_numbered(GPT_OP(OP_MUL_NUMBER, v->attn, "mul_backward"), build_attention_scale(b), "scale");
    build_op(b, back(scale, v->scaled), BUILD_LIST(gradient_of(b, v->scores)), BUILD_LIST(gradient_known(b, v->scaled)));
    build_op(b, back(GPT_OP(OP_SCORES_BACKWARD, v->attn, "matmul_backward"), v->scores), BUILD_LIST(d_query_key),
             BUILD_LIST(gradient_known(b, v->scores), v->qkv));
    build_op(b, back(GPT_OP(OP_JOIN, v->attn, "cat"), -1), BUILD_LIST(gradient_of(b, v->qkv)), BUILD_LIST(d_query_key, d_value));
}

static void undo_attention(builder *b, const block_values *v, size_t l)
{
    undo_dropout(b, v->attn_projected, v->attn_out, RNG_DROP_ATTENTION_OUT, l);
    undo_linear(b, v->attn, v->heads, v->attn_projected, build_block_tensor(b, l, ATTN_PROJ_WEIGHT),
                build_block_tensor(b, l, ATTN_PROJ_BIAS));
    undo_scores_and_heads(b, v, l);
    undo_linear(b, v->attn, v->ln_1.out, v->qkv, build_block_tensor(b, l, C_ATTN_WEIGHT), build_block_tensor(b, l, C_ATTN_BIAS));
}

static void undo_block(builder *b, size_t l)
{
    const block_values *v = &b->blocks[l];
    share_gradient(b, v->mlp_out, gradient_known(b, v->out));
    undo_mlp(b, v, l);
    join_stream(b, v->whole, &v->ln_2, v->out);
    share_gradient(b, v->attn_out, gradient_known(b, v->middle));
    undo_attention(b, v, l);
    join_stream(b, v->whole, &v->ln_1, v->middle);
}

static void undo_embedding(builder *b)
{
    undo_dropout(b, b->summed, b->embedded, RNG_DROP_EMBEDDING, 0);
    int d_summed = gradient_known(b, b->summed);
    share_gradient(b, b->token_rows, d_summed);
    share_gradient(b, b->position_rows, d_summed);
    build_op(b, back(GPT_OP(OP_EMBEDDING_BACKWARD, "wte", "embedding_backward"), b->token_rows),
             BUILD_LIST(parameter_gradient(b, b->first_parameter)), BUILD_LIST(d_summed, b->tokens));
    build_op(b, back(GPT_OP(OP_EMBEDDING_BACKWARD, "wpe", "embedding_backward"), b->position_rows),
             BUILD_LIST(parameter_gradient(b, b->first_parameter + 1)), BUILD_LIST(d_summed, b->positions));
}

void build_backward(builder *b)
{
    undo_loss(b);
    undo_linear(b, "lm_head", b->ln_f.out, b->logits, build_last_tensor(b, 1), -1);
    undo_norm(b, &b->ln_f, gradient_of(b, b->ln_f.in));
    for (size_t l = b->config->layers; l-- > 0 && !b->program->failed;) undo_block(b, l);
    if (!b->program->failed) undo_embedding(b);
}
