/*
 * Every placement of findings in small worlds. A rank is clean, or holds one finding at one of the micro-steps, boundaries and
 * positions tried. For each placement: all ranks read the same outcome and take the same action, a finding anywhere withholds the
 * update everywhere, the spokesman is the smallest place in causal order, and it is one of the findings that no other finding can
 * have caused.
 *
 * The reference does not use keys: places are compared field by field, and causes by the rules of happens-before written out below.
 */
#include "policy/gate.h"
#include "policy/vote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 4, STATES_MAX = 64, MICRO_STEPS = 2 };

typedef struct place {
    int32_t bad, micro_step, boundary;
    int64_t position;
} place;

static int is_backward(int32_t boundary)
{
    return boundary == FB_LOCAL_GRAD || boundary == FB_REDUCED_GRAD;
}

/* Program order on one rank: negative when a comes before b. */
static int64_t program_order(const place *a, const place *b)
{
    if (a->micro_step != b->micro_step) return a->micro_step - b->micro_step;
    if (a->boundary != b->boundary) return a->boundary - b->boundary;
    return is_backward(a->boundary) ? b->position - a->position : a->position - b->position;
}

/*
 * Can the finding of rank i have caused that of rank j? Between ranks values travel only in the gradient collective, which comes
 * after every local gradient of the last micro-step and before every reduced one.
 */
static int can_cause(const place *i, const place *j)
{
    return i->bad && j->bad && i->boundary <= FB_LOCAL_GRAD && j->boundary >= FB_REDUCED_GRAD;
}

/* What is after the collective is found in the last micro-step. Returns the number of states: 0 is clean. */
static int make_states(place *states, int positions, int micro_steps)
{
    int n = 0, m, b, p;
    states[n++] = (place){0, 0, 0, 0};
    for (m = 0; m < micro_steps; m++)
        for (b = FB_ENTRY; b <= FB_CHECKPOINT; b++)
            for (p = 0; p < positions; p++)
                if (b < FB_REDUCED_GRAD || m == micro_steps - 1) states[n++] = (place){1, m, b, p};
    assert_true(n <= STATES_MAX);
    return n;
}

static int spokesman_of(const place *const *world, int ranks)
{
    int best = -1, r;
    for (r = 0; r < ranks; r++)
        if (world[r]->bad && (best < 0 || program_order(world[r], world[best]) < 0)) best = r;
    return best;
}

static int is_uncaused(const place *const *world, int ranks, int r)
{
    int i;
    for (i = 0; i < ranks; i++)
        if (i != r && can_cause(world[i], world[r])) return 0;
    return 1;
}

static void check_outcome(const fb_vote_outcome *out, const place *const *world, int ranks)
{
    int r = spokesman_of(world, ranks);
    assert_int_equal(out->quorum_equal, FB_VOTE_EQUAL);
    assert_int_equal(out->clean, r < 0);
    assert_int_equal(out->rank, r);
    if (r < 0) {
        assert_int_equal(out->wish, FB_PROCEED);
        return;
    }
    assert_int_equal(out->micro_step, world[r]->micro_step);
    assert_int_equal(out->boundary, world[r]->boundary);
    assert_true(out->position == world[r]->position);
    assert_true(is_uncaused(world, ranks, r));
}

/* ---- the vote alone ---------------------------------------------------------------------------------------------------------- */

static int64_t words_of[RANKS_MAX][STATES_MAX][FB_VOTE_WORDS];

static void fill_ballot(fb_vote_ballot *ballot, const place *p, int rank)
{
    memset(ballot, 0, sizeof *ballot);
    ballot->agreement.step = 5;
    ballot->has_finding = p->bad;
    ballot->micro_step = p->micro_step;
    ballot->boundary = p->boundary;
    ballot->position = p->position;
    ballot->rank = rank;
    ballot->wish = p->bad ? FB_SKIP : FB_PROCEED;
}

static void test_vote__every_placement_in_worlds_of_up_to_four_ranks_has_one_spokesman_and_one_reading(void **unused)
{
    place states[STATES_MAX];
    const place *world[RANKS_MAX];
    int n = make_states(states, 2, MICRO_STEPS), ranks, r, s;
    long placements = 0;
    (void)unused;
    for (r = 0; r < RANKS_MAX; r++)
        for (s = 0; s < n; s++) {
            fb_vote_ballot ballot;
            fill_ballot(&ballot, &states[s], r);
            assert_int_equal(fb_vote_write(words_of[r][s], &ballot), 0);
        }
    for (ranks = 1; ranks <= RANKS_MAX; ranks++) {
        long count = 1, code;
        for (r = 0; r < ranks; r++) count *= n;
        for (code = 0; code < count; code++) {
            int64_t reduced[FB_VOTE_WORDS];
            int chosen[RANKS_MAX];
            fb_vote_outcome first, other;
            long rest = code;
            for (r = 0; r < ranks; r++, rest /= n) {
                chosen[r] = (int)(rest % n);
                world[r] = &states[chosen[r]];
                if (r == 0) memcpy(reduced, words_of[0][chosen[0]], sizeof reduced);
                else fb_vote_fold(reduced, words_of[r][chosen[r]]);
            }
            fb_vote_read(reduced, words_of[0][chosen[0]], &first);
            check_outcome(&first, world, ranks);
            for (r = 1; r < ranks; r++) {
                fb_vote_read(reduced, words_of[r][chosen[r]], &other);
                assert_memory_equal(&first, &other, sizeof first);
            }
            placements++;
        }
    }
    print_message("%d states a rank, %ld placements\n", n, placements);
    assert_true(placements > 500000);
}

/* ---- with the gate: same action everywhere ------------------------------------------------------------------------------- */

typedef struct policy_case {
    int32_t on_bad, max_skips, dynamic, faults_before;
} policy_case;

static fb_gate_local local_of(const place *p, int rank)
{
    fb_gate_local local = {0, 0, 0, 0, 0, 0, 0};
    if (!p->bad) return local;
    local.boundaries = 1u << p->boundary;
    local.micro_step = p->micro_step;
    local.boundary = p->boundary;
    local.position = p->position;
    local.rank = rank;
    return local;
}

static void open_gate(fb_gate *gate, const policy_case *c)
{
    fb_gate_config config = {0, 0, FB_AGREE_VOTE, RANKS_MAX, FB_SCALER_CONFIG_INIT};
    const fb_vote_outcome bad = {FB_VOTE_EQUAL, 0, 0, FB_SKIP, 0, FB_LOCAL_GRAD, 1, 0, 3};
    fb_gate_decision decision;
    int i;
    config.on_bad = c->on_bad;
    config.max_skips = c->max_skips;
    config.scaler.enabled = c->dynamic;
    assert_int_equal(fb_gate_init(gate, &config, NULL), FB_OK);
    for (i = 0; i < c->faults_before; i++) {
        fb_gate_begin(gate, c->dynamic ? 65536.0 : 1.0, c->dynamic);
        fb_gate_decide(gate, &bad, &decision);
        fb_gate_end(gate);
    }
    fb_gate_begin(gate, c->dynamic ? 65536.0 : 1.0, c->dynamic);
}

/* Is the whole world explained by an overflow of the scaled gradients? Written without the gate's own code. */
static int is_overflow_only(const place *const *world, int ranks)
{
    int r;
    for (r = 0; r < ranks; r++)
        if (world[r]->bad && !is_backward(world[r]->boundary)) return 0;
    return 1;
}

static int32_t wanted_action(const policy_case *c, const place *const *world, int ranks)
{
    int fault;
    if (c->on_bad == FB_ON_BAD_OBSERVE || spokesman_of(world, ranks) < 0) return FB_PROCEED;
    fault = !c->dynamic || !is_overflow_only(world, ranks);
    if (!fault) return FB_SKIP;
    if (c->on_bad == FB_ON_BAD_HALT) return FB_HALT;
    /* With a scale, the faults before were probing and do not count. */
    if ((c->dynamic ? 0 : c->faults_before) + 1 > c->max_skips) return FB_HALT;
    return c->dynamic ? FB_SKIP_FREEZE : FB_SKIP;
}

static void check_world(const policy_case *c, const fb_gate *opened, const place *const *world, int ranks)
{
    int64_t own[RANKS_MAX][FB_VOTE_WORDS], reduced[FB_VOTE_WORDS];
    fb_gate_decision first, other;
    uint64_t after = 0;
    int r;
    for (r = 0; r < ranks; r++) {
        fb_gate_local local = local_of(world[r], r);
        fb_vote_ballot ballot;
        fill_ballot(&ballot, world[r], r);
        ballot.wish = fb_gate_wish(opened, &local, NULL);
        assert_int_equal(fb_vote_write(own[r], &ballot), 0);
        if (r == 0) memcpy(reduced, own[0], sizeof reduced);
        else fb_vote_fold(reduced, own[r]);
    }
    for (r = 0; r < ranks; r++) {
        fb_gate gate = *opened; /* each rank has its own, in the same state */
        fb_vote_outcome outcome;
        fb_vote_read(reduced, own[r], &outcome);
        fb_gate_decide(&gate, &outcome, r == 0 ? &first : &other);
        if (r == 0) after = fb_gate_digest(&gate);
        else assert_memory_equal(&first, &other, sizeof first);
        assert_true(fb_gate_digest(&gate) == after);
    }
    assert_int_equal(first.action, wanted_action(c, world, ranks));
    assert_int_equal(first.fault, spokesman_of(world, ranks) >= 0 && (!c->dynamic || !is_overflow_only(world, ranks)));
}

static void check_worlds(const policy_case *c, int ranks, int positions, int micro_steps, long *placements)
{
    place states[STATES_MAX];
    const place *world[RANKS_MAX];
    int n = make_states(states, positions, micro_steps), r;
    long count = 1, code;
    fb_gate gate;
    open_gate(&gate, c);
    for (r = 0; r < ranks; r++) count *= n;
    for (code = 0; code < count; code++) {
        long rest = code;
        for (r = 0; r < ranks; r++, rest /= n) world[r] = &states[rest % n];
        check_world(c, &gate, world, ranks);
    }
    *placements += count;
}

static void test_vote__every_placement_leads_to_the_same_action_on_every_rank(void **unused)
{
    const policy_case cases[] = {
        {FB_ON_BAD_SKIP, 3, 0, 0}, {FB_ON_BAD_SKIP, 3, 0, 3},    {FB_ON_BAD_SKIP, 0, 0, 0},
        {FB_ON_BAD_SKIP, 3, 1, 0}, {FB_ON_BAD_SKIP, 3, 1, 3},    {FB_ON_BAD_HALT, 3, 0, 0},
        {FB_ON_BAD_HALT, 3, 1, 2}, {FB_ON_BAD_OBSERVE, 3, 0, 2}, {FB_ON_BAD_OBSERVE, 0, 1, 5},
    };
    size_t i;
    long placements = 0;
    (void)unused;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_worlds(&cases[i], 1, 3, MICRO_STEPS, &placements);
        check_worlds(&cases[i], 2, 3, MICRO_STEPS, &placements);
        check_worlds(&cases[i], 3, 1, MICRO_STEPS, &placements);
        check_worlds(&cases[i], 4, 1, 1, &placements);
    }
    print_message("%ld placements under %zu policies\n", placements / (long)(sizeof cases / sizeof cases[0]),
                  sizeof cases / sizeof cases[0]);
}

/* One rank of the world differs in something that must be common: nobody proceeds, whatever the findings are. */
static void test_vote__a_rank_out_of_step_lets_no_rank_proceed_in_any_placement(void **unused)
{
    place states[STATES_MAX];
    const policy_case c = {FB_ON_BAD_SKIP, 3, 0, 0};
    int n = make_states(states, 1, 1), odd, a, b, r;
    fb_gate opened;
    (void)unused;
    open_gate(&opened, &c);
    for (odd = 0; odd < 2; odd++)
        for (a = 0; a < n; a++)
            for (b = 0; b < n; b++) {
                int64_t own[2][FB_VOTE_WORDS], reduced[FB_VOTE_WORDS];
                for (r = 0; r < 2; r++) {
                    fb_vote_ballot ballot;
                    fill_ballot(&ballot, &states[r ? b : a], r);
                    if (r == odd) ballot.agreement.step++;
                    (void)fb_vote_write(own[r], &ballot);
                }
                memcpy(reduced, own[0], sizeof reduced);
                fb_vote_fold(reduced, own[1]);
                for (r = 0; r < 2; r++) {
                    fb_gate gate = opened;
                    fb_vote_outcome outcome;
                    fb_gate_decision decision;
                    fb_vote_read(reduced, own[r], &outcome);
                    fb_gate_decide(&gate, &outcome, &decision);
                    assert_int_equal(decision.action, FB_HALT);
                    assert_int_equal(decision.reason, FB_REASON_DISAGREE);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vote__every_placement_in_worlds_of_up_to_four_ranks_has_one_spokesman_and_one_reading),
        cmocka_unit_test(test_vote__every_placement_leads_to_the_same_action_on_every_rank),
        cmocka_unit_test(test_vote__a_rank_out_of_step_lets_no_rank_proceed_in_any_placement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
