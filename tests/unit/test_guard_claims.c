/* Clean, gated, full, before: words that the guard may use only for what was looked at, and call sequences that tempt it. */
#include <fenv.h>
#include <math.h>

#include "support/world.h"

#include "guard/risk.h"
#include "log/log.h"

static fb_error err;

static uint32_t add(fb_run *run, int32_t role, const char *tensor, uint32_t legal, int64_t position)
{
    fb_site site = FB_SITE_INIT;
    uint32_t id = 0;
    site.role = role;
    site.module = "m";
    site.tensor = tensor;
    site.legal = legal;
    site.position = position;
    assert_int_equal(fb_run_add_site(run, &site, &id, &err), FB_OK);
    return id;
}

static void begin_of(fb_run *run, int64_t number, int32_t micro_steps)
{
    fb_step step = FB_STEP_INIT;
    step.step = number;
    step.micro_steps = micro_steps;
    if (fb_step_begin(run, &step, &err) != FB_OK) fail_msg("%s", err.message);
}

static fb_verdict vote(fb_run *run)
{
    fb_verdict verdict = FB_VERDICT_INIT;
    if (fb_step_vote_alone(run, &verdict, &err) != FB_OK) fail_msg("%s", err.message);
    return verdict;
}

static void end_of(fb_run *run)
{
    fb_step_result result = FB_STEP_RESULT_INIT;
    if (fb_step_end(run, &result, &err) != FB_OK) fail_msg("%s", err.message);
}

static void check(fb_run *run, int32_t boundary, void *data, uint32_t site)
{
    fb_view view = world_view(data, site);
    if (fb_step_check(run, boundary, &view, 1, &err) != FB_OK) fail_msg("%s", err.message);
}

static void check_gradients(world_rank *r)
{
    for (int t = 0; t < WORLD_TENSORS; t++) check(r->run, FB_LOCAL_GRAD, r->grad[t], r->grad_site[t]);
}

static world_rank *one_rank(world *w)
{
    world_init(w, 1);
    world_open(w);
    world_backward(&w->rank[0]);
    return &w->rank[0];
}

static const fb_cover *cover_of(world_rank *r)
{
    return &r->run->step.rec.cover;
}

/* ---- what nobody read is not clean ------------------------------------------------------------------------------------------- */

static void test_claims__a_view_that_the_scanner_would_refuse_is_refused_and_not_called_clean(void **state)
{
    static const fb_layout far = {1, 0, {4}, {INT64_MAX / 2}};
    world w;
    world_rank *r = one_rank(&w);
    fb_view view = world_view(r->grad[0], r->grad_site[0]);
    (void)state;
    memset(r->grad[0], 0xff, sizeof r->grad[0]); /* NaN everywhere */
    begin_of(r->run, 1, 1);
    view.flags = 1;
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, &view, 1, &err), FB_E_USAGE);
    view.flags = 0;
    view.layout = &far;
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, &view, 1, &err), FB_E_USAGE);
    view.layout = NULL;
    view.count = UINT64_MAX / 8;
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, &view, 1, &err), FB_E_USAGE);
    assert_int_equal(cover_of(r)->level[FB_LOCAL_GRAD], FB_COVER_NONE);
    assert_int_equal(cover_of(r)->tensors[FB_LOCAL_GRAD], 0);
    world_close(&w);
}

static void test_claims__a_batch_without_arrays_or_elements_covers_nothing(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    fb_tokens batch = world_batch(r);
    (void)state;
    begin_of(r->run, 1, 1);
    batch.tokens = batch.labels = NULL;
    assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
    assert_int_equal(cover_of(r)->level[FB_INPUT], FB_COVER_NONE);
    batch = world_batch(r);
    batch.rows = 0;
    assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
    assert_int_equal(cover_of(r)->level[FB_INPUT], FB_COVER_NONE);
    batch = world_batch(r);
    assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
    assert_int_equal(cover_of(r)->level[FB_INPUT], FB_COVER_FULL);
    assert_int_equal(cover_of(r)->tensors[FB_INPUT], 1);
    world_close(&w);
}

static void test_claims__integer_gradients_do_not_gate_an_update(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    fb_view views[WORLD_TENSORS];
    (void)state;
    for (int t = 0; t < WORLD_TENSORS; t++) {
        views[t] = world_view(r->grad[t], r->grad_site[t]);
        views[t].dtype = t ? FB_I32 : FB_F32; /* the bits of a float, by mistake */
    }
    begin_of(r->run, 1, 1);
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, views, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(vote(r->run).action, FB_PROCEED);
    assert_int_equal(cover_of(r)->level[FB_LOCAL_GRAD], FB_COVER_SAMPLED);
    assert_int_equal(cover_of(r)->unchecked, 1);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_false(r->run->step.rec.flags & FB_STEP_GATED);
    assert_int_equal(r->run->ungated, 1);
    end_of(r->run);
    world_close(&w);
}

static void test_claims__gradients_that_are_all_exempt_do_not_gate_an_update(void **state)
{
    world w;
    fb_run *run;
    float bad[WORLD_ELEMENTS];
    uint32_t site;
    fb_view view;
    double sum_sq;
    (void)state;
    memset(bad, 0xff, sizeof bad);
    world_init(&w, 1);
    assert_int_equal(fb_run_open(&w.rank[0].run, &w.config, &err), FB_OK);
    run = w.rank[0].run;
    site = add(run, FB_ROLE_GRADIENT, "g", FB_LEGAL_EXEMPT, 1);
    begin_of(run, 1, 1);
    check(run, FB_LOCAL_GRAD, bad, site);
    assert_int_equal(vote(run).action, FB_PROCEED);
    view = world_view(bad, site);
    assert_int_equal(fb_step_unscale(run, &view, 1, 1.0, &sum_sq, &err), FB_OK);
    assert_int_equal(vote(run).action, FB_PROCEED);
    assert_int_equal(fb_step_apply(run, &err), FB_OK);
    assert_int_equal(run->step.rec.cover.level[FB_LOCAL_GRAD], FB_COVER_NONE);
    assert_int_equal(run->step.rec.cover.level[FB_REDUCED_GRAD], FB_COVER_NONE);
    assert_false(run->step.rec.flags & FB_STEP_GATED);
    world_close(&w);
}

/* ---- the witness ------------------------------------------------------------------------------------------------------------- */

static void test_claims__tensors_that_are_absent_exempt_or_integers_are_no_witnesses(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    uint32_t exempt = add(r->run, FB_ROLE_ACTIVATION, "exempt", FB_LEGAL_EXEMPT, 1),
             ids = add(r->run, FB_ROLE_ACTIVATION, "ids", 0, 2);
    fb_view none = world_view(NULL, add(r->run, FB_ROLE_ACTIVATION, "none", 0, 3)), integers = world_view(r->tokens, ids);
    uint32_t good = add(r->run, FB_ROLE_ACTIVATION, "good", 0, 4), bad = add(r->run, FB_ROLE_ACTIVATION, "bad", 0, 5);
    float data[WORLD_ELEMENTS];
    (void)state;
    none.count = 0;
    integers.dtype = FB_I32;
    memset(data, 0xff, sizeof data);
    begin_of(r->run, 1, 1);
    check(r->run, FB_INPUT, data, exempt);
    check(r->run, FB_FORWARD, data, exempt);
    assert_int_equal(fb_step_check(r->run, FB_FORWARD, &none, 1, &err), FB_OK);
    assert_int_equal(fb_step_check(r->run, FB_FORWARD, &integers, 1, &err), FB_OK);
    check(r->run, FB_FORWARD, r->grad[0], good);
    check(r->run, FB_FORWARD, data, bad);
    (void)vote(r->run);
    assert_int_equal(r->run->findings[0].tensors_before, 1 + 2 * WORLD_TENSORS); /* "good", and the owned state */
    assert_int_equal(r->run->findings[0].clean_before, 1u << FB_ENTRY);
    assert_int_equal(r->run->findings[0].sampled_before, 0);
    world_close(&w);
}

static void test_claims__a_forward_pass_looked_at_later_is_no_witness_for_an_earlier_micro_step(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    uint32_t act = add(r->run, FB_ROLE_ACTIVATION, "act", 0, 5);
    fb_tokens batch = world_batch(r);
    float data[WORLD_ELEMENTS] = {1, 1, 1, 1};
    (void)state;
    begin_of(r->run, 1, 2);
    assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
    r->grad[0][1] = world_bits(0x7fc00000u);
    check_gradients(r);
    assert_int_equal(fb_step_micro(r->run, 1, &err), FB_OK);
    assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
    check(r->run, FB_FORWARD, data, act);
    check_gradients(r);
    (void)vote(r->run);
    assert_int_equal(r->run->findings[0].micro_step, 0);
    assert_true(r->run->findings[0].clean_before & (1u << FB_INPUT)); /* in both */
    assert_false(r->run->findings[0].clean_before & (1u << FB_FORWARD));
    assert_int_equal(cover_of(r)->level[FB_FORWARD], FB_COVER_SAMPLED);
    assert_int_equal(cover_of(r)->level[FB_INPUT], FB_COVER_FULL);
    /* The batch, the owned state, and the gradient nearer to the loss; the activation was read too late. */
    assert_int_equal(r->run->findings[0].tensors_before, 1 + 2 * WORLD_TENSORS + 1);
    assert_int_equal(cover_of(r)->tensors[FB_LOCAL_GRAD], WORLD_TENSORS); /* distinct ones, not one for each micro-step */
    world_close(&w);
}

static void test_claims__reports_out_of_order_still_name_the_first_micro_step(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    fb_finding finding;
    (void)state;
    memset(&finding, 0, sizeof finding);
    finding.size = (uint32_t)sizeof finding;
    finding.stats.size = (uint32_t)sizeof finding.stats;
    finding.site = r->grad_site[0];
    finding.boundary = FB_LOCAL_GRAD;
    finding.kind = FB_KIND_NAN;
    begin_of(r->run, 1, 4);
    finding.micro_step = 4;
    assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_step_findings(r->run), 0);
    for (int micro = 3; micro > 0; micro--) {
        finding.micro_step = micro;
        finding.first_index = (uint64_t)micro;
        assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_OK);
    }
    assert_int_equal(vote(r->run).first_micro_step, 1);
    assert_int_equal(r->run->findings_count, 1);
    assert_int_equal(r->run->findings[0].first_index, 1);
    world_close(&w);
}

/* ---- gated ------------------------------------------------------------------------------------------------------------------- */

static void nan_label_on_rank_1(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == 1) w->rank[1].labels[2] = 100000;
}

static void test_claims__observing_what_another_rank_found_is_no_gate(void **state)
{
    world w;
    char first_case[32];
    (void)state;
    world_init(&w, 2);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    for (int i = 0; i < 2; i++) assert_int_equal(w.rank[i].run->ungated, 0);
    assert_int_equal(world_step(&w, 2, nan_label_on_rank_1, NULL), FB_PROCEED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.rank[i].applied, FB_OK);
        assert_false(w.rank[i].run->step.rec.flags & FB_STEP_GATED);
        assert_int_equal(w.rank[i].run->ungated, 1);
    }
    /* The case goes on, under the same name on both. */
    memcpy(first_case, w.rank[1].run->case_id, sizeof first_case);
    assert_string_equal(first_case, "a1-000002");
    assert_int_equal(world_step(&w, 3, nan_label_on_rank_1, NULL), FB_PROCEED);
    for (int i = 0; i < 2; i++) assert_string_equal(w.rank[i].verdict.case_id, first_case);
    world_close(&w);
}

static void test_claims__a_failed_vote_that_is_only_observed_is_no_gate(void **state)
{
    world w;
    world_rank *r;
    int64_t words[4];
    fb_verdict verdict = FB_VERDICT_INIT;
    (void)state;
    world_init(&w, 1);
    w.config.on_bad = FB_ON_BAD_OBSERVE;
    world_open(&w);
    r = &w.rank[0];
    world_backward(r);
    begin_of(r->run, 1, 1);
    check_gradients(r);
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(r->run, NULL, &verdict, &err), FB_OK);
    assert_int_equal(verdict.action, FB_PROCEED);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_false(r->run->step.rec.flags & FB_STEP_GATED);
    assert_int_equal(r->run->ungated, 1);
    world_close(&w);
}

static void test_claims__a_finding_voted_on_after_the_update_taints_every_rank(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int i = 0; i < 2; i++) world_local(&w, i, 1, NULL, NULL);
    world_vote(&w);
    world_reduce(&w);
    world_unscale(&w);
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_OK);
        assert_true(w.rank[i].run->step.rec.flags & FB_STEP_GATED);
    }
    w.rank[1].param[0][2] = world_bits(0x7f800000u);
    for (int i = 0; i < 2; i++) check(w.rank[i].run, FB_UPDATE, w.rank[i].param[0], w.rank[i].param_site[0]);
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.rank[i].verdict.first_rank, 1);
        assert_int_equal(w.rank[i].run->ungated, 1);
        assert_false(w.rank[i].run->step.rec.flags & FB_STEP_GATED);
        end_of(w.rank[i].run);
    }
    world_close(&w);
}

static void test_claims__findings_after_a_verdict_to_withhold_blame_neither_the_state_nor_the_next_step(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    (void)state;
    begin_of(r->run, 1, 1);
    r->grad[1][0] = r->grad[0][0] = world_bits(0x7fc00000u);
    check(r->run, FB_LOCAL_GRAD, r->grad[1], r->grad_site[1]);
    assert_int_equal(vote(r->run).action, FB_SKIP);
    check(r->run, FB_LOCAL_GRAD, r->grad[0], r->grad_site[0]); /* the flag of this one arrived late */
    end_of(r->run);
    assert_int_equal(r->run->ungated, 0);
    world_backward(r);
    begin_of(r->run, 2, 1);
    check_gradients(r);
    assert_int_equal(vote(r->run).clean, 1);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    end_of(r->run);
    world_close(&w);
}

static void test_claims__a_spokesman_from_outside_the_run_is_a_corrupted_word(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    int64_t words[4];
    uint32_t clamped;
    fb_verdict verdict = FB_VERDICT_INIT;
    (void)state;
    begin_of(r->run, 1, 1);
    r->grad[0][0] = world_bits(0x7fc00000u);
    check_gradients(r);
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    words[0] = fb_vote_key(0, FB_INPUT, 0, 7, &clamped);
    assert_int_equal(fb_step_settle(r->run, words, &verdict, &err), FB_OK);
    assert_int_equal(verdict.action, FB_HALT);
    assert_int_equal(verdict.unanimous, 0);
    assert_int_equal(verdict.first_rank, -1);
    world_close(&w);
}

static int32_t saved_by_rank_0(world *w, int64_t step)
{
    char path[160];
    int32_t state = 0;
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}      ";
    uint64_t bytes = sizeof header - 1;
    float value = 1.5f;
    FILE *file;
    (void)snprintf(path, sizeof path, "%s/step-%d.safetensors", w->dir, (int)step);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&bytes, 8, 1, file), 1);
    assert_int_equal(fwrite(header, bytes, 1, file), 1);
    assert_int_equal(fwrite(&value, 4, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    if (fb_run_checkpoint(w->rank[0].run, path, step, &state, &err) != FB_OK) fail_msg("%s", err.message);
    return state;
}

static void test_claims__a_checkpoint_is_not_committed_when_another_rank_covered_less(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_int_equal(saved_by_rank_0(&w, 1), FB_CKPT_COMMITTED);
    for (int i = 0; i < 2; i++) world_local(&w, i, 2, NULL, NULL);
    world_vote(&w);
    world_reduce(&w);
    for (int i = 0; i < 2; i++) {
        fb_view grads[WORLD_TENSORS];
        double sum_sq;
        for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(w.rank[i].grad[t], w.rank[i].grad_site[t]);
        assert_int_equal(fb_step_unscale(w.rank[i].run, grads, i == 0 ? WORLD_TENSORS : 1, 0.5, &sum_sq, &err), FB_OK);
    }
    world_vote(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_step_apply(w.rank[i].run, &err), FB_OK);
        end_of(w.rank[i].run);
    }
    assert_int_equal(w.rank[0].run->ungated, 0); /* as far as it knows */
    assert_int_equal(saved_by_rank_0(&w, 2), FB_CKPT_SUSPECT);
    assert_int_equal(world_step(&w, 3, NULL, NULL), FB_PROCEED);
    assert_int_equal(saved_by_rank_0(&w, 3), FB_CKPT_SUSPECT); /* it descends from there */
    world_close(&w);
}

/* The doubt about a checkpoint passes on to what an attempt that came from it saves. */
static void test_claims__what_descends_from_a_suspect_checkpoint_is_suspect_in_the_next_attempt(void **state)
{
    for (int covered = 0; covered < 2; covered++) {
        world w;
        fb_step step = FB_STEP_INIT;
        int64_t parent = 1;
        (void)state;
        world_init(&w, 1);
        w.skip_reduced = 0;
        w.config.on_bad = covered ? FB_ON_BAD_SKIP : FB_ON_BAD_OBSERVE;
        world_open(&w);
        if (!covered) { w.rank[0].run->ungated = 1; /* an update went through that was only observed */ }
        assert_int_equal(world_step(&w, parent, NULL, NULL), FB_PROCEED);
        assert_int_equal(saved_by_rank_0(&w, parent), covered ? FB_CKPT_COMMITTED : FB_CKPT_SUSPECT);
        fb_run_close(w.rank[0].run);
        w.config.attempt = 2;
        w.config.on_bad = FB_ON_BAD_SKIP;
        world_open(&w);
        step.step = 2;
        step.known = FB_KNOWN_CHECKPOINT_PARENT;
        step.checkpoint_parent = parent;
        assert_int_equal(fb_step_begin(w.rank[0].run, &step, &err), FB_OK);
        world_vote(&w);
        assert_int_equal(fb_step_apply(w.rank[0].run, &err), FB_OK);
        end_of(w.rank[0].run);
        w.rank[0].run->ungated = 0; /* this short step looked at no gradient; what is tested is the parent alone */
        assert_int_equal(saved_by_rank_0(&w, 2), covered ? FB_CKPT_COMMITTED : FB_CKPT_SUSPECT);
        world_close(&w);
    }
}

/* ---- nothing half done, nothing lost ----------------------------------------------------------------------------------------- */

static void test_claims__an_unscale_that_is_refused_has_multiplied_nothing(void **state)
{
    enum { VIEWS = 100 };
    static const fb_layout expanded = {1, 0, {4}, {0}};
    world w;
    world_rank *r = one_rank(&w);
    static float data[VIEWS][WORLD_ELEMENTS];
    fb_view views[VIEWS];
    double sum_sq;
    (void)state;
    for (int i = 0; i < VIEWS; i++) {
        for (int e = 0; e < WORLD_ELEMENTS; e++) data[i][e] = 2.0f;
        views[i] = world_view(data[i], r->grad_site[0]);
    }
    views[VIEWS - 1].layout = &expanded; /* four elements that share one place */
    begin_of(r->run, 1, 1);
    check_gradients(r);
    assert_int_equal(vote(r->run).action, FB_PROCEED);
    assert_int_equal(fb_step_unscale(r->run, views, VIEWS, 0.5, &sum_sq, &err), FB_E_USAGE);
    for (int i = 0; i < VIEWS; i++) assert_true(data[i][0] >= 2.0f);
    assert_int_equal(cover_of(r)->tensors[FB_REDUCED_GRAD], 0);
    world_close(&w);
}

static void test_claims__sampling_visits_every_tensor_whatever_the_numbers_of_the_steps(void **state)
{
    enum { TENSORS = 6, PERIOD = 3 };
    world w;
    world_rank *r = one_rank(&w);
    fb_view views[TENSORS];
    float data[TENSORS][WORLD_ELEMENTS] = {{0}};
    int visits[TENSORS] = {0};
    (void)state;
    for (int i = 0; i < TENSORS; i++) views[i] = world_view(data[i], add(r->run, FB_ROLE_BUFFER, "b", 0, i));
    fb_risk_init(&r->run->risk);
    for (int64_t step = 0; step < PERIOD; step++) {
        begin_of(r->run, 100 + PERIOD * step, 1); /* every third step is sampled */
        assert_int_equal(fb_step_check_sampled(r->run, FB_ENTRY, views, TENSORS, PERIOD, &err), FB_OK);
        for (int i = 0; i < TENSORS; i++) {
            visits[i] += r->run->read[views[i].site * FB_BOUNDARIES + FB_ENTRY] == r->run->step.serial;
        }
        (void)vote(r->run);
        assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
        end_of(r->run);
    }
    for (int i = 0; i < TENSORS; i++) assert_int_equal(visits[i], 1);
    world_close(&w);
}

static void spoil_one(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    if (rank == *(int *)ctx) w->rank[rank].grad[0][1] = world_bits(0x7fc00000u);
}

static void read_file(const world *w, const char *name, char *text, size_t room)
{
    char path[160];
    FILE *file;
    size_t got;
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000005/%s", w->dir, name);
    file = fopen(path, "r");
    text[0] = '\0';
    if (!file) return;
    got = fread(text, 1, room - 1, file);
    text[got] = '\0';
    (void)fclose(file);
}

static void test_claims__a_second_case_of_the_same_step_leaves_the_files_of_the_first_alone(void **state)
{
    static const char *const files[] = {"first_bad.json", "verdict.json", "rank-00000.json", "rank-00001.json"};
    static char before[4][8192], after[4][8192];
    world w;
    int rank = 0;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(world_step(&w, 5, spoil_one, &rank), FB_SKIP);
    for (int i = 0; i < 4; i++) read_file(&w, files[i], before[i], sizeof before[i]);
    assert_non_null(strstr(before[1], "\"first_rank\": 0"));
    assert_int_equal(world_step(&w, 6, NULL, NULL), FB_PROCEED); /* the case is closed */
    rank = 1;
    assert_int_equal(world_step(&w, 5, spoil_one, &rank), FB_SKIP); /* an older state was loaded */
    assert_int_equal(w.rank[0].verdict.first_rank, 1);
    for (int i = 0; i < 4; i++) {
        read_file(&w, files[i], after[i], sizeof after[i]);
        assert_string_equal(before[i], after[i]);
    }
    world_close(&w);
}

static int records_of(const world *w, uint16_t type)
{
    char path[160];
    fb_log_reader *reader;
    fb_log_record record;
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r00000.log", w->dir);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) count += record.type == type;
    fb_log_reader_close(reader);
    return count;
}

static void test_claims__closing_in_the_middle_of_a_step_keeps_what_was_found(void **state)
{
    world w;
    world_rank *r = one_rank(&w);
    (void)state;
    begin_of(r->run, 1, 1);
    memset(r->grad, 0xff, sizeof r->grad);
    check_gradients(r);
    fb_run_close(r->run);
    r->run = NULL;
    assert_int_equal(records_of(&w, FB_REC_FINDING), WORLD_TENSORS);
    world_close(&w);
}

static void test_claims__what_does_not_fit_of_the_description_is_told_and_costs_nothing_else(void **state)
{
    enum { PAIRS = 60 };
    static char value[5000], keys[PAIRS][16];
    fb_pair pairs[PAIRS];
    fb_error why;
    world w;
    (void)state;
    memset(value, 'x', sizeof value - 1);
    for (int i = 0; i < PAIRS; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "key%d", i);
        pairs[i].key = keys[i];
        pairs[i].value = i == 3 ? value : "v";
    }
    world_init(&w, 1);
    w.config.meta = pairs;
    w.config.meta_count = PAIRS;
    world_open(&w);
    assert_int_equal(fb_run_evidence_lost(w.rank[0].run, &why), 1);
    assert_non_null(strstr(why.message, "13 of the caller's pairs")); /* 12 beyond the 48, and the long one */
    assert_int_equal(records_of(&w, FB_REC_RUN), 1);
    world_close(&w);
}

static void test_claims__a_run_that_scales_nothing_opens_with_zeroed_constants(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    memset(&w.config.scaler, 0, sizeof w.config.scaler);
    world_open(&w);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    world_close(&w);
    world_init(&w, 1);
    w.config.scaler.enabled = 1;
    w.config.scaler.init_scale = 0.0;
    assert_int_equal(fb_run_open(&w.rank[0].run, &w.config, &err), FB_E_USAGE);
    world_close(&w);
}

/* ---- a guest in a strict house ----------------------------------------------------------------------------------------------- */

static void test_claims__hosts_that_trap_flush_and_round_upwards_notice_nothing(void **state)
{
    world w;
    world_rank *r;
    fb_tokens batch;
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_scaler_state scaler = {(double)world_bits(0x7fc00000u), 0, 0};
    double nan = (double)world_bits(0x7fc00000u);
    float weights[WORLD_ROWS * WORLD_COLS];
    fenv_t before;
    int traps;
    (void)state;
    memset(weights, 0xff, sizeof weights);
    world_init(&w, 1);
    world_open(&w);
    r = &w.rank[0];
    world_backward(r);
    assert_int_equal(fegetenv(&before), 0);
    (void)feclearexcept(FE_ALL_EXCEPT);
    (void)fesetround(FE_UPWARD);
    (void)feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW);
    traps = fegetexcept(); /* not what was asked for where the processor is emulated */
    assert_int_equal(fb_run_scaler_set(r->run, &scaler, &err), FB_E_USAGE);
    step.known = FB_KNOWN_LOSS_SCALE | FB_KNOWN_LEARNING_RATE;
    for (int64_t number = 1; number <= 2; number++) {
        step.step = number;
        memcpy(&step.loss_scale, &nan, sizeof nan);
        if (number == 2) memcpy(&step.learning_rate, &nan, sizeof nan); /* halts the run, so it comes last */
        assert_int_equal(fb_step_begin(r->run, &step, &err), FB_OK);
        batch = world_batch(r);
        batch.weights = weights;
        assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
        r->grad[0][0] = world_bits(0x7fa00000u); /* signalling */
        r->grad[0][1] = 3e38f;
        r->grad[0][2] = 1e-44f;
        check_gradients(r);
        (void)vote(r->run);
        memcpy(&result.loss, &nan, sizeof nan);
        result.known = FB_KNOWN_LOSS | FB_KNOWN_GRAD_NORM;
        assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
    }
    assert_int_equal(fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW), 0);
    assert_int_equal(fegetround(), FE_UPWARD);
    assert_int_equal(fegetexcept(), traps);
    assert_int_equal(fesetenv(&before), 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims__a_view_that_the_scanner_would_refuse_is_refused_and_not_called_clean),
        cmocka_unit_test(test_claims__a_batch_without_arrays_or_elements_covers_nothing),
        cmocka_unit_test(test_claims__integer_gradients_do_not_gate_an_update),
        cmocka_unit_test(test_claims__gradients_that_are_all_exempt_do_not_gate_an_update),
        cmocka_unit_test(test_claims__tensors_that_are_absent_exempt_or_integers_are_no_witnesses),
        cmocka_unit_test(test_claims__a_forward_pass_looked_at_later_is_no_witness_for_an_earlier_micro_step),
        cmocka_unit_test(test_claims__reports_out_of_order_still_name_the_first_micro_step),
        cmocka_unit_test(test_claims__observing_what_another_rank_found_is_no_gate),
        cmocka_unit_test(test_claims__a_failed_vote_that_is_only_observed_is_no_gate),
        cmocka_unit_test(test_claims__a_finding_voted_on_after_the_update_taints_every_rank),
        cmocka_unit_test(test_claims__findings_after_a_verdict_to_withhold_blame_neither_the_state_nor_the_next_step),
        cmocka_unit_test(test_claims__a_spokesman_from_outside_the_run_is_a_corrupted_word),
        cmocka_unit_test(test_claims__a_checkpoint_is_not_committed_when_another_rank_covered_less),
        cmocka_unit_test(test_claims__what_descends_from_a_suspect_checkpoint_is_suspect_in_the_next_attempt),
        cmocka_unit_test(test_claims__an_unscale_that_is_refused_has_multiplied_nothing),
        cmocka_unit_test(test_claims__sampling_visits_every_tensor_whatever_the_numbers_of_the_steps),
        cmocka_unit_test(test_claims__a_second_case_of_the_same_step_leaves_the_files_of_the_first_alone),
        cmocka_unit_test(test_claims__closing_in_the_middle_of_a_step_keeps_what_was_found),
        cmocka_unit_test(test_claims__what_does_not_fit_of_the_description_is_told_and_costs_nothing_else),
        cmocka_unit_test(test_claims__a_run_that_scales_nothing_opens_with_zeroed_constants),
        cmocka_unit_test(test_claims__hosts_that_trap_flush_and_round_upwards_notice_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
