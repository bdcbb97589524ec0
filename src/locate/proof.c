/*
 * The witness in one replay, on the very ranks that it is about: what the origin read, what it made, and the chain. The same replay
 * keeps the values for the rerun in FP64 and for l3/. A witness that does not hold there names nobody.
 */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "locate/made_of.h"

/* Of one operator and its module together; what is larger is told in counts alone. */
#define KEEP_BYTES_MAX (UINT64_C(1) << 30)
enum { SUMMED_MAX = 1 << 22 }; /* elements: a mask of that size tells by its format, or not at all */

static int is_collective(const fb_locate *l, uint32_t node)
{
    return node != FB_FLOW_NONE && (l->row.node[node].flags & FB_TAPE_COLLECTIVE);
}

static int named(const fb_locate *l)
{
    return (l->found == FB_LOCATED_OPERATOR || l->found == FB_LOCATED_SET || l->found == FB_LOCATED_ENTRY) && l->origin_count;
}

/* ---- the module -------------------------------------------------------------------------------------------------------------- */

static int same_module(const fb_locate *l, uint32_t a, uint32_t b)
{
    const fb_row_node *of = &l->row.node[a], *other = &l->row.node[b];
    /* Backward works on what forward saved, so a number that became 0 in forward is part of the same module. */
    int same_pass = of->boundary == other->boundary || (of->boundary <= FB_LOCAL_GRAD && other->boundary < of->boundary);
    return of->module == other->module && of->micro_step == other->micro_step && same_pass && !is_collective(l, b);
}

/* Operators of the origin's module that lead to it, in order, the origin last. */
static fb_status find_module(fb_locate *l, uint32_t origin, fb_error *err)
{
    const fb_row *row = &l->row;
    uint8_t *in = l->in_module = fb_calloc((size_t)origin + 1, 1);
    uint32_t count = 0;
    if (!in) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a module");
    in[origin] = 1;
    for (uint32_t k = origin + 1; k-- > 0;) {
        if (!in[k]) continue;
        count++;
        if (is_collective(l, k)) continue;
        for (uint64_t e = row->first[k]; e < row->first[k + 1]; e++) {
            uint32_t producer = row->producer[row->inputs[e]];
            if (producer != FB_FLOW_NONE && same_module(l, origin, producer)) in[producer] = 1;
        }
    }
    l->module_nodes = fb_calloc(count, sizeof *l->module_nodes);
    for (uint32_t k = 0; k <= origin && l->module_nodes; k++) {
        if (in[k]) l->module_nodes[l->module_count++] = k;
    }
    return l->module_nodes ? FB_OK : fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a module of %u operators", count);
}

/* ---- what is wanted of the replay -------------------------------------------------------------------------------------------- */

static void want_node(fb_locate *l, fb_tape *tape, uint32_t node, uint8_t want)
{
    const fb_row *row = &l->row;
    for (uint64_t e = row->first[node]; e < row->first[node + 1]; e++) fb_locate_want(l, tape, row->inputs[e], want);
    for (uint32_t i = 0; i < row->node[node].output_count; i++) fb_locate_want(l, tape, row->node[node].first_output + i, want);
}

/* Everything that fb_locate_holds looks at. `want` is for what the first origin read and made, if it is this rank's. */
void fb_locate_want_witness(fb_locate *l, fb_tape *tape, uint8_t want)
{
    fb_locate_want(l, tape, l->finding, FB_WANT_LOOK);
    for (uint32_t i = 0; i < l->origin_count; i++) {
        const fb_origin *origin = &l->origins[i];
        int mine = i == 0 && (origin->owner == l->ranks.rank || is_collective(l, origin->node));
        if (!origin->witnessed) continue;
        if (origin->node == FB_FLOW_NONE) fb_locate_want(l, tape, origin->tensor, mine ? want : FB_WANT_LOOK);
        else want_node(l, tape, origin->node, mine ? want : FB_WANT_LOOK);
    }
    for (uint32_t i = 0; i < l->chain_count; i++) fb_locate_want(l, tape, l->chain[i].tensor, FB_WANT_LOOK);
}

/* What the module reads from outside of it. */
static void want_module(fb_locate *l, fb_tape *tape)
{
    const fb_row *row = &l->row;
    for (uint32_t i = 0; i < l->module_count; i++) {
        uint32_t k = l->module_nodes[i];
        for (uint64_t e = row->first[k]; e < row->first[k + 1]; e++) {
            uint32_t producer = row->producer[row->inputs[e]];
            if (producer == FB_FLOW_NONE || !l->in_module[producer]) fb_locate_want(l, tape, row->inputs[e], FB_WANT_KEEP);
        }
    }
}

/* What a denominator is the sum of: whether all of it is 0 decides what kind of 0 it is. */
static void want_summed(fb_locate *l, fb_tape *tape, uint32_t node)
{
    const fb_row *row = &l->row;
    for (uint64_t e = row->first[node]; e < row->first[node + 1]; e++) {
        fb_made made;
        fb_made_of(row, row->inputs[e], &made);
        if (made.summed == FB_FLOW_NONE || row->count[made.summed] > SUMMED_MAX) continue;
        if (made.is == FB_MADE_COUNT || made.is == FB_MADE_WEIGHTS) fb_locate_want(l, tape, made.summed, FB_WANT_KEEP);
    }
}

/* ---- does it hold? ----------------------------------------------------------------------------------------------------------- */

/* As it was in the search: whether -Inf is a mask was settled there. */
static int as_before(const fb_locate *l, const fb_tape *tape, uint32_t t)
{
    return fb_tape_saw(tape, t) == l->seen[t] && l->seen[t] != FB_SEEN_BAD && l->seen[t] != FB_SEEN_UNTESTABLE;
}

static int bad_again(const fb_locate *l, const fb_tape *tape, uint32_t t)
{
    int32_t seen = fb_tape_saw(tape, t);
    if (t == l->finding) seen = fb_locate_of_finding(l, seen);
    /* What held NaN and now holds -Inf, which is intended there, has not come again. */
    if (seen == FB_SEEN_NEG_INF && l->seen[t] == FB_SEEN_BAD && (l->row.flow_flags[t] & FB_FLOW_MASK)) return 0;
    return seen == FB_SEEN_BAD || seen == FB_SEEN_NEG_INF;
}

static int origin_holds(const fb_locate *l, const fb_tape *tape, const fb_origin *origin)
{
    const fb_row *row = &l->row;
    if (origin->owner != l->ranks.rank && !is_collective(l, origin->node)) return 1;
    for (uint64_t e = origin->node == FB_FLOW_NONE ? 0 : row->first[origin->node];
         origin->node != FB_FLOW_NONE && e < row->first[origin->node + 1]; e++) {
        if (!as_before(l, tape, row->inputs[e])) return 0;
    }
    return origin->owner != l->ranks.rank || bad_again(l, tape, origin->tensor);
}

int fb_locate_holds(const fb_locate *l, const fb_tape *tape)
{
    for (uint32_t i = 0; i < l->origin_count; i++) {
        if (l->origins[i].witnessed && !origin_holds(l, tape, &l->origins[i])) return 0;
    }
    for (uint32_t i = 0; i < l->chain_count; i++) {
        if (l->chain[i].rank == l->ranks.rank && !bad_again(l, tape, l->chain[i].tensor)) return 0;
    }
    return l->ranks.rank != l->config->finding_rank || bad_again(l, tape, l->finding);
}

/* ---- the replay -------------------------------------------------------------------------------------------------------------- */

static void lose_witness(fb_locate *l)
{
    for (uint32_t i = 0; i < l->origin_count; i++) l->origins[i].witnessed = 0;
    l->found = FB_LOCATED_INTERVAL;
    l->reason = FB_WHY_WITNESS;
    fb_locate_note(l, "the witness could not be looked at once more, so nobody is named");
}

static void forget_origins(fb_locate *l, int32_t found)
{
    l->found = found;
    l->origin_count = l->chain_count = l->swallowed_count = l->later_count = l->result->later = 0;
}

fb_status fb_locate_prove(fb_locate *l, fb_error *err)
{
    fb_tape_finding finding = {NULL, l->config->finding_tensor, l->config->finding_boundary, l->config->finding_micro_step};
    fb_replay_request request;
    int32_t played = FB_PLAYED_FAILED, fails = 0;
    fb_status status = FB_OK;
    if (!named(l)) return FB_OK;
    if (l->origins[0].node != FB_FLOW_NONE) status = find_module(l, l->origins[0].node, err);
    if ((status = fb_ranks_agree(&l->ranks, status, err)) != FB_OK) return status;
    fb_tape_init(&l->proof, FB_TAPE_COMPARE, &l->row, &finding);
    l->proof.keep_bytes_max = KEEP_BYTES_MAX;
    fb_locate_request(&request, FB_REPLAY_AGAIN);
    fb_locate_want_nothing(l, &l->proof);
    fb_locate_want_witness(l, &l->proof, FB_WANT_KEEP);
    if (l->origins[0].owner == l->ranks.rank && !is_collective(l, l->origins[0].node)) {
        want_module(l, &l->proof);
        if (l->origins[0].node != FB_FLOW_NONE) want_summed(l, &l->proof, l->origins[0].node);
    }
    if ((status = fb_locate_play(l, &l->proof, &request, &played, err)) != FB_OK) return status;
    if (played != FB_PLAYED) {
        if (l->found != FB_LOCATED_ENTRY) lose_witness(l);
        return FB_OK;
    }
    status = fb_locate_count_finding(l, fb_tape_saw(&l->proof, l->finding), err);
    fails = !fb_locate_holds(l, &l->proof);
    if (status == FB_OK) status = fb_ranks_any(&l->ranks, &fails, err);
    if (status == FB_OK && fails) forget_origins(l, FB_LOCATED_NOT_STEADY);
    l->has_witness = status == FB_OK && !fails;
    return status;
}

/* ---- k of n ------------------------------------------------------------------------------------------------------------------ */

static fb_status look_once_more(fb_locate *l, fb_error *err)
{
    fb_tape_finding finding = {NULL, l->config->finding_tensor, l->config->finding_boundary, l->config->finding_micro_step};
    fb_replay_request request;
    int32_t played = FB_PLAYED_FAILED;
    fb_status status;
    fb_tape tape;
    fb_tape_init(&tape, FB_TAPE_COMPARE, &l->row, &finding);
    fb_locate_request(&request, FB_REPLAY_AGAIN);
    fb_locate_want_nothing(l, &tape);
    fb_locate_want(l, &tape, l->finding, FB_WANT_LOOK);
    status = fb_locate_play(l, &tape, &request, &played, err);
    if (status == FB_OK && played == FB_PLAYED) status = fb_locate_count_finding(l, fb_tape_saw(&tape, l->finding), err);
    fb_tape_release(&tape);
    return status;
}

fb_status fb_locate_repeat(fb_locate *l, fb_error *err)
{
    fb_status status = FB_OK;
    int wanted = (l->config->parts & FB_LOCATE_REPLAY) != 0;
    for (uint32_t i = l->tried; wanted && i < l->times && l->tried < l->times && status == FB_OK; i++)
        status = look_once_more(l, err);
    if (status != FB_OK || l->tried == 0 || l->reproduced == l->tried) return status;
    l->has_witness = 0;
    forget_origins(l, l->reproduced ? FB_LOCATED_NOT_STEADY : FB_LOCATED_NOT_REPRODUCED);
    return FB_OK;
}
