#include "registry/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/hash_stream.h"
#include "registry/place.h"
#include "registry/statefile.h"

enum { ENTRIES_MAX = 200000, BUFFER_BYTES = 1 << 18 };

typedef struct entry {
    char *path; /* below the root */
    int32_t kind;
    uint64_t size_bytes;
} entry;

/* All that is in a folder, each folder before what is in it. */
typedef struct tree {
    const fb_os *os;
    const char *root;
    int all; /* 0: without what is ours */
    entry *entries;
    uint64_t count, room;
    uint64_t mark; /* a sum, since folders are listed in no order */
    int64_t newest_ns;
    const char *folder; /* that is being listed, "" for the root */
    fb_status status;
    fb_error *err;
} tree;

static void release(tree *t)
{
    for (uint64_t i = 0; i < t->count; i++) fb_free(t->entries[i].path);
    fb_free(t->entries);
}

/* "" stands for the root itself. */
static fb_status below(char *path, size_t room, const char *root, const char *name, fb_error *err)
{
    if (name[0]) return fb_os_join(path, room, root, name, err);
    if (strlen(root) >= room) return fb_fail(err, FB_E_LIMIT, "list %.200s...: the path is too long", root);
    (void)snprintf(path, room, "%s", root);
    return FB_OK;
}

/* ---- listing ---------------------------------------------------------------------------------------------------------------- */

static uint64_t mark_of(const char *path, const fb_os_info *info)
{
    uint64_t facts[4] = {(uint64_t)info->kind, 0, 0, 0};
    if (info->kind != FB_OS_FOLDER) { /* of a folder its names say all */
        facts[1] = info->size_bytes;
        facts[2] = (uint64_t)info->mtime_ns;
        facts[3] = info->inode;
    }
    return fb_hash64(facts, sizeof facts, fb_hash64(path, strlen(path), 0));
}

static fb_status add(tree *t, const char *name)
{
    char path[FB_OS_PATH_MAX], full[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_status status;
    int64_t got;
    if ((status = fb_os_join(path, sizeof path, t->folder, name, t->err)) != FB_OK) return status;
    if ((status = fb_os_join(full, sizeof full, t->root, path, t->err)) != FB_OK) return status;
    if (t->count == ENTRIES_MAX) return fb_fail(t->err, FB_E_LIMIT, "list %s: more than %d files", t->root, ENTRIES_MAX);
    if (t->count == t->room) {
        uint64_t room = t->room ? t->room * 2 : 32;
        entry *grown = fb_realloc(t->entries, (size_t)room * sizeof *grown);
        if (!grown) return fb_fail(t->err, FB_E_NOMEM, "list %s: no memory for %llu names", t->root, (unsigned long long)room);
        t->entries = grown;
        t->room = room;
    }
    got = t->os->lstat(t->os->ctx, full, &info);
    if (got < 0) return fb_fail_os(t->err, (int)-got, "look at %s", full);
    t->entries[t->count].path = fb_strdup(path);
    if (!t->entries[t->count].path) return fb_fail(t->err, FB_E_NOMEM, "list %s: no memory for a name", t->root);
    t->entries[t->count].kind = info.kind;
    t->entries[t->count].size_bytes = info.size_bytes;
    t->mark += mark_of(path, &info);
    if (info.mtime_ns > t->newest_ns) t->newest_ns = info.mtime_ns;
    t->count++;
    return FB_OK;
}

static int64_t take_name(void *arg, const char *name)
{
    tree *t = arg;
    if (!t->all && !t->folder[0] && (strcmp(name, FB_STATE_FILE) == 0 || strcmp(name, FB_PLACE_FOLDER) == 0)) return 0;
    t->status = add(t, name);
    return t->status != FB_OK;
}

static fb_status list_folder(tree *t, const char *folder)
{
    char path[FB_OS_PATH_MAX];
    int64_t got;
    fb_status status = below(path, sizeof path, t->root, folder, t->err);
    if (status != FB_OK) return status;
    t->folder = folder;
    got = t->os->list(t->os->ctx, path, take_name, t);
    if (t->status != FB_OK) return t->status;
    return got < 0 ? fb_fail_os(t->err, (int)-got, "list folder %s", path) : FB_OK;
}

/* The list is its own queue: what is found in a folder goes to its end, and folders there are listed when their turn comes. */
static fb_status list_tree(tree *t, const fb_os *os, const char *root, int all, fb_error *err)
{
    fb_status status;
    memset(t, 0, sizeof *t);
    t->os = os;
    t->root = root;
    t->all = all;
    t->err = err;
    status = list_folder(t, "");
    for (uint64_t i = 0; status == FB_OK && i < t->count; i++) {
        if (t->entries[i].kind == FB_OS_FOLDER) status = list_folder(t, t->entries[i].path);
    }
    return status;
}

/* ---- removing --------------------------------------------------------------------------------------------------------------- */

static fb_status remove_one(const fb_os *os, const char *path, int32_t kind, fb_error *err)
{
    int64_t got = kind == FB_OS_FOLDER ? os->rmdir(os->ctx, path) : os->unlink(os->ctx, path);
    return got < 0 && got != -ENOENT ? fb_fail_os(err, (int)-got, "remove %s", path) : FB_OK;
}

fb_status fb_tree_remove(const fb_os *os, const char *path, fb_error *err)
{
    tree t;
    fb_os_info info;
    fb_status status;
    int64_t got = os->lstat(os->ctx, path, &info);
    if (got == -ENOENT) return FB_OK;
    if (got < 0) return fb_fail_os(err, (int)-got, "look at %s", path);
    if (info.kind != FB_OS_FOLDER) return remove_one(os, path, info.kind, err);
    status = list_tree(&t, os, path, 1, err);
    for (uint64_t i = t.count; status == FB_OK && i-- > 0;) {
        char full[FB_OS_PATH_MAX];
        status = fb_os_join(full, sizeof full, path, t.entries[i].path, err);
        if (status == FB_OK) status = remove_one(os, full, t.entries[i].kind, err);
    }
    release(&t);
    return status == FB_OK ? remove_one(os, path, FB_OS_FOLDER, err) : status;
}

fb_status fb_tree_bytes(const fb_os *os, const char *path, uint64_t *bytes, fb_error *err)
{
    tree t;
    fb_os_info info;
    fb_status status;
    int64_t got = os->lstat(os->ctx, path, &info);
    *bytes = 0;
    if (got < 0) return fb_fail_os(err, (int)-got, "look at %s", path);
    if (info.kind != FB_OS_FOLDER) {
        *bytes = info.size_bytes;
        return FB_OK;
    }
    status = list_tree(&t, os, path, 0, err);
    for (uint64_t i = 0; i < t.count; i++) {
        if (t.entries[i].kind == FB_OS_FILE) *bytes += t.entries[i].size_bytes;
    }
    release(&t);
    return status;
}

uint64_t fb_tree_mark(const fb_os *os, const char *path)
{
    tree t;
    fb_os_info info;
    uint64_t mark = 0;
    if (os->lstat(os->ctx, path, &info) != 0 || info.kind != FB_OS_FOLDER) return 0;
    if (list_tree(&t, os, path, 0, NULL) == FB_OK) mark = t.mark ? t.mark : 1;
    release(&t);
    return mark;
}

int64_t fb_tree_newest_ns(const fb_os *os, const char *path)
{
    tree t;
    fb_os_info info;
    int64_t newest = INT64_MAX;
    if (os->lstat(os->ctx, path, &info) != 0) return INT64_MAX;
    if (info.kind != FB_OS_FOLDER) return info.mtime_ns;
    if (list_tree(&t, os, path, 1, NULL) == FB_OK) newest = t.newest_ns > info.mtime_ns ? t.newest_ns : info.mtime_ns;
    release(&t);
    return newest;
}

/* ---- one file --------------------------------------------------------------------------------------------------------------- */

static fb_status cannot(int64_t got, const char *what, const char *from, fb_error *err)
{
    fb_status status = fb_fail_os(err, (int)-got, "%s %s", what, from);
    if (got == -EPERM || got == -EOPNOTSUPP || got == -ENOSYS || got == -EMLINK || got == -EXDEV || got == -EINVAL) {
        status = FB_E_UNSUPPORTED;
        if (err) err->code = status;
    }
    return status;
}

static fb_status copy_bytes(const fb_os *os, int in, int out, const char *from, uint64_t digest, fb_error *err)
{
    fb_hash_stream *hash = fb_hash_stream_new();
    unsigned char *buffer = fb_calloc(BUFFER_BYTES, 1);
    fb_status status = FB_OK;
    if (!hash || !buffer) status = fb_fail(err, FB_E_NOMEM, "copy %s: no memory for a buffer", from);
    while (status == FB_OK) {
        int64_t got = fb_os_read_full(os, in, buffer, BUFFER_BYTES), put;
        if (got < 0) status = fb_fail_os(err, (int)-got, "copy %s: read", from);
        if (got <= 0) break;
        fb_hash_stream_add(hash, buffer, (size_t)got);
        put = fb_os_write_all(os, out, buffer, (size_t)got);
        if (put < 0) status = fb_fail_os(err, (int)-put, "copy %s: write", from);
    }
    if (status == FB_OK && digest && fb_hash_stream_digest(hash) != digest) {
        status = fb_fail(err, FB_E_CORRUPT, "copy %s: it was changed after it was scanned", from);
    }
    fb_free(buffer);
    fb_hash_stream_free(hash);
    return status;
}

static fb_status fill(const fb_os *os, int in, int out, const char *from, int how, uint64_t digest, fb_error *err)
{
    fb_os_info before, after;
    fb_status status = FB_OK;
    int64_t got = os->fstat(os->ctx, in, &before);
    if (got == 0 && before.kind != FB_OS_FILE) return fb_fail(err, FB_E_UNSUPPORTED, "copy %s: no regular file", from);
    if (got == 0 && how == FB_TREE_CLONE) {
        got = os->clone(os->ctx, in, out);
        if (got < 0) return cannot(got, "share the blocks of", from, err);
    } else if (got == 0) {
        status = copy_bytes(os, in, out, from, digest, err);
    }
    if (status != FB_OK) return status;
    if (got == 0) got = os->fstat(os->ctx, in, &after);
    if (got == 0) got = fb_os_fsync(os, out);
    if (got != 0) return fb_fail_os(err, (int)-got, "copy %s", from);
    if (before.mtime_ns != after.mtime_ns || before.size_bytes != after.size_bytes) {
        return fb_fail(err, FB_E_CORRUPT, "copy %s: it changed meanwhile", from);
    }
    return FB_OK;
}

/* A second file of the same bytes, synced. */
static fb_status put_file(const fb_os *os, const char *from, const char *to, int how, uint64_t digest, fb_error *err)
{
    int64_t in, out, got;
    fb_status status;
    if (how == FB_TREE_LINK) {
        got = os->link(os->ctx, from, to);
        return got < 0 ? cannot(got, "give a second name to", from, err) : FB_OK;
    }
    in = fb_os_open(os, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (in < 0) return fb_fail_os(err, (int)-in, "copy %s: open", from);
    out = fb_os_open(os, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    if (out < 0) {
        (void)os->close(os->ctx, (int)in);
        return fb_fail_os(err, (int)-out, "copy %s: create %s", from, to);
    }
    status = fill(os, (int)in, (int)out, from, how, digest, err);
    (void)os->close(os->ctx, (int)in);
    got = os->close(os->ctx, (int)out);
    if (status == FB_OK && got < 0 && got != -EINTR) status = fb_fail_os(err, (int)-got, "copy %s: close %s", from, to);
    return status;
}

/* ---- a folder --------------------------------------------------------------------------------------------------------------- */

static fb_status put_entry(const fb_os *os, const entry *e, const char *from, const char *to, int how, fb_error *err)
{
    char source[FB_OS_PATH_MAX], target[FB_OS_PATH_MAX];
    int64_t got;
    fb_status status = fb_os_join(source, sizeof source, from, e->path, err);
    if (status == FB_OK) status = fb_os_join(target, sizeof target, to, e->path, err);
    if (status != FB_OK) return status;
    if (e->kind == FB_OS_FILE) return put_file(os, source, target, how, 0, err);
    if (e->kind != FB_OS_FOLDER) return fb_fail(err, FB_E_UNSUPPORTED, "copy %s: neither a file nor a folder", source);
    got = os->mkdir(os->ctx, target, 0777);
    return got < 0 ? fb_fail_os(err, (int)-got, "make folder %s", target) : FB_OK;
}

static fb_status sync_folder(const fb_os *os, const char *root, const char *folder, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    int64_t got;
    fb_status status = below(path, sizeof path, root, folder, err);
    if (status != FB_OK) return status;
    got = fb_os_sync_dir(os, path);
    return got < 0 ? fb_fail_os(err, (int)-got, "sync folder %s", path) : FB_OK;
}

static fb_status put_folder(const fb_os *os, const char *from, const char *to, int how, fb_error *err)
{
    tree t;
    fb_status status = list_tree(&t, os, from, 0, err);
    int64_t got = status == FB_OK ? os->mkdir(os->ctx, to, 0777) : 0;
    if (got < 0) status = fb_fail_os(err, (int)-got, "make folder %s", to);
    for (uint64_t i = 0; status == FB_OK && i < t.count; i++) status = put_entry(os, &t.entries[i], from, to, how, err);
    for (uint64_t i = 0; status == FB_OK && i < t.count; i++) {
        if (t.entries[i].kind == FB_OS_FOLDER) status = sync_folder(os, to, t.entries[i].path, err);
    }
    if (status == FB_OK) status = sync_folder(os, to, "", err);
    release(&t);
    return status;
}

fb_status fb_tree_twice(const fb_os *os, const char *from, const char *to, int how, uint64_t digest, fb_error *err)
{
    char part[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_status status;
    int64_t got = os->lstat(os->ctx, from, &info);
    if (got < 0) return fb_fail_os(err, (int)-got, "look at %s", from);
    if (strlen(to) + sizeof ".part" > sizeof part) return fb_fail(err, FB_E_LIMIT, "keep %.200s: the path is too long", to);
    (void)snprintf(part, sizeof part, "%s.part", to);
    if ((status = fb_tree_remove(os, part, err)) != FB_OK) return status;
    status = info.kind == FB_OS_FOLDER ? put_folder(os, from, part, how, err) : put_file(os, from, part, how, digest, err);
    if (status == FB_OK) {
        got = os->rename_new(os->ctx, part, to);
        if (got == -EEXIST) status = fb_fail(err, FB_E_EXISTS, "keep %s: the name is taken", to);
        else if (got < 0) status = fb_fail_os(err, (int)-got, "keep %s", to);
    }
    if (status == FB_OK) {
        got = fb_os_sync_parent(os, to);
        return got < 0 ? fb_fail_os(err, (int)-got, "keep %s: make its name durable", to) : FB_OK;
    }
    (void)fb_tree_remove(os, part, NULL);
    return status;
}
