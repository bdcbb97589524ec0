/* See run_say.h. */
#include "run_say.h"

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

/* The first clause of the cause, on one line; firstbad why has the rest. */
static void say_cause(const fb_report *report)
{
    enum { ROOM = 84 };
    fb_cause_words words = fb_cause_words_of(report);
    char text[512];
    size_t end;
    if (!report->located->cause_told || strcmp(words.name, "unknown") == 0) return;
    (void)snprintf(text, sizeof text, "%s%s: %s", words.name, words.certain ? "" : " (fits best, not proven)",
                   fb_explanation_alone(report, words.explanation));
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
    else if (report->attempt != job->newest)
        say_field("next", "attempt %d ended; attempt %d of the same launch found nothing bad, and the command ended with code %d",
                  report->attempt, job->newest, job->code);
    else if (report->has_no_vote) say_field("next", "the job ended in that vote, with code %d", job->code);
    else if (report->applied_on) say_field("next", "it was applied; the command ended with code %d", job->code);
    else if (!fb_went_on(report)) say_field("next", "skipped; no update followed, and the command ended with code %d", job->code);
    else say_field("next", "skipped; training went on, and the command ended with code %d", job->code);
    if (report->cases_before) {
        say_field("earlier", "%" PRIu64 " case%s before this one, the last at step %" PRId64, report->cases_before,
                  report->cases_before == 1 ? "" : "s", report->previous_case_step);
    }
    say_field("case", "%s", folder);
    fprintf(stderr, "%14sfirstbad why %s\n", "", folder);
}

/* What kept a Python program from being guarded, as far as the folder in PYTHONPATH tells. */
static void say_python(const run_job *job)
{
    const attach_seen *seen = &job->seen;
    const char *blind = attach_blinded(job->options->command);
    if (blind) {
        say_field("Python",
                  "%s keeps Python from reading PYTHONPATH or sitecustomize, by which firstbad is attached: leave it away", blind);
    } else if (!job->options->python) {
        say_field("Python", "--no-python: no Python program is attached to");
    } else if (job->attached.why[0]) {
        say_field("Python", "not attached: %s", job->attached.why);
    } else if (seen->failed) {
        say_field("Python", "torch was imported in %" PRIu64 " process%s, and %" PRIu64 " could not be guarded: %s%s%s",
                  seen->imported, seen->imported == 1 ? "" : "es", seen->failed, seen->error, seen->command[0] ? "; it ran: " : "",
                  seen->command);
    } else if (seen->imported) {
        say_field("Python",
                  "torch was imported in %" PRIu64 " process%s, and none of them began a training step: no forward with "
                  "gradients, no backward, no optimizer step",
                  seen->imported, seen->imported == 1 ? "" : "es");
    } else if (seen->python || attach_names_python(job->options->command[0])) {
        say_field("Python", "it ran, and no process imported torch");
    } else {
        say_field("Python", "none is known to have run; one that ignores PYTHONPATH (python -I, -E, -S, a changed environment) "
                            "cannot be seen");
    }
}

static void say_nothing_guarded(const run_job *job)
{
    fprintf(stderr, "firstbad: nothing was guarded: no program below this command left a ledger in run %s.\n", job->run_id);
    say_python(job);
    say_field("others",
              "a program in C has to link firstbad and call fb_run_open (docs/integrating.md); one that did and could not "
              "write here has said so above");
    say_field("nodes",
              "on several nodes the launcher must pass the variables on, for example mpirun -x PYTHONPATH -x FIRSTBAD_DIR -x "
              "FIRSTBAD_RUN_ID -x FIRSTBAD_ATTEMPT");
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
    /* Some ranks were guarded and others were not: the answer above is that of those that were. */
    if (job->ledgers && job->seen.failed)
        cli_error("not all of it was guarded: %" PRIu64 " of %" PRIu64 " processes that imported torch: %s", job->seen.failed,
                  job->seen.imported, job->seen.error);
}

/* ---- for programs ------------------------------------------------------------------------------------------------------------ */

static void json_python(fb_json *json, const run_job *job)
{
    fb_json_key(json, "python");
    fb_json_object_begin(json);
    fb_json_key_bool(json, "attached", job->attached.folder[0] != '\0');
    fb_json_key_string(json, "reason", job->attached.why[0] ? job->attached.why : NULL);
    fb_json_key_uint(json, "imported_torch", job->seen.imported);
    fb_json_key_uint(json, "failed", job->seen.failed);
    fb_json_key_string(json, "error", job->seen.error[0] ? job->seen.error : NULL);
    fb_json_object_end(json);
}

static void say_json(const run_job *job)
{
    const fb_report *report = job->report;
    fb_json json;
    fb_json_init(&json, 0);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.end/1");
    fb_json_key_string(&json, "run_id", job->run_id);
    fb_json_key_int(&json, "attempt", job->attempt);
    fb_json_key_int(&json, "newest_attempt", job->newest);
    fb_json_key_string(&json, "folder", job->folder);
    fb_json_key_bool(&json, "guarded", job->ledgers > 0);
    fb_json_key_uint(&json, "ranks", job->ledgers);
    fb_json_key_string(&json, "status", report ? fb_why_status_name(report->status) : NULL);
    fb_json_key_string(&json, "case", report && report->has_case ? report->case_id : NULL);
    if (report && report->has_case) fb_json_key_int(&json, "step", report->step);
    else fb_json_key_null(&json, "step");
    json_python(&json, job);
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

void run_say(const run_job *job, int json)
{
    if (json) say_json(job);
    else say(job);
}
