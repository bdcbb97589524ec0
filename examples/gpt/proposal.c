/* proposal.c: see proposal.h. */
#include "proposal.h"

#include <stdlib.h>
#include <string.h>

int proposal_open(proposal *p, const gpt_model *model, const guard *g)
{
    size_t n = model->parameter_count;
    *p = (proposal){.parameters = calloc(3 * n, sizeof *p->parameters), .views = calloc(3 * g->n, sizeof *p->views)};
    if (!p->parameters || !p->views) {
        proposal_close(p);
        return -1;
    }
    p->exp_avg = p->parameters + n;
    p->exp_avg_sq = p->parameters + 2 * n;
    for (size_t i = 0; i < g->n; i++) {
        for (size_t k = 0; k < 3; k++) {
            p->views[k * g->n + i] = g->state[k * g->n + i];
            p->views[k * g->n + i].data = p->parameters + k * n + model->tensors[i].offset;
        }
    }
    return 0;
}

void proposal_close(proposal *p)
{
    free(p->parameters);
    free(p->views);
    *p = (proposal){0};
}

void proposal_make(proposal *p, const gpt_model *model, const adamw *optimizer, const adamw_numbers *numbers)
{
    size_t bytes = model->parameter_count * sizeof *p->parameters;
    memcpy(p->parameters, model->parameters, bytes);
    memcpy(p->exp_avg, optimizer->exp_avg, bytes);
    memcpy(p->exp_avg_sq, optimizer->exp_avg_sq, bytes);
    p->updates = optimizer->updates;
    if (!numbers) return;
    adamw_write(model, p->parameters, p->exp_avg, p->exp_avg_sq, numbers);
    p->updates++;
}

void proposal_put_in_place(const proposal *p, gpt_model *model, adamw *optimizer)
{
    size_t bytes = model->parameter_count * sizeof *p->parameters;
    memcpy(model->parameters, p->parameters, bytes);
    memcpy(optimizer->exp_avg, p->exp_avg, bytes);
    memcpy(optimizer->exp_avg_sq, p->exp_avg_sq, bytes);
    optimizer->updates = p->updates;
}
