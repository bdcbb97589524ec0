#include "scan_result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/reader.h"
#include "cli.h"
#include "scan/scan_format.h"
#include "scan_show.h"

/* ---- lists ------------------------------------------------------------------------------------------------------------------- */

static void list_init(scan_list *list, size_t item_bytes, uint64_t max)
{
    memset(list, 0, sizeof *list);
    list->item_bytes = item_bytes;
    list->max = max;
}

/* Room for one more, zeroed; NULL when the list is full, which it counts, or when memory is gone. */
static void *list_add(scan_result *result, scan_list *list)
{
    unsigned char *item;
    if (list->max && list->count >= list->max) {
        list->left_out++;
        return NULL;
    }
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 16;
        unsigned char *items = room > SIZE_MAX / list->item_bytes ? NULL : fb_realloc(list->items, room * list->item_bytes);
        if (!items) {
            result->no_memory = 1;
            return NULL;
        }
        list->items = items;
        list->room = room;
    }
    item = list->items + list->count++ * list->item_bytes;
    memset(item, 0, list->item_bytes);
    return item;
}

static char *copy(scan_result *result, const char *text)
{
    char *made = fb_strdup(text ? text : "");
    if (!made) result->no_memory = 1;
    return made;
}

static void copy_shape(scan_result *result, scan_shape *shape, const uint64_t *dims, int32_t ndim)
{
    if (ndim <= 0) return;
    shape->dims = fb_calloc((size_t)ndim, sizeof *shape->dims);
    if (!shape->dims) {
        result->no_memory = 1;
        return;
    }
    memcpy(shape->dims, dims, (size_t)ndim * sizeof *dims);
    shape->ndim = ndim;
}

/* --- what belongs together --------------------------------------------------------------------------------------------------- */

/* A tensor is told of soon after, or soon before, what was found in it; with many of them a search of all would never end. */
enum { LOOK_BACK = 64 };

static int same_tensor(const scan_finding *finding, const scan_row *row)
{
    return finding->file && finding->tensor && row->file && row->name && strcmp(finding->tensor, row->name) == 0 &&
           strcmp(finding->file, row->file) == 0;
}

static void join(scan_finding *finding, const scan_row *row)
{
    if (!row->measured || !same_tensor(finding, row)) return;
    finding->measured = 1;
    finding->finite = row->finite;
    finding->largest = row->abs_max;
}

static void join_row(scan_list *findings, const scan_row *row)
{
    for (size_t i = findings->count, seen = 0; i > 0 && seen < LOOK_BACK; i--, seen++) {
        join((scan_finding *)(void *)(findings->items + (i - 1) * findings->item_bytes), row);
    }
}

static void join_finding(const scan_list *rows, scan_finding *finding)
{
    for (size_t i = rows->count, seen = 0; i > 0 && seen < LOOK_BACK; i--, seen++) join(finding, scan_row_at(rows, i - 1));
}

/* ---- the sink ---------------------------------------------------------------------------------------------------------------- */

static void take_finding(void *ctx, const fb_ckpt_finding *finding)
{
    scan_result *result = ctx;
    scan_list *list = finding->unreferenced ? &result->unreferenced : finding->legal ? &result->legal : &result->findings;
    scan_finding *kept = list_add(result, list);
    if (!kept) return;
    kept->file = copy(result, finding->file);
    kept->tensor = copy(result, finding->tensor);
    kept->dtype = copy(result, finding->dtype);
    kept->lane = copy(result, finding->lane);
    copy_shape(result, &kept->shape, finding->shape, finding->ndim);
    kept->facts = *finding;
    kept->facts.file = kept->facts.tensor = kept->facts.dtype = kept->facts.lane = NULL;
    kept->facts.shape = NULL;
    join_finding(&result->rows, kept);
}

static void take_remark(scan_result *result, scan_list *list, const char *file, const char *name, const char *text)
{
    scan_remark *kept = list_add(result, list);
    if (!kept) return;
    kept->file = copy(result, file);
    kept->name = copy(result, name);
    kept->text = copy(result, text);
}

static void take_unscanned(void *ctx, const char *file, const char *tensor, const char *why)
{
    scan_result *result = ctx;
    take_remark(result, &result->unscanned, file, tensor, why);
}

static void take_note(void *ctx, const char *file, const char *text)
{
    scan_result *result = ctx;
    take_remark(result, &result->notes, file, "", text);
}

static void take_security(void *ctx, const char *file, const char *import, const char *text)
{
    scan_result *result = ctx;
    take_remark(result, &result->security, file, import, text);
}

/* The files of a folder are told of one after the other, so the one that is meant is among the last. */
scan_file *scan_result_file(scan_result *result, const char *path)
{
    scan_file *file;
    for (size_t i = result->files.count, seen = 0; i > 0 && seen < LOOK_BACK; i--, seen++) {
        file = (scan_file *)(void *)(result->files.items + (i - 1) * result->files.item_bytes);
        if (file->path && strcmp(file->path, path) == 0) return file;
    }
    file = list_add(result, &result->files);
    if (!file) return NULL;
    file->path = copy(result, path);
    file->outcome = -1;
    return file;
}

static void take_file(void *ctx, const char *path, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                      const fb_error *reason)
{
    scan_result *result = ctx;
    scan_file *file = scan_result_file(result, path);
    if (!file) return;
    fb_free(file->format);
    fb_free(file->reason);
    file->format = copy(result, format);
    file->reason = copy(result, reason ? reason->message : "");
    file->reason_code = reason ? reason->code : FB_OK;
    file->reason_offset = reason ? reason->offset_bytes : 0;
    file->outcome = outcome;
    file->bytes = bytes;
    file->digest = digest;
}

static void keep_bins(scan_result *result, scan_row *row, const fb_histogram *histogram)
{
    enum { FIRST = 1, LAST = 254 }; /* 0: zero and subnormal; 255: non-finite */
    int low = FIRST, high = LAST;
    size_t count;
    while (low <= high && !histogram->bins[low]) low++;
    while (high >= low && !histogram->bins[high]) high--;
    row->low_bin = histogram->bins[0];
    if (low > high) return;
    count = (size_t)high - (size_t)low + 1;
    row->bins = fb_calloc(count, sizeof *row->bins);
    if (!row->bins) {
        result->no_memory = 1;
        return;
    }
    memcpy(row->bins, histogram->bins + low, count * sizeof *row->bins);
    row->first_bin = low;
    row->bin_count = (int32_t)count;
}

static void keep_row(scan_result *result, const char *file, const fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    const fb_format *format = fb_format_of(tensor->dtype);
    scan_row *row = list_add(result, &result->rows);
    if (!row) return;
    row->file = copy(result, file);
    row->name = copy(result, tensor->name);
    row->dtype = copy(result, tensor->dtype_name);
    if (tensor->unscanned) row->unscanned = copy(result, tensor->unscanned);
    copy_shape(result, &row->shape, tensor->shape, tensor->ndim);
    row->elements = tensor->elements;
    row->floating = tensor->lane_count > 0 || (format && format->scheme != FB_SCHEME_NONE);
    if (!stats || tensor->elements == 0) return;
    row->measured = 1;
    row->limit_dtype = stats->scan.dtype ? stats->scan.dtype : tensor->dtype;
    row->finite = stats->finite;
    row->nan = stats->scan.nan;
    row->pos_inf = stats->scan.pos_inf;
    row->neg_inf = stats->scan.neg_inf;
    row->zero = stats->scan.zero;
    row->subnormal = stats->scan.subnormal;
    row->at_max = stats->scan.at_max;
    row->min = stats->min;
    row->max = stats->max;
    row->abs_min = stats->scan.abs_min;
    row->abs_max = stats->scan.abs_max;
    row->norm = fb_scan_norm(&stats->scan);
    keep_bins(result, row, &stats->histogram);
    join_row(&result->findings, row);
    join_row(&result->legal, row);
}

static void take_tensor(void *ctx, const char *path, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    scan_result *result = ctx;
    if (result->folder) {
        scan_file *file = scan_result_file(result, path);
        if (file) {
            file->tensors++;
            file->elements += tensor->elements;
        }
    }
    if (result->stats) keep_row(result, path, tensor, stats);
}

static void take_progress(void *ctx, const char *file, uint64_t done_bytes, uint64_t total_bytes)
{
    scan_result *result = ctx;
    (void)file; /* the bar is that of the whole checkpoint */
    if (result->bar) scan_bar_progress(result->bar, done_bytes, total_bytes);
}

fb_ckpt_sink scan_result_sink(scan_result *result)
{
    fb_ckpt_sink sink = {result, take_finding, take_tensor, take_unscanned, take_note, take_security, take_file, take_progress};
    return sink;
}

/* ---- life -------------------------------------------------------------------------------------------------------------------- */

void scan_result_init(scan_result *result, const char *path, uint64_t list_max)
{
    memset(result, 0, sizeof *result);
    result->path = result->target = path;
    list_init(&result->findings, sizeof(scan_finding), list_max);
    list_init(&result->legal, sizeof(scan_finding), list_max);
    list_init(&result->unreferenced, sizeof(scan_finding), list_max);
    list_init(&result->unscanned, sizeof(scan_remark), list_max);
    list_init(&result->security, sizeof(scan_remark), list_max);
    list_init(&result->notes, sizeof(scan_remark), list_max);
    list_init(&result->files, sizeof(scan_file), 0);
    list_init(&result->rows, sizeof(scan_row), 0);
}

static void free_findings(scan_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const scan_finding *finding = scan_finding_at(list, i);
        fb_free(finding->file);
        fb_free(finding->tensor);
        fb_free(finding->dtype);
        fb_free(finding->lane);
        fb_free(finding->shape.dims);
    }
    fb_free(list->items);
}

static void free_remarks(scan_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const scan_remark *remark = scan_remark_at(list, i);
        fb_free(remark->file);
        fb_free(remark->name);
        fb_free(remark->text);
    }
    fb_free(list->items);
}

static void free_files_and_rows(scan_result *result)
{
    for (size_t i = 0; i < result->files.count; i++) {
        const scan_file *file = scan_file_at(&result->files, i);
        fb_free(file->path);
        fb_free(file->format);
        fb_free(file->reason);
    }
    for (size_t i = 0; i < result->rows.count; i++) {
        const scan_row *row = scan_row_at(&result->rows, i);
        fb_free(row->file);
        fb_free(row->name);
        fb_free(row->dtype);
        fb_free(row->unscanned);
        fb_free(row->shape.dims);
        fb_free(row->bins);
    }
    fb_free(result->files.items);
    fb_free(result->rows.items);
}

void scan_result_release(scan_result *result)
{
    free_findings(&result->findings);
    free_findings(&result->legal);
    free_findings(&result->unreferenced);
    free_remarks(&result->unscanned);
    free_remarks(&result->security);
    free_remarks(&result->notes);
    free_files_and_rows(result);
}

/* ---- what it comes to -------------------------------------------------------------------------------------------------------- */

/* Clean, and yet nothing in it could have been anything else: integers alone. */
static int nothing_checked(const scan_result *result)
{
    return result->summary.outcome == FB_CKPT_CLEAN && result->summary.checked == 0;
}

int scan_exit_code(const scan_result *result)
{
    if (result->status == FB_E_USAGE) return CLI_USAGE;
    /* What was found before the system refused to go on is no less bad. */
    if (result->status != FB_OK) return result->summary.bad ? CLI_BAD : CLI_UNREADABLE;
    switch (result->summary.outcome) {
    case FB_CKPT_CLEAN: return nothing_checked(result) ? CLI_UNDECIDED : CLI_CLEAN;
    case FB_CKPT_NON_FINITE: return CLI_BAD;
    case FB_CKPT_UNSUPPORTED: return CLI_UNDECIDED;
    default: return CLI_UNREADABLE;
    }
}

const char *scan_status_name(const scan_result *result)
{
    if (result->status != FB_OK)
        return fb_ckpt_outcome_name(scan_exit_code(result) == CLI_BAD ? FB_CKPT_NON_FINITE : FB_CKPT_UNREADABLE);
    return fb_ckpt_outcome_name(nothing_checked(result) ? FB_CKPT_UNSUPPORTED : result->summary.outcome);
}

int scan_is_whole(const scan_result *result)
{
    const fb_ckpt_summary *summary = &result->summary;
    return result->status == FB_OK && !result->stopped_at_first && !summary->unscanned && summary->reason.code == FB_OK &&
           (summary->outcome == FB_CKPT_CLEAN || summary->outcome == FB_CKPT_NON_FINITE);
}

const char *scan_format(const scan_result *result)
{
    const scan_file *only = !result->folder && result->files.count ? scan_file_at(&result->files, 0) : NULL;
    if (*result->summary.format) return result->summary.format;
    return only && only->format ? only->format : "";
}

const char *scan_reason(const scan_result *result)
{
    if (result->status != FB_OK) return result->err.message;
    if (result->summary.reason.code != FB_OK) return result->summary.reason.message;
    if (nothing_checked(result)) return "it holds no floating-point number, so there was nothing to check";
    return "";
}

int scan_coordinates(const scan_shape *shape, uint64_t flat, uint64_t *coordinates)
{
    for (int32_t i = shape->ndim - 1; i >= 0; i--) {
        if (shape->dims[i] == 0) return 0;
        coordinates[i] = flat % shape->dims[i];
        flat /= shape->dims[i];
    }
    return flat == 0;
}

int scan_headroom(const scan_row *row, double *binades, double *factor)
{
    const fb_format *format = fb_format_of(row->limit_dtype);
    double limit;
    if (!row->measured || !format || format->scheme == FB_SCHEME_NONE || !(row->abs_max > 0)) return 0;
    limit = fb_format_value(format, format->max_bits);
    *factor = limit / row->abs_max;
    /* A subtraction, since the quotient may leave FP64. */
    *binades = log2(limit) - log2(row->abs_max);
    return 1;
}
