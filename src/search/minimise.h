/*
 * Make a failing input small: which of these samples (then: which of these spans of tokens) are needed for the fault to show again?
 * Pure: the caller runs the subsets, this decides which one to run next. The method is delta debugging (ddmin) of Zeller and
 * Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002.
 *
 * Calling order:
 *   fb_minimise_open
 *     while ((question = fb_minimise_ask(m)))  run with those items alone, fb_minimise_answer
 *   fb_minimise_result, fb_minimise_free
 * As in bisect.h the row of questions is a pure function of the options and the answers, and fb_minimise_run does it with a
 * callback.
 *
 * Items are numbers 0 .. items - 1, in an order in which neighbours belong together, since pieces are runs of neighbours.
 * The first question is always about all of them. Nothing that was settled is asked again; the empty set is never asked.
 *
 * k of n. Where a fault shows in some runs only, a subset is asked up to `asks` times. It counts as reproducing as soon as `needed`
 * runs showed the fault, and as not reproducing as soon as so many did not that `needed` is out of reach. Runs that could tell
 * neither (unresolved) use up an ask and count for neither; a subset that comes to neither end is unresolved, and is left aside
 * like one that does not reproduce. A fault that shows with probability q is missed in one subset with the binomial chance of fewer
 * than k in n: for k = 1 that is (1 - q)^n, so n = 5 misses one with q = 1/2 in 3% of the subsets. A miss leaves the result larger
 * than it need be, never one that does not reproduce.
 *
 * What is claimed. Whatever is returned reproduced, by this rule. "Minimal" means 1-minimal: without any one item it was not seen
 * to reproduce. It may not be the smallest set there is, nor the only one. When it holds several items they are needed together (a
 * batch statistic, a capacity, a normaliser), and no one of them is called the culprit.
 */
#ifndef FB_SEARCH_MINIMISE_H
#define FB_SEARCH_MINIMISE_H

#include "firstbad/firstbad.h"

enum { FB_MINIMISE_TESTS_MAX = 1000, FB_MINIMISE_ITEMS_MAX = 1 << 20 };

typedef struct fb_minimise_options {
    uint32_t items;     /* 1 .. FB_MINIMISE_ITEMS_MAX */
    uint32_t tests_max; /* runs, repeated ones included; 0: FB_MINIMISE_TESTS_MAX */
    uint32_t asks;      /* n; 0: 1 */
    uint32_t needed;    /* k, 1 .. n; 0: 1 */
} fb_minimise_options;

/* What a run with the items of a question showed. */
enum { FB_SHOWS_NO = 0, FB_SHOWS_YES = 1, FB_SHOWS_UNRESOLVED = 2 };

/* Valid until it is answered. */
typedef struct fb_subset {
    const uint32_t *items; /* ascending */
    uint32_t count;        /* >= 1 */
    uint32_t again;        /* how often the same subset was asked before */
} fb_subset;

/* Values may be written to files and are never renumbered. */
enum {
    FB_MINIMISE_NONE = 0,           /* not finished */
    FB_MINIMISE_MINIMAL = 1,        /* 1-minimal */
    FB_MINIMISE_BUDGET = 2,         /* the smallest that was found before the budget was spent */
    FB_MINIMISE_WHOLE = 3,          /* 1-minimal, and it is all items: coupled, no sample can be left out */
    FB_MINIMISE_NOT_REPRODUCED = 4, /* all items together did not show the fault */
    FB_MINIMISE_UNDECIDED = 5       /* nor could it be told whether they do */
};

typedef struct fb_minimise_verdict {
    int32_t found;         /* FB_MINIMISE_* */
    const uint32_t *items; /* ascending, owned by the search; NULL when nothing reproduced */
    uint32_t count;
    uint32_t
        unresolved; /* of the sets with one item less than the result, those of which it could not be told; not counted on BUDGET */
    uint32_t tests; /* runs */
    uint32_t subsets;       /* different subsets that were settled */
    uint32_t spared;        /* questions that were answered from memory */
    uint32_t showed, asked; /* k and n of the result itself */
} fb_minimise_verdict;

typedef struct fb_minimise fb_minimise;

/* Errors: FB_E_USAGE, FB_E_NOMEM. */
fb_status fb_minimise_open(fb_minimise **out, const fb_minimise_options *options, fb_error *err);
/* The next question, the same until it is answered; NULL when it is over. */
const fb_subset *fb_minimise_ask(fb_minimise *m);
/* Errors: FB_E_USAGE, FB_E_ORDER, FB_E_NOMEM (the answer was not taken and may be given again). */
fb_status fb_minimise_answer(fb_minimise *m, int32_t shows, fb_error *err);
/* found is FB_MINIMISE_NONE until fb_minimise_ask has returned NULL; items and count are then already the smallest set so far. */
const fb_minimise_verdict *fb_minimise_result(const fb_minimise *m);
/* Anything but FB_OK from the callback ends the run with that status; it can be gone on with. */
typedef fb_status (*fb_minimise_test)(void *ctx, const fb_subset *subset, int32_t *shows, fb_error *err);
fb_status fb_minimise_run(fb_minimise *m, fb_minimise_test test, void *ctx, fb_error *err);
/* Accepts NULL. */
void fb_minimise_free(fb_minimise *m);

#endif
