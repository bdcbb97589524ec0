#include "base/hash_stream.h"

#include "base/alloc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STATE_ALIGN = 64 }; /* of XXH3_state_t, more than an allocator promises */

struct fb_hash_stream {
    XXH3_state_t *state; /* aligned, inside the same block */
};

fb_hash_stream *fb_hash_stream_new(void)
{
    fb_hash_stream *stream = fb_calloc(1, sizeof *stream + sizeof(XXH3_state_t) + STATE_ALIGN);
    uintptr_t at;
    if (!stream) return NULL;
    at = (uintptr_t)(stream + 1);
    stream->state = (XXH3_state_t *)((at + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN);
    (void)XXH3_64bits_reset(stream->state);
    return stream;
}

void fb_hash_stream_add(fb_hash_stream *stream, const void *data, size_t bytes)
{
    if (bytes > 0) (void)XXH3_64bits_update(stream->state, data, bytes);
}

uint64_t fb_hash_stream_digest(const fb_hash_stream *stream)
{
    return XXH3_64bits_digest(stream->state);
}

void fb_hash_stream_free(fb_hash_stream *stream)
{
    fb_free(stream);
}
