/*
 * Which samples a run is to keep away: those that the cases of `firstbad run --leave-out CASE` need. In this order: the smallest
 * batch that was found of the case; else the batch of the rank that was first, where its ledger recorded all of it; else all
 * samples of the case's bundle, of all ranks; else the part that the ledger recorded.
 */
#ifndef CLI_LEAVE_OUT_H
#define CLI_LEAVE_OUT_H

#include "base/status.h"

enum { LEAVE_OUT_IDS_MAX = 1000000 /* as many as fb_run_open takes */, LEAVE_OUT_CASES_MAX = 32 };

typedef struct leave_out {
    int64_t *ids; /* rising, each once */
    size_t count;
    char told[LEAVE_OUT_CASES_MAX][512]; /* a sentence for each case: how many, and where they are known from */
    size_t cases;
} leave_out;

/* Add those of one case; dir and name as case_find takes them. Errors: those of case_find; FB_E_NOTFOUND: no sample of it is known;
   FB_E_LIMIT; FB_E_CORRUPT (the bundle was changed); FB_E_NOMEM. */
fb_status leave_out_add(leave_out *out, const char *dir, const char *name, fb_error *err);
/* The ids, one a line: release with fb_free. */
fb_status leave_out_text(const leave_out *out, char **text, size_t *bytes, fb_error *err);
void leave_out_release(leave_out *out);

#endif
