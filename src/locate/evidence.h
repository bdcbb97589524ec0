/*
 * The evidence of a location as files that anybody can open: l3/witness.safetensors (what the operator read and made, each in its
 * own format, and what FP64 makes of it) and l3/stack.json (the way from the operator to the finding). docs/format/locate.md says
 * what is in them. Each is put in place once and never replaced.
 */
#ifndef FB_LOCATE_EVIDENCE_H
#define FB_LOCATE_EVIDENCE_H

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
 * Errors: FB_E_USAGE, FB_E_EXISTS, FB_E_IO, FB_E_LIMIT (a path that is too long), FB_E_NOMEM.
 */
fb_status fb_evidence_write(const fb_os *os, const char *folder, const fb_witness *witness, uint64_t bytes_max, fb_evidence *out,
                            fb_error *err);

#endif
