/*
 * What replays told of a case: locate.json, which is written when the case is opened, and replays/NNN/locate.json, which
 * `firstbad replay` and `firstbad bisect` write later. Data, and the judgement over it; the wording is in say.c.
 *
 * A file is *told* by somebody and believed only as far as it proves itself: it must be of this run, this case and this finding,
 * and an operator is named only with a witness chain that is whole (promise P5). What is not believed is a note, or a doubt.
 */
#ifndef FB_REPORT_LOCATED_H
#define FB_REPORT_LOCATED_H

#include "locate/locate_json.h"

enum {
    FB_REPLAYS_MAX = 256,         /* folders below replays/ that are read: the newest */
    FB_BUNDLE_READ_MIB_MAX = 1024 /* of a bundle that is read again before it is called unchanged */
};

/* One file. */
typedef struct fb_told {
    char from[48];     /* its path below the case folder: "locate.json", "replays/003/locate.json" */
    int32_t number;    /* 0: locate.json of the case; else NNN: higher is newer */
    int32_t found;     /* FB_LOCATED_*: what the file says, or undecided where it proves less than it says */
    char doubt[256];   /* why no operator is named although the file names one; "" none */
    uint64_t of;       /* index into the findings of the report: that which nothing comes before, and to which this belongs */
    uint64_t explains; /* index of that to which the chain leads: the same, or what came of a bad batch */
    fb_locate_file file;
} fb_told;

/* What is there to replay. */
enum {
    FB_BUNDLE_ABSENT = 0,
    FB_BUNDLE_OPEN = 1,    /* never sealed: the job ended in between, or a rank did not come that far */
    FB_BUNDLE_SEALED = 2,  /* every byte was read again and is what was captured */
    FB_BUNDLE_UNREAD = 3,  /* sealed, and too large to be read again here */
    FB_BUNDLE_REFUSED = 4, /* something in it is not what was captured */
    FB_BUNDLE_UNKNOWN = 5  /* it could not be looked at */
};
typedef struct fb_bundle_seen {
    int32_t state;
    uint64_t left_out; /* tensors that did not fit, over all ranks; known where it was read */
    char why[512];
} fb_bundle_seen;

typedef struct fb_located {
    int32_t found; /* FB_LOCATED_*: of `place`; FB_LOCATED_NOTHING: nobody located */
    /* A replay that differs from the run tells of another run, so faithful ones go first, and facts of others stay apart. */
    const fb_told *place;     /* the most exact; of those, the newest faithful one; NULL */
    const fb_told *replay;    /* the newest faithful one that replayed, else the newest; NULL */
    const fb_told *precision; /* the newest faithful one that tried FP32, or `replay` itself; NULL */
    const fb_told *others;    /* the same, of other ranks */
    const fb_told *apart;     /* the newest that is not faithful, where it is newer than `replay` or knows more; NULL */
    const fb_told *opened;    /* locate.json of the case, where it replayed and is none of those; NULL */
    const fb_told *batch;     /* the newest faithful one that made the batch small, else the newest; NULL */
    int32_t cause_told;       /* 1: the cause of the report is that of `place` */
    char nothing_why[512];    /* why nobody located, where that is recorded; "" */
    fb_bundle_seen bundle, minimal;
    fb_told *told; /* [count] those that are of this case, oldest first */
    uint64_t count;
} fb_located;

int fb_told_is_faithful(const fb_told *told);

#endif
