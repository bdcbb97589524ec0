#include "ckpt/source.h"

#include <string.h>

#include "base/alloc.h"

fb_status fb_ckpt_source_open(fb_ckpt_source *source, fb_ckpt_file *file, const fb_ckpt_extent *extent, size_t buffer_bytes,
                              fb_error *err)
{
    fb_status status;
    memset(source, 0, sizeof *source);
    source->file = file;
    source->extent = extent;
    if (extent->encoding != FB_CKPT_DEFLATED) return FB_OK;
    source->room = buffer_bytes;
    source->buffer = fb_realloc(NULL, buffer_bytes);
    if (!source->buffer) return fb_fail(err, FB_E_NOMEM, "read checkpoint %s: no memory for %zu bytes", file->path, buffer_bytes);
    status = fb_inflate_open(&source->stream, file, extent->offset_bytes, extent->stored_bytes, extent->bytes, err);
    if (status != FB_OK) fb_ckpt_source_close(source);
    return status;
}

void fb_ckpt_source_close(fb_ckpt_source *source)
{
    fb_inflate_close(source->stream);
    fb_free(source->buffer);
    source->stream = NULL;
    source->buffer = NULL;
}

/* Decode into the buffer behind what it holds. *got 0: the end. */
static fb_status decode(fb_ckpt_source *source, size_t *got, fb_error *err)
{
    fb_status status = fb_inflate_read(source->stream, source->buffer + source->held, source->room - source->held, got, err);
    if (status != FB_OK) return status;
    source->held += *got;
    return fb_ckpt_file_worked(source->file, *got, err);
}

static fb_status view_deflated(fb_ckpt_source *source, uint64_t offset, size_t need, const uint8_t **data, size_t *bytes,
                               fb_error *err)
{
    fb_status status;
    size_t got = 1, skip;
    if (offset < source->at) {
        if ((status = fb_inflate_rewind(source->stream, err)) != FB_OK) return status;
        source->at = source->held = 0;
    }
    while (offset - source->at > source->held || offset + need > source->at + source->held) {
        uint64_t keep_from = offset - source->at;
        if (got == 0) break; /* cannot be: inflate says itself that it came short */
        if (keep_from > source->held) keep_from = source->held;
        source->held -= (size_t)keep_from;
        if (keep_from) memmove(source->buffer, source->buffer + keep_from, source->held);
        source->at += keep_from;
        if ((status = decode(source, &got, err)) != FB_OK) return status;
    }
    skip = (size_t)(offset - source->at);
    *data = source->buffer + skip;
    *bytes = source->held - skip;
    return FB_OK;
}

fb_status fb_ckpt_source_view(fb_ckpt_source *source, uint64_t offset, size_t need, const uint8_t **data, size_t *bytes,
                              fb_error *err)
{
    const fb_ckpt_extent *extent = source->extent;
    uint64_t left = extent->bytes - offset;
    fb_status status = FB_OK;
    if (need > left) need = (size_t)left;
    switch (extent->encoding) {
    case FB_CKPT_DEFLATED: status = view_deflated(source, offset, need, data, bytes, err); break;
    case FB_CKPT_MEMORY:
        *data = extent->memory + offset;
        *bytes = left < SIZE_MAX ? (size_t)left : SIZE_MAX;
        break;
    default: status = fb_ckpt_file_view(source->file, extent->offset_bytes + offset, need, data, bytes, err);
    }
    if (status == FB_OK && *bytes > left) *bytes = (size_t)left;
    if (status == FB_OK && *bytes < need) {
        return fb_fail_at(err, extent->offset_bytes, "read checkpoint %s: %.200s ends after %llu bytes", source->file->path,
                          extent->name, (unsigned long long)offset + *bytes);
    }
    return status;
}

/* A stream that is not asked beyond its last byte has not said that this was the last. */
fb_status fb_ckpt_source_end(fb_ckpt_source *source, fb_error *err)
{
    uint8_t more;
    size_t got;
    if (!source->stream) return FB_OK;
    return fb_inflate_read(source->stream, &more, 1, &got, err);
}
