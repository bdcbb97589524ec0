/*
 * XXH3, 64 bits, over data that arrives in pieces. Equals fb_hash64 with seed 0 over all of it, and what `xxh3sum` prints for a
 * file.
 */
#ifndef FB_BASE_HASH_STREAM_H
#define FB_BASE_HASH_STREAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct fb_hash_stream fb_hash_stream;

/* An empty stream, or NULL without memory. Release with fb_hash_stream_free. */
fb_hash_stream *fb_hash_stream_new(void);
void fb_hash_stream_add(fb_hash_stream *stream, const void *data, size_t bytes);
/* Of everything added so far; more may be added afterwards. */
uint64_t fb_hash_stream_digest(const fb_hash_stream *stream);
/* Accepts NULL. */
void fb_hash_stream_free(fb_hash_stream *stream);

#endif
