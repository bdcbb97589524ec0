/*
 * See drill_score.h. Whatever is not as it should be leaves a note; a note alone fails nothing, levels and claims do.
 */
#include "drill_score.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "evidence/site.h"
#include "locate/causes.h"
#include "policy/gate.h"
#include "run_job.h"
#include "search/minimise.h"

void drill_note(drill_score *score, const char *format, ...)
{
    va_list args;
    int at = score->note_count++;
    if (at >= DRILL_NOTES) return;
    va_start(args, format);
    (void)vsnprintf(score->notes[at], DRILL_NOTE, format, args);
    va_end(args);
}

void drill_score_begin(drill_score *score)
{
    memset(score, 0, sizeof *score);
    for (int i = 0; i < DRILL_LEVELS; i++) score->levels[i] = DRILL_NOT_ASKED;
    score->step = score->rank = -1;
}

int drill_score_passed(const drill_score *score)
{
    for (int i = 0; i < DRILL_LEVELS; i++) {
        if (score->levels[i] != DRILL_NOT_ASKED && score->levels[i] != DRILL_RIGHT) return 0;
    }
    return score->wrong_claims == 0 && score->false_alarms == 0;
}

int drill_score_exact(const drill_score *score)
{
    return score->levels[DRILL_ANSWER] == DRILL_RIGHT && score->levels[DRILL_MODULE] != DRILL_WITHIN &&
           score->levels[DRILL_MODULE] != DRILL_WRONG && score->levels[DRILL_CAUSE] != DRILL_WRONG && score->wrong_claims == 0;
}

const char *drill_level_name(int level)
{
    static const char *const names[DRILL_LEVELS] = {"detected", "stopped", "rank",     "boundary", "module", "answer",
                                                    "cause",    "rule",    "smallest", "again",    "after"};
    return level >= 0 && level < DRILL_LEVELS ? names[level] : "";
}

/* A claim that is not the truth. */
static void claims_wrongly(drill_score *score, int level)
{
    score->levels[level] = DRILL_WRONG;
    score->wrong_claims++;
}

/* ---- texts of the truth ------------------------------------------------------------------------------------------------------ */

/* Whether `text` is one of "a|b"; "*" takes all. */
static int is_one_of(const char *list, const char *text)
{
    size_t bytes = strlen(text);
    if (strcmp(list, "*") == 0) return 1;
    for (const char *at = list;;) {
        const char *end = strchr(at, '|');
        size_t n = end ? (size_t)(end - at) : strlen(at);
        if (n == bytes && memcmp(at, text, n) == 0) return 1;
        if (!end) return 0;
        at = end + 1;
    }
}

/* "h.%d.attn" with the layer in it. */
static void module_of(const drill_truth *truth, char out[64])
{
    const char *module = truth->fault->module, *mark = strstr(module, "%d");
    if (mark) (void)snprintf(out, 64, "%.*s%d%s", (int)(mark - module), module, truth->layer, mark + 2);
    else (void)snprintf(out, 64, "%s", module);
}

static int is_module(const drill_truth *truth, const char *module)
{
    char wanted[64];
    module_of(truth, wanted);
    return is_one_of(wanted, module);
}

/* ---- detection --------------------------------------------------------------------------------------------------------------- */

/* The first verdict of a rank that is a fault. */
static const drill_verdict *first_fault(const drill_rank *rank)
{
    for (uint64_t k = 0; k < rank->verdict_count; k++) {
        if (rank->verdicts[k].fault) return &rank->verdicts[k];
    }
    return NULL;
}

static int is_detected(drill_score *score, const drill_truth *truth, const drill_rank *rank, int32_t number)
{
    const drill_verdict *first = first_fault(rank);
    const drill_fault *fault = truth->fault;
    if (!first) {
        drill_note(score, "rank %d judged no step a fault", number);
        return 0;
    }
    if (first->step != truth->step) {
        drill_note(score, "rank %d judged step %" PRId64 " the first fault, not %" PRId64, number, first->step, truth->step);
        return 0;
    }
    if (fault->answer == DRILL_DISAGREEMENT) {
        if (first->reason == fault->reason) return 1;
        drill_note(score, "rank %d: reason %d, not %d: another than that the ranks have parted", number, first->reason,
                   fault->reason);
        return 0;
    }
    if (fault->seen >> first->first_boundary & 1) return 1;
    drill_note(score, "rank %d: seen first at %s", number, fb_boundary_name(first->first_boundary));
    return 0;
}

static void judge_detection(drill_score *score, const drill_truth *truth, const drill_world *world)
{
    const drill_verdict *first = first_fault(&world->rank[0]);
    int *level = &score->levels[DRILL_DETECTED];
    *level = DRILL_RIGHT;
    for (int32_t i = 0; i < world->ranks; i++) {
        if (!is_detected(score, truth, &world->rank[i], i)) *level = DRILL_WRONG;
    }
    if (!first) return;
    score->step = first->step;
    score->rank = first->first_rank;
    if (truth->rank < 0 || truth->fault->answer == DRILL_DISAGREEMENT) return;
    score->levels[DRILL_RANK] = DRILL_RIGHT;
    if (first->first_rank == truth->rank) return;
    drill_note(score, "the vote names rank %d, not %d", first->first_rank, truth->rank);
    claims_wrongly(score, DRILL_RANK);
}

/* ---- the state --------------------------------------------------------------------------------------------------------------- */

static int was_withheld(drill_score *score, const drill_rank *rank, int32_t number, int64_t step)
{
    const drill_step *record = drill_find_step(rank, step);
    if (record && !(record->flags & FB_STEP_APPLIED) && record->flags & FB_STEP_SKIPPED) return 1;
    drill_note(score, "rank %d %s step %" PRId64, number, record ? "applied the update of" : "has no record of", step);
    return 0;
}

static int is_unchanged(drill_score *score, const drill_truth *truth, const drill_world *world, int32_t rank)
{
    const drill_proof *decision = drill_find_proof(&world->rank[rank], truth->step, FB_PROOF_DECISION);
    const drill_proof *after = drill_find_proof(&world->rank[rank], truth->step, FB_PROOF_NEXT_BEGIN);
    const drill_proof *peer = drill_find_proof(&world->rank[0], truth->step, FB_PROOF_DECISION);
    if (!decision || !after || !decision->tensors || !peer) {
        drill_note(score, "rank %d has no digest of its state before and after the skip", rank);
        return 0;
    }
    if (after->equal != 1 || decision->digest != after->digest) {
        drill_note(score, "the state of rank %d changed", rank);
        return 0;
    }
    if (truth->fault->compared || decision->digest == peer->digest) return 1; /* parted replicas differ already */
    drill_note(score, "the states of ranks 0 and %d differ", rank);
    return 0;
}

/* What is made inside of an update is in the state before anybody can see it; all that can be stopped is the next one. */
static void judge_state(drill_score *score, const drill_truth *truth, const drill_world *world)
{
    int64_t from = truth->fault->spreads || truth->fault->compared ? truth->step : truth->begins;
    int right = 1;
    for (int32_t i = 0; i < world->ranks; i++) {
        for (int64_t step = from; step <= truth->step; step++) right &= was_withheld(score, &world->rank[i], i, step);
        right &= is_unchanged(score, truth, world, i);
    }
    score->levels[DRILL_STOPPED] = right ? DRILL_RIGHT : DRILL_WRONG;
}

/* ---- afterwards -------------------------------------------------------------------------------------------------------------- */

/* State that is bad stays so, and so do ranks that parted; what comes late lasts for several steps. */
static int lasts(const drill_fault *fault)
{
    return fault->late || fault->lasts || fault->spreads || fault->seen == 1 << FB_ENTRY;
}

static void judge_after(drill_score *score, const drill_truth *truth, const drill_world *world, int exit_code)
{
    int halts = truth->fault->answer == DRILL_DISAGREEMENT, right = 1;
    if (exit_code != (halts ? RUN_JOB_HALTED : 0)) {
        drill_note(score, "the training ended with exit code %d", exit_code);
        right = 0;
    }
    for (int32_t i = 0; i < world->ranks && !halts && !lasts(truth->fault); i++) {
        const drill_rank *rank = &world->rank[i];
        uint64_t clean = 0;
        for (uint64_t k = 0; k < rank->step_count; k++) {
            clean += rank->steps[k].step > truth->step && rank->steps[k].flags & FB_STEP_APPLIED && !rank->steps[k].findings;
        }
        for (uint64_t k = 0; k < rank->verdict_count; k++) {
            if (!rank->verdicts[k].fault || rank->verdicts[k].step <= truth->step) continue;
            drill_note(score, "rank %d judged step %" PRId64 " a fault, too", i, rank->verdicts[k].step);
            score->false_alarms++;
        }
        if (clean) continue;
        drill_note(score, "rank %d made no clean update after the fault", i);
        right = 0;
    }
    score->levels[DRILL_AFTER] = right ? DRILL_RIGHT : DRILL_WRONG;
}

/* ---- place ------------------------------------------------------------------------------------------------------------------- */

static int is_origin(const drill_truth *truth, int32_t boundary, const char *module, const char *op)
{
    return boundary == truth->fault->origin && is_module(truth, module) && is_one_of(truth->fault->op, op);
}

static int is_entry(const drill_truth *truth, const fb_locate_link *link)
{
    return link->entry && is_module(truth, link->module) && strcmp(link->tensor, truth->fault->tensor) == 0;
}

/* How many of them are the truth. */
static uint32_t count_true(const drill_truth *truth, const fb_locate_links *links)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < links->count; i++) {
        const fb_locate_link *link = &links->items[i];
        if (truth->fault->answer == DRILL_ENTRY_BAD) count += (uint32_t)is_entry(truth, link);
        else if (truth->fault->op) count += (uint32_t)(!link->entry && is_origin(truth, link->boundary, link->module, link->op));
    }
    return count;
}

static void all_levels(drill_score *score, int level)
{
    score->levels[DRILL_BOUNDARY] = score->levels[DRILL_MODULE] = score->levels[DRILL_ANSWER] = level;
}

/* One operator, with a witness. */
static void judge_operator(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    char why[160];
    if (!fb_locate_chain_whole(file, why, sizeof why)) {
        drill_note(score, "%s is named without a whole chain: %s", file->location.op, why);
        score->wrong_claims++;
        all_levels(score, DRILL_WRONG);
        return;
    }
    if (truth->fault->answer != DRILL_OPERATOR) {
        drill_note(score, "an operator is blamed, and none is to blame");
        score->wrong_claims++;
        all_levels(score, DRILL_WRONG);
        return;
    }
    score->levels[DRILL_BOUNDARY] = file->location.boundary == truth->fault->origin ? DRILL_RIGHT : DRILL_WRONG;
    score->levels[DRILL_MODULE] = is_module(truth, file->location.module) ? DRILL_RIGHT : DRILL_WRONG;
    score->levels[DRILL_ANSWER] = is_one_of(truth->fault->op, file->location.op) ? DRILL_RIGHT : DRILL_WRONG;
    if (is_origin(truth, file->location.boundary, file->location.module, file->location.op)) return;
    drill_note(score, "%s %s (%s) is named, which is not the truth", file->location.module, file->location.op,
               fb_boundary_name(file->location.boundary));
    score->wrong_claims++;
    if (score->levels[DRILL_ANSWER] == DRILL_RIGHT) score->levels[DRILL_ANSWER] = DRILL_WRONG; /* of another module */
}

static void judge_entry(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    fb_locate_link link = {.entry = 1};
    (void)snprintf(link.module, sizeof link.module, "%s", file->location.module);
    (void)snprintf(link.tensor, sizeof link.tensor, "%s", file->location.tensor);
    if (truth->fault->answer == DRILL_ENTRY_BAD && file->location.known && file->location.boundary == truth->fault->origin &&
        is_entry(truth, &link)) {
        all_levels(score, DRILL_RIGHT);
        return;
    }
    all_levels(score, DRILL_WRONG);
    drill_note(score, "%s %s is said to have been bad before, which is not the truth", link.module, link.tensor);
    score->wrong_claims++;
}

/* Several are left. All of them true, because the fault has more than one: exact. One of them: within. None: a wrong claim. */
static void judge_several(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    uint32_t held = count_true(truth, &file->candidates);
    if (file->found == FB_LOCATED_SET && held && held == file->candidates.total) {
        all_levels(score, DRILL_RIGHT);
    } else if (held) {
        all_levels(score, DRILL_WITHIN);
        drill_note(score, "not named: one of %" PRIu32 " places, and the truth is among them", file->candidates.total);
    } else {
        all_levels(score, DRILL_WRONG);
        drill_note(score, "the truth is not among the %" PRIu32 " places that are left", file->candidates.total);
        score->wrong_claims++;
    }
}

static void judge_nobody(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    int32_t wanted = truth->fault->answer == DRILL_NOT_REPRODUCED ? FB_LOCATED_NOT_REPRODUCED
                     : truth->fault->answer == DRILL_NOT_STEADY   ? FB_LOCATED_NOT_STEADY
                                                                  : 0;
    score->levels[DRILL_ANSWER] = file->found == wanted ? DRILL_RIGHT : DRILL_WRONG;
    if (file->found == wanted) return;
    drill_note(score, "found: %s", fb_located_name(file->found));
    /* That a fault which comes each time did not come again is a claim; that nothing could be told is none. */
    if (file->found == FB_LOCATED_NOT_REPRODUCED) score->wrong_claims++;
}

static void judge_place(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    switch (file->found) {
    case FB_LOCATED_OPERATOR: judge_operator(score, truth, file); break;
    case FB_LOCATED_ENTRY: judge_entry(score, truth, file); break;
    case FB_LOCATED_SET:
    case FB_LOCATED_INTERVAL: judge_several(score, truth, file); break;
    default: judge_nobody(score, truth, file); break;
    }
    if (truth->rank < 0 || !file->location.known) return;
    score->rank = file->location.rank;
    if (file->location.rank == truth->rank) return;
    drill_note(score, "the origin is said to lie on rank %d, not %d", file->location.rank, truth->rank);
    claims_wrongly(score, DRILL_RANK);
}

/* ---- cause and batch --------------------------------------------------------------------------------------------------------- */

static void judge_cause(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    const drill_fault *fault = truth->fault;
    const char *rule = fb_rule_name(file->cause.rule);
    score->levels[DRILL_CAUSE] = is_one_of(fault->cause, file->cause.name) ? DRILL_RIGHT : DRILL_WRONG;
    if (score->levels[DRILL_CAUSE] == DRILL_WRONG) {
        drill_note(score, "cause %s%s, not %s", file->cause.name, file->cause.certain ? ", said to be certain" : "", fault->cause);
        if (file->cause.certain) score->wrong_claims++;
    }
    if (!fault->rule) return;
    score->levels[DRILL_RULE] = is_one_of(fault->rule, rule) ? DRILL_RIGHT : DRILL_WRONG;
    if (score->levels[DRILL_RULE] == DRILL_WRONG) drill_note(score, "rule %s, not %s", rule, fault->rule);
}

static void judge_batch(drill_score *score, const drill_truth *truth, const fb_locate_file *file)
{
    uint32_t wanted = (uint32_t)truth->fault->samples;
    int settled = file->minimise.state == FB_MINIMISE_MINIMAL || file->minimise.state == FB_MINIMISE_WHOLE;
    if (!wanted) return;
    score->samples = file->minimise.rows_needed;
    score->levels[DRILL_SMALLEST] = settled && file->minimise.rows_needed == wanted ? DRILL_RIGHT : DRILL_WRONG;
    if (score->levels[DRILL_SMALLEST] == DRILL_WRONG)
        drill_note(score, "smallest batch: %" PRIu32 " samples, not %" PRIu32, file->minimise.rows_needed, wanted);
}

/* ---- words ------------------------------------------------------------------------------------------------------------------- */

static void say_place(drill_score *score, const fb_locate_file *file)
{
    const char *module = file->location.module, *gap = module[0] ? " " : "";
    switch (file->found) {
    case FB_LOCATED_OPERATOR: (void)snprintf(score->place, sizeof score->place, "%s%s%s", module, gap, file->location.op); break;
    case FB_LOCATED_ENTRY:
        (void)snprintf(score->place, sizeof score->place, "entry %s%s%s", module, gap, file->location.tensor);
        break;
    case FB_LOCATED_SET:
    case FB_LOCATED_INTERVAL:
        (void)snprintf(score->place, sizeof score->place, "one of %" PRIu32 " (%s)", file->candidates.total,
                       fb_located_name(file->found));
        break;
    default:
        (void)snprintf(score->place, sizeof score->place, "nobody: %" PRIu32 " of %" PRIu32 " times", file->replay.reproduced,
                       file->replay.tried);
    }
    (void)snprintf(score->cause, sizeof score->cause, "%s%s", file->cause.name, file->cause.certain ? "" : "?");
    score->replays = file->cost.replays;
    score->seconds = file->cost.seconds;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static int all_present(drill_score *score, const drill_world *world)
{
    int32_t missing = 0;
    for (int32_t i = 0; i < world->ranks; i++) missing += !world->rank[i].present;
    if (missing) drill_note(score, "%d of %d ranks left no ledger", missing, world->ranks);
    return !missing && world->ranks > 0;
}

/* What would be asked, if there were anything to judge. */
static void ask_all(drill_score *score, const drill_fault *fault)
{
    score->levels[DRILL_DETECTED] = score->levels[DRILL_STOPPED] = score->levels[DRILL_ANSWER] = DRILL_WRONG;
    score->levels[DRILL_AFTER] = DRILL_WRONG;
    if (fault->answer == DRILL_DISAGREEMENT) return;
    score->levels[DRILL_CAUSE] = DRILL_WRONG;
    if (fault->answer == DRILL_OPERATOR || fault->answer == DRILL_ENTRY_BAD)
        score->levels[DRILL_BOUNDARY] = score->levels[DRILL_MODULE] = DRILL_WRONG;
    if (fault->rule) score->levels[DRILL_RULE] = DRILL_WRONG;
    if (fault->samples) score->levels[DRILL_SMALLEST] = DRILL_WRONG;
}

void drill_score_fault(drill_score *score, const drill_truth *truth, const drill_world *world, const fb_locate_file *file,
                       int exit_code)
{
    ask_all(score, truth->fault);
    if (!all_present(score, world)) return;
    judge_detection(score, truth, world);
    judge_state(score, truth, world);
    judge_after(score, truth, world, exit_code);
    if (truth->fault->answer == DRILL_DISAGREEMENT) {
        /* A place would be a claim about numbers that are all finite. */
        score->levels[DRILL_ANSWER] = file && file->location.known ? DRILL_WRONG : score->levels[DRILL_DETECTED];
        if (file && file->location.known) score->wrong_claims++;
        (void)snprintf(score->place, sizeof score->place, "ranks have parted");
    } else if (!file) {
        drill_note(score, "there is no locate.json of step %" PRId64, truth->step);
    } else {
        say_place(score, file);
        judge_place(score, truth, file);
        judge_cause(score, truth, file);
        judge_batch(score, truth, file);
    }
}

void drill_score_again(drill_score *score, int exit_code)
{
    enum { REPRODUCED = 1 };
    score->levels[DRILL_AGAIN] = exit_code == REPRODUCED ? DRILL_RIGHT : DRILL_WRONG;
    if (exit_code != REPRODUCED) drill_note(score, "replay --batch minimal ended with exit code %d, not 1 (reproduced)", exit_code);
}

/* ---- healthy ----------------------------------------------------------------------------------------------------------------- */

static void alarm(drill_score *score, const char *what, int32_t rank, int64_t step)
{
    score->false_alarms++;
    drill_note(score, "rank %d, step %" PRId64 ": %s", rank, step, what);
}

static uint64_t judge_quiet(drill_score *score, const drill_healthy *healthy, const drill_rank *rank, int32_t number)
{
    uint64_t skips = 0;
    for (uint64_t k = 0; k < rank->verdict_count; k++) {
        if (rank->verdicts[k].fault) alarm(score, "judged a fault", number, rank->verdicts[k].step);
    }
    for (uint64_t k = 0; k < rank->step_count; k++) {
        const drill_step *step = &rank->steps[k];
        int probing = healthy->probing && step->flags & FB_STEP_PROBING && !(step->flags & FB_STEP_APPLIED);
        skips += (uint64_t)probing;
        if (probing) continue;
        if (step->findings) alarm(score, "findings", number, step->step);
        else if (!(step->flags & FB_STEP_APPLIED)) alarm(score, "the update was withheld", number, step->step);
        else if (!(step->flags & FB_STEP_GATED)) alarm(score, "the gate had holes", number, step->step);
    }
    return skips;
}

void drill_score_healthy(drill_score *score, const drill_healthy *healthy, const drill_world *world, int64_t steps, int cases,
                         int exit_code)
{
    int went_on = exit_code == 0;
    if (exit_code) drill_note(score, "the training ended with exit code %d", exit_code);
    score->levels[DRILL_AFTER] = DRILL_WRONG;
    if (!all_present(score, world)) return;
    if (cases) {
        score->false_alarms++;
        drill_note(score, "%d cases were opened", cases);
    }
    for (int32_t i = 0; i < world->ranks; i++) {
        uint64_t skips = judge_quiet(score, healthy, &world->rank[i], i);
        if (world->rank[i].step_count != (uint64_t)steps) {
            drill_note(score, "rank %d recorded %" PRIu64 " steps, not %" PRId64, i, world->rank[i].step_count, steps);
            went_on = 0;
        }
        if (healthy->probing && !skips) {
            drill_note(score, "rank %d: the loss scale skipped nothing, so nothing was put to the test", i);
            went_on = 0;
        }
    }
    score->levels[DRILL_AFTER] = went_on ? DRILL_RIGHT : DRILL_WRONG;
}
