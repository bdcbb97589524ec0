/*
 * One replay, listened to.
 *
 * In the first replay the tape writes down the row of operators (row.h); in the others it compares what it hears with it, operator
 * by operator, and from the first difference on it looks at nothing any more: numbers of tensors would mean something else. It
 * reads a tensor only when it is told of it, and only what it was asked to look at or to keep.
 */
#ifndef FB_LOCATE_TAPE_H
#define FB_LOCATE_TAPE_H

#include "locate/row.h"
#include "locate/witness.h"
#include "search/trace.h"

enum {
    FB_TAPE_RECORD = 1,  /* write the row down */
    FB_TAPE_COMPARE = 2, /* the same row, elements and formats included */
    FB_TAPE_SMALLER = 3, /* the same row with other numbers of elements */
    FB_TAPE_FREE = 4     /* any row: only the finding is looked at, by its name */
};

enum { FB_WANT_LOOK = 1, FB_WANT_KEEP = 2 /* and look */ };

/* The finding by its names. */
typedef struct fb_tape_finding {
    const char *module, *tensor; /* module NULL: any */
    int32_t boundary, micro_step;
} fb_tape_finding;

struct fb_tape {
    int32_t mode;
    int32_t look_all;      /* FB_TAPE_RECORD: look at everything. Else at entries (entries_too) and at the finding */
    int32_t entries_too;   /* FB_TAPE_RECORD */
    const uint8_t *wanted; /* FB_TAPE_COMPARE and _SMALLER: [tensors of the row] FB_WANT_* */
    uint32_t wanted_count; /* of wanted that are not 0 */
    uint64_t keep_bytes_max;
    fb_tape_finding finding;
    fb_row *row; /* NULL for FB_TAPE_FREE */

    /* What was heard. */
    uint32_t nodes, tensors, entries, looked;
    uint8_t *seen; /* [tensors, as far as seen_room goes] FB_SEEN_* */
    size_t seen_room;
    fb_status broken; /* what failed; nothing was looked at since */
    int32_t strayed;  /* the row is another */
    int32_t changed;  /* an entry holds other bytes than in the first replay */
    char differs[256], changed_name[160];
    uint32_t finding_id, finding_near; /* FB_FLOW_NONE; near: the same names in another micro-step */
    int32_t finding_seen, near_seen;   /* FB_SEEN_* */
    fb_witness_tensor *kept;           /* [kept_count] */
    uint32_t *kept_ids;                /* ascending */
    size_t kept_room, kept_ids_room;
    uint32_t kept_count;
    uint64_t kept_bytes;
};

/* The caller fills in what comes first in the struct; all else is 0 after this. */
void fb_tape_init(fb_tape *tape, int32_t mode, fb_row *row, const fb_tape_finding *finding);
void fb_tape_release(fb_tape *tape);
/* The replay is over: is the row whole? */
void fb_tape_end(fb_tape *tape);
/* FB_SEEN_* of a tensor; FB_SEEN_UNTESTABLE where it was not looked at, or the tape strayed or broke. */
int32_t fb_tape_saw(const fb_tape *tape, uint32_t tensor);
/* Of the finding, by its name. FB_SEEN_NOT: the tape has not heard of it. */
int32_t fb_tape_saw_finding(const fb_tape *tape);
/* NULL: not kept. */
fb_witness_tensor *fb_tape_kept(const fb_tape *tape, uint32_t tensor);
/* Free what a kept tensor holds. */
void fb_witness_tensor_release(fb_witness_tensor *tensor);

#endif
