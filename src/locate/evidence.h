/*
 * The evidence of a location as files that anybody can open: l3/witness.safetensors (what the operator read and made, each in its
 * own format, and what FP64 makes of it) and l3/stack.json (the way from the operator to the finding). docs/format/locate.md says
 * what is in them. Each is written aside and renamed. One that a run left behind before it came to write locate.json is replaced;
 * who calls this makes sure that there is no locate.json yet.
 */
#ifndef FB_LOCATE_EVIDENCE_H
#define FB_LOCATE_EVIDENCE_H

#include "base/json_write.h"
#include "locate/witness.h"
#include "os/os.h"

enum { FB_EVIDENCE_FILES_MAX = 4, FB_EVIDENCE_BYTES_DEFAULT = 64 << 20 };

typedef struct fb_evidence_file {
    char name[64]; /* below the folder: "l3/witness.safetensors" */
    uint64_t bytes;
    uint64_t xxh3;
} fb_evidence_file;

typedef struct fb_evidence {
    uint32_t count;
    uint32_t sliced; /* tensors of which only a part around the bad element was written, to stay within the bytes allowed */
    fb_evidence_file files[FB_EVIDENCE_FILES_MAX];
} fb_evidence;

/**
 * folder     of the case, or of one replay; l3/ is made in it.
 * bytes_max  of the tensors together; 0: FB_EVIDENCE_BYTES_DEFAULT. What does not fit is sliced, the bad element within the slice.
 * out        what was written; on failure, what was written before it.
 * Errors: FB_E_USAGE, FB_E_IO, FB_E_LIMIT (a path that is too long), FB_E_NOMEM.
 */
fb_status fb_evidence_write(const fb_os *os, const char *folder, const fb_witness *witness, uint64_t bytes_max, fb_evidence *out,
                            fb_error *err);

/* What locate.json and stack.json share. A link is a whole object; numbers that are not finite are
 * text; an unknown format is null. */
void fb_evidence_link(fb_json *json, const fb_witness_place *place);
void fb_evidence_key_number(fb_json *json, const char *key, double value);
void fb_evidence_key_format(fb_json *json, const char *key, int32_t format);
const char *fb_label_name(int32_t label); /* "generate", ...; "unknown" */

#endif
