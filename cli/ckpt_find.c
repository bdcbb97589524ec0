/* From a path that somebody typed to the registries that know it, and what they say. */
#include "ckpt.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "report/report.h"

/* ---- paths ------------------------------------------------------------------------------------------------------------------- */

/* The folder of a path and its last part, slashes at the end left out. */
static void split(const char *path, char folder[FB_OS_PATH_MAX], char name[FB_OS_PATH_MAX])
{
    size_t n = strlen(path), from;
    while (n > 1 && path[n - 1] == '/') n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--) {}
    (void)snprintf(name, FB_OS_PATH_MAX, "%.*s", (int)(n - from), path + from);
    while (from > 1 && path[from - 1] == '/') from--;
    (void)snprintf(folder, FB_OS_PATH_MAX, "%.*s", from ? (int)from : 1, from ? path : ".");
}

int ckpt_absolute(const fb_os *os, const char *path, char out[FB_OS_PATH_MAX])
{
    char folder[FB_OS_PATH_MAX], name[FB_OS_PATH_MAX], parent[FB_OS_PATH_MAX];
    fb_error err;
    int64_t got;
    if (strlen(path) >= FB_OS_PATH_MAX) {
        cli_error("look for %.200s: the path is too long", path);
        return 0;
    }
    got = os->realpath(os->ctx, path, out, FB_OS_PATH_MAX);
    if (got >= 0) return 1;
    split(path, folder, name);
    if (got == -ENOENT && os->realpath(os->ctx, folder, parent, sizeof parent) >= 0 && strcmp(name, "..") != 0) {
        if (fb_os_join(out, FB_OS_PATH_MAX, strcmp(parent, "/") == 0 ? "" : parent, name, &err) == FB_OK) return 1;
        cli_error("%s", err.message);
        return 0;
    }
    cli_error("look for %s: %s", path, strerror((int)-got));
    return 0;
}

const char *ckpt_short(const fb_os *os, const char *path, char out[FB_OS_PATH_MAX])
{
    char here[FB_OS_PATH_MAX];
    size_t n;
    if (os->realpath(os->ctx, ".", here, sizeof here) < 0) return path;
    n = strlen(here);
    if (n == 1 || strncmp(path, here, n) != 0 || path[n] != '/') return path;
    (void)snprintf(out, FB_OS_PATH_MAX, "%s", path + n + 1);
    return out;
}

/* 1 if path is `dir` or lies below it. */
static int is_below(const char *path, uint32_t bytes, const char *dir)
{
    size_t n = strlen(dir);
    if (n == 1) return 1; /* "/" */
    return bytes >= n && memcmp(path, dir, n) == 0 && (bytes == n || path[n] == '/');
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

void ckpt_set_release(ckpt_set *set)
{
    for (uint64_t i = 0; i < set->count; i++) fb_free(set->rows[i].text);
    for (uint64_t i = 0; i < set->home_count; i++) fb_free(set->homes[i]);
    fb_free(set->rows);
    fb_free(set->homes);
    memset(set, 0, sizeof *set);
}

static void keep_text(char **at, fb_text *text)
{
    if (text->bytes) memcpy(*at, text->data, text->bytes);
    (*at)[text->bytes] = '\0';
    text->data = *at;
    *at += text->bytes + 1;
}

static fb_status keep_row(ckpt_set *set, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    ckpt_row *row;
    char *at;
    if (set->count == set->room) {
        uint64_t room = set->room ? set->room * 2 : 64;
        ckpt_row *grown = fb_realloc(set->rows, (size_t)room * sizeof *grown);
        if (!grown) return fb_fail(err, FB_E_NOMEM, "list checkpoints: no memory for %llu records", (unsigned long long)room);
        set->rows = grown;
        set->room = room;
    }
    row = &set->rows[set->count];
    row->rec = *rec;
    row->sequence = sequence;
    row->time_ns = time_ns;
    row->home = set->homes[set->home_count - 1];
    row->text = at = fb_calloc((size_t)rec->path.bytes + rec->tensor.bytes + rec->aside.bytes + rec->pin_path.bytes +
                                   rec->origin.bytes + rec->note.bytes + 6,
                               1);
    if (!at) return fb_fail(err, FB_E_NOMEM, "list checkpoints: no memory for a record");
    keep_text(&at, &row->rec.path);
    keep_text(&at, &row->rec.tensor);
    keep_text(&at, &row->rec.aside);
    keep_text(&at, &row->rec.pin_path);
    keep_text(&at, &row->rec.origin);
    keep_text(&at, &row->rec.note);
    set->count++;
    return FB_OK;
}

static fb_status take_record(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    ckpt_set *set = ctx;
    int wanted = set->dir[0] == '\0' || is_below(rec->path.data, rec->path.bytes, set->dir) ||
                 is_below(rec->origin.data, rec->origin.bytes, set->dir) || is_below(rec->aside.data, rec->aside.bytes, set->dir) ||
                 is_below(rec->pin_path.data, rec->pin_path.bytes, set->dir);
    return wanted ? keep_row(set, rec, sequence, time_ns, err) : FB_OK;
}

typedef struct gathering {
    const fb_os *os;
    ckpt_set *set;
} gathering;

static fb_status take_home(void *ctx, const char *home, fb_error *err)
{
    gathering *g = ctx;
    ckpt_set *set = g->set;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    char **grown = fb_realloc(set->homes, (size_t)(set->home_count + 1) * sizeof *grown);
    if (!grown) return fb_fail(err, FB_E_NOMEM, "list checkpoints: no memory for a name");
    set->homes = grown;
    set->homes[set->home_count] = fb_strdup(home);
    if (!set->homes[set->home_count]) return fb_fail(err, FB_E_NOMEM, "list checkpoints: no memory for a name");
    set->home_count++;
    return set->trail ? fb_registry_trail(g->os, home, take_record, set, err)
                      : fb_registry_each(g->os, home, take_record, set, err);
}

int ckpt_gather(const ckpt_request *request, const char *path, int trail, ckpt_set *set)
{
    gathering g = {request->os, set};
    char folder[FB_OS_PATH_MAX], name[FB_OS_PATH_MAX];
    fb_report_target target;
    fb_os_info info;
    fb_error err;
    fb_status status;
    set->trail = trail;
    if (!path) {
        if (fb_report_find(request->os, request->runs_dir, NULL, &target, &err) != FB_OK) return cli_fail(&err);
        return take_home(&g, target.folder, &err) == FB_OK ? 0 : cli_fail(&err);
    }
    if (!ckpt_absolute(request->os, path, set->dir)) return CLI_UNREADABLE;
    (void)snprintf(folder, sizeof folder, "%s", set->dir);
    if (request->os->stat(request->os->ctx, folder, &info) < 0) split(set->dir, folder, name);
    /* A registry that was asked for by itself gives all it has. */
    if (fb_os_join(name, sizeof name, set->dir, FB_REGISTRY_FILE, NULL) == FB_OK &&
        request->os->stat(request->os->ctx, name, &info) >= 0) {
        (void)snprintf(folder, sizeof folder, "%s", set->dir);
        set->dir[0] = '\0';
        return take_home(&g, folder, &err) == FB_OK ? 0 : cli_fail(&err);
    }
    status = fb_registry_homes(request->os, folder, request->runs_dir, take_home, &g, &err);
    return status == FB_OK ? 0 : cli_fail(&err);
}

static int is_path(const fb_text *text, const char *path)
{
    return text->bytes == strlen(path) && memcmp(text->data, path, text->bytes) == 0;
}

const ckpt_row *ckpt_row_of(const ckpt_set *set, const char *absolute)
{
    const ckpt_row *best = NULL;
    int best_is_own = 0;
    for (uint64_t i = 0; i < set->count; i++) {
        const ckpt_row *row = &set->rows[i];
        int own = is_path(&row->rec.path, absolute) || is_path(&row->rec.aside, absolute);
        if (!own && !is_path(&row->rec.pin_path, absolute)) continue;
        if (own && !best_is_own) best = NULL; /* what is recorded for the path itself counts before what it is the pin of */
        if (best && (own < best_is_own || row->time_ns < best->time_ns)) continue;
        best = row;
        best_is_own = own;
    }
    return best;
}
