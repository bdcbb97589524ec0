/*
 * What was kept of the operator that is accused: what it read, what it made, the way from there to the finding, and what came out
 * when it ran again in FP64. Filled by run.c, judged by cause.c, written by evidence.c. Plain data; one owner frees it.
 */
#ifndef FB_LOCATE_WITNESS_H
#define FB_LOCATE_WITNESS_H

#include "firstbad/locate.h"

/* A tensor as it was in the replay in which the witness was seen. */
typedef struct fb_witness_tensor {
    char *module, *name; /* never NULL */
    uint32_t flags;      /* FB_TAPE_* */
    int32_t format;      /* FB_F16, ... that the numbers live in; FB_I32 and the like for integers */
    int32_t ndim;
    int64_t shape[FB_DIMS_MAX];
    uint64_t count;
    double *values; /* [count], exact for formats up to FP64 and integers up to 2^53; NULL where it was not kept (too large) */
    fb_scan_result stats; /* of the whole tensor, also where values is NULL */
    int32_t entry;        /* 1: it was there before the step; 0: an operator made it */
    int32_t seen;         /* FB_SEEN_* of search/trace.h */
} fb_witness_tensor;

#define FB_WITNESS_NONE UINT32_MAX /* no tensor */

/* An operator by its names, for chains and intervals. */
typedef struct fb_witness_place {
    char *op, *module, *source; /* never NULL; "" unknown */
    char *node;                 /* autograd node that ran it, "SqrtBackward0"; NULL or "": none */
    char *tensor;               /* what it made that is bad, or the entry's name */
    int32_t boundary, micro_step;
    int32_t label; /* FB_LABEL_* of search/bisect.h */
    int32_t entry; /* 1: no operator: an entry */
    uint32_t flags;
    /* Ids on the tape: `made` is `tensor`, `reads` the bad tensor that the operator read: in a chain the `made` of the link before,
       and FB_WITNESS_NONE for the one that the chain begins with. A chain without them cannot be checked, and names nobody. */
    uint32_t made, reads;
} fb_witness_place;

/* A number that an operator of the module was built with, and the format that the operator works in: 1e-8 is 0 in FP16. */
typedef struct fb_witness_number {
    char *op, *name; /* never NULL */
    double value;    /* as written */
    int32_t format;  /* FB_F16, ... of the first output of that operator */
} fb_witness_number;

/* What a number is that an input of the accused operator consists of. */
enum {
    FB_MADE_UNKNOWN = 0,
    FB_MADE_COUNT = 1,    /* how many: a sum of what is true, or of integers of the batch; or a count that came with the batch */
    FB_MADE_WEIGHTS = 2,  /* a sum of numbers that came with the batch, by nothing that could make one vanish */
    FB_MADE_OTHERWISE = 3 /* something else: computed, or learned */
};

/* Where an input of the accused operator comes from. Views, casts and copies are looked through. */
typedef struct fb_witness_source {
    char *entry;        /* name of the entry that it is; NULL: an operator made it */
    int32_t is;         /* FB_MADE_* */
    int32_t unseen;     /* 1: of numbers that the program may have computed before the tape begins */
    char *of, *by;      /* field of the batch that was counted or summed up, comparison by which: "labels", "ne"; NULL */
    uint32_t summed_id; /* on the tape, of what was summed up; FB_WITNESS_NONE: there is no sum */
    fb_witness_tensor summed;
} fb_witness_source;

typedef struct fb_witness {
    fb_witness_place place; /* of the origin */
    fb_tape_attribute *attributes;
    uint32_t attribute_count;
    uint32_t op_flags; /* FB_TAPE_COLLECTIVE */
    fb_witness_tensor *inputs, *outputs;
    uint32_t input_count, output_count;
    uint32_t bad_output; /* index into outputs */
    uint64_t bad_index;  /* flat, in that output */
    int32_t bad_kind;    /* FB_KIND_* */

    /* The operator again in FP64 on the inputs above: [output_count], each [outputs[i].count]; NULL: it could not be run. For a
       collective operator on the ranks' own inputs together. */
    double **exact;
    /* The same outputs when all of its module ran in FP64, from what the module itself read. NULL: it could not be run, or the
       module is this one operator. */
    double **module_exact;
    uint32_t module_ops; /* operators that the module took */
    /* A number of the module that is not 0 as written and is 0 in the format it was used in: "epsilon"; NULL: none. */
    char *vanished;
    double vanished_value;
    int32_t vanished_format;

    /* Optional, 0 where they were not kept. What the module itself read (targets, weights, a mask of keys: which of them decides
       whether a 0/0 is an all-ignored batch), and the numbers of its operators up to the origin, in their order. */
    fb_witness_tensor *module_inputs;
    uint32_t module_input_count;
    fb_witness_number *numbers;
    uint32_t number_count;
    fb_witness_source *sources; /* [input_count]; NULL: not known */
    uint32_t ranks_bad;         /* ranks on which the origin's output is bad, in the replay of the witness; 0: not counted */

    fb_witness_place *chain; /* from the origin to the finding, both included */
    uint32_t chain_count;
    uint32_t
        finding; /* id on the tape of the tensor that is the finding: the `made` of the last link; FB_WITNESS_NONE: not on it */
    fb_witness_place *candidates; /* where the answer is a set, an interval or an entry */
    uint32_t candidate_count;
    fb_witness_place *swallowed; /* other operators that made something bad which reached nothing, at most 16 */
    uint32_t swallowed_count;
    /* Operators that may have failed by themselves too, and come after something that is bad for certain: at most 16 */
    fb_witness_place *later;
    uint32_t later_count;
} fb_witness;

#endif
