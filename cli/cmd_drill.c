/*
 * firstbad drill: plant faults whose truth is known into a training on several ranks, and see whether each is found, placed, voted
 * on and kept out of the state. Any difference fails.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "cli.h"
#include "drill.h"
#include "drill_all.h"

static const char HELP[] =
    "usage: firstbad drill [options]\n"
    "       firstbad drill --all [--seeds N] [--jobs N] [options]\n\n"
    "Trains the built-in GPT on real text on several MPI ranks, once for each scenario, with a fault planted where\n"
    "the truth is known, and compares: found at that step, rank and boundary; placed to tensor and index; the same\n"
    "action on every rank; parameters and optimizer state unchanged, by digest. Healthy runs must stay silent.\n\n"
    "With --all: some 70 faults that arise by arithmetic, and as many healthy trainings, each on several seeds; scored by\n"
    "step, spread, rank, module, operator, cause, smallest batch and replays (docs/drill.md).\n\n"
    "  --all              the fault benchmark\n"
    "  --seeds N          of --all, for each of them (3)\n"
    "  --jobs N           of --all, runs at a time (processors / ranks, at least 2)\n"
    "  --ranks N          MPI ranks (4; with --all 2)\n"
    "  --only LIST        scenarios by number or name, parted by commas; with --all faults by name\n"
    "  --list             name them and end\n"
    "  --precision P      fp32 or bf16, for the scenarios that have none of their own (fp32)\n"
    "  --dir DIR          keep the run folders there; without it they lie in a temporary folder, and when all passed only\n"
    "                     that of mask-full-row, whose answers were shown, is left\n"
    "  --keep             keep all of the temporary folder\n"
    "  --trainer PROGRAM  another trainer with the options of firstbad-gpt; its faults are what a drill is for\n"
    "  --verbose          expected and got for passed lines, too\n"
    "  --json             one JSON object on standard output\n\n"
    "Exit codes: 0 all passed, 1 a line failed, 2 wrong use, 3 no trainer, no mpirun, no folder, or\n"
    "the table could not be written, 128 + N ended by signal N.\n";

enum {
    SCENARIOS_MAX = 64,
    VERSION_MS = 5000,
    COMMAND_WORDS = 256,
    QUOTED_BYTES = FB_OS_PATH_MAX * 2,
    AGAIN_BYTES = QUOTED_BYTES * 2
};

/* ---- which scenarios --------------------------------------------------------------------------------------------------------- */

static int print_list(void)
{
    for (int i = 0; i < drill_scenario_count; i++)
        printf("%2d  %-18s %s\n", i + 1, drill_scenarios[i].id, drill_scenarios[i].fault);
    return cli_flush();
}

static int find_scenario(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end != text && !*end) return number >= 1 && number <= drill_scenario_count ? (int)number - 1 : -1;
    for (int i = 0; i < drill_scenario_count; i++) {
        if (strcmp(drill_scenarios[i].id, text) == 0) return i;
    }
    return -1;
}

/* 0 after a message. */
static int choose(const char *only, unsigned char chosen[SCENARIOS_MAX])
{
    char copy[1024], *save = NULL;
    int any = 0;
    memset(chosen, only ? 0 : 1, SCENARIOS_MAX);
    if (!only) return 1;
    (void)snprintf(copy, sizeof copy, "%s", only);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        int at = find_scenario(word);
        if (at < 0) {
            cli_error("there is no scenario '%s'; firstbad drill --list names them", word);
            return 0;
        }
        chosen[at] = 1;
        any = 1;
    }
    if (!any) cli_error("--only names no scenario");
    return any;
}

/* ---- what is needed ---------------------------------------------------------------------------------------------------------- */

static int find_trainer(const char *given, char out[FB_OS_PATH_MAX])
{
    static const char *const places[] = {"firstbad-gpt", "../libexec/firstbad/firstbad-gpt"};
    char self[FB_OS_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;
    if (given) {
        int why = access(given, X_OK) == 0 ? 0 : errno;
        struct stat info;
        if (!why && stat(given, &info) == 0 && S_ISDIR(info.st_mode)) why = EISDIR;
        if (!why && realpath(given, out)) return 1;
        cli_error("use trainer %s: %s", given, strerror(why ? why : errno));
        return 0;
    }
    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        *slash = '\0';
        if (fb_os_join(out, FB_OS_PATH_MAX, self, places[i], NULL) == FB_OK && access(out, X_OK) == 0) return 1;
    }
    cli_error("cannot find firstbad-gpt beside %s; a wheel does not bring it: it is built by make, where MPI is installed (Debian: "
              "libopenmpi-dev openmpi-bin)",
              self);
    return 0;
}

static int find_launcher(int *oversubscribe)
{
    char launcher[] = "mpirun", option[] = "--version", text[4096];
    char *const words[] = {launcher, option, NULL};
    if (process_capture(words, text, sizeof text, VERSION_MS) != 0) {
        cli_error("cannot run mpirun, which a drill needs (Debian: openmpi-bin)");
        return 0;
    }
    *oversubscribe = strstr(text, "Open MPI") != NULL || strstr(text, "OpenRTE") != NULL;
    return 1;
}

static int make_dir(const drill_options *options, drill_settings *settings)
{
    const char *base = getenv("TMPDIR");
    fb_error err;
    if (options->dir) {
        if (fb_os_mkdirs(fb_os_posix(), options->dir, &err) != FB_OK) return cli_fail(&err), 0;
        if (realpath(options->dir, settings->dir)) return 1;
        cli_error("use folder %s: %s", options->dir, strerror(errno));
        return 0;
    }
    (void)snprintf(settings->dir, sizeof settings->dir, "%.3000s/firstbad-drill-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(settings->dir)) return 1;
    cli_error("make a temporary folder %s: %s", settings->dir, strerror(errno));
    return 0;
}

/* A word as a shell takes it, in quotes where it needs them. */
static void quote(const char *word, char *out, size_t room)
{
    size_t used = 0;
    if (*word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")]) {
        (void)snprintf(out, room, "%s", word);
        return;
    }
    out[used++] = '\'';
    for (; *word && used + 6 < room; word++) {
        if (*word == '\'') used += (size_t)snprintf(out + used, room - used, "'\\''");
        else out[used++] = *word;
    }
    (void)snprintf(out + used, room - used, "'");
}

/* How to call this program again from here: by its name where PATH has one, else by a path that can be pasted. */
static void name_program(char out[QUOTED_BYTES])
{
    char here[FB_OS_PATH_MAX], path[FB_OS_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    size_t prefix;
    path[n > 0 ? n : 0] = '\0';
    if (n <= 0 || process_find("firstbad") == 0) {
        (void)snprintf(out, QUOTED_BYTES, "firstbad");
        return;
    }
    prefix = getcwd(here, sizeof here) ? strlen(here) : 0;
    quote(prefix && strncmp(path, here, prefix) == 0 && path[prefix] == '/' ? path + prefix + 1 : path, out, QUOTED_BYTES);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------- */

static void show_progress(int done, int count, const char *fault)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    if (!isatty(STDERR_FILENO)) return;
    for (int i = 0; i < WIDTH; i++) bar[i] = i * count < done * WIDTH ? '=' : ' ';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %d of %d  %.48s", bar, done, count, fault);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static void add_guard_time(const drill_result *result, drill_summary *summary)
{
    for (int32_t i = 0; i < result->world.ranks; i++) {
        const drill_rank *rank = &result->world.rank[i];
        for (uint64_t k = 0; k < rank->step_count; k++) {
            if (!(rank->steps[k].flags & FB_STEP_APPLIED)) continue;
            summary->guard_ns += rank->steps[k].guard_ns;
            summary->duration_ns += rank->steps[k].duration_ns;
            summary->tokens += rank->steps[k].tokens;
            summary->updates++;
        }
    }
}

/* The five answers of the headline's run, as `firstbad why` gives them. */
static void show_answers(const drill_result *result, const drill_settings *settings)
{
    fb_error err;
    char *text = NULL;
    printf("A GPT of 4 layers learns to write on %d ranks, from real text. In step %" PRId64 " one sample of rank %d has no\n"
           "token that may be seen: a softmax over nothing. This is what `firstbad why` then says:\n\n",
           settings->ranks, result->scenario->step, result->truth_rank);
    if (!result->job.report) {
        puts("Nothing: no rank left a ledger that can be read; the log below says what became of the training.\n");
        return;
    }
    if (fb_report_why_text(result->job.report, cli_columns(stdout), cli_colour(stdout), &text, &err) == FB_OK) fputs(text, stdout);
    fb_free(text);
    puts("");
}

static void run_one(drill_result *result, int at, const drill_settings *settings, drill_summary *summary)
{
    result->scenario = &drill_scenarios[at];
    result->number = at + 1;
    drill_run(result, settings);
    drill_judge(result, settings);
    add_guard_time(result, summary);
    if (drill_passed(result)) summary->passed++;
    else summary->failed++;
}

/* The headline comes first, because its answers do; the table has it in its place. */
static fb_status run_all(const unsigned char chosen[SCENARIOS_MAX], const drill_options *options, const drill_settings *settings,
                         drill_result *results[SCENARIOS_MAX], drill_summary *summary, fb_error *err)
{
    int count = 0, done = 0;
    int64_t begun = process_now_ms();
    for (int i = 0; i < drill_scenario_count; i++) count += chosen[i];
    for (int turn = -1; turn < drill_scenario_count; turn++) {
        int at = turn < 0 ? drill_headline : turn;
        if (!chosen[at]) continue;
        if (!results[at]) {
            show_progress(done, count, drill_scenarios[at].fault);
            results[at] = fb_calloc(1, sizeof *results[at]);
            if (!results[at]) return fb_fail(err, FB_E_NOMEM, "run a scenario: no memory");
            run_one(results[at], at, settings, summary);
            done++;
            clear_progress();
            if (process_interrupted()) return FB_OK; /* what it came to is no result */
        }
        if (options->json) continue;
        if (turn < 0) {
            show_answers(results[at], settings);
            if (cli_flush()) break;
            continue;
        }
        if (done == 1 || turn == 0) drill_print_head();
        drill_print_line(results[at], settings->ranks, options->verbose);
        if (cli_flush()) break; /* nobody reads on */
    }
    summary->ms = process_now_ms() - begun;
    return FB_OK;
}

static void print_end(drill_result *const results[SCENARIOS_MAX], const drill_options *options, const drill_settings *settings,
                      const drill_summary *summary, const char *again, int kept)
{
    const drill_result *ordered[SCENARIOS_MAX];
    char program[QUOTED_BYTES], folder[QUOTED_BYTES];
    int count = 0;
    for (int i = 0; i < drill_scenario_count; i++) {
        if (results[i]) ordered[count++] = results[i];
    }
    if (options->json) drill_print_json(ordered, count, summary, settings);
    else drill_print_summary(summary, settings, again, kept ? settings->dir : NULL);
    if (options->json || !results[drill_headline] || !results[drill_headline]->job.report) return;
    name_program(program);
    quote(results[drill_headline]->job.folder, folder, sizeof folder);
    printf("As JSON: %s why --json %s\n", program, folder);
}

/* What passed is not kept, the headline apart: its answers were shown, and are there to be asked again. */
static void forget(drill_result *const results[SCENARIOS_MAX], const drill_settings *settings, int all)
{
    char twin[FB_OS_PATH_MAX + 8], again[FB_OS_PATH_MAX + 8], saves[FB_OS_PATH_MAX];
    if (all) {
        drill_remove(settings->dir);
        return;
    }
    for (int i = 0; results[drill_headline] && i < drill_scenario_count; i++) {
        if (!results[i] || i == drill_headline) continue;
        (void)snprintf(twin, sizeof twin, "%s.twin", results[i]->log);
        (void)snprintf(again, sizeof again, "%s.again", results[i]->log);
        drill_saves_folder(results[i], saves);
        drill_remove(saves);
        (void)unlink(again);
        drill_remove(results[i]->job.folder);
        (void)unlink(results[i]->log);
        (void)unlink(twin);
    }
    if (!results[drill_headline]) drill_remove(settings->dir);
}

static int drill(const unsigned char chosen[SCENARIOS_MAX], const drill_options *options, const drill_settings *settings,
                 const char *again)
{
    drill_result *results[SCENARIOS_MAX] = {NULL};
    drill_summary summary = {0, 0, 0, 0, 0, 0, 0};
    fb_error err;
    fb_status status = run_all(chosen, options, settings, results, &summary, &err);
    int signal_number = process_interrupted(), code = summary.failed ? CLI_BAD : CLI_CLEAN;
    int kept = options->dir || options->keep || (summary.failed && !signal_number) || status != FB_OK;
    if (status != FB_OK) code = cli_fail(&err);
    else if (signal_number) code = 128 + signal_number;
    else if (!ferror(stdout)) print_end(results, options, settings, &summary, again, kept);
    if ((ferror(stdout) || cli_flush()) && !signal_number) code = CLI_UNREADABLE; /* told once */
    if (!kept) forget(results, settings, signal_number || code == CLI_UNREADABLE);
    if (signal_number)
        cli_error("drill: ended by signal %d; %s%s", signal_number, kept ? "runs kept in " : "its temporary folder is removed",
                  kept ? settings->dir : "");
    for (int i = 0; i < SCENARIOS_MAX; i++) {
        if (results[i]) drill_release(results[i]);
        fb_free(results[i]);
    }
    return code;
}

/* ---- options ----------------------------------------------------------------------------------------------------------------- */

/* What would repeat this drill. */
static void say_again(int argc, char **argv, char out[AGAIN_BYTES])
{
    char word[QUOTED_BYTES];
    size_t used;
    name_program(word);
    used = (size_t)snprintf(out, AGAIN_BYTES, "%s drill", word);
    for (int i = 1; i < argc && used < AGAIN_BYTES; i++) {
        quote(argv[i], word, sizeof word);
        used += (size_t)snprintf(out + used, AGAIN_BYTES - used, " %s", word);
    }
}

/* A drill decides by itself what its runs see. */
static void forget_environment(void)
{
    static const char *const names[] = {"FIRSTBAD_DIR",       "FIRSTBAD_RUN_ID", "FIRSTBAD_ATTEMPT", "FIRSTBAD_ON_BAD",
                                        "FIRSTBAD_MAX_SKIPS", "FIRSTBAD_INJECT", "FIRSTBAD_SET"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unsetenv(names[i]);
}

/* -1: go on. */
static int read_options(int argc, char **argv, drill_options *given, drill_settings *settings)
{
    const cli_option options[] = {{"--ranks", NULL, &given->ranks},
                                  {"--only", NULL, &given->only},
                                  {"--precision", NULL, &given->precision},
                                  {"--dir", NULL, &given->dir},
                                  {"--trainer", NULL, &given->trainer},
                                  {"--list", &given->list, NULL},
                                  {"--keep", &given->keep, NULL},
                                  {"--verbose", &given->verbose, NULL},
                                  {"--json", &given->json, NULL},
                                  {"--all", &given->all, NULL},
                                  {"--seeds", NULL, &given->seeds},
                                  {"--jobs", NULL, &given->jobs},
                                  {NULL, NULL, NULL}};
    const char *command[COMMAND_WORDS];
    long long ranks, seeds = 3, jobs;
    int words, code;
    if (!cli_parse(argc, argv, options, HELP, command, COMMAND_WORDS, &words, &code)) return code;
    if (words) {
        cli_error("a drill runs the built-in trainer; to drill a command of your own, '%s', is not built", command[0]);
        return CLI_USAGE;
    }
    ranks = given->all ? 2 : 4;
    if (given->ranks && !cli_number("--ranks", given->ranks, 2, &ranks)) return CLI_USAGE;
    if (ranks > DRILL_RANKS_MAX) {
        cli_error("--ranks goes up to %d", DRILL_RANKS_MAX);
        return CLI_USAGE;
    }
    if (given->all && given->precision) {
        cli_error("with --all each fault has its own precision");
        return CLI_USAGE;
    }
    if (given->precision && strcmp(given->precision, "fp32") != 0 && strcmp(given->precision, "bf16") != 0) {
        cli_error("--precision is fp32 or bf16: in fp16 one overflow is what the loss scale probes for; scenarios fp16-overflow "
                  "and healthy-fp16 drill it");
        return CLI_USAGE;
    }
    if (!given->all && (given->seeds || given->jobs)) {
        cli_error("%s belongs to --all", given->seeds ? "--seeds" : "--jobs");
        return CLI_USAGE;
    }
    jobs = sysconf(_SC_NPROCESSORS_ONLN) / ranks;
    if (jobs < DRILL_JOBS_MIN) jobs = DRILL_JOBS_MIN;
    if (jobs > DRILL_JOBS_MAX) jobs = DRILL_JOBS_MAX;
    if (given->seeds && !cli_number("--seeds", given->seeds, 1, &seeds)) return CLI_USAGE;
    if (given->jobs && !cli_number("--jobs", given->jobs, 1, &jobs)) return CLI_USAGE;
    if (seeds > DRILL_SEEDS_MAX || jobs > DRILL_JOBS_MAX) {
        cli_error("--seeds goes up to %d, --jobs up to %d", DRILL_SEEDS_MAX, DRILL_JOBS_MAX);
        return CLI_USAGE;
    }
    settings->seeds = (int32_t)seeds;
    settings->jobs = (int32_t)jobs;
    settings->ranks = (int32_t)ranks;
    settings->precision = given->precision;
    return -1;
}

int fb_cmd_drill(int argc, char **argv)
{
    drill_options options;
    drill_settings settings;
    unsigned char chosen[SCENARIOS_MAX];
    char trainer[FB_OS_PATH_MAX], again[AGAIN_BYTES];
    int code;
    memset(&options, 0, sizeof options);
    memset(&settings, 0, sizeof settings);
    if ((code = read_options(argc, argv, &options, &settings)) >= 0) return code;
    if (options.list) return options.all ? drill_all_list(options.json) : print_list();
    if (!options.all && !choose(options.only, chosen)) return CLI_USAGE;
    if (!find_trainer(options.trainer, trainer) || !find_launcher(&settings.oversubscribe) || !make_dir(&options, &settings))
        return CLI_UNREADABLE;
    settings.trainer = trainer;
    say_again(argc, argv, again);
    forget_environment();
    process_catch_interrupts();
    return options.all ? drill_all_run(&options, &settings, again) : drill(chosen, &options, &settings, again);
}
