/*
 * Where no operator is blamed: bad before the step, bad in the batch, not there again, not there each time, not told apart.
 */
#include "locate/cause_inside.h"

static void is(fb_cause *cause, int32_t rule, int32_t class_number, int certain)
{
    cause->rule = rule;
    cause->class_number = class_number;
    cause->certain = certain;
}

static const char *entry_name(char *out, size_t room, const fb_witness_place *place)
{
    out[0] = '\0';
    fb_say(out, room, "\"%s%s%s\"", place->module, place->module[0] ? "." : "", place->tensor);
    return out;
}

/* ---- batch ------------------------------------------------------------------------------------------------------------------- */

void fb_judge_batch(const fb_cause_facts *facts, fb_cause *cause)
{
    const char *tensor = facts->finding_tensor ? facts->finding_tensor : "";
    int mask = fb_text_has(tensor, "mask");
    switch (facts->finding_kind) {
    case FB_KIND_ALL_IGNORED:
        is(cause, FB_RULE_BATCH, mask ? FB_CAUSE_MASK_FULL_ROW : FB_CAUSE_LABEL_ALL_IGNORED, 1);
        FB_EXPLAIN(cause, "%s",
                   mask ? "A row of the batch's mask has no key that may be seen; its softmax is 0/0."
                        : "No label of the batch on this rank counts: the mean loss is 0/0.");
        break;
    case FB_KIND_OUT_OF_RANGE:
        if (fb_text_has(tensor, "position")) is(cause, FB_RULE_BATCH, FB_CAUSE_POSITION_OUT_OF_RANGE, 1);
        else if (mask || fb_text_has(tensor, "length")) is(cause, FB_RULE_BATCH, FB_CAUSE_UNKNOWN, 0);
        else is(cause, FB_RULE_BATCH, FB_CAUSE_TOKEN_OUT_OF_RANGE, 1);
        FB_EXPLAIN(cause,
                   "The batch holds a number in \"%s\" that lies outside of the range it was declared with; first_bad.json has the "
                   "number.",
                   tensor);
        break;
    default:
        is(cause, FB_RULE_BATCH, FB_CAUSE_ZERO_DENOMINATOR, fb_text_has(tensor, "weight"));
        FB_EXPLAIN(cause,
                   "The batch holds a number in \"%s\" that is outside of its domain: a weight below 0, or a denominator of 0.",
                   tensor);
        break;
    }
    FB_EXPLAIN(cause, " It is in the batch before any operator runs, so no operator is blamed.");
}

/* ---- state ------------------------------------------------------------------------------------------------------------------- */

static int is_moment(const fb_witness_place *place)
{
    static const char *const words[] = {"moment", "exp_avg", "momentum", "adam", "optim"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (fb_text_has(place->tensor, words[i]) || fb_text_has(place->module, words[i])) return 1;
    }
    return 0;
}

static void state(const fb_cause_facts *facts, const fb_witness_place *place, fb_cause *cause)
{
    const char *name = place->tensor;
    if (place->flags & FB_TAPE_BATCH) {
        int seen = !(place->flags & FB_TAPE_UNSEEN);
        is(cause, FB_RULE_BATCH, FB_CAUSE_INPUT_NONFINITE, seen);
        FB_EXPLAIN(
            cause, "%s",
            seen ? " It belongs to the batch: the data pipeline made it."
                 : " What made it ran before the first forward of the step and was not watched: the data pipeline, or code of "
                   "the program that computes this input.");
    } else if ((place->flags & FB_TAPE_SCALAR) && (fb_text_has(name, "scale") || fb_text_has(name, "loss_seed"))) {
        is(cause, FB_RULE_STATE, FB_CAUSE_SCALE_RUNAWAY, 1);
        FB_EXPLAIN(cause, " The loss scale itself left its format.");
    } else if ((place->flags & FB_TAPE_SCALAR) && (fb_text_has(name, "learning_rate") || fb_text_has(name, "lr"))) {
        is(cause, FB_RULE_STATE, FB_CAUSE_LR_INSTABILITY, 1);
        FB_EXPLAIN(cause, " The schedule gave a learning rate that is not a number.");
    } else if (!(place->flags & FB_TAPE_STATE)) {
        is(cause, FB_RULE_STATE, FB_CAUSE_DOMAIN_MATH, 0);
        FB_EXPLAIN(cause,
                   " It is neither of the batch nor of the state, as far as is known: a number that the program wrote down, or "
                   "that came from code that was not watched.");
    } else if (facts->first_step_of_attempt == 2) {
        is(cause, FB_RULE_STATE, FB_CAUSE_CHECKPOINT_CORRUPT, 1);
        FB_EXPLAIN(cause, " This attempt was resumed and has made no update yet: it came out of the checkpoint, or was lost while "
                          "it was loaded.");
    } else if (is_moment(place)) {
        is(cause, FB_RULE_STATE, FB_CAUSE_OPTIMIZER_STATE, 1);
        FB_EXPLAIN(cause, " It is state of the optimizer; an earlier update, or somebody else who wrote into it, left it so.");
    } else if (facts->first_step_of_attempt == 1) {
        is(cause, FB_RULE_STATE, FB_CAUSE_UNINITIALISED_MEMORY, 0);
        FB_EXPLAIN(cause, " No update was made yet, so it has been so since it was made: memory that was never set, or an "
                          "initialiser that fails.");
    } else {
        is(cause, FB_RULE_STATE, FB_CAUSE_STATE_BAD, 1);
        FB_EXPLAIN(cause, " An earlier update that was not checked, or somebody else who wrote into it, left it so.");
    }
}

void fb_judge_entry(const fb_cause_facts *facts, fb_cause *cause)
{
    char name[256];
    const fb_witness_place *place = NULL;
    for (uint32_t i = 0; facts->witness && !place && i < facts->witness->candidate_count; i++) {
        if (facts->witness->candidates[i].entry) place = &facts->witness->candidates[i];
    }
    if (!place) {
        is(cause, FB_RULE_STATE, FB_CAUSE_STATE_BAD, 0);
        FB_EXPLAIN(cause, "Something was not finite before the step began; what it was is not known. No operator is blamed.");
        return;
    }
    FB_EXPLAIN(
        cause,
        "%s was not finite before the first operator of step %lld ran, and a chain of bad values leads from it to the finding. "
        "No operator is blamed.",
        entry_name(name, sizeof name, place), (long long)facts->step);
    if (facts->witness->candidate_count > 1) FB_EXPLAIN(cause, " It is one of %u that were.", facts->witness->candidate_count);
    state(facts, place, cause);
    if (facts->other_ranks_tried > 0 && facts->other_ranks_bad == 0 && cause->rule == FB_RULE_STATE) {
        FB_EXPLAIN(cause, " The same batch stays finite on %u other ranks, so the state of rank %d differs from theirs.",
                   facts->other_ranks_tried, facts->owner);
    }
}

/* ---- replays ----------------------------------------------------------------------------------------------------------------- */

static void not_reproduced(const fb_cause_facts *facts, fb_cause *cause)
{
    int same = facts->faithful == 1;
    is(cause, FB_RULE_NOT_REPRODUCIBLE, same ? FB_CAUSE_TRANSIENT : FB_CAUSE_UNKNOWN, same);
    FB_EXPLAIN(cause, "%u replays of the same step from the same state stay finite%s.", facts->tried,
               same ? ", operator by operator on the same bytes" : "");
    if (same)
        FB_EXPLAIN(cause,
                   " Whatever made it is not in the batch, the parameters or the random state: a single error of the hardware, a "
                   "race, or memory that held something else then.");
    else
        FB_EXPLAIN(
            cause,
            " The replays were not the run itself (see differences): what made it lies in those, or in a single error of the "
            "hardware, a race, or memory that held something else then.");
}

static void not_steady(const fb_cause_facts *facts, fb_cause *cause)
{
    const fb_witness *w = facts->witness;
    /* A finding that opens a case at the reduced gradients was preceded by finite ones on every rank. */
    int reduced = facts->finding_boundary == FB_REDUCED_GRAD;
    int collective = reduced || (w && (w->op_flags & FB_TAPE_COLLECTIVE) != 0);
    is(cause, FB_RULE_NOT_REPRODUCIBLE, collective ? FB_CAUSE_COLLECTIVE_RACE : FB_CAUSE_TRANSIENT, 0);
    FB_EXPLAIN(
        cause,
        "%u of %u replays of the same step show it and the others do not, so it depends on more than batch, state and random "
        "numbers: on the order in which things run (a race), or on a device that fails now and then.",
        facts->reproduced, facts->tried);
    if (facts->tried > 0 && facts->reproduced == facts->tried) {
        FB_EXPLAIN(cause, " The finding itself is there each time; on the way to it the replays contradict each other.");
    }
    if (reduced) FB_EXPLAIN(cause, " Every rank's own gradient was finite, and what the ranks got back was not.");
    else if (collective) FB_EXPLAIN(cause, " It begins in a collective.");
}

void fb_judge_replays(const fb_cause_facts *facts, fb_cause *cause)
{
    switch (facts->found) {
    case FB_LOCATED_NOT_REPRODUCED: not_reproduced(facts, cause); break;
    case FB_LOCATED_NOT_STEADY: not_steady(facts, cause); break;
    case FB_LOCATED_INTERVAL:
        FB_EXPLAIN(cause,
                   "The origin is one of %u candidates, and what would tell them apart could not be seen; no cause is given for an "
                   "operator "
                   "that is not named.",
                   facts->candidates);
        break;
    case FB_LOCATED_UNDECIDED: FB_EXPLAIN(cause, "The replays do not tell where it began, so no cause is given."); break;
    default: FB_EXPLAIN(cause, "Nothing was located, so no cause is given."); break;
    }
}
