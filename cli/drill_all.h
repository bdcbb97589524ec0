/*
 * firstbad drill --all: every fault of drill_faults.c and every healthy training of drill_healthy.c, on several seeds.
 *   drill_faults.c drill_healthy.c   the lists, with the truth
 *   drill_score.c                    one run against the truth
 *   drill_slot.c                     one run, as a process: start it, look whether it is over, replay its smallest batch, judge
 *   drill_all.c                      all of them, several at a time where there are processors
 *   drill_all_print.c                the table and the score
 *   drill_all_json.c                 both as JSON
 */
#ifndef CLI_DRILL_ALL_H
#define CLI_DRILL_ALL_H

#include "drill_score.h"
#include "drill_shared.h"
#include "run_job.h"

/* A whole drill wants this many faults to be exact, on every seed; a part of one wants every run to be right. */
/* Two at a time even on two processors: most of a run is starting it. */
enum { DRILL_EXACT_MIN = 44, DRILL_SEEDS_MAX = 100, DRILL_JOBS_MIN = 2, DRILL_JOBS_MAX = 16 };

/* One run, and what came of it. */
typedef struct drill_one {
    const drill_fault *fault;     /* NULL: it is healthy */
    const drill_healthy *healthy; /* NULL: it is not */
    int32_t seed;
    drill_truth truth;
    int64_t steps;
    char spec[128]; /* of --fault; "": none */
    int done;
    int exit_code;
    int64_t ms;
    char folder[FB_OS_PATH_MAX]; /* of the run; "": it was taken away again, or never made */
    drill_score score;
} drill_one;

/* A run while it runs. */
typedef struct drill_slot {
    drill_one *one; /* NULL: free */
    int replays;    /* 1: the training is over, and its smallest batch is replayed in a process of its own */
    int64_t begun, until, fd;
    run_job job;
    run_job_options options;
    drill_words words;
    process again;
    char log[FB_OS_PATH_MAX];
} drill_slot;

/* What this run is: its place, its step, how long it trains. */
void drill_one_plan(drill_one *one, int32_t ranks);
/* Whether it could be started or not, drill_slot_poll says how it went. */
void drill_slot_start(drill_slot *slot, drill_one *one, const drill_settings *settings);
/* 1: it is over and judged, and the slot is free. */
int drill_slot_poll(drill_slot *slot, const drill_settings *settings);
/* End it; nothing is judged. */
void drill_slot_stop(drill_slot *slot);

typedef struct drill_options {
    const char *ranks, *only, *precision, *dir, *trainer, *seeds, *jobs;
    int list, keep, verbose, json, all;
} drill_options;

/* The runs of all chosen faults, then of all chosen healthy trainings; the seeds of one lie beside each other. */
typedef struct drill_all {
    drill_one *ones;
    int count, faults; /* runs; of them with a fault, and they come first */
    int whole;         /* 1: nothing was left out */
    int64_t ms;
} drill_all;

/* settings->dir exists. `again`: the words that repeat it. Returns an exit code. */
int drill_all_run(const drill_options *options, const drill_settings *settings, const char *again);
/* Name all faults and healthy trainings; as JSON with the truth. */
int drill_all_list(int json);
/* 0 after a message: --only names what is not there. */
int drill_all_choose(const char *only, drill_all *all, const drill_settings *settings, fb_error *err);

/* How many of the faults are exact on every seed, of how many. */
int drill_all_exact(const drill_all *all, int32_t seeds, int *of);
int drill_all_count(const drill_all *all, int level, int worth, int *of);
int drill_all_wrong_claims(const drill_all *all);
int drill_all_false_alarms(const drill_all *all);
/* Healthy runs that were as they should be. */
int drill_all_quiet(const drill_all *all);

/* Of all runs in which something was located. */
typedef struct drill_cost {
    double replays_median, replays_max, seconds_median, seconds_max;
    int known;
} drill_cost;
drill_cost drill_all_cost(const drill_all *all);

/*
 * 1: detected in the right step and stopped everywhere, no wrong claim, no false alarm, and enough faults exact. A part of the
 * catalogue: every run is right.
 */
int drill_all_passed(const drill_all *all, int32_t seeds);

void drill_all_print_head(void);
/* All seeds of one fault, or of one healthy training; ones[0 .. seeds - 1]. Healthy ones speak only when something was wrong. */
void drill_all_print_line(const drill_one *ones, int32_t seeds, int verbose);
void drill_all_print_score(const drill_all *all, const drill_settings *settings, const char *again, const char *kept);
void drill_all_print_json(const drill_all *all, const drill_settings *settings);
void drill_all_print_truths(void);

#endif
