/*
 * Which class. The same 0/0 is a batch without labels in the loss, a lost counter in the optimizer, and an FP8 scale of nothing in
 * a
 * cast: names, boundaries and what the module read decide. Where they do not, the class that is left is given as not certain.
 */
#include <math.h>
#include <string.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"

static void is(fb_look *look, int32_t class_number, int certain)
{
    look->cause->class_number = class_number;
    if (!certain) look->cause->certain = 0;
}

/* ---- range ------------------------------------------------------------------------------------------------------------------- */

/* A scalar of the configuration with such a name among the operands; its value. */
static int scalar(const fb_look *look, const char *word, const char *other, double *value)
{
    for (uint32_t i = 0; i < look->w->input_count; i++) {
        const fb_witness_tensor *in = &look->w->inputs[i];
        if (!(in->flags & FB_TAPE_SCALAR) || in->count != 1 || !in->values) continue;
        if (!fb_text_has(in->name, word) && strcmp(in->name, other) != 0) continue;
        *value = in->values[0];
        return 1;
    }
    return 0;
}

/* Weights of a layer have a root mean square near 1 / sqrt(width) when they are drawn; 8 times that is no draw of that law. */
static int drawn_too_large(const fb_look *look, double *rms, double *law)
{
    if (look->facts->first_step_of_attempt != 1 || look->w->place.boundary != FB_FORWARD) return 0;
    for (uint32_t i = 0; i < look->w->input_count; i++) {
        const fb_witness_tensor *in = &look->w->inputs[i];
        uint64_t width = fb_last_dim(in);
        if (!in->entry || !(in->flags & FB_TAPE_STATE) || in->ndim != 2 || in->stats.elements == 0 || width == 0) continue;
        *rms = sqrt(in->stats.sum_sq / (double)in->stats.elements);
        *law = 1.0 / sqrt((double)width);
        if (in->stats.sum_sq_exponent == 0 && *rms > 8.0 * *law) return 1;
    }
    return 0;
}

void fb_class_of_range(fb_look *look)
{
    int32_t boundary = look->w->place.boundary;
    char a[FB_NUMBER_BYTES], b[FB_NUMBER_BYTES];
    double x, law;
    if (scalar(look, "scale", "loss_seed", &x) && x > 0x1p32) {
        FB_EXPLAIN(look->cause, " The loss scale stands at %s.", fb_number_text(a, x));
        is(look, FB_CAUSE_SCALE_RUNAWAY, 1);
    } else if (scalar(look, "learning_rate", "lr", &x) && fabs(x) > 1.0) {
        FB_EXPLAIN(look->cause, " The learning rate stands at %s.", fb_number_text(a, x));
        is(look, FB_CAUSE_LR_INSTABILITY, 0);
    } else if (drawn_too_large(look, &x, &law)) {
        FB_EXPLAIN(look->cause,
                   " No update was made yet, and the weights it reads have a root mean square of %s, where 1/sqrt(width) is %s.",
                   fb_number_text(a, x), fb_number_text(b, law));
        is(look, FB_CAUSE_INIT_SCALE, 0);
    } else if (look->format == FB_F16 && (boundary == FB_FORWARD || boundary == FB_LOSS)) {
        is(look, FB_CAUSE_FP16_FORWARD_OVERFLOW, 1);
    } else if (look->format == FB_F16 && (boundary == FB_LOCAL_GRAD || boundary == FB_REDUCED_GRAD)) {
        is(look, FB_CAUSE_FP16_BACKWARD_OVERFLOW, 1);
    } else {
        is(look, FB_CAUSE_OVERFLOW, 1);
    }
}

/* ---- domain ------------------------------------------------------------------------------------------------------------------ */

static const fb_witness_tensor *module_input(const fb_look *look, const char *word, const char *other, int integers)
{
    for (uint32_t i = 0; i < look->w->module_input_count; i++) {
        const fb_witness_tensor *in = &look->w->module_inputs[i];
        int of_integers = in->format >= FB_I8 && in->format <= FB_U64;
        if (in->flags & FB_TAPE_STATE) continue; /* the weights of a layer are none of the loss */
        if (of_integers == integers && in->values && in->count > 0 && (fb_text_has(in->name, word) || fb_text_has(in->name, other)))
            return in;
    }
    return NULL;
}

static int all_negative(const fb_witness_tensor *tensor)
{
    for (uint64_t i = 0; tensor && i < tensor->count; i++) {
        if (!(tensor->values[i] < 0.0)) return 0;
    }
    return tensor != NULL;
}

static int all_zero(const fb_witness_tensor *tensor)
{
    for (uint64_t i = 0; tensor && i < tensor->count; i++) {
        if (tensor->values[i] != 0.0) return 0;
    }
    return tensor != NULL;
}

/* guess: where nothing tells, it is a normaliser. 0: not told. */
static int zero_in_loss(fb_look *look, int guess)
{
    const fb_witness_tensor *labels = module_input(look, "target", "label", 1),
                            *weights = module_input(look, "weight", "weights", 0);
    if (all_negative(labels)) {
        FB_EXPLAIN(look->cause, " All %llu labels of \"%s\" are ignored.", (unsigned long long)labels->count, labels->name);
        is(look, FB_CAUSE_LABEL_ALL_IGNORED, 1);
    } else if (all_zero(weights)) {
        FB_EXPLAIN(look->cause, " All %llu weights of \"%s\" are 0.", (unsigned long long)weights->count, weights->name);
        is(look, FB_CAUSE_ZERO_DENOMINATOR, 1);
    } else if (look->facts->finding_kind == FB_KIND_ALL_IGNORED) {
        is(look, FB_CAUSE_LABEL_ALL_IGNORED, 1);
    } else if (guess && labels && weights) {
        FB_EXPLAIN(look->cause, " Some labels count and some weights are above 0, but no label that counts has a weight above 0.");
        is(look, FB_CAUSE_ZERO_DENOMINATOR, 1);
    } else if (!guess) {
        return 0;
    } else {
        FB_EXPLAIN(look->cause, " Whether all labels are ignored or all weights are 0 was not kept.");
        is(look, FB_CAUSE_ZERO_DENOMINATOR, 0);
    }
    return 1;
}

static int has_epsilon_of_zero(const fb_witness *w)
{
    for (uint32_t i = 0; i < w->number_count; i++) {
        if (fb_text_has(w->numbers[i].name, "eps") && w->numbers[i].value == 0.0) return 1;
    }
    return 0;
}

static int has_epsilon(const fb_witness *w)
{
    for (uint32_t i = 0; i < w->number_count; i++) {
        if (fb_text_has(w->numbers[i].name, "eps")) return 1;
    }
    return 0;
}

/* One number as denominator is a correction of the bias, made from a counter; one for each element is the root of a moment. */
static void zero_in_update(fb_look *look)
{
    int32_t input = look->domain.input;
    const fb_witness_tensor *denominator = input >= 0 ? &look->w->inputs[input] : NULL;
    if (fb_text_has(look->out->name, "learning_rate") || strcmp(look->out->name, "lr") == 0) {
        is(look, FB_CAUSE_LR_INSTABILITY, 1);
    } else if (denominator && denominator->count == 1 && fb_text_has(denominator->name, "norm")) {
        FB_EXPLAIN(look->cause, " It is the norm of all gradients, and they are all 0.");
        is(look, FB_CAUSE_DOMAIN_MATH, 1);
    } else if (denominator && denominator->count == 1 && (look->out->count > 1 || fb_text_has(denominator->name, "correction"))) {
        FB_EXPLAIN(look->cause,
                   " It is one number for all elements, as the correction of a bias is: 1 - beta^t is 0 when the counter t is 0.");
        if (look->facts->first_step_of_attempt == 2) is(look, FB_CAUSE_RESUME_MISMATCH, 1);
        else is(look, FB_CAUSE_OPTIMIZER_STATE, 1);
    } else {
        FB_EXPLAIN(look->cause, "%s",
                   has_epsilon_of_zero(look->w) ? " The epsilon of the denominator is 0."
                   : has_epsilon(look->w)       ? " The epsilon of the denominator did not hold it above 0."
                                                : " There is no epsilon above 0 in the denominator.");
        is(look, FB_CAUSE_EPSILON_UNDERFLOW, has_epsilon_of_zero(look->w));
    }
}

static int names_fp8(const fb_look *look)
{
    const fb_domain *d = &look->domain;
    const char *name = d->input >= 0 ? look->w->inputs[d->input].name : "";
    return fb_text_has(name, "amax") || fb_text_has(name, "fp8") || fb_text_has(look->out->name, "amax") ||
           fb_text_has(look->out->name, "fp8") || fb_text_has(look->w->place.module, "fp8");
}

/* The largest numbers of e4m3, e5m2 and e4m3fnuz: what a scale is made of. */
static int divides_fp8(const fb_domain *d)
{
    return d->numerator == 448.0 || d->numerator == 57344.0 || d->numerator == 240.0;
}

/* What PyTorch calls the factor with which a step is added, or with which a parameter decays: the name says nothing of it. */
static int framework_word(const char *name)
{
    static const char *const words[] = {"alpha", "value", "other", "scalar", "weight", "beta"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], name) == 0) return 1;
    }
    return 0;
}

static void bad_number(fb_look *look)
{
    const char *name = look->domain.attribute;
    if (fb_text_has(name, "scale")) {
        is(look, FB_CAUSE_SCALE_RUNAWAY, 0);
    } else if (fb_text_has(name, "decay") || fb_text_has(name, "rate") || strcmp(name, "lr") == 0) {
        is(look, FB_CAUSE_LR_INSTABILITY, 0);
    } else if (look->w->place.boundary == FB_UPDATE && framework_word(name)) {
        FB_EXPLAIN(look->cause, " In an update such a number is made of the learning rate, as a rule.");
        is(look, FB_CAUSE_LR_INSTABILITY, 0);
    } else {
        is(look, FB_CAUSE_DOMAIN_MATH, 1);
    }
}

static const fb_witness_source *source_of(const fb_look *look, int32_t input)
{
    return look->w->sources && input >= 0 && (uint32_t)input < look->w->input_count ? &look->w->sources[input] : NULL;
}

/* With nothing below 0 among them, a sum of 0 is one of zeros. What is true or false need not be looked at. */
static int none_below_zero(const fb_witness_tensor *summed)
{
    int32_t f = summed->format;
    if (f == FB_BOOL || f == FB_U8 || f == FB_U16 || f == FB_U32 || f == FB_U64) return 1;
    if (!summed->values) return 0;
    for (uint64_t i = 0; i < summed->count; i++) {
        if (!(summed->values[i] >= 0.0)) return 0;
    }
    return 1;
}

static int is_of_labels(const fb_witness_source *source)
{
    return fb_text_has(source->of, "label") || fb_text_has(source->of, "target");
}

/* What an aten operator calls its arguments says nothing of the program's. */
static int is_a_name(const char *name)
{
    static const char *const words[] = {"self", "other", "input", "tensor", "x"};
    for (size_t i = 0; name && i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], name) == 0) return 0;
    }
    return name && name[0];
}

static void say_counted(fb_look *look, const fb_witness_source *source, int one)
{
    char of[160] = "the batch";
    if (is_a_name(source->of)) {
        of[0] = '\0';
        fb_say(of, sizeof of, "\"%.140s\"", source->of);
    }
    if (source->summed_id == FB_WITNESS_NONE)
        FB_EXPLAIN(look->cause, " It came with the batch (%s), as a count of what is there.", of);
    else if (source->by && strcmp(source->by, "ne") == 0 && is_of_labels(source))
        FB_EXPLAIN(look->cause, " It counts the labels of %s that are not ignored, and %s.", of, one ? "all are" : "there all are");
    else if (source->is == FB_MADE_COUNT)
        FB_EXPLAIN(look->cause, " It counts what is set in %s%s%s%s, and %s is.", of, source->by ? " (" : "",
                   source->by ? source->by : "", source->by ? ")" : "", one ? "nothing" : "there nothing");
    else FB_EXPLAIN(look->cause, " It is a sum over %s, and all that it adds up %sis 0.", of, one ? "" : "there ");
}

/* The denominator is a count, or a sum over the batch, that came to 0. */
static int counted(fb_look *look)
{
    const fb_domain *d = &look->domain;
    const fb_witness_source *source = source_of(look, d->input);
    int handed_over;
    if (!source || (source->is != FB_MADE_COUNT && source->is != FB_MADE_WEIGHTS)) return 0;
    handed_over = source->summed_id == FB_WITNESS_NONE;
    if (look->module_known && fb_json_is_number(look->module_exact)) return 0; /* in FP64 it is not 0 */
    if (!handed_over && !none_below_zero(&source->summed)) return 0;
    say_counted(look, source, look->w->inputs[d->input].count == 1);
    if (source->by && strcmp(source->by, "ne") == 0 && is_of_labels(source)) is(look, FB_CAUSE_LABEL_ALL_IGNORED, 1);
    else is(look, FB_CAUSE_ZERO_DENOMINATOR, !(source->unseen && source->is == FB_MADE_WEIGHTS));
    return 1;
}

/* It is known to be something else, so that nothing need be guessed. */
static int no_count(const fb_look *look)
{
    const fb_witness_source *source = source_of(look, look->domain.input);
    return source && source->is == FB_MADE_OTHERWISE;
}

static void by_zero(fb_look *look)
{
    const fb_domain *d = &look->domain;
    const char *name = d->input >= 0 ? look->w->inputs[d->input].name : "";
    int one = d->input >= 0 && look->w->inputs[d->input].count == 1;
    int in_loss = look->w->place.boundary == FB_LOSS || fb_text_has(look->w->place.module, "loss");
    if (look->w->place.boundary == FB_UPDATE) zero_in_update(look);
    else if (names_fp8(look)) is(look, FB_CAUSE_FP8_SCALING, 1);
    else if (divides_fp8(&look->domain)) is(look, FB_CAUSE_FP8_SCALING, 0);
    else if (one && in_loss && zero_in_loss(look, 0)) return;
    else if (counted(look)) return;
    else if (one && in_loss && !no_count(look) && zero_in_loss(look, 1)) return;
    else if (fb_text_has(name, "weight_sum") || fb_text_has(name, "count") || fb_text_has(name, "valid"))
        is(look, FB_CAUSE_ZERO_DENOMINATOR, 1);
    else is(look, FB_CAUSE_DOMAIN_MATH, 1);
}

static void no_row(fb_look *look)
{
    const fb_witness_tensor *ids = &look->w->inputs[look->domain.input];
    look->cause->rule = FB_RULE_BATCH;
    if (fb_text_has(ids->name, "position") || fb_text_has(look->w->place.module, "wpe") ||
        fb_text_has(look->w->place.module, "position")) {
        is(look, FB_CAUSE_POSITION_OUT_OF_RANGE, 1);
    } else {
        is(look, FB_CAUSE_TOKEN_OUT_OF_RANGE, 1);
    }
    if (look->domain.value < 0.0 && look->domain.value >= -32768.0 && look->domain.value + 65536.0 < (double)look->domain.high) {
        FB_EXPLAIN(look->cause, " It is %.0f - 65536: an id that was stored in 16 bits.", look->domain.value + 65536.0);
    }
}

/* A mean over nothing is divided by a count of 0; a deviation over one element by what is no count of the batch. */
static int32_t too_few_class(const fb_look *look)
{
    return look->kind != FB_OP_VAR && look->domain.terms == 0 ? FB_CAUSE_ZERO_DENOMINATOR : FB_CAUSE_DOMAIN_MATH;
}

void fb_class_of_domain(fb_look *look)
{
    switch (look->domain.what) {
    case FB_DOMAIN_FULL_ROW: is(look, FB_CAUSE_MASK_FULL_ROW, 1); break;
    case FB_DOMAIN_ALL_IGNORED: is(look, FB_CAUSE_LABEL_ALL_IGNORED, 1); break;
    case FB_DOMAIN_INDEX: no_row(look); break;
    case FB_DOMAIN_ZERO_BY_ZERO:
    case FB_DOMAIN_BY_ZERO: by_zero(look); break;
    case FB_DOMAIN_TOO_FEW: is(look, too_few_class(look), 1); break;
    case FB_DOMAIN_SQRT_NEGATIVE:
        is(look, look->w->place.boundary == FB_UPDATE ? FB_CAUSE_OPTIMIZER_STATE : FB_CAUSE_DOMAIN_MATH, 1);
        break;
    case FB_DOMAIN_ZERO_TIMES_INF: is(look, names_fp8(look) ? FB_CAUSE_FP8_SCALING : FB_CAUSE_DOMAIN_MATH, 1); break;
    case FB_DOMAIN_NUMBER: bad_number(look); break;
    case FB_DOMAIN_NONE:
        /* FP64 says that it is no rounding; which argument is to blame is not known of this operator. */
        is(look, FB_CAUSE_DOMAIN_MATH, 0);
        break;
    default: is(look, FB_CAUSE_DOMAIN_MATH, 1); break;
    }
}

/* ---- what arithmetic does not explain ---------------------------------------------------------------------------------------- */

/* All rows from one on hold something bad and none before it does: what was not written begins there. */
static int only_the_tail(const fb_look *look, uint64_t *first)
{
    const fb_witness_tensor *out = look->out;
    uint64_t columns = fb_last_dim(out), rows, tail = 0;
    if (!out->values || columns == 0 || columns == out->count) return 0;
    rows = out->count / columns;
    for (uint64_t row = 0; row < rows; row++) {
        int bad = 0;
        for (uint64_t i = 0; i < columns; i++) bad |= !fb_json_is_number(out->values[row * columns + i]);
        if (bad && tail == 0) {
            if (row == 0) return 0;
            tail = row;
        }
        if (!bad && tail) return 0;
    }
    *first = tail;
    return tail > 0;
}

void fb_class_of_nothing(fb_look *look)
{
    const fb_cause_facts *facts = look->facts;
    uint64_t row;
    int known = fb_inner_known(look);
    look->cause->rule = FB_RULE_NONE;
    if (known) FB_EXPLAIN(look->cause, " Nothing that such an operator computes on the way leaves the format either.");
    if (look->kind == FB_OP_COLLECTIVE || (look->w->op_flags & FB_TAPE_COLLECTIVE)) {
        if (look->w->ranks_bad == 1 && facts->world > 1) {
            FB_EXPLAIN(look->cause, " Only 1 of %d ranks received it, so it was damaged on its way to that rank or in its memory.",
                       facts->world);
            is(look, FB_CAUSE_HARDWARE_FAULT, 0);
        } else {
            FB_EXPLAIN(look->cause,
                       " The collective itself gave another number than the sum of what the ranks sent: a race on its buffer, "
                       "or a fault of transport.%s",
                       facts->world > 2 ? " Or a sum over some of the ranks left the format, which the sum over all does not."
                                        : "");
            is(look, FB_CAUSE_COLLECTIVE_RACE, 0);
        }
    } else if (facts->other_ranks_tried > 0 && facts->other_ranks_bad == 0) {
        FB_EXPLAIN(look->cause,
                   " The same batch and random state stay finite on %u other ranks: the device of rank %d, not the data.",
                   facts->other_ranks_tried, facts->owner);
        is(look, FB_CAUSE_HARDWARE_FAULT, 1);
    } else if (only_the_tail(look, &row)) {
        FB_EXPLAIN(look->cause,
                   " All rows from %llu on are bad and none before: memory behind the last row that was written, "
                   "rather than a wrong result of the kernel.",
                   (unsigned long long)row);
        is(look, FB_CAUSE_UNINITIALISED_MEMORY, 0);
    } else if (fb_scalar_unknown(look) || (!known && !fb_scalar_margin(look))) {
        const char *what = fb_scalar_unknown(look);
        if (what) FB_EXPLAIN(look->cause, " It cannot be said why: %s.", what);
        else
            FB_EXPLAIN(
                look->cause,
                " What such an operator computes on the way is not known here, and squares or exponentials of what it read do "
                "not stay far within the format: no fault of the kernel is claimed.");
        is(look, FB_CAUSE_UNKNOWN, 0);
    } else {
        FB_EXPLAIN(look->cause, "%s",
                   facts->other_ranks_bad > 0
                       ? " The other ranks come to the same with that batch, so it is the kernel and not one device."
                       : " No other rank ran the same batch, so a fault of this device is not ruled out.");
        if (!known)
            FB_EXPLAIN(look->cause,
                       " What such an operator computes on the way is not known here: a number inside of it that leaves the format "
                       "is not ruled out.");
        is(look, FB_CAUSE_KERNEL_BUG, known && facts->other_ranks_bad > 0);
    }
}
