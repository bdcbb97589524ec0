/*
 * gradients.h: the gradient of one update on its way from backward to the optimizer.
 *
 * In fp32 it lies in model->gradients from start to end. In bf16 and fp16 each micro-step's gradient is rounded and added to a
 * store of 16 bits, as a half-precision model's .grad is; the ranks add their stores in that same format; then it is widened into
 * model->gradients, where unscale, norm, clip and the optimizer work in FP32.
 * The collective adds and does not average: the division by the number of ranks is part of the unscaling. The sum of finite parts
 * can therefore overflow, in fp16 early, and that is for the check after the collective to find.
 */
#ifndef GPT_GRADIENTS_H
#define GPT_GRADIENTS_H

#include "model.h"

#include <mpi.h>

typedef struct gradients {
    precision format;
    float *full;    /* model->gradients, borrowed */
    uint16_t *half; /* NULL in fp32 */
    size_t count;
    MPI_Comm comm;
    MPI_Datatype half_type;
    MPI_Op half_sum;
} gradients;

int gradients_open(gradients *g, gpt_model *model, MPI_Comm comm);
void gradients_close(gradients *g);

/* Calling order of one update: begin; before and after each micro-step's backward; reduce; widen. */
void gradients_begin(gradients *g);
void gradients_micro_begin(gradients *g);
void gradients_micro_end(gradients *g);
/* Sum over all ranks, in the format. The same bits on every rank, and every time with the same number of ranks. */
int gradients_reduce(gradients *g);
void gradients_widen(gradients *g);

/* Where the local gradient of a tensor lies while it waits for the collective. */
void *gradients_local(const gradients *g, const gpt_tensor *tensor);
/* Fault switch: make one element of a tensor of the middle block three quarters of the largest finite value, so that it is finite
 * here and its sum is not. */
void gradients_blow_up_middle(gradients *g, const gpt_model *model);

#endif
