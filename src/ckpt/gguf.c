/*
 * GGUF: "GGUF", u32 version, i64 number of tensors, i64 number of keys; the keys; a table of tensors; data.
 *
 *   key     text, u32 type, value. A text is u64 length and its bytes; an array u32 type, u64 count and its items.
 *   tensor  text, u32 number of dimensions, i64 each (the fastest first), u32 type, u64 offset
 *
 * Data begins after the table, rounded up to general.alignment (32 if no such key). A file is valid only if each tensor begins
 * where the one before ended, rounded up in the same way, in the order of the table; the last one may lack its padding, and nothing
 * else may follow. Names are unique; dimensions are at most 4; a row is made of whole blocks. All of that is what ggml asks for
 * (src/gguf.cpp), except that it passes over bytes after the end.
 *
 * A file for big-endian machines has all numbers swapped, those inside blocks too; it shows in the version.
 * Floats among the keys are numbers of the model as well: a frequency base that is NaN makes every output NaN.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/gguf_types.h"
#include "ckpt/order.h"
#include "ckpt/pool.h"
#include "ckpt/reader.h"
#include "ckpt/text.h"

enum { DIMS_MAX = 4, NAME_MAX_BYTES = 63, KEY_MAX_BYTES = 4096, ALIGNMENT = 32 };
static const uint64_t HEADER_BYTES_MAX = 100000000;
static const uint64_t TENSORS_MAX = 2000000;
static const uint64_t LENGTH_MAX = 1u << 30; /* of a text or an array, as in ggml */

/* Types of values. */
enum { KV_U32 = 4, KV_F32 = 6, KV_TEXT = 8, KV_ARRAY = 9, KV_F64 = 12, KV_TYPES = 13 };
static const uint8_t value_bytes[KV_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* A tensor, or floats among the keys. */
typedef struct entry {
    const char *name;
    const fb_gguf_type *type; /* NULL: not known */
    uint64_t shape[DIMS_MAX]; /* the fastest last */
    uint64_t offset_bytes;    /* of keys in the range; of tensors from the begin of the data */
    uint64_t bytes;
    uint32_t type_id;
    uint8_t ndim;
    uint8_t is_tensor;
    uint8_t legal_inf;
} entry;

typedef struct state {
    fb_ckpt_file *file;
    const char *path;
    uint64_t base, size;     /* of the range */
    uint64_t at, header_max; /* where the header is read */
    int swapped;
    fb_pool pool; /* names */
    const char **keys;
    uint64_t key_count, key_room;
    entry *entries; /* keys first, then tensors */
    uint64_t count, room, count_max;
    uint64_t first_tensor, tensor_count, keys_left;
    uint64_t alignment, data_at;
    uint64_t next;
    fb_ckpt_tensor tensor;
    char type_name[32], why[64];
} state;

/* A version is a small number in one order of bytes or the other, so that a text which begins with
 * GGUF is no file of this format. */
static int gguf_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    static const char forerunners[3][5] = {"lmgg", "fmgg", "tjgg"};
    (void)file_bytes;
    if (head_bytes < 4) return 0;
    for (size_t i = 0; i < 3; i++) {
        if (memcmp(head, forerunners[i], 4) == 0) return 1;
    }
    if (memcmp(head, "GGUF", 4) != 0) return 0;
    return head_bytes < 8 || (head[6] == 0 && head[7] == 0) || (head[4] == 0 && head[5] == 0);
}

static fb_status no_memory(const state *s, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "read gguf %s: no memory", s->path);
}

#define CORRUPT(s, place, err, ...) fb_fail_at(err, (s)->base + (place), __VA_ARGS__)

/* ---- pieces of the header --------------------------------------------------------------------------------------------------- */

/* Are so many bytes there? */
static fb_status check_left(const state *s, uint64_t bytes, const char *what, fb_error *err)
{
    if (bytes > s->size - s->at) {
        return CORRUPT(s, s->at, err, "read gguf %s: %s takes %llu bytes, the file ends after %llu", s->path, what,
                       (unsigned long long)bytes, (unsigned long long)(s->size - s->at));
    }
    if (bytes > s->header_max - s->at) {
        return fb_fail(err, FB_E_LIMIT, "read gguf %s: keys and table take more than %llu bytes", s->path,
                       (unsigned long long)s->header_max);
    }
    return FB_OK;
}

static fb_status take(state *s, size_t bytes, const uint8_t **data, const char *what, fb_error *err)
{
    size_t got;
    fb_status status = check_left(s, bytes, what, err);
    if (status == FB_OK) status = fb_ckpt_file_view(s->file, s->base + s->at, bytes, data, &got, err);
    if (status == FB_OK) s->at += bytes;
    return status;
}

static fb_status skip(state *s, uint64_t bytes, const char *what, fb_error *err)
{
    fb_status status = check_left(s, bytes, what, err);
    if (status == FB_OK) s->at += bytes;
    return status;
}

static fb_status take_number(state *s, unsigned bytes, uint64_t *value, const char *what, fb_error *err)
{
    const uint8_t *data = NULL;
    fb_status status = take(s, bytes, &data, what, err);
    *value = 0;
    if (!data) return status;
    for (unsigned i = 0; i < bytes; i++) *value |= (uint64_t)data[i] << 8 * (s->swapped ? bytes - 1 - i : i);
    return status;
}

static fb_status take_length(state *s, uint64_t *bytes, const char *what, fb_error *err)
{
    fb_status status = take_number(s, 8, bytes, what, err);
    if (status == FB_OK && *bytes > LENGTH_MAX) {
        return CORRUPT(s, s->at - 8, err, "read gguf %s: the length of %s is %llu, and GGUF allows 2^30", s->path, what,
                       (unsigned long long)*bytes);
    }
    return status;
}

static fb_status take_name(state *s, uint64_t bytes_max, const char **name, const char *what, fb_error *err)
{
    uint64_t bytes, begin = s->at;
    const uint8_t *data;
    const char *fault;
    fb_status status = take_length(s, &bytes, what, err);
    if (status != FB_OK) return status;
    if (bytes > bytes_max) {
        return CORRUPT(s, begin, err, "read gguf %s: %s of %llu bytes, and at most %llu are allowed", s->path, what,
                       (unsigned long long)bytes, (unsigned long long)bytes_max);
    }
    if ((status = take(s, (size_t)bytes, &data, what, err)) != FB_OK) return status;
    if ((fault = fb_ckpt_text_fault(data, (size_t)bytes)) != NULL)
        return CORRUPT(s, begin, err, "read gguf %s: %s %s", s->path, what, fault);
    *name = fb_pool_text(&s->pool, (const char *)data, (size_t)bytes);
    return *name ? FB_OK : no_memory(s, err);
}

/* *e stays NULL on failure. */
static fb_status add_entry(state *s, entry **e, fb_error *err)
{
    if (s->count == s->count_max) {
        return fb_fail(err, FB_E_LIMIT, "read gguf %s: more than %llu tensors and numbers", s->path,
                       (unsigned long long)s->count_max);
    }
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 64;
        entry *grown = fb_realloc(s->entries, (size_t)room * sizeof *grown);
        if (!grown) return no_memory(s, err);
        s->entries = grown;
        s->room = room;
    }
    *e = &s->entries[s->count++];
    memset(*e, 0, sizeof **e);
    return FB_OK;
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------- */

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static fb_status add_floats(state *s, const char *key, uint64_t type, uint64_t count, int is_array, fb_error *err)
{
    entry *e = NULL;
    fb_status status = add_entry(s, &e, err);
    if (!e) return status;
    e->name = key;
    e->type_id = type == KV_F32 ? 0 : 28;
    e->type = fb_gguf_type_find(e->type_id);
    e->ndim = (uint8_t)is_array;
    e->shape[0] = count;
    e->offset_bytes = s->at;
    e->bytes = count * value_bytes[type];
    /* Gemma 3n: how many deviations above the mean an activation must lie, by layer; -Inf where a layer is not sparse. */
    e->legal_inf = (uint8_t)ends_with(key, ".activation_sparsity_scale");
    return FB_OK;
}

static fb_status skip_texts(state *s, uint64_t count, fb_error *err)
{
    fb_status status = check_left(s, count * 8, "an array of texts", err);
    for (uint64_t i = 0; i < count && status == FB_OK; i++) {
        uint64_t bytes;
        if ((status = take_length(s, &bytes, "a text", err)) == FB_OK) status = skip(s, bytes, "a text", err);
    }
    return status;
}

static fb_status read_value(state *s, const char *key, fb_error *err)
{
    uint64_t type, count = 1, begin = s->at;
    int is_array;
    fb_status status = take_number(s, 4, &type, "the type of a value", err);
    if (status != FB_OK) return status;
    is_array = type == KV_ARRAY;
    if (is_array) {
        if ((status = take_number(s, 4, &type, "the type of an array", err)) != FB_OK) return status;
        if ((status = take_length(s, &count, "an array", err)) != FB_OK) return status;
    }
    if (type >= KV_TYPES || type == KV_ARRAY) {
        return CORRUPT(s, begin, err, "read gguf %s: the value of %.200s is %s, which GGUF does not have (type %llu)", s->path, key,
                       type == KV_ARRAY ? "an array of arrays" : "of a type", (unsigned long long)type);
    }
    if (strcmp(key, "general.alignment") == 0) {
        if (is_array || type != KV_U32)
            return CORRUPT(s, begin, err, "read gguf %s: general.alignment must be one number of 32 bits", s->path);
        return take_number(s, 4, &s->alignment, "general.alignment", err);
    }
    if (type == KV_TEXT) return skip_texts(s, count, err);
    if ((status = check_left(s, count * value_bytes[type], "a value", err)) != FB_OK) return status;
    if ((type == KV_F32 || type == KV_F64) && (status = add_floats(s, key, type, count, is_array, err)) != FB_OK) return status;
    return skip(s, count * value_bytes[type], "a value", err);
}

static fb_status add_key(state *s, const char *key, fb_error *err)
{
    if (s->key_count == s->count_max) {
        return fb_fail(err, FB_E_LIMIT, "read gguf %s: more than %llu keys", s->path, (unsigned long long)s->count_max);
    }
    if (s->key_count == s->key_room) {
        uint64_t room = s->key_room ? s->key_room * 2 : 64;
        const char **grown = fb_realloc(s->keys, (size_t)room * sizeof *grown);
        if (!grown) return no_memory(s, err);
        s->keys = grown;
        s->key_room = room;
    }
    s->keys[s->key_count++] = key;
    return FB_OK;
}

static fb_status read_keys(state *s, fb_error *err)
{
    fb_status status = FB_OK;
    for (; s->keys_left > 0 && status == FB_OK; s->keys_left--) {
        const char *key = NULL;
        uint64_t begin = s->at;
        status = take_name(s, KEY_MAX_BYTES, &key, "a key", err);
        if (!key) return status;
        if (*key == '\0') return CORRUPT(s, begin, err, "read gguf %s: a key without a name", s->path);
        if ((status = add_key(s, key, err)) == FB_OK) status = read_value(s, key, err);
    }
    if (status == FB_OK && (s->alignment == 0 || (s->alignment & (s->alignment - 1)) != 0)) {
        return CORRUPT(s, s->at, err, "read gguf %s: general.alignment is %llu, which is no power of two", s->path,
                       (unsigned long long)s->alignment);
    }
    return status;
}

/* ---- the table of tensors --------------------------------------------------------------------------------------------------- */

static fb_status read_shape(state *s, entry *e, fb_error *err)
{
    uint64_t ndim, begin = s->at;
    fb_status status = take_number(s, 4, &ndim, "a number of dimensions", err);
    if (status != FB_OK) return status;
    if (ndim > DIMS_MAX) {
        return CORRUPT(s, begin, err, "read gguf %s: tensor %s has %llu dimensions, and GGUF allows %d", s->path, e->name,
                       (unsigned long long)ndim, DIMS_MAX);
    }
    e->ndim = (uint8_t)ndim;
    for (uint64_t i = ndim; i-- > 0;) { /* the fastest comes first in the file */
        if ((status = take_number(s, 8, &e->shape[i], "a dimension", err)) != FB_OK) return status;
        if (e->shape[i] > INT64_MAX)
            return CORRUPT(s, s->at - 8, err, "read gguf %s: a dimension of tensor %s is negative", s->path, e->name);
    }
    return FB_OK;
}

/* Product of the shape; 0 when it does not fit a signed number of 64 bits, with *fits set to 0. */
static uint64_t elements_of(const entry *e, int *fits)
{
    uint64_t product = 1;
    int empty = 0;
    *fits = 1;
    for (uint8_t i = 0; i < e->ndim; i++) {
        if (e->shape[i] == 0) empty = 1;
        else if (__builtin_mul_overflow(product, e->shape[i], &product) || product >= INT64_MAX) *fits = 0;
    }
    return empty || !*fits ? 0 : product;
}

static fb_status check_blocks(const state *s, entry *e, fb_error *err)
{
    int fits;
    uint64_t elements = elements_of(e, &fits), row = e->ndim ? e->shape[e->ndim - 1] : 1;
    if (!fits) return CORRUPT(s, s->at, err, "read gguf %s: tensor %s has more than 2^63 elements", s->path, e->name);
    if (!e->type) return FB_OK; /* where it ends is told by the tensor after it */
    if (row % e->type->block_elements != 0) {
        return CORRUPT(s, s->at, err, "read gguf %s: a row of tensor %s has %llu elements, and %s takes them by %u", s->path,
                       e->name, (unsigned long long)row, e->type->name, e->type->block_elements);
    }
    if (__builtin_mul_overflow(elements / e->type->block_elements, e->type->block_bytes, &e->bytes))
        return CORRUPT(s, s->at, err, "read gguf %s: tensor %s has more than 2^64 bytes", s->path, e->name);
    return FB_OK;
}

static fb_status read_tensor(state *s, fb_error *err)
{
    entry *e = NULL;
    uint64_t type;
    fb_status status = add_entry(s, &e, err);
    if (!e) return status;
    e->is_tensor = 1;
    if ((status = take_name(s, NAME_MAX_BYTES, &e->name, "the name of a tensor", err)) != FB_OK) return status;
    if ((status = read_shape(s, e, err)) != FB_OK) return status;
    if ((status = take_number(s, 4, &type, "the type of a tensor", err)) != FB_OK) return status;
    e->type_id = (uint32_t)type;
    e->type = fb_gguf_type_find(e->type_id);
    if ((status = check_blocks(s, e, err)) != FB_OK) return status;
    return take_number(s, 8, &e->offset_bytes, "the offset of a tensor", err);
}

/* ---- all of it together ----------------------------------------------------------------------------------------------------- */

static int by_key(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    return strcmp(s->keys[a], s->keys[b]);
}

static int by_name(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    return strcmp(s->entries[s->first_tensor + a].name, s->entries[s->first_tensor + b].name);
}

static fb_status check_unique(state *s, uint64_t count, fb_ckpt_compare compare, const char *what, fb_error *err)
{
    uint32_t *order = fb_calloc((size_t)count + 1, sizeof *order);
    fb_status status = FB_OK;
    if (!order) return no_memory(s, err);
    for (uint64_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    fb_ckpt_sort(order, count, compare, s);
    for (uint64_t i = 1; i < count && status == FB_OK; i++) {
        const char *name = compare == by_key ? s->keys[order[i]] : s->entries[s->first_tensor + order[i]].name;
        if (compare(s, order[i - 1], order[i]) == 0)
            status = CORRUPT(s, 0, err, "read gguf %s: two %s have the name %.200s", s->path, what, name);
    }
    fb_free(order);
    return status;
}

static int pad(uint64_t *at, uint64_t alignment)
{
    uint64_t rest = *at & (alignment - 1);
    return rest == 0 || !__builtin_add_overflow(*at, alignment - rest, at);
}

/* Where a tensor of an unknown type ends: before the next one, or with the file. */
static void guess_bytes(const state *s, entry *e)
{
    const entry *after = e + 1 < s->entries + s->count ? e + 1 : NULL;
    uint64_t end = after ? after->offset_bytes : s->size - s->data_at;
    e->bytes = end > e->offset_bytes ? end - e->offset_bytes : 0;
}

static fb_status check_places(state *s, fb_error *err)
{
    uint64_t due = 0, end = s->at;
    s->data_at = s->at;
    if (s->tensor_count > 0 && (!pad(&s->data_at, s->alignment) || s->data_at > s->size))
        return CORRUPT(s, s->at, err, "read gguf %s: the file ends before the data of its tensors", s->path);
    for (uint64_t i = s->first_tensor; i < s->count; i++) {
        entry *e = &s->entries[i];
        uint64_t left = s->size - s->data_at;
        if (e->offset_bytes != due) {
            return CORRUPT(s, s->data_at, err, "read gguf %s: tensor %s is said to begin at byte %llu of the data, due was %llu",
                           s->path, e->name, (unsigned long long)e->offset_bytes, (unsigned long long)due);
        }
        if (due > left) return CORRUPT(s, s->size, err, "read gguf %s: the file ends before tensor %s", s->path, e->name);
        if (!e->type) guess_bytes(s, e);
        if (e->bytes > left - due) {
            return CORRUPT(s, s->size, err, "read gguf %s: tensor %s takes %llu bytes, %llu are left in the file", s->path, e->name,
                           (unsigned long long)e->bytes, (unsigned long long)(left - due));
        }
        end = s->data_at + due + e->bytes;
        due += e->bytes;
        if (!pad(&due, s->alignment)) due = UINT64_MAX;
    }
    if (pad(&end, s->alignment) && end < s->size)
        return CORRUPT(s, end, err, "read gguf %s: %llu bytes follow the last tensor", s->path,
                       (unsigned long long)(s->size - end));
    return FB_OK;
}

static fb_status read_head(state *s, fb_error *err)
{
    const uint8_t *magic;
    uint64_t version;
    fb_status status = take(s, 4, &magic, "the magic number", err);
    if (status != FB_OK) return status;
    if (memcmp(magic, "GGUF", 4) != 0) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read gguf %s: it is in a format of ggml from before GGUF; convert it with llama.cpp",
                       s->path);
    }
    if ((status = take_number(s, 4, &version, "the version", err)) != FB_OK) return status;
    if (version != 0 && (version & 0xffff) == 0) { /* no version is that high: its bytes stand the other way round */
        s->swapped = 1;
        version = version >> 24 | (version >> 8 & 0xff00);
    }
    if (version != 2 && version != 3) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read gguf %s: version %llu, and this build reads 2 and 3", s->path,
                       (unsigned long long)version);
    }
    if ((status = take_number(s, 8, &s->tensor_count, "the number of tensors", err)) != FB_OK) return status;
    if ((status = take_number(s, 8, &s->keys_left, "the number of keys", err)) != FB_OK) return status;
    if (s->tensor_count > INT64_MAX || s->keys_left > INT64_MAX)
        return CORRUPT(s, 8, err, "read gguf %s: the number of tensors or keys is negative", s->path);
    return FB_OK;
}

static fb_status read_all(state *s, fb_error *err)
{
    fb_status status = read_head(s, err);
    if (status == FB_OK) status = read_keys(s, err);
    s->first_tensor = s->count;
    for (uint64_t i = 0; i < s->tensor_count && status == FB_OK; i++) status = read_tensor(s, err);
    if (status == FB_OK) status = check_unique(s, s->key_count, by_key, "keys", err);
    if (status == FB_OK) status = check_unique(s, s->tensor_count, by_name, "tensors", err);
    return status == FB_OK ? check_places(s, err) : status;
}

/* ---- the reader ------------------------------------------------------------------------------------------------------------- */

static void gguf_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    fb_pool_release(&s->pool);
    fb_free(s->keys);
    fb_free(s->entries);
    fb_free(s);
}

static fb_status gguf_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read gguf %s: no memory", range->file->path);
    s->file = range->file;
    s->path = range->file->path;
    s->base = range->offset_bytes;
    s->size = range->bytes;
    s->header_max = options->header_bytes_max ? options->header_bytes_max : HEADER_BYTES_MAX;
    s->count_max = options->tensors_max ? options->tensors_max : TENSORS_MAX;
    if (s->count_max > UINT32_MAX) s->count_max = UINT32_MAX;
    s->alignment = ALIGNMENT;
    if ((status = read_all(s, err)) != FB_OK) {
        gguf_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

static void describe(state *s, const entry *e, fb_ckpt_tensor *t)
{
    int fits;
    memset(t, 0, sizeof *t);
    t->name = e->name;
    t->ndim = e->ndim;
    t->shape = e->shape;
    t->elements = elements_of(e, &fits);
    t->number = !e->is_tensor && e->ndim == 0;
    t->legal_inf = e->legal_inf;
    if (e->type) {
        t->dtype_name = e->type->name;
        t->dtype = e->type->dtype;
        if (e->type->lane_count == 0) return;
        t->lanes = e->type->lanes;
        t->lane_count = e->type->lane_count;
        t->block_elements = e->type->block_elements;
        t->period_bytes = e->type->block_bytes;
        return;
    }
    (void)snprintf(s->type_name, sizeof s->type_name, "type %u", e->type_id);
    (void)snprintf(s->why, sizeof s->why, "this build does not know the number format %u of ggml", e->type_id);
    t->dtype_name = s->type_name;
    t->unscanned = s->why;
}

static fb_status gguf_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    const entry *e;
    (void)err;
    if (s->next == s->count) return FB_E_NOTFOUND;
    e = &s->entries[s->next++];
    describe(s, e, &s->tensor);
    memset(extent, 0, sizeof *extent);
    extent->name = e->name;
    extent->encoding = FB_CKPT_STORED;
    extent->swapped = s->swapped;
    extent->offset_bytes = s->base + (e->is_tensor ? s->data_at : 0) + e->offset_bytes;
    extent->bytes = extent->stored_bytes = e->bytes;
    extent->tensors = &s->tensor;
    extent->tensor_count = 1;
    return FB_OK;
}

const fb_ckpt_reader fb_ckpt_gguf = {
    .format = "gguf",
    .detect = gguf_detect,
    .open = gguf_open,
    .next = gguf_next,
    .close = gguf_close,
};
