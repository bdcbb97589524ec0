#include "ckpt/file.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"

void fb_ckpt_file_close(fb_ckpt_file *file)
{
    if (file->fd >= 0) (void)file->os->close(file->os->ctx, file->fd);
    file->fd = -1;
    fb_hash_stream_free(file->hash);
    file->hash = NULL;
    fb_free(file->window);
    file->window = NULL;
}

static fb_status open_checked(fb_ckpt_file *file, fb_error *err)
{
    int64_t got = fb_os_open(file->os, file->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (got == -ENOENT || got == -ENOTDIR) return fb_fail(err, FB_E_NOTFOUND, "read checkpoint %s: no such file", file->path);
    if (got == -ELOOP) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read checkpoint %s: it is a symbolic link, which is not followed", file->path);
    }
    if (got == -ENXIO) return fb_fail(err, FB_E_UNSUPPORTED, "read checkpoint %s: no regular file", file->path);
    if (got < 0) return fb_fail_os(err, (int)-got, "open checkpoint %s", file->path);
    file->fd = (int)got;
    got = file->os->fstat(file->os->ctx, file->fd, &file->info);
    if (got < 0) return fb_fail_os(err, (int)-got, "read checkpoint %s: ask for its size", file->path);
    if (file->info.kind != FB_OS_FILE) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read checkpoint %s: %s", file->path,
                       file->info.kind == FB_OS_FOLDER ? "it is a folder" : "no regular file");
    }
    return FB_OK;
}

fb_status fb_ckpt_file_open(fb_ckpt_file *file, const fb_os *os, const char *path, size_t buffer_bytes, fb_error *err)
{
    fb_status status;
    memset(file, 0, sizeof *file);
    file->os = os;
    file->path = path;
    file->fd = -1;
    status = open_checked(file, err);
    if (status == FB_OK) {
        if (os->advise_in_order && file->info.size_bytes > buffer_bytes) (void)os->advise_in_order(os->ctx, file->fd);
        /* Small files come by the hundred thousand: no more is taken than they have, and no buffer is zeroed. */
        if (buffer_bytes > file->info.size_bytes) buffer_bytes = file->info.size_bytes ? (size_t)file->info.size_bytes : 1;
        file->window_room = buffer_bytes;
        file->window = fb_realloc(NULL, buffer_bytes);
        file->hash = fb_hash_stream_new();
        if (!file->window || !file->hash) {
            status = fb_fail(err, FB_E_NOMEM, "read checkpoint %s: no memory for a buffer of %zu bytes", path, buffer_bytes);
        }
    }
    if (status != FB_OK) fb_ckpt_file_close(file);
    return status;
}

void fb_ckpt_file_no_digest(fb_ckpt_file *file)
{
    fb_hash_stream_free(file->hash);
    file->hash = NULL;
}

void fb_ckpt_file_took(fb_ckpt_file *file, uint64_t offset, const uint8_t *data, size_t bytes)
{
    uint64_t known;
    if (!fb_ckpt_file_wants_all(file)) return;
    if (offset > file->hashed_bytes) return; /* read out of order: catch_up comes back for the gap */
    known = file->hashed_bytes - offset;
    if (known >= bytes) return;
    if (file->hash) fb_hash_stream_add(file->hash, data + known, bytes - (size_t)known);
    if (file->tap) file->tap(file->tap_ctx, file->path, data + known, bytes - (size_t)known, 0);
    file->hashed_bytes = offset + bytes;
}

fb_status fb_ckpt_file_worked(fb_ckpt_file *file, uint64_t bytes, fb_error *err)
{
    file->work_bytes += bytes;
    if (file->work_bytes_max == 0 || file->work_bytes <= file->work_bytes_max) return FB_OK;
    return fb_fail(err, FB_E_LIMIT,
                   "read checkpoint %s: its tensors share or unpack bytes so often that more than %llu would be read", file->path,
                   (unsigned long long)file->work_bytes_max);
}

fb_status fb_ckpt_file_read(fb_ckpt_file *file, uint64_t offset, void *data, size_t bytes, fb_error *err)
{
    uint64_t size = file->info.size_bytes;
    int64_t got;
    if (offset > size || bytes > size - offset) {
        return fb_fail_at(err, offset, "read checkpoint %s: %zu bytes expected, the file ends after %llu", file->path, bytes,
                          (unsigned long long)(offset > size ? 0 : size - offset));
    }
    got = fb_os_pread_full(file->os, file->fd, data, bytes, offset);
    if (got < 0) return fb_fail_os(err, (int)-got, "read checkpoint %s at offset %llu", file->path, (unsigned long long)offset);
    if ((size_t)got < bytes) {
        return fb_fail_at(err, offset + (uint64_t)got, "read checkpoint %s: it became shorter while it was read", file->path);
    }
    fb_ckpt_file_took(file, offset, data, bytes);
    return fb_ckpt_file_worked(file, bytes, err);
}

fb_status fb_ckpt_file_view(fb_ckpt_file *file, uint64_t offset, size_t need, const uint8_t **data, size_t *bytes, fb_error *err)
{
    uint64_t left = offset <= file->info.size_bytes ? file->info.size_bytes - offset : 0;
    uint64_t skip = offset - file->window_at;
    fb_status status;
    if (need > left) need = (size_t)left;
    if (offset < file->window_at || skip > file->window_bytes || file->window_bytes - skip < need) {
        size_t load = left < file->window_room ? (size_t)left : file->window_room;
        file->window_bytes = 0;
        if ((status = fb_ckpt_file_read(file, offset, file->window, load, err)) != FB_OK) return status;
        file->window_at = offset;
        file->window_bytes = load;
        skip = 0;
    }
    *data = file->window + skip;
    *bytes = file->window_bytes - (size_t)skip;
    return FB_OK;
}

/* A trainer that saves again over the same name must not get a verdict made of two versions. */
static fb_status still_the_same(fb_ckpt_file *file, fb_error *err)
{
    fb_os_info now, named;
    int64_t got = file->os->fstat(file->os->ctx, file->fd, &now);
    if (got < 0) return fb_fail_os(err, (int)-got, "read checkpoint %s: ask for its size once more", file->path);
    if (now.size_bytes != file->info.size_bytes || now.mtime_ns != file->info.mtime_ns) {
        return fb_fail_at(err, 0, "read checkpoint %s: it was written to while it was read", file->path);
    }
    got = file->os->stat(file->os->ctx, file->path, &named);
    if (got == -ENOENT) return fb_fail_at(err, 0, "read checkpoint %s: it was removed while it was read", file->path);
    if (got < 0) return fb_fail_os(err, (int)-got, "read checkpoint %s: look at its name once more", file->path);
    if (named.device != now.device || named.inode != now.inode) {
        return fb_fail_at(err, 0, "read checkpoint %s: another file took its name while it was read", file->path);
    }
    return FB_OK;
}

fb_status fb_ckpt_file_unchanged(fb_ckpt_file *file, fb_error *err)
{
    return still_the_same(file, err);
}

/* The window holds what was read last, so that the bytes behind a small gap are there when they are asked for next. */
fb_status fb_ckpt_file_catch_up(fb_ckpt_file *file, uint64_t offset, fb_error *err)
{
    while (fb_ckpt_file_wants_all(file) && file->hashed_bytes < offset) {
        const uint8_t *data;
        size_t bytes;
        uint64_t at = file->hashed_bytes;
        fb_status status;
        if (at >= file->window_at && at - file->window_at < file->window_bytes) { /* read before its turn came */
            fb_ckpt_file_took(file, file->window_at, file->window, file->window_bytes);
            continue;
        }
        if ((status = fb_ckpt_file_view(file, at, 1, &data, &bytes, err)) != FB_OK) return status;
    }
    return FB_OK;
}

fb_status fb_ckpt_file_finish(fb_ckpt_file *file, uint64_t *digest, fb_error *err)
{
    fb_status status = fb_ckpt_file_catch_up(file, file->info.size_bytes, err);
    if (status != FB_OK) return status;
    *digest = file->hash ? fb_hash_stream_digest(file->hash) : 0;
    if ((status = still_the_same(file, err)) != FB_OK) return status;
    if (file->tap) file->tap(file->tap_ctx, file->path, NULL, 0, 1);
    return FB_OK;
}
