/*
 * The items of msgpack, one after the other: what each is and how long, but not what it means. Containers are not entered: an array
 * of three says 3, and its items come next.
 */
#ifndef FB_CKPT_MSGPACK_H
#define FB_CKPT_MSGPACK_H

#include "ckpt/file.h"

enum {
    FB_MSGPACK_NIL,
    FB_MSGPACK_BOOLEAN,
    FB_MSGPACK_INTEGER,
    FB_MSGPACK_FLOAT32, /* this and all below: `value` bytes or items follow */
    FB_MSGPACK_FLOAT64,
    FB_MSGPACK_TEXT,
    FB_MSGPACK_BINARY,
    FB_MSGPACK_ARRAY,
    FB_MSGPACK_MAP, /* value: pairs */
    FB_MSGPACK_EXT
};

typedef struct fb_msgpack_item {
    int what;
    uint64_t at; /* of its first byte */
    uint64_t
        value; /* INTEGER: without its sign; else the bytes or items that follow, at least that many bytes of which are there */
    int negative;
    int ext; /* EXT: its type */
} fb_msgpack_item;

/* Held by the caller, who may move `at` within `end`, and `end` itself for an item inside an item. */
typedef struct fb_msgpack {
    fb_ckpt_file *file;
    const char *what;       /* for messages: "flax" */
    uint64_t base, at, end; /* at, end: counted from base, which is an offset in the file */
    uint64_t walked;        /* bytes taken so far: what the caller skips is not counted */
    uint64_t walked_max;    /* FB_E_LIMIT beyond it */
} fb_msgpack;

/* The next item. Errors: FB_E_CORRUPT, FB_E_LIMIT, FB_E_IO. */
fb_status fb_msgpack_next(fb_msgpack *m, fb_msgpack_item *item, fb_error *err);

/* So many bytes, at most 4096, borrowed until the next call. Errors: as fb_msgpack_next. */
fb_status fb_msgpack_take(fb_msgpack *m, size_t bytes, const uint8_t **data, fb_error *err);

#endif
