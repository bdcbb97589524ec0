/*
 * incident.h: what the trainer does when an update was bad and judged a fault: keep all that a replay needs in a bundle, replay the
 * step in the living process, find the operator that made the first bad number, and say so once. On a healthy step nothing of it
 * runs and nothing is taken.
 */
#ifndef GPT_INCIDENT_H
#define GPT_INCIDENT_H

#include "trainer.h"

/*
 * After a verdict that is not clean, on every rank alike, while parameters, moments and the batch are those the step began with.
 * The first update of a case is located; what is judged probing is replayed once in FP32 after the second skip in a row. Training
 * state is left as it was, to the bit, and the job is ended if that should ever not be so.
 */
void incident(trainer *t, int64_t step, const fb_verdict *verdict, const outcome *out);

#endif
