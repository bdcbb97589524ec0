/*
 * What may not be said: that a device is broken where the ranks' state differs, and that a NaN came again where only the mask of
 * its tensor did. One operator, y = log(1 + exp(w x)) as a kernel writes it that knows no better, then masked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "property/locate_world.h"

static world w; /* for its ranks' meeting; weight and batch of each rank are start[rank][0] and [1] */
static rank_of ranks[2];
static int device_broken, masked;

static fb_status told(fb_tape *tape, const char *name, uint32_t flags, const float *data, uint32_t *id, fb_error *err)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    value.name = name;
    value.flags = flags;
    value.data = data;
    value.count = 2;
    value.dtype = value.format = FB_F32;
    return fb_tape_entry(tape, &value, id, err);
}

static fb_status softplus(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    const rank_of *me = ctx;
    const float *weight = w.start[me->rank][0], *x = w.start[request->as_rank >= 0 ? request->as_rank : me->rank][1];
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    fb_tape_op op = FB_TAPE_OP_INIT;
    uint32_t in[2] = {0, 0};
    float y[2];
    fb_status status;
    if (request->purpose == FB_REPLAY_SMALLER) return FB_E_UNSUPPORTED;
    for (int i = 0; i < 2; i++) y[i] = logf(1.0f + expf(weight[i] * x[i]));
    if (device_broken && me->rank == 1) y[1] = INFINITY;
    if (masked) y[0] = -INFINITY;
    status = told(tape, "weight", FB_TAPE_STATE, weight, &in[0], err);
    if (status == FB_OK) status = told(tape, "x", FB_TAPE_BATCH, x, &in[1], err);
    value.name = "y";
    value.flags = masked ? FB_TAPE_MASK : 0;
    value.data = y;
    value.count = 2;
    value.dtype = value.format = FB_F32;
    op.op = "softplus";
    op.module = "gate";
    op.inputs = in;
    op.input_count = 2;
    op.outputs = &value;
    op.output_count = 1;
    return status == FB_OK ? fb_tape_op_ran(tape, &op, err) : status;
}

static fb_status exact_softplus(void *ctx, fb_rerun *rerun, fb_error *err)
{
    (void)ctx;
    (void)err;
    for (int i = 0; i < 2; i++) rerun->outputs[0][i] = log1p(exp(rerun->inputs[0][i] * rerun->inputs[1][i]));
    if (masked) rerun->outputs[0][0] = -INFINITY;
    return FB_OK;
}

static int set_up(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.met, NULL);
    w.ranks = 2;
    device_broken = masked = 0;
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 2; i++) w.start[r][0][i] = w.start[r][1][i] = 1.0f;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_world(&w);
    return 0;
}

static const fb_locate_result *run(int count, int32_t found_kind)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    pthread_t threads[2];
    w.ranks = count;
    for (int r = 0; r < count; r++) {
        fb_locate_config config = FB_LOCATE_CONFIG_INIT;
        ranks[r] = (rank_of){.w = &w, .rank = r, .config = config, .result = empty};
        ranks[r].config.rank = r;
        ranks[r].config.world = count;
        ranks[r].config.finding_rank = count - 1;
        ranks[r].config.finding_boundary = FB_FORWARD;
        ranks[r].config.finding_kind = found_kind;
        ranks[r].config.finding_module = "gate";
        ranks[r].config.finding_tensor = "y";
        ranks[r].config.precision = "bf16";
        ranks[r].config.ctx = &ranks[r];
        ranks[r].config.replay = softplus;
        ranks[r].config.rerun = exact_softplus;
        ranks[r].config.max = count > 1 ? largest : NULL;
        assert_int_equal(pthread_create(&threads[r], NULL, locate_on, &ranks[r]), 0);
    }
    for (int r = 0; r < count; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < count; r++) {
        if (ranks[r].status != FB_OK) fail_msg("rank %d: %s", r, ranks[r].err.message);
    }
    return &ranks[count - 1].result;
}

/* ---- other ranks ------------------------------------------------------------------------------------------------------------- */

static void test_locate__a_device_is_not_blamed_where_the_ranks_hold_other_state(void **state)
{
    const fb_locate_result *r;
    (void)state;
    w.start[1][0][0] = 100.0f; /* exp(100) leaves FP32 inside of the operator; the softplus itself is 100 */
    r = run(2, FB_KIND_POS_INF);
    assert_int_equal(r->found, FB_LOCATED_OPERATOR);
    assert_string_equal(r->op, "softplus");
    assert_int_equal(r->owner, 1);
    assert_int_equal(r->other_ranks_tried, 0);
    assert_string_equal(r->cause_class, "unknown");
    assert_non_null(strstr(r->sentence, "is not known here"));
    assert_null(strstr(r->sentence, "Nothing that such an operator computes"));
}

static void test_locate__a_device_is_blamed_where_all_else_is_the_same(void **state)
{
    const fb_locate_result *r;
    (void)state;
    device_broken = 1;
    r = run(2, FB_KIND_POS_INF);
    assert_int_equal(r->other_ranks_tried, 1);
    assert_int_equal(r->other_ranks_bad, 0);
    assert_string_equal(r->cause_class, "hardware_fault");
    /* The batch may differ: each rank is given that of the finding. */
    device_broken = 0;
    w.start[0][0][0] = w.start[1][0][0] = 100.0f;
    w.start[0][1][0] = 0.0f;
    r = run(2, FB_KIND_POS_INF);
    assert_int_equal(r->other_ranks_tried, 1);
    assert_int_equal(r->other_ranks_bad, 1);
    assert_string_equal(r->cause_class, "unknown");
}

/* ---- masks ------------------------------------------------------------------------------------------------------------------- */

static void test_locate__the_mask_of_a_tensor_is_not_the_nan_that_was_found_in_it(void **state)
{
    const fb_locate_result *r;
    (void)state;
    masked = 1;
    r = run(1, FB_KIND_NAN);
    assert_int_equal(r->found, FB_LOCATED_NOT_REPRODUCED);
    assert_int_equal(r->reproduced, 0);
    assert_int_equal(r->tried, 3);
    r = run(1, FB_KIND_NEG_INF);
    assert_int_equal(r->found, FB_LOCATED_OPERATOR);
    assert_int_equal(r->reproduced, 3);
    assert_int_equal(r->persists, 1);
    /* Nobody said what it was: the mask is then neither the finding again, nor its absence. */
    r = run(1, FB_KIND_NONE);
    assert_int_equal(r->found, FB_LOCATED_UNDECIDED);
    assert_int_equal(r->tried, 0);
    assert_int_equal(r->persists, -1);
    /* NaN or +Inf beside the mask is the finding. */
    w.start[0][0][1] = 100.0f;
    r = run(1, FB_KIND_POS_INF);
    assert_int_equal(r->found, FB_LOCATED_OPERATOR);
    assert_int_equal(r->reproduced, 3);
    r = run(1, FB_KIND_NONE);
    assert_int_equal(r->found, FB_LOCATED_OPERATOR);
    assert_int_equal(r->reproduced, 3);
}

/* In FP64 element 0 is -Inf as well, since it is masked; what is to be explained is element 1. */
static void test_locate__the_cause_is_that_of_an_element_that_is_not_masked(void **state)
{
    const fb_locate_result *r;
    (void)state;
    masked = 1;
    w.start[0][0][1] = 100.0f;
    r = run(1, FB_KIND_POS_INF);
    assert_int_equal(r->found, FB_LOCATED_OPERATOR);
    assert_int_equal(r->rule, FB_RULE_NONE);
    assert_string_equal(r->cause_class, "unknown");
    assert_non_null(strstr(r->sentence, "in FP64 it comes to 100"));
}

/* Other ranks hold the mask too, and not the fault. */
static void test_locate__a_mask_on_other_ranks_is_not_the_fault_of_this_one(void **state)
{
    const fb_locate_result *r;
    (void)state;
    masked = device_broken = 1;
    r = run(2, FB_KIND_POS_INF);
    assert_int_equal(r->found, FB_LOCATED_OPERATOR);
    assert_int_equal(r->other_ranks_tried, 1);
    assert_int_equal(r->other_ranks_bad, 0);
    assert_string_equal(r->cause_class, "hardware_fault");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_locate__a_device_is_not_blamed_where_the_ranks_hold_other_state, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_locate__a_device_is_blamed_where_all_else_is_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_locate__the_mask_of_a_tensor_is_not_the_nan_that_was_found_in_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_locate__the_cause_is_that_of_an_element_that_is_not_masked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_locate__a_mask_on_other_ranks_is_not_the_fault_of_this_one, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
