/*
 * One line a kernel: a digest of everything the scanners say about a fixed corpus. scripts/cross-check.sh builds this for several
 * machines and by several compilers and compares the lines; all must be equal, or results depend on where they were computed.
 * Needs no test framework, so that a bare cross compiler is enough. Not in the digest: names of kernels.
 */
#include "base/hash.h"
#include "property/scan_oracle.h"

enum { ROOM = 70000 };

static uint8_t data[ROOM + 64], target[2 * ROOM + 64];

static uint64_t mix(uint64_t digest, const void *bytes, size_t n)
{
    return fb_hash64(bytes, n, digest);
}

static uint64_t scan_once(uint64_t digest, const fb_view *view)
{
    fb_scan_result r = FB_SCAN_RESULT_INIT;
    fb_scan_options options = FB_SCAN_OPTIONS_INIT;
    fb_histogram histogram = FB_HISTOGRAM_INIT;
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    uint64_t first = 0;
    double norm;
    int mode;
    for (mode = FB_HISTOGRAM_NONE; mode <= FB_HISTOGRAM_EXACT; mode++) {
        options.histogram = mode;
        if (fb_scan_with(view, &options, &r, &histogram, NULL) != FB_OK) exit(2);
        digest = mix(digest, &r, sizeof r);
        digest = mix(digest, &histogram, sizeof histogram);
    }
    if (fb_scan_first(view, &first, NULL) != FB_OK || fb_measure(view, 1, 1.0 / 3, NULL, NULL, &m, NULL) != FB_OK) exit(2);
    digest = mix(digest, &first, sizeof first);
    digest = mix(digest, &m, sizeof m);
    norm = fb_measure_norm(&m);
    return mix(digest, &norm, sizeof norm);
}

static uint64_t unscale_once(uint64_t digest, const fb_view *view, double factor)
{
    int32_t stored = view->dtype == FB_F16 ? FB_F32 : view->dtype;
    fb_view to = oracle_view(stored, target + 3, view->count);
    fb_measure_result m = FB_MEASURE_RESULT_INIT;
    if (fb_unscale(view, &to, factor, NULL, &m, NULL) != FB_OK) exit(2);
    digest = mix(digest, &m, sizeof m);
    return mix(digest, target + 3, (size_t)fb_dtype_bytes(stored, view->count));
}

static uint64_t corpus(uint64_t seed)
{
    uint64_t digest = 0, random = seed;
    size_t d, round;
    for (d = 0; d < ORACLE_DTYPES; d++) {
        int32_t dtype = oracle_dtypes[d];
        size_t most = ROOM / (oracle_part_bytes(dtype) * oracle_parts(dtype));
        for (round = 0; round < 48; round++) {
            size_t n = round < 8 ? most - round : oracle_random(&random) % (round < 16 ? most : 300);
            fb_view view = oracle_view(dtype, data + round % 7, n);
            oracle_fill(dtype, view.data, n, (int)(round % 4), &random);
            digest = scan_once(digest, &view);
            if (dtype == FB_F64 || dtype == FB_F32 || dtype == FB_BF16 || dtype == FB_F16)
                digest = unscale_once(digest, &view, round % 3 ? 1.0 / 65536 : 3.0e30);
        }
    }
    return digest;
}

int main(int argc, char **argv)
{
    const char *kernels[4];
    size_t n = oracle_kernels(kernels), k;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    for (k = 0; k < n; k++) {
        fb_error err;
        if (fb_scan_kernel_use(kernels[k], &err) != FB_OK || fb_scan_selftest(&err) != FB_OK) {
            printf("%s %s\n", kernels[k], err.message);
            return 1;
        }
        printf("%s %016llx\n", kernels[k], (unsigned long long)corpus(seed));
    }
    return 0;
}
