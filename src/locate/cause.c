/*
 * The four rules, and what stands before them. The operator in FP64 on what it read is compared with the format its output was
 * rounded to; where that is not finite either, its module in FP64 from what the module read decides between rounding and domain.
 */
#include "locate/cause.h"

#include <math.h>
#include <string.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"
#include "scan/scan_fpenv.h"

void fb_cause_facts_of(fb_cause_facts *facts, const fb_locate_config *config, const fb_locate_result *result,
                       const fb_witness *witness)
{
    memset(facts, 0, sizeof *facts);
    facts->witness = witness;
    facts->found = result->found;
    facts->world = config->world;
    facts->owner = result->owner;
    facts->step = config->step;
    facts->precision = config->precision;
    facts->finding_rank = config->finding_rank;
    facts->finding_boundary = config->finding_boundary;
    facts->finding_kind = config->finding_kind;
    facts->finding_micro_step = config->finding_micro_step;
    facts->finding_module = config->finding_module;
    facts->finding_tensor = config->finding_tensor;
    facts->reproduced = result->reproduced;
    facts->tried = result->tried;
    facts->persists = result->persists;
    facts->faithful = result->faithful;
    facts->other_ranks_bad = result->other_ranks_bad;
    facts->other_ranks_tried = result->other_ranks_tried;
    facts->candidates = result->candidates;
    facts->first_step_of_attempt = config->first_step_of_attempt;
    facts->rows = config->rows;
    facts->columns = config->columns;
    facts->sample_ids = config->sample_ids;
    facts->folder = config->folder;
}

/* ---- rules ------------------------------------------------------------------------------------------------------------------- */

/* A number of the module, or of the operator itself, that is not 0 as written and is 0 in its format. Returns its name or NULL. */
static const char *vanished(const fb_witness *w, double *value, int32_t *format)
{
    if (w->vanished) {
        *value = w->vanished_value;
        *format = w->vanished_format;
        return w->vanished;
    }
    for (uint32_t i = 0; i < w->number_count; i++) {
        const fb_witness_number *n = &w->numbers[i];
        if (!fb_json_is_number(n->value) || n->value == 0.0 || !fb_number_fits(n->format, n->value)) continue;
        if (fb_number_rounded(n->format, n->value) != 0.0) continue;
        *value = n->value;
        *format = n->format;
        return n->name;
    }
    return NULL;
}

/* A number that is added to a tensor and is nothing in its format is an epsilon, whatever it is
 * called: PyTorch calls it "other". */
static int is_epsilon(const fb_look *look, const char *name, double value)
{
    int32_t backward;
    if (fb_text_has(name, "eps")) return 1;
    for (uint32_t i = 0; i < look->w->number_count; i++) {
        const fb_witness_number *n = &look->w->numbers[i];
        if (n->value == value && strcmp(n->name, name) == 0)
            return fb_op_kind(n->op, &backward) == FB_OP_ADD && !backward && strcmp(name, "alpha") != 0;
    }
    return 0;
}

static int say_vanished(fb_look *look)
{
    char number[FB_NUMBER_BYTES];
    double value;
    int32_t format;
    const char *name = vanished(look->w, &value, &format);
    if (!name) return 0;
    FB_EXPLAIN(look->cause, " \"%s\" = %s is 0 in %s%s.", name, fb_number_text(number, value), fb_number_format(format),
               is_epsilon(look, name, value) ? ", so that it no longer keeps the value it is added to above 0" : "");
    return is_epsilon(look, name, value) ? 2 : 1;
}

/* A clamp to 1 - 1e-6 lets 1 through where the format knows no number in between. */
static int say_bound(fb_look *look)
{
    char number[FB_NUMBER_BYTES];
    for (uint32_t i = 0; i < look->w->number_count; i++) {
        const fb_witness_number *n = &look->w->numbers[i];
        if (!fb_text_has(n->op, "clamp") || !fb_json_is_number(n->value) || !(fabs(n->value) < 1.0)) continue;
        if (fabs(fb_number_rounded(n->format, n->value)) != 1.0) continue;
        FB_EXPLAIN(look->cause, " The bound %.9g of %s is %s in %s, so that the clamp lets it through.", n->value, n->op,
                   fb_number_text(number, fb_number_rounded(n->format, n->value)), fb_number_format(n->format));
        return 1;
    }
    return 0;
}

static void range(fb_look *look, double exact)
{
    look->cause->rule = FB_RULE_RANGE;
    fb_say_range(look, exact);
    fb_class_of_range(look);
}

static void upstream(fb_look *look)
{
    char number[FB_NUMBER_BYTES];
    int eps = 0;
    look->cause->rule = FB_RULE_ROUNDING_UPSTREAM;
    fb_say_domain(look);
    eps = say_vanished(look);
    if (!eps && !say_bound(look) && look->domain.what == FB_DOMAIN_SQRT_NEGATIVE) {
        FB_EXPLAIN(look->cause, " What cannot be negative in mathematics came out below 0 by cancellation.");
    }
    if (look->module_known) {
        FB_EXPLAIN(
            look->cause,
            " In FP64 the operator fails on these inputs as well, but its module, from what the module read, gives %s: a rounding "
            "on the way (%u operators) made the argument.",
            fb_number_text(number, look->module_exact), look->w->module_ops);
    } else {
        FB_EXPLAIN(look->cause, " The module could not be run in FP64.");
    }
    if (eps == 2) look->cause->class_number = FB_CAUSE_EPSILON_UNDERFLOW;
    else fb_class_of_domain(look);
    look->cause->certain = look->module_known;
}

static void domain(fb_look *look)
{
    const fb_domain *d = &look->domain;
    int by_itself = d->what == FB_DOMAIN_FULL_ROW || d->what == FB_DOMAIN_INDEX || d->what == FB_DOMAIN_ALL_IGNORED || d->input < 0;
    look->cause->rule = FB_RULE_DOMAIN;
    fb_say_domain(look);
    fb_class_of_domain(look);
    if (look->module_known)
        FB_EXPLAIN(look->cause, " FP64 comes to the same, in the operator and in all of its module, so it is no rounding.");
    else if (look->exact_known) FB_EXPLAIN(look->cause, " FP64 comes to the same.");
    else FB_EXPLAIN(look->cause, " The operator could not be run in FP64; its inputs alone tell.");
    if (!by_itself && !look->module_known && look->w->module_ops > 1) {
        FB_EXPLAIN(look->cause, " The module could not be run in FP64, so a rounding before this operator is not ruled out.");
        look->cause->certain = 0;
    }
    if (!by_itself && look->facts->persists == 0) {
        FB_EXPLAIN(
            look->cause,
            " A replay of the whole step in FP32 stays finite, so the argument is owed to the precision before this module.");
        look->cause->certain = 0;
    }
}

/* An epsilon inside of a fused operator, which the kernel holds in the format. */
static int own_epsilon(fb_look *look)
{
    char number[FB_NUMBER_BYTES];
    double epsilon;
    if (!fb_op_number(look->w, "epsilon", &epsilon) && !fb_op_number(look->w, "eps", &epsilon)) return 0;
    if (epsilon == 0.0 || !fb_number_fits(look->format, epsilon) || fb_number_rounded(look->format, epsilon) != 0.0) return 0;
    FB_EXPLAIN(look->cause, " Its epsilon %s is 0 in %s.", fb_number_text(number, epsilon), fb_number_format(look->format));
    look->cause->class_number = FB_CAUSE_EPSILON_UNDERFLOW;
    return 1;
}

static void rounding(fb_look *look)
{
    fb_cause *cause = look->cause;
    char value[FB_NUMBER_BYTES], limit[FB_NUMBER_BYTES];
    int inner;
    cause->rule = FB_RULE_ROUNDING;
    FB_EXPLAIN(cause, " in FP64 it comes to %s, which %s holds (its largest number is %s), and still the result is not finite.",
               fb_number_text(value, look->exact), fb_number_format(look->format),
               fb_number_text(limit, fb_number_limit(look->format)));
    cause->has_value = 1;
    cause->value = look->exact;
    cause->limit = fb_number_limit(look->format);
    cause->format = look->format;
    if (own_epsilon(look) || fb_scalar_of(look, 1)) return;
    inner = fb_inner_of(look);
    /* A number on the way that is too large is a question of range, though not of the result's. */
    if (inner == 1) cause->rule = FB_RULE_RANGE;
    if (inner) fb_class_of_range(look);
    else fb_class_of_nothing(look);
}

/* ---- an operator ------------------------------------------------------------------------------------------------------------- */

static int look_at(fb_look *look)
{
    const fb_witness *w = look->w;
    if (!w || w->bad_output >= w->output_count) return 0;
    look->out = &w->outputs[w->bad_output];
    look->at = w->bad_index;
    look->format = look->out->format;
    if (look->at >= look->out->count) return 0;
    look->kind = fb_op_kind(w->place.op, &look->backward);
    if ((w->op_flags & FB_TAPE_COLLECTIVE) != 0) look->kind = FB_OP_COLLECTIVE;
    if (w->exact && w->exact[w->bad_output]) {
        look->exact_known = 1;
        look->exact = w->exact[w->bad_output][look->at];
    }
    if (w->module_exact && w->module_exact[w->bad_output]) {
        look->module_known = 1;
        look->module_exact = w->module_exact[w->bad_output][look->at];
    }
    return 1;
}

/* A value that is too large becomes an infinity of its own sign. */
static int other_sign(const fb_look *look)
{
    return (look->w->bad_kind == FB_KIND_POS_INF && look->cause->value < 0.0) ||
           (look->w->bad_kind == FB_KIND_NEG_INF && look->cause->value > 0.0);
}

static void contradictions(fb_look *look)
{
    fb_cause *cause = look->cause;
    if (cause->rule == FB_RULE_RANGE && look->format == FB_F16 && cause->format_needed && look->facts->persists == 1) {
        FB_EXPLAIN(cause,
                   " A replay of the whole step in FP32 shows the finding as well, so the format is not all there is to it.");
        cause->certain = 0;
    }
    if (cause->rule == FB_RULE_RANGE && !look->by_number && other_sign(look)) {
        FB_EXPLAIN(cause, " The result has the other sign, so the size of that value is not all there is to it.");
        cause->certain = 0;
    }
    if (look->facts->found == FB_LOCATED_SET) {
        FB_EXPLAIN(cause, " It is one of %u origins, none of which comes after another.", look->facts->candidates);
    }
}

/* No arithmetic: it gives what was in that memory before. The chain says that it went on, and not
 * that nothing was written between. */
static void unwritten(fb_look *look)
{
    FB_EXPLAIN(look->cause, " it computes nothing and gives memory as it was before, and something of that was read on.");
    look->cause->class_number = FB_CAUSE_UNINITIALISED_MEMORY;
    look->cause->certain = 0;
}

static void decide(fb_look *look)
{
    int named, known = look->exact_known;
    double value = look->exact;
    if (look->kind == FB_OP_EMPTY) {
        unwritten(look);
        return;
    }
    named = fb_domain_of(look);
    if (!known) {
        known = !named && (fb_value_of(look, &value) || look->has_terms);
        if (known && look->has_terms) value = fb_terms_value(&look->terms);
        look->exact = value;
    }
    if (named && look->domain.what == FB_DOMAIN_NUMBER && !(known && fb_json_is_number(value))) {
        domain(look);
        return;
    }
    if (!(named && !known) && !(known && !fb_json_is_number(value)) && fb_scalar_of(look, 0)) return;
    if (named && (!known || look->domain.what == FB_DOMAIN_INDEX || look->domain.what == FB_DOMAIN_FULL_ROW) &&
        look->domain.what != FB_DOMAIN_BEYOND) {
        double number;
        int32_t format;
        if (!look->exact_known && look->w->module_ops != 1 && vanished(look->w, &number, &format)) upstream(look);
        else domain(look);
    } else if (!known && !named && fb_scalar_of(look, 1)) {
        return;
    } else if (!known && !named) {
        FB_EXPLAIN(
            look->cause,
            " its inputs are finite and its result is not; it could not be run in FP64, and what it does to single numbers is not "
            "known here.");
        look->cause->certain = 0;
    } else if (named && look->domain.what == FB_DOMAIN_BEYOND && !fb_json_is_number(value)) {
        range(look, value);
    } else if (fb_json_is_number(value)) {
        if (fb_number_fits(look->format, value)) rounding(look);
        else range(look, value);
    } else if (look->module_known && fb_json_is_number(look->module_exact)) {
        if (fb_number_fits(look->format, look->module_exact)) upstream(look);
        else range(look, look->module_exact);
    } else if (!look->module_known && look->w->module_ops > 1) {
        double number;
        int32_t format;
        if (vanished(look->w, &number, &format)) upstream(look);
        else domain(look);
    } else {
        domain(look);
    }
}

static void judge_operator(const fb_cause_facts *facts, fb_cause *cause)
{
    fb_look look;
    char place[256];
    memset(&look, 0, sizeof look);
    look.facts = facts;
    look.w = facts->witness;
    look.cause = cause;
    if (!look_at(&look)) {
        FB_EXPLAIN(cause, "What the operator read and made was not kept, so no cause is given.");
        return;
    }
    cause->certain = 1;
    look.has_terms = fb_terms_of(&look);
    fb_operand_sample(&look);
    FB_EXPLAIN(cause, "%s:", fb_say_place(place, sizeof place, &look.w->place));
    decide(&look);
    fb_say_sample(&look);
    contradictions(&look);
    fb_say_witness(&look);
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

/* Integers of a batch are no non-finite values: replays cannot show them again, and need not. */
static int is_batch_finding(const fb_cause_facts *facts)
{
    return facts->finding_boundary == FB_INPUT &&
           (facts->finding_kind == FB_KIND_OUT_OF_RANGE || facts->finding_kind == FB_KIND_ALL_IGNORED ||
            facts->finding_kind == FB_KIND_DOMAIN);
}

void fb_cause_judge(const fb_cause_facts *facts, fb_cause *cause)
{
    fb_fpenv saved = fb_fpenv_enter();
    memset(cause, 0, sizeof *cause);
    cause->row = cause->sample = cause->sample_id = -1;
    if (facts->found == FB_LOCATED_OPERATOR || facts->found == FB_LOCATED_SET) judge_operator(facts, cause);
    else if (is_batch_finding(facts)) fb_judge_batch(facts, cause);
    else if (facts->found == FB_LOCATED_ENTRY) fb_judge_entry(facts, cause);
    else fb_judge_replays(facts, cause);
    fb_say_cure(facts, cause);
    fb_fpenv_leave(saved);
}
