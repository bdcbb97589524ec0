/* optim.h: AdamW, the learning rate, and the coefficient that clips a gradient by its global norm. */
#ifndef GPT_OPTIM_H
#define GPT_OPTIM_H

#include "model.h"

typedef struct adamw {
    double learning_rate_max, learning_rate_min, beta1, beta2, epsilon, weight_decay, clip;
    int64_t warmup_steps, decay_steps;
    float *exp_avg, *exp_avg_sq; /* in the layout of the parameters */
    int64_t updates;             /* applied so far: a skipped step does not count, so bias correction stays right */
} adamw;

/* Returns 0, or -1 when memory is short. The numbers are set by the caller before or after. */
int adamw_open(adamw *optimizer, size_t parameter_count);
void adamw_close(adamw *optimizer);

/* Linear warm-up, then half a cosine down to the minimum. A function of the step (1, 2, ...) alone: a skipped step moves it too. */
double adamw_learning_rate(const adamw *optimizer, int64_t step);

/* What gradients are multiplied with: clip / norm where the norm is larger, else 1. A norm that is NaN gives NaN, never 1. */
double adamw_clip_coefficient(const adamw *optimizer, double norm);

/*
 * One update of parameters and moments (Loshchilov and Hutter: Decoupled Weight Decay Regularization, 2019), in the order of
 * operations of torch.optim.AdamW. Tensors of one dimension do not decay. The gradient is multiplied with `coefficient` on the way
 * in.
 */
void adamw_update(adamw *optimizer, gpt_model *model, double learning_rate, double coefficient);

#endif
