/* The writer of safetensors, read back by the reader and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/ckpt.h"
#include "ckpt/reader.h"
#include "ckpt/safetensors_write.h"
#include "fault/os_sim.h"

typedef struct seen {
    char text[2048]; /* "name F32 [2,3] @16;" for each tensor */
    char finding[128];
} seen;

static void on_tensor(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    seen *s = ctx;
    size_t used = strlen(s->text);
    (void)file;
    (void)stats;
    used += (size_t)snprintf(s->text + used, sizeof s->text - used, "%s %s [", tensor->name, tensor->dtype_name);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        used +=
            (size_t)snprintf(s->text + used, sizeof s->text - used, "%s%llu", i ? "," : "", (unsigned long long)tensor->shape[i]);
    }
    (void)snprintf(s->text + used, sizeof s->text - used, "] @%llu;", (unsigned long long)tensor->offset_bytes);
}

static void on_finding(void *ctx, const fb_ckpt_finding *f)
{
    (void)snprintf(((seen *)ctx)->finding, sizeof((seen *)ctx)->finding, "%s %llu", f->tensor, (unsigned long long)f->index);
}

static const uint32_t words[6] = {0x3f800000u, 0x40000000u, 0x7fc00000u, 0, 0, 0};
static const int64_t ids[2] = {7, -1};
static const uint16_t half[3] = {0x3c00, 0x3c00, 0x7bff};

static int fill(fb_st_tensor *t)
{
    const fb_st_tensor made[] = {
        {"half", FB_F16, 1, {3}, half, 6},
        {"w", FB_F32, 2, {2, 3}, words, 24},
        {"empty", FB_F32, 2, {0, 3}, NULL, 0},
        {"ids", FB_I64, 1, {2}, ids, 16},
        {"one \"quoted\" \xc3\xa9", FB_F32, 0, {0}, words, 4},
    };
    memcpy(t, made, sizeof made);
    return 5;
}

static void test_safetensors_write__the_reader_finds_what_was_written(void **state)
{
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    const fb_pair metadata[] = {{"step", "412"}, {"nothing", NULL}, {"format", "pt"}};
    fb_st_tensor t[5];
    seen s;
    fb_ckpt_sink sink = {.ctx = &s, .tensor = on_tensor, .finding = on_finding};
    fb_ckpt_summary summary;
    fb_error err;
    uint64_t hash = 0, header = 0;
    char *data;
    size_t bytes;
    (void)state;
    memset(&s, 0, sizeof s);
    assert_int_equal(fb_safetensors_write(os, "/", "a.safetensors", t, (uint32_t)fill(t), metadata, 3, &hash, &err), FB_OK);
    assert_int_equal(fb_ckpt_scan_path(os, "/a.safetensors", NULL, &sink, &summary, &err), FB_OK);
    assert_int_equal(summary.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(summary.step, 412);
    assert_string_equal(s.finding, "w 2");
    assert_string_equal(s.text,
                        "ids I64 [2] @0;w F32 [2,3] @16;empty F32 [0,3] @40;one \"quoted\" \xc3\xa9 F32 [] @40;half F16 [3] @44;");
    assert_int_equal(fb_os_read_file(os, "/a.safetensors", 1 << 20, &data, &bytes, &err), FB_OK);
    assert_true(hash == fb_hash64(data, bytes, 0));
    memcpy(&header, data, 8);
    assert_int_equal(header % 8, 0);
    assert_memory_equal(data + 8 + header, ids, 16);
    assert_memory_equal(data + 8 + header + 16, words, 24);
    fb_free(data);
    os_sim_free(sim);
}

static void test_safetensors_write__what_cannot_be_written_is_refused_and_leaves_nothing(void **state)
{
    static const struct {
        fb_st_tensor t[2];
        uint32_t n;
        fb_status status;
    } cases[] = {
        {{{"a", FB_F32, 1, {2}, words, 8}, {"a", FB_F32, 1, {2}, words, 8}}, 2, FB_E_EXISTS},
        {{{"a", FB_F32, 1, {2}, words, 12}}, 1, FB_E_USAGE},
        {{{"a", FB_F32, 1, {-2}, words, 8}}, 1, FB_E_USAGE},
        {{{"a", FB_F32, 2, {INT64_MAX, 4}, words, 8}}, 1, FB_E_USAGE},
        {{{"a", FB_F32, 1, {2}, NULL, 8}}, 1, FB_E_USAGE},
        {{{"a", FB_F32, 9, {2}, words, 8}}, 1, FB_E_USAGE},
        {{{"a", FB_C128, 1, {1}, words, 16}}, 1, FB_E_DTYPE},
        {{{"a", 99, 1, {1}, words, 4}}, 1, FB_E_DTYPE},
        {{{"", FB_F32, 1, {2}, words, 8}}, 1, FB_E_USAGE},
        {{{"__metadata__", FB_F32, 1, {2}, words, 8}}, 1, FB_E_USAGE},
        {{{"a\nb", FB_F32, 1, {2}, words, 8}}, 1, FB_E_USAGE},
        {{{"a", FB_F4_E2M1, 1, {3}, words, 2}}, 1, FB_E_USAGE},
    };
    os_sim *sim = os_sim_new();
    fb_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fb_os_info info;
        memset(&err, 0, sizeof err);
        assert_int_equal(fb_safetensors_write(os_sim_os(sim), "/", "a.safetensors", cases[i].t, cases[i].n, NULL, 0, NULL, &err),
                         cases[i].status);
        assert_int_equal(err.code, cases[i].status);
        assert_true(err.message[0]);
        assert_true(os_sim_os(sim)->stat(os_sim_os(sim)->ctx, "/a.safetensors", &info) < 0);
    }
    os_sim_free(sim);
}

static int64_t count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

/* Whatever call or request fails: an error, and the file is the older one or the new one, whole. */
static void test_safetensors_write__a_failure_keeps_the_older_file_or_has_the_new_one(void **state)
{
    fb_st_tensor t[5], older = {"w", FB_F32, 1, {1}, words, 4};
    uint32_t n = (uint32_t)fill(t);
    uint64_t new_hash = 0;
    os_sim *whole = os_sim_new();
    (void)state;
    assert_int_equal(fb_safetensors_write(os_sim_os(whole), "/", "a", t, n, NULL, 0, &new_hash, NULL), FB_OK);
    os_sim_free(whole);
    for (int memory = 0; memory < 2; memory++) {
        for (uint64_t k = 1;; k++) {
            os_sim *sim = os_sim_new();
            const fb_os *os = os_sim_os(sim);
            fb_error err;
            uint64_t old_hash, hash = 0;
            char *data;
            size_t bytes;
            int names = 0;
            fb_status status;
            assert_int_equal(fb_safetensors_write(os, "/", "a.safetensors", &older, 1, NULL, 0, &old_hash, &err), FB_OK);
            if (memory) fb_alloc_fail_at(k, 0);
            else os_sim_fail(sim, k, 28, 0); /* no space */
            status = fb_safetensors_write(os, "/", "a.safetensors", t, n, NULL, 0, &hash, &err);
            if (memory) fb_alloc_fail_at(0, 0);
            else os_sim_fail(sim, 0, 0, 0);
            assert_int_equal(fb_os_read_file(os, "/a.safetensors", 1 << 20, &data, &bytes, &err), FB_OK);
            assert_true(fb_hash64(data, bytes, 0) == old_hash || fb_hash64(data, bytes, 0) == new_hash);
            assert_true(os->list(os->ctx, "/", count_name, &names) == 0);
            assert_int_equal(names, 1); /* nothing aside is left */
            if (status == FB_OK) assert_true(hash == new_hash && fb_hash64(data, bytes, 0) == hash);
            else assert_int_equal(status, memory ? FB_E_NOMEM : FB_E_IO);
            fb_free(data);
            os_sim_free(sim);
            if (status == FB_OK && k > 20) break;
            assert_true(k < 200);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_write__the_reader_finds_what_was_written),
        cmocka_unit_test(test_safetensors_write__what_cannot_be_written_is_refused_and_leaves_nothing),
        cmocka_unit_test(test_safetensors_write__a_failure_keeps_the_older_file_or_has_the_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
