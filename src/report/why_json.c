/*
 * The answers as JSON. Keys are stable: more may be added, none renamed (docs/format/json.md). What is not known is null, and a
 * sentence beside it says why.
 */
#include <stdio.h>
#include <string.h>

#include "evidence/case_json.h"
#include "evidence/site.h"
#include "policy/gate.h"
#include "registry/registry.h"
#include "report/inside.h"
#include "report/say.h"
#include "report/why_json.h"

static void answer(fb_json *json, const char *key, int32_t value)
{
    fb_json_key(json, key);
    if (value == FB_ANSWER_UNKNOWN) fb_json_null(json);
    else fb_json_bool(json, value == FB_ANSWER_YES);
}

static void sentences(fb_json *json, const char *key, const fb_notes *notes)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < notes->count; i++) fb_json_string(json, notes->text[i]);
    fb_json_array_end(json);
}

static void run(fb_json *json, const fb_report *report)
{
    const fb_report_run *run = &report->run;
    fb_json_key(json, "run");
    fb_json_object_begin(json);
    fb_json_text_or_null(json, "run_id", run->run_id);
    fb_json_key_string(json, "folder", report->folder);
    fb_json_key_int(json, "attempt", report->attempt);
    fb_json_key_int(json, "attempts", report->attempts);
    fb_json_int_or_null(json, "ranks", report->world, report->world >= 0);
    fb_json_text_or_null(json, "precision", run->precision);
    fb_json_text_or_null(json, "host", run->host);
    fb_json_text_or_null(json, "command", run->command);
    fb_json_int_or_null(json, "created_unix", run->created_unix, run->created_unix >= 0);
    fb_json_key(json, "code");
    fb_json_object_begin(json);
    fb_json_text_or_null(json, "commit", run->commit);
    fb_json_key(json, "dirty");
    if (run->dirty < 0) fb_json_null(json);
    else fb_json_bool(json, run->dirty);
    fb_json_object_end(json);
    fb_json_key(json, "exit");
    if (!run->has_exit) fb_json_null(json);
    else {
        fb_json_object_begin(json);
        fb_json_key_int(json, "code", run->exit_code);
        fb_json_int_or_null(json, "signal", run->exit_signal, run->exit_signal > 0);
        fb_json_key(json, "halted");
        if (run->exit_halted < 0) fb_json_null(json);
        else fb_json_bool(json, run->exit_halted);
        fb_json_object_end(json);
    }
    fb_json_object_end(json);
}

static const char *source_name(int32_t source)
{
    return source == FB_SOURCE_FROZEN ? "frozen" : source == FB_SOURCE_LEDGER ? "ledger" : "case_file";
}

static void finding(fb_json *json, const fb_report *report, const fb_report_finding *one)
{
    int64_t since = fb_judge_since(report, &one->rec);
    fb_json_object_begin(json);
    fb_finding_json(json, &one->rec);
    fb_json_int_or_null(json, "step_min", since, since >= 0);
    fb_json_operator(json, report, one);
    fb_json_key_string(json, "evidence", source_name(one->source));
    fb_json_key_int(json, "ranks", one->ranks);
    fb_json_object_end(json);
}

static void first_bad(fb_json *json, const fb_report *report)
{
    fb_json_key(json, "first_bad");
    if (report->first == UINT64_MAX) fb_json_null(json);
    else finding(json, report, &report->findings[report->first]);
    fb_json_key(json, "first_bad_set");
    fb_json_array_begin(json);
    for (uint64_t i = 0; i < report->first_set_count; i++) finding(json, report, &report->findings[report->first_set[i]]);
    fb_json_array_end(json);
}

static void case_part(fb_json *json, const fb_report *report)
{
    fb_json_key(json, "case");
    if (!report->has_case) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_string(json, "id", report->case_id);
    fb_json_text_or_null(json, "folder", report->case_folder);
    fb_json_key_bool(json, "rebuilt", report->rebuilt);
    fb_json_key_int(json, "step", report->step);
    fb_json_key_int(json, "last_step", report->case_last_step);
    fb_json_key_uint(json, "updates", report->case_updates);
    fb_json_text_or_null(json, "action", report->case_action < 0 ? "" : fb_action_name(report->case_action));
    fb_json_key_uint(json, "findings", report->findings_total);
    fb_json_key_uint(json, "findings_not_kept", report->findings_dropped);
    fb_json_key_uint(json, "cases_before", report->cases_before);
    fb_json_key_uint(json, "cases_after", report->cases_after);
    fb_json_object_end(json);
}

static void checkpoint(fb_json *json, const fb_report_checkpoint *entry)
{
    fb_json_object_begin(json);
    fb_json_key_string(json, "path", entry->path);
    fb_json_key_int(json, "step", entry->step);
    fb_json_key_string(json, "state", fb_registry_state_name(entry->state));
    fb_json_key_string(json, "reason", fb_registry_reason_text(entry->state, entry->reason));
    fb_json_key_bool(json, "gone", entry->gone);
    fb_json_key_bool(json, "changed", entry->changed);
    fb_json_key_uint(json, "bad", entry->bad);
    fb_json_text_or_null(json, "tensor", entry->tensor ? entry->tensor : "");
    fb_json_object_end(json);
}

static void spread(fb_json *json, const fb_report *report)
{
    fb_json_key(json, "spread");
    if (!report->has_case) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    answer(json, "collective", report->collective);
    answer(json, "optimizer_state", report->optimizer_state);
    answer(json, "parameters", report->parameters);
    fb_json_key(json, "checkpoints");
    fb_json_array_begin(json);
    for (uint64_t i = 0; i < report->checkpoint_count; i++) {
        const fb_report_checkpoint *entry = &report->checkpoints[i];
        if (entry->step >= report->step && entry->state != FB_CKPT_COMMITTED) checkpoint(json, entry);
    }
    fb_json_array_end(json);
    fb_json_key(json, "evidence");
    fb_json_object_begin(json);
    fb_json_key_string(json, "collective", report->collective_why);
    fb_json_key_string(json, "optimizer_state", report->optimizer_why);
    fb_json_key_string(json, "parameters", report->parameters_why);
    fb_json_object_end(json);
    fb_json_object_end(json);
}

static void no_vote(fb_json *json, const fb_report *report)
{
    uint64_t shown = sizeof report->no_vote_ranks / sizeof *report->no_vote_ranks;
    fb_json_key(json, "no_vote");
    if (!report->has_no_vote) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_int(json, "step", report->no_vote_step);
    fb_json_key_int(json, "vote", report->no_vote_number);
    fb_json_key(json, "ranks");
    fb_json_array_begin(json);
    for (uint64_t i = 0; i < report->no_vote_count && i < shown; i++) fb_json_int(json, report->no_vote_ranks[i]);
    fb_json_array_end(json);
    fb_json_key_uint(json, "count", report->no_vote_count);
    fb_json_key_uint(json, "voted", report->voted_count);
    fb_json_object_end(json);
}

static void replicas(fb_json *json, const fb_report *report)
{
    uint64_t compared = UINT64_MAX;
    int64_t step = INT64_MAX;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (report->ranks[i].replicas_compared < compared) compared = report->ranks[i].replicas_compared;
        if (report->ranks[i].replicas_step < step) step = report->ranks[i].replicas_step;
    }
    fb_json_key(json, "replicas");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "compared_equal", report->rank_count ? compared : 0);
    fb_json_int_or_null(json, "last_equal_step", step, report->rank_count && step >= 0);
    fb_json_text_or_null(json, "drift", report->parted == FB_PARTED_REPLICAS ? report->drift : "");
    fb_json_object_end(json);
}

static void decision(fb_json *json, const fb_report *report)
{
    int known = report->has_case && report->action >= 0;
    fb_json_key(json, "decision");
    fb_json_object_begin(json);
    fb_json_text_or_null(json, "action", known ? fb_action_name(report->action) : "");
    fb_json_text_or_null(json, "agreement", known ? fb_agreement_name(report->agreement) : "");
    fb_json_key(json, "unanimous");
    if (!known || report->unanimous < 0) fb_json_null(json);
    else fb_json_bool(json, report->unanimous);
    fb_json_int_or_null(json, "ranks", report->world, report->world >= 0);
    fb_json_key_uint(json, "agreed", report->agreed);
    fb_json_key_uint(json, "recorded", report->verdicts);
    fb_json_text_or_null(json, "reason", known ? fb_gate_reason_name(report->reason) : "");
    fb_json_key_uint(json, "withheld_on", report->withheld_on);
    fb_json_key_uint(json, "applied_on", report->applied_on);
    fb_json_key(json, "proof");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "ranks_digested", report->proofs);
    fb_json_key_uint(json, "ranks_compared", report->proofs_compared);
    fb_json_key_uint(json, "ranks_equal", report->proofs_equal);
    fb_json_object_end(json);
    replicas(json, report);
    no_vote(json, report);
    fb_json_object_end(json);
}

static void recovery(fb_json *json, const fb_report *report)
{
    fb_json_key(json, "recovery");
    fb_json_object_begin(json);
    fb_json_key(json, "resume_from");
    if (report->resume == UINT64_MAX) fb_json_null(json);
    else fb_json_string(json, report->checkpoints[report->resume].path);
    fb_json_int_or_null(json, "resume_step", report->resume == UINT64_MAX ? 0 : report->checkpoints[report->resume].step,
                        report->resume != UINT64_MAX);
    fb_json_text_or_null(json, "reason", report->resume_why);
    fb_json_int_or_null(json, "last_good_step", report->last_good_step, report->last_good_step >= 0);
    fb_json_key(json, "blocked");
    fb_json_array_begin(json);
    for (uint64_t i = 0; i < report->checkpoint_count; i++) {
        const fb_report_checkpoint *entry = &report->checkpoints[i];
        if (entry->state != FB_CKPT_COMMITTED || entry->changed) checkpoint(json, entry);
    }
    fb_json_array_end(json);
    fb_json_skip_samples(json, report);
    fb_json_text_or_null(json, "skip_samples_reason", report->samples_why);
    fb_json_object_end(json);
}

static void boundaries(fb_json *json, const char *key, uint32_t bits)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (int32_t b = FB_ENTRY; b <= FB_CHECKPOINT; b++) {
        if (bits & (1u << b)) fb_json_string(json, fb_boundary_name(b));
    }
    fb_json_array_end(json);
}

static void witness(fb_json *json, const fb_report *report)
{
    const fb_rec_finding *first;
    fb_json_key(json, "witness");
    if (report->first == UINT64_MAX) {
        fb_json_null(json);
        return;
    }
    first = &report->findings[report->first].rec;
    fb_json_object_begin(json);
    boundaries(json, "clean_before", first->clean_before);
    boundaries(json, "sampled_before", first->sampled_before);
    fb_json_key_uint(json, "tensors_finite_before", first->tensors_before);
    fb_json_key_string(json, "text", report->witness);
    fb_json_object_end(json);
}

static const char *level_name(uint8_t level)
{
    static const char *const names[] = {"none", "summary", "sampled", "full"};
    return level <= FB_COVER_FULL ? names[level] : "?";
}

static void coverage(fb_json *json, const fb_report *report)
{
    uint64_t steps = 0, applied = 0, gated = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (report->ranks[i].steps > steps) steps = report->ranks[i].steps;
        applied += report->ranks[i].applied;
        gated += report->ranks[i].gated;
    }
    fb_json_key(json, "coverage");
    fb_json_object_begin(json);
    fb_json_key_string(json, "of", report->has_case ? "bad_step" : "applied_updates");
    fb_json_key_uint(json, "ranks", report->cover_ranks);
    fb_json_key_uint(json, "steps", steps);
    fb_json_key_uint(json, "updates_applied", applied);
    fb_json_key_uint(json, "updates_gated", gated);
    fb_json_key(json, "boundaries");
    fb_json_object_begin(json);
    for (int32_t b = FB_ENTRY; b <= FB_CHECKPOINT; b++) {
        fb_json_key(json, fb_boundary_name(b));
        if (report->cover_ranks == 0) {
            fb_json_null(json);
            continue;
        }
        fb_json_object_begin(json);
        fb_json_key_string(json, "level", level_name(report->cover.level[b]));
        fb_json_key_uint(json, "tensors", report->cover.tensors[b]);
        fb_json_object_end(json);
    }
    fb_json_object_end(json);
    fb_json_key_uint(json, "exempt", report->cover.exempt);
    fb_json_key_uint(json, "absent", report->cover.absent);
    fb_json_key_uint(json, "unchecked", report->cover.unchecked);
    fb_json_key(json, "not_covered");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < report->not_covered.count; i++) fb_json_string(json, report->not_covered.text[i]);
    fb_json_array_end(json);
    fb_json_key_uint(json, "not_covered_unlisted", report->not_covered.dropped);
    fb_json_object_end(json);
}

static void proof(fb_json *json, const fb_report *report)
{
    uint64_t read = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) read += (uint64_t)(report->ranks[i].state == FB_LEDGER_READ);
    fb_json_key(json, "proof");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "ledgers", report->rank_count);
    fb_json_key_uint(json, "ledgers_read", read);
    fb_json_key_uint(json, "ledgers_missing", report->missing);
    sentences(json, "undecided", &report->undecided);
    sentences(json, "notes", &report->notes);
    fb_json_object_end(json);
}

static void happened(fb_json *json, const fb_report *report)
{
    fb_phrase phrase = {"", 0};
    fb_json_key(json, "happened");
    if (report->status != FB_WHY_CASE) {
        fb_json_null(json);
        return;
    }
    fb_why_happened(report, &phrase);
    fb_json_string(json, phrase.text);
}

void fb_report_why_json(const fb_report *report, fb_json *json)
{
    fb_json_object_begin(json);
    fb_json_key_string(json, "schema", "firstbad.why/1");
    fb_json_key_string(json, "status", fb_why_status_name(report->status));
    happened(json, report);
    run(json, report);
    case_part(json, report);
    first_bad(json, report);
    spread(json, report);
    decision(json, report);
    fb_json_location(json, report);
    fb_json_replay(json, report);
    recovery(json, report);
    fb_json_cause(json, report);
    witness(json, report);
    coverage(json, report);
    proof(json, report);
    fb_json_object_end(json);
}
