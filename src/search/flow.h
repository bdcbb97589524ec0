/*
 * The dataflow that a search walks through: which operation reads what and makes what. Pure: no files, no clock.
 *
 * The model. A *node* is the smallest thing that the caller can look at from outside: a module, an operator, a collective, forward
 * or backward. A *tensor* is one value with one place, made by one node (its producer) or by none: then it is an *entry*, there
 * before the step began, such as a parameter, a buffer or the batch. A node reads any number of tensors, reads one twice if it
 * wants, and makes any number of tensors. What a node saves for backward is one more tensor that it makes; a backward node reads
 * it. So branches, residual sums, several outputs and the way from forward into backward are all the same thing: an edge from a
 * tensor to a node that reads it.
 *
 * Nodes are numbered in causal order: a node reads only entries and what nodes with smaller numbers made. Forward counts up along
 * the dataflow, backward goes on counting from the loss down. Ranks of one step share one numbering, transfers between them are
 * nodes.
 */
#ifndef FB_SEARCH_FLOW_H
#define FB_SEARCH_FLOW_H

#include "firstbad/firstbad.h"

/* In the place of a producer: the tensor is an entry. In the place of a node: none. */
#define FB_FLOW_NONE UINT32_MAX

enum {
    FB_FLOW_STATE = 1u, /* an entry that belongs to the state: parameter, moment, buffer. Bad here means "bad before this step" */
    FB_FLOW_MASK = 2u   /* -Inf may be intended here: an additive mask, or scores to which one was added */
};

/* Borrowed: the arrays stay with the caller, unchanged, for as long as anything made from them lives. */
typedef struct fb_flow {
    uint32_t nodes, tensors;  /* at most UINT32_MAX - 2 each */
    const uint32_t *producer; /* [tensors] node, or FB_FLOW_NONE */
    const uint32_t *flags;    /* [tensors] FB_FLOW_STATE, FB_FLOW_MASK; NULL: all 0 */
    const uint64_t *first;    /* [nodes + 1] node k reads inputs[first[k]] .. inputs[first[k + 1] - 1] */
    const uint32_t *inputs;   /* [first[nodes]] tensors */
} fb_flow;

/* Errors: FB_E_USAGE for anything that the model above does not allow; the message names the node and the tensor. */
fb_status fb_flow_check(const fb_flow *flow, fb_error *err);

/*
 * What a finding can come from: the tensors that have a way to it. Cut i lies just before node i, and a tensor crosses it that is
 * there by then and is read later: born <= i <= last_use. Whatever a node before i did to the finding, it did through a tensor that
 * crosses.
 * So when all that crosses is finite, nothing before the cut matters. Cut 0 holds the entries, cut `end` the finding alone.
 */
typedef struct fb_cone {
    const fb_flow *flow;
    uint32_t finding;      /* tensor */
    uint32_t end;          /* producer of the finding + 1; 0 when the finding is an entry */
    uint32_t tensors;      /* that matter */
    uint32_t *order;       /* [tensors of the flow] sorted by birth: entries, then what node 0 made, ... */
    uint32_t *order_first; /* [nodes + 2] entries are order[0 ..), what node k made starts at order[order_first[k + 1]] */
    uint32_t *born;        /* [tensors] 0 for an entry, else producer + 1 */
    uint32_t *last_use;    /* [tensors] the last node that reads it and matters; `end` for the finding */
    uint8_t *matters;      /* [tensors] */
    uint8_t *node_matters; /* [nodes] */
} fb_cone;

/* The flow must have passed fb_flow_check, and finding be one of its tensors. Errors: FB_E_NOMEM; release what is half-built. */
fb_status fb_cone_init(fb_cone *cone, const fb_flow *flow, uint32_t finding, fb_error *err);
/* Accepts a zeroed struct. */
void fb_cone_release(fb_cone *cone);

#endif
