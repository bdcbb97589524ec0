/*
 * Random runs of several ranks, each with a gate and a scaler of its own, through real ballots: whatever is found, by whom, and in
 * which of the step's votes, all ranks take the same action, their histories stay equal, and an update with a finding anywhere is
 * made nowhere (unless the policy is to observe).
 */
#include "policy/gate.h"
#include "policy/scaler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 8, STEPS = 400, RUNS = 60 };

static uint64_t random_state;

static uint64_t next_random(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

static void seed_test(uint64_t seed)
{
    const char *wish = getenv("FB_SEED");
    random_state = wish ? strtoull(wish, NULL, 10) : seed;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)random_state);
}

typedef struct member {
    fb_gate gate;
    fb_scaler_state scaler;
    fb_gate_local local;
    int64_t own[FB_VOTE_WORDS];
    fb_gate_decision decision;
} member;

typedef struct team {
    member rank[RANKS_MAX];
    fb_gate_config config;
    int ranks, share; /* a finding on a rank in a vote: share in 1000 */
} team;

static void open_team(team *t)
{
    int r;
    memset(t, 0, sizeof *t);
    t->ranks = 1 + below(RANKS_MAX);
    t->share = below(4) == 0 ? 200 : below(20);
    t->config.on_bad = below(3);
    t->config.max_skips = below(5);
    t->config.agreement = FB_AGREE_VOTE;
    t->config.world = t->ranks;
    t->config.scaler = (fb_scaler_config)FB_SCALER_CONFIG_INIT;
    t->config.scaler.enabled = below(2);
    t->config.scaler.growth_interval = 1 + below(50);
    t->config.scaler.hysteresis = 1 + below(3);
    for (r = 0; r < t->ranks; r++) {
        assert_int_equal(fb_scaler_init(&t->config.scaler, &t->rank[r].scaler, NULL), FB_OK);
        assert_int_equal(fb_gate_init(&t->rank[r].gate, &t->config, NULL), FB_OK);
    }
}

/* Mostly gradients; now and then another boundary; now and then several at once, of which the earliest goes into the ballot. */
static int find_something(team *t, int number)
{
    int r, found = 0;
    for (r = 0; r < t->ranks; r++) {
        fb_gate_local *local = &t->rank[r].local;
        memset(local, 0, sizeof *local);
        local->rank = r;
        if (below(1000) >= t->share) continue;
        found = 1;
        local->boundary = number ? FB_REDUCED_GRAD : FB_LOCAL_GRAD;
        if (below(8) == 0) local->boundary = FB_ENTRY + below(FB_CHECKPOINT);
        local->micro_step = below(4);
        local->position = below(40);
        local->loss_scaled_only = below(2);
        local->boundaries = 1u << local->boundary;
        if (below(4) == 0) local->boundaries |= 1u << (FB_ENTRY + below(FB_CHECKPOINT));
    }
    return found;
}

static void write_ballot(member *m, int step, int number)
{
    fb_vote_ballot ballot;
    memset(&ballot, 0, sizeof ballot);
    ballot.agreement.step = step;
    ballot.agreement.vote_number = number;
    memcpy(&ballot.agreement.scale_bits, &m->scaler.scale, sizeof m->scaler.scale);
    ballot.agreement.policy = fb_gate_digest(&m->gate);
    ballot.has_finding = m->local.boundaries != 0;
    ballot.micro_step = m->local.micro_step;
    ballot.boundary = m->local.boundary;
    ballot.position = m->local.position;
    ballot.rank = m->local.rank;
    ballot.wish = fb_gate_wish(&m->gate, &m->local, NULL);
    assert_int_equal(fb_vote_write(m->own, &ballot), 0);
}

/* One vote. Returns the common action. */
static int32_t vote(team *t, int step, int number, int found)
{
    int64_t reduced[FB_VOTE_WORDS];
    int r, already = t->rank[0].gate.halted;
    for (r = 0; r < t->ranks; r++) {
        write_ballot(&t->rank[r], step, number);
        if (r == 0) memcpy(reduced, t->rank[0].own, sizeof reduced);
        else fb_vote_fold(reduced, t->rank[r].own);
    }
    for (r = 0; r < t->ranks; r++) {
        fb_vote_outcome outcome;
        fb_vote_read(reduced, t->rank[r].own, &outcome);
        assert_int_equal(outcome.quorum_equal, FB_VOTE_EQUAL);
        assert_int_equal(outcome.clean, !found);
        fb_gate_decide(&t->rank[r].gate, &outcome, &t->rank[r].decision);
        assert_memory_equal(&t->rank[r].decision, &t->rank[0].decision, sizeof(fb_gate_decision));
    }
    if (t->config.on_bad == FB_ON_BAD_OBSERVE) assert_int_equal(t->rank[0].decision.action, FB_PROCEED);
    else if (found) assert_true(t->rank[0].decision.action >= FB_SKIP);
    if (already) assert_int_equal(t->rank[0].decision.action, FB_HALT);
    if (found && !t->config.scaler.enabled) assert_int_equal(t->rank[0].decision.fault, 1);
    return t->rank[0].decision.action;
}

static void test_policy__ranks_that_vote_act_alike_through_whole_random_runs(void **unused)
{
    int run, step, r, halts = 0, skips = 0, proceeds = 0;
    (void)unused;
    seed_test(7);
    for (run = 0; run < RUNS; run++) {
        team t;
        open_team(&t);
        for (step = 0; step < STEPS; step++) {
            int number, withheld = 0;
            for (r = 0; r < t.ranks; r++) fb_gate_begin(&t.rank[r].gate, t.rank[r].scaler.scale, t.config.scaler.enabled);
            for (number = 0; number < 2; number++) {
                int32_t action = vote(&t, step, number, find_something(&t, number));
                /* What one vote withheld, no later one of the step gives back. */
                if (withheld) assert_true(action != FB_PROCEED);
                withheld |= action != FB_PROCEED;
                halts += action == FB_HALT;
            }
            skips += withheld;
            proceeds += !withheld;
            for (r = 0; r < t.ranks; r++) {
                fb_scaler_update(&t.config.scaler, &t.rank[r].scaler, fb_gate_scaler_move(&t.rank[r].gate));
                fb_gate_end(&t.rank[r].gate);
            }
        }
    }
    print_message("%d updates made, %d withheld, %d votes for a halt\n", proceeds, skips, halts);
    assert_true(proceeds > 1000 && skips > 1000 && halts > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy__ranks_that_vote_act_alike_through_whole_random_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
