/* Replicas that drifted apart hold nothing that is not finite: `why` says which rank differs where
 * the digests tell, and only then. */
#include "support/world.h"

#include "base/alloc.h"
#include "report/report.h"

static void flip(world *w, int rank)
{
    uint32_t bits;
    memcpy(&bits, &w->rank[rank].param[1][2], sizeof bits);
    bits ^= 1u;
    memcpy(&w->rank[rank].param[1][2], &bits, sizeof bits);
}

/* Parameters are compared in every second step; those ranks drift before step 6. */
static fb_report *drift(world *w, int ranks, int first, int second)
{
    char folder[128];
    fb_report *report = NULL;
    fb_error err;
    world_init(w, ranks);
    w->config.replicated = 1;
    w->config.replica_period = 2;
    world_open(w);
    for (int64_t step = 1; step <= 5; step++) assert_int_equal(world_step(w, step, NULL, NULL), FB_PROCEED);
    if (first >= 0) flip(w, first);
    if (second >= 0) flip(w, second);
    if (first >= 0) assert_int_not_equal(world_step(w, 6, NULL, NULL), FB_PROCEED);
    (void)snprintf(folder, sizeof folder, "%s/test", w->dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    return report;
}

static int shows(const fb_report *report, const char *what)
{
    char *text;
    int found;
    assert_int_equal(fb_report_why_text(report, 1000, 0, &text, NULL), FB_OK);
    found = strstr(text, what) != NULL;
    if (!found && getenv("FB_SHOW")) (void)fprintf(stderr, "%s\n", text);
    fb_free(text);
    return found;
}

static void end(world *w, fb_report *report)
{
    fb_report_free(report);
    world_close(w);
}

static void test_replicas__the_one_that_differs_is_named(void **state)
{
    world w;
    fb_report *report = drift(&w, 4, 2, -1);
    (void)state;
    assert_true(report->has_case);
    assert_string_equal(report->drift, "the parameters of rank 2 differ from those of the other 3, which are equal");
    assert_string_equal(report->cause_class, "replicas_differ");
    assert_true(shows(report, "no number that is not finite; at step 6 the parameters of rank 2 differ"));
    assert_true(shows(report, "What happened: At step 6, the replicas were compared over the ranks and had drifted apart."));
    /* Each rank compares its state at the end of the step that halts it; the comparison over the ranks, which failed, is not
     * counted as
       one of those. */
    assert_int_equal(report->proofs_compared, 4);
    assert_int_equal(report->proofs_equal, 4);
    end(&w, report);
}

static void test_replicas__of_two_it_cannot_be_told_which(void **state)
{
    world w;
    fb_report *report = drift(&w, 2, 1, -1);
    (void)state;
    assert_string_equal(report->drift, "the parameters are not equal on all ranks, and it cannot be told which rank is wrong");
    end(&w, report);
}

static void test_replicas__half_against_half_names_nobody(void **state)
{
    world w;
    fb_report *report = drift(&w, 4, 0, 1);
    (void)state;
    assert_non_null(strstr(report->drift, "it cannot be told which rank is wrong"));
    end(&w, report);
}

static void test_replicas__equal_ones_are_told_with_the_step(void **state)
{
    world w;
    fb_report *report = drift(&w, 2, -1, -1);
    (void)state;
    assert_int_equal(report->drift[0], 0);
    for (uint64_t i = 0; i < report->rank_count; i++) {
        assert_int_equal(report->ranks[i].replicas_step, 4);
        assert_int_equal(report->ranks[i].replicas_compared, 3); /* in the first step, and in steps 2 and 4 */
    }
    end(&w, report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas__the_one_that_differs_is_named),
        cmocka_unit_test(test_replicas__of_two_it_cannot_be_told_which),
        cmocka_unit_test(test_replicas__half_against_half_names_nobody),
        cmocka_unit_test(test_replicas__equal_ones_are_told_with_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
