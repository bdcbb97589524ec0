/* program.c: find, add, insert and replace in a list of operators. */
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what runs now ----------------------------------------------------------------------------------------------------------- */

double gpt_op_number(const gpt_op *op, gpt_place place)
{
    const gpt_trigger *t = &op->trigger;
    bool meant = place.step >= t->step_first && place.step <= t->step_last && (t->rank < 0 || t->rank == place.rank);
    if (t->set && !meant) return t->idle;
    return op->grows ? pow(op->x, (double)place.step) : op->x;
}

size_t gpt_value_rows(const gpt_value *value, const gpt_run_shape *shape)
{
    return value->per_sample ? value->rows / shape->whole * shape->B : value->rows;
}

size_t gpt_value_count(const gpt_value *value, const gpt_run_shape *shape)
{
    return gpt_value_rows(value, shape) * value->columns;
}

/* ---- finding ----------------------------------------------------------------------------------------------------------------- */

int gpt_find_value(const gpt_program *program, const char *module, const char *name)
{
    for (int i = 0; i < program->value_count; i++)
        if (!strcmp(program->values[i].name, name) && !strcmp(program->values[i].module, module)) return i;
    return -1;
}

int gpt_find_op(const gpt_program *program, int from, const char *module, const char *name, bool backward)
{
    for (int i = from < 0 ? 0 : from; i < program->op_count; i++) {
        const gpt_op *op = &program->ops[i];
        if (op->backward == backward && !strcmp(op->name, name) && !strcmp(op->module, module)) return i;
    }
    return -1;
}

int gpt_producer(const gpt_program *program, int value)
{
    for (int i = 0; value >= 0 && i < program->op_count; i++)
        for (int k = 0; k < program->ops[i].out_count; k++)
            if (program->ops[i].out[k] == value) return i;
    return -1;
}

int gpt_backward_op(const gpt_program *program, int value)
{
    for (int i = program->backward; value >= 0 && i < program->op_count; i++)
        if (program->ops[i].backward && program->ops[i].of == value) return i;
    return -1;
}

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

/* One more element of `bytes` behind `count`; NULL when memory is short. Room doubles, so that building takes few calls. */
static void *grown(void *array, int count, int *room, size_t bytes)
{
    if (count < *room) return array;
    int wider = *room ? 2 * *room : 64;
    void *moved = realloc(array, (size_t)wider * bytes);
    if (moved) *room = wider;
    return moved;
}

static int fail(gpt_program *program)
{
    program->failed = true;
    return -1;
}

gpt_value gpt_value_init(const char *module, const char *name, gpt_role role, precision format)
{
    gpt_value value = {.role = role, .format = format, .rows = 1, .columns = 1, .ndim = 1, .shape = {1}};
    value.parameter = value.gradient = -1;
    snprintf(value.module, sizeof value.module, "%s", module);
    snprintf(value.name, sizeof value.name, "%s", name);
    return value;
}

int gpt_add_value(gpt_program *program, const gpt_value *value)
{
    gpt_value copy = *value; /* it may lie in the array that moves */
    gpt_value *values = grown(program->values, program->value_count, &program->value_room, sizeof *values);
    if (!values) return fail(program);
    program->values = values;
    values[program->value_count] = copy;
    return program->value_count++;
}

/* The description of a value to begin with; an empty one where the index is wrong. */
static gpt_value start_from(gpt_program *program, int of, const char *module, const char *name)
{
    gpt_value value = gpt_value_init(module, name, ROLE_ACTIVATION, PRECISION_FP32);
    if (of < 0 || of >= program->value_count) {
        program->failed = true;
        return value;
    }
    const gpt_value *v = &program->values[of];
    value.role = v->role == ROLE_GRADIENT ? ROLE_GRADIENT : ROLE_ACTIVATION;
    value.format = v->format;
    value.internal = true;
    value.per_sample = v->per_sample;
    value.rows = v->rows;
    value.columns = v->columns;
    value.ndim = v->ndim;
    memcpy(value.shape, v->shape, sizeof value.shape);
    value.position = v->position;
    value.mask = v->mask;
    return value;
}

int gpt_value_like(gpt_program *program, int of, const char *module, const char *name)
{
    gpt_value value = start_from(program, of, module, name);
    return gpt_add_value(program, &value);
}

int gpt_value_per_row(gpt_program *program, int of, const char *module, const char *name)
{
    gpt_value value = start_from(program, of, module, name);
    value.format = PRECISION_FP32;
    if (value.ndim > 1 && value.shape[value.ndim - 1] == value.columns && value.columns > 1) value.ndim--;
    value.columns = 1;
    value.mask = false;
    return gpt_add_value(program, &value);
}

int gpt_value_one(gpt_program *program, gpt_role role, const char *module, const char *name)
{
    gpt_value value = gpt_value_init(module, name, role, PRECISION_FP32);
    value.internal = true;
    return gpt_add_value(program, &value);
}

/* ---- operators --------------------------------------------------------------------------------------------------------------- */

gpt_op gpt_op_init(gpt_kind kind, const char *module, const char *name, const char *file, int line)
{
    gpt_op op = {.kind = kind, .file = file, .line = line, .of = -1};
    snprintf(op.module, sizeof op.module, "%s", module);
    snprintf(op.name, sizeof op.name, "%s", name);
    for (int i = 0; i < GPT_IN_MAX; i++) op.in[i] = -1;
    for (int i = 0; i < GPT_OUT_MAX; i++) op.out[i] = -1;
    return op;
}

static bool reads_and_makes_what_is_there(const gpt_program *program, const gpt_op *op)
{
    if (op->in_count < 0 || op->in_count > GPT_IN_MAX || op->out_count < 1 || op->out_count > GPT_OUT_MAX) return false;
    for (int i = 0; i < op->in_count; i++)
        if (op->in[i] < 0 || op->in[i] >= program->value_count) return false;
    for (int i = 0; i < op->out_count; i++)
        if (op->out[i] < 0 || op->out[i] >= program->value_count) return false;
    return true;
}

int gpt_insert_op(gpt_program *program, int at, const gpt_op *op)
{
    gpt_op copy = *op; /* it may lie in the array that moves */
    if (program->failed || at < 0 || at > program->op_count || !reads_and_makes_what_is_there(program, op)) return fail(program);
    gpt_op *ops = grown(program->ops, program->op_count, &program->op_room, sizeof *ops);
    if (!ops) return fail(program);
    program->ops = ops;
    memmove(ops + at + 1, ops + at, (size_t)(program->op_count - at) * sizeof *ops);
    ops[at] = copy;
    program->op_count++;
    if (at < program->backward || (at == program->backward && !copy.backward)) program->backward++;
    return at;
}

int gpt_append_op(gpt_program *program, const gpt_op *op)
{
    return gpt_insert_op(program, program->op_count, op);
}

void gpt_remove_op(gpt_program *program, int at)
{
    if (at < 0 || at >= program->op_count) {
        program->failed = true;
        return;
    }
    program->op_count--;
    memmove(program->ops + at, program->ops + at + 1, (size_t)(program->op_count - at) * sizeof *program->ops);
    if (at < program->backward) program->backward--;
}

void gpt_replace_input(gpt_program *program, int from, int value, int with)
{
    if (with < 0 || with >= program->value_count) program->failed = true;
    for (int i = from < 0 ? 0 : from; !program->failed && i < program->op_count; i++)
        for (int k = 0; k < program->ops[i].in_count; k++)
            if (program->ops[i].in[k] == value) program->ops[i].in[k] = with;
}

/* made: [value_count] whether a value was made so far, or is there before. */
static bool sound(const gpt_program *program, bool *made)
{
    for (int i = 0; i < program->value_count; i++) made[i] = true;
    for (int i = 0; i < program->op_count; i++)
        for (int k = 0; k < program->ops[i].out_count; k++) made[program->ops[i].out[k]] = false;
    for (int i = 0; i < program->op_count; i++) {
        const gpt_op *op = &program->ops[i];
        if (op->backward != (i >= program->backward)) return false;
        for (int k = 0; k < op->in_count; k++)
            if (!made[op->in[k]]) return false;
        for (int k = 0; k < op->out_count; k++) {
            if (made[op->out[k]]) return false;
            made[op->out[k]] = true;
        }
    }
    return true;
}

bool gpt_program_sound(const gpt_program *program)
{
    bool *made = calloc((size_t)program->value_count + 1, sizeof *made), is = false;
    if (made && !program->failed) is = sound(program, made);
    free(made);
    return is;
}

void gpt_program_release(gpt_program *program)
{
    free(program->values);
    free(program->ops);
    *program = (gpt_program){0};
}
