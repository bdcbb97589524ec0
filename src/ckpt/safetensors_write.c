/* A safetensors file, written aside and put in place whole. */
#include "ckpt/safetensors_write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash_stream.h"
#include "base/json_write.h"
#include "ckpt/order.h"

enum { ALIGN_BYTES = 8, TEMP_NAMES_MAX = 100, NAME_BYTES_MAX = 200 };

typedef struct kind {
    const char *name;
    int32_t dtype;
} kind;

static const kind kinds[] = {
    {"BOOL", FB_BOOL},
    {"U8", FB_U8},
    {"I8", FB_I8},
    {"U16", FB_U16},
    {"I16", FB_I16},
    {"U32", FB_U32},
    {"I32", FB_I32},
    {"U64", FB_U64},
    {"I64", FB_I64},
    {"F64", FB_F64},
    {"F32", FB_F32},
    {"F16", FB_F16},
    {"BF16", FB_BF16},
    {"C64", FB_C64},
    {"F8_E4M3", FB_F8_E4M3FN},
    {"F8_E5M2", FB_F8_E5M2},
    {"F8_E8M0", FB_F8_E8M0},
    {"F8_E4M3FNUZ", FB_F8_E4M3FNUZ},
    {"F8_E5M2FNUZ", FB_F8_E5M2FNUZ},
    {"F4", FB_F4_E2M1},
};

const char *fb_safetensors_dtype(int32_t dtype)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].dtype == dtype) return kinds[i].name;
    }
    return NULL;
}

/* ---- what was handed over ---------------------------------------------------------------------------------------------------- */

typedef struct order {
    const fb_st_tensor *tensors;
    uint32_t *by; /* [n] */
    uint32_t n;
} order;

static int by_name(const void *ctx, uint32_t a, uint32_t b)
{
    const order *o = ctx;
    return strcmp(o->tensors[a].name, o->tensors[b].name);
}

/* Two elements, because an F4 takes half a byte. */
static int by_size(const void *ctx, uint32_t a, uint32_t b)
{
    const order *o = ctx;
    uint64_t x = fb_dtype_bytes(o->tensors[a].dtype, 2), y = fb_dtype_bytes(o->tensors[b].dtype, 2);
    if (x != y) return x > y ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int is_plain(const char *name)
{
    if (!name || !name[0]) return 0;
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) return 0;
    }
    return strcmp(name, "__metadata__") != 0;
}

static fb_status check_tensor(const fb_st_tensor *tensor, const char *file, fb_error *err)
{
    uint64_t count = 1, bytes;
    if (!is_plain(tensor->name)) {
        return fb_fail(err, FB_E_USAGE, "write %s: \"%.100s\" cannot be the name of a tensor", file,
                       tensor->name ? tensor->name : "");
    }
    if (!fb_safetensors_dtype(tensor->dtype)) {
        return fb_fail(err, FB_E_DTYPE, "write %s: tensor %.200s: safetensors has no format number %d", file, tensor->name,
                       (int)tensor->dtype);
    }
    if (tensor->ndim < 0 || tensor->ndim > FB_DIMS_MAX) {
        return fb_fail(err, FB_E_USAGE, "write %s: tensor %.200s: %d dimensions, from 0 to %d are taken", file, tensor->name,
                       (int)tensor->ndim, (int)FB_DIMS_MAX);
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(count, (uint64_t)tensor->shape[i], &count)) {
            return fb_fail(err, FB_E_USAGE, "write %s: tensor %.200s: dimension %d is %lld", file, tensor->name, (int)i,
                           (long long)tensor->shape[i]);
        }
    }
    if (tensor->dtype == FB_F4_E2M1 && count % 2 != 0) {
        return fb_fail(err, FB_E_USAGE, "write %s: tensor %.200s ends inside a byte", file, tensor->name);
    }
    bytes = fb_dtype_bytes(tensor->dtype, count);
    if (bytes != tensor->bytes || (count > 0 && (bytes == 0 || !tensor->data))) {
        return fb_fail(err, FB_E_USAGE, "write %s: tensor %.200s takes %llu bytes by its shape, handed over are %llu", file,
                       tensor->name, (unsigned long long)bytes, (unsigned long long)tensor->bytes);
    }
    return FB_OK;
}

/* On FB_OK o->by has the tensors in the order in which they are written. */
static fb_status check_tensors(order *o, const char *file, fb_error *err)
{
    fb_status status = FB_OK;
    for (uint32_t i = 0; i < o->n && status == FB_OK; i++) status = check_tensor(&o->tensors[i], file, err);
    if (status != FB_OK) return status;
    for (uint32_t i = 0; i < o->n; i++) o->by[i] = i;
    fb_ckpt_sort(o->by, o->n, by_name, o);
    for (uint32_t i = 1; i < o->n; i++) {
        if (by_name(o, o->by[i - 1], o->by[i]) == 0) {
            return fb_fail(err, FB_E_EXISTS, "write %s: two tensors have the name %.200s", file, o->tensors[o->by[i]].name);
        }
    }
    fb_ckpt_sort(o->by, o->n, by_size, o);
    return FB_OK;
}

/* ---- the header -------------------------------------------------------------------------------------------------------------- */

static void add_metadata(fb_json *json, const fb_pair *metadata, size_t count)
{
    if (count == 0) return;
    fb_json_key(json, "__metadata__");
    fb_json_object_begin(json);
    for (size_t i = 0; i < count; i++) {
        if (metadata[i].key && metadata[i].value) fb_json_key_string(json, metadata[i].key, metadata[i].value);
    }
    fb_json_object_end(json);
}

static fb_status make_header(const order *o, const char *file, const fb_pair *metadata, size_t metadata_count, fb_json *json,
                             fb_error *err)
{
    uint64_t at = 0;
    fb_json_object_begin(json);
    add_metadata(json, metadata, metadata_count);
    for (uint32_t i = 0; i < o->n; i++) {
        const fb_st_tensor *tensor = &o->tensors[o->by[i]];
        if (at + tensor->bytes < at || at + tensor->bytes > INT64_MAX) {
            return fb_fail(err, FB_E_LIMIT, "write %s: its tensors take more than 2^63 bytes together", file);
        }
        fb_json_key(json, tensor->name);
        fb_json_object_begin(json);
        fb_json_key_string(json, "dtype", fb_safetensors_dtype(tensor->dtype));
        fb_json_key(json, "shape");
        fb_json_array_begin(json);
        for (int32_t d = 0; d < tensor->ndim; d++) fb_json_int(json, tensor->shape[d]);
        fb_json_array_end(json);
        fb_json_key(json, "data_offsets");
        fb_json_array_begin(json);
        fb_json_uint(json, at);
        at += tensor->bytes;
        fb_json_uint(json, at);
        fb_json_array_end(json);
        fb_json_object_end(json);
    }
    fb_json_object_end(json);
    return fb_json_finish(json, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------------------- */

typedef struct sink {
    const fb_os *os;
    int fd;
    int64_t status; /* 0, or the negative errno that ended it */
    fb_hash_stream *hash;
} sink;

static void put(sink *s, const void *data, size_t bytes)
{
    if (s->status != 0 || bytes == 0) return;
    fb_hash_stream_add(s->hash, data, bytes);
    s->status = fb_os_write_all(s->os, s->fd, data, bytes);
}

static void put_all(sink *s, const order *o, const fb_json *json)
{
    static const char spaces[ALIGN_BYTES] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};
    size_t padding = (ALIGN_BYTES - json->used % ALIGN_BYTES) % ALIGN_BYTES;
    uint64_t header_bytes = json->used + padding;
    uint8_t length[8];
    for (unsigned i = 0; i < sizeof length; i++) length[i] = (uint8_t)(header_bytes >> (8 * i));
    put(s, length, sizeof length);
    put(s, fb_json_text(json), json->used);
    put(s, spaces, padding);
    for (uint32_t i = 0; i < o->n; i++) put(s, o->tensors[o->by[i]].data, (size_t)o->tensors[o->by[i]].bytes);
}

/* Leftovers of a crash may hold the first names tried. */
static fb_status open_aside(sink *s, const char *folder, const char *name, char temp[FB_OS_PATH_MAX], fb_error *err)
{
    char file[NAME_BYTES_MAX + 64];
    int64_t fd = -1;
    for (int i = 0; i < TEMP_NAMES_MAX; i++) {
        fb_status status;
        (void)snprintf(file, sizeof file, ".%s.tmp-%lld-%d", name, (long long)s->os->getpid(s->os->ctx), i);
        if ((status = fb_os_join(temp, FB_OS_PATH_MAX, folder, file, err)) != FB_OK) return status;
        fd = fb_os_open(s->os, temp, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd != -EEXIST) break;
    }
    if (fd < 0) return fb_fail_os(err, (int)-fd, "create %s", temp);
    s->fd = (int)fd;
    return FB_OK;
}

static fb_status write_file(sink *s, const char *folder, const char *name, const order *o, const fb_json *json, fb_error *err)
{
    char temp[FB_OS_PATH_MAX], path[FB_OS_PATH_MAX];
    int64_t closed;
    fb_status status = fb_os_join(path, sizeof path, folder, name, err);
    if (status == FB_OK) status = open_aside(s, folder, name, temp, err);
    if (status != FB_OK) return status;
    put_all(s, o, json);
    if (s->status == 0) s->status = fb_os_fsync(s->os, s->fd);
    closed = s->os->close(s->os->ctx, s->fd);
    if (s->status == 0 && closed != -EINTR) s->status = closed; /* some network file systems tell of a full disk only here */
    if (s->status == 0) s->status = s->os->rename(s->os->ctx, temp, path);
    if (s->status < 0) {
        (void)s->os->unlink(s->os->ctx, temp);
        return fb_fail_os(err, (int)-s->status, "write %s", path);
    }
    s->status = fb_os_sync_dir(s->os, folder[0] ? folder : ".");
    if (s->status < 0) return fb_fail_os(err, (int)-s->status, "sync folder %s after writing %s", folder, name);
    return FB_OK;
}

fb_status fb_safetensors_write(const fb_os *os, const char *folder, const char *name, const fb_st_tensor *tensors, uint32_t n,
                               const fb_pair *metadata, size_t metadata_count, uint64_t *xxh3, fb_error *err)
{
    order o = {tensors, NULL, n};
    sink s = {os, -1, 0, NULL};
    fb_json json;
    fb_status status = FB_OK;
    if (!os || !folder || !name || !name[0] || (n > 0 && !tensors) || (metadata_count > 0 && !metadata)) {
        return fb_fail(err, FB_E_USAGE, "write safetensors: an argument is missing");
    }
    if (strlen(name) > NAME_BYTES_MAX) {
        return fb_fail(err, FB_E_LIMIT, "write %.64s...: a name of more than %d bytes", name, (int)NAME_BYTES_MAX);
    }
    fb_json_init(&json, 0);
    o.by = fb_calloc((size_t)n + 1, sizeof *o.by);
    s.hash = fb_hash_stream_new();
    if (!o.by || !s.hash) status = fb_fail(err, FB_E_NOMEM, "write %s: no memory to sort %u tensors", name, (unsigned)n);
    if (status == FB_OK) status = check_tensors(&o, name, err);
    if (status == FB_OK) status = make_header(&o, name, metadata, metadata_count, &json, err);
    if (status == FB_OK) status = write_file(&s, folder, name, &o, &json, err);
    if (status == FB_OK && xxh3) *xxh3 = fb_hash_stream_digest(s.hash);
    fb_hash_stream_free(s.hash);
    fb_json_release(&json);
    fb_free(o.by);
    return status;
}
