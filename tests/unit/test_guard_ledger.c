/*
 * What the ledger of every rank says of every step: which boundaries were looked at and how far, how the ranks agreed, and for each
 * update that was withheld, that the state is what it was. A step without that is not clean, whatever else is known of it.
 */
#include "support/world.h"

#include "log/log.h"

enum { RANKS = 3, STEPS = 9, PROOFS = 32 };

static fb_error err;

typedef struct ledger {
    fb_rec_step step[STEPS];
    fb_rec_proof proof[PROOFS];
    int steps, proofs;
} ledger;

static void read_ledger(const world *w, int rank, ledger *out)
{
    char path[256];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    memset(out, 0, sizeof *out);
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        if (record.type == FB_REC_STEP) {
            assert_true(out->steps < STEPS);
            assert_int_equal(fb_rec_step_decode(record.payload, record.bytes, &out->step[out->steps++], &err), FB_OK);
        }
        if (record.type == FB_REC_PROOF) {
            assert_true(out->proofs < PROOFS);
            assert_int_equal(fb_rec_proof_decode(record.payload, record.bytes, &out->proof[out->proofs++], &err), FB_OK);
        }
    }
    fb_log_reader_close(reader);
}

static const fb_rec_proof *find(const ledger *l, int64_t step, int32_t moment)
{
    for (int i = 0; i < l->proofs; i++) {
        if (l->proof[i].step == step && l->proof[i].moment == moment) return &l->proof[i];
    }
    return NULL;
}

static void spoil(world *w, int rank, int micro, void *ctx)
{
    int64_t step = *(const int64_t *)ctx;
    (void)micro;
    if (rank != 1) return;
    if (step == 2) w->rank[rank].grad[1][3] = world_bits(0x7fc00000u); /* found before the collective */
    if (step == 5) w->rank[rank].tokens[1] = 4711;
}

static int is_bad(int64_t step)
{
    return step == 2 || step == 5;
}

/* Levels of one record, of a step that ran to its end or was stopped at the first vote. */
static void check_cover(const fb_rec_step *rec, int bad, int skip_reduced)
{
    const uint8_t *level = rec->cover.level;
    assert_true(level[FB_INPUT] == FB_COVER_FULL || level[FB_INPUT] == FB_COVER_SUMMARY);
    assert_int_equal(level[FB_FORWARD], FB_COVER_NONE); /* nobody handed an activation over: never called clean */
    assert_int_equal(level[FB_LOSS], FB_COVER_FULL);
    assert_int_equal(level[FB_LOCAL_GRAD], FB_COVER_FULL);
    assert_int_equal(level[FB_REDUCED_GRAD], bad || skip_reduced ? FB_COVER_NONE : FB_COVER_FULL);
    assert_int_equal(level[FB_UPDATE], FB_COVER_NONE);
    assert_int_equal(rec->cover.tensors[FB_LOCAL_GRAD], WORLD_TENSORS);
}

static void test_guard_ledger__every_step_of_every_rank_says_what_was_checked_and_how_the_ranks_agreed(void **state)
{
    world w;
    static ledger l;
    (void)state;
    world_init(&w, RANKS);
    w.config.replicated = 1;
    w.config.replica_period = 4;
    world_open(&w);
    for (int64_t step = 0; step < STEPS; step++) {
        assert_int_equal(world_step(&w, step, spoil, &step), is_bad(step) ? FB_SKIP : FB_PROCEED);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        read_ledger(&w, rank, &l);
        assert_int_equal(l.steps, STEPS);
        for (int64_t step = 0; step < STEPS; step++) {
            const fb_rec_step *rec = &l.step[step];
            int bad = is_bad(step), compared = step % 4 == 0 || is_bad(step - 1);
            assert_int_equal(rec->step, step);
            assert_int_equal(rec->agreement, FB_AGREE_VOTE);
            assert_int_equal(rec->unanimous, 1);
            assert_int_equal(rec->votes, bad ? 1 : 2);
            assert_int_equal(rec->action, bad ? FB_SKIP : FB_PROCEED);
            check_cover(rec, bad, 0);
            /* The rank that found something read its whole state, to know whether it was bad before. */
            assert_int_equal(rec->cover.level[FB_ENTRY], bad && rank == 1 ? FB_COVER_FULL : FB_COVER_NONE);
            assert_int_equal((rec->flags & FB_STEP_GATED) != 0, !bad);
            assert_int_equal((rec->flags & FB_STEP_APPLIED) != 0, !bad);
            assert_int_equal((rec->flags & FB_STEP_SKIPPED) != 0, bad);
            assert_int_equal((rec->flags & FB_STEP_REPLICAS) != 0, compared);
            assert_int_equal(find(&l, step, FB_PROOF_REPLICAS) != NULL, compared);
        }
    }
    world_close(&w);
}

static void test_guard_ledger__each_withheld_update_is_proven_to_have_changed_nothing_on_any_rank(void **state)
{
    world w;
    static ledger l[RANKS];
    (void)state;
    world_init(&w, RANKS);
    w.config.replicated = 1;
    world_open(&w);
    for (int64_t step = 1; step < STEPS; step++) (void)world_step(&w, step, spoil, &step);
    for (int rank = 0; rank < RANKS; rank++) read_ledger(&w, rank, &l[rank]);
    for (int64_t step = 1; step < STEPS; step++) {
        for (int rank = 0; rank < RANKS; rank++) {
            const fb_rec_proof *decision = find(&l[rank], step, FB_PROOF_DECISION);
            const fb_rec_proof *after = find(&l[rank], step, FB_PROOF_NEXT_BEGIN);
            const fb_rec_proof *compared = find(&l[rank], step + 1, FB_PROOF_REPLICAS);
            assert_int_equal(decision != NULL, is_bad(step));
            assert_int_equal(after != NULL, is_bad(step));
            assert_int_equal(compared != NULL, is_bad(step));
            if (!is_bad(step)) continue;
            assert_true(after->equal == 1 && after->digest == decision->digest && after->tensors == 2 * WORLD_TENSORS);
            assert_true(compared->equal == 1 && compared->digest == find(&l[0], step + 1, FB_PROOF_REPLICAS)->digest);
        }
    }
    world_close(&w);
}

/* An optimizer that steps all the same, alike on all ranks: the ranks still agree, and each of them knows. */
static void test_guard_ledger__a_withheld_update_that_was_made_all_the_same_halts(void **state)
{
    world w;
    static ledger l;
    int64_t step = 2;
    (void)state;
    world_init(&w, RANKS);
    w.config.replicated = 1;
    world_open(&w);
    assert_int_equal(world_step(&w, step, spoil, &step), FB_SKIP);
    for (int rank = 0; rank < RANKS; rank++) w.rank[rank].param[0][0] += 1.0f;
    step = 3;
    assert_int_equal(world_step(&w, step, spoil, &step), FB_HALT);
    for (int rank = 0; rank < RANKS; rank++) {
        read_ledger(&w, rank, &l);
        assert_int_equal(find(&l, 2, FB_PROOF_NEXT_BEGIN)->equal, 0);
        assert_int_equal(find(&l, 3, FB_PROOF_REPLICAS)->equal, 1);
    }
    world_close(&w);
}

static void test_guard_ledger__a_trainer_that_never_reduces_is_never_called_gated(void **state)
{
    world w;
    static ledger l;
    (void)state;
    world_init(&w, 2);
    w.skip_reduced = 1;
    world_open(&w);
    for (int64_t step = 0; step < 3; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    read_ledger(&w, 1, &l);
    for (int i = 0; i < 3; i++) {
        check_cover(&l.step[i], 0, 1);
        assert_int_equal(l.step[i].flags & FB_STEP_GATED, 0);
    }
    world_close(&w);
}

static void test_guard_ledger__a_vote_that_failed_and_a_step_that_was_given_up_say_so(void **state)
{
    world w;
    static ledger l;
    fb_step begin = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    int64_t words[4];
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    begin.step = 0;
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_abandon(w.rank[0].run, &err), FB_OK);
    begin.step = 1;
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(w.rank[0].run, NULL, &verdict, &err), FB_OK);
    assert_int_equal(fb_step_end(w.rank[0].run, &result, &err), FB_OK);
    read_ledger(&w, 0, &l);
    assert_int_equal(l.steps, 2);
    assert_true(l.step[0].flags == (FB_STEP_SKIPPED | FB_STEP_ABANDONED | FB_STEP_DEEP) && l.step[0].unanimous == -1);
    assert_true(l.step[1].action == FB_HALT && l.step[1].unanimous == -1 && !(l.step[1].flags & FB_STEP_GATED));
    for (int i = 0; i < 2; i++) {
        for (int boundary = FB_ENTRY; boundary <= FB_CHECKPOINT; boundary++)
            assert_int_equal(l.step[i].cover.level[boundary], FB_COVER_NONE);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_ledger__every_step_of_every_rank_says_what_was_checked_and_how_the_ranks_agreed),
        cmocka_unit_test(test_guard_ledger__each_withheld_update_is_proven_to_have_changed_nothing_on_any_rank),
        cmocka_unit_test(test_guard_ledger__a_withheld_update_that_was_made_all_the_same_halts),
        cmocka_unit_test(test_guard_ledger__a_trainer_that_never_reduces_is_never_called_gated),
        cmocka_unit_test(test_guard_ledger__a_vote_that_failed_and_a_step_that_was_given_up_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
