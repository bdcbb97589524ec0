/*
 * What a search asks next. Nothing is remembered of why a question was asked: each time the plan is made anew out of what was seen,
 * in this order, and the first step that still needs something asks for it.
 *   1. Is the finding there?                       no: repeat, and end
 *   2. Is all state on entry finite?               no: end, no node is blamed
 *   3. bisect: halve the cuts between the last finite one and the first that is not
 *   4. everything that a chain to the finding can pass (sweep: everything)
 *   5. the candidates, and their witness again
 * Steps 2 and 3 only spare probes. What decides is 4, which leaves nothing unseen that could change the answer.
 */
#include "search/bisect_inside.h"

#include <string.h>

/* ---- a question -------------------------------------------------------------------------------------------------------------- */

static uint32_t room_of_question(const fb_search *s)
{
    uint32_t room = s->options.probes_max ? s->options.probes_max : UINT32_MAX;
    return s->options.one_bit && s->group && s->group < room ? s->group : room;
}

static int out(fb_search *s, uint32_t count, int32_t about, int32_t phase, int64_t cut)
{
    s->question.tensors = s->list;
    s->question.count = count;
    s->question.about = about;
    s->question.phase = phase;
    s->question.cut = phase == FB_PHASE_CUT ? (uint32_t)cut : FB_FLOW_NONE;
    return 1;
}

static int ask_finding(fb_search *s, int32_t phase)
{
    s->list[0] = s->cone.finding;
    return out(s, 1, s->options.one_bit ? FB_ASK_ALL_BAD : FB_ASK_EACH, phase, 0);
}

/* Every replay that can look at two tensors looks at the finding as well: k of n comes for nothing, and a replay in which it was
   not there is not mixed up with the others. */
static int ask_each(fb_search *s, uint32_t wanted, int32_t phase, int64_t cut)
{
    uint32_t room = room_of_question(s);
    uint32_t count = 0;
    if (room == 1) {
        if (s->list[0] != s->cone.finding || wanted == 1) return out(s, 1, FB_ASK_EACH, phase, cut);
        s->list[0] = s->list[1];
        return out(s, 1, FB_ASK_EACH, phase, cut);
    }
    for (uint32_t i = 0; i < wanted && count < room - 1; i++) {
        if (s->list[i] != s->cone.finding) s->list[count++] = s->list[i];
    }
    s->list[count++] = s->cone.finding;
    return out(s, count, FB_ASK_EACH, phase, cut);
}

/* ---- groups ------------------------------------------------------------------------------------------------------------------ */

static int reads_what_may_be_bad(const fb_search *s, uint32_t node)
{
    const fb_flow *flow = s->cone.flow;
    for (uint64_t e = flow->first[node]; e < flow->first[node + 1]; e++) {
        if (s->expect[flow->inputs[e]] == FB_SEEN_BAD) return 1;
    }
    return 0;
}

/* A guess, and only a guess: what is bad stays bad, and the node after the last finite cut made it
 * so. A right guess saves replays. */
static void guess(fb_search *s)
{
    for (uint32_t i = 0; i < s->cone.flow->tensors; i++) {
        uint32_t t = s->cone.order[i];
        uint32_t born = s->cone.born[t];
        if (!s->cone.matters[t]) continue;
        s->expect[t] = s->trace.counts_as[t];
        if (s->expect[t] != FB_SEEN_NOT) continue;
        s->expect[t] = FB_SEEN_FINITE;
        if (born == 0) continue;
        if ((s->high == s->low + 1 && (int64_t)born == s->high) || reads_what_may_be_bad(s, born - 1)) s->expect[t] = FB_SEEN_BAD;
    }
}

/* Of the wanted, those of one expectation: the bad ones first, since they make the chain. */
static int ask_group(fb_search *s, uint32_t wanted, int32_t phase)
{
    uint32_t room = room_of_question(s);
    uint32_t count = 0;
    uint8_t expected = FB_SEEN_FINITE;
    guess(s);
    for (uint32_t i = 0; i < wanted; i++) {
        if (s->expect[s->list[i]] == FB_SEEN_BAD) expected = FB_SEEN_BAD;
    }
    for (uint32_t i = 0; i < wanted && count < room; i++) {
        if (s->expect[s->list[i]] == expected) s->list[count++] = s->list[i];
    }
    return out(s, count, expected == FB_SEEN_BAD ? FB_ASK_ALL_BAD : FB_ASK_ALL_FINITE, phase, 0);
}

static int ask(fb_search *s, uint32_t wanted, int32_t phase)
{
    return s->options.one_bit ? ask_group(s, wanted, phase) : ask_each(s, wanted, phase, 0);
}

/* ---- lists of what is unseen ------------------------------------------------------------------------------------------------- */

static int unseen(const fb_search *s, uint32_t t)
{
    return s->cone.matters[t] && s->trace.seen[t] == FB_SEEN_NOT;
}

/* Unseen tensors in causal order; where only is not NULL, those it marks; entries alone if so wished. */
static uint32_t list_unseen(fb_search *s, const uint8_t *only, int entries)
{
    uint32_t end = entries ? s->cone.order_first[1] : s->cone.flow->tensors;
    uint32_t count = 0;
    for (uint32_t i = 0; i < end; i++) {
        uint32_t t = s->cone.order[i];
        if (unseen(s, t) && (!only || only[t])) s->list[count++] = t;
    }
    return count;
}

/* Where -Inf may be intended, what the producer read decides what it means: mark that as well, in one go. */
static void mark_behind_masks(fb_search *s)
{
    const fb_flow *flow = s->cone.flow;
    if (!flow->flags) return;
    for (uint32_t i = flow->tensors; i-- > 0;) {
        uint32_t t = s->cone.order[i];
        uint32_t born = s->cone.born[t];
        if (!s->mark[t] || born == 0 || !(flow->flags[t] & FB_FLOW_MASK) || s->trace.counts_as[t] != FB_SEEN_NOT) continue;
        for (uint64_t e = flow->first[born - 1]; e < flow->first[born]; e++) s->mark[flow->inputs[e]] = 1;
    }
}

/* ---- cuts -------------------------------------------------------------------------------------------------------------------- */

static int crosses(const fb_cone *cone, uint32_t t, int64_t cut)
{
    return cone->matters[t] && cone->born[t] <= cut && cone->last_use[t] >= cut;
}

/* A mask whose producer read something bad: more looking does not tell whether it carries that. */
static int never_settled(const fb_search *s, uint32_t t)
{
    uint8_t seen = s->trace.seen[t];
    if (s->trace.counts_as[t] != FB_SEEN_NOT || seen == FB_SEEN_NOT || seen == FB_SEEN_UNTESTABLE) return 0;
    return (fb_trace_node(&s->trace, s->cone.born[t] - 1) & FB_READ_BAD) != 0;
}

/* Settle what needs no question, for all cuts in one pass: bad where something bad crosses, else given up where something crosses
   that cannot be told. Looking at the rest of such a cut could cost a replay at every cut that the same tensor crosses. */
static void settle_all_cuts(fb_search *s)
{
    uint32_t bad = 0, closed = 0;
    memset(s->bad_change, 0, ((size_t)s->cone.end + 2) * sizeof *s->bad_change);
    memset(s->closed_change, 0, ((size_t)s->cone.end + 2) * sizeof *s->closed_change);
    for (uint32_t t = 0; t < s->cone.flow->tensors; t++) {
        int is_bad = s->trace.counts_as[t] == FB_SEEN_BAD;
        if (!s->cone.matters[t] || !(is_bad || s->trace.seen[t] == FB_SEEN_UNTESTABLE || never_settled(s, t))) continue;
        /* Changes wrap around zero and add up to counts again. */
        (is_bad ? s->bad_change : s->closed_change)[s->cone.born[t]] += 1;
        (is_bad ? s->bad_change : s->closed_change)[s->cone.last_use[t] + 1] -= 1;
    }
    for (uint32_t cut = 0; cut <= s->cone.end; cut++) {
        bad += s->bad_change[cut];
        closed += s->closed_change[cut];
        if (s->cut[cut] == CUT_OPEN && (bad || closed)) s->cut[cut] = bad ? CUT_BAD : CUT_CLOSED;
    }
}

/* 0: the cut is settled, into CUT_CLOSED or low; else so many tensors are in the list that would
 * settle it. Call it for an open cut. */
static uint32_t settle_cut(fb_search *s, int64_t cut)
{
    uint32_t count = 0;
    int open = 0;
    for (uint32_t t = 0; t < s->cone.flow->tensors; t++)
        s->mark[t] = crosses(&s->cone, t, cut) && s->trace.counts_as[t] == FB_SEEN_NOT;
    mark_behind_masks(s);
    for (uint32_t i = 0; i < s->cone.flow->tensors; i++) {
        uint32_t t = s->cone.order[i];
        if (!s->mark[t]) continue;
        if (s->trace.seen[t] == FB_SEEN_UNTESTABLE || never_settled(s, t)) s->cut[cut] = CUT_CLOSED;
        if (s->trace.seen[t] == FB_SEEN_NOT) s->list[count++] = t;
        open = 1;
    }
    if (s->cut[cut] == CUT_CLOSED) return 0;
    if (!open) s->low = cut;
    if (open && count == 0) s->cut[cut] = CUT_CLOSED;
    return count;
}

/* The cut nearest to the middle that can be tested, the earlier one of two; -1: there is none. */
static int64_t middle(const fb_search *s)
{
    int64_t centre = s->low + (s->high - s->low) / 2;
    for (int64_t away = 0; centre - away > s->low || centre + away < s->high; away++) {
        if (centre - away > s->low && s->cut[centre - away] != CUT_CLOSED) return centre - away;
        if (centre + away < s->high && s->cut[centre + away] != CUT_CLOSED) return centre + away;
    }
    return -1;
}

/* 1: a question is out; 0: there is no cut left that could be tested. */
static int plan_cuts(fb_search *s)
{
    settle_all_cuts(s);
    if (s->low < 0 && s->cut[0] == CUT_OPEN) (void)settle_cut(s, 0); /* the entries, which were all asked for */
    while (s->high - s->low > 1) {
        int64_t cut = middle(s);
        uint32_t wanted;
        if (cut < 0) return 0;
        if (s->cut[cut] == CUT_BAD) s->high = cut;
        wanted = s->cut[cut] == CUT_BAD ? 0 : settle_cut(s, cut);
        if (wanted == 0) continue;
        if (!s->options.one_bit) return ask_each(s, wanted, FB_PHASE_CUT, cut);
        return out(s, wanted < room_of_question(s) ? wanted : room_of_question(s), FB_ASK_ALL_FINITE, FB_PHASE_CUT, cut);
    }
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------- */

static void add_candidate(fb_search *s, uint32_t node, uint32_t tensor, int witnessed)
{
    fb_candidate *c = &s->candidates[s->verdict.count++];
    int64_t place = node == FB_FLOW_NONE ? -1 : (int64_t)node;
    c->node = node;
    c->tensor = tensor;
    c->witnessed = witnessed;
    if (s->verdict.first == -2) s->verdict.first = place;
    s->verdict.last = place;
}

static void add_origins(fb_search *s)
{
    for (uint32_t i = 0; i < s->cone.order_first[1]; i++) {
        int origin = fb_trace_entry_origin(&s->trace, s->cone.order[i]);
        if (origin) add_candidate(s, FB_FLOW_NONE, s->cone.order[i], origin == FB_ORIGIN_WITNESSED);
    }
    for (uint32_t k = 0; k < s->cone.end; k++) {
        int origin = fb_trace_node_origin(&s->trace, k);
        if (origin && (s->trace.late[k] & FB_LATE)) s->later[s->verdict.later_count++] = k;
        else if (origin) add_candidate(s, k, fb_trace_chain_start(&s->trace, k), origin == FB_ORIGIN_WITNESSED);
    }
}

static int bad_state(const fb_search *s, uint32_t t)
{
    const fb_flow *flow = s->cone.flow;
    /* A buffer of -Inf alone is more often a mask than damage: only a chain convicts it. */
    return s->cone.matters[t] && flow->flags && (flow->flags[t] & FB_FLOW_STATE) && s->trace.seen[t] == FB_SEEN_BAD;
}

static uint32_t add_bad_state(fb_search *s)
{
    for (uint32_t i = 0; i < s->cone.order_first[1]; i++) {
        if (bad_state(s, s->cone.order[i])) add_candidate(s, FB_FLOW_NONE, s->cone.order[i], 1);
    }
    return s->verdict.count;
}

static int finish(fb_search *s, int32_t found, int32_t reason)
{
    s->verdict.found = found;
    s->verdict.reason = reason;
    return 0;
}

static int finish_with_candidates(fb_search *s, int spent)
{
    uint32_t witnessed = 0;
    int entry = 0;
    if (s->failed_again) {
        for (uint32_t i = 0; i < s->verdict.count; i++) s->candidates[i].witnessed = 0;
        return finish(s, s->refused ? FB_FOUND_ENTRY : FB_FOUND_INTERVAL, spent ? FB_WHY_BUDGET : FB_WHY_WITNESS);
    }
    for (uint32_t i = 0; i < s->verdict.count; i++) {
        witnessed += s->candidates[i].witnessed != 0;
        entry |= s->candidates[i].witnessed && s->candidates[i].node == FB_FLOW_NONE;
    }
    if (entry) return finish(s, FB_FOUND_ENTRY, FB_WHY_NONE);
    if (witnessed < s->verdict.count) return finish(s, FB_FOUND_INTERVAL, spent ? FB_WHY_BUDGET : FB_WHY_UNTESTABLE);
    return finish(s, s->verdict.count == 1 ? FB_FOUND_NODE : FB_FOUND_SET, FB_WHY_NONE);
}

/* ---- the witness again ------------------------------------------------------------------------------------------------------- */

static void look_again(fb_search *s, uint32_t t, uint8_t expected)
{
    s->again[s->again_count] = t;
    s->again_expect[s->again_count++] = expected;
}

static void mark_inputs(fb_search *s, uint32_t node)
{
    const fb_flow *flow = s->cone.flow;
    for (uint64_t e = flow->first[node]; e < flow->first[node + 1]; e++) s->mark[flow->inputs[e]] = 1;
}

/* A mask counts as finite because of what its producer read, so that is part of the witness. */
static void mark_why_masks_are_finite(fb_search *s)
{
    const fb_flow *flow = s->cone.flow;
    for (uint32_t i = flow->tensors; i-- > 0;) {
        uint32_t t = s->cone.order[i];
        int said = s->trace.seen[t] == FB_SEEN_NEG_INF || s->trace.masks_unsaid;
        if (s->mark[t] && flow->flags && (flow->flags[t] & FB_FLOW_MASK) && said && s->cone.born[t])
            mark_inputs(s, s->cone.born[t] - 1);
    }
}

/* All that has to be finite, then all that has to be bad, so that a group is of one expectation. */
static void collect_witness(fb_search *s)
{
    const fb_search_verdict *v = &s->verdict;
    memset(s->mark, 0, s->cone.flow->tensors);
    for (uint32_t i = 0; i < v->count; i++) {
        if (s->candidates[i].witnessed && s->candidates[i].node != FB_FLOW_NONE) mark_inputs(s, s->candidates[i].node);
    }
    mark_why_masks_are_finite(s);
    for (uint32_t i = 0; i < s->cone.flow->tensors; i++) {
        uint32_t t = s->cone.order[i];
        /* One bit says nothing of -Inf, so what was known of it from elsewhere cannot be asked for. */
        if (s->mark[t] && !(s->options.one_bit && s->trace.seen[t] == FB_SEEN_NEG_INF)) look_again(s, t, FB_SEEN_FINITE);
    }
    for (uint32_t i = 0; i < v->count; i++) {
        if (!s->candidates[i].witnessed) continue;
        /* A chain that meets one that is listed already goes on as that one does. */
        for (uint32_t t = s->candidates[i].tensor; t != FB_FLOW_NONE && !s->mark[t]; t = s->trace.next[t]) {
            s->mark[t] = 1;
            look_again(s, t, FB_SEEN_BAD);
            if (!s->trace.must[t]) break; /* state that was bad on entry is refused with or without a chain */
        }
    }
}

/* 1: a question is out; 0: all of it was seen again. */
static int plan_witness(fb_search *s)
{
    uint32_t room = room_of_question(s);
    uint32_t count = 0;
    uint8_t expected;
    if (s->again_done == s->again_count || s->failed_again) return 0;
    expected = s->again_expect[s->again_done];
    if (!s->options.one_bit && room > 1 && s->again_count - s->again_done > room - 1) room--; /* one for the finding */
    while (s->again_done < s->again_count && count < room && (!s->options.one_bit || s->again_expect[s->again_done] == expected)) {
        s->list[count++] = s->again[s->again_done++];
    }
    if (!s->options.one_bit) return ask_each(s, count, FB_PHASE_WITNESS, 0);
    return out(s, count, expected == FB_SEEN_BAD ? FB_ASK_ALL_BAD : FB_ASK_ALL_FINITE, FB_PHASE_WITNESS, 0);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------------------- */

static int plan_repeat(fb_search *s, int spent)
{
    if (!spent && s->verdict.tried < s->options.repeats && s->trace.seen[s->cone.finding] != FB_SEEN_UNTESTABLE) {
        return ask_finding(s, FB_PHASE_REPEAT);
    }
    s->verdict.count = s->verdict.later_count = 0;
    s->verdict.first = s->verdict.last = -2;
    if (s->verdict.reproduced == 0 && s->verdict.tried) return finish(s, FB_FOUND_NOT_REPRODUCED, FB_WHY_NONE);
    return finish(s, FB_FOUND_NOT_STEADY, FB_WHY_NONE);
}

static int plan_first(fb_search *s)
{
    uint32_t wanted;
    if (s->options.one_bit || s->options.probes_max == 1) return ask_finding(s, FB_PHASE_REPRODUCE);
    wanted = list_unseen(s, NULL, s->options.strategy == FB_SEARCH_BISECT);
    return ask_each(s, wanted, FB_PHASE_REPRODUCE, 0);
}

/* 1: a question is out; 0: nothing is unseen that could change the answer. */
static int plan_search(fb_search *s)
{
    uint32_t wanted = list_unseen(s, NULL, 1);
    if (wanted) return ask(s, wanted, FB_PHASE_ENTRY);
    for (uint32_t i = 0; i < s->cone.order_first[1]; i++) {
        if (bad_state(s, s->cone.order[i])) return 0;
    }
    if (s->options.strategy == FB_SEARCH_BISECT && plan_cuts(s)) return 1;
    if (s->options.strategy == FB_SEARCH_BISECT) fb_trace_chains(&s->trace);
    wanted = list_unseen(s, s->options.strategy == FB_SEARCH_BISECT ? s->trace.may : NULL, 0);
    return wanted ? ask(s, wanted, FB_PHASE_CHAIN) : 0;
}

static void conclude(fb_search *s)
{
    fb_trace_chains(&s->trace);
    fb_trace_order(&s->trace);
    s->refused = add_bad_state(s) > 0;
    if (!s->refused) add_origins(s);
    collect_witness(s);
    s->concluded = 1;
}

int fb_search_plan(fb_search *s)
{
    int spent = s->options.replays_max && s->verdict.replays >= s->options.replays_max;
    uint8_t finding = s->trace.seen[s->cone.finding];
    fb_trace_settle(&s->trace);
    if (s->contradiction || finding == FB_SEEN_FINITE) return plan_repeat(s, spent);
    if (finding == FB_SEEN_UNTESTABLE) return finish(s, FB_FOUND_UNDECIDED, FB_WHY_UNTESTABLE);
    if (finding == FB_SEEN_NOT) return spent ? finish(s, FB_FOUND_UNDECIDED, FB_WHY_BUDGET) : plan_first(s);
    if (!s->concluded && !spent && plan_search(s)) return 1;
    if (!s->concluded) conclude(s);
    if (spent && s->again_done < s->again_count) s->failed_again = 1;
    if (plan_witness(s)) return 1;
    return finish_with_candidates(s, spent);
}
