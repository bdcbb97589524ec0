#include "bundle/take.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fb_take_begin(fb_take *take, const char *text, size_t bytes, const char *path, fb_pool *pool, fb_error *err)
{
    memset(take, 0, sizeof *take);
    take->path = path;
    take->pool = pool;
    take->err = err;
    fb_json_read(&take->reader, text, bytes);
}

void fb_take_refuse(fb_take *take, const char *format, ...)
{
    char text[512];
    va_list list;
    if (take->status != FB_OK) return;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    take->status = fb_fail_at(take->err, take->token.offset, "read %s: %s", take->path, text);
}

/* The next token, or one of type FB_JSON_END after an error. */
static const fb_json_token *next(fb_take *take)
{
    static const fb_json_token none;
    fb_error inner;
    if (take->status != FB_OK) return &none;
    if (take->held) {
        take->held = 0;
        return &take->token;
    }
    fb_error_clear(&inner);
    take->status = fb_json_next(&take->reader, &take->token, &inner);
    if (take->status == FB_OK) return &take->token;
    take->token.offset = inner.offset_bytes;
    take->status = FB_OK;
    fb_take_refuse(take, "%s", inner.message);
    return &none;
}

static const fb_json_token *expect(fb_take *take, int32_t type, const char *what)
{
    const fb_json_token *token = next(take);
    if (take->status == FB_OK && token->type != type) fb_take_refuse(take, "%s must stand there", what);
    return token;
}

fb_status fb_take_end(fb_take *take)
{
    (void)expect(take, FB_JSON_END, "nothing more");
    return take->status;
}

void fb_take_object(fb_take *take)
{
    (void)expect(take, FB_JSON_OBJECT, "an object");
}

void fb_take_array(fb_take *take)
{
    (void)expect(take, FB_JSON_ARRAY, "a list");
}

const char *fb_take_text(fb_take *take)
{
    const fb_json_token *token = expect(take, FB_JSON_STRING, "a text");
    size_t bytes = 0;
    char *text;
    if (take->status != FB_OK) return "";
    text = fb_pool_take(take->pool, token->text_bytes + 1); /* decoding makes no text longer */
    if (!text) {
        take->status = fb_fail(take->err, FB_E_NOMEM, "read %s: no memory for a text of %zu bytes", take->path, token->text_bytes);
        return "";
    }
    if (fb_json_decode(token, text, token->text_bytes + 1, &bytes, NULL) != FB_OK || bytes != strlen(text)) {
        fb_take_refuse(take, "a text holds a NUL character");
        return "";
    }
    return text;
}

int64_t fb_take_int(fb_take *take, int64_t low, int64_t high)
{
    const fb_json_token *token = expect(take, FB_JSON_INT, "an integer");
    if (take->status != FB_OK) return low;
    if (token->i < low || token->i > high) {
        fb_take_refuse(take, "%lld must lie in %lld .. %lld", (long long)token->i, (long long)low, (long long)high);
        return low;
    }
    return token->i;
}

uint64_t fb_take_size(fb_take *take)
{
    return (uint64_t)fb_take_int(take, 0, INT64_MAX);
}

uint64_t fb_take_hex(fb_take *take)
{
    const fb_json_token *token = expect(take, FB_JSON_STRING, "a hexadecimal number");
    uint64_t bits = 0;
    if (take->status != FB_OK) return 0;
    if (token->text_bytes != 18 || memcmp(token->text, "0x", 2) != 0) fb_take_refuse(take, "0x and 16 digits must stand there");
    for (size_t i = 2; i < 18 && take->status == FB_OK; i++) {
        char c = token->text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) fb_take_refuse(take, "a digit of a hexadecimal number must be 0-9 or a-f");
        else bits = bits << 4 | (uint64_t)digit;
    }
    return take->status == FB_OK ? bits : 0;
}

int32_t fb_take_bool(fb_take *take)
{
    const fb_json_token *token = expect(take, FB_JSON_BOOL, "true or false");
    return take->status == FB_OK && token->i != 0;
}

void fb_take_skip(fb_take *take)
{
    const fb_json_token *token = next(take);
    uint32_t outside = token->depth;
    if (take->status != FB_OK) return;
    if (token->type == FB_JSON_OBJECT || token->type == FB_JSON_ARRAY) {
        do {
            token = next(take);
        } while (take->status == FB_OK &&
                 !((token->type == FB_JSON_OBJECT_END || token->type == FB_JSON_ARRAY_END) && token->depth == outside));
    }
}

int fb_take_member(fb_take *take)
{
    const fb_json_token *token = next(take);
    return take->status == FB_OK && token->type == FB_JSON_KEY;
}

int fb_take_item(fb_take *take)
{
    const fb_json_token *token = next(take);
    if (take->status != FB_OK || token->type == FB_JSON_ARRAY_END) return 0;
    take->held = 1;
    return 1;
}

int fb_take_null(fb_take *take)
{
    const fb_json_token *token = next(take);
    if (take->status != FB_OK || token->type == FB_JSON_NULL) return 1;
    take->held = 1;
    return 0;
}

int fb_take_key(fb_take *take, const char *const *names, uint32_t *seen)
{
    for (int i = 0; names[i]; i++) {
        if (!fb_json_is(&take->token, names[i])) continue;
        if (*seen & 1u << i) fb_take_refuse(take, "\"%s\" stands there twice", names[i]);
        *seen |= 1u << i;
        return i;
    }
    return -1;
}

void fb_take_need(fb_take *take, const char *const *names, uint32_t seen, uint32_t needed)
{
    for (int i = 0; names[i]; i++) {
        if ((needed & 1u << i) && !(seen & 1u << i)) fb_take_refuse(take, "\"%s\" is missing", names[i]);
    }
}
