/* How a replay is shown: text for people (replay_text.c), one JSON object (replay_json.c). */
#ifndef CLI_REPLAY_SHOW_H
#define CLI_REPLAY_SHOW_H

#include "replay_job.h"

/* What was asked: did it show again (replay), or where does it come from (bisect). */
enum { REPLAY_AGAIN = 0, REPLAY_LOCATE = 1 };

enum { REPLAY_TIMES_MAX = 10000 };

/* CLI_CLEAN, CLI_BAD or CLI_UNDECIDED. */
int replay_exit_code(const replay_job *job, int asked);
/* "reproduced", "not_reproduced", "located", "undecided". */
const char *replay_status(const replay_job *job, int asked);
/* 1: a name may be shown: an operator whose chain to the finding is whole, a set of such, or an entry. */
int replay_is_located(const replay_job *job);
/* 0, or CLI_UNREADABLE after a message. */
int replay_show_text(const replay_job *job, int asked);
int replay_show_json(const replay_job *job, int asked);

/* Open, run, show, close: the exit code of the command. */
int replay_command_run(const replay_options *options, int asked, int json);

#endif
