/*
 * firstbad why: the five answers about a run.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "report/report.h"

static const char help[] =
    "usage: firstbad why [RUN|CASE] [--dir DIR] [--attempt N] [--case ID] [--json]\n\n"
    "Says at which step, rank, layer and tensor the first bad number appeared, whether it spread, what the ranks\n"
    "decided, what is recorded to reproduce it, and which checkpoint is safe.\n\n"
    "  RUN          a run id, or the path of a run folder; without one, the newest run\n"
    "  CASE         a step (412) or a case (a1-000412) of the newest run, or the path of a case folder\n"
    "  --dir DIR    the folder that holds runs (default firstbad-runs, or FIRSTBAD_DIR)\n"
    "  --attempt N  this launch of the run; default: the newest with a case, else the newest\n"
    "  --case ID    this case of RUN: a step or a case id; default: the newest, taken back to its origin\n"
    "  --json       the same as one JSON object\n\n"
    "Exit codes: 0 clean, 1 something bad was found, 2 wrong use, 3 unreadable, 4 undecided.\n";

typedef struct why_options {
    const char *dir, *attempt, *case_id, *name;
    int json;
} why_options;

/* "412", "000412" or "a1-000412". 0 after a message. */
static int parse_case(const char *text, fb_report_target *target)
{
    char *end;
    long long step = strtoll(text, &end, 10);
    if (fb_report_case_id(text, &target->attempt, &target->step)) return 1;
    if (text[0] >= '0' && text[0] <= '9' && !*end && step < LLONG_MAX) {
        target->step = step;
        return 1;
    }
    cli_error("--case wants a step or a case, such as 412 or a1-000412, not '%s'", text);
    return 0;
}

static int render(const fb_report *report, int as_json)
{
    fb_error err;
    char *text = NULL;
    int code;
    if (as_json) {
        fb_json json;
        fb_json_init(&json, 1);
        fb_report_why_json(report, &json);
        if (fb_json_finish(&json, &err) != FB_OK) code = cli_fail(&err);
        else if ((code = cli_print(fb_json_text(&json))) == 0) code = cli_print("\n");
        fb_json_release(&json);
    } else {
        if (fb_report_why_text(report, cli_columns(stdout), cli_colour(stdout), &text, &err) != FB_OK) code = cli_fail(&err);
        else code = cli_print(text);
        fb_free(text);
    }
    if (code) return code;
    return report->status == FB_WHY_CLEAN ? CLI_CLEAN : report->status == FB_WHY_CASE ? CLI_BAD : CLI_UNDECIDED;
}

int fb_cmd_why(int argc, char **argv)
{
    why_options given = {NULL, NULL, NULL, NULL, 0};
    const cli_option options[] = {{"--dir", NULL, &given.dir},
                                  {"--attempt", NULL, &given.attempt},
                                  {"--case", NULL, &given.case_id},
                                  {"--json", &given.json, NULL},
                                  {NULL, NULL, NULL}};
    const fb_os *os = fb_os_posix();
    fb_report_target target;
    fb_report *report = NULL;
    fb_error err;
    long long number;
    int words, code;
    if (!cli_parse(argc, argv, options, help, &given.name, 1, &words, &code)) return code;
    if (!given.dir) given.dir = getenv("FIRSTBAD_DIR");
    if (!given.dir || !*given.dir) given.dir = CLI_DIR_DEFAULT;
    if (fb_report_find(os, given.dir, given.name, &target, &err) != FB_OK) return cli_fail(&err);
    if (given.attempt) {
        if (!cli_number("--attempt", given.attempt, 1, &number)) return CLI_USAGE;
        target.attempt = number > INT32_MAX ? INT32_MAX : (int32_t)number;
    }
    if (given.case_id && !parse_case(given.case_id, &target)) return CLI_USAGE;
    if (fb_report_load_target(os, &target, &report, &err) != FB_OK) return cli_fail(&err);
    code = render(report, given.json);
    fb_report_free(report);
    return code;
}
