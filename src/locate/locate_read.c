/*
 * locate.json, read. The file may be torn, written by somebody else, or meant to harm: every text is cut to its place, every list
 * is bounded, every number must fit, and a member of the wrong kind refuses the file by name. Keys that are not known are passed
 * over.
 */
#include <string.h>

#include "base/alloc.h"
#include "evidence/site.h"
#include "locate/locate_take.h"
#include "search/bisect.h"
#include "search/minimise.h"

enum { DIFFERENCES_MAX = 256, DIFFERENCE_BYTES_MAX = 1024 };

/* ---- links ------------------------------------------------------------------------------------------------------------------- */

static fb_status link_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_link *link = of;
    *known = 1;
    if (strcmp(key, "operator") == 0) return fb_locate_take_text(r, key, link->op, sizeof link->op);
    if (strcmp(key, "node") == 0) return fb_locate_take_text(r, key, link->node, sizeof link->node);
    if (strcmp(key, "module") == 0) return fb_locate_take_text(r, key, link->module, sizeof link->module);
    if (strcmp(key, "tensor") == 0) return fb_locate_take_text(r, key, link->tensor, sizeof link->tensor);
    if (strcmp(key, "source") == 0) return fb_locate_take_text(r, key, link->source, sizeof link->source);
    if (strcmp(key, "boundary") == 0)
        return fb_locate_take_name(r, key, fb_boundary_name, FB_ENTRY, FB_CHECKPOINT, 0, &link->boundary);
    if (strcmp(key, "micro_step") == 0) return fb_locate_take_int32(r, key, 0, -1, &link->micro_step);
    if (strcmp(key, "label") == 0)
        return fb_locate_take_name(r, key, fb_label_name, FB_LABEL_CLEAN, FB_LABEL_KILL, FB_LABEL_UNKNOWN, &link->label);
    if (strcmp(key, "entry") == 0) return fb_locate_take_bool(r, key, 0, &link->entry);
    if (strcmp(key, "made") == 0) return fb_locate_take_integer(r, key, 0, INT64_MAX, -1, &link->made);
    if (strcmp(key, "reads") == 0) return fb_locate_take_integer(r, key, 0, INT64_MAX, -1, &link->reads);
    *known = 0;
    return FB_OK;
}

static fb_status take_links(fb_reading *r, const char *key, fb_locate_links *links)
{
    fb_json_token token;
    int there;
    fb_status status = fb_locate_take_list(r, key, &there);
    if (status == FB_OK && links->total)
        return fb_locate_take_wrong(r, &(fb_json_token){.offset = r->json.at}, key, "there once only");
    while (status == FB_OK && there) {
        fb_locate_link *link;
        if ((status = fb_locate_take_item(r, &token, &there)) != FB_OK || !there) break;
        if (token.type != FB_JSON_OBJECT) return fb_locate_take_wrong(r, &token, key, "a list of objects");
        links->total++;
        if (links->count == FB_LOCATE_LINKS_MAX) {
            status = fb_json_skip_rest(&r->json, &token, r->err);
            continue;
        }
        link = fb_locate_take_room(links->items, links->count, sizeof *link);
        if (!link) {
            if (links->count == 0) links->items = NULL;
            return fb_locate_take_no_memory(r);
        }
        links->items = link;
        link = &links->items[links->count++];
        memset(link, 0, sizeof *link);
        link->micro_step = -1;
        link->made = link->reads = -1;
        status = fb_locate_take_members(r, link_member, link);
    }
    return status;
}

/* ---- the objects ------------------------------------------------------------------------------------------------------------- */

static fb_status finding_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    *known = 1;
    if (strcmp(key, "rank") == 0) return fb_locate_take_int32(r, key, 0, 0, &f->finding.rank);
    if (strcmp(key, "boundary") == 0)
        return fb_locate_take_name(r, key, fb_boundary_name, FB_ENTRY, FB_CHECKPOINT, 0, &f->finding.boundary);
    if (strcmp(key, "module") == 0) return fb_locate_take_text(r, key, f->finding.module, sizeof f->finding.module);
    if (strcmp(key, "tensor") == 0) return fb_locate_take_text(r, key, f->finding.tensor, sizeof f->finding.tensor);
    if (strcmp(key, "micro_step") == 0) return fb_locate_take_int32(r, key, 0, 0, &f->finding.micro_step);
    if (strcmp(key, "kind") == 0)
        return fb_locate_take_name(r, key, fb_kind_name, FB_KIND_NAN, FB_KIND_DOMAIN, FB_KIND_NONE, &f->finding.kind);
    if (strcmp(key, "tensor_id") == 0) return fb_locate_take_integer(r, key, 0, INT64_MAX, -1, &f->finding.tensor_id);
    *known = 0;
    return FB_OK;
}

static fb_status location_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    *known = 1;
    if (strcmp(key, "boundary") == 0)
        return fb_locate_take_name(r, key, fb_boundary_name, FB_ENTRY, FB_CHECKPOINT, 0, &f->location.boundary);
    if (strcmp(key, "micro_step") == 0) return fb_locate_take_int32(r, key, 0, -1, &f->location.micro_step);
    if (strcmp(key, "rank") == 0) return fb_locate_take_int32(r, key, 0, -1, &f->location.rank);
    if (strcmp(key, "module") == 0) return fb_locate_take_text(r, key, f->location.module, sizeof f->location.module);
    if (strcmp(key, "operator") == 0) return fb_locate_take_text(r, key, f->location.op, sizeof f->location.op);
    if (strcmp(key, "node") == 0) return fb_locate_take_text(r, key, f->location.node, sizeof f->location.node);
    if (strcmp(key, "tensor") == 0) return fb_locate_take_text(r, key, f->location.tensor, sizeof f->location.tensor);
    if (strcmp(key, "source") == 0) return fb_locate_take_text(r, key, f->location.source, sizeof f->location.source);
    if (strcmp(key, "index") == 0) return fb_locate_take_integers(r, key, f->location.index, FB_DIMS_MAX, &f->location.ndim);
    if (strcmp(key, "shape") == 0) return fb_locate_take_integers(r, key, f->location.shape, FB_DIMS_MAX, &f->location.shape_ndim);
    if (strcmp(key, "dtype") == 0) return fb_locate_take_name(r, key, fb_dtype_name, FB_F64, FB_F6_E3M2, 0, &f->location.format);
    if (strcmp(key, "kind") == 0)
        return fb_locate_take_name(r, key, fb_kind_name, FB_KIND_NAN, FB_KIND_DOMAIN, FB_KIND_NONE, &f->location.kind);
    if (strcmp(key, "bad") == 0) return fb_locate_take_uint64(r, key, &f->location.bad);
    if (strcmp(key, "elements") == 0) return fb_locate_take_uint64(r, key, &f->location.elements);
    *known = 0;
    return FB_OK;
}

static fb_status other_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    *known = 1;
    if (strcmp(key, "tried") == 0) return fb_locate_take_count(r, key, &f->replay.other_tried);
    if (strcmp(key, "bad") == 0) return fb_locate_take_count(r, key, &f->replay.other_bad);
    *known = 0;
    return FB_OK;
}

static fb_status take_differences(fb_reading *r, const char *key, fb_locate_file *f)
{
    fb_json_token token;
    int there;
    fb_status status = fb_locate_take_list(r, key, &there);
    if (status == FB_OK && f->replay.difference_count)
        return fb_locate_take_wrong(r, &(fb_json_token){.offset = r->json.at}, key, "there once only");
    while (status == FB_OK && there) {
        char **items, *text;
        if ((status = fb_locate_take_item(r, &token, &there)) != FB_OK || !there) break;
        if (token.type != FB_JSON_STRING || f->replay.difference_count == DIFFERENCES_MAX)
            return fb_locate_take_wrong(r, &token, key, "a short list of texts");
        items = fb_locate_take_room(f->replay.differences, f->replay.difference_count, sizeof *items);
        if (!items) {
            if (f->replay.difference_count == 0) f->replay.differences = NULL;
            return fb_locate_take_no_memory(r);
        }
        f->replay.differences = items;
        if (!(text = fb_calloc(DIFFERENCE_BYTES_MAX, 1))) return fb_locate_take_no_memory(r);
        items[f->replay.difference_count++] = text;
        status = fb_locate_take_copy(r, &token, text, DIFFERENCE_BYTES_MAX);
    }
    return status;
}

static fb_status replay_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    int32_t there;
    *known = 1;
    if (strcmp(key, "attempts") == 0) return fb_locate_take_count(r, key, &f->replay.tried);
    if (strcmp(key, "reproduced") == 0) return fb_locate_take_count(r, key, &f->replay.reproduced);
    if (strcmp(key, "faithful") == 0) return fb_locate_take_bool(r, key, 0, &f->replay.faithful);
    if (strcmp(key, "differences") == 0) return take_differences(r, key, f);
    if (strcmp(key, "other_ranks") == 0) return fb_locate_take_object(r, key, other_member, f, &there);
    if (strcmp(key, "persists_fp32") == 0) return fb_locate_take_bool(r, key, -1, &f->replay.persists);
    *known = 0;
    return FB_OK;
}

static fb_status cause_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    int32_t there;
    fb_status status;
    *known = 1;
    if (strcmp(key, "class") == 0) {
        status = fb_locate_take_text(r, key, f->cause.name, sizeof f->cause.name);
        f->cause.class_number = fb_cause_class_named(f->cause.name);
        return status;
    }
    if (strcmp(key, "rule") == 0)
        return fb_locate_take_name(r, key, fb_rule_name, FB_RULE_RANGE, FB_RULE_NOT_REPRODUCIBLE, FB_RULE_NONE, &f->cause.rule);
    if (strcmp(key, "lies_in") == 0) return fb_locate_take_text(r, key, f->cause.lies_in, sizeof f->cause.lies_in);
    if (strcmp(key, "certain") == 0) return fb_locate_take_bool(r, key, 0, &f->cause.certain);
    if (strcmp(key, "explanation") == 0) return fb_locate_take_text(r, key, f->cause.explanation, sizeof f->cause.explanation);
    if (strcmp(key, "witness") == 0) return fb_locate_take_text(r, key, f->cause.witness, sizeof f->cause.witness);
    if (strcmp(key, "fix") == 0) return fb_locate_take_text(r, key, f->cause.fix, sizeof f->cause.fix);
    if (strcmp(key, "verify") == 0) return fb_locate_take_text(r, key, f->cause.verify, sizeof f->cause.verify);
    if (strcmp(key, "value") == 0) return fb_locate_take_number(r, key, &f->cause.value, &f->cause.has_value);
    if (strcmp(key, "limit") == 0) return fb_locate_take_number(r, key, &f->cause.limit, &there);
    if (strcmp(key, "format") == 0) return fb_locate_take_name(r, key, fb_dtype_name, FB_F64, FB_F6_E3M2, 0, &f->cause.format);
    if (strcmp(key, "format_needed") == 0)
        return fb_locate_take_name(r, key, fb_dtype_name, FB_F64, FB_F6_E3M2, 0, &f->cause.format_needed);
    if (strcmp(key, "row") == 0) return fb_locate_take_integer(r, key, 0, INT64_MAX, -1, &f->cause.row);
    if (strcmp(key, "sample") == 0) return fb_locate_take_integer(r, key, 0, INT64_MAX, -1, &f->cause.sample);
    if (strcmp(key, "sample_id") == 0) return fb_locate_take_integer(r, key, INT64_MIN, INT64_MAX, -1, &f->cause.sample_id);
    *known = 0;
    return FB_OK;
}

static const char *minimise_name(int32_t state)
{
    static const char *const names[] = {NULL, "minimal", "budget", "whole", "not_reproduced", "undecided"};
    return state > 0 && state < (int32_t)(sizeof names / sizeof *names) ? names[state] : NULL;
}

/* Lists of as many integers as there are rows. */
static fb_status take_ids(fb_reading *r, const char *key, uint32_t **rows, int64_t **ids, uint32_t *count)
{
    fb_json_token token;
    int there;
    fb_status status = fb_locate_take_list(r, key, &there);
    if (status == FB_OK && *count) return fb_locate_take_wrong(r, &(fb_json_token){.offset = r->json.at}, key, "there once only");
    while (status == FB_OK && there) {
        void *items;
        if ((status = fb_locate_take_item(r, &token, &there)) != FB_OK || !there) break;
        if (token.type != FB_JSON_INT || *count == FB_LOCATE_ROWS_MAX || (rows && (token.i < 0 || token.i > UINT32_MAX))) {
            return fb_locate_take_wrong(r, &token, key, "a list of row numbers");
        }
        items = fb_locate_take_room(rows ? (void *)*rows : (void *)*ids, *count, rows ? sizeof **rows : sizeof **ids);
        if (!items) {
            if (*count == 0 && rows) *rows = NULL;
            if (*count == 0 && ids) *ids = NULL;
            return fb_locate_take_no_memory(r);
        }
        if (rows) {
            *rows = items;
            (*rows)[(*count)++] = (uint32_t)token.i;
        } else {
            *ids = items;
            (*ids)[(*count)++] = token.i;
        }
    }
    return status;
}

static fb_status take_spans(fb_reading *r, const char *key, fb_locate_file *f)
{
    fb_json_token token;
    int there;
    fb_status status = fb_locate_take_list(r, key, &there);
    if (status == FB_OK && f->minimise.span_count)
        return fb_locate_take_wrong(r, &(fb_json_token){.offset = r->json.at}, key, "there once only");
    while (status == FB_OK && there) {
        int64_t(*items)[3];
        int inside = 1;
        if ((status = fb_locate_take_item(r, &token, &there)) != FB_OK || !there) break;
        if (token.type != FB_JSON_ARRAY || f->minimise.span_count == FB_LOCATE_ROWS_MAX)
            return fb_locate_take_wrong(r, &token, key, "a list of spans");
        items = fb_locate_take_room(f->minimise.spans, f->minimise.span_count, sizeof *items);
        if (!items) {
            if (f->minimise.span_count == 0) f->minimise.spans = NULL;
            return fb_locate_take_no_memory(r);
        }
        f->minimise.spans = items;
        for (int i = 0; i < 3; i++) {
            if ((status = fb_locate_take_item(r, &token, &inside)) != FB_OK) return status;
            if (!inside || token.type != FB_JSON_INT || token.i < 0)
                return fb_locate_take_wrong(r, &token, key, "a list of three integers each");
            items[f->minimise.span_count][i] = token.i;
        }
        f->minimise.span_count++;
        if ((status = fb_locate_take_item(r, &token, &inside)) != FB_OK) return status;
        if (inside) return fb_locate_take_wrong(r, &token, key, "a list of three integers each");
    }
    return status;
}

static fb_status minimise_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    *known = 1;
    if (strcmp(key, "state") == 0) {
        return fb_locate_take_name(r, key, minimise_name, FB_MINIMISE_MINIMAL, FB_MINIMISE_UNDECIDED, FB_MINIMISE_UNDECIDED,
                                   &f->minimise.state);
    }
    if (strcmp(key, "rows") == 0) return fb_locate_take_count(r, key, &f->minimise.rows);
    if (strcmp(key, "columns") == 0) return fb_locate_take_count(r, key, &f->minimise.columns);
    if (strcmp(key, "rows_needed") == 0) return fb_locate_take_count(r, key, &f->minimise.rows_needed);
    if (strcmp(key, "tokens_needed") == 0) return fb_locate_take_count(r, key, &f->minimise.tokens_needed);
    if (strcmp(key, "tests") == 0) return fb_locate_take_count(r, key, &f->minimise.tests);
    if (strcmp(key, "coupled") == 0) return fb_locate_take_bool(r, key, 0, &f->minimise.coupled);
    if (strcmp(key, "rest_reproduces") == 0) return fb_locate_take_bool(r, key, -1, &f->minimise.rest_shows);
    if (strcmp(key, "rows_kept") == 0) return take_ids(r, key, &f->minimise.rows_kept, NULL, &f->minimise.kept_count);
    if (strcmp(key, "sample_ids") == 0) return take_ids(r, key, NULL, &f->minimise.sample_ids, &f->minimise.sample_count);
    if (strcmp(key, "spans") == 0) return take_spans(r, key, f);
    *known = 0;
    return FB_OK;
}

static fb_status cost_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    int32_t there;
    *known = 1;
    if (strcmp(key, "replays") == 0) return fb_locate_take_count(r, key, &f->cost.replays);
    if (strcmp(key, "search_replays") == 0) return fb_locate_take_count(r, key, &f->cost.search_replays);
    if (strcmp(key, "seconds") == 0) return fb_locate_take_number(r, key, &f->cost.seconds, &there);
    if (strcmp(key, "strategy") == 0) return fb_locate_take_text(r, key, f->cost.strategy, sizeof f->cost.strategy);
    *known = 0;
    return FB_OK;
}

static fb_status file_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_evidence_file *file = of;
    *known = 1;
    if (strcmp(key, "name") == 0) return fb_locate_take_text(r, key, file->name, sizeof file->name);
    if (strcmp(key, "bytes") == 0) return fb_locate_take_uint64(r, key, &file->bytes);
    if (strcmp(key, "xxh3") == 0) return fb_locate_take_hash(r, key, &file->xxh3);
    *known = 0;
    return FB_OK;
}

static fb_status evidence_member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_evidence *evidence = of;
    fb_json_token token;
    fb_status status;
    int there;
    *known = 1;
    if (strcmp(key, "sliced") == 0) return fb_locate_take_count(r, key, &evidence->sliced);
    if (strcmp(key, "files") != 0) {
        *known = 0;
        return FB_OK;
    }
    status = fb_locate_take_list(r, key, &there);
    while (status == FB_OK && there) {
        if ((status = fb_locate_take_item(r, &token, &there)) != FB_OK || !there) break;
        if (token.type != FB_JSON_OBJECT || evidence->count == FB_EVIDENCE_FILES_MAX)
            return fb_locate_take_wrong(r, &token, key, "a short list of objects");
        status = fb_locate_take_members(r, file_member, &evidence->files[evidence->count++]);
    }
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static fb_status member(fb_reading *r, const char *key, void *of, int *known)
{
    fb_locate_file *f = of;
    char schema[FB_TAKE_KEY_MAX];
    fb_status status;
    int32_t there;
    *known = 1;
    if (strcmp(key, "schema") == 0) {
        if ((status = fb_locate_take_text(r, key, schema, sizeof schema)) != FB_OK) return status;
        if (strcmp(schema, "firstbad.locate/1") != 0) {
            return fb_fail_at(r->err, r->json.at, "locate.json: expected the schema firstbad.locate/1, found \"%s\"", schema);
        }
        r->has_schema = 1;
        return FB_OK;
    }
    if (strcmp(key, "run_id") == 0) return fb_locate_take_text(r, key, f->run_id, sizeof f->run_id);
    if (strcmp(key, "case") == 0) return fb_locate_take_text(r, key, f->case_id, sizeof f->case_id);
    if (strcmp(key, "step") == 0) return fb_locate_take_integer(r, key, INT64_MIN, INT64_MAX, 0, &f->step);
    if (strcmp(key, "world") == 0) return fb_locate_take_int32(r, key, 0, 0, &f->world);
    if (strcmp(key, "rank") == 0) return fb_locate_take_int32(r, key, 0, 0, &f->rank);
    if (strcmp(key, "precision") == 0) return fb_locate_take_text(r, key, f->precision, sizeof f->precision);
    if (strcmp(key, "found") == 0) {
        r->has_found = 1;
        return fb_locate_take_name(r, key, fb_located_name, FB_LOCATED_NOTHING, FB_LOCATED_UNDECIDED, FB_LOCATED_UNDECIDED,
                                   &f->found);
    }
    if (strcmp(key, "sentence") == 0) return fb_locate_take_text(r, key, f->sentence, sizeof f->sentence);
    if (strcmp(key, "finding") == 0) return fb_locate_take_object(r, key, finding_member, f, &there);
    if (strcmp(key, "location") == 0) return fb_locate_take_object(r, key, location_member, f, &f->location.known);
    if (strcmp(key, "candidates") == 0) return take_links(r, key, &f->candidates);
    if (strcmp(key, "chain") == 0) return take_links(r, key, &f->chain);
    if (strcmp(key, "swallowed") == 0) return take_links(r, key, &f->swallowed);
    if (strcmp(key, "later") == 0) return take_links(r, key, &f->later);
    if (strcmp(key, "replay") == 0) return fb_locate_take_object(r, key, replay_member, f, &there);
    if (strcmp(key, "cause") == 0) return fb_locate_take_object(r, key, cause_member, f, &there);
    if (strcmp(key, "minimise") == 0) return fb_locate_take_object(r, key, minimise_member, f, &there);
    if (strcmp(key, "cost") == 0) return fb_locate_take_object(r, key, cost_member, f, &there);
    if (strcmp(key, "evidence") == 0) return fb_locate_take_object(r, key, evidence_member, &f->evidence, &there);
    if (strcmp(key, "notes") == 0) return fb_locate_take_text(r, key, f->notes, sizeof f->notes);
    *known = 0;
    return FB_OK;
}

static fb_status more(fb_error *err, const char *part, const char *whole, uint64_t a, uint64_t b)
{
    return fb_fail(err, FB_E_CORRUPT, "locate.json: \"%s\" is %llu, and \"%s\" %llu", part, (unsigned long long)a, whole,
                   (unsigned long long)b);
}

/* A part that is larger than its whole: whoever wrote that counted nothing. */
static fb_status counts(const fb_locate_file *f, fb_error *err)
{
    uint64_t tokens = (uint64_t)f->minimise.rows_needed * f->minimise.columns;
    if (f->replay.reproduced > f->replay.tried) return more(err, "reproduced", "attempts", f->replay.reproduced, f->replay.tried);
    if (f->replay.other_bad > f->replay.other_tried)
        return more(err, "other_ranks.bad", "other_ranks.tried", f->replay.other_bad, f->replay.other_tried);
    if (f->minimise.rows_needed > f->minimise.rows)
        return more(err, "rows_needed", "rows", f->minimise.rows_needed, f->minimise.rows);
    if (f->minimise.kept_count > f->minimise.rows_needed)
        return more(err, "rows_kept", "rows_needed", f->minimise.kept_count, f->minimise.rows_needed);
    if (f->minimise.sample_count > f->minimise.rows_needed)
        return more(err, "sample_ids", "rows_needed", f->minimise.sample_count, f->minimise.rows_needed);
    if (f->minimise.tokens_needed > tokens)
        return more(err, "tokens_needed", "rows_needed x columns", f->minimise.tokens_needed, tokens);
    for (uint32_t i = 0; i < f->minimise.kept_count; i++) {
        if (f->minimise.rows_kept[i] >= f->minimise.rows)
            return more(err, "rows_kept", "rows", f->minimise.rows_kept[i], f->minimise.rows);
    }
    if (f->location.elements && f->location.bad > f->location.elements)
        return more(err, "bad", "elements", f->location.bad, f->location.elements);
    return FB_OK;
}

static void unknowns(fb_locate_file *f)
{
    memset(f, 0, sizeof *f);
    f->finding.tensor_id = -1;
    f->location.rank = f->location.micro_step = -1;
    f->replay.persists = -1;
    f->cause.sample = f->cause.sample_id = f->cause.row = -1;
    f->minimise.rest_shows = -1;
}

fb_status fb_locate_parse(fb_locate_file *out, const void *bytes, size_t count, fb_error *err)
{
    fb_reading r = {.err = err};
    fb_json_token token;
    fb_status status;
    unknowns(out);
    fb_json_read(&r.json, bytes, count);
    status = fb_json_next(&r.json, &token, err);
    if (status == FB_OK && token.type != FB_JSON_OBJECT) status = fb_fail_at(err, token.offset, "locate.json: expected an object");
    if (status == FB_OK) status = fb_locate_take_members(&r, member, out);
    if (status == FB_OK) status = fb_json_next(&r.json, &token, err);
    if (status == FB_OK && !r.has_schema)
        status = fb_fail_at(err, 0, "locate.json: it names no schema; expected firstbad.locate/1");
    if (status == FB_OK && !r.has_found) status = fb_fail_at(err, 0, "locate.json: \"found\" is missing");
    if (status == FB_OK) status = counts(out, err);
    if (status != FB_OK) fb_locate_file_release(out);
    return status;
}

fb_status fb_locate_read(fb_locate_file *out, const fb_os *os, const char *folder, fb_error *err)
{
    char path[FB_OS_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    fb_status status;
    unknowns(out);
    if ((status = fb_os_join(path, sizeof path, folder, "locate.json", err)) != FB_OK) return status;
    if ((status = fb_os_read_file(os, path, FB_LOCATE_BYTES_MAX, &text, &bytes, err)) != FB_OK) return status;
    status = fb_locate_parse(out, text, bytes, err);
    fb_free(text);
    return status;
}

void fb_locate_file_release(fb_locate_file *file)
{
    if (!file) return;
    fb_free(file->candidates.items);
    fb_free(file->chain.items);
    fb_free(file->swallowed.items);
    fb_free(file->later.items);
    for (uint32_t i = 0; i < file->replay.difference_count; i++) fb_free(file->replay.differences[i]);
    fb_free(file->replay.differences);
    fb_free(file->minimise.rows_kept);
    fb_free(file->minimise.sample_ids);
    fb_free(file->minimise.spans);
    unknowns(file);
}
