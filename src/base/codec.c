#include "base/codec.h"

#include <string.h>

void fb_codec_write(fb_codec *codec, uint8_t *out, size_t room)
{
    memset(codec, 0, sizeof *codec);
    codec->out = out;
    codec->room = room;
}

void fb_codec_read(fb_codec *codec, const uint8_t *in, size_t bytes)
{
    memset(codec, 0, sizeof *codec);
    codec->in = in;
    codec->room = bytes;
}

/* An unsigned number of `width` bytes. */
static uint64_t number(fb_codec *codec, uint64_t value, unsigned width)
{
    uint64_t result = 0;
    if (codec->failed || codec->room - codec->used < width) {
        codec->failed = 1;
        return value;
    }
    for (unsigned i = 0; i < width; i++) {
        if (codec->out) codec->out[codec->used + i] = (uint8_t)(value >> (8 * i));
        else result |= (uint64_t)codec->in[codec->used + i] << (8 * i);
    }
    codec->used += width;
    return codec->out ? value : result;
}

void fb_codec_u8(fb_codec *codec, uint8_t *value)
{
    *value = (uint8_t)number(codec, *value, 1);
}

void fb_codec_u16(fb_codec *codec, uint16_t *value)
{
    *value = (uint16_t)number(codec, *value, 2);
}

void fb_codec_u32(fb_codec *codec, uint32_t *value)
{
    *value = (uint32_t)number(codec, *value, 4);
}

void fb_codec_i32(fb_codec *codec, int32_t *value)
{
    *value = (int32_t)(uint32_t)number(codec, (uint32_t)*value, 4);
}

void fb_codec_u64(fb_codec *codec, uint64_t *value)
{
    *value = number(codec, *value, 8);
}

void fb_codec_i64(fb_codec *codec, int64_t *value)
{
    *value = (int64_t)number(codec, (uint64_t)*value, 8);
}

void fb_codec_f64(fb_codec *codec, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    bits = number(codec, bits, 8);
    memcpy(value, &bits, sizeof bits);
}

void fb_codec_text(fb_codec *codec, const char **data, uint32_t *bytes, uint32_t max)
{
    uint16_t length = 0;
    if (codec->out) length = (uint16_t)(*bytes > max ? max : *bytes);
    fb_codec_u16(codec, &length);
    if (codec->failed) return;
    if (codec->room - codec->used < length || length > max) {
        codec->failed = 1;
        return;
    }
    if (codec->out) {
        if (length) memcpy(codec->out + codec->used, *data, length);
    } else {
        *data = (const char *)codec->in + codec->used;
        *bytes = length;
    }
    codec->used += length;
}
