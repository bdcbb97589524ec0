/*
 * Both strategies, in every manner of asking, against brute force on random dataflows: chains and graphs, nodes that generate, pass
 * on and swallow by input, masks of -Inf, bad entries, places that cannot be looked at, nodes that fail in some replays only.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "property/search_world.h"

enum { WORLDS = 100000 };

static fb_error err;
static world w;
static truth is;
static int answers_one_bit;

static struct {
    uint64_t searches, found[FB_FOUND_UNDECIDED + 1], replays[2], named[2], off[2], same_bit, bits, with_later, surplus;
} tally;

/* ---- one search -------------------------------------------------------------------------------------------------------------- */

static int32_t one_bit(const fb_question *question)
{
    int all = 1, hidden = 0;
    int32_t expected = question->about == FB_ASK_ALL_FINITE ? FB_SEEN_FINITE : FB_SEEN_BAD;
    for (uint32_t i = 0; i < question->count; i++) {
        uint32_t t = question->tensors[i];
        int32_t seen = world_look(&w, t);
        if (seen == FB_SEEN_NEG_INF) seen = (w.flags[t] & FB_FLOW_MASK) ? FB_SEEN_FINITE : FB_SEEN_BAD;
        if (seen == FB_SEEN_UNTESTABLE) hidden = 1;
        else if (seen != expected) all = 0;
    }
    if (hidden) return FB_SEEN_UNTESTABLE;
    if (all) return expected;
    return expected == FB_SEEN_FINITE ? FB_SEEN_BAD : FB_SEEN_FINITE;
}

static fb_status replay(void *ctx, const fb_question *question, int32_t *seen, fb_error *e)
{
    const fb_search_options *options = ctx;
    (void)e;
    assert_true(question->count >= 1);
    assert_true(!options->probes_max || question->count <= options->probes_max);
    if (w.flaky) world_replay(&w);
    if (question->about != FB_ASK_EACH) {
        seen[0] = one_bit(question);
        return FB_OK;
    }
    for (uint32_t i = 0; i < question->count; i++) {
        seen[i] = world_look(&w, question->tensors[i]);
        for (uint32_t j = 0; j < i; j++) assert_int_not_equal(question->tensors[i], question->tensors[j]);
    }
    return FB_OK;
}

static fb_search *search(fb_search_options *options)
{
    fb_search *s;
    options->finding = w.finding;
    answers_one_bit = options->one_bit;
    assert_int_equal(fb_search_open(&s, &w.flow, options, &err), FB_OK);
    assert_int_equal(fb_search_run(s, replay, options, &err), FB_OK);
    assert_null(fb_search_ask(s));
    tally.searches++;
    tally.found[fb_search_result(s)->found]++;
    return s;
}

/* ---- never wrong ------------------------------------------------------------------------------------------------------------- */

static int has(const fb_search_verdict *v, uint32_t node, uint32_t entry)
{
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->candidates[i].node == node && (node != FB_FLOW_NONE || v->candidates[i].tensor == entry)) return 1;
    }
    return 0;
}

static int is_later(const fb_search_verdict *v, uint32_t node)
{
    for (uint32_t i = 0; i < v->later_count; i++) {
        if (v->later[i] == node) return 1;
    }
    return 0;
}

static int refused(void)
{
    return is.state_bad || (answers_one_bit && is.state_inf);
}

static void check_candidates_hold_the_truth(const fb_search_verdict *v)
{
    for (uint32_t k = 0; k < w.flow.nodes; k++) {
        assert_false(has(v, k, 0) && is_later(v, k));
        if (is.node[k]) assert_true(has(v, k, 0) || is_later(v, k)); /* no origin is passed over */
        if (!is.first[k]) continue;
        assert_true(has(v, k, 0));
        assert_in_range(k, v->first < 0 ? 0 : v->first, v->last);
    }
    for (uint32_t t = 0; t < w.flow.tensors; t++) {
        if (is.entry[t]) assert_true(has(v, FB_FLOW_NONE, t));
    }
}

static void check_chain(const fb_search *s, const fb_candidate *c)
{
    uint32_t chain[WORLD_TENSORS];
    uint32_t links = fb_search_chain(s, c->tensor, chain, WORLD_TENSORS);
    assert_in_range(links, 1, w.flow.tensors);
    assert_int_equal(chain[0], c->tensor);
    assert_int_equal(chain[links - 1], w.finding);
    for (uint32_t i = 0; i < links; i++) {
        int reads = i == 0;
        assert_true(is.bad[chain[i]]);
        for (uint64_t e = i ? w.first[w.producer[chain[i]]] : 0; i && e < w.first[w.producer[chain[i]] + 1]; e++)
            reads |= w.inputs[e] == chain[i - 1];
        assert_true(reads);
    }
}

static void check_witnessed(const fb_search *s)
{
    const fb_search_verdict *v = fb_search_result(s);
    for (uint32_t i = 0; i < v->count; i++) {
        const fb_candidate *c = &v->candidates[i];
        if (!c->witnessed) continue;
        if (c->node == FB_FLOW_NONE && (w.flags[c->tensor] & FB_FLOW_STATE) && refused()) {
            assert_true(w.holds[c->tensor] & (answers_one_bit ? HOLDS_NAN | HOLDS_NEG_INF : HOLDS_NAN));
            continue;
        }
        assert_true(c->node == FB_FLOW_NONE ? is.entry[c->tensor] : is.node[c->node]);
        check_chain(s, c);
        if (c->node != FB_FLOW_NONE) assert_int_equal(fb_search_label(s, c->node), FB_LABEL_GENERATE);
    }
}

static void check_entry(const fb_search_verdict *v)
{
    int witnessed = 0;
    assert_true(refused() || is.entries > 0);
    for (uint32_t i = 0; i < v->count; i++) witnessed |= v->candidates[i].witnessed && v->candidates[i].node == FB_FLOW_NONE;
    assert_int_equal(witnessed, v->reason == FB_WHY_NONE);
    if (!refused()) check_candidates_hold_the_truth(v);
}

static void check_never_wrong(const fb_search *s)
{
    const fb_search_verdict *v = fb_search_result(s);
    check_witnessed(s);
    switch (v->found) {
    case FB_FOUND_ENTRY: check_entry(v); return;
    case FB_FOUND_NODE:
        assert_int_equal(v->count, 1);
        assert_int_equal(v->first, v->last);
        /* fall through */
    case FB_FOUND_SET:
        assert_false(refused());
        assert_int_equal(is.entries, 0);
        assert_int_equal(is.firsts, v->count);
        tally.with_later += v->later_count > 0;
        /* fall through */
    case FB_FOUND_INTERVAL:
        check_candidates_hold_the_truth(v);
        if (v->found == FB_FOUND_INTERVAL) assert_int_equal(v->reason, FB_WHY_UNTESTABLE);
        return;
    default: fail_msg("a steady finding was called %d", v->found);
    }
}

/* What the chain rule cannot see: a node downstream that would have failed anyway. Where no such node exists, a cause is named, or
   is among those that are said to be later. */
static void check_cause(const fb_search_verdict *v)
{
    int cause;
    if (v->found != FB_FOUND_NODE) return;
    cause = is.cause[v->candidates[0].node];
    tally.named[w.tame]++;
    tally.off[w.tame] += !cause;
    for (uint32_t i = 0; i < v->later_count; i++) cause |= is.cause[v->later[i]];
    if (w.tame) assert_true(cause);
}

static int same(const fb_search_verdict *a, const fb_search_verdict *b)
{
    if (a->found != b->found || a->reason != b->reason || a->count != b->count || a->later_count != b->later_count) return 0;
    for (uint32_t i = 0; i < a->later_count; i++) {
        if (a->later[i] != b->later[i]) return 0;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        const fb_candidate *x = &a->candidates[i], *y = &b->candidates[i];
        if (x->node != y->node || x->tensor != y->tensor || x->witnessed != y->witnessed) return 0;
    }
    return 1;
}

/* ---- how much it costs ------------------------------------------------------------------------------------------------------- */

/* That cannot be looked at, or do not tell what they are. */
static uint32_t hidden_places(void)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < w.flow.tensors; t++)
        count += w.hidden[t] || ((w.flags[t] & FB_FLOW_MASK) && (answers_one_bit || w.holds[t]));
    return count;
}

static void check_cost(const fb_search_verdict *v, const fb_search_options *options)
{
    uint32_t length = w.producer[w.finding] == FB_FLOW_NONE ? 1 : w.producer[w.finding] + 1;
    uint32_t halvings = (uint32_t)ceil(log2(length));
    uint32_t tensors = w.flow.tensors;
    if (options->one_bit) {
        /* Each tensor twice at most, before and in the witness, and log2 of them for each that does not do as expected. */
        assert_true(v->replays <= tensors * (2 + (uint32_t)ceil(log2(tensors))) + halvings + hidden_places() + 6);
        return;
    }
    if (!options->probes_max) {
        uint32_t bound = options->strategy == FB_SEARCH_SWEEP ? 2 : 3 + halvings + hidden_places();
        if (v->replays > bound)
            fail_msg("%u replays, bound %u, strategy %d length %u hidden %u", v->replays, bound, options->strategy, length,
                     hidden_places());
        assert_true(v->probes <= 2 * (uint64_t)tensors + v->replays);
        return;
    }
    {
        uint32_t each = options->probes_max == 1 ? 1 : options->probes_max - 1;
        assert_true(v->replays <= (2 * tensors + 2) / each + 4 + halvings + hidden_places());
    }
}

/* ---- the tests --------------------------------------------------------------------------------------------------------------- */

static void check_steady(uint64_t number)
{
    uint32_t some = 1 + (uint32_t)(number % 6);
    fb_search_options manner[] = {{.strategy = FB_SEARCH_SWEEP},
                                  {.strategy = FB_SEARCH_BISECT},
                                  {.strategy = FB_SEARCH_BISECT, .probes_max = some},
                                  {.strategy = FB_SEARCH_SWEEP, .probes_max = some},
                                  {.strategy = FB_SEARCH_BISECT, .one_bit = 1},
                                  {.strategy = FB_SEARCH_BISECT, .one_bit = 1, .probes_max = some},
                                  {.strategy = FB_SEARCH_SWEEP, .one_bit = 1}};
    fb_search *first = NULL;
    for (size_t i = 0; i < sizeof manner / sizeof *manner; i++) {
        fb_search *s;
        if (i >= 2 && i - 2 != number % 5 && i - 2 != (number + 2) % 5) continue; /* the two strategies always, the rest in turn */
        s = search(&manner[i]);
        const fb_search_verdict *v = fb_search_result(s);
        check_never_wrong(s);
        check_cause(v);
        check_cost(v, &manner[i]);
        assert_int_equal(v->reproduced, v->tried);
        if (i < 2) tally.replays[i] += v->replays;
        if (manner[i].one_bit) {
            tally.bits++;
            tally.same_bit += (uint64_t)same(fb_search_result(first), v);
        } else if (first) {
            assert_true(same(fb_search_result(first), v));
        }
        if (first) fb_search_free(s);
        else first = s;
    }
    fb_search_free(first);
}

static void check_budget(uint64_t number)
{
    fb_search_options options = {
        .strategy = (int32_t)(number / 2 % 2), .one_bit = number % 5 == 0, .probes_max = (uint32_t)(number % 7)};
    fb_search *s;
    const fb_search_verdict *v;
    options.replays_max = 1 + (uint32_t)(number % 9);
    s = search(&options);
    v = fb_search_result(s);
    assert_true(v->replays <= options.replays_max);
    if (v->found == FB_FOUND_INTERVAL && v->reason == FB_WHY_BUDGET) check_candidates_hold_the_truth(v);
    else if (v->found != FB_FOUND_UNDECIDED) check_never_wrong(s);
    fb_search_free(s);
}

/* The witness of a flaky world is good for the replay in which it was seen, which is the last one. */
static void check_flaky(void)
{
    for (int strategy = FB_SEARCH_BISECT; strategy <= FB_SEARCH_SWEEP; strategy++) {
        fb_search_options options = {.strategy = strategy};
        fb_search *s = search(&options);
        const fb_search_verdict *v = fb_search_result(s);
        assert_true(v->reproduced <= v->tried);
        if (v->found == FB_FOUND_NODE || v->found == FB_FOUND_SET) {
            world_truth(&w, &is);
            assert_int_equal(v->reproduced, v->tried);
            check_witnessed(s);
        }
        if (v->found == FB_FOUND_NOT_REPRODUCED) assert_int_equal(v->reproduced, 0);
        if (v->found == FB_FOUND_NOT_REPRODUCED || v->found == FB_FOUND_NOT_STEADY) {
            assert_int_equal(v->count, 0);
            assert_true(v->tried >= FB_SEARCH_REPEATS);
        }
        fb_search_free(s);
    }
}

static uint64_t test_seed(void)
{
    const char *wish = getenv("FB_SEED");
    uint64_t seed = wish ? strtoull(wish, NULL, 10) : 1;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)seed);
    return seed;
}

/* ---- every reading of what cannot be looked at ------------------------------------------------------------------------------- */

enum { READINGS_MAX = 8 };

/* The places that the world hides and that could matter, or 0 when there are none, or too many. */
static uint32_t list_hidden(uint32_t *hidden)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < w.flow.tensors; t++) {
        if (!w.hidden[t]) continue;
        if (count == READINGS_MAX) return 0;
        hidden[count++] = t;
    }
    return count;
}

/*
 * An origin under some reading is a candidate, unless it comes after a node that made, under every reading, something that leads to
 * the finding: there is an origin before it then, though not the same one under each. So what is first under some reading is always
 * a candidate. The other way round there are some too many, which are counted: what comes before them leads on through the very
 * place that they need.
 */
static void check_readings(const fb_search_verdict *v, const uint32_t *hidden, uint32_t count)
{
    uint32_t nodes[WORLD_NODES] = {0}, entries[WORLD_TENSORS] = {0};
    uint8_t first[WORLD_NODES] = {0}, always[WORLD_TENSORS], late[WORLD_NODES];
    memset(always, 1, sizeof always);
    for (uint32_t reading = 0; reading < 1u << count; reading++) {
        for (uint32_t i = 0; i < count; i++) { w.holds[hidden[i]] = reading >> i & 1 ? HOLDS_NAN : 0; }
        world_truth(&w, &is);
        for (uint32_t k = 0; k < w.flow.nodes; k++) nodes[k] += is.node[k];
        for (uint32_t k = 0; k < w.flow.nodes; k++) first[k] |= is.first[k];
        for (uint32_t t = 0; t < w.flow.tensors; t++) entries[t] += is.entry[t];
        for (uint32_t t = 0; t < w.flow.tensors; t++) always[t] = always[t] && is.reaches[t];
    }
    for (uint32_t t = 0; t < w.flow.tensors; t++) { /* after all of what such a node made */
        for (uint32_t u = 0; u < w.flow.tensors; u++)
            always[t] |= w.producer[t] != FB_FLOW_NONE && w.producer[u] == w.producer[t] && (always[u] & 1) ? 2 : 0;
    }
    truth_after(&w, always, late);
    for (uint32_t k = 0; k < w.flow.nodes; k++) {
        assert_int_equal(nodes[k] && !late[k], has(v, k, 0));
        assert_int_equal(nodes[k] && late[k], is_later(v, k));
        if (first[k]) assert_true(has(v, k, 0));
        tally.surplus += has(v, k, 0) && !first[k];
    }
    for (uint32_t t = 0; t < w.flow.tensors; t++) assert_int_equal(entries[t] > 0, has(v, FB_FLOW_NONE, t));
    for (uint32_t i = 0; i < v->count; i++) {
        const fb_candidate *c = &v->candidates[i];
        assert_int_equal(c->witnessed, (c->node == FB_FLOW_NONE ? entries[c->tensor] : nodes[c->node]) == 1u << count);
    }
}

static void test_search__candidates_are_the_origins_under_some_reading_that_come_after_nothing_certain(void **state)
{
    uint64_t seed = test_seed(), checked = 0, candidates = 0;
    (void)state;
    for (uint64_t i = 0; i < WORLDS / 4; i++) {
        uint32_t hidden[READINGS_MAX], count;
        fb_search_options options = {.strategy = (int32_t)(i % 2)};
        fb_search *s;
        world_make(&w, seed * 7000003 + i);
        for (uint32_t t = 0; t < w.flow.tensors; t++) w.flags[t] &= FB_FLOW_STATE;
        world_replay(&w);
        world_truth(&w, &is);
        if (w.flaky || is.state_bad || (count = list_hidden(hidden)) == 0) continue;
        s = search(&options);
        check_readings(fb_search_result(s), hidden, count);
        candidates += fb_search_result(s)->count;
        fb_search_free(s);
        checked++;
    }
    print_message("%llu searches with 1 to %d hidden places; %llu of %llu candidates are first under no reading\n",
                  (unsigned long long)checked, READINGS_MAX, (unsigned long long)tally.surplus, (unsigned long long)candidates);
    assert_true(checked > 1000);
    assert_true(tally.surplus * 20 < candidates);
}

static void test_search__a_named_node_is_never_wrong_and_strategies_agree(void **state)
{
    uint64_t seed = test_seed();
    (void)state;
    memset(&tally, 0, sizeof tally);
    for (uint64_t i = 0; i < WORLDS; i++) {
        world_make(&w, seed * 1000003 + i);
        world_replay(&w);
        world_truth(&w, &is);
        if (w.flaky) check_flaky();
        else check_steady(i);
        if (!w.flaky) check_budget(i);
    }
    for (int f = 1; f <= FB_FOUND_UNDECIDED; f++) print_message("found %d: %llu\n", f, (unsigned long long)tally.found[f]);
    print_message("searches %llu, replays of the sweep %llu, of bisect %llu; one bit gave the same answer in %llu of %llu\n",
                  (unsigned long long)tally.searches, (unsigned long long)tally.replays[0], (unsigned long long)tally.replays[1],
                  (unsigned long long)tally.same_bit, (unsigned long long)tally.bits);
    print_message(
        "where nodes that read something bad fail by themselves too, %llu of %llu named are no cause of the finding; where "
        "they do not, %llu of %llu; %llu names and sets say that something comes later\n",
        (unsigned long long)tally.off[0], (unsigned long long)tally.named[0], (unsigned long long)tally.off[1],
        (unsigned long long)tally.named[1], (unsigned long long)tally.with_later);
    assert_true(tally.with_later > WORLDS / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search__a_named_node_is_never_wrong_and_strategies_agree),
        cmocka_unit_test(test_search__candidates_are_the_origins_under_some_reading_that_come_after_nothing_certain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
