/* reference.c: see reference.h. The forward operators, and what all of them need: who belongs to whom, and whether counts fit. */
#include "reference.h"

#include "rng.h"

#include <math.h>

/* ---- element by element ------------------------------------------------------------------------------------------------------ */

size_t reference_spread(const reference_call *call, size_t i)
{
    switch (call->op->spread) {
    case SPREAD_ROW: return i / call->K;
    case SPREAD_COLUMN: return i % call->K;
    case SPREAD_ONE: return 0;
    default: return i;
    }
}

static double sigmoid(double a)
{
    return 1.0 / (1.0 + exp(-a));
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as GPT-2 has it. */
static double gelu(double a)
{
    return 0.5 * a * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (a + 0.044715 * a * a * a)));
}

/* Comparisons with NaN are false, so NaN passes both. */
static double clamp(double a, double low, double high)
{
    double lifted = a < low ? low : a;
    return lifted > high ? high : lifted;
}

static double number_of(double a, precision format)
{
    if (reference_is_nan(a)) return 0.0;
    if (reference_is_bad(a)) return a > 0.0 ? (double)precision_max(format) : -(double)precision_max(format);
    return a;
}

static double of_one(const reference_call *call, double a)
{
    switch (call->op->kind) {
    case OP_ADD_NUMBER: return a + call->x;
    case OP_MUL_NUMBER: return a * call->x;
    case OP_SQUARE: return a * a;
    case OP_SQRT: return sqrt(a);
    case OP_RSQRT: return 1.0 / sqrt(a);
    case OP_EXP: return exp(a);
    case OP_LOG: return log(a);
    case OP_LOG1P: return log1p(a);
    case OP_SIGMOID: return sigmoid(a);
    case OP_RECIPROCAL: return 1.0 / a;
    case OP_GELU: return gelu(a);
    case OP_CLAMP: return clamp(a, call->x, call->op->y);
    case OP_NAN_TO_NUM: return number_of(a, call->format);
    default: return a; /* OP_COPY */
    }
}

static void one(const reference_call *call)
{
    for (size_t i = 0; i < call->R * call->K; i++) call->out[0][i] = of_one(call, call->in[0][i]);
}

static void two(const reference_call *call)
{
    for (size_t i = 0; i < call->R * call->K; i++) {
        double a = call->in[0][i], b = call->in[1][reference_spread(call, i)];
        gpt_kind kind = call->op->kind;
        call->out[0][i] = kind == OP_ADD ? a + b : kind == OP_SUB ? a - b : kind == OP_MUL ? a * b : a / b;
    }
}

static void where_less(const reference_call *call)
{
    for (size_t i = 0; i < call->R * call->K; i++) call->out[0][i] = call->in[0][i] < call->x ? call->in[1][i] : call->in[2][i];
}

/*
 * Draws belong to the row that a sample had in the whole batch. Where a sample has (NH,T,T) elements, each head begins its draws
 * on a multiple of 4.
 */
void reference_dropout(const reference_call *call)
{
    const gpt_run_shape *shape = call->shape;
    size_t count = call->R * call->K, each = count / shape->B, heads = each == shape->NH * shape->T * shape->T ? shape->NH : 1;
    size_t part = each / heads, room = (part + 3) / 4 * 4;
    rng_stream stream = {shape->seed,
                         call->op->site,
                         call->op->layer,
                         (uint32_t)shape->place.micro_step,
                         (uint32_t)shape->place.step,
                         (uint32_t)shape->place.rank};
    for (size_t i = 0; i < count; i++) {
        size_t sample = i / each, head = i % each / part, row = shape->row_ids ? shape->row_ids[sample] : sample;
        uint32_t word;
        rng_draw(&stream, (row * heads + head) * room + i % part, &word, 1);
        call->out[0][i] = call->in[0][i] * ((double)word >= call->x * 4294967296.0 ? 1.0 / (1.0 - call->x) : 0.0);
    }
}

/* ---- along rows -------------------------------------------------------------------------------------------------------------- */

static void sums(const reference_call *call)
{
    double divisor = call->op->kind == OP_ROW_MEAN ? (double)call->K : 1.0;
    for (size_t r = 0; r < call->R; r++) {
        double sum = 0.0;
        for (size_t k = 0; k < call->K; k++) sum += call->in[0][r * call->K + k];
        call->out[0][r] = sum / divisor;
    }
}

static void sum(const reference_call *call)
{
    double all = 0.0;
    for (size_t i = 0; i < call->R * call->K; i++) all += call->in[0][i];
    call->out[0][0] = all;
}

/* The largest of a row; NaN where there is one. */
static double largest(const double *row, size_t K)
{
    double max = row[0];
    for (size_t k = 1; k < K; k++)
        if (row[k] > max || reference_is_nan(row[k])) max = row[k];
    return max;
}

static void column_sum(const reference_call *call)
{
    for (size_t k = 0; k < call->K; k++) {
        double sum_of_column = 0.0;
        for (size_t r = 0; r < call->R; r++) sum_of_column += call->in[0][r * call->K + k];
        call->out[0][k] = sum_of_column;
    }
}

static void row_max(const reference_call *call)
{
    for (size_t r = 0; r < call->R; r++) call->out[0][r] = largest(call->in[0] + r * call->K, call->K);
}

static void row_var(const reference_call *call)
{
    for (size_t r = 0; r < call->R; r++) {
        double squares = 0.0;
        for (size_t k = 0; k < call->K; k++) {
            double d = call->in[0][r * call->K + k] - call->in[1][r];
            squares += d * d;
        }
        call->out[0][r] = squares / ((double)call->K - call->x);
    }
}

static void softmax(const reference_call *call)
{
    for (size_t r = 0; r < call->R; r++) {
        const double *a = call->in[0] + r * call->K;
        double *out = call->out[0] + r * call->K, max = largest(a, call->K), total = 0.0;
        for (size_t k = 0; k < call->K; k++) total += exp(a[k] - max);
        for (size_t k = 0; k < call->K; k++)
            out[k] = call->op->kind == OP_SOFTMAX ? exp(a[k] - max) / total : a[k] - max - log(total);
    }
}

/* ---- layers ------------------------------------------------------------------------------------------------------------------ */

static void embedding(const reference_call *call)
{
    uint64_t rows = call->in_counts[1] / call->K;
    for (size_t i = 0; i < call->R * call->K; i++) {
        double token = call->in[0][i / call->K];
        call->out[0][i] = token >= 0.0 && token < (double)rows ? call->in[1][(size_t)token * call->K + i % call->K] : (double)NAN;
    }
}

static void normalize(const reference_call *call)
{
    for (size_t i = 0; i < call->R * call->K; i++)
        call->out[0][i] = (call->in[0][i] - call->in[1][i / call->K]) * call->in[2][i / call->K];
}

static void affine(const reference_call *call)
{
    for (size_t i = 0; i < call->R * call->K; i++)
        call->out[0][i] = call->in[0][i] * call->in[1][i % call->K] + call->in[2][i % call->K];
}

static void linear(const reference_call *call)
{
    size_t O = call->in_counts[1] / call->K;
    for (size_t r = 0; r < call->R; r++) {
        for (size_t o = 0; o < O; o++) {
            double dot = 0.0;
            for (size_t k = 0; k < call->K; k++) dot += call->in[0][r * call->K + k] * call->in[1][o * call->K + k];
            call->out[0][r * O + o] = call->op->in_count > 2 ? dot + call->in[2][o] : dot;
        }
    }
}

/* Element (b,h,t,u) of (B,NH,T,T), taken apart. */
typedef struct pair_of_places {
    size_t b, h, t, u;
} pair_of_places;

static pair_of_places place_of(const gpt_run_shape *s, size_t i)
{
    return (pair_of_places){i / (s->NH * s->T * s->T), i / (s->T * s->T) % s->NH, i / s->T % s->T, i % s->T};
}

static void scores(const reference_call *call)
{
    const gpt_run_shape *s = call->shape;
    size_t HS = s->C / s->NH;
    for (size_t i = 0; i < call->out_counts[0]; i++) {
        pair_of_places p = place_of(s, i);
        const double *query = call->in[0] + (p.b * s->T + p.t) * 3 * s->C + p.h * HS;
        const double *key = call->in[0] + (p.b * s->T + p.u) * 3 * s->C + s->C + p.h * HS;
        double dot = 0.0;
        for (size_t c = 0; c < HS; c++) dot += query[c] * key[c];
        call->out[0][i] = dot;
    }
}

static void mask(const reference_call *call)
{
    const gpt_run_shape *s = call->shape;
    for (size_t i = 0; i < call->out_counts[0]; i++) {
        pair_of_places p = place_of(s, i);
        int hidden = p.u > p.t || (call->op->in_count > 1 && call->in[1][p.b * s->T + p.u] == 0.0);
        call->out[0][i] = hidden ? -(double)INFINITY : call->in[0][i];
    }
}

static void heads(const reference_call *call)
{
    const gpt_run_shape *s = call->shape;
    size_t HS = s->C / s->NH;
    for (size_t i = 0; i < call->out_counts[0]; i++) { // (B,T,C)
        size_t b = i / (s->T * s->C), t = i / s->C % s->T, c = i % s->C;
        const double *probability = call->in[0] + ((b * s->NH + c / HS) * s->T + t) * s->T; // (T)
        double dot = 0.0;
        for (size_t u = 0; u < s->T; u++) dot += probability[u] * call->in[1][(b * s->T + u) * 3 * s->C + 2 * s->C + c];
        call->out[0][i] = dot;
    }
}

static void nll(const reference_call *call)
{
    for (size_t r = 0; r < call->R; r++) {
        double target = call->in[1][r];
        int known = target >= 0.0 && target < (double)call->K;
        call->out[0][r] = target == (double)GPT_IGNORE ? 0.0 : known ? -call->in[0][r * call->K + (size_t)target] : (double)NAN;
    }
}

static void valid(const reference_call *call)
{
    for (size_t r = 0; r < call->R * call->K; r++) call->out[0][r] = call->in[0][r] == (double)GPT_IGNORE ? 0.0 : call->in[1][r];
}

/* ---- which, and how large ---------------------------------------------------------------------------------------------------- */

/*
 * How many elements an operator reads and makes, a letter each. R rows and K columns of the value `of` (-1: R is the count of the
 * first input, K the columns of the second):
 * N R*K   R   K   1   b by spread   W O*K, a weight   O   P R*O   A (B,NH,T,T)   Q (B,T,3C)   Y (B,T,2C)   X (B,T,C)   M (B,T)
 * T any number of rows of K   V any number a row   J both inputs   ? what follows may be missing
 */
typedef struct reference_row {
    gpt_kind kind;
    int of;
    const char *in, *out;
    reference_function *run; /* NULL: reference_backward has it */
} reference_row;

static const reference_row ROWS[] = {
    {OP_ADD, 0, "Nb", "N", two},
    {OP_SUB, 0, "Nb", "N", two},
    {OP_MUL, 0, "Nb", "N", two},
    {OP_DIV, 0, "Nb", "N", two},
    {OP_ADD_NUMBER, 0, "N", "N", one},
    {OP_MUL_NUMBER, 0, "N", "N", one},
    {OP_SQUARE, 0, "N", "N", one},
    {OP_SQRT, 0, "N", "N", one},
    {OP_RSQRT, 0, "N", "N", one},
    {OP_EXP, 0, "N", "N", one},
    {OP_LOG, 0, "N", "N", one},
    {OP_LOG1P, 0, "N", "N", one},
    {OP_SIGMOID, 0, "N", "N", one},
    {OP_RECIPROCAL, 0, "N", "N", one},
    {OP_GELU, 0, "N", "N", one},
    {OP_CLAMP, 0, "N", "N", one},
    {OP_WHERE_LESS, 0, "NNN", "N", where_less},
    {OP_NAN_TO_NUM, 0, "N", "N", one},
    {OP_DROPOUT, 0, "N", "N", reference_dropout},
    {OP_COPY, 0, "N", "N", one},
    {OP_ROW_SUM, 0, "N", "R", sums},
    {OP_ROW_MEAN, 0, "N", "R", sums},
    {OP_ROW_MAX, 0, "N", "R", row_max},
    {OP_ROW_VAR, 0, "NR", "R", row_var},
    {OP_SUM, 0, "N", "1", sum},
    {OP_COLUMN_SUM, 0, "N", "K", column_sum},
    {OP_SOFTMAX, 0, "N", "N", softmax},
    {OP_LOG_SOFTMAX, 0, "N", "N", softmax},
    {OP_EMBEDDING, -1, "RT", "N", embedding},
    {OP_NORMALIZE, 0, "NRR", "N", normalize},
    {OP_AFFINE, 0, "NKK", "N", affine},
    {OP_LINEAR, 0, "NW?O", "P", linear},
    {OP_SCORES, 0, "Q", "A", scores},
    {OP_MASK, 0, "A?M", "A", mask},
    {OP_HEADS, 0, "AQ", "X", heads},
    {OP_NLL, 0, "NR", "R", nll},
    {OP_VALID, 0, "NN", "N", valid},
    {OP_ROW_SUM_BACKWARD, 1, "RN", "N", NULL},
    {OP_ROW_MEAN_BACKWARD, 1, "RN", "N", NULL},
    {OP_ROW_VAR_BACKWARD, 1, "RNR", "N", NULL},
    {OP_ROW_MAX_BACKWARD, 1, "RNR", "N", NULL},
    {OP_SUM_BACKWARD, 1, "1N", "N", NULL},
    {OP_SQUARE_BACKWARD, 0, "NN", "N", NULL},
    {OP_RECIPROCAL_BACKWARD, 0, "NN", "N", NULL},
    {OP_NAN_TO_NUM_BACKWARD, 0, "NN", "N", NULL},
    {OP_MASK_BACKWARD, 0, "A?M", "A", NULL},
    {OP_SQRT_BACKWARD, 0, "NN", "N", NULL},
    {OP_RSQRT_BACKWARD, 0, "NN", "N", NULL},
    {OP_LOG_BACKWARD, 0, "NN", "N", NULL},
    {OP_LOG1P_BACKWARD, 0, "NN", "N", NULL},
    {OP_EXP_BACKWARD, 0, "NN", "N", NULL},
    {OP_SIGMOID_BACKWARD, 0, "NN", "N", NULL},
    {OP_DIV_BACKWARD, 0, "NNb", "N?b", NULL},
    {OP_MUL_BACKWARD, 0, "NNb", "N?b", NULL},
    {OP_WHERE_BACKWARD, 0, "NN", "N?N", NULL},
    {OP_CLAMP_BACKWARD, 0, "NN", "N", NULL},
    {OP_GELU_BACKWARD, 0, "NN", "N", NULL},
    {OP_DROPOUT_BACKWARD, 0, "N", "N", NULL},
    {OP_SOFTMAX_BACKWARD, 0, "NN", "N", NULL},
    {OP_LOG_SOFTMAX_BACKWARD, 0, "NN", "N", NULL},
    {OP_LAYER_NORM_BACKWARD, 1, "NNRRK", "N?KK", NULL},
    {OP_LINEAR_BACKWARD, 1, "PNW", "N?WO", NULL},
    {OP_SCORES_BACKWARD, 0, "AQ", "Y", NULL},
    {OP_HEADS_BACKWARD, 0, "XAQ", "A?X", NULL},
    {OP_JOIN, 0, "NV", "J", NULL},
    {OP_EMBEDDING_BACKWARD, 0, "NR", "T", NULL},
    {OP_NLL_BACKWARD, 0, "RR", "V", NULL},
};

static size_t by_spread(const reference_call *call)
{
    switch (call->op->spread) {
    case SPREAD_ROW: return call->R;
    case SPREAD_COLUMN: return call->K;
    case SPREAD_ONE: return 1;
    default: return call->R * call->K;
    }
}

static int fits(const reference_call *call, char letter, size_t O, size_t count)
{
    const gpt_run_shape *s = call->shape;
    size_t R = call->R, K = call->K;
    switch (letter) {
    case 'N': return count == R * K;
    case 'R': return count == R;
    case 'K': return count == K;
    case '1': return count == 1;
    case 'b': return count == by_spread(call);
    case 'W': return O > 0 && count == O * K;
    case 'O': return count == O;
    case 'P': return O > 0 && count == R * O;
    case 'A': return count == s->B * s->NH * s->T * s->T;
    case 'Q': return count == s->B * s->T * 3 * s->C;
    case 'X': return count == s->B * s->T * s->C;
    case 'Y': return count == s->B * s->T * 2 * s->C;
    case 'M': return count == s->B * s->T;
    case 'T': return count % K == 0;
    case 'V': return count % R == 0;
    case 'J': return count == call->in_counts[0] + call->in_counts[1];
    default: return 0;
    }
}

/* Whether counts are those that `letters` say. */
static int all_fit(const reference_call *call, const char *letters, size_t O, const uint64_t *counts, int n)
{
    int at = 0, may_miss = 0;
    for (; *letters; letters++) {
        if (*letters == '?') may_miss = 1;
        else if (at == n) return may_miss;
        else if (!fits(call, *letters, O, counts[at++])) return 0;
    }
    return at == n;
}

/* O is what a weight has rows, and the weight is the only letter W of the inputs. */
static size_t outputs_of(const reference_row *row, const reference_call *call)
{
    size_t at = 0;
    for (const char *letter = row->in; *letter; letter++, at++)
        if (*letter == 'W' && at < (size_t)call->op->in_count) return call->in_counts[at] / call->K;
    return 0;
}

int reference_run(const gpt_op *op, double number, const gpt_run_shape *shape, const gpt_value *values, const double *const *in,
                  const uint64_t *in_counts, double *const *out, const uint64_t *out_counts)
{
    const reference_row *row = NULL;
    reference_call call = {.op = op,
                           .x = number,
                           .shape = shape,
                           .format = values[op->out[0]].format,
                           .in = in,
                           .out = out,
                           .in_counts = in_counts,
                           .out_counts = out_counts};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        if (ROWS[i].kind == op->kind) row = &ROWS[i];
    if (!row || op->in_count <= row->of) return -1;
    size_t of = row->of < 0 ? 0 : (size_t)row->of;
    call.K = values[op->in[row->of < 0 ? 1 : row->of]].columns;
    if (!call.K || !shape->B || !shape->T || !shape->NH || shape->C < shape->NH) return -1;
    call.R = row->of < 0 ? call.in_counts[0] : call.in_counts[of] / call.K;
    size_t O = outputs_of(row, &call);
    if (!call.R || (row->of >= 0 && call.R * call.K != call.in_counts[of])) return -1;
    if (!all_fit(&call, row->in, O, call.in_counts, op->in_count) || !all_fit(&call, row->out, O, call.out_counts, op->out_count))
        return -1;
    (row->run ? row->run : reference_backward(op->kind))(&call);
    return 0;
}
