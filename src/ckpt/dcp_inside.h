/*
 * The table of a distributed checkpoint from within: shared by dcp.c, which reads the pickle, and dcp_check.c, which proves that
 * the chunks make whole tensors and that their places in the files do not overlap.
 */
#ifndef FB_CKPT_DCP_INSIDE_H
#define FB_CKPT_DCP_INSIDE_H

#include "ckpt/dcp.h"
#include "ckpt/pool.h"

typedef struct dcp_chunk {
    const uint64_t *start, *size;
    uint64_t elements;
    uint32_t stored; /* how many ranges of files claim to hold it */
} dcp_chunk;

typedef struct dcp_tensor {
    const char *fqn, *name; /* as the table writes it; as its owner knows it */
    const char *dtype_name;
    const uint64_t *shape;
    uint64_t elements;
    uint64_t first_chunk, chunk_count;
    int32_t ndim, dtype;
    int32_t is_blob;
    uint32_t stored; /* of a blob */
} dcp_tensor;

/* One entry of storage_data. */
typedef struct dcp_place {
    const char *file;
    uint64_t offset_bytes, bytes;
    uint32_t tensor, chunk; /* chunk: in fb_dcp.chunks */
    int32_t transformed;
} dcp_place;

struct fb_dcp {
    const char *path;
    fb_pool pool;
    dcp_tensor *tensors;
    dcp_chunk *chunks;
    dcp_place *places;
    uint64_t tensor_count, chunk_count, place_count;
    uint64_t tensor_room, chunk_room, place_room;
    uint32_t *by_name; /* tensors, sorted by fqn */
    uint32_t *order;   /* work space: places, or chunks of one tensor */
    fb_dcp_slice *slices;
    fb_dcp_file *files;
    uint64_t file_count;
    uint64_t work; /* comparisons made so far, so that a hostile table cannot ask for endless ones */
    int32_t sort_dim;
};

fb_status fb_dcp_no_memory(const fb_dcp *dcp, fb_error *err);
/* Count `steps` of work. FB_E_LIMIT when a table asks for far more than an honest one of its size. */
fb_status fb_dcp_work(fb_dcp *dcp, uint64_t steps, fb_error *err);
/* All that is proven of the whole table; makes slices and files. */
fb_status fb_dcp_check(fb_dcp *dcp, fb_error *err);

#endif
