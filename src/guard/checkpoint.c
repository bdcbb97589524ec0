/*
 * A checkpoint was written: have its bytes read back and judged, and remember it in the ledger as well.
 */
#include <string.h>

#include "base/status.h"
#include "guard/run.h"
#include "registry/registry.h"

static fb_status checkpoint(struct fb_run *run, const char *path, int64_t step, int32_t *state, fb_error *err)
{
    fb_status status = fb_run_usable(run, "register checkpoint", err);
    if (status != FB_OK) return status;
    if (!path || !*path || !state) return fb_fail(err, FB_E_USAGE, "register checkpoint: path or state is missing");
    if (run->step.open) {
        return fb_fail(err, FB_E_ORDER, "register checkpoint %s: step %lld is open; save between fb_step_end and fb_step_begin", path,
                       (long long)run->step.rec.step);
    }
    *state = FB_CKPT_SUSPECT;
    status = fb_registry_commit(run->os, run->folder, path, step, run->attempt, run->rank, !run->ungated, state, err);
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
    run->ungated_step = step;
    if (run->log && fb_registry_taint(run->os, run->folder, run->attempt, step, NULL, &why) != FB_OK) fb_record_lost(run, &why);
}
