/*
 * clones.h: compile a function once for the lowest x86-64 and again for AVX2 and AVX-512; the loader picks one.
 *
 * The clones give equal bits: every sum of the trainer runs in an order that the source fixes, and no multiply is fused with an add
 * (a test compares a build without clones). Sanitizers do not go well with the loader's early choice, and clang 14 gives clones
 * a name that other files do not find; they compile the plain function.
 */
#ifndef GPT_CLONES_H
#define GPT_CLONES_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define GPT_PLAIN 1
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(GPT_PLAIN)
#define GPT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GPT_CLONES
#endif
#define GPT_INLINE static inline __attribute__((always_inline))

#endif
