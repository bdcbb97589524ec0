#include "ckpt/judge.h"

#include <string.h>

#include "ckpt/view.h"

/* ---- counts ----------------------------------------------------------------------------------------------------------------- */

void fb_ckpt_counts_init(fb_ckpt_counts *counts)
{
    memset(counts, 0, sizeof *counts);
    counts->first_index = FB_NO_INDEX;
    counts->lane = -1;
}

void fb_ckpt_counts_add(fb_ckpt_counts *into, const fb_ckpt_counts *from)
{
    into->nan += from->nan;
    into->pos_inf += from->pos_inf;
    into->neg_inf += from->neg_inf;
    into->zero += from->zero;
    /* Of two numbers of one block that scale the same element, the one that lies first in the block. */
    if (from->first_index > into->first_index) return;
    if (from->first_index == into->first_index && (from->first_index == FB_NO_INDEX || from->first_at >= into->first_at)) return;
    into->first_index = from->first_index;
    into->first_at = from->first_at;
    into->first_bits = from->first_bits;
    into->first_kind = from->first_kind;
    into->lane = from->lane;
}

/* ---- jobs ------------------------------------------------------------------------------------------------------------------- */

const fb_format *fb_ckpt_lane_format(const fb_ckpt_lane *lane)
{
    const fb_format *format = fb_format_of(lane->dtype == FB_CKPT_LANE_IQ1_M ? FB_F16 : lane->dtype);
    return format && format->scheme != FB_SCHEME_NONE ? format : NULL;
}

uint32_t fb_ckpt_lane_bytes(const fb_ckpt_lane *lane)
{
    return lane->dtype == FB_CKPT_LANE_IQ1_M ? 8 : (uint32_t)fb_dtype_bytes(lane->dtype, 1);
}

/* Returns 0 when a lane leaves its block. *end: where the last one ends. */
static int describe_lanes(fb_ckpt_job *job, uint64_t *end)
{
    const fb_ckpt_tensor *tensor = job->tensor;
    int mixed = 0;
    *end = 0;
    for (uint32_t i = 0; i < tensor->lane_count; i++) {
        const fb_ckpt_lane *lane = &tensor->lanes[i];
        const fb_format *format = fb_ckpt_lane_format(lane);
        uint64_t lane_end = lane->offset_bytes + (uint64_t)lane->count * fb_ckpt_lane_bytes(lane);
        if (lane_end > tensor->period_bytes) return 0;
        if (!format || lane->count == 0) continue;
        if (lane_end > *end) *end = lane_end;
        job->how = FB_CKPT_LANES;
        if (job->format && job->format != format) mixed = 1;
        job->format = format;
    }
    if (mixed) job->format = NULL;
    return 1;
}

static int size_lanes(fb_ckpt_job *job, const fb_ckpt_extent *extent, uint64_t lane_end)
{
    const fb_ckpt_tensor *tensor = job->tensor;
    uint64_t last;
    if (tensor->block_elements == 0) return 0;
    job->units = tensor->elements / tensor->block_elements;
    if (job->units == 0) return 1;
    if (__builtin_mul_overflow(job->units - 1, tensor->period_bytes, &last) || last > extent->bytes ||
        tensor->offset_bytes > extent->bytes - last || lane_end > extent->bytes - last - tensor->offset_bytes)
        return 0;
    job->bytes = last + tensor->period_bytes; /* of fields of a record, the last record may be cut short behind them */
    job->unit_bytes = tensor->period_bytes > FB_CKPT_PERIOD_MAX ? 0 : (uint32_t)tensor->period_bytes;
    job->grain_bytes = job->unit_bytes;
    if (job->unit_bytes && (job->wants & FB_CKPT_WANT_STATS))
        job->grain_bytes = FB_CKPT_GRAIN_MAX / job->unit_bytes * job->unit_bytes;
    return 1;
}

static int size_plain(fb_ckpt_job *job, const fb_ckpt_extent *extent)
{
    const fb_ckpt_tensor *tensor = job->tensor;
    uint64_t bytes, span = tensor->elements;
    if (!fb_ckpt_view_is_dense(tensor)) {
        fb_ckpt_view view;
        if (!fb_ckpt_view_init(&view, tensor)) return 0;
        span = view.span;
    }
    if (__builtin_mul_overflow(span, job->unit_bytes, &bytes)) return 0;
    if (tensor->offset_bytes > extent->bytes || bytes > extent->bytes - tensor->offset_bytes) return 0;
    job->bytes = bytes;
    job->units = span; /* equal to the elements when the tensor is dense */
    job->grain_bytes = job->wants & FB_CKPT_WANT_STATS ? FB_BLOCK_BYTES : job->unit_bytes;
    return 1;
}

fb_status fb_ckpt_job_init(fb_ckpt_job *job, const fb_kernel *kernel, const fb_ckpt_extent *extent, const fb_ckpt_tensor *tensor,
                           int32_t wants, const char *path, fb_error *err)
{
    uint64_t lane_end = 0;
    int fits = 1;
    memset(job, 0, sizeof *job);
    job->tensor = tensor;
    job->kernel = kernel;
    job->swapped = extent->swapped;
    job->wants = wants;
    job->offset_bytes = tensor->offset_bytes;
    job->unit_bytes = job->grain_bytes = 1;
    if (tensor->unscanned) return FB_OK;
    if (tensor->lane_count > 0 && tensor->period_bytes > 0) {
        fits = describe_lanes(job, &lane_end);
        if (fits && job->how == FB_CKPT_LANES) fits = size_lanes(job, extent, lane_end);
    } else {
        job->format = fb_format_of(tensor->dtype);
        if (!job->format || job->format->scheme == FB_SCHEME_NONE) return FB_OK;
        job->how = FB_CKPT_PLAIN;
        job->unit_bytes = (uint32_t)fb_format_part_bytes(job->format) * job->format->parts;
        fits = size_plain(job, extent);
    }
    if (!fits) {
        return fb_fail_at(err, extent->offset_bytes, "read checkpoint %s: tensor %.200s does not fit into the bytes that hold it",
                          path, tensor->name);
    }
    return FB_OK;
}

void fb_ckpt_job_gap(fb_ckpt_job *job, const fb_kernel *kernel, const fb_ckpt_extent *extent, const fb_format *format,
                     uint64_t offset_bytes)
{
    memset(job, 0, sizeof *job);
    job->kernel = kernel;
    job->format = format;
    job->how = FB_CKPT_PLAIN;
    job->swapped = extent->swapped;
    job->unit_bytes = job->grain_bytes = (uint32_t)fb_format_part_bytes(format) * format->parts;
    job->offset_bytes = offset_bytes;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------------ */

static void swap_parts(uint8_t *to, const uint8_t *from, size_t count, size_t part_bytes)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < part_bytes; k++) to[i * part_bytes + k] = from[(i + 1) * part_bytes - 1 - k];
    }
}

/* What a stream of this run alone counted. `at`: byte of the element with index 0. */
static void take_tally(const fb_ckpt_job *job, const fb_tally *tally, fb_ckpt_counts *counts)
{
    fb_ckpt_counts seen;
    fb_ckpt_counts_init(&seen);
    seen.nan = tally->nan;
    seen.pos_inf = tally->pos_inf;
    seen.neg_inf = tally->neg_inf;
    seen.zero = tally->zeros;
    if (tally->first_index != FB_NO_INDEX) {
        seen.first_index = tally->first_index;
        seen.first_bits = tally->first_bits;
        seen.first_kind = tally->first_kind;
        seen.first_at = job->offset_bytes + tally->first_index * job->unit_bytes;
    }
    fb_ckpt_counts_add(counts, &seen);
}

static void plain_in_order(const fb_ckpt_job *job, const uint8_t *data, uint64_t first, uint64_t n, fb_ckpt_counts *counts,
                           fb_stream *stream)
{
    fb_stream own;
    if (stream) {
        /* Not straight into the caller's: its counts may already hold those of other runs. */
        fb_stream_init(&own, job->kernel, job->format, 1);
        fb_stream_add(&own, data, first, (size_t)n);
        fb_stream_merge(stream, &own);
    } else {
        size_t skip = 0;
        if (!(job->wants & FB_CKPT_WANT_ZEROS)) {
            skip = fb_pass_locate(job->kernel, job->format, 0, data, (size_t)n);
            if (skip == n) return;
        }
        fb_stream_init(&own, job->kernel, job->format, 0);
        fb_stream_add(&own, data + skip * job->unit_bytes, first + skip, (size_t)n - skip);
    }
    take_tally(job, &own.tally, counts);
}

void fb_ckpt_judge_plain(const fb_ckpt_job *job, const uint8_t *data, uint64_t first, uint64_t n, fb_ckpt_counts *counts,
                         fb_stream *stream)
{
    size_t part = fb_format_part_bytes(job->format), block = FB_BLOCK_BYTES / job->unit_bytes;
    uint8_t buffer[FB_BLOCK_BYTES];
    if (!job->swapped || part == 1) {
        plain_in_order(job, data, first, n, counts, stream);
        return;
    }
    while (n) {
        size_t take = n < block ? (size_t)n : block;
        swap_parts(buffer, data, take * job->format->parts, part);
        plain_in_order(job, buffer, first, take, counts, stream);
        data += take * job->unit_bytes;
        first += take;
        n -= take;
    }
}

int fb_ckpt_is_bad(const fb_ckpt_job *job, const uint8_t *element)
{
    size_t part = fb_format_part_bytes(job->format);
    uint8_t buffer[16];
    if (job->swapped && part > 1) {
        swap_parts(buffer, element, job->format->parts, part);
        element = buffer;
    }
    for (size_t k = 0; k < job->format->parts; k++) {
        if (fb_format_is_bad(job->format, fb_part_bits(element, part, k))) return 1;
    }
    return 0;
}

/* ---- lanes ------------------------------------------------------------------------------------------------------------------ */

/* Four U16 s0..s3: the F16 is made of their top nibbles, that of s0 lowest. Source: ggml-common.h, block_iq1_m and iq1m_scale_t. */
static void assemble_iq1_m(uint8_t *to, const uint8_t *from, int swapped)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < 4; i++) bits |= (unsigned)(from[2 * i + !swapped] >> 4) << (4 * i);
    to[0] = (uint8_t)bits;
    to[1] = (uint8_t)(bits >> 8);
}

/* The numbers of a lane out of `blocks` blocks, one after the other. */
static void gather_lane(const fb_ckpt_job *job, const fb_ckpt_lane *lane, const fb_format *format, const uint8_t *data,
                        uint64_t period_bytes, size_t blocks, uint8_t *to)
{
    size_t number = fb_ckpt_lane_bytes(lane), part = fb_format_part_bytes(format), bytes = number * lane->count;
    if (lane->dtype == FB_CKPT_LANE_IQ1_M) {
        for (size_t i = 0; i < blocks; i++) {
            for (uint32_t k = 0; k < lane->count; k++, to += 2)
                assemble_iq1_m(to, data + i * period_bytes + k * number, job->swapped);
        }
        return;
    }
    if (job->swapped && part > 1) {
        for (size_t i = 0; i < blocks; i++) swap_parts(to + i * bytes, data + i * period_bytes, bytes / part, part);
    } else if (bytes == 2) { /* the usual one, worth a loop of its own */
        for (size_t i = 0; i < blocks; i++) memcpy(to + 2 * i, data + i * period_bytes, 2);
    } else {
        for (size_t i = 0; i < blocks; i++) memcpy(to + i * bytes, data + i * period_bytes, bytes);
    }
}

/* From a number of the lane to the element that it scales first. */
static void place_in_tensor(const fb_ckpt_job *job, uint32_t which, uint64_t number, fb_ckpt_counts *seen)
{
    const fb_ckpt_lane *lane = &job->tensor->lanes[which];
    uint64_t block = number / lane->count, k = number % lane->count, inside = k * lane->elements;
    if (inside >= job->tensor->block_elements) inside = job->tensor->block_elements - 1;
    seen->first_index = block * job->tensor->block_elements + inside;
    seen->first_at = job->offset_bytes + block * job->tensor->period_bytes + lane->offset_bytes + k * fb_ckpt_lane_bytes(lane);
    seen->lane = (int32_t)which;
}

static void judge_numbers(const fb_ckpt_job *job, const fb_format *format, uint32_t which, const uint8_t *data, uint64_t first,
                          size_t n, fb_ckpt_counts *counts, fb_stream *stream)
{
    fb_ckpt_counts seen;
    fb_stream own;
    if (!stream && !(job->wants & FB_CKPT_WANT_ZEROS) && fb_pass_locate(job->kernel, format, 0, data, n) == n) return;
    fb_stream_init(&own, job->kernel, format, stream != NULL);
    fb_stream_add(&own, data, first, n);
    if (stream) fb_stream_merge(stream, &own);
    fb_ckpt_counts_init(&seen);
    seen.nan = own.tally.nan;
    seen.pos_inf = own.tally.pos_inf;
    seen.neg_inf = own.tally.neg_inf;
    seen.zero = own.tally.zeros;
    if (own.tally.first_index != FB_NO_INDEX) {
        seen.first_bits = own.tally.first_bits;
        seen.first_kind = own.tally.first_kind;
        place_in_tensor(job, which, own.tally.first_index, &seen);
    }
    fb_ckpt_counts_add(counts, &seen);
}

void fb_ckpt_judge_lane(const fb_ckpt_job *job, uint32_t which, const uint8_t *data, uint64_t first, uint64_t blocks,
                        fb_ckpt_counts *counts, fb_stream *stream)
{
    const fb_ckpt_lane *lane = &job->tensor->lanes[which];
    const fb_format *format = fb_ckpt_lane_format(lane);
    uint8_t buffer[FB_BLOCK_BYTES]; /* the lane is at most a block, which is at most FB_CKPT_PERIOD_MAX */
    size_t number, chunk;
    if (!format || lane->count == 0) return;
    number = fb_format_part_bytes(format) * format->parts;
    chunk = stream ? job->grain_bytes / job->unit_bytes : sizeof buffer / (number * lane->count);
    data += lane->offset_bytes;
    while (blocks) {
        size_t take = blocks < chunk ? (size_t)blocks : chunk;
        gather_lane(job, lane, format, data, job->unit_bytes, take, buffer);
        judge_numbers(job, format, which, buffer, first * lane->count, take * lane->count, counts, stream);
        data += take * job->unit_bytes;
        first += take;
        blocks -= take;
    }
}

void fb_ckpt_judge_numbers(const fb_ckpt_job *job, uint32_t which, const uint8_t *data, uint64_t first, size_t n,
                           fb_ckpt_counts *counts, fb_stream *stream)
{
    fb_ckpt_lane lane = job->tensor->lanes[which];
    const fb_format *format = fb_ckpt_lane_format(&lane);
    uint8_t buffer[FB_BLOCK_BYTES];
    if (!format) return;
    lane.count = (uint32_t)n;
    gather_lane(job, &lane, format, data, 0, 1, buffer);
    judge_numbers(job, format, which, buffer, first, n, counts, stream);
}

void fb_ckpt_judge(const fb_ckpt_job *job, const uint8_t *data, uint64_t first, uint64_t units, fb_ckpt_counts *counts,
                   fb_stream *stream)
{
    if (job->how == FB_CKPT_PLAIN) {
        fb_ckpt_judge_plain(job, data, first, units, counts, stream);
        return;
    }
    for (uint32_t i = 0; i < job->tensor->lane_count; i++) fb_ckpt_judge_lane(job, i, data, first, units, counts, stream);
}
