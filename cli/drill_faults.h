/*
 * The faults of `firstbad drill --all`, each with its truth, and as many healthy trainings.
 *
 * The truth is what the fault is: which operator first makes a number that is none follows from the arithmetic of what was put in
 * (docs/drill.md, examples/gpt/faults_*.c), and never from what firstbad said of it. The trainer has a table of its own; a test
 * compares the two, so that neither is bent silently.
 */
#ifndef CLI_DRILL_FAULTS_H
#define CLI_DRILL_FAULTS_H

#include <stdint.h>

/* What the right answer is. */
enum {
    DRILL_OPERATOR = 1,       /* one operator */
    DRILL_ENTRY_BAD = 2,      /* something that was there before the step, of the state or the batch; no operator is blamed */
    DRILL_NOT_REPRODUCED = 3, /* it came once */
    DRILL_NOT_STEADY = 4,     /* it comes now and then; nobody is blamed */
    DRILL_DISAGREEMENT = 5    /* no number is bad: ranks have parted, and are halted */
};

/* A text of the truth: "a|b": either is right. "*": not asked. "%d" in a module is the layer. */
typedef struct drill_fault {
    const char *id;   /* --fault of firstbad-gpt */
    const char *what; /* for a person, short */
    const char *arguments;
    int32_t answer;          /* DRILL_* above */
    int32_t every_rank;      /* 1: it is on every rank; 0: on one */
    int32_t late;            /* steps from its first to the one in which it is judged a fault */
    int32_t lasts;           /* 1: what makes it stays there, and the updates that follow are withheld as well */
    int32_t spreads;         /* 1: it is made inside of the update that is applied, and found in the state after it */
    int32_t seen;            /* set of 1 << FB_<boundary>: where the vote may say that it was seen first */
    int32_t origin;          /* FB_<boundary> of the operator, or of the entry */
    const char *module, *op; /* op NULL: none is to blame */
    const char *tensor;      /* of an entry; NULL: not asked */
    const char *cause;       /* classes of docs/format/causes.md */
    const char *rule;        /* NULL: not asked */
    int32_t samples;         /* of the smallest batch that shows it; 0: it does not come from the batch */
    int32_t reason;          /* of a disagreement: FB_REASON_* */
    int32_t compared;        /* 1: found when replicas are compared, at the next multiple of DRILL_COMPARED_EVERY */
    int32_t layer_first;     /* lowest layer that it makes sense in */
} drill_fault;

typedef struct drill_healthy {
    const char *id, *what;
    const char *fault; /* --fault, without keys; NULL: nothing is put in */
    int32_t idle;      /* 1: with steps=0: the program of a fault, with data that does no harm */
    const char *arguments;
    int32_t probing; /* 1: the loss scale skips updates, as it should */
} drill_healthy;

enum { DRILL_COMPARED_EVERY = 8 };

extern const drill_fault drill_faults[];
extern const int drill_fault_count;
extern const drill_healthy drill_healthies[];
extern const int drill_healthy_count;

#endif
