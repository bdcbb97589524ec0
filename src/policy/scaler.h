/*
 * Dynamic loss scaling, step by step equal to torch.amp.GradScaler, with the hysteresis of Megatron-LM and DeepSpeed and a floor.
 * Pure: the caller holds the state. Order: fb_scaler_init once, then fb_scaler_update at the end of each update.
 *
 * The scale is an FP32 number, as torch's is; products are formed in FP64 and rounded once to FP32, as torch's kernel does. A
 * growth that would leave FP32 is not taken and the growth tracker starts again; a back-off may reach 0 when there is no floor, as
 * torch's. Hysteresis: the scale backs off at the `hysteresis`-th overflow since the last growth interval was completed, and at
 * each further one until the next is; clean updates in between do not refill it (Megatron-LM DynamicGradScaler; DeepSpeed
 * DynamicLossScaler with consecutive_hysteresis off). With 1 every overflow backs off, which is torch.
 */
#ifndef FB_POLICY_SCALER_H
#define FB_POLICY_SCALER_H

#include "firstbad/firstbad.h"

/* What the update did to the scaler. */
enum {
    FB_SCALER_CLEAN = 0,    /* the gradients were finite and the update was made */
    FB_SCALER_OVERFLOW = 1, /* the gradients were not: count it, and back off */
    FB_SCALER_FREEZE = 2    /* the update was withheld for a reason that is not the scale's: nothing moves, tracker included */
};

/* Errors: FB_E_USAGE for NULL, and where enabled: a scale outside FP32 or not above 0, growth not above 1, back-off outside (0, 1),
   an interval or hysteresis below 1, a floor below 0 or above the initial scale. Not enabled: the scale is 1 and never moves. */
fb_status fb_scaler_init(const fb_scaler_config *config, fb_scaler_state *state, fb_error *err);

/* Whether a state (from a checkpoint) can be continued: FB_OK or FB_E_USAGE. A scale of 0 is legal where there is no floor. */
fb_status fb_scaler_check(const fb_scaler_config *config, const fb_scaler_state *state, fb_error *err);

/* Move the scale by one update. what: FB_SCALER_*. An unknown `what` counts as FB_SCALER_OVERFLOW: never as clean. */
void fb_scaler_update(const fb_scaler_config *config, fb_scaler_state *state, int32_t what);

#endif
