/* reference_backward.c: the backward operators in double; see reference.h. in[0] is the gradient of the output, called g. */
#include "reference.h"

#include <math.h>

static size_t count_of(const reference_call *call)
{
    return call->R * call->K;
}

/* ---- element by element ------------------------------------------------------------------------------------------------------ */

/* The slope of x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3): by the product rule. */
static double gelu_slope(double a)
{
    double root = sqrt(2.0 / 3.14159265358979323846), u = root * (a + 0.044715 * a * a * a), th = tanh(u);
    return 0.5 * (1.0 + th) + 0.5 * a * (1.0 - th * th) * root * (1.0 + 3.0 * 0.044715 * a * a);
}

static double slope_times(const reference_call *call, double g, double kept)
{
    switch (call->op->kind) {
    case OP_SQUARE_BACKWARD: return 2.0 * g * kept;
    case OP_RECIPROCAL_BACKWARD: return -g * kept * kept;
    case OP_SQRT_BACKWARD: return g / (2.0 * kept);
    case OP_RSQRT_BACKWARD: return -0.5 * g * kept * kept * kept;
    case OP_LOG_BACKWARD: return g / kept;
    case OP_LOG1P_BACKWARD: return g / (1.0 + kept);
    case OP_EXP_BACKWARD: return g * kept;
    case OP_SIGMOID_BACKWARD: return g * kept * (1.0 - kept);
    case OP_GELU_BACKWARD: return g * gelu_slope(kept);
    case OP_CLAMP_BACKWARD: return kept >= call->x && kept <= call->op->y ? g : 0.0;
    default: return reference_is_bad(kept) ? 0.0 : g; /* OP_NAN_TO_NUM_BACKWARD */
    }
}

static void of_one(const reference_call *call)
{
    for (size_t i = 0; i < count_of(call); i++) call->out[0][i] = slope_times(call, call->in[0][i], call->in[1][i]);
}

/* What each element does to b, summed to the shape of b. */
static void of_two(const reference_call *call)
{
    int divides = call->op->kind == OP_DIV_BACKWARD;
    for (size_t i = 0; call->op->out_count > 1 && i < call->out_counts[1]; i++) call->out[1][i] = 0.0;
    for (size_t i = 0; i < count_of(call); i++) {
        size_t at = reference_spread(call, i);
        double g = call->in[0][i], a = call->in[1][i], b = call->in[2][at];
        call->out[0][i] = divides ? g / b : g * b;
        if (call->op->out_count > 1) call->out[1][at] += divides ? -g * a / (b * b) : g * a;
    }
}

static void of_where(const reference_call *call)
{
    for (size_t i = 0; i < count_of(call); i++) {
        int first = call->in[1][i] < call->x;
        call->out[0][i] = first ? call->in[0][i] : 0.0;
        if (call->op->out_count > 1) call->out[1][i] = first ? 0.0 : call->in[0][i];
    }
}

/* ---- along rows -------------------------------------------------------------------------------------------------------------- */

static void of_sums(const reference_call *call)
{
    for (size_t i = 0; i < count_of(call); i++) {
        double g = call->in[0][call->op->kind == OP_SUM_BACKWARD ? 0 : i / call->K];
        call->out[0][i] = call->op->kind == OP_ROW_MEAN_BACKWARD ? g / (double)call->K : g;
    }
}

static void of_row_max(const reference_call *call)
{
    for (size_t r = 0; r < call->R; r++) {
        int given = 0;
        for (size_t k = 0; k < call->K; k++) {
            size_t i = r * call->K + k;
            int is_it = !given && call->in[1][i] == call->in[2][r];
            call->out[0][i] = is_it ? call->in[0][r] : 0.0;
            given |= is_it;
        }
    }
}

/* The mean moves with a, but the sum of a - mean is 0, so it adds nothing. */
static void of_row_var(const reference_call *call)
{
    for (size_t i = 0; i < count_of(call); i++) {
        size_t r = i / call->K;
        call->out[0][i] = call->in[0][r] * 2.0 * (call->in[1][i] - call->in[2][r]) / ((double)call->K - call->x);
    }
}

static void of_softmax(const reference_call *call)
{
    for (size_t r = 0; r < call->R; r++) {
        const double *g = call->in[0] + r * call->K, *y = call->in[1] + r * call->K;
        double *out = call->out[0] + r * call->K, sum = 0.0;
        int is_log = call->op->kind == OP_LOG_SOFTMAX_BACKWARD;
        for (size_t k = 0; k < call->K; k++) sum += is_log ? g[k] : g[k] * y[k];
        for (size_t k = 0; k < call->K; k++) out[k] = is_log ? g[k] - exp(y[k]) * sum : y[k] * (g[k] - sum);
    }
}

/* ---- layers ------------------------------------------------------------------------------------------------------------------ */

/* (g, a, mean, rstd, weight); with n = (a - mean) rstd: d_a = rstd (d_n - mean(d_n) - n mean(d_n n)), d_n = g weight. */
static void of_layer_norm(const reference_call *call)
{
    size_t K = call->K;
    for (size_t k = 0; k < K; k++)
        for (int which = 1; which < call->op->out_count; which++) call->out[which][k] = 0.0;
    for (size_t r = 0; r < call->R; r++) {
        const double *g = call->in[0] + r * K, *a = call->in[1] + r * K, *weight = call->in[4];
        double mean = call->in[2][r], rstd = call->in[3][r], d_sum = 0.0, dot = 0.0;
        for (size_t k = 0; k < K; k++) {
            double n = (a[k] - mean) * rstd;
            d_sum += g[k] * weight[k];
            dot += g[k] * weight[k] * n;
            if (call->op->out_count > 1) call->out[1][k] += g[k] * n;
            if (call->op->out_count > 2) call->out[2][k] += g[k];
        }
        for (size_t k = 0; k < K; k++)
            call->out[0][r * K + k] = rstd * (g[k] * weight[k] - d_sum / (double)K - (a[k] - mean) * rstd * dot / (double)K);
    }
}

/* (g (R,O), a (R,K), weight (O,K)) */
static void of_linear(const reference_call *call)
{
    size_t R = call->R, K = call->K, O = call->in_counts[2] / K;
    const double *g = call->in[0], *a = call->in[1], *weight = call->in[2];
    for (size_t i = 0; i < R * K; i++) {
        double sum = 0.0;
        for (size_t o = 0; o < O; o++) sum += g[i / K * O + o] * weight[o * K + i % K];
        call->out[0][i] = sum;
    }
    for (size_t i = 0; call->op->out_count > 1 && i < O * K; i++) {
        double sum = 0.0;
        for (size_t r = 0; r < R; r++) sum += g[r * O + i / K] * a[r * K + i % K];
        call->out[1][i] = sum;
    }
    for (size_t o = 0; call->op->out_count > 2 && o < O; o++) {
        double sum = 0.0;
        for (size_t r = 0; r < R; r++) sum += g[r * O + o];
        call->out[2][o] = sum;
    }
}

static void of_mask(const reference_call *call)
{
    const gpt_run_shape *s = call->shape;
    for (size_t i = 0; i < call->out_counts[0]; i++) {
        size_t b = i / (s->NH * s->T * s->T), t = i / s->T % s->T, u = i % s->T;
        int hidden = u > t || (call->op->in_count > 1 && call->in[1][b * s->T + u] == 0.0);
        call->out[0][i] = hidden ? 0.0 : call->in[0][i];
    }
}

/* (g (B,NH,T,T), qkv) -> (B,T,2C): d_query[t] = sum over u of g[t,u] key[u]; d_key[u] = sum over t of g[t,u] query[t]. */
static void of_scores(const reference_call *call)
{
    const gpt_run_shape *s = call->shape;
    size_t T = s->T, C = s->C, HS = C / s->NH;
    for (size_t i = 0; i < s->B * T * 2 * C; i++) {
        size_t b = i / (T * 2 * C), place = i / (2 * C) % T, c = i % C, is_key = i % (2 * C) / C, h = c / HS;
        const double *g = call->in[0] + (b * s->NH + h) * T * T; // (T,T)
        double sum = 0.0;
        for (size_t other = 0; other < T; other++) {
            double with = call->in[1][(b * T + other) * 3 * C + (is_key ? 0 : C) + c];
            sum += with * (is_key ? g[other * T + place] : g[place * T + other]);
        }
        call->out[0][i] = sum;
    }
}

/* (g (B,T,C), probabilities (B,NH,T,T), qkv): d_probabilities[t,u] = g[t] value[u]; d_value[u] = sum over t of p[t,u] g[t]. */
static void of_heads(const reference_call *call)
{
    const gpt_run_shape *s = call->shape;
    size_t T = s->T, C = s->C, HS = C / s->NH;
    if (HS == 0) return;
    for (size_t i = 0; i < s->B * s->NH * T * T; i++) {
        size_t b = i / (s->NH * T * T), h = i / (T * T) % s->NH, t = i / T % T, u = i % T;
        double sum = 0.0;
        for (size_t c = h * HS; c < (h + 1) * HS; c++)
            sum += call->in[0][(b * T + t) * C + c] * call->in[2][(b * T + u) * 3 * C + 2 * C + c];
        call->out[0][i] = sum;
    }
    for (size_t i = 0; call->op->out_count > 1 && i < s->B * T * C; i++) {
        size_t b = i / (T * C), u = i / C % T, c = i % C;
        double sum = 0.0;
        for (size_t t = 0; t < T; t++)
            sum += call->in[1][((b * s->NH + c / HS) * T + t) * T + u] * call->in[0][(b * T + t) * C + c];
        call->out[1][i] = sum;
    }
}

/* (a (R,K), b (R,L)): each row of b behind that of a. */
static void of_join(const reference_call *call)
{
    size_t L = call->in_counts[1] / call->R, wide = call->K + L;
    for (size_t i = 0; i < call->R * wide; i++) {
        size_t r = i / wide, k = i % wide;
        call->out[0][i] = k < call->K ? call->in[0][r * call->K + k] : call->in[1][r * L + k - call->K];
    }
}

static void of_embedding(const reference_call *call)
{
    size_t rows = call->out_counts[0] / call->K;
    for (size_t i = 0; i < call->out_counts[0]; i++) call->out[0][i] = 0.0;
    for (size_t i = 0; i < count_of(call); i++) {
        double token = call->in[1][i / call->K];
        if (token >= 0.0 && token < (double)rows) call->out[0][(size_t)token * call->K + i % call->K] += call->in[0][i];
    }
}

static void of_nll(const reference_call *call)
{
    size_t R = call->in_counts[0], V = call->out_counts[0] / R;
    for (size_t i = 0; i < R * V; i++) {
        double target = call->in[1][i / V];
        int known = target >= 0.0 && target < (double)V, ignored = target == (double)GPT_IGNORE;
        call->out[0][i] = ignored ? 0.0 : !known ? (double)NAN : target == (double)(i % V) ? -call->in[0][i / V] : 0.0;
    }
}

reference_function *reference_backward(gpt_kind kind)
{
    switch (kind) {
    case OP_SQUARE_BACKWARD:
    case OP_RECIPROCAL_BACKWARD:
    case OP_NAN_TO_NUM_BACKWARD:
    case OP_SQRT_BACKWARD:
    case OP_RSQRT_BACKWARD:
    case OP_LOG_BACKWARD:
    case OP_LOG1P_BACKWARD:
    case OP_EXP_BACKWARD:
    case OP_SIGMOID_BACKWARD:
    case OP_CLAMP_BACKWARD:
    case OP_GELU_BACKWARD: return of_one;
    case OP_DIV_BACKWARD:
    case OP_MUL_BACKWARD: return of_two;
    case OP_WHERE_BACKWARD: return of_where;
    case OP_ROW_SUM_BACKWARD:
    case OP_ROW_MEAN_BACKWARD:
    case OP_SUM_BACKWARD: return of_sums;
    case OP_ROW_MAX_BACKWARD: return of_row_max;
    case OP_ROW_VAR_BACKWARD: return of_row_var;
    case OP_DROPOUT_BACKWARD: return reference_dropout;
    case OP_SOFTMAX_BACKWARD:
    case OP_LOG_SOFTMAX_BACKWARD: return of_softmax;
    case OP_LAYER_NORM_BACKWARD: return of_layer_norm;
    case OP_LINEAR_BACKWARD: return of_linear;
    case OP_MASK_BACKWARD: return of_mask;
    case OP_SCORES_BACKWARD: return of_scores;
    case OP_HEADS_BACKWARD: return of_heads;
    case OP_JOIN: return of_join;
    case OP_EMBEDDING_BACKWARD: return of_embedding;
    case OP_NLL_BACKWARD: return of_nll;
    default: return NULL;
    }
}
