/*
 * trainer.h: what a rank holds while it trains, and what the files of the program say to each other.
 *
 *   train.c     the program: the loop over steps, and its log
 *   step.c      one update, with firstbad and without
 *   save.c      checkpoints, written and read
 *   incident.c  what happens when an update was bad: capture, replay, locate
 *   replay_main.c  the program when it was started to replay a bundle
 */
#ifndef GPT_TRAINER_H
#define GPT_TRAINER_H

#include "checkpoint.h"
#include "faults.h"
#include "gradients.h"
#include "guard.h"
#include "options.h"
#include "proposal.h"

#include <firstbad/firstbad.h>

#include <mpi.h>

enum { EXIT_HALTED = 1, EXIT_WRONG_USE = 2, EXIT_FAILED = 3 };
enum { GPT_PATH_MAX = 4096 };

/* The newest checkpoint that this run wrote or was resumed from; a bundle that has no room for the state refers to it. */
typedef struct last_checkpoint {
    char path[GPT_PATH_MAX]; /* absolute; "" : there is none */
    int64_t step, updates;
} last_checkpoint;

typedef struct trainer {
    options options;
    MPI_Comm comm;
    int rank, world;
    gpt_model *model;
    adamw optimizer;
    dataset data;
    batch batch;
    gradients gradients;
    guard guard;
    train_state state;
    int64_t parent; /* step of the checkpoint that this run continues, or -1 */
    int64_t first;  /* first step of this launch */
    last_checkpoint saved;
    left_out left_out;
    proposal proposal;
    char located[32]; /* the case that was located last */
    int probing;      /* updates in a row that were skipped as probing, and 0 once one of them was replayed */
} trainer;

/* What one step came to. */
typedef struct outcome {
    double loss, norm, learning_rate, scale;
    int norm_known, skipped, halted;
} outcome;

/* A sentence on stderr, from rank 0; returns the code. */
int complain(const trainer *t, int code, const char *sentence);
/* The worst status of all ranks, so that none goes on alone. Collective. */
int agree(const trainer *t, int status);
/*
 * A refused call is a mistake of this program: one rank cannot stop alone, so all are ended. A bad number is no such thing; it
 * comes as a verdict, which all ranks share.
 */
void must(const trainer *t, fb_status status, const fb_error *err);
gpt_place place_of(const trainer *t, int64_t step, size_t micro);

adamw optimizer_of(const options *o);

/* Draw the batch of a step on this rank, with what a fault makes of it. 0; -1 when every window was left out. */
int trainer_draw(trainer *t, int64_t step);

/* step.c. Collective. */
void step_plain(trainer *t, int64_t step, outcome *out);
void step_guarded(trainer *t, int64_t step, outcome *out);

/* save.c: each returns 0 or an exit code, the same on every rank. */
int save(trainer *t, int64_t step);
int resume(trainer *t);
int dump(trainer *t, int64_t step);
/* What firstbad found out about checkpoints while training went on. */
void tell_verdicts(const trainer *t);

#endif
