/*
 * Taking a JSON document of ours apart, member by member. Errors stick: after the first, every call gives nothing and the loops
 * end. What is not known is passed over, so that a later version may add members; what is known must be there once and be of its
 * kind.
 */
#ifndef FB_BUNDLE_TAKE_H
#define FB_BUNDLE_TAKE_H

#include "base/json_read.h"
#include "base/status.h"
#include "ckpt/pool.h"

typedef struct fb_take {
    fb_json_reader reader;
    fb_json_token token; /* the last key, or the last value that fb_take_item has looked at */
    const char *path;    /* for messages */
    fb_pool *pool;       /* where texts go */
    fb_status status;
    fb_error *err;
    int held; /* 1: token is a value that is still to be taken */
} fb_take;

void fb_take_begin(fb_take *take, const char *text, size_t bytes, const char *path, fb_pool *pool, fb_error *err);
/* Nothing may follow. Returns the status of it all. */
fb_status fb_take_end(fb_take *take);

/* Each takes the value that comes next, which must be of that kind. */
void fb_take_object(fb_take *take);
void fb_take_array(fb_take *take);
const char *fb_take_text(fb_take *take); /* into the pool; "" on failure */
int64_t fb_take_int(fb_take *take, int64_t low, int64_t high);
uint64_t fb_take_size(fb_take *take); /* 0 .. 2^63 - 1 */
uint64_t fb_take_hex(fb_take *take);  /* "0x" and sixteen digits */
int32_t fb_take_bool(fb_take *take);  /* 0 or 1 */
void fb_take_skip(fb_take *take);

/* The next member of the object that is open: 1, and its key in take->token; 0: it ended, or all failed. */
int fb_take_member(fb_take *take);
/* 1: there is one more element in the array that is open, and it is taken next; 0: it ended. */
int fb_take_item(fb_take *take);
/* 1: the value that comes next is null, and was taken. */
int fb_take_null(fb_take *take);

/* The number of the key in `names` (NULL-terminated), after setting its bit in *seen; -1: another key. One that was seen is an
   error. */
int fb_take_key(fb_take *take, const char *const *names, uint32_t *seen);
/* All bits of `needed` must be in `seen`. */
void fb_take_need(fb_take *take, const char *const *names, uint32_t seen, uint32_t needed);

/* This document is not what it should be. */
__attribute__((format(printf, 2, 3))) void fb_take_refuse(fb_take *take, const char *format, ...);

#endif
