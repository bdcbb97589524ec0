/*
 * Replicas: parameters that must be equal on every rank are compared with a vote that is made in any case. One bit on one rank is
 * found at the next comparison, and who differs stands in the ledgers; equal ranks never fire.
 */
#include "support/world.h"

#include "ckpt/safetensors_write.h"
#include "firstbad/ckpt.h"
#include "log/log.h"

static fb_error err;

static void open_replicated(world *w, int ranks, int32_t period)
{
    world_init(w, ranks);
    w->config.replicated = 1;
    w->config.replica_period = period;
    world_open(w);
}

/* Proofs of one moment in a rank's ledger, in order; the number of them. */
static int proofs(const world *w, int rank, int32_t moment, fb_rec_proof *out, int room)
{
    char path[256];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    int count = 0;
    memset(out, 0, (size_t)room * sizeof *out);
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        fb_rec_proof proof;
        if (record.type != FB_REC_PROOF) continue;
        assert_int_equal(fb_rec_proof_decode(record.payload, record.bytes, &proof, &err), FB_OK);
        if (proof.moment != moment) continue;
        if (count < room) out[count] = proof;
        count++;
    }
    fb_log_reader_close(reader);
    return count;
}

/* The verdict record of the last vote that was not clean, of one rank. */
static fb_rec_verdict last_verdict(const world *w, int rank)
{
    char path[256];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    fb_rec_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        if (record.type == FB_REC_VERDICT)
            assert_int_equal(fb_rec_verdict_decode(record.payload, record.bytes, &verdict, &err), FB_OK);
    }
    fb_log_reader_close(reader);
    return verdict;
}

static void flip(world *w, int rank, int bit)
{
    uint32_t bits;
    memcpy(&bits, &w->rank[rank].param[1][2], sizeof bits);
    bits ^= 1u << bit;
    memcpy(&w->rank[rank].param[1][2], &bits, sizeof bits);
}

static void spoil_one(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == 1) w->rank[rank].grad[0][0] = world_bits(0x7fc00000u);
}

static void test_guard_replicas__one_bit_on_one_rank_is_found_at_the_next_comparison(void **state)
{
    (void)state;
    for (int bit = 0; bit < 32; bit += 7) { /* none of them makes the number non-finite */
        world w;
        fb_rec_proof proof[4][8];
        float before[4];
        open_replicated(&w, 4, 5);
        for (int64_t step = 0; step <= 6; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        flip(&w, 2, bit);
        for (int64_t step = 7; step <= 9; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        for (int i = 0; i < 4; i++) before[i] = w.rank[i].param[1][2];
        assert_int_equal(world_step(&w, 10, NULL, NULL), FB_HALT);
        for (int i = 0; i < 4; i++) {
            fb_rec_verdict verdict = last_verdict(&w, i);
            int n = proofs(&w, i, FB_PROOF_REPLICAS, proof[i], 8);
            assert_int_equal(w.rank[i].applied, FB_E_WITHHELD);
            assert_int_equal(w.rank[i].verdict.unanimous, 0);
            assert_memory_equal(&before[i], &w.rank[i].param[1][2], sizeof before[i]);
            assert_int_equal(verdict.reason, FB_REASON_REPLICAS);
            assert_int_equal(verdict.action, FB_HALT);
            assert_int_equal(n, 3); /* steps 0, 5, 10 */
            assert_true(proof[i][0].equal == 1 && proof[i][1].equal == 1 && proof[i][2].equal == 0);
            assert_int_equal(proof[i][2].step, 10);
            assert_int_equal(proof[i][2].tensors, WORLD_TENSORS);
        }
        assert_true(proof[0][2].digest == proof[1][2].digest && proof[0][2].digest == proof[3][2].digest);
        assert_true(proof[0][2].digest != proof[2][2].digest); /* it can be told who differs */
        assert_non_null(strstr(fb_gate_reason_text(FB_REASON_REPLICAS), "drifted apart"));
        world_close(&w);
    }
}

static void test_guard_replicas__equal_ranks_never_fire_through_skips_and_scales(void **state)
{
    world w;
    fb_rec_proof proof[64];
    int skips = 0;
    (void)state;
    world_init(&w, 3);
    w.config.replicated = 1;
    w.config.replica_period = 7;
    w.config.scaler.enabled = 1;
    world_open(&w);
    for (int64_t step = 0; step < 300; step++) {
        int bad = step % 50 == 30;
        assert_int_equal(world_step(&w, step, bad ? spoil_one : NULL, NULL), bad ? FB_SKIP : FB_PROCEED);
        skips += bad;
    }
    for (int i = 0; i < 3; i++) {
        int n = proofs(&w, i, FB_PROOF_REPLICAS, proof, 64);
        /* Every seventh step, and the one after each skip where that is another. */
        assert_int_equal(n, 43 + skips - (31 % 7 == 0) - (81 % 7 == 0) - (131 % 7 == 0) - (181 % 7 == 0) - (231 % 7 == 0) -
                                (281 % 7 == 0));
        for (int k = 0; k < n && k < 64; k++) assert_int_equal(proof[k].equal, 1);
    }
    world_close(&w);
}

/* The skip was proven on each rank by itself; that all ranks stand where they stood is one question more. */
static void test_guard_replicas__the_step_after_a_skip_compares_whatever_its_number(void **state)
{
    world w;
    fb_rec_proof proof[4];
    (void)state;
    open_replicated(&w, 2, 1000);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 2, spoil_one, NULL), FB_SKIP);
    assert_int_equal(world_step(&w, 3, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 4, NULL, NULL), FB_PROCEED);
    assert_int_equal(proofs(&w, 0, FB_PROOF_REPLICAS, proof, 4), 2);
    assert_true(proof[0].step == 1 && proof[0].equal == 1 && proof[1].step == 3 && proof[1].equal == 1);
    flip(&w, 0, 3);
    assert_int_equal(world_step(&w, 5, spoil_one, NULL), FB_SKIP);
    assert_int_equal(world_step(&w, 6, NULL, NULL), FB_HALT);
    assert_int_equal(last_verdict(&w, 1).reason, FB_REASON_REPLICAS);
    world_close(&w);
}

/* A rank that resumed from another file, or drew its weights with another seed. */
static void test_guard_replicas__ranks_that_begin_apart_halt_at_the_first_step_whatever_its_number(void **state)
{
    world w;
    fb_rec_proof proof[2];
    (void)state;
    open_replicated(&w, 3, 100);
    flip(&w, 1, 3);
    assert_int_equal(world_step(&w, 41, NULL, NULL), FB_HALT);
    assert_int_equal(last_verdict(&w, 0).reason, FB_REASON_REPLICAS);
    world_close(&w);
    open_replicated(&w, 3, 100);
    for (int64_t step = 41; step <= 60; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    assert_int_equal(proofs(&w, 2, FB_PROOF_REPLICAS, proof, 2), 1);
    assert_int_equal(proof[0].step, 41);
    world_close(&w);
}

static void test_guard_replicas__steps_that_compared_say_so(void **state)
{
    world w;
    (void)state;
    open_replicated(&w, 2, 3);
    for (int64_t step = 0; step < 7; step++) {
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        for (int i = 0; i < 2; i++) {
            uint32_t flags = w.rank[i].run->step.rec.flags;
            assert_int_equal((flags & FB_STEP_REPLICAS) != 0, step % 3 == 0);
            assert_true(flags & FB_STEP_GATED);
        }
    }
    world_close(&w);
}

static void test_guard_replicas__nothing_is_compared_unless_it_was_asked_for(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        world w;
        fb_rec_proof proof[1];
        world_init(&w, which == 3 ? 1 : 2);
        w.config.replicated = which != 0;
        w.config.replica_period = which == 1 ? 0 : 2;
        world_open(&w);
        for (int i = 0; which == 2 && i < 2; i++) assert_int_equal(fb_run_own(w.rank[i].run, NULL, 0, &err), FB_OK);
        flip(&w, 0, 5);
        for (int64_t step = 0; step < 5; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        assert_int_equal(proofs(&w, 0, FB_PROOF_REPLICAS, proof, 1), 0);
        world_close(&w);
    }
}

/* Two ranks with other periods, or one that owns nothing: not a drift, and never an update. */
static void test_guard_replicas__ranks_that_compare_at_other_times_disagree_and_do_not_drift(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        world w;
        open_replicated(&w, 2, 2);
        if (which == 0) w.rank[1].run->replica_period = 3;
        else assert_int_equal(fb_run_own(w.rank[1].run, NULL, 0, &err), FB_OK);
        if (which == 0) assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED); /* all compare in the first step */
        assert_int_equal(world_step(&w, 2, NULL, NULL), FB_HALT);
        assert_int_equal(last_verdict(&w, 0).reason, FB_REASON_DISAGREE);
        assert_int_equal(last_verdict(&w, 1).reason, FB_REASON_DISAGREE);
        world_close(&w);
    }
}

/* Parameters and scale differ at once: what the vote says is that the ranks do not agree, and it does not blame the parameters. */
static void test_guard_replicas__another_scale_is_no_drift_even_where_parameters_differ(void **state)
{
    world w;
    fb_scaler_state scaler = {1024.0, 0, 1};
    (void)state;
    world_init(&w, 2);
    w.config.replicated = 1;
    w.config.replica_period = 1;
    w.config.scaler.enabled = 1;
    world_open(&w);
    flip(&w, 1, 4);
    assert_int_equal(fb_run_scaler_set(w.rank[1].run, &scaler, &err), FB_OK);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_HALT);
    assert_int_equal(last_verdict(&w, 0).reason, FB_REASON_DISAGREE);
    world_close(&w);
}

/* Two-byte formats, and tensors of odd lengths: bytes are compared, whatever they mean. */
static void test_guard_replicas__half_precision_parameters_are_compared_bit_by_bit(void **state)
{
    static const int32_t formats[] = {FB_F16, FB_BF16};
    (void)state;
    for (int f = 0; f < 2; f++) {
        for (int bit = 0; bit < 16; bit += 5) {
            world w;
            uint16_t half[2][3] = {{0x3c00, 0x3c01, 0x0001}, {0x3c00, 0x3c01, 0x0001}};
            open_replicated(&w, 2, 2);
            for (int i = 0; i < 2; i++) {
                fb_view view = FB_VIEW_INIT(half[i], 3, formats[f], w.rank[i].param_site[0]);
                assert_int_equal(fb_run_own(w.rank[i].run, &view, 1, &err), FB_OK);
            }
            assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
            half[1][2] = (uint16_t)(half[1][2] ^ 1u << bit);
            assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
            assert_int_equal(world_step(&w, 2, NULL, NULL), FB_HALT);
            assert_int_equal(last_verdict(&w, 0).reason, FB_REASON_REPLICAS);
            world_close(&w);
        }
    }
}

/* Moments may be sharded over ranks where parameters are not, and counters are a rank's own. */
static void test_guard_replicas__other_owned_state_may_differ(void **state)
{
    world w;
    (void)state;
    open_replicated(&w, 2, 1);
    w.rank[1].moment[0][0] = 3.0f;
    assert_int_equal(world_step(&w, 0, spoil_one, NULL), FB_SKIP); /* no update carries the moment into a parameter */
    assert_int_equal(last_verdict(&w, 0).unanimous, 1);
    world_close(&w);
}

static void test_guard_replicas__observe_records_the_drift_and_lets_the_update_pass(void **state)
{
    world w;
    fb_rec_proof proof[4];
    (void)state;
    world_init(&w, 2);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    w.config.replicated = 1;
    w.config.replica_period = 2;
    world_open(&w);
    flip(&w, 1, 1);
    assert_int_equal(world_step(&w, 2, NULL, NULL), FB_PROCEED);
    assert_int_equal(last_verdict(&w, 0).reason, FB_REASON_REPLICAS);
    assert_int_equal(proofs(&w, 1, FB_PROOF_REPLICAS, proof, 4), 1);
    assert_int_equal(proof[0].equal, 0);
    assert_int_equal(w.rank[0].run->step.rec.flags & FB_STEP_GATED, 0);
    world_close(&w);
}

/* Which of the ranks is right nobody knows, so what was saved since they were last seen equal is nobody's to resume from. */
static void test_guard_replicas__what_was_saved_since_they_were_equal_is_suspect(void **state)
{
    world w;
    int32_t before = 0, after = 0;
    char path[2][160];
    (void)state;
    open_replicated(&w, 2, 4);
    for (int64_t step = 0; step <= 7; step++) {
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        if (step == 3 || step == 6) {
            const fb_st_tensor tensor = {"w", FB_F32, 1, {WORLD_ELEMENTS}, w.rank[0].param[0], sizeof w.rank[0].param[0]};
            char name[32];
            int32_t told = 0;
            (void)snprintf(name, sizeof name, "step-%d.safetensors", (int)step);
            (void)snprintf(path[step == 6], sizeof path[0], "%s/%s", w.dir, name);
            assert_int_equal(fb_safetensors_write(fb_os_posix(), w.dir, name, &tensor, 1, NULL, 0, NULL, &err), FB_OK);
            assert_int_equal(fb_run_checkpoint(w.rank[0].run, path[step == 6], step, &told, &err), FB_OK);
            assert_int_equal(told, FB_CKPT_COMMITTED);
        }
        if (step == 4) flip(&w, 1, 2);
    }
    assert_int_equal(world_step(&w, 8, NULL, NULL), FB_HALT);
    (void)fb_ckpt_may_load(path[0], w.dir, FB_CKPT_CHECK_SIZE, &before, &err);
    (void)fb_ckpt_may_load(path[1], w.dir, FB_CKPT_CHECK_SIZE, &after, &err);
    assert_int_equal(before, FB_CKPT_COMMITTED);
    assert_int_equal(after, FB_CKPT_SUSPECT);
    world_close(&w);
}

static void test_guard_replicas__a_configuration_that_says_nonsense_is_refused(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        world w;
        fb_run *run = NULL;
        world_init(&w, 2);
        if (which == 0) w.config.replicated = 2;
        else w.config.replica_period = -1;
        assert_int_equal(fb_run_open(&run, &w.config, &err), FB_E_USAGE);
        assert_null(run);
        w.ranks = 0;
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_replicas__one_bit_on_one_rank_is_found_at_the_next_comparison),
        cmocka_unit_test(test_guard_replicas__equal_ranks_never_fire_through_skips_and_scales),
        cmocka_unit_test(test_guard_replicas__the_step_after_a_skip_compares_whatever_its_number),
        cmocka_unit_test(test_guard_replicas__ranks_that_begin_apart_halt_at_the_first_step_whatever_its_number),
        cmocka_unit_test(test_guard_replicas__steps_that_compared_say_so),
        cmocka_unit_test(test_guard_replicas__nothing_is_compared_unless_it_was_asked_for),
        cmocka_unit_test(test_guard_replicas__ranks_that_compare_at_other_times_disagree_and_do_not_drift),
        cmocka_unit_test(test_guard_replicas__another_scale_is_no_drift_even_where_parameters_differ),
        cmocka_unit_test(test_guard_replicas__half_precision_parameters_are_compared_bit_by_bit),
        cmocka_unit_test(test_guard_replicas__other_owned_state_may_differ),
        cmocka_unit_test(test_guard_replicas__observe_records_the_drift_and_lets_the_update_pass),
        cmocka_unit_test(test_guard_replicas__what_was_saved_since_they_were_equal_is_suspect),
        cmocka_unit_test(test_guard_replicas__a_configuration_that_says_nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
