/*
 * What one rank put into a bundle, as it stands in part-r00000.json, and the manifest bundle.json that closes over all of them.
 * Both are written and read here; docs/format/bundle.md has the bytes. A bundle is a chain of hashes: the manifest holds its own
 * and that of each part, a part that of each of its files and tensors, so that no byte of it can change unseen.
 */
#ifndef FB_BUNDLE_PART_H
#define FB_BUNDLE_PART_H

#include "ckpt/pool.h"
#include "firstbad/bundle.h"
#include "os/os.h"

#define FB_BUNDLE_MANIFEST "bundle.json"

enum {
    FB_BUNDLE_NAME_MAX = 64,             /* bytes of a file's name, its NUL included */
    FB_BUNDLE_JSON_BYTES_MAX = 64 << 20, /* of a part or manifest that is read */
    FB_BUNDLE_WORLD_MAX = 1 << 20
};

typedef struct fb_part_tensor {
    const char *name;
    uint64_t bytes, xxh3;
    uint64_t offset_bytes; /* in its file; known once the file was looked at */
    int64_t shape[FB_DIMS_MAX];
    int32_t dtype, ndim;
    int32_t part; /* FB_BUNDLE_BATCH, ... */
    int32_t seen; /* 1: the file has it */
    void *data;   /* of a writer: its copy; else NULL */
} fb_part_tensor;

/* A tensor that was handed over and is not in the bundle. */
typedef struct fb_part_left {
    const char *name;
    uint64_t bytes;
    int32_t part;
    int32_t no_memory; /* 1: there was no memory for it; 0: bytes_max */
} fb_part_left;

enum { FB_VALUE_NUMBER = 1, FB_VALUE_INTEGER = 2, FB_VALUE_TEXT = 3 };

typedef struct fb_part_value {
    const char *key, *text;
    int32_t kind; /* FB_VALUE_* */
    double number;
    int64_t integer;
} fb_part_value;

typedef struct fb_part_file {
    int32_t there;
    uint64_t bytes, xxh3;
} fb_part_file;

typedef struct fb_part {
    fb_pool pool; /* every text and array of a part that was read; the texts of one that is written */
    const char *run_id, *case_id;
    int64_t step;
    int32_t rank, world;
    fb_part_file files[FB_BUNDLE_PARTS]; /* [FB_BUNDLE_BATCH], ... */
    fb_part_tensor *tensors;
    fb_part_left *left;
    fb_part_value *values;
    uint32_t tensor_count, tensor_room, left_count, left_room, value_count, value_room;
    uint32_t *by_name;       /* [tensor_count] in rising order of (part, name); of a part that was read */
    const char *parent_path; /* NULL: none */
    int64_t parent_step;
    int32_t parent_exact;
    const char **command; /* NULL-terminated; NULL: none */
    const char *cwd;      /* NULL: none */
} fb_part;

/* One line of the manifest. */
typedef struct fb_manifest_part {
    int32_t rank;
    uint64_t bytes, xxh3; /* of its part-r00000.json */
} fb_manifest_part;

typedef struct fb_manifest {
    fb_pool pool;
    const char *run_id, *case_id;
    int64_t step;
    int32_t world;
    uint32_t part_count, part_room;
    fb_manifest_part *parts; /* by rising rank; every other rank below world is missing */
} fb_manifest;

/* "batch", "rng", "state"; NULL for another number. */
const char *fb_bundle_part_name(int32_t part);
/* "batch-r00000.safetensors"; "part-r00000.json" for part 0. */
void fb_bundle_file_name(char name[FB_BUNDLE_NAME_MAX], int32_t part, int32_t rank);

/* Room for one more element, or NULL. Arrays live in memory of their own. */
void *fb_bundle_grow(void *array, uint32_t count, uint32_t *room, size_t element_bytes);

/* The text of a part, or of a manifest, ready to be written; release with fb_free. */
fb_status fb_part_text(const fb_part *part, char **text, size_t *bytes, fb_error *err);
fb_status fb_manifest_text(const fb_manifest *manifest, char **text, size_t *bytes, fb_error *err);

/**
 * Read one. path: for messages. On failure the struct is released.
 * Errors: FB_E_CORRUPT (the sentence says what and where), FB_E_LIMIT, FB_E_NOMEM.
 */
fb_status fb_part_parse(fb_part *part, const char *text, size_t bytes, const char *path, fb_error *err);
fb_status fb_manifest_parse(fb_manifest *manifest, const char *text, size_t bytes, const char *path, fb_error *err);

/* NULL: not there. The part must have been read. */
fb_part_tensor *fb_part_find(const fb_part *part, int32_t which, const char *name);
const fb_part_value *fb_part_value_of(const fb_part *part, const char *key);

/* Accept what is all zero. */
void fb_part_release(fb_part *part);
void fb_manifest_release(fb_manifest *manifest);

#endif
