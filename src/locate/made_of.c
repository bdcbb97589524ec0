#include "locate/made_of.h"

#include <string.h>

#include "locate/cause_inside.h"

enum { STEM = 96 };

typedef struct walk {
    const fb_row *row;
    fb_made *made;
    uint32_t left; /* tensors that may still be looked at */
} walk;

static int is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcmp(*names, name) == 0) return 1;
    }
    return 0;
}

/* The same elements, or some of them, and nothing else. */
static int moves(const char *stem)
{
    static const char *const names[] = {"alias",      "select",  "to_copy",    "copy",      "clone",     "cast",
                                        "contiguous", "site",    "expand",     "view",      "unsqueeze", "squeeze",
                                        "flip",       "roll",    "clamp",      "clamp_min", "clamp_max", "abs",
                                        "repeat",     "reshape", "all_reduce", "allreduce", NULL};
    return is_one_of(stem, names);
}

/* Elements of several tensors, chosen by what is no number of the result. */
static int chooses(const char *stem)
{
    static const char *const names[] = {"cat", "stack", "where", "masked_fill", "constant_pad_nd", "tril", "triu", "fill", NULL};
    return is_one_of(stem, names);
}

/* Of the first tensor alone: the others say which elements. */
static int picks(const char *stem)
{
    static const char *const names[] = {"index", "gather", "index_select", "take", "slice", "masked_select", NULL};
    return is_one_of(stem, names);
}

static int is_constant(const char *stem)
{
    static const char *const names[] = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like",     "new_ones",
                                        "full",  "full_like",  "new_full",  "zero", "scalar_tensor", NULL};
    return is_one_of(stem, names);
}

static int adds_up(const char *stem)
{
    static const char *const names[] = {"sum", "nansum", "row_sum", "mean", "row_mean", "count_nonzero", NULL};
    return is_one_of(stem, names);
}

static int compares(const char *stem)
{
    static const char *const names[] = {"ne", "eq", "lt", "le", "gt", "ge", NULL};
    return is_one_of(stem, names);
}

static int is_integer(int32_t format)
{
    return format >= FB_I8 && format <= FB_U64;
}

static void stem_of(const walk *w, uint32_t node, char stem[STEM])
{
    int32_t backward;
    (void)fb_op_stem(stem, STEM, fb_row_text(w->row, w->row->node[node].op), &backward);
    if (backward) stem[0] = '\0';
}

static uint32_t inputs_of(const walk *w, uint32_t node)
{
    return (uint32_t)(w->row->first[node + 1] - w->row->first[node]);
}

static uint32_t input_of(const walk *w, uint32_t node, uint32_t i)
{
    return w->row->inputs[w->row->first[node] + i];
}

/* Its numbers are far from what would make a product vanish that is not 0. */
static int scales_little(const walk *w, uint32_t node)
{
    const fb_row_node *of = &w->row->node[node];
    for (uint32_t i = 0; i < of->attribute_count; i++) {
        double x = w->row->attribute[of->first_attribute + i].value;
        if (!(x >= 0x1p-20 && x <= 0x1p20) && !(x <= -0x1p-20 && x >= -0x1p20)) return 0;
    }
    return 1;
}

static uint32_t behind(walk *w, uint32_t t)
{
    char stem[STEM];
    for (; w->left > 0; w->left--) {
        uint32_t node = w->row->producer[t];
        int scaled;
        if (node == FB_FLOW_NONE || inputs_of(w, node) != 1) break;
        stem_of(w, node, stem);
        scaled = strcmp(stem, "mul") == 0 && scales_little(w, node);
        if (!moves(stem) && !scaled) break;
        t = input_of(w, node, 0);
    }
    return t;
}

/* ---- what numbers are -------------------------------------------------------------------------------------------------------- */

static int32_t entry_is(walk *w, uint32_t t)
{
    uint32_t flags = w->row->flags[t];
    int32_t format = w->row->format[t];
    if ((flags & FB_TAPE_BATCH) && w->made->of == FB_FLOW_NONE) w->made->of = t;
    if (format == FB_BOOL) return FB_MADE_COUNT;
    if (flags & FB_TAPE_STATE) return FB_MADE_OTHERWISE;
    if (flags & FB_TAPE_UNSEEN) w->made->unseen = 1;
    return is_integer(format) && (flags & FB_TAPE_BATCH) ? FB_MADE_COUNT : FB_MADE_WEIGHTS;
}

/* Which field of the batch is asked, and by which comparison: for the sentence alone. */
static void name_condition(walk *w, uint32_t node)
{
    char stem[STEM];
    uint32_t t;
    stem_of(w, node, stem);
    if (!compares(stem) || w->made->by != FB_FLOW_NONE || inputs_of(w, node) == 0) return;
    t = behind(w, input_of(w, node, 0));
    if (w->row->producer[t] != FB_FLOW_NONE || !(w->row->flags[t] & FB_TAPE_BATCH)) return;
    w->made->by = node;
    if (w->made->of == FB_FLOW_NONE) w->made->of = t;
}

static int32_t worse(int32_t a, int32_t b)
{
    return a == FB_MADE_UNKNOWN || b == FB_MADE_UNKNOWN ? FB_MADE_UNKNOWN : a > b ? a : b;
}

static int32_t numbers_are(walk *w, uint32_t t, int depth);

static int32_t all_are(walk *w, uint32_t node, uint32_t from, uint32_t to, int depth)
{
    int32_t is = FB_MADE_COUNT;
    for (uint32_t i = from; i < to; i++) is = worse(is, numbers_are(w, input_of(w, node, i), depth + 1));
    return is;
}

static int32_t made_are(walk *w, uint32_t node, int depth)
{
    char stem[STEM];
    uint32_t reads = inputs_of(w, node);
    int32_t is;
    stem_of(w, node, stem);
    if (is_constant(stem)) return FB_MADE_COUNT;
    if (strcmp(stem, "count_nonzero") == 0 || strcmp(stem, "one_hot") == 0) return FB_MADE_COUNT;
    if (reads == 0) return FB_MADE_OTHERWISE;
    if (moves(stem)) return all_are(w, node, 0, reads, depth);
    if (chooses(stem)) return all_are(w, node, strcmp(stem, "where") == 0 ? 1 : 0, reads, depth);
    if (picks(stem) || adds_up(stem)) return all_are(w, node, 0, 1, depth);
    is = all_are(w, node, 0, reads, depth);
    /* A product of two small numbers may be 0 although neither is. */
    if (strcmp(stem, "mul") == 0 && reads == 1) return scales_little(w, node) ? is : FB_MADE_OTHERWISE;
    if (strcmp(stem, "mul") == 0 && is == FB_MADE_WEIGHTS && reads == 2) {
        int32_t a = numbers_are(w, input_of(w, node, 0), depth + 1), b = numbers_are(w, input_of(w, node, 1), depth + 1);
        return a == FB_MADE_WEIGHTS && b == FB_MADE_WEIGHTS ? FB_MADE_OTHERWISE : is;
    }
    if (strcmp(stem, "mul") == 0 || strcmp(stem, "add") == 0 || strcmp(stem, "sub") == 0 || strcmp(stem, "rsub") == 0)
        return is == FB_MADE_COUNT || is == FB_MADE_UNKNOWN ? is : FB_MADE_OTHERWISE;
    return FB_MADE_OTHERWISE;
}

static int32_t numbers_are(walk *w, uint32_t t, int depth)
{
    uint32_t node = w->row->producer[t];
    if (w->left == 0 || depth > 64) return FB_MADE_UNKNOWN;
    w->left--;
    if (node == FB_FLOW_NONE) return entry_is(w, t);
    if (w->row->format[t] == FB_BOOL) {
        name_condition(w, node);
        return FB_MADE_COUNT;
    }
    return made_are(w, node, depth);
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static int named_as_count(const char *name)
{
    static const char *const words[] = {"num_", "count", "items", "tokens", "valid", "length", NULL};
    for (const char *const *word = words; *word; word++) {
        if (fb_text_has(name, *word)) return 1;
    }
    return 0;
}

static int32_t handed_over(walk *w, uint32_t t)
{
    uint32_t flags = w->row->flags[t];
    w->made->entry = t;
    if (!(flags & FB_TAPE_BATCH)) return FB_MADE_OTHERWISE;
    w->made->of = t;
    if (w->row->count[t] == 1 && is_integer(w->row->format[t])) return FB_MADE_COUNT;
    return named_as_count(fb_row_text(w->row, w->row->name[t])) ? FB_MADE_COUNT : FB_MADE_OTHERWISE;
}

void fb_made_of(const fb_row *row, uint32_t tensor, fb_made *made)
{
    walk w = {row, made, FB_MADE_STEPS};
    char stem[STEM];
    uint32_t t, node;
    int32_t backward;
    made->entry = made->summed = made->of = made->by = FB_FLOW_NONE;
    made->unseen = 0;
    t = behind(&w, tensor);
    node = row->producer[t];
    if (node == FB_FLOW_NONE) {
        made->is = handed_over(&w, t);
        return;
    }
    stem_of(&w, node, stem);
    if (!adds_up(stem) || inputs_of(&w, node) == 0) {
        made->is = fb_op_kind(fb_row_text(row, row->node[node].op), &backward) == FB_OP_OTHER ? FB_MADE_UNKNOWN : FB_MADE_OTHERWISE;
        return;
    }
    made->summed = input_of(&w, node, 0);
    made->is = strcmp(stem, "count_nonzero") == 0 ? FB_MADE_COUNT : numbers_are(&w, made->summed, 0);
}
