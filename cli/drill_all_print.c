/* The table of `firstbad drill --all`, and its score. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "drill_all.h"

/* Widths of the columns; a line fits into 100. */
#define LINE "%-20.20s %4s %4s %-32.32s %-22.22s %2s %4s  %s\n"

static const char *const LEVELS[DRILL_LEVELS] = {
    "detected in the right step",
    "stopped, the state unchanged",
    "rank",
    "boundary",
    "module",
    "operator, entry, or nobody",
    "class of the cause",
    "rule that tells it",
    "smallest batch",
    "and shown by a fresh process",
    "and training went on",
};

/* ---- the table --------------------------------------------------------------------------------------------------------------- */

void drill_all_print_head(void)
{
    printf(LINE, "fault", "step", "rank", "first bad", "cause (? not certain)", "n", "runs", "seeds");
}

static void number(char out[24], int64_t value, int known)
{
    if (known) (void)snprintf(out, 24, "%" PRId64, value);
    else (void)snprintf(out, 24, "-");
}

static void print_notes(const drill_one *one)
{
    int shown = one->score.note_count < DRILL_NOTES ? one->score.note_count : DRILL_NOTES;
    for (int i = 0; i < shown; i++) printf("    seed %d  %s\n", one->seed, one->score.notes[i]);
    if (one->score.note_count > shown) printf("    seed %d  and in %d more ways\n", one->seed, one->score.note_count - shown);
    if (one->folder[0]) printf("    seed %d  run %s\n", one->seed, one->folder);
}

static void print_expected(const drill_one *one)
{
    const drill_fault *fault = one->fault;
    printf("    %s: %s\n    expected  %s %s, cause %s, rule %s\n", fault->id, fault->what, fault->module,
           fault->op                             ? fault->op
           : fault->tensor                       ? fault->tensor
           : fault->answer == DRILL_DISAGREEMENT ? "nobody: ranks have parted"
                                                 : "nobody",
           fault->cause, fault->rule ? fault->rule : "any");
}

/* The first seed that was not as it should be stands for all, or else the first. */
static const drill_one *spokesman(const drill_one *ones, int32_t seeds)
{
    for (int32_t k = 0; k < seeds; k++) {
        if (!drill_score_passed(&ones[k].score)) return &ones[k];
    }
    return ones;
}

void drill_all_print_line(const drill_one *ones, int32_t seeds, int verbose)
{
    const drill_one *one = spokesman(ones, seeds);
    const drill_score *score = &one->score;
    char step[24], rank[24], samples[24], replays[24], passed[32];
    int32_t right = 0;
    for (int32_t k = 0; k < seeds; k++) right += drill_score_passed(&ones[k].score);
    if (one->healthy) {
        if (right == seeds && !verbose) return;
        printf("healthy: %-24s %-40.40s %s\n", one->healthy->id, one->healthy->what, right == seeds ? "quiet" : "ALARM");
    } else {
        number(step, score->step, score->step >= 0);
        number(rank, score->rank, score->rank >= 0 && one->fault->answer != DRILL_DISAGREEMENT && !one->fault->every_rank);
        if (one->fault->every_rank) (void)snprintf(rank, sizeof rank, "all");
        number(samples, score->samples, score->samples > 0);
        number(replays, score->replays, score->replays > 0);
        (void)snprintf(passed, sizeof passed, "%d/%d%s", right, seeds, right == seeds ? "" : " <-");
        printf(LINE, one->fault->id, step, rank, score->place[0] ? score->place : "-", score->cause[0] ? score->cause : "-",
               samples, replays, passed);
    }
    if (one->fault && (verbose || right < seeds)) print_expected(one);
    for (int32_t k = 0; k < seeds; k++) {
        if (verbose || !drill_score_passed(&ones[k].score)) print_notes(&ones[k]);
    }
}

/* ---- the score --------------------------------------------------------------------------------------------------------------- */

static int count_spreads(const drill_all *all)
{
    int count = 0;
    for (int i = 0; i < all->faults; i++) count += all->ones[i].fault->spreads;
    return count;
}

void drill_all_print_score(const drill_all *all, const drill_settings *settings, const char *again, const char *kept)
{
    int of, exact = drill_all_exact(all, settings->seeds, &of), within, asked, spreads = count_spreads(all);
    drill_cost spent = drill_all_cost(all);
    printf("\n%d runs of %d faults and %d healthy ones, %d seeds, %d ranks, %d at a time, in %.0f s\n", all->faults, of,
           all->count - all->faults, settings->seeds, settings->ranks, settings->jobs, (double)all->ms / 1000);
    for (int level = 0; level < DRILL_LEVELS; level++) {
        int right = drill_all_count(all, level, DRILL_RIGHT, &asked);
        if (!asked) continue;
        within = drill_all_count(all, level, DRILL_WITHIN, &asked);
        printf("  %-32s %4d of %4d  %5.1f %%", LEVELS[level], right, asked, 100.0 * right / asked);
        if (within) printf("   and %d in an interval or a set that holds it", within);
        if (level == DRILL_STOPPED && spreads) printf("   %d after the update that made it", spreads);
        puts("");
    }
    printf("  %-32s %4d of %4d   on every seed\n", "faults exact, place and cause", exact, of);
    printf("  %-32s %4d of %4d\n", "healthy runs quiet", drill_all_quiet(all), all->count - all->faults);
    printf("  wrong claims %d, false alarms %d", drill_all_wrong_claims(all), drill_all_false_alarms(all));
    if (spent.known)
        printf(", replays %.0f (most %.0f), located in %.2f s (longest %.1f s)", spent.replays_median, spent.replays_max,
               spent.seconds_median, spent.seconds_max);
    printf("\n%s", drill_all_passed(all, settings->seeds) ? "passed" : "FAILED");
    if (all->whole) printf(": at least %d faults exact, all detected and stopped, nothing wrong claimed", DRILL_EXACT_MIN);
    printf("\nAgain: %s\n", again);
    if (kept) printf("Runs kept in %s\n", kept);
}
