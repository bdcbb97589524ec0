/* model_run.c: run the program: forward, then backward. */
#include "model.h"
#include "ops.h"

#include <string.h>

/* Operators only read what the batch brings; a value's memory is not const, since most are written to. */
static void bring(gpt_model *model, int value, const void *data)
{
    memcpy(&model->program.values[value].data, &data, sizeof data);
}

/* In place of what is NULL stands what it means. */
static void bind(gpt_model *model, gpt_input input, gpt_place place)
{
    const gpt_config *g = &model->config;
    model->shape = (gpt_run_shape){.B = input.rows ? input.rows : g->batch,
                                   .T = g->block,
                                   .C = g->channels,
                                   .NH = g->heads,
                                   .V = GPT_VOCAB,
                                   .whole = g->batch,
                                   .row_ids = input.row_ids,
                                   .seed = g->seed,
                                   .place = place};
    bring(model, model->tokens, input.tokens);
    bring(model, model->targets, input.targets);
    bring(model, model->loss_weights, input.weights ? input.weights : model->ones);
    bring(model, model->key_mask, input.key_mask ? input.key_mask : model->ones);
    bring(model, model->positions, input.positions ? input.positions : model->first_positions);
}

GPT_CLONES static void add_to(float *sum, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Those who look may change what was made; so the gradient of a parameter joins its sum last. */
static void tell(const gpt_model *model, int index)
{
    const gpt_op *op = &model->program.ops[index];
    for (int k = 0; model->watch && k < op->out_count; k++) {
        int activation = model->activation_of[op->out[k]];
        if (activation < 0) continue;
        gpt_activation *a = &model->activations[activation];
        a->count = gpt_value_count(&model->program.values[a->value], &model->shape);
        model->watch(model->watcher, (size_t)activation, a);
    }
    if (model->heard) model->heard(model->listener, model, index);
    for (int k = 0; k < op->out_count; k++) {
        const gpt_value *v = &model->program.values[op->out[k]];
        if (v->role != ROLE_PARAMETER_GRADIENT || v->parameter < 0) continue;
        add_to(model->gradients + model->tensors[v->parameter].offset, v->data, model->tensors[v->parameter].count);
    }
}

static void run(const gpt_model *model, int first, int behind)
{
    const gpt_program *p = &model->program;
    for (int i = first; i < behind; i++) {
        gpt_op_run(&p->ops[i], &model->shape, p->values, model->scratch);
        tell(model, i);
    }
}

void gpt_forward(gpt_model *model, gpt_input input, gpt_place place, double d_loss)
{
    const gpt_program *p = &model->program;
    float scale = (float)d_loss, loss;
    bind(model, input, place);
    memcpy(p->values[p->loss_seed].data, &scale, sizeof scale);
    run(model, 0, p->backward);
    memcpy(&loss, p->values[p->loss].data, sizeof loss);
    model->loss = (double)loss;
}

void gpt_backward(gpt_model *model, gpt_input input, gpt_place place)
{
    bind(model, input, place);
    run(model, model->program.backward, model->program.op_count);
}
