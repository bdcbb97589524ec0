/*
 * Inside src/locate: what one fb_locate_run knows. run.c has the order of things; ask.c plays one replay; find.c searches;
 * origins.c judges over the ranks; proof.c keeps the witness; fp64.c runs operators again; vary.c replays under other conditions;
 * shrink.c makes the batch small; conclude.c writes.
 */
#ifndef FB_LOCATE_LOCATE_INSIDE_H
#define FB_LOCATE_LOCATE_INSIDE_H

#include "locate/cause.h"
#include "locate/ranks.h"
#include "locate/tape.h"
#include "os/os.h"
#include "search/bisect.h"

enum { FB_DIFFERENCES_MAX = 8 };

/* A caller of an older header has no room for the autograd node. */
static inline int fb_locate_knows_node(const fb_locate_result *result)
{
    return result->size >= offsetof(fb_locate_result, node) + sizeof result->node;
}

/* An origin after all ranks were heard. */
typedef struct fb_origin {
    uint32_t node;   /* FB_FLOW_NONE: an entry */
    uint32_t tensor; /* the entry, or the first tensor of its chain; FB_FLOW_NONE: there is no certain chain */
    int32_t witnessed;
    int32_t owner; /* lowest rank on which it is one */
} fb_origin;

/* One tensor of a chain. */
typedef struct fb_link {
    uint32_t tensor;
    int32_t rank; /* whose tensor it is */
} fb_link;

typedef struct fb_locate {
    const fb_locate_config *config;
    fb_locate_result *result;
    fb_ranks ranks;
    const fb_os *os;
    fb_row row;
    uint32_t finding; /* tensor */
    int64_t started_ns;
    uint32_t replays; /* of all kinds */
    uint32_t reproduced, tried;
    uint32_t times;     /* n */
    int32_t unfaithful; /* on this rank, until run.c asks the others */

    /* [tensors] of this rank. */
    uint8_t *first_seen;  /* FB_SEEN_* in the replay that wrote the row down */
    uint8_t *seen;        /* FB_SEEN_* over all replays of the search, the first that was not untestable */
    uint8_t *far;         /* 1: it can reach the finding through a collective operator; else only the finding's rank counts */
    uint8_t *wanted;      /* for the replay at hand: FB_WANT_* */
    int32_t *answers;     /* for the replay at hand */
    int32_t contradicted; /* replays differ in what this rank saw */

    int32_t found, reason; /* FB_LOCATED_*, FB_WHY_* */
    fb_origin *origins;
    uint32_t origin_count;
    fb_link *chain; /* of origins[0], where it is witnessed */
    uint32_t chain_count;
    uint32_t *swallowed; /* nodes */
    uint32_t swallowed_count;
    uint32_t *later; /* nodes, the first of them */
    uint32_t later_count;

    uint8_t *in_module;     /* [origin + 1] */
    uint32_t *module_nodes; /* operators of the origin's module that lead to it, the origin last */
    uint32_t module_count;
    fb_tape proof; /* the replay in which the witness was kept */
    fb_witness witness;
    int32_t has_witness;

    int32_t minimised; /* FB_MINIMISE_* */
    uint32_t minimise_tests;

    char differences[FB_DIFFERENCES_MAX][256];
    uint32_t difference_count;
    char notes[512];   /* what could not be done */
    char refusal[256]; /* why this rank has no replay of the step, in the trainer's words */
} fb_locate;

/* ---- ask.c ------------------------------------------------------------------------------------------------------------------- */

/* How a replay went, the worst of all ranks. */
enum { FB_PLAYED = 0, FB_PLAYED_NOT_SUPPORTED = 1, FB_PLAYED_STRAYED = 2, FB_PLAYED_FAILED = 3 };

/* Play one replay on all ranks. tape: initialised by the caller, released by the caller. Errors: what max returned. */
fb_status fb_locate_play(fb_locate *l, fb_tape *tape, fb_replay_request *request, int32_t *played, fb_error *err);
void fb_locate_request(fb_replay_request *request, int32_t purpose);
/* Set `wanted` to nothing; returns its size for fb_tape.wanted_count through fb_locate_want. */
void fb_locate_want_nothing(fb_locate *l, fb_tape *tape);
void fb_locate_want(fb_locate *l, fb_tape *tape, uint32_t tensor, uint8_t want);
void fb_locate_differ(fb_locate *l, const char *sentence);
__attribute__((format(printf, 2, 3))) void fb_locate_note(fb_locate *l, const char *format, ...);
/* 1 where this rank's copy of a tensor counts. */
int fb_locate_counts(const fb_locate *l, uint32_t tensor);
/* Remember what this rank saw of a tensor in a search replay. */
void fb_locate_saw(fb_locate *l, uint32_t tensor, int32_t seen);
/* What was seen of the finding, as a finding: -Inf that may be intended there is not the NaN or +Inf that was found. */
int32_t fb_locate_of_finding(const fb_locate *l, int32_t seen);
/* One more look at the finding: counts k and n. Collective. */
fb_status fb_locate_count_finding(fb_locate *l, int32_t seen, fb_error *err);

/* ---- the parts, in their order ----------------------------------------------------------------------------------------------- */

/* find.c: the first replay. l->found becomes FB_LOCATED_UNDECIDED where there is nothing to search in. */
fb_status fb_locate_record(fb_locate *l, fb_error *err);
fb_status fb_locate_search(fb_locate *l, fb_error *err);
/* origins.c: the search is over; found, origins, chain, swallowed and later, out of what each rank saw. */
fb_status fb_locate_judge(fb_locate *l, const fb_search *search, fb_error *err);
/* proof.c */
fb_status fb_locate_prove(fb_locate *l, fb_error *err);
fb_status fb_locate_repeat(fb_locate *l, fb_error *err);
/* What fb_locate_holds looks at. want: FB_WANT_* for what the first origin read and made, where that is this rank's. */
void fb_locate_want_witness(fb_locate *l, fb_tape *tape, uint8_t want);
/* Is the witness in this replay as it was, as far as it is this rank's: read finite, made bad, the chain bad, the finding bad? */
int fb_locate_holds(const fb_locate *l, const fb_tape *tape);
/* witness.c: out of the row and what was kept. */
fb_status fb_locate_witness(fb_locate *l, fb_error *err);
void fb_locate_witness_release(fb_witness *witness);
/* fp64.c */
fb_status fb_locate_rerun(fb_locate *l, fb_error *err);
/* vary.c */
fb_status fb_locate_in_fp32(fb_locate *l, fb_error *err);
fb_status fb_locate_on_others(fb_locate *l, fb_error *err);
/* shrink.c */
fb_status fb_locate_shrink(fb_locate *l, fb_error *err);
/* conclude.c */
fb_status fb_locate_conclude(fb_locate *l, fb_error *err);

#endif
