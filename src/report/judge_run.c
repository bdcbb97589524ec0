/*
 * Judgement over the whole attempt: a vote that nobody could read, what is safe to resume from, and whether "clean" may be said.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "policy/gate.h"
#include "registry/registry.h"
#include "report/inside.h"

/* ---- no vote ----------------------------------------------------------------------------------------------------------------- */

/* 1 when this rank has given its ballot number `vote` (1: the first) of `step`. */
static int has_voted(const fb_report_rank *rank, int64_t step, int32_t vote)
{
    int32_t given = rank->pulse_vote + (rank->pulse_phase == FB_PULSE_BALLOT);
    if (!rank->has_pulse) return 0;
    return rank->pulse_step > step || (rank->pulse_step == step && given >= vote);
}

static int has_settled(const fb_report_rank *rank, int64_t step, int32_t vote)
{
    if (!rank->has_pulse) return 0;
    return rank->pulse_step > step || (rank->pulse_step == step && rank->pulse_vote >= vote);
}

/* The latest vote that a rank gave and could not read, from the pulses; or one whose verdict says that there was no quorum. */
static void latest_open_vote(fb_report *report)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (!rank->has_pulse || rank->pulse_phase != FB_PULSE_BALLOT || rank->pulse_vote == INT32_MAX) continue;
        if (report->has_no_vote && (rank->pulse_step < report->no_vote_step ||
                                    (rank->pulse_step == report->no_vote_step && rank->pulse_vote + 1 <= report->no_vote_number))) {
            continue;
        }
        report->has_no_vote = 1;
        report->no_vote_step = rank->pulse_step;
        report->no_vote_number = rank->pulse_vote + 1;
    }
    for (uint64_t i = 0; i < report->bad_step_count; i++) {
        const fb_report_bad_step *entry = &report->bad_steps[i];
        if (!entry->no_quorum || (report->has_no_vote && entry->step <= report->no_vote_step)) continue;
        report->has_no_vote = 1;
        report->no_vote_step = entry->step;
        report->no_vote_number = entry->no_quorum;
    }
}

static int no_quorum_at(const fb_report *report, int64_t step)
{
    for (uint64_t i = 0; i < report->bad_step_count; i++) {
        if (report->bad_steps[i].step == step && report->bad_steps[i].no_quorum) return 1;
    }
    return 0;
}

static void note_absent(fb_report *report, int32_t rank)
{
    if (report->no_vote_count < sizeof report->no_vote_ranks / sizeof *report->no_vote_ranks) {
        report->no_vote_ranks[report->no_vote_count] = rank;
    }
    report->no_vote_count++;
}

/*
 * Which of them died? The others may have hung in a collective of the trainer's until the launcher ended them, and left no vote
 * either. A rank that came to the vote, or would have, looks for who does not answer, and says so as what it does not guard.
 */
static void seen_lost(fb_report *report)
{
    char begin[64];
    size_t bytes = (size_t)snprintf(begin, sizeof begin, "nothing is guarded from step %lld on: ", (long long)report->no_vote_step);
    for (uint32_t i = 0; i < report->not_covered.count && !report->lost[0]; i++) {
        const char *text = report->not_covered.text[i];
        if (strncmp(text, begin, bytes) == 0 && strncmp(text + bytes, "rank ", 5) == 0)
            (void)snprintf(report->lost, sizeof report->lost, "%s", text + bytes);
    }
}

void fb_judge_no_vote(fb_report *report)
{
    uint64_t i = 0;
    int settled_somewhere = 0;
    latest_open_vote(report);
    if (!report->has_no_vote) return;
    seen_lost(report);
    for (int32_t rank = 0; rank < report->world || i < report->rank_count; rank++) {
        const fb_report_rank *entry = i < report->rank_count && report->ranks[i].rank == rank ? &report->ranks[i++] : NULL;
        if (entry && has_voted(entry, report->no_vote_step, report->no_vote_number)) report->voted_count++;
        else note_absent(report, rank);
        if (entry && has_settled(entry, report->no_vote_step, report->no_vote_number)) settled_somewhere = 1;
    }
    /* One rank read the result, so the vote took place; who did not read it died or is about to. */
    if (report->no_vote_count == 0 && settled_somewhere && !no_quorum_at(report, report->no_vote_step)) {
        report->has_no_vote = 0;
        fb_notes_add(&report->notes, "vote %d of step %lld took place; %s", report->no_vote_number, (long long)report->no_vote_step,
                     "at least one rank ended, or is still running, between giving its vote and reading the result");
    }
}

/* ---- recovery ---------------------------------------------------------------------------------------------------------------- */

static void last_good_step(fb_report *report)
{
    int withheld = report->has_case && report->applied_on == 0 && report->withheld_on > 0 && report->parameters != FB_ANSWER_YES &&
                   report->optimizer_state != FB_ANSWER_YES && report->proofs_compared == report->proofs_equal;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        int64_t step = report->has_case && !withheld ? rank->last_good_step : rank->last_gated_step;
        if (step > report->last_good_step) report->last_good_step = step;
    }
}

/* The row of what the registry gave: its own, or that of which it is the pin. */
static uint64_t row_of(const fb_report *report, const fb_registry_checkpoint *found)
{
    uint64_t best = UINT64_MAX;
    for (uint64_t i = 0; i < report->checkpoint_count; i++) {
        const fb_report_checkpoint *entry = &report->checkpoints[i];
        if (entry->state != FB_CKPT_COMMITTED || entry->step != found->step || entry->attempt != found->attempt) continue;
        best = i;
        if (strcmp(entry->path, found->path) == 0) break;
    }
    return best;
}

/* The same question as that of `firstbad ckpt latest`, asked in the same way, of what came before the fault. */
static void choose_resume(const fb_os *os, fb_report *report)
{
    int64_t step_max = report->last_good_step >= 0 ? report->last_good_step : report->has_case ? report->step - 1 : INT64_MAX;
    uint64_t committed = 0, at = UINT64_MAX;
    fb_registry_checkpoint found;
    fb_error why;
    fb_status status = fb_registry_latest_until(os, report->folder, FB_REGISTRY_LOOK, step_max, &found, &why);
    if (status == FB_OK) at = row_of(report, &found);
    if (at != UINT64_MAX) {
        char *path = fb_strdup(found.path);
        if (path) {
            fb_free(report->checkpoints[at].path);
            report->checkpoints[at].path = path;
            report->resume = at;
            return;
        }
    }
    for (uint64_t i = 0; i < report->checkpoint_count; i++) committed += report->checkpoints[i].state == FB_CKPT_COMMITTED;
    if (status != FB_OK && status != FB_E_NOTFOUND) fb_sentence(report->resume_why, "%.300s", why.message);
    else if (report->checkpoint_count == 0) fb_sentence(report->resume_why, "no checkpoint was registered with this run");
    else if (committed == 0)
        fb_sentence(report->resume_why, "none of %llu checkpoints is committed", (unsigned long long)report->checkpoint_count);
    else fb_sentence(report->resume_why, "every committed checkpoint is gone, changed since, or from after the last good step");
}

/* Where the cause lies, as a replay told it; NULL: it did not, or not where. */
static const char *lies_in(const fb_report *report)
{
    const fb_located *located = report->located;
    if (!located || !located->cause_told || strcmp(located->place->file.cause.lies_in, "unknown") == 0) return NULL;
    return located->place->file.cause.lies_in;
}

/* Samples are named as far as a replay told; then they need no record. */
static int samples_were_told(const fb_report *report)
{
    const fb_told *batch = report->located->batch;
    return (batch && batch->file.minimise.sample_count > 0) || report->located->place->file.cause.sample_id >= 0;
}

void fb_judge_recovery(const fb_os *os, fb_report *report)
{
    const fb_rec_finding *first = report->first == UINT64_MAX ? NULL : &report->findings[report->first].rec;
    const char *where = lies_in(report);
    last_good_step(report);
    choose_resume(os, report);
    if (!first) return;
    if (where && strcmp(where, "data") == 0 && samples_were_told(report)) return;
    if (where && strcmp(where, "data") != 0) {
        fb_sentence(report->samples_why, "the cause lies in the %s, not in the batch",
                    strcmp(where, "numbers") == 0 ? "number format or a scale" : where);
    } else if (first->boundary == FB_ENTRY) {
        fb_sentence(report->samples_why, "the state was bad, not the batch");
    } else if (first->boundary == FB_UPDATE) {
        fb_sentence(report->samples_why, "%s",
                    fb_judge_taken(report, first) == FB_ANSWER_YES
                        ? "the state was bad, not the batch"
                        : "it came to be in the update, after the batches of all ranks were joined");
    } else if (first->boundary == FB_REDUCED_GRAD) {
        fb_sentence(report->samples_why, "it came to be after the batches of all ranks were joined");
    } else if (!report->has_spokesman_step) {
        fb_sentence(report->samples_why, "rank %d did not end that step, so its samples were not recorded", first->rank);
    } else if (report->spokesman_step.samples == 0) {
        fb_sentence(report->samples_why, "the trainer gave no sample ids");
    }
}

/* ---- clean? ------------------------------------------------------------------------------------------------------------------ */

static void undecided_no_vote(fb_report *report)
{
    char list[160] = "";
    size_t used = 0;
    uint64_t shown = report->no_vote_count < 8 ? report->no_vote_count : 8;
    const char *running = report->run.has_exit || report->ended ? "" : " (no exit was recorded: the job may still be running)";
    if (!report->has_no_vote) return;
    for (uint64_t i = 0; i < shown; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", i ? ", " : "", report->no_vote_ranks[i]);
    }
    if (report->no_vote_count == 0) {
        fb_notes_add(&report->undecided, "step %lld: all %llu ranks gave their vote and none read the result%s",
                     (long long)report->no_vote_step, (unsigned long long)report->voted_count, running);
    } else {
        fb_notes_add(&report->undecided, "no vote of rank %s%s at step %lld; %llu other%s voted%s%s%s", list,
                     report->no_vote_count > shown ? ", ..." : "", (long long)report->no_vote_step,
                     (unsigned long long)report->voted_count, report->voted_count == 1 ? "" : "s",
                     report->lost[0] ? ", and saw that " : "", report->lost, running);
    }
}

/*
 * A rank writes the record of a step before it votes in the next, and its pulse was read before its records, so a pulse that is
 * more than a step ahead tells of records that are gone, in a run that goes on as well. Steps may be numbered by more than one.
 */
static void undecided_ends(fb_report *report)
{
    int64_t gap = 1;
    uint64_t cut = 0, shown = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (report->ranks[i].step_gap > gap) gap = report->ranks[i].step_gap;
    }
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (rank->state != FB_LEDGER_READ || !rank->has_pulse || !rank->steps || rank->pulse_step - gap <= rank->last_step)
            continue;
        if (cut++ == 0) shown = i;
    }
    if (!cut) return;
    fb_notes_add(&report->undecided,
                 "the ledger of rank %d%s ends at step %lld, and the rank had come to step %lld: records are gone",
                 report->ranks[shown].rank, cut > 1 ? ", and of others," : "", (long long)report->ranks[shown].last_step,
                 (long long)report->ranks[shown].pulse_step);
}

static void undecided_ledgers(fb_report *report)
{
    uint64_t unreadable = 0, garbage = 0, lost = 0, silent = 0, foreign = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        unreadable += (uint64_t)(rank->state == FB_LEDGER_UNREADABLE);
        garbage += (uint64_t)(rank->state == FB_LEDGER_READ && rank->tail_kind == FB_LOG_TAIL_GARBAGE);
        silent += (uint64_t)(rank->state == FB_LEDGER_READ && rank->steps == 0);
        lost += rank->lost;
        foreign += (uint64_t)rank->foreign;
    }
    if (foreign) {
        fb_notes_add(&report->undecided, "%llu ledger%s of another rank, attempt or run than the name says",
                     (unsigned long long)foreign, foreign == 1 ? " is" : "s are");
    }
    if (report->rank_count == 0 && !report->unlisted) {
        fb_notes_add(&report->undecided, "attempt %d has no ledger: %s", report->attempt,
                     report->has_case ? "a case was recorded, so they were lost or taken away"
                                      : "nothing was guarded, or nothing could be written");
    }
    if (report->rank_count && report->world < 0) fb_notes_add(&report->undecided, "how many ranks there were is not recorded");
    if (report->rank_count && report->missing) {
        fb_notes_add(&report->undecided, "the ledgers of %llu of %d ranks are missing, the first of them rank %d",
                     (unsigned long long)report->missing, report->world, report->lowest_missing);
    }
    if (unreadable)
        fb_notes_add(&report->undecided, "%llu ledger%s cannot be read", (unsigned long long)unreadable,
                     unreadable == 1 ? "" : "s");
    if (garbage) {
        fb_notes_add(&report->undecided, "%llu ledger%s in bytes that are no record, so later steps may be missing",
                     (unsigned long long)garbage, garbage == 1 ? " ends" : "s end");
    }
    if (report->unread && !report->has_case) {
        fb_notes_add(&report->undecided,
                     "of %llu ledgers only the head was read, since all hold more than %d GiB: no first bad number is frozen in "
                     "them, and what else they say is not known",
                     (unsigned long long)report->unread, FB_REPORT_READ_GIB_MAX);
    }
    if (lost) fb_notes_add(&report->undecided, "%llu records could not be written", (unsigned long long)lost);
    if (silent) {
        fb_notes_add(&report->undecided, "no step was recorded on %llu of %llu ranks: nothing was checked there",
                     (unsigned long long)silent, (unsigned long long)report->rank_count);
    }
}

/* An update that was applied without a full and clean vote is a hole in what "clean" would claim. */
static void undecided_coverage(fb_report *report)
{
    uint64_t applied = 0, gated = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        applied += report->ranks[i].applied;
        gated += report->ranks[i].gated;
    }
    if (applied > gated) {
        fb_notes_add(&report->undecided,
                     "%llu of %llu updates were applied without a vote that covered all gradients (counted by rank)",
                     (unsigned long long)(applied - gated), (unsigned long long)applied);
    }
}

void fb_judge_status(fb_report *report)
{
    undecided_no_vote(report);
    undecided_ledgers(report);
    undecided_ends(report);
    undecided_coverage(report);
    if (report->has_case && (report->first != UINT64_MAX || !no_quorum_at(report, report->step))) {
        report->status = FB_WHY_CASE;
        return;
    }
    report->status = report->undecided.count ? FB_WHY_UNDECIDED : FB_WHY_CLEAN;
}
