/* The minimiser: what it returns for causes of every shape, what it asks, and misuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "search/minimise.h"

enum { ITEMS = 64 };

static struct {
    uint32_t needed[ITEMS], count; /* a run with all of these shows the fault */
    int whole_only, never, unresolved;
    uint32_t flaky_runs; /* the fault shows in one run of so many; 0: in all */
    uint32_t runs;
} f;

static fb_error err;

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    return 0;
}

static fb_status run(void *ctx, const fb_subset *subset, int32_t *shows, fb_error *e)
{
    uint32_t there = 0;
    (void)ctx, (void)e;
    for (uint32_t i = 0; i < subset->count; i++) {
        for (uint32_t n = 0; n < f.count; n++) there += subset->items[i] == f.needed[n];
    }
    *shows = there == f.count && !f.never ? FB_SHOWS_YES : FB_SHOWS_NO;
    if (f.whole_only && subset->count < ITEMS) *shows = FB_SHOWS_NO;
    if (f.unresolved && *shows == FB_SHOWS_NO) *shows = FB_SHOWS_UNRESOLVED;
    if (f.flaky_runs && f.runs % f.flaky_runs) *shows = FB_SHOWS_NO;
    f.runs++;
    return FB_OK;
}

static fb_minimise *minimise(fb_minimise_options options)
{
    fb_minimise *m;
    if (!options.items) options.items = ITEMS;
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
    assert_int_equal(fb_minimise_run(m, run, NULL, &err), FB_OK);
    assert_null(fb_minimise_ask(m));
    assert_int_equal(fb_minimise_result(m)->tests, f.runs);
    return m;
}

static void need(uint32_t item)
{
    f.needed[f.count++] = item;
}

static void expect_needed(const fb_minimise *m)
{
    assert_int_equal(fb_minimise_result(m)->found, FB_MINIMISE_MINIMAL);
    assert_int_equal(fb_minimise_result(m)->count, f.count);
    assert_memory_equal(fb_minimise_result(m)->items, f.needed, f.count * sizeof *f.needed);
}

static void test_minimise__one_guilty_sample_is_found_in_about_two_log2_runs(void **state)
{
    for (uint32_t guilty = 0; guilty < ITEMS; guilty++) {
        fb_minimise *m;
        set_up(state);
        need(guilty);
        m = minimise((fb_minimise_options){0});
        expect_needed(m);
        assert_in_range(fb_minimise_result(m)->tests, 1, 1 + 2 * 6);
        fb_minimise_free(m);
    }
}

static void test_minimise__samples_that_are_guilty_together_are_all_kept(void **state)
{
    fb_minimise *m;
    (void)state;
    need(3), need(31), need(32), need(60);
    m = minimise((fb_minimise_options){0});
    expect_needed(m);
    assert_int_equal(fb_minimise_result(m)->unresolved, 0);
    fb_minimise_free(m);
}

/* A normaliser over the batch: no sample is the culprit, and none is called one. */
static void test_minimise__a_cause_that_needs_the_whole_batch_says_so(void **state)
{
    fb_minimise *m;
    (void)state;
    f.whole_only = 1;
    m = minimise((fb_minimise_options){0});
    assert_int_equal(fb_minimise_result(m)->found, FB_MINIMISE_WHOLE);
    assert_int_equal(fb_minimise_result(m)->count, ITEMS);
    fb_minimise_free(m);
}

static void test_minimise__a_batch_of_one_is_minimal(void **state)
{
    fb_minimise *m = minimise((fb_minimise_options){.items = 1});
    (void)state;
    assert_int_equal(fb_minimise_result(m)->found, FB_MINIMISE_MINIMAL);
    assert_int_equal(fb_minimise_result(m)->tests, 1);
    fb_minimise_free(m);
}

static void test_minimise__what_does_not_reproduce_gives_no_set(void **state)
{
    fb_minimise *m;
    (void)state;
    f.never = 1;
    m = minimise((fb_minimise_options){.asks = 5});
    assert_int_equal(fb_minimise_result(m)->found, FB_MINIMISE_NOT_REPRODUCED);
    assert_null(fb_minimise_result(m)->items);
    assert_int_equal(fb_minimise_result(m)->tests, 5);
    fb_minimise_free(m);
    f.unresolved = 1;
    f.runs = 0;
    m = minimise((fb_minimise_options){0});
    assert_int_equal(fb_minimise_result(m)->found, FB_MINIMISE_UNDECIDED);
    fb_minimise_free(m);
}

static void test_minimise__a_spent_budget_gives_the_smallest_set_so_far(void **state)
{
    uint32_t before = ITEMS;
    for (uint32_t budget = 1; budget < 8; budget++) {
        fb_minimise *m;
        set_up(state);
        need(17);
        m = minimise((fb_minimise_options){.tests_max = budget});
        assert_int_equal(fb_minimise_result(m)->found, FB_MINIMISE_BUDGET);
        assert_true(fb_minimise_result(m)->count <= before);
        before = fb_minimise_result(m)->count;
        assert_true(fb_minimise_result(m)->items[0] <= 17 && fb_minimise_result(m)->items[before - 1] >= 17);
        fb_minimise_free(m);
    }
    assert_true(before <= 8);
}

static void test_minimise__runs_that_cannot_tell_are_counted_in_the_result(void **state)
{
    fb_minimise *m;
    (void)state;
    need(5), need(6);
    f.unresolved = 1;
    m = minimise((fb_minimise_options){0});
    expect_needed(m);
    assert_int_equal(fb_minimise_result(m)->unresolved, 2);
    fb_minimise_free(m);
}

static void test_minimise__a_fault_that_shows_in_one_run_of_three_is_minimised_by_asking_again(void **state)
{
    fb_minimise *m;
    (void)state;
    need(5), need(40);
    f.flaky_runs = 3;
    m = minimise((fb_minimise_options){.asks = 3, .needed = 1});
    expect_needed(m);
    assert_int_equal(fb_minimise_result(m)->showed, 1);
    assert_in_range(fb_minimise_result(m)->asked, 1, 3);
    fb_minimise_free(m);
}

/* Answers by a table: yes is 1, no 0, unresolved 2. Returns what became of the whole, -1 while it is still being asked. */
static int settle(uint32_t asks, uint32_t needed, const char *answers)
{
    fb_minimise_options options = {.items = 1, .asks = asks, .needed = needed};
    fb_minimise *m;
    int found;
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
    for (uint32_t i = 0; answers[i]; i++) {
        const fb_subset *question = fb_minimise_ask(m);
        assert_non_null(question);
        assert_int_equal(question->again, i);
        assert_int_equal(fb_minimise_answer(m, answers[i] - '0', &err), FB_OK);
    }
    found = fb_minimise_ask(m) ? -1 : fb_minimise_result(m)->found;
    fb_minimise_free(m);
    return found;
}

static void test_minimise__k_of_n_is_settled_as_soon_as_it_can_be(void **state)
{
    (void)state;
    assert_int_equal(settle(3, 2, "1"), -1);
    assert_int_equal(settle(3, 2, "11"), FB_MINIMISE_MINIMAL);
    assert_int_equal(settle(3, 2, "101"), FB_MINIMISE_MINIMAL);
    assert_int_equal(settle(3, 2, "00"), FB_MINIMISE_NOT_REPRODUCED);
    assert_int_equal(settle(3, 2, "010"), FB_MINIMISE_NOT_REPRODUCED);
    assert_int_equal(settle(3, 2, "22"), FB_MINIMISE_UNDECIDED);
    assert_int_equal(settle(3, 2, "121"), FB_MINIMISE_MINIMAL);
    assert_int_equal(settle(3, 1, "000"), FB_MINIMISE_NOT_REPRODUCED);
    assert_int_equal(settle(3, 1, "020"), FB_MINIMISE_UNDECIDED);
}

static void test_minimise__nothing_is_asked_twice(void **state)
{
    fb_minimise_options options = {.items = 16};
    fb_minimise *m;
    const fb_subset *question;
    uint32_t asked[400], count = 0;
    (void)state;
    need(2), need(9), need(14);
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
    while ((question = fb_minimise_ask(m)) != NULL) {
        int32_t shows;
        uint32_t bits = 0;
        for (uint32_t i = 0; i < question->count; i++) bits |= 1u << question->items[i];
        for (uint32_t i = 0; i < count; i++) assert_int_not_equal(asked[i], bits);
        asked[count++] = bits;
        assert_ptr_equal(fb_minimise_ask(m), question);
        assert_int_equal(run(NULL, question, &shows, &err), FB_OK);
        assert_int_equal(fb_minimise_answer(m, shows, &err), FB_OK);
    }
    expect_needed(m);
    assert_int_equal(fb_minimise_result(m)->subsets, count);
    assert_true(fb_minimise_result(m)->spared > 0);
    fb_minimise_free(m);
}

static void test_minimise__misuse_is_named_and_changes_nothing(void **state)
{
    fb_minimise_options options = {.items = 0};
    fb_minimise *m = NULL;
    (void)state;
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_E_USAGE);
    options.items = FB_MINIMISE_ITEMS_MAX + 1;
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_E_USAGE);
    options.items = 4;
    options.needed = 2;
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_E_USAGE);
    assert_null(m);
    options.needed = 0;
    assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
    assert_int_equal(fb_minimise_answer(m, FB_SHOWS_YES, &err), FB_E_ORDER);
    assert_non_null(fb_minimise_ask(m));
    assert_int_equal(fb_minimise_answer(m, 3, &err), FB_E_USAGE);
    assert_int_equal(fb_minimise_answer(NULL, FB_SHOWS_YES, &err), FB_E_USAGE);
    assert_int_equal(fb_minimise_result(m)->tests, 0);
    fb_minimise_free(m);
    fb_minimise_free(NULL);
    assert_null(fb_minimise_ask(NULL));
    assert_null(fb_minimise_result(NULL));
}

/* Each allocation fails once, in open or in an answer; the answer is given again and the result is the same. */
static void test_minimise__an_answer_that_found_no_memory_can_be_given_again(void **state)
{
    uint64_t failed = 0;
    (void)state;
    need(1), need(20), need(41), need(62);
    for (uint64_t k = 1; k < 40; k++) {
        fb_minimise_options options = {.items = ITEMS};
        fb_minimise *m;
        fb_status status;
        fb_alloc_fail_at(k, 0);
        status = fb_minimise_open(&m, &options, &err);
        if (status == FB_E_NOMEM) {
            assert_null(m);
            failed++;
            continue;
        }
        while (fb_minimise_run(m, run, NULL, &err) == FB_E_NOMEM) failed++;
        expect_needed(m);
        fb_minimise_free(m);
    }
    fb_alloc_fail_at(0, 0);
    assert_true(failed > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_minimise__one_guilty_sample_is_found_in_about_two_log2_runs, set_up),
        cmocka_unit_test_setup(test_minimise__samples_that_are_guilty_together_are_all_kept, set_up),
        cmocka_unit_test_setup(test_minimise__a_cause_that_needs_the_whole_batch_says_so, set_up),
        cmocka_unit_test_setup(test_minimise__a_batch_of_one_is_minimal, set_up),
        cmocka_unit_test_setup(test_minimise__what_does_not_reproduce_gives_no_set, set_up),
        cmocka_unit_test_setup(test_minimise__a_spent_budget_gives_the_smallest_set_so_far, set_up),
        cmocka_unit_test_setup(test_minimise__runs_that_cannot_tell_are_counted_in_the_result, set_up),
        cmocka_unit_test_setup(test_minimise__a_fault_that_shows_in_one_run_of_three_is_minimised_by_asking_again, set_up),
        cmocka_unit_test_setup(test_minimise__k_of_n_is_settled_as_soon_as_it_can_be, set_up),
        cmocka_unit_test_setup(test_minimise__nothing_is_asked_twice, set_up),
        cmocka_unit_test_setup(test_minimise__misuse_is_named_and_changes_nothing, set_up),
        cmocka_unit_test_setup(test_minimise__an_answer_that_found_no_memory_can_be_given_again, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
