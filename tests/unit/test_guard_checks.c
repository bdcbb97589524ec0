/* What the checks of one rank see, what they pass over by declaration, and what coverage says of it. */
#include "support/world.h"

#include "guard/risk.h"

static world w;
static world_rank *r;
static fb_error err;

static int start(void **state)
{
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    r = &w.rank[0];
    world_backward(r);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static uint32_t add(int32_t role, const char *tensor, uint32_t legal, int32_t domain)
{
    fb_site site = FB_SITE_INIT;
    uint32_t id = 0;
    site.role = role;
    site.module = "m";
    site.tensor = tensor;
    site.legal = legal;
    site.domain = domain;
    assert_int_equal(fb_run_add_site(r->run, &site, &id, &err), FB_OK);
    return id;
}

static void begin(int64_t number)
{
    fb_step step = FB_STEP_INIT;
    step.step = number;
    assert_int_equal(fb_step_begin(r->run, &step, &err), FB_OK);
}

static void finish(void)
{
    int64_t words[4];
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(r->run, words, &verdict, &err), FB_OK);
    if (verdict.action == FB_PROCEED) assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
}

static const fb_rec_finding *only_finding(void)
{
    assert_int_equal(r->run->findings_count, 1);
    return &r->run->findings[0];
}

static void check_one(int32_t boundary, float *data, uint32_t site)
{
    fb_view view = world_view(data, site);
    assert_int_equal(fb_step_check(r->run, boundary, &view, 1, &err), FB_OK);
}

static void test_checks__mask_of_minus_infinity_is_legal_where_declared_and_other_bad_is_not(void **state)
{
    uint32_t mask = add(FB_ROLE_BUFFER, "mask", FB_LEGAL_NEG_INF, FB_DOMAIN_ANY);
    uint32_t plain = add(FB_ROLE_BUFFER, "plain", 0, FB_DOMAIN_ANY);
    float data[WORLD_ELEMENTS] = {0, 0, 0, 0};
    (void)state;
    data[1] = data[2] = world_bits(0xff800000u);
    begin(1);
    check_one(FB_INPUT, data, mask);
    assert_int_equal(r->run->findings_count, 0);
    data[3] = world_bits(0x7f800000u);
    check_one(FB_INPUT, data, mask);
    assert_int_equal(only_finding()->kind, FB_KIND_POS_INF);
    assert_int_equal(only_finding()->first_index, 3);
    assert_int_equal(only_finding()->count, 1);
    data[3] = 0;
    check_one(FB_INPUT, data, plain);
    assert_int_equal(r->run->findings_count, 2);
    assert_int_equal(r->run->findings[1].kind, FB_KIND_NEG_INF);
    assert_int_equal(r->run->findings[1].count, 2);
}

static void test_checks__padding_and_exempt_sites_are_passed_over_and_counted(void **state)
{
    uint32_t padding = add(FB_ROLE_BUFFER, "recv", FB_LEGAL_PADDING, FB_DOMAIN_ANY);
    uint32_t exempt = add(FB_ROLE_BUFFER, "odd", FB_LEGAL_EXEMPT, FB_DOMAIN_ANY);
    float data[WORLD_ELEMENTS];
    (void)state;
    memset(data, 0xff, sizeof data); /* NaN everywhere */
    begin(1);
    check_one(FB_FORWARD, data, padding);
    check_one(FB_FORWARD, data, exempt);
    assert_int_equal(r->run->findings_count, 0);
    assert_int_equal(r->run->step.rec.cover.exempt, 2);
    assert_int_equal(r->run->step.rec.cover.tensors[FB_FORWARD], 0);
}

static void test_checks__domains_of_denominator_logarithm_root_and_probability(void **state)
{
    static const struct {
        int32_t domain;
        float good, bad;
    } rows[] = {{FB_DOMAIN_NONZERO, -1e-30f, -0.0f},
                {FB_DOMAIN_POSITIVE, 1e-38f, 0.0f},
                {FB_DOMAIN_NONNEGATIVE, -0.0f, -1e-30f},
                {FB_DOMAIN_PROBABILITY, 1.0f, 1.0000001f},
                {FB_DOMAIN_PROBABILITY, 0.0f, -1e-10f}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t site = add(FB_ROLE_ACTIVATION, "x", 0, rows[i].domain);
        float data[WORLD_ELEMENTS] = {rows[i].good, rows[i].good, rows[i].good, rows[i].good};
        begin((int64_t)(2 * i));
        check_one(FB_FORWARD, data, site);
        assert_int_equal(r->run->findings_count, 0);
        data[2] = rows[i].bad;
        check_one(FB_FORWARD, data, site);
        assert_int_equal(only_finding()->kind, FB_KIND_DOMAIN);
        assert_int_equal(only_finding()->first_index, 2);
        finish();
        begin((int64_t)(2 * i + 1)); /* a clean update between two faults, or the fourth would halt */
        finish();
    }
}

static void test_checks__absent_gradients_are_noted_and_never_dereferenced(void **state)
{
    fb_view views[WORLD_TENSORS];
    (void)state;
    views[0] = world_view(NULL, r->grad_site[0]);
    views[0].count = 0;
    views[1] = world_view(r->grad[1], r->grad_site[1]);
    begin(1);
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, views, 2, &err), FB_OK);
    assert_int_equal(r->run->step.rec.cover.absent, 1);
    finish();
    assert_int_equal(r->run->step.rec.cover.level[FB_LOCAL_GRAD], FB_COVER_FULL);
}

static void test_checks__part_of_the_gradients_is_sampled_not_full(void **state)
{
    fb_view view = world_view(r->grad[0], r->grad_site[0]);
    fb_view twice[2];
    (void)state;
    twice[0] = twice[1] = view; /* tied weights count once */
    begin(1);
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, twice, 2, &err), FB_OK);
    finish();
    assert_int_equal(r->run->step.rec.cover.tensors[FB_LOCAL_GRAD], 1);
    assert_int_equal(r->run->step.rec.cover.level[FB_LOCAL_GRAD], FB_COVER_SAMPLED);
    assert_int_equal(r->run->step.rec.flags & FB_STEP_GATED, 0);
}

static void test_checks__formats_with_nothing_to_find_are_not_called_clean(void **state)
{
    uint32_t site = add(FB_ROLE_COUNTER, "step", 0, FB_DOMAIN_ANY);
    int64_t counter[WORLD_ELEMENTS] = {1, 2, 3, 4};
    fb_view view = world_view(counter, site);
    (void)state;
    view.dtype = FB_I64;
    begin(1);
    assert_int_equal(fb_step_check(r->run, FB_ENTRY, &view, 1, &err), FB_OK);
    assert_int_equal(r->run->step.rec.cover.unchecked, 1);
    assert_int_equal(r->run->step.rec.cover.tensors[FB_ENTRY], 0);
}

static void test_checks__sampling_visits_every_tensor_once_in_a_period(void **state)
{
    enum { TENSORS = 7, PERIOD = 3 };
    float data[TENSORS][WORLD_ELEMENTS] = {{0}};
    fb_view views[TENSORS];
    int seen[TENSORS] = {0};
    (void)state;
    for (int i = 0; i < TENSORS; i++) views[i] = world_view(data[i], add(FB_ROLE_PARAMETER, "p", 0, FB_DOMAIN_ANY));
    for (int64_t step = 30; step < 30 + PERIOD; step++) {
        begin(step);
        assert_int_equal(fb_step_check_sampled(r->run, FB_ENTRY, views, TENSORS, PERIOD, &err), FB_OK);
        for (int i = 0; i < TENSORS; i++) seen[i] += r->run->seen[views[i].site * FB_BOUNDARIES + FB_ENTRY] == r->run->step.serial;
        assert_int_equal(r->run->step.rec.cover.level[FB_ENTRY], FB_COVER_SAMPLED);
        finish();
    }
    for (int i = 0; i < TENSORS; i++) assert_int_equal(seen[i], 1);
}

static fb_tokens batch(void)
{
    return world_batch(r);
}

static void test_checks__labels_weights_lengths_masks_and_positions(void **state)
{
    float weights[WORLD_ROWS * WORLD_COLS];
    uint8_t mask[WORLD_ROWS * WORLD_COLS];
    int16_t positions[WORLD_ROWS * WORLD_COLS];
    int64_t lengths[WORLD_ROWS] = {4, 4};
    fb_tokens b = batch();
    (void)state;
    for (int i = 0; i < WORLD_ROWS * WORLD_COLS; i++) {
        weights[i] = 1.0f;
        mask[i] = 1;
        positions[i] = (int16_t)(i % WORLD_COLS);
    }
    b.weights = weights;
    b.mask = mask;
    b.positions = positions;
    b.position_dtype = FB_I16;
    b.positions_max = 4;
    b.lengths = lengths;
    begin(1);
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_OK);
    assert_int_equal(r->run->findings_count, 0);
    assert_int_equal(b.valid_tokens, 8);
    r->labels[0] = -100;
    weights[1] = 0.0f;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_OK);
    assert_int_equal(b.valid_tokens, 6);
    assert_int_equal(r->run->findings_count, 0);
    r->labels[3] = -7;
    weights[5] = world_bits(0x7fc00000u);
    weights[6] = -1.0f;
    memset(mask + 4, 0, 4);
    positions[2] = 4;
    lengths[1] = 5;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_OK);
    assert_int_equal(r->run->findings_count, 5);
    for (uint64_t i = 0; i < r->run->findings_count; i++) {
        const fb_rec_finding *f = &r->run->findings[i];
        if (f->field == FB_FIELD_WEIGHTS) {
            assert_int_equal(f->kind, FB_KIND_NAN);
            assert_int_equal(f->first_index, 5);
            assert_int_equal(f->count, 2);
        } else if (f->field == FB_FIELD_MASK) {
            assert_int_equal(f->kind, FB_KIND_ALL_IGNORED);
            assert_int_equal(f->value, 1); /* the row */
        } else if (f->field == FB_FIELD_LABELS) {
            assert_int_equal(f->value, -7);
            assert_int_equal(f->first_index, 3);
        } else if (f->field == FB_FIELD_POSITIONS) assert_int_equal(f->value, 4);
        else assert_int_equal(f->field, FB_FIELD_LENGTHS);
    }
}

static void test_checks__wrong_batches_are_refused(void **state)
{
    fb_tokens b = batch();
    (void)state;
    begin(1);
    assert_int_equal(fb_step_check_tokens(r->run, NULL, &err), FB_E_USAGE);
    b.token_dtype = FB_F32;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_E_DTYPE);
    b = batch();
    b.vocab = 0;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_E_USAGE);
    b = batch();
    b.site = 12345;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_E_SITE);
    b = batch();
    b.rows = UINT64_MAX;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_E_USAGE);
    b = batch();
    b.weights = r->grad[0];
    b.weight_dtype = FB_I32;
    assert_int_equal(fb_step_check_tokens(r->run, &b, &err), FB_E_DTYPE);
    assert_int_equal(r->run->step.rec.tokens, 0);
}

static void test_checks__findings_beyond_the_table_keep_the_earliest(void **state)
{
    enum { EXTRA = 8 };
    float data[WORLD_ELEMENTS];
    uint32_t ids[EXTRA];
    fb_run_config config = w.config;
    fb_site site = FB_SITE_INIT;
    fb_run *run = NULL;
    fb_step step = FB_STEP_INIT;
    (void)state;
    memset(data, 0xff, sizeof data);
    config.run_id = "small";
    config.findings_max = 3;
    assert_int_equal(fb_run_open(&run, &config, &err), FB_OK);
    for (int i = 0; i < EXTRA; i++) {
        site.role = FB_ROLE_ACTIVATION;
        site.position = EXTRA - i; /* the last one checked is the first along the dataflow */
        assert_int_equal(fb_run_add_site(run, &site, &ids[i], &err), FB_OK);
    }
    assert_int_equal(fb_step_begin(run, &step, &err), FB_OK);
    for (int i = 0; i < EXTRA; i++) {
        fb_view view = world_view(data, ids[i]);
        assert_int_equal(fb_step_check(run, FB_FORWARD, &view, 1, &err), FB_OK);
    }
    assert_int_equal(run->findings_count, 3);
    assert_int_equal(run->findings_cut, EXTRA - 3);
    assert_int_equal(fb_finding_first(run)->position, 1);
    fb_run_close(run);
}

static void test_checks__reported_findings_weigh_as_our_own(void **state)
{
    fb_finding finding;
    int64_t words[4];
    fb_verdict verdict = FB_VERDICT_INIT;
    (void)state;
    memset(&finding, 0, sizeof finding);
    begin(1);
    assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_E_USAGE);
    finding.size = sizeof finding;
    finding.site = r->grad_site[1];
    finding.boundary = FB_LOCAL_GRAD;
    assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_E_USAGE);
    finding.kind = FB_KIND_NAN;
    finding.count = 5;
    finding.first_index = FB_NO_INDEX;
    assert_int_equal(fb_step_report(r->run, &finding, 1, &err), FB_OK);
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(r->run, words, &verdict, &err), FB_OK);
    assert_int_equal(verdict.action, FB_SKIP);
    assert_int_equal(verdict.first_position, 20);
}

static void test_checks__late_finding_after_the_update_reaches_the_next_vote(void **state)
{
    fb_view views[WORLD_TENSORS], param = world_view(r->param[0], r->param_site[0]);
    int64_t words[4];
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    (void)state;
    begin(1);
    for (int t = 0; t < WORLD_TENSORS; t++) views[t] = world_view(r->grad[t], r->grad_site[t]);
    assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, views, WORLD_TENSORS, &err), FB_OK);
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(r->run, words, &verdict, &err), FB_OK);
    assert_int_equal(fb_step_apply(r->run, &err), FB_OK);
    r->param[0][1] = world_bits(0x7f800000u); /* the optimizer overflowed */
    assert_int_equal(fb_step_check(r->run, FB_UPDATE, &param, 1, &err), FB_OK);
    assert_int_equal(fb_step_end(r->run, &result, &err), FB_OK);
    assert_int_equal(r->run->ungated, 1);
    begin(2);
    assert_int_equal(fb_step_ballot(r->run, words, &err), FB_OK);
    assert_int_equal(fb_step_settle(r->run, words, &verdict, &err), FB_OK);
    assert_int_equal(verdict.first_boundary, FB_ENTRY);
    assert_int_equal(verdict.first_position, 10);
    assert_true(verdict.action != FB_PROCEED);
}

static void test_risk__spikes_raise_it_and_non_finite_losses_blind_nothing(void **state)
{
    fb_risk risk;
    (void)state;
    fb_risk_init(&risk);
    assert_int_equal(fb_risk_deep(&risk), 1);
    for (int i = 0; i < 200; i++) assert_int_equal(fb_risk_update(&risk, 1, 3.0 + 0.01 * (i % 7)), 0);
    assert_int_equal(fb_risk_deep(&risk), 0);
    /* Each of them is a reason to look deeper, and none of them enters the window. */
    for (int i = 0; i < 50; i++)
        assert_int_equal(fb_risk_update(&risk, 1, (double)world_bits(i % 2 ? 0x7fc00000u : 0x7f800000u)), 1);
    assert_int_equal(risk.not_numbers, 50);
    assert_int_equal(fb_risk_update(&risk, 1, 3.05), 0);
    assert_int_equal(fb_risk_update(&risk, 1, 30.0), 1);
    fb_risk_raise(&risk);
    assert_int_equal(fb_risk_deep(&risk), 1);
    for (int i = 0; i <= FB_RISK_STEPS; i++) (void)fb_risk_update(&risk, 1, 3.0);
    assert_int_equal(fb_risk_deep(&risk), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_checks__mask_of_minus_infinity_is_legal_where_declared_and_other_bad_is_not, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_checks__padding_and_exempt_sites_are_passed_over_and_counted, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__domains_of_denominator_logarithm_root_and_probability, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__absent_gradients_are_noted_and_never_dereferenced, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__part_of_the_gradients_is_sampled_not_full, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__formats_with_nothing_to_find_are_not_called_clean, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__sampling_visits_every_tensor_once_in_a_period, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__labels_weights_lengths_masks_and_positions, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__wrong_batches_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__findings_beyond_the_table_keep_the_earliest, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__reported_findings_weigh_as_our_own, start, stop),
        cmocka_unit_test_setup_teardown(test_checks__late_finding_after_the_update_reaches_the_next_vote, start, stop),
        cmocka_unit_test(test_risk__spikes_raise_it_and_non_finite_losses_blind_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
