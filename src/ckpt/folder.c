/*
 * A folder as one checkpoint: all files in it, in the order of their names. What must be there, and what belongs together, is known
 * by the layouts (layout.h). A checkpoint with a shard missing, or with a file in it that nobody looked at, is never clean.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash_stream.h"
#include "ckpt/companions.h"
#include "ckpt/layout.h"
#include "ckpt/rank_name.h"

static const uint64_t FILES_MAX = 200000;

/* ---- services for the layouts ----------------------------------------------------------------------------------------------- */

fb_folder_plan *fb_folder_plan_of(fb_folder *f, const fb_tree_file *file)
{
    return &f->plans[file - f->tree.files];
}

fb_status fb_folder_path(const fb_folder *f, const char *name, char path[FB_OS_PATH_MAX], fb_error *err)
{
    if (*name) return fb_os_join(path, FB_OS_PATH_MAX, f->tree.path, name, err);
    if (strlen(f->tree.path) >= FB_OS_PATH_MAX) return fb_fail(err, FB_E_LIMIT, "scan %.300s: the path is too long", f->tree.path);
    memcpy(path, f->tree.path, strlen(f->tree.path) + 1);
    return FB_OK;
}

void fb_folder_unreadable(fb_folder *f, const char *format, ...)
{
    char text[800];
    fb_error reason;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fb_fail(&reason, FB_E_CORRUPT, "scan %s: %s", f->tree.path, text);
    fb_ckpt_scan_outcome(f->scan, FB_CKPT_UNREADABLE, &reason);
}

void fb_folder_unscanned(fb_folder *f, const char *name, const char *why)
{
    char path[FB_OS_PATH_MAX];
    if (fb_folder_path(f, name, path, NULL) != FB_OK) (void)snprintf(path, sizeof path, "%.4000s", name);
    fb_ckpt_scan_unscanned(f->scan, path, "", why);
}

void fb_folder_note(fb_folder *f, const char *name, const char *format, ...)
{
    char path[FB_OS_PATH_MAX], text[800];
    va_list args;
    if (!f->sink.note) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (fb_folder_path(f, name, path, NULL) != FB_OK) (void)snprintf(path, sizeof path, "%.4000s", name);
    f->sink.note(f->sink.ctx, path, text);
}

void fb_folder_format(fb_folder *f, const char *format)
{
    size_t used = strlen(f->format);
    if (used && strstr(f->format, format)) return;
    if (used + strlen(format) + 4 > sizeof f->format) return;
    (void)snprintf(f->format + used, sizeof f->format - used, "%s%s", used ? " + " : "", format);
}

void fb_folder_step(fb_folder *f, int64_t step)
{
    int64_t *known = &f->scan->summary->step;
    if (f->step_unclear) return;
    if (*known >= 0 && *known != step) f->step_unclear = 1;
    *known = f->step_unclear ? -1 : step;
}

fb_status fb_folder_keep(fb_folder *f, void *what, void (*release)(void *), fb_error *err)
{
    fb_folder_kept *kept = fb_pool_take(&f->pool, sizeof *kept);
    if (!kept) {
        release(what);
        return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
    }
    kept->what = what;
    kept->release = release;
    kept->next = f->kept;
    f->kept = kept;
    return FB_OK;
}

static void tap_all(const fb_folder *f, const char *path, const uint8_t *data, uint64_t bytes)
{
    const fb_ckpt_options *o = &f->scan->options;
    if (!o->tap) return;
    if (bytes) o->tap(o->tap_ctx, path, data, (size_t)bytes, 0);
    o->tap(o->tap_ctx, path, NULL, 0, 1);
}

static fb_status load(fb_folder *f, const fb_tree_file *file, const char *path, uint64_t bytes_max, uint8_t **data, uint64_t *bytes,
                      fb_error *err)
{
    enum { WINDOW_BYTES = 65536 };
    fb_folder_plan *plan = fb_folder_plan_of(f, file);
    fb_ckpt_file in;
    fb_status status = fb_ckpt_scan_open(f->scan, &in, path, WINDOW_BYTES, err);
    int64_t got;
    if (status != FB_OK) return status;
    *bytes = plan->size_bytes = in.info.size_bytes;
    if (f->scan->options.sync && (got = fb_os_fsync(f->scan->os, in.fd)) < 0) {
        status = fb_fail_os(err, (int)-got, "make checkpoint %s durable", path);
    } else if (*bytes > bytes_max) {
        status = fb_fail(err, FB_E_LIMIT, "read %s: %llu bytes, at most %llu are taken", path, (unsigned long long)*bytes,
                         (unsigned long long)bytes_max);
    } else if ((*data = fb_calloc((size_t)*bytes + 1, 1)) == NULL) {
        status = fb_fail(err, FB_E_NOMEM, "read %s: no memory for %llu bytes", path, (unsigned long long)*bytes);
    }
    if (status == FB_OK) status = fb_ckpt_file_read(&in, 0, *data, (size_t)*bytes, err);
    if (status == FB_OK) status = fb_ckpt_file_finish(&in, &plan->digest, err);
    if (status == FB_OK && plan->counts) tap_all(f, path, *data, *bytes);
    fb_ckpt_file_close(&in);
    return status;
}

fb_status fb_folder_load(fb_folder *f, const fb_tree_file *file, int counts, uint64_t bytes_max, uint8_t **data, uint64_t *bytes,
                         fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_folder_plan *plan = fb_folder_plan_of(f, file);
    fb_error reason;
    fb_status status = fb_folder_path(f, file->name, path, err);
    *data = NULL;
    *bytes = 0;
    if (status != FB_OK) return status;
    plan->take = FB_TAKE_READ;
    plan->counts = counts;
    status = load(f, file, path, bytes_max, data, bytes, &reason);
    if (status == FB_OK) return FB_OK;
    fb_free(*data);
    *data = NULL;
    if (fb_ckpt_outcome_of(status) >= 0) {
        fb_ckpt_scan_outcome(f->scan, fb_ckpt_outcome_of(status), &reason);
        return FB_OK;
    }
    if (err) *err = reason;
    return status;
}

/* ---- what passes through ---------------------------------------------------------------------------------------------------- */

static void on_finding(void *ctx, const fb_ckpt_finding *finding)
{
    fb_folder *f = ctx;
    fb_ckpt_finding mine = *finding;
    fb_layout_deepspeed_finding(f, &mine);
    if (f->sink.finding) f->sink.finding(f->sink.ctx, &mine);
}

static void on_unscanned(void *ctx, const char *file, const char *tensor, const char *why)
{
    fb_folder *f = ctx;
    if (f->sink.unscanned) f->sink.unscanned(f->sink.ctx, file, tensor, why);
}

static void on_tensor(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    fb_folder *f = ctx;
    if (f->sink.tensor) f->sink.tensor(f->sink.ctx, file, tensor, stats);
}

static void on_note(void *ctx, const char *file, const char *text)
{
    fb_folder *f = ctx;
    if (f->sink.note) f->sink.note(f->sink.ctx, file, text);
}

static void on_security(void *ctx, const char *file, const char *import, const char *text)
{
    fb_folder *f = ctx;
    if (f->sink.security) f->sink.security(f->sink.ctx, file, import, text);
}

static void on_file(void *ctx, const char *file, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                    const fb_error *reason)
{
    fb_folder *f = ctx;
    if (f->sink.file) f->sink.file(f->sink.ctx, file, format, outcome, bytes, digest, reason);
}

static void on_progress(void *ctx, const char *file, uint64_t done_bytes, uint64_t total_bytes)
{
    fb_folder *f = ctx;
    if (f->sink.progress) f->sink.progress(f->sink.ctx, file, done_bytes, total_bytes);
}

static void put_between(fb_folder *f)
{
    const fb_ckpt_sink between = {.ctx = f,
                                  .finding = on_finding,
                                  .tensor = on_tensor,
                                  .unscanned = on_unscanned,
                                  .note = on_note,
                                  .security = on_security,
                                  .file = on_file,
                                  .progress = on_progress};
    f->sink = f->scan->sink;
    f->scan->sink = between;
    if (!f->sink.progress) f->scan->sink.progress = NULL;
    if (!f->sink.tensor) f->scan->sink.tensor = NULL;
}

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

/* What the list of files did not take for a file (tree.h): a pipe, or a link that is not followed, or cannot be. */
static fb_status take_other(fb_folder *f, const fb_tree_file *file, const char *path)
{
    const fb_os *os = f->scan->os;
    char target[FB_OS_PATH_MAX];
    fb_os_info info;
    int nowhere;
    if (os->readlink(os->ctx, path, target, sizeof target) < 0) {
        fb_folder_unscanned(f, file->name, "no regular file");
        return FB_OK;
    }
    if (fb_tree_leads_inside(&f->tree, os, path)) {
        fb_folder_note(f, file->name, "a symbolic link to something in this folder, which is read under its own name");
        return FB_OK;
    }
    if (!(f->scan->options.flags & FB_CKPT_FOLLOW)) {
        fb_folder_unscanned(f, file->name, "it is a symbolic link, which is not followed");
        return FB_OK;
    }
    nowhere = os->stat(os->ctx, path, &info) < 0;
    if (nowhere && fb_promises_numbers(file->base))
        fb_folder_unreadable(f, "%.300s is a symbolic link to a file that is not there", file->name);
    else
        fb_folder_unscanned(f, file->name,
                            nowhere ? "it is a symbolic link that leads nowhere"
                            : info.kind == FB_OS_FOLDER
                                ? "it is a symbolic link to another folder, which is read by its own path only"
                                : "no regular file");
    return FB_OK;
}

/* Files whose name promises a format, and whose bytes do not keep it. Returns 1 when there is nothing more to read. */
static fb_status check_promise(fb_folder *f, const fb_tree_file *file, const char *path, int *done, fb_error *err)
{
    uint8_t head[FB_CKPT_HEAD_BYTES];
    const char *broken = NULL;
    fb_ckpt_file in;
    fb_status status;
    size_t bytes;
    *done = 0;
    if (!fb_promises_numbers(file->base)) return FB_OK;
    if ((status = fb_ckpt_scan_open(f->scan, &in, path, sizeof head, err)) != FB_OK) return status;
    bytes = in.info.size_bytes < sizeof head ? (size_t)in.info.size_bytes : sizeof head;
    status = fb_ckpt_file_read(&in, 0, head, bytes, err);
    if (status == FB_OK) broken = fb_broken_promise(file->base, in.info.size_bytes, head, bytes);
    if (status == FB_E_CORRUPT) broken = "became shorter while it was read";
    if (broken) {
        fb_folder_unreadable(f, "%.300s %s", file->name, broken);
        *done = 1;
        status = FB_OK;
    }
    fb_ckpt_file_close(&in);
    return status;
}

static fb_status take_by_content(fb_folder *f, const fb_tree_file *file, const char *path, fb_folder_plan *plan, fb_error *err)
{
    int is_part = 0, done;
    fb_status status;
    if (fb_is_companion(file->name)) return FB_OK;
    if ((status = check_promise(f, file, path, &done, err)) != FB_OK) return status;
    if (done) return FB_OK;
    status = fb_ckpt_scan_file(f->scan, path, fb_ckpt_name_fits("*.safetensors", file->base) ? FB_CKPT_EXPECTED : FB_CKPT_BESIDE,
                               &is_part, &plan->size_bytes, &plan->digest, err);
    plan->counts = is_part;
    return status;
}

static fb_status take_file(fb_folder *f, const fb_tree_file *file, fb_error *err)
{
    fb_folder_plan *plan = fb_folder_plan_of(f, file);
    char path[FB_OS_PATH_MAX];
    fb_status status;
    if (plan->take == FB_TAKE_READ || plan->take == FB_TAKE_PASS) return FB_OK;
    if ((status = fb_folder_path(f, file->name, path, err)) != FB_OK) return status;
    f->now = file;
    if (file->kind != FB_OS_FILE) return take_other(f, file, path);
    if (plan->take == FB_TAKE_BY_CONTENT) return take_by_content(f, file, path, plan, err);
    plan->counts = 1;
    return fb_ckpt_scan_file_as(f->scan, path, plan->reader, plan->setup, &plan->size_bytes, &plan->digest, err);
}

/* One file that the system does not let us read hides nothing in the others: they are read, and then it is told. */
static fb_status take_files(fb_folder *f, fb_error *err)
{
    fb_status first = FB_OK;
    uint64_t done_bytes = 0;
    f->scan->total_bytes = f->tree.bytes;
    for (uint64_t i = 0; i < f->tree.count; i++) {
        fb_error reason;
        fb_status status;
        f->scan->done_bytes = done_bytes;
        status = take_file(f, &f->tree.files[i], &reason);
        if (status == FB_E_NOTFOUND) { /* it was there when the folder was listed */
            fb_folder_unreadable(f, "%.300s was removed while the folder was read", f->tree.files[i].name);
            status = FB_OK;
        }
        if (status != FB_OK) {
            if (err && first == FB_OK) *err = reason;
            if (status != FB_E_IO) return first != FB_OK ? first : status;
            first = status;
        }
        if (f->plans[i].take != FB_TAKE_PASS || !f->only_index) done_bytes += f->tree.files[i].size_bytes;
        if (f->scan->done) return first;
    }
    return first;
}

/* ---- the folder ------------------------------------------------------------------------------------------------------------- */

/* XXH3 over name, NUL, size and digest of each file that counts, by name. */
static fb_status digest_all(fb_folder *f, fb_error *err)
{
    fb_hash_stream *stream;
    if ((f->scan->options.flags & FB_CKPT_NO_DIGEST) || f->scan->done) return FB_OK; /* of half a folder it would mean nothing */
    stream = fb_hash_stream_new();
    if (!stream) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for a digest", f->tree.path);
    for (uint64_t i = 0; i < f->tree.count; i++) {
        const fb_folder_plan *plan = &f->plans[i];
        uint8_t numbers[16];
        if (!plan->counts) continue;
        for (unsigned b = 0; b < 8; b++) {
            numbers[b] = (uint8_t)(plan->size_bytes >> (8 * b));
            numbers[8 + b] = (uint8_t)(plan->digest >> (8 * b));
        }
        fb_hash_stream_add(stream, f->tree.files[i].name, strlen(f->tree.files[i].name) + 1);
        fb_hash_stream_add(stream, numbers, sizeof numbers);
    }
    f->scan->summary->digest = fb_hash_stream_digest(stream);
    fb_hash_stream_free(stream);
    return FB_OK;
}

/* A file that came or went while the others were read would be missing from the verdict. */
static fb_status still_the_same(fb_folder *f, fb_error *err)
{
    int changed = f->tree.changed;
    for (uint64_t i = 0; i < f->tree.dir_count && !changed; i++) {
        const fb_tree_dir *d = &f->tree.dirs[i];
        char path[FB_OS_PATH_MAX];
        fb_os_info now;
        int64_t got;
        fb_status status = fb_folder_path(f, d->name, path, err);
        if (status != FB_OK) return status;
        got = f->scan->os->stat(f->scan->os->ctx, path, &now);
        if (got < 0 && got != -ENOENT) return fb_fail_os(err, (int)-got, "scan %s: look at the folder once more", path);
        changed = got < 0 || now.inode != d->info.inode || now.device != d->info.device || now.mtime_ns != d->info.mtime_ns;
    }
    if (changed) fb_folder_unreadable(f, "files came or went while it was read");
    return FB_OK;
}

static fb_status sync_folders(fb_folder *f, fb_error *err)
{
    for (uint64_t i = 0; i < f->tree.dir_count && f->scan->options.sync; i++) {
        char path[FB_OS_PATH_MAX];
        int64_t got;
        fb_status status = fb_folder_path(f, f->tree.dirs[i].name, path, err);
        if (status != FB_OK) return status;
        if ((got = fb_os_sync_dir(f->scan->os, path)) < 0) return fb_fail_os(err, (int)-got, "make folder %s durable", path);
    }
    return FB_OK;
}

/* A folder of several checkpoints is read like one, and its verdict is that of the worst: worth telling. */
static void tell_collection(fb_folder *f)
{
    static const char *const names[] = {"checkpoint-#", "checkpoint_#", "step-#",  "step_#",
                                        "global_step#", "iter_#",       "epoch_#", "epoch-#"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        uint64_t number, count = 0;
        for (uint64_t i = 1; i < f->tree.dir_count; i++) {
            count += f->tree.dirs[i].parent == 0 && fb_rank_name(names[n], f->tree.dirs[i].name, &number);
        }
        if (count < 2) continue;
        fb_folder_note(f, "", "it holds %llu checkpoints, which were read as one: the verdict is that of the worst",
                       (unsigned long long)count);
        return;
    }
}

static fb_status scan_listed(fb_folder *f, fb_error *err)
{
    fb_status status;
    f->plans = fb_calloc((size_t)f->tree.count + 1, sizeof *f->plans);
    if (!f->plans) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
    if ((status = sync_folders(f, err)) != FB_OK) return status;
    if ((status = fb_layout_index(f, f->only_index, err)) != FB_OK) return status;
    if (!f->only_index) {
        if ((status = fb_layout_dcp(f, err)) != FB_OK) return status;
        if ((status = fb_layout_deepspeed(f, err)) != FB_OK) return status;
        if ((status = fb_layout_megatron(f, err)) != FB_OK) return status;
        if ((status = fb_layout_huggingface(f, err)) != FB_OK) return status;
        tell_collection(f);
    }
    if ((status = fb_layout_steps(f, err)) != FB_OK) return status;
    if ((status = take_files(f, err)) != FB_OK) return status;
    if (!f->scan->done) fb_layout_index_end(f);
    fb_layout_steps_end(f);
    if ((status = digest_all(f, err)) != FB_OK) return status;
    if ((status = still_the_same(f, err)) != FB_OK) return status;
    (void)snprintf(f->scan->summary->format, sizeof f->scan->summary->format, "%s", *f->format ? f->format : "folder");
    return FB_OK;
}

static fb_status scan_folder(fb_ckpt_scan *scan, const char *path, const char *only_index, fb_error *err)
{
    fb_folder *f = fb_calloc(1, sizeof *f);
    fb_error reason;
    fb_status status;
    if (!f) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", path);
    f->scan = scan;
    f->only_index = only_index;
    put_between(f);
    status = fb_tree_list(&f->tree, scan->os, path, scan->options.files_max ? scan->options.files_max : FILES_MAX,
                          scan->options.flags & FB_CKPT_FOLLOW, &reason);
    if (status == FB_OK) status = scan_listed(f, &reason);
    for (fb_folder_kept *k = f->kept; k; k = k->next) k->release(k->what);
    scan->sink = f->sink;
    scan->on_tensor = NULL;
    scan->on_fact = NULL;
    fb_tree_release(&f->tree);
    fb_pool_release(&f->pool);
    fb_free(f->plans);
    fb_free(f);
    if (status == FB_E_LIMIT) {
        fb_ckpt_scan_outcome(scan, FB_CKPT_LIMIT, &reason);
        status = FB_OK;
    } else if (status != FB_OK && err) {
        *err = reason;
    }
    return status;
}

fb_status fb_ckpt_scan_folder(fb_ckpt_scan *scan, const char *path, fb_error *err)
{
    return scan_folder(scan, path, NULL, err);
}

fb_status fb_ckpt_scan_index(fb_ckpt_scan *scan, const char *path, fb_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[FB_OS_PATH_MAX];
    size_t bytes = slash ? (size_t)(slash - path) : 1;
    if (bytes >= sizeof folder) return fb_fail(err, FB_E_USAGE, "scan %.300s: the path is too long", path);
    memcpy(folder, slash ? path : ".", bytes);
    folder[bytes] = '\0';
    if (slash == path) (void)snprintf(folder, sizeof folder, "/");
    return scan_folder(scan, folder, slash ? slash + 1 : path, err);
}
