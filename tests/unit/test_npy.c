/*
 * The reader of .npy on files of NumPy, made by scripts/make-golden-arrays.py, and on headers written here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/npy.h"
#include "support/reading.h"
#include "support/reading_faults.h"

#define GOLDEN "tests/golden/npy/"

static reading seen;

/* A file of version 1 with this header as it is, and so many bytes of data. */
static void read_header(const char *header, size_t data_bytes)
{
    size_t length = strlen(header);
    uint8_t *file = calloc(10 + length + data_bytes, 1);
    assert_non_null(file);
    memcpy(file, "\x93NUMPY\x01", 7);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + 10, header, length);
    reading_of(&seen, &fb_ckpt_npy, file, 10 + length + data_bytes);
    free(file);
}

/* {'descr': <descr>, 'fortran_order': False, 'shape': (2,), } */
static void read_descr(const char *descr, size_t data_bytes)
{
    char *header = malloc(strlen(descr) + 100);
    assert_non_null(header);
    (void)sprintf(header, "{'descr': %s, 'fortran_order': False, 'shape': (2,), }\n", descr);
    read_header(header, data_bytes);
    free(header);
}

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

static void test_npy__fortran_order_comes_as_strides(void **ignored)
{
    (void)ignored;
    read_header("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4, 5), }\n", 240);
    expect("array <f4 2 [3,4,5] (1,3,12) ");
    read_header("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }\n", 12);
    expect("array <f4 2 [3] ");
}

static void test_npy__keys_come_in_any_order_and_integers_of_python_2_are_read(void **ignored)
{
    (void)ignored;
    read_header("{'shape': (3L, 2L), 'descr': u'<f8', 'fortran_order': False}", 48);
    expect("array <f8 1 [3,2] ");
    read_header("{ \"shape\" : ( ) , \"descr\" : \"|u1\" , \"fortran_order\" : False , }    \n", 1);
    expect("array |u1 17 [] ");
}

static void test_npy__each_float_of_a_record_is_a_tensor(void **ignored)
{
    (void)ignored;
    read_descr("[('id', '<i4'), ('w', '<f4', (2, 3)), ('', '|V4'), ('v', '<c16')]", 2 * 48);
    assert_int_equal(seen.tensors, 2);
    expect("array.w <f4 0 [2,2,3] ");
    expect("/48:6 { 2 4 6 1}");
    expect("array.v <c16 0 [2] ");
    expect("/48:1 { 11 32 1 1}");
}

static void test_npy__a_record_inside_a_record_is_unrolled(void **ignored)
{
    (void)ignored;
    read_descr("[('a', '<f2'), ('in', [('x', '<f4'), ('deep', [('y', '<f8', 2)])], (2,)), (('a title', 'b'), [('z', '>i2'), ('u', "
               "'<f2')])]",
               2 * (2 + 2 * 20 + 4));
    assert_int_equal(seen.tensors, 6);
    expect("array.a <f2 0 [2] ");
    expect("array.in[0].x <f4 0 [2] ");
    expect("{ 2 2 1 1}");
    expect("array.in[0].deep.y <f8 0 [2,2] ");
    expect("{ 1 6 2 1}");
    expect("array.in[1].x <f4 0 [2] ");
    expect("{ 2 22 1 1}");
    expect("array.in[1].deep.y <f8 0 [2,2] ");
    expect("{ 1 26 2 1}");
    expect("array.b.u <f2 0 [2] ");
    expect("{ 3 44 1 1}");
}

static void test_npy__names_are_utf8_whatever_the_version_wrote(void **ignored)
{
    (void)ignored;
    read_descr("[('\xe9', '<f4')]", 8); /* latin-1 */
    expect("array.\xc3\xa9 <f4");
    read_descr("[('\\u043c\\xe9\\'\\\\', '<f4')]", 8);
    expect("array.\xd0\xbc\xc3\xa9'\\ <f4");
    read_descr("[('\\x1b[2J', '<f4')]", 8);
    refused(FB_E_CORRUPT, "holds a control character");
    read_descr("[('\x9b', '<f4')]", 8);
    refused(FB_E_CORRUPT, "holds a control character");
    read_descr("[('\\ud800', '<f4')]", 8);
    refused(FB_E_CORRUPT, "is no character");
    read_descr("[('\\q', '<f4')]", 8);
    refused(FB_E_CORRUPT, "has no meaning");
}

static void test_npy__a_format_that_was_lost_is_not_looked_at(void **ignored)
{
    (void)ignored;
    read_descr("'|V2'", 4);
    expect("array |V2 0 [2] ");
    expect("unscanned: the number format was lost: bfloat16 or float8 saved by NumPy");
    read_descr("'|V16'", 32);
    expect("unscanned: its bytes have no number format");
    read_descr("[('a', '<f4'), ('b', '|V1')]", 10);
    expect("array.b |V1 0 [2] ");
    read_descr("[('i', '<i8'), ('a', '<f4'), ('b', '>f2')]", 28);
    expect("array.b >f2 0 [2] ");
    expect("unscanned: its byte order is not that of the fields before it");
}

static void test_npy__a_record_without_floats_is_bytes(void **ignored)
{
    (void)ignored;
    read_descr("[('a', '<i4'), ('b', '|S3')]", 14);
    assert_int_equal(seen.tensors, 1);
    expect("array structured 17 [2,7] ");
    read_descr("[]", 0);
    expect("array structured 17 [2,0] ");
}

static void test_npy__what_it_cannot_read_says_what_to_do(void **ignored)
{
    (void)ignored;
    read_descr("'|O'", 16);
    refused(FB_E_UNSUPPORTED, "Python objects, which NumPy stores as a pickle; save");
    read_descr("[('a', '<f4'), ('b', 'O')]", 16);
    refused(FB_E_UNSUPPORTED, "Python objects");
    read_descr("'<f16'", 32);
    refused(FB_E_UNSUPPORTED, "a long double");
    read_descr("'<c32'", 64);
    refused(FB_E_UNSUPPORTED, "a long double");
    read_descr("'<q9'", 64);
    refused(FB_E_UNSUPPORTED, "the number format <q9 is not known");
    read_descr("''", 64);
    refused(FB_E_UNSUPPORTED, "is not known");
}

static void test_npy__shape_and_format_must_fill_the_file(void **ignored)
{
    (void)ignored;
    read_descr("'<f4'", 7);
    refused(FB_E_CORRUPT, "its shape and format take 8 bytes, 7 follow the header");
    read_descr("'<f4'", 9);
    refused(FB_E_CORRUPT, "its shape and format take 8 bytes, 9 follow the header");
    read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 8), }\n", 0);
    refused(FB_E_CORRUPT, "more than 2^63 elements");
    read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,), }\n", 0);
    refused(FB_E_CORRUPT, "more than 2^64 bytes");
    read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }\n", 0);
    refused(FB_E_CORRUPT, "a dimension above 2^63 - 1");
    read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", 4);
    refused(FB_E_CORRUPT, "a dimension must be an integer from 0");
    read_descr("[('a', [('b', '<f4', (4294967296, 4294967296))], (2,))]", 8);
    refused(FB_E_CORRUPT, "a field has more than 2^64 items");
    read_descr("[('a', '<f8', (2305843009213693952,)), ('b', 'i1')]", 8);
    refused(FB_E_CORRUPT, "a record has more than 2^64 bytes");
}

static void test_npy__a_header_that_is_no_dictionary_of_three_is_refused(void **ignored)
{
    static const char *const headers[][2] = {
        {"", "'{' was due"},
        {"{}", "the header has no descr"},
        {"{'descr': '<f4', 'shape': (2,)}", "the header has no fortran_order"},
        {"{'descr': '<f4', 'fortran_order': False}", "the header has no shape"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "stands there twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "the key more has no business"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "the shape must be a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "the shape must be a tuple"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "must be True or False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "the header ends"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + exit()", "something follows"},
        {"{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,)}", "must be a text between quotes"},
        {"{'descr': '<f4", "has no closing quote"},
        {"{'descr': [('a' '<f4')], 'fortran_order': False, 'shape': (2,)}", "was due after the name of a field"},
        {"{'descr': [('a', '<f4') ('b', '<f4')], 'fortran_order': False, 'shape': (2,)}", "was due after a field"},
        {"{'descr': ['a'], 'fortran_order': False, 'shape': (2,)}", "was due for a field"},
        {"{'descr': [('a', [('b', '<f4')}], 'fortran_order': False, 'shape': (2,)}", "was due after a field"},
    };
    (void)ignored;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        read_header(headers[i][0], 8);
        refused(FB_E_CORRUPT, headers[i][1]);
    }
}

static void test_npy__what_would_grow_without_bound_is_a_limit(void **ignored)
{
    static char descr[60000];
    size_t used = 0;
    (void)ignored;
    for (int i = 0; i < 40; i++) used += (size_t)sprintf(descr + used, "[('a', ");
    (void)sprintf(descr + used, "'<f4'");
    read_descr(descr, 8);
    refused(FB_E_LIMIT, "more than 32 lists of fields inside each other");
    read_descr("[('a', [('b', [('c', '<f4')], (1000,))], (1000,))]", 8);
    refused(FB_E_LIMIT, "more than 4096 fields");
    used = (size_t)sprintf(descr, "[('");
    memset(descr + used, 'x', 5000);
    (void)sprintf(descr + used + 5000, "', '<f4')]");
    read_descr(descr, 8);
    refused(FB_E_LIMIT, "more than 4096 bytes in one text");
    read_descr("[('a', '|V5000000000'), ('b', '<f4')]", 8);
    refused(FB_E_CORRUPT, "its shape and format take");
}

static void test_npy__versions_and_lengths_are_checked(void **ignored)
{
    static const uint8_t later[] = "\x93NUMPY\x04\0\x10\0", minor[] = "\x93NUMPY\x01\x01\x10\0";
    static const uint8_t bomb[] = "\x93NUMPY\x02\0\xff\xff\xff\xff    ", short_[] = "\x93NUMPY\x01\0\x40\0{'descr'";
    static uint8_t wide[12 + 70000] = "\x93NUMPY\x03\0\x70\x11\x01\0";
    (void)ignored;
    reading_of(&seen, &fb_ckpt_npy, later, sizeof later);
    refused(FB_E_UNSUPPORTED, "version 4.0, and this build reads 1.0, 2.0 and 3.0");
    reading_of(&seen, &fb_ckpt_npy, minor, sizeof minor);
    refused(FB_E_UNSUPPORTED, "version 1.1");
    reading_of(&seen, &fb_ckpt_npy, bomb, sizeof bomb);
    refused(FB_E_CORRUPT, "a header of 4294967295 bytes is announced");
    reading_of(&seen, &fb_ckpt_npy, short_, sizeof short_);
    refused(FB_E_CORRUPT, "a header of 64 bytes is announced");
    reading_of(&seen, &fb_ckpt_npy, wide, sizeof wide);
    refused(FB_E_LIMIT, "a header of 70000 bytes, at most 65536 are taken");
}

static void test_npy__an_array_of_an_archive_keeps_its_name_and_place(void **ignored)
{
    static const char file[] = "\x93NUMPY\x01\0\x3a\0{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }\n\0\0\0\0\0\0\0";
    fb_npy *npy;
    fb_error err;
    uint64_t count;
    const fb_ckpt_tensor *tensors;
    (void)ignored;
    assert_int_equal(fb_npy_parse(&npy, (const uint8_t *)file, 68, 76, 1000, "layer/weight", "a.npz", &err), FB_OK);
    tensors = fb_npy_tensors(npy, &count);
    assert_int_equal(count, 1);
    assert_string_equal(tensors[0].name, "layer/weight");
    assert_int_equal(fb_npy_data_at(npy), 68);
    assert_int_equal(fb_npy_swapped(npy), 1);
    fb_npy_free(npy);
    assert_int_equal(fb_npy_parse(&npy, (const uint8_t *)file, 68, 77, 1000, "layer/weight", "a.npz", &err), FB_E_CORRUPT);
    assert_null(npy);
    assert_int_equal(err.offset_bytes, 1000 + 76);
    assert_non_null(strstr(err.message, "read npy a.npz, array layer/weight: its shape"));
    fb_npy_free(NULL);
}

static void test_npy__survives_every_cut_and_every_failure(void **ignored)
{
    (void)ignored;
    reading_survives(&fb_ckpt_npy, GOLDEN "records.npy", 0);
    reading_survives(&fb_ckpt_npy, GOLDEN "fortran.npy", 0);
    reading_survives(&fb_ckpt_npy, GOLDEN "only-integers.npy", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy__fortran_order_comes_as_strides),
        cmocka_unit_test(test_npy__keys_come_in_any_order_and_integers_of_python_2_are_read),
        cmocka_unit_test(test_npy__each_float_of_a_record_is_a_tensor),
        cmocka_unit_test(test_npy__a_record_inside_a_record_is_unrolled),
        cmocka_unit_test(test_npy__names_are_utf8_whatever_the_version_wrote),
        cmocka_unit_test(test_npy__a_format_that_was_lost_is_not_looked_at),
        cmocka_unit_test(test_npy__a_record_without_floats_is_bytes),
        cmocka_unit_test(test_npy__what_it_cannot_read_says_what_to_do),
        cmocka_unit_test(test_npy__shape_and_format_must_fill_the_file),
        cmocka_unit_test(test_npy__a_header_that_is_no_dictionary_of_three_is_refused),
        cmocka_unit_test(test_npy__what_would_grow_without_bound_is_a_limit),
        cmocka_unit_test(test_npy__versions_and_lengths_are_checked),
        cmocka_unit_test(test_npy__an_array_of_an_archive_keeps_its_name_and_place),
        cmocka_unit_test(test_npy__survives_every_cut_and_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
