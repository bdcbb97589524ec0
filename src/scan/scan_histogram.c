/*
 * Exponent histograms. Exact: the raw exponent field (of 8 bits the whole code, of F16 the upper half) indexes one of eight small
 * tables in turn, so that equal neighbours, which are the rule, do not wait for each other's store; the fields are mapped to bins
 * once a chunk. Sampled: one place in each 16 elements, chosen by a hash of the flat index, because a fixed place would see one
 * column of a matrix alone.
 */
#include "scan/scan_finite_math.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "scan/scan_pass.h"

/* Index into a table: the bin itself for F64, whose field has 11 bits, the code for 8 bits, else the exponent field. */
static inline __attribute__((always_inline)) unsigned raw_index(unsigned bits, unsigned shift, uint64_t mask, uint64_t code)
{
    int field;
    if (bits < 64) return (unsigned)((code >> shift) & mask);
    field = (int)((code >> 52) & 0x7ff);
    if (field == 0) return 0;
    if (field == 0x7ff) return 255;
    field -= 1023 - 127;
    return (unsigned)(field < 1 ? 1 : field > 254 ? 254 : field);
}

static inline __attribute__((always_inline)) void exact(unsigned bits, unsigned shift, uint64_t mask, const uint8_t *data, size_t n,
                                                        fb_raw_bins *raw)
{
    size_t i, k;
    for (i = 0; i + FB_RAW_TABLES <= n; i += FB_RAW_TABLES)
        for (k = 0; k < FB_RAW_TABLES; k++) raw->counts[k][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, i + k))]++;
    for (; i < n; i++) raw->counts[0][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, i))]++;
}

#if defined(__x86_64__)
/*
 * The same for F32 and BF16, whose exponents lie close together in real tensors: a byte each, and then each value counted over all
 * bytes at once, from the largest down, until what is left is so little that it is counted one by one. Twice as fast where ten or
 * fifteen values hold nearly all, which is so of anything like a normal distribution.
 *
 * FIELD_LEFT: of a run, counted one by one. Each of them costs a branch that is guessed wrong, some ten of them as much as one more
 * value counted over the run; with 1/64 left this end took longer than all before it.
 */
enum { FIELD_RUN = 4096, FIELD_WIDTH = 32, FIELD_STEP = 4 * FIELD_WIDTH, FIELD_VALUES_MAX = 20, FIELD_LEFT = 512 };

#define AVX2 __attribute__((target("avx2")))

AVX2 static __m256i load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* The exponents of the next eight F32, a word each. */
AVX2 static __m256i fields_f32(const uint8_t *at)
{
    return _mm256_and_si256(_mm256_srli_epi32(load(at), 23), _mm256_set1_epi32(255));
}

AVX2 static __m256i fields_bf16(const uint8_t *at)
{
    return _mm256_and_si256(_mm256_srli_epi16(load(at), 7), _mm256_set1_epi16(255));
}

/* A byte each, in an order that a histogram does not see. Returns the largest. */
AVX2 static uint8_t fields_of(unsigned bits, const uint8_t *data, size_t n, uint8_t *fields)
{
    __m256i most = _mm256_setzero_si256();
    uint8_t lanes[FIELD_WIDTH], largest = 0;
    size_t i;
    for (i = 0; i < n; i += FIELD_WIDTH) {
        const uint8_t *at = data + i * (bits / 8);
        __m256i low, high;
        if (bits == 32) {
            low = _mm256_packus_epi32(fields_f32(at), fields_f32(at + 32));
            high = _mm256_packus_epi32(fields_f32(at + 64), fields_f32(at + 96));
        } else {
            low = fields_bf16(at);
            high = fields_bf16(at + 32);
        }
        low = _mm256_packus_epi16(low, high);
        _mm256_store_si256((__m256i *)(void *)(fields + i), low);
        most = _mm256_max_epu8(most, low);
    }
    _mm256_storeu_si256((__m256i *)(void *)lanes, most);
    for (i = 0; i < FIELD_WIDTH; i++) largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

/* n is a multiple of FIELD_STEP, at most FIELD_RUN, so that no count of a lane passes 255. Unrolled by hand: gcc does not. */
AVX2 static uint32_t count_field(const uint8_t *fields, size_t n, uint8_t value)
{
    const __m256i wanted = _mm256_set1_epi8((char)value);
    __m256i a = _mm256_setzero_si256(), b = a;
    uint64_t sums[4];
    size_t i;
    for (i = 0; i < n; i += FIELD_STEP) {
        const uint8_t *at = fields + i;
        a = _mm256_sub_epi8(a, _mm256_cmpeq_epi8(load(at), wanted));
        b = _mm256_sub_epi8(b, _mm256_cmpeq_epi8(load(at + FIELD_WIDTH), wanted));
        a = _mm256_sub_epi8(a, _mm256_cmpeq_epi8(load(at + 2 * FIELD_WIDTH), wanted));
        b = _mm256_sub_epi8(b, _mm256_cmpeq_epi8(load(at + 3 * FIELD_WIDTH), wanted));
    }
    a = _mm256_add_epi64(_mm256_sad_epu8(a, _mm256_setzero_si256()), _mm256_sad_epu8(b, _mm256_setzero_si256()));
    _mm256_storeu_si256((__m256i *)(void *)sums, a);
    return (uint32_t)(sums[0] + sums[1] + sums[2] + sums[3]);
}

AVX2 static void count_up_to(const uint8_t *fields, size_t n, uint8_t value, uint32_t counts[256])
{
    const __m256i limit = _mm256_set1_epi8((char)value);
    size_t i;
    for (i = 0; i < n; i += FIELD_WIDTH) {
        __m256i some = load(fields + i);
        unsigned found = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(some, limit), some));
        for (; found; found &= found - 1) counts[fields[i + (unsigned)__builtin_ctz(found)]]++;
    }
}

static void exact_by_value(unsigned bits, const uint8_t *data, size_t n, fb_raw_bins *raw)
{
    uint8_t fields[FIELD_RUN] __attribute__((aligned(FIELD_WIDTH)));
    size_t left = n;
    int value, rounds = 0;
    for (value = fields_of(bits, data, n, fields); value >= 0 && left > n / FIELD_LEFT && rounds < FIELD_VALUES_MAX;
         value--, rounds++) {
        uint32_t count = count_field(fields, n, (uint8_t)value);
        raw->counts[0][value] += count;
        left -= count;
    }
    if (left) count_up_to(fields, n, (uint8_t)value, raw->counts[1]);
}

/* Returns how many of the n elements were counted; the rest is for the other way. */
static size_t exact_fast(unsigned bits, const uint8_t *data, size_t n, fb_raw_bins *raw)
{
    size_t done = 0;
    if (!__builtin_cpu_supports("avx2")) return 0;
    while (n - done >= FIELD_STEP) {
        size_t take = n - done < FIELD_RUN ? (n - done) / FIELD_STEP * FIELD_STEP : FIELD_RUN;
        exact_by_value(bits, data + done * (bits / 8), take, raw);
        done += take;
    }
    return done;
}
#else
static size_t exact_fast(unsigned bits, const uint8_t *data, size_t n, fb_raw_bins *raw)
{
    (void)bits;
    (void)data;
    (void)n;
    (void)raw;
    return 0;
}
#endif

/* start is the flat index of data[0], a multiple of 16 since blocks are. */
static inline __attribute__((always_inline)) void sampled(unsigned bits, unsigned shift, uint64_t mask, const uint8_t *data,
                                                          uint64_t start, size_t n, fb_raw_bins *raw)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hash = start / 16 * step;
    size_t i = 0, at, k;
    /* Whole rounds over the tables first, in which no place lies beyond the end. */
    for (; i + 16 * FB_RAW_TABLES <= n; i += 16 * FB_RAW_TABLES, hash += FB_RAW_TABLES * step)
        for (k = 0; k < FB_RAW_TABLES; k++) {
            at = i + 16 * k + (size_t)((hash + k * step) >> 60);
            raw->counts[k][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, at))]++;
        }
    for (; i < n; i += 16, hash += step) {
        at = i + (size_t)(hash >> 60);
        if (at < n) raw->counts[0][raw_index(bits, shift, mask, fb_part_bits(data, bits / 8, at))]++;
    }
}

#define EITHER(bits, shift, mask)                                                          \
    do {                                                                                   \
        if (mode == FB_HISTOGRAM_SAMPLED) sampled(bits, shift, mask, data, start, n, raw); \
        else exact(bits, shift, mask, data, n, raw);                                       \
    } while (0)

void fb_pass_histogram(const fb_format *format, const uint8_t *data, uint64_t start, size_t n, int32_t mode, fb_raw_bins *raw)
{
    start *= format->parts;
    n *= format->parts;
    if (mode == FB_HISTOGRAM_EXACT && (format->part_bits == 32 || format->dtype == FB_BF16)) {
        size_t done = exact_fast(format->part_bits, data, n, raw);
        data += done * (format->part_bits / 8);
        n -= done;
    }
    switch (format->part_bits) {
    case 8: EITHER(8, 0, 255); return;
    case 16:
        if (format->dtype == FB_F16) EITHER(16, 8, 255); /* a byte of its own in memory */
        else EITHER(16, 7, 255);
        return;
    case 32: EITHER(32, 23, 255); return;
    default: EITHER(64, 0, 0); return;
    }
}

/* Where in a code the index of the tables begins. */
static int raw_shift(const fb_format *format)
{
    if (format->part_bits == 8) return 0;
    return format->dtype == FB_F16 ? 8 : format->mantissa_bits;
}

void fb_raw_bins_fold(const fb_format *format, fb_raw_bins *raw, uint64_t bins[256])
{
    size_t field, k;
    for (field = 0; field < 256; field++) {
        uint64_t total = 0;
        for (k = 0; k < FB_RAW_TABLES; k++) total += raw->counts[k][field];
        if (!total) continue;
        bins[format->part_bits == 64 ? field : fb_format_bin(format, (uint64_t)field << raw_shift(format))] += total;
    }
    memset(raw, 0, sizeof *raw);
}
