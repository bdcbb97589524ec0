/*
 * The reader of Flax msgpack on files of Flax, made by scripts/make-golden-arrays.py, and on bytes written here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/reading.h"
#include "support/reading_faults.h"

#define GOLDEN "tests/golden/flax/"
#define READ(bytes) reading_of(&seen, &fb_ckpt_flax, bytes, sizeof(bytes) - 1)

static reading seen;

static void expect(const char *line)
{
    if (seen.status != FB_OK) fail_msg("%s", seen.err.message);
    if (!strstr(seen.text, line)) fail_msg("%s is not in\n%s", line, seen.text);
}

static void refused(fb_status status, const char *says)
{
    if (seen.status != status) fail_msg("status %d, not %d: %s", seen.status, status, seen.err.message);
    if (!strstr(seen.err.message, says)) fail_msg("does not say \"%s\": %s", says, seen.err.message);
}

static void test_flax__names_are_the_keys_on_the_way(void **ignored)
{
    (void)ignored;
    READ("\x82\xa1"
         "a\x81\x07\x81\xff\xca\0\0\0\0\xa1"
         "b\x93\xc0\x91\xca\0\0\0\0\xcb\0\0\0\0\0\0\0\0");
    assert_int_equal(seen.tensors, 3);
    expect("a.7.-1 float32 2 [] 8+4 swapped number\n");
    expect("b.1.0 float32 2 [] ");
    expect("b.2 float64 1 [] ");
    READ("\x81\xa0\x81\xa0\x81\xa1x\xca\0\0\0\0"); /* empty keys */
    expect("x float32 2 [] 8+4 ");
    READ("\x83\xd0\xfe\xca\0\0\0\0\xd3\x80\0\0\0\0\0\0\0\xca\0\0\0\0\xd1\x01\0\xca\0\0\0\0");
    expect("-2 float32 2 [] ");
    expect("-9223372036854775808 float32 2 [] ");
    expect("256 float32 2 [] ");
    READ("\xca\0\0\0\0"); /* no map at all */
    expect(" float32 2 [] 1+4 swapped number\n");
}

static void test_flax__every_item_of_msgpack_is_passed_over(void **ignored)
{
    (void)ignored;
    READ("\xdc\0\x1e\xc0\xc2\xc3\xc4\1x\xc5\0\1x\xc6\0\0\0\1x\xcc\1\xcd\0\1\xce\0\0\0\1\xcf\0\0\0\0\0\0\0\1\xd0\xff\xd1\xff\xff\xd2"
         "\xff\xff\xff\xff"
         "\xd3\xff\xff\xff\xff\xff\xff\xff\xff\xd9\1x\xda\0\1x\xdb\0\0\0\1x\xdd\0\0\0\0\xde\0\0\xdf\0\0\0\0\x80\x90\xa0\x7f\xe0"
         "\xca\0\0\0\0\xcb\0\0\0\0\0\0\0\0\xdc\0\0\xa1z\x05");
    assert_int_equal(seen.tensors, 2);
    expect("26 float64 1 [] ");
    READ("\x92\xc1\xc0");
    refused(FB_E_CORRUPT, "the byte 0xc1 has no meaning");
}

static void test_flax__an_array_is_shape_format_and_bytes(void **ignored)
{
    (void)ignored;
    READ("\x81\xa1w\xc7\x10\x01\x93\x92\x01\x02\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    refused(FB_E_CORRUPT, "");
    READ("\x81\xa1w\xc7\x12\x01\x93\x92\x01\x02\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    expect("w float16 3 [1,2] 20+4\n");
    READ("\x81\xa1w\xc7\x12\x03\x93\x92\x01\x02\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    expect("w float16 3 [1,2] 20+4 number\n");
    READ("\x81\xa1w\xc7\x12\x01\x93\x92\x01\x03\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    refused(FB_E_CORRUPT, "w has 3 elements of float16, and 4 bytes");
    READ("\x81\xa1w\xc7\x12\x01\x93\x92\x01\x02\xa7"
         "float99\xc4\x04\0\0\0\x7c");
    expect("w float99 0 [1,2] 20+4 unscanned: this build does not know the number format float99\n");
    READ("\x81\xa1w\xc7\x12\x01\x93\x92\x01\xff\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    refused(FB_E_CORRUPT, "a dimension of w must be an integer from 0");
    READ("\x81\xa1w\xc7\x11\x01\x93\x92\x01\x02\xa7"
         "float16\xc4\x03\0\0\x7c");
    refused(FB_E_CORRUPT, "w has 2 elements of float16, and 3 bytes");
    READ("\x81\xa1w\xc7\x13\x01\x93\x92\x01\x02\xa7"
         "float16\xc4\x04\0\0\0\x7c\0");
    refused(FB_E_CORRUPT, "must fill the rest of its array");
    READ("\x81\xa1w\xc7\x12\x01\x92\x92\x01\x02\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    refused(FB_E_CORRUPT, "must be a list of shape, format and bytes");
    READ("\x81\xa1w\xc7\x1e\x01\x93\x92\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xce\xff\xff\xff\xff\xa7"
         "float16\xc4\x04\0\0\0\x7c");
    refused(FB_E_CORRUPT, "more than 2^64 elements");
    READ("\x81\xa1w\xd4\x09x");
    expect("w ext 0 [1] 5+1 unscanned");
}

static void test_flax__a_complex_number_has_two_parts(void **ignored)
{
    (void)ignored;
    READ("\x81\xa1z\xc7\x13\x02\x92\xcb\0\0\0\0\0\0\0\0\xcb\0\0\0\0\0\0\0\0");
    expect("z.real float64 1 [] ");
    expect("z.imag float64 1 [] ");
    READ("\x81\xa1z\xc7\x0b\x02\x92\x01\xcb\0\0\0\0\0\0\0\0");
    assert_int_equal(seen.tensors, 1);
    expect("z.imag float64 1 [] ");
    READ("\x81\xa1z\xc7\x0a\x02\x91\xcb\0\0\0\0\0\0\0\0");
    refused(FB_E_CORRUPT, "z is no complex number");
}

#define MARK "\xb9__msgpack_chunked_array__\xc3"

static void test_flax__chunks_are_one_tensor(void **ignored)
{
    (void)ignored;
    reading_survives(&fb_ckpt_flax, GOLDEN "chunked.msgpack", 0);
    READ("\x81\xa1w\x83" MARK "\xa5shape\x82\xa1"
         "0\x02\xa1"
         "1\x02\xa6"
         "chunks\x82\xa1"
         "0"
         "\xc7\x0c\x01\x93\x91\x02\xa4int8\xc4\x02\0\0"
         "\xa1"
         "1"
         "\xc7\x0c\x01\x93\x91\x02\xa4int8\xc4\x02\0\0");
    assert_int_equal(seen.tensors, 2);
    expect("w int8 16 [2] 67+2 group 1 0 of 4\n");
    expect("w int8 16 [2] 84+2 group 1 2 of 4\n");
    READ("\x81\xa1w\x83" MARK "\xa5shape\x82\xa1"
         "0\x02\xa1"
         "1\x03\xa6"
         "chunks\x81\xa1"
         "0"
         "\xc7\x0c\x01\x93\x91\x02\xa4int8\xc4\x02\0\0");
    refused(FB_E_CORRUPT, "the chunks of w hold 2 elements, its shape 6");
    READ("\x81\xa1w\x83" MARK "\xa5shape\x81\xa1"
         "0\x02\xa6"
         "chunks\x81\xa1"
         "1"
         "\xc7\x0c\x01\x93\x91\x02\xa4int8\xc4\x02\0\0");
    refused(FB_E_CORRUPT, "does not fit in an array that is cut into chunks"); /* the second, without a first */
    READ("\x81\xa1w\x83" MARK "\xa5shape\x81\xa1"
         "0\xff\xa6"
         "chunks\x80");
    refused(FB_E_CORRUPT, "does not fit");
    READ("\x81\xa1w\x83" MARK "\xa5shape\x81\xa1"
         "0\x02\xa6"
         "chunks\x81\xa1"
         "0\xca\0\0\0\0");
    refused(FB_E_CORRUPT, "does not fit");
    READ("\x81\xa1w\x83" MARK "\xa5shape\x81\xa1"
         "0\x02\xa4"
         "junk\x80");
    refused(FB_E_CORRUPT, "does not fit");
    READ("\x81\xa1w\x81" MARK);
    refused(FB_E_CORRUPT, "the chunks of w hold 0 elements, its shape 0");
    READ("\x81\xa1w\x82" MARK "\xa6"
         "chunks\x80");
    refused(FB_E_CORRUPT, "the chunks of w");
}

static void test_flax__lengths_are_compared_with_what_is_there(void **ignored)
{
    (void)ignored;
    READ("\x81\xa1w\xc6\xff\xff\xff\xff");
    refused(FB_E_CORRUPT, "4294967295 bytes or items are announced, 0 bytes are left");
    READ("\xdd\xff\xff\xff\xff\xc0\xc0");
    refused(FB_E_CORRUPT, "are announced, 2 bytes are left");
    READ("\xde\0\x02\xa1w\xc0");
    refused(FB_E_CORRUPT, "a map of 2 keys is announced, 3 bytes are left");
    READ("\xc0\xc0");
    refused(FB_E_CORRUPT, "1 bytes follow its one object");
    READ("\x81\xc0\xc0");
    refused(FB_E_CORRUPT, "a key must be a text or an integer");
    READ("\x81\xa1\x1b\xc0");
    refused(FB_E_CORRUPT, "a key holds a control character");
    READ("\x81\xa1\xff\xc0");
    refused(FB_E_CORRUPT, "a key is not UTF-8");
    READ("");
    refused(FB_E_CORRUPT, "1 bytes are due, 0 are left");
}

static void test_flax__depth_and_names_have_bounds(void **ignored)
{
    static uint8_t deep[200000];
    size_t used = 0;
    (void)ignored;
    memset(deep, 0x91, 64);
    deep[64] = 0xc0;
    reading_of(&seen, &fb_ckpt_flax, deep, 65);
    assert_int_equal(seen.status, FB_OK);
    memset(deep, 0x91, 65);
    deep[65] = 0xc0;
    reading_of(&seen, &fb_ckpt_flax, deep, 66);
    refused(FB_E_LIMIT, "more than 64 deep");
    for (int i = 0; i < 50; i++) {
        memcpy(deep + used, "\x81\xd9\x80", 3);
        memset(deep + used + 3, 'k', 128);
        used += 131;
    }
    deep[used++] = 0xc0;
    reading_of(&seen, &fb_ckpt_flax, deep, used);
    refused(FB_E_LIMIT, "a name of more than 4096 bytes");
}

static void test_flax__a_long_path_over_many_numbers_takes_little_memory(void **ignored)
{
    enum { KEY = 4000, COUNT = 20000 };
    uint8_t *file = calloc(1, 4 + KEY + 3 + COUNT * 5);
    size_t used = 4 + KEY + 3;
    (void)ignored;
    assert_non_null(file);
    memcpy(file, "\x81\xda\x0f\xa0", 4);
    memset(file + 4, 'k', KEY);
    memcpy(file + 4 + KEY, "\xdc\x4e\x20", 3);
    for (int i = 0; i < COUNT; i++, used += 5) file[used] = 0xca;
    reading_of(&seen, &fb_ckpt_flax, file, used);
    free(file);
    assert_int_equal(seen.status, FB_OK);
    assert_int_equal(seen.tensors, COUNT);
}

static void test_flax__limits_of_the_caller_hold(void **ignored)
{
    static const uint8_t file[] = "\x81\xa1w\x92\xca\0\0\0\0\xca\0\0\0";
    memory_os memory;
    fb_ckpt_options options;
    const fb_os *os = memory_os_init(&memory, file, sizeof file);
    (void)ignored;
    memset(&options, 0, sizeof options);
    options.tensors_max = 1;
    reading_range(&seen, &fb_ckpt_flax, os, 0, sizeof file, &options, 4096);
    assert_int_equal(seen.status, FB_E_LIMIT);
    options.tensors_max = 2;
    options.header_bytes_max = 5;
    reading_range(&seen, &fb_ckpt_flax, os, 0, sizeof file, &options, 4096);
    refused(FB_E_LIMIT, "keys and small values take more than 5 bytes");
    options.header_bytes_max = 6; /* floats are data */
    reading_range(&seen, &fb_ckpt_flax, os, 0, sizeof file, &options, 4096);
    assert_int_equal(seen.status, FB_OK);
}

static void test_flax__only_a_map_with_a_readable_key_looks_like_it(void **ignored)
{
    static const uint8_t good[] = "\x82\xa6params\x80", binary[] = "\x82\xa6par\x01ms\x80",
                         other[] = "\x82\x01\x02\x03\x04\x05\x06\x07";
    static const uint8_t wide[] = "\xde\0\x01\xd9\x06params\x80", far[] = "\xdf\0\0\0\x01\xbfparams\x80";
    (void)ignored;
    assert_true(fb_ckpt_flax.detect(good, sizeof good - 1, sizeof good - 1));
    assert_true(fb_ckpt_flax.detect(wide, sizeof wide - 1, sizeof wide - 1));
    assert_false(fb_ckpt_flax.detect(binary, sizeof binary - 1, sizeof binary - 1));
    assert_false(fb_ckpt_flax.detect(other, sizeof other - 1, sizeof other - 1));
    assert_false(fb_ckpt_flax.detect(far, sizeof far - 1, sizeof far - 1));
    assert_false(fb_ckpt_flax.detect(good, 1, 1));
    assert_false(fb_ckpt_flax.detect((const uint8_t *)"{\"json\": 1}", 11, 11));
}

static void test_flax__survives_every_cut_and_every_failure(void **ignored)
{
    (void)ignored;
    reading_survives(&fb_ckpt_flax, GOLDEN "every-format.msgpack", 0);
    reading_survives(&fb_ckpt_flax, GOLDEN "numbers.msgpack", 0);
    reading_survives(&fb_ckpt_flax, GOLDEN "unknown-format.msgpack", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flax__names_are_the_keys_on_the_way),
        cmocka_unit_test(test_flax__every_item_of_msgpack_is_passed_over),
        cmocka_unit_test(test_flax__an_array_is_shape_format_and_bytes),
        cmocka_unit_test(test_flax__a_complex_number_has_two_parts),
        cmocka_unit_test(test_flax__chunks_are_one_tensor),
        cmocka_unit_test(test_flax__lengths_are_compared_with_what_is_there),
        cmocka_unit_test(test_flax__depth_and_names_have_bounds),
        cmocka_unit_test(test_flax__a_long_path_over_many_numbers_takes_little_memory),
        cmocka_unit_test(test_flax__limits_of_the_caller_hold),
        cmocka_unit_test(test_flax__only_a_map_with_a_readable_key_looks_like_it),
        cmocka_unit_test(test_flax__survives_every_cut_and_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
