/* Check a dataflow, and find what one of its tensors can come from. */
#include "search/flow.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* ---- check ------------------------------------------------------------------------------------------------------------------- */

static fb_status check_tensors(const fb_flow *flow, fb_error *err)
{
    for (uint32_t t = 0; t < flow->tensors; t++) {
        uint32_t flags = flow->flags ? flow->flags[t] : 0;
        if (flow->producer[t] != FB_FLOW_NONE && flow->producer[t] >= flow->nodes) {
            return fb_fail(err, FB_E_USAGE, "check dataflow: tensor %u is made by node %u, and there are %u nodes", t,
                           flow->producer[t], flow->nodes);
        }
        if (flags & ~(uint32_t)(FB_FLOW_STATE | FB_FLOW_MASK)) {
            return fb_fail(err, FB_E_USAGE, "check dataflow: tensor %u has unknown flags %#x", t, flags);
        }
        if ((flags & FB_FLOW_STATE) && flow->producer[t] != FB_FLOW_NONE) {
            return fb_fail(err, FB_E_USAGE, "check dataflow: tensor %u is made by node %u, so it cannot be state on entry", t,
                           flow->producer[t]);
        }
    }
    return FB_OK;
}

static fb_status check_inputs(const fb_flow *flow, uint32_t node, fb_error *err)
{
    for (uint64_t e = flow->first[node]; e < flow->first[node + 1]; e++) {
        uint32_t t = flow->inputs[e];
        if (t >= flow->tensors) {
            return fb_fail(err, FB_E_USAGE, "check dataflow: node %u reads tensor %u, and there are %u tensors", node, t,
                           flow->tensors);
        }
        if (flow->producer[t] != FB_FLOW_NONE && flow->producer[t] >= node) {
            return fb_fail(err, FB_E_USAGE,
                           "check dataflow: node %u reads tensor %u, which node %u makes later; number nodes in causal order", node,
                           t, flow->producer[t]);
        }
    }
    return FB_OK;
}

fb_status fb_flow_check(const fb_flow *flow, fb_error *err)
{
    fb_status status;
    if (!flow || !flow->first || (flow->tensors && !flow->producer)) {
        return fb_fail(err, FB_E_USAGE, "check dataflow: an argument is NULL");
    }
    if (flow->nodes > UINT32_MAX - 2 || flow->tensors > UINT32_MAX - 2) {
        return fb_fail(err, FB_E_USAGE, "check dataflow: %u nodes and %u tensors, at most %u are taken", flow->nodes, flow->tensors,
                       UINT32_MAX - 2);
    }
    if ((status = check_tensors(flow, err)) != FB_OK) return status;
    if (flow->first[0] != 0) return fb_fail(err, FB_E_USAGE, "check dataflow: the inputs of node 0 do not start at 0");
    for (uint32_t k = 0; k < flow->nodes; k++) {
        if (flow->first[k + 1] < flow->first[k] || (flow->first[k + 1] && !flow->inputs)) {
            return fb_fail(err, FB_E_USAGE, "check dataflow: the inputs of node %u end before they start, or are NULL", k);
        }
        if ((status = check_inputs(flow, k, err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* ---- cone -------------------------------------------------------------------------------------------------------------------- */

/* Sort by birth, counting; equal births keep the order of the tensor numbers, so the result is the same everywhere. */
static void sort_by_birth(fb_cone *cone)
{
    const fb_flow *flow = cone->flow;
    uint32_t *first = cone->order_first;
    for (uint32_t t = 0; t < flow->tensors; t++) {
        cone->born[t] = flow->producer[t] == FB_FLOW_NONE ? 0 : flow->producer[t] + 1;
        first[cone->born[t] + 1]++;
    }
    for (uint32_t k = 0; k <= flow->nodes; k++) first[k + 1] += first[k];
    for (uint32_t t = 0; t < flow->tensors; t++) cone->order[first[cone->born[t]]++] = t;
    /* Each start has moved to the start of the next one. */
    memmove(first + 1, first, ((size_t)flow->nodes + 1) * sizeof *first);
    first[0] = 0;
}

static void find_what_matters(fb_cone *cone)
{
    const fb_flow *flow = cone->flow;
    cone->matters[cone->finding] = 1;
    cone->end = cone->born[cone->finding];
    cone->last_use[cone->finding] = cone->end;
    for (uint32_t k = cone->end; k-- > 0;) {
        for (uint32_t i = cone->order_first[k + 1]; i < cone->order_first[k + 2]; i++)
            cone->node_matters[k] |= cone->matters[cone->order[i]];
        if (!cone->node_matters[k]) continue;
        for (uint64_t e = flow->first[k]; e < flow->first[k + 1]; e++) {
            uint32_t t = flow->inputs[e];
            if (!cone->matters[t]) cone->last_use[t] = k; /* nodes come last first */
            cone->matters[t] = 1;
        }
    }
    for (uint32_t t = 0; t < flow->tensors; t++) cone->tensors += cone->matters[t];
}

fb_status fb_cone_init(fb_cone *cone, const fb_flow *flow, uint32_t finding, fb_error *err)
{
    memset(cone, 0, sizeof *cone);
    cone->flow = flow;
    cone->finding = finding;
    cone->order = fb_calloc(flow->tensors, sizeof *cone->order);
    cone->order_first = fb_calloc((size_t)flow->nodes + 2, sizeof *cone->order_first);
    cone->born = fb_calloc(flow->tensors, sizeof *cone->born);
    cone->last_use = fb_calloc(flow->tensors, sizeof *cone->last_use);
    cone->matters = fb_calloc(flow->tensors, 1);
    cone->node_matters = fb_calloc((size_t)flow->nodes + 1, 1);
    if (!cone->order || !cone->order_first || !cone->born || !cone->last_use || !cone->matters || !cone->node_matters) {
        return fb_fail(err, FB_E_NOMEM, "search dataflow: no memory for %u nodes and %u tensors", flow->nodes, flow->tensors);
    }
    sort_by_birth(cone);
    find_what_matters(cone);
    return FB_OK;
}

void fb_cone_release(fb_cone *cone)
{
    fb_free(cone->order);
    fb_free(cone->order_first);
    fb_free(cone->born);
    fb_free(cone->last_use);
    fb_free(cone->matters);
    fb_free(cone->node_matters);
    memset(cone, 0, sizeof *cone);
}
