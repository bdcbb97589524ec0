/*
 * A folder as one checkpoint, from within: what the parts that know a layout (index, distributed checkpoint, DeepSpeed, Megatron,
 * transformers) share with folder.c. A layout looks at the list of files before any of them is read, says which reader a file needs
 * where its content does not tell, and reports what is missing or does not belong together.
 */
#ifndef FB_CKPT_LAYOUT_H
#define FB_CKPT_LAYOUT_H

#include "ckpt/scan.h"
#include "ckpt/tree.h"

/* How one file is taken. */
enum {
    FB_TAKE_BY_CONTENT = 0,
    FB_TAKE_AS = 1,   /* by `reader` with `setup` */
    FB_TAKE_READ = 2, /* a layout has read all of it: its digest is known */
    FB_TAKE_PASS = 3  /* it is no part of the checkpoint, or was dealt with */
};

typedef struct fb_folder_plan {
    int32_t take;
    int32_t counts; /* 1: it is a part of the checkpoint, and of its digest */
    const fb_ckpt_reader *reader;
    const void *setup;
    uint64_t size_bytes, digest;
} fb_folder_plan;

typedef struct fb_folder_kept {
    void *what;
    void (*release)(void *what);
    struct fb_folder_kept *next;
} fb_folder_kept;

typedef struct fb_folder {
    fb_ckpt_scan *scan;
    fb_tree tree;
    fb_folder_plan *plans; /* one for each file of the tree */
    fb_pool pool;
    fb_folder_kept *kept;    /* released after the scan */
    char format[64];         /* names of the layouts that were found */
    const char *only_index;  /* the one index that was asked for, or NULL */
    fb_ckpt_sink sink;       /* the caller's */
    const fb_tree_file *now; /* the file that is read */
    struct fb_indices *indices;
    struct fb_deepspeed *deepspeed; /* a list; see deepspeed.c */
    struct fb_steps *steps;
    int32_t step_unclear;
} fb_folder;

/* ---- services of folder.c ---- */

fb_folder_plan *fb_folder_plan_of(fb_folder *f, const fb_tree_file *file);
/* Whole path of a file or folder below. FB_E_LIMIT. */
fb_status fb_folder_path(const fb_folder *f, const char *name, char path[FB_OS_PATH_MAX], fb_error *err);
/* The checkpoint is not what it should be. */
__attribute__((format(printf, 2, 3))) void fb_folder_unreadable(fb_folder *f, const char *format, ...);
/* A part cannot be looked at. name: of the file, or "" for the folder. */
void fb_folder_unscanned(fb_folder *f, const char *name, const char *why);
__attribute__((format(printf, 3, 4))) void fb_folder_note(fb_folder *f, const char *name, const char *format, ...);
/* The layout that was found, for the summary. The first few different ones are kept. */
void fb_folder_format(fb_folder *f, const char *format);
/* Step of the checkpoint, as a layout knows it. Two that differ leave it unknown: a folder of several checkpoints. */
void fb_folder_step(fb_folder *f, int64_t step);
/* Release `what` when the scan is over. On failure it is released at once. */
fb_status fb_folder_keep(fb_folder *f, void *what, void (*release)(void *), fb_error *err);
/* A small file whole, marked as read. counts: it is a part of the checkpoint, so it is digested with it. *data: new memory with a
 * NUL after it, or NULL when the file cannot be taken: then
 * the
   outcome has been told, and the status is FB_OK. Other errors: FB_E_IO, FB_E_NOMEM. */
fb_status fb_folder_load(fb_folder *f, const fb_tree_file *file, int counts, uint64_t bytes_max, uint8_t **data, uint64_t *bytes,
                         fb_error *err);

/* ---- the layouts ---- */

/* Index files and numbered shards; tensors are compared with the index as they pass. only: the one
 * index to follow, or NULL: all. */
fb_status fb_layout_index(fb_folder *f, const char *only, fb_error *err);
void fb_layout_index_end(fb_folder *f);
/* torch.distributed.checkpoint. */
fb_status fb_layout_dcp(fb_folder *f, fb_error *err);
/* DeepSpeed. */
fb_status fb_layout_deepspeed(fb_folder *f, fb_error *err);
/* A finding in a piece of a parameter gets the shape of the parameter. */
void fb_layout_deepspeed_finding(fb_folder *f, fb_ckpt_finding *finding);
/* Megatron. */
fb_status fb_layout_megatron(fb_folder *f, fb_error *err);
/* transformers, accelerate, FSDP. */
fb_status fb_layout_huggingface(fb_folder *f, fb_error *err);
/* Shards of one family must be of one step. */
fb_status fb_layout_steps(fb_folder *f, fb_error *err);
void fb_layout_steps_end(fb_folder *f);

#endif
