/*
 * Who is it, over all ranks?
 *
 * The search hears the worst of all ranks for each tensor, which is enough to know what to look at: what is finite for it is finite
 * everywhere. It is not enough to accuse. An operator that fails on one rank, where its value is swallowed, and a later one that
 * fails on another rank make one unbroken chain together, and none by themselves. So each rank follows the chains in its own
 * tensors; they go over to other ranks in collective operators, which read the inputs of all, and nowhere else.
 *
 * What comes after what goes the same way: on a rank through any tensors, to other ranks through collective operators alone.
 *
 * The words (bad, chain, origin, may, must, late) are those of search/trace.h.
 */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "locate/cause_inside.h"

enum { SWALLOWED_MAX = 16, LATER_MAX = 16 };

typedef struct judge {
    fb_locate *l;
    fb_cone cone;
    fb_trace own;  /* this rank's tensors */
    fb_trace all;  /* the worst of all ranks, as the search has it */
    int32_t *code; /* [nodes of the flow, or tensors if more] */
} judge;

static int collective(const judge *j, uint32_t node)
{
    return j->l->row.node[node].flags & FB_TAPE_COLLECTIVE ? 1 : 0;
}

static fb_status open_judge(judge *j, fb_locate *l, const fb_search *search, fb_error *err)
{
    size_t tensors = l->row.tensors, room = tensors > l->row.nodes ? tensors : l->row.nodes;
    fb_status status = fb_cone_init(&j->cone, &l->row.flow, l->finding, err);
    j->l = l;
    if (status == FB_OK) status = fb_trace_init(&j->own, &j->cone, err);
    if (status == FB_OK) status = fb_trace_init(&j->all, &j->cone, err);
    if (status != FB_OK) return status;
    j->code = fb_calloc(room, sizeof *j->code);
    if (!j->code) return fb_fail(err, FB_E_NOMEM, "judge origins: no memory for %zu numbers", room);
    for (uint32_t t = 0; t < tensors; t++) {
        j->own.seen[t] = l->seen[t];
        j->all.seen[t] = (uint8_t)fb_search_seen(search, t);
#ifdef FB_BREAK_P5_ranks
        j->own.seen[t] = j->all.seen[t]; /* the broken build puts one chain together from several ranks */
#endif
    }
    fb_trace_settle(&j->all);
    fb_trace_settle(&j->own);
    /* Whether -Inf behind a collective is a mask depends on what all ranks gave it. */
    for (uint32_t t = 0; t < tensors; t++) {
        uint32_t node = l->row.producer[t];
        if (node != FB_FLOW_NONE && collective(j, node) && j->own.seen[t] == FB_SEEN_NEG_INF)
            j->own.counts_as[t] = j->all.counts_as[t];
    }
    return FB_OK;
}

static void close_judge(judge *j)
{
    fb_trace_release(&j->own);
    fb_trace_release(&j->all);
    fb_cone_release(&j->cone);
    fb_free(j->code);
}

/* ---- chains ------------------------------------------------------------------------------------------------------------------ */

/* How an operator goes on to the finding, on this rank or, for a collective one, on any. */
typedef struct onward {
    int32_t may, must;
    uint32_t steps, tensor; /* where must: of the shortest */
} onward;

static onward onward_here(const judge *j, uint32_t node)
{
    const fb_row_node *of = &j->l->row.node[node];
    onward way = {0, 0, 0, FB_FLOW_NONE};
    for (uint32_t i = 0; i < of->output_count; i++) {
        if (j->own.may[of->first_output + i]) way.may = 1;
    }
    way.tensor = fb_trace_chain_start(&j->own, node);
    if (way.tensor == FB_FLOW_NONE) return way;
    way.must = 1;
    way.steps = j->own.steps[way.tensor];
    return way;
}

/* The shortest of all ranks, and of those of one length the tensor with the lowest number. */
static fb_status onward_anywhere(const judge *j, onward *way, fb_error *err)
{
    int32_t values[2], tensor;
    fb_status status;
    values[0] = way->may;
    values[1] = way->must ? INT32_MAX - (int32_t)way->steps : 0;
    status = fb_ranks_max(&j->l->ranks, values, 2, err);
    if (status != FB_OK) return status;
    tensor = way->must && values[1] == INT32_MAX - (int32_t)way->steps ? INT32_MAX - (int32_t)way->tensor : 0;
    if ((status = fb_ranks_max(&j->l->ranks, &tensor, 1, err)) != FB_OK) return status;
    way->may = values[0];
    way->must = values[1] != 0;
    way->steps = (uint32_t)(INT32_MAX - values[1]);
    way->tensor = (uint32_t)(INT32_MAX - tensor);
    return FB_OK;
}

/*
 * One NaN or +Inf that is read by an operator which gives elements as they are, and which gave neither: it was not taken.
 * torch.logdet reads a NaN for determinants below 0 in every call. Of a tensor with more elements another may be the one that went
 * on.
 */
static int not_taken(const judge *j, uint32_t node, uint32_t input)
{
    static const char *const names[] = {"where", "masked_fill", "cat", "stack", "copy", "clone"};
    const fb_row *row = &j->l->row;
    const fb_row_node *of = &row->node[node];
    char name[96];
    int32_t backward;
    int gives = 0;
    if (j->own.seen[input] != FB_SEEN_BAD || row->count[input] != 1 || (of->flags & FB_TAPE_COLLECTIVE)) return 0;
    for (uint32_t i = 0; i < of->output_count; i++) {
        uint8_t seen = j->own.seen[of->first_output + i];
        if (seen != FB_SEEN_FINITE && seen != FB_SEEN_NEG_INF) return 0;
    }
    (void)fb_op_stem(name, sizeof name, fb_row_text(row, of->op), &backward);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) gives |= !backward && strcmp(names[i], name) == 0;
    return gives;
}

static void link_input(judge *j, uint32_t node, uint32_t input, const onward *way)
{
    fb_trace *own = &j->own;
    if (own->counts_as[input] == FB_SEEN_FINITE || not_taken(j, node, input)) return;
    own->may[input] = 1;
    if (own->counts_as[input] != FB_SEEN_BAD || !way->must) return;
    if (own->must[input] && own->steps[input] <= way->steps + 1) return;
    own->must[input] = 1;
    own->steps[input] = way->steps + 1;
    own->next[input] = way->tensor;
}

static fb_status follow_chains(judge *j, fb_error *err)
{
    const fb_row *row = &j->l->row;
    uint32_t finding = j->cone.finding;
    fb_status status = FB_OK;
    if (j->l->ranks.rank == j->l->config->finding_rank) {
        j->own.may[finding] = 1;
        j->own.must[finding] = j->own.counts_as[finding] == FB_SEEN_BAD;
    }
    j->own.next[finding] = FB_FLOW_NONE;
    for (uint32_t k = j->cone.end; k-- > 0 && status == FB_OK;) {
        onward way;
        if (!j->cone.node_matters[k]) continue;
        way = onward_here(j, k);
        if (collective(j, k)) status = onward_anywhere(j, &way, err);
        if (!way.may) continue;
        for (uint64_t e = row->first[k]; e < row->first[k + 1]; e++) link_input(j, k, row->inputs[e], &way);
    }
#ifdef FB_BREAK_P5_chain
    /* The broken build accuses whoever made something bad, whether or not it leads anywhere. */
    for (uint32_t t = 0; t < row->tensors; t++) {
        if (j->own.counts_as[t] != FB_SEEN_BAD || j->own.must[t]) continue;
        j->own.may[t] = j->own.must[t] = 1;
        j->own.next[t] = FB_FLOW_NONE;
    }
#endif
    return status;
}

/* A collective operator is one event of all ranks: it reads what each gave it, and what it makes comes after it on each. */
static fb_status find_late(judge *j, fb_error *err)
{
    fb_status status = FB_OK;
    for (uint32_t k = 0; k < j->cone.end && status == FB_OK; k++) {
        int32_t late = fb_trace_late(&j->own, k);
        /* The bits are nested, so that the largest is all of them together. */
        if (j->cone.node_matters[k] && collective(j, k)) status = fb_ranks_max(&j->l->ranks, &late, 1, err);
        j->own.late[k] = (uint8_t)late;
    }
    return status;
}

/* ---- origins ----------------------------------------------------------------------------------------------------------------- */

static int32_t node_origin(const judge *j, uint32_t node)
{
    int reads;
    onward way;
    if (!j->cone.node_matters[node]) return FB_ORIGIN_NO;
    if (!collective(j, node)) return fb_trace_node_origin(&j->own, node);
    way = onward_here(j, node);
    if (!way.may) return FB_ORIGIN_NO;
    reads = fb_trace_node(&j->all, node);
    if (reads & FB_READ_BAD) return FB_ORIGIN_NO;
    return (reads & FB_READ_UNSEEN) || !way.must ? FB_ORIGIN_POSSIBLE : FB_ORIGIN_WITNESSED;
}

/* State that is bad has been found before the step, and a chain is not asked for. */
static int bad_state(const judge *j, const fb_trace *trace, uint32_t t)
{
    return j->cone.matters[t] && (j->l->row.flow_flags[t] & FB_FLOW_STATE) && trace->seen[t] == FB_SEEN_BAD;
}

static fb_status add_origins(judge *j, const uint32_t *places, uint32_t count, int entries, fb_error *err)
{
    fb_locate *l = j->l;
    fb_origin *grown;
    if (count == 0) return FB_OK;
    grown = fb_realloc(l->origins, ((size_t)l->origin_count + count) * sizeof *l->origins);
    if (!grown) return fb_fail(err, FB_E_NOMEM, "judge origins: no memory for %u candidates", count);
    l->origins = grown;
    for (uint32_t i = 0; i < count; i++) {
        fb_origin *origin = &l->origins[l->origin_count + i];
        origin->node = entries ? FB_FLOW_NONE : places[i];
        origin->tensor = entries ? places[i] : fb_trace_chain_start(&j->own, places[i]);
        origin->witnessed = j->code[i] == FB_ORIGIN_WITNESSED;
    }
    return FB_OK;
}

/* On whom is each of them what it is, and which tensor is the first of the chain there? */
static fb_status find_owners(judge *j, uint32_t count, const uint8_t *mine, fb_error *err)
{
    fb_locate *l = j->l;
    fb_origin *origins;
    fb_status status;
    if (count == 0) return FB_OK; /* and there may be no array to point into */
    origins = l->origins + l->origin_count;
    for (uint32_t i = 0; i < count; i++) {
        int32_t as = mine[i] == FB_ORIGIN_WITNESSED ? 1 : 0;
        j->code[i] = mine[i] && as == origins[i].witnessed ? INT32_MAX - l->ranks.rank : 0;
    }
    if ((status = fb_ranks_max(&l->ranks, j->code, count, err)) != FB_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        origins[i].owner = INT32_MAX - j->code[i];
        j->code[i] = origins[i].owner == l->ranks.rank && origins[i].tensor != FB_FLOW_NONE ? (int32_t)origins[i].tensor : -1;
    }
    if ((status = fb_ranks_max(&l->ranks, j->code, count, err)) != FB_OK) return status;
    for (uint32_t i = 0; i < count; i++) origins[i].tensor = j->code[i] < 0 ? FB_FLOW_NONE : (uint32_t)j->code[i];
    l->origin_count += count;
    return FB_OK;
}

/* The codes of this rank are in j->code[0 .. end): make candidates of those that are one on some rank. */
static fb_status gather(judge *j, uint32_t end, int entries, fb_error *err)
{
    uint32_t *places = fb_calloc(end, sizeof *places), count = 0;
    uint8_t *mine = fb_calloc(end, 1);
    fb_status status = FB_OK;
    if (!places || !mine) status = fb_fail(err, FB_E_NOMEM, "judge origins: no memory for %u places", end);
    for (uint32_t i = 0; i < end && mine; i++) mine[i] = (uint8_t)j->code[i];
    status = fb_ranks_agree(&j->l->ranks, status, err);
    if (status == FB_OK) status = fb_ranks_max(&j->l->ranks, j->code, end, err);
    for (uint32_t i = 0; i < end && status == FB_OK && places && mine; i++) {
        if (j->code[i] == FB_ORIGIN_NO) continue;
        mine[count] = mine[i];
        j->code[count] = j->code[i];
        places[count++] = i;
    }
    if (status == FB_OK) status = fb_ranks_agree(&j->l->ranks, add_origins(j, places, count, entries, err), err);
    if (status == FB_OK) status = find_owners(j, count, mine, err);
    fb_free(places);
    fb_free(mine);
    return status;
}

static int is_candidate(const fb_locate *l, uint32_t node)
{
    for (uint32_t i = 0; i < l->origin_count; i++) {
        if (l->origins[i].node == node) return 1;
    }
    return 0;
}

/* Origins that come after something that is bad for certain, on every rank on which they may be one. */
static fb_status find_later(judge *j, fb_error *err)
{
    fb_locate *l = j->l;
    fb_status status = FB_OK;
    l->later = fb_calloc(LATER_MAX, sizeof *l->later);
    if (!l->later) status = fb_fail(err, FB_E_NOMEM, "judge origins: no memory for what comes later");
    status = fb_ranks_agree(&l->ranks, status, err);
    for (uint32_t k = 0; k < j->cone.end && status == FB_OK; k++) j->code[k] = (j->own.late[k] & FB_LATE) && node_origin(j, k);
    if (status == FB_OK) status = fb_ranks_max(&l->ranks, j->code, j->cone.end, err);
    for (uint32_t k = 0; k < j->cone.end && status == FB_OK; k++) {
        if (!j->code[k] || is_candidate(l, k)) continue;
        if (l->later_count < LATER_MAX) l->later[l->later_count++] = k;
        l->result->later++;
    }
    return status;
}

static fb_status find_origins(judge *j, int32_t *refused, fb_error *err)
{
    uint32_t tensors = j->l->row.tensors;
    fb_status status;
    *refused = 0;
    for (uint32_t t = 0; t < tensors; t++) *refused |= bad_state(j, &j->all, t);
    for (uint32_t t = 0; t < tensors; t++) {
        if (*refused) j->code[t] = bad_state(j, &j->own, t) ? FB_ORIGIN_WITNESSED : FB_ORIGIN_NO;
        else j->code[t] = j->cone.matters[t] ? fb_trace_entry_origin(&j->own, t) : FB_ORIGIN_NO;
    }
    status = gather(j, tensors, 1, err);
    if (status != FB_OK || *refused) return status;
    if ((status = find_late(j, err)) != FB_OK) return status;
    for (uint32_t k = 0; k < j->cone.end; k++) j->code[k] = j->own.late[k] & FB_LATE ? FB_ORIGIN_NO : node_origin(j, k);
    status = gather(j, j->cone.end, 0, err);
    return status == FB_OK ? find_later(j, err) : status;
}

/* ---- what is said ------------------------------------------------------------------------------------------------------------ */

static int32_t conclusion(const fb_locate *l, int refused, int seen_again)
{
    uint32_t witnessed = 0;
    int entry = 0;
    for (uint32_t i = 0; i < l->origin_count; i++) {
        if (!seen_again) l->origins[i].witnessed = 0;
        witnessed += l->origins[i].witnessed != 0;
        entry |= l->origins[i].witnessed && l->origins[i].node == FB_FLOW_NONE;
    }
    if (l->origin_count == 0) return FB_LOCATED_UNDECIDED;
    if (refused || entry) return FB_LOCATED_ENTRY;
    if (witnessed < l->origin_count) return FB_LOCATED_INTERVAL;
    return l->origin_count == 1 ? FB_LOCATED_OPERATOR : FB_LOCATED_SET;
}

/* The chain of the first candidate, link by link: the rank that has a tensor says what comes next. */
static fb_status walk_chain(judge *j, fb_error *err)
{
    fb_locate *l = j->l;
    const fb_origin *origin = &l->origins[0];
    uint32_t t = origin->tensor;
    int32_t rank = origin->owner;
    fb_status status = FB_OK;
    l->chain = fb_calloc((size_t)l->row.nodes + 1, sizeof *l->chain);
    if (!l->chain) status = fb_fail(err, FB_E_NOMEM, "judge origins: no memory for a chain");
    status = fb_ranks_agree(&l->ranks, status, err);
    while (status == FB_OK && t != FB_FLOW_NONE && l->chain_count <= l->row.nodes) {
        int32_t next = j->own.must[t] && j->own.next[t] != FB_FLOW_NONE ? (int32_t)j->own.next[t] : -1;
        l->chain[l->chain_count].tensor = t;
        l->chain[l->chain_count++].rank = rank;
        status = fb_ranks_from(&l->ranks, rank, &next, 1, err);
        t = next < 0 ? FB_FLOW_NONE : (uint32_t)next;
        if (status != FB_OK || next < 0 || !collective(j, l->row.producer[t])) continue;
        /* Over to the rank whose way on is the shortest; all have at least the same tensor there. */
        next = j->own.must[t] ? INT32_MAX - (int32_t)j->own.steps[t] : 0;
        status = fb_ranks_max(&l->ranks, &next, 1, err);
        if (status == FB_OK)
            status = fb_ranks_lowest(&l->ranks, j->own.must[t] && INT32_MAX - (int32_t)j->own.steps[t] == next, &rank, err);
    }
    /* State that is bad needs no way to the finding; where there is none, there is no chain. */
    if (l->chain_count && l->chain[l->chain_count - 1].tensor != l->finding) l->chain_count = 0;
    return status;
}

static int harmless(const fb_locate *l, const uint8_t *seen, uint32_t t)
{
    return seen[t] == FB_SEEN_FINITE || (seen[t] == FB_SEEN_NEG_INF && (l->row.flow_flags[t] & FB_FLOW_MASK));
}

/* An operator that read nothing bad and made something bad from which no chain leads on. */
static int is_swallowed(const judge *j, uint32_t node)
{
    const fb_locate *l = j->l;
    const fb_row_node *of = &l->row.node[node];
    const uint8_t *seen = l->first_seen;
    int made = 0;
    for (uint64_t e = l->row.first[node]; e < l->row.first[node + 1]; e++) {
        if (!harmless(l, seen, l->row.inputs[e])) return 0;
    }
    for (uint32_t i = 0; i < of->output_count; i++) {
        uint32_t t = of->first_output + i;
        if (!fb_locate_counts(l, t) || j->own.may[t]) return 0;
        made |= seen[t] && !harmless(l, seen, t);
    }
    return made;
}

static fb_status find_swallowed(judge *j, fb_error *err)
{
    fb_locate *l = j->l;
    fb_status status = FB_OK;
    l->swallowed = fb_calloc(SWALLOWED_MAX, sizeof *l->swallowed);
    if (!l->swallowed) status = fb_fail(err, FB_E_NOMEM, "judge origins: no memory for what was swallowed");
    status = fb_ranks_agree(&l->ranks, status, err);
    for (uint32_t k = 0; k < l->row.nodes && status == FB_OK; k++) j->code[k] = is_swallowed(j, k);
    if (status == FB_OK) status = fb_ranks_max(&l->ranks, j->code, l->row.nodes, err);
    for (uint32_t k = 0; k < l->row.nodes && status == FB_OK; k++) {
        if (j->code[k] && l->swallowed_count < SWALLOWED_MAX) l->swallowed[l->swallowed_count++] = k;
    }
    return status;
}

static fb_status judge_origins(judge *j, const fb_search_verdict *verdict, fb_error *err)
{
    fb_locate *l = j->l;
    int32_t refused = 0;
    int seen_again = verdict->reason != FB_WHY_WITNESS && verdict->reason != FB_WHY_BUDGET;
    fb_status status = follow_chains(j, err);
    if (status == FB_OK) status = find_origins(j, &refused, err);
    if (status != FB_OK) return status;
    l->found = conclusion(l, refused, seen_again);
    if (l->origin_count && l->origins[0].tensor != FB_FLOW_NONE) status = walk_chain(j, err);
    return status == FB_OK ? find_swallowed(j, err) : status;
}

fb_status fb_locate_judge(fb_locate *l, const fb_search *search, fb_error *err)
{
    const fb_search_verdict *verdict = fb_search_result(search);
    int32_t differ = l->contradicted;
    fb_status status = fb_ranks_any(&l->ranks, &differ, err);
    judge j;
    memset(&j, 0, sizeof j);
    if (status != FB_OK) return status;
    l->found = verdict->found; /* numbered alike */
    l->reason = verdict->reason;
    if (differ && verdict->found != FB_FOUND_NOT_REPRODUCED && verdict->found != FB_FOUND_UNDECIDED)
        l->found = FB_LOCATED_NOT_STEADY;
    if (l->found != FB_LOCATED_OPERATOR && l->found != FB_LOCATED_SET && l->found != FB_LOCATED_INTERVAL &&
        l->found != FB_LOCATED_ENTRY)
        return FB_OK;
    status = fb_ranks_agree(&l->ranks, open_judge(&j, l, search, err), err);
    if (status == FB_OK) status = judge_origins(&j, verdict, err);
    close_judge(&j);
    return status;
}
