/*
 * model.safetensors.index.json: {"metadata": {...}, "weight_map": {tensor: file, ...}}. It says which tensors a checkpoint of
 * several files must have, and where. Only the map is used; `total_size` is a hint that nothing here believes.
 */
#ifndef FB_CKPT_INDEX_H
#define FB_CKPT_INDEX_H

#include "base/status.h"
#include "os/os.h"

typedef struct fb_ckpt_index fb_ckpt_index;

/**
 * Read and check an index.
 * Errors: FB_E_CORRUPT: no strict JSON, no weight_map, a tensor twice, or a file name that is not a plain one (with a folder in it,
 * or leading out of the folder). FB_E_LIMIT, FB_E_IO, FB_E_NOMEM, FB_E_NOTFOUND, FB_E_UNSUPPORTED. *digest: XXH3 of its bytes.
 */
fb_status fb_ckpt_index_load(fb_ckpt_index **out, const fb_os *os, const char *path, uint64_t *size_bytes, uint64_t *digest,
                             fb_error *err);

/* 1 if the map names this file at all. */
int fb_ckpt_index_names_file(const fb_ckpt_index *index, const char *file);

/* A tensor was met in a file. NULL: the map does not list it; else the file the map gives for it, and it counts as met if they
 * agree. */
const char *fb_ckpt_index_meet(fb_ckpt_index *index, const char *tensor, const char *file);

/* The first tensor, by name, that was not met where the map says it is, or NULL. file: where it should be. count: how many are
 * missing. */
const char *fb_ckpt_index_missing(const fb_ckpt_index *index, const char **file, uint64_t *count);

/* Names of files in the map, each once: call with i = 0, 1, ... until NULL. */
const char *fb_ckpt_index_file(const fb_ckpt_index *index, uint64_t i);

/* Accepts NULL. */
void fb_ckpt_index_free(fb_ckpt_index *index);

#endif
