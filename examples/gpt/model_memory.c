/*
 * model_memory.c: which values share memory. Operators run in a fixed order, so a value lives from its producer to its last reader;
 * behind that its room is free. An output never takes the room of an input of the same operator: who listens finds both.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 16 }; /* floats, a cache line */

typedef struct slot {
    size_t offset, room;
    int value; /* that lives there, or -1 */
} slot;

typedef struct layout {
    gpt_program *program;
    float *memory;
    size_t used;
    int *last; /* [value_count] the last operator that reads it, or the one that makes it; -1: none does */
    bool *kept;
    slot *slots; /* [value_count] */
    int slot_count;
} layout;

static size_t count_of(const gpt_value *value)
{
    return (value->rows * value->columns + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static void place(const layout *l, int value, size_t offset)
{
    gpt_value *v = &l->program->values[value];
    if (!l->memory) return;
    v->data = l->memory + offset;
    v->room = v->rows * v->columns;
}

static void find_lives(const layout *l)
{
    for (int i = 0; i < l->program->value_count; i++) l->last[i] = -1;
    for (int i = 0; i < l->program->op_count; i++) {
        const gpt_op *op = &l->program->ops[i];
        for (int k = 0; k < op->in_count; k++) l->last[op->in[k]] = i;
        for (int k = 0; k < op->out_count; k++) l->last[op->out[k]] = i;
    }
}

/* The smallest free slot that is large enough, or a new one. */
static void take(layout *l, int value)
{
    size_t count = count_of(&l->program->values[value]);
    int best = -1;
    for (int i = 0; i < l->slot_count; i++)
        if (l->slots[i].value < 0 && l->slots[i].room >= count && (best < 0 || l->slots[i].room < l->slots[best].room)) best = i;
    if (best < 0) {
        best = l->slot_count++;
        l->slots[best] = (slot){.offset = l->used, .room = count};
        l->used += count;
    }
    l->slots[best].value = value;
    place(l, value, l->slots[best].offset);
}

static void give_back(layout *l, int op)
{
    for (int i = 0; i < l->slot_count; i++)
        if (l->slots[i].value >= 0 && l->last[l->slots[i].value] <= op) l->slots[i].value = -1;
}

/* What keeps its memory: it is there before the program, or somebody looks at it later. */
static void keep_some(const layout *l)
{
    const gpt_program *p = l->program;
    for (int i = 0; i < p->value_count; i++) {
        const gpt_value *v = &p->values[i];
        l->kept[i] = v->role == ROLE_BATCH || v->role == ROLE_SCALAR || v->role == ROLE_BUFFER || i == p->loss;
        if (v->role == ROLE_ACTIVATION && !v->internal) l->kept[i] = true;
    }
    int logits = gpt_find_value(p, "lm_head", "logits");
    if (logits >= 0 && p->values[logits].gradient >= 0) l->kept[p->values[logits].gradient] = true;
}

static void lay_out(layout *l, const gpt_model *model)
{
    gpt_program *p = l->program;
    for (int i = 0; i < p->value_count; i++) {
        gpt_value *v = &p->values[i];
        if (v->role == ROLE_PARAMETER && v->parameter >= 0) {
            v->data = model->weights ? model->weights + model->tensors[v->parameter].offset : NULL;
            v->room = v->rows * v->columns;
        } else if (l->kept[i] && !v->data) {
            place(l, i, l->used);
            l->used += count_of(v);
        }
    }
    for (int i = 0; i < p->op_count; i++) {
        for (int k = 0; k < p->ops[i].out_count; k++)
            if (!l->kept[p->ops[i].out[k]]) take(l, p->ops[i].out[k]);
        give_back(l, i);
    }
}

size_t gpt_lay_out_values(gpt_model *model, float *memory)
{
    layout l = {.program = &model->program, .memory = memory};
    size_t count = (size_t)model->program.value_count;
    l.last = calloc(count, sizeof *l.last);
    l.kept = calloc(count, sizeof *l.kept);
    l.slots = calloc(count, sizeof *l.slots);
    if (l.last && l.kept && l.slots) {
        find_lives(&l);
        keep_some(&l);
        lay_out(&l, model);
    } else {
        l.used = SIZE_MAX;
    }
    free(l.last);
    free(l.kept);
    free(l.slots);
    return l.used;
}
