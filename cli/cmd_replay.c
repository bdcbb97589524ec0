/*
 * firstbad replay: run the bad step of a case again, by starting its trainer on the bundle, and say whether it is bad again.
 */
#include <string.h>

#include "cli.h"
#include "replay_show.h"

static const char HELP[] =
    "usage: firstbad replay [CASE] [options] [-- COMMAND [ARGUMENT...]]\n"
    "\n"
    "Runs the bad step again with the batch, random state and weights that were captured, and says how often it was bad again and\n"
    "what differs from the run. The trainer is started as it was then, or by the command after --.\n"
    "\n"
    "  CASE          what firstbad why takes: a run, a case (a1-000412), a step (412), the path of a case folder; or the path of "
    "a\n"
    "                bundle. Default: the newest case of the newest run\n"
    "  --dir DIR     folder that holds runs (default: FIRSTBAD_DIR, else firstbad-runs)\n"
    "  --times K     replays (default 3)\n"
    "  --batch WHAT  whole (default), or minimal: the smallest batch that was found\n"
    "  --alone       one process, without the launcher\n"
    "  --json        the same facts as one JSON object\n"
    "  -h, --help    this text\n"
    "\n"
    "Results lie in replays/NNN of the case. Exit codes: 0 not reproduced, 1 reproduced, 2 wrong use, 3 the bundle cannot be read\n"
    "or the trainer could not run, 4 undecided.\n";

int replay_command_run(const replay_options *options, int asked, int json)
{
    replay_job job;
    fb_error err;
    int code;
    process_catch_interrupts();
    process_no_input();
    if (replay_job_open(&job, options, &err) != FB_OK || replay_job_run(&job, &err) != FB_OK) {
        code = cli_fail(&err);
        if (process_interrupted()) code = 128 + process_interrupted();
    } else {
        code = json ? replay_show_json(&job, asked) : replay_show_text(&job, asked);
        if (code == 0) code = replay_exit_code(&job, asked);
    }
    replay_job_close(&job);
    return code;
}

int fb_cmd_replay(int argc, char **argv)
{
    const char *batch = NULL;
    replay_options given = {0};
    int json = 0, words, code;
    long long number;
    const cli_option options[] = {{"--dir", NULL, &given.dir},     {"--times", NULL, &given.times}, {"--batch", NULL, &batch},
                                  {"--alone", &given.alone, NULL}, {"--json", &json, NULL},         {NULL, NULL, NULL}};
    given.command = cli_split_command(&argc, argv);
    if (!cli_parse(argc, argv, options, HELP, &given.name, 1, &words, &code)) return code;
    if (given.times && !cli_number("--times", given.times, 1, &number)) return CLI_USAGE;
    if (given.times && number > REPLAY_TIMES_MAX) {
        cli_error("--times goes up to %d", REPLAY_TIMES_MAX);
        return CLI_USAGE;
    }
    if (batch && strcmp(batch, "whole") != 0 && strcmp(batch, "minimal") != 0) {
        cli_error("--batch is whole or minimal, not '%s'", batch);
        return CLI_USAGE;
    }
    if (given.alone && given.command) {
        cli_error("replay takes --alone or a command, not both");
        return CLI_USAGE;
    }
    given.minimal = batch && strcmp(batch, "minimal") == 0;
    given.parts = given.alone ? "replay" : "replay,other";
    given.show = !json;
    return replay_command_run(&given, REPLAY_AGAIN, json);
}
