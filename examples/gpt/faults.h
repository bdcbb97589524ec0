/*
 * faults.h: a catalogue of real faults, each of which can be put into a training on purpose, and what is true about it.
 *
 * A fault is not a NaN that is written somewhere: it is a wrong operator, a sample, a constant or a piece of memory from which a
 * bad number follows by arithmetic, at a known step and on a known rank, whatever the seed. Most are changes of the program
 * (faults_alter), so that a replay runs them again by itself; the rest are the hooks below. Without faults each hook does nothing.
 *
 * Names beginning with "ok-" are healthy: they take the same ways with harmless data, and nothing may be reported for them.
 *
 * "Training" beside a hook: it is called while training alone, and what it changes is state or batch that a replay starts from.
 * "Both": also in a replay, with the same place.
 */
#ifndef GPT_FAULTS_H
#define GPT_FAULTS_H

#include "model.h"
#include "program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FAULTS_MAX = 4 };

/*
 * What may rightly be said about a fault. NULL: nothing. "%d" in a module is the layer; "a|b": either is right. Boundaries:
 * entry_state, input, forward, loss, local_gradient, reduced_gradient, update; and "disagreement" in `seen`: every number is
 * finite, and the ranks learn from a vote that they differ. Of parameters that differ, in the next step whose number
 * --replica-period divides.
 */
typedef struct fault_truth {
    const char *seen;        /* boundary at which the guard first sees it */
    const char *forward;     /* the same with --check forward */
    const char *origin;      /* boundary of the operator that made the first bad number, or of the entry that is bad */
    const char *module, *op; /* op NULL: no operator is to blame */
    const char *tensor;      /* that it made, or the entry that is bad */
    const char *cause,
        *rule;   /* docs/format/causes.md; range, rounding, rounding_upstream, domain, state, batch, not_reproducible */
    int samples; /* of the smallest batch that shows it; 0: it does not come from the batch */
    int in_fp32; /* 1: a replay in FP32 shows it too; 0: it does not; -1: not asked */
} fault_truth;

typedef struct fault fault;

typedef struct fault_row {
    const char *name, *sentence;
    const char *options; /* of firstbad-gpt that it needs: "--precision fp16 --loss-scale 256"; "" none */
    fault_truth truth;
    void (*alter)(const fault *, gpt_program *, const gpt_config *); /* change of the program; NULL: none */
    int how;                                                         /* which change the other hooks make; 0: none */
    bool every_rank;                                                 /* it is on every rank unless one is named */
    int steps;                                                       /* that it lasts unless told otherwise; 0: 1 */
    int late;                                                        /* steps after the first at which it shows */
} fault_row;

struct fault {
    const fault_row *row;
    int64_t step, steps; /* first step, and how many; 0: the program is changed, and the fault never comes about */
    int32_t rank;        /* -1: every rank */
    int32_t layer;       /* -1: the middle one */
};

typedef struct faults {
    size_t count;
    fault of[FAULTS_MAX];
} faults;

/*
 * Add what "NAME[@key=value,...]" says: keys step (default 5), steps, rank (a number or all; default 1, or what the fault needs),
 * layer (default the middle one). steps=0 is the healthy counterpart: the same program with harmless data.
 * 0; or -1 with a sentence in `message`.
 */
int faults_read(faults *f, const char *spec, char *message, size_t message_bytes);
/* For `--fault list`: a line for each, to be read by people. */
void faults_list(FILE *out);
/* For `--fault truths`: the same with what is true of each, as JSON, one object a line. */
void faults_list_truths(FILE *out);
/* The catalogue, `*count` rows. */
const fault_row *faults_rows(size_t *count);

/* gpt_config.alter, with a `faults` as context. Both, since a replay runs the same program. */
void faults_alter(void *faults, gpt_program *program, const gpt_config *config);

/* One micro-step's batch, as the rank has drawn it. */
typedef struct fault_batch {
    size_t rows, columns;
    int32_t *tokens, *targets, *positions; // (B,T)
    float *weights, *key_mask;             // (B,T)
} fault_batch;
/* Training: after a micro-step's batch was drawn, before anything is checked. A bundle holds what this has left. */
void faults_batch(const faults *f, gpt_place place, const fault_batch *batch);

typedef struct fault_state {
    gpt_model *model;
    float *exp_avg, *exp_avg_sq;
    int64_t *updates;
} fault_state;
/* Training: before the step's first check. 1: parameters changed, gpt_load_weights is due again. */
int faults_entry(const faults *f, gpt_place place, const fault_state *state);

/* Training: before the step; 1 when this rank's own loss scaler is to be set to *scale: ranks that disagree. */
int faults_scaler(const faults *f, gpt_place place, double *scale);
/* Both: the loss scale that backward and unscale really use. */
double faults_scale(const faults *f, gpt_place place, double scale);

/* Both: before each forward pass. Fills the buffers that a fault has put into the program (a table, a temperature). */
void faults_buffers(const faults *f, gpt_model *model, gpt_place place);

/*
 * Both: first thing after operator `op` of the program ran, before a tape hears of it. A broken device changes what it computed.
 * process_rank: of this process, also where place.rank is another's, since a device does not move with the batch.
 * replay: 0 in training, else the number of the replay, from 1.
 */
void faults_heard(const faults *f, gpt_model *model, int op, gpt_place place, int32_t process_rank, uint32_t replay);
/* Whether faults_heard has anything to do at all. */
bool faults_hear(const faults *f);

/* The store of 16 bits in which gradients wait, or NULL in fp32, where it is model->gradients. */
/* Both: after the store was cleared, before the first micro-step. 1: it is not clear, and belongs to what was there on entry. */
int faults_store(const faults *f, gpt_place place, gpt_model *model, uint16_t *half);
/* Both: after a micro-step was added to the store. Elements that are large, and finite on each rank. */
void faults_local(const faults *f, gpt_place place, gpt_model *model, uint16_t *half);
/* Both: after the collective, before the store is widened. */
void faults_reduced(const faults *f, gpt_place place, int32_t process_rank, uint32_t replay, gpt_model *model, uint16_t *half);

/* What the optimizer computes with. */
typedef struct fault_constants {
    double learning_rate, beta1, beta2, epsilon;
    int64_t updates;   /* that bias correction takes: 1 for the first update */
    precision moments; /* format of moments, of epsilon and of what is in between; FP32 as it should be */
} fault_constants;
/* Both: before the update. */
void faults_update(const faults *f, gpt_place place, fault_constants *constants);
/* Both: what gradients are multiplied with. In: norm (FP64, of the unscaled gradient) and the coefficient that clipping makes of
 * it.
   gradient: [count] unscaled, for a norm that is taken in another way. Out, returned: the coefficient; *norm as the trainer has it.
   */
double faults_clip(const faults *f, gpt_place place, const float *gradient, size_t count, double clip, double *norm,
                   double coefficient);
/* Both: whether that norm is summed in FP32. */
bool faults_norm_is_single(const faults *f, gpt_place place);
/* Training: 0 when this rank alone leaves the update out. */
bool faults_applies(const faults *f, gpt_place place);

#endif
