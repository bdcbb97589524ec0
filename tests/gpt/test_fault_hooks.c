/*
 * Faults that are no change of the program: constants of the optimizer, the loss scale, gradients on their way, a device; and how a
 * fault is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "faults.h"
#include "model.h"
#include "optim.h"

static faults read_one(const char *spec)
{
    faults f = {0};
    char message[256];
    if (faults_read(&f, spec, message, sizeof message) != 0) fail_msg("%s", message);
    return f;
}

static bool is_bad_number(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffffffffffffu) >= 0x7ff0000000000000u;
}

/* One update with the constants of the fault; the gradient is 1e-4 for half of the elements and 0 for the others. */
static int bad_after_update(const char *spec)
{
    faults f = read_one(spec);
    gpt_config config = {.layers = 1, .heads = 1, .channels = 16, .block = 4, .batch = 1, .activation_gain = 1.0f, .seed = 1};
    gpt_model *model = gpt_open(&config);
    adamw optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1.0};
    fault_state held;
    int bad = 0;
    assert_non_null(model);
    assert_int_equal(adamw_open(&optimizer, model->parameter_count), 0);
    held = (fault_state){model, optimizer.exp_avg, optimizer.exp_avg_sq, &optimizer.updates};
    for (int64_t step = 1; step <= 2; step++) {
        gpt_place place = {step, 0, 1};
        faults_entry(&f, place, &held);
        for (size_t i = 0; i < model->parameter_count; i++) model->gradients[i] = i % 2 ? 0.0f : 1e-4f;
        double norm = step == 2 && strstr(spec, "zero-norm") ? 0.0 : 1e-3, coefficient = 1.0;
        coefficient = faults_clip(&f, place, model->gradients, model->parameter_count, optimizer.clip, &norm, coefficient);
        adamw_numbers n = adamw_numbers_of(&optimizer, 1e-3, coefficient);
        fault_constants c = {n.learning_rate, n.beta1, n.beta2, n.epsilon, n.updates, n.moments};
        faults_update(&f, place, &c);
        n.learning_rate = c.learning_rate;
        n.epsilon = c.epsilon;
        n.updates = c.updates;
        n.moments = c.moments;
        if (faults_applies(&f, place)) adamw_update_with(&optimizer, model, &n);
        bad = 0;
        for (size_t i = 0; i < model->parameter_count; i++) bad += is_bad_number((double)model->parameters[i]);
        if (step == 1) assert_int_equal(bad, 0);
    }
    adamw_close(&optimizer);
    gpt_close(model);
    return bad;
}

static void test_fault_hooks__constants_of_the_optimizer_spoil_parameters_in_their_step_alone(void **state)
{
    (void)state;
    assert_true(bad_after_update("adam-half@step=2") > 0);
    assert_true(bad_after_update("adam-no-epsilon@step=2") > 0);
    assert_true(bad_after_update("bias-correction-zero@step=2") > 0);
    assert_true(bad_after_update("rate-nan@step=2") > 0);
    assert_true(bad_after_update("clip-zero-norm@step=2") > 0);
    assert_true(bad_after_update("moment-negative@step=2") > 0);
    assert_int_equal(bad_after_update("rate-too-high@step=2"), 0); /* large, not bad: the next forward pass is */
    assert_int_equal(bad_after_update("ok-rate-zero@step=2"), 0);
    assert_int_equal(bad_after_update("ok-moment-tiny@step=2"), 0);
    assert_int_equal(bad_after_update("adam-half@step=2,steps=0"), 0);
    assert_int_equal(bad_after_update("adam-half@step=2,rank=0"), 0);
}

static void test_fault_hooks__a_norm_in_fp32_overflows_while_every_element_is_finite(void **state)
{
    faults f = read_one("norm-fp32@step=2");
    float gradient[3] = {1e20f, 1.0f, 0.0f};
    double norm = 1e20;
    (void)state;
    assert_true(faults_clip(&f, (gpt_place){2, 0, 1}, gradient, 3, 1.0, &norm, 0.5) == 0.0);
    assert_true(is_bad_number(norm));
    norm = 1e20;
    assert_true(faults_clip(&f, (gpt_place){3, 0, 1}, gradient, 3, 1.0, &norm, 0.5) == 0.5);
    assert_true(norm == 1e20);
}

static void test_fault_hooks__the_scale_is_changed_on_the_step_and_rank_alone(void **state)
{
    faults runaway = read_one("scale-runaway@step=2,steps=1"), zero = read_one("scale-zero@step=2"),
           one = read_one("scale-on-one-rank@step=2");
    double scale = 8.0;
    (void)state;
    assert_true(is_bad_number(faults_scale(&runaway, (gpt_place){2, 0, 0}, 8.0)));
    assert_true(faults_scale(&runaway, (gpt_place){3, 0, 0}, 8.0) == 8.0);
    assert_true(faults_scale(&zero, (gpt_place){2, 0, 3}, 8.0) == 0.0);
    assert_int_equal(faults_scaler(&one, (gpt_place){2, 0, 0}, &scale), 0);
    assert_int_equal(faults_scaler(&one, (gpt_place){2, 0, 1}, &scale), 1);
    assert_true(scale == 4.0);
}

/* One element of the gradient after a hook, and how many there are. */
static uint32_t changed_bits(gpt_model *model)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < model->parameter_count; i++) {
        if (float_bits(model->gradients[i])) bits = float_bits(model->gradients[i]);
        model->gradients[i] = 0.0f;
    }
    return bits;
}

static void test_fault_hooks__gradients_are_changed_where_each_fault_says(void **state)
{
    gpt_config config = {.layers = 1, .heads = 1, .channels = 16, .block = 4, .batch = 1, .activation_gain = 1.0f, .seed = 1};
    gpt_model *model = gpt_open(&config);
    gpt_place here = {5, 0, 1}, elsewhere = {5, 0, 0};
    (void)state;
    assert_non_null(model);
    faults sum = read_one("sum-fp32"), one = read_one("collective-one-rank"), all = read_one("collective-all-ranks"),
           race = read_one("collective-race"), unset = read_one("gradient-unset");
    faults_local(&sum, elsewhere, model, NULL);
    uint32_t large = changed_bits(model);
    assert_true(float_from_bits(large) > 2e38f && large < 0x7f800000u);
    faults_reduced(&one, here, 0, 0, model, NULL); /* the batch of rank 1 on the process of rank 0 */
    assert_int_equal(changed_bits(model), 0);
    faults_reduced(&one, elsewhere, 1, 4, model, NULL);
    assert_true((changed_bits(model) & 0x7fffffffu) > 0x7f800000u);
    faults_reduced(&all, elsewhere, 0, 1, model, NULL);
    assert_true((changed_bits(model) & 0x7fffffffu) > 0x7f800000u);
    int shown = 0;
    for (uint32_t replay = 1; replay <= 3; replay++) {
        faults_reduced(&race, here, 1, replay, model, NULL);
        shown += changed_bits(model) != 0;
    }
    assert_true(shown > 0 && shown < 3);
    assert_int_equal(faults_store(&unset, elsewhere, model, NULL), 0);
    assert_int_equal(faults_store(&unset, here, model, NULL), 1);
    assert_true((changed_bits(model) & 0x7fffffffu) > 0x7f800000u);
    gpt_close(model);
}

/* In training (0) and in three replays; on the process of rank 1 or 0. Bit k: the loss is bad in run k. */
static unsigned device_shows(const char *spec, int32_t process)
{
    static const int32_t TOKENS[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    faults f = read_one(spec);
    gpt_config config = {.layers = 1, .heads = 1, .channels = 16, .block = 8, .batch = 1, .activation_gain = 1.0f, .seed = 1};
    gpt_model *model = gpt_open(&config);
    unsigned shown = 0;
    assert_non_null(model);
    assert_true(faults_hear(&f));
    for (uint32_t replay = 0; replay <= 3; replay++) {
        gpt_input input = {.tokens = TOKENS, .targets = TOKENS};
        gpt_forward(model, input, (gpt_place){5, 0, 1}, 1.0);
        for (int op = 0; op < model->program.op_count; op++) {
            gpt_value *out = &model->program.values[model->program.ops[op].out[0]];
            if (strcmp(out->name, "gelu") != 0 && strcmp(out->name, "c_fc") != 0) continue;
            faults_heard(&f, model, op, (gpt_place){5, 0, 1}, process, replay);
            const float *x = out->data;
            for (size_t i = 0; i < gpt_value_count(out, &model->shape); i++)
                if (is_bad_number((double)x[i])) shown |= 1u << replay;
        }
    }
    gpt_close(model);
    return shown;
}

static void test_fault_hooks__a_device_fails_once_or_always_or_now_and_then(void **state)
{
    (void)state;
    assert_int_equal(device_shows("flip-once", 1), 1);
    assert_int_equal(device_shows("flip-once", 0), 0);
    assert_int_equal(device_shows("device-broken", 1), 15);
    assert_int_equal(device_shows("device-broken", 0), 0); /* it does not move with the batch */
    assert_int_equal(device_shows("kernel-race", 1), 5);
    assert_int_equal(device_shows("kernel-tail", 0), 15); /* a wrong kernel does */
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------- */

static void test_fault_hooks__a_specification_is_read_or_refused_with_a_sentence(void **state)
{
    static const char *const WRONG[] = {"",
                                        "mask",
                                        "mask-full-row@",
                                        "mask-full-row@step",
                                        "mask-full-row@step=",
                                        "mask-full-row@step=x",
                                        "mask-full-row@step=-1",
                                        "mask-full-row@rank=-1",
                                        "mask-full-row@step=5,",
                                        "mask-full-row@pace=5",
                                        "mask-full-row@step=all",
                                        "mask-full-row@step=99999999999999999999",
                                        "mask-full-rows"};
    char message[256];
    faults f = {0};
    (void)state;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        message[0] = 0;
        if (faults_read(&f, WRONG[i], message, sizeof message) == 0) fail_msg("\"%s\" is read", WRONG[i]);
        assert_non_null(strstr(message, "--fault list"));
    }
    assert_int_equal(f.count, 0);
    assert_int_equal(faults_read(&f, "temperature-zero@step=7,steps=2,rank=3,layer=1", message, sizeof message), 0);
    assert_int_equal(f.of[0].step, 7);
    assert_int_equal(f.of[0].steps, 2);
    assert_int_equal(f.of[0].rank, 3);
    assert_int_equal(f.of[0].layer, 1);
    assert_int_equal(faults_read(&f, "temperature-zero@rank=all", message, sizeof message), 0);
    assert_int_equal(f.of[1].rank, -1);
    assert_int_equal(faults_read(&f, "adam-half", message, sizeof message), 0);
    assert_int_equal(f.of[2].rank, -1);
    assert_int_equal(faults_read(&f, "sum-fp16", message, sizeof message), 0);
    assert_int_equal(f.of[3].steps, 8);
    assert_int_equal(faults_read(&f, "adam-half", message, sizeof message), -1);
}

static void test_fault_hooks__names_differ_and_every_fault_has_a_truth(void **state)
{
    size_t count;
    const fault_row *rows = faults_rows(&count);
    int faults_with_truth = 0;
    (void)state;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) assert_string_not_equal(rows[i].name, rows[k].name);
        if (!strncmp(rows[i].name, "ok-", 3)) assert_null(rows[i].truth.cause);
        faults_with_truth += rows[i].truth.cause && rows[i].truth.rule && rows[i].truth.origin;
    }
    assert_true(faults_with_truth >= 52);
}

/* ---- the page ---------------------------------------------------------------------------------------------------------------- */

/* docs/faults.md, found from the path of this file. */
static char *read_page(void)
{
    char path[4096];
    const char *end = strstr(__FILE__, "tests/gpt/");
    char *text = calloc(1, 1 << 17);
    assert_non_null(text);
    assert_non_null(end);
    snprintf(path, sizeof path, "%.*sdocs/faults.md", (int)(end - __FILE__), __FILE__);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot read %s", path);
    assert_true(fread(text, 1, (1 << 17) - 1, file) > 0);
    fclose(file);
    return text;
}

/* As it stands in a table: the bar of "a|b" is written with a backslash. */
static void in_a_table(char *out, size_t bytes, const char *text)
{
    size_t at = 0;
    for (; text && *text && at + 2 < bytes; text++) {
        if (*text == '|') out[at++] = '\\';
        out[at++] = *text;
    }
    out[at] = 0;
}

static void has(const char *line, const char *name, const char *text)
{
    char cell[512];
    in_a_table(cell, sizeof cell, text);
    if (!strstr(line, cell)) fail_msg("docs/faults.md does not say \"%s\" of %s", cell, name);
}

static void test_fault_hooks__the_page_says_what_the_catalogue_says(void **state)
{
    size_t count;
    const fault_row *rows = faults_rows(&count);
    char *page = read_page();
    (void)state;
    for (size_t i = 0; i < count; i++) {
        const fault_truth *t = &rows[i].truth;
        char start[64], line[2048];
        snprintf(start, sizeof start, "\n| `%s`", rows[i].name);
        const char *found = strstr(page, start);
        if (!found) fail_msg("docs/faults.md has no line for %s", rows[i].name);
        size_t bytes = found ? strcspn(found + 1, "\n") : 0;
        assert_true(bytes < sizeof line);
        snprintf(line, bytes + 1, "%s", found ? found + 1 : "");
        has(line, rows[i].name, rows[i].sentence);
        has(line, rows[i].name, rows[i].options);
        has(line, rows[i].name, t->seen);
        has(line, rows[i].name, t->op);
        has(line, rows[i].name, t->origin);
        has(line, rows[i].name, t->cause);
        has(line, rows[i].name, t->rule);
        if (t->module && strcmp(t->module, "*") != 0) has(line, rows[i].name, t->module);
        if (t->tensor && strcmp(t->tensor, "*") != 0) has(line, rows[i].name, t->tensor);
    }
    free(page);
}

static const struct CMUnitTest TESTS[] = {
    cmocka_unit_test(test_fault_hooks__constants_of_the_optimizer_spoil_parameters_in_their_step_alone),
    cmocka_unit_test(test_fault_hooks__a_norm_in_fp32_overflows_while_every_element_is_finite),
    cmocka_unit_test(test_fault_hooks__the_scale_is_changed_on_the_step_and_rank_alone),
    cmocka_unit_test(test_fault_hooks__gradients_are_changed_where_each_fault_says),
    cmocka_unit_test(test_fault_hooks__a_device_fails_once_or_always_or_now_and_then),
    cmocka_unit_test(test_fault_hooks__a_specification_is_read_or_refused_with_a_sentence),
    cmocka_unit_test(test_fault_hooks__names_differ_and_every_fault_has_a_truth),
    cmocka_unit_test(test_fault_hooks__the_page_says_what_the_catalogue_says),
};

int main(void)
{
    return cmocka_run_group_tests(TESTS, NULL, NULL);
}
