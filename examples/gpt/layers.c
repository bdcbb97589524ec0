/* layers.c: see layers.h. Sums along C run in 16 lanes that are added at the end, so that they vectorise and keep one order. */
#include "layers.h"
#include "clones.h"
#include "elementary.h"
#include "matmul.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

GPT_INLINE float lanes_sum(const float lanes[LANES])
{
    float sum = 0.0f;
    for (size_t l = 0; l < LANES; l++) sum += lanes[l];
    return sum;
}

/* What a wrong index deserves. Made from bits, so that no compiler flag about finite mathematics can touch it. */
GPT_INLINE float no_number(void)
{
    return float_from_bits(0x7fc00000u);
}

/* ---- embedding --------------------------------------------------------------------------------------------------------------- */

void embedding_forward(precision format, float *out, const int32_t *tokens, const float *wte, const float *wpe, size_t B, size_t T,
                       size_t C, size_t V)
{
    for (size_t b = 0; b < B; b++) {
        for (size_t t = 0; t < T; t++) {
            int32_t token = tokens[b * T + t];
            float *o = out + (b * T + t) * C; // (C)
            for (size_t c = 0; c < C; c++)
                o[c] = token >= 0 && (size_t)token < V ? wte[(size_t)token * C + c] + wpe[t * C + c] : no_number();
        }
    }
    precision_round(format, out, B * T * C);
}

void embedding_backward(float *d_wte, float *d_wpe, const float *d_out, const int32_t *tokens, size_t B, size_t T, size_t C,
                        size_t V)
{
    for (size_t b = 0; b < B; b++) {
        for (size_t t = 0; t < T; t++) {
            int32_t token = tokens[b * T + t];
            const float *d = d_out + (b * T + t) * C; // (C)
            for (size_t c = 0; c < C; c++) d_wpe[t * C + c] += d[c];
            if (token < 0 || (size_t)token >= V) continue;
            for (size_t c = 0; c < C; c++) d_wte[(size_t)token * C + c] += d[c];
        }
    }
}

/* ---- layer norm -------------------------------------------------------------------------------------------------------------- */

GPT_INLINE float row_sum(const float *x, size_t C)
{
    float lanes[LANES] = {0};
    size_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += x[c + l];
    for (; c < C; c++) lanes[c % LANES] += x[c];
    return lanes_sum(lanes);
}

GPT_INLINE float row_squares_about(const float *x, float mean, size_t C)
{
    float lanes[LANES] = {0};
    size_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += (x[c + l] - mean) * (x[c + l] - mean);
    for (; c < C; c++) lanes[c % LANES] += (x[c] - mean) * (x[c] - mean);
    return lanes_sum(lanes);
}

GPT_INLINE float row_dot(const float *x, const float *y, size_t C)
{
    float lanes[LANES] = {0};
    size_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += x[c + l] * y[c + l];
    for (; c < C; c++) lanes[c % LANES] += x[c] * y[c];
    return lanes_sum(lanes);
}

GPT_CLONES void layer_norm_forward(precision format, float *out, float *mean, float *rstd, const float *in, const float *weight,
                                   const float *bias, size_t N, size_t C)
{
    const float epsilon = 1e-5f;
    for (size_t n = 0; n < N; n++) {
        const float *x = in + n * C; // (C)
        float *o = out + n * C;      // (C)
        float m = row_sum(x, C) / (float)C;
        float s = 1.0f / sqrtf(row_squares_about(x, m, C) / (float)C + epsilon);
        for (size_t c = 0; c < C; c++) o[c] = (x[c] - m) * s * weight[c] + bias[c];
        mean[n] = m;
        rstd[n] = s;
    }
    precision_round(format, out, N * C);
}

GPT_CLONES void layer_norm_backward(precision format, float *d_in, float *d_weight, float *d_bias, const float *d_out,
                                    const float *in, const float *weight, const float *mean, const float *rstd, size_t N, size_t C)
{
    for (size_t n = 0; n < N; n++) {
        const float *x = in + n * C, *dy = d_out + n * C; // (C)
        float *dx = d_in + n * C;                         // (C)
        float m = mean[n], s = rstd[n];
        /* dx first holds the gradient of the normalised value, and x is normalised again instead of being stored. */
        for (size_t c = 0; c < C; c++) {
            d_bias[c] += dy[c];
            d_weight[c] += dy[c] * ((x[c] - m) * s);
            dx[c] = dy[c] * weight[c];
        }
        float d_mean = row_sum(dx, C) / (float)C, d_spread = 0.0f;
        d_spread = (row_dot(dx, x, C) - m * row_sum(dx, C)) * s / (float)C;
        for (size_t c = 0; c < C; c++) dx[c] = (dx[c] - d_mean - (x[c] - m) * s * d_spread) * s;
    }
    precision_round(format, d_in, N * C);
}

/* ---- linear ------------------------------------------------------------------------------------------------------------------ */

void linear_forward(precision format, float *out, const float *in, const float *weight, const float *bias, size_t N, size_t C,
                    size_t O, float *scratch)
{
    transpose(scratch, weight, C, O, C);                            // (C,O)
    matmul(out, O, (matrix){in, C, 1}, scratch, O, N, O, C, false); // (N,O)
    for (size_t n = 0; bias && n < N; n++)
        for (size_t o = 0; o < O; o++) out[n * O + o] += bias[o];
    precision_round(format, out, N * O);
}

void linear_backward(precision format, float *d_in, float *d_weight, float *d_bias, const float *d_out, const float *in,
                     const float *weight, size_t N, size_t C, size_t O)
{
    matmul(d_in, C, (matrix){d_out, O, 1}, weight, C, N, C, O, false); // (N,C) = (N,O) (O,C)
    matmul(d_weight, C, (matrix){d_out, 1, O}, in, C, O, C, N, true);  // (O,C) += (N,O)^T (N,C)
    for (size_t n = 0; d_bias && n < N; n++)
        for (size_t o = 0; o < O; o++) d_bias[o] += d_out[n * O + o];
    precision_round(format, d_in, N * C);
}

/* ---- attention --------------------------------------------------------------------------------------------------------------- */

/* Where the draws of one head begin: on a multiple of 4, as dropout asks. */
static uint64_t head_draws(size_t head, size_t T)
{
    return (uint64_t)head * ((T * T + 3) / 4 * 4);
}

size_t attention_scratch(size_t T, size_t HS)
{
    return 2 * T * T + T * HS;
}

GPT_CLONES static void causal_softmax(precision format, float *scores, size_t T, float scale)
{
    for (size_t t = 0; t < T; t++) {
        float *row = scores + t * T; // (T); positions after t are not seen
        float max = -INFINITY, sum = 0.0f;
        for (size_t u = 0; u <= t; u++) {
            row[u] *= scale;
            if (format == PRECISION_FP16) row[u] = round_fp16(row[u]);
            if (format == PRECISION_BF16) row[u] = round_bf16(row[u]);
            max = row[u] > max ? row[u] : max;
        }
        for (size_t u = 0; u <= t; u++) row[u] = exp_float(row[u] - max);
        for (size_t u = 0; u <= t; u++) sum += row[u];
        for (size_t u = 0; u <= t; u++) row[u] /= sum;
        for (size_t u = t + 1; u < T; u++) row[u] = 0.0f;
    }
    precision_round(format, scores, T * T);
}

/* d_scores holds the gradient of the probabilities on entry, that of the raw scores (before the scale) on return. */
GPT_CLONES static void causal_softmax_backward(precision format, float *d_scores, const float *att, size_t T, float scale)
{
    for (size_t t = 0; t < T; t++) {
        float *d = d_scores + t * T;  // (T)
        const float *a = att + t * T; // (T)
        float dot = row_dot(a, d, t + 1);
        for (size_t u = 0; u <= t; u++) d[u] = a[u] * (d[u] - dot);
        for (size_t u = t + 1; u < T; u++) d[u] = 0.0f;
    }
    precision_round(format, d_scores, T * T);
    for (size_t i = 0; i < T * T; i++) d_scores[i] *= scale;
    precision_round(format, d_scores, T * T);
}

void attention_forward(precision format, float *out, float *att, const float *qkv, attention_shape shape, float probability,
                       const rng_stream *stream, float *scratch)
{
    size_t T = shape.T, C = shape.C, HS = C / shape.NH;
    float scale = 1.0f / sqrtf((float)HS);
    float *dropped = scratch, *key_t = scratch + 2 * T * T; // (T,T) (HS,T)
    for (size_t b = 0; b < shape.B; b++) {
        for (size_t h = 0; h < shape.NH; h++) {
            const float *query = qkv + b * T * 3 * C + h * HS, *key = query + C, *value = key + C; // (T,HS), rows 3C apart
            size_t at = (b * shape.NH + h) * T * T;
            float *a = att + at; // (T,T)
            transpose(key_t, key, 3 * C, T, HS);
            matmul(a, T, (matrix){query, 3 * C, 1}, key_t, T, T, T, HS, false);
            precision_round(format, a, T * T);
            causal_softmax(format, a, T, scale);
            memcpy(dropped, a, T * T * sizeof *a);
            dropout(stream, head_draws(b * shape.NH + h, T), probability, dropped, T * T);
            precision_round(format, dropped, T * T);
            matmul(out + b * T * C + h * HS, C, (matrix){dropped, T, 1}, value, 3 * C, T, HS, T, false); // (T,HS)
        }
    }
    precision_round(format, out, shape.B * T * C);
}

void attention_backward(precision format, float *d_qkv, const float *d_out, const float *att, const float *qkv,
                        attention_shape shape, float probability, const rng_stream *stream, float *scratch)
{
    size_t T = shape.T, C = shape.C, HS = C / shape.NH;
    float scale = 1.0f / sqrtf((float)HS);
    float *dropped = scratch, *d_att = scratch + T * T, *value_t = d_att + T * T; // (T,T) (T,T) (HS,T)
    for (size_t b = 0; b < shape.B; b++) {
        for (size_t h = 0; h < shape.NH; h++) {
            size_t first = b * T * 3 * C + h * HS, at = (b * shape.NH + h) * T * T;
            const float *query = qkv + first, *key = query + C, *value = key + C;       // (T,HS)
            float *d_query = d_qkv + first, *d_key = d_query + C, *d_value = d_key + C; // (T,HS)
            const float *a = att + at, *dy = d_out + b * T * C + h * HS;                // (T,T) (T,HS)
            memcpy(dropped, a, T * T * sizeof *a);
            dropout(stream, head_draws(b * shape.NH + h, T), probability, dropped, T * T);
            precision_round(format, dropped, T * T);
            matmul(d_value, 3 * C, (matrix){dropped, 1, T}, dy, C, T, HS, T, false); // a^T dy
            transpose(value_t, value, 3 * C, T, HS);
            matmul(d_att, T, (matrix){dy, C, 1}, value_t, T, T, T, HS, false); // dy v^T
            precision_round(format, d_att, T * T);
            dropout(stream, head_draws(b * shape.NH + h, T), probability, d_att, T * T);
            precision_round(format, d_att, T * T);
            causal_softmax_backward(format, d_att, a, T, scale);
            matmul(d_query, 3 * C, (matrix){d_att, T, 1}, key, 3 * C, T, HS, T, false);
            matmul(d_key, 3 * C, (matrix){d_att, 1, T}, query, 3 * C, T, HS, T, false);
        }
    }
    precision_round(format, d_qkv, shape.B * T * 3 * C);
}

/* ---- gelu, residual ---------------------------------------------------------------------------------------------------------- */

/* The tanh form of GPT-2: x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
static const float GELU_SLOPE = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

GPT_CLONES void gelu_forward(precision format, float *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = in[i];
        out[i] = 0.5f * x * (1.0f + tanh_float(GELU_SLOPE * (x + GELU_CUBIC * x * x * x)));
    }
    precision_round(format, out, n);
}

GPT_CLONES void gelu_backward(precision format, float *d_in, const float *d_out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = in[i], th = tanh_float(GELU_SLOPE * (x + GELU_CUBIC * x * x * x));
        float slope = 0.5f * (1.0f + th) + 0.5f * x * (1.0f - th * th) * GELU_SLOPE * (1.0f + 3.0f * GELU_CUBIC * x * x);
        d_in[i] = slope * d_out[i];
    }
    precision_round(format, d_in, n);
}

GPT_CLONES void residual_forward(precision format, float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
    precision_round(format, out, n);
}

void residual_backward(precision format, float *d_stream, const float *d_branch, size_t n)
{
    residual_forward(format, d_stream, d_stream, d_branch, n);
}

/* ---- cross-entropy ----------------------------------------------------------------------------------------------------------- */

GPT_CLONES double cross_entropy(precision format, float *d_logits, const float *logits, loss_targets of, double d_loss, size_t N,
                                size_t V)
{
    double sum = 0.0, weight_sum = 0.0;
    for (size_t n = 0; n < N; n++)
        if (of.targets[n] != of.ignore) weight_sum += of.weights ? (double)of.weights[n] : 1.0;
    for (size_t n = 0; n < N; n++) {
        const float *x = logits + n * V; // (V)
        float *d = d_logits + n * V;     // (V)
        int32_t target = of.targets[n];
        if (target == of.ignore) {
            memset(d, 0, V * sizeof *d);
            continue;
        }
        float max = x[0], weight = of.weights ? of.weights[n] : 1.0f;
        for (size_t v = 1; v < V; v++) max = x[v] > max ? x[v] : max;
        for (size_t v = 0; v < V; v++) d[v] = exp_float(x[v] - max);
        float total = row_sum(d, V), d_row = (float)((double)weight * d_loss / weight_sum);
        int known = target >= 0 && (size_t)target < V;
        float right = known ? d[target] / total : 0.0f;
        sum += (double)weight * (known ? log((double)total) + (double)max - (double)x[target] : (double)no_number());
        for (size_t v = 0; v < V; v++) d[v] = known ? d[v] / total * d_row : no_number();
        if (known) d[target] = (right - 1.0f) * d_row;
    }
    precision_round(format, d_logits, N * V);
    return sum / weight_sum;
}
