/*
 * A look into a file of torch.save before the scan: single numbers whose place is known, such as the step of an optimizer. What
 * does not look as expected gives "not there": the scan itself will say what is wrong with the file.
 */
#ifndef FB_CKPT_PEEK_H
#define FB_CKPT_PEEK_H

#include "ckpt/pickle.h"
#include "ckpt/scan.h"
#include "ckpt/zip.h"

typedef struct fb_peek {
    fb_ckpt_file file;
    fb_zip *zip;
    uint8_t *data;
    fb_pickle *pickle;
    char prefix[256]; /* of the members: "archive/" */
} fb_peek;

/* FB_OK: it could be opened. FB_E_NOTFOUND: it is no such file, or a broken one. FB_E_NOMEM and FB_E_IO are errors of ours. */
fb_status fb_peek_open(fb_peek *peek, const fb_ckpt_scan *scan, const char *path, fb_error *err);
void fb_peek_close(fb_peek *peek);

/* The value behind a path of keys in nested dictionaries, ended by NULL; a key is a text, or the
 * decimal of a whole number. 0: none. */
fb_node fb_peek_get(const fb_peek *peek, fb_node from, const char *const *keys);
/* A whole number, or a float or a tensor of one element that holds one. 1: *value is it. */
int fb_peek_number(fb_peek *peek, fb_node node, int64_t *value);
/* The largest "step" in state: {parameter: {"step": number}}. 1: there is one. */
int fb_peek_optimizer_step(fb_peek *peek, fb_node optimizer, int64_t *step);

#endif
