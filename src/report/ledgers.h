/*
 * All ledgers of a run folder, for whoever reads every record: `firstbad export`.
 */
#ifndef FB_REPORT_LEDGERS_H
#define FB_REPORT_LEDGERS_H

#include "log/log.h"

typedef struct fb_ledger_ref {
    int32_t attempt, rank;
} fb_ledger_ref;

/* Sorted by attempt and rank. attempt 0: all. *refs: release with fb_free. Errors: FB_E_NOTFOUND (no
 * ledger), FB_E_IO, FB_E_NOMEM. */
fb_status fb_ledgers_list(const fb_os *os, const char *run_folder, int32_t attempt, fb_ledger_ref **refs, uint64_t *count,
                          fb_error *err);

/* frozen: 1 for a record out of set-aside space. A return other than 0 ends the walk. */
typedef int (*fb_ledgers_fn)(void *ctx, const fb_ledger_ref *ref, const fb_log_record *record, int frozen);

/* Each record of one ledger; frozen ones first. *tail (may be NULL): how the file ends. *ended: 1 when `fn` ended the walk. */
fb_status fb_ledgers_walk(const fb_os *os, const char *run_folder, const fb_ledger_ref *ref, fb_ledgers_fn fn, void *ctx,
                          fb_log_tail *tail, int *ended, fb_error *err);

#endif
