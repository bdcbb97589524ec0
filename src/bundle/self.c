#include "bundle/self.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

/* What follows the hashed bytes is always of this size. */
static const char TAIL[] = ",\n  \"self\": \"0x%016llx\"\n}\n";
enum { TAIL_BYTES = 35 };

static void make_tail(char tail[TAIL_BYTES + 1], const char *text, size_t bytes)
{
    (void)snprintf(tail, TAIL_BYTES + 1, TAIL, (unsigned long long)fb_hash64(text, bytes, 0));
}

fb_status fb_self_close(const fb_json *json, char **text, size_t *bytes, fb_error *err)
{
    const char *open = fb_json_text(json);
    size_t used;
    char *out;
    fb_status status = fb_json_finish(json, err);
    *text = NULL;
    *bytes = 0;
    if (status != FB_OK) return status;
    if (json->used < 3 || strcmp(open + json->used - 2, "\n}") != 0) return fb_fail(err, FB_E_USAGE, "close a text: no object");
    used = json->used - 2;
    out = fb_calloc(used + TAIL_BYTES + 1, 1);
    if (!out) return fb_fail(err, FB_E_NOMEM, "close a text: no memory for %zu bytes", used + TAIL_BYTES + 1);
    memcpy(out, open, used);
    make_tail(out + used, open, used);
    *text = out;
    *bytes = used + TAIL_BYTES;
    return FB_OK;
}

fb_status fb_self_check(const char *text, size_t bytes, const char *path, fb_error *err)
{
    char tail[TAIL_BYTES + 1];
    if (bytes <= TAIL_BYTES || memcmp(text + bytes - 2, "}\n", 2) != 0) {
        return fb_fail_at(err, bytes, "read %s: its end is missing; %zu bytes are there", path, bytes);
    }
    make_tail(tail, text, bytes - TAIL_BYTES);
    if (memcmp(tail, text + bytes - TAIL_BYTES, TAIL_BYTES) != 0) {
        return fb_fail_at(err, bytes - TAIL_BYTES, "read %s: it was changed: its bytes have XXH3 %.18s, it ends with %.18s", path,
                          tail + 13, text + bytes - TAIL_BYTES + 13);
    }
    return FB_OK;
}
