/*
 * Find the node that a non-finite value came from, by replays. Pure: the caller replays, this decides what to look at.
 *
 * Calling order:
 *   fb_search_open, [fb_search_know]
 *     while ((question = fb_search_ask(search)))  replay, look at question->tensors, fb_search_answer
 *   fb_search_result, fb_search_chain, fb_search_label
 *   fb_search_free
 * or fb_search_run, which does the middle with a callback. Between ask and answer nothing is in flight inside this module, so a
 * caller may keep a search over any number of its own calls. The row of questions is a pure function of the dataflow, the options
 * and the answers: ranks that reduce their answers (FB_SEEN_* under MAX) before they give them ask the same, in the same order, and
 * end together.
 *
 * What is claimed. A node is named only when, in replays whose answers do not contradict each other, all it read was finite (or
 * -Inf where that may be intended), something it made was not, an unbroken chain of non-finite tensors leads from there to the
 * finding, and every other origin that is possible comes after something that is bad for certain and leads to the finding; and when
 * all of that was seen a second time, in one replay if one can look at that much. See trace.h for the words, and why what is later
 * is not first. Finiteness along depth is never assumed to be monotone.
 * What is not claimed: that what comes later is sound. A node that reads something bad and fails by itself as well cannot be told
 * from one that passes on what it read, and one that fails behind finite values may have failed because of what came before; the
 * first is named, and those that may have failed after it are listed.
 *
 * Cost, with L nodes up to the finding, answers tensor by tensor and no bound on the tensors of one replay:
 *   sweep    2 replays: one that looks at everything, one that looks again at the witness.
 *   bisect   at most 3 + ceil(log2 L) replays, and one more for each tensor that cannot be told (untestable, or a mask that may be
 *            carrying something). Swallowed values do not change that: all that a chain can pass after the last finite cut is
 *            looked at in one replay. So the last replay but one can have as many probes as there are tensors after that cut.
 * With a bound of p tensors a replay, no tensor is looked at more than once before the witness is, so with T tensors in the cone
 * and W in the witness the worst case is (T + W + 2) / (p - 1) + 4 + ceil(log2 L) replays and those for what cannot be told; where
 * p is 1 (one boundary at a time, as git bisect would), p - 1 is read as 1.
 * With one bit a replay, groups are asked: about 6 + ceil(log2 L) replays where what went bad stays bad, and some log2 T more for
 * each tensor that does not do as expected; at most T (2 + ceil(log2 T)) + 6 + ceil(log2 L) and those for what cannot be told.
 * Between two replays the work of this module is one pass or a few over the tensors and edges that lead to the finding.
 */
#ifndef FB_SEARCH_BISECT_H
#define FB_SEARCH_BISECT_H

#include "search/flow.h"
#include "search/trace.h"

enum { FB_SEARCH_BISECT = 0, FB_SEARCH_SWEEP = 1 };
/* Replays that decide the n of "k of n" once a replay contradicted another, or the finding was not there. */
enum { FB_SEARCH_REPEATS = 5 };

typedef struct fb_search_options {
    uint32_t finding;     /* the tensor that was found non-finite */
    int32_t strategy;     /* FB_SEARCH_* */
    int32_t one_bit;      /* 1: a replay gives one answer for all tensors of a question (an exit code) */
    uint32_t probes_max;  /* tensors that one replay can look at; 0: any number */
    uint32_t replays_max; /* budget; 0: none. Once spent, the answer is what is known so far */
    uint32_t repeats;     /* 0: FB_SEARCH_REPEATS */
} fb_search_options;

/* What an answer is about. */
enum {
    FB_ASK_EACH = 0,       /* answer [count] FB_SEEN_FINITE, _BAD, _NEG_INF or _UNTESTABLE, in the order of tensors */
    FB_ASK_ALL_FINITE = 1, /* one_bit, answer [1]: FB_SEEN_FINITE if all are, FB_SEEN_BAD if one is not, FB_SEEN_UNTESTABLE */
    FB_ASK_ALL_BAD = 2     /* one_bit, answer [1]: FB_SEEN_BAD if all are, FB_SEEN_FINITE if one is not, FB_SEEN_UNTESTABLE */
};

/* Why it is asked: for progress and for the ledger. */
enum {
    FB_PHASE_REPRODUCE = 1, /* is the finding there? */
    FB_PHASE_ENTRY = 2,     /* is everything finite on entry? */
    FB_PHASE_CUT = 3,       /* does something bad cross here? */
    FB_PHASE_CHAIN = 4,     /* sweep, or all that a chain can pass after the last finite cut */
    FB_PHASE_WITNESS = 5,   /* the witness again */
    FB_PHASE_REPEAT = 6     /* how often is the finding there? */
};

/* One replay. Valid until it is answered. */
typedef struct fb_question {
    const uint32_t *tensors;
    uint32_t count; /* >= 1 */
    int32_t about;  /* FB_ASK_* */
    int32_t phase;  /* FB_PHASE_* */
    uint32_t cut;   /* FB_PHASE_CUT: the node before which it lies; else FB_FLOW_NONE */
} fb_question;

/* Values may be written to files and are never renumbered. */
enum {
    FB_FOUND_NONE = 0,     /* not finished */
    FB_FOUND_NODE = 1,     /* one first origin, witnessed */
    FB_FOUND_SET = 2,      /* several, none of which comes after another, each witnessed */
    FB_FOUND_INTERVAL = 3, /* every first origin is among the candidates; some lack a witness, see reason */
    FB_FOUND_ENTRY = 4,    /* bad before the first node, and no node is blamed. When it is state, that is all the candidates are */
    FB_FOUND_NOT_REPRODUCED = 5, /* the finding was finite in every replay */
    FB_FOUND_NOT_STEADY = 6,     /* replays contradict each other: reproduced k of n */
    FB_FOUND_UNDECIDED = 7       /* nothing can be said, see reason */
};
enum {
    FB_WHY_NONE = 0,
    FB_WHY_UNTESTABLE = 1, /* tensors that would decide cannot be looked at */
    FB_WHY_BUDGET = 2,     /* replays_max was spent */
    FB_WHY_WITNESS = 3     /* what was seen once could not be looked at again */
};

typedef struct fb_candidate {
    uint32_t node;   /* FB_FLOW_NONE: it is an entry */
    uint32_t tensor; /* the entry, or what the node made at the head of the chain; FB_FLOW_NONE without a certain chain */
    int32_t witnessed;
} fb_candidate;

typedef struct fb_search_verdict {
    int32_t found;                  /* FB_FOUND_* */
    int32_t reason;                 /* FB_WHY_* */
    const fb_candidate *candidates; /* entries first, then nodes in causal order; owned by the search */
    uint32_t count;
    int64_t first, last;   /* nodes between which all candidates lie, both included; -1: an entry; -2: there is no candidate */
    uint32_t replays;      /* answered questions */
    uint64_t probes;       /* tensors asked about, over all replays */
    uint32_t reproduced;   /* k: replays in which the finding was bad */
    uint32_t tried;        /* n: replays in which the finding was looked at */
    uint32_t contradicted; /* FB_FOUND_NOT_STEADY: a tensor about which replays differ; FB_FLOW_NONE: within a group */
    /* Nodes that may be origins as well, and come after something that is bad for certain: never first. In causal order. */
    const uint32_t *later;
    uint32_t later_count;
} fb_search_verdict;

typedef struct fb_search fb_search;

/**
 * Start a search. The flow is borrowed until fb_search_free. All memory is taken here: ask and answer cannot fail for lack of it.
 * Errors: FB_E_USAGE, FB_E_NOMEM.
 */
fb_status fb_search_open(fb_search **out, const fb_flow *flow, const fb_search_options *options, fb_error *err);

/**
 * Tell what is known of an entry without a replay, for example parameters that were checked when the step began. Before the first
 * ask.
 * Errors: FB_E_USAGE (not an entry, state no FB_SEEN_* that was seen), FB_E_ORDER.
 */
fb_status fb_search_know(fb_search *search, uint32_t tensor, int32_t seen, fb_error *err);

/* The next question, the same until it is answered; NULL when the search is over. */
const fb_question *fb_search_ask(fb_search *search);

/**
 * Answer it. seen  borrowed; count must be that of the question, or 1 where it is about all. A replay that failed as a whole (out
 * of memory, a crash) is answered FB_SEEN_UNTESTABLE throughout.
 * Errors: FB_E_USAGE, FB_E_ORDER (nothing was asked); nothing changed then.
 */
fb_status fb_search_answer(fb_search *search, const int32_t *seen, uint32_t count, fb_error *err);

/* found is FB_FOUND_NONE until fb_search_ask has returned NULL. */
const fb_search_verdict *fb_search_result(const fb_search *search);

/* Write the tensors of the shortest certain chain from `tensor` to the finding, both included. Returns their number, of which at
   most `room` were written; 0 when there is none. After the search is over. */
uint32_t fb_search_chain(const fb_search *search, uint32_t tensor, uint32_t *out, uint32_t room);

/* What was seen of a tensor: FB_SEEN_*. */
int32_t fb_search_seen(const fb_search *search, uint32_t tensor);

/* What a node did, as far as it was seen and leads to the finding. */
enum {
    FB_LABEL_UNKNOWN = 0,   /* not all of it was seen */
    FB_LABEL_CLEAN = 1,     /* finite in, finite out */
    FB_LABEL_GENERATE = 2,  /* finite in, not finite out */
    FB_LABEL_PROPAGATE = 3, /* not finite in, not finite out */
    FB_LABEL_KILL = 4       /* not finite in, finite out: swallowed */
};
int32_t fb_search_label(const fb_search *search, uint32_t node);

/* One replay: fill seen. Anything but FB_OK ends fb_search_run with that status; the search can be gone on with. */
typedef fb_status (*fb_search_replay)(void *ctx, const fb_question *question, int32_t *seen, fb_error *err);
fb_status fb_search_run(fb_search *search, fb_search_replay replay, void *ctx, fb_error *err);

void fb_search_free(fb_search *search);

#endif
