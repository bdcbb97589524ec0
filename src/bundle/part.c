/* What one rank put in: its arrays, and its text. */
#include "bundle/part.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "base/status.h"
#include "bundle/self.h"
#include "ckpt/safetensors_write.h"

static const char *const part_names[FB_BUNDLE_PARTS] = {NULL, "batch", "rng", "state"};

const char *fb_bundle_part_name(int32_t part)
{
    return part > 0 && part < FB_BUNDLE_PARTS ? part_names[part] : NULL;
}

void fb_bundle_file_name(char name[FB_BUNDLE_NAME_MAX], int32_t part, int32_t rank)
{
    if (part == 0) (void)snprintf(name, FB_BUNDLE_NAME_MAX, "part-r%05d.json", (int)rank);
    else (void)snprintf(name, FB_BUNDLE_NAME_MAX, "%s-r%05d.safetensors", part_names[part], (int)rank);
}

void *fb_bundle_grow(void *array, uint32_t count, uint32_t *room, size_t element_bytes)
{
    uint32_t wanted = *room ? *room * 2 : 16;
    void *grown = array;
    if (count < *room) return array;
    if (*room > UINT32_MAX / 2) return NULL;
    grown = fb_realloc(array, (size_t)wanted * element_bytes);
    if (grown) *room = wanted;
    return grown;
}

void fb_part_release(fb_part *part)
{
    for (uint32_t i = 0; i < part->tensor_count; i++) fb_free(part->tensors[i].data);
    fb_free(part->tensors);
    fb_free(part->left);
    fb_free(part->values);
    fb_free(part->by_name);
    fb_free(part->command);
    fb_pool_release(&part->pool);
    memset(part, 0, sizeof *part);
}

void fb_manifest_release(fb_manifest *manifest)
{
    fb_free(manifest->parts);
    fb_pool_release(&manifest->pool);
    memset(manifest, 0, sizeof *manifest);
}

/* ---- writing ----------------------------------------------------------------------------------------------------------------- */

static void write_tensors(fb_json *json, const fb_part *part, int32_t which)
{
    fb_json_key(json, "tensors");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < part->tensor_count; i++) {
        const fb_part_tensor *tensor = &part->tensors[i];
        if (tensor->part != which) continue;
        fb_json_object_begin(json);
        fb_json_key_string(json, "name", tensor->name);
        fb_json_key_string(json, "dtype", fb_safetensors_dtype(tensor->dtype));
        fb_json_key(json, "shape");
        fb_json_array_begin(json);
        for (int32_t d = 0; d < tensor->ndim; d++) fb_json_int(json, tensor->shape[d]);
        fb_json_array_end(json);
        fb_json_key_uint(json, "bytes", tensor->bytes);
        fb_json_key_hex(json, "xxh3", tensor->xxh3, 16);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

static void write_files(fb_json *json, const fb_part *part)
{
    fb_json_key(json, "files");
    fb_json_array_begin(json);
    for (int32_t which = 1; which < FB_BUNDLE_PARTS; which++) {
        char name[FB_BUNDLE_NAME_MAX];
        if (!part->files[which].there) continue;
        fb_bundle_file_name(name, which, part->rank);
        fb_json_object_begin(json);
        fb_json_key_string(json, "part", part_names[which]);
        fb_json_key_string(json, "file", name);
        fb_json_key_uint(json, "bytes", part->files[which].bytes);
        fb_json_key_hex(json, "xxh3", part->files[which].xxh3, 16);
        write_tensors(json, part, which);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

static void write_left(fb_json *json, const fb_part *part)
{
    fb_json_key(json, "left_out");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < part->left_count; i++) {
        fb_json_object_begin(json);
        fb_json_key_string(json, "part", part_names[part->left[i].part]);
        fb_json_key_string(json, "name", part->left[i].name);
        fb_json_key_uint(json, "bytes", part->left[i].bytes);
        fb_json_key_string(json, "why", part->left[i].no_memory ? "no memory" : "too large");
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void write_values(fb_json *json, const fb_part *part)
{
    fb_json_key(json, "values");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < part->value_count; i++) {
        const fb_part_value *value = &part->values[i];
        fb_json_object_begin(json);
        fb_json_key_string(json, "key", value->key);
        if (value->kind == FB_VALUE_TEXT) fb_json_key_string(json, "text", value->text);
        if (value->kind == FB_VALUE_INTEGER) fb_json_key_int(json, "integer", value->integer);
        if (value->kind == FB_VALUE_NUMBER) {
            fb_json_key_double(json, "number", value->number); /* for people; null where JSON has no number for it */
            fb_json_key_hex(json, "bits", bits_of(value->number), 16);
        }
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

static void write_origin(fb_json *json, const fb_part *part)
{
    fb_json_key(json, "parent");
    if (part->parent_path) {
        fb_json_object_begin(json);
        fb_json_key_string(json, "path", part->parent_path);
        fb_json_key_int(json, "step", part->parent_step);
        fb_json_key_bool(json, "exact", part->parent_exact);
        fb_json_object_end(json);
    } else {
        fb_json_null(json);
    }
    fb_json_key(json, "command");
    if (part->command) {
        fb_json_array_begin(json);
        for (size_t i = 0; part->command[i]; i++) fb_json_string(json, part->command[i]);
        fb_json_array_end(json);
    } else {
        fb_json_null(json);
    }
    fb_json_key_string(json, "cwd", part->cwd);
}

fb_status fb_part_text(const fb_part *part, char **text, size_t *bytes, fb_error *err)
{
    fb_json json;
    fb_status status;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.bundle.part/1");
    fb_json_key_string(&json, "firstbad", fb_version());
    fb_json_key_string(&json, "run_id", part->run_id);
    fb_json_key_string(&json, "case_id", part->case_id);
    fb_json_key_int(&json, "step", part->step);
    fb_json_key_int(&json, "rank", part->rank);
    fb_json_key_int(&json, "world", part->world);
    write_values(&json, part);
    write_origin(&json, part);
    write_files(&json, part);
    write_left(&json, part);
    fb_json_object_end(&json);
    status = fb_self_close(&json, text, bytes, err);
    fb_json_release(&json);
    return status;
}

static void write_missing(fb_json *json, const fb_manifest *manifest)
{
    uint32_t at = 0;
    fb_json_key(json, "missing");
    fb_json_array_begin(json);
    for (int32_t rank = 0; rank < manifest->world; rank++) {
        if (at < manifest->part_count && manifest->parts[at].rank == rank) at++;
        else fb_json_int(json, rank);
    }
    fb_json_array_end(json);
}

fb_status fb_manifest_text(const fb_manifest *manifest, char **text, size_t *bytes, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX];
    fb_json json;
    fb_status status;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.bundle/1");
    fb_json_key_string(&json, "firstbad", fb_version());
    fb_json_key_string(&json, "run_id", manifest->run_id);
    fb_json_key_string(&json, "case_id", manifest->case_id);
    fb_json_key_int(&json, "step", manifest->step);
    fb_json_key_int(&json, "world", manifest->world);
    fb_json_key(&json, "parts");
    fb_json_array_begin(&json);
    for (uint32_t i = 0; i < manifest->part_count; i++) {
        fb_bundle_file_name(name, 0, manifest->parts[i].rank);
        fb_json_object_begin(&json);
        fb_json_key_int(&json, "rank", manifest->parts[i].rank);
        fb_json_key_string(&json, "file", name);
        fb_json_key_uint(&json, "bytes", manifest->parts[i].bytes);
        fb_json_key_hex(&json, "xxh3", manifest->parts[i].xxh3, 16);
        fb_json_object_end(&json);
    }
    fb_json_array_end(&json);
    write_missing(&json, manifest);
    fb_json_object_end(&json);
    status = fb_self_close(&json, text, bytes, err);
    fb_json_release(&json);
    return status;
}
