#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json_write.h"

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void write_sample(fb_json *json)
{
    fb_json_object_begin(json);
    fb_json_key_string(json, "name", "h.3");
    fb_json_key(json, "list");
    fb_json_array_begin(json);
    fb_json_int(json, -1);
    fb_json_null(json);
    fb_json_array_end(json);
    fb_json_key(json, "empty");
    fb_json_object_begin(json);
    fb_json_object_end(json);
    fb_json_key_bool(json, "yes", 1);
    fb_json_object_end(json);
}

static void test_json_write__nesting_commas_and_lines(void **state)
{
    fb_json json;
    (void)state;
    fb_json_init(&json, 0);
    write_sample(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    assert_string_equal(fb_json_text(&json), "{\"name\":\"h.3\",\"list\":[-1,null],\"empty\":{},\"yes\":true}");
    fb_json_release(&json);
    fb_json_init(&json, 1);
    write_sample(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    assert_string_equal(fb_json_text(&json),
                        "{\n  \"name\": \"h.3\",\n  \"list\": [\n    -1,\n    null\n  ],\n  \"empty\": {},\n  \"yes\": true\n}");
    fb_json_release(&json);
}

static void check_string(const char *bytes, size_t n, const char *expected)
{
    fb_json json;
    fb_json_init(&json, 0);
    fb_json_string_bytes(&json, bytes, n);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    assert_string_equal(fb_json_text(&json), expected);
    fb_json_release(&json);
}

static void test_json_write__strings_are_escaped_and_bad_utf8_is_replaced(void **state)
{
    (void)state;
    check_string("a\"b\\c\n\r\t", 8, "\"a\\\"b\\\\c\\n\\r\\t\"");
    check_string("\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"");
    check_string("a\xc2\x9b"
                 "31m\x7f\xc2\xa0",
                 9, "\"a\\u009b31m\\u007f\xc2\xa0\"");
    check_string("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", 11, "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
    check_string("\xff", 1, "\"\xef\xbf\xbd\"");
    check_string("a\xe2\x82", 3, "\"a\xef\xbf\xbd\"");                           /* cut off */
    check_string("\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* overlong */
    check_string("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* a surrogate */
    check_string("\xe2\x28", 2, "\"\xef\xbf\xbd(\"");
}

static void test_json_write__integers_and_bits_keep_every_digit(void **state)
{
    fb_json json;
    (void)state;
    fb_json_init(&json, 0);
    fb_json_array_begin(&json);
    fb_json_int(&json, INT64_MIN);
    fb_json_uint(&json, UINT64_MAX);
    fb_json_hex(&json, 0x7fc0, 8);
    fb_json_array_end(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    assert_string_equal(fb_json_text(&json), "[-9223372036854775808,18446744073709551615,\"0x00007fc0\"]");
    fb_json_release(&json);
}

static void test_json_write__doubles_are_shortest_and_read_back(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.0, "0"},
        {0.1, "0.1"},
        {1.0 / 3.0, "0.3333333333333333"},
        {1e21, "1e+21"},
        {65536.0, "65536"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {-2.5, "-2.5"},
        {0.1 + 0.2, "0.30000000000000004"},
    };
    char text[FB_JSON_DOUBLE_BYTES];
    uint64_t x = 88172645463325252u;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)fb_json_format_double(text, cases[i].value);
        assert_string_equal(text, cases[i].text);
    }
    (void)fb_json_format_double(text, from_bits(UINT64_C(1) << 63));
    assert_string_equal(text, "-0.0");
    for (i = 0; i < 20000; i++) { /* a fixed sequence (xorshift64), so a failure repeats */
        double value;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        value = from_bits(x);
        if (!fb_json_is_number(value)) continue;
        assert_true(fb_json_format_double(text, value) < FB_JSON_DOUBLE_BYTES);
        value -= strtod(text, NULL);
        assert_memory_equal(&value, &(double){0.0}, sizeof value);
    }
}

static void test_json_write__what_is_not_a_number_is_null(void **state)
{
    fb_json json;
    (void)state;
    fb_json_init(&json, 0);
    fb_json_array_begin(&json);
    fb_json_double(&json, from_bits(UINT64_C(0x7ff8000000000000)));
    fb_json_double(&json, from_bits(UINT64_C(0xfff0000000000000)));
    fb_json_number_or_null(&json, 1.5, 0);
    fb_json_number_or_null(&json, 1.5, 1);
    fb_json_array_end(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    assert_string_equal(fb_json_text(&json), "[null,null,null,1.5]");
    fb_json_release(&json);
}

/* One that is installed, or one made for the occasion from the system's sources of locales. */
static int set_comma_locale(char folder[32])
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF"};
    char command[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (setlocale(LC_NUMERIC, names[i])) return 1;
    }
    if (!mkdtemp(folder)) return 0;
    (void)snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    return system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "de_DE.UTF-8");
}

static void test_json_write__a_locale_with_commas_changes_nothing(void **state)
{
    char text[FB_JSON_DOUBLE_BYTES], printed[16], folder[32] = "/tmp/firstbad-locale-XXXXXX", command[64];
    int set = set_comma_locale(folder);
    (void)state;
    (void)snprintf(printed, sizeof printed, "%.1f", 0.5);
    (void)fb_json_format_double(text, -0.30000000000000004);
    (void)setlocale(LC_NUMERIC, "C");
    (void)unsetenv("LOCPATH");
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) print_message("%s stays behind\n", folder);
    if (!set || strcmp(printed, "0.5") == 0) {
        print_message("no locale with another decimal point is installed, and localedef cannot make one\n");
        skip();
    }
    assert_string_equal(text, "-0.30000000000000004");
}

static void test_json_write__misuse_sticks_and_is_told(void **state)
{
    fb_json json;
    fb_error err;
    (void)state;
    fb_json_init(&json, 0);
    fb_json_object_begin(&json);
    fb_json_int(&json, 1); /* no key */
    fb_json_key(&json, "a");
    fb_json_int(&json, 1);
    fb_json_object_end(&json);
    assert_int_equal(fb_json_finish(&json, &err), FB_E_USAGE);
    assert_string_equal(fb_json_text(&json), "{");
    fb_json_reset(&json);
    fb_json_array_begin(&json);
    fb_json_object_end(&json);
    assert_int_equal(fb_json_finish(&json, &err), FB_E_USAGE);
    fb_json_reset(&json);
    fb_json_object_begin(&json);
    fb_json_key(&json, "a");
    fb_json_object_end(&json); /* the value of "a" is missing */
    assert_int_equal(fb_json_finish(&json, &err), FB_E_USAGE);
    fb_json_reset(&json);
    fb_json_array_begin(&json);
    assert_int_equal(fb_json_finish(&json, &err), FB_E_USAGE); /* still open */
    fb_json_reset(&json);
    fb_json_int(&json, 1);
    fb_json_int(&json, 2); /* two documents */
    assert_int_equal(fb_json_finish(&json, &err), FB_E_USAGE);
    fb_json_release(&json);
}

static void test_json_write__a_fixed_buffer_is_never_overrun(void **state)
{
    char buffer[80];
    const char *whole = "{\"name\":\"h.3\",\"list\":[-1,null],\"empty\":{},\"yes\":true}";
    size_t room;
    (void)state;
    for (room = 0; room <= sizeof buffer - 8; room++) {
        fb_json json;
        memset(buffer, 0x5a, sizeof buffer);
        fb_json_init_fixed(&json, buffer, room, 0);
        write_sample(&json);
        assert_int_equal(fb_json_finish(&json, NULL), room > strlen(whole) ? FB_OK : FB_E_LIMIT);
        assert_int_equal(buffer[room], 0x5a);
        assert_int_equal(memcmp(fb_json_text(&json), whole, json.used), 0);
        fb_json_release(&json);
    }
}

static void test_json_write__depth_is_bounded(void **state)
{
    fb_json json;
    int i;
    (void)state;
    fb_json_init(&json, 0);
    for (i = 0; i < FB_JSON_DEPTH_MAX; i++) fb_json_array_begin(&json);
    assert_int_equal(json.status, FB_OK);
    fb_json_array_begin(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_E_LIMIT);
    fb_json_release(&json);
}

static void test_json_write__every_failing_allocation_is_told(void **state)
{
    uint64_t k;
    (void)state;
    for (k = 1; k < 100; k++) {
        fb_json json;
        fb_status status;
        int i;
        fb_alloc_fail_at(k, 0);
        fb_json_init(&json, 0);
        fb_json_array_begin(&json);
        for (i = 0; i < 1000; i++) fb_json_string(&json, "0123456789");
        fb_json_array_end(&json);
        status = fb_json_finish(&json, NULL);
        if (fb_alloc_requests() < k) {
            fb_alloc_fail_at(0, 0);
            assert_int_equal(status, FB_OK);
            fb_json_release(&json);
            assert_true(k > 3);
            return;
        }
        assert_int_equal(status, FB_E_NOMEM);
        fb_json_release(&json);
    }
    fb_alloc_fail_at(0, 0);
    fail_msg("the writer asks for memory without end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_write__nesting_commas_and_lines),
        cmocka_unit_test(test_json_write__strings_are_escaped_and_bad_utf8_is_replaced),
        cmocka_unit_test(test_json_write__integers_and_bits_keep_every_digit),
        cmocka_unit_test(test_json_write__doubles_are_shortest_and_read_back),
        cmocka_unit_test(test_json_write__what_is_not_a_number_is_null),
        cmocka_unit_test(test_json_write__a_locale_with_commas_changes_nothing),
        cmocka_unit_test(test_json_write__misuse_sticks_and_is_told),
        cmocka_unit_test(test_json_write__a_fixed_buffer_is_never_overrun),
        cmocka_unit_test(test_json_write__depth_is_bounded),
        cmocka_unit_test(test_json_write__every_failing_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
