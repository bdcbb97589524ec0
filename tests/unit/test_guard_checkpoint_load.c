/* firstbad/ckpt.h: a scan, the gate before a load, and the checkpoint to resume from, as who resumes meets them. */
#include "support/world.h"

#include <unistd.h>

#include "firstbad/ckpt.h"

static fb_error err;

enum { ONE = 0x3f800000, QUIET_NAN = 0x7fc00000 };
#define MINUS_INF 0xff800000u

/* A checkpoint of one tensor "moment" of four F32, the third of which has these bits. */
static void write_file(const char *path, uint32_t bits)
{
    static const char header[] = "{\"moment\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    uint32_t data[4] = {0x3f800000u, 0x40000000u, bits, 0x3f000000u};
    uint64_t n = sizeof header - 1;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&n, 8, 1, file), 1);
    assert_int_equal(fwrite(header, n, 1, file), 1);
    assert_int_equal(fwrite(data, sizeof data, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

/* A world whose runs lie in DIR/runs and whose checkpoints lie in DIR/saved. */
typedef struct place {
    world w;
    char runs[96], saved[96], path[160];
} place;

static void open_place(place *p)
{
    unsetenv("FIRSTBAD_DIR"); /* of a test that failed before */
    world_init(&p->w, 1);
    (void)snprintf(p->runs, sizeof p->runs, "%s/runs", p->w.dir);
    (void)snprintf(p->saved, sizeof p->saved, "%s/saved", p->w.dir);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), p->saved, &err), FB_OK);
    p->w.config.dir = p->runs;
    world_open(&p->w);
    assert_int_equal(world_step(&p->w, 1, NULL, NULL), FB_PROCEED);
    setenv("FIRSTBAD_DIR", p->runs, 1);
}

static void close_place(place *p)
{
    unsetenv("FIRSTBAD_DIR");
    world_close(&p->w);
}

static const char *file_in(place *p, const char *name)
{
    (void)snprintf(p->path, sizeof p->path, "%s/%s", p->saved, name);
    return p->path;
}

static void save(place *p, const char *name, int64_t step, uint32_t bits)
{
    fb_run *run = p->w.rank[0].run;
    if (fb_run_checkpoint_begin(run, file_in(p, name), step, &err) != FB_OK) fail_msg("%s", err.message);
    write_file(p->path, bits);
    if (fb_run_checkpoint_verify(run, p->path, step, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK);
}

static const char *latest(const place *p)
{
    static char path[4096];
    size_t bytes = sizeof path;
    if (fb_ckpt_latest(p->saved, path, &bytes, &err) != FB_OK) return "";
    assert_int_equal(bytes, strlen(path) + 1);
    return path;
}

static float third_of(const char *path)
{
    float data[4] = {0};
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, -16, SEEK_END), 0);
    assert_int_equal(fread(data, sizeof data, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return data[2];
}

static void test_guard_checkpoint_load__scan_says_what_is_where(void **state)
{
    place p;
    fb_ckpt_result result = FB_CKPT_RESULT_INIT;
    uint64_t digest;
    (void)state;
    open_place(&p);
    write_file(file_in(&p, "a.safetensors"), ONE);
    assert_int_equal(fb_ckpt_scan(p.path, 0, &result, &err), FB_OK);
    assert_int_equal(result.outcome, FB_CKPT_OUTCOME_CLEAN);
    assert_int_equal(result.tensors, 1);
    assert_int_equal(result.checked, 4);
    assert_true(result.first_index == FB_NO_INDEX);
    assert_string_equal(result.reason, "");
    digest = result.digest;
    assert_int_not_equal(digest, 0);
    assert_int_equal(fb_ckpt_scan(p.path, FB_CKPT_SCAN_NO_DIGEST, &result, &err), FB_OK);
    assert_int_equal(result.digest, 0);
    write_file(p.path, MINUS_INF);
    assert_int_equal(fb_ckpt_scan(p.path, FB_CKPT_SCAN_FIRST, &result, &err), FB_OK);
    assert_int_equal(result.outcome, FB_CKPT_OUTCOME_NON_FINITE);
    assert_int_equal(result.first_index, 2);
    assert_int_equal(result.first_kind, FB_KIND_NEG_INF);
    assert_int_equal(result.first_bits, MINUS_INF);
    assert_string_equal(result.first_tensor, "moment");
    assert_int_equal(truncate(p.path, 40), 0);
    assert_int_equal(fb_ckpt_scan(p.path, 0, &result, &err), FB_OK);
    assert_int_equal(result.outcome, FB_CKPT_OUTCOME_UNREADABLE);
    assert_string_not_equal(result.reason, "");
    assert_string_equal(result.first_tensor, ""); /* nothing is left of the scan before */
    close_place(&p);
}

static void test_guard_checkpoint_load__scan_refuses_what_it_cannot_answer(void **state)
{
    fb_ckpt_result result = FB_CKPT_RESULT_INIT;
    (void)state;
    assert_int_equal(fb_ckpt_scan("/nonexistent/file", 0, &result, &err), FB_E_NOTFOUND);
    assert_int_equal(result.outcome, FB_CKPT_OUTCOME_UNREADABLE);
    assert_int_equal(fb_ckpt_scan("x", 64, &result, &err), FB_E_USAGE);
    assert_int_equal(fb_ckpt_scan(NULL, 0, &result, &err), FB_E_USAGE);
    assert_int_equal(fb_ckpt_scan("x", 0, NULL, &err), FB_E_USAGE);
    result.size = 12;
    assert_int_equal(fb_ckpt_scan("x", 0, &result, &err), FB_E_USAGE);
}

static void test_guard_checkpoint_load__what_nobody_knows_is_read_before_it_is_loaded(void **state)
{
    place p;
    int32_t known = 0;
    (void)state;
    open_place(&p);
    write_file(file_in(&p, "stranger.safetensors"), ONE);
    assert_int_equal(fb_ckpt_may_load(p.path, NULL, FB_CKPT_CHECK_BYTES, &known, &err), FB_OK);
    assert_int_equal(known, FB_CKPT_SUSPECT);
    write_file(p.path, QUIET_NAN);
    assert_int_equal(fb_ckpt_may_load(p.path, NULL, FB_CKPT_CHECK_SIZE, NULL, &err), FB_E_WITHHELD);
    assert_non_null(strstr(err.message, "moment"));
    assert_int_equal(truncate(p.path, 40), 0);
    assert_int_equal(fb_ckpt_may_load(p.path, NULL, FB_CKPT_CHECK_SIZE, &known, &err), FB_E_WITHHELD);
    assert_int_equal(fb_ckpt_may_load(p.path, NULL, 7, &known, &err), FB_E_USAGE);
    assert_int_equal(fb_ckpt_may_load("", NULL, 0, &known, &err), FB_E_USAGE);
    close_place(&p);
}

static void test_guard_checkpoint_load__committed_may_be_loaded_and_quarantined_may_not(void **state)
{
    place p;
    int32_t known = 0;
    (void)state;
    open_place(&p);
    save(&p, "step-1.safetensors", 1, ONE);
    assert_int_equal(fb_ckpt_may_load(p.path, p.runs, FB_CKPT_CHECK_BYTES, &known, &err), FB_OK);
    assert_int_equal(known, FB_CKPT_COMMITTED);
    save(&p, "step-2.safetensors", 2, QUIET_NAN);
    assert_int_not_equal(fb_ckpt_may_load(p.path, p.runs, FB_CKPT_CHECK_BYTES, &known, &err), FB_OK);
    close_place(&p);
}

static void test_guard_checkpoint_load__latest_is_the_newest_committed_one(void **state)
{
    place p;
    char small[8];
    size_t bytes = sizeof small;
    (void)state;
    open_place(&p);
    assert_string_equal(latest(&p), "");
    assert_int_equal(err.code, FB_E_NOTFOUND);
    save(&p, "step-1.safetensors", 1, ONE);
    assert_non_null(strstr(latest(&p), "/saved/step-1.safetensors"));
    save(&p, "step-2.safetensors", 2, QUIET_NAN);
    assert_non_null(strstr(latest(&p), "/saved/step-1.safetensors"));
    assert_int_equal(fb_ckpt_latest(p.saved, small, &bytes, &err), FB_E_LIMIT);
    assert_int_equal(bytes, strlen(latest(&p)) + 1);
    assert_int_equal(fb_ckpt_latest(NULL, small, &bytes, &err), FB_E_USAGE);
    close_place(&p);
}

static void test_guard_checkpoint_load__rotation_cannot_lose_the_last_committed_one(void **state)
{
    place p;
    const char *path;
    (void)state;
    open_place(&p);
    save(&p, "step-1.safetensors", 1, 0x41200000u);
    save(&p, "step-2.safetensors", 2, QUIET_NAN);
    assert_int_equal(unlink(file_in(&p, "step-1.safetensors")), 0);
    path = latest(&p);
    assert_non_null(strstr(path, "/.firstbad/"));
    assert_true(third_of(path) > 9.0f && third_of(path) < 11.0f);
    close_place(&p);
}

/* A trainer that saves over one name, and dies in the middle of it. */
static void test_guard_checkpoint_load__save_over_the_same_name_that_is_torn_leaves_the_older_one(void **state)
{
    place p;
    const char *path;
    (void)state;
    open_place(&p);
    save(&p, "ckpt.safetensors", 1, 0x41200000u);
    assert_int_equal(fb_run_checkpoint_begin(p.w.rank[0].run, p.path, 2, &err), FB_OK);
    write_file(p.path, ONE);
    assert_int_equal(truncate(p.path, 70), 0);
    path = latest(&p);
    assert_string_not_equal(path, p.path);
    assert_true(third_of(path) > 9.0f && third_of(path) < 11.0f);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_checkpoint_load__scan_says_what_is_where),
        cmocka_unit_test(test_guard_checkpoint_load__scan_refuses_what_it_cannot_answer),
        cmocka_unit_test(test_guard_checkpoint_load__what_nobody_knows_is_read_before_it_is_loaded),
        cmocka_unit_test(test_guard_checkpoint_load__committed_may_be_loaded_and_quarantined_may_not),
        cmocka_unit_test(test_guard_checkpoint_load__latest_is_the_newest_committed_one),
        cmocka_unit_test(test_guard_checkpoint_load__rotation_cannot_lose_the_last_committed_one),
        cmocka_unit_test(test_guard_checkpoint_load__save_over_the_same_name_that_is_torn_leaves_the_older_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
