#include "scan/scan_finite_math.h"

#include "scan/scan_pass.h"

void fb_tally_init(fb_tally *tally, uint64_t *bins)
{
    memset(tally, 0, sizeof *tally);
    tally->first_index = FB_NO_INDEX;
    tally->source_first_index = FB_NO_INDEX;
    tally->low_less1 = UINT64_MAX;
    tally->bins = bins;
}

void fb_tally_merge(fb_tally *into, const fb_tally *from)
{
    int i;
    into->nan += from->nan;
    into->pos_inf += from->pos_inf;
    into->neg_inf += from->neg_inf;
    into->zeros += from->zeros;
    into->subnormals += from->subnormals;
    into->at_max += from->at_max;
    into->source_bad += from->source_bad;
    if (from->first_index < into->first_index) {
        into->first_index = from->first_index;
        into->first_bits = from->first_bits;
        into->first_kind = from->first_kind;
    }
    if (from->source_first_index < into->source_first_index) into->source_first_index = from->source_first_index;
    if (from->peak > into->peak) into->peak = from->peak;
    if (from->low_less1 < into->low_less1) into->low_less1 = from->low_less1;
    fb_sum_merge(&into->sum, &from->sum);
    if (into->bins && from->bins)
        for (i = 0; i < 256; i++) into->bins[i] += from->bins[i];
}

/* The kind of an element: of a complex one, NaN before +Inf before -Inf. *bits is then the part that gave it. */
static int32_t element_kind(const fb_format *format, const uint64_t parts[2], uint64_t *bits)
{
    int32_t kind = fb_format_kind(format, parts[0]), other;
    *bits = parts[0];
    if (format->parts == 1) return kind;
    other = fb_format_kind(format, parts[1]);
    if (other != FB_KIND_NONE && (kind == FB_KIND_NONE || other < kind)) {
        kind = other;
        *bits = parts[1];
    }
    return kind;
}

static void tally_finite(const fb_format *format, const uint64_t parts[2], fb_tally *tally)
{
    int zero = 1, subnormal = 0, at_max = 0, k;
    for (k = 0; k < format->parts; k++) {
        uint64_t magnitude = parts[k] & format->abs_mask;
        uint64_t low = magnitude - 1;
        if (format->scheme == FB_SCHEME_E8M0) low = magnitude; /* code 0 is 2^-127: see fb_tally.low_less1 */
        if (low != UINT64_MAX) zero = 0;
        if (magnitude && magnitude < format->min_normal) subnormal = 1;
        if (magnitude == format->max_bits) at_max = 1;
        if (low < tally->low_less1) tally->low_less1 = low;
    }
    tally->zeros += (uint64_t)zero;
    tally->subnormals += (uint64_t)subnormal;
    tally->at_max += (uint64_t)at_max;
}

static void tally_bad(int32_t kind, uint64_t index, uint64_t bits, fb_tally *tally)
{
    if (kind == FB_KIND_NAN) tally->nan++;
    if (kind == FB_KIND_POS_INF) tally->pos_inf++;
    if (kind == FB_KIND_NEG_INF) tally->neg_inf++;
    if (index >= tally->first_index) return;
    tally->first_index = index;
    tally->first_bits = bits;
    tally->first_kind = kind;
}

/* An element at a time: for blocks that hold something bad, and for the statistics of formats that are too rare for kernels. */
static void careful_block(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, int statistics, fb_tally *tally)
{
    size_t bytes = fb_format_part_bytes(format), i;
    uint64_t peak = 0, bits;
    int shift, k;
    double sum;
    for (i = 0; i < n; i++) {
        uint64_t parts[2] = {0, 0};
        int32_t kind;
        for (k = 0; k < format->parts; k++) parts[k] = fb_part_bits(data, bytes, i * format->parts + (size_t)k);
        kind = element_kind(format, parts, &bits);
        if (kind != FB_KIND_NONE) {
            tally_bad(kind, start + i, bits, tally);
            continue;
        }
        for (k = 0; k < format->parts; k++)
            if ((parts[k] & format->abs_mask) > peak) peak = parts[k] & format->abs_mask;
        if (statistics) tally_finite(format, parts, tally);
    }
    if (peak > tally->peak) tally->peak = peak;
    sum = fb_ref_sum(format, data, n * format->parts, peak, &shift);
    fb_sum_add(&tally->sum, sum, shift);
}

void fb_pass_block(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n, int statistics,
                   fb_tally *tally)
{
    size_t parts = n * format->parts;
    int bad_in_block = 0, rare = statistics && (format->parts == 2 || format->scheme == FB_SCHEME_E8M0);
    fb_block block;
    if (!rare) {
        kernel->block(format, data, parts, statistics, &block);
        /* The magnitude is the test wherever nothing is flipped before comparing; FNUZ has its NaN elsewhere. */
        bad_in_block = fb_peak_is_bad(format, format->test_flip ? kernel->peak(format, data, parts) : block.peak);
    }
    if (rare || bad_in_block) {
        careful_block(format, data, start, n, statistics, tally);
        return;
    }
    if (block.peak > tally->peak) tally->peak = block.peak;
    if (statistics) {
        if (block.low_less1 < tally->low_less1) tally->low_less1 = block.low_less1;
        tally->zeros += block.zeros;
        tally->subnormals += block.subnormals;
        tally->at_max += block.at_max;
    }
    if (fb_block_is_plain(format, block.peak)) {
        fb_sum_add(&tally->sum, block.sum, 0);
    } else {
        int shift;
        double sum = fb_ref_sum(format, data, parts, block.peak, &shift);
        fb_sum_add(&tally->sum, sum, shift);
    }
}

size_t fb_pass_locate(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, size_t n)
{
    size_t bytes = fb_format_part_bytes(format), parts = n * format->parts, i;
    if (!fb_peak_is_bad(format, kernel->peak(format, data, parts))) return n;
    for (i = 0; i < parts; i++)
        if (fb_format_is_bad(format, fb_part_bits(data, bytes, i))) return i / format->parts;
    return n;
}

void fb_pass_source(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n, fb_tally *tally)
{
    size_t bytes = fb_format_part_bytes(format), i;
    if (!fb_peak_is_bad(format, kernel->peak(format, data, n))) return;
    for (i = 0; i < n; i++) {
        if (!fb_format_is_bad(format, fb_part_bits(data, bytes, i))) continue;
        tally->source_bad++;
        if (start + i < tally->source_first_index) tally->source_first_index = start + i;
    }
}
