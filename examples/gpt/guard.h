/*
 * guard.h: what firstbad has to know once: the names of all tensors, and which memory is checked at which boundary. The calls of
 * each step stand in train.c.
 */
#ifndef GPT_GUARD_H
#define GPT_GUARD_H

#include "checkpoint.h"
#include "gradients.h"
#include "options.h"

#include <firstbad/firstbad.h>

typedef struct guard {
    fb_run *run;
    fb_view *local;   /* gradients before the collective, in the training format; n of them */
    fb_view *reduced; /* gradients after it, FP32; n */
    fb_view *state;   /* parameters, exp_avg, exp_avg_sq: 3 n, then the update counter */
    size_t n;
    uint32_t *activations; /* sites, in the order of gpt_model.activations; NULL without --check forward */
    uint16_t *narrow;      /* an activation in its own 16 bits, while it is looked at */
    fb_status watched;     /* FB_OK, or what went wrong while activations were looked at; its sentence is in watched_error */
    fb_error watched_error;
    precision format;
    uint32_t tokens, weights;
    uint8_t *mask; /* a micro-step's key mask as integers, while it is checked */
    fb_view loss;
    double grad_norm; /* of the reduced gradients, as the trainer clips with it */
    fb_view norm;     /* of grad_norm */
} guard;

/* The site of grad_norm: the last thing that is made of the reduced gradients, so its position is the smallest. */
enum { NORM_POSITION = 0 };

/* Open the run on every rank and name everything. FB_OK, or the status and sentence of what failed. */
fb_status guard_open(guard *g, const options *o, gpt_model *model, adamw *optimizer, gradients *grads, const dataset *data,
                     MPI_Comm comm, fb_error *err);
void guard_close(guard *g);

/* For gpt_model.watch, with the guard as watcher: check one activation at FB_FORWARD, in the training format. */
gpt_watch guard_watch;

#endif
