/* From what was counted to what is told: legality, findings, totals. */
#include <stdio.h>
#include <string.h>

#include "ckpt/reading.h"
#include "ckpt/view.h"

enum { PROGRESS_BYTES = 4 << 20 };

/* ---- what may be -Inf ------------------------------------------------------------------------------------------------------- */

/* The last part of a name that is no number: "attn_mask" of "h.0.attn_mask.1". Before it stand
 * modules, whose names prove nothing. */
static const char *own_name(const char *name)
{
    const char *last = name;
    for (const char *at = name; *at; at++) {
        if ((*at == '.' || *at == '/') && at[1] && !(at[1] >= '0' && at[1] <= '9')) last = at + 1;
    }
    return last;
}

/* Moments and gradients are no buffers: those of a parameter called mask begin with zeros as well. */
static int is_of_an_optimizer(const char *name)
{
    static const char *const patterns[] = {"* of *", "*exp_avg*", "*momentum*", "*grad*", "*optim*"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        if (fb_ckpt_name_fits(patterns[i], name)) return 1;
    }
    return 0;
}

/* The buffers in which programs keep a mask. `mask_head.bias` is none: it begins with zeros, and -Inf in it is a fault. */
static int name_says_mask(const char *name)
{
    static const char *const patterns[] = {"*mask*", "*attn_bias*", "*causal*", "*future*", "tril", "triu"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        if (fb_ckpt_name_fits(patterns[i], own_name(name))) return !is_of_an_optimizer(name);
    }
    return 0;
}

/*
 * What a healthy program keeps before the first value comes: the best score so far (kth_value and best_score of Lightning,
 * mode_worse of a scheduler), the range that an observer has seen (torch.ao: min_val +Inf, max_val -Inf). One number each; readers
 * mark plain numbers themselves, since they know more of where those stand.
 */
static const struct waiting {
    const char *pattern;
    int32_t kind; /* the only infinity that it begins with; 0: either, as it depends on what is better */
} waiting[] = {
    {"best", 0},
    {"best_*", 0},
    {"*_best", 0},
    {"*_best_*", 0},
    {"kth_value", 0},
    {"mode_worse", 0},
    {"lowest*", 0},
    {"highest*", 0},
    {"min_loss", 0},
    {"loss_min", 0},
    {"min_val_loss", 0},
    {"val_loss_min", 0},
    {"min_val", FB_KIND_POS_INF},
    {"max_val", FB_KIND_NEG_INF},
};

static int waits_for_a_value(const fb_ckpt_tensor *tensor, int32_t kind)
{
    const char *name = own_name(tensor->name);
    if (tensor->elements != 1 || tensor->whole_shape || tensor->number || kind == FB_KIND_NAN) return 0;
    for (size_t i = 0; i < sizeof waiting / sizeof waiting[0]; i++) {
        if (fb_ckpt_name_fits(waiting[i].pattern, name)) return !waiting[i].kind || waiting[i].kind == kind;
    }
    return 0;
}

static int named_legal(const fb_ckpt_scan *scan, const char *name)
{
    for (const char *const *pattern = scan->options.legal; pattern && *pattern; pattern++) {
        if (fb_ckpt_name_fits(*pattern, name)) return 1;
    }
    return 0;
}

/*
 * -Inf is right in an additive mask, and only there. A name alone does not prove one: `mask_token` is a trained parameter, and -Inf
 * in it is a fault. What proves it is the content: a mask holds 0 and -Inf and nothing else.
 */
static int32_t legality(const fb_ckpt_scan *scan, const fb_ckpt_tensor *tensor, uint64_t stored, const fb_ckpt_counts *counts)
{
    if (counts->nan > 0) return 0;
    if (tensor->legal_inf || waits_for_a_value(tensor, counts->first_kind)) return FB_CKPT_LEGAL_NUMBER;
    if (counts->pos_inf > 0) return 0;
    if (named_legal(scan, tensor->name)) return FB_CKPT_LEGAL_NAMED;
    return name_says_mask(tensor->name) && counts->zero > 0 && counts->zero + counts->neg_inf == stored ? FB_CKPT_LEGAL_MASK : 0;
}

int32_t fb_ckpt_wants(const fb_ckpt_scan *scan, const fb_ckpt_tensor *tensor)
{
    int32_t wants = name_says_mask(tensor->name) ? FB_CKPT_WANT_ZEROS : 0;
    return scan->options.flags & FB_CKPT_STATS ? wants | FB_CKPT_WANT_STATS : wants;
}

int fb_ckpt_is_decided(const fb_ckpt_scan *scan, const fb_ckpt_tensor *tensor, fb_ckpt_counts *counts)
{
    if (!(scan->options.flags & FB_CKPT_FIRST) || counts->first_index == FB_NO_INDEX) return 0;
    if (tensor->legal_inf || waits_for_a_value(tensor, counts->first_kind)) return 0; /* its other elements decide */
    if (counts->first_kind == FB_KIND_NEG_INF && (name_says_mask(tensor->name) || named_legal(scan, tensor->name))) return 0;
    counts->nan = counts->first_kind == FB_KIND_NAN;
    counts->pos_inf = counts->first_kind == FB_KIND_POS_INF;
    counts->neg_inf = counts->first_kind == FB_KIND_NEG_INF;
    return 1;
}

/* ---- findings --------------------------------------------------------------------------------------------------------------- */

static void remember_first(fb_ckpt_summary *summary, const fb_ckpt_finding *f)
{
    if (summary->bad_tensors > 0) return;
    summary->first_kind = f->kind;
    summary->first_index = f->index;
    summary->first_bits = f->bits;
    (void)snprintf(summary->first_file, sizeof summary->first_file, "%s", f->file);
    (void)snprintf(summary->first_tensor, sizeof summary->first_tensor, "%s", f->tensor);
}

/* Index in the whole tensor of element `index` of a piece of it; likewise the number of its elements. */
static void place_in_whole(const fb_ckpt_tensor *tensor, fb_ckpt_finding *f)
{
    uint64_t index = 0, weight = 1, left = f->index;
    if (!tensor->whole_shape || !tensor->whole_start) return;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) { /* a reader proves that the whole fits into 64 bits; wrapping harms nobody */
        index += (tensor->whole_start[d] + left % tensor->shape[d]) * weight;
        left /= tensor->shape[d];
        weight *= tensor->whole_shape[d];
    }
    f->index = index;
    f->shape = tensor->whole_shape;
    f->elements = weight;
}

static uint64_t place_in_file(const fb_ckpt_extent *extent, uint64_t at)
{
    return extent->encoding == FB_CKPT_STORED ? extent->offset_bytes + at : FB_NO_INDEX;
}

static void fill(const fb_ckpt_reading *reading, const fb_ckpt_extent *extent, const fb_ckpt_counts *counts, fb_ckpt_finding *f)
{
    memset(f, 0, sizeof *f);
    f->file = reading->file->path;
    f->index = counts->first_index;
    f->offset_bytes = place_in_file(extent, counts->first_at);
    f->bits = counts->first_bits;
    f->kind = counts->first_kind;
    f->nan = counts->nan;
    f->pos_inf = counts->pos_inf;
    f->neg_inf = counts->neg_inf;
    f->lane = "";
}

static void report(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, const fb_ckpt_job *job, uint64_t stored,
                   const fb_ckpt_counts *counts)
{
    const fb_ckpt_tensor *tensor = job->tensor;
    fb_ckpt_summary *summary = reading->scan->summary;
    fb_ckpt_finding f;
    fill(reading, extent, counts, &f);
    f.tensor = tensor->name;
    f.dtype = tensor->dtype_name;
    f.fb_dtype = tensor->dtype;
    if (counts->lane >= 0) {
        f.fb_dtype = fb_ckpt_lane_format(&tensor->lanes[counts->lane])->dtype;
        f.lane = tensor->lanes[counts->lane].name;
    }
    f.ndim = tensor->ndim;
    f.shape = tensor->shape;
    f.elements = tensor->elements;
    f.number = tensor->number;
    f.legal = legality(reading->scan, tensor, stored, counts);
    place_in_whole(tensor, &f);
    if (f.legal) {
        summary->legal_tensors++;
    } else {
        remember_first(summary, &f);
        summary->bad_tensors++;
        summary->bad += counts->nan + counts->pos_inf + counts->neg_inf;
        *reading->outcome = FB_CKPT_NON_FINITE;
        if (reading->scan->options.flags & FB_CKPT_FIRST) reading->scan->done = 1;
    }
    if (reading->scan->sink.finding) reading->scan->sink.finding(reading->scan->sink.ctx, &f);
}

void fb_ckpt_unreferenced(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, const fb_format *format, uint64_t elements,
                          const fb_ckpt_counts *counts)
{
    fb_ckpt_finding f;
    if (counts->first_index == FB_NO_INDEX) return;
    fill(reading, extent, counts, &f);
    f.tensor = extent->name;
    f.dtype = format->name;
    f.fb_dtype = format->dtype;
    f.ndim = 1;
    f.shape = &elements;
    f.elements = elements;
    f.unreferenced = 1;
    f.legal = FB_CKPT_LEGAL_UNREFERENCED;
    reading->scan->summary->unreferenced += counts->nan + counts->pos_inf + counts->neg_inf;
    if (reading->scan->sink.finding) reading->scan->sink.finding(reading->scan->sink.ctx, &f);
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------------- */

/* A tensor that is cut into pieces counts once: with the piece that holds its first element. */
static int is_first_piece(const fb_ckpt_tensor *tensor)
{
    if (!tensor->whole_start) return 1;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (tensor->whole_start[d] != 0) return 0;
    }
    return 1;
}

static void not_looked_at(fb_ckpt_reading *reading, const fb_ckpt_tensor *tensor)
{
    char why[160];
    if (tensor->unscanned) (void)snprintf(why, sizeof why, "%s", tensor->unscanned);
    else (void)snprintf(why, sizeof why, "this build does not know the number format %.64s", tensor->dtype_name);
    fb_ckpt_scan_unscanned(reading->scan, reading->file->path, tensor->name, why);
    if (*reading->outcome < FB_CKPT_UNSUPPORTED) *reading->outcome = FB_CKPT_UNSUPPORTED;
}

static void tell_tensor(const fb_ckpt_reading *reading, const fb_ckpt_tensor *tensor, const fb_stream *stream)
{
    const fb_ckpt_sink *sink = &reading->scan->sink;
    fb_ckpt_stats stats;
    if (sink->tensor && stream) {
        memset(&stats, 0, sizeof stats);
        fb_stream_result(stream, &stats.scan, &stats.histogram, &stats.min, &stats.max);
        stats.finite = stats.scan.elements - stats.scan.nan - stats.scan.pos_inf - stats.scan.neg_inf;
    }
    if (sink->tensor) sink->tensor(sink->ctx, reading->file->path, tensor, stream ? &stats : NULL);
    if (reading->scan->on_tensor) reading->scan->on_tensor(reading->scan->on_tensor_ctx, tensor->name);
}

void fb_ckpt_tensor_done(fb_ckpt_reading *reading, const fb_ckpt_extent *extent, const fb_ckpt_job *job, uint64_t stored,
                         const fb_ckpt_counts *counts, const fb_stream *stream)
{
    const fb_ckpt_tensor *tensor = job->tensor;
    fb_ckpt_summary *summary = reading->scan->summary;
    summary->tensors += (uint64_t)is_first_piece(tensor);
    summary->elements += tensor->elements;
    if (job->how != FB_CKPT_PASS_OVER) summary->checked += tensor->elements;
    else if (tensor->unscanned || (!fb_format_of(tensor->dtype) && tensor->lane_count == 0)) not_looked_at(reading, tensor);
    if (counts->first_index != FB_NO_INDEX) report(reading, extent, job, stored, counts);
    tell_tensor(reading, tensor, stream);
}

/* ---- now and then ----------------------------------------------------------------------------------------------------------- */

fb_status fb_ckpt_poll(fb_ckpt_reading *reading, fb_error *err)
{
    fb_ckpt_scan *scan = reading->scan;
    uint64_t size = reading->file->info.size_bytes, at = reading->file->work_bytes < size ? reading->file->work_bytes : size;
    if (at - reading->told_bytes < PROGRESS_BYTES && at < size) return FB_OK;
    if (at == reading->told_bytes) return FB_OK;
    reading->told_bytes = at;
    if (scan->sink.progress)
        scan->sink.progress(scan->sink.ctx, reading->file->path, scan->done_bytes + at,
                            scan->total_bytes ? scan->total_bytes : scan->done_bytes + size);
    if (scan->options.stop && scan->options.stop(scan->options.stop_ctx))
        return fb_fail(err, FB_E_WITHHELD, "scan %s: stopped as asked", reading->file->path);
    return FB_OK;
}
