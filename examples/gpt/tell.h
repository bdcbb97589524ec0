/*
 * tell.h: telling a tape what a replay does. A failure is kept and ends the telling, not the replay: other ranks wait in the
 * collectives that follow.
 */
#ifndef GPT_TELL_H
#define GPT_TELL_H

#include "model.h"

#include <firstbad/locate.h>

#define TOLD_NONE UINT32_MAX

typedef struct teller {
    fb_tape *tape;
    fb_status status;
    fb_error error;
} teller;

/* Operators outside the program have numbers of their own, see rerun.c; one of the program is its micro-step and its index. */
#define TOKEN_OUTSIDE 0x80000000u
enum { TOKEN_OP_BITS = 17 };
typedef enum told {
    TOLD_CAST,       /* weights, out of the optimizer's copy */
    TOLD_ACCUMULATE, /* the store of a micro-step, out of the one before it and of the micro-step's gradient */
    TOLD_ALL_REDUCE,
    TOLD_UNSCALE,
    TOLD_NORM,            /* over all tensors */
    TOLD_QUOTIENT,        /* limit / norm */
    TOLD_COEFFICIENT,     /* at most 1 */
    TOLD_CORRECTION1,     /* 1 - beta1^updates */
    TOLD_CORRECTION2,     /* 1 - beta2^updates */
    TOLD_ROOT_CORRECTION, /* its root */
    TOLD_STEP_SIZE,       /* learning rate / correction1 */
    TOLD_STAGES           /* + adamw_stage */
} told;

/* Both return the id, or TOLD_NONE once something failed. */
uint32_t tell_entry(teller *t, const fb_tape_value *value);
uint32_t tell_op(teller *t, fb_tape_op op, const uint32_t *inputs, uint32_t input_count, const fb_tape_value *output);
/* The same for any number of outputs; ids may be NULL. */
void tell_outputs(teller *t, fb_tape_op op, const uint32_t *inputs, uint32_t input_count, const fb_tape_value *outputs,
                  uint32_t *ids);

/* A value as a tape takes it. name is kept by reference until it is told. */
fb_tape_value told_tensor(const gpt_tensor *tensor, const char *name, const void *data, int32_t dtype, uint32_t flags);
fb_tape_value told_number(const char *module, const char *name, const double *x, uint32_t flags);
int32_t told_format(precision format);

/* An operator outside the program. */
fb_tape_op told_op(told which, const char *op, const char *module, const char *source, int32_t boundary, int32_t micro_step);

#endif
