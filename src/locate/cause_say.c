/* Sentences. Each says a fact with its numbers; nothing is said that was not looked at. */
#include <math.h>
#include <string.h>

#include "base/json_write.h"
#include "evidence/site.h"
#include "locate/cause_inside.h"
#include "locate/op_title.h"

const char *fb_say_place(char *out, size_t room, const fb_witness_place *place)
{
    static const char *const when[] = {"",         "before the step",     "in the batch", "forward", "loss",
                                       "backward", "after the reduction", "update",       ""};
    int32_t b = place->boundary;
    fb_op_title title;
    fb_op_title_of(&title, place->op, place->node);
    out[0] = '\0';
    fb_say(out, room, "%s", title.shown[0] ? title.shown : "an operator");
    if (b >= FB_FORWARD && b <= FB_UPDATE) fb_say(out, room, " (%s%s%s)", when[b], title.kernel[0] ? ", " : "", title.kernel);
    else if (title.kernel[0]) fb_say(out, room, " (%s)", title.kernel);
    fb_say(out, room, "%s%s", place->module[0] ? " in " : " at the top level", place->module);
    return out;
}

/*
 * "batch row 1, head 0, query 3" of a row of scores. The first dimension is the batch's only where it has as many rows: attention
 * in three dimensions often has samples and heads in the first, and its index says neither.
 */
static void say_row(char *out, size_t room, const fb_witness_tensor *tensor, uint64_t row, uint32_t rows)
{
    uint64_t queries, heads;
    int of_batch = rows > 0 && (uint64_t)tensor->shape[0] == rows;
    out[0] = '\0';
    if (tensor->ndim == 4 && (of_batch || rows == 0) && tensor->shape[1] > 0 && tensor->shape[2] > 0) {
        heads = (uint64_t)tensor->shape[1];
        queries = (uint64_t)tensor->shape[2];
        fb_say(out, room, " (batch row %llu, head %llu, query %llu)", (unsigned long long)(row / (heads * queries)),
               (unsigned long long)(row / queries % heads), (unsigned long long)(row % queries));
    } else if (tensor->ndim == 3 && tensor->shape[1] > 0) {
        queries = (uint64_t)tensor->shape[1];
        fb_say(out, room, " (%s %llu, query %llu)", of_batch ? "batch row" : "matrix", (unsigned long long)(row / queries),
               (unsigned long long)(row % queries));
    }
}

static const char *operand_name(const fb_look *look, char *out, size_t room)
{
    const fb_domain *d = &look->domain;
    char place[96];
    out[0] = '\0';
    if (d->input < 0) fb_say(out, room, "the number it was built with");
    else {
        const fb_witness_tensor *in = &look->w->inputs[d->input];
        fb_say(out, room, "\"%s\" at %s", in->name, fb_place_text(place, sizeof place, in, d->at));
    }
    return out;
}

/* The labels by the name that the program knows them by. What a view or a copy is called is no such name. */
static const char *labels_name(const fb_look *look, char *out, size_t room)
{
    const fb_domain *d = &look->domain;
    const char *names[3] = {NULL, NULL, NULL};
    if (look->facts->finding_kind == FB_KIND_ALL_IGNORED) names[0] = look->facts->finding_tensor;
    if (d->input >= 0) names[1] = look->w->inputs[d->input].name;
    if (d->input >= 0 && look->w->sources) names[2] = look->w->sources[d->input].entry;
    out[0] = '\0';
    for (int i = 0; i < 3 && !out[0]; i++) {
        if (fb_text_has(names[i], "label") || fb_text_has(names[i], "target")) fb_say(out, room, "of \"%s\"", names[i]);
    }
    if (!out[0]) fb_say(out, room, "that it read");
    return out;
}

void fb_say_domain(fb_look *look)
{
    const fb_domain *d = &look->domain;
    char a[FB_NUMBER_BYTES], b[FB_NUMBER_BYTES], name[320], row[96];
    const char *who = operand_name(look, name, sizeof name);
    fb_number_text(a, d->value);
    fb_number_text(b, d->numerator);
    switch (d->what) {
    case FB_DOMAIN_FULL_ROW:
        say_row(row, sizeof row, &look->w->inputs[d->input], d->row, look->facts->rows);
        FB_EXPLAIN(look->cause,
                   " all %llu scores of row %llu%s of \"%s\" are -Inf: the row is fully masked, and its softmax is 0/0.",
                   (unsigned long long)d->terms, (unsigned long long)d->row, row, look->w->inputs[d->input].name);
        break;
    case FB_DOMAIN_ZERO_BY_ZERO: FB_EXPLAIN(look->cause, " 0/0: %s is 0, and so is what is divided by it.", who); break;
    case FB_DOMAIN_BY_ZERO: FB_EXPLAIN(look->cause, " %s/0: %s is 0.", b, who); break;
    case FB_DOMAIN_LOG_ZERO:
        FB_EXPLAIN(look->cause,
                   look->kind == FB_OP_NLL     ? " the logarithm of 0: the probability of the label, %s, is 0 (its logarithm -Inf)."
                   : look->kind == FB_OP_LOG1P ? " the logarithm of 0: %s is -1."
                                               : " the logarithm of 0: %s is 0.",
                   who);
        break;
    case FB_DOMAIN_LOG_NEGATIVE: FB_EXPLAIN(look->cause, " the logarithm of a negative number: %s is %s.", who, a); break;
    case FB_DOMAIN_SQRT_NEGATIVE:
        FB_EXPLAIN(look->cause, " %s of a negative number: %s is %s.",
                   look->kind == FB_OP_POW ? "a broken power" : "the square root", who, a);
        break;
    case FB_DOMAIN_SQRT_SLOPE:
        FB_EXPLAIN(
            look->cause,
            " the slope of the square root at 0 is infinite: %s, what forward made, is 0, and the gradient %s is divided by it.",
            who, b);
        break;
    case FB_DOMAIN_SLOPE:
        FB_EXPLAIN(look->cause, " the slope of %s at %s is infinite: %s is 0", d->of, d->point, who);
        if (look->kind == FB_OP_DIV) FB_EXPLAIN(look->cause, ", and %s is divided by it", b);
        FB_EXPLAIN(look->cause, ".");
        break;
    case FB_DOMAIN_INF_MINUS_INF:
        FB_EXPLAIN(look->cause, " Inf - Inf: %s is %s, and the other operand takes it away.", who, a);
        break;
    case FB_DOMAIN_ZERO_TIMES_INF:
        if (look->kind == FB_OP_DROPOUT)
            FB_EXPLAIN(look->cause,
                       " 0 * Inf: with a probability of %s all is dropped, and what is left is multiplied with "
                       "1/(1 - %s).",
                       a, a);
        else FB_EXPLAIN(look->cause, " 0 * Inf: an intended infinity is multiplied with 0 (%s).", who);
        break;
    case FB_DOMAIN_TOO_FEW:
        FB_EXPLAIN(look->cause,
                   look->kind == FB_OP_VAR ? " a variance over %llu element%s with a correction of %s: it is divided by 0 or less."
                                           : " a mean over %llu element%s: 0/0.%.0s",
                   (unsigned long long)d->terms, d->terms == 1 ? "" : "s", a);
        break;
    case FB_DOMAIN_SAME_ROW:
        FB_EXPLAIN(look->cause,
                   " 0/0: all %llu numbers of row %llu of \"%s\" are %s, so that they do not vary, and its epsilon is 0.",
                   (unsigned long long)d->terms, (unsigned long long)d->row, look->w->inputs[d->input].name, a);
        break;
    case FB_DOMAIN_ALL_IGNORED:
        FB_EXPLAIN(look->cause, " all labels %s are ignored, and the mean over none of them is 0/0.",
                   labels_name(look, name, sizeof name));
        break;
    case FB_DOMAIN_INDEX:
        FB_EXPLAIN(look->cause, " there is no such row: %s is %s, and allowed are %lld to %lld.", who, a, (long long)d->low,
                   (long long)d->high - 1);
        break;
    case FB_DOMAIN_NUMBER:
        FB_EXPLAIN(look->cause, " it was built with \"%s\" = %s, which is no finite number.", d->attribute, a);
        break;
    default: FB_EXPLAIN(look->cause, " its result is not finite for these finite inputs."); break;
    }
}

static void say_operands(fb_look *look)
{
    char a[FB_NUMBER_BYTES], b[FB_NUMBER_BYTES];
    const fb_terms *t = &look->terms;
    double x, y;
    uint64_t at;
    if (look->has_terms) {
        uint64_t count = t->count - (t->extra ? 1 : 0);
        FB_EXPLAIN(look->cause, " It is a sum of %llu %s%s; the largest, ", (unsigned long long)count,
                   t->products == 2 ? "squares"
                   : t->products    ? "products"
                                    : "numbers",
                   t->extra ? " and a bias" : "");
        if (t->extra && t->largest_at == count)
            FB_EXPLAIN(look->cause, "the bias (\"%s\"), is %s", t->extra->name, fb_number_text(a, t->largest));
        else FB_EXPLAIN(look->cause, "number %llu, is %s", (unsigned long long)t->largest_at, fb_number_text(a, t->largest));
        if (t->products == 1 && t->largest_at < count) {
            FB_EXPLAIN(look->cause, " = %s (\"%s\") x", fb_number_text(a, t->left), t->x->name);
            FB_EXPLAIN(look->cause, " %s (\"%s\")", fb_number_text(b, t->right), t->y->name);
        }
        FB_EXPLAIN(look->cause, ".");
        return;
    }
    if (!fb_value_of(look, &x) || !fb_operand(look, 0, 0, &x, &at)) return;
    FB_EXPLAIN(look->cause, " It is made of %s (\"%s\")", fb_number_text(a, x), look->w->inputs[0].name);
    for (uint32_t k = 1; k < look->w->input_count && k < 3; k++) {
        if (fb_operand(look, k, 0, &y, &at))
            FB_EXPLAIN(look->cause, " and %s (\"%s\")", fb_number_text(b, y), look->w->inputs[k].name);
    }
    if (look->w->input_count == 1 && fb_op_number(look->w, NULL, &y)) {
        FB_EXPLAIN(look->cause, " and %s (%s)", fb_number_text(b, y),
                   look->w->attributes[0].name ? look->w->attributes[0].name : "its number");
    }
    FB_EXPLAIN(look->cause, ".");
}

void fb_say_range(fb_look *look, double exact)
{
    fb_cause *cause = look->cause;
    char value[FB_NUMBER_BYTES], limit[FB_NUMBER_BYTES];
    cause->has_value = 1;
    cause->value = exact;
    cause->limit = fb_number_limit(look->format);
    cause->format = look->format;
    cause->format_needed = fb_json_is_number(exact) ? fb_number_needs(exact) : 0;
    FB_EXPLAIN(cause, " the exact value %s %s, and the largest number of %s is %s;",
               fb_json_is_number(exact) ? "is" : "exceeds FP64 itself:", fb_number_text(value, exact),
               fb_number_format(look->format), fb_number_text(limit, cause->limit));
    if (cause->format_needed) FB_EXPLAIN(cause, " %s holds it.", fb_number_format(cause->format_needed));
    else FB_EXPLAIN(cause, " no format of fp16, bf16 and fp32 holds it.");
    say_operands(look);
}

void fb_say_sample(fb_look *look)
{
    const fb_cause *cause = look->cause;
    if (cause->sample < 0) return;
    FB_EXPLAIN(look->cause, " It belongs to row %lld of the batch", (long long)cause->sample);
    if (cause->sample_id >= 0) FB_EXPLAIN(look->cause, " (sample %lld)", (long long)cause->sample_id);
    FB_EXPLAIN(look->cause, ".");
}

void fb_say_witness(fb_look *look)
{
    const fb_witness *w = look->w;
    const fb_witness_tensor *out = look->out;
    uint64_t bad = out->stats.nan + out->stats.pos_inf + out->stats.neg_inf;
    int masks = 0;
    double most = 0.0;
    char *text = look->cause->witness, number[FB_NUMBER_BYTES], place[128], op[256];
    size_t room = sizeof look->cause->witness;
    for (uint32_t i = 0; i < w->input_count; i++) {
        masks |= w->inputs[i].stats.neg_inf > 0;
        if (w->inputs[i].stats.abs_max > most) most = w->inputs[i].stats.abs_max;
    }
    fb_say(text, room, "%s read %u tensor%s, all finite%s (largest magnitude %s)", fb_say_place(op, sizeof op, &w->place),
           w->input_count, w->input_count == 1 ? "" : "s", masks ? " but for -Inf where it may be intended" : "",
           fb_number_text(number, most));
    fb_say(text, room, ", and made %s at %s of \"%s\"", fb_kind_name(w->bad_kind),
           fb_place_text(place, sizeof place, out, look->at), out->name);
    if (bad) fb_say(text, room, " (%llu of %llu elements are bad)", (unsigned long long)bad, (unsigned long long)out->count);
    if (w->chain_count > 1) {
        fb_say(text, room, "; %u operator%s on the way carr%s it to the finding", w->chain_count - 1,
               w->chain_count == 2 ? "" : "s", w->chain_count == 2 ? "ies" : "y");
    }
    fb_say(text, room, ".");
}

/* ---- what to do -------------------------------------------------------------------------------------------------------------- */

/* The case of a folder: what follows "cases/", whatever lies below it. */
static const char *case_name(char *out, size_t room, const char *folder)
{
    const char *at = folder ? folder : "", *name = NULL;
    size_t bytes = 0;
    for (at = strstr(at, "cases/"); at; at = strstr(name, "cases/")) name = at + strlen("cases/");
    while (name && name[bytes] && name[bytes] != '/') bytes++;
    out[0] = '\0';
    fb_say(out, room, "%.*s", bytes ? (int)(bytes < 63 ? bytes : 63) : 4, bytes ? name : "CASE");
    return out;
}

void fb_say_cure(const fb_cause_facts *facts, fb_cause *cause)
{
    const fb_cause_class *class_of = fb_cause_class_of(cause->class_number);
    char name[64];
    (void)case_name(name, sizeof name, facts->folder);
    fb_say(cause->fix, sizeof cause->fix, "%s", class_of->fix);
    if (cause->rule == FB_RULE_RANGE && cause->format_needed && cause->format == FB_F16) {
        fb_say(cause->fix, sizeof cause->fix, "; %s holds this value", fb_number_format(cause->format_needed));
    }
    if (cause->rule == FB_RULE_NOT_REPRODUCIBLE) {
        fb_say(cause->verify, sizeof cause->verify,
               "firstbad replay %s --times 20 (0 of 20: a single event; some of 20: it is still there)", name);
    } else if (strcmp(class_of->lies_in, "machine") == 0) {
        fb_say(cause->verify, sizeof cause->verify, "firstbad replay %s on another machine (exit 0: it was the device)", name);
    } else if (cause->rule == FB_RULE_STATE) {
        fb_say(cause->verify, sizeof cause->verify,
               "firstbad scan on the checkpoint that is to be resumed from (exit 0: it holds nothing bad)");
    } else if (cause->class_number == FB_CAUSE_UNKNOWN) {
        fb_say(cause->verify, sizeof cause->verify, "firstbad bisect %s", name);
    } else {
        fb_say(cause->verify, sizeof cause->verify, "firstbad replay %s --batch minimal (exit 0 once the fix is in)", name);
    }
}
