#include "base/json_read.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* What may come next. */
enum {
    EXPECT_VALUE = 0,
    EXPECT_VALUE_OR_END, /* right after [ */
    EXPECT_KEY_OR_END,   /* right after { */
    EXPECT_KEY,          /* after a comma in an object */
    EXPECT_MORE,         /* comma or closing bracket */
    EXPECT_NOTHING       /* the value is complete */
};

void fb_json_read(fb_json_reader *reader, const void *data, size_t bytes)
{
    memset(reader, 0, sizeof *reader);
    reader->data = data;
    reader->bytes = bytes;
}

static fb_status corrupt(fb_json_reader *reader, fb_error *err, size_t offset, const char *what)
{
    reader->status = FB_E_CORRUPT;
    return fb_fail_at(err, offset, "read JSON: %s", what);
}

static fb_status too_much(fb_json_reader *reader, fb_error *err, size_t offset, const char *what)
{
    reader->status = FB_E_LIMIT;
    (void)fb_fail_at(err, offset, "read JSON: %s", what);
    if (err) err->code = FB_E_LIMIT;
    return FB_E_LIMIT;
}

static void skip_space(fb_json_reader *reader)
{
    while (reader->at < reader->bytes) {
        char c = reader->data[reader->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
        reader->at++;
    }
}

/* ---- strings ------------------------------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The four digits after \u, or -1. */
static int32_t hex4(const char *s, size_t n)
{
    int32_t code = 0;
    size_t i;
    if (n < 4) return -1;
    for (i = 0; i < 4; i++) {
        int digit = hex_digit(s[i]);
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Length of the escape that starts at the backslash, its character in *code; 0 if it is none. A surrogate pair is one escape. */
static size_t read_escape(const char *s, size_t n, uint32_t *code)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found;
    int32_t first, second;
    if (n < 2) return 0;
    if (s[1] != 'u') {
        found = s[1] ? strchr(letters, s[1]) : NULL;
        if (!found) return 0;
        *code = (uint32_t)(unsigned char)meant[found - letters];
        return 2;
    }
    first = hex4(s + 2, n - 2);
    if (first < 0 || (first >= 0xdc00 && first <= 0xdfff)) return 0;
    if (first < 0xd800 || first > 0xdbff) {
        *code = (uint32_t)first;
        return 6;
    }
    if (n < 12 || s[6] != '\\' || s[7] != 'u') return 0;
    second = hex4(s + 8, n - 8);
    if (second < 0xdc00 || second > 0xdfff) return 0;
    *code = 0x10000u + (((uint32_t)first - 0xd800u) << 10) + ((uint32_t)second - 0xdc00u);
    return 12;
}

/* Length of the UTF-8 character of two or more bytes that starts here, or 0. Well-formed sequences: Unicode 15, table 3-7. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    size_t need, i;
    unsigned char low = 0x80, high = 0xbf;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) need = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef) need = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4) need = 4;
    else return 0;
    if (need > n) return 0;
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    if (s[1] < low || s[1] > high) return 0;
    for (i = 2; i < need; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    }
    return need;
}

/* From the opening quote; leaves `at` behind the closing one. */
static fb_status read_string(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    const char *s = reader->data;
    size_t at = reader->at + 1, length;
    uint32_t code;
    token->text = s + at;
    token->has_escapes = 0;
    while (at < reader->bytes) {
        unsigned char c = (unsigned char)s[at];
        if (c == '"') {
            token->text_bytes = (size_t)(s + at - token->text);
            reader->at = at + 1;
            return FB_OK;
        }
        if (c < 0x20) return corrupt(reader, err, at, "a control character in a string; it has to be escaped");
        if (c == '\\') {
            length = read_escape(s + at, reader->bytes - at, &code);
            if (!length) return corrupt(reader, err, at, "an escape that JSON does not have, or half of a surrogate pair");
            token->has_escapes = 1;
        } else if (c < 0x80) {
            length = 1;
        } else {
            length = utf8_length((const unsigned char *)s + at, reader->bytes - at);
            if (!length) return corrupt(reader, err, at, "bytes in a string that are not UTF-8");
        }
        at += length;
    }
    return corrupt(reader, err, reader->at, "a string without an end");
}

/* ---- numbers ------------------------------------------------------------------------------------------------------- */

typedef struct number_parts {
    int negative, is_integer;
    size_t digits, digits_end;     /* first digit; behind the last of the integer part */
    size_t fraction, fraction_end; /* equal when there is none */
    int64_t exponent;
} number_parts;

static int is_digit(const fb_json_reader *reader, size_t at)
{
    return at < reader->bytes && reader->data[at] >= '0' && reader->data[at] <= '9';
}

/* The grammar of a number. Returns the offset behind it; 0 when it is malformed (a number has at least one byte). */
static size_t scan_number(const fb_json_reader *reader, number_parts *parts)
{
    size_t at = reader->at;
    int negative_exponent = 0;
    memset(parts, 0, sizeof *parts);
    parts->is_integer = 1;
    if (reader->data[at] == '-') {
        parts->negative = 1;
        at++;
    }
    if (!is_digit(reader, at)) return 0;
    parts->digits = at;
    if (reader->data[at] == '0') at++;
    else
        while (is_digit(reader, at)) at++;
    parts->digits_end = parts->fraction = parts->fraction_end = at;
    if (is_digit(reader, at)) return 0; /* a leading zero */
    if (at < reader->bytes && reader->data[at] == '.') {
        parts->is_integer = 0;
        parts->fraction = ++at;
        while (is_digit(reader, at)) at++;
        parts->fraction_end = at;
        if (at == parts->fraction) return 0;
    }
    if (at < reader->bytes && (reader->data[at] == 'e' || reader->data[at] == 'E')) {
        parts->is_integer = 0;
        at++;
        if (at < reader->bytes && (reader->data[at] == '+' || reader->data[at] == '-')) {
            negative_exponent = reader->data[at++] == '-';
        }
        if (!is_digit(reader, at)) return 0;
        for (; is_digit(reader, at); at++) {
            if (parts->exponent < 1000000) parts->exponent = parts->exponent * 10 + (reader->data[at] - '0');
        }
        if (negative_exponent) parts->exponent = -parts->exponent;
    }
    return at;
}

/* The C library rounds correctly; written without a decimal point ("314e-2" for 3.14) its input means the same in every locale. */
static double to_double(const fb_json_reader *reader, const number_parts *parts)
{
    char text[FB_JSON_NUMBER_BYTES_MAX + 32];
    size_t n = 0;
    int64_t exponent = parts->exponent - (int64_t)(parts->fraction_end - parts->fraction);
    uint64_t magnitude = (uint64_t)(exponent < 0 ? -exponent : exponent);
    char reversed[24];
    size_t digits = 0;
    if (parts->negative) text[n++] = '-';
    memcpy(text + n, reader->data + parts->digits, parts->digits_end - parts->digits);
    n += parts->digits_end - parts->digits;
    memcpy(text + n, reader->data + parts->fraction, parts->fraction_end - parts->fraction);
    n += parts->fraction_end - parts->fraction;
    text[n++] = 'e';
    if (exponent < 0) text[n++] = '-';
    do {
        reversed[digits++] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude);
    while (digits) text[n++] = reversed[--digits];
    text[n] = '\0';
    return strtod(text, NULL);
}

/* 1 when the digits fit into 64 bits. */
static int to_uint(const fb_json_reader *reader, const number_parts *parts, uint64_t *value)
{
    size_t at;
    *value = 0;
    for (at = parts->digits; at < parts->digits_end; at++) {
        uint64_t digit = (uint64_t)(reader->data[at] - '0');
        if (*value > (UINT64_MAX - digit) / 10) return 0;
        *value = *value * 10 + digit;
    }
    return 1;
}

static int take_integer(fb_json_token *token, const number_parts *parts, uint64_t value)
{
    if (parts->negative) {
        if (value == 0 || value > (uint64_t)INT64_MAX + 1) return 0; /* "-0" keeps its sign as a double */
        token->i = (int64_t)(~value + 1);
        token->d = (double)token->i;
        token->type = FB_JSON_INT;
        return 1;
    }
    token->u = value;
    token->d = (double)value;
    if (value > INT64_MAX) {
        token->type = FB_JSON_UINT;
        return 1;
    }
    token->i = (int64_t)value;
    token->type = FB_JSON_INT;
    return 1;
}

static fb_status read_number(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    number_parts parts;
    uint64_t value, bits;
    size_t start = reader->at, end = scan_number(reader, &parts);
    if (!end) return corrupt(reader, err, start, "a number that JSON does not allow");
    if (end - start > FB_JSON_NUMBER_BYTES_MAX) return too_much(reader, err, start, "a number of more than 1,024 bytes");
    reader->at = end;
    if (parts.is_integer && to_uint(reader, &parts, &value) && take_integer(token, &parts, value)) return FB_OK;
    token->type = FB_JSON_DOUBLE;
    token->d = to_double(reader, &parts);
    memcpy(&bits, &token->d, sizeof bits);
    if ((bits & UINT64_C(0x7ff0000000000000)) == UINT64_C(0x7ff0000000000000)) {
        return corrupt(reader, err, start, "a number that is too large for a double");
    }
    return FB_OK;
}

/* ---- values -------------------------------------------------------------------------------------------------------- */

static fb_status read_word(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    static const struct {
        const char *word;
        size_t bytes;
        int32_t type;
        int value;
    } words[] = {{"true", 4, FB_JSON_BOOL, 1}, {"false", 5, FB_JSON_BOOL, 0}, {"null", 4, FB_JSON_NULL, 0}};
    size_t i, left = reader->bytes - reader->at;
    for (i = 0; i < sizeof words / sizeof *words; i++) {
        if (left < words[i].bytes || memcmp(reader->data + reader->at, words[i].word, words[i].bytes) != 0) continue;
        token->type = words[i].type;
        token->i = words[i].value;
        reader->at += words[i].bytes;
        return FB_OK;
    }
    return corrupt(reader, err, reader->at, "expected a value: an object, array, string, number, true, false or null");
}

static fb_status open_level(fb_json_reader *reader, fb_json_token *token, int is_object, fb_error *err)
{
    if (reader->depth == FB_JSON_READ_DEPTH_MAX) return too_much(reader, err, reader->at, "nested deeper than 64 levels");
    token->type = is_object ? FB_JSON_OBJECT : FB_JSON_ARRAY;
    reader->stack[reader->depth++] = (unsigned char)is_object;
    reader->at++;
    reader->expect = is_object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    return FB_OK;
}

static void value_done(fb_json_reader *reader)
{
    reader->expect = reader->depth ? EXPECT_MORE : EXPECT_NOTHING;
}

static fb_status close_level(fb_json_reader *reader, fb_json_token *token)
{
    reader->depth--;
    token->depth = reader->depth;
    token->type = reader->stack[reader->depth] ? FB_JSON_OBJECT_END : FB_JSON_ARRAY_END;
    reader->at++;
    value_done(reader);
    return FB_OK;
}

static fb_status read_value(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    fb_status status;
    char c = reader->data[reader->at];
    if (c == '{' || c == '[') return open_level(reader, token, c == '{', err);
    if (c == '"') {
        token->type = FB_JSON_STRING;
        status = read_string(reader, token, err);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        status = read_number(reader, token, err);
    } else {
        status = read_word(reader, token, err);
    }
    if (status == FB_OK) value_done(reader);
    return status;
}

static fb_status read_key(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    fb_status status;
    if (reader->data[reader->at] != '"') return corrupt(reader, err, reader->at, "expected a key in quotes");
    token->type = FB_JSON_KEY;
    if ((status = read_string(reader, token, err)) != FB_OK) return status;
    skip_space(reader);
    if (reader->at == reader->bytes || reader->data[reader->at] != ':') {
        return corrupt(reader, err, reader->at, "expected a colon after a key");
    }
    reader->at++;
    reader->expect = EXPECT_VALUE;
    return FB_OK;
}

/* A comma or the closing bracket; after a comma the next key or value is read at once. */
static fb_status read_more(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    int is_object = reader->stack[reader->depth - 1];
    char c = reader->data[reader->at];
    if (c == (is_object ? '}' : ']')) return close_level(reader, token);
    if (c != ',') return corrupt(reader, err, reader->at, "expected a comma or the end of the object or array");
    reader->at++;
    skip_space(reader);
    if (reader->at == reader->bytes) return corrupt(reader, err, reader->at, "the text ends after a comma");
    token->offset = reader->at;
    return is_object ? read_key(reader, token, err) : read_value(reader, token, err);
}

fb_status fb_json_next(fb_json_reader *reader, fb_json_token *token, fb_error *err)
{
    char c;
    memset(token, 0, sizeof *token);
    if (reader->status != FB_OK) return fb_fail(err, reader->status, "read JSON: an earlier error ended the reading");
    skip_space(reader);
    token->offset = reader->at;
    token->depth = reader->depth;
    if (reader->at == reader->bytes) {
        if (reader->expect == EXPECT_NOTHING) return FB_OK; /* FB_JSON_END is 0 */
        return corrupt(reader, err, reader->at, "the text ends too early");
    }
    c = reader->data[reader->at];
    switch (reader->expect) {
    case EXPECT_NOTHING: return corrupt(reader, err, reader->at, "something follows the value");
    case EXPECT_MORE: return read_more(reader, token, err);
    case EXPECT_KEY_OR_END: return c == '}' ? close_level(reader, token) : read_key(reader, token, err);
    case EXPECT_KEY: return read_key(reader, token, err);
    case EXPECT_VALUE_OR_END: return c == ']' ? close_level(reader, token) : read_value(reader, token, err);
    default: return read_value(reader, token, err);
    }
}

fb_status fb_json_skip_rest(fb_json_reader *reader, const fb_json_token *token, fb_error *err)
{
    fb_json_token inner;
    fb_status status;
    uint32_t outside = token->depth;
    if (token->type != FB_JSON_OBJECT && token->type != FB_JSON_ARRAY) return FB_OK;
    do {
        if ((status = fb_json_next(reader, &inner, err)) != FB_OK) return status;
    } while (!((inner.type == FB_JSON_OBJECT_END || inner.type == FB_JSON_ARRAY_END) && inner.depth == outside));
    return FB_OK;
}

fb_status fb_json_skip(fb_json_reader *reader, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    return status == FB_OK ? fb_json_skip_rest(reader, &token, err) : status;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------ */

static size_t put_utf8(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | (code >> 12));
        out[1] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (code >> 18));
    out[1] = (char)(0x80 | ((code >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((code >> 6) & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* One decoded character at *at; its bytes. The text was checked when the token was read. */
static size_t decode_one(const fb_json_token *token, size_t *at, char out[4])
{
    uint32_t code = 0;
    size_t length;
    if (token->text[*at] != '\\') {
        out[0] = token->text[(*at)++];
        return 1;
    }
    length = read_escape(token->text + *at, token->text_bytes - *at, &code);
    *at += length ? length : 1;
    return put_utf8(out, code);
}

static int is_text(const fb_json_token *token)
{
    return token->type == FB_JSON_KEY || token->type == FB_JSON_STRING;
}

fb_status fb_json_decode(const fb_json_token *token, char *out, size_t room, size_t *bytes, fb_error *err)
{
    size_t at = 0, used = 0, n;
    char one[4];
    if (bytes) *bytes = 0;
    if (room) out[0] = '\0';
    if (!is_text(token)) {
        return fb_fail(err, FB_E_USAGE, "decode JSON: the token at offset %llu is no string", (unsigned long long)token->offset);
    }
    while (at < token->text_bytes) {
        n = decode_one(token, &at, one);
        if (used + n >= room) goto no_room;
        memcpy(out + used, one, n);
        used += n;
    }
    if (used >= room) goto no_room;
    out[used] = '\0';
    if (bytes) *bytes = used;
    return FB_OK;
no_room:
    if (room) out[0] = '\0';
    return fb_fail(err, FB_E_LIMIT, "decode JSON: the string at offset %llu is longer than %zu bytes",
                   (unsigned long long)token->offset, room ? room - 1 : 0);
}

int fb_json_is(const fb_json_token *token, const char *text)
{
    size_t at = 0, n, left = strlen(text);
    char one[4];
    if (!is_text(token)) return 0;
    if (!token->has_escapes) return token->text_bytes == left && memcmp(token->text, text, left) == 0;
    while (at < token->text_bytes) {
        n = decode_one(token, &at, one);
        if (n > left || memcmp(one, text, n) != 0) return 0;
        text += n;
        left -= n;
    }
    return left == 0;
}
