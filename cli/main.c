/*
 * firstbad: the command line. One table of commands; each has a file of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "firstbad/firstbad.h"

typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

/* In the order in which a new user meets them. */
static const command commands[] = {
    {"run", "guard a training command: stop it at the first bad number and say why", fb_cmd_run},
    {"why", "say where the first bad number of a run came from, and what is safe", fb_cmd_why},
    {"scan", "say whether every number in a checkpoint is finite, and if not, which", fb_cmd_scan},
    {"ckpt", "list checkpoints, print the one to resume from, quarantine or release one", fb_cmd_ckpt},
    {"drill", "plant known faults into a training on several ranks and see that each is found", fb_cmd_drill},
    {"replay", "run the bad step of a case again, and say whether it is bad again", fb_cmd_replay},
    {"bisect", "find the operator that made the first bad number of a case, or of any program", fb_cmd_bisect},
    {"export", "write the evidence of all ranks as SQLite or JSON lines", fb_cmd_export},
};

enum { COMMANDS = sizeof commands / sizeof *commands, DISTANCE_MAX = 2, NAME_MAX_BYTES = 32 };

static int print_help(void)
{
    char text[4096];
    size_t used =
        (size_t)snprintf(text, sizeof text,
                         "usage: firstbad COMMAND [ARGUMENTS]\n\n"
                         "Finds the first bad number (NaN, Inf) of a training run, stops it before it spreads, and says where it\n"
                         "came from.\n\n");
    for (int i = 0; i < COMMANDS && used < sizeof text; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "  %-8s %s\n", commands[i].name, commands[i].summary);
    }
    (void)snprintf(text + used, sizeof text - used,
                   "\nfirstbad COMMAND --help tells more; so does man firstbad-COMMAND.\n"
                   "Exit codes: 0 clean, 1 something bad was found, 2 wrong use, 3 unreadable input, 4 undecided.\n");
    return cli_print(text);
}

static const command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

/* Edits between two short words (Levenshtein). */
static int distance(const char *a, const char *b)
{
    int row[NAME_MAX_BYTES + 1], n = (int)strlen(b);
    for (int k = 0; k <= n; k++) row[k] = k;
    for (int i = 1; a[i - 1]; i++) {
        int before = row[0];
        row[0] = i;
        for (int k = 1; k <= n; k++) {
            int edit = before + (a[i - 1] != b[k - 1]);
            before = row[k];
            if (row[k - 1] + 1 < edit) edit = row[k - 1] + 1;
            if (row[k] + 1 < edit) edit = row[k] + 1;
            row[k] = edit;
        }
    }
    return row[n];
}

static int unknown(const char *name)
{
    const char *nearest = NULL;
    int best = DISTANCE_MAX + 1;
    for (int i = 0; i < COMMANDS && strlen(name) <= NAME_MAX_BYTES; i++) {
        int edits = distance(name, commands[i].name);
        if (edits < best) {
            best = edits;
            nearest = commands[i].name;
        }
    }
    if (nearest) cli_error("there is no command '%s'; did you mean 'firstbad %s'?", name, nearest);
    else cli_error("there is no command '%s'; firstbad --help lists them", name);
    return CLI_USAGE;
}

static int help_of(const char *name)
{
    char help[] = "--help", copy[NAME_MAX_BYTES + 1];
    char *arguments[] = {copy, help, NULL};
    const command *found = find(name);
    if (!found) return unknown(name);
    (void)snprintf(copy, sizeof copy, "%s", name);
    return found->run(2, arguments);
}

/*
 * A descriptor that is closed would be given to the next file that is opened, and an error message would be written into a ledger
 * or a database. The stand-ins are opened the wrong way round, so that reading and writing fail as they would have.
 */
static int hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    const command *found;
    if (!hold_standard_streams()) return CLI_UNREADABLE;
    if (argc < 2) {
        (void)print_help();
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help();
    if (strcmp(argv[1], "--version") == 0) return cli_print("firstbad " FB_VERSION_TEXT "\n");
    if (strcmp(argv[1], "help") == 0) return argc > 2 ? help_of(argv[2]) : print_help();
    found = find(argv[1]);
    if (found) return found->run(argc - 1, argv + 1);
    if (argv[1][0] == '-') {
        cli_error("there is no option '%s'; firstbad --help lists what there is", argv[1]);
        return CLI_USAGE;
    }
    return unknown(argv[1]);
}
