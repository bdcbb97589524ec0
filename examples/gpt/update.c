/* update.c: see update.h. */
#include "update.h"

adamw_numbers update_numbers(const faults *f, gpt_place place, const adamw *optimizer, const float *gradients, size_t count,
                             double learning_rate, double *norm)
{
    double before = *norm;
    double coefficient = faults_clip(f, place, gradients, count, optimizer->clip, norm, adamw_clip_coefficient(optimizer, before));
    adamw_numbers numbers = adamw_numbers_of(optimizer, learning_rate, coefficient);
    fault_constants constants = {.learning_rate = numbers.learning_rate,
                                 .beta1 = numbers.beta1,
                                 .beta2 = numbers.beta2,
                                 .epsilon = numbers.epsilon,
                                 .updates = numbers.updates,
                                 .moments = numbers.moments};
    faults_update(f, place, &constants);
    numbers.learning_rate = constants.learning_rate;
    numbers.beta1 = constants.beta1;
    numbers.beta2 = constants.beta2;
    numbers.epsilon = constants.epsilon;
    numbers.updates = constants.updates;
    numbers.moments = constants.moments;
    return numbers;
}
