#include "registry/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* "/a/b//" -> "/a" and "b". */
static fb_status split(fb_place *place, const char *path, const char *what, fb_error *err)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/') end--;
    begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (begin == end) return fb_fail(err, FB_E_USAGE, "%s %.200s: it names no checkpoint", what, path[0] ? path : "\"\"");
    if (end - begin >= sizeof place->name) {
        return fb_fail(err, FB_E_LIMIT, "%s %.200s...: its name has more than %zu bytes", what, path, sizeof place->name - 1);
    }
    (void)snprintf(place->name, sizeof place->name, "%.*s", (int)(end - begin), path + begin);
    if (strcmp(place->name, ".") == 0 || strcmp(place->name, "..") == 0) {
        return fb_fail(err, FB_E_USAGE, "%s %.200s: it ends in %s, expected the name of a checkpoint", what, path, place->name);
    }
    while (begin > 1 && path[begin - 1] == '/') begin--;
    (void)snprintf(place->dir, sizeof place->dir, "%.*s", (int)begin, path);
    return FB_OK;
}

static fb_status cannot(const char *what, const char *path, int64_t got, fb_error *err)
{
    if (got == -ENOENT || got == -ENOTDIR) return fb_fail(err, FB_E_NOTFOUND, "%s %s: no such file or folder", what, path);
    if (got == -ENAMETOOLONG) return fb_fail(err, FB_E_LIMIT, "%s %.200s: its path is too long", what, path);
    return fb_fail_os(err, (int)-got, "%s %s: find its absolute path", what, path);
}

static fb_status find_free(fb_place *place, const fb_os *os, const char *path, const char *what, fb_error *err)
{
    char dir[FB_OS_PATH_MAX];
    int64_t got;
    fb_status status;
    if (strlen(path) >= FB_OS_PATH_MAX) return cannot(what, path, -ENAMETOOLONG, err);
    if ((status = split(place, path, what, err)) != FB_OK) return status;
    got = os->realpath(os->ctx, place->dir[0] ? place->dir : ".", dir, sizeof dir);
    if (got < 0) return cannot(what, path, got, err);
    (void)snprintf(place->dir, sizeof place->dir, "%s", dir);
    return fb_os_join(place->path, sizeof place->path, dir, place->name, err);
}

fb_status fb_place_find(fb_place *place, const fb_os *os, const char *path, int free, const char *what, fb_error *err)
{
    int64_t got = os->realpath(os->ctx, path, place->path, sizeof place->path);
    if (got == -ENOENT && free) return find_free(place, os, path, what, err);
    if (got < 0) return cannot(what, path, got, err);
    return split(place, place->path, what, err);
}

fb_status fb_place_split(fb_place *place, fb_text path, fb_error *err)
{
    if (path.bytes >= FB_OS_PATH_MAX || path.bytes == 0 || path.data[0] != '/') {
        return fb_fail(err, FB_E_CORRUPT, "read the registry: %.*s is no absolute path", (int)(path.bytes > 200 ? 200 : path.bytes),
                       path.data);
    }
    (void)snprintf(place->path, sizeof place->path, "%.*s", (int)path.bytes, path.data);
    return split(place, place->path, "read the registry", err);
}

/* Where ".firstbad" begins as a part of a path, the last one; NULL if there is none. */
static const char *own_part(const char *path)
{
    static const char part[] = "/" FB_PLACE_FOLDER;
    const char *found = NULL;
    for (const char *at = path; (at = strstr(at, part)) != NULL; at++) {
        if (at[sizeof part - 1] == '/' || at[sizeof part - 1] == '\0') found = at;
    }
    return found;
}

void fb_place_outer(char *dir)
{
    const char *own = own_part(dir);
    const char *rest = own ? own + sizeof FB_PLACE_FOLDER : "";
    if (strncmp(rest, "/pins/", 6) != 0 && strcmp(rest, "/pins") != 0 && strcmp(rest, "/quarantine") != 0 &&
        strncmp(rest, "/quarantine/", 12) != 0) {
        return;
    }
    dir[own == dir ? 1 : own - dir] = '\0';
}

fb_status fb_place_is_ours(const fb_os *os, const char *folder, fb_error *err)
{
    const char *own = own_part(folder);
    char part[FB_OS_PATH_MAX];
    size_t n = strlen(folder);
    if (n >= sizeof part) return fb_fail(err, FB_E_LIMIT, "use folder %.200s...: its path is too long", folder);
    for (size_t at = own ? (size_t)(own - folder) + 1 : n + 1; at <= n; at++) {
        fb_os_info info;
        int64_t got;
        if (folder[at] != '/' && folder[at] != '\0') continue;
        (void)snprintf(part, sizeof part, "%.*s", (int)at, folder);
        got = os->lstat(os->ctx, part, &info);
        if (got == -ENOENT) break;
        if (got == 0 && info.kind == FB_OS_OTHER) {
            return fb_fail(err, FB_E_IO, "use folder %s: it is a symbolic link, expected a folder of firstbad's own", part);
        }
    }
    return FB_OK;
}

fb_status fb_place_make(const fb_os *os, const char *folder, fb_error *err)
{
    fb_status status = fb_place_is_ours(os, folder, err);
    return status == FB_OK ? fb_os_mkdirs(os, folder, err) : status;
}

fb_status fb_place_below(char *out, size_t room, const char *dir, const char *sub, fb_error *err)
{
    char folder[FB_OS_PATH_MAX], outer[FB_OS_PATH_MAX];
    fb_status status;
    (void)snprintf(outer, sizeof outer, "%s", dir);
    fb_place_outer(outer); /* ours is never put into ours */
    status = fb_os_join(folder, sizeof folder, outer, FB_PLACE_FOLDER, err);
    if (status != FB_OK) return status;
    if (!sub[0]) {
        (void)snprintf(out, room, "%s", folder);
        return FB_OK;
    }
    return fb_os_join(out, room, folder, sub, err);
}

int fb_place_in(fb_text path, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 0 && dir[n - 1] == '/') n--; /* "/" itself becomes "" */
    if (path.bytes <= n + 1 || (n && memcmp(path.data, dir, n) != 0) || path.data[n] != '/') return 0;
    return memchr(path.data + n + 1, '/', path.bytes - n - 1) == NULL;
}

int fb_place_has_step(const char *name, int64_t step)
{
    if (step < 0) return 0;
    while (*name) {
        uint64_t value = 0;
        int digits = 0;
        for (; *name >= '0' && *name <= '9'; name++, digits++) {
            value = value > UINT64_MAX / 20 ? UINT64_MAX / 20 + 1 : value * 10 + (uint64_t)(*name - '0');
        }
        if (digits && value == (uint64_t)step) return 1;
        if (!digits) name++;
    }
    return 0;
}

int fb_place_is_same(const fb_rec_ckpt *rec, const fb_os_info *info)
{
    if (rec->inode == 0 || rec->inode != info->inode || rec->mtime_ns != info->mtime_ns) return 0;
    return info->kind != FB_OS_FILE || rec->bytes == 0 || rec->bytes == info->size_bytes;
}

int fb_place_taken(const fb_os *os, const char *path)
{
    fb_os_info info;
    int64_t got = os->lstat(os->ctx, path, &info);
    return got != -ENOENT && got != -ENOTDIR;
}
