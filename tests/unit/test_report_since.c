/* A bad state is as old as the last time that somebody read the whole of it allows: `why` says so, and claims no single step. */
#include "support/world.h"

#include "base/alloc.h"
#include "report/inside.h"

/* Rank 1's optimizer writes an Inf in step 5; its whole state was read on entry to `entry_at`. The
 * step that `why` says it dates from. */
static int64_t since(int64_t entry_at)
{
    world w;
    char folder[128];
    fb_report *report = NULL;
    fb_error err;
    int64_t answer;
    world_init(&w, 2);
    w.overflow_at = 5;
    w.entry_at = entry_at;
    world_open(&w);
    for (int64_t step = 2; step <= 5; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 6, NULL, NULL), FB_SKIP);
    (void)snprintf(folder, sizeof folder, "%s/test", w.dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(report->first != UINT64_MAX);
    assert_int_equal(report->findings[report->first].rec.step, 5);
    assert_int_equal(report->findings[report->first].rec.boundary, FB_UPDATE);
    answer = fb_judge_since(report, &report->findings[report->first].rec);
    fb_report_free(report);
    world_close(&w);
    return answer;
}

static void test_report__bad_state_dates_from_the_last_whole_look_at_it(void **state)
{
    (void)state;
    assert_int_equal(since(-1), -1); /* nobody looked: any step before */
    assert_int_equal(since(3), 3);
    assert_int_equal(since(5), 5);
}

static void test_report__a_gradient_dates_from_its_own_step(void **state)
{
    fb_report report;
    fb_rec_finding finding;
    (void)state;
    memset(&report, 0, sizeof report);
    memset(&finding, 0, sizeof finding);
    finding.step = 7;
    finding.boundary = FB_LOCAL_GRAD;
    assert_int_equal(fb_judge_since(&report, &finding), 7);
}

/* A halt that no number explains is explained by what the trainer did. */
static void test_report__a_halt_without_a_finding_names_the_mistake(void **state)
{
    world w;
    fb_step begin = FB_STEP_INIT;
    char folder[128], *text = NULL;
    fb_report *report = NULL;
    fb_error err;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    begin.step = 7;
    begin.known = FB_KNOWN_LEARNING_RATE;
    begin.learning_rate = (double)world_bits(0x7fc00000u);
    assert_int_equal(fb_step_begin(w.rank[0].run, &begin, &err), FB_OK);
    world_vote(&w);
    (void)snprintf(folder, sizeof folder, "%s/test", w.dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(report->first, UINT64_MAX);
    assert_int_equal(report->misuse_rank, 0);
    assert_int_equal(fb_report_why_text(report, 100, 0, &text, &err), FB_OK);
    assert_non_null(strstr(text, "rank 0: the learning rate is not finite"));
    fb_free(text);
    fb_report_free(report);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report__bad_state_dates_from_the_last_whole_look_at_it),
        cmocka_unit_test(test_report__a_gradient_dates_from_its_own_step),
        cmocka_unit_test(test_report__a_halt_without_a_finding_names_the_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
