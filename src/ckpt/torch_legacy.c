/*
 * torch.save before 1.6, and since then on request: five pickles, then storages, back to back, without alignment.
 *
 *   1  the integer 0x1950a86a20f9469cfc6c       2  the protocol, 1001       3  {protocol_version, little_endian, type_sizes}
 *   4  the object; a tensor in it refers to a storage by key, which is an address as text
 *   5  the list of keys; then for each of them, in this order: i64 number of elements, elements
 *
 * Numbers after the pickles are little-endian whatever `little_endian` says: big-endian machines turn them around when they write
 * and when they read (torch/csrc/serialization.cpp); torch 2.13 loads a file whose flag was changed to False with the same values.
 * Valid only if the keys are those that the object refers to, each once, the counts are those of the object, and the last storage
 * ends with the file. A storage of the object may be a part of another one; its tensors are then tensors of that one.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/order.h"
#include "ckpt/torch_object.h"

enum { PICKLES = 5, OBJECT = 3, KEYS = 4, COUNT_BYTES = 8, PROTOCOL = 1001 };
static const uint64_t PICKLE_BYTES_MAX = 1u << 30;
static const uint64_t WINDOW_BYTES = 262144; /* of the first try to read all pickles; their sizes are written nowhere */
static const uint8_t MAGIC[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

/* One entry of the list of keys. */
typedef struct place {
    const fb_torch_storage *storage; /* NULL: only parts of it are referred to */
    uint64_t offset_bytes, bytes;
    uint64_t first_part, parts; /* in state.views: storages that are parts of this one */
    fb_ckpt_tensor *tensors;    /* all of them, when there are parts; else NULL */
    uint64_t tensor_count;
} place;

typedef struct state {
    fb_ckpt_range range;
    const char *path;
    uint8_t *bytes; /* the beginning of the file, with all pickles */
    fb_pickle *pickles[PICKLES];
    uint64_t data_at; /* in the range: where the last pickle ended */
    fb_torch_object *object;
    uint32_t *by_key; /* storages of the object, roots and parts, sorted by the key under which they lie in the file */
    uint64_t storages;
    place *places;
    uint64_t count, next, next_memory;
} state;

/* ---- the beginning ----------------------------------------------------------------------------------------------------------- */

/* The first pickle, in any protocol: LONG1 from 2 on, inside a frame from 4 on; before, decimal digits. */
static int torch_legacy_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    static const char decimal[] = "L119547037146038801333356L\n.";
    size_t at = 0;
    (void)file_bytes;
    if (head_bytes >= sizeof decimal - 1 && memcmp(head, decimal, sizeof decimal - 1) == 0) return 1;
    if (head_bytes > 2 && head[0] == 0x80) at = 2;
    if (at && head_bytes > at + 9 && head[at] == 0x95) at += 9;
    return at && head_bytes >= at + 2 + sizeof MAGIC && head[at] == 0x8a && head[at + 1] == sizeof MAGIC &&
           memcmp(head + at + 2, MAGIC, sizeof MAGIC) == 0;
}

static void forget_pickles(state *s)
{
    for (int i = 0; i < PICKLES; i++) {
        fb_pickle_free(s->pickles[i]);
        s->pickles[i] = NULL;
    }
    fb_free(s->bytes);
    s->bytes = NULL;
}

/* All pickles from the first `window` bytes. */
static fb_status try_pickles(state *s, uint64_t window, const fb_pickle_limits *limits, fb_error *err)
{
    uint64_t at = 0;
    fb_status status;
    s->bytes = fb_calloc((size_t)window + 1, 1);
    if (!s->bytes) {
        return fb_fail(err, FB_E_NOMEM, "read torch file %s: no memory for %llu bytes", s->path, (unsigned long long)window);
    }
    status = fb_ckpt_file_read(s->range.file, s->range.offset_bytes, s->bytes, (size_t)window, err);
    for (int i = 0; i < PICKLES && status == FB_OK; i++) {
        uint64_t used = 0;
        status =
            fb_pickle_parse(&s->pickles[i], s->bytes + at, window - at, s->range.offset_bytes + at, s->path, limits, &used, err);
        at += used;
    }
    s->data_at = at;
    return status;
}

/* A pickle that is cut by the window looks damaged, so a damaged one is read again with more bytes, up to the limit. */
static fb_status load_pickles(state *s, const fb_ckpt_options *options, fb_error *err)
{
    uint64_t most = options->header_bytes_max ? options->header_bytes_max : PICKLE_BYTES_MAX, window = WINDOW_BYTES;
    fb_pickle_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.bytes_max = most;
    if (most > s->range.bytes) most = s->range.bytes;
    for (;;) {
        fb_status status;
        if (window > most) window = most;
        status = try_pickles(s, window, &limits, err);
        if (status != FB_E_CORRUPT || window == most) return status;
        forget_pickles(s);
        window *= 4;
    }
}

static fb_status check_pickles(const state *s, fb_error *err)
{
    fb_node magic = fb_pickle_root(s->pickles[0]), protocol = fb_pickle_root(s->pickles[1]),
            keys = fb_pickle_root(s->pickles[KEYS]);
    uint64_t bytes = 0;
    const char *text =
        fb_pickle_kind(s->pickles[0], magic) == FB_PICKLE_BIGINT ? fb_pickle_text(s->pickles[0], magic, &bytes) : NULL;
    if (!text || bytes != sizeof MAGIC || memcmp(text, MAGIC, sizeof MAGIC) != 0) {
        return fb_fail_at(err, s->range.offset_bytes, "read torch file %s: it does not begin with the magic number", s->path);
    }
    if (fb_pickle_kind(s->pickles[1], protocol) != FB_PICKLE_INT || fb_pickle_int(s->pickles[1], protocol) != PROTOCOL) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read torch file %s: a protocol that is not %d, the only one there ever was", s->path,
                       PROTOCOL);
    }
    if (fb_pickle_kind(s->pickles[KEYS], keys) != FB_PICKLE_LIST) {
        return fb_fail_at(err, fb_pickle_at(s->pickles[KEYS], keys), "read torch file %s: the list of storages is no list",
                          s->path);
    }
    return FB_OK;
}

/* ---- keys -------------------------------------------------------------------------------------------------------------------- */

/* The key under which a storage lies in the file. */
static const char *file_key(const fb_torch_storage *storage)
{
    return storage->root_key ? storage->root_key : storage->key;
}

/* By key; of one key the root comes first. */
static int by_key(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    const fb_torch_storage *x = fb_torch_storage_at(s->object, a), *y = fb_torch_storage_at(s->object, b);
    int order = strcmp(file_key(x), file_key(y));
    return order ? order : (x->root_key != NULL) - (y->root_key != NULL);
}

static int compare_key(const char *text, uint64_t bytes, const char *key)
{
    size_t key_bytes = strlen(key);
    int order = memcmp(text, key, bytes < key_bytes ? (size_t)bytes : key_bytes);
    return order ? order : bytes < key_bytes ? -1 : bytes > key_bytes;
}

/* Storages of a key: [*first, *first + *count) in by_key. */
static void find_key(const state *s, const char *text, uint64_t bytes, uint64_t *first, uint64_t *count)
{
    uint64_t low = 0, high = s->storages;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (compare_key(text, bytes, file_key(fb_torch_storage_at(s->object, s->by_key[middle]))) > 0) low = middle + 1;
        else high = middle;
    }
    *first = low;
    while (low < s->storages && compare_key(text, bytes, file_key(fb_torch_storage_at(s->object, s->by_key[low]))) == 0) low++;
    *count = low - *first;
}

static fb_status sort_storages(state *s, fb_error *err)
{
    s->storages = fb_torch_storages(s->object);
    s->by_key = fb_calloc((size_t)s->storages + 1, sizeof *s->by_key);
    if (!s->by_key)
        return fb_fail(err, FB_E_NOMEM, "read torch file %s: no memory for %llu storages", s->path,
                       (unsigned long long)s->storages);
    for (uint64_t i = 0; i < s->storages; i++) s->by_key[i] = (uint32_t)i;
    fb_ckpt_sort(s->by_key, s->storages, by_key, s);
    return FB_OK;
}

/* ---- storages ---------------------------------------------------------------------------------------------------------------- */

static uint64_t little_u64(const uint8_t *p)
{
    uint64_t value = 0;
    for (int i = COUNT_BYTES; i-- > 0;) value = value << 8 | p[i];
    return value;
}

/* The storage of a key begins at *at of the range, with its number of elements; *at moves behind it. */
static fb_status place_storage(state *s, place *p, const fb_torch_storage *sample, uint64_t *at, fb_error *err)
{
    uint8_t count_bytes[COUNT_BYTES];
    uint64_t count, left = s->range.bytes - *at, file_at = s->range.offset_bytes + *at;
    fb_status status;
    if (sample->element_bytes == 0) {
        return fb_fail(err, FB_E_UNSUPPORTED,
                       "read torch file %s: storage %.100s is of the unknown type %.100s, so where it ends is unknown", s->path,
                       file_key(sample), sample->dtype_name);
    }
    if (left < COUNT_BYTES)
        return fb_fail_at(err, file_at, "read torch file %s: storage %.100s is missing", s->path, file_key(sample));
    if ((status = fb_ckpt_file_read(s->range.file, file_at, count_bytes, sizeof count_bytes, err)) != FB_OK) return status;
    count = little_u64(count_bytes);
    if (p->storage && count != p->storage->elements) {
        return fb_fail_at(err, file_at, "read torch file %s: storage %.100s has %llu elements, the object says %llu", s->path,
                          file_key(sample), (unsigned long long)count, (unsigned long long)p->storage->elements);
    }
    left -= COUNT_BYTES;
    if (count > left / sample->element_bytes) {
        return fb_fail_at(err, file_at,
                          "read torch file %s: storage %.100s of %llu elements, %llu bytes follow: the file is incomplete", s->path,
                          file_key(sample), (unsigned long long)count, (unsigned long long)left);
    }
    p->offset_bytes = file_at + COUNT_BYTES;
    p->bytes = count * sample->element_bytes;
    *at += COUNT_BYTES + p->bytes;
    return FB_OK;
}

/* A part lies in its root as its own numbers say, and brings its tensors along. */
static fb_status add_part(state *s, place *p, const fb_torch_storage *part, uint64_t *filled, fb_error *err)
{
    uint64_t begin = 0, bytes = 0;
    if (part->root_key && (__builtin_mul_overflow(part->root_offset_elements, (uint64_t)part->element_bytes, &begin) ||
                           __builtin_mul_overflow(part->elements, (uint64_t)part->element_bytes, &bytes) || begin > p->bytes ||
                           bytes > p->bytes - begin)) {
        return fb_fail_at(err, p->offset_bytes,
                          "read torch file %s: a part of storage %.100s, %llu elements from %llu on, leaves it", s->path,
                          file_key(part), (unsigned long long)part->elements, (unsigned long long)part->root_offset_elements);
    }
    for (uint64_t i = 0; i < part->tensor_count; i++) {
        p->tensors[*filled] = part->tensors[i];
        p->tensors[*filled].offset_bytes += begin;
        ++*filled;
    }
    return FB_OK;
}

static fb_status gather_tensors(state *s, place *p, fb_error *err)
{
    uint64_t total = 0, filled = 0;
    for (uint64_t i = 0; i < p->parts; i++) total += fb_torch_storage_at(s->object, s->by_key[p->first_part + i])->tensor_count;
    p->tensors = fb_calloc((size_t)total + 1, sizeof *p->tensors);
    if (!p->tensors)
        return fb_fail(err, FB_E_NOMEM, "read torch file %s: no memory for %llu tensors", s->path, (unsigned long long)total);
    p->tensor_count = total;
    for (uint64_t i = 0; i < p->parts; i++) {
        fb_status status = add_part(s, p, fb_torch_storage_at(s->object, s->by_key[p->first_part + i]), &filled, err);
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

/* Entry number i of the list of keys. */
static fb_status take_key(state *s, uint64_t i, uint64_t *at, fb_error *err)
{
    const fb_pickle *pickle = s->pickles[KEYS];
    fb_node node = fb_pickle_child(pickle, fb_pickle_root(pickle), i);
    place *p = &s->places[s->count];
    const fb_torch_storage *first;
    uint64_t bytes = 0;
    const char *text = fb_pickle_kind(pickle, node) == FB_PICKLE_TEXT ? fb_pickle_text(pickle, node, &bytes) : NULL;
    fb_status status;
    if (!text) return fb_fail_at(err, fb_pickle_at(pickle, node), "read torch file %s: a key that is no text", s->path);
    find_key(s, text, bytes, &p->first_part, &p->parts);
    if (p->parts == 0) {
        return fb_fail_at(err, fb_pickle_at(pickle, node), "read torch file %s: key %.*s, which the object does not know", s->path,
                          bytes < 100 ? (int)bytes : 100, text);
    }
    first = fb_torch_storage_at(s->object, s->by_key[p->first_part]);
    p->storage = first->root_key ? NULL : first;
    s->count++; /* before anything can fail: close releases its tensors */
    if ((status = place_storage(s, p, first, at, err)) != FB_OK) return status;
    return first->root_key || p->parts > 1 ? gather_tensors(s, p, err) : FB_OK;
}

static int by_parts(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    uint64_t x = s->places[a].first_part, y = s->places[b].first_part;
    return x < y ? -1 : x > y;
}

/* Each key once, and all that the object knows: sorted by where they were found, their parts fill the list of storages. */
static fb_status check_keys(const state *s, fb_error *err)
{
    uint64_t due = 0;
    fb_status status = FB_OK;
    uint32_t *order = fb_calloc((size_t)s->count + 1, sizeof *order);
    if (!order)
        return fb_fail(err, FB_E_NOMEM, "read torch file %s: no memory for %llu keys", s->path, (unsigned long long)s->count);
    for (uint64_t i = 0; i < s->count; i++) order[i] = (uint32_t)i;
    fb_ckpt_sort(order, s->count, by_parts, s);
    for (uint64_t i = 0; i < s->count && due == s->places[order[i]].first_part; i++) due += s->places[order[i]].parts;
    fb_free(order);
    if (due < s->storages) {
        const char *key = file_key(fb_torch_storage_at(s->object, s->by_key[due]));
        status = fb_fail_at(err, s->range.offset_bytes + s->data_at,
                            "read torch file %s: storage %.100s is not in the list of keys, or twice", s->path, key);
    }
    return status;
}

static fb_status place_all(state *s, fb_error *err)
{
    uint64_t keys = fb_pickle_children(s->pickles[KEYS], fb_pickle_root(s->pickles[KEYS])), at = s->data_at;
    fb_status status;
    if (keys > s->storages) {
        return fb_fail_at(err, s->range.offset_bytes + s->data_at, "read torch file %s: %llu keys, the object has %llu storages",
                          s->path, (unsigned long long)keys, (unsigned long long)s->storages);
    }
    s->places = fb_calloc((size_t)keys + 1, sizeof *s->places);
    if (!s->places)
        return fb_fail(err, FB_E_NOMEM, "read torch file %s: no memory for %llu storages", s->path, (unsigned long long)keys);
    for (uint64_t i = 0; i < keys; i++) {
        if ((status = take_key(s, i, &at, err)) != FB_OK) return status;
    }
    if ((status = check_keys(s, err)) != FB_OK) return status;
    if (at == s->range.bytes) return FB_OK;
    return fb_fail_at(err, s->range.offset_bytes + at, "read torch file %s: %llu bytes follow the last storage", s->path,
                      (unsigned long long)(s->range.bytes - at));
}

/* ---- the reader -------------------------------------------------------------------------------------------------------------- */

static void torch_legacy_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    for (uint64_t i = 0; i < s->count; i++) fb_free(s->places[i].tensors);
    fb_free(s->places);
    fb_free(s->by_key);
    fb_torch_object_close(s->object);
    forget_pickles(s);
    fb_free(s);
}

static fb_status torch_legacy_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read torch file %s: no memory", range->file->path);
    s->range = *range;
    s->path = range->file->path;
    status = load_pickles(s, options, err);
    if (status == FB_OK) status = check_pickles(s, err);
    if (status == FB_OK) status = fb_torch_object_open(&s->object, s->pickles[OBJECT], s->path, err);
    if (status == FB_OK) status = sort_storages(s, err);
    if (status == FB_OK) status = place_all(s, err);
    if (status != FB_OK) {
        torch_legacy_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

static fb_status torch_legacy_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    const place *p;
    (void)err;
    if (fb_torch_extent(s->object, s->next_memory, extent)) {
        s->next_memory++;
        return FB_OK;
    }
    if (s->next == s->count) return FB_E_NOTFOUND;
    p = &s->places[s->next++];
    memset(extent, 0, sizeof *extent);
    extent->name = file_key(fb_torch_storage_at(s->object, s->by_key[p->first_part]));
    extent->encoding = FB_CKPT_STORED;
    extent->offset_bytes = p->offset_bytes;
    extent->stored_bytes = extent->bytes = p->bytes;
    extent->tensors = p->tensors ? p->tensors : p->storage->tensors;
    extent->tensor_count = p->tensors ? p->tensor_count : p->storage->tensor_count;
    return FB_OK;
}

static int torch_legacy_remark(void *state_, uint64_t i, fb_ckpt_remark *remark)
{
    return fb_torch_remark(((state *)state_)->object, i, remark);
}

const fb_ckpt_reader fb_ckpt_torch_legacy = {
    .format = "torch_legacy",
    .detect = torch_legacy_detect,
    .open = torch_legacy_open,
    .next = torch_legacy_next,
    .remark = torch_legacy_remark,
    .close = torch_legacy_close,
};
