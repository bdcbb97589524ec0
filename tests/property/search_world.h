/*
 * Random dataflows with a life of their own, and brute force over them: what each tensor really holds in a replay, and which
 * origins that gives. It sees everything, also what is hidden from the search, and shares no code with src/search.
 */
#ifndef FB_TESTS_SEARCH_WORLD_H
#define FB_TESTS_SEARCH_WORLD_H

#include <stdint.h>
#include <string.h>

#include "search/bisect.h"

enum { WORLD_NODES = 64, WORLD_ENTRIES = 12, WORLD_OUTPUTS = 3, WORLD_INPUTS = 4 };
enum { WORLD_TENSORS = WORLD_ENTRIES + WORLD_NODES * WORLD_OUTPUTS, WORLD_EDGES = WORLD_NODES * WORLD_INPUTS };

/* What a tensor holds. */
enum { HOLDS_NAN = 1, HOLDS_NEG_INF = 2 };

typedef struct world {
    fb_flow flow;
    uint32_t producer[WORLD_TENSORS], flags[WORLD_TENSORS], inputs[WORLD_EDGES];
    uint64_t first[WORLD_NODES + 1];
    uint8_t makes[WORLD_TENSORS];                /* what its node puts there by itself; of an entry what it holds */
    uint8_t passes[WORLD_TENSORS][WORLD_INPUTS]; /* by input: HOLDS_* bits that come through */
    uint8_t turns[WORLD_TENSORS];                /* -Inf that comes through becomes NaN */
    uint8_t percent[WORLD_TENSORS];              /* 0: makes it always; else in so many replays of a hundred */
    uint8_t hidden[WORLD_TENSORS];               /* cannot be looked at */
    uint32_t finding;
    int chain, tame; /* tame: a node that reads something bad makes nothing bad by itself */
    int flaky;
    uint8_t holds[WORLD_TENSORS]; /* in the present replay */
    uint8_t sick[WORLD_TENSORS];  /* holds it, and not as a mask alone */
    uint64_t random;
} world;

static inline uint64_t world_draw(uint64_t *random, uint64_t below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (*random >> 11) % below;
}

static inline int world_chance(world *w, uint64_t per_mille)
{
    return world_draw(&w->random, 1000) < per_mille;
}

/* ---- one replay -------------------------------------------------------------------------------------------------------------- */

static inline uint8_t world_comes_through(const world *w, uint32_t t, int sick)
{
    uint8_t bits = 0;
    uint32_t node = w->producer[t];
    if (node == FB_FLOW_NONE) return 0;
    for (uint64_t e = w->first[node]; e < w->first[node + 1]; e++) {
        if (w->sick[w->inputs[e]] == sick) bits |= w->holds[w->inputs[e]] & w->passes[t][e - w->first[node]];
    }
    return (bits & HOLDS_NEG_INF) && w->turns[t] ? HOLDS_NAN : bits;
}

static inline int world_reads_sick(const world *w, uint32_t node)
{
    if (node == FB_FLOW_NONE) return 0;
    for (uint64_t e = w->first[node]; e < w->first[node + 1]; e++) {
        if (w->sick[w->inputs[e]]) return 1;
    }
    return 0;
}

static inline void world_replay(world *w)
{
    for (uint32_t t = 0; t < w->flow.tensors; t++) {
        int mask = (w->flags[t] & FB_FLOW_MASK) != 0;
        uint8_t sick = world_comes_through(w, t, 1);
        uint8_t own = w->makes[t];
        if (w->percent[t] && world_draw(&w->random, 100) >= w->percent[t]) own = 0;
        own |= world_comes_through(w, t, 0);
        if (w->tame && world_reads_sick(w, w->producer[t])) own &= mask ? HOLDS_NEG_INF : 0;
        w->holds[t] = own | sick;
        w->sick[t] = sick || (w->holds[t] & HOLDS_NAN) || (w->holds[t] && !mask);
    }
}

static inline int32_t world_look(const world *w, uint32_t t)
{
    if (w->hidden[t]) return FB_SEEN_UNTESTABLE;
    if (w->holds[t] & HOLDS_NAN) return FB_SEEN_BAD;
    return w->holds[t] ? FB_SEEN_NEG_INF : FB_SEEN_FINITE;
}

/* ---- brute force ------------------------------------------------------------------------------------------------------------- */

typedef struct truth {
    uint8_t bad[WORLD_TENSORS], reaches[WORLD_TENSORS];
    uint8_t node[WORLD_NODES], entry[WORLD_TENSORS]; /* origins by the rule of trace.h */
    uint8_t first[WORLD_NODES];                      /* those that come after no other one */
    uint8_t cause[WORLD_NODES];                      /* nodes whose own values really came through to the finding */
    uint32_t firsts, entries;
    int state_bad; /* an entry that belongs to the state, and has a way to the finding, holds NaN, and can be looked at */
    int state_inf; /* or -Inf that is not declared: the same thing to who answers in one bit */
} truth;

static inline int truth_bad(const world *w, const truth *is, uint32_t t)
{
    uint32_t node = w->producer[t];
    if (w->holds[t] & HOLDS_NAN) return 1;
    if (!w->holds[t]) return 0;
    if (!(w->flags[t] & FB_FLOW_MASK) || t == w->finding) return 1;
    if (node == FB_FLOW_NONE) return 0;
    for (uint64_t e = w->first[node]; e < w->first[node + 1]; e++) {
        if (is->bad[w->inputs[e]] && (w->holds[w->inputs[e]] & w->passes[t][e - w->first[node]])) return 1;
    }
    return 0;
}

/* Tensors from which `through` leads to the finding. Repeats until nothing changes, in no clever order. */
static inline void truth_reach(const world *w, const uint8_t *through, uint8_t *reaches)
{
    int changed = through == NULL || through[w->finding];
    memset(reaches, 0, WORLD_TENSORS);
    reaches[w->finding] = (uint8_t)changed;
    while (changed) {
        changed = 0;
        for (uint32_t t = w->flow.tensors; t-- > 0;) {
            uint32_t node = w->producer[t];
            if (!reaches[t] || node == FB_FLOW_NONE) continue;
            for (uint64_t e = w->first[node]; e < w->first[node + 1]; e++) {
                uint32_t input = w->inputs[e];
                if (reaches[input] || (through && !through[input])) continue;
                reaches[input] = 1;
                changed = 1;
            }
        }
    }
}

static inline int truth_reads_bad(const world *w, const truth *is, uint32_t node)
{
    for (uint64_t e = w->first[node]; e < w->first[node + 1]; e++) {
        if (is->bad[w->inputs[e]]) return 1;
    }
    return 0;
}

/* Nodes that read, however indirectly, one of the tensors in `from`, whatever lies between. */
static inline void truth_after(const world *w, const uint8_t *from, uint8_t *after)
{
    int changed = 1;
    memset(after, 0, WORLD_NODES);
    while (changed) {
        changed = 0;
        for (uint32_t k = w->flow.nodes; k-- > 0;) {
            for (uint64_t e = w->first[k]; e < w->first[k + 1] && !after[k]; e++) {
                uint32_t t = w->inputs[e];
                if (!from[t] && (w->producer[t] == FB_FLOW_NONE || !after[w->producer[t]])) continue;
                after[k] = 1;
                changed = 1;
            }
        }
    }
}

/* An origin is first when it does not come after another one: reads nothing that another one made, bad or not. */
static inline void truth_firsts(const world *w, truth *is)
{
    uint8_t made[WORLD_TENSORS], after[WORLD_NODES];
    for (uint32_t t = 0; t < w->flow.tensors; t++)
        made[t] = w->producer[t] == FB_FLOW_NONE ? is->entry[t] : is->node[w->producer[t]];
    truth_after(w, made, after);
    for (uint32_t k = 0; k < w->flow.nodes; k++) {
        is->first[k] = is->node[k] && !after[k];
        is->firsts += is->first[k];
    }
}

/* Follow what really came through, backwards from the finding. A node into which nothing sick came through is where it began. */
static inline void truth_causes(const world *w, truth *is)
{
    uint8_t wanted[WORLD_TENSORS] = {0};
    wanted[w->finding] = 1;
    for (uint32_t t = w->flow.tensors; t-- > 0;) {
        uint32_t node = w->producer[t];
        int came_through = 0;
        if (!wanted[t] || node == FB_FLOW_NONE) continue;
        for (uint64_t e = w->first[node]; e < w->first[node + 1]; e++) {
            uint32_t input = w->inputs[e];
            if (!is->bad[input] || !(w->holds[input] & w->passes[t][e - w->first[node]])) continue;
            wanted[input] = 1;
            came_through = 1;
        }
        if (!came_through) is->cause[node] = 1;
    }
}

/* Of the present replay. */
static inline void world_truth(const world *w, truth *is)
{
    uint8_t way[WORLD_TENSORS];
    memset(is, 0, sizeof *is);
    for (uint32_t t = 0; t < w->flow.tensors; t++) is->bad[t] = (uint8_t)truth_bad(w, is, t);
    truth_reach(w, is->bad, is->reaches);
    truth_reach(w, NULL, way);
    for (uint32_t t = 0; t < w->flow.tensors; t++) {
        uint32_t node = w->producer[t];
        if ((w->flags[t] & FB_FLOW_STATE) && way[t] && !w->hidden[t] && (w->holds[t] & HOLDS_NAN)) is->state_bad = 1;
        if ((w->flags[t] & FB_FLOW_STATE) && way[t] && !w->hidden[t] && w->holds[t] && !(w->flags[t] & FB_FLOW_MASK))
            is->state_inf = 1;
        if (!is->reaches[t]) continue;
        if (node == FB_FLOW_NONE) {
            is->entry[t] = 1;
            is->entries++;
        } else if (!truth_reads_bad(w, is, node)) {
            is->node[node] = 1;
        }
    }
    truth_firsts(w, is);
    truth_causes(w, is);
}

/* ---- making one -------------------------------------------------------------------------------------------------------------- */

static inline void world_entries(world *w)
{
    uint32_t entries = 1 + (uint32_t)world_draw(&w->random, WORLD_ENTRIES);
    int trouble = world_chance(w, 80); /* the state or the batch is bad on entry, harmless or not */
    for (uint32_t t = 0; t < entries; t++) {
        w->producer[t] = FB_FLOW_NONE;
        if (world_chance(w, 500)) w->flags[t] |= FB_FLOW_STATE;
        if (world_chance(w, 120)) {
            w->makes[t] = HOLDS_NEG_INF;
            if (world_chance(w, 800)) w->flags[t] |= FB_FLOW_MASK;
        }
        if (trouble && world_chance(w, 200)) w->makes[t] |= HOLDS_NAN;
    }
    w->flow.tensors = entries;
}

static inline uint32_t world_input(world *w, uint32_t made_first)
{
    uint32_t made = w->flow.tensors - made_first;
    if (!made || world_chance(w, 150)) return (uint32_t)world_draw(&w->random, made_first);
    if (world_chance(w, 700)) return w->flow.tensors - 1 - (uint32_t)world_draw(&w->random, made < 4 ? made : 4);
    return made_first + (uint32_t)world_draw(&w->random, made);
}

static inline void world_output(world *w, uint32_t node, uint64_t kill, uint64_t generate)
{
    uint32_t t = w->flow.tensors++;
    w->producer[t] = node;
    for (int i = 0; i < WORLD_INPUTS; i++)
        w->passes[t][i] = world_chance(w, kill) ? 0 : HOLDS_NAN | (world_chance(w, 700) ? HOLDS_NEG_INF : 0);
    w->turns[t] = (uint8_t)world_chance(w, 300);
    if (world_chance(w, generate)) w->makes[t] = world_chance(w, 750) ? HOLDS_NAN : HOLDS_NEG_INF;
    if (world_chance(w, 100)) {
        w->flags[t] |= FB_FLOW_MASK;
        if (world_chance(w, 700)) w->makes[t] |= HOLDS_NEG_INF;
    }
}

static inline void world_node(world *w, uint32_t node, uint32_t entries, uint64_t kill, uint64_t generate)
{
    uint32_t outputs = w->chain ? 1 : 1 + (uint32_t)world_draw(&w->random, WORLD_OUTPUTS);
    uint32_t inputs = w->chain ? 1 : 1 + (uint32_t)world_draw(&w->random, WORLD_INPUTS);
    uint64_t e = w->first[node];
    if (w->chain) {
        w->inputs[e++] = w->flow.tensors - 1;
        if (world_chance(w, 300)) w->inputs[e++] = (uint32_t)world_draw(&w->random, entries);
    } else {
        for (uint32_t i = 0; i < inputs; i++) w->inputs[e++] = world_input(w, entries);
    }
    w->first[node + 1] = e;
    while (outputs-- > 0) world_output(w, node, kill, generate);
}

static inline void world_spoil(world *w)
{
    int flaky = world_chance(w, 100);
    int hidden = world_chance(w, 250);
    uint64_t hide = world_chance(w, 500) ? 40 : 300;
    for (uint32_t t = 0; t < w->flow.tensors; t++) {
        if (flaky && w->makes[t] && world_chance(w, 400)) {
            w->percent[t] = (uint8_t)(1 + world_draw(&w->random, 98));
            w->flaky = 1;
        }
        if (hidden && t != w->finding && world_chance(w, hide)) w->hidden[t] = 1;
    }
}

/* A finding late in the flow that is bad in the first replay; 0 if there is none. */
static inline int world_find(world *w)
{
    uint32_t late = w->flow.tensors;
    world_replay(w);
    while (late-- > 0) {
        if (w->holds[late] && !(w->flags[late] & FB_FLOW_MASK) && (late + 8 < w->flow.tensors || world_chance(w, 600))) {
            w->finding = late;
            return 1;
        }
    }
    return 0;
}

/* Always the same for one seed; tries until something is found. */
static inline void world_make(world *w, uint64_t seed)
{
    static const uint64_t kills[] = {0, 100, 300, 600};
    memset(w, 0, sizeof *w);
    w->random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    do {
        uint64_t random = w->random;
        uint64_t kill, generate;
        uint32_t nodes;
        memset(w, 0, sizeof *w);
        w->random = random;
        (void)world_draw(&w->random, 2);
        nodes = 1 + (uint32_t)world_draw(&w->random, WORLD_NODES);
        kill = kills[world_draw(&w->random, 4)];
        generate = world_chance(w, 500) ? 1000 / nodes : 150;
        w->chain = world_chance(w, 400);
        w->tame = world_chance(w, 500);
        w->flow.nodes = nodes;
        w->flow.producer = w->producer;
        w->flow.flags = w->flags;
        w->flow.first = w->first;
        w->flow.inputs = w->inputs;
        world_entries(w);
        for (uint32_t k = 0, entries = w->flow.tensors; k < nodes; k++) world_node(w, k, entries, kill, generate);
    } while (!world_find(w));
    world_spoil(w);
}

#endif
