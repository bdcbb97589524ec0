/*
 * Whether what was found reached more than the place where it was found: the collective, the parameters, the optimizer's state. An
 * update that was held back beside the state is no part of it, and what each rank makes of the reduced gradients did not come out
 * of the collective.
 */
#include "report/inside.h"

/* ---- what a finding is in ---------------------------------------------------------------------------------------------------- */

int32_t fb_judge_taken(const fb_report *report, const fb_rec_finding *finding)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (rank->rank != finding->rank || !rank->has_step || finding->step != report->step) continue;
        return rank->step_flags & FB_STEP_APPLIED ? FB_ANSWER_YES : FB_ANSWER_NO;
    }
    return FB_ANSWER_UNKNOWN;
}

int fb_judge_made_of_reduced(const fb_rec_finding *finding)
{
    return finding->boundary == FB_REDUCED_GRAD && finding->role != FB_ROLE_GRADIENT;
}

const char *fb_judge_boundary_text(const fb_report *report, const fb_rec_finding *finding)
{
    int32_t taken;
    if (fb_judge_made_of_reduced(finding)) return "after the reduction";
    if (finding->boundary != FB_UPDATE) return fb_boundary_text(finding->boundary);
    taken = fb_judge_taken(report, finding);
    return taken == FB_ANSWER_NO ? "update held back" : taken == FB_ANSWER_YES ? fb_boundary_text(FB_UPDATE) : "update";
}

/* ---- where it spread -------------------------------------------------------------------------------------------------------- */

static int is_reduced_gradient(const fb_rec_finding *finding)
{
    return finding->boundary == FB_REDUCED_GRAD && !fb_judge_made_of_reduced(finding);
}

static uint64_t reduced_ranks(const fb_report *report)
{
    uint64_t ranks = 0;
    for (uint64_t i = 0; i < report->finding_count; i++) {
        const fb_rec_finding *finding = &report->findings[i].rec;
        int earlier = 0;
        if (!is_reduced_gradient(finding)) continue;
        for (uint64_t k = 0; k < i && !earlier; k++) {
            earlier = is_reduced_gradient(&report->findings[k].rec) && report->findings[k].rec.rank == finding->rank;
        }
        ranks += (uint64_t)!earlier;
    }
    return ranks;
}

/* The least that any rank did with its reduced gradients at the bad step; -1 when no rank says. */
static int reduced_level(const fb_report *report)
{
    int level = -1;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (!rank->has_step) continue;
        if (level < 0 || rank->cover.level[FB_REDUCED_GRAD] > level) level = rank->cover.level[FB_REDUCED_GRAD];
    }
    return level;
}

/* A vote of the bad step that not all ranks gave: nobody can have read it. */
static int never_read(const fb_report *report)
{
    return report->has_no_vote && report->no_vote_step == report->step && report->no_vote_count > 0;
}

static void spread_collective(fb_report *report)
{
    uint64_t ranks = reduced_ranks(report);
    int level = reduced_level(report);
    int withheld_first = report->verdicts > 0 && report->action != FB_PROCEED && report->applied_on == 0;
    if (report->world == 1) {
        report->collective = FB_ANSWER_NO;
        fb_sentence(report->collective_why, "one rank: there is no collective");
    } else if (ranks > 0) {
        report->collective = FB_ANSWER_YES;
        fb_sentence(report->collective_why, "the reduced gradient was non-finite on %llu rank%s", (unsigned long long)ranks,
                    ranks == 1 ? "" : "s");
    } else if (level == FB_COVER_FULL) {
        report->collective = FB_ANSWER_NO;
        fb_sentence(report->collective_why, "every reduced gradient of that step was checked and finite");
    } else if (withheld_first && level <= FB_COVER_NONE) {
        report->collective = FB_ANSWER_NO;
        fb_sentence(report->collective_why, "the vote came before it, and no reduced gradient was handed over after it");
    } else if (never_read(report) && report->no_vote_number == 1) {
        report->collective = FB_ANSWER_NO;
        fb_sentence(report->collective_why, "the vote before it was never read");
    } else {
        fb_sentence(report->collective_why, "%s",
                    report->verdicts == 0 ? "no verdict of that step was recorded"
                                          : "the reduced gradients of that step were not all checked");
    }
}

/* Withheld, as far as ledgers say: where some are missing, a unanimous vote speaks for their ranks. */
static int32_t state_withheld(const fb_report *report, uint64_t ranks, uint64_t held, char why[FB_REPORT_TEXT_MAX])
{
    unsigned long long withheld = (unsigned long long)report->withheld_on, of = (unsigned long long)ranks;
    const char *beside = held ? "found in the update that was held back beside it; " : "";
    if (report->withheld_on < ranks && report->unanimous != 1) {
        fb_sentence(why, "%swithheld on %llu of %llu ranks; of the others nothing is recorded", beside, withheld, of);
        return FB_ANSWER_UNKNOWN;
    }
    if (report->proofs_compared > 0) {
        fb_sentence(why, "%swithheld on %llu of %llu ranks, digests equal on %llu", beside, withheld, of,
                    (unsigned long long)report->proofs_equal);
    } else {
        fb_sentence(why, "%swithheld on %llu of %llu ranks; no digests were compared", beside, withheld, of);
    }
    return FB_ANSWER_NO;
}

/* What the records say of owned state when no finding is in it. */
static int32_t state_untouched(const fb_report *report, uint64_t held, char why[FB_REPORT_TEXT_MAX])
{
    uint64_t ranks = report->world > 0 ? (uint64_t)report->world : report->withheld_on + report->applied_on;
    if (report->proofs_compared > report->proofs_equal) {
        fb_sentence(why, "the update was withheld, and yet the state changed on %llu of %llu ranks before the next step",
                    (unsigned long long)(report->proofs_compared - report->proofs_equal), (unsigned long long)ranks);
        return FB_ANSWER_UNKNOWN;
    }
    if (report->applied_on > 0) {
        fb_sentence(why, "the update was applied on %llu of %llu ranks, and this state was not looked at after it",
                    (unsigned long long)report->applied_on, (unsigned long long)ranks);
        return FB_ANSWER_UNKNOWN;
    }
    if (report->withheld_on > 0) return state_withheld(report, ranks, held, why);
    if (never_read(report)) {
        fb_sentence(why, "no rank could read the vote, so no gate opened");
        return FB_ANSWER_NO;
    }
    fb_sentence(why, "no record says what became of the update");
    return FB_ANSWER_UNKNOWN;
}

/* in_state: findings in it; held: in an update that was held back beside it; open: in an update of which no record says whether it
 * was put in place. */
static void spread_state(const fb_report *report, uint64_t in_state, uint64_t held, uint64_t open, const char *what,
                         int32_t *answer, char why[FB_REPORT_TEXT_MAX])
{
    const fb_rec_finding *first = report->first == UINT64_MAX ? NULL : &report->findings[report->first].rec;
    const char *when =
        first && first->boundary == FB_ENTRY ? "on entry, so it was there before this step" : "in this step or after it";
    char n[32];
    if (in_state == 0 && open > 0) {
        *answer = FB_ANSWER_UNKNOWN;
        fb_sentence(why, "found in the update of %s (%s finding%s over all ranks), and no record says whether it was put in place",
                    what, fb_thousands(open, n), open == 1 ? "" : "s");
        return;
    }
    if (in_state == 0) {
        *answer = state_untouched(report, held, why);
        return;
    }
    *answer = FB_ANSWER_YES;
    fb_sentence(why, "found in %s %s (%s finding%s over all ranks)", what, when, fb_thousands(in_state, n),
                in_state == 1 ? "" : "s");
}

/* What was found in an update of a step without an end stays open. */
static void spread_states(fb_report *report)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        report->open_parameter += report->ranks[i].update_parameter;
        report->open_moment += report->ranks[i].update_moment;
    }
    spread_state(report, report->entry_parameter + report->update_parameter, report->held_parameter, report->open_parameter,
                 "parameters", &report->parameters, report->parameters_why);
    spread_state(report, report->entry_moment + report->update_moment, report->held_moment, report->open_moment, "moments",
                 &report->optimizer_state, report->optimizer_why);
}

void fb_judge_spread(fb_report *report)
{
    spread_collective(report);
    spread_states(report);
}
