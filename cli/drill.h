/*
 * firstbad drill: scenarios whose truth is known, run on the built-in trainer, and compared with what the guard found.
 *   drill_list.c    the scenarios
 *   drill_run.c     one scenario: start it, wait (or kill a rank on the way), read its folder
 *   drill_saved.c   checkpoints: spoil a saved file, and ask what may be resumed from
 *   drill_located.c a real fault: operator and cause
 *   drill_judge.c   compare with the truth; every difference is a sentence, and any sentence fails the line
 *   drill_print.c   lines, summary, JSON
 *   cmd_drill.c     options and the loop
 * `firstbad drill --all` is another list, in drill_all.h.
 */
#ifndef CLI_DRILL_H
#define CLI_DRILL_H

#include "drill_ledger.h"
#include "drill_shared.h"
#include "run_job.h"

/* How a scenario comes to its fault, and so what is expected of it. */
enum {
    DRILL_PLANTED = 1,   /* injected: step, rank, tensor and index are known beforehand */
    DRILL_BY_ITSELF = 2, /* the arithmetic overflows; the step is told by an unguarded twin, whose loss says so */
    DRILL_KILLED = 3,    /* a rank is killed before it votes */
    DRILL_HEALTHY = 4,   /* nothing may fire */
    DRILL_SAVED = 5      /* a checkpoint is spoilt, or descends from a bad update; what is told apart is which one to resume from */
};

/* What becomes of the saved files, and how. */
enum {
    DRILL_SPOIL_NOTHING = 0,
    DRILL_SPOIL_EXPONENT = 1,   /* all exponent bits of one element of a moment are set: Inf or NaN */
    DRILL_SPOIL_MANTISSA = 2,   /* one bit is flipped, and the number stays finite */
    DRILL_SPOIL_CUT = 3,        /* the file ends early */
    DRILL_SPOIL_OTHER_STEP = 4, /* the bytes of an older checkpoint under the name of the newest */
    DRILL_SPOIL_UNGUARDED = 5   /* training goes on without firstbad, and saves what became of an overflow */
};

enum { DRILL_EVERY_RANK = -1, DRILL_ANY_RANK = -2 };
enum { DRILL_DIFFERENCES = 24, DRILL_TEXT = 256, DRILL_SAVE_EVERY = 8, DRILL_SAVE_OFTEN = 4 };
#define DRILL_ANY_INDEX UINT64_MAX

typedef struct drill_scenario {
    const char *id, *fault;
    int32_t how;
    const char *arguments; /* of the trainer, parted by blanks, beside those that all share; may take precedence over them */
    int64_t steps;
    const char *plant; /* "grad-inf"; NULL: nothing is injected */
    const char *real;  /* "mask-full-row": a fault that arises by arithmetic, and is located; NULL: none */
    const char *on_bad, *max_skips;
    /* the truth */
    int64_t step;    /* of the first bad update */
    int32_t updates; /* bad updates in a row */
    int32_t halts;   /* 1: the last of them halts the run; 0: each is skipped */
    int32_t rank, micro_step, boundary, kind, field;
    const char *site;
    uint64_t index, count; /* DRILL_ANY_INDEX, 0: not known beforehand */
    int32_t state_planted; /* 1: the fault lies in one rank's owned state, so that digests differ over ranks from the start */
    const char *made_in, *made_by, *cause; /* of a real one: module and operator of the first bad number, and the class */
    int32_t probing;                       /* healthy, under a dynamic scale: probing skips must happen */
    int32_t saves;                         /* 1: checkpoints are written on the way */
    /* DRILL_SAVED: the truth about the folder of checkpoints */
    int32_t spoil;         /* DRILL_SPOIL_* */
    int64_t spoilt;        /* step of the checkpoint that is spoilt, or suspect by descent */
    int32_t outcome;       /* of a scan of it: FB_CKPT_CLEAN, ... */
    int32_t state;         /* that the registry gives it once it is read again */
    int64_t resume;        /* step of the one to resume from */
    int32_t continues;     /* 1: training is started once more, with --resume latest */
    int32_t any_precision; /* 1: --precision does not apply: the scenario has its own */
} drill_scenario;

extern const drill_scenario drill_scenarios[];
extern const int drill_scenario_count;
/* Index of the scenario that is shown in full. */
extern const int drill_headline;

/* What came of one scenario. */
typedef struct drill_result {
    const drill_scenario *scenario;
    int number; /* in the list, from 1 */
    run_job job;
    run_job_options options;
    drill_words words;
    char log[FB_OS_PATH_MAX]; /* the trainer's own words */
    drill_world world;
    int64_t ms;
    int64_t truth_step; /* scenario->step, or what twin or killer said; -1 unknown */
    int32_t truth_rank; /* scenario->rank, or the last rank where there are fewer */
    /* what was found, for the table */
    int has_first;
    drill_finding first;
    int32_t action, agreed, proven, unproven, changed;
    uint64_t probing;
    int64_t resume_step;          /* of the checkpoint that was given to resume from; -1: none */
    char made[DRILL_TEXT];        /* of a real fault: "h.0.attn softmax", as located; "" none */
    char saved_place[DRILL_TEXT]; /* what a scan of the spoilt one said */
    int32_t saved_state;
    char got[DRILL_TEXT]; /* in words */
    char expected[DRILL_TEXT];
    /* the score, each -1 where it does not apply */
    int detected, located, unanimous, unchanged;
    int difference_count; /* those beyond DRILL_DIFFERENCES are counted */
    char differences[DRILL_DIFFERENCES][DRILL_TEXT];
} drill_result;

/* Run and read. The result is judged also when this fails: what went wrong is then its first difference. */
void drill_run(drill_result *result, const drill_settings *settings);
void drill_release(drill_result *result);

/* The trainer's command into result->words, `more` behind the scenario's own options. 0 when there is no room. */
int drill_command(drill_result *result, const drill_settings *settings, const char *more);
/* Folder of the checkpoints of this scenario. */
void drill_saves_folder(const drill_result *result, char out[FB_OS_PATH_MAX]);
/* Start a command of this result with its output in `path`, without `firstbad run`, and wait. 0 when it ended with exit code 0. */
int drill_run_plain(drill_result *result, const char *path);
/* After the training of a DRILL_SAVED scenario: spoil, ask, and judge what was answered. */
void drill_saved(drill_result *result, const drill_settings *settings);

/* What locate.json says of a real fault. */
void drill_check_located(drill_result *result);
void drill_judge(drill_result *result, const drill_settings *settings);
__attribute__((format(printf, 2, 3))) void drill_differs(drill_result *result, const char *format, ...);
int drill_passed(const drill_result *result);

typedef struct drill_summary {
    int passed, failed;
    int64_t ms;
    uint64_t guard_ns, duration_ns, tokens, updates; /* of all applied updates on all ranks */
} drill_summary;

void drill_print_head(void);
void drill_print_line(const drill_result *result, int32_t ranks, int verbose);
void drill_print_summary(const drill_summary *summary, const drill_settings *settings, const char *again, const char *kept);
void drill_print_json(const drill_result *const *results, int count, const drill_summary *summary, const drill_settings *settings);
/* "h.2.mlp.c_fc.weight[38,18]". */
void drill_place(const drill_finding *finding, char out[DRILL_TEXT]);

#endif
