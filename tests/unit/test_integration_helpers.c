/* The short calls, used as a trainer of one process uses them, and the mistakes that can be made with them. */
#include "support/world.h"

static fb_error err;

static fb_run_config config_in(world *w)
{
    world_init(w, 1);
    w->config.run_id = NULL;
    w->config.rank = 5; /* must not be read */
    w->config.world = 9;
    w->config.attempt = -4;
    return w->config;
}

static int file_exists(const char *folder, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void test_helpers__a_view_initialiser_sets_every_field(void **state)
{
    float x[3] = {1.0f, 2.0f, 3.0f};
    fb_view view = FB_VIEW_INIT(x, 3, FB_F32, 7), by_hand;
    (void)state;
    memset(&by_hand, 0, sizeof by_hand);
    by_hand.data = x;
    by_hand.count = 3;
    by_hand.dtype = FB_F32;
    by_hand.site = 7;
    by_hand.device = -1;
    assert_memory_equal(&view, &by_hand, sizeof view);
    assert_int_equal(((fb_view)FB_VIEW_INIT(NULL, 0, FB_BF16, 2)).device, -1);
}

static void test_helpers__open_alone_needs_no_configuration_but_the_environment_wins(void **state)
{
    fb_run *run = NULL, *again = NULL;
    world w;
    fb_run_config config = config_in(&w);
    (void)state;
    assert_int_equal(fb_run_open_alone(&run, &config, &err), FB_OK); /* no id: a fresh one */
    assert_true(file_exists(fb_run_folder(run), "ledger/a1/r00000.log"));
    fb_run_close(run);
    setenv("FIRSTBAD_DIR", w.dir, 1);
    setenv("FIRSTBAD_RUN_ID", "named", 1);
    assert_int_equal(fb_run_open_alone(&run, NULL, &err), FB_OK);
    assert_int_equal(fb_run_open_alone(&again, NULL, &err), FB_OK); /* a second launch while the first still runs */
    assert_true(file_exists(w.dir, "named/ledger/a1/r00000.log"));
    assert_true(file_exists(w.dir, "named/ledger/a2/r00000.log"));
    fb_run_close(again);
    fb_run_close(run);
    setenv("FIRSTBAD_ATTEMPT", "7", 1);
    assert_int_equal(fb_run_open_alone(&run, NULL, &err), FB_OK);
    assert_true(file_exists(w.dir, "named/ledger/a7/r00000.log"));
    fb_run_close(run);
    assert_int_equal(fb_run_open_alone(&run, NULL, &err), FB_E_EXISTS); /* a number given twice is a second writer */
    assert_null(run);
    unsetenv("FIRSTBAD_DIR");
    unsetenv("FIRSTBAD_RUN_ID");
    unsetenv("FIRSTBAD_ATTEMPT");
}

static void test_helpers__open_alone_goes_on_where_nothing_can_be_written(void **state)
{
    fb_run *run = NULL;
    world w;
    fb_run_config config = config_in(&w);
    (void)state;
    config.dir = "/dev/null/runs";
    assert_int_equal(fb_run_open_alone(&run, &config, &err), FB_OK);
    assert_true(fb_run_evidence_lost(run, &err) > 0);
    assert_non_null(strstr(err.message, "/dev/null"));
    assert_int_equal(run->attempt, INT32_MAX); /* a number that no launch is given */
    fb_run_close(run);
}

static void test_helpers__open_alone_refuses_what_open_refuses(void **state)
{
    fb_run *run = (fb_run *)&err;
    world w;
    fb_run_config config = config_in(&w);
    (void)state;
    assert_int_equal(fb_run_open_alone(NULL, &config, &err), FB_E_USAGE);
    config.run_id = "../up";
    assert_int_equal(fb_run_open_alone(&run, &config, &err), FB_E_USAGE);
    assert_null(run);
    config.run_id = NULL;
    config.size = 3;
    assert_int_equal(fb_run_open_alone(&run, &config, &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "FB_RUN_CONFIG_INIT"));
    assert_int_equal(rmdir(w.dir), 0); /* still empty */
}

/* What a trainer of one process holds: two gradients, two parameters, a batch. */
typedef struct alone {
    fb_run *run;
    float param[2][4], grad[2][4];
    int32_t tokens[4], labels[4];
    fb_view grads[2], params[2], batch;
} alone;

static void alone_open(alone *a, world *w)
{
    const char *modules[2] = {"h.0", "h.1"};
    fb_run_config config = config_in(w);
    memset(a, 0, sizeof *a);
    assert_int_equal(fb_run_open_alone(&a->run, &config, &err), FB_OK);
    assert_int_equal(fb_run_name_view(a->run, FB_ROLE_INPUT, "", "tokens", &a->batch, &err), FB_OK);
    for (int i = 0; i < 2; i++) {
        a->grads[i] = (fb_view)FB_VIEW_INIT(a->grad[i], 4, FB_F32, 0);
        a->params[i] = (fb_view)FB_VIEW_INIT(a->param[i], 4, FB_F32, 0);
        assert_int_equal(fb_run_name_view(a->run, FB_ROLE_GRADIENT, modules[i], "w", &a->grads[i], &err), FB_OK);
        assert_int_equal(fb_run_name_view(a->run, FB_ROLE_PARAMETER, modules[i], "w", &a->params[i], &err), FB_OK);
    }
    assert_int_equal(fb_run_own(a->run, a->params, 2, &err), FB_OK);
}

/* One step as docs/integrating.md has it. Returns the action; 1 in *computed when forward and backward were reached. */
static int32_t alone_step(alone *a, int64_t number, int *computed)
{
    fb_step step = FB_STEP_INIT;
    fb_tokens tokens = FB_TOKENS_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    step.step = number;
    assert_int_equal(fb_step_begin(a->run, &step, &err), FB_OK);
    tokens.site = a->batch.site;
    tokens.rows = 1;
    tokens.cols = 4;
    tokens.tokens = a->tokens;
    tokens.labels = a->labels;
    tokens.vocab = tokens.classes = 16;
    assert_int_equal(fb_step_check_tokens(a->run, &tokens, &err), FB_OK);
    *computed = fb_step_findings(a->run) == 0;
    if (*computed) assert_int_equal(fb_step_check(a->run, FB_LOCAL_GRAD, a->grads, 2, &err), FB_OK);
    assert_int_equal(fb_step_vote_alone(a->run, &verdict, &err), FB_OK);
    if (verdict.action == FB_PROCEED) {
        assert_int_equal(fb_step_apply(a->run, &err), FB_OK);
        a->param[0][0] += 1.0f;
    }
    assert_int_equal(fb_step_end(a->run, &result, &err), FB_OK);
    return verdict.action;
}

static void test_helpers__names_given_by_view_are_sites_in_the_order_of_the_calls(void **state)
{
    alone a;
    world w;
    (void)state;
    alone_open(&a, &w);
    assert_int_equal(a.batch.site, 0);
    assert_int_equal(a.grads[1].site, 3);
    assert_string_equal(fb_sites_get(&a.run->sites, 3)->module, "h.1");
    assert_string_equal(fb_sites_get(&a.run->sites, 3)->tensor, "w");
    assert_int_equal(fb_sites_get(&a.run->sites, 3)->role, FB_ROLE_GRADIENT);
    assert_int_equal(fb_sites_get(&a.run->sites, 3)->position, 3);
    assert_int_equal(a.run->gradient_sites, 2);
    fb_run_close(a.run);
}

static void test_helpers__a_vote_alone_lets_a_clean_update_through_as_gated(void **state)
{
    alone a;
    world w;
    int computed;
    (void)state;
    alone_open(&a, &w);
    assert_int_equal(alone_step(&a, 0, &computed), FB_PROCEED);
    assert_int_equal(computed, 1);
    assert_int_equal(a.run->step.rec.agreement, FB_AGREE_VOTE);
    assert_int_equal(a.run->step.rec.unanimous, 1);
    assert_int_equal(a.run->step.rec.flags & FB_STEP_GATED, FB_STEP_GATED);
    fb_run_close(a.run);
}

static void test_helpers__findings_are_known_before_the_vote_and_forgotten_with_the_step(void **state)
{
    alone a;
    world w;
    int computed;
    (void)state;
    alone_open(&a, &w);
    a.tokens[2] = 16;
    assert_int_equal(alone_step(&a, 0, &computed), FB_SKIP);
    assert_int_equal(computed, 0); /* no lookup with a token that has no row */
    assert_int_equal(fb_step_findings(a.run), 0);
    a.tokens[2] = 15;
    assert_int_equal(alone_step(&a, 1, &computed), FB_PROCEED);
    assert_int_equal(computed, 1);
    memset(&a.grad[1][3], 0xff, sizeof a.grad[1][3]); /* a NaN */
    assert_int_equal(alone_step(&a, 2, &computed), FB_SKIP);
    assert_int_equal(fb_step_findings(NULL), 0);
    fb_run_close(a.run);
}

static void test_helpers__a_vote_alone_is_refused_where_others_vote(void **state)
{
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step step = FB_STEP_INIT;
    world w;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(fb_step_begin(w.rank[0].run, &step, &err), FB_OK);
    assert_int_equal(fb_step_vote_alone(w.rank[0].run, &verdict, &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "2 ranks"));
    assert_int_equal(verdict.action, FB_HALT);
    assert_int_equal(w.rank[0].run->step.ballot_out, 0); /* nothing was given out: the right call still works */
    world_close(&w);
}

static void test_helpers__a_vote_alone_without_agreement_halts_the_rank_that_sees_the_fault(void **state)
{
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step step = FB_STEP_INIT;
    fb_view grads[1];
    world w;
    (void)state;
    world_init(&w, 2);
    w.config.agreement = FB_AGREE_NONE;
    world_open(&w);
    world_backward(&w.rank[0]);
    memset(&w.rank[0].grad[0][1], 0xff, sizeof(float));
    grads[0] = world_view(w.rank[0].grad[0], w.rank[0].grad_site[0]);
    assert_int_equal(fb_step_begin(w.rank[0].run, &step, &err), FB_OK);
    assert_int_equal(fb_step_check(w.rank[0].run, FB_LOCAL_GRAD, grads, 1, &err), FB_OK);
    assert_int_equal(fb_step_vote_alone(w.rank[0].run, &verdict, &err), FB_OK);
    assert_int_equal(verdict.action, FB_HALT);
    assert_int_equal(verdict.agreement, FB_AGREE_NONE);
    world_close(&w);
}

static void test_helpers__misuse_has_a_status_and_changes_nothing(void **state)
{
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_view view = FB_VIEW_INIT(NULL, 0, FB_F32, 77);
    alone a;
    world w;
    (void)state;
    alone_open(&a, &w);
    assert_int_equal(fb_step_vote_alone(NULL, &verdict, &err), FB_E_USAGE);
    assert_int_equal(fb_step_vote_alone(a.run, &verdict, &err), FB_E_ORDER); /* no step is open */
    assert_int_equal(verdict.action, FB_HALT);
    assert_int_equal(fb_run_name_view(a.run, FB_ROLE_GRADIENT, "h.2", "w", NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_run_name_view(NULL, FB_ROLE_GRADIENT, "h.2", "w", &view, &err), FB_E_USAGE);
    assert_int_equal(fb_run_name_view(a.run, 99, "h.2", "w", &view, &err), FB_E_USAGE);
    assert_int_equal(view.site, 77);
    assert_int_equal(a.run->sites.count, 5);
    fb_run_close(a.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_helpers__a_view_initialiser_sets_every_field),
        cmocka_unit_test(test_helpers__open_alone_needs_no_configuration_but_the_environment_wins),
        cmocka_unit_test(test_helpers__open_alone_goes_on_where_nothing_can_be_written),
        cmocka_unit_test(test_helpers__open_alone_refuses_what_open_refuses),
        cmocka_unit_test(test_helpers__names_given_by_view_are_sites_in_the_order_of_the_calls),
        cmocka_unit_test(test_helpers__a_vote_alone_lets_a_clean_update_through_as_gated),
        cmocka_unit_test(test_helpers__findings_are_known_before_the_vote_and_forgotten_with_the_step),
        cmocka_unit_test(test_helpers__a_vote_alone_is_refused_where_others_vote),
        cmocka_unit_test(test_helpers__a_vote_alone_without_agreement_halts_the_rank_that_sees_the_fault),
        cmocka_unit_test(test_helpers__misuse_has_a_status_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
