/* A trainer that the guard sees from outside: micro-steps that nobody counted beforehand, gradients looked at after they were
 * reduced,
   tensors looked at on another device, memory that goes away, and what is not covered. */
#include "support/world.h"

#include "base/alloc.h"
#include "evidence/records.h"
#include "log/log.h"
#include "report/report.h"

static fb_error err;

static void begin(world_rank *r, int64_t step, int32_t micro_steps)
{
    fb_step given = FB_STEP_INIT;
    given.step = step;
    given.micro_steps = micro_steps;
    assert_int_equal(fb_step_begin(r->run, &given, &err), FB_OK);
}

static void grads_of(world_rank *r, fb_view views[WORLD_TENSORS])
{
    for (int t = 0; t < WORLD_TENSORS; t++) views[t] = world_view(r->grad[t], r->grad_site[t]);
}

static int32_t vote(world_rank *r)
{
    fb_verdict fresh = FB_VERDICT_INIT;
    r->verdict = fresh;
    if (fb_step_vote_alone(r->run, &r->verdict, &err) != FB_OK) fail_msg("%s", err.message);
    return r->verdict.action;
}

static void end(world_rank *r)
{
    fb_step_result result = FB_STEP_RESULT_INIT;
    if (fb_step_end(r->run, &result, &err) != FB_OK) fail_msg("%s", err.message);
}

static fb_report *load(const world *w)
{
    fb_report *report;
    char folder[128];
    (void)snprintf(folder, sizeof folder, "%s/test", w->dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    return report;
}

/* ---- micro-steps ------------------------------------------------------------------------------------------------------------- */

static void test_elsewhere__micro_steps_that_nobody_knew_of_are_counted(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS];
    fb_finding finding;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin(r, 0, 0);
    world_backward(r);
    grads_of(r, grads);
    memset(&finding, 0, sizeof finding);
    finding.size = sizeof finding;
    finding.boundary = FB_LOSS;
    finding.site = r->loss_site;
    finding.kind = FB_KIND_NAN;
    finding.micro_step = 1;
    assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_E_USAGE); /* it has not begun */
    for (int32_t micro = 0; micro < 3; micro++) {
        assert_int_equal(fb_step_micro(r->run, micro, &err), FB_OK);
        assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    }
    assert_int_equal(fb_step_micro(r->run, 4, &err), FB_E_ORDER);
    assert_int_equal(vote(r), FB_PROCEED);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_int_equal(r->run->step.rec.micro_steps, 3);
    assert_true(r->run->step.rec.flags & FB_STEP_GATED);
    end(r);
    world_close(&w);
}

/* ---- reduced gradients ------------------------------------------------------------------------------------------------------- */

static void test_elsewhere__one_vote_covers_local_and_reduced_gradients(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int i = 0; i < 2; i++) world_local(&w, i, 0, NULL, NULL);
    world_reduce(&w);
    for (int i = 0; i < 2; i++) {
        fb_view grads[WORLD_TENSORS];
        float before[WORLD_TENSORS][WORLD_ELEMENTS];
        grads_of(&w.rank[i], grads);
        memcpy(before, w.rank[i].grad, sizeof before);
        assert_int_equal(fb_step_check(w.rank[i].run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
        assert_memory_equal(before, w.rank[i].grad, sizeof before);
    }
    world_vote(&w);
    assert_int_equal(w.rank[1].verdict.action, FB_PROCEED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_OK);
        assert_true(w.rank[i].run->step.rec.flags & FB_STEP_GATED);
        end(&w.rank[i]);
    }
    world_close(&w);
}

static void test_elsewhere__a_reduced_gradient_that_changed_after_the_vote_needs_another(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin(r, 0, 0);
    world_backward(r);
    grads_of(r, grads);
    assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(vote(r), FB_PROCEED);
    r->grad[1][3] = world_bits(0x7f800000u);
    assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(fb_step_apply(r->run, &err), FB_E_ORDER);
    assert_int_equal(vote(r), FB_SKIP);
    assert_int_equal(r->verdict.first_boundary, FB_REDUCED_GRAD);
    assert_int_equal(fb_step_apply(r->run, &err), FB_E_WITHHELD);
    end(r);
    world_close(&w);
}

static void test_elsewhere__reduced_gradients_are_not_looked_at_once_the_update_is_made(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS], param;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    for (int proposed = 0; proposed < 2; proposed++) {
        begin(r, proposed, 1);
        world_backward(r);
        grads_of(r, grads);
        assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
        assert_int_equal(vote(r), FB_PROCEED);
        param = world_view(r->param[0], r->param_site[0]);
        if (proposed) assert_int_equal(fb_step_check(r->run, FB_UPDATE, &param, 1, &err), FB_OK);
        else assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
        assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_E_ORDER);
        assert_non_null(strstr(err.message, proposed ? "looked at already" : "applied already"));
        if (proposed) assert_int_equal(vote(r), FB_PROCEED);
        if (proposed) assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
        end(r);
    }
    world_close(&w);
}

static void test_elsewhere__a_part_of_the_reduced_gradients_is_not_all_of_them(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin(r, 0, 0);
    world_backward(r);
    grads_of(r, grads);
    /* The same half in two micro-steps is still half. */
    assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, 1, &err), FB_OK);
    assert_int_equal(fb_step_micro(r->run, 1, &err), FB_OK);
    assert_int_equal(fb_step_check(r->run, FB_REDUCED_GRAD, grads, 1, &err), FB_OK);
    assert_int_equal(vote(r), FB_PROCEED);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_int_equal(r->run->step.rec.cover.level[FB_REDUCED_GRAD], FB_COVER_SAMPLED);
    assert_false(r->run->step.rec.flags & FB_STEP_GATED);
    end(r);
    world_close(&w);
}

/* ---- looked at elsewhere ----------------------------------------------------------------------------------------------------- */

static fb_view on_device(uint32_t site)
{
    fb_view view = world_view(NULL, site);
    view.device = 0;
    return view;
}

static void test_elsewhere__what_was_looked_at_on_a_device_counts_and_is_not_read(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin(r, 0, 0);
    for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = on_device(r->grad_site[t]);
    assert_int_equal(fb_step_looked(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(fb_step_apply(r->run, &err), FB_E_ORDER); /* nothing was voted on */
    assert_int_equal(vote(r), FB_PROCEED);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_int_equal(r->run->step.rec.cover.tensors[FB_LOCAL_GRAD], WORLD_TENSORS);
    assert_int_equal(r->run->step.rec.cover.level[FB_LOCAL_GRAD], FB_COVER_FULL);
    assert_true(r->run->step.rec.flags & FB_STEP_GATED);
    end(r);
    world_close(&w);
}

static void test_elsewhere__a_finding_of_a_device_withholds_and_has_its_witness(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS];
    fb_finding finding;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin(r, 0, 0);
    for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = on_device(r->grad_site[t]);
    assert_int_equal(fb_step_looked(r->run, FB_REDUCED_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    memset(&finding, 0, sizeof finding);
    finding.size = sizeof finding;
    finding.boundary = FB_REDUCED_GRAD;
    finding.site = r->grad_site[0];
    finding.kind = FB_KIND_POS_INF;
    finding.count = 3;
    finding.first_index = FB_NO_INDEX;
    assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_OK);
    assert_int_equal(vote(r), FB_SKIP);
    assert_int_equal(r->run->findings[0].tensors_before, 5); /* the state, read for the case, and the gradient of h.1, which
                                                                backward makes first */
    end(r);
    world_close(&w);
}

static void test_elsewhere__a_state_looked_at_in_part_is_covered_in_part(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    for (int whole = 0; whole < 2; whole++) {
        fb_view state_views[2 * WORLD_TENSORS], grads[WORLD_TENSORS];
        begin(r, whole, 0);
        for (int t = 0; t < WORLD_TENSORS; t++) {
            grads[t] = on_device(r->grad_site[t]);
            state_views[2 * t] = on_device(r->param_site[t]);
            state_views[2 * t + 1] = on_device(r->moment_site[t]);
        }
        assert_int_equal(fb_step_looked(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
        assert_int_equal(vote(r), FB_PROCEED);
        assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
        assert_int_equal(fb_step_looked(r->run, FB_UPDATE, state_views, 2, &err), FB_OK);
        if (whole) assert_int_equal(fb_step_looked(r->run, FB_UPDATE, state_views + 2, 2, &err), FB_OK);
        assert_int_equal(r->run->step.rec.cover.level[FB_UPDATE], whole ? FB_COVER_FULL : FB_COVER_SAMPLED);
        end(r);
    }
    world_close(&w);
}

static void test_elsewhere__views_without_site_or_format_are_refused_and_count_nothing(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view views[2];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(fb_step_looked(r->run, FB_LOCAL_GRAD, NULL, 0, &err), FB_E_ORDER);
    begin(r, 0, 0);
    views[0] = on_device(r->grad_site[0]);
    views[1] = on_device(999);
    assert_int_equal(fb_step_looked(r->run, FB_LOCAL_GRAD, views, 2, &err), FB_E_SITE);
    views[1] = on_device(r->grad_site[1]);
    views[1].dtype = 999;
    assert_int_equal(fb_step_looked(r->run, FB_LOCAL_GRAD, views, 2, &err), FB_E_DTYPE);
    assert_int_equal(fb_step_looked(r->run, FB_LOCAL_GRAD, NULL, 2, &err), FB_E_USAGE);
    assert_int_equal(fb_step_looked(r->run, 42, views, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_step_looked(NULL, FB_LOCAL_GRAD, views, 1, &err), FB_E_USAGE);
    assert_int_equal(r->run->step.rec.cover.tensors[FB_LOCAL_GRAD], 0);
    assert_int_equal(r->run->step.unsettled, 0);
    world_close(&w);
}

/* ---- memory that goes away --------------------------------------------------------------------------------------------------- */

static void spoil_rank_0(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == 0) w->rank[0].grad[0][0] = world_bits(0x7fc00000u);
}

static int proofs(const world *w, int32_t moment, int32_t *equal)
{
    char path[160];
    fb_log_reader *reader;
    fb_log_record record;
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r00000.log", w->dir);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        fb_rec_proof proof;
        if (record.type != FB_REC_PROOF || fb_rec_proof_decode(record.payload, record.bytes, &proof, &err) != FB_OK) continue;
        if (proof.moment != moment) continue;
        *equal = proof.equal;
        count++;
    }
    fb_log_reader_close(reader);
    return count;
}

static void test_elsewhere__a_halted_run_has_its_proof_before_its_memory_goes(void **state)
{
    world w;
    int32_t equal = -1;
    (void)state;
    world_init(&w, 1);
    w.config.on_bad = FB_ON_BAD_HALT;
    world_open(&w);
    assert_int_equal(world_step(&w, 0, spoil_rank_0, NULL), FB_HALT);
    assert_int_equal(proofs(&w, FB_PROOF_NEXT_BEGIN, &equal), 1);
    assert_int_equal(equal, 1);
    assert_int_equal(fb_run_own(w.rank[0].run, NULL, 0, &err), FB_OK);
    w.rank[0].param[0][0] = 7.0f; /* somebody else's memory by now */
    fb_run_close(w.rank[0].run);
    w.rank[0].run = NULL;
    assert_int_equal(proofs(&w, FB_PROOF_NEXT_BEGIN, &equal), 1);
    assert_int_equal(equal, 1);
    world_close(&w);
}

static void test_elsewhere__a_state_that_changes_after_the_halt_is_told_at_the_close(void **state)
{
    world w;
    int32_t equal = -1;
    (void)state;
    world_init(&w, 1);
    w.config.on_bad = FB_ON_BAD_HALT;
    world_open(&w);
    assert_int_equal(world_step(&w, 0, spoil_rank_0, NULL), FB_HALT);
    w.rank[0].param[0][0] += 1.0f;
    fb_run_close(w.rank[0].run);
    w.rank[0].run = NULL;
    assert_int_equal(proofs(&w, FB_PROOF_NEXT_BEGIN, &equal), 2);
    assert_int_equal(equal, 0);
    world_close(&w);
}

static void test_elsewhere__nothing_can_be_owned_inside_a_withheld_step_only(void **state)
{
    world w;
    world_rank *r = &w.rank[0];
    fb_view grads[WORLD_TENSORS], param;
    int32_t equal = -1;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin(r, 0, 0);
    assert_int_equal(fb_run_own(r->run, NULL, 0, &err), FB_E_ORDER);
    world_backward(r);
    r->grad[0][0] = world_bits(0x7fc00000u);
    grads_of(r, grads);
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(vote(r), FB_SKIP);
    param = world_view(r->param[0], r->param_site[0]);
    assert_int_equal(fb_run_own(r->run, &param, 1, &err), FB_E_ORDER);
    assert_int_equal(fb_run_own(r->run, NULL, 0, &err), FB_OK);
    end(r);
    r->param[0][0] += 1.0f; /* not owned any more, so nobody says anything of it */
    begin(r, 1, 0);
    assert_int_equal(proofs(&w, FB_PROOF_NEXT_BEGIN, &equal), 0);
    world_close(&w);
}

/* ---- what is not covered ----------------------------------------------------------------------------------------------------- */

static int has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static void test_elsewhere__what_is_not_covered_is_said_once_and_why_has_it(void **state)
{
    world w;
    fb_report *report;
    fb_json json;
    char *text;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_run_not_covered(w.rank[i].run, "samples: the loader gives no ids", &err), FB_OK);
        assert_int_equal(fb_run_not_covered(w.rank[i].run, "samples: the loader gives no ids", &err), FB_OK);
    }
    begin(&w.rank[0], 0, 0);
    assert_int_equal(fb_run_not_covered(w.rank[0].run, "votes: the ranks called in another order", &err), FB_OK);
    assert_int_equal(fb_step_abandon(w.rank[0].run, &err), FB_OK);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    report = load(&w);
    assert_int_equal(report->not_covered.count, 2);
    assert_string_equal(report->not_covered.text[0], "samples: the loader gives no ids");
    assert_int_equal(fb_report_why_text(report, 1000, 0, &text, NULL), FB_OK);
    assert_true(has(text, "samples: the loader gives no ids; votes: the ranks called in another order"));
    fb_free(text);
    fb_json_init(&json, 0);
    fb_report_why_json(report, &json);
    assert_int_equal(fb_json_finish(&json, &err), FB_OK);
    assert_true(
        has(fb_json_text(&json), "\"not_covered\":[\"samples: the loader gives no ids\",\"votes: the ranks called in another"));
    fb_json_release(&json);
    fb_report_free(report);
    world_close(&w);
}

static void test_elsewhere__more_lines_than_the_bound_are_told_as_more(void **state)
{
    world w;
    fb_report *report;
    char line[32];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    for (int i = 0; i < FB_NOT_COVERED_MAX; i++) {
        (void)snprintf(line, sizeof line, "part %d", i);
        assert_int_equal(fb_run_not_covered(w.rank[0].run, line, &err), FB_OK);
    }
    assert_int_equal(fb_run_not_covered(w.rank[0].run, "one more", &err), FB_E_LIMIT);
    assert_int_equal(fb_run_not_covered(w.rank[0].run, "and another", &err), FB_E_LIMIT);
    assert_int_equal(fb_run_not_covered(w.rank[0].run, "part 3", &err), FB_OK);
    assert_int_equal(fb_run_not_covered(w.rank[0].run, "", &err), FB_E_USAGE);
    assert_int_equal(fb_run_not_covered(w.rank[0].run, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_run_not_covered(NULL, "x", &err), FB_E_USAGE);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
    report = load(&w);
    assert_int_equal(report->not_covered.count + report->not_covered.dropped, FB_NOT_COVERED_MAX + 1);
    fb_report_free(report);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elsewhere__micro_steps_that_nobody_knew_of_are_counted),
        cmocka_unit_test(test_elsewhere__one_vote_covers_local_and_reduced_gradients),
        cmocka_unit_test(test_elsewhere__a_reduced_gradient_that_changed_after_the_vote_needs_another),
        cmocka_unit_test(test_elsewhere__reduced_gradients_are_not_looked_at_once_the_update_is_made),
        cmocka_unit_test(test_elsewhere__a_part_of_the_reduced_gradients_is_not_all_of_them),
        cmocka_unit_test(test_elsewhere__what_was_looked_at_on_a_device_counts_and_is_not_read),
        cmocka_unit_test(test_elsewhere__a_finding_of_a_device_withholds_and_has_its_witness),
        cmocka_unit_test(test_elsewhere__a_state_looked_at_in_part_is_covered_in_part),
        cmocka_unit_test(test_elsewhere__views_without_site_or_format_are_refused_and_count_nothing),
        cmocka_unit_test(test_elsewhere__a_halted_run_has_its_proof_before_its_memory_goes),
        cmocka_unit_test(test_elsewhere__a_state_that_changes_after_the_halt_is_told_at_the_close),
        cmocka_unit_test(test_elsewhere__nothing_can_be_owned_inside_a_withheld_step_only),
        cmocka_unit_test(test_elsewhere__what_is_not_covered_is_said_once_and_why_has_it),
        cmocka_unit_test(test_elsewhere__more_lines_than_the_bound_are_told_as_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
