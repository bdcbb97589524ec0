/* firstbad ckpt latest, verify, quarantine and release: each tells in one line what it did, and
 * changes nothing it does not tell. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json_write.h"
#include "ckpt.h"
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
            status = fb_registry_latest_committed(request->os, set.homes[0], how, &found, &err);
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
static int home_of(const ckpt_request *request, const ckpt_set *set, const char *absolute, char home[FB_OS_PATH_MAX])
{
    const ckpt_row *row = ckpt_row_of(set, absolute);
    char folder[FB_OS_PATH_MAX];
    const char *slash = strrchr(absolute, '/');
    fb_error err;
    (void)request;
    if (row) {
        (void)snprintf(home, FB_OS_PATH_MAX, "%s", row->home);
        return 0;
    }
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - absolute), absolute);
    return fb_os_join(home, FB_OS_PATH_MAX, folder[0] ? folder : "/", ".firstbad", &err) == FB_OK ? 0 : cli_fail(&err);
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

/* Its newest record, for the reason of a state. */
static void print_reason(const ckpt_request *request, const char *path)
{
    ckpt_set set;
    const ckpt_row *row = NULL;
    char absolute[FB_OS_PATH_MAX], text[FB_OS_PATH_MAX * 2];
    memset(&set, 0, sizeof set);
    if (ckpt_absolute(request->os, path, absolute) && ckpt_gather(request, path, 0, &set) == 0) row = ckpt_row_of(&set, absolute);
    if (row && row->rec.state != FB_CKPT_COMMITTED) {
        (void)snprintf(text, sizeof text, "%s%s%s", fb_registry_reason_text(row->rec.state, row->rec.reason),
                       row->rec.note.bytes ? "; " : "", row->rec.note.data);
        fb_text_disarm(text);
        printf("             %s\n", text);
    }
    ckpt_set_release(&set);
}

typedef int (*act_fn)(const ckpt_request *request, const char *home, const char *path);

static int each_path(const ckpt_request *request, act_fn act)
{
    int worst = CLI_CLEAN;
    for (int i = 0; i < request->path_count; i++) {
        char absolute[FB_OS_PATH_MAX], home[FB_OS_PATH_MAX];
        ckpt_set set;
        int code;
        memset(&set, 0, sizeof set);
        code = ckpt_absolute(request->os, request->paths[i], absolute) ? 0 : CLI_UNREADABLE;
        if (code == 0) code = ckpt_gather(request, request->paths[i], 0, &set);
        if (code == 0) code = home_of(request, &set, absolute, home);
        ckpt_set_release(&set);
        if (code == 0) code = act(request, home, request->paths[i]);
        /* The gravest, as `scan` has it: something bad, then unreadable, then undecided. */
        if (code == CLI_BAD || worst == CLI_CLEAN || (code == CLI_UNREADABLE && worst == CLI_UNDECIDED)) worst = code;
    }
    return worst == CLI_CLEAN ? cli_flush() : worst;
}

static int verify_one(const ckpt_request *request, const char *home, const char *path)
{
    fb_ckpt_summary summary;
    fb_ckpt_options options;
    fb_ckpt_sink sink;
    scan_bar bar;
    fb_error err;
    int32_t state = FB_CKPT_SUSPECT;
    fb_status status;
    memset(&options, 0, sizeof options);
    memset(&sink, 0, sizeof sink);
    scan_bar_begin(&bar, path, 1);
    status = fb_registry_verify(request->os, home, path, &options, &sink, &summary, &state, &err);
    scan_bar_end(&bar);
    if (status != FB_OK) return cli_fail(&err);
    print_state(state, path, &summary);
    print_reason(request, path);
    return state == FB_CKPT_COMMITTED ? CLI_CLEAN : state == FB_CKPT_QUARANTINED ? CLI_BAD : CLI_UNDECIDED;
}

int ckpt_verify(const ckpt_request *request)
{
    return each_path(request, verify_one);
}

static int quarantine_one(const ckpt_request *request, const char *home, const char *path)
{
    fb_error err;
    if (fb_registry_quarantine(request->os, home, path, request->why, &err) != FB_OK) return cli_fail(&err);
    printf("quarantined  %s\n", path);
    print_reason(request, path);
    return CLI_CLEAN;
}

int ckpt_quarantine(const ckpt_request *request)
{
    return each_path(request, quarantine_one);
}

static int release_one(const ckpt_request *request, const char *home, const char *path)
{
    fb_ckpt_summary summary;
    fb_error err;
    fb_status status = fb_registry_release(request->os, home, path, request->why, &summary, &err);
    if (status == FB_E_WITHHELD) {
        (void)cli_fail(&err);
        return CLI_BAD;
    }
    if (status != FB_OK) return cli_fail(&err);
    print_state(FB_CKPT_COMMITTED, path, &summary);
    return CLI_CLEAN;
}

int ckpt_release(const ckpt_request *request)
{
    return each_path(request, release_one);
}
