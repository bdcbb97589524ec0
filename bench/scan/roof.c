/*
 * Roofs for bench/scan/bench.py: the fastest plain passes over memory that we know, to measure the scanners against. They compute
 * nothing of use: read takes every byte in and folds it with OR, write multiplies in place with no check. Linked into one shared
 * object with the library, so that both run in one process over the same buffers.
 */
#include <immintrin.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "scan/scan_kernel.h"
#include "scan/scan_pool.h"

#define API __attribute__((visibility("default")))
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

API uint64_t roof_read(const void *data, size_t bytes, int wide);
API uint64_t roof_read_threads(const void *data, size_t bytes, int wide, int threads);
API void roof_multiply(void *data, size_t bytes, float factor, int wide);
API int roof_wide(void);
API int roof_processors(void);

int roof_processors(void)
{
    return fb_pool_width();
}

int roof_wide(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") != 0;
}

AVX2 static uint64_t read_avx2(const uint8_t *p, size_t bytes, unsigned how)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    size_t i;
    for (i = 0; i + 256 <= bytes; i += 256) {
        fb_ahead(how, p + i, 256);
        a = _mm256_or_si256(a, _mm256_loadu_si256((const void *)(p + i)));
        b = _mm256_or_si256(b, _mm256_loadu_si256((const void *)(p + i + 32)));
        c = _mm256_or_si256(c, _mm256_loadu_si256((const void *)(p + i + 64)));
        d = _mm256_or_si256(d, _mm256_loadu_si256((const void *)(p + i + 96)));
        e = _mm256_or_si256(e, _mm256_loadu_si256((const void *)(p + i + 128)));
        f = _mm256_or_si256(f, _mm256_loadu_si256((const void *)(p + i + 160)));
        g = _mm256_or_si256(g, _mm256_loadu_si256((const void *)(p + i + 192)));
        h = _mm256_or_si256(h, _mm256_loadu_si256((const void *)(p + i + 224)));
    }
    a = _mm256_or_si256(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)),
                        _mm256_or_si256(_mm256_or_si256(e, f), _mm256_or_si256(g, h)));
    return (uint64_t)_mm256_extract_epi64(a, 0) | (uint64_t)_mm256_extract_epi64(a, 3);
}

AVX512 static uint64_t read_avx512(const uint8_t *p, size_t bytes, unsigned how)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    size_t i;
    for (i = 0; i + 256 <= bytes; i += 256) {
        fb_ahead(how, p + i, 256);
        a = _mm512_or_si512(a, _mm512_loadu_si512(p + i));
        b = _mm512_or_si512(b, _mm512_loadu_si512(p + i + 64));
        c = _mm512_or_si512(c, _mm512_loadu_si512(p + i + 128));
        d = _mm512_or_si512(d, _mm512_loadu_si512(p + i + 192));
    }
    return (uint64_t)_mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}

uint64_t roof_read(const void *data, size_t bytes, int wide)
{
    /* Asking ahead helps from memory and only costs from a cache: each size gets the better one. */
    unsigned how = bytes > (64u << 20) ? FB_AHEAD : 0;
    return wide ? read_avx512(data, bytes, how) : read_avx2(data, bytes, how);
}

typedef struct share {
    const uint8_t *data;
    size_t bytes;
    int wide;
    _Atomic size_t next;
    _Atomic uint64_t folded;
} share;

static void read_share(void *arg)
{
    enum { CHUNK = 512 * 1024 };
    share *s = arg;
    size_t at;
    uint64_t folded = 0;
    while ((at = atomic_fetch_add(&s->next, CHUNK)) < s->bytes)
        folded |= s->wide ? read_avx512(s->data + at, s->bytes - at < CHUNK ? s->bytes - at : CHUNK, FB_AHEAD)
                          : read_avx2(s->data + at, s->bytes - at < CHUNK ? s->bytes - at : CHUNK, FB_AHEAD);
    atomic_fetch_or(&s->folded, folded);
}

uint64_t roof_read_threads(const void *data, size_t bytes, int wide, int threads)
{
    share s = {.data = data, .bytes = bytes, .wide = wide};
    fb_pool_run(threads, read_share, &s);
    return atomic_load(&s.folded);
}

AVX2 static void multiply_avx2(uint8_t *p, size_t bytes, float factor)
{
    __m256 f = _mm256_set1_ps(factor);
    size_t i;
    for (i = 0; i + 32 <= bytes; i += 32) _mm256_storeu_ps((void *)(p + i), _mm256_mul_ps(_mm256_loadu_ps((void *)(p + i)), f));
}

AVX512 static void multiply_avx512(uint8_t *p, size_t bytes, float factor)
{
    __m512 f = _mm512_set1_ps(factor);
    size_t i;
    for (i = 0; i + 64 <= bytes; i += 64) _mm512_storeu_ps(p + i, _mm512_mul_ps(_mm512_loadu_ps(p + i), f));
}

void roof_multiply(void *data, size_t bytes, float factor, int wide)
{
    if (wide) multiply_avx512(data, bytes, factor);
    else multiply_avx2(data, bytes, factor);
}
