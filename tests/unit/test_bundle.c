/* Bundles: what was put in comes out, and what is not what was captured is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "firstbad/locate.h"
#include "support/bundles.h"

static fb_error err;

static const char *const files[] = {
    "bundle.json",
    "part-r00000.json",
    "part-r00002.json",
    "batch-r00000.safetensors",
    "batch-r00002.safetensors",
    "rng-r00000.safetensors",
    "state-r00000.safetensors",
    "state-r00002.safetensors",
};
enum { FILES = sizeof files / sizeof files[0] };

static os_sim *make(const char *folder)
{
    os_sim *sim = os_sim_new();
    assert_int_equal(bundles_make(os_sim_os(sim), folder, &err), FB_OK);
    return sim;
}

static char *path_of(const char *folder, const char *file)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

static char *slurp(const fb_os *os, const char *path, size_t *bytes)
{
    char *data;
    assert_int_equal(fb_os_read_file(os, path, 1 << 24, &data, bytes, &err), FB_OK);
    return data;
}

/* In place: a thousand new files would be too many for the simulated disk. */
static void spit(const fb_os *os, const char *folder, const char *file, const char *data, size_t bytes)
{
    int64_t fd = fb_os_open(os, path_of(folder, file), O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(os->ftruncate(os->ctx, (int)fd, bytes), 0);
    assert_int_equal(fb_os_pwrite_all(os, (int)fd, data, bytes, 0, NULL), 0);
    assert_int_equal(fb_os_fsync(os, (int)fd), 0);
    assert_int_equal(os->close(os->ctx, (int)fd), 0);
}

static fb_status open_status(const fb_os *os, const char *folder)
{
    fb_bundle *bundle = NULL;
    fb_status status;
    memset(&err, 0, sizeof err);
    status = fb_bundle_open_on(os, &bundle, folder, &err);
    assert_true((status == FB_OK) == (bundle != NULL));
    if (bundle) assert_true(bundles_whole(bundle));
    fb_bundle_close(bundle);
    return status;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------------------- */

static void test_bundle__what_was_put_in_comes_out(void **state)
{
    os_sim *sim = make("/cases/a1-000412/bundle");
    fb_bundle *bundle = NULL;
    const char *path, *cwd;
    const char *const *command;
    int64_t step = 0, shape[FB_DIMS_MAX];
    int32_t exact = 1, dtype = 0, ndim = -1;
    uint64_t count = 0;
    (void)state;
    assert_int_equal(fb_bundle_open_on(os_sim_os(sim), &bundle, "/cases/a1-000412", &err), FB_OK); /* by its case folder */
    assert_string_equal(fb_bundle_folder(bundle), "/cases/a1-000412/bundle");
    assert_true(bundles_whole(bundle));
    assert_string_equal(fb_bundle_run_id(bundle), "run-1");
    assert_string_equal(fb_bundle_case_id(bundle), "a1-000412");
    assert_true(fb_bundle_has_rank(bundle, 0) && !fb_bundle_has_rank(bundle, 1) && fb_bundle_has_rank(bundle, 2));
    assert_int_equal(fb_bundle_find(bundle, 2, FB_BUNDLE_BATCH, "tokens", &dtype, &ndim, shape, &count, &err), FB_OK);
    assert_true(dtype == FB_I32 && ndim == 2 && shape[0] == 2 && shape[1] == 3 && count == 6);
    assert_int_equal(fb_bundle_find(bundle, 0, FB_BUNDLE_STATE, "one", &dtype, &ndim, shape, &count, &err), FB_OK);
    assert_true(ndim == 0 && count == 1);
    assert_int_equal(fb_bundle_parent(bundle, &path, &step, &exact, &err), FB_OK);
    assert_true(strcmp(path, "ckpt/step-000400") == 0 && step == 400 && exact == 0);
    command = fb_bundle_command(bundle, &cwd);
    assert_non_null(command);
    assert_string_equal(command[3], "a \"quoted\" word");
    assert_null(command[4]);
    assert_string_equal(cwd, "/job");
    fb_bundle_close(bundle);
    os_sim_free(sim);
}

static void test_bundle__numbers_keep_their_bits_and_a_second_value_replaces_the_first(void **state)
{
    static const uint64_t bits[] = {0x7ff4000000000001u, 0x7ff0000000000000u, 0xfff8000000000000u, 0x8000000000000000u, 1u};
    os_sim *sim = os_sim_new();
    fb_bundle_config config = bundles_config("/b", 0);
    fb_bundle_writer *writer;
    fb_bundle *bundle;
    int64_t integer = 0;
    (void)state;
    config.world = 1;
    assert_int_equal(fb_bundle_create_on(os_sim_os(sim), &writer, &config, &err), FB_OK);
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        char key[8];
        double value;
        memcpy(&value, &bits[i], sizeof value);
        (void)snprintf(key, sizeof key, "n%zu", i);
        assert_int_equal(fb_bundle_set_number(writer, key, value, &err), FB_OK);
    }
    assert_int_equal(fb_bundle_set_integer(writer, "least", INT64_MIN, &err), FB_OK);
    assert_int_equal(fb_bundle_set_text(writer, "most", "later a number", &err), FB_OK);
    assert_int_equal(fb_bundle_set_integer(writer, "most", INT64_MAX, &err), FB_OK);
    assert_int_equal(fb_bundle_finish(writer, &err), FB_OK);
    assert_int_equal(fb_bundle_seal_on(os_sim_os(sim), "/b", 1, &err), FB_OK);
    assert_int_equal(fb_bundle_open_on(os_sim_os(sim), &bundle, "/b", &err), FB_OK);
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        char key[8];
        double value;
        (void)snprintf(key, sizeof key, "n%zu", i);
        assert_int_equal(fb_bundle_number(bundle, 0, key, &value, &err), FB_OK);
        assert_memory_equal(&value, &bits[i], sizeof value);
    }
    assert_int_equal(fb_bundle_integer(bundle, 0, "least", &integer, &err), FB_OK);
    assert_true(integer == INT64_MIN);
    assert_int_equal(fb_bundle_integer(bundle, 0, "most", &integer, &err), FB_OK);
    assert_true(integer == INT64_MAX);
    assert_null(fb_bundle_text(bundle, 0, "most"));
    assert_int_equal(fb_bundle_integer(bundle, 0, "n0", &integer, &err), FB_E_DTYPE);
    assert_int_equal(fb_bundle_parent(bundle, NULL, NULL, NULL, &err), FB_E_NOTFOUND);
    assert_null(fb_bundle_command(bundle, NULL));
    fb_bundle_close(bundle);
    os_sim_free(sim);
}

static void test_bundle__memory_that_changes_after_the_put_is_not_what_was_captured(void **state)
{
    os_sim *sim = os_sim_new();
    fb_bundle_config config = bundles_config("/b", 0);
    fb_bundle_writer *writer;
    fb_bundle *bundle;
    int32_t batch[2] = {1, 2};
    const int64_t two[] = {2};
    (void)state;
    config.world = 1;
    assert_int_equal(fb_bundle_create_on(os_sim_os(sim), &writer, &config, &err), FB_OK);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_BATCH, "tokens", FB_I32, 1, two, batch, &err), FB_OK);
    batch[0] = 99; /* the saved batch of a framework that keeps a pointer */
    assert_int_equal(fb_bundle_finish(writer, &err), FB_OK);
    assert_int_equal(fb_bundle_seal_on(os_sim_os(sim), "/b", 1, &err), FB_OK);
    assert_int_equal(fb_bundle_open_on(os_sim_os(sim), &bundle, "/b", &err), FB_OK);
    assert_int_equal(fb_bundle_get(bundle, 0, FB_BUNDLE_BATCH, "tokens", FB_I32, 2, batch, &err), FB_OK);
    assert_true(batch[0] == 1 && batch[1] == 2);
    fb_bundle_close(bundle);
    os_sim_free(sim);
}

static void test_bundle__what_does_not_fit_is_left_out_and_named(void **state)
{
    os_sim *sim = os_sim_new();
    fb_bundle_config config = bundles_config("/b", 0);
    fb_bundle_writer *writer;
    fb_bundle *bundle;
    const int64_t four[] = {4}, two[] = {2};
    const char *name = NULL;
    int32_t part = 0;
    uint64_t bytes = 0;
    (void)state;
    config.world = 1;
    config.bytes_max = 20;
    assert_int_equal(fb_bundle_create_on(os_sim_os(sim), &writer, &config, &err), FB_OK);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_BATCH, "small", FB_I32, 1, two, bundles_tokens, &err), FB_OK);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_STATE, "large", FB_F32, 1, four, bundles_weights, &err), FB_E_LIMIT);
    assert_non_null(strstr(err.message, "large"));
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_BATCH, "fits", FB_I32, 1, two, bundles_tokens, &err), FB_OK);
    assert_int_equal(fb_bundle_finish(writer, &err), FB_OK);
    assert_int_equal(fb_bundle_seal_on(os_sim_os(sim), "/b", 1, &err), FB_OK);
    assert_int_equal(fb_bundle_open_on(os_sim_os(sim), &bundle, "/b", &err), FB_OK);
    assert_int_equal(fb_bundle_find(bundle, 0, FB_BUNDLE_STATE, "large", NULL, NULL, NULL, NULL, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_bundle_find(bundle, 0, FB_BUNDLE_BATCH, "fits", NULL, NULL, NULL, NULL, &err), FB_OK);
    assert_int_equal(fb_bundle_left_out(bundle, 0, 0, &part, &name, &bytes, &err), FB_OK);
    assert_true(part == FB_BUNDLE_STATE && bytes == 16 && strcmp(name, "large") == 0);
    assert_int_equal(fb_bundle_left_out(bundle, 0, 1, &part, &name, &bytes, &err), FB_E_NOTFOUND);
    fb_bundle_close(bundle);
    os_sim_free(sim);
}

static void test_bundle__samples_of_all_ranks_are_listed_once_in_order(void **state)
{
    os_sim *sim = make("/b");
    fb_bundle *bundle;
    int64_t ids[4] = {0, 0, -7, 0};
    size_t count = 0;
    (void)state;
    assert_int_equal(fb_bundle_open_on(os_sim_os(sim), &bundle, "/b", &err), FB_OK);
    assert_int_equal(fb_bundle_samples(bundle, ids, 4, &count, &err), FB_OK);
    assert_true(count == 2 && ids[0] == 3 && ids[1] == 20417 && ids[2] == -7);
    ids[0] = 0;
    assert_int_equal(fb_bundle_samples(bundle, ids, 1, &count, &err), FB_E_LIMIT);
    assert_true(count == 2 && ids[0] == 3);
    fb_bundle_close(bundle);
    os_sim_free(sim);
}

/* ---- what is refused --------------------------------------------------------------------------------------------------------- */

static void test_bundle__a_changed_byte_anywhere_is_refused_and_its_file_named(void **state)
{
    os_sim *sim = make("/b");
    const fb_os *os = os_sim_os(sim);
    uint64_t seed = 7;
    (void)state;
    for (size_t f = 0; f < FILES; f++) {
        size_t bytes;
        char *data = slurp(os, path_of("/b", files[f]), &bytes);
        for (size_t i = 0; i < bytes; i++) {
            char bit = (char)(1 << os_sim_random(&seed) % 8);
            data[i] = (char)(data[i] ^ bit);
            spit(os, "/b", files[f], data, bytes);
            data[i] = (char)(data[i] ^ bit);
            assert_int_equal(open_status(os, "/b"), FB_E_CORRUPT);
            if (!strstr(err.message, files[f])) fail_msg("byte %zu of %s: %s", i, files[f], err.message);
        }
        spit(os, "/b", files[f], data, bytes);
        fb_free(data);
    }
    assert_int_equal(open_status(os, "/b"), FB_OK);
    os_sim_free(sim);
}

static void test_bundle__a_cut_missing_or_longer_file_is_refused_with_what_was_expected_and_found(void **state)
{
    os_sim *sim = make("/b");
    const fb_os *os = os_sim_os(sim);
    (void)state;
    for (size_t f = 0; f < FILES; f++) {
        size_t bytes;
        char *data = slurp(os, path_of("/b", files[f]), &bytes);
        for (size_t cut = 0; cut < bytes; cut += 1 + cut / 7) {
            spit(os, "/b", files[f], data, cut);
            assert_int_equal(open_status(os, "/b"), FB_E_CORRUPT);
            assert_non_null(strstr(err.message, files[f]));
        }
        spit(os, "/b", files[f], data, bytes + 1); /* and the NUL that stands after it */
        assert_int_equal(open_status(os, "/b"), FB_E_CORRUPT);
        assert_true(os->unlink(os->ctx, path_of("/b", files[f])) == 0);
        assert_int_equal(open_status(os, "/b"), f == 0 ? FB_E_NOTFOUND : FB_E_CORRUPT);
        if (f > 0) assert_non_null(strstr(err.message, files[f]));
        if (f > 0) assert_non_null(strstr(err.message, "missing"));
        spit(os, "/b", files[f], data, bytes);
        fb_free(data);
    }
    assert_int_equal(open_status(os, "/b"), FB_OK);
    os_sim_free(sim);
}

static void test_bundle__swapped_files_are_refused(void **state)
{
    static const char *const pairs[][2] = {
        {"part-r00000.json", "part-r00002.json"},
        {"batch-r00000.safetensors", "batch-r00002.safetensors"},
        {"batch-r00000.safetensors", "rng-r00000.safetensors"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        os_sim *sim = make("/b");
        const fb_os *os = os_sim_os(sim);
        size_t bytes[2];
        char *a = slurp(os, path_of("/b", pairs[i][0]), &bytes[0]), *b = slurp(os, path_of("/b", pairs[i][1]), &bytes[1]);
        spit(os, "/b", pairs[i][0], b, bytes[1]);
        spit(os, "/b", pairs[i][1], a, bytes[0]);
        assert_int_equal(open_status(os, "/b"), FB_E_CORRUPT);
        assert_true(strstr(err.message, pairs[i][0]) || strstr(err.message, pairs[i][1]));
        fb_free(a);
        fb_free(b);
        os_sim_free(sim);
    }
}

/* Whole files, each of them right, that do not belong together. */
static void test_bundle__parts_of_two_incidents_are_not_sealed(void **state)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    (void)state;
    for (int what = 0; what < 4; what++) {
        fb_bundle_config config = bundles_config("/b", 0);
        char folder[16];
        (void)snprintf(folder, sizeof folder, "/b%d", what);
        config.folder = folder;
        for (int32_t rank = 0; rank < 3; rank++) {
            fb_bundle_writer *writer;
            config.rank = rank;
            if (rank == 1 && what == 0) config.run_id = "run-2";
            if (rank == 1 && what == 1) config.case_id = "a2-000412";
            if (rank == 1 && what == 2) config.step = 413;
            if (rank == 1 && what == 3) config.world = 4;
            assert_int_equal(fb_bundle_create_on(os, &writer, &config, &err), FB_OK);
            assert_int_equal(fb_bundle_finish(writer, &err), FB_OK);
        }
        assert_int_equal(fb_bundle_seal_on(os, folder, 3, &err), FB_E_CORRUPT);
        assert_non_null(strstr(err.message, "rank 1"));
        assert_int_equal(open_status(os, folder), FB_E_NOTFOUND);
    }
    os_sim_free(sim);
}

static void test_bundle__a_part_that_changed_before_the_seal_is_not_sealed(void **state)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    size_t bytes;
    char *data;
    (void)state;
    assert_int_equal(bundles_write(os, "/b", 0, &err), FB_OK);
    data = slurp(os, "/b/state-r00000.safetensors", &bytes);
    data[bytes - 1] ^= 1;
    spit(os, "/b", "state-r00000.safetensors", data, bytes);
    fb_free(data);
    assert_int_equal(fb_bundle_seal_on(os, "/b", 3, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "state-r00000.safetensors"));
    assert_int_equal(fb_bundle_seal_on(os, "/nowhere", 3, &err), FB_E_NOTFOUND);
    os_sim_free(sim);
}

static void test_bundle__a_bundle_that_was_never_sealed_is_not_opened(void **state)
{
    os_sim *sim = os_sim_new();
    (void)state;
    assert_int_equal(bundles_write(os_sim_os(sim), "/case/bundle", 0, &err), FB_OK);
    assert_int_equal(open_status(os_sim_os(sim), "/case"), FB_E_NOTFOUND);
    assert_non_null(strstr(err.message, "never sealed"));
    assert_int_equal(open_status(os_sim_os(sim), "/nowhere"), FB_E_NOTFOUND);
    os_sim_free(sim);
}

static void test_bundle__what_changes_after_opening_is_found_when_it_is_read(void **state)
{
    os_sim *sim = make("/b");
    const fb_os *os = os_sim_os(sim);
    fb_bundle *bundle;
    uint32_t weights[4];
    size_t bytes;
    char *data;
    (void)state;
    assert_int_equal(fb_bundle_open_on(os, &bundle, "/b", &err), FB_OK);
    data = slurp(os, "/b/state-r00002.safetensors", &bytes);
    for (size_t i = bytes - 24; i < bytes; i++) data[i] ^= 1;
    spit(os, "/b", "state-r00002.safetensors", data, bytes);
    fb_free(data);
    assert_int_equal(fb_bundle_get(bundle, 2, FB_BUNDLE_STATE, "w", FB_F32, 4, weights, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "state-r00002.safetensors"));
    fb_bundle_close(bundle);
    os_sim_free(sim);
}

/* ---- who may write ----------------------------------------------------------------------------------------------------------- */

/* Mixtures of experts have tens of thousands of tensors, each with two moments. Compared pair by pair, so many took minutes. */
static void test_bundle__a_hundred_thousand_names_are_told_apart(void **state)
{
    enum { COUNT = 50000, EVERY = 997 };
    static const int64_t one[] = {1};
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_bundle_config config = bundles_config("/b", 0);
    fb_bundle_writer *writer;
    (void)state;
    assert_int_equal(fb_bundle_create_on(os, &writer, &config, &err), FB_OK);
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        float value = (float)i;
        (void)snprintf(name, sizeof name, "experts.%d.weight", i);
        assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_STATE, name, FB_F32, 1, one, &value, &err), FB_OK);
        assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, name, FB_F32, 1, one, &value, &err), FB_OK);
    }
    for (int i = 0; i < COUNT; i += EVERY) {
        char name[32];
        float value = 0;
        (void)snprintf(name, sizeof name, "experts.%d.weight", i);
        assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_STATE, name, FB_F32, 1, one, &value, &err), FB_E_EXISTS);
        assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, name, FB_F32, 1, one, &value, &err), FB_E_EXISTS);
        assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_BATCH, name, FB_F32, 1, one, &value, &err), FB_OK);
    }
    fb_bundle_abandon(writer);
    os_sim_free(sim);
}

static void test_bundle__a_second_writer_of_a_rank_is_refused_until_the_first_gives_up(void **state)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_bundle_config config = bundles_config("/b", 0), other = bundles_config("/b", 1);
    fb_bundle_writer *first, *second = NULL, *third;
    (void)state;
    assert_int_equal(fb_bundle_create_on(os, &first, &config, &err), FB_OK);
    assert_int_equal(fb_bundle_create_on(os, &second, &config, &err), FB_E_EXISTS);
    assert_null(second);
    assert_int_equal(fb_bundle_create_on(os, &third, &other, &err), FB_OK); /* another rank is nobody's business */
    fb_bundle_abandon(first);
    assert_int_equal(fb_bundle_create_on(os, &second, &config, &err), FB_OK);
    assert_int_equal(fb_bundle_finish(second, &err), FB_OK);
    assert_int_equal(fb_bundle_create_on(os, &second, &config, &err), FB_E_EXISTS); /* it is there already */
    assert_int_equal(fb_bundle_seal_on(os, "/b", 3, &err), FB_OK);
    assert_int_equal(fb_bundle_finish(third, &err), FB_E_EXISTS); /* too late */
    assert_int_equal(fb_bundle_create_on(os, &second, &other, &err), FB_E_EXISTS);
    assert_int_equal(fb_bundle_seal_on(os, "/b", 3, &err), FB_E_EXISTS);
    os_sim_free(sim);
}

static void test_bundle__misuse_is_refused_and_changes_nothing(void **state)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    fb_bundle_config config = bundles_config("/b", 3);
    fb_bundle_writer *writer = NULL;
    const int64_t two[] = {2}, minus[] = {-2}, huge[] = {INT64_MAX};
    (void)state;
    assert_int_equal(fb_bundle_create_on(os, &writer, &config, &err), FB_E_USAGE); /* rank 3 of 3 */
    config = bundles_config(NULL, 0);
    assert_int_equal(fb_bundle_create_on(os, &writer, &config, &err), FB_E_USAGE);
    config = bundles_config("/b", 0);
    config.size = 8;
    assert_int_equal(fb_bundle_create_on(os, &writer, &config, &err), FB_E_USAGE);
    config = bundles_config("/b", 0);
    assert_int_equal(fb_bundle_create_on(os, &writer, &config, &err), FB_OK);
    assert_int_equal(fb_bundle_put(writer, 9, "a", FB_F32, 1, two, bundles_weights, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "", FB_F32, 1, two, bundles_weights, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a\nb", FB_F32, 1, two, bundles_weights, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a", FB_F32, 1, minus, bundles_weights, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a", FB_F32, 1, huge, bundles_weights, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a", FB_F32, 1, two, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a", FB_C128, 1, two, bundles_weights, &err), FB_E_DTYPE);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a", FB_F32, 1, two, bundles_weights, &err), FB_OK);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_RNG, "a", FB_F32, 1, two, bundles_weights, &err), FB_E_EXISTS);
    assert_int_equal(fb_bundle_put(writer, FB_BUNDLE_STATE, "a", FB_F32, 1, two, bundles_weights, &err), FB_OK);
    assert_int_equal(fb_bundle_set_text(writer, "a", NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_set_integer(writer, NULL, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_set_parent(writer, "", 1, 1, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_set_command(writer, NULL, NULL, &err), FB_E_USAGE);
    fb_bundle_abandon(writer);
    fb_bundle_abandon(NULL);
    assert_int_equal(fb_bundle_finish(NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_seal_on(os, "/b", 0, &err), FB_E_USAGE);
    os_sim_free(sim);
}

static void test_bundle__asking_for_what_is_not_in_it_says_so(void **state)
{
    os_sim *sim = make("/b");
    fb_bundle *bundle;
    uint32_t out[4];
    double number;
    (void)state;
    assert_int_equal(fb_bundle_open_on(os_sim_os(sim), &bundle, "/b", &err), FB_OK);
    assert_int_equal(fb_bundle_get(bundle, 1, FB_BUNDLE_STATE, "w", FB_F32, 4, out, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_bundle_get(bundle, 0, FB_BUNDLE_RNG, "w", FB_F32, 4, out, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_bundle_get(bundle, 0, FB_BUNDLE_STATE, "w", FB_I32, 4, out, &err), FB_E_DTYPE);
    assert_int_equal(fb_bundle_get(bundle, 0, FB_BUNDLE_STATE, "w", FB_F32, 3, out, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_get(bundle, 0, FB_BUNDLE_STATE, "w", FB_F32, 4, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_bundle_number(bundle, 0, "precision", &number, &err), FB_E_DTYPE);
    assert_int_equal(fb_bundle_number(bundle, 0, "none", &number, &err), FB_E_NOTFOUND);
    assert_null(fb_bundle_text(bundle, 5, "precision"));
    fb_bundle_close(bundle);
    fb_bundle_close(NULL);
    os_sim_free(sim);
}

/* ---- who is started for a replay --------------------------------------------------------------------------------------------- */

static fb_status ask(fb_replay_wanted *wanted)
{
    fb_replay_wanted fresh = FB_REPLAY_WANTED_INIT;
    *wanted = fresh;
    return fb_replay_asked(wanted, &err);
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void test_bundle__the_environment_is_read_strictly(void **state)
{
    static const char *const wrong[][2] = {
        {"FIRSTBAD_REPLAY_PARTS", "cause,everything"},
        {"FIRSTBAD_REPLAY_PARTS", "cause,"},
        {"FIRSTBAD_REPLAY_PARTS", "63"},
        {"FIRSTBAD_REPLAY_TIMES", "-1"},
        {"FIRSTBAD_REPLAY_TIMES", "3x"},
        {"FIRSTBAD_REPLAY_TIMES", " 3"},
        {"FIRSTBAD_REPLAY_TIMES", "99999999999999999999"},
        {"FIRSTBAD_REPLAY_PROBES", "many"},
        {"FIRSTBAD_REPLAY_STRATEGY", "Sweep"},
    };
    fb_replay_wanted wanted;
    char *path = malloc(5000);
    (void)state;
    assert_non_null(path);
    assert_int_equal(ask(&wanted), FB_E_NOTFOUND);
    set("FIRSTBAD_REPLAY", "");
    assert_int_equal(ask(&wanted), FB_E_NOTFOUND);
    set("FIRSTBAD_REPLAY", "cases/a1-000412/bundle");
    assert_int_equal(ask(&wanted), FB_OK);
    assert_true(wanted.parts == 0 && wanted.times == 0 && wanted.probes_max == 0 && wanted.strategy == FB_LOCATE_SWEEP);
    assert_string_equal(wanted.bundle, "cases/a1-000412/bundle");
    assert_string_equal(wanted.out, "");
    set("FIRSTBAD_REPLAY_PARTS", "replay,search");
    set("FIRSTBAD_REPLAY_TIMES", "5");
    set("FIRSTBAD_REPLAY_PROBES", "12");
    set("FIRSTBAD_REPLAY_STRATEGY", "bisect");
    set("FIRSTBAD_REPLAY_OUT", "out");
    assert_int_equal(ask(&wanted), FB_OK);
    assert_true(wanted.parts == (FB_LOCATE_REPLAY | FB_LOCATE_SEARCH) && wanted.times == 5 && wanted.probes_max == 12 &&
                wanted.strategy == FB_LOCATE_BISECT && strcmp(wanted.out, "out") == 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char saved[64];
        (void)snprintf(saved, sizeof saved, "%s", getenv(wrong[i][0]));
        set(wrong[i][0], wrong[i][1]);
        assert_int_equal(ask(&wanted), FB_E_USAGE);
        assert_non_null(strstr(err.message, wrong[i][0]));
        set(wrong[i][0], saved);
    }
    memset(path, 'a', 4999);
    path[4999] = '\0';
    set("FIRSTBAD_REPLAY_OUT", path);
    assert_int_equal(ask(&wanted), FB_E_USAGE);
    wanted.size = 4;
    assert_int_equal(fb_replay_asked(&wanted, &err), FB_E_USAGE);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundle__what_was_put_in_comes_out),
        cmocka_unit_test(test_bundle__numbers_keep_their_bits_and_a_second_value_replaces_the_first),
        cmocka_unit_test(test_bundle__memory_that_changes_after_the_put_is_not_what_was_captured),
        cmocka_unit_test(test_bundle__what_does_not_fit_is_left_out_and_named),
        cmocka_unit_test(test_bundle__samples_of_all_ranks_are_listed_once_in_order),
        cmocka_unit_test(test_bundle__a_changed_byte_anywhere_is_refused_and_its_file_named),
        cmocka_unit_test(test_bundle__a_cut_missing_or_longer_file_is_refused_with_what_was_expected_and_found),
        cmocka_unit_test(test_bundle__swapped_files_are_refused),
        cmocka_unit_test(test_bundle__parts_of_two_incidents_are_not_sealed),
        cmocka_unit_test(test_bundle__a_part_that_changed_before_the_seal_is_not_sealed),
        cmocka_unit_test(test_bundle__a_bundle_that_was_never_sealed_is_not_opened),
        cmocka_unit_test(test_bundle__what_changes_after_opening_is_found_when_it_is_read),
        cmocka_unit_test(test_bundle__a_hundred_thousand_names_are_told_apart),
        cmocka_unit_test(test_bundle__a_second_writer_of_a_rank_is_refused_until_the_first_gives_up),
        cmocka_unit_test(test_bundle__misuse_is_refused_and_changes_nothing),
        cmocka_unit_test(test_bundle__asking_for_what_is_not_in_it_says_so),
        cmocka_unit_test(test_bundle__the_environment_is_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
