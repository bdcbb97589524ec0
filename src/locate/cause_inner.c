/*
 * The result would fit, and still it is not finite: a number on the way inside of the operator does not fit. What a kernel does
 * inside is known from how such operators are written; the operands then say whether that number left the format.
 */
#include <math.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"

/* Kernels add up in FP32, some in the format of the result. *in gets the format that x leaves; the narrower one is not certain. */
static int leaves(fb_look *look, double x, int32_t *in)
{
    *in = look->format == FB_F64 ? FB_F64 : FB_F32;
    if (!fb_number_fits(*in, x)) return 1;
    *in = look->format;
    if (fb_number_fits(look->format, x)) return 0;
    look->cause->certain = 0;
    return 1;
}

static int say_inner(fb_look *look, const char *what, double x, int32_t in)
{
    char number[FB_NUMBER_BYTES], limit[FB_NUMBER_BYTES];
    FB_EXPLAIN(look->cause, " Inside of it, %s is %s, and the largest number of %s is %s%s.", what, fb_number_text(number, x),
               fb_number_format(in), fb_number_text(limit, fb_number_limit(in)),
               in == FB_F32 || look->format == in ? "" : ", if the kernel works in that format");
    look->cause->has_value = 1;
    look->cause->value = x;
    look->cause->limit = fb_number_limit(in);
    look->cause->format = in;
    look->cause->format_needed = fb_json_is_number(x) ? fb_number_needs(x) : 0;
    return 1;
}

/* Arithmetic alone would come to the same there. */
static int others_stay_finite(const fb_look *look)
{
    return look->facts->other_ranks_tried > 0 && look->facts->other_ranks_bad == 0;
}

static int sums(fb_look *look)
{
    const fb_terms *t = &look->terms;
    char sum[FB_NUMBER_BYTES], partial[FB_NUMBER_BYTES];
    double over, edge = fb_number_edge(look->format);
    int32_t in = look->format;
    if (!look->has_terms) return 0;
    over = fabs(t->largest) > fabs(t->partial) ? t->largest : t->partial;
    if (leaves(look, over, &in)) {
        (void)say_inner(look, over == t->partial ? "a partial sum" : "one term", over, in);
        FB_EXPLAIN(look->cause, " The whole sum of %llu terms is %s; after %llu of them it stands at %s.",
                   (unsigned long long)t->count, fb_number_text(sum, t->sum), (unsigned long long)t->partial_after,
                   fb_number_text(partial, t->partial));
        return 1;
    }
    /* Lanes and blocks of a kernel add up in an order of their own. */
    over = t->above >= -t->below ? t->above : t->below;
    if (!others_stay_finite(look) && leaves(look, over, &in)) {
        look->cause->certain = 0;
        (void)say_inner(look, over > 0.0 ? "the sum of all terms above 0" : "the sum of all terms below 0", over, in);
        FB_EXPLAIN(look->cause, " The whole sum of %llu terms is %s, and comes through that number in some order of additions.",
                   (unsigned long long)t->count, fb_number_text(sum, t->sum));
        return 1;
    }
    /* Rounding of each addition, at most half a step of the format in which it is made. */
    if (edge > 0.0 &&
        fabs(t->sum) * t->scale + t->absolute * t->scale * (double)t->count * (look->format == FB_F32 ? 0x1p-24 : 0x1p-11) >=
            edge) {
        look->cause->certain = 0;
        FB_EXPLAIN(look->cause, " The sum lies so close to the limit that the rounding of %llu additions can carry it over.",
                   (unsigned long long)t->count);
        return 2;
    }
    return 0;
}

static int near_edge(fb_look *look)
{
    double edge = fb_number_edge(look->format);
    if (look->format == FB_F64 || edge == 0.0 || !(fabs(look->exact) >= edge * (1.0 - 0x1p-10))) return 0;
    look->cause->certain = 0;
    FB_EXPLAIN(look->cause, " It lies so close to the limit that rounding inside of the operator can carry it over.");
    return 2;
}

static int rows(fb_look *look)
{
    const fb_witness_tensor *in = look->w->input_count ? &look->w->inputs[0] : NULL;
    uint64_t columns = fb_last_dim(look->out), start;
    double most = 0.0, square = 0.0;
    int32_t of = FB_F32;
    int any = 0;
    if (!in || !in->values || look->backward || columns == 0 || in->count != look->out->count) return 0;
    start = look->at / columns * columns;
    for (uint64_t i = start; i < start + columns; i++) {
        if (!fb_json_is_number(in->values[i])) continue;
        if (!any || in->values[i] > most) most = in->values[i];
        square += in->values[i] * in->values[i];
        any = 1;
    }
    if (!any) return 0;
    if (look->kind == FB_OP_LAYER_NORM)
        return leaves(look, square, &of) && say_inner(look, "the sum of squares of the row", square, of);
    if (leaves(look, exp(most), &of))
        return say_inner(look, "the exponential of the largest of the row (if it is not taken off before)", exp(most), of);
    if (look->kind == FB_OP_LOG_SOFTMAX && fb_json_is_number(in->values[look->at]) && in->values[look->at] - most < -104.0) {
        FB_EXPLAIN(look->cause, " Its probability, e^%.4g, is 0 in fp32, and a logarithm taken of that is -Inf.",
                   in->values[look->at] - most);
        return 2;
    }
    return 0;
}

static int elements(fb_look *look)
{
    double a, b;
    uint64_t at;
    int32_t in = FB_F32;
    if (look->kind == FB_OP_GELU || look->kind == FB_OP_SIGMOID) {
        if (!fb_operand(look, look->backward ? 1 : 0, 0, &a, &at) || !fb_json_is_number(a)) return 0;
        if (look->kind == FB_OP_GELU)
            return leaves(look, a * a * a, &in) && say_inner(look, "the cube of its input", a * a * a, in);
        return leaves(look, exp(-a), &in) && say_inner(look, "e to the minus input", exp(-a), in);
    }
    if (look->kind == FB_OP_RSQRT && look->backward) {
        if (!fb_operand(look, 1, 0, &a, &at) || !fb_json_is_number(a)) return 0;
        return leaves(look, a * a * a, &in) && say_inner(look, "the cube of the reciprocal root", a * a * a, in);
    }
    if (look->kind != FB_OP_DIV || !look->backward || !fb_operand(look, 2, 0, &b, &at) || !fb_json_is_number(b)) return 0;
    if (leaves(look, b * b, &in)) return say_inner(look, "the square of the denominator", b * b, in);
    if (b != 0.0 && fb_number_rounded(look->format, b * b) == 0.0) {
        char number[FB_NUMBER_BYTES];
        look->cause->certain = 0;
        FB_EXPLAIN(look->cause, " Inside of it, the square of the denominator %s is 0 in %s, and it is divided by that.",
                   fb_number_text(number, b), fb_number_format(look->format));
        return 2;
    }
    return 0;
}

int fb_inner_known(const fb_look *look)
{
    if (look->has_terms) return 1;
    switch (look->kind) {
    case FB_OP_COPY:
    case FB_OP_MUL:
    case FB_OP_DIV:
    case FB_OP_EXP:
    case FB_OP_LOG:
    case FB_OP_LOG1P:
    case FB_OP_SQRT:
    case FB_OP_RSQRT:
    case FB_OP_SIGMOID:
    case FB_OP_GELU: return 1;
    case FB_OP_ADD: /* of more than two there is a sum on the way */
    case FB_OP_SUB: return !look->backward && look->w->input_count <= 2;
    case FB_OP_RECIPROCAL:
    case FB_OP_SQUARE:
    case FB_OP_DROPOUT:
    case FB_OP_EMBEDDING:
    case FB_OP_SOFTMAX:
    case FB_OP_LOG_SOFTMAX:
    case FB_OP_LAYER_NORM: return !look->backward;
    default: return 0;
    }
}

int fb_inner_of(fb_look *look)
{
    int inner = 0;
    if (look->has_terms) return sums(look);
    switch (look->kind) {
    case FB_OP_SOFTMAX:
    case FB_OP_LOG_SOFTMAX:
    case FB_OP_LAYER_NORM: inner = rows(look); break;
    case FB_OP_GELU:
    case FB_OP_SIGMOID:
    case FB_OP_RSQRT:
    case FB_OP_DIV: inner = elements(look); break;
    default: break;
    }
    return inner ? inner : near_edge(look);
}
