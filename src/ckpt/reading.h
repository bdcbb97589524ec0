/*
 * One file while it is read: what the parts of the scan hand to each other. An extent takes one of three ways (extent.c):
 *
 *   tiles   its tensors are dense and lie one after the other: one pass over the bytes, judged tensor by tensor as they pass
 *   flat    its tensors are views of one format, and share bytes: one pass over the bytes, and a second look where it found
 *   something
 *   apart   anything else: tensor by tensor
 */
#ifndef FB_CKPT_READING_H
#define FB_CKPT_READING_H

#include "ckpt/judge.h"
#include "ckpt/scan.h"
#include "ckpt/source.h"

typedef struct fb_ckpt_reading {
    fb_ckpt_scan *scan;
    fb_ckpt_file *file;
    int32_t *outcome;
    const fb_kernel *kernel;
    uint64_t told_bytes; /* progress was told up to here */
} fb_ckpt_reading;

/* ---- findings.c ---- */

/* FB_CKPT_WANT_* for a tensor. */
int32_t fb_ckpt_wants(const fb_ckpt_scan *scan, const fb_ckpt_tensor *tensor);

/* 1: what was seen so far is enough for FB_CKPT_FIRST; *counts are then those up to the first bad element. */
int fb_ckpt_is_decided(const fb_ckpt_scan *scan, const fb_ckpt_tensor *tensor, fb_ckpt_counts *counts);

/* A tensor is done: totals, its finding, its statistics, to summary and sink. stored: how many stored elements it refers to. */
void fb_ckpt_tensor_done(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, const fb_ckpt_job *job, uint64_t stored,
                         const fb_ckpt_counts *counts, const fb_stream *stream);

/* Bytes of the extent that no tensor refers to hold something. */
void fb_ckpt_unreferenced(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, const fb_format *format, uint64_t elements,
                          const fb_ckpt_counts *counts);

/* Progress, and the question whether to stop: FB_E_WITHHELD. */
fb_status fb_ckpt_poll(fb_ckpt_reading *reading, fb_error *err);

/* ---- pass.c ---- */

/* Pieces in which something is bad, by rising offset; neighbours are one. */
typedef struct fb_ckpt_ranges {
    uint64_t *ends; /* begin, end, begin, end, ... */
    uint64_t count, room;
} fb_ckpt_ranges;

typedef struct fb_ckpt_tiles {
    const fb_ckpt_extent *extent;
    const uint32_t *order; /* NULL: as the extent has them */
    uint64_t count;        /* 0: flat */
    const fb_format *gap;  /* format of bytes between tiles; NULL: not looked at */
    uint64_t gap_at;       /* where its grid begins */
    fb_ckpt_ranges *bad;   /* flat: where something is bad; else NULL */
} fb_ckpt_tiles;

/* Read all bytes of the extent, once and in order, and judge them. */
fb_status fb_ckpt_pass(fb_ckpt_reading *reading, fb_ckpt_source *source, const fb_ckpt_tiles *tiles, fb_error *err);

/* ---- crew.c: threads ---- */

struct fb_ckpt_crew;
void fb_ckpt_crew_close(struct fb_ckpt_crew *crew); /* accepts NULL */

/* ---- views.c ---- */

/* Flat, second look: whose are the bad elements in these ranges? */
fb_status fb_ckpt_attribute(fb_ckpt_reading *reading, fb_ckpt_source *source, const fb_format *format, uint64_t grid_at,
                            const fb_ckpt_ranges *bad, fb_error *err);

/* One tensor by itself, its stored elements each once, in the order in which they lie. */
fb_status fb_ckpt_scan_apart(fb_ckpt_reading *reading, fb_ckpt_source *source, const fb_ckpt_job *job, fb_ckpt_counts *counts,
                             fb_stream *stream, uint64_t *stored, fb_error *err);

/* ---- extent.c ---- */

fb_status fb_ckpt_scan_extent(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, fb_error *err);

#endif
