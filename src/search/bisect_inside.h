/* Inside bisect.h: the state of a search, shared by bisect.c (questions out, answers in) and bisect_plan.c (what to ask next). */
#ifndef FB_SEARCH_BISECT_INSIDE_H
#define FB_SEARCH_BISECT_INSIDE_H

#include "search/bisect.h"

/* What is known of a cut beside what is known of its tensors. */
enum { CUT_OPEN = 0, CUT_BAD = 1, CUT_CLOSED = 2 /* cannot be tested */ };

struct fb_search {
    fb_search_options options;
    fb_cone cone;
    fb_trace trace;
    uint32_t *list;                       /* [tensors] the tensors of the question */
    uint8_t *mark;                        /* [tensors] */
    uint8_t *expect;                      /* [tensors] FB_SEEN_* that a group is asked for; one_bit alone */
    uint8_t *cut;                         /* [end + 1] CUT_* */
    uint32_t *bad_change, *closed_change; /* [end + 2] by cut: how many more cross than cross the one before */
    uint32_t *again;                      /* [tensors] the witness, to be looked at again: what it read, then what was bad */
    uint8_t *again_expect;                /* [tensors] */
    uint32_t again_count, again_done;
    fb_candidate *candidates; /* [entries + nodes] */
    uint32_t *later;          /* [nodes] */
    fb_question question;
    fb_search_verdict verdict;
    int64_t low, high; /* cuts: everything at low is finite (-1: before the entries); at high something is not */
    uint32_t group;    /* one_bit: the most tensors that the next group may have; 0: no bound */
    int32_t asked;     /* a question is out */
    int32_t concluded; /* the candidates are in the verdict, the witness is being looked at again */
    int32_t refused;   /* state was bad on entry: the candidates are that state alone */
    int32_t failed_again;
    int32_t contradiction;
};

/* Fill s->question and return 1, or finish s->verdict and return 0. A pure function of what was answered so far. */
int fb_search_plan(fb_search *s);

#endif
