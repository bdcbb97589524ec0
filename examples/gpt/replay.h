/*
 * replay.h: one update once more, from a captured state, on memory of its own: the callbacks of fb_locate_run.
 *
 *   replay_open
 *     replay_run     the update up to the boundary of the finding, told to a tape
 *     replay_rerun   one operator in FP64
 *   replay_close
 *
 * Nothing of the living run is written: the model, the gradients and the optimizer's numbers are copies, taken at open and given
 * back at close. All ranks run a replay together, since it may end in a collective.
 */
#ifndef GPT_REPLAY_H
#define GPT_REPLAY_H

#include "data.h"
#include "gradients.h"
#include "optim.h"
#include "options.h"
#include "tell.h"

#include <firstbad/locate.h>

#include <mpi.h>

/* What was found, by the names of its site. */
typedef struct finding {
    int32_t rank, boundary, micro_step, kind;
    char module[GPT_MODULE_MAX], tensor[56];
} finding;

/* What a replay starts from. Borrowed for as long as the replay lives. */
typedef struct replay_start {
    const options *options;
    const adamw *optimizer; /* its constants; the moments and the counter stand below */
    finding finding;
    int64_t step;
    int32_t rank;  /* of the run: whose batch, random numbers and faults this process has */
    int32_t world; /* of the run: over which the mean is taken */
    double scale, learning_rate;
    const float *parameters, *exp_avg, *exp_avg_sq;
    int64_t updates;
    const batch *batch;
    const uint32_t *rows; /* that are left of the finding's micro-step on this rank; NULL: all of them */
    size_t row_count;
} replay_start;

/* A model in one format, with its own gradients. */
typedef struct replay_model {
    gpt_model *model;
    gradients gradients;
    uint32_t *ids; /* [values of the program] what the tape calls them in this micro-step */
} replay_model;

typedef struct replay {
    replay_start start;
    MPI_Comm comm;
    int process, processes;
    int *roles; /* [processes] rank of the run that each plays */
    replay_model models[3];
    batch other, smaller; /* that of another rank; a part of one micro-step */
    uint32_t *row_ids;
    uint32_t *masters, *weights; /* [tensors] ids: parameters, and as they are used in the format */
    uint32_t *store, *reduced;   /* [tensors] local gradients, and what the collective made of them */
    uint32_t *moments;           /* [2 tensors] */
    uint32_t updates;            /* id of the counter */
    adamw_numbers numbers;       /* of the update, and the norm that it clips with */
    double norm;
    uint32_t norm_id;
    float *work; /* WORK_ARRAYS times the largest tensor */
    size_t largest;

    /* The replay that runs. */
    const fb_replay_request *request;
    replay_model *now;
    const batch *batch;
    int32_t as; /* rank that is played */
    double scale;
    teller teller;
    gpt_run_shape shape; /* of the last whole replay, for reruns */
    replay_model *shown; /* and its model */
} replay;

/* Collective. 0; or -1 on all ranks when memory is short on one; closed then. */
int replay_open(replay *r, const replay_start *start, MPI_Comm comm);
void replay_close(replay *r);

fb_status replay_run(void *replay, fb_tape *tape, const fb_replay_request *request, fb_error *err);
fb_status replay_rerun(void *replay, fb_rerun *rerun, fb_error *err);
/* Integers, the largest of all ranks; ctx is the replay. */
fb_status replay_max(void *replay, int32_t *values, size_t count, fb_error *err);

/* ---- parts of it, for each other -------------------------------------------------------------------------------------------- */

enum { WORK_ARRAYS = 7 };

gpt_place replay_place(const replay *r, size_t micro);
/* replay_program.c: what is there before the step; forward and backward of one micro-step, operator by operator. */
void replay_tell_state(replay *r);
void replay_forward(replay *r, size_t micro);
void replay_backward(replay *r, size_t micro);
/* replay_update.c: from the gradient of a micro-step to the parameters. */
void replay_begin_store(replay *r);
void replay_accumulate(replay *r, size_t micro);
void replay_reduce(replay *r);
void replay_update(replay *r);

#endif
