/* The tape: what it writes down, compares, looks at, keeps and refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "locate/tape.h"
#include "locate/values.h"

static fb_error err;
static fb_row row;
static const fb_tape_finding finding = {"h.0", "y", FB_FORWARD, 1};
static float numbers[4] = {1.0f, 2.0f, 3.0f, 4.0f};

static int clear(void **state)
{
    (void)state;
    fb_row_release(&row);
    for (int i = 0; i < 4; i++) numbers[i] = (float)(i + 1);
    return 0;
}

static fb_tape_value value_of(const char *name, const float *data, uint64_t count)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    value.name = name;
    value.data = data;
    value.count = count;
    value.dtype = value.format = FB_F32;
    return value;
}

static fb_status hear(fb_tape *tape, const char *op_name, const char *module, const char *name, uint32_t input, const float *data,
                      uint64_t count, int32_t micro_step)
{
    fb_tape_op op = FB_TAPE_OP_INIT;
    fb_tape_value value = value_of(name, data, count);
    op.op = op_name;
    op.module = module;
    op.micro_step = micro_step;
    op.inputs = &input;
    op.input_count = 1;
    op.outputs = &value;
    op.output_count = 1;
    return fb_tape_op_ran(tape, &op, &err);
}

static void must(fb_status status)
{
    if (status != FB_OK) fail_msg("%s", err.message);
}

/* entry x, then mul y (micro-step 0), mul y (micro-step 1), add z. */
static void play(fb_tape *tape)
{
    fb_tape_value x = value_of("x", numbers, 4);
    must(fb_tape_entry(tape, &x, NULL, &err));
    must(hear(tape, "mul", "h.0", "y", 0, numbers, 4, 0));
    must(hear(tape, "mul", "h.0", "y", 1, numbers, 4, 1));
    must(hear(tape, "add", "h.1", "z", 2, numbers, 4, 1));
}

static void record(void)
{
    fb_tape tape;
    fb_tape_init(&tape, FB_TAPE_RECORD, &row, &finding);
    tape.look_all = 1;
    play(&tape);
    must(fb_row_finish(&row, &err));
    fb_tape_release(&tape);
}

/* ---- the row ----------------------------------------------------------------------------------------------------------------- */

static void test_tape__the_first_replay_writes_the_row_down(void **state)
{
    fb_tape tape;
    (void)state;
    numbers[1] = NAN;
    fb_tape_init(&tape, FB_TAPE_RECORD, &row, &finding);
    tape.look_all = 1;
    play(&tape);
    must(fb_row_finish(&row, &err));
    assert_int_equal(row.flow.nodes, 3);
    assert_int_equal(row.flow.tensors, 4);
    assert_int_equal(row.producer[0], FB_FLOW_NONE);
    assert_int_equal(row.producer[3], 2);
    assert_int_equal(row.flow.inputs[2], 2);
    assert_string_equal(fb_row_text(&row, row.node[2].op), "add");
    assert_string_equal(fb_row_text(&row, row.module[3]), "h.1");
    for (uint32_t t = 0; t < 4; t++) assert_int_equal(fb_tape_saw(&tape, t), FB_SEEN_BAD);
    /* The finding is that of its own micro-step. */
    assert_int_equal(tape.finding_id, 2);
    assert_int_equal(tape.finding_near, 1);
    assert_int_equal(fb_tape_saw_finding(&tape), FB_SEEN_BAD);
    fb_tape_release(&tape);
}

static void test_tape__names_are_kept_once(void **state)
{
    fb_names names;
    uint32_t id, again;
    char text[16];
    (void)state;
    memset(&names, 0, sizeof names);
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "h.%u", i);
        must(fb_names_add(&names, text, &id, &err));
        assert_int_equal(id, i);
    }
    must(fb_names_add(&names, NULL, &id, &err));
    must(fb_names_add(&names, "", &again, &err));
    assert_int_equal(id, again);
    must(fb_names_add(&names, "h.512", &id, &err));
    assert_int_equal(id, 512);
    assert_string_equal(fb_names_text(&names, 999), "h.999");
    fb_names_release(&names);
}

static void test_tape__looks_only_at_what_is_wanted(void **state)
{
    uint8_t wanted[4] = {0, 0, FB_WANT_LOOK, 0};
    fb_tape tape;
    (void)state;
    record();
    numbers[2] = INFINITY;
    fb_tape_init(&tape, FB_TAPE_COMPARE, &row, &finding);
    tape.wanted = wanted;
    tape.wanted_count = 1;
    assert_int_equal(fb_tape_done(&tape), 0);
    play(&tape);
    assert_int_equal(fb_tape_done(&tape), 1);
    fb_tape_end(&tape);
    assert_int_equal(fb_tape_saw(&tape, 2), FB_SEEN_BAD);
    assert_int_equal(fb_tape_saw(&tape, 1), FB_SEEN_UNTESTABLE);
    assert_int_equal(fb_tape_saw(&tape, 3), FB_SEEN_UNTESTABLE);
    assert_int_equal(fb_tape_saw(&tape, 4000), FB_SEEN_UNTESTABLE);
    assert_int_equal(tape.changed, 1); /* the entry holds Inf now */
    assert_string_equal(tape.changed_name, "x");
    fb_tape_release(&tape);
}

static void test_tape__minus_infinity_alone_is_told_apart(void **state)
{
    fb_tape tape;
    (void)state;
    numbers[0] = -INFINITY;
    fb_tape_init(&tape, FB_TAPE_RECORD, &row, &finding);
    tape.look_all = 1;
    play(&tape);
    assert_int_equal(fb_tape_saw(&tape, 3), FB_SEEN_NEG_INF);
    fb_tape_release(&tape);
    fb_row_release(&row);
    numbers[3] = NAN;
    fb_tape_init(&tape, FB_TAPE_RECORD, &row, &finding);
    tape.look_all = 1;
    play(&tape);
    assert_int_equal(fb_tape_saw(&tape, 3), FB_SEEN_BAD);
    fb_tape_release(&tape);
}

/* ---- another row ------------------------------------------------------------------------------------------------------------- */

static void strays(const char *op, const char *module, uint32_t input, uint64_t count, int32_t micro_step, int32_t mode,
                   int expected)
{
    uint8_t wanted[4] = {FB_WANT_LOOK, FB_WANT_LOOK, FB_WANT_LOOK, FB_WANT_LOOK};
    fb_tape_value x = value_of("x", numbers, 4);
    fb_tape tape;
    fb_tape_init(&tape, mode, &row, &finding);
    tape.wanted = wanted;
    tape.wanted_count = 4;
    must(fb_tape_entry(&tape, &x, NULL, &err));
    must(hear(&tape, op, module, "y", input, numbers, count, micro_step));
    assert_int_equal(tape.strayed, expected);
    assert_int_equal(fb_tape_saw(&tape, 0) == FB_SEEN_UNTESTABLE, expected);
    assert_int_equal(fb_tape_saw(&tape, 1) == FB_SEEN_UNTESTABLE, expected);
    if (expected) assert_non_null(strstr(tape.differs, "number 0 is"));
    fb_tape_release(&tape);
}

static void test_tape__any_other_operator_makes_it_another_row(void **state)
{
    (void)state;
    record();
    strays("mul", "h.0", 0, 4, 0, FB_TAPE_COMPARE, 0);
    strays("div", "h.0", 0, 4, 0, FB_TAPE_COMPARE, 1);
    strays("mul", "h.9", 0, 4, 0, FB_TAPE_COMPARE, 1);
    strays("mul", "h.0", 0, 3, 0, FB_TAPE_COMPARE, 1);
    strays("mul", "h.0", 0, 4, 5, FB_TAPE_COMPARE, 1);
    strays("mul", "h.0", 0, 3, 0, FB_TAPE_SMALLER, 0);
    strays("div", "h.0", 0, 3, 0, FB_TAPE_SMALLER, 1);
}

static void test_tape__a_replay_that_ends_early_is_another_row(void **state)
{
    uint8_t wanted[4] = {FB_WANT_LOOK, 0, 0, FB_WANT_LOOK};
    fb_tape_value x = value_of("x", numbers, 4);
    fb_tape tape;
    (void)state;
    record();
    for (uint32_t count = 1; count <= 2; count++) {
        fb_tape_init(&tape, FB_TAPE_COMPARE, &row, &finding);
        tape.wanted = wanted;
        tape.wanted_count = count; /* with 1 the entry was all, and it may stop */
        must(fb_tape_entry(&tape, &x, NULL, &err));
        fb_tape_end(&tape);
        assert_int_equal(tape.strayed, count == 2);
        assert_int_equal(fb_tape_saw(&tape, 0), count == 2 ? FB_SEEN_UNTESTABLE : FB_SEEN_FINITE);
        fb_tape_release(&tape);
    }
}

static void test_tape__in_any_row_the_finding_is_found_by_its_name(void **state)
{
    fb_tape tape;
    (void)state;
    numbers[0] = NAN;
    fb_tape_init(&tape, FB_TAPE_FREE, NULL, &finding);
    play(&tape);
    assert_int_equal(fb_tape_saw_finding(&tape), FB_SEEN_BAD);
    fb_tape_release(&tape);
}

/* ---- what is kept ------------------------------------------------------------------------------------------------------------ */

static void test_tape__keeps_values_and_counts(void **state)
{
    uint8_t wanted[4] = {0, FB_WANT_KEEP, 0, FB_WANT_KEEP};
    fb_tape tape;
    (void)state;
    record();
    numbers[2] = INFINITY;
    for (uint64_t most = 0; most <= 32; most += 32) {
        const fb_witness_tensor *kept;
        fb_tape_init(&tape, FB_TAPE_COMPARE, &row, &finding);
        tape.wanted = wanted;
        tape.wanted_count = 2;
        tape.keep_bytes_max = most;
        play(&tape);
        kept = fb_tape_kept(&tape, 1);
        assert_non_null(kept);
        assert_null(fb_tape_kept(&tape, 2));
        assert_string_equal(kept->name, "y");
        assert_int_equal(kept->stats.pos_inf, 1);
        assert_int_equal(kept->stats.first_index, 2);
        assert_true(kept->values[2] == INFINITY && kept->values[3] == 4.0);
        /* The second does not fit into 32 bytes any more, and is told in counts. */
        assert_int_equal(fb_tape_kept(&tape, 3)->values == NULL, most == 32);
        assert_int_equal(fb_tape_kept(&tape, 3)->stats.pos_inf, 1);
        fb_tape_release(&tape);
    }
}

static void test_tape__values_of_every_format_are_exact(void **state)
{
    static const uint16_t f16[] = {0x3c00, 0x0001, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x8000};
    static const uint16_t bf16[] = {0x3f80, 0x0001, 0xff80};
    static const int64_t i64[] = {-5, INT64_C(1) << 53};
    double out[8];
    (void)state;
    fb_values_read(FB_F16, f16, 7, out);
    assert_true(out[0] == 1.0 && out[1] == 0x1p-24 && out[2] == 65504.0 && out[3] == INFINITY && out[4] == -INFINITY &&
                isnan(out[5]));
    assert_true(out[6] == 0 && signbit(out[6]));
    fb_values_read(FB_BF16, bf16, 3, out);
    assert_true(out[0] == 1.0 && out[1] == 0x1p-133 && out[2] == -INFINITY);
    fb_values_read(FB_I64, i64, 2, out);
    assert_true(out[0] == -5.0 && out[1] == 0x1p53);
    assert_int_equal(fb_values_readable(FB_F8_E4M3FN), 1);
    assert_int_equal(fb_values_readable(FB_C64), 0);
    assert_int_equal(fb_values_readable(FB_F4_E2M1), 0);
    assert_true(fb_values_vanish_at(FB_F16) == 0x1p-25);
    assert_true(fb_values_vanish_at(FB_F32) == 0x1p-150);
    assert_true(fb_values_vanish_at(FB_I32) == 0);
}

/* ---- misuse, bounds, memory -------------------------------------------------------------------------------------------------- */

static void test_tape__misuse_is_refused_and_ends_the_replay(void **state)
{
    (void)state;
    for (int fault = 0; fault < 10; fault++) {
        fb_tape_value x = value_of("x", numbers, 4), y = value_of("y", numbers, 4);
        fb_tape_op op = FB_TAPE_OP_INIT;
        fb_status expected = FB_E_USAGE, status;
        uint32_t input = 0;
        fb_tape tape;
        fb_row_release(&row);
        fb_tape_init(&tape, FB_TAPE_RECORD, &row, &finding);
        op.op = "mul";
        op.inputs = &input;
        op.input_count = 1;
        op.outputs = &y;
        op.output_count = 1;
        must(fb_tape_entry(&tape, &x, NULL, &err));
        switch (fault) {
        case 0: input = 1; break;
        case 1: op.op = NULL; break;
        case 2: y.data = NULL; break;
        case 3: y.size = 8; break;
        case 4:
            y.dtype = 99;
            expected = FB_E_DTYPE;
            break;
        case 5:
            y.ndim = 2;
            y.shape[0] = 3;
            y.shape[1] = 5;
            break;
        case 6: op.attribute_count = 1; break;
        case 7: y.ndim = 9; break;
        case 8: op.size = 4; break;
        default: y.count = UINT64_MAX / 2; break;
        }
        status = fb_tape_op_ran(&tape, &op, &err);
        assert_int_equal(status, expected);
        assert_int_equal(err.code, expected);
        assert_true(err.message[0] != '\0');
        assert_int_equal(fb_tape_done(&tape), 1);
        assert_int_equal(fb_tape_entry(&tape, &x, NULL, &err), expected);
        assert_int_equal(fb_tape_saw(&tape, 0), FB_SEEN_UNTESTABLE);
        fb_tape_release(&tape);
    }
    assert_int_equal(fb_tape_entry(NULL, NULL, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_tape_op_ran(NULL, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_tape_done(NULL), 0);
}

static void test_tape__more_tensors_than_the_bound_are_refused(void **state)
{
    fb_tape tape;
    fb_tape_value x = value_of("x", numbers, 4);
    (void)state;
    fb_tape_init(&tape, FB_TAPE_FREE, NULL, &finding);
    for (uint32_t i = 0; i < FB_ROW_TENSORS_MAX; i++) {
        if (fb_tape_entry(&tape, &x, NULL, &err) != FB_OK) fail_msg("tensor %u: %s", i, err.message);
    }
    assert_int_equal(fb_tape_entry(&tape, &x, NULL, &err), FB_E_LIMIT);
    fb_tape_release(&tape);
    fb_tape_init(&tape, FB_TAPE_FREE, NULL, &finding);
    tape.tensors = FB_ROW_TENSORS_MAX;
    assert_int_equal(hear(&tape, "mul", "h.0", "y", 0, numbers, 4, 0), FB_E_LIMIT);
    fb_tape_release(&tape);
}

static void test_tape__every_failing_allocation_ends_the_replay(void **state)
{
    fb_status status = FB_E_NOMEM;
    (void)state;
    for (uint64_t k = 1; status != FB_OK && k < 1000; k++) {
        fb_tape_value x = value_of("x", numbers, 4);
        fb_tape tape;
        fb_row_release(&row);
        fb_tape_init(&tape, FB_TAPE_RECORD, &row, &finding);
        tape.look_all = 1;
        fb_alloc_fail_at(k, 0);
        status = fb_tape_entry(&tape, &x, NULL, &err);
        if (status == FB_OK) status = hear(&tape, "mul", "h.0", "y", 0, numbers, 4, 0);
        fb_alloc_fail_at(0, 0);
        if (status != FB_OK) {
            assert_int_equal(status, FB_E_NOMEM);
            assert_int_equal(tape.broken, FB_E_NOMEM);
            assert_int_equal(fb_tape_saw(&tape, 0), FB_SEEN_UNTESTABLE);
        } else {
            assert_true(k > 5);
        }
        fb_tape_release(&tape);
    }
    assert_int_equal(status, FB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tape__the_first_replay_writes_the_row_down, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__names_are_kept_once, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__looks_only_at_what_is_wanted, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__minus_infinity_alone_is_told_apart, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__any_other_operator_makes_it_another_row, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__a_replay_that_ends_early_is_another_row, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__in_any_row_the_finding_is_found_by_its_name, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__keeps_values_and_counts, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__values_of_every_format_are_exact, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__misuse_is_refused_and_ends_the_replay, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__more_tensors_than_the_bound_are_refused, clear, clear),
        cmocka_unit_test_setup_teardown(test_tape__every_failing_allocation_ends_the_replay, clear, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
