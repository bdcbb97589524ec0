/*
 * The numbers that an operator was given beside its tensors. FP64 takes them as they are written; a kernel holds them in the format
 * in which it computes, and there a finite 2^128 is Inf. What the operator makes of that Inf is told by cases, and never computed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"

/* What comes of it. */
enum { EXPLAINS_NOT = 0, EXPLAINS = 1, EXPLAINS_PERHAPS = 2 };

/* Kernels compute in FP32, some in the format of the result: a number that leaves the narrower one alone proves nothing. */
static int32_t left_format(const fb_look *look, double number, int narrow)
{
    int32_t in = look->format == FB_F64 ? FB_F64 : FB_F32;
    if (!fb_number_fits(in, number)) return in;
    return narrow && fb_number_limit(look->format) > 0.0 && !fb_number_fits(look->format, number) ? look->format : 0;
}

static int32_t infinity(int negative)
{
    return negative ? FB_KIND_NEG_INF : FB_KIND_POS_INF;
}

/* A finite factor times an infinity. */
static int32_t times(double factor, int negative)
{
    return factor == 0.0 ? FB_KIND_NAN : infinity((factor < 0.0) != negative);
}

static int finite_operand(const fb_look *look, uint32_t k, double *value, uint64_t *at)
{
    return fb_operand(look, k, 0, value, at) && fb_json_is_number(*value);
}

/* x + alpha * y, either of which may be a number: which kind is made where `name` has become an
 * infinity? FB_KIND_NONE: not known. */
static int32_t kind_of_sum(const fb_look *look, const char *name, int negative)
{
    double other = 0.0, alpha = 1.0;
    uint64_t at;
    int turned = look->kind == FB_OP_SUB;
    if (strcmp(name, "alpha") == 0) {
        int known = look->w->input_count > 1 ? finite_operand(look, 1, &other, &at) : fb_op_number(look->w, "other", &other);
        return known && fb_json_is_number(other) ? times(other, negative != turned) : FB_KIND_NONE;
    }
    if (look->w->input_count != 1) return FB_KIND_NONE;
    (void)fb_op_number(look->w, "alpha", &alpha);
    return fb_json_is_number(alpha) ? times(alpha, negative != turned) : FB_KIND_NONE;
}

/* The kind of number that comes out where the number `name` is infinite in the kernel; FB_KIND_NONE: not known. *finite: none. */
static int32_t kind_made(const fb_look *look, const char *name, int negative, int *finite)
{
    double a, b;
    uint64_t at;
    *finite = 0;
    if (look->backward) return FB_KIND_NONE;
    switch (look->kind) {
    case FB_OP_MUL: return look->w->input_count == 1 && finite_operand(look, 0, &a, &at) ? times(a, negative) : FB_KIND_NONE;
    case FB_OP_ADD:
    case FB_OP_SUB: return kind_of_sum(look, name, negative);
    case FB_OP_DIV: *finite = look->w->input_count == 1; return FB_KIND_NONE; /* x/Inf is 0 */
    case FB_OP_ADDCDIV:
        if (!finite_operand(look, 1, &a, &at) || !finite_operand(look, 2, &b, &at) || b == 0.0) return FB_KIND_NONE;
        return a == 0.0 ? FB_KIND_NAN : times(b < 0.0 ? -a : a, negative);
    default: return FB_KIND_NONE;
    }
}

static int explains(const fb_look *look, const fb_tape_attribute *attribute)
{
    int finite;
    int32_t kind = kind_made(look, attribute->name ? attribute->name : "", attribute->value < 0.0, &finite);
    if (finite) return EXPLAINS_NOT;
    if (kind == FB_KIND_NONE) return EXPLAINS_PERHAPS;
    return kind == look->w->bad_kind ? EXPLAINS : EXPLAINS_NOT;
}

/* Two numbers in as many digits as it takes to tell them apart. */
static void text_apart(char a[FB_NUMBER_BYTES], double x, char b[FB_NUMBER_BYTES], double y)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(a, FB_NUMBER_BYTES, "%.*g", digits, x);
        snprintf(b, FB_NUMBER_BYTES, "%.*g", digits, y);
        if (strcmp(a, b) != 0) break;
    }
    for (char *c = a; *c; c++) *c = *c == ',' ? '.' : *c; /* the program may have set a locale */
    for (char *c = b; *c; c++) *c = *c == ',' ? '.' : *c;
}

static void classify(fb_look *look, const char *name, int32_t in)
{
    int32_t boundary = look->w->place.boundary;
    fb_cause *cause = look->cause;
    if (fb_text_has(name, "scale")) {
        cause->class_number = FB_CAUSE_SCALE_RUNAWAY;
    } else if (boundary == FB_LOSS && look->kind == FB_OP_MUL) {
        FB_EXPLAIN(cause, " What a loss is multiplied with is its scale.");
        cause->class_number = FB_CAUSE_SCALE_RUNAWAY;
        cause->certain = 0;
    } else if (boundary == FB_UPDATE) {
        FB_EXPLAIN(cause, " In an update such a number is made of the learning rate, as a rule.");
        cause->class_number = FB_CAUSE_LR_INSTABILITY;
        cause->certain = 0;
    } else if (in != look->format) {
        cause->class_number = FB_CAUSE_OVERFLOW;
    } else {
        fb_class_of_range(look);
    }
}

static void say(fb_look *look, const fb_tape_attribute *attribute, int32_t in, int how)
{
    fb_cause *cause = look->cause;
    const char *name = attribute->name ? attribute->name : "a number", *sign = attribute->value < 0.0 ? "-" : "";
    char number[FB_NUMBER_BYTES], limit[FB_NUMBER_BYTES];
    int wide = in == FB_F32 || in == FB_F64;
    text_apart(number, fabs(attribute->value), limit, fb_number_limit(in));
    cause->rule = FB_RULE_RANGE;
    cause->has_value = 1;
    cause->value = attribute->value;
    cause->limit = fb_number_limit(in);
    cause->format = in;
    cause->format_needed = fb_number_needs(attribute->value);
    look->by_number = 1;
    FB_EXPLAIN(cause, " it was given \"%s\" = %s%s, and the largest number of %s is %s: it is %sInf %s", name, sign, number,
               fb_number_format(in), limit, sign, wide ? "in the kernel" : "in a kernel that works in that format");
    if (how == EXPLAINS && look->w->bad_kind == FB_KIND_NAN) FB_EXPLAIN(cause, ", and 0 times that is NaN.");
    else if (how == EXPLAINS) FB_EXPLAIN(cause, ", and so is the result.");
    else FB_EXPLAIN(cause, "; what the operator makes of that is not known here.");
    if (!wide || how != EXPLAINS) cause->certain = 0;
    classify(look, name, in);
}

int fb_scalar_of(fb_look *look, int narrow)
{
    for (uint32_t i = 0; i < look->w->attribute_count; i++) {
        const fb_tape_attribute *attribute = &look->w->attributes[i];
        int32_t in = fb_json_is_number(attribute->value) ? left_format(look, attribute->value, narrow) : 0;
        int how = in ? explains(look, attribute) : EXPLAINS_NOT;
        /* What cannot be told is only said where nothing else is left. */
        if (how == EXPLAINS_NOT || (how == EXPLAINS_PERHAPS && !narrow)) continue;
        say(look, attribute, in, how);
        return 1;
    }
    return 0;
}

/* ---- is everything known that it was given? ---------------------------------------------------------------------------------- */

static int two_operands(int32_t kind)
{
    return kind == FB_OP_ADD || kind == FB_OP_SUB || kind == FB_OP_MUL || kind == FB_OP_DIV || kind == FB_OP_POW;
}

const char *fb_scalar_unknown(const fb_look *look)
{
    const fb_witness *w = look->w;
    double number;
    if (w->attribute_count >= FB_TAPE_ATTRIBUTES_MAX) return "it may have been given more numbers than were kept";
    if (two_operands(look->kind) && !look->backward && w->input_count == 1 && !fb_op_number(w, NULL, &number))
        return "its second operand was not kept";
    for (uint32_t i = 0; i < w->attribute_count; i++) {
        if (!fb_json_is_number(w->attributes[i].value)) return "it was given a number that is not finite";
        if (left_format(look, w->attributes[i].value, 1)) return "it was given a number that its format does not hold";
    }
    for (uint32_t i = 0; i < w->input_count; i++) {
        if (!w->inputs[i].values && w->inputs[i].count) return "not all of what it read was kept";
    }
    return NULL;
}

/* Squares, exponentials and reciprocals of squares, and sums over all that it read: most of what an operator may compute inside. */
static int has_margin(const fb_look *look, double number)
{
    double x = fabs(number);
    double limit = look->format == FB_F64 ? fb_number_limit(FB_F64) : fb_number_limit(FB_F32);
    double narrow = fb_number_limit(look->format);
    uint64_t count = look->out->count;
    if (narrow > 0.0 && narrow < limit) limit = narrow;
    for (uint32_t i = 0; i < look->w->input_count; i++) count = look->w->inputs[i].count > count ? look->w->inputs[i].count : count;
    if (x > sqrt(limit) || x * x > limit / (double)(count + 1) || x > log(limit) - 1.0) return 0;
    return x == 0.0 || 1.0 / x < sqrt(limit);
}

int fb_scalar_margin(const fb_look *look)
{
    const fb_witness *w = look->w;
    for (uint32_t i = 0; i < w->attribute_count; i++) {
        if (!has_margin(look, w->attributes[i].value)) return 0;
    }
    for (uint32_t i = 0; i < w->input_count; i++) {
        for (uint64_t k = 0; k < w->inputs[i].count; k++) {
            if (!fb_json_is_number(w->inputs[i].values[k]) || !has_margin(look, w->inputs[i].values[k])) return 0;
        }
    }
    return 1;
}
