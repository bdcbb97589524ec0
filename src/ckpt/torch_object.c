/*
 * The walk over a pickle's graph, from its root, with a stack of its own. A container is walked once, under the first name that
 * leads to it, so that circles end and shared parts cost nothing; a tensor is told under each name that leads to it, since a tied
 * weight has two. What the walk finds goes to torch_store.c.
 *
 * Decisions:
 * - The state, items and arguments of objects of unknown classes are walked like any other part: tensors inside are found. The
 * names
 *   of the attributes in which modules keep things (_parameters, _modules, _buffers) are left out of paths.
 * - A text of bytes of more than BYTES_SMALL bytes, a BytesIO with something in it and an array.array in bytes are listed as not
 * looked
 *   at: they may hold numbers of any form. Shorter ones are digests and identifiers. Transformer Engine keeps another pickle in
 *   "_extra_state": as a tensor of U8 it is noted (its bytes are listed as integers, and a note says what they are), as BytesIO it
 *   is not looked at.
 * - Python's numbers: finite ones become one tensor, "(numbers)"; each of the others one of its own under its name, up to ODD_MAX
 * of
 *   them, and then one for the rest.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/pickle_graph.h"
#include "ckpt/torch_facts.h"

enum { PATH_MAX_BYTES = 900, BYTES_SMALL = 64, DEPTH_MAX = 1000000, ODD_MAX = 1000, UNKNOWN_MAX = 24, EXTRA_STATES_MAX = 8 };

enum {
    STRICT = 1,      /* no infinity is healthy here */
    ATTRIBUTES = 2,  /* the state of an object: its keys are attributes */
    BY_PARAMETER = 4 /* 'state' of an optimizer: the keys are parameters */
};

/* How the children of a node are named. */
enum { PAIRS, ITEMS, SAME, CALL, PAIR_LIST, COO, CSR, QUANTISER };

/* What a part inherits from what it is in. */
typedef struct context {
    uint32_t path_bytes; /* of walk.path */
    uint32_t of;         /* place of a parameter's name in the text, 0: none */
    uint32_t map;        /* index + 1 of the optimizer's map */
    uint32_t depth;
    uint8_t flags;
} context;

typedef struct frame {
    context in;
    fb_node node;
    uint32_t next;
    uint8_t mode;
} frame;

typedef struct walk {
    fb_torch_object *object;
    const fb_pickle *pickle;
    frame *stack;
    uint64_t depth, room;
    char path[PATH_MAX_BYTES + 1];
    fb_torch_facts facts;
    uint64_t extra_states;
    fb_error *err;
} walk;

static fb_status visit(walk *w, fb_node node, context in);

static fb_status push(walk *w, uint8_t mode, fb_node node, context in)
{
    frame *f;
    /* Two bytes make a tuple around the last one, so that a small file would otherwise ask for gigabytes here. */
    if (w->depth >= DEPTH_MAX) {
        return fb_fail(w->err, FB_E_LIMIT, "understand the pickle in %s: objects lie inside each other more than %d deep",
                       w->object->path, DEPTH_MAX);
    }
    if (!fb_pickle_grow((void **)&w->stack, &w->room, w->depth + 1, sizeof *w->stack)) return fb_torch_no_memory(w->object, w->err);
    f = &w->stack[w->depth++];
    memset(f, 0, sizeof *f);
    f->in = in;
    f->in.depth++;
    f->node = node;
    f->mode = mode;
    return FB_OK;
}

/* 1 the first time. */
static int first_visit(walk *w, fb_node node)
{
    if (w->object->marks[node] & FB_TORCH_VISITED) return 0;
    w->object->marks[node] |= FB_TORCH_VISITED;
    return 1;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

/* Add an element to the path. A path that is full stays as it is, and ends in "...". */
static context below(walk *w, context in, const char *element, uint64_t bytes)
{
    uint64_t used = in.path_bytes, room = PATH_MAX_BYTES - 3 - used;
    uint64_t full = used >= PATH_MAX_BYTES - 3, written;
    if (full) return in;
    if (used && room > 1) w->path[used++] = '.', room--;
    written = fb_torch_clean(w->path + used, room, element, bytes);
    used += written;
    if (written == 0 && bytes) memcpy(w->path + used, "...", 3), used += 3;
    in.path_bytes = (uint32_t)used;
    return in;
}

static context below_number(walk *w, context in, int64_t number)
{
    char text[24];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    size_t at = sizeof text;
    do text[--at] = (char)('0' + magnitude % 10);
    while ((magnitude /= 10) != 0);
    if (number < 0) text[--at] = '-';
    return below(w, in, text + at, sizeof text - at);
}

static context below_text(walk *w, context in, const char *text)
{
    return below(w, in, text, strlen(text));
}

/* The name of what stands at the path: "optimizer.state.exp_avg of h.0.attn.weight". */
static fb_status name_here(walk *w, context in, uint32_t *at)
{
    char name[2 * PATH_MAX_BYTES + 1200];
    uint64_t used = in.path_bytes;
    memcpy(name, w->path, (size_t)used);
    if (used == 0 && !in.of) return fb_torch_keep(w->object, "(root)", strlen("(root)"), at, w->err);
    if (in.of) {
        const char *of = w->object->text + in.of;
        size_t bytes = strlen(of);
        if (used) {
            memcpy(name + used, " of ", sizeof " of ");
            used += 4;
        }
        memcpy(name + used, of, bytes + 1);
        used += bytes;
    }
    return fb_torch_keep(w->object, name, used, at, w->err);
}

/* ---- leaves ----------------------------------------------------------------------------------------------------------------- */

static fb_status add_odd_number(walk *w, uint64_t bits, context in)
{
    fb_torch_object *object = w->object;
    fb_torch_place place = {0};
    fb_torch_record record = {0};
    fb_status status;
    if (object->odd_count++ >= ODD_MAX) return fb_torch_word(object, &object->more_odd, bits, w->err);
    if ((status = name_here(w, in, &record.name_at)) != FB_OK) return status;
    if ((status = fb_torch_keep(object, "float", strlen("float"), &record.dtype_at, w->err)) != FB_OK) return status;
    place.kind = FB_TORCH_ODD_NUMBER;
    place.name_at = record.name_at;
    place.at = object->odd.count;
    place.bytes = sizeof bits;
    if ((status = fb_torch_word(object, &object->odd, bits, w->err)) != FB_OK) return status;
    if ((status = fb_torch_add_place(object, &place, &record.place, w->err)) != FB_OK) return status;
    record.dtype = FB_F64;
    record.elements = 1;
    record.number = 1;
    record.legal_inf = bits << 12 == 0 && !(in.flags & STRICT);
    return fb_torch_add_tensor(object, record, NULL, NULL, w->err);
}

static fb_status visit_float(walk *w, fb_node node, context in)
{
    uint64_t bits = fb_pickle_float_bits(w->pickle, node);
    if (!first_visit(w, node)) return FB_OK;
    if ((bits >> 52 & 0x7ff) == 0x7ff) return add_odd_number(w, bits, in);
    return fb_torch_word(w->object, &w->object->numbers, bits, w->err);
}

static fb_status unscanned(walk *w, context in, const char *why, uint64_t bytes)
{
    uint32_t name;
    fb_status status = name_here(w, in, &name);
    if (status != FB_OK) return status;
    if (bytes == 0) return fb_torch_remark_add(w->object, FB_CKPT_REMARK_UNSCANNED, name, 0, w->err, "%s", why);
    return fb_torch_remark_add(w->object, FB_CKPT_REMARK_UNSCANNED, name, 0, w->err, "%s (%llu bytes)", why,
                               (unsigned long long)bytes);
}

static fb_status visit_bytes(walk *w, fb_node node, uint64_t bytes, uint64_t small, const char *why, context in)
{
    if (bytes <= small || !first_visit(w, node)) return FB_OK;
    return unscanned(w, in, why, bytes);
}

static fb_status visit_persistent(walk *w, fb_node node, context in)
{
    uint32_t name;
    int known;
    fb_node id = fb_pickle_child(w->pickle, node, 0);
    fb_status status;
    if (!first_visit(w, node)) return FB_OK;
    /* The classes of a whole model that was saved, with their source text. */
    if (fb_pickle_text_is(w->pickle, fb_pickle_child(w->pickle, id, 0), "module")) return FB_OK;
    if ((status = name_here(w, in, &name)) != FB_OK) return status;
    if ((status = fb_torch_add_storage(w->object, node, name, &known, w->err)) != FB_OK || known) return status;
    return unscanned(w, in, "something that the pickle keeps elsewhere, under a name of unknown form", 0);
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------ */

static fb_status note_extra_state(walk *w, uint32_t name)
{
    static const char end[] = "_extra_state";
    const fb_torch_record *last = &w->object->records[w->object->record_count - 1];
    const char *text = w->object->text + name;
    size_t bytes = strlen(text);
    if (last->dtype != FB_U8 || bytes < sizeof end - 1 || strcmp(text + bytes - (sizeof end - 1), end) != 0) return FB_OK;
    if (w->extra_states++ >= EXTRA_STATES_MAX) return FB_OK;
    return fb_torch_remark_add(w->object, FB_CKPT_REMARK_NOTE, name, 0, w->err,
                               "holds another pickle (Transformer Engine), whose numbers are not looked at");
}

static fb_status add_view(walk *w, const fb_torch_view *view, fb_node at, context in)
{
    uint32_t name;
    uint64_t before = w->object->record_count;
    fb_status status = name_here(w, in, &name);
    if (status == FB_OK) status = fb_torch_add_view(w->object, view, at, name, w->err);
    if (status == FB_OK && w->object->record_count > before) status = note_extra_state(w, name);
    return status;
}

/* What a tensor's arguments hold beside the view: hooks, the numbers of a quantiser, a storage of unknown form. */
static fb_status visit_rest(walk *w, fb_node call, int class_of, const fb_torch_view *view, context in)
{
    fb_node arguments = fb_pickle_child(w->pickle, call, 1);
    fb_status status = push(w, ITEMS, arguments, in);
    if (status != FB_OK) return status;
    if (fb_pickle_kind(w->pickle, view->storage) == FB_PICKLE_PERSISTENT)
        w->stack[w->depth - 1].next = class_of == FB_TORCH_QTENSOR ? 5 : 4;
    if (class_of != FB_TORCH_QTENSOR) return FB_OK;
    in.flags |= STRICT; /* an infinite scale makes every element that is not zero infinite, and zero a NaN */
    return push(w, QUANTISER, fb_pickle_child(w->pickle, arguments, 4), in);
}

/* (function, type, arguments, state): what the function makes of the arguments, and the state. */
static fb_status visit_from_type(walk *w, fb_node call, context in)
{
    const fb_pickle *p = w->pickle;
    fb_node arguments = fb_pickle_child(p, call, 1), inner = fb_pickle_child(p, arguments, 2);
    fb_node state = fb_pickle_child(p, arguments, 3);
    int class_of = fb_torch_class_of_callee(w->object, fb_pickle_child(p, arguments, 0)), has_state;
    fb_torch_view view;
    fb_status status = FB_OK;
    int again = !first_visit(w, call);
    if (fb_torch_view_of(w->object, class_of, inner, 0, &view)) status = add_view(w, &view, call, in);
    if (status != FB_OK || again) return status;
    has_state = fb_pickle_children(p, state) > 0 || fb_pickle_kind(p, state) == FB_PICKLE_CALL;
    if ((class_of == FB_TORCH_NO_DATA || class_of == FB_TORCH_WRAPPER) && !has_state)
        status = unscanned(w, in, "a tensor whose data was not saved", 0);
    in.flags |= ATTRIBUTES;
    if (status == FB_OK) status = push(w, SAME, arguments, in);
    /* Function and type are names. */
    if (status == FB_OK)
        w->stack[w->depth - 1].next = view.storage || class_of == FB_TORCH_WRAPPER || class_of == FB_TORCH_NO_DATA ? 3 : 2;
    if (status == FB_OK && view.storage) status = push(w, ITEMS, inner, in);
    if (status == FB_OK && view.storage) w->stack[w->depth - 1].next = 4;
    return status;
}

static fb_status visit_array(walk *w, fb_node call, int class_of, context in)
{
    uint32_t name;
    fb_node objects;
    fb_status status;
    if (!first_visit(w, call)) return FB_OK;
    if ((status = name_here(w, in, &name)) != FB_OK) return status;
    status = fb_torch_add_array(w->object, call, class_of, name, &objects, w->err);
    if (status != FB_OK || !objects) return status;
    if (fb_pickle_kind(w->pickle, objects) != FB_PICKLE_LIST) return push(w, CALL, call, in);
    return first_visit(w, objects) ? push(w, ITEMS, objects, in) : FB_OK;
}

static fb_status visit_opaque_bytes(walk *w, fb_node call, int class_of, context in)
{
    const fb_pickle *p = w->pickle;
    fb_node holder, source = call;
    uint64_t bytes = 0;
    if (class_of == FB_TORCH_BYTES_IO) {
        source = fb_pickle_child(p, fb_pickle_state(p, call), 0);
        if (!source) source = fb_pickle_child(p, fb_pickle_child(p, call, 1), 0);
    }
    if (class_of == FB_TORCH_C_ARRAY) source = fb_pickle_child(p, fb_pickle_child(p, call, 1), 3);
    if (!fb_torch_bytes_of(w->object, source, &holder, &bytes)) return first_visit(w, call) ? push(w, CALL, call, in) : FB_OK;
    if (class_of == FB_TORCH_BYTES_IO)
        return visit_bytes(w, call, bytes, 0, "a file kept in memory, of a form that is not known", in);
    if (class_of == FB_TORCH_C_ARRAY) return visit_bytes(w, call, bytes, 0, "an array of Python's array module", in);
    return visit_bytes(w, call, bytes, BYTES_SMALL, "bytes of a form that is not known", in);
}

static fb_status visit_call(walk *w, fb_node call, context in)
{
    const fb_pickle *p = w->pickle;
    fb_torch_view view;
    int class_of = fb_torch_class(w->object, call);
    fb_status status;
    switch (class_of) {
    case FB_TORCH_TENSOR:
    case FB_TORCH_TENSOR_V3:
    case FB_TORCH_QTENSOR:
    case FB_TORCH_OLD_TENSOR:
        if (!fb_torch_view_of(w->object, class_of, fb_pickle_child(p, call, 1), fb_pickle_state(p, call), &view)) break;
        if ((status = add_view(w, &view, call, in)) != FB_OK || !first_visit(w, call)) return status;
        return visit_rest(w, call, class_of, &view, in);
    case FB_TORCH_FROM_TYPE: return visit_from_type(w, call, in);
    case FB_TORCH_NO_DATA: return first_visit(w, call) ? unscanned(w, in, "a tensor whose data was not saved", 0) : FB_OK;
    case FB_TORCH_WRAPPER:
        if (!fb_pickle_state(p, call) && first_visit(w, call)) return unscanned(w, in, "a tensor whose data was not saved", 0);
        break;
    case FB_TORCH_ARRAY:
    case FB_TORCH_SCALAR:
    case FB_TORCH_FROM_BUFFER: return visit_array(w, call, class_of, in);
    case FB_TORCH_NUMPY_DTYPE: return FB_OK;
    case FB_TORCH_ENCODE:
    case FB_TORCH_BYTEARRAY:
    case FB_TORCH_BYTES_IO:
    case FB_TORCH_C_ARRAY: return visit_opaque_bytes(w, call, class_of, in);
    default: break;
    }
    /* A Parameter is the tensor it was made of, under as many names. */
    if (class_of == FB_TORCH_FIRST && fb_torch_look(w->object, call, &view) && w->object->marks[call] & FB_TORCH_VISITED)
        return add_view(w, &view, call, in);
    return first_visit(w, call) ? push(w, CALL, call, in) : FB_OK;
}

/* ---- containers ------------------------------------------------------------------------------------------------------------- */

static fb_status visit_dict(walk *w, fb_node node, context in)
{
    fb_torch_keys keys;
    fb_status status = FB_OK;
    fb_torch_look_at_keys(w->pickle, node, in.depth, &w->facts, &keys);
    if (keys.growth_factor && keys.scale) in.flags |= STRICT;
    if (keys.state && keys.groups && fb_pickle_kind(w->pickle, keys.groups) == FB_PICKLE_LIST) {
        in.flags |= STRICT;
        status = fb_torch_name_parameters(w->object, keys.state, keys.groups, &in.map, w->err);
        if (in.map == 0) in.map = UINT32_MAX; /* an optimizer all the same: keys that are texts are names */
    }
    return status == FB_OK ? push(w, PAIRS, node, in) : status;
}

static fb_status visit(walk *w, fb_node node, context in)
{
    uint64_t bytes;
    switch (fb_pickle_kind(w->pickle, node)) {
    case FB_PICKLE_FLOAT: return visit_float(w, node, in);
    case FB_PICKLE_BYTES:
        (void)fb_pickle_text(w->pickle, node, &bytes);
        return visit_bytes(w, node, bytes, BYTES_SMALL, "bytes of a form that is not known", in);
    case FB_PICKLE_DICT: return first_visit(w, node) ? visit_dict(w, node, in) : FB_OK;
    case FB_PICKLE_LIST:
    case FB_PICKLE_TUPLE:
    case FB_PICKLE_SET: return first_visit(w, node) ? push(w, ITEMS, node, in) : FB_OK;
    case FB_PICKLE_PERSISTENT: return visit_persistent(w, node, in);
    case FB_PICKLE_CALL: return visit_call(w, node, in);
    default: return FB_OK;
    }
}

/* ---- one child after the other ---------------------------------------------------------------------------------------------- */

/* Where modules keep their tensors, and a DTensor its part. */
static int is_plain_holder(const fb_pickle *p, fb_node key)
{
    return fb_pickle_text_is(p, key, "_parameters") || fb_pickle_text_is(p, key, "_modules") ||
           fb_pickle_text_is(p, key, "_buffers") || fb_pickle_text_is(p, key, "_local_tensor");
}

/* Below the state of an optimizer: the key is a parameter, by number or by name. Returns 0 when it says neither. */
static int enter_parameter(walk *w, context *in, fb_node key, fb_status *status)
{
    const fb_pickle *p = w->pickle;
    char clean[1024];
    uint64_t bytes;
    *status = FB_OK;
    if (fb_pickle_kind(p, key) == FB_PICKLE_TEXT) {
        const char *text = fb_pickle_text(p, key, &bytes);
        *status = fb_torch_keep(w->object, clean, fb_torch_clean(clean, sizeof clean, text, bytes), &in->of, w->err);
        return 1;
    }
    if (fb_pickle_kind(p, key) == FB_PICKLE_INT && in->map != UINT32_MAX) {
        const fb_torch_map *map = &w->object->maps[in->map - 1];
        int64_t id = fb_pickle_int(p, key);
        if (id >= 0 && (uint64_t)id < map->count && map->names[id]) in->of = map->names[id];
        return in->of != 0;
    }
    return 0;
}

/* The context of the value under a key. */
static fb_status under_key(walk *w, const frame *f, fb_node key, context *in)
{
    const fb_pickle *p = w->pickle;
    uint64_t bytes;
    fb_status status;
    *in = f->in;
    in->flags = f->in.flags & STRICT;
    if (f->in.flags & BY_PARAMETER && enter_parameter(w, in, key, &status)) return status;
    if (f->in.flags & BY_PARAMETER) in->map = 0;
    if (f->in.map && !(f->in.flags & BY_PARAMETER)) {
        if (fb_pickle_text_is(p, key, "state")) in->flags |= BY_PARAMETER;
        else in->map = 0;
    } else in->map = 0;
    if (fb_torch_key_is_strict(p, key)) in->flags |= STRICT;
    if (f->in.flags & ATTRIBUTES && is_plain_holder(p, key)) return FB_OK;
    switch (fb_pickle_kind(p, key)) {
    case FB_PICKLE_TEXT: {
        const char *text = fb_pickle_text(p, key, &bytes);
        *in = below(w, *in, text, bytes);
        return FB_OK;
    }
    case FB_PICKLE_INT: *in = below_number(w, *in, fb_pickle_int(p, key)); return FB_OK;
    case FB_PICKLE_BOOL: *in = below_text(w, *in, fb_pickle_int(p, key) ? "True" : "False"); return FB_OK;
    case FB_PICKLE_NONE: *in = below_text(w, *in, "None"); return FB_OK;
    default: *in = below_number(w, *in, f->next / 2); return FB_OK;
    }
}

/* Keys are walked too: they may be tensors (an optimizer saved whole has parameters as keys). */
static fb_status step_pairs(walk *w, uint64_t at)
{
    frame f = w->stack[at];
    fb_node key = fb_pickle_child(w->pickle, f.node, f.next & ~1u);
    context in;
    fb_status status = under_key(w, &f, key, &in);
    if (status != FB_OK) return status;
    if (f.next % 2) return visit(w, fb_pickle_child(w->pickle, f.node, f.next), in);
    if (fb_pickle_kind(w->pickle, key) < FB_PICKLE_FLOAT || fb_pickle_kind(w->pickle, key) == FB_PICKLE_TEXT) return FB_OK;
    return visit(w, key, below_text(w, in, "key"));
}

/* The list of pairs from which Python 2 made an OrderedDict. */
static fb_status step_pair_list(walk *w, uint64_t at)
{
    frame f = w->stack[at];
    fb_node pair = fb_pickle_child(w->pickle, f.node, f.next);
    context in;
    fb_status status;
    if (fb_pickle_children(w->pickle, pair) != 2) return visit(w, pair, below_number(w, f.in, f.next));
    status = under_key(w, &f, fb_pickle_child(w->pickle, pair, 0), &in);
    return status == FB_OK ? visit(w, fb_pickle_child(w->pickle, pair, 1), in) : status;
}

static fb_status visit_arguments(walk *w, fb_node call, fb_node arguments, context in)
{
    const fb_pickle *p = w->pickle;
    int class_of = fb_torch_class(w->object, call);
    fb_node data = fb_pickle_child(p, arguments, 1);
    fb_torch_view view;
    if (fb_pickle_kind(p, arguments) != FB_PICKLE_TUPLE || !first_visit(w, arguments)) return visit(w, arguments, in);
    if (class_of == FB_TORCH_DICT && fb_pickle_kind(p, fb_pickle_child(p, arguments, 0)) == FB_PICKLE_LIST)
        return push(w, PAIR_LIST, fb_pickle_child(p, arguments, 0), in);
    if (class_of == FB_TORCH_SPARSE)
        return push(w, fb_torch_look(w->object, fb_pickle_child(p, data, 2), &view) ? CSR : COO, data, in);
    if (class_of == FB_TORCH_FIRST || fb_pickle_children(p, arguments) == 1) return push(w, SAME, arguments, in);
    return push(w, ITEMS, arguments, in);
}

/* The parts of a call, in the order callee, arguments, keywords, items, state. */
static fb_status step_call(walk *w, uint64_t at)
{
    frame f = w->stack[at];
    const fb_pickle *p = w->pickle;
    context in = f.in;
    fb_node part;
    in.flags &= (uint8_t)~ATTRIBUTES;
    switch (f.next) {
    case 0: part = fb_pickle_child(p, f.node, 0); return fb_pickle_kind(p, part) == FB_PICKLE_GLOBAL ? FB_OK : visit(w, part, in);
    case 1: return visit_arguments(w, f.node, fb_pickle_child(p, f.node, 1), in);
    case 2: return visit(w, fb_pickle_child(p, f.node, 2), in);
    case 3: return visit(w, fb_pickle_items(p, f.node), in);
    default: in.flags |= ATTRIBUTES; return visit(w, fb_pickle_state(p, f.node), in);
    }
}

static fb_status step_named(walk *w, uint64_t at)
{
    static const char *const names[][4] = {{"indices", "values", "size", "coalesced"},
                                           {"crow_indices", "col_indices", "values", "size"},
                                           {"scheme", "scale", "zero_point", "axis"}};
    frame f = w->stack[at];
    context in = f.next < 4 ? below_text(w, f.in, names[f.mode - COO][f.next]) : below_number(w, f.in, f.next);
    return visit(w, fb_pickle_child(w->pickle, f.node, f.next), in);
}

static fb_status step(walk *w, uint64_t at)
{
    frame f = w->stack[at];
    context in = f.in;
    fb_node child = fb_pickle_child(w->pickle, f.node, f.next);
    in.flags &= STRICT;
    switch (f.mode) {
    case PAIRS: return step_pairs(w, at);
    case CALL: return step_call(w, at);
    case PAIR_LIST: return step_pair_list(w, at);
    case SAME: return visit(w, child, f.in);
    case ITEMS:
        /* The state of an object may be (None, its attributes). */
        if (f.in.flags & ATTRIBUTES && fb_pickle_kind(w->pickle, child) == FB_PICKLE_DICT) return visit(w, child, f.in);
        return visit(w, child, below_number(w, in, f.next));
    default: return step_named(w, at);
    }
}

static uint64_t steps_of(const walk *w, const frame *f)
{
    return f->mode == CALL ? 5 : fb_pickle_children(w->pickle, f->node);
}

static fb_status walk_all(walk *w)
{
    context in = {0, 0, 0, 0, 0};
    fb_status status = visit(w, fb_pickle_root(w->pickle), in);
    while (status == FB_OK && w->depth > 0) {
        uint64_t at = w->depth - 1;
        if (w->stack[at].next >= steps_of(w, &w->stack[at])) w->depth--;
        else {
            status = step(w, at);
            w->stack[at].next++;
        }
    }
    return status;
}

/* ---- imports ---------------------------------------------------------------------------------------------------------------- */

static fb_status remark_on_import(walk *w, fb_node global, uint64_t *unknown_count)
{
    char name[1100];
    uint64_t bytes, used;
    const char *text = fb_pickle_text(w->pickle, global, &bytes);
    int unknown = 0, dangerous = fb_pickle_dangerous(text, bytes, &unknown);
    uint32_t at;
    fb_status status;
    if (!dangerous && (!unknown || (*unknown_count)++ >= UNKNOWN_MAX)) return FB_OK;
    used = fb_torch_clean(name, sizeof name, text, bytes);
    for (uint64_t i = 0; i < used; i++) {
        if (name[i] == ' ') name[i] = '.';
    }
    if ((status = fb_torch_keep(w->object, name, used, &at, w->err)) != FB_OK) return status;
    if (dangerous)
        return fb_torch_remark_add(
            w->object, FB_CKPT_REMARK_SECURITY, at, 0, w->err,
            "can run code or reach outside when a program that trusts the file loads it; here it is only read");
    return fb_torch_remark_add(w->object, FB_CKPT_REMARK_NOTE, at, 0, w->err,
                               "is an import that is not known here; a program that trusts the file would run it");
}

/* getattr is how enums are written: (a class, the name of a value). Anything else leads somewhere. */
static fb_status remark_on_getattr(walk *w, fb_node call)
{
    const fb_pickle *p = w->pickle;
    fb_node arguments = fb_pickle_child(p, call, 1), from = fb_pickle_child(p, arguments, 0),
            name = fb_pickle_child(p, arguments, 1);
    uint64_t bytes;
    const char *text = fb_pickle_text(p, name, &bytes);
    int unknown = 0, ordinary = fb_pickle_kind(p, from) == FB_PICKLE_GLOBAL && fb_pickle_kind(p, name) == FB_PICKLE_TEXT;
    uint32_t at;
    fb_status status;
    if (ordinary && (bytes < 2 || text[0] != '_' || text[1] != '_')) {
        text = fb_pickle_text(p, from, &bytes);
        if (!fb_pickle_dangerous(text, bytes, &unknown)) return FB_OK;
    }
    if ((status = fb_torch_keep(w->object, "builtins.getattr", strlen("builtins.getattr"), &at, w->err)) != FB_OK) return status;
    return fb_torch_remark_add(w->object, FB_CKPT_REMARK_SECURITY, at, 0, w->err,
                               "reaches an attribute that is no value of an enum (offset %llu)",
                               (unsigned long long)fb_pickle_at(p, call));
}

/* All of the remarks that do not belong to one place. */
static fb_status remark_on_all(walk *w)
{
    uint64_t unknown = 0, unusual = 0;
    fb_status status = FB_OK;
    fb_node global;
    for (uint64_t i = 0; status == FB_OK && (global = fb_pickle_global(w->pickle, i)) != 0; i++)
        status = remark_on_import(w, global, &unknown);
    if (status == FB_OK && unknown > UNKNOWN_MAX)
        status = fb_torch_remark_add(w->object, FB_CKPT_REMARK_NOTE, 0, 0, w->err, "%llu more imports that are not known here",
                                     (unsigned long long)(unknown - UNKNOWN_MAX));
    if (status == FB_OK && w->extra_states > EXTRA_STATES_MAX)
        status = fb_torch_remark_add(w->object, FB_CKPT_REMARK_NOTE, 0, 0, w->err, "%llu more tensors that hold another pickle",
                                     (unsigned long long)(w->extra_states - EXTRA_STATES_MAX));
    for (fb_node node = 1; status == FB_OK && unusual == 0 && node <= fb_pickle_nodes(w->pickle); node++) {
        uint64_t before = w->object->note_count;
        if (fb_torch_class(w->object, node) == FB_TORCH_GETATTR) status = remark_on_getattr(w, node);
        unusual += w->object->note_count - before;
    }
    return status;
}

fb_status fb_torch_object_open(fb_torch_object **out, const fb_pickle *pickle, const char *path, fb_error *err)
{
    walk w;
    fb_status status = FB_OK;
    uint32_t none;
    memset(&w, 0, sizeof w);
    *out = NULL;
    w.object = fb_calloc(1, sizeof *w.object);
    if (!w.object) return fb_fail(err, FB_E_NOMEM, "understand the pickle in %s: no memory for %zu bytes", path, sizeof *w.object);
    w.object->pickle = w.pickle = pickle;
    w.object->path = path;
    w.err = err;
    w.object->marks = fb_calloc((size_t)fb_pickle_nodes(pickle) + 1, sizeof *w.object->marks);
    if (!w.object->marks) status = fb_torch_no_memory(w.object, err);
    if (status == FB_OK) status = fb_torch_keep(w.object, "", 0, &none, err);
    if (status == FB_OK) status = walk_all(&w);
    if (status == FB_OK) status = remark_on_all(&w);
    if (status == FB_OK) status = fb_torch_tell_facts(w.object, &w.facts, err);
    if (status == FB_OK) status = fb_torch_finish(w.object, err);
    fb_free(w.stack);
    if (status == FB_OK) {
        *out = w.object;
        w.object = NULL;
    }
    fb_torch_object_close(w.object);
    return status;
}
