/*
 * The JSON reader against any bytes. Three things must hold: it ends (every call but the last moves on, or stands at the end), what
 * it accepts can be decoded, written and read again to the same text, and skipping agrees with reading about what is legal.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int holds)
{
    if (!holds) abort();
}

static void write_text(fb_json *json, const fb_json_token *token, int is_key)
{
    size_t room = token->text_bytes + 1, n;
    char *text = malloc(room);
    require(text != NULL);
    require(fb_json_decode(token, text, room, &n, NULL) == FB_OK); /* no escape is shorter than what it stands for */
    if (is_key) {
        require(strlen(text) != n || fb_json_is(token, text));
        fb_json_key(json, text);
    } else {
        fb_json_string_bytes(json, text, n);
    }
    free(text);
}

static void write_token(fb_json *json, const fb_json_token *token)
{
    switch (token->type) {
    case FB_JSON_OBJECT: fb_json_object_begin(json); break;
    case FB_JSON_OBJECT_END: fb_json_object_end(json); break;
    case FB_JSON_ARRAY: fb_json_array_begin(json); break;
    case FB_JSON_ARRAY_END: fb_json_array_end(json); break;
    case FB_JSON_KEY: write_text(json, token, 1); break;
    case FB_JSON_STRING: write_text(json, token, 0); break;
    case FB_JSON_INT: fb_json_int(json, token->i); break;
    case FB_JSON_UINT: fb_json_uint(json, token->u); break;
    case FB_JSON_DOUBLE: fb_json_double(json, token->d); break;
    case FB_JSON_BOOL: fb_json_bool(json, (int)token->i); break;
    default: fb_json_null(json); break;
    }
}

/* Read and write again. The writer's text is the caller's to release. */
static fb_status copy(const void *data, size_t bytes, fb_json *json)
{
    fb_json_reader reader;
    fb_json_token token;
    fb_error err = {0};
    fb_status status;
    uint64_t tokens = 0;
    fb_json_init(json, 0);
    fb_json_read(&reader, data, bytes);
    for (;;) {
        status = fb_json_next(&reader, &token, &err);
        require(token.offset <= bytes && ++tokens <= bytes + 1);
        if (status != FB_OK || token.type == FB_JSON_END) break;
        write_token(json, &token);
    }
    if (status != FB_OK) require(err.code == status && err.offset_bytes <= bytes);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fb_json first, second;
    fb_json_reader reader;
    fb_status status = copy(data, bytes, &first), skipped;
    fb_json_token token;
    fb_json_read(&reader, data, bytes);
    skipped = fb_json_skip(&reader, NULL);
    if (skipped == FB_OK) skipped = fb_json_next(&reader, &token, NULL);
    require(skipped == status);
    if (status == FB_OK) {
        require(fb_json_finish(&first, NULL) == FB_OK);
        require(copy(fb_json_text(&first), first.used, &second) == FB_OK);
        require(second.used == first.used && memcmp(fb_json_text(&second), fb_json_text(&first), first.used) == 0);
        fb_json_release(&second);
    }
    fb_json_release(&first);
    return 0;
}
