/*
 * firstbad ckpt: which checkpoints there are, which may be resumed from, and the few things that a person may decide about them.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

static const char help[] =
    "usage: firstbad ckpt list [DIR|RUN] [--json]\n"
    "       firstbad ckpt latest [DIR|RUN] [--verify] [--restore] [--json]\n"
    "       firstbad ckpt verify PATH...\n"
    "       firstbad ckpt quarantine PATH... --why TEXT\n"
    "       firstbad ckpt release PATH... --why TEXT\n"
    "       firstbad ckpt log [DIR|PATH|RUN] [--json]\n\n"
    "A checkpoint is suspect until its bytes were read back and found finite and every update before it was gated.\n"
    "Then it is committed, and only then `latest` gives it. A quarantined one is moved aside, never deleted.\n\n"
    "  list         what is known of the checkpoints in DIR, or of those that RUN saved\n"
    "  latest       print the path to resume from, and nothing else; or say why there is none, and end with 4\n"
    "  verify       read a checkpoint again, and record what came of it\n"
    "  quarantine   take one out of recovery, whatever its bytes say\n"
    "  release      vouch for one by hand: back to its name, and committed if its bytes are finite\n"
    "  log          every change of state, oldest first\n\n"
    "  DIR          a folder of checkpoints; RUN is the folder of a run; without either, the newest run\n"
    "  --verify     of latest: read the bytes again before they are given\n"
    "  --restore    of latest: put a checkpoint that was rotated away back under its own name\n"
    "  --why TEXT   the reason, for the audit trail\n"
    "  --dir DIR    the folder that holds runs (default firstbad-runs, or FIRSTBAD_DIR)\n"
    "  --json       the same as one JSON object\n\n"
    "Exit codes: 0 done, 1 something bad was found, 2 wrong use, 3 unreadable, 4 undecided: suspect, or none committed.\n";

typedef struct action {
    const char *name;
    int (*run)(const ckpt_request *request);
    int paths_min, paths_max;
    int takes_why, takes_json, takes_latest; /* options that mean something to it */
} action;

enum { PATHS_MAX = 4096 };

static const action actions[] = {
    {"list", ckpt_list, 0, 1, 0, 1, 0},
    {"latest", ckpt_latest, 0, 1, 0, 1, 1},
    {"verify", ckpt_verify, 1, PATHS_MAX, 0, 0, 0},
    {"quarantine", ckpt_quarantine, 1, PATHS_MAX, 1, 0, 0},
    {"release", ckpt_release, 1, PATHS_MAX, 1, 0, 0},
    {"log", ckpt_log, 0, 1, 0, 1, 0},
};

static const action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(actions[i].name, name) == 0) return &actions[i];
    }
    return NULL;
}

/* 1 when the words and options fit the action; else 0 after a message. */
static int fits(const action *a, const ckpt_request *r)
{
    if (r->path_count < a->paths_min) cli_error("ckpt %s wants the path of a checkpoint; see firstbad ckpt --help", a->name);
    else if (r->path_count > a->paths_max) cli_error("ckpt %s does not know what to do with '%s'", a->name, r->paths[a->paths_max]);
    else if (a->takes_why && (!r->why || !*r->why))
        cli_error("ckpt %s wants --why TEXT: the audit trail keeps the reason", a->name);
    else if (!a->takes_why && r->why) cli_error("ckpt %s takes no --why", a->name);
    else if (!a->takes_json && r->json) cli_error("ckpt %s has no --json; see firstbad ckpt list --json afterwards", a->name);
    else if (!a->takes_latest && (r->verify || r->restore)) cli_error("--verify and --restore belong to ckpt latest");
    else return 1;
    return 0;
}

int fb_cmd_ckpt(int argc, char **argv)
{
    static const char *words[PATHS_MAX + 1];
    ckpt_request request;
    const cli_option options[] = {{"--json", &request.json, NULL},       {"--verify", &request.verify, NULL},
                                  {"--restore", &request.restore, NULL}, {"--why", NULL, &request.why},
                                  {"--dir", NULL, &request.runs_dir},    {NULL, NULL, NULL}};
    const action *chosen;
    int count, code;
    memset(&request, 0, sizeof request);
    request.os = fb_os_posix();
    if (!cli_parse(argc, argv, options, help, words, PATHS_MAX + 1, &count, &code)) return code;
    if (count == 0) {
        cli_error("ckpt wants to know what to do: list, latest, verify, quarantine, release or log; see firstbad ckpt --help");
        return CLI_USAGE;
    }
    chosen = find_action(words[0]);
    if (!chosen) {
        cli_error("ckpt has no '%s'; it has list, latest, verify, quarantine, release and log", words[0]);
        return CLI_USAGE;
    }
    request.paths = words + 1;
    request.path_count = count - 1;
    if (!fits(chosen, &request)) return CLI_USAGE;
    if (!request.runs_dir) request.runs_dir = getenv("FIRSTBAD_DIR");
    if (!request.runs_dir || !*request.runs_dir) request.runs_dir = CLI_DIR_DEFAULT;
    return chosen->run(&request);
}
