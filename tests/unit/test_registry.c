/* The registry of checkpoints on the real system: states, lineage, several writers, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "log/layout.h"
#include "log/log.h"
#include "registry/registry.h"

static char top[] = "/tmp/firstbad-registry-XXXXXX";
static char run[512]; /* a new folder for each test */
static int runs;

static int new_run(void **ignored)
{
    (void)ignored;
    (void)snprintf(run, sizeof run, "%s/run%d", top, runs++);
    return mkdir(run, 0700);
}

static const char *in_run(const char *name)
{
    static char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    return path;
}

static int system_of(const char *format, const char *path)
{
    char command[1200];
    (void)snprintf(command, sizeof command, format, path);
    return system(command);
}

/* A checkpoint of one tensor "w" of four F32, all `value` but the last, which has these bits. */
static char *save(const char *name, float value, uint32_t last_bits)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    float data[4] = {value, value, value, value};
    uint64_t n = sizeof header - 1;
    char *path = strdup(in_run(name));
    FILE *out;
    assert_non_null(path);
    out = fopen(path, "wb");
    assert_non_null(out);
    memcpy(&data[3], &last_bits, sizeof last_bits);
    assert_int_equal(fwrite(&n, sizeof n, 1, out), 1);
    assert_int_equal(fwrite(header, sizeof header - 1, 1, out), 1);
    assert_int_equal(fwrite(data, sizeof data, 1, out), 1);
    assert_int_equal(fclose(out), 0);
    return path;
}

enum { ONE = 0x3f800000, QUIET_NAN = 0x7fc00000 };

static int32_t commit(const char *path, int64_t step, int32_t attempt, int gated)
{
    fb_error err;
    int32_t state = 0;
    fb_error_clear(&err);
    if (fb_registry_commit(fb_os_posix(), run, path, step, attempt, 0, gated, &state, &err) != FB_OK) fail_msg("%s", err.message);
    return state;
}

typedef struct listing {
    char text[8192];
} listing;

static fb_status add_line(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    listing *l = ctx;
    size_t used = strlen(l->text);
    const char *name = rec->path.data;
    (void)err;
    (void)time_ns;
    assert_true(sequence > 0);
    for (uint32_t i = 0; i < rec->path.bytes; i++) {
        if (rec->path.data[i] == '/') name = rec->path.data + i + 1;
    }
    (void)snprintf(l->text + used, sizeof l->text - used, "%.*s@%lld:%s(%s) ", (int)(rec->path.data + rec->path.bytes - name), name,
                   (long long)rec->step, fb_registry_state_name(rec->state), fb_registry_reason_text(rec->state, rec->reason));
    return FB_OK;
}

static const char *trail(void)
{
    static listing l;
    fb_error err;
    l.text[0] = '\0';
    if (fb_registry_trail(fb_os_posix(), run, add_line, &l, &err) != FB_OK) fail_msg("%s", err.message);
    return l.text;
}

static const char *newest(void)
{
    static listing l;
    fb_error err;
    l.text[0] = '\0';
    if (fb_registry_each(fb_os_posix(), run, add_line, &l, &err) != FB_OK) fail_msg("%s", err.message);
    return l.text;
}

static fb_status latest(int how, fb_registry_checkpoint *out, fb_error *err)
{
    fb_error_clear(err);
    return fb_registry_latest_committed(fb_os_posix(), run, how, out, err);
}

/* ---- states ----------------------------------------------------------------------------------------------------------------- */

static void test_registry__a_finite_checkpoint_of_a_gated_run_is_committed(void **ignored)
{
    static const char two[] = "a.safetensors@10:suspect(not read back yet) a.safetensors@10:committed(read back and finite) ";
    char *path = save("a.safetensors", 1.0f, ONE);
    fb_registry_checkpoint best;
    fb_error err;
    (void)ignored;
    assert_int_equal(commit(path, 10, 1, 1), FB_CKPT_COMMITTED);
    assert_true(strncmp(trail(), two, sizeof two - 1) == 0); /* a third one may say how the pin was made */
    assert_string_equal(newest(), "a.safetensors@10:committed(read back and finite) ");
    assert_int_equal(latest(FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    assert_string_equal(best.path, path);
    assert_int_equal(best.step, 10);
    assert_int_equal(best.attempt, 1);
    free(path);
}

/* P8: fails in a build that commits without looking at the bytes. */
static void test_registry__a_checkpoint_with_nan_is_quarantined_and_never_resumed_from(void **ignored)
{
    char *path = save("bad.safetensors", 1.0f, QUIET_NAN);
    fb_registry_checkpoint best;
    fb_ckpt_summary summary;
    int32_t state = 0;
    fb_error err;
    (void)ignored;
    assert_int_equal(fb_registry_commit_with(fb_os_posix(), run, path, 10, 1, 0, 1, NULL, NULL, &summary, &state, &err), FB_OK);
    assert_int_equal(state, FB_CKPT_QUARANTINED);
    assert_string_equal(summary.first_tensor, "w");
    assert_int_equal(summary.first_index, 3);
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_E_NOTFOUND);
    assert_non_null(strstr(err.message, "1 are recorded, none is committed"));
    free(path);
}

static void test_registry__a_finite_checkpoint_after_an_ungated_update_is_suspect(void **ignored)
{
    char *path = save("a.safetensors", 1.0f, ONE);
    (void)ignored;
    assert_int_equal(commit(path, 10, 1, 0), FB_CKPT_SUSPECT);
    assert_non_null(strstr(newest(), "suspect(an update before it was not provably gated)"));
    /* Asking again does not help: the same bytes have the same history. Other bytes, or another attempt, are judged anew. */
    assert_int_equal(commit(path, 10, 1, 1), FB_CKPT_SUSPECT);
    assert_int_equal(commit(path, 10, 2, 1), FB_CKPT_COMMITTED);
    free(path);
    path = save("a.safetensors", 2.0f, ONE);
    assert_int_equal(commit(path, 20, 1, 1), FB_CKPT_COMMITTED);
    free(path);
}

static void test_registry__what_cannot_be_judged_is_suspect(void **ignored)
{
    static const char cut[] = "\x30\0\0\0\0\0\0\0{\"w\":";
    static const char counters[] = "{\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}";
    uint64_t n = sizeof counters - 1;
    const char *path = in_run("cut.safetensors");
    FILE *out = fopen(path, "wb");
    (void)ignored;
    assert_non_null(out);
    assert_int_equal(fwrite(cut, sizeof cut - 1, 1, out), 1);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(commit(path, 1, 1, 1), FB_CKPT_SUSPECT);
    assert_non_null(strstr(newest(), "could not be read"));
    path = in_run("other.bin");
    out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite("\x80\x02", 2, 1, out), 1);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(commit(path, 2, 1, 1), FB_CKPT_SUSPECT);
    assert_non_null(strstr(newest(), "some of it could not be looked at"));
    /* Clean, and nothing in it could have been anything else: that proves nothing. */
    path = in_run("counters.safetensors");
    out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(&n, sizeof n, 1, out), 1);
    assert_int_equal(fwrite(counters, sizeof counters - 1, 1, out), 1);
    assert_int_equal(fwrite("\0\0\0\0\0\0\xf0\x7f", 8, 1, out), 1);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(commit(path, 3, 1, 1), FB_CKPT_SUSPECT);
}

static void test_registry__saving_over_a_name_starts_anew(void **ignored)
{
    fb_registry_checkpoint best;
    fb_error err;
    char *path = save("last.safetensors", 1.0f, ONE);
    (void)ignored;
    assert_int_equal(commit(path, 10, 1, 1), FB_CKPT_COMMITTED);
    free(path);
    path = save("last.safetensors", 1.0f, QUIET_NAN);
    assert_int_equal(commit(path, 20, 1, 1), FB_CKPT_QUARANTINED);
    assert_int_equal(access(path, F_OK), -1); /* moved aside, out of the trainer's way */
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_OK);
    assert_int_equal(best.step, 10); /* from its pin: the trainer wrote over the original */
    assert_non_null(strstr(best.path, "/.firstbad/pins/"));
    free(path);
    path = save("last.safetensors", 3.0f, ONE);
    assert_int_equal(commit(path, 30, 1, 1), FB_CKPT_COMMITTED);
    assert_int_equal(latest(FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    assert_int_equal(best.step, 30);
    free(path);
}

static void test_registry__the_newest_attempt_and_its_highest_step_are_resumed_from(void **ignored)
{
    static const struct {
        const char *name;
        int64_t step;
        int32_t attempt;
    } saves[] = {{"s10", 10, 1}, {"s200", 200, 1}, {"s30", 30, 2}, {"s20", 20, 2}};
    fb_registry_checkpoint best;
    fb_error err;
    (void)ignored;
    for (size_t i = 0; i < 4; i++) {
        char *path = save(saves[i].name, (float)i, ONE);
        assert_int_equal(commit(path, saves[i].step, saves[i].attempt, 1), FB_CKPT_COMMITTED);
        free(path);
    }
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_OK);
    assert_string_equal(best.path, in_run("s30"));
    assert_int_equal(system_of("rm -rf '%s/.firstbad/pins'", run), 0);
    assert_int_equal(unlink(in_run("s30")), 0); /* gone, with its pin: the next best */
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_OK);
    assert_string_equal(best.path, in_run("s20"));
    free(save("s20", 9.0f, ONE)); /* other bytes of the same length: its time tells, and then its digest */
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_OK);
    assert_string_equal(best.path, in_run("s200"));
    assert_int_equal(utimensat(AT_FDCWD, in_run("s200"), NULL, 0), 0); /* another time, the same bytes */
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_OK);
    assert_string_equal(best.path, in_run("s200"));
    assert_int_equal(truncate(in_run("s200"), 20), 0); /* another length is seen at once */
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_OK);
    assert_string_equal(best.path, in_run("s10"));
    assert_int_equal(unlink(in_run("s10")), 0);
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_E_NOTFOUND);
    assert_non_null(strstr(err.message, "4 were committed, none is usable now"));
}

static void test_registry__a_path_is_kept_absolute_and_without_links(void **ignored)
{
    fb_registry_checkpoint best;
    fb_error err;
    char before[4096], link[1024];
    char *path = save("a.safetensors", 1.0f, ONE);
    (void)ignored;
    (void)snprintf(link, sizeof link, "%s", in_run("latest"));
    assert_int_equal(symlink("a.safetensors", link), 0);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(run), 0);
    assert_int_equal(commit("./latest", 10, 1, 1), FB_CKPT_COMMITTED);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(latest(FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    assert_string_equal(best.path, path);
    free(path);
}

static void test_registry__a_folder_of_shards_is_committed_as_one(void **ignored)
{
    fb_registry_checkpoint best;
    fb_error err;
    char folder[1024];
    (void)ignored;
    (void)snprintf(folder, sizeof folder, "%s", in_run("step10"));
    assert_int_equal(mkdir(folder, 0700), 0);
    free(save("step10/m-00001-of-00002.safetensors", 1.0f, ONE));
    assert_int_equal(commit(folder, 10, 1, 1), FB_CKPT_SUSPECT); /* the second shard is missing */
    free(save("step10/m-00002-of-00002.safetensors", 2.0f, ONE));
    assert_int_equal(commit(folder, 10, 1, 1), FB_CKPT_COMMITTED);
    assert_int_equal(latest(FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    free(save("step10/m-00002-of-00002.safetensors", 3.0f, ONE));
    assert_int_equal(latest(FB_REGISTRY_VERIFY, &best, &err), FB_E_NOTFOUND);
}

/* ---- lineage ---------------------------------------------------------------------------------------------------------------- */

static void test_registry__a_taint_reaches_what_the_attempt_saved_since(void **ignored)
{
    uint64_t changed = 0;
    fb_registry_checkpoint best;
    fb_error err;
    char *path;
    (void)ignored;
    assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 0, &changed, &err), FB_OK); /* before anything was saved */
    assert_int_equal(access(in_run(FB_REGISTRY_FILE), F_OK), -1);
    for (int64_t step = 10; step <= 40; step += 10) {
        char name[32];
        (void)snprintf(name, sizeof name, "s%lld", (long long)step);
        path = save(name, (float)step, ONE);
        assert_int_equal(commit(path, step, 1, 1), FB_CKPT_COMMITTED);
        free(path);
    }
    path = save("other", 5.0f, ONE);
    assert_int_equal(commit(path, 35, 2, 1), FB_CKPT_COMMITTED);
    free(path);
    assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 30, &changed, &err), FB_OK);
    assert_int_equal(changed, 2);
    assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 30, &changed, &err), FB_OK);
    assert_int_equal(changed, 0);
    assert_non_null(strstr(newest(), "s20@20:committed"));
    assert_non_null(strstr(newest(), "s30@30:suspect(an update before it was not provably gated)"));
    assert_non_null(strstr(newest(), "other@35:committed"));
    /* A finite scan does not release it. */
    assert_int_equal(commit(in_run("s40"), 40, 1, 1), FB_CKPT_SUSPECT);
    assert_int_equal(unlink(in_run("other")), 0);
    assert_int_equal(system_of("rm -rf '%s/.firstbad/pins'", run), 0);
    assert_int_equal(latest(FB_REGISTRY_VERIFY, &best, &err), FB_OK);
    assert_int_equal(best.step, 20);
}

typedef struct meantime {
    const char *path;
    int what; /* 1: another save to the same path begins, 2: a taint */
    int done;
} meantime;

/* Called while the bytes are read back. */
static void do_meanwhile(void *ctx, const char *file, uint64_t done, uint64_t total)
{
    meantime *m = ctx;
    fb_rec_ckpt rec;
    fb_error err;
    (void)file;
    (void)done;
    (void)total;
    if (m->done++) return;
    if (m->what == 2) {
        assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 5, NULL, &err), FB_OK);
        return;
    }
    memset(&rec, 0, sizeof rec);
    rec.step = 20;
    rec.attempt = 1;
    rec.state = FB_CKPT_SUSPECT;
    rec.reason = FB_CKPT_REASON_READ_BACK;
    rec.path.data = m->path;
    rec.path.bytes = (uint32_t)strlen(m->path);
    assert_int_equal(fb_registry_record(fb_os_posix(), run, &rec, &err), FB_OK);
}

static void test_registry__what_happens_while_the_bytes_are_read_is_not_overruled(void **ignored)
{
    (void)ignored;
    for (int what = 1; what <= 2; what++) {
        char *path = save("a.safetensors", 1.0f, ONE);
        meantime m = {path, what, 0};
        fb_ckpt_sink sink;
        int32_t state = 0;
        fb_error err;
        assert_int_equal(new_run(NULL), 0);
        memset(&sink, 0, sizeof sink);
        sink.ctx = &m;
        sink.progress = do_meanwhile;
        assert_int_equal(fb_registry_commit_with(fb_os_posix(), run, path, 10, 1, 0, 1, NULL, &sink, NULL, &state, &err), FB_OK);
        assert_int_equal(state, FB_CKPT_SUSPECT);
        assert_string_equal(newest(), what == 1 ? "a.safetensors@20:suspect(not read back yet) "
                                                : "a.safetensors@10:suspect(an update before it was not provably gated) ");
        free(path);
    }
}

/* ---- wrong use -------------------------------------------------------------------------------------------------------------- */

static void test_registry__wrong_use_is_refused_in_a_sentence(void **ignored)
{
    fb_rec_ckpt rec;
    fb_registry_checkpoint best;
    fb_error err;
    int32_t state = 7;
    char *long_path = calloc(5000, 1);
    (void)ignored;
    assert_non_null(long_path);
    memset(long_path, 'x', 4990);
    memset(&rec, 0, sizeof rec);
    assert_int_equal(fb_registry_record(fb_os_posix(), run, NULL, &err), FB_E_USAGE);
    assert_int_equal(fb_registry_record(fb_os_posix(), run, &rec, &err), FB_E_USAGE);
    rec.path.data = "/a";
    rec.path.bytes = 2;
    assert_int_equal(fb_registry_record(fb_os_posix(), run, &rec, &err), FB_E_USAGE);
    assert_non_null(strstr(err.message, "0 is no state"));
    rec.state = FB_CKPT_SUSPECT;
    rec.path.data = long_path;
    rec.path.bytes = 4990;
    assert_int_equal(fb_registry_record(fb_os_posix(), run, &rec, &err), FB_E_LIMIT);
    assert_int_equal(fb_registry_commit(fb_os_posix(), run, in_run("nothing"), 1, 1, 0, 1, &state, &err), FB_E_NOTFOUND);
    assert_int_equal(state, FB_CKPT_SUSPECT);
    assert_int_equal(fb_registry_commit(fb_os_posix(), run, NULL, 1, 1, 0, 1, &state, &err), FB_E_USAGE);
    assert_int_equal(access(in_run(FB_REGISTRY_FILE), F_OK), -1); /* nothing was written */
    assert_string_equal(trail(), "");
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_E_NOTFOUND);
    assert_non_null(strstr(err.message, "0 are recorded"));
    free(long_path);
}

/* ---- several writers -------------------------------------------------------------------------------------------------------- */

enum { WRITERS = 4, RECORDS = 25 };

static fb_status record_one(int writer, int i, fb_error *err)
{
    char path[64];
    fb_rec_ckpt rec;
    (void)snprintf(path, sizeof path, "/w%d/%d", writer, i);
    memset(&rec, 0, sizeof rec);
    rec.step = i;
    rec.rank = writer;
    rec.attempt = 1;
    rec.state = FB_CKPT_SUSPECT;
    rec.path.data = path;
    rec.path.bytes = (uint32_t)strlen(path);
    return fb_registry_record(fb_os_posix(), run, &rec, err);
}

static void *write_many(void *arg)
{
    int writer = *(const int *)arg;
    for (int i = 0; i < RECORDS; i++) {
        fb_error err;
        if (record_one(writer, i, &err) != FB_OK) return arg;
    }
    return NULL;
}

typedef struct counts {
    uint64_t next[WRITERS], total, sequence;
} counts;

static fb_status count_record(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    counts *c = ctx;
    (void)time_ns;
    (void)err;
    assert_true(rec->rank >= 0 && rec->rank < WRITERS);
    assert_int_equal(rec->step, c->next[rec->rank]++); /* each writer's own records in its order, none lost, none twice */
    assert_int_equal(sequence, c->sequence + 1);
    c->sequence = sequence;
    c->total++;
    return FB_OK;
}

static void expect_all_records(void)
{
    counts c;
    fb_error err;
    memset(&c, 0, sizeof c);
    if (fb_registry_trail(fb_os_posix(), run, count_record, &c, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(c.total, WRITERS * RECORDS);
}

static void test_registry__threads_that_write_at_once_lose_nothing(void **ignored)
{
    pthread_t threads[WRITERS];
    int numbers[WRITERS];
    (void)ignored;
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &numbers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    expect_all_records();
}

static void test_registry__processes_that_write_at_once_lose_nothing(void **ignored)
{
    pid_t children[WRITERS];
    (void)ignored;
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(write_many(&i) ? 1 : 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    expect_all_records();
}

/* ---- damage ----------------------------------------------------------------------------------------------------------------- */

static void write_at(const char *path, long offset, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "r+b");
    assert_non_null(out);
    assert_int_equal(fseek(out, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

static long size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (long)info.st_size;
}

static void test_registry__a_half_record_is_cut_off_by_the_next_writer(void **ignored)
{
    fb_error err;
    const char *log;
    long whole, half;
    (void)ignored;
    assert_int_equal(record_one(0, 0, &err), FB_OK);
    whole = size_of(in_run(FB_REGISTRY_FILE));
    assert_int_equal(record_one(0, 1, &err), FB_OK);
    log = in_run(FB_REGISTRY_FILE);
    half = whole + (size_of(log) - whole) / 2;
    assert_int_equal(truncate(log, half), 0);
    assert_string_equal(trail(), "0@0:suspect(?) ");
    assert_int_equal(record_one(0, 2, &err), FB_OK);
    assert_string_equal(trail(), "0@0:suspect(?) 2@2:suspect(?) ");
}

static void test_registry__damage_before_the_end_is_refused_and_kept(void **ignored)
{
    fb_registry_checkpoint best;
    fb_error err;
    const char *log = NULL;
    char *path = save("a.safetensors", 1.0f, ONE);
    listing l = {""};
    long before;
    (void)ignored;
    assert_int_equal(commit(path, 10, 1, 1), FB_CKPT_COMMITTED);
    before = size_of(in_run(FB_REGISTRY_FILE));
    assert_int_equal(fb_registry_taint(fb_os_posix(), run, 1, 0, NULL, &err), FB_OK);
    assert_int_equal(record_one(0, 0, &err), FB_OK);
    log = in_run(FB_REGISTRY_FILE);
    write_at(log, before + FB_LOG_HEADER_BYTES + 4, "damage", 6); /* in the record that says: tainted */
    /* The prefix alone would say: committed. */
    assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_E_CORRUPT);
    assert_non_null(strstr(err.message, "the newest states are not known"));
    assert_int_equal(fb_registry_each(fb_os_posix(), run, add_line, &l, &err), FB_E_CORRUPT);
    before = size_of(in_run(FB_REGISTRY_FILE));
    assert_int_equal(record_one(0, 1, &err), FB_E_CORRUPT);
    assert_int_equal(size_of(in_run(FB_REGISTRY_FILE)), before);
    free(path);
}

static void test_registry__a_creation_that_was_cut_short_is_done_again(void **ignored)
{
    fb_error err;
    FILE *out = fopen(in_run(FB_REGISTRY_FILE ".new"), "wb");
    (void)ignored;
    assert_non_null(out);
    assert_true(fputs("half a log", out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(trail(), "");
    if (record_one(0, 0, &err) != FB_OK) fail_msg("%s", err.message);
    assert_string_equal(trail(), "0@0:suspect(?) ");
    assert_int_equal(access(in_run(FB_REGISTRY_FILE ".new"), F_OK), -1);
}

static void test_registry__a_file_that_is_no_registry_is_left_alone(void **ignored)
{
    fb_error err;
    const char *log = in_run(FB_REGISTRY_FILE);
    FILE *out = fopen(log, "wb");
    (void)ignored;
    assert_non_null(out);
    assert_true(fputs("notes of my own\n", out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(record_one(0, 0, &err), FB_E_CORRUPT);
    assert_int_equal(size_of(in_run(FB_REGISTRY_FILE)), 16);
}

static void test_registry__every_failing_request_for_memory_leaves_a_suspect(void **ignored)
{
    uint64_t requests;
    int32_t state;
    fb_error err;
    char *path = save("a.safetensors", 1.0f, ONE);
    (void)ignored;
    fb_alloc_fail_at(0, 0);
    assert_int_equal(commit(path, 10, 1, 1), FB_CKPT_COMMITTED);
    requests = fb_alloc_requests();
    for (uint64_t k = 1; k <= requests + 8; k++) { /* some more: the log has grown */
        fb_registry_checkpoint best;
        fb_status status;
        assert_int_equal(new_run(NULL), 0);
        fb_alloc_fail_at(k, 0);
        status = fb_registry_commit(fb_os_posix(), run, path, 10, 1, 0, 1, &state, &err);
        fb_alloc_fail_at(0, 0);
        if (status == FB_OK) {
            assert_int_equal(state, FB_CKPT_COMMITTED);
            continue;
        }
        assert_int_equal(status, FB_E_NOMEM);
        assert_int_equal(state, FB_CKPT_SUSPECT);
        assert_int_equal(latest(FB_REGISTRY_LOOK, &best, &err), FB_E_NOTFOUND);
        assert_int_equal(commit(path, 10, 1, 1), FB_CKPT_COMMITTED); /* and nothing is left locked */
    }
    free(path);
}

/* ---- main ------------------------------------------------------------------------------------------------------------------- */

static int set_up(void **ignored)
{
    (void)ignored;
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **ignored)
{
    char command[300];
    (void)ignored;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

#define TEST(name) cmocka_unit_test_setup(test_registry__##name, new_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_finite_checkpoint_of_a_gated_run_is_committed),
        TEST(a_checkpoint_with_nan_is_quarantined_and_never_resumed_from),
        TEST(a_finite_checkpoint_after_an_ungated_update_is_suspect),
        TEST(what_cannot_be_judged_is_suspect),
        TEST(saving_over_a_name_starts_anew),
        TEST(the_newest_attempt_and_its_highest_step_are_resumed_from),
        TEST(a_path_is_kept_absolute_and_without_links),
        TEST(a_folder_of_shards_is_committed_as_one),
        TEST(a_taint_reaches_what_the_attempt_saved_since),
        TEST(what_happens_while_the_bytes_are_read_is_not_overruled),
        TEST(wrong_use_is_refused_in_a_sentence),
        TEST(threads_that_write_at_once_lose_nothing),
        TEST(processes_that_write_at_once_lose_nothing),
        TEST(a_half_record_is_cut_off_by_the_next_writer),
        TEST(damage_before_the_end_is_refused_and_kept),
        TEST(a_creation_that_was_cut_short_is_done_again),
        TEST(a_file_that_is_no_registry_is_left_alone),
        TEST(every_failing_request_for_memory_leaves_a_suspect),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
