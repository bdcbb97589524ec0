/* program_build.c: the forward half of the model, one operator after the other, in the order of the paper. */
#include "program_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what both halves use ---------------------------------------------------------------------------------------------------- */

int build_block_tensor(const builder *b, size_t layer, block_tensor which)
{
    return b->first_parameter + (int)(2 + layer * BLOCK_TENSORS + (size_t)which);
}

int build_last_tensor(const builder *b, size_t from_end)
{
    return b->first_parameter + (int)(b->tensor_count - from_end);
}

void build_op(builder *b, gpt_op op, int out_count, const int *out, int in_count, const int *in)
{
    op.in_count = in_count;
    op.out_count = out_count;
    for (int i = 0; i < in_count; i++) op.in[i] = in[i];
    for (int i = 0; i < out_count; i++) op.out[i] = out[i];
    gpt_append_op(b->program, &op);
}

gpt_op build_numbered(gpt_op op, double x, const char *x_name)
{
    op.x = x;
    op.x_name = x_name;
    return op;
}

gpt_op build_dropout(const builder *b, gpt_op op, rng_site site, size_t layer)
{
    op.site = site;
    op.layer = (uint32_t)layer;
    return build_numbered(op, (double)b->config->dropout, "probability");
}

double build_attention_scale(const builder *b)
{
    size_t HS = b->config->channels / b->config->heads;
    return 1.0 / sqrt((double)HS);
}

gpt_op build_gain(const builder *b, gpt_op op)
{
    op.grows = true;
    return build_numbered(op, (double)b->config->activation_gain, "gain");
}

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

/* One row a token: (B,T,columns), or (B,T) where columns is 0. */
static gpt_value of_tokens(const builder *b, const char *module, const char *name, gpt_role role, precision format, size_t columns)
{
    const gpt_config *g = b->config;
    gpt_value value = gpt_value_init(module, name, role, format);
    value.per_sample = true;
    value.rows = g->batch * g->block;
    value.columns = columns ? columns : 1;
    value.ndim = columns ? 3 : 2;
    value.shape[0] = g->batch;
    value.shape[1] = g->block;
    value.shape[2] = columns;
    return value;
}

static int batch_value(builder *b, const char *name, bool integers)
{
    gpt_value value = of_tokens(b, "", name, ROLE_BATCH, PRECISION_FP32, 0);
    value.integers = integers;
    return gpt_add_value(b->program, &value);
}

/* An activation of C or more columns. place: along the dataflow (see GPT_PLACE_BLOCKS), or 0 for one that stays inside. */
static int activation(builder *b, const char *module, const char *name, precision format, size_t columns, size_t place)
{
    gpt_value value = of_tokens(b, module, name, ROLE_ACTIVATION, format, columns);
    value.internal = place == 0;
    value.position = (int32_t)place;
    return gpt_add_value(b->program, &value);
}

/* One row a query: (B,NH,T,T). */
static int of_pairs(builder *b, const char *module, const char *name, size_t place)
{
    const gpt_config *g = b->config;
    gpt_value value = gpt_value_init(module, name, ROLE_ACTIVATION, g->format);
    value.per_sample = true;
    value.rows = g->batch * g->heads * g->block;
    value.columns = g->block;
    value.ndim = 4;
    value.shape[0] = g->batch;
    value.shape[1] = g->heads;
    value.shape[2] = value.shape[3] = g->block;
    value.internal = place == 0;
    value.position = (int32_t)place;
    return gpt_add_value(b->program, &value);
}

static void add_entries(builder *b)
{
    gpt_program *p = b->program;
    b->tokens = batch_value(b, "tokens", true);
    b->positions = batch_value(b, "positions", true);
    b->key_mask = batch_value(b, "key_mask", false);
    b->targets = batch_value(b, "targets", true);
    b->loss_weights = batch_value(b, "loss_weights", false);
    p->loss_seed = gpt_value_one(p, ROLE_SCALAR, "", "loss_scale");
    b->first_parameter = p->value_count;
    for (size_t i = 0; i < b->tensor_count; i++) {
        const gpt_tensor *t = &b->tensors[i];
        gpt_value value = gpt_value_init(t->module, t->name, ROLE_PARAMETER, b->config->format);
        value.rows = t->ndim == 2 ? t->shape[0] : 1;
        value.columns = t->ndim == 2 ? t->shape[1] : t->shape[0];
        value.ndim = t->ndim;
        for (int d = 0; d < t->ndim; d++) value.shape[d] = t->shape[d];
        value.parameter = (int)i;
        value.position = t->position;
        gpt_add_value(p, &value);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------------------- */

/* Where nothing is dropped, the value behind the dropout is that before it. */
static void drop(builder *b, int value, int dropped, rng_site site, size_t layer)
{
    if (dropped == value || b->program->failed) return;
    const gpt_value *out = &b->program->values[dropped];
    gpt_op op = build_dropout(b, GPT_OP(OP_DROPOUT, out->module, "dropout"), site, layer);
    build_op(b, op, BUILD_LIST(dropped), BUILD_LIST(value));
}

static void embed(builder *b)
{
    size_t C = b->config->channels;
    precision f = b->config->format;
    bool drops = b->config->dropout > 0.0f;
    b->token_rows = activation(b, "wte", "embedded", f, C, 0);
    b->position_rows = activation(b, "wpe", "embedded", f, C, 0);
    b->embedded = activation(b, "", "embedded", f, C, GPT_PLACE_EMBEDDED);
    b->summed = drops ? activation(b, "", "summed", f, C, 0) : b->embedded;
    build_op(b, GPT_OP(OP_EMBEDDING, "wte", "embedding"), BUILD_LIST(b->token_rows), BUILD_LIST(b->tokens, b->first_parameter));
    build_op(b, GPT_OP(OP_EMBEDDING, "wpe", "embedding"), BUILD_LIST(b->position_rows),
             BUILD_LIST(b->positions, b->first_parameter + 1));
    build_op(b, GPT_OP(OP_ADD, "", "add"), BUILD_LIST(b->summed), BUILD_LIST(b->token_rows, b->position_rows));
    drop(b, b->summed, b->embedded, RNG_DROP_EMBEDDING, 0);
}

static void norm(builder *b, norm_values *n, int in, const char *module, size_t place)
{
    gpt_program *p = b->program;
    size_t C = b->config->channels;
    snprintf(n->module, sizeof n->module, "%s", module);
    n->in = in;
    n->mean = gpt_value_per_row(p, in, module, "mean");
    n->var = gpt_value_per_row(p, in, module, "var");
    n->var_epsilon = gpt_value_per_row(p, in, module, "var_epsilon");
    n->rstd = gpt_value_per_row(p, in, module, "rstd");
    n->normalized = activation(b, module, "normalized", PRECISION_FP32, C, 0);
    n->out = activation(b, module, "output", b->config->format, C, place);
    build_op(b, GPT_OP(OP_ROW_MEAN, module, "mean"), BUILD_LIST(n->mean), BUILD_LIST(in));
    build_op(b, GPT_OP(OP_ROW_VAR, module, "var"), BUILD_LIST(n->var), BUILD_LIST(in, n->mean));
    build_op(b, build_numbered(GPT_OP(OP_ADD_NUMBER, module, "add"), 1e-5, "epsilon"), BUILD_LIST(n->var_epsilon),
             BUILD_LIST(n->var));
    build_op(b, GPT_OP(OP_RSQRT, module, "rsqrt"), BUILD_LIST(n->rstd), BUILD_LIST(n->var_epsilon));
    build_op(b, GPT_OP(OP_NORMALIZE, module, "normalize"), BUILD_LIST(n->normalized), BUILD_LIST(in, n->mean, n->rstd));
    build_op(b, GPT_OP(OP_AFFINE, module, "affine"), BUILD_LIST(n->out), BUILD_LIST(n->normalized, n->weight, n->bias));
}

static void attention(builder *b, block_values *v, size_t l, size_t place)
{
    size_t C = b->config->channels;
    precision f = b->config->format;
    bool drops = b->config->dropout > 0.0f;
    v->qkv = activation(b, v->attn, "qkv", f, 3 * C, place + 5);
    v->scores = of_pairs(b, v->attn, "scores", 0);
    v->scaled = of_pairs(b, v->attn, "scaled", 0);
    v->masked = of_pairs(b, v->attn, "masked", 0);
    if (v->masked >= 0) b->program->values[v->masked].mask = true;
    v->probabilities = of_pairs(b, v->attn, "probabilities", place + 6);
    v->dropped = drops ? of_pairs(b, v->attn, "dropped", 0) : v->probabilities;
    v->heads = activation(b, v->attn, "heads", f, C, place + 7);
    v->attn_out = activation(b, v->attn, "output", f, C, place + 10);
    v->attn_projected = drops ? activation(b, v->attn, "c_proj", f, C, 0) : v->attn_out;
    build_op(b, GPT_OP(OP_LINEAR, v->attn, "linear"), BUILD_LIST(v->qkv),
             BUILD_LIST(v->ln_1.out, build_block_tensor(b, l, C_ATTN_WEIGHT), build_block_tensor(b, l, C_ATTN_BIAS)));
    build_op(b, GPT_OP(OP_SCORES, v->attn, "matmul"), BUILD_LIST(v->scores), BUILD_LIST(v->qkv));
    build_op(b, build_numbered(GPT_OP(OP_MUL_NUMBER, v->attn, "mul"), build_attention_scale(b), "scale"), BUILD_LIST(v->scaled),
             BUILD_LIST(v->scores));
    build_op(b, GPT_OP(OP_MASK, v->attn, "masked_fill"), BUILD_LIST(v->masked), BUILD_LIST(v->scaled, b->key_mask));
    build_op(b, GPT_OP(OP_SOFTMAX, v->attn, "softmax"), BUILD_LIST(v->probabilities), BUILD_LIST(v->masked));
    drop(b, v->probabilities, v->dropped, RNG_DROP_ATTENTION, l);
    build_op(b, GPT_OP(OP_HEADS, v->attn, "matmul"), BUILD_LIST(v->heads), BUILD_LIST(v->dropped, v->qkv));
    build_op(b, GPT_OP(OP_LINEAR, v->attn, "linear"), BUILD_LIST(v->attn_projected),
             BUILD_LIST(v->heads, build_block_tensor(b, l, ATTN_PROJ_WEIGHT), build_block_tensor(b, l, ATTN_PROJ_BIAS)));
    drop(b, v->attn_projected, v->attn_out, RNG_DROP_ATTENTION_OUT, l);
}

static void mlp(builder *b, block_values *v, size_t l, size_t place)
{
    size_t C = b->config->channels;
    precision f = b->config->format;
    bool drops = b->config->dropout > 0.0f;
    bool gains = l == b->config->layers / 2 && b->config->activation_gain != 1.0f;
    v->fc = activation(b, v->mlp, "c_fc", f, 4 * C, place + 17);
    v->gelu = activation(b, v->mlp, "gelu", f, 4 * C, place + 18);
    v->mlp_out = activation(b, v->mlp, "output", f, C, place + 21);
    v->mlp_gained = !drops ? v->mlp_out : gains ? activation(b, v->mlp, "gained", f, C, 0) : -1;
    v->mlp_projected = drops || gains ? activation(b, v->mlp, "c_proj", f, C, 0) : v->mlp_out;
    if (!gains) v->mlp_gained = v->mlp_projected;
    build_op(b, GPT_OP(OP_LINEAR, v->mlp, "linear"), BUILD_LIST(v->fc),
             BUILD_LIST(v->ln_2.out, build_block_tensor(b, l, C_FC_WEIGHT), build_block_tensor(b, l, C_FC_BIAS)));
    build_op(b, GPT_OP(OP_GELU, v->mlp, "gelu"), BUILD_LIST(v->gelu), BUILD_LIST(v->fc));
    build_op(b, GPT_OP(OP_LINEAR, v->mlp, "linear"), BUILD_LIST(v->mlp_projected),
             BUILD_LIST(v->gelu, build_block_tensor(b, l, MLP_PROJ_WEIGHT), build_block_tensor(b, l, MLP_PROJ_BIAS)));
    if (gains)
        build_op(b, build_gain(b, GPT_OP(OP_MUL_NUMBER, v->mlp, "mul")), BUILD_LIST(v->mlp_gained), BUILD_LIST(v->mlp_projected));
    drop(b, v->mlp_gained, v->mlp_out, RNG_DROP_MLP_OUT, l);
}

static int block(builder *b, size_t l, int stream)
{
    block_values *v = &b->blocks[l];
    size_t place = GPT_PLACE_BLOCKS + l * GPT_BLOCK_PLACES, C = b->config->channels;
    char module[GPT_MODULE_MAX];
    snprintf(v->attn, sizeof v->attn, "h.%u.attn", (unsigned)l);
    snprintf(v->mlp, sizeof v->mlp, "h.%u.mlp", (unsigned)l);
    snprintf(v->whole, sizeof v->whole, "h.%u", (unsigned)l);

    v->ln_1 = (norm_values){.weight = build_block_tensor(b, l, LN_1_WEIGHT), .bias = build_block_tensor(b, l, LN_1_BIAS)};
    snprintf(module, sizeof module, "h.%u.ln_1", (unsigned)l);
    norm(b, &v->ln_1, stream, module, place + 2);
    attention(b, v, l, place);
    v->middle = activation(b, v->whole, "middle", b->config->format, C, place + 11);
    build_op(b, GPT_OP(OP_ADD, v->whole, "add"), BUILD_LIST(v->middle), BUILD_LIST(stream, v->attn_out));

    v->ln_2 = (norm_values){.weight = build_block_tensor(b, l, LN_2_WEIGHT), .bias = build_block_tensor(b, l, LN_2_BIAS)};
    snprintf(module, sizeof module, "h.%u.ln_2", (unsigned)l);
    norm(b, &v->ln_2, v->middle, module, place + 14);
    mlp(b, v, l, place);
    v->out = activation(b, v->whole, "output", b->config->format, C, place + 22);
    build_op(b, GPT_OP(OP_ADD, v->whole, "add"), BUILD_LIST(v->out), BUILD_LIST(v->middle, v->mlp_out));
    return v->out;
}

static gpt_op of_loss(gpt_op op)
{
    op.loss = true;
    return op;
}

/* Cross-entropy of the targets that count, as their weighted mean, in FP32 from logits of any format. */
static void loss(builder *b)
{
    gpt_program *p = b->program;
    b->log_probabilities = activation(b, "loss", "log_probabilities", PRECISION_FP32, GPT_VOCAB, 0);
    b->nll = activation(b, "loss", "nll", PRECISION_FP32, 0, 0);
    b->valid_weights = activation(b, "loss", "valid_weights", PRECISION_FP32, 0, 0);
    b->weighted = activation(b, "loss", "weighted", PRECISION_FP32, 0, 0);
    b->weighted_sum = gpt_value_one(p, ROLE_ACTIVATION, "loss", "weighted_sum");
    b->weight_sum = gpt_value_one(p, ROLE_ACTIVATION, "loss", "weight_sum");
    p->loss = gpt_value_one(p, ROLE_ACTIVATION, "loss", "mean");
    build_op(b, of_loss(GPT_OP(OP_LOG_SOFTMAX, "loss", "log_softmax")), BUILD_LIST(b->log_probabilities), BUILD_LIST(b->logits));
    build_op(b, of_loss(GPT_OP(OP_NLL, "loss", "nll_loss")), BUILD_LIST(b->nll), BUILD_LIST(b->log_probabilities, b->targets));
    build_op(b, of_loss(GPT_OP(OP_VALID, "loss", "where")), BUILD_LIST(b->valid_weights), BUILD_LIST(b->targets, b->loss_weights));
    build_op(b, of_loss(GPT_OP(OP_MUL, "loss", "mul")), BUILD_LIST(b->weighted), BUILD_LIST(b->nll, b->valid_weights));
    build_op(b, of_loss(GPT_OP(OP_SUM, "loss", "sum")), BUILD_LIST(b->weighted_sum), BUILD_LIST(b->weighted));
    build_op(b, of_loss(GPT_OP(OP_SUM, "loss", "sum")), BUILD_LIST(b->weight_sum), BUILD_LIST(b->valid_weights));
    build_op(b, of_loss(GPT_OP(OP_DIV, "loss", "div")), BUILD_LIST(p->loss), BUILD_LIST(b->weighted_sum, b->weight_sum));
}

bool gpt_program_build(gpt_program *program, const gpt_config *config, const gpt_tensor *tensors, size_t tensor_count)
{
    builder b = {.program = program, .config = config, .tensors = tensors, .tensor_count = tensor_count};
    size_t last = GPT_PLACE_BLOCKS + config->layers * GPT_BLOCK_PLACES;
    *program = (gpt_program){.loss = -1, .loss_seed = -1};
    b.blocks = calloc(config->layers, sizeof *b.blocks);
    if (!b.blocks) return false;
    add_entries(&b);
    embed(&b);
    int stream = b.embedded;
    for (size_t l = 0; l < config->layers && !program->failed; l++) stream = block(&b, l, stream);
    if (!program->failed) {
        b.ln_f = (norm_values){.weight = build_last_tensor(&b, 3), .bias = build_last_tensor(&b, 2)};
        norm(&b, &b.ln_f, stream, "ln_f", last + 2);
        b.logits = activation(&b, "lm_head", "logits", config->format, GPT_VOCAB, last + 4);
        build_op(&b, GPT_OP(OP_LINEAR, "lm_head", "linear"), BUILD_LIST(b.logits),
                 BUILD_LIST(b.ln_f.out, build_last_tensor(&b, 1)));
        loss(&b);
    }
    if (!program->failed) {
        program->backward = program->op_count;
        build_backward(&b);
    }
    free(b.blocks);
    return !program->failed;
}
