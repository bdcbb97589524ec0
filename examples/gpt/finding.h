/* finding.h: which tensor of the trainer a verdict speaks of. */
#ifndef GPT_FINDING_H
#define GPT_FINDING_H

#include "replay.h"
#include "trainer.h"

/*
 * The verdict has boundary, micro-step, rank and position; the names are those that guard.c gave to the site there. Filled on the
 * rank that has the finding and told to all. Collective. 0; -1 when the verdict speaks of no tensor: ranks that disagree, a vote
 * that
 * failed.
 */
int finding_of(const trainer *t, const fb_verdict *verdict, finding *out);

/* Whether it is the norm of the gradients, and no element of them. */
int finding_is_norm(const finding *f);

/* Add a norm that is not finite to what the next vote hears of. */
void finding_report_norm(trainer *t);

#endif
