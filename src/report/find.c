/*
 * What a person means by a name: a run id, a path, a case, a step. A run id wins over a step, since schedulers hand out ids that
 * are plain numbers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "report/inside.h"

static int is_folder(const fb_os *os, const char *path, int64_t *mtime_ns)
{
    fb_os_info info;
    if (os->stat(os->ctx, path, &info) < 0 || info.kind != FB_OS_FOLDER) return 0;
    if (mtime_ns && info.mtime_ns > *mtime_ns) *mtime_ns = info.mtime_ns;
    return 1;
}

/* A run folder holds a ledger folder, cases or a run.json. *newest is raised to the last change that a launch or a case makes. */
static int is_run(const fb_os *os, const char *path, int64_t *newest)
{
    static const char *const inside[] = {"ledger", "cases", "run.json"};
    char below[FB_OS_PATH_MAX];
    fb_os_info info;
    int found = 0;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        if (fb_os_join(below, sizeof below, path, inside[i], NULL) != FB_OK || os->stat(os->ctx, below, &info) < 0) continue;
        found = 1;
        if (newest && info.mtime_ns > *newest) *newest = info.mtime_ns;
    }
    return found;
}

typedef struct newest_run {
    const fb_os *os;
    const char *dir;
    char name[256];
    int64_t mtime_ns;
    int found;
} newest_run;

static int64_t visit_run(void *arg, const char *name)
{
    newest_run *best = arg;
    char path[FB_OS_PATH_MAX];
    int64_t mtime_ns = 0;
    if (strlen(name) >= sizeof best->name || fb_os_join(path, sizeof path, best->dir, name, NULL) != FB_OK) return 0;
    if (!is_folder(best->os, path, &mtime_ns) || !is_run(best->os, path, &mtime_ns)) return 0;
    if (best->found && (mtime_ns < best->mtime_ns || (mtime_ns == best->mtime_ns && strcmp(name, best->name) < 0))) return 0;
    best->found = 1;
    best->mtime_ns = mtime_ns;
    (void)snprintf(best->name, sizeof best->name, "%s", name);
    return 0;
}

static fb_status find_newest(const fb_os *os, const char *dir, char folder[FB_OS_PATH_MAX], fb_error *err)
{
    newest_run best;
    int64_t listed;
    memset(&best, 0, sizeof best);
    best.os = os;
    best.dir = dir;
    listed = os->list(os->ctx, dir, visit_run, &best);
    if (listed == -ENOENT) {
        return fb_fail(err, FB_E_NOTFOUND, "find a run: there is no folder %s here; name a run folder, or give --dir", dir);
    }
    if (listed < 0) return fb_fail_os(err, (int)-listed, "find a run in %s", dir);
    if (!best.found) return fb_fail(err, FB_E_NOTFOUND, "find a run: %s holds no run; start one with firstbad run -- COMMAND", dir);
    return fb_os_join(folder, FB_OS_PATH_MAX, dir, best.name, err);
}

/* The last part of a path, and what comes before it; slashes at the end do not count. */
static void split(const char *path, char parent[FB_OS_PATH_MAX], char *last, size_t room)
{
    size_t n = strlen(path), from;
    while (n > 1 && path[n - 1] == '/') n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--) {}
    (void)snprintf(last, room, "%.*s", (int)(n - from), path + from);
    while (from > 1 && path[from - 1] == '/') from--;
    (void)snprintf(parent, FB_OS_PATH_MAX, "%.*s", from ? (int)from : 1, from ? path : ".");
}

/* By its name, or, where that was changed, by what is in it. */
static int names_case(const fb_os *os, const char *path, const char *last, fb_report_target *target)
{
    fb_case_names names;
    if (fb_case_id_parse(last, strlen(last), &target->attempt, &target->step)) return 1;
    if (fb_case_names_read(os, path, &names, NULL) != FB_OK) return 0;
    return fb_case_id_parse(names.case_id, strlen(names.case_id), &target->attempt, &target->step);
}

/* A path: of a run, of a case below one, or of a folder that holds runs. */
static fb_status find_path(const fb_os *os, const char *path, fb_report_target *target, fb_error *err)
{
    char parent[FB_OS_PATH_MAX], last[256], cases[256];
    if (strlen(path) >= sizeof target->folder) return fb_fail(err, FB_E_LIMIT, "find a run: the path is too long");
    if (!is_folder(os, path, NULL)) {
        fb_os_info info;
        return fb_fail(err, FB_E_NOTFOUND, "find a run: %s %s", path,
                       os->stat(os->ctx, path, &info) < 0 ? "is not there" : "is a file; name the folder of a run or of a case");
    }
    if (is_run(os, path, NULL)) {
        (void)snprintf(target->folder, sizeof target->folder, "%s", path);
        return FB_OK;
    }
    split(path, parent, last, sizeof last);
    split(parent, target->folder, cases, sizeof cases);
    if (strcmp(cases, "cases") == 0 && is_folder(os, target->folder, NULL) && names_case(os, path, last, target)) return FB_OK;
    target->attempt = 0;
    target->step = -1;
    return find_newest(os, path, target->folder, err);
}

int fb_report_case_id(const char *text, int32_t *attempt, int64_t *step)
{
    return fb_case_id_parse(text, strlen(text), attempt, step);
}

static int parse_step(const char *name, int64_t *step)
{
    int64_t number = 0;
    const char *c = name;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (number > INT64_MAX / 10 - 1) return 0;
        number = number * 10 + (*c - '0');
    }
    if (c == name || *c) return 0;
    *step = number;
    return 1;
}

fb_status fb_report_find(const fb_os *os, const char *dir, const char *name, fb_report_target *target, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    memset(target, 0, sizeof *target);
    target->step = -1;
    if (!name || !*name) return find_newest(os, dir, target->folder, err);
    if (!strchr(name, '/')) {
        fb_status status = fb_os_join(path, sizeof path, dir, name, err);
        if (status != FB_OK) return status;
        if (is_folder(os, path, NULL) && is_run(os, path, NULL)) {
            (void)snprintf(target->folder, sizeof target->folder, "%s", path);
            return FB_OK;
        }
        if (fb_case_id_parse(name, strlen(name), &target->attempt, &target->step) || parse_step(name, &target->step)) {
            return find_newest(os, dir, target->folder, err);
        }
        if (!is_folder(os, name, NULL)) {
            return fb_fail(err, FB_E_NOTFOUND, "find a run: '%s' is no run in %s, no case, no step and no folder", name, dir);
        }
    }
    return find_path(os, name, target, err);
}
