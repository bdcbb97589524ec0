#include "bundle/check.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "ckpt/reader.h"

enum { BUFFER_BYTES = 1 << 20 };

fb_status fb_bundle_there(const fb_os *os, const char *folder, const char *name, int *there, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    int64_t got;
    fb_status status = fb_os_join(path, sizeof path, folder, name, err);
    *there = 0;
    if (status != FB_OK) return status;
    got = os->lstat(os->ctx, path, &info);
    if (got < 0 && got != -ENOENT && got != -ENOTDIR) return fb_fail_os(err, (int)-got, "look for %s", path);
    *there = got >= 0;
    return FB_OK;
}

/* ---- a file of tensors ------------------------------------------------------------------------------------------------------- */

typedef struct look {
    fb_part *part;
    int32_t which;
    const char *path;
    fb_ckpt_file file;
    void *table; /* state of the reader */
} look;

static int same_shape(const fb_part_tensor *tensor, const fb_ckpt_tensor *found)
{
    if (tensor->dtype != found->dtype || tensor->ndim != found->ndim) return 0;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if ((uint64_t)tensor->shape[i] != found->shape[i]) return 0;
    }
    return 1;
}

static fb_status hash_tensor(look *l, fb_part_tensor *tensor, fb_error *err)
{
    fb_hash_stream *hash = fb_hash_stream_new();
    uint64_t done = 0;
    fb_status status = FB_OK;
    if (!hash) return fb_fail(err, FB_E_NOMEM, "read %s: no memory to hash it", l->path);
    while (done < tensor->bytes && status == FB_OK) {
        const uint8_t *data;
        size_t bytes;
        status = fb_ckpt_file_view(&l->file, tensor->offset_bytes + done, 1, &data, &bytes, err);
        if (status != FB_OK) break;
        if (bytes > tensor->bytes - done) bytes = (size_t)(tensor->bytes - done);
        fb_hash_stream_add(hash, data, bytes);
        done += bytes;
    }
    if (status == FB_OK && fb_hash_stream_digest(hash) != tensor->xxh3) {
        status =
            fb_fail_at(err, tensor->offset_bytes, "read %s: tensor %.200s was captured with XXH3 0x%016llx, found 0x%016llx",
                       l->path, tensor->name, (unsigned long long)tensor->xxh3, (unsigned long long)fb_hash_stream_digest(hash));
    }
    fb_hash_stream_free(hash);
    return status;
}

static fb_status check_tensor(look *l, const fb_ckpt_extent *extent, const fb_ckpt_tensor *found, fb_error *err)
{
    fb_part_tensor *tensor = fb_part_find(l->part, l->which, found->name);
    if (!tensor || !same_shape(tensor, found)) {
        return fb_fail(err, FB_E_CORRUPT, "read %s: tensor %.200s is not what the bundle lists", l->path, found->name);
    }
    tensor->seen = 1;
    tensor->offset_bytes = extent->offset_bytes + found->offset_bytes;
    return hash_tensor(l, tensor, err);
}

static fb_status check_tensors(look *l, fb_error *err)
{
    fb_ckpt_range range = {&l->file, 0, l->file.info.size_bytes, NULL};
    fb_ckpt_options options;
    fb_ckpt_extent extent;
    fb_status status;
    memset(&options, 0, sizeof options);
    if ((status = fb_ckpt_safetensors.open(&l->table, &range, &options, err)) != FB_OK) return status;
    while ((status = fb_ckpt_safetensors.next(l->table, &extent, err)) == FB_OK) {
        for (uint64_t i = 0; i < extent.tensor_count && status == FB_OK; i++)
            status = check_tensor(l, &extent, &extent.tensors[i], err);
        if (status != FB_OK) return status;
    }
    if (status != FB_E_NOTFOUND) return status;
    for (uint32_t i = 0; i < l->part->tensor_count; i++) {
        const fb_part_tensor *tensor = &l->part->tensors[i];
        if (tensor->part == l->which && !tensor->seen)
            return fb_fail(err, FB_E_CORRUPT, "read %s: tensor %.200s is missing", l->path, tensor->name);
    }
    return FB_OK;
}

/* What is wrong with the file as a whole is told before what that did to its insides. */
static fb_status check_open_file(look *l, fb_error *err)
{
    const fb_part_file *expected = &l->part->files[l->which];
    fb_error inside;
    uint64_t digest = 0;
    fb_status status, finished;
    if (l->file.info.size_bytes != expected->bytes) {
        return fb_fail_at(err, l->file.info.size_bytes, "read %s: it was captured with %llu bytes, found %llu", l->path,
                          (unsigned long long)expected->bytes, (unsigned long long)l->file.info.size_bytes);
    }
    fb_error_clear(&inside);
    status = check_tensors(l, &inside);
    if (status == FB_E_NOMEM || status == FB_E_IO) {
        if (err) *err = inside;
        return status;
    }
    if ((finished = fb_ckpt_file_finish(&l->file, &digest, err)) != FB_OK) return finished;
    if (digest != expected->xxh3) {
        return fb_fail(err, FB_E_CORRUPT, "read %s: it was captured with XXH3 0x%016llx, found 0x%016llx: its bytes were changed",
                       l->path, (unsigned long long)expected->xxh3, (unsigned long long)digest);
    }
    if (status != FB_OK && err) *err = inside;
    return status;
}

static fb_status check_file(fb_part *part, const fb_os *os, const char *folder, int32_t which, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX], path[FB_OS_PATH_MAX];
    look l;
    fb_status status;
    memset(&l, 0, sizeof l);
    l.part = part;
    l.which = which;
    l.path = path;
    fb_bundle_file_name(name, which, part->rank);
    if ((status = fb_os_join(path, sizeof path, folder, name, err)) != FB_OK) return status;
    status = fb_ckpt_file_open(&l.file, os, path, BUFFER_BYTES, err);
    if (status == FB_E_NOTFOUND) {
        return fb_fail(err, FB_E_CORRUPT, "read %s: the file is missing; it was captured with %llu bytes", path,
                       (unsigned long long)part->files[which].bytes);
    }
    if (status == FB_OK) {
        status = check_open_file(&l, err);
        fb_ckpt_safetensors.close(l.table);
        fb_ckpt_file_close(&l.file);
    }
    if (status == FB_E_UNSUPPORTED) {
        status = FB_E_CORRUPT;
        if (err) err->code = status;
    }
    return status;
}

/* ---- a part ------------------------------------------------------------------------------------------------------------------ */

static fb_status check_text(const char *path, const char *text, size_t bytes, const fb_manifest_part *expected, fb_error *err)
{
    uint64_t found = fb_hash64(text, bytes, 0);
    if (!expected) return FB_OK;
    if (bytes != expected->bytes) {
        return fb_fail_at(err, bytes, "read %s: it was sealed with %llu bytes, found %zu", path,
                          (unsigned long long)expected->bytes, bytes);
    }
    if (found != expected->xxh3) {
        return fb_fail(err, FB_E_CORRUPT, "read %s: it was sealed with XXH3 0x%016llx, found 0x%016llx: its bytes were changed",
                       path, (unsigned long long)expected->xxh3, (unsigned long long)found);
    }
    return FB_OK;
}

/* Tensors of a file that is not listed would never be looked at. */
static fb_status check_files(fb_part *part, const fb_os *os, const char *folder, fb_error *err)
{
    fb_status status = FB_OK;
    for (int32_t which = 1; which < FB_BUNDLE_PARTS && status == FB_OK; which++) {
        if (part->files[which].there) status = check_file(part, os, folder, which, err);
    }
    return status;
}

fb_status fb_part_read(fb_part *part, const fb_os *os, const char *folder, int32_t rank, const fb_manifest_part *expected,
                       fb_manifest_part *out_line, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX], path[FB_OS_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    fb_status status;
    memset(part, 0, sizeof *part);
    fb_bundle_file_name(name, 0, rank);
    if ((status = fb_os_join(path, sizeof path, folder, name, err)) != FB_OK) return status;
    status = fb_os_read_file(os, path, FB_BUNDLE_JSON_BYTES_MAX, &text, &bytes, err);
    if (status == FB_OK) status = check_text(path, text, bytes, expected, err);
    if (status == FB_OK) status = fb_part_parse(part, text, bytes, path, err);
    if (status == FB_OK && part->rank != rank) {
        status = fb_fail(err, FB_E_CORRUPT, "read %s: it is of rank %d", path, (int)part->rank);
    }
    if (status == FB_OK) status = check_files(part, os, folder, err);
    if (status == FB_OK && out_line) {
        out_line->rank = rank;
        out_line->bytes = bytes;
        out_line->xxh3 = fb_hash64(text, bytes, 0);
    }
    if (status != FB_OK) fb_part_release(part);
    fb_free(text);
    return status;
}
