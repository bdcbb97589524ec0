/* gradients.c: see gradients.h. */
#include "gradients.h"

#include <stdlib.h>
#include <string.h>

static void sum_bf16(void *in, void *sum, int *count, MPI_Datatype *type)
{
    (void)type;
    precision_accumulate_packed(PRECISION_BF16, sum, in, (size_t)*count);
}

static void sum_fp16(void *in, void *sum, int *count, MPI_Datatype *type)
{
    (void)type;
    precision_accumulate_packed(PRECISION_FP16, sum, in, (size_t)*count);
}

int gradients_open(gradients *g, gpt_model *model, MPI_Comm comm)
{
    *g = (gradients){.format = model->config.format, .full = model->gradients, .count = model->parameter_count, .comm = comm};
    if (g->format == PRECISION_FP32) return 0;
    g->half = calloc(g->count, sizeof *g->half);
    g->half_type = MPI_UINT16_T;
    if (!g->half || MPI_Op_create(g->format == PRECISION_BF16 ? sum_bf16 : sum_fp16, 1, &g->half_sum) != MPI_SUCCESS) return -1;
    return 0;
}

void gradients_close(gradients *g)
{
    if (g->half) MPI_Op_free(&g->half_sum);
    free(g->half);
    g->half = NULL;
}

void gradients_begin(gradients *g)
{
    memset(g->full, 0, g->count * sizeof *g->full);
    if (g->half) memset(g->half, 0, g->count * sizeof *g->half);
}

void gradients_micro_begin(gradients *g)
{
    if (g->half) memset(g->full, 0, g->count * sizeof *g->full);
}

void gradients_micro_end(gradients *g)
{
    if (g->half) precision_accumulate(g->format, g->half, g->full, g->count);
}

int gradients_reduce(gradients *g)
{
    if (g->half) return MPI_Allreduce(MPI_IN_PLACE, g->half, (int)g->count, g->half_type, g->half_sum, g->comm);
    return MPI_Allreduce(MPI_IN_PLACE, g->full, (int)g->count, MPI_FLOAT, MPI_SUM, g->comm);
}

void gradients_widen(gradients *g)
{
    if (g->half) precision_unpack(g->format, g->full, g->half, g->count);
}

void *gradients_local(const gradients *g, const gpt_tensor *tensor)
{
    return g->half ? (void *)(g->half + tensor->offset) : (void *)(g->full + tensor->offset);
}

void gradients_blow_up_middle(gradients *g, const gpt_model *model)
{
    const gpt_tensor *tensor = &model->tensors[2 + model->config.layers / 2 * BLOCK_TENSORS + C_FC_WEIGHT];
    float huge = 0.75f * precision_max(g->format);
    if (g->half)
        g->half[tensor->offset] = precision_pack_one(g->format, g->format == PRECISION_BF16 ? round_bf16(huge) : round_fp16(huge));
    else g->full[tensor->offset] = huge;
}
