/* proposal.c: see proposal.h. */
#include "proposal.h"

#include <stdlib.h>
#include <string.h>

int proposal_open(proposal *p, const gpt_model *model, const guard *g)
{
    size_t n = model->parameter_count;
    *p = (proposal){.state.parameters = calloc(3 * n, sizeof(float)), .views = calloc(3 * g->n, sizeof *p->views)};
    if (!p->state.parameters || !p->views) {
        proposal_close(p);
        return -1;
    }
    p->state.exp_avg = p->state.parameters + n;
    p->state.exp_avg_sq = p->state.parameters + 2 * n;
    for (size_t i = 0; i < g->n; i++) {
        for (size_t k = 0; k < 3; k++) {
            p->views[k * g->n + i] = g->state[k * g->n + i];
            p->views[k * g->n + i].data = p->state.parameters + k * n + model->tensors[i].offset;
        }
    }
    return 0;
}

void proposal_close(proposal *p)
{
    free(p->state.parameters);
    free(p->views);
    *p = (proposal){0};
}

static void copy_state(const gpt_model *model, adamw_state from, adamw_state to)
{
    size_t bytes = model->parameter_count * sizeof *to.parameters;
    memcpy(to.parameters, from.parameters, bytes);
    memcpy(to.exp_avg, from.exp_avg, bytes);
    memcpy(to.exp_avg_sq, from.exp_avg_sq, bytes);
}

static adamw_state state_of(const gpt_model *model, const adamw *optimizer)
{
    return (adamw_state){model->parameters, optimizer->exp_avg, optimizer->exp_avg_sq};
}

void proposal_make(proposal *p, const gpt_model *model, const adamw *optimizer, const adamw_numbers *numbers)
{
    if (numbers) adamw_write(model, state_of(model, optimizer), p->state, numbers);
    else copy_state(model, state_of(model, optimizer), p->state);
    p->updates = optimizer->updates + (numbers ? 1 : 0);
}

void proposal_put_in_place(const proposal *p, const gpt_model *model, adamw *optimizer)
{
    copy_state(model, p->state, state_of(model, optimizer));
    optimizer->updates = p->updates;
}
