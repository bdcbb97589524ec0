/* options.h: the command line of firstbad-gpt. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "faults.h"
#include "model.h"

/* What is done when an update was bad; the first six are FB_LOCATE_* of firstbad/locate.h. */
enum {
    LOCATE_REPLAY = 1,
    LOCATE_SEARCH = 2,
    LOCATE_CAUSE = 4,
    LOCATE_OTHER = 8,
    LOCATE_MINIMISE = 16,
    LOCATE_EVIDENCE = 32,
    LOCATE_BUNDLE = 64,
    LOCATE_ALL = 127
};

/* What is printed instead of training: the names of the faults for people, or what is true of each for programs. */
typedef enum list_wanted { LIST_NOTHING, LIST_FAULTS, LIST_TRUTHS } list_wanted;

typedef enum state_check { STATE_NONE, STATE_SAMPLED, STATE_FULL } state_check;

typedef struct options {
    gpt_config model;
    const char *data, *out, *resume, *dump, *inject, *dir;
    const char *save_name; /* every checkpoint under this one name; NULL: a name for each step */
    int64_t keep;          /* step files that rotation leaves; 0: all */
    int64_t steps, warmup, log_every, save_every, gradient_blowup;
    int64_t max_skips;      /* -1: the library's own */
    int64_t replica_period; /* steps between comparisons of the ranks' parameters; 0: never */
    size_t accumulation;
    double learning_rate, learning_rate_min, weight_decay, clip;
    double loss_scale; /* first scale in fp16 */
    int64_t scale_growth_interval;
    state_check check_state;
    int check_forward, guard, help;
    faults faults;
    list_wanted list_faults;
    int locate;         /* LOCATE_* */
    int bisect;         /* 1: halve, 0: sweep */
    int64_t bundle_max; /* MiB of a rank's part of a bundle */
    int keep_state;     /* write each update beside the state, look at it, and put it in place when it is finite on all ranks */
} options;

/*
 * 0; or -1 with a sentence in `message`. Text that is kept points into argv. FIRSTBAD_LOCATE and FIRSTBAD_STRATEGY stand for
 * --locate and --strategy where these are not given.
 */
int options_read(options *o, int argc, char **argv, char *message, size_t message_bytes);
void options_help(void);

#endif
