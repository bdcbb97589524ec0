#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t requests;
static _Atomic uint64_t fail_at;
static _Atomic int fail_for_good;

void fb_alloc_fail_at(uint64_t k, int for_good)
{
    atomic_store(&fail_at, k);
    atomic_store(&fail_for_good, for_good);
    atomic_store(&requests, 0);
}

uint64_t fb_alloc_requests(void)
{
    return atomic_load(&requests);
}

static int must_fail(void)
{
    uint64_t request = atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed) + 1;
    uint64_t k = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (k == 0) return 0;
    return request == k || (request > k && atomic_load_explicit(&fail_for_good, memory_order_relaxed));
}

void *fb_calloc(size_t count, size_t size)
{
    if (must_fail()) return NULL;
    return calloc(count ? count : 1, size ? size : 1);
}

void *fb_realloc(void *block, size_t bytes)
{
    if (must_fail()) return NULL;
    return realloc(block, bytes ? bytes : 1);
}

char *fb_strdup(const char *text)
{
    size_t bytes;
    char *copy;
    if (!text) return NULL;
    bytes = strlen(text) + 1;
    copy = fb_calloc(bytes, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void fb_free(void *block)
{
    free(block);
}
