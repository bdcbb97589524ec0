/* The table over POSIX. One thin function a call, each turning -1 and errno into a negative errno. */
#include "os/os.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/fs.h> /* FICLONE, RENAME_NOREPLACE */
#include <sys/syscall.h>
#endif

static int64_t result(int64_t value)
{
    return value < 0 ? -(int64_t)errno : value;
}

/*
 * The process's file size limit, as it was when a file was last opened for writing. Asking at each write would cost half as much
 * as the write itself; a limit that is lowered under an open file is not seen before the next one is opened, a limit that is
 * raised is.
 */
static _Atomic uint64_t size_limit = UINT64_MAX;

static void ask_size_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    atomic_store_explicit(&size_limit, limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit.rlim_cur,
                          memory_order_relaxed);
}

static int beyond_size_limit(uint64_t end)
{
    if (end <= atomic_load_explicit(&size_limit, memory_order_relaxed)) return 0;
    ask_size_limit();
    return end > atomic_load_explicit(&size_limit, memory_order_relaxed);
}

static int64_t posix_open(void *ctx, const char *path, int flags, int mode)
{
    (void)ctx;
    if ((flags & O_ACCMODE) != O_RDONLY) ask_size_limit();
    return result(open(path, flags | O_CLOEXEC, mode));
}

static int64_t posix_close(void *ctx, int fd)
{
    (void)ctx;
    /* Never repeated: after EINTR Linux has closed the descriptor, and the number may be another thread's by now. */
    return result(close(fd));
}

static int64_t posix_read(void *ctx, int fd, void *data, size_t bytes)
{
    (void)ctx;
    return result(read(fd, data, bytes));
}

static int64_t posix_write(void *ctx, int fd, const void *data, size_t bytes)
{
    off_t at = lseek(fd, 0, SEEK_CUR); /* fails for a pipe, which has no size */
    (void)ctx;
    if (at >= 0 && beyond_size_limit((uint64_t)at + bytes)) return -EFBIG;
    return result(write(fd, data, bytes));
}

static int64_t posix_pread(void *ctx, int fd, void *data, size_t bytes, uint64_t offset)
{
    (void)ctx;
    if (offset > INT64_MAX) return -EOVERFLOW;
    return result(pread(fd, data, bytes, (off_t)offset));
}

static int64_t posix_pwrite(void *ctx, int fd, const void *data, size_t bytes, uint64_t offset)
{
    (void)ctx;
    if (offset > INT64_MAX) return -EOVERFLOW;
    if (beyond_size_limit(offset + bytes)) return -EFBIG;
    return result(pwrite(fd, data, bytes, (off_t)offset));
}

static int64_t posix_fsync(void *ctx, int fd)
{
    (void)ctx;
    return result(fsync(fd));
}

static int64_t posix_fdatasync(void *ctx, int fd)
{
    (void)ctx;
    return result(fdatasync(fd));
}

static int64_t posix_fallocate_call(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    (void)ctx;
    if (offset > INT64_MAX || bytes > INT64_MAX) return -EOVERFLOW;
    if (beyond_size_limit(offset + bytes)) return -EFBIG;
#ifdef __linux__
    /* Not posix_fallocate: where the file system cannot do it, glibc emulates it by touching blocks, and hides that it did. */
    return result(fallocate(fd, 0, (off_t)offset, (off_t)bytes));
#else
    return -EOPNOTSUPP;
#endif
}

static int64_t posix_ftruncate(void *ctx, int fd, uint64_t bytes)
{
    (void)ctx;
    if (bytes > INT64_MAX) return -EOVERFLOW;
    if (beyond_size_limit(bytes)) return -EFBIG;
    return result(ftruncate(fd, (off_t)bytes));
}

static void fill_info(fb_os_info *info, const struct stat *st)
{
    memset(info, 0, sizeof *info);
    info->size_bytes = st->st_size < 0 ? 0 : (uint64_t)st->st_size;
    info->device = (uint64_t)st->st_dev;
    info->inode = (uint64_t)st->st_ino;
    info->links = (uint64_t)st->st_nlink;
    info->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    info->kind = S_ISREG(st->st_mode) ? FB_OS_FILE : S_ISDIR(st->st_mode) ? FB_OS_FOLDER : FB_OS_OTHER;
}

static int64_t posix_fstat(void *ctx, int fd, fb_os_info *info)
{
    struct stat st;
    (void)ctx;
    if (fstat(fd, &st) < 0) return -(int64_t)errno;
    fill_info(info, &st);
    return 0;
}

static int64_t posix_stat(void *ctx, const char *path, fb_os_info *info)
{
    struct stat st;
    (void)ctx;
    if (stat(path, &st) < 0) return -(int64_t)errno;
    fill_info(info, &st);
    return 0;
}

static int64_t posix_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return result(rename(from, to));
}

static int64_t posix_link(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return result(link(from, to));
}

static int64_t posix_unlink(void *ctx, const char *path)
{
    (void)ctx;
    return result(unlink(path));
}

static int64_t posix_mkdir(void *ctx, const char *path, int mode)
{
    (void)ctx;
    return result(mkdir(path, (mode_t)mode));
}

static int64_t posix_list(void *ctx, const char *path, fb_os_list_fn fn, void *arg)
{
    DIR *dir = opendir(path);
    int64_t status = 0;
    (void)ctx;
    if (!dir) return -(int64_t)errno;
    while (status == 0) {
        const struct dirent *entry;
        errno = 0; /* the only way to tell the end from a failure */
        entry = readdir(dir);
        if (!entry) {
            status = -(int64_t)errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = fn(arg, entry->d_name);
    }
    (void)closedir(dir);
    return status;
}

static int64_t posix_lock(void *ctx, int fd, int how)
{
    (void)ctx;
#ifdef F_OFD_SETLK
    {
        /*
         * Open-file-description locks: a lock of the older fcntl kind is dropped when any part of the process closes the same file
         * through another descriptor, which has lost others their data.
         */
        struct flock lock;
        memset(&lock, 0, sizeof lock);
        lock.l_type = how == FB_OS_UNLOCK ? F_UNLCK : F_WRLCK;
        lock.l_whence = SEEK_SET;
        if (fcntl(fd, how == FB_OS_LOCK_WAIT ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == 0) return 0;
        if (errno == EACCES) return -EAGAIN;
        if (errno != EINVAL) return -(int64_t)errno;
    }
#endif
    return result(flock(fd, how == FB_OS_UNLOCK ? LOCK_UN : how == FB_OS_LOCK_WAIT ? LOCK_EX : LOCK_EX | LOCK_NB));
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec ts;
    if (clock_gettime(clock, &ts) < 0) return -(int64_t)errno;
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t posix_realtime_ns(void *ctx)
{
    (void)ctx;
    return clock_ns(CLOCK_REALTIME);
}

static int64_t posix_monotonic_ns(void *ctx)
{
    (void)ctx;
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t posix_sleep_ns(void *ctx, uint64_t ns)
{
    const struct timespec ts = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    (void)ctx;
    return result(nanosleep(&ts, NULL));
}

static int64_t posix_getpid(void *ctx)
{
    (void)ctx;
    return getpid();
}

static int64_t posix_hostname(void *ctx, char *text, size_t bytes)
{
    (void)ctx;
    if (bytes == 0) return -EINVAL;
    if (gethostname(text, bytes) < 0 && errno != ENAMETOOLONG) return -(int64_t)errno;
    text[bytes - 1] = '\0'; /* POSIX leaves a cut name unterminated */
    return 0;
}

static int64_t posix_realpath(void *ctx, const char *path, char *text, size_t bytes)
{
    char *full = realpath(path, NULL);
    int64_t status = 0;
    (void)ctx;
    if (!full) return -(int64_t)errno;
    if (strlen(full) >= bytes) status = -ENAMETOOLONG;
    else memcpy(text, full, strlen(full) + 1);
    free(full); /* from realpath, hence not fb_free */
    return status;
}

static int64_t posix_lstat(void *ctx, const char *path, fb_os_info *info)
{
    struct stat st;
    (void)ctx;
    if (lstat(path, &st) < 0) return -(int64_t)errno;
    fill_info(info, &st);
    return 0;
}

/*
 * Where the file system cannot refuse to replace: a link fails where a name exists, and a folder never replaces one that holds
 * something. An empty folder of that name would be replaced, by which nothing is lost.
 */
static int64_t move_by_link(const char *from, const char *to)
{
    struct stat st;
    if (lstat(from, &st) < 0) return -(int64_t)errno;
    if (S_ISDIR(st.st_mode)) {
        if (lstat(to, &st) == 0) return -EEXIST;
        return rename(from, to) < 0 ? (errno == ENOTEMPTY ? -EEXIST : -(int64_t)errno) : 0;
    }
    if (link(from, to) < 0) return -(int64_t)errno;
    return result(unlink(from));
}

static int64_t posix_rename_new(void *ctx, const char *from, const char *to)
{
    (void)ctx;
#if defined(__linux__) && defined(SYS_renameat2) && defined(RENAME_NOREPLACE)
    /* By number: older C libraries have no function for it. */
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return -(int64_t)errno;
#endif
    return move_by_link(from, to);
}

static int64_t posix_rmdir(void *ctx, const char *path)
{
    (void)ctx;
    return result(rmdir(path));
}

static int64_t posix_clone(void *ctx, int from, int to)
{
    (void)ctx;
#ifdef FICLONE
    if (ioctl(to, FICLONE, from) == 0) return 0;
    if (errno == ENOTTY || errno == EINVAL || errno == EXDEV || errno == ENOSYS) return -EOPNOTSUPP;
    return -(int64_t)errno;
#else
    (void)from;
    (void)to;
    return -EOPNOTSUPP;
#endif
}

static int64_t posix_free_bytes(void *ctx, const char *path)
{
    struct statvfs st;
    uint64_t unit;
    (void)ctx;
    if (statvfs(path, &st) < 0) return -(int64_t)errno;
    unit = st.f_frsize ? (uint64_t)st.f_frsize : (uint64_t)st.f_bsize;
    if (unit && (uint64_t)st.f_bavail > (uint64_t)INT64_MAX / unit) return INT64_MAX;
    return (int64_t)((uint64_t)st.f_bavail * unit);
}

static int64_t posix_readlink(void *ctx, const char *path, char *text, size_t bytes)
{
    ssize_t got;
    (void)ctx;
    if (bytes == 0) return -EINVAL;
    got = readlink(path, text, bytes);
    if (got < 0) return -(int64_t)errno;
    if ((size_t)got == bytes) return -ENAMETOOLONG;
    text[got] = '\0';
    return got;
}

static int64_t posix_symlink(void *ctx, const char *target, const char *path)
{
    (void)ctx;
    return result(symlink(target, path));
}

/* Twice the read-ahead, on Linux: fewer and larger requests to the device. */
static int64_t posix_advise_in_order(void *ctx, int fd)
{
    (void)ctx;
#if defined(POSIX_FADV_SEQUENTIAL)
    return -posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#else
    (void)fd;
    return -ENOSYS;
#endif
}

const fb_os *fb_os_posix(void)
{
    static const fb_os table = {
        .ctx = NULL,
        .open = posix_open,
        .close = posix_close,
        .read = posix_read,
        .write = posix_write,
        .pread = posix_pread,
        .pwrite = posix_pwrite,
        .fsync = posix_fsync,
        .fdatasync = posix_fdatasync,
        .fallocate = posix_fallocate_call,
        .ftruncate = posix_ftruncate,
        .fstat = posix_fstat,
        .stat = posix_stat,
        .rename = posix_rename,
        .link = posix_link,
        .unlink = posix_unlink,
        .mkdir = posix_mkdir,
        .list = posix_list,
        .lock = posix_lock,
        .realtime_ns = posix_realtime_ns,
        .monotonic_ns = posix_monotonic_ns,
        .sleep_ns = posix_sleep_ns,
        .getpid = posix_getpid,
        .hostname = posix_hostname,
        .realpath = posix_realpath,
        .lstat = posix_lstat,
        .rename_new = posix_rename_new,
        .rmdir = posix_rmdir,
        .clone = posix_clone,
        .free_bytes = posix_free_bytes,
        .readlink = posix_readlink,
        .symlink = posix_symlink,
        .advise_in_order = posix_advise_in_order,
    };
    return &table;
}
