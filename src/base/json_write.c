#include "base/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* One byte of state for each open object or array. */
enum { IN_OBJECT = 1, HAS_MEMBER = 2, AFTER_KEY = 4 };

void fb_json_init(fb_json *json, int pretty)
{
    memset(json, 0, sizeof *json);
    json->grows = 1;
    json->pretty = pretty;
}

void fb_json_init_fixed(fb_json *json, char *buffer, size_t room, int pretty)
{
    memset(json, 0, sizeof *json);
    json->data = buffer;
    json->room = room;
    json->pretty = pretty;
    if (room) buffer[0] = '\0';
}

void fb_json_reset(fb_json *json)
{
    json->used = 0;
    json->done = 0;
    json->depth = 0;
    json->status = FB_OK;
    if (json->room) json->data[0] = '\0';
}

void fb_json_release(fb_json *json)
{
    if (json->grows) fb_free(json->data);
    memset(json, 0, sizeof *json);
}

static void fail(fb_json *json, fb_status status)
{
    if (json->status == FB_OK) json->status = status;
}

/* Make room for `more` bytes and the NUL behind them. */
static int reserve(fb_json *json, size_t more)
{
    size_t room = json->room ? json->room : 256;
    char *data;
    if (more < json->room - json->used) return 1;
    if (!json->grows) {
        fail(json, FB_E_LIMIT);
        return 0;
    }
    if (more > SIZE_MAX / 4 || json->used > SIZE_MAX / 4) {
        fail(json, FB_E_LIMIT);
        return 0;
    }
    while (room <= json->used + more) room *= 2;
    data = fb_realloc(json->data, room);
    if (!data) {
        fail(json, FB_E_NOMEM);
        return 0;
    }
    json->data = data;
    json->room = room;
    return 1;
}

static void put(fb_json *json, const char *bytes, size_t n)
{
    if (json->status != FB_OK || !reserve(json, n)) return;
    memcpy(json->data + json->used, bytes, n);
    json->used += n;
    json->data[json->used] = '\0';
}

static void put_line(fb_json *json)
{
    uint32_t i;
    if (!json->pretty) return;
    put(json, "\n", 1);
    for (i = 0; i < json->depth; i++) put(json, "  ", 2);
}

/* Whatever stands before a value: comma and line in an array, nothing after a key, nothing at the top. Returns 0 if misplaced. */
static int begin_value(fb_json *json)
{
    unsigned char *top;
    if (json->status != FB_OK) return 0;
    if (json->depth == 0) {
        if (json->done) fail(json, FB_E_USAGE);
        return json->status == FB_OK;
    }
    top = &json->stack[json->depth - 1];
    if (*top & IN_OBJECT) {
        if (!(*top & AFTER_KEY)) fail(json, FB_E_USAGE);
        *top = (unsigned char)(*top & ~AFTER_KEY);
        return json->status == FB_OK;
    }
    if (*top & HAS_MEMBER) put(json, ",", 1);
    *top |= HAS_MEMBER;
    put_line(json);
    return json->status == FB_OK;
}

static void end_value(fb_json *json)
{
    if (json->depth == 0) json->done = 1;
}

static void open_level(fb_json *json, const char *bracket, unsigned char state)
{
    if (!begin_value(json)) return;
    if (json->depth == FB_JSON_DEPTH_MAX) {
        fail(json, FB_E_LIMIT);
        return;
    }
    put(json, bracket, 1);
    json->stack[json->depth++] = state;
}

static void close_level(fb_json *json, const char *bracket, unsigned char state)
{
    unsigned char top;
    if (json->status != FB_OK) return;
    if (json->depth == 0) {
        fail(json, FB_E_USAGE);
        return;
    }
    top = json->stack[json->depth - 1];
    if ((top & IN_OBJECT) != state || (top & AFTER_KEY)) {
        fail(json, FB_E_USAGE);
        return;
    }
    json->depth--;
    if (top & HAS_MEMBER) put_line(json);
    put(json, bracket, 1);
    end_value(json);
}

void fb_json_object_begin(fb_json *json)
{
    open_level(json, "{", IN_OBJECT);
}

void fb_json_object_end(fb_json *json)
{
    close_level(json, "}", IN_OBJECT);
}

void fb_json_array_begin(fb_json *json)
{
    open_level(json, "[", 0);
}

void fb_json_array_end(fb_json *json)
{
    close_level(json, "]", 0);
}

/* Length of the UTF-8 character that starts here, 0 if none does; *bad: bytes that one U+FFFD stands for. Unicode 15, table 3-7. */
static size_t utf8_length(const unsigned char *s, size_t n, size_t *bad)
{
    size_t need, i;
    unsigned char low = 0x80, high = 0xbf;
    *bad = 1;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) need = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef) need = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4) need = 4;
    else return 0;
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    for (i = 1; i < need; i++) {
        if (i >= n || s[i] < low || s[i] > high) {
            *bad = i;
            return 0;
        }
        low = 0x80;
        high = 0xbf;
    }
    return need;
}

static void put_escaped(fb_json *json, unsigned char c)
{
    char text[8];
    switch (c) {
    case '"': put(json, "\\\"", 2); return;
    case '\\': put(json, "\\\\", 2); return;
    case '\n': put(json, "\\n", 2); return;
    case '\r': put(json, "\\r", 2); return;
    case '\t': put(json, "\\t", 2); return;
    default: break;
    }
    (void)snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    put(json, text, 6);
}

/* U+0080 to U+009F, which a terminal may take for commands; JSON allows them as they are. */
static int is_c1(const unsigned char *s)
{
    return s[0] == 0xc2 && s[1] < 0xa0;
}

static void put_quoted(fb_json *json, const char *text, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0, plain = 0; /* s[plain .. at) is copied as it is */
    put(json, "\"", 1);
    while (at < bytes && json->status == FB_OK) {
        size_t bad = 0, length;
        if (s[at] >= 0x20 && s[at] < 0x7f && s[at] != '"' && s[at] != '\\') {
            at++;
            continue;
        }
        length = s[at] >= 0x80 ? utf8_length(s + at, bytes - at, &bad) : 0;
        if (length > 0 && !is_c1(s + at)) {
            at += length;
            continue;
        }
        put(json, text + plain, at - plain);
        if (length > 0) {
            put_escaped(json, s[at + 1]);
            at += length;
        } else if (s[at] >= 0x80) {
            put(json, "\xef\xbf\xbd", 3);
            at += bad;
        } else {
            put_escaped(json, s[at++]);
        }
        plain = at;
    }
    if (at > plain) put(json, text + plain, at - plain);
    put(json, "\"", 1);
}

void fb_json_key(fb_json *json, const char *key)
{
    unsigned char *top;
    if (json->status != FB_OK) return;
    if (!key || json->depth == 0 || (json->stack[json->depth - 1] & (IN_OBJECT | AFTER_KEY)) != IN_OBJECT) {
        fail(json, FB_E_USAGE);
        return;
    }
    top = &json->stack[json->depth - 1];
    if (*top & HAS_MEMBER) put(json, ",", 1);
    put_line(json);
    put_quoted(json, key, strlen(key));
    put(json, json->pretty ? ": " : ":", json->pretty ? 2 : 1);
    *top |= HAS_MEMBER | AFTER_KEY;
}

void fb_json_string_bytes(fb_json *json, const char *text, size_t bytes)
{
    if (!begin_value(json)) return;
    put_quoted(json, text, bytes);
    end_value(json);
}

void fb_json_string(fb_json *json, const char *text)
{
    if (text) fb_json_string_bytes(json, text, strlen(text));
    else fb_json_null(json);
}

/* A value that is plain ASCII and needs no quotes. */
static void put_plain(fb_json *json, const char *text, size_t bytes)
{
    if (!begin_value(json)) return;
    put(json, text, bytes);
    end_value(json);
}

void fb_json_hex(fb_json *json, uint64_t bits, int digits)
{
    char text[40];
    int n = snprintf(text, sizeof text, "\"0x%0*" PRIx64 "\"", digits < 1 ? 1 : digits > 16 ? 16 : digits, bits);
    put_plain(json, text, n > 0 ? (size_t)n : 0);
}

void fb_json_raw(fb_json *json, const char *text, size_t bytes)
{
    put_plain(json, text, bytes);
}

void fb_json_int(fb_json *json, int64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRId64, value);
    put_plain(json, text, n > 0 ? (size_t)n : 0);
}

void fb_json_uint(fb_json *json, uint64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRIu64, value);
    put_plain(json, text, n > 0 ? (size_t)n : 0);
}

int fb_json_is_number(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & UINT64_C(0x7ff0000000000000)) != UINT64_C(0x7ff0000000000000);
}

static int reads_back(const char *text, uint64_t bits)
{
    double value = strtod(text, NULL);
    uint64_t got;
    memcpy(&got, &value, sizeof got);
    return got == bits;
}

/*
 * printf and strtod use the host's decimal point, which may be any bytes. Both see the same one here, so the search for the
 * shortest text works under every locale; what is not part of a number is then replaced by a point.
 */
size_t fb_json_format_double(char out[FB_JSON_DOUBLE_BYTES], double value)
{
    char text[64];
    size_t i, n = 0;
    uint64_t bits;
    int digits, foreign = 0;
    memcpy(&bits, &value, sizeof bits);
    if (bits == UINT64_C(0x8000000000000000)) {
        memcpy(out, "-0.0", 5); /* readers take "-0" for an integer and lose the sign */
        return 4;
    }
    /* 15 digits survive the way through a normal double, so when they read back, printf's trimmed text is the shortest. */
    digits = (bits & UINT64_C(0x7ff0000000000000)) ? 15 : 1;
    for (; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (reads_back(text, bits)) break;
    }
    for (i = 0; text[i] && n + 1 < FB_JSON_DOUBLE_BYTES; i++) {
        int is_number = (text[i] >= '0' && text[i] <= '9') || text[i] == '-' || text[i] == '+' || text[i] == 'e';
        if (is_number) out[n++] = text[i];
        else if (!foreign) out[n++] = '.';
        foreign = !is_number;
    }
    out[n] = '\0';
    return n;
}

void fb_json_double(fb_json *json, double value)
{
    char text[FB_JSON_DOUBLE_BYTES];
    if (!fb_json_is_number(value)) {
        fb_json_null(json);
        return;
    }
    put_plain(json, text, fb_json_format_double(text, value));
}

void fb_json_number_or_null(fb_json *json, double value, int known)
{
    if (known) fb_json_double(json, value);
    else fb_json_null(json);
}

void fb_json_bool(fb_json *json, int value)
{
    put_plain(json, value ? "true" : "false", value ? 4 : 5);
}

void fb_json_null(fb_json *json)
{
    put_plain(json, "null", 4);
}

void fb_json_key_string(fb_json *json, const char *key, const char *text)
{
    fb_json_key(json, key);
    fb_json_string(json, text);
}

void fb_json_key_int(fb_json *json, const char *key, int64_t value)
{
    fb_json_key(json, key);
    fb_json_int(json, value);
}

void fb_json_key_uint(fb_json *json, const char *key, uint64_t value)
{
    fb_json_key(json, key);
    fb_json_uint(json, value);
}

void fb_json_key_double(fb_json *json, const char *key, double value)
{
    fb_json_key(json, key);
    fb_json_double(json, value);
}

void fb_json_key_bool(fb_json *json, const char *key, int value)
{
    fb_json_key(json, key);
    fb_json_bool(json, value);
}

void fb_json_key_null(fb_json *json, const char *key)
{
    fb_json_key(json, key);
    fb_json_null(json);
}

void fb_json_key_hex(fb_json *json, const char *key, uint64_t bits, int digits)
{
    fb_json_key(json, key);
    fb_json_hex(json, bits, digits);
}

fb_status fb_json_finish(const fb_json *json, fb_error *err)
{
    switch (json->status) {
    case FB_OK: break;
    case FB_E_NOMEM: return fb_fail(err, FB_E_NOMEM, "write JSON: no memory after %zu bytes", json->used);
    case FB_E_LIMIT:
        return fb_fail(err, FB_E_LIMIT, "write JSON: the document does not fit into %zu bytes, or is nested deeper than %d levels",
                       json->room, (int)FB_JSON_DEPTH_MAX);
    default:
        return fb_fail(err, json->status, "write JSON: a key, value or end came where none belongs, after %zu bytes", json->used);
    }
    if (json->depth == 0 && json->done) return FB_OK;
    return fb_fail(err, FB_E_USAGE, "write JSON: %u levels are still open", (unsigned)json->depth);
}

const char *fb_json_text(const fb_json *json)
{
    return json->room ? json->data : "";
}
