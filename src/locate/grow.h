/* Arrays that grow while a step is listened to. */
#ifndef FB_LOCATE_GROW_H
#define FB_LOCATE_GROW_H

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* Room for at least `wanted` elements of `size` bytes. array: the address of the pointer. Errors: FB_E_NOMEM; nothing changed. */
static inline fb_status fb_grow(void *array, size_t *room, size_t size, size_t wanted, fb_error *err)
{
    size_t count = *room ? *room : 32;
    void *before, *after;
    if (wanted <= *room) return FB_OK;
    while (count < wanted && count <= SIZE_MAX / 4) count *= 2;
    if (count < wanted || count > SIZE_MAX / size)
        return fb_fail(err, FB_E_NOMEM, "listen to a step: %zu elements do not fit", wanted);
    /* Copied, since a pointer to any pointer type is no void ** to the compiler. */
    memcpy(&before, array, sizeof before);
    after = fb_realloc(before, count * size);
    if (!after) return fb_fail(err, FB_E_NOMEM, "listen to a step: no memory for %zu bytes", count * size);
    memcpy(array, &after, sizeof after);
    *room = count;
    return FB_OK;
}

#endif
