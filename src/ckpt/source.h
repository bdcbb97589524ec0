/*
 * The decoded bytes of an extent, wherever they come from: the file, a deflated member, memory of the reader. Reading forward costs
 * each byte once; going back in a deflated one begins again.
 */
#ifndef FB_CKPT_SOURCE_H
#define FB_CKPT_SOURCE_H

#include "ckpt/inflate.h"
#include "ckpt/reader.h"

typedef struct fb_ckpt_source {
    fb_ckpt_file *file;
    const fb_ckpt_extent *extent;
    fb_inflate *stream;
    uint8_t *buffer; /* DEFLATED: holds [at, at + held) */
    size_t room, held;
    uint64_t at;
} fb_ckpt_source;

/* buffer_bytes: at least twice what one call of view needs. Errors: FB_E_NOMEM, FB_E_LIMIT. On failure nothing is left open. */
fb_status fb_ckpt_source_open(fb_ckpt_source *source, fb_ckpt_file *file, const fb_ckpt_extent *extent, size_t buffer_bytes,
                              fb_error *err);

/* Bytes at `offset`, at least `need` of them or up to the end; as many more as there are at no cost.
 * Borrowed until the next call. */
fb_status fb_ckpt_source_view(fb_ckpt_source *source, uint64_t offset, size_t need, const uint8_t **data, size_t *bytes,
                              fb_error *err);

/* Everything is out: a stream must have come to its end. */
fb_status fb_ckpt_source_end(fb_ckpt_source *source, fb_error *err);

void fb_ckpt_source_close(fb_ckpt_source *source);

#endif
