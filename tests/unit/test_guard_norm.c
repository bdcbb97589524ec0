/* The program's own reduction as the vote (FB_AGREE_NORM): what all ranks have alike decides, what one rank has does not. */
#include "support/world.h"

#include "report/report.h"

static fb_error err;

static void open_norm(world *w, int ranks)
{
    world_init(w, ranks);
    w->config.agreement = FB_AGREE_NORM;
    world_open(w);
}

typedef struct fault {
    int loss_of;   /* rank whose loss is NaN; -1: none */
    int grad_of;   /* rank whose local gradient of h.0.mlp is NaN before the reduction; -1: none */
    int local_too; /* local gradients are looked at */
} fault;

static const fault healthy = {-1, -1, 0};

static void look(world *w, int i, int64_t step, const fault *f)
{
    world_rank *r = &w->rank[i];
    fb_step begin = FB_STEP_INIT;
    fb_view loss = world_view(&r->loss, r->loss_site), grads[WORLD_TENSORS];
    begin.step = step;
    assert_int_equal(fb_step_begin(r->run, &begin, &err), FB_OK);
    world_backward(r);
    if (i == f->loss_of) r->loss = world_bits(0x7fc00000u);
    if (i == f->grad_of) r->grad[0][1] = world_bits(0x7fc00000u);
    loss.count = 1;
    assert_int_equal(fb_step_check(r->run, FB_LOSS, &loss, 1, &err), FB_OK);
    for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
    if (f->local_too) assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
}

/* One update: local work, the program's reduction, one look at what came out, and no message. */
static int32_t update(world *w, int64_t step, const fault *f)
{
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict fresh = FB_VERDICT_INIT;
    for (int i = 0; i < w->ranks; i++) look(w, i, step, f);
    world_reduce(w);
    for (int i = 0; i < w->ranks; i++) {
        world_rank *r = &w->rank[i];
        fb_view grads[WORLD_TENSORS];
        for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
        assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
        r->verdict = fresh;
        if (fb_step_vote_alone(r->run, &r->verdict, &err) != FB_OK) fail_msg("%s", err.message);
    }
    for (int i = 0; i < w->ranks; i++) {
        world_rank *r = &w->rank[i];
        r->applied = fb_step_apply(r->run, &err);
        assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
        assert_int_equal(r->verdict.action, w->rank[0].verdict.action);
        assert_int_equal(r->verdict.fault, w->rank[0].verdict.fault);
        assert_int_equal(r->verdict.first_rank, w->rank[0].verdict.first_rank);
        assert_int_equal(r->verdict.first_boundary, w->rank[0].verdict.first_boundary);
        assert_int_equal(r->verdict.first_position, w->rank[0].verdict.first_position);
        assert_int_equal(r->verdict.consecutive_skips, w->rank[0].verdict.consecutive_skips);
        assert_string_equal(r->verdict.case_id, w->rank[0].verdict.case_id);
        assert_int_equal(fb_gate_digest(&r->run->gate), fb_gate_digest(&w->rank[0].run->gate));
    }
    return w->rank[0].verdict.action;
}

static fb_report *load(const world *w)
{
    fb_report *report;
    char folder[128];
    (void)snprintf(folder, sizeof folder, "%s/test", w->dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    return report;
}

static void test_norm__reduced_gradients_decide_alike_on_all_ranks_without_a_message(void **state)
{
    world w;
    fault f = healthy;
    (void)state;
    open_norm(&w, 3);
    assert_int_equal(update(&w, 0, &f), FB_PROCEED);
    assert_true(w.rank[2].run->step.rec.flags & FB_STEP_GATED);
    f.grad_of = 1;
    f.loss_of = 1; /* only that rank knows, and it must come to the same verdict as the others */
    f.local_too = 1;
    assert_int_equal(update(&w, 1, &f), FB_SKIP);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w.rank[i].applied, FB_E_WITHHELD);
        assert_int_equal(w.rank[i].verdict.agreement, FB_AGREE_NORM);
    }
    assert_int_equal(w.rank[0].verdict.first_boundary, FB_REDUCED_GRAD);
    f = healthy;
    assert_int_equal(update(&w, 2, &f), FB_PROCEED);
    world_close(&w);
}

static void test_norm__the_rank_that_was_first_is_found_out_afterwards(void **state)
{
    world w;
    fault f = healthy;
    fb_report *report;
    (void)state;
    open_norm(&w, 3);
    f.grad_of = f.loss_of = 2;
    f.local_too = 1;
    assert_int_equal(update(&w, 0, &f), FB_SKIP);
    report = load(&w);
    assert_int_equal(report->status, FB_WHY_CASE);
    assert_int_equal(report->first_set_count, 1);
    assert_int_equal(report->findings[report->first].rec.rank, 2);
    assert_int_equal(report->findings[report->first].rec.boundary, FB_LOSS);
    assert_int_equal(report->agreement, FB_AGREE_NORM);
    fb_report_free(report);
    world_close(&w);
}

static void test_norm__what_one_rank_alone_finds_is_recorded_and_decides_nothing(void **state)
{
    world w;
    fault f = healthy;
    fb_report *report;
    (void)state;
    open_norm(&w, 2);
    f.loss_of = 1; /* and every gradient is finite */
    assert_int_equal(update(&w, 0, &f), FB_PROCEED);
    assert_int_equal(w.rank[1].verdict.clean, 1);
    assert_int_equal(w.rank[1].verdict.local_findings, 1);
    assert_int_equal(w.rank[1].applied, FB_OK);
    assert_false(w.rank[1].run->step.rec.flags & FB_STEP_GATED); /* nobody claims that this update was a good one */
    assert_int_equal(w.rank[1].run->late_pending, 0); /* and it is not told to the next step, which the others begin clean */
    f = healthy;
    assert_int_equal(update(&w, 1, &f), FB_PROCEED);
    report = load(&w);
    assert_int_equal(report->has_case, 1);
    assert_int_equal(report->step, 0);
    assert_int_equal(report->applied_on, 2);
    assert_int_equal(report->findings[report->first].rec.boundary, FB_LOSS);
    assert_int_equal(report->findings[report->first].rec.rank, 1);
    fb_report_free(report);
    world_close(&w);
}

static void test_norm__a_full_table_of_one_rank_does_not_hide_what_decides(void **state)
{
    world w;
    fault f = healthy;
    (void)state;
    world_init(&w, 2);
    w.config.agreement = FB_AGREE_NORM;
    w.config.findings_max = 1; /* the loss of rank 1 takes the only place */
    world_open(&w);
    f.loss_of = f.grad_of = 1;
    assert_int_equal(update(&w, 0, &f), FB_SKIP);
    world_close(&w);
}

static void test_norm__a_parameter_found_bad_after_the_update_decides_the_next_step(void **state)
{
    world w;
    fault f = healthy;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict fresh = FB_VERDICT_INIT;
    (void)state;
    open_norm(&w, 2);
    for (int i = 0; i < 2; i++) look(&w, i, 0, &f);
    world_reduce(&w);
    for (int i = 0; i < 2; i++) {
        world_rank *r = &w.rank[i];
        fb_view param = world_view(r->param[0], r->param_site[0]);
        r->verdict = fresh;
        assert_int_equal(fb_step_vote_alone(r->run, &r->verdict, &err), FB_OK);
        assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
        r->param[0][0] = world_bits(0x7f800000u); /* the same optimizer on the same numbers */
        assert_int_equal(fb_step_check(r->run, FB_UPDATE, &param, 1, &err), FB_OK);
        assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
    }
    assert_int_equal(update(&w, 1, &f), FB_SKIP);
    assert_int_equal(w.rank[1].verdict.first_boundary, FB_ENTRY);
    world_close(&w);
}

static void test_norm__a_save_that_one_rank_makes_leaves_the_ranks_together(void **state)
{
    world w;
    fault f = healthy;
    fb_view param;
    (void)state;
    open_norm(&w, 2);
    assert_int_equal(update(&w, 0, &f), FB_PROCEED);
    param = world_view(w.rank[0].param[0], w.rank[0].param_site[0]);
    w.rank[0].param[0][0] = world_bits(0x7fc00000u);
    assert_int_equal(fb_run_save_gate(w.rank[0].run, 0, &param, 1, NULL, &err), FB_E_WITHHELD);
    assert_int_equal(update(&w, 1, &f), FB_PROCEED); /* rank 1 saves nothing and knows nothing */
    world_close(&w);
}

static void test_norm__three_faults_in_a_row_halt_all_ranks_in_the_same_step(void **state)
{
    world w;
    fault f = healthy;
    (void)state;
    open_norm(&w, 2);
    f.grad_of = 0;
    for (int64_t step = 0; step < 3; step++) assert_int_equal(update(&w, step, &f), FB_SKIP);
    assert_int_equal(update(&w, 3, &f), FB_HALT);
    world_close(&w);
}

static void test_norm__one_rank_alone_decides_by_all_that_it_finds(void **state)
{
    world w;
    fault f = healthy;
    (void)state;
    open_norm(&w, 1);
    f.loss_of = 0;
    assert_int_equal(update(&w, 0, &f), FB_SKIP);
    assert_int_equal(w.rank[0].verdict.first_boundary, FB_LOSS);
    world_close(&w);
}

/* A rank that votes and one that was opened without a vote have not the same policy, and no update may come of it. */
static void test_norm__ranks_with_other_agreements_are_told_apart(void **state)
{
    static const int32_t other[] = {FB_AGREE_NONE, FB_AGREE_NORM};
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        world w;
        fb_report *report;
        fb_step_result result = FB_STEP_RESULT_INIT;
        world_init(&w, 2);
        for (int k = 0; k < 2; k++) {
            w.config.rank = k;
            w.config.agreement = k == 0 ? FB_AGREE_VOTE : other[i];
            assert_int_equal(fb_run_open_with(&w.rank[k].run, &w.config, w.os, &err), FB_OK);
            world_sites(&w.rank[k]);
        }
        for (int k = 0; k < 2; k++) world_local(&w, k, 0, NULL, NULL);
        world_vote(&w);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(w.rank[k].verdict.action, FB_HALT);
            assert_int_equal(w.rank[k].verdict.unanimous, 0);
            assert_int_equal(fb_step_apply(w.rank[k].run, &err), FB_E_WITHHELD);
            assert_int_equal(fb_step_end(w.rank[k].run, &result, &err), FB_OK);
        }
        report = load(&w);
        assert_string_equal(report->cause_class, "ranks_disagree");
        assert_non_null(strstr(report->drift, "agreement"));
        fb_report_free(report);
        world_close(&w);
    }
}

static void test_norm__who_votes_does_not_decide_alone(void **state)
{
    world w;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step begin = FB_STEP_INIT;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    assert_int_equal(fb_step_vote_alone(w.rank[0].run, &verdict, &err), FB_E_USAGE);
    assert_int_equal(verdict.action, FB_HALT);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm__reduced_gradients_decide_alike_on_all_ranks_without_a_message),
        cmocka_unit_test(test_norm__the_rank_that_was_first_is_found_out_afterwards),
        cmocka_unit_test(test_norm__what_one_rank_alone_finds_is_recorded_and_decides_nothing),
        cmocka_unit_test(test_norm__a_full_table_of_one_rank_does_not_hide_what_decides),
        cmocka_unit_test(test_norm__a_parameter_found_bad_after_the_update_decides_the_next_step),
        cmocka_unit_test(test_norm__a_save_that_one_rank_makes_leaves_the_ranks_together),
        cmocka_unit_test(test_norm__three_faults_in_a_row_halt_all_ranks_in_the_same_step),
        cmocka_unit_test(test_norm__one_rank_alone_decides_by_all_that_it_finds),
        cmocka_unit_test(test_norm__ranks_with_other_agreements_are_told_apart),
        cmocka_unit_test(test_norm__who_votes_does_not_decide_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
