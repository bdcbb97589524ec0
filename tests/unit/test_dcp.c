/*
 * torch.distributed.checkpoint: folders that two processes wrote with FSDP, and tables with one thing wrong. All are made by
 * scripts/make-golden-folders.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "ckpt/dcp.h"
#include "ckpt/moment_name.h"
#include "support/ckpt_folder.h"

#define GOLDEN "tests/golden/folders/"

static void test_dcp__what_two_ranks_wrote_is_clean(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "fsdp", &s);
    (void)ignored;
    assert_string_equal(sum.reason.message, "");
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_string_equal(sum.format, "torch.distributed.checkpoint");
    assert_int_equal(sum.files, 2);
    assert_true(sum.checked > 200);
    assert_int_equal(sum.unscanned, 0);
    assert_int_equal(sum.step, 3);
}

static void test_dcp__a_bad_element_of_a_chunk_has_the_index_of_the_whole_tensor(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "fsdp-planted", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(sum.bad, 1);
    assert_string_equal(s.found, "__1_0.distcp|optim.state.exp_avg of 1.weight|16\n");
    assert_string_equal(s.shape, "3,7");
    assert_string_equal(sum.first_tensor, "optim.state.exp_avg of 1.weight");
    assert_int_equal(sum.first_index, 16);
}

static fb_ckpt_summary with_table(const char *table, folder_seen *s)
{
    char folder[512], from[512];
    new_folder(GOLDEN "fsdp", "fsdp", folder);
    (void)snprintf(from, sizeof from, GOLDEN "fsdp-tables/%s", table);
    take_file_from(folder, ".metadata", from);
    return scan_folder(folder, s);
}

static void test_dcp__tables_of_other_protocols_and_releases_are_read(void **ignored)
{
    static const char *const tables[] = {"protocol-2", "protocol-5", "old-class-path"};
    (void)ignored;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        fb_ckpt_summary sum = with_table(tables[i], NULL);
        if (sum.outcome != FB_CKPT_CLEAN) fail_msg("%s: %s", tables[i], sum.reason.message);
        assert_int_equal(sum.tensors, scan_folder(GOLDEN "fsdp", NULL).tensors);
    }
}

static void test_dcp__each_wrong_table_is_refused_with_its_reason(void **ignored)
{
    static const struct {
        const char *table, *reason;
    } cases[] = {
        {"outside", "is not the name of a file in this folder"},
        {"absolute", "is not the name of a file in this folder"},
        {"beyond-the-file", "overlap"},
        {"beyond-everything", "the file ends after"},
        {"missing-file", "__7_0.distcp, which is missing"},
        {"overlapping-places", "overlap"},
        {"a-hole", "hold 14 of its 21 elements"},
        {"a-chunk-stored-nowhere", "is stored 0 times, once is due"},
        {"overlapping-chunks", "two chunks of tensor model.1.weight overlap"},
        {"another-size", "hold 21 of its 24 elements"},
        {"a-chunk-beyond-its-tensor", "leaves it in dimension 0"},
        {"more-than-2-to-64", "more than 2^64 elements"},
        {"another-dtype", "has another number format than .metadata says"},
        {"two-places-swapped", "has another shape than .metadata says"},
        {"unknown-tensor", "is no tensor of this checkpoint"},
        {"no-storage-data", "it has no storage_data"},
        {"a-list", "must hold the Metadata of torch.distributed.checkpoint"},
        {"cut-off", ""},
        {"bytes-behind", "follow the end of the pickle"},
    };
    (void)ignored;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fb_ckpt_summary sum = with_table(cases[i].table, NULL);
        if (sum.outcome != FB_CKPT_UNREADABLE || !strstr(sum.reason.message, cases[i].reason)) {
            fail_msg("%s: %s, %s", cases[i].table, fb_ckpt_outcome_name(sum.outcome), sum.reason.message);
        }
    }
}

static void test_dcp__a_transformed_slice_is_told_and_not_called_clean(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = with_table("transformed", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_non_null(strstr(s.all_unscanned, "model.1.weight|it is compressed or encrypted"));
}

static void test_dcp__a_save_that_did_not_finish_is_unreadable(void **ignored)
{
    char folder[512];
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(GOLDEN "fsdp", "fsdp", folder);
    drop_file(folder, ".metadata");
    put_file(folder, ".metadata.tmp", "");
    sum = scan_folder(folder, NULL);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(
        strstr(sum.reason.message, "no .metadata, which is written last: the save did not finish (.metadata.tmp is there)"));
}

static void test_dcp__a_missing_or_torn_shard_is_unreadable(void **ignored)
{
    char folder[512];
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(GOLDEN "fsdp", "fsdp", folder);
    drop_file(folder, "__1_0.distcp");
    sum = scan_folder(folder, NULL);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "names the file __1_0.distcp, which is missing"));
    new_folder(GOLDEN "fsdp", "fsdp", folder);
    tear_file(folder, "__0_0.distcp");
    sum = scan_folder(folder, NULL);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "the file ends after"));
}

static void test_dcp__a_file_of_another_save_is_passed_over_and_told(void **ignored)
{
    char folder[512];
    folder_seen s;
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(GOLDEN "fsdp", "fsdp", folder);
    take_file_from(folder, "__2_0.distcp", GOLDEN "fsdp/__0_0.distcp");
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_non_null(strstr(s.all_notes, "left from another save"));
    assert_true(sum.digest == scan_folder(GOLDEN "fsdp", NULL).digest);
}

static void test_dcp__bytes_that_nothing_refers_to_are_told(void **ignored)
{
    char folder[512], path[1024];
    folder_seen s;
    fb_ckpt_summary sum;
    FILE *out;
    (void)ignored;
    new_folder(GOLDEN "fsdp", "fsdp", folder);
    in_folder(folder, "__0_0.distcp", path);
    out = fopen(path, "ab");
    assert_non_null(out);
    assert_int_equal(fwrite("stray", 1, 5, out), 5);
    assert_int_equal(fclose(out), 0);
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_non_null(strstr(s.all_notes, "5 bytes, the first at offset"));
}

static void test_dcp__an_infinite_learning_rate_is_a_fault_and_a_best_loss_is_none(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "dcp-numbers", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(sum.bad, 2);
    assert_int_equal(sum.legal_tensors, 1);
    assert_non_null(strstr(s.found, "__0_0.distcp|optim.param_groups.0.lr|0\n"));
    assert_non_null(strstr(s.found, "__0_0.distcp|scaler.scale|0\n"));
    assert_non_null(strstr(s.found, "__0_0.distcp|best|0\n"));
}

static void test_dcp__a_distcp_file_alone_is_not_called_clean(void **ignored)
{
    fb_ckpt_summary sum = scan_folder(GOLDEN "fsdp/__0_0.distcp", NULL);
    (void)ignored;
    assert_true(sum.outcome != FB_CKPT_CLEAN);
}

static void test_dcp__names_of_moments_say_whose_they_are(void **ignored)
{
    static const char *const cases[][2] = {
        {"optim.state.h.0.weight.exp_avg", "optim.state.exp_avg of h.0.weight"},
        {"optimizer.state.exp_avg.decoder.weight", "optimizer.state.exp_avg of decoder.weight"},
        {"state.0.bias.step", "state.step of 0.bias"},
        {"model.state.h.exp_avg", "model.state.h.exp_avg"},
        {"optim.param_groups.0.lr", "optim.param_groups.0.lr"},
        {"optim.state.", "optim.state."},
        {"optim.state.exp_avg", "optim.state.exp_avg"},
        {"optim.state.exp_avg.", "optim.state.exp_avg."},
    };
    fb_pool pool = {NULL, 0, 0};
    (void)ignored;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(fb_moment_name(&pool, cases[i][0]), cases[i][1]);
    }
    fb_pool_release(&pool);
}

static void test_dcp__a_table_cut_at_any_byte_is_refused(void **ignored)
{
    char *data;
    size_t bytes;
    fb_error err;
    (void)ignored;
    assert_int_equal(fb_os_read_file(fb_os_posix(), GOLDEN "fsdp/.metadata", 1u << 20, &data, &bytes, &err), FB_OK);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *part = fb_calloc(n + 1, 1); /* of its own, so that a look behind its end is seen */
        uint8_t *exact = n ? fb_realloc(part, n) : part;
        fb_dcp *dcp = NULL;
        memcpy(exact, data, n);
        assert_int_not_equal(fb_dcp_parse(&dcp, exact, n, "cut", &err), FB_OK);
        assert_null(dcp);
        fb_free(exact);
    }
    fb_free(data);
}

static void test_dcp__every_failing_allocation_is_told_and_leaks_nothing(void **ignored)
{
    (void)ignored;
    for (uint64_t k = 1;; k++) {
        fb_ckpt_summary sum;
        fb_error err;
        fb_status status;
        uint64_t requests;
        fb_alloc_fail_at(k, 0);
        status = fb_ckpt_scan_path(fb_os_posix(), GOLDEN "fsdp", NULL, NULL, &sum, &err);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        if (requests < k) {
            assert_int_equal(status, FB_OK);
            assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
            return;
        }
        if (status == FB_OK)
            fail_msg("request %llu failed, and the scan said %s", (unsigned long long)k, fb_ckpt_outcome_name(sum.outcome));
        assert_int_equal(status, FB_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dcp__what_two_ranks_wrote_is_clean),
        cmocka_unit_test(test_dcp__a_bad_element_of_a_chunk_has_the_index_of_the_whole_tensor),
        cmocka_unit_test(test_dcp__tables_of_other_protocols_and_releases_are_read),
        cmocka_unit_test(test_dcp__each_wrong_table_is_refused_with_its_reason),
        cmocka_unit_test(test_dcp__a_transformed_slice_is_told_and_not_called_clean),
        cmocka_unit_test(test_dcp__a_save_that_did_not_finish_is_unreadable),
        cmocka_unit_test(test_dcp__a_missing_or_torn_shard_is_unreadable),
        cmocka_unit_test(test_dcp__a_file_of_another_save_is_passed_over_and_told),
        cmocka_unit_test(test_dcp__bytes_that_nothing_refers_to_are_told),
        cmocka_unit_test(test_dcp__an_infinite_learning_rate_is_a_fault_and_a_best_loss_is_none),
        cmocka_unit_test(test_dcp__a_distcp_file_alone_is_not_called_clean),
        cmocka_unit_test(test_dcp__names_of_moments_say_whose_they_are),
        cmocka_unit_test(test_dcp__a_table_cut_at_any_byte_is_refused),
        cmocka_unit_test(test_dcp__every_failing_allocation_is_told_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, drop_folders);
}
