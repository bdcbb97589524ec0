/* What follows from what was seen: what counts as bad, which chains reach the finding, and where they start. */
#include "search/trace.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

fb_status fb_trace_init(fb_trace *trace, const fb_cone *cone, fb_error *err)
{
    size_t tensors = cone->flow->tensors;
    memset(trace, 0, sizeof *trace);
    trace->cone = cone;
    trace->seen = fb_calloc(tensors, 1);
    trace->counts_as = fb_calloc(tensors, 1);
    trace->may = fb_calloc(tensors, 1);
    trace->must = fb_calloc(tensors, 1);
    trace->steps = fb_calloc(tensors, sizeof *trace->steps);
    trace->next = fb_calloc(tensors, sizeof *trace->next);
    trace->late = fb_calloc((size_t)cone->flow->nodes + 1, 1);
    if (trace->seen && trace->counts_as && trace->may && trace->must && trace->steps && trace->next && trace->late) return FB_OK;
    return fb_fail(err, FB_E_NOMEM, "search dataflow: no memory for what is seen of %zu tensors", tensors);
}

void fb_trace_release(fb_trace *trace)
{
    fb_free(trace->seen);
    fb_free(trace->counts_as);
    fb_free(trace->may);
    fb_free(trace->must);
    fb_free(trace->steps);
    fb_free(trace->next);
    fb_free(trace->late);
    memset(trace, 0, sizeof *trace);
}

/* ---- what counts as bad ------------------------------------------------------------------------------------------------------ */

static int mask(const fb_flow *flow, uint32_t t)
{
    return flow->flags && (flow->flags[t] & FB_FLOW_MASK);
}

static int reads_only_finite(const fb_trace *trace, uint32_t node)
{
    const fb_flow *flow = trace->cone->flow;
    for (uint64_t e = flow->first[node]; e < flow->first[node + 1]; e++) {
        if (trace->counts_as[flow->inputs[e]] != FB_SEEN_FINITE) return 0;
    }
    return 1;
}

static uint8_t settle(const fb_trace *trace, uint32_t t)
{
    uint8_t seen = trace->seen[t];
    uint32_t born = trace->cone->born[t];
    if (seen == FB_SEEN_UNTESTABLE || seen == FB_SEEN_NOT) return FB_SEEN_NOT;
    /* Whatever it holds, the finding is what all this is about. */
    if (!mask(trace->cone->flow, t) || t == trace->cone->finding) return seen == FB_SEEN_FINITE ? FB_SEEN_FINITE : FB_SEEN_BAD;
    if (seen == FB_SEEN_BAD || (seen == FB_SEEN_FINITE && !trace->masks_unsaid)) return seen;
    return born == 0 || reads_only_finite(trace, born - 1) ? FB_SEEN_FINITE : FB_SEEN_NOT;
}

void fb_trace_settle(fb_trace *trace)
{
    const fb_cone *cone = trace->cone;
    for (uint32_t i = 0; i < cone->flow->tensors; i++) {
        uint32_t t = cone->order[i];
        if (cone->matters[t]) trace->counts_as[t] = settle(trace, t);
    }
}

/* ---- chains ------------------------------------------------------------------------------------------------------------------ */

uint32_t fb_trace_chain_start(const fb_trace *trace, uint32_t node)
{
    const fb_cone *cone = trace->cone;
    uint32_t best = FB_FLOW_NONE;
    for (uint32_t i = cone->order_first[node + 1]; i < cone->order_first[node + 2]; i++) {
        uint32_t t = cone->order[i];
        if (trace->must[t] && (best == FB_FLOW_NONE || trace->steps[t] < trace->steps[best])) best = t;
    }
    return best;
}

static int may_lead_on(const fb_trace *trace, uint32_t node)
{
    const fb_cone *cone = trace->cone;
    for (uint32_t i = cone->order_first[node + 1]; i < cone->order_first[node + 2]; i++) {
        if (trace->may[cone->order[i]]) return 1;
    }
    return 0;
}

static void link_input(fb_trace *trace, uint32_t input, uint32_t output)
{
    if (trace->counts_as[input] == FB_SEEN_FINITE) return;
    trace->may[input] = 1;
    if (trace->counts_as[input] != FB_SEEN_BAD || output == FB_FLOW_NONE) return;
    if (trace->must[input] && trace->steps[input] <= trace->steps[output] + 1) return;
    trace->must[input] = 1;
    trace->steps[input] = trace->steps[output] + 1;
    trace->next[input] = output;
}

void fb_trace_chains(fb_trace *trace)
{
    const fb_cone *cone = trace->cone;
    const fb_flow *flow = cone->flow;
    memset(trace->may, 0, flow->tensors);
    memset(trace->must, 0, flow->tensors);
    trace->may[cone->finding] = 1;
    trace->must[cone->finding] = trace->counts_as[cone->finding] == FB_SEEN_BAD;
    trace->steps[cone->finding] = 0;
    trace->next[cone->finding] = FB_FLOW_NONE;
    for (uint32_t k = cone->end; k-- > 0;) {
        uint32_t output;
        if (!cone->node_matters[k] || !may_lead_on(trace, k)) continue;
        output = fb_trace_chain_start(trace, k);
        for (uint64_t e = flow->first[k]; e < flow->first[k + 1]; e++) link_input(trace, flow->inputs[e], output);
    }
}

/* ---- first and later --------------------------------------------------------------------------------------------------------- */

static int certain_chain(const fb_trace *trace, uint32_t node)
{
#ifdef FB_BREAK_P5_first
    return may_lead_on(trace, node); /* the broken build takes what may be bad for something that is */
#else
    return fb_trace_chain_start(trace, node) != FB_FLOW_NONE;
#endif
}

uint8_t fb_trace_late(const fb_trace *trace, uint32_t node)
{
    const fb_cone *cone = trace->cone;
    const fb_flow *flow = cone->flow;
    if (!cone->node_matters[node]) return 0;
    for (uint64_t e = flow->first[node]; e < flow->first[node + 1]; e++) {
        uint32_t born = cone->born[flow->inputs[e]];
        if (born ? trace->late[born - 1] & FB_LATE_BEHIND : trace->must[flow->inputs[e]]) return FB_LATE | FB_LATE_BEHIND;
    }
    return certain_chain(trace, node) ? FB_LATE_BEHIND : 0;
}

void fb_trace_order(fb_trace *trace)
{
    memset(trace->late, 0, trace->cone->flow->nodes);
    for (uint32_t k = 0; k < trace->cone->end; k++) trace->late[k] = fb_trace_late(trace, k);
}

/* ---- origins ----------------------------------------------------------------------------------------------------------------- */

int fb_trace_node(const fb_trace *trace, uint32_t node)
{
    const fb_cone *cone = trace->cone;
    const fb_flow *flow = cone->flow;
    int bits = 0;
    for (uint64_t e = flow->first[node]; e < flow->first[node + 1]; e++) {
        uint8_t input = trace->counts_as[flow->inputs[e]];
        if (input != FB_SEEN_FINITE) bits |= input == FB_SEEN_BAD ? FB_READ_BAD : FB_READ_UNSEEN;
    }
    for (uint32_t i = cone->order_first[node + 1]; i < cone->order_first[node + 2]; i++) {
        uint8_t output = trace->counts_as[cone->order[i]];
        if (!cone->matters[cone->order[i]]) continue;
        bits |= output == FB_SEEN_BAD ? FB_MADE_BAD : output == FB_SEEN_FINITE ? FB_MADE_FINITE : FB_MADE_UNSEEN;
    }
    return bits;
}

int fb_trace_node_origin(const fb_trace *trace, uint32_t node)
{
    int bits;
    if (!trace->cone->node_matters[node] || !may_lead_on(trace, node)) return FB_ORIGIN_NO;
    bits = fb_trace_node(trace, node);
    if (bits & FB_READ_BAD) return FB_ORIGIN_NO;
    if ((bits & FB_READ_UNSEEN) || fb_trace_chain_start(trace, node) == FB_FLOW_NONE) return FB_ORIGIN_POSSIBLE;
    return FB_ORIGIN_WITNESSED;
}

int fb_trace_entry_origin(const fb_trace *trace, uint32_t tensor)
{
    if (trace->cone->born[tensor] != 0 || !trace->may[tensor]) return FB_ORIGIN_NO;
    return trace->must[tensor] ? FB_ORIGIN_WITNESSED : FB_ORIGIN_POSSIBLE;
}
