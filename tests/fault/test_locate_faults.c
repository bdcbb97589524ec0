/*
 * fb_locate_run while memory fails: the k-th request, for every k, once and for good. What must hold: it ends with FB_OK or
 * FB_E_NOMEM, nothing leaks, and what is named is the truth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "support/locate_trainer.h"

static fb_status locate(const fb_locate_config *config, fb_locate_result *result, uint64_t k, int for_good)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    fb_error err;
    fb_status status;
    memset(&err, 0, sizeof err);
    *result = empty;
    fb_alloc_fail_at(k, for_good);
    status = fb_locate_run(config, result, &err);
    if (status != FB_OK) {
        assert_int_equal(status, FB_E_NOMEM);
        assert_int_equal(err.code, FB_E_NOMEM);
        assert_true(err.message[0] != '\0');
        assert_null(result->rows);
        assert_null(result->keep);
    }
    return status;
}

static void no_false_name(const fb_locate_result *result, fb_status status)
{
    if (status != FB_OK) return;
    assert_true(result->found == FB_LOCATED_OPERATOR || result->found == FB_LOCATED_INTERVAL ||
                result->found == FB_LOCATED_UNDECIDED);
    if (result->found == FB_LOCATED_UNDECIDED) return;
    assert_string_equal(result->op, "div");
    assert_string_equal(result->module, "h.0");
}

static void every_request(int for_good)
{
    fb_locate_config config;
    fb_locate_result result;
    uint64_t requests, k = 0, ended_well = 0;
    trainer t;
    trainer_init(&t);
    config = trainer_config(&t);
    assert_int_equal(locate(&config, &result, 0, 0), FB_OK);
    requests = fb_alloc_requests();
    fb_locate_release(&result);
    assert_true(requests > 100);
    for (k = 1; k <= requests; k++) {
        fb_status status = locate(&config, &result, k, for_good);
        no_false_name(&result, status);
        ended_well += status == FB_OK && result.found == FB_LOCATED_OPERATOR;
        fb_locate_release(&result);
    }
    fb_alloc_fail_at(0, 0);
    /* A request of a replay that fails once is no end: the search goes on around it. */
    if (!for_good) assert_true(ended_well > requests / 10);
}

static void test_locate__a_failing_allocation_makes_no_false_name(void **state)
{
    (void)state;
    every_request(0);
}

static void test_locate__memory_that_is_gone_for_good_makes_no_false_name(void **state)
{
    (void)state;
    every_request(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locate__a_failing_allocation_makes_no_false_name),
        cmocka_unit_test(test_locate__memory_that_is_gone_for_good_makes_no_false_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
