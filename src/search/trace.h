/*
 * What can be concluded from what was seen of the tensors: the one judge behind every strategy. A strategy only decides what to
 * look at next, so two of them cannot come to different answers out of the same dataflow, only to an answer sooner or later.
 *
 * A tensor counts as bad when it holds NaN or +Inf, or -Inf where none may be intended. Where -Inf may be intended (FB_FLOW_MASK)
 * and nothing else was found, it counts as finite when everything that its producer read does. When that read something bad, it may
 * be carrying it or just be a mask, and so it may be either.
 * A *chain* is a row of bad tensors, each read by the node that made the next, that ends with the finding.
 * An *origin* is a node that read nothing bad and made a tensor with a chain; or an entry with a chain.
 *
 * What was not seen may be either. So every origin under any reading of the unseen is possible, and one under every reading is
 * witnessed. With nothing left unseen, and no such mask, the two are the same.
 *
 * *First* are the origins that come after no other one. A node comes after another, or after an entry, when it reads something that
 * the other made, however indirectly and whatever it holds. A tensor that has a certain chain began at an origin under every
 * reading; so a node that comes after the one that made it comes after an origin, whichever that is, and is *late*. Candidates are
 * the possible origins that are not late.
 */
#ifndef FB_SEARCH_TRACE_H
#define FB_SEARCH_TRACE_H

#include "search/flow.h"

/* What a replay saw of a tensor. A tensor that is spread over ranks, or of which each rank has one, is as bad as the worst: the
   largest of these numbers, an integer MAX over all ranks. Values may be written to files and are never renumbered. */
enum {
    FB_SEEN_NOT = 0, /* nobody looked yet */
    FB_SEEN_FINITE = 1,
    FB_SEEN_NEG_INF = 2,    /* -Inf and finite values, nothing else */
    FB_SEEN_UNTESTABLE = 3, /* the replay cannot look there, or did not get there */
    FB_SEEN_BAD = 4         /* NaN, +Inf, or non-finite of a kind that was not looked at */
};

typedef struct fb_trace {
    const fb_cone *cone;
    int masks_unsaid;    /* FB_SEEN_FINITE may stand for -Inf where it may be intended, since the answers have no word for it */
    uint8_t *seen;       /* [tensors] FB_SEEN_* as answered */
    uint8_t *counts_as;  /* [tensors] FB_SEEN_FINITE, FB_SEEN_BAD, or FB_SEEN_NOT for "may be either" */
    uint8_t *may, *must; /* [tensors] a chain runs through it under some reading; under every one */
    uint32_t *steps;     /* [tensors] where must: links to the finding on the shortest chain */
    uint32_t *next;      /* [tensors] where must: the next tensor of that chain; FB_FLOW_NONE at the finding */
    uint8_t *late;       /* [nodes] FB_LATE, FB_LATE_BEHIND */
} fb_trace;

fb_status fb_trace_init(fb_trace *trace, const fb_cone *cone, fb_error *err);
void fb_trace_release(fb_trace *trace);

/* Fill counts_as out of seen. One pass over all edges, no memory taken; the same for those below. */
void fb_trace_settle(fb_trace *trace);
/* Fill may, must, steps and next out of counts_as. */
void fb_trace_chains(fb_trace *trace);
enum {
    FB_LATE = 1,       /* it comes after an entry or a node that has a certain chain */
    FB_LATE_BEHIND = 2 /* so does what comes after it: it is late, or has such a chain itself */
};
/* Bits of one node, out of must, and of late as far as the nodes before it go. */
uint8_t fb_trace_late(const fb_trace *trace, uint32_t node);
/* Fill late. */
void fb_trace_order(fb_trace *trace);

/* What node k read and made, out of counts_as; outputs that do not lead to the finding are left out. Bits. */
enum { FB_READ_BAD = 1, FB_READ_UNSEEN = 2, FB_MADE_BAD = 4, FB_MADE_UNSEEN = 8, FB_MADE_FINITE = 16 };
int fb_trace_node(const fb_trace *trace, uint32_t node);

/* 0: node or entry is no origin; 1: it may be one; 2: it is one for certain. Whether it is late is not asked here. */
enum { FB_ORIGIN_NO = 0, FB_ORIGIN_POSSIBLE = 1, FB_ORIGIN_WITNESSED = 2 };
int fb_trace_node_origin(const fb_trace *trace, uint32_t node);
int fb_trace_entry_origin(const fb_trace *trace, uint32_t tensor);

/* The tensor that node made from which the chain to the finding is shortest; FB_FLOW_NONE when there is no certain chain. */
uint32_t fb_trace_chain_start(const fb_trace *trace, uint32_t node);

#endif
