/*
 * The truth of a scenario against the ledgers of all ranks, and against what the report makes of them. Nothing is a mere warning:
 * each difference is a sentence, and one sentence fails the line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "drill.h"
#include "evidence/site.h"
#include "registry/registry.h"

int drill_passed(const drill_result *result)
{
    return result->difference_count == 0;
}

static int64_t last_bad(const drill_result *result)
{
    return result->truth_step + result->scenario->updates - 1;
}

static int32_t wanted_action(const drill_result *result, int64_t step)
{
    return result->scenario->halts && step == last_bad(result) ? FB_HALT : FB_SKIP;
}

/* ---- every rank's ledger is whole -------------------------------------------------------------------------------------------- */

static int check_presence(drill_result *result)
{
    drill_world *world = &result->world;
    int32_t missing = 0;
    for (int32_t i = 0; i < world->ranks; i++) {
        const drill_rank *rank = &world->rank[i];
        if (!rank->present) {
            missing++;
            continue;
        }
        if (rank->world != world->ranks)
            drill_differs(result, "rank %d says that there are %" PRId64 " ranks, not %d", i, rank->world, world->ranks);
        if (result->scenario->how == DRILL_KILLED) continue;
        if (!rank->closed || !rank->clean_tail) drill_differs(result, "the ledger of rank %d has no proper end", i);
    }
    if (missing) drill_differs(result, "%d of %d ranks left no ledger: nothing guarded them", missing, world->ranks);
    if (world->extra) drill_differs(result, "there are ledgers of more than %d ranks", world->ranks);
    return missing == 0 && world->ranks > 0;
}

/* ---- each step on each rank -------------------------------------------------------------------------------------------------- */

static int is_bad(const drill_result *result, int64_t step)
{
    return result->scenario->updates > 0 && step >= result->truth_step && step <= last_bad(result);
}

static void check_bad_step(drill_result *result, int32_t rank, const drill_step *step)
{
    int32_t wanted = wanted_action(result, step->step);
    if (step->action != wanted) {
        drill_differs(result, "step %" PRId64 " on rank %d: %s, not %s", step->step, rank, fb_action_name(step->action),
                      fb_action_name(wanted));
    }
    if ((step->flags & FB_STEP_APPLIED) || !(step->flags & FB_STEP_SKIPPED)) {
        if (step->flags & FB_STEP_APPLIED) result->changed++;
        drill_differs(result, "step %" PRId64 " on rank %d: the bad update was applied", step->step, rank);
    }
    if (step->unanimous != 1) drill_differs(result, "step %" PRId64 " on rank %d: the vote was not unanimous", step->step, rank);
}

/* A clean update, or a probing skip where the scale is dynamic and the run healthy. */
static void check_good_step(drill_result *result, int32_t rank, const drill_step *step)
{
    int probing = result->scenario->probing && (step->flags & FB_STEP_PROBING) && (step->flags & FB_STEP_SKIPPED) &&
                  !(step->flags & FB_STEP_APPLIED) && step->action == FB_SKIP;
    if (probing) return;
    if (step->findings)
        drill_differs(result, "step %" PRId64 " on rank %d: %" PRIu64 " findings where nothing was planted", step->step, rank,
                      step->findings);
    if (step->action != FB_PROCEED || !(step->flags & FB_STEP_APPLIED)) {
        drill_differs(result, "step %" PRId64 " on rank %d: %s without a fault", step->step, rank, fb_action_name(step->action));
    } else if (!(step->flags & FB_STEP_GATED)) {
        drill_differs(result, "step %" PRId64 " on rank %d: applied, and its gate had holes", step->step, rank);
    }
}

static void check_steps(drill_result *result)
{
    const drill_world *world = &result->world;
    int64_t last = result->scenario->halts ? last_bad(result) : result->scenario->steps;
    for (int32_t i = 0; i < world->ranks; i++) {
        const drill_rank *rank = &world->rank[i];
        if (rank->step_count != (uint64_t)last) {
            drill_differs(result, "rank %d recorded %" PRIu64 " steps, not %" PRId64, i, rank->step_count, last);
        }
        for (uint64_t k = 0; k < rank->step_count; k++) {
            const drill_step *step = &rank->steps[k];
            if (step->step != (int64_t)k + 1)
                drill_differs(result, "rank %d: record %" PRIu64 " is of step %" PRId64, i, k + 1, step->step);
            if (is_bad(result, step->step)) check_bad_step(result, i, step);
            else check_good_step(result, i, step);
        }
    }
}

/* ---- the verdicts ------------------------------------------------------------------------------------------------------------ */

static void check_verdict(drill_result *result, int64_t step, int32_t rank)
{
    const drill_verdict *first = drill_find_verdict(&result->world.rank[0], step);
    const drill_verdict *own = drill_find_verdict(&result->world.rank[rank], step);
    if (!own) {
        drill_differs(result, "step %" PRId64 ": rank %d recorded no verdict", step, rank);
        return;
    }
    if (!own->fault) drill_differs(result, "step %" PRId64 ": rank %d did not judge it a fault", step, rank);
    if (!first || memcmp(own->words, first->words, sizeof own->words) != 0 || own->action != first->action ||
        own->vote != first->vote) {
        drill_differs(result, "step %" PRId64 ": ranks 0 and %d read different votes", step, rank);
    }
    if (own->first_boundary != result->scenario->boundary || own->first_micro_step != result->scenario->micro_step) {
        drill_differs(result, "step %" PRId64 " on rank %d: the vote names %s, micro-step %d", step, rank,
                      fb_boundary_name(own->first_boundary), own->first_micro_step);
    }
    if (result->truth_rank >= 0 && own->first_rank != result->truth_rank) {
        drill_differs(result, "step %" PRId64 ": the vote names rank %d, not %d", step, own->first_rank, result->truth_rank);
    }
}

/* A verdict that is a fault belongs to a planted step; the steps in between must have none. */
static void check_verdicts(drill_result *result)
{
    for (int32_t i = 0; i < result->world.ranks; i++) {
        const drill_rank *rank = &result->world.rank[i];
        for (int64_t step = result->truth_step; result->scenario->updates && step <= last_bad(result); step++)
            check_verdict(result, step, i);
        for (uint64_t k = 0; k < rank->verdict_count; k++) {
            if (!rank->verdicts[k].fault || is_bad(result, rank->verdicts[k].step)) continue;
            drill_differs(result, "false alarm: rank %d judged step %" PRId64 " a fault", i, rank->verdicts[k].step);
        }
    }
}

/* ---- the place --------------------------------------------------------------------------------------------------------------- */

void drill_place(const drill_finding *finding, char out[DRILL_TEXT])
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = fb_site_unravel(finding->shape, finding->ndim, finding->index, index);
    size_t used = (size_t)snprintf(out, DRILL_TEXT, "%s", finding->name);
    if (finding->index == FB_NO_INDEX) return;
    if (n == 0) (void)snprintf(out + used, DRILL_TEXT - used, "[%" PRIu64 "]", finding->index);
    for (int32_t i = 0; i < n && used < DRILL_TEXT; i++) {
        used += (size_t)snprintf(out + used, DRILL_TEXT - used, "%s%" PRId64 "%s", i ? "," : "[", index[i], i + 1 == n ? "]" : "");
    }
}

static int kind_fits(const drill_scenario *scenario, int32_t kind)
{
    if (scenario->kind) return kind == scenario->kind;
    return kind == FB_KIND_POS_INF || kind == FB_KIND_NEG_INF; /* an overflow; a NaN would come after it */
}

static void check_place(drill_result *result, const drill_finding *first)
{
    const drill_scenario *scenario = result->scenario;
    char place[DRILL_TEXT];
    drill_place(first, place);
    result->detected = first->step == result->truth_step && first->boundary == scenario->boundary &&
                       first->micro_step == scenario->micro_step && (result->truth_rank < 0 || first->rank == result->truth_rank);
    result->located = strcmp(first->name, scenario->site) == 0 && kind_fits(scenario, first->kind) &&
                      first->field == scenario->field && (scenario->index == DRILL_ANY_INDEX || first->index == scenario->index) &&
                      (scenario->count == 0 || first->count == scenario->count);
    if (!result->detected) {
        drill_differs(result, "first-bad record: step %" PRId64 ", micro-step %d, rank %d, %s", first->step, first->micro_step,
                      first->rank, fb_boundary_name(first->boundary));
    }
    if (!result->located) {
        drill_differs(result, "first-bad record: %.120s, %s, %s x %" PRIu64, place, fb_field_name(first->field),
                      fb_kind_name(first->kind), first->count);
    }
}

/* The frozen record of the rank that the vote names, and silence on ranks where nothing was planted. */
static void check_findings(drill_result *result)
{
    drill_world *world = &result->world;
    const drill_verdict *verdict = drill_find_verdict(&world->rank[0], result->truth_step);
    const drill_finding *first = NULL;
    int32_t spokesman = verdict ? verdict->first_rank : -1;
    result->detected = result->located = 0;
    if (spokesman >= 0 && spokesman < world->ranks) first = drill_find_frozen(&world->rank[spokesman], result->truth_step);
    if (!first) {
        drill_differs(result, "no rank froze a first-bad record of step %" PRId64, result->truth_step);
    } else {
        result->has_first = 1;
        result->first = *first;
        check_place(result, first);
    }
    for (int32_t i = 0; i < world->ranks; i++) {
        const drill_rank *rank = &world->rank[i];
        if (result->truth_rank >= 0 && i != result->truth_rank && rank->finding_count) {
            drill_differs(result, "rank %d has %" PRIu64 " findings, and the fault is on rank %d alone", i, rank->finding_count,
                          result->truth_rank);
        }
        if (result->scenario->rank == DRILL_EVERY_RANK && !drill_find_frozen(rank, result->truth_step)) {
            drill_differs(result, "rank %d froze no record, and the fault is on every rank", i);
        }
    }
}

/* The fault was planted where it should be and nowhere else: without this a drill could pass on nothing. */
static void check_planted(drill_result *result)
{
    const drill_scenario *scenario = result->scenario;
    for (int32_t i = 0; i < result->world.ranks; i++) {
        int here = scenario->plant && (result->truth_rank < 0 || result->truth_rank == i);
        uint64_t planted = drill_count_events(&result->world.rank[i], FB_EVENT_INJECTED);
        uint64_t wanted = here ? (uint64_t)scenario->updates : 0;
        if (planted != wanted) drill_differs(result, "rank %d planted %" PRIu64 " faults, not %" PRIu64, i, planted, wanted);
    }
}

/* ---- the state --------------------------------------------------------------------------------------------------------------- */

static void check_proof(drill_result *result, int64_t step, int32_t rank)
{
    const drill_proof *decision = drill_find_proof(&result->world.rank[rank], step, FB_PROOF_DECISION);
    const drill_proof *after = drill_find_proof(&result->world.rank[rank], step, FB_PROOF_NEXT_BEGIN);
    const drill_proof *peer = drill_find_proof(&result->world.rank[0], step, FB_PROOF_DECISION);
    if (!decision || !after || decision->tensors == 0) {
        result->unproven++;
        drill_differs(result, "step %" PRId64 ": rank %d has no digest of its state before and after the skip", step, rank);
        return;
    }
    if (after->equal != 1 || decision->digest != after->digest) {
        result->changed++;
        drill_differs(result, "step %" PRId64 ": the state of rank %d changed", step, rank);
        return;
    }
    result->proven++;
    if (!result->scenario->state_planted && (!peer || peer->digest != decision->digest)) {
        result->changed++;
        drill_differs(result, "step %" PRId64 ": the states of ranks 0 and %d differ", step, rank);
    }
}

/* Of each withheld update on each rank, the planted ones and the probing ones alike. */
static void check_proofs(drill_result *result)
{
    for (int32_t i = 0; i < result->world.ranks; i++) {
        const drill_rank *rank = &result->world.rank[i];
        for (uint64_t k = 0; k < rank->step_count; k++) {
            if (rank->steps[k].flags & FB_STEP_SKIPPED) check_proof(result, rank->steps[k].step, i);
        }
    }
    result->unchanged = result->changed == 0 && result->unproven == 0;
}

/* ---- what a person would be told --------------------------------------------------------------------------------------------- */

static void check_report_place(drill_result *result, const fb_report *report)
{
    const fb_rec_finding *told = report->first == UINT64_MAX ? NULL : &report->findings[report->first].rec;
    const drill_finding *first = &result->first;
    char name[DRILL_NAME];
    if (!told || !result->has_first) {
        if (!told) drill_differs(result, "the report names no first bad place");
        return;
    }
    (void)snprintf(name, sizeof name, "%.*s%s%.*s", (int)told->module.bytes, told->module.data,
                   told->module.bytes && told->tensor.bytes ? "." : "", (int)told->tensor.bytes, told->tensor.data);
    if (told->rank != first->rank || told->boundary != first->boundary || told->micro_step != first->micro_step ||
        told->kind != first->kind || told->count != first->count || told->first_index != first->index ||
        strcmp(name, first->name) != 0) {
        drill_differs(result, "the report names %.60s on rank %d, and the ledgers %.60s on rank %d", name, told->rank, first->name,
                      first->rank);
    }
}

/* The newest checkpoint before the fault is read back and committed by then: it is the one to go back to. */
static void check_resume(drill_result *result, const fb_report *report)
{
    int64_t wanted = (result->truth_step - 1) / DRILL_SAVE_EVERY * DRILL_SAVE_EVERY;
    if (report->resume == UINT64_MAX) drill_differs(result, "the report knows no checkpoint to resume from");
    else if (report->checkpoints[report->resume].step != wanted) {
        drill_differs(result, "the report resumes from step %" PRId64 ", not %" PRId64, report->checkpoints[report->resume].step,
                      wanted);
    }
}

static void check_report(drill_result *result)
{
    const fb_report *report = result->job.report;
    int32_t ranks = result->world.ranks;
    if (!report) {
        drill_differs(result, "the report cannot read the run: %.180s", result->job.why.message);
        return;
    }
    if (result->scenario->how == DRILL_HEALTHY) {
        if (report->has_case || report->status != FB_WHY_CLEAN)
            drill_differs(result, "the report says %s", fb_why_status_name(report->status));
        return;
    }
    if (report->status != FB_WHY_CASE) drill_differs(result, "the report says %s", fb_why_status_name(report->status));
    if (report->step != result->truth_step) drill_differs(result, "the report speaks of step %" PRId64, report->step);
    check_report_place(result, report);
    if (report->unanimous != 1 || report->agreed != (uint64_t)ranks) {
        drill_differs(result, "the report counts %" PRIu64 " of %d ranks in agreement", report->agreed, ranks);
    }
    if (report->applied_on) drill_differs(result, "the report says that %" PRIu64 " ranks applied the update", report->applied_on);
    if (report->parameters != FB_ANSWER_NO) drill_differs(result, "the report does not say that parameters are free of it");
    if (report->optimizer_state != (result->scenario->state_planted ? FB_ANSWER_YES : FB_ANSWER_NO)) {
        drill_differs(result, "the report is wrong about the optimizer state");
    }
    if (result->scenario->saves) check_resume(result, report);
}

static void check_exit(drill_result *result)
{
    int wanted = result->scenario->halts ? RUN_JOB_HALTED : 0;
    if (result->job.exit_code != wanted)
        drill_differs(result, "the training ended with exit code %d, not %d", result->job.exit_code, wanted);
}

/* ---- a rank that died -------------------------------------------------------------------------------------------------------- */

static void check_killed(drill_result *result)
{
    const fb_report *report = result->job.report;
    int64_t step = result->truth_step;
    result->detected = result->unchanged = 0;
    if (step < 0) return;
    for (int32_t i = 0; i < result->world.ranks; i++) {
        const drill_rank *rank = &result->world.rank[i];
        const drill_step *record = drill_find_step(rank, step);
        const drill_verdict *verdict = drill_find_verdict(rank, step);
        if (record && (record->flags & FB_STEP_APPLIED)) {
            result->changed++;
            drill_differs(result, "rank %d applied step %" PRId64 " without the vote of rank %d", i, step, result->truth_rank);
        }
        if (verdict && verdict->action == FB_PROCEED)
            drill_differs(result, "rank %d has a verdict to proceed with step %" PRId64, i, step);
        if (i != result->truth_rank && (!rank->has_pulse || rank->pulse.step != step)) {
            drill_differs(result, "rank %d left no ballot of step %" PRId64, i, step);
        }
        if (rank->step_count != (uint64_t)(step - 1)) {
            drill_differs(result, "rank %d recorded %" PRIu64 " steps, not %" PRId64, i, rank->step_count, step - 1);
        }
    }
    result->unchanged = result->changed == 0;
    if (!report || !report->has_no_vote || report->no_vote_count != 1 || report->no_vote_ranks[0] != result->truth_rank ||
        report->no_vote_step != step) {
        drill_differs(result, "the report does not say: no vote of rank %d in step %" PRId64, result->truth_rank, step);
    } else {
        result->detected = 1;
    }
    if (result->job.exit_code == 0) drill_differs(result, "the training ended with exit code 0 although a rank was killed");
}

/* ---- words ------------------------------------------------------------------------------------------------------------------- */

static void count_actions(drill_result *result)
{
    int64_t step = last_bad(result);
    const drill_step *first = drill_find_step(&result->world.rank[0], step);
    result->action = first ? first->action : -1;
    for (int32_t i = 0; i < result->world.ranks; i++) {
        const drill_step *own = drill_find_step(&result->world.rank[i], step);
        if (own && own->action == result->action) result->agreed++;
    }
    result->unanimous = result->agreed == result->world.ranks && result->action == wanted_action(result, step);
}

static void count_probing(drill_result *result)
{
    const drill_rank *first = &result->world.rank[0];
    for (uint64_t k = 0; k < first->step_count; k++) result->probing += (first->steps[k].flags & FB_STEP_PROBING) != 0;
    for (int32_t i = 1; i < result->world.ranks; i++) {
        const drill_rank *rank = &result->world.rank[i];
        for (uint64_t k = 0; k < first->step_count && k < rank->step_count; k++) {
            if (first->steps[k].action == rank->steps[k].action) continue;
            drill_differs(result, "step %" PRId64 ": ranks 0 and %d acted differently", first->steps[k].step, i);
        }
    }
    if (result->scenario->probing && result->probing == 0)
        drill_differs(result, "the loss scale never probed, so nothing was put to the test");
    if (!result->scenario->probing && result->probing)
        drill_differs(result, "%" PRIu64 " probing skips without a loss scale", result->probing);
}

static void say_expected(drill_result *result)
{
    const drill_scenario *scenario = result->scenario;
    char rank[24] = "the rank that overflows", index[32] = "";
    if (scenario->how == DRILL_HEALTHY) {
        (void)snprintf(result->expected, DRILL_TEXT, "nothing fires in %" PRId64 " steps%s", scenario->steps,
                       scenario->probing ? ", probing skips apart" : "");
        return;
    }
    if (scenario->how == DRILL_SAVED) {
        (void)snprintf(result->expected, DRILL_TEXT,
                       "a scan of step %" PRId64 " says %s%s%s; it is %s, and step %" PRId64 " is resumed from", scenario->spoilt,
                       fb_ckpt_outcome_name(scenario->outcome), scenario->outcome == FB_CKPT_NON_FINITE ? ", " : "",
                       scenario->outcome == FB_CKPT_NON_FINITE ? scenario->site : "", fb_registry_state_name(scenario->state),
                       scenario->resume);
        return;
    }
    if (scenario->how == DRILL_KILLED) {
        (void)snprintf(result->expected, DRILL_TEXT, "step %" PRId64 ", no vote of rank %d, nobody updates", result->truth_step,
                       result->truth_rank);
        return;
    }
    if (result->truth_rank >= 0) (void)snprintf(rank, sizeof rank, "rank %d", result->truth_rank);
    if (scenario->rank == DRILL_EVERY_RANK) (void)snprintf(rank, sizeof rank, "every rank");
    if (scenario->index != DRILL_ANY_INDEX) (void)snprintf(index, sizeof index, " at %" PRIu64, scenario->index);
    (void)snprintf(
        result->expected, DRILL_TEXT, "step %" PRId64 ", %s, micro-step %d, %s, %s%s, %s; %s on every rank, state unchanged",
        result->truth_step, rank, scenario->micro_step, fb_boundary_name(scenario->boundary), scenario->site, index,
        scenario->kind ? fb_kind_name(scenario->kind) : "+inf or -inf", fb_action_name(wanted_action(result, last_bad(result))));
}

static void say_got(drill_result *result)
{
    char place[DRILL_TEXT];
    if (result->scenario->how == DRILL_HEALTHY) {
        if (drill_passed(result))
            (void)snprintf(result->got, DRILL_TEXT, "nothing fired, %" PRIu64 " probing skips", result->probing);
        else (void)snprintf(result->got, DRILL_TEXT, "%s", result->differences[0]);
    } else if (result->scenario->how == DRILL_SAVED) {
        (void)snprintf(result->got, DRILL_TEXT, "the scan says %.150s; it is %s, and step %" PRId64 " is resumed from",
                       result->saved_place[0] ? result->saved_place : "nothing", fb_registry_state_name(result->saved_state),
                       result->resume_step);
    } else if (result->scenario->how == DRILL_KILLED) {
        if (result->detected == 1)
            (void)snprintf(result->got, DRILL_TEXT, "step %" PRId64 ", no vote of rank %d", result->truth_step, result->truth_rank);
        else (void)snprintf(result->got, DRILL_TEXT, "%s", result->difference_count ? result->differences[0] : "nothing");
    } else if (result->has_first) {
        const drill_finding *first = &result->first;
        drill_place(first, place);
        (void)snprintf(result->got, DRILL_TEXT,
                       "step %" PRId64 ", rank %d, micro-step %d, %s, %.100s at %" PRIu64 ", %s x %" PRIu64
                       "; %s on %d of %d, state %s",
                       first->step, first->rank, first->micro_step, fb_boundary_name(first->boundary), first->name, first->index,
                       fb_kind_name(first->kind), first->count, fb_action_name(result->action), result->agreed, result->world.ranks,
                       result->changed    ? "changed"
                       : result->unproven ? "unproven"
                                          : "unchanged");
    } else {
        (void)snprintf(result->got, DRILL_TEXT, "nothing was found");
    }
}

void drill_judge(drill_result *result, const drill_settings *settings)
{
    int32_t how = result->scenario->how;
    (void)settings;
    result->detected = result->located = result->unanimous = result->unchanged = -1;
    if (check_presence(result)) {
        if (how == DRILL_KILLED) {
            check_killed(result);
        } else if (how == DRILL_SAVED) {
            check_planted(result);
            if (!result->scenario->plant) check_steps(result);
            if (!result->scenario->plant) check_verdicts(result);
            check_exit(result);
        } else if (result->truth_step >= 0) {
            check_planted(result);
            check_steps(result);
            check_verdicts(result);
            if (how != DRILL_HEALTHY) check_findings(result);
            check_proofs(result);
            count_probing(result);
            if (how != DRILL_HEALTHY) count_actions(result);
            check_report(result);
            check_exit(result);
            if (result->scenario->real) drill_check_located(result);
        }
    }
    say_expected(result);
    say_got(result);
}
