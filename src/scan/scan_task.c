#include "scan/scan_finite_math.h"

#include "scan/scan_task.h"

#include "base/status.h"
#include "scan/scan_pool.h"

int fb_task_threads(const fb_scan_options *options, uint64_t bytes)
{
    int threads = options ? options->threads : 0;
    uint64_t shares = bytes / (FB_ONE_THREAD_BYTES / 2);
    if (threads == 1 || bytes < FB_ONE_THREAD_BYTES) return 1;
    if (threads == 0) threads = fb_pool_width();
    return (uint64_t)threads > shares ? (int)shares : threads;
}

fb_status fb_task_options(const fb_scan_options *options, fb_error *err)
{
    if (!options) return FB_OK;
    if (options->size < sizeof *options)
        return fb_fail(err, FB_E_USAGE, "scan: options->size is %u, expected %zu; start from FB_SCAN_OPTIONS_INIT",
                       (unsigned)options->size, sizeof *options);
    if (options->threads < 0)
        return fb_fail(err, FB_E_USAGE, "scan: %d threads were asked for, expected 0 (all) or more", (int)options->threads);
    if (options->histogram < FB_HISTOGRAM_NONE || options->histogram > FB_HISTOGRAM_EXACT)
        return fb_fail(err, FB_E_USAGE, "scan: histogram mode %d is unknown, expected FB_HISTOGRAM_NONE, _SAMPLED or _EXACT",
                       (int)options->histogram);
    return FB_OK;
}

double fb_tally_abs_max(const fb_format *format, uint64_t elements, const fb_tally *tally)
{
    if (elements == tally->nan + tally->pos_inf + tally->neg_inf) return 0.0; /* E8M0: code 0 is not zero */
    return fb_format_value(format, tally->peak);
}
