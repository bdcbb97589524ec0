/* The guard over several ranks in one process: what passes, what is withheld, what is kept, and what is said about it. */
#include "support/world.h"

#include "evidence/records.h"
#include "log/log.h"

#define NAN_BITS 0x7fc00001u
#define INF_BITS 0x7f800000u

struct spot {
    int rank, micro, tensor, element;
    uint32_t bits;
    int64_t only_step;
};

static void spoil_grad(world *w, int rank, int micro, void *ctx)
{
    const struct spot *spot = ctx;
    if (rank == spot->rank && micro == spot->micro) w->rank[rank].grad[spot->tensor][spot->element] = world_bits(spot->bits);
}

static void read_frozen(world *w, int rank, fb_rec_finding *finding, uint8_t *payload, int *count)
{
    char path[256];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    fb_error err;
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    *count = 0;
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        if (fb_log_reader_frozen(reader, i, &record, &err) != FB_OK || record.type != FB_REC_FIRST_BAD) continue;
        if ((*count)++) continue;
        memcpy(payload, record.payload, record.bytes);
        assert_int_equal(fb_rec_finding_decode(payload, record.bytes, finding, &err), FB_OK);
    }
    fb_log_reader_close(reader);
}

/* Newest record of a type for a step, by decoding them all. */
static int read_steps(world *w, int rank, fb_rec_step *out, int room)
{
    char path[256];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    fb_error err;
    int n = 0;
    memset(out, 0, (size_t)room * sizeof *out);
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", w->dir, rank);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        if (record.type != FB_REC_STEP || n == room) continue;
        assert_int_equal(fb_rec_step_decode(record.payload, record.bytes, &out[n++], &err), FB_OK);
    }
    fb_log_reader_close(reader);
    return n;
}

static void test_guard__healthy_steps_proceed_gated_and_leave_no_case(void **state)
{
    world w;
    fb_rec_step steps[8];
    (void)state;
    world_init(&w, 4);
    world_open(&w);
    for (int64_t step = 0; step < 5; step++) {
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        assert_int_equal(w.rank[3].verdict.clean, 1);
        assert_int_equal(w.rank[3].verdict.unanimous, 1);
        assert_string_equal(w.rank[3].verdict.case_id, "");
    }
    assert_int_equal(read_steps(&w, 2, steps, 8), 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(steps[i].step, i);
        assert_int_equal(steps[i].flags & (FB_STEP_APPLIED | FB_STEP_GATED | FB_STEP_SKIPPED), FB_STEP_APPLIED | FB_STEP_GATED);
        assert_int_equal(steps[i].cover.level[FB_LOCAL_GRAD], FB_COVER_FULL);
        assert_int_equal(steps[i].cover.level[FB_REDUCED_GRAD], FB_COVER_FULL);
        assert_int_equal(steps[i].cover.level[FB_FORWARD], FB_COVER_NONE);
        assert_int_equal(steps[i].votes, 2);
    }
    assert_int_equal(fb_run_evidence_lost(w.rank[0].run, NULL), 0);
    world_close(&w);
}

/* P1, for every rank, tensor and element, and every kind of bad. */
static void test_guard__one_bad_element_anywhere_withholds_the_update_everywhere(void **state)
{
    static const uint32_t kinds[] = {NAN_BITS, 0xffc00000u, 0x7f800001u, INF_BITS, 0xff800000u};
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        for (int place = 0; place < WORLD_TENSORS * WORLD_ELEMENTS; place++) {
            world w;
            struct spot spot = {rank, 0, place / WORLD_ELEMENTS, place % WORLD_ELEMENTS, kinds[(rank + place) % 5], 1};
            float before[WORLD_MAX_RANKS][2][WORLD_TENSORS][WORLD_ELEMENTS];
            world_init(&w, 4);
            world_open(&w);
            assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
            for (int i = 0; i < 4; i++) {
                memcpy(before[i][0], w.rank[i].param, sizeof before[i][0]);
                memcpy(before[i][1], w.rank[i].moment, sizeof before[i][1]);
            }
            assert_int_equal(world_step(&w, 1, spoil_grad, &spot), FB_SKIP);
            for (int i = 0; i < 4; i++) {
                assert_int_equal(w.rank[i].applied, FB_E_WITHHELD);
                assert_memory_equal(before[i][0], w.rank[i].param, sizeof before[i][0]);
                assert_memory_equal(before[i][1], w.rank[i].moment, sizeof before[i][1]);
                assert_int_equal(w.rank[i].verdict.first_rank, rank);
                assert_int_equal(w.rank[i].verdict.first_boundary, FB_LOCAL_GRAD);
                assert_int_equal(w.rank[i].verdict.first_position, 10 * (spot.tensor + 1));
                assert_string_equal(w.rank[i].verdict.case_id, "a1-000001");
            }
            world_close(&w);
        }
    }
}

static void test_guard__first_bad_record_equals_the_injected_truth(void **state)
{
    world w;
    fb_rec_finding finding;
    uint8_t payload[FB_REC_BYTES_MAX];
    int count;
    (void)state;
    world_init(&w, 4);
    w.config.inject = "grad-inf@step=3,rank=2,site=h.0.mlp,index=2";
    world_open(&w);
    for (int64_t step = 0; step < 3; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 3, NULL, NULL), FB_SKIP);
    read_frozen(&w, 2, &finding, payload, &count);
    assert_int_equal(count, 1);
    assert_int_equal(finding.step, 3);
    assert_int_equal(finding.rank, 2);
    assert_int_equal(finding.boundary, FB_LOCAL_GRAD);
    assert_int_equal(finding.kind, FB_KIND_POS_INF);
    assert_int_equal(finding.count, 1);
    assert_int_equal(finding.first_index, 2);
    assert_int_equal(finding.first_bits, INF_BITS);
    assert_int_equal(finding.injected, 1);
    assert_int_equal(finding.module.bytes, 7);
    assert_memory_equal(finding.module.data, "h.0.mlp", 7);
    /* The witness: batch, loss and the gradient nearer to the loss were looked at and good. */
    assert_true(finding.clean_before & (1u << FB_INPUT));
    assert_true(finding.clean_before & (1u << FB_LOSS));
    assert_false(finding.clean_before & (1u << FB_FORWARD)); /* P5: nobody looked at the forward pass */
    assert_false(finding.sampled_before & (1u << FB_FORWARD));
    assert_true(finding.tensors_before >= 3);
    read_frozen(&w, 1, &finding, payload, &count);
    assert_int_equal(count, 0);
    world_close(&w);
}

/* P3 across steps: what came first stays, also when a second fault follows at once. */
static void test_guard__second_fault_of_a_case_does_not_replace_the_first(void **state)
{
    world w;
    fb_rec_finding finding;
    uint8_t payload[FB_REC_BYTES_MAX];
    struct spot first = {1, 0, 0, 1, NAN_BITS, 0}, second = {1, 0, 1, 3, INF_BITS, 0};
    int count;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 7, spoil_grad, &first), FB_SKIP);
    assert_int_equal(world_step(&w, 8, spoil_grad, &second), FB_SKIP);
    assert_string_equal(w.rank[0].verdict.case_id, "a1-000007");
    read_frozen(&w, 1, &finding, payload, &count);
    assert_int_equal(count, 1);
    assert_int_equal(finding.step, 7);
    assert_int_equal(finding.first_index, 1);
    world_close(&w);
}

static void test_guard__three_skips_in_a_row_then_halt_and_the_gate_stays_shut(void **state)
{
    world w;
    struct spot spot = {0, 0, 0, 0, NAN_BITS, 0};
    fb_step begin = FB_STEP_INIT;
    fb_error err;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int64_t step = 0; step < 3; step++) assert_int_equal(world_step(&w, step, spoil_grad, &spot), FB_SKIP);
    assert_int_equal(world_step(&w, 3, spoil_grad, &spot), FB_HALT);
    for (int i = 0; i < 2; i++) {
        begin.step = 4;
        assert_int_equal(fb_step_begin(w.rank[i].run, &begin, &err), FB_E_HALTED);
        assert_non_null(strstr(err.message, "halted at step 3"));
    }
    world_close(&w);
}

static void test_guard__finite_parts_with_an_infinite_sum_are_the_collectives_fault(void **state)
{
    world w;
    (void)state;
    world_init(&w, 4);
    w.config.inject = "grad-huge@step=1,rank=all,site=h.1.mlp,index=0";
    world_open(&w);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_SKIP);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(w.rank[i].verdict.first_boundary, FB_REDUCED_GRAD);
        assert_int_equal(w.rank[i].verdict.first_rank, 0);
        assert_int_equal(w.rank[i].applied, FB_E_WITHHELD);
    }
    world_close(&w);
}

/* P4: what is bad stays bad in memory, on the way to the verdict and after it. */
static void test_guard__bad_elements_are_never_repaired(void **state)
{
    world w;
    struct spot spot = {0, 0, 1, 2, NAN_BITS, 0};
    uint32_t bits;
    (void)state;
    world_init(&w, 2);
    w.config.inject = "reduced-nan@step=1,rank=1,site=h.0.mlp,index=1";
    world_open(&w);
    assert_int_equal(world_step(&w, 0, spoil_grad, &spot), FB_SKIP);
    memcpy(&bits, &w.rank[0].grad[1][2], 4);
    assert_int_equal(bits, NAN_BITS);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_SKIP);
    memcpy(&bits, &w.rank[1].grad[0][1], 4);
    assert_true((bits & 0x7fffffffu) > 0x7f800000u);
    assert_int_equal(w.rank[0].verdict.first_boundary, FB_REDUCED_GRAD);
    assert_int_equal(w.rank[0].verdict.first_rank, 1);
    world_close(&w);
}

static void test_guard__state_that_was_bad_before_the_step_is_named_and_no_layer_is_blamed(void **state)
{
    world w;
    struct spot spot = {1, 0, 0, 0, NAN_BITS, 0};
    (void)state;
    world_init(&w, 2);
    w.config.inject = "moment-nan@step=2,rank=1,site=h.0.mlp,index=3";
    world_open(&w);
    for (int64_t step = 0; step < 2; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    /* The gradient is bad as well: the search of the state finds what was there before it. */
    assert_true(world_step(&w, 2, spoil_grad, &spot) != FB_PROCEED);
    assert_int_equal(w.rank[0].verdict.first_boundary, FB_ENTRY);
    assert_int_equal(w.rank[0].verdict.first_rank, 1);
    world_close(&w);
}

static void test_guard__fault_in_the_second_micro_step_is_told_by_its_number(void **state)
{
    world w;
    fb_rec_finding finding;
    uint8_t payload[FB_REC_BYTES_MAX];
    struct spot spot = {1, 1, 0, 2, INF_BITS, 0};
    int count;
    (void)state;
    world_init(&w, 2);
    w.micro_steps = 3;
    world_open(&w);
    assert_int_equal(world_step(&w, 0, spoil_grad, &spot), FB_SKIP);
    assert_int_equal(w.rank[0].verdict.first_micro_step, 1);
    read_frozen(&w, 1, &finding, payload, &count);
    assert_int_equal(finding.micro_step, 1);
    assert_int_equal(finding.first_index, 2);
    world_close(&w);
}

static void spoil_tokens(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == 1) w->rank[rank].tokens[5] = 256;
}

static void spoil_labels(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    for (int i = 0; rank == 0 && i < WORLD_ROWS * WORLD_COLS; i++) w->rank[rank].labels[i] = -100;
}

static void test_guard__token_out_of_range_and_all_labels_ignored_are_input_faults(void **state)
{
    world w;
    fb_rec_finding finding;
    uint8_t payload[FB_REC_BYTES_MAX];
    int count;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_true(world_step(&w, 0, spoil_tokens, NULL) != FB_PROCEED);
    assert_int_equal(w.rank[0].verdict.first_boundary, FB_INPUT);
    assert_int_equal(w.rank[0].verdict.first_rank, 1);
    read_frozen(&w, 1, &finding, payload, &count);
    assert_int_equal(finding.kind, FB_KIND_OUT_OF_RANGE);
    assert_int_equal(finding.field, FB_FIELD_TOKENS);
    assert_int_equal(finding.first_index, 5);
    assert_int_equal(finding.value, 256);
    assert_int_equal(finding.high, 255);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_true(world_step(&w, 2, spoil_labels, NULL) != FB_PROCEED);
    assert_int_equal(w.rank[1].verdict.first_rank, 0);
    read_frozen(&w, 0, &finding, payload, &count);
    assert_int_equal(finding.kind, FB_KIND_ALL_IGNORED);
    assert_int_equal(finding.count, 8);
    world_close(&w);
}

/* P6: a gradient that nobody handed over is not called checked. */
static void test_guard__gradients_not_handed_over_leave_the_update_uncovered(void **state)
{
    world w;
    fb_rec_step steps[2];
    (void)state;
    world_init(&w, 2);
    w.skip_reduced = 1;
    world_open(&w);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
    assert_int_equal(read_steps(&w, 0, steps, 2), 1);
    assert_int_equal(steps[0].cover.level[FB_REDUCED_GRAD], FB_COVER_NONE);
    assert_int_equal(steps[0].flags & FB_STEP_GATED, 0);
    assert_int_equal(steps[0].flags & FB_STEP_APPLIED, FB_STEP_APPLIED);
    assert_int_equal(w.rank[0].run->ungated, 1);
    world_close(&w);
}

static void test_guard__observe_records_and_changes_nothing(void **state)
{
    world w;
    fb_rec_finding finding;
    uint8_t payload[FB_REC_BYTES_MAX];
    struct spot spot = {0, 0, 0, 0, NAN_BITS, 0};
    int count;
    (void)state;
    world_init(&w, 2);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    assert_int_equal(world_step(&w, 0, spoil_grad, &spot), FB_PROCEED);
    assert_int_equal(w.rank[1].applied, FB_OK);
    assert_int_equal(w.rank[1].run->ungated, 1);
    read_frozen(&w, 0, &finding, payload, &count);
    assert_int_equal(count, 1);
    world_close(&w);
}

static void test_guard__second_writer_is_refused_and_the_first_goes_on(void **state)
{
    world w;
    fb_run *second = NULL;
    fb_error err;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(fb_run_open_with(&second, &w.config, w.os, &err), FB_E_EXISTS);
    assert_null(second);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
    world_close(&w);
}

/* P10: a folder that cannot be written leaves the gate working and the loss told. */
static void test_guard__without_a_folder_the_gate_works_and_the_loss_is_told(void **state)
{
    world w;
    fb_error why;
    struct spot spot = {1, 0, 0, 0, NAN_BITS, 0};
    (void)state;
    world_init(&w, 2);
    w.config.dir = "/proc/firstbad-cannot-be-here";
    world_open(&w);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 1, spoil_grad, &spot), FB_SKIP);
    assert_true(fb_run_evidence_lost(w.rank[0].run, &why) > 0);
    assert_true(strlen(why.message) > 20);
    world_close(&w);
}

static void test_guard__ranks_at_different_steps_are_exposed_and_nobody_updates(void **state)
{
    world w;
    fb_step begin = FB_STEP_INIT;
    int64_t words[2][4];
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_error err;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int i = 0; i < 2; i++) {
        begin.step = 5 + i;
        assert_int_equal(fb_step_begin(w.rank[i].run, &begin, &err), FB_OK);
        assert_int_equal(fb_step_ballot(w.rank[i].run, words[i], &err), FB_OK);
    }
    fb_vote_fold(words[0], words[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_step_settle(w.rank[i].run, words[0], &verdict, &err), FB_OK);
        assert_int_equal(verdict.action, FB_HALT);
        assert_int_equal(verdict.unanimous, 0);
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_E_WITHHELD);
    }
    world_close(&w);
}

static void test_guard__failed_vote_is_no_quorum_and_never_an_update(void **state)
{
    world w;
    fb_step begin = FB_STEP_INIT;
    int64_t words[4];
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_error err;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(w.rank[0].run, NULL, &verdict, &err), FB_OK);
    assert_int_equal(verdict.unanimous, -1);
    assert_int_equal(verdict.action, FB_HALT);
    assert_int_equal(fb_step_apply(w.rank[0].run, &err), FB_E_WITHHELD);
    world_close(&w);
}

static void test_guard__skip_is_proven_by_equal_digests_and_a_cheat_is_found(void **state)
{
    world w;
    struct spot spot = {0, 0, 0, 0, NAN_BITS, 0};
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 0, spoil_grad, &spot), FB_SKIP);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_int_equal(w.rank[0].run->ungated, 0);
    assert_int_equal(world_step(&w, 2, spoil_grad, &spot), FB_SKIP);
    w.rank[1].param[0][0] += 1.0f; /* the trainer of one rank stepped all the same: its replicas differ now */
    assert_int_equal(world_step(&w, 3, NULL, NULL), FB_HALT);
    assert_int_equal(w.rank[0].verdict.fault, 1);
    assert_int_equal(w.rank[0].run->ungated, 0);
    assert_int_equal(w.rank[1].run->ungated, 1);
    world_close(&w);
}

static int64_t time_runs_back(void *ctx)
{
    static int64_t now = INT64_C(1900000000000000000);
    (void)ctx;
    return now -= 1000000000;
}

/* P3: a restart counts the same steps again, under a clock that went back; both first-bad records stay, each in its attempt. */
static void test_guard__restart_with_the_same_steps_keeps_both_first_bad_records(void **state)
{
    world w;
    struct spot first = {0, 0, 0, 1, NAN_BITS, 0}, second = {1, 0, 1, 3, INF_BITS, 0};
    fb_os os = *fb_os_posix();
    fb_rec_finding finding;
    uint8_t payload[FB_REC_BYTES_MAX];
    char path[160];
    int count;
    (void)state;
    os.realtime_ns = time_runs_back;
    world_init(&w, 2);
    w.os = &os;
    world_open(&w);
    assert_int_equal(world_step(&w, 4, spoil_grad, &first), FB_SKIP);
    for (int i = 0; i < 2; i++) fb_run_close(w.rank[i].run);
    w.config.attempt = 2;
    world_open(&w);
    assert_int_equal(world_step(&w, 4, spoil_grad, &second), FB_SKIP);
    assert_string_equal(w.rank[0].verdict.case_id, "a2-000004");
    read_frozen(&w, 0, &finding, payload, &count);
    assert_int_equal(count, 1);
    assert_int_equal(finding.attempt, 1);
    assert_int_equal(finding.first_index, 1);
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000004/first_bad.json", w.dir);
    assert_int_equal(access(path, R_OK), 0);
    (void)snprintf(path, sizeof path, "%s/test/cases/a2-000004/first_bad.json", w.dir);
    assert_int_equal(access(path, R_OK), 0);
    world_close(&w);
}

/* P2: what ranks must have in common is in the vote: here one was started with another policy, or
 * resumed with another loss scale. */
static void test_guard__ranks_with_another_policy_or_scale_are_exposed(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        world w;
        fb_scaler_state scaler = {1024.0, 0, 1};
        fb_error err;
        world_init(&w, 3);
        w.config.scaler.enabled = which;
        world_open(&w);
        if (which == 0) {
            fb_run_close(w.rank[2].run);
            w.config.rank = 2;
            w.config.attempt = 1;
            w.config.max_skips = 5;
            w.config.run_id = "other-folder"; /* a file of its own; the vote compares what it hashes of the run as well */
            assert_int_equal(fb_run_open(&w.rank[2].run, &w.config, &err), FB_OK);
            w.rank[2].run->run_hash = w.rank[0].run->run_hash;
            world_sites(&w.rank[2]);
        } else {
            assert_int_equal(fb_run_scaler_set(w.rank[1].run, &scaler, &err), FB_OK);
        }
        assert_int_equal(world_step(&w, 0, NULL, NULL), FB_HALT);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(w.rank[i].verdict.unanimous, 0);
            assert_int_equal(w.rank[i].applied, FB_E_WITHHELD);
        }
        world_close(&w);
    }
}

/* A dynamic loss scale: the first overflows are probing, no case, and the scale comes down as torch's does. */
static void test_guard__overflow_under_a_dynamic_scale_is_probing_until_it_is_not(void **state)
{
    world w;
    struct spot spot = {0, 0, 0, 0, INF_BITS, 0};
    int64_t step = 0;
    (void)state;
    world_init(&w, 2);
    w.config.scaler.enabled = 1;
    world_open(&w);
    assert_true(fb_run_loss_scale(w.rank[0].run) == 65536.0);
    for (; step < 3; step++) {
        assert_int_equal(world_step(&w, step, spoil_grad, &spot), FB_SKIP);
        assert_int_equal(w.rank[1].verdict.fault, 0);
        assert_string_equal(w.rank[1].verdict.case_id, "");
    }
    assert_true(fb_run_loss_scale(w.rank[0].run) == 8192.0);
    assert_int_equal(world_step(&w, step++, NULL, NULL), FB_PROCEED);
    assert_true(fb_run_loss_scale(w.rank[1].run) == 8192.0);
    while (!w.rank[0].run->gate.halted && step < 100) (void)world_step(&w, step++, spoil_grad, &spot);
    assert_true(step < 40);
    assert_true(strlen(w.rank[0].verdict.case_id) > 0);
    world_close(&w);
}

/* A state that is bad stays bad when updates are left out: it is found again at each begin, in one case, until the run halts. The
   gradients are finite all the while, as those of a tensor that the batch does not touch are. */
static void test_guard__bad_state_is_withheld_as_one_case_until_the_run_halts(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    w.overflow_at = 5;
    world_open(&w);
    for (int64_t step = 3; step <= 5; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    for (int64_t step = 6; step < 9; step++) {
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_SKIP);
        assert_int_equal(w.rank[0].verdict.first_boundary, FB_ENTRY);
        assert_int_equal(w.rank[0].verdict.first_rank, 1);
        assert_int_equal(w.rank[0].verdict.consecutive_skips, step - 5);
        assert_string_equal(w.rank[0].verdict.case_id, "a1-000006");
    }
    assert_int_equal(world_step(&w, 9, NULL, NULL), FB_HALT);
    world_close(&w);
}

static void test_guard__state_that_the_trainer_put_right_lets_updates_through_again(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    w.overflow_at = 5;
    world_open(&w);
    assert_int_equal(world_step(&w, 5, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 6, NULL, NULL), FB_SKIP);
    w.rank[1].run->proof_pending = 0; /* as fb_run_own does when a trainer loads a checkpoint into its state */
    w.rank[1].param[0][1] = 1.0f;
    assert_int_equal(world_step(&w, 7, NULL, NULL), FB_PROCEED);
    assert_int_equal(w.rank[1].run->state_bad, 0);
    world_close(&w);
}

/* An update by 1 has nothing to multiply, and then not a bit of the gradients is written: a signalling NaN keeps its payload. */
static void test_guard__unscale_by_one_writes_nothing(void **state)
{
    world w;
    uint32_t bits = 0x7f800001u, after = 0;
    fb_step begin = FB_STEP_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    int64_t words[4];
    double sum_sq = 0.0;
    fb_view view;
    fb_error err;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    world_backward(&w.rank[0]);
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(w.rank[0].run, words, &verdict, &err), FB_OK);
    memcpy(&w.rank[0].grad[0][2], &bits, sizeof bits);
    view = world_view(w.rank[0].grad[0], w.rank[0].grad_site[0]);
    assert_int_equal(fb_step_unscale(w.rank[0].run, &view, 1, 1.0, &sum_sq, &err), FB_OK);
    memcpy(&after, &w.rank[0].grad[0][2], sizeof after);
    assert_int_equal(after, bits);
    assert_true(sum_sq == 0.0625 + 0.25 + 1.0);
    assert_int_equal(w.rank[0].run->findings_count, 1);
    world_close(&w);
}

/* A trainer may give up a step of its own accord, at each point before the last gate, and go on with the next. */
static void test_guard__a_step_given_up_changes_nothing_and_the_next_one_runs(void **state)
{
    world w;
    fb_rec_step steps[8];
    fb_step begin = FB_STEP_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    int64_t words[4];
    fb_error err;
    (void)state;
    world_init(&w, 1);
    w.config.scaler.enabled = 1;
    world_open(&w);
    for (int point = 0; point < 3; point++) {
        begin.step = point;
        assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
        if (point >= 1) assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_OK);
        if (point >= 2) assert_int_equal(fb_step_settle(w.rank[0].run, words, &verdict, &err), FB_OK);
        assert_int_equal(fb_step_abandon(w.rank[0].run, &err), FB_OK);
    }
    assert_true(fb_run_loss_scale(w.rank[0].run) == 65536.0);
    assert_int_equal(world_step(&w, 3, NULL, NULL), FB_PROCEED);
    assert_int_equal(read_steps(&w, 0, steps, 8), 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(steps[i].flags & (FB_STEP_ABANDONED | FB_STEP_SKIPPED | FB_STEP_APPLIED | FB_STEP_GATED),
                         FB_STEP_ABANDONED | FB_STEP_SKIPPED);
    }
    assert_int_equal(w.rank[0].run->ungated, 0);
    /* What it had found is kept, and a change to the state all the same is exposed. */
    begin.step = 4;
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_abandon(w.rank[0].run, &err), FB_OK);
    w.rank[0].param[0][0] += 1.0f;
    assert_int_equal(world_step(&w, 5, NULL, NULL), FB_HALT);
    world_close(&w);
}

/* A rank may begin a step that comes to nothing, alone, with something bad in it: the next vote is as if it had not. */
static void test_guard__a_step_forgotten_by_one_rank_alone_is_heard_of_by_nobody(void **state)
{
    world w;
    fb_rec_step steps[8];
    fb_step begin = FB_STEP_INIT;
    fb_finding finding;
    int64_t words[4];
    fb_error err;
    (void)state;
    memset(&finding, 0, sizeof finding);
    finding.size = sizeof finding;
    finding.stats.size = sizeof finding.stats;
    world_init(&w, 2);
    w.config.replicated = 1;
    world_open(&w);
    for (int step = 0; step < 3; step++) {
        begin.step = step;
        assert_int_equal(fb_step_begin(w.rank[1].run, &begin, &err), FB_OK);
        finding.site = w.rank[1].loss_site;
        finding.boundary = FB_LOSS;
        finding.kind = FB_KIND_NAN;
        finding.count = 1;
        assert_int_equal(fb_step_report(w.rank[1].run, &finding, 1, &err), FB_OK);
        assert_int_equal(fb_step_forget(w.rank[1].run, &err), FB_OK);
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    }
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(read_steps(&w, rank, steps, 8), 3);
        for (int i = 0; i < 3; i++) assert_int_equal(steps[i].flags & (FB_STEP_APPLIED | FB_STEP_ABANDONED), FB_STEP_APPLIED);
        /* The replicas were compared in the first step, by both. */
        assert_int_equal(steps[0].flags & FB_STEP_REPLICAS, FB_STEP_REPLICAS);
    }
    assert_int_equal(fb_step_forget(w.rank[0].run, &err), FB_E_ORDER);
    begin.step = 3;
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_OK);
    assert_int_equal(fb_step_forget(w.rank[0].run, &err), FB_E_ORDER);
    world_close(&w);
}

static void test_guard__a_learning_rate_that_is_not_finite_halts_before_the_update(void **state)
{
    world w;
    fb_step begin = FB_STEP_INIT;
    fb_error err;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int i = 0; i < 2; i++) {
        begin.step = 3;
        begin.known = FB_KNOWN_LEARNING_RATE;
        begin.learning_rate = i == 1 ? (double)world_bits(NAN_BITS) : 0.1; /* one rank's schedule divided 0 by 0 */
        assert_int_equal(fb_step_begin(w.rank[i].run, &begin, &err), FB_OK);
    }
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.rank[i].verdict.action, FB_HALT);
        assert_int_equal(w.rank[i].verdict.fault, 1);
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_E_WITHHELD);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard__healthy_steps_proceed_gated_and_leave_no_case),
        cmocka_unit_test(test_guard__one_bad_element_anywhere_withholds_the_update_everywhere),
        cmocka_unit_test(test_guard__first_bad_record_equals_the_injected_truth),
        cmocka_unit_test(test_guard__second_fault_of_a_case_does_not_replace_the_first),
        cmocka_unit_test(test_guard__three_skips_in_a_row_then_halt_and_the_gate_stays_shut),
        cmocka_unit_test(test_guard__finite_parts_with_an_infinite_sum_are_the_collectives_fault),
        cmocka_unit_test(test_guard__bad_elements_are_never_repaired),
        cmocka_unit_test(test_guard__state_that_was_bad_before_the_step_is_named_and_no_layer_is_blamed),
        cmocka_unit_test(test_guard__fault_in_the_second_micro_step_is_told_by_its_number),
        cmocka_unit_test(test_guard__token_out_of_range_and_all_labels_ignored_are_input_faults),
        cmocka_unit_test(test_guard__gradients_not_handed_over_leave_the_update_uncovered),
        cmocka_unit_test(test_guard__observe_records_and_changes_nothing),
        cmocka_unit_test(test_guard__second_writer_is_refused_and_the_first_goes_on),
        cmocka_unit_test(test_guard__without_a_folder_the_gate_works_and_the_loss_is_told),
        cmocka_unit_test(test_guard__ranks_at_different_steps_are_exposed_and_nobody_updates),
        cmocka_unit_test(test_guard__failed_vote_is_no_quorum_and_never_an_update),
        cmocka_unit_test(test_guard__skip_is_proven_by_equal_digests_and_a_cheat_is_found),
        cmocka_unit_test(test_guard__restart_with_the_same_steps_keeps_both_first_bad_records),
        cmocka_unit_test(test_guard__ranks_with_another_policy_or_scale_are_exposed),
        cmocka_unit_test(test_guard__overflow_under_a_dynamic_scale_is_probing_until_it_is_not),
        cmocka_unit_test(test_guard__bad_state_is_withheld_as_one_case_until_the_run_halts),
        cmocka_unit_test(test_guard__state_that_the_trainer_put_right_lets_updates_through_again),
        cmocka_unit_test(test_guard__unscale_by_one_writes_nothing),
        cmocka_unit_test(test_guard__a_learning_rate_that_is_not_finite_halts_before_the_update),
        cmocka_unit_test(test_guard__a_step_given_up_changes_nothing_and_the_next_one_runs),
        cmocka_unit_test(test_guard__a_step_forgotten_by_one_rank_alone_is_heard_of_by_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
