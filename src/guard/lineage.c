/*
 * What an update may have reached. Whether the history of a checkpoint was gated is a question to all ranks, and the vote does not
 * carry the answer: a rank that applied an update it had not covered leaves a mark in the run's folder, and the rank that saves
 * looks for it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "base/status.h"
#include "guard/run.h"
#include "registry/registry.h"

static void mark_name(const struct fb_run *run, char *name, size_t room)
{
    (void)snprintf(name, room, "ungated-a%d.json", run->attempt);
}

/* One mark for an attempt: the first rank puts it there, and it stays. */
static void leave_mark(struct fb_run *run, int64_t step)
{
    fb_json json;
    fb_error why;
    fb_status status;
    char name[32];
    if (run->world == 1 || !run->log || run->mark_left) return;
    run->mark_left = 1;
    mark_name(run, name, sizeof name);
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.ungated/1");
    fb_json_key_int(&json, "rank", run->rank);
    fb_json_key_int(&json, "step", step);
    fb_json_object_end(&json);
    status = fb_json_finish(&json, &why);
    if (status == FB_OK) status = fb_os_put_new(run->os, run->home, name, fb_json_text(&json), json.used, &why);
    if (status != FB_OK && status != FB_E_EXISTS) fb_record_lost(run, &why);
    fb_json_release(&json);
}

/* What was last said of the checkpoint that this attempt came from: by this run, of an earlier attempt, or else by another run that
   saved into the folder where this one saves. A job that is started again mostly has another name. */
struct parent_search {
    const struct fb_run *run;
    const char *folder; /* "": the records of this run */
    uint64_t time_ns;
    int32_t state; /* 0: nobody knows it */
};

static int lies_in(fb_text path, const char *folder)
{
    size_t n = strlen(folder);
    return path.bytes > n && memcmp(path.data, folder, n) == 0 && path.data[n] == '/';
}

static fb_status look_for_parent(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    struct parent_search *search = ctx;
    (void)sequence;
    (void)err;
    if (rec->step != search->run->parent) return FB_OK;
    if (!search->folder[0] && rec->attempt >= search->run->attempt) return FB_OK;
    if (search->folder[0] && (time_ns < search->time_ns || !lies_in(rec->origin.bytes ? rec->origin : rec->path, search->folder)))
        return FB_OK;
    /* Of one step there may be several, in several attempts or folders: the newest says what was resumed from. */
    search->state = rec->state;
    search->time_ns = time_ns;
    return FB_OK;
}

static fb_status ask_other_run(void *ctx, const char *home, fb_error *err)
{
    struct parent_search *search = ctx;
    char own[FB_OS_PATH_MAX];
    const fb_os *os = search->run->os;
    if (os->realpath(os->ctx, search->run->home, own, sizeof own) >= 0 && strcmp(own, home) == 0) return FB_OK;
    return fb_registry_each(os, home, look_for_parent, search, err);
}

static fb_status ask_other_runs(struct parent_search *search, const char *path)
{
    char folder[FB_OS_PATH_MAX];
    const fb_os *os = search->run->os;
    char *slash;
    int64_t got = os->realpath(os->ctx, path, folder, sizeof folder);
    if (got < 0) return FB_E_IO;
    slash = strrchr(folder, '/');
    if (!slash || slash == folder) return FB_OK;
    *slash = '\0';
    search->folder = folder;
    return fb_registry_homes(os, folder, NULL, ask_other_run, search, NULL);
}

/* An attempt that came from a checkpoint which nobody vouches for inherits its doubt. One that no run here ever registered, such as
   pretrained weights, is where the history begins. */
static int parent_is_good(const struct fb_run *run, const char *path)
{
    struct parent_search search = {run, "", 0, 0};
    if (run->parent < 0) return 1;
    if (fb_registry_each(run->os, run->home, look_for_parent, &search, NULL) != FB_OK) return 0;
    if (!search.state && ask_other_runs(&search, path) != FB_OK) return 0;
    return !search.state || search.state == FB_CKPT_COMMITTED;
}

int fb_checkpoint_marked(const struct fb_run *run)
{
    char path[FB_OS_PATH_MAX], name[32];
    fb_os_info info;
    if (run->world == 1) return 0;
    mark_name(run, name, sizeof name);
    if (fb_os_join(path, sizeof path, run->home, name, NULL) != FB_OK) return 1;
    return run->os->stat(run->os->ctx, path, &info) != -ENOENT;
}

int fb_checkpoint_gated(const struct fb_run *run, const char *path)
{
    return !run->ungated && parent_is_good(run, path) && !fb_checkpoint_marked(run);
}

void fb_checkpoint_taint(struct fb_run *run, int64_t step)
{
    fb_error why;
    run->ungated = 1;
    leave_mark(run, step);
#ifndef FB_BREAK_P8_queue /* the broken build lets verdicts that are on their way stand */
    if (run->log && fb_registry_taint(run->os, run->home, run->attempt, step, NULL, &why) != FB_OK) fb_record_lost(run, &why);
#else
    (void)why;
#endif
    if (run->verifier) fb_verifier_release(run->verifier, step);
}

/* ---- doubt ------------------------------------------------------------------------------------------------------------------- */

static fb_status note_doubted(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    struct fb_run *run = ctx;
    char path[FB_OS_PATH_MAX];
    (void)sequence;
    (void)time_ns;
    (void)err;
    if (rec->state != FB_CKPT_COMMITTED || rec->attempt != run->attempt || rec->step <= run->doubt_step) return FB_OK;
    (void)snprintf(path, sizeof path, "%.*s", (int)rec->path.bytes, rec->path.data);
    if (fb_checkpoint_verifier(run, NULL)) fb_verifier_doubted(run->verifier, path, rec->step);
    return FB_OK;
}

/* Only the rank that saved does it, so that a case costs the same on any number of ranks; and where every step since the last save
 * was
   gated, which is the rule, nothing is read or written. */
void fb_checkpoint_doubt(struct fb_run *run)
{
    char path[FB_OS_PATH_MAX];
    int64_t step = 0;
    fb_error why;
    fb_status status;
    if (!run->log || run->step_saved <= run->step_verified) return;
    run->in_doubt = 1;
    run->doubt_step = run->step_verified;
    /* What waits is read when the doubt ends; what is committed, or being read now, falls back and is read again then. */
    if (run->verifier && fb_verifier_hold(run->verifier, run->doubt_step, path, &step))
        fb_verifier_doubted(run->verifier, path, step);
    status = fb_registry_each(run->os, run->home, note_doubted, run, &why);
    if (status == FB_OK) status = fb_registry_doubt(run->os, run->home, run->attempt, run->doubt_step, NULL, &why);
    if (status != FB_OK) fb_record_lost(run, &why);
}

void fb_checkpoint_trust(struct fb_run *run)
{
    if (!run->in_doubt) return;
    run->in_doubt = 0;
    if (run->verifier) fb_verifier_reread(run->verifier);
}
