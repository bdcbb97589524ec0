/*
 * The GGUF reader on files of the gguf package, made by scripts/make-golden-arrays.py, and on files built here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/gguf_types.h"
#include "support/reading.h"
#include "support/reading_faults.h"

#define GOLDEN "tests/golden/gguf/"

static reading seen;
static uint8_t file[1 << 20];
static size_t used;

static void put(uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) file[used++] = (uint8_t)(value >> (8 * i));
}

static void put_text(const char *text)
{
    put(strlen(text), 8);
    memcpy(file + used, text, strlen(text));
    used += strlen(text);
}

static void begin(uint64_t tensors, uint64_t keys)
{
    memcpy(file, "GGUF", 4);
    used = 4;
    put(3, 4);
    put(tensors, 8);
    put(keys, 8);
}

static void put_tensor(const char *name, uint64_t elements, uint32_t type, uint64_t offset)
{
    put_text(name);
    put(1, 4);
    put(elements, 8);
    put(type, 4);
    put(offset, 8);
}

static void put_zeros(size_t bytes)
{
    memset(file + used, 0, bytes);
    used += bytes;
}

static void pad_to(size_t alignment)
{
    while (used % alignment) file[used++] = 0;
}

static void read_it(void)
{
    reading_of(&seen, &fb_ckpt_gguf, file, used);
}

static void expect(const char *line)
{
    if (seen.status != FB_OK) fail_msg("%s", seen.err.message);
    if (!strstr(seen.text, line)) fail_msg("%s is not in\n%s", line, seen.text);
}

static void refused(fb_status status, const char *says)
{
    read_it();
    if (seen.status != status) fail_msg("status %d, not %d: %s", seen.status, status, seen.err.message);
    if (!strstr(seen.err.message, says)) fail_msg("does not say \"%s\": %s", says, seen.err.message);
}

static void test_gguf__shapes_are_written_slowest_first(void **ignored)
{
    (void)ignored;
    begin(1, 0);
    put_text("w");
    put(3, 4);
    put(2, 8);
    put(3, 8);
    put(5, 8);
    put(0, 4);
    put(0, 8);
    pad_to(32);
    put_zeros(120);
    read_it();
    expect("w F32 2 [5,3,2] ");
}

static void test_gguf__every_known_type_is_made_of_whole_lanes(void **ignored)
{
    int known = 0;
    (void)ignored;
    for (uint32_t id = 0; id < 100; id++) {
        const fb_gguf_type *type = fb_gguf_type_find(id);
        if (!type) continue;
        known++;
        assert_true((type->dtype != 0) == (type->block_elements == 1));
        assert_true((type->lane_count > 0) == (type->dtype == 0));
        for (uint32_t i = 0; i < type->lane_count; i++) {
            const fb_ckpt_lane *lane = &type->lanes[i];
            assert_true(lane->offset_bytes + lane->count * reading_lane_bytes(lane) <= type->block_bytes);
            assert_int_equal(lane->count * lane->elements, type->block_elements);
        }
    }
    assert_int_equal(known, 35);
    assert_null(fb_gguf_type_find(4));
    assert_null(fb_gguf_type_find(UINT32_MAX));
}

static void test_gguf__floats_among_the_keys_are_numbers(void **ignored)
{
    (void)ignored;
    begin(0, 6);
    put_text("a.f32");
    put(6, 4);
    put(0x3f800000, 4);
    put_text("a.text");
    put(8, 4);
    put_text("some text");
    put_text("a.list");
    put(9, 4);
    put(12, 4);
    put(3, 8);
    put_zeros(24);
    put_text("a.u8");
    put(0, 4);
    put(1, 1);
    put_text("a.texts");
    put(9, 4);
    put(8, 4);
    put(2, 8);
    put_text("");
    put_text("x");
    put_text("gemma3n.activation_sparsity_scale");
    put(9, 4);
    put(6, 4);
    put(1, 8);
    put(0xff800000, 4);
    read_it();
    assert_int_equal(seen.tensors, 3);
    expect("a.f32 F32 2 [] 41+4 number\n");
    expect("a.list F64 1 [3] ");
    expect("gemma3n.activation_sparsity_scale F32 2 [1] 256+4 inf\n");
}

static void test_gguf__an_unknown_type_is_located_and_the_rest_is_read(void **ignored)
{
    (void)ignored;
    begin(3, 0);
    put_tensor("a", 8, 99, 0);
    put_tensor("b", 8, 0, 96);
    put_tensor("c", 8, 36, 128);
    pad_to(32);
    put_zeros(128 + 50);
    read_it();
    expect("a type 99 0 [8] 128+96 unscanned: this build does not know the number format 99 of ggml\n");
    expect("b F32 2 [8] 224+32\n");
    expect("c type 36 0 [8] 256+50 unscanned");
}

static void test_gguf__a_big_endian_file_is_read_swapped(void **ignored)
{
    (void)ignored;
    memcpy(file, "GGUF\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0", 24);
    memcpy(file + 24, "\0\0\0\0\0\0\0\x01w\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\0", 33);
    used = 57;
    pad_to(32);
    put_zeros(4);
    read_it();
    expect("w F16 3 [2] 64+4 swapped\n");
}

static void test_gguf__alignment_is_taken_from_its_key(void **ignored)
{
    static const uint32_t wrong[] = {0, 3, 48, UINT32_MAX};
    (void)ignored;
    begin(1, 1);
    put_text("general.alignment");
    put(4, 4);
    put(128, 4);
    put_tensor("w", 1, 0, 0);
    pad_to(128);
    put_zeros(4);
    read_it();
    expect("w F32 2 [1] 128+4\n");
    for (size_t i = 0; i < 4; i++) {
        begin(0, 1);
        put_text("general.alignment");
        put(4, 4);
        put(wrong[i], 4);
        refused(FB_E_CORRUPT, "which is no power of two");
    }
    begin(0, 1);
    put_text("general.alignment");
    put(5, 4);
    put(32, 4);
    refused(FB_E_CORRUPT, "must be one number of 32 bits");
}

static void test_gguf__tensors_follow_each_other_to_the_end(void **ignored)
{
    static const uint64_t offsets[] = {0, 32, 96, UINT64_MAX - 31};
    (void)ignored;
    for (size_t i = 0; i < 4; i++) {
        begin(2, 0);
        put_tensor("a", 9, 0, 0);
        put_tensor("b", 8, 0, offsets[i]);
        pad_to(32);
        put_zeros(256);
        refused(FB_E_CORRUPT, "due was 64");
    }
    begin(2, 0);
    put_tensor("a", 9, 0, 0);
    put_tensor("b", 8, 0, 64);
    pad_to(32);
    put_zeros(64 + 31);
    refused(FB_E_CORRUPT, "tensor b takes 32 bytes, 31 are left in the file");
    put_zeros(1);
    read_it();
    assert_int_equal(seen.status, FB_OK);
    put_zeros(1);
    refused(FB_E_CORRUPT, "1 bytes follow the last tensor");
    begin(1, 0);
    put_tensor("a", 8, 77, 8);
    pad_to(32);
    put_zeros(32);
    refused(FB_E_CORRUPT, "due was 0");
    begin(2, 0); /* of an unknown type, so that its end is guessed: before its begin */
    put_tensor("a", 8, 0, 0);
    put_tensor("b", 8, 77, 32);
    pad_to(32);
    put_zeros(16);
    refused(FB_E_CORRUPT, "are left in the file");
}

static void test_gguf__shapes_are_as_ggml_wants_them(void **ignored)
{
    (void)ignored;
    begin(1, 0);
    put_tensor("w", 33, 8, 0);
    refused(FB_E_CORRUPT, "a row of tensor w has 33 elements, and Q8_0 takes them by 32");
    begin(1, 0);
    put_tensor("w", UINT64_MAX, 0, 0);
    refused(FB_E_CORRUPT, "a dimension of tensor w is negative");
    begin(1, 0);
    put_text("w");
    put(5, 4);
    refused(FB_E_CORRUPT, "has 5 dimensions, and GGUF allows 4");
    begin(1, 0);
    put_text("w");
    put(3, 4);
    put(INT64_MAX, 8);
    put(INT64_MAX, 8);
    put(0, 8);
    put(0, 4);
    refused(FB_E_CORRUPT, "more than 2^63 elements");
    begin(1, 0);
    put_tensor("w", 1u << 30, 28, 0);
    pad_to(32);
    refused(FB_E_CORRUPT, "tensor w takes 8589934592 bytes, 0 are left");
    begin(1, 0);
    put_tensor("w", INT64_MAX / 2, 28, 0);
    refused(FB_E_CORRUPT, "more than 2^64 bytes");
    begin(2, 0);
    put_tensor("empty", 0, 0, 0);
    put_tensor("w", 1, 0, 0);
    pad_to(32);
    put_zeros(4);
    read_it();
    expect("empty F32 2 [0] 96+0\n");
}

static void test_gguf__names_are_unique_and_clean(void **ignored)
{
    char name[65];
    (void)ignored;
    memset(name, 'n', 64);
    name[64] = '\0';
    begin(1, 0);
    put_tensor(name, 1, 0, 0);
    refused(FB_E_CORRUPT, "the name of a tensor of 64 bytes, and at most 63 are allowed");
    begin(2, 0);
    put_tensor("w", 8, 0, 0);
    put_tensor("w", 8, 0, 32);
    pad_to(32);
    put_zeros(64);
    refused(FB_E_CORRUPT, "two tensors have the name w");
    begin(0, 2);
    for (int i = 0; i < 2; i++) {
        put_text("k");
        put(7, 4);
        put(1, 1);
    }
    refused(FB_E_CORRUPT, "two keys have the name k");
    begin(0, 1);
    put_text("");
    put_zeros(8);
    refused(FB_E_CORRUPT, "a key without a name");
    begin(1, 0);
    put_tensor("a\x1b[2J", 1, 0, 0);
    refused(FB_E_CORRUPT, "holds a control character");
    begin(1, 0);
    put_tensor("a\xff", 1, 0, 0);
    refused(FB_E_CORRUPT, "is not UTF-8");
}

static void test_gguf__lengths_are_compared_with_what_is_there(void **ignored)
{
    (void)ignored;
    begin(0, 1);
    put(UINT64_MAX, 8);
    refused(FB_E_CORRUPT, "the length of a key is 18446744073709551615");
    begin(0, 1);
    put(100, 8);
    refused(FB_E_CORRUPT, "a key takes 100 bytes, the file ends after 0");
    begin(0, 1);
    put_text("k");
    put(9, 4);
    put(8, 4);
    put(1u << 30, 8);
    refused(FB_E_CORRUPT, "an array of texts takes 8589934592 bytes");
    begin(0, 1);
    put_text("k");
    put(9, 4);
    put(12, 4);
    put((1u << 30) + 1, 8);
    refused(FB_E_CORRUPT, "GGUF allows 2^30");
    begin(0, 1);
    put_text("k");
    put(9, 4);
    put(9, 4);
    put(1, 8);
    refused(FB_E_CORRUPT, "an array of arrays");
    begin(0, 1);
    put_text("k");
    put(13, 4);
    refused(FB_E_CORRUPT, "of a type, which GGUF does not have (type 13)");
    begin(UINT64_MAX, 0);
    refused(FB_E_CORRUPT, "is negative");
    begin(INT64_MAX, 0);
    refused(FB_E_CORRUPT, "the name of a tensor takes 8 bytes");
    begin(0, INT64_MAX);
    refused(FB_E_CORRUPT, "a key takes 8 bytes");
}

static void test_gguf__limits_of_the_caller_hold(void **ignored)
{
    memory_os memory;
    fb_ckpt_options options;
    (void)ignored;
    begin(3, 0);
    put_tensor("a", 8, 0, 0);
    put_tensor("b", 8, 0, 32);
    put_tensor("c", 8, 0, 64);
    pad_to(32);
    put_zeros(96);
    memset(&options, 0, sizeof options);
    options.tensors_max = 2;
    reading_range(&seen, &fb_ckpt_gguf, memory_os_init(&memory, file, used), 0, used, &options, 4096);
    assert_int_equal(seen.status, FB_E_LIMIT);
    options.tensors_max = 3;
    options.header_bytes_max = 100;
    reading_range(&seen, &fb_ckpt_gguf, memory_os_init(&memory, file, used), 0, used, &options, 4096);
    assert_int_equal(seen.status, FB_E_LIMIT);
    options.header_bytes_max = 200;
    reading_range(&seen, &fb_ckpt_gguf, memory_os_init(&memory, file, used), 0, used, &options, 4096);
    assert_int_equal(seen.status, FB_OK);
}

static void test_gguf__other_versions_and_forerunners_are_told(void **ignored)
{
    (void)ignored;
    begin(0, 0);
    file[4] = 1;
    refused(FB_E_UNSUPPORTED, "version 1, and this build reads 2 and 3");
    file[4] = 2;
    read_it();
    assert_int_equal(seen.status, FB_OK);
    file[4] = 0;
    refused(FB_E_UNSUPPORTED, "version 0");
    memcpy(file, "tjgg", 4);
    assert_true(fb_ckpt_gguf.detect(file, used, used));
    refused(FB_E_UNSUPPORTED, "from before GGUF");
    assert_true(fb_ckpt_gguf.detect((const uint8_t *)"GGUF\0\0\0\x03", 8, 8));
    assert_false(fb_ckpt_gguf.detect((const uint8_t *)"GGUF is a format", 16, 16));
    assert_false(fb_ckpt_gguf.detect((const uint8_t *)"GGU", 3, 3));
}

static void test_gguf__survives_every_cut_and_every_failure(void **ignored)
{
    (void)ignored;
    reading_survives(&fb_ckpt_gguf, GOLDEN "bad-keys.gguf", 8); /* 24 bytes of data, padded to 32 */
    reading_survives(&fb_ckpt_gguf, GOLDEN "big-endian.gguf", 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf__shapes_are_written_slowest_first),
        cmocka_unit_test(test_gguf__every_known_type_is_made_of_whole_lanes),
        cmocka_unit_test(test_gguf__floats_among_the_keys_are_numbers),
        cmocka_unit_test(test_gguf__an_unknown_type_is_located_and_the_rest_is_read),
        cmocka_unit_test(test_gguf__a_big_endian_file_is_read_swapped),
        cmocka_unit_test(test_gguf__alignment_is_taken_from_its_key),
        cmocka_unit_test(test_gguf__tensors_follow_each_other_to_the_end),
        cmocka_unit_test(test_gguf__shapes_are_as_ggml_wants_them),
        cmocka_unit_test(test_gguf__names_are_unique_and_clean),
        cmocka_unit_test(test_gguf__lengths_are_compared_with_what_is_there),
        cmocka_unit_test(test_gguf__limits_of_the_caller_hold),
        cmocka_unit_test(test_gguf__other_versions_and_forerunners_are_told),
        cmocka_unit_test(test_gguf__survives_every_cut_and_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
