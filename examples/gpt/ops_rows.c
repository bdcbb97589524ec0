/* ops_rows.c: operators along rows: sums, means, softmax, and the way back. */
#include "elementary.h"
#include "ops.h"

#include <math.h>
#include <string.h>

/* The largest of a row; a NaN in it is the largest. */
GPT_INLINE float row_max(const float *x, size_t K)
{
    float max = x[0];
    for (size_t k = 1; k < K; k++) max = x[k] > max || (float_bits(x[k]) & 0x7fffffffu) > 0x7f800000u ? x[k] : max;
    return max;
}

GPT_INLINE float row_squares_about(const float *x, float mean, size_t K)
{
    float lanes[OP_LANES] = {0};
    size_t k = 0;
    for (; k + OP_LANES <= K; k += OP_LANES)
        for (size_t l = 0; l < OP_LANES; l++) lanes[l] += (x[k + l] - mean) * (x[k + l] - mean);
    for (; k < K; k++) lanes[k % OP_LANES] += (x[k] - mean) * (x[k] - mean);
    return op_lanes_sum(lanes);
}

GPT_INLINE float reduced(const op_call *c, size_t row)
{
    size_t K = c->in_columns[0];
    const float *x = c->in[0] + row * K; // (K)
    switch (c->op->kind) {
    case OP_ROW_MAX: return row_max(x, K);
    case OP_ROW_MEAN: return op_row_sum(x, K) / (float)K;
    case OP_ROW_VAR: return row_squares_about(x, c->in[1][row], K) / ((float)K - c->x);
    default: return op_row_sum(x, K);
    }
}

GPT_CLONES void op_rows(const op_call *c)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    size_t R = c->in_rows[0], K = c->in_columns[0];
    if (c->op->kind == OP_SUM) {
        out[0] = op_row_sum(in, R * K);
    } else if (c->op->kind == OP_COLUMN_SUM) {
        memset(out, 0, K * sizeof *out);
        for (size_t r = 0; r < R; r++)
            for (size_t k = 0; k < K; k++) out[k] += in[r * K + k];
    } else {
        for (size_t r = 0; r < R; r++) out[r] = reduced(c, r);
    }
}

/* A row of -Inf alone has no probabilities: -Inf - -Inf is NaN, and 0/0 would be. Nothing here says so; it comes out. */
GPT_INLINE float exponentials(float *out, const float *x, size_t K, float *max)
{
    float lanes[OP_LANES];
    size_t k = 0;
    *max = x[0];
    for (size_t l = 0; l < OP_LANES; l++) lanes[l] = x[0];
    for (; k + OP_LANES <= K; k += OP_LANES)
        for (size_t l = 0; l < OP_LANES; l++) lanes[l] = x[k + l] > lanes[l] ? x[k + l] : lanes[l];
    for (; k < K; k++) *max = x[k] > *max ? x[k] : *max;
    for (size_t l = 0; l < OP_LANES; l++) *max = lanes[l] > *max ? lanes[l] : *max;
    for (k = 0; k < K; k++) out[k] = exp_float(x[k] - *max);
    return op_row_sum(out, K);
}

GPT_CLONES void op_softmax(const op_call *c)
{
    size_t R = c->in_rows[0], K = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        float *out = c->out[0] + r * K, max, sum = exponentials(out, c->in[0] + r * K, K, &max); // (K)
        for (size_t k = 0; k < K; k++) out[k] /= sum;
    }
}

GPT_CLONES void op_log_softmax(const op_call *c)
{
    size_t R = c->in_rows[0], K = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        const float *x = c->in[0] + r * K;                                            // (K)
        float *out = c->out[0] + r * K, max, log_sum = exponentials(out, x, K, &max); // (K)
        log_sum = (float)log((double)log_sum);
        for (size_t k = 0; k < K; k++) out[k] = (x[k] - max) - log_sum;
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------------------- */

/* To the first that is the largest, NaN included: equal bits, since y is a copy of one of them. */
static void max_backward(const op_call *c, size_t row)
{
    size_t K = c->in_columns[1], at = 0;
    const float *x = c->in[1] + row * K; // (K)
    float *d = c->out[0] + row * K;      // (K)
    memset(d, 0, K * sizeof *d);
    while (at + 1 < K && float_bits(x[at]) != float_bits(c->in[2][row])) at++;
    d[at] = c->in[0][row];
}

GPT_CLONES void op_rows_backward(const op_call *c)
{
    const float *g = c->in[0];
    size_t R = c->in_rows[1], K = c->in_columns[1];
    for (size_t r = 0; r < R; r++) {
        float *d = c->out[0] + r * K; // (K)
        float each = c->op->kind == OP_SUM_BACKWARD ? g[0] : c->op->kind == OP_ROW_MEAN_BACKWARD ? g[r] / (float)K : g[r];
        if (c->op->kind == OP_ROW_MAX_BACKWARD) max_backward(c, r);
        else
            for (size_t k = 0; k < K; k++) d[k] = each;
    }
}

/* The mean's own gradient is 0 here: the deviations of a row sum to 0. */
GPT_CLONES void op_variance_backward(const op_call *c)
{
    const float *g = c->in[0], *a = c->in[1], *mean = c->in[2];
    size_t R = c->in_rows[1], K = c->in_columns[1];
    for (size_t r = 0; r < R; r++) {
        float each = g[r] * 2.0f / ((float)K - c->x);
        for (size_t k = 0; k < K; k++) c->out[0][r * K + k] = each * (a[r * K + k] - mean[r]);
    }
}

GPT_CLONES void op_softmax_backward(const op_call *c)
{
    size_t R = c->in_rows[0], K = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        const float *g = c->in[0] + r * K, *y = c->in[1] + r * K; // (K)
        float *d = c->out[0] + r * K, dot = op_row_dot(g, y, K);  // (K)
        for (size_t k = 0; k < K; k++) d[k] = y[k] * (g[k] - dot);
    }
}

GPT_CLONES void op_log_softmax_backward(const op_call *c)
{
    size_t R = c->in_rows[0], K = c->in_columns[0];
    for (size_t r = 0; r < R; r++) {
        const float *g = c->in[0] + r * K, *y = c->in[1] + r * K; // (K)
        float *d = c->out[0] + r * K, sum = op_row_sum(g, K);     // (K)
        for (size_t k = 0; k < K; k++) d[k] = g[k] - exp_float(y[k]) * sum;
    }
}
