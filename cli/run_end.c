/* See run_end.h. */
#include "run_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_ledger(void *arg, const char *name)
{
    uint64_t *count = arg;
    size_t n = strlen(name);
    if (name[0] == 'r' && n > 5 && strcmp(name + n - 4, ".log") == 0) (*count)++;
    return 0;
}

typedef struct attempts {
    const fb_os *os;
    const run_job *job;
    int32_t newest, other; /* ours with a ledger; the first that another launch took, INT32_MAX: none */
    int other_only;        /* this pass looks for the other's */
} attempts;

static int64_t look_at_attempt(void *arg, const char *name)
{
    attempts *a = arg;
    char folder[FB_OS_PATH_MAX], launch[FB_OS_PATH_MAX], sub[64], *end = "";
    fb_os_info info;
    uint64_t ledgers = 0;
    long number = name[0] == 'a' ? strtol(name + 1, &end, 10) : 0;
    if (number <= a->job->attempt || number > INT32_MAX || *end) return 0;
    (void)snprintf(sub, sizeof sub, "ledger/%.32s", name);
    if (fb_os_join(folder, sizeof folder, a->job->folder, sub, NULL) != FB_OK ||
        fb_os_join(launch, sizeof launch, folder, "launch.json", NULL) != FB_OK)
        return 0;
    if (a->other_only) {
        if (number < a->other && a->os->stat(a->os->ctx, launch, &info) >= 0) a->other = (int32_t)number;
    } else if (number > a->newest && number < a->other) {
        (void)a->os->list(a->os->ctx, folder, count_ledger, &ledgers);
        if (ledgers) a->newest = (int32_t)number;
    }
    return 0;
}

/* A restart by torchrun, and each training that follows another below one launch, takes the next number, without a launch.json.
   Those behind the next launch.json are that launch's. */
static int32_t newest_attempt(const run_job *job, const fb_os *os)
{
    attempts a = {os, job, job->attempt, INT32_MAX, 1};
    char folder[FB_OS_PATH_MAX];
    if (fb_os_join(folder, sizeof folder, job->folder, "ledger", NULL) != FB_OK) return job->attempt;
    (void)os->list(os->ctx, folder, look_at_attempt, &a);
    a.other_only = 0;
    (void)os->list(os->ctx, folder, look_at_attempt, &a);
    return a.newest;
}

static fb_report *load(run_job *job, const fb_os *os, int32_t attempt)
{
    fb_report_target target;
    fb_report *report = NULL;
    memset(&target, 0, sizeof target);
    (void)snprintf(target.folder, sizeof target.folder, "%s", job->folder);
    target.attempt = attempt;
    target.step = -1;
    target.ended = !job->joined; /* of a launch on several nodes only the own part */
    return fb_report_load_target(os, &target, &report, &job->why) == FB_OK ? report : NULL;
}

void run_end_read(run_job *job, const fb_os *os)
{
    char name[48], ledger[FB_OS_PATH_MAX];
    job->newest = newest_attempt(job, os);
    (void)snprintf(name, sizeof name, "ledger/a%d", job->newest);
    if (fb_os_join(ledger, sizeof ledger, job->folder, name, NULL) == FB_OK)
        (void)os->list(os->ctx, ledger, count_ledger, &job->ledgers);
    attach_look(&job->seen, os, job->attached.folder);
    if (job->ledgers == 0 || !(job->report = load(job, os, job->newest))) return;
    job->halted = job->report->has_case && (job->report->action == FB_HALT || job->report->case_action == FB_HALT);
    for (int32_t attempt = job->newest - 1; attempt >= job->attempt && !job->report->has_case; attempt--) {
        fb_error why = job->why; /* an attempt that took no step has nothing to read, and that is no news */
        fb_report *before = load(job, os, attempt);
        job->why = why;
        if (before && before->has_case) {
            fb_report_free(job->report);
            job->report = before;
        } else {
            fb_report_free(before);
        }
    }
}
