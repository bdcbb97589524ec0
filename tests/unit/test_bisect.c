/* The search by replays: what it names, what it refuses to name, what it asks, and misuse. Dataflows are small and spelled out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "search/bisect.h"

enum { NODES = 1000, TENSORS = NODES + 8, EDGES = 4 * NODES };

static struct {
    fb_flow flow;
    uint32_t producer[TENSORS], flags[TENSORS], inputs[EDGES];
    uint64_t first[NODES + 1];
    int32_t seen[TENSORS];  /* what every replay sees */
    int32_t later[TENSORS]; /* what replays from `turn` on see; 0: the same */
    uint32_t turn, replays;
    fb_question last;
} f;

static fb_error err;

/* ---- building ---------------------------------------------------------------------------------------------------------------- */

static uint32_t entry(uint32_t flags, int32_t seen)
{
    uint32_t t = f.flow.tensors++;
    f.producer[t] = FB_FLOW_NONE;
    f.flags[t] = flags;
    f.seen[t] = seen;
    return t;
}

/* A node that reads up to three tensors and makes one; FB_FLOW_NONE: no more inputs. */
static uint32_t node(uint32_t a, uint32_t b, uint32_t c, int32_t seen)
{
    uint32_t reads[] = {a, b, c};
    uint32_t t = f.flow.tensors++;
    uint64_t e = f.first[f.flow.nodes];
    for (int i = 0; i < 3 && reads[i] != FB_FLOW_NONE; i++) f.inputs[e++] = reads[i];
    f.producer[t] = f.flow.nodes++;
    f.first[f.flow.nodes] = e;
    f.seen[t] = seen;
    return t;
}

static uint32_t after(uint32_t a, int32_t seen)
{
    return node(a, FB_FLOW_NONE, FB_FLOW_NONE, seen);
}

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.flow.producer = f.producer;
    f.flow.flags = f.flags;
    f.flow.first = f.first;
    f.flow.inputs = f.inputs;
    return 0;
}

/* entry 0, then tensor k + 1 made by node k; bad from node `from` up to the finding, which is the last tensor. */
static void chain(uint32_t nodes, uint32_t from)
{
    uint32_t t = entry(0, FB_SEEN_FINITE);
    for (uint32_t k = 0; k < nodes; k++) t = after(t, k < from ? FB_SEEN_FINITE : FB_SEEN_BAD);
}

/* ---- searching --------------------------------------------------------------------------------------------------------------- */

static int32_t look(uint32_t t)
{
    return f.replays >= f.turn && f.later[t] ? f.later[t] : f.seen[t];
}

static fb_status replay(void *ctx, const fb_question *question, int32_t *seen, fb_error *e)
{
    int32_t all = question->about == FB_ASK_ALL_FINITE ? FB_SEEN_FINITE : FB_SEEN_BAD;
    int32_t other = all == FB_SEEN_BAD ? FB_SEEN_FINITE : FB_SEEN_BAD;
    (void)ctx;
    (void)e;
    f.last = *question;
    seen[0] = all;
    for (uint32_t i = 0; i < question->count; i++) {
        int32_t saw = look(question->tensors[i]);
        if (question->about == FB_ASK_EACH) seen[i] = saw;
        else if (saw == FB_SEEN_UNTESTABLE) seen[0] = saw;
        else if (saw != all && seen[0] == all) seen[0] = other;
    }
    f.replays++;
    return FB_OK;
}

static fb_search *search_with(fb_search_options options, uint32_t finding)
{
    fb_search *s;
    options.finding = finding;
    f.replays = 0;
    assert_int_equal(fb_search_open(&s, &f.flow, &options, &err), FB_OK);
    assert_int_equal(fb_search_run(s, replay, NULL, &err), FB_OK);
    assert_int_equal(fb_search_result(s)->replays, f.replays);
    return s;
}

/* Both strategies have to say the same; the one of bisect is returned. */
static fb_search *search(uint32_t finding)
{
    fb_search *sweep = search_with((fb_search_options){.strategy = FB_SEARCH_SWEEP}, finding);
    fb_search *bisect = search_with((fb_search_options){.strategy = FB_SEARCH_BISECT}, finding);
    const fb_search_verdict *a = fb_search_result(sweep), *b = fb_search_result(bisect);
    assert_int_equal(a->found, b->found);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) assert_memory_equal(&a->candidates[i], &b->candidates[i], sizeof *a->candidates);
    fb_search_free(sweep);
    return bisect;
}

static void expect_node(uint32_t finding, uint32_t tensor)
{
    fb_search *s = search(finding);
    const fb_search_verdict *v = fb_search_result(s);
    assert_int_equal(v->found, FB_FOUND_NODE);
    assert_int_equal(v->count, 1);
    assert_int_equal(v->candidates[0].node, f.producer[tensor]);
    assert_int_equal(v->candidates[0].tensor, tensor);
    assert_int_equal(v->first, f.producer[tensor]);
    assert_int_equal(v->last, v->first);
    fb_search_free(s);
}

/* ---- what is named ----------------------------------------------------------------------------------------------------------- */

static void test_bisect__every_node_of_a_chain_is_found_within_its_bound_of_replays(void **state)
{
    for (uint32_t from = 0; from < 64; from++) {
        fb_search *s;
        set_up(state);
        chain(64, from);
        expect_node(64, from + 1);
        s = search_with((fb_search_options){0}, 64);
        assert_in_range(fb_search_result(s)->replays, 1, 3 + 6);
        fb_search_free(s);
    }
}

static void test_bisect__a_thousand_nodes_take_thirteen_replays_and_the_sweep_two(void **state)
{
    fb_search *s;
    (void)state;
    chain(1000, 400);
    s = search_with((fb_search_options){0}, 1000);
    assert_in_range(fb_search_result(s)->replays, 1, 13);
    fb_search_free(s);
    s = search_with((fb_search_options){.strategy = FB_SEARCH_SWEEP}, 1000);
    assert_int_equal(fb_search_result(s)->replays, 2);
    fb_search_free(s);
}

static void test_bisect__one_bit_a_replay_finds_it_in_log2_and_a_few(void **state)
{
    (void)state;
    chain(1000, 400);
    {
        fb_search *s = search_with((fb_search_options){.one_bit = 1}, 1000);
        assert_int_equal(fb_search_result(s)->found, FB_FOUND_NODE);
        assert_int_equal(fb_search_result(s)->candidates[0].node, 400);
        assert_in_range(fb_search_result(s)->replays, 1, 16);
        fb_search_free(s);
    }
}

static void test_bisect__one_boundary_a_replay_pays_for_each_link_of_the_chain_twice(void **state)
{
    fb_search *s;
    (void)state;
    chain(64, 56);
    s = search_with((fb_search_options){.probes_max = 1, .one_bit = 1}, 64);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NODE);
    assert_int_equal(fb_search_result(s)->candidates[0].node, 56);
    assert_in_range(fb_search_result(s)->replays, 16, 2 * 8 + 6 + 4);
    fb_search_free(s);
}

/* 0..9 finite, 10 bad, 20 swallows it, 40 generates what is found: plain halving would end at 10 as readily as at 40. */
static void test_bisect__a_value_that_was_swallowed_is_not_the_origin_of_a_later_one(void **state)
{
    (void)state;
    chain(64, 40);
    for (uint32_t k = 10; k < 20; k++) f.seen[k + 1] = FB_SEEN_BAD;
    expect_node(64, 41);
}

static void test_bisect__everything_but_one_place_is_bad(void **state)
{
    for (uint32_t good = 1; good < 33; good++) {
        set_up(state);
        chain(33, 0);
        f.seen[good] = FB_SEEN_FINITE;
        expect_node(33, good + 1);
    }
}

static void test_bisect__the_origin_is_the_inf_and_not_the_nan_that_it_became(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), inf, nan;
    (void)state;
    inf = after(x, FB_SEEN_BAD);                     /* +Inf */
    nan = node(inf, inf, FB_FLOW_NONE, FB_SEEN_BAD); /* Inf - Inf */
    expect_node(after(nan, FB_SEEN_BAD), inf);
}

static void test_bisect__a_neg_inf_that_is_no_mask_is_an_origin(void **state)
{
    uint32_t logarithm = after(entry(0, FB_SEEN_FINITE), FB_SEEN_NEG_INF);
    (void)state;
    expect_node(after(logarithm, FB_SEEN_NEG_INF), logarithm);
}

/* ---- attention --------------------------------------------------------------------------------------------------------------- */

/* x -> q.k -> scores + mask -> softmax -> out -> loss; returns the loss. */
static uint32_t attention(uint32_t mask_flags, int32_t qk, int32_t scores, int32_t weights, int32_t later, uint32_t places[4])
{
    uint32_t x = entry(0, FB_SEEN_FINITE), mask = entry(mask_flags, FB_SEEN_NEG_INF);
    places[0] = after(x, qk);
    places[1] = node(places[0], mask, FB_FLOW_NONE, scores);
    f.flags[places[1]] = mask_flags & FB_FLOW_MASK;
    places[2] = after(places[1], weights);
    places[3] = node(x, places[2], FB_FLOW_NONE, later);
    return after(places[3], FB_SEEN_BAD);
}

static void test_bisect__an_intended_mask_in_healthy_attention_is_never_named(void **state)
{
    uint32_t p[4], loss;
    (void)state;
    loss = attention(0, FB_SEEN_FINITE, FB_SEEN_NEG_INF, FB_SEEN_FINITE, FB_SEEN_FINITE, p);
    expect_node(loss, loss);
    set_up(state);
    loss = attention(FB_FLOW_STATE, FB_SEEN_FINITE, FB_SEEN_NEG_INF, FB_SEEN_FINITE, FB_SEEN_BAD, p);
    expect_node(loss, p[3]);
    set_up(state);
    loss = attention(FB_FLOW_MASK | FB_FLOW_STATE, FB_SEEN_FINITE, FB_SEEN_NEG_INF, FB_SEEN_FINITE, FB_SEEN_BAD, p);
    expect_node(loss, p[3]);
}

static void test_bisect__a_fully_masked_row_is_found_at_the_softmax(void **state)
{
    uint32_t p[4], loss;
    (void)state;
    loss = attention(FB_FLOW_MASK, FB_SEEN_FINITE, FB_SEEN_NEG_INF, FB_SEEN_BAD, FB_SEEN_BAD, p);
    expect_node(loss, p[2]);
}

static void test_bisect__scores_that_overflow_are_found_before_the_mask(void **state)
{
    uint32_t p[4], loss;
    (void)state;
    loss = attention(FB_FLOW_MASK, FB_SEEN_BAD, FB_SEEN_BAD, FB_SEEN_BAD, FB_SEEN_BAD, p);
    expect_node(loss, p[0]);
}

/* q.k is -Inf and so are the masked scores: the mask alone may have done it, or not. */
static void test_bisect__a_mask_that_may_be_carrying_something_gives_an_interval(void **state)
{
    uint32_t p[4], loss;
    fb_search *s;
    const fb_search_verdict *v;
    (void)state;
    loss = attention(FB_FLOW_MASK, FB_SEEN_NEG_INF, FB_SEEN_NEG_INF, FB_SEEN_BAD, FB_SEEN_BAD, p);
    s = search(loss);
    v = fb_search_result(s);
    assert_int_equal(v->found, FB_FOUND_INTERVAL);
    assert_int_equal(v->first, f.producer[p[0]]);
    assert_int_equal(v->last, f.producer[p[2]]);
    fb_search_free(s);
}

/* Two blocks of it: the second softmax reads scores that are -Inf alone behind a NaN, and would have failed by itself as well. The
   residual stream carries the NaN of the first past it. */
static uint32_t two_blocks(int residual, uint32_t weights[2])
{
    uint32_t x = entry(0, FB_SEEN_FINITE);
    for (int block = 0; block < 2; block++) {
        uint32_t scores = after(x, FB_SEEN_NEG_INF);
        f.flags[scores] = FB_FLOW_MASK;
        weights[block] = after(scores, FB_SEEN_BAD);
        x = residual ? node(weights[block], x, FB_FLOW_NONE, FB_SEEN_BAD) : after(weights[block], FB_SEEN_BAD);
    }
    return x;
}

static void test_bisect__what_comes_after_a_witnessed_origin_is_later_and_not_first(void **state)
{
    uint32_t weights[2], last = two_blocks(1, weights);
    fb_search *s;
    (void)state;
    expect_node(last, weights[0]);
    s = search(last);
    assert_int_equal(fb_search_result(s)->later_count, 1);
    assert_int_equal(fb_search_result(s)->later[0], f.producer[weights[1]]);
    fb_search_free(s);
}

/* Without it the only way on leads through the second mask, which may have swallowed the NaN and failed by itself. */
static void test_bisect__where_the_only_way_on_is_a_mask_nothing_is_certain(void **state)
{
    uint32_t weights[2], last = two_blocks(0, weights);
    fb_search *s = search(last);
    const fb_search_verdict *v = fb_search_result(s);
    (void)state;
    assert_int_equal(v->found, FB_FOUND_INTERVAL);
    assert_int_equal(v->count, 2);
    assert_int_equal(v->first, f.producer[weights[0]]);
    assert_int_equal(v->last, f.producer[weights[1]]);
    fb_search_free(s);
}

/* The same, with a first block that nobody can look into: it may be healthy, and the second may be all there is. */
static void test_bisect__what_comes_after_something_unseen_stays_a_candidate(void **state)
{
    uint32_t hidden = after(entry(0, FB_SEEN_FINITE), FB_SEEN_UNTESTABLE);
    uint32_t scores = after(hidden, FB_SEEN_NEG_INF), weights, loss;
    fb_search *s;
    const fb_search_verdict *v;
    (void)state;
    f.flags[scores] = FB_FLOW_MASK;
    weights = after(scores, FB_SEEN_BAD);
    loss = after(weights, FB_SEEN_BAD);
    s = search(loss);
    v = fb_search_result(s);
    assert_int_equal(v->found, FB_FOUND_INTERVAL);
    assert_int_equal(v->first, f.producer[hidden]);
    assert_int_equal(v->last, f.producer[weights]);
    assert_int_equal(v->later_count, 0);
    fb_search_free(s);
}

/* Of two unseen places before it one must be bad, though it is not known which: what comes after them is not first all the same. */
static void test_bisect__what_comes_after_one_of_two_is_not_first_either(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), a = after(x, FB_SEEN_UNTESTABLE), b = after(a, FB_SEEN_BAD);
    uint32_t repaired = after(b, FB_SEEN_FINITE), again = after(repaired, FB_SEEN_BAD);
    uint32_t loss = node(b, again, FB_FLOW_NONE, FB_SEEN_BAD);
    fb_search *s = search(loss);
    const fb_search_verdict *v = fb_search_result(s);
    (void)state;
    assert_int_equal(v->found, FB_FOUND_INTERVAL);
    assert_int_equal(v->count, 2);
    assert_int_equal(v->candidates[0].node, f.producer[a]);
    assert_int_equal(v->candidates[1].node, f.producer[b]);
    assert_int_equal(v->later_count, 1);
    assert_int_equal(v->later[0], f.producer[again]);
    fb_search_free(s);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------------------ */

static void test_bisect__a_residual_branch_is_blamed_and_not_the_sum(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), branch, sum;
    (void)state;
    for (int layer = 0; layer < 20; layer++) {
        branch = after(x, layer < 12 ? FB_SEEN_FINITE : FB_SEEN_BAD);
        sum = node(x, branch, FB_FLOW_NONE, layer < 12 ? FB_SEEN_FINITE : FB_SEEN_BAD);
        x = sum;
    }
    expect_node(x, 2 * 12 + 1);
}

/* Forward is clean; backward of where() multiplies 0 by the infinite slope of a saved value that forward did not choose. */
static void test_bisect__a_saved_tensor_carries_the_chain_into_backward(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), unused, chosen, loss, grad_loss, grad_branch;
    (void)state;
    unused = after(x, FB_SEEN_BAD); /* exp(200) */
    chosen = node(x, unused, FB_FLOW_NONE, FB_SEEN_FINITE);
    loss = after(chosen, FB_SEEN_FINITE);
    grad_loss = after(loss, FB_SEEN_FINITE);
    grad_branch = node(grad_loss, unused, FB_FLOW_NONE, FB_SEEN_BAD);
    expect_node(after(grad_branch, FB_SEEN_BAD), unused);
}

static void test_bisect__forward_finite_and_backward_not_names_the_backward_node(void **state)
{
    uint32_t norm = after(entry(0, FB_SEEN_FINITE), FB_SEEN_FINITE), gradient;
    (void)state;
    gradient = node(after(norm, FB_SEEN_FINITE), norm, FB_FLOW_NONE, FB_SEEN_BAD); /* slope of a root at 0 */
    expect_node(after(gradient, FB_SEEN_BAD), gradient);
}

static void test_bisect__two_independent_origins_are_a_set(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), a, b, sum;
    fb_search *s;
    (void)state;
    a = after(x, FB_SEEN_BAD);
    b = after(x, FB_SEEN_BAD);
    sum = node(a, b, FB_FLOW_NONE, FB_SEEN_BAD);
    s = search(sum);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_SET);
    assert_int_equal(fb_search_result(s)->count, 2);
    fb_search_free(s);
}

static void test_bisect__what_does_not_lead_to_the_finding_is_neither_asked_nor_blamed(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), aside, finding;
    fb_search *s;
    (void)state;
    aside = after(x, FB_SEEN_BAD);
    finding = after(after(x, FB_SEEN_FINITE), FB_SEEN_BAD);
    expect_node(finding, finding);
    s = search(finding);
    assert_int_equal(fb_search_seen(s, aside), FB_SEEN_NOT);
    assert_int_equal(fb_search_label(s, f.producer[aside]), FB_LABEL_UNKNOWN);
    fb_search_free(s);
}

static void test_bisect__labels_and_chain_tell_the_way(void **state)
{
    uint32_t x = entry(0, FB_SEEN_FINITE), made, killed, passed, finding, way[8];
    fb_search *s;
    (void)state;
    made = after(x, FB_SEEN_BAD);
    killed = after(made, FB_SEEN_FINITE);
    passed = node(made, killed, FB_FLOW_NONE, FB_SEEN_BAD);
    finding = after(passed, FB_SEEN_BAD);
    s = search_with((fb_search_options){.strategy = FB_SEARCH_SWEEP}, finding);
    assert_int_equal(fb_search_label(s, f.producer[made]), FB_LABEL_GENERATE);
    assert_int_equal(fb_search_label(s, f.producer[killed]), FB_LABEL_KILL);
    assert_int_equal(fb_search_label(s, f.producer[passed]), FB_LABEL_PROPAGATE);
    assert_int_equal(fb_search_chain(s, made, way, 8), 3);
    assert_int_equal(way[0], made);
    assert_int_equal(way[1], passed);
    assert_int_equal(way[2], finding);
    assert_int_equal(fb_search_chain(s, made, way, 1), 3);
    assert_int_equal(fb_search_chain(s, killed, way, 8), 0);
    fb_search_free(s);
}

/* ---- what is refused --------------------------------------------------------------------------------------------------------- */

static void test_bisect__no_node_is_blamed_when_the_state_was_bad_on_entry(void **state)
{
    uint32_t weight = entry(FB_FLOW_STATE, FB_SEEN_BAD), x = entry(0, FB_SEEN_FINITE), first;
    fb_search *s;
    (void)state;
    first = after(x, FB_SEEN_BAD); /* an origin of its own, and still */
    s = search(node(first, weight, FB_FLOW_NONE, FB_SEEN_BAD));
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_ENTRY);
    assert_int_equal(fb_search_result(s)->count, 1);
    assert_int_equal(fb_search_result(s)->candidates[0].tensor, weight);
    assert_int_equal(fb_search_result(s)->candidates[0].node, FB_FLOW_NONE);
    assert_int_equal(fb_search_result(s)->first, -1);
    fb_search_free(s);
}

static void test_bisect__a_bad_batch_is_the_origin_only_when_a_chain_leads_from_it(void **state)
{
    uint32_t batch = entry(0, FB_SEEN_BAD), kept;
    fb_search *s;
    (void)state;
    kept = after(batch, FB_SEEN_FINITE); /* padding that nobody reads on */
    expect_node(after(kept, FB_SEEN_BAD), kept + 1);
    set_up(state);
    batch = entry(0, FB_SEEN_BAD);
    s = search(after(after(batch, FB_SEEN_BAD), FB_SEEN_BAD));
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_ENTRY);
    assert_int_equal(fb_search_result(s)->candidates[0].tensor, batch);
    fb_search_free(s);
}

static void test_bisect__what_is_known_of_the_state_is_not_asked_before_the_witness(void **state)
{
    uint32_t weight = entry(FB_FLOW_STATE, FB_SEEN_FINITE), x = entry(0, FB_SEEN_FINITE);
    fb_search_options options = {.finding = node(x, weight, FB_FLOW_NONE, FB_SEEN_BAD)};
    fb_search *s;
    const fb_question *question;
    (void)state;
    assert_int_equal(fb_search_open(&s, &f.flow, &options, &err), FB_OK);
    assert_int_equal(fb_search_know(s, weight, FB_SEEN_FINITE, &err), FB_OK);
    question = fb_search_ask(s);
    for (uint32_t i = 0; i < question->count; i++) assert_int_not_equal(question->tensors[i], weight);
    assert_int_equal(fb_search_run(s, replay, NULL, &err), FB_OK);
    assert_int_equal(f.last.phase, FB_PHASE_WITNESS);
    assert_int_equal(f.last.count, 3);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NODE);
    fb_search_free(s);
}

static void test_bisect__untestable_places_are_stepped_around(void **state)
{
    fb_search *s;
    (void)state;
    chain(64, 40);
    f.seen[32] = f.seen[48] = f.seen[50] = FB_SEEN_UNTESTABLE;
    s = search(64);
    /* 48 and 50 may have been finite, and then what follows them would be an origin too. */
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_INTERVAL);
    assert_int_equal(fb_search_result(s)->reason, FB_WHY_UNTESTABLE);
    assert_int_equal(fb_search_result(s)->first, 40);
    assert_int_equal(fb_search_result(s)->last, 50);
    assert_int_equal(fb_search_result(s)->count, 3);
    fb_search_free(s);
    f.seen[48] = f.seen[50] = FB_SEEN_BAD;
    expect_node(64, 41);
    f.seen[40] = FB_SEEN_UNTESTABLE;
    s = search(64);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_INTERVAL);
    assert_int_equal(fb_search_result(s)->first, 39);
    assert_int_equal(fb_search_result(s)->last, 40);
    fb_search_free(s);
}

static void test_bisect__nothing_testable_but_the_finding_gives_all_of_it(void **state)
{
    fb_search *s;
    (void)state;
    chain(16, 4);
    for (uint32_t t = 0; t < 16; t++) f.seen[t] = FB_SEEN_UNTESTABLE;
    s = search(16);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_INTERVAL);
    assert_int_equal(fb_search_result(s)->count, 17);
    assert_int_equal(fb_search_result(s)->first, -1);
    assert_int_equal(fb_search_result(s)->last, 15);
    fb_search_free(s);
    f.seen[16] = FB_SEEN_UNTESTABLE;
    s = search(16);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_UNDECIDED);
    assert_int_equal(fb_search_result(s)->last, -2);
    fb_search_free(s);
}

static void test_bisect__a_finding_that_does_not_come_back_is_a_result(void **state)
{
    fb_search *s;
    (void)state;
    chain(8, 8);
    s = search(8);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NOT_REPRODUCED);
    assert_int_equal(fb_search_result(s)->reproduced, 0);
    assert_int_equal(fb_search_result(s)->tried, FB_SEARCH_REPEATS);
    fb_search_free(s);
}

static void test_bisect__replays_that_contradict_each_other_end_as_k_of_n(void **state)
{
    fb_search *s;
    const fb_search_verdict *v;
    (void)state;
    chain(64, 40);
    f.later[64] = FB_SEEN_FINITE;
    f.turn = 3;
    s = search_with((fb_search_options){.repeats = 10}, 64);
    v = fb_search_result(s);
    assert_int_equal(v->found, FB_FOUND_NOT_STEADY);
    assert_int_equal(v->reproduced, 3);
    assert_int_equal(v->tried, 10);
    assert_int_equal(v->contradicted, 64);
    assert_int_equal(v->count, 0);
    fb_search_free(s);
}

/* The parameters were finite in one replay and not in the last: a node must not be named out of two halves. */
static void test_bisect__a_witness_that_changes_when_looked_at_again_names_nobody(void **state)
{
    fb_search *s;
    (void)state;
    chain(8, 3);
    f.turn = 1;
    f.later[3] = FB_SEEN_BAD;
    s = search_with((fb_search_options){.strategy = FB_SEARCH_SWEEP}, 8);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NOT_STEADY);
    assert_int_equal(fb_search_result(s)->contradicted, 3);
    assert_int_equal(fb_search_result(s)->reproduced, fb_search_result(s)->tried);
    fb_search_free(s);
    f.later[3] = FB_SEEN_UNTESTABLE;
    s = search_with((fb_search_options){.strategy = FB_SEARCH_SWEEP}, 8);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_INTERVAL);
    assert_int_equal(fb_search_result(s)->reason, FB_WHY_WITNESS);
    assert_int_equal(fb_search_result(s)->candidates[0].witnessed, 0);
    fb_search_free(s);
}

static void test_bisect__a_spent_budget_gives_what_is_known(void **state)
{
    (void)state;
    chain(64, 40);
    for (uint32_t budget = 1; budget < 9; budget++) {
        fb_search *s = search_with((fb_search_options){.replays_max = budget}, 64);
        const fb_search_verdict *v = fb_search_result(s);
        assert_int_equal(v->replays, budget);
        assert_int_equal(v->found, FB_FOUND_INTERVAL);
        assert_int_equal(v->reason, FB_WHY_BUDGET);
        assert_true(v->first <= 40 && v->last >= 40);
        fb_search_free(s);
    }
}

static void test_bisect__an_entry_can_be_the_finding(void **state)
{
    uint32_t x = entry(0, FB_SEEN_BAD);
    fb_search *s = search(x);
    (void)state;
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_ENTRY);
    assert_int_equal(fb_search_result(s)->candidates[0].tensor, x);
    fb_search_free(s);
}

/* ---- questions --------------------------------------------------------------------------------------------------------------- */

/* Two ranks, one ahead of the other, get equal answers and so ask equal questions. */
static void test_bisect__equal_answers_give_equal_questions(void **state)
{
    fb_search_options options = {.finding = 64, .probes_max = 5};
    fb_search *a, *b;
    const fb_question *p, *q;
    uint32_t asked = 0;
    (void)state;
    chain(64, 23);
    assert_int_equal(fb_search_open(&a, &f.flow, &options, &err), FB_OK);
    assert_int_equal(fb_search_open(&b, &f.flow, &options, &err), FB_OK);
    while ((p = fb_search_ask(a)) != NULL) {
        int32_t seen[8];
        assert_ptr_equal(fb_search_ask(a), p);
        q = fb_search_ask(b);
        assert_non_null(q);
        assert_int_equal(p->count, q->count);
        assert_int_equal(p->phase, q->phase);
        assert_int_equal(p->cut, q->cut);
        assert_memory_equal(p->tensors, q->tensors, p->count * sizeof *p->tensors);
        assert_int_equal(replay(NULL, p, seen, &err), FB_OK);
        assert_int_equal(fb_search_answer(a, seen, p->count, &err), FB_OK);
        assert_int_equal(fb_search_answer(b, seen, q->count, &err), FB_OK);
        asked++;
    }
    assert_null(fb_search_ask(b));
    assert_in_range(asked, 5, 60);
    assert_int_equal(fb_search_result(a)->candidates[0].node, 23);
    fb_search_free(a);
    fb_search_free(b);
}

static void test_bisect__the_worst_of_all_ranks_is_the_largest_number(void **state)
{
    (void)state;
    assert_true(FB_SEEN_NOT < FB_SEEN_FINITE && FB_SEEN_FINITE < FB_SEEN_NEG_INF);
    assert_true(FB_SEEN_NEG_INF < FB_SEEN_UNTESTABLE && FB_SEEN_UNTESTABLE < FB_SEEN_BAD);
}

static fb_status refuse_replay(void *ctx, const fb_question *question, int32_t *seen, fb_error *e)
{
    (void)ctx, (void)question, (void)seen, (void)e;
    return FB_E_IO;
}

static void test_bisect__a_search_goes_on_after_a_replay_that_could_not_be_made(void **state)
{
    fb_search_options options = {.finding = 8};
    fb_search *s;
    (void)state;
    chain(8, 3);
    assert_int_equal(fb_search_open(&s, &f.flow, &options, &err), FB_OK);
    assert_int_equal(fb_search_run(s, refuse_replay, NULL, &err), FB_E_IO);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NONE);
    assert_int_equal(fb_search_run(s, replay, NULL, &err), FB_OK);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NODE);
    fb_search_free(s);
}

/* ---- misuse and memory ------------------------------------------------------------------------------------------------------- */

static void expect_flow_refused(const char *part)
{
    assert_int_equal(fb_flow_check(&f.flow, &err), FB_E_USAGE);
    if (!strstr(err.message, part)) fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void test_bisect__a_dataflow_that_is_none_is_refused(void **state)
{
    (void)state;
    chain(3, 1);
    assert_int_equal(fb_flow_check(&f.flow, &err), FB_OK);
    assert_int_equal(fb_flow_check(NULL, &err), FB_E_USAGE);
    f.inputs[1] = 2;
    expect_flow_refused("causal order");
    f.inputs[1] = 99;
    expect_flow_refused("tensor 99");
    f.inputs[1] = 1;
    f.flags[2] = FB_FLOW_STATE;
    expect_flow_refused("state on entry");
    f.flags[2] = 64;
    expect_flow_refused("unknown flags");
    f.flags[2] = 0;
    f.first[2] = 0;
    expect_flow_refused("end before they start");
    f.first[2] = 2;
    f.first[0] = 1;
    expect_flow_refused("node 0");
    f.first[0] = 0;
    f.producer[3] = 3;
    expect_flow_refused("there are 3 nodes");
}

static void test_bisect__misuse_is_named_and_changes_nothing(void **state)
{
    fb_search_options options = {.finding = 8};
    int32_t seen[16] = {FB_SEEN_FINITE};
    fb_search *s = NULL;
    const fb_question *question;
    (void)state;
    chain(8, 3);
    options.finding = 9;
    assert_int_equal(fb_search_open(&s, &f.flow, &options, &err), FB_E_USAGE);
    options.finding = 8;
    options.strategy = 2;
    assert_int_equal(fb_search_open(&s, &f.flow, &options, &err), FB_E_USAGE);
    options.strategy = 0;
    assert_null(s);
    assert_int_equal(fb_search_open(NULL, &f.flow, &options, &err), FB_E_USAGE);
    assert_int_equal(fb_search_open(&s, &f.flow, &options, &err), FB_OK);
    assert_int_equal(fb_search_answer(s, seen, 1, &err), FB_E_ORDER);
    assert_int_equal(fb_search_know(s, 1, FB_SEEN_FINITE, &err), FB_E_USAGE);
    assert_int_equal(fb_search_know(s, 0, FB_SEEN_NOT, &err), FB_E_USAGE);
    question = fb_search_ask(s);
    assert_int_equal(fb_search_know(s, 0, FB_SEEN_FINITE, &err), FB_E_ORDER);
    assert_int_equal(fb_search_answer(s, seen, question->count + 1, &err), FB_E_USAGE);
    assert_int_equal(fb_search_answer(s, NULL, question->count, &err), FB_E_USAGE);
    seen[1] = 5;
    assert_int_equal(fb_search_answer(s, seen, question->count, &err), FB_E_USAGE);
    assert_ptr_equal(fb_search_ask(s), question);
    assert_int_equal(fb_search_result(s)->replays, 0);
    assert_int_equal(fb_search_run(s, replay, NULL, &err), FB_OK);
    assert_int_equal(fb_search_result(s)->found, FB_FOUND_NODE);
    assert_int_equal(fb_search_answer(s, seen, 1, &err), FB_E_ORDER);
    fb_search_free(s);
    fb_search_free(NULL);
    assert_null(fb_search_ask(NULL));
    assert_null(fb_search_result(NULL));
}

static void test_bisect__open_fails_cleanly_whichever_allocation_fails(void **state)
{
    fb_search_options options = {.finding = 8};
    fb_search *s;
    uint64_t k = 0;
    fb_status status;
    (void)state;
    chain(8, 3);
    do {
        fb_alloc_fail_at(++k, 0);
        status = fb_search_open(&s, &f.flow, &options, &err);
        fb_alloc_fail_at(0, 0);
        if (status != FB_OK) {
            assert_int_equal(status, FB_E_NOMEM);
            assert_null(s);
        }
    } while (status != FB_OK);
    assert_true(k > 10);
    fb_alloc_fail_at(1, 0);
    assert_int_equal(fb_search_run(s, replay, NULL, &err), FB_E_NOMEM);
    fb_alloc_fail_at(0, 0);
    fb_search_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_bisect__every_node_of_a_chain_is_found_within_its_bound_of_replays, set_up),
        cmocka_unit_test_setup(test_bisect__a_thousand_nodes_take_thirteen_replays_and_the_sweep_two, set_up),
        cmocka_unit_test_setup(test_bisect__one_bit_a_replay_finds_it_in_log2_and_a_few, set_up),
        cmocka_unit_test_setup(test_bisect__one_boundary_a_replay_pays_for_each_link_of_the_chain_twice, set_up),
        cmocka_unit_test_setup(test_bisect__a_value_that_was_swallowed_is_not_the_origin_of_a_later_one, set_up),
        cmocka_unit_test_setup(test_bisect__everything_but_one_place_is_bad, set_up),
        cmocka_unit_test_setup(test_bisect__the_origin_is_the_inf_and_not_the_nan_that_it_became, set_up),
        cmocka_unit_test_setup(test_bisect__a_neg_inf_that_is_no_mask_is_an_origin, set_up),
        cmocka_unit_test_setup(test_bisect__an_intended_mask_in_healthy_attention_is_never_named, set_up),
        cmocka_unit_test_setup(test_bisect__a_fully_masked_row_is_found_at_the_softmax, set_up),
        cmocka_unit_test_setup(test_bisect__scores_that_overflow_are_found_before_the_mask, set_up),
        cmocka_unit_test_setup(test_bisect__a_mask_that_may_be_carrying_something_gives_an_interval, set_up),
        cmocka_unit_test_setup(test_bisect__what_comes_after_a_witnessed_origin_is_later_and_not_first, set_up),
        cmocka_unit_test_setup(test_bisect__where_the_only_way_on_is_a_mask_nothing_is_certain, set_up),
        cmocka_unit_test_setup(test_bisect__what_comes_after_something_unseen_stays_a_candidate, set_up),
        cmocka_unit_test_setup(test_bisect__what_comes_after_one_of_two_is_not_first_either, set_up),
        cmocka_unit_test_setup(test_bisect__a_residual_branch_is_blamed_and_not_the_sum, set_up),
        cmocka_unit_test_setup(test_bisect__a_saved_tensor_carries_the_chain_into_backward, set_up),
        cmocka_unit_test_setup(test_bisect__forward_finite_and_backward_not_names_the_backward_node, set_up),
        cmocka_unit_test_setup(test_bisect__two_independent_origins_are_a_set, set_up),
        cmocka_unit_test_setup(test_bisect__what_does_not_lead_to_the_finding_is_neither_asked_nor_blamed, set_up),
        cmocka_unit_test_setup(test_bisect__labels_and_chain_tell_the_way, set_up),
        cmocka_unit_test_setup(test_bisect__no_node_is_blamed_when_the_state_was_bad_on_entry, set_up),
        cmocka_unit_test_setup(test_bisect__a_bad_batch_is_the_origin_only_when_a_chain_leads_from_it, set_up),
        cmocka_unit_test_setup(test_bisect__what_is_known_of_the_state_is_not_asked_before_the_witness, set_up),
        cmocka_unit_test_setup(test_bisect__untestable_places_are_stepped_around, set_up),
        cmocka_unit_test_setup(test_bisect__nothing_testable_but_the_finding_gives_all_of_it, set_up),
        cmocka_unit_test_setup(test_bisect__a_finding_that_does_not_come_back_is_a_result, set_up),
        cmocka_unit_test_setup(test_bisect__replays_that_contradict_each_other_end_as_k_of_n, set_up),
        cmocka_unit_test_setup(test_bisect__a_witness_that_changes_when_looked_at_again_names_nobody, set_up),
        cmocka_unit_test_setup(test_bisect__a_spent_budget_gives_what_is_known, set_up),
        cmocka_unit_test_setup(test_bisect__an_entry_can_be_the_finding, set_up),
        cmocka_unit_test_setup(test_bisect__equal_answers_give_equal_questions, set_up),
        cmocka_unit_test_setup(test_bisect__the_worst_of_all_ranks_is_the_largest_number, set_up),
        cmocka_unit_test_setup(test_bisect__a_search_goes_on_after_a_replay_that_could_not_be_made, set_up),
        cmocka_unit_test_setup(test_bisect__a_dataflow_that_is_none_is_refused, set_up),
        cmocka_unit_test_setup(test_bisect__misuse_is_named_and_changes_nothing, set_up),
        cmocka_unit_test_setup(test_bisect__open_fails_cleanly_whichever_allocation_fails, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
