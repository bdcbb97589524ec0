/*
 * Starting a trainer on the bundle of a case, and reading what it found: `firstbad replay` and `firstbad bisect CASE`.
 *
 *   replay_job_open      find the case, open its bundle (every byte is compared with its hash), choose the command
 *   replay_job_run       start it with FIRSTBAD_REPLAY and what goes with it, wait, read the locate.json that it left
 *   replay_job_close
 *
 * The command. What stands after "--"; else the trainer's own, as the bundle has it, behind the launcher that it was started with.
 * `firstbad run` recorded a whole command line; what stands in it before the trainer's own words is the launcher. Where it does not
 * end with those words (a script that starts the trainer) it is not run, because it may do more than train; `mpirun -n RANKS` is
 * put in front instead. Open MPI is told to hand the FIRSTBAD_REPLAY variables on, for it keeps them from other nodes otherwise.
 */
#ifndef CLI_REPLAY_JOB_H
#define CLI_REPLAY_JOB_H

#include "casefind.h"
#include "firstbad/bundle.h"
#include "launcher.h"
#include "process.h"

typedef struct replay_options {
    const char *dir, *name;                /* as case_find takes them */
    char *const *command;                  /* NULL: the one that was recorded */
    const char *parts;                     /* FIRSTBAD_REPLAY_PARTS: "replay,other" */
    const char *times, *strategy, *probes; /* NULL: the trainer's default */
    int minimal, alone;
    int show; /* 1: tell on a terminal how long it takes */
} replay_options;

typedef struct replay_job {
    const replay_options *options;
    case_place place;
    char bundle_folder[FB_OS_PATH_MAX], out[FB_OS_PATH_MAX], log[FB_OS_PATH_MAX];
    fb_bundle *bundle;
    char **argv; /* argument_count words and NULL; the words are not owned */
    size_t argument_count;
    size_t launcher_words; /* of argv, in which the launcher stands; 0: there is none */
    char world_text[16];
    char cwd[FB_OS_PATH_MAX]; /* where it runs; "": here */
    launch launch;            /* words of argv point into it, and into the bundle */
    fb_notes notes;           /* what is different from the run, as far as it is known here */
    process child;
    int code, signal;
    double seconds;
    fb_locate_file file;
    int has_file;
} replay_job;

/* Errors: those of case_find and fb_bundle_open; FB_E_NOTFOUND (no bundle, no command); FB_E_USAGE;
 * FB_E_NOMEM. Close in any case. */
fb_status replay_job_open(replay_job *job, const replay_options *options, fb_error *err);
/* Errors: FB_E_ORDER: it could not be started, ended with another code than 0, or left no locate.json; what it printed last is
   shown. FB_E_CORRUPT: locate.json cannot be read. */
fb_status replay_job_run(replay_job *job, fb_error *err);
void replay_job_close(replay_job *job);

#endif
