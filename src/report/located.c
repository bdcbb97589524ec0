/*
 * Which files tell of replays of this case, and what of them is believed. A file that is missing, torn, of another case or of
 * another finding costs a note; one that names an operator without a whole witness chain loses the name and keeps the rest.
 */
#include "report/located.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "bundle/inside.h"
#include "report/inside.h"
#include "search/minimise.h"

/* ---- of this case? ----------------------------------------------------------------------------------------------------------- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Names beyond the room that the reader of locate.json has for them were cut there. */
static int equals(fb_text text, const char *other, size_t room)
{
    size_t bytes = strlen(other);
    if (text.bytes != bytes && !(text.bytes > bytes && bytes + 4 >= room)) return 0;
    return bytes == 0 || memcmp(text.data, other, bytes) == 0;
}

static int same_work(const fb_rec_finding *finding, const fb_locate_file *file)
{
    return finding->rank == file->finding.rank && finding->step == file->step &&
           (file->finding.micro_step < 0 || file->finding.micro_step == finding->micro_step);
}

static int same_place(const fb_rec_finding *finding, const fb_locate_file *file)
{
    return same_work(finding, file) && finding->boundary == file->finding.boundary &&
           equals(finding->module, file->finding.module, sizeof file->finding.module) &&
           equals(finding->tensor, file->finding.tensor, sizeof file->finding.tensor);
}

/* Is this what the guard recorded? The fields of a batch share one site, so their names do not tell. */
static int same_finding(const fb_rec_finding *finding, const fb_locate_file *file)
{
    if (finding->boundary == FB_INPUT && file->finding.boundary == FB_INPUT) return same_work(finding, file);
    return same_place(finding, file) && (file->finding.kind <= 0 || file->finding.kind == finding->kind);
}

/* A token out of range is no number that is not finite: what a replay can follow is what the model made of that batch. */
static int came_of_batch(const fb_rec_finding *finding, const fb_locate_file *file)
{
    int32_t boundary = file->finding.boundary;
    return finding->boundary == FB_INPUT && same_work(finding, file) && boundary > FB_INPUT && boundary < FB_REDUCED_GRAD;
}

/* A state that was bad on entry is the work of an update before, which may be what was replayed. */
static int made_it_before(const fb_report *report, const fb_rec_finding *finding, const fb_locate_file *file)
{
    int64_t since = fb_judge_since(report, finding);
    return file->finding.boundary == FB_UPDATE && finding->boundary != FB_UPDATE && file->step < finding->step &&
           (finding->boundary != FB_ENTRY || since <= file->step);
}

/* The other way round: what was replayed is a later step of the case, whose state was bad on entry because of the update that is
   chosen here. Returns the step of that update, or -1. */
static int64_t was_left_by(const fb_report *report, const fb_locate_file *file)
{
    for (uint64_t i = 0; i < report->first_set_count && file->finding.boundary == FB_ENTRY; i++) {
        const fb_rec_finding *finding = &report->findings[report->first_set[i]].rec;
        if (finding->boundary == FB_UPDATE && finding->step < file->step) return finding->step;
    }
    return -1;
}

static uint64_t recorded_place(const fb_report *report, const fb_locate_file *file, uint64_t otherwise)
{
    for (uint64_t i = 0; i < report->finding_count; i++) {
        if (same_place(&report->findings[i].rec, file)) return i;
    }
    return otherwise;
}

/* The finding that it explains must be one that nothing comes before, or it explains a consequence. */
static int of_this_finding(const fb_report *report, fb_told *told)
{
    for (uint64_t i = 0; i < report->first_set_count; i++) {
        const fb_rec_finding *finding = &report->findings[report->first_set[i]].rec;
        told->of = told->explains = report->first_set[i];
        if (same_finding(finding, &told->file) || made_it_before(report, finding, &told->file)) return 1;
        if (!came_of_batch(finding, &told->file)) continue;
        told->explains = recorded_place(report, &told->file, told->of);
        return 1;
    }
    return 0;
}

/* A trainer that does not know run and case takes them from the folder, which may have been renamed. */
static int is_named(const char *told, const char *name, const char *folder)
{
    return !told[0] || strcmp(told, name) == 0 || strcmp(told, last_part(folder)) == 0;
}

static int of_this_case(fb_report *report, fb_told *told)
{
    const fb_locate_file *file = &told->file;
    if (!is_named(file->run_id, report->run.run_id, report->folder)) {
        fb_notes_add(&report->notes, "%s is of run %.80s, so it was not used", told->from, file->run_id);
        return 0;
    }
    if (!is_named(file->case_id, report->case_id, report->case_folder)) {
        fb_notes_add(&report->notes, "%s is of case %.60s, so it was not used", told->from, file->case_id);
        return 0;
    }
    if (!of_this_finding(report, told)) {
        int64_t made = was_left_by(report, file);
        if (made >= 0) {
            fb_notes_add(
                &report->notes,
                "%s tells of step %lld, which began with what the update of step %lld had left: that update came first, and it "
                "was not replayed",
                told->from, (long long)file->step, (long long)made);
            return 0;
        }
        fb_notes_add(&report->notes,
                     "%s explains another finding than the one recorded (step %lld, rank %d, %s, %.64s %.64s), so it was not used",
                     told->from, (long long)file->step, file->finding.rank, fb_boundary_text(file->finding.boundary),
                     file->finding.module, file->finding.tensor);
        return 0;
    }
    return 1;
}

/* ---- proven? ----------------------------------------------------------------------------------------------------------------- */

static int set_is_proven(const fb_locate_links *links)
{
    int proven = links->count >= 2 && links->count == links->total;
    for (uint32_t i = 0; i < links->count; i++) {
        proven &= !links->items[i].entry && links->items[i].op[0] && links->items[i].reads < 0;
    }
    return proven;
}

/* An entry that the guard itself found bad needs no chain: the finding is the witness. */
static int entry_is_proven(const fb_locate_file *file)
{
    int guard_saw_it = file->finding.boundary == FB_ENTRY || file->finding.boundary == FB_INPUT;
    return guard_saw_it || fb_locate_chain_whole(file, NULL, 0);
}

static int operator_is_proven(const fb_locate_file *file)
{
    return file->location.known && file->location.op[0] && fb_locate_chain_whole(file, NULL, 0);
}

/* What the file claims, reduced to what it proves. The doubt does not repeat the name. */
static void reduce_to_proven(fb_told *told)
{
    int proven = told->found == FB_LOCATED_OPERATOR ? operator_is_proven(&told->file)
                 : told->found == FB_LOCATED_SET    ? set_is_proven(&told->file.candidates)
                 : told->found == FB_LOCATED_ENTRY  ? entry_is_proven(&told->file)
                                                    : 1;
    if (proven) return;
    told->found = FB_LOCATED_UNDECIDED;
    (void)snprintf(told->doubt, sizeof told->doubt, "%s tells a place, and its chain from there to the finding is not whole",
                   told->from);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------- */

/* below: folder of the file below the case folder, "" for the case folder itself. Only FB_E_NOMEM and FB_E_LIMIT come back. */
static fb_status read_told(const fb_os *os, fb_report *report, const char *below, int32_t number, fb_error *err)
{
    fb_located *located = report->located;
    fb_told *told = &located->told[located->count];
    char folder[FB_OS_PATH_MAX];
    fb_error why;
    fb_status status = below[0] ? fb_os_join(folder, sizeof folder, report->case_folder, below, err) : FB_OK;
    if (status != FB_OK) return status;
    memset(told, 0, sizeof *told);
    told->number = number;
    (void)snprintf(told->from, sizeof told->from, "%s%slocate.json", below, below[0] ? "/" : "");
    status = fb_locate_read(&told->file, os, below[0] ? folder : report->case_folder, &why);
    if (status == FB_E_NOMEM) {
        if (err) *err = why;
        return status;
    }
    if (status != FB_OK) {
        if (status != FB_E_NOTFOUND) fb_notes_add(&report->notes, "%s was not used: %.400s", told->from, why.message);
        return FB_OK;
    }
    if (!of_this_case(report, told)) {
        fb_locate_file_release(&told->file);
        return FB_OK;
    }
    told->found = told->file.found;
    reduce_to_proven(told);
    located->count++;
    return FB_OK;
}

/* The newest FB_REPLAYS_MAX numbers below replays/, in any order. */
typedef struct replay_numbers {
    int32_t number[FB_REPLAYS_MAX];
    uint32_t count, passed_over;
} replay_numbers;

static int64_t visit_replay(void *arg, const char *name)
{
    replay_numbers *found = arg;
    uint32_t least = 0;
    int64_t number = fb_numbered_name(name, "", "", 3);
    if (number < 1) return 0;
    if (found->count < FB_REPLAYS_MAX) {
        found->number[found->count++] = (int32_t)number;
        return 0;
    }
    found->passed_over++;
    for (uint32_t i = 1; i < found->count; i++) {
        if (found->number[i] < found->number[least]) least = i;
    }
    if (found->number[least] < number) found->number[least] = (int32_t)number;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static fb_status read_replays(const fb_os *os, fb_report *report, fb_error *err)
{
    replay_numbers *found = fb_calloc(1, sizeof *found);
    char path[FB_OS_PATH_MAX], below[32];
    fb_status status;
    if (!found) return fb_fail(err, FB_E_NOMEM, "load report: no memory for the list of replays");
    status = fb_os_join(path, sizeof path, report->case_folder, "replays", err);
    if (status == FB_OK) {
        (void)os->list(os->ctx, path, visit_replay, found); /* a folder that is missing or unreadable holds nothing for us */
        qsort(found->number, found->count, sizeof *found->number, by_number);
        if (found->passed_over) fb_notes_add(&report->notes, "%u older replays were not read", found->passed_over);
    }
    for (uint32_t i = 0; status == FB_OK && i < found->count; i++) {
        (void)snprintf(below, sizeof below, "replays/%03d", found->number[i]);
        status = read_told(os, report, below, found->number[i], err);
    }
    fb_free(found);
    return status;
}

/* ---- which counts ------------------------------------------------------------------------------------------------------------ */

enum { EXACT = 5 };

static int exactness(int32_t found)
{
    switch (found) {
    case FB_LOCATED_OPERATOR:
    case FB_LOCATED_ENTRY: return EXACT;
    case FB_LOCATED_SET: return 4;
    case FB_LOCATED_INTERVAL: return 3;
    case FB_LOCATED_NOT_REPRODUCED:
    case FB_LOCATED_NOT_STEADY: return 2;
    case FB_LOCATED_UNDECIDED: return 1;
    default: return 0;
    }
}

static int same_origin(const fb_told *a, const fb_told *b)
{
    if (a->found != b->found) return 0;
    if (a->found != FB_LOCATED_OPERATOR) return 1;
    return strcmp(a->file.location.op, b->file.location.op) == 0 && strcmp(a->file.location.module, b->file.location.module) == 0 &&
           a->file.location.boundary == b->file.location.boundary && a->file.location.micro_step == b->file.location.micro_step;
}

static int made_it_small(const fb_told *told)
{
    int32_t state = told->file.minimise.state;
    return state == FB_MINIMISE_MINIMAL || state == FB_MINIMISE_BUDGET || state == FB_MINIMISE_WHOLE;
}

static int replayed(const fb_told *told)
{
    return told->file.replay.tried > 0;
}

static int tried_precision(const fb_told *told)
{
    return told->file.replay.persists >= 0;
}

static int asked_others(const fb_told *told)
{
    return told->file.replay.other_tried > 0;
}

int fb_told_is_faithful(const fb_told *told)
{
    return told->file.replay.faithful == 1;
}

/* The newest that has it. faithful: 1 asks only those, 0 only the others. */
static const fb_told *newest(const fb_located *located, int (*has)(const fb_told *), int faithful)
{
    for (uint64_t i = located->count; i-- > 0;) {
        const fb_told *told = &located->told[i];
        if (has(told) && fb_told_is_faithful(told) == faithful) return told;
    }
    return NULL;
}

static const fb_told *newest_of_all(const fb_located *located, int (*has)(const fb_told *))
{
    const fb_told *told = newest(located, has, 1);
    return told ? told : newest(located, has, 0);
}

static const fb_told *most_exact(const fb_located *located)
{
    const fb_told *best = NULL;
    for (uint64_t i = located->count; i-- > 0;) {
        const fb_told *told = &located->told[i];
        int more = exactness(told->found) - (best ? exactness(best->found) : 0);
        if (more > 0 || (more == 0 && best && fb_told_is_faithful(told) > fb_told_is_faithful(best))) best = told;
    }
    return best;
}

/* A fact belongs to the replay that is told, or to another one that was faithful: its differences are then the same, none. */
static const fb_told *fact(const fb_located *located, int (*has)(const fb_told *))
{
    return located->replay && has(located->replay) ? located->replay : newest(located, has, 1);
}

static const fb_told *not_faithful(const fb_located *located)
{
    const fb_told *told = newest(located, replayed, 0);
    int newer, precision, others;
    if (!told || told == located->replay) return NULL;
    newer = told->number > located->replay->number;
    precision = tried_precision(told) && !located->precision;
    others = asked_others(told) && !located->others;
    return newer || precision || others ? told : NULL;
}

static void choose(fb_located *located)
{
    const fb_told *first = located->count ? &located->told[0] : NULL;
    located->place = most_exact(located);
    located->replay = newest_of_all(located, replayed);
    located->precision = fact(located, tried_precision);
    located->others = fact(located, asked_others);
    located->apart = not_faithful(located);
    located->batch = newest_of_all(located, made_it_small);
    if (first && first->number == 0 && replayed(first) && first != located->replay && first != located->apart) {
        located->opened = first;
    }
    if (located->place) located->found = located->place->found;
}

/* Two witnesses for two places: each may be right of its own replays, and then nothing is steady. What was
 * replayed otherwise than the run does not speak against a replay that was faithful. */
static void contradictions(fb_report *report)
{
    fb_located *located = report->located;
    const fb_told *place = located->place;
    for (uint64_t i = 0; place && i < located->count; i++) {
        fb_told *told = &located->told[i];
        if (exactness(told->found) < EXACT || exactness(place->found) < EXACT || same_origin(told, place)) continue;
        if (fb_told_is_faithful(place) && !fb_told_is_faithful(told)) {
            fb_notes_add(&report->notes, "%s, which was not faithful, tells another place than %s", told->from, place->from);
            continue;
        }
        (void)snprintf(told->doubt, sizeof told->doubt, "%s and %s tell different places", told->from, place->from);
        located->place = told;
        located->found = FB_LOCATED_NOT_STEADY;
        return;
    }
}

/* Told not to, by what the trainer wrote into run.json or by the words of its command; or ended in between. */
static void nobody_located(fb_report *report)
{
    const char *option = strstr(report->run.command, "--locate none");
    if (report->located->count) return;
    if (strcmp(report->run.locate, "none") == 0 || option) {
        (void)snprintf(report->located->nothing_why, sizeof report->located->nothing_why, "the run was started with --locate none");
    } else if (report->located->bundle.state != FB_BUNDLE_ABSENT) {
        (void)snprintf(report->located->nothing_why, sizeof report->located->nothing_why,
                       "the step was captured, and no replay has told anything");
    }
}

static void take_cause(fb_report *report)
{
    fb_located *located = report->located;
    const fb_told *place = located->place;
    const fb_rec_finding *first = &report->findings[report->first].rec;
    int told = place && !place->doubt[0] && place->file.cause.name[0];
    int says_more = told && (strcmp(place->file.cause.name, "unknown") != 0 || strcmp(report->cause_class, "undecidable") == 0);
    located->cause_told = says_more && !first->injected;
}

/* ---- the bundle -------------------------------------------------------------------------------------------------------------- */

typedef struct bundle_listing {
    const fb_os *os;
    const char *path;
    uint64_t bytes;
    int sealed;
} bundle_listing;

static int64_t visit_bundle_file(void *arg, const char *name)
{
    bundle_listing *listing = arg;
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    if (strcmp(name, "bundle.json") == 0) listing->sealed = 1;
    if (fb_os_join(path, sizeof path, listing->path, name, NULL) != FB_OK) return 0;
    if (listing->os->stat(listing->os->ctx, path, &info) >= 0 && info.kind == FB_OS_FILE) listing->bytes += info.size_bytes;
    return 0;
}

static uint64_t count_left_out(const fb_bundle *bundle)
{
    uint64_t count = 0, bytes;
    int32_t part;
    const char *tensor;
    for (int32_t rank = 0; rank < fb_bundle_world(bundle); rank++) {
        for (uint32_t i = 0; fb_bundle_left_out(bundle, rank, i, &part, &tensor, &bytes, NULL) == FB_OK; i++) count++;
    }
    return count;
}

/* Of the finding, or of what was replayed for it. */
static int is_step_of_case(const fb_report *report, int64_t step)
{
    int is = step == report->findings[report->first].rec.step;
    for (uint64_t i = 0; i < report->located->count; i++) is |= step == report->located->told[i].file.step;
    return is;
}

/* Every byte is read and compared with what was captured. Only FB_E_NOMEM comes back. */
static fb_status read_bundle(const fb_os *os, const fb_report *report, const char *path, fb_bundle_seen *seen, fb_error *err)
{
    fb_bundle *bundle = NULL;
    fb_error why;
    fb_status status = fb_bundle_open_on(os, &bundle, path, &why);
    seen->state = status == FB_OK ? FB_BUNDLE_SEALED : status == FB_E_CORRUPT ? FB_BUNDLE_REFUSED : FB_BUNDLE_UNKNOWN;
    if (status == FB_OK && !is_step_of_case(report, fb_bundle_step(bundle))) {
        seen->state = FB_BUNDLE_REFUSED;
        (void)snprintf(seen->why, sizeof seen->why, "it is of step %lld", (long long)fb_bundle_step(bundle));
    } else if (status == FB_OK) {
        seen->left_out = count_left_out(bundle);
    } else {
        (void)snprintf(seen->why, sizeof seen->why, "%.500s", why.message);
    }
    fb_bundle_close(bundle);
    if (status == FB_E_NOMEM && err) *err = why;
    return status == FB_E_NOMEM ? status : FB_OK;
}

static fb_status look_at_bundle(const fb_os *os, const fb_report *report, const char *name, fb_bundle_seen *seen, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    bundle_listing listing = {os, path, 0, 0};
    fb_status status = fb_os_join(path, sizeof path, report->case_folder, name, err);
    int64_t listed;
    if (status != FB_OK) return status;
    listed = os->list(os->ctx, path, visit_bundle_file, &listing);
    if (listed == -ENOENT || listed == -ENOTDIR) return FB_OK;
    if (listed < 0) seen->state = FB_BUNDLE_UNKNOWN;
    else if (!listing.sealed) seen->state = FB_BUNDLE_OPEN;
    else if (listing.bytes >> 20 > FB_BUNDLE_READ_MIB_MAX) seen->state = FB_BUNDLE_UNREAD;
    else return read_bundle(os, report, path, seen, err);
    return FB_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

fb_status fb_located_load(const fb_os *os, fb_report *report, fb_error *err)
{
    fb_located *located;
    fb_status status;
    if (!report->case_folder[0] || report->first == UINT64_MAX) return FB_OK;
    located = report->located = fb_calloc(1, sizeof *located);
    if (!located) return fb_fail(err, FB_E_NOMEM, "load report: no memory for %zu bytes", sizeof *located);
    located->told = fb_calloc(FB_REPLAYS_MAX + 1, sizeof *located->told);
    if (!located->told) return fb_fail(err, FB_E_NOMEM, "load report: no memory for what replays told");
    if ((status = read_told(os, report, "", 0, err)) != FB_OK) return status;
    if ((status = read_replays(os, report, err)) != FB_OK) return status;
    if ((status = look_at_bundle(os, report, "bundle", &located->bundle, err)) != FB_OK) return status;
    if ((status = look_at_bundle(os, report, "bundle-min", &located->minimal, err)) != FB_OK) return status;
    choose(located);
    contradictions(report);
    take_cause(report);
    nobody_located(report);
    return FB_OK;
}

void fb_located_free(fb_located *located)
{
    if (!located) return;
    for (uint64_t i = 0; i < located->count; i++) fb_locate_file_release(&located->told[i].file);
    fb_free(located->told);
    fb_free(located);
}
