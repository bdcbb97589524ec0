/*
 * The header of a .npy file: a literal of Python, read by a parser for just that: texts, integers, booleans, tuples, lists, one
 * dictionary. Shared by .npy files and the members of .npz archives.
 */
#ifndef FB_CKPT_NPY_H
#define FB_CKPT_NPY_H

#include "ckpt/reader.h"

typedef struct fb_npy fb_npy; /* owns shape, names of fields, lanes */

enum { FB_NPY_HEADER_MAX = 65536 + 12 };

/**
 * Parse magic, version and header from the first bytes of an array.
 * head      the first min(bytes, FB_NPY_HEADER_MAX) bytes.
 * bytes     of the whole array, header included: shape and format must fill it exactly.
 * base      offset in the file, for errors. name: of the array ("weight"; "" for a file of one array, whose
 *           tensor is called "array" then).
 * Errors: FB_E_CORRUPT, FB_E_LIMIT, FB_E_NOMEM; FB_E_UNSUPPORTED for arrays of Python objects (a pickle follows) and formats
 * without a meaning of ours, such as long double.
 */
fb_status fb_npy_parse(fb_npy **out, const uint8_t *head, size_t head_bytes, uint64_t bytes, uint64_t base, const char *name,
                       const char *path, fb_error *err);
uint64_t fb_npy_data_at(const fb_npy *npy); /* bytes before the data */
int fb_npy_swapped(const fb_npy *npy);
/* The tensors: one, or one for each float field of a structured array ("weight.x"). Offsets count from the first byte of the data.
   Borrowed from npy. Fortran order comes as strides. */
const fb_ckpt_tensor *fb_npy_tensors(const fb_npy *npy, uint64_t *count);
void fb_npy_free(fb_npy *npy); /* accepts NULL */

#endif
