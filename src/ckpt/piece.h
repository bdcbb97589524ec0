/*
 * A piece of an extent: planned in order, judged by whichever thread takes it, and committed in order by the thread that asked for
 * the scan. So findings, digest and sums come out the same however many threads there are.
 */
#ifndef FB_CKPT_PIECE_H
#define FB_CKPT_PIECE_H

#include "ckpt/reading.h"

enum {
    FB_CKPT_TILES_MAX = 64,                       /* in a piece */
    FB_CKPT_PARTS_MAX = 2 * FB_CKPT_TILES_MAX + 2 /* tiles and what lies between them */
};

/* What was seen of one tile, or of bytes between two, inside one piece. */
typedef struct fb_ckpt_part {
    uint64_t tile; /* FB_NO_INDEX: between tiles */
    fb_ckpt_counts counts;
    int32_t has_stream; /* 1: the stream of the same number holds its statistics */
} fb_ckpt_part;

typedef struct fb_ckpt_piece {
    uint64_t begin, end;            /* in the extent */
    uint64_t first_tile, next_tile; /* tiles from the first on end here, but for `next`, which may begin here */
    uint32_t crc32;                 /* of its bytes, when the pass wants it */
    uint32_t part_count;
    fb_ckpt_part parts[FB_CKPT_PARTS_MAX];
    fb_stream *streams; /* FB_CKPT_PARTS_MAX of them when statistics are wanted; else NULL */
    fb_status status;
    fb_error error;
} fb_ckpt_piece;

/* Where planning stands, and what the committed pieces have come to. */
typedef struct fb_ckpt_pass_state {
    fb_ckpt_reading *reading;
    const fb_ckpt_tiles *tiles;
    int32_t wants_crc;
    uint64_t planned, next_tile; /* pieces are planned up to here */
    /* Committed. */
    uint64_t tile; /* that current and current_stream are about */
    fb_ckpt_counts current;
    fb_stream *current_stream; /* NULL when no statistics are wanted */
    int32_t current_begun;
    fb_ckpt_counts gaps;
    uint32_t crc32;
} fb_ckpt_pass_state;

/* Plan the next piece, of at most `room` bytes; room is at least FB_CKPT_GRAIN_MAX or reaches to the
 * end of the extent. 0: no more. */
int fb_ckpt_piece_plan(fb_ckpt_pass_state *pass, uint64_t room, fb_ckpt_piece *piece);
/* Judge it; data holds [begin, end). Reads pass->tiles alone, so that threads may do it at once. */
void fb_ckpt_piece_judge(const fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, const uint8_t *data);
/* In order. */
fb_status fb_ckpt_piece_commit(fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, fb_error *err);

/* ---- crew.c ---- */

/* All pieces of a stored extent, by threads. FB_E_NOTFOUND, having done nothing: threads are not wanted here or cannot be had. */
fb_status fb_ckpt_crew_pass(fb_ckpt_pass_state *pass, fb_error *err);

#endif
