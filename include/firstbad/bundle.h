/*
 * firstbad/bundle.h: all that a replay needs, in a folder that anyone can read: safetensors and JSON (docs/format/bundle.md).
 * Experimental: may change with a minor version.
 *
 * Writing, on every rank that has something to put in, then on one rank to close it:
 *   fb_bundle_create, [fb_bundle_put, fb_bundle_set_*], fb_bundle_finish      this rank's part, atomically
 *   ... all ranks have finished (the trainer's own barrier or vote) ...
 *   fb_bundle_seal                                                            one rank: the manifest; without it there is no bundle
 * Reading:
 *   fb_bundle_open (every byte is hashed and compared first), fb_bundle_get, fb_bundle_text, fb_bundle_number, fb_bundle_close
 *
 * And for who is started by `firstbad replay` or `firstbad bisect`: fb_replay_wanted says what is asked for.
 */
#ifndef FIRSTBAD_BUNDLE_H
#define FIRSTBAD_BUNDLE_H

#include "firstbad/firstbad.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fb_bundle_writer fb_bundle_writer;
typedef struct fb_bundle fb_bundle;

/* Which file a tensor goes into. */
enum {
    FB_BUNDLE_BATCH = 1, /* batch-r00000.safetensors: tokens, labels, weights, sample ids */
    FB_BUNDLE_RNG = 2,   /* rng-r00000.safetensors */
    FB_BUNDLE_STATE = 3, /* state-r00000.safetensors: parameters, moments, buffers on entry; only where they fit, see bytes_max */
    FB_BUNDLE_PARTS = 4
};

typedef struct fb_bundle_config {
    uint32_t size;
    int32_t rank, world;
    const char *folder; /* the bundle's own: "cases/a1-000412/bundle"; made when it is not there */
    const char *run_id, *case_id;
    int64_t step;
    uint64_t bytes_max; /* of this rank's tensors together; 0: 1 GiB. One that does not fit is left out, and the manifest says so */
} fb_bundle_config;
#define FB_BUNDLE_CONFIG_INIT                                  \
    {                                                          \
        sizeof(fb_bundle_config), 0, 1, NULL, NULL, NULL, 0, 0 \
    }

/**
 * Begin this rank's part. Errors: FB_E_USAGE, FB_E_EXISTS (the bundle is sealed, or this rank's part is there), FB_E_IO,
 * FB_E_NOMEM.
 */
FB_API fb_status fb_bundle_create(fb_bundle_writer **out, const fb_bundle_config *config, fb_error *err);
/**
 * Put a tensor in. The bytes are copied before it returns, and hashed as they were then; the copy is held until fb_bundle_finish.
 * name: unique within its part.
 * Errors: FB_E_LIMIT (bytes_max), FB_E_NOMEM: it is listed as left out, and the bundle goes on. FB_E_EXISTS, FB_E_DTYPE (a format
 * that safetensors has no name for), FB_E_USAGE.
 */
FB_API fb_status fb_bundle_put(fb_bundle_writer *writer, int32_t part, const char *name, int32_t dtype, int32_t ndim,
                               const int64_t *shape, const void *data, fb_error *err);
/* A number or a text of this rank: "loss_scale", "learning_rate", "micro_step", "precision", "dropout", "finding.module", ... A key
   that was set before gets the new value. A number may be non-finite. */
FB_API fb_status fb_bundle_set_number(fb_bundle_writer *writer, const char *key, double value, fb_error *err);
FB_API fb_status fb_bundle_set_integer(fb_bundle_writer *writer, const char *key, int64_t value, fb_error *err);
FB_API fb_status fb_bundle_set_text(fb_bundle_writer *writer, const char *key, const char *value, fb_error *err);
/* The checkpoint that the state descends from. exact: 1 when its parameters are those on entry of the
 * step, 0 when updates lie between. */
FB_API fb_status fb_bundle_set_parent(fb_bundle_writer *writer, const char *path, int64_t step, int32_t exact, fb_error *err);
/* The command that would run the trainer on it again, as one argument list; its working folder. NULL-terminated. */
FB_API fb_status fb_bundle_set_command(fb_bundle_writer *writer, const char *const *argv, const char *cwd, fb_error *err);
/* Put this rank's part in place: written aside, synced, renamed. The writer is freed, whatever the status. */
FB_API fb_status fb_bundle_finish(fb_bundle_writer *writer, fb_error *err);
/* Give it up; what was written aside is removed. Accepts NULL. */
FB_API void fb_bundle_abandon(fb_bundle_writer *writer);
/**
 * Close the bundle: read back and hash the parts of ranks 0 .. world - 1 and write the manifest bundle.json. A rank whose part is
 * missing is listed as missing. Once sealed nothing changes any more. Errors: FB_E_EXISTS (sealed already), FB_E_CORRUPT (a part is
 * not what its rank wrote), FB_E_NOTFOUND (no part at all), FB_E_IO, FB_E_NOMEM.
 */
FB_API fb_status fb_bundle_seal(const char *folder, int32_t world, fb_error *err);

/**
 * Open a sealed bundle, or the bundle of a case folder (folder/bundle). Every file is read and compared with the hash it was
 * captured with. Errors: FB_E_NOTFOUND (there is none, or it was never sealed), FB_E_CORRUPT (the sentence names the file, what was
 * expected and what was found), FB_E_LIMIT (a manifest of more than 64 MiB), FB_E_IO, FB_E_NOMEM.
 */
FB_API fb_status fb_bundle_open(fb_bundle **out, const char *folder, fb_error *err);
FB_API int32_t fb_bundle_world(const fb_bundle *bundle);
FB_API int64_t fb_bundle_step(const fb_bundle *bundle);
FB_API const char *fb_bundle_folder(const fb_bundle *bundle);
/* What a tensor is: FB_E_NOTFOUND when it is not in it. shape: [FB_DIMS_MAX]. */
FB_API fb_status fb_bundle_find(const fb_bundle *bundle, int32_t rank, int32_t part, const char *name, int32_t *dtype,
                                int32_t *ndim, int64_t *shape, uint64_t *count, fb_error *err);
/* Copy it. dtype and count must be those it was put in with. Hashed again as it is read. Errors also: FB_E_DTYPE, FB_E_USAGE. */
FB_API fb_status fb_bundle_get(const fb_bundle *bundle, int32_t rank, int32_t part, const char *name, int32_t dtype, uint64_t count,
                               void *data, fb_error *err);
FB_API fb_status fb_bundle_number(const fb_bundle *bundle, int32_t rank, const char *key, double *value, fb_error *err);
FB_API fb_status fb_bundle_integer(const fb_bundle *bundle, int32_t rank, const char *key, int64_t *value, fb_error *err);
/* Lives as long as the bundle; NULL: not there. */
FB_API const char *fb_bundle_text(const fb_bundle *bundle, int32_t rank, const char *key);
/* Run and case it was captured in; "" when the trainer named none. */
FB_API const char *fb_bundle_run_id(const fb_bundle *bundle);
FB_API const char *fb_bundle_case_id(const fb_bundle *bundle);
/* 1: this rank has a part in it; 0: it is missing. */
FB_API int fb_bundle_has_rank(const fb_bundle *bundle, int32_t rank);
/* The command that would run the trainer on it, of the lowest rank that set one: NULL-terminated, lives as long as the bundle.
   NULL: none was set. cwd: NULL, or its working folder, which may be NULL. */
FB_API const char *const *fb_bundle_command(const fb_bundle *bundle, const char **cwd);
/* Tensor number `index`, from 0, that this rank handed over and that is not in it: for its size, or for want of memory.
   FB_E_NOTFOUND: there are no more. */
FB_API fb_status fb_bundle_left_out(const fb_bundle *bundle, int32_t rank, uint32_t index, int32_t *part, const char **name,
                                    uint64_t *bytes, fb_error *err);
/**
 * The samples that are in it: tensor "sample_ids" (I64) of the batch, of all ranks together, each once, in rising order.
 * count  out: how many there are, also where there is no room for them.
 * Errors: FB_E_NOTFOUND (no rank has the tensor), FB_E_LIMIT (more than `room`: as many as fit were given), FB_E_DTYPE,
 * FB_E_CORRUPT, FB_E_IO, FB_E_NOMEM.
 */
FB_API fb_status fb_bundle_samples(const fb_bundle *bundle, int64_t *ids, size_t room, size_t *count, fb_error *err);
/* Path, step and exactness of the parent checkpoint, of the lowest rank that set one; FB_E_NOTFOUND when none did. */
FB_API fb_status fb_bundle_parent(const fb_bundle *bundle, const char **path, int64_t *step, int32_t *exact, fb_error *err);
FB_API void fb_bundle_close(fb_bundle *bundle);

/* ---- a trainer that was started for a replay --------------------------------------------------------------------------------- */

/* What `firstbad replay` and `firstbad bisect` ask of the trainer they start; read from FIRSTBAD_REPLAY, FIRSTBAD_REPLAY_PARTS,
   FIRSTBAD_REPLAY_TIMES, FIRSTBAD_REPLAY_STRATEGY, FIRSTBAD_REPLAY_PROBES, FIRSTBAD_REPLAY_OUT. Parts are words with commas between
   them: replay, search, cause, other, minimise, evidence, all; the strategy is sweep or bisect; the rest are decimal numbers and
   paths. A variable that is empty counts as not set. */
typedef struct fb_replay_wanted {
    uint32_t size;
    uint32_t parts;      /* FB_LOCATE_* of firstbad/locate.h */
    uint32_t times;      /* 0: default */
    int32_t strategy;    /* FB_LOCATE_SWEEP, ... */
    uint32_t probes_max; /* 0: any */
    uint32_t reserved;
    char bundle[4096]; /* folder of the bundle */
    char out[4096];    /* folder for locate.json and l3/; "": nothing is written */
} fb_replay_wanted;
#define FB_REPLAY_WANTED_INIT                         \
    {                                                 \
        sizeof(fb_replay_wanted), 0, 0, 0, 0, 0, {0}, \
        {                                             \
            0                                         \
        }                                             \
    }
/* FB_OK: a replay is wanted. FB_E_NOTFOUND: train as ever. FB_E_USAGE: a variable is not what it must
 * be; the sentence says which. */
FB_API fb_status fb_replay_asked(fb_replay_wanted *out, fb_error *err);

#ifdef __cplusplus
}
#endif

#endif
