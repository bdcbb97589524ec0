/*
 * Files of NumPy, of the gguf package and of Flax, with bad numbers planted in them by scripts/make-golden-arrays.py, the whole
 * way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "ckpt/ckpt.h"
#include "support/planted.h"

static void test_arrays__what_was_planted_in_npy_is_found_and_nothing_else(void **ignored)
{
    (void)ignored;
    assert_int_equal(planted_check("tests/golden/npy/", "npy"), 43);
}

static void test_arrays__what_was_planted_in_gguf_is_found_and_nothing_else(void **ignored)
{
    (void)ignored;
    assert_int_equal(planted_check("tests/golden/gguf/", "gguf"), 10);
}

static void test_arrays__what_was_planted_in_flax_is_found_and_nothing_else(void **ignored)
{
    (void)ignored;
    assert_int_equal(planted_check("tests/golden/flax/", "flax"), 6);
}

static void test_arrays__every_failing_request_for_memory_is_reported(void **ignored)
{
    static const char *const paths[] = {"tests/golden/npy/bad-records.npy", "tests/golden/gguf/bad-in-every-type.gguf",
                                        "tests/golden/flax/bad-chunked.msgpack"};
    (void)ignored;
    for (size_t p = 0; p < 3; p++) {
        fb_ckpt_summary sum;
        fb_error err;
        uint64_t requests;
        fb_alloc_fail_at(0, 0);
        assert_int_equal(fb_ckpt_scan_path(fb_os_posix(), paths[p], NULL, NULL, &sum, &err), FB_OK);
        requests = fb_alloc_requests();
        for (uint64_t k = 1; k <= requests; k++) {
            fb_status status;
            fb_alloc_fail_at(k, 0);
            status = fb_ckpt_scan_path(fb_os_posix(), paths[p], NULL, NULL, &sum, &err);
            fb_alloc_fail_at(0, 0);
            assert_int_equal(status, FB_E_NOMEM);
            assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays__what_was_planted_in_npy_is_found_and_nothing_else),
        cmocka_unit_test(test_arrays__what_was_planted_in_gguf_is_found_and_nothing_else),
        cmocka_unit_test(test_arrays__what_was_planted_in_flax_is_found_and_nothing_else),
        cmocka_unit_test(test_arrays__every_failing_request_for_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
