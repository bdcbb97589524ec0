#include "locate/names.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "locate/grow.h"

enum { SLOTS_FIRST = 64, NAMES_MAX = 1 << 24 };

void fb_names_release(fb_names *names)
{
    fb_free(names->text);
    fb_free(names->starts);
    fb_free(names->slots);
    memset(names, 0, sizeof *names);
}

const char *fb_names_text(const fb_names *names, uint32_t id)
{
    return names->text + names->starts[id];
}

/* The slot that holds the text, or the free one where it belongs. slot_count is a power of two, and at most half of it is used. */
static uint32_t slot_of(const fb_names *names, const char *text, size_t bytes)
{
    uint32_t slot = (uint32_t)fb_hash64(text, bytes, 0) & (names->slot_count - 1);
    while (names->slots[slot] && strcmp(fb_names_text(names, names->slots[slot] - 1), text) != 0)
        slot = (slot + 1) & (names->slot_count - 1);
    return slot;
}

static fb_status more_slots(fb_names *names, fb_error *err)
{
    uint32_t *before = names->slots;
    uint32_t count = names->slot_count ? 2 * names->slot_count : SLOTS_FIRST;
    uint32_t *slots = fb_calloc(count, sizeof *slots);
    if (!slots) return fb_fail(err, FB_E_NOMEM, "keep a name: no memory for %u places", count);
    names->slots = slots;
    names->slot_count = count;
    for (uint32_t id = 0; id < names->count; id++) {
        const char *text = fb_names_text(names, id);
        names->slots[slot_of(names, text, strlen(text))] = id + 1;
    }
    fb_free(before);
    return FB_OK;
}

fb_status fb_names_add(fb_names *names, const char *text, uint32_t *id, fb_error *err)
{
    fb_status status;
    uint32_t slot;
    size_t bytes;
    if (!text) text = "";
    bytes = strlen(text);
    if (2 * names->count >= names->slot_count && (status = more_slots(names, err)) != FB_OK) return status;
    slot = slot_of(names, text, bytes);
    if (!names->slots[slot]) {
        if (names->count == NAMES_MAX) return fb_fail(err, FB_E_LIMIT, "keep a name: there are %d already", NAMES_MAX);
        if ((status = fb_grow(&names->text, &names->text_room, 1, names->text_bytes + bytes + 1, err)) != FB_OK) return status;
        status = fb_grow(&names->starts, &names->starts_room, sizeof *names->starts, (size_t)names->count + 1, err);
        if (status != FB_OK) return status;
        memcpy(names->text + names->text_bytes, text, bytes + 1);
        names->starts[names->count] = names->text_bytes;
        names->text_bytes += bytes + 1;
        names->slots[slot] = ++names->count;
    }
    *id = names->slots[slot] - 1;
    return FB_OK;
}
