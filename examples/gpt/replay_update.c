/*
 * replay_update.c: tell a tape the way of the gradient: into the store, through the collective, out of the format, and through the
 * optimizer, operator by operator. It computes what gradients.c and optim.c compute in training, with their own functions.
 */
#include "replay.h"
#include "update.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the store of local gradients ------------------------------------------------------------------------------------------- */

static fb_tape_value store_value(const replay *r, size_t i, const char *name, uint32_t flags)
{
    const gradients *g = &r->now->gradients;
    const gpt_tensor *t = &r->now->model->tensors[i];
    return told_tensor(t, name, gradients_local(g, t), told_format(g->format), flags);
}

void replay_begin_store(replay *r)
{
    gpt_model *model = r->now->model;
    gradients *g = &r->now->gradients;
    int stale;
    gradients_begin(g);
    stale = faults_store(&r->start.options->faults, replay_place(r, 0), model, g->half);
    MPI_Allreduce(MPI_IN_PLACE, &stale, 1, MPI_INT, MPI_MAX, r->comm); /* all ranks tell of the same tensors */
    for (size_t i = 0; i < model->tensor_count; i++) {
        char name[56];
        fb_tape_value value;
        r->store[i] = TOLD_NONE;
        if (!stale) continue;
        snprintf(name, sizeof name, "store.%s", model->tensors[i].name);
        value = store_value(r, i, name, FB_TAPE_STATE);
        r->store[i] = tell_entry(&r->teller, &value);
    }
}

/* The gradient of this micro-step by parameter: the value of the program that holds it. */
static uint32_t gradient_id(const replay *r, size_t tensor)
{
    const gpt_program *p = &r->now->model->program;
    for (int v = 0; v < p->value_count; v++)
        if (p->values[v].role == ROLE_PARAMETER_GRADIENT && p->values[v].parameter == (int)tensor) return r->now->ids[v];
    return TOLD_NONE;
}

static void tell_accumulated(replay *r, size_t i, size_t micro)
{
    const gpt_tensor *t = &r->now->model->tensors[i];
    uint32_t inputs[2], count = 0, gradient = gradient_id(r, i);
    fb_tape_value value = store_value(r, i, t->name, 0);
    if (r->store[i] != TOLD_NONE) inputs[count++] = r->store[i];
    if (gradient != TOLD_NONE) inputs[count++] = gradient;
    r->store[i] =
        tell_op(&r->teller,
                told_op(TOLD_ACCUMULATE, "accumulate", t->module, "gradients.c:gradients_micro_end", FB_LOCAL_GRAD, (int32_t)micro),
                inputs, count, &value);
}

void replay_accumulate(replay *r, size_t micro)
{
    const options *o = r->start.options;
    gpt_model *model = r->now->model;
    gradients *g = &r->now->gradients;
    gradients_micro_end(g);
    if (r->start.step == o->gradient_blowup) gradients_blow_up_middle(g, model);
    faults_local(&o->faults, replay_place(r, micro), model, g->half);
    for (size_t i = 0; i < model->tensor_count; i++) tell_accumulated(r, i, micro);
}

/* ---- the collective, and out of the format ---------------------------------------------------------------------------------- */

static int32_t last_micro(const replay *r)
{
    return (int32_t)r->start.options->accumulation - 1;
}

static void tell_sum(replay *r, size_t i)
{
    const gpt_tensor *t = &r->now->model->tensors[i];
    char name[56];
    fb_tape_value value;
    fb_tape_op op =
        told_op(TOLD_ALL_REDUCE, "all_reduce", t->module, "gradients.c:gradients_reduce", FB_REDUCED_GRAD, last_micro(r));
    snprintf(name, sizeof name, "sum.%s", t->name);
    value = store_value(r, i, name, 0);
    op.flags = FB_TAPE_COLLECTIVE;
    r->reduced[i] = tell_op(&r->teller, op, &r->store[i], r->store[i] == TOLD_NONE ? 0 : 1, &value);
}

static void tell_unscaled(replay *r, size_t i, double inverse)
{
    gpt_model *model = r->now->model;
    const gpt_tensor *t = &model->tensors[i];
    float *x = model->gradients + t->offset;
    fb_tape_attribute factor = {"inverse_scale", inverse};
    fb_tape_value value = told_tensor(t, t->name, x, FB_F32, 0);
    fb_tape_op op = told_op(TOLD_UNSCALE, "mul", t->module, "step.c:step_guarded", FB_REDUCED_GRAD, last_micro(r));
    for (size_t k = 0; k < t->count; k++) x[k] *= (float)inverse; /* as fb_step_unscale: the factor is rounded to FP32 first */
    op.attributes = &factor;
    op.attribute_count = 1;
    r->reduced[i] = tell_op(&r->teller, op, &r->reduced[i], r->reduced[i] == TOLD_NONE ? 0 : 1, &value);
}

static double norm_of(const gpt_model *model)
{
    double sum = 0.0;
    for (size_t i = 0; i < model->parameter_count; i++) sum += (double)model->gradients[i] * (double)model->gradients[i];
    return sqrt(sum);
}

/* The trainer has it before the second vote, and reports it there. */
static void tell_norm(replay *r)
{
    const gpt_model *model = r->now->model;
    const faults *f = &r->start.options->faults;
    adamw optimizer = *r->start.optimizer;
    fb_tape_value value = told_number("optimizer", "grad_norm", &r->norm, 0);
    fb_tape_op op = told_op(TOLD_NORM, "norm", "optimizer", "update.c:update_numbers", FB_REDUCED_GRAD, last_micro(r));
    if (faults_norm_is_single(f, replay_place(r, 0))) value.format = FB_F32;
    optimizer.updates = r->start.updates;
    r->norm = norm_of(model);
    r->numbers = update_numbers(f, replay_place(r, 0), &optimizer, model->gradients, model->parameter_count, r->start.learning_rate,
                                &r->norm);
    r->norm_id = tell_op(&r->teller, op, r->reduced, (uint32_t)model->tensor_count, &value);
}

void replay_reduce(replay *r)
{
    gpt_model *model = r->now->model;
    gradients *g = &r->now->gradients;
    gradients_reduce(g);
    faults_reduced(&r->start.options->faults, replay_place(r, 0), r->process, r->request->number, model, g->half);
    for (size_t i = 0; i < model->tensor_count; i++) tell_sum(r, i);
    gradients_widen(g);
    for (size_t i = 0; i < model->tensor_count; i++) tell_unscaled(r, i, 1.0 / (r->scale * r->start.world));
    tell_norm(r);
}

/* ---- the numbers that all tensors share ------------------------------------------------------------------------------------- */

/* Ids of what an update computes with. */
typedef struct shared_numbers {
    adamw_numbers numbers;
    adamw_factors factors[2]; /* of tensors that do not decay, and of those that do */
    uint32_t coefficient, learning_rate, root_correction, step_size;
} shared_numbers;

static uint32_t tell_number(replay *r, told which, const char *op_name, const char *name, double x, const uint32_t *inputs,
                            uint32_t count, const fb_tape_attribute *attribute)
{
    fb_tape_value value = told_number("optimizer", name, &x, 0);
    fb_tape_op op = told_op(which, op_name, "optimizer", "optim.c:adamw_factors_of", FB_UPDATE, last_micro(r));
    op.attributes = attribute;
    op.attribute_count = attribute ? 1 : 0;
    return tell_op(&r->teller, op, inputs, count, &value);
}

static uint32_t tell_learning_rate(replay *r, const double *learning_rate)
{
    fb_tape_value value = told_number("optimizer", "learning_rate", learning_rate, FB_TAPE_SCALAR);
    return tell_entry(&r->teller, &value);
}

static uint32_t tell_counter(replay *r, const double *updates)
{
    fb_tape_value value = told_number("optimizer", "bias_correction_step", updates, FB_TAPE_SCALAR | FB_TAPE_STATE);
    return tell_entry(&r->teller, &value);
}

/* min(1, clip / norm); where the norm is 0 or small the quotient may well be Inf, and the minimum drops it. */
static uint32_t tell_clip(replay *r, const adamw_numbers *numbers, double clip, double norm, uint32_t id)
{
    id = tell_number(r, TOLD_QUOTIENT, "div", "clip_quotient", clip / norm, &id, 1, &(fb_tape_attribute){"max_norm", clip});
    return tell_number(r, TOLD_COEFFICIENT, "clamp", "clip_coefficient", numbers->coefficient, &id, 1,
                       &(fb_tape_attribute){"max", 1.0});
}

static shared_numbers tell_shared(replay *r)
{
    shared_numbers s = {.numbers = r->numbers};
    double clip = r->start.optimizer->clip, updates;
    uint32_t id, rate;
    s.factors[0] = adamw_factors_of(&s.numbers, 0);
    s.factors[1] = adamw_factors_of(&s.numbers, 1);
    s.coefficient = clip > 0.0 ? tell_clip(r, &s.numbers, clip, r->norm, r->norm_id) : TOLD_NONE;
    updates = (double)s.numbers.updates;
    id = tell_counter(r, &updates);
    rate = s.learning_rate = tell_learning_rate(r, &s.numbers.learning_rate);
    uint32_t correction2 = tell_number(r, TOLD_CORRECTION2, "bias_correction", "bias_correction2", s.factors[0].correction2, &id, 1,
                                       &(fb_tape_attribute){"beta", s.numbers.beta2});
    uint32_t both[2] = {rate, tell_number(r, TOLD_CORRECTION1, "bias_correction", "bias_correction1", s.factors[0].correction1, &id,
                                          1, &(fb_tape_attribute){"beta", s.numbers.beta1})};
    s.root_correction =
        tell_number(r, TOLD_ROOT_CORRECTION, "sqrt", "root_correction", s.factors[0].root_correction, &correction2, 1, NULL);
    s.step_size = tell_number(r, TOLD_STEP_SIZE, "div", "step_size", s.factors[0].step_size, both, 2, NULL);
    return s;
}

/* ---- the optimizer, tensor by tensor ---------------------------------------------------------------------------------------- */

static const struct stage_row {
    const char *op, *made, *number;
} STAGES[ADAMW_STAGES] = {
    [STAGE_CLIP] = {"mul", "clipped", NULL},            /* without clipping there is no number, and it is a factor of 1 */
    [STAGE_DECAY] = {"mul", "decayed", "weight_decay"}, /* by 1 - learning rate * weight_decay; by 1 where nothing decays */
    [STAGE_EXP_AVG] = {"lerp", "exp_avg", "weight"},
    [STAGE_SQ_DECAY] = {"mul", "decayed_sq", "beta2"},
    [STAGE_EXP_AVG_SQ] = {"addcmul", "exp_avg_sq", "value"},
    [STAGE_ROOT] = {"sqrt", "root", NULL},
    [STAGE_CORRECT] = {"div", "corrected", NULL},
    [STAGE_DENOMINATOR] = {"add", "denominator", "epsilon"},
    [STAGE_RATIO] = {"div", "ratio", NULL},
    [STAGE_STEP] = {"mul", "change", NULL},
    [STAGE_PARAMETER] = {"sub", "", NULL},
};

/* The exact number of a stage, as the program has it written down. */
static double stage_number(adamw_stage stage, const adamw_numbers *n, int decays)
{
    switch (stage) {
    case STAGE_DECAY: return decays ? n->weight_decay : 0.0;
    case STAGE_EXP_AVG: return 1.0 - n->beta1;
    case STAGE_SQ_DECAY: return n->beta2;
    case STAGE_EXP_AVG_SQ: return 1.0 - n->beta2;
    case STAGE_DENOMINATOR: return n->epsilon;
    case STAGE_CLIP:
    case STAGE_ROOT:
    case STAGE_CORRECT:
    case STAGE_RATIO:
    case STAGE_STEP:
    case STAGE_PARAMETER:
    case ADAMW_STAGES: break;
    }
    return 0.0;
}

/* What a stage reads: where, and what the tape calls it. */
typedef struct operand {
    const float *data;
    uint32_t id;
} operand;

static operand run_stage(replay *r, const shared_numbers *s, size_t i, adamw_stage stage, float *out, const operand *a,
                         const operand *b, uint32_t number)
{
    const gpt_tensor *t = &r->now->model->tensors[i];
    const struct stage_row *row = &STAGES[stage];
    int decays = t->ndim > 1;
    char name[64];
    uint32_t inputs[3], count = 0;
    fb_tape_attribute attribute = {row->number, stage_number(stage, &s->numbers, decays)};
    fb_tape_op op = told_op((told)(TOLD_STAGES + (int)stage), row->op, t->module, "optim.c:adamw_update", FB_UPDATE, last_micro(r));
    fb_tape_value value;
    adamw_run_stage(stage, &s->factors[decays], s->numbers.moments, out, a->data, b ? b->data : NULL, t->count);
    snprintf(name, sizeof name, "%s%s%s", t->name, *row->made ? "." : "", row->made);
    value = told_tensor(t, name, out, FB_F32, 0);
    if (stage >= STAGE_EXP_AVG && stage <= STAGE_RATIO) value.format = told_format(s->numbers.moments);
    inputs[count++] = a->id;
    if (b) inputs[count++] = b->id;
    if (number != TOLD_NONE) inputs[count++] = number;
    op.attributes = &attribute;
    op.attribute_count = row->number && (decays || stage != STAGE_DECAY) ? 1 : 0;
    return (operand){out, tell_op(&r->teller, op, inputs, count, &value)};
}

static void tell_tensor_update(replay *r, const shared_numbers *s, size_t i)
{
    const gpt_model *model = r->now->model;
    const gpt_tensor *t = &model->tensors[i];
    size_t n = model->tensor_count;
    float *w[WORK_ARRAYS];
    for (size_t k = 0; k < WORK_ARRAYS; k++) w[k] = r->work + k * r->largest;
    operand gradient = {model->gradients + t->offset, r->reduced[i]};
    operand parameter = {r->start.parameters + t->offset, r->masters[i]};
    operand m = {r->start.exp_avg + t->offset, r->moments[i]}, v = {r->start.exp_avg_sq + t->offset, r->moments[n + i]};
    operand clipped = run_stage(r, s, i, STAGE_CLIP, w[0], &gradient, NULL, s->coefficient);
    operand decayed = run_stage(r, s, i, STAGE_DECAY, w[1], &parameter, NULL, t->ndim > 1 ? s->learning_rate : TOLD_NONE);
    m = run_stage(r, s, i, STAGE_EXP_AVG, w[2], &m, &clipped, TOLD_NONE);
    v = run_stage(r, s, i, STAGE_SQ_DECAY, w[3], &v, NULL, TOLD_NONE);
    v = run_stage(r, s, i, STAGE_EXP_AVG_SQ, w[3], &v, &clipped, TOLD_NONE);
    operand x = run_stage(r, s, i, STAGE_ROOT, w[4], &v, NULL, TOLD_NONE);
    x = run_stage(r, s, i, STAGE_CORRECT, w[4], &x, NULL, s->root_correction);
    x = run_stage(r, s, i, STAGE_DENOMINATOR, w[4], &x, NULL, TOLD_NONE);
    x = run_stage(r, s, i, STAGE_RATIO, w[5], &m, &x, TOLD_NONE);
    x = run_stage(r, s, i, STAGE_STEP, w[5], &x, NULL, s->step_size);
    (void)run_stage(r, s, i, STAGE_PARAMETER, w[6], &decayed, &x, TOLD_NONE);
}

void replay_update(replay *r)
{
    shared_numbers s = tell_shared(r);
    for (size_t i = 0; i < r->now->model->tensor_count; i++) tell_tensor_update(r, &s, i);
}
