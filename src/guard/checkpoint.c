/*
 * A checkpoint was written: have its bytes read back and judged, and remember it in the ledger as well.
 *
 * Whether the history of a checkpoint was gated is a question to all ranks, and the vote does not carry the answer: a rank that
 * applied an update it had not covered leaves a mark in the run's folder, and the rank that saves looks for it.
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
    if (status == FB_OK) status = fb_os_put_new(run->os, run->folder, name, fb_json_text(&json), json.used, &why);
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
    if (fb_registry_each(run->os, run->folder, look_for_parent, &search, NULL) != FB_OK) return 0;
    return search.state == FB_CKPT_COMMITTED;
}

/* 1 when no rank of this attempt is known to have applied an update that was not gated. */
static int gated_everywhere(const struct fb_run *run)
{
    char path[FB_OS_PATH_MAX], name[32];
    fb_os_info info;
    if (run->ungated || !parent_is_good(run)) return 0;
    if (run->world == 1) return 1;
    mark_name(run, name, sizeof name);
    if (fb_os_join(path, sizeof path, run->folder, name, NULL) != FB_OK) return 0;
    return run->os->stat(run->os->ctx, path, &info) == -ENOENT;
}

static fb_status checkpoint(struct fb_run *run, const char *path, int64_t step, int32_t *state, fb_error *err)
{
    fb_status status = fb_run_usable(run, "register checkpoint", err);
    if (status != FB_OK) return status;
    if (!path || !*path || !state) return fb_fail(err, FB_E_USAGE, "register checkpoint: path or state is missing");
    if (run->step.open) {
        return fb_fail(err, FB_E_ORDER, "register checkpoint %s: step %lld is open; save between fb_step_end and fb_step_begin",
                       path, (long long)run->step.rec.step);
    }
    *state = FB_CKPT_SUSPECT;
    status = fb_registry_commit(run->os, run->folder, path, step, run->attempt, run->rank, gated_everywhere(run), state, err);
    if (status == FB_OK) fb_record_event(run, FB_EVENT_CHECKPOINT, *state, step, path, 0);
    return status;
}

fb_status fb_run_checkpoint(struct fb_run *run, const char *path, int64_t step, int32_t *state, fb_error *err)
{
    return fb_run_misuse(run, checkpoint(run, path, step, state, err), err);
}

void fb_checkpoint_taint(struct fb_run *run, int64_t step)
{
    fb_error why;
    run->ungated = 1;
    leave_mark(run, step);
    if (run->log && fb_registry_taint(run->os, run->folder, run->attempt, step, NULL, &why) != FB_OK) fb_record_lost(run, &why);
}
