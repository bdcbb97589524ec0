/*
 * A bounded pull reader of strict JSON (RFC 8259) over bytes in memory. It takes no memory, looks at every byte once, and never
 * trusts a length in the input, so a header of 100 MB costs one pass. The caller asks for one token after the other:
 *     fb_json_read(&r, bytes, n);
 *     while ((status = fb_json_next(&r, &token, err)) == FB_OK && token.type != FB_JSON_END) ...
 * Refused, each with FB_E_CORRUPT and its offset: anything but one value, NaN and Infinity, numbers that do not fit a double,
 * leading zeros, trailing commas, comments, control characters in strings, bytes that are not UTF-8, lone surrogates, a byte order
 * mark.
 * FB_E_LIMIT: deeper than FB_JSON_READ_DEPTH_MAX, a number of more than FB_JSON_NUMBER_BYTES_MAX bytes.
 * Duplicate keys are handed out as they come; what they mean is the caller's business.
 */
#ifndef FB_BASE_JSON_READ_H
#define FB_BASE_JSON_READ_H

#include <stddef.h>

#include "firstbad/firstbad.h"

enum { FB_JSON_READ_DEPTH_MAX = 64, FB_JSON_NUMBER_BYTES_MAX = 1024 };

enum {
    FB_JSON_END = 0,    /* the one value is complete and nothing follows */
    FB_JSON_OBJECT = 1, /* { */
    FB_JSON_OBJECT_END = 2,
    FB_JSON_ARRAY = 3, /* [ */
    FB_JSON_ARRAY_END = 4,
    FB_JSON_KEY = 5,    /* text */
    FB_JSON_STRING = 6, /* text */
    FB_JSON_INT = 7,    /* i, and d as the nearest double */
    FB_JSON_UINT = 8,   /* u: only above INT64_MAX; and d */
    FB_JSON_DOUBLE = 9, /* d: with a fraction or exponent, or an integer beyond 64 bits; "-0" too */
    FB_JSON_BOOL = 10,  /* i: 0 or 1 */
    FB_JSON_NULL = 11
};

typedef struct fb_json_token {
    int32_t type;
    uint32_t depth;   /* objects and arrays around it; that of a bracket is the depth outside it */
    uint64_t offset;  /* of its first byte */
    const char *text; /* key or string: what stands between the quotes, checked, escapes not yet decoded; points into the input */
    size_t text_bytes;
    int has_escapes;
    int64_t i;
    uint64_t u;
    double d;
} fb_json_token;

/* Held by the caller; the fields are the reader's own. */
typedef struct fb_json_reader {
    const char *data;
    size_t bytes, at;
    uint32_t depth;
    int32_t expect;
    fb_status status;                            /* the first error sticks */
    unsigned char stack[FB_JSON_READ_DEPTH_MAX]; /* 1: object, 0: array */
} fb_json_reader;

/* data: borrowed until the last token was used; may be NULL when bytes is 0. */
void fb_json_read(fb_json_reader *reader, const void *data, size_t bytes);
fb_status fb_json_next(fb_json_reader *reader, fb_json_token *token, fb_error *err);
/* Pass over the value that comes next, whole, checking it as fb_json_next would: for a value whose key is not of interest. */
fb_status fb_json_skip(fb_json_reader *reader, fb_error *err);
/* As fb_json_skip, when `token` has been taken already and may have opened an object or array. */
fb_status fb_json_skip_rest(fb_json_reader *reader, const fb_json_token *token, fb_error *err);

/**
 * Decode a key or string into `out`, NUL-terminated. *bytes (may be NULL) gets the decoded length, which may count NUL characters.
 * Errors: FB_E_USAGE for another token; FB_E_LIMIT when room is too small, and then out is "" (if room is above 0).
 */
fb_status fb_json_decode(const fb_json_token *token, char *out, size_t room, size_t *bytes, fb_error *err);
/* 1 when a key or string decodes to exactly this text. */
int fb_json_is(const fb_json_token *token, const char *text);

#endif
