#include "ckpt/json_text.h"

#include <string.h>

void fb_ckpt_json_begin(fb_ckpt_json *json, const char *what, const char *path, char *text, size_t bytes, uint64_t base)
{
    memset(json, 0, sizeof *json);
    json->what = what;
    json->path = path;
    json->text = text;
    json->bytes = bytes;
    json->base = base;
    fb_json_read(&json->reader, text, bytes);
}

fb_status fb_ckpt_limit(fb_error *err)
{
    if (err) err->code = FB_E_LIMIT;
    return FB_E_LIMIT;
}

fb_status fb_ckpt_json_next(fb_ckpt_json *json, fb_json_token *token, fb_error *err)
{
    fb_error inner;
    char *place;
    fb_status status;
    fb_error_clear(&inner);
    status = fb_json_next(&json->reader, token, &inner);
    if (status == FB_OK) return FB_OK;
    /* The reader counts from its own begin; people look into the file. */
    place = strstr(inner.message, " (offset");
    if (place) *place = '\0';
    (void)fb_fail_at(err, json->base + inner.offset_bytes, "read %s %s: its text is no strict JSON: %s", json->what, json->path,
                     inner.message);
    return status == FB_E_LIMIT ? fb_ckpt_limit(err) : FB_E_CORRUPT;
}

fb_status fb_ckpt_json_skip(fb_ckpt_json *json, fb_error *err)
{
    fb_json_token token;
    uint32_t outside;
    fb_status status = fb_ckpt_json_next(json, &token, err);
    if (status != FB_OK || (token.type != FB_JSON_OBJECT && token.type != FB_JSON_ARRAY)) return status;
    outside = token.depth;
    do {
        if ((status = fb_ckpt_json_next(json, &token, err)) != FB_OK) return status;
    } while (!((token.type == FB_JSON_OBJECT_END || token.type == FB_JSON_ARRAY_END) && token.depth == outside));
    return FB_OK;
}

fb_status fb_ckpt_json_keep(fb_ckpt_json *json, const fb_json_token *token, uint32_t *place, fb_error *err)
{
    char text[FB_CKPT_TEXT_MAX + 1];
    size_t bytes = 0;
    if (fb_json_decode(token, text, sizeof text, &bytes, NULL) != FB_OK) {
        (void)FB_CKPT_REFUSE(json, token, err, "read %s %s: a text of more than %d bytes", json->what, json->path,
                             FB_CKPT_TEXT_MAX);
        return fb_ckpt_limit(err);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return FB_CKPT_REFUSE(json, token, err, "read %s %s: a text holds the control character 0x%02x", json->what, json->path,
                                  (unsigned)text[i]);
        }
    }
    *place = (uint32_t)(token->text - json->text);
    memcpy(json->text + *place, text, bytes + 1);
    return FB_OK;
}
