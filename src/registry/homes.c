/* Which registries know of the checkpoints in a folder. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "registry/keep.h"

enum { HOMES_BYTES_MAX = 1 << 20, HOMES_MAX = 10000 };

/* ---- the list beside the checkpoints ---------------------------------------------------------------------------------------- */

typedef struct lines {
    char *data;
    size_t bytes, at;
} lines;

/* The next line, NUL-terminated in place; NULL at the end. */
static char *next_line(lines *l)
{
    char *line, *end;
    if (l->at >= l->bytes) return NULL;
    line = l->data + l->at;
    end = memchr(line, '\n', l->bytes - l->at);
    if (!end) end = l->data + l->bytes; /* there is a NUL behind the last byte */
    l->at = (size_t)(end - l->data) + 1;
    *end = '\0';
    return line;
}

/* Files of others are not followed out of the folder: a link, or a pipe, is no list. */
static fb_status read_lines(lines *l, const fb_os *os, const char *path, fb_error *err)
{
    fb_os_info info;
    memset(l, 0, sizeof *l);
    if (os->lstat(os->ctx, path, &info) != 0 || info.kind != FB_OS_FILE) return FB_OK;
    return fb_os_read_file(os, path, HOMES_BYTES_MAX, &l->data, &l->bytes, err);
}

static int is_listed(const fb_os *os, const char *path, const char *home, int *empty)
{
    lines l;
    char *line;
    int found = 0;
    *empty = 1;
    if (read_lines(&l, os, path, NULL) != FB_OK) return 0;
    *empty = l.bytes == 0;
    while (!found && (line = next_line(&l)) != NULL) found = strcmp(line, home) == 0;
    fb_free(l.data);
    return found;
}

static int64_t append_line(const fb_os *os, const char *path, const char *home, int empty)
{
    char text[FB_OS_PATH_MAX + 2];
    int64_t fd = fb_os_open(os, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0666), got;
    if (fd < 0) return fd;
    /* One write at the end of the file, so that runs which do so at once lose nothing; and a line
     * that a crash cut short is ended first. */
    (void)snprintf(text, sizeof text, "%s%s\n", empty ? "" : "\n", home);
    got = fb_os_write_all(os, (int)fd, text, strlen(text));
    if (got == 0) got = fb_os_fsync(os, (int)fd);
    (void)os->close(os->ctx, (int)fd);
    return got == 0 ? fb_os_sync_parent(os, path) : got;
}

fb_status fb_homes_add(const fb_os *os, const char *dir, const char *home, fb_error *err)
{
    char folder[FB_OS_PATH_MAX], path[FB_OS_PATH_MAX], absolute[FB_OS_PATH_MAX];
    int empty;
    int64_t got;
    fb_status status = fb_place_below(folder, sizeof folder, dir, "", err);
    if (status == FB_OK) status = fb_os_join(path, sizeof path, folder, "homes", err);
    if (status != FB_OK) return status;
    got = os->realpath(os->ctx, home, absolute, sizeof absolute);
    if (got < 0) return fb_fail_os(err, (int)-got, "find %s", home);
    if (strcmp(absolute, folder) == 0 || strchr(absolute, '\n') || is_listed(os, path, absolute, &empty)) return FB_OK;
    if ((status = fb_place_make(os, folder, err)) != FB_OK) return status;
    got = append_line(os, path, absolute, empty);
    return got < 0 ? fb_fail_os(err, (int)-got, "name %s in %s", absolute, path) : FB_OK;
}

/* ---- the search ------------------------------------------------------------------------------------------------------------- */

typedef struct search {
    const fb_os *os;
    fb_registry_home_fn fn;
    void *ctx;
    fb_error *err;
    fb_status status;
    const char *runs_dir;
    char **told;
    uint64_t count, room;
} search;

static int was_told(const search *s, const char *home)
{
    for (uint64_t i = 0; i < s->count; i++) {
        if (strcmp(s->told[i], home) == 0) return 1;
    }
    return 0;
}

static fb_status remember(search *s, const char *home)
{
    if (s->count == HOMES_MAX) return fb_fail(s->err, FB_E_LIMIT, "find registries: more than %d", HOMES_MAX);
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 8;
        char **grown = fb_realloc(s->told, (size_t)room * sizeof *grown);
        if (!grown) return fb_fail(s->err, FB_E_NOMEM, "find registries: no memory for %llu", (unsigned long long)room);
        s->told = grown;
        s->room = room;
    }
    s->told[s->count] = fb_strdup(home);
    if (!s->told[s->count]) return fb_fail(s->err, FB_E_NOMEM, "find registries: no memory for a path");
    s->count++;
    return FB_OK;
}

/* Told when there is a registry, once. */
static fb_status tell(search *s, const char *path)
{
    char home[FB_OS_PATH_MAX];
    fb_status status;
    if (path[0] != '/') return FB_OK; /* an empty line, or half of one */
    if (s->os->realpath(s->os->ctx, path, home, sizeof home) < 0) return FB_OK;
    if (was_told(s, home) || !fb_registry_exists(s->os, home)) return FB_OK;
    if ((status = remember(s, home)) != FB_OK) return status;
    return s->fn(s->ctx, home, s->err);
}

static fb_status tell_listed(search *s, const char *folder)
{
    char path[FB_OS_PATH_MAX], *line;
    lines l;
    fb_status status = fb_os_join(path, sizeof path, folder, "homes", s->err);
    if (status == FB_OK) status = read_lines(&l, s->os, path, s->err);
    if (status != FB_OK) return status;
    while (status == FB_OK && (line = next_line(&l)) != NULL) status = tell(s, line);
    fb_free(l.data);
    return status;
}

/* Who knows of checkpoints that lie directly in dir. */
static fb_status tell_beside(search *s, const char *dir)
{
    char folder[FB_OS_PATH_MAX];
    fb_status status = fb_place_below(folder, sizeof folder, dir, "", s->err);
    if (status != FB_OK) return status == FB_E_LIMIT ? FB_OK : status;
    if (fb_place_is_ours(s->os, folder, NULL) != FB_OK) return FB_OK; /* a link: what it leads to was not put there by us */
    if ((status = tell_listed(s, folder)) != FB_OK) return status;
    return tell(s, folder);
}

static int64_t tell_run(void *arg, const char *name)
{
    search *s = arg;
    char path[FB_OS_PATH_MAX];
    if (fb_os_join(path, sizeof path, s->runs_dir, name, NULL) == FB_OK) s->status = tell(s, path);
    return s->status != FB_OK;
}

static fb_status tell_runs(search *s, const char *runs_dir)
{
    char absolute[FB_OS_PATH_MAX];
    int64_t got;
    if (s->os->realpath(s->os->ctx, runs_dir, absolute, sizeof absolute) < 0) return FB_OK;
    s->runs_dir = absolute;
    got = s->os->list(s->os->ctx, absolute, tell_run, s);
    s->runs_dir = NULL;
    if (s->status != FB_OK) return s->status;
    return got < 0 && got != -ENOTDIR ? fb_fail_os(s->err, (int)-got, "list the runs in %s", absolute) : FB_OK;
}

/*
 * A checkpoint, or something in one: whoever knows of it is named in a folder above. Not farther up than checkpoints are deep,
 * since what is named at the top of a disk has no say in everything below.
 */
static fb_status tell_above(search *s, fb_place *place)
{
    fb_os_info info;
    const char *kept = strstr(place->path, "/" FB_PLACE_FOLDER "/");
    int is_folder = s->os->lstat(s->os->ctx, place->path, &info) == 0 && info.kind == FB_OS_FOLDER;
    fb_status status = FB_OK;
    if (kept) { /* a pin, or what was moved aside: it lies deeper, and belongs to the folder around */
        char path[FB_OS_PATH_MAX];
        (void)snprintf(path, sizeof path, "%.*s", (int)(kept - place->path), place->path);
        return tell_beside(s, path);
    }
    for (int up = is_folder; status == FB_OK && up < 3 && strcmp(place->dir, place->path) != 0; up++) {
        char path[FB_OS_PATH_MAX];
        status = tell_beside(s, place->dir);
        (void)snprintf(path, sizeof path, "%s", place->dir);
        if (status == FB_OK && fb_place_split(place, fb_registry_words(path), NULL) != FB_OK) break; /* the root */
    }
    return status;
}

fb_status fb_registry_homes(const fb_os *os, const char *dir, const char *runs_dir, fb_registry_home_fn fn, void *ctx,
                            fb_error *err)
{
    search s;
    fb_place place;
    fb_status status;
    if (!os || !dir || !fn) return fb_fail(err, FB_E_USAGE, "find registries: an argument is NULL");
    memset(&s, 0, sizeof s);
    s.os = os;
    s.fn = fn;
    s.ctx = ctx;
    s.err = err;
    memset(&place, 0, sizeof place);
    status = fb_place_find(&place, os, dir, 1, "find registries for", err);
    if (status == FB_E_USAGE && place.path[0]) status = FB_OK; /* the root of the file system: it is in no folder */
    if (status == FB_OK) status = tell(&s, place.path);
    if (status == FB_OK) status = tell_beside(&s, place.path);
    if (status == FB_OK) status = tell_above(&s, &place);
    if (status == FB_OK && runs_dir) status = tell_runs(&s, runs_dir);
    for (uint64_t i = 0; i < s.count; i++) fb_free(s.told[i]);
    fb_free(s.told);
    return status;
}
