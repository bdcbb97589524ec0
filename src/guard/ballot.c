/*
 * Vote and verdict: evidence first, then the words; the verdict, then its record.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "guard/run.h"
#include "scan/scan_fpenv.h"

/* ---- evidence before the words ----------------------------------------------------------------------------------------------- */

/* Tensors that were read in this step, in the same micro-step as the finding or before, come causally earlier, and were finite. */
static uint64_t tensors_before(const struct fb_run *run, const fb_rec_finding *first)
{
    int64_t finding = fb_finding_key(first);
    uint64_t count = 0;
    for (size_t mark = 0; mark < (size_t)run->sites.count * FB_BOUNDARIES; mark++) {
        int32_t boundary = (int32_t)(mark % FB_BOUNDARIES), micro;
        uint32_t clamped;
        if (run->read[mark] < run->step.step_serial || run->bad[mark] == run->step.step_serial) continue;
        micro = boundary == FB_ENTRY ? 0 : (int32_t)(run->read[mark] - run->step.step_serial);
        count += fb_vote_key(micro, boundary, run->sites.entries[mark / FB_BOUNDARIES].position, first->rank, &clamped) < finding;
    }
    return count;
}

/* What was checked clean on this rank, in this step, before the finding: the finite inputs of the witness. */
static void fill_witness(struct fb_run *run, fb_rec_finding *first)
{
    const fb_cover *cover = &run->step.rec.cover;
#ifdef FB_BREAK_P5
    first->clean_before = (1u << first->boundary) - 2u; /* the broken build claims what nobody looked at */
#endif
    for (int32_t boundary = FB_ENTRY; boundary < first->boundary; boundary++) {
        if (run->step.bad_boundaries & (1u << boundary)) continue;
        if (cover->tensors[boundary] == 0) continue; /* absent or exempt: nobody read anything */
        if (cover->level[boundary] == FB_COVER_FULL) first->clean_before |= 1u << boundary;
        else if (cover->level[boundary] != FB_COVER_NONE) first->sampled_before |= 1u << boundary;
    }
    first->tensors_before = (uint32_t)tensors_before(run, first);
}

/* What is equal on all ranks is no rank's own, and all must name the same one. */
static int32_t rank_in_vote(const struct fb_run *run)
{
    return fb_run_by_norm(run) ? 0 : run->rank;
}

static void fill_local(const struct fb_run *run, const fb_rec_finding *first, fb_gate_local *local)
{
    memset(local, 0, sizeof *local);
    local->boundaries = fb_run_by_norm(run) ? run->step.deciding_boundaries : run->step.bad_boundaries;
    local->rank = rank_in_vote(run);
    local->position = -1;
    if (!first) return;
    local->micro_step = first->micro_step;
    local->boundary = first->boundary;
    local->position = first->position;
}

/* Records of what was found since the last ballot; synced, so that they survive what comes next. */
static void make_durable(struct fb_run *run, const fb_rec_finding *first, int fault)
{
    fb_findings_record(run);
    if (fault && first && run->case_id[0] == '\0' && !run->step.frozen) run->step.frozen = fb_record_freeze(run, first);
}

/* Full only when every gradient that the run knows was looked at, or is absent or exempt by declaration; and what belongs to a
   micro-step, in each of them. Gradients accumulate, so for them the last micro-step speaks for all. */
void fb_cover_settle(struct fb_run *run)
{
    fb_cover *cover = &run->step.rec.cover;
    const uint64_t seen[] = {run->step.grads_seen, run->step.reduced_seen};
    for (int32_t boundary = FB_INPUT; boundary <= FB_LOSS; boundary++) {
        uint8_t *each = &cover->level[boundary];
        if (*each == FB_COVER_FULL && run->step.covered_micros[boundary] <= run->step.micro) *each = FB_COVER_SAMPLED;
    }
    for (int32_t boundary = FB_LOCAL_GRAD; boundary <= FB_REDUCED_GRAD; boundary++) {
        uint8_t *level = &cover->level[boundary];
        int all = run->gradient_sites && seen[boundary - FB_LOCAL_GRAD] >= run->gradient_sites;
        if (*level == FB_COVER_NONE) continue;
        *level = all ? FB_COVER_FULL : FB_COVER_SAMPLED;
#ifdef FB_BREAK_P6
        *level = FB_COVER_FULL;
#endif
    }
}

static void fill_vote(fb_vote_ballot *vote, const fb_rec_finding *deciding)
{
    vote->has_finding = deciding != NULL;
    if (!deciding) return;
    vote->micro_step = deciding->micro_step;
    vote->boundary = deciding->boundary;
    vote->position = deciding->position;
}

static void fill_agreement(const struct fb_run *run, fb_vote_agreement *agreement)
{
    memset(agreement, 0, sizeof *agreement);
    agreement->run_hash = run->run_hash;
    agreement->attempt = run->attempt;
    agreement->step = run->step.rec.step;
    agreement->vote_number = run->step.votes;
    memcpy(&agreement->scale_bits, &run->step.rec.loss_scale_before, sizeof agreement->scale_bits);
    agreement->policy = fb_gate_digest(&run->gate) ^ run->left_out_hash;
    fb_replicas_vote(run, agreement);
}

static fb_status ballot(struct fb_run *run, int64_t words[4], fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "give out a ballot", err);
    const fb_rec_finding *deciding;
    fb_rec_finding *first;
    fb_gate_local local;
    fb_gate_decision expected;
    fb_vote_ballot vote;
    if (status != FB_OK) return status;
    if (!words) return fb_fail(err, FB_E_USAGE, "give out a ballot: words is NULL");
    if (run->step.ballot_out) {
        return fb_fail(err, FB_E_ORDER, "give out a ballot: the last one of step %lld is not settled",
                       (long long)run->step.rec.step);
    }
    /* One exception: what was called probing came back without the scale, and the same findings are judged again. */
    if (run->step.withheld && (!run->gate.persists_in_step || run->gate.fault_in_step)) {
        return fb_fail(err, FB_E_ORDER, "give out a ballot: step %lld was withheld by an earlier vote; call fb_step_end",
                       (long long)run->step.rec.step);
    }
    fb_run_lock(run); /* checks on other threads are over by the caller's order; the lock makes their writes seen */
    fb_run_unlock(run);
    fb_cover_settle(run);
    /* Was the state bad before this step? Then no layer is blamed. All ranks must look, or none. */
    if (fb_finding_deciding(run)) fb_owned_search(run);
    first = run->findings_count ? &run->findings[fb_finding_first(run) - run->findings] : NULL;
    deciding = fb_finding_deciding(run);
    fill_local(run, deciding, &local);
    memset(&vote, 0, sizeof vote);
    memset(&expected, 0, sizeof expected);
    vote.wish = fb_gate_wish(&run->gate, &local, &expected);
    if (first) {
        if (run->findings_count > run->step.findings_settled) fill_witness(run, first);
        make_durable(run, first, expected.fault);
    }
    fill_vote(&vote, deciding);
    if ((run->skip_broken && !fb_run_by_norm(run)) || run->step.bad_rate) vote.wish = FB_HALT;
    vote.rank = rank_in_vote(run);
    fill_agreement(run, &vote.agreement);
    (void)fb_vote_write(run->step.words, &vote);
    memcpy(words, run->step.words, sizeof run->step.words);
    run->step.ballot_out = 1;
    run->step.findings_voted = run->step.rec.findings;
    fb_record_pulse(run, FB_PULSE_BALLOT, vote.wish);
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_ballot(struct fb_run *run, int64_t words[4], fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, ballot(run, words, err), err);
    fb_fpenv_leave(modes);
    return status;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------------------- */

static void fill_verdict(struct fb_run *run, const fb_vote_outcome *outcome, const fb_gate_decision *decision, fb_verdict *verdict)
{
    uint32_t size = verdict->size;
    memset(verdict, 0, sizeof *verdict);
    verdict->size = size;
    verdict->action = decision->action;
    verdict->agreement = run->agreement;
    verdict->unanimous = outcome->quorum_equal;
    verdict->clean = outcome->clean;
    verdict->fault = decision->fault;
    verdict->first_rank = outcome->rank;
    verdict->first_boundary = outcome->boundary;
    verdict->first_micro_step = outcome->micro_step;
    verdict->first_position = outcome->position;
    verdict->consecutive_skips = decision->consecutive_skips;
    verdict->local_findings = run->step.rec.findings;
    verdict->step = run->step.rec.step;
    memcpy(verdict->case_id, run->case_id, sizeof verdict->case_id);
}

static void verdict_record(const struct fb_run *run, const fb_verdict *verdict, const fb_gate_decision *decision,
                           const int64_t words[4], fb_rec_verdict *rec)
{
    memset(rec, 0, sizeof *rec);
    rec->step = verdict->step;
    rec->vote = run->step.votes;
    rec->action = verdict->action;
    rec->agreement = verdict->agreement;
    rec->unanimous = verdict->unanimous;
    rec->clean = verdict->clean;
    rec->fault = verdict->fault;
    rec->reason = decision->reason;
    rec->first_rank = verdict->first_rank;
    rec->first_boundary = verdict->first_boundary;
    rec->first_micro_step = verdict->first_micro_step;
    rec->first_position = verdict->first_position;
    rec->consecutive_skips = verdict->consecutive_skips;
    rec->world = run->world;
    rec->local_findings = verdict->local_findings;
    if (words) memcpy(rec->words, words, sizeof rec->words);
    rec->case_id.data = run->case_id;
    rec->case_id.bytes = (uint32_t)strlen(run->case_id);
}

static void name_case(struct fb_run *run, int64_t step)
{
    (void)snprintf(run->case_id, sizeof run->case_id, "a%" PRId32 "-%06" PRId64, run->attempt, step);
    run->case_named_before = 0;
    for (uint32_t i = 0; i < run->case_count; i++) {
        if (run->case_steps[i] == step) run->case_named_before = 1;
    }
    if (run->case_named_before) return;
    if (run->case_count == FB_CASES_KNOWN)
        memmove(run->case_steps, run->case_steps + 1, (--run->case_count) * sizeof *run->case_steps);
    run->case_steps[run->case_count++] = step;
}

/* Everything that follows from a verdict that is not clean. */
static void keep_verdict(struct fb_run *run, fb_verdict *verdict, const fb_gate_decision *decision, const int64_t words[4])
{
    int opens = verdict->fault && run->case_id[0] == '\0';
    fb_rec_verdict rec;
    if (opens) name_case(run, verdict->step);
    memcpy(verdict->case_id, run->case_id, sizeof verdict->case_id);
    /* This rank expected probing, and another one's finding made it a fault: its own first-bad record is due all the same. */
    if (opens && run->findings_count && !run->step.frozen) run->step.frozen = fb_record_freeze(run, fb_finding_first(run));
    verdict_record(run, verdict, decision, words, &rec);
    fb_record_verdict(run, &rec, verdict->fault);
    if (!verdict->fault) fb_record_event(run, FB_EVENT_PROBING_SKIP, decision->consecutive_skips, 0, NULL, 0);
    if (verdict->action == FB_HALT) {
        fb_record_event(run, FB_EVENT_HALT, decision->reason, 0, fb_gate_reason_text(decision->reason), 1);
    }
    /* The files of an earlier case of the same name stay as they are; the ledgers have this one too. */
    if (!run->case_named_before && (opens || (verdict->fault && verdict->action == FB_HALT))) fb_case_write(run, &rec, opens);
    if (opens) fb_checkpoint_doubt(run);
    if (run->step.withheld) {
        run->replicas_due = 1;
        fb_proof_take(run);
    }
    fb_risk_raise(&run->risk);
}

/* Some rank found something, or the vote failed: the update is not gated, and where it was applied already what descends from it is
   suspect on every rank. */
static void found_bad(struct fb_run *run)
{
    run->step.vote_not_clean = 1;
    run->step.rec.flags &= ~(uint32_t)FB_STEP_GATED;
    if (run->step.applied) fb_checkpoint_taint(run, run->step.rec.step);
}

/* A spokesman that is not in the run: a word was changed on its way. */
static void refuse_strangers(const struct fb_run *run, fb_vote_outcome *outcome)
{
    if (outcome->rank < run->world) return;
    memset(outcome, 0, sizeof *outcome);
    outcome->quorum_equal = FB_VOTE_DISAGREE;
    outcome->illegal = 1;
    outcome->wish = FB_HALT;
    outcome->micro_step = outcome->rank = -1;
    outcome->position = -1;
}

static fb_status settle(struct fb_run *run, const int64_t words[4], fb_verdict *out, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "settle", err);
    fb_vote_outcome outcome;
    fb_gate_decision decision;
    fb_rec_step *rec;
    fb_verdict verdict = FB_VERDICT_INIT;
    if (status != FB_OK) return status;
    rec = &run->step.rec;
    if (!out) return fb_fail(err, FB_E_USAGE, "settle: verdict is NULL");
    if (out->size != sizeof *out) {
        return fb_fail(err, FB_E_USAGE, "settle: verdict.size is %u, expected %zu; start from FB_VERDICT_INIT", out->size,
                       sizeof *out);
    }
    if (!run->step.ballot_out) {
        return fb_fail(err, FB_E_ORDER, "settle: no ballot of step %lld is out; call fb_step_ballot first", (long long)rec->step);
    }
    fb_vote_read(words, run->step.words, &outcome);
    refuse_strangers(run, &outcome);
    fb_replicas_read(run, words, &outcome);
    fb_gate_decide(&run->gate, &outcome, &decision);
    fb_replicas_settle(run, &outcome);
    run->step.ballot_out = 0;
    run->step.unsettled = 0;
    run->step.votes++;
    rec->votes = run->step.votes;
    if (decision.action > rec->action) rec->action = decision.action;
    rec->unanimous = rec->votes == 1 || outcome.quorum_equal < rec->unanimous ? outcome.quorum_equal : rec->unanimous;
    rec->consecutive_skips = decision.consecutive_skips;
    if (outcome.boundary && !rec->first_bad_stage) rec->first_bad_stage = outcome.boundary;
    if (decision.action != FB_PROCEED && !run->step.applied) run->step.withheld = 1;
    if (!outcome.clean || decision.fault) found_bad(run);
    run->skip_broken = 0;
    if (decision.fault) rec->flags &= ~(uint32_t)FB_STEP_PROBING;
    if (!outcome.clean && !decision.fault) rec->flags |= FB_STEP_PROBING;
    if (outcome.boundary == FB_ENTRY) rec->flags |= FB_STEP_ENTRY_BAD;
    fill_verdict(run, &outcome, &decision, &verdict);
    if (!outcome.clean || decision.fault) keep_verdict(run, &verdict, &decision, words);
    fb_record_pulse(run, FB_PULSE_SETTLED, decision.action);
    *out = verdict;
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_settle(struct fb_run *run, const int64_t words[4], fb_verdict *verdict, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, settle(run, words, verdict, err), err);
    fb_fpenv_leave(modes);
    return status;
}
