/*
 * firstbad run: guard a command that trains with PyTorch or links firstbad. Chooses run and attempt, sets the environment that
 * fb_run_open and Python read, stays the parent, passes signals on, and says at the end what the run folder holds.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cli.h"
#include "leave_out.h"
#include "run_job.h"
#include "run_say.h"

static const char HELP[] =
    "usage: firstbad run [options] -- COMMAND [ARGUMENT...]\n"
    "\n"
    "Run a command guarded by firstbad: every program below it that trains with PyTorch, or that links firstbad, records into one\n"
    "run folder, under one policy. A PyTorch script needs no change:  firstbad run -- python train.py\n"
    "Put it in front of the launcher:  firstbad run -- torchrun --nproc-per-node 8 train.py\n"
    "\n"
    "  --dir DIR             folder that holds runs (default: FIRSTBAD_DIR, else firstbad-runs)\n"
    "  --run-id ID           name of the run; a name that exists gets one more attempt\n"
    "                        (default: FIRSTBAD_RUN_ID, SLURM_JOB_ID, TORCHELASTIC_RUN_ID, else made from the time)\n"
    "  --on-bad WHAT         skip: leave the bad update out; halt: stop at the first; observe: record and change nothing\n"
    "                        (default: what the program asks for, which is skip unless it says otherwise)\n"
    "  --max-skips N         bad updates in a row that are left out before the run halts (default: 3)\n"
    "  --inject SPEC         plant a fault, for example grad-inf@step=20,rank=1,site=h.2.mlp; may be repeated (docs/injection.md)\n"
    "  --set KEY=VALUE       record a fact about the run, for example dataset_version=3; may be repeated\n"
    "  --leave-out CASE      keep the samples of this case away: its smallest batch, else the batch of the rank that was first; "
    "may be\n"
    "                        repeated; CASE is what firstbad replay takes\n"
    "  --locate WHAT         after a bad update: all, none, or some of replay,search,cause,other,minimise,evidence,bundle\n"
    "                        (default: what the program does)\n"
    "  --strategy WORD       how the operator is searched: sweep or bisect\n"
    "  --no-python           do not attach to Python programs that import torch\n"
    "  --json                what is said at the end as one line of JSON, on standard error as well: standard output is the "
    "command's\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit code: the command's own; 128 + N when signal N ended it; 86 when firstbad halted the job; 127 when there is no such "
    "command,\n"
    "126 when it cannot be executed; 2 for wrong use; 3 when the run folder cannot be made.\n"
    "\n"
    "Afterwards:  firstbad why\n";

/* ---- options ----------------------------------------------------------------------------------------------------------------- */

enum {
    OPT_DIR = 1000,
    OPT_RUN_ID,
    OPT_ON_BAD,
    OPT_MAX_SKIPS,
    OPT_INJECT,
    OPT_SET,
    OPT_LEAVE_OUT,
    OPT_LOCATE,
    OPT_STRATEGY,
    OPT_NO_PYTHON,
    OPT_JSON
};

static const struct option OPTIONS[] = {
    {"dir", required_argument, NULL, OPT_DIR},
    {"run-id", required_argument, NULL, OPT_RUN_ID},
    {"on-bad", required_argument, NULL, OPT_ON_BAD},
    {"max-skips", required_argument, NULL, OPT_MAX_SKIPS},
    {"inject", required_argument, NULL, OPT_INJECT},
    {"set", required_argument, NULL, OPT_SET},
    {"leave-out", required_argument, NULL, OPT_LEAVE_OUT},
    {"locate", required_argument, NULL, OPT_LOCATE},
    {"strategy", required_argument, NULL, OPT_STRATEGY},
    {"no-python", no_argument, NULL, OPT_NO_PYTHON},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static fb_status add_setting(run_job_options *options, const char *text, fb_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || strchr(text, '\n')) {
        return fb_fail(err, FB_E_USAGE, "read --set: expected KEY=VALUE in one line, found '%.60s'", text);
    }
    return run_job_append(options->set, text, '\n', err);
}

typedef struct left_out_cases {
    const char *names[LEAVE_OUT_CASES_MAX];
    size_t count;
} left_out_cases;

static int add_case(left_out_cases *cases, const char *name)
{
    if (cases->count == LEAVE_OUT_CASES_MAX) {
        cli_error("--leave-out may stand %d times", LEAVE_OUT_CASES_MAX);
        return CLI_USAGE;
    }
    cases->names[cases->count++] = name;
    return -1;
}

/* -1: go on; else the exit code. */
static int take_option(run_job_options *options, left_out_cases *cases, int opt, const char *word, int *json)
{
    fb_error err;
    fb_status status = FB_OK;
    switch (opt) {
    case OPT_DIR: options->dir = optarg; break;
    case OPT_RUN_ID: options->run_id = optarg; break;
    case OPT_ON_BAD: options->on_bad = optarg; break;
    case OPT_MAX_SKIPS: options->max_skips = optarg; break;
    case OPT_INJECT: status = run_job_append(options->inject, optarg, ';', &err); break;
    case OPT_SET: status = add_setting(options, optarg, &err); break;
    case OPT_LEAVE_OUT: return add_case(cases, optarg);
    case OPT_LOCATE: options->locate = optarg; break;
    case OPT_STRATEGY: options->strategy = optarg; break;
    case OPT_NO_PYTHON: options->python = 0; break;
    case OPT_JSON: *json = 1; break;
    case 'h': return cli_print(HELP);
    case ':': cli_error("run: %s wants a value; see firstbad run --help", word); return CLI_USAGE;
    default: cli_error("run has no option %s; see firstbad run --help", word); return CLI_USAGE;
    }
    if (status == FB_OK) return -1;
    (void)cli_fail(&err);
    return CLI_USAGE;
}

/* A long option that is not spelled out. `at`: which one getopt took it for. */
static int is_shortened(const char *word, int at)
{
    return strncmp(word, "--", 2) == 0 && at >= 0 && strcspn(word + 2, "=") != strlen(OPTIONS[at].name);
}

/* The first word that is no option begins the command, with or without "--" before it. */
static int read_options(run_job_options *options, left_out_cases *cases, int argc, char **argv, int *json)
{
    int opt, at = -1;
    opterr = 0;
    optind = 0;
    for (;;) {
        const char *word = argv[optind ? optind : 1]; /* the one that is read next: argv ends with NULL */
        int code;
        if ((opt = getopt_long(argc, argv, "+:h", OPTIONS, &at)) == -1) break;
        if (opt != ':' && opt != '?' && is_shortened(word, at)) opt = '?'; /* getopt takes --js, until there is another --js... */
        if ((code = take_option(options, cases, opt, word, json)) >= 0) return code;
    }
    if (optind >= argc) {
        cli_error("run wants a command: firstbad run -- COMMAND; see firstbad run --help");
        return CLI_USAGE;
    }
    options->command = argv + optind;
    return -1;
}

/* One parent a rank would be one run a rank. */
static int is_behind_mpirun(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (!size || strcmp(size, "1") == 0) return 0;
    cli_error("run stands behind mpirun, once on each of %.16s ranks; put it in front: firstbad run -- mpirun ...", size);
    return 1;
}

/* -1: go on. */
static int collect_left_out(leave_out *out, const run_job_options *options, const left_out_cases *cases, int json)
{
    const char *set = getenv("FIRSTBAD_LEAVE_OUT");
    fb_error err;
    if (cases->count == 0) return -1;
    if (set && *set) {
        cli_error("run: --leave-out is given and FIRSTBAD_LEAVE_OUT is set already; unset it, or leave the option away");
        return CLI_USAGE;
    }
    for (size_t i = 0; i < cases->count; i++) {
        if (leave_out_add(out, options->dir, cases->names[i], &err) != FB_OK) return cli_fail(&err);
    }
    for (size_t i = 0; i < out->cases && !json; i++) cli_error("leaving out %s", out->told[i]);
    return -1;
}

static int guard(const run_job_options *options, int json)
{
    run_job job;
    fb_error err;
    int code;
    if (run_job_open(&job, options, &err) != FB_OK) return cli_fail(&err);
    process_hold_signals();
    if (run_job_start(&job) == 0) process_wait_forwarding(&job.child);
    run_job_close(&job);
    run_say(&job, json);
    code = job.exit_code;
    run_job_release(&job);
    return code;
}

int fb_cmd_run(int argc, char **argv)
{
    run_job_options options;
    left_out_cases cases = {{NULL}, 0};
    leave_out left_out;
    int json = 0, code;
    memset(&left_out, 0, sizeof left_out);
    memset(&options, 0, sizeof options);
    options.output = -1;
    options.python = 1;
    if ((code = read_options(&options, &cases, argc, argv, &json)) >= 0) return code;
    if (is_behind_mpirun()) return CLI_USAGE;
    if ((code = process_find(options.command[0])) != 0) { /* before anything is made for a run that cannot be */
        cli_error("run: start %s: %s", options.command[0], code == ENOENT ? "there is no such command" : strerror(code));
        return code == ENOENT ? RUN_JOB_NOT_FOUND : RUN_JOB_NOT_EXECUTABLE;
    }
    code = collect_left_out(&left_out, &options, &cases, json);
    options.leave_out = &left_out;
    if (code < 0) code = guard(&options, json);
    leave_out_release(&left_out);
    return code;
}
