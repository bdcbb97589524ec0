/* The numbers below the model: rounding to 16 bits, random streams, elementary functions, the matrix product. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "elementary.h"
#include "matmul.h"
#include "precision.h"
#include "rng.h"

static uint64_t random_state;

static uint32_t random_bits(void)
{
    random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

static void seed_random(uint64_t seed)
{
    random_state = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
}

/* Round to a format with `fraction` bits and smallest exponent `low`, in double, straight from the definition. */
static double rounded(double x, int fraction, int low, double largest)
{
    int exponent;
    double step, result;
    (void)frexp(x, &exponent);
    exponent = exponent - 1 < low ? low : exponent - 1;
    step = ldexp(1.0, exponent - fraction);
    result = nearbyint(x / step) * step;
    return fabs(result) > largest ? copysign(INFINITY, x) : result;
}

static void assert_same_bits(float found, float expected, float of)
{
    if (float_bits(found) != float_bits(expected))
        fail_msg("rounding %a (%08x): found %a, expected %a", (double)of, float_bits(of), (double)found, (double)expected);
}

static void test_precision__rounding_is_to_nearest_even_in_both_formats(void **state)
{
    (void)state;
    seed_random(20240501);
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = random_bits();
        if (i % 2) /* half of them near the edges of binary16 */
            bits = (bits & 0x80ffffffu) | (0x33u + (bits >> 24) % 0x16u) << 24;
        if (i % 5 == 0) /* ties */
            bits &= 0xfffff000u;
        float x = float_from_bits(bits);
        if ((bits & 0x7f800000u) == 0x7f800000u) continue;
        assert_same_bits(round_fp16(x), (float)rounded((double)x, 10, -14, 65504.0), x);
        assert_same_bits(round_bf16(x), (float)rounded((double)x, 7, -126, (double)precision_max(PRECISION_BF16)), x);
    }
}

static void test_precision__non_finite_values_keep_their_kind(void **state)
{
    (void)state;
    const float inf = float_from_bits(0x7f800000u);
    assert_same_bits(round_fp16(inf), inf, inf);
    assert_same_bits(round_bf16(-inf), -inf, -inf);
    for (uint32_t payload = 1; payload < 0x800000u; payload += 997) {
        float nan = float_from_bits(0x7f800000u | payload);
        assert_true((float_bits(round_fp16(nan)) & 0x7fffffffu) > 0x7f800000u);
        assert_true((float_bits(round_bf16(nan)) & 0x7fffffffu) > 0x7f800000u);
        assert_true((precision_pack_one(PRECISION_FP16, round_fp16(nan)) & 0x7fffu) > 0x7c00u);
    }
}

static void test_precision__fp16_ends_at_65504(void **state)
{
    (void)state;
    assert_same_bits(round_fp16(65519.996f), 65504.0f, 65519.996f);
    assert_same_bits(round_fp16(65520.0f), float_from_bits(0x7f800000u), 65520.0f);
    assert_same_bits(round_fp16(2.9802322e-8f), 0.0f, 2.9802322e-8f); /* 2^-25: a tie, to even */
    assert_same_bits(round_fp16(2.9802326e-8f), 5.9604645e-8f, 2.9802326e-8f);
}

static void test_precision__every_16_bit_pattern_survives_unpack_and_pack(void **state)
{
    (void)state;
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
        uint16_t bits = (uint16_t)pattern, back;
        float x;
        precision_unpack(PRECISION_FP16, &x, &bits, 1);
        precision_pack(PRECISION_FP16, &back, &x, 1);
        assert_int_equal(back, bits);
        precision_unpack(PRECISION_BF16, &x, &bits, 1);
        precision_pack(PRECISION_BF16, &back, &x, 1);
        assert_int_equal(back, bits);
    }
}

static void test_precision__sum_of_finite_halves_overflows(void **state)
{
    (void)state;
    uint16_t sum[3] = {0x7a00, 0x7a00, 0xfa00}, more[3] = {0x7a00, 0xfa00, 0xfa00}; /* 49152 */
    precision_accumulate_packed(PRECISION_FP16, sum, more, 3);
    assert_int_equal(sum[0], 0x7c00);
    assert_int_equal(sum[1], 0);
    assert_int_equal(sum[2], 0xfc00);
}

/* Known answers of philox4x32-10 from the Random123 distribution (kat_vectors). */
static void test_rng__philox_gives_the_published_answers(void **state)
{
    (void)state;
    static const struct {
        rng_stream stream;
        uint64_t first;
        uint32_t expected[4];
    } known[3] = {
        {{0, RNG_INIT, 0, 0, 0, 0}, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
        {{UINT64_MAX, (rng_site)7, 0x1fff, 0xffff, 0xffffffffu, 0xffffffffu},
         4 * (uint64_t)0xffffffffu,
         {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
        {{0x299f31d0a4093822u, (rng_site)4, 0x5a3, 0x08d3, 0x13198a2eu, 0x03707344u},
         4 * (uint64_t)0x243f6a88u,
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t found[4];
        rng_draw(&known[i].stream, known[i].first, found, 4);
        assert_memory_equal(found, known[i].expected, sizeof found);
    }
}

static void test_rng__a_part_of_a_stream_is_drawn_alone(void **state)
{
    (void)state;
    rng_stream stream = {.seed = 5, .site = RNG_DATA, .layer = 3, .step = 9, .rank = 2};
    uint32_t all[300], part[70];
    rng_draw(&stream, 0, all, 300);
    for (uint64_t first = 0; first < 200; first++) {
        rng_draw(&stream, first, part, 70);
        assert_memory_equal(part, all + first, sizeof part);
    }
}

static void test_rng__streams_of_other_places_differ(void **state)
{
    (void)state;
    const rng_stream base = {.seed = 5, .site = RNG_DATA, .layer = 3, .micro_step = 1, .step = 9, .rank = 2};
    rng_stream other[6] = {base, base, base, base, base, base};
    uint32_t first[4], next[4];
    other[0].seed++, other[1].site = RNG_DROP_ATTENTION, other[2].layer++, other[3].micro_step++, other[4].step++, other[5].rank++;
    rng_draw(&base, 0, first, 4);
    for (size_t i = 0; i < 6; i++) {
        rng_draw(&other[i], 0, next, 4);
        assert_memory_not_equal(first, next, sizeof first);
    }
}

static void test_rng__dropout_keeps_the_share_and_the_mean(void **state)
{
    (void)state;
    enum { N = 100000 };
    static float x[N];
    double sum = 0.0;
    int dropped = 0;
    rng_stream stream = {.seed = 11, .site = RNG_DROP_MLP_OUT};
    for (int i = 0; i < N; i++) x[i] = 1.0f;
    dropout(&stream, 0, 0.25f, x, N);
    for (int i = 0; i < N; i++) {
        dropped += x[i] == 0.0f;
        sum += (double)x[i];
    }
    assert_true(abs(dropped - N / 4) < 700); /* five deviations are 685 */
    assert_true(fabs(sum / N - 1.0) < 0.01);
}

static void test_elementary__exp_is_within_two_units_in_the_last_place(void **state)
{
    (void)state;
    for (int i = -63500; i < 64700; i++) {
        float x = (float)i * 0.00137f;
        double exact = exp((double)x), found = (double)exp_float(x);
        if (!(fabs(found - exact) <= 2.0 * 5.97e-8 * 2.0 * exact))
            fail_msg("exp(%a): found %a, expected %a", (double)x, found, exact);
    }
}

static void test_elementary__exp_and_tanh_at_the_ends(void **state)
{
    (void)state;
    const float inf = float_from_bits(0x7f800000u), nan = float_from_bits(0x7fc00000u);
    assert_int_equal(float_bits(exp_float(inf)), 0x7f800000u);
    assert_int_equal(float_bits(exp_float(90.0f)), 0x7f800000u);
    assert_int_equal(float_bits(exp_float(-inf)), 0);
    assert_int_equal(float_bits(exp_float(-200.0f)), 0);
    assert_true((float_bits(exp_float(nan)) & 0x7fffffffu) > 0x7f800000u);
    assert_true((float_bits(tanh_float(nan)) & 0x7fffffffu) > 0x7f800000u);
    assert_true(tanh_float(inf) == 1.0f && tanh_float(-inf) == -1.0f);
    for (int i = -600; i < 600; i++) {
        float x = (float)i * 0.0173f;
        assert_true(fabs((double)tanh_float(x) - tanh((double)x)) <= 2e-7);
    }
}

static void test_matmul__equals_the_plain_sum_bit_by_bit_in_every_shape(void **state)
{
    (void)state;
    enum { LIMIT = 40 };
    static float a[LIMIT * LIMIT], b[LIMIT * (LIMIT + 3)], out[LIMIT * (LIMIT + 1)], expected[LIMIT * (LIMIT + 1)];
    seed_random(7);
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) a[i] = (float)random_bits() / 4294967296.0f - 0.5f;
    for (size_t i = 0; i < sizeof b / sizeof *b; i++) b[i] = (float)random_bits() / 4294967296.0f - 0.5f;
    for (int round = 0; round < 600; round++) {
        size_t M = 1 + random_bits() % LIMIT, N = 1 + random_bits() % LIMIT, K = 1 + random_bits() % LIMIT;
        bool transposed = round % 2, accumulate = round % 3 == 0;
        matrix left = transposed ? (matrix){a, 1, LIMIT} : (matrix){a, LIMIT, 1};
        for (size_t i = 0; i < LIMIT * (LIMIT + 1); i++) out[i] = expected[i] = 0.25f;
        for (size_t m = 0; m < M; m++) {
            for (size_t n = 0; n < N; n++) {
                float sum = accumulate ? expected[m * (LIMIT + 1) + n] : 0.0f;
                for (size_t k = 0; k < K; k++) sum += a[m * left.row + k * left.col] * b[k * (LIMIT + 3) + n];
                expected[m * (LIMIT + 1) + n] = sum;
            }
        }
        matmul(out, LIMIT + 1, left, b, LIMIT + 3, M, N, K, accumulate);
        assert_memory_equal(out, expected, sizeof out); /* what lies beside the result is untouched, too */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precision__rounding_is_to_nearest_even_in_both_formats),
        cmocka_unit_test(test_precision__non_finite_values_keep_their_kind),
        cmocka_unit_test(test_precision__fp16_ends_at_65504),
        cmocka_unit_test(test_precision__every_16_bit_pattern_survives_unpack_and_pack),
        cmocka_unit_test(test_precision__sum_of_finite_halves_overflows),
        cmocka_unit_test(test_rng__philox_gives_the_published_answers),
        cmocka_unit_test(test_rng__a_part_of_a_stream_is_drawn_alone),
        cmocka_unit_test(test_rng__streams_of_other_places_differ),
        cmocka_unit_test(test_rng__dropout_keeps_the_share_and_the_mean),
        cmocka_unit_test(test_elementary__exp_is_within_two_units_in_the_last_place),
        cmocka_unit_test(test_elementary__exp_and_tanh_at_the_ends),
        cmocka_unit_test(test_matmul__equals_the_plain_sum_bit_by_bit_in_every_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
