/*
 * NumPy arrays and scalars whose bytes lie in the pickle.
 *
 *   _reconstruct(type, (0,), b'b'), state (version, shape, dtype, fortran, bytes or list of objects)
 *   scalar(dtype, bytes)
 *   _frombuffer(bytes, dtype, shape, 'C' or 'F')
 *   dtype('f8', False, True), state (version, '<', subarray, names, fields, ...)
 *
 * Protocol 2 has no bytes: it writes _codecs.encode(text, 'latin1'), which is decoded into memory of ours, once for each text
 * however often it is used. Arrays that share bytes become tensors of one extent, so that the same bytes are not looked at once for
 * each.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/torch_inside.h"

typedef struct kind {
    const char *name;
    int32_t dtype; /* FB_*; 0: not looked at; OBJECT, TEXT */
    uint32_t bytes;
} kind;

enum { OBJECT = -1, TEXT = -2 };

static const kind kinds[] = {
    {"f2", FB_F16, 2},
    {"f4", FB_F32, 4},
    {"f8", FB_F64, 8},
    {"c8", FB_C64, 8},
    {"c16", FB_C128, 16},
    {"b1", FB_BOOL, 1},
    {"i1", FB_I8, 1},
    {"i2", FB_I16, 2},
    {"i4", FB_I32, 4},
    {"i8", FB_I64, 8},
    {"u1", FB_U8, 1},
    {"u2", FB_U16, 2},
    {"u4", FB_U32, 4},
    {"u8", FB_U64, 8},
    {"m8", FB_I64, 8},
    {"M8", FB_I64, 8},
    {"O8", OBJECT, 8},
    {"O", OBJECT, 8},
    {"O4", OBJECT, 4},
    {"f16", 0, 16},
    {"f12", 0, 12},
    {"c32", 0, 32},
    {"c24", 0, 24},
    {"bfloat16", FB_BF16, 2},
    {"float8_e4m3fn", FB_F8_E4M3FN, 1},
    {"float8_e5m2", FB_F8_E5M2, 1},
    {"float8_e4m3fnuz", FB_F8_E4M3FNUZ, 1},
    {"float8_e5m2fnuz", FB_F8_E5M2FNUZ, 1},
    {"float8_e8m0fnu", FB_F8_E8M0, 1},
};

typedef struct array {
    fb_node dtype, shape, data;
    int fortran, is_scalar;
} array;

typedef struct format {
    const kind *kind; /* NULL: unknown */
    int swapped;
    char name[32];
} format;

/* ---- bytes ------------------------------------------------------------------------------------------------------------------ */

/* Characters of UTF-8 text that are all below 256, as many bytes; 0 in *fits when one is not. */
static uint64_t latin1_bytes(const uint8_t *text, uint64_t bytes, uint8_t *out, int *fits)
{
    uint64_t count = 0;
    *fits = 1;
    for (uint64_t i = 0; i < bytes; i++) {
        uint8_t value = text[i];
        if (value >= 0x80) {
            if ((value != 0xc2 && value != 0xc3) || i + 1 == bytes || (text[i + 1] & 0xc0) != 0x80) {
                *fits = 0;
                return 0;
            }
            value = (uint8_t)((value & 3) << 6 | (text[++i] & 0x3f));
        }
        if (out) out[count] = value;
        count++;
    }
    return count;
}

/* The text that an encoding call was given, or 0. */
static fb_node encoded_text(fb_torch_object *object, fb_node node)
{
    const fb_pickle *p = object->pickle;
    int class_of = fb_torch_class(object, node);
    fb_node text = fb_pickle_child(p, fb_pickle_child(p, node, 1), 0);
    fb_node codec = fb_pickle_child(p, fb_pickle_child(p, node, 1), 1);
    if (class_of != FB_TORCH_ENCODE && class_of != FB_TORCH_BYTEARRAY) return 0;
    if (!fb_pickle_text_is(p, codec, "latin1") && !fb_pickle_text_is(p, codec, "latin-1")) return 0;
    return fb_pickle_kind(p, text) == FB_PICKLE_TEXT ? text : 0;
}

/* "bytes()" and "bytearray()": how protocol 2 writes none. */
static int is_empty_call(fb_torch_object *object, fb_node node)
{
    const fb_pickle *p = object->pickle;
    fb_node callee = fb_pickle_child(p, node, 0);
    return fb_pickle_kind(p, node) == FB_PICKLE_CALL && fb_pickle_children(p, fb_pickle_child(p, node, 1)) == 0 &&
           (fb_pickle_text_is(p, callee, "__builtin__ bytes") || fb_pickle_text_is(p, callee, "builtins bytes") ||
            fb_torch_class(object, node) == FB_TORCH_BYTEARRAY);
}

int fb_torch_bytes_of(fb_torch_object *object, fb_node node, fb_node *holder, uint64_t *bytes)
{
    const fb_pickle *p = object->pickle;
    const char *text;
    *holder = node;
    *bytes = 0;
    if (fb_torch_class(object, node) == FB_TORCH_BYTEARRAY && !encoded_text(object, node) && !is_empty_call(object, node))
        node = *holder = fb_pickle_child(p, fb_pickle_child(p, node, 1), 0);
    if (fb_pickle_kind(p, node) == FB_PICKLE_BYTES) {
        (void)fb_pickle_text(p, node, bytes);
        return 1;
    }
    if (is_empty_call(object, node)) return 1;
    if (!(*holder = encoded_text(object, node))) return 0;
    text = fb_pickle_text(p, *holder, bytes);
    (void)text; /* at most as many bytes as the text has; the exact number is known when it is decoded */
    return 1;
}

static fb_status decode(fb_torch_object *object, fb_node text_node, fb_torch_place *place, fb_error *err)
{
    uint64_t bytes;
    int fits;
    const uint8_t *text = (const uint8_t *)fb_pickle_text(object->pickle, text_node, &bytes);
    uint8_t *out;
    place->bytes = latin1_bytes(text, bytes, NULL, &fits);
    if (!fits) return fb_torch_refuse(object, text_node, err, "bytes are written as a text with characters beyond 255");
    out = fb_calloc((size_t)place->bytes, 1);
    if (!out) return fb_torch_no_memory(object, err);
    (void)latin1_bytes(text, bytes, out, &fits);
    place->kind = FB_TORCH_OWNED;
    place->data = out;
    return FB_OK;
}

/* The place of an array's bytes: made, or found when another array has the same. */
static fb_status place_of(fb_torch_object *object, fb_node data, int swapped, uint32_t name_at, uint32_t *index, fb_error *err)
{
    fb_torch_place place = {0};
    fb_node holder;
    uint64_t bytes;
    uint32_t mark;
    fb_status status = FB_OK;
    int is_text = fb_pickle_kind(object->pickle, data) == FB_PICKLE_TEXT; /* a byte string of Python 2 */
    if (is_text) holder = data;
    else if (!fb_torch_bytes_of(object, data, &holder, &bytes))
        return fb_torch_refuse(object, data, err, "an array without its bytes");
    mark = object->marks[holder] & ~FB_TORCH_VISITED;
    if (mark && fb_pickle_kind(object->pickle, holder) != FB_PICKLE_CALL) {
        *index = mark - 1;
        if (object->places[*index].swapped != swapped)
            return fb_torch_refuse(object, data, err, "two arrays share bytes and differ in their order");
        return FB_OK;
    }
    place.kind = FB_TORCH_BORROWED;
    place.swapped = swapped;
    place.name_at = name_at;
    if (!is_text && fb_pickle_kind(object->pickle, holder) == FB_PICKLE_TEXT) status = decode(object, holder, &place, err);
    else place.data = (const uint8_t *)fb_pickle_text(object->pickle, holder, &place.bytes);
    if (status != FB_OK) return status;
    if ((status = fb_torch_add_place(object, &place, index, err)) != FB_OK) {
        if (place.kind == FB_TORCH_OWNED) fb_free((void *)(uintptr_t)place.data);
        return status;
    }
    if (fb_pickle_kind(object->pickle, holder) != FB_PICKLE_CALL)
        object->marks[holder] = (object->marks[holder] & FB_TORCH_VISITED) | (*index + 1);
    return FB_OK;
}

/* ---- formats and shapes ----------------------------------------------------------------------------------------------------- */

static void read_format(fb_torch_object *object, fb_node dtype, format *out)
{
    const fb_pickle *p = object->pickle;
    fb_node arguments = fb_pickle_child(p, dtype, 1), state = fb_pickle_state(p, dtype), given = fb_pickle_child(p, arguments, 0);
    uint64_t bytes, order_bytes;
    const char *text = fb_pickle_text(p, given, &bytes), *order = fb_pickle_text(p, fb_pickle_child(p, state, 1), &order_bytes);
    memset(out, 0, sizeof *out);
    if (fb_torch_class(object, dtype) != FB_TORCH_NUMPY_DTYPE) return;
    if (fb_pickle_kind(p, given) == FB_PICKLE_GLOBAL) { /* "ml_dtypes bfloat16" */
        const char *blank = memchr(text, ' ', (size_t)bytes);
        bytes = blank ? bytes - (uint64_t)(blank + 1 - text) : bytes;
        text = blank ? blank + 1 : text;
    }
    out->swapped = order_bytes == 1 && order[0] == '>';
    if (order_bytes == 1 && (order[0] == '<' || order[0] == '>')) out->name[0] = order[0];
    (void)fb_torch_clean(out->name + strlen(out->name), sizeof out->name - 2, text, bytes);
    if (bytes && (text[0] == 'S' || text[0] == 'U' || text[0] == 'a')) {
        static const kind texts = {"text", TEXT, 0};
        out->kind = &texts;
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strlen(kinds[i].name) == bytes && memcmp(kinds[i].name, text, (size_t)bytes) == 0) out->kind = &kinds[i];
    }
}

static int find_parts(fb_torch_object *object, fb_node call, int class_of, array *out)
{
    const fb_pickle *p = object->pickle;
    fb_node arguments = fb_pickle_child(p, call, 1), state = fb_pickle_state(p, call);
    memset(out, 0, sizeof *out);
    if (class_of == FB_TORCH_SCALAR) {
        out->dtype = fb_pickle_child(p, arguments, 0);
        out->data = fb_pickle_child(p, arguments, 1);
        out->is_scalar = 1;
        return out->data != 0;
    }
    if (class_of == FB_TORCH_FROM_BUFFER) {
        out->data = fb_pickle_child(p, arguments, 0);
        out->dtype = fb_pickle_child(p, arguments, 1);
        out->shape = fb_pickle_child(p, arguments, 2);
        out->fortran = fb_pickle_text_is(p, fb_pickle_child(p, arguments, 3), "F");
    } else if (fb_pickle_kind(p, state) == FB_PICKLE_TUPLE) {
        uint64_t from = fb_pickle_children(p, state) >= 5 ? 1 : 0; /* the first releases had no version */
        out->shape = fb_pickle_child(p, state, from);
        out->dtype = fb_pickle_child(p, state, from + 1);
        out->fortran = fb_pickle_int(p, fb_pickle_child(p, state, from + 2)) != 0;
        out->data = fb_pickle_child(p, state, from + 3);
    }
    out->shape = fb_torch_integers(object, out->shape);
    return out->data && out->shape;
}

static fb_status read_shape(fb_torch_object *object, const array *a, fb_torch_record *record, uint64_t shape[FB_CKPT_DIMS_MAX],
                            int64_t strides[FB_CKPT_DIMS_MAX], fb_error *err)
{
    uint64_t n = a->is_scalar ? 0 : fb_pickle_children(object->pickle, a->shape), step = 1;
    int empty = 0;
    if (n > FB_CKPT_DIMS_MAX)
        return fb_torch_refuse(object, a->shape, err, "an array of more than %d dimensions", FB_CKPT_DIMS_MAX);
    record->ndim = (uint32_t)n;
    record->elements = 1;
    for (uint64_t i = 0; i < n; i++) {
        fb_node value = fb_pickle_child(object->pickle, a->shape, i);
        if (fb_pickle_kind(object->pickle, value) != FB_PICKLE_INT || fb_pickle_int(object->pickle, value) < 0)
            return fb_torch_refuse(object, a->shape, err, "an array whose shape holds something else than integers from 0 on");
        shape[i] = (uint64_t)fb_pickle_int(object->pickle, value);
        empty |= shape[i] == 0;
    }
    for (uint64_t i = 0; i < n && !empty; i++) {
        strides[i] = (int64_t)step;
        if (__builtin_mul_overflow(step, shape[i], &step) || step > (uint64_t)INT64_MAX)
            return fb_torch_refuse(object, a->shape, err, "an array with more elements than there can be");
    }
    record->elements = empty ? 0 : step;
    return FB_OK;
}

static fb_status add_numbers(fb_torch_object *object, const array *a, const format *f, uint32_t name_at, fb_error *err)
{
    fb_torch_record record = {0};
    uint64_t shape[FB_CKPT_DIMS_MAX], bytes;
    int64_t strides[FB_CKPT_DIMS_MAX];
    const fb_torch_place *place;
    fb_status status = read_shape(object, a, &record, shape, strides, err);
    if (status != FB_OK) return status;
    record.name_at = name_at;
    record.dtype = f->kind ? f->kind->dtype : 0;
    if ((status = fb_torch_keep(object, f->name, strlen(f->name), &record.dtype_at, err)) != FB_OK) return status;
    if ((status = place_of(object, a->data, f->swapped, name_at, &record.place, err)) != FB_OK) return status;
    if (!f->kind || !record.dtype) {
        record.unscanned =
            f->kind ? "numbers of extended precision" : "an array of records, or of a format that is not known to this build";
        return fb_torch_add_tensor(object, record, shape, NULL, err);
    }
    place = &object->places[record.place];
    if (__builtin_mul_overflow(record.elements, (uint64_t)f->kind->bytes, &bytes) || bytes != place->bytes)
        return fb_torch_refuse(object, a->data, err, "array %.200s has %llu bytes where its shape needs %llu elements of %u",
                               object->text + name_at, (unsigned long long)place->bytes, (unsigned long long)record.elements,
                               f->kind->bytes);
    return fb_torch_add_tensor(object, record, shape, a->fortran && record.ndim > 1 && record.elements ? strides : NULL, err);
}

fb_status fb_torch_add_array(fb_torch_object *object, fb_node call, int class_of, uint32_t name_at, fb_node *objects, fb_error *err)
{
    array a;
    format f;
    *objects = 0;
    if (!find_parts(object, call, class_of, &a))
        return fb_torch_remark_add(object, FB_CKPT_REMARK_UNSCANNED, name_at, 0, err,
                                   "an array of numpy in a form that is not known");
    read_format(object, a.dtype, &f);
    if (f.kind && f.kind->dtype == TEXT) return FB_OK;
    /* Objects are in the pickle, one by one, and are walked like any other. */
    if ((f.kind && f.kind->dtype == OBJECT) || fb_pickle_kind(object->pickle, a.data) == FB_PICKLE_LIST) {
        *objects = a.data;
        return FB_OK;
    }
    return add_numbers(object, &a, &f, name_at, err);
}
