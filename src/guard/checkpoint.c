/*
 * A checkpoint is about to be written, or was: keep the older one safe, have the bytes read back and judged, at once or by the
 * run's verifier, and remember the verdict in the ledger as well.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "guard/run.h"
#include "registry/registry.h"

/* What all calls ask for before they do anything. what: "register checkpoint". */
static fb_status may_save(const struct fb_run *run, const char *what, const char *path, fb_error *err)
{
    fb_status status = fb_run_usable(run, what, err);
    if (status != FB_OK) return status;
    if (!path || !*path) return fb_fail(err, FB_E_USAGE, "%s: path is missing", what);
    if (run->step.open) {
        return fb_fail(err, FB_E_ORDER, "%s %s: step %lld is open; save between fb_step_end and fb_step_begin", what, path,
                       (long long)run->step.rec.step);
    }
    return FB_OK;
}

/* Before the first update there is nothing that could have spoiled it. */
static void note_saved(struct fb_run *run, int64_t step)
{
    if (step > run->step_saved) run->step_saved = step;
    if (run->last_step < 0 && step > run->step_verified) run->step_verified = step;
}

static fb_status absolute(const struct fb_run *run, const char *what, const char *path, char out[FB_OS_PATH_MAX], fb_error *err)
{
    int64_t got = run->os->realpath(run->os->ctx, path, out, FB_OS_PATH_MAX);
    if (got == -ENOENT || got == -ENOTDIR) return fb_fail(err, FB_E_NOTFOUND, "%s %s: no such file or folder", what, path);
    if (got == -ENAMETOOLONG) return fb_fail(err, FB_E_LIMIT, "%s %.200s: its path is too long", what, path);
    if (got < 0) return fb_fail_os(err, (int)-got, "%s %s: find its absolute path", what, path);
    return FB_OK;
}

/* ---- verdicts into the ledger ------------------------------------------------------------------------------------------------ */

/* Who deletes a checkpoint before it was read back (rotation does) has no use for a verdict on it: that is no evidence lost. */
static int was_deleted(const struct fb_run *run, const char *path)
{
    fb_os_info info;
    int64_t got = run->os->stat(run->os->ctx, path, &info);
    return got == -ENOENT || got == -ENOTDIR;
}

static void record_result(struct fb_run *run, const fb_checkpoint_result *result)
{
    fb_error why;
    int unjudged = result->status != FB_OK && !was_deleted(run, result->path);
#ifdef FB_BREAK_P10
    unjudged = 0; /* the broken build keeps it to itself that nobody judged this checkpoint */
#endif
    fb_run_lock(run);
    fb_record_event(run, FB_EVENT_CHECKPOINT, result->state, result->step, result->path, 0);
    if (unjudged) {
        (void)fb_fail(&why, result->status, "%s", result->reason);
        fb_record_lost(run, &why);
    }
    fb_run_unlock(run);
}

void fb_checkpoint_record(struct fb_run *run)
{
    fb_checkpoint_result result;
    while (run->verifier && fb_verifier_fetch(run->verifier, &result)) record_result(run, &result);
}

/* Verdicts that the ledger does not have yet would stop the thread once they fill its table, so they are fetched on the way. */
static int wait_for_all(struct fb_run *run, int64_t ms)
{
    int64_t begun = fb_run_now(run);
    for (;;) {
        int64_t passed = (fb_run_now(run) - begun) / 1000000, left = ms < 0 ? -1 : ms > passed ? ms - passed : 0;
        int got = fb_verifier_wait(run->verifier, left);
        if (got != FB_VERIFIER_FETCH) return got == FB_VERIFIER_IDLE;
        fb_checkpoint_record(run);
    }
}

void fb_checkpoint_close(struct fb_run *run, int forked)
{
    if (!run->verifier) return;
    if (forked) {
        fb_verifier_abandon(run->verifier);
    } else {
        (void)wait_for_all(run, -1);
        fb_verifier_close(run->verifier);
    }
    run->verifier = NULL;
}

fb_verifier *fb_checkpoint_verifier(struct fb_run *run, fb_error *err)
{
    if (!run->verifier) (void)fb_verifier_open(&run->verifier, run->os, run->home, err);
    return run->verifier;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------- */

static fb_status checkpoint(struct fb_run *run, const char *path, int64_t step, int32_t *state, fb_error *err)
{
    fb_status status = may_save(run, "register checkpoint", path, err);
    if (status != FB_OK) return status;
    if (!state) return fb_fail(err, FB_E_USAGE, "register checkpoint: state is missing");
    *state = FB_CKPT_SUSPECT;
    note_saved(run, step);
    status =
        fb_registry_commit(run->os, run->home, path, step, run->attempt, run->rank, fb_checkpoint_gated(run, path), state, err);
    if (*state == FB_CKPT_COMMITTED && fb_checkpoint_marked(run)) {
        fb_checkpoint_taint(run, step);
        *state = FB_CKPT_SUSPECT;
    }
    if (status == FB_OK) fb_record_event(run, FB_EVENT_CHECKPOINT, *state, step, path, 0);
    return status;
}

fb_status fb_run_checkpoint(struct fb_run *run, const char *path, int64_t step, int32_t *state, fb_error *err)
{
    return fb_run_misuse(run, checkpoint(run, path, step, state, err), err);
}

/* What waits under this name is about to be written over. */
static void forget(struct fb_run *run, const char *path)
{
    char known[FB_OS_PATH_MAX];
    if (run->verifier && absolute(run, "begin checkpoint", path, known, NULL) == FB_OK) fb_verifier_forget(run->verifier, known);
}

static fb_status begin(struct fb_run *run, const char *path, int64_t step, fb_error *err)
{
    fb_status status = may_save(run, "begin checkpoint", path, err);
    if (status != FB_OK) return status;
    forget(run, path);
    run->begun[0] = '\0';
    status = fb_registry_begin(run->os, run->home, path, step, run->attempt, run->rank, err);
    if (status != FB_OK) return status;
    (void)snprintf(run->begun, sizeof run->begun, "%s", path);
    run->begun_step = step;
    return FB_OK;
}

fb_status fb_run_checkpoint_begin(struct fb_run *run, const char *path, int64_t step, fb_error *err)
{
    return fb_run_misuse(run, begin(run, path, step, err), err);
}

/* announced: fb_registry_begin was told of this save, so that the bytes it replaced are kept, and
 * those of this one can be linked. */
static fb_status record_suspect(struct fb_run *run, const char *path, int64_t step, int announced, int gated, fb_error *err)
{
    fb_rec_ckpt rec;
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.attempt = run->attempt;
    rec.rank = run->rank;
    rec.state = FB_CKPT_SUSPECT;
    rec.reason = gated ? FB_CKPT_REASON_READ_BACK : FB_CKPT_REASON_LINEAGE;
    rec.pin = announced ? FB_PIN_RENAMED : FB_PIN_NONE;
    rec.gated = gated ? FB_CKPT_GATED_YES : FB_CKPT_GATED_NO;
    rec.path.data = path;
    rec.path.bytes = (uint32_t)strlen(path);
    rec.tensor.data = rec.aside.data = rec.pin_path.data = rec.origin.data = rec.note.data = "";
    return fb_registry_record(run->os, run->home, &rec, err);
}

/* Recorded here and now: how the run was gated until this moment is what counts, and what lay under this name may have been
 * committed,
   whose verdict is not that of the bytes that lie there now. */
static fb_status verify(struct fb_run *run, const char *path, int64_t step, fb_error *err)
{
    char known[FB_OS_PATH_MAX];
    fb_verifier *verifier;
    fb_status status = may_save(run, "verify checkpoint", path, err);
    int gated, announced;
    if (status != FB_OK) return status;
    if ((status = absolute(run, "verify checkpoint", path, known, err)) != FB_OK) return status;
    note_saved(run, step);
    fb_checkpoint_record(run);
    if (run->verifier) fb_verifier_forget(run->verifier, known);
    gated = fb_checkpoint_gated(run, known);
    announced = run->begun_step == step && strcmp(run->begun, path) == 0;
    run->begun[0] = '\0';
    status = record_suspect(run, known, step, announced, gated, err);
    if (status == FB_OK && gated && fb_checkpoint_marked(run)) {
        gated = 0;
        status = record_suspect(run, known, step, announced, 0, err);
    }
    if (status != FB_OK) return status;
    verifier = fb_checkpoint_verifier(run, err);
    status = verifier ? fb_verifier_add(verifier, known, step, gated, err) : FB_E_LIMIT;
    if (status != FB_OK) fb_record_event(run, FB_EVENT_CHECKPOINT, FB_CKPT_SUSPECT, step, known, 1);
    return status;
}

fb_status fb_run_checkpoint_verify(struct fb_run *run, const char *path, int64_t step, fb_error *err)
{
    return fb_run_misuse(run, verify(run, path, step, err), err);
}

static fb_status poll_result(struct fb_run *run, fb_checkpoint_result *out, fb_error *err)
{
    fb_checkpoint_result result;
    fb_status status = fb_run_usable(run, "poll checkpoints", err);
    uint32_t size;
    if (status != FB_OK) return status;
    if (!out) return fb_fail(err, FB_E_USAGE, "poll checkpoints: out is NULL");
    size = out->size;
    if (size < offsetof(fb_checkpoint_result, tensor) || size > sizeof *out) {
        return fb_fail(err, FB_E_USAGE, "poll checkpoints: out.size is %u, expected %zu; start from FB_CHECKPOINT_RESULT_INIT",
                       size, sizeof *out);
    }
    fb_checkpoint_record(run);
    if (!run->verifier || !fb_verifier_poll(run->verifier, &result))
        return fb_fail(err, FB_E_NOTFOUND, "poll checkpoints: no verdict is there that was not polled");
    result.size = size;
    memcpy(out, &result, size);
    return FB_OK;
}

fb_status fb_run_checkpoint_poll(struct fb_run *run, fb_checkpoint_result *out, fb_error *err)
{
    fb_status status = poll_result(run, out, err);
    return status == FB_E_NOTFOUND ? status : fb_run_misuse(run, status, err);
}

fb_status fb_run_checkpoint_wait(struct fb_run *run, int64_t timeout_ms, fb_error *err)
{
    fb_status status = fb_run_usable(run, "wait for checkpoints", err);
    if (status != FB_OK || !run->verifier || wait_for_all(run, timeout_ms)) return status;
    return fb_fail(err, FB_E_LIMIT, "wait for checkpoints: some are still to be read back after %lld ms; they go on",
                   (long long)timeout_ms);
}
