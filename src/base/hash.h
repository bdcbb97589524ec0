/*
 * XXH3, 64 bits: detects accidents, not forgery. Header-only use of the system's xxhash.h, so nothing is linked.
 */
#ifndef FB_BASE_HASH_H
#define FB_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash of `bytes` bytes under a seed. data may be NULL when bytes is 0. */
uint64_t fb_hash64(const void *data, size_t bytes, uint64_t seed);

#endif
