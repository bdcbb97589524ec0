/* locate.json, written. Its keys stand in docs/format/locate.md in the order in which they are written here. */
#include "locate/locate_json.h"

#include <string.h>

#include "evidence/site.h"
#include "locate/cause_inside.h"
#include "search/minimise.h"

/* ---- small things ------------------------------------------------------------------------------------------------------------ */

static void key_text(fb_json *json, const char *key, const char *text)
{
    fb_json_key(json, key);
    fb_json_string(json, text && text[0] ? text : NULL);
}

static void key_known(fb_json *json, const char *key, int64_t value, int known)
{
    if (known) fb_json_key_int(json, key, value);
    else fb_json_key_null(json, key);
}

static void key_boundary(fb_json *json, int32_t boundary)
{
    key_text(json, "boundary", boundary >= FB_ENTRY && boundary <= FB_CHECKPOINT ? fb_boundary_name(boundary) : NULL);
}

static void key_kind(fb_json *json, int32_t kind)
{
    key_text(json, "kind", kind > FB_KIND_NONE && kind <= FB_KIND_DOMAIN ? fb_kind_name(kind) : NULL);
}

static void links(fb_json *json, const char *key, const fb_witness_place *places, uint32_t count)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) fb_evidence_link(json, &places[i]);
    fb_json_array_end(json);
}

typedef struct folder_names {
    const char *run, *of_case;
    size_t run_bytes, case_bytes; /* 0: unknown */
} folder_names;

/* The names in a path RUN/cases/CASE, or below it; anything else has neither. */
static folder_names names_in(const char *folder)
{
    static const char between[] = "/cases/";
    const char *cases = NULL, *end;
    folder_names names = {NULL, NULL, 0, 0};
    for (const char *at = strstr(folder, between); at; at = strstr(at + 1, between)) cases = at;
    if (!cases || cases == folder || !cases[strlen(between)]) return names;
    for (names.run = cases; names.run > folder && names.run[-1] != '/';) names.run--;
    names.run_bytes = (size_t)(cases - names.run);
    names.of_case = cases + strlen(between);
    end = strchr(names.of_case, '/');
    names.case_bytes = end ? (size_t)(end - names.of_case) : strlen(names.of_case);
    return names;
}

static void key_name(fb_json *json, const char *key, const char *given, const char *other, size_t other_bytes)
{
    fb_json_key(json, key);
    if (given && given[0]) fb_json_string(json, given);
    else if (other_bytes) fb_json_string_bytes(json, other, other_bytes);
    else fb_json_null(json);
}

/* What the caller says wins: the folder may be a copy, or have been renamed. */
static void run_and_case(fb_json *json, const fb_locate_config *config)
{
    folder_names names = names_in(config->folder);
    key_name(json, "run_id", config->run_id, names.run, names.run_bytes);
    key_name(json, "case", config->case_id, names.of_case, names.case_bytes);
}

/* ---- the parts, in their order ----------------------------------------------------------------------------------------------- */

static void finding(fb_json *json, const fb_locate_doc *doc)
{
    const fb_locate_config *c = doc->config;
    uint32_t id = doc->witness ? doc->witness->finding : FB_WITNESS_NONE;
    fb_json_key(json, "finding");
    fb_json_object_begin(json);
    fb_json_key_int(json, "rank", c->finding_rank);
    key_boundary(json, c->finding_boundary);
    fb_json_key_string(json, "module", c->finding_module ? c->finding_module : "");
    fb_json_key_string(json, "tensor", c->finding_tensor ? c->finding_tensor : "");
    fb_json_key_int(json, "micro_step", c->finding_micro_step);
    key_kind(json, c->finding_kind);
    key_known(json, "tensor_id", id, id != FB_WITNESS_NONE);
    fb_json_object_end(json);
}

static void indices(fb_json *json, const fb_witness_tensor *out, uint64_t flat)
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = fb_has_shape(out) ? fb_site_unravel(out->shape, out->ndim, flat, index) : 0;
    fb_json_key(json, "index");
    fb_json_array_begin(json);
    for (int32_t i = 0; i < n; i++) fb_json_int(json, index[i]);
    if (n == 0) fb_json_uint(json, flat);
    fb_json_array_end(json);
    fb_json_key(json, "shape");
    fb_json_array_begin(json);
    for (int32_t i = 0; i < out->ndim; i++) fb_json_int(json, out->shape[i]);
    fb_json_array_end(json);
}

static int is_located(int32_t found)
{
    return found == FB_LOCATED_OPERATOR || found == FB_LOCATED_SET || found == FB_LOCATED_ENTRY;
}

static void location(fb_json *json, const fb_locate_doc *doc)
{
    const fb_witness *w = doc->witness;
    const fb_locate_result *r = doc->result;
    const fb_witness_tensor *out = w && w->bad_output < w->output_count ? &w->outputs[w->bad_output] : NULL;
    const fb_witness_place *place = w ? &w->place : NULL;
    fb_json_key(json, "location");
    if (!place || !is_located(r->found)) {
        fb_json_null(json);
        return;
    }
    if (r->found == FB_LOCATED_ENTRY && w->candidate_count) place = &w->candidates[0];
    fb_json_object_begin(json);
    key_boundary(json, place->boundary);
    key_known(json, "micro_step", place->micro_step, place->micro_step >= 0);
    key_known(json, "rank", r->owner, r->owner >= 0);
    fb_json_key_string(json, "module", place->module);
    key_text(json, "operator", place->entry || r->found == FB_LOCATED_ENTRY ? NULL : place->op);
    key_text(json, "node", r->found == FB_LOCATED_ENTRY ? NULL : place->node);
    fb_json_key_string(json, "tensor", place->tensor);
    key_text(json, "source", place->source);
    if (out && w->bad_index < out->count) {
        indices(json, out, w->bad_index);
        fb_evidence_key_format(json, "dtype", out->format);
        key_kind(json, w->bad_kind);
        fb_json_key_uint(json, "bad", out->stats.nan + out->stats.pos_inf + out->stats.neg_inf);
        fb_json_key_uint(json, "elements", out->count);
    } else {
        static const char *const unknown[] = {"index", "shape", "dtype", "kind", "bad", "elements"};
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) fb_json_key_null(json, unknown[i]);
    }
    fb_json_object_end(json);
}

static void interval(fb_json *json, const fb_locate_doc *doc)
{
    const fb_witness *w = doc->witness;
    fb_json_key(json, "interval");
    if (!w || doc->result->found != FB_LOCATED_INTERVAL || w->candidate_count == 0) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key(json, "first");
    fb_evidence_link(json, &w->candidates[0]);
    fb_json_key(json, "last");
    fb_evidence_link(json, &w->candidates[w->candidate_count - 1]);
    fb_json_object_end(json);
}

static void replay(fb_json *json, const fb_locate_doc *doc)
{
    const fb_locate_result *r = doc->result;
    fb_json_key(json, "replay");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "attempts", r->tried);
    fb_json_key_uint(json, "reproduced", r->reproduced);
    fb_json_key_bool(json, "faithful", r->faithful != 0);
    fb_json_key(json, "differences");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < doc->difference_count; i++) fb_json_string(json, doc->differences[i]);
    fb_json_array_end(json);
    fb_json_key(json, "other_ranks");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "tried", r->other_ranks_tried);
    fb_json_key_uint(json, "bad", r->other_ranks_bad);
    fb_json_object_end(json);
    fb_json_key(json, "persists_fp32");
    if (r->persists < 0) fb_json_null(json);
    else fb_json_bool(json, r->persists);
    fb_json_object_end(json);
}

static void cause(fb_json *json, const fb_cause *c)
{
    const fb_cause_class *class_of;
    fb_json_key(json, "cause");
    if (!c) {
        fb_json_null(json);
        return;
    }
    class_of = fb_cause_class_of(c->class_number);
    fb_json_object_begin(json);
    fb_json_key_string(json, "class", class_of->name);
    fb_json_key_string(json, "rule", fb_rule_name(c->rule));
    fb_json_key_string(json, "lies_in", class_of->lies_in);
    fb_json_key_bool(json, "certain", c->certain);
    fb_json_key_string(json, "explanation", c->explanation);
    key_text(json, "witness", c->witness);
    fb_json_key_string(json, "fix", c->fix);
    fb_json_key_string(json, "verify", c->verify);
    if (c->has_value) {
        fb_evidence_key_number(json, "value", c->value);
        fb_evidence_key_number(json, "limit", c->limit);
    } else {
        fb_json_key_null(json, "value");
        fb_json_key_null(json, "limit");
    }
    fb_evidence_key_format(json, "format", c->format);
    fb_evidence_key_format(json, "format_needed", c->format_needed);
    key_known(json, "row", c->row, c->row >= 0);
    key_known(json, "sample", c->sample, c->sample >= 0);
    key_known(json, "sample_id", c->sample_id, c->sample_id >= 0);
    fb_json_object_end(json);
}

static const char *minimise_name(int32_t state)
{
    switch (state) {
    case FB_MINIMISE_MINIMAL: return "minimal";
    case FB_MINIMISE_BUDGET: return "budget";
    case FB_MINIMISE_WHOLE: return "whole";
    case FB_MINIMISE_NOT_REPRODUCED: return "not_reproduced";
    default: return "undecided";
    }
}

/* Runs of tokens that stay, row by row: [row, first, last]. */
static void spans(fb_json *json, const fb_locate_doc *doc)
{
    const fb_locate_result *r = doc->result;
    uint32_t columns = doc->config->columns;
    fb_json_key(json, "spans");
    fb_json_array_begin(json);
    for (uint32_t i = 0; r->keep && r->rows && i < r->rows_needed; i++) {
        const uint8_t *keep = r->keep + (size_t)i * columns;
        for (uint32_t t = 0; t < columns;) {
            uint32_t first = t;
            if (!keep[t]) {
                t++;
                continue;
            }
            while (t < columns && keep[t]) t++;
            fb_json_array_begin(json);
            fb_json_uint(json, r->rows[i]);
            fb_json_uint(json, first);
            fb_json_uint(json, t - 1);
            fb_json_array_end(json);
        }
    }
    fb_json_array_end(json);
}

static void minimise(fb_json *json, const fb_locate_doc *doc)
{
    const fb_locate_config *c = doc->config;
    const fb_locate_result *r = doc->result;
    fb_json_key(json, "minimise");
    if (doc->minimised == FB_MINIMISE_NONE) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_string(json, "state", minimise_name(doc->minimised));
    fb_json_key_uint(json, "rows", c->rows);
    fb_json_key_uint(json, "columns", c->columns);
    fb_json_key_uint(json, "rows_needed", r->rows_needed);
    fb_json_key(json, "rows_kept");
    fb_json_array_begin(json);
    for (uint32_t i = 0; r->rows && i < r->rows_needed; i++) fb_json_uint(json, r->rows[i]);
    fb_json_array_end(json);
    fb_json_key(json, "sample_ids");
    fb_json_array_begin(json);
    for (uint32_t i = 0; r->rows && c->sample_ids && i < r->rows_needed; i++) {
        if (r->rows[i] < c->rows) fb_json_int(json, c->sample_ids[r->rows[i]]);
    }
    fb_json_array_end(json);
    fb_json_key_uint(json, "tokens_needed", r->tokens_needed);
    spans(json, doc);
    fb_json_key_bool(json, "coupled", r->rows_needed > 1);
    fb_json_key(json, "rest_reproduces");
    if (r->rows_alone) fb_json_bool(json, r->rows_alone < 0);
    else fb_json_null(json);
    fb_json_key_uint(json, "tests", doc->minimise_tests);
    fb_json_object_end(json);
}

static void cost(fb_json *json, const fb_locate_doc *doc)
{
    fb_json_key(json, "cost");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "replays", doc->result->replays);
    fb_json_key_uint(json, "search_replays", doc->result->search_replays);
    fb_json_key_double(json, "seconds", (double)doc->result->nanoseconds / 1e9);
    fb_json_key_string(json, "strategy", doc->config->strategy == FB_LOCATE_BISECT ? "bisect" : "sweep");
    fb_json_object_end(json);
}

static void evidence(fb_json *json, const fb_evidence *of)
{
    fb_json_key(json, "evidence");
    fb_json_object_begin(json);
    fb_json_key(json, "files");
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < of->count; i++) {
        fb_json_object_begin(json);
        fb_json_key_string(json, "name", of->files[i].name);
        fb_json_key_uint(json, "bytes", of->files[i].bytes);
        fb_json_key_hex(json, "xxh3", of->files[i].xxh3, 16);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
    fb_json_key_uint(json, "sliced", of->sliced);
    fb_json_object_end(json);
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static void document(fb_json *json, const fb_locate_doc *doc, const fb_evidence *files, const char *notes)
{
    const fb_locate_config *c = doc->config;
    const fb_witness *w = doc->witness;
    fb_json_object_begin(json);
    fb_json_key_string(json, "schema", "firstbad.locate/1");
    run_and_case(json, c);
    fb_json_key_int(json, "step", c->step);
    fb_json_key_int(json, "world", c->world);
    fb_json_key_int(json, "rank", c->rank);
    key_text(json, "precision", c->precision);
    fb_json_key_bool(json, "first_step_of_attempt", c->first_step_of_attempt != 0);
    finding(json, doc);
    fb_json_key_string(json, "found", fb_located_name(doc->result->found));
    key_text(json, "sentence", doc->result->sentence);
    location(json, doc);
    links(json, "candidates", w ? w->candidates : NULL, w ? w->candidate_count : 0);
    interval(json, doc);
    links(json, "chain", w ? w->chain : NULL, w ? w->chain_count : 0);
    links(json, "swallowed", w ? w->swallowed : NULL, w ? w->swallowed_count : 0);
    links(json, "later", w ? w->later : NULL, w ? w->later_count : 0);
    replay(json, doc);
    cause(json, doc->cause);
    minimise(json, doc);
    cost(json, doc);
    evidence(json, files);
    key_text(json, "notes", notes);
    fb_json_object_end(json);
}

static fb_status is_free(const fb_os *os, const char *folder, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_status status = fb_os_join(path, sizeof path, folder, "locate.json", err);
    if (status == FB_OK && os->stat(os->ctx, path, &info) >= 0) {
        return fb_fail(err, FB_E_EXISTS, "write %s: there is one already, and what was concluded first is never replaced", path);
    }
    return status;
}

fb_status fb_locate_write(const fb_os *os, const fb_locate_doc *doc, fb_error *err)
{
    fb_evidence files = {0};
    fb_error why;
    fb_json json;
    char notes[1024] = "";
    uint32_t parts;
    fb_status status;
    if (!doc || !doc->config || !doc->result)
        return fb_fail(err, FB_E_USAGE, "write locate.json: a configuration and a result are needed");
    if (!doc->config->folder) return FB_OK;
    if ((status = is_free(os, doc->config->folder, err)) != FB_OK) return status;
    parts = doc->config->parts ? doc->config->parts : (uint32_t)FB_LOCATE_ALL;
    if (doc->notes) fb_say(notes, sizeof notes, "%s", doc->notes);
    if ((parts & FB_LOCATE_EVIDENCE) && doc->witness && doc->witness->output_count) {
        status = fb_evidence_write(os, doc->config->folder, doc->witness, doc->config->evidence_bytes_max, &files, &why);
        if (status != FB_OK) fb_say(notes, sizeof notes, "%sThe evidence is not whole: %s", notes[0] ? " " : "", why.message);
    }
    fb_json_init(&json, 1);
    document(&json, doc, &files, notes);
    status = fb_json_finish(&json, err);
    if (status == FB_OK) status = fb_os_put_new(os, doc->config->folder, "locate.json", fb_json_text(&json), json.used, err);
    fb_json_release(&json);
    return status;
}
