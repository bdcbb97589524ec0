/*
 * A large array as a task for several threads: chunks of blocks are taken from a counter, each thread has a tally of its own, and
 * tallies merge at the end. Which thread took which chunk cannot show in the result.
 */
#ifndef FB_SCAN_TASK_H
#define FB_SCAN_TASK_H

#include <pthread.h>
#include <stdatomic.h>

#include "scan/scan_pass.h"

enum {
    FB_CHUNK_BLOCKS = 32,                 /* 512 KiB */
    FB_ONE_THREAD_BYTES = 2 * 1024 * 1024 /* below it waking a thread costs more than it brings */
};

/* Threads to use for this many bytes. */
int fb_task_threads(const fb_scan_options *options, uint64_t bytes);
/* FB_E_USAGE for a wrong size, a negative number of threads, or an unknown histogram mode. options may be NULL. */
fb_status fb_task_options(const fb_scan_options *options, fb_error *err);

/* Results as the public structs have them, from a tally. */
double fb_tally_abs_max(const fb_format *format, uint64_t elements, const fb_tally *tally);
/* out->size stays as it is. */
void fb_tally_result(const fb_format *format, uint64_t elements, const fb_tally *tally, fb_scan_result *out);
void fb_bins_result(const uint64_t bins[256], int32_t mode, fb_histogram *histogram);

#endif
