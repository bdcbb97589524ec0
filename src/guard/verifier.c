/*
 * Locks: `monitor` guards all fields below it, and is never held while a file is read or a record written, so that the run's own
 * thread waits for a few instructions at most.
 *
 * No verdict overtakes what is found meanwhile: what is read is judged by its newest record in the registry, under the registry's
 * lock and after the reading. A save writes that record before the job is queued; a taint, a doubt and another save write over it.
 */
#include "guard/verifier.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "evidence/site.h"
#include "os/threads.h"
#include "registry/registry.h"
#include "scan/scan_fpenv.h"

typedef struct job {
    char path[FB_OS_PATH_MAX];
    int64_t step;
    int gated;
    int held;  /* a case is open: not before it is known that its update was withheld */
    int again; /* it was committed before */
} job;

#define MS_MAX ((int64_t)1 << 40) /* 35 years */

struct fb_verifier {
    const fb_os *os;
    char home[FB_OS_PATH_MAX];
    fb_thread thread;
    fb_monitor monitor;

    job waiting[FB_CHECKPOINTS_QUEUED_MAX];
    int waiting_count;
    job doubts[FB_VERIFIER_DOUBTS];
    int doubt_count;
    job current;
    int busy, closing;                                 /* busy: `current` is being read */
    fb_checkpoint_result results[FB_VERIFIER_RESULTS]; /* oldest first */
    int result_count, fetched;                         /* the first `fetched` of them are in the ledger */
};

/* ---- verdicts ---------------------------------------------------------------------------------------------------------------- */

static void drop_first_result(fb_verifier *v)
{
    memmove(&v->results[0], &v->results[1], (size_t)(--v->result_count) * sizeof v->results[0]);
    v->fetched--;
}

/* Inside the monitor. Nobody polled for long: the oldest gives way, if the ledger has it. */
static void put_result(fb_verifier *v, const fb_checkpoint_result *result)
{
    while (v->result_count == FB_VERIFIER_RESULTS && !v->fetched) (void)fb_monitor_wait(&v->monitor, -1);
    if (v->result_count == FB_VERIFIER_RESULTS) drop_first_result(v);
    v->results[v->result_count++] = *result;
}

static void fill_result(fb_checkpoint_result *result, const job *j)
{
    memset(result, 0, sizeof *result);
    result->size = (uint32_t)sizeof *result;
    result->state = FB_CKPT_SUSPECT;
    result->again = j->again;
    result->step = j->step;
    result->first_index = FB_NO_INDEX;
    memcpy(result->path, j->path, sizeof result->path);
}

static void say_why(fb_checkpoint_result *result, const job *j, const fb_ckpt_summary *summary, const fb_error *err)
{
    const char *why = "it was saved over, a case opened, or an update that may have spread was found, before its verdict";
    if (result->state == FB_CKPT_COMMITTED) return;
    if (result->status != FB_OK) why = err->message;
    else if (summary->outcome == FB_CKPT_NON_FINITE) {
        (void)snprintf(result->reason, sizeof result->reason,
                       "%" PRIu64 " element%s not finite; the first is element %" PRIu64 " of %.300s, %s", summary->bad,
                       summary->bad == 1 ? " is" : "s are", summary->first_index, summary->first_tensor,
                       fb_kind_name(summary->first_kind));
        return;
    } else if (summary->outcome != FB_CKPT_CLEAN) why = summary->reason.message;
    else if (summary->checked == 0) why = "it holds nothing that could be judged";
    else if (!j->gated)
        why = "an update before it was not gated on every rank, or it descends from a checkpoint that is not committed";
    (void)snprintf(result->reason, sizeof result->reason, "%.*s", (int)sizeof result->reason - 1, why);
}

static void copy_summary(fb_checkpoint_result *result, const fb_ckpt_summary *summary)
{
    result->bytes = summary->bytes;
    result->elements = summary->elements;
    result->bad = summary->bad;
    result->digest = summary->digest;
    if (!summary->bad) return;
    result->first_kind = summary->first_kind;
    result->first_index = summary->first_index;
    result->first_bits = summary->first_bits;
    (void)snprintf(result->tensor, sizeof result->tensor, "%.*s", (int)sizeof result->tensor - 1, summary->first_tensor);
}

/* ---- the thread -------------------------------------------------------------------------------------------------------------- */

static fb_status read_back(const fb_verifier *v, const job *j, fb_ckpt_summary *summary, int32_t *state, fb_error *err)
{
    fb_ckpt_options options;
#ifdef FB_BREAK_P8 /* the broken build takes a save for a proof */
    fb_rec_ckpt rec;
    memset(&rec, 0, sizeof rec);
    rec.step = j->step;
    rec.attempt = 1;
    rec.state = *state = FB_CKPT_COMMITTED;
    rec.reason = FB_CKPT_REASON_READ_BACK;
    rec.path.data = j->path;
    rec.path.bytes = (uint32_t)strlen(j->path);
    if (j->step >= 0) return fb_registry_record(v->os, v->home, &rec, err);
#endif
    memset(&options, 0, sizeof options);
    options.sync = 1; /* a verdict that outlives a power cut, on bytes that do not, would be worse than none */
    return fb_registry_verify(v->os, v->home, j->path, &options, NULL, summary, state, err);
}

static void judge_current(fb_verifier *v)
{
    fb_checkpoint_result result;
    fb_ckpt_summary summary;
    fb_error err;
    const job *j = &v->current; /* ours alone while we are busy; others only look at it, inside the monitor */
    memset(&summary, 0, sizeof summary);
    memset(&err, 0, sizeof err);
    fill_result(&result, j);
    result.status = read_back(v, j, &summary, &result.state, &err);
    if (result.status != FB_OK) result.state = FB_CKPT_SUSPECT;
    copy_summary(&result, &summary);
    say_why(&result, j, &summary, &err);
    fb_monitor_enter(&v->monitor);
    put_result(v, &result);
    v->busy = 0;
    fb_monitor_tell(&v->monitor);
    fb_monitor_leave(&v->monitor);
}

static int take_at(job *jobs, int *count, int at, job *out)
{
    *out = jobs[at];
    memmove(&jobs[at], &jobs[at + 1], (size_t)(--*count - at) * sizeof jobs[0]);
    return 1;
}

/* Inside the monitor: the next that is not held, or 0. What was saved last is read first, since it will be there for longest: where
   reading is slower than saving, the oldest that waits is always the next one that rotation deletes, and none would ever be
   committed. What is read again comes after all of these. */
static int take_job(fb_verifier *v)
{
    int got = 0;
    for (int i = v->waiting_count - 1; !got && i >= 0; i--) {
        if (!v->waiting[i].held) got = take_at(v->waiting, &v->waiting_count, i, &v->current);
    }
    for (int i = 0; !got && i < v->doubt_count; i++) {
        if (!v->doubts[i].held) got = take_at(v->doubts, &v->doubt_count, i, &v->current);
    }
    return v->busy = got;
}

static void work(void *arg)
{
    fb_verifier *v = arg;
    fb_fpenv modes = fb_fpenv_enter(); /* inherited from the trainer's thread, which may flush or trap */
    fb_monitor_enter(&v->monitor);
    while (!v->closing) {
        if (!take_job(v)) {
            (void)fb_monitor_wait(&v->monitor, -1);
            continue;
        }
        fb_monitor_leave(&v->monitor);
        judge_current(v);
        fb_monitor_enter(&v->monitor);
    }
    fb_monitor_leave(&v->monitor);
    fb_fpenv_leave(modes);
}

/* ---- open and close ---------------------------------------------------------------------------------------------------------- */

fb_status fb_verifier_open(fb_verifier **out, const fb_os *os, const char *home, fb_error *err)
{
    fb_status status;
    fb_verifier *v = fb_calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return fb_fail(err, FB_E_NOMEM, "read checkpoints back: no memory for %zu bytes", sizeof *v);
    v->os = os;
    (void)snprintf(v->home, sizeof v->home, "%s", home);
    if ((status = fb_monitor_init(&v->monitor, err)) != FB_OK) {
        fb_free(v);
        return status;
    }
    if ((status = fb_thread_start(&v->thread, work, v, err)) != FB_OK) {
        fb_monitor_release(&v->monitor);
        fb_free(v);
        return status;
    }
    *out = v;
    return FB_OK;
}

void fb_verifier_close(fb_verifier *v)
{
    if (!v) return;
    fb_monitor_enter(&v->monitor);
    v->closing = 1;
    v->fetched = v->result_count; /* nobody will fetch any more, and the thread must not wait for it */
    fb_monitor_tell(&v->monitor);
    fb_monitor_leave(&v->monitor);
    fb_thread_join(&v->thread);
    fb_monitor_release(&v->monitor);
    fb_free(v);
}

void fb_verifier_abandon(fb_verifier *v)
{
    fb_free(v);
}

/* ---- the queue --------------------------------------------------------------------------------------------------------------- */

static void fill_job(job *j, const char *path, int64_t step, int gated)
{
    memset(j, 0, sizeof *j);
    (void)snprintf(j->path, sizeof j->path, "%s", path);
    j->step = step;
    j->gated = gated;
}

fb_status fb_verifier_add(fb_verifier *v, const char *path, int64_t step, int gated, fb_error *err)
{
    fb_status status = FB_OK;
    fb_monitor_enter(&v->monitor);
    if (v->waiting_count == FB_CHECKPOINTS_QUEUED_MAX) {
        status =
            fb_fail(err, FB_E_LIMIT,
                    "verify checkpoint %.300s: %d wait to be read back already, so this one stays suspect; save less often, or "
                    "wait with fb_run_checkpoint_wait, and read it with firstbad ckpt verify",
                    path, FB_CHECKPOINTS_QUEUED_MAX);
    } else {
        fill_job(&v->waiting[v->waiting_count++], path, step, gated);
        fb_monitor_tell(&v->monitor);
    }
    fb_monitor_leave(&v->monitor);
    return status;
}

static void forget_in(fb_verifier *v, job *jobs, int *count, const char *path)
{
    for (int i = *count - 1; i >= 0; i--) {
        fb_checkpoint_result result;
        if (strcmp(jobs[i].path, path) != 0) continue;
        fill_result(&result, &jobs[i]);
        (void)snprintf(result.reason, sizeof result.reason, "it was written over before it was read back");
        memmove(&jobs[i], &jobs[i + 1], (size_t)(--*count - i) * sizeof jobs[0]);
        /* The run's own thread must not wait for itself: without room the registry alone knows that it is suspect. */
        if (v->result_count < FB_VERIFIER_RESULTS || v->fetched) put_result(v, &result);
    }
}

void fb_verifier_forget(fb_verifier *v, const char *path)
{
    fb_monitor_enter(&v->monitor);
    forget_in(v, v->waiting, &v->waiting_count, path);
    forget_in(v, v->doubts, &v->doubt_count, path);
    fb_monitor_leave(&v->monitor);
}

void fb_verifier_release(fb_verifier *v, int64_t step)
{
    fb_monitor_enter(&v->monitor);
    for (int i = 0; i < v->waiting_count; i++) {
        if (v->waiting[i].step >= step) v->waiting[i].held = v->waiting[i].gated = 0;
    }
    fb_monitor_tell(&v->monitor);
    fb_monitor_leave(&v->monitor);
}

int fb_verifier_hold(fb_verifier *v, int64_t step_verified, char path[FB_OS_PATH_MAX], int64_t *step)
{
    int reading;
    fb_monitor_enter(&v->monitor);
    for (int i = 0; i < v->waiting_count; i++) {
        if (v->waiting[i].step > step_verified) v->waiting[i].held = 1;
    }
    reading = v->busy && v->current.step > step_verified;
    if (reading) {
        memcpy(path, v->current.path, sizeof v->current.path);
        *step = v->current.step;
    }
    fb_monitor_leave(&v->monitor);
    return reading;
}

void fb_verifier_doubted(fb_verifier *v, const char *path, int64_t step)
{
    fb_monitor_enter(&v->monitor);
    if (v->doubt_count < FB_VERIFIER_DOUBTS) {
        job *j = &v->doubts[v->doubt_count++];
        fill_job(j, path, step, 1);
        j->again = j->held = 1;
    }
    fb_monitor_leave(&v->monitor);
}

void fb_verifier_reread(fb_verifier *v)
{
    fb_monitor_enter(&v->monitor);
    for (int i = 0; i < v->waiting_count; i++) v->waiting[i].held = 0;
    for (int i = 0; i < v->doubt_count; i++) v->doubts[i].held = 0;
    fb_monitor_tell(&v->monitor);
    fb_monitor_leave(&v->monitor);
}

/* ---- what came of it --------------------------------------------------------------------------------------------------------- */

int fb_verifier_fetch(fb_verifier *v, fb_checkpoint_result *out)
{
    int got;
    fb_monitor_enter(&v->monitor);
    got = v->fetched < v->result_count;
    if (got) {
        *out = v->results[v->fetched++];
        fb_monitor_tell(&v->monitor);
    }
    fb_monitor_leave(&v->monitor);
    return got;
}

int fb_verifier_poll(fb_verifier *v, fb_checkpoint_result *out)
{
    int got;
    fb_monitor_enter(&v->monitor);
    got = v->fetched > 0;
    if (got) {
        *out = v->results[0];
        drop_first_result(v);
    }
    fb_monitor_leave(&v->monitor);
    return got;
}

static int has_work(const fb_verifier *v)
{
    int any = v->busy;
    for (int i = 0; i < v->waiting_count; i++) any |= !v->waiting[i].held;
    for (int i = 0; i < v->doubt_count; i++) any |= !v->doubts[i].held;
    return any;
}

int fb_verifier_wait(fb_verifier *v, int64_t ms)
{
    int got = FB_VERIFIER_LATE;
    int64_t now = v->os->monotonic_ns(v->os->ctx), until = ms < 0 ? INT64_MAX : now + (ms < MS_MAX ? ms : MS_MAX) * 1000000;
    fb_monitor_enter(&v->monitor);
    for (;; now = v->os->monotonic_ns(v->os->ctx)) {
        if (v->fetched < v->result_count) got = FB_VERIFIER_FETCH;
        else if (!has_work(v)) got = FB_VERIFIER_IDLE;
        if (got != FB_VERIFIER_LATE || now >= until) break;
        (void)fb_monitor_wait(&v->monitor, ms < 0 ? -1 : (until - now) / 1000000 + 1);
    }
    fb_monitor_leave(&v->monitor);
    return got;
}
