/* See bisect_any.h. */
#include "bisect_any.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "asker.h"
#include "base/alloc.h"
#include "base/json_write.h"
#include "base/status.h"
#include "cli.h"
#include "process.h"
#include "report/lines.h"
#include "report/say.h"

enum { INDENT = 14, SHOWN = 12 };

typedef struct outcome {
    const bisect_any_options *options;
    places places;
    asker_options asks;
    asker asker;
    fb_search *search;
    const fb_search_verdict *verdict;
    uint32_t finding;
    uint32_t *chain; /* [chain_count] places, from the origin to the finding; of the first candidate that has one */
    uint32_t chain_count;
} outcome;

static const char *name_of(const outcome *o, uint32_t place)
{
    return o->places.names[place];
}

/* The place that a candidate stands for: the entry, or what the node makes. */
static uint32_t place_of(const outcome *o, const fb_candidate *candidate)
{
    return candidate->node == FB_FLOW_NONE ? candidate->tensor : o->places.made_by[candidate->node];
}

static const char *label_name(const outcome *o, uint32_t place)
{
    static const char *const names[] = {"unknown", "clean", "generate", "propagate", "kill"};
    uint32_t node = o->places.producer[place];
    int32_t label;
    if (node == FB_FLOW_NONE) return "entry";
    label = fb_search_label(o->search, node);
    return label >= 0 && label < (int32_t)(sizeof names / sizeof *names) ? names[label] : "unknown";
}

static const char *found_name(int32_t found)
{
    static const char *const names[] = {"nothing", "boundary",       "set",        "interval",
                                        "entry",   "not_reproduced", "not_steady", "undecided"};
    return found >= 0 && found < (int32_t)(sizeof names / sizeof *names) ? names[found] : "undecided";
}

static const char *reason_name(int32_t reason)
{
    return reason == FB_WHY_UNTESTABLE ? "untestable"
           : reason == FB_WHY_BUDGET   ? "runs"
           : reason == FB_WHY_WITNESS  ? "witness"
                                       : NULL;
}

/* ---- for people -------------------------------------------------------------------------------------------------------------- */

static const char *boundaries(uint32_t count)
{
    return count == 1 ? "boundary" : "boundaries";
}

/* "a, b, c and 4 more" */
static void list_candidates(const outcome *o, char *out, size_t room)
{
    const fb_search_verdict *v = o->verdict;
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < v->count && i < SHOWN && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%.100s", i ? ", " : "", name_of(o, place_of(o, &v->candidates[i])));
    if (v->count > SHOWN && used < room) (void)snprintf(out + used, room - used, " and %u more", v->count - SHOWN);
}

static int all_state(const outcome *o)
{
    const fb_search_verdict *v = o->verdict;
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->candidates[i].node != FB_FLOW_NONE || !(o->places.flags[v->candidates[i].tensor] & FB_FLOW_STATE)) return 0;
    }
    return v->count > 0;
}

static int reads_nothing(const outcome *o)
{
    uint32_t node = o->verdict->candidates[0].node;
    return o->places.first[node] == o->places.first[node + 1];
}

static void say_answer(const outcome *o, fb_lines *lines)
{
    const fb_search_verdict *v = o->verdict;
    const char *finding = name_of(o, o->finding);
    char list[2048];
    list_candidates(o, list, sizeof list);
    switch (v->found) {
    case FB_FOUND_NODE:
        fb_lines_add(lines, "", 0, "%s made the first bad value: %s.", list,
                     reads_nothing(o) ? "it reads nothing" : "what it reads is finite, what it makes is not");
        break;
    case FB_FOUND_SET:
        fb_lines_add(lines, "", 0, "%u boundaries made bad values, none of them comes after another, and each leads to %s: %s.",
                     v->count, finding, list);
        break;
    case FB_FOUND_INTERVAL:
        if (v->count == 1) fb_lines_add(lines, "", 0, "Not certain: perhaps %s, which was not shown.", list);
        else fb_lines_add(lines, "", 0, "Not certain: it is among %u boundaries: %s.", v->count, list);
        break;
    case FB_FOUND_ENTRY:
        if (all_state(o)) fb_lines_add(lines, "", 0, "The state was bad before the first boundary, and none is blamed: %s.", list);
        else fb_lines_add(lines, "", 0, "Bad on entry, and no boundary is blamed: %s.", list);
        break;
    case FB_FOUND_NOT_REPRODUCED:
        fb_lines_add(lines, "", 0, "Nothing bad: %s was finite in %u of %u runs that looked at it.", finding, v->tried, v->tried);
        break;
    case FB_FOUND_NOT_STEADY:
        fb_lines_add(lines, "", 0,
                     "Not steady: runs contradict each other, so no boundary is named; %s was bad in %u of %u that looked at it.",
                     finding, v->reproduced, v->tried);
        break;
    default: fb_lines_add(lines, "", 0, "Undecided: the answers say nothing about where %s became bad.", finding); break;
    }
}

static int has_mask(const outcome *o)
{
    for (uint32_t i = 0; i < o->places.count; i++) {
        if (o->places.flags[i] & FB_FLOW_MASK) return 1;
    }
    return 0;
}

static void say_reason(const outcome *o, fb_lines *lines)
{
    const fb_search_verdict *v = o->verdict;
    if (v->reason == FB_WHY_UNTESTABLE)
        fb_lines_add(lines, "  why", INDENT, "what would decide cannot be looked at (exit code 125, or !untestable)%s",
                     has_mask(o) ? ", or is a mask that may carry what it read" : "");
    else if (v->reason == FB_WHY_BUDGET)
        fb_lines_add(lines, "  why", INDENT, "the %u answer%s that --runs allows %s used up", o->options->runs_max,
                     fb_plural(o->options->runs_max), o->options->runs_max == 1 ? "was" : "were");
    else if (v->reason == FB_WHY_WITNESS) fb_lines_add(lines, "  why", INDENT, "what was seen once could not be seen again");
    if (v->found == FB_FOUND_NOT_STEADY && v->contradicted != FB_FLOW_NONE)
        fb_lines_add(lines, "  why", INDENT, "two runs said different things of %s", name_of(o, v->contradicted));
    else if (v->found == FB_FOUND_NOT_STEADY) fb_lines_add(lines, "  why", INDENT, "two runs said different things of one group");
}

static void say_chain(const outcome *o, fb_lines *lines)
{
    for (uint32_t i = 0; i < o->chain_count; i++) {
        if (i == SHOWN && o->chain_count > SHOWN + 2) {
            fb_lines_add(lines, "", INDENT, "... %u more", o->chain_count - SHOWN - 1);
            i = o->chain_count - 1;
        }
        fb_lines_add(lines, i ? "" : "  chain", INDENT, "%-10s %s%s", label_name(o, o->chain[i]), name_of(o, o->chain[i]),
                     o->chain[i] == o->finding ? " (the finding)" : "");
    }
}

/* Boundaries that read something bad and made something finite, as far as anybody looked. */
static void say_swallowed(const outcome *o, fb_lines *lines)
{
    char list[1024];
    size_t used = 0;
    uint32_t count = 0;
    for (uint32_t node = 0; node < o->places.flow.nodes; node++) {
        if (fb_search_label(o->search, node) != FB_LABEL_KILL) continue;
        if (count++ < SHOWN && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.60s", count > 1 ? ", " : "",
                                     name_of(o, o->places.made_by[node]));
    }
    if (count) fb_lines_add(lines, "  swallowed", INDENT, "%s read something bad and made something finite", list);
}

/* Boundaries that may have gone wrong by themselves too, and come after something that is bad for certain. */
static void say_later(const outcome *o, fb_lines *lines)
{
    const fb_search_verdict *v = o->verdict;
    char list[1024], more[32] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < v->later_count && i < SHOWN && used < sizeof list; i++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%.60s", i ? ", " : "", name_of(o, o->places.made_by[v->later[i]]));
    if (v->later_count > SHOWN) (void)snprintf(more, sizeof more, " and %u more", v->later_count - SHOWN);
    if (v->later_count)
        fb_lines_add(lines, "  later", INDENT, "%s%s may have gone wrong too, after something that was bad for certain: not first",
                     list, more);
}

static int print_text(const outcome *o)
{
    const fb_search_verdict *v = o->verdict;
    fb_error err;
    fb_lines lines;
    char *text = NULL, from_log[48] = "";
    int code;
    if (o->asker.taken) (void)snprintf(from_log, sizeof from_log, ", %u from the log", o->asker.taken);
    fb_lines_init(&lines, cli_columns(stdout), 0);
    say_answer(o, &lines);
    say_reason(o, &lines);
    say_chain(o, &lines);
    say_later(o, &lines);
    say_swallowed(o, &lines);
    if (v->found != FB_FOUND_NOT_REPRODUCED && v->found != FB_FOUND_NOT_STEADY && v->tried)
        fb_lines_add(&lines, "  reproduced", INDENT, "%s was bad in %u of %u runs that looked at it", name_of(o, o->finding),
                     v->reproduced, v->tried);
    fb_lines_add(&lines, "  cost", INDENT, "%u answer%s about %u %s: %u run%s of the command%s", v->replays, fb_plural(v->replays),
                 o->places.count, boundaries(o->places.count), o->asker.runs, fb_plural(o->asker.runs), from_log);
    code = fb_lines_finish(&lines, &text, &err) != FB_OK ? cli_fail(&err) : cli_print(text);
    fb_free(text);
    return code;
}

/* ---- for programs ------------------------------------------------------------------------------------------------------------ */

static void write_places(const outcome *o, fb_json *json)
{
    const fb_search_verdict *v = o->verdict;
    fb_json_key(json, "candidates");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < v->count; i++) {
        fb_json_object_begin(json);
        fb_json_key_string(json, "boundary", name_of(o, place_of(o, &v->candidates[i])));
        fb_json_key_bool(json, "entry", v->candidates[i].node == FB_FLOW_NONE);
        fb_json_key_bool(json, "witnessed", v->candidates[i].witnessed != 0);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
    fb_json_key(json, "chain");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < o->chain_count; i++) {
        fb_json_object_begin(json);
        fb_json_key_string(json, "boundary", name_of(o, o->chain[i]));
        fb_json_key_string(json, "label", label_name(o, o->chain[i]));
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
    fb_json_key(json, "later");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < v->later_count; i++) fb_json_string(json, name_of(o, o->places.made_by[v->later[i]]));
    fb_json_array_end(json);
    fb_json_key(json, "swallowed");
    fb_json_array_begin(json);
    for (uint32_t node = 0; node < o->places.flow.nodes; node++) {
        if (fb_search_label(o->search, node) == FB_LABEL_KILL) fb_json_string(json, name_of(o, o->places.made_by[node]));
    }
    fb_json_array_end(json);
}

static int print_json(const outcome *o)
{
    const fb_search_verdict *v = o->verdict;
    fb_error err;
    fb_json json;
    int code;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.bisect/1");
    fb_json_key_string(&json, "found", found_name(v->found));
    fb_json_key_string(&json, "reason", reason_name(v->reason));
    fb_json_key_string(&json, "finding", name_of(o, o->finding));
    write_places(o, &json);
    fb_json_key_uint(&json, "reproduced", v->reproduced);
    fb_json_key_uint(&json, "tried", v->tried);
    fb_json_key_uint(&json, "boundaries", o->places.count);
    fb_json_key_uint(&json, "answers", v->replays);
    fb_json_key_uint(&json, "runs", o->asker.runs);
    fb_json_object_end(&json);
    code = fb_json_finish(&json, &err) != FB_OK ? cli_fail(&err) : cli_print(fb_json_text(&json));
    fb_json_release(&json);
    return code ? code : cli_print("\n");
}

static int print(const outcome *o)
{
    int code = o->options->json ? print_json(o) : print_text(o);
    if (code) return code;
    switch (o->verdict->found) {
    case FB_FOUND_NODE:
    case FB_FOUND_SET:
    case FB_FOUND_ENTRY: return CLI_BAD;
    case FB_FOUND_NOT_REPRODUCED: return CLI_CLEAN;
    default: return CLI_UNDECIDED;
    }
}

/* ---- the search -------------------------------------------------------------------------------------------------------------- */

static fb_status choose_finding(outcome *o, fb_error *err)
{
    const char *name = o->options->finding;
    o->finding = name ? places_find(&o->places, name) : o->places.count - 1;
    if (o->finding == FB_FLOW_NONE) return fb_fail(err, FB_E_USAGE, "take --finding: there is no boundary '%.80s'", name);
    return FB_OK;
}

/* The chain of the first candidate that has a certain one. */
static fb_status find_chain(outcome *o, fb_error *err)
{
    const fb_search_verdict *v = o->verdict;
    if (!(o->chain = fb_calloc(o->places.count, sizeof *o->chain))) return fb_fail(err, FB_E_NOMEM, "write the chain: no memory");
    for (uint32_t i = 0; i < v->count && o->chain_count == 0; i++) {
        if (v->candidates[i].tensor == FB_FLOW_NONE) continue;
        o->chain_count = fb_search_chain(o->search, v->candidates[i].tensor, o->chain, o->places.count);
    }
    return FB_OK;
}

static fb_status search(outcome *o, fb_error *err)
{
    const bisect_any_options *options = o->options;
    fb_search_options how = {0};
    fb_status status =
        options->boundaries ? places_read(&o->places, options->boundaries, err) : places_number(&o->places, options->count, err);
    if (status == FB_OK) status = choose_finding(o, err);
    if (status != FB_OK) return status;
    o->asks = (asker_options){options->command, options->log, options->resume, !options->json};
    how.finding = o->finding;
    how.strategy = options->sweep ? FB_SEARCH_SWEEP : FB_SEARCH_BISECT;
    how.one_bit = options->groups;
    how.probes_max = options->groups ? options->probes_max : 1;
    how.replays_max = options->runs_max;
    if ((status = fb_search_open(&o->search, &o->places.flow, &how, err)) != FB_OK) return status;
    if ((status = asker_open(&o->asker, &o->asks, &o->places, err)) != FB_OK) return status;
    status = fb_search_run(o->search, asker_answer, &o->asker, err);
    if (status != FB_OK) return status;
    o->verdict = fb_search_result(o->search);
    return find_chain(o, err);
}

int bisect_any(const bisect_any_options *options)
{
    outcome o;
    fb_error err;
    int code;
    memset(&o, 0, sizeof o);
    o.options = options;
    process_catch_interrupts();
    process_no_input();
    if (search(&o, &err) == FB_OK) code = print(&o);
    else code = cli_fail(&err);
    if (process_interrupted()) code = 128 + process_interrupted();
    asker_close(&o.asker);
    fb_search_free(o.search);
    places_release(&o.places);
    fb_free(o.chain);
    return code;
}
