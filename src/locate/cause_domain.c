/*
 * Arguments outside of a domain. Each question looks at the operands of the bad element before it would compute with them, so that
 * nothing here makes the NaN that it is asked about.
 */
#include <math.h>
#include <string.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"

static int found(fb_look *look, int32_t what, int32_t input, uint64_t at, double value)
{
    look->domain.what = what;
    look->domain.input = input;
    look->domain.at = at;
    look->domain.value = value;
    return 1;
}

static int by(fb_look *look, double numerator, int32_t input, uint64_t at)
{
    look->domain.numerator = numerator;
    return found(look, numerator == 0.0 ? FB_DOMAIN_ZERO_BY_ZERO : FB_DOMAIN_BY_ZERO, input, at, 0.0);
}

/* Operand 1, or the number the operator was built with. */
static int second(const fb_look *look, int way, double *value, uint64_t *at, int32_t *input)
{
    *input = 1;
    if (look->w->input_count > 1) return fb_operand(look, 1, way, value, at);
    *input = -1;
    *at = 0;
    return fb_op_number(look->w, NULL, value);
}

/* A bound, or the order of a norm, may well be infinite; nothing of it gets into the result. */
static int may_be_infinite(const char *name)
{
    static const char *const names[] = {"min", "max", "ord", "p", "nan", "posinf", "neginf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) return 1;
    }
    return 0;
}

/* A factor that the trainer computed and wrote down as a number of the operator: 1 / 0, or a decay by a rate that is NaN. */
static int bad_number(fb_look *look)
{
    for (uint32_t i = 0; i < look->w->attribute_count; i++) {
        const char *name = look->w->attributes[i].name;
        if (fb_json_is_number(look->w->attributes[i].value)) continue;
        if (name && fb_number_is_inf(look->w->attributes[i].value) && may_be_infinite(name)) continue;
        look->domain.attribute = name ? name : "a number";
        return found(look, FB_DOMAIN_NUMBER, -1, 0, look->w->attributes[i].value);
    }
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

static int row_is_masked(const fb_witness_tensor *tensor, uint64_t row, uint64_t columns)
{
    for (uint64_t i = 0; i < columns; i++) {
        if (!fb_number_is_neg_inf(tensor->values[row * columns + i])) return 0;
    }
    return columns > 0;
}

static int full_row(fb_look *look)
{
    const fb_witness_tensor *in = look->w->input_count ? &look->w->inputs[0] : NULL;
    uint64_t columns = fb_last_dim(look->out);
    if (!in || !in->values || in->count != look->out->count || columns == 0) return 0;
    if (!row_is_masked(in, look->at / columns, columns)) return 0;
    look->domain.row = look->at / columns;
    look->domain.terms = columns;
    return found(look, FB_DOMAIN_FULL_ROW, 0, look->at / columns * columns, in->values[look->at]);
}

/* The softmax is inside: the mask is an input of its own, and its first full row is named. */
static int full_row_inside(fb_look *look)
{
    for (uint32_t k = 0; k < look->w->input_count; k++) {
        const fb_witness_tensor *in = &look->w->inputs[k];
        uint64_t columns = fb_last_dim(in);
        if (!in->values || columns == 0 || !((in->flags & FB_TAPE_MASK) || fb_text_has(in->name, "mask"))) continue;
        for (uint64_t row = 0; row < in->count / columns; row++) {
            if (!row_is_masked(in, row, columns)) continue;
            look->domain.row = row;
            look->domain.terms = columns;
            return found(look, FB_DOMAIN_FULL_ROW, (int32_t)k, row * columns, in->values[row * columns]);
        }
    }
    return 0;
}

/* ---- one or two operands ----------------------------------------------------------------------------------------------------- */

static int sum_of_infinities(fb_look *look, int way)
{
    double a, b;
    uint64_t at, at_b;
    int32_t input;
    if (!fb_operand(look, 0, way, &a, &at) || !second(look, way, &b, &at_b, &input)) return 0;
    if (!fb_number_is_inf(a) || !fb_number_is_inf(b)) return 0;
    if (fb_number_is_neg_inf(a) == fb_number_is_neg_inf(b) ? look->kind == FB_OP_ADD : look->kind == FB_OP_SUB) return 0;
    return found(look, FB_DOMAIN_INF_MINUS_INF, 0, at, a);
}

static int zero_times_inf(fb_look *look, double a, double b, int32_t input, uint64_t at)
{
    if (!(a == 0.0 && fb_number_is_inf(b)) && !(b == 0.0 && fb_number_is_inf(a))) return 0;
    return found(look, FB_DOMAIN_ZERO_TIMES_INF, input, at, a);
}

static int product(fb_look *look, int way)
{
    double a, b;
    uint64_t at, at_b;
    int32_t input;
    if (!fb_operand(look, 0, way, &a, &at)) return 0;
    if (!look->backward) return second(look, way, &b, &at_b, &input) && zero_times_inf(look, a, b, 0, at);
    return fb_operand(look, look->w->bad_output == 0 ? 2 : 1, way, &b, &at_b) && zero_times_inf(look, a, b, 0, at);
}

static int quotient(fb_look *look, int way)
{
    double a, b;
    uint64_t at, at_b;
    int32_t input = 2;
    if (!look->backward) {
        if (!fb_operand(look, 0, way, &a, &at) && !fb_operand(look, 0, 0, &a, &at)) return 0;
        /* A number over a tensor: "max_norm" / norm. */
        if (look->w->input_count == 1 && a == 0.0 && second(look, way, &b, &at_b, &input) && b != 0.0) return by(look, b, 0, at);
        return second(look, way, &b, &at_b, &input) && b == 0.0 && by(look, a, input, at_b);
    }
    if (!fb_operand(look, 0, 0, &a, &at) || !fb_operand(look, 2, way, &b, &at_b)) return 0;
    return b == 0.0 && by(look, a, input, at_b);
}

/* x + value * a / b, as optimizers write their step. */
static int added_quotient(fb_look *look)
{
    double a, b;
    uint64_t at, at_b;
    if (look->backward || !fb_operand(look, 1, 0, &a, &at) || !fb_operand(look, 2, 0, &b, &at_b)) return 0;
    return b == 0.0 && by(look, a, 2, at_b);
}

static int logarithm(fb_look *look)
{
    double a, g, edge = look->kind == FB_OP_LOG1P ? -1.0 : 0.0;
    uint64_t at, at_g;
    uint32_t of = look->backward ? 1 : 0;
    if (!fb_operand(look, of, 0, &a, &at)) return 0;
    if (look->backward) return a == edge && fb_operand(look, 0, 0, &g, &at_g) && by(look, g, (int32_t)of, at);
    if (a == edge) return found(look, FB_DOMAIN_LOG_ZERO, 0, at, a);
    return a < edge && !fb_number_is_inf(a) && found(look, FB_DOMAIN_LOG_NEGATIVE, 0, at, a);
}

static int root(fb_look *look)
{
    double a;
    uint64_t at;
    if (look->backward) {
        if (!fb_operand(look, 1, 0, &a, &at) || a != 0.0 || look->kind == FB_OP_RSQRT) return 0;
        if (!fb_operand(look, 0, 0, &look->domain.numerator, &look->domain.row)) look->domain.numerator = 0.0;
        return found(look, FB_DOMAIN_SQRT_SLOPE, 1, at, a);
    }
    if (!fb_operand(look, 0, 0, &a, &at)) return 0;
    if (a == 0.0) return look->kind == FB_OP_RSQRT && by(look, 1.0, 0, at);
    return a < 0.0 && found(look, FB_DOMAIN_SQRT_NEGATIVE, 0, at, a);
}

static int power(fb_look *look)
{
    double a, b;
    uint64_t at, at_b;
    int32_t input;
    if (look->backward) {
        if (!fb_operand(look, 1, 0, &a, &at) || !fb_op_number(look->w, NULL, &b)) return 0;
        return a == 0.0 && b < 1.0 && by(look, 1.0, 1, at);
    }
    if (!fb_operand(look, 0, 0, &a, &at) || !second(look, 0, &b, &at_b, &input)) return 0;
    if (a == 0.0 && b < 0.0) return by(look, 1.0, 0, at);
    return a < 0.0 && fb_json_is_number(b) && b != floor(b) && found(look, FB_DOMAIN_SQRT_NEGATIVE, 0, at, a);
}

/* ---- sums, tables, labels ---------------------------------------------------------------------------------------------------- */

/* The slope of a norm at 0: the norm is the input that has fewer elements than what is divided by it, or as many rows. */
static int norm_slope(fb_look *look)
{
    double norm;
    uint64_t at;
    for (uint32_t k = 1; k < look->w->input_count; k++) {
        if (look->w->inputs[k].count < look->out->count && fb_operand(look, k, 0, &norm, &at) && norm == 0.0) {
            return by(look, 0.0, (int32_t)k, at);
        }
    }
    return 0;
}

static int too_few(fb_look *look)
{
    const fb_witness_tensor *in = look->w->input_count ? &look->w->inputs[0] : NULL;
    double correction = look->kind == FB_OP_VAR ? 1.0 : 0.0;
    uint64_t terms;
    if (!in || look->out->count == 0 || look->backward) return 0;
    if (look->kind == FB_OP_VAR && !fb_op_number(look->w, "correction", &correction) &&
        !fb_op_number(look->w, "ddof", &correction)) {
        (void)fb_op_number(look->w, NULL, &correction);
    }
    terms = in->count / look->out->count;
    if (!((double)terms <= correction) || (look->kind == FB_OP_MEAN && terms > 0)) return 0;
    look->domain.terms = terms;
    return found(look, FB_DOMAIN_TOO_FEW, 0, look->at, correction);
}

/* A loss that is a mean, as most are, of tensors without elements. Its reduction is a number: 1 is the mean. */
static int mean_of_nothing(fb_look *look)
{
    char stem[96];
    size_t bytes;
    int32_t backward;
    double reduction = 1.0;
    bytes = fb_op_stem(stem, sizeof stem, look->w->place.op, &backward);
    if (backward || look->out->count != 1 || look->w->input_count == 0 || look->w->inputs[0].count != 0) return 0;
    if (look->kind != FB_OP_NLL && (bytes < 5 || strcmp(stem + bytes - 5, "_loss") != 0)) return 0;
    (void)fb_op_number(look->w, "reduction", &reduction);
    look->domain.terms = 0;
    return reduction == 1.0 && found(look, FB_DOMAIN_TOO_FEW, 0, 0, 0.0);
}

static int no_such_row(fb_look *look, int32_t input, uint64_t at, uint64_t rows)
{
    const fb_witness_tensor *in = &look->w->inputs[input];
    double ignore = -100.0, id;
    if (!in->values || at >= in->count) return 0;
    id = in->values[at];
    if (look->kind == FB_OP_NLL) {
        (void)fb_op_number(look->w, "ignore_index", &ignore);
        if (id == ignore) return 0;
    }
    if (id >= 0.0 && id < (double)rows) return 0;
    look->domain.low = 0;
    look->domain.high = (int64_t)rows;
    return found(look, FB_DOMAIN_INDEX, input, at, id);
}

static int table(fb_look *look)
{
    int32_t ids = fb_operand_integers(look->w);
    uint64_t columns = fb_last_dim(look->out);
    const fb_witness_tensor *rows;
    if (ids < 0 || look->backward || columns == 0 || look->w->input_count < 2) return 0;
    rows = &look->w->inputs[ids == 0 ? 1 : 0];
    return no_such_row(look, ids, look->at / columns, rows->count / columns);
}

/* The logarithm of the label's probability, which the operator reads, is -Inf. */
static int impossible(fb_look *look, int32_t ids, uint64_t row, uint64_t columns)
{
    const fb_witness_tensor *p = &look->w->inputs[0];
    double label = look->w->inputs[ids].values[row];
    if (!p->values || !(label >= 0.0) || !(label < (double)columns) || row * columns + (uint64_t)label >= p->count) return 0;
    if (!fb_number_is_neg_inf(p->values[row * columns + (uint64_t)label])) return 0;
    return found(look, FB_DOMAIN_LOG_ZERO, 0, row * columns + (uint64_t)label, 0.0);
}

static int labels(fb_look *look)
{
    int32_t ids = fb_operand_integers(look->w);
    const fb_witness_tensor *p = &look->w->inputs[0];
    uint64_t columns, ignored = 0;
    double ignore = -100.0;
    if (ids < 1 || look->backward || !look->w->inputs[ids].values || p->count == 0) return 0;
    columns = fb_last_dim(p);
    if (look->out->count == look->w->inputs[ids].count) {
        return no_such_row(look, ids, look->at, columns) || impossible(look, ids, look->at, columns);
    }
    for (uint64_t i = 0; i < look->w->inputs[ids].count; i++) {
        if (no_such_row(look, ids, i, columns) || impossible(look, ids, i, columns)) return 1;
    }
    (void)fb_op_number(look->w, "ignore_index", &ignore);
    for (uint64_t i = 0; i < look->w->inputs[ids].count; i++) ignored += look->w->inputs[ids].values[i] == ignore;
    return ignored == look->w->inputs[ids].count && found(look, FB_DOMAIN_ALL_IGNORED, ids, 0, ignore);
}

/* Probability 1: what is kept would be multiplied with 1 / (1 - 1), and there is only 0 to multiply. */
static int dropped_all(fb_look *look)
{
    double p;
    if (!fb_op_number(look->w, "probability", &p) && !fb_op_number(look->w, "p", &p) && !fb_op_number(look->w, NULL, &p)) return 0;
    return p >= 1.0 && found(look, FB_DOMAIN_ZERO_TIMES_INF, -1, 0, p);
}

/* A norm over a row in which all are equal, without an epsilon: 0 / sqrt(0). */
static int constant_row(fb_look *look)
{
    const fb_witness_tensor *in = look->w->input_count ? &look->w->inputs[0] : NULL;
    double epsilon;
    uint64_t columns = fb_last_dim(look->out), start;
    if (!in || !in->values || look->backward || columns == 0 || in->count != look->out->count) return 0;
    if (!fb_op_number(look->w, "epsilon", &epsilon) && !fb_op_number(look->w, "eps", &epsilon)) return 0;
    if (epsilon != 0.0) return 0;
    start = look->at / columns * columns;
    for (uint64_t i = 1; i < columns; i++) {
        if (in->values[start + i] != in->values[start]) return 0;
    }
    look->domain.row = look->at / columns;
    look->domain.terms = columns;
    return found(look, FB_DOMAIN_SAME_ROW, 0, start, in->values[start]);
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static int of_kind(fb_look *look, int way)
{
    switch (look->kind) {
    case FB_OP_ADD:
    case FB_OP_SUB: return sum_of_infinities(look, way);
    case FB_OP_MUL: return product(look, way);
    case FB_OP_DIV: return quotient(look, way);
    case FB_OP_ADDCDIV: return way == 0 && added_quotient(look);
    case FB_OP_LOG:
    case FB_OP_LOG1P: return logarithm(look);
    case FB_OP_SQRT:
    case FB_OP_RSQRT: return root(look);
    case FB_OP_POW: return power(look);
    case FB_OP_SOFTMAX:
    case FB_OP_LOG_SOFTMAX: return !look->backward && full_row(look);
    case FB_OP_ATTENTION: return full_row_inside(look);
    case FB_OP_NORM: return look->backward && norm_slope(look);
    case FB_OP_MEAN:
    case FB_OP_VAR: return too_few(look);
    case FB_OP_EMBEDDING: return table(look);
    case FB_OP_NLL: return mean_of_nothing(look) || labels(look);
    case FB_OP_DROPOUT: return dropped_all(look);
    case FB_OP_LAYER_NORM: return constant_row(look);
    case FB_OP_RECIPROCAL: {
        double a;
        uint64_t at;
        return !look->backward && fb_operand(look, 0, 0, &a, &at) && a == 0.0 && by(look, 1.0, 0, at);
    }
    default: return way == 0 && mean_of_nothing(look);
    }
}

/* Mathematics gives a number, and FP64 is too small for it: every operand is finite, and the operator
 * makes infinities by size alone. */
static int beyond(fb_look *look)
{
    double value;
    int made = fb_value_of(look, &value);
    if (!made && look->has_terms && !look->terms.zero_times_inf && fb_json_is_number(look->terms.largest)) {
        value = look->terms.sum; /* of a norm, the squares */
        made = 1;
    }
    return made && fb_number_is_inf(value) && found(look, FB_DOMAIN_BEYOND, -1, look->at, value);
}

int fb_domain_of(fb_look *look)
{
    memset(&look->domain, 0, sizeof look->domain);
    look->domain.input = -1;
    if (bad_number(look) || of_kind(look, 0) || of_kind(look, 1)) {
        fb_slope_of(look);
        return 1;
    }
    if (look->has_terms && look->terms.zero_times_inf) return found(look, FB_DOMAIN_ZERO_TIMES_INF, 0, look->at, 0.0);
    return beyond(look);
}

/* Products and quotients of the backward forms; g is the gradient that comes in. */
static int backward_value(const fb_look *look, double *value)
{
    double g, a, b;
    uint64_t at;
    if (!fb_operand(look, 0, 0, &g, &at) || !fb_operand(look, 1, 0, &a, &at)) return 0;
    if (!fb_json_is_number(g) || !fb_json_is_number(a)) return 0;
    switch (look->kind) {
    case FB_OP_EXP: *value = g * a; return 1;
    case FB_OP_RSQRT: *value = -g * a * a * a / 2.0; return 1;
    case FB_OP_SQRT: *value = a == 0.0 ? 0.0 : g / (2.0 * a); return a != 0.0;
    case FB_OP_LOG: *value = a == 0.0 ? 0.0 : g / a; return a != 0.0;
    case FB_OP_LOG1P: *value = a == -1.0 ? 0.0 : g / (1.0 + a); return a != -1.0;
    case FB_OP_MUL:
    case FB_OP_DIV: break;
    default: return 0;
    }
    if (!fb_operand(look, 2, 0, &b, &at) || !fb_json_is_number(b) || look->out->count != look->w->inputs[0].count) return 0;
    if (look->kind == FB_OP_MUL) *value = look->w->bad_output == 0 ? g * b : g * a;
    else if (b == 0.0) return 0;
    else *value = look->w->bad_output == 0 ? g / b : -g * a / (b * b);
    return 1;
}

int fb_value_of(const fb_look *look, double *value)
{
    double a, b, alpha;
    uint64_t at;
    int32_t input;
    if (look->backward) return backward_value(look, value);
    if (!fb_operand(look, 0, 0, &a, &at) || !fb_json_is_number(a)) return 0;
    switch (look->kind) {
    case FB_OP_EXP: *value = exp(a); return 1;
    case FB_OP_SQUARE: *value = a * a; return 1;
    case FB_OP_RECIPROCAL: *value = a == 0.0 ? 0.0 : 1.0 / a; return a != 0.0;
    case FB_OP_RSQRT: *value = a > 0.0 ? 1.0 / sqrt(a) : 0.0; return a > 0.0;
    case FB_OP_ADD:
    case FB_OP_SUB:
    case FB_OP_MUL:
    case FB_OP_DIV:
    case FB_OP_POW: break;
    default: return 0;
    }
    if (look->w->input_count > 2 || !second(look, 0, &b, &at, &input) || !fb_json_is_number(b)) return 0;
    /* PyTorch adds alpha times the second. */
    if ((look->w->input_count == 2 || look->w->attribute_count > 1) && (look->kind == FB_OP_ADD || look->kind == FB_OP_SUB) &&
        fb_op_number(look->w, "alpha", &alpha))
        b *= alpha;
    switch (look->kind) {
    case FB_OP_ADD: *value = a + b; return 1;
    case FB_OP_SUB: *value = a - b; return 1;
    case FB_OP_MUL: *value = a * b; return 1;
    case FB_OP_DIV: *value = b == 0.0 ? 0.0 : a / b; return b != 0.0;
    default: *value = a > 0.0 || (a != 0.0 && b == floor(b)) ? pow(a, b) : 0.0; return a > 0.0 || (a != 0.0 && b == floor(b));
    }
}
