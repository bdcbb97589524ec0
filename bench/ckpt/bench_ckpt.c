/* The C half of bench.py: a bare read of a file, our scan of it, and the order to the system to forget what it has cached of it. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/ckpt.h"

#define EXPORT __attribute__((visibility("default")))

/* Of one run. */
typedef struct bench_cost {
    double seconds, cpu_seconds;
} bench_cost;

static double clock_seconds(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* A loop of read() into one buffer that nobody looks at. 0 or -1. */
EXPORT int bench_read(const char *path, size_t block_bytes, bench_cost *cost);
/* The same by two threads, each of which reads every other block: what two cores can get out of this machine. */
EXPORT int bench_read_twice(const char *path, size_t block_bytes, bench_cost *cost);
/* fb_ckpt_scan_path; flags and threads as in fb_ckpt_options. The outcome, or -1 with a sentence in `why`. */
EXPORT int bench_scan(const char *path, int threads, int flags, bench_cost *cost, char *why, size_t why_bytes);
EXPORT int bench_evict(const char *path);

int bench_read(const char *path, size_t block_bytes, bench_cost *cost)
{
    char *buffer = fb_calloc(block_bytes, 1);
    double wall, cpu;
    ssize_t got = -1;
    int fd = open(path, O_RDONLY);
    if (buffer && fd >= 0) {
        memset(buffer, 1, block_bytes); /* no page of it is fresh */
        wall = clock_seconds();
        cpu = cpu_seconds();
        while ((got = read(fd, buffer, block_bytes)) > 0)
            ;
        cost->seconds = clock_seconds() - wall;
        cost->cpu_seconds = cpu_seconds() - cpu;
    }
    if (fd >= 0) (void)close(fd);
    fb_free(buffer);
    return got == 0 ? 0 : -1;
}

typedef struct half {
    int fd, failed;
    char *buffer;
    size_t block_bytes;
    off_t begin, end;
} half;

static void *read_half(void *arg)
{
    half *h = arg;
    for (off_t at = h->begin; at < h->end; at += 2 * (off_t)h->block_bytes) {
        if (pread(h->fd, h->buffer, h->block_bytes, at) <= 0) h->failed = 1;
    }
    return NULL;
}

int bench_read_twice(const char *path, size_t block_bytes, bench_cost *cost)
{
    char *buffers = fb_calloc(2, block_bytes);
    half halves[2];
    struct stat info;
    pthread_t other;
    double wall, cpu;
    int fd = open(path, O_RDONLY), failed = 1;
    if (buffers && fd >= 0 && fstat(fd, &info) == 0) {
        memset(buffers, 1, 2 * block_bytes);
        for (int i = 0; i < 2; i++) {
            half h = {fd, 0, buffers + (size_t)i * block_bytes, block_bytes, i * (off_t)block_bytes, info.st_size};
            halves[i] = h;
        }
        wall = clock_seconds();
        cpu = cpu_seconds();
        if (pthread_create(&other, NULL, read_half, &halves[1]) == 0) {
            (void)read_half(&halves[0]);
            (void)pthread_join(other, NULL);
            failed = halves[0].failed || halves[1].failed;
        }
        cost->seconds = clock_seconds() - wall;
        cost->cpu_seconds = cpu_seconds() - cpu;
    }
    if (fd >= 0) (void)close(fd);
    fb_free(buffers);
    return failed ? -1 : 0;
}

/* Wanted by nobody, but statistics are made for a caller that takes them. */
static void ignore_tensor(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    (void)ctx;
    (void)file;
    (void)tensor;
    (void)stats;
}

int bench_scan(const char *path, int threads, int flags, bench_cost *cost, char *why, size_t why_bytes)
{
    fb_ckpt_options options;
    fb_ckpt_sink sink;
    fb_ckpt_summary summary;
    fb_error err;
    fb_status status;
    double wall = clock_seconds(), cpu = cpu_seconds();
    memset(&options, 0, sizeof options);
    memset(&sink, 0, sizeof sink);
    options.threads = threads;
    options.flags = flags;
    sink.tensor = ignore_tensor;
    status = fb_ckpt_scan_path(fb_os_posix(), path, &options, &sink, &summary, &err);
    cost->seconds = clock_seconds() - wall;
    cost->cpu_seconds = cpu_seconds() - cpu;
    if (status == FB_OK && summary.outcome == FB_CKPT_CLEAN) return 0;
    (void)strncpy(why, status != FB_OK ? err.message : summary.reason.message, why_bytes - 1);
    return status != FB_OK ? -1 : summary.outcome;
}

/* What is cached of the file is dropped: written back first, since dirty pages stay. */
int bench_evict(const char *path)
{
    int fd = open(path, O_RDONLY), failed;
    if (fd < 0) return -1;
    failed = fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0;
    (void)close(fd);
    return failed ? -1 : 0;
}
