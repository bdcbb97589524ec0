/*
 * The scaler against a second writing of the two published algorithms (torch's kernel; Megatron-LM's DynamicGradScaler), over
 * random constants and random overflows, and the invariants that hold whatever happens.
 */
#include "policy/scaler.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state;

static uint64_t next_random(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double uniform(void)
{
    return (double)(next_random() >> 11) * 0x1p-53;
}

static void seed_test(uint64_t seed)
{
    const char *wish = getenv("FB_SEED");
    random_state = wish ? strtoull(wish, NULL, 10) : seed;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)random_state);
}

static fb_scaler_config random_config(int hysteresis, int with_floor)
{
    fb_scaler_config config = FB_SCALER_CONFIG_INIT;
    double init = 1.0;
    int doublings = (int)(next_random() % 140) - 20;
    for (; doublings > 0 && init < 0x1p126; doublings--) init *= 2.0;
    for (; doublings < 0; doublings++) init *= 0.5;
    config.enabled = 1;
    config.init_scale = init * (1.0 + uniform());
    config.growth_factor = 1.0001 + 3.0 * uniform();
    config.backoff_factor = 0.01 + 0.98 * uniform();
    config.growth_interval = 1 + (int32_t)(next_random() % 20);
    config.hysteresis = hysteresis ? 1 + (int32_t)(next_random() % 4) : 1;
    if (with_floor) config.scale_min = config.init_scale * uniform();
    return config;
}

/* The CPU kernel of torch, in its own shape: scale in float, product in double, one rounding. */
static void torch_step(float *scale, int *tracker, int found_inf, double growth, double backoff, int interval)
{
    if (found_inf) {
        *scale = (float)(*scale * backoff);
        *tracker = 0;
    } else if (*tracker + 1 == interval) {
        double grown = *scale * growth;
        if (grown < 0x1.ffffffp127) *scale = (float)grown;
        *tracker = 0;
    } else {
        *tracker += 1;
    }
}

static void test_scaler__equals_torchs_kernel_for_random_constants(void **unused)
{
    int trial, i;
    (void)unused;
    seed_test(41);
    for (trial = 0; trial < 300; trial++) {
        fb_scaler_config config = random_config(0, 0);
        fb_scaler_state state;
        double share = uniform() * uniform();
        float scale = (float)config.init_scale;
        int tracker = 0;
        assert_int_equal(fb_scaler_init(&config, &state, NULL), FB_OK);
        for (i = 0; i < 500; i++) {
            int bad = uniform() < share;
            torch_step(&scale, &tracker, bad, config.growth_factor, config.backoff_factor, config.growth_interval);
            fb_scaler_update(&config, &state, bad ? FB_SCALER_OVERFLOW : FB_SCALER_CLEAN);
            assert_true(state.scale == (double)scale);
            assert_int_equal(state.growth_tracker, tracker);
        }
    }
}

static void test_scaler__equals_megatrons_hysteresis_for_random_constants(void **unused)
{
    int trial, i;
    (void)unused;
    seed_test(42);
    for (trial = 0; trial < 300; trial++) {
        fb_scaler_config config = random_config(1, 1);
        fb_scaler_state state;
        double share = uniform() * uniform();
        float scale = (float)config.init_scale, floor = (float)config.scale_min;
        int growth_tracker = 0, hysteresis_tracker = config.hysteresis;
        assert_int_equal(fb_scaler_init(&config, &state, NULL), FB_OK);
        for (i = 0; i < 500; i++) {
            int found_inf = uniform() < share;
            if (found_inf) {
                growth_tracker = 0;
                hysteresis_tracker -= 1;
                if (hysteresis_tracker <= 0) {
                    scale = (float)(scale * config.backoff_factor);
                    if (scale < floor) scale = floor;
                }
            } else {
                growth_tracker += 1;
                if (growth_tracker == config.growth_interval) {
                    growth_tracker = 0;
                    hysteresis_tracker = config.hysteresis;
                    if (scale * config.growth_factor < 0x1.ffffffp127) scale = (float)(scale * config.growth_factor);
                }
            }
            fb_scaler_update(&config, &state, found_inf ? FB_SCALER_OVERFLOW : FB_SCALER_CLEAN);
            assert_true(state.scale == (double)scale);
            assert_int_equal(state.growth_tracker, growth_tracker);
            assert_int_equal(state.hysteresis_left, hysteresis_tracker > 0 ? hysteresis_tracker : 0);
        }
    }
}

static void test_scaler__every_state_it_reaches_is_one_it_accepts_back(void **unused)
{
    int trial, i;
    (void)unused;
    seed_test(43);
    for (trial = 0; trial < 300; trial++) {
        fb_scaler_config config = random_config(1, trial % 2);
        fb_scaler_state state;
        assert_int_equal(fb_scaler_init(&config, &state, NULL), FB_OK);
        for (i = 0; i < 300; i++) {
            double before = state.scale;
            int32_t what = (int32_t)(next_random() % 3);
            fb_scaler_update(&config, &state, what);
            assert_int_equal(fb_scaler_check(&config, &state, NULL), FB_OK);
            assert_true(state.scale >= (double)(float)config.scale_min && state.scale <= (double)FLT_MAX);
            assert_true((double)(float)state.scale == state.scale);
            if (what == FB_SCALER_CLEAN) assert_true(state.scale >= before);
            if (what == FB_SCALER_OVERFLOW) assert_true(state.scale <= before);
            if (what == FB_SCALER_FREEZE) assert_true(state.scale == before);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaler__equals_torchs_kernel_for_random_constants),
        cmocka_unit_test(test_scaler__equals_megatrons_hysteresis_for_random_constants),
        cmocka_unit_test(test_scaler__every_state_it_reaches_is_one_it_accepts_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
