/* See leave_out.h. */
#include "leave_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "casefind.h"
#include "firstbad/bundle.h"

enum { LINE_BYTES = 24, SHOWN = 6 };

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static fb_status merge(leave_out *out, const int64_t *ids, size_t count, fb_error *err)
{
    size_t kept = 0;
    int64_t *grown;
    if (out->count + count > LEAVE_OUT_IDS_MAX)
        return fb_fail(err, FB_E_LIMIT, "leave out samples: %zu, and at most %d can be", out->count + count, LEAVE_OUT_IDS_MAX);
    if (!(grown = fb_realloc(out->ids, (out->count + count) * sizeof *grown)))
        return fb_fail(err, FB_E_NOMEM, "leave out samples: no memory for %zu", out->count + count);
    out->ids = grown;
    for (size_t i = 0; i < count; i++) out->ids[out->count + i] = ids[i];
    out->count += count;
    qsort(out->ids, out->count, sizeof *out->ids, compare);
    for (size_t i = 0; i < out->count; i++) {
        if (i == 0 || out->ids[i] != out->ids[kept - 1]) out->ids[kept++] = out->ids[i];
    }
    out->count = kept;
    return FB_OK;
}

/* Samples are one way out only where the cause lies in them. */
static void warn(const case_place *place, char *out, size_t room)
{
    fb_locate_file file;
    if (case_located(place, &file, NULL) != FB_OK) return;
    if (file.cause.lies_in[0] && strcmp(file.cause.lies_in, "data") != 0 && strcmp(file.cause.lies_in, "unknown") != 0)
        (void)snprintf(out, room, "; the cause (%s) does not lie in the data, so others may do the same", file.cause.name);
    fb_locate_file_release(&file);
}

/* "2 samples of case a1-000412, which are its smallest batch: 20417, 20418" */
static void tell(leave_out *out, const case_place *place, const char *id, const char *from, const int64_t *ids, size_t count)
{
    char *text = out->told[out->cases++];
    size_t room = sizeof out->told[0], used;
    used = (size_t)snprintf(text, room, "%zu sample%s of case %s, %s: ", count, count == 1 ? "" : "s", id && *id ? id : place->id,
                            from);
    for (size_t i = 0; i < count && i < SHOWN && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64, i ? ", " : "", ids[i]);
    if (count > SHOWN && used < room) used += (size_t)snprintf(text + used, room - used, ", ...");
    if (used < room) warn(place, text + used, room - used);
}

/* FB_E_NOTFOUND: there is no such bundle, or it names no samples. from: what they are. */
static fb_status from_bundle(leave_out *out, const case_place *place, const char *folder, const char *from, fb_error *err)
{
    fb_bundle *bundle = NULL;
    int64_t *ids = NULL;
    size_t count = 0;
    fb_status status = fb_bundle_open(&bundle, folder, err);
    if (status == FB_OK) {
        status = fb_bundle_samples(bundle, NULL, 0, &count, err);
        if (status == FB_E_LIMIT) status = FB_OK; /* the count is what was wanted */
    }
    if (status == FB_OK && count > LEAVE_OUT_IDS_MAX)
        status =
            fb_fail(err, FB_E_LIMIT, "leave out the samples of %s: %zu, and at most %d can be", folder, count, LEAVE_OUT_IDS_MAX);
    if (status == FB_OK && count == 0) status = fb_fail(err, FB_E_NOTFOUND, "leave out the samples of %s: it names none", folder);
    if (status == FB_OK && !(ids = fb_calloc(count, sizeof *ids)))
        status = fb_fail(err, FB_E_NOMEM, "leave out samples: no memory for %zu", count);
    if (status == FB_OK) status = fb_bundle_samples(bundle, ids, count, &count, err);
    if (status == FB_OK) status = merge(out, ids, count, err);
    if (status == FB_OK) tell(out, place, fb_bundle_case_id(bundle), from, ids, count);
    fb_free(ids);
    fb_bundle_close(bundle);
    return status;
}

/* What the rank that was first recorded of its batch when the step began. */
static fb_status from_ledger(leave_out *out, const case_place *place, const fb_rec_step *step, fb_error *err)
{
    char from[160];
    size_t count = step->samples;
    fb_status status = merge(out, step->sample_ids, count, err);
    if (status != FB_OK) return status;
    (void)snprintf(from, sizeof from, "%s of the rank that was first, since no smaller one was found",
                   step->sample_count > count ? "those that were recorded of the batch" : "the whole batch");
    tell(out, place, NULL, from, step->sample_ids, count);
    return FB_OK;
}

/* A part of a batch may be the part without the sample that did it, so it comes last. */
static fb_status from_case(leave_out *out, const case_place *place, fb_error *err)
{
    const fb_report *report = place->report;
    const fb_rec_step *step = report && report->has_spokesman_step ? &report->spokesman_step : NULL;
    char folder[FB_OS_PATH_MAX];
    fb_status status = case_minimal_bundle(place, folder, NULL);
    if (status == FB_OK) status = from_bundle(out, place, folder, "its smallest batch that is still bad", err);
    if (status != FB_E_NOTFOUND) return status;
    if (step && step->samples > 0 && step->samples >= step->sample_count) return from_ledger(out, place, step, err);
    status = from_bundle(out, place, place->bundle, "the whole batch of all ranks, since no smaller one was found", err);
    if (status != FB_E_NOTFOUND) return status;
    if (step && step->samples > 0) return from_ledger(out, place, step, err);
    return fb_fail(err, FB_E_NOTFOUND,
                   "leave out the samples of case %s: it has no smallest batch (firstbad bisect makes one), and neither its "
                   "bundle nor %s names a sample of its step",
                   place->id, report ? "the ledger" : "a ledger, of which there is none here,");
}

fb_status leave_out_add(leave_out *out, const char *dir, const char *name, fb_error *err)
{
    case_place place;
    fb_status status;
    if (out->cases == LEAVE_OUT_CASES_MAX)
        return fb_fail(err, FB_E_LIMIT, "leave out cases: at most %d can be", LEAVE_OUT_CASES_MAX);
    if ((status = case_find(&place, dir, name, err)) == FB_OK) status = from_case(out, &place, err);
    case_release(&place);
    return status;
}

fb_status leave_out_text(const leave_out *out, char **text, size_t *bytes, fb_error *err)
{
    size_t room = out->count * LINE_BYTES + 1;
    *bytes = 0;
    if (!(*text = fb_calloc(room, 1))) return fb_fail(err, FB_E_NOMEM, "leave out samples: no memory for %zu", out->count);
    for (size_t i = 0; i < out->count; i++) *bytes += (size_t)snprintf(*text + *bytes, room - *bytes, "%" PRId64 "\n", out->ids[i]);
    return FB_OK;
}

void leave_out_release(leave_out *out)
{
    fb_free(out->ids);
    memset(out, 0, sizeof *out);
}
