/*
 * A reader of one checkpoint format: it says whether a file is its own by content, checks the structure of the whole file before
 * any tensor data is read, and then hands out the tensors in the order in which their bytes lie. A new format is one such table,
 * added to the list in readers.c; scanning, digests, findings and limits are not its business.
 */
#ifndef FB_CKPT_READER_H
#define FB_CKPT_READER_H

#include "ckpt/ckpt.h"
#include "ckpt/file.h"

enum { FB_CKPT_DIMS_MAX = 64 }; /* no known file comes near it */

typedef struct fb_ckpt_tensor {
    const char *name;       /* UTF-8, NUL-terminated; holds no other NUL and no control character */
    const char *dtype_name; /* as the file writes it */
    int32_t dtype;          /* FB_*; 0: a format that this build does not know */
    int32_t ndim;
    const uint64_t *shape;
    uint64_t elements;
    uint64_t offset_bytes; /* of the data in the file; proven to lie inside it, together with data_bytes */
    uint64_t data_bytes;
} fb_ckpt_tensor;

typedef struct fb_ckpt_reader {
    const char *format; /* "safetensors" */
    /* 1: the first bytes of a file say that it is of this format, whole or broken. */
    int (*detect)(const uint8_t *head, size_t head_bytes, uint64_t file_bytes);
    /**
     * Check the structure and make ready to hand out tensors. *state is NULL on failure, else released with close.
     * Errors: FB_E_CORRUPT (with the offset), FB_E_LIMIT, FB_E_UNSUPPORTED for what the file is; FB_E_IO, FB_E_NOMEM for us.
     */
    fb_status (*open)(void **state, fb_ckpt_file *file, const fb_ckpt_options *options, fb_error *err);
    /* The next tensor, borrowed until the next call. 1: there is one; 0: there is none left. */
    int (*next)(void *state, fb_ckpt_tensor *tensor);
    void (*close)(void *state);
} fb_ckpt_reader;

enum { FB_CKPT_HEAD_BYTES = 512 }; /* what detect is shown, or the whole file when it is shorter */

/* The reader whose format the bytes show, or NULL. */
const fb_ckpt_reader *fb_ckpt_reader_find(const uint8_t *head, size_t head_bytes, uint64_t file_bytes);

extern const fb_ckpt_reader fb_ckpt_safetensors;

#endif
