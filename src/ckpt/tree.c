#include "ckpt/tree.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/order.h"

typedef struct listing {
    fb_tree *tree;
    const fb_os *os;
    uint32_t dir;
    uint64_t entries_max;
    int follow;
    fb_status status;
    fb_error *err;
} listing;

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static fb_status no_memory(const fb_tree *tree, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "list folder %s: no memory for its names", tree->path);
}

static int grow(void **list, uint64_t *room, uint64_t count, size_t size)
{
    uint64_t wanted = *room ? *room * 2 : 64;
    void *grown;
    if (count < *room) return 1;
    grown = fb_realloc(*list, (size_t)wanted * size);
    if (!grown) return 0;
    *list = grown;
    *room = wanted;
    return 1;
}

/* ---- what is left out ------------------------------------------------------------------------------------------------------- */

static int is_ours(const char *base)
{
    return strcmp(base, ".firstbad") == 0 || strcmp(base, "firstbad-state.json") == 0;
}

static int never_holds_a_checkpoint(const char *base)
{
    return strcmp(base, ".git") == 0 || strcmp(base, "__pycache__") == 0;
}

/* ---- links ------------------------------------------------------------------------------------------------------------------ */

int fb_tree_leads_inside(const fb_tree *tree, const fb_os *os, const char *path)
{
    char target[FB_OS_PATH_MAX], root[FB_OS_PATH_MAX];
    size_t n;
    if (os->realpath(os->ctx, path, target, sizeof target) < 0 || os->realpath(os->ctx, tree->path, root, sizeof root) < 0)
        return 0;
    n = strlen(root);
    return strncmp(target, root, n) == 0 && (target[n] == '/' || target[n] == '\0' || n == 1);
}

/* Where links are followed: that of the file behind one. */
static void look_behind(const listing *l, const char *path, fb_os_info *info)
{
    fb_os_info behind;
    if (!l->follow || l->os->stat(l->os->ctx, path, &behind) < 0 || behind.kind != FB_OS_FILE) return;
    if (!fb_tree_leads_inside(l->tree, l->os, path)) *info = behind;
}

/* ---- listing ---------------------------------------------------------------------------------------------------------------- */

static fb_status add_dir(listing *l, const char *name, const fb_os_info *info, uint32_t depth)
{
    fb_tree *t = l->tree;
    fb_tree_dir *d;
    if (depth > FB_TREE_DEPTH_MAX) {
        return fb_fail(l->err, FB_E_LIMIT, "list folder %s: %.300s lies more than %d folders deep", t->path, name,
                       FB_TREE_DEPTH_MAX);
    }
    if (!grow((void **)&t->dirs, &t->dir_room, t->dir_count, sizeof *t->dirs)) return no_memory(t, l->err);
    d = &t->dirs[t->dir_count++];
    memset(d, 0, sizeof *d);
    d->name = name;
    d->info = *info;
    d->depth = depth;
    d->parent = l->dir;
    return FB_OK;
}

static fb_status add_file(listing *l, const char *name, const fb_os_info *info)
{
    fb_tree *t = l->tree;
    fb_tree_file *f;
    if (!grow((void **)&t->files, &t->file_room, t->count, sizeof *t->files)) return no_memory(t, l->err);
    f = &t->files[t->count++];
    memset(f, 0, sizeof *f);
    f->name = name;
    f->base = last_part(name);
    f->kind = info->kind;
    f->dir = l->dir;
    if (info->kind != FB_OS_FILE) return FB_OK;
    f->size_bytes = info->size_bytes;
    if (__builtin_add_overflow(t->bytes, f->size_bytes, &t->bytes)) t->bytes = UINT64_MAX;
    return FB_OK;
}

static fb_status add_entry(listing *l, const char *base)
{
    fb_tree *t = l->tree;
    const char *above = t->dirs[l->dir].name;
    char path[FB_OS_PATH_MAX], *name;
    size_t head = strlen(above), tail = strlen(base);
    fb_os_info info;
    fb_status status;
    int64_t got;
    if (t->count + t->dir_count > l->entries_max) {
        return fb_fail(l->err, FB_E_LIMIT, "scan %s: more than %llu files and folders", t->path,
                       (unsigned long long)l->entries_max);
    }
    name = fb_pool_take(&t->pool, head + 1 + tail + 1);
    if (!name) return no_memory(t, l->err);
    if (head) memcpy(name, above, head + 1);
    if (head) name[head++] = '/';
    memcpy(name + head, base, tail + 1);
    if ((status = fb_os_join(path, sizeof path, t->path, name, l->err)) != FB_OK) return status;
    got = l->os->lstat(l->os->ctx, path, &info);
    if (got == -ENOENT) {
        t->changed = 1;
        return FB_OK;
    }
    if (got < 0) return fb_fail_os(l->err, (int)-got, "scan %s", path);
    if (info.kind == FB_OS_FOLDER)
        return never_holds_a_checkpoint(base) ? FB_OK : add_dir(l, name, &info, t->dirs[l->dir].depth + 1);
    if (info.kind == FB_OS_OTHER) look_behind(l, path, &info);
    return add_file(l, name, &info);
}

static int64_t take_name(void *arg, const char *name)
{
    listing *l = arg;
    if (is_ours(name)) return 0;
    l->status = add_entry(l, name);
    return l->status != FB_OK;
}

/* Folders that are found join the end of the list, so that this needs no stack. */
static fb_status list_all(listing *l)
{
    fb_tree *t = l->tree;
    for (l->dir = 0; l->dir < t->dir_count; l->dir++) {
        char path[FB_OS_PATH_MAX];
        const char *name = t->dirs[l->dir].name;
        int64_t got;
        fb_status status = *name ? fb_os_join(path, sizeof path, t->path, name, l->err) : FB_OK;
        if (status != FB_OK) return status;
        got = l->os->list(l->os->ctx, *name ? path : t->path, take_name, l);
        if (l->status != FB_OK) return l->status;
        if (got < 0) return fb_fail_os(l->err, (int)-got, "list folder %s", *name ? path : t->path);
    }
    return FB_OK;
}

/* ---- order ------------------------------------------------------------------------------------------------------------------ */

static int by_name(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_tree *t = ctx;
    return strcmp(t->files[a].name, t->files[b].name);
}

static int by_dir_and_name(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_tree *t = ctx;
    if (t->files[a].dir != t->files[b].dir) return t->files[a].dir < t->files[b].dir ? -1 : 1;
    return strcmp(t->files[a].base, t->files[b].base);
}

static fb_status sort_files(fb_tree *t, fb_error *err)
{
    fb_tree_file *sorted = fb_calloc((size_t)t->count + 1, sizeof *sorted);
    t->by_dir = fb_calloc((size_t)t->count + 1, sizeof *t->by_dir);
    if (!sorted || !t->by_dir) {
        fb_free(sorted);
        return no_memory(t, err);
    }
    for (uint64_t i = 0; i < t->count; i++) t->by_dir[i] = (uint32_t)i;
    fb_ckpt_sort(t->by_dir, t->count, by_name, t);
    for (uint64_t i = 0; i < t->count; i++) sorted[i] = t->files[t->by_dir[i]];
    fb_free(t->files);
    t->files = sorted;
    for (uint64_t i = 0; i < t->count; i++) t->by_dir[i] = (uint32_t)i;
    fb_ckpt_sort(t->by_dir, t->count, by_dir_and_name, t);
    for (uint64_t i = 0; i < t->count; i++) {
        fb_tree_dir *d = &t->dirs[t->files[t->by_dir[i]].dir];
        if (d->count++ == 0) d->first = i;
    }
    return FB_OK;
}

fb_status fb_tree_list(fb_tree *tree, const fb_os *os, const char *path, uint64_t entries_max, int follow, fb_error *err)
{
    listing l = {tree, os, 0, entries_max < UINT32_MAX ? entries_max : UINT32_MAX, follow, FB_OK, err};
    fb_os_info info;
    fb_status status;
    int64_t got;
    memset(tree, 0, sizeof *tree);
    tree->path = path;
    got = os->stat(os->ctx, path, &info);
    if (got == -ENOENT) return fb_fail(err, FB_E_NOTFOUND, "scan %s: no such folder", path);
    if (got < 0) return fb_fail_os(err, (int)-got, "scan %s", path);
    if ((status = add_dir(&l, "", &info, 0)) != FB_OK) return status;
    if ((status = list_all(&l)) != FB_OK) return status;
    return sort_files(tree, err);
}

void fb_tree_release(fb_tree *tree)
{
    fb_free(tree->files);
    fb_free(tree->dirs);
    fb_free(tree->by_dir);
    fb_pool_release(&tree->pool);
    memset(tree, 0, sizeof *tree);
}

/* ---- finding ---------------------------------------------------------------------------------------------------------------- */

const fb_tree_file *fb_tree_of_dir(const fb_tree *tree, uint32_t dir, uint64_t i)
{
    const fb_tree_dir *d = &tree->dirs[dir];
    return i < d->count ? &tree->files[tree->by_dir[d->first + i]] : NULL;
}

const fb_tree_file *fb_tree_find(const fb_tree *tree, uint32_t dir, const char *base)
{
    uint64_t low = 0, high = tree->dirs[dir].count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const fb_tree_file *f = fb_tree_of_dir(tree, dir, middle);
        int order = strcmp(f->base, base);
        if (order == 0) return f;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const char *fb_tree_dir_base(const fb_tree *tree, uint32_t dir)
{
    return last_part(dir == 0 ? tree->path : tree->dirs[dir].name);
}

uint32_t fb_tree_find_dir(const fb_tree *tree, uint32_t parent, const char *base)
{
    for (uint64_t i = 1; i < tree->dir_count; i++) {
        if (tree->dirs[i].parent == parent && strcmp(last_part(tree->dirs[i].name), base) == 0) return (uint32_t)i;
    }
    return UINT32_MAX;
}
