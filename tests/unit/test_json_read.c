#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_read.h"
#include "base/json_write.h"

/* The text is copied into a block of its exact size, so that one byte read too far is seen by the address sanitizer. */
static fb_status read_all(const char *text, size_t bytes, fb_error *err, uint64_t *tokens)
{
    char *copy = malloc(bytes ? bytes : 1);
    fb_json_reader reader;
    fb_json_token token;
    fb_status status;
    memcpy(copy, text, bytes);
    fb_json_read(&reader, copy, bytes);
    *tokens = 0;
    while ((status = fb_json_next(&reader, &token, err)) == FB_OK && token.type != FB_JSON_END) ++*tokens;
    free(copy);
    return status;
}

static void accepts(const char *text)
{
    fb_error err = {0};
    uint64_t tokens;
    if (read_all(text, strlen(text), &err, &tokens) != FB_OK) fail_msg("refused %s: %s", text, err.message);
}

static void refuses_at(const char *text, uint64_t offset)
{
    fb_error err = {0};
    uint64_t tokens;
    if (read_all(text, strlen(text), &err, &tokens) != FB_E_CORRUPT) fail_msg("accepted %s", text);
    if (err.offset_bytes != offset) fail_msg("%s: offset %u, expected %u", text, (unsigned)err.offset_bytes, (unsigned)offset);
}

static void test_json_read__tokens_come_in_order(void **state)
{
    static const int32_t expected[] = {FB_JSON_OBJECT, FB_JSON_KEY,        FB_JSON_ARRAY,      FB_JSON_INT,  FB_JSON_DOUBLE,
                                       FB_JSON_NULL,   FB_JSON_ARRAY_END,  FB_JSON_KEY,        FB_JSON_BOOL, FB_JSON_KEY,
                                       FB_JSON_OBJECT, FB_JSON_OBJECT_END, FB_JSON_OBJECT_END, FB_JSON_END,  FB_JSON_END};
    const char *text = " { \"a\" : [ -7 , 2.5 , null ] , \"b\" : true , \"c\" : { } } ";
    fb_json_reader reader;
    fb_json_token token;
    size_t i;
    (void)state;
    fb_json_read(&reader, text, strlen(text));
    for (i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
        assert_int_equal(token.type, expected[i]);
        if (token.type == FB_JSON_INT) assert_int_equal(token.i, -7);
        if (token.type == FB_JSON_DOUBLE) assert_true(token.d >= 2.5 && token.d <= 2.5);
        if (token.type == FB_JSON_BOOL) assert_int_equal(token.i, 1);
        if (token.type == FB_JSON_ARRAY || token.type == FB_JSON_ARRAY_END) assert_int_equal(token.depth, 1);
    }
}

static void test_json_read__strict_grammar(void **state)
{
    static const char *const good[] = {"0",
                                       "-0",
                                       "1e5",
                                       "1E+5",
                                       "0.5e-3",
                                       "\"\"",
                                       "[]",
                                       "{}",
                                       "[[]]",
                                       "null",
                                       " true ",
                                       "\"\\ud83d\\ude00\"",
                                       "[1,2]",
                                       "{\"a\":1,\"a\":2}",
                                       "\"\xc3\xa9\"",
                                       "12345678901234567890123456789"};
    static const struct {
        const char *text;
        uint64_t offset;
    } bad[] = {{"", 0},
               {" ", 1},
               {"nul", 0},
               {"NaN", 0},
               {"[Infinity]", 1},
               {"-Infinity", 0},
               {"+1", 0},
               {"01", 0},
               {"1.", 0},
               {".5", 0},
               {"1e", 0},
               {"1e400", 0},
               {"[1,]", 3},
               {"[1", 2},
               {"{\"a\"}", 4},
               {"{\"a\":1,}", 7},
               {"{a:1}", 1},
               {"{\"a\":}", 5},
               {"[1 2]", 3},
               {"[1}", 2},
               {"1 2", 2},
               {"[]]", 2},
               {"\"a", 0},
               {"\"\t\"", 1},
               {"\"\\x\"", 1},
               {"\"\\ud83d\"", 1},
               {"\"\\udc00\"", 1},
               {"\"\\ud83d\\u0041\"", 1},
               {"\"\xff\"", 1},
               {"\"\xc0\xaf\"", 1},
               {"\"\xed\xa0\x80\"", 1},
               {"\xef\xbb\xbf"
                "1",
                0},
               {"// a", 0},
               {"[1,", 3},
               {"\"\\u12", 1},
               {"-", 0},
               {"{\"a\" 1}", 5},
               {"{1:1}", 1},
               {",", 0},
               {"]", 0}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof good / sizeof *good; i++) accepts(good[i]);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) refuses_at(bad[i].text, bad[i].offset);
}

static fb_json_token first_token(const char *text)
{
    fb_json_reader reader;
    fb_json_token token;
    fb_json_read(&reader, text, strlen(text));
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    return token;
}

static void test_json_read__integers_keep_64_bits_and_doubles_are_rounded_right(void **state)
{
    fb_json_token t = first_token("9223372036854775807");
    uint64_t bits;
    (void)state;
    assert_true(t.type == FB_JSON_INT && t.i == INT64_MAX);
    t = first_token("-9223372036854775808");
    assert_true(t.type == FB_JSON_INT && t.i == INT64_MIN);
    t = first_token("-9223372036854775809");
    assert_int_equal(t.type, FB_JSON_DOUBLE);
    t = first_token("18446744073709551615");
    assert_true(t.type == FB_JSON_UINT && t.u == UINT64_MAX);
    t = first_token("18446744073709551616");
    assert_int_equal(t.type, FB_JSON_DOUBLE);
    t = first_token("-0");
    memcpy(&bits, &t.d, sizeof bits);
    assert_true(t.type == FB_JSON_DOUBLE && bits == UINT64_C(1) << 63);
    t = first_token("0.30000000000000004");
    memcpy(&bits, &t.d, sizeof bits);
    assert_true(bits == UINT64_C(0x3fd3333333333334));
    t = first_token("4.9406564584124654e-324");
    memcpy(&bits, &t.d, sizeof bits);
    assert_true(bits == 1);
}

static void test_json_read__escapes_are_decoded_into_the_callers_buffer(void **state)
{
    fb_json_token t = first_token("\"a\\n\\u00e9\\ud83d\\ude00\\u0000b\"");
    char out[32];
    size_t bytes;
    (void)state;
    assert_int_equal(fb_json_decode(&t, out, sizeof out, &bytes, NULL), FB_OK);
    assert_int_equal(bytes, 10);
    assert_memory_equal(out, "a\n\xc3\xa9\xf0\x9f\x98\x80\0b", 11);
    assert_int_equal(fb_json_decode(&t, out, 11, &bytes, NULL), FB_OK);
    assert_int_equal(fb_json_decode(&t, out, 10, &bytes, NULL), FB_E_LIMIT);
    assert_string_equal(out, "");
    t = first_token("\"st\\u0065p\"");
    assert_true(fb_json_is(&t, "step"));
    assert_false(fb_json_is(&t, "steps"));
    assert_false(fb_json_is(&t, "ste"));
    t = first_token("12");
    assert_int_equal(fb_json_decode(&t, out, sizeof out, NULL, NULL), FB_E_USAGE);
}

static void test_json_read__skip_passes_whole_values_and_still_checks_them(void **state)
{
    const char *text = "{\"a\":{\"x\":[1,{\"y\":2}]},\"b\":3}";
    fb_json_reader reader;
    fb_json_token token;
    (void)state;
    fb_json_read(&reader, text, strlen(text));
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    assert_int_equal(fb_json_skip(&reader, NULL), FB_OK);
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    assert_true(token.type == FB_JSON_KEY && fb_json_is(&token, "b"));
    text = "{\"a\":[1,{\"y\":tru}]}";
    fb_json_read(&reader, text, strlen(text));
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    assert_int_equal(fb_json_skip(&reader, NULL), FB_E_CORRUPT);
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_E_CORRUPT); /* the error sticks */
}

static void test_json_read__depth_and_numbers_are_bounded(void **state)
{
    char text[2 * FB_JSON_READ_DEPTH_MAX + 4], *number = malloc(FB_JSON_NUMBER_BYTES_MAX + 2);
    fb_error err = {0};
    uint64_t tokens;
    (void)state;
    memset(text, '[', FB_JSON_READ_DEPTH_MAX + 1);
    memset(text + FB_JSON_READ_DEPTH_MAX + 1, ']', FB_JSON_READ_DEPTH_MAX + 1);
    assert_int_equal(read_all(text + 1, 2 * FB_JSON_READ_DEPTH_MAX, &err, &tokens), FB_OK);
    assert_int_equal(tokens, 2 * FB_JSON_READ_DEPTH_MAX);
    assert_int_equal(read_all(text, 2 * FB_JSON_READ_DEPTH_MAX + 2, &err, &tokens), FB_E_LIMIT);
    assert_int_equal(err.code, FB_E_LIMIT);
    assert_int_equal(err.offset_bytes, FB_JSON_READ_DEPTH_MAX);
    number[0] = '0';
    number[1] = '.';
    memset(number + 2, '1', FB_JSON_NUMBER_BYTES_MAX);
    assert_int_equal(read_all(number, FB_JSON_NUMBER_BYTES_MAX, &err, &tokens), FB_OK);
    assert_int_equal(read_all(number, FB_JSON_NUMBER_BYTES_MAX + 1, &err, &tokens), FB_E_LIMIT);
    free(number);
}

static void test_json_read__every_prefix_of_a_document_is_refused(void **state)
{
    const char *text = "{\"a\":[1.5,\"x\\u00e9\",null,true],\"b\":{\"c\":-1e3}}";
    size_t n;
    (void)state;
    for (n = 0; n < strlen(text); n++) {
        fb_error err = {0};
        uint64_t tokens;
        assert_int_equal(read_all(text, n, &err, &tokens), FB_E_CORRUPT);
        assert_true(err.offset_bytes <= n);
    }
    accepts(text);
}

static void test_json_read__what_the_writer_writes_is_read_back(void **state)
{
    fb_json json;
    fb_json_reader reader;
    fb_json_token token;
    char out[8];
    uint64_t x = 88172645463325252u; /* xorshift64, a fixed sequence */
    int i;
    (void)state;
    fb_json_init(&json, 1);
    fb_json_array_begin(&json);
    for (i = 0; i < 2000; i++) {
        double value;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(&value, &x, sizeof value);
        fb_json_double(&json, value);
        fb_json_string_bytes(&json, (const char *)&x, 2);
    }
    fb_json_array_end(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    fb_json_read(&reader, fb_json_text(&json), json.used);
    x = 88172645463325252u;
    assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
    for (i = 0; i < 2000; i++) {
        double value;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(&value, &x, sizeof value);
        assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
        if (fb_json_is_number(value)) assert_true(token.d >= value && token.d <= value);
        else assert_int_equal(token.type, FB_JSON_NULL);
        assert_int_equal(fb_json_next(&reader, &token, NULL), FB_OK);
        assert_int_equal(fb_json_decode(&token, out, sizeof out, NULL, NULL), FB_OK);
        if ((x & 0x8080) == 0) assert_memory_equal(out, &x, 2);
    }
    fb_json_release(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_read__tokens_come_in_order),
        cmocka_unit_test(test_json_read__strict_grammar),
        cmocka_unit_test(test_json_read__integers_keep_64_bits_and_doubles_are_rounded_right),
        cmocka_unit_test(test_json_read__escapes_are_decoded_into_the_callers_buffer),
        cmocka_unit_test(test_json_read__skip_passes_whole_values_and_still_checks_them),
        cmocka_unit_test(test_json_read__depth_and_numbers_are_bounded),
        cmocka_unit_test(test_json_read__every_prefix_of_a_document_is_refused),
        cmocka_unit_test(test_json_read__what_the_writer_writes_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
