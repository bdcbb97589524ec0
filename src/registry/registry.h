/*
 * checkpoints.log in the folder of a run: what is known of each checkpoint, and how it came to be known.
 *
 *   suspect      at birth; and again where an update that was not provably withheld may be in it
 *   committed    the bytes were made durable, read back and found finite, and every update before them was gated
 *   quarantined  not finite
 *
 * Every change is a record that stays; the newest one of a path counts. All ranks, attempts and tools of a run write here in turn,
 * under a lock. A verdict is bound to the bytes it was made on: a digest stands in the record, and who is about to load a
 * checkpoint can ask for it to be compared. docs/design/checkpoints.md has the reasons.
 */
#ifndef FB_REGISTRY_REGISTRY_H
#define FB_REGISTRY_REGISTRY_H

#include "ckpt/ckpt.h"
#include "evidence/records.h"
#include "os/os.h"

#define FB_REGISTRY_FILE "checkpoints.log"

/* One record. `rec` and its texts are borrowed for the call. A return other than FB_OK ends the reading with that status. */
typedef fb_status (*fb_registry_fn)(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err);

/**
 * Append one record. FB_OK: it survives power loss.
 * Errors: FB_E_USAGE (no path, a state that does not exist), FB_E_LIMIT (path over 4095 bytes), FB_E_IO, FB_E_CORRUPT, FB_E_NOMEM.
 */
fb_status fb_registry_record(const fb_os *os, const char *run_folder, const fb_rec_ckpt *rec, fb_error *err);

/* All records, oldest first: the audit trail. No registry is no error: nothing was saved yet. */
fb_status fb_registry_trail(const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx, fb_error *err);

/* The newest record of each path, in the order in which the paths first appeared. */
fb_status fb_registry_each(const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx, fb_error *err);

typedef struct fb_registry_checkpoint {
    int64_t step;
    int32_t attempt, rank;
    uint64_t bytes, digest;
    char path[FB_OS_PATH_MAX]; /* absolute */
} fb_registry_checkpoint;

enum {
    FB_REGISTRY_LOOK = 0,  /* it is still there, and a file still has its size */
    FB_REGISTRY_VERIFY = 1 /* its bytes are read again, are finite, and give the same digest */
};

/**
 * The checkpoint to resume from: committed, of the newest attempt that has one, of that the highest step. One that is gone or was
 * changed is passed over, since changed bytes are suspect.
 * Errors: FB_E_NOTFOUND, and the sentence says how many there were and why none will do; FB_E_IO, FB_E_CORRUPT, FB_E_NOMEM.
 */
fb_status fb_registry_latest_committed(const fb_os *os, const char *run_folder, int how, fb_registry_checkpoint *out,
                                       fb_error *err);

/**
 * A checkpoint was written: record it as suspect, make its bytes durable, read them back, judge, and record the verdict.
 * path     file or folder; kept as absolute path without symbolic links.
 * gated    1: every update since the start, or since the checkpoint this attempt came from, was gated without a hole.
 * state    out: FB_CKPT_COMMITTED, FB_CKPT_QUARANTINED or FB_CKPT_SUSPECT; the latter also on every failure.
 * summary  NULL, or what the scan found; its `reason` says why a suspect could not be judged.
 * A verdict of the same attempt on the same bytes under this path that said quarantined, or suspect by lineage, is not lifted: a
 * finite scan does not make an update gated afterwards. If another save to the same path was recorded meanwhile, that one's verdict
 * is its own affair: nothing more is recorded here, and the state is suspect.
 * Errors: FB_E_NOTFOUND (no such path), FB_E_IO, FB_E_CORRUPT (the registry), FB_E_NOMEM, FB_E_LIMIT, FB_E_USAGE.
 * Cost: one read of all bytes.
 */
fb_status fb_registry_commit_with(const fb_os *os, const char *run_folder, const char *path, int64_t step, int32_t attempt,
                                  int32_t rank, int gated, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                                  fb_ckpt_summary *summary, int32_t *state, fb_error *err);

/* The same with the defaults. */
fb_status fb_registry_commit(const fb_os *os, const char *run_folder, const char *path, int64_t step, int32_t attempt, int32_t rank,
                             int gated, int32_t *state, fb_error *err);

/**
 * An update may have spread before it was withheld: what this attempt committed at `step` or later, or is reading back now, falls
 * back to suspect, by lineage.
 * changed  out, may be NULL: how many.
 */
fb_status fb_registry_taint(const fb_os *os, const char *run_folder, int32_t attempt, int64_t step, uint64_t *changed,
                            fb_error *err);

/* "suspect", "committed", "quarantined"; "?" for another number. Never NULL. */
const char *fb_registry_state_name(int32_t state);
/* "not read back yet", "not finite", ... for a pair of state and reason. Never NULL. */
const char *fb_registry_reason_text(int32_t state, int32_t reason);

#endif
