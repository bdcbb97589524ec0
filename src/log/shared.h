/*
 * A record log that several processes append to, one at a time: for the few records that belong to a whole run and not to one
 * writer. Who writes holds a lock on a file of its own beside the log, reads the log to its end, and appends there. The bytes are
 * those of log.h, so its reader reads them, and needs no lock.
 *
 *   fb_log_shared_open, [fb_log_shared_append], fb_log_shared_close
 *
 * Keep the time between open and close short: others wait for it.
 */
#ifndef FB_LOG_SHARED_H
#define FB_LOG_SHARED_H

#include "log/log.h"

typedef struct fb_log_shared fb_log_shared;

/* Handed each record of the log, in order. Anything but FB_OK ends the opening with that status. */
typedef fb_status (*fb_log_shared_each)(void *ctx, const fb_log_record *record, fb_error *err);

/**
 * Take the lock, create the log if there is none, and read it to its end.
 * path     the log; the lock is `path`.lock, which is never removed, and `path`.new is a log that is not finished. Copied. Their
 *          folder must exist.
 * file_id  for the case that the log is created: see fb_log_create.
 * each     may be NULL.
 * A record that its writer left half is cut off: it was never acknowledged.
 * Errors: FB_E_IO (also when another holds the lock for more than ten seconds), FB_E_CORRUPT (no log, or damaged before its end:
 * valid records follow the damage, and nothing is cut off), FB_E_UNSUPPORTED (a later version), FB_E_NOMEM, FB_E_LIMIT, FB_E_USAGE.
 */
fb_status fb_log_shared_open(fb_log_shared **out, const fb_os *os, const char *path, uint64_t file_id, fb_log_shared_each each,
                             void *ctx, fb_error *err);

/**
 * Append one record. FB_OK: it survives power loss. On failure it is taken out again, as far as the system lets us.
 * Errors: FB_E_LIMIT, FB_E_IO, FB_E_USAGE.
 */
fb_status fb_log_shared_append(fb_log_shared *log, uint16_t type, const void *payload, uint32_t bytes, fb_error *err);

/* Sequence number of the last record of the log; 0 when it has none. */
uint64_t fb_log_shared_sequence(const fb_log_shared *log);

/* Give the lock back. Accepts NULL. */
void fb_log_shared_close(fb_log_shared *log);

/**
 * For readers, which stop at the first record that is not valid: do valid ones follow? Then the log is damaged, and its newest
 * states are not known; a half record at the end, which somebody may be writing now, is no damage.
 * offset_bytes, after_bytes  as in fb_log_tail.
 */
fb_status fb_log_shared_hidden(const fb_os *os, const char *path, uint64_t offset_bytes, uint64_t after_bytes, int *hidden,
                               fb_error *err);

#endif
