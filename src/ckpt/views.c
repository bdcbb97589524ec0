/* Tensors that are views: whose is a bad element, and one tensor read by itself. */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/reading.h"
#include "ckpt/view.h"

/* Searches in views, of one extent. A scan of a healthy file takes none; 2^32 of them take some ten seconds. */
static const uint64_t STEPS_MAX = UINT64_C(1) << 32;

static fb_status too_many_steps(const fb_ckpt_reading *reading, const fb_ckpt_extent *extent, fb_error *err)
{
    return fb_fail(err, FB_E_LIMIT,
                   "scan %s: %.200s holds non-finite numbers, and its tensors are tangled too much to tell whose they are",
                   reading->file->path, extent->name);
}

/* ---- whose is it? ----------------------------------------------------------------------------------------------------------- */

typedef struct hunt {
    fb_ckpt_reading *reading;
    fb_ckpt_source *source;
    const fb_ckpt_extent *extent;
    fb_ckpt_job grid; /* the extent as a row of elements */
    const fb_ckpt_ranges *bad;
    fb_ckpt_counts nobody;
    uint64_t steps;
    uint64_t owner;    /* the tensor that had the last bad element, and most likely has the next; FB_NO_INDEX: none */
    fb_ckpt_view view; /* of it */
} hunt;

static int has(hunt *h, uint64_t byte, int *found, fb_error *err)
{
    uint64_t offset = h->extent->tensors[h->owner].offset_bytes, index;
    *found = byte >= offset ? fb_ckpt_view_find(&h->view, (byte - offset) / h->grid.unit_bytes, &h->steps, &index) : 0;
    return *found < 0 ? too_many_steps(h->reading, h->extent, err) : FB_OK;
}

/* Does any tensor refer to the element at this byte? */
static fb_status is_owned(hunt *h, uint64_t byte, int *owned, fb_error *err)
{
    fb_status status;
    *owned = 0;
    if (h->owner != FB_NO_INDEX && ((status = has(h, byte, owned, err)) != FB_OK || *owned)) return status;
    for (uint64_t i = 0; i < h->extent->tensor_count && !*owned; i++) {
        if (h->extent->tensors[i].offset_bytes > byte) continue;
        if (h->steps < 1) return too_many_steps(h->reading, h->extent, err);
        h->steps--;
        h->owner = i;
        (void)fb_ckpt_view_init(&h->view, &h->extent->tensors[i]);
        if ((status = has(h, byte, owned, err)) != FB_OK) return status;
    }
    if (!*owned) h->owner = FB_NO_INDEX;
    return FB_OK;
}

/* n elements from byte `at` of the extent on. */
static fb_status hunt_in(hunt *h, const uint8_t *data, uint64_t at, size_t n, fb_error *err)
{
    size_t unit = h->grid.unit_bytes;
    fb_ckpt_counts any;
    fb_ckpt_counts_init(&any);
    fb_ckpt_judge_plain(&h->grid, data, 0, n, &any, NULL);
    if (any.first_index == FB_NO_INDEX) return FB_OK;
    for (size_t i = (size_t)any.first_index; i < n; i++) {
        fb_status status;
        int owned;
        if (!fb_ckpt_is_bad(&h->grid, data + i * unit)) continue;
        if ((status = is_owned(h, at + i * unit, &owned, err)) != FB_OK) return status;
        if (!owned) fb_ckpt_judge_plain(&h->grid, data + i * unit, (at - h->grid.offset_bytes) / unit + i, 1, &h->nobody, NULL);
    }
    return FB_OK;
}

static fb_status hunt_range(hunt *h, uint64_t begin, uint64_t end, fb_error *err)
{
    size_t unit = h->grid.unit_bytes;
    uint64_t at = begin < h->grid.offset_bytes ? h->grid.offset_bytes : begin;
    while (at < end && end - at >= unit) {
        const uint8_t *data;
        size_t got, n;
        fb_status status = fb_ckpt_source_view(h->source, at, unit, &data, &got, err);
        if (status != FB_OK) return status;
        n = (got < end - at ? got : (size_t)(end - at)) / unit;
        if ((status = hunt_in(h, data, at, n, err)) != FB_OK) return status;
        at += n * unit;
    }
    return FB_OK;
}

static int may_be_bad(const hunt *h, const fb_ckpt_job *job)
{
    for (uint64_t i = 0; i < h->bad->count; i++) {
        if (h->bad->ends[2 * i] < job->offset_bytes + job->bytes && h->bad->ends[2 * i + 1] > job->offset_bytes) return 1;
    }
    return 0;
}

static fb_status tell_owner(hunt *h, const fb_ckpt_tensor *tensor, fb_stream *stream, fb_error *err)
{
    uint64_t stored = FB_NO_INDEX;
    fb_ckpt_counts counts;
    fb_ckpt_job job;
    fb_status status = fb_ckpt_job_init(&job, h->reading->kernel, h->extent, tensor, fb_ckpt_wants(h->reading->scan, tensor),
                                        h->reading->file->path, err);
    if (status != FB_OK) return status;
    fb_ckpt_counts_init(&counts);
    if (h->steps < h->bad->count + 1) return too_many_steps(h->reading, h->extent, err);
    h->steps -= h->bad->count + 1;
    if (stream || may_be_bad(h, &job)) status = fb_ckpt_scan_apart(h->reading, h->source, &job, &counts, stream, &stored, err);
    if (status != FB_OK) return status;
    (void)fb_ckpt_is_decided(h->reading->scan, tensor, &counts);
    fb_ckpt_tensor_done(h->reading, h->extent, &job, stored, &counts, stream);
    return FB_OK;
}

static fb_status tell_owners(hunt *h, fb_error *err)
{
    fb_stream *stream = NULL;
    fb_status status = FB_OK;
    if (h->reading->scan->options.flags & FB_CKPT_STATS) {
        stream = fb_calloc(1, sizeof *stream);
        if (!stream) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for statistics", h->reading->file->path);
    }
    for (uint64_t i = 0; i < h->extent->tensor_count && status == FB_OK && !h->reading->scan->done; i++)
        status = tell_owner(h, &h->extent->tensors[i], stream, err);
    fb_free(stream);
    return status;
}

fb_status fb_ckpt_attribute(fb_ckpt_reading *reading, fb_ckpt_source *source, const fb_format *format, uint64_t grid_at,
                            const fb_ckpt_ranges *bad, fb_error *err)
{
    hunt h;
    fb_status status;
    memset(&h, 0, offsetof(hunt, view));
    h.reading = reading;
    h.source = source;
    h.extent = source->extent;
    h.bad = bad;
    h.steps = STEPS_MAX;
    h.owner = FB_NO_INDEX;
    fb_ckpt_job_gap(&h.grid, reading->kernel, h.extent, format, grid_at);
    fb_ckpt_counts_init(&h.nobody);
    status = tell_owners(&h, err);
    if (reading->scan->done) return status;
    for (uint64_t i = 0; i < bad->count && status == FB_OK; i++)
        status = hunt_range(&h, bad->ends[2 * i], bad->ends[2 * i + 1], err);
    if (status != FB_OK) return status;
    fb_ckpt_unreferenced(reading, h.extent, format, (h.extent->bytes - grid_at) / h.grid.unit_bytes, &h.nobody);
    return FB_OK;
}

/* ---- one tensor by itself --------------------------------------------------------------------------------------------------- */

/* Stored elements on their way to the judge, a block at a time. */
typedef struct gather {
    fb_ckpt_reading *reading;
    fb_ckpt_source *source;
    const fb_ckpt_job *job;
    const fb_ckpt_view *view;
    fb_ckpt_counts *counts;
    fb_stream *stream;
    uint64_t ordinal; /* of the first element in the block */
    size_t held;
    uint8_t block[FB_BLOCK_BYTES];
} gather;

/* The first bad element in the order of storage need not be the one with the smallest index: each is asked for its own. */
static void find_first(gather *g, size_t n, size_t from)
{
    size_t unit = g->job->unit_bytes;
    for (size_t i = from; i < n; i++) {
        uint64_t position, index, steps = FB_CKPT_DIMS_MAX + 1;
        fb_ckpt_counts one;
        if (!fb_ckpt_is_bad(g->job, g->block + i * unit)) continue;
        position = fb_ckpt_view_position(g->view, g->ordinal + i);
        (void)fb_ckpt_view_find(g->view, position, &steps, &index);
        if (index >= g->counts->first_index) continue;
        fb_ckpt_counts_init(&one);
        fb_ckpt_judge_plain(g->job, g->block + i * unit, 0, 1, &one, NULL);
        one.first_index = index;
        one.first_at = g->job->offset_bytes + position * unit;
        one.zero = one.nan = one.pos_inf = one.neg_inf = 0; /* counted already */
        fb_ckpt_counts_add(g->counts, &one);
    }
}

static void flush(gather *g)
{
    size_t n = g->held / g->job->unit_bytes;
    fb_ckpt_counts seen;
    fb_ckpt_counts_init(&seen);
    fb_ckpt_judge_plain(g->job, g->block, g->ordinal, n, &seen, g->stream);
    if (seen.first_index != FB_NO_INDEX) find_first(g, n, (size_t)(seen.first_index - g->ordinal));
    seen.first_index = FB_NO_INDEX;
    fb_ckpt_counts_add(g->counts, &seen);
    g->ordinal += n;
    g->held = 0;
}

/* `count` elements that lie one after the other from byte `at` of the extent on. */
static fb_status gather_run(gather *g, uint64_t at, uint64_t count, fb_error *err)
{
    size_t unit = g->job->unit_bytes;
    while (count) {
        const uint8_t *data;
        size_t got, take = (sizeof g->block - g->held) / unit;
        fb_status status = fb_ckpt_source_view(g->source, at, unit, &data, &got, err);
        if (status != FB_OK) return status;
        if (take > count) take = (size_t)count;
        if (take > got / unit) take = got / unit;
        memcpy(g->block + g->held, data, take * unit);
        g->held += take * unit;
        at += take * unit;
        count -= take;
        if (g->held + unit > sizeof g->block) flush(g);
    }
    return FB_OK;
}

/* In the order of storage, so that a file is read forward. */
static fb_status gather_nested(gather *g, fb_error *err)
{
    uint64_t run = g->view->run;
    for (uint64_t ordinal = 0; ordinal < g->view->stored; ordinal += run) {
        uint64_t at = g->job->offset_bytes + fb_ckpt_view_position(g->view, ordinal) * g->job->unit_bytes;
        fb_status status = gather_run(g, at, run, err);
        if (status == FB_OK) status = fb_ckpt_poll(g->reading, err);
        if (status != FB_OK) return status;
    }
    if (g->held) flush(g);
    return FB_OK;
}

/* Windows that overlap: each element of the span is asked whether the view refers to it. */
static fb_status gather_overlapping(gather *g, uint64_t *stored, fb_error *err)
{
    uint64_t steps = STEPS_MAX, index;
    size_t unit = g->job->unit_bytes;
    *stored = 0;
    for (uint64_t position = 0; position < g->view->span; position++) {
        const uint8_t *data;
        size_t got;
        fb_status status;
        fb_ckpt_counts seen;
        int found = fb_ckpt_view_find(g->view, position, &steps, &index);
        if (found < 0) return too_many_steps(g->reading, g->source->extent, err);
        if (!found) continue;
        status = fb_ckpt_source_view(g->source, g->job->offset_bytes + position * unit, unit, &data, &got, err);
        if (status != FB_OK) return status;
        fb_ckpt_counts_init(&seen);
        fb_ckpt_judge_plain(g->job, data, index, 1, &seen, g->stream);
        seen.first_at = g->job->offset_bytes + position * unit;
        fb_ckpt_counts_add(g->counts, &seen);
        ++*stored;
    }
    return FB_OK;
}

/* Blocks [block, units), whose lanes are fetched one by one: they are too long to be read whole, or the last one is cut short. */
static fb_status lanes_one_by_one(gather *g, uint64_t block, fb_error *err)
{
    const fb_ckpt_tensor *tensor = g->job->tensor;
    for (; block < g->job->units; block++) {
        for (uint32_t i = 0; i < tensor->lane_count; i++) {
            const fb_ckpt_lane *lane = &tensor->lanes[i];
            size_t number = fb_ckpt_lane_bytes(lane);
            if (!fb_ckpt_lane_format(lane)) continue;
            for (uint32_t done = 0; done < lane->count;) {
                uint32_t take =
                    lane->count - done < FB_BLOCK_BYTES / number ? lane->count - done : (uint32_t)(FB_BLOCK_BYTES / number);
                uint64_t at = tensor->offset_bytes + block * tensor->period_bytes + lane->offset_bytes + done * number;
                const uint8_t *data;
                size_t got;
                fb_status status = fb_ckpt_source_view(g->source, at, take * number, &data, &got, err);
                if (status == FB_OK) status = fb_ckpt_poll(g->reading, err);
                if (status != FB_OK) return status;
                fb_ckpt_judge_numbers(g->job, i, data, block * lane->count + done, take, g->counts, g->stream);
                done += take;
            }
        }
    }
    return FB_OK;
}

static fb_status lanes_apart(gather *g, fb_error *err)
{
    const fb_ckpt_job *job = g->job;
    uint64_t whole = job->unit_bytes ? (g->source->extent->bytes - job->offset_bytes) / job->unit_bytes : 0, block = 0;
    if (whole > job->units) whole = job->units;
    while (block < whole) {
        const uint8_t *data;
        size_t got;
        uint64_t n = job->grain_bytes / job->unit_bytes; /* sums must not tell how much was there at once */
        fb_status status;
        if (n > whole - block) n = whole - block;
        status = fb_ckpt_source_view(g->source, job->offset_bytes + block * job->unit_bytes, (size_t)n * job->unit_bytes, &data,
                                     &got, err);
        if (status == FB_OK) status = fb_ckpt_poll(g->reading, err);
        if (status != FB_OK) return status;
        if (got / job->unit_bytes < whole - block) n = got / job->unit_bytes / n * n;
        else n = whole - block;
        fb_ckpt_judge(job, data, block, n, g->counts, g->stream);
        block += n;
    }
    return lanes_one_by_one(g, block, err);
}

fb_status fb_ckpt_scan_apart(fb_ckpt_reading *reading, fb_ckpt_source *source, const fb_ckpt_job *job, fb_ckpt_counts *counts,
                             fb_stream *stream, uint64_t *stored, fb_error *err)
{
    fb_ckpt_view view;
    gather g;
    fb_status status;
    g.reading = reading;
    g.source = source;
    g.job = job;
    g.view = &view;
    g.counts = counts;
    g.stream = job->format ? stream : NULL;
    g.ordinal = 0;
    g.held = 0;
    if (stream && job->format) fb_stream_init(stream, job->kernel, job->format, 1);
    *stored = FB_NO_INDEX;
    if (job->how == FB_CKPT_PASS_OVER) return FB_OK;
    /* A file that lies whole in the buffer is read once and judged as often as it says: that is work as well. */
    if ((status = fb_ckpt_file_worked(reading->file, job->bytes, err)) != FB_OK) return status;
    if (job->how == FB_CKPT_LANES) return lanes_apart(&g, err);
    (void)fb_ckpt_view_init(&view, job->tensor);
    if (!view.nested) return gather_overlapping(&g, stored, err);
    *stored = view.stored;
    return gather_nested(&g, err);
}
