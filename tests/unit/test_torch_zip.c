/*
 * Archives of torch.save, whole training states among them, and hostile ones; bare pickles too. All are made by
 * scripts/make-golden-torch.py, which planted what truth.json says.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/os_sim.h"
#include "support/ckpt_truth.h"
#include "support/memory_os.h"

#define GOLDEN "tests/golden/torch"

static const fb_ckpt_reader *reader_of(const char *name)
{
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    if (strncmp(base, "legacy", 6) == 0) return &fb_ckpt_torch_legacy;
    return strncmp(base, "bare-protocol", 13) == 0 || strncmp(base, "pickle", 6) == 0 ? &fb_ckpt_pickle : &fb_ckpt_torch_zip;
}

static char *load_file(const char *name, size_t *bytes)
{
    char path[512], *data;
    fb_error err;
    (void)snprintf(path, sizeof path, "%s/%s", GOLDEN, name);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 28, &data, bytes, &err) != FB_OK) fail_msg("%s", err.message);
    return data;
}

static void judge(truth *t, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", GOLDEN, name);
    truth_of(t, fb_os_posix(), path, reader_of(name));
}

static size_t compared;

static void compare_one(const char *path, const truth_entry *entry)
{
    char text[2048];
    truth t;
    if (reader_of(path) == &fb_ckpt_torch_legacy) return; /* test_torch_legacy.c */
    truth_of(&t, fb_os_posix(), path, reader_of(path));
    truth_compare(&t, entry, text, sizeof text);
    if (text[0]) fail_msg("%s", text);
    compared++;
}

static void test_torch_zip__what_was_planted_is_found_and_nothing_else(void **ignored)
{
    (void)ignored;
    compared = 0;
    (void)truth_each(GOLDEN, compare_one);
    assert_int_equal(compared, 27);
}

static void test_torch_zip__numbers_that_belong_to_no_tensor_are_not_scanned_as_one(void **ignored)
{
    truth t;
    (void)ignored;
    judge(&t, "unreferenced.pt"); /* its storage holds a NaN behind the view */
    assert_string_equal(truth_outcome(&t), "clean");
    assert_int_equal(t.tensors, 1);
}

static void test_torch_zip__members_beside_the_object_are_told_of(void **ignored)
{
    truth t;
    (void)ignored;
    judge(&t, "extra-members.pt");
    assert_int_equal(t.notes, 2);
    assert_non_null(strstr(t.all_notes, "evil.py"));
    judge(&t, "clean.pt");
    assert_int_equal(t.notes, 0);
}

static void test_torch_zip__the_program_of_a_torchscript_archive_is_told_of_once(void **ignored)
{
    truth t;
    (void)ignored;
    judge(&t, "script.pt");
    assert_true(t.notes >= 1);
    assert_non_null(strstr(t.all_notes, "code/: is the program"));
    assert_null(strstr(strstr(t.all_notes, "code/") + 1, "code/"));
}

static void test_torch_zip__content_decides_which_reader_it_is(void **ignored)
{
    static const char *const names[] = {"clean.pt", "script.pt", "legacy-clean.pt", "bare-protocol-2.pkl", "bare-protocol-5.pkl"};
    static const fb_ckpt_reader *const all[] = {&fb_ckpt_torch_zip, &fb_ckpt_torch_legacy, &fb_ckpt_npz};
    (void)ignored;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t bytes, head;
        char *data = load_file(names[i], &bytes);
        head = bytes < FB_CKPT_HEAD_BYTES ? bytes : FB_CKPT_HEAD_BYTES;
        for (size_t n = 0; n < sizeof all / sizeof all[0]; n++) {
            assert_int_equal(all[n]->detect((const uint8_t *)data, head, bytes), all[n] == reader_of(names[i]));
        }
        assert_int_equal(fb_ckpt_pickle.detect((const uint8_t *)data, head, bytes), names[i][0] == 'b' || names[i][0] == 'l');
        for (size_t cut = 0; cut < 40; cut++) {
            (void)fb_ckpt_torch_zip.detect((const uint8_t *)data, cut, bytes);
            (void)fb_ckpt_torch_legacy.detect((const uint8_t *)data, cut, bytes);
            (void)fb_ckpt_pickle.detect((const uint8_t *)data, cut, bytes);
        }
        fb_free(data);
    }
}

static void test_torch_zip__an_archive_of_arrays_with_another_first_member_is_read_as_npz(void **ignored)
{
    truth t;
    (void)ignored;
    truth_of(&t, fb_os_posix(), "tests/golden/npz/first-is-no-array.npz", &fb_ckpt_torch_zip);
    if (t.status != FB_OK) fail_msg("%s", t.err.message);
    assert_int_equal(t.count, 1);
    assert_string_equal(t.lines[0], "x 1 nan");
    assert_int_equal(t.notes, 1);
}

/* ---- hostile files ----------------------------------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name;
    fb_status status;
    const char *says;
} refusal;

static const refusal refusals[] = {
    {"storage-missing", FB_E_CORRUPT, "storage data/0 is missing"},
    {"storage-short", FB_E_CORRUPT, "12 bytes, 4 elements of 4 bytes are due"},
    {"storage-long", FB_E_CORRUPT, "20 bytes, 4 elements of 4 bytes are due"},
    {"storage-outside", FB_E_CORRUPT, "outside the folder"},
    {"object-missing", FB_E_UNSUPPORTED, "neither an object of torch"},
    {"object-cut", FB_E_CORRUPT, ""},
    {"object-followed", FB_E_CORRUPT, "1 bytes follow the object"},
    {"object-empty", FB_E_CORRUPT, ""},
    {"version-missing", FB_E_CORRUPT, "no version member"},
    {"version-99", FB_E_UNSUPPORTED, "version is not 1 to 10"},
    {"version-word", FB_E_UNSUPPORTED, "version is not 1 to 10"},
    {"version-empty", FB_E_UNSUPPORTED, "version is not 1 to 10"},
    {"version-long", FB_E_CORRUPT, "65 bytes instead of a few"},
    {"byteorder-middle", FB_E_CORRUPT, "neither little nor big"},
    {"format-2", FB_E_UNSUPPORTED, "newer format"},
    {"two-objects", FB_E_CORRUPT, "several objects"},
    {"object-and-arrays", FB_E_CORRUPT, "who loads it"},
    {"object-in-another-folder", FB_E_CORRUPT, "outside the folder"},
    {"no-folder", FB_E_CORRUPT, "lies in no folder"},
    {"prefix", FB_E_CORRUPT, "locator"},
    {"keras", FB_E_UNSUPPORTED, "Keras"},
    {"other-zip", FB_E_UNSUPPORTED, "neither an object of torch"},
    {"pickle-followed", FB_E_CORRUPT, "1 bytes follow its end"},
    {"pickle-cut", FB_E_CORRUPT, ""},
};

static void test_torch_zip__hostile_files_are_refused(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char name[256];
        truth t;
        (void)snprintf(name, sizeof name, "hostile/%s.pt", refusals[i].name);
        judge(&t, name);
        if (t.status != refusals[i].status || !strstr(t.err.message, refusals[i].says)) {
            fail_msg("%s: %s %s", name, truth_outcome(&t), t.status == FB_OK ? "" : t.err.message);
        }
    }
}

/* ---- every truncation, every flipped bit, every fault ------------------------------------------------------------------------ */

static const char *const tried[] = {"training-bad-moment.pt", "views.pt", "script-frozen.pt", "deflated.pt", "numpy.pt",
                                    "bare-protocol-4.pkl"};

static void test_torch_zip__every_truncation_is_refused(void **ignored)
{
    (void)ignored;
    for (size_t i = 1; i < sizeof tried / sizeof tried[0]; i++) {
        size_t bytes;
        char *data = load_file(tried[i], &bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            memory_os memory;
            truth t;
            truth_of(&t, memory_os_init(&memory, (const uint8_t *)data, cut), "memory.pt", reader_of(tried[i]));
            if (t.status != FB_E_CORRUPT) fail_msg("%s cut after %zu: %s", tried[i], cut, truth_outcome(&t));
        }
        fb_free(data);
    }
}

static void test_torch_zip__no_flipped_bit_makes_a_bad_file_clean(void **ignored)
{
    size_t bytes;
    char *data = load_file("views.pt", &bytes);
    (void)ignored;
    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            memory_os memory;
            truth t;
            data[at] = (char)(data[at] ^ 1 << bit);
            truth_of(&t, memory_os_init(&memory, (const uint8_t *)data, bytes), "memory.pt", &fb_ckpt_torch_zip);
            if (strcmp(truth_outcome(&t), "clean") == 0) fail_msg("bit %d of byte %zu", bit, at);
            data[at] = (char)(data[at] ^ 1 << bit);
        }
    }
    fb_free(data);
}

static void test_torch_zip__each_failing_allocation_and_read_is_reported(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        size_t bytes;
        char *data = load_file(tried[i], &bytes);
        os_sim *sim = os_sim_new();
        const fb_os *os = os_sim_os(sim);
        int fd = (int)fb_os_open(os, "/a.pt", O_CREAT | O_WRONLY, 0600);
        truth t;
        assert_int_equal(fb_os_write_all(os, fd, data, bytes), 0);
        (void)os->close(os->ctx, fd);
        t.status = FB_E_NOMEM;
        for (uint64_t k = 1; t.status != FB_OK; k++) {
            fb_alloc_fail_at(k, 0);
            truth_of(&t, os, "/a.pt", reader_of(tried[i]));
            fb_alloc_fail_at(0, 0);
            if (t.status != FB_OK && t.status != FB_E_NOMEM)
                fail_msg("%s, allocation %llu: %s", tried[i], (unsigned long long)k, t.err.message);
            assert_true(k < 5000);
        }
        for (uint64_t k = 1;; k++) {
            os_sim_fail(sim, k, EIO, 0);
            truth_of(&t, os, "/a.pt", reader_of(tried[i]));
            if (os_sim_calls(sim) < k) break;
            if (strcmp(os_sim_call_name(sim, k), "close") != 0) assert_int_equal(t.status, FB_E_IO);
        }
        os_sim_free(sim);
        fb_free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch_zip__what_was_planted_is_found_and_nothing_else),
        cmocka_unit_test(test_torch_zip__numbers_that_belong_to_no_tensor_are_not_scanned_as_one),
        cmocka_unit_test(test_torch_zip__members_beside_the_object_are_told_of),
        cmocka_unit_test(test_torch_zip__the_program_of_a_torchscript_archive_is_told_of_once),
        cmocka_unit_test(test_torch_zip__content_decides_which_reader_it_is),
        cmocka_unit_test(test_torch_zip__an_archive_of_arrays_with_another_first_member_is_read_as_npz),
        cmocka_unit_test(test_torch_zip__hostile_files_are_refused),
        cmocka_unit_test(test_torch_zip__every_truncation_is_refused),
        cmocka_unit_test(test_torch_zip__no_flipped_bit_makes_a_bad_file_clean),
        cmocka_unit_test(test_torch_zip__each_failing_allocation_and_read_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
