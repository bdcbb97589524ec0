/*
 * The library's only door to the operating system: a table of calls, and the few sequences of them that are easy to get wrong.
 * Tests put another table in its place: one that fails the k-th call, or one that simulates a disk and cuts its power.
 *
 * Every call of the table returns a value >= 0, or a negative errno (-ENOSPC). A table call may be interrupted (-EINTR) or move
 * fewer bytes than asked; the fb_os_* functions below deal with both, so call those, and the table itself only for calls that
 * cannot be interrupted (clocks, getpid, stat, link, rename, unlink, mkdir, rmdir, readlink, close).
 * Writes beyond the process's file size limit are refused with -EFBIG before the system sees them: it would answer with SIGXFSZ,
 * which kills the process that we are a guest in. Thread safety: any thread may call any table. Processes and signals are the
 * affair of the command-line tool, not of this table.
 */
#ifndef FB_OS_OS_H
#define FB_OS_OS_H

#include <fcntl.h> /* O_RDONLY and friends, which `open` takes */
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FB_OS_FILE = 1, FB_OS_FOLDER = 2, FB_OS_OTHER = 3 };
enum { FB_OS_UNLOCK = 0, FB_OS_LOCK = 1, FB_OS_LOCK_WAIT = 2 };
enum { FB_OS_PATH_MAX = 4096 }; /* bytes of a path, its NUL included */

typedef struct fb_os_info {
    uint64_t size_bytes;
    uint64_t device, inode; /* equal pairs are one file, under whatever name */
    uint64_t links;
    int64_t mtime_ns;
    int32_t kind; /* FB_OS_FILE, ... */
    int32_t reserved;
} fb_os_info;

/* Called once for each name of a folder, "." and ".." left out. A return other than 0 ends the listing and becomes its result. */
typedef int64_t (*fb_os_list_fn)(void *arg, const char *name);

typedef struct fb_os {
    void *ctx;                                                         /* first argument of every call */
    int64_t (*open)(void *ctx, const char *path, int flags, int mode); /* a descriptor; O_CLOEXEC is always set */
    int64_t (*close)(void *ctx, int fd);
    int64_t (*read)(void *ctx, int fd, void *data, size_t bytes);
    int64_t (*write)(void *ctx, int fd, const void *data, size_t bytes);
    int64_t (*pread)(void *ctx, int fd, void *data, size_t bytes, uint64_t offset);
    int64_t (*pwrite)(void *ctx, int fd, const void *data, size_t bytes, uint64_t offset);
    int64_t (*fsync)(void *ctx, int fd);
    int64_t (*fdatasync)(void *ctx, int fd);
    int64_t (*fallocate)(void *ctx, int fd, uint64_t offset, uint64_t bytes); /* -EOPNOTSUPP where the file system has none */
    int64_t (*ftruncate)(void *ctx, int fd, uint64_t bytes);
    int64_t (*fstat)(void *ctx, int fd, fb_os_info *info);
    int64_t (*stat)(void *ctx, const char *path, fb_os_info *info); /* follows symbolic links */
    int64_t (*rename)(void *ctx, const char *from, const char *to); /* replaces `to` */
    int64_t (*link)(void *ctx, const char *from, const char *to);   /* -EEXIST where `to` exists */
    int64_t (*unlink)(void *ctx, const char *path);
    int64_t (*mkdir)(void *ctx, const char *path, int mode);
    int64_t (*list)(void *ctx, const char *path, fb_os_list_fn fn, void *arg);
    int64_t (*lock)(void *ctx, int fd, int how); /* whole file, exclusive, this open file's own; -EAGAIN: another holds it */
    int64_t (*realtime_ns)(void *ctx);           /* since 1970; may go back */
    int64_t (*monotonic_ns)(void *ctx);          /* never goes back; its zero means nothing */
    int64_t (*sleep_ns)(void *ctx, uint64_t ns); /* at least so long, or -EINTR */
    int64_t (*getpid)(void *ctx);
    int64_t (*hostname)(void *ctx, char *text, size_t bytes);
    int64_t (*realpath)(void *ctx, const char *path, char *text, size_t bytes); /* absolute, no symbolic links; must exist */
    int64_t (*lstat)(void *ctx, const char *path, fb_os_info *info);            /* of a symbolic link itself: FB_OS_OTHER */
    int64_t (*rename_new)(void *ctx, const char *from, const char *to);         /* file or folder; -EEXIST where `to` exists */
    int64_t (*rmdir)(void *ctx, const char *path);                              /* an empty folder; -ENOTEMPTY otherwise */
    int64_t (*clone)(void *ctx, int from, int to); /* the blocks of `from` shared with `to` until one is written; -EOPNOTSUPP */
    int64_t (*free_bytes)(void *ctx, const char *path); /* that this process may still write on the file system of path */
    int64_t (*readlink)(void *ctx, const char *path, char *text, size_t bytes); /* NUL-terminated; -EINVAL: no symbolic link */
    int64_t (*symlink)(void *ctx, const char *target, const char *path);        /* -EEXIST where path exists */
    int64_t (*advise_in_order)(void *ctx, int fd); /* a hint: the file is going to be read once, in order. May be NULL */
} fb_os;

/* The real system. Never NULL, lives for ever. */
const fb_os *fb_os_posix(void);

/* The table's call of the same name, repeated while it is interrupted (at most some hundred times, so that nothing hangs). */
int64_t fb_os_open(const fb_os *os, const char *path, int flags, int mode);
int64_t fb_os_fsync(const fb_os *os, int fd);
int64_t fb_os_fdatasync(const fb_os *os, int fd);
int64_t fb_os_lock(const fb_os *os, int fd, int how);

/* All bytes or an error: 0, or a negative errno. One system call when nothing goes wrong. *done (or NULL): bytes that went out. */
int64_t fb_os_write_all(const fb_os *os, int fd, const void *data, size_t bytes);
int64_t fb_os_pwrite_all(const fb_os *os, int fd, const void *data, size_t bytes, uint64_t offset, size_t *done);
/* As many bytes as asked or up to the end of the file: their number, or a negative errno. */
int64_t fb_os_read_full(const fb_os *os, int fd, void *data, size_t bytes);
int64_t fb_os_pread_full(const fb_os *os, int fd, void *data, size_t bytes, uint64_t offset);

/* Give a range of an open file real blocks of zeros, so that a later write into it needs no new space. Not synced. 0 or -errno. */
int64_t fb_os_set_aside(const fb_os *os, int fd, uint64_t offset, uint64_t bytes);

/* fsync folder `dir`, or the folder that holds `path`: a new, linked or renamed name is durable only after it. 0 or -errno. */
int64_t fb_os_sync_dir(const fb_os *os, const char *dir);
int64_t fb_os_sync_parent(const fb_os *os, const char *path);

/* dir + "/" + name. FB_E_LIMIT when it does not fit. An empty dir gives name alone. */
fb_status fb_os_join(char *path, size_t path_bytes, const char *dir, const char *name, fb_error *err);

/* Create a folder and those above it, durably; those that exist are left alone. FB_E_IO otherwise. */
fb_status fb_os_mkdirs(const fb_os *os, const char *path, fb_error *err);

/**
 * Read a whole file into new memory, with a NUL byte after its end (not counted in *bytes).
 * bytes_max  a longer file is FB_E_LIMIT, found before memory is asked for.
 * data       out: release with fb_free. NULL on failure.
 * Errors: FB_E_NOTFOUND (no such file), FB_E_IO, FB_E_NOMEM, FB_E_LIMIT.
 */
fb_status fb_os_read_file(const fb_os *os, const char *path, uint64_t bytes_max, char **data, size_t *bytes, fb_error *err);

/**
 * Put a file in place once: readers see all of it or nothing, it is durable on return, and it never replaces another.
 * Written under a temporary name, synced, linked to its name, the temporary name removed, the folder synced.
 * Errors: FB_E_EXISTS where the name is taken (nothing was changed), FB_E_IO. After FB_E_IO the file may be in place, whole, but
 * perhaps not durable: a second call then says FB_E_EXISTS.
 */
fb_status fb_os_put_new(const fb_os *os, const char *dir, const char *name, const void *data, size_t bytes, fb_error *err);

/* As fb_os_put_new, by rename: an existing file is replaced in one step. Readers see the old content or the new. */
fb_status fb_os_replace(const fb_os *os, const char *dir, const char *name, const void *data, size_t bytes, fb_error *err);

#endif
