/* Text that is met again and again, kept once: names of operators, modules and tensors, places in a program. */
#ifndef FB_LOCATE_NAMES_H
#define FB_LOCATE_NAMES_H

#include "firstbad/firstbad.h"

typedef struct fb_names {
    char *text;       /* one after the other, each with its NUL */
    uint64_t *starts; /* [count] */
    uint32_t *slots;  /* [slot_count] id + 1, 0: free */
    size_t text_bytes, text_room, starts_room;
    uint32_t count, slot_count;
} fb_names;

/* A zeroed struct is an empty set of names. */
void fb_names_release(fb_names *names);
/* The id of a text, which is kept if it is new. NULL counts as "". Errors: FB_E_NOMEM, FB_E_LIMIT; nothing changed then. */
fb_status fb_names_add(fb_names *names, const char *text, uint32_t *id, fb_error *err);
/* Valid until the next fb_names_add. */
const char *fb_names_text(const fb_names *names, uint32_t id);

#endif
