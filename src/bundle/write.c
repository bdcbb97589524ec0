/*
 * One rank's part. Tensors are copied when they are handed over and written when the part is finished: a trainer that is about to
 * replay needs its memory back in any case, and a part that was not finished leaves nothing to clean up.
 *
 * On disk: .r00000.lock is held from create to finish, so that two writers of one rank cannot mix their files; then the files of
 * tensors, each renamed into place; last part-r00000.json, which is never replaced. Without that text the files mean nothing, and
 * the next writer of this rank replaces them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "bundle/check.h"
#include "bundle/inside.h"
#include "ckpt/safetensors_write.h"

enum { LOCK_TRIES_MAX = 16 };
static const uint64_t BYTES_MAX = 1ull << 30;

struct fb_bundle_writer {
    const fb_os *os;
    fb_part part;
    uint64_t bytes, bytes_max;
    uint32_t *slot; /* [slots], a power of two: a table from (part, name) to a tensor's number plus one; 0: free */
    uint32_t slots;
    int lock_fd; /* -1: none */
    char folder[FB_OS_PATH_MAX], lock_path[FB_OS_PATH_MAX];
};

/* ---- the lock ---------------------------------------------------------------------------------------------------------------- */

/* 1: the file that is locked is still the one of that name, and not one that its last holder has removed. */
static int is_named(const fb_bundle_writer *writer)
{
    fb_os_info named, held;
    return writer->os->stat(writer->os->ctx, writer->lock_path, &named) == 0 &&
           writer->os->fstat(writer->os->ctx, writer->lock_fd, &held) == 0 && named.device == held.device &&
           named.inode == held.inode;
}

static int has_no_locks(int64_t got)
{
    return got == -ENOLCK || got == -ENOSYS || got == -EOPNOTSUPP || got == -EINVAL;
}

static fb_status take_lock(fb_bundle_writer *writer, fb_error *err)
{
    const fb_os *os = writer->os;
    for (int i = 0; i < LOCK_TRIES_MAX; i++) {
        int64_t got = fb_os_open(os, writer->lock_path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
        if (got < 0) return fb_fail_os(err, (int)-got, "open lock %s", writer->lock_path);
        writer->lock_fd = (int)got;
        got = fb_os_lock(os, writer->lock_fd, FB_OS_LOCK);
        if (got == 0 && is_named(writer)) return FB_OK;
        if (has_no_locks(got)) return FB_OK; /* part-r00000.json is put in place once all the same */
        (void)os->close(os->ctx, writer->lock_fd);
        writer->lock_fd = -1;
        if (got == -EAGAIN) break;
        if (got < 0) return fb_fail_os(err, (int)-got, "lock %s", writer->lock_path);
    }
    return fb_fail(err, FB_E_EXISTS, "capture into %s: somebody else is writing the part of rank %d", writer->folder,
                   (int)writer->part.rank);
}

static void give_lock(fb_bundle_writer *writer)
{
    if (writer->lock_fd < 0) return;
    (void)writer->os->unlink(writer->os->ctx, writer->lock_path); /* before it is let go, so that nobody gets it in between */
    (void)fb_os_lock(writer->os, writer->lock_fd, FB_OS_UNLOCK);
    (void)writer->os->close(writer->os->ctx, writer->lock_fd);
    writer->lock_fd = -1;
}

/* ---- create ------------------------------------------------------------------------------------------------------------------ */

static fb_status check_config(const fb_bundle_config *config, fb_error *err)
{
    if (!config->folder || !config->folder[0]) return fb_fail(err, FB_E_USAGE, "capture a bundle: config.folder is missing");
    if (config->world < 1 || config->world > FB_BUNDLE_WORLD_MAX || config->rank < 0 || config->rank >= config->world) {
        return fb_fail(err, FB_E_USAGE, "capture into %s: rank %d of %d", config->folder, (int)config->rank, (int)config->world);
    }
    if (config->step < 0) {
        return fb_fail(err, FB_E_USAGE, "capture into %s: step %lld", config->folder, (long long)config->step);
    }
    return FB_OK;
}

/* A text that lives as long as the writer. */
static fb_status keep(fb_bundle_writer *writer, const char **to, const char *text, fb_error *err)
{
    char *copy = fb_pool_text(&writer->part.pool, text, strlen(text));
    if (!copy) return fb_fail(err, FB_E_NOMEM, "capture into %s: no memory for a text", writer->folder);
    *to = copy;
    return FB_OK;
}

static fb_status prepare(fb_bundle_writer *writer, const fb_bundle_config *config, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX];
    fb_status status;
    if (strlen(config->folder) >= sizeof writer->folder) {
        return fb_fail(err, FB_E_LIMIT, "capture into %.64s...: a path of more than %d bytes", config->folder, FB_OS_PATH_MAX - 1);
    }
    (void)snprintf(writer->folder, sizeof writer->folder, "%s", config->folder);
    writer->part.rank = config->rank;
    writer->part.world = config->world;
    writer->part.step = config->step;
    writer->bytes_max = config->bytes_max ? config->bytes_max : BYTES_MAX;
    (void)snprintf(name, sizeof name, ".r%05d.lock", (int)config->rank);
    status = fb_os_join(writer->lock_path, sizeof writer->lock_path, writer->folder, name, err);
    if (status == FB_OK) status = keep(writer, &writer->part.run_id, config->run_id ? config->run_id : "", err);
    if (status == FB_OK) status = keep(writer, &writer->part.case_id, config->case_id ? config->case_id : "", err);
    return status;
}

/* Nothing of this rank may be there yet, and the bundle may not be closed. */
static fb_status check_free(const fb_bundle_writer *writer, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX];
    int sealed = 0, there = 0;
    fb_status status = fb_bundle_there(writer->os, writer->folder, FB_BUNDLE_MANIFEST, &sealed, err);
    fb_bundle_file_name(name, 0, writer->part.rank);
    if (status == FB_OK) status = fb_bundle_there(writer->os, writer->folder, name, &there, err);
    if (status == FB_OK && sealed) status = fb_fail(err, FB_E_EXISTS, "capture into %s: the bundle is sealed", writer->folder);
    if (status == FB_OK && there) status = fb_fail(err, FB_E_EXISTS, "capture into %s: %s is there already", writer->folder, name);
    return status;
}

static void free_writer(fb_bundle_writer *writer)
{
    if (!writer) return;
    give_lock(writer);
    fb_part_release(&writer->part);
    fb_free(writer->slot);
    fb_free(writer);
}

fb_status fb_bundle_create_on(const fb_os *os, fb_bundle_writer **out, const fb_bundle_config *given, fb_error *err)
{
    fb_bundle_config config = FB_BUNDLE_CONFIG_INIT;
    fb_bundle_writer *writer;
    fb_status status;
    if (out) *out = NULL;
    if (!out || !given || given->size < offsetof(fb_bundle_config, bytes_max) || given->size > 1u << 16) {
        return fb_fail(err, FB_E_USAGE, "capture a bundle: an argument is missing, or config.size is wrong");
    }
    memcpy(&config, given, given->size < sizeof config ? given->size : sizeof config);
    if ((status = check_config(&config, err)) != FB_OK) return status;
    writer = fb_calloc(1, sizeof *writer);
    if (!writer) return fb_fail(err, FB_E_NOMEM, "capture into %s: no memory", config.folder);
    writer->os = os;
    writer->lock_fd = -1;
    status = prepare(writer, &config, err);
    if (status == FB_OK) status = fb_os_mkdirs(os, writer->folder, err);
    if (status == FB_OK) status = take_lock(writer, err);
    if (status == FB_OK) status = check_free(writer, err);
    if (status != FB_OK) {
        free_writer(writer);
        return status;
    }
    *out = writer;
    return FB_OK;
}

fb_status fb_bundle_create(fb_bundle_writer **out, const fb_bundle_config *config, fb_error *err)
{
    return fb_bundle_create_on(fb_os_posix(), out, config, err);
}

/* ---- what is put in ---------------------------------------------------------------------------------------------------------- */

static int is_plain(const char *name)
{
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) return 0;
    }
    return name[0] && strcmp(name, "__metadata__") != 0;
}

/* The slot that holds the tensor of this name, or the free one where it would go. The table is never more than half full. */
static uint32_t *slot_of(const fb_bundle_writer *writer, int32_t part, const char *name)
{
    uint32_t at = (uint32_t)fb_hash64(name, strlen(name), (uint64_t)part) & (writer->slots - 1);
    for (; writer->slot[at] != 0; at = (at + 1) & (writer->slots - 1)) {
        const fb_part_tensor *tensor = &writer->part.tensors[writer->slot[at] - 1];
        if (tensor->part == part && strcmp(tensor->name, name) == 0) break;
    }
    return &writer->slot[at];
}

/* Room in the table for one more. 0: no memory. */
static int make_slot(fb_bundle_writer *writer)
{
    uint32_t *before = writer->slot, slots = writer->slots ? 2 * writer->slots : 64;
    if (2 * ((uint64_t)writer->part.tensor_count + 1) <= writer->slots) return 1;
    if (slots < writer->slots || !(writer->slot = fb_calloc(slots, sizeof *writer->slot))) {
        writer->slot = before;
        return 0;
    }
    writer->slots = slots;
    for (uint32_t i = 0; i < writer->part.tensor_count; i++)
        *slot_of(writer, writer->part.tensors[i].part, writer->part.tensors[i].name) = i + 1;
    fb_free(before);
    return 1;
}

static fb_status check_put(const fb_bundle_writer *writer, int32_t part, const char *name, int32_t dtype, int32_t ndim,
                           const int64_t *shape, const void *data, uint64_t *bytes, fb_error *err)
{
    uint64_t count = 1;
    if (!writer || !fb_bundle_part_name(part) || !name || !is_plain(name) || ndim < 0 || ndim > FB_DIMS_MAX ||
        (ndim > 0 && !shape)) {
        return fb_fail(err, FB_E_USAGE, "put tensor %.200s into a bundle: part %d, %d dimensions", name ? name : "(no name)",
                       (int)part, (int)ndim);
    }
    if (!fb_safetensors_dtype(dtype)) {
        return fb_fail(err, FB_E_DTYPE, "put tensor %.200s into a bundle: safetensors has no format number %d", name, (int)dtype);
    }
    for (int32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(count, (uint64_t)shape[i], &count)) {
            return fb_fail(err, FB_E_USAGE, "put tensor %.200s into a bundle: dimension %d is %lld", name, (int)i,
                           (long long)shape[i]);
        }
    }
    *bytes = fb_dtype_bytes(dtype, count);
    if (count > 0 && (*bytes == 0 || *bytes > INT64_MAX || !data || (dtype == FB_F4_E2M1 && count % 2 != 0))) {
        return fb_fail(err, FB_E_USAGE, "put tensor %.200s into a bundle: it has no data, or no whole number of bytes", name);
    }
    if (writer->slots && *slot_of(writer, part, name) != 0)
        return fb_fail(err, FB_E_EXISTS, "put tensor %.200s into a bundle: it is in already", name);
    return FB_OK;
}

static fb_status leave_out(fb_bundle_writer *writer, int32_t part, const char *name, uint64_t bytes, int no_memory, fb_error *err)
{
    fb_part *p = &writer->part;
    fb_part_left *grown = fb_bundle_grow(p->left, p->left_count, &p->left_room, sizeof *grown);
    fb_part_left left = {NULL, bytes, part, no_memory};
    if (!grown) return fb_fail(err, FB_E_NOMEM, "put tensor %.200s into a bundle: no memory", name);
    p->left = grown;
    if (keep(writer, &left.name, name, err) != FB_OK) return FB_E_NOMEM;
    p->left[p->left_count++] = left;
    if (no_memory) {
        return fb_fail(err, FB_E_NOMEM, "put tensor %.200s into a bundle: no memory for %llu bytes; it is left out", name,
                       (unsigned long long)bytes);
    }
    return fb_fail(err, FB_E_LIMIT,
                   "put tensor %.200s into a bundle: %llu bytes more than the %llu of at most %llu; it is left out", name,
                   (unsigned long long)bytes, (unsigned long long)writer->bytes, (unsigned long long)writer->bytes_max);
}

fb_status fb_bundle_put(fb_bundle_writer *writer, int32_t part, const char *name, int32_t dtype, int32_t ndim, const int64_t *shape,
                        const void *data, fb_error *err)
{
    fb_part_tensor tensor, *grown;
    uint64_t bytes = 0;
    fb_status status = check_put(writer, part, name, dtype, ndim, shape, data, &bytes, err);
    if (status != FB_OK) return status;
    if (bytes > writer->bytes_max - writer->bytes) return leave_out(writer, part, name, bytes, 0, err);
    memset(&tensor, 0, sizeof tensor);
    grown = fb_bundle_grow(writer->part.tensors, writer->part.tensor_count, &writer->part.tensor_room, sizeof *grown);
    if (!grown) return fb_fail(err, FB_E_NOMEM, "put tensor %.200s into a bundle: no memory", name);
    writer->part.tensors = grown;
    if (!make_slot(writer)) return fb_fail(err, FB_E_NOMEM, "put tensor %.200s into a bundle: no memory", name);
    if ((status = keep(writer, &tensor.name, name, err)) != FB_OK) return status;
    tensor.data = fb_realloc(NULL, bytes ? (size_t)bytes : 1);
    if (!tensor.data) return leave_out(writer, part, name, bytes, 1, err);
    if (bytes) memcpy(tensor.data, data, (size_t)bytes);
    tensor.bytes = bytes;
    tensor.xxh3 = fb_hash64(tensor.data, (size_t)bytes, 0);
    tensor.dtype = dtype;
    tensor.ndim = ndim;
    tensor.part = part;
    for (int32_t i = 0; i < ndim; i++) tensor.shape[i] = shape[i];
    *slot_of(writer, part, name) = writer->part.tensor_count + 1;
    writer->part.tensors[writer->part.tensor_count++] = tensor;
    writer->bytes += bytes;
    return FB_OK;
}

/* The place of this key: a second value takes that of the first. NULL: *status says why. */
static fb_part_value *place_of(fb_bundle_writer *writer, const char *key, fb_status *status, fb_error *err)
{
    fb_part *p;
    fb_part_value *grown, *place;
    const char *kept = NULL;
    *status = FB_OK;
    if (!writer || !key || !key[0]) {
        *status = fb_fail(err, FB_E_USAGE, "put a value into a bundle: it has no key");
        return NULL;
    }
    p = &writer->part;
    for (uint32_t i = 0; i < p->value_count; i++) {
        if (strcmp(p->values[i].key, key) == 0) return &p->values[i];
    }
    grown = fb_bundle_grow(p->values, p->value_count, &p->value_room, sizeof *grown);
    if (!grown) {
        *status = fb_fail(err, FB_E_NOMEM, "put value %.100s into a bundle: no memory", key);
        return NULL;
    }
    p->values = grown;
    if ((*status = keep(writer, &kept, key, err)) != FB_OK) return NULL;
    place = &p->values[p->value_count++];
    memset(place, 0, sizeof *place);
    place->key = kept;
    place->kind = FB_VALUE_INTEGER;
    return place;
}

fb_status fb_bundle_set_number(fb_bundle_writer *writer, const char *key, double value, fb_error *err)
{
    fb_status status;
    fb_part_value *place = place_of(writer, key, &status, err);
    if (!place) return status;
    place->kind = FB_VALUE_NUMBER;
    memcpy(&place->number, &value, sizeof value); /* bits: a signalling NaN stays one */
    return FB_OK;
}

fb_status fb_bundle_set_integer(fb_bundle_writer *writer, const char *key, int64_t value, fb_error *err)
{
    fb_status status;
    fb_part_value *place = place_of(writer, key, &status, err);
    if (!place) return status;
    place->kind = FB_VALUE_INTEGER;
    place->integer = value;
    return FB_OK;
}

fb_status fb_bundle_set_text(fb_bundle_writer *writer, const char *key, const char *value, fb_error *err)
{
    fb_part_value *place;
    const char *kept = NULL;
    fb_status status;
    if (!writer || !value) return fb_fail(err, FB_E_USAGE, "put a text into a bundle: an argument is missing");
    if ((status = keep(writer, &kept, value, err)) != FB_OK) return status;
    if ((place = place_of(writer, key, &status, err)) == NULL) return status;
    place->kind = FB_VALUE_TEXT;
    place->text = kept;
    return FB_OK;
}

fb_status fb_bundle_set_parent(fb_bundle_writer *writer, const char *path, int64_t step, int32_t exact, fb_error *err)
{
    fb_status status;
    if (!writer || !path || !path[0]) return fb_fail(err, FB_E_USAGE, "name the parent of a bundle: an argument is missing");
    if ((status = keep(writer, &writer->part.parent_path, path, err)) != FB_OK) return status;
    writer->part.parent_step = step;
    writer->part.parent_exact = exact != 0;
    return FB_OK;
}

fb_status fb_bundle_set_command(fb_bundle_writer *writer, const char *const *argv, const char *cwd, fb_error *err)
{
    const char **copy;
    size_t n = 0;
    fb_status status = FB_OK;
    if (!writer || !argv || !argv[0]) return fb_fail(err, FB_E_USAGE, "name the command of a bundle: an argument is missing");
    while (argv[n]) n++;
    copy = fb_calloc(n + 1, sizeof *copy);
    if (!copy) return fb_fail(err, FB_E_NOMEM, "name the command of a bundle: no memory for %zu arguments", n);
    for (size_t i = 0; i < n && status == FB_OK; i++) status = keep(writer, &copy[i], argv[i], err);
    if (status == FB_OK && cwd) status = keep(writer, &writer->part.cwd, cwd, err);
    if (status != FB_OK) {
        fb_free(copy);
        return status;
    }
    fb_free(writer->part.command);
    writer->part.command = copy;
    return FB_OK;
}

/* ---- finish ------------------------------------------------------------------------------------------------------------------ */

static fb_status write_tensors(fb_bundle_writer *writer, int32_t which, uint32_t n, fb_error *err)
{
    fb_part *p = &writer->part;
    char step[32], rank[16], name[FB_BUNDLE_NAME_MAX], path[FB_OS_PATH_MAX];
    const fb_pair metadata[] = {{"run_id", p->run_id}, {"case_id", p->case_id}, {"step", step}, {"rank", rank}};
    fb_st_tensor *tensors = fb_calloc(n, sizeof *tensors);
    fb_os_info info;
    uint32_t used = 0;
    int64_t got;
    fb_status status;
    if (!tensors) return fb_fail(err, FB_E_NOMEM, "capture into %s: no memory to list %u tensors", writer->folder, (unsigned)n);
    for (uint32_t i = 0; i < p->tensor_count; i++) {
        const fb_part_tensor *from = &p->tensors[i];
        fb_st_tensor *to = &tensors[used];
        if (from->part != which) continue;
        used++;
        to->name = from->name;
        to->dtype = from->dtype;
        to->ndim = from->ndim;
        memcpy(to->shape, from->shape, sizeof to->shape);
        to->data = from->data;
        to->bytes = from->bytes;
    }
    (void)snprintf(step, sizeof step, "%lld", (long long)p->step);
    (void)snprintf(rank, sizeof rank, "%d", (int)p->rank);
    fb_bundle_file_name(name, which, p->rank);
    status = fb_safetensors_write(writer->os, writer->folder, name, tensors, used, metadata, sizeof metadata / sizeof metadata[0],
                                  &p->files[which].xxh3, err);
    fb_free(tensors);
    p->files[which].there = 1; /* even after a failure the file may be in place, and is then removed */
    if (status == FB_OK) status = fb_os_join(path, sizeof path, writer->folder, name, err);
    if (status != FB_OK) return status;
    got = writer->os->stat(writer->os->ctx, path, &info);
    if (got < 0) return fb_fail_os(err, (int)-got, "capture into %s: ask for the size of %s", writer->folder, name);
    p->files[which].bytes = info.size_bytes;
    return FB_OK;
}

static fb_status put_in_place(fb_bundle_writer *writer, fb_error *err)
{
    char name[FB_BUNDLE_NAME_MAX];
    char *text = NULL;
    size_t bytes = 0;
    fb_status status = check_free(writer, err);
    for (int32_t which = 1; which < FB_BUNDLE_PARTS && status == FB_OK; which++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < writer->part.tensor_count; i++) n += writer->part.tensors[i].part == which;
        if (n > 0) status = write_tensors(writer, which, n, err);
    }
    if (status == FB_OK) status = fb_part_text(&writer->part, &text, &bytes, err);
    fb_bundle_file_name(name, 0, writer->part.rank);
    if (status == FB_OK) status = fb_os_put_new(writer->os, writer->folder, name, text, bytes, err);
    fb_free(text);
    return status;
}

/* Only while the text that speaks for them is not there: after a failed sync it may be. */
static void remove_files(fb_bundle_writer *writer)
{
    char name[FB_BUNDLE_NAME_MAX], path[FB_OS_PATH_MAX];
    int there = 1;
    fb_bundle_file_name(name, 0, writer->part.rank);
    if (fb_bundle_there(writer->os, writer->folder, name, &there, NULL) != FB_OK || there) return;
    for (int32_t which = 1; which < FB_BUNDLE_PARTS; which++) {
        if (!writer->part.files[which].there) continue;
        fb_bundle_file_name(name, which, writer->part.rank);
        if (fb_os_join(path, sizeof path, writer->folder, name, NULL) == FB_OK) (void)writer->os->unlink(writer->os->ctx, path);
    }
}

fb_status fb_bundle_finish(fb_bundle_writer *writer, fb_error *err)
{
    fb_status status;
    if (!writer) return fb_fail(err, FB_E_USAGE, "finish a bundle: there is no writer");
    status = put_in_place(writer, err);
    if (status != FB_OK) remove_files(writer);
    free_writer(writer);
    return status;
}

void fb_bundle_abandon(fb_bundle_writer *writer)
{
    free_writer(writer);
}
