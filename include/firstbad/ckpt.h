/*
 * ckpt.h: checkpoints outside a run: is one finite, may it be loaded, which is the one to resume from.
 *
 * EXPERIMENTAL: this header may change between releases; only firstbad/firstbad.h promises stability.
 * Same conventions as firstbad.h. Nothing that a file says is run, and nothing it says is trusted before it is compared with the
 * bytes that are there. Every function is safe from any thread.
 *
 * Resuming, in three calls:
 *
 *   char path[4096];
 *   size_t bytes = sizeof path;
 *   if (fb_ckpt_latest("checkpoints", path, &bytes, &err) == FB_OK &&
 *       fb_ckpt_may_load(path, NULL, FB_CKPT_CHECK_BYTES, &state, &err) == FB_OK) load(path);
 */
#ifndef FIRSTBAD_CKPT_H
#define FIRSTBAD_CKPT_H

#include "firstbad/firstbad.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a file or folder, worst last. Anything but clean keeps a checkpoint from being committed. */
enum {
    FB_CKPT_OUTCOME_CLEAN = 0,       /* all of it was read, and every number that can be non-finite is finite or legal */
    FB_CKPT_OUTCOME_UNSUPPORTED = 1, /* some of it could not be looked at by this build, or there was nothing to look at */
    FB_CKPT_OUTCOME_LIMIT = 2,       /* a documented bound was reached */
    FB_CKPT_OUTCOME_UNREADABLE = 3,  /* not what its format says, incomplete, or changed while it was read */
    FB_CKPT_OUTCOME_NON_FINITE = 4
};

/* Flags of fb_ckpt_scan. */
enum {
    FB_CKPT_SCAN_NO_DIGEST = 1, /* spares the second look at each byte; the digest is then 0 */
    FB_CKPT_SCAN_FIRST = 2      /* stop at the first bad element; the counts are then those up to there */
};

/* The sum of a scan. */
typedef struct fb_ckpt_result {
    uint32_t size;
    int32_t outcome;            /* FB_CKPT_OUTCOME_* */
    uint64_t files;             /* that hold tensors and were opened */
    uint64_t tensors, elements; /* in them */
    uint64_t bytes;             /* of these files */
    uint64_t checked;           /* elements whose format has non-finite codes, and that were looked at */
    uint64_t unscanned;         /* parts that were not looked at */
    uint64_t bad, bad_tensors;  /* elements that are not finite and not legal; tensors that hold them */
    uint64_t digest;            /* XXH3 over the bytes: detects accidents, not forgery */
    uint64_t first_index;       /* of the first bad element in its tensor, flat; FB_NO_INDEX when there is none */
    uint64_t first_bits;
    int64_t step;       /* that the files agree on; -1: none says */
    int32_t first_kind; /* FB_KIND_* */
    int32_t reserved;
    char first_tensor[1024]; /* "" when nothing is bad; longer names are cut */
    char first_file[1024];
    char format[64];
    char reason[1024]; /* a sentence for the worst outcome other than clean and non-finite; else "" */
} fb_ckpt_result;
#define FB_CKPT_RESULT_INIT                                                                 \
    {                                                                                       \
        sizeof(fb_ckpt_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, \
        {                                                                                   \
            0                                                                               \
        }                                                                                   \
    }

/**
 * Read and judge a checkpoint: one file, or a folder of them. On the calling thread, with little memory, whatever its size.
 * flags  FB_CKPT_SCAN_* together.
 * out    `size` set by the caller. Filled on FB_OK, whatever the outcome is; on failure its outcome is FB_CKPT_OUTCOME_UNREADABLE.
 * Errors: FB_E_NOTFOUND, FB_E_IO, FB_E_NOMEM, FB_E_USAGE: no outcome was reached. Cost: one read of all bytes.
 */
FB_API fb_status fb_ckpt_scan(const char *path, uint32_t flags, fb_ckpt_result *out, fb_error *err);

/* How closely a committed checkpoint is compared with what was committed. */
enum {
    FB_CKPT_CHECK_SIZE = 0, /* it is there, and files have the size they had */
    FB_CKPT_CHECK_BYTES = 1 /* its bytes are read again, are finite, and give the same digest */
};

/**
 * The gate before a load. Committed: FB_OK. Quarantined, not finite or not readable: FB_E_WITHHELD, and the sentence says why.
 * Suspect or unknown to every run: it is read now, and when it is finite FB_OK with *state FB_CKPT_SUSPECT, since finite bytes say
 * nothing of the updates that made them; whether to load is then the caller's to say.
 * runs_dir  folder that holds runs; NULL: FIRSTBAD_DIR, else "firstbad-runs". Runs that saved there are also found from the files.
 * how       FB_CKPT_CHECK_*.
 * state     out, may be NULL: FB_CKPT_SUSPECT, ... of firstbad.h.
 * Errors: FB_E_WITHHELD, FB_E_NOTFOUND, FB_E_IO, FB_E_NOMEM, FB_E_USAGE.
 */
FB_API fb_status fb_ckpt_may_load(const char *path, const char *runs_dir, int32_t how, int32_t *state, fb_error *err);

/**
 * The path of the checkpoint below `dir` to resume from: the newest committed one. One that lost its own name, to rotation or to a
 * save over it, is given by the path of its pin.
 * dir    folder of checkpoints.
 * path   out: absolute, NUL-terminated.
 * bytes  in: room at `path`; out: bytes written, the NUL included, or what would be needed.
 * Errors: FB_E_NOTFOUND, and the sentence says how many there were and why none will do; FB_E_LIMIT (no room); FB_E_IO,
 * FB_E_CORRUPT,
 * FB_E_NOMEM, FB_E_USAGE.
 */
FB_API fb_status fb_ckpt_latest(const char *dir, char *path, size_t *bytes, fb_error *err);

#ifdef __cplusplus
}
#endif

#endif
