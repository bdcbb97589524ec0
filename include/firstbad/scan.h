/*
 * firstbad/scan.h: more ways to read tensors. Experimental: names and structs here may change between versions without a new
 * FB_ABI_VERSION; what fb_scan of firstbad.h promises does not.
 *
 * Three operations, each one pass over memory:
 *   verdict      fb_scan_first                 where is the first non-finite element? Stops there.
 *   statistics   fb_scan, fb_scan_with         counts, extremes, sum of squares, exponent histogram
 *   gradients    fb_measure, fb_unscale        verdict, largest magnitude and sum of squares over many tensors; unscale also
 *   multiplies
 *
 * Results do not depend on the kernel, the number of threads, the compiler or the floating-point modes of the calling thread: all
 * are equal bit for bit. The definition of the sums is in docs/format/numbers.md. No function here allocates per call; the first
 * large array starts the worker threads, which are kept. After fork the child works on one thread.
 */
#ifndef FIRSTBAD_SCAN_H
#define FIRSTBAD_SCAN_H

#include "firstbad/firstbad.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FB_HISTOGRAM_NONE = 0,
    FB_HISTOGRAM_SAMPLED = 1, /* one element of every 16, at a scattered place that depends on the index alone */
    FB_HISTOGRAM_EXACT = 2
};

/* How to read. NULL stands for FB_SCAN_OPTIONS_INIT. */
typedef struct fb_scan_options {
    uint32_t size;
    int32_t threads;   /* 0: as many as the process may run on; 1: the calling thread alone. Arrays under 2 MB stay on one */
    int32_t histogram; /* FB_HISTOGRAM_*; fb_scan_with only */
    int32_t reserved;  /* 0 */
} fb_scan_options;
#define FB_SCAN_OPTIONS_INIT                             \
    {                                                    \
        sizeof(fb_scan_options), 0, FB_HISTOGRAM_NONE, 0 \
    }

/*
 * Exponents, with the same 256 bins for every format. Bin 0: zero, and what is subnormal in the element's own format. Bins 1 to
 * 254: floor(log2|x|) + 127, the biased exponent of an F32; F64 beyond that range lands in 1 or 254. Bin 255: non-finite.
 * E8M0 has no zero and no subnormal; its smallest code, 2^-127, lands in bin 1. Complex formats count both parts.
 */
typedef struct fb_histogram {
    uint32_t size;
    int32_t mode;     /* FB_HISTOGRAM_* that filled it */
    uint64_t scale;   /* 1: every element was counted; 16: one in 16, so multiply a bin by 16 to estimate */
    uint64_t counted; /* sum of the bins */
    uint64_t bins[256];
} fb_histogram;
/* Only `size` is read from a histogram; fb_scan_with fills the rest. */
#define FB_HISTOGRAM_INIT              \
    {                                  \
        sizeof(fb_histogram), 0, 0, 0, \
        {                              \
            0                          \
        }                              \
    }

/**
 * Find the first non-finite element, stopping there.
 * first_index  out: flat index in the view's own order; FB_NO_INDEX when the view is clean or its format has no non-finite code.
 * Errors: as fb_scan. Cost: one read up to the first bad element. Large arrays use all threads the process may run on.
 */
FB_API fb_status fb_scan_first(const fb_view *view, uint64_t *first_index, fb_error *err);

/* fb_scan_first with options: `threads` counts, `histogram` does not. */
FB_API fb_status fb_scan_first_with(const fb_view *view, const fb_scan_options *options, uint64_t *first_index, fb_error *err);

/**
 * fb_scan with options.
 * options    NULL: defaults. histogram  NULL, or filled as options->histogram says (bins are all zero for FB_HISTOGRAM_NONE).
 * Errors: as fb_scan; FB_E_USAGE also for an unknown histogram mode or a negative number of threads.
 */
FB_API fb_status fb_scan_with(const fb_view *view, const fb_scan_options *options, fb_scan_result *out, fb_histogram *histogram,
                              fb_error *err);

/* What fb_measure and fb_unscale saw, of one tensor or in total. */
typedef struct fb_measure_result {
    uint32_t size;
    int32_t dtype; /* of the tensor judged; in a total: of the tensor with the first bad element, 0 if none */
    uint64_t elements;
    uint64_t bad;                /* non-finite elements; after unscale: of the products as stored */
    uint64_t first_view;         /* total: which tensor has the first bad element, in the order handed over; else 0; FB_NO_INDEX if
                                    none */
    uint64_t first_index;        /* flat index of the first bad element in its tensor; FB_NO_INDEX if none */
    uint64_t first_bits;         /* its bits, in the low end (complex: of the bad part) */
    int32_t first_kind;          /* FB_KIND_NAN, ... or FB_KIND_NONE */
    int32_t checked;             /* 1: everything was looked at; 0: there is a tensor whose format has nothing to find */
    uint64_t source_bad;         /* unscale: elements that were bad before the multiplication; measure: equal to bad */
    uint64_t source_first_index; /* of the first of them in its tensor; FB_NO_INDEX if none */
    uint64_t source_first_view;  /* as first_view */
    double abs_max;              /* largest finite magnitude, times inv_scale */
    double sum_sq;               /* sum of squares of the finite elements, times inv_scale^2, divided by 4^sum_sq_exponent */
    int32_t sum_sq_exponent;     /* 0 unless the sum leaves FP64 */
    int32_t reserved;
} fb_measure_result;
#define FB_MEASURE_RESULT_INIT                                                     \
    {                                                                              \
        sizeof(fb_measure_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0 \
    }

/* Square root of sum_sq with its exponent put back; +Inf only when the norm itself exceeds FP64 (not a bad element). */
FB_API double fb_measure_norm(const fb_measure_result *result);

/**
 * Look at gradients without changing them: verdict, largest magnitude and sum of squares, as if multiplied by inv_scale. With the
 * coefficient handed to the optimizer nothing has to be written at all.
 * views      n views; count 0 is a tensor that does not exist and adds nothing.
 * inv_scale  finite and above 0; 1 for the values as they are. The verdict is on the elements as they are stored.
 * per_view   NULL, or n structs whose `size` is set.   total  NULL, or one; its `size` is set.
 * Errors: FB_E_USAGE, FB_E_DTYPE; the message names the view. Nothing is filled then.
 */
FB_API fb_status fb_measure(const fb_view *views, size_t n, double inv_scale, const fb_scan_options *options,
                            fb_measure_result *per_view, fb_measure_result *total, fb_error *err);

/**
 * Multiply by inv_scale and judge the products as they are stored, in one pass.
 * src  F64, F32, BF16 or F16. dst  NULL: in place. Else as many elements as src in the order of their own layouts, the same format
 *      as src, or F32 for F16; no two elements share memory, and src and dst are the same memory or do not overlap.
 * F16 in place is refused: its unscaled values need more range than F16 has. inv_scale is rounded to F32 first, except for F64.
 * BF16 rounds to nearest even. Non-finite elements stay non-finite in memory; they are counted, never repaired.
 * Errors: FB_E_DTYPE, FB_E_USAGE; nothing is written then.
 */
FB_API fb_status fb_unscale(const fb_view *src, const fb_view *dst, double inv_scale, const fb_scan_options *options,
                            fb_measure_result *out, fb_error *err);

/* The same for n tensors. dst NULL: all in place, else n views. per_view and total may be NULL. All
 * views are checked before a write. */
FB_API fb_status fb_unscale_many(const fb_view *src, const fb_view *dst, size_t n, double inv_scale, const fb_scan_options *options,
                                 fb_measure_result *per_view, fb_measure_result *total, fb_error *err);

/* Name of the kernel in use: "ref", "avx2", "avx512" or "neon". NULL when FIRSTBAD_KERNEL names one
 * that this machine does not have. */
FB_API const char *fb_scan_kernel(void);

/**
 * Use a kernel by name from now on, for all threads; NULL: the best one of this machine. Without a call the environment variable
 * FIRSTBAD_KERNEL decides, read once; an unknown name there makes every scan fail with FB_E_USAGE and a sentence.
 * Errors: FB_E_USAGE: unknown, or not on this machine; the kernel in use stays.
 */
FB_API fb_status fb_scan_kernel_use(const char *name, fb_error *err);

/**
 * Prove that the checks are alive: every non-finite code of every small format, and planted ones in all others, go through the
 * kernel in use, among finite neighbours at the limits of the format. Costs a few milliseconds.
 * Errors: FB_E_SELFTEST, with the format and the code that was missed or wrongly accused.
 */
FB_API fb_status fb_scan_selftest(fb_error *err);

#ifdef __cplusplus
}
#endif

#endif
