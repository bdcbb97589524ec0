/* Which of the three ways an extent takes: see reading.h. */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/order.h"
#include "ckpt/reading.h"
#include "ckpt/view.h"

enum { SOURCE_BYTES = 4 * FB_CKPT_GRAIN_MAX };

/* What the tensors of an extent have in common. */
typedef struct survey {
    fb_ckpt_reading *reading;
    fb_ckpt_source *source;
    const fb_ckpt_extent *extent;
    uint32_t *order;         /* of tensors by offset; NULL: they are in order */
    uint64_t looked;         /* tensors that can hold something */
    uint64_t end;            /* of the tile before */
    const fb_format *format; /* of all that are looked at, when they agree */
    uint64_t grid_at;        /* byte, less than an element, from which all are on one grid */
    int one_grid, is_tiled, is_sorted;
} survey;

static fb_status describe(const survey *s, const fb_ckpt_tensor *tensor, fb_ckpt_job *job, fb_error *err)
{
    return fb_ckpt_job_init(job, s->reading->kernel, s->extent, tensor, fb_ckpt_wants(s->reading->scan, tensor),
                            s->reading->file->path, err);
}

static void see_grid(survey *s, const fb_ckpt_job *job)
{
    uint64_t at = job->how == FB_CKPT_PLAIN ? job->offset_bytes % job->unit_bytes : 0;
    if (job->how != FB_CKPT_PLAIN) s->one_grid = 0;
    else if (s->looked == 0) s->format = job->format;
    else if (s->format != job->format || s->grid_at != at) s->one_grid = 0;
    if (s->looked == 0) s->grid_at = at;
}

static void see_tile(survey *s, const fb_ckpt_job *job)
{
    if (job->how == FB_CKPT_PLAIN && !fb_ckpt_view_is_dense(job->tensor)) s->is_tiled = 0;
    if (job->how == FB_CKPT_LANES && (job->unit_bytes == 0 || job->bytes > s->extent->bytes - job->offset_bytes)) s->is_tiled = 0;
    if (job->offset_bytes < s->end) s->is_tiled = 0;
    else s->end = job->offset_bytes + job->bytes;
}

static fb_status look_over(survey *s, fb_error *err)
{
    const fb_ckpt_extent *extent = s->extent;
    s->one_grid = s->is_tiled = 1;
    s->looked = s->end = 0;
    for (uint64_t i = 0; i < extent->tensor_count; i++) {
        fb_ckpt_job job;
        fb_status status = describe(s, &extent->tensors[s->order ? s->order[i] : i], &job, err);
        if (status != FB_OK) return status;
        if (job.how == FB_CKPT_PASS_OVER) { /* nothing is known of what it refers to, so nothing of what nobody refers to */
            s->one_grid = 0;
            continue;
        }
        if (job.bytes == 0) continue;
        see_grid(s, &job);
        see_tile(s, &job);
        s->looked++;
    }
    return FB_OK;
}

static int by_offset(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_ckpt_tensor *tensors = ctx;
    if (tensors[a].offset_bytes != tensors[b].offset_bytes) return tensors[a].offset_bytes < tensors[b].offset_bytes ? -1 : 1;
    return a < b ? -1 : a > b;
}

static fb_status sort(survey *s, fb_error *err)
{
    uint64_t count = s->extent->tensor_count, i;
    for (i = 1; i < count && s->extent->tensors[i - 1].offset_bytes <= s->extent->tensors[i].offset_bytes; i++)
        ;
    if (i >= count || count > UINT32_MAX) return FB_OK; /* more than 2^32 would take no order, and are read apart */
    s->order = fb_calloc((size_t)count, sizeof *s->order);
    if (!s->order) {
        return fb_fail(err, FB_E_NOMEM, "scan %s: no memory to sort %llu tensors", s->reading->file->path,
                       (unsigned long long)count);
    }
    for (i = 0; i < count; i++) s->order[i] = (uint32_t)i;
    fb_ckpt_sort(s->order, count, by_offset, s->extent->tensors);
    return FB_OK;
}

/* ---- the three ways --------------------------------------------------------------------------------------------------------- */

static fb_status in_tiles(survey *s, fb_error *err)
{
    fb_ckpt_tiles tiles;
    memset(&tiles, 0, sizeof tiles);
    tiles.extent = s->extent;
    tiles.order = s->order;
    tiles.count = s->extent->tensor_count;
    tiles.gap = s->one_grid && s->looked ? s->format : NULL;
    tiles.gap_at = s->grid_at;
    return fb_ckpt_pass(s->reading, s->source, &tiles, err);
}

static fb_status flat(survey *s, fb_error *err)
{
    fb_ckpt_ranges bad = {NULL, 0, 0};
    fb_ckpt_tiles tiles;
    fb_status status;
    memset(&tiles, 0, sizeof tiles);
    tiles.extent = s->extent;
    tiles.gap = s->format;
    tiles.gap_at = s->grid_at;
    tiles.bad = &bad;
    status = fb_ckpt_pass(s->reading, s->source, &tiles, err);
    if (status == FB_OK) status = fb_ckpt_attribute(s->reading, s->source, s->format, s->grid_at, &bad, err);
    fb_free(bad.ends);
    return status;
}

static fb_status apart(survey *s, fb_error *err)
{
    fb_ckpt_tiles none;
    fb_stream *stream = NULL;
    fb_status status;
    memset(&none, 0, sizeof none);
    none.extent = s->extent;
    /* Once in order, for the digest and the checksum. */
    if ((status = fb_ckpt_pass(s->reading, s->source, &none, err)) != FB_OK) return status;
    if (s->reading->scan->options.flags & FB_CKPT_STATS) {
        stream = fb_calloc(1, sizeof *stream);
        if (!stream) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for statistics", s->reading->file->path);
    }
    for (uint64_t i = 0; i < s->extent->tensor_count && status == FB_OK && !s->reading->scan->done; i++) {
        fb_ckpt_counts counts;
        fb_ckpt_job job;
        uint64_t stored;
        if ((status = describe(s, &s->extent->tensors[s->order ? s->order[i] : i], &job, err)) != FB_OK) break;
        fb_ckpt_counts_init(&counts);
        status = fb_ckpt_scan_apart(s->reading, s->source, &job, &counts, stream, &stored, err);
        if (status != FB_OK) break;
        (void)fb_ckpt_is_decided(s->reading->scan, job.tensor, &counts);
        fb_ckpt_tensor_done(s->reading, s->extent, &job, stored, &counts,
                            job.format && job.how != FB_CKPT_PASS_OVER ? stream : NULL);
    }
    fb_free(stream);
    return status;
}

/* Reader and scan check the same thing with the same predicate: what is handed out lies in the file. */
static fb_status check(const fb_ckpt_reading *reading, const fb_ckpt_extent *extent, fb_error *err)
{
    uint64_t size = reading->file->info.size_bytes;
    if (extent->encoding != FB_CKPT_MEMORY && (extent->offset_bytes > size || extent->stored_bytes > size - extent->offset_bytes)) {
        return fb_fail_at(err, extent->offset_bytes, "read checkpoint %s: %.200s leaves the file", reading->file->path,
                          extent->name);
    }
    if (extent->encoding == FB_CKPT_STORED && extent->bytes != extent->stored_bytes) {
        return fb_fail_at(err, extent->offset_bytes, "read checkpoint %s: %.200s is stored in %llu bytes and has %llu",
                          reading->file->path, extent->name, (unsigned long long)extent->stored_bytes,
                          (unsigned long long)extent->bytes);
    }
    return FB_OK;
}

fb_status fb_ckpt_scan_extent(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, fb_error *err)
{
    fb_ckpt_source source;
    survey s;
    fb_status status = check(reading, extent, err);
    if (status == FB_OK && extent->encoding != FB_CKPT_MEMORY)
        status = fb_ckpt_file_catch_up(reading->file, extent->offset_bytes, err);
    if (status == FB_OK) status = fb_ckpt_source_open(&source, reading->file, extent, SOURCE_BYTES, err);
    if (status != FB_OK) return status;
    memset(&s, 0, sizeof s);
    s.reading = reading;
    s.source = &source;
    s.extent = extent;
    status = sort(&s, err);
    if (status == FB_OK) status = look_over(&s, err);
    if (status == FB_OK) {
        if (s.is_tiled) status = in_tiles(&s, err);
        else if (s.one_grid) status = flat(&s, err);
        else status = apart(&s, err);
    }
    fb_free(s.order);
    fb_ckpt_source_close(&source);
    return status;
}
