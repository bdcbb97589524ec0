/*
 * One description of a byte layout that both writes and reads it, so that an encoder and its decoder cannot drift apart. Bytes are
 * little-endian whatever the machine. Errors are sticky: after the first field that does not fit, nothing is written or read.
 */
#ifndef FB_BASE_CODEC_H
#define FB_BASE_CODEC_H

#include <stddef.h>
#include <stdint.h>

typedef struct fb_codec {
    uint8_t *out;      /* writing: where to; NULL: reading */
    const uint8_t *in; /* reading: where from */
    size_t used, room;
    int failed; /* a field did not fit */
} fb_codec;

void fb_codec_write(fb_codec *codec, uint8_t *out, size_t room);
void fb_codec_read(fb_codec *codec, const uint8_t *in, size_t bytes);

/* Each writes *value, or reads into it; on a failed codec *value is left as it is. */
void fb_codec_u8(fb_codec *codec, uint8_t *value);
void fb_codec_u16(fb_codec *codec, uint16_t *value);
void fb_codec_u32(fb_codec *codec, uint32_t *value);
void fb_codec_i32(fb_codec *codec, int32_t *value);
void fb_codec_u64(fb_codec *codec, uint64_t *value);
void fb_codec_i64(fb_codec *codec, int64_t *value);
/* The bits of the number travel, so a signalling NaN arrives as it left. */
void fb_codec_f64(fb_codec *codec, double *value);
/* u16 length and that many bytes; reading points into the input. Text longer than `max` is cut on writing, refused on reading. */
void fb_codec_text(fb_codec *codec, const char **data, uint32_t *bytes, uint32_t max);

#endif
