/*
 * The table of a torch.distributed.checkpoint folder: `.metadata`, a pickle that says which tensors there are, into which chunks
 * each is cut, and in which range of which file each chunk lies.
 *
 *   Metadata{state_dict_metadata: {fqn: TensorStorageMetadata{properties, size, chunks: [ChunkStorageMetadata{offsets, sizes}]}
 *                                       or BytesStorageMetadata{}},
 *            storage_data: {MetadataIndex{fqn, offset, index}: _StorageInfo{relative_path, offset, length[,
 *            transform_descriptors]}}}
 *
 * Proven here: names are unique and plain, file names lead to files of this folder, chunks lie inside their tensor and fill it
 * without overlap, each chunk and each blob is stored exactly once, and ranges of one file do not overlap. That the ranges lie
 * inside their files, and that what lies there is what the table says, is proven by the reader fb_ckpt_distcp.
 * Source: torch/distributed/checkpoint/metadata.py and filesystem.py, releases 2.0 to 2.13.
 */
#ifndef FB_CKPT_DCP_H
#define FB_CKPT_DCP_H

#include "ckpt/reader.h"

typedef struct fb_dcp fb_dcp;

/* A chunk of a tensor, or a blob, in its file. Texts and arrays live as long as the table. */
typedef struct fb_dcp_slice {
    uint64_t offset_bytes, bytes;                /* in the file, as the table says */
    const char *name;                            /* as its owner knows it: "optim.state.exp_avg of h.0.weight" */
    const char *dtype_name;                      /* of a tensor: "float32" */
    const uint64_t *shape, *start, *whole_shape; /* of the chunk; where it lies in the tensor; of the tensor */
    uint64_t group;                              /* number of its tensor, from 1; 0 where the tensor is one chunk, or a blob */
    int32_t ndim;
    int32_t dtype;       /* FB_*; 0: unknown to this build */
    int32_t is_blob;     /* 1: bytes of an object */
    int32_t is_step;     /* 1: an F32 with the step of an optimizer */
    int32_t transformed; /* 1: compressed or encrypted on its way to the file */
} fb_dcp_slice;

/* The setup of fb_ckpt_distcp: what one file holds, by rising offset. */
typedef struct fb_dcp_file {
    const char *name; /* in the folder: "__0_0.distcp" */
    const fb_dcp_slice *slices;
    uint64_t count;
} fb_dcp_file;

/**
 * Read the table.
 * data, bytes  the file `.metadata`; borrowed for the call. path: of it, for messages.
 * Errors: FB_E_CORRUPT, FB_E_LIMIT, FB_E_UNSUPPORTED, FB_E_NOMEM.
 */
fb_status fb_dcp_parse(fb_dcp **out, const uint8_t *data, uint64_t bytes, const char *path, fb_error *err);
uint64_t fb_dcp_files(const fb_dcp *dcp); /* sorted by name */
const fb_dcp_file *fb_dcp_file_at(const fb_dcp *dcp, uint64_t i);
/* NULL: no slice lies in a file of this name. */
const fb_dcp_file *fb_dcp_file_find(const fb_dcp *dcp, const char *name);
void fb_dcp_free(fb_dcp *dcp); /* accepts NULL */

#endif
