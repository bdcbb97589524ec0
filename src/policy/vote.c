/*
 * The vote: packing, folding and reading four words. See vote.h for the order of calls and docs/format/vote.md for the layout.
 */
#include "policy/vote.h"

#include "base/hash.h"

enum {
    RANK_SHIFT = 0,
    POSITION_SHIFT = FB_VOTE_RANK_BITS,
    BOUNDARY_SHIFT = POSITION_SHIFT + FB_VOTE_POSITION_BITS,
    MICRO_SHIFT = BOUNDARY_SHIFT + FB_VOTE_BOUNDARY_BITS
};
_Static_assert(MICRO_SHIFT + FB_VOTE_MICRO_BITS == 63, "the key fills a non-negative int64");

/* Seed of the agreement digest: changed whenever the layout of the vote changes, so that two versions never agree by accident. */
#define VOTE_SEED UINT64_C(0x66622d766f746531)    /* "fb-vote1" */
#define REPLICA_SEED UINT64_C(0x66622d7265706c31) /* "fb-repl1": a vote that compares parameters agrees with none that does not */

/* Backward walks from the loss to the input, so there a larger position is earlier. */
static int runs_backward(int32_t boundary)
{
    return boundary == FB_LOCAL_GRAD || boundary == FB_REDUCED_GRAD;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high, uint32_t bit, uint32_t *clamped)
{
    if (value < low) {
        *clamped |= bit;
        return low;
    }
    if (value > high) {
        *clamped |= bit;
        return high;
    }
    return value;
}

int64_t fb_vote_key(int32_t micro_step, int32_t boundary, int64_t position, int32_t rank, uint32_t *clamped)
{
    int64_t m, b, p, r;
    *clamped = 0;
    m = clamp(micro_step, 0, FB_VOTE_MICRO_MAX, FB_VOTE_CLAMPED_MICRO, clamped);
    b = clamp(boundary, FB_ENTRY, FB_CHECKPOINT, FB_VOTE_CLAMPED_BOUNDARY, clamped);
    p = clamp(position, 0, FB_VOTE_POSITION_MAX, FB_VOTE_CLAMPED_POSITION, clamped);
    r = clamp(rank, 0, FB_VOTE_RANK_MAX, FB_VOTE_CLAMPED_RANK, clamped);
    if (runs_backward((int32_t)b)) p = FB_VOTE_POSITION_MAX - p;
    return m << MICRO_SHIFT | b << BOUNDARY_SHIFT | p << POSITION_SHIFT | r << RANK_SHIFT;
}

static int64_t field(int64_t key, int shift, int bits)
{
    return key >> shift & ((INT64_C(1) << bits) - 1);
}

int fb_vote_key_read(int64_t key, fb_vote_outcome *place)
{
    int32_t micro, boundary;
    int64_t position;
    if (key < 0) return 0;
    micro = (int32_t)field(key, MICRO_SHIFT, FB_VOTE_MICRO_BITS);
    boundary = (int32_t)field(key, BOUNDARY_SHIFT, FB_VOTE_BOUNDARY_BITS);
    if (micro > FB_VOTE_MICRO_MAX || boundary < FB_ENTRY || boundary > FB_CHECKPOINT) return 0;
    position = field(key, POSITION_SHIFT, FB_VOTE_POSITION_BITS);
    place->micro_step = micro;
    place->boundary = boundary;
    place->position = runs_backward(boundary) ? FB_VOTE_POSITION_MAX - position : position;
    place->rank = (int32_t)field(key, RANK_SHIFT, FB_VOTE_RANK_BITS);
    return 1;
}

static void put64(unsigned char *bytes, uint64_t value)
{
    int i;
    for (i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> 8 * i);
}

/* The two halves stay apart, so that the smallest and the largest digest show which of them differs. */
static uint64_t with_replicas(const unsigned char *bytes, size_t n, uint64_t replicas)
{
    unsigned char digest[8];
    put64(digest, replicas);
    return (fb_hash64(bytes, n, REPLICA_SEED) & UINT64_C(0x7fffffff)) << 32 |
           (fb_hash64(digest, sizeof digest, REPLICA_SEED) & UINT64_C(0xffffffff));
}

int64_t fb_vote_digest(const fb_vote_agreement *agreement)
{
    /* Little-endian by hand: ranks on machines of either byte order must agree. */
    unsigned char bytes[48];
    uint64_t digest;
    put64(bytes, agreement->run_hash);
    put64(bytes + 8, (uint64_t)agreement->attempt);
    put64(bytes + 16, (uint64_t)agreement->step);
    put64(bytes + 24, (uint64_t)agreement->vote_number);
    put64(bytes + 32, agreement->scale_bits);
    put64(bytes + 40, agreement->policy);
    if (agreement->has_replicas) digest = with_replicas(bytes, sizeof bytes, agreement->replicas);
    else digest = fb_hash64(bytes, sizeof bytes, VOTE_SEED) & (uint64_t)INT64_MAX;
    /* 0 is its own negative and what an untouched buffer holds, so it stands for nothing. */
    return digest ? (int64_t)digest : 1;
}

uint32_t fb_vote_write(int64_t words[FB_VOTE_WORDS], const fb_vote_ballot *ballot)
{
    uint32_t clamped = 0;
    int64_t wish, digest = fb_vote_digest(&ballot->agreement);
    words[0] = FB_VOTE_CLEAN;
    if (ballot->has_finding) words[0] = fb_vote_key(ballot->micro_step, ballot->boundary, ballot->position, ballot->rank, &clamped);
    words[1] = digest;
    words[2] = -digest;
    wish = clamp(ballot->wish, FB_PROCEED, FB_HALT, FB_VOTE_CLAMPED_WISH, &clamped);
    /* A finding that wishes to proceed would read as a corrupted word; observing is the policy's business after the vote. */
    if (ballot->has_finding && wish < FB_SKIP) wish = FB_SKIP;
    words[3] = -wish;
    return clamped;
}

void fb_vote_fold(int64_t into[FB_VOTE_WORDS], const int64_t from[FB_VOTE_WORDS])
{
    int i;
    for (i = 0; i < FB_VOTE_WORDS; i++)
        if (from[i] < into[i]) into[i] = from[i];
}

/* Whether the words can come from a MIN over ballots. Fills the place when there is a legal key. */
static int is_legal(const int64_t *reduced, const int64_t *own, fb_vote_outcome *out)
{
    int legal = 1, i;
    if (reduced[0] != FB_VOTE_CLEAN && !fb_vote_key_read(reduced[0], out)) legal = 0;
    if (reduced[1] < 1 || reduced[2] > -1 || reduced[2] == INT64_MIN) legal = 0;
    if (reduced[3] > FB_PROCEED || reduced[3] < -FB_HALT) legal = 0;
    /* Every ballot with a finding wishes at least a skip. */
    if (reduced[0] != FB_VOTE_CLEAN && reduced[3] > -FB_SKIP) legal = 0;
    /* A MIN that took our ballot in is no larger than it; otherwise somebody else's words, or old ones, came back. */
    for (i = 0; own && i < FB_VOTE_WORDS; i++)
        if (reduced[i] > own[i]) legal = 0;
    return legal;
}

int fb_vote_drifted(const int64_t reduced[FB_VOTE_WORDS])
{
    if (reduced[1] < 1 || reduced[2] > -1 || reduced[2] == INT64_MIN) return 0;
    return reduced[1] != -reduced[2] && reduced[1] >> 32 == -reduced[2] >> 32;
}

void fb_vote_read(const int64_t reduced[FB_VOTE_WORDS], const int64_t own[FB_VOTE_WORDS], fb_vote_outcome *out)
{
    const fb_vote_outcome nothing = {FB_VOTE_NO_QUORUM, 0, 0, FB_HALT, -1, 0, -1, 0, -1};
    *out = nothing;
    if (!reduced) return;
#ifdef FB_BREAK_P2
    if (own) reduced = own; /* broken on purpose: each rank decides from its own finding */
#endif
    out->quorum_equal = FB_VOTE_DISAGREE;
    out->illegal = !is_legal(reduced, own, out);
    if (out->illegal) return;
    /* min(w1) is the smallest digest, -min(w2) the largest: they meet only when all are the same. */
    if (reduced[1] != -reduced[2]) return;
    out->quorum_equal = FB_VOTE_EQUAL;
    out->clean = reduced[0] == FB_VOTE_CLEAN;
    out->wish = (int32_t)-reduced[3];
}
