/* Settled subsets: open addressing over whole bit sets. */
#include "search/memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"

void fb_memory_init(fb_memory *memory, uint32_t items)
{
    memset(memory, 0, sizeof *memory);
    memory->words = ((uint64_t)items + 63) / 64;
}

void fb_memory_release(fb_memory *memory)
{
    fb_free(memory->sets);
    fb_free(memory->values);
    fb_free(memory->slots);
    memset(memory, 0, sizeof *memory);
}

/* The slot of the set, or the free one where it would go. There is always a free one: the table is at most half full. */
static uint32_t slot_of(const fb_memory *memory, const uint64_t *set)
{
    size_t bytes = (size_t)memory->words * sizeof *set;
    uint32_t slot = (uint32_t)fb_hash64(set, bytes, 0) & (memory->slot_count - 1);
    while (memory->slots[slot] && memcmp(memory->sets + (memory->slots[slot] - 1) * memory->words, set, bytes) != 0) {
        slot = (slot + 1) & (memory->slot_count - 1);
    }
    return slot;
}

int32_t fb_memory_find(const fb_memory *memory, const uint64_t *set)
{
    uint32_t index = memory->slot_count ? memory->slots[slot_of(memory, set)] : 0;
    return index ? memory->values[index - 1] : -1;
}

static fb_status grow_sets(fb_memory *memory, uint32_t room, fb_error *err)
{
    uint64_t words = (uint64_t)room * memory->words;
    uint64_t *sets;
    uint8_t *values;
    if (words > SIZE_MAX / sizeof *sets)
        return fb_fail(err, FB_E_NOMEM, "remember subsets: %u of them do not fit into memory", room);
    sets = fb_realloc(memory->sets, (size_t)words * sizeof *sets);
    if (sets) memory->sets = sets;
    values = sets ? fb_realloc(memory->values, room) : NULL;
    if (!values) return fb_fail(err, FB_E_NOMEM, "remember subsets: no memory for %u of them", room);
    memory->values = values;
    return FB_OK;
}

static fb_status grow(fb_memory *memory, fb_error *err)
{
    uint32_t room = memory->room ? 2 * memory->room : 64;
    fb_status status;
    uint32_t *slots;
    if (room > UINT32_MAX / 4) return fb_fail(err, FB_E_NOMEM, "remember subsets: %u are too many", room);
    if ((status = grow_sets(memory, room, err)) != FB_OK) return status;
    slots = fb_calloc(2 * (size_t)room, sizeof *slots);
    if (!slots) return fb_fail(err, FB_E_NOMEM, "remember subsets: no memory for %u of them", room);
    fb_free(memory->slots);
    memory->slots = slots;
    memory->slot_count = 2 * room;
    memory->room = room;
    for (uint32_t i = 0; i < memory->count; i++) memory->slots[slot_of(memory, memory->sets + i * memory->words)] = i + 1;
    return FB_OK;
}

fb_status fb_memory_add(fb_memory *memory, const uint64_t *set, uint8_t value, fb_error *err)
{
    if (memory->count == memory->room) {
        fb_status status = grow(memory, err);
        if (status != FB_OK) return status;
    }
    memcpy(memory->sets + memory->count * memory->words, set, (size_t)memory->words * sizeof *set);
    memory->values[memory->count] = value;
    memory->slots[slot_of(memory, set)] = ++memory->count;
    return FB_OK;
}
