#include "ckpt/peek.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { WINDOW_BYTES = 4096 };
static const uint64_t PICKLE_BYTES_MAX = 1u << 30;

void fb_peek_close(fb_peek *p)
{
    fb_pickle_free(p->pickle);
    fb_free(p->data);
    fb_zip_close(p->zip);
    fb_ckpt_file_close(&p->file);
}

/* Every member lies under one folder, which is that of the first. */
static const fb_zip_member *find_pickle(fb_peek *p)
{
    const fb_zip_member *first = fb_zip_count(p->zip) > 0 ? fb_zip_member_at(p->zip, 0) : NULL;
    const char *slash = first ? strchr(first->name, '/') : NULL;
    char name[sizeof p->prefix + 16];
    if (!slash || (size_t)(slash + 1 - first->name) >= sizeof p->prefix) return NULL;
    memcpy(p->prefix, first->name, (size_t)(slash + 1 - first->name));
    (void)snprintf(name, sizeof name, "%sdata.pkl", p->prefix);
    return fb_zip_find(p->zip, name);
}

static fb_status load(fb_peek *p, const char *path, fb_error *err)
{
    fb_ckpt_range range = {&p->file, 0, p->file.info.size_bytes, NULL};
    const fb_zip_member *member;
    uint8_t magic[4];
    uint64_t used;
    fb_status status;
    if (range.bytes < sizeof magic) return FB_E_NOTFOUND;
    if ((status = fb_ckpt_file_read(&p->file, 0, magic, sizeof magic, err)) != FB_OK) return status;
    if (memcmp(magic, "PK\3\4", sizeof magic) != 0) return FB_E_NOTFOUND;
    if ((status = fb_zip_open(&p->zip, &range, err)) != FB_OK) return status;
    if ((member = find_pickle(p)) == NULL) return FB_E_NOTFOUND;
    if ((status = fb_zip_load(p->zip, member, PICKLE_BYTES_MAX, &p->data, err)) != FB_OK) return status;
    return fb_pickle_parse(&p->pickle, p->data, member->bytes, member->data_at, path, NULL, &used, err);
}

fb_status fb_peek_open(fb_peek *p, const fb_ckpt_scan *scan, const char *path, fb_error *err)
{
    fb_status status;
    memset(p, 0, sizeof *p);
    status = fb_ckpt_scan_open(scan, &p->file, path, WINDOW_BYTES, err);
    if (status == FB_OK) {
        fb_ckpt_file_no_digest(&p->file);
        status = load(p, path, err);
    }
    if (status == FB_OK) return FB_OK;
    fb_peek_close(p);
    memset(p, 0, sizeof *p);
    p->file.fd = -1;
    if (status == FB_E_NOMEM || status == FB_E_IO) return status;
    fb_error_clear(err);
    return FB_E_NOTFOUND;
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------- */

/* The dictionary of an object: itself, what was put into an OrderedDict, or the fields of an object. */
static fb_node dictionary(const fb_pickle *k, fb_node node)
{
    fb_node inner;
    if (fb_pickle_kind(k, node) != FB_PICKLE_CALL) return node;
    inner = fb_pickle_items(k, node);
    return inner ? inner : fb_pickle_state(k, node);
}

static fb_node by_key(const fb_pickle *k, fb_node node, const char *key)
{
    fb_node value, dict = dictionary(k, node);
    char *end;
    long number = strtol(key, &end, 10);
    if (fb_pickle_kind(k, dict) == FB_PICKLE_LIST || fb_pickle_kind(k, dict) == FB_PICKLE_TUPLE) {
        return *key && !*end && number >= 0 ? fb_pickle_child(k, dict, (uint64_t)number) : 0;
    }
    if (fb_pickle_kind(k, dict) != FB_PICKLE_DICT) return 0;
    if ((value = fb_pickle_get(k, dict, key)) != 0 || *key == '\0' || *end != '\0') return value;
    for (uint64_t i = 0, n = fb_pickle_children(k, dict); i + 1 < n; i += 2) {
        fb_node name = fb_pickle_child(k, dict, i);
        if (fb_pickle_kind(k, name) == FB_PICKLE_INT && fb_pickle_int(k, name) == number) return fb_pickle_child(k, dict, i + 1);
    }
    return 0;
}

fb_node fb_peek_get(const fb_peek *p, fb_node from, const char *const *keys)
{
    for (; *keys && from; keys++) from = by_key(p->pickle, from, *keys);
    return from;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------------------- */

/* A float that holds a whole number that a step can be. Written so that NaN fails. */
static int whole(double number, int64_t *value)
{
    if (!(number >= 0 && number <= 9007199254740992.0)) return 0;
    *value = (int64_t)number;
    return (double)*value == number;
}

typedef struct storage_type {
    const char *name;
    uint32_t bytes;
    char kind;
} storage_type;

static const storage_type types[] = {
    {"torch FloatStorage", 4, 'f'}, {"torch DoubleStorage", 8, 'f'}, {"torch LongStorage", 8, 'i'}, {"torch IntStorage", 4, 'i'}};

static int decode(const uint8_t *bytes, const storage_type *type, int64_t *value)
{
    uint64_t bits = 0;
    uint32_t low;
    float narrow;
    double wide;
    for (unsigned i = 0; i < type->bytes; i++) bits |= (uint64_t)bytes[i] << (8 * i);
    low = (uint32_t)bits;
    if (type->kind == 'i') {
        *value = type->bytes == 4 ? (int64_t)(int32_t)low : (int64_t)bits;
        return *value >= 0;
    }
    if (type->bytes == 8) {
        memcpy(&wide, &bits, sizeof wide);
        return whole(wide, value);
    }
    memcpy(&narrow, &low, sizeof narrow);
    return whole((double)narrow, value);
}

/* _rebuild_tensor_v2(('storage', type, key, place, count), offset, size, ...) of one element. */
static int tensor_number(fb_peek *p, fb_node node, int64_t *value)
{
    const fb_pickle *k = p->pickle;
    fb_node args = fb_pickle_child(k, node, 1), id = fb_pickle_child(k, fb_pickle_child(k, args, 0), 0);
    fb_node offset = fb_pickle_child(k, args, 1), size = fb_pickle_child(k, args, 2), key = fb_pickle_child(k, id, 2);
    const storage_type *type = NULL;
    const fb_zip_member *member;
    char name[sizeof p->prefix + 64];
    uint64_t bytes = 0, at;
    const char *text;
    uint8_t raw[8];
    if (fb_pickle_kind(k, fb_pickle_child(k, args, 0)) != FB_PICKLE_PERSISTENT) return 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (fb_pickle_text_is(k, fb_pickle_child(k, id, 1), types[i].name)) type = &types[i];
    }
    if (!type || fb_pickle_kind(k, key) != FB_PICKLE_TEXT || fb_pickle_kind(k, offset) != FB_PICKLE_INT) return 0;
    for (uint64_t i = 0, n = fb_pickle_children(k, size); i < n; i++) {
        if (fb_pickle_int(k, fb_pickle_child(k, size, i)) != 1) return 0;
    }
    text = fb_pickle_text(k, key, &bytes);
    if (bytes > 32 || fb_pickle_int(k, offset) < 0) return 0;
    (void)snprintf(name, sizeof name, "%sdata/%.*s", p->prefix, (int)bytes, text);
    member = fb_zip_find(p->zip, name);
    if (!member || member->encoding != FB_CKPT_STORED) return 0;
    if (__builtin_mul_overflow((uint64_t)fb_pickle_int(k, offset), type->bytes, &at)) return 0;
    if (at > member->bytes || type->bytes > member->bytes - at) return 0;
    if (fb_ckpt_file_read(&p->file, member->data_at + at, raw, type->bytes, NULL) != FB_OK) return 0;
    return decode(raw, type, value);
}

int fb_peek_number(fb_peek *p, fb_node node, int64_t *value)
{
    const fb_pickle *k = p->pickle;
    uint64_t bits;
    double number;
    switch (fb_pickle_kind(k, node)) {
    case FB_PICKLE_INT: *value = fb_pickle_int(k, node); return *value >= 0;
    case FB_PICKLE_FLOAT:
        bits = fb_pickle_float_bits(k, node);
        memcpy(&number, &bits, sizeof number);
        return whole(number, value);
    case FB_PICKLE_CALL: return tensor_number(p, node, value);
    default: return 0;
    }
}

int fb_peek_optimizer_step(fb_peek *p, fb_node optimizer, int64_t *step)
{
    static const char *const to_state[] = {"state", NULL}, *const to_step[] = {"step", NULL};
    const fb_pickle *k = p->pickle;
    fb_node state = dictionary(k, fb_peek_get(p, optimizer, to_state));
    int found = 0;
    if (fb_pickle_kind(k, state) != FB_PICKLE_DICT) return 0;
    for (uint64_t i = 0, n = fb_pickle_children(k, state); i + 1 < n; i += 2) {
        int64_t value;
        if (!fb_peek_number(p, fb_peek_get(p, fb_pickle_child(k, state, i + 1), to_step), &value)) continue;
        if (!found || value > *step) *step = value;
        found = 1;
    }
    return found;
}
