/* optim.c: see optim.h. */
#include "optim.h"
#include "clones.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int adamw_open(adamw *optimizer, size_t parameter_count)
{
    optimizer->exp_avg = calloc(parameter_count, sizeof *optimizer->exp_avg);
    optimizer->exp_avg_sq = calloc(parameter_count, sizeof *optimizer->exp_avg_sq);
    optimizer->updates = 0;
    return optimizer->exp_avg && optimizer->exp_avg_sq ? 0 : -1;
}

void adamw_close(adamw *optimizer)
{
    free(optimizer->exp_avg);
    free(optimizer->exp_avg_sq);
    optimizer->exp_avg = optimizer->exp_avg_sq = NULL;
}

double adamw_learning_rate(const adamw *o, int64_t step)
{
    if (step <= o->warmup_steps) return o->learning_rate_max * (double)step / (double)o->warmup_steps;
    if (step >= o->decay_steps) return o->learning_rate_min;
    double done = (double)(step - o->warmup_steps) / (double)(o->decay_steps - o->warmup_steps);
    return o->learning_rate_min + 0.5 * (1.0 + cos(3.141592653589793 * done)) * (o->learning_rate_max - o->learning_rate_min);
}

double adamw_clip_coefficient(const adamw *o, double norm)
{
    if (!(o->clip > 0.0) || norm <= o->clip) return 1.0;
    return o->clip / norm;
}

adamw_numbers adamw_numbers_of(const adamw *o, double learning_rate, double coefficient)
{
    return (adamw_numbers){.learning_rate = learning_rate,
                           .beta1 = o->beta1,
                           .beta2 = o->beta2,
                           .epsilon = o->epsilon,
                           .weight_decay = o->weight_decay,
                           .coefficient = coefficient,
                           .updates = o->updates + 1,
                           .moments = PRECISION_FP32};
}

adamw_factors adamw_factors_of(const adamw_numbers *n, int decays)
{
    adamw_factors f = {.correction1 = 1.0 - pow(n->beta1, (double)n->updates),
                       .correction2 = 1.0 - pow(n->beta2, (double)n->updates)};
    f.root_correction = sqrt(f.correction2);
    f.step_size = n->learning_rate / f.correction1;
    f.coefficient = (float)n->coefficient;
    f.decay = decays ? (float)(1.0 - n->learning_rate * n->weight_decay) : 1.0f;
    f.beta1 = (float)n->beta1;
    f.beta2 = (float)n->beta2;
    f.rest1 = 1.0f - f.beta1;
    f.rest2 = 1.0f - f.beta2;
    f.epsilon = (float)n->epsilon;
    f.root = (float)f.root_correction;
    f.size = (float)f.step_size;
    precision_round(n->moments, &f.epsilon, 1);
    return f;
}

/* The stages, fused: what they are one by one stands in adamw_run_stage, and test_optim holds the two together. */
GPT_CLONES static void update_tensor(float *p, float *m, float *v, const float *grad, size_t n, adamw_factors u)
{
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * u.coefficient;
        m[i] = m[i] + u.rest1 * (g - m[i]);
        v[i] = v[i] * u.beta2 + u.rest2 * g * g;
        p[i] = p[i] * u.decay - u.size * (m[i] / (sqrtf(v[i]) / u.root + u.epsilon));
    }
}

void adamw_run_stage(adamw_stage stage, const adamw_factors *u, precision format, float *out, const float *a, const float *b,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (stage) {
        case STAGE_CLIP: out[i] = a[i] * u->coefficient; break;
        case STAGE_DECAY: out[i] = a[i] * u->decay; break;
        case STAGE_EXP_AVG: out[i] = a[i] + u->rest1 * (b[i] - a[i]); break;
        case STAGE_SQ_DECAY: out[i] = a[i] * u->beta2; break;
        case STAGE_EXP_AVG_SQ: out[i] = a[i] + u->rest2 * b[i] * b[i]; break;
        case STAGE_ROOT: out[i] = sqrtf(a[i]); break;
        case STAGE_CORRECT: out[i] = a[i] / u->root; break;
        case STAGE_DENOMINATOR: out[i] = a[i] + u->epsilon; break;
        case STAGE_RATIO: out[i] = a[i] / b[i]; break;
        case STAGE_STEP: out[i] = u->size * a[i]; break;
        case STAGE_PARAMETER: out[i] = a[i] - b[i]; break;
        case ADAMW_STAGES: break;
        }
    }
    if (stage >= STAGE_EXP_AVG && stage <= STAGE_RATIO) precision_round(format, out, n);
}

/* Where moments have 16 bits every stage is rounded to them, as a library does that computes in its moments' format. */
enum { STAGED = 256 };
static void update_staged(float *p, float *m, float *v, const float *grad, size_t count, const adamw_factors *u, precision format)
{
    float g[STAGED], x[STAGED];
    for (size_t at = 0; at < count; at += STAGED) {
        size_t n = count - at < STAGED ? count - at : STAGED;
        adamw_run_stage(STAGE_CLIP, u, format, g, grad + at, NULL, n);
        adamw_run_stage(STAGE_DECAY, u, format, p + at, p + at, NULL, n);
        adamw_run_stage(STAGE_EXP_AVG, u, format, m + at, m + at, g, n);
        adamw_run_stage(STAGE_SQ_DECAY, u, format, v + at, v + at, NULL, n);
        adamw_run_stage(STAGE_EXP_AVG_SQ, u, format, v + at, v + at, g, n);
        adamw_run_stage(STAGE_ROOT, u, format, x, v + at, NULL, n);
        adamw_run_stage(STAGE_CORRECT, u, format, x, x, NULL, n);
        adamw_run_stage(STAGE_DENOMINATOR, u, format, x, x, NULL, n);
        adamw_run_stage(STAGE_RATIO, u, format, x, m + at, x, n);
        adamw_run_stage(STAGE_STEP, u, format, x, x, NULL, n);
        adamw_run_stage(STAGE_PARAMETER, u, format, p + at, p + at, x, n);
    }
}

void adamw_update(adamw *o, gpt_model *model, double learning_rate, double coefficient)
{
    adamw_numbers numbers = adamw_numbers_of(o, learning_rate, coefficient);
    adamw_update_with(o, model, &numbers);
}

void adamw_update_with(adamw *o, gpt_model *model, const adamw_numbers *numbers)
{
    adamw_state state = {model->parameters, o->exp_avg, o->exp_avg_sq};
    o->updates++;
    adamw_write(model, state, state, numbers);
}

/* Tensor by tensor, so that what was copied is still in the cache when it is updated. */
void adamw_write(const gpt_model *model, adamw_state from, adamw_state to, const adamw_numbers *numbers)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const gpt_tensor *t = &model->tensors[i];
        size_t at = t->offset, bytes = t->count * sizeof(float);
        adamw_factors u = adamw_factors_of(numbers, t->ndim > 1);
        float *p = to.parameters + at, *m = to.exp_avg + at, *v = to.exp_avg_sq + at;
        if (p != from.parameters + at) {
            memcpy(p, from.parameters + at, bytes);
            memcpy(m, from.exp_avg + at, bytes);
            memcpy(v, from.exp_avg_sq + at, bytes);
        }
        if (numbers->moments == PRECISION_FP32) update_tensor(p, m, v, model->gradients + at, t->count, u);
        else update_staged(p, m, v, model->gradients + at, t->count, &u, numbers->moments);
    }
}
