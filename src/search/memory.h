/* Which subsets were settled, and how: an exact table (a hash alone could confuse two subsets and make the answer wrong). */
#ifndef FB_SEARCH_MEMORY_H
#define FB_SEARCH_MEMORY_H

#include "firstbad/firstbad.h"

typedef struct fb_memory {
    uint64_t words;  /* 64-bit words of a subset: one bit an item */
    uint64_t *sets;  /* [room * words] in the order of arrival */
    uint8_t *values; /* [room] */
    uint32_t *slots; /* [slot_count] index + 1 into sets, 0: free */
    uint32_t count, room, slot_count;
} fb_memory;

void fb_memory_init(fb_memory *memory, uint32_t items);
void fb_memory_release(fb_memory *memory);
/* The value, or -1 if the set is not known. */
int32_t fb_memory_find(const fb_memory *memory, const uint64_t *set);
/* A set that is not known yet. Errors: FB_E_NOMEM, nothing changed. */
fb_status fb_memory_add(fb_memory *memory, const uint64_t *set, uint8_t value, fb_error *err);

#endif
