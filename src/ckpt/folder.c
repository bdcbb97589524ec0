/*
 * A folder as one checkpoint: all files in it, in the order of their names, and what an index or the numbering of the shards says
 * must be there. A checkpoint with a shard missing, or with a file in it that nobody looked at, is never clean.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash_stream.h"
#include "ckpt/index.h"
#include "ckpt/order.h"
#include "ckpt/scan.h"

static const uint64_t FILES_MAX = 100000;
static const char INDEX_NAMES[] = "*.safetensors.index.json";

typedef struct folder {
    fb_ckpt_scan *scan;
    const char *path;
    char **names;
    uint64_t count, room, count_max;
    uint32_t *order;
    fb_hash_stream *digest;
    fb_ckpt_index **indices;
    uint64_t index_count;
    const char *current; /* name of the file that is being scanned */
    fb_status status;    /* of what happened inside callbacks */
    fb_error *err;
} folder;

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

static int64_t take_name(void *arg, const char *name)
{
    folder *f = arg;
    if (f->count == f->count_max) {
        f->status = fb_fail(f->err, FB_E_LIMIT, "scan %s: more than %llu files", f->path, (unsigned long long)f->count_max);
        return 1;
    }
    if (f->count == f->room) {
        uint64_t room = f->room ? f->room * 2 : 64;
        char **grown = fb_realloc(f->names, (size_t)room * sizeof *grown);
        if (!grown) f->status = fb_fail(f->err, FB_E_NOMEM, "scan %s: no memory for %llu names", f->path, (unsigned long long)room);
        if (!grown) return 1;
        f->names = grown;
        f->room = room;
    }
    f->names[f->count] = fb_strdup(name);
    if (!f->names[f->count]) f->status = fb_fail(f->err, FB_E_NOMEM, "scan %s: no memory for a name", f->path);
    if (!f->names[f->count]) return 1;
    f->count++;
    return 0;
}

static int compare_names(const void *ctx, uint32_t a, uint32_t b)
{
    const folder *f = ctx;
    return strcmp(f->names[a], f->names[b]);
}

static fb_status list(folder *f, fb_error *err)
{
    const fb_os *os = f->scan->os;
    int64_t got;
    f->err = err;
    got = os->list(os->ctx, f->path, take_name, f);
    if (f->status != FB_OK) return f->status;
    if (got < 0) return fb_fail_os(err, (int)-got, "list folder %s", f->path);
    f->order = fb_calloc((size_t)f->count, sizeof *f->order);
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    f->indices = fb_calloc((size_t)f->count, sizeof *f->indices);
    f->digest = fb_hash_stream_new();
    if (!f->order || !f->indices || !f->digest) {
        return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for %llu files", f->path, (unsigned long long)f->count);
    }
    for (uint64_t i = 0; i < f->count; i++) f->order[i] = (uint32_t)i;
    fb_ckpt_sort(f->order, f->count, compare_names, f);
    return FB_OK;
}

static void release(folder *f)
{
    for (uint64_t i = 0; i < f->count; i++) fb_free(f->names[i]);
    for (uint64_t i = 0; i < f->index_count; i++) fb_ckpt_index_free(f->indices[i]);
    fb_free(f->names);
    fb_free(f->order);
    fb_free(f->indices);
    fb_hash_stream_free(f->digest);
}

static void digest_file(folder *f, const char *name, uint64_t size_bytes, uint64_t digest)
{
    uint8_t numbers[16];
    for (unsigned i = 0; i < 8; i++) {
        numbers[i] = (uint8_t)(size_bytes >> (8 * i));
        numbers[8 + i] = (uint8_t)(digest >> (8 * i));
    }
    fb_hash_stream_add(f->digest, name, strlen(name) + 1);
    fb_hash_stream_add(f->digest, numbers, sizeof numbers);
}

/* ---- what must be there ----------------------------------------------------------------------------------------------------- */

static int has_file(const folder *f, const char *name)
{
    uint64_t low = 0, high = f->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(f->names[f->order[middle]], name);
        if (order == 0) return 1;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return 0;
}

/* Indices are read first: what they say is compared with each tensor as it passes. */
static fb_status load_indices(folder *f, fb_error *err)
{
    for (uint64_t i = 0; i < f->count; i++) {
        const char *name = f->names[f->order[i]];
        char path[FB_OS_PATH_MAX];
        uint64_t size = 0, digest = 0;
        fb_error reason;
        fb_status status;
        if (!fb_ckpt_name_fits(INDEX_NAMES, name)) continue;
        if ((status = fb_os_join(path, sizeof path, f->path, name, err)) != FB_OK) return status;
        status = fb_ckpt_index_load(&f->indices[f->index_count], f->scan->os, path, &size, &digest, &reason);
        if (status == FB_OK) {
            f->index_count++;
        } else if (fb_ckpt_outcome_of(status) >= 0) {
            fb_ckpt_scan_outcome(f->scan, fb_ckpt_outcome_of(status), &reason);
        } else {
            if (err) *err = reason;
            return status;
        }
        digest_file(f, name, size, digest);
    }
    return FB_OK;
}

static void incomplete(folder *f, const fb_error *reason)
{
    fb_ckpt_scan_outcome(f->scan, FB_CKPT_UNREADABLE, reason);
}

static void check_shards_of(folder *f, const fb_ckpt_index *index)
{
    const char *name;
    fb_error reason;
    for (uint64_t i = 0; (name = fb_ckpt_index_file(index, i)) != NULL; i++) {
        if (has_file(f, name)) continue;
        (void)fb_fail(&reason, FB_E_CORRUPT, "scan %s: the index names the file %.200s, which is missing", f->path, name);
        incomplete(f, &reason);
    }
}

/* "model-00002-of-00003.safetensors": the parts of such a name. 1 if it is one. */
static int shard_number(const char *name, size_t *stem, unsigned long *number, unsigned long *of)
{
    const char *tail = strstr(name, ".safetensors");
    const char *digits;
    char *end;
    size_t n = tail ? (size_t)(tail - name) : 0;
    if (!tail || strcmp(tail, ".safetensors") != 0 || n < 15) return 0;
    digits = tail - 15; /* "-00002-of-00003" */
    if (digits[0] != '-' || strncmp(digits + 6, "-of-", 4) != 0) return 0;
    for (int i = 1; i < 15; i++) {
        if (i >= 6 && i < 10) continue;
        if (digits[i] < '0' || digits[i] > '9') return 0;
    }
    *number = strtoul(digits + 1, &end, 10);
    *of = strtoul(digits + 10, &end, 10);
    *stem = n - 15;
    return 1;
}

/* Without an index the numbering itself says how many there must be. Each shard asks for the next one, so one missing is found
 * once. */
static void check_numbering(folder *f)
{
    for (uint64_t i = 0; i < f->count; i++) {
        const char *name = f->names[i];
        unsigned long number, of;
        size_t stem;
        char next[FB_OS_PATH_MAX];
        fb_error reason;
        if (!shard_number(name, &stem, &number, &of) || stem > 1000) continue;
        number = number >= of ? 1 : number + 1; /* round, so that a missing first one is asked for too */
        (void)snprintf(next, sizeof next, "%.*s-%05lu-of-%05lu.safetensors", (int)stem, name, number, of);
        if (has_file(f, next)) continue;
        (void)fb_fail(&reason, FB_E_CORRUPT, "scan %s: by its name %.200s has %lu parts, and %.200s is missing", f->path, name, of,
                      next);
        incomplete(f, &reason);
    }
}

/* ---- tensors against the index ---------------------------------------------------------------------------------------------- */

static void meet_tensor(void *ctx, const char *tensor)
{
    folder *f = ctx;
    char text[FB_CKPT_NAME_MAX];
    for (uint64_t i = 0; i < f->index_count; i++) {
        const char *file;
        if (!fb_ckpt_index_names_file(f->indices[i], f->current)) continue;
        file = fb_ckpt_index_meet(f->indices[i], tensor, f->current);
        if (file && strcmp(file, f->current) == 0) continue;
        if (file) (void)snprintf(text, sizeof text, "tensor %.400s is here, and the index puts it into %.400s", tensor, file);
        else (void)snprintf(text, sizeof text, "tensor %.400s is here, and the index does not list it", tensor);
        if (f->scan->sink.note) f->scan->sink.note(f->scan->sink.ctx, f->current, text);
    }
}

static void check_missing_tensors(folder *f, const fb_ckpt_index *index)
{
    uint64_t count;
    const char *file, *tensor = fb_ckpt_index_missing(index, &file, &count);
    fb_error reason;
    if (!tensor) return;
    (void)fb_fail(&reason, FB_E_CORRUPT,
                  "scan %s: %llu tensors are not where the index says, first %.200s, which should be in %.200s", f->path,
                  (unsigned long long)count, tensor, file);
    incomplete(f, &reason);
}

/* ---- the folder ------------------------------------------------------------------------------------------------------------- */

static fb_status scan_files(folder *f, fb_error *err)
{
    for (uint64_t i = 0; i < f->count; i++) {
        char path[FB_OS_PATH_MAX];
        uint64_t size, digest;
        int is_part, how;
        fb_status status;
        f->current = f->names[f->order[i]];
        if (fb_ckpt_name_fits(INDEX_NAMES, f->current)) continue;
        if ((status = fb_os_join(path, sizeof path, f->path, f->current, err)) != FB_OK) return status;
        how = fb_ckpt_name_fits("*.safetensors", f->current) ? FB_CKPT_EXPECTED : FB_CKPT_BESIDE;
        if ((status = fb_ckpt_scan_file(f->scan, path, how, &is_part, &size, &digest, err)) != FB_OK) return status;
        if (is_part) digest_file(f, f->current, size, digest);
    }
    return FB_OK;
}

static fb_status scan_listed(folder *f, fb_error *err)
{
    fb_status status = load_indices(f, err);
    if (status != FB_OK) return status;
    for (uint64_t i = 0; i < f->index_count; i++) check_shards_of(f, f->indices[i]);
    check_numbering(f);
    f->scan->on_tensor = meet_tensor;
    f->scan->on_tensor_ctx = f;
    if ((status = scan_files(f, err)) != FB_OK) return status;
    for (uint64_t i = 0; i < f->index_count; i++) check_missing_tensors(f, f->indices[i]);
    f->scan->summary->digest = fb_hash_stream_digest(f->digest);
    return FB_OK;
}

/* A file that came or went while the others were read would be missing from the verdict. */
static fb_status still_the_same(const folder *f, const fb_os_info *before, fb_error *err)
{
    fb_os_info now;
    int64_t got = f->scan->os->stat(f->scan->os->ctx, f->path, &now);
    if (got < 0) return fb_fail_os(err, (int)-got, "scan %s: look at the folder once more", f->path);
    if (now.inode != before->inode || now.device != before->device || now.mtime_ns != before->mtime_ns) {
        return fb_fail_at(err, 0, "scan %s: files came or went while it was read", f->path);
    }
    return FB_OK;
}

fb_status fb_ckpt_scan_folder(fb_ckpt_scan *scan, const char *path, fb_error *err)
{
    folder f;
    fb_os_info before;
    fb_status status;
    int64_t got = scan->os->stat(scan->os->ctx, path, &before);
    if (got < 0) return fb_fail_os(err, (int)-got, "scan %s", path);
    if (scan->options.sync && (got = fb_os_sync_dir(scan->os, path)) < 0)
        return fb_fail_os(err, (int)-got, "make folder %s durable", path);
    memset(&f, 0, sizeof f);
    f.scan = scan;
    f.path = path;
    f.count_max = scan->options.files_max ? scan->options.files_max : FILES_MAX;
    status = list(&f, err);
    if (status == FB_OK) status = scan_listed(&f, err);
    if (status == FB_OK) {
        fb_error reason;
        status = still_the_same(&f, &before, &reason);
        if (status == FB_E_CORRUPT) incomplete(&f, &reason);
        else if (status != FB_OK && err) *err = reason;
        if (status == FB_E_CORRUPT) status = FB_OK;
    }
    release(&f);
    if (status == FB_E_LIMIT) {
        fb_error reason;
        if (err) reason = *err;
        else (void)fb_fail(&reason, FB_E_LIMIT, "scan %s: too many files, or a path that is too long", path);
        fb_ckpt_scan_outcome(scan, FB_CKPT_LIMIT, &reason);
        fb_error_clear(err);
        status = FB_OK;
    }
    return status;
}
