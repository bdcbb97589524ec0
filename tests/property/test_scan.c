/*
 * Every kernel against the definitions of the formats: all codes of the small formats, all short lengths and alignments, specials
 * at each position, and many random arrays, on which kernels must agree to the last bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "property/scan_oracle.h"

static const char *kernels[4];
static size_t kernel_count;
static uint64_t seed;

static void assert_no_error(fb_status status, const fb_error *err)
{
    if (status != FB_OK) fail_msg("status %d: %s", (int)status, err->message);
}

static fb_scan_result scan(int32_t dtype, const void *data, size_t n, fb_histogram *histogram)
{
    fb_scan_result r = FB_SCAN_RESULT_INIT;
    fb_scan_options options = FB_SCAN_OPTIONS_INIT;
    fb_view view = oracle_view(dtype, (void *)(uintptr_t)data, n);
    fb_error err;
    options.histogram = histogram ? FB_HISTOGRAM_EXACT : FB_HISTOGRAM_NONE;
    assert_no_error(fb_scan_with(&view, &options, &r, histogram, &err), &err);
    return r;
}

static uint64_t first(int32_t dtype, const void *data, size_t n)
{
    fb_view view = oracle_view(dtype, (void *)(uintptr_t)data, n);
    uint64_t index = 12345;
    fb_error err;
    assert_no_error(fb_scan_first(&view, &index, &err), &err);
    return index;
}

/* Within 1e-7, in a type whose range holds norms that a double does not. */
static int norm_is_close(double sum_sq, int32_t exponent, long double norm)
{
    return fabsl(ldexpl(sqrtl((long double)sum_sq), exponent) - norm) <= 1e-7L * norm;
}

/* All fields against the oracle; the sum within what docs/format/numbers.md allows. */
static void compare(const char *kernel, int32_t dtype, const void *data, size_t n)
{
    fb_scan_result want, got;
    fb_histogram histogram = FB_HISTOGRAM_INIT;
    uint64_t bins[256];
    long double sum = oracle_scan(dtype, data, n, &want, bins), norm;
    assert_int_equal(fb_scan_kernel_use(kernel, NULL), FB_OK);
    got = scan(dtype, data, n, &histogram);
    norm = sqrtl(sum);
    if (!norm_is_close(got.sum_sq, got.sum_sq_exponent, norm))
        fail_msg("%s %s: sum %.17g * 4^%d, expected norm %.17Lg", kernel, fb_dtype_name(dtype), got.sum_sq,
                 (int)got.sum_sq_exponent, norm);
    assert_true(fb_scan_norm(&got) == (double)ldexp(sqrt(got.sum_sq), got.sum_sq_exponent));
    want.sum_sq = got.sum_sq;
    want.sum_sq_exponent = got.sum_sq_exponent;
    if (memcmp(&want, &got, sizeof want) != 0)
        fail_msg("%s %s, %zu elements: nan %llu/%llu inf %llu/%llu zero %llu/%llu sub %llu/%llu max %llu/%llu first %lld/%lld "
                 "bits %llx/%llx abs %g/%g..%g/%g (got/expected)",
                 kernel, fb_dtype_name(dtype), n, (unsigned long long)got.nan, (unsigned long long)want.nan,
                 (unsigned long long)got.pos_inf, (unsigned long long)want.pos_inf, (unsigned long long)got.zero,
                 (unsigned long long)want.zero, (unsigned long long)got.subnormal, (unsigned long long)want.subnormal,
                 (unsigned long long)got.at_max, (unsigned long long)want.at_max, (long long)got.first_index,
                 (long long)want.first_index, (unsigned long long)got.first_bits, (unsigned long long)want.first_bits, got.abs_min,
                 want.abs_min, got.abs_max, want.abs_max);
    assert_memory_equal(bins, histogram.bins, sizeof bins);
    assert_int_equal(histogram.counted, n * oracle_parts(dtype));
    assert_true(first(dtype, data, n) == want.first_index);
}

static void test_scan__every_code_of_every_small_format_is_judged_by_its_definition(void **state)
{
    static uint8_t data[2 * 65536];
    size_t d, k;
    (void)state;
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t bytes = oracle_part_bytes(dtype), codes = bytes == 1 ? 256 : 65536, code;
        if (bytes > 2) continue;
        for (code = 0; code < codes; code++) oracle_put(dtype, data, code, code);
        for (k = 0; k < kernel_count; k++) compare(kernels[k], dtype, data, codes);
        /* Only what is finite: sums and extremes in the blocks that no bad element sends to the careful way. */
        for (code = 0; code < codes; code++)
            if (oracle_decode(dtype, code).kind != FB_KIND_NONE) oracle_put(dtype, data, code, 1);
        for (k = 0; k < kernel_count; k++) compare(kernels[k], dtype, data, codes);
    }
}

static void test_scan__each_code_alone_among_the_largest_finite_ones_is_found_or_not(void **state)
{
    uint8_t data[2 * 69];
    size_t d, k, i;
    (void)state;
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t bytes = oracle_part_bytes(dtype), codes = bytes == 1 ? 256 : 65536, code;
        uint64_t largest = 0;
        if (bytes > 2) continue;
        for (code = 0; code < codes / 2; code++)
            if (oracle_decode(dtype, code).at_max) largest = code;
        if (dtype == FB_F8_E8M0) largest = 0xfe;
        for (k = 0; k < kernel_count; k++) {
            assert_int_equal(fb_scan_kernel_use(kernels[k], NULL), FB_OK);
            for (i = 0; i < 69; i++) oracle_put(dtype, data, i, largest);
            for (code = 0; code < codes; code++) {
                size_t at = code * 31 % 69;
                uint64_t want = oracle_decode(dtype, code).kind != FB_KIND_NONE ? at : FB_NO_INDEX;
                oracle_put(dtype, data, at, code);
                if (first(dtype, data, 69) != want) fail_msg("%s: %s code 0x%zx", kernels[k], fb_dtype_name(dtype), code);
                oracle_put(dtype, data, at, largest);
            }
        }
    }
}

static void test_scan__every_short_length_at_every_alignment_gives_the_same_bits(void **state)
{
    static uint8_t source[304 * 16], room[304 * 16 + 64];
    size_t d, n, k, align;
    uint64_t random = seed;
    (void)state;
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t bytes = oracle_part_bytes(dtype) * oracle_parts(dtype);
        for (n = 0; n <= 300; n++) {
            fb_scan_result want, got;
            oracle_fill(dtype, source, n, (int)(n % 4), &random);
            compare("ref", dtype, source, n);
            want = scan(dtype, source, n, NULL);
            for (align = 0; align < 64; align++) {
                /* All ones beyond both ends are bad in most formats: reading past an end would be seen. */
                memset(room, 0xff, sizeof room);
                memcpy(room + align, source, n * bytes);
                for (k = 0; k < kernel_count; k++) {
                    if (k == 0 && align % 8 != 3) continue;                   /* the reference reads an element at a time */
                    if (oracle_parts(dtype) == 2 && align % 8 != 5) continue; /* as their parts alone, but for the bad ones */
                    (void)fb_scan_kernel_use(kernels[k], NULL);
                    got = scan(dtype, room + align, n, NULL);
                    if (memcmp(&want, &got, sizeof got) != 0 || first(dtype, room + align, n) != want.first_index)
                        fail_msg("%s %s, length %zu, alignment %zu", kernels[k], fb_dtype_name(dtype), n, align);
                }
            }
        }
    }
}

static void test_scan__a_special_planted_at_any_position_is_found_there_with_its_payload(void **state)
{
    static const uint64_t specials32[] = {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffbfffffu, 0x7fc00000u, 0xffffffffu};
    static const uint64_t specials64[] = {UINT64_C(0x7ff0000000000000), UINT64_C(0xfff0000000000000), UINT64_C(0x7ff0000000000001),
                                          UINT64_C(0xfff7ffffffffffff), UINT64_C(0x7ff8000000000000), UINT64_MAX};
    static uint8_t data[260 * 16];
    size_t d, k, n, s, at;
    uint64_t random = seed + 1;
    (void)state;
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t bytes = oracle_part_bytes(dtype), parts = oracle_parts(dtype);
        if (bytes < 4) continue;
        for (k = 0; k < kernel_count; k++) {
            (void)fb_scan_kernel_use(kernels[k], NULL);
            for (n = 1; n <= 257; n += 1 + n / 3) {
                oracle_fill(dtype, data, n, 1, &random);
                for (at = 0; at < n * parts; at++) {
                    uint64_t before = oracle_get(dtype, data, at);
                    s = (at + n) % 6;
                    oracle_put(dtype, data, at, bytes == 4 ? specials32[s] : specials64[s]);
                    {
                        fb_scan_result r = scan(dtype, data, n, NULL);
                        assert_true(first(dtype, data, n) == at / parts);
                        assert_true(r.first_index == at / parts);
                        assert_true(r.first_bits == oracle_get(dtype, data, at));
                        assert_int_equal(r.nan + r.pos_inf + r.neg_inf, 1);
                        assert_int_equal(r.first_kind, oracle_decode(dtype, r.first_bits).kind);
                    }
                    oracle_put(dtype, data, at, before);
                }
            }
        }
    }
}

static void test_scan__random_arrays_of_many_blocks_agree_with_the_oracle_and_between_kernels(void **state)
{
    enum { ROOM = 200000 };
    uint8_t *data = malloc(ROOM);
    size_t d, k, round;
    uint64_t random = seed + 2;
    (void)state;
    assert_non_null(data);
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t most = ROOM / (oracle_part_bytes(dtype) * oracle_parts(dtype));
        for (round = 0; round < 8; round++) {
            size_t n = round < 4 ? most - round : oracle_random(&random) % most;
            fb_scan_result want;
            oracle_fill(dtype, data, n, (int)(round % 4), &random);
            compare("ref", dtype, data, n);
            want = scan(dtype, data, n, NULL);
            for (k = 1; k < kernel_count; k++) {
                fb_scan_result got;
                (void)fb_scan_kernel_use(kernels[k], NULL);
                got = scan(dtype, data, n, NULL);
                if (memcmp(&want, &got, sizeof got) != 0) fail_msg("%s %s, round %zu", kernels[k], fb_dtype_name(dtype), round);
                if (k + 1 == kernel_count) compare(kernels[k], dtype, data, n);
            }
        }
    }
    free(data);
}

/* Each value through the definition of the product: round once to the storage format. */
static uint64_t product(int32_t dtype, uint64_t bits, double factor)
{
    uint32_t bits32;
    float value;
    double wide;
    if (dtype == FB_F64) {
        memcpy(&wide, &bits, 8);
        wide *= factor;
        memcpy(&bits, &wide, 8);
        return bits;
    }
    if (dtype == FB_F32) {
        bits32 = (uint32_t)bits;
        memcpy(&value, &bits32, 4);
    } else {
        value = (float)oracle_decode(dtype, bits).value;
    }
    value *= (float)factor;
    memcpy(&bits32, &value, 4);
    if (dtype != FB_BF16) return bits32;
    {
        /* Nearest of the two neighbours, the even one on a tie. */
        uint32_t low = bits32 & 0xffff0000u, rest = bits32 & 0xffffu;
        if (rest > 0x8000u || (rest == 0x8000u && (low & 0x10000u))) low += 0x10000u;
        return low >> 16;
    }
}

static void test_unscale__products_are_rounded_once_and_judged_as_stored_by_every_kernel(void **state)
{
    static const int32_t dtypes[] = {FB_F64, FB_F32, FB_BF16, FB_F16};
    static const double factors[] = {1.0, 1.0 / 65536, 1.0 / 3, 0x1p-100, 1024.0, 3.0e30};
    enum { N = 9000 };
    static uint8_t source[N * 8], target[N * 8 + 8], again[N * 8 + 8];
    size_t d, f, k, i;
    uint64_t random = seed + 3;
    (void)state;
    for (d = 0; d < 4; d++)
        for (f = 0; f < 6; f++) {
            int32_t dtype = dtypes[d], stored = dtype == FB_F16 ? FB_F32 : dtype;
            size_t source_bytes = oracle_part_bytes(dtype), bytes = oracle_part_bytes(stored), n = N - f;
            oracle_fill(dtype, source, n, f % 2 ? 0 : 1, &random);
            for (k = 0; k < kernel_count; k++) {
                fb_measure_result r = FB_MEASURE_RESULT_INIT, in_place = FB_MEASURE_RESULT_INIT;
                fb_view from = oracle_view(dtype, source, n), to = oracle_view(stored, target + 1, n);
                uint64_t bad = 0, source_bad = 0, bad_first = FB_NO_INDEX, source_first = FB_NO_INDEX;
                long double sum = 0.0L;
                double largest = 0.0;
                fb_error err;
                (void)fb_scan_kernel_use(kernels[k], NULL);
                assert_no_error(fb_unscale(&from, &to, factors[f], NULL, &r, &err), &err);
                for (i = 0; i < n; i++) {
                    oracle_value was = oracle_decode(dtype, oracle_get(dtype, source, i));
                    oracle_value is = oracle_decode(stored, oracle_get(stored, target + 1, i));
                    if (was.kind == FB_KIND_NONE) {
                        uint64_t want = product(dtype, oracle_get(dtype, source, i), factors[f]);
                        if (want != oracle_get(stored, target + 1, i))
                            fail_msg("%s %s times %g: 0x%llx became 0x%llx, expected 0x%llx", kernels[k], fb_dtype_name(dtype),
                                     factors[f], (unsigned long long)oracle_get(dtype, source, i),
                                     (unsigned long long)oracle_get(stored, target + 1, i), (unsigned long long)want);
                    } else {
                        assert_int_equal(was.kind, is.kind); /* a NaN never becomes an infinity, nor the reverse */
                        source_bad++;
                        if (source_first == FB_NO_INDEX) source_first = i;
                    }
                    if (is.kind != FB_KIND_NONE) {
                        bad++;
                        if (bad_first == FB_NO_INDEX) bad_first = i;
                    } else {
                        sum += (long double)is.value * (long double)is.value;
                        if (fabs(is.value) > largest) largest = fabs(is.value);
                    }
                }
                assert_int_equal(r.bad, bad);
                assert_int_equal(r.source_bad, source_bad);
                assert_true(r.first_index == bad_first && r.source_first_index == source_first);
                assert_true(r.abs_max == largest);
                if (!norm_is_close(r.sum_sq, r.sum_sq_exponent, sqrtl(sum))) fail_msg("norm of %s", kernels[k]);
                if (k == 0) memcpy(again, target, n * bytes + 1);
                assert_memory_equal(again, target, n * bytes + 1); /* kernels agree on every bit, payloads too */
                if (dtype == FB_F16) continue;
                memcpy(target + 1, source, n * source_bytes);
                assert_no_error(fb_unscale(&to, NULL, factors[f], NULL, &in_place, &err), &err);
                assert_memory_equal(again, target, n * bytes + 1);
                assert_memory_equal(&r, &in_place, sizeof r);
            }
        }
}

static void test_selftest__passes_with_every_kernel(void **state)
{
    size_t k;
    fb_error err;
    (void)state;
    for (k = 0; k < kernel_count; k++) {
        assert_int_equal(fb_scan_kernel_use(kernels[k], NULL), FB_OK);
        assert_no_error(fb_scan_selftest(&err), &err);
        assert_string_equal(fb_scan_kernel(), kernels[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selftest__passes_with_every_kernel),
        cmocka_unit_test(test_scan__every_code_of_every_small_format_is_judged_by_its_definition),
        cmocka_unit_test(test_scan__each_code_alone_among_the_largest_finite_ones_is_found_or_not),
        cmocka_unit_test(test_scan__every_short_length_at_every_alignment_gives_the_same_bits),
        cmocka_unit_test(test_scan__a_special_planted_at_any_position_is_found_there_with_its_payload),
        cmocka_unit_test(test_scan__random_arrays_of_many_blocks_agree_with_the_oracle_and_between_kernels),
        cmocka_unit_test(test_unscale__products_are_rounded_once_and_judged_as_stored_by_every_kernel),
    };
    seed = oracle_seed();
    kernel_count = oracle_kernels(kernels);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
