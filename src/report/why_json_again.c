/*
 * What replays told, as JSON: the place, how often it came back, why, and which samples to leave out.
 */
#include "report/why_json.h"

#include <string.h>

#include "evidence/case_json.h"
#include "evidence/site.h"
#include "report/inside.h"
#include "report/say.h"
#include "search/bisect.h"
#include "search/minimise.h"

void fb_json_int_or_null(fb_json *json, const char *key, int64_t value, int known)
{
    fb_json_key(json, key);
    if (known) fb_json_int(json, value);
    else fb_json_null(json);
}

void fb_json_text_or_null(fb_json *json, const char *key, const char *text)
{
    fb_json_key_string(json, key, text[0] ? text : NULL);
}

static void bool_or_null(fb_json *json, const char *key, int32_t value)
{
    fb_json_key(json, key);
    if (value < 0) fb_json_null(json);
    else fb_json_bool(json, value);
}

static void integers(fb_json *json, const char *key, const int64_t *values, uint64_t count)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (uint64_t i = 0; i < count; i++) fb_json_int(json, values[i]);
    fb_json_array_end(json);
}

/* ---- the place --------------------------------------------------------------------------------------------------------------- */

/* The told file that names the operator of this finding; NULL: none does. */
static const fb_told *named(const fb_report *report, const fb_report_finding *finding)
{
    const fb_located *located = report->located;
    if (!located || located->found != FB_LOCATED_OPERATOR) return NULL;
    if (&report->findings[located->place->of] != finding && &report->findings[located->place->explains] != finding) return NULL;
    return located->place;
}

void fb_json_operator(fb_json *json, const fb_report *report, const fb_report_finding *finding)
{
    const fb_told *told = named(report, finding);
    fb_phrase why = {"", 0};
    fb_json_text_or_null(json, "operator", told ? told->file.location.op : "");
    fb_json_text_or_null(json, "operator_node", told ? told->file.location.node : "");
    fb_json_key_string(json, "operator_module", told ? told->file.location.module : NULL);
    if (!told && report->located && report->located->place && report->located->found != FB_LOCATED_OPERATOR)
        fb_why_location(report, &why);
    else if (!told) fb_phrase_add(&why, "operators are named by a replay; this finding was not replayed");
    fb_json_text_or_null(json, "operator_reason", why.text);
    fb_json_text_or_null(json, "source", told ? told->file.location.source : "");
}

static const char *label_name(int32_t label)
{
    static const char *const names[] = {"unknown", "clean", "generate", "propagate", "kill"};
    return label >= FB_LABEL_UNKNOWN && label <= FB_LABEL_KILL ? names[label] : "unknown";
}

static void place_members(fb_json *json, const fb_place *place)
{
    fb_json_text_or_null(json, "operator", place->entry ? "" : place->op);
    fb_json_text_or_null(json, "node", place->node);
    fb_json_key_string(json, "module", place->module);
    fb_json_key_string(json, "tensor", place->tensor);
    fb_json_text_or_null(json, "source", place->source);
    fb_json_text_or_null(json, "boundary", place->boundary ? fb_boundary_name(place->boundary) : "");
    fb_json_text_or_null(json, "direction", fb_direction_name(place));
    fb_json_int_or_null(json, "micro_step", place->micro_step, place->micro_step >= 0);
}

static void links(fb_json *json, const char *key, const fb_locate_links *list, int with_label)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < list->count; i++) {
        fb_place place = fb_place_of(&list->items[i]);
        fb_json_object_begin(json);
        place_members(json, &place);
        if (with_label) fb_json_key_string(json, "label", label_name(list->items[i].label));
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

/* Only with a witness: the place of an operator, or of an entry. */
static void origin(fb_json *json, const fb_told *told, int32_t found)
{
    const fb_locate_file *file = &told->file;
    fb_place place = fb_place_of_origin(told);
    fb_json_key(json, "origin");
    if ((found != FB_LOCATED_OPERATOR && found != FB_LOCATED_ENTRY) || !file->location.known) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    place_members(json, &place);
    fb_json_int_or_null(json, "rank", file->location.rank, file->location.rank >= 0);
    fb_json_text_or_null(json, "kind", file->location.kind > 0 ? fb_kind_name(file->location.kind) : "");
    fb_json_int_or_null(json, "count", (int64_t)file->location.bad, file->location.bad > 0);
    fb_json_int_or_null(json, "elements", (int64_t)file->location.elements, file->location.elements > 0);
    integers(json, "index", file->location.index, (uint64_t)file->location.ndim);
    integers(json, "shape", file->location.shape, (uint64_t)file->location.shape_ndim);
    fb_json_text_or_null(json, "dtype", file->location.format ? fb_dtype_name(file->location.format) : "");
    fb_json_object_end(json);
}

void fb_json_location(fb_json *json, const fb_report *report)
{
    const fb_located *located = report->located;
    const fb_told *told = located ? located->place : NULL;
    static const fb_locate_links nothing;
    int shown = told && !told->doubt[0];
    fb_phrase text = {"", 0};
    fb_json_key(json, "location");
    if (!told) {
        fb_json_null(json);
        return;
    }
    fb_why_location(report, &text);
    fb_json_object_begin(json);
    fb_json_key_string(json, "found", fb_located_name(located->found));
    fb_json_key_string(json, "from", told->from);
    fb_json_key_int(json, "step", told->file.step);
    fb_json_key_string(json, "text", text.text);
    origin(json, told, shown ? located->found : FB_LOCATED_NOTHING);
    links(json, "candidates", shown ? &told->file.candidates : &nothing, 0);
    links(json, "chain", shown ? &told->file.chain : &nothing, 1);
    links(json, "later", shown ? &told->file.later : &nothing, 0);
    fb_json_text_or_null(json, "doubt", told->doubt);
    fb_json_object_end(json);
}

/* ---- again ------------------------------------------------------------------------------------------------------------------- */

static void recorded(fb_json *json, const fb_report *report)
{
    const fb_rec_step *step = &report->spokesman_step;
    uint32_t known = step->known;
    fb_json_key(json, "recorded");
    fb_json_object_begin(json);
    fb_json_int_or_null(json, "global_batch_id", step->global_batch_id, (known & FB_KNOWN_BATCH_ID) != 0);
    integers(json, "sample_ids", step->sample_ids, report->has_spokesman_step ? step->samples : 0);
    fb_json_key_uint(json, "sample_count", report->has_spokesman_step ? step->sample_count : 0);
    fb_json_key(json, "batch_fingerprint");
    if (known & FB_KNOWN_BATCH_FINGERPRINT) fb_json_hex(json, step->batch_fingerprint, 16);
    else fb_json_null(json);
    fb_json_key(json, "rng_state_hash");
    if (known & FB_KNOWN_RNG_HASH) fb_json_hex(json, step->rng_state_hash, 16);
    else fb_json_null(json);
    fb_json_key(json, "learning_rate");
    fb_json_number_or_null(json, step->learning_rate, (known & FB_KNOWN_LEARNING_RATE) != 0);
    fb_json_key(json, "loss_scale");
    fb_json_number_or_null(json, step->loss_scale_before, (known & FB_KNOWN_LOSS_SCALE) != 0);
    fb_json_object_end(json);
}

static void smallest(fb_json *json, const fb_told *told)
{
    const fb_locate_file *file = told ? &told->file : NULL;
    fb_json_key(json, "smallest_batch");
    if (!file) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_uint(json, "samples", file->minimise.rows_needed);
    fb_json_key_uint(json, "of_samples", file->minimise.rows);
    integers(json, "sample_ids", file->minimise.sample_ids, file->minimise.sample_count);
    fb_json_int_or_null(json, "tokens", file->minimise.tokens_needed, file->minimise.tokens_needed > 0);
    fb_json_key_bool(json, "together", file->minimise.coupled);
    fb_json_key(json, "others_too");
    if (file->minimise.rest_shows < 0) fb_json_null(json);
    else fb_json_bool(json, file->minimise.rest_shows);
    fb_json_key_bool(json, "minimal", file->minimise.state != FB_MINIMISE_BUDGET);
    fb_json_key_string(json, "from", told->from);
    fb_json_key_bool(json, "faithful", fb_told_is_faithful(told));
    fb_json_object_end(json);
}

static void bundle(fb_json *json, const fb_report *report)
{
    static const char *const names[] = {"absent", "not_sealed", "sealed", "not_read", "refused", "unreadable"};
    const fb_located *located = report->located;
    char path[FB_OS_PATH_MAX] = "";
    fb_phrase text = {"", 0};
    int32_t state = located ? located->bundle.state : FB_BUNDLE_ABSENT;
    fb_why_bundle(report, &text);
    if (state != FB_BUNDLE_ABSENT) (void)fb_os_join(path, sizeof path, report->case_folder, "bundle", NULL);
    fb_json_text_or_null(json, "bundle", path);
    fb_json_key_string(json, "bundle_state", names[state]);
    fb_json_text_or_null(json, "bundle_reason", text.text);
    fb_json_key_uint(json, "bundle_left_out", located ? located->bundle.left_out : 0);
    path[0] = '\0';
    if (located && located->minimal.state != FB_BUNDLE_ABSENT)
        (void)fb_os_join(path, sizeof path, report->case_folder, "bundle-min", NULL);
    fb_json_text_or_null(json, "minimal_bundle", path);
}

static void differences(fb_json *json, const fb_locate_file *file)
{
    fb_json_key(json, "differences");
    fb_json_array_begin(json);
    for (uint32_t i = 0; file && i < file->replay.difference_count; i++) fb_json_string(json, file->replay.differences[i]);
    fb_json_array_end(json);
}

static void other_ranks(fb_json *json, const fb_told *told, int with_teller)
{
    fb_json_key(json, "other_ranks");
    if (!told || !told->file.replay.other_tried) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_uint(json, "tried", told->file.replay.other_tried);
    fb_json_key_uint(json, "bad", told->file.replay.other_bad);
    if (with_teller) fb_json_key_string(json, "from", told->from);
    fb_json_object_end(json);
}

/* One that was not faithful, with all that it told and how it differs. */
static void apart(fb_json *json, const fb_told *told)
{
    fb_json_key(json, "not_faithful");
    if (!told) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_string(json, "from", told->from);
    fb_json_key_uint(json, "attempts", told->file.replay.tried);
    fb_json_key_uint(json, "reproduced", told->file.replay.reproduced);
    differences(json, &told->file);
    bool_or_null(json, "persists_fp32", told->file.replay.persists);
    other_ranks(json, told, 0);
    fb_json_object_end(json);
}

void fb_json_replay(fb_json *json, const fb_report *report)
{
    const fb_located *located = report->located;
    const fb_locate_file *file = located && located->replay ? &located->replay->file : NULL;
    const char *why = located && located->nothing_why[0] ? located->nothing_why : "not attempted";
    char command[128];
    fb_json_key(json, "replay");
    if (!report->has_case) {
        fb_json_null(json);
        return;
    }
    fb_replay_command(report, command, sizeof command);
    fb_json_object_begin(json);
    bundle(json, report);
    fb_json_key_uint(json, "attempts", file ? file->replay.tried : 0);
    fb_json_int_or_null(json, "reproduced", file ? file->replay.reproduced : 0, file != NULL);
    bool_or_null(json, "faithful", file ? file->replay.faithful : -1);
    differences(json, file);
    fb_json_key_string(json, "reason", file ? NULL : why);
    fb_json_key_string(json, "from", file ? located->replay->from : NULL);
    bool_or_null(json, "persists_fp32", located && located->precision ? located->precision->file.replay.persists : -1);
    fb_json_key_string(json, "persists_fp32_from", located && located->precision ? located->precision->from : NULL);
    other_ranks(json, located ? located->others : NULL, 1);
    apart(json, located ? located->apart : NULL);
    smallest(json, located ? located->batch : NULL);
    fb_json_text_or_null(json, "command", command);
    recorded(json, report);
    fb_json_object_end(json);
}

/* ---- why, and what to leave out ---------------------------------------------------------------------------------------------- */

void fb_json_cause(fb_json *json, const fb_report *report)
{
    fb_cause_words words = fb_cause_words_of(report);
    const fb_locate_file *file = report->located && report->located->cause_told ? &report->located->place->file : NULL;
    fb_json_key(json, "cause");
    if (!report->has_case) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_string(json, "class", words.name);
    fb_json_key_string(json, "explanation", words.explanation);
    fb_json_text_or_null(json, "witness", words.witness);
    fb_json_text_or_null(json, "fix", words.fix);
    fb_json_text_or_null(json, "verify", words.verify);
    fb_json_text_or_null(json, "injection", report->injected_text);
    fb_json_key_string(json, "rule", file ? fb_rule_name(file->cause.rule) : NULL);
    fb_json_text_or_null(json, "lies_in", file ? file->cause.lies_in : "");
    bool_or_null(json, "certain", file ? file->cause.certain : -1);
    fb_json_key_string(json, "from", file ? report->located->place->from : NULL);
    fb_json_object_end(json);
}

void fb_json_skip_samples(fb_json *json, const fb_report *report)
{
    const int64_t *ids;
    uint64_t kept, count;
    char command[128];
    fb_skip_samples(report, &ids, &kept, &count);
    fb_leave_out_command(report, command, sizeof command);
    integers(json, "skip_samples", ids, kept);
    fb_json_text_or_null(json, "leave_out", command);
}
