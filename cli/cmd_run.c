/*
 * firstbad run: guard a command that links firstbad. Chooses run and attempt, sets the environment that fb_run_open reads, stays
 * the parent, passes signals on, and says at the end what the run folder holds.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"
#include "base/status.h"
#include "cli.h"
#include "evidence/site.h"
#include "leave_out.h"
#include "policy/gate.h"
#include "report/say.h"
#include "run_job.h"

static const char HELP[] =
    "usage: firstbad run [options] -- COMMAND [ARGUMENT...]\n"
    "\n"
    "Run a command guarded by firstbad: every program below it that links firstbad records into one run folder, under one policy.\n"
    "Put it in front of the launcher:  firstbad run -- mpirun -n 8 ./train\n"
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
    "  --json                what is said at the end as one line of JSON, on standard error as well: standard output is the "
    "command's\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit code: the command's own; 128 + N when signal N ended it; 86 when firstbad halted the job; 127 when there is no such "
    "command,\n"
    "126 when it cannot be executed; 2 for wrong use; 3 when the run folder cannot be made.\n"
    "\n"
    "Afterwards:  firstbad why\n";

/* ---- what is said at the end, for people ------------------------------------------------------------------------------------- */

static void finding_name(const fb_rec_finding *finding, char *out, size_t room)
{
    (void)snprintf(out, room, "%.*s%s%.*s", (int)finding->module.bytes, finding->module.data,
                   finding->module.bytes && finding->tensor.bytes ? "." : "", (int)finding->tensor.bytes, finding->tensor.data);
}

static void finding_index(const fb_rec_finding *finding, char *out, size_t room)
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = fb_site_unravel(finding->shape, finding->ndim, finding->first_index, index);
    size_t used = 0;
    out[0] = '\0';
    if (finding->first_index == FB_NO_INDEX) return;
    if (n == 0) {
        (void)snprintf(out, room, "[%" PRIu64 "]", finding->first_index);
        return;
    }
    for (int32_t i = 0; i < n && used < room; i++) {
        used += (size_t)snprintf(out + used, room - used, "%s%" PRId64 "%s", i ? ", " : "[", index[i], i + 1 == n ? "]" : "");
    }
}

static const fb_rec_finding *first_of(const fb_report *report)
{
    return report->first == UINT64_MAX ? NULL : &report->findings[report->first].rec;
}

static const char *boundary_words(int32_t boundary)
{
    static const char *const words[] = {"",
                                        "state before the step",
                                        "batch",
                                        "activation",
                                        "loss",
                                        "gradient",
                                        "reduced gradient",
                                        "state after the update",
                                        "checkpoint"};
    return boundary >= FB_ENTRY && boundary <= FB_CHECKPOINT ? words[boundary] : "value";
}

static void say_head(const fb_report *report, const fb_rec_finding *first)
{
    char world[32] = "the ranks";
    if (report->world > 0) (void)snprintf(world, sizeof world, "%d ranks", report->world);
    fprintf(stderr, "firstbad: step %" PRId64 " ", report->step);
    if (report->applied_on) fprintf(stderr, "was applied on %" PRIu64 " of %s", report->applied_on, world);
    else if (report->world == 1) fputs("was not applied", stderr);
    else fprintf(stderr, "was not applied on any of %s", world);
    if (first && first->kind == FB_KIND_ALL_IGNORED)
        fprintf(stderr, ": nothing to learn from in the batch of rank %d\n", first->rank);
    else if (first && first->kind == FB_KIND_OUT_OF_RANGE)
        fprintf(stderr, ": value out of range in the batch of rank %d\n", first->rank);
    else if (first && first->kind == FB_KIND_DOMAIN)
        fprintf(stderr, ": %s out of its domain on rank %d\n", boundary_words(first->boundary), first->rank);
    else if (first) fprintf(stderr, ": non-finite %s on rank %d\n", boundary_words(first->boundary), first->rank);
    else if (report->has_no_vote && report->no_vote_count == 1) fprintf(stderr, ": no vote of rank %d\n", report->no_vote_ranks[0]);
    else if (report->has_no_vote) fprintf(stderr, ": no vote of %" PRIu64 " ranks\n", report->no_vote_count);
    else fprintf(stderr, ": %s\n", fb_gate_reason_text(report->reason));
}

/* A label and its text, wrapped at 100 columns; paths are not cut. */
__attribute__((format(printf, 2, 3))) static void say_field(const char *label, const char *format, ...)
{
    enum { INDENT = 14, COLUMNS = 100 };
    char text[2048], *save = NULL;
    size_t at = INDENT;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fb_text_disarm(text); /* names come from the job */
    fprintf(stderr, "  %-12s", label);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        size_t bytes = strlen(word);
        if (at > INDENT && at + 1 + bytes > COLUMNS) {
            fprintf(stderr, "\n%*s", INDENT, "");
            at = INDENT;
        }
        fprintf(stderr, "%s%s", at > INDENT ? " " : "", word);
        at += bytes + (at > INDENT);
    }
    fputc('\n', stderr);
}

static const char *kind_words(int32_t kind)
{
    if (kind == FB_KIND_NAN) return "NaN";
    if (kind == FB_KIND_POS_INF) return "+Inf";
    if (kind == FB_KIND_NEG_INF) return "-Inf";
    if (kind == FB_KIND_OUT_OF_RANGE) return "out of range";
    if (kind == FB_KIND_ALL_IGNORED) return "all ignored";
    if (kind == FB_KIND_DOMAIN) return "out of its domain";
    return fb_kind_name(kind);
}

static void say_finding(const char *label, const fb_report *report, const fb_rec_finding *first)
{
    char name[600], index[200];
    finding_name(first, name, sizeof name);
    finding_index(first, index, sizeof index);
    say_field(label, "%s, %s, rank %d, micro-step %d: %s x %" PRIu64 "%s%s%s", name, boundary_words(first->boundary), first->rank,
              first->micro_step, kind_words(first->kind), first->count, index[0] ? ", first at " : "", index,
              first->injected || report->injected_text[0] ? " (injected)" : "");
}

/* An explanation begins with the operator that it is of, which stands in the line above: "softmax (forward) in h.0.attn: ". */
static const char *without_place(const char *explanation, const char *op)
{
    const char *colon = strstr(explanation, ": ");
    return op[0] && colon && strncmp(explanation, op, strlen(op)) == 0 ? colon + 2 : explanation;
}

/* The first clause of the cause, on one line; firstbad why has the rest. */
static void say_cause(const fb_report *report)
{
    enum { ROOM = 84 };
    fb_cause_words words = fb_cause_words_of(report);
    char text[512];
    size_t end;
    if (!report->located->cause_told || strcmp(words.name, "unknown") == 0) return;
    (void)snprintf(text, sizeof text, "%s%s: %s", words.name, words.certain ? "" : " (fits best, not proven)",
                   without_place(words.explanation, report->located->place->file.location.op));
    for (end = 0; text[end] && text[end] != ';' && !(text[end] == '.' && (text[end + 1] == ' ' || !text[end + 1])); end++) {}
    text[end] = '\0';
    if (end <= ROOM) {
        say_field("cause", "%s", text);
        return;
    }
    for (end = ROOM - strlen(" ..."); end > 0 && text[end] != ' '; end--) {
    } /* a text without a blank goes whole: never half a letter */
    if (end) text[end] = '\0';
    say_field("cause", "%s ...", text);
}

/* What the trainer may have printed when it happened is not told again: the operator, and why, in a line each. */
static void say_first(const fb_report *report, const fb_rec_finding *first)
{
    const fb_told *told = report->located ? report->located->place : NULL;
    fb_place place;
    fb_phrase phrase = {"", 0};
    if (!told || report->located->found != FB_LOCATED_OPERATOR) {
        say_finding("first bad", report, first);
        return;
    }
    place = fb_place_of_origin(told);
    fb_why_place(&phrase, &place);
    fb_phrase_add(&phrase, ", %s", fb_direction_name(&place));
    if (told->file.step != first->step) fb_phrase_add(&phrase, ", step %" PRId64, told->file.step);
    if (told->file.location.rank >= 0) fb_phrase_add(&phrase, ", rank %d", told->file.location.rank);
    fb_phrase_add(&phrase, ", %s", fb_kind_text(told->file.location.kind));
    if (place.source[0]) fb_phrase_add(&phrase, ", %s", place.source);
    say_field("first bad", "%s", phrase.text);
    say_cause(report);
    say_finding("found as", report, &report->findings[told->explains].rec);
}

static const char *yes_no(int32_t answer)
{
    return answer == FB_ANSWER_YES ? "yes" : answer == FB_ANSWER_NO ? "no" : "unknown";
}

static void say_case(const run_job *job)
{
    const fb_report *report = job->report;
    const fb_rec_finding *first = first_of(report);
    const char *folder = report->case_folder[0] ? report->case_folder : report->folder;
    say_head(report, first);
    if (first) say_first(report, first);
    if (report->witness[0]) say_field("proof", "%s", report->witness);
    say_field("spread", "collective: %s, parameters: %s, optimizer state: %s", yes_no(report->collective),
              yes_no(report->parameters), yes_no(report->optimizer_state));
    if (job->halted)
        say_field("next", "halted, with %" PRIu64 " bad update%s in this case", report->case_updates,
                  report->case_updates == 1 ? "" : "s");
    else if (report->has_no_vote) say_field("next", "the job ended in that vote, with code %d", job->code);
    else say_field("next", "skipped; training went on, and the command ended with code %d", job->code);
    if (report->cases_before) {
        say_field("earlier", "%" PRIu64 " case%s before this one, the last at step %" PRId64, report->cases_before,
                  report->cases_before == 1 ? "" : "s", report->previous_case_step);
    }
    say_field("case", "%s", folder);
    fprintf(stderr, "%14sfirstbad why %s\n", "", folder);
}

static void say_nothing_guarded(const run_job *job)
{
    fprintf(
        stderr,
        "firstbad: nothing was guarded: no program below this command left a ledger in run %s.\n"
        "It has to link firstbad and call fb_run_open (docs/integrating.md); one that did and could not write here has said so\n"
        "above. On several nodes the launcher must pass the FIRSTBAD_ variables on, for example\n"
        "  mpirun -x FIRSTBAD_DIR -x FIRSTBAD_RUN_ID -x FIRSTBAD_ATTEMPT\n",
        job->run_id);
}

static void say_undecided(const run_job *job)
{
    const fb_notes *why = &job->report->undecided;
    cli_error("undecided%s%s", why->count ? ": " : "", why->count ? why->text[0] : "");
    say_field("next", "the command ended with code %d", job->code);
    say_field("run", "%s", job->folder);
    fprintf(stderr, "%14sfirstbad why %s\n", "", job->folder);
}

static void say(const run_job *job)
{
    const char *command = job->options->command[0];
    if (job->start_errno) cli_error("run: start %s: %s", command, strerror(job->start_errno));
    else if (job->ledgers == 0) say_nothing_guarded(job);
    else if (!job->report) cli_error("the run was guarded, and its folder cannot be read: %s", job->why.message);
    else if (job->report->has_case) say_case(job);
    else if (job->report->status == FB_WHY_UNDECIDED) say_undecided(job);
    if (job->why.code != FB_OK && job->report) cli_error("%s", job->why.message);
}

/* ---- for programs ------------------------------------------------------------------------------------------------------------ */

static void say_json(const run_job *job)
{
    const fb_report *report = job->report;
    fb_json json;
    fb_json_init(&json, 0);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.end/1");
    fb_json_key_string(&json, "run_id", job->run_id);
    fb_json_key_int(&json, "attempt", job->attempt);
    fb_json_key_string(&json, "folder", job->folder);
    fb_json_key_bool(&json, "guarded", job->ledgers > 0);
    fb_json_key_uint(&json, "ranks", job->ledgers);
    fb_json_key_string(&json, "status", report ? fb_why_status_name(report->status) : NULL);
    fb_json_key_string(&json, "case", report && report->has_case ? report->case_id : NULL);
    if (report && report->has_case) fb_json_key_int(&json, "step", report->step);
    else fb_json_key_null(&json, "step");
    fb_json_key_bool(&json, "halted", job->halted);
    fb_json_key_uint(&json, "left_out", job->options->leave_out ? job->options->leave_out->count : 0);
    fb_json_key_int(&json, "code", job->code);
    if (job->signal) fb_json_key_int(&json, "signal", job->signal);
    else fb_json_key_null(&json, "signal");
    fb_json_key_int(&json, "exit", job->exit_code);
    fb_json_key_string(&json, "error",
                       job->start_errno         ? strerror(job->start_errno)
                       : job->why.code != FB_OK ? job->why.message
                                                : NULL);
    fb_json_object_end(&json);
    fprintf(stderr, "%s\n", fb_json_text(&json));
    fb_json_release(&json);
}

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
    if (json) say_json(&job);
    else say(&job);
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
