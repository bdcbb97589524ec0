/*
 * firstbad.h: the stable C interface of firstbad.
 *
 * firstbad finds the first bad number of a training run, stops the update that would spread it, and records where it came from.
 * The library never exits, prints, throws or changes a random stream. It returns a status and, on request, one sentence.
 *
 * Calling order of one update on one rank (square brackets: as often as wanted):
 *
 *   fb_run_open, [fb_run_add_site], [fb_run_own]
 *     fb_step_begin
 *       [fb_step_micro, fb_step_check_tokens, fb_step_check FB_FORWARD / FB_LOSS / FB_LOCAL_GRAD]
 *       fb_step_ballot, MIN all-reduce of four words, fb_step_settle          proceed? reduce the gradients
 *       fb_step_unscale
 *       fb_step_ballot, MIN all-reduce of four words, fb_step_settle          proceed? clip
 *     either the optimizer writes into the state:
 *       fb_step_apply                                                         FB_OK? the optimizer may now change parameters
 *       [fb_step_check FB_UPDATE]                                             what is found is found late
 *     or it writes beside the state, and what it wrote is held back until all ranks found it finite:
 *       fb_step_check FB_UPDATE                                               of what it wrote, as often as wanted
 *       fb_step_ballot, MIN all-reduce of four words, fb_step_settle          proceed?
 *       fb_step_apply                                                         FB_OK? put it in the place of the state now
 *     fb_step_end
 *   fb_run_close
 *
 * Threads: fb_step_check, fb_step_check_tokens and fb_step_report may run on any thread; the rest belongs to the thread that opened
 * the run. Inputs are borrowed for the call and never kept, except where a function says so.
 * Structs: an open struct starts with `size`; set it to sizeof of that struct (the FB_*_INIT macros do) so that a caller compiled
 * against an older header and a newer library meet. All integers have fixed width; a field named `kind`, `boundary` or the like
 * holds one of the constants of the enum with that prefix.
 * Text: every `const char *` is UTF-8, NUL-terminated; NULL means unknown unless the function says otherwise.
 */
#ifndef FIRSTBAD_H
#define FIRSTBAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(FB_BUILDING_STATIC) || defined(_WIN32)
#define FB_API
#else
#define FB_API __attribute__((visibility("default")))
#endif

#define FB_VERSION_MAJOR 0
#define FB_VERSION_MINOR 1
#define FB_VERSION_PATCH 0
#define FB_VERSION_TEXT "0.1.0"
/* Raised when a function or struct of this header changes in a way that an old caller would notice. */
#define FB_ABI_VERSION 1u

/* ---- status and error ------------------------------------------------------------------------------------------------------ */

typedef int32_t fb_status;

enum {
    FB_OK = 0,
    FB_E_USAGE = -1,       /* an argument is wrong: NULL, out of range, inconsistent */
    FB_E_NOMEM = -2,       /* no memory */
    FB_E_DTYPE = -3,       /* the number format is unknown, or not allowed for this operation */
    FB_E_IO = -4,          /* a system call failed; see os_errno */
    FB_E_CORRUPT = -5,     /* bytes read are not what the format says; see offset_bytes */
    FB_E_EXISTS = -6,      /* the thing to create exists already: a second writer */
    FB_E_LIMIT = -7,       /* a documented bound was reached */
    FB_E_UNSUPPORTED = -8, /* understood, and not done by this build */
    FB_E_ORDER = -9,       /* the call came out of order: the message names what was expected */
    FB_E_FORKED = -10,     /* called in a child made by fork; nothing was touched */
    FB_E_SITE = -11,       /* a site id that this run did not give out */
    FB_E_HALTED = -12,     /* the run was halted earlier; the gate stays shut */
    FB_E_SELFTEST = -13,   /* the checks of this build do not find what they must */
    FB_E_NOTFOUND = -14,   /* what was asked for is not there */
    FB_E_WITHHELD = -15    /* the gate did not let this update through */
};

/* Filled on failure by every function that takes one. Lives with the caller, so it works when memory is gone. */
typedef struct fb_error {
    fb_status code;
    int32_t os_errno;      /* errno of the failed system call, else 0 */
    uint64_t offset_bytes; /* where in a file, when code is FB_E_CORRUPT; else 0 */
    char message[1024];    /* one sentence: what was done, to what, what was expected, what was found, what to do next */
} fb_error;

/* Short name of a status, for example "FB_E_IO". Never NULL; "FB_E_?" for an unknown value. */
FB_API const char *fb_status_name(fb_status status);

/* FB_ABI_VERSION of the library in use (compare it with the macro of the header you compiled against). */
FB_API uint32_t fb_abi_version(void);
/* Version of the library in use, for example "0.1.0". */
FB_API const char *fb_version(void);

/* ---- number formats --------------------------------------------------------------------------------------------------------- */

/* Values are written to files and never renumbered. */
enum {
    FB_F64 = 1,
    FB_F32 = 2,
    FB_F16 = 3, /* IEEE binary16 */
    FB_BF16 = 4,
    FB_F8_E4M3FN = 5,   /* no infinities; 0x7f and 0xff are the only NaNs (OCP 8-bit Floating Point Specification) */
    FB_F8_E5M2 = 6,     /* IEEE-like: infinities 0x7c, 0xfc; NaN 0x7d-0x7f, 0xfd-0xff */
    FB_F8_E4M3FNUZ = 7, /* one NaN: 0x80; no infinities, no negative zero */
    FB_F8_E5M2FNUZ = 8, /* one NaN: 0x80; no infinities, no negative zero */
    FB_F8_E8M0 = 9,     /* unsigned power of two, block scale of the OCP MX formats; one NaN: 0xff; no zero */
    FB_C64 = 10,        /* two F32: real, imaginary; an element is bad when either part is */
    FB_C128 = 11,       /* two F64 */
    FB_I8 = 16,         /* integers, bool, F4 and F6 have no non-finite code: nothing to find, and said so */
    FB_U8 = 17,
    FB_I16 = 18,
    FB_U16 = 19,
    FB_I32 = 20,
    FB_U32 = 21,
    FB_I64 = 22,
    FB_U64 = 23,
    FB_BOOL = 24,
    FB_F4_E2M1 = 25, /* two codes a byte, low nibble first; count is in codes */
    FB_F6_E2M3 = 26, /* one code in the low six bits of a byte */
    FB_F6_E3M2 = 27
};

/* Name as the field writes it ("f32", "bf16", "f8_e4m3fn", ...), or NULL for an unknown format. */
FB_API const char *fb_dtype_name(int32_t dtype);
/* Bytes that `count` elements take, contiguous; 0 for an unknown format or when the product does not fit in 64 bits. */
FB_API uint64_t fb_dtype_bytes(int32_t dtype, uint64_t count);

/* ---- a view of a tensor ----------------------------------------------------------------------------------------------------- */

enum { FB_DIMS_MAX = 8 };

/* Shape and strides of a view that is not contiguous. Strides are in elements, may be 0 (expanded) or negative. */
typedef struct fb_layout {
    int32_t ndim;     /* 1 .. FB_DIMS_MAX */
    int32_t reserved; /* 0 */
    int64_t shape[FB_DIMS_MAX];
    int64_t strides[FB_DIMS_MAX];
} fb_layout;

/* Fixed at 64 bytes on every 64-bit platform; an array of them is what a step hands over. Zero the unused rest. */
typedef struct fb_view {
    void *data;              /* first element; any alignment; written only by unscale and by injection. NULL only if count is 0 */
    uint64_t count;          /* elements, not bytes */
    int32_t dtype;           /* FB_F32, ... */
    uint32_t site;           /* id from fb_run_add_site; ignored by the functions that take no run */
    const fb_layout *layout; /* NULL: contiguous. Otherwise the product of shape must equal count */
    int32_t device;          /* -1: host memory. Others are refused by the C library: report what you found with fb_step_report */
    uint32_t flags;          /* 0 */
    void *stream;            /* reserved for device memory: NULL */
    uint64_t reserved[2];    /* 0 */
} fb_view;
/* A contiguous view of host memory, as an initialiser; in C also (fb_view)FB_VIEW_INIT(...). site may stay 0 until it is known. */
#define FB_VIEW_INIT(data, count, dtype, site)               \
    {                                                        \
        (data), (count), (dtype), (site), NULL, -1, 0, NULL, \
        {                                                    \
            0, 0                                             \
        }                                                    \
    }

/* ---- scanning --------------------------------------------------------------------------------------------------------------- */

#define FB_NO_INDEX UINT64_MAX

/* What kind of bad a finding is. Values are written to files and never renumbered. */
enum {
    FB_KIND_NONE = 0,
    FB_KIND_NAN = 1,
    FB_KIND_POS_INF = 2,
    FB_KIND_NEG_INF = 3,
    FB_KIND_OUT_OF_RANGE = 4, /* an integer outside its range: token, position, mask, label, length */
    FB_KIND_ALL_IGNORED = 5,  /* no valid target in the batch: the mean loss is 0/0 */
    FB_KIND_DOMAIN = 6        /* finite, and outside the domain declared for the site: a zero denominator, a log of 0, ... */
};

/* One pass over a tensor. Sums and extremes take in finite elements only; non-finite ones are counted apart. */
typedef struct fb_scan_result {
    uint32_t size;
    int32_t dtype;
    uint64_t elements;
    uint64_t nan, pos_inf, neg_inf; /* for complex: elements with a NaN part; else with a +Inf part; else with a -Inf part */
    uint64_t zero;                  /* both signs */
    uint64_t subnormal;             /* of the element's own format */
    uint64_t at_max;                /* finite, magnitude equal to the largest of the format: saturation of FP8 shows here only */
    uint64_t first_index;           /* flat index in the view's own order of the first non-finite element; FB_NO_INDEX if none */
    uint64_t first_bits;            /* its bits, payload kept, in the low end (complex: of the bad part) */
    int32_t first_kind;             /* FB_KIND_NAN, ... or FB_KIND_NONE */
    int32_t checked;                /* 1: the format has non-finite codes and all elements were looked at; 0: nothing to find */
    double abs_min;                 /* smallest finite magnitude that is not zero; 0 if there is none */
    double abs_max;                 /* largest finite magnitude; 0 if there is none */
    double sum_sq;                  /* sum of squares of the finite elements divided by 4^sum_sq_exponent, in FP64 */
    int32_t sum_sq_exponent;        /* 0 unless F64 elements are so large or small that their squares leave FP64 */
    int32_t reserved;
} fb_scan_result;
#define FB_SCAN_RESULT_INIT                                                             \
    {                                                                                   \
        sizeof(fb_scan_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, 0 \
    }

/**
 * Look at every element of a view and count.
 * view  borrowed; contiguous or strided; never written.
 * out   `size` set by the caller; the rest is filled on FB_OK and untouched otherwise.
 * Errors: FB_E_DTYPE (unknown format), FB_E_USAGE (NULL, shape that does not multiply to count, device memory).
 * Cost: one pass over memory; no allocation; safe from any thread. Large arrays use several threads (see firstbad/scan.h).
 * Source of the format limits: IEEE 754-2019; OCP 8-bit Floating Point Specification; OCP Microscaling Formats specification.
 */
FB_API fb_status fb_scan(const fb_view *view, fb_scan_result *out, fb_error *err);

/* Square root of sum_sq with its exponent put back; +Inf only when the norm itself exceeds FP64 (not a bad element). */
FB_API double fb_scan_norm(const fb_scan_result *result);

/* ---- run -------------------------------------------------------------------------------------------------------------------- */

typedef struct fb_run fb_run;

/* Where in an update a check is made, in causal order. Values are written to files and never renumbered. */
enum {
    FB_ENTRY = 1, /* state on entry: parameters, moments, EMA, buffers */
    FB_INPUT = 2,
    FB_FORWARD = 3,
    FB_LOSS = 4, /* before it is multiplied with the loss scale: after it, an overflow would be the scale's and is not told apart */
    FB_LOCAL_GRAD = 5,   /* before the collective: only the origin is bad */
    FB_REDUCED_GRAD = 6, /* after the collective, unscaled */
    FB_UPDATE = 7,       /* parameters, moments, EMA, buffers as the optimizer made them: in place, or proposed beside the state */
    FB_CHECKPOINT = 8
};

/* What happens to the update, by gravity. Values are written to files and voted on, never renumbered. */
enum {
    FB_PROCEED = 0,
    FB_SKIP = 1,
    FB_SKIP_FREEZE = 2, /* skip, and leave the loss scale as it is */
    FB_REPLAY = 3,      /* skip, and replay the batch before going on */
    FB_DEGRADE = 4,     /* skip, and ask the trainer to lower its scale, drop the sample or run a module in FP32 */
    FB_HALT = 5
};

/* How the ranks came to the decision. */
enum {
    FB_AGREE_NONE = 0, /* every rank for itself: a fault halts the rank that sees it */
    /* The program's own reduction is the vote, as in plain data parallelism: a rank decides by what is equal on all ranks, which is
       what it finds at FB_REDUCED_GRAD, and in parameters and moments at FB_ENTRY and FB_UPDATE. What it finds elsewhere is
       recorded and decides nothing, for no other rank would know of it. No message; fb_step_vote_alone. */
    FB_AGREE_NORM = 1,
    FB_AGREE_VOTE = 2 /* four words under MIN, on every rank */
};

/* What a run does on a fault. */
enum {
    FB_ON_BAD_SKIP = 0,   /* skip the update; halt after max_skips in a row */
    FB_ON_BAD_HALT = 1,   /* halt at the first fault */
    FB_ON_BAD_OBSERVE = 2 /* record and change nothing */
};

/* Dynamic loss scaling: constants and fields of torch.amp.GradScaler; hysteresis and floor as
 * DeepSpeed and Megatron-LM have them. */
typedef struct fb_scaler_config {
    uint32_t size;
    int32_t enabled;         /* 0: no scaling, the scale is 1 and never moves */
    double init_scale;       /* 65536 */
    double growth_factor;    /* 2 */
    double backoff_factor;   /* 0.5 */
    int32_t growth_interval; /* 2000 clean updates in a row */
    int32_t hysteresis;      /* overflows since the last growth interval before the scale backs off; 1 is torch */
    double scale_min;        /* floor; 0: none, as torch */
} fb_scaler_config;
#define FB_SCALER_CONFIG_INIT                                        \
    {                                                                \
        sizeof(fb_scaler_config), 0, 65536.0, 2.0, 0.5, 2000, 1, 0.0 \
    }

typedef struct fb_pair {
    const char *key, *value;
} fb_pair;

/*
 * How a run is opened. Everything may stay at FB_RUN_CONFIG_INIT except rank, world, run_id and attempt, which must be right and
 * equal on all ranks (rank apart); firstbad/mpi.h fills them from a communicator.
 * The variables that `firstbad run` sets win over the fields: FIRSTBAD_DIR, FIRSTBAD_RUN_ID, FIRSTBAD_ATTEMPT, FIRSTBAD_ON_BAD,
 * FIRSTBAD_MAX_SKIPS, FIRSTBAD_INJECT, FIRSTBAD_LEAVE_OUT (see fb_run_left_out), FIRSTBAD_SET (key=value, one a line). The
 * environment is read once, in fb_run_open.
 */
typedef struct fb_run_config {
    uint32_t size;
    int32_t rank, world;               /* 0 <= rank < world <= 2^20 */
    int32_t dp_rank, tp_rank, pp_rank; /* -1: unknown */
    int32_t device;                    /* -1: host */
    int32_t attempt;                   /* 1, 2, ...: one launch of the run */
    const char *dir;                   /* folder that holds runs; NULL: "firstbad-runs" */
    const char *run_id;                /* equal on all ranks; letters, digits, '.', '_', '-'; at most 63 bytes */
    const char *host;                  /* NULL: asked from the system */
    const char *precision;             /* "fp32", "bf16", "fp16", ... */
    int32_t on_bad;                    /* FB_ON_BAD_SKIP, ... */
    int32_t max_skips;                 /* faults in a row that are skipped before the run halts; 3 */
    int32_t agreement;                 /* FB_AGREE_VOTE; FB_AGREE_NORM and FB_AGREE_NONE where ranks cannot vote */
    int32_t threads;                   /* for scans of large arrays; 0: as many as the process may run on */
    fb_scaler_config scaler;
    const fb_pair *meta; /* dataset_version, model_commit, tokenizer_hash, config_hash, ...: written once */
    uint64_t meta_count;
    const char *inject;    /* faults to inject, NULL: none. Grammar in docs/injection.md */
    uint64_t sites_max;    /* 0: 65,536. Memory for sites and findings is taken at open */
    uint64_t findings_max; /* findings kept a step; 0: 256. Further ones are counted */
    /* 1: the parameters named with fb_run_own are replicas, equal to the last bit on every rank of the run, as in plain data
       parallelism. Then their digests are compared with the first vote of the first step, of every replica_period-th and of the
       step after a skip, at no message more; ranks that differ halt. 0: they are not, or nobody knows (sharded, or split over
       ranks). */
    int32_t replicated;
    int32_t replica_period; /* 100; 0: never. Cost: one read of the parameters in those steps */
} fb_run_config;
#define FB_RUN_CONFIG_INIT                                                                                           \
    {                                                                                                                \
        sizeof(fb_run_config), 0, 1, -1, -1, -1, -1, 1, NULL, NULL, NULL, NULL, FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, 1, \
            FB_SCALER_CONFIG_INIT, NULL, 0, NULL, 0, 0, 0, 100                                                       \
    }

/**
 * Open one rank's view of a run: make the folders, create this rank's ledger exclusively and set the space of the first-bad
 * record aside, run the self-test of the checks, take all memory that later steps need.
 * out     on FB_OK an open run, released with fb_run_close; NULL otherwise.
 * Errors: FB_E_USAGE; FB_E_EXISTS when this (run, attempt, rank) has a writer already; FB_E_SELFTEST; FB_E_NOMEM.
 * A folder that cannot be written is not an error: the run is opened, guarded in memory only, and fb_run_evidence_lost() says so.
 */
FB_API fb_status fb_run_open(fb_run **out, const fb_run_config *config, fb_error *err);

/**
 * fb_run_open for a training job of one process: rank 0 of 1. config NULL: FB_RUN_CONFIG_INIT; its rank, world and attempt are not
 * read. Run id: FIRSTBAD_RUN_ID, else config->run_id, else a fresh one. Attempt: FIRSTBAD_ATTEMPT, else the one after those in the
 * run folder, so that a second launch under the same id needs no care; INT32_MAX where the folder cannot be written. Errors: as
 * fb_run_open.
 */
FB_API fb_status fb_run_open_alone(fb_run **out, const fb_run_config *config, fb_error *err);

/**
 * The number of the next launch of a run: one more than the largest attempt in its folder, 1 where there is none. One rank asks,
 * and tells the others; firstbad/mpi.h does both. dir  NULL: "firstbad-runs". Errors: FB_E_USAGE, FB_E_IO.
 */
FB_API fb_status fb_run_next_attempt(const char *dir, const char *run_id, int32_t *attempt, fb_error *err);

/* A fresh run id, for a run that no scheduler named: time and process, not random. One rank asks, and tells the others. */
FB_API fb_status fb_run_new_id(char id[64]);

/* Close the run and its files. Accepts NULL. In a child made by fork it frees memory and touches no file. */
FB_API void fb_run_close(fb_run *run);

/* Records that could not be written so far. 0 on a healthy disk. The first failure's sentence goes to `why` (may be NULL). */
FB_API uint64_t fb_run_evidence_lost(const fb_run *run, fb_error *why);

/* Folder of this run, for messages; lives as long as the run. */
FB_API const char *fb_run_folder(const fb_run *run);

/**
 * 1: this sample is to be left out of training: FIRSTBAD_LEAVE_OUT has its id. `firstbad run --leave-out CASE` sets it. The trainer
 * decides what takes its place, the same on all ranks. FIRSTBAD_LEAVE_OUT holds decimal ids with commas or line ends between them,
 * or an at sign and the path of a file of such ids; at most 1,000,000. It is read once, in fb_run_open, which returns FB_E_USAGE
 * for anything else in it, and FB_E_IO or FB_E_NOTFOUND for a file that cannot be read; the ledger has the ids. Ranks whose lists
 * differ do not agree.
 * Any thread. Cost: a binary search; nothing when none are left out.
 */
FB_API int fb_run_left_out(const fb_run *run, int64_t sample_id);

/**
 * The last anomaly was replayed in a wider format, and did (1) or did not (0) come back; -1, not tried, is noted nowhere. An
 * overflow that comes back there is a fault and no probing of the loss scale. It must be called alike on all ranks: the next vote
 * compares. Inside the step of the anomaly, after the vote that found it and before another vote of the same step, which then
 * judges the step itself; or between steps, for the anomaly that comes next. Errors: FB_E_ORDER (a step is open that has no bad
 * vote), FB_E_USAGE.
 */
FB_API fb_status fb_run_note_replay(fb_run *run, int32_t persists, fb_error *err);

/**
 * Keep in the ledger what was found out about a case ("a1-000412"), so that it is known where the files of the case are lost: one
 * sentence, of which the first 512 bytes are kept. Synced. Inside a step or between steps. Errors: FB_E_USAGE.
 */
FB_API fb_status fb_run_note_located(fb_run *run, const char *case_id, const char *text, fb_error *err);

enum { FB_NOT_COVERED_MAX = 64 }; /* different lines of fb_run_not_covered a run */
/**
 * Say what this run does not look at, or cannot do, so that nobody takes silence for health: one line, "gradients of 12 parameters
 * that no optimizer owns", of which the first 512 bytes are kept. `why` shows it with what was not covered. A line that was said
 * already is not said again. Any thread, inside a step or between steps.
 * Errors: FB_E_USAGE (no text), FB_E_LIMIT (FB_NOT_COVERED_MAX lines were said; the ledger has that there are more).
 */
FB_API fb_status fb_run_not_covered(fb_run *run, const char *what, fb_error *err);

/* Loss scale to multiply the loss with in the step that is running or comes next; 1 without a scaler. */
FB_API double fb_run_loss_scale(const fb_run *run);

/* State of the loss scaler, with the field names of torch's state_dict. */
typedef struct fb_scaler_state {
    double scale;
    int32_t growth_tracker;
    int32_t hysteresis_left;
} fb_scaler_state;
FB_API fb_status fb_run_scaler_get(const fb_run *run, fb_scaler_state *out, fb_error *err);
/* Between steps only, for example on resume. */
FB_API fb_status fb_run_scaler_set(fb_run *run, const fb_scaler_state *state, fb_error *err);

/* What a tensor is. */
enum {
    FB_ROLE_ACTIVATION = 1,
    FB_ROLE_INPUT = 2,
    FB_ROLE_LOSS = 3,
    FB_ROLE_GRADIENT = 4,
    FB_ROLE_PARAMETER = 5,
    FB_ROLE_MOMENT = 6,
    FB_ROLE_EMA = 7,
    FB_ROLE_BUFFER = 8,
    FB_ROLE_COUNTER = 9 /* step counters, RNG state, scaler: owned state that is digested and has nothing to find */
};

/* What is legal at a site; each exemption shows in coverage. */
enum {
    FB_LEGAL_NEG_INF = 1u, /* an additive mask may hold -inf */
    FB_LEGAL_PADDING = 2u, /* receive buffers, bubbles, padding: may hold garbage, is not checked */
    FB_LEGAL_EXEMPT = 4u   /* not checked, by the owner's wish */
};

/* Domain that finite elements must lie in. */
enum {
    FB_DOMAIN_ANY = 0,
    FB_DOMAIN_NONZERO = 1,     /* denominators */
    FB_DOMAIN_POSITIVE = 2,    /* arguments of a logarithm */
    FB_DOMAIN_NONNEGATIVE = 3, /* arguments of a root */
    FB_DOMAIN_PROBABILITY = 4  /* 0 <= x <= 1 */
};

/* A named tensor place. The same tensor checked at two boundaries is one site. Strings are copied. */
typedef struct fb_site {
    uint32_t size;
    int32_t role;       /* FB_ROLE_* */
    const char *module; /* dotted path, "h.3.mlp"; "" for the root */
    const char *tensor; /* "fc.weight", "tokens", "loss.cross_entropy" */
    const char *group;  /* parameter group, NULL: none */
    int32_t bucket;     /* communication bucket, -1: none. Evidence only: a bucket is never reported as a layer */
    int32_t domain;     /* FB_DOMAIN_* */
    int64_t position;   /* place along the dataflow, 0 at the input, growing towards the loss; pipeline stages share one numbering;
                             -1: the order in which sites are added. At most 2^24 - 2 */
    uint32_t legal;     /* FB_LEGAL_* */
    int32_t ndim;       /* 0: unknown; else indices are printed in this shape */
    int64_t shape[FB_DIMS_MAX];
} fb_site;
#define FB_SITE_INIT                                           \
    {                                                          \
        sizeof(fb_site), 0, NULL, NULL, NULL, -1, 0, -1, 0, 0, \
        {                                                      \
            0, 0, 0, 0, 0, 0, 0, 0                             \
        }                                                      \
    }

/**
 * Name a tensor place. Between steps only. id  on FB_OK the id to put into views; ids count up from 0 in the order of the calls.
 * Errors: FB_E_USAGE, FB_E_LIMIT (sites_max), FB_E_ORDER (inside a step).
 */
FB_API fb_status fb_run_add_site(fb_run *run, const fb_site *site, uint32_t *id, fb_error *err);

/**
 * fb_run_add_site with everything but role and names left at FB_SITE_INIT; the id goes into view->site. The view's data may still
 * be NULL: a name can be given before the memory exists. Call it in the order of the dataflow, for this order becomes the
 * position.
 * Errors: as fb_run_add_site; the view is then unchanged.
 */
FB_API fb_status fb_run_name_view(fb_run *run, int32_t role, const char *module, const char *tensor, fb_view *view, fb_error *err);

/**
 * Say which memory is the state that updates change: parameters, moments, EMA, buffers, counters. The views are copied and the
 * memory they name must stay valid until fb_run_close or the next fb_run_own. With it the library proves a skip (digest at the
 * decision and at the next begin), and looks for a state that was bad before the step when something is found.
 * views NULL and n 0: "I own nothing any more", for a trainer whose memory goes away before fb_run_close does. Nothing is read; a
 *       skip that was not proven by then never is. A run that halts is compared in the fb_step_end of that step, so that it may own
 *       nothing from there on without losing that proof.
 * Between steps; with n 0 also inside a step that was withheld. Errors: FB_E_ORDER, FB_E_SITE, FB_E_DTYPE, FB_E_USAGE,
 * FB_E_UNSUPPORTED (strided), FB_E_NOMEM: what was owned before is owned still.
 * Cost: nothing on a healthy step; one read of all of it on a bad one.
 */
FB_API fb_status fb_run_own(fb_run *run, const fb_view *views, size_t n, fb_error *err);

/* ---- one step --------------------------------------------------------------------------------------------------------------- */

/* Which optional numbers a caller knows. What is not known is recorded as null with a reason, never as 0. */
enum {
    FB_KNOWN_BATCH_ID = 1u,
    FB_KNOWN_LEARNING_RATE = 2u,
    FB_KNOWN_LOSS_SCALE = 4u,
    FB_KNOWN_BATCH_FINGERPRINT = 8u,
    FB_KNOWN_RNG_HASH = 16u,
    FB_KNOWN_CHECKPOINT_PARENT = 32u,
    FB_KNOWN_LOSS = 64u,
    FB_KNOWN_GRAD_NORM = 128u
};

typedef struct fb_step {
    uint32_t size;
    uint32_t known;      /* FB_KNOWN_* of the fields below */
    int64_t step;        /* the number that the run's own log prints; >= 0 */
    int32_t micro_steps; /* accumulation window; 1 .. 16,382. 0: not known beforehand, and counted by fb_step_micro */
    int32_t reserved;
    int64_t global_batch_id;
    const int64_t *sample_ids; /* this rank's; the first 64 are recorded, all are counted; NULL: unknown */
    uint64_t sample_count;
    double learning_rate; /* not finite: the vote of this step halts the run */
    double loss_scale;    /* only where the trainer owns the scale; with a scaler of the run leave it unknown */
    uint64_t batch_fingerprint;
    uint64_t rng_state_hash;
    int64_t checkpoint_parent; /* step of the checkpoint this run was resumed from; what the first step says counts. After one
                                  that is registered and not committed, what this run saves is suspect. Unknown: its history
                                  begins here */
} fb_step;
#define FB_STEP_INIT                                               \
    {                                                              \
        sizeof(fb_step), 0, 0, 1, 0, 0, NULL, 0, 0.0, 0.0, 0, 0, 0 \
    }

/* Begin an update. Errors: FB_E_ORDER (the last step has no end), FB_E_HALTED, FB_E_FORKED, FB_E_USAGE. */
FB_API fb_status fb_step_begin(fb_run *run, const fb_step *step, fb_error *err);

/* Begin micro-step `index` (0-based) of an accumulated update; fb_step_begin has begun number 0. They count up by one. */
FB_API fb_status fb_step_micro(fb_run *run, int32_t index, fb_error *err);

/**
 * Check tensors at a boundary. Findings are kept for the ballot; the return value speaks of the call, not of the tensors.
 * boundary  FB_REDUCED_GRAD: where nothing is to be unscaled by the run; before the first vote of the step, so that one vote covers
 *           local and reduced gradients, or after it, as often as they change. FB_UPDATE after fb_step_apply: the
 *           views hold the state, and a finding reaches the next step's vote. FB_UPDATE before it, where fb_step_apply would say
 *           FB_OK: the views hold an update that is proposed, in memory beside the state, under the sites of the state. The step
 *           then needs one more ballot and settle; a finding withholds the update on all ranks, at this step, and the state is
 *           not held to be bad. All ranks must propose alike, since the number of votes is compared.
 * views     n views with the site set; NULL data with count 0 is a tensor that does not exist (gradient None) and is noted.
 * Errors: FB_E_SITE, FB_E_DTYPE, FB_E_USAGE, FB_E_ORDER; FB_E_WITHHELD (FB_UPDATE of a step that was withheld). All views are
 * looked at before anything is recorded: on error nothing is.
 * Cost: one read (early exit at the first bad element, then one more pass over that tensor for its statistics).
 */
FB_API fb_status fb_step_check(fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err);

/* As fb_step_check, for a part of the state chosen so that every tensor is visited once in `period` steps that call it for this
   boundary with the same views; coverage says "sampled". */
FB_API fb_status fb_step_check_sampled(fb_run *run, int32_t boundary, const fb_view *views, size_t n, int32_t period,
                                       fb_error *err);

/**
 * What fb_step_check does but for the looking: these tensors were looked at elsewhere, on a GPU for example, and count for coverage
 * and order. What was found there goes to fb_step_report, before or after.
 * views  with site, dtype and count set; data, layout and device are not read. count 0: a tensor that does not exist.
 * FB_ENTRY and FB_UPDATE are covered in full once every parameter, moment, EMA and buffer that the run has sites for was handed
 * over in this step. Errors: as fb_step_check. Cost: a few instructions a view, no read.
 */
FB_API fb_status fb_step_looked(fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err);

/* A batch, for the input gate. Arrays are (rows, cols), row-major; NULL: not there. Integer formats: FB_I8 .. FB_U64, FB_BOOL. */
typedef struct fb_tokens {
    uint32_t size;
    uint32_t site; /* site of the tokens, role FB_ROLE_INPUT */
    uint64_t rows, cols;
    void *tokens; /* written by injection only */
    void *labels;
    void *positions;
    void *mask;             /* 0 or 1 an element */
    void *weights;          /* loss weights: a float format; finite and >= 0 */
    const int64_t *lengths; /* rows entries: real tokens of each sample */
    int32_t token_dtype, label_dtype, position_dtype, mask_dtype, weight_dtype;
    uint32_t weight_site;  /* site of the weights; UINT32_MAX: the tokens' own */
    int64_t vocab;         /* ids lie in [0, vocab) */
    int64_t classes;       /* labels lie in [0, classes) or equal ignore_index */
    int64_t ignore_index;  /* -100 in PyTorch */
    int64_t positions_max; /* positions lie in [0, positions_max) */
    int64_t length_min, length_max;
    int64_t valid_tokens; /* out: labels that are not ignored and have a weight above 0; -1: no labels given */
} fb_tokens;
#define FB_TOKENS_INIT                                                                                                             \
    {                                                                                                                              \
        sizeof(fb_tokens), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, FB_I32, FB_I32, FB_I32, FB_BOOL, FB_F32, UINT32_MAX, 0, 0, \
            -100, 0, 1, INT64_MAX, -1                                                                                              \
    }

/**
 * Check a batch: token, position and mask ranges, allowed labels, a batch whose labels are all ignored, lengths, loss weights.
 * Every step reads tokens, labels, lengths and loss weights, one pass over each. Positions, and masks row by row (a row without a
 * single 1 is a fault: its softmax is 0/0), are read in a run's first 16 steps and while the run is at risk; coverage says
 * "summary" otherwise. Findings are kept for the ballot. Errors: FB_E_USAGE, FB_E_DTYPE, FB_E_SITE, FB_E_ORDER; nothing was
 * recorded.
 */
FB_API fb_status fb_step_check_tokens(fb_run *run, fb_tokens *tokens, fb_error *err);

/* One site with something bad, found here or elsewhere. */
typedef struct fb_finding {
    uint32_t size;
    uint32_t site;
    int32_t boundary;
    int32_t micro_step;   /* below fb_step.micro_steps */
    int32_t kind;         /* FB_KIND_* of the first bad element */
    int32_t field;        /* FB_FIELD_*: which field of a batch; 0 for a tensor */
    uint64_t count;       /* bad elements */
    uint64_t first_index; /* flat; FB_NO_INDEX when not known */
    int64_t value;        /* FB_KIND_OUT_OF_RANGE: the integer found; it had to lie in [low, high] */
    int64_t low, high;
    fb_scan_result stats; /* zeroed except size when not known */
} fb_finding;

enum {
    FB_FIELD_TENSOR = 0,
    FB_FIELD_TOKENS = 1,
    FB_FIELD_LABELS = 2,
    FB_FIELD_POSITIONS = 3,
    FB_FIELD_MASK = 4,
    FB_FIELD_WEIGHTS = 5,
    FB_FIELD_LENGTHS = 6
};

/* Add findings made elsewhere, for example on a GPU. They weigh as our own. */
FB_API fb_status fb_step_report(fb_run *run, const fb_finding *findings, size_t n, fb_error *err);

/**
 * How many findings this rank has in the step that is open, 0 outside a step. It decides nothing, and other ranks do not know of
 * it: the verdict is the vote's. It is for what a trainer must not do with a bad batch before the vote, such as an embedding lookup
 * that reads out of bounds: leave out forward and backward, and vote.
 */
FB_API uint64_t fb_step_findings(const fb_run *run);

/**
 * Give out this rank's four words. Local evidence is durable on return, or its loss is recorded and reported. Reduce the words over
 * all ranks with MIN (signed 64-bit) and hand the result to fb_step_settle. Layout: docs/format/vote.md.
 */
FB_API fb_status fb_step_ballot(fb_run *run, int64_t words[4], fb_error *err);

typedef struct fb_verdict {
    uint32_t size;
    int32_t action;     /* FB_PROCEED, ... the same on every rank where agreement is FB_AGREE_VOTE */
    int32_t agreement;  /* FB_AGREE_* */
    int32_t unanimous;  /* 1: all ranks voted in the same run, attempt, step, vote number, scale and policy; 0: they did not; -1: no
                      quorum */
    int32_t clean;      /* 1: no rank holds a finding */
    int32_t fault;      /* 1: judged a fault; 0: clean, or probing of a loss scale */
    int32_t first_rank; /* spokesman: the rank with the smallest key; -1 when clean */
    int32_t first_boundary;
    int32_t first_micro_step;
    int32_t consecutive_skips; /* this one included */
    int64_t first_position;
    uint64_t local_findings; /* on this rank */
    int64_t step;
    char case_id[32]; /* "a1-000412" when this verdict opened or belongs to a case, else "" */
} fb_verdict;
#define FB_VERDICT_INIT                                         \
    {                                                           \
        sizeof(fb_verdict), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        {                                                       \
            0                                                   \
        }                                                       \
    }

/**
 * Read the reduced words and decide. words NULL: the vote failed, which is "no quorum" and never an update (FB_ON_BAD_OBSERVE lets
 * this pass as it lets everything pass, and the record then says that the update was not gated).
 * Returns FB_OK also when the action is not FB_PROCEED: the answer is in verdict->action.
 */
FB_API fb_status fb_step_settle(fb_run *run, const int64_t words[4], fb_verdict *verdict, fb_error *err);

/**
 * Ballot and settle in one call, where nobody is asked: a run of one rank, or one opened with FB_AGREE_NONE or FB_AGREE_NORM.
 * verdict as for fb_step_settle; on failure its action is FB_HALT. Errors: FB_E_USAGE when other ranks vote; as fb_step_ballot and
 * fb_step_settle.
 */
FB_API fb_status fb_step_vote_alone(fb_run *run, fb_verdict *verdict, fb_error *err);

/**
 * Multiply reduced gradients by inv_scale in place, check them and sum their squares in FP64, in one pass.
 * views     F64, F32 or BF16 in place. F16 is refused: unscale F16 into F32 with fb_unscale of firstbad/scan.h, then pass F32 here.
 * sum_sq    out: sum of squares of the finite unscaled elements. It cannot overflow while elements are finite F32 or BF16.
 * Errors: FB_E_ORDER (twice, or before a settled ballot), FB_E_DTYPE, FB_E_SITE, FB_E_USAGE (inv_scale not finite or not above 0).
 */
FB_API fb_status fb_step_unscale(fb_run *run, const fb_view *views, size_t n, double inv_scale, double *sum_sq, fb_error *err);

/**
 * The last gate: call it right before the optimizer. FB_OK: change the state now. FB_E_WITHHELD: the verdict was not to proceed.
 * FB_E_ORDER: no settled ballot covers what was checked since. An update that was proposed is put in place now, and not computed
 * again: it is what was voted on.
 */
FB_API fb_status fb_step_apply(fb_run *run, fb_error *err);

typedef struct fb_step_result {
    uint32_t size;
    uint32_t known;   /* FB_KNOWN_LOSS, FB_KNOWN_GRAD_NORM */
    double loss;      /* any value, non-finite included; kept as bits */
    double grad_norm; /* total, unscaled, before clipping */
} fb_step_result;
#define FB_STEP_RESULT_INIT                 \
    {                                       \
        sizeof(fb_step_result), 0, 0.0, 0.0 \
    }

/* End the update: record it, move the loss scale, remember the skip. After a settled ballot; and where it let the update through,
   after fb_step_apply: a scale that moves without a step is a fault (FB_E_ORDER). */
FB_API fb_status fb_step_end(fb_run *run, const fb_step_result *result, fb_error *err);

/**
 * Give up the update that is running, for a reason of the trainer's own: an exception in forward, a batch it will not train on.
 * What was found so far is recorded; the loss scale stays; the state is held to be untouched, and that is proven as a skip is.
 * Allowed at any time before fb_step_apply let the update through. All ranks must give up the same step, or the next vote exposes
 * those that did not: a rank that cannot go on while the others may be waiting for its ballot should rather vote, and end.
 * Errors: FB_E_ORDER (no step is open, or the update was applied already).
 */
FB_API fb_status fb_step_abandon(fb_run *run, fb_error *err);

/**
 * Take the begin of a step back: no update came of it, as when one rank alone ran a backward to draw a map of its gradients, and
 * cleared them. No record is written, what was found in it counts for nothing, and no vote hears of it, so unlike fb_step_abandon a
 * rank may call it alone; it begins the same number again. Not for an update that was tried and failed: that is to be recorded.
 * Errors: FB_E_ORDER (no step is open, or a ballot of it was given out).
 */
FB_API fb_status fb_step_forget(fb_run *run, fb_error *err);

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------ */

/*
 * A checkpoint is suspect until its bytes were read back and found finite and every update before it was gated; then it is
 * committed, and only committed ones are given to who resumes (firstbad/ckpt.h, `firstbad ckpt latest`). The rank that writes
 * calls, all of it between steps:
 *
 *   fb_run_checkpoint_begin      the older file of this name is put where the save cannot harm it
 *   fb_run_save_gate             what is about to be written is looked at in memory, whole
 *   ... the trainer writes and closes its files ...
 *   fb_run_checkpoint_verify     they are read back and judged while training goes on
 *   [fb_run_checkpoint_poll]     what came of it
 *
 * or fb_run_checkpoint alone, which is the same as verify and waits for the answer. None of them is a reason to stop training: a
 * registry that cannot be written leaves a checkpoint that nobody vouches for, and that is told.
 *
 * `step` is the number of the last update that is in the checkpoint, counted as fb_step.step is (one more does no harm): by it is
 * told what a fault that is found later has spoilt. A number of epochs or tokens would tell nothing.
 */
enum { FB_CKPT_SUSPECT = 1, FB_CKPT_COMMITTED = 2, FB_CKPT_QUARANTINED = 3 };

/**
 * Tell the run that a checkpoint was written, by one rank. The file is read back and scanned: committed if finite and the run has
 * been gated without a hole, quarantined if not finite, suspect otherwise.
 * path  file or folder, as the trainer will resume from it. Between steps. Cost: one read of the file.
 */
FB_API fb_status fb_run_checkpoint(fb_run *run, const char *path, int64_t step, int32_t *state, fb_error *err);

/**
 * The trainer is about to write to `path`. A committed checkpoint that lies there is moved to a pin beside it (a folder .firstbad),
 * so that neither truncation nor a crash in the middle of the save can harm it, and stays the one to resume from until the new one
 * is committed. `path` is suspect from here on.
 * path  file or folder; it need not exist. Between steps, on the rank that writes. Cost: a rename, and a record that is synced.
 * Errors: FB_E_ORDER (a step is open), FB_E_USAGE, FB_E_LIMIT, FB_E_IO, FB_E_CORRUPT, FB_E_NOMEM: the older checkpoint may still
 * lie at `path`, and is then as safe as the trainer's own way of saving.
 */
FB_API fb_status fb_run_checkpoint_begin(fb_run *run, const char *path, int64_t step, fb_error *err);

enum { FB_CHECKPOINTS_QUEUED_MAX = 8 }; /* that wait to be read back, the one that is being read not counted */

/**
 * The files are written: have them read back, judged and recorded by one thread of the run, of low priority, while training goes
 * on.
 * What counts is how the run was gated until now, not until the thread comes to it. The thread starts with the first call; signals
 * of the program never reach it. fb_run_close waits for what is queued; a run that is killed leaves suspects.
 * path  as for fb_run_checkpoint; it may be relative. Until the answer is there nobody may write to it: what changes while it is
 *       read is never committed.
 * Errors: FB_E_LIMIT when FB_CHECKPOINTS_QUEUED_MAX wait already, or there is no thread to be had: the checkpoint stays suspect,
 * the ledger has it as an event, and `firstbad ckpt verify` can read it later. FB_E_NOTFOUND, FB_E_ORDER, FB_E_USAGE, FB_E_IO,
 * FB_E_NOMEM.
 * Cost: one record that is synced; no read.
 */
FB_API fb_status fb_run_checkpoint_verify(fb_run *run, const char *path, int64_t step, fb_error *err);

/* What became of one checkpoint. */
typedef struct fb_checkpoint_result {
    uint32_t size;
    int32_t state;      /* FB_CKPT_SUSPECT, ... */
    fb_status status;   /* FB_OK: it was judged. Otherwise what kept it from being judged or recorded; it is suspect then */
    int32_t again;      /* 1: read again because a case opened after it was saved; 0: the first time */
    int32_t first_kind; /* FB_KIND_* of the first bad element; FB_KIND_NONE when there is none */
    int32_t reserved;
    int64_t step;
    uint64_t bytes, elements, bad; /* bad: elements that are not finite */
    uint64_t digest;
    uint64_t first_index, first_bits;
    char tensor[256]; /* that of the first bad element, as the file names it, cut there; "" when there is none */
    char reason[512]; /* one sentence when it is not committed; else "" */
    char path[4096];  /* absolute */
} fb_checkpoint_result;
#define FB_CHECKPOINT_RESULT_INIT                                                   \
    {                                                                               \
        sizeof(fb_checkpoint_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, \
        {                                                                           \
            0                                                                       \
        }                                                                           \
    }

/**
 * The next verdict of the thread, in the order in which they were reached. Never waits. At most 32 verdicts that nobody asked for
 * are kept, the newest; the ledger has all of them. On the thread that owns the run, inside a step or between steps.
 * out  `size` set by the caller; filled on FB_OK, untouched otherwise.
 * Errors: FB_E_NOTFOUND (there is none), FB_E_USAGE.
 */
FB_API fb_status fb_run_checkpoint_poll(fb_run *run, fb_checkpoint_result *out, fb_error *err);

/**
 * Wait until nothing is queued and nothing is being read, or the time is over. The verdicts are then there to be polled.
 * timeout_ms  0: only look; negative: no limit.
 * Errors: FB_E_LIMIT (the time is over; what is queued goes on), FB_E_USAGE.
 */
FB_API fb_status fb_run_checkpoint_wait(fb_run *run, int64_t timeout_ms, fb_error *err);

/* What the pre-save gate saw. */
typedef struct fb_save_result {
    uint32_t size;
    uint32_t first_site;  /* of the first tensor, in the order of `views`, that is not finite; UINT32_MAX: none */
    uint64_t tensors;     /* that were looked at */
    uint64_t elements;    /* of these */
    uint64_t passed_over; /* tensors that were not looked at: exempt by declaration, absent, or of a format with nothing to find */
    uint64_t bad;         /* elements that are not finite or not in their domain */
    uint64_t bad_tensors;
    uint64_t first_index; /* flat; FB_NO_INDEX: none */
    uint64_t first_bits;
    int32_t first_kind; /* FB_KIND_* */
    int32_t reserved;
    char first_tensor[256]; /* "h.3.mlp.w.exp_avg"; "" : none */
} fb_save_result;
#define FB_SAVE_RESULT_INIT                                            \
    {                                                                  \
        sizeof(fb_save_result), UINT32_MAX, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        {                                                              \
            0                                                          \
        }                                                              \
    }

/**
 * The gate before a save: look at every element that is about to be written, in memory, and say whether to write. Nothing is
 * changed.
 * Not finite: the finding is recorded at the boundary FB_CHECKPOINT and is durable on return, what descends from this state is
 * suspect, and the next step's vote hears of it as of a state that is bad on entry, so that the ranks decide together what to do.
 * step   the number the checkpoint would have. Between steps; any rank, each for what it writes.
 * views  n views with the site set: parameters, moments, EMA, buffers. Legal -inf and exempt sites are as in fb_step_check.
 * out    NULL, or filled on FB_OK and FB_E_WITHHELD; `size` set by the caller.
 * Returns FB_OK: write. FB_E_WITHHELD: do not write; training may go on. A run that only observes (FB_ON_BAD_OBSERVE) gets FB_OK
 * all the same, with out->bad above 0. Errors: FB_E_ORDER (a step is open), FB_E_SITE, FB_E_DTYPE, FB_E_USAGE: nothing was looked
 * at.
 * Cost: one read of the state.
 */
FB_API fb_status fb_run_save_gate(fb_run *run, int64_t step, const fb_view *views, size_t n, fb_save_result *out, fb_error *err);

#ifdef __cplusplus
}
#endif

#endif
