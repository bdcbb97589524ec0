/*
 * Dynamic loss scaling. The arithmetic is that of torch's _amp_update_scale_ kernel; see scaler.h.
 */
#include "policy/scaler.h"

#include "base/status.h"

#include <float.h>

/* Written so that a NaN fails: it is in no interval. */
static int in_fp32(double value)
{
    return value >= 0.0 && value <= (double)FLT_MAX;
}

fb_status fb_scaler_init(const fb_scaler_config *config, fb_scaler_state *state, fb_error *err)
{
    double floor_max;
    if (!config || !state) return fb_fail(err, FB_E_USAGE, "init scaler: expected a config and a state, found NULL");
    if (!config->enabled) {
        state->scale = 1.0;
        state->growth_tracker = 0;
        state->hysteresis_left = 1;
        return FB_OK;
    }
    if (!in_fp32(config->init_scale) || !((double)(float)config->init_scale > 0.0))
        return fb_fail(err, FB_E_USAGE, "init scaler: expected an initial scale above 0 that FP32 holds, found %g",
                       config->init_scale);
    if (!(config->growth_factor > 1.0) || !in_fp32(config->growth_factor))
        return fb_fail(err, FB_E_USAGE, "init scaler: expected a growth factor above 1, found %g", config->growth_factor);
    if (!(config->backoff_factor > 0.0 && config->backoff_factor < 1.0))
        return fb_fail(err, FB_E_USAGE, "init scaler: expected a back-off factor between 0 and 1, found %g",
                       config->backoff_factor);
    if (config->growth_interval < 1)
        return fb_fail(err, FB_E_USAGE, "init scaler: expected a growth interval of at least 1, found %d",
                       (int)config->growth_interval);
    if (config->hysteresis < 1)
        return fb_fail(err, FB_E_USAGE, "init scaler: expected a hysteresis of at least 1, found %d", (int)config->hysteresis);
    floor_max = (double)(float)config->init_scale;
    if (!(config->scale_min >= 0.0 && (double)(float)config->scale_min <= floor_max))
        return fb_fail(err, FB_E_USAGE, "init scaler: expected a floor between 0 and the initial scale %g, found %g", floor_max,
                       config->scale_min);
    state->scale = (double)(float)config->init_scale;
    state->growth_tracker = 0;
    state->hysteresis_left = config->hysteresis;
    return FB_OK;
}

fb_status fb_scaler_check(const fb_scaler_config *config, const fb_scaler_state *state, fb_error *err)
{
    if (!config || !state) return fb_fail(err, FB_E_USAGE, "check scaler: expected a config and a state, found NULL");
    if (!in_fp32(state->scale) || (double)(float)state->scale != state->scale)
        return fb_fail(err, FB_E_USAGE, "check scaler: expected a scale that FP32 holds exactly, found %g", state->scale);
    if (!config->enabled && state->scale != 1.0)
        return fb_fail(err, FB_E_USAGE, "check scaler: scaling is off, expected a scale of 1, found %g", state->scale);
    if (config->enabled && !(state->scale >= (double)(float)config->scale_min))
        return fb_fail(err, FB_E_USAGE, "check scaler: expected a scale of at least the floor %g, found %g", config->scale_min,
                       state->scale);
    if (state->growth_tracker < 0)
        return fb_fail(err, FB_E_USAGE, "check scaler: expected a growth tracker of at least 0, found %d",
                       (int)state->growth_tracker);
    if (state->hysteresis_left < 0 || (config->enabled && state->hysteresis_left > config->hysteresis))
        return fb_fail(err, FB_E_USAGE, "check scaler: expected 0 to %d overflows left of the hysteresis, found %d",
                       (int)config->hysteresis, (int)state->hysteresis_left);
    return FB_OK;
}

static void back_off(const fb_scaler_config *config, fb_scaler_state *state)
{
    double scale;
    state->growth_tracker = 0;
    if (state->hysteresis_left > 0) state->hysteresis_left--;
    if (state->hysteresis_left > 0) return;
    scale = (double)(float)(state->scale * config->backoff_factor);
    if (scale < (double)(float)config->scale_min) scale = (double)(float)config->scale_min;
    state->scale = scale;
}

static void count_clean(const fb_scaler_config *config, fb_scaler_state *state)
{
    double scale;
    /* Equality, as torch has it: a tracker loaded beyond the interval does not grow the scale before the next overflow. */
    if (state->growth_tracker < INT32_MAX) state->growth_tracker++;
    if (state->growth_tracker != config->growth_interval) return;
    state->growth_tracker = 0;
    state->hysteresis_left = config->hysteresis;
    /* Compared before the conversion: a double beyond FP32 has no defined conversion to float. The bound is the midpoint between
       the largest FP32 and 2^128, from which on rounding to nearest gives Inf. */
    scale = state->scale * config->growth_factor;
    if (scale < 0x1.ffffffp127) state->scale = (double)(float)scale;
}

void fb_scaler_update(const fb_scaler_config *config, fb_scaler_state *state, int32_t what)
{
    if (!config->enabled || what == FB_SCALER_FREEZE) return;
    if (what == FB_SCALER_CLEAN) count_clean(config, state);
    else back_off(config, state);
}
