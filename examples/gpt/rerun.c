/*
 * rerun.c: one operator again in FP64, on the inputs that the tape kept. Operators of the program are in reference.c; here are
 * those of the gradient's way and of the optimizer. Numbers that an operator was built with come from its attributes, as they were
 * written in the program and not as a format rounds them.
 */
#include "reference.h"
#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fb_status unknown(const fb_rerun *rerun, fb_error *err)
{
    if (err) {
        err->code = FB_E_UNSUPPORTED;
        snprintf(err->message, sizeof err->message, "rerun operator %u: it has no FP64 form for these inputs", rerun->token);
    }
    return FB_E_UNSUPPORTED;
}

/* ---- operators of the program ----------------------------------------------------------------------------------------------- */

static fb_status rerun_program(replay *r, fb_rerun *rerun, fb_error *err)
{
    const gpt_program *program = &r->shown->model->program;
    uint32_t index = rerun->token & ((1u << TOKEN_OP_BITS) - 1);
    gpt_run_shape shape = r->shape;
    const gpt_op *op;
    int wrong;
    shape.place.micro_step = (int32_t)(rerun->token >> TOKEN_OP_BITS);
    if (index >= (uint32_t)program->op_count) return unknown(rerun, err);
    op = &program->ops[index];
    if (rerun->input_count != (uint32_t)op->in_count || rerun->output_count != (uint32_t)op->out_count) return unknown(rerun, err);
    wrong = reference_run(op, gpt_op_number(op, shape.place), &shape, program->values, rerun->inputs, rerun->input_counts,
                          rerun->outputs, rerun->output_counts);
    return wrong ? unknown(rerun, err) : FB_OK;
}

/* ---- those outside of it ---------------------------------------------------------------------------------------------------- */

static double attribute(const fb_rerun *rerun)
{
    return rerun->attribute_count ? rerun->attributes[0].value : 0.0;
}

/* Inputs that have as many elements as the output; what comes after them is one number. */
static int shapes_fit(const fb_rerun *rerun, uint32_t tensors, uint32_t numbers)
{
    if (rerun->output_count != 1 || rerun->input_count != tensors + numbers) return 0;
    for (uint32_t k = 0; k < rerun->input_count; k++)
        if (rerun->input_counts[k] != (k < tensors ? rerun->output_counts[0] : 1)) return 0;
    return 1;
}

/* How many tensors and numbers a stage reads. */
static const struct {
    uint32_t tensors, numbers;
} READS[ADAMW_STAGES] = {
    [STAGE_CLIP] = {1, 1},       [STAGE_DECAY] = {1, 1}, [STAGE_EXP_AVG] = {2, 0},   [STAGE_SQ_DECAY] = {1, 0},
    [STAGE_EXP_AVG_SQ] = {2, 0}, [STAGE_ROOT] = {1, 0},  [STAGE_CORRECT] = {1, 1},   [STAGE_DENOMINATOR] = {1, 0},
    [STAGE_RATIO] = {2, 0},      [STAGE_STEP] = {1, 1},  [STAGE_PARAMETER] = {2, 0},
};

static double stage_in_double(adamw_stage stage, double x, double a, double b)
{
    switch (stage) {
    case STAGE_CLIP:
    case STAGE_STEP: return a * b;
    case STAGE_DECAY: return a * (1.0 - b * x);
    case STAGE_SQ_DECAY: return a * x;
    case STAGE_EXP_AVG: return a + x * (b - a);
    case STAGE_EXP_AVG_SQ: return a + x * b * b;
    case STAGE_ROOT: return sqrt(a);
    case STAGE_CORRECT:
    case STAGE_RATIO: return a / b;
    case STAGE_DENOMINATOR: return a + x;
    case STAGE_PARAMETER: return a - b;
    case ADAMW_STAGES: break;
    }
    return a;
}

static fb_status rerun_scaled(fb_rerun *rerun, fb_error *err)
{
    if (!shapes_fit(rerun, 1, 0)) return unknown(rerun, err);
    for (uint64_t i = 0; i < rerun->output_counts[0]; i++)
        rerun->outputs[0][i] = rerun->inputs[0][i] * (rerun->attribute_count ? attribute(rerun) : 1.0);
    return FB_OK;
}

static fb_status rerun_stage(fb_rerun *rerun, adamw_stage stage, fb_error *err)
{
    uint32_t numbers = READS[stage].numbers;
    if ((stage == STAGE_CLIP || stage == STAGE_DECAY) && rerun->input_count == 1) return rerun_scaled(rerun, err); /* by 1 */
    if (!shapes_fit(rerun, READS[stage].tensors, numbers)) return unknown(rerun, err);
    for (uint64_t i = 0; i < rerun->output_counts[0]; i++) {
        double b = rerun->input_count > 1 ? rerun->inputs[1][numbers ? 0 : i] : 0.0;
        rerun->outputs[0][i] = stage_in_double(stage, attribute(rerun), rerun->inputs[0][i], b);
    }
    return FB_OK;
}

static fb_status rerun_sum(fb_rerun *rerun, fb_error *err)
{
    if (!rerun->input_count || !shapes_fit(rerun, rerun->input_count, 0)) return unknown(rerun, err);
    for (uint64_t i = 0; i < rerun->output_counts[0]; i++) {
        double sum = 0.0;
        for (uint32_t k = 0; k < rerun->input_count; k++) sum += rerun->inputs[k][i];
        rerun->outputs[0][i] = sum;
    }
    return FB_OK;
}

/* Every rank brings what it read. One that has nothing takes part with zeros and says so afterwards, for the others wait. */
static fb_status rerun_all_reduce(const replay *r, fb_rerun *rerun, fb_error *err)
{
    int fits = rerun->output_count == 1 && rerun->input_count == 1 && rerun->input_counts[0] == rerun->output_counts[0];
    uint64_t own = fits ? rerun->output_counts[0] : 0, counts[2] = {own, UINT64_MAX - own};
    MPI_Allreduce(MPI_IN_PLACE, counts, 2, MPI_UINT64_T, MPI_MAX, r->comm);
    if (counts[0] != own || counts[1] != UINT64_MAX - own || !own || own > INT32_MAX) return unknown(rerun, err);
    MPI_Allreduce(rerun->inputs[0], rerun->outputs[0], (int)own, MPI_DOUBLE, MPI_SUM, r->comm);
    return FB_OK;
}

static fb_status rerun_norm(fb_rerun *rerun, fb_error *err)
{
    double sum = 0.0;
    if (rerun->output_count != 1 || rerun->output_counts[0] != 1) return unknown(rerun, err);
    for (uint32_t k = 0; k < rerun->input_count; k++)
        for (uint64_t i = 0; i < rerun->input_counts[k]; i++) sum += rerun->inputs[k][i] * rerun->inputs[k][i];
    rerun->outputs[0][0] = sqrt(sum);
    return FB_OK;
}

/* One number from one or two. */
static fb_status rerun_number(fb_rerun *rerun, told which, fb_error *err)
{
    double x = attribute(rerun), a, out = 0.0;
    if (!shapes_fit(rerun, which == TOLD_STEP_SIZE ? 2 : 1, 0) || rerun->output_counts[0] != 1) return unknown(rerun, err);
    a = rerun->inputs[0][0];
    if (which == TOLD_QUOTIENT) out = x / a;
    else if (which == TOLD_COEFFICIENT) out = a > x ? x : a;
    else if (which == TOLD_CORRECTION1 || which == TOLD_CORRECTION2) out = 1.0 - pow(x, a);
    else if (which == TOLD_ROOT_CORRECTION) out = sqrt(a);
    else if (which == TOLD_STEP_SIZE) out = a / rerun->inputs[1][0];
    rerun->outputs[0][0] = out;
    return FB_OK;
}

fb_status replay_rerun(void *ctx, fb_rerun *rerun, fb_error *err)
{
    replay *r = ctx;
    told which = (told)(rerun->token & ~TOKEN_OUTSIDE);
    if (!(rerun->token & TOKEN_OUTSIDE)) return r->shown ? rerun_program(r, rerun, err) : unknown(rerun, err);
    switch (which) {
    case TOLD_CAST:
    case TOLD_UNSCALE: return rerun_scaled(rerun, err);
    case TOLD_ACCUMULATE: return rerun_sum(rerun, err);
    case TOLD_ALL_REDUCE: return rerun_all_reduce(r, rerun, err);
    case TOLD_NORM: return rerun_norm(rerun, err);
    case TOLD_QUOTIENT:
    case TOLD_COEFFICIENT:
    case TOLD_CORRECTION1:
    case TOLD_CORRECTION2:
    case TOLD_ROOT_CORRECTION:
    case TOLD_STEP_SIZE: return rerun_number(rerun, which, err);
    case TOLD_STAGES: break;
    }
    if (which < TOLD_STAGES || (int)which >= TOLD_STAGES + ADAMW_STAGES) return unknown(rerun, err);
    return rerun_stage(rerun, (adamw_stage)((int)which - TOLD_STAGES), err);
}
