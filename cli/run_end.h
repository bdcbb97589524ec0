/* What the run folder holds when a launch is over. */
#ifndef CLI_RUN_END_H
#define CLI_RUN_END_H

#include "run_job.h"

/**
 * Fill newest, ledgers, seen, report, why and halted of the job. The newest attempt of the launch is the answer; where it is clean,
 * the newest before it that has a case is still to be told.
 */
void run_end_read(run_job *job, const fb_os *os);

#endif
