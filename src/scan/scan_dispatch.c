/*
 * Which kernel runs: the best that CPU and operating system allow, unless FIRSTBAD_KERNEL or fb_scan_kernel_use name another.
 * Asked once; a wrong name is an error of every scan, because a user who names a kernel wants that one and no other.
 */
#include "scan/scan_finite_math.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "firstbad/scan.h"
#include "scan/scan_kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define NAMES "ref, avx2, avx512 and neon"

#if defined(__x86_64__)
/* Asked once: under a hypervisor each question to the CPU costs tens of microseconds. */
enum { CPU_ASKED = 1, CPU_AVX2 = 2, CPU_AVX512 = 4 };

static int cpu(void)
{
    static _Atomic int answer;
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (known) return known;
    known = CPU_ASKED;
    __builtin_cpu_init();
    /* The compiler's answers include whether the operating system saves the registers. */
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) /* F16C */ && __builtin_cpu_supports("popcnt") &&
        __builtin_cpu_supports("fma")) {
        if (__builtin_cpu_supports("avx2")) known |= CPU_AVX2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq"))
            known |= CPU_AVX512;
    }
    atomic_store_explicit(&answer, known, memory_order_relaxed);
    return known;
}
#endif

static int runs_here(const fb_kernel *kernel)
{
#if defined(__x86_64__)
    if (kernel == &fb_kernel_avx2) return cpu() & CPU_AVX2;
    if (kernel == &fb_kernel_avx512) return cpu() & CPU_AVX512;
#endif
    (void)kernel; /* the reference runs everywhere, and NEON is part of every aarch64 */
    return 1;
}

/* Best first. */
static const fb_kernel *const kernels[] = {
#if defined(__x86_64__)
    &fb_kernel_avx512,
    &fb_kernel_avx2,
#elif defined(__aarch64__)
    &fb_kernel_neon,
#endif
    &fb_kernel_ref,
};

enum { KERNELS = (int)(sizeof kernels / sizeof kernels[0]) };

static _Atomic(const fb_kernel *) in_use;

static const fb_kernel *find(const char *name)
{
    int i;
    for (i = 0; i < KERNELS; i++)
        if ((!name || strcmp(kernels[i]->name, name) == 0) && runs_here(kernels[i])) return kernels[i];
    return NULL;
}

static fb_status no_such_kernel(const char *who, const char *name, fb_error *err)
{
    char here[64] = "";
    size_t used = 0;
    int i;
    for (i = KERNELS - 1; i >= 0; i--) {
        const fb_kernel *kernel = kernels[i];
        if (kernel && runs_here(kernel))
            used += (size_t)snprintf(here + used, sizeof here - used, "%s%s", used ? ", " : "", kernel->name);
    }
    return fb_fail(err, FB_E_USAGE, "%s asks for the scan kernel '%.40s': firstbad knows " NAMES ", and this machine can run %s",
                   who, name, here);
}

const fb_kernel *fb_kernel_get(fb_error *err)
{
    const fb_kernel *kernel = atomic_load_explicit(&in_use, memory_order_acquire);
    const char *name;
    if (kernel) return kernel;
    name = getenv("FIRSTBAD_KERNEL");
    if (name && !*name) name = NULL;
    kernel = find(name);
    if (!kernel) {
        (void)no_such_kernel("FIRSTBAD_KERNEL", name, err);
        return NULL;
    }
    atomic_store_explicit(&in_use, kernel, memory_order_release);
    return kernel;
}

const char *fb_scan_kernel(void)
{
    const fb_kernel *kernel = fb_kernel_get(NULL);
    return kernel ? kernel->name : NULL;
}

fb_status fb_scan_kernel_use(const char *name, fb_error *err)
{
    const fb_kernel *kernel = find(name);
    if (!kernel) return no_such_kernel("fb_scan_kernel_use", name, err);
    atomic_store_explicit(&in_use, kernel, memory_order_release);
    return FB_OK;
}
