/*
 * What goes on around a checkpoint: another rank that taints between two calls of the one that saves, another run that goes on from
 * it, parts of one checkpoint by several ranks, and a trainer that changes its working folder.
 */
#include "support/world.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "firstbad/ckpt.h"
#include "registry/registry.h"

static fb_error err;

static void write_file_with(const char *path, uint32_t bits)
{
    static const char header[] = "{\"moment\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    const uint32_t data[4] = {0x3f800000u, 0x40000000u, bits, 0x3f000000u};
    uint64_t n = sizeof header - 1;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&n, 8, 1, file), 1);
    assert_int_equal(fwrite(header, n, 1, file), 1);
    assert_int_equal(fwrite(data, sizeof data, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void write_file(const char *path)
{
    write_file_with(path, 0x3f800000u);
}

/* ---- another rank ------------------------------------------------------------------------------------------------------------ */

/* Looked for and not found; then, before the one who looked does anything, the other rank leaves it and taints. */
static fb_run *about_to_taint;

static int64_t stat_then_taint(void *ctx, const char *path, fb_os_info *info)
{
    fb_run *other = about_to_taint;
    int64_t got = fb_os_posix()->stat(ctx, path, info);
    if (got == -ENOENT && other && strstr(path, "ungated-a")) {
        about_to_taint = NULL;
        fb_checkpoint_taint(other, 1);
    }
    return got;
}

static const char *open_two(world *w, fb_os *os, char path[160])
{
    *os = *fb_os_posix();
    os->stat = stat_then_taint;
    about_to_taint = NULL;
    world_init(w, 2);
    w->os = os;
    world_open(w);
    assert_int_equal(world_step(w, 1, NULL, NULL), FB_PROCEED);
    (void)snprintf(path, 160, "%s/step-1.safetensors", w->dir);
    write_file(path);
    about_to_taint = w->rank[1].run;
    return path;
}

static int32_t newest_state(const world *w)
{
    fb_registry_checkpoint found;
    char home[128];
    (void)snprintf(home, sizeof home, "%s/test", w->dir);
    return fb_registry_latest_committed(fb_os_posix(), home, FB_REGISTRY_VERIFY, &found, &err) == FB_OK ? FB_CKPT_COMMITTED
                                                                                                        : FB_CKPT_SUSPECT;
}

static void test_guard_checkpoint_around__taint_between_look_and_record_is_not_overtaken(void **state)
{
    world w;
    fb_os os;
    char room[160];
    const char *path = open_two(&w, &os, room);
    (void)state;
    assert_int_equal(fb_run_checkpoint_verify(w.rank[0].run, path, 1, &err), FB_OK);
    assert_null(about_to_taint);
    assert_int_equal(fb_run_checkpoint_wait(w.rank[0].run, -1, &err), FB_OK);
    assert_int_equal(newest_state(&w), FB_CKPT_SUSPECT);
    world_close(&w);
}

static void test_guard_checkpoint_around__taint_between_look_and_commit_is_not_overtaken(void **state)
{
    world w;
    fb_os os;
    char room[160];
    const char *path = open_two(&w, &os, room);
    int32_t judged = FB_CKPT_COMMITTED;
    (void)state;
    assert_int_equal(fb_run_checkpoint(w.rank[0].run, path, 1, &judged, &err), FB_OK);
    assert_null(about_to_taint);
    assert_int_equal(judged, FB_CKPT_SUSPECT);
    assert_int_equal(newest_state(&w), FB_CKPT_SUSPECT);
    world_close(&w);
}

/* ---- another run ------------------------------------------------------------------------------------------------------------- */

/* A run of one rank over the folders of this world, with a name of its own. It came from a checkpoint of step `parent`. */
static fb_run *start_again(const world *w, const char *name, int64_t parent)
{
    fb_run *run = NULL;
    fb_run_config config = FB_RUN_CONFIG_INIT;
    fb_step step = FB_STEP_INIT;
    config.dir = w->dir;
    config.run_id = name;
    config.threads = 1;
    if (fb_run_open(&run, &config, &err) != FB_OK) fail_msg("%s", err.message);
    step.step = parent + 1;
    step.checkpoint_parent = parent;
    step.known = FB_KNOWN_CHECKPOINT_PARENT;
    if (fb_step_begin(run, &step, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(fb_step_abandon(run, &err), FB_OK);
    return run;
}

static int32_t save_into(fb_run *run, const world *w, const char *folder, int64_t step)
{
    char path[192];
    int32_t judged = 0;
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    (void)snprintf(path, sizeof path, "%s/%s", w->dir, folder);
    (void)mkdir(path, 0777);
    (void)snprintf(path, sizeof path, "%s/%s/step-%lld.safetensors", w->dir, folder, (long long)step);
    write_file(path);
    if (fb_run_checkpoint(run, path, step, &judged, &err) != FB_OK) fail_msg("%s", err.message);
    if (fb_run_checkpoint_verify(run, path, step, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK);
    assert_int_equal(fb_run_checkpoint_poll(run, &result, &err), FB_OK);
    assert_int_equal(result.state, judged);
    return judged;
}

static void test_guard_checkpoint_around__another_run_inherits_the_doubt_of_what_it_came_from(void **state)
{
    world w;
    fb_run *run;
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    assert_int_equal(world_step(&w, 1, NULL, NULL), FB_PROCEED);
    assert_int_equal(save_into(w.rank[0].run, &w, "saves", 1), FB_CKPT_COMMITTED);
    fb_checkpoint_taint(w.rank[0].run, 2);
    assert_int_equal(save_into(w.rank[0].run, &w, "saves", 2), FB_CKPT_SUSPECT);

    run = start_again(&w, "from-the-suspect", 2);
    assert_int_equal(save_into(run, &w, "saves", 3), FB_CKPT_SUSPECT);
    fb_run_close(run);
    run = start_again(&w, "from-its-child", 3); /* and so on */
    assert_int_equal(save_into(run, &w, "saves", 4), FB_CKPT_SUSPECT);
    fb_run_close(run);
    run = start_again(&w, "from-the-committed", 1);
    assert_int_equal(save_into(run, &w, "saves", 5), FB_CKPT_COMMITTED);
    fb_run_close(run);
    run = start_again(&w, "pretrained", 700); /* nobody here knows it: its history begins there */
    assert_int_equal(save_into(run, &w, "saves", 701), FB_CKPT_COMMITTED);
    fb_run_close(run);
    run = start_again(&w, "elsewhere", 2); /* a folder of other checkpoints, whose numbers say nothing of these */
    assert_int_equal(save_into(run, &w, "other-saves", 3), FB_CKPT_COMMITTED);
    fb_run_close(run);
    world_close(&w);
}

/* ---- parts ------------------------------------------------------------------------------------------------------------------- */

/* Each rank saves a part of this step; that of rank 1 holds a NaN when `spoilt`. */
static void save_parts(const world *w, int64_t step, int spoilt)
{
    for (int rank = 0; rank < w->ranks; rank++) {
        fb_run *run = w->rank[rank].run;
        char path[192];
        (void)snprintf(path, sizeof path, "%s/step-%lld-of-%d.safetensors", w->dir, (long long)step, rank);
        if (fb_run_checkpoint_begin(run, path, step, &err) != FB_OK) fail_msg("%s", err.message);
        write_file_with(path, spoilt && rank == 1 ? 0x7fc00000u : 0x3f800000u);
        if (fb_run_checkpoint_verify(run, path, step, &err) != FB_OK) fail_msg("%s", err.message);
        assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK);
    }
}

static int64_t latest_step(const world *w)
{
    fb_registry_checkpoint found;
    if (fb_registry_latest_in(fb_os_posix(), w->dir, NULL, FB_REGISTRY_LOOK, 0, &found, &err) != FB_OK) return -1;
    return found.step;
}

static void test_guard_checkpoint_around__step_with_a_part_that_will_not_do_is_not_given(void **state)
{
    world w;
    char path[192];
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    for (int64_t step = 1; step <= 3; step++) {
        assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
        save_parts(&w, step, step == 3);
        assert_int_equal(latest_step(&w), step == 3 ? 2 : step);
    }
    (void)snprintf(path, sizeof path, "%s/step-2-of-1.safetensors", w.dir);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(latest_step(&w), 1);
    world_close(&w);
}

/* ---- the working folder ------------------------------------------------------------------------------------------------------ */

static void test_guard_checkpoint_around__working_folder_may_change(void **state)
{
    world w;
    fb_run *run = NULL;
    fb_run_config config = FB_RUN_CONFIG_INIT;
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    char back[1024], path[1200], home[1200];
    (void)state;
    assert_non_null(getcwd(back, sizeof back));
    world_init(&w, 1); /* its folder is made with it, and goes with it */
    assert_int_equal(chdir(w.dir), 0);
    config.dir = "runs";
    config.run_id = "moves";
    config.threads = 1;
    assert_int_equal(fb_run_open(&run, &config, &err), FB_OK);
    assert_string_equal(fb_run_folder(run), "runs/moves");
    write_file("a.safetensors");
    if (fb_run_checkpoint_begin(run, "b.safetensors", 1, &err) != FB_OK) fail_msg("%s", err.message);
    if (fb_run_checkpoint_verify(run, "a.safetensors", 1, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(mkdir("elsewhere", 0777), 0);
    assert_int_equal(chdir("elsewhere"), 0);
    assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK);
    assert_int_equal(fb_run_checkpoint_poll(run, &result, &err), FB_OK);
    assert_int_equal(result.state, FB_CKPT_COMMITTED);
    write_file("c.safetensors");
    if (fb_run_checkpoint_verify(run, "c.safetensors", 2, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(fb_run_checkpoint_wait(run, -1, &err), FB_OK);
    assert_int_equal(fb_run_checkpoint_poll(run, &result, &err), FB_OK);
    assert_int_equal(result.state, FB_CKPT_COMMITTED);
    assert_int_not_equal(access("runs", F_OK), 0); /* no second registry here */
    fb_run_close(run);
    (void)snprintf(home, sizeof home, "%s/runs/moves", w.dir);
    (void)snprintf(path, sizeof path, "%s/checkpoints.log", home);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(chdir(back), 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard_checkpoint_around__taint_between_look_and_record_is_not_overtaken),
        cmocka_unit_test(test_guard_checkpoint_around__taint_between_look_and_commit_is_not_overtaken),
        cmocka_unit_test(test_guard_checkpoint_around__another_run_inherits_the_doubt_of_what_it_came_from),
        cmocka_unit_test(test_guard_checkpoint_around__step_with_a_part_that_will_not_do_is_not_given),
        cmocka_unit_test(test_guard_checkpoint_around__working_folder_may_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
