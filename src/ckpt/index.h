/*
 * model.safetensors.index.json and pytorch_model.bin.index.json: {"metadata": {...}, "weight_map": {tensor: file, ...}}. It says
 * which tensors a checkpoint of several files must have, and where. Only the map is used; `total_size` is a hint that nothing here
 * believes.
 */
#ifndef FB_CKPT_INDEX_H
#define FB_CKPT_INDEX_H

#include "base/status.h"

typedef struct fb_ckpt_index fb_ckpt_index;

enum { FB_CKPT_INDEX_BYTES_MAX = 100000000 };

/**
 * Check an index.
 * text  new memory of `bytes` bytes and one more; taken over in any case, and released with the index.
 * path  of the file, for messages; borrowed for the call.
 * Errors: FB_E_CORRUPT: no strict JSON, no weight_map, a tensor twice, or a file name that is not a plain one (with a folder in it,
 * or leading out of the folder). FB_E_LIMIT, FB_E_NOMEM.
 */
fb_status fb_ckpt_index_parse(fb_ckpt_index **out, char *text, uint64_t bytes, const char *path, fb_error *err);

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
