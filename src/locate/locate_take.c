/* The values of a file that is not trusted, one by one. */
#include "locate/locate_take.h"

#include <string.h>

#include "base/alloc.h"
#include "locate/cause_inside.h"

fb_status fb_locate_take_wrong(fb_reading *r, const fb_json_token *token, const char *key, const char *expected)
{
    return fb_fail_at(r->err, token->offset, "locate.json: \"%s\" is not %s", key, expected);
}

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

/* A text, cut to its room at a character; null gives "". */
fb_status fb_locate_take_copy(fb_reading *r, const fb_json_token *token, char *out, size_t room)
{
    char *whole = fb_calloc(token->text_bytes + 1, 1);
    fb_status status;
    if (!whole) return fb_fail(r->err, FB_E_NOMEM, "read locate.json: no memory for a text of %zu bytes", token->text_bytes);
    status = fb_json_decode(token, whole, token->text_bytes + 1, NULL, r->err);
    out[0] = '\0';
    if (status == FB_OK) fb_say(out, room, "%s", whole);
    fb_free(whole);
    return status;
}

fb_status fb_locate_take_text(fb_reading *r, const char *key, char *out, size_t room)
{
    fb_json_token token;
    fb_status status = fb_json_next(&r->json, &token, r->err);
    if (status != FB_OK) return status;
    if (token.type == FB_JSON_NULL) {
        out[0] = '\0';
        return FB_OK;
    }
    if (token.type != FB_JSON_STRING) return fb_locate_take_wrong(r, &token, key, "a text");
    return fb_locate_take_copy(r, &token, out, room);
}

/* null leaves `otherwise`. */
fb_status fb_locate_take_integer(fb_reading *r, const char *key, int64_t low, int64_t high, int64_t otherwise, int64_t *out)
{
    fb_json_token token;
    fb_status status = fb_json_next(&r->json, &token, r->err);
    if (status != FB_OK) return status;
    *out = otherwise;
    if (token.type == FB_JSON_NULL) return FB_OK;
    if (token.type != FB_JSON_INT || token.i < low || token.i > high)
        return fb_locate_take_wrong(r, &token, key, "an integer of its range");
    *out = token.i;
    return FB_OK;
}

fb_status fb_locate_take_int32(fb_reading *r, const char *key, int32_t low, int32_t otherwise, int32_t *out)
{
    int64_t value = otherwise;
    fb_status status = fb_locate_take_integer(r, key, low, INT32_MAX, otherwise, &value);
    *out = (int32_t)value;
    return status;
}

fb_status fb_locate_take_count(fb_reading *r, const char *key, uint32_t *out)
{
    int64_t value = 0;
    fb_status status = fb_locate_take_integer(r, key, 0, UINT32_MAX, 0, &value);
    *out = (uint32_t)value;
    return status;
}

fb_status fb_locate_take_bool(fb_reading *r, const char *key, int32_t otherwise, int32_t *out)
{
    fb_json_token token;
    fb_status status = fb_json_next(&r->json, &token, r->err);
    if (status != FB_OK) return status;
    *out = otherwise;
    if (token.type == FB_JSON_NULL) return FB_OK;
    if (token.type != FB_JSON_BOOL) return fb_locate_take_wrong(r, &token, key, "true or false");
    *out = (int32_t)token.i;
    return FB_OK;
}

/* A number, or the text of one that is not finite. */
fb_status fb_locate_take_number(fb_reading *r, const char *key, double *out, int32_t *known)
{
    static const struct {
        const char *text;
        uint64_t bits;
    } words[] = {
        {"nan", UINT64_C(0x7ff8000000000000)}, {"inf", UINT64_C(0x7ff0000000000000)}, {"-inf", UINT64_C(0xfff0000000000000)}};
    fb_json_token token;
    fb_status status = fb_json_next(&r->json, &token, r->err);
    if (status != FB_OK) return status;
    *known = token.type != FB_JSON_NULL;
    if (token.type == FB_JSON_NULL) return FB_OK;
    if (token.type == FB_JSON_INT || token.type == FB_JSON_UINT || token.type == FB_JSON_DOUBLE) {
        *out = token.d;
        return FB_OK;
    }
    for (size_t i = 0; token.type == FB_JSON_STRING && i < sizeof words / sizeof *words; i++) {
        if (!fb_json_is(&token, words[i].text)) continue;
        memcpy(out, &words[i].bits, sizeof *out);
        return FB_OK;
    }
    return fb_locate_take_wrong(r, &token, key, "a number");
}

/* A name out of a list of names; one that is not in it is `otherwise`. */
fb_status fb_locate_take_name(fb_reading *r, const char *key, fb_name_fn name_of, int32_t first, int32_t last, int32_t otherwise,
                              int32_t *out)
{
    char text[FB_TAKE_KEY_MAX];
    fb_status status = fb_locate_take_text(r, key, text, sizeof text);
    *out = otherwise;
    for (int32_t i = first; status == FB_OK && i <= last; i++) {
        const char *name = name_of(i);
        if (name && strcmp(name, text) == 0) *out = i;
    }
    return status;
}

/* ---- objects and arrays ------------------------------------------------------------------------------------------------------ */

fb_status fb_locate_take_members(fb_reading *r, fb_member_fn member, void *of)
{
    fb_json_token token;
    char key[FB_TAKE_KEY_MAX];
    for (;;) {
        int known = 0;
        fb_status status = fb_json_next(&r->json, &token, r->err);
        if (status != FB_OK || token.type == FB_JSON_OBJECT_END) return status;
        if (fb_json_decode(&token, key, sizeof key, NULL, NULL) == FB_OK) {
            if ((status = member(r, key, of, &known)) != FB_OK) return status;
        }
        if (!known && (status = fb_json_skip(&r->json, r->err)) != FB_OK) return status;
    }
}

/* An object, or null, which leaves everything as it is; *there says which. */
fb_status fb_locate_take_object(fb_reading *r, const char *key, fb_member_fn member, void *of, int32_t *there)
{
    fb_json_token token;
    fb_status status = fb_json_next(&r->json, &token, r->err);
    if (status != FB_OK) return status;
    *there = token.type != FB_JSON_NULL;
    if (token.type == FB_JSON_NULL) return FB_OK;
    if (token.type != FB_JSON_OBJECT) return fb_locate_take_wrong(r, &token, key, "an object");
    return fb_locate_take_members(r, member, of);
}

/* Opens an array, or finds null: *there says which. Then each call of next_item gives one token until the end. */
fb_status fb_locate_take_list(fb_reading *r, const char *key, int *there)
{
    fb_json_token token;
    fb_status status = fb_json_next(&r->json, &token, r->err);
    if (status != FB_OK) return status;
    *there = token.type == FB_JSON_ARRAY;
    if (token.type != FB_JSON_ARRAY && token.type != FB_JSON_NULL) return fb_locate_take_wrong(r, &token, key, "a list");
    return FB_OK;
}

fb_status fb_locate_take_item(fb_reading *r, fb_json_token *token, int *there)
{
    fb_status status = fb_json_next(&r->json, token, r->err);
    *there = status == FB_OK && token->type != FB_JSON_ARRAY_END;
    return status;
}

/* Room for one more in a list that doubles; NULL without memory. */
void *fb_locate_take_room(void *items, uint32_t count, size_t size)
{
    if (count == 0) {
        fb_free(items);
        return fb_calloc(1, size);
    }
    return (count & (count - 1)) == 0 ? fb_realloc(items, 2 * (size_t)count * size) : items;
}

fb_status fb_locate_take_no_memory(fb_reading *r)
{
    return fb_fail(r->err, FB_E_NOMEM, "read locate.json: no memory for one of its lists");
}

fb_status fb_locate_take_integers(fb_reading *r, const char *key, int64_t *out, int32_t room, int32_t *count)
{
    fb_json_token token;
    int there;
    fb_status status = fb_locate_take_list(r, key, &there);
    *count = 0;
    while (status == FB_OK && there) {
        if ((status = fb_locate_take_item(r, &token, &there)) != FB_OK || !there) break;
        if (token.type != FB_JSON_INT || *count == room) return fb_locate_take_wrong(r, &token, key, "a short list of integers");
        out[(*count)++] = token.i;
    }
    return status;
}

fb_status fb_locate_take_uint64(fb_reading *r, const char *key, uint64_t *out)
{
    int64_t value = 0;
    fb_status status = fb_locate_take_integer(r, key, 0, INT64_MAX, 0, &value);
    *out = (uint64_t)value;
    return status;
}

fb_status fb_locate_take_hash(fb_reading *r, const char *key, uint64_t *out)
{
    char text[24] = "";
    fb_status status = fb_locate_take_text(r, key, text, sizeof text);
    *out = 0;
    if (status != FB_OK || !text[0]) return status;
    if (strncmp(text, "0x", 2) != 0 || strlen(text) > 18)
        return fb_locate_take_wrong(r, &(fb_json_token){.offset = r->json.at}, key, "a hash");
    for (const char *c = text + 2; *c; c++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, *c);
        if (!digit) return fb_locate_take_wrong(r, &(fb_json_token){.offset = r->json.at}, key, "a hash");
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return FB_OK;
}
