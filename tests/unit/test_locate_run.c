/* fb_locate_run on one rank: what is named, why, how small the batch becomes, and what is said when something cannot be done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "locate/locate_json.h"
#include "os/os.h"
#include "support/locate_trainer.h"

static trainer t;
static fb_locate_config config;
static fb_locate_result result;
static fb_error err;
static char folder[64];

static int set_up(void **state)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    (void)state;
    trainer_init(&t);
    config = trainer_config(&t);
    result = empty;
    memset(&err, 0, sizeof err);
    strcpy(folder, "/tmp/firstbad-locate-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    fb_locate_release(&result);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void run(void)
{
    fb_status status = fb_locate_run(&config, &result, &err);
    if (status != FB_OK) fail_msg("%s: %s", fb_status_name(status), err.message);
}

static void names_division(void)
{
    assert_int_equal(result.found, FB_LOCATED_OPERATOR);
    assert_string_equal(result.op, "div");
    assert_string_equal(result.module, "h.0");
    assert_string_equal(result.tensor, "q");
    assert_string_equal(result.source, "trainer.c:1");
    assert_int_equal(result.boundary, FB_FORWARD);
    assert_int_equal(result.owner, 0);
    assert_int_equal(result.candidates, 1);
}

static int has(const char *text, const char *part)
{
    return text && strstr(text, part) != NULL;
}

/* ---- what is named ----------------------------------------------------------------------------------------------------------- */

static void test_locate__an_epsilon_that_became_zero_is_found_upstream(void **state)
{
    (void)state;
    run();
    names_division();
    assert_int_equal(result.rule, FB_RULE_ROUNDING_UPSTREAM);
    assert_string_equal(result.cause_class, "epsilon_underflow");
    assert_int_equal(result.persists, 0);
    assert_int_equal(result.faithful, 1);
    assert_int_equal(result.reproduced, 3);
    assert_int_equal(result.tried, 3);
    assert_true(has(result.sentence, "div of \"h.0\""));
    /* Two for the search, one for the values, one in FP32, and those of the smallest batch. */
    assert_int_equal(result.search_replays, 2);
    assert_int_equal(t.asked[FB_REPLAY_AGAIN], 3);
    assert_int_equal(t.asked[FB_REPLAY_PRECISION], 1);
    assert_int_equal(result.replays, 4 + t.asked[FB_REPLAY_SMALLER]);
    assert_true(result.nanoseconds > 0);
}

static void test_locate__bisect_names_the_same_as_a_sweep(void **state)
{
    (void)state;
    config.strategy = FB_LOCATE_BISECT;
    run();
    names_division();
    fb_locate_release(&result);
    config.probes_max = 1;
    run();
    names_division();
}

static void test_locate__the_rows_that_it_takes_are_tried_without(void **state)
{
    (void)state;
    run();
    assert_int_equal(result.rows_needed, 1);
    assert_int_equal(result.rows[0], 2);
    assert_int_equal(result.rows_alone, 1); /* rows 0, 1 and 3 do no harm */
    fb_locate_release(&result);
    t.tokens[0] = 7; /* row 0 does as well: leaving out either of them helps nobody */
    run();
    assert_int_equal(result.rows_needed, 1);
    assert_int_equal(result.rows_alone, -1);
}

static void test_locate__rows_cost_twice_the_halvings_and_two_replays_more(void **state)
{
    (void)state;
    config.columns = 0;
    config.evidence_bytes_max = 0;
    for (int row = 0; row < TR_ROWS; row++) {
        trainer_init(&t);
        t.tokens[2 * TR_COLUMNS + 3] = 1;
        t.tokens[row * TR_COLUMNS + 3] = 7;
        run();
        assert_int_equal(result.rows_needed, 1);
        assert_int_equal(result.rows[0], row);
        assert_in_range(t.asked[FB_REPLAY_SMALLER], 3, 2 * 2 + 2); /* 4 rows are 2 halvings */
        assert_int_equal(result.replays, 4 + t.asked[FB_REPLAY_SMALLER]);
        fb_locate_release(&result);
    }
}

static void test_locate__one_row_without_columns_is_not_made_smaller(void **state)
{
    (void)state;
    config.rows = 1;
    config.columns = 1;
    run();
    assert_int_equal(result.found, FB_LOCATED_OPERATOR);
    assert_int_equal(result.rows_needed, 0);
    assert_int_equal(t.asked[FB_REPLAY_SMALLER], 0);
}

static void test_locate__bad_state_blames_no_operator(void **state)
{
    (void)state;
    t.weight = NAN;
    run();
    assert_int_equal(result.found, FB_LOCATED_ENTRY);
    assert_int_equal(result.rule, FB_RULE_STATE);
    assert_string_equal(result.op, "");
    assert_string_equal(result.module, "h.1");
    assert_string_equal(result.tensor, "weight");
    assert_int_equal(t.asked[FB_REPLAY_SMALLER], 0);
}

static void test_locate__a_bad_batch_is_the_batch(void **state)
{
    (void)state;
    t.dense = INFINITY;
    t.tokens[2 * TR_COLUMNS + 3] = 1;
    run();
    assert_int_equal(result.found, FB_LOCATED_ENTRY);
    assert_int_equal(result.rule, FB_RULE_BATCH);
    assert_string_equal(result.op, "");
    assert_string_equal(result.tensor, "dense");
}

static void test_locate__a_finding_in_the_state_is_itself_the_entry(void **state)
{
    (void)state;
    t.weight = NAN;
    config.finding_boundary = FB_ENTRY;
    config.finding_module = "h.1";
    config.finding_tensor = "weight";
    run();
    assert_int_equal(result.found, FB_LOCATED_ENTRY);
    assert_string_equal(result.tensor, "weight");
    assert_int_equal(result.boundary, FB_ENTRY);
}

/* ---- how often --------------------------------------------------------------------------------------------------------------- */

static void test_locate__what_never_comes_again_is_said_to(void **state)
{
    (void)state;
    t.tokens[2 * TR_COLUMNS + 3] = 1;
    run();
    assert_int_equal(result.found, FB_LOCATED_NOT_REPRODUCED);
    assert_int_equal(result.reproduced, 0);
    assert_int_equal(result.tried, 3);
    assert_int_equal(result.owner, -1);
    assert_int_equal(result.rule, FB_RULE_NOT_REPRODUCIBLE);
    assert_int_equal(t.asked[FB_REPLAY_SMALLER] + t.asked[FB_REPLAY_PRECISION], 0);
}

static void test_locate__a_witness_that_fails_the_third_time_names_nobody(void **state)
{
    (void)state;
    t.only_before = 3;
    run();
    assert_int_equal(result.found, FB_LOCATED_NOT_STEADY);
    assert_int_equal(result.reproduced, 2);
    assert_int_equal(result.tried, 3);
    assert_string_equal(result.op, "");
}

static void test_locate__a_fault_that_stops_after_the_witness_names_nobody(void **state)
{
    (void)state;
    config.times = 5;
    t.only_before = 5;
    run();
    assert_int_equal(result.found, FB_LOCATED_NOT_STEADY);
    assert_int_equal(result.reproduced, 4);
    assert_int_equal(result.tried, 5);
    assert_string_equal(result.op, "");
}

static void test_locate__replays_alone_count_and_do_not_search(void **state)
{
    (void)state;
    config.parts = FB_LOCATE_REPLAY;
    config.times = 7;
    run();
    assert_int_equal(result.found, FB_LOCATED_NOTHING);
    assert_int_equal(result.reproduced, 7);
    assert_int_equal(result.tried, 7);
    assert_int_equal(result.persists, 0);
    assert_int_equal(result.replays, 8);
    assert_string_equal(result.op, "");
}

/* ---- what cannot be done ----------------------------------------------------------------------------------------------------- */

static void test_locate__a_finding_that_is_not_on_the_tape_is_undecided(void **state)
{
    (void)state;
    config.finding_tensor = "elsewhere";
    run();
    assert_int_equal(result.found, FB_LOCATED_UNDECIDED);
    assert_true(has(result.sentence, "elsewhere"));
    assert_int_equal(result.replays, 1);
}

static void test_locate__a_replay_that_fails_once_is_an_interval_and_no_error(void **state)
{
    (void)state;
    for (uint32_t number = 1; number <= 4; number++) {
        t.fail_from = t.fail_to = number;
        t.failure = FB_E_NOMEM;
        config.parts = FB_LOCATE_SEARCH | FB_LOCATE_REPLAY;
        run();
        /* The first is played again, and the fourth is no part of the search. */
        if (number == 2 || number == 3) assert_int_equal(result.found, FB_LOCATED_INTERVAL);
        else names_division();
        assert_int_equal(result.candidates, 1);
        assert_string_equal(result.op, "div");
    }
}

static void test_locate__replays_that_always_fail_are_undecided(void **state)
{
    (void)state;
    t.fail_from = 1;
    t.fail_to = UINT32_MAX;
    t.failure = FB_E_NOMEM;
    run();
    assert_int_equal(result.found, FB_LOCATED_UNDECIDED);
    assert_int_equal(result.replays, 2);
    assert_int_equal(result.tried, 0);
    assert_int_equal(result.faithful, 0);
    t.failure = FB_E_UNSUPPORTED;
    run();
    assert_int_equal(result.found, FB_LOCATED_UNDECIDED);
    assert_int_equal(result.replays, 1);
    assert_true(has(result.sentence, "cannot replay"));
}

static void test_locate__other_operators_in_a_replay_are_not_looked_at(void **state)
{
    fb_locate_file file;
    (void)state;
    t.stray_in = 2;
    config.folder = folder;
    config.parts = FB_LOCATE_SEARCH | FB_LOCATE_REPLAY;
    run();
    assert_int_equal(result.found, FB_LOCATED_INTERVAL);
    assert_int_equal(result.faithful, 0);
    assert_int_equal(fb_locate_read(&file, fb_os_posix(), folder, &err), FB_OK);
    assert_int_equal(file.replay.difference_count, 1);
    assert_true(has(file.replay.differences[0], "not the same operators: number 1 is dropout"));
    fb_locate_file_release(&file);
}

static void test_locate__an_entry_with_other_bytes_is_named_and_not_faithful(void **state)
{
    fb_locate_file file;
    (void)state;
    t.changed_in = 2;
    config.folder = folder;
    config.parts = FB_LOCATE_SEARCH | FB_LOCATE_REPLAY;
    run();
    names_division();
    assert_int_equal(result.faithful, 0);
    assert_int_equal(fb_locate_read(&file, fb_os_posix(), folder, &err), FB_OK);
    assert_int_equal(file.replay.faithful, 0);
    assert_int_equal(file.replay.difference_count, 1);
    assert_true(has(file.replay.differences[0], "h.1.weight did not hold the same bytes"));
    fb_locate_file_release(&file);
}

static void test_locate__a_known_difference_is_not_faithful(void **state)
{
    static const char *const differences[] = {"4 ranks became 1"};
    (void)state;
    config.differences = differences;
    config.difference_count = 1;
    run();
    names_division();
    assert_int_equal(result.faithful, 0);
}

static void test_locate__a_folder_that_cannot_be_written_fails_nothing(void **state)
{
    (void)state;
    config.folder = "/proc/nothing/here";
    run();
    names_division();
    assert_int_equal(err.code, FB_OK);
    assert_true(err.message[0] != '\0');
}

static void test_locate__without_fp32_it_is_not_said_whether_it_persists(void **state)
{
    (void)state;
    t.no_fp32 = 1;
    run();
    names_division();
    assert_int_equal(result.persists, -1);
}

static void test_locate__without_fp64_the_operator_is_named_all_the_same(void **state)
{
    (void)state;
    t.no_rerun = 1;
    run();
    names_division();
    fb_locate_release(&result);
    config.rerun = NULL;
    run();
    names_division();
}

/* ---- the smallest batch ------------------------------------------------------------------------------------------------------ */

static void test_locate__one_token_of_one_row_is_left(void **state)
{
    fb_locate_file file;
    (void)state;
    config.folder = folder;
    run();
    names_division();
    assert_int_equal(result.rows_needed, 1);
    assert_int_equal(result.rows[0], 2);
    assert_int_equal(result.tokens_needed, 1);
    assert_non_null(result.keep);
    for (int i = 0; i < TR_COLUMNS; i++) assert_int_equal(result.keep[i], i == 3);
    assert_int_equal(fb_locate_read(&file, fb_os_posix(), folder, &err), FB_OK);
    assert_int_equal(file.minimise.sample_count, 1);
    assert_int_equal(file.minimise.sample_ids[0], 503);
    assert_int_equal(file.minimise.coupled, 0);
    assert_true(fb_locate_chain_whole(&file, NULL, 0));
    assert_true(file.evidence.count > 0);
    fb_locate_file_release(&file);
}

static void test_locate__rows_that_are_needed_together_are_kept_together(void **state)
{
    (void)state;
    t.coupled = 1;
    t.tokens[0] = 7;
    run();
    names_division();
    assert_int_equal(result.rows_needed, 2);
    assert_int_equal(result.rows[0], 0);
    assert_int_equal(result.rows[1], 2);
    assert_int_equal(result.tokens_needed, 2);
    for (int i = 0; i < 2 * TR_COLUMNS; i++) assert_int_equal(result.keep[i], i == 0 || i == TR_COLUMNS + 3);
}

static void test_locate__a_trainer_that_cannot_leave_out_keeps_the_batch(void **state)
{
    (void)state;
    t.no_rows = 1;
    run();
    names_division();
    assert_int_equal(result.rows_needed, 0);
    assert_null(result.rows);
    fb_locate_release(&result);
    t.no_rows = 0;
    t.no_tokens = 1;
    run();
    assert_int_equal(result.rows_needed, 1);
    assert_int_equal(result.tokens_needed, TR_COLUMNS);
    assert_null(result.keep);
}

static void test_locate__minimising_stays_within_its_budget(void **state)
{
    (void)state;
    for (uint32_t budget = 1; budget < 12; budget++) {
        t.asked[FB_REPLAY_SMALLER] = 0;
        config.tests_max = budget;
        run();
        assert_true(t.asked[FB_REPLAY_SMALLER] <= budget);
        assert_true(result.rows_needed >= 1);
        fb_locate_release(&result);
    }
}

/* ---- what was swallowed ------------------------------------------------------------------------------------------------------ */

static void test_locate__what_was_swallowed_is_listed_and_not_named(void **state)
{
    fb_locate_file file;
    (void)state;
    t.side_fault = 1;
    config.folder = folder;
    run();
    names_division();
    assert_int_equal(fb_locate_read(&file, fb_os_posix(), folder, &err), FB_OK);
    assert_int_equal(file.swallowed.count, 1);
    assert_string_equal(file.swallowed.items[0].op, "log");
    assert_string_equal(file.swallowed.items[0].module, "side");
    assert_int_equal(file.chain.count, 4);
    assert_string_equal(file.chain.items[0].op, "div");
    assert_string_equal(file.chain.items[3].op, "sum");
    fb_locate_file_release(&file);
}

/* ---- misuse ------------------------------------------------------------------------------------------------------------------ */

static void test_locate__misuse_is_refused_before_a_replay(void **state)
{
    fb_locate_config wrong[8];
    (void)state;
    assert_int_equal(fb_locate_run(NULL, &result, &err), FB_E_USAGE);
    assert_int_equal(fb_locate_run(&config, NULL, &err), FB_E_USAGE);
    for (int i = 0; i < 8; i++) wrong[i] = config;
    wrong[0].size = 8;
    wrong[1].rank = 1;
    wrong[2].world = 2;
    wrong[3].replay = NULL;
    wrong[4].finding_tensor = NULL;
    wrong[5].parts = 1u << 20;
    wrong[6].strategy = 7;
    wrong[7].finding_rank = -1;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(fb_locate_run(&wrong[i], &result, &err), FB_E_USAGE);
        assert_int_equal(err.code, FB_E_USAGE);
    }
    assert_int_equal(t.asked[FB_REPLAY_AGAIN], 0);
    fb_locate_release(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_locate__an_epsilon_that_became_zero_is_found_upstream),
        CASE(test_locate__bisect_names_the_same_as_a_sweep),
        CASE(test_locate__the_rows_that_it_takes_are_tried_without),
        CASE(test_locate__rows_cost_twice_the_halvings_and_two_replays_more),
        CASE(test_locate__one_row_without_columns_is_not_made_smaller),
        CASE(test_locate__bad_state_blames_no_operator),
        CASE(test_locate__a_bad_batch_is_the_batch),
        CASE(test_locate__a_finding_in_the_state_is_itself_the_entry),
        CASE(test_locate__what_never_comes_again_is_said_to),
        CASE(test_locate__a_witness_that_fails_the_third_time_names_nobody),
        CASE(test_locate__a_fault_that_stops_after_the_witness_names_nobody),
        CASE(test_locate__replays_alone_count_and_do_not_search),
        CASE(test_locate__a_finding_that_is_not_on_the_tape_is_undecided),
        CASE(test_locate__a_replay_that_fails_once_is_an_interval_and_no_error),
        CASE(test_locate__replays_that_always_fail_are_undecided),
        CASE(test_locate__other_operators_in_a_replay_are_not_looked_at),
        CASE(test_locate__an_entry_with_other_bytes_is_named_and_not_faithful),
        CASE(test_locate__a_known_difference_is_not_faithful),
        CASE(test_locate__a_folder_that_cannot_be_written_fails_nothing),
        CASE(test_locate__without_fp32_it_is_not_said_whether_it_persists),
        CASE(test_locate__without_fp64_the_operator_is_named_all_the_same),
        CASE(test_locate__one_token_of_one_row_is_left),
        CASE(test_locate__rows_that_are_needed_together_are_kept_together),
        CASE(test_locate__a_trainer_that_cannot_leave_out_keeps_the_batch),
        CASE(test_locate__minimising_stays_within_its_budget),
        CASE(test_locate__what_was_swallowed_is_listed_and_not_named),
        CASE(test_locate__misuse_is_refused_before_a_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
