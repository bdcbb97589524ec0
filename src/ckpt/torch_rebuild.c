/*
 * From the arguments of torch's rebuilding functions to views of storages. What PyTorch itself once left out (CVE-2026-24747): each
 * element of a view must lie in its storage, and a storage has one size and one class however often it is named.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/torch_inside.h"

enum { KEY_BYTES_MAX = 256, WRAPPERS_MAX = 8, ATTRIBUTES_MAX = 64 };

fb_status fb_torch_refuse(const fb_torch_object *object, fb_node at, fb_error *err, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fb_fail_at(err, fb_pickle_at(object->pickle, at), "understand the pickle in %s: %s", object->path, text);
}

int fb_torch_class_of_callee(fb_torch_object *object, fb_node callee)
{
    uint64_t bytes;
    const char *text;
    if (fb_pickle_kind(object->pickle, callee) != FB_PICKLE_GLOBAL) return FB_TORCH_OTHER;
    if (!object->marks[callee]) {
        text = fb_pickle_text(object->pickle, callee, &bytes);
        object->marks[callee] = (uint32_t)fb_torch_callee(text, bytes);
    }
    return (int)object->marks[callee];
}

int fb_torch_class(fb_torch_object *object, fb_node call)
{
    if (fb_pickle_kind(object->pickle, call) != FB_PICKLE_CALL) return 0;
    return fb_torch_class_of_callee(object, fb_pickle_child(object->pickle, call, 0));
}

fb_node fb_torch_integers(const fb_torch_object *object, fb_node node)
{
    const fb_pickle *p = object->pickle;
    if (fb_pickle_kind(p, node) == FB_PICKLE_CALL && fb_pickle_text_is(p, fb_pickle_child(p, node, 0), "torch Size"))
        node = fb_pickle_child(p, fb_pickle_child(p, node, 1), 0);
    return fb_pickle_kind(p, node) == FB_PICKLE_TUPLE || fb_pickle_kind(p, node) == FB_PICKLE_LIST ? node : 0;
}

int fb_torch_view_of(fb_torch_object *object, int class_of, fb_node arguments, fb_node state, fb_torch_view *view)
{
    const fb_pickle *p = object->pickle;
    memset(view, 0, sizeof *view);
    if (class_of == FB_TORCH_OLD_TENSOR) {
        arguments = state;
        if (fb_pickle_kind(p, fb_pickle_child(p, state, 0)) != FB_PICKLE_PERSISTENT) return 0;
    } else if (class_of != FB_TORCH_TENSOR && class_of != FB_TORCH_TENSOR_V3 && class_of != FB_TORCH_QTENSOR) return 0;
    if (fb_pickle_kind(p, arguments) != FB_PICKLE_TUPLE || fb_pickle_children(p, arguments) < 4) return 0;
    view->storage = fb_pickle_child(p, arguments, 0);
    view->offset = fb_pickle_child(p, arguments, 1);
    view->size = fb_torch_integers(object, fb_pickle_child(p, arguments, 2));
    view->stride = fb_torch_integers(object, fb_pickle_child(p, arguments, 3));
    view->quantised = class_of == FB_TORCH_QTENSOR;
    if (class_of != FB_TORCH_TENSOR_V3) return 1;
    view->dtype = fb_pickle_child(p, arguments, 6);
    return view->dtype != 0;
}

/* The part of a DTensor that this rank holds, in the state of the wrapper: (None, attributes). 0: none. */
static fb_node local_part(const fb_pickle *p, fb_node state)
{
    if (fb_pickle_kind(p, state) == FB_PICKLE_TUPLE) state = fb_pickle_child(p, state, 1);
    return fb_pickle_children(p, state) <= ATTRIBUTES_MAX ? fb_pickle_get(p, state, "_local_tensor") : 0;
}

int fb_torch_look(fb_torch_object *object, fb_node call, fb_torch_view *view)
{
    const fb_pickle *p = object->pickle;
    for (int i = 0; i < WRAPPERS_MAX; i++) {
        int class_of = fb_torch_class(object, call);
        fb_node arguments = fb_pickle_child(p, call, 1);
        if (class_of == FB_TORCH_FIRST) call = fb_pickle_child(p, arguments, 0);
        else if (class_of == FB_TORCH_FROM_TYPE) {
            class_of = fb_torch_class_of_callee(object, fb_pickle_child(p, arguments, 0));
            if (fb_torch_view_of(object, class_of, fb_pickle_child(p, arguments, 2), 0, view)) return 1;
            call = local_part(p, fb_pickle_child(p, arguments, 3));
        } else return class_of ? fb_torch_view_of(object, class_of, arguments, fb_pickle_state(p, call), view) : 0;
    }
    return 0;
}

/* ---- storages --------------------------------------------------------------------------------------------------------------- */

/* A key of a storage becomes the name of a member, so it must be plain text. Older files have numbers. */
static fb_status key_of(const fb_torch_object *object, fb_node node, char key[KEY_BYTES_MAX], fb_error *err)
{
    uint64_t bytes;
    const char *text = fb_pickle_text(object->pickle, node, &bytes);
    if (fb_pickle_kind(object->pickle, node) == FB_PICKLE_INT) {
        (void)snprintf(key, KEY_BYTES_MAX, "%lld", (long long)fb_pickle_int(object->pickle, node));
        return FB_OK;
    }
    if (fb_pickle_kind(object->pickle, node) != FB_PICKLE_TEXT || bytes == 0 || bytes >= KEY_BYTES_MAX)
        return fb_torch_refuse(object, node, err, "the key of a storage must be a text of 1 to %d bytes", KEY_BYTES_MAX - 1);
    for (uint64_t i = 0; i < bytes; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return fb_torch_refuse(object, node, err, "the key of a storage holds something else than plain characters");
    }
    memcpy(key, text, (size_t)bytes);
    key[bytes] = '\0';
    return FB_OK;
}

static int grow_keys(fb_torch_object *object)
{
    uint64_t slots = object->key_slots ? object->key_slots * 2 : 64;
    uint32_t *keys;
    if ((object->storage_count + 1) * 2 <= object->key_slots) return 1;
    keys = fb_calloc((size_t)slots, sizeof *keys);
    if (!keys) return 0;
    for (uint64_t i = 0; i < object->key_slots; i++) {
        const char *key;
        uint64_t slot;
        if (!object->keys[i]) continue;
        key = object->text + object->places[object->keys[i] - 1].name_at;
        slot = fb_hash64(key, strlen(key), (uint64_t)(uintptr_t)object) & (slots - 1);
        while (keys[slot]) slot = (slot + 1) & (slots - 1);
        keys[slot] = object->keys[i];
    }
    fb_free(object->keys);
    object->keys = keys;
    object->key_slots = slots;
    return 1;
}

/* Find the storage of this key, or make it as `like` says. The seed is an address: nobody can make keys that meet in one slot. */
static fb_status storage_named(fb_torch_object *object, const char *key, const fb_torch_place *like, fb_node at, uint32_t *index,
                               fb_error *err)
{
    fb_torch_place place = *like;
    uint64_t slot;
    fb_status status;
    if (!grow_keys(object)) return fb_torch_no_memory(object, err);
    for (slot = fb_hash64(key, strlen(key), (uint64_t)(uintptr_t)object) & (object->key_slots - 1); object->keys[slot];
         slot = (slot + 1) & (object->key_slots - 1)) {
        const fb_torch_place *found = &object->places[object->keys[slot] - 1];
        if (strcmp(object->text + found->name_at, key) != 0) continue;
        *index = object->keys[slot] - 1;
        if (found->elements != like->elements || found->format != like->format)
            return fb_torch_refuse(object, at, err,
                                   "storage %.100s has %llu elements of one class and %llu of another, or of the same", key,
                                   (unsigned long long)found->elements, (unsigned long long)like->elements);
        return FB_OK;
    }
    if ((status = fb_torch_keep(object, key, strlen(key), &place.name_at, err)) != FB_OK) return status;
    if ((status = fb_torch_add_place(object, &place, index, err)) != FB_OK) return status;
    object->keys[slot] = *index + 1;
    object->storage_count++;
    return FB_OK;
}

/* Legacy: (key of the view, offset, elements) makes a storage of its own out of a part of the one just named. */
static fb_status part_of(fb_torch_object *object, fb_node view, uint32_t root, uint32_t *index, fb_error *err)
{
    const fb_pickle *p = object->pickle;
    char key[KEY_BYTES_MAX];
    fb_torch_place place = object->places[root];
    fb_node offset = fb_pickle_child(p, view, 1), count = fb_pickle_child(p, view, 2);
    fb_status status = key_of(object, fb_pickle_child(p, view, 0), key, err);
    if (status != FB_OK) return status;
    if (fb_pickle_kind(p, offset) != FB_PICKLE_INT || fb_pickle_kind(p, count) != FB_PICKLE_INT || fb_pickle_int(p, offset) < 0 ||
        fb_pickle_int(p, count) < 0 || (uint64_t)fb_pickle_int(p, offset) > place.elements ||
        (uint64_t)fb_pickle_int(p, count) > place.elements - (uint64_t)fb_pickle_int(p, offset))
        return fb_torch_refuse(object, view, err, "a part of storage %.100s lies outside it", object->text + place.name_at);
    place.root_at = place.name_at;
    place.root_offset = (uint64_t)fb_pickle_int(p, offset);
    place.elements = (uint64_t)fb_pickle_int(p, count);
    place.first = place.count = 0;
    return storage_named(object, key, &place, view, index, err);
}

fb_status fb_torch_storage_of(fb_torch_object *object, fb_node persistent, uint32_t *index, fb_error *err)
{
    const fb_pickle *p = object->pickle;
    char key[KEY_BYTES_MAX];
    fb_torch_place place = {0};
    fb_node id = fb_pickle_child(p, persistent, 0), elements = fb_pickle_child(p, id, 4), view = fb_pickle_child(p, id, 5);
    uint64_t bytes;
    const char *class_name = fb_pickle_text(p, fb_pickle_child(p, id, 1), &bytes);
    int untyped;
    fb_status status;
    *index = UINT32_MAX;
    if (fb_pickle_kind(p, persistent) != FB_PICKLE_PERSISTENT || fb_pickle_kind(p, id) != FB_PICKLE_TUPLE ||
        !fb_pickle_text_is(p, fb_pickle_child(p, id, 0), "storage") || fb_pickle_children(p, id) < 5)
        return FB_OK;
    if ((status = key_of(object, fb_pickle_child(p, id, 2), key, err)) != FB_OK) return status;
    if (fb_pickle_kind(p, elements) != FB_PICKLE_INT || fb_pickle_int(p, elements) < 0)
        return fb_torch_refuse(object, persistent, err, "storage %.100s has no number of elements", key);
    place.kind = FB_TORCH_STORAGE;
    place.format = fb_torch_storage_format(class_name, bytes, &untyped);
    place.elements = (uint64_t)fb_pickle_int(p, elements);
    if (place.format && __builtin_mul_overflow(place.elements, (uint64_t)place.format->bytes, &bytes))
        return fb_torch_refuse(object, persistent, err, "storage %.100s has more bytes than there can be", key);
    status = storage_named(object, key, &place, persistent, index, err);
    if (status == FB_OK && fb_pickle_kind(p, view) == FB_PICKLE_TUPLE) status = part_of(object, view, *index, index, err);
    return status;
}

/* ---- views ------------------------------------------------------------------------------------------------------------------ */

static fb_status take_integers(const fb_torch_object *object, fb_node from, fb_node at, const char *what, const char *name,
                               int64_t values[FB_CKPT_DIMS_MAX], uint32_t *count, fb_error *err)
{
    uint64_t n = fb_pickle_children(object->pickle, from);
    if (!from) return fb_torch_refuse(object, at, err, "tensor %.200s has a %s that is no tuple of integers", name, what);
    if (n > FB_CKPT_DIMS_MAX) {
        (void)fb_torch_refuse(object, at, err, "tensor %.200s has more than %d dimensions", name, FB_CKPT_DIMS_MAX);
        if (err) err->code = FB_E_LIMIT;
        return FB_E_LIMIT;
    }
    for (uint64_t i = 0; i < n; i++) {
        fb_node value = fb_pickle_child(object->pickle, from, i);
        values[i] = fb_pickle_int(object->pickle, value);
        if (fb_pickle_kind(object->pickle, value) != FB_PICKLE_INT || values[i] < 0)
            return fb_torch_refuse(object, at, err, "tensor %.200s has a %s with something else than integers from 0 on", name,
                                   what);
    }
    *count = (uint32_t)n;
    return FB_OK;
}

/* Elements of the view, and one more than the highest place in the storage that it touches. 0: they do not fit 64 bits. */
static int measure(const int64_t *shape, const int64_t *strides, uint32_t ndim, uint64_t offset, uint64_t *elements, uint64_t *end)
{
    uint64_t span;
    *elements = 1;
    *end = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] == 0) {
            *elements = 0;
            return 1;
        }
    }
    *end = offset + 1;
    for (uint32_t i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(*elements, (uint64_t)shape[i], elements) ||
            __builtin_mul_overflow((uint64_t)(shape[i] - 1), (uint64_t)strides[i], &span) ||
            __builtin_add_overflow(*end, span, end))
            return 0;
    }
    return 1;
}

static int is_dense(const int64_t *shape, const int64_t *strides, uint32_t ndim)
{
    uint64_t expected = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        if (shape[i] != 1 && (uint64_t)strides[i] != expected) return 0;
        expected *= (uint64_t)shape[i]; /* cannot overflow: the product was measured */
    }
    return 1;
}

static fb_status format_of(fb_torch_object *object, const fb_torch_view *view, const fb_torch_place *place, fb_torch_record *record,
                           const fb_torch_format **format, fb_error *err)
{
    uint64_t bytes;
    const char *text = fb_pickle_text(object->pickle, view->dtype, &bytes);
    char name[64];
    *format = view->dtype ? fb_torch_dtype_format(text, bytes) : place->format;
    if (*format) {
        record->dtype = (*format)->dtype;
        return fb_torch_keep(object, (*format)->name, strlen((*format)->name), &record->dtype_at, err);
    }
    if (!view->dtype) text = "unknown", bytes = strlen("unknown");
    record->unscanned =
        view->dtype ? "its number format is not known to this build" : "the class of its storage is not known to this build";
    return fb_torch_keep(object, name, fb_torch_clean(name, sizeof name, text, bytes), &record->dtype_at, err);
}

/* Four or two integers to a byte: nothing to find, and the shape does not count bytes. */
static fb_status add_packed(fb_torch_object *object, fb_torch_record record, fb_error *err)
{
    record.dtype = FB_U8;
    record.ndim = 1;
    record.elements = object->places[record.place].elements;
    return fb_torch_add_tensor(object, record, &record.elements, NULL, err);
}

static fb_status add_measured(fb_torch_object *object, fb_torch_record record, const fb_torch_format *format, const int64_t *shape,
                              const int64_t *strides, uint64_t offset, fb_node at, fb_error *err)
{
    const fb_torch_place *place = &object->places[record.place];
    uint64_t dims[FB_CKPT_DIMS_MAX], end = 0, room;
    int dense;
    if (!measure(shape, strides, record.ndim, offset, &record.elements, &end))
        return fb_torch_refuse(object, at, err, "tensor %.200s has more elements than there can be", object->text + record.name_at);
    for (uint32_t i = 0; i < record.ndim; i++) dims[i] = (uint64_t)shape[i];
    if (!format) return fb_torch_add_tensor(object, record, dims, NULL, err);
    room = place->format ? place->elements * place->format->bytes / format->bytes : 0;
    if (end > room)
        return fb_torch_refuse(object, at, err, "tensor %.200s needs %llu elements of storage %.100s, which has %llu",
                               object->text + record.name_at, (unsigned long long)end, object->text + place->name_at,
                               (unsigned long long)room);
    record.offset_bytes = record.elements ? offset * format->bytes : 0;
    dense = record.elements == 0 || is_dense(shape, strides, record.ndim);
    return fb_torch_add_tensor(object, record, dims, dense ? NULL : strides, err);
}

fb_status fb_torch_add_view(fb_torch_object *object, const fb_torch_view *view, fb_node at, uint32_t name_at, fb_error *err)
{
    const fb_pickle *p = object->pickle;
    fb_torch_record record = {0};
    int64_t shape[FB_CKPT_DIMS_MAX] = {0}, strides[FB_CKPT_DIMS_MAX] = {0};
    uint32_t ndim = 0;
    const fb_torch_format *format;
    fb_status status = fb_torch_storage_of(object, view->storage, &record.place, err);
    if (status != FB_OK) return status;
    if (record.place == UINT32_MAX)
        return fb_torch_remark_add(object, FB_CKPT_REMARK_UNSCANNED, name_at, 0, err, "its storage is of a form that is not known");
    record.name_at = name_at;
    if ((status = format_of(object, view, &object->places[record.place], &record, &format, err)) != FB_OK) return status;
    if (format && format->dtype == 0) return add_packed(object, record, err);
    status = take_integers(object, view->size, at, "size", object->text + name_at, shape, &record.ndim, err);
    if (status == FB_OK) status = take_integers(object, view->stride, at, "stride", object->text + name_at, strides, &ndim, err);
    if (status != FB_OK) return status;
    if (ndim != record.ndim || fb_pickle_kind(p, view->offset) != FB_PICKLE_INT || fb_pickle_int(p, view->offset) < 0)
        return fb_torch_refuse(object, at, err,
                               "tensor %.200s has %u dimensions and %u strides, or an offset that is no integer from 0 on",
                               object->text + name_at, record.ndim, ndim);
    return add_measured(object, record, format, shape, strides, (uint64_t)fb_pickle_int(p, view->offset), at, err);
}

/* A storage that was saved by itself: all of it is a tensor. */
fb_status fb_torch_add_storage(fb_torch_object *object, fb_node persistent, uint32_t name_at, int *known, fb_error *err)
{
    fb_torch_view none = {0};
    fb_torch_record record = {0};
    const fb_torch_format *format;
    fb_status status = fb_torch_storage_of(object, persistent, &record.place, err);
    *known = record.place != UINT32_MAX;
    if (status != FB_OK || !*known) return status;
    record.name_at = name_at;
    if ((status = format_of(object, &none, &object->places[record.place], &record, &format, err)) != FB_OK) return status;
    if (format && format->dtype == 0) return add_packed(object, record, err);
    record.ndim = 1;
    record.elements = object->places[record.place].elements;
    return fb_torch_add_tensor(object, record, &record.elements, NULL, err);
}
