/*
 * DeepSpeed: folders that two processes wrote with ZeRO 2 and 3, made by scripts/make-golden-folders.py. Parameters are 0.weight
 * (7, 5), 0.bias (7), 1.weight (3, 7) and 1.bias (3).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "support/ckpt_folder.h"

#define GOLDEN "tests/golden/folders/"
#define OPTIM_0 "global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
#define OPTIM_1 "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"

static void test_deepspeed__what_two_ranks_wrote_is_clean(void **ignored)
{
    static const char *const folders[] = {GOLDEN "zero2", GOLDEN "zero2/global_step3", GOLDEN "zero3"};
    (void)ignored;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        fb_ckpt_summary sum = scan_folder(folders[i], NULL);
        if (sum.outcome != FB_CKPT_CLEAN) fail_msg("%s: %s", folders[i], sum.reason.message);
        assert_string_equal(sum.format, "deepspeed");
        assert_int_equal(sum.step, 3);
        assert_int_equal(sum.unscanned, 0);
    }
}

static void test_deepspeed__a_flat_buffer_of_zero_2_is_read_as_its_parameters(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "zero2-planted", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(sum.bad, 2);
    assert_non_null(strstr(s.found, "optim_states.pt|optimizer.state.fp32_param of 1.weight|2\n"));
    assert_non_null(strstr(s.found, "optim_states.pt|optimizer.state.exp_avg of 0.weight|34\n"));
    assert_true(strcmp(s.shape, "3,7") == 0 || strcmp(s.shape, "7,5") == 0);
    assert_string_equal(sum.first_tensor, "optimizer.state.exp_avg of 0.weight");
    assert_int_equal(sum.first_index, 34);
}

/* The padding of ZeRO 3 is memory that nobody wrote to: in these files it holds a NaN that no program put there. */
static void test_deepspeed__a_flat_buffer_of_zero_3_is_read_without_its_padding(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "zero3-planted", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(sum.bad, 2);
    assert_non_null(strstr(s.found, "optim_states.pt|optimizer.state.fp32_param of 1.weight|14\n"));
    assert_non_null(strstr(s.found, "optim_states.pt|optimizer.state.exp_avg_sq of 0.weight|19\n"));
}

static void expect(const char *folder, int32_t outcome, const char *reason)
{
    fb_ckpt_summary sum = scan_folder(folder, NULL);
    if (sum.outcome != outcome || !strstr(sum.reason.message, reason)) {
        fail_msg("%s: %s, %s", folder, fb_ckpt_outcome_name(sum.outcome), sum.reason.message);
    }
}

static void test_deepspeed__a_missing_shard_is_named(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "zero2", "run", folder);
    drop_file(folder, OPTIM_1);
    expect(folder, FB_CKPT_UNREADABLE, OPTIM_1 " is missing: the optimizer was cut into 2 parts");
    new_folder(GOLDEN "zero2", "run", folder);
    drop_file(folder, OPTIM_0);
    expect(folder, FB_CKPT_UNREADABLE, OPTIM_0 " is missing: the optimizer was cut into 2 parts");
    new_folder(GOLDEN "zero2", "run", folder);
    drop_file(folder, OPTIM_0);
    drop_file(folder, OPTIM_1);
    expect(folder, FB_CKPT_UNREADABLE, "there is no *_optim_states.pt beside it");
    new_folder(GOLDEN "zero2", "run", folder);
    drop_file(folder, "global_step3/mp_rank_00_model_states.pt");
    expect(folder, FB_CKPT_UNREADABLE, "mp_rank_00_model_states.pt is missing");
    new_folder(GOLDEN "zero3", "run", folder);
    drop_file(folder, "global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt");
    expect(folder, FB_CKPT_UNREADABLE, "zero_pp_rank_1_mp_rank_00_model_states.pt is missing: ZeRO 3 has one for each of 2 ranks");
}

static void test_deepspeed__a_torn_shard_is_unreadable(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "zero2", "run", folder);
    tear_file(folder, OPTIM_1);
    expect(folder, FB_CKPT_UNREADABLE, "optim_states.pt");
}

static void test_deepspeed__a_shard_of_another_step_is_found(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "zero2", "run", folder);
    take_file_from(folder, OPTIM_1, GOLDEN "zero2-later/" OPTIM_1);
    expect(folder, FB_CKPT_UNREADABLE, "the shards are of different steps: " OPTIM_0 " is of step 3 and " OPTIM_1 " of step 4");
}

static void test_deepspeed__a_latest_that_leads_nowhere_is_told(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "zero2", "run", folder);
    put_file(folder, "latest", "global_step9\n");
    expect(folder, FB_CKPT_UNREADABLE, "latest names global_step9, and there is no such folder");
}

static void test_deepspeed__a_save_in_the_middle_of_an_overflow_is_told(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "zero2-overflow", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_non_null(strstr(s.all_notes, "overflow is True"));
}

static void test_deepspeed__every_failing_allocation_is_told_and_leaks_nothing(void **ignored)
{
    (void)ignored;
    for (uint64_t k = 1;; k++) {
        fb_ckpt_summary sum;
        fb_error err;
        fb_status status;
        uint64_t requests;
        fb_alloc_fail_at(k, 0);
        status = fb_ckpt_scan_path(fb_os_posix(), GOLDEN "zero3", NULL, NULL, &sum, &err);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        if (requests < k) {
            assert_int_equal(status, FB_OK);
            return;
        }
        assert_int_equal(status, FB_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deepspeed__what_two_ranks_wrote_is_clean),
        cmocka_unit_test(test_deepspeed__a_flat_buffer_of_zero_2_is_read_as_its_parameters),
        cmocka_unit_test(test_deepspeed__a_flat_buffer_of_zero_3_is_read_without_its_padding),
        cmocka_unit_test(test_deepspeed__a_missing_shard_is_named),
        cmocka_unit_test(test_deepspeed__a_torn_shard_is_unreadable),
        cmocka_unit_test(test_deepspeed__a_shard_of_another_step_is_found),
        cmocka_unit_test(test_deepspeed__a_latest_that_leads_nowhere_is_told),
        cmocka_unit_test(test_deepspeed__a_save_in_the_middle_of_an_overflow_is_told),
        cmocka_unit_test(test_deepspeed__every_failing_allocation_is_told_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, drop_folders);
}
