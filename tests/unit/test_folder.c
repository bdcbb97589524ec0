/*
 * A folder as one checkpoint: what belongs to it, and what must be there. Made by scripts/make-golden-folders.py with transformers
 * and
 * accelerate.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/hash_stream.h"
#include "ckpt/tree.h"
#include "fault/os_sim.h"
#include "support/ckpt_folder.h"

#define GOLDEN "tests/golden/folders/"
#define SHARDS "tests/golden/safetensors/"

static void expect(const char *folder, int32_t outcome, const char *reason)
{
    fb_ckpt_summary sum = scan_folder(folder, NULL);
    if (sum.outcome != outcome || !strstr(sum.reason.message, reason)) {
        fail_msg("%s: %s, %s", folder, fb_ckpt_outcome_name(sum.outcome), sum.reason.message);
    }
}

/* ---- what people have ------------------------------------------------------------------------------------------------------- */

static void test_folder__a_checkpoint_of_transformers_is_clean(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "trainer/checkpoint-4", &s);
    (void)ignored;
    assert_string_equal(sum.reason.message, "");
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_string_equal(sum.format, "transformers");
    assert_int_equal(sum.step, 4);
    assert_int_equal(sum.files, 5);
    assert_int_equal(s.progress_last, s.progress_total);
}

static void test_folder__a_checkpoint_of_accelerate_is_clean(void **ignored)
{
    (void)ignored;
    expect(GOLDEN "accelerate", FB_CKPT_CLEAN, "");
}

static void test_folder__several_checkpoints_in_one_folder_do_not_disagree(void **ignored)
{
    folder_seen s;
    fb_ckpt_summary sum = scan_folder(GOLDEN "trainer", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(sum.files, 10);
    assert_non_null(strstr(s.all_notes, "it holds 2 checkpoints, which were read as one"));
    assert_int_equal(sum.step, -1);
}

static void test_folder__an_optimizer_of_another_step_is_found(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "trainer/checkpoint-4", "checkpoint-4", folder);
    take_file_from(folder, "optimizer.pt", GOLDEN "trainer/checkpoint-2/optimizer.pt");
    expect(folder, FB_CKPT_UNREADABLE, "optimizer.pt is of step 2 and scheduler.pt of step 4: they are of different saves");
    new_folder(GOLDEN "trainer/checkpoint-4", "checkpoint-4", folder);
    take_file_from(folder, "trainer_state.json", GOLDEN "trainer/checkpoint-2/trainer_state.json");
    expect(folder, FB_CKPT_UNREADABLE, "trainer_state.json is of step 2, and its folder of step 4");
    new_folder(GOLDEN "trainer/checkpoint-4", "checkpoint-4", folder);
    tear_file(folder, "trainer_state.json");
    expect(folder, FB_CKPT_UNREADABLE, "trainer_state.json is cut off");
}

static void test_folder__files_of_torch_with_an_index_must_be_whole(void **ignored)
{
    char folder[512];
    fb_ckpt_summary sum = scan_folder(GOLDEN "by-hand-bin-index", NULL);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_string_equal(sum.format, "pytorch_model.bin, 2 shards");
    new_folder(GOLDEN "by-hand-bin-index", "model", folder);
    drop_file(folder, "pytorch_model-00002-of-00002.bin");
    expect(folder, FB_CKPT_UNREADABLE, "names the file pytorch_model-00002-of-00002.bin, which is missing");
    drop_file(folder, "pytorch_model.bin.index.json");
    expect(folder, FB_CKPT_UNREADABLE, "has 2 parts, and pytorch_model-00002-of-00002.bin is missing");
    new_folder(GOLDEN "by-hand-bin-index", "model", folder);
    put_file(folder, "pytorch_model.bin.index.json", "{\"weight_map\": {\"h.0.weight\": \"../pytorch_model-00001-of-00002.bin\"}}");
    expect(folder, FB_CKPT_UNREADABLE, "is not the name of a file in this folder");
    put_file(folder, "pytorch_model.bin.index.json", "{\"weight_map\": {\"h.9.weight\": \"pytorch_model-00001-of-00002.bin\"}}");
    expect(folder, FB_CKPT_UNREADABLE, "first h.9.weight, which should be in pytorch_model-00001-of-00002.bin");
}

/* One F32 and a step, as a trainer that says it in __metadata__ writes them. */
static void put_shard(const char *folder, const char *name, const char *step)
{
    char path[1024], header[256];
    uint8_t length[8] = {0};
    size_t n;
    FILE *out;
    (void)snprintf(header, sizeof header,
                   "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"%s\"},\"%c\":"
                   "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                   step, name[10]);
    n = strlen(header);
    length[0] = (uint8_t)n;
    in_folder(folder, name, path);
    out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(length, 1, 8, out), 8);
    assert_int_equal(fwrite(header, 1, n, out), n);
    assert_int_equal(fwrite("\0\0\0\0", 1, 4, out), 4);
    assert_int_equal(fclose(out), 0);
}

static void test_folder__a_shard_of_safetensors_of_another_step_is_found(void **ignored)
{
    char folder[512];
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(NULL, "model", folder);
    put_shard(folder, "model-00001-of-00002.safetensors", "300");
    put_shard(folder, "model-00002-of-00002.safetensors", "300");
    sum = scan_folder(folder, NULL);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_string_equal(sum.format, "safetensors, 2 shards");
    assert_int_equal(sum.step, 300);
    put_shard(folder, "model-00002-of-00002.safetensors", "200");
    expect(folder, FB_CKPT_UNREADABLE,
           "model-00001-of-00002.safetensors is of step 300 and model-00002-of-00002.safetensors of step 200");
    put_shard(folder, "model-00002-of-00002.safetensors", "newest");
    expect(folder, FB_CKPT_CLEAN, "");
}

/* ---- what belongs to it ----------------------------------------------------------------------------------------------------- */

static void test_folder__what_is_firstbads_own_changes_nothing(void **ignored)
{
    char folder[512], path[1024];
    fb_ckpt_summary before, after;
    (void)ignored;
    new_folder(GOLDEN "accelerate", "a", folder);
    before = scan_folder(folder, NULL);
    in_folder(folder, ".firstbad", path);
    assert_int_equal(mkdir(path, 0755), 0);
    put_file(folder, ".firstbad/pin.pt", "no checkpoint at all \x01");
    put_file(folder, "firstbad-state.json", "{\"state\": \"suspect\"}");
    after = scan_folder(folder, NULL);
    assert_int_equal(after.outcome, FB_CKPT_CLEAN);
    assert_true(after.digest == before.digest);
}

static void test_folder__known_companions_are_passed_over_and_strangers_are_not(void **ignored)
{
    char folder[512];
    folder_seen s;
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(GOLDEN "accelerate", "a", folder);
    put_file(folder, "events.out.tfevents.1700000000.node", "\x18\x01\x02");
    put_file(folder, "tokenizer.model", "\x0a\x0e");
    put_file(folder, "modeling.py", "import torch\n");
    expect(folder, FB_CKPT_CLEAN, "");
    put_file(folder, "state.xyz", "\x01\x02\x03");
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_non_null(strstr(s.all_unscanned, "state.xyz||no format that this build reads"));
}

static void test_folder__a_file_that_is_not_what_its_name_promises_is_unreadable(void **ignored)
{
    char folder[512];
    (void)ignored;
    new_folder(GOLDEN "accelerate", "a", folder);
    put_file(folder, "optimizer.bin", "");
    expect(folder, FB_CKPT_UNREADABLE, "optimizer.bin is empty: the save did not finish");
    put_file(folder, "optimizer.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
    expect(folder, FB_CKPT_UNREADABLE, "is a pointer of Git LFS");
    drop_file(folder, "optimizer.bin");
    put_file(folder, "ema.pt", "nothing that torch.save wrote");
    expect(folder, FB_CKPT_UNREADABLE, "ema.pt does not begin as such a file does");
}

static void test_folder__links_are_not_followed(void **ignored)
{
    char folder[512], path[1024];
    folder_seen s;
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(GOLDEN "trainer", "run", folder);
    in_folder(folder, "latest", path);
    assert_int_equal(symlink("checkpoint-4", path), 0);
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(sum.files, 10);
    assert_non_null(strstr(s.all_notes, "a symbolic link to something in this folder"));
    in_folder(folder, "outside.pt", path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_non_null(strstr(s.all_unscanned, "outside.pt||it is a symbolic link, which is not followed"));
    drop_file(folder, "outside.pt");
    in_folder(folder, "pipe.pt", path);
    assert_int_equal(mkfifo(path, 0644), 0);
    sum = scan_folder(folder, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_non_null(strstr(s.all_unscanned, "pipe.pt||no regular file"));
}

static void test_folder__an_index_that_was_asked_for_brings_its_files_and_no_others(void **ignored)
{
    char folder[512], path[1024];
    fb_ckpt_summary sum;
    (void)ignored;
    new_folder(GOLDEN "by-hand-bin-index", "model", folder);
    put_file(folder, "broken.pt", "\x01");
    in_folder(folder, "pytorch_model.bin.index.json", path);
    sum = scan_folder(path, NULL);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(sum.files, 2);
    drop_file(folder, "pytorch_model-00001-of-00002.bin");
    expect(path, FB_CKPT_UNREADABLE, "pytorch_model-00001-of-00002.bin, which is missing");
}

static void test_folder__too_many_files_and_too_deep_folders_are_a_limit(void **ignored)
{
    char folder[512], path[1024];
    fb_ckpt_options options;
    fb_ckpt_summary sum;
    (void)ignored;
    memset(&options, 0, sizeof options);
    options.files_max = 3;
    sum = scan_folder_with(GOLDEN "accelerate", &options, NULL);
    assert_int_equal(sum.outcome, FB_CKPT_LIMIT);
    new_folder(NULL, "deep", folder);
    (void)snprintf(path, sizeof path, "%s", folder);
    for (int i = 0; i <= FB_TREE_DEPTH_MAX; i++) {
        (void)snprintf(path + strlen(path), sizeof path - strlen(path), "/d");
        assert_int_equal(mkdir(path, 0755), 0);
    }
    expect(folder, FB_CKPT_LIMIT, "folders deep");
}

/* ---- the digest ------------------------------------------------------------------------------------------------------------- */

static void test_folder__the_digest_is_of_names_with_folders_sizes_and_digests(void **ignored)
{
    char folder[512], sub[1024];
    fb_ckpt_summary one, sum;
    fb_hash_stream *stream = fb_hash_stream_new();
    uint8_t numbers[16];
    (void)ignored;
    new_folder(NULL, "x", folder);
    in_folder(folder, "sub", sub);
    assert_int_equal(mkdir(sub, 0755), 0);
    take_file_from(folder, "sub/m.safetensors", SHARDS "every-dtype.safetensors");
    take_file_from(folder, "a.safetensors", SHARDS "every-dtype.safetensors");
    put_file(folder, "README.md", "text is no part of it");
    one = scan_folder(SHARDS "every-dtype.safetensors", NULL);
    sum = scan_folder(folder, NULL);
    for (unsigned i = 0; i < 8; i++) {
        numbers[i] = (uint8_t)(one.bytes >> (8 * i));
        numbers[8 + i] = (uint8_t)(one.digest >> (8 * i));
    }
    fb_hash_stream_add(stream, "a.safetensors", 14);
    fb_hash_stream_add(stream, numbers, sizeof numbers);
    fb_hash_stream_add(stream, "sub/m.safetensors", 18);
    fb_hash_stream_add(stream, numbers, sizeof numbers);
    assert_true(sum.digest == fb_hash_stream_digest(stream));
    fb_hash_stream_free(stream);
}

static void count_tap(void *ctx, const char *file, const void *data, size_t bytes, int done)
{
    char *seen_files = ctx;
    (void)data;
    (void)bytes;
    if (done) put_text(seen_files, 1024, last_name(file));
}

static void test_folder__the_tap_gets_the_files_that_count_and_no_others(void **ignored)
{
    char seen_files[1024] = "";
    fb_ckpt_options options;
    (void)ignored;
    memset(&options, 0, sizeof options);
    options.tap = count_tap;
    options.tap_ctx = seen_files;
    assert_int_equal(scan_folder_with(GOLDEN "by-hand-torch-dist", &options, NULL).outcome, FB_CKPT_CLEAN);
    assert_string_equal(seen_files, ".metadata\n__0_0.distcp\n__1_0.distcp\ncommon.pt\n");
    seen_files[0] = '\0';
    assert_int_equal(scan_folder_with(GOLDEN "zero2", &options, NULL).outcome, FB_CKPT_CLEAN);
    assert_null(strstr(seen_files, "latest"));
}

/* ---- faults ----------------------------------------------------------------------------------------------------------------- */

static void put_sim(const fb_os *os, const char *from, const char *to)
{
    char *data;
    size_t bytes;
    int64_t fd;
    fb_error err;
    assert_int_equal(fb_os_read_file(fb_os_posix(), from, 1u << 24, &data, &bytes, &err), FB_OK);
    fd = fb_os_open(os, to, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fb_os_write_all(os, (int)fd, data, bytes), 0);
    assert_int_equal(os->close(os->ctx, (int)fd), 0);
    fb_free(data);
}

static int64_t (*real_open)(void *ctx, const char *path, int flags, int mode);

static int64_t open_but_for_one(void *ctx, const char *path, int flags, int mode)
{
    return strstr(path, "model-00001") ? -13 /* EACCES */ : real_open(ctx, path, flags, mode);
}

/* Permission denied, a bad sector: the NaN in the next file is told all the same, and nothing is called clean. */
static void test_folder__a_file_that_cannot_be_opened_hides_nothing_in_the_others(void **ignored)
{
    static fb_os os;
    char folder[512];
    fb_ckpt_summary sum;
    fb_error err;
    (void)ignored;
    os = *fb_os_posix();
    real_open = os.open;
    os.open = open_but_for_one;
    new_folder(NULL, "model", folder);
    put_shard(folder, "model-00001-of-00002.safetensors", "300");
    put_shard(folder, "model-00002-of-00002.safetensors", "300");
    assert_int_equal(fb_ckpt_scan_path(&os, folder, NULL, NULL, &sum, &err), FB_E_IO);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_int_equal(sum.files, 1);
    assert_int_equal(sum.checked, 1);
    assert_non_null(strstr(err.message, "model-00001-of-00002.safetensors: Permission denied"));
}

static void test_folder__every_failing_call_is_told(void **ignored)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_ckpt_summary sum, good;
    fb_error err;
    (void)ignored;
    assert_int_equal(os->mkdir(os->ctx, "/c", 0755), 0);
    assert_int_equal(os->mkdir(os->ctx, "/c/sub", 0755), 0);
    put_sim(os, GOLDEN "fsdp/.metadata", "/c/.metadata");
    put_sim(os, GOLDEN "fsdp/__0_0.distcp", "/c/__0_0.distcp");
    put_sim(os, GOLDEN "fsdp/__1_0.distcp", "/c/__1_0.distcp");
    put_sim(os, GOLDEN "trainer/checkpoint-4/optimizer.pt", "/c/sub/optimizer.pt");
    put_sim(os, GOLDEN "trainer/checkpoint-4/scheduler.pt", "/c/sub/scheduler.pt");
    put_sim(os, GOLDEN "trainer/checkpoint-4/trainer_state.json", "/c/sub/trainer_state.json");
    if (fb_ckpt_scan_path(os, "/c", NULL, NULL, &good, &err) != FB_OK) fail_msg("%s", err.message);
    if (good.outcome != FB_CKPT_CLEAN) fail_msg("%s", good.reason.message);
    for (uint64_t k = 1;; k++) {
        fb_status status;
        os_sim_fail(sim, k, 5 /* EIO */, 0);
        memset(&err, 0, sizeof err);
        status = fb_ckpt_scan_path(os, "/c", NULL, NULL, &sum, &err);
        if (os_sim_calls(sim) < k) break;
        if (status == FB_OK && sum.outcome == FB_CKPT_CLEAN && (sum.digest != good.digest || sum.checked != good.checked)) {
            fail_msg("call %llu (%s) failed, and the scan said clean", (unsigned long long)k, os_sim_call_name(sim, k));
        }
        if (status != FB_OK) assert_string_not_equal(err.message, "");
    }
    os_sim_free(sim);
}

/* The real system, whose k-th call of these fails; os_sim knows no links. */
static uint64_t fails_at, called;

static int fails(void)
{
    return ++called == fails_at;
}

static int64_t open_or_fail(void *ctx, const char *path, int flags, int mode)
{
    return fails() ? -5 : fb_os_posix()->open(ctx, path, flags, mode);
}

static int64_t fstat_or_fail(void *ctx, int fd, fb_os_info *info)
{
    return fails() ? -5 : fb_os_posix()->fstat(ctx, fd, info);
}

static int64_t stat_or_fail(void *ctx, const char *path, fb_os_info *info)
{
    return fails() ? -5 : fb_os_posix()->stat(ctx, path, info);
}

static int64_t lstat_or_fail(void *ctx, const char *path, fb_os_info *info)
{
    return fails() ? -5 : fb_os_posix()->lstat(ctx, path, info);
}

static int64_t realpath_or_fail(void *ctx, const char *path, char *text, size_t bytes)
{
    return fails() ? -5 : fb_os_posix()->realpath(ctx, path, text, bytes);
}

static int64_t pread_or_fail(void *ctx, int fd, void *data, size_t bytes, uint64_t offset)
{
    return fails() ? -5 : fb_os_posix()->pread(ctx, fd, data, bytes, offset);
}

static void link_into(const char *folder, const char *name, const char *target)
{
    char path[1024];
    in_folder(folder, name, path);
    assert_int_equal(symlink(target, path), 0);
}

/* The layout of the Hugging Face cache: with links followed the digest is that of a copy, and no failing call makes it clean. */
static void test_folder__links_are_followed_for_who_asks_and_each_failing_call_is_told(void **ignored)
{
    static fb_os os;
    char copy_folder[512], snapshot[512], blob[1024];
    fb_ckpt_options options;
    fb_ckpt_summary sum, copy;
    fb_error err;
    (void)ignored;
    os = *fb_os_posix();
    os.open = open_or_fail;
    os.fstat = fstat_or_fail;
    os.stat = stat_or_fail;
    os.lstat = lstat_or_fail;
    os.realpath = realpath_or_fail;
    os.pread = pread_or_fail;
    memset(&options, 0, sizeof options);
    options.flags = FB_CKPT_FOLLOW;
    new_folder(NULL, "copy", copy_folder);
    put_shard(copy_folder, "model-00001-of-00002.safetensors", "300");
    put_shard(copy_folder, "model-00002-of-00002.safetensors", "300");
    new_folder(NULL, "snapshot", snapshot);
    in_folder(copy_folder, "model-00001-of-00002.safetensors", blob);
    link_into(snapshot, "model-00001-of-00002.safetensors", blob);
    in_folder(copy_folder, "model-00002-of-00002.safetensors", blob);
    link_into(snapshot, "model-00002-of-00002.safetensors", blob);
    fails_at = 0;
    assert_int_equal(fb_ckpt_scan_path(&os, copy_folder, NULL, NULL, &copy, &err), FB_OK);
    assert_int_equal(copy.outcome, FB_CKPT_CLEAN);
    assert_int_equal(fb_ckpt_scan_path(&os, snapshot, NULL, NULL, &sum, &err), FB_OK);
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(sum.unscanned, 2);
    assert_int_equal(fb_ckpt_scan_path(&os, snapshot, &options, NULL, &sum, &err), FB_OK);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_true(sum.digest == copy.digest && sum.checked == copy.checked);
    for (fails_at = 1;; fails_at++) {
        fb_status status;
        called = 0;
        memset(&err, 0, sizeof err);
        status = fb_ckpt_scan_path(&os, snapshot, &options, NULL, &sum, &err);
        if (called < fails_at) break;
        if (status == FB_OK && sum.outcome == FB_CKPT_CLEAN && (sum.digest != copy.digest || sum.checked != copy.checked)) {
            fail_msg("call %llu failed, and the scan said clean", (unsigned long long)fails_at);
        }
        if (status != FB_OK) assert_string_not_equal(err.message, "");
    }
    assert_true(fails_at > 20);
}

static void test_folder__every_failing_allocation_is_told_and_leaks_nothing(void **ignored)
{
    (void)ignored;
    for (uint64_t k = 1;; k++) {
        fb_ckpt_summary sum;
        fb_error err;
        fb_status status;
        uint64_t requests;
        fb_alloc_fail_at(k, 0);
        status = fb_ckpt_scan_path(fb_os_posix(), GOLDEN "by-hand-bin-index", NULL, NULL, &sum, &err);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        if (requests < k) {
            assert_int_equal(status, FB_OK);
            assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
            return;
        }
        assert_int_equal(status, FB_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder__a_checkpoint_of_transformers_is_clean),
        cmocka_unit_test(test_folder__a_checkpoint_of_accelerate_is_clean),
        cmocka_unit_test(test_folder__several_checkpoints_in_one_folder_do_not_disagree),
        cmocka_unit_test(test_folder__an_optimizer_of_another_step_is_found),
        cmocka_unit_test(test_folder__files_of_torch_with_an_index_must_be_whole),
        cmocka_unit_test(test_folder__a_shard_of_safetensors_of_another_step_is_found),
        cmocka_unit_test(test_folder__what_is_firstbads_own_changes_nothing),
        cmocka_unit_test(test_folder__known_companions_are_passed_over_and_strangers_are_not),
        cmocka_unit_test(test_folder__a_file_that_is_not_what_its_name_promises_is_unreadable),
        cmocka_unit_test(test_folder__links_are_not_followed),
        cmocka_unit_test(test_folder__an_index_that_was_asked_for_brings_its_files_and_no_others),
        cmocka_unit_test(test_folder__too_many_files_and_too_deep_folders_are_a_limit),
        cmocka_unit_test(test_folder__the_digest_is_of_names_with_folders_sizes_and_digests),
        cmocka_unit_test(test_folder__the_tap_gets_the_files_that_count_and_no_others),
        cmocka_unit_test(test_folder__a_file_that_cannot_be_opened_hides_nothing_in_the_others),
        cmocka_unit_test(test_folder__every_failing_call_is_told),
        cmocka_unit_test(test_folder__links_are_followed_for_who_asks_and_each_failing_call_is_told),
        cmocka_unit_test(test_folder__every_failing_allocation_is_told_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, drop_folders);
}
