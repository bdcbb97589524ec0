/* An update that is looked at beside the state, before fb_step_apply: what it may, and what a bad number in it leads to. */
#include "support/world.h"

#include "evidence/records.h"
#include "log/log.h"

static fb_error err;

#define EXPECT(call, status, words)                                                                          \
    do {                                                                                                     \
        fb_status got = (call);                                                                              \
        if (got != (status) || !strstr(err.message, words)) fail_msg("%s: %d, %s", #call, got, err.message); \
    } while (0)

/* What the optimizer would make of this rank's state. */
typedef struct proposal {
    float param[WORLD_TENSORS][WORLD_ELEMENTS], moment[WORLD_TENSORS][WORLD_ELEMENTS];
} proposal;

static void make(const world_rank *r, proposal *p)
{
    for (int t = 0; t < WORLD_TENSORS; t++) {
        for (int e = 0; e < WORLD_ELEMENTS; e++) {
            p->moment[t][e] = 0.9f * r->moment[t][e] + r->grad[t][e];
            p->param[t][e] = r->param[t][e] - 0.01f * p->moment[t][e];
        }
    }
}

static void views_of(const world_rank *r, proposal *p, fb_view views[2 * WORLD_TENSORS])
{
    for (int t = 0; t < WORLD_TENSORS; t++) {
        views[t] = world_view(p->param[t], r->param_site[t]);
        views[WORLD_TENSORS + t] = world_view(p->moment[t], r->moment_site[t]);
    }
}

static void put_in_place(world_rank *r, const proposal *p)
{
    memcpy(r->param, p->param, sizeof r->param);
    memcpy(r->moment, p->moment, sizeof r->moment);
}

/* Both votes on the gradients of a step, and the update of every rank proposed; rank `bad`'s holds an Inf. -1: none does. */
static void propose(world *w, int64_t step, int bad, proposal p[WORLD_MAX_RANKS])
{
    for (int i = 0; i < w->ranks; i++) world_local(w, i, step, NULL, NULL);
    world_vote(w);
    assert_int_equal(w->rank[0].verdict.action, FB_PROCEED);
    world_reduce(w);
    world_unscale(w);
    world_vote(w);
    assert_int_equal(w->rank[0].verdict.action, FB_PROCEED);
    for (int i = 0; i < w->ranks; i++) {
        fb_view views[2 * WORLD_TENSORS];
        make(&w->rank[i], &p[i]);
        if (i == bad) p[i].moment[1][2] = world_bits(0x7f800000u);
        views_of(&w->rank[i], &p[i], views);
        if (fb_step_check(w->rank[i].run, FB_UPDATE, views, 2 * WORLD_TENSORS, &err) != FB_OK) fail_msg("%s", err.message);
        assert_int_equal(w->rank[i].run->step.unsettled, 1);
    }
}

static void end_all(world *w)
{
    fb_step_result result = FB_STEP_RESULT_INIT;
    for (int i = 0; i < w->ranks; i++) assert_int_equal(fb_step_end(w->rank[i].run, &result, &err), FB_OK);
}

/* Records of one type in a rank's ledger; the last one's bytes go to the decoder. */
static int records_of(const world *w, int rank, uint16_t type, fb_status (*decode)(const void *, uint32_t, void *), void *out)
{
    char path[160];
    fb_log_reader *reader;
    fb_log_record record;
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        if (record.type != type) continue;
        count++;
        assert_int_equal(decode(record.payload, record.bytes, out), FB_OK);
    }
    fb_log_reader_close(reader);
    return count;
}

static fb_status decode_step(const void *payload, uint32_t bytes, void *out)
{
    return fb_rec_step_decode(payload, bytes, out, NULL);
}

static fb_status decode_proof(const void *payload, uint32_t bytes, void *out)
{
    return fb_rec_proof_decode(payload, bytes, out, NULL);
}

/* ---- what comes of it -------------------------------------------------------------------------------------------------------- */

static void test_proposal__finite_on_all_ranks_is_let_through_after_three_votes(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    fb_rec_step rec;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    propose(&w, 1, -1, p);
    EXPECT(fb_step_apply(w.rank[0].run, &err), FB_E_ORDER, "after the last vote");
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        fb_run *run = w.rank[i].run;
        assert_int_equal(w.rank[i].verdict.clean, 1);
        assert_int_equal(fb_step_apply(run, &err), FB_OK);
        assert_true(run->step.rec.flags & FB_STEP_GATED);
        assert_int_equal(run->step.rec.cover.level[FB_UPDATE], FB_COVER_FULL);
        assert_int_equal(run->step.rec.cover.tensors[FB_UPDATE], 2 * WORLD_TENSORS);
        put_in_place(&w.rank[i], &p[i]);
    }
    end_all(&w);
    assert_int_equal(w.rank[0].run->step_verified, 1);
    assert_int_equal(world_step(&w, 2, NULL, NULL), FB_PROCEED);
    assert_int_equal(records_of(&w, 1, FB_REC_STEP, decode_step, &rec), 2);
    world_close(&w);
}

static void test_proposal__bad_on_one_rank_is_withheld_on_all_at_this_step_and_nothing_is_spoilt(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    fb_rec_step rec;
    fb_rec_proof proof;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 6, NULL, NULL), FB_PROCEED);
    propose(&w, 7, 1, p);
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        fb_run *run = w.rank[i].run;
        const fb_verdict *v = &w.rank[i].verdict;
        assert_int_equal(v->action, FB_SKIP);
        assert_int_equal(v->fault, 1);
        assert_int_equal(v->step, 7);
        assert_int_equal(v->first_boundary, FB_UPDATE);
        assert_int_equal(v->first_rank, 1);
        assert_int_equal(v->first_position, 20);
        assert_int_equal(v->local_findings, i);
        assert_string_equal(v->case_id, "a1-000007");
        EXPECT(fb_step_apply(run, &err), FB_E_WITHHELD, "leave parameters");
        assert_int_equal(run->state_bad, 0);
        assert_int_equal(run->late_pending, 0);
        assert_int_equal(run->ungated, 0);
    }
    end_all(&w);
    /* The state is what it was: the next step is clean, its proof of the skip holds, and the case is closed. */
    assert_int_equal(world_step(&w, 8, NULL, NULL), FB_PROCEED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.rank[i].run->skip_broken, 0);
        assert_int_equal(w.rank[i].run->ungated, 0);
        assert_int_equal(records_of(&w, i, FB_REC_PROOF, decode_proof, &proof), 2);
        assert_int_equal(proof.step, 7);
        assert_int_equal(proof.equal, 1);
    }
    assert_int_equal(records_of(&w, 0, FB_REC_STEP, decode_step, &rec), 3);
    assert_int_equal(rec.step, 8);
    assert_true(rec.flags & FB_STEP_GATED);
    world_close(&w);
}

/* A loss scale can explain a gradient. It cannot explain what an optimizer made of finite ones. */
static void test_proposal__finding_in_it_is_never_probing_and_leaves_the_scale(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    (void)state;
    world_init(&w, 2);
    w.config.scaler.enabled = 1;
    w.config.scaler.init_scale = 1024.0;
    world_open(&w);
    for (int i = 0; i < 2; i++) assert_true(fb_run_loss_scale(w.rank[i].run) == 1024.0);
    propose(&w, 3, 0, p);
    world_vote(&w);
    assert_int_equal(w.rank[1].verdict.fault, 1);
    assert_int_equal(w.rank[1].verdict.action, FB_SKIP_FREEZE);
    end_all(&w);
    for (int i = 0; i < 2; i++) assert_true(fb_run_loss_scale(w.rank[i].run) == 1024.0);
    world_close(&w);
}

/* Observed, it becomes the state: then it is bad, the update was not gated, and the next step begins with a bad state. */
static void test_proposal__observed_it_is_applied_and_counts_as_a_bad_state_from_then_on(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    (void)state;
    world_init(&w, 2);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    propose(&w, 1, 1, p);
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.rank[i].verdict.action, FB_PROCEED);
        assert_int_equal(w.rank[i].verdict.fault, 1);
        assert_int_equal(w.rank[i].run->state_bad, 0);
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_OK);
        assert_false(w.rank[i].run->step.rec.flags & FB_STEP_GATED);
        assert_int_equal(w.rank[i].run->ungated, 1);
        assert_int_equal(w.rank[i].run->state_bad, i);
        put_in_place(&w.rank[i], &p[i]);
    }
    end_all(&w);
    for (int i = 0; i < 2; i++) world_local(&w, i, 2, NULL, NULL);
    world_vote(&w);
    assert_int_equal(w.rank[0].verdict.first_boundary, FB_ENTRY);
    assert_int_equal(w.rank[0].verdict.first_rank, 1);
    world_close(&w);
}

/* Nobody votes on what was found in it: the update is given up, and the state stays good. */
static void test_proposal__given_up_it_spoils_nothing(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    fb_rec_step rec;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    propose(&w, 4, 0, p);
    for (int i = 0; i < 2; i++) assert_int_equal(fb_step_abandon(w.rank[i].run, &err), FB_OK);
    assert_int_equal(w.rank[0].run->state_bad, 0);
    assert_int_equal(world_step(&w, 5, NULL, NULL), FB_PROCEED);
    assert_int_equal(w.rank[0].run->ungated, 0);
    assert_int_equal(records_of(&w, 0, FB_REC_STEP, decode_step, &rec), 2);
    world_close(&w);
}

/* A state that was bad before is the earlier finding: the optimizer is not blamed for what it was given. */
static void test_proposal__made_from_a_bad_state_the_state_is_named(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    w.rank[1].moment[0][3] = world_bits(0xff800000u);
    propose(&w, 2, -1, p);
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.rank[i].verdict.first_boundary, FB_ENTRY);
        assert_int_equal(w.rank[i].verdict.first_rank, 1);
        assert_int_equal(w.rank[i].verdict.first_position, 10);
    }
    world_close(&w);
}

static void test_proposal__its_finding_has_the_gradients_as_witness_and_what_is_bad_after_it_is_late_all_the_same(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    fb_view param;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    propose(&w, 1, 1, p);
    world_vote(&w);
    assert_int_equal(w.rank[1].run->findings[0].boundary, FB_UPDATE);
    assert_true(w.rank[1].run->findings[0].clean_before & 1u << FB_REDUCED_GRAD);
    end_all(&w);
    propose(&w, 2, -1, p);
    world_vote(&w);
    for (int i = 0; i < 2; i++) assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_OK);
    w.rank[0].param[0][0] = world_bits(0x7fc00000u); /* it was put in place wrongly */
    param = world_view(w.rank[0].param[0], w.rank[0].param_site[0]);
    assert_int_equal(fb_step_check(w.rank[0].run, FB_UPDATE, &param, 1, &err), FB_OK);
    assert_int_equal(w.rank[0].run->state_bad, 1);
    end_all(&w);
    assert_int_equal(w.rank[0].run->late_pending, 1);
    assert_int_equal(w.rank[0].run->ungated, 1);
    world_close(&w);
}

/* ---- order ------------------------------------------------------------------------------------------------------------------- */

static void test_proposal__comes_after_a_settled_vote_and_before_nothing_but_its_own(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    proposal p;
    fb_view views[2 * WORLD_TENSORS], grads[WORLD_TENSORS];
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    int64_t words[4];
    double sum_sq = -1.0;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    world_backward(r);
    make(r, &p);
    views_of(r, &p, views);
    for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
    step.step = 9;
    assert_int_equal(fb_step_begin(r->run, &step, &err), FB_OK);
    EXPECT(fb_step_check(r->run, FB_UPDATE, views, 4, &err), FB_E_ORDER, "no settled vote covers the gradients of step 9");
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    EXPECT(fb_step_check(r->run, FB_UPDATE, views, 4, &err), FB_E_ORDER, "no settled vote");
    assert_int_equal(fb_step_vote_alone(r->run, &verdict, &err), FB_OK);
    assert_int_equal(fb_step_unscale(r->run, grads, WORLD_TENSORS, 1.0, &sum_sq, &err), FB_OK);
    EXPECT(fb_step_check(r->run, FB_UPDATE, views, 4, &err), FB_E_ORDER, "no settled vote"); /* the reduced ones are not voted on */
    assert_int_equal(r->run->step.proposed, 0);
    assert_int_equal(fb_step_vote_alone(r->run, &verdict, &err), FB_OK);
    assert_int_equal(fb_step_check(r->run, FB_UPDATE, NULL, 0, &err), FB_OK); /* nothing is no proposal */
    assert_int_equal(r->run->step.unsettled, 0);
    assert_int_equal(fb_step_check(r->run, FB_UPDATE, views, 2, &err), FB_OK);
    assert_int_equal(fb_step_check_sampled(r->run, FB_UPDATE, views + 2, 2, 2, &err), FB_OK); /* more of the same */
    EXPECT(fb_step_check(r->run, FB_LOCAL_GRAD, grads, 1, &err), FB_E_ORDER, "unscaled already");
    EXPECT(fb_step_unscale(r->run, grads, WORLD_TENSORS, 1.0, &sum_sq, &err), FB_E_ORDER, "unscaled already");
    EXPECT(fb_step_apply(r->run, &err), FB_E_ORDER, "once more");
    EXPECT(fb_step_end(r->run, &result, &err), FB_E_ORDER, "fb_step_apply was not called");
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    EXPECT(fb_step_check(r->run, FB_UPDATE, views, 4, &err), FB_E_ORDER, "a ballot is out");
    EXPECT(fb_step_apply(r->run, &err), FB_E_ORDER, "not settled");
    assert_int_equal(fb_step_settle(r->run, words, &verdict, &err), FB_OK);
    assert_int_equal(r->run->step.votes, 3);
    assert_int_equal(fb_step_check(r->run, FB_UPDATE, views, 1, &err), FB_OK); /* one more look asks for one more vote */
    EXPECT(fb_step_apply(r->run, &err), FB_E_ORDER, "once more");
    assert_int_equal(fb_step_vote_alone(r->run, &verdict, &err), FB_OK);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
    world_close(&w);
}

/* A trainer that does not unscale proposes after the vote on its local gradients, and cannot go back to them. */
static void test_proposal__closes_the_way_back_to_the_gradients(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    proposal p;
    fb_view views[2 * WORLD_TENSORS], grads[WORLD_TENSORS];
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    double sum_sq = -1.0;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    world_backward(r);
    make(r, &p);
    views_of(r, &p, views);
    for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
    assert_int_equal(fb_step_begin(r->run, &step, &err), FB_OK);
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(fb_step_vote_alone(r->run, &verdict, &err), FB_OK);
    p.param[0][0] = world_bits(0x7fc00000u);
    assert_int_equal(fb_step_check(r->run, FB_UPDATE, views, 4, &err), FB_OK);
    EXPECT(fb_step_check(r->run, FB_LOCAL_GRAD, grads, 1, &err), FB_E_ORDER, "was looked at already");
    EXPECT(fb_step_check(r->run, FB_ENTRY, views, 1, &err), FB_E_ORDER, "was looked at already");
    EXPECT(fb_step_unscale(r->run, grads, WORLD_TENSORS, 1.0, &sum_sq, &err), FB_E_ORDER, "looked at already");
    assert_true(sum_sq == -1.0);
    assert_int_equal(fb_step_vote_alone(r->run, &verdict, &err), FB_OK);
    assert_int_equal(verdict.action, FB_SKIP);
    assert_int_equal(verdict.first_boundary, FB_UPDATE);
    EXPECT(fb_step_check(r->run, FB_UPDATE, views, 4, &err), FB_E_WITHHELD, "was withheld");
    assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
    assert_int_equal(r->run->state_bad, 0);
    world_close(&w);
}

/* One rank proposes and the other does not: they vote under different numbers, and nobody updates. */
static void test_proposal__by_one_rank_alone_never_passes_for_agreement(void **state)
{
    world w;
    proposal p[WORLD_MAX_RANKS];
    int64_t words[2][4];
    fb_verdict verdict = FB_VERDICT_INIT;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    propose(&w, 1, -1, p);
    world_vote(&w);
    assert_int_equal(fb_step_apply(w.rank[0].run, &err), FB_OK);
    assert_int_equal(fb_step_apply(w.rank[1].run, &err), FB_OK);
    end_all(&w);
    for (int i = 0; i < 2; i++) world_local(&w, i, 2, NULL, NULL);
    world_vote(&w);
    world_reduce(&w);
    world_unscale(&w);
    world_vote(&w);
    {
        fb_view views[2 * WORLD_TENSORS];
        views_of(&w.rank[0], &p[0], views);
        assert_int_equal(fb_step_check(w.rank[0].run, FB_UPDATE, views, 2 * WORLD_TENSORS, &err), FB_OK);
    }
    /* Rank 1 went on and is at the first vote of its next step. */
    assert_int_equal(fb_step_apply(w.rank[1].run, &err), FB_OK);
    {
        fb_step_result result = FB_STEP_RESULT_INIT;
        assert_int_equal(fb_step_end(w.rank[1].run, &result, &err), FB_OK);
    }
    world_local(&w, 1, 3, NULL, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(fb_step_ballot(w.rank[i].run, words[i], &err), FB_OK);
    fb_vote_fold(words[0], words[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_step_settle(w.rank[i].run, words[0], &verdict, &err), FB_OK);
        assert_int_equal(verdict.action, FB_HALT);
        assert_int_equal(verdict.unanimous, 0);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proposal__finite_on_all_ranks_is_let_through_after_three_votes),
        cmocka_unit_test(test_proposal__bad_on_one_rank_is_withheld_on_all_at_this_step_and_nothing_is_spoilt),
        cmocka_unit_test(test_proposal__finding_in_it_is_never_probing_and_leaves_the_scale),
        cmocka_unit_test(test_proposal__observed_it_is_applied_and_counts_as_a_bad_state_from_then_on),
        cmocka_unit_test(test_proposal__given_up_it_spoils_nothing),
        cmocka_unit_test(test_proposal__made_from_a_bad_state_the_state_is_named),
        cmocka_unit_test(test_proposal__its_finding_has_the_gradients_as_witness_and_what_is_bad_after_it_is_late_all_the_same),
        cmocka_unit_test(test_proposal__comes_after_a_settled_vote_and_before_nothing_but_its_own),
        cmocka_unit_test(test_proposal__closes_the_way_back_to_the_gradients),
        cmocka_unit_test(test_proposal__by_one_rank_alone_never_passes_for_agreement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
