/*
 * firstbad/scan.h and the scanning part of firstbad.h, one behaviour a case: what is refused and how it is said, what norms are,
 * and which kernel runs. With the argument "kernel" the program only says what a scan under FIRSTBAD_KERNEL does; the cases start
 * it so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "firstbad/scan.h"

static const char *program;

static fb_view view_of(int32_t dtype, void *data, uint64_t count)
{
    fb_view view;
    memset(&view, 0, sizeof view);
    view.data = data;
    view.count = count;
    view.dtype = dtype;
    view.device = -1;
    return view;
}

static fb_scan_result scanned(int32_t dtype, void *data, uint64_t count)
{
    fb_view view = view_of(dtype, data, count);
    fb_scan_result r = FB_SCAN_RESULT_INIT;
    assert_int_equal(fb_scan(&view, &r, NULL), FB_OK);
    return r;
}

static void refused(fb_status want, const fb_view *view, const char *words)
{
    fb_scan_result r, before;
    uint64_t first = 7;
    fb_error err;
    memset(&r, 0x5a, sizeof r);
    r.size = sizeof r;
    before = r;
    assert_int_equal(fb_scan(view, &r, &err), want);
    assert_int_equal(err.code, want);
    if (!strstr(err.message, words)) fail_msg("'%s' does not say '%s'", err.message, words);
    assert_memory_equal(&before, &r, sizeof r);
    assert_int_equal(fb_scan_first(view, &first, NULL), want);
    assert_int_equal(first, 7);
}

static void test_dtype__names_and_sizes(void **state)
{
    int32_t dtype, known = 0;
    (void)state;
    for (dtype = -5; dtype < 100; dtype++) known += fb_dtype_name(dtype) != NULL;
    assert_int_equal(known, 23);
    assert_string_equal(fb_dtype_name(FB_F8_E4M3FN), "f8_e4m3fn");
    assert_string_equal(fb_dtype_name(FB_C128), "c128");
    assert_null(fb_dtype_name(0));
    assert_int_equal(fb_dtype_bytes(FB_C64, 3), 24);
    assert_int_equal(fb_dtype_bytes(FB_F4_E2M1, 5), 3);
    assert_int_equal(fb_dtype_bytes(FB_F4_E2M1, UINT64_MAX), UINT64_C(1) << 63);
    assert_int_equal(fb_dtype_bytes(FB_F64, UINT64_MAX / 8 + 1), 0);
    assert_int_equal(fb_dtype_bytes(99, 1), 0);
}

static void test_scan__formats_with_nothing_to_find_are_not_called_checked(void **state)
{
    static const int32_t nothing[] = {FB_I8,  FB_U8,  FB_I16,  FB_U16,     FB_I32,     FB_U32,
                                      FB_I64, FB_U64, FB_BOOL, FB_F4_E2M1, FB_F6_E2M3, FB_F6_E3M2};
    uint8_t bytes[64];
    size_t i;
    (void)state;
    memset(bytes, 0xff, sizeof bytes);
    for (i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        fb_scan_result r = scanned(nothing[i], bytes, 8);
        fb_view view = view_of(nothing[i], bytes, 8);
        fb_measure_result m = FB_MEASURE_RESULT_INIT;
        assert_int_equal(r.checked, 0);
        assert_int_equal(r.elements, 8);
        assert_true(r.first_index == FB_NO_INDEX && r.first_kind == FB_KIND_NONE && r.nan == 0);
        assert_int_equal(fb_measure(&view, 1, 1.0, NULL, NULL, &m, NULL), FB_OK);
        assert_int_equal(m.checked, 0);
    }
}

static void test_scan__an_empty_view_is_clean_and_may_have_no_memory(void **state)
{
    fb_scan_result r = scanned(FB_F32, NULL, 0);
    (void)state;
    assert_int_equal(r.checked, 1);
    assert_true(r.first_index == FB_NO_INDEX && r.abs_max == 0.0 && r.abs_min == 0.0 && r.sum_sq == 0.0);
    assert_true(scanned(FB_F8_E8M0, NULL, 0).abs_max == 0.0);
}

static void test_scan__complex_elements_are_bad_by_either_part(void **state)
{
    /* (1, NaN) (Inf, 2) (-Inf, Inf) (NaN, -Inf) (3, 4) (0, 0) */
    float v[12] = {1, NAN, INFINITY, 2, -INFINITY, INFINITY, NAN, -INFINITY, 3, 4, 0, 0};
    fb_scan_result r = scanned(FB_C64, v, 6);
    (void)state;
    assert_int_equal(r.nan, 2);
    assert_int_equal(r.pos_inf, 2);
    assert_int_equal(r.neg_inf, 0);
    assert_int_equal(r.zero, 1);
    assert_int_equal(r.first_index, 0);
    assert_true(r.sum_sq == 25.0 && r.abs_max == 4.0 && r.abs_min == 3.0);
}

static void test_scan__negative_zero_and_subnormals_are_finite(void **state)
{
    float v[4] = {-0.0f, 1e-45f, -1e-40f, 0x1p-126f};
    fb_scan_result r = scanned(FB_F32, v, 4);
    (void)state;
    assert_true(r.first_index == FB_NO_INDEX);
    assert_int_equal(r.zero, 1);
    assert_int_equal(r.subnormal, 2);
    assert_true(r.abs_min == (double)0x1p-149f);
}

static void test_scan__saturated_fp8_shows_as_elements_at_the_maximum(void **state)
{
    uint8_t v[200];
    fb_scan_result r;
    (void)state;
    memset(v, 0x7e, sizeof v); /* 448 */
    v[3] = 0xfe;
    v[4] = 0x20;
    r = scanned(FB_F8_E4M3FN, v, 200);
    assert_int_equal(r.at_max, 199);
    assert_true(r.first_index == FB_NO_INDEX && r.abs_max == 448.0);
}

static void test_norm__finite_elements_never_make_an_infinite_norm_look_bad(void **state)
{
    static float f[5000];
    static double d[5000];
    size_t i;
    fb_scan_result r;
    (void)state;
    for (i = 0; i < 5000; i++) f[i] = i % 2 ? 1e30f : -3e38f;
    r = scanned(FB_F32, f, 5000);
    assert_true(r.first_index == FB_NO_INDEX && r.sum_sq_exponent == 0);
    assert_true(fabs(fb_scan_norm(&r) / (sqrt(2500.0) * (double)3e38f) - 1) < 1e-7);
    for (i = 0; i < 5000; i++) d[i] = 1e200;
    r = scanned(FB_F64, d, 5000);
    assert_true(r.first_index == FB_NO_INDEX && r.sum_sq_exponent > 0);
    assert_true(fabs(fb_scan_norm(&r) / (sqrt(5000.0) * 1e200) - 1) < 1e-14);
    for (i = 0; i < 5000; i++) d[i] = 1e-200;
    r = scanned(FB_F64, d, 5000);
    assert_true(r.sum_sq_exponent < 0);
    assert_true(fabs(fb_scan_norm(&r) / (sqrt(5000.0) * 1e-200) - 1) < 1e-14);
    /* Huge and tiny side by side in different blocks. */
    for (i = 0; i < 5000; i++) d[i] = i < 4000 ? 1e-300 : i < 4096 ? 3.0 : 4e180;
    r = scanned(FB_F64, d, 5000);
    assert_true(fabs(fb_scan_norm(&r) / (sqrt(904.0) * 4e180) - 1) < 1e-14);
    /* The norm itself is beyond FP64: said as +Inf, and still nothing is bad. */
    for (i = 0; i < 5000; i++) d[i] = 1.7e308;
    r = scanned(FB_F64, d, 5000);
    assert_true(r.first_index == FB_NO_INDEX && r.nan + r.pos_inf + r.neg_inf == 0);
    assert_true(fb_scan_norm(&r) > 1.7e308);
    assert_true(fb_scan_norm(NULL) == 0.0 && fb_measure_norm(NULL) == 0.0);
}

static void test_measure__scales_the_sum_exactly_by_powers_of_two_even_out_of_range(void **state)
{
    static double d[100];
    fb_view view = view_of(FB_F64, d, 100);
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    size_t i;
    (void)state;
    for (i = 0; i < 100; i++) d[i] = 3.0;
    assert_int_equal(fb_measure(&view, 1, 0x1p-10, NULL, NULL, &m, NULL), FB_OK);
    assert_true(m.sum_sq == 900.0 * 0x1p-20 && m.sum_sq_exponent == 0 && m.abs_max == 3.0 * 0x1p-10);
    assert_int_equal(fb_measure(&view, 1, 0x1p-900, NULL, NULL, &m, NULL), FB_OK);
    assert_true(m.sum_sq_exponent < 0);
    assert_true(fb_measure_norm(&m) == 30.0 * 0x1p-900);
    assert_int_equal(fb_measure(&view, 1, 0x1p900, NULL, NULL, &m, NULL), FB_OK);
    assert_true(fb_measure_norm(&m) == 30.0 * 0x1p900);
    for (i = 0; i < 100; i++) d[i] = 0x1p-700;
    assert_int_equal(fb_measure(&view, 1, 0x1p700, NULL, NULL, &m, NULL), FB_OK);
    assert_true(m.sum_sq == 100.0 && m.sum_sq_exponent == 0);
}

static void test_unscale__f16_in_place_is_refused_with_the_reason(void **state)
{
    uint16_t half[4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    float single[4] = {0};
    fb_view from = view_of(FB_F16, half, 4), to = view_of(FB_F32, single, 4), bf16 = view_of(FB_BF16, half, 4);
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    fb_error err;
    (void)state;
    assert_int_equal(fb_unscale(&from, NULL, 0.5, NULL, &m, &err), FB_E_DTYPE);
    assert_non_null(strstr(err.message, "f16 is unscaled only into f32"));
    assert_int_equal(half[0], 0x3c00);
    assert_int_equal(fb_unscale(&from, &bf16, 0.5, NULL, &m, &err), FB_E_DTYPE);
    assert_int_equal(fb_unscale(&bf16, &to, 0.5, NULL, &m, &err), FB_E_DTYPE);
    assert_int_equal(fb_unscale(&from, &to, 0.5, NULL, &m, &err), FB_OK);
    assert_true(single[3] == 0.5f && m.sum_sq == 1.0 && m.dtype == FB_F32);
}

static void test_unscale__bad_elements_stay_bad_and_products_that_overflow_are_told_apart(void **state)
{
    float v[6] = {1.0f, INFINITY, 3e38f, NAN, -INFINITY, 2.0f};
    fb_view view = view_of(FB_F32, v, 6);
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    (void)state;
    assert_int_equal(fb_unscale(&view, NULL, 1e5, NULL, &m, NULL), FB_OK);
    assert_int_equal(m.bad, 4);
    assert_int_equal(m.source_bad, 3);
    assert_true(m.first_index == 1 && m.source_first_index == 1 && v[1] == INFINITY && v[2] == INFINITY && v[4] == -INFINITY);
    assert_true(v[3] != v[3]);
    v[1] = 1.0f;
    assert_int_equal(fb_unscale(&view, NULL, 1e-5, NULL, &m, NULL), FB_OK);
    assert_true(m.first_index == 2 && m.source_first_index == 2 && m.bad == 3 && m.source_bad == 3);
}

static void test_unscale__a_view_that_repeats_memory_is_refused(void **state)
{
    float v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    fb_layout expanded = {2, 0, {3, 4}, {0, 1}}, overlapping = {2, 0, {3, 3}, {2, 1}}, columns = {2, 0, {2, 4}, {1, 2}};
    fb_view view = view_of(FB_F32, v, 12);
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    fb_error err;
    (void)state;
    view.layout = &expanded;
    assert_int_equal(fb_unscale(&view, NULL, 0.5, NULL, &m, &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "share memory"));
    view.layout = &overlapping;
    view.count = 9;
    assert_int_equal(fb_unscale(&view, NULL, 0.5, NULL, &m, &err), FB_E_USAGE);
    assert_true(v[0] == 1.0f);
    view.layout = &columns;
    view.count = 8;
    assert_int_equal(fb_unscale(&view, NULL, 0.5, NULL, &m, &err), FB_OK);
    assert_true(v[0] == 0.5f && v[7] == 4.0f);
}

static void test_unscale_many__one_wrong_view_and_nothing_is_written(void **state)
{
    float a[2] = {2, 4};
    int32_t b[2] = {1, 2};
    fb_view views[2];
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    fb_error err;
    (void)state;
    views[0] = view_of(FB_F32, a, 2);
    views[1] = view_of(FB_I32, b, 2);
    assert_int_equal(fb_unscale_many(views, NULL, 2, 0.5, NULL, NULL, &m, &err), FB_E_DTYPE);
    assert_non_null(strstr(err.message, "view 1: i32"));
    assert_true(a[0] == 2.0f);
    assert_int_equal(fb_unscale_many(views, NULL, 1, 0.5, NULL, NULL, &m, &err), FB_OK);
    assert_true(a[0] == 1.0f && m.sum_sq == 5.0);
}

static void test_scan__wrong_views_are_refused_and_nothing_is_filled(void **state)
{
    float v[4] = {0};
    fb_view view = view_of(FB_F32, v, 4);
    fb_layout layout = {2, 0, {2, 2}, {2, 1}};
    (void)state;
    refused(FB_E_USAGE, NULL, "view is NULL");
    view.dtype = 77;
    refused(FB_E_DTYPE, &view, "number format 77 is unknown");
    view.dtype = FB_F32;
    view.device = 0;
    refused(FB_E_USAGE, &view, "device is 0");
    view.device = -1;
    view.data = NULL;
    refused(FB_E_USAGE, &view, "data is NULL");
    view.data = v;
    view.flags = 1;
    refused(FB_E_USAGE, &view, "flags");
    view.flags = 0;
    view.layout = &layout;
    layout.shape[1] = 3;
    refused(FB_E_USAGE, &view, "multiplies to 6 elements, but count is 4");
    layout.shape[1] = -2;
    refused(FB_E_USAGE, &view, "shape[1] is -2");
    layout.shape[1] = 2;
    layout.ndim = 9;
    refused(FB_E_USAGE, &view, "9 dimensions");
    layout.ndim = 2;
    layout.strides[0] = INT64_MAX;
    refused(FB_E_USAGE, &view, "does not fit");
    view.layout = NULL;
    view.count = UINT64_MAX / 4;
    refused(FB_E_USAGE, &view, "do not fit into memory");
}

static void test_scan__wrong_arguments_are_refused(void **state)
{
    float v[4] = {0};
    fb_view view = view_of(FB_F32, v, 4);
    fb_scan_result r = FB_SCAN_RESULT_INIT;
    fb_scan_options options = FB_SCAN_OPTIONS_INIT;
    fb_histogram histogram = FB_HISTOGRAM_INIT;
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    fb_error err;
    (void)state;
    assert_int_equal(fb_scan(&view, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_scan_first(&view, NULL, &err), FB_E_USAGE);
    r.size = 8;
    assert_int_equal(fb_scan(&view, &r, &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "FB_SCAN_RESULT_INIT"));
    r.size = sizeof r;
    histogram.size = 0;
    assert_int_equal(fb_scan_with(&view, &options, &r, &histogram, &err), FB_E_USAGE);
    histogram.size = sizeof histogram;
    options.histogram = 3;
    assert_int_equal(fb_scan_with(&view, &options, &r, &histogram, &err), FB_E_USAGE);
    options.histogram = FB_HISTOGRAM_NONE;
    options.threads = -1;
    assert_int_equal(fb_scan_with(&view, &options, &r, &histogram, &err), FB_E_USAGE);
    options.threads = 0;
    options.size = 0;
    assert_int_equal(fb_scan_with(&view, &options, &r, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(&view, 1, 0.0, NULL, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(&view, 1, -1.0, NULL, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(&view, 1, (double)NAN, NULL, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(&view, 1, (double)INFINITY, NULL, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(NULL, 1, 1.0, NULL, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(NULL, 0, 1.0, NULL, NULL, &m, &err), FB_OK);
    assert_int_equal(m.checked, 1);
    assert_int_equal(fb_unscale(&view, NULL, 1e-300, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_unscale(NULL, NULL, 1.0, NULL, &m, &err), FB_E_USAGE);
    m.size = 1;
    assert_int_equal(fb_measure(&view, 1, 1.0, NULL, NULL, &m, &err), FB_E_USAGE);
    assert_int_equal(fb_measure(&view, 1, 1.0, NULL, &m, NULL, &err), FB_E_USAGE);
}

static void test_layout__the_structs_of_scan_h_have_the_sizes_that_callers_compiled(void **state)
{
    (void)state;
    assert_int_equal(sizeof(fb_scan_options), 16);
    assert_int_equal(sizeof(fb_histogram), 24 + 256 * 8);
    assert_int_equal(sizeof(fb_measure_result), 104);
    assert_int_equal(offsetof(fb_measure_result, first_kind), 48);
    assert_int_equal(offsetof(fb_measure_result, abs_max), 80);
    assert_int_equal(offsetof(fb_measure_result, sum_sq_exponent), 96);
}

static void test_kernel__an_unknown_name_is_refused_and_the_kernel_in_use_stays(void **state)
{
    fb_error err;
    const char *before;
    (void)state;
    assert_int_equal(fb_scan_kernel_use("ref", &err), FB_OK);
    before = fb_scan_kernel();
    assert_string_equal(before, "ref");
    assert_int_equal(fb_scan_kernel_use("mmx", &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "'mmx'"));
    assert_non_null(strstr(err.message, "ref, avx2, avx512 and neon"));
    assert_string_equal(fb_scan_kernel(), "ref");
    assert_int_equal(fb_scan_kernel_use(NULL, &err), FB_OK);
}

/* What a scan says in a new process under FIRSTBAD_KERNEL=name. */
static void in_new_process(const char *name, char *answer, size_t room)
{
    int ends[2], status;
    ssize_t got;
    pid_t child;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        (void)setenv("FIRSTBAD_KERNEL", name, 1);
        (void)dup2(ends[1], 1);
        (void)execl(program, program, "kernel", (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    got = read(ends[0], answer, room - 1);
    answer[got > 0 ? got : 0] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
}

static int say_kernel(void)
{
    float v[2] = {1, NAN};
    fb_view view = view_of(FB_F32, v, 2);
    fb_scan_result r = FB_SCAN_RESULT_INIT;
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    uint64_t first = 0;
    fb_error err = {0};
    fb_status a = fb_scan(&view, &r, &err), b = fb_scan_first(&view, &first, &err),
              c = fb_measure(&view, 1, 1, NULL, NULL, &m, &err);
    fb_status d = fb_unscale(&view, NULL, 1, NULL, &m, &err), e = fb_scan_selftest(&err);
    printf("%d%d%d%d%d %s %s", (int)a, (int)b, (int)c, (int)d, (int)e, fb_scan_kernel() ? fb_scan_kernel() : "none", err.message);
    return fflush(stdout);
}

static void test_kernel__the_environment_forces_one_by_name(void **state)
{
    char answer[1200];
    (void)state;
    in_new_process("ref", answer, sizeof answer);
    assert_string_equal(answer, "00000 ref ");
}

static void test_kernel__an_unknown_name_in_the_environment_fails_every_scan_with_a_sentence(void **state)
{
    char answer[1200];
    (void)state;
    in_new_process("sse9", answer, sizeof answer);
    assert_int_equal(strncmp(answer, "-1-1-1-1-1 none FIRSTBAD_KERNEL asks for the scan kernel 'sse9'", 63), 0);
#if defined(__x86_64__)
    in_new_process("neon", answer, sizeof answer);
    assert_non_null(strstr(answer, "this machine can run ref"));
#endif
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype__names_and_sizes),
        cmocka_unit_test(test_scan__formats_with_nothing_to_find_are_not_called_checked),
        cmocka_unit_test(test_scan__an_empty_view_is_clean_and_may_have_no_memory),
        cmocka_unit_test(test_scan__complex_elements_are_bad_by_either_part),
        cmocka_unit_test(test_scan__negative_zero_and_subnormals_are_finite),
        cmocka_unit_test(test_scan__saturated_fp8_shows_as_elements_at_the_maximum),
        cmocka_unit_test(test_norm__finite_elements_never_make_an_infinite_norm_look_bad),
        cmocka_unit_test(test_measure__scales_the_sum_exactly_by_powers_of_two_even_out_of_range),
        cmocka_unit_test(test_unscale__f16_in_place_is_refused_with_the_reason),
        cmocka_unit_test(test_unscale__bad_elements_stay_bad_and_products_that_overflow_are_told_apart),
        cmocka_unit_test(test_unscale__a_view_that_repeats_memory_is_refused),
        cmocka_unit_test(test_unscale_many__one_wrong_view_and_nothing_is_written),
        cmocka_unit_test(test_scan__wrong_views_are_refused_and_nothing_is_filled),
        cmocka_unit_test(test_scan__wrong_arguments_are_refused),
        cmocka_unit_test(test_layout__the_structs_of_scan_h_have_the_sizes_that_callers_compiled),
        cmocka_unit_test(test_kernel__an_unknown_name_is_refused_and_the_kernel_in_use_stays),
        cmocka_unit_test(test_kernel__the_environment_forces_one_by_name),
        cmocka_unit_test(test_kernel__an_unknown_name_in_the_environment_fails_every_scan_with_a_sentence),
    };
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "kernel") == 0) return say_kernel();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
