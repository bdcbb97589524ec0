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

/* What the registry last said of the checkpoint that this attempt came from. */
struct parent_search {
    int64_t step;
    int32_t attempt, state;
};

static fb_status look_for_parent(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    struct parent_search *search = ctx;
    (void)sequence;
    (void)time_ns;
    (void)err;
    /* Of one step there may be several, in several attempts or folders: the newest says what was resumed from. */
    if (rec->step == search->step && rec->attempt < search->attempt) search->state = rec->state;
    return FB_OK;
}

/* An attempt that came from a checkpoint which nobody vouches for inherits its doubt. One that this run never registered, such as
   pretrained weights, is where the history begins. */
static int parent_is_good(const struct fb_run *run)
{
    struct parent_search search = {run->parent, run->attempt, FB_CKPT_COMMITTED};
    if (run->parent < 0) return 1;
    if (fb_registry_each(run->os, run->home, look_for_parent, &search, NULL) != FB_OK) return 0;
    return search.state == FB_CKPT_COMMITTED;
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

int fb_checkpoint_gated(const struct fb_run *run)
{
    return !run->ungated && parent_is_good(run) && !fb_checkpoint_marked(run);
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
