/* program_build.h: what the forward half of the builder (program_build.c) leaves to the backward half (program_backward.c). */
#ifndef GPT_PROGRAM_BUILD_H
#define GPT_PROGRAM_BUILD_H

#include "model.h"

/* Indices of values. Where an operator is left out, its value is that which it would have read. */
typedef struct norm_values {
    int in, mean, var, var_epsilon, rstd, normalized, out;
    int weight, bias;
    char module[GPT_MODULE_MAX];
} norm_values;

typedef struct block_values {
    norm_values ln_1, ln_2;
    int qkv, scores, scaled, masked, probabilities, dropped, heads, attn_projected, attn_out, middle;
    int fc, gelu, mlp_projected, mlp_gained, mlp_out, out;
    char attn[GPT_MODULE_MAX], mlp[GPT_MODULE_MAX], whole[GPT_MODULE_MAX];
} block_values;

typedef struct builder {
    gpt_program *program;
    const gpt_config *config;
    const gpt_tensor *tensors;
    size_t tensor_count;
    int first_parameter; /* the value of tensor 0; the others follow */
    int tokens, positions, key_mask, targets, loss_weights;
    int token_rows, position_rows, summed, embedded;
    block_values *blocks; /* [config->layers] */
    norm_values ln_f;
    int logits, log_probabilities, nll, valid_weights, weighted, weighted_sum, weight_sum;
} builder;

int build_block_tensor(const builder *b, size_t layer, block_tensor which);
/* 3: ln_f.weight, 2: ln_f.bias, 1: lm_head.weight. */
int build_last_tensor(const builder *b, size_t from_end);

/* The values between the parentheses, counted. */
#define BUILD_LIST(...)                                                    \
    (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
void build_op(builder *b, gpt_op op, int out_count, const int *out, int in_count, const int *in);

/* The scale of attention and the operators with a number that both halves have. */
gpt_op build_numbered(gpt_op op, double x, const char *x_name);
gpt_op build_dropout(const builder *b, gpt_op op, rng_site site, size_t layer);
double build_attention_scale(const builder *b);
gpt_op build_gain(const builder *b, gpt_op op);

/* Appends the backward operators of all that was built. */
void build_backward(builder *b);

#endif
