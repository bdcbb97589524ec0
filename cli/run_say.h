/* What `firstbad run` says when the command has ended: on standard error, since standard output is the command's. */
#ifndef CLI_RUN_SAY_H
#define CLI_RUN_SAY_H

#include "run_job.h"

/* After run_job_close. json  1: as one line of JSON. Nothing is said for people when nothing bad was found. */
void run_say(const run_job *job, int json);

#endif
