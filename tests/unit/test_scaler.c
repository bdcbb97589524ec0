/* The loss scaler: replays of real torch.amp.GradScaler traces bit for bit, hysteresis, floor, freeze, and refusals. */
#include "policy/scaler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(double scale)
{
    float narrow = (float)scale;
    uint32_t bits;
    assert_true((double)narrow == scale);
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

/* ---- traces of torch --------------------------------------------------------------------------------------------------------- */

typedef struct replay {
    fb_scaler_config config;
    fb_scaler_state state;
    char name[64];
    int traces, updates, overflows;
} replay;

static void start_trace(replay *r, const char *line)
{
    double init, growth, backoff;
    int interval, tracker;
    fb_error err;
    assert_int_equal(sscanf(line, "trace %63s init=%la growth=%la backoff=%la interval=%d tracker=%d", r->name, &init, &growth,
                            &backoff, &interval, &tracker),
                     6);
    r->config.size = (uint32_t)sizeof r->config;
    r->config.enabled = 1;
    r->config.init_scale = init;
    r->config.growth_factor = growth;
    r->config.backoff_factor = backoff;
    r->config.growth_interval = interval;
    r->config.hysteresis = 1;
    r->config.scale_min = 0.0;
    assert_int_equal(fb_scaler_init(&r->config, &r->state, &err), FB_OK);
    r->state.growth_tracker = tracker;
    assert_int_equal(fb_scaler_check(&r->config, &r->state, &err), FB_OK);
    r->traces++;
}

static void expect(replay *r, int32_t what, int32_t tracker, uint32_t scale)
{
    fb_scaler_update(&r->config, &r->state, what);
    r->updates++;
    r->overflows += what == FB_SCALER_OVERFLOW;
    if (r->state.growth_tracker != tracker || bits_of(r->state.scale) != scale)
        fail_msg("trace %s, update %d: torch has tracker %d and scale %08x, ours %d and %08x", r->name, r->updates, (int)tracker,
                 (unsigned)scale, (int)r->state.growth_tracker, (unsigned)bits_of(r->state.scale));
}

static void play_token(replay *r, const char *token)
{
    int n, found, tracker;
    unsigned scale;
    if (sscanf(token, "+%d", &n) == 1 && token[0] == '+') {
        while (n-- > 0) expect(r, FB_SCALER_CLEAN, r->state.growth_tracker + 1, bits_of(r->state.scale));
        return;
    }
    assert_int_equal(sscanf(token, "%d:%d=%x", &found, &tracker, &scale), 3);
    expect(r, found ? FB_SCALER_OVERFLOW : FB_SCALER_CLEAN, tracker, scale);
}

static void test_scaler__replays_traces_of_torch_bit_for_bit(void **unused)
{
    FILE *file = fopen("tests/golden/scaler/traces.txt", "r");
    char line[512], *token;
    replay r;
    (void)unused;
    assert_non_null(file);
    memset(&r, 0, sizeof r);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || strncmp(line, "end", 3) == 0) continue;
        if (strncmp(line, "trace ", 6) == 0) {
            start_trace(&r, line);
            continue;
        }
        for (token = strtok(line, " \n"); token; token = strtok(NULL, " \n")) play_token(&r, token);
    }
    (void)fclose(file);
    print_message("replayed %d traces, %d updates, %d overflows\n", r.traces, r.updates, r.overflows);
    assert_true(r.traces >= 30 && r.updates >= 10000 && r.overflows >= 500);
}

/* ---- what torch does not have ------------------------------------------------------------------------------------------------ */

static fb_scaler_config small(int32_t interval, int32_t hysteresis, double floor)
{
    fb_scaler_config config = FB_SCALER_CONFIG_INIT;
    config.enabled = 1;
    config.init_scale = 1024.0;
    config.growth_interval = interval;
    config.hysteresis = hysteresis;
    config.scale_min = floor;
    return config;
}

static fb_scaler_state started(const fb_scaler_config *config)
{
    fb_scaler_state state;
    assert_int_equal(fb_scaler_init(config, &state, NULL), FB_OK);
    return state;
}

/* One character an update: '.' clean, 'x' overflow, 'f' freeze. */
static void play(const fb_scaler_config *config, fb_scaler_state *state, const char *updates)
{
    for (; *updates; updates++) {
        int32_t what = *updates == '.' ? FB_SCALER_CLEAN : FB_SCALER_OVERFLOW;
        fb_scaler_update(config, state, *updates == 'f' ? FB_SCALER_FREEZE : what);
    }
}

static void test_scaler__hysteresis_lets_the_first_overflows_pass_without_back_off(void **unused)
{
    fb_scaler_config config = small(10, 3, 0.0);
    fb_scaler_state state = started(&config);
    (void)unused;
    play(&config, &state, "xx");
    assert_true(state.scale == 1024.0);
    assert_int_equal(state.hysteresis_left, 1);
    play(&config, &state, "x");
    assert_true(state.scale == 512.0);
    play(&config, &state, "x"); /* spent: from here on each overflow backs off */
    assert_true(state.scale == 256.0);
}

static void test_scaler__clean_updates_do_not_refill_the_hysteresis_and_a_growth_interval_does(void **unused)
{
    fb_scaler_config config = small(4, 2, 0.0);
    fb_scaler_state state = started(&config);
    (void)unused;
    play(&config, &state, "x...x"); /* three clean ones in between are no interval */
    assert_true(state.scale == 512.0);
    play(&config, &state, "....");
    assert_true(state.scale == 1024.0);
    assert_int_equal(state.hysteresis_left, 2);
    play(&config, &state, "x");
    assert_true(state.scale == 1024.0);
}

static void test_scaler__the_scale_does_not_fall_below_its_floor(void **unused)
{
    fb_scaler_config config = small(10, 1, 100.0);
    fb_scaler_state state = started(&config);
    (void)unused;
    play(&config, &state, "xxx");
    assert_true(state.scale == 128.0);
    play(&config, &state, "x");
    assert_true(state.scale == 100.0);
    play(&config, &state, "xxxx");
    assert_true(state.scale == 100.0);
}

static void test_scaler__a_frozen_update_moves_nothing(void **unused)
{
    fb_scaler_config config = small(4, 2, 0.0);
    fb_scaler_state state = started(&config), before;
    (void)unused;
    play(&config, &state, "x..");
    before = state;
    play(&config, &state, "fffff");
    assert_true(state.scale == before.scale);
    assert_int_equal(state.growth_tracker, before.growth_tracker);
    assert_int_equal(state.hysteresis_left, before.hysteresis_left);
    play(&config, &state, "..");
    assert_true(state.scale == 2048.0); /* the interval went on where it was */
}

static void test_scaler__an_unknown_kind_of_update_is_never_taken_as_clean(void **unused)
{
    fb_scaler_config config = small(4, 1, 0.0);
    fb_scaler_state state = started(&config);
    (void)unused;
    fb_scaler_update(&config, &state, 77);
    assert_true(state.scale == 512.0);
}

static void test_scaler__without_scaling_the_scale_stays_one(void **unused)
{
    fb_scaler_config config = FB_SCALER_CONFIG_INIT;
    fb_scaler_state state = started(&config);
    (void)unused;
    play(&config, &state, "x.x.xxxx....");
    assert_true(state.scale == 1.0);
    assert_int_equal(fb_scaler_check(&config, &state, NULL), FB_OK);
}

static double make_nan(void)
{
    uint64_t bits = UINT64_C(0x7ff8000000000000);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void refuse(fb_scaler_config config, const char *word)
{
    fb_scaler_state state = {7.0, 7, 7};
    fb_error err;
    assert_int_equal(fb_scaler_init(&config, &state, &err), FB_E_USAGE);
    assert_int_equal(err.code, FB_E_USAGE);
    if (!strstr(err.message, word)) fail_msg("expected \"%s\" in: %s", word, err.message);
    assert_true(state.scale == 7.0 && state.growth_tracker == 7);
}

static void test_scaler__constants_that_cannot_work_are_refused_with_a_sentence(void **unused)
{
    const double bad_init[] = {0.0, -1.0, 1e39, 1e-50, make_nan()};
    const double bad_growth[] = {1.0, 0.5, 1e40, make_nan()};
    const double bad_backoff[] = {0.0, 1.0, 2.0, -0.5, make_nan()};
    const double bad_floor[] = {-1.0, 2048.0, make_nan()};
    size_t i;
    fb_scaler_config config;
    (void)unused;
    for (i = 0; i < sizeof bad_init / sizeof bad_init[0]; i++) {
        config = small(4, 1, 0.0), config.init_scale = bad_init[i];
        refuse(config, "initial scale");
    }
    for (i = 0; i < sizeof bad_growth / sizeof bad_growth[0]; i++) {
        config = small(4, 1, 0.0), config.growth_factor = bad_growth[i];
        refuse(config, "growth factor");
    }
    for (i = 0; i < sizeof bad_backoff / sizeof bad_backoff[0]; i++) {
        config = small(4, 1, 0.0), config.backoff_factor = bad_backoff[i];
        refuse(config, "back-off factor");
    }
    for (i = 0; i < sizeof bad_floor / sizeof bad_floor[0]; i++) refuse(small(4, 1, bad_floor[i]), "floor");
    refuse(small(0, 1, 0.0), "growth interval");
    refuse(small(4, 0, 0.0), "hysteresis");
    assert_int_equal(fb_scaler_init(NULL, NULL, NULL), FB_E_USAGE);
}

static void test_scaler__a_state_that_no_run_of_it_can_reach_is_refused(void **unused)
{
    fb_scaler_config config = small(4, 2, 100.0), off = FB_SCALER_CONFIG_INIT;
    const fb_scaler_state bad[] = {{make_nan(), 0, 1}, {-1.0, 0, 1},   {1e39, 0, 1},  {1024.1, 0, 1},
                                   {99.0, 0, 1},       {128.0, -1, 1}, {128.0, 0, 3}, {128.0, 0, -1}};
    const fb_scaler_state good = {128.0, 3, 0}, scaled = {2.0, 0, 1};
    fb_error err;
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fb_scaler_check(&config, &bad[i], &err), FB_E_USAGE);
        assert_true(strlen(err.message) > 20);
    }
    assert_int_equal(fb_scaler_check(&config, &good, &err), FB_OK);
    assert_int_equal(fb_scaler_check(&off, &scaled, &err), FB_E_USAGE);
    assert_int_equal(fb_scaler_check(&config, NULL, NULL), FB_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaler__replays_traces_of_torch_bit_for_bit),
        cmocka_unit_test(test_scaler__hysteresis_lets_the_first_overflows_pass_without_back_off),
        cmocka_unit_test(test_scaler__clean_updates_do_not_refill_the_hysteresis_and_a_growth_interval_does),
        cmocka_unit_test(test_scaler__the_scale_does_not_fall_below_its_floor),
        cmocka_unit_test(test_scaler__a_frozen_update_moves_nothing),
        cmocka_unit_test(test_scaler__an_unknown_kind_of_update_is_never_taken_as_clean),
        cmocka_unit_test(test_scaler__without_scaling_the_scale_stays_one),
        cmocka_unit_test(test_scaler__constants_that_cannot_work_are_refused_with_a_sentence),
        cmocka_unit_test(test_scaler__a_state_that_no_run_of_it_can_reach_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
