/* update.h: from the unscaled gradient to the numbers that the optimizer works with, faults included;
 * in training and in a replay. */
#ifndef GPT_UPDATE_H
#define GPT_UPDATE_H

#include "faults.h"
#include "optim.h"

/* gradients: [count], unscaled. norm: in, their norm in FP64; out, as the trainer has it, and clips with. */
adamw_numbers update_numbers(const faults *f, gpt_place place, const adamw *optimizer, const float *gradients, size_t count,
                             double learning_rate, double *norm);

#endif
