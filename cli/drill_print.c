/*
 * What a drill shows: a line a scenario, the differences of those that failed, a summary, or all of it as JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "cli.h"
#include "drill.h"
#include "evidence/site.h"
#include "registry/registry.h"

/* Widths of the columns; a line fits into 100. */
#define LINE "%2d %-33.33s %4s %4s %-7s %-28s %-9s %-4s"

void drill_print_head(void)
{
    printf(" # %-33s step rank %-7s %-28s %-9s %-4s\n", "fault", "where", "located", "action", "state");
}

static const char *where(int32_t boundary)
{
    static const char *const words[] = {"", "entry", "input", "forward", "loss", "local", "reduced", "update", "ckpt"};
    return boundary >= FB_ENTRY && boundary <= FB_CHECKPOINT ? words[boundary] : "?";
}

static const char *state_word(const drill_result *result)
{
    if (result->changed) return "CHANGED";
    if (result->unproven || result->proven == 0) return "?";
    return "same";
}

static void line_of_fault(const drill_result *result, int32_t ranks)
{
    const drill_finding *first = &result->first;
    char step[24], rank[16], place[DRILL_TEXT], action[48];
    (void)snprintf(step, sizeof step, "%" PRId64, first->step);
    if (result->scenario->rank == DRILL_EVERY_RANK) (void)snprintf(rank, sizeof rank, "all");
    else (void)snprintf(rank, sizeof rank, "%d", first->rank);
    if (result->made[0]) (void)snprintf(place, sizeof place, "%s", result->made);
    else drill_place(first, place);
    (void)snprintf(action, sizeof action, "%s %d/%d", fb_action_name(result->action), result->agreed, ranks);
    printf(LINE, result->number, result->scenario->fault, step, rank, where(first->boundary), place, action, state_word(result));
}

static void line_of_killed(const drill_result *result)
{
    char step[24], rank[16];
    (void)snprintf(step, sizeof step, "%" PRId64, result->truth_step);
    (void)snprintf(rank, sizeof rank, "%d", result->truth_rank);
    printf(LINE, result->number, result->scenario->fault, step, rank, "vote",
           result->detected == 1 ? "no vote of this rank" : "not told", "none", result->changed ? "CHANGED" : "same");
}

static void line_of_silence(const drill_result *result)
{
    char text[64] = "see below";
    if (drill_passed(result) && result->probing)
        (void)snprintf(text, sizeof text, "nothing, %" PRIu64 " probing skips", result->probing);
    else if (drill_passed(result)) (void)snprintf(text, sizeof text, "nothing fired");
    printf(LINE, result->number, result->scenario->fault, "-", "-", "-", text, result->probing ? "skip" : "-",
           result->proven ? "same" : "-");
}

static void line_of_saved(const drill_result *result)
{
    static const char prefix[] = "optimizer.";
    const char *place = result->saved_place;
    char step[24];
    (void)snprintf(step, sizeof step, "%" PRId64, result->resume_step);
    if (strncmp(place, prefix, sizeof prefix - 1) == 0) place += sizeof prefix - 1; /* the column is narrow */
    printf(LINE, result->number, result->scenario->fault, result->resume_step < 0 ? "-" : step, "-", "ckpt", place,
           result->saved_state == FB_CKPT_QUARANTINED ? "put aside" : fb_registry_state_name(result->saved_state),
           drill_passed(result) ? "safe" : "?");
}

void drill_print_line(const drill_result *result, int32_t ranks, int verbose)
{
    int shown = result->difference_count < DRILL_DIFFERENCES ? result->difference_count : DRILL_DIFFERENCES;
    int32_t how = result->scenario->how;
    if (how == DRILL_HEALTHY) line_of_silence(result);
    else if (how == DRILL_SAVED) line_of_saved(result);
    else if (how == DRILL_KILLED) line_of_killed(result);
    else if (result->has_first) line_of_fault(result, ranks);
    else printf(LINE, result->number, result->scenario->fault, "-", "-", "-", "not found", "-", "-");
    puts(drill_passed(result) ? " ok" : " FAILED");
    if (verbose || !drill_passed(result)) {
        printf("     expected  %s\n     got       %s\n", result->expected, result->got);
        for (int i = 0; i < shown; i++) printf("     differs   %s\n", result->differences[i]);
        if (result->difference_count > shown) printf("     differs   in %d more ways\n", result->difference_count - shown);
    }
    if (verbose) {
        printf("     run       %s\n     plants    %s\n     took      %.1f s\n", result->job.folder,
               result->options.inject[0] ? result->options.inject : "nothing", (double)result->ms / 1000);
    }
    if (verbose || !drill_passed(result)) printf("     log       %s\n", result->log);
}

void drill_print_summary(const drill_summary *summary, const drill_settings *settings, const char *again, const char *kept)
{
    printf("%d passed, %d failed in %.0f s on %d ranks", summary->passed, summary->failed, (double)summary->ms / 1000,
           settings->ranks);
    if (summary->duration_ns) {
        /* A share says nothing without the size of the step: the guard's fixed costs weigh on a small one. */
        printf("      the guard took %.1f %% of steps of %llu tokens",
               100.0 * (double)summary->guard_ns / (double)summary->duration_ns,
               (unsigned long long)(summary->tokens / summary->updates));
    }
    printf("\nAgain: %s\n", again);
    if (kept) printf("Runs kept in %s\n", kept);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------------- */

static void json_finding(fb_json *json, const drill_result *result)
{
    const drill_finding *first = &result->first;
    fb_json_key(json, "first_bad");
    if (!result->has_first) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_int(json, "step", first->step);
    fb_json_key_int(json, "micro_step", first->micro_step);
    fb_json_key_int(json, "rank", first->rank);
    fb_json_key_string(json, "boundary", fb_boundary_name(first->boundary));
    fb_json_key_string(json, "site", first->name);
    fb_json_key_string(json, "kind", fb_kind_name(first->kind));
    fb_json_key_uint(json, "index", first->index);
    fb_json_key_uint(json, "count", first->count);
    fb_json_key_string(json, "action", result->action < 0 ? NULL : fb_action_name(result->action));
    fb_json_key_int(json, "ranks_agreed", result->agreed);
    fb_json_object_end(json);
}

static void json_scenario(fb_json *json, const drill_result *result)
{
    int shown = result->difference_count < DRILL_DIFFERENCES ? result->difference_count : DRILL_DIFFERENCES;
    fb_json_object_begin(json);
    fb_json_key_string(json, "id", result->scenario->id);
    fb_json_key_string(json, "fault", result->scenario->fault);
    fb_json_key_string(json, "expected", result->expected);
    fb_json_key_string(json, "got", result->got);
    fb_json_key_bool(json, "passed", drill_passed(result));
    fb_json_key(json, "differences");
    fb_json_array_begin(json);
    for (int i = 0; i < shown; i++) fb_json_string(json, result->differences[i]);
    fb_json_array_end(json);
    json_finding(json, result);
    fb_json_key(json, "resume_step");
    if (result->scenario->how == DRILL_SAVED && result->resume_step >= 0) fb_json_int(json, result->resume_step);
    else fb_json_null(json);
    fb_json_key_uint(json, "probing_skips", result->probing);
    fb_json_key_int(json, "exit", result->job.exit_code);
    fb_json_key_double(json, "seconds", (double)result->ms / 1000);
    fb_json_key_string(json, "run", result->job.folder);
    fb_json_object_end(json);
}

/* "right of asked" for one question, over the scenarios that ask it. */
static void json_ratio(fb_json *json, const char *key, const drill_result *const *results, int count,
                       int (*answer)(const drill_result *))
{
    int asked = 0, right = 0;
    for (int i = 0; i < count; i++) {
        int one = answer(results[i]);
        asked += one >= 0;
        right += one == 1;
    }
    fb_json_key(json, key);
    fb_json_object_begin(json);
    fb_json_key_int(json, "right", right);
    fb_json_key_int(json, "of", asked);
    fb_json_object_end(json);
}

static int detected(const drill_result *result)
{
    return result->detected;
}

static int located(const drill_result *result)
{
    return result->located;
}

static int unanimous(const drill_result *result)
{
    return result->unanimous;
}

static int unchanged(const drill_result *result)
{
    return result->unchanged;
}

static int silent(const drill_result *result)
{
    return result->scenario->how == DRILL_HEALTHY ? drill_passed(result) : -1;
}

void drill_print_json(const drill_result *const *results, int count, const drill_summary *summary, const drill_settings *settings)
{
    fb_json json;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.drill/1");
    fb_json_key(&json, "scenarios");
    fb_json_array_begin(&json);
    for (int i = 0; i < count; i++) json_scenario(&json, results[i]);
    fb_json_array_end(&json);
    fb_json_key_int(&json, "passed", summary->passed);
    fb_json_key_int(&json, "failed", summary->failed);
    fb_json_key(&json, "score");
    fb_json_object_begin(&json);
    json_ratio(&json, "detected", results, count, detected);
    json_ratio(&json, "located", results, count, located);
    json_ratio(&json, "unanimous", results, count, unanimous);
    json_ratio(&json, "unchanged", results, count, unchanged);
    json_ratio(&json, "silent_when_healthy", results, count, silent);
    fb_json_object_end(&json);
    fb_json_key_int(&json, "ranks", settings->ranks);
    fb_json_key_double(&json, "seconds", (double)summary->ms / 1000);
    fb_json_key(&json, "guard_percent");
    fb_json_number_or_null(&json, summary->duration_ns ? 100.0 * (double)summary->guard_ns / (double)summary->duration_ns : 0.0,
                           summary->duration_ns != 0);
    fb_json_object_end(&json);
    printf("%s\n", fb_json_text(&json));
    fb_json_release(&json);
}
