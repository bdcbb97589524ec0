/*
 * replay_program.c: tell a tape what is there before the step, and every operator of the program as it runs. An entry is told when
 * it is first read, except for the state: all of it is told, since a finding may be a part that nothing reads.
 */
#include "replay.h"

#include <stdio.h>
#include <string.h>

/* ---- the state -------------------------------------------------------------------------------------------------------------- */

static void tell_parameter(replay *r, size_t i)
{
    const gpt_tensor *t = &r->now->model->tensors[i];
    precision format = r->now->model->config.format;
    char name[56];
    fb_tape_value master = told_tensor(t, t->name, r->start.parameters + t->offset, FB_F32, FB_TAPE_STATE);
    fb_tape_value used;
    uint32_t id = tell_entry(&r->teller, &master);
    r->masters[i] = r->weights[i] = id;
    if (format == PRECISION_FP32) return;
    snprintf(name, sizeof name, "%s.%s", t->name, precision_name(format));
    used = told_tensor(t, name, r->now->model->weights + t->offset, FB_F32, 0);
    used.format = told_format(format);
    r->weights[i] =
        tell_op(&r->teller,
                told_op(TOLD_CAST, "cast", t->module, "model.c:gpt_load_weights", FB_FORWARD, (int32_t)r->start.finding.micro_step),
                &id, 1, &used);
}

static void tell_moments(replay *r, size_t i)
{
    const gpt_tensor *t = &r->now->model->tensors[i];
    size_t n = r->now->model->tensor_count;
    char exp_avg[56], exp_avg_sq[56];
    fb_tape_value value;
    snprintf(exp_avg, sizeof exp_avg, "%s.exp_avg", t->name);
    snprintf(exp_avg_sq, sizeof exp_avg_sq, "%s.exp_avg_sq", t->name);
    value = told_tensor(t, exp_avg, r->start.exp_avg + t->offset, FB_F32, FB_TAPE_STATE);
    r->moments[i] = tell_entry(&r->teller, &value);
    value = told_tensor(t, exp_avg_sq, r->start.exp_avg_sq + t->offset, FB_F32, FB_TAPE_STATE);
    r->moments[n + i] = tell_entry(&r->teller, &value);
}

void replay_tell_state(replay *r)
{
    fb_tape_value updates = FB_TAPE_VALUE_INIT;
    updates.flags = FB_TAPE_STATE | FB_TAPE_SCALAR;
    updates.module = "";
    updates.name = "updates";
    updates.data = &r->start.updates;
    updates.count = 1;
    updates.dtype = updates.format = FB_I64;
    for (size_t i = 0; i < r->now->model->tensor_count; i++) tell_moments(r, i);
    r->updates = tell_entry(&r->teller, &updates);
    for (size_t i = 0; i < r->now->model->tensor_count; i++) tell_parameter(r, i);
}

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

static uint32_t flags_of(const gpt_value *value)
{
    switch (value->role) {
    case ROLE_PARAMETER:
    case ROLE_BUFFER: return FB_TAPE_STATE;
    case ROLE_BATCH: return FB_TAPE_BATCH;
    case ROLE_SCALAR: return FB_TAPE_SCALAR;
    case ROLE_ACTIVATION:
    case ROLE_GRADIENT:
    case ROLE_PARAMETER_GRADIENT: break;
    }
    return value->mask ? FB_TAPE_MASK : 0;
}

/* The guard's site for the loss has no module. */
static fb_tape_value told_value(const gpt_model *model, int index)
{
    const gpt_value *v = &model->program.values[index];
    fb_tape_value out = FB_TAPE_VALUE_INIT;
    int loss = index == model->program.loss;
    out.flags = flags_of(v);
    out.module = loss ? "" : v->module;
    out.name = loss ? "loss.cross_entropy" : v->name;
    out.data = v->data;
    out.count = gpt_value_count(v, &model->shape);
    out.dtype = v->integers ? FB_I32 : FB_F32;
    out.format = v->integers ? FB_I32 : told_format(v->format);
    out.ndim = v->ndim;
    for (int d = 0; d < v->ndim; d++) out.shape[d] = (int64_t)v->shape[d];
    if (v->per_sample && v->ndim) out.shape[0] = out.shape[0] / (int64_t)model->shape.whole * (int64_t)model->shape.B;
    return out;
}

static uint32_t id_of(replay *r, int index)
{
    const gpt_value *v = &r->now->model->program.values[index];
    uint32_t *id = &r->now->ids[index];
    if (*id != TOLD_NONE) return *id;
    if (v->role == ROLE_PARAMETER && v->parameter >= 0) {
        *id = r->weights[v->parameter];
    } else {
        fb_tape_value value = told_value(r->now->model, index);
        *id = tell_entry(&r->teller, &value);
    }
    return *id;
}

/* ---- operators -------------------------------------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "";
}

static uint32_t attributes_of(const gpt_op *op, gpt_place place, fb_tape_attribute out[2])
{
    uint32_t n = 0;
    if (op->kind == OP_CLAMP || op->kind == OP_CLAMP_BACKWARD) {
        out[n++] = (fb_tape_attribute){"min", gpt_op_number(op, place)};
        out[n++] = (fb_tape_attribute){"max", op->y};
    } else if (op->x_name) {
        out[n++] = (fb_tape_attribute){op->x_name, gpt_op_number(op, place)};
    }
    return n;
}

static void tell_program_op(replay *r, int index)
{
    const gpt_model *model = r->now->model;
    const gpt_op *op = &model->program.ops[index];
    fb_tape_attribute attributes[2];
    fb_tape_value outputs[GPT_OUT_MAX];
    uint32_t inputs[GPT_IN_MAX], ids[GPT_OUT_MAX];
    char source[96];
    fb_tape_op ran = FB_TAPE_OP_INIT;
    snprintf(source, sizeof source, "%s:%d", base_name(op->file), op->line);
    for (int k = 0; k < op->in_count; k++) inputs[k] = id_of(r, op->in[k]);
    for (int k = 0; k < op->out_count; k++) outputs[k] = told_value(model, op->out[k]);
    ran.op = op->name;
    ran.module = op->module;
    ran.source = source;
    ran.boundary = op->backward ? FB_LOCAL_GRAD : op->loss ? FB_LOSS : FB_FORWARD;
    ran.micro_step = model->shape.place.micro_step;
    ran.token = (uint32_t)ran.micro_step << TOKEN_OP_BITS | (uint32_t)index;
    ran.attributes = attributes;
    ran.attribute_count = attributes_of(op, model->shape.place, attributes);
    ran.output_count = (uint32_t)op->out_count;
    tell_outputs(&r->teller, ran, inputs, (uint32_t)op->in_count, outputs, ids);
    for (int k = 0; k < op->out_count; k++) r->now->ids[op->out[k]] = ids[k];
}

static void heard(void *listener, const gpt_model *model, int op)
{
    replay *r = listener;
    faults_heard(&r->start.options->faults, r->now->model, op, model->shape.place, r->process, r->request->number);
    tell_program_op(r, op);
}

/* ---- one micro-step --------------------------------------------------------------------------------------------------------- */

static gpt_input whole_micro(const replay *r, size_t micro)
{
    const batch *b = r->batch;
    size_t at = micro * b->rows * b->columns;
    return (gpt_input){.tokens = b->tokens + at,
                       .targets = b->targets + at,
                       .weights = b->weights + at,
                       .key_mask = b->key_mask + at,
                       .positions = b->positions + at};
}

static void copy_row(batch *to, size_t row, const batch *from, size_t window)
{
    size_t T = to->columns;
    memcpy(to->tokens + row * T, from->tokens + window * T, T * sizeof *to->tokens);
    memcpy(to->targets + row * T, from->targets + window * T, T * sizeof *to->targets);
    memcpy(to->positions + row * T, from->positions + window * T, T * sizeof *to->positions);
    memcpy(to->weights + row * T, from->weights + window * T, T * sizeof *to->weights);
    memcpy(to->key_mask + row * T, from->key_mask + window * T, T * sizeof *to->key_mask);
}

/* The rows of this rank's own batch that the start has left; NULL: all. Those of another rank's batch are all of them. */
static const uint32_t *rows_left(const replay *r)
{
    return r->as == r->start.rank ? r->start.rows : NULL;
}

/* The rows that this rank was asked for; NULL: it was not asked. */
static const uint32_t *rows_asked(const replay *r)
{
    return r->as == r->request->rows_rank ? r->request->rows : NULL;
}

/* Rows of the request count within those that the start has left. */
static gpt_input part_of_micro(replay *r, size_t micro)
{
    const fb_replay_request *q = r->request;
    const uint32_t *base = rows_left(r), *asked = rows_asked(r);
    batch *s = &r->smaller;
    size_t count = asked ? q->row_count : base ? r->start.row_count : r->batch->rows;
    gpt_input input;
    for (size_t k = 0; k < count; k++) {
        uint32_t row = asked ? asked[k] : (uint32_t)k;
        r->row_ids[k] = base ? base[row] : row;
        copy_row(s, k, r->batch, micro * r->batch->rows + r->row_ids[k]);
        for (size_t t = 0; asked && q->keep && t < s->columns; t++)
            if (!q->keep[k * q->column_count + t]) batch_blank(s, k * s->columns + t);
    }
    input = (gpt_input){.tokens = s->tokens,
                        .targets = s->targets,
                        .weights = s->weights,
                        .key_mask = s->key_mask,
                        .positions = s->positions,
                        .rows = count,
                        .row_ids = r->row_ids};
    return input;
}

static gpt_input input_of(replay *r, size_t micro)
{
    int here = (int32_t)micro == r->start.finding.micro_step;
    return here && (rows_asked(r) || rows_left(r)) ? part_of_micro(r, micro) : whole_micro(r, micro);
}

void replay_forward(replay *r, size_t micro)
{
    gpt_model *model = r->now->model;
    gpt_place place = replay_place(r, micro);
    model->heard = heard;
    model->listener = r;
    for (int i = 0; i < model->program.value_count; i++) r->now->ids[i] = TOLD_NONE;
    gradients_micro_begin(&r->now->gradients);
    faults_buffers(&r->start.options->faults, model, place);
    gpt_forward(model, input_of(r, micro), place, r->scale / (double)r->start.options->accumulation);
}

void replay_backward(replay *r, size_t micro)
{
    gpt_backward(r->now->model, input_of(r, micro), replay_place(r, micro));
}
