/*
 * The nodes of a parsed pickle and the room they live in. Written by the interpreter (pickle.c), read through pickle.h.
 *
 * A node takes 16 bytes. Children are runs of node ids in one pool; a run that may grow (list, dict, set) has room for the next
 * power of two, and a run that was left for a larger one is used again for another, so that the pool holds at most two ids for each
 * child.
 * The worst that a byte of a pickle can ask for is 24 bytes of memory (an empty list in a list); None, True, False and the empty
 * tuple exist once. With the default limits that is 0.8 GB of nodes and 1.6 GB of children at the very most, and half as much again
 * while a table moves. Real files need 2 to 4 bytes for each of theirs.
 */
#ifndef FB_CKPT_PICKLE_GRAPH_H
#define FB_CKPT_PICKLE_GRAPH_H

#include "ckpt/pickle.h"

enum {
    FB_PICKLE_OWN_TEXT = 1, /* the text lies in graph->text and not in the pickle */
    FB_PICKLE_WITH_KEYWORDS = 2
};

typedef struct fb_pickle_node {
    uint8_t kind;
    uint8_t flags;
    uint16_t reserved;
    uint32_t at; /* of its opcode, from the start of the pickle */
    union {
        int64_t i;
        uint64_t bits;
        struct {
            uint32_t at, bytes;
        } text;
        struct {
            uint32_t at, count; /* in the pool */
        } run;
    } v;
} fb_pickle_node;

/* Places in the run of a CALL. */
enum { FB_CALL_CALLEE, FB_CALL_ARGUMENTS, FB_CALL_ITEMS, FB_CALL_STATE, FB_CALL_KEYWORDS, FB_CALL_PLACES };

struct fb_pickle {
    const uint8_t *data;
    uint64_t base;
    fb_pickle_node *nodes; /* nodes[0] is no node */
    uint64_t node_count, node_room;
    uint32_t *pool;
    uint64_t pool_used, pool_room;
    uint32_t free_runs[33]; /* heads of lists of runs of 2^k places; 0: none. Place 0 of the pool is never given out */
    char *text;             /* names of globals, "module name" */
    uint64_t text_used, text_room;
    uint32_t *globals; /* each once, in order of appearance */
    uint64_t global_count, global_room;
    uint32_t *global_slots; /* open addressing, power of two; node ids */
    uint64_t global_slot_count;
    fb_node root;
};

/* Each of these is 0 without memory. */

/* Make room for `need` elements of `size` bytes, growing by half. */
int fb_pickle_grow(void **block, uint64_t *room, uint64_t need, size_t size);
fb_node fb_graph_add(fb_pickle *graph, uint8_t kind, uint64_t at);
/* A node whose children never change. */
fb_node fb_graph_add_fixed(fb_pickle *graph, uint8_t kind, uint64_t at, const uint32_t *children, uint64_t count);
/* Add children at the end of a LIST, DICT or SET. */
int fb_graph_append(fb_pickle *graph, fb_node node, const uint32_t *children, uint64_t count);
/* The GLOBAL of this name; the same name is the same node. */
fb_node fb_graph_global(fb_pickle *graph, const char *text, uint64_t bytes, uint64_t at);
/* The place of a CALL's part, good until the pool grows. */
uint32_t *fb_graph_call_part(const fb_pickle *graph, fb_node call, int part);

#endif
