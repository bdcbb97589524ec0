/*
 * A deflated member of an archive, decoded as a stream through zlib: never more than the declared size comes out, and less is an
 * error as well. A stream that claims to grow more than a hundredfold beyond 256 MiB is refused.
 */
#ifndef FB_CKPT_INFLATE_H
#define FB_CKPT_INFLATE_H

#include "ckpt/file.h"

typedef struct fb_inflate fb_inflate;

/* The raw deflate stream in [offset, offset + stored_bytes) of the file, which decodes to exactly
 * `bytes`. Errors: FB_E_NOMEM, FB_E_LIMIT. */
fb_status fb_inflate_open(fb_inflate **out, fb_ckpt_file *file, uint64_t offset, uint64_t stored_bytes, uint64_t bytes,
                          fb_error *err);
/* The next bytes, `room` of them or up to the end; *got 0: the end, and everything was there. FB_E_CORRUPT otherwise; FB_E_IO. */
fb_status fb_inflate_read(fb_inflate *stream, void *data, size_t room, size_t *got, fb_error *err);
/* Begin again, for a second pass. */
fb_status fb_inflate_rewind(fb_inflate *stream, fb_error *err);
void fb_inflate_close(fb_inflate *stream); /* accepts NULL */

#endif
