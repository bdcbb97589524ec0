#include "ckpt/inflate.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

enum { INPUT_BYTES = 65536, RATIO_MAX = 100 };
static const uint64_t RATIO_FROM = 256u << 20; /* an honest matrix of zeros below this size may shrink as far as it likes */

struct fb_inflate {
    fb_ckpt_file *file;
    uint64_t offset, stored_bytes, bytes;
    uint64_t fed, out; /* bytes handed to zlib; bytes that came out */
    z_stream z;
    int made;  /* 1: z needs inflateEnd */
    int ended; /* 1: the stream said that it is at its end */
    uint8_t input[INPUT_BYTES];
};

static void *take_memory(void *ctx, uInt count, uInt size)
{
    (void)ctx;
    return fb_calloc(count, size);
}

static void give_memory(void *ctx, void *block)
{
    (void)ctx;
    fb_free(block);
}

void fb_inflate_close(fb_inflate *stream)
{
    if (!stream) return;
    if (stream->made) (void)inflateEnd(&stream->z);
    fb_free(stream);
}

fb_status fb_inflate_open(fb_inflate **out, fb_ckpt_file *file, uint64_t offset, uint64_t stored_bytes, uint64_t bytes,
                          fb_error *err)
{
    fb_inflate *stream;
    *out = NULL;
    if (bytes > RATIO_FROM && bytes / RATIO_MAX > stored_bytes) {
        return fb_fail(err, FB_E_LIMIT,
                       "inflate %s at offset %llu: %llu bytes are said to grow to %llu, more than %d times as many", file->path,
                       (unsigned long long)offset, (unsigned long long)stored_bytes, (unsigned long long)bytes, RATIO_MAX);
    }
    stream = fb_calloc(1, sizeof *stream);
    if (!stream) return fb_fail(err, FB_E_NOMEM, "inflate %s: no memory for %zu bytes", file->path, sizeof *stream);
    stream->file = file;
    stream->offset = offset;
    stream->stored_bytes = stored_bytes;
    stream->bytes = bytes;
    stream->z.zalloc = take_memory;
    stream->z.zfree = give_memory;
    if (inflateInit2(&stream->z, -MAX_WBITS) != Z_OK) { /* negative: raw, without a wrapper */
        fb_inflate_close(stream);
        return fb_fail(err, FB_E_NOMEM, "inflate %s: no memory for the decoder", file->path);
    }
    stream->made = 1;
    *out = stream;
    return FB_OK;
}

fb_status fb_inflate_rewind(fb_inflate *stream, fb_error *err)
{
    if (inflateReset(&stream->z) != Z_OK)
        return fb_fail(err, FB_E_NOMEM, "inflate %s: the decoder cannot begin again", stream->file->path);
    stream->z.avail_in = 0;
    stream->fed = stream->out = 0;
    stream->ended = 0;
    return FB_OK;
}

static fb_status refuse(const fb_inflate *stream, const char *why, fb_error *err)
{
    return fb_fail_at(err, stream->offset + stream->fed - stream->z.avail_in, "inflate %s: %s after %llu of %llu bytes",
                      stream->file->path, why, (unsigned long long)stream->out, (unsigned long long)stream->bytes);
}

static fb_status feed(fb_inflate *stream, fb_error *err)
{
    uint64_t left = stream->stored_bytes - stream->fed;
    size_t load = left < INPUT_BYTES ? (size_t)left : INPUT_BYTES;
    fb_status status;
    if (stream->z.avail_in > 0 || load == 0) return FB_OK;
    status = fb_ckpt_file_read(stream->file, stream->offset + stream->fed, stream->input, load, err);
    if (status != FB_OK) return status;
    stream->z.next_in = stream->input;
    stream->z.avail_in = (uInt)load;
    stream->fed += load;
    return FB_OK;
}

/* One call of zlib into [data, data + room). *got: bytes that came out. */
static fb_status turn(fb_inflate *stream, uint8_t *data, size_t room, size_t *got, fb_error *err)
{
    fb_status status = feed(stream, err);
    size_t step = room < (1u << 30) ? room : 1u << 30;
    int said;
    *got = 0;
    if (status != FB_OK) return status;
    stream->z.next_out = data;
    stream->z.avail_out = (uInt)step;
    said = inflate(&stream->z, Z_NO_FLUSH);
    *got = step - stream->z.avail_out;
    if (said == Z_STREAM_END) {
        stream->ended = 1;
        return FB_OK;
    }
    if (said == Z_MEM_ERROR) return fb_fail(err, FB_E_NOMEM, "inflate %s: no memory for the decoder's window", stream->file->path);
    if (said == Z_BUF_ERROR) return refuse(stream, "the compressed data ends", err); /* no input is left, and nothing moved */
    if (said != Z_OK) return refuse(stream, "the compressed data is damaged", err);
    return FB_OK;
}

/* Everything is out: the stream must say so itself, and have used all of its bytes. */
static fb_status check_end(fb_inflate *stream, fb_error *err)
{
    uint8_t beyond;
    size_t got = 0;
    fb_status status = FB_OK;
    while (status == FB_OK && !stream->ended && got == 0) status = turn(stream, &beyond, 1, &got, err);
    if (status != FB_OK) return status;
    if (got > 0) return refuse(stream, "the compressed data goes on", err);
    if (stream->z.avail_in > 0 || stream->fed < stream->stored_bytes)
        return refuse(stream, "bytes follow the compressed data", err);
    return FB_OK;
}

fb_status fb_inflate_read(fb_inflate *stream, void *data, size_t room, size_t *got, fb_error *err)
{
    uint64_t left = stream->bytes - stream->out;
    uint8_t *to = data;
    *got = 0;
    if (left == 0) return check_end(stream, err);
    if (room > left) room = (size_t)left;
    while (*got < room) {
        size_t step;
        fb_status status;
        if (stream->ended) return refuse(stream, "the compressed data ends", err);
        status = turn(stream, to + *got, room - *got, &step, err);
        if (status != FB_OK) return status;
        *got += step;
        stream->out += step;
    }
    return stream->out == stream->bytes ? check_end(stream, err) : FB_OK;
}
