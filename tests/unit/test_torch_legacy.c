/*
 * Files of torch.save before 1.6, and hostile ones; both made by scripts/make-golden-torch.py, which planted what truth.json says.
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

static char *load_file(const char *name, size_t *bytes)
{
    char path[512], *data;
    fb_error err;
    (void)snprintf(path, sizeof path, "%s/%s.pt", GOLDEN, name);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 28, &data, bytes, &err) != FB_OK) fail_msg("%s", err.message);
    return data;
}

static void judge(truth *t, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.pt", GOLDEN, name);
    truth_of(t, fb_os_posix(), path, &fb_ckpt_torch_legacy);
}

static size_t compared;

static void compare_one(const char *path, const truth_entry *entry)
{
    char text[2048];
    truth t;
    if (strncmp(entry->file, "legacy", 6) != 0) return;
    truth_of(&t, fb_os_posix(), path, &fb_ckpt_torch_legacy);
    truth_compare(&t, entry, text, sizeof text);
    if (text[0]) fail_msg("%s", text);
    compared++;
}

static void test_torch_legacy__what_was_planted_is_found_and_nothing_else(void **ignored)
{
    (void)ignored;
    compared = 0;
    (void)truth_each(GOLDEN, compare_one);
    assert_int_equal(compared, 17);
}

static void test_torch_legacy__parts_of_a_storage_are_scanned_where_they_lie(void **ignored)
{
    truth t;
    (void)ignored;
    judge(&t, "legacy-parts");
    if (t.status != FB_OK) fail_msg("%s", t.err.message);
    assert_int_equal(t.extents, 1);
    assert_int_equal(t.tensors, 2);
}

static void test_torch_legacy__it_is_known_by_its_first_pickle_in_any_protocol(void **ignored)
{
    static const char zero[] = "L119547037146038801333356L\n.I1001\n.";
    static const char four[] = "\x80\x04\x95\x0d\0\0\0\0\0\0\0\x8a\x0al\xfc\x9c"
                               "F\xf9 j\xa8P\x19.";
    static const char other[] = "\x80\x02\x8a\x0al\xfc\x9c"
                                "F\xf9 j\xa8P\x18.";
    (void)ignored;
    assert_true(fb_ckpt_torch_legacy.detect((const uint8_t *)zero, sizeof zero - 1, 1000));
    assert_true(fb_ckpt_torch_legacy.detect((const uint8_t *)four, sizeof four - 1, 1000));
    assert_false(fb_ckpt_torch_legacy.detect((const uint8_t *)other, sizeof other - 1, 1000));
    for (size_t cut = 0; cut < 20; cut++) assert_false(fb_ckpt_torch_legacy.detect((const uint8_t *)four, cut, 1000));
}

static void test_torch_legacy__hostile_files_are_refused(void **ignored)
{
    static const struct {
        const char *name;
        fb_status status;
        const char *says;
    } files[] = {
        {"legacy-cut", FB_E_CORRUPT, "the file is incomplete"},
        {"legacy-followed", FB_E_CORRUPT, "1 bytes follow the last storage"},
        {"legacy-no-storage", FB_E_CORRUPT, "is missing"},
        {"legacy-count", FB_E_CORRUPT, "has 3 elements, the object says 4"},
        {"legacy-count-negative", FB_E_CORRUPT, "the object says 4"},
        {"legacy-protocol", FB_E_UNSUPPORTED, "not 1001"},
        {"legacy-no-keys", FB_E_CORRUPT, "not in the list of keys"},
        {"legacy-no-keys-no-data", FB_E_CORRUPT, "not in the list of keys"},
        {"legacy-key-unknown", FB_E_CORRUPT, "key 1, which the object does not know"},
        {"legacy-key-twice", FB_E_CORRUPT, "2 keys, the object has 1 storages"},
        {"legacy-keys-no-list", FB_E_CORRUPT, "is no list"},
        {"legacy-key-number", FB_E_CORRUPT, "no text"},
        {"legacy-magic-only", FB_E_CORRUPT, ""},
    };
    (void)ignored;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char name[256];
        truth t;
        (void)snprintf(name, sizeof name, "hostile/%s", files[i].name);
        judge(&t, name);
        if (t.status != files[i].status || !strstr(t.err.message, files[i].says)) {
            fail_msg("%s: %s %s", name, truth_outcome(&t), t.status == FB_OK ? "" : t.err.message);
        }
    }
}

static const char *const tried[] = {"legacy-views", "legacy-parts", "legacy-dtypes", "legacy-training-bad-moment"};

static void test_torch_legacy__every_truncation_is_refused(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        size_t bytes;
        char *data = load_file(tried[i], &bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            memory_os memory;
            truth t;
            truth_of(&t, memory_os_init(&memory, (const uint8_t *)data, cut), "memory.pt", &fb_ckpt_torch_legacy);
            if (t.status != FB_E_CORRUPT) fail_msg("%s cut after %zu: %s", tried[i], cut, truth_outcome(&t));
        }
        fb_free(data);
    }
}

/* An object larger than the first window: the pickles are read again with more bytes. */
static void test_torch_legacy__an_object_of_any_size_is_read(void **ignored)
{
    enum { TEXT = 300000 };
    static const char head[] = "\x80\x02\x8a\x0al\xfc\x9c"
                               "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02X";
    size_t at = sizeof head - 1, bytes = at + 4 + TEXT + 1 + 4;
    uint8_t *data = malloc(bytes);
    memory_os memory;
    truth t;
    (void)ignored;
    assert_non_null(data);
    memcpy(data, head, at);
    data[at] = (uint8_t)TEXT;
    data[at + 1] = (uint8_t)(TEXT >> 8);
    data[at + 2] = (uint8_t)(TEXT >> 16);
    data[at + 3] = 0;
    memset(data + at + 4, 'x', TEXT);
    memcpy(data + at + 4 + TEXT, ".\x80\x02].", 5);
    truth_of(&t, memory_os_init(&memory, data, bytes), "memory.pt", &fb_ckpt_torch_legacy);
    if (t.status != FB_OK) fail_msg("%s", t.err.message);
    assert_int_equal(t.extents, 0);
    free(data);
}

static void test_torch_legacy__each_failing_allocation_and_read_is_reported(void **ignored)
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
            truth_of(&t, os, "/a.pt", &fb_ckpt_torch_legacy);
            fb_alloc_fail_at(0, 0);
            if (t.status != FB_OK && t.status != FB_E_NOMEM)
                fail_msg("%s, allocation %llu: %s", tried[i], (unsigned long long)k, t.err.message);
            assert_true(k < 5000);
        }
        for (uint64_t k = 1;; k++) {
            os_sim_fail(sim, k, EIO, 0);
            truth_of(&t, os, "/a.pt", &fb_ckpt_torch_legacy);
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
        cmocka_unit_test(test_torch_legacy__what_was_planted_is_found_and_nothing_else),
        cmocka_unit_test(test_torch_legacy__parts_of_a_storage_are_scanned_where_they_lie),
        cmocka_unit_test(test_torch_legacy__it_is_known_by_its_first_pickle_in_any_protocol),
        cmocka_unit_test(test_torch_legacy__hostile_files_are_refused),
        cmocka_unit_test(test_torch_legacy__every_truncation_is_refused),
        cmocka_unit_test(test_torch_legacy__an_object_of_any_size_is_read),
        cmocka_unit_test(test_torch_legacy__each_failing_allocation_and_read_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
