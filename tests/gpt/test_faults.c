/*
 * The catalogue of faults is what it says: for each fault that is a change of the program or of the batch the whole program runs on
 * one rank, every value is looked at, and the operator from which a chain of bad values leads to the finding is compared with the
 * catalogue, by brute force and without the library's search. Healthy ones leave loss and gradients finite.
 * FB_SEED=n begins with another seed.
 */
#include "fault_world.h"

/* ---- brute force ------------------------------------------------------------------------------------------------------------- */

/* Values from which an unbroken chain of bad ones leads to the finding: the loss, or else the gradients of parameters. */
static void mark_chain(const world *w, bool on[VALUES_MAX])
{
    const gpt_program *p = &w->model->program;
    memset(on, 0, VALUES_MAX * sizeof *on);
    if (is_bad(&w->sight, p->loss)) on[p->loss] = true;
    for (int i = 0; !on[p->loss] && i < w->sight.gradient_count; i++)
        on[w->sight.parameter_gradients[i]] |= is_bad(&w->sight, w->sight.parameter_gradients[i]);
    for (int i = p->op_count; i-- > 0;) {
        bool leads = false;
        for (int k = 0; k < p->ops[i].out_count; k++) leads |= on[p->ops[i].out[k]];
        for (int k = 0; leads && k < p->ops[i].in_count; k++) on[p->ops[i].in[k]] |= is_bad(&w->sight, p->ops[i].in[k]);
    }
}

static void expected_module(char out[GPT_MODULE_MAX], const char *module)
{
    const char *layer = strstr(module, "%d");
    if (layer) snprintf(out, GPT_MODULE_MAX, "%.*s2%s", (int)(layer - module), module, layer + 2); /* the middle one of 4 */
    else snprintf(out, GPT_MODULE_MAX, "%s", module);
}

/* "a|b": either. */
static bool is_one_of(const char *text, const char *several)
{
    size_t bytes = strlen(text);
    while (several) {
        if (!strncmp(several, text, bytes) && (!several[bytes] || several[bytes] == '|')) return true;
        several = strchr(several, '|');
        if (several) several++;
    }
    return false;
}

static const char *boundary_of(const gpt_op *op)
{
    return op->backward ? "local_gradient" : op->loss ? "loss" : "forward";
}

/* A label, a token and a position out of range are what the batch asked for; the embedding has no number for them. */
static void compare_rule(const world *w, const fault_row *row, int value)
{
    const char *rule = w->sight.rule[value], *expected = row->truth.rule;
    if (!strcmp(rule, "domain") && (strstr(expected, "rounding_upstream") || !strcmp(expected, "batch"))) return;
    if (!strstr(expected, rule)) mistake(w, "the operator in FP64 says %s, not %s", rule, expected);
}

/* Entries and operators that read good values and made a bad one with a chain to the finding: exactly that of the catalogue. */
static void compare_origin(const world *w, const fault_row *row)
{
    const gpt_program *p = &w->model->program;
    const fault_truth *t = &row->truth;
    bool on[VALUES_MAX];
    char module[GPT_MODULE_MAX];
    int origins = 0, right = 0;
    expected_module(module, t->module);
    mark_chain(w, on);
    for (int v = 0; v < p->value_count; v++) {
        int maker = w->sight.made_by[v];
        bool reads = false;
        for (int k = 0; maker >= 0 && k < p->ops[maker].in_count; k++) reads |= is_bad(&w->sight, p->ops[maker].in[k]);
        if (!on[v] || reads) continue;
        origins++;
        bool named = !strcmp(p->values[v].module, module) && is_one_of(p->values[v].name, t->tensor);
        bool by = maker < 0 ? t->op == NULL
                            : t->op && !strcmp(p->ops[maker].name, t->op) && !strcmp(boundary_of(&p->ops[maker]), t->origin);
        right += named && by;
        if (named && by && maker >= 0) compare_rule(w, row, v);
        bool same = maker >= 0 && right > 0 && p->ops[maker].out[0] != v; /* two outputs of one operator are one origin */
        if (same) origins--;
        else if (!(named && by))
            mistake(w, "an origin is %s.%s by %s", p->values[v].module, p->values[v].name,
                    maker < 0 ? "nobody" : p->ops[maker].name);
    }
    if (right != 1 || origins != 1) mistake(w, "%d origins, %d of them as the catalogue says", origins, right);
}

/* The boundaries at which the guard looks, without and with --check forward. Input checks are the
 * library's and are tested there. */
static void compare_boundaries(const world *w, const fault_row *row)
{
    const gpt_program *p = &w->model->program;
    const char *seen = is_bad(&w->sight, p->loss) ? "loss" : "local_gradient", *forward = seen;
    for (size_t i = 0; i < w->model->activation_count; i++)
        if (is_bad(&w->sight, w->model->activations[i].value)) forward = "forward";
    if (!strcmp(row->truth.seen, "input")) return;
    if (strcmp(seen, row->truth.seen) != 0) mistake(w, "seen at %s, not %s", seen, row->truth.seen);
    if (strcmp(forward, row->truth.forward) != 0)
        mistake(w, "with --check forward seen at %s, not %s", forward, row->truth.forward);
}

static int rows_that_show_it_alone(world *w)
{
    int shown = 0;
    for (size_t r = 0; r < B; r++) {
        run(w, w->model, STEP, r, 1);
        shown += found(w, w->model);
    }
    return shown;
}

static void compare_samples(world *w, const fault_row *row)
{
    int alone = rows_that_show_it_alone(w);
    if (row->truth.samples == 1 && alone == 0) mistake(w, "no sample shows it alone");
    if (row->truth.samples > 1 && alone > 0) mistake(w, "%d samples show it alone", alone);
}

static void compare_in_fp32(world *w, const fault_row *row)
{
    double scale = w->scale;
    if (row->truth.in_fp32 < 0) return;
    gpt_model *model = open_model(w, row->options, PRECISION_FP32);
    memcpy(model->parameters, w->model->parameters, model->parameter_count * sizeof *model->parameters);
    run(w, model, STEP, 0, B);
    int shows = found(w, model);
    gpt_close(model);
    w->scale = scale;
    if (shows != row->truth.in_fp32) mistake(w, "in fp32 it shows %d times, not %d", shows, row->truth.in_fp32);
}

/* What one process without a collective and an optimizer can show. */
static bool is_of_the_program(const fault_row *row)
{
    return row->truth.origin && (row->truth.samples > 0 || !strcmp(row->truth.tensor, "table")) && row->late <= 1 &&
           strcmp(row->truth.op ? row->truth.op : "", "accumulate") != 0;
}

static bool is_healthy(const fault_row *row)
{
    return strncmp(row->name, "ok-", 3) == 0;
}

/* A device and a learning rate are not the program's. */
static bool is_elsewhere(const char *name)
{
    return !strcmp(name, "rate-too-high");
}

static void test_faults__each_begins_where_the_catalogue_says_on_every_seed(void **state)
{
    size_t count;
    const fault_row *rows = faults_rows(&count);
    int tried = 0;
    (void)state;
    for (size_t i = 0; i < count; i++) {
        if (is_healthy(&rows[i]) || !is_of_the_program(&rows[i]) || is_elsewhere(rows[i].name)) continue;
        for (uint64_t seed = first_seed(); seed < first_seed() + SEEDS; seed++) {
            world w;
            open_world(&w, &rows[i], "", seed);
            run(&w, w.model, STEP, 0, B);
            if (!found(&w, w.model)) mistake(&w, "it does not show");
            compare_origin(&w, &rows[i]);
            compare_boundaries(&w, &rows[i]);
            compare_samples(&w, &rows[i]);
            compare_in_fp32(&w, &rows[i]);
            close_world(&w);
        }
        tried++;
    }
    assert_true(tried >= 40);
    assert_int_equal(mistakes, 0);
}

/* Loss and gradients stay finite in the fault's step and the next. */
static void stays_finite(const fault_row *row, const char *keys, uint64_t seed)
{
    world w;
    open_world(&w, row, keys, seed);
    for (int64_t step = STEP; step < STEP + 2; step++) {
        fault_state held = {w.model, w.optimizer.exp_avg, w.optimizer.exp_avg_sq, &w.optimizer.updates};
        faults_entry(&w.faults, (gpt_place){step, 0, 1}, &held);
        draw(&w, step);
        run(&w, w.model, step, 0, B);
        if (found(&w, w.model)) mistake(&w, "it shows at step %d%s", (int)step, keys);
    }
    close_world(&w);
}

static void test_faults__healthy_ones_leave_loss_and_gradients_finite(void **state)
{
    size_t count;
    const fault_row *rows = faults_rows(&count);
    int tried = 0;
    (void)state;
    mistakes = 0;
    for (size_t i = 0; i < count; i++) {
        /* A loss scale that comes down is a matter of gradients that overflow, and of the library's policy. */
        if (!is_healthy(&rows[i]) || !strcmp(rows[i].name, "ok-probing") || !strcmp(rows[i].name, "ok-skip-alone")) continue;
        for (uint64_t seed = first_seed(); seed < first_seed() + SEEDS; seed++) stays_finite(&rows[i], "", seed);
        tried++;
    }
    assert_true(tried >= 20);
    assert_int_equal(mistakes, 0);
}

static void test_faults__a_fault_of_no_steps_is_its_own_healthy_counterpart(void **state)
{
    size_t count;
    const fault_row *rows = faults_rows(&count);
    (void)state;
    mistakes = 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].alter) stays_finite(&rows[i], ",steps=0", first_seed());
    assert_int_equal(mistakes, 0);
}

static void test_faults__healthy_ones_really_hold_what_they_are_named_for(void **state)
{
    static const char *const HOLD_SOMETHING_BAD[] = {"ok-where-drops", "ok-gelu-cube-fp16", "ok-exp-to-zero"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t count, row = 0;
        const fault_row *rows = faults_rows(&count);
        world w;
        int bad = 0;
        while (strcmp(rows[row].name, HOLD_SOMETHING_BAD[i]) != 0) row++;
        open_world(&w, &rows[row], "", first_seed());
        run(&w, w.model, STEP, 0, B);
        for (int v = 0; v < w.model->program.value_count; v++) bad += is_bad(&w.sight, v);
        if (!bad) fail_msg("%s: nothing is bad at all", HOLD_SOMETHING_BAD[i]);
        close_world(&w);
    }
}

static void test_faults__an_update_with_a_rate_too_high_makes_the_next_forward_pass_overflow(void **state)
{
    (void)state;
    mistakes = 0;
    for (uint64_t seed = first_seed(); seed < first_seed() + SEEDS; seed++) {
        size_t count, row = 0;
        const fault_row *rows = faults_rows(&count);
        world w;
        while (strcmp(rows[row].name, "rate-too-high") != 0) row++;
        open_world(&w, &rows[row], "", seed);
        run(&w, w.model, STEP, 0, B);
        if (found(&w, w.model)) mistake(&w, "it shows before its update");
        fault_constants c = {.learning_rate = 2e-4};
        faults_update(&w.faults, (gpt_place){STEP, 0, 1}, &c);
        adamw_update(&w.optimizer, w.model, c.learning_rate, 1.0);
        draw(&w, STEP + 1);
        run(&w, w.model, STEP + 1, 0, B);
        compare_origin(&w, &rows[row]);
        close_world(&w);
    }
    assert_int_equal(mistakes, 0);
}

/* Several at once: the first in the program is found, and the layer and the rank are kept. */
static void test_faults__two_faults_join_in_one_program(void **state)
{
    char message[256];
    world w = {.seed = first_seed()};
    (void)state;
    assert_int_equal(faults_read(&w.faults, "inf-then-nan@step=3,layer=1", message, sizeof message), 0);
    assert_int_equal(faults_read(&w.faults, "norm-slope-zero@step=3,layer=3", message, sizeof message), 0);
    w.model = open_model(&w, "", PRECISION_FP32);
    draw(&w, 3);
    run(&w, w.model, 3, 0, B);
    assert_true(is_bad(&w.sight, gpt_find_value(&w.model->program, "h.1.mlp", "squared")));
    assert_false(is_bad(&w.sight, gpt_find_value(&w.model->program, "h.0.mlp", "gelu")));
    run(&w, w.model, 4, 0, B);
    assert_false(found(&w, w.model));
    gpt_close(w.model);
}

static const struct CMUnitTest TESTS[] = {
    cmocka_unit_test(test_faults__each_begins_where_the_catalogue_says_on_every_seed),
    cmocka_unit_test(test_faults__healthy_ones_leave_loss_and_gradients_finite),
    cmocka_unit_test(test_faults__a_fault_of_no_steps_is_its_own_healthy_counterpart),
    cmocka_unit_test(test_faults__healthy_ones_really_hold_what_they_are_named_for),
    cmocka_unit_test(test_faults__an_update_with_a_rate_too_high_makes_the_next_forward_pass_overflow),
    cmocka_unit_test(test_faults__two_faults_join_in_one_program),
};

int main(void)
{
    return cmocka_run_group_tests(TESTS, NULL, NULL);
}
