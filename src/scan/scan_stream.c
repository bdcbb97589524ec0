#include "scan/scan_finite_math.h"

#include "scan/scan_fpenv.h"
#include "scan/scan_stream.h"
#include "scan/scan_task.h"

void fb_stream_init(fb_stream *stream, const fb_kernel *kernel, const fb_format *format, int full)
{
    stream->kernel = kernel;
    stream->format = format;
    stream->full = full;
    stream->elements = 0;
    if (full) memset(stream->bins, 0, sizeof stream->bins);
    stream->top[0] = stream->top[1] = 0;
    stream->bottom[0] = stream->bottom[1] = UINT64_MAX;
    fb_tally_init(&stream->tally, full ? stream->bins : NULL);
}

/* ---- extremes with sign ------------------------------------------------------------------------------------------------------ */

/*
 * Codes of sign and magnitude order as integers do: the largest signed integer is the largest number that is not negative, the
 * largest unsigned one the negative number that is farthest from zero. Four reductions that compilers turn into vector code.
 */
typedef struct ends {
    uint64_t unsigned_min, unsigned_max, positive_max, negative_min; /* the last two: of codes with the sign clear, set */
} ends;

#define ENDS(bits)                                                                                         \
    static inline __attribute__((always_inline)) void ends##bits(const uint8_t *data, size_t n, ends *out) \
    {                                                                                                      \
        uint##bits##_t low = UINT##bits##_MAX, high = 0;                                                   \
        int##bits##_t least = INT##bits##_MAX, most = INT##bits##_MIN;                                     \
        size_t i;                                                                                          \
        for (i = 0; i < n; i++) {                                                                          \
            uint##bits##_t code;                                                                           \
            int##bits##_t number;                                                                          \
            memcpy(&code, data + i * sizeof code, sizeof code);                                            \
            memcpy(&number, data + i * sizeof number, sizeof number);                                      \
            low = code < low ? code : low;                                                                 \
            high = code > high ? code : high;                                                              \
            least = number < least ? number : least;                                                       \
            most = number > most ? number : most;                                                          \
        }                                                                                                  \
        out->unsigned_min = low;                                                                           \
        out->unsigned_max = high;                                                                          \
        out->positive_max = (uint##bits##_t)most;                                                          \
        out->negative_min = (uint##bits##_t)least;                                                         \
    }
ENDS(8)
ENDS(16)
ENDS(32)
ENDS(64)

static inline __attribute__((always_inline)) void ends_of(unsigned bits, const uint8_t *data, size_t n, ends *out)
{
    switch (bits) {
    case 8: ends8(data, n, out); return;
    case 16: ends16(data, n, out); return;
    case 32: ends32(data, n, out); return;
    default: ends64(data, n, out); return;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void ends_avx2(unsigned bits, const uint8_t *data, size_t n, ends *out)
{
    ends_of(bits, data, n, out);
}
#endif

static void ends_any(const fb_kernel *kernel, unsigned bits, const uint8_t *data, size_t n, ends *out)
{
#if defined(__x86_64__)
    if (kernel != &fb_kernel_ref) { /* the others need AVX2 themselves */
        ends_avx2(bits, data, n, out);
        return;
    }
#endif
    (void)kernel;
    ends_of(bits, data, n, out);
}

static void take_end(fb_stream *stream, unsigned sign, uint64_t magnitude)
{
    if (magnitude > stream->top[sign]) stream->top[sign] = magnitude;
    if (magnitude < stream->bottom[sign]) stream->bottom[sign] = magnitude;
}

/* Parts of a block, one at a time: for blocks with something bad in them, and formats without a sign of the usual kind. */
static void careful_ends(fb_stream *stream, const uint8_t *data, size_t n)
{
    const fb_format *format = stream->format;
    size_t bytes = fb_format_part_bytes(format), i, k;
    for (i = 0; i < n; i++) {
        uint64_t part[2] = {0, 0};
        int bad = 0;
        for (k = 0; k < format->parts; k++) {
            part[k] = fb_part_bits(data, bytes, i * format->parts + k);
            bad |= fb_format_is_bad(format, part[k]);
        }
        for (k = 0; k < format->parts && !bad; k++) {
            uint64_t magnitude = part[k] & format->abs_mask;
            take_end(stream, magnitude != part[k], magnitude);
        }
    }
}

static void take_ends(fb_stream *stream, const uint8_t *data, size_t n, int clean)
{
    const fb_format *format = stream->format;
    uint64_t sign = format->abs_mask + 1;
    ends seen;
    if (!clean || format->scheme == FB_SCHEME_E8M0) {
        careful_ends(stream, data, n);
        return;
    }
    ends_any(stream->kernel, format->part_bits, data, n * format->parts, &seen);
    if (!(seen.positive_max & sign)) take_end(stream, 0, seen.positive_max);
    if (!(seen.unsigned_min & sign)) take_end(stream, 0, seen.unsigned_min);
    if (seen.unsigned_max & sign) take_end(stream, 1, seen.unsigned_max & format->abs_mask);
    if (seen.negative_min & sign) take_end(stream, 1, seen.negative_min & format->abs_mask);
}

/*
 * 1: a clean block cannot move the ends that come out: both signs were seen, so that the smallest magnitudes count for nothing, and
 * no magnitude in it is above the largest of either sign. After a few blocks of one tensor that is the rule.
 */
static int ends_stay(const fb_stream *stream, uint64_t block_peak)
{
    if (stream->bottom[0] == UINT64_MAX || stream->bottom[1] == UINT64_MAX) return 0;
    return block_peak <= stream->top[0] && block_peak <= stream->top[1];
}

/* The smallest and the largest value, from the ends of both signs. */
static void extremes(const fb_stream *stream, double *min, double *max)
{
    const fb_format *format = stream->format;
    int positive = stream->bottom[0] != UINT64_MAX, negative = stream->bottom[1] != UINT64_MAX;
    *min = *max = 0.0;
    if (negative) *min = -fb_format_value(format, stream->top[1]);
    else if (positive) *min = fb_format_value(format, stream->bottom[0]);
    if (positive) *max = fb_format_value(format, stream->top[0]);
    else if (negative) *max = -fb_format_value(format, stream->bottom[1]);
}

/* ---- the stream -------------------------------------------------------------------------------------------------------------- */

static uint64_t bad_in(const fb_tally *tally)
{
    return tally->nan + tally->pos_inf + tally->neg_inf;
}

void fb_stream_add(fb_stream *stream, const uint8_t *data, uint64_t start, size_t n)
{
    const fb_format *format = stream->format;
    size_t element = fb_format_part_bytes(format) * format->parts, block = FB_BLOCK_BYTES / element, done, take;
    fb_fpenv modes = fb_fpenv_enter();
    fb_raw_bins raw;
    if (stream->full) memset(&raw, 0, sizeof raw);
    for (done = 0; done < n; done += take) {
        const uint8_t *at = data + done * element;
        uint64_t bad = bad_in(&stream->tally), peak = stream->tally.peak, block_peak;
        int clean;
        take = n - done < block ? n - done : block;
        stream->tally.peak = 0;
        fb_pass_block(stream->kernel, format, at, start + done, take, FB_COUNTS, &stream->tally);
        block_peak = stream->tally.peak;
        if (peak > block_peak) stream->tally.peak = peak;
        if (!stream->full) continue;
        fb_pass_histogram(format, at, start + done, take, FB_HISTOGRAM_EXACT, &raw);
        clean = bad == bad_in(&stream->tally);
        if (!clean || !ends_stay(stream, block_peak)) take_ends(stream, at, take, clean);
    }
    if (stream->full) fb_raw_bins_fold(format, &raw, stream->bins);
    stream->elements += n;
    fb_fpenv_leave(modes);
}

void fb_stream_merge(fb_stream *into, const fb_stream *from)
{
    int sign;
    fb_tally_merge(&into->tally, &from->tally);
    into->elements += from->elements;
    for (sign = 0; sign < 2; sign++) {
        if (from->top[sign] > into->top[sign]) into->top[sign] = from->top[sign];
        if (from->bottom[sign] < into->bottom[sign]) into->bottom[sign] = from->bottom[sign];
    }
}

void fb_stream_result(const fb_stream *stream, fb_scan_result *out, fb_histogram *histogram, double *min, double *max)
{
    fb_fpenv modes;
    out->size = sizeof *out;
    fb_tally_result(stream->format, stream->elements, &stream->tally, out);
    if (histogram) {
        histogram->size = sizeof *histogram;
        fb_bins_result(stream->bins, FB_HISTOGRAM_EXACT, histogram);
    }
    modes = fb_fpenv_enter();
    if (min && max) extremes(stream, min, max);
    fb_fpenv_leave(modes);
}
