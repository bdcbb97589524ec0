#include "report/say.h"

#include <stdio.h>
#include <string.h>

#include "evidence/site.h"
#include "locate/op_title.h"
#include "report/inside.h"
#include "search/minimise.h"

const char *fb_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

const char *fb_kind_text(int32_t kind)
{
    switch (kind) {
    case FB_KIND_NAN: return "NaN";
    case FB_KIND_POS_INF: return "+Inf";
    case FB_KIND_NEG_INF: return "-Inf";
    case FB_KIND_ALL_IGNORED: return "all labels ignored";
    case FB_KIND_DOMAIN: return "outside its domain";
    default: return "?";
    }
}

const char *fb_kind_noun(int32_t kind)
{
    switch (kind) {
    case FB_KIND_NAN:
    case FB_KIND_POS_INF:
    case FB_KIND_NEG_INF: return fb_kind_text(kind);
    case FB_KIND_OUT_OF_RANGE: return "a value out of range";
    case FB_KIND_ALL_IGNORED: return "no label that counts";
    case FB_KIND_DOMAIN: return "a value outside its domain";
    default: return "a bad value";
    }
}

void fb_why_index(fb_phrase *phrase, const int64_t *index, int32_t ndim)
{
    fb_phrase_add(phrase, "[");
    for (int32_t i = 0; i < ndim; i++) fb_phrase_add(phrase, "%s%lld", i ? "," FB_LINES_NO_BREAK : "", (long long)index[i]);
    fb_phrase_add(phrase, "]");
}

void fb_why_samples(fb_phrase *phrase, const int64_t *ids, uint64_t kept, uint64_t count)
{
    uint64_t shown = kept < 8 ? kept : 8;
    for (uint64_t i = 0; i < shown; i++) fb_phrase_add(phrase, "%s%lld", i ? ", " : "", (long long)ids[i]);
    if (count > shown) fb_phrase_add(phrase, " and %llu more", (unsigned long long)(count - shown));
}

/* ---- places ------------------------------------------------------------------------------------------------------------------ */

fb_place fb_place_of(const fb_locate_link *link)
{
    fb_place place = {link->op,       link->module,     link->tensor, link->source,
                      link->boundary, link->micro_step, link->entry,  link->node};
    return place;
}

fb_place fb_place_of_origin(const fb_told *told)
{
    const fb_locate_file *file = &told->file;
    fb_place place = {file->location.op,       file->location.module,     file->location.tensor,     file->location.source,
                      file->location.boundary, file->location.micro_step, file->location.op[0] == 0, file->location.node};
    return place;
}

static int is_collective(const char *op)
{
    static const char *const names[] = {"all_reduce", "allreduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strstr(op, names[i])) return 1;
    }
    return 0;
}

const char *fb_direction_name(const fb_place *place)
{
    if (place->entry) return place->boundary == FB_INPUT ? "input" : "entry";
    if (is_collective(place->op)) return "collective";
    switch (place->boundary) {
    case FB_FORWARD:
    case FB_LOSS: return "forward";
    case FB_LOCAL_GRAD: return "backward";
    case FB_REDUCED_GRAD:
    case FB_UPDATE: return "update";
    default: return "";
    }
}

void fb_why_place(fb_phrase *phrase, const fb_place *place)
{
    char title[136];
    const char *name = place->entry ? place->tensor : fb_op_title_text(title, sizeof title, place->op, place->node);
    if (!place->module[0] && !name[0]) fb_phrase_add(phrase, "a place without a name");
    else fb_phrase_add(phrase, "%s%s%s", place->module, place->module[0] && name[0] ? " " : "", name);
}

/* ---- 1: where ---------------------------------------------------------------------------------------------------------------- */

static void say_candidate(const fb_locate_links *links, uint32_t i, fb_phrase *phrase)
{
    fb_place place = fb_place_of(&links->items[i]);
    fb_why_place(phrase, &place);
}

static void say_candidates(const fb_locate_links *links, fb_phrase *phrase)
{
    uint32_t shown = links->count < 4 ? links->count : 4;
    for (uint32_t i = 0; i < shown; i++) {
        fb_phrase_add(phrase, "%s", i == 0 ? "" : i + 1 == links->total ? " and " : ", ");
        say_candidate(links, i, phrase);
    }
    if (links->total > shown) fb_phrase_add(phrase, " and %u more", links->total - shown);
}

static void say_interval(const fb_locate_file *file, fb_phrase *phrase)
{
    const fb_locate_links *links = &file->candidates;
    if (links->count == 0) fb_phrase_add(phrase, "no operator is named");
    else if (links->total == 1) {
        fb_phrase_add(phrase, "perhaps ");
        say_candidate(links, 0, phrase);
        fb_phrase_add(phrase, ", which was not shown");
    } else if (links->total <= 4) {
        fb_phrase_add(phrase, "made in one of %u places, and which of them was not shown: ", links->total);
        say_candidates(links, phrase);
    } else {
        fb_phrase_add(phrase, "made in one of %u places, and which of them was not shown: the first is ", links->total);
        say_candidate(links, 0, phrase);
        if (links->count == links->total) {
            fb_phrase_add(phrase, ", the last ");
            say_candidate(links, links->count - 1, phrase);
        }
    }
    if (file->notes[0]) fb_phrase_add(phrase, "; %s", file->notes);
}

static void say_entry(const fb_told *told, fb_phrase *phrase)
{
    const fb_locate_links *links = &told->file.candidates;
    fb_place origin = fb_place_of_origin(told);
    if (links->count) say_candidates(links, phrase);
    else if (told->file.location.known) fb_why_place(phrase, &origin);
    else fb_phrase_add(phrase, "it");
    fb_phrase_add(phrase, " %s bad %s, so no operator is blamed", links->total > 1 ? "were" : "was",
                  told->file.cause.rule == FB_RULE_BATCH ? "in the batch" : "before the step began");
}

static void say_operator(const fb_told *told, fb_phrase *phrase)
{
    const fb_locate_file *file = &told->file;
    uint32_t carried = file->chain.total > 1 ? file->chain.total - 1 : 0;
    /* Of a bad batch it may have read a token that does not exist, which is finite and bad. */
    fb_phrase_add(phrase, "it %smade %s", told->of == told->explains ? "read nothing bad and " : "",
                  fb_kind_noun(file->location.kind));
    if (carried == 0) fb_phrase_add(phrase, ", which is what was found");
    else fb_phrase_add(phrase, "; %u operator%s carried it on to the finding", carried, fb_plural(carried));
}

void fb_why_location(const fb_report *report, fb_phrase *phrase)
{
    const fb_located *located = report->located;
    const fb_told *told = located ? located->place : NULL;
    if (!told) return;
    if (told->doubt[0]) {
        fb_phrase_add(phrase, "no operator is named: %s", told->doubt);
        return;
    }
    switch (located->found) {
    case FB_LOCATED_OPERATOR: say_operator(told, phrase); break;
    case FB_LOCATED_SET:
        fb_phrase_add(phrase, "%u operators made it, and none of them comes after another: ", told->file.candidates.total);
        say_candidates(&told->file.candidates, phrase);
        break;
    case FB_LOCATED_INTERVAL: say_interval(&told->file, phrase); break;
    case FB_LOCATED_ENTRY: say_entry(told, phrase); break;
    case FB_LOCATED_NOT_REPRODUCED: fb_phrase_add(phrase, "replays did not show it again, so no operator is named"); break;
    case FB_LOCATED_NOT_STEADY: fb_phrase_add(phrase, "replays contradict each other, so no operator is named"); break;
    default:
        fb_phrase_add(phrase, "replayed, and no operator is named%s%s", told->file.notes[0] ? ": " : "", told->file.notes);
        break;
    }
}

void fb_why_later(const fb_report *report, fb_phrase *phrase)
{
    const fb_told *told = report->located ? report->located->place : NULL;
    const fb_locate_links *links = told && !told->doubt[0] ? &told->file.later : NULL;
    uint32_t shown = links && links->count < 3 ? links->count : 3;
    if (!links || links->count == 0) return;
    fb_phrase_add(phrase, "later, too: ");
    for (uint32_t i = 0; i < shown; i++) {
        fb_place place = fb_place_of(&links->items[i]);
        fb_phrase_add(phrase, "%s", i ? ", " : "");
        fb_why_place(phrase, &place);
    }
    if (links->total > shown) fb_phrase_add(phrase, " and %u more", links->total - shown);
}

/* ---- 4: again ---------------------------------------------------------------------------------------------------------------- */

static void say_faithful(const fb_told *told, fb_phrase *phrase)
{
    const fb_locate_file *file = &told->file;
    uint32_t count = file->replay.difference_count, shown = count < 3 ? count : 3;
    fb_phrase_add(phrase, "%s", fb_told_is_faithful(told) ? "faithful" : "not faithful");
    if (!fb_told_is_faithful(told) && count == 0) fb_phrase_add(phrase, ", and how it differs is not recorded");
    for (uint32_t i = 0; i < shown; i++) fb_phrase_add(phrase, "%s%s", i ? "; " : ": ", file->replay.differences[i]);
    if (count > shown) fb_phrase_add(phrase, "; and %u more difference%s", count - shown, fb_plural(count - shown));
}

/* "replays/003", or what stands for locate.json of the case. */
static const char *teller(const fb_told *told, char out[16])
{
    (void)snprintf(out, 16, "replays/%03d", told->number);
    return told->number ? out : "locate.json";
}

/* Whose fact it is, where it is not that of the replay that the sentence is about. */
static void say_teller(const fb_told *told, const fb_told *about, fb_phrase *phrase)
{
    char from[16];
    if (told != about) fb_phrase_add(phrase, " (told by %s)", teller(told, from));
}

static void say_precision(const fb_locate_file *file, fb_phrase *phrase)
{
    fb_phrase_add(phrase, "; %s", file->replay.persists ? "in FP32 as well" : "not in FP32");
}

static void say_others(const fb_locate_file *file, fb_phrase *phrase)
{
    uint32_t bad = file->replay.other_bad, tried = file->replay.other_tried;
    if (bad == tried && tried == 1) fb_phrase_add(phrase, "; on the other rank too, so it is not the device");
    else if (bad == tried) fb_phrase_add(phrase, "; on all %u other ranks too, so it is not the device", tried);
    else if (bad) fb_phrase_add(phrase, "; on %u of %u other ranks", bad, tried);
    else if (tried == 1) fb_phrase_add(phrase, "; not on the other rank");
    else fb_phrase_add(phrase, "; on none of %u other ranks", tried);
    /* What comes back here every time and nowhere else is bound to this rank: to its device, or to a state that differs. */
    if (bad == 0 && file->replay.tried && file->replay.reproduced == file->replay.tried)
        fb_phrase_add(phrase, ": suspect the device or the state of this one");
}

void fb_why_replayed(const fb_report *report, fb_phrase *phrase)
{
    const fb_located *located = report->located;
    const fb_told *told = located ? located->replay : NULL;
    if (!told) return;
    fb_phrase_add(phrase, "%u of %u, ", told->file.replay.reproduced, told->file.replay.tried);
    say_faithful(told, phrase);
    if (located->precision) {
        say_precision(&located->precision->file, phrase);
        say_teller(located->precision, told, phrase);
    }
    if (located->others) {
        say_others(&located->others->file, phrase);
        say_teller(located->others, told, phrase);
    }
    if (told->number) fb_phrase_add(phrase, "; told by replays/%03d", told->number);
    if (located->opened) {
        fb_phrase_add(phrase, "; when the case was opened %u of %u", located->opened->file.replay.reproduced,
                      located->opened->file.replay.tried);
    }
}

void fb_why_replayed_apart(const fb_report *report, fb_phrase *phrase)
{
    const fb_told *told = report->located ? report->located->apart : NULL;
    char from[16];
    if (!told) return;
    fb_phrase_add(phrase, "apart from it %s, %u of %u, ", teller(told, from), told->file.replay.reproduced,
                  told->file.replay.tried);
    say_faithful(told, phrase);
    if (told->file.replay.persists >= 0) say_precision(&told->file, phrase);
    if (told->file.replay.other_tried) say_others(&told->file, phrase);
}

void fb_why_place_teller(const fb_report *report, fb_phrase *phrase)
{
    const fb_told *told = report->located ? report->located->place : NULL;
    int strange = told && told != report->located->replay && !fb_told_is_faithful(told);
    if (!told || (!told->number && !strange)) return;
    fb_phrase_add(phrase, " (%s", told->from);
    if (strange) {
        fb_phrase_add(phrase, ", ");
        say_faithful(told, phrase);
    }
    fb_phrase_add(phrase, ")");
}

void fb_why_smallest(const fb_report *report, fb_phrase *phrase)
{
    const fb_locate_file *file = report->located && report->located->batch ? &report->located->batch->file : NULL;
    uint32_t rows;
    char n[32], from[16];
    /* One of one was never made smaller; and where the others show it as well, none of them is what it takes. */
    if (!file || file->minimise.rest_shows == 1 || (file->minimise.rows == 1 && file->minimise.columns <= 1)) return;
    rows = file->minimise.rows_needed;
    fb_phrase_add(phrase, "%s sample%s", fb_thousands(rows, n), fb_plural(rows));
    if (rows > 1 && file->minimise.coupled) fb_phrase_add(phrase, " together");
    if (file->minimise.sample_count) {
        fb_phrase_add(phrase, " (");
        fb_why_samples(phrase, file->minimise.sample_ids, file->minimise.sample_count, file->minimise.sample_count);
        fb_phrase_add(phrase, ")");
    }
    if (file->minimise.rows > rows) fb_phrase_add(phrase, " of %s", fb_thousands(file->minimise.rows, n));
    if (file->minimise.tokens_needed) {
        fb_phrase_add(phrase, ", %s token%s", fb_thousands(file->minimise.tokens_needed, n),
                      fb_plural(file->minimise.tokens_needed));
    }
    if (rows > 1 && file->minimise.coupled) fb_phrase_add(phrase, ": the cause is in what they share");
    if (file->minimise.state == FB_MINIMISE_BUDGET) fb_phrase_add(phrase, "; fewer may do: the search ended before that was known");
    if (report->located->batch != report->located->replay && !fb_told_is_faithful(report->located->batch))
        fb_phrase_add(phrase, "; told by %s, which was not faithful", teller(report->located->batch, from));
}

void fb_why_bundle(const fb_report *report, fb_phrase *phrase)
{
    const fb_bundle_seen *seen = report->located ? &report->located->bundle : NULL;
    char n[32];
    if (!seen) return;
    switch (seen->state) {
    case FB_BUNDLE_SEALED: fb_phrase_add(phrase, "bundle sealed and unchanged"); break;
    case FB_BUNDLE_UNREAD: fb_phrase_add(phrase, "bundle sealed; it is too large to be read again here"); break;
    case FB_BUNDLE_OPEN: fb_phrase_add(phrase, "the bundle was never sealed, so it cannot be replayed"); break;
    case FB_BUNDLE_REFUSED: fb_phrase_add(phrase, "bundle refused: %s", seen->why); break;
    case FB_BUNDLE_UNKNOWN: fb_phrase_add(phrase, "the bundle cannot be read%s%s", seen->why[0] ? ": " : "", seen->why); break;
    default: break;
    }
    if (seen->left_out) {
        fb_phrase_add(phrase, "; %s tensor%s too large and left out", fb_thousands(seen->left_out, n),
                      seen->left_out == 1 ? " was" : "s were");
    }
}

/* ---- cause, samples, commands ------------------------------------------------------------------------------------------------ */

fb_cause_words fb_cause_words_of(const fb_report *report)
{
    fb_cause_words words = {report->cause_class, report->cause, report->witness, report->fix, "", 1};
    if (report->located && report->located->cause_told) {
        const fb_locate_file *file = &report->located->place->file;
        words.name = file->cause.name;
        words.explanation = file->cause.explanation;
        if (file->cause.witness[0]) words.witness = file->cause.witness;
        words.fix = file->cause.fix;
        words.verify = file->cause.verify;
        words.certain = file->cause.certain;
    } else if (report->located && report->located->place && strcmp(words.name, "undecidable") == 0) {
        words.explanation = "undecidable from this evidence: replays did not show what made it";
    }
    return words;
}

int fb_went_on(const fb_report *report)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (report->ranks[i].last_step > report->case_last_step) return 1;
    }
    return 0;
}

const char *fb_explanation_alone(const fb_report *report, const char *explanation)
{
    const fb_located *located = report->located;
    const char *op = located && located->place && located->found == FB_LOCATED_OPERATOR ? located->place->file.location.op : "";
    const char *colon = strstr(explanation, ": ");
    return op[0] && colon && strncmp(explanation, op, strlen(op)) == 0 ? colon + 2 : explanation;
}

/* One value of the batch is bad, and its tensor has a row for each sample: the index of that sample; UINT64_MAX where it is not
   known. What is merely suspect (NaN in a field) has gone through no such check: other rows may hold it as well. */
static uint64_t sample_of_one(const fb_report *report)
{
    const fb_rec_finding *first = &report->findings[report->first].rec;
    const fb_rec_step *step = &report->spokesman_step;
    int64_t index[FB_DIMS_MAX];
    if (first->boundary != FB_INPUT || first->kind != FB_KIND_OUT_OF_RANGE || first->count != 1 || first->ndim < 1)
        return UINT64_MAX;
    if (first->shape[0] != (int64_t)step->sample_count || step->samples != step->sample_count) return UINT64_MAX;
    if (fb_site_unravel(first->shape, first->ndim, first->first_index, index) < 1) return UINT64_MAX;
    return index[0] >= 0 && (uint64_t)index[0] < step->samples ? (uint64_t)index[0] : UINT64_MAX;
}

void fb_skip_samples(const fb_report *report, const int64_t **ids, uint64_t *kept, uint64_t *count)
{
    const fb_located *located = report->located;
    const fb_locate_file *file = located && located->cause_told ? &located->place->file : NULL;
    int in_data;
    *ids = NULL;
    *kept = *count = 0;
    if (report->first == UINT64_MAX || report->samples_why[0]) return;
    in_data = file ? strcmp(file->cause.lies_in, "data") == 0 : report->findings[report->first].rec.boundary == FB_INPUT;
    if (in_data && located && located->batch && located->batch->file.minimise.sample_count &&
        located->batch->file.minimise.rest_shows != 1) {
        *ids = located->batch->file.minimise.sample_ids;
        *kept = *count = located->batch->file.minimise.sample_count;
    } else if (in_data && file && file->cause.sample_id >= 0) {
        *ids = &file->cause.sample_id;
        *kept = *count = 1;
    } else if (in_data && sample_of_one(report) != UINT64_MAX) {
        *ids = &report->spokesman_step.sample_ids[sample_of_one(report)];
        *kept = *count = 1;
    } else {
        *ids = report->spokesman_step.sample_ids;
        *kept = report->spokesman_step.samples;
        *count = report->spokesman_step.sample_count;
    }
}

void fb_replay_command(const fb_report *report, char *out, size_t room)
{
    const fb_located *located = report->located;
    int can = located && (located->bundle.state == FB_BUNDLE_SEALED || located->bundle.state == FB_BUNDLE_UNREAD);
    out[0] = '\0';
    if (can) (void)snprintf(out, room, "firstbad replay %s", report->case_id);
}

void fb_leave_out_command(const fb_report *report, char *out, size_t room)
{
    const int64_t *ids;
    uint64_t kept, count;
    out[0] = '\0';
    if (report->first == UINT64_MAX || report->findings[report->first].rec.injected || !report->case_folder[0]) return;
    fb_skip_samples(report, &ids, &kept, &count);
    if (kept) (void)snprintf(out, room, "firstbad run --leave-out %s -- <command>", report->case_id);
}
