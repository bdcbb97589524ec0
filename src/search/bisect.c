/* A search from outside: open, ask, answer, read the result. */
#include "search/bisect_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* ---- open and free ----------------------------------------------------------------------------------------------------------- */

static fb_status refuse(const fb_flow *flow, const fb_search_options *options, fb_error *err)
{
    if (options->finding >= flow->tensors) {
        return fb_fail(err, FB_E_USAGE, "open search: the finding is tensor %u, and there are %u tensors", options->finding,
                       flow->tensors);
    }
    if (options->strategy != FB_SEARCH_BISECT && options->strategy != FB_SEARCH_SWEEP) {
        return fb_fail(err, FB_E_USAGE, "open search: strategy %d is neither FB_SEARCH_BISECT nor FB_SEARCH_SWEEP",
                       options->strategy);
    }
    return FB_OK;
}

static fb_status take_memory(fb_search *s, const fb_flow *flow, fb_error *err)
{
    size_t tensors = flow->tensors;
    fb_status status = fb_cone_init(&s->cone, flow, s->options.finding, err);
    if (status != FB_OK) return status;
    if ((status = fb_trace_init(&s->trace, &s->cone, err)) != FB_OK) return status;
    s->list = fb_calloc(tensors, sizeof *s->list);
    s->mark = fb_calloc(tensors, 1);
    s->expect = fb_calloc(tensors, 1);
    s->cut = fb_calloc((size_t)s->cone.end + 1, 1);
    s->bad_change = fb_calloc((size_t)s->cone.end + 2, sizeof *s->bad_change);
    s->closed_change = fb_calloc((size_t)s->cone.end + 2, sizeof *s->closed_change);
    s->again = fb_calloc(tensors, sizeof *s->again);
    s->again_expect = fb_calloc(tensors, 1);
    s->candidates = fb_calloc(tensors + flow->nodes, sizeof *s->candidates);
    s->later = fb_calloc(flow->nodes, sizeof *s->later);
    if (s->list && s->mark && s->expect && s->cut && s->bad_change && s->closed_change && s->again && s->again_expect &&
        s->candidates && s->later) {
        return FB_OK;
    }
    return fb_fail(err, FB_E_NOMEM, "open search: no memory for %u nodes and %u tensors", flow->nodes, flow->tensors);
}

fb_status fb_search_open(fb_search **out, const fb_flow *flow, const fb_search_options *options, fb_error *err)
{
    fb_status status;
    fb_search *s;
    if (!out || !flow || !options) return fb_fail(err, FB_E_USAGE, "open search: an argument is NULL");
    *out = NULL;
    if ((status = fb_flow_check(flow, err)) != FB_OK) return status;
    if ((status = refuse(flow, options, err)) != FB_OK) return status;
    s = fb_calloc(1, sizeof *s);
    if (!s) return fb_fail(err, FB_E_NOMEM, "open search: no memory for %zu bytes", sizeof *s);
    s->options = *options;
    if (!s->options.repeats) s->options.repeats = FB_SEARCH_REPEATS;
    status = take_memory(s, flow, err);
    if (status != FB_OK) {
        fb_search_free(s);
        return status;
    }
    s->trace.masks_unsaid = options->one_bit != 0;
    s->low = -1;
    s->high = s->cone.end;
    s->verdict.candidates = s->candidates;
    s->verdict.later = s->later;
    s->verdict.first = s->verdict.last = -2;
    s->verdict.contradicted = FB_FLOW_NONE;
    *out = s;
    return FB_OK;
}

void fb_search_free(fb_search *s)
{
    if (!s) return;
    fb_trace_release(&s->trace);
    fb_cone_release(&s->cone);
    fb_free(s->list);
    fb_free(s->mark);
    fb_free(s->expect);
    fb_free(s->cut);
    fb_free(s->bad_change);
    fb_free(s->closed_change);
    fb_free(s->again);
    fb_free(s->again_expect);
    fb_free(s->candidates);
    fb_free(s->later);
    fb_free(s);
}

/* ---- what was seen ----------------------------------------------------------------------------------------------------------- */

static int legal_answer(int32_t seen)
{
    return seen >= FB_SEEN_FINITE && seen <= FB_SEEN_BAD;
}

fb_status fb_search_know(fb_search *s, uint32_t tensor, int32_t seen, fb_error *err)
{
    if (!s) return fb_fail(err, FB_E_USAGE, "tell search what is known: the search is NULL");
    if (tensor >= s->cone.flow->tensors || s->cone.flow->producer[tensor] != FB_FLOW_NONE || tensor == s->cone.finding) {
        return fb_fail(err, FB_E_USAGE, "tell search what is known: tensor %u is no entry, or is the finding itself", tensor);
    }
    if (!legal_answer(seen))
        return fb_fail(err, FB_E_USAGE, "tell search what is known of tensor %u: %d is no FB_SEEN_*", tensor, seen);
    if (s->asked || s->verdict.replays) return fb_fail(err, FB_E_ORDER, "tell search what is known: it has asked already");
    s->trace.seen[tensor] = (uint8_t)seen;
    return FB_OK;
}

static void contradict(fb_search *s, uint32_t tensor)
{
    if (!s->contradiction) s->verdict.contradicted = tensor;
    s->contradiction = 1;
}

static void see(fb_search *s, uint32_t tensor, int32_t seen)
{
    uint8_t *known = &s->trace.seen[tensor];
    if (tensor == s->cone.finding && seen != FB_SEEN_UNTESTABLE) {
        s->verdict.tried++;
        if (seen != FB_SEEN_FINITE) s->verdict.reproduced++;
    }
    if (seen == FB_SEEN_UNTESTABLE) {
        if (*known == FB_SEEN_NOT) *known = FB_SEEN_UNTESTABLE;
        if (s->question.phase == FB_PHASE_WITNESS) s->failed_again = 1;
        return;
    }
    if (*known != FB_SEEN_NOT && *known != FB_SEEN_UNTESTABLE && *known != seen) {
        contradict(s, tensor);
        return; /* what was seen first stays */
    }
    *known = (uint8_t)seen;
}

/* ---- one bit for a group ----------------------------------------------------------------------------------------------------- */

static void halve(fb_search *s)
{
    s->group = (s->question.count + 1) / 2;
}

/* All are as expected, or one is not, or nothing can be said. A group of one is an answer about that one either way. */
static void see_group(fb_search *s, int32_t seen)
{
    const fb_question *q = &s->question;
    int32_t expected = q->about == FB_ASK_ALL_FINITE ? FB_SEEN_FINITE : FB_SEEN_BAD;
    if (seen == expected || q->count == 1) {
        for (uint32_t i = 0; i < q->count; i++) see(s, q->tensors[i], seen);
        s->group = 0;
        return;
    }
    if (q->phase == FB_PHASE_WITNESS) {
        if (seen == FB_SEEN_UNTESTABLE) s->failed_again = 1;
        else contradict(s, FB_FLOW_NONE);
        return;
    }
    if (q->phase == FB_PHASE_CUT) s->cut[q->cut] = seen == FB_SEEN_UNTESTABLE ? CUT_CLOSED : CUT_BAD;
    else halve(s);
}

/* ---- ask and answer ---------------------------------------------------------------------------------------------------------- */

const fb_question *fb_search_ask(fb_search *s)
{
    if (!s) return NULL;
    if (s->asked) return &s->question;
    if (s->verdict.found != FB_FOUND_NONE) return NULL;
    s->asked = fb_search_plan(s);
    return s->asked ? &s->question : NULL;
}

static fb_status refuse_answer(const fb_search *s, const int32_t *seen, uint32_t count, fb_error *err)
{
    uint32_t expected = s->question.about == FB_ASK_EACH ? s->question.count : 1;
    if (!s->asked) return fb_fail(err, FB_E_ORDER, "answer search: it has not asked; call fb_search_ask first");
    if (count != expected) return fb_fail(err, FB_E_USAGE, "answer search: %u answers, expected %u", count, expected);
    for (uint32_t i = 0; i < count; i++) {
        if (!legal_answer(seen[i]) || (s->question.about != FB_ASK_EACH && seen[i] == FB_SEEN_NEG_INF)) {
            return fb_fail(err, FB_E_USAGE, "answer search: answer %u is %d, which is no FB_SEEN_* that fits the question", i,
                           seen[i]);
        }
    }
    return FB_OK;
}

fb_status fb_search_answer(fb_search *s, const int32_t *seen, uint32_t count, fb_error *err)
{
    fb_status status;
    if (!s || !seen) return fb_fail(err, FB_E_USAGE, "answer search: an argument is NULL");
    if ((status = refuse_answer(s, seen, count, err)) != FB_OK) return status;
    s->asked = 0;
    s->verdict.replays++;
    s->verdict.probes += s->question.count;
    if (s->question.about != FB_ASK_EACH) {
        see_group(s, seen[0]);
        return FB_OK;
    }
    for (uint32_t i = 0; i < count; i++) see(s, s->question.tensors[i], seen[i]);
    return FB_OK;
}

fb_status fb_search_run(fb_search *s, fb_search_replay replay, void *ctx, fb_error *err)
{
    fb_status status = FB_OK;
    const fb_question *question;
    int32_t *seen;
    if (!s || !replay) return fb_fail(err, FB_E_USAGE, "run search: an argument is NULL");
    seen = fb_calloc(s->cone.flow->tensors, sizeof *seen);
    if (!seen) return fb_fail(err, FB_E_NOMEM, "run search: no memory for %u answers", s->cone.flow->tensors);
    while (status == FB_OK && (question = fb_search_ask(s)) != NULL) {
        status = replay(ctx, question, seen, err);
        if (status == FB_OK) status = fb_search_answer(s, seen, question->about == FB_ASK_EACH ? question->count : 1, err);
    }
    fb_free(seen);
    return status;
}

/* ---- results ----------------------------------------------------------------------------------------------------------------- */

const fb_search_verdict *fb_search_result(const fb_search *s)
{
    return s ? &s->verdict : NULL;
}

uint32_t fb_search_chain(const fb_search *s, uint32_t tensor, uint32_t *out, uint32_t room)
{
    uint32_t count = 0;
    if (!s || s->verdict.found == FB_FOUND_NONE || tensor >= s->cone.flow->tensors || !s->trace.must[tensor]) return 0;
    for (uint32_t t = tensor; t != FB_FLOW_NONE; t = s->trace.next[t]) {
        if (count < room) out[count] = t;
        count++;
    }
    return count;
}

int32_t fb_search_seen(const fb_search *s, uint32_t tensor)
{
    return s && tensor < s->cone.flow->tensors ? s->trace.seen[tensor] : FB_SEEN_NOT;
}

int32_t fb_search_label(const fb_search *s, uint32_t node)
{
    int bits;
    if (!s || node >= s->cone.flow->nodes || !s->cone.node_matters[node]) return FB_LABEL_UNKNOWN;
    bits = fb_trace_node(&s->trace, node);
    if (bits & FB_READ_BAD) {
        if (bits & FB_MADE_BAD) return FB_LABEL_PROPAGATE;
        return bits & FB_MADE_UNSEEN ? FB_LABEL_UNKNOWN : FB_LABEL_KILL;
    }
    if (bits & FB_READ_UNSEEN) return FB_LABEL_UNKNOWN;
    if (bits & FB_MADE_BAD) return FB_LABEL_GENERATE;
    return bits & FB_MADE_UNSEEN ? FB_LABEL_UNKNOWN : FB_LABEL_CLEAN;
}
