/*
 * What torch.save wrote, seen in a parsed pickle: tensors with their names as their owner knows them, the storages that they are
 * views of, arrays and numbers that lie in the pickle itself. Shared by the zip, the legacy and the bare form, and by the shards of
 * distributed checkpoints. Nothing here reads a file.
 *
 * Names: the path of keys from the root, joined by '.'; a tensor of an optimizer, whose key is a number, gets the name of its
 * parameter ("optimizer.state.exp_avg of h.0.attn.weight") where the file says which that is (param_names, or a model whose
 * parameters match in number, order and shape), and keeps its number ("optimizer.state.12.exp_avg") where it does not. What stands
 * at the root itself is "(root)". Control characters and bytes that are not UTF-8 are written \xNN.
 */
#ifndef FB_CKPT_TORCH_OBJECT_H
#define FB_CKPT_TORCH_OBJECT_H

#include "ckpt/pickle.h"
#include "ckpt/reader.h"

typedef struct fb_torch_object fb_torch_object;

typedef struct fb_torch_storage {
    const char *key; /* of the persistent id: "12", or an address in the legacy form */
    int32_t dtype;   /* of its type; FB_U8 for an untyped one; 0: unknown */
    const char *dtype_name;
    uint32_t element_bytes; /* 0: unknown */
    uint64_t elements;      /* as the persistent id says */
    /* Tensors that are views of it; offsets are in bytes of the storage. Proven: every element lies
     * in [0, elements * element_bytes). */
    const fb_ckpt_tensor *tensors;
    uint64_t tensor_count;
    /* Legacy: this storage is a part of another one, from this element on, proven to lie in it; the other is in the list too. Else
       NULL, 0. */
    const char *root_key;
    uint64_t root_offset_elements;
} fb_torch_storage;

/**
 * Understand a pickle. Borrowed: pickle, which must outlive *out.
 * path  of the file, for messages.
 * Errors: FB_E_CORRUPT: a view that leaves its storage, strides that are negative, one key with two sizes; FB_E_LIMIT; FB_E_NOMEM.
 */
fb_status fb_torch_object_open(fb_torch_object **out, const fb_pickle *pickle, const char *path, fb_error *err);
void fb_torch_object_close(fb_torch_object *object);

uint64_t fb_torch_storages(const fb_torch_object *object);
const fb_torch_storage *fb_torch_storage_at(const fb_torch_object *object, uint64_t i); /* in order of first appearance */
/* Extents in memory: arrays and numbers that lie in the pickle. Number i; 0: there is none left. Python's finite numbers are one
 * tensor,
   "(numbers)"; each other is one of its own, and from the thousandth on they are "(more numbers)". */
int fb_torch_extent(const fb_torch_object *object, uint64_t i, fb_ckpt_extent *extent);
/* Remarks, as fb_ckpt_reader.remark: dangerous imports, tensors without data, opaque parts, facts. */
int fb_torch_remark(const fb_torch_object *object, uint64_t i, fb_ckpt_remark *remark);

#endif
