/*
 * safetensors: u64 little-endian N, then N bytes of JSON, then data.
 *
 *   {"__metadata__": {text: text}, name: {"dtype": text, "shape": [integers], "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the end of the JSON. A file is valid only if, sorted by offset, each tensor begins where the one before ended,
 * the first at 0, and the last ends with the file: no hole, no overlap, nothing after. All of that is proven before a byte of data
 * is read, so that a thousand tensors that name the same bytes are refused and not read a thousand times. Stricter than the Rust
 * library in three points, each of which it lets through: two tensors of one name, an entry written as a list, control characters
 * in a name. Source: the README and src/tensor.rs of huggingface/safetensors; tried against version 0.8.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/json_text.h"
#include "ckpt/order.h"
#include "ckpt/reader.h"

enum { LENGTH_BYTES = 8 };
static const uint64_t HEADER_BYTES_MAX = 100000000; /* MAX_HEADER_SIZE of the library */
static const uint64_t HEADER_BYTES_CAP = 1u << 30;  /* places in the header are kept in 32 bits */
enum { BATCH = 1024 };                              /* tensors of an extent */
static const uint64_t TENSORS_MAX = 2000000;        /* some 50 bytes of JSON each: what a header of the largest size can name */

typedef struct kind {
    const char *name;
    int32_t dtype;
    uint32_t bits;
} kind;

/* F4 and F6 are packed without gaps: the shape counts codes. F8_E4M3 is the variant without infinities. */
static const kind kinds[] = {
    {"BOOL", FB_BOOL, 8},
    {"U8", FB_U8, 8},
    {"I8", FB_I8, 8},
    {"U16", FB_U16, 16},
    {"I16", FB_I16, 16},
    {"U32", FB_U32, 32},
    {"I32", FB_I32, 32},
    {"U64", FB_U64, 64},
    {"I64", FB_I64, 64},
    {"F64", FB_F64, 64},
    {"F32", FB_F32, 32},
    {"F16", FB_F16, 16},
    {"BF16", FB_BF16, 16},
    {"C64", FB_C64, 64},
    {"F8_E4M3", FB_F8_E4M3FN, 8},
    {"F8_E5M2", FB_F8_E5M2, 8},
    {"F8_E8M0", FB_F8_E8M0, 8},
    {"F8_E4M3FNUZ", FB_F8_E4M3FNUZ, 8},
    {"F8_E5M2FNUZ", FB_F8_E5M2FNUZ, 8},
    {"F4", FB_F4_E2M1, 4},
    {"F6_E2M3", FB_F6_E2M3, 6},
    {"F6_E3M2", FB_F6_E3M2, 6},
};

/* Kept small: a hostile header can make two million of them. Texts are places in the header, which keeps them NUL-terminated. */
typedef struct entry {
    uint64_t begin, end; /* of the data, counted from the end of the header */
    uint64_t elements;
    uint64_t dims_at; /* in state.dims */
    uint32_t name, dtype_name;
    uint32_t ndim;
    int32_t kind; /* in kinds; -1: unknown */
} entry;

typedef struct state {
    fb_ckpt_file *file;
    const char *path;
    uint64_t base, size; /* where the bytes begin in the file, and how many there are */
    char *header;
    uint64_t header_bytes, data_at, data_bytes;
    fb_ckpt_json json;
    entry *entries;
    uint64_t count, room, count_max;
    uint64_t *dims;
    uint64_t dims_count, dims_room;
    uint32_t *order; /* entries by data offset */
    uint64_t next;
    fb_ckpt_tensor *batch; /* the tensors of the last extent */
    int seen_metadata;
    int64_t step; /* that __metadata__ names; -1: none */
} state;

static int safetensors_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    (void)file_bytes;
    return head_bytes > LENGTH_BYTES && head[LENGTH_BYTES] == '{';
}

/* ---- pieces of JSON --------------------------------------------------------------------------------------------------------- */

#define REFUSE(s, token, err, ...) FB_CKPT_REFUSE(&(s)->json, token, err, __VA_ARGS__)

static fb_status next_token(state *s, fb_json_token *token, fb_error *err)
{
    return fb_ckpt_json_next(&s->json, token, err);
}

static int take_size(const fb_json_token *token, uint64_t *value)
{
    if (token->type == FB_JSON_INT && token->i >= 0) *value = (uint64_t)token->i;
    else if (token->type == FB_JSON_UINT) *value = token->u;
    else return 0;
    return 1;
}

static fb_status read_dtype(state *s, entry *e, fb_error *err)
{
    fb_json_token token;
    fb_status status = next_token(s, &token, err);
    if (status != FB_OK) return status;
    if (token.type != FB_JSON_STRING) return REFUSE(s, &token, err, "read safetensors %s: a dtype must be a text", s->path);
    if ((status = fb_ckpt_json_keep(&s->json, &token, &e->dtype_name, err)) != FB_OK) return status;
    e->kind = -1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(s->header + e->dtype_name, kinds[i].name) == 0) e->kind = (int32_t)i;
    }
    return FB_OK;
}

static fb_status add_dim(state *s, uint64_t dim, fb_error *err)
{
    if (s->dims_count == s->dims_room) {
        uint64_t room = s->dims_room ? s->dims_room * 2 : 64;
        uint64_t *grown = fb_realloc(s->dims, (size_t)room * sizeof *grown);
        if (!grown)
            return fb_fail(err, FB_E_NOMEM, "read safetensors %s: no memory for %llu dimensions", s->path,
                           (unsigned long long)room);
        s->dims = grown;
        s->dims_room = room;
    }
    s->dims[s->dims_count++] = dim;
    return FB_OK;
}

static fb_status read_shape(state *s, entry *e, fb_error *err)
{
    fb_json_token token;
    fb_status status = next_token(s, &token, err);
    if (status != FB_OK) return status;
    if (token.type != FB_JSON_ARRAY) return REFUSE(s, &token, err, "read safetensors %s: a shape must be a list", s->path);
    e->dims_at = s->dims_count;
    for (;;) {
        uint64_t dim = 0;
        if ((status = next_token(s, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) return FB_OK;
        if (!take_size(&token, &dim)) {
            return REFUSE(s, &token, err,
                          "read safetensors %s: a dimension must be an integer from 0 to 2^64 - 1, written in digits", s->path);
        }
        if (e->ndim == FB_CKPT_DIMS_MAX) {
            (void)REFUSE(s, &token, err, "read safetensors %s: a shape of more than %d dimensions", s->path, FB_CKPT_DIMS_MAX);
            return fb_ckpt_limit(err);
        }
        if ((status = add_dim(s, dim, err)) != FB_OK) return status;
        e->ndim++;
    }
}

static fb_status read_offsets(state *s, entry *e, fb_error *err)
{
    fb_json_token token;
    uint64_t pair[2] = {0, 0};
    int count = 0;
    fb_status status = next_token(s, &token, err);
    if (status != FB_OK) return status;
    if (token.type != FB_JSON_ARRAY)
        return REFUSE(s, &token, err, "read safetensors %s: data_offsets must be a list of two", s->path);
    for (;;) {
        if ((status = next_token(s, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) break;
        if (count == 2) return REFUSE(s, &token, err, "read safetensors %s: data_offsets has more than two numbers", s->path);
        if (!take_size(&token, &pair[count])) {
            return REFUSE(s, &token, err, "read safetensors %s: an offset must be an integer from 0 to 2^64 - 1, written in digits",
                          s->path);
        }
        count++;
    }
    if (count != 2)
        return REFUSE(s, &token, err, "read safetensors %s: data_offsets must have two numbers, found %d", s->path, count);
    e->begin = pair[0];
    e->end = pair[1];
    return FB_OK;
}

/* ---- one entry -------------------------------------------------------------------------------------------------------------- */

static int multiply(uint64_t *value, uint64_t by)
{
    return !__builtin_mul_overflow(*value, by, value);
}

/* Does the shape fill exactly the bytes it names, and are they in the file? */
static fb_status check_entry(const state *s, entry *e, const fb_json_token *at, fb_error *err)
{
    const char *name = s->header + e->name;
    uint64_t bits;
    if (e->begin > e->end || e->end > s->data_bytes) {
        return REFUSE(s, at, err, "read safetensors %s: tensor %.200s names bytes %llu to %llu of %llu bytes of data", s->path,
                      name, (unsigned long long)e->begin, (unsigned long long)e->end, (unsigned long long)s->data_bytes);
    }
    e->elements = 1;
    for (uint32_t i = 0; i < e->ndim; i++) {
        if (!multiply(&e->elements, s->dims[e->dims_at + i])) {
            return REFUSE(s, at, err, "read safetensors %s: the shape of tensor %.200s has more than 2^64 elements", s->path, name);
        }
    }
    if (e->kind < 0) return FB_OK; /* of an unknown format nothing is known but where its bytes lie */
    bits = e->elements;
    if (!multiply(&bits, kinds[e->kind].bits)) {
        return REFUSE(s, at, err, "read safetensors %s: the shape of tensor %.200s has more than 2^64 bits", s->path, name);
    }
    if (bits % 8 != 0) {
        return REFUSE(s, at, err, "read safetensors %s: tensor %.200s of %s ends inside a byte", s->path, name,
                      kinds[e->kind].name);
    }
    if (bits / 8 != e->end - e->begin) {
        return REFUSE(s, at, err, "read safetensors %s: tensor %.200s takes %llu bytes by its shape, and names %llu", s->path, name,
                      (unsigned long long)(bits / 8), (unsigned long long)(e->end - e->begin));
    }
    return FB_OK;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

static fb_status read_field(state *s, entry *e, const fb_json_token *key, int *seen, fb_error *err)
{
    int field = fb_json_is(key, "dtype")          ? HAS_DTYPE
                : fb_json_is(key, "shape")        ? HAS_SHAPE
                : fb_json_is(key, "data_offsets") ? HAS_OFFSETS
                                                  : 0;
    if (field & *seen) {
        return REFUSE(s, key, err, "read safetensors %s: tensor %.200s has the same field twice", s->path, s->header + e->name);
    }
    *seen |= field;
    switch (field) {
    case HAS_DTYPE: return read_dtype(s, e, err);
    case HAS_SHAPE: return read_shape(s, e, err);
    case HAS_OFFSETS: return read_offsets(s, e, err);
    default: return fb_ckpt_json_skip(&s->json, err); /* a later release may add fields; the library passes over them too */
    }
}

static fb_status read_entry(state *s, entry *e, fb_error *err)
{
    fb_json_token token;
    int seen = 0;
    fb_status status = next_token(s, &token, err);
    if (status != FB_OK) return status;
    if (token.type != FB_JSON_OBJECT) {
        return REFUSE(s, &token, err, "read safetensors %s: the entry of tensor %.200s must be an object", s->path,
                      s->header + e->name);
    }
    for (;;) {
        if ((status = next_token(s, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_OBJECT_END) break;
        if ((status = read_field(s, e, &token, &seen, err)) != FB_OK) return status;
    }
    if (seen != (HAS_DTYPE | HAS_SHAPE | HAS_OFFSETS)) {
        return REFUSE(s, &token, err, "read safetensors %s: tensor %.200s has no %s", s->path, s->header + e->name,
                      !(seen & HAS_DTYPE)   ? "dtype"
                      : !(seen & HAS_SHAPE) ? "shape"
                                            : "data_offsets");
    }
    return check_entry(s, e, &token, err);
}

static int names_step(const fb_json_token *key)
{
    return fb_json_is(key, "step") || fb_json_is(key, "global_step") || fb_json_is(key, "iteration");
}

/* A decimal that a step can be, else -1: what stands there is free text. */
static int64_t step_of(const fb_json_token *text)
{
    int64_t value = 0;
    if (text->text_bytes == 0 || text->text_bytes > 15) return -1;
    for (size_t i = 0; i < text->text_bytes; i++) {
        if (text->text[i] < '0' || text->text[i] > '9') return -1;
        value = value * 10 + (text->text[i] - '0');
    }
    return value;
}

static fb_status read_metadata(state *s, const fb_json_token *key, fb_error *err)
{
    fb_json_token token;
    fb_status status;
    int is_step = 0;
    if (s->seen_metadata) return REFUSE(s, key, err, "read safetensors %s: __metadata__ stands there twice", s->path);
    s->seen_metadata = 1;
    if ((status = next_token(s, &token, err)) != FB_OK) return status;
    if (token.type != FB_JSON_OBJECT) return REFUSE(s, &token, err, "read safetensors %s: __metadata__ must be an object", s->path);
    for (;;) {
        if ((status = next_token(s, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_OBJECT_END) return FB_OK;
        if (token.type != FB_JSON_KEY && token.type != FB_JSON_STRING) {
            return REFUSE(s, &token, err, "read safetensors %s: __metadata__ may hold texts alone", s->path);
        }
        if (token.type == FB_JSON_STRING && is_step) s->step = step_of(&token);
        is_step = token.type == FB_JSON_KEY && names_step(&token);
    }
}

/* ---- the header ------------------------------------------------------------------------------------------------------------- */

/* The table grows as entries are parsed: a declared count never sizes memory. */
static fb_status add_entry(state *s, const fb_json_token *key, fb_error *err)
{
    entry *e;
    fb_status status;
    if (s->count == s->count_max) {
        (void)REFUSE(s, key, err, "read safetensors %s: more than %llu tensors", s->path, (unsigned long long)s->count_max);
        return fb_ckpt_limit(err);
    }
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 64;
        entry *grown = fb_realloc(s->entries, (size_t)room * sizeof *grown);
        if (!grown)
            return fb_fail(err, FB_E_NOMEM, "read safetensors %s: no memory for %llu tensors", s->path, (unsigned long long)room);
        s->entries = grown;
        s->room = room;
    }
    e = &s->entries[s->count];
    memset(e, 0, sizeof *e);
    if ((status = fb_ckpt_json_keep(&s->json, key, &e->name, err)) != FB_OK) return status;
    if ((status = read_entry(s, e, err)) != FB_OK) return status;
    s->count++;
    return FB_OK;
}

static fb_status parse_header(state *s, fb_error *err)
{
    fb_json_token token;
    fb_status status;
    fb_ckpt_json_begin(&s->json, "safetensors", s->path, s->header, (size_t)s->header_bytes, s->base + LENGTH_BYTES);
    if ((status = next_token(s, &token, err)) != FB_OK) return status;
    if (token.type != FB_JSON_OBJECT) return REFUSE(s, &token, err, "read safetensors %s: the header must be an object", s->path);
    for (;;) {
        if ((status = next_token(s, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_OBJECT_END) break;
        status = fb_json_is(&token, "__metadata__") ? read_metadata(s, &token, err) : add_entry(s, &token, err);
        if (status != FB_OK) return status;
    }
    return next_token(s, &token, err); /* the end, or a refusal of what follows */
}

static fb_status load_header(state *s, uint64_t bytes_max, fb_error *err)
{
    uint8_t length[LENGTH_BYTES];
    uint64_t size = s->size;
    fb_status status;
    if (size < LENGTH_BYTES) {
        return fb_fail_at(err, s->base + size, "read safetensors %s: %llu bytes are too short for the length of a header", s->path,
                          (unsigned long long)size);
    }
    if ((status = fb_ckpt_file_read(s->file, s->base, length, sizeof length, err)) != FB_OK) return status;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) s->header_bytes |= (uint64_t)length[i] << (8 * i);
    /* Compared with what is there before memory is asked for. */
    if (s->header_bytes > size - LENGTH_BYTES) {
        return fb_fail_at(err, s->base, "read safetensors %s: a header of %llu bytes is announced, %llu bytes follow", s->path,
                          (unsigned long long)s->header_bytes, (unsigned long long)(size - LENGTH_BYTES));
    }
    if (s->header_bytes > bytes_max) {
        return fb_fail(err, FB_E_LIMIT, "read safetensors %s: a header of %llu bytes, at most %llu are taken", s->path,
                       (unsigned long long)s->header_bytes, (unsigned long long)bytes_max);
    }
    s->data_at = s->base + LENGTH_BYTES + s->header_bytes;
    s->data_bytes = size - LENGTH_BYTES - s->header_bytes;
    s->header = fb_calloc((size_t)s->header_bytes + 1, 1);
    if (!s->header) {
        return fb_fail(err, FB_E_NOMEM, "read safetensors %s: no memory for a header of %llu bytes", s->path,
                       (unsigned long long)s->header_bytes);
    }
    return fb_ckpt_file_read(s->file, s->base + LENGTH_BYTES, s->header, (size_t)s->header_bytes, err);
}

/* ---- all entries together --------------------------------------------------------------------------------------------------- */

static int by_name(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    return strcmp(s->header + s->entries[a].name, s->header + s->entries[b].name);
}

static int by_offset(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    const entry *x = &s->entries[a], *y = &s->entries[b];
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return 0;
}

static fb_status check_names(state *s, fb_error *err)
{
    fb_ckpt_sort(s->order, s->count, by_name, s);
    for (uint64_t i = 1; i < s->count; i++) {
        const entry *e = &s->entries[s->order[i]];
        if (by_name(s, s->order[i - 1], s->order[i]) == 0) {
            return fb_fail_at(err, s->base + LENGTH_BYTES + e->name, "read safetensors %s: two tensors have the name %.200s",
                              s->path, s->header + e->name);
        }
    }
    return FB_OK;
}

static fb_status check_coverage(state *s, fb_error *err)
{
    uint64_t end = 0;
    fb_ckpt_sort(s->order, s->count, by_offset, s);
    for (uint64_t i = 0; i < s->count; i++) {
        const entry *e = &s->entries[s->order[i]];
        if (e->begin != end) {
            return fb_fail_at(err, s->data_at + e->begin,
                              "read safetensors %s: tensor %.200s %s: byte %llu of the data was due, found %llu", s->path,
                              s->header + e->name, e->begin < end ? "overlaps another" : "follows a hole", (unsigned long long)end,
                              (unsigned long long)e->begin);
        }
        end = e->end;
    }
    if (end != s->data_bytes) {
        return fb_fail_at(err, s->data_at + end, "read safetensors %s: %llu bytes follow the last tensor", s->path,
                          (unsigned long long)(s->data_bytes - end));
    }
    return FB_OK;
}

static fb_status check_table(state *s, fb_error *err)
{
    fb_status status;
    s->order = fb_calloc((size_t)s->count, sizeof *s->order);
    s->batch = fb_calloc(s->count < BATCH ? (size_t)s->count : BATCH, sizeof *s->batch);
    if (!s->order || !s->batch) {
        return fb_fail(err, FB_E_NOMEM, "read safetensors %s: no memory to sort %llu tensors", s->path,
                       (unsigned long long)s->count);
    }
    for (uint64_t i = 0; i < s->count; i++) s->order[i] = (uint32_t)i;
    if ((status = check_names(s, err)) != FB_OK) return status;
    return check_coverage(s, err);
}

/* ---- the reader ------------------------------------------------------------------------------------------------------------- */

static void safetensors_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    fb_free(s->header);
    fb_free(s->entries);
    fb_free(s->dims);
    fb_free(s->order);
    fb_free(s->batch);
    fb_free(s);
}

static fb_status safetensors_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    fb_ckpt_file *file = range->file;
    uint64_t bytes_max = options->header_bytes_max ? options->header_bytes_max : HEADER_BYTES_MAX;
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read safetensors %s: no memory", file->path);
    s->file = file;
    s->path = file->path;
    s->base = range->offset_bytes;
    s->size = range->bytes;
    s->step = -1;
    s->count_max = options->tensors_max ? options->tensors_max : TENSORS_MAX;
    if (s->count_max > UINT32_MAX) s->count_max = UINT32_MAX;
    status = load_header(s, bytes_max < HEADER_BYTES_CAP ? bytes_max : HEADER_BYTES_CAP, err);
    if (status == FB_OK) status = parse_header(s, err);
    if (status == FB_OK) status = check_table(s, err);
    if (status != FB_OK) {
        safetensors_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

static void describe(const state *s, const entry *e, uint64_t extent_at, fb_ckpt_tensor *tensor)
{
    memset(tensor, 0, sizeof *tensor);
    tensor->name = s->header + e->name;
    tensor->dtype_name = s->header + e->dtype_name;
    tensor->dtype = e->kind < 0 ? 0 : kinds[e->kind].dtype;
    tensor->ndim = (int32_t)e->ndim;
    tensor->shape = s->dims + e->dims_at;
    tensor->elements = e->elements;
    tensor->offset_bytes = e->begin - extent_at;
}

/* Tensors follow each other without a hole, so any number of them is one run of bytes: many at once,
 * so that small ones cost little. */
static fb_status safetensors_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    const entry *first, *last;
    uint64_t count = s->count - s->next < BATCH ? s->count - s->next : BATCH;
    (void)err;
    if (count == 0) return FB_E_NOTFOUND;
    first = &s->entries[s->order[s->next]];
    last = &s->entries[s->order[s->next + count - 1]];
    for (uint64_t i = 0; i < count; i++) describe(s, &s->entries[s->order[s->next + i]], first->begin, &s->batch[i]);
    s->next += count;
    memset(extent, 0, sizeof *extent);
    extent->name = s->batch[0].name;
    extent->encoding = FB_CKPT_STORED;
    extent->offset_bytes = s->data_at + first->begin;
    extent->bytes = extent->stored_bytes = last->end - first->begin;
    extent->tensors = s->batch;
    extent->tensor_count = count;
    return FB_OK;
}

static int safetensors_remark(void *state_, uint64_t i, fb_ckpt_remark *remark)
{
    const state *s = state_;
    if (i > 0 || s->step < 0) return 0;
    remark->kind = FB_CKPT_REMARK_FACT;
    remark->name = FB_CKPT_FACT_STEP;
    remark->text = "";
    remark->value = (double)s->step;
    return 1;
}

const fb_ckpt_reader fb_ckpt_safetensors = {
    .format = "safetensors",
    .detect = safetensors_detect,
    .open = safetensors_open,
    .next = safetensors_next,
    .remark = safetensors_remark,
    .close = safetensors_close,
};
