/* See casefind.h. */
#include "casefind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cli.h"

enum { REPLAYS_MAX = 100000 };

static int exists(const char *folder, const char *name)
{
    const fb_os *os = fb_os_posix();
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    return fb_os_join(path, sizeof path, folder, name, NULL) == FB_OK && os->stat(os->ctx, path, &info) >= 0;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static fb_status absolute(const char *path, char out[FB_OS_PATH_MAX], fb_error *err)
{
    const fb_os *os = fb_os_posix();
    int64_t got = os->realpath(os->ctx, path, out, FB_OS_PATH_MAX);
    return got < 0 ? fb_fail_os(err, (int)-got, "find %s", path) : FB_OK;
}

/* A path that needs no run around it: 1 when it is one, with place->bundle and, when it lies in a case, place->folder. */
static int find_by_path(case_place *place, const char *name)
{
    char *slash;
    if (exists(name, "bundle.json")) {
        if (absolute(name, place->bundle, NULL) != FB_OK) return 0;
        place->is_minimal = strcmp(last_part(place->bundle), "bundle-min") == 0;
        (void)snprintf(place->folder, sizeof place->folder, "%s", place->bundle);
        slash = strrchr(place->folder, '/');
        if (slash) *slash = '\0';
        if (exists(place->folder, "first_bad.json")) return 1;
        place->folder[0] = '\0';
        return 1;
    }
    if (!exists(name, "bundle/bundle.json") || absolute(name, place->folder, NULL) != FB_OK) return 0;
    return fb_os_join(place->bundle, sizeof place->bundle, place->folder, "bundle", NULL) == FB_OK;
}

static fb_status find_by_report(case_place *place, const char *dir, const char *name, fb_error *err)
{
    const fb_os *os = fb_os_posix();
    const char *set = getenv("FIRSTBAD_DIR");
    fb_report_target target;
    fb_status status;
    if (!dir) dir = set && *set ? set : CLI_DIR_DEFAULT;
    if ((status = fb_report_find(os, dir, name, &target, err)) != FB_OK) return status;
    if ((status = fb_report_load_target(os, &target, &place->report, err)) != FB_OK) return status;
    if (!place->report->has_case)
        return fb_fail(err, FB_E_NOTFOUND, "find a case in %s: the run has none%s", place->report->folder,
                       name ? "" : "; it is the newest, and an older one has to be named");
    if (!place->report->case_folder[0])
        return fb_fail(err, FB_E_NOTFOUND, "find case %s of %s: its folder is gone, and with it what a replay needs",
                       place->report->case_id, place->report->folder);
    if ((status = absolute(place->report->case_folder, place->folder, err)) != FB_OK) return status;
    return fb_os_join(place->bundle, sizeof place->bundle, place->folder, "bundle", err);
}

fb_status case_find(case_place *place, const char *dir, const char *name, fb_error *err)
{
    fb_status status = FB_OK;
    memset(place, 0, sizeof *place);
    if (!name || !find_by_path(place, name)) status = find_by_report(place, dir, name, err);
    (void)snprintf(place->id, sizeof place->id, "%.63s", last_part(place->folder[0] ? place->folder : place->bundle));
    return status;
}

void case_release(case_place *place)
{
    fb_report_free(place->report);
    place->report = NULL;
}

/* ---- replays ----------------------------------------------------------------------------------------------------------------- */

static fb_status replays_of(const case_place *place, char out[FB_OS_PATH_MAX], fb_error *err)
{
    if (place->folder[0]) return fb_os_join(out, FB_OS_PATH_MAX, place->folder, "replays", err);
    if (snprintf(out, FB_OS_PATH_MAX, "%s-replays", place->bundle) >= FB_OS_PATH_MAX)
        return fb_fail(err, FB_E_LIMIT, "name a folder beside %s: the path is too long", place->bundle);
    return FB_OK;
}

/* "007" is 7; anything else 0. */
static int32_t number_of(const char *name)
{
    int32_t number = 0;
    size_t n = strlen(name);
    if (n < 3 || n > 6 || strspn(name, "0123456789") != n) return 0;
    for (; *name; name++) number = 10 * number + (*name - '0');
    return number;
}

typedef struct newest {
    int32_t number, below;
} newest;

static int64_t keep_newest(void *arg, const char *name)
{
    newest *best = arg;
    int32_t number = number_of(name);
    if (number > best->number && number < best->below) best->number = number;
    return 0;
}

/* The newest replay before number `below`: 0 when there is none. */
static int32_t newest_before(const char *replays, int32_t below)
{
    const fb_os *os = fb_os_posix();
    newest best = {0, below};
    (void)os->list(os->ctx, replays, keep_newest, &best);
    return best.number;
}

/* The newest replay folder that holds `name`. */
static int newest_with(const case_place *place, const char *name, char out[FB_OS_PATH_MAX])
{
    char replays[FB_OS_PATH_MAX], text[16];
    if (replays_of(place, replays, NULL) != FB_OK) return 0;
    for (int32_t number = REPLAYS_MAX; (number = newest_before(replays, number)) > 0;) {
        (void)snprintf(text, sizeof text, "%03d", number);
        if (fb_os_join(out, FB_OS_PATH_MAX, replays, text, NULL) == FB_OK && exists(out, name)) return 1;
    }
    return 0;
}

fb_status case_minimal_bundle(const case_place *place, char path[FB_OS_PATH_MAX], fb_error *err)
{
    char folder[FB_OS_PATH_MAX];
    if (place->is_minimal) {
        (void)snprintf(path, FB_OS_PATH_MAX, "%s", place->bundle);
        return FB_OK;
    }
    if (place->folder[0] && exists(place->folder, "bundle-min/bundle.json"))
        return fb_os_join(path, FB_OS_PATH_MAX, place->folder, "bundle-min", err);
    if (newest_with(place, "bundle-min/bundle.json", folder)) return fb_os_join(path, FB_OS_PATH_MAX, folder, "bundle-min", err);
    return fb_fail(err, FB_E_NOTFOUND, "find the smallest batch of case %s: none was made; firstbad bisect %s makes one", place->id,
                   place->folder[0] ? place->id : place->bundle);
}

fb_status case_located(const case_place *place, fb_locate_file *out, fb_error *err)
{
    char folder[FB_OS_PATH_MAX];
    if (newest_with(place, "locate.json", folder) && fb_locate_read(out, fb_os_posix(), folder, err) == FB_OK) return FB_OK;
    if (!place->folder[0]) return fb_fail(err, FB_E_NOTFOUND, "read what was located of %s: nobody looked", place->id);
    return fb_locate_read(out, fb_os_posix(), place->folder, err);
}

/* A case of somebody else, or in an archive: a copy is as good. */
static fb_status cannot_write(const char *replays, fb_error *err)
{
    fb_error why = *err;
    if (why.os_errno != EACCES && why.os_errno != EROFS && why.os_errno != EPERM) return why.code;
    (void)fb_fail_os(err, why.os_errno, "make a folder for results in %.2000s (a copy of the case can be replayed as well)",
                     replays);
    return why.code;
}

fb_status case_new_replay(const case_place *place, char path[FB_OS_PATH_MAX], fb_error *err)
{
    const fb_os *os = fb_os_posix();
    char replays[FB_OS_PATH_MAX], text[16];
    fb_status status = replays_of(place, replays, err);
    if (status == FB_OK && (status = fb_os_mkdirs(os, replays, err)) != FB_OK) return cannot_write(replays, err);
    for (int32_t number = newest_before(replays, REPLAYS_MAX) + 1; status == FB_OK; number++) {
        int64_t made;
        if (number >= REPLAYS_MAX)
            return fb_fail(err, FB_E_LIMIT, "make a folder in %s: there are %d already", replays, number - 1);
        (void)snprintf(text, sizeof text, "%03d", number);
        if ((status = fb_os_join(path, FB_OS_PATH_MAX, replays, text, err)) != FB_OK) break;
        made = os->mkdir(os->ctx, path, 0777);
        if (made >= 0) return FB_OK;
        if (made != -EEXIST) {
            (void)fb_fail_os(err, (int)-made, "make folder %s", path);
            return cannot_write(replays, err);
        }
    }
    return status;
}
