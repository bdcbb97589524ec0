/*
 * What keeps the last committed checkpoint alive and a quarantined one out of the way, on the real system: rotation, trainers that
 * save over one name, folders, pointer files, state files, release.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "registry/registry.h"

static char top[] = "/tmp/firstbad-keep-XXXXXX";
static char base[256], run[512], out[512]; /* a run's folder, and the folder of its checkpoints: new for each test */
static int runs;

static int new_run(void **ignored)
{
    (void)ignored;
    (void)snprintf(run, sizeof run, "%s/runs%d/r%d", base, runs, runs);
    (void)snprintf(out, sizeof out, "%s/out%d", base, runs);
    runs++;
    if (mkdir(out, 0700) != 0) return -1;
    return fb_os_mkdirs(fb_os_posix(), run, NULL);
}

/* In turn, so that some may stand in one expression. */
static const char *in_out(const char *name)
{
    static char paths[8][1024];
    static int turn;
    char *path = paths[turn++ % 8];
    (void)snprintf(path, 1024, "%s/%s", out, name);
    return path;
}

static int shell(const char *format, const char *a)
{
    char command[2400];
    (void)snprintf(command, sizeof command, format, a, a);
    return system(command);
}

/* As a trainer that saves over a name: the same inode, cut to nothing and written again. */
static const char *save_at(const char *path, float value, int bad)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    static const uint32_t nan = 0x7fc00000;
    float data[4] = {value, value, value, value};
    uint64_t n = sizeof header - 1;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (bad) memcpy(&data[3], &nan, sizeof nan);
    assert_int_equal(fwrite(&n, sizeof n, 1, file), 1);
    assert_int_equal(fwrite(header, sizeof header - 1, 1, file), 1);
    assert_int_equal(fwrite(data, sizeof data, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const char *save(const char *name, float value)
{
    return save_at(in_out(name), value, 0);
}

static const char *save_folder(const char *name, float value, int bad)
{
    char path[1024];
    (void)mkdir(in_out(name), 0700);
    (void)snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", in_out(name));
    (void)save_at(path, value, 0);
    (void)snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", in_out(name));
    (void)save_at(path, value, bad);
    return in_out(name);
}

static float value_of(const char *path)
{
    float value = 0;
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    assert_int_equal(fseek(file, -16, SEEK_END), 0);
    assert_int_equal(fread(&value, sizeof value, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return value;
}

static int32_t commit_in(const char *home, const char *path, int64_t step, int32_t attempt, int gated)
{
    fb_error err;
    int32_t state = 0;
    if (fb_registry_commit(fb_os_posix(), home, path, step, attempt, 0, gated, &state, &err) != FB_OK) fail_msg("%s", err.message);
    return state;
}

static int32_t commit(const char *path, int64_t step)
{
    return commit_in(run, path, step, 1, 1);
}

static void begin(const char *path, int64_t step)
{
    fb_error err;
    if (fb_registry_begin(fb_os_posix(), run, path, step, 1, 0, &err) != FB_OK) fail_msg("%s", err.message);
}

static int32_t verify(const char *path)
{
    fb_error err;
    int32_t state = 0;
    if (fb_registry_verify(fb_os_posix(), run, path, NULL, NULL, NULL, &state, &err) != FB_OK) fail_msg("%s", err.message);
    return state;
}

static fb_registry_checkpoint latest(int restore)
{
    fb_registry_checkpoint found;
    fb_error err;
    if (fb_registry_latest_in(fb_os_posix(), out, NULL, FB_REGISTRY_VERIFY, restore, &found, &err) != FB_OK)
        fail_msg("%s", err.message);
    return found;
}

static void settle(void)
{
    fb_error err;
    if (fb_registry_settle(fb_os_posix(), run, NULL, &err) != FB_OK) fail_msg("%s", err.message);
}

/* The newest record of a path; state 0 if there is none. */
typedef struct newest {
    const char *path;
    fb_rec_ckpt rec;
    char pin_path[1024], aside[1024], note[1024];
} newest;

static fb_status take(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    newest *n = ctx;
    (void)sequence;
    (void)time_ns;
    (void)err;
    if (rec->path.bytes != strlen(n->path) || memcmp(rec->path.data, n->path, rec->path.bytes) != 0) return FB_OK;
    n->rec = *rec;
    (void)snprintf(n->pin_path, sizeof n->pin_path, "%.*s", (int)rec->pin_path.bytes, rec->pin_path.data);
    (void)snprintf(n->aside, sizeof n->aside, "%.*s", (int)rec->aside.bytes, rec->aside.data);
    (void)snprintf(n->note, sizeof n->note, "%.*s", (int)rec->note.bytes, rec->note.data);
    return FB_OK;
}

static newest record_of(const char *path)
{
    newest n;
    fb_error err;
    memset(&n, 0, sizeof n);
    n.path = path;
    if (fb_registry_each(fb_os_posix(), run, take, &n, &err) != FB_OK) fail_msg("%s", err.message);
    return n;
}

static int exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void expect_text(const char *path, const char *text)
{
    char *data;
    size_t bytes;
    fb_error err;
    if (fb_os_read_file(fb_os_posix(), path, 10000, &data, &bytes, &err) != FB_OK) fail_msg("%s", err.message);
    assert_string_equal(data, text);
    fb_free(data);
}

static void put_text(const char *name, const char *text)
{
    FILE *file = fopen(in_out(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* ---- pins ------------------------------------------------------------------------------------------------------------------- */

/* P8: fails in a build that makes no pins. */
static void test_registry_keep__rotation_cannot_delete_the_last_committed_one(void **ignored)
{
    fb_registry_checkpoint found;
    (void)ignored;
    assert_int_equal(commit(save("step-000100", 1.0f), 100), FB_CKPT_COMMITTED);
    for (int64_t step = 200; step <= 400; step += 100) { /* finite, and nobody vouches for them */
        char name[32];
        (void)snprintf(name, sizeof name, "step-%06lld", (long long)step);
        assert_int_equal(commit_in(run, save(name, 2.0f), step, 1, 0), FB_CKPT_SUSPECT);
    }
    assert_int_equal(shell("rm -rf '%s/step-000100' '%s/step-000200'", out), 0); /* the trainer keeps two */
    found = latest(0);
    assert_int_equal(found.step, 100);
    assert_non_null(strstr(found.path, "/.firstbad/pins/"));
    assert_true(value_of(found.path) == 1.0f);
    found = latest(1);
    assert_string_equal(found.path, in_out("step-000100"));
    assert_true(value_of(found.path) == 1.0f);
    assert_int_equal(record_of(found.path).rec.pin, FB_PIN_LINK);
    found = latest(0);
    assert_string_equal(found.path, in_out("step-000100"));
}

static void test_registry_keep__a_name_with_its_step_is_pinned_by_a_link(void **ignored)
{
    struct stat a, b;
    newest n;
    (void)ignored;
    assert_int_equal(commit(save("model_00400.bin", 1.0f), 400), FB_CKPT_COMMITTED);
    n = record_of(in_out("model_00400.bin"));
    assert_int_equal(n.rec.pin, FB_PIN_LINK);
    assert_int_equal(stat(n.path, &a), 0);
    assert_int_equal(stat(n.pin_path, &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
}

static void test_registry_keep__a_name_that_is_saved_over_is_pinned_by_other_bytes(void **ignored)
{
    fb_registry_checkpoint found;
    newest n;
    (void)ignored;
    assert_int_equal(commit(save("ckpt.pt", 1.0f), 100), FB_CKPT_COMMITTED);
    n = record_of(in_out("ckpt.pt"));
    assert_true(n.rec.pin == FB_PIN_COPY || n.rec.pin == FB_PIN_REFLINK);
    assert_int_equal(truncate(in_out("ckpt.pt"), 30), 0); /* the next save is cut short */
    found = latest(0);
    assert_int_equal(found.step, 100);
    assert_true(value_of(found.path) == 1.0f);
    found = latest(1); /* back under its name; the torn one is kept aside */
    assert_string_equal(found.path, in_out("ckpt.pt"));
    assert_true(value_of(in_out("ckpt.pt")) == 1.0f);
    assert_true(exists(in_out(".firstbad/quarantine/ckpt.pt")));
    assert_int_equal(commit(save("ckpt.pt", 2.0f), 200), FB_CKPT_COMMITTED);
    found = latest(0);
    assert_int_equal(found.step, 200);
}

static void test_registry_keep__a_step_that_is_in_the_name_by_chance_makes_no_link_twice(void **ignored)
{
    (void)ignored;
    assert_int_equal(commit(save("gpt2.pt", 1.0f), 1), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save("gpt2.pt", 2.0f), 2), FB_CKPT_COMMITTED);
    assert_int_not_equal(record_of(in_out("gpt2.pt")).rec.pin, FB_PIN_LINK);
}

static void test_registry_keep__begin_moves_the_committed_one_before_it_is_written_over(void **ignored)
{
    fb_registry_checkpoint found;
    struct stat before, after;
    (void)ignored;
    begin(in_out("ckpt.pt"), 100); /* nothing is there yet */
    assert_int_equal(commit(save("ckpt.pt", 1.0f), 100), FB_CKPT_COMMITTED);
    assert_int_equal(record_of(in_out("ckpt.pt")).rec.pin, FB_PIN_LINK); /* announced: no copy is needed */
    assert_int_equal(stat(in_out("ckpt.pt"), &before), 0);
    begin(in_out("ckpt.pt"), 200);
    assert_false(exists(in_out("ckpt.pt")));
    found = latest(0);
    assert_int_equal(found.step, 100);
    assert_int_equal(stat(found.path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    put_text("ckpt.pt", "half a checkp"); /* and then the trainer is killed */
    found = latest(0);
    assert_int_equal(found.step, 100);
    begin(in_out("ckpt.pt"), 200);
    assert_int_equal(commit(save("ckpt.pt", 2.0f), 200), FB_CKPT_COMMITTED);
    found = latest(0);
    assert_int_equal(found.step, 200);
    assert_string_equal(found.path, in_out("ckpt.pt"));
    assert_int_equal(shell("test $(find '%s/.firstbad/pins' -name ckpt.pt | wc -l) = 1", out), 0); /* the older pins are gone */
}

static void test_registry_keep__only_the_newest_keeps_its_pin(void **ignored)
{
    (void)ignored;
    for (int64_t step = 1; step <= 5; step++) {
        char name[32];
        (void)snprintf(name, sizeof name, "step-%lld", (long long)step);
        assert_int_equal(commit(save_folder(name, (float)step, 0), step), FB_CKPT_COMMITTED);
    }
    assert_int_equal(shell("test \"$(ls -d '%s'/.firstbad/pins/*/* | grep -c .)\" = 1", out), 0);
    assert_int_equal(shell("ls -d '%s'/.firstbad/pins/*/* | grep -q '/step-5$'", out), 0);
}

static void test_registry_keep__parts_of_one_step_keep_their_pins(void **ignored)
{
    (void)ignored;
    assert_int_equal(commit(save("rank0-step7.pt", 1.0f), 7), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save("rank1-step7.pt", 2.0f), 7), FB_CKPT_COMMITTED);
    assert_int_equal(shell("test \"$(ls -d '%s'/.firstbad/pins/*/* | grep -c .)\" = 2", out), 0);
}

static int32_t commit_part(const char *name, int64_t step, int32_t rank, int bad)
{
    fb_error err;
    int32_t state = 0;
    if (fb_registry_commit(fb_os_posix(), run, save_at(in_out(name), (float)step, bad), step, 1, rank, 1, &state, &err) != FB_OK)
        fail_msg("%s", err.message);
    return state;
}

/* The pins of step 2 are all that is left of it; step 3 has one part that will do and one that will not. */
static void test_registry_keep__a_step_without_all_its_parts_takes_no_pin_away(void **ignored)
{
    (void)ignored;
    assert_int_equal(commit_part("step-2-of-0", 2, 0, 0), FB_CKPT_COMMITTED);
    assert_int_equal(commit_part("step-2-of-1", 2, 1, 0), FB_CKPT_COMMITTED);
    assert_int_equal(commit_part("step-3-of-0", 3, 0, 0), FB_CKPT_COMMITTED);
    assert_int_equal(commit_part("step-3-of-1", 3, 1, 1), FB_CKPT_QUARANTINED);
    assert_int_equal(remove(in_out("step-2-of-0")), 0);
    assert_int_equal(remove(in_out("step-2-of-1")), 0);
    assert_int_equal(latest(0).step, 2);
    assert_int_equal(commit_part("step-4-of-0", 4, 0, 0), FB_CKPT_COMMITTED);
    assert_int_equal(commit_part("step-4-of-1", 4, 1, 0), FB_CKPT_COMMITTED);
    assert_int_equal(latest(0).step, 4);
    assert_int_equal(remove(in_out("step-4-of-0")), 0);
    assert_int_equal(remove(in_out("step-4-of-1")), 0);
    assert_int_equal(latest(0).step, 4); /* both parts have a pin */
}

static void test_registry_keep__doubting_an_old_run_does_not_bring_it_back(void **ignored)
{
    char older[600];
    fb_error err;
    (void)ignored;
    (void)snprintf(older, sizeof older, "%s-older", run);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), older, NULL), FB_OK);
    assert_int_equal(commit_in(older, save("step-90", 1.0f), 90, 1, 1), FB_CKPT_COMMITTED);
    assert_int_equal(commit_in(older, save("step-95", 1.0f), 95, 1, 1), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save("step-10", 2.0f), 10), FB_CKPT_COMMITTED);
    assert_int_equal(latest(0).step, 10);
    if (fb_registry_quarantine(fb_os_posix(), older, in_out("step-95"), "why", &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(latest(0).step, 10);
}

static void test_registry_keep__runs_that_save_into_one_folder_leave_each_other_alone(void **ignored)
{
    char other[600];
    fb_error err;
    newest first;
    (void)ignored;
    (void)snprintf(other, sizeof other, "%s-other", run);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), other, &err), FB_OK);
    assert_int_equal(commit(save("a-1", 1.0f), 1), FB_CKPT_COMMITTED);
    first = record_of(in_out("a-1"));
    assert_int_equal(commit_in(other, save("b-2", 2.0f), 2, 1, 1), FB_CKPT_COMMITTED);
    assert_true(exists(first.pin_path));
    assert_int_equal(latest(0).step, 2); /* of the run that wrote last */
    assert_int_equal(commit(save("a-3", 3.0f), 3), FB_CKPT_COMMITTED);
    assert_int_equal(latest(0).step, 3);
    assert_int_equal(shell("test \"$(ls -d '%s'/.firstbad/pins/*/* | grep -c .)\" = 2", out), 0);
    assert_int_equal(shell("test $(grep -c . '%s/.firstbad/homes') = 2", out), 0);
}

static void test_registry_keep__a_folder_is_pinned_with_all_that_is_in_it(void **ignored)
{
    fb_registry_checkpoint found;
    char inside[1100];
    (void)ignored;
    (void)save_folder("checkpoint-40", 4.0f, 0);
    put_text("checkpoint-40/trainer.json", "{}");
    assert_int_equal(commit(in_out("checkpoint-40"), 40), FB_CKPT_COMMITTED);
    assert_int_equal(shell("rm -rf '%s/checkpoint-40'", out), 0);
    found = latest(0);
    (void)snprintf(inside, sizeof inside, "%s/trainer.json", found.path);
    expect_text(inside, "{}");
    found = latest(1);
    assert_string_equal(found.path, in_out("checkpoint-40"));
    assert_true(value_of(in_out("checkpoint-40/model-00002-of-00002.safetensors")) == 4.0f);
    assert_int_equal(verify(in_out("checkpoint-40")), FB_CKPT_COMMITTED);
}

static void test_registry_keep__a_folder_that_cannot_be_written_gets_a_verdict_and_no_pin(void **ignored)
{
    newest n;
    (void)ignored;
    if (geteuid() == 0) { /* root writes everywhere: a file in the place of the folder stands in for the lack of rights */
        put_text(".firstbad", "in the way");
    } else {
        (void)save("step-1", 1.0f);
        assert_int_equal(chmod(out, 0500), 0);
    }
    if (geteuid() == 0) (void)save("step-1", 1.0f);
    assert_int_equal(commit(in_out("step-1"), 1), FB_CKPT_COMMITTED);
    assert_int_equal(chmod(out, 0700), 0);
    n = record_of(in_out("step-1"));
    assert_int_equal(n.rec.pin, FB_PIN_IMPOSSIBLE);
    assert_non_null(strstr(n.note, "no pin: "));
    assert_int_equal(n.rec.state, FB_CKPT_COMMITTED);
}

static void test_registry_keep__a_taint_pins_the_one_before_again(void **ignored)
{
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save("step-2", 2.0f), 2), FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 2, NULL, &err), FB_OK);
    assert_int_equal(shell("rm '%s'/step-*", out), 0);
    assert_int_equal(latest(0).step, 1);
}

/* ---- quarantine and release ------------------------------------------------------------------------------------------------- */

static void test_registry_keep__what_is_quarantined_is_moved_aside_and_back(void **ignored)
{
    fb_error err;
    newest n;
    (void)ignored;
    assert_int_equal(commit(save_folder("step-1", 1.0f, 0), 1), FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "", &err), FB_E_USAGE);
    if (fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "loss looked wrong", &err) != FB_OK)
        fail_msg("%s", err.message);
    assert_false(exists(in_out("step-1")));
    assert_true(exists(in_out(".firstbad/quarantine/step-1/model-00001-of-00002.safetensors")));
    n = record_of(in_out("step-1"));
    assert_int_equal(n.rec.state, FB_CKPT_QUARANTINED);
    assert_string_equal(n.note, "loss looked wrong");
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "again", &err), FB_OK);
    assert_string_equal(record_of(in_out("step-1")).note, "loss looked wrong");
    if (fb_registry_release(fb_os_posix(), run, in_out("step-1"), "looked again", NULL, &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(exists(in_out("step-1/model-00002-of-00002.safetensors")));
    n = record_of(in_out("step-1"));
    assert_int_equal(n.rec.state, FB_CKPT_COMMITTED);
    assert_int_equal(n.rec.reason, FB_CKPT_REASON_OPERATOR);
    assert_string_equal(n.note, "looked again");
    assert_int_equal(latest(0).step, 1);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("nothing"), "why", &err), FB_E_NOTFOUND);
}

/* An operator's word is about what it holds: a pin of the same bytes, which is made when a checkpoint comes back from one, is not
   given in its place. */
static void test_registry_keep__a_pin_is_no_way_around_an_operator(void **ignored)
{
    fb_error err;
    fb_registry_checkpoint found;
    int32_t state;
    (void)ignored;
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save("step-2", 2.0f), 2), FB_CKPT_COMMITTED);
    assert_int_equal(remove(in_out("step-2")), 0);
    found = latest(1); /* from its pin, back to its name */
    assert_int_equal(found.step, 2);
    assert_true(exists(in_out("step-2")));
    if (fb_registry_quarantine(fb_os_posix(), run, in_out("step-2"), "loss looked wrong", &err) != FB_OK)
        fail_msg("%s", err.message);
    found = latest(0);
    assert_int_equal(found.step, 1);
    assert_string_equal(found.path, in_out("step-1"));
    assert_int_equal(
        fb_registry_may_load(fb_os_posix(), in_out(".firstbad/quarantine/step-2"), NULL, FB_REGISTRY_LOOK, &state, NULL, &err),
        FB_E_WITHHELD);
    if (fb_registry_release(fb_os_posix(), run, in_out("step-2"), "was right", NULL, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(latest(0).step, 2);
}

static void test_registry_keep__bad_numbers_are_not_released(void **ignored)
{
    fb_ckpt_summary summary;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save_at(in_out("step-1"), 1.0f, 1), 1), FB_CKPT_QUARANTINED);
    assert_false(exists(in_out("step-1")));
    assert_int_equal(fb_registry_release(fb_os_posix(), run, in_out("step-1"), "please", &summary, &err), FB_E_WITHHELD);
    assert_non_null(strstr(err.message, "1 not finite, first in w"));
    assert_int_equal(summary.bad, 1);
    assert_true(exists(in_out(".firstbad/quarantine/step-1")));
    assert_int_equal(fb_registry_release(fb_os_posix(), run, in_out("step-2"), "please", &summary, &err), FB_E_NOTFOUND);
}

static void test_registry_keep__an_operator_releases_what_lineage_condemned(void **ignored)
{
    fb_error err;
    (void)ignored;
    assert_int_equal(commit_in(run, save("step-1", 1.0f), 1, 1, 0), FB_CKPT_SUSPECT);
    assert_int_equal(verify(in_out("step-1")), FB_CKPT_SUSPECT); /* a finite scan does not */
    if (fb_registry_release(fb_os_posix(), run, in_out("step-1"), "compared with the twin run", NULL, &err) != FB_OK)
        fail_msg("%s", err.message);
    assert_int_equal(latest(0).step, 1);
}

static void test_registry_keep__nothing_is_replaced_by_moving_aside_or_back(void **ignored)
{
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save_at(in_out("step-1"), 1.0f, 1), 1), FB_CKPT_QUARANTINED);
    assert_int_equal(commit(save_at(in_out("step-1"), 2.0f, 1), 1), FB_CKPT_QUARANTINED);
    assert_true(value_of(in_out(".firstbad/quarantine/step-1")) == 1.0f);
    assert_true(value_of(in_out(".firstbad/quarantine/step-1.2")) == 2.0f);
    assert_int_equal(commit(save("step-1", 3.0f), 1), FB_CKPT_COMMITTED);
    /* By the place that it was moved to, as its own name is another's now. */
    assert_int_equal(fb_registry_release(fb_os_posix(), run, in_out(".firstbad/quarantine/step-1.2"), "why not", NULL, &err),
                     FB_E_EXISTS);
    assert_non_null(strstr(err.message, "was given to another one meanwhile"));
    assert_true(value_of(in_out("step-1")) == 3.0f);
    settle();
    assert_true(value_of(in_out("step-1")) == 3.0f);
}

static void test_registry_keep__a_newer_save_under_a_quarantined_name_stays(void **ignored)
{
    fb_error err;
    newest n;
    (void)ignored;
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "why", &err), FB_OK);
    (void)save("step-1", 2.0f); /* by a trainer that tells nobody */
    settle();
    assert_true(value_of(in_out("step-1")) == 2.0f);
    assert_int_equal(shell("rm -r '%s/.firstbad/quarantine'", out), 0);
    settle();
    assert_true(value_of(in_out("step-1")) == 2.0f);
    assert_int_equal(verify(in_out("step-1")), FB_CKPT_SUSPECT);
    n = record_of(in_out("step-1"));
    assert_int_equal(n.rec.reason, FB_CKPT_REASON_NO_RUN);
}

static void test_registry_keep__an_unfinished_move_is_finished_by_the_next_writer(void **ignored)
{
    fb_error err;
    newest n;
    char aside[1024];
    (void)ignored;
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "why", &err), FB_OK);
    n = record_of(in_out("step-1"));
    (void)snprintf(aside, sizeof aside, "%s", n.aside);
    assert_int_equal(rename(aside, in_out("step-1")), 0); /* as if the crash had come before the move */
    begin(in_out("step-2"), 2);
    assert_false(exists(in_out("step-1")));
    assert_true(exists(aside));
}

/* ---- pointers --------------------------------------------------------------------------------------------------------------- */

static void test_registry_keep__pointers_that_name_it_are_set_back(void **ignored)
{
    fb_error err;
    char text[64] = "";
    newest n;
    (void)ignored;
    assert_int_equal(commit(save_folder("global_step100", 1.0f, 0), 100), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save_folder("iter_0000200", 2.0f, 0), 200), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save_folder("global_step300", 3.0f, 0), 300), FB_CKPT_COMMITTED);
    put_text("latest", "global_step300");
    put_text("latest_checkpointed_iteration.txt", "300\n");
    if (fb_registry_quarantine(fb_os_posix(), run, in_out("global_step300"), "why", &err) != FB_OK) fail_msg("%s", err.message);
    expect_text(in_out("latest"), "iter_0000200");                     /* the newest beside it */
    expect_text(in_out("latest_checkpointed_iteration.txt"), "300\n"); /* that names iter_0000300, which is not it */
    n = record_of(in_out("global_step300"));
    assert_string_equal(n.note, "why; latest is set to iter_0000200");
    put_text("latest_checkpointed_iteration.txt", "200\n");
    assert_int_equal(unlink(in_out("latest")), 0);
    assert_int_equal(symlink("iter_0000200", in_out("latest")), 0);
    if (fb_registry_quarantine(fb_os_posix(), run, in_out("iter_0000200"), "why", &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(readlink(in_out("latest"), text, sizeof text - 1) > 0);
    assert_string_equal(text, "global_step100");
    expect_text(in_out("latest_checkpointed_iteration.txt"), "200\n"); /* no committed one has such a name: left, and told */
    n = record_of(in_out("iter_0000200"));
    assert_non_null(strstr(n.note, "latest_checkpointed_iteration.txt still names it"));
}

static void test_registry_keep__a_decimal_pointer_gets_the_iteration_before(void **ignored)
{
    (void)ignored;
    assert_int_equal(commit(save_folder("iter_0000100", 1.0f, 0), 100), FB_CKPT_COMMITTED);
    (void)save_folder("iter_0000200", 2.0f, 1);
    put_text("latest_checkpointed_iteration.txt", "200");
    put_text("latest", "something else");
    assert_int_equal(commit(in_out("iter_0000200"), 200), FB_CKPT_QUARANTINED);
    expect_text(in_out("latest_checkpointed_iteration.txt"), "100");
    expect_text(in_out("latest"), "something else");
    assert_false(exists(in_out("iter_0000200")));
}

static void test_registry_keep__settle_sets_a_pointer_that_a_crash_left(void **ignored)
{
    fb_error err;
    uint64_t done = 0;
    (void)ignored;
    assert_int_equal(commit(save_folder("global_step100", 1.0f, 0), 100), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save_folder("global_step200", 2.0f, 1), 200), FB_CKPT_QUARANTINED);
    put_text("latest", "global_step200\n");
    assert_int_equal(fb_registry_settle(fb_os_posix(), run, &done, &err), FB_OK);
    expect_text(in_out("latest"), "global_step100\n");
    assert_int_equal(done, 1);
    assert_int_equal(fb_registry_settle(fb_os_posix(), run, &done, &err), FB_OK);
    assert_int_equal(done, 0); /* safe to repeat */
}

/* ---- verify, doubt ---------------------------------------------------------------------------------------------------------- */

static void test_registry_keep__after_a_case_reading_again_commits_again(void **ignored)
{
    uint64_t changed = 0;
    fb_error err;
    (void)ignored;
    for (int64_t step = 1; step <= 3; step++) {
        char name[32];
        (void)snprintf(name, sizeof name, "step-%lld", (long long)step);
        assert_int_equal(commit(save(name, (float)step), step), FB_CKPT_COMMITTED);
    }
    assert_int_equal(fb_registry_doubt(fb_os_posix(), run, 1, 1, &changed, &err), FB_OK);
    assert_int_equal(changed, 2);
    assert_int_equal(latest(0).step, 1);
    assert_int_equal(record_of(in_out("step-3")).rec.reason, FB_CKPT_REASON_CASE);
    (void)save_at(in_out("step-2"), 7.0f, 0);
    assert_int_equal(verify(in_out("step-2")), FB_CKPT_SUSPECT);
    assert_int_equal(record_of(in_out("step-2")).rec.reason, FB_CKPT_REASON_CHANGED);
    assert_int_equal(verify(in_out("step-3")), FB_CKPT_COMMITTED);
    assert_int_equal(latest(0).step, 3);
}

static void test_registry_keep__verify_finds_changed_bytes_and_keeps_the_pin_of_the_right_ones(void **ignored)
{
    (void)ignored;
    assert_int_equal(commit(save("ckpt.pt", 1.0f), 1), FB_CKPT_COMMITTED);
    assert_int_equal(verify(in_out("ckpt.pt")), FB_CKPT_COMMITTED);
    (void)save_at(in_out("ckpt.pt"), 5.0f, 1);
    assert_int_equal(verify(in_out("ckpt.pt")), FB_CKPT_QUARANTINED);
    assert_false(exists(in_out("ckpt.pt")));
    assert_int_equal(latest(0).step, 1);
    assert_true(value_of(latest(1).path) == 1.0f);
    assert_string_equal(latest(0).path, in_out("ckpt.pt"));
}

static void test_registry_keep__what_was_torn_once_can_be_committed_when_it_is_whole(void **ignored)
{
    (void)ignored;
    (void)save("step-1", 1.0f);
    assert_int_equal(truncate(in_out("step-1"), 40), 0);
    assert_int_equal(commit(in_out("step-1"), 1), FB_CKPT_SUSPECT);
    assert_int_equal(verify(in_out("step-1")), FB_CKPT_SUSPECT);
    (void)save("step-1", 1.0f);
    assert_int_equal(verify(in_out("step-1")), FB_CKPT_COMMITTED);
    assert_int_equal(record_of(in_out("step-1")).rec.pin, FB_PIN_LINK);
}

static void test_registry_keep__what_no_run_vouches_for_stays_suspect(void **ignored)
{
    char home[600];
    int32_t state = 0;
    fb_error err;
    fb_registry_checkpoint found;
    (void)ignored;
    (void)snprintf(home, sizeof home, "%s/.firstbad", out);
    (void)save("model.safetensors", 1.0f);
    assert_int_equal(fb_registry_verify(fb_os_posix(), home, in_out("model.safetensors"), NULL, NULL, NULL, &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_int_equal(fb_registry_latest_in(fb_os_posix(), out, NULL, 0, 0, &found, &err), FB_E_NOTFOUND);
    assert_non_null(strstr(err.message, "1 are recorded, none is committed"));
    (void)save_at(in_out("bad.safetensors"), 1.0f, 1);
    assert_int_equal(fb_registry_verify(fb_os_posix(), home, in_out("bad.safetensors"), NULL, NULL, NULL, &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_QUARANTINED);
    assert_false(exists(in_out("bad.safetensors")));
    assert_int_equal(fb_registry_verify(fb_os_posix(), home, in_out("nothing"), NULL, NULL, NULL, &state, &err), FB_E_NOTFOUND);
}

/* ---- the gate of loading ---------------------------------------------------------------------------------------------------- */

static fb_status may_load(const char *path, int32_t *state, fb_error *err)
{
    fb_ckpt_summary summary;
    return fb_registry_may_load(fb_os_posix(), path, NULL, FB_REGISTRY_VERIFY, state, &summary, err);
}

static void test_registry_keep__the_gate_lets_through_what_is_committed_or_finite(void **ignored)
{
    int32_t state = 0;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save_folder("step-1", 1.0f, 0), 1), FB_CKPT_COMMITTED);
    assert_int_equal(may_load(in_out("step-1"), &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_COMMITTED);
    assert_int_equal(may_load(in_out("step-1/model-00001-of-00002.safetensors"), &state, &err), FB_OK); /* a file of it */
    assert_int_equal(state, FB_CKPT_COMMITTED);
    if (may_load(save("unknown", 1.0f), &state, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_non_null(strstr(err.message, "no registry knows it"));
    assert_int_equal(err.code, FB_OK);
    assert_int_equal(commit_in(run, save("step-2", 2.0f), 2, 1, 0), FB_CKPT_SUSPECT);
    assert_int_equal(may_load(in_out("step-2"), &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_non_null(strstr(err.message, "not provably gated"));
    assert_int_equal(may_load(in_out("nothing"), &state, &err), FB_E_NOTFOUND);
}

static void test_registry_keep__the_gate_refuses_bad_torn_and_quarantined_ones(void **ignored)
{
    int32_t state = 0;
    fb_error err;
    newest n;
    (void)ignored;
    assert_int_equal(may_load(save_at(in_out("bad"), 1.0f, 1), &state, &err), FB_E_WITHHELD);
    assert_non_null(strstr(err.message, "not finite"));
    (void)save("torn", 1.0f);
    assert_int_equal(truncate(in_out("torn"), 40), 0);
    assert_int_equal(may_load(in_out("torn"), &state, &err), FB_E_WITHHELD);
    assert_int_equal(commit(save_folder("step-1", 1.0f, 0), 1), FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "spikes", &err), FB_OK);
    n = record_of(in_out("step-1"));
    assert_int_equal(may_load(n.aside, &state, &err), FB_E_WITHHELD);
    assert_int_equal(state, FB_CKPT_QUARANTINED);
    assert_non_null(strstr(err.message, "spikes"));
    /* The same bytes under the old name are the same checkpoint; others are not. */
    assert_int_equal(shell("cp -r '%s/.firstbad/quarantine/step-1' '%s/step-1'", out), 0);
    assert_int_equal(may_load(in_out("step-1"), &state, &err), FB_E_WITHHELD);
    (void)save_folder("step-1", 2.0f, 0);
    assert_int_equal(may_load(in_out("step-1"), &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_SUSPECT);
}

static void test_registry_keep__a_registry_that_cannot_be_read_closes_the_gate(void **ignored)
{
    int32_t state = 0;
    fb_error err;
    fb_registry_checkpoint found;
    char log[600];
    (void)ignored;
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    (void)snprintf(log, sizeof log, "%s/" FB_REGISTRY_FILE, run);
    assert_int_equal(shell("printf 'nonsense, no log' > '%s'", log), 0);
    assert_int_equal(may_load(in_out("step-1"), &state, &err), FB_E_WITHHELD);
    assert_non_null(strstr(err.message, "is not known"));
    assert_int_equal(fb_registry_latest_in(fb_os_posix(), out, NULL, 0, 0, &found, &err), FB_E_CORRUPT);
}

static void test_registry_keep__a_changed_committed_one_is_a_suspect(void **ignored)
{
    int32_t state = 0;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    (void)save("step-1", 2.0f);
    assert_int_equal(may_load(in_out("step-1"), &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_non_null(strstr(err.message, "changed after it was committed"));
}

/* ---- state files ------------------------------------------------------------------------------------------------------------ */

typedef struct noted {
    char text[512];
} noted;

static void take_note(void *ctx, const char *file, const char *text)
{
    noted *n = ctx;
    (void)file;
    if (strstr(text, "state file")) (void)snprintf(n->text, sizeof n->text, "%s", text);
}

static void test_registry_keep__a_state_file_travels_and_proves_nothing(void **ignored)
{
    char *data, away[600], home[700];
    size_t bytes;
    int32_t state = 0;
    noted n = {""};
    fb_ckpt_sink sink;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save_folder("step-1", 1.0f, 0), 1), FB_CKPT_COMMITTED);
    assert_int_equal(fb_os_read_file(fb_os_posix(), in_out("step-1/firstbad-state.json"), 65536, &data, &bytes, &err), FB_OK);
    assert_non_null(strstr(data, "\"state\": \"committed\""));
    assert_non_null(strstr(data, "\"schema\": \"firstbad.checkpoint/1\""));
    fb_free(data);
    (void)snprintf(away, sizeof away, "%s-away", out);
    assert_int_equal(mkdir(away, 0700), 0);
    assert_int_equal(shell("cp -r '%s/step-1' '%s-away/'", out), 0); /* to another machine, so to speak */
    (void)snprintf(home, sizeof home, "%s/step-1", away);
    assert_int_equal(may_load(home, &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_non_null(strstr(err.message, "its state file says committed by run r"));
    memset(&sink, 0, sizeof sink);
    sink.ctx = &n;
    sink.note = take_note;
    (void)snprintf(home, sizeof home, "%s/.firstbad", away);
    (void)snprintf(away + strlen(away), 20, "/step-1");
    assert_int_equal(fb_registry_verify(fb_os_posix(), home, away, NULL, &sink, NULL, &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_non_null(strstr(n.text, "no registry here confirms it"));
}

static void test_registry_keep__a_state_file_follows_the_verdicts(void **ignored)
{
    fb_error err;
    char *data;
    size_t bytes;
    (void)ignored;
    assert_int_equal(commit(save_folder("step-1", 1.0f, 0), 1), FB_CKPT_COMMITTED);
    assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 0, NULL, &err), FB_OK);
    assert_int_equal(fb_os_read_file(fb_os_posix(), in_out("step-1/firstbad-state.json"), 65536, &data, &bytes, &err), FB_OK);
    assert_non_null(strstr(data, "\"state\": \"suspect\""));
    fb_free(data);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "why", &err), FB_OK);
    assert_int_equal(
        fb_os_read_file(fb_os_posix(), in_out(".firstbad/quarantine/step-1/firstbad-state.json"), 65536, &data, &bytes, &err),
        FB_OK);
    assert_non_null(strstr(data, "\"state\": \"quarantined\""));
    fb_free(data);
}

/* ---- homes ------------------------------------------------------------------------------------------------------------------ */

static fb_status count_home(void *ctx, const char *home, fb_error *err)
{
    (void)home;
    (void)err;
    ++*(int *)ctx;
    return FB_OK;
}

static void test_registry_keep__homes_are_found_from_wherever_one_stands(void **ignored)
{
    char runs_dir[600];
    fb_error err;
    int found;
    (void)ignored;
    (void)snprintf(runs_dir, sizeof runs_dir, "%.*s", (int)(strrchr(run, '/') - run), run);
    assert_int_equal(commit(save_folder("step-1", 1.0f, 0), 1), FB_CKPT_COMMITTED);
    for (int where = 0; where < 5; where++) {
        const char *from = where == 0   ? out
                           : where == 1 ? in_out("step-1")
                           : where == 2 ? run
                           : where == 3 ? in_out("step-1/model-00001-of-00002.safetensors")
                                        : base;
        found = 0;
        assert_int_equal(fb_registry_homes(fb_os_posix(), from, where == 4 ? runs_dir : NULL, count_home, &found, &err), FB_OK);
        assert_int_equal(found, 1);
    }
    found = 0;
    put_text(".firstbad/homes", "/nowhere\n\nhalf/a/line\n\0"); /* nothing that is there */
    assert_int_equal(fb_registry_homes(fb_os_posix(), out, "/nowhere", count_home, &found, &err), FB_OK);
    assert_int_equal(found, 0);
    assert_int_equal(commit(in_out("step-1"), 1), FB_CKPT_COMMITTED); /* and is named there again */
    assert_int_equal(fb_registry_homes(fb_os_posix(), out, NULL, count_home, &found, &err), FB_OK);
    assert_int_equal(found, 1);
}

static void test_registry_keep__a_quarantine_in_any_registry_counts(void **ignored)
{
    char home[600];
    fb_registry_checkpoint found;
    fb_error err;
    (void)ignored;
    (void)snprintf(home, sizeof home, "%s/.firstbad", out);
    assert_int_equal(commit(save("step-1", 1.0f), 1), FB_CKPT_COMMITTED);
    if (fb_registry_quarantine(fb_os_posix(), home, in_out("step-1"), "why", &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(fb_registry_latest_in(fb_os_posix(), out, NULL, 0, 0, &found, &err), FB_E_NOTFOUND);
    assert_non_null(strstr(err.message, "is quarantined by"));
}

/* ---- memory ----------------------------------------------------------------------------------------------------------------- */

static fb_status many_things(fb_error *err)
{
    fb_registry_checkpoint found;
    int32_t state;
    fb_status status = fb_registry_commit(fb_os_posix(), run, save_folder("step-1", 1.0f, 0), 1, 1, 0, 1, &state, err);
    if (status == FB_OK) status = fb_registry_begin(fb_os_posix(), run, in_out("step-1"), 1, 1, 0, err);
    if (status == FB_OK) status = fb_registry_latest_in(fb_os_posix(), out, NULL, FB_REGISTRY_VERIFY, 1, &found, err);
    if (status == FB_OK) status = fb_registry_verify(fb_os_posix(), run, in_out("step-1"), NULL, NULL, NULL, &state, err);
    if (status == FB_OK) status = fb_registry_quarantine(fb_os_posix(), run, in_out("step-1"), "why", err);
    if (status == FB_OK) status = fb_registry_settle(fb_os_posix(), run, NULL, err);
    if (status == FB_OK) status = fb_registry_release(fb_os_posix(), run, in_out("step-1"), "why", NULL, err);
    if (status == FB_OK) status = fb_registry_may_load(fb_os_posix(), in_out("step-1"), NULL, 0, &state, NULL, err);
    return status;
}

static void test_registry_keep__missing_memory_loses_nothing(void **ignored)
{
    uint64_t requests;
    fb_error err;
    (void)ignored;
    fb_alloc_fail_at(0, 0);
    if (many_things(&err) != FB_OK) fail_msg("%s", err.message);
    requests = fb_alloc_requests();
    for (uint64_t k = 1; k <= requests; k++) {
        assert_int_equal(new_run(NULL), 0);
        fb_alloc_fail_at(k, 0);
        (void)many_things(&err);
        fb_alloc_fail_at(0, 0);
        settle();
        assert_int_equal(shell("find '%s' -name 'model-00001*' | grep -q .", out), 0); /* somewhere */
    }
}

/* ---- main ------------------------------------------------------------------------------------------------------------------- */

static int set_up(void **ignored)
{
    (void)ignored;
    /* Deep, so that what others left in the folder for temporary files is out of reach of the search for registries. */
    if (!mkdtemp(top)) return -1;
    (void)snprintf(base, sizeof base, "%s/a/b/c", top);
    return fb_os_mkdirs(fb_os_posix(), base, NULL);
}

/* ---- what was found by trying to break it ----------------------------------------------------------------------------------- */

static int look(const char *dir, fb_registry_checkpoint *found)
{
    fb_error err;
    return fb_registry_latest_in(fb_os_posix(), dir, NULL, FB_REGISTRY_LOOK, 0, found, &err) == FB_OK;
}

static int same_place(const char *pin, const char *name)
{
    return strstr(pin, "/.firstbad/pins/") && strcmp(strrchr(pin, '/') + 1, name) == 0;
}

static void test_registry_keep__a_folder_that_was_written_over_is_not_given_unread(void **ignored)
{
    fb_registry_checkpoint found;
    int32_t state;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save_folder("last", 1.0f, 0), 100), FB_CKPT_COMMITTED);
    assert_true(look(out, &found));
    assert_string_equal(found.path, in_out("last"));
    (void)save_folder("last", 2.0f, 1); /* the next save, and the trainer died of it */
    assert_true(look(out, &found));
    assert_true(same_place(found.path, "last"));
    assert_int_equal(fb_registry_may_load(fb_os_posix(), in_out("last"), NULL, FB_REGISTRY_LOOK, &state, NULL, &err),
                     FB_E_WITHHELD);
}

static void test_registry_keep__a_folder_that_was_removed_by_half_is_not_given(void **ignored)
{
    fb_registry_checkpoint found;
    (void)ignored;
    assert_int_equal(commit(save_folder("checkpoint-100", 1.0f, 0), 100), FB_CKPT_COMMITTED);
    assert_int_equal(unlink(in_out("checkpoint-100/model-00001-of-00002.safetensors")), 0);
    assert_true(look(out, &found));
    assert_true(same_place(found.path, "checkpoint-100"));
}

static void test_registry_keep__another_run_that_spoils_the_name_does_not_take_the_pin(void **ignored)
{
    char other[600];
    fb_error err;
    fb_registry_checkpoint found;
    (void)ignored;
    (void)snprintf(other, sizeof other, "%s-other", run);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), other, &err), FB_OK);
    assert_int_equal(commit(save("ckpt.st", 1.0f), 100), FB_CKPT_COMMITTED);
    (void)save_at(in_out("ckpt.st"), 2.0f, 1);
    assert_int_equal(commit_in(other, in_out("ckpt.st"), 200, 1, 1), FB_CKPT_QUARANTINED);
    assert_true(look(out, &found));
    assert_int_equal(found.step, 100);
    assert_true(same_place(found.path, "ckpt.st"));
}

static void test_registry_keep__a_run_that_is_asked_by_itself_puts_a_pin_back(void **ignored)
{
    fb_registry_checkpoint found;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save("step-100.st", 1.0f), 100), FB_CKPT_COMMITTED);
    assert_int_equal(unlink(in_out("step-100.st")), 0);
    if (fb_registry_latest_of(fb_os_posix(), run, FB_REGISTRY_LOOK, 1, &found, &err) != FB_OK) fail_msg("%s", err.message);
    assert_string_equal(found.path, in_out("step-100.st"));
    assert_true(value_of(found.path) == 1.0f);
}

static void test_registry_keep__a_pin_is_the_checkpoint_to_whoever_names_it(void **ignored)
{
    fb_registry_checkpoint found;
    fb_error err;
    newest n;
    (void)ignored;
    assert_int_equal(commit(save("step-100.st", 1.0f), 100), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save("step-200.st", 2.0f), 200), FB_CKPT_COMMITTED);
    assert_int_equal(unlink(in_out("step-200.st")), 0);
    assert_true(look(out, &found));
    assert_true(same_place(found.path, "step-200.st"));
    assert_int_equal(verify(found.path), FB_CKPT_COMMITTED);
    if (fb_registry_quarantine(fb_os_posix(), run, found.path, "why", &err) != FB_OK) fail_msg("%s", err.message);
    n = record_of(in_out("step-200.st"));
    assert_int_equal(n.rec.state, FB_CKPT_QUARANTINED);
    assert_true(value_of(in_out(".firstbad/quarantine/step-200.st")) == 2.0f);
    /* And what lies aside is what it is: verifying it, or saying so again, moves nothing. */
    assert_int_equal(verify(in_out(".firstbad/quarantine/step-200.st")), FB_CKPT_QUARANTINED);
    assert_int_equal(fb_registry_quarantine(fb_os_posix(), run, in_out(".firstbad/quarantine/step-200.st"), "why", &err), FB_OK);
    assert_true(value_of(in_out(".firstbad/quarantine/step-200.st")) == 2.0f);
    assert_true(look(out, &found));
    assert_int_equal(found.step, 100);
    assert_int_equal(shell("test -z \"$(find '%s'/.firstbad/* -name .firstbad)\"", out), 0);
}

static void test_registry_keep__a_pin_whose_name_has_other_bytes_is_quarantined_alone(void **ignored)
{
    fb_registry_checkpoint found;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(save("ckpt.st", 1.0f), 100), FB_CKPT_COMMITTED);
    assert_int_equal(unlink(in_out("ckpt.st")), 0);
    (void)save("ckpt.st", 2.0f); /* a save that nobody told of */
    assert_true(look(out, &found));
    assert_true(same_place(found.path, "ckpt.st"));
    if (fb_registry_quarantine(fb_os_posix(), run, found.path, "why", &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(value_of(in_out("ckpt.st")) == 2.0f);
    assert_true(value_of(in_out(".firstbad/quarantine/ckpt.st")) == 1.0f);
    assert_false(look(out, &found));
}

static void test_registry_keep__files_of_others_beside_a_pin_are_not_removed(void **ignored)
{
    fb_registry_checkpoint found;
    char folder[1024], mine[1100];
    (void)ignored;
    assert_int_equal(commit(save("step-100.st", 1.0f), 100), FB_CKPT_COMMITTED);
    assert_int_equal(unlink(in_out("step-100.st")), 0);
    assert_true(look(out, &found));
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(found.path, '/') - found.path), found.path);
    (void)snprintf(mine, sizeof mine, "%s/step-200.st", folder); /* a trainer that saves where it resumed from */
    (void)save_at(mine, 2.0f, 0);
    assert_int_equal(commit(save("step-300.st", 3.0f), 300), FB_CKPT_COMMITTED);
    assert_true(exists(mine));
    settle();
    assert_true(exists(mine));
}

static void test_registry_keep__nothing_is_put_or_moved_through_a_link(void **ignored)
{
    static const char *const links[] = {".firstbad", ".firstbad/pins", ".firstbad/quarantine"};
    char elsewhere[700];
    fb_error err;
    (void)ignored;
    (void)snprintf(elsewhere, sizeof elsewhere, "%s-elsewhere", out);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        assert_int_equal(shell("rm -rf '%s' && mkdir '%s'", out), 0);
        assert_int_equal(shell("rm -rf '%s' && mkdir '%s'", elsewhere), 0);
        assert_int_equal(shell("mkdir '%s/pins' '%s/quarantine'", elsewhere), 0);
        assert_int_equal(shell("echo mine >'%s/homes'", elsewhere), 0);
        if (i) assert_int_equal(mkdir(in_out(".firstbad"), 0700), 0);
        assert_int_equal(symlink(elsewhere, in_out(links[i])), 0);
        assert_int_equal(commit(save("step-100.st", 1.0f + (float)i), 100), FB_CKPT_COMMITTED);
        (void)fb_registry_quarantine(fb_os_posix(), run, in_out("step-100.st"), "why", &err);
        (void)fb_registry_settle(fb_os_posix(), run, NULL, &err);
        assert_int_equal(shell("test \"$(find '%s' -mindepth 1 | wc -l) $(cat '%s'/homes)\" = '3 mine'", elsewhere), 0);
    }
}

static void test_registry_keep__a_pointer_names_it_in_more_ways_than_one(void **ignored)
{
    fb_error err;
    char text[1100] = "";
    (void)ignored;
    assert_int_equal(commit(save_folder("ck-100", 1.0f, 0), 100), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save_folder("ck-200", 2.0f, 0), 200), FB_CKPT_COMMITTED);
    assert_int_equal(commit(save_folder("ck-300", 3.0f, 0), 300), FB_CKPT_COMMITTED);
    assert_int_equal(symlink("./ck-300/", in_out("latest")), 0);
    if (fb_registry_quarantine(fb_os_posix(), run, in_out("ck-300"), "why", &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(readlink(in_out("latest"), text, sizeof text - 1) > 0);
    assert_string_equal(text, "ck-200");
    assert_int_equal(unlink(in_out("latest")), 0);
    (void)snprintf(text, sizeof text, "%s\n", in_out("ck-200"));
    put_text("latest", text);
    if (fb_registry_quarantine(fb_os_posix(), run, in_out("ck-200"), "why", &err) != FB_OK) fail_msg("%s", err.message);
    (void)snprintf(text, sizeof text, "%s\n", in_out("ck-100"));
    expect_text(in_out("latest"), text);
}

static int tear_down(void **ignored)
{
    (void)ignored;
    return shell("chmod -R u+w '%s' && rm -rf '%s'", top);
}

#define TEST(name) cmocka_unit_test_setup(test_registry_keep__##name, new_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rotation_cannot_delete_the_last_committed_one),
        TEST(a_name_with_its_step_is_pinned_by_a_link),
        TEST(a_name_that_is_saved_over_is_pinned_by_other_bytes),
        TEST(a_step_that_is_in_the_name_by_chance_makes_no_link_twice),
        TEST(begin_moves_the_committed_one_before_it_is_written_over),
        TEST(only_the_newest_keeps_its_pin),
        TEST(parts_of_one_step_keep_their_pins),
        TEST(a_step_without_all_its_parts_takes_no_pin_away),
        TEST(doubting_an_old_run_does_not_bring_it_back),
        TEST(runs_that_save_into_one_folder_leave_each_other_alone),
        TEST(a_folder_is_pinned_with_all_that_is_in_it),
        TEST(a_folder_that_cannot_be_written_gets_a_verdict_and_no_pin),
        TEST(a_taint_pins_the_one_before_again),
        TEST(what_is_quarantined_is_moved_aside_and_back),
        TEST(a_pin_is_no_way_around_an_operator),
        TEST(bad_numbers_are_not_released),
        TEST(an_operator_releases_what_lineage_condemned),
        TEST(nothing_is_replaced_by_moving_aside_or_back),
        TEST(a_newer_save_under_a_quarantined_name_stays),
        TEST(an_unfinished_move_is_finished_by_the_next_writer),
        TEST(pointers_that_name_it_are_set_back),
        TEST(a_decimal_pointer_gets_the_iteration_before),
        TEST(settle_sets_a_pointer_that_a_crash_left),
        TEST(after_a_case_reading_again_commits_again),
        TEST(verify_finds_changed_bytes_and_keeps_the_pin_of_the_right_ones),
        TEST(what_was_torn_once_can_be_committed_when_it_is_whole),
        TEST(what_no_run_vouches_for_stays_suspect),
        TEST(the_gate_lets_through_what_is_committed_or_finite),
        TEST(the_gate_refuses_bad_torn_and_quarantined_ones),
        TEST(a_registry_that_cannot_be_read_closes_the_gate),
        TEST(a_changed_committed_one_is_a_suspect),
        TEST(a_state_file_travels_and_proves_nothing),
        TEST(a_state_file_follows_the_verdicts),
        TEST(homes_are_found_from_wherever_one_stands),
        TEST(a_quarantine_in_any_registry_counts),
        TEST(a_folder_that_was_written_over_is_not_given_unread),
        TEST(a_folder_that_was_removed_by_half_is_not_given),
        TEST(another_run_that_spoils_the_name_does_not_take_the_pin),
        TEST(a_run_that_is_asked_by_itself_puts_a_pin_back),
        TEST(a_pin_is_the_checkpoint_to_whoever_names_it),
        TEST(a_pin_whose_name_has_other_bytes_is_quarantined_alone),
        TEST(files_of_others_beside_a_pin_are_not_removed),
        TEST(nothing_is_put_or_moved_through_a_link),
        TEST(a_pointer_names_it_in_more_ways_than_one),
        TEST(missing_memory_loses_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
