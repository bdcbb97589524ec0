/*
 * Write one safetensors file: u64 little-endian length, JSON, data without a hole, as src/ckpt/safetensors.c reads it and the
 * library of Hugging Face does. Tensors are laid out by falling element size, so that each lies aligned where a reader maps the
 * file; the JSON is padded with spaces to a multiple of eight for the same reason.
 */
#ifndef FB_CKPT_SAFETENSORS_WRITE_H
#define FB_CKPT_SAFETENSORS_WRITE_H

#include <stddef.h>

#include "base/status.h"
#include "os/os.h"

typedef struct fb_st_tensor {
    const char *name;    /* unique; not empty, not "__metadata__", no control characters */
    int32_t dtype, ndim; /* ndim 0: one number */
    int64_t shape[FB_DIMS_MAX];
    const void *data; /* contiguous; NULL only where bytes is 0 */
    uint64_t bytes;   /* must be what dtype and shape take */
} fb_st_tensor;

/* As the format writes it: "F32". NULL: the format has no name for it (FB_C128, FB_F6_*, which it packs otherwise). */
const char *fb_safetensors_dtype(int32_t dtype);

/**
 * Written under a temporary name, synced, renamed to folder/name, the folder synced: readers see the whole file, or what was there
 * before. Nothing is left behind on failure, as far as the system lets us.
 * metadata  [metadata_count] texts for "__metadata__"; a value of NULL is left out. Keys are unique.
 * xxh3      NULL, or the XXH3 of the file's bytes as they were handed over.
 * Errors: FB_E_USAGE (a name, shape or size is wrong), FB_E_EXISTS (two tensors of one name), FB_E_DTYPE, FB_E_LIMIT, FB_E_IO,
 * FB_E_NOMEM. Memory: the JSON and some bytes a tensor, never the data.
 */
fb_status fb_safetensors_write(const fb_os *os, const char *folder, const char *name, const fb_st_tensor *tensors, uint32_t n,
                               const fb_pair *metadata, size_t metadata_count, uint64_t *xxh3, fb_error *err);

#endif
