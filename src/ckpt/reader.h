/*
 * A reader of one checkpoint format: it says whether bytes are its own by content, proves the structure of all of them before any
 * tensor data is read, and then hands out extents: runs of stored bytes, in the order in which they lie, each with the tensors that
 * live in it. Scanning, statistics, digests, findings, legality and limits of time are not its affair (scan.c).
 *
 * A new format is one such table, added to the list in readers.c. A reader never reads tensor data itself, but for what it needs to
 * understand the structure (a pickle, a header).
 */
#ifndef FB_CKPT_READER_H
#define FB_CKPT_READER_H

#include "ckpt/ckpt.h"
#include "ckpt/file.h"

enum { FB_CKPT_DIMS_MAX = 64 }; /* no known file comes near it */

/*
 * A number inside a block or record that can be non-finite: the scale of 32 quantised weights, a field of a structured array. All
 * other bytes of the block hold integers.
 */
typedef struct fb_ckpt_lane {
    const char *name;      /* "d", "dmin", "scale"; the field's name; "" when it needs none */
    int32_t dtype;         /* FB_*; FB_CKPT_LANE_IQ1_M */
    uint32_t offset_bytes; /* in the block */
    uint32_t count;        /* numbers of this format, one after the other */
    uint32_t elements;     /* how many elements of the tensor one such number scales */
} fb_ckpt_lane;

/* An F16 whose nibbles are the top nibbles of four U16 in a row (GGML IQ1_M). A lane only. */
enum { FB_CKPT_LANE_IQ1_M = 100 };

/* A tensor, or a piece of one, that lives in an extent. */
typedef struct fb_ckpt_tensor {
    const char *name;       /* as its owner knows it; UTF-8, NUL-terminated; holds no other NUL and no control character */
    const char *dtype_name; /* as the file writes it */
    int32_t dtype;          /* FB_*; of a block format: 0 with lanes; 0 without lanes: see `unscanned` */
    int32_t ndim;
    const uint64_t *shape;
    const int64_t *strides; /* in elements, >= 0, 0: expanded; NULL: dense, the last dimension fastest */
    uint64_t elements;      /* product of shape */
    uint64_t offset_bytes;  /* of its first element in the decoded extent; every element is proven to lie inside the extent */
    /* Block formats: elements lie in blocks of period_bytes, block_elements each. 0: no block format. */
    const fb_ckpt_lane *lanes;
    uint32_t lane_count, block_elements;
    uint64_t period_bytes;
    /* A piece of a larger tensor: shape of the whole, and where the first element of this piece lies in it, by dimension (ndim of
       each). NULL: this is the whole. */
    const uint64_t *whole_shape, *whole_start;
    const char *unscanned; /* NULL, or why its numbers cannot be looked at by this build */
    int32_t number;        /* 1: a plain number of the trainer's (a learning rate, a best loss), not a tensor */
    int32_t legal_inf;     /* 1: +Inf or -Inf here is what a healthy program writes (a best loss before the first evaluation) */
} fb_ckpt_tensor;

enum {
    FB_CKPT_STORED = 0,   /* the bytes lie in the file as they are */
    FB_CKPT_DEFLATED = 1, /* raw deflate, without the wrapper of zlib or gzip */
    FB_CKPT_MEMORY = 2    /* the reader holds them, decoded; they live as long as its state */
};

/*
 * A run of bytes that is read once. Tensors may overlap (tied weights), leave gaps (bytes that no tensor refers to), or be missing
 * altogether (integers that nobody wants to look at). When all tensors are dense or strided views of one format whose elements are
 * aligned to a common grid, the extent is scanned flat, once; only what is bad is then attributed to tensors one by one.
 */
typedef struct fb_ckpt_extent {
    const char *name;                    /* "data/12": for bytes that belong to no tensor, and for messages; never NULL */
    int32_t encoding;                    /* FB_CKPT_STORED, ... */
    int32_t swapped;                     /* 1: elements are big-endian */
    uint64_t offset_bytes, stored_bytes; /* in the file, proven to lie inside it. MEMORY: of the encoded form, or 0, 0 */
    uint64_t bytes;                      /* decoded; STORED: equal to stored_bytes */
    const uint8_t *memory;               /* MEMORY */
    int32_t has_crc;                     /* 1: crc32 of the decoded bytes is known, and is compared when options.crc says so */
    uint32_t crc32;
    const fb_ckpt_tensor *tensors;
    uint64_t tensor_count;
    uint64_t group; /* extents of one tensor that is cut into pieces carry the same number other than 0; else 0 */
} fb_ckpt_extent;

/* What a reader has to tell beside tensors. */
enum {
    FB_CKPT_REMARK_NOTE = 1,      /* worth telling, changes no outcome */
    FB_CKPT_REMARK_SECURITY = 2,  /* something in the file would run code, or reach outside, if a trusting program loaded it */
    FB_CKPT_REMARK_UNSCANNED = 3, /* a part that cannot be looked at; keeps the file from being clean */
    FB_CKPT_REMARK_FACT =
        4 /* a number with a known meaning, for checks across files: fb_ckpt_remark.name is one of FB_CKPT_FACT_* */
};

/* Names of facts. Values are in fb_ckpt_remark.value. */
#define FB_CKPT_FACT_STEP "step"             /* updates made: iteration, global_step(s), step of the optimizer */
#define FB_CKPT_FACT_SCALE "loss_scale"      /* of a dynamic loss scaler */
#define FB_CKPT_FACT_OVERFLOW "overflow"     /* 1: saved in the middle of a step that overflowed (DeepSpeed) */
#define FB_CKPT_FACT_PARTITIONS "partitions" /* how many optimizer shards of its kind belong together (DeepSpeed) */
#define FB_CKPT_FACT_ZERO_STAGE "zero_stage"

typedef struct fb_ckpt_remark {
    int32_t kind;     /* FB_CKPT_REMARK_* */
    const char *name; /* of the tensor or member it is about; the import "os.system" for SECURITY; "" when of the whole file */
    const char *text; /* a sentence's end: what it is, or why it was not looked at */
    double value;     /* FACT */
} fb_ckpt_remark;

/* The bytes that a reader is to read: a whole file, or a window of it (a shard inside a larger file). */
typedef struct fb_ckpt_range {
    fb_ckpt_file *file;
    uint64_t offset_bytes, bytes; /* proven to lie inside the file */
    const void *setup;            /* of the folder's layout, for readers that need to be told more than bytes; else NULL */
} fb_ckpt_range;

typedef struct fb_ckpt_reader {
    const char *format; /* "safetensors": stable, it is printed and documented */
    /* 1: the first bytes say that this is of this format, whole or broken. NULL: never found by content, only by a folder's
       layout. */
    int (*detect)(const uint8_t *head, size_t head_bytes, uint64_t file_bytes);
    /**
     * Check the structure and make ready. *state is NULL on failure, else released with close.
     * Errors: FB_E_CORRUPT (with the offset in the file), FB_E_LIMIT, FB_E_UNSUPPORTED for what the file is; FB_E_IO, FB_E_NOMEM
     * for us.
     */
    fb_status (*open)(void **state, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err);
    /* The next extent, by rising offset in the file, those in memory first; borrowed until the next call. FB_OK, FB_E_NOTFOUND:
       there is none left (err is untouched then), or as open. */
    fb_status (*next)(void *state, fb_ckpt_extent *extent, fb_error *err);
    /* Remark number i, from 0; 0: there is none left. Complete once next has said FB_E_NOTFOUND. NULL: this reader has none. */
    int (*remark)(void *state, uint64_t i, fb_ckpt_remark *remark);
    void (*close)(void *state); /* accepts NULL */
} fb_ckpt_reader;

enum { FB_CKPT_HEAD_BYTES = 512 }; /* what detect is shown, or the whole file when it is shorter */

/* The reader whose format the bytes show, or NULL. */
const fb_ckpt_reader *fb_ckpt_reader_find(const uint8_t *head, size_t head_bytes, uint64_t file_bytes);

extern const fb_ckpt_reader fb_ckpt_safetensors;
extern const fb_ckpt_reader fb_ckpt_torch_zip;    /* torch.save since 1.6; also TorchScript archives */
extern const fb_ckpt_reader fb_ckpt_torch_legacy; /* torch.save before 1.6 */
extern const fb_ckpt_reader fb_ckpt_pickle;       /* a bare pickle: numbers, and NumPy arrays in it */
extern const fb_ckpt_reader fb_ckpt_npy;
extern const fb_ckpt_reader fb_ckpt_npz;
extern const fb_ckpt_reader fb_ckpt_gguf;
extern const fb_ckpt_reader fb_ckpt_flax;   /* Flax msgpack */
extern const fb_ckpt_reader fb_ckpt_distcp; /* one .distcp file; setup: fb_dcp_file of dcp.h */

#endif
