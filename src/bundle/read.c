/* A sealed bundle, compared with its hashes byte by byte before anything in it is given out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "bundle/check.h"
#include "bundle/inside.h"
#include "ckpt/file.h"

struct fb_bundle {
    const fb_os *os;
    fb_manifest manifest;
    fb_part *parts; /* [manifest.part_count] as the manifest has them */
    uint32_t read_count;
    char folder[FB_OS_PATH_MAX];
};

/* ---- opening ----------------------------------------------------------------------------------------------------------------- */

/* The folder itself, or its "bundle". */
static fb_status find_folder(fb_bundle *bundle, const char *given, fb_error *err)
{
    int there = 0;
    fb_status status;
    if (strlen(given) >= sizeof bundle->folder) {
        return fb_fail(err, FB_E_LIMIT, "open bundle %.64s...: a path of more than %d bytes", given, FB_OS_PATH_MAX - 1);
    }
    (void)snprintf(bundle->folder, sizeof bundle->folder, "%s", given);
    status = fb_bundle_there(bundle->os, given, FB_BUNDLE_MANIFEST, &there, err);
    if (status != FB_OK || there) return status;
    status = fb_os_join(bundle->folder, sizeof bundle->folder, given, "bundle", err);
    if (status == FB_OK) status = fb_bundle_there(bundle->os, bundle->folder, FB_BUNDLE_MANIFEST, &there, err);
    if (status != FB_OK || there) return status;
    status = fb_bundle_there(bundle->os, given, "bundle", &there, err);
    if (status != FB_OK) return status;
    return fb_fail(err, FB_E_NOTFOUND, "open bundle %s: it has no %s%s", given, FB_BUNDLE_MANIFEST,
                   there ? ": it was never sealed" : "");
}

static fb_status read_manifest(fb_bundle *bundle, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    fb_status status = fb_os_join(path, sizeof path, bundle->folder, FB_BUNDLE_MANIFEST, err);
    if (status == FB_OK) status = fb_os_read_file(bundle->os, path, FB_BUNDLE_JSON_BYTES_MAX, &text, &bytes, err);
    if (status == FB_OK) status = fb_manifest_parse(&bundle->manifest, text, bytes, path, err);
    fb_free(text);
    return status;
}

static fb_status read_part(fb_bundle *bundle, const fb_manifest_part *line, fb_error *err)
{
    const fb_manifest *manifest = &bundle->manifest;
    fb_part *part = &bundle->parts[bundle->read_count];
    char name[FB_BUNDLE_NAME_MAX];
    fb_status status = fb_part_read(part, bundle->os, bundle->folder, line->rank, line, NULL, err);
    fb_bundle_file_name(name, 0, line->rank);
    if (status == FB_E_NOTFOUND) {
        return fb_fail(err, FB_E_CORRUPT, "open bundle %s: %s is missing; it was sealed with %llu bytes", bundle->folder, name,
                       (unsigned long long)line->bytes);
    }
    if (status != FB_OK) return status;
    bundle->read_count++;
    if (part->world != manifest->world || part->step != manifest->step || strcmp(part->run_id, manifest->run_id) != 0 ||
        strcmp(part->case_id, manifest->case_id) != 0) {
        return fb_fail(err, FB_E_CORRUPT, "open bundle %s: %s is of another incident than %s", bundle->folder, name,
                       FB_BUNDLE_MANIFEST);
    }
    return FB_OK;
}

fb_status fb_bundle_open_on(const fb_os *os, fb_bundle **out, const char *folder, fb_error *err)
{
    fb_bundle *bundle;
    fb_status status;
    if (out) *out = NULL;
    if (!out || !folder || !folder[0]) return fb_fail(err, FB_E_USAGE, "open a bundle: an argument is missing");
    bundle = fb_calloc(1, sizeof *bundle);
    if (!bundle) return fb_fail(err, FB_E_NOMEM, "open bundle %s: no memory", folder);
    bundle->os = os;
    status = find_folder(bundle, folder, err);
    if (status == FB_OK) status = read_manifest(bundle, err);
    if (status == FB_OK) {
        bundle->parts = fb_calloc(bundle->manifest.part_count, sizeof *bundle->parts);
        if (!bundle->parts) status = fb_fail(err, FB_E_NOMEM, "open bundle %s: no memory for its parts", folder);
    }
    for (uint32_t i = 0; status == FB_OK && bundle->parts && i < bundle->manifest.part_count; i++)
        status = read_part(bundle, &bundle->manifest.parts[i], err);
    if (status != FB_OK) {
        fb_bundle_close(bundle);
        return status;
    }
    *out = bundle;
    return FB_OK;
}

fb_status fb_bundle_open(fb_bundle **out, const char *folder, fb_error *err)
{
    return fb_bundle_open_on(fb_os_posix(), out, folder, err);
}

void fb_bundle_close(fb_bundle *bundle)
{
    if (!bundle) return;
    for (uint32_t i = 0; i < bundle->read_count; i++) fb_part_release(&bundle->parts[i]);
    fb_free(bundle->parts);
    fb_manifest_release(&bundle->manifest);
    fb_free(bundle);
}

/* ---- asking ------------------------------------------------------------------------------------------------------------------ */

int32_t fb_bundle_world(const fb_bundle *bundle)
{
    return bundle ? bundle->manifest.world : 0;
}

int64_t fb_bundle_step(const fb_bundle *bundle)
{
    return bundle ? bundle->manifest.step : -1;
}

const char *fb_bundle_folder(const fb_bundle *bundle)
{
    return bundle ? bundle->folder : "";
}

const char *fb_bundle_run_id(const fb_bundle *bundle)
{
    return bundle ? bundle->manifest.run_id : "";
}

const char *fb_bundle_case_id(const fb_bundle *bundle)
{
    return bundle ? bundle->manifest.case_id : "";
}

static const fb_part *part_of(const fb_bundle *bundle, int32_t rank)
{
    uint32_t low = 0, high = bundle ? bundle->read_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const fb_part *part = &bundle->parts[middle];
        if (part->rank == rank) return part;
        if (part->rank < rank) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

int fb_bundle_has_rank(const fb_bundle *bundle, int32_t rank)
{
    return part_of(bundle, rank) != NULL;
}

/* NULL: *status says why. */
static const fb_part_tensor *find(const fb_bundle *bundle, int32_t rank, int32_t part, const char *name, fb_status *status,
                                  fb_error *err)
{
    const fb_part *p = part_of(bundle, rank);
    const fb_part_tensor *found = NULL;
    *status = FB_OK;
    if (!bundle || !name || !fb_bundle_part_name(part)) {
        *status = fb_fail(err, FB_E_USAGE, "look into a bundle: an argument is missing");
        return NULL;
    }
    if (p) found = fb_part_find(p, part, name);
    if (!found) {
        *status = fb_fail(err, FB_E_NOTFOUND, "look into bundle %s: rank %d has no %s tensor %.200s", bundle->folder, (int)rank,
                          fb_bundle_part_name(part), name);
    }
    return found;
}

static uint64_t count_of(const fb_part_tensor *tensor)
{
    uint64_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) count *= (uint64_t)tensor->shape[i]; /* was seen to fit when it was read */
    return count;
}

fb_status fb_bundle_find(const fb_bundle *bundle, int32_t rank, int32_t part, const char *name, int32_t *dtype, int32_t *ndim,
                         int64_t *shape, uint64_t *count, fb_error *err)
{
    fb_status status;
    const fb_part_tensor *tensor = find(bundle, rank, part, name, &status, err);
    if (!tensor) return status;
    if (dtype) *dtype = tensor->dtype;
    if (ndim) *ndim = tensor->ndim;
    if (shape) memcpy(shape, tensor->shape, sizeof tensor->shape);
    if (count) *count = count_of(tensor);
    return FB_OK;
}

static fb_status read_tensor(const fb_bundle *bundle, int32_t rank, const fb_part_tensor *tensor, void *data, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX], path[FB_OS_PATH_MAX];
    fb_ckpt_file file;
    uint64_t found;
    fb_status status;
    fb_bundle_file_name(name, tensor->part, rank);
    if ((status = fb_os_join(path, sizeof path, bundle->folder, name, err)) != FB_OK) return status;
    if ((status = fb_ckpt_file_open(&file, bundle->os, path, 4096, err)) != FB_OK) return status;
    status = fb_ckpt_file_read(&file, tensor->offset_bytes, data, (size_t)tensor->bytes, err);
    fb_ckpt_file_close(&file);
    if (status != FB_OK) return status;
    found = fb_hash64(data, (size_t)tensor->bytes, 0);
    if (found != tensor->xxh3) {
        return fb_fail_at(
            err, tensor->offset_bytes,
            "read %s: tensor %.200s was captured with XXH3 0x%016llx, found 0x%016llx: it was changed since the bundle "
            "was opened",
            path, tensor->name, (unsigned long long)tensor->xxh3, (unsigned long long)found);
    }
    return FB_OK;
}

fb_status fb_bundle_get(const fb_bundle *bundle, int32_t rank, int32_t part, const char *name, int32_t dtype, uint64_t count,
                        void *data, fb_error *err)
{
    fb_status status;
    const fb_part_tensor *tensor = find(bundle, rank, part, name, &status, err);
    if (!tensor) return status;
    if (tensor->dtype != dtype) {
        return fb_fail(err, FB_E_DTYPE, "take %.200s out of bundle %s: it is %s, asked for is %s", name, bundle->folder,
                       fb_dtype_name(tensor->dtype), fb_dtype_name(dtype) ? fb_dtype_name(dtype) : "an unknown format");
    }
    if (count_of(tensor) != count || (count > 0 && !data)) {
        return fb_fail(err, FB_E_USAGE, "take %.200s out of bundle %s: it has %llu elements, asked for are %llu", name,
                       bundle->folder, (unsigned long long)count_of(tensor), (unsigned long long)count);
    }
    return count > 0 ? read_tensor(bundle, rank, tensor, data, err) : FB_OK;
}

/* NULL: *status says why. */
static const fb_part_value *value_of(const fb_bundle *bundle, int32_t rank, const char *key, fb_status *status, fb_error *err)
{
    const fb_part *part = part_of(bundle, rank);
    const fb_part_value *found = NULL;
    *status = FB_OK;
    if (!bundle || !key) {
        *status = fb_fail(err, FB_E_USAGE, "look into a bundle: an argument is missing");
        return NULL;
    }
    if (part) found = fb_part_value_of(part, key);
    if (!found) {
        *status = fb_fail(err, FB_E_NOTFOUND, "look into bundle %s: rank %d has no value %.100s", bundle->folder, (int)rank, key);
    }
    return found;
}

fb_status fb_bundle_number(const fb_bundle *bundle, int32_t rank, const char *key, double *value, fb_error *err)
{
    fb_status status;
    const fb_part_value *found = value_of(bundle, rank, key, &status, err);
    if (!found) return status;
    if (found->kind == FB_VALUE_TEXT || !value)
        return fb_fail(err, FB_E_DTYPE, "look into bundle %s: value %.100s is no number", bundle->folder, key);
    if (found->kind == FB_VALUE_INTEGER) *value = (double)found->integer;
    else memcpy(value, &found->number, sizeof *value);
    return FB_OK;
}

fb_status fb_bundle_integer(const fb_bundle *bundle, int32_t rank, const char *key, int64_t *value, fb_error *err)
{
    fb_status status;
    const fb_part_value *found = value_of(bundle, rank, key, &status, err);
    if (!found) return status;
    if (found->kind != FB_VALUE_INTEGER || !value)
        return fb_fail(err, FB_E_DTYPE, "look into bundle %s: value %.100s is no integer", bundle->folder, key);
    *value = found->integer;
    return FB_OK;
}

const char *fb_bundle_text(const fb_bundle *bundle, int32_t rank, const char *key)
{
    const fb_part *part = part_of(bundle, rank);
    const fb_part_value *found = part && key ? fb_part_value_of(part, key) : NULL;
    return found && found->kind == FB_VALUE_TEXT ? found->text : NULL;
}

fb_status fb_bundle_parent(const fb_bundle *bundle, const char **path, int64_t *step, int32_t *exact, fb_error *err)
{
    if (!bundle) return fb_fail(err, FB_E_USAGE, "look into a bundle: there is none");
    for (uint32_t i = 0; i < bundle->read_count; i++) {
        const fb_part *part = &bundle->parts[i];
        if (!part->parent_path) continue;
        if (path) *path = part->parent_path;
        if (step) *step = part->parent_step;
        if (exact) *exact = part->parent_exact;
        return FB_OK;
    }
    return fb_fail(err, FB_E_NOTFOUND, "look into bundle %s: it names no parent checkpoint", bundle->folder);
}

const char *const *fb_bundle_command(const fb_bundle *bundle, const char **cwd)
{
    if (cwd) *cwd = NULL;
    for (uint32_t i = 0; bundle && i < bundle->read_count; i++) {
        const fb_part *part = &bundle->parts[i];
        if (!part->command) continue;
        if (cwd) *cwd = part->cwd;
        return part->command;
    }
    return NULL;
}

fb_status fb_bundle_left_out(const fb_bundle *bundle, int32_t rank, uint32_t index, int32_t *part, const char **name,
                             uint64_t *bytes, fb_error *err)
{
    const fb_part *p = part_of(bundle, rank);
    if (!p || index >= p->left_count) return fb_fail(err, FB_E_NOTFOUND, "look into a bundle: no more was left out");
    if (part) *part = p->left[index].part;
    if (name) *name = p->left[index].name;
    if (bytes) *bytes = p->left[index].bytes;
    return FB_OK;
}
