/* options.h: the command line of firstbad-gpt. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "model.h"

typedef enum state_check { STATE_NONE, STATE_SAMPLED, STATE_FULL } state_check;

typedef struct options {
    gpt_config model;
    const char *data, *out, *resume, *dump, *inject, *dir;
    const char *save_name; /* every checkpoint under this one name; NULL: a name for each step */
    int64_t keep;          /* step files that rotation leaves; 0: all */
    int64_t steps, warmup, log_every, save_every, gradient_blowup;
    int64_t max_skips; /* -1: the library's own */
    size_t accumulation;
    double learning_rate, learning_rate_min, weight_decay, clip;
    double loss_scale; /* first scale in fp16 */
    int64_t scale_growth_interval;
    state_check check_state;
    int check_forward, guard, help;
} options;

/* 0; or -1 with a sentence in `message`. Text that is kept points into argv. */
int options_read(options *o, int argc, char **argv, char *message, size_t message_bytes);
void options_help(void);

#endif
