#include "scan/scan_finite_math.h"

#include "scan/scan_pass.h"

void fb_tally_init(fb_tally *tally, uint64_t *bins)
{
    memset(tally, 0, offsetof(fb_tally, sum));
    fb_sum_init(&tally->sum);
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

/* What a careful look at a block counts; kept in registers, and put into the tally at the end. */
typedef struct look {
    uint64_t zeros, subnormals, at_max, peak, low_less1;
} look;

/* The kind of an element: of a complex one, NaN before +Inf before -Inf. *bits becomes the part that gave it. */
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

static void tally_bad(const fb_format *format, const uint64_t parts[2], uint64_t index, fb_tally *tally)
{
    uint64_t bits;
    int32_t kind = element_kind(format, parts, &bits);
    if (kind == FB_KIND_NAN) tally->nan++;
    if (kind == FB_KIND_POS_INF) tally->pos_inf++;
    if (kind == FB_KIND_NEG_INF) tally->neg_inf++;
    if (index >= tally->first_index) return;
    tally->first_index = index;
    tally->first_bits = bits;
    tally->first_kind = kind;
}

/* An element at a time. bits, parts and statistics are constants in each use, so that each gets a loop of its own. */
static inline __attribute__((always_inline)) void look_at(const fb_format *format, unsigned bits, unsigned parts,
                                                          unsigned statistics, const uint8_t *data, uint64_t start, size_t n,
                                                          fb_tally *tally, look *out)
{
    const uint64_t flip = format->test_flip, mask = format->test_mask, bad_from = format->bad_from, abs_mask = format->abs_mask;
    const uint64_t min_normal = format->min_normal, max_bits = format->max_bits;
    const uint64_t low_offset = format->scheme == FB_SCHEME_E8M0 ? 0 : 1; /* its code 0 is 2^-127: see fb_tally.low_less1 */
    look seen = {0, 0, 0, 0, UINT64_MAX};
    size_t i;
    for (i = 0; i < n; i++) {
        uint64_t part[2] = {0, 0}, zero = 1, subnormal = 0, at_max = 0;
        unsigned k, bad = 0;
        for (k = 0; k < parts; k++) {
            part[k] = fb_part_bits(data, bits / 8, i * parts + k);
            bad |= ((part[k] ^ flip) & mask) >= bad_from;
        }
        if (bad) {
            tally_bad(format, part, start + i, tally);
            continue;
        }
        for (k = 0; k < parts; k++) {
            uint64_t magnitude = part[k] & abs_mask, low = magnitude - low_offset;
            if (magnitude > seen.peak) seen.peak = magnitude;
            if (!statistics) continue;
            zero &= low == UINT64_MAX;
            subnormal |= magnitude != 0 && magnitude < min_normal;
            at_max |= magnitude == max_bits;
            if (low < seen.low_less1) seen.low_less1 = low;
        }
        if (!statistics) continue;
        seen.zeros += zero;
        seen.subnormals += subnormal;
        seen.at_max += at_max;
    }
    *out = seen;
}

/* For blocks that hold something bad, and for the statistics of formats that are too rare for kernels. */
static void careful_block(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, unsigned statistics,
                          fb_tally *tally)
{
    int shift;
    double sum;
    look seen;
    if (format->parts == 2 && format->part_bits == 32) look_at(format, 32, 2, statistics, data, start, n, tally, &seen);
    else if (format->parts == 2) look_at(format, 64, 2, statistics, data, start, n, tally, &seen);
    else if (format->part_bits == 8) look_at(format, 8, 1, statistics, data, start, n, tally, &seen);
    else if (format->part_bits == 16) look_at(format, 16, 1, statistics, data, start, n, tally, &seen);
    else if (format->part_bits == 32) look_at(format, 32, 1, statistics, data, start, n, tally, &seen);
    else look_at(format, 64, 1, statistics, data, start, n, tally, &seen);
    if (seen.peak > tally->peak) tally->peak = seen.peak;
    if (seen.low_less1 < tally->low_less1) tally->low_less1 = seen.low_less1;
    if (statistics) {
        tally->zeros += seen.zeros;
        tally->subnormals += seen.subnormals;
        tally->at_max += seen.at_max;
    }
    sum = fb_ref_sum(format, data, n * format->parts, seen.peak, &shift);
    fb_sum_add(&tally->sum, sum, shift);
}

void fb_pass_block(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n, unsigned how,
                   fb_tally *tally)
{
    fb_block block;
    if ((how & FB_COUNTS) && (format->parts == 2 || format->scheme == FB_SCHEME_E8M0)) {
        careful_block(format, data, start, n, how & FB_COUNTS, tally);
        return;
    }
    kernel->block(format, how, data, n * format->parts, &block);
    fb_pass_take(kernel, format, data, start, n, how, &block, tally);
}

void fb_pass_take(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n, unsigned how,
                  const fb_block *block, fb_tally *tally)
{
    size_t parts = n * format->parts;
    /* The magnitude is the test wherever nothing is flipped before comparing; FNUZ has its NaN elsewhere. */
    if (fb_peak_is_bad(format, format->test_flip ? kernel->peak(format, 0, data, parts) : block->peak)) {
        careful_block(format, data, start, n, how & FB_COUNTS, tally);
        return;
    }
    if (block->peak > tally->peak) tally->peak = block->peak;
    if (how & FB_COUNTS) {
        if (block->low_less1 < tally->low_less1) tally->low_less1 = block->low_less1;
        tally->zeros += block->zeros;
        tally->subnormals += block->subnormals;
        tally->at_max += block->at_max;
    }
    if (fb_block_is_plain(format, block->peak)) {
        fb_sum_add(&tally->sum, block->sum, 0);
    } else {
        int shift;
        double sum = fb_ref_sum(format, data, parts, block->peak, &shift);
        fb_sum_add(&tally->sum, sum, shift);
    }
}

size_t fb_pass_locate(const fb_kernel *kernel, const fb_format *format, unsigned how, const uint8_t *data, size_t n)
{
    size_t bytes = fb_format_part_bytes(format), parts = n * format->parts, i;
    if (!fb_peak_is_bad(format, kernel->peak(format, how, data, parts))) return n;
    for (i = 0; i < parts; i++)
        if (fb_format_is_bad(format, fb_part_bits(data, bytes, i))) return i / format->parts;
    return n;
}

void fb_pass_source(const fb_kernel *kernel, const fb_format *format, const uint8_t *data, uint64_t start, size_t n,
                    fb_tally *tally)
{
    size_t bytes = fb_format_part_bytes(format), i;
    if (!fb_peak_is_bad(format, kernel->peak(format, 0, data, n))) return;
    for (i = 0; i < n; i++) {
        if (!fb_format_is_bad(format, fb_part_bits(data, bytes, i))) continue;
        tally->source_bad++;
        if (start + i < tally->source_first_index) tally->source_first_index = start + i;
    }
}
