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

/* Whether a number in these arrays, in the layout of the parameters, is not finite. */
int finding_bad_floats(const float *x, size_t count);

#endif
