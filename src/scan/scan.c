/*
 * fb_scan and its kin: one view, verdict or statistics.
 */
#include "scan/scan_finite_math.h"

#include <math.h>

#include "base/status.h"
#include "scan/scan_fpenv.h"
#include "scan/scan_pool.h"
#include "scan/scan_task.h"

/* ---- verdict ----------------------------------------------------------------------------------------------------------------- */

typedef struct verdict_task {
    const fb_kernel *kernel;
    const fb_walk *walk;
    _Atomic uint64_t next;  /* block to take next */
    _Atomic uint64_t first; /* smallest bad index found so far */
} verdict_task;

static void keep_smaller(_Atomic uint64_t *place, uint64_t index)
{
    uint64_t seen = atomic_load(place);
    while (index < seen && !atomic_compare_exchange_weak(place, &seen, index))
        ;
}

/* Chunks are taken in order, so a thread whose chunk lies past a bad element can stop: all before it is taken already. */
static void verdict_work(void *arg)
{
    verdict_task *task = arg;
    const fb_walk *walk = task->walk;
    uint8_t buffer[FB_BLOCK_BYTES];
    for (;;) {
        uint64_t block = atomic_fetch_add(&task->next, FB_CHUNK_BLOCKS), end = block + FB_CHUNK_BLOCKS;
        for (; block < end && block < walk->blocks; block++) {
            uint64_t start = block * walk->block_elements;
            size_t n = fb_walk_count(walk, block), at;
            if (start >= atomic_load_explicit(&task->first, memory_order_relaxed)) return;
            at = fb_pass_locate(task->kernel, walk->format, fb_walk_how(walk), fb_walk_read(walk, start, n, buffer), n);
            if (at == n) continue;
            keep_smaller(&task->first, start + at);
            return;
        }
        if (end >= walk->blocks) return;
    }
}

fb_status fb_scan_first_with(const fb_view *view, const fb_scan_options *options, uint64_t *first_index, fb_error *err)
{
    verdict_task task = {0};
    fb_walk walk;
    fb_status status;
    if (!view || !first_index) return fb_fail(err, FB_E_USAGE, "scan: %s is NULL", view ? "first_index" : "view");
    if ((status = fb_task_options(options, err)) != FB_OK) return status;
    if (!(task.kernel = fb_kernel_get(err))) return FB_E_USAGE;
    if ((status = fb_walk_init(&walk, view, "view", 0, err)) != FB_OK) return status;
    *first_index = FB_NO_INDEX;
    if (walk.format->scheme == FB_SCHEME_NONE) return FB_OK;
    task.walk = &walk;
    atomic_store(&task.first, FB_NO_INDEX);
    /* Integers alone: no floating-point mode matters here. */
    fb_pool_run(fb_task_threads(options, walk.elements * walk.element_bytes), verdict_work, &task);
    *first_index = atomic_load(&task.first);
    return FB_OK;
}

fb_status fb_scan_first(const fb_view *view, uint64_t *first_index, fb_error *err)
{
    return fb_scan_first_with(view, NULL, first_index, err);
}

/* ---- statistics -------------------------------------------------------------------------------------------------------------- */

typedef struct statistics_task {
    const fb_kernel *kernel;
    const fb_walk *walk;
    int32_t histogram;
    _Atomic uint64_t next;
    pthread_mutex_t lock; /* over tally */
    fb_tally tally;
} statistics_task;

static void statistics_into(statistics_task *task, fb_tally *tally)
{
    const fb_walk *walk = task->walk;
    uint8_t buffer[FB_BLOCK_BYTES];
    fb_raw_bins raw;
    const unsigned how = FB_COUNTS | fb_walk_how(walk);
    fb_fpenv modes = fb_fpenv_enter();
    if (tally->bins) memset(&raw, 0, sizeof raw);
    for (;;) {
        uint64_t block = atomic_fetch_add(&task->next, FB_CHUNK_BLOCKS), end = block + FB_CHUNK_BLOCKS;
        for (; block < end && block < walk->blocks; block++) {
            uint64_t start = block * walk->block_elements;
            size_t n = fb_walk_count(walk, block);
            const uint8_t *data = fb_walk_read(walk, start, n, buffer);
            fb_pass_block(task->kernel, walk->format, data, start, n, how, tally);
            if (tally->bins) fb_pass_histogram(walk->format, data, start, n, task->histogram, &raw);
        }
        if (tally->bins) fb_raw_bins_fold(walk->format, &raw, tally->bins);
        if (end >= walk->blocks) break;
    }
    fb_fpenv_leave(modes);
}

static void statistics_work(void *arg)
{
    statistics_task *task = arg;
    uint64_t bins[256] = {0};
    fb_tally tally;
    fb_tally_init(&tally, task->tally.bins ? bins : NULL);
    statistics_into(task, &tally);
    (void)pthread_mutex_lock(&task->lock);
    fb_tally_merge(&task->tally, &tally);
    (void)pthread_mutex_unlock(&task->lock);
}

static void run_statistics(statistics_task *task, int threads)
{
    if (task->walk->format->scheme == FB_SCHEME_NONE) return;
    if (threads == 1) {
        statistics_into(task, &task->tally);
        return;
    }
    (void)pthread_mutex_init(&task->lock, NULL);
    fb_pool_run(threads, statistics_work, task);
    (void)pthread_mutex_destroy(&task->lock);
}

void fb_tally_result(const fb_format *format, uint64_t elements, const fb_tally *tally, fb_scan_result *out)
{
    fb_fpenv modes = fb_fpenv_enter();
    uint32_t size = out->size;
    memset(out, 0, sizeof *out);
    out->size = size;
    out->dtype = format->dtype;
    out->elements = elements;
    out->first_index = tally->first_index;
    out->checked = format->scheme != FB_SCHEME_NONE;
    if (out->checked) {
        out->nan = tally->nan;
        out->pos_inf = tally->pos_inf;
        out->neg_inf = tally->neg_inf;
        out->zero = tally->zeros;
        out->subnormal = tally->subnormals;
        out->at_max = tally->at_max;
        out->first_bits = tally->first_bits;
        out->first_kind = tally->first_kind;
        out->abs_max = fb_tally_abs_max(format, elements, tally);
        if (tally->low_less1 != UINT64_MAX)
            out->abs_min = fb_format_value(format, tally->low_less1 + (format->scheme != FB_SCHEME_E8M0));
        out->sum_sq = fb_sum_round(&tally->sum, &out->sum_sq_exponent);
    }
    fb_fpenv_leave(modes);
}

void fb_bins_result(const uint64_t bins[256], int32_t mode, fb_histogram *histogram)
{
    int i;
    histogram->mode = mode;
    histogram->scale = mode == FB_HISTOGRAM_SAMPLED ? 16 : 1;
    histogram->counted = 0;
    memcpy(histogram->bins, bins, sizeof histogram->bins);
    for (i = 0; i < 256; i++) histogram->counted += histogram->bins[i];
}

fb_status fb_scan_with(const fb_view *view, const fb_scan_options *options, fb_scan_result *out, fb_histogram *histogram,
                       fb_error *err)
{
    statistics_task task;
    uint64_t bins[256];
    fb_walk walk;
    fb_status status;
    if (!view || !out) return fb_fail(err, FB_E_USAGE, "scan: %s is NULL", view ? "out" : "view");
    if (out->size < sizeof *out || (histogram && histogram->size < sizeof *histogram))
        return fb_fail(err, FB_E_USAGE, "scan: %s->size is %u; start from FB_SCAN_RESULT_INIT and FB_HISTOGRAM_INIT",
                       out->size < sizeof *out ? "out" : "histogram",
                       (unsigned)(out->size < sizeof *out ? out->size : histogram->size));
    if ((status = fb_task_options(options, err)) != FB_OK) return status;
    if (!(task.kernel = fb_kernel_get(err))) return FB_E_USAGE;
    if ((status = fb_walk_init(&walk, view, "view", 0, err)) != FB_OK) return status;
    task.walk = &walk;
    task.histogram = options && histogram ? options->histogram : FB_HISTOGRAM_NONE;
    atomic_init(&task.next, 0);
    if (histogram) memset(bins, 0, sizeof bins);
    fb_tally_init(&task.tally, task.histogram == FB_HISTOGRAM_NONE ? NULL : bins);
    run_statistics(&task, fb_task_threads(options, walk.elements * walk.element_bytes));
    fb_tally_result(walk.format, walk.elements, &task.tally, out);
    if (histogram) fb_bins_result(bins, task.histogram, histogram);
    return FB_OK;
}

fb_status fb_scan(const fb_view *view, fb_scan_result *out, fb_error *err)
{
    return fb_scan_with(view, NULL, out, NULL, err);
}

double fb_scan_norm(const fb_scan_result *result)
{
    double norm;
    fb_fpenv modes;
    if (!result) return 0.0;
    modes = fb_fpenv_enter();
    norm = ldexp(sqrt(result->sum_sq), result->sum_sq_exponent);
    fb_fpenv_leave(modes);
    return norm;
}
