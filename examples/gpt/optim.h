/*
 * optim.h: AdamW, the learning rate, and the coefficient that clips a gradient by its global norm.
 *
 * The update is a row of elementary operators (adamw_stage), in the order in which torch.optim.AdamW runs them. Training runs them
 * fused, one element through all of them; a replay runs them one after the other over a tensor, so that each can be looked at. The
 * numbers are the same to the bit.
 */
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

/* What one update computes with; adamw_numbers_of fills it for the next update. */
typedef struct adamw_numbers {
    double learning_rate, beta1, beta2, epsilon, weight_decay, coefficient;
    int64_t updates;   /* that the bias correction takes: 1 for the first update */
    precision moments; /* format of the moments and of all that is computed from them; FP32, unless somebody chose another */
} adamw_numbers;
adamw_numbers adamw_numbers_of(const adamw *optimizer, double learning_rate, double coefficient);

/* The same, as it is used: equal for all elements of a tensor. */
typedef struct adamw_factors {
    double correction1, correction2, root_correction, step_size; /* in FP64 */
    float coefficient, decay, beta1, beta2, rest1, rest2;        /* rest: 1 - beta */
    float epsilon, root, size;                                   /* root_correction and step_size in FP32 */
} adamw_factors;
adamw_factors adamw_factors_of(const adamw_numbers *numbers, int decays);

/* The elementary operators of an update, in their order. What each reads and makes: */
typedef enum adamw_stage {
    STAGE_CLIP,        /* gradient * coefficient -> clipped */
    STAGE_DECAY,       /* parameter * decay -> decayed */
    STAGE_EXP_AVG,     /* exp_avg + rest1 * (clipped - exp_avg) -> exp_avg */
    STAGE_SQ_DECAY,    /* exp_avg_sq * beta2 -> decayed_sq */
    STAGE_EXP_AVG_SQ,  /* decayed_sq + rest2 * clipped * clipped -> exp_avg_sq */
    STAGE_ROOT,        /* sqrt(exp_avg_sq) -> root */
    STAGE_CORRECT,     /* root / root_correction -> corrected */
    STAGE_DENOMINATOR, /* corrected + epsilon -> denominator */
    STAGE_RATIO,       /* exp_avg / denominator -> ratio */
    STAGE_STEP,        /* ratio * step_size -> change */
    STAGE_PARAMETER,   /* decayed - change -> parameter */
    ADAMW_STAGES
} adamw_stage;

/* One stage over n elements: out from a and, where it reads two, b. out may be a or b. Rounded to
 * `format`, moments' stages only. */
void adamw_run_stage(adamw_stage stage, const adamw_factors *factors, precision format, float *out, const float *a, const float *b,
                     size_t n);

/*
 * One update of parameters and moments (Loshchilov and Hutter: Decoupled Weight Decay Regularization, 2019), in the order of
 * operations of torch.optim.AdamW. Tensors of one dimension do not decay. The gradient is multiplied with the coefficient on the
 * way in.
 */
void adamw_update(adamw *optimizer, gpt_model *model, double learning_rate, double coefficient);
void adamw_update_with(adamw *optimizer, gpt_model *model, const adamw_numbers *numbers);
/* What an update works on: arrays in the layout of the parameters. */
typedef struct adamw_state {
    float *parameters, *exp_avg, *exp_avg_sq;
} adamw_state;
/* The same update of `from`, written to `to`, which may be `from` itself; only the gradients are the model's. */
void adamw_write(const gpt_model *model, adamw_state from, adamw_state to, const adamw_numbers *numbers);

#endif
