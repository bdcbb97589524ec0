/* `firstbad drill --all` as JSON: what was expected and found, run by run, and the score; or the truth alone. */
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "drill_all.h"
#include "evidence/site.h"

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

/* one: where it was put in that run; NULL: the fault by itself. */
static void json_expected(fb_json *json, const drill_fault *fault, const drill_one *one)
{
    fb_json_key(json, "expected");
    fb_json_object_begin(json);
    fb_json_key_string(json, "answer", answer_name(fault ? fault->answer : 0));
    if (fault) {
        json_int_or_null(json, "step", one ? one->truth.step : 0, one != NULL);
        json_int_or_null(json, "rank", one ? one->truth.rank : -1, one && one->truth.rank >= 0);
        json_int_or_null(json, "layer", one ? one->truth.layer : 0, one && strstr(fault->module, "%d"));
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
    json_expected(json, one->fault, one);
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
    drill_cost spent = drill_all_cost(all);
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
    fb_json_key_int(json, "right", drill_all_quiet(all));
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

void drill_all_print_truths(void)
{
    fb_json json;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.drill-truth/1");
    fb_json_key(&json, "faults");
    fb_json_array_begin(&json);
    for (int i = 0; i < drill_fault_count; i++) {
        fb_json_object_begin(&json);
        fb_json_key_string(&json, "id", drill_faults[i].id);
        fb_json_key_string(&json, "what", drill_faults[i].what);
        fb_json_key_string(&json, "arguments", drill_faults[i].arguments);
        fb_json_key_bool(&json, "every_rank", drill_faults[i].every_rank);
        fb_json_key_int(&json, "late", drill_faults[i].late);
        json_expected(&json, &drill_faults[i], NULL);
        fb_json_object_end(&json);
    }
    fb_json_array_end(&json);
    fb_json_key(&json, "healthy");
    fb_json_array_begin(&json);
    for (int i = 0; i < drill_healthy_count; i++) {
        fb_json_object_begin(&json);
        fb_json_key_string(&json, "id", drill_healthies[i].id);
        fb_json_key_string(&json, "what", drill_healthies[i].what);
        fb_json_key_string(&json, "fault", drill_healthies[i].fault);
        fb_json_key_string(&json, "arguments", drill_healthies[i].arguments);
        fb_json_object_end(&json);
    }
    fb_json_array_end(&json);
    fb_json_object_end(&json);
    printf("%s\n", fb_json_text(&json));
    fb_json_release(&json);
}
