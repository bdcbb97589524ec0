/*
 * npz archives of NumPy, and hostile ones: both made by scripts/make-golden-torch.py, which planted what truth.json says.
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

#define GOLDEN "tests/golden/npz"

static char *load_file(const char *name, size_t *bytes)
{
    char path[512], *data;
    fb_error err;
    (void)snprintf(path, sizeof path, "%s/%s.npz", GOLDEN, name);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 28, &data, bytes, &err) != FB_OK) fail_msg("%s", err.message);
    return data;
}

static void judge(truth *t, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.npz", GOLDEN, name);
    truth_of(t, fb_os_posix(), path, &fb_ckpt_npz);
}

static void compare_one(const char *path, const truth_entry *entry)
{
    char text[2048];
    truth t;
    truth_of(&t, fb_os_posix(), path, &fb_ckpt_npz);
    truth_compare(&t, entry, text, sizeof text);
    if (text[0]) fail_msg("%s", text);
}

static void test_npz__what_was_planted_is_found_and_nothing_else(void **ignored)
{
    (void)ignored;
    assert_int_equal(truth_each(GOLDEN, compare_one), 10);
}

static void test_npz__a_deflated_array_is_the_same_as_a_stored_one(void **ignored)
{
    truth stored, deflated;
    (void)ignored;
    judge(&stored, "stored");
    judge(&deflated, "deflated");
    assert_int_equal(stored.count, deflated.count);
    for (size_t i = 0; i < stored.count; i++) assert_string_equal(stored.lines[i], deflated.lines[i]);
}

static void test_npz__an_array_of_objects_is_listed_and_the_others_go_on(void **ignored)
{
    truth t;
    (void)ignored;
    judge(&t, "objects");
    assert_int_equal(t.status, FB_OK);
    assert_int_equal(t.unscanned, 1);
    assert_int_equal(t.tensors, 1);
    assert_int_equal(strncmp(t.last_unscanned, "o.npy: ", 7), 0);
}

static void test_npz__a_member_that_is_no_array_is_told_of(void **ignored)
{
    truth t;
    (void)ignored;
    judge(&t, "note");
    assert_int_equal(t.notes, 1);
    assert_non_null(strstr(t.all_notes, "readme: is no array"));
}

static void test_npz__content_decides_whose_archive_it_is(void **ignored)
{
    static const struct {
        const char *name;
        int npz;
    } files[] = {{"stored", 1}, {"deflated", 1}, {"no-array", 1}, {"folders", 1}, {"first-is-no-array", 0}};
    (void)ignored;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t bytes;
        char *data = load_file(files[i].name, &bytes);
        const uint8_t *head = (const uint8_t *)data;
        assert_int_equal(fb_ckpt_npz.detect(head, bytes < FB_CKPT_HEAD_BYTES ? bytes : FB_CKPT_HEAD_BYTES, bytes), files[i].npz);
        for (size_t cut = 0; cut < 30 && cut < bytes; cut++) (void)fb_ckpt_npz.detect(head, cut, bytes);
        fb_free(data);
    }
}

static void test_npz__hostile_archives_are_refused(void **ignored)
{
    static const struct {
        const char *name, *says;
    } files[] = {
        {"array-cut", ""},      {"array-followed", ""},
        {"array-empty", ""},    {"array-no-magic", ""},
        {"header-bomb", ""},    {"header-cut", ""},
        {"deflated-cut", ""},   {"deflated-size", ""},
        {"shape-overflow", ""}, {"object-of-torch", "who loads it"},
    };
    (void)ignored;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char name[256];
        truth t;
        (void)snprintf(name, sizeof name, "hostile/%s", files[i].name);
        judge(&t, name);
        if ((t.status != FB_E_CORRUPT && t.status != FB_E_LIMIT) || !strstr(t.err.message, files[i].says)) {
            fail_msg("%s: %s %s", name, truth_outcome(&t), t.status == FB_OK ? "" : t.err.message);
        }
    }
}

static void test_npz__every_truncation_is_refused(void **ignored)
{
    static const char *const names[] = {"clean", "clean-deflated"};
    (void)ignored;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t bytes;
        char *data = load_file(names[i], &bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            memory_os memory;
            truth t;
            truth_of(&t, memory_os_init(&memory, (const uint8_t *)data, cut), "memory.npz", &fb_ckpt_npz);
            assert_int_equal(t.status, FB_E_CORRUPT);
        }
        fb_free(data);
    }
}

static void test_npz__a_flipped_bit_is_noticed(void **ignored)
{
    size_t bytes;
    char *data = load_file("clean", &bytes);
    (void)ignored;
    for (size_t at = 0; at < bytes; at++) {
        memory_os memory;
        truth t;
        data[at] ^= 4;
        truth_of(&t, memory_os_init(&memory, (const uint8_t *)data, bytes), "memory.npz", &fb_ckpt_npz);
        /* What is left: versions and times, which say nothing about content, and formats that become unknown ones. */
        if (t.status == FB_OK && !t.unscanned) {
            assert_string_equal(truth_outcome(&t), "clean");
            assert_int_equal(t.tensors, 2);
        }
        data[at] ^= 4;
    }
    fb_free(data);
}

static void test_npz__each_failing_allocation_and_read_is_reported(void **ignored)
{
    static const char *const names[] = {"stored", "deflated", "objects", "structured", "note"};
    (void)ignored;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t bytes;
        char *data = load_file(names[i], &bytes);
        os_sim *sim = os_sim_new();
        const fb_os *os = os_sim_os(sim);
        int fd = (int)fb_os_open(os, "/a.npz", O_CREAT | O_WRONLY, 0600);
        truth t;
        assert_int_equal(fb_os_write_all(os, fd, data, bytes), 0);
        (void)os->close(os->ctx, fd);
        t.status = FB_E_NOMEM;
        for (uint64_t k = 1; t.status != FB_OK; k++) {
            fb_alloc_fail_at(k, 0);
            truth_of(&t, os, "/a.npz", &fb_ckpt_npz);
            fb_alloc_fail_at(0, 0);
            if (t.status != FB_OK && t.status != FB_E_NOMEM) fail_msg("%s", t.err.message);
            assert_true(k < 2000);
        }
        for (uint64_t k = 1;; k++) {
            os_sim_fail(sim, k, EIO, 0);
            truth_of(&t, os, "/a.npz", &fb_ckpt_npz);
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
        cmocka_unit_test(test_npz__what_was_planted_is_found_and_nothing_else),
        cmocka_unit_test(test_npz__a_deflated_array_is_the_same_as_a_stored_one),
        cmocka_unit_test(test_npz__an_array_of_objects_is_listed_and_the_others_go_on),
        cmocka_unit_test(test_npz__a_member_that_is_no_array_is_told_of),
        cmocka_unit_test(test_npz__content_decides_whose_archive_it_is),
        cmocka_unit_test(test_npz__hostile_archives_are_refused),
        cmocka_unit_test(test_npz__every_truncation_is_refused),
        cmocka_unit_test(test_npz__a_flipped_bit_is_noticed),
        cmocka_unit_test(test_npz__each_failing_allocation_and_read_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
