/* firstbad ckpt latest, verify, quarantine and release: each tells in one line what it did, and
 * changes nothing it does not tell. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json_write.h"
#include "ckpt.h"
#include "registry/place.h"
#include "report/report.h"
#include "scan_show.h"

/* ---- latest ------------------------------------------------------------------------------------------------------------------ */

static int latest_json(const fb_registry_checkpoint *found, int verified)
{
    fb_json json;
    fb_error err;
    int code;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "path", found->path);
    fb_json_key_int(&json, "step", found->step);
    fb_json_key_int(&json, "attempt", found->attempt);
    fb_json_key_int(&json, "rank", found->rank);
    fb_json_key_uint(&json, "bytes", found->bytes);
    fb_json_key_hex(&json, "digest", found->digest, 16);
    fb_json_key_bool(&json, "verified", verified);
    fb_json_object_end(&json);
    if (fb_json_finish(&json, &err) != FB_OK) code = cli_fail(&err);
    else if ((code = cli_print(fb_json_text(&json))) == 0) code = cli_print("\n");
    fb_json_release(&json);
    return code;
}

/* A folder that does not exist holds no checkpoint, but that is no answer: it was probably mistyped. */
static int is_there(const ckpt_request *request, const char *path)
{
    fb_os_info info;
    int64_t got = request->os->stat(request->os->ctx, path, &info);
    if (got < 0) cli_error("look for a checkpoint in %s: %s", path, strerror((int)-got));
    return got >= 0;
}

/* Standard output carries the path and nothing else, as it is and not disarmed: a script will open it. */
int ckpt_latest(const ckpt_request *request)
{
    fb_registry_checkpoint found;
    ckpt_set set;
    fb_error err;
    fb_status status;
    int how = request->verify ? FB_REGISTRY_VERIFY : FB_REGISTRY_LOOK, code;
    memset(&set, 0, sizeof set);
    if (request->path_count && !is_there(request, request->paths[0])) return CLI_UNREADABLE;
    if ((code = ckpt_gather(request, request->path_count ? request->paths[0] : NULL, 0, &set)) == 0) {
        if (set.dir[0] == '\0' && set.home_count == 1) /* a run that was named: all that it saved, wherever */
            status = fb_registry_latest_of(request->os, set.homes[0], how, request->restore, &found, &err);
        else status = fb_registry_latest_in(request->os, set.dir, request->runs_dir, how, request->restore, &found, &err);
        if (status == FB_OK) {
            code = request->json ? latest_json(&found, request->verify) : cli_print(found.path);
            if (code == 0 && !request->json) code = cli_print("\n");
        } else {
            code = cli_fail(&err);
            if (status == FB_E_NOTFOUND) code = CLI_UNDECIDED;
        }
    }
    ckpt_set_release(&set);
    return code;
}

/* ---- one checkpoint ---------------------------------------------------------------------------------------------------------- */

/* The registry that answers for a checkpoint: the one that spoke of it last, else the one beside it. 0, or an exit code. */
static int home_of(const ckpt_set *set, const char *absolute, char home[FB_OS_PATH_MAX], char known[FB_OS_PATH_MAX])
{
    const ckpt_row *row = ckpt_row_of(set, absolute);
    char folder[FB_OS_PATH_MAX];
    const char *slash = strrchr(absolute, '/');
    fb_error err;
    (void)snprintf(known, FB_OS_PATH_MAX, "%s", row ? row->rec.path.data : absolute);
    if (row) {
        (void)snprintf(home, FB_OS_PATH_MAX, "%s", row->home);
        return 0;
    }
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - absolute), absolute);
    return fb_place_below(home, FB_OS_PATH_MAX, folder[0] ? folder : "/", "", &err) == FB_OK ? 0 : cli_fail(&err);
}

static void print_state(int32_t state, const char *path, const fb_ckpt_summary *summary)
{
    char name[FB_OS_PATH_MAX * 4], bytes[32], tensor[FB_CKPT_NAME_MAX * 4], count[32];
    scan_fit_name(path, FB_OS_PATH_MAX, name, sizeof name);
    printf("%-11s  %s  %s read", fb_registry_state_name(state), name, scan_bytes(summary->bytes, bytes));
    if (summary->bad) {
        scan_fit_name(summary->first_tensor, FB_CKPT_NAME_MAX, tensor, sizeof tensor);
        printf(", %s number%s not finite, first in %s", scan_count(summary->bad, count), summary->bad == 1 ? "" : "s", tensor);
    } else if (summary->outcome == FB_CKPT_CLEAN) {
        printf(", all finite");
    }
    printf("\n");
}

/* Its newest record, for the reason of a state. absolute: from before it was acted on, since it may be elsewhere now. */
static void print_reason(const ckpt_request *request, const char *home, const char *absolute, const char *known)
{
    ckpt_set set;
    const ckpt_row *row = NULL;
    char text[FB_OS_PATH_MAX * 2];
    memset(&set, 0, sizeof set);
    if (ckpt_gather(request, home, 0, &set) == 0) row = ckpt_row_of(&set, absolute);
    if (!row) row = ckpt_row_of(&set, known);
    if (row && row->rec.state != FB_CKPT_COMMITTED) {
        (void)snprintf(text, sizeof text, "%s%s%s", fb_registry_reason_text(row->rec.state, row->rec.reason),
                       row->rec.note.bytes ? "; " : "", row->rec.note.data);
        fb_text_disarm(text);
        printf("             %s\n", text);
    }
    ckpt_set_release(&set);
}

/* What is acted on: as it was typed, its absolute path, and the path under which the registry `home` knows it. */
typedef struct target {
    const char *path;
    char absolute[FB_OS_PATH_MAX], known[FB_OS_PATH_MAX], home[FB_OS_PATH_MAX];
} target;

typedef int (*act_fn)(const ckpt_request *request, const target *t);

static int each_path(const ckpt_request *request, act_fn act)
{
    int worst = CLI_CLEAN;
    for (int i = 0; i < request->path_count; i++) {
        target t;
        ckpt_set set;
        int code;
        memset(&set, 0, sizeof set);
        t.path = request->paths[i];
        code = ckpt_absolute(request->os, t.path, t.absolute) ? 0 : CLI_UNREADABLE;
        if (code == 0) code = ckpt_gather(request, t.path, 0, &set);
        if (code == 0) code = home_of(&set, t.absolute, t.home, t.known);
        ckpt_set_release(&set);
        if (code == 0) code = act(request, &t);
        /* The gravest, as `scan` has it: something bad, then unreadable, then undecided. */
        if (code == CLI_BAD || worst == CLI_CLEAN || (code == CLI_UNREADABLE && worst == CLI_UNDECIDED)) worst = code;
    }
    return worst == CLI_CLEAN ? cli_flush() : worst;
}

static void show_progress(void *ctx, const char *file, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)file;
    scan_bar_progress(ctx, done_bytes, total_bytes);
}

static int verify_one(const ckpt_request *request, const target *t)
{
    fb_ckpt_summary summary;
    fb_ckpt_sink sink;
    scan_bar bar;
    fb_error err;
    int32_t state = FB_CKPT_SUSPECT;
    fb_status status;
    memset(&sink, 0, sizeof sink);
    sink.ctx = &bar;
    sink.progress = show_progress;
    scan_bar_begin(&bar, t->path, 1);
    status = fb_registry_verify(request->os, t->home, t->path, NULL, &sink, &summary, &state, &err);
    scan_bar_end(&bar);
    if (status != FB_OK) return cli_fail(&err);
    print_state(state, t->path, &summary);
    print_reason(request, t->home, t->absolute, t->known);
    return state == FB_CKPT_COMMITTED ? CLI_CLEAN : state == FB_CKPT_QUARANTINED ? CLI_BAD : CLI_UNDECIDED;
}

int ckpt_verify(const ckpt_request *request)
{
    return each_path(request, verify_one);
}

static int quarantine_one(const ckpt_request *request, const target *t)
{
    char name[FB_OS_PATH_MAX * 4];
    fb_error err;
    if (fb_registry_quarantine(request->os, t->home, t->path, request->why, &err) != FB_OK) return cli_fail(&err);
    scan_fit_name(t->path, FB_OS_PATH_MAX, name, sizeof name);
    printf("quarantined  %s\n", name);
    print_reason(request, t->home, t->absolute, t->known);
    return CLI_CLEAN;
}

int ckpt_quarantine(const ckpt_request *request)
{
    return each_path(request, quarantine_one);
}

static int release_one(const ckpt_request *request, const target *t)
{
    char place[FB_OS_PATH_MAX];
    fb_ckpt_summary summary;
    fb_error err;
    fb_status status = fb_registry_release(request->os, t->home, t->path, request->why, &summary, &err);
    if (status == FB_E_WITHHELD) {
        (void)cli_fail(&err);
        return CLI_BAD;
    }
    if (status != FB_OK) return cli_fail(&err);
    print_state(FB_CKPT_COMMITTED, ckpt_short(request->os, t->known, place), &summary);
    return CLI_CLEAN;
}

int ckpt_release(const ckpt_request *request)
{
    return each_path(request, release_one);
}
