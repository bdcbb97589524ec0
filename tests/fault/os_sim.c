/* The simulated machine of os_sim.h. Memory comes from the C library, so that requests made to fail are the tested code's alone. */
#include "fault/os_sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 160, NAMES_MAX = 256, FDS_MAX = 64, CALLS_MAX = 4096, BLOCK = 4096, SECTOR = 512 };

struct bytes {
    unsigned char *data;
    size_t size, room;
};

struct node {
    struct bytes cache, disk;
    int kind;      /* FB_OS_FILE, FB_OS_FOLDER; 0: not in use */
    int locked_by; /* descriptor + 1 */
};

struct name {
    char path[200]; /* empty: not in use */
    int node;
};

struct write {
    int node;
    int is_truncate; /* then offset is the new length */
    uint64_t offset;
    size_t bytes;
    unsigned char *data;
};

/*
 * A change of names: `path` comes to mean `node`, or nothing when node is -1. A rename is two that cannot be parted; that of a
 * folder is one, which takes all names in it along: `from` is not empty then.
 */
struct change {
    char path[200], from[200];
    int node;
    int with_next;
};

struct fd {
    int open, node, writable, appending;
    uint64_t position;
};

struct os_sim {
    fb_os os;
    struct node nodes[NODES_MAX];
    struct name cache_names[NAMES_MAX], disk_names[NAMES_MAX];
    struct fd fds[FDS_MAX];
    struct write *writes;
    size_t writes_count, writes_room;
    struct change changes[NAMES_MAX];
    size_t changes_count;
    uint64_t calls, fail_at, cut_at, capacity;
    int fail_errno, fail_for_good, dead, clones;
    int64_t pid, clock_ns;
    const char *call_names[CALLS_MAX];
};

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "os_sim: out of memory or of room\n");
        abort();
    }
    return memory;
}

uint64_t os_sim_random(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- bytes, nodes, names ---------------------------------------------------------------------------------------------------- */

static void resize(struct bytes *b, size_t size)
{
    if (size > b->room) {
        b->room = size * 2;
        b->data = need(realloc(b->data, b->room));
    }
    if (size > b->size) memset(b->data + b->size, 0, size - b->size);
    b->size = size;
}

static void put(struct bytes *b, uint64_t offset, const unsigned char *data, size_t bytes)
{
    if (bytes == 0) return;
    if (offset + bytes > b->size) resize(b, (size_t)offset + bytes);
    memcpy(b->data + offset, data, bytes);
}

static int find_name(const struct name *names, const char *path)
{
    for (int i = 0; i < NAMES_MAX; i++) {
        if (names[i].path[0] && strcmp(names[i].path, path) == 0) return i;
    }
    return -1;
}

static void set_name(struct name *names, const char *path, int node)
{
    int i = find_name(names, path);
    if (i < 0 && node < 0) return;
    for (int free_one = 0; i < 0; free_one++) {
        if (free_one == NAMES_MAX) need(NULL);
        if (!names[free_one].path[0]) i = free_one;
    }
    names[i].node = node;
    (void)snprintf(names[i].path, sizeof names[i].path, "%s", node < 0 ? "" : path);
}

static int node_of(const os_sim *sim, const char *path)
{
    int i = find_name(sim->cache_names, path);
    return i < 0 ? -1 : sim->cache_names[i].node;
}

static void parent_of(char *out, size_t out_bytes, const char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] != '/') n--;
    if (n > 1) n--;
    (void)snprintf(out, out_bytes, "%.*s", (int)n, path);
}

/* "/a/b" lies in "/a". */
static int lies_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/';
}

static void move_path(char *path, size_t room, const char *from, const char *to)
{
    char moved[400];
    (void)snprintf(moved, sizeof moved, "%s%s", to, path + strlen(from));
    if (strlen(moved) >= room) need(NULL);
    (void)snprintf(path, room, "%s", moved);
}

/* A folder and all names in it. */
static void move_names(struct name *names, const char *from, const char *to)
{
    for (int i = 0; i < NAMES_MAX; i++) {
        if (strcmp(names[i].path, from) == 0 || lies_in(names[i].path, from)) {
            move_path(names[i].path, sizeof names[i].path, from, to);
        }
    }
}

static void apply_change(struct name *names, const struct change *change)
{
    if (change->from[0]) move_names(names, change->from, change->path);
    else set_name(names, change->path, change->node);
}

static void move_folder(os_sim *sim, const char *from, const char *to, int node)
{
    struct change *change;
    if (sim->changes_count == NAMES_MAX) need(NULL);
    /* Names in it that wait for a sync wait under the new name from here on. */
    for (size_t i = 0; i < sim->changes_count; i++) {
        if (lies_in(sim->changes[i].path, from)) move_path(sim->changes[i].path, sizeof sim->changes[i].path, from, to);
    }
    change = &sim->changes[sim->changes_count++];
    memset(change, 0, sizeof *change);
    (void)snprintf(change->path, sizeof change->path, "%s", to);
    (void)snprintf(change->from, sizeof change->from, "%s", from);
    change->node = node;
    move_names(sim->cache_names, from, to);
}

static void change_name(os_sim *sim, const char *path, int node, int with_next)
{
    struct change *change;
    if (sim->changes_count == NAMES_MAX) need(NULL);
    change = &sim->changes[sim->changes_count++];
    memset(change, 0, sizeof *change);
    (void)snprintf(change->path, sizeof change->path, "%s", path);
    change->node = node;
    change->with_next = with_next;
    set_name(sim->cache_names, path, node);
}

static int new_node(os_sim *sim, int kind)
{
    for (int i = 0; i < NODES_MAX; i++) {
        if (sim->nodes[i].kind == 0) {
            sim->nodes[i].kind = kind;
            return i;
        }
    }
    need(NULL);
    return -1;
}

/* ---- waiting writes --------------------------------------------------------------------------------------------------------- */

static void wait_write(os_sim *sim, int node, int is_truncate, uint64_t offset, const unsigned char *data, size_t bytes)
{
    struct write *w;
    if (sim->writes_count == sim->writes_room) {
        sim->writes_room = sim->writes_room * 2 + 16;
        sim->writes = need(realloc(sim->writes, sim->writes_room * sizeof *sim->writes));
    }
    w = &sim->writes[sim->writes_count++];
    memset(w, 0, sizeof *w);
    w->node = node;
    w->is_truncate = is_truncate;
    w->offset = offset;
    w->bytes = bytes;
    if (bytes) {
        w->data = need(malloc(bytes));
        memcpy(w->data, data, bytes);
    }
}

/* What waits for a node leaves the queue: onto the disk, or away. */
static void settle_writes(os_sim *sim, int node, int onto_disk)
{
    size_t kept = 0;
    for (size_t i = 0; i < sim->writes_count; i++) {
        struct write *w = &sim->writes[i];
        if (w->node != node) {
            sim->writes[kept++] = *w;
            continue;
        }
        if (onto_disk && w->is_truncate) resize(&sim->nodes[node].disk, (size_t)w->offset);
        else if (onto_disk) put(&sim->nodes[node].disk, w->offset, w->data, w->bytes);
        free(w->data);
    }
    sim->writes_count = kept;
}

/* The names of a folder reach the disk, in order, and with each all that it cannot be parted from. */
static void settle_names(os_sim *sim, const char *folder)
{
    size_t kept = 0;
    char parent[200];
    for (size_t i = 0; i < sim->changes_count; i++) {
        parent_of(parent, sizeof parent, sim->changes[i].path);
        if (strcmp(parent, folder) == 0) apply_change(sim->disk_names, &sim->changes[i]);
        else sim->changes[kept++] = sim->changes[i];
    }
    sim->changes_count = kept;
}

static void noise(unsigned char *out, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)os_sim_random(&seed);
}

static void ruin(struct bytes *disk, uint64_t offset, size_t bytes, uint64_t seed)
{
    size_t from = (size_t)offset / BLOCK * BLOCK, to = ((size_t)offset + bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (offset + bytes > disk->size) resize(disk, (size_t)offset + bytes);
    if (to > disk->size) to = disk->size;
    noise(disk->data + from, to - from, seed);
}

static void apply_fate(struct bytes *disk, const struct write *w, os_sim_fate fate)
{
    size_t part = fate.value < w->bytes ? (size_t)fate.value : w->bytes;
    if (fate.kind == OS_SIM_LOST) return;
    if (w->is_truncate) {
        resize(disk, (size_t)w->offset);
        return;
    }
    if (w->bytes == 0) return;
    switch (fate.kind) {
    case OS_SIM_KEPT: put(disk, w->offset, w->data, w->bytes); break;
    case OS_SIM_PREFIX: put(disk, w->offset, w->data, part); break;
    case OS_SIM_SUFFIX: put(disk, w->offset + part, w->data + part, w->bytes - part); break;
    case OS_SIM_SECTORS:
        for (size_t i = 0; i < w->bytes;) {
            uint64_t sector = (w->offset + i) / SECTOR;
            size_t n = (size_t)((sector + 1) * SECTOR - (w->offset + i));
            if (n > w->bytes - i) n = w->bytes - i;
            if (fate.value >> (sector % 64) & 1) put(disk, w->offset + i, w->data + i, n);
            i += n;
        }
        break;
    case OS_SIM_GARBLED:
        if (w->offset + w->bytes > disk->size) resize(disk, (size_t)w->offset + w->bytes);
        noise(disk->data + w->offset, w->bytes, fate.value);
        break;
    case OS_SIM_LENGTH:
        if (w->offset + w->bytes > disk->size) resize(disk, (size_t)w->offset + w->bytes);
        break;
    case OS_SIM_RUINED: ruin(disk, w->offset, w->bytes, fate.value); break;
    default: need(NULL);
    }
}

/* ---- the gate of every call ------------------------------------------------------------------------------------------------- */

enum verdict { GO, GO_HALF, GO_THEN_DIE, FAIL };

/* What becomes of this call. On FAIL *result holds what it returns. */
static enum verdict enter(os_sim *sim, const char *name, int64_t *result)
{
    if (sim->calls < CALLS_MAX) sim->call_names[sim->calls] = name;
    sim->calls++;
    *result = -EIO;
    if (sim->dead) return FAIL;
    if (sim->cut_at && sim->calls == sim->cut_at) {
        sim->dead = 1;
        return GO_THEN_DIE;
    }
    if (sim->fail_at && (sim->calls == sim->fail_at || (sim->calls > sim->fail_at && sim->fail_for_good))) {
        if (sim->fail_errno == OS_SIM_SHORT) return GO_HALF;
        *result = -(int64_t)sim->fail_errno;
        return FAIL;
    }
    return GO;
}

static struct fd *fd_of(os_sim *sim, int fd)
{
    return fd >= 0 && fd < FDS_MAX && sim->fds[fd].open ? &sim->fds[fd] : NULL;
}

#define ENTER(name)                                   \
    os_sim *sim = ctx;                                \
    int64_t result;                                   \
    enum verdict verdict = enter(sim, name, &result); \
    if (verdict == FAIL) return result

/* The result of a call that took effect: a call during which the power went never returns it. */
static int64_t leave(enum verdict verdict, int64_t value)
{
    return verdict == GO_THEN_DIE ? -EIO : value;
}

/* ---- calls on descriptors --------------------------------------------------------------------------------------------------- */

static int64_t sim_open(void *ctx, const char *path, int flags, int mode)
{
    int node, fd = 0;
    ENTER("open");
    (void)mode;
    node = node_of(sim, path);
    if (node >= 0 && (flags & O_CREAT) && (flags & O_EXCL)) return -EEXIST;
    if (node < 0 && !(flags & O_CREAT)) return -ENOENT;
    if (node < 0) {
        char parent[200];
        parent_of(parent, sizeof parent, path);
        if (node_of(sim, parent) < 0) return -ENOENT;
        node = new_node(sim, FB_OS_FILE);
        change_name(sim, path, node, 0);
    }
    if ((flags & O_DIRECTORY) && sim->nodes[node].kind != FB_OS_FOLDER) return -ENOTDIR;
    if (flags & O_TRUNC) {
        resize(&sim->nodes[node].cache, 0);
        wait_write(sim, node, 1, 0, NULL, 0);
    }
    while (fd < FDS_MAX && sim->fds[fd].open) fd++;
    if (fd == FDS_MAX) return -EMFILE;
    sim->fds[fd].open = 1;
    sim->fds[fd].node = node;
    sim->fds[fd].writable = (flags & O_ACCMODE) != O_RDONLY;
    sim->fds[fd].appending = (flags & O_APPEND) != 0;
    sim->fds[fd].position = 0;
    return leave(verdict, fd);
}

static int64_t sim_close(void *ctx, int fd)
{
    os_sim *sim = ctx;
    struct fd *f = fd_of(sim, fd);
    int64_t result;
    enum verdict verdict;
    /* The descriptor is gone even when close says that it failed. */
    if (f) {
        if (sim->nodes[f->node].locked_by == fd + 1) sim->nodes[f->node].locked_by = 0;
        f->open = 0;
    }
    verdict = enter(sim, "close", &result);
    if (verdict == FAIL) return result;
    return f ? leave(verdict, 0) : -EBADF;
}

static size_t half_if(enum verdict verdict, size_t bytes)
{
    return verdict == GO_HALF ? bytes / 2 : bytes;
}

static int64_t get_bytes(os_sim *sim, struct fd *f, void *data, size_t bytes, uint64_t offset)
{
    const struct bytes *cache = &sim->nodes[f->node].cache;
    if (sim->nodes[f->node].kind != FB_OS_FILE) return -EISDIR;
    if (offset >= cache->size) return 0;
    if (bytes > cache->size - offset) bytes = (size_t)(cache->size - offset);
    if (bytes) memcpy(data, cache->data + offset, bytes);
    return (int64_t)bytes;
}

static uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

/* How far a file may grow before the disk is full. */
static uint64_t size_max(const os_sim *sim, int node)
{
    uint64_t others = 0;
    for (int i = 0; i < NODES_MAX; i++) {
        if (i != node) others += blocks_of(sim->nodes[i].cache.size);
    }
    return others < sim->capacity ? (sim->capacity - others) / BLOCK * BLOCK : 0;
}

static int64_t put_bytes(os_sim *sim, struct fd *f, const void *data, size_t bytes, uint64_t offset)
{
    struct bytes *cache = &sim->nodes[f->node].cache;
    if (!f->writable) return -EBADF;
    if (bytes == 0) return 0;
    if (offset + bytes > blocks_of(cache->size)) {
        uint64_t limit = size_max(sim, f->node);
        if (offset >= limit) return -ENOSPC;
        if (bytes > limit - offset) bytes = (size_t)(limit - offset);
    }
    put(cache, offset, data, bytes);
    wait_write(sim, f->node, 0, offset, data, bytes);
    return (int64_t)bytes;
}

static int64_t sim_pread(void *ctx, int fd, void *data, size_t bytes, uint64_t offset)
{
    struct fd *f;
    ENTER("pread");
    f = fd_of(sim, fd);
    return f ? leave(verdict, get_bytes(sim, f, data, half_if(verdict, bytes), offset)) : -EBADF;
}

static int64_t sim_read(void *ctx, int fd, void *data, size_t bytes)
{
    struct fd *f;
    ENTER("read");
    f = fd_of(sim, fd);
    if (!f) return -EBADF;
    result = get_bytes(sim, f, data, half_if(verdict, bytes), f->position);
    if (result > 0) f->position += (uint64_t)result;
    return leave(verdict, result);
}

static int64_t sim_pwrite(void *ctx, int fd, const void *data, size_t bytes, uint64_t offset)
{
    struct fd *f;
    ENTER("pwrite");
    f = fd_of(sim, fd);
    return f ? leave(verdict, put_bytes(sim, f, data, half_if(verdict, bytes), offset)) : -EBADF;
}

static int64_t sim_write(void *ctx, int fd, const void *data, size_t bytes)
{
    struct fd *f;
    ENTER("write");
    f = fd_of(sim, fd);
    if (!f) return -EBADF;
    if (f->appending) f->position = sim->nodes[f->node].cache.size;
    result = put_bytes(sim, f, data, half_if(verdict, bytes), f->position);
    if (result > 0) f->position += (uint64_t)result;
    return leave(verdict, result);
}

static int64_t sync_node(os_sim *sim, const char *call, int fd)
{
    struct fd *f = fd_of(sim, fd);
    int64_t result;
    enum verdict verdict = enter(sim, call, &result);
    if (!f) return -EBADF;
    if (verdict == FAIL) {
        if (!sim->dead && result != -EINTR) settle_writes(sim, f->node, 0);
        return result;
    }
    if (verdict == GO_THEN_DIE) return -EIO;
    settle_writes(sim, f->node, 1);
    if (sim->nodes[f->node].kind == FB_OS_FOLDER) {
        for (int i = 0; i < NAMES_MAX; i++) {
            if (sim->cache_names[i].path[0] && sim->cache_names[i].node == f->node) settle_names(sim, sim->cache_names[i].path);
        }
    }
    return 0;
}

static int64_t sim_fsync(void *ctx, int fd)
{
    return sync_node(ctx, "fsync", fd);
}

static int64_t sim_fdatasync(void *ctx, int fd)
{
    return sync_node(ctx, "fdatasync", fd);
}

static int64_t sim_fallocate(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    struct fd *f;
    ENTER("fallocate");
    f = fd_of(sim, fd);
    if (!f || !f->writable) return -EBADF;
    if (offset + bytes > size_max(sim, f->node)) return -ENOSPC;
    if (offset + bytes > sim->nodes[f->node].cache.size) {
        resize(&sim->nodes[f->node].cache, (size_t)(offset + bytes));
        wait_write(sim, f->node, 1, offset + bytes, NULL, 0);
    }
    return leave(verdict, 0);
}

static int64_t sim_ftruncate(void *ctx, int fd, uint64_t bytes)
{
    struct fd *f;
    ENTER("ftruncate");
    f = fd_of(sim, fd);
    if (!f || !f->writable) return -EBADF;
    resize(&sim->nodes[f->node].cache, (size_t)bytes);
    wait_write(sim, f->node, 1, bytes, NULL, 0);
    return leave(verdict, 0);
}

static int64_t sim_lock(void *ctx, int fd, int how)
{
    struct fd *f;
    struct node *node;
    ENTER("lock");
    f = fd_of(sim, fd);
    if (!f) return -EBADF;
    node = &sim->nodes[f->node];
    if (how != FB_OS_UNLOCK && node->locked_by && node->locked_by != fd + 1) return -EAGAIN;
    node->locked_by = how == FB_OS_UNLOCK ? 0 : fd + 1;
    return leave(verdict, 0);
}

/* ---- calls on names --------------------------------------------------------------------------------------------------------- */

static void describe(const os_sim *sim, int node, fb_os_info *info)
{
    memset(info, 0, sizeof *info);
    info->size_bytes = sim->nodes[node].cache.size;
    info->device = 1;
    info->inode = (uint64_t)node + 1;
    info->kind = sim->nodes[node].kind;
    for (int i = 0; i < NAMES_MAX; i++) info->links += sim->cache_names[i].path[0] && sim->cache_names[i].node == node;
}

static int64_t sim_fstat(void *ctx, int fd, fb_os_info *info)
{
    struct fd *f;
    ENTER("fstat");
    f = fd_of(sim, fd);
    if (!f) return -EBADF;
    describe(sim, f->node, info);
    return leave(verdict, 0);
}

static int64_t sim_stat(void *ctx, const char *path, fb_os_info *info)
{
    int node;
    ENTER("stat");
    node = node_of(sim, path);
    if (node < 0) return -ENOENT;
    describe(sim, node, info);
    return leave(verdict, 0);
}

static int has_children(const os_sim *sim, const char *path)
{
    for (int i = 0; i < NAMES_MAX; i++) {
        if (sim->cache_names[i].path[0] && lies_in(sim->cache_names[i].path, path)) return 1;
    }
    return 0;
}

static int64_t rename_it(os_sim *sim, const char *from, const char *to, int replace)
{
    int node = node_of(sim, from), other = node_of(sim, to);
    char parent[200];
    parent_of(parent, sizeof parent, to);
    if (node < 0 || node_of(sim, parent) < 0) return -ENOENT;
    if (other >= 0 && !replace) return -EEXIST;
    if (other == node) return 0;
    if (other >= 0 && has_children(sim, to)) return -ENOTEMPTY;
    if (sim->nodes[node].kind == FB_OS_FOLDER) {
        if (other >= 0) change_name(sim, to, -1, 1);
        move_folder(sim, from, to, node);
        return 0;
    }
    change_name(sim, to, node, 1);
    change_name(sim, from, -1, 0);
    return 0;
}

static int64_t sim_rename(void *ctx, const char *from, const char *to)
{
    ENTER("rename");
    return leave(verdict, rename_it(sim, from, to, 1));
}

static int64_t sim_rename_new(void *ctx, const char *from, const char *to)
{
    ENTER("rename_new");
    return leave(verdict, rename_it(sim, from, to, 0));
}

static int64_t sim_link(void *ctx, const char *from, const char *to)
{
    int node;
    ENTER("link");
    node = node_of(sim, from);
    if (node < 0) return -ENOENT;
    if (node_of(sim, to) >= 0) return -EEXIST;
    if (sim->nodes[node].kind != FB_OS_FILE) return -EPERM;
    change_name(sim, to, node, 0);
    return leave(verdict, 0);
}

static int64_t sim_unlink(void *ctx, const char *path)
{
    ENTER("unlink");
    if (node_of(sim, path) < 0) return -ENOENT;
    if (sim->nodes[node_of(sim, path)].kind == FB_OS_FOLDER) return -EISDIR;
    change_name(sim, path, -1, 0);
    return leave(verdict, 0);
}

static int64_t sim_rmdir(void *ctx, const char *path)
{
    ENTER("rmdir");
    if (node_of(sim, path) < 0) return -ENOENT;
    if (sim->nodes[node_of(sim, path)].kind != FB_OS_FOLDER) return -ENOTDIR;
    if (has_children(sim, path)) return -ENOTEMPTY;
    change_name(sim, path, -1, 0);
    return leave(verdict, 0);
}

static int64_t sim_mkdir(void *ctx, const char *path, int mode)
{
    char parent[200];
    ENTER("mkdir");
    (void)mode;
    parent_of(parent, sizeof parent, path);
    if (node_of(sim, path) >= 0) return -EEXIST;
    if (node_of(sim, parent) < 0) return -ENOENT;
    change_name(sim, path, new_node(sim, FB_OS_FOLDER), 0);
    return leave(verdict, 0);
}

static int64_t sim_list(void *ctx, const char *path, fb_os_list_fn fn, void *arg)
{
    char parent[200];
    int64_t stop = 0;
    ENTER("list");
    if (node_of(sim, path) < 0) return -ENOENT;
    for (int i = 0; i < NAMES_MAX && stop == 0; i++) {
        const char *name = sim->cache_names[i].path;
        if (!name[0] || strcmp(name, "/") == 0) continue;
        parent_of(parent, sizeof parent, name);
        if (strcmp(parent, path) == 0) stop = fn(arg, strrchr(name, '/') + 1);
    }
    return leave(verdict, stop);
}

static int64_t sim_realpath(void *ctx, const char *path, char *text, size_t bytes)
{
    ENTER("realpath");
    if (node_of(sim, path) < 0) return -ENOENT;
    if (strlen(path) >= bytes) return -ENAMETOOLONG;
    (void)snprintf(text, bytes, "%s", path);
    return leave(verdict, 0);
}

static int64_t sim_lstat(void *ctx, const char *path, fb_os_info *info)
{
    int node;
    ENTER("lstat");
    node = node_of(sim, path);
    if (node < 0) return -ENOENT;
    describe(sim, node, info);
    return leave(verdict, 0);
}

/* A clone waits for the sync of its file as a write does. */
static int64_t sim_clone(void *ctx, int from, int to)
{
    struct fd *a, *b;
    const struct bytes *bytes;
    ENTER("clone");
    a = fd_of(sim, from);
    b = fd_of(sim, to);
    if (!a || !b || !b->writable) return -EBADF;
    if (!sim->clones) return -EOPNOTSUPP;
    bytes = &sim->nodes[a->node].cache;
    result = put_bytes(sim, b, bytes->data, bytes->size, 0);
    return leave(verdict, result < 0 ? result : 0);
}

static int64_t sim_free_bytes(void *ctx, const char *path)
{
    ENTER("free_bytes");
    if (node_of(sim, path) < 0) return -ENOENT;
    return leave(verdict, (int64_t)(size_max(sim, -1) > INT64_MAX / 2 ? INT64_MAX / 2 : size_max(sim, -1)));
}

/* This machine has no symbolic links. */
static int64_t sim_readlink(void *ctx, const char *path, char *text, size_t bytes)
{
    ENTER("readlink");
    (void)text;
    (void)bytes;
    return leave(verdict, node_of(sim, path) < 0 ? -ENOENT : -EINVAL);
}

static int64_t sim_symlink(void *ctx, const char *target, const char *path)
{
    ENTER("symlink");
    (void)sim;
    (void)target;
    (void)path;
    return leave(verdict, -EPERM);
}

/* ---- calls that cannot fail ------------------------------------------------------------------------------------------------- */

static int64_t sim_clock(void *ctx)
{
    os_sim *sim = ctx;
    return sim->clock_ns += 1000;
}

static int64_t sim_sleep_ns(void *ctx, uint64_t ns)
{
    os_sim *sim = ctx;
    sim->clock_ns += (int64_t)ns;
    return 0;
}

static int64_t sim_getpid(void *ctx)
{
    const os_sim *sim = ctx;
    return sim->pid;
}

static int64_t sim_hostname(void *ctx, char *text, size_t bytes)
{
    (void)ctx;
    (void)snprintf(text, bytes, "simulated");
    return 0;
}

/* ---- the machine ------------------------------------------------------------------------------------------------------------ */

static void fill_table(os_sim *sim)
{
    const fb_os table = {
        .ctx = sim,
        .open = sim_open,
        .close = sim_close,
        .read = sim_read,
        .write = sim_write,
        .pread = sim_pread,
        .pwrite = sim_pwrite,
        .fsync = sim_fsync,
        .fdatasync = sim_fdatasync,
        .fallocate = sim_fallocate,
        .ftruncate = sim_ftruncate,
        .fstat = sim_fstat,
        .stat = sim_stat,
        .rename = sim_rename,
        .link = sim_link,
        .unlink = sim_unlink,
        .mkdir = sim_mkdir,
        .list = sim_list,
        .lock = sim_lock,
        .realtime_ns = sim_clock,
        .monotonic_ns = sim_clock,
        .sleep_ns = sim_sleep_ns,
        .getpid = sim_getpid,
        .hostname = sim_hostname,
        .realpath = sim_realpath,
        .lstat = sim_lstat,
        .rename_new = sim_rename_new,
        .rmdir = sim_rmdir,
        .clone = sim_clone,
        .free_bytes = sim_free_bytes,
        .readlink = sim_readlink,
        .symlink = sim_symlink,
    };
    sim->os = table;
}

/*
 * Machines that were freed, for use again: a test makes tens of thousands of them, and blocks of this size would each time be asked
 * from the system and given back.
 */
enum { SPARES_MAX = 4 };
static os_sim *spares[SPARES_MAX];
static int spares_count;

/* As new, but for the memory of its files. */
static void clear(os_sim *sim)
{
    struct node nodes[NODES_MAX];
    struct write *writes = sim->writes;
    size_t room = sim->writes_room;
    for (size_t i = 0; i < sim->writes_count; i++) free(sim->writes[i].data);
    memcpy(nodes, sim->nodes, sizeof nodes);
    memset(sim, 0, sizeof *sim);
    sim->writes = writes;
    sim->writes_room = room;
    for (int i = 0; i < NODES_MAX; i++) {
        sim->nodes[i].cache.data = nodes[i].cache.data;
        sim->nodes[i].cache.room = nodes[i].cache.room;
        sim->nodes[i].disk.data = nodes[i].disk.data;
        sim->nodes[i].disk.room = nodes[i].disk.room;
    }
}

os_sim *os_sim_new(void)
{
    os_sim *sim = spares_count ? spares[--spares_count] : need(calloc(1, sizeof *sim));
    int root;
    fill_table(sim);
    sim->capacity = UINT64_MAX / 2;
    sim->pid = 4711;
    sim->clock_ns = 1700000000000000000;
    root = new_node(sim, FB_OS_FOLDER);
    set_name(sim->cache_names, "/", root);
    set_name(sim->disk_names, "/", root);
    return sim;
}

void os_sim_free(os_sim *sim)
{
    if (!sim) return;
    clear(sim);
    if (spares_count < SPARES_MAX) {
        spares[spares_count++] = sim;
        return;
    }
    for (int i = 0; i < NODES_MAX; i++) {
        free(sim->nodes[i].cache.data);
        free(sim->nodes[i].disk.data);
    }
    free(sim->writes);
    free(sim);
}

const fb_os *os_sim_os(os_sim *sim)
{
    return &sim->os;
}

void os_sim_fail(os_sim *sim, uint64_t k, int with_errno, int for_good)
{
    sim->calls = 0;
    sim->fail_at = k;
    sim->fail_errno = with_errno;
    sim->fail_for_good = for_good;
}

void os_sim_cut(os_sim *sim, uint64_t k)
{
    sim->calls = 0;
    sim->cut_at = k;
}

uint64_t os_sim_calls(const os_sim *sim)
{
    return sim->calls;
}

const char *os_sim_call_name(const os_sim *sim, uint64_t k)
{
    return k >= 1 && k <= sim->calls && k <= CALLS_MAX ? sim->call_names[k - 1] : "";
}

void os_sim_capacity(os_sim *sim, uint64_t bytes)
{
    sim->capacity = bytes;
}

void os_sim_clones(os_sim *sim, int on)
{
    sim->clones = on;
}

void os_sim_set_pid(os_sim *sim, int64_t pid)
{
    sim->pid = pid;
}

size_t os_sim_waiting_writes(const os_sim *sim)
{
    return sim->writes_count;
}

size_t os_sim_waiting_names(const os_sim *sim)
{
    return sim->changes_count;
}

/* What was synced in a folder whose own name did not survive cannot be reached. */
static void drop_orphans(struct name *names)
{
    int dropped = 1;
    while (dropped) {
        dropped = 0;
        for (int i = 0; i < NAMES_MAX; i++) {
            char parent[200];
            if (!names[i].path[0] || strcmp(names[i].path, "/") == 0) continue;
            parent_of(parent, sizeof parent, names[i].path);
            if (find_name(names, parent) >= 0) continue;
            names[i].path[0] = '\0';
            dropped = 1;
        }
    }
}

os_sim *os_sim_after_power_cut(const os_sim *sim, os_sim_fate_fn fate, void *arg, size_t names_kept)
{
    os_sim *after = os_sim_new();
    while (names_kept > 0 && names_kept < sim->changes_count && sim->changes[names_kept - 1].with_next) names_kept++;
    memcpy(after->disk_names, sim->disk_names, sizeof after->disk_names);
    for (size_t i = 0; i < names_kept && i < sim->changes_count; i++) { apply_change(after->disk_names, &sim->changes[i]); }
    drop_orphans(after->disk_names);
    memcpy(after->cache_names, after->disk_names, sizeof after->cache_names);
    for (int i = 0; i < NODES_MAX; i++) {
        after->nodes[i].kind = sim->nodes[i].kind;
        put(&after->nodes[i].cache, 0, sim->nodes[i].disk.data, sim->nodes[i].disk.size);
    }
    for (size_t i = 0; i < sim->writes_count; i++) {
        const struct write *w = &sim->writes[i];
        apply_fate(&after->nodes[w->node].cache, w, fate(arg, sim->writes_count - 1 - i, w->bytes));
    }
    /* What was found after the reboot is what the disk holds. */
    for (int i = 0; i < NODES_MAX; i++) put(&after->nodes[i].disk, 0, after->nodes[i].cache.data, after->nodes[i].cache.size);
    after->capacity = sim->capacity;
    after->clones = sim->clones;
    after->pid = sim->pid + 1;
    after->clock_ns = sim->clock_ns - 3600000000000; /* the clock of the machine stood still, or was set back */
    return after;
}
