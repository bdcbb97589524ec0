/* ops_elementwise.c: operators that treat each element alone, forward and backward, and those whose second operand is spread. */
#include "elementary.h"
#include "ops.h"

#include <math.h>
#include <string.h>

/* The tanh form of GPT-2: x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
static const float GELU_SLOPE = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

GPT_INLINE float gelu(float a)
{
    return 0.5f * a * (1.0f + tanh_float(GELU_SLOPE * (a + GELU_CUBIC * a * a * a)));
}

GPT_INLINE float gelu_slope(float a)
{
    float th = tanh_float(GELU_SLOPE * (a + GELU_CUBIC * a * a * a));
    return 0.5f * (1.0f + th) + 0.5f * a * (1.0f - th * th) * GELU_SLOPE * (1.0f + 3.0f * GELU_CUBIC * a * a);
}

GPT_INLINE float clamp(float a, float low, float high)
{
    float raised = a < low ? low : a; /* comparisons with NaN are false, so NaN stays */
    return raised > high ? high : raised;
}

GPT_INLINE float nan_to_num(float a, float largest)
{
    uint32_t bits = float_bits(a), magnitude = bits & 0x7fffffffu;
    uint32_t finite = magnitude == 0x7f800000u ? (bits & 0x80000000u) | float_bits(largest) : bits;
    return float_from_bits(magnitude > 0x7f800000u ? 0u : finite);
}

/* ---- two operands ------------------------------------------------------------------------------------------------------------ */

GPT_INLINE float combine(gpt_kind kind, float a, float b)
{
    switch (kind) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    default: return a / b;
    }
}

/* Inlined with a constant kind, so that each loop holds one operation. */
GPT_INLINE void binary(gpt_kind kind, const op_call *c)
{
    const float *a = c->in[0], *b = c->in[1];
    float *out = c->out[0];
    size_t R = c->in_rows[0], K = c->in_columns[0];
    switch (c->op->spread) {
    case SPREAD_ROW:
        for (size_t r = 0; r < R; r++)
            for (size_t k = 0; k < K; k++) out[r * K + k] = combine(kind, a[r * K + k], b[r]);
        break;
    case SPREAD_COLUMN:
        for (size_t r = 0; r < R; r++)
            for (size_t k = 0; k < K; k++) out[r * K + k] = combine(kind, a[r * K + k], b[k]);
        break;
    case SPREAD_ONE:
        for (size_t i = 0; i < R * K; i++) out[i] = combine(kind, a[i], b[0]);
        break;
    default:
        for (size_t i = 0; i < R * K; i++) out[i] = combine(kind, a[i], b[i]);
    }
}

/* ---- one operand ------------------------------------------------------------------------------------------------------------- */

GPT_INLINE float change(gpt_kind kind, float a, float x, float y)
{
    switch (kind) {
    case OP_ADD_NUMBER: return a + x;
    case OP_MUL_NUMBER: return a * x;
    case OP_SQUARE: return a * a;
    case OP_SQRT: return sqrtf(a);
    case OP_RSQRT: return 1.0f / sqrtf(a);
    case OP_EXP: return exp_float(a);
    case OP_LOG: return (float)log((double)a);
    case OP_LOG1P: return (float)log1p((double)a);
    case OP_SIGMOID: return 1.0f / (1.0f + exp_float(-a));
    case OP_RECIPROCAL: return 1.0f / a;
    case OP_GELU: return gelu(a);
    case OP_CLAMP: return clamp(a, x, y);
    case OP_NAN_TO_NUM: return nan_to_num(a, y);
    default: return a;
    }
}

GPT_INLINE void unary(gpt_kind kind, const op_call *c)
{
    const float *a = c->in[0];
    float *out = c->out[0];
    size_t n = c->in_rows[0] * c->in_columns[0];
    float x = c->x, y = kind == OP_NAN_TO_NUM ? precision_max(c->format) : c->y;
    for (size_t i = 0; i < n; i++) out[i] = change(kind, a[i], x, y);
}

GPT_INLINE void where_less(const op_call *c)
{
    const float *condition = c->in[0], *a = c->in[1], *b = c->in[2];
    float *out = c->out[0], x = c->x;
    size_t n = c->in_rows[0] * c->in_columns[0];
    for (size_t i = 0; i < n; i++) out[i] = condition[i] < x ? a[i] : b[i];
}

GPT_CLONES void op_elementwise(const op_call *c)
{
    switch (c->op->kind) {
    case OP_ADD: binary(OP_ADD, c); break;
    case OP_SUB: binary(OP_SUB, c); break;
    case OP_MUL: binary(OP_MUL, c); break;
    case OP_DIV: binary(OP_DIV, c); break;
    case OP_ADD_NUMBER: unary(OP_ADD_NUMBER, c); break;
    case OP_MUL_NUMBER: unary(OP_MUL_NUMBER, c); break;
    case OP_SQUARE: unary(OP_SQUARE, c); break;
    case OP_SQRT: unary(OP_SQRT, c); break;
    case OP_RSQRT: unary(OP_RSQRT, c); break;
    case OP_EXP: unary(OP_EXP, c); break;
    case OP_LOG: unary(OP_LOG, c); break;
    case OP_LOG1P: unary(OP_LOG1P, c); break;
    case OP_SIGMOID: unary(OP_SIGMOID, c); break;
    case OP_RECIPROCAL: unary(OP_RECIPROCAL, c); break;
    case OP_GELU: unary(OP_GELU, c); break;
    case OP_CLAMP: unary(OP_CLAMP, c); break;
    case OP_NAN_TO_NUM: unary(OP_NAN_TO_NUM, c); break;
    case OP_WHERE_LESS: where_less(c); break;
    default: memcpy(c->out[0], c->in[0], c->in_rows[0] * c->in_columns[0] * sizeof(float));
    }
}

/* ---- backward of one operand ------------------------------------------------------------------------------------------------- */

/* s is what forward kept: its input or its output, as program.h says for each kind. */
GPT_INLINE float change_back(gpt_kind kind, float g, float s, float x, float y)
{
    switch (kind) {
    case OP_SQUARE_BACKWARD: return 2.0f * g * s;
    case OP_RECIPROCAL_BACKWARD: return -g * s * s;
    case OP_SQRT_BACKWARD: return g / (2.0f * s);
    case OP_RSQRT_BACKWARD: return -0.5f * g * s * s * s;
    case OP_LOG_BACKWARD: return g / s;
    case OP_LOG1P_BACKWARD: return g / (1.0f + s);
    case OP_EXP_BACKWARD: return g * s;
    case OP_SIGMOID_BACKWARD: return g * s * (1.0f - s);
    case OP_CLAMP_BACKWARD: return s >= x && s <= y ? g : 0.0f;
    case OP_GELU_BACKWARD: return gelu_slope(s) * g;
    default: return (float_bits(s) & 0x7f800000u) == 0x7f800000u ? 0.0f : g; /* OP_NAN_TO_NUM_BACKWARD */
    }
}

GPT_INLINE void unary_back(gpt_kind kind, const op_call *c)
{
    const float *g = c->in[0], *s = c->in[1];
    float *out = c->out[0], x = c->x, y = c->y;
    size_t n = c->in_rows[0] * c->in_columns[0];
    for (size_t i = 0; i < n; i++) out[i] = change_back(kind, g[i], s[i], x, y);
}

GPT_INLINE void where_back(const op_call *c)
{
    const float *g = c->in[0], *condition = c->in[1];
    float *d_a = c->out[0], *d_b = c->out[1], x = c->x;
    size_t n = c->in_rows[0] * c->in_columns[0];
    for (size_t i = 0; i < n; i++) d_a[i] = condition[i] < x ? g[i] : 0.0f;
    for (size_t i = 0; d_b && i < n; i++) d_b[i] = condition[i] < x ? 0.0f : g[i];
}

GPT_CLONES void op_elementwise_backward(const op_call *c)
{
    switch (c->op->kind) {
    case OP_SQUARE_BACKWARD: unary_back(OP_SQUARE_BACKWARD, c); break;
    case OP_RECIPROCAL_BACKWARD: unary_back(OP_RECIPROCAL_BACKWARD, c); break;
    case OP_SQRT_BACKWARD: unary_back(OP_SQRT_BACKWARD, c); break;
    case OP_RSQRT_BACKWARD: unary_back(OP_RSQRT_BACKWARD, c); break;
    case OP_LOG_BACKWARD: unary_back(OP_LOG_BACKWARD, c); break;
    case OP_LOG1P_BACKWARD: unary_back(OP_LOG1P_BACKWARD, c); break;
    case OP_EXP_BACKWARD: unary_back(OP_EXP_BACKWARD, c); break;
    case OP_SIGMOID_BACKWARD: unary_back(OP_SIGMOID_BACKWARD, c); break;
    case OP_CLAMP_BACKWARD: unary_back(OP_CLAMP_BACKWARD, c); break;
    case OP_GELU_BACKWARD: unary_back(OP_GELU_BACKWARD, c); break;
    case OP_WHERE_BACKWARD: where_back(c); break;
    default: unary_back(OP_NAN_TO_NUM_BACKWARD, c);
    }
}

/* ---- backward of a product or quotient --------------------------------------------------------------------------------------- */

GPT_INLINE float second_of(gpt_spread spread, const float *b, size_t row, size_t column, size_t K)
{
    return spread == SPREAD_ROW ? b[row] : spread == SPREAD_COLUMN ? b[column] : spread == SPREAD_ONE ? b[0] : b[row * K + column];
}

/* d_b has the shape of b: the terms of the row are put out, added up or added in, as b was spread over a. */
GPT_INLINE void add_terms(gpt_spread spread, float *d_b, const float *terms, size_t row, size_t K)
{
    if (spread == SPREAD_ROW) d_b[row] = op_row_sum(terms, K);
    if (spread == SPREAD_ONE) d_b[0] = (row ? d_b[0] : 0.0f) + op_row_sum(terms, K);
    for (size_t k = 0; spread == SPREAD_COLUMN && k < K; k++) d_b[k] = (row ? d_b[k] : 0.0f) + terms[k];
    for (size_t k = 0; spread == SPREAD_SAME && k < K; k++) d_b[row * K + k] = terms[k];
}

GPT_CLONES void op_spread_backward(const op_call *c)
{
    const float *g = c->in[0], *a = c->in[1], *b = c->in[2];
    float *d_a = c->out[0], *d_b = c->out[1], *terms = c->scratch; // terms (K)
    size_t R = c->in_rows[0], K = c->in_columns[0];
    gpt_spread spread = c->op->spread;
    int quotient = c->op->kind == OP_DIV_BACKWARD;
    for (size_t r = 0; r < R; r++) {
        const float *gr = g + r * K, *ar = a + r * K; // (K)
        for (size_t k = 0; k < K; k++) {
            float second = second_of(spread, b, r, k, K);
            d_a[r * K + k] = quotient ? gr[k] / second : gr[k] * second;
            terms[k] = quotient ? -gr[k] * (ar[k] / second / second) : gr[k] * ar[k];
        }
        if (d_b) add_terms(spread, d_b, terms, r, K);
    }
}

/* ---- dropout ----------------------------------------------------------------------------------------------------------------- */

/* See gpt_drop_factors. Multiplies x in place. */
static void drop(const gpt_op *op, const gpt_run_shape *shape, float probability, float *x, size_t count)
{
    rng_stream stream = {.seed = shape->seed,
                         .site = op->site,
                         .layer = op->layer,
                         .micro_step = (uint32_t)shape->place.micro_step,
                         .step = (uint32_t)shape->place.step,
                         .rank = (uint32_t)shape->place.rank};
    size_t each = count / shape->B, heads = each == shape->NH * shape->T * shape->T ? shape->NH : 1, part = each / heads;
    size_t room = (part + 3) / 4 * 4;
    for (size_t b = 0; b < shape->B; b++)
        for (size_t h = 0; h < heads; h++)
            dropout(&stream, (uint64_t)((shape->row_ids ? shape->row_ids[b] : b) * heads + h) * room, probability,
                    x + b * each + h * part, part);
}

void gpt_drop_factors(const gpt_op *op, const gpt_run_shape *shape, double probability, float *factors, size_t count)
{
    for (size_t i = 0; i < count; i++) factors[i] = 1.0f;
    drop(op, shape, (float)probability, factors, count);
}

void op_dropout(const op_call *c)
{
    size_t count = c->in_rows[0] * c->in_columns[0];
    memcpy(c->out[0], c->in[0], count * sizeof(float));
    drop(c->op, c->shape, c->x, c->out[0], count);
}
