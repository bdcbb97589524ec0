/* The step under other conditions: in FP32, and with the batch of the finding's rank on all ranks. */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"

static fb_tape_finding finding_of(const fb_locate *l)
{
    fb_tape_finding finding = {l->config->finding_module, l->config->finding_tensor, l->config->finding_boundary,
                               l->config->finding_micro_step};
    return finding;
}

/* In another format the trainer may run other operators, so the finding is looked for by its name. */
fb_status fb_locate_in_fp32(fb_locate *l, fb_error *err)
{
    fb_tape_finding finding = finding_of(l);
    fb_replay_request request;
    int32_t played = FB_PLAYED_FAILED, seen;
    fb_status status;
    fb_tape tape;
    if (l->config->precision && strcmp(l->config->precision, "fp32") == 0) return FB_OK;
    fb_tape_init(&tape, FB_TAPE_FREE, NULL, &finding);
    fb_locate_request(&request, FB_REPLAY_PRECISION);
    request.precision = "fp32";
    status = fb_locate_play(l, &tape, &request, &played, err);
    seen = l->ranks.rank == l->config->finding_rank ? fb_tape_saw_finding(&tape) : FB_SEEN_NOT;
    fb_tape_release(&tape);
    if (status == FB_OK) status = fb_ranks_max(&l->ranks, &seen, 1, err);
    seen = fb_locate_of_finding(l, seen);
    if (status != FB_OK || played != FB_PLAYED || seen == FB_SEEN_NOT || seen == FB_SEEN_UNTESTABLE) return status;
    l->result->persists = seen != FB_SEEN_FINITE;
    return FB_OK;
}

/* ---- hardware or data? ------------------------------------------------------------------------------------------------------- */

static int finite_enough(const fb_locate *l, const fb_tape *tape, uint32_t t)
{
    int32_t seen = fb_tape_saw(tape, t);
    return seen == FB_SEEN_FINITE || (seen == FB_SEEN_NEG_INF && (l->row.flow_flags[t] & FB_FLOW_MASK));
}

/* The same operator on this rank: it read finite numbers and made bad ones. Without a name, the finding itself. was: what the
   owner saw of its output. */
static int shows_here(const fb_locate *l, const fb_tape *tape, int32_t was)
{
    const fb_row *row = &l->row;
    uint32_t node = l->has_witness ? l->origins[0].node : FB_FLOW_NONE, t = l->has_witness ? l->origins[0].tensor : l->finding;
    int32_t seen = fb_tape_saw(tape, t);
    if (t == l->finding) seen = fb_locate_of_finding(l, seen);
    if (seen != FB_SEEN_BAD && seen != FB_SEEN_NEG_INF) return 0;
    if (seen == FB_SEEN_NEG_INF && was == FB_SEEN_BAD && (l->row.flow_flags[t] & FB_FLOW_MASK)) return 0;
    for (uint64_t e = node == FB_FLOW_NONE ? 0 : row->first[node]; node != FB_FLOW_NONE && e < row->first[node + 1]; e++) {
        if (!finite_enough(l, tape, row->inputs[e])) return 0;
    }
    return 1;
}

/* A digest of the state that comes to the operator, or to the finding, on this rank. */
static fb_status state_digest(const fb_locate *l, uint64_t *digest)
{
    const fb_row *row = &l->row;
    uint32_t node = l->has_witness ? l->origins[0].node : row->producer[l->finding];
    uint8_t *leads = fb_calloc((size_t)row->tensors, 1);
    *digest = 0;
    if (!leads) return FB_E_NOMEM;
    leads[l->has_witness ? l->origins[0].tensor : l->finding] = 1;
    for (uint32_t k = node == FB_FLOW_NONE ? 0 : node + 1; k-- > 0;) {
        uint8_t way = 0;
        for (uint32_t i = 0; i < row->node[k].output_count; i++) way |= leads[row->node[k].first_output + i];
        for (uint64_t e = row->first[k]; way && e < row->first[k + 1]; e++) leads[row->inputs[e]] = 1;
    }
    for (uint32_t i = 0; i < row->entries; i++) {
        uint32_t t = row->entry[i].tensor;
        if (leads[t] && (row->flags[t] & FB_TAPE_STATE))
            *digest = fb_hash64(&row->entry[i].hash, sizeof row->entry[i].hash, *digest);
    }
    fb_free(leads);
    return FB_OK;
}

/* The batch and the random state are made alike by the replay. Where the state is not, the ranks do not compute the same, and what
   the others come to tells nothing of a device. */
static fb_status state_is_alike(fb_locate *l, int32_t *alike, fb_error *err)
{
    uint64_t digest;
    fb_status status = state_digest(l, &digest);
    if (status != FB_OK) status = fb_fail(err, FB_E_NOMEM, "locate: no memory for the ways to %u tensors", l->row.tensors);
    status = fb_ranks_agree(&l->ranks, status, err);
    if (status == FB_OK) status = fb_ranks_same(&l->ranks, digest, alike, err);
    if (status == FB_OK && !*alike)
        fb_locate_note(l, "the ranks do not hold the same state, so the batch was not tried on other ranks");
    return status;
}

/* What comes out of a collective operator is the same everywhere, and says nothing of a rank. */
static int tells_ranks_apart(const fb_locate *l)
{
    uint32_t node = l->has_witness ? l->origins[0].node : l->row.producer[l->finding];
    if (l->has_witness) return node != FB_FLOW_NONE && !(l->row.node[node].flags & FB_TAPE_COLLECTIVE);
    return l->config->finding_boundary < FB_REDUCED_GRAD;
}

static fb_status count_ranks(fb_locate *l, int32_t shows, fb_error *err)
{
    const fb_ranks *ranks = &l->ranks;
    int32_t *bad = fb_calloc((size_t)ranks->world, sizeof *bad);
    int32_t from = l->has_witness ? l->origins[0].owner : l->config->finding_rank;
    fb_status status = bad ? FB_OK : fb_fail(err, FB_E_NOMEM, "locate: no memory for %d ranks", ranks->world);
    status = fb_ranks_agree(ranks, status, err);
    if (status == FB_OK && bad) {
        bad[ranks->rank] = shows;
        status = fb_ranks_max(ranks, bad, (size_t)ranks->world, err);
    }
    for (int32_t i = 0; i < ranks->world && status == FB_OK && bad; i++) {
        l->result->other_ranks_tried += i != from;
        l->result->other_ranks_bad += i != from && bad[i];
    }
    fb_free(bad);
    return status;
}

fb_status fb_locate_on_others(fb_locate *l, fb_error *err)
{
    fb_tape_finding finding = finding_of(l);
    fb_replay_request request;
    int32_t played = FB_PLAYED_FAILED;
    int32_t alike = 1, was = FB_SEEN_NOT;
    fb_status status;
    fb_tape tape;
    if (l->ranks.world == 1 || !tells_ranks_apart(l)) return FB_OK;
    status = state_is_alike(l, &alike, err);
    if (status != FB_OK || !alike) return status;
    fb_tape_init(&tape, FB_TAPE_COMPARE, &l->row, &finding);
    fb_locate_request(&request, FB_REPLAY_OTHER);
    request.as_rank = l->has_witness ? l->origins[0].owner : l->config->finding_rank;
    fb_locate_want_nothing(l, &tape);
    fb_locate_want_witness(l, &tape, FB_WANT_LOOK);
    status = fb_locate_play(l, &tape, &request, &played, err);
    if (status == FB_OK && l->has_witness) {
        was = l->seen[l->origins[0].tensor];
        status = fb_ranks_from(&l->ranks, request.as_rank, &was, 1, err);
    }
    if (status == FB_OK && played == FB_PLAYED) status = count_ranks(l, shows_here(l, &tape, was), err);
    fb_tape_release(&tape);
    return status;
}
