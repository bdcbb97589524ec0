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

/* The same, of those at or before a step: for who knows that what came later is not good. */
fb_status fb_registry_latest_until(const fb_os *os, const char *run_folder, int how, int64_t step_max, fb_registry_checkpoint *out,
                                   fb_error *err);

/* The same; restore: 1 puts a pinned one back under its own name first, and gives that. */
fb_status fb_registry_latest_of(const fb_os *os, const char *run_folder, int how, int restore, fb_registry_checkpoint *out,
                                fb_error *err);

/* ---- homes ------------------------------------------------------------------------------------------------------------------ */

/*
 * A home is a folder with a checkpoints.log: the folder of a run, or DIR/.firstbad for checkpoints in DIR that no run vouches for.
 * `latest`, the load gate and the tool start from checkpoints and need to find the homes that know them: the folders of runs below
 * runs_dir, those that a file .firstbad/homes beside the checkpoints names (one absolute path a line, written at every commit), and
 * DIR/.firstbad itself.
 * dir       a folder of checkpoints, one checkpoint, or a home itself.
 * runs_dir  NULL, or the folder that holds runs; one that does not exist is no error.
 * fn        told of each home once, absolute path; a return other than FB_OK ends the search with that status.
 */
typedef fb_status (*fb_registry_home_fn)(void *ctx, const char *home, fb_error *err);
fb_status fb_registry_homes(const fb_os *os, const char *dir, const char *runs_dir, fb_registry_home_fn fn, void *ctx,
                            fb_error *err);

/**
 * The checkpoint below `dir` to resume from, over all homes that know one there: of the home whose newest record is the youngest
 * and that has a committed one, as fb_registry_latest_committed. One whose own place is empty but whose pin has the committed bytes
 * is given by the path of its pin. restore: 1 puts a pinned one back under its own name first.
 * Errors: as fb_registry_latest_committed.
 */
fb_status fb_registry_latest_in(const fb_os *os, const char *dir, const char *runs_dir, int how, int restore,
                                fb_registry_checkpoint *out, fb_error *err);

/* ---- keeping files safe from trainers --------------------------------------------------------------------------------------- */

/* How a committed checkpoint is kept. Written to records, never renumbered. */
enum {
    FB_PIN_NONE = 0,
    FB_PIN_LINK = 1,    /* hard links: the trainer writes new files, or renames over old ones */
    FB_PIN_RENAMED = 2, /* moved before the trainer wrote over its name: fb_registry_begin */
    FB_PIN_REFLINK = 3, /* the file system shares the blocks until one side writes */
    FB_PIN_COPY = 4,
    FB_PIN_IMPOSSIBLE = 5 /* the record's note says why */
};

/**
 * A trainer is about to write to `path`. A committed checkpoint that lies there is moved to its pin, so that neither truncation nor
 * a crash in the middle of the save can harm it, and `path` is free; from here on `path` is suspect. No such file: only recorded.
 * Errors: FB_E_IO and the rest; the old checkpoint is then still in one of the two places, and committed.
 */
fb_status fb_registry_begin(const fb_os *os, const char *home, const char *path, int64_t step, int32_t attempt, int32_t rank,
                            fb_error *err);

/**
 * By evidence or by hand: record it quarantined, move it aside (DIR/.firstbad/quarantine/NAME, on the same file system), and set
 * pointer files in DIR that named it (`latest`, `latest_checkpointed_iteration.txt`) to the newest committed one. Nothing is
 * deleted.
 * why  for the audit trail; not empty.
 * Errors: FB_E_NOTFOUND (neither path nor record), FB_E_USAGE, FB_E_IO. After a crash between the record and the move the next call
 * of any function that writes, or fb_registry_settle, finishes the move.
 */
fb_status fb_registry_quarantine(const fb_os *os, const char *home, const char *path, const char *why, fb_error *err);

/**
 * By an operator, with a reason: back to its name if it was moved aside, and committed if its bytes are finite now (they are read
 * again); a checkpoint that is not finite, or cannot be read, is not released: FB_E_WITHHELD, with the sentence.
 */
fb_status fb_registry_release(const fb_os *os, const char *home, const char *path, const char *why, fb_ckpt_summary *summary,
                              fb_error *err);

/**
 * Read a checkpoint again and record what came of it. Committed and the same bytes: stays. Changed bytes: suspect, "changed after
 * the verdict". Suspect for want of reading (not read back yet, unreadable then, a case opened): committed when its updates were
 * gated and the bytes are finite and, if a digest was recorded, the same. Not finite: quarantined, and moved aside. A path that no
 * record
 * knows: recorded, suspect ("no run vouches for it"), or quarantined.
 */
fb_status fb_registry_verify(const fb_os *os, const char *home, const char *path, const fb_ckpt_options *options,
                             const fb_ckpt_sink *sink, fb_ckpt_summary *summary, int32_t *state, fb_error *err);

/* Finish what a crash interrupted: moves aside, pins, pointer files. Safe to repeat. done: out, may be NULL: how many. */
fb_status fb_registry_settle(const fb_os *os, const char *home, uint64_t *done, fb_error *err);

/**
 * May this checkpoint be loaded? Quarantined: FB_E_WITHHELD, with the reason. Suspect or unknown: its bytes are read now; not
 * finite or unreadable is FB_E_WITHHELD; finite is FB_OK with *state FB_CKPT_SUSPECT, since a finite scan does not make its updates
 * gated.
 * Committed: FB_OK; the size is compared, and with FB_REGISTRY_VERIFY the bytes.
 * dir-less: the homes are found from path and runs_dir. A home that cannot be read is FB_E_WITHHELD too: nobody knows what it says.
 */
fb_status fb_registry_may_load(const fb_os *os, const char *path, const char *runs_dir, int how, int32_t *state,
                               fb_ckpt_summary *summary, fb_error *err);

/* A case opened: what this attempt committed after `step_verified` is suspect until it is read again (fb_registry_verify). */
fb_status fb_registry_doubt(const fb_os *os, const char *home, int32_t attempt, int64_t step_verified, uint64_t *changed,
                            fb_error *err);

/* "suspect", "committed", "quarantined"; "?" for another number. Never NULL. */
const char *fb_registry_state_name(int32_t state);
/* "none", "link", "renamed", "reflink", "copy", "impossible"; "?" for another number. Never NULL. */
const char *fb_registry_pin_name(int32_t pin);
/* "not read back yet", "not finite", ... for a pair of state and reason. Never NULL. */
const char *fb_registry_reason_text(int32_t state, int32_t reason);

#endif
