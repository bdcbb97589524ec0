/*
 * The table of a distributed checkpoint, the reader of its files, and the scan of the folder over both, against any bytes. What
 * must
 * hold: it ends, reads inside the files, and what it hands out lies in them and inside its tensor. A folder that is taken is read
 * again with another buffer, and must give the same verdict.
 *
 * Input: u32 little-endian n, n bytes of .metadata, and the rest is __0_0.distcp. The folder is in memory: a table of system calls
 * of our own gives it out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct memory_folder {
    const uint8_t *data[2];
    size_t bytes[2];
    uint64_t tensors, findings;
} memory_folder;

static const char *const names[2] = {".metadata", "__0_0.distcp"};

static void require(int holds)
{
    if (!holds) abort();
}

static int number_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    for (int i = 0; slash && i < 2; i++) {
        if (strcmp(slash + 1, names[i]) == 0) return i;
    }
    return -1;
}

static int64_t memory_open(void *ctx, const char *path, int flags, int mode)
{
    int number = number_of(path);
    (void)ctx;
    (void)flags;
    (void)mode;
    return number < 0 ? -ENOENT : 3 + number;
}

static int64_t memory_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static int64_t memory_fstat(void *ctx, int fd, fb_os_info *info)
{
    const memory_folder *folder = ctx;
    memset(info, 0, sizeof *info);
    info->size_bytes = folder->bytes[fd - 3];
    info->inode = (uint64_t)fd;
    info->kind = FB_OS_FILE;
    return 0;
}

static int64_t memory_stat(void *ctx, const char *path, fb_os_info *info)
{
    int number = number_of(path);
    if (number >= 0) return memory_fstat(ctx, 3 + number, info);
    if (strcmp(path, "memory") != 0) return -ENOENT;
    memset(info, 0, sizeof *info);
    info->kind = FB_OS_FOLDER;
    return 0;
}

static int64_t memory_list(void *ctx, const char *path, fb_os_list_fn fn, void *arg)
{
    int64_t got = 0;
    (void)ctx;
    (void)path;
    for (int i = 0; i < 2 && got == 0; i++) got = fn(arg, names[i]);
    return got;
}

static int64_t memory_pread(void *ctx, int fd, void *out, size_t bytes, uint64_t offset)
{
    const memory_folder *folder = ctx;
    require(offset <= folder->bytes[fd - 3] && bytes <= folder->bytes[fd - 3] - offset);
    if (bytes) memcpy(out, folder->data[fd - 3] + offset, bytes);
    return (int64_t)bytes;
}

static void on_tensor(void *ctx, const char *path, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    memory_folder *folder = ctx;
    (void)path;
    (void)stats;
    require(tensor->ndim >= 0 && tensor->ndim <= FB_CKPT_DIMS_MAX);
    require(tensor->name && tensor->dtype_name);
    for (int i = 0; tensor->whole_shape && i < tensor->ndim; i++) {
        require(tensor->whole_start[i] <= tensor->whole_shape[i]);
        require(tensor->shape[i] <= tensor->whole_shape[i] - tensor->whole_start[i]);
    }
    folder->tensors++;
}

static void on_finding(void *ctx, const fb_ckpt_finding *finding)
{
    memory_folder *folder = ctx;
    require(finding->unreferenced || finding->index < finding->elements);
    require(finding->nan + finding->pos_inf + finding->neg_inf > 0);
    folder->findings++;
}

static fb_ckpt_summary scan(memory_folder *folder, uint64_t buffer_bytes)
{
    fb_os os;
    fb_ckpt_options options;
    fb_ckpt_sink sink;
    fb_ckpt_summary summary;
    folder->tensors = folder->findings = 0;
    memset(&os, 0, sizeof os); /* what the reader has no business with is not there, and would crash */
    os.ctx = folder;
    os.open = memory_open;
    os.close = memory_close;
    os.fstat = memory_fstat;
    os.stat = memory_stat;
    os.lstat = memory_stat;
    os.pread = memory_pread;
    os.list = memory_list;
    memset(&options, 0, sizeof options);
    options.buffer_bytes = buffer_bytes;
    memset(&sink, 0, sizeof sink);
    sink.ctx = folder;
    sink.tensor = on_tensor;
    sink.finding = on_finding;
    require(fb_ckpt_scan_path(&os, "memory", &options, &sink, &summary, NULL) == FB_OK);
    require((summary.outcome == FB_CKPT_NON_FINITE) == (summary.bad > 0));
    require((summary.outcome == FB_CKPT_CLEAN || summary.outcome == FB_CKPT_NON_FINITE) == (summary.reason.message[0] == '\0') ||
            summary.outcome == FB_CKPT_NON_FINITE);
    return summary;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    memory_folder folder;
    fb_ckpt_summary first, second;
    size_t table;
    if (bytes < 4) return 0;
    table = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 | (size_t)data[3] << 24;
    if (table > bytes - 4) table = bytes - 4;
    memset(&folder, 0, sizeof folder);
    folder.data[0] = data + 4;
    folder.bytes[0] = table;
    folder.data[1] = data + 4 + table;
    folder.bytes[1] = bytes - 4 - table;
    first = scan(&folder, 16384);
    second = scan(&folder, 65536);
    require(first.outcome == second.outcome && first.digest == second.digest && first.tensors == second.tensors);
    require(first.elements == second.elements && first.checked == second.checked && first.bad == second.bad);
    require(first.first_index == second.first_index && first.first_bits == second.first_bits);
    require(strcmp(first.first_tensor, second.first_tensor) == 0 && strcmp(first.reason.message, second.reason.message) == 0);
    return 0;
}
