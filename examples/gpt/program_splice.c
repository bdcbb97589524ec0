/* program_splice.c: put one operator between a value and its readers, forward and backward. */
#include "program.h"

#include <stdio.h>
#include <string.h>

bool gpt_backward_form(gpt_kind kind, gpt_kind *backward, gpt_saves *saves)
{
    static const struct form {
        gpt_kind forward, backward;
        gpt_saves saves;
    } FORMS[] = {
        {OP_ADD_NUMBER, OP_COPY, SAVES_NOTHING},
        {OP_MUL_NUMBER, OP_MUL_NUMBER, SAVES_NOTHING},
        {OP_COPY, OP_COPY, SAVES_NOTHING},
        {OP_SQUARE, OP_SQUARE_BACKWARD, SAVES_INPUT},
        {OP_SQRT, OP_SQRT_BACKWARD, SAVES_OUTPUT},
        {OP_RSQRT, OP_RSQRT_BACKWARD, SAVES_OUTPUT},
        {OP_EXP, OP_EXP_BACKWARD, SAVES_OUTPUT},
        {OP_LOG, OP_LOG_BACKWARD, SAVES_INPUT},
        {OP_LOG1P, OP_LOG1P_BACKWARD, SAVES_INPUT},
        {OP_SIGMOID, OP_SIGMOID_BACKWARD, SAVES_OUTPUT},
        {OP_RECIPROCAL, OP_RECIPROCAL_BACKWARD, SAVES_OUTPUT},
        {OP_GELU, OP_GELU_BACKWARD, SAVES_INPUT},
        {OP_CLAMP, OP_CLAMP_BACKWARD, SAVES_INPUT},
        {OP_NAN_TO_NUM, OP_NAN_TO_NUM_BACKWARD, SAVES_INPUT},
        {OP_DROPOUT, OP_DROPOUT_BACKWARD, SAVES_NOTHING},
        {OP_SOFTMAX, OP_SOFTMAX_BACKWARD, SAVES_OUTPUT},
        {OP_LOG_SOFTMAX, OP_LOG_SOFTMAX_BACKWARD, SAVES_OUTPUT},
    };
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        if (FORMS[i].forward != kind) continue;
        *backward = FORMS[i].backward;
        *saves = FORMS[i].saves;
        return true;
    }
    return false;
}

/* Readers of `value` read `with`, except the backward form of what makes the value: that undoes the
 * producer, which still made `value`. */
static void redirect(gpt_program *program, int from, int value, int with)
{
    for (int i = from; i < program->op_count; i++) {
        gpt_op *op = &program->ops[i];
        if (op->backward && op->of == value) continue;
        for (int k = 0; k < op->in_count; k++)
            if (op->in[k] == value) op->in[k] = with;
    }
}

static gpt_op backward_of(const gpt_op *op, gpt_kind kind, gpt_saves saves, int gradient, int in, int out)
{
    gpt_op back = *op;
    snprintf(back.name, sizeof back.name, "%.*s_backward", GPT_NAME_MAX - 10, op->name);
    back.kind = kind;
    back.backward = true;
    back.loss = false;
    back.of = out;
    back.in[0] = gradient;
    back.in_count = 1;
    if (saves != SAVES_NOTHING) back.in[back.in_count++] = saves == SAVES_INPUT ? in : out;
    return back;
}

/*
 * The gradient of what was made arrives where that of `value` did. A sum hands its gradient on to what it sums, so what joins a sum
 * shares it with others, and only its own producer may get the new one; the gradient of the sum itself has readers that all need
 * the new one.
 */
static void splice_backward(gpt_program *program, int value, int made, const gpt_op *op)
{
    gpt_kind kind = OP_COPY;
    gpt_saves saves = SAVES_NOTHING;
    char name[GPT_NAME_MAX];
    int gradient = program->values[value].gradient, producer = gpt_producer(program, value);
    int undone = gpt_backward_op(program, value), arrives = gpt_producer(program, gradient);
    if (gradient < 0 || !gpt_backward_form(op->kind, &kind, &saves)) return;
    bool sum = producer >= 0 && program->ops[producer].kind == OP_ADD && arrives >= 0;
    if (!sum && undone < 0) return;
    snprintf(name, sizeof name, "d_%.*s", GPT_NAME_MAX - 3, program->values[value].name);
    int before = gpt_value_like(program, value, op->module, name);
    if (before < 0) return;
    program->values[before].role = ROLE_GRADIENT;
    snprintf(name, sizeof name, "d_%.*s", GPT_NAME_MAX - 3, program->values[made].name);
    memcpy(program->values[gradient].name, name, sizeof name);
    gpt_op back = backward_of(op, kind, saves, gradient, value, made);
    back.out[0] = before;
    int at = gpt_insert_op(program, sum ? arrives + 1 : undone, &back);
    if (at < 0) return;
    if (sum) {
        gpt_replace_input(program, at + 1, gradient, before);
        for (int i = 0; i < program->value_count; i++)
            if (program->values[i].gradient == gradient) program->values[i].gradient = before;
    } else {
        program->ops[at + 1].in[0] = before;
    }
    program->values[value].gradient = before;
    program->values[made].gradient = gradient;
}

int gpt_splice(gpt_program *program, int value, const gpt_op *op, const char *made)
{
    gpt_op forward = *op;
    int out = gpt_value_like(program, value, op->module, made);
    if (program->failed) return -1;
    int producer = gpt_producer(program, value);
    forward.in[0] = value;
    forward.in_count = 1;
    forward.out[0] = out;
    forward.out_count = 1;
    forward.loss = producer >= 0 && program->ops[producer].loss;
    int at = gpt_insert_op(program, producer + 1, &forward);
    if (at < 0) return -1;
    redirect(program, at + 1, value, out);
    splice_backward(program, value, out, &forward);
    if (program->loss == value) program->loss = out;
    return program->failed ? -1 : out;
}
