/*
 * ops.h: run one operator of a program.
 *
 * Each kind is a plain function of arrays (ops_elementwise.c, ops_rows.c, ops_layers.c, ops_attention.c), found in a table by its
 * number. Every sum runs in FP32 and in an order that the source fixes; gpt_op_run then rounds each output to the format of its
 * value.
 */
#ifndef GPT_OPS_H
#define GPT_OPS_H

#include "clones.h"
#include "program.h"

/*
 * Run one operator on the memory of its values and round what it made. values: those of the program, `data` set. scratch: as many
 * floats as gpt_op_scratch says for it.
 */
void gpt_op_run(const gpt_op *op, const gpt_run_shape *shape, const gpt_value *values, float *scratch);
size_t gpt_op_scratch(const gpt_op *op, const gpt_run_shape *shape, const gpt_value *values);

/* ---- for the files of kinds -------------------------------------------------------------------------------------------------- */

/* The arguments of one operator, looked up. Integers lie behind in[i] as int32_t; see integers_of. */
typedef struct op_call {
    const gpt_op *op;
    const gpt_run_shape *shape;
    float x, y;
    precision format; /* of out[0] */
    const float *in[GPT_IN_MAX];
    float *out[GPT_OUT_MAX];
    size_t in_rows[GPT_IN_MAX], in_columns[GPT_IN_MAX];
    size_t out_rows[GPT_OUT_MAX], out_columns[GPT_OUT_MAX];
    float *scratch;
} op_call;

typedef void op_function(const op_call *c);
op_function op_elementwise, op_elementwise_backward, op_spread_backward, op_dropout;
op_function op_rows, op_softmax, op_log_softmax, op_rows_backward, op_softmax_backward, op_log_softmax_backward,
    op_variance_backward;
op_function op_embedding, op_embedding_backward, op_normalize, op_affine, op_layer_norm_backward, op_linear, op_linear_backward;
op_function op_scores, op_scores_backward, op_mask, op_heads, op_heads_backward, op_join;
op_function op_nll, op_nll_backward, op_valid;

static inline const int32_t *integers_of(const op_call *c, int input)
{
    return (const int32_t *)(const void *)c->in[input];
}

/* Sums along a row run in 16 lanes that are added at the end, so that they vectorise and keep one order. */
enum { OP_LANES = 16 };

GPT_INLINE float op_lanes_sum(const float lanes[OP_LANES])
{
    float sum = 0.0f;
    for (size_t l = 0; l < OP_LANES; l++) sum += lanes[l];
    return sum;
}

GPT_INLINE float op_row_sum(const float *x, size_t K)
{
    float lanes[OP_LANES] = {0};
    size_t k = 0;
    for (; k + OP_LANES <= K; k += OP_LANES)
        for (size_t l = 0; l < OP_LANES; l++) lanes[l] += x[k + l];
    for (; k < K; k++) lanes[k % OP_LANES] += x[k];
    return op_lanes_sum(lanes);
}

GPT_INLINE float op_row_dot(const float *x, const float *y, size_t K)
{
    float lanes[OP_LANES] = {0};
    size_t k = 0;
    for (; k + OP_LANES <= K; k += OP_LANES)
        for (size_t l = 0; l < OP_LANES; l++) lanes[l] += x[k + l] * y[k + l];
    for (; k < K; k++) lanes[k % OP_LANES] += x[k] * y[k];
    return op_lanes_sum(lanes);
}

/* What a wrong index deserves. Made from bits, so that no compiler flag about finite mathematics can touch it. */
GPT_INLINE float op_no_number(void)
{
    return float_from_bits(0x7fc00000u);
}

#endif
