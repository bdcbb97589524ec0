/*
 * Flax msgpack: one msgpack object to the end of the file, a tree of maps whose leaves are
 *
 *   ext 1   an array: [shape, name of the format, bytes], packed once more; the bytes in C order, little-endian
 *   ext 2   a complex number of Python: [real, imaginary]
 *   ext 3   a scalar of NumPy, as ext 1
 *   an array of 2^30 bytes or more: {"__msgpack_chunked_array__": true, "shape": {"0": ...}, "chunks": {"0": ext 1, "1": ...}},
 *   in any order behind the first key; each chunk is flat, and they continue each other
 *   numbers of Python, texts, nil
 *
 * Names are the keys on the way, joined by '.'. A tensor that comes in chunks is known by its flat shape, since a chunk is no block
 * of the real one; indices count through the whole. Source: flax/serialization.py. Numbers of msgpack itself are big-endian, hence
 * `swapped`.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/msgpack.h"
#include "ckpt/pool.h"
#include "ckpt/reader.h"
#include "ckpt/text.h"

enum { DEPTH_MAX = 64, NAME_BYTES_MAX = 4096, DTYPE_BYTES_MAX = 64, UNKNOWN = 255 };
static const uint64_t HEADER_BYTES_MAX = 100000000; /* of all that is no text and no array */
static const uint64_t TENSORS_MAX = 2000000;
static const char CHUNKED[] = "__msgpack_chunked_array__";

typedef struct kind {
    const char *name;
    int32_t dtype;
    uint32_t bytes;
} kind;

/* ml_dtypes keeps formats of less than a byte in a byte each. */
static const kind kinds[] = {
    {"float64", FB_F64, 8},
    {"float32", FB_F32, 4},
    {"float16", FB_F16, 2},
    {"bfloat16", FB_BF16, 2},
    {"float8_e4m3fn", FB_F8_E4M3FN, 1},
    {"float8_e5m2", FB_F8_E5M2, 1},
    {"float8_e4m3fnuz", FB_F8_E4M3FNUZ, 1},
    {"float8_e5m2fnuz", FB_F8_E5M2FNUZ, 1},
    {"float8_e8m0fnu", FB_F8_E8M0, 1},
    {"float6_e2m3fn", FB_F6_E2M3, 1},
    {"float6_e3m2fn", FB_F6_E3M2, 1},
    {"complex64", FB_C64, 8},
    {"complex128", FB_C128, 16},
    {"bool", FB_BOOL, 1},
    {"int8", FB_I8, 1},
    {"uint8", FB_U8, 1},
    {"int16", FB_I16, 2},
    {"uint16", FB_U16, 2},
    {"int32", FB_I32, 4},
    {"uint32", FB_U32, 4},
    {"int64", FB_I64, 8},
    {"uint64", FB_U64, 8},
    {"float4_e2m1fn", FB_U8, 1}, /* has nothing that is not finite */
    {"int4", FB_I8, 1},
    {"uint4", FB_U8, 1},
    {"int2", FB_I8, 1},
    {"uint2", FB_U8, 1},
};

/*
 * A name is kept as its last part and a way to the rest, and put together when it is asked for: kept whole, a key of 4096 bytes
 * over a list of a million numbers would take four gigabytes.
 */
typedef struct node {
    const struct node *parent;
    const char *text;
} node;

typedef struct entry {
    const node *node;
    const char *dtype_name;
    const uint64_t *shape; /* of one dimension, elements is the same */
    uint64_t elements, at, bytes;
    uint64_t whole, start; /* of a chunk: elements of the whole, and of the chunks before it */
    uint32_t group;
    uint8_t kind; /* in kinds; UNKNOWN */
    uint8_t ndim, swapped, number;
} entry;

/* What a map means inside a chunked array. */
enum { PLAIN = 0, CHUNKED_ARRAY = 1, CHUNK_SHAPE = 2, CHUNKS = 3 };

typedef struct frame {
    uint64_t left;        /* items still to come; a map counts keys and values together */
    uint64_t items;       /* taken so far */
    uint64_t first_entry; /* that lies in it */
    uint64_t product;     /* CHUNKED_ARRAY: of its shape; CHUNK_SHAPE: so far */
    size_t name_bytes;    /* of the path to it */
    const node *node;     /* of its name; NULL: not needed so far, or the root */
    int is_map, role, parts;
} frame;

typedef struct state {
    fb_msgpack m;
    const char *path;
    uint64_t size;
    fb_pool pool;
    frame stack[DEPTH_MAX];
    int depth;
    char name[NAME_BYTES_MAX + 32];
    size_t name_bytes;
    entry *entries;
    uint64_t count, room, count_max;
    uint32_t groups;
    uint64_t next;
    fb_ckpt_tensor tensor;
    char why[160];
} state;

#define CORRUPT(s, place, err, ...) fb_fail_at(err, (s)->m.base + (place), __VA_ARGS__)

static fb_status no_memory(const state *s, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "read flax %s: no memory", s->path);
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

static fb_status extend_name(state *s, size_t at, const char *key, size_t bytes, fb_error *err)
{
    if (at + 1 + bytes > NAME_BYTES_MAX) {
        return fb_fail(err, FB_E_LIMIT, "read flax %s: a name of more than %d bytes", s->path, NAME_BYTES_MAX);
    }
    if (at > 0) s->name[at++] = '.';
    memcpy(s->name + at, key, bytes);
    s->name_bytes = at + bytes;
    s->name[s->name_bytes] = '\0';
    return FB_OK;
}

/* A key of a map, which becomes the end of the name. Role: what it announces in a chunked array. */
static fb_status take_key(state *s, frame *f, fb_error *err)
{
    fb_msgpack_item i;
    const uint8_t *data;
    const char *fault;
    char digits[32];
    fb_status status = fb_msgpack_next(&s->m, &i, err);
    if (status != FB_OK) return status;
    if (i.what == FB_MSGPACK_INTEGER) {
        int length = snprintf(digits, sizeof digits, "%s%llu", i.negative ? "-" : "", (unsigned long long)i.value);
        return extend_name(s, f->name_bytes, digits, (size_t)length, err);
    }
    if (i.what != FB_MSGPACK_TEXT) return CORRUPT(s, i.at, err, "read flax %s: a key must be a text or an integer", s->path);
    if (i.value > NAME_BYTES_MAX)
        return fb_fail(err, FB_E_LIMIT, "read flax %s: a key of more than %d bytes", s->path, NAME_BYTES_MAX);
    if ((status = fb_msgpack_take(&s->m, (size_t)i.value, &data, err)) != FB_OK) return status;
    if ((fault = fb_ckpt_text_fault(data, (size_t)i.value)) != NULL)
        return CORRUPT(s, i.at, err, "read flax %s: a key %s", s->path, fault);
    if (f->items == 0 && f->role == PLAIN && i.value == sizeof CHUNKED - 1 && memcmp(data, CHUNKED, sizeof CHUNKED - 1) == 0)
        f->role = CHUNKED_ARRAY;
    return extend_name(s, f->name_bytes, (const char *)data, (size_t)i.value, err);
}

static int last_key_is(const state *s, const frame *f, const char *key)
{
    size_t begin = f->name_bytes ? f->name_bytes + 1 : 0;
    return s->name_bytes >= begin && strcmp(s->name + begin, key) == 0;
}

/* ---- leaves ----------------------------------------------------------------------------------------------------------------- */

/* Names of the maps and lists that are open, down to the one at `depth`. */
static fb_status name_frames(state *s, int depth, fb_error *err)
{
    for (int d = 1; d < depth; d++) {
        frame *f = &s->stack[d];
        size_t begin = s->stack[d - 1].name_bytes;
        node *made;
        if (f->node) continue;
        if (begin > 0 && begin < f->name_bytes) begin++; /* the dot */
        if (!(made = fb_pool_take(&s->pool, sizeof *made))) return no_memory(s, err);
        made->parent = f[-1].node;
        if (!(made->text = fb_pool_text(&s->pool, s->name + begin, f->name_bytes - begin))) return no_memory(s, err);
        f->node = made;
    }
    return FB_OK;
}

static fb_status name_leaf(state *s, const char *part, const node **out, fb_error *err)
{
    const frame *f = s->depth ? &s->stack[s->depth - 1] : NULL;
    size_t begin = f ? f->name_bytes : 0, bytes, part_bytes = strlen(part);
    node *made;
    char *text;
    fb_status status = name_frames(s, s->depth, err);
    if (status != FB_OK) return status;
    if (begin > 0 && begin < s->name_bytes) begin++;
    bytes = s->name_bytes - begin;
    made = fb_pool_take(&s->pool, sizeof *made);
    text = fb_pool_take(&s->pool, bytes + part_bytes + 1);
    if (!made || !text) return no_memory(s, err);
    (void)snprintf(text, bytes + part_bytes + 1, "%s%s", s->name + begin, part);
    made->parent = f ? f->node : NULL;
    made->text = text;
    *out = made;
    return FB_OK;
}

/* *e stays NULL on failure. */
static fb_status add_entry(state *s, const char *part, entry **e, fb_error *err)
{
    const node *name = NULL;
    fb_status status;
    if (s->count == s->count_max)
        return fb_fail(err, FB_E_LIMIT, "read flax %s: more than %llu tensors", s->path, (unsigned long long)s->count_max);
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 64;
        entry *grown = fb_realloc(s->entries, (size_t)room * sizeof *grown);
        if (!grown) return no_memory(s, err);
        s->entries = grown;
        s->room = room;
    }
    status = name_leaf(s, part, &name, err);
    if (!name) return status;
    *e = &s->entries[s->count++];
    memset(*e, 0, sizeof **e);
    (*e)->node = name;
    (*e)->kind = UNKNOWN;
    return FB_OK;
}

/* A float of msgpack: its bytes are next. */
static fb_status add_float(state *s, int what, const char *part, fb_error *err)
{
    entry *e = NULL;
    fb_status status = add_entry(s, part, &e, err);
    if (!e) return status;
    e->kind = what == FB_MSGPACK_FLOAT64 ? 0 : 1;
    e->dtype_name = kinds[e->kind].name;
    e->elements = 1;
    e->at = s->m.at;
    e->bytes = kinds[e->kind].bytes;
    e->swapped = e->number = 1;
    s->m.at += e->bytes; /* take_item saw that they are there */
    return FB_OK;
}

static fb_status read_complex(state *s, const fb_msgpack_item *ext, fb_error *err)
{
    static const char *const parts[] = {".real", ".imag"};
    fb_msgpack_item i;
    fb_status status = fb_msgpack_next(&s->m, &i, err);
    if (status != FB_OK) return status;
    for (int part = 0; part < 2; part++) {
        fb_msgpack_item number;
        if (i.what != FB_MSGPACK_ARRAY || i.value != 2) break;
        if ((status = fb_msgpack_next(&s->m, &number, err)) != FB_OK) return status;
        if (number.what == FB_MSGPACK_INTEGER) continue; /* of a writer that shortens 1.0 */
        if (number.what != FB_MSGPACK_FLOAT32 && number.what != FB_MSGPACK_FLOAT64) break;
        if ((status = add_float(s, number.what, parts[part], err)) != FB_OK) return status;
    }
    if (s->m.at != s->m.end) return CORRUPT(s, ext->at, err, "read flax %s: %.200s is no complex number", s->path, s->name);
    return FB_OK;
}

static fb_status read_shape(state *s, entry *e, fb_error *err)
{
    fb_msgpack_item list, dim;
    uint64_t *shape;
    fb_status status = fb_msgpack_next(&s->m, &list, err);
    if (status != FB_OK) return status;
    if (list.what != FB_MSGPACK_ARRAY)
        return CORRUPT(s, list.at, err, "read flax %s: the shape of %.200s must be a list", s->path, s->name);
    if (list.value > FB_CKPT_DIMS_MAX) {
        return fb_fail(err, FB_E_LIMIT, "read flax %s: %.200s has more than %d dimensions", s->path, s->name, FB_CKPT_DIMS_MAX);
    }
    e->ndim = (uint8_t)list.value;
    e->elements = 1;
    shape = fb_pool_take(&s->pool, ((size_t)list.value + 1) * sizeof *shape);
    if (!shape) return no_memory(s, err);
    e->shape = shape;
    for (uint64_t i = 0; i < list.value; i++) {
        if ((status = fb_msgpack_next(&s->m, &dim, err)) != FB_OK) return status;
        if (dim.what != FB_MSGPACK_INTEGER || dim.negative) {
            return CORRUPT(s, dim.at, err, "read flax %s: a dimension of %.200s must be an integer from 0", s->path, s->name);
        }
        shape[i] = dim.value;
        if (__builtin_mul_overflow(e->elements, dim.value, &e->elements))
            return CORRUPT(s, dim.at, err, "read flax %s: %.200s has more than 2^64 elements", s->path, s->name);
    }
    return FB_OK;
}

static fb_status read_dtype(state *s, entry *e, fb_error *err)
{
    fb_msgpack_item i;
    const uint8_t *data;
    const char *fault;
    fb_status status = fb_msgpack_next(&s->m, &i, err);
    if (status != FB_OK) return status;
    if (i.what != FB_MSGPACK_TEXT || i.value > DTYPE_BYTES_MAX) {
        return CORRUPT(s, i.at, err, "read flax %s: the number format of %.200s must be a text of at most %d bytes", s->path,
                       s->name, DTYPE_BYTES_MAX);
    }
    if ((status = fb_msgpack_take(&s->m, (size_t)i.value, &data, err)) != FB_OK) return status;
    if ((fault = fb_ckpt_text_fault(data, (size_t)i.value)) != NULL)
        return CORRUPT(s, i.at, err, "read flax %s: the number format of %.200s %s", s->path, s->name, fault);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (strlen(kinds[k].name) != i.value || memcmp(kinds[k].name, data, (size_t)i.value) != 0) continue;
        e->kind = (uint8_t)k;
        e->dtype_name = kinds[k].name;
        return FB_OK;
    }
    e->dtype_name = fb_pool_text(&s->pool, (const char *)data, (size_t)i.value);
    return e->dtype_name ? FB_OK : no_memory(s, err);
}

static fb_status read_array(state *s, const fb_msgpack_item *ext, fb_error *err)
{
    entry *e = NULL;
    fb_msgpack_item i;
    uint64_t bytes;
    fb_status status = add_entry(s, "", &e, err);
    if (!e || (status = fb_msgpack_next(&s->m, &i, err)) != FB_OK) return status;
    if (i.what != FB_MSGPACK_ARRAY || i.value != 3)
        return CORRUPT(s, i.at, err, "read flax %s: the array %.200s must be a list of shape, format and bytes", s->path, s->name);
    if ((status = read_shape(s, e, err)) != FB_OK || (status = read_dtype(s, e, err)) != FB_OK) return status;
    if ((status = fb_msgpack_next(&s->m, &i, err)) != FB_OK) return status;
    /* use_bin_type has always been set, but a text of msgpack before 2013 has the same layout. */
    if ((i.what != FB_MSGPACK_BINARY && i.what != FB_MSGPACK_TEXT) || i.value != s->m.end - s->m.at)
        return CORRUPT(s, i.at, err, "read flax %s: the bytes of %.200s must fill the rest of its array", s->path, s->name);
    if (e->kind != UNKNOWN && (__builtin_mul_overflow(e->elements, kinds[e->kind].bytes, &bytes) || bytes != i.value)) {
        return CORRUPT(s, i.at, err, "read flax %s: %.200s has %llu elements of %s, and %llu bytes", s->path, s->name,
                       (unsigned long long)e->elements, e->dtype_name, (unsigned long long)i.value);
    }
    e->at = s->m.at;
    e->bytes = i.value;
    e->number = ext->ext == 3;
    s->m.at = s->m.end;
    return FB_OK;
}

static fb_status read_ext(state *s, const fb_msgpack_item *i, fb_error *err)
{
    uint64_t end = s->m.end;
    entry *e = NULL;
    fb_status status;
    s->m.end = s->m.at + i->value;
    switch (i->ext) {
    case 1:
    case 3: status = read_array(s, i, err); break;
    case 2: status = read_complex(s, i, err); break;
    default: /* of another program: what it means is not known */
        status = add_entry(s, "", &e, err);
        if (!e) break;
        e->dtype_name = "ext";
        e->at = s->m.at;
        e->bytes = e->elements = i->value;
        e->ndim = 1;
        s->m.at = s->m.end;
    }
    s->m.end = end;
    return status;
}

/* ---- the tree --------------------------------------------------------------------------------------------------------------- */

static fb_status open_frame(state *s, const fb_msgpack_item *i, fb_error *err)
{
    frame *parent = s->depth ? &s->stack[s->depth - 1] : NULL, *f = &s->stack[s->depth];
    if (s->depth == DEPTH_MAX) {
        return fb_fail(err, FB_E_LIMIT, "read flax %s: maps and lists lie inside each other more than %d deep", s->path, DEPTH_MAX);
    }
    memset(f, 0, sizeof *f);
    f->is_map = i->what == FB_MSGPACK_MAP;
    f->left = f->is_map ? i->value * 2 : i->value;
    f->name_bytes = s->name_bytes;
    f->first_entry = s->count;
    f->product = 1;
    if (parent && parent->role == CHUNKED_ARRAY && f->is_map && last_key_is(s, parent, "shape")) f->role = CHUNK_SHAPE;
    if (parent && parent->role == CHUNKED_ARRAY && f->is_map && last_key_is(s, parent, "chunks")) f->role = CHUNKS;
    if (f->left > s->m.end - s->m.at) {
        return CORRUPT(s, i->at, err, "read flax %s: a map of %llu keys is announced, %llu bytes are left", s->path,
                       (unsigned long long)i->value, (unsigned long long)(s->m.end - s->m.at));
    }
    s->depth++;
    return FB_OK;
}

/* Its chunks become pieces of one tensor. */
static fb_status join_chunks(state *s, const frame *f, fb_error *err)
{
    uint64_t whole = 0;
    fb_status status = name_frames(s, s->depth + 1, err);
    if (status != FB_OK) return status;
    s->name[f->name_bytes] = '\0';
    s->groups++;
    for (uint64_t i = f->first_entry; i < s->count; i++) {
        entry *e = &s->entries[i];
        if (e->ndim != 1 || e->kind != s->entries[f->first_entry].kind)
            return CORRUPT(s, e->at, err, "read flax %s: the chunks of %.200s must be flat and of one format", s->path, s->name);
        e->node = f->node;
        e->start = whole;
        e->group = s->groups;
        if (__builtin_add_overflow(whole, e->elements, &whole)) whole = UINT64_MAX;
    }
    if (f->parts != 3 || whole != f->product) {
        return CORRUPT(s, s->m.at, err, "read flax %s: the chunks of %.200s hold %llu elements, its shape %llu", s->path, s->name,
                       (unsigned long long)whole, (unsigned long long)(f->parts & 1 ? f->product : 0));
    }
    for (uint64_t i = f->first_entry; i < s->count; i++) s->entries[i].whole = whole;
    return FB_OK;
}

static fb_status close_frame(state *s, fb_error *err)
{
    const frame *f = &s->stack[--s->depth];
    frame *parent = s->depth ? &s->stack[s->depth - 1] : NULL;
    if (parent && f->role == CHUNK_SHAPE) {
        parent->product = f->product;
        parent->parts |= 1;
    }
    if (parent && f->role == CHUNKS) parent->parts |= 2;
    return f->role == CHUNKED_ARRAY ? join_chunks(s, f, err) : FB_OK;
}

/* What stands in a chunked array must be what Flax puts there: the numbers of its dimensions, and chunks in order. */
static fb_status check_chunk(state *s, frame *f, const fb_msgpack_item *i, fb_error *err)
{
    char due[32];
    int fits = 1;
    if (f->role == PLAIN) return FB_OK;
    (void)snprintf(due, sizeof due, "%llu", (unsigned long long)(f->items / 2));
    if (f->role != CHUNKED_ARRAY && !last_key_is(s, f, due)) fits = 0;
    if (f->role == CHUNKS && (i->what != FB_MSGPACK_EXT || i->ext != 1)) fits = 0;
    if (f->role == CHUNKED_ARRAY && f->items == 0 && i->what != FB_MSGPACK_BOOLEAN) fits = 0;
    if (f->role == CHUNKED_ARRAY && f->items > 0 &&
        (i->what != FB_MSGPACK_MAP || !(last_key_is(s, f, "shape") || last_key_is(s, f, "chunks"))))
        fits = 0;
    if (f->role == CHUNK_SHAPE &&
        (i->what != FB_MSGPACK_INTEGER || i->negative || __builtin_mul_overflow(f->product, i->value, &f->product)))
        fits = 0;
    if (fits) return FB_OK;
    return CORRUPT(s, i->at, err, "read flax %s: %.200s does not fit in an array that is cut into chunks", s->path, s->name);
}

/* The number of an item in a list is the end of its name. Asked for only where somebody is going to be called by it. */
static fb_status name_item(state *s, const frame *f, const fb_msgpack_item *i, fb_error *err)
{
    char digits[32];
    int length;
    if (i->what != FB_MSGPACK_MAP && i->what != FB_MSGPACK_ARRAY && i->what != FB_MSGPACK_EXT && i->what != FB_MSGPACK_FLOAT32 &&
        i->what != FB_MSGPACK_FLOAT64)
        return FB_OK;
    length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)f->items);
    return extend_name(s, f->name_bytes, digits, (size_t)length, err);
}

static fb_status take_value(state *s, fb_error *err)
{
    frame *f = s->depth ? &s->stack[s->depth - 1] : NULL;
    fb_msgpack_item i;
    fb_status status;
    if (f && f->is_map) {
        if ((status = take_key(s, f, err)) != FB_OK) return status;
        f->left--;
    }
    if ((status = fb_msgpack_next(&s->m, &i, err)) != FB_OK) return status;
    if (f && !f->is_map && (status = name_item(s, f, &i, err)) != FB_OK) return status;
    if (f && (status = check_chunk(s, f, &i, err)) != FB_OK) return status;
    if (f) {
        f->left--;
        f->items += f->is_map ? 2 : 1;
    }
    switch (i.what) {
    case FB_MSGPACK_MAP:
    case FB_MSGPACK_ARRAY: return open_frame(s, &i, err);
    case FB_MSGPACK_EXT: return read_ext(s, &i, err);
    case FB_MSGPACK_FLOAT32:
    case FB_MSGPACK_FLOAT64: return add_float(s, i.what, "", err);
    case FB_MSGPACK_TEXT:
    case FB_MSGPACK_BINARY: s->m.at += i.value; return FB_OK;
    default: return FB_OK;
    }
}

static fb_status read_all(state *s, fb_error *err)
{
    fb_status status = take_value(s, err);
    while (status == FB_OK && s->depth > 0) status = s->stack[s->depth - 1].left ? take_value(s, err) : close_frame(s, err);
    if (status == FB_OK && s->m.at != s->size)
        return CORRUPT(s, s->m.at, err, "read flax %s: %llu bytes follow its one object", s->path,
                       (unsigned long long)(s->size - s->m.at));
    return status;
}

/* ---- the reader ------------------------------------------------------------------------------------------------------------- */

/* A map, whose first key is a text without control characters: there is no magic number. */
static int flax_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    size_t at, key;
    if (head_bytes < 8) return 0;
    at = head[0] > 0x80 && head[0] < 0x90 ? 1 : head[0] == 0xde ? 3 : head[0] == 0xdf ? 5 : 0;
    if (at == 0) return 0;
    if ((head[at] & 0xe0) == 0xa0) key = head[at] & 0x1f;
    else if (head[at] == 0xd9) key = head[++at];
    else return 0;
    at++;
    if (key == 0 || at + key > file_bytes) return 0;
    if (at + key > head_bytes) key = 0; /* a file of a few bytes, cut off */
    return fb_ckpt_text_fault(head + at, key) == NULL;
}

static void flax_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    fb_pool_release(&s->pool);
    fb_free(s->entries);
    fb_free(s);
}

static fb_status flax_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read flax %s: no memory", range->file->path);
    s->m.file = range->file;
    s->m.what = "flax";
    s->path = range->file->path;
    s->m.base = range->offset_bytes;
    s->size = s->m.end = range->bytes;
    s->m.walked_max = options->header_bytes_max ? options->header_bytes_max : HEADER_BYTES_MAX;
    s->count_max = options->tensors_max ? options->tensors_max : TENSORS_MAX;
    if ((status = read_all(s, err)) != FB_OK) {
        flax_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

/* Put a name together in s->name, from its end. */
static const char *full_name(state *s, const node *n)
{
    size_t at = sizeof s->name - 1;
    s->name[at] = '\0';
    for (; n; n = n->parent) {
        size_t bytes = strlen(n->text);
        if (bytes + 1 > at) break; /* cannot be: paths were measured when they were read */
        at -= bytes;
        memcpy(s->name + at, n->text, bytes);
        if (n->parent) s->name[--at] = '.';
    }
    return s->name + at;
}

static void describe(state *s, const entry *e, fb_ckpt_tensor *t)
{
    memset(t, 0, sizeof *t);
    t->name = full_name(s, e->node);
    t->dtype_name = e->dtype_name;
    t->ndim = e->ndim;
    t->shape = e->ndim == 1 ? &e->elements : e->shape;
    t->elements = e->elements;
    t->number = e->number;
    if (e->group) {
        t->whole_shape = &e->whole;
        t->whole_start = &e->start;
    }
    if (e->kind != UNKNOWN) {
        t->dtype = kinds[e->kind].dtype;
        return;
    }
    (void)snprintf(s->why, sizeof s->why, "this build does not know the number format %s", e->dtype_name);
    t->unscanned = s->why;
}

static fb_status flax_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    const entry *e;
    (void)err;
    if (s->next == s->count) return FB_E_NOTFOUND;
    e = &s->entries[s->next++];
    describe(s, e, &s->tensor);
    memset(extent, 0, sizeof *extent);
    extent->name = s->tensor.name;
    extent->encoding = FB_CKPT_STORED;
    extent->swapped = e->swapped;
    extent->offset_bytes = s->m.base + e->at;
    extent->bytes = extent->stored_bytes = e->bytes;
    extent->tensors = &s->tensor;
    extent->tensor_count = 1;
    extent->group = e->group;
    return FB_OK;
}

const fb_ckpt_reader fb_ckpt_flax = {
    .format = "flax",
    .detect = flax_detect,
    .open = flax_open,
    .next = flax_next,
    .close = flax_close,
};
