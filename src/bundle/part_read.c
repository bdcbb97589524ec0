/* The texts of a bundle, read back. They may come from anybody: every size is compared with what is there before it is used, and no
 * name in them leads to a file, since the names of files are known. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "bundle/part.h"
#include "bundle/self.h"
#include "bundle/take.h"
#include "ckpt/order.h"
#include "ckpt/safetensors_write.h"

enum { TENSORS_MAX = 1 << 20, DTYPE_MAX = 64 };

static void no_memory(fb_take *take, const char *what)
{
    if (take->status == FB_OK) take->status = fb_fail(take->err, FB_E_NOMEM, "read %s: no memory for its %s", take->path, what);
}

/* One more element of an array, all zero; NULL on failure. */
static void *add(fb_take *take, void **array, uint32_t *count, uint32_t *room, size_t element_bytes, const char *what)
{
    void *grown;
    uint8_t *element;
    if (take->status != FB_OK) return NULL;
    if (*count == TENSORS_MAX) {
        fb_take_refuse(take, "more than %d %s", (int)TENSORS_MAX, what);
        return NULL;
    }
    grown = fb_bundle_grow(*array, *count, room, element_bytes);
    if (!grown) {
        no_memory(take, what);
        return NULL;
    }
    *array = grown;
    element = (uint8_t *)grown + (size_t)*count * element_bytes;
    memset(element, 0, element_bytes);
    ++*count;
    return element;
}

static int32_t take_part(fb_take *take)
{
    const char *text = fb_take_text(take);
    for (int32_t which = 1; which < FB_BUNDLE_PARTS && take->status == FB_OK; which++) {
        if (strcmp(text, fb_bundle_part_name(which)) == 0) return which;
    }
    fb_take_refuse(take, "\"%.40s\" is no part of a bundle", text);
    return FB_BUNDLE_BATCH;
}

static int32_t take_dtype(fb_take *take)
{
    const char *text = fb_take_text(take);
    for (int32_t dtype = 1; dtype < DTYPE_MAX; dtype++) {
        const char *name = fb_safetensors_dtype(dtype);
        if (name && strcmp(name, text) == 0) return dtype;
    }
    fb_take_refuse(take, "\"%.40s\" is no number format of safetensors", text);
    return 0;
}

/* ---- a part ------------------------------------------------------------------------------------------------------------------ */

static void take_shape(fb_take *take, fb_part_tensor *tensor)
{
    fb_take_array(take);
    while (fb_take_item(take)) {
        int64_t dim = fb_take_int(take, 0, INT64_MAX);
        if (tensor->ndim == FB_DIMS_MAX) fb_take_refuse(take, "a shape of more than %d dimensions", (int)FB_DIMS_MAX);
        else tensor->shape[tensor->ndim++] = dim;
        if (take->status != FB_OK) return;
    }
}

/* The shape must take as many bytes as are named. */
static void check_bytes(fb_take *take, const fb_part_tensor *tensor)
{
    uint64_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (__builtin_mul_overflow(count, (uint64_t)tensor->shape[i], &count)) {
            fb_take_refuse(take, "the shape of tensor %.100s has more than 2^64 elements", tensor->name);
            return;
        }
    }
    if (fb_dtype_bytes(tensor->dtype, count) != tensor->bytes || (count > 0 && tensor->bytes == 0)) {
        fb_take_refuse(take, "tensor %.100s does not take %llu bytes by its shape", tensor->name,
                       (unsigned long long)tensor->bytes);
    }
}

static void take_tensor(fb_take *take, fb_part *part, int32_t which)
{
    static const char *const names[] = {"name", "dtype", "shape", "bytes", "xxh3", NULL};
    void *array = part->tensors;
    fb_part_tensor *tensor = add(take, &array, &part->tensor_count, &part->tensor_room, sizeof *tensor, "tensors");
    uint32_t seen = 0;
    part->tensors = array;
    if (!tensor) return;
    tensor->part = which;
    tensor->name = "";
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0: tensor->name = fb_take_text(take); break;
        case 1: tensor->dtype = take_dtype(take); break;
        case 2: take_shape(take, tensor); break;
        case 3: tensor->bytes = fb_take_size(take); break;
        case 4: tensor->xxh3 = fb_take_hex(take); break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 31);
    if (take->status == FB_OK) check_bytes(take, tensor);
}

/* The tensors of a file may stand before the name of its part, so they are marked afterwards. */
static void take_file(fb_take *take, fb_part *part)
{
    static const char *const names[] = {"part", "file", "bytes", "xxh3", "tensors", NULL};
    char expected[FB_BUNDLE_NAME_MAX];
    fb_part_file file = {1, 0, 0};
    const char *name = "";
    uint32_t seen = 0, first = part->tensor_count;
    int32_t which = 0;
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0: which = take_part(take); break;
        case 1: name = fb_take_text(take); break;
        case 2: file.bytes = fb_take_size(take); break;
        case 3: file.xxh3 = fb_take_hex(take); break;
        case 4:
            fb_take_array(take);
            while (fb_take_item(take)) take_tensor(take, part, 0);
            break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 31);
    if (take->status != FB_OK) return;
    fb_bundle_file_name(expected, which, part->rank);
    if (strcmp(name, expected) != 0) fb_take_refuse(take, "its file must be %s, found \"%.60s\"", expected, name);
    if (part->files[which].there) fb_take_refuse(take, "%s stands there twice", expected);
    part->files[which] = file;
    for (uint32_t i = first; i < part->tensor_count; i++) part->tensors[i].part = which;
}

static void take_left(fb_take *take, fb_part *part)
{
    static const char *const names[] = {"part", "name", "bytes", "why", NULL};
    void *array = part->left;
    fb_part_left *left = add(take, &array, &part->left_count, &part->left_room, sizeof *left, "tensors left out");
    uint32_t seen = 0;
    part->left = array;
    if (!left) return;
    left->name = "";
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0: left->part = take_part(take); break;
        case 1: left->name = fb_take_text(take); break;
        case 2: left->bytes = fb_take_size(take); break;
        case 3: left->no_memory = strcmp(fb_take_text(take), "no memory") == 0; break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 15);
}

static double number_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void take_value(fb_take *take, fb_part *part)
{
    static const char *const names[] = {"key", "text", "integer", "bits", NULL};
    void *array = part->values;
    fb_part_value *value = add(take, &array, &part->value_count, &part->value_room, sizeof *value, "values");
    uint32_t seen = 0;
    part->values = array;
    if (!value) return;
    value->key = value->text = "";
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0: value->key = fb_take_text(take); break;
        case 1:
            value->text = fb_take_text(take);
            value->kind = FB_VALUE_TEXT;
            break;
        case 2:
            value->integer = fb_take_int(take, INT64_MIN, INT64_MAX);
            value->kind = FB_VALUE_INTEGER;
            break;
        case 3:
            value->number = number_of(fb_take_hex(take));
            value->kind = FB_VALUE_NUMBER;
            break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 1);
    seen >>= 1;
    if (seen != 1 && seen != 2 && seen != 4) fb_take_refuse(take, "a value must be a text, an integer or the bits of a number");
}

static void take_parent(fb_take *take, fb_part *part)
{
    static const char *const names[] = {"path", "step", "exact", NULL};
    uint32_t seen = 0;
    if (fb_take_null(take)) return;
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0: part->parent_path = fb_take_text(take); break;
        case 1: part->parent_step = fb_take_int(take, INT64_MIN, INT64_MAX); break;
        case 2: part->parent_exact = fb_take_bool(take); break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 7);
}

static void take_command(fb_take *take, fb_part *part)
{
    uint32_t count = 0, room = 0;
    if (fb_take_null(take)) return;
    fb_take_array(take);
    while (fb_take_item(take)) {
        void *array = part->command;
        const char **place = add(take, &array, &count, &room, sizeof *place, "arguments");
        part->command = array;
        if (place) *place = fb_take_text(take);
    }
    if (take->status == FB_OK) {
        void *array = part->command;
        (void)add(take, &array, &count, &room, sizeof *part->command, "arguments"); /* the NULL at the end */
        part->command = array;
    }
}

static void take_list(fb_take *take, fb_part *part, void (*element)(fb_take *, fb_part *))
{
    fb_take_array(take);
    while (fb_take_item(take)) element(take, part);
}

static void take_all(fb_take *take, fb_part *part)
{
    static const char *const names[] = {"schema", "run_id",  "case_id", "step",  "rank",     "world", "values",
                                        "parent", "command", "cwd",     "files", "left_out", NULL};
    uint32_t seen = 0;
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0:
            if (strcmp(fb_take_text(take), "firstbad.bundle.part/1") != 0)
                fb_take_refuse(take, "its schema is not firstbad.bundle.part/1");
            break;
        case 1: part->run_id = fb_take_text(take); break;
        case 2: part->case_id = fb_take_text(take); break;
        case 3: part->step = fb_take_int(take, INT64_MIN, INT64_MAX); break;
        case 4: part->rank = (int32_t)fb_take_int(take, 0, FB_BUNDLE_WORLD_MAX - 1); break;
        case 5: part->world = (int32_t)fb_take_int(take, 1, FB_BUNDLE_WORLD_MAX); break;
        case 6: take_list(take, part, take_value); break;
        case 7: take_parent(take, part); break;
        case 8: take_command(take, part); break;
        case 9:
            if (!fb_take_null(take)) part->cwd = fb_take_text(take);
            break;
        case 10: take_list(take, part, take_file); break;
        case 11: take_list(take, part, take_left); break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 0xfff);
    if (take->status == FB_OK && part->rank >= part->world)
        fb_take_refuse(take, "rank %d of %d", (int)part->rank, (int)part->world);
}

static int by_name(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_part_tensor *tensors = ctx, *x = &tensors[a], *y = &tensors[b];
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void index_tensors(fb_take *take, fb_part *part)
{
    if (take->status != FB_OK) return;
    part->by_name = fb_calloc((size_t)part->tensor_count + 1, sizeof *part->by_name);
    if (!part->by_name) {
        no_memory(take, "index");
        return;
    }
    for (uint32_t i = 0; i < part->tensor_count; i++) part->by_name[i] = i;
    fb_ckpt_sort(part->by_name, part->tensor_count, by_name, part->tensors);
    for (uint32_t i = 1; i < part->tensor_count; i++) {
        if (by_name(part->tensors, part->by_name[i - 1], part->by_name[i]) == 0)
            fb_take_refuse(take, "two tensors have the name %.100s", part->tensors[part->by_name[i]].name);
    }
}

fb_status fb_part_parse(fb_part *part, const char *text, size_t bytes, const char *path, fb_error *err)
{
    fb_take take;
    fb_status status = fb_self_check(text, bytes, path, err);
    memset(part, 0, sizeof *part);
    if (status == FB_OK) {
        fb_take_begin(&take, text, bytes, path, &part->pool, err);
        take_all(&take, part);
        index_tensors(&take, part);
        status = fb_take_end(&take);
    }
    if (status != FB_OK) fb_part_release(part);
    return status;
}

fb_part_tensor *fb_part_find(const fb_part *part, int32_t which, const char *name)
{
    uint32_t low = 0, high = part->tensor_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        fb_part_tensor *tensor = &part->tensors[part->by_name[middle]];
        int order = tensor->part != which ? (tensor->part < which ? -1 : 1) : strcmp(tensor->name, name);
        if (order == 0) return tensor;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const fb_part_value *fb_part_value_of(const fb_part *part, const char *key)
{
    for (uint32_t i = 0; i < part->value_count; i++) {
        if (strcmp(part->values[i].key, key) == 0) return &part->values[i];
    }
    return NULL;
}

/* ---- the manifest ------------------------------------------------------------------------------------------------------------ */

static void take_manifest_part(fb_take *take, fb_manifest *manifest)
{
    static const char *const names[] = {"rank", "file", "bytes", "xxh3", NULL};
    char expected[FB_BUNDLE_NAME_MAX];
    void *array = manifest->parts;
    fb_manifest_part *part = add(take, &array, &manifest->part_count, &manifest->part_room, sizeof *part, "parts");
    const char *name = "";
    uint32_t seen = 0;
    manifest->parts = array;
    if (!part) return;
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0: part->rank = (int32_t)fb_take_int(take, 0, FB_BUNDLE_WORLD_MAX - 1); break;
        case 1: name = fb_take_text(take); break;
        case 2: part->bytes = fb_take_size(take); break;
        case 3: part->xxh3 = fb_take_hex(take); break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 15);
    if (take->status != FB_OK) return;
    fb_bundle_file_name(expected, 0, part->rank);
    if (strcmp(name, expected) != 0) fb_take_refuse(take, "its file must be %s, found \"%.60s\"", expected, name);
    if (manifest->part_count > 1 && part[-1].rank >= part->rank) fb_take_refuse(take, "%s is out of order", expected);
}

static void check_world(fb_take *take, const fb_manifest *manifest, uint32_t missing)
{
    if (take->status != FB_OK) return;
    if (manifest->part_count == 0) fb_take_refuse(take, "it has no part");
    else if (manifest->parts[manifest->part_count - 1].rank >= manifest->world)
        fb_take_refuse(take, "it has a rank beyond its world of %d", (int)manifest->world);
    else if ((uint64_t)manifest->part_count + missing != (uint64_t)manifest->world) {
        fb_take_refuse(take, "%u parts and %u missing ones are no world of %d", manifest->part_count, missing,
                       (int)manifest->world);
    }
}

static void take_manifest(fb_take *take, fb_manifest *manifest)
{
    static const char *const names[] = {"schema", "run_id", "case_id", "step", "world", "parts", "missing", NULL};
    uint32_t seen = 0, missing = 0;
    fb_take_object(take);
    while (fb_take_member(take)) {
        switch (fb_take_key(take, names, &seen)) {
        case 0:
            if (strcmp(fb_take_text(take), "firstbad.bundle/1") != 0) fb_take_refuse(take, "its schema is not firstbad.bundle/1");
            break;
        case 1: manifest->run_id = fb_take_text(take); break;
        case 2: manifest->case_id = fb_take_text(take); break;
        case 3: manifest->step = fb_take_int(take, INT64_MIN, INT64_MAX); break;
        case 4: manifest->world = (int32_t)fb_take_int(take, 1, FB_BUNDLE_WORLD_MAX); break;
        case 5:
            fb_take_array(take);
            while (fb_take_item(take)) take_manifest_part(take, manifest);
            break;
        case 6:
            fb_take_array(take);
            for (; fb_take_item(take); missing++) (void)fb_take_int(take, 0, FB_BUNDLE_WORLD_MAX - 1);
            break;
        default: fb_take_skip(take);
        }
    }
    fb_take_need(take, names, seen, 0x7f);
    check_world(take, manifest, missing);
}

fb_status fb_manifest_parse(fb_manifest *manifest, const char *text, size_t bytes, const char *path, fb_error *err)
{
    fb_take take;
    fb_status status = fb_self_check(text, bytes, path, err);
    memset(manifest, 0, sizeof *manifest);
    if (status == FB_OK) {
        fb_take_begin(&take, text, bytes, path, &manifest->pool, err);
        take_manifest(&take, manifest);
        status = fb_take_end(&take);
    }
    if (status != FB_OK) fb_manifest_release(manifest);
    return status;
}
