/*
 * The input gate: a batch of token ids, labels, positions, masks, loss weights and lengths. Integers are compared as integers; a
 * loss weight is a float and goes the way of tensors.
 */
#include <string.h>

#include "base/status.h"
#include "firstbad/scan.h"
#include "guard/run.h"
#include "scan/scan_format.h"
#include "scan/scan_fpenv.h"

enum { WIDEST_UNSIGNED = 8 };

static int is_integer(int32_t dtype)
{
    return dtype >= FB_I8 && dtype <= FB_BOOL;
}

/* Element i of an integer array. U64 above INT64_MAX is out of every range we are asked for, and comes back as INT64_MAX. */
static int64_t load(const void *data, int32_t dtype, uint64_t i)
{
    const uint8_t *bytes = data;
    switch (dtype) {
    case FB_I8: return ((const int8_t *)data)[i];
    case FB_U8:
    case FB_BOOL: return bytes[i];
    case FB_I16: {
        int16_t value;
        memcpy(&value, bytes + 2 * i, 2);
        return value;
    }
    case FB_U16: {
        uint16_t value;
        memcpy(&value, bytes + 2 * i, 2);
        return value;
    }
    case FB_I32: {
        int32_t value;
        memcpy(&value, bytes + 4 * i, 4);
        return value;
    }
    case FB_U32: {
        uint32_t value;
        memcpy(&value, bytes + 4 * i, 4);
        return value;
    }
    case FB_I64: {
        int64_t value;
        memcpy(&value, bytes + 8 * i, 8);
        return value;
    }
    default: {
        uint64_t value;
        memcpy(&value, bytes + 8 * i, 8);
        return value > INT64_MAX ? INT64_MAX : (int64_t)value;
    }
    }
}

/* What one pass over an integer array says. */
struct summary {
    int64_t min, max; /* of the values that count */
    uint64_t outside; /* values outside [low, high] that are not `exception` */
    uint64_t first;   /* index of the first of them */
    int64_t value;
    uint64_t excepted;
};

static struct summary summarise(const void *data, int32_t dtype, uint64_t count, int64_t low, int64_t high,
                                const int64_t *exception)
{
    struct summary sum = {INT64_MAX, INT64_MIN, 0, FB_NO_INDEX, 0, 0};
    for (uint64_t i = 0; i < count; i++) {
        int64_t value = load(data, dtype, i);
        if (exception && value == *exception) {
            sum.excepted++;
            continue;
        }
        if (value < sum.min) sum.min = value;
        if (value > sum.max) sum.max = value;
        if (value >= low && value <= high) continue;
        if (sum.outside++ == 0) {
            sum.first = i;
            sum.value = value;
        }
    }
    return sum;
}

static void find(struct fb_run *run, uint32_t site, int32_t field, int32_t kind, uint64_t count, uint64_t first, int64_t value,
                 int64_t low, int64_t high, int injected)
{
    fb_finding finding;
    memset(&finding, 0, sizeof finding);
    finding.size = (uint32_t)sizeof finding;
    finding.site = site;
    finding.boundary = FB_INPUT;
    finding.micro_step = run->step.micro;
    finding.kind = kind;
    finding.field = field;
    finding.count = count;
    finding.first_index = first;
    finding.value = value;
    finding.low = low;
    finding.high = high;
    fb_finding_add(run, &finding, injected);
}

static struct summary check_range(struct fb_run *run, uint32_t site, int32_t field, const void *data, int32_t dtype, uint64_t count,
                                  int64_t low, int64_t high, const int64_t *exception, int injected)
{
    struct summary sum = summarise(data, dtype, count, low, high, exception);
    if (sum.outside) find(run, site, field, FB_KIND_OUT_OF_RANGE, sum.outside, sum.first, sum.value, low, high, injected);
    return sum;
}

/* ---- injection --------------------------------------------------------------------------------------------------------------- */

static int inject(struct fb_run *run, const fb_tokens *batch, int32_t where, void *data, int32_t dtype, int64_t bad,
                  int64_t ignored)
{
    fb_plant_place place = {data, dtype, batch->rows * batch->cols, bad, ignored};
    return fb_plant_integers(run, where, batch->site, &place);
}

static uint32_t weight_site(const fb_tokens *batch)
{
    return batch->weight_site == UINT32_MAX ? batch->site : batch->weight_site;
}

/* ---- the fields -------------------------------------------------------------------------------------------------------------- */

static void check_tokens(struct fb_run *run, const fb_tokens *batch)
{
    fb_rec_step *rec = &run->step.rec;
    uint64_t count = batch->rows * batch->cols;
    int injected;
    struct summary sum;
    if (!batch->tokens) return;
    injected = inject(run, batch, FB_INJECT_TOKEN, batch->tokens, batch->token_dtype, batch->vocab, 0);
    sum = check_range(run, batch->site, FB_FIELD_TOKENS, batch->tokens, batch->token_dtype, count, 0, batch->vocab - 1, NULL,
                      injected);
    fb_run_lock(run);
    if (count && (rec->tokens == 0 || sum.min < rec->token_min)) rec->token_min = sum.min;
    if (count && (rec->tokens == 0 || sum.max > rec->token_max)) rec->token_max = sum.max;
    rec->rows += batch->rows;
    rec->tokens += count;
    fb_run_unlock(run);
}

/* A weight that is 0 takes its label out of the mean. NaN is not above 0 either, and is found by its own check. */
static int weight_counts(const fb_tokens *batch, const fb_format *format, uint64_t i)
{
    size_t bytes;
    if (!batch->weights) return 1;
    bytes = fb_format_part_bytes(format);
    return fb_format_value(format, fb_part_bits(batch->weights, bytes, i)) > 0.0;
}

static uint64_t count_valid(const fb_tokens *batch)
{
    const fb_format *format = batch->weights ? fb_format_of(batch->weight_dtype) : NULL;
    uint64_t count = batch->rows * batch->cols, valid = 0;
    for (uint64_t i = 0; i < count; i++) {
        valid += load(batch->labels, batch->label_dtype, i) != batch->ignore_index && weight_counts(batch, format, i);
    }
    return valid;
}

static void check_labels(struct fb_run *run, fb_tokens *batch)
{
    uint64_t count = batch->rows * batch->cols, valid;
    int injected;
    batch->valid_tokens = -1;
    if (!batch->labels) return;
    injected = inject(run, batch, FB_INJECT_LABEL, batch->labels, batch->label_dtype, batch->classes, batch->ignore_index);
    (void)check_range(run, batch->site, FB_FIELD_LABELS, batch->labels, batch->label_dtype, count, 0, batch->classes - 1,
                      &batch->ignore_index, injected);
    valid = count_valid(batch);
    batch->valid_tokens = (int64_t)valid;
    fb_run_lock(run);
    run->step.rec.valid_tokens += valid;
    fb_run_unlock(run);
    if (count && valid == 0)
        find(run, batch->site, FB_FIELD_LABELS, FB_KIND_ALL_IGNORED, count, 0, batch->ignore_index, 0, 0, injected);
}

static void check_weights(struct fb_run *run, const fb_tokens *batch)
{
    fb_finding finding;
    fb_view view;
    const fb_format *format;
    size_t bytes;
    int injected;
    if (!batch->weights || batch->rows * batch->cols == 0) return;
    memset(&view, 0, sizeof view);
    view.data = batch->weights;
    view.count = batch->rows * batch->cols;
    view.dtype = batch->weight_dtype;
    view.device = -1;
    view.site = weight_site(batch);
    injected = fb_plant_view(run, FB_INJECT_WEIGHT, FB_INPUT, &view);
    format = fb_format_of(batch->weight_dtype);
    bytes = fb_format_part_bytes(format);
    memset(&finding, 0, sizeof finding);
    for (uint64_t i = 0; i < view.count; i++) {
        uint64_t bits = fb_part_bits(batch->weights, bytes, i);
        int32_t kind = fb_format_is_bad(format, bits) ? fb_format_kind(format, bits) : FB_KIND_NONE;
        if (kind == FB_KIND_NONE && !(fb_format_value(format, bits) >= 0.0)) kind = FB_KIND_DOMAIN;
        if (kind == FB_KIND_NONE || finding.count++) continue;
        finding.kind = kind;
        finding.first_index = i;
    }
    if (finding.count == 0) return;
    finding.stats.size = (uint32_t)sizeof finding.stats;
    (void)fb_scan(&view, &finding.stats, NULL);
    finding.stats.first_bits = fb_part_bits(batch->weights, bytes, finding.first_index);
    finding.size = (uint32_t)sizeof finding;
    finding.site = weight_site(batch);
    finding.boundary = FB_INPUT;
    finding.micro_step = run->step.micro;
    finding.field = FB_FIELD_WEIGHTS;
    fb_finding_add(run, &finding, injected);
}

static void check_lengths(struct fb_run *run, const fb_tokens *batch)
{
    int64_t high = batch->length_max < (int64_t)batch->cols ? batch->length_max : (int64_t)batch->cols;
    if (!batch->lengths) return;
    (void)check_range(run, batch->site, FB_FIELD_LENGTHS, batch->lengths, FB_I64, batch->rows, batch->length_min, high, NULL, 0);
}

/* A row of a mask without a single 1: softmax over nothing. The row is told by the index of its first element. */
static void check_mask_rows(struct fb_run *run, const fb_tokens *batch)
{
    uint64_t empty = 0, first = FB_NO_INDEX;
    for (uint64_t row = 0; row < batch->rows; row++) {
        uint64_t col = 0;
        while (col < batch->cols && load(batch->mask, batch->mask_dtype, row * batch->cols + col) == 0) col++;
        if (col < batch->cols || batch->cols == 0) continue;
        if (empty++ == 0) first = row * batch->cols;
    }
    if (empty) find(run, batch->site, FB_FIELD_MASK, FB_KIND_ALL_IGNORED, empty, first, (int64_t)(first / batch->cols), 0, 0, 0);
}

static void check_deep(struct fb_run *run, const fb_tokens *batch)
{
    uint64_t count = batch->rows * batch->cols;
    if (batch->positions) {
        (void)check_range(run, batch->site, FB_FIELD_POSITIONS, batch->positions, batch->position_dtype, count, 0,
                          batch->positions_max - 1, NULL, 0);
    }
    if (!batch->mask) return;
    (void)check_range(run, batch->site, FB_FIELD_MASK, batch->mask, batch->mask_dtype, count, 0, 1, NULL, 0);
    check_mask_rows(run, batch);
}

/* ---- the call ---------------------------------------------------------------------------------------------------------------- */

static fb_status integer_valid(const char *name, const void *data, int32_t dtype, int64_t limit, const char *limit_name,
                               fb_error *err)
{
    if (!data) return FB_OK;
    if (!is_integer(dtype))
        return fb_fail(err, FB_E_DTYPE, "check batch: %s have the format %d, expected an integer format", name, dtype);
    if (limit < 1)
        return fb_fail(err, FB_E_USAGE, "check batch: %s need %s of 1 or more, found %lld", name, limit_name, (long long)limit);
    return FB_OK;
}

static fb_status batch_valid(struct fb_run *run, const fb_tokens *batch, fb_error *err)
{
    fb_status status;
    const fb_format *format;
    if (!batch) return fb_fail(err, FB_E_USAGE, "check batch: tokens is NULL");
    if (batch->size != sizeof *batch) {
        return fb_fail(err, FB_E_USAGE, "check batch: size is %u, expected %zu; start from FB_TOKENS_INIT", batch->size,
                       sizeof *batch);
    }
    if (!fb_sites_get(&run->sites, batch->site) || !fb_sites_get(&run->sites, weight_site(batch))) {
        return fb_fail(err, FB_E_SITE, "check batch: site %u or weight_site %u was not given out", batch->site, batch->weight_site);
    }
    if (batch->cols && batch->rows > (UINT64_MAX / WIDEST_UNSIGNED) / batch->cols) {
        return fb_fail(err, FB_E_USAGE, "check batch: %llu rows of %llu are more than memory holds",
                       (unsigned long long)batch->rows, (unsigned long long)batch->cols);
    }
    if ((status = integer_valid("tokens", batch->tokens, batch->token_dtype, batch->vocab, "a vocab", err)) != FB_OK) return status;
    if ((status = integer_valid("labels", batch->labels, batch->label_dtype, batch->classes, "classes", err)) != FB_OK)
        return status;
    if ((status = integer_valid("positions", batch->positions, batch->position_dtype, batch->positions_max, "positions_max",
                                err)) != FB_OK) {
        return status;
    }
    if ((status = integer_valid("masks", batch->mask, batch->mask_dtype, 1, "", err)) != FB_OK) return status;
    if (!batch->weights) return FB_OK;
    format = fb_format_of(batch->weight_dtype);
    if (!format || format->scheme == FB_SCHEME_NONE || format->parts != 1) {
        return fb_fail(err, FB_E_DTYPE, "check batch: weights have the format %d, expected a real floating-point format",
                       batch->weight_dtype);
    }
    return FB_OK;
}

/* A batch without elements, or of which no array was given, was not checked. */
static int anything_read(const fb_tokens *batch, int deep)
{
    int each = batch->tokens || batch->labels || batch->weights || (deep && (batch->positions || batch->mask));
    return (batch->rows && batch->cols && each) || (batch->rows && batch->lengths);
}

static fb_status check_batch(struct fb_run *run, fb_tokens *batch, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "check batch", err);
    int deep;
    if (status != FB_OK) return status;
    if (run->step.ballot_out || run->step.unscaled || run->step.applied) {
        return fb_fail(err, FB_E_ORDER, "check batch: it comes before the ballot of its update");
    }
    if ((status = batch_valid(run, batch, err)) != FB_OK) return status;
    deep = fb_risk_deep(&run->risk);
    check_tokens(run, batch);
    check_weights(run, batch); /* before the labels: what they count depends on it */
    check_labels(run, batch);
    check_lengths(run, batch);
    if (deep) check_deep(run, batch);
    fb_run_lock(run);
    if (anything_read(batch, deep)) {
        fb_check_mark(run, FB_INPUT, batch->site, &run->step.rec.cover.tensors[FB_INPUT]);
        fb_cover_level(run, FB_INPUT, deep ? FB_COVER_FULL : FB_COVER_SUMMARY);
    }
    run->step.unsettled = 1;
    fb_run_unlock(run);
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_check_tokens(struct fb_run *run, fb_tokens *batch, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, check_batch(run, batch, err), err);
    fb_fpenv_leave(modes);
    return status;
}
