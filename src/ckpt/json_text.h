/*
 * JSON inside a checkpoint file: errors that name the place in the file, and texts that are decoded where they stand, so that a
 * header of a hundred megabytes needs no second copy of its names.
 */
#ifndef FB_CKPT_JSON_TEXT_H
#define FB_CKPT_JSON_TEXT_H

#include "base/json_read.h"
#include "base/status.h"

enum { FB_CKPT_TEXT_MAX = 4096 }; /* bytes of one decoded text */

typedef struct fb_ckpt_json {
    const char *what, *path; /* "safetensors", "a/b.safetensors": for messages */
    char *text;              /* writable, of the caller, with one byte more than `bytes` */
    size_t bytes;
    uint64_t base; /* offset of the text in the file */
    fb_json_reader reader;
} fb_ckpt_json;

void fb_ckpt_json_begin(fb_ckpt_json *json, const char *what, const char *path, char *text, size_t bytes, uint64_t base);
fb_status fb_ckpt_json_next(fb_ckpt_json *json, fb_json_token *token, fb_error *err);
/* Pass over the value that comes next. */
fb_status fb_ckpt_json_skip(fb_ckpt_json *json, fb_error *err);
/*
 * Decode a key or string in place and end it with a NUL: at most its closing quote is overwritten, which the reader has passed.
 * place  out: where in `text` it begins. Errors: FB_E_LIMIT, and FB_E_CORRUPT for control characters, which no honest name holds
 * and which would reach somebody's terminal.
 */
fb_status fb_ckpt_json_keep(fb_ckpt_json *json, const fb_json_token *token, uint32_t *place, fb_error *err);

/* A refusal at a token of this text; fb_ckpt_limit turns the one just made into FB_E_LIMIT. */
#define FB_CKPT_REFUSE(json, token, err, ...) fb_fail_at(err, (json)->base + (token)->offset, __VA_ARGS__)
fb_status fb_ckpt_limit(fb_error *err);

#endif
