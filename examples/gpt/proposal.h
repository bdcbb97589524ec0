/*
 * proposal.h: --keep-state. The optimizer writes into a second copy of parameters and moments; what it wrote is looked at there,
 * voted on, and put in place when every rank found it finite. The bits are those of an update in place. So an update that makes a
 * bad number is found at its own step, and the state that it was made from is still there to replay it from.
 */
#ifndef GPT_PROPOSAL_H
#define GPT_PROPOSAL_H

#include "guard.h"
#include "optim.h"

typedef struct proposal {
    adamw_state state; /* parameters NULL: updates are made in place */
    int64_t updates;   /* the counter that goes with them */
    fb_view *views;    /* [3 n] of guard.state, with this memory */
} proposal;

/* 0; -1 when memory is short. After guard_open. */
int proposal_open(proposal *p, const gpt_model *model, const guard *g);
void proposal_close(proposal *p);

/* What an update with these numbers makes of the state. numbers NULL: the state as it is, from a rank
 * that leaves the update out. */
void proposal_make(proposal *p, const gpt_model *model, const adamw *optimizer, const adamw_numbers *numbers);
void proposal_put_in_place(const proposal *p, const gpt_model *model, adamw *optimizer);

#endif
