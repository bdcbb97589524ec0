/*
 * A streaming JSON writer into memory: a fixed buffer of the caller (no allocation, for the path of a step) or one that grows.
 * Calling order: fb_json_init or fb_json_init_fixed; begin, key, value, end ...; fb_json_finish; fb_json_release.
 * Errors stick: after the first one every call does nothing, and fb_json_finish tells it. The bytes are the same under any locale.
 * Numbers: JSON has no NaN and no infinity. fb_json_double writes null for them; a caller that must keep the value writes its bits
 * or its name beside it.
 */
#ifndef FB_BASE_JSON_WRITE_H
#define FB_BASE_JSON_WRITE_H

#include <stddef.h>

#include "firstbad/firstbad.h"

enum { FB_JSON_DEPTH_MAX = 64 };

/* Held by the caller; the fields are the writer's own. */
typedef struct fb_json {
    char *data;
    size_t used, room; /* data[used] is 0 whenever room is above 0 */
    int grows, pretty;
    int done; /* the outermost value is complete */
    uint32_t depth;
    fb_status status;
    unsigned char stack[FB_JSON_DEPTH_MAX];
} fb_json;

/* pretty: 1 writes one member a line, indented by two spaces; 0 writes no white space at all (for JSON lines). */
void fb_json_init(fb_json *json, int pretty);
void fb_json_init_fixed(fb_json *json, char *buffer, size_t room, int pretty);
/* Forget the text and any error, keep the memory: for one document after the other. */
void fb_json_reset(fb_json *json);
void fb_json_release(fb_json *json);

void fb_json_object_begin(fb_json *json);
void fb_json_object_end(fb_json *json);
void fb_json_array_begin(fb_json *json);
void fb_json_array_end(fb_json *json);
/* The next call writes the value of this key. */
void fb_json_key(fb_json *json, const char *key);

/* NULL text is null. Bytes that are not UTF-8 become U+FFFD, one for each maximal part that could have begun a character. */
void fb_json_string(fb_json *json, const char *text);
void fb_json_string_bytes(fb_json *json, const char *text, size_t bytes);
/* "0x" and at least `digits` lower-case hexadecimal digits, as a string: for bits and hashes, which no double can carry. */
void fb_json_hex(fb_json *json, uint64_t bits, int digits);
void fb_json_int(fb_json *json, int64_t value);
void fb_json_uint(fb_json *json, uint64_t value);
/* Shortest decimal that reads back to the same bits; null when not finite. */
void fb_json_double(fb_json *json, double value);
/* As fb_json_double when `known` is not 0, else null. */
void fb_json_number_or_null(fb_json *json, double value, int known);
void fb_json_bool(fb_json *json, int value);
/* A value that is JSON already: the caller answers for it. */
void fb_json_raw(fb_json *json, const char *text, size_t bytes);
void fb_json_null(fb_json *json);

/* Key and value in one call. */
void fb_json_key_string(fb_json *json, const char *key, const char *text);
void fb_json_key_int(fb_json *json, const char *key, int64_t value);
void fb_json_key_uint(fb_json *json, const char *key, uint64_t value);
void fb_json_key_double(fb_json *json, const char *key, double value);
void fb_json_key_bool(fb_json *json, const char *key, int value);
void fb_json_key_null(fb_json *json, const char *key);
void fb_json_key_hex(fb_json *json, const char *key, uint64_t bits, int digits);

/* FB_OK when one complete value was written. Else FB_E_NOMEM, FB_E_LIMIT (buffer full, too deep) or FB_E_USAGE (order of calls). */
fb_status fb_json_finish(const fb_json *json, fb_error *err);
/* The text so far, NUL-terminated; "" when there is no memory at all. json->used is its length. */
const char *fb_json_text(const fb_json *json);

/* The decimal of a finite double as fb_json_double writes it, NUL-terminated; returns its length. out holds 32 bytes. */
enum { FB_JSON_DOUBLE_BYTES = 32 };
size_t fb_json_format_double(char out[FB_JSON_DOUBLE_BYTES], double value);
/* 1 when no bit pattern of a NaN or an infinity: by its exponent, so that no compiler flag can remove the question. */
int fb_json_is_number(double value);

#endif
