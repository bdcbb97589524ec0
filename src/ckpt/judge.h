/*
 * What one tensor needs so that its stored bytes can be judged, and the judgement of a run of them. Nothing here reads a file.
 */
#ifndef FB_CKPT_JUDGE_H
#define FB_CKPT_JUDGE_H

#include "ckpt/reader.h"
#include "scan/scan_stream.h"

/* What was seen of a tensor, or of a part of it. Parts add up in any order. */
typedef struct fb_ckpt_counts {
    uint64_t nan, pos_inf, neg_inf;
    uint64_t zero;        /* counted only when asked for */
    uint64_t first_index; /* flat, in the tensor; FB_NO_INDEX: nothing is bad */
    uint64_t first_at;    /* its first byte in the decoded extent */
    uint64_t first_bits;
    int32_t first_kind;
    int32_t lane; /* number of its lane, -1: none */
} fb_ckpt_counts;

void fb_ckpt_counts_init(fb_ckpt_counts *counts);
void fb_ckpt_counts_add(fb_ckpt_counts *into, const fb_ckpt_counts *from);

enum {
    FB_CKPT_PASS_OVER = 0, /* nothing in it can be non-finite, or nobody can look at it */
    FB_CKPT_PLAIN = 1,
    FB_CKPT_LANES = 2
};
enum { FB_CKPT_WANT_ZEROS = 1, FB_CKPT_WANT_STATS = 2 };

enum {
    FB_CKPT_GRAIN_MAX = FB_BLOCK_BYTES, /* no piece of a tensor needs to be read at once beyond this */
    FB_CKPT_PERIOD_MAX = 4096           /* longer blocks are not read whole: their lanes are fetched one by one */
};

typedef struct fb_ckpt_job {
    const fb_ckpt_tensor *tensor; /* NULL: bytes that no tensor refers to */
    const fb_kernel *kernel;
    const fb_format *format; /* PLAIN; of LANES when all lanes have the same; else NULL */
    int32_t how;             /* FB_CKPT_PLAIN, ... */
    int32_t swapped;
    int32_t wants;
    uint32_t unit_bytes;          /* an element, a block */
    uint32_t grain_bytes;         /* a multiple of it; pieces begin and end at multiples of this, so that sums cannot tell */
    uint64_t offset_bytes, bytes; /* in the extent, of a tensor that is dense */
    uint64_t units;
} fb_ckpt_job;

/* Errors: FB_E_CORRUPT when the tensor leaves the extent, which would be a fault of the reader. path: for messages. */
fb_status fb_ckpt_job_init(fb_ckpt_job *job, const fb_kernel *kernel, const fb_ckpt_extent *extent, const fb_ckpt_tensor *tensor,
                           int32_t wants, const char *path, fb_error *err);

/* The same for bytes that no tensor refers to, seen as a row of elements of this format from offset_bytes on. */
void fb_ckpt_job_gap(fb_ckpt_job *job, const fb_kernel *kernel, const fb_ckpt_extent *extent, const fb_format *format,
                     uint64_t offset_bytes);

/* The format of a lane. NULL: nothing in it can be non-finite. */
const fb_format *fb_ckpt_lane_format(const fb_ckpt_lane *lane);
uint32_t fb_ckpt_lane_bytes(const fb_ckpt_lane *lane); /* of one number of it; 0: unknown format */

/**
 * Judge units [first, first + units), which lie one after the other in memory.
 * stream  NULL, or takes the statistics when the job wants them and has a format.
 */
void fb_ckpt_judge(const fb_ckpt_job *job, const uint8_t *data, uint64_t first, uint64_t units, fb_ckpt_counts *counts,
                   fb_stream *stream);

/* n elements of a PLAIN job, in the order of storage; `first` and the index in counts number them in that order. */
void fb_ckpt_judge_plain(const fb_ckpt_job *job, const uint8_t *data, uint64_t first, uint64_t n, fb_ckpt_counts *counts,
                         fb_stream *stream);

/* Is this one element, of a PLAIN job, bad? */
int fb_ckpt_is_bad(const fb_ckpt_job *job, const uint8_t *element);

/* Lane number `which` of blocks [first, first + blocks), which lie one after the other from `data` on. */
void fb_ckpt_judge_lane(const fb_ckpt_job *job, uint32_t which, const uint8_t *data, uint64_t first, uint64_t blocks,
                        fb_ckpt_counts *counts, fb_stream *stream);

/* n numbers of a lane, at most FB_CKPT_GRAIN_MAX bytes of them; the first is number `first` of that lane in the whole tensor. */
void fb_ckpt_judge_numbers(const fb_ckpt_job *job, uint32_t which, const uint8_t *data, uint64_t first, size_t n,
                           fb_ckpt_counts *counts, fb_stream *stream);

#endif
