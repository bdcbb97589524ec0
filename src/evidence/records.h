/*
 * The payloads of ledger records: plain structs, and their encoding as little-endian bytes (docs/format/ledger.md).
 * Every payload starts with a u16 version and is extended only at its end, so an old reader takes a new record and a new reader an
 * old one. Encoders write into the caller's buffer and return the bytes used, 0 if it does not fit. Decoders never read past
 * `bytes`, and return FB_E_CORRUPT for a payload that is too short or that names impossible lengths.
 */
#ifndef FB_EVIDENCE_RECORDS_H
#define FB_EVIDENCE_RECORDS_H

#include "firstbad/firstbad.h"

/* Record types. Values are written to files and never renumbered. */
enum {
    FB_REC_RUN = 1, /* pairs of text: what is constant, written once */
    FB_REC_SITE = 2,
    FB_REC_STEP = 3,    /* L1: one a step */
    FB_REC_FINDING = 4, /* L2: one a finding */
    FB_REC_FIRST_BAD = 5,
    FB_REC_VERDICT = 6, /* written where a vote was not clean, or failed */
    FB_REC_EVENT = 7,
    FB_REC_PROOF = 8, /* digests of owned state */
    FB_REC_PULSE = 9, /* only in the pulse slots */
    FB_REC_CKPT = 10, /* registry */
    FB_REC_CLOSE = 11
};

enum { FB_TEXT_MAX = 255, FB_SAMPLES_MAX = 64, FB_REC_BYTES_MAX = 8000 };

/* A piece of text inside a decoded record: not NUL-terminated, points into the payload. */
typedef struct fb_text {
    const char *data;
    uint32_t bytes;
} fb_text;

/* ---- RUN: u16 version, u32 n, then n times (u16 key bytes, key, u32 value bytes, value) -------------------------------------- */
uint32_t fb_rec_run_encode(uint8_t *out, uint32_t room, const fb_pair *pairs, uint64_t n);
/* Call `each` for every pair. */
fb_status fb_rec_run_decode(const uint8_t *payload, uint32_t bytes, void (*each)(void *, fb_text key, fb_text value), void *ctx,
                            fb_error *err);

/* ---- SITE -------------------------------------------------------------------------------------------------------------------- */
typedef struct fb_rec_site {
    uint32_t id;
    int32_t role, bucket, domain, ndim;
    uint32_t legal;
    int64_t position;
    int64_t shape[FB_DIMS_MAX];
    fb_text module, tensor, group;
} fb_rec_site;
uint32_t fb_rec_site_encode(uint8_t *out, uint32_t room, const fb_rec_site *rec);
fb_status fb_rec_site_decode(const uint8_t *payload, uint32_t bytes, fb_rec_site *rec, fb_error *err);

/* ---- coverage: what one step really checked on this rank --------------------------------------------------------------------- */
/* How much of a boundary was looked at. */
enum { FB_COVER_NONE = 0, FB_COVER_SUMMARY = 1, FB_COVER_SAMPLED = 2, FB_COVER_FULL = 3 };
typedef struct fb_cover {
    uint8_t level[9];    /* by boundary, index 0 unused; FB_COVER_* */
    uint32_t tensors[9]; /* tensors looked at */
    uint32_t exempt;     /* tensors passed over by declared legality */
    uint32_t absent;     /* gradients that do not exist */
    uint32_t unchecked;  /* tensors whose format has nothing to find */
} fb_cover;

/* ---- STEP -------------------------------------------------------------------------------------------------------------------- */
/* Bits of fb_rec_step.flags. */
enum {
    FB_STEP_SKIPPED = 1u,
    FB_STEP_APPLIED = 2u, /* fb_step_apply let the optimizer change the state */
    FB_STEP_GATED = 4u,   /* every vote of the step was clean and covered all gradients handed over */
    FB_STEP_PROBING = 8u, /* skipped, and not a fault */
    FB_STEP_DEEP = 16u,   /* deep scan was on */
    FB_STEP_ENTRY_BAD = 32u,
    FB_STEP_ABANDONED = 64u, /* given up by the trainer before the last gate */
    FB_STEP_REPLICAS = 128u  /* the parameters on entry were compared over the ranks, and equal */
};
typedef struct fb_rec_step {
    int64_t step;
    int32_t micro_steps;
    uint32_t known; /* FB_KNOWN_* */
    uint32_t flags;
    int32_t action, agreement, unanimous;
    int32_t first_bad_stage; /* boundary; 0: none */
    int32_t consecutive_skips;
    int32_t votes;
    int64_t global_batch_id;
    int64_t checkpoint_parent;
    double learning_rate, loss, grad_norm;
    double loss_scale_before, loss_scale_after;
    uint64_t batch_fingerprint, rng_state_hash;
    uint64_t duration_ns, guard_ns; /* whole step; our own time in it */
    uint64_t findings;
    uint64_t rows, tokens, valid_tokens; /* input summary over the micro-steps */
    int64_t token_min, token_max;
    fb_cover cover;
    uint64_t sample_count;
    uint32_t samples; /* entries below */
    int64_t sample_ids[FB_SAMPLES_MAX];
} fb_rec_step;
uint32_t fb_rec_step_encode(uint8_t *out, uint32_t room, const fb_rec_step *rec);
fb_status fb_rec_step_decode(const uint8_t *payload, uint32_t bytes, fb_rec_step *rec, fb_error *err);

/* ---- FINDING and FIRST_BAD --------------------------------------------------------------------------------------------------- */
/* Self-contained: names and shape are inside, so that a frozen record can be read when everything else is lost. */
typedef struct fb_rec_finding {
    int64_t step;
    int32_t attempt, rank;
    int32_t boundary, micro_step, kind, field;
    uint32_t site;
    int32_t role, dtype, bucket, injected; /* injected: 1 when the guard itself planted it for a drill */
    int64_t position;
    uint64_t count, first_index, first_bits;
    int64_t value, low, high;
    uint64_t elements, nan, pos_inf, neg_inf, zero, subnormal, at_max;
    double abs_min, abs_max, sum_sq;
    int32_t sum_sq_exponent, ndim;
    int64_t shape[FB_DIMS_MAX];
    double loss_scale;
    uint64_t batch_fingerprint, rng_state_hash;
    int64_t global_batch_id;
    uint64_t time_ns;
    /* The witness: what was checked clean on this rank in this step before the finding. Boundaries as bits (1 << boundary). */
    uint32_t clean_before;   /* boundaries fully checked and finite */
    uint32_t sampled_before; /* boundaries sampled and finite */
    uint32_t tensors_before; /* tensors found finite in this step before this one */
    fb_text module, tensor, group, host;
} fb_rec_finding;
uint32_t fb_rec_finding_encode(uint8_t *out, uint32_t room, const fb_rec_finding *rec);
fb_status fb_rec_finding_decode(const uint8_t *payload, uint32_t bytes, fb_rec_finding *rec, fb_error *err);

/* ---- VERDICT ----------------------------------------------------------------------------------------------------------------- */
typedef struct fb_rec_verdict {
    int64_t step;
    int32_t vote, action, agreement, unanimous, clean, fault, reason;
    int32_t first_rank, first_boundary, first_micro_step, consecutive_skips, world;
    int64_t first_position;
    int64_t words[4];
    uint64_t local_findings;
    fb_text case_id;
} fb_rec_verdict;
uint32_t fb_rec_verdict_encode(uint8_t *out, uint32_t room, const fb_rec_verdict *rec);
fb_status fb_rec_verdict_decode(const uint8_t *payload, uint32_t bytes, fb_rec_verdict *rec, fb_error *err);

/* ---- EVENT ------------------------------------------------------------------------------------------------------------------- */
enum {
    FB_EVENT_PROBING_SKIP = 1,  /* a: consecutive skips */
    FB_EVENT_HALT = 2,          /* a: reason */
    FB_EVENT_EVIDENCE_LOST = 3, /* a: records lost so far; text: the first failure */
    FB_EVENT_INJECTED = 4,      /* a: boundary, b: site; text: the specification */
    FB_EVENT_NORM_OVERFLOW = 7, /* every element finite, and the norm does not fit */
    FB_EVENT_MISUSE = 8,        /* a: status; text: the sentence */
    FB_EVENT_SCALE = 9,         /* the loss scale moved; a, b: bits of before and after */
    FB_EVENT_FINDINGS_CUT = 10, /* a: findings that were counted and not kept */
    FB_EVENT_CHECKPOINT = 11,   /* a: state; b: step of the checkpoint; text: path */
    FB_EVENT_REPLAY = 12,       /* a: 1 when the anomaly came back in a wider format, 0 when it did not */
    FB_EVENT_LOCATED = 13,      /* text: the case, ": ", and what was found out about it */
    FB_EVENT_LEFT_OUT = 14,     /* a: samples that are left out; b: the smallest id; text: the ids, as many as fit */
    FB_EVENT_NOT_COVERED = 15   /* a: 1 when further lines are not recorded; text: what the run does not look at or cannot do */
};
typedef struct fb_rec_event {
    int64_t step;
    int32_t event;
    int64_t a, b;
    fb_text text;
} fb_rec_event;
uint32_t fb_rec_event_encode(uint8_t *out, uint32_t room, const fb_rec_event *rec);
fb_status fb_rec_event_decode(const uint8_t *payload, uint32_t bytes, fb_rec_event *rec, fb_error *err);
const char *fb_event_name(int32_t event);

/* ---- PROOF ------------------------------------------------------------------------------------------------------------------- */
/* Digests of owned state by role, at the decision to withhold an update and at the next begin; and of parameters on entry to a step
   in which they were compared over the ranks. */
enum { FB_PROOF_DECISION = 1, FB_PROOF_NEXT_BEGIN = 2, FB_PROOF_REPLICAS = 3 };
typedef struct fb_rec_proof {
    int64_t step;   /* the withheld step; at FB_PROOF_REPLICAS the step that began with these parameters */
    int32_t moment; /* FB_PROOF_* */
    /* At FB_PROOF_NEXT_BEGIN: 1 equal to the decision's digests, 0 not. At FB_PROOF_REPLICAS: 1 equal on all ranks, 0 not, -1 the
       vote did not tell. At FB_PROOF_DECISION: -1 */
    int32_t equal;
    uint64_t tensors, bytes;
    uint64_t digest;      /* all of it */
    uint64_t by_role[10]; /* XXH3 by FB_ROLE_* */
} fb_rec_proof;
uint32_t fb_rec_proof_encode(uint8_t *out, uint32_t room, const fb_rec_proof *rec);
fb_status fb_rec_proof_decode(const uint8_t *payload, uint32_t bytes, fb_rec_proof *rec, fb_error *err);

/* ---- PULSE: what a rank is doing now ----------------------------------------------------------------------------------------- */
enum { FB_PULSE_BALLOT = 1, FB_PULSE_SETTLED = 2, FB_PULSE_ENDED = 4 };
typedef struct fb_rec_pulse {
    int64_t step;
    int32_t vote, phase, action, rank;
    int64_t words[4];
} fb_rec_pulse;
uint32_t fb_rec_pulse_encode(uint8_t *out, uint32_t room, const fb_rec_pulse *rec);
fb_status fb_rec_pulse_decode(const uint8_t *payload, uint32_t bytes, fb_rec_pulse *rec, fb_error *err);

/* ---- CKPT -------------------------------------------------------------------------------------------------------------------- */
typedef struct fb_rec_ckpt {
    int64_t step;
    int32_t attempt, rank, state, reason;
    uint64_t tensors, elements, bytes, bad, digest;
    fb_text path, tensor; /* tensor: the first bad one, "" if none */
    /* From here on absent, hence 0 and "", in records of the first releases. */
    int32_t gated;    /* FB_CKPT_GATED_*: what the run said of its updates when it saved */
    int32_t pin;      /* FB_PIN_*: how its bytes are kept a second time */
    uint64_t inode;   /* of path when it was read; 0: unknown */
    int64_t mtime_ns; /* likewise */
    fb_text aside;    /* quarantined: where it is, or is about to be moved; "" if it stays */
    fb_text pin_path; /* "" if there is no pin */
    fb_text origin;   /* of a row that stands for a pin, or for what was moved aside: the name that it had; else "" */
    fb_text note;     /* for people: who or what, and why; "" if there is nothing to add */
    uint64_t mark;    /* of a folder: names, sizes, times and inodes of all in it when it was read; 0: unknown, or a file */
} fb_rec_ckpt;
enum {
    FB_CKPT_REASON_READ_BACK = 1,
    FB_CKPT_REASON_NOT_FINITE = 2,
    FB_CKPT_REASON_UNREADABLE = 3,
    FB_CKPT_REASON_LINEAGE = 4,
    FB_CKPT_REASON_UNSUPPORTED = 5,
    FB_CKPT_REASON_CASE = 6,     /* a case was opened after it was saved; to be read again */
    FB_CKPT_REASON_OPERATOR = 7, /* somebody said so, and the note says why */
    FB_CKPT_REASON_CHANGED = 8,  /* its bytes are not those of the verdict any more */
    FB_CKPT_REASON_NO_RUN = 9    /* no run vouches for its updates */
};
enum { FB_CKPT_GATED_UNKNOWN = 0, FB_CKPT_GATED_YES = 1, FB_CKPT_GATED_NO = 2 };
uint32_t fb_rec_ckpt_encode(uint8_t *out, uint32_t room, const fb_rec_ckpt *rec);
fb_status fb_rec_ckpt_decode(const uint8_t *payload, uint32_t bytes, fb_rec_ckpt *rec, fb_error *err);

#endif
