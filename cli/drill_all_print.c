/* The table of `firstbad drill --all`, its score, and both as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "drill_all.h"
#include "evidence/site.h"

/* Widths of the columns; a line fits into 100. */
#define LINE "%-20.20s %4s %4s %-31.31s %-23.23s %2s %4s  %s\n"

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
    printf(LINE, "fault", "step", "rank", "first bad", "cause (?: not certain)", "n", "runs", "seeds");
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

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

typedef struct cost {
    double replays_median, replays_max, seconds_median, seconds_max;
    int known;
} cost;

/* Of all runs in which something was located. */
static cost cost_of(const drill_all *all)
{
    cost out = {0, 0, 0, 0, 0};
    size_t n = 0, room = (size_t)all->count + 1;
    double *values = fb_calloc(2 * room, sizeof *values);
    for (int i = 0; values && i < all->count; i++) {
        if (!all->ones[i].score.replays) continue;
        values[n] = all->ones[i].score.replays;
        values[room + n++] = all->ones[i].score.seconds;
    }
    if (n) {
        qsort(values, n, sizeof *values, by_size);
        qsort(values + room, n, sizeof *values, by_size);
        out = (cost){values[n / 2], values[n - 1], values[room + n / 2], values[room + n - 1], 1};
    }
    fb_free(values);
    return out;
}

static int count_spreads(const drill_all *all)
{
    int count = 0;
    for (int i = 0; i < all->faults; i++) count += all->ones[i].fault->spreads;
    return count;
}

static int count_quiet(const drill_all *all)
{
    int count = 0;
    for (int i = all->faults; i < all->count; i++) count += drill_score_passed(&all->ones[i].score);
    return count;
}

void drill_all_print_score(const drill_all *all, const drill_settings *settings, const char *again, const char *kept)
{
    int of, exact = drill_all_exact(all, settings->seeds, &of), within, asked, spreads = count_spreads(all);
    cost spent = cost_of(all);
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
    printf("  %-32s %4d of %4d\n", "healthy runs quiet", count_quiet(all), all->count - all->faults);
    printf("  wrong claims %d, false alarms %d", drill_all_wrong_claims(all), drill_all_false_alarms(all));
    if (spent.known)
        printf(", replays %.0f (most %.0f), located in %.2f s (longest %.1f s)", spent.replays_median, spent.replays_max,
               spent.seconds_median, spent.seconds_max);
    printf("\n%s", drill_all_passed(all, settings->seeds) ? "passed" : "FAILED");
    if (all->whole) printf(": at least %d faults exact, all detected and stopped, nothing wrong claimed", DRILL_EXACT_MIN);
    printf("\nAgain: %s\n", again);
    if (kept) printf("Runs kept in %s\n", kept);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------------- */

static const char *answer_name(int32_t answer)
{
    static const char *const names[] = {"", "operator", "entry", "not_reproduced", "not_steady", "disagreement"};
    return answer >= 1 && answer <= DRILL_DISAGREEMENT ? names[answer] : "healthy";
}

static void json_int_or_null(fb_json *json, const char *key, int64_t value, int known)
{
    if (known) fb_json_key_int(json, key, value);
    else fb_json_key_null(json, key);
}

static void json_expected(fb_json *json, const drill_one *one)
{
    const drill_fault *fault = one->fault;
    fb_json_key(json, "expected");
    fb_json_object_begin(json);
    fb_json_key_string(json, "answer", answer_name(fault ? fault->answer : 0));
    if (fault) {
        fb_json_key_int(json, "step", one->truth.step);
        json_int_or_null(json, "rank", one->truth.rank, one->truth.rank >= 0);
        json_int_or_null(json, "layer", one->truth.layer, strstr(fault->module, "%d") != NULL);
        fb_json_key_string(json, "boundary", fault->origin ? fb_boundary_name(fault->origin) : NULL);
        fb_json_key_string(json, "module", fault->module);
        fb_json_key_string(json, "operator", fault->op);
        fb_json_key_string(json, "tensor", fault->tensor);
        fb_json_key_string(json, "cause", fault->cause);
        fb_json_key_string(json, "rule", fault->rule);
        json_int_or_null(json, "samples", fault->samples, fault->samples > 0);
    }
    fb_json_object_end(json);
}

static void json_got(fb_json *json, const drill_one *one)
{
    const drill_score *score = &one->score;
    fb_json_key(json, "got");
    fb_json_object_begin(json);
    json_int_or_null(json, "step", score->step, score->step >= 0);
    json_int_or_null(json, "rank", score->rank, score->rank >= 0);
    fb_json_key_string(json, "place", score->place[0] ? score->place : NULL);
    fb_json_key_string(json, "cause", score->cause[0] ? score->cause : NULL);
    json_int_or_null(json, "samples", score->samples, score->samples > 0);
    json_int_or_null(json, "replays", score->replays, score->replays > 0);
    fb_json_key_double(json, "locate_seconds", score->seconds);
    fb_json_key_int(json, "exit", one->exit_code);
    fb_json_object_end(json);
}

static const char *worth_name(int worth)
{
    return worth == DRILL_RIGHT ? "right" : worth == DRILL_WITHIN ? "within" : worth == DRILL_WRONG ? "wrong" : NULL;
}

static void json_one(fb_json *json, const drill_one *one)
{
    const drill_score *score = &one->score;
    int shown = score->note_count < DRILL_NOTES ? score->note_count : DRILL_NOTES;
    fb_json_object_begin(json);
    fb_json_key_string(json, "id", one->fault ? one->fault->id : one->healthy->id);
    fb_json_key_string(json, "what", one->fault ? one->fault->what : one->healthy->what);
    fb_json_key_string(json, "fault", one->spec[0] ? one->spec : NULL);
    fb_json_key_int(json, "seed", one->seed);
    json_expected(json, one);
    json_got(json, one);
    fb_json_key(json, "levels");
    fb_json_object_begin(json);
    for (int level = 0; level < DRILL_LEVELS; level++) {
        fb_json_key_string(json, drill_level_name(level), worth_name(score->levels[level]));
    }
    fb_json_object_end(json);
    fb_json_key_int(json, "wrong_claims", score->wrong_claims);
    fb_json_key_int(json, "false_alarms", score->false_alarms);
    fb_json_key_bool(json, "passed", drill_score_passed(score));
    fb_json_key(json, "notes");
    fb_json_array_begin(json);
    for (int i = 0; i < shown; i++) fb_json_string(json, score->notes[i]);
    fb_json_array_end(json);
    fb_json_key_double(json, "seconds", (double)one->ms / 1000);
    fb_json_key_string(json, "run", one->folder[0] ? one->folder : NULL);
    fb_json_object_end(json);
}

static void json_level(fb_json *json, const drill_all *all, int level)
{
    int of, right = drill_all_count(all, level, DRILL_RIGHT, &of), within = drill_all_count(all, level, DRILL_WITHIN, &of);
    fb_json_key(json, drill_level_name(level));
    fb_json_object_begin(json);
    fb_json_key_int(json, "right", right);
    fb_json_key_int(json, "within", within);
    fb_json_key_int(json, "of", of);
    fb_json_object_end(json);
}

static void json_score(fb_json *json, const drill_all *all, const drill_settings *settings)
{
    int of, exact = drill_all_exact(all, settings->seeds, &of);
    cost spent = cost_of(all);
    fb_json_key(json, "score");
    fb_json_object_begin(json);
    for (int level = 0; level < DRILL_LEVELS; level++) json_level(json, all, level);
    fb_json_key(json, "exact");
    fb_json_object_begin(json);
    fb_json_key_int(json, "right", exact);
    fb_json_key_int(json, "of", of);
    fb_json_object_end(json);
    fb_json_key(json, "silent_when_healthy");
    fb_json_object_begin(json);
    fb_json_key_int(json, "right", count_quiet(all));
    fb_json_key_int(json, "of", all->count - all->faults);
    fb_json_object_end(json);
    fb_json_key_int(json, "wrong_claims", drill_all_wrong_claims(all));
    fb_json_key_int(json, "false_alarms", drill_all_false_alarms(all));
    fb_json_key(json, "replays_median");
    fb_json_number_or_null(json, spent.replays_median, spent.known);
    fb_json_key(json, "replays_max");
    fb_json_number_or_null(json, spent.replays_max, spent.known);
    fb_json_key(json, "locate_seconds_median");
    fb_json_number_or_null(json, spent.seconds_median, spent.known);
    fb_json_key(json, "locate_seconds_max");
    fb_json_number_or_null(json, spent.seconds_max, spent.known);
    fb_json_object_end(json);
}

void drill_all_print_json(const drill_all *all, const drill_settings *settings)
{
    int passed = 0;
    fb_json json;
    for (int i = 0; i < all->count; i++) passed += drill_score_passed(&all->ones[i].score);
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.drill-all/1");
    fb_json_key(&json, "scenarios");
    fb_json_array_begin(&json);
    for (int i = 0; i < all->count; i++) json_one(&json, &all->ones[i]);
    fb_json_array_end(&json);
    fb_json_key_int(&json, "passed", passed);
    fb_json_key_int(&json, "failed", all->count - passed);
    json_score(&json, all, settings);
    fb_json_key_bool(&json, "ok", drill_all_passed(all, settings->seeds));
    fb_json_key_int(&json, "seeds", settings->seeds);
    fb_json_key_int(&json, "ranks", settings->ranks);
    fb_json_key_double(&json, "seconds", (double)all->ms / 1000);
    fb_json_object_end(&json);
    printf("%s\n", fb_json_text(&json));
    fb_json_release(&json);
}
