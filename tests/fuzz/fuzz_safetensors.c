/*
 * The safetensors reader, and the scan over it, against any bytes. What must hold: it ends, reads inside the file, and whatever it
 * hands out lies in the file without a gap. A file that is taken is read again with another buffer, and must give the same verdict.
 * The file is in memory: a table of system calls of our own gives it out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct memory_file {
    const uint8_t *data;
    size_t bytes;
    uint64_t tensors, findings;
} memory_file;

static void require(int holds)
{
    if (!holds) abort();
}

static int64_t memory_open(void *ctx, const char *path, int flags, int mode)
{
    (void)ctx;
    (void)path;
    (void)flags;
    (void)mode;
    return 3;
}

static int64_t memory_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static int64_t memory_fstat(void *ctx, int fd, fb_os_info *info)
{
    const memory_file *file = ctx;
    (void)fd;
    memset(info, 0, sizeof *info);
    info->size_bytes = file->bytes;
    info->kind = FB_OS_FILE;
    return 0;
}

static int64_t memory_stat(void *ctx, const char *path, fb_os_info *info)
{
    (void)path;
    return memory_fstat(ctx, 3, info);
}

static int64_t memory_pread(void *ctx, int fd, void *out, size_t bytes, uint64_t offset)
{
    const memory_file *file = ctx;
    (void)fd;
    require(offset <= file->bytes && bytes <= file->bytes - offset);
    if (bytes) memcpy(out, file->data + offset, bytes);
    return (int64_t)bytes;
}

static void on_tensor(void *ctx, const char *path, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    memory_file *file = ctx;
    (void)path;
    (void)stats;
    require(tensor->ndim >= 0 && tensor->ndim <= FB_CKPT_DIMS_MAX);
    require(strlen(tensor->name) < file->bytes);
    file->tensors++;
}

/* The reader itself: its extents lie in the file one after the other, and a whole number of tensors fills each. */
static void read_extents(const fb_os *os, size_t bytes)
{
    fb_ckpt_file file;
    fb_ckpt_range range;
    fb_ckpt_options options;
    fb_ckpt_extent extent;
    void *state = NULL;
    uint64_t end = FB_NO_INDEX;
    memset(&options, 0, sizeof options);
    require(fb_ckpt_file_open(&file, os, "memory.safetensors", 4096, NULL) == FB_OK);
    memset(&range, 0, sizeof range);
    range.file = &file;
    range.bytes = bytes;
    if (fb_ckpt_safetensors.open(&state, &range, &options, NULL) == FB_OK) {
        while (fb_ckpt_safetensors.next(state, &extent, NULL) == FB_OK) {
            if (end == FB_NO_INDEX) end = extent.offset_bytes;
            require(extent.offset_bytes == end && extent.bytes == extent.stored_bytes && extent.tensor_count > 0);
            require(extent.offset_bytes <= bytes && extent.bytes <= bytes - extent.offset_bytes);
            end += extent.bytes;
        }
        require(end == FB_NO_INDEX || end == bytes);
    }
    fb_ckpt_safetensors.close(state);
    fb_ckpt_file_close(&file);
}

static void on_finding(void *ctx, const fb_ckpt_finding *finding)
{
    memory_file *file = ctx;
    require(finding->index < finding->elements);
    require(finding->nan + finding->pos_inf + finding->neg_inf > 0);
    require(finding->offset_bytes < file->bytes);
    file->findings++;
}

static fb_ckpt_summary scan(const uint8_t *data, size_t bytes, uint64_t buffer_bytes)
{
    memory_file file = {data, bytes, 0, 0};
    fb_os os;
    fb_ckpt_options options;
    fb_ckpt_sink sink;
    fb_ckpt_summary summary;
    memset(&os, 0, sizeof os); /* what the reader has no business with is not there, and would crash */
    os.ctx = &file;
    os.open = memory_open;
    os.close = memory_close;
    os.fstat = memory_fstat;
    os.stat = memory_stat;
    os.pread = memory_pread;
    memset(&options, 0, sizeof options);
    options.buffer_bytes = buffer_bytes;
    memset(&sink, 0, sizeof sink);
    sink.ctx = &file;
    sink.tensor = on_tensor;
    sink.finding = on_finding;
    require(fb_ckpt_scan_path(&os, "memory.safetensors", &options, &sink, &summary, NULL) == FB_OK);
    read_extents(&os, bytes);
    require(summary.tensors == file.tensors);
    require(summary.bad_tensors + summary.legal_tensors == file.findings);
    require((summary.outcome == FB_CKPT_NON_FINITE) == (summary.bad > 0));
    if (summary.outcome == FB_CKPT_CLEAN) require(summary.digest == fb_hash64(data, bytes, 0));
    if (summary.outcome == FB_CKPT_UNREADABLE || summary.outcome == FB_CKPT_LIMIT) require(summary.reason.message[0] != '\0');
    return summary;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fb_ckpt_summary first = scan(data, bytes, 16384);
    fb_ckpt_summary second = scan(data, bytes, 20011);
    require(first.outcome == second.outcome && first.digest == second.digest && first.tensors == second.tensors);
    require(first.elements == second.elements && first.checked == second.checked && first.bad == second.bad);
    require(first.first_index == second.first_index && first.first_bits == second.first_bits &&
            first.first_kind == second.first_kind);
    require(strcmp(first.first_tensor, second.first_tensor) == 0 && strcmp(first.reason.message, second.reason.message) == 0);
    return 0;
}
