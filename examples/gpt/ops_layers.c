/* ops_layers.c: embedding, norm, linear and loss, forward and backward. */
#include "matmul.h"
#include "ops.h"

#include <string.h>

/* ---- embedding --------------------------------------------------------------------------------------------------------------- */

/* A token outside the table has no row. Its output becomes NaN: made-up numbers would hide what the
 * input check is about to report. */
void op_embedding(const op_call *c)
{
    const int32_t *tokens = integers_of(c, 0);
    size_t N = c->out_rows[0], V = c->in_rows[1], C = c->in_columns[1];
    for (size_t n = 0; n < N; n++) {
        float *out = c->out[0] + n * C; // (C)
        int known = tokens[n] >= 0 && (size_t)tokens[n] < V;
        if (known) memcpy(out, c->in[1] + (size_t)tokens[n] * C, C * sizeof *out);
        for (size_t k = 0; !known && k < C; k++) out[k] = op_no_number();
    }
}

GPT_CLONES void op_embedding_backward(const op_call *c)
{
    const int32_t *tokens = integers_of(c, 1);
    size_t N = c->in_rows[0], V = c->out_rows[0], C = c->out_columns[0];
    memset(c->out[0], 0, V * C * sizeof(float));
    for (size_t n = 0; n < N; n++) {
        if (tokens[n] < 0 || (size_t)tokens[n] >= V) continue;
        const float *g = c->in[0] + n * C;            // (C)
        float *d = c->out[0] + (size_t)tokens[n] * C; // (C)
        for (size_t k = 0; k < C; k++) d[k] += g[k];
    }
}

/* ---- norm -------------------------------------------------------------------------------------------------------------------- */

GPT_CLONES void op_normalize(const op_call *c)
{
    size_t R = c->in_rows[0], K = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        const float *a = c->in[0] + r * K; // (K)
        float *out = c->out[0] + r * K, mean = c->in[1][r], rstd = c->in[2][r];
        for (size_t k = 0; k < K; k++) out[k] = (a[k] - mean) * rstd;
    }
}

GPT_CLONES void op_affine(const op_call *c)
{
    const float *weight = c->in[1], *bias = c->in[2]; // (K) (K)
    size_t R = c->in_rows[0], K = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        const float *a = c->in[0] + r * K; // (K)
        float *out = c->out[0] + r * K;    // (K)
        for (size_t k = 0; k < K; k++) out[k] = a[k] * weight[k] + bias[k];
    }
}

GPT_CLONES void op_layer_norm_backward(const op_call *c)
{
    const float *weight = c->in[4];
    float *d_weight = c->out[1], *d_bias = c->out[2]; // (C) (C)
    size_t N = c->in_rows[1], C = c->in_columns[1];
    memset(d_weight, 0, C * sizeof *d_weight);
    memset(d_bias, 0, C * sizeof *d_bias);
    for (size_t n = 0; n < N; n++) {
        const float *x = c->in[1] + n * C, *dy = c->in[0] + n * C; // (C)
        float *dx = c->out[0] + n * C;                             // (C)
        float mean = c->in[2][n], rstd = c->in[3][n];
        /* dx first holds the gradient of the normalised value, and x is normalised again instead of being stored. */
        for (size_t k = 0; k < C; k++) {
            d_bias[k] += dy[k];
            d_weight[k] += dy[k] * ((x[k] - mean) * rstd);
            dx[k] = dy[k] * weight[k];
        }
        float sum = op_row_sum(dx, C), d_mean = sum / (float)C;
        float d_spread = (op_row_dot(dx, x, C) - mean * sum) * rstd / (float)C;
        for (size_t k = 0; k < C; k++) dx[k] = (dx[k] - d_mean - (x[k] - mean) * rstd * d_spread) * rstd;
    }
}

/* ---- linear ------------------------------------------------------------------------------------------------------------------ */

void op_linear(const op_call *c)
{
    const float *bias = c->op->in_count > 2 ? c->in[2] : NULL; // (O)
    float *out = c->out[0];
    size_t N = c->in_rows[0], C = c->in_columns[0], O = c->out_columns[0];
    transpose(c->scratch, c->in[1], C, O, C);                                // (C,O)
    matmul(out, O, (matrix){c->in[0], C, 1}, c->scratch, O, N, O, C, false); // (N,O)
    for (size_t n = 0; bias && n < N; n++)
        for (size_t o = 0; o < O; o++) out[n * O + o] += bias[o];
}

void op_linear_backward(const op_call *c)
{
    const float *g = c->in[0], *a = c->in[1], *weight = c->in[2]; // (N,O) (N,C) (O,C)
    float *d_a = c->out[0], *d_weight = c->out[1], *d_bias = c->out[2];
    size_t N = c->in_rows[0], O = c->in_columns[0], C = c->in_columns[1];
    matmul(d_a, C, (matrix){g, O, 1}, weight, C, N, C, O, false);               // (N,C) = (N,O) (O,C)
    if (d_weight) matmul(d_weight, C, (matrix){g, 1, O}, a, C, O, C, N, false); // (O,C) = (N,O)^T (N,C)
    if (d_bias) memset(d_bias, 0, O * sizeof *d_bias);
    for (size_t n = 0; d_bias && n < N; n++)
        for (size_t o = 0; o < O; o++) d_bias[o] += g[n * O + o];
}

/* The columns of b behind those of a. */
void op_join(const op_call *c)
{
    size_t R = c->in_rows[0], K = c->in_columns[0], L = c->in_columns[1];
    for (size_t r = 0; r < R; r++) {
        memcpy(c->out[0] + r * (K + L), c->in[0] + r * K, K * sizeof(float));
        memcpy(c->out[0] + r * (K + L) + K, c->in[1] + r * L, L * sizeof(float));
    }
}

/* ---- loss -------------------------------------------------------------------------------------------------------------------- */

/* A target that is out of range, and not the one to be ignored, has no probability: NaN, forward and backward. */
void op_nll(const op_call *c)
{
    const int32_t *targets = integers_of(c, 1);
    size_t R = c->in_rows[0], V = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        int known = targets[r] >= 0 && (size_t)targets[r] < V;
        c->out[0][r] = known ? -c->in[0][r * V + (size_t)targets[r]] : targets[r] == GPT_IGNORE ? 0.0f : op_no_number();
    }
}

void op_nll_backward(const op_call *c)
{
    const int32_t *targets = integers_of(c, 1);
    size_t R = c->out_rows[0], V = c->out_columns[0];
    for (size_t r = 0; r < R; r++) {
        float *d = c->out[0] + r * V; // (V)
        int known = targets[r] >= 0 && (size_t)targets[r] < V;
        float other = known || targets[r] == GPT_IGNORE ? 0.0f : op_no_number();
        for (size_t v = 0; v < V; v++) d[v] = other;
        if (known) d[targets[r]] = -c->in[0][r];
    }
}

void op_valid(const op_call *c)
{
    const int32_t *targets = integers_of(c, 0);
    size_t R = c->out_rows[0];
    for (size_t r = 0; r < R; r++) c->out[0][r] = targets[r] == GPT_IGNORE ? 0.0f : c->in[1][r];
}
