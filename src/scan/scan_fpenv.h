/*
 * Floating-point modes of the calling thread, put aside while we compute. A trainer may run with flush-to-zero, denormals-are-zero,
 * another rounding direction, or traps on invalid operations; none of these may change a result or kill the process, and the
 * exception flags that our arithmetic raises must not be seen afterwards.
 */
#ifndef FB_SCAN_FPENV_H
#define FB_SCAN_FPENV_H

#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>

typedef uint32_t fb_fpenv;

/* Nearest even, all traps masked, no flushing. */
static inline fb_fpenv fb_fpenv_enter(void)
{
    fb_fpenv saved = _mm_getcsr();
    _mm_setcsr(0x1f80u);
    return saved;
}

/* As above, with subnormal results and operands taken as zero: keeps products of small numbers from
 * costing a microcode trip each. */
static inline fb_fpenv fb_fpenv_enter_flushing(void)
{
    fb_fpenv saved = _mm_getcsr();
    _mm_setcsr(0x9fc0u);
    return saved;
}

static inline void fb_fpenv_leave(fb_fpenv saved)
{
    _mm_setcsr(saved);
}

#elif defined(__aarch64__)

typedef struct fb_fpenv {
    uint64_t fpcr, fpsr;
} fb_fpenv;

static inline fb_fpenv fb_fpenv_enter(void)
{
    fb_fpenv saved;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(saved.fpcr), "=r"(saved.fpsr) : : "memory");
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return saved;
}

static inline void fb_fpenv_leave(fb_fpenv saved)
{
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(saved.fpcr), "r"(saved.fpsr) : "memory");
}

#else
#include <fenv.h>

typedef fenv_t fb_fpenv;

static inline fb_fpenv fb_fpenv_enter(void)
{
    fb_fpenv saved;
    (void)fegetenv(&saved);
    (void)fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void fb_fpenv_leave(fb_fpenv saved)
{
    (void)fesetenv(&saved);
}
#endif

#endif
