/* Megatron, classic and torch_dist; made by scripts/make-golden-folders.py in the structure that Megatron documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/rank_name.h"
#include "support/ckpt_folder.h"

#define GOLDEN "tests/golden/folders/"

static void expect(const char *folder, int32_t outcome, const char *reason)
{
    fb_ckpt_summary sum = scan_folder(folder, NULL);
    if (sum.outcome != outcome || !strstr(sum.reason.message, reason)) {
        fail_msg("%s: %s, %s", folder, fb_ckpt_outcome_name(sum.outcome), sum.reason.message);
    }
}

static void test_megatron__one_iteration_is_clean_and_has_its_number(void **ignored)
{
    fb_ckpt_summary sum = scan_folder(GOLDEN "by-hand-megatron/iter_0000020", NULL);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_string_equal(sum.format, "megatron");
    assert_int_equal(sum.step, 20);
    assert_int_equal(sum.files, 2);
}

static void test_megatron__several_iterations_in_one_folder_do_not_disagree(void **ignored)
{
    fb_ckpt_summary sum = scan_folder(GOLDEN "by-hand-megatron", NULL);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(sum.files, 4);
    assert_int_equal(sum.step, -1);
}

static void test_megatron__a_bad_moment_has_the_name_of_its_parameter(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "by-hand-megatron-planted", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_non_null(strstr(s.found, "exp_avg of language_model.encoder.weight|5\n"));
    assert_non_null(strstr(sum.first_file, "mp_rank_01"));
}

static void test_megatron__a_missing_rank_is_found(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "by-hand-megatron/iter_0000010", "iter_0000010", folder);
    drop_file(folder, "mp_rank_00/model_optim_rng.pt");
    expect(folder, FB_CKPT_UNREADABLE, "mp_rank_00 has no model_optim_rng.pt, which mp_rank_01 has");
    {
        char path[1024];
        in_folder(folder, "mp_rank_00", path);
        assert_int_equal(rmdir(path), 0);
    }
    expect(folder, FB_CKPT_UNREADABLE, "folders of 1 ranks, and by their numbers there are 2: a rank is missing");
}

static void test_megatron__a_rank_of_another_iteration_is_found(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "by-hand-megatron/iter_0000010", "iter_0000010", folder);
    take_file_from(folder, "mp_rank_01/model_optim_rng.pt", GOLDEN "by-hand-megatron/iter_0000020/mp_rank_01/model_optim_rng.pt");
    expect(folder, FB_CKPT_UNREADABLE, "mp_rank_01/model_optim_rng.pt is of iteration 20, and its folder of 10");
    /* Also where the name of the folder does not say which is right. */
    new_folder(GOLDEN "by-hand-megatron/iter_0000010", "best", folder);
    take_file_from(folder, "mp_rank_01/model_optim_rng.pt", GOLDEN "by-hand-megatron/iter_0000020/mp_rank_01/model_optim_rng.pt");
    expect(folder, FB_CKPT_UNREADABLE,
           "the shards are of different steps: mp_rank_00/model_optim_rng.pt is of step 10 and mp_rank_01/model_optim_rng.pt of "
           "step 20");
}

static void test_megatron__a_tracker_that_leads_nowhere_is_told(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "by-hand-megatron", "run", folder);
    put_file(folder, "latest_checkpointed_iteration.txt", "30");
    expect(folder, FB_CKPT_UNREADABLE, "names iteration 30, and there is no folder iter_0000030");
    put_file(folder, "latest_checkpointed_iteration.txt", "release\n");
    expect(folder, FB_CKPT_CLEAN, "");
}

static void test_megatron__torch_dist_is_clean_and_must_be_whole(void **ignored)
{
    char folder[512];
    fb_ckpt_summary sum = scan_folder(GOLDEN "by-hand-torch-dist", NULL);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(sum.step, 3);
    assert_int_equal(sum.files, 3);
    new_folder(GOLDEN "by-hand-torch-dist/iter_0000003", "iter_0000003", folder);
    drop_file(folder, "common.pt");
    expect(folder, FB_CKPT_UNREADABLE, "has metadata.json and no common.pt");
    new_folder(GOLDEN "by-hand-torch-dist/iter_0000003", "iter_0000004", folder);
    expect(folder, FB_CKPT_UNREADABLE, "common.pt is of iteration 3, and its folder of 4");
}

static void test_megatron__the_zarr_format_is_named_and_not_called_clean(void **ignored)
{
    char folder[512], path[1024];
    folder_seen s;
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(NULL, "iter_0000003", folder);
    put_file(folder, "metadata.json", "{\"sharded_backend\": \"zarr\", \"sharded_backend_version\": 1}");
    take_file_from(folder, "common.pt", GOLDEN "by-hand-torch-dist/iter_0000003/common.pt");
    in_folder(folder, "decoder.weight", path);
    assert_int_equal(mkdir(path, 0755), 0);
    put_file(folder, "decoder.weight/.zarray", "{}");
    put_file(folder, "decoder.weight/0.0", "\x01\x02");
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(sum.unscanned, 1);
    assert_non_null(strstr(s.all_unscanned, "1 arrays in Megatron's zarr format"));
}

static void test_megatron__numbers_of_ranks_are_told_from_other_numbers(void **ignored)
{
    uint64_t n[2];
    char family[64];
    (void)ignored;
    assert_int_equal(fb_rank_name("zero_pp_rank_#_mp_rank_#_x.pt", "zero_pp_rank_12_mp_rank_03_x.pt", n), 1);
    assert_int_equal(n[0], 12);
    assert_int_equal(n[1], 3);
    assert_int_equal(fb_rank_name("iter_#", "iter_", n), 0);
    assert_int_equal(fb_rank_name("iter_#", "iter_12345678901", n), 0);
    assert_int_equal(fb_rank_name("iter_#", "iter_1x", n), 0);
    assert_int_equal(fb_rank_name("iter_#*", "iter_1x", n), 1);
    assert_int_equal(fb_rank_family("iter_10/mp_rank_03_001/model.pt", family, sizeof family), 1);
    assert_string_equal(family, "iter_10/mp_rank_#_#/model.pt");
    assert_int_equal(fb_rank_family("model-00001-of-00003.safetensors", family, sizeof family), 1);
    assert_string_equal(family, "model-#-of-00003.safetensors");
    assert_int_equal(fb_rank_family("checkpoint-100/model.pt", family, sizeof family), 0);
    assert_int_equal(fb_rank_family("rank_1", family, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_megatron__one_iteration_is_clean_and_has_its_number),
        cmocka_unit_test(test_megatron__several_iterations_in_one_folder_do_not_disagree),
        cmocka_unit_test(test_megatron__a_bad_moment_has_the_name_of_its_parameter),
        cmocka_unit_test(test_megatron__a_missing_rank_is_found),
        cmocka_unit_test(test_megatron__a_rank_of_another_iteration_is_found),
        cmocka_unit_test(test_megatron__a_tracker_that_leads_nowhere_is_told),
        cmocka_unit_test(test_megatron__torch_dist_is_clean_and_must_be_whole),
        cmocka_unit_test(test_megatron__the_zarr_format_is_named_and_not_called_clean),
        cmocka_unit_test(test_megatron__numbers_of_ranks_are_told_from_other_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, drop_folders);
}
