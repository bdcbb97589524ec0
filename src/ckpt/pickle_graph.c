#include "ckpt/pickle_graph.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

int fb_pickle_grow(void **block, uint64_t *room, uint64_t need, size_t size)
{
    uint64_t wanted = *room + *room / 2 + 64;
    void *grown;
    if (need <= *room) return 1;
    if (wanted < need) wanted = need;
    if (wanted > SIZE_MAX / size || !(grown = fb_realloc(*block, (size_t)wanted * size))) return 0;
    *block = grown;
    *room = wanted;
    return 1;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------------ */

fb_node fb_graph_add(fb_pickle *graph, uint8_t kind, uint64_t at)
{
    fb_pickle_node *node;
    if (graph->node_count >= UINT32_MAX - 1) return 0;
    if (!fb_pickle_grow((void **)&graph->nodes, &graph->node_room, graph->node_count + 2, sizeof *graph->nodes)) return 0;
    node = &graph->nodes[++graph->node_count];
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->at = (uint32_t)at;
    return (fb_node)graph->node_count;
}

/* Room for 2^order ids when order is not negative, else for exactly `count`. 0 without memory. */
static uint32_t take_run(fb_pickle *graph, int order, uint64_t count)
{
    uint64_t places = order >= 0 ? (uint64_t)1 << order : count;
    uint32_t at;
    if (order >= 0 && graph->free_runs[order]) {
        at = graph->free_runs[order];
        graph->free_runs[order] = graph->pool[at];
        return at;
    }
    if (graph->pool_used == 0) graph->pool_used = 1;
    if (graph->pool_used + places > UINT32_MAX) return 0;
    if (!fb_pickle_grow((void **)&graph->pool, &graph->pool_room, graph->pool_used + places, sizeof *graph->pool)) return 0;
    at = (uint32_t)graph->pool_used;
    graph->pool_used += places;
    return at;
}

static int order_of(uint64_t count)
{
    int order = 0;
    while (((uint64_t)1 << order) < count) order++;
    return order;
}

fb_node fb_graph_add_fixed(fb_pickle *graph, uint8_t kind, uint64_t at, const uint32_t *children, uint64_t count)
{
    uint32_t run = count ? take_run(graph, -1, count) : 0;
    fb_node node = count && !run ? 0 : fb_graph_add(graph, kind, at);
    if (!node) return 0;
    if (count) memcpy(graph->pool + run, children, (size_t)count * sizeof *children);
    graph->nodes[node].v.run.at = run;
    graph->nodes[node].v.run.count = (uint32_t)count;
    return node;
}

int fb_graph_append(fb_pickle *graph, fb_node node, const uint32_t *children, uint64_t count)
{
    fb_pickle_node *n = &graph->nodes[node];
    uint64_t before = n->v.run.count, after = before + count;
    int order = order_of(after);
    if (count == 0) return 1;
    if (after > UINT32_MAX / 2) return 0;
    if (before == 0 || order_of(before) != order) {
        uint32_t run = take_run(graph, order, 0);
        if (!run) return 0;
        if (before) {
            int old = order_of(before);
            memcpy(graph->pool + run, graph->pool + n->v.run.at, (size_t)before * sizeof *graph->pool);
            graph->pool[n->v.run.at] = graph->free_runs[old];
            graph->free_runs[old] = n->v.run.at;
        }
        n->v.run.at = run;
    }
    memcpy(graph->pool + n->v.run.at + before, children, (size_t)count * sizeof *children);
    n->v.run.count = (uint32_t)after;
    return 1;
}

uint32_t *fb_graph_call_part(const fb_pickle *graph, fb_node call, int part)
{
    return &graph->pool[graph->nodes[call].v.run.at + (uint32_t)part];
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

/* The seed is an address, so that nobody can make names that meet in one slot. */
static uint64_t slot_of(const fb_pickle *graph, const char *text, uint64_t bytes)
{
    return fb_hash64(text, (size_t)bytes, (uint64_t)(uintptr_t)graph) & (graph->global_slot_count - 1);
}

static int grow_slots(fb_pickle *graph)
{
    uint64_t count = graph->global_slot_count ? graph->global_slot_count * 2 : 64;
    uint32_t *old = graph->global_slots, *slots;
    if (graph->global_slot_count && (graph->global_count + 1) * 2 <= graph->global_slot_count) return 1;
    slots = fb_calloc((size_t)count, sizeof *slots);
    if (!slots) return 0;
    graph->global_slots = slots;
    graph->global_slot_count = count;
    for (uint64_t i = 0; i < graph->global_count; i++) {
        const fb_pickle_node *n = &graph->nodes[graph->globals[i]];
        uint64_t slot = slot_of(graph, graph->text + n->v.text.at, n->v.text.bytes);
        while (slots[slot]) slot = (slot + 1) & (count - 1);
        slots[slot] = graph->globals[i];
    }
    fb_free(old);
    return 1;
}

fb_node fb_graph_global(fb_pickle *graph, const char *text, uint64_t bytes, uint64_t at)
{
    uint64_t slot;
    fb_node node;
    if (!grow_slots(graph)) return 0;
    for (slot = slot_of(graph, text, bytes); (node = graph->global_slots[slot]) != 0;
         slot = (slot + 1) & (graph->global_slot_count - 1)) {
        const fb_pickle_node *n = &graph->nodes[node];
        if (n->v.text.bytes == bytes && memcmp(graph->text + n->v.text.at, text, (size_t)bytes) == 0) return node;
    }
    if (!fb_pickle_grow((void **)&graph->globals, &graph->global_room, graph->global_count + 1, sizeof *graph->globals)) return 0;
    if (!fb_pickle_grow((void **)&graph->text, &graph->text_room, graph->text_used + bytes, 1)) return 0;
    if (!(node = fb_graph_add(graph, FB_PICKLE_GLOBAL, at))) return 0;
    graph->nodes[node].flags = FB_PICKLE_OWN_TEXT;
    graph->nodes[node].v.text.at = (uint32_t)graph->text_used;
    graph->nodes[node].v.text.bytes = (uint32_t)bytes;
    memcpy(graph->text + graph->text_used, text, (size_t)bytes);
    graph->text_used += bytes;
    graph->globals[graph->global_count++] = node;
    graph->global_slots[slot] = node;
    return node;
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

static const fb_pickle_node *node_of(const fb_pickle *pickle, fb_node node)
{
    return node && node <= pickle->node_count ? &pickle->nodes[node] : NULL;
}

fb_node fb_pickle_root(const fb_pickle *pickle)
{
    return pickle->root;
}

uint64_t fb_pickle_nodes(const fb_pickle *pickle)
{
    return pickle->node_count;
}

int32_t fb_pickle_kind(const fb_pickle *pickle, fb_node node)
{
    const fb_pickle_node *n = node_of(pickle, node);
    return n ? n->kind : 0;
}

uint64_t fb_pickle_at(const fb_pickle *pickle, fb_node node)
{
    const fb_pickle_node *n = node_of(pickle, node);
    return pickle->base + (n ? n->at : 0);
}

int64_t fb_pickle_int(const fb_pickle *pickle, fb_node node)
{
    const fb_pickle_node *n = node_of(pickle, node);
    return n && (n->kind == FB_PICKLE_INT || n->kind == FB_PICKLE_BOOL) ? n->v.i : 0;
}

uint64_t fb_pickle_float_bits(const fb_pickle *pickle, fb_node node)
{
    const fb_pickle_node *n = node_of(pickle, node);
    return n && n->kind == FB_PICKLE_FLOAT ? n->v.bits : 0;
}

const char *fb_pickle_text(const fb_pickle *pickle, fb_node node, uint64_t *bytes)
{
    const fb_pickle_node *n = node_of(pickle, node);
    *bytes = 0;
    if (!n ||
        (n->kind != FB_PICKLE_TEXT && n->kind != FB_PICKLE_BYTES && n->kind != FB_PICKLE_GLOBAL && n->kind != FB_PICKLE_BIGINT))
        return "";
    *bytes = n->v.text.bytes;
    return n->flags & FB_PICKLE_OWN_TEXT ? pickle->text + n->v.text.at : (const char *)pickle->data + n->v.text.at;
}

int fb_pickle_text_is(const fb_pickle *pickle, fb_node node, const char *text)
{
    uint64_t bytes;
    const char *found = fb_pickle_text(pickle, node, &bytes);
    int32_t kind = fb_pickle_kind(pickle, node);
    if (kind != FB_PICKLE_TEXT && kind != FB_PICKLE_BYTES && kind != FB_PICKLE_GLOBAL) return 0;
    return bytes == strlen(text) && memcmp(found, text, (size_t)bytes) == 0;
}

uint64_t fb_pickle_children(const fb_pickle *pickle, fb_node node)
{
    const fb_pickle_node *n = node_of(pickle, node);
    if (!n) return 0;
    switch (n->kind) {
    case FB_PICKLE_LIST:
    case FB_PICKLE_TUPLE:
    case FB_PICKLE_DICT:
    case FB_PICKLE_SET: return n->v.run.count;
    case FB_PICKLE_PERSISTENT: return 1;
    case FB_PICKLE_CALL: return n->flags & FB_PICKLE_WITH_KEYWORDS ? 3 : 2;
    default: return 0;
    }
}

fb_node fb_pickle_child(const fb_pickle *pickle, fb_node node, uint64_t i)
{
    const fb_pickle_node *n;
    if (i >= fb_pickle_children(pickle, node)) return 0;
    n = &pickle->nodes[node];
    if (n->kind == FB_PICKLE_PERSISTENT) return n->v.run.at;
    if (n->kind == FB_PICKLE_CALL && i == 2) i = FB_CALL_KEYWORDS;
    return pickle->pool[n->v.run.at + i];
}

fb_node fb_pickle_items(const fb_pickle *pickle, fb_node node)
{
    return fb_pickle_kind(pickle, node) == FB_PICKLE_CALL ? *fb_graph_call_part(pickle, node, FB_CALL_ITEMS) : 0;
}

fb_node fb_pickle_state(const fb_pickle *pickle, fb_node node)
{
    return fb_pickle_kind(pickle, node) == FB_PICKLE_CALL ? *fb_graph_call_part(pickle, node, FB_CALL_STATE) : 0;
}

fb_node fb_pickle_get(const fb_pickle *pickle, fb_node dict, const char *key)
{
    fb_node from = fb_pickle_kind(pickle, dict) == FB_PICKLE_CALL ? fb_pickle_items(pickle, dict) : dict;
    if (fb_pickle_kind(pickle, from) != FB_PICKLE_DICT) return 0;
    for (uint64_t i = fb_pickle_children(pickle, from); i >= 2; i -= 2) {
        fb_node name = fb_pickle_child(pickle, from, i - 2);
        if (fb_pickle_kind(pickle, name) == FB_PICKLE_TEXT && fb_pickle_text_is(pickle, name, key))
            return fb_pickle_child(pickle, from, i - 1);
    }
    return 0;
}

fb_node fb_pickle_global(const fb_pickle *pickle, uint64_t i)
{
    return i < pickle->global_count ? pickle->globals[i] : 0;
}

void fb_pickle_free(fb_pickle *pickle)
{
    if (!pickle) return;
    fb_free(pickle->nodes);
    fb_free(pickle->pool);
    fb_free(pickle->text);
    fb_free(pickle->globals);
    fb_free(pickle->global_slots);
    fb_free(pickle);
}
