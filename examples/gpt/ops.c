/* ops.c: from the number of a kind to its function, and the rounding of what it made. */
#include "ops.h"

static op_function *const FUNCTIONS[OP_KINDS] = {
    [OP_ADD] = op_elementwise,
    [OP_SUB] = op_elementwise,
    [OP_MUL] = op_elementwise,
    [OP_DIV] = op_elementwise,
    [OP_ADD_NUMBER] = op_elementwise,
    [OP_MUL_NUMBER] = op_elementwise,
    [OP_SQUARE] = op_elementwise,
    [OP_SQRT] = op_elementwise,
    [OP_RSQRT] = op_elementwise,
    [OP_EXP] = op_elementwise,
    [OP_LOG] = op_elementwise,
    [OP_LOG1P] = op_elementwise,
    [OP_SIGMOID] = op_elementwise,
    [OP_RECIPROCAL] = op_elementwise,
    [OP_GELU] = op_elementwise,
    [OP_CLAMP] = op_elementwise,
    [OP_WHERE_LESS] = op_elementwise,
    [OP_NAN_TO_NUM] = op_elementwise,
    [OP_DROPOUT] = op_dropout,
    [OP_COPY] = op_elementwise,
    [OP_ROW_SUM] = op_rows,
    [OP_ROW_MEAN] = op_rows,
    [OP_ROW_MAX] = op_rows,
    [OP_ROW_VAR] = op_rows,
    [OP_SUM] = op_rows,
    [OP_COLUMN_SUM] = op_rows,
    [OP_SOFTMAX] = op_softmax,
    [OP_LOG_SOFTMAX] = op_log_softmax,
    [OP_EMBEDDING] = op_embedding,
    [OP_NORMALIZE] = op_normalize,
    [OP_AFFINE] = op_affine,
    [OP_LINEAR] = op_linear,
    [OP_SCORES] = op_scores,
    [OP_MASK] = op_mask,
    [OP_HEADS] = op_heads,
    [OP_NLL] = op_nll,
    [OP_VALID] = op_valid,
    [OP_ROW_SUM_BACKWARD] = op_rows_backward,
    [OP_ROW_MEAN_BACKWARD] = op_rows_backward,
    [OP_ROW_MAX_BACKWARD] = op_rows_backward,
    [OP_ROW_VAR_BACKWARD] = op_variance_backward,
    [OP_SUM_BACKWARD] = op_rows_backward,
    [OP_SQUARE_BACKWARD] = op_elementwise_backward,
    [OP_RECIPROCAL_BACKWARD] = op_elementwise_backward,
    [OP_NAN_TO_NUM_BACKWARD] = op_elementwise_backward,
    [OP_MASK_BACKWARD] = op_mask,
    [OP_SQRT_BACKWARD] = op_elementwise_backward,
    [OP_RSQRT_BACKWARD] = op_elementwise_backward,
    [OP_LOG_BACKWARD] = op_elementwise_backward,
    [OP_LOG1P_BACKWARD] = op_elementwise_backward,
    [OP_EXP_BACKWARD] = op_elementwise_backward,
    [OP_SIGMOID_BACKWARD] = op_elementwise_backward,
    [OP_DIV_BACKWARD] = op_spread_backward,
    [OP_MUL_BACKWARD] = op_spread_backward,
    [OP_WHERE_BACKWARD] = op_elementwise_backward,
    [OP_CLAMP_BACKWARD] = op_elementwise_backward,
    [OP_GELU_BACKWARD] = op_elementwise_backward,
    [OP_DROPOUT_BACKWARD] = op_dropout,
    [OP_SOFTMAX_BACKWARD] = op_softmax_backward,
    [OP_LOG_SOFTMAX_BACKWARD] = op_log_softmax_backward,
    [OP_LAYER_NORM_BACKWARD] = op_layer_norm_backward,
    [OP_LINEAR_BACKWARD] = op_linear_backward,
    [OP_SCORES_BACKWARD] = op_scores_backward,
    [OP_HEADS_BACKWARD] = op_heads_backward,
    [OP_JOIN] = op_join,
    [OP_EMBEDDING_BACKWARD] = op_embedding_backward,
    [OP_NLL_BACKWARD] = op_nll_backward,
};

void gpt_op_run(const gpt_op *op, const gpt_run_shape *shape, const gpt_value *values, float *scratch)
{
    op_call call = {.op = op, .shape = shape, .scratch = scratch};
    call.x = (float)gpt_op_number(op, shape->place);
    call.y = (float)op->y;
    call.format = values[op->out[0]].format;
    for (int i = 0; i < op->in_count; i++) {
        const gpt_value *v = &values[op->in[i]];
        call.in[i] = v->data;
        call.in_rows[i] = gpt_value_rows(v, shape);
        call.in_columns[i] = v->columns;
    }
    for (int i = 0; i < op->out_count; i++) {
        const gpt_value *v = &values[op->out[i]];
        call.out[i] = v->data;
        call.out_rows[i] = gpt_value_rows(v, shape);
        call.out_columns[i] = v->columns;
    }
    FUNCTIONS[op->kind](&call);
    for (int i = 0; i < op->out_count; i++)
        precision_round(values[op->out[i]].format, call.out[i], call.out_rows[i] * call.out_columns[i]);
}

size_t gpt_op_scratch(const gpt_op *op, const gpt_run_shape *shape, const gpt_value *values)
{
    switch (op->kind) {
    case OP_LINEAR: return values[op->in[1]].rows * values[op->in[1]].columns; /* the weight, transposed */
    case OP_SCORES:
    case OP_HEADS_BACKWARD: return shape->T * (shape->C / shape->NH); /* keys or values of a head, transposed */
    case OP_DIV_BACKWARD:
    case OP_MUL_BACKWARD: return values[op->in[0]].columns; /* the terms of a row */
    default: return 0;
    }
}
