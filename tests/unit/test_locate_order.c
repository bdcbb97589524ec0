/*
 * What fb_locate_run says of what comes first and what comes later, of what it cannot tell apart, of a finding that was planted,
 * and how many replays it allows itself. The trainer is a table of operators whose values are written down.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "firstbad/locate.h"
#include "locate/locate_json.h"
#include "os/os.h"

enum { OPS = 512, FORMER = 3, NO = -1 };

/* Tensor 0 is the batch; operator k makes tensor k + 1. */
typedef struct line {
    const char *op, *module, *name;
    int32_t reads[FORMER]; /* tensors; NO: no more */
    float makes;
    uint32_t flags;
} line;

static line table[OPS];
static uint32_t lines;
static uint32_t finite_from; /* from this replay on everything is finite; 0: never */
static char names[OPS][16];
static char folder[64];
static fb_locate_config config;
static fb_locate_result result;
static fb_error err;

static fb_status replay(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *e)
{
    float x = 1.0f;
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    uint32_t ids[OPS + 1];
    fb_status status;
    (void)ctx;
    if (request->purpose != FB_REPLAY_AGAIN) return FB_E_UNSUPPORTED;
    value.name = "x";
    value.flags = FB_TAPE_BATCH;
    value.data = &x;
    value.count = 1;
    value.dtype = value.format = FB_F32;
    status = fb_tape_entry(tape, &value, &ids[0], e);
    for (uint32_t k = 0; k < lines && status == FB_OK; k++) {
        fb_tape_op op = FB_TAPE_OP_INIT;
        uint32_t inputs[FORMER], count = 0;
        float made = finite_from && request->number >= finite_from ? 1.0f : table[k].makes;
        while (count < FORMER && table[k].reads[count] != NO) {
            inputs[count] = ids[table[k].reads[count]];
            count++;
        }
        value.name = table[k].name;
        value.flags = table[k].flags;
        value.data = &made;
        op.op = table[k].op;
        op.module = table[k].module;
        op.token = k;
        op.inputs = inputs;
        op.input_count = count;
        op.outputs = &value;
        op.output_count = 1;
        op.output_ids = &ids[k + 1];
        status = fb_tape_op_ran(tape, &op, e);
    }
    return status;
}

static int set_up(void **state)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    static const fb_locate_config plain = FB_LOCATE_CONFIG_INIT;
    (void)state;
    result = empty;
    config = plain;
    finite_from = lines = 0;
    memset(&err, 0, sizeof err);
    strcpy(folder, "/tmp/firstbad-order-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    config.folder = folder;
    config.finding_boundary = FB_FORWARD;
    config.finding_module = "loss";
    config.finding_tensor = "total";
    config.precision = "fp32";
    config.replay = replay;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    fb_locate_release(&result);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void run(const line *of, uint32_t count)
{
    fb_status status;
    memcpy(table, of, count * sizeof *of);
    lines = count;
    status = fb_locate_run(&config, &result, &err);
    if (status != FB_OK) fail_msg("%s: %s", fb_status_name(status), err.message);
}
#define RUN(of) run(of, sizeof(of) / sizeof *(of))

static fb_locate_file read_file(void)
{
    fb_locate_file file;
    if (fb_locate_read(&file, fb_os_posix(), folder, &err) != FB_OK) fail_msg("%s", err.message);
    return file;
}

static void says(const char *part)
{
    if (!strstr(result.sentence, part)) fail_msg("\"%s\" does not say \"%s\"", result.sentence, part);
}

/* Blocks of masked attention, a row of which sees no key; the residual stream carries what each adds to it. */
static const line three_blocks[] = {
    {"add", "h.0.attn", "masked", {0, NO}, -INFINITY, FB_TAPE_MASK},
    {"softmax", "h.0.attn", "probabilities", {1, NO}, NAN, 0},
    {"add", "h.0", "stream", {0, 2, NO}, NAN, 0},
    {"add", "h.1.attn", "masked", {3, NO}, -INFINITY, FB_TAPE_MASK},
    {"softmax", "h.1.attn", "probabilities", {4, NO}, NAN, 0},
    {"add", "h.1", "stream", {3, 5, NO}, NAN, 0},
    {"add", "h.2.attn", "masked", {6, NO}, -INFINITY, FB_TAPE_MASK},
    {"softmax", "h.2.attn", "probabilities", {7, NO}, NAN, 0},
    {"add", "h.2", "stream", {6, 8, NO}, NAN, 0},
    {"sum", "loss", "total", {9, NO}, NAN, 0},
};

static void test_locate__a_row_that_sees_no_key_is_the_first_blocks_and_the_others_are_later(void **state)
{
    fb_locate_file file;
    (void)state;
    RUN(three_blocks);
    assert_int_equal(result.found, FB_LOCATED_OPERATOR);
    assert_string_equal(result.op, "softmax");
    assert_string_equal(result.module, "h.0.attn");
    assert_int_equal(result.candidates, 1);
    assert_int_equal(result.later, 2);
    says("softmax of \"h.0.attn\" (forward, micro-step 0) read finite numbers and an intended mask of -Inf on rank 0");
    says("may go wrong later at softmax of \"h.1.attn\" and softmax of \"h.2.attn\".");
    file = read_file();
    assert_int_equal(file.later.count, 2);
    assert_string_equal(file.later.items[0].module, "h.1.attn");
    assert_string_equal(file.later.items[1].module, "h.2.attn");
    assert_true(fb_locate_chain_whole(&file, NULL, 0));
    fb_locate_file_release(&file);
}

static void test_locate__the_place_is_said_once(void **state)
{
    const char *first;
    (void)state;
    RUN(three_blocks);
    first = strstr(result.sentence, "h.0.attn");
    assert_non_null(first);
    assert_null(strstr(first + 1, "h.0.attn"));
}

/* The NaN of the division is made 0 before the logarithm of that 0, and reaches the sum by itself. */
static const line behind_a_repair[] = {
    {"div", "a", "y", {0, NO}, NAN, 0},
    {"nan_to_num", "a", "z", {1, NO}, 0, 0},
    {"log", "b", "l", {2, NO}, -INFINITY, 0},
    {"sum", "loss", "total", {1, 3, NO}, NAN, 0},
};

static void test_locate__what_fails_behind_finite_numbers_is_later(void **state)
{
    (void)state;
    for (int32_t strategy = FB_LOCATE_SWEEP; strategy <= FB_LOCATE_BISECT; strategy++) {
        config.strategy = strategy;
        config.folder = NULL;
        RUN(behind_a_repair);
        assert_int_equal(result.found, FB_LOCATED_OPERATOR);
        assert_string_equal(result.op, "div");
        assert_int_equal(result.later, 1);
        says("may go wrong later at log of \"b\".");
        fb_locate_release(&result);
    }
}

/* The same without a way from the one to the other: neither is first. */
static const line side_by_side[] = {
    {"div", "a", "y", {0, NO}, NAN, 0},
    {"log", "b", "l", {0, NO}, -INFINITY, 0},
    {"sum", "loss", "total", {1, 2, NO}, NAN, 0},
};

static void test_locate__two_that_do_not_know_of_each_other_are_a_set(void **state)
{
    (void)state;
    RUN(side_by_side);
    assert_int_equal(result.found, FB_LOCATED_SET);
    assert_int_equal(result.candidates, 2);
    assert_int_equal(result.later, 0);
    says("2 operators failed by themselves, and none of them comes after another.");
}

/* -Inf comes into the mask from a product that is bad itself: the mask alone may have done it, or not. */
static const line a_mask_that_may_carry[] = {
    {"matmul", "h.0.attn", "scores", {0, NO}, -INFINITY, 0},
    {"add", "h.0.attn", "masked", {1, NO}, -INFINITY, FB_TAPE_MASK},
    {"softmax", "h.0.attn", "probabilities", {2, NO}, NAN, 0},
    {"sum", "loss", "total", {3, NO}, NAN, 0},
};

static void test_locate__a_mask_that_may_carry_something_is_an_interval(void **state)
{
    (void)state;
    RUN(a_mask_that_may_carry);
    assert_int_equal(result.found, FB_LOCATED_INTERVAL);
    assert_int_equal(result.candidates, 2);
    says("It is one of 2 places, from matmul of \"h.0.attn\"");
    says("to softmax of \"h.0.attn\"");
    says("none is named");
}

static void test_locate__what_was_planted_is_said_to_be(void **state)
{
    fb_locate_file file;
    (void)state;
    finite_from = 1;
    config.finding_injected = 1;
    RUN(side_by_side);
    assert_int_equal(result.found, FB_LOCATED_NOT_REPRODUCED);
    assert_int_equal(result.rule, FB_RULE_NONE);
    says("planted by the guard");
    assert_null(strstr(result.sentence, "hardware"));
    file = read_file();
    assert_int_equal(file.cause.class_number, FB_CAUSE_UNKNOWN);
    assert_non_null(strstr(file.cause.explanation, "planted by the guard"));
    fb_locate_file_release(&file);
}

/* One that comes again was not (only) the guard's doing, and is located as any other. */
static void test_locate__what_was_planted_and_comes_again_is_located(void **state)
{
    (void)state;
    config.finding_injected = 1;
    RUN(behind_a_repair);
    assert_int_equal(result.found, FB_LOCATED_OPERATOR);
    assert_string_equal(result.op, "div");
    assert_null(strstr(result.sentence, "planted"));
}

/* Every link of the chain is looked at twice, with one tensor a replay beside the finding: more than
 * the 64 of an unbounded search. */
static void test_locate__the_default_budget_is_enough_for_few_probes_on_a_long_row(void **state)
{
    enum { LENGTH = 400, FROM = 133 };
    static line row[LENGTH];
    (void)state;
    for (int32_t k = 0; k < LENGTH; k++) {
        snprintf(names[k], sizeof names[k], "t%d", k);
        row[k] = (line){k == FROM ? "log" : "copy", "m", names[k], {k, NO}, k < FROM ? 1.0f : NAN, 0};
    }
    row[LENGTH - 1].module = "loss";
    row[LENGTH - 1].name = "total";
    config.folder = NULL;
    config.strategy = FB_LOCATE_BISECT;
    for (uint32_t probes = 2; probes <= 8; probes += 6) {
        config.probes_max = probes;
        config.replays_max = 0;
        run(row, LENGTH);
        assert_int_equal(result.found, FB_LOCATED_OPERATOR);
        assert_string_equal(result.op, "log");
        assert_true(result.search_replays > 64);
        fb_locate_release(&result);
        config.replays_max = 64;
        run(row, LENGTH);
        assert_int_equal(result.found, FB_LOCATED_INTERVAL);
        fb_locate_release(&result);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_locate__a_row_that_sees_no_key_is_the_first_blocks_and_the_others_are_later),
        CASE(test_locate__the_place_is_said_once),
        CASE(test_locate__what_fails_behind_finite_numbers_is_later),
        CASE(test_locate__two_that_do_not_know_of_each_other_are_a_set),
        CASE(test_locate__a_mask_that_may_carry_something_is_an_interval),
        CASE(test_locate__what_was_planted_is_said_to_be),
        CASE(test_locate__what_was_planted_and_comes_again_is_located),
        CASE(test_locate__the_default_budget_is_enough_for_few_probes_on_a_long_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
