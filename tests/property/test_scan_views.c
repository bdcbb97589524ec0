/*
 * What must not show in a result: how the memory lies (strides), how many threads read it, and the floating-point modes of the
 * caller.
 * The word pthread_ puts this program among those that run under ThreadSanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fenv.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "property/scan_oracle.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

static const char *kernels[4];
static size_t kernel_count;
static uint64_t seed;

typedef struct answers {
    fb_scan_result scan;
    fb_histogram sampled, exact;
    fb_measure_result measure;
    uint64_t first;
} answers;

/* Everything that can be asked about a view without writing. */
static answers ask(const fb_view *view, int threads)
{
    fb_scan_result scan = FB_SCAN_RESULT_INIT;
    fb_histogram histogram = FB_HISTOGRAM_INIT;
    fb_measure_result measure = FB_MEASURE_RESULT_INIT;
    fb_scan_options options = FB_SCAN_OPTIONS_INIT;
    answers a;
    memset(&a, 0, sizeof a);
    options.threads = threads;
    options.histogram = FB_HISTOGRAM_SAMPLED;
    assert_int_equal(fb_scan_with(view, &options, &scan, &histogram, NULL), FB_OK);
    a.sampled = histogram;
    options.histogram = FB_HISTOGRAM_EXACT;
    assert_int_equal(fb_scan_with(view, &options, &scan, &histogram, NULL), FB_OK);
    a.exact = histogram;
    a.scan = scan;
    assert_int_equal(fb_measure(view, 1, 0.25, &options, NULL, &measure, NULL), FB_OK);
    a.measure = measure;
    assert_int_equal(fb_scan_first_with(view, &options, &a.first, NULL), FB_OK);
    return a;
}

static void gather(const fb_view *view, size_t bytes, uint8_t *out)
{
    int64_t at[FB_DIMS_MAX] = {0};
    const fb_layout *layout = view->layout;
    uint64_t i;
    int d;
    for (i = 0; i < view->count; i++) {
        int64_t offset = 0;
        for (d = 0; d < layout->ndim; d++) offset += at[d] * layout->strides[d];
        memcpy(out + i * bytes, (const uint8_t *)view->data + offset * (int64_t)bytes, bytes);
        for (d = layout->ndim - 1; d >= 0 && ++at[d] == layout->shape[d]; d--) at[d] = 0;
    }
}

/* A random view into memory of `elements` elements: permuted, stepped, reversed and expanded dimensions. */
static fb_view random_view(int32_t dtype, uint8_t *memory, size_t elements, fb_layout *layout, int writable, uint64_t *random)
{
    fb_view view;
    int64_t shape[FB_DIMS_MAX], step[FB_DIMS_MAX], reach = 1, start = 0;
    int d, ndim = 1 + (int)(oracle_random(random) % 5), order[FB_DIMS_MAX];
    memset(layout, 0, sizeof *layout);
    for (d = 0; d < ndim; d++) {
        int64_t room = (int64_t)elements / reach;
        int64_t stride = reach * (1 + (int64_t)(oracle_random(random) % 3 == 0));
        shape[d] = 1 + (int64_t)(oracle_random(random) % (d == 0 ? 97 : 9));
        if (stride * shape[d] > (int64_t)elements || room < 2) shape[d] = 1;
        step[d] = stride;
        if (shape[d] > 1) reach = stride * shape[d];
        if (!writable && oracle_random(random) % 5 == 0) step[d] = 0;
        if (oracle_random(random) % 4 == 0) {
            start += step[d] * (shape[d] - 1);
            step[d] = -step[d];
        }
        order[d] = d;
    }
    for (d = ndim - 1; d > 0; d--) {
        int other = (int)(oracle_random(random) % (uint64_t)(d + 1)), keep = order[d];
        order[d] = order[other];
        order[other] = keep;
    }
    layout->ndim = ndim;
    view = oracle_view(dtype, memory + (size_t)start * oracle_part_bytes(dtype) * oracle_parts(dtype), 1);
    for (d = 0; d < ndim; d++) {
        layout->shape[d] = shape[order[d]];
        layout->strides[d] = step[order[d]];
        view.count *= (uint64_t)layout->shape[d];
    }
    view.layout = layout;
    return view;
}

static void test_scan__strided_expanded_and_reversed_views_answer_as_their_gathered_copy(void **state)
{
    enum { ELEMENTS = 30000 };
    uint8_t *memory = malloc(ELEMENTS * 16), *copy = malloc(ELEMENTS * 16 * 4);
    uint64_t random = seed;
    size_t round;
    (void)state;
    assert_true(memory && copy);
    for (round = 0; round < 600; round++) {
        int32_t dtype = oracle_dtypes[round % ORACLE_DTYPES];
        size_t bytes = oracle_part_bytes(dtype) * oracle_parts(dtype);
        fb_layout layout;
        fb_view view = random_view(dtype, memory, ELEMENTS, &layout, 0, &random), dense;
        answers want, got;
        if (view.count > ELEMENTS * 4) continue;
        (void)fb_scan_kernel_use(kernels[round % kernel_count], NULL);
        if (round % 16 == 0 || round < ORACLE_DTYPES) oracle_fill(FB_F64, memory, ELEMENTS * 2, (int)(round / 16 % 4), &random);
        gather(&view, bytes, copy);
        dense = oracle_view(dtype, copy, view.count);
        want = ask(&dense, 1);
        got = ask(&view, 1);
        if (memcmp(&want, &got, sizeof got) != 0)
            fail_msg("round %zu: %s, %d dimensions, %llu elements", round, fb_dtype_name(dtype), (int)layout.ndim,
                     (unsigned long long)view.count);
    }
    free(memory);
    free(copy);
}

static void test_unscale__writes_through_strides_and_nowhere_else(void **state)
{
    enum { ELEMENTS = 20000 };
    static const int32_t dtypes[] = {FB_F64, FB_F32, FB_BF16};
    uint8_t *memory = malloc(ELEMENTS * 8), *before = malloc(ELEMENTS * 8), *copy = malloc(ELEMENTS * 8);
    uint64_t random = seed + 1;
    size_t round;
    (void)state;
    assert_true(memory && before && copy);
    for (round = 0; round < 300; round++) {
        int32_t dtype = dtypes[round % 3];
        size_t bytes = oracle_part_bytes(dtype), changed = 0, i;
        fb_layout layout;
        fb_view view, dense;
        fb_measure_result want = FB_MEASURE_RESULT_INIT, got = FB_MEASURE_RESULT_INIT;
        fb_error err;
        oracle_fill(dtype, memory, ELEMENTS, (int)(round % 2), &random);
        memcpy(before, memory, ELEMENTS * bytes);
        view = random_view(dtype, memory, ELEMENTS, &layout, 1, &random);
        gather(&view, bytes, copy);
        dense = oracle_view(dtype, copy, view.count);
        if (fb_unscale(&view, NULL, 0.375, NULL, &got, &err) != FB_OK) fail_msg("round %zu: %s", round, err.message);
        assert_int_equal(fb_unscale(&dense, NULL, 0.375, NULL, &want, NULL), FB_OK);
        assert_memory_equal(&want, &got, sizeof got);
        for (i = 0; i < ELEMENTS; i++) changed += memcmp(memory + i * bytes, before + i * bytes, bytes) != 0;
        assert_true(changed <= view.count);
        memcpy(before, copy, view.count * bytes);
        gather(&view, bytes, copy);
        assert_memory_equal(before, copy, view.count * bytes);
    }
    free(memory);
    free(before);
    free(copy);
}

enum { LARGE = 9 * 1024 * 1024 };

static void test_scan__any_number_of_threads_gives_the_same_answers(void **state)
{
    static const int threads[] = {2, 3, 8, 0};
    uint8_t *memory = malloc(LARGE);
    uint64_t random = seed + 2;
    size_t d, t, i;
    (void)state;
    assert_non_null(memory);
    for (d = 0; d < 6; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t n = LARGE / oracle_part_bytes(dtype);
        fb_view view = oracle_view(dtype, memory, n);
        answers want, got;
        (void)fb_scan_kernel_use(NULL, NULL);
        oracle_fill(dtype, memory, n, 1, &random);
        for (i = 0; i < d; i++) /* clean the first time, then with bad ones in some places */
            oracle_put(dtype, memory, oracle_random(&random) % n, UINT64_MAX);
        want = ask(&view, 1);
        for (t = 0; t < 4; t++) {
            got = ask(&view, threads[t]);
            assert_memory_equal(&want, &got, sizeof got);
        }
        assert_true(want.first == want.scan.first_index && want.measure.first_index == want.first);
    }
    free(memory);
}

static void test_measure__many_tensors_have_one_total_however_they_are_shared_out(void **state)
{
    enum { VIEWS = 40 };
    static fb_measure_result alone[VIEWS], per_view[VIEWS];
    fb_measure_result want = FB_MEASURE_RESULT_INIT, got = FB_MEASURE_RESULT_INIT;
    uint8_t *memory = malloc(3 * LARGE);
    fb_view views[VIEWS];
    uint64_t random = seed + 3, bad = 0;
    size_t i, offset = 0;
    int threads;
    (void)state;
    assert_non_null(memory);
    oracle_fill(FB_F32, memory, 3 * LARGE / 4, 1, &random);
    for (i = 0; i < VIEWS; i++) {
        size_t bytes = i == 7 || i == 20 ? LARGE / 2 : (size_t)(oracle_random(&random) % 300000) / 8 * 8;
        if (i == 11) bytes = 0;
        views[i] = oracle_view(i % 3 ? FB_F32 : FB_BF16, memory + offset, bytes / (i % 3 ? 4 : 2));
        if (i == 11) views[i].data = NULL;
        offset += bytes;
        assert_true(offset <= 3 * LARGE);
    }
    oracle_put(FB_BF16, memory, 5, 0x7f80);
    oracle_put(FB_F32, views[20].data, 999, 0x7fc00001);
    for (i = 0; i < VIEWS; i++) {
        fb_measure_result one = FB_MEASURE_RESULT_INIT;
        alone[i] = per_view[i] = one;
        assert_int_equal(fb_measure(&views[i], 1, 0.125, NULL, &alone[i], NULL, NULL), FB_OK);
        bad += alone[i].bad;
    }
    for (threads = 1; threads <= 4; threads++) {
        fb_scan_options options = FB_SCAN_OPTIONS_INIT;
        options.threads = threads;
        assert_int_equal(fb_measure(views, VIEWS, 0.125, &options, per_view, &got, NULL), FB_OK);
        assert_memory_equal(alone, per_view, sizeof alone);
        if (threads == 1) want = got;
        assert_memory_equal(&want, &got, sizeof got);
    }
    assert_int_equal(got.bad, bad);
    assert_true(alone[0].bad && alone[20].bad);
    assert_true(got.first_view == 0 && got.first_index == alone[0].first_index && got.dtype == FB_BF16 &&
                got.first_kind == alone[0].first_kind);
    /* The total does not depend on the order of the tensors either. */
    for (i = 0; i < VIEWS / 2; i++) {
        fb_view keep = views[i];
        views[i] = views[VIEWS - 1 - i];
        views[VIEWS - 1 - i] = keep;
    }
    assert_int_equal(fb_measure(views, VIEWS, 0.125, NULL, NULL, &got, NULL), FB_OK);
    assert_true(got.sum_sq == want.sum_sq && got.sum_sq_exponent == want.sum_sq_exponent && got.bad == bad);
    for (i = VIEWS; i > 0 && !alone[i - 1].bad; i--)
        ;
    assert_true(got.first_view == VIEWS - i && got.first_index == alone[i - 1].first_index);
    free(memory);
}

static void *ask_in_thread(void *arg)
{
    fb_view *view = arg;
    answers *got = malloc(sizeof *got);
    if (got) *got = ask(view, 2);
    return got;
}

static void test_scan__callers_on_several_threads_do_not_disturb_each_other(void **state)
{
    enum { CALLERS = 4 };
    uint8_t *memory = malloc(LARGE);
    fb_view view = oracle_view(FB_F32, memory, LARGE / 4);
    pthread_t threads[CALLERS];
    uint64_t random = seed + 4;
    answers want;
    int i;
    (void)state;
    assert_non_null(memory);
    oracle_fill(FB_F32, memory, LARGE / 4, 0, &random);
    want = ask(&view, 1);
    for (i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_in_thread, &view), 0);
    for (i = 0; i < CALLERS; i++) {
        void *got = NULL;
        assert_int_equal(pthread_join(threads[i], &got), 0);
        assert_non_null(got);
        assert_memory_equal(&want, got, sizeof want);
        free(got);
    }
    free(memory);
}

static void test_scan__a_child_made_by_fork_works_on_alone(void **state)
{
    uint8_t *memory = malloc(LARGE);
    fb_view view = oracle_view(FB_F32, memory, LARGE / 4);
    uint64_t random = seed + 5;
    answers want;
    int status = -1;
    pid_t child;
    (void)state;
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
    free(memory);
    print_message("ThreadSanitizer does not follow a fork of a process with threads\n");
    skip();
#endif
    assert_non_null(memory);
    oracle_fill(FB_F32, memory, LARGE / 4, 0, &random);
    want = ask(&view, 2); /* starts the workers */
    child = fork();
    if (child == 0) {
        answers got;
        alarm(30); /* a deadlock ends as a signal */
        got = ask(&view, 2);
        _exit(memcmp(&want, &got, sizeof got) == 0 ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    free(memory);
}

#if defined(__x86_64__)
#include <immintrin.h>

static void test_scan__modes_of_the_caller_change_nothing_and_come_back_unchanged(void **state)
{
    /* Round down, up, to zero; flush and denormals-are-zero; all traps armed; flags set already. */
    static const unsigned modes[] = {0x1f80, 0x3f80, 0x5f80, 0x7f80, 0x9fc0, 0xffc0, 0x0000, 0x8040, 0x1fbf};
    enum { N = 40000 };
    static uint8_t memory[N * 8], copy[N * 8], again[N * 8];
    uint64_t random = seed + 6;
    size_t d, k, m;
    (void)state;
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t n = N / oracle_parts(dtype);
        fb_view view = oracle_view(dtype, memory, n);
        oracle_fill(dtype, memory, n, (int)(d % 4), &random);
        oracle_put(dtype, memory, 77, 1);
        if (oracle_part_bytes(dtype) == 4) oracle_put(dtype, memory, 1000, 0x7f800001); /* signalling */
        for (k = 0; k < kernel_count; k++) {
            answers want;
            fb_measure_result unscaled = FB_MEASURE_RESULT_INIT;
            int writes = dtype == FB_F64 || dtype == FB_F32 || dtype == FB_BF16;
            (void)fb_scan_kernel_use(kernels[k], NULL);
            want = ask(&view, 1);
            memcpy(copy, memory, sizeof copy);
            if (writes) {
                fb_view target = oracle_view(dtype, copy, n);
                assert_int_equal(fb_unscale(&target, NULL, 1.0 / 3, NULL, &unscaled, NULL), FB_OK);
            }
            for (m = 0; m < sizeof modes / sizeof modes[0]; m++) {
                answers got;
                fb_measure_result result = FB_MEASURE_RESULT_INIT;
                double norm, norm_before;
                unsigned saved = _mm_getcsr(), left;
                memcpy(again, memory, sizeof again);
                norm_before = fb_scan_norm(&want.scan);
                _mm_setcsr(modes[m]);
                got = ask(&view, 1);
                norm = fb_scan_norm(&want.scan);
                if (writes) {
                    fb_view target = oracle_view(dtype, again, n);
                    (void)fb_unscale(&target, NULL, 1.0 / 3, NULL, &result, NULL);
                }
                left = _mm_getcsr();
                _mm_setcsr(saved);
                assert_int_equal(left, modes[m]);
                assert_memory_equal(&want, &got, sizeof got);
                assert_true(norm == norm_before);
                if (!writes) continue;
                assert_memory_equal(&unscaled, &result, sizeof result);
                assert_memory_equal(copy, again, sizeof again);
            }
        }
    }
}
#else
static void test_scan__modes_of_the_caller_change_nothing_and_come_back_unchanged(void **state)
{
    float values[3] = {1.5f, 1e-40f, -2.25f};
    fb_view view = oracle_view(FB_F32, values, 3);
    answers want = ask(&view, 1), got;
    (void)state;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    got = ask(&view, 1);
    assert_int_equal(fegetround(), FE_UPWARD);
    (void)fesetround(FE_TONEAREST);
    assert_memory_equal(&want, &got, sizeof got);
}
#endif

static void test_histogram__a_sample_of_one_in_sixteen_is_spread_over_all_columns(void **state)
{
    enum { N = 160000 };
    static uint8_t memory[N];
    fb_view view = oracle_view(FB_F8_E8M0, memory, N);
    fb_scan_result r = FB_SCAN_RESULT_INIT;
    fb_histogram histogram = FB_HISTOGRAM_INIT;
    fb_scan_options options = FB_SCAN_OPTIONS_INIT;
    size_t i;
    (void)state;
    /* Each element carries its column in a matrix of 16 columns as its exponent. */
    for (i = 0; i < N; i++) memory[i] = (uint8_t)(100 + i % 16);
    options.histogram = FB_HISTOGRAM_SAMPLED;
    assert_int_equal(fb_scan_with(&view, &options, &r, &histogram, NULL), FB_OK);
    assert_int_equal(histogram.scale, 16);
    assert_int_equal(histogram.counted, N / 16);
    for (i = 0; i < 16; i++) {
        uint64_t share = histogram.bins[100 + i];
        if (!(share > N / 16 / 16 / 2 && share < N / 16 / 16 * 2))
            fail_msg("column %zu has %llu samples", i, (unsigned long long)share);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan__strided_expanded_and_reversed_views_answer_as_their_gathered_copy),
        cmocka_unit_test(test_unscale__writes_through_strides_and_nowhere_else),
        cmocka_unit_test(test_scan__any_number_of_threads_gives_the_same_answers),
        cmocka_unit_test(test_measure__many_tensors_have_one_total_however_they_are_shared_out),
        cmocka_unit_test(test_scan__callers_on_several_threads_do_not_disturb_each_other),
        cmocka_unit_test(test_scan__a_child_made_by_fork_works_on_alone),
        cmocka_unit_test(test_scan__modes_of_the_caller_change_nothing_and_come_back_unchanged),
        cmocka_unit_test(test_histogram__a_sample_of_one_in_sixteen_is_spread_over_all_columns),
    };
    seed = oracle_seed();
    kernel_count = oracle_kernels(kernels);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
