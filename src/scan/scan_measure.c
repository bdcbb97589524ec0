/*
 * fb_measure and fb_unscale: many tensors, the totals over them, and on request the multiplication in the same pass.
 * Tensors below SMALL_BYTES are taken whole, one thread each; larger ones are cut into chunks that all threads share.
 */
#include "scan/scan_finite_math.h"

#include <math.h>

#include "base/status.h"
#include "scan/scan_fpenv.h"
#include "scan/scan_pool.h"
#include "scan/scan_task.h"

enum { SMALL_BYTES = 4 * 1024 * 1024 };

/* Total over tensors: the tally, whose indices say nothing here, and where the first bad element is. */
typedef struct total {
    uint64_t elements, bad, source_bad;
    uint64_t first_view, first_index, first_bits, source_first_view, source_first_index;
    int32_t first_kind, dtype, checked;
    double abs_max;
    fb_sum sum;
} total;

typedef struct batch {
    const fb_kernel *kernel;
    const fb_view *source, *target; /* target NULL: in place */
    size_t n;
    int writes;
    double inv_scale;
    const fb_scan_options *options;
    fb_measure_result *per_view;
    unsigned how;         /* of kernels */
    uint64_t bytes;       /* in all tensors together */
    uint64_t small_bytes; /* in tensors below SMALL_BYTES together */
    _Atomic size_t next;
    pthread_mutex_t lock; /* over all */
    total all;
} batch;

/* One tensor that all threads share. */
typedef struct share {
    const batch *of;
    const fb_walk *source, *target;
    _Atomic uint64_t next;
    pthread_mutex_t lock; /* over tally */
    fb_tally tally;
} share;

static uint64_t walk_bytes(const fb_walk *walk)
{
    return walk->elements * walk->element_bytes;
}

/* Called for each tensor while arguments are checked. */
static void note_size(batch *of, const fb_walk *walk)
{
    of->bytes += walk_bytes(walk);
    if (of->bytes > FB_CACHED_BYTES_MAX) of->how = FB_AHEAD;
    if (walk_bytes(walk) < SMALL_BYTES) of->small_bytes += walk_bytes(walk);
}

/* Multiply one block and judge what was stored. Multiplying by more than 1 can overflow, so then the
 * source is looked at as well. */
static void unscale_block(const batch *of, const fb_walk *source, const fb_walk *target, uint64_t start, size_t n, fb_tally *tally)
{
    uint8_t in[FB_BLOCK_BYTES], out[FB_BLOCK_BYTES];
    const uint8_t *data = fb_walk_read(source, start, n, in);
    uint8_t *place = fb_walk_write(target, start, out);
    uint64_t bad_before = tally->nan + tally->pos_inf + tally->neg_inf;
    fb_block block;
    if (of->inv_scale > 1.0) fb_pass_source(of->kernel, source->format, data, start, n, tally);
    if (of->kernel->scale_block && of->kernel->scale_block(source->format, of->how, data, place, n, of->inv_scale, &block)) {
        fb_pass_take(of->kernel, target->format, place, start, n, of->how, &block, tally);
    } else {
        of->kernel->scale(source->format, data, place, n, of->inv_scale);
        fb_pass_block(of->kernel, target->format, place, start, n, 0, tally);
    }
    fb_walk_write_end(target, start, n, place);
    if (of->inv_scale > 1.0) return;
    /* A finite number times at most 1 stays finite: what is bad now was bad before. */
    tally->source_bad += tally->nan + tally->pos_inf + tally->neg_inf - bad_before;
    if (tally->first_index < tally->source_first_index) tally->source_first_index = tally->first_index;
}

static void one_block(const batch *of, const fb_walk *source, const fb_walk *target, uint64_t block, fb_tally *tally)
{
    uint64_t start = block * target->block_elements;
    size_t n = fb_walk_count(target, block);
    if (of->writes) {
        unscale_block(of, source, target, start, n, tally);
    } else {
        uint8_t in[FB_BLOCK_BYTES];
        fb_pass_block(of->kernel, source->format, fb_walk_read(source, start, n, in), start, n, of->how, tally);
    }
}

static void share_work(void *arg)
{
    share *task = arg;
    fb_tally tally;
    fb_fpenv modes = fb_fpenv_enter();
    fb_tally_init(&tally, NULL);
    for (;;) {
        uint64_t block = atomic_fetch_add(&task->next, FB_CHUNK_BLOCKS), end = block + FB_CHUNK_BLOCKS;
        for (; block < end && block < task->target->blocks; block++) one_block(task->of, task->source, task->target, block, &tally);
        if (end >= task->target->blocks) break;
    }
    fb_fpenv_leave(modes);
    (void)pthread_mutex_lock(&task->lock);
    fb_tally_merge(&task->tally, &tally);
    (void)pthread_mutex_unlock(&task->lock);
}

/* The walks of view i; they were checked before, so nothing can fail now. */
static void open_walks(const batch *of, size_t i, fb_walk *source, fb_walk *target)
{
    (void)fb_walk_init(source, &of->source[i], "view", i, NULL);
    (void)fb_walk_init(target, of->target ? &of->target[i] : &of->source[i], "view", i, NULL);
}

static void tally_view(const batch *of, const fb_walk *source, const fb_walk *target, int threads, fb_tally *tally)
{
    uint64_t block;
    fb_tally_init(tally, NULL);
    if (target->format->scheme == FB_SCHEME_NONE) return;
    if (threads > 1) {
        share task = {.of = of, .source = source, .target = target};
        fb_tally_init(&task.tally, NULL);
        (void)pthread_mutex_init(&task.lock, NULL);
        fb_pool_run(threads, share_work, &task);
        (void)pthread_mutex_destroy(&task.lock);
        *tally = task.tally;
        return;
    }
    for (block = 0; block < target->blocks; block++) one_block(of, source, target, block, tally);
}

static void fill_view(const batch *of, const fb_walk *walk, const fb_tally *tally, fb_measure_result *out)
{
    uint64_t bad = tally->nan + tally->pos_inf + tally->neg_inf;
    double factor = of->writes ? 1.0 : of->inv_scale;
    uint32_t size = out->size;
    memset(out, 0, sizeof *out);
    out->size = size;
    out->dtype = walk->format->dtype;
    out->elements = walk->elements;
    out->bad = bad;
    out->first_view = bad ? 0 : FB_NO_INDEX;
    out->first_index = tally->first_index;
    out->first_bits = tally->first_bits;
    out->first_kind = tally->first_kind;
    out->checked = walk->format->scheme != FB_SCHEME_NONE;
    out->source_bad = of->writes ? tally->source_bad : bad;
    out->source_first_index = of->writes ? tally->source_first_index : tally->first_index;
    out->source_first_view = out->source_bad ? 0 : FB_NO_INDEX;
    if (!out->checked) return;
    out->abs_max = fb_tally_abs_max(walk->format, walk->elements, tally) * factor;
    out->sum_sq = fb_sum_round(&tally->sum, &out->sum_sq_exponent);
    out->sum_sq = fb_sum_scale(out->sum_sq, factor, &out->sum_sq_exponent);
}

static void total_init(total *all)
{
    memset(all, 0, offsetof(total, sum));
    fb_sum_init(&all->sum);
    all->first_view = all->first_index = all->source_first_view = all->source_first_index = FB_NO_INDEX;
    all->checked = 1;
}

static void total_add(total *all, size_t view, const fb_measure_result *one, const fb_sum *sum)
{
    fb_sum_merge(&all->sum, sum);
    all->elements += one->elements;
    all->bad += one->bad;
    all->source_bad += one->source_bad;
    if (!one->checked) all->checked = 0;
    if (one->abs_max > all->abs_max) all->abs_max = one->abs_max;
    if (one->bad && view < all->first_view) {
        all->first_view = view;
        all->first_index = one->first_index;
        all->first_bits = one->first_bits;
        all->first_kind = one->first_kind;
        all->dtype = one->dtype;
    }
    if (one->source_bad && view < all->source_first_view) {
        all->source_first_view = view;
        all->source_first_index = one->source_first_index;
    }
}

static void total_merge(total *into, const total *from)
{
    fb_sum_merge(&into->sum, &from->sum);
    into->elements += from->elements;
    into->bad += from->bad;
    into->source_bad += from->source_bad;
    if (!from->checked) into->checked = 0;
    if (from->abs_max > into->abs_max) into->abs_max = from->abs_max;
    if (from->first_view < into->first_view) {
        into->first_view = from->first_view;
        into->first_index = from->first_index;
        into->first_bits = from->first_bits;
        into->first_kind = from->first_kind;
        into->dtype = from->dtype;
    }
    if (from->source_first_view < into->source_first_view) {
        into->source_first_view = from->source_first_view;
        into->source_first_index = from->source_first_index;
    }
}

static void do_view(const batch *of, size_t i, const fb_walk *source, const fb_walk *target, int threads, total *all)
{
    fb_measure_result one = FB_MEASURE_RESULT_INIT;
    fb_tally tally;
    tally_view(of, source, target, threads, &tally);
    fill_view(of, target, &tally, &one);
    total_add(all, i, &one, &tally.sum);
    if (of->per_view) {
        one.size = of->per_view[i].size;
        of->per_view[i] = one;
    }
}

/* The small tensors, one thread each. */
static void small_work(void *arg)
{
    batch *of = arg;
    fb_walk source, target;
    total all;
    size_t i;
    fb_fpenv modes = fb_fpenv_enter();
    total_init(&all);
    while ((i = atomic_fetch_add(&of->next, 1)) < of->n) {
        open_walks(of, i, &source, &target);
        if (walk_bytes(&target) >= SMALL_BYTES) continue;
        do_view(of, i, &source, &target, 1, &all);
    }
    fb_fpenv_leave(modes);
    (void)pthread_mutex_lock(&of->lock);
    total_merge(&of->all, &all);
    (void)pthread_mutex_unlock(&of->lock);
}

static void run_batch(batch *of)
{
    fb_walk source, target;
    int small = fb_task_threads(of->options, of->small_bytes);
    size_t i;
    fb_fpenv modes = fb_fpenv_enter();
    total_init(&of->all);
    for (i = 0; i < of->n; i++) {
        open_walks(of, i, &source, &target);
        if (small > 1 && walk_bytes(&target) < SMALL_BYTES) continue;
        do_view(of, i, &source, &target, fb_task_threads(of->options, walk_bytes(&target)), &of->all);
    }
    if (small > 1) {
        (void)pthread_mutex_init(&of->lock, NULL);
        fb_pool_run(small, small_work, of);
        (void)pthread_mutex_destroy(&of->lock);
    }
    fb_fpenv_leave(modes);
}

static void fill_total(const batch *of, fb_measure_result *out)
{
    const total *all = &of->all;
    uint32_t size;
    fb_fpenv modes;
    if (!out) return;
    modes = fb_fpenv_enter();
    size = out->size;
    memset(out, 0, sizeof *out);
    out->size = size;
    out->dtype = all->dtype;
    out->elements = all->elements;
    out->bad = all->bad;
    out->first_view = all->first_view;
    out->first_index = all->first_index;
    out->first_bits = all->first_bits;
    out->first_kind = all->first_kind;
    out->checked = all->checked;
    out->source_bad = all->source_bad;
    out->source_first_index = all->source_first_index;
    out->source_first_view = all->source_first_view;
    out->abs_max = all->abs_max;
    out->sum_sq = fb_sum_round(&all->sum, &out->sum_sq_exponent);
    out->sum_sq = fb_sum_scale(out->sum_sq, of->writes ? 1.0 : of->inv_scale, &out->sum_sq_exponent);
    fb_fpenv_leave(modes);
}

/* The bits of inv_scale, judged as integers like all else. */
static int is_positive_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits != 0 && bits < UINT64_C(0x7ff) << 52;
}

static fb_status check_arguments(const fb_view *views, size_t n, double inv_scale, const fb_scan_options *options,
                                 const fb_measure_result *per_view, const fb_measure_result *all, fb_error *err)
{
    size_t i;
    if (!views && n) return fb_fail(err, FB_E_USAGE, "measure: views is NULL for %zu views", n);
    if (!is_positive_finite(inv_scale))
        return fb_fail(err, FB_E_USAGE, "measure: inv_scale is %g, expected a finite number above 0", inv_scale);
    if (all && all->size < sizeof *all)
        return fb_fail(err, FB_E_USAGE, "measure: total->size is %u, expected %zu; start from FB_MEASURE_RESULT_INIT",
                       (unsigned)all->size, sizeof *all);
    for (i = 0; per_view && i < n; i++)
        if (per_view[i].size < sizeof per_view[i])
            return fb_fail(err, FB_E_USAGE, "measure: per_view[%zu].size is %u, expected %zu; start from FB_MEASURE_RESULT_INIT", i,
                           (unsigned)per_view[i].size, sizeof per_view[i]);
    return fb_task_options(options, err);
}

fb_status fb_measure(const fb_view *views, size_t n, double inv_scale, const fb_scan_options *options, fb_measure_result *per_view,
                     fb_measure_result *all, fb_error *err)
{
    batch of = {.source = views, .n = n, .inv_scale = inv_scale, .options = options, .per_view = per_view};
    fb_walk walk;
    fb_status status;
    size_t i;
    if ((status = check_arguments(views, n, inv_scale, options, per_view, all, err)) != FB_OK) return status;
    if (!(of.kernel = fb_kernel_get(err))) return FB_E_USAGE;
    for (i = 0; i < n; i++) {
        if ((status = fb_walk_init(&walk, &views[i], "view", i, err)) != FB_OK) return status;
        note_size(&of, &walk);
    }
    run_batch(&of);
    fill_total(&of, all);
    return FB_OK;
}

static fb_status check_target(batch *of, const fb_view *source, const fb_view *target, size_t i, fb_error *err)
{
    fb_walk from, to;
    fb_status status;
    if ((status = fb_walk_init(&from, source, "view", i, err)) != FB_OK) return status;
    if ((status = fb_walk_init(&to, target, "target", i, err)) != FB_OK) return status;
    if (source->dtype != FB_F64 && source->dtype != FB_F32 && source->dtype != FB_BF16 && source->dtype != FB_F16)
        return fb_fail(err, FB_E_DTYPE, "unscale view %zu: %s cannot be unscaled; expected f64, f32, bf16, or f16 into f32", i,
                       from.format->name);
    if (source->dtype == FB_F16 && target->dtype != FB_F32)
        return fb_fail(err, FB_E_DTYPE,
                       "unscale view %zu: f16 is unscaled only into f32, because small gradients vanish in f16 once "
                       "the scale is gone; give a target of f32, not %s",
                       i, target == source ? "the same memory" : to.format->name);
    if (source->dtype != FB_F16 && target->dtype != source->dtype)
        return fb_fail(err, FB_E_DTYPE, "unscale view %zu: the target is %s, expected %s as the source", i, to.format->name,
                       from.format->name);
    if (source->count != target->count)
        return fb_fail(err, FB_E_USAGE, "unscale view %zu: the target has %llu elements, the source %llu", i,
                       (unsigned long long)target->count, (unsigned long long)source->count);
    note_size(of, &to);
    return fb_walk_writable(&to, target == source ? "view" : "target", i, err);
}

fb_status fb_unscale_many(const fb_view *src, const fb_view *dst, size_t n, double inv_scale, const fb_scan_options *options,
                          fb_measure_result *per_view, fb_measure_result *all, fb_error *err)
{
    batch of = {
        .source = src, .target = dst, .n = n, .writes = 1, .inv_scale = inv_scale, .options = options, .per_view = per_view};
    fb_status status;
    size_t i;
    if ((status = check_arguments(src, n, inv_scale, options, per_view, all, err)) != FB_OK) return status;
    if (!(of.kernel = fb_kernel_get(err))) return FB_E_USAGE;
    for (i = 0; i < n; i++) {
        if ((status = check_target(&of, &src[i], dst ? &dst[i] : &src[i], i, err)) != FB_OK) return status;
        if (src[i].dtype != FB_F64 && src[i].count && (inv_scale > 0x1.fffffep127 || inv_scale < 0x1p-126))
            return fb_fail(err, FB_E_USAGE, "unscale view %zu: inv_scale %g is not a normal number of f32", i, inv_scale);
    }
    run_batch(&of);
    fill_total(&of, all);
    return FB_OK;
}

fb_status fb_unscale(const fb_view *src, const fb_view *dst, double inv_scale, const fb_scan_options *options,
                     fb_measure_result *out, fb_error *err)
{
    if (!src || !out) return fb_fail(err, FB_E_USAGE, "unscale: %s is NULL", src ? "out" : "src");
    return fb_unscale_many(src, dst, 1, inv_scale, options, out, NULL, err);
}

double fb_measure_norm(const fb_measure_result *result)
{
    double norm;
    fb_fpenv modes;
    if (!result) return 0.0;
    modes = fb_fpenv_enter();
    norm = ldexp(sqrt(result->sum_sq), result->sum_sq_exponent);
    fb_fpenv_leave(modes);
    return norm;
}
