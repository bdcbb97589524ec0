/*
 * The dictionary in the header of a .npy file, as numbers. Only npy.c needs it.
 */
#ifndef FB_CKPT_NPY_HEADER_H
#define FB_CKPT_NPY_HEADER_H

#include "ckpt/pool.h"
#include "ckpt/reader.h"

/* One number format, such as "<f4". */
typedef struct fb_npy_format {
    const char *name;      /* as the file writes it */
    int32_t dtype;         /* FB_*; 0: unscanned says why */
    int32_t swapped;       /* 1: big-endian, and it matters */
    uint64_t bytes;        /* of one item */
    uint64_t parts;        /* items of dtype in it: "<U5" is five of FB_U32. 1 for numbers */
    const char *unscanned; /* NULL, or why its bytes have no meaning that we know */
} fb_npy_format;

typedef struct fb_npy_field {
    const char *name; /* "velocity.x"; "" when the array is not structured */
    fb_npy_format format;
    uint64_t offset_bytes; /* in the record */
    uint64_t count;        /* items, one after the other: product of dims */
    const uint64_t *dims;
    int32_t ndim;
} fb_npy_field;

typedef struct fb_npy_header {
    fb_pool pool; /* of everything that is pointed to here */
    /* The format itself, or the fields of a record that can be non-finite or are not known; integers are left out. */
    fb_npy_field *fields;
    uint32_t field_count, field_room;
    int structured, fortran;
    uint64_t record_bytes;
    uint64_t shape[FB_CKPT_DIMS_MAX];
    int32_t ndim;
} fb_npy_header;

/* How messages name an array. */
typedef struct fb_npy_source {
    const char *path, *name; /* name "": a file of one array */
    uint64_t base;           /* offset of the text in the file */
} fb_npy_source;

#define FB_NPY_SAY "read npy %s%s%.200s: "
#define FB_NPY_WHO(source) (source)->path, *(source)->name ? ", array " : "", (source)->name

/**
 * Read the dictionary.
 * header  all zero before the call; to be released whatever the result is.
 * latin1  1: versions 1 and 2; 0: UTF-8.
 * Errors: FB_E_CORRUPT, FB_E_LIMIT, FB_E_NOMEM, FB_E_UNSUPPORTED.
 */
fb_status fb_npy_header_read(fb_npy_header *header, const uint8_t *text, size_t bytes, int latin1, const fb_npy_source *source,
                             fb_error *err);
void fb_npy_header_release(fb_npy_header *header);

#endif
