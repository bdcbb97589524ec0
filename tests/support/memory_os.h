/*
 * One file in memory, as a table of system calls: for readers that are tried on many thousand inputs. What a reader has no business
 * with is not in the table, and would crash. Every path is that file.
 */
#ifndef FB_TESTS_SUPPORT_MEMORY_OS_H
#define FB_TESTS_SUPPORT_MEMORY_OS_H

#include <stdlib.h>
#include <string.h>

#include "os/os.h"

typedef struct memory_os {
    fb_os os;
    const uint8_t *data;
    size_t bytes;
} memory_os;

static inline int64_t memory_os_open(void *ctx, const char *path, int flags, int mode)
{
    (void)ctx;
    (void)path;
    (void)flags;
    (void)mode;
    return 3;
}

static inline int64_t memory_os_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static inline int64_t memory_os_fstat(void *ctx, int fd, fb_os_info *info)
{
    const memory_os *memory = ctx;
    (void)fd;
    memset(info, 0, sizeof *info);
    info->size_bytes = memory->bytes;
    info->kind = FB_OS_FILE;
    return 0;
}

static inline int64_t memory_os_stat(void *ctx, const char *path, fb_os_info *info)
{
    (void)path;
    return memory_os_fstat(ctx, 3, info);
}

/* A read that leaves the file is the reader's fault: it knows the size. */
static inline int64_t memory_os_pread(void *ctx, int fd, void *out, size_t bytes, uint64_t offset)
{
    const memory_os *memory = ctx;
    (void)fd;
    if (offset > memory->bytes || bytes > memory->bytes - offset) abort();
    if (bytes) memcpy(out, memory->data + offset, bytes);
    return (int64_t)bytes;
}

/* Borrows data. `memory` must stay where it is. */
static inline const fb_os *memory_os_init(memory_os *memory, const uint8_t *data, size_t bytes)
{
    memset(memory, 0, sizeof *memory);
    memory->data = data;
    memory->bytes = bytes;
    memory->os.ctx = memory;
    memory->os.open = memory_os_open;
    memory->os.close = memory_os_close;
    memory->os.fstat = memory_os_fstat;
    memory->os.stat = memory_os_stat;
    memory->os.pread = memory_os_pread;
    return &memory->os;
}

#endif
