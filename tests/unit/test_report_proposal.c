/* What `why` may claim of an update that was held back beside the state, of what each rank makes of the reduced gradients, and of
 * ranks that part before any number is bad. */
#include "support/world.h"

#include "base/alloc.h"
#include "report/inside.h"

static fb_report *load(const world *w)
{
    char folder[128];
    fb_report *report = NULL;
    fb_error err;
    (void)snprintf(folder, sizeof folder, "%s/test", w->dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    return report;
}

static void assert_shows(const fb_report *report, const char *what)
{
    char *text = NULL;
    assert_int_equal(fb_report_why_text(report, 1000, 0, &text, NULL), FB_OK);
    if (!strstr(text, what)) fail_msg("\"%s\" is not in\n%s", what, text);
    fb_free(text);
}

/* One update up to the gate; rank 1's optimizer then writes an Inf beside the state where `bad` is set, and all ranks propose what
 * they have and vote on it. */
static void propose(world *w, int64_t step, int bad)
{
    fb_error err;
    for (int i = 0; i < w->ranks; i++) world_local(w, i, step, NULL, NULL);
    world_vote(w);
    world_reduce(w);
    world_unscale(w);
    world_vote(w);
    for (int i = 0; i < w->ranks; i++) {
        world_rank *r = &w->rank[i];
        for (int t = 0; t < WORLD_TENSORS; t++) {
            float param[WORLD_ELEMENTS], moment[WORLD_ELEMENTS];
            fb_view beside[2] = {world_view(param, r->param_site[t]), world_view(moment, r->moment_site[t])};
            memcpy(param, r->param[t], sizeof param);
            memcpy(moment, r->moment[t], sizeof moment);
            if (bad && i == 1 && t == 0) param[1] = world_bits(0x7f800000u);
            assert_int_equal(fb_step_check(r->run, FB_UPDATE, beside, 2, &err), FB_OK);
        }
    }
    world_vote(w);
    assert_int_equal(w->rank[0].verdict.action == FB_PROCEED, !bad || w->config.on_bad == FB_ON_BAD_OBSERVE);
}

static void end_step(world *w)
{
    for (int i = 0; i < w->ranks; i++) {
        fb_step_result result = FB_STEP_RESULT_INIT;
        fb_error err;
        (void)fb_step_apply(w->rank[i].run, &err);
        if (fb_step_end(w->rank[i].run, &result, &err) != FB_OK) fail_msg("%s", err.message);
    }
}

static void test_proposal__what_was_held_back_is_no_part_of_the_state(void **state)
{
    world w;
    fb_report *report;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int64_t step = 2; step <= 4; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    propose(&w, 5, 1);
    end_step(&w);
    assert_int_equal(world_step(&w, 6, NULL, NULL), FB_PROCEED);
    report = load(&w);
    assert_int_equal(report->findings[report->first].rec.boundary, FB_UPDATE);
    assert_int_equal(report->parameters, FB_ANSWER_NO);
    assert_int_equal(report->optimizer_state, FB_ANSWER_NO);
    assert_int_equal(report->held_parameter, 1);
    assert_int_equal(report->last_good_step, 6); /* the step after it is as good as those before */
    assert_int_equal(fb_judge_since(report, &report->findings[report->first].rec), 5);
    assert_string_equal(report->samples_why, "it came to be in the update, after the batches of all ranks were joined");
    assert_non_null(strstr(report->cause, "the update that was held back beside the state is not finite"));
    assert_shows(report, "rank 1, update held back, h.0.mlp w");
    assert_shows(report,
                 "parameters no: found in the update that was held back beside it; withheld on 2 of 2 ranks, digests equal");
    assert_shows(report, "h.0.mlp w of the update that was held back.");
    fb_report_free(report);
    world_close(&w);
}

/* Under `observe` it is put in place all the same, and is the state from then on. */
static void test_proposal__what_was_put_in_place_is_the_state(void **state)
{
    world w;
    fb_report *report;
    (void)state;
    world_init(&w, 2);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    propose(&w, 5, 1);
    end_step(&w);
    report = load(&w);
    assert_int_equal(report->parameters, FB_ANSWER_YES);
    assert_int_equal(report->held_parameter, 0);
    assert_string_equal(report->samples_why, "the state was bad, not the batch");
    assert_shows(report, "rank 1, state after the update, h.0.mlp w");
    fb_report_free(report);
    world_close(&w);
}

/* The record of the step is the only one that says whether the state took it. */
static void test_proposal__of_a_step_without_an_end_is_open(void **state)
{
    world w;
    fb_report *report;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    propose(&w, 5, 1);
    report = load(&w);
    assert_int_equal(report->parameters, FB_ANSWER_UNKNOWN);
    assert_int_equal(report->open_parameter, 1);
    assert_non_null(strstr(report->parameters_why, "no record says whether it was put in place"));
    assert_int_equal(report->optimizer_state, FB_ANSWER_NO);
    assert_shows(report, "rank 1, update, h.0.mlp w");
    fb_report_free(report);
    world_close(&w);
}

/* Rank 0 read the whole of a clean proposal that rank 1's withheld: that was no look at its state. */
static void test_proposal__is_no_look_at_the_state(void **state)
{
    world w;
    fb_report *report;
    const fb_rec_finding *first;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 4, NULL, NULL), FB_PROCEED);
    propose(&w, 5, 1);
    end_step(&w);
    for (int i = 0; i < w.ranks; i++) world_local(&w, i, 6, NULL, NULL);
    world_vote(&w);
    world_reduce(&w);
    world_unscale(&w);
    world_vote(&w);
    for (int i = 0; i < w.ranks; i++) {
        fb_view param = world_view(w.rank[i].param[0], w.rank[i].param_site[0]);
        fb_error err;
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_OK);
        if (i == 0) w.rank[0].param[0][1] = world_bits(0x7f800000u);
        assert_int_equal(fb_step_check(w.rank[i].run, FB_UPDATE, &param, 1, &err), FB_OK);
    }
    for (int i = 0; i < w.ranks; i++) {
        fb_step_result result = FB_STEP_RESULT_INIT;
        fb_error err;
        assert_int_equal(fb_step_end(w.rank[i].run, &result, &err), FB_OK);
    }
    report = load(&w);
    first = &report->findings[report->first].rec;
    assert_int_equal(first->step, 6);
    assert_int_equal(first->rank, 0);
    assert_int_equal(report->parameters, FB_ANSWER_YES);
    assert_int_equal(fb_judge_since(report, first), -1);
    fb_report_free(report);
    world_close(&w);
}

/* Each rank makes the norm from the reduced gradients, which are finite. */
static void test_reduced__a_norm_is_no_gradient(void **state)
{
    world w;
    fb_report *report;
    fb_site site = FB_SITE_INIT;
    uint32_t norm_site[2];
    fb_error err;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    site.role = FB_ROLE_BUFFER;
    site.module = "optimizer";
    site.tensor = "grad_norm";
    site.position = 40;
    for (int i = 0; i < 2; i++) assert_int_equal(fb_run_add_site(w.rank[i].run, &site, &norm_site[i], &err), FB_OK);
    for (int i = 0; i < 2; i++) world_local(&w, i, 5, NULL, NULL);
    world_vote(&w);
    world_reduce(&w);
    world_unscale(&w);
    for (int i = 0; i < 2; i++) {
        fb_finding norm = {.size = sizeof norm, .site = norm_site[i], .boundary = FB_REDUCED_GRAD, .kind = FB_KIND_POS_INF};
        norm.count = 1;
        norm.stats.size = sizeof norm.stats;
        assert_int_equal(fb_step_report(w.rank[i].run, &norm, 1, &err), FB_OK);
    }
    world_vote(&w);
    end_step(&w);
    report = load(&w);
    assert_int_equal(report->collective, FB_ANSWER_NO);
    assert_string_equal(report->collective_why, "every reduced gradient of that step was checked and finite");
    assert_string_equal(report->cause_class, "undecidable");
    assert_non_null(strstr(report->cause, "it is no gradient"));
    assert_shows(report, "after the reduction, optimizer grad_norm");
    assert_shows(report, "in optimizer grad_norm after the reduction.");
    fb_report_free(report);
    world_close(&w);
}

static void spoil_sum(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    for (int e = 0; e < WORLD_ELEMENTS; e++) w->rank[rank].grad[0][e] = 3e38f;
}

static void test_reduced__a_gradient_is_still_the_collectives(void **state)
{
    world w;
    fb_report *report;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 5, spoil_sum, NULL), FB_SKIP);
    report = load(&w);
    assert_int_equal(report->collective, FB_ANSWER_YES);
    assert_string_equal(report->collective_why, "the reduced gradient was non-finite on 2 ranks");
    assert_string_equal(report->cause_class, "collective");
    assert_shows(report, "reduced gradient, h.0.mlp w");
    fb_report_free(report);
    world_close(&w);
}

/* ---- ranks that part --------------------------------------------------------------------------------------------------------- */

static fb_report *part(world *w, int ranks, const int64_t *steps, const double *scales)
{
    world_init(w, ranks);
    world_open(w);
    for (int i = 0; i < ranks; i++) {
        fb_step begin = FB_STEP_INIT;
        fb_error err;
        begin.step = steps ? steps[i] : 7;
        begin.known = FB_KNOWN_LOSS_SCALE;
        begin.loss_scale = scales ? scales[i] : 65536.0;
        if (fb_step_begin(w->rank[i].run, &begin, &err) != FB_OK) fail_msg("%s", err.message);
    }
    world_vote(w);
    assert_int_equal(w->rank[0].verdict.action, FB_HALT);
    end_step(w);
    return load(w);
}

static void assert_parted(int ranks, const int64_t *steps, const double *scales, const char *drift, const char *happened)
{
    world w;
    fb_report *report = part(&w, ranks, steps, scales);
    assert_int_equal(report->first, UINT64_MAX);
    assert_string_equal(report->drift, drift);
    assert_string_equal(report->cause_class, "ranks_disagree");
    assert_string_equal(report->cause, drift);
    assert_shows(report, drift);
    assert_shows(report, happened);
    fb_report_free(report);
    world_close(&w);
}

static void test_parted__the_rank_with_another_loss_scale_is_named(void **state)
{
    static const double one[] = {65536, 32768, 65536, 65536}, two[] = {32768, 65536, 65536, 32768, 65536},
                        own[] = {65536, 16384, 65536, 32768, 65536};
    static const char happened[] = "At step 7, the ranks voted with different loss scales.";
    (void)state;
    assert_parted(4, NULL, one, "rank 1 used the loss scale 32768, the other 3 used 65536", happened);
    assert_parted(5, NULL, two, "ranks 0, 3 used the loss scale 32768, the other 3 used 65536", happened);
    assert_parted(5, NULL, own, "ranks 1, 3 differ, and the other 3 used the loss scale 65536", happened);
}

static void test_parted__without_a_majority_nobody_is_named(void **state)
{
    static const double pair[] = {65536, 32768}, halves[] = {65536, 65536, 32768, 32768};
    static const char happened[] = "At step 7, the ranks voted with different loss scales.";
    (void)state;
    assert_parted(2, NULL, pair, "rank 0 used the loss scale 65536 and rank 1 used 32768; it cannot be told which is right",
                  happened);
    assert_parted(
        4, NULL, halves,
        "rank 0 used the loss scale 65536 and rank 2 used 32768, and there is no majority that all records show; it cannot "
        "be told which is right",
        happened);
}

static void test_parted__the_rank_in_another_step_is_named(void **state)
{
    static const int64_t steps[] = {7, 7, 8, 7};
    (void)state;
    assert_parted(4, steps, NULL, "rank 2 came to step 8, the other 3 to step 7", "the ranks voted on different steps.");
}

/* Nobody is halted, and what the ranks had is told all the same. */
static void test_parted__under_observe_as_well(void **state)
{
    world w;
    fb_report *report;
    (void)state;
    world_init(&w, 3);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    for (int64_t step = 7; step <= 9; step++) {
        for (int i = 0; i < w.ranks; i++) {
            fb_step begin = FB_STEP_INIT;
            fb_error err;
            begin.step = step;
            begin.known = FB_KNOWN_LOSS_SCALE;
            begin.loss_scale = i == 2 && step > 7 ? 8.0 : 4.0;
            assert_int_equal(fb_step_begin(w.rank[i].run, &begin, &err), FB_OK);
        }
        world_vote(&w);
        assert_int_not_equal(w.rank[0].verdict.action, FB_HALT);
        end_step(&w);
    }
    report = load(&w);
    assert_int_equal(report->step, 8);
    assert_string_equal(report->drift, "rank 2 used the loss scale 8, the other 2 used 4");
    fb_report_free(report);
    world_close(&w);
}

/* Which rank is wrong is not said where a ledger is missing: most of those that are left is not most of the ranks. */
static void test_parted__a_missing_ledger_leaves_it_open(void **state)
{
    static const double scales[] = {65536, 32768, 65536, 32768};
    world w;
    char path[160];
    fb_report *report = part(&w, 4, NULL, scales);
    (void)state;
    fb_report_free(report);
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r00003.log", w.dir);
    assert_int_equal(unlink(path), 0);
    report = load(&w);
    assert_non_null(strstr(report->drift, "it cannot be told which is right"));
    fb_report_free(report);
    world_close(&w);
}

static void test_parted__the_rank_with_another_policy_is_named(void **state)
{
    world w;
    fb_report *report;
    (void)state;
    world_init(&w, 3);
    for (int i = 0; i < w.ranks; i++) {
        fb_error err;
        w.config.rank = i;
        w.config.max_skips = i == 2 ? 9 : 3;
        if (fb_run_open_with(&w.rank[i].run, &w.config, w.os, &err) != FB_OK) fail_msg("%s", err.message);
        world_sites(&w.rank[i]);
    }
    for (int i = 0; i < w.ranks; i++) {
        fb_step begin = FB_STEP_INIT;
        fb_error err;
        begin.step = 7;
        assert_int_equal(fb_step_begin(w.rank[i].run, &begin, &err), FB_OK);
    }
    world_vote(&w);
    end_step(&w);
    report = load(&w);
    assert_int_equal(report->parted, FB_PARTED_POLICY);
    assert_non_null(strstr(report->drift, "rank 2 had the policy on_bad "));
    assert_non_null(strstr(report->drift, "max_skips 9"));
    assert_non_null(strstr(report->drift, "the other 2 had on_bad "));
    fb_report_free(report);
    world_close(&w);
}

/* A disagreement that no record explains is told without a rank. */
static void test_parted__equal_ones_are_not_told_apart(void **state)
{
    world w;
    fb_report *report;
    int64_t words[2][4];
    fb_error err;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int i = 0; i < 2; i++) {
        fb_step begin = FB_STEP_INIT;
        begin.step = 7;
        assert_int_equal(fb_step_begin(w.rank[i].run, &begin, &err), FB_OK);
        assert_int_equal(fb_step_ballot(w.rank[i].run, words[i], &err), FB_OK);
    }
    words[0][1] ^= 1; /* a word that was changed on its way */
    for (int i = 0; i < 2; i++) {
        fb_verdict verdict = FB_VERDICT_INIT;
        assert_int_equal(fb_step_settle(w.rank[i].run, words[0], &verdict, &err), FB_OK);
        assert_int_equal(verdict.action, FB_HALT);
    }
    end_step(&w);
    report = load(&w);
    assert_true(report->has_case);
    assert_int_equal(report->drift[0], 0);
    assert_string_equal(report->cause_class, "undecidable");
    fb_report_free(report);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proposal__what_was_held_back_is_no_part_of_the_state),
        cmocka_unit_test(test_proposal__what_was_put_in_place_is_the_state),
        cmocka_unit_test(test_proposal__of_a_step_without_an_end_is_open),
        cmocka_unit_test(test_proposal__is_no_look_at_the_state),
        cmocka_unit_test(test_reduced__a_norm_is_no_gradient),
        cmocka_unit_test(test_reduced__a_gradient_is_still_the_collectives),
        cmocka_unit_test(test_parted__the_rank_with_another_loss_scale_is_named),
        cmocka_unit_test(test_parted__without_a_majority_nobody_is_named),
        cmocka_unit_test(test_parted__the_rank_in_another_step_is_named),
        cmocka_unit_test(test_parted__under_observe_as_well),
        cmocka_unit_test(test_parted__a_missing_ledger_leaves_it_open),
        cmocka_unit_test(test_parted__the_rank_with_another_policy_is_named),
        cmocka_unit_test(test_parted__equal_ones_are_not_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
