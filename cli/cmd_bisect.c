/*
 * firstbad bisect: find what made the first bad number. Of a case, by starting its trainer on the bundle; of any program, by
 * running a command that answers with its exit code.
 */
#include <stdlib.h>
#include <string.h>

#include "bisect_any.h"
#include "cli.h"
#include "process.h"
#include "replay_show.h"

static const char HELP[] =
    "usage: firstbad bisect [CASE] [--dir DIR] [--strategy WORD] [--probes N] [--alone] [--json] [-- COMMAND...]\n"
    "       firstbad bisect --boundaries FILE|--count N [options] -- COMMAND [ARGUMENT...]\n"
    "\n"
    "Of a case: runs the bad step again, as firstbad replay does, looks at every operator, names the one that made the first bad\n"
    "number, says why, and makes the batch as small as it can. CASE is what firstbad replay takes.\n"
    "\n"
    "  --dir DIR          folder that holds runs (default: FIRSTBAD_DIR, else firstbad-runs)\n"
    "  --strategy WORD    sweep: look at all in one replay (default); bisect: halve\n"
    "  --probes N         look at no more than N tensors in a replay\n"
    "  --alone            one process, without the launcher\n"
    "\n"
    "Of any program: runs a command once for each question, with FIRSTBAD_BOUNDARY naming a place. It exits 0 when what is there "
    "is\n"
    "finite, 1 when it is not, 125 when it cannot tell; 126, 127, codes above and a signal stop the search.\n"
    "\n"
    "  --boundaries FILE  the places in the order in which they are computed, one a line. A bare list is a chain; 'name: a b' "
    "says\n"
    "                     what is read. Flags after a name: !state and !entry (there before the program begins), !mask (-Inf may\n"
    "                     be intended; exit 2 then says -Inf and nothing else), !good, !untestable\n"
    "  --count N          a chain of places that are named 1 to N\n"
    "  --finding NAME     the place that was found bad (default: the last)\n"
    "  --groups           ask about several places in one run, one name a line, with FIRSTBAD_ASK=any_bad (exit 1 when one is not\n"
    "                     finite) or all_bad (exit 1 when none is finite)\n"
    "  --probes N         with --groups, at most N places a run\n"
    "  --strategy WORD    bisect: halve (default); sweep: ask about every place\n"
    "  --runs N           stop after N answers, with what is known by then\n"
    "  --log FILE         write each question and its answer to a new file\n"
    "  --resume FILE      take the answers of such a file, and go on with it\n"
    "\n"
    "  --json             the result as one JSON object, and nothing on standard error\n"
    "  -h, --help         this text\n"
    "\n"
    "Exit codes: 0 nothing bad, 1 found, 2 wrong use, 3 unreadable, or the command could not be run, 4 not certain.\n";

typedef struct bisect_options {
    const char *boundaries, *count, *finding, *probes, *strategy, *runs, *log, *resume, *name, *dir;
    int groups, json, alone;
    char **command;
} bisect_options;

/* 1, or 0 after a message. A NULL text leaves *value alone. */
static int take_number(const char *option, const char *text, uint32_t *value)
{
    long long number;
    if (!text) return 1;
    if (!cli_number(option, text, 1, &number)) return 0;
    if (number > UINT32_MAX / 4) {
        cli_error("%s goes up to %u", option, UINT32_MAX / 4);
        return 0;
    }
    *value = (uint32_t)number;
    return 1;
}

static int bisect_command(const bisect_options *given)
{
    bisect_any_options options = {0};
    int why;
    options.boundaries = given->boundaries;
    options.finding = given->finding;
    options.log = given->log;
    options.resume = given->resume;
    options.groups = given->groups;
    options.json = given->json;
    options.sweep = given->strategy && strcmp(given->strategy, "sweep") == 0;
    options.command = given->command;
    if (!take_number("--count", given->count, &options.count) || !take_number("--probes", given->probes, &options.probes_max) ||
        !take_number("--runs", given->runs, &options.runs_max))
        return CLI_USAGE;
    if (given->name || given->dir || given->alone) {
        cli_error("bisect takes a case, with --dir and --alone, or a command with --boundaries or --count, not both%s%s",
                  given->name ? ": " : "", given->name ? given->name : "");
        return CLI_USAGE;
    }
    if (given->boundaries && given->count) {
        cli_error("bisect takes --boundaries or --count, not both");
        return CLI_USAGE;
    }
    if (given->log && given->resume) {
        cli_error("bisect takes --log for a new file or --resume for one that is there, not both");
        return CLI_USAGE;
    }
    if (given->probes && !given->groups) {
        cli_error("--probes says how many places a run is asked about; without --groups that is one");
        return CLI_USAGE;
    }
    if (!given->command || !given->command[0]) {
        cli_error("bisect wants a command: firstbad bisect --boundaries FILE -- COMMAND; see firstbad bisect --help");
        return CLI_USAGE;
    }
    if ((why = process_find(given->command[0])) != 0) {
        cli_error("bisect: start %s: %s", given->command[0], strerror(why));
        return CLI_UNREADABLE;
    }
    return bisect_any(&options);
}

static int bisect_case(const bisect_options *given)
{
    replay_options options = {0};
    uint32_t number;
    if (given->finding || given->groups || given->runs || given->log || given->resume) {
        cli_error("--finding, --groups, --runs, --log and --resume go with --boundaries or --count; see firstbad bisect --help");
        return CLI_USAGE;
    }
    if (given->alone && given->command) {
        cli_error("bisect takes --alone or a command, not both");
        return CLI_USAGE;
    }
    if (!take_number("--probes", given->probes, &number)) return CLI_USAGE;
    options.dir = given->dir;
    options.name = given->name;
    options.command = given->command;
    options.parts = "replay,search,cause,minimise,evidence";
    options.strategy = given->strategy;
    options.probes = given->probes;
    options.alone = given->alone;
    options.show = !given->json;
    return replay_command_run(&options, REPLAY_LOCATE, given->json);
}

int fb_cmd_bisect(int argc, char **argv)
{
    bisect_options given = {0};
    const cli_option options[] = {{"--boundaries", NULL, &given.boundaries},
                                  {"--count", NULL, &given.count},
                                  {"--finding", NULL, &given.finding},
                                  {"--probes", NULL, &given.probes},
                                  {"--strategy", NULL, &given.strategy},
                                  {"--runs", NULL, &given.runs},
                                  {"--log", NULL, &given.log},
                                  {"--resume", NULL, &given.resume},
                                  {"--dir", NULL, &given.dir},
                                  {"--alone", &given.alone, NULL},
                                  {"--groups", &given.groups, NULL},
                                  {"--json", &given.json, NULL},
                                  {NULL, NULL, NULL}};
    int words, code;
    given.command = cli_split_command(&argc, argv);
    if (!cli_parse(argc, argv, options, HELP, &given.name, 1, &words, &code)) return code;
    if (given.strategy && strcmp(given.strategy, "sweep") != 0 && strcmp(given.strategy, "bisect") != 0) {
        cli_error("--strategy is sweep or bisect, not '%s'", given.strategy);
        return CLI_USAGE;
    }
    return given.boundaries || given.count ? bisect_command(&given) : bisect_case(&given);
}
