/* Wrong use of the public calls: a status, a sentence that names the mistake, and nothing changed. */
#include "support/world.h"

#include <sys/wait.h>

static fb_error err;

#define EXPECT(call, status, words)                                                                  \
    do {                                                                                             \
        memset(&err, 0, sizeof err);                                                                 \
        assert_int_equal((call), (status));                                                          \
        assert_int_equal(err.code, (status));                                                        \
        if (!strstr(err.message, (words))) fail_msg("'%s' does not say '%s'", err.message, (words)); \
    } while (0)

/* One rank with a step that has been begun. */
static world_rank *begun(world *w)
{
    fb_step step = FB_STEP_INIT;
    world_init(w, 1);
    world_open(w);
    world_backward(&w->rank[0]);
    step.step = 9;
    assert_int_equal(fb_step_begin(w->rank[0].run, &step, &err), FB_OK);
    return &w->rank[0];
}

static void grads_of(world_rank *r, fb_view grads[WORLD_TENSORS])
{
    for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
}

static void test_misuse__configuration_is_checked_before_anything_is_made(void **state)
{
    fb_run *run = (fb_run *)&err;
    world w;
    (void)state;
    EXPECT(fb_run_open(NULL, NULL, &err), FB_E_USAGE, "out is NULL");
    EXPECT(fb_run_open(&run, NULL, &err), FB_E_USAGE, "config is NULL");
    assert_null(run);
    world_init(&w, 1);
    w.config.rank = 1;
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "rank 1 of 1");
    w.config.rank = 0;
    w.config.run_id = "../up";
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "run_id");
    w.config.run_id = "-x";
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "run_id");
    w.config.run_id = "a/b";
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "run_id");
    w.config.run_id = "ok";
    w.config.attempt = 0;
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "attempt");
    w.config.attempt = 1;
    w.config.on_bad = 7;
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "on_bad");
    w.config.on_bad = 0;
    w.config.inject = "nonsense";
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "nonsense");
    w.config.inject = NULL;
    w.config.size = 3;
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "FB_RUN_CONFIG_INIT");
    assert_int_equal(rmdir(w.dir), 0); /* still empty: nothing was made */
}

static void test_misuse__environment_wins_and_its_mistakes_are_told(void **state)
{
    fb_run *run = NULL;
    world w;
    (void)state;
    world_init(&w, 1);
    setenv("FIRSTBAD_ON_BAD", "sometimes", 1);
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "sometimes");
    setenv("FIRSTBAD_ON_BAD", "halt", 1);
    setenv("FIRSTBAD_MAX_SKIPS", "-1", 1);
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "FIRSTBAD_MAX_SKIPS");
    unsetenv("FIRSTBAD_MAX_SKIPS");
    setenv("FIRSTBAD_SET", "novalue", 1);
    EXPECT(fb_run_open(&run, &w.config, &err), FB_E_USAGE, "novalue");
    unsetenv("FIRSTBAD_SET");
    assert_int_equal(fb_run_open(&run, &w.config, &err), FB_OK);
    assert_int_equal(run->on_bad, FB_ON_BAD_HALT);
    unsetenv("FIRSTBAD_ON_BAD");
    w.rank[0].run = run;
    world_close(&w);
}

static void test_misuse__every_call_out_of_order_names_what_was_expected(void **state)
{
    world w;
    world_rank *r = begun(&w);
    fb_run *run = r->run;
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_view grads[WORLD_TENSORS];
    fb_site site = FB_SITE_INIT;
    uint32_t id = 77;
    int64_t words[4];
    double sum_sq;
    (void)state;
    grads_of(r, grads);
    site.role = FB_ROLE_BUFFER;
    EXPECT(fb_step_begin(run, &step, &err), FB_E_ORDER, "step 9 has no end");
    EXPECT(fb_run_add_site(run, &site, &id, &err), FB_E_ORDER, "a step is open");
    assert_int_equal(id, 77);
    EXPECT(fb_run_own(run, grads, 1, &err), FB_E_ORDER, "a step is open");
    EXPECT(fb_step_settle(run, words, &verdict, &err), FB_E_ORDER, "no ballot");
    EXPECT(fb_step_unscale(run, grads, WORLD_TENSORS, 1.0, &sum_sq, &err), FB_E_ORDER, "no settled vote");
    EXPECT(fb_step_apply(run, &err), FB_E_ORDER, "nothing was voted on");
    EXPECT(fb_step_end(run, &result, &err), FB_E_ORDER, "nothing was voted on");
    EXPECT(fb_step_check(run, FB_UPDATE, grads, 1, &err), FB_E_ORDER, "no settled vote covers the gradients of step 9");
    EXPECT(fb_step_micro(run, 1, &err), FB_E_ORDER, "micro-step 0 of 1");
    assert_int_equal(fb_step_check(run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(fb_step_ballot(run, words, &err), FB_OK);
    EXPECT(fb_step_ballot(run, words, &err), FB_E_ORDER, "not settled");
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, grads, 1, &err), FB_E_ORDER, "a ballot is out");
    EXPECT(fb_step_apply(run, &err), FB_E_ORDER, "not settled");
    EXPECT(fb_step_end(run, &result, &err), FB_E_ORDER, "not settled");
    assert_int_equal(fb_step_settle(run, words, &verdict, &err), FB_OK);
    assert_int_equal(verdict.action, FB_PROCEED);
    EXPECT(fb_step_end(run, &result, &err), FB_E_ORDER, "fb_step_apply was not called");
    assert_int_equal(fb_step_unscale(run, grads, WORLD_TENSORS, 1.0, &sum_sq, &err), FB_OK);
    EXPECT(fb_step_unscale(run, grads, WORLD_TENSORS, 1.0, &sum_sq, &err), FB_E_ORDER, "unscaled already");
    EXPECT(fb_step_apply(run, &err), FB_E_ORDER, "after the last vote");
    assert_int_equal(fb_step_ballot(run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(run, words, &verdict, &err), FB_OK);
    assert_int_equal(fb_step_apply(run, &err), FB_OK);
    EXPECT(fb_step_apply(run, &err), FB_E_ORDER, "applied already");
    EXPECT(fb_step_abandon(run, &err), FB_E_ORDER, "applied already");
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, grads, 1, &err), FB_E_ORDER, "reduced and unscaled already");
    assert_int_equal(fb_step_end(run, &result, &err), FB_OK);
    EXPECT(fb_step_end(run, &result, &err), FB_E_ORDER, "no step is open");
    EXPECT(fb_step_abandon(run, &err), FB_E_ORDER, "no step is open");
    EXPECT(fb_step_check(run, FB_LOSS, grads, 1, &err), FB_E_ORDER, "no step is open");
    world_close(&w);
}

static void test_misuse__bad_views_are_refused_and_nothing_is_looked_at(void **state)
{
    world w;
    world_rank *r = begun(&w);
    fb_run *run = r->run;
    fb_view views[WORLD_TENSORS];
    fb_layout layout = {1, 0, {3}, {1}};
    double sum_sq = -1.0;
    int64_t words[4];
    fb_verdict verdict = FB_VERDICT_INIT;
    float before = r->grad[0][0];
    (void)state;
    r->grad[0][1] = world_bits(0x7fc00000u); /* a finding, had it been looked at */
    grads_of(r, views);
    views[1].site = 999;
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, views, 2, &err), FB_E_SITE, "site 999");
    grads_of(r, views);
    views[1].dtype = 999;
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, views, 2, &err), FB_E_DTYPE, "999");
    grads_of(r, views);
    views[1].data = NULL;
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, views, 2, &err), FB_E_USAGE, "data NULL");
    grads_of(r, views);
    views[1].device = 0;
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, views, 2, &err), FB_E_USAGE, "device 0");
    grads_of(r, views);
    views[1].layout = &layout;
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, views, 2, &err), FB_E_USAGE, "count is 4");
    EXPECT(fb_step_check(run, FB_LOCAL_GRAD, NULL, 2, &err), FB_E_USAGE, "NULL");
    EXPECT(fb_step_check(run, 42, views, 0, &err), FB_E_USAGE, "42");
    assert_int_equal(run->findings_count, 0);
    r->grad[0][1] = 0.5f;
    grads_of(r, views);
    assert_int_equal(fb_step_check(run, FB_LOCAL_GRAD, views, 2, &err), FB_OK);
    assert_int_equal(fb_step_ballot(run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(run, words, &verdict, &err), FB_OK);
    EXPECT(fb_step_unscale(run, views, 2, 0.0, &sum_sq, &err), FB_E_USAGE, "above 0");
    EXPECT(fb_step_unscale(run, views, 2, (double)world_bits(0x7fc00000u), &sum_sq, &err), FB_E_USAGE, "finite");
    EXPECT(fb_step_unscale(run, views, 2, 0.5, NULL, &err), FB_E_USAGE, "sum_sq is NULL");
    views[1].dtype = FB_F16;
    EXPECT(fb_step_unscale(run, views, 2, 0.5, &sum_sq, &err), FB_E_DTYPE, "f16");
    assert_true(r->grad[0][0] == before && sum_sq == -1.0);
    world_close(&w);
}

static void test_misuse__null_run_is_refused_by_every_call(void **state)
{
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_tokens tokens = FB_TOKENS_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_scaler_state scaler = {1.0, 0, 0};
    fb_site site = FB_SITE_INIT;
    int64_t words[4] = {0};
    int32_t ckpt;
    double sum_sq;
    uint32_t id;
    (void)state;
    EXPECT(fb_run_add_site(NULL, &site, &id, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_run_own(NULL, NULL, 0, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_run_scaler_get(NULL, &scaler, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_run_scaler_set(NULL, &scaler, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_begin(NULL, &step, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_micro(NULL, 0, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_check(NULL, FB_LOSS, NULL, 0, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_check_sampled(NULL, FB_LOSS, NULL, 0, 2, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_check_tokens(NULL, &tokens, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_report(NULL, NULL, 0, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_ballot(NULL, words, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_settle(NULL, words, &verdict, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_unscale(NULL, NULL, 0, 1.0, &sum_sq, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_apply(NULL, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_end(NULL, &result, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_step_abandon(NULL, &err), FB_E_USAGE, "run is NULL");
    EXPECT(fb_run_checkpoint(NULL, "x", 0, &ckpt, &err), FB_E_USAGE, "run is NULL");
    fb_run_close(NULL);
    assert_int_equal(fb_run_evidence_lost(NULL, NULL), 0);
    assert_string_equal(fb_run_folder(NULL), "");
}

static void test_misuse__a_child_made_by_fork_is_refused_and_touches_nothing(void **state)
{
    world w;
    int status = -1;
    pid_t child;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_PROCEED);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fb_step step = FB_STEP_INIT;
        int right = fb_step_begin(w.rank[0].run, &step, &err) == FB_E_FORKED && strstr(err.message, "fork") != NULL;
        fb_run_close(w.rank[0].run);
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_int_equal(fb_run_evidence_lost(w.rank[0].run, NULL), 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misuse__configuration_is_checked_before_anything_is_made),
        cmocka_unit_test(test_misuse__environment_wins_and_its_mistakes_are_told),
        cmocka_unit_test(test_misuse__every_call_out_of_order_names_what_was_expected),
        cmocka_unit_test(test_misuse__bad_views_are_refused_and_nothing_is_looked_at),
        cmocka_unit_test(test_misuse__null_run_is_refused_by_every_call),
        cmocka_unit_test(test_misuse__a_child_made_by_fork_is_refused_and_touches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
