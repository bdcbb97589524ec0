/* The gate's rules one by one: what is a fault, when a run halts, and what the digest exposes. */
#include "policy/gate.h"
#include "policy/scaler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a run of one or more ranks in miniature: a gate and its scaler ---------------------------------------------------------- */

typedef struct mini {
    fb_gate gate;
    fb_scaler_config scaler_config;
    fb_scaler_state scaler;
    fb_gate_decision last;
} mini;

static void open_mini(mini *m, int32_t on_bad, int32_t max_skips, int dynamic)
{
    fb_gate_config config = {0, 0, FB_AGREE_VOTE, 4, FB_SCALER_CONFIG_INIT};
    config.on_bad = on_bad;
    config.max_skips = max_skips;
    config.scaler.enabled = dynamic;
    m->scaler_config = config.scaler;
    assert_int_equal(fb_scaler_init(&m->scaler_config, &m->scaler, NULL), FB_OK);
    assert_int_equal(fb_gate_init(&m->gate, &config, NULL), FB_OK);
}

static fb_gate_local at(int32_t boundary, int64_t position, int32_t rank)
{
    fb_gate_local local = {0, 0, 0, 0, 0, 0, 0};
    if (!boundary) return local;
    local.boundaries = 1u << boundary;
    local.boundary = boundary;
    local.position = position;
    local.rank = rank;
    return local;
}

static fb_vote_outcome vote_on(const fb_gate *gate, const fb_gate_local *local)
{
    fb_vote_ballot ballot = {{1, 1, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0};
    fb_vote_outcome outcome;
    int64_t words[FB_VOTE_WORDS];
    ballot.agreement.policy = fb_gate_digest(gate);
    ballot.has_finding = local->boundaries != 0;
    ballot.micro_step = local->micro_step;
    ballot.boundary = local->boundary;
    ballot.position = local->position;
    ballot.rank = local->rank;
    ballot.wish = fb_gate_wish(gate, local, NULL);
    assert_int_equal(fb_vote_write(words, &ballot), 0);
    fb_vote_read(words, words, &outcome);
    assert_int_equal(outcome.quorum_equal, FB_VOTE_EQUAL);
    return outcome;
}

static void begin(mini *m)
{
    fb_gate_begin(&m->gate, m->scaler.scale, m->scaler_config.enabled);
}

static fb_gate_decision vote(mini *m, fb_gate_local local)
{
    fb_vote_outcome outcome = vote_on(&m->gate, &local);
    fb_gate_decide(&m->gate, &outcome, &m->last);
    return m->last;
}

static void end(mini *m)
{
    fb_scaler_update(&m->scaler_config, &m->scaler, fb_gate_scaler_move(&m->gate));
    fb_gate_end(&m->gate);
}

static fb_gate_decision step(mini *m, fb_gate_local local)
{
    fb_gate_decision decision;
    begin(m);
    decision = vote(m, local);
    end(m);
    return decision;
}

static void clean_steps(mini *m, int n)
{
    while (n-- > 0) {
        fb_gate_decision decision = step(m, at(0, 0, 0));
        assert_int_equal(decision.action, FB_PROCEED);
        assert_int_equal(decision.fault, 0);
        assert_int_equal(decision.reason, FB_REASON_CLEAN);
    }
}

/* An overflow whose place moves, so that only the rule under test can fire. */
static fb_gate_decision overflow(mini *m, int i)
{
    return step(m, at(FB_LOCAL_GRAD, 10 + i, i % 4));
}

#define expect(decision, wanted_action, wanted_fault, wanted_reason)                                                   \
    do {                                                                                                               \
        fb_gate_decision d_ = (decision);                                                                              \
        if (d_.action != (wanted_action) || d_.fault != (wanted_fault) || d_.reason != (wanted_reason))                \
            fail_msg("action %d, fault %d, reason %s", (int)d_.action, (int)d_.fault, fb_gate_reason_name(d_.reason)); \
    } while (0)

/* ---- without a dynamic scale ------------------------------------------------------------------------------------------------- */

static void test_gate__without_a_scale_three_faults_are_skipped_and_the_fourth_in_a_row_halts(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
    clean_steps(&m, 5);
    for (i = 1; i <= 3; i++) {
        expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_NO_SCALE);
        assert_int_equal(m.last.consecutive_skips, i);
        assert_int_equal(m.last.consecutive_faults, i);
    }
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_HALT, 1, FB_REASON_NO_SCALE);
    assert_int_equal(m.last.consecutive_skips, 4);
}

static void test_gate__a_clean_update_ends_the_row_of_skips(void **unused)
{
    mini m;
    int round, i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
    for (round = 0; round < 10; round++) {
        for (i = 0; i < 3; i++) expect(step(&m, at(FB_REDUCED_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_NO_SCALE);
        clean_steps(&m, 1);
    }
}

static void test_gate__with_no_skips_allowed_the_first_fault_halts(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 0, 0);
    clean_steps(&m, 5);
    expect(step(&m, at(FB_LOSS, 7, 2)), FB_HALT, 1, FB_REASON_NOT_GRADIENT);
}

static void test_gate__on_bad_halt_halts_at_the_first_fault(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_HALT, 3, 0);
    clean_steps(&m, 5);
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_HALT, 1, FB_REASON_NO_SCALE);
}

static void test_gate__after_a_halt_the_gate_stays_shut_even_for_clean_votes(void **unused)
{
    mini m;
    fb_gate_local clean = at(0, 0, 0);
    (void)unused;
    open_mini(&m, FB_ON_BAD_HALT, 3, 0);
    (void)step(&m, at(FB_LOCAL_GRAD, 7, 2));
    assert_int_equal(fb_gate_wish(&m.gate, &clean, NULL), FB_HALT);
    expect(step(&m, clean), FB_HALT, 1, FB_REASON_HALTED);
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_HALT, 1, FB_REASON_HALTED);
    expect(step(&m, clean), FB_HALT, 1, FB_REASON_HALTED);
}

static void test_gate__observe_proceeds_always_and_still_says_fault(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_OBSERVE, 0, 0);
    clean_steps(&m, 5);
    for (i = 1; i <= 20; i++) {
        expect(step(&m, at(FB_INPUT, 7, 2)), FB_PROCEED, 1, FB_REASON_INPUT);
        assert_int_equal(m.last.consecutive_skips, i);
    }
    begin(&m);
    {
        fb_vote_outcome none;
        fb_vote_read(NULL, NULL, &none);
        fb_gate_decide(&m.gate, &none, &m.last);
        expect(m.last, FB_PROCEED, 1, FB_REASON_NO_QUORUM);
    }
    end(&m);
    clean_steps(&m, 3);
}

static void test_gate__each_boundary_names_its_reason(void **unused)
{
    const struct {
        int32_t boundary, without, with;
    } cases[] = {
        {FB_ENTRY, FB_REASON_STATE, FB_REASON_STATE},
        {FB_INPUT, FB_REASON_INPUT, FB_REASON_INPUT},
        {FB_FORWARD, FB_REASON_NOT_GRADIENT, FB_REASON_NOT_GRADIENT},
        {FB_LOSS, FB_REASON_NOT_GRADIENT, FB_REASON_NOT_GRADIENT},
        {FB_LOCAL_GRAD, FB_REASON_NO_SCALE, FB_REASON_PROBING},
        {FB_REDUCED_GRAD, FB_REASON_NO_SCALE, FB_REASON_PROBING},
        {FB_UPDATE, FB_REASON_STATE, FB_REASON_STATE},
        {FB_CHECKPOINT, FB_REASON_STATE, FB_REASON_STATE},
    };
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mini m;
        open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
        expect(step(&m, at(cases[i].boundary, 1, 1)), FB_SKIP, 1, cases[i].without);
        open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
        (void)step(&m, at(cases[i].boundary, 1, 1));
        assert_int_equal(m.last.reason, cases[i].with);
        assert_int_equal(m.last.fault, cases[i].with != FB_REASON_PROBING);
    }
}

/* ---- probing ----------------------------------------------------------------------------------------------------------------- */

static void test_gate__an_isolated_overflow_under_a_dynamic_scale_is_probing(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 0, FB_REASON_PROBING);
    assert_int_equal(m.last.consecutive_skips, 1);
    clean_steps(&m, 10);
    assert_true(m.scaler.scale == 32768.0);
}

static void test_gate__probing_does_not_halt_even_under_on_bad_halt(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_HALT, 0, 1);
    clean_steps(&m, 100);
    expect(overflow(&m, 1), FB_SKIP, 0, FB_REASON_PROBING);
    clean_steps(&m, 10);
    expect(step(&m, at(FB_INPUT, 7, 2)), FB_HALT, 1, FB_REASON_INPUT);
}

static void test_gate__a_loss_that_only_the_scale_overflowed_is_probing_and_any_other_is_not(void **unused)
{
    mini m;
    fb_gate_local local = at(FB_LOSS, 7, 2);
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    local.loss_scaled_only = 1;
    expect(step(&m, local), FB_SKIP, 0, FB_REASON_PROBING);
    local.boundaries |= 1u << FB_LOCAL_GRAD; /* and the gradients it gave */
    expect(step(&m, local), FB_SKIP, 0, FB_REASON_PROBING);
    local.boundaries |= 1u << FB_FORWARD;
    expect(step(&m, local), FB_SKIP_FREEZE, 1, FB_REASON_NOT_GRADIENT);
    local.boundaries = 1u << FB_LOSS;
    local.loss_scaled_only = 0;
    expect(step(&m, local), FB_SKIP_FREEZE, 1, FB_REASON_NOT_GRADIENT);
}

static void test_gate__a_fault_that_the_scale_cannot_explain_leaves_the_scale_alone(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    expect(step(&m, at(FB_INPUT, 0, 1)), FB_SKIP_FREEZE, 1, FB_REASON_INPUT);
    assert_true(m.scaler.scale == 65536.0);
}

static void test_gate__the_scale_follows_what_was_found_under_observe_too(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_OBSERVE, 3, 1);
    clean_steps(&m, 100);
    (void)overflow(&m, 1);
    assert_true(m.scaler.scale == 32768.0);
    (void)step(&m, at(FB_INPUT, 0, 1));
    assert_true(m.scaler.scale == 32768.0);
    begin(&m);
    assert_int_equal(fb_gate_scaler_move(&m.gate), FB_SCALER_CLEAN);
    end(&m);
}

static void test_gate__a_failed_vote_leaves_the_scale_alone(void **unused)
{
    fb_vote_outcome none;
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    begin(&m);
    fb_vote_read(NULL, NULL, &none);
    fb_gate_decide(&m.gate, &none, &m.last);
    assert_int_equal(fb_gate_scaler_move(&m.gate), FB_SCALER_FREEZE);
}

static void test_gate__a_fault_behind_an_earlier_overflow_of_another_rank_is_still_a_fault(void **unused)
{
    mini m;
    fb_gate_local here = at(FB_LOCAL_GRAD, 7, 0), there = at(FB_INPUT, 0, 3);
    fb_vote_outcome outcome;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    begin(&m);
    outcome = vote_on(&m.gate, &here); /* micro-step 0: the spokesman */
    there.micro_step = 1;
    outcome.wish = fb_gate_wish(&m.gate, &there, NULL);
    fb_gate_decide(&m.gate, &outcome, &m.last);
    expect(m.last, FB_SKIP_FREEZE, 1, FB_REASON_WISH);
}

static void test_gate__a_descent_from_2_to_32_at_the_start_is_probing(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    m.scaler.scale = 4294967296.0;
    for (i = 0; i < 20; i++) expect(overflow(&m, i), FB_SKIP, 0, FB_REASON_PROBING);
    clean_steps(&m, 100);
    assert_true(m.scaler.scale == 4096.0);
}

static void test_gate__a_descent_that_does_not_end_is_a_fault_of_the_start(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    /* From 65536 to 16 take 12 back-offs, and the first overflow is seen at 65536 itself: 13 are probing. */
    for (i = 0; i < 13; i++) expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 0, FB_REASON_PROBING);
    for (i = 0; i < 3; i++) expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_START);
    assert_int_equal(m.last.count, 16);
    assert_int_equal(m.last.limit, 14);
    (void)step(&m, at(FB_LOCAL_GRAD, 7, 2));
    assert_int_equal(m.last.action, FB_HALT);
}

/* ---- the rules that turn probing into a fault -------------------------------------------------------------------------------- */

static void test_gate__consecutive_overflows_are_a_fault_at_the_sixth_and_halt_at_the_ninth(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 1; i <= 5; i++) expect(overflow(&m, i), FB_SKIP, 0, FB_REASON_PROBING);
    for (i = 6; i <= 8; i++) {
        expect(overflow(&m, i), FB_SKIP, 1, FB_REASON_CONSECUTIVE);
        assert_int_equal(m.last.count, i);
        assert_int_equal(m.last.limit, FB_GATE_CONSECUTIVE);
        assert_int_equal(m.last.consecutive_faults, i - 5);
    }
    expect(overflow(&m, 9), FB_HALT, 1, FB_REASON_CONSECUTIVE);
    assert_int_equal(m.last.consecutive_skips, 9);
}

static void test_gate__hysteresis_adds_its_overflows_to_the_limits(void **unused)
{
    fb_gate_config config = {FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, 4, FB_SCALER_CONFIG_INIT};
    fb_gate gate;
    (void)unused;
    config.scaler.hysteresis = 3;
    assert_int_equal(fb_gate_init(&gate, &config, NULL), FB_OK);
    assert_int_equal(gate.limit_consecutive, FB_GATE_CONSECUTIVE + 2);
    assert_int_equal(gate.limit_same_site, FB_GATE_SAME_SITE + 2);
}

static void test_gate__too_many_overflows_in_the_window_are_a_fault(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    m.scaler_config.backoff_factor = 0.999999; /* the scale hardly moves, so that no other rule sees it */
    m.scaler_config.init_scale = 65536.0;
    clean_steps(&m, 100);
    for (i = 1; i < FB_GATE_WINDOW_SKIPS; i++) {
        m.gate.falls = 0;
        expect(overflow(&m, i), FB_SKIP, 0, FB_REASON_PROBING);
        clean_steps(&m, 9);
    }
    m.gate.falls = 0;
    expect(overflow(&m, i), FB_SKIP, 1, FB_REASON_RATIO);
    assert_int_equal(m.last.count, FB_GATE_WINDOW_SKIPS);
}

static void test_gate__overflows_that_leave_the_window_are_forgotten(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 0; i < 100; i++) {
        m.gate.falls = 0;
        m.scaler.scale = 65536.0;
        expect(overflow(&m, i), FB_SKIP, 0, FB_REASON_PROBING);
        clean_steps(&m, 11); /* 11 in any 128 */
    }
}

static void test_gate__the_ratio_rule_allows_for_a_short_growth_interval(void **unused)
{
    const struct {
        int32_t interval, limit;
    } cases[] = {{2000, 12}, {1000, 12}, {100, 12}, {20, 24}, {3, 102}, {1, 198}};
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fb_gate_config config = {FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, 4, FB_SCALER_CONFIG_INIT};
        fb_gate gate;
        config.scaler.growth_interval = cases[i].interval;
        assert_int_equal(fb_gate_init(&gate, &config, NULL), FB_OK);
        assert_int_equal(gate.limit_ratio, cases[i].limit);
    }
}

static void test_gate__a_scale_that_only_falls_is_a_fault_at_the_overflow_after_the_eighth_back_off(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 0; i < FB_GATE_FALLS; i++) {
        expect(overflow(&m, i), FB_SKIP, 0, FB_REASON_PROBING);
        clean_steps(&m, 500);
    }
    expect(overflow(&m, i), FB_SKIP, 1, FB_REASON_FALLING);
    assert_int_equal(m.last.count, FB_GATE_FALLS);
}

static void test_gate__a_growth_in_between_starts_the_falls_anew(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 0; i < 60; i++) {
        expect(overflow(&m, i), FB_SKIP, 0, FB_REASON_PROBING);
        clean_steps(&m, i % 6 == 5 ? 2100 : 150);
    }
}

static void test_gate__the_same_tensor_on_the_same_rank_at_every_scale_is_a_fault(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 1; i < FB_GATE_SAME_SITE; i++) {
        expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 0, FB_REASON_PROBING);
        clean_steps(&m, 300);
    }
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_SAME_SITE);
    assert_int_equal(m.last.count, FB_GATE_SAME_SITE);
}

static void test_gate__the_same_tensor_after_each_growth_is_probing(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 0; i < 50; i++) {
        expect(step(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 0, FB_REASON_PROBING);
        clean_steps(&m, 2001);
    }
}

static void test_gate__a_second_overflow_in_a_row_at_the_floor_is_a_fault(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    m.scaler.scale = 2.0;
    expect(overflow(&m, 1), FB_SKIP, 0, FB_REASON_PROBING);
    clean_steps(&m, 1);
    expect(overflow(&m, 2), FB_SKIP, 0, FB_REASON_PROBING); /* at 1: once may be a spike */
    clean_steps(&m, 1);
    expect(overflow(&m, 3), FB_SKIP, 0, FB_REASON_PROBING);
    expect(overflow(&m, 4), FB_SKIP, 1, FB_REASON_FLOOR);
}

static void test_gate__the_scalers_own_floor_is_the_floor(void **unused)
{
    fb_gate_config config = {FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, 4, FB_SCALER_CONFIG_INIT};
    mini m;
    (void)unused;
    config.scaler.enabled = 1;
    config.scaler.scale_min = 4096.0;
    m.scaler_config = config.scaler;
    assert_int_equal(fb_scaler_init(&m.scaler_config, &m.scaler, NULL), FB_OK);
    assert_int_equal(fb_gate_init(&m.gate, &config, NULL), FB_OK);
    clean_steps(&m, 100);
    m.scaler.scale = 4096.0;
    expect(overflow(&m, 1), FB_SKIP, 0, FB_REASON_PROBING);
    expect(overflow(&m, 2), FB_SKIP, 1, FB_REASON_FLOOR);
}

static void test_gate__a_scale_that_is_no_usable_number_explains_nothing(void **unused)
{
    const uint64_t bits[] = {UINT64_C(0x7ff8000000000000), UINT64_C(0x7ff0000000000000), UINT64_C(0xfff0000000000000), 0,
                             UINT64_C(0xbff0000000000000)}; /* NaN, +Inf, -Inf, 0, -1 */
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        mini m;
        open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
        clean_steps(&m, 100);
        memcpy(&m.scaler.scale, &bits[i], sizeof bits[i]);
        begin(&m);
        expect(vote(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_FLOOR);
    }
}

static void test_gate__a_replay_inside_of_a_step_judges_that_step_and_no_other(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    begin(&m);
    expect(vote(&m, at(FB_LOCAL_GRAD, 1, 0)), FB_SKIP, 0, FB_REASON_PROBING);
    fb_gate_note_replay(&m.gate, 1);
    expect(vote(&m, at(FB_LOCAL_GRAD, 1, 0)), FB_SKIP_FREEZE, 1, FB_REASON_PERSISTS_IN_REPLAY);
    end(&m);
    assert_int_equal((int)m.gate.bad_in_row, 1);
    assert_int_equal((int)m.gate.faults_in_row, 1);
    expect(overflow(&m, 2), FB_SKIP, 0, FB_REASON_PROBING); /* another batch: a question of its own */
}

static void test_gate__what_came_back_in_a_replay_is_a_fault_until_an_update_is_clean(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    expect(overflow(&m, 1), FB_SKIP, 0, FB_REASON_PROBING);
    fb_gate_note_replay(&m.gate, 1);
    expect(overflow(&m, 2), FB_SKIP_FREEZE, 1, FB_REASON_PERSISTS_IN_REPLAY); /* proved not to be the scale's doing */
    clean_steps(&m, 1);
    expect(overflow(&m, 3), FB_SKIP, 0, FB_REASON_PROBING);
    fb_gate_note_replay(&m.gate, 0);
    expect(overflow(&m, 4), FB_SKIP, 0, FB_REASON_PROBING);
}

/* ---- votes of one step ------------------------------------------------------------------------------------------------------- */

static void test_gate__two_bad_votes_of_one_step_count_as_one_skip_and_one_fault(void **unused)
{
    mini m;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
    for (i = 1; i <= 3; i++) {
        begin(&m);
        expect(vote(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_NO_SCALE);
        expect(vote(&m, at(FB_REDUCED_GRAD, 7, 0)), FB_SKIP, 1, FB_REASON_NO_SCALE);
        assert_int_equal(m.last.consecutive_skips, i);
        assert_int_equal(m.last.consecutive_faults, i);
        end(&m);
    }
    assert_int_equal((int)m.gate.bad, 3);
}

static void test_gate__a_clean_vote_does_not_take_back_what_an_earlier_one_withheld(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
    begin(&m);
    expect(vote(&m, at(FB_LOCAL_GRAD, 7, 2)), FB_SKIP, 1, FB_REASON_NO_SCALE);
    expect(vote(&m, at(0, 0, 0)), FB_SKIP, 0, FB_REASON_WITHHELD);
    end(&m);
    clean_steps(&m, 1);
}

static void test_gate__a_step_without_a_vote_counts_as_nothing(void **unused)
{
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
    (void)step(&m, at(FB_LOCAL_GRAD, 7, 2));
    begin(&m);
    fb_gate_end(&m.gate);
    assert_int_equal(m.gate.bad_in_row, 1);
    (void)step(&m, at(FB_LOCAL_GRAD, 7, 2));
    assert_int_equal(m.last.consecutive_skips, 2);
}

static void test_gate__disagreement_and_no_quorum_halt(void **unused)
{
    const fb_vote_outcome disagree = {FB_VOTE_DISAGREE, 0, 0, FB_HALT, 3, FB_LOSS, 1, 0, 4};
    fb_vote_outcome none;
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    begin(&m);
    fb_gate_decide(&m.gate, &disagree, &m.last);
    expect(m.last, FB_HALT, 1, FB_REASON_DISAGREE);
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    begin(&m);
    fb_vote_read(NULL, NULL, &none);
    fb_gate_decide(&m.gate, &none, &m.last);
    expect(m.last, FB_HALT, 1, FB_REASON_NO_QUORUM);
    end(&m);
    expect(step(&m, at(0, 0, 0)), FB_HALT, 1, FB_REASON_HALTED);
}

static void test_gate__a_rank_that_asks_for_a_halt_without_a_finding_gets_it(void **unused)
{
    fb_vote_outcome outcome = {FB_VOTE_EQUAL, 0, 1, FB_HALT, -1, 0, -1, 0, -1};
    mini m;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    begin(&m);
    fb_gate_decide(&m.gate, &outcome, &m.last);
    expect(m.last, FB_HALT, 1, FB_REASON_WISH);
}

static void test_gate__a_finding_of_any_rank_withholds_the_update(void **unused)
{
    int32_t rank;
    (void)unused;
    for (rank = 0; rank < 4; rank++) {
        mini m;
        open_mini(&m, FB_ON_BAD_SKIP, 3, 0);
        expect(step(&m, at(FB_LOCAL_GRAD, 7, rank)), FB_SKIP, 1, FB_REASON_NO_SCALE);
    }
}

/* ---- a rank that cannot vote ------------------------------------------------------------------------------------------------- */

static void open_alone(mini *m, int32_t world, int dynamic)
{
    fb_gate_config config = {FB_ON_BAD_SKIP, 3, FB_AGREE_NONE, 1, FB_SCALER_CONFIG_INIT};
    config.world = world;
    config.scaler.enabled = dynamic;
    m->scaler_config = config.scaler;
    assert_int_equal(fb_scaler_init(&m->scaler_config, &m->scaler, NULL), FB_OK);
    assert_int_equal(fb_gate_init(&m->gate, &config, NULL), FB_OK);
}

static void test_gate__a_single_process_without_a_vote_may_skip(void **unused)
{
    mini m;
    (void)unused;
    open_alone(&m, 1, 0);
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 0)), FB_SKIP, 1, FB_REASON_NO_SCALE);
}

static void test_gate__one_of_several_that_cannot_vote_halts_at_a_fault(void **unused)
{
    mini m;
    (void)unused;
    open_alone(&m, 2, 0);
    expect(step(&m, at(FB_REDUCED_GRAD, 7, 0)), FB_HALT, 1, FB_REASON_NO_SCALE);
    open_alone(&m, 2, 1);
    expect(step(&m, at(FB_LOCAL_GRAD, 7, 0)), FB_HALT, 1, FB_REASON_ALONE); /* its peers would wait for it in the collective */
    open_alone(&m, 2, 1);
    expect(step(&m, at(FB_REDUCED_GRAD, 7, 0)), FB_SKIP, 0, FB_REASON_PROBING); /* all of them hold the same reduced gradient */
}

/* ---- wish and digest --------------------------------------------------------------------------------------------------------- */

static void test_gate__a_wish_changes_nothing_and_foretells_the_decision(void **unused)
{
    mini m;
    fb_gate_local local = at(FB_LOCAL_GRAD, 7, 2);
    fb_gate before;
    fb_gate_decision foretold;
    int i;
    (void)unused;
    open_mini(&m, FB_ON_BAD_SKIP, 3, 1);
    clean_steps(&m, 100);
    for (i = 0; i < 12; i++) {
        begin(&m);
        before = m.gate;
        assert_int_equal(fb_gate_wish(&m.gate, &local, &foretold), m.gate.halted ? FB_HALT : FB_SKIP);
        assert_memory_equal(&before, &m.gate, sizeof before);
        (void)vote(&m, local);
        assert_memory_equal(&foretold, &m.last, sizeof foretold);
        end(&m);
    }
    assert_int_equal(m.last.reason, FB_REASON_HALTED);
}

static void test_gate__every_difference_in_policy_shows_in_the_digest(void **unused)
{
    fb_gate_config base = {FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, 4, FB_SCALER_CONFIG_INIT};
    uint64_t digests[16];
    int n = 0, i, j;
    fb_gate gate;
    (void)unused;
#define with(change)                                                 \
    do {                                                             \
        fb_gate_config config = base;                                \
        change;                                                      \
        assert_int_equal(fb_gate_init(&gate, &config, NULL), FB_OK); \
        digests[n++] = fb_gate_digest(&gate);                        \
    } while (0)
    with((void)0);
    with(config.on_bad = FB_ON_BAD_HALT);
    with(config.on_bad = FB_ON_BAD_OBSERVE);
    with(config.max_skips = 4);
    with(config.agreement = FB_AGREE_NORM);
    with(config.world = 5);
    with(config.scaler.enabled = 1);
    with(config.scaler.init_scale = 32768.0);
    with(config.scaler.growth_factor = 2.5);
    with(config.scaler.backoff_factor = 0.25);
    with(config.scaler.growth_interval = 1000);
    with(config.scaler.hysteresis = 2);
    with(config.scaler.scale_min = 1.0);
#undef with
    for (i = 0; i < n; i++)
        for (j = 0; j < i; j++) assert_true(digests[i] != digests[j]);
}

static void test_gate__a_rank_that_missed_a_skip_has_another_digest(void **unused)
{
    mini a, b;
    (void)unused;
    open_mini(&a, FB_ON_BAD_SKIP, 3, 0);
    open_mini(&b, FB_ON_BAD_SKIP, 3, 0);
    clean_steps(&a, 3);
    clean_steps(&b, 3);
    assert_true(fb_gate_digest(&a.gate) == fb_gate_digest(&b.gate));
    (void)step(&a, at(FB_LOCAL_GRAD, 7, 2));
    (void)step(&b, at(0, 0, 0));
    assert_true(fb_gate_digest(&a.gate) != fb_gate_digest(&b.gate));
}

static void test_gate__configurations_that_cannot_work_are_refused_with_a_sentence(void **unused)
{
    const fb_gate_config good = {FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, 4, FB_SCALER_CONFIG_INIT};
    fb_gate gate;
    fb_error err;
    int i;
    (void)unused;
    for (i = 0; i < 7; i++) {
        fb_gate_config config = good;
        if (i == 0) config.on_bad = 3;
        if (i == 1) config.on_bad = -1;
        if (i == 2) config.agreement = 3;
        if (i == 3) config.max_skips = -1;
        if (i == 4) config.world = 0;
        if (i == 5) config.scaler.hysteresis = 0;
        if (i == 6) config.scaler.backoff_factor = 1.5;
        assert_int_equal(fb_gate_init(&gate, &config, &err), FB_E_USAGE);
        assert_true(strlen(err.message) > 20);
    }
    assert_int_equal(fb_gate_init(NULL, &good, &err), FB_E_USAGE);
    assert_int_equal(fb_gate_init(&gate, NULL, &err), FB_E_USAGE);
}

static void test_gate__every_reason_has_a_name_and_a_text(void **unused)
{
    int32_t i, j;
    (void)unused;
    for (i = FB_REASON_CLEAN; i <= FB_REASON_REPLICAS; i++) {
        assert_true(strlen(fb_gate_reason_name(i)) > 3);
        assert_true(strlen(fb_gate_reason_text(i)) > 10);
        for (j = FB_REASON_CLEAN; j < i; j++) assert_string_not_equal(fb_gate_reason_name(i), fb_gate_reason_name(j));
    }
    assert_string_equal(fb_gate_reason_name(-1), "?");
    assert_string_equal(fb_gate_reason_name(FB_REASON_REPLICAS + 1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate__without_a_scale_three_faults_are_skipped_and_the_fourth_in_a_row_halts),
        cmocka_unit_test(test_gate__a_clean_update_ends_the_row_of_skips),
        cmocka_unit_test(test_gate__with_no_skips_allowed_the_first_fault_halts),
        cmocka_unit_test(test_gate__on_bad_halt_halts_at_the_first_fault),
        cmocka_unit_test(test_gate__after_a_halt_the_gate_stays_shut_even_for_clean_votes),
        cmocka_unit_test(test_gate__observe_proceeds_always_and_still_says_fault),
        cmocka_unit_test(test_gate__each_boundary_names_its_reason),
        cmocka_unit_test(test_gate__an_isolated_overflow_under_a_dynamic_scale_is_probing),
        cmocka_unit_test(test_gate__probing_does_not_halt_even_under_on_bad_halt),
        cmocka_unit_test(test_gate__a_loss_that_only_the_scale_overflowed_is_probing_and_any_other_is_not),
        cmocka_unit_test(test_gate__a_fault_that_the_scale_cannot_explain_leaves_the_scale_alone),
        cmocka_unit_test(test_gate__the_scale_follows_what_was_found_under_observe_too),
        cmocka_unit_test(test_gate__a_failed_vote_leaves_the_scale_alone),
        cmocka_unit_test(test_gate__a_fault_behind_an_earlier_overflow_of_another_rank_is_still_a_fault),
        cmocka_unit_test(test_gate__a_descent_from_2_to_32_at_the_start_is_probing),
        cmocka_unit_test(test_gate__a_descent_that_does_not_end_is_a_fault_of_the_start),
        cmocka_unit_test(test_gate__consecutive_overflows_are_a_fault_at_the_sixth_and_halt_at_the_ninth),
        cmocka_unit_test(test_gate__hysteresis_adds_its_overflows_to_the_limits),
        cmocka_unit_test(test_gate__too_many_overflows_in_the_window_are_a_fault),
        cmocka_unit_test(test_gate__overflows_that_leave_the_window_are_forgotten),
        cmocka_unit_test(test_gate__the_ratio_rule_allows_for_a_short_growth_interval),
        cmocka_unit_test(test_gate__a_scale_that_only_falls_is_a_fault_at_the_overflow_after_the_eighth_back_off),
        cmocka_unit_test(test_gate__a_growth_in_between_starts_the_falls_anew),
        cmocka_unit_test(test_gate__the_same_tensor_on_the_same_rank_at_every_scale_is_a_fault),
        cmocka_unit_test(test_gate__the_same_tensor_after_each_growth_is_probing),
        cmocka_unit_test(test_gate__a_second_overflow_in_a_row_at_the_floor_is_a_fault),
        cmocka_unit_test(test_gate__the_scalers_own_floor_is_the_floor),
        cmocka_unit_test(test_gate__a_scale_that_is_no_usable_number_explains_nothing),
        cmocka_unit_test(test_gate__a_replay_inside_of_a_step_judges_that_step_and_no_other),
        cmocka_unit_test(test_gate__what_came_back_in_a_replay_is_a_fault_until_an_update_is_clean),
        cmocka_unit_test(test_gate__two_bad_votes_of_one_step_count_as_one_skip_and_one_fault),
        cmocka_unit_test(test_gate__a_clean_vote_does_not_take_back_what_an_earlier_one_withheld),
        cmocka_unit_test(test_gate__a_step_without_a_vote_counts_as_nothing),
        cmocka_unit_test(test_gate__disagreement_and_no_quorum_halt),
        cmocka_unit_test(test_gate__a_rank_that_asks_for_a_halt_without_a_finding_gets_it),
        cmocka_unit_test(test_gate__a_finding_of_any_rank_withholds_the_update),
        cmocka_unit_test(test_gate__a_single_process_without_a_vote_may_skip),
        cmocka_unit_test(test_gate__one_of_several_that_cannot_vote_halts_at_a_fault),
        cmocka_unit_test(test_gate__a_wish_changes_nothing_and_foretells_the_decision),
        cmocka_unit_test(test_gate__every_difference_in_policy_shows_in_the_digest),
        cmocka_unit_test(test_gate__a_rank_that_missed_a_skip_has_another_digest),
        cmocka_unit_test(test_gate__configurations_that_cannot_work_are_refused_with_a_sentence),
        cmocka_unit_test(test_gate__every_reason_has_a_name_and_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
