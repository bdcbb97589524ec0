/*
 * The vote: four signed 64-bit words that all ranks reduce with MIN. Pure: no files, no clock, no memory.
 *
 * Calling order on each rank: fill an fb_vote_ballot, fb_vote_write gives the rank's own words; the caller reduces a copy over all
 * ranks; fb_vote_read turns the reduced words into an outcome that is the same on every rank. fb_vote_fold is that reduction for
 * two ballots, for tests and for programs that carry the words by themselves. Layout and validity: docs/format/vote.md.
 *
 * Words are integers because a floating MIN or MAX drops a NaN, and MIN because the earliest place is the smallest key.
 */
#ifndef FB_POLICY_VOTE_H
#define FB_POLICY_VOTE_H

#include "firstbad/firstbad.h"

enum { FB_VOTE_WORDS = 4 };

/* Word 0, from the high end: sign 0 | micro-step 14 | boundary 4 | position 24 | rank 21. */
enum { FB_VOTE_MICRO_BITS = 14, FB_VOTE_BOUNDARY_BITS = 4, FB_VOTE_POSITION_BITS = 24, FB_VOTE_RANK_BITS = 21 };

/* The largest values a key can carry. Larger ones are clamped to these, and fb_vote_write says so. */
#define FB_VOTE_MICRO_MAX ((1 << FB_VOTE_MICRO_BITS) - 2) /* one code is left out, so that no key can equal FB_VOTE_CLEAN */
#define FB_VOTE_POSITION_MAX ((INT64_C(1) << FB_VOTE_POSITION_BITS) - 1)
#define FB_VOTE_RANK_MAX ((1 << FB_VOTE_RANK_BITS) - 1)
#define FB_VOTE_CLEAN INT64_MAX

/* What all ranks must have in common for their vote to count. It is hashed into words 1 and 2. */
typedef struct fb_vote_agreement {
    uint64_t run_hash; /* of the run id */
    int64_t attempt;
    int64_t step;
    int64_t vote_number;  /* 0, 1, ... within the step */
    uint64_t scale_bits;  /* IEEE bits of the loss scale in FP64 */
    uint64_t policy;      /* fb_gate_digest: policy and skip history */
    uint64_t replicas;    /* digest of the parameters; read only where has_replicas is not 0 */
    int32_t has_replicas; /* 1: this vote compares the parameters as well */
    int32_t reserved;
} fb_vote_agreement;

/* What one rank has to say. */
typedef struct fb_vote_ballot {
    fb_vote_agreement agreement;
    int32_t has_finding; /* 0: clean, and the four fields below are not read */
    int32_t micro_step;  /* of the earliest finding by (micro-step, boundary, position along the dataflow in causal order) */
    int32_t boundary;    /* FB_ENTRY .. FB_CHECKPOINT */
    int32_t rank;        /* of this process in the run */
    int64_t position;    /* as in fb_site: 0 at the input, growing towards the loss, in every boundary */
    int32_t wish;        /* FB_PROCEED .. FB_HALT; raised to FB_SKIP where a finding comes with FB_PROCEED */
    int32_t reserved;
} fb_vote_ballot;

/* Bits of fb_vote_write's return value: what did not fit into the key and was clamped to the nearest value that does. */
enum {
    FB_VOTE_CLAMPED_MICRO = 1,
    FB_VOTE_CLAMPED_BOUNDARY = 2,
    FB_VOTE_CLAMPED_POSITION = 4,
    FB_VOTE_CLAMPED_RANK = 8,
    FB_VOTE_CLAMPED_WISH = 16
};

/* What became of the vote. Only FB_VOTE_EQUAL may ever let an update through. */
enum {
    FB_VOTE_EQUAL = 1,     /* all ranks voted on the same thing */
    FB_VOTE_DISAGREE = 0,  /* they did not, or the words are not what any set of ballots can give */
    FB_VOTE_NO_QUORUM = -1 /* there is no reduced word: the collective failed */
};

/* The reduced vote in fields. Equal bits on all ranks that got the same words. */
typedef struct fb_vote_outcome {
    int32_t quorum_equal; /* FB_VOTE_* */
    int32_t illegal;      /* 1: FB_VOTE_DISAGREE because the words cannot come from ballots: corrupted, zeroed, not reduced */
    int32_t clean;        /* 1: FB_VOTE_EQUAL and no rank holds a finding; never 1 otherwise */
    int32_t wish;         /* gravest wish of any rank; FB_HALT unless FB_VOTE_EQUAL */
    int32_t micro_step;   /* of the spokesman's finding; -1 when no key was read */
    int32_t boundary;     /* 0 when no key was read */
    int32_t rank;         /* spokesman; -1 when no key was read */
    int32_t drifted;      /* 1: FB_VOTE_DISAGREE, and the digests of the parameters are all that differs; see fb_vote_drifted */
    int64_t position;     /* -1 when no key was read */
} fb_vote_outcome;

/* Key of a place: word 0 of a ballot with a finding. Smaller is earlier. Clamps; the FB_VOTE_CLAMPED_* bits go to *clamped (not
   NULL). */
int64_t fb_vote_key(int32_t micro_step, int32_t boundary, int64_t position, int32_t rank, uint32_t *clamped);

/* Take a key apart. 1: legal, the outcome's place fields are filled; 0: no ballot can hold it (FB_VOTE_CLEAN included). */
int fb_vote_key_read(int64_t key, fb_vote_outcome *place);

/* 63-bit digest, at least 1, of what the ranks must have in common. The same on every machine. With has_replicas its high 31 bits
   are of all but the parameters, and its low 32 bits of the parameters. */
int64_t fb_vote_digest(const fb_vote_agreement *agreement);

/* Write this rank's words. Returns 0, or FB_VOTE_CLAMPED_* bits: the ballot still counts as bad, its place is the nearest that
   fits. */
uint32_t fb_vote_write(int64_t words[FB_VOTE_WORDS], const fb_vote_ballot *ballot);

/* into = MIN(into, from), word by word: associative, commutative and idempotent, so any order and tree gives the same bits. */
void fb_vote_fold(int64_t into[FB_VOTE_WORDS], const int64_t from[FB_VOTE_WORDS]);

/* Of reduced words that disagree, where this rank's ballot had has_replicas: 1 when the ranks agree on all but the parameters. */
int fb_vote_drifted(const int64_t reduced[FB_VOTE_WORDS]);

/**
 * Read reduced words.
 * reduced  after the MIN all-reduce; NULL: the vote failed, which is FB_VOTE_NO_QUORUM.
 * own      the words this rank gave (a MIN can be no larger, and the digest must be ours); NULL: not compared.
 * out      filled always.
 */
void fb_vote_read(const int64_t reduced[FB_VOTE_WORDS], const int64_t own[FB_VOTE_WORDS], fb_vote_outcome *out);

#endif
