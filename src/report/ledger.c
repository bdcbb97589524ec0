/*
 * One rank's ledger: pulse, frozen records, appended records. Reading is in two rounds, a survey that finds the bad steps and a
 * closer look at the one that was chosen, because that one is known only after the survey of all ranks.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "policy/gate.h"
#include "report/inside.h"

/* ---- walking ----------------------------------------------------------------------------------------------------------------- */

static void read_pulse(fb_log_reader *reader, fb_report_rank *rank)
{
    fb_log_record record;
    fb_rec_pulse pulse;
    if (fb_log_reader_pulse(reader, &record, NULL) != FB_OK) return;
    if (fb_rec_pulse_decode(record.payload, record.bytes, &pulse, NULL) != FB_OK) return;
    rank->has_pulse = 1;
    rank->pulse_step = pulse.step;
    rank->pulse_vote = pulse.vote;
    rank->pulse_phase = pulse.phase;
    rank->pulse_action = pulse.action;
}

static void read_frozen(fb_log_reader *reader, fb_ledger_fn fn, void *ctx)
{
    fb_log_record record;
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        if (fb_log_reader_frozen(reader, i, &record, NULL) == FB_OK) fn(ctx, &record, 1);
    }
}

static fb_status read_appended(fb_log_reader *reader, fb_ledger_fn fn, void *ctx, fb_report_rank *rank, fb_error *err)
{
    fb_log_record record;
    fb_log_tail tail;
    fb_status status;
    while ((status = fb_log_reader_next(reader, &record, err)) == FB_OK) fn(ctx, &record, 0);
    if (status != FB_E_NOTFOUND) return status;
    if ((status = fb_log_reader_tail(reader, &tail, err)) != FB_OK) return status;
    rank->tail_kind = tail.kind;
    if (tail.lost > rank->lost) rank->lost = tail.lost;
    rank->state = FB_LEDGER_READ;
    return FB_OK;
}

fb_status fb_ledger_visit(const fb_os *os, const char *path, int what, fb_ledger_fn fn, void *ctx, fb_report_rank *rank,
                          fb_error *err)
{
    fb_log_reader *reader = NULL;
    fb_status status = fb_log_reader_open(&reader, os, path, err);
    if (status != FB_OK) return status;
    if (rank->state < FB_LEDGER_HEAD) rank->state = FB_LEDGER_HEAD;
    if (!rank->has_pulse) read_pulse(reader, rank); /* once, and before the records: a run that goes on is ahead of what was read */
    if (what & FB_VISIT_FROZEN) read_frozen(reader, fn, ctx);
    if (what & FB_VISIT_APPENDED) status = read_appended(reader, fn, ctx, rank, err);
    fb_log_reader_close(reader);
    return status;
}

/* ---- survey ------------------------------------------------------------------------------------------------------------------ */

static void least_cover(fb_cover *least, const fb_cover *cover, int first)
{
    if (first) {
        *least = *cover;
        return;
    }
    for (int i = 1; i < 9; i++) {
        if (cover->level[i] < least->level[i]) least->level[i] = cover->level[i];
        if (cover->tensors[i] < least->tensors[i]) least->tensors[i] = cover->tensors[i];
    }
    if (cover->exempt > least->exempt) least->exempt = cover->exempt;
    if (cover->absent > least->absent) least->absent = cover->absent;
    if (cover->unchecked > least->unchecked) least->unchecked = cover->unchecked;
}

static fb_report_bad_step *known_bad_step(fb_report *report, int64_t step)
{
    for (uint64_t i = report->bad_step_count; i-- > 0;) {
        if (report->bad_steps[i].step == step) return &report->bad_steps[i];
        if (report->bad_steps[i].step < step) break;
    }
    return NULL;
}

static void survey_step(fb_report *report, fb_report_rank *rank, const fb_rec_step *step)
{
    fb_report_bad_step *entry = known_bad_step(report, step->step);
    if (rank->steps && step->step - rank->last_step > rank->step_gap) rank->step_gap = step->step - rank->last_step;
    if (rank->steps++ == 0) rank->first_step = step->step;
    rank->last_step = step->step;
    rank->duration_ns += step->duration_ns;
    rank->guard_ns += step->guard_ns;
    if (step->flags & FB_STEP_APPLIED) {
        least_cover(&rank->cover, &step->cover, rank->applied == 0);
        rank->applied++;
    }
    if (step->flags & FB_STEP_GATED) {
        rank->gated++;
        rank->last_gated_step = step->step;
    }
    if (step->flags & FB_STEP_SKIPPED) rank->skipped++;
    if (step->flags & FB_STEP_PROBING) rank->probing++;
    if (entry && (step->flags & FB_STEP_APPLIED)) entry->applied_on++;
    if (entry && (step->flags & FB_STEP_SKIPPED)) entry->withheld_on++;
}

static void survey_finding(fb_report *report, const fb_rec_finding *finding, int frozen)
{
    fb_report_bad_step *entry = fb_bad_step(report, finding->step);
    if (!entry) return;
    if (frozen) entry->frozen = 1;
    else entry->findings++;
    if (entry->first_rank < 0) entry->first_rank = finding->rank;
}

static void survey_verdict(fb_report *report, fb_report_rank *rank, const fb_rec_verdict *verdict)
{
    fb_report_bad_step *entry = fb_bad_step(report, verdict->step);
    int32_t attempt;
    int64_t step;
    if (verdict->reason == FB_REASON_DISAGREE && verdict->action == FB_HALT) rank->parted_step = verdict->step;
    if (!entry) return;
    if (!verdict->fault && verdict->unanimous == 1) {
        entry->probing = 1;
        return;
    }
    entry->fault = 1;
    if (verdict->action > entry->action) entry->action = verdict->action;
    if (verdict->first_rank >= 0) entry->first_rank = verdict->first_rank;
    if (verdict->unanimous < 0 || verdict->reason == FB_REASON_NO_QUORUM) entry->no_quorum = verdict->vote > 0 ? verdict->vote : 1;
    else if (verdict->unanimous == 0) entry->disagree = 1;
    if (verdict->case_id.data && fb_case_id_parse(verdict->case_id.data, verdict->case_id.bytes, &attempt, &step) &&
        step <= verdict->step) {
        entry->case_step = step;
    }
}

/* Each rank says it, and a ledger may be read twice. */
static void take_hole(fb_report *report, const fb_rec_event *event)
{
    fb_notes *holes = &report->not_covered;
    char text[FB_REPORT_TEXT_MAX];
    if (event->event != FB_EVENT_NOT_COVERED) return;
    fb_text_copy(text, sizeof text, event->text);
    for (uint32_t i = 0; i < holes->count; i++) {
        if (strcmp(holes->text[i], text) == 0) return;
    }
    fb_notes_add(holes, "%s", text);
}

static void survey_event(fb_report *report, fb_report_rank *rank, const fb_rec_event *event)
{
    take_hole(report, event);
    if (event->event == FB_EVENT_LEFT_OUT && event->a > report->left_out) report->left_out = event->a;
    if (event->event == FB_EVENT_EVIDENCE_LOST && event->a > 0 && (uint64_t)event->a > rank->lost) rank->lost = (uint64_t)event->a;
}

static void survey_proof(fb_report *report, fb_report_rank *rank, const fb_rec_proof *proof)
{
    fb_report_bad_step *entry = known_bad_step(report, proof->step);
    if (entry && proof->moment == FB_PROOF_NEXT_BEGIN && proof->equal == 0) entry->broken = 1;
    if (proof->moment != FB_PROOF_REPLICAS || proof->equal != 1) return;
    rank->replicas_compared++;
    if (proof->step > rank->replicas_step) rank->replicas_step = proof->step;
}

static int64_t number_of(const char *text)
{
    int64_t number = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9' && number <= FB_REPORT_RANKS_MAX; c++) number = number * 10 + (*c - '0');
    return c == text || *c ? -1 : number;
}

/* What all ranks must have in common of their settings, as one text that can be compared and shown. */
static void take_policy(fb_report_rank *rank, const char *key, const char *value)
{
    static const char *const keys[] = {"on_bad", "max_skips", "agreement", "dynamic_loss_scale"};
    size_t used = strlen(rank->policy);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(key, keys[i]) != 0) continue;
        (void)snprintf(rank->policy + used, sizeof rank->policy - used, "%s%s %.20s", used ? ", " : "", key, value);
    }
}

/* The RUN record stands in for a run.json that is missing, and says whose ledger this is. */
static void take_pair(void *ctx, fb_text key, fb_text value)
{
    fb_ledger_reading *reading = ctx;
    fb_report_run *run = &reading->report->run;
    char name[64], text[256];
    int64_t number;
    fb_text_copy(name, sizeof name, key);
    fb_text_copy(text, sizeof text, value);
    number = number_of(text);
    take_policy(reading->rank, name, text);
    if (strcmp(name, "world") == 0 && run->world < 0 && number > 0 && number <= FB_REPORT_RANKS_MAX) run->world = (int32_t)number;
    if (strcmp(name, "rank") == 0 && number != reading->rank->rank) reading->rank->foreign = 1;
    if (strcmp(name, "attempt") == 0 && number != reading->report->attempt) reading->rank->foreign = 1;
    if (strcmp(name, "run_id") == 0 && !run->run_id[0]) fb_text_copy(run->run_id, sizeof run->run_id, value);
    if (strcmp(name, "run_id") == 0 && strcmp(text, run->run_id) != 0) reading->rank->foreign = 1;
    if (strcmp(name, "precision") == 0 && !run->precision[0]) fb_text_copy(run->precision, sizeof run->precision, value);
    if (strcmp(name, "on_bad") == 0 && !run->on_bad[0]) fb_text_copy(run->on_bad, sizeof run->on_bad, value);
    if (strcmp(name, "agreement") == 0 && !run->agreement[0]) fb_text_copy(run->agreement, sizeof run->agreement, value);
    if (strcmp(name, "model_commit") == 0 && !run->commit[0]) fb_text_copy(run->commit, sizeof run->commit, value);
}

static void survey(fb_ledger_reading *reading, const fb_log_record *record, int frozen)
{
    fb_report *report = reading->report;
    union {
        fb_rec_step step;
        fb_rec_finding finding;
        fb_rec_verdict verdict;
        fb_rec_event event;
        fb_rec_proof proof;
    } rec;
    switch (record->type) {
    case FB_REC_RUN: (void)fb_rec_run_decode(record->payload, record->bytes, take_pair, reading, NULL); break;
    case FB_REC_STEP:
        if (fb_rec_step_decode(record->payload, record->bytes, &rec.step, NULL) == FB_OK)
            survey_step(report, reading->rank, &rec.step);
        break;
    case FB_REC_FINDING:
    case FB_REC_FIRST_BAD:
        if (fb_rec_finding_decode(record->payload, record->bytes, &rec.finding, NULL) == FB_OK) {
            survey_finding(report, &rec.finding, frozen);
        }
        break;
    case FB_REC_VERDICT:
        if (fb_rec_verdict_decode(record->payload, record->bytes, &rec.verdict, NULL) == FB_OK)
            survey_verdict(report, reading->rank, &rec.verdict);
        break;
    case FB_REC_EVENT:
        if (fb_rec_event_decode(record->payload, record->bytes, &rec.event, NULL) == FB_OK) {
            survey_event(report, reading->rank, &rec.event);
        }
        break;
    case FB_REC_PROOF:
        if (fb_rec_proof_decode(record->payload, record->bytes, &rec.proof, NULL) == FB_OK)
            survey_proof(report, reading->rank, &rec.proof);
        break;
    case FB_REC_CLOSE: reading->rank->closed = 1; break;
    default: break; /* a record that a later version writes */
    }
}

/* ---- the chosen step --------------------------------------------------------------------------------------------------------- */

/* A state that was read whole and was finite was not bad yet: after the update of that step, or on entry to it. What was read of an
   update that was held back says nothing of the state. */
static void note_whole_state(fb_report_rank *rank, const fb_rec_step *step)
{
    if (step->findings || (step->flags & FB_STEP_ENTRY_BAD)) return;
    if (step->cover.level[FB_UPDATE] == FB_COVER_FULL && (step->flags & FB_STEP_APPLIED)) rank->state_since = step->step + 1;
    else if (step->cover.level[FB_ENTRY] == FB_COVER_FULL) rank->state_since = step->step;
}

/* Before it was put in place the update is no part of the state, and in a step without an end nobody knows what became of it. */
static void update_settled(fb_report *report, fb_report_rank *rank, int32_t taken)
{
    *(taken == FB_ANSWER_YES  ? &report->update_parameter
      : taken == FB_ANSWER_NO ? &report->held_parameter
                              : &report->open_parameter) += rank->update_parameter;
    *(taken == FB_ANSWER_YES  ? &report->update_moment
      : taken == FB_ANSWER_NO ? &report->held_moment
                              : &report->open_moment) += rank->update_moment;
    rank->update_step = -1;
    rank->update_parameter = rank->update_moment = 0;
}

static void note_update(fb_report *report, fb_report_rank *rank, const fb_rec_finding *finding)
{
    if (rank->update_step >= 0 && rank->update_step != finding->step) update_settled(report, rank, FB_ANSWER_UNKNOWN);
    rank->update_step = finding->step;
    rank->update_parameter += (uint64_t)(finding->role == FB_ROLE_PARAMETER);
    rank->update_moment += (uint64_t)(finding->role == FB_ROLE_MOMENT);
}

static void detail_step(fb_report *report, fb_report_rank *rank, const fb_rec_step *step)
{
    if (step->step == rank->update_step) update_settled(report, rank, step->flags & FB_STEP_APPLIED ? FB_ANSWER_YES : FB_ANSWER_NO);
    if (step->step < report->step) note_whole_state(rank, step);
    if (step->step < report->step && (step->flags & FB_STEP_GATED)) rank->last_good_step = step->step;
    if (step->step != report->step) return;
    rank->has_step = 1;
    rank->step_flags = step->flags;
    rank->step_action = step->action;
    rank->step_agreement = step->agreement;
    rank->step_unanimous = step->unanimous;
    rank->loss_scale = step->loss_scale_before;
    rank->cover = step->cover;
}

/* Once it is known who was first: what that rank was training on. */
static void spokesman(fb_report *report, const fb_log_record *record)
{
    fb_rec_step step;
    if (record->type != FB_REC_STEP || fb_rec_step_decode(record->payload, record->bytes, &step, NULL) != FB_OK) return;
    if (step.step != report->step) return;
    report->has_spokesman_step = 1;
    report->spokesman_step = step;
}

static void detail_finding(fb_ledger_reading *reading, const fb_rec_finding *finding, int frozen)
{
    fb_report *report = reading->report;
    fb_rec_finding own = *finding;
    if (own.step < report->step) return;
    own.rank = reading->rank->rank; /* the file says whose it is */
    if (!frozen && own.boundary == FB_ENTRY && own.role == FB_ROLE_PARAMETER) report->entry_parameter++;
    if (!frozen && own.boundary == FB_ENTRY && own.role == FB_ROLE_MOMENT) report->entry_moment++;
    if (!frozen && own.boundary == FB_UPDATE) note_update(report, reading->rank, &own);
    if (own.step != report->step) return;
    if (!frozen) reading->rank->findings++;
    if (reading->status == FB_OK) {
        reading->status = fb_report_keep(report, &own, frozen ? FB_SOURCE_FROZEN : FB_SOURCE_LEDGER, &reading->err);
    }
}

static void detail_verdict(fb_report *report, fb_report_rank *rank, const fb_rec_verdict *verdict)
{
    int32_t attempt;
    int64_t step;
    char id[40] = "";
    if (verdict->case_id.data) fb_text_copy(id, sizeof id, verdict->case_id);
    if (verdict->step >= report->step && id[0] && strcmp(id, report->case_id) == 0 &&
        fb_case_id_parse(id, strlen(id), &attempt, &step)) {
        if (verdict->step > report->case_last_step) report->case_last_step = verdict->step;
        if (verdict->action > report->case_action) report->case_action = verdict->action;
    }
    if (verdict->step != report->step) return;
    if (rank->has_verdict && verdict->action <= rank->action) return;
    rank->has_verdict = 1;
    rank->action = verdict->action;
    rank->agreement = verdict->agreement;
    rank->unanimous = verdict->unanimous;
    rank->reason = verdict->reason;
    rank->first_rank = verdict->first_rank;
    rank->verdict_vote = verdict->vote;
    rank->consecutive_skips = verdict->consecutive_skips;
    if (report->world < 0 && verdict->world > 0 && verdict->world <= FB_REPORT_RANKS_MAX) report->world = verdict->world;
}

static void detail_proof(const fb_report *report, fb_report_rank *rank, const fb_rec_proof *proof)
{
    if (proof->step != report->step) return;
    if (proof->moment == FB_PROOF_REPLICAS) { /* no digest of the decision: taken before it, of parameters alone */
        rank->drifted = proof->equal == 0;
        rank->replica_digest = proof->digest;
        return;
    }
    if (proof->moment == FB_PROOF_NEXT_BEGIN && proof->equal >= 0) {
        rank->proof = 2;
        rank->proof_equal = proof->equal;
    } else if (rank->proof == 0) {
        rank->proof = 1;
        rank->proof_digest = proof->digest;
    }
    rank->proof_tensors = proof->tensors;
    rank->proof_bytes = proof->bytes;
}

/* "a1-000412: what was found out", if it is of this case. */
static void take_note(fb_report *report, fb_text text)
{
    size_t n = strlen(report->case_id);
    if (text.bytes < n + 2 || memcmp(text.data, report->case_id, n) != 0 || memcmp(text.data + n, ": ", 2) != 0) return;
    text.data += n + 2;
    text.bytes -= (uint32_t)(n + 2);
    fb_text_copy(report->noted, sizeof report->noted, text);
}

static void detail_event(fb_report *report, fb_report_rank *rank, const fb_rec_event *event)
{
    /* A state that changed although its update was withheld is told with that update, and halts the next one. */
    if (event->event == FB_EVENT_MISUSE && !report->misuse_text[0] && event->step >= report->step - 1 &&
        event->step <= report->step) {
        fb_text_copy(report->misuse_text, sizeof report->misuse_text, event->text);
        report->misuse_rank = rank->rank;
    }
    if (event->event == FB_EVENT_LOCATED) take_note(report, event->text);
    take_hole(report, event);
    if (event->step != report->step) return;
    if (event->event == FB_EVENT_INJECTED && !report->injected_text[0]) {
        fb_text_copy(report->injected_text, sizeof report->injected_text, event->text);
    }
    if (event->event == FB_EVENT_FINDINGS_CUT && event->a > 0) rank->findings_cut = (uint64_t)event->a;
}

static void detail(fb_ledger_reading *reading, const fb_log_record *record, int frozen)
{
    fb_report *report = reading->report;
    union {
        fb_rec_step step;
        fb_rec_finding finding;
        fb_rec_verdict verdict;
        fb_rec_event event;
        fb_rec_proof proof;
    } rec;
    const void *payload = record->payload;
    switch (record->type) {
    case FB_REC_STEP:
        if (fb_rec_step_decode(payload, record->bytes, &rec.step, NULL) == FB_OK) detail_step(report, reading->rank, &rec.step);
        break;
    case FB_REC_FINDING:
    case FB_REC_FIRST_BAD:
        if (fb_rec_finding_decode(payload, record->bytes, &rec.finding, NULL) == FB_OK)
            detail_finding(reading, &rec.finding, frozen);
        break;
    case FB_REC_VERDICT:
        if (fb_rec_verdict_decode(payload, record->bytes, &rec.verdict, NULL) == FB_OK) {
            detail_verdict(report, reading->rank, &rec.verdict);
        }
        break;
    case FB_REC_EVENT:
        if (fb_rec_event_decode(payload, record->bytes, &rec.event, NULL) == FB_OK) detail_event(report, reading->rank, &rec.event);
        break;
    case FB_REC_PROOF:
        if (fb_rec_proof_decode(payload, record->bytes, &rec.proof, NULL) == FB_OK) detail_proof(report, reading->rank, &rec.proof);
        break;
    default: break;
    }
}

void fb_ledger_record(void *ctx, const fb_log_record *record, int frozen)
{
    fb_ledger_reading *reading = ctx;
    if (record->type == FB_REC_FIRST_BAD) frozen = 1; /* one that came when every slot was used is appended */
    if (reading->detail == 2) spokesman(reading->report, record);
    else if (reading->detail) detail(reading, record, frozen);
    else survey(reading, record, frozen);
}
