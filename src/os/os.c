/* Sequences of system calls that are easy to get wrong: interrupted and short transfers, files that appear whole or not at all. */
#include "os/os.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* A signal that arrives again and again must not hang training; a hundred interruptions of one call are a fault of the system. */
enum { INTERRUPTIONS_MAX = 100 };
enum { TEMP_NAMES_MAX = 100 };

int64_t fb_os_open(const fb_os *os, const char *path, int flags, int mode)
{
    int64_t fd = -EINTR;
    for (int i = 0; i < INTERRUPTIONS_MAX && fd == -EINTR; i++) fd = os->open(os->ctx, path, flags, mode);
    return fd;
}

int64_t fb_os_fsync(const fb_os *os, int fd)
{
    int64_t status = -EINTR;
    for (int i = 0; i < INTERRUPTIONS_MAX && status == -EINTR; i++) status = os->fsync(os->ctx, fd);
    return status;
}

int64_t fb_os_fdatasync(const fb_os *os, int fd)
{
    int64_t status = -EINTR;
    for (int i = 0; i < INTERRUPTIONS_MAX && status == -EINTR; i++) status = os->fdatasync(os->ctx, fd);
    return status;
}

int64_t fb_os_lock(const fb_os *os, int fd, int how)
{
    int64_t status = -EINTR;
    for (int i = 0; i < INTERRUPTIONS_MAX && status == -EINTR; i++) status = os->lock(os->ctx, fd, how);
    return status;
}

enum transfer { READ, WRITE, PREAD, PWRITE };

static int64_t transfer_once(const fb_os *os, enum transfer how, int fd, unsigned char *data, size_t bytes, uint64_t offset)
{
    switch (how) {
    case READ: return os->read(os->ctx, fd, data, bytes);
    case WRITE: return os->write(os->ctx, fd, data, bytes);
    case PREAD: return os->pread(os->ctx, fd, data, bytes, offset);
    case PWRITE: return os->pwrite(os->ctx, fd, data, bytes, offset);
    default: return -EINVAL;
    }
}

/* Until all bytes moved, the file ended (0 bytes moved) or an error: then *done bytes have moved. */
static int64_t transfer_all(const fb_os *os, enum transfer how, int fd, unsigned char *data, size_t bytes, uint64_t offset,
                            size_t *done)
{
    int interruptions = 0;
    *done = 0;
    while (*done < bytes) {
        int64_t moved = transfer_once(os, how, fd, data + *done, bytes - *done, offset + *done);
        if (moved == -EINTR && ++interruptions < INTERRUPTIONS_MAX) continue;
        if (moved < 0) return moved;
        if (moved == 0) return 0;
        if ((uint64_t)moved > bytes - *done) return -EIO; /* no system does this; a wrong table must not overrun us */
        *done += (size_t)moved;
    }
    return 0;
}

/* Writing takes no bytes of the caller's; the shared loop only needs one pointer type. */
static unsigned char *unconst(const void *data)
{
    union {
        const void *in;
        unsigned char *out;
    } u;
    u.in = data;
    return u.out;
}

int64_t fb_os_write_all(const fb_os *os, int fd, const void *data, size_t bytes)
{
    size_t done;
    int64_t status = transfer_all(os, WRITE, fd, unconst(data), bytes, 0, &done);
    if (status == 0 && done < bytes) return -EIO; /* a write of 0 bytes makes no progress and gives no reason */
    return status;
}

int64_t fb_os_pwrite_all(const fb_os *os, int fd, const void *data, size_t bytes, uint64_t offset, size_t *done)
{
    size_t moved;
    int64_t status = transfer_all(os, PWRITE, fd, unconst(data), bytes, offset, &moved);
    if (done) *done = moved;
    if (status == 0 && moved < bytes) return -EIO;
    return status;
}

int64_t fb_os_read_full(const fb_os *os, int fd, void *data, size_t bytes)
{
    size_t done;
    int64_t status = transfer_all(os, READ, fd, data, bytes, 0, &done);
    return status < 0 ? status : (int64_t)done;
}

int64_t fb_os_pread_full(const fb_os *os, int fd, void *data, size_t bytes, uint64_t offset)
{
    size_t done;
    int64_t status = transfer_all(os, PREAD, fd, data, bytes, offset, &done);
    return status < 0 ? status : (int64_t)done;
}

int64_t fb_os_set_aside(const fb_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    static const unsigned char zeros[16384];
    /* Asked first because it says "disk full" at once and gives blocks in a row. Whether it can or not, zeros are written after it:
     * blocks that were reserved but never written may still need space in the file system's own tables at the first write. */
    int64_t status = os->fallocate(os->ctx, fd, offset, bytes);
    if (status == -ENOSPC || status == -EDQUOT || status == -EFBIG) return status;
    while (bytes > 0) {
        size_t part = bytes < sizeof zeros ? (size_t)bytes : sizeof zeros;
        status = fb_os_pwrite_all(os, fd, zeros, part, offset, NULL);
        if (status < 0) return status;
        offset += part;
        bytes -= part;
    }
    return 0;
}

int64_t fb_os_sync_dir(const fb_os *os, const char *dir)
{
    int64_t fd = fb_os_open(os, dir, O_RDONLY | O_DIRECTORY, 0);
    int64_t status;
    if (fd < 0) return fd;
    status = fb_os_fsync(os, (int)fd);
    /* Some network file systems have no fsync of a folder; their names are durable when the call that made them returns. */
    if (status == -EINVAL || status == -EROFS || status == -ENOSYS || status == -EOPNOTSUPP) status = 0;
    (void)os->close(os->ctx, (int)fd);
    return status;
}

/* Length of the part of path before its last component, trailing slashes ignored: "a/b//" gives 1, "b" gives 0, "/b" gives 1. */
static size_t parent_bytes(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    return n;
}

int64_t fb_os_sync_parent(const fb_os *os, const char *path)
{
    char dir[FB_OS_PATH_MAX];
    size_t n = parent_bytes(path);
    if (n >= sizeof dir) return -ENAMETOOLONG;
    if (n == 0) return fb_os_sync_dir(os, ".");
    memcpy(dir, path, n);
    dir[n] = '\0';
    return fb_os_sync_dir(os, dir);
}

fb_status fb_os_join(char *path, size_t path_bytes, const char *dir, const char *name, fb_error *err)
{
    size_t n = strlen(dir);
    const char *slash = n == 0 || dir[n - 1] == '/' ? "" : "/";
    if (n + strlen(slash) + strlen(name) >= path_bytes) {
        return fb_fail(err, FB_E_LIMIT, "join path %.64s... and %.64s: longer than %zu bytes", dir, name, path_bytes - 1);
    }
    (void)snprintf(path, path_bytes, "%s%s%s", dir, slash, name);
    return FB_OK;
}

/* One folder: made and its name synced, or found. */
static fb_status make_folder(const fb_os *os, const char *path, fb_error *err)
{
    fb_os_info info;
    int64_t status = os->mkdir(os->ctx, path, 0777);
    if (status == 0) {
        status = fb_os_sync_parent(os, path);
        if (status < 0) return fb_fail_os(err, (int)-status, "sync the folder above %s", path);
        return FB_OK;
    }
    /* Asked after the attempt, so that two processes that make the same folder at once both succeed. */
    if (os->stat(os->ctx, path, &info) == 0) {
        if (info.kind == FB_OS_FOLDER) return FB_OK;
        return fb_fail_os(err, ENOTDIR, "make folder %s: something else has that name", path);
    }
    return fb_fail_os(err, (int)-status, "make folder %s", path);
}

fb_status fb_os_mkdirs(const fb_os *os, const char *path, fb_error *err)
{
    char part[FB_OS_PATH_MAX];
    fb_os_info info;
    size_t n = strlen(path);
    if (n == 0) return fb_fail(err, FB_E_USAGE, "make folders: the path is empty");
    if (n >= sizeof part) return fb_fail(err, FB_E_LIMIT, "make folders %.64s...: longer than %zu bytes", path, sizeof part - 1);
    if (os->stat(os->ctx, path, &info) == 0 && info.kind == FB_OS_FOLDER) return FB_OK;
    for (size_t i = 1; i <= n; i++) {
        fb_status status;
        if (i < n && path[i] != '/') continue;
        if (path[i - 1] == '/') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if ((status = make_folder(os, part, err)) != FB_OK) return status;
    }
    return FB_OK;
}

static fb_status read_open_file(const fb_os *os, int fd, const char *path, uint64_t bytes_max, char **data, size_t *bytes,
                                fb_error *err)
{
    fb_os_info info;
    int64_t got = os->fstat(os->ctx, fd, &info);
    char *memory;
    if (got < 0) return fb_fail_os(err, (int)-got, "read %s: ask for its size", path);
    if (info.kind != FB_OS_FILE) {
        return fb_fail_os(err, info.kind == FB_OS_FOLDER ? EISDIR : EINVAL, "read %s: no regular file", path);
    }
    if (info.size_bytes > bytes_max || info.size_bytes > SIZE_MAX / 2) {
        return fb_fail(err, FB_E_LIMIT, "read %s: %llu bytes, at most %llu are taken", path, (unsigned long long)info.size_bytes,
                       (unsigned long long)bytes_max);
    }
    memory = fb_calloc((size_t)info.size_bytes + 1, 1);
    if (!memory) {
        return fb_fail(err, FB_E_NOMEM, "read %s: no memory for %llu bytes", path, (unsigned long long)info.size_bytes + 1);
    }
    got = fb_os_read_full(os, fd, memory, (size_t)info.size_bytes);
    if (got < 0) {
        fb_free(memory);
        return fb_fail_os(err, (int)-got, "read %s", path);
    }
    *data = memory;
    *bytes = (size_t)got; /* less than asked when the file shrank meanwhile; the rest of the memory is zero */
    return FB_OK;
}

fb_status fb_os_read_file(const fb_os *os, const char *path, uint64_t bytes_max, char **data, size_t *bytes, fb_error *err)
{
    int64_t fd = fb_os_open(os, path, O_RDONLY | O_NONBLOCK, 0); /* not blocking: a hostile folder may hold a pipe of that name */
    fb_status status;
    *data = NULL;
    *bytes = 0;
    if (fd == -ENOENT) return fb_fail(err, FB_E_NOTFOUND, "read %s: no such file", path);
    if (fd < 0) return fb_fail_os(err, (int)-fd, "open %s for reading", path);
    status = read_open_file(os, (int)fd, path, bytes_max, data, bytes, err);
    (void)os->close(os->ctx, (int)fd);
    return status;
}

/* Create a file of a temporary name beside `name`. Leftovers of a crash may hold the first names tried. */
static fb_status open_temporary(const fb_os *os, const char *dir, const char *name, char *temp, size_t temp_bytes, int *fd,
                                fb_error *err)
{
    char file[256];
    long long pid = (long long)os->getpid(os->ctx);
    int64_t opened = -EEXIST;
    if (strlen(name) > 200) return fb_fail(err, FB_E_LIMIT, "write %.64s...: a name of more than 200 bytes", name);
    for (int i = 0; i < TEMP_NAMES_MAX && opened == -EEXIST; i++) {
        fb_status status;
        (void)snprintf(file, sizeof file, ".%s.tmp-%lld-%d", name, pid, i);
        if ((status = fb_os_join(temp, temp_bytes, dir, file, err)) != FB_OK) return status;
        opened = fb_os_open(os, temp, O_WRONLY | O_CREAT | O_EXCL, 0666);
    }
    if (opened < 0) return fb_fail_os(err, (int)-opened, "create %s", temp);
    *fd = (int)opened;
    return FB_OK;
}

/* Content under a temporary name, synced and closed. On failure nothing is left behind, as far as the system lets us. */
static fb_status write_temporary(const fb_os *os, const char *dir, const char *name, const void *data, size_t bytes, char *temp,
                                 size_t temp_bytes, fb_error *err)
{
    int fd = -1;
    int64_t done, closed;
    fb_status status = open_temporary(os, dir, name, temp, temp_bytes, &fd, err);
    if (status != FB_OK) return status;
    done = fb_os_write_all(os, fd, data, bytes);
    if (done == 0) done = fb_os_fsync(os, fd);
    closed = os->close(os->ctx, fd);
    if (done == 0 && closed != -EINTR) done = closed; /* some network file systems report a full disk only here */
    if (done == 0) return FB_OK;
    (void)os->unlink(os->ctx, temp);
    return fb_fail_os(err, (int)-done, "write %zu bytes to %s", bytes, temp);
}

fb_status fb_os_put_new(const fb_os *os, const char *dir, const char *name, const void *data, size_t bytes, fb_error *err)
{
    char temp[FB_OS_PATH_MAX], path[FB_OS_PATH_MAX];
    fb_os_info info;
    int64_t done;
    fb_status status = fb_os_join(path, sizeof path, dir, name, err);
    if (status == FB_OK) status = write_temporary(os, dir, name, data, bytes, temp, sizeof temp, err);
    if (status != FB_OK) return status;
    done = os->link(os->ctx, temp, path); /* rename would replace the first record by the second */
    /* A network file system that lost the answer repeats the request, and then finds our own link in the way. */
    if (done < 0 && os->stat(os->ctx, temp, &info) == 0 && info.links == 2) done = 0;
    (void)os->unlink(os->ctx, temp);
    if (done == -EEXIST) return fb_fail(err, FB_E_EXISTS, "put %s in place: it exists already and is kept", path);
    if (done < 0) return fb_fail_os(err, (int)-done, "put %s in place", path);
    done = fb_os_sync_dir(os, dir[0] ? dir : ".");
    if (done < 0) return fb_fail_os(err, (int)-done, "sync folder %s after putting %s in place", dir, name);
    return FB_OK;
}

fb_status fb_os_replace(const fb_os *os, const char *dir, const char *name, const void *data, size_t bytes, fb_error *err)
{
    char temp[FB_OS_PATH_MAX], path[FB_OS_PATH_MAX];
    int64_t done;
    fb_status status = fb_os_join(path, sizeof path, dir, name, err);
    if (status == FB_OK) status = write_temporary(os, dir, name, data, bytes, temp, sizeof temp, err);
    if (status != FB_OK) return status;
    done = os->rename(os->ctx, temp, path);
    if (done < 0) {
        (void)os->unlink(os->ctx, temp);
        return fb_fail_os(err, (int)-done, "replace %s", path);
    }
    done = fb_os_sync_dir(os, dir[0] ? dir : ".");
    if (done < 0) return fb_fail_os(err, (int)-done, "sync folder %s after replacing %s", dir, name);
    return FB_OK;
}
