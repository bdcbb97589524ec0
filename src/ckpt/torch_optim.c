/*
 * Which parameter is number 12 of an optimizer? The optimizer knows numbers alone: those of its groups, in order. Newer files say
 * the names (param_names); else a model in the same file may tell: when the floating tensors of one of its dicts, tied ones once,
 * are as many as the parameters and have the shapes that the moments have, in the order of the groups. Two orders are tried: that
 * of the model, and that of the usual two groups (weights of two dimensions or more with weight decay, then the rest). A wrong name
 * would be worse than a number, so anything that does not fit leaves the numbers, and so do two models that fit and have other
 * names.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/pickle_graph.h"
#include "ckpt/torch_inside.h"

enum { STEPS_MAX = 50000000, PARAMETERS_MAX = 4000000 };

/* Entries of a parameter's state that have its shape. */
static const char *const moments[] = {
    "exp_avg",        "exp_avg_sq", "momentum_buffer",
    "max_exp_avg_sq", "square_avg", "grad_avg",
    "exp_inf",        "acc_delta",  "sum",
    "prev",           "z",          "ema",
    "master_param",   "ax",
};

typedef struct parameter {
    fb_node name, size;
} parameter;

typedef struct search {
    fb_torch_object *object;
    const fb_pickle *pickle;
    uint32_t *ids;  /* by place in the groups: the number */
    fb_node *names; /* by place: text, or 0 */
    uint64_t count, room, names_room;
    int named;      /* every group says its names */
    fb_node *sizes; /* by place: the shape that the state shows, or 0 */
    fb_error *err;
} search;

static int spend(search *s, uint64_t steps)
{
    s->object->work += steps;
    return s->object->work <= STEPS_MAX;
}

static fb_node pairs_of(const fb_pickle *p, fb_node dict)
{
    fb_node pairs = fb_pickle_kind(p, dict) == FB_PICKLE_CALL ? fb_pickle_items(p, dict) : dict;
    return fb_pickle_kind(p, pairs) == FB_PICKLE_DICT ? pairs : 0;
}

/* ---- the groups ------------------------------------------------------------------------------------------------------------- */

/* 1: done; 0: no numbers that we understand; -1: no memory. */
static int take_group(search *s, fb_node group)
{
    const fb_pickle *p = s->pickle;
    fb_node numbers = fb_pickle_get(p, group, "params"), names = fb_pickle_get(p, group, "param_names");
    uint64_t n = fb_pickle_children(p, numbers);
    if (fb_pickle_kind(p, numbers) != FB_PICKLE_LIST || s->count + n > PARAMETERS_MAX || !spend(s, n + 1)) return 0;
    if (fb_pickle_children(p, names) != n) s->named = 0;
    if (!fb_pickle_grow((void **)&s->ids, &s->room, s->count + n, sizeof *s->ids) ||
        !fb_pickle_grow((void **)&s->names, &s->names_room, s->count + n, sizeof *s->names))
        return -1;
    for (uint64_t i = 0; i < n; i++) {
        fb_node number = fb_pickle_child(p, numbers, i);
        int64_t id = fb_pickle_int(p, number);
        if (fb_pickle_kind(p, number) != FB_PICKLE_INT || id < 0 || id > PARAMETERS_MAX) return 0;
        s->ids[s->count] = (uint32_t)id;
        s->names[s->count] = s->named ? fb_pickle_child(p, names, i) : 0;
        if (fb_pickle_kind(p, s->names[s->count]) != FB_PICKLE_TEXT) s->named = 0;
        s->count++;
    }
    return 1;
}

static int take_groups(search *s, fb_node groups)
{
    uint64_t n = fb_pickle_children(s->pickle, groups);
    s->named = 1;
    for (uint64_t i = 0; i < n; i++) {
        int taken = take_group(s, fb_pickle_child(s->pickle, groups, i));
        if (taken != 1) return taken;
    }
    for (uint64_t i = 0; i < s->count; i++) {
        if (s->ids[i] >= s->count) return 0;
    }
    return s->count > 0;
}

/* ---- the shapes that the state shows ----------------------------------------------------------------------------------------- */

static fb_node size_of_state(search *s, fb_node entry)
{
    fb_torch_view view;
    fb_node pairs = pairs_of(s->pickle, entry);
    for (uint64_t i = 0; i + 1 < fb_pickle_children(s->pickle, pairs) && i < 64; i += 2) {
        fb_node key = fb_pickle_child(s->pickle, pairs, i);
        for (size_t k = 0; k < sizeof moments / sizeof moments[0]; k++) {
            if (fb_pickle_text_is(s->pickle, key, moments[k]) &&
                fb_torch_look(s->object, fb_pickle_child(s->pickle, pairs, i + 1), &view))
                return view.size;
        }
    }
    return 0;
}

/* 1: at least one shape is known; -1: no memory. */
static int take_sizes(search *s, fb_node state)
{
    fb_node pairs = pairs_of(s->pickle, state);
    uint64_t n = fb_pickle_children(s->pickle, pairs);
    fb_node *by_number = fb_calloc((size_t)s->count, sizeof *by_number);
    int known = 0;
    s->sizes = fb_calloc((size_t)s->count, sizeof *s->sizes);
    if (!by_number || !s->sizes) known = -1;
    for (uint64_t i = 0; known >= 0 && i + 1 < n && spend(s, 8); i += 2) {
        fb_node key = fb_pickle_child(s->pickle, pairs, i);
        int64_t id = fb_pickle_int(s->pickle, key);
        if (fb_pickle_kind(s->pickle, key) != FB_PICKLE_INT || id < 0 || (uint64_t)id >= s->count) continue;
        by_number[id] = size_of_state(s, fb_pickle_child(s->pickle, pairs, i + 1));
        known |= by_number[id] != 0;
    }
    for (uint64_t i = 0; known > 0 && i < s->count; i++) s->sizes[i] = by_number[s->ids[i]];
    fb_free(by_number);
    return known;
}

/* ---- the models ------------------------------------------------------------------------------------------------------------- */

static int is_moment(const fb_pickle *p, fb_node key)
{
    for (size_t k = 0; k < sizeof moments / sizeof moments[0]; k++) {
        if (fb_pickle_text_is(p, key, moments[k])) return 1;
    }
    return 0;
}

static int may_be_model(search *s, fb_node dict)
{
    fb_torch_view view;
    uint64_t n = fb_pickle_children(s->pickle, dict);
    for (uint64_t i = 0; i + 1 < n && i < 16; i += 2) {
        if (fb_pickle_kind(s->pickle, fb_pickle_child(s->pickle, dict, i)) != FB_PICKLE_TEXT) return 0;
        if (is_moment(s->pickle, fb_pickle_child(s->pickle, dict, i))) return 0;
    }
    for (uint64_t i = 0; i + 1 < n && i < 16; i += 2) {
        if (fb_torch_look(s->object, fb_pickle_child(s->pickle, dict, i + 1), &view)) return 1;
    }
    return 0;
}

static fb_status find_models(search *s)
{
    fb_status status = FB_OK;
    if (s->object->models_known) return FB_OK;
    s->object->models_known = 1;
    for (fb_node node = 1; node <= fb_pickle_nodes(s->pickle) && status == FB_OK; node++) {
        if (fb_pickle_kind(s->pickle, node) == FB_PICKLE_DICT && may_be_model(s, node))
            status = fb_torch_word(s->object, &s->object->models, node, s->err);
    }
    return status;
}

/* Statistics of normalisation are floating and belong to no optimizer. */
static int is_statistic(const fb_pickle *p, fb_node key)
{
    static const char *const ends[] = {"running_mean", "running_var"};
    uint64_t bytes;
    const char *text = fb_pickle_text(p, key, &bytes);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n = strlen(ends[i]);
        if (bytes >= n && memcmp(text + bytes - n, ends[i], n) == 0) return 1;
    }
    return 0;
}

static int is_floating(const fb_pickle *p, const fb_torch_view *view)
{
    uint64_t bytes;
    int untyped = 0;
    const fb_torch_format *format;
    fb_node id = fb_pickle_child(p, view->storage, 0);
    const char *text = fb_pickle_text(p, view->dtype ? view->dtype : fb_pickle_child(p, id, 1), &bytes);
    format = view->dtype ? fb_torch_dtype_format(text, bytes) : fb_torch_storage_format(text, bytes, &untyped);
    return format && format->floating;
}

/* A fingerprint of where a tensor lies. Two that meet by intent make a wrong name, nothing worse. */
static uint64_t place_print(const fb_pickle *p, const fb_torch_view *view)
{
    uint64_t bytes;
    const char *key = fb_pickle_text(p, fb_pickle_child(p, fb_pickle_child(p, view->storage, 0), 2), &bytes);
    return fb_hash64(key, (size_t)bytes, (uint64_t)fb_pickle_int(p, view->offset) ^ (uint64_t)(uintptr_t)p) | 1;
}

static int seen_before(uint64_t *slots, uint64_t count, uint64_t print)
{
    uint64_t slot = (print >> 1) & (count - 1);
    for (; slots[slot]; slot = (slot + 1) & (count - 1)) {
        if (slots[slot] == print) return 1;
    }
    slots[slot] = print;
    return 0;
}

/* Parameters of a model in order, tied ones once. 1: as many as there must be; -1: no memory. */
static int list_parameters(search *s, fb_node model, parameter *out)
{
    fb_torch_view view;
    uint64_t n = fb_pickle_children(s->pickle, model), count = 0, slots = 64, *seen;
    if (n / 2 < s->count || !spend(s, n)) return 0;
    while (slots < n) slots *= 2;
    seen = fb_calloc((size_t)slots, sizeof *seen);
    if (!seen) return -1;
    for (uint64_t i = 0; i + 1 < n && count <= s->count; i += 2) {
        fb_node key = fb_pickle_child(s->pickle, model, i);
        if (fb_pickle_kind(s->pickle, key) != FB_PICKLE_TEXT || is_statistic(s->pickle, key) ||
            !fb_torch_look(s->object, fb_pickle_child(s->pickle, model, i + 1), &view) || !is_floating(s->pickle, &view) ||
            seen_before(seen, slots, place_print(s->pickle, &view)))
            continue;
        if (count < s->count) out[count] = (parameter){key, view.size};
        count++;
    }
    fb_free(seen);
    return count == s->count;
}

static int same_shape(const fb_pickle *p, fb_node a, fb_node b)
{
    uint64_t n = fb_pickle_children(p, a);
    if (n != fb_pickle_children(p, b) || n > FB_CKPT_DIMS_MAX) return 0;
    for (uint64_t i = 0; i < n; i++) {
        if (fb_pickle_int(p, fb_pickle_child(p, a, i)) != fb_pickle_int(p, fb_pickle_child(p, b, i))) return 0;
    }
    return 1;
}

static int shapes_fit(const search *s, const parameter *parameters)
{
    for (uint64_t i = 0; i < s->count; i++) {
        if (s->sizes[i] && !same_shape(s->pickle, s->sizes[i], parameters[i].size)) return 0;
    }
    return 1;
}

/* Those of two dimensions or more first, each part in the order of the model. */
static void split_by_dims(const search *s, const parameter *from, parameter *to)
{
    uint64_t used = 0;
    for (int second = 0; second < 2; second++) {
        for (uint64_t i = 0; i < s->count; i++) {
            if ((fb_pickle_children(s->pickle, from[i].size) < 2) == second) to[used++] = from[i];
        }
    }
}

/* Equal, or one is the other under a prefix, as "module.w" of a wrapper is "w". */
static int same_name(const fb_pickle *p, fb_node a, fb_node b)
{
    uint64_t a_bytes, b_bytes, more, less;
    const char *a_end = fb_pickle_text(p, a, &a_bytes) + a_bytes, *b_end = fb_pickle_text(p, b, &b_bytes) + b_bytes;
    more = a_bytes > b_bytes ? a_bytes : b_bytes;
    less = a_bytes > b_bytes ? b_bytes : a_bytes;
    if (memcmp(a_end - less, b_end - less, (size_t)less) != 0) return 0;
    return more == less || (a_bytes == more ? a_end : b_end)[-(int64_t)less - 1] == '.';
}

static int same_names(const search *s, const parameter *parameters)
{
    for (uint64_t i = 0; i < s->count; i++) {
        if (!same_name(s->pickle, s->names[i], parameters[i].name)) return 0;
    }
    return 1;
}

/* 1: names were found; -1: no memory. Two models that fit and have other names leave it open whose optimizer this is. */
static int ask_models(search *s)
{
    parameter *in_order = fb_calloc((size_t)s->count, sizeof *in_order), *split = fb_calloc((size_t)s->count, sizeof *split);
    int listed = in_order && split ? 0 : -1, found = 0, agree = 1;
    for (uint64_t i = 0; listed >= 0 && agree && i < s->object->models.count; i++) {
        const parameter *fits;
        listed = list_parameters(s, (fb_node)s->object->models.data[i], in_order);
        if (listed != 1) continue;
        split_by_dims(s, in_order, split);
        fits = shapes_fit(s, in_order) ? in_order : shapes_fit(s, split) ? split : NULL;
        if (fits && found) agree = same_names(s, fits);
        for (uint64_t k = 0; fits && !found && k < s->count; k++) s->names[k] = fits[k].name;
        found |= fits != NULL;
    }
    fb_free(in_order);
    fb_free(split);
    return listed < 0 ? -1 : found && agree;
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static fb_status keep_map(search *s, uint32_t *map)
{
    fb_torch_object *object = s->object;
    fb_torch_map *made;
    if (!fb_pickle_grow((void **)&object->maps, &object->map_room, object->map_count + 1, sizeof *object->maps))
        return fb_torch_no_memory(object, s->err);
    made = &object->maps[object->map_count];
    made->names = fb_calloc((size_t)s->count, sizeof *made->names);
    if (!made->names) return fb_torch_no_memory(object, s->err);
    made->count = s->count;
    *map = (uint32_t)++object->map_count;
    for (uint64_t i = 0; i < s->count; i++) {
        char clean[1024];
        uint64_t bytes;
        const char *text = fb_pickle_text(s->pickle, s->names[i], &bytes);
        fb_status status =
            fb_torch_keep(object, clean, fb_torch_clean(clean, sizeof clean, text, bytes), &made->names[s->ids[i]], s->err);
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

fb_status fb_torch_name_parameters(fb_torch_object *object, fb_node state, fb_node groups, uint32_t *map, fb_error *err)
{
    search s;
    fb_status status = FB_OK;
    int found;
    memset(&s, 0, sizeof s);
    *map = 0;
    s.object = object;
    s.pickle = object->pickle;
    s.err = err;
    found = take_groups(&s, groups);
    if (found == 1 && !s.named) {
        status = find_models(&s);
        if (status == FB_OK && (found = take_sizes(&s, state)) == 1) found = ask_models(&s);
    }
    if (status == FB_OK && found < 0) status = fb_torch_no_memory(object, err);
    if (status == FB_OK && found == 1) status = keep_map(&s, map);
    fb_free(s.ids);
    fb_free(s.names);
    fb_free(s.sizes);
    return status;
}
