/*
 * Why: from what was kept of the accused operator, and from how the replays went, to a rule, a class and sentences. Pure: no files,
 * no clock, no memory; the same facts give the same text.
 *
 *   fb_cause_facts facts;
 *   fb_cause_facts_of(&facts, config, result, witness);      what fb_locate_run has at hand
 *   fb_cause_judge(&facts, &cause);                          cannot fail: what is not known gives "unknown", and says what is
 *   missing
 *
 * The rules (design/locate.md) compare the operator in FP64 with the format its output was rounded to. Non-finite numbers in the
 * witness are told by their bits; nothing here divides by, or takes the logarithm of, a number that it has not looked at.
 */
#ifndef FB_LOCATE_CAUSE_H
#define FB_LOCATE_CAUSE_H

#include "locate/causes.h"
#include "locate/witness.h"

typedef struct fb_cause_facts {
    const fb_witness *witness; /* NULL: nothing was kept */
    int32_t found;             /* FB_LOCATED_* */
    int32_t world, owner;      /* owner: rank of the witness; -1 unknown */
    int64_t step;
    const char *precision; /* of the run; NULL: unknown */
    /* The finding. */
    int32_t finding_rank, finding_boundary, finding_kind, finding_micro_step;
    const char *finding_module, *finding_tensor;
    /* How the replays went. */
    uint32_t reproduced, tried;
    int32_t persists; /* in FP32: 1, 0, -1 not tried */
    int32_t faithful;
    uint32_t other_ranks_bad, other_ranks_tried;
    uint32_t candidates;
    int32_t first_step_of_attempt; /* as in fb_locate_config */
    /* The batch of the finding's micro-step. */
    uint32_t rows, columns;
    const int64_t *sample_ids; /* [rows]; NULL: unknown */
    const char *folder;        /* of the case: its last part names it in `verify`; NULL: "CASE" stands there */
} fb_cause_facts;

typedef struct fb_cause {
    int32_t rule;           /* FB_RULE_* */
    int32_t class_number;   /* FB_CAUSE_* */
    int32_t certain;        /* 1: the evidence proves the class; 0: it fits best, and the explanation says what else would */
    int32_t format;         /* that the number did not fit, or was rounded to; 0: none */
    int32_t format_needed;  /* the smallest of FP16, BF16, FP32 that holds it; 0: none */
    int32_t has_value;      /* value and limit are set */
    double value, limit;    /* the exact value, and the largest finite one of `format` */
    int64_t row;            /* of the bad element in the tensor seen as rows of its last dimension; -1 unknown */
    int64_t sample;         /* index in the batch; -1 unknown */
    int64_t sample_id;      /* -1 unknown */
    char explanation[2048]; /* one sentence, or a few */
    char witness[1024];     /* one sentence: what was read, what was made */
    char fix[512];
    char verify[512];
} fb_cause;

void fb_cause_facts_of(fb_cause_facts *facts, const fb_locate_config *config, const fb_locate_result *result,
                       const fb_witness *witness);
void fb_cause_judge(const fb_cause_facts *facts, fb_cause *cause);

#endif
