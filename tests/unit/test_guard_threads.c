/* Checks and reports may come from any thread: a frame that overlaps communication with backward
 * looks at gradients bucket by bucket. */
#include "support/world.h"

#include <pthread.h>

enum { THREADS = 4, PER_THREAD = 16, ELEMENTS = 512 };

static float gradients[THREADS * PER_THREAD][ELEMENTS];
static uint32_t sites[THREADS * PER_THREAD];
static fb_run *run;
static int32_t boundary;

static void *look(void *arg)
{
    int thread = *(const int *)arg;
    for (int i = 0; i < PER_THREAD; i++) {
        int tensor = thread * PER_THREAD + i;
        fb_view view = world_view(gradients[tensor], sites[tensor]);
        fb_error err;
        view.count = ELEMENTS;
        if (fb_step_check(run, boundary, &view, 1, &err) != FB_OK) return (void *)"a check failed";
    }
    return NULL;
}

static void open_run(world *w, int32_t role, int32_t at)
{
    fb_error err;
    world_init(w, 1);
    w->config.max_skips = 1000;
    boundary = at;
    assert_int_equal(fb_run_open(&run, &w->config, &err), FB_OK);
    w->rank[0].run = run;
    for (int i = 0; i < THREADS * PER_THREAD; i++) {
        fb_site site = FB_SITE_INIT;
        site.role = role;
        site.position = i;
        assert_int_equal(fb_run_add_site(run, &site, &sites[i], &err), FB_OK);
    }
}

static void look_on_all_threads(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, look, &numbers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[t], &wrong), 0);
        assert_null(wrong);
    }
}

static void test_threads__checks_from_several_threads_lose_nothing(void **state)
{
    world w;
    fb_error err;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    (void)state;
    open_run(&w, FB_ROLE_GRADIENT, FB_LOCAL_GRAD);
    for (int round = 0; round < 30; round++) {
        int64_t words[4];
        fb_step step = FB_STEP_INIT;
        int bad = round * 7 % (THREADS * PER_THREAD), worse = (bad + 31) % (THREADS * PER_THREAD);
        memset(gradients, 0, sizeof gradients);
        gradients[bad][round] = world_bits(0x7fc00000u);
        gradients[worse][round] = world_bits(0x7f800000u);
        step.step = round;
        assert_int_equal(fb_step_begin(run, &step, &err), FB_OK);
        look_on_all_threads();
        assert_int_equal(run->findings_count, 2);
        assert_int_equal(run->step.grads_seen, THREADS * PER_THREAD);
        assert_int_equal(fb_step_ballot(run, words, &err), FB_OK);
        assert_int_equal(run->step.rec.cover.level[FB_LOCAL_GRAD], FB_COVER_FULL);
        assert_int_equal(fb_step_settle(run, words, &verdict, &err), FB_OK);
        assert_int_equal(verdict.first_position, bad > worse ? bad : worse); /* backward runs from the loss down */
        assert_int_equal(fb_step_end(run, &result, &err), FB_OK);
    }
    world_close(&w);
}

/* The finding of one thread makes the step unsettled; to the others, which look at their part of the same update, that is no reason
   to be refused. */
static void test_threads__an_update_is_proposed_by_several_threads_at_once(void **state)
{
    world w;
    fb_error err;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    (void)state;
    open_run(&w, FB_ROLE_PARAMETER, FB_UPDATE);
    for (int round = 0; round < 60; round++) {
        fb_step step = FB_STEP_INIT;
        int bad = round * 7 % (THREADS * PER_THREAD);
        memset(gradients, 0, sizeof gradients);
        for (int t = 0; t < THREADS; t++)
            gradients[t * PER_THREAD][0] = world_bits(0x7f800000u); /* first thing each of them sees */
        gradients[bad][1] = world_bits(0x7fc00000u);
        step.step = round;
        assert_int_equal(fb_step_begin(run, &step, &err), FB_OK);
        assert_int_equal(fb_step_vote_alone(run, &verdict, &err), FB_OK);
        look_on_all_threads();
        assert_int_equal(run->findings_count, bad % PER_THREAD ? THREADS + 1 : THREADS);
        assert_int_equal(run->step.rec.cover.tensors[FB_UPDATE], THREADS * PER_THREAD);
        assert_int_equal(fb_step_vote_alone(run, &verdict, &err), FB_OK);
        assert_int_equal(verdict.action, FB_SKIP);
        assert_int_equal(verdict.first_boundary, FB_UPDATE);
        assert_int_equal(verdict.first_position, 0);
        assert_int_equal(run->state_bad, 0);
        assert_int_equal(fb_step_end(run, &result, &err), FB_OK);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads__checks_from_several_threads_lose_nothing),
        cmocka_unit_test(test_threads__an_update_is_proposed_by_several_threads_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
