/* The pickle `.metadata`, read into tensors, chunks and places. */
#include "ckpt/dcp.h"

#include <string.h>

#include "base/alloc.h"
#include "ckpt/dcp_inside.h"
#include "ckpt/moment_name.h"
#include "ckpt/order.h"
#include "ckpt/pickle.h"

enum { NAME_BYTES_MAX = 4096, FILE_NAME_BYTES_MAX = 1024 };
static const uint64_t COUNT_MAX = 20000000; /* tensors, chunks or places; each costs some 60 bytes of the file */
static const uint64_t WORK_MAX = 2000000000;

typedef struct source {
    fb_dcp *dcp;
    const fb_pickle *pickle;
    fb_error *err;
} source;

#define REFUSE(s, node, ...) fb_fail_at((s)->err, fb_pickle_at((s)->pickle, node), __VA_ARGS__)

fb_status fb_dcp_no_memory(const fb_dcp *dcp, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "read %s: no memory for its table", dcp->path);
}

fb_status fb_dcp_work(fb_dcp *dcp, uint64_t steps, fb_error *err)
{
    dcp->work += steps;
    if (dcp->work <= WORK_MAX) return FB_OK;
    return fb_fail(err, FB_E_LIMIT, "read %s: its chunks lie in such disorder that comparing them would take too long", dcp->path);
}

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

/* A field of an object whose class keeps its fields in a dictionary. 0: not there, or None. */
static fb_node field(const source *s, fb_node object, const char *name)
{
    fb_node state = fb_pickle_kind(s->pickle, object) == FB_PICKLE_CALL ? fb_pickle_state(s->pickle, object) : object;
    fb_node value = fb_pickle_get(s->pickle, state, name);
    return fb_pickle_kind(s->pickle, value) == FB_PICKLE_NONE ? 0 : value;
}

/* 1 if the object is of a class of this name, in whatever module a release keeps it. */
static int is_a(const source *s, fb_node object, const char *class_name)
{
    fb_node class_node = fb_pickle_kind(s->pickle, object) == FB_PICKLE_CALL ? fb_pickle_child(s->pickle, object, 0) : 0;
    size_t want = strlen(class_name);
    uint64_t bytes = 0;
    const char *text;
    if (fb_pickle_kind(s->pickle, class_node) != FB_PICKLE_GLOBAL) return 0;
    text = fb_pickle_text(s->pickle, class_node, &bytes);
    return bytes > want && text[bytes - want - 1] == ' ' && memcmp(text + bytes - want, class_name, want) == 0;
}

static fb_status take_text(source *s, fb_node node, const char *what, uint64_t max, const char **out)
{
    uint64_t bytes = 0;
    const char *text;
    if (fb_pickle_kind(s->pickle, node) != FB_PICKLE_TEXT) return REFUSE(s, node, "read %s: %s must be a text", s->dcp->path, what);
    text = fb_pickle_text(s->pickle, node, &bytes);
    if (bytes > max) {
        return fb_fail(s->err, FB_E_LIMIT, "read %s: %s of %llu bytes, at most %llu are taken", s->dcp->path, what,
                       (unsigned long long)bytes, (unsigned long long)max);
    }
    for (uint64_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return REFUSE(s, node, "read %s: %s holds the control character 0x%02x", s->dcp->path, what,
                          (unsigned)(unsigned char)text[i]);
        }
    }
    *out = fb_pool_text(&s->dcp->pool, text, (size_t)bytes);
    return *out ? FB_OK : fb_dcp_no_memory(s->dcp, s->err);
}

/* torch.Size, a tuple or a list: whole numbers, none negative. */
static fb_status take_numbers(source *s, fb_node node, const char *what, const uint64_t **out, int32_t *count)
{
    fb_node list = node;
    uint64_t *numbers, n;
    if (fb_pickle_kind(s->pickle, list) == FB_PICKLE_CALL)
        list = fb_pickle_child(s->pickle, fb_pickle_child(s->pickle, list, 1), 0);
    if (fb_pickle_kind(s->pickle, list) != FB_PICKLE_TUPLE && fb_pickle_kind(s->pickle, list) != FB_PICKLE_LIST) {
        return REFUSE(s, node, "read %s: %s must be a list of numbers", s->dcp->path, what);
    }
    n = fb_pickle_children(s->pickle, list);
    if (n > FB_CKPT_DIMS_MAX) {
        return fb_fail(s->err, FB_E_LIMIT, "read %s: %s has %llu dimensions, at most %d are taken", s->dcp->path, what,
                       (unsigned long long)n, FB_CKPT_DIMS_MAX);
    }
    numbers = fb_pool_take(&s->dcp->pool, ((size_t)n + 1) * sizeof *numbers); /* never of no size, so that it is never NULL */
    if (!numbers) return fb_dcp_no_memory(s->dcp, s->err);
    for (uint64_t i = 0; i < n; i++) {
        fb_node item = fb_pickle_child(s->pickle, list, i);
        if (fb_pickle_kind(s->pickle, item) != FB_PICKLE_INT || fb_pickle_int(s->pickle, item) < 0) {
            return REFUSE(s, node, "read %s: %s must hold whole numbers from 0 on", s->dcp->path, what);
        }
        numbers[i] = (uint64_t)fb_pickle_int(s->pickle, item);
    }
    *out = numbers;
    *count = (int32_t)n;
    return FB_OK;
}

static int grow(void **list, uint64_t *room, uint64_t count, size_t size)
{
    uint64_t wanted = *room ? *room * 2 : 64;
    void *grown;
    if (count < *room) return 1;
    grown = fb_realloc(*list, (size_t)wanted * size);
    if (!grown) return 0;
    *list = grown;
    *room = wanted;
    return 1;
}

static int product(const uint64_t *dims, int32_t ndim, uint64_t *out)
{
    *out = 1;
    for (int32_t i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(*out, dims[i], out)) return 0;
    }
    return 1;
}

/* ---- state_dict_metadata ---------------------------------------------------------------------------------------------------- */

typedef struct number_format {
    const char *name;
    int32_t dtype;
} number_format;

static const number_format formats[] = {
    {"float32", FB_F32},
    {"bfloat16", FB_BF16},
    {"float16", FB_F16},
    {"float64", FB_F64},
    {"int64", FB_I64},
    {"int32", FB_I32},
    {"int16", FB_I16},
    {"int8", FB_I8},
    {"uint8", FB_U8},
    {"uint16", FB_U16},
    {"uint32", FB_U32},
    {"uint64", FB_U64},
    {"bool", FB_BOOL},
    {"complex64", FB_C64},
    {"float8_e4m3fn", FB_F8_E4M3FN},
    {"float8_e5m2", FB_F8_E5M2},
    {"float8_e4m3fnuz", FB_F8_E4M3FNUZ},
    {"float8_e5m2fnuz", FB_F8_E5M2FNUZ},
    {"float8_e8m0fnu", FB_F8_E8M0},
};

/* TensorProperties keeps its fields as a tuple, of which the number format is the first. */
static fb_status take_dtype(source *s, fb_node object, dcp_tensor *t)
{
    fb_node properties = field(s, object, "properties");
    fb_node state = fb_pickle_state(s->pickle, properties);
    fb_node dtype = fb_pickle_kind(s->pickle, state) == FB_PICKLE_DICT ? fb_pickle_get(s->pickle, state, "dtype")
                                                                       : fb_pickle_child(s->pickle, state, 0);
    uint64_t bytes = 0;
    const char *text;
    if (fb_pickle_kind(s->pickle, dtype) != FB_PICKLE_GLOBAL) {
        return REFUSE(s, object, "read %s: tensor %.200s has no number format", s->dcp->path, t->fqn);
    }
    text = fb_pickle_text(s->pickle, dtype, &bytes);
    for (const char *blank = memchr(text, ' ', (size_t)bytes); blank; blank = NULL) {
        bytes -= (uint64_t)(blank + 1 - text);
        text = blank + 1;
    }
    t->dtype_name = fb_pool_text(&s->dcp->pool, text, bytes < 64 ? (size_t)bytes : 64);
    if (!t->dtype_name) return fb_dcp_no_memory(s->dcp, s->err);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, t->dtype_name) == 0) t->dtype = formats[i].dtype;
    }
    return FB_OK;
}

static fb_status add_chunk(source *s, fb_node object, const dcp_tensor *t)
{
    fb_dcp *d = s->dcp;
    dcp_chunk *c;
    int32_t starts = 0, sizes = 0;
    fb_status status;
    if (d->chunk_count == COUNT_MAX) return fb_fail(s->err, FB_E_LIMIT, "read %s: too many chunks", d->path);
    if (!grow((void **)&d->chunks, &d->chunk_room, d->chunk_count, sizeof *d->chunks)) return fb_dcp_no_memory(d, s->err);
    c = &d->chunks[d->chunk_count];
    memset(c, 0, sizeof *c);
    if ((status = take_numbers(s, field(s, object, "offsets"), "the place of a chunk", &c->start, &starts)) != FB_OK) return status;
    if ((status = take_numbers(s, field(s, object, "sizes"), "the size of a chunk", &c->size, &sizes)) != FB_OK) return status;
    if (starts != t->ndim || sizes != t->ndim) {
        return REFUSE(s, object, "read %s: a chunk of tensor %.200s has %d dimensions, the tensor has %d", d->path, t->fqn,
                      starts != t->ndim ? starts : sizes, t->ndim);
    }
    for (int32_t i = 0; i < t->ndim; i++) {
        if (c->start[i] > t->shape[i] || c->size[i] > t->shape[i] - c->start[i]) {
            return REFUSE(s, object, "read %s: a chunk of tensor %.200s leaves it in dimension %d: %llu + %llu of %llu", d->path,
                          t->fqn, i, (unsigned long long)c->start[i], (unsigned long long)c->size[i],
                          (unsigned long long)t->shape[i]);
        }
    }
    (void)product(c->size, t->ndim, &c->elements); /* not more than the tensor has */
    d->chunk_count++;
    return FB_OK;
}

static fb_status take_tensor(source *s, fb_node object, dcp_tensor *t)
{
    fb_node chunks = field(s, object, "chunks");
    fb_status status;
    if ((status = take_numbers(s, field(s, object, "size"), "the size of a tensor", &t->shape, &t->ndim)) != FB_OK) return status;
    if (!product(t->shape, t->ndim, &t->elements)) {
        return REFUSE(s, object, "read %s: the size of tensor %.200s has more than 2^64 elements", s->dcp->path, t->fqn);
    }
    if ((status = take_dtype(s, object, t)) != FB_OK) return status;
    if (fb_pickle_kind(s->pickle, chunks) != FB_PICKLE_LIST) {
        return REFUSE(s, object, "read %s: tensor %.200s has no list of chunks", s->dcp->path, t->fqn);
    }
    t->first_chunk = s->dcp->chunk_count;
    t->chunk_count = fb_pickle_children(s->pickle, chunks);
    for (uint64_t i = 0; i < t->chunk_count; i++) {
        if ((status = add_chunk(s, fb_pickle_child(s->pickle, chunks, i), t)) != FB_OK) return status;
    }
    return FB_OK;
}

static fb_status add_tensor(source *s, fb_node key, fb_node object)
{
    fb_dcp *d = s->dcp;
    dcp_tensor *t;
    fb_status status;
    if (d->tensor_count == COUNT_MAX) return fb_fail(s->err, FB_E_LIMIT, "read %s: too many tensors", d->path);
    if (!grow((void **)&d->tensors, &d->tensor_room, d->tensor_count, sizeof *d->tensors)) return fb_dcp_no_memory(d, s->err);
    t = &d->tensors[d->tensor_count];
    memset(t, 0, sizeof *t);
    if ((status = take_text(s, key, "the name of a tensor", NAME_BYTES_MAX, &t->fqn)) != FB_OK) return status;
    t->name = fb_moment_name(&d->pool, t->fqn);
    if (!t->name) return fb_dcp_no_memory(d, s->err);
    if (is_a(s, object, "BytesStorageMetadata")) {
        t->is_blob = 1;
    } else if (is_a(s, object, "TensorStorageMetadata")) {
        if ((status = take_tensor(s, object, t)) != FB_OK) return status;
    } else {
        return REFUSE(s, object, "read %s: %.200s is neither a tensor nor a blob", d->path, t->fqn);
    }
    d->tensor_count++;
    return FB_OK;
}

static int by_name(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_dcp *d = ctx;
    return strcmp(d->tensors[a].fqn, d->tensors[b].fqn);
}

static fb_status take_tensors(source *s, fb_node root)
{
    fb_dcp *d = s->dcp;
    fb_node all = field(s, root, "state_dict_metadata");
    fb_status status;
    if (fb_pickle_kind(s->pickle, all) != FB_PICKLE_DICT) {
        return REFUSE(s, root, "read %s: it has no state_dict_metadata", d->path);
    }
    for (uint64_t i = 0, n = fb_pickle_children(s->pickle, all); i + 1 < n; i += 2) {
        status = add_tensor(s, fb_pickle_child(s->pickle, all, i), fb_pickle_child(s->pickle, all, i + 1));
        if (status != FB_OK) return status;
    }
    d->by_name = fb_calloc((size_t)d->tensor_count + 1, sizeof *d->by_name);
    if (!d->by_name) return fb_dcp_no_memory(d, s->err);
    for (uint64_t i = 0; i < d->tensor_count; i++) d->by_name[i] = (uint32_t)i;
    fb_ckpt_sort(d->by_name, d->tensor_count, by_name, d);
    for (uint64_t i = 1; i < d->tensor_count; i++) {
        if (by_name(d, d->by_name[i - 1], d->by_name[i]) != 0) continue;
        return REFUSE(s, all, "read %s: two tensors have the name %.200s", d->path, d->tensors[d->by_name[i]].fqn);
    }
    return FB_OK;
}

/* ---- storage_data ----------------------------------------------------------------------------------------------------------- */

static dcp_tensor *find_tensor(fb_dcp *d, const char *text, uint64_t bytes)
{
    uint64_t low = 0, high = d->tensor_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        dcp_tensor *t = &d->tensors[d->by_name[middle]];
        int order = strncmp(t->fqn, text, (size_t)bytes);
        if (order == 0 && strlen(t->fqn) == bytes) return t; /* a text with a NUL in it compares equal to its begin */
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static int starts_at(const source *s, const dcp_chunk *c, int32_t ndim, fb_node place)
{
    fb_node list = place;
    if (fb_pickle_kind(s->pickle, list) == FB_PICKLE_CALL)
        list = fb_pickle_child(s->pickle, fb_pickle_child(s->pickle, list, 1), 0);
    if (fb_pickle_children(s->pickle, list) != (uint64_t)ndim) return 0;
    for (int32_t i = 0; i < ndim; i++) {
        fb_node item = fb_pickle_child(s->pickle, list, (uint64_t)i);
        if (fb_pickle_kind(s->pickle, item) != FB_PICKLE_INT || fb_pickle_int(s->pickle, item) < 0) return 0;
        if ((uint64_t)fb_pickle_int(s->pickle, item) != c->start[i]) return 0;
    }
    return 1;
}

/* The chunk that an entry is about. `index` is a hint of where it stands in the list; older releases do not write it. */
static fb_status find_chunk(source *s, fb_node key, const dcp_tensor *t, uint32_t *out)
{
    fb_node place = field(s, key, "offset"), hint = field(s, key, "index");
    uint64_t i = fb_pickle_kind(s->pickle, hint) == FB_PICKLE_INT ? (uint64_t)fb_pickle_int(s->pickle, hint) : 0;
    dcp_chunk *chunks = s->dcp->chunks + t->first_chunk;
    fb_status status;
    if (!place && t->chunk_count == 1) i = 0;
    else if (!place)
        return REFUSE(s, key, "read %s: an entry of tensor %.200s does not say which chunk it is", s->dcp->path, t->fqn);
    else if (i >= t->chunk_count || !starts_at(s, &chunks[i], t->ndim, place)) {
        for (i = 0; i < t->chunk_count && !starts_at(s, &chunks[i], t->ndim, place); i++) continue;
        if ((status = fb_dcp_work(s->dcp, i + 1, s->err)) != FB_OK) return status;
    }
    if (i == t->chunk_count) {
        return REFUSE(s, key, "read %s: a chunk of tensor %.200s is stored that the tensor does not have", s->dcp->path, t->fqn);
    }
    chunks[i].stored++;
    *out = (uint32_t)(t->first_chunk + i);
    return FB_OK;
}

/* A name that stays in the folder, whatever system reads it. */
static int is_plain(const char *name)
{
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return 0;
    return strpbrk(name, "/\\:") == NULL;
}

static fb_status take_file(source *s, fb_node info, dcp_place *p)
{
    fb_node path = field(s, info, "relative_path"), offset = field(s, info, "offset"), length = field(s, info, "length");
    fb_node transforms = field(s, info, "transform_descriptors");
    fb_status status = take_text(s, path, "the name of a file", FILE_NAME_BYTES_MAX, &p->file);
    if (status != FB_OK) return status;
    if (!is_plain(p->file)) {
        return REFUSE(s, path, "read %s: %.200s is not the name of a file in this folder", s->dcp->path, p->file);
    }
    if (fb_pickle_kind(s->pickle, offset) != FB_PICKLE_INT || fb_pickle_kind(s->pickle, length) != FB_PICKLE_INT ||
        fb_pickle_int(s->pickle, offset) < 0 || fb_pickle_int(s->pickle, length) < 0) {
        return REFUSE(s, info, "read %s: an entry has no offset and length", s->dcp->path);
    }
    p->offset_bytes = (uint64_t)fb_pickle_int(s->pickle, offset);
    p->bytes = (uint64_t)fb_pickle_int(s->pickle, length);
    p->transformed =
        transforms && (fb_pickle_kind(s->pickle, transforms) != FB_PICKLE_LIST || fb_pickle_children(s->pickle, transforms) > 0);
    return FB_OK;
}

static fb_status add_place(source *s, fb_node key, fb_node info)
{
    fb_dcp *d = s->dcp;
    fb_node name = field(s, key, "fqn");
    uint64_t bytes = 0;
    const char *text = fb_pickle_kind(s->pickle, name) == FB_PICKLE_TEXT ? fb_pickle_text(s->pickle, name, &bytes) : NULL;
    dcp_tensor *t = text ? find_tensor(d, text, bytes) : NULL;
    dcp_place *p;
    fb_status status;
    if (!t) {
        return REFUSE(s, key, "read %s: bytes are stored for %.*s, which is no tensor of this checkpoint", d->path,
                      (int)(bytes < 200 ? bytes : 200), text ? text : "");
    }
    if (d->place_count == COUNT_MAX) return fb_fail(s->err, FB_E_LIMIT, "read %s: too many entries", d->path);
    if (!grow((void **)&d->places, &d->place_room, d->place_count, sizeof *d->places)) return fb_dcp_no_memory(d, s->err);
    p = &d->places[d->place_count];
    memset(p, 0, sizeof *p);
    p->tensor = (uint32_t)(t - d->tensors);
    if (t->is_blob) t->stored++;
    else if ((status = find_chunk(s, key, t, &p->chunk)) != FB_OK) return status;
    if ((status = take_file(s, info, p)) != FB_OK) return status;
    d->place_count++;
    return FB_OK;
}

static fb_status take_places(source *s, fb_node root)
{
    fb_node all = field(s, root, "storage_data");
    fb_status status;
    if (fb_pickle_kind(s->pickle, all) != FB_PICKLE_DICT) return REFUSE(s, root, "read %s: it has no storage_data", s->dcp->path);
    for (uint64_t i = 0, n = fb_pickle_children(s->pickle, all); i + 1 < n; i += 2) {
        status = add_place(s, fb_pickle_child(s->pickle, all, i), fb_pickle_child(s->pickle, all, i + 1));
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

/* ---- the table -------------------------------------------------------------------------------------------------------------- */

void fb_dcp_free(fb_dcp *d)
{
    if (!d) return;
    fb_free(d->tensors);
    fb_free(d->chunks);
    fb_free(d->places);
    fb_free(d->by_name);
    fb_free(d->order);
    fb_free(d->slices);
    fb_free(d->files);
    fb_pool_release(&d->pool);
    fb_free(d);
}

static fb_status take_all(fb_dcp *d, const fb_pickle *pickle, fb_error *err)
{
    source s = {d, pickle, err};
    fb_node root = fb_pickle_root(pickle);
    fb_status status;
    if (!is_a(&s, root, "Metadata")) {
        return REFUSE(&s, root, "read %s: it must hold the Metadata of torch.distributed.checkpoint", d->path);
    }
    if ((status = take_tensors(&s, root)) != FB_OK) return status;
    return take_places(&s, root);
}

fb_status fb_dcp_parse(fb_dcp **out, const uint8_t *data, uint64_t bytes, const char *path, fb_error *err)
{
    fb_dcp *d = fb_calloc(1, sizeof *d);
    fb_pickle *pickle = NULL;
    uint64_t used = 0;
    fb_status status;
    *out = NULL;
    if (!d) return fb_fail(err, FB_E_NOMEM, "read %s: no memory", path);
    d->path = path;
    status = fb_pickle_parse(&pickle, data, bytes, 0, path, NULL, &used, err);
    if (status == FB_OK && used != bytes) {
        status =
            fb_fail_at(err, used, "read %s: %llu bytes follow the end of the pickle", path, (unsigned long long)(bytes - used));
    }
    if (status == FB_OK) status = take_all(d, pickle, err);
    fb_pickle_free(pickle);
    if (status == FB_OK) status = fb_dcp_check(d, err);
    if (status != FB_OK) {
        fb_dcp_free(d);
        return status;
    }
    d->path = NULL; /* it was lent for this call */
    *out = d;
    return FB_OK;
}

uint64_t fb_dcp_files(const fb_dcp *d)
{
    return d->file_count;
}

const fb_dcp_file *fb_dcp_file_at(const fb_dcp *d, uint64_t i)
{
    return i < d->file_count ? &d->files[i] : NULL;
}

const fb_dcp_file *fb_dcp_file_find(const fb_dcp *d, const char *name)
{
    uint64_t low = 0, high = d->file_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(d->files[middle].name, name);
        if (order == 0) return &d->files[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}
