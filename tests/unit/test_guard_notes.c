/* What a run is told beside its steps: samples that are left out, what a replay showed, what was located. */
#include "support/world.h"

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "log/log.h"

static fb_error err;

/* The only event of this kind in rank 0's ledger: 1, 0 when there is none. text: NUL-terminated. */
static int the_event(const world *w, int32_t kind, fb_rec_event *out, char text[1100])
{
    char path[256];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r00000.log", w->dir);
    assert_int_equal(fb_log_reader_open(&reader, w->os, path, &err), FB_OK);
    while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
        fb_rec_event event;
        if (record.type != FB_REC_EVENT) continue;
        assert_int_equal(fb_rec_event_decode(record.payload, record.bytes, &event, &err), FB_OK);
        if (event.event != kind) continue;
        *out = event;
        (void)snprintf(text, 1100, "%.*s", (int)event.text.bytes, event.text.data);
        count++;
    }
    fb_log_reader_close(reader);
    assert_true(count < 2);
    return count;
}

static void leave_out(const char *value)
{
    if (value) assert_int_equal(setenv("FIRSTBAD_LEAVE_OUT", value, 1), 0);
    else assert_int_equal(unsetenv("FIRSTBAD_LEAVE_OUT"), 0);
}

static void spit(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) < 0, 0);
    assert_int_equal(fclose(file), 0);
}

/* ---- samples that are left out ------------------------------------------------------------------------------------------ */

static void test_guard_notes__samples_of_the_list_are_left_out_and_the_ledger_says_which(void **state)
{
    world w;
    fb_rec_event event;
    char text[1100];
    (void)state;
    world_init(&w, 1);
    leave_out("20417, 3,-9223372036854775808\n9223372036854775807,3\r\n\t0,");
    world_open(&w);
    leave_out(NULL);
    assert_true(fb_run_left_out(w.rank[0].run, 20417) && fb_run_left_out(w.rank[0].run, 3) && fb_run_left_out(w.rank[0].run, 0));
    assert_true(fb_run_left_out(w.rank[0].run, INT64_MIN) && fb_run_left_out(w.rank[0].run, INT64_MAX));
    assert_false(fb_run_left_out(w.rank[0].run, 4) || fb_run_left_out(w.rank[0].run, -3) || fb_run_left_out(NULL, 3));
    assert_int_equal(the_event(&w, FB_EVENT_LEFT_OUT, &event, text), 1);
    assert_true(event.a == 5 && event.b == INT64_MIN);
    assert_string_equal(text, "-9223372036854775808, 0, 3, 20417, 9223372036854775807");
    world_close(&w);
}

static void test_guard_notes__without_a_list_nothing_is_left_out_and_nothing_told(void **state)
{
    world w;
    fb_rec_event event;
    char text[1100];
    (void)state;
    for (int which = 0; which < 3; which++) {
        world_init(&w, 1);
        leave_out(which == 0 ? NULL : which == 1 ? "" : " ,\n");
        world_open(&w);
        leave_out(NULL);
        for (int64_t id = -2; id < 3; id++) assert_false(fb_run_left_out(w.rank[0].run, id));
        assert_int_equal(the_event(&w, FB_EVENT_LEFT_OUT, &event, text), 0);
        assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
        world_close(&w);
    }
}

static void test_guard_notes__a_long_list_comes_from_a_file_and_is_told_as_far_as_it_fits(void **state)
{
    world w;
    fb_rec_event event;
    char text[1100], path[128], name[160];
    FILE *file;
    (void)state;
    world_init(&w, 1);
    (void)snprintf(path, sizeof path, "%s/ids", w.dir);
    file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 50000; i > 0; i--) assert_true(fprintf(file, "%d\n", 3 * i) > 0);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(name, sizeof name, "@%s", path);
    leave_out(name);
    world_open(&w);
    leave_out(NULL);
    for (int i = 1; i < 1000; i++) assert_int_equal(fb_run_left_out(w.rank[0].run, i), i % 3 == 0);
    assert_int_equal(the_event(&w, FB_EVENT_LEFT_OUT, &event, text), 1);
    assert_int_equal(event.a, 50000);
    assert_int_equal(strncmp(text, "3, 6, 9, ", 9), 0);
    assert_non_null(strstr(text, " more"));
    world_close(&w);
}

static void test_guard_notes__what_is_no_list_of_ids_keeps_the_run_from_opening(void **state)
{
    static const char *const wrong[] = {"a",
                                        "1,b",
                                        "1.5",
                                        "0x10",
                                        "1;2",
                                        "--1",
                                        "-",
                                        "+1",
                                        "9223372036854775808",
                                        "-9223372036854775809",
                                        "99999999999999999999999",
                                        "1-2",
                                        "@/nowhere/ids",
                                        "@"};
    world w;
    char path[128], name[160];
    (void)state;
    world_init(&w, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fb_run *run = NULL;
        fb_status status;
        leave_out(wrong[i]);
        status = fb_run_open(&run, &w.config, &err);
        if (wrong[i][0] == '@') assert_true(status == FB_E_NOTFOUND || status == FB_E_IO);
        else assert_int_equal(status, FB_E_USAGE);
        assert_non_null(strstr(err.message, "FIRSTBAD_LEAVE_OUT"));
        assert_null(run);
    }
    (void)snprintf(path, sizeof path, "%s/ids", w.dir);
    (void)snprintf(name, sizeof name, "@%s", path);
    spit(path, "1\n2\nthree\n");
    leave_out(name);
    {
        fb_run *run = NULL;
        assert_int_equal(fb_run_open(&run, &w.config, &err), FB_E_USAGE);
        assert_non_null(strstr(err.message, "three"));
        spit(path, " \n,\n"); /* cut, or not written yet */
        assert_int_equal(fb_run_open(&run, &w.config, &err), FB_E_USAGE);
        assert_non_null(strstr(err.message, "no sample stands in it"));
    }
    leave_out(NULL);
    w.ranks = 0;
    world_close(&w);
}

static void test_guard_notes__more_samples_than_the_bound_are_refused(void **state)
{
    world w;
    char path[128], name[160];
    fb_run *run = NULL;
    FILE *file;
    (void)state;
    world_init(&w, 1);
    (void)snprintf(path, sizeof path, "%s/ids", w.dir);
    (void)snprintf(name, sizeof name, "@%s", path);
    file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i <= 1000000; i++) assert_true(fprintf(file, "%d\n", i) > 0);
    assert_int_equal(fclose(file), 0);
    leave_out(name);
    assert_int_equal(fb_run_open(&run, &w.config, &err), FB_E_USAGE);
    leave_out(NULL);
    w.ranks = 0;
    world_close(&w);
}

/* A rank that trains on a sample which the others leave out is not doing the same as they do. */
static void test_guard_notes__ranks_with_other_lists_do_not_agree(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    leave_out("1,2");
    w.config.rank = 0;
    assert_int_equal(fb_run_open(&w.rank[0].run, &w.config, &err), FB_OK);
    world_sites(&w.rank[0]);
    leave_out("1");
    w.config.rank = 1;
    assert_int_equal(fb_run_open(&w.rank[1].run, &w.config, &err), FB_OK);
    world_sites(&w.rank[1]);
    leave_out(NULL);
    assert_int_equal(world_step(&w, 0, NULL, NULL), FB_HALT);
    assert_int_equal(w.rank[0].verdict.unanimous, 0);
    world_close(&w);
}

static void test_guard_notes__a_list_without_memory_is_an_error_and_no_shorter_list(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    leave_out("5,6,7");
    for (uint64_t k = 1;; k++) {
        fb_run *run = NULL;
        fb_status status;
        char id[32];
        (void)snprintf(id, sizeof id, "run-%d", (int)k);
        w.config.run_id = id;
        fb_alloc_fail_at(k, 0);
        status = fb_run_open(&run, &w.config, &err);
        fb_alloc_fail_at(0, 0);
        if (run) assert_true(fb_run_left_out(run, 5) && fb_run_left_out(run, 6) && fb_run_left_out(run, 7));
        fb_run_close(run);
        if (status == FB_OK && k > 20) break;
        assert_true(k < 200);
    }
    leave_out(NULL);
    w.ranks = 0;
    world_close(&w);
}

static void test_guard_notes__a_list_that_cannot_be_read_is_an_error_and_no_shorter_list(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    w.config.dir = "/runs";
    leave_out("@/ids");
    for (uint64_t k = 1;; k++) {
        os_sim *sim = os_sim_new();
        fb_run *run = NULL;
        fb_status status;
        uint64_t calls;
        assert_int_equal(fb_os_put_new(os_sim_os(sim), "/", "ids", "5\n6\n7\n", 6, &err), FB_OK);
        os_sim_fail(sim, k, 5, 0);
        status = fb_run_open_with(&run, &w.config, os_sim_os(sim), &err);
        calls = os_sim_calls(sim);
        if (run) assert_true(fb_run_left_out(run, 5) && fb_run_left_out(run, 6) && fb_run_left_out(run, 7));
        else assert_true(status == FB_E_IO || status == FB_E_USAGE);
        fb_run_close(run);
        os_sim_free(sim);
        if (calls < k) break;
        assert_true(k < 500);
    }
    leave_out(NULL);
    w.ranks = 0;
    world_close(&w);
}

/* ---- what a replay showed --------------------------------------------------------------------------------------------- */

static void spoil(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == 0) w->rank[rank].grad[0][0] = world_bits(0x7f800000u);
}

static void test_guard_notes__an_overflow_that_comes_back_in_a_replay_is_a_fault_on_all_ranks(void **state)
{
    world w;
    fb_rec_event event;
    char text[1100];
    (void)state;
    world_init(&w, 2);
    w.config.scaler.enabled = 1;
    world_open(&w);
    assert_int_equal(world_step(&w, 1, spoil, NULL), FB_SKIP);
    assert_int_equal(w.rank[0].verdict.fault, 0); /* probing */
    for (int i = 0; i < 2; i++) assert_int_equal(fb_run_note_replay(w.rank[i].run, 1, &err), FB_OK);
    assert_int_equal(world_step(&w, 2, spoil, NULL), FB_SKIP_FREEZE);
    assert_int_equal(w.rank[1].verdict.fault, 1);
    assert_int_equal(the_event(&w, FB_EVENT_REPLAY, &event, text), 1);
    assert_true(event.a == 1 && event.step == 1);
    world_close(&w);
}

static void test_guard_notes__a_replay_inside_of_the_step_makes_its_second_vote_a_fault(void **state)
{
    world w;
    fb_verdict *verdict = &w.rank[0].verdict;
    int64_t words[4];
    (void)state;
    world_init(&w, 2);
    w.config.scaler.enabled = 1;
    world_open(&w);
    for (int i = 0; i < 2; i++) world_local(&w, i, 5, spoil, NULL);
    world_vote(&w);
    assert_true(verdict->action == FB_SKIP && verdict->fault == 0 && verdict->case_id[0] == 0);
    assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_E_ORDER); /* nobody asked the batch */
    for (int i = 0; i < 2; i++) assert_int_equal(fb_run_note_replay(w.rank[i].run, 1, &err), FB_OK);
    world_vote(&w);
    assert_true(verdict->action == FB_SKIP_FREEZE && verdict->fault == 1);
    assert_string_equal(verdict->case_id, "a1-000005");
    assert_string_equal(w.rank[1].verdict.case_id, "a1-000005");
    assert_int_equal(fb_step_ballot(w.rank[0].run, words, &err), FB_E_ORDER); /* once is enough */
    for (int i = 0; i < 2; i++) {
        fb_step_result result = FB_STEP_RESULT_INIT;
        assert_int_equal(fb_step_end(w.rank[i].run, &result, &err), FB_OK);
    }
    world_close(&w);
}

static void test_guard_notes__a_replay_that_one_rank_alone_tells_of_breaks_the_vote(void **state)
{
    world w;
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    assert_int_equal(fb_run_note_replay(w.rank[1].run, 1, &err), FB_OK);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_HALT);
    assert_int_equal(w.rank[0].verdict.unanimous, 0);
    world_close(&w);
}

static void test_guard_notes__a_replay_is_told_between_steps_and_one_that_was_not_made_is_not_noted(void **state)
{
    world w;
    fb_step step = FB_STEP_INIT;
    fb_rec_event event;
    char text[1100];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(fb_run_note_replay(w.rank[0].run, 2, &err), FB_E_USAGE);
    assert_int_equal(fb_run_note_replay(NULL, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_run_note_replay(w.rank[0].run, -1, &err), FB_OK);
    step.step = 3;
    assert_int_equal(fb_step_begin(w.rank[0].run, &step, &err), FB_OK);
    assert_int_equal(fb_run_note_replay(w.rank[0].run, 1, &err), FB_E_ORDER);
    assert_int_equal(fb_step_abandon(w.rank[0].run, &err), FB_OK);
    assert_int_equal(the_event(&w, FB_EVENT_REPLAY, &event, text), 0);
    assert_int_equal(w.rank[0].run->gate.replay_persists, 0);
    world_close(&w);
}

/* ---- what was located ------------------------------------------------------------------------------------------------- */

static void test_guard_notes__what_was_located_is_in_the_ledger_with_its_case(void **state)
{
    world w;
    fb_rec_event event;
    char text[1100];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(fb_run_note_located(w.rank[0].run, "a1-000412", "h.7.attn softmax made the first NaN", &err), FB_OK);
    assert_int_equal(the_event(&w, FB_EVENT_LOCATED, &event, text), 1);
    assert_string_equal(text, "a1-000412: h.7.attn softmax made the first NaN");
    world_close(&w);
}

static void test_guard_notes__a_long_sentence_is_cut_at_a_character(void **state)
{
    world w;
    fb_rec_event event;
    char text[1100], sentence[1001];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    for (size_t i = 0; i < 999; i += 3) memcpy(sentence + i, "\xe2\x82\xac", 3); /* 512 is no multiple of three */
    sentence[999] = 'x';
    sentence[1000] = '\0';
    assert_int_equal(fb_run_note_located(w.rank[0].run, "a1-000001", sentence, &err), FB_OK);
    assert_int_equal(the_event(&w, FB_EVENT_LOCATED, &event, text), 1);
    assert_int_equal(strlen(text), strlen("a1-000001: ") + 510);
    assert_memory_equal(text + strlen(text) - 3, "\xe2\x82\xac", 3);
    world_close(&w);
}

static void test_guard_notes__a_location_without_case_or_text_is_refused(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(fb_run_note_located(w.rank[0].run, NULL, "text", &err), FB_E_USAGE);
    assert_int_equal(fb_run_note_located(w.rank[0].run, "", "text", &err), FB_E_USAGE);
    assert_int_equal(fb_run_note_located(w.rank[0].run, "a1-000001", "", &err), FB_E_USAGE);
    assert_int_equal(fb_run_note_located(w.rank[0].run, "a case name of more than thirty-one bytes", "text", &err), FB_E_USAGE);
    assert_int_equal(fb_run_note_located(NULL, "a1-000001", "text", &err), FB_E_USAGE);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_notes__samples_of_the_list_are_left_out_and_the_ledger_says_which),
        cmocka_unit_test(test_guard_notes__without_a_list_nothing_is_left_out_and_nothing_told),
        cmocka_unit_test(test_guard_notes__a_long_list_comes_from_a_file_and_is_told_as_far_as_it_fits),
        cmocka_unit_test(test_guard_notes__what_is_no_list_of_ids_keeps_the_run_from_opening),
        cmocka_unit_test(test_guard_notes__more_samples_than_the_bound_are_refused),
        cmocka_unit_test(test_guard_notes__ranks_with_other_lists_do_not_agree),
        cmocka_unit_test(test_guard_notes__a_list_without_memory_is_an_error_and_no_shorter_list),
        cmocka_unit_test(test_guard_notes__a_list_that_cannot_be_read_is_an_error_and_no_shorter_list),
        cmocka_unit_test(test_guard_notes__an_overflow_that_comes_back_in_a_replay_is_a_fault_on_all_ranks),
        cmocka_unit_test(test_guard_notes__a_replay_inside_of_the_step_makes_its_second_vote_a_fault),
        cmocka_unit_test(test_guard_notes__a_replay_that_one_rank_alone_tells_of_breaks_the_vote),
        cmocka_unit_test(test_guard_notes__a_replay_is_told_between_steps_and_one_that_was_not_made_is_not_noted),
        cmocka_unit_test(test_guard_notes__what_was_located_is_in_the_ledger_with_its_case),
        cmocka_unit_test(test_guard_notes__a_long_sentence_is_cut_at_a_character),
        cmocka_unit_test(test_guard_notes__a_location_without_case_or_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
