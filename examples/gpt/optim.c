/* optim.c: see optim.h. */
#include "optim.h"
#include "clones.h"

#include <math.h>
#include <stdlib.h>

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

/* What is equal for all elements of one update. */
typedef struct update_constants {
    float coefficient, decay, beta1, beta2, step_size, root_correction, epsilon;
} update_constants;

GPT_CLONES static void update_tensor(float *p, float *m, float *v, const float *grad, size_t n, update_constants u)
{
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * u.coefficient;
        m[i] = m[i] + (1.0f - u.beta1) * (g - m[i]);
        v[i] = u.beta2 * v[i] + (1.0f - u.beta2) * g * g;
        p[i] = p[i] * u.decay - u.step_size * (m[i] / (sqrtf(v[i]) / u.root_correction + u.epsilon));
    }
}

void adamw_update(adamw *o, gpt_model *model, double learning_rate, double coefficient)
{
    o->updates++;
    double correction1 = 1.0 - pow(o->beta1, (double)o->updates), correction2 = 1.0 - pow(o->beta2, (double)o->updates);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const gpt_tensor *t = &model->tensors[i];
        update_constants u = {
            .coefficient = (float)coefficient,
            .decay = t->ndim > 1 ? (float)(1.0 - learning_rate * o->weight_decay) : 1.0f,
            .beta1 = (float)o->beta1,
            .beta2 = (float)o->beta2,
            .step_size = (float)(learning_rate / correction1),
            .root_correction = (float)sqrt(correction2),
            .epsilon = (float)o->epsilon,
        };
        update_tensor(model->parameters + t->offset, o->exp_avg + t->offset, o->exp_avg_sq + t->offset,
                      model->gradients + t->offset, t->count, u);
    }
}
