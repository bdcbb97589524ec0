/*
 * One launch of a command under firstbad: the run id, the attempt, the folder and its files, the environment, the command itself,
 * and what the folder says when it is over. `run` does this once, `drill` once a scenario, by the same path.
 *
 *   run_job_open, run_job_start, (process_wait_...), run_job_close
 */
#ifndef CLI_RUN_JOB_H
#define CLI_RUN_JOB_H

#include "attach.h"
#include "firstbad/firstbad.h"
#include "os/os.h"
#include "process.h"
#include "report/report.h"

enum { RUN_JOB_TEXT = 8192, RUN_JOB_TOKEN = 128, RUN_JOB_HALTED = 86, RUN_JOB_NOT_FOUND = 127, RUN_JOB_NOT_EXECUTABLE = 126 };

typedef struct run_job_options {
    const char *dir;    /* NULL: FIRSTBAD_DIR, else firstbad-runs */
    const char *run_id; /* NULL: of the scheduler, else a fresh one */
    const char *on_bad; /* NULL: what the program wants */
    const char *max_skips;
    const char *locate;                /* "all", "none" or words; NULL: what the program wants */
    const char *strategy;              /* "sweep", "bisect"; NULL: what the program wants */
    const struct leave_out *leave_out; /* samples to keep away; NULL: none */
    char inject[RUN_JOB_TEXT];         /* parted by ';' */
    char set[RUN_JOB_TEXT];            /* parted by line ends */
    char *const *command;
    int python; /* 1: attach to Python programs that import torch */
    int output; /* descriptor for the command's output; -1: ours */
} run_job_options;

typedef struct run_job {
    const run_job_options *options;
    char dir[FB_OS_PATH_MAX], folder[FB_OS_PATH_MAX], ledger[FB_OS_PATH_MAX]; /* absolute */
    char run_id[64];
    int32_t attempt;
    char number[16];               /* the same, as text */
    char left_out[FB_OS_PATH_MAX]; /* "@" and the file of samples to keep away; "": none */
    char restarts[16];             /* how often torchrun had restarted us when we began; "": not at all */
    attach attached;
    int joined; /* a peer of the same launch, on another node for example, had taken the attempt */
    process child;
    int start_errno; /* what kept the command from starting; 0 when it ran */
    /* after run_job_close */
    int32_t newest;    /* attempt of this launch: restarts by torchrun, and trainings one after another, have their own */
    uint64_t ledgers;  /* ranks that opened one in the newest attempt */
    attach_seen seen;  /* Python programs that came by */
    fb_report *report; /* of the newest attempt, or of one before it where that has a case and the newest has none. NULL when there
                          is none, or it could not be read: then `why` has the sentence */
    fb_error why;
    int halted;       /* the folder says that firstbad halted the job: its newest attempt */
    int code, signal; /* the command's own */
    int exit_code;    /* ours */
} run_job;

/* One more value, behind `part`. FB_E_LIMIT when there is no room. */
fb_status run_job_append(char text[RUN_JOB_TEXT], const char *value, char part, fb_error *err);

/* Errors: FB_E_USAGE for a wrong run id, injection or setting; FB_E_IO where the folder cannot be made. */
fb_status run_job_open(run_job *job, const run_job_options *options, fb_error *err);

/* 0, or the errno that kept the command from starting, which is kept for run_job_close. */
int run_job_start(run_job *job);

/* After the end: read the folder, fill the last part of the struct, write exit.json. Failures leave a sentence in job->why. */
void run_job_close(run_job *job);
void run_job_release(run_job *job);

#endif
