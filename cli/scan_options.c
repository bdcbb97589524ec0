#include "scan_options.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"

static const char help[] =
    "usage: firstbad scan PATH... [--json] [--stats] [--first] [--allow PATTERN]... [--digest] [-j N]\n\n"
    "Reads checkpoints, each a file or a folder, and says whether every number in them is finite; if not, which\n"
    "tensor, which element, what is there. What could not be looked at is listed and never called clean. Nothing\n"
    "that a file says is run.\n\n"
    "  --json           one JSON object a path, each on one line\n"
    "  --stats          a table: range, norm, zeros, headroom and exponents of every tensor\n"
    "  --sort headroom  the table begins with the tensor that is nearest to overflow\n"
    "  --first          stop at the first bad number\n"
    "  --allow PATTERN  tensors of this name, in which * stands for any text, may hold -Inf; may be repeated\n"
    "  --digest         print a digest of the bytes (XXH3); --digest=sha256 where somebody might forge them\n"
    "  --crc            compare the checksums that the format itself keeps\n"
    "  --all            list everything that was found, not only the first 20 of a kind\n"
    "  --quiet          say nothing about what is clean\n"
    "  -j N             threads (default: one a processor, at most 8)\n\n"
    "Exit codes: 0 clean, 1 something is not finite, 2 wrong use, 3 unreadable or over a limit, 4 undecided: a part\n"
    "was not looked at, or there was nothing to check. Of several paths the gravest counts: 1, then 3, 4, 0.\n";

enum { THREADS_DEFAULT_MAX = 8, THREADS_MAX = 1024 };

static int32_t processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX : count;
}

static int wants_value(const char *option)
{
    cli_error("%s wants a value; see firstbad scan --help", option);
    return 0;
}

static int set_digest(scan_options *given, const char *name)
{
    given->digest = strcmp(name, "sha256") == 0 ? "sha256" : strcmp(name, "xxh3") == 0 ? "xxh3" : NULL;
    if (given->digest) return 1;
    cli_error("--digest makes xxh3 or sha256, not '%s'", name);
    return 0;
}

/*
 * Options that the common parser does not know, since no other command has their like: one that may be repeated, one whose value
 * may be left out, and -j4. They are taken out of `argv`, and what remains is handed on. 0 after a message.
 */
static int take_own(scan_options *given, int *argc, char **argv, const char **threads)
{
    int kept = 1, allowed = 0, ended = 0;
    for (int i = 1; i < *argc; i++) {
        char *text = argv[i];
        if (ended || strcmp(text, "--") == 0) {
            ended = 1;
            argv[kept++] = text;
        } else if (strcmp(text, "--allow") == 0) {
            if (i + 1 == *argc) return wants_value(text);
            given->allow[allowed++] = argv[++i];
        } else if (strncmp(text, "--allow=", 8) == 0) {
            given->allow[allowed++] = text + 8;
        } else if (strcmp(text, "--digest") == 0) {
            given->digest = "xxh3";
        } else if (strncmp(text, "--digest=", 9) == 0) {
            if (!set_digest(given, text + 9)) return 0;
        } else if (strncmp(text, "-j", 2) == 0 && text[2] && text[2] != '=') {
            *threads = text + 2;
        } else {
            /* The value of an option may look like anything, and is not ours. */
            argv[kept++] = text;
            if ((strcmp(text, "--sort") == 0 || strcmp(text, "-j") == 0) && i + 1 < *argc) argv[kept++] = argv[++i];
        }
    }
    given->allow[allowed] = NULL;
    *argc = kept;
    return 1;
}

static int check(scan_options *given, const char *threads, const char *sort)
{
    long long number;
    if (given->path_count == 0) {
        cli_error("scan wants the path of a checkpoint, a file or a folder; see firstbad scan --help");
        return 0;
    }
    for (int i = 0; i < given->path_count; i++) {
        if (*given->paths[i]) continue;
        cli_error("scan wants the path of a checkpoint, not an empty word");
        return 0;
    }
    given->threads = processors();
    if (threads) {
        if (!cli_number("-j", threads, 1, &number)) return 0;
        given->threads = number > THREADS_MAX ? THREADS_MAX : (int32_t)number;
    }
    if (!sort) return 1;
    given->by_headroom = strcmp(sort, "headroom") == 0;
    if (given->by_headroom || strcmp(sort, "file") == 0) return 1;
    cli_error("--sort wants headroom or file, not '%s'", sort);
    return 0;
}

int scan_options_parse(scan_options *given, int argc, char **argv, int *exit_code)
{
    const char *threads = NULL, *sort = NULL;
    const cli_option options[] = {{"--json", &given->json, NULL},   {"--stats", &given->stats, NULL},
                                  {"--sort", NULL, &sort},          {"--first", &given->first, NULL},
                                  {"--crc", &given->crc, NULL},     {"--all", &given->all, NULL},
                                  {"--quiet", &given->quiet, NULL}, {"-q", &given->quiet, NULL},
                                  {"-j", NULL, &threads},           {NULL, NULL, NULL}};
    memset(given, 0, sizeof *given);
    *exit_code = CLI_USAGE;
    given->paths = fb_calloc((size_t)argc + 1, sizeof *given->paths);
    given->allow = fb_calloc((size_t)argc + 1, sizeof *given->allow);
    if (!given->paths || !given->allow) {
        cli_error("scan: no memory");
        *exit_code = CLI_UNREADABLE;
        return 0;
    }
    if (!take_own(given, &argc, argv, &threads)) return 0;
    if (!cli_parse(argc, argv, options, help, given->paths, argc, &given->path_count, exit_code)) return 0;
    *exit_code = CLI_USAGE;
    return check(given, threads, sort);
}

void scan_options_release(scan_options *given)
{
    fb_free(given->paths);
    fb_free(given->allow);
}
