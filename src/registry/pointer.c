/*
 * Files in a folder of checkpoints that name the one to resume from: `latest` (a name, as text or as a symbolic link) and
 * `latest_checkpointed_iteration.txt` (a decimal iteration, or "release"). One that names a quarantined checkpoint is set to the
 * newest committed one; where there is none it is left as it is, since any other answer would be a guess.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "registry/keep.h"

enum { LATEST = 0, LATEST_LINK = 1, ITERATION = 2, KINDS = 3, TEXT_BYTES_MAX = 4096 };

static const char *const FILES[KINDS] = {"latest", "latest", "latest_checkpointed_iteration.txt"};

typedef struct pointer {
    int kind;
    char path[FB_OS_PATH_MAX];
    char text[TEXT_BYTES_MAX + 1]; /* what it says, without white space at its end */
    int newline;                   /* it ends in one */
} pointer;

/* "iter_0000400" -> "400". 0 when the name is no such one. */
static int iteration_of(const char *name, char *text, size_t room)
{
    size_t n = strlen(name);
    if (strcmp(name, "release") == 0) return snprintf(text, room, "release") > 0;
    if (strncmp(name, "iter_", 5) != 0 || n == 5 || n > 24 || strspn(name + 5, "0123456789") != n - 5) return 0;
    return snprintf(text, room, "%llu", strtoull(name + 5, NULL, 10)) > 0;
}

/* What a pointer says when it means this checkpoint. 0 when it cannot mean it. */
static int word_for(int kind, const char *name, char *text, size_t room)
{
    if (kind == ITERATION) return iteration_of(name, text, room);
    return snprintf(text, room, "%s", name) > 0;
}

static int read_text(const fb_os *os, pointer *p)
{
    char *data;
    size_t bytes;
    if (fb_os_read_file(os, p->path, TEXT_BYTES_MAX, &data, &bytes, NULL) != FB_OK) return 0;
    p->newline = bytes > 0 && data[bytes - 1] == '\n';
    while (bytes > 0 && strchr(" \t\r\n", data[bytes - 1])) bytes--;
    memcpy(p->text, data, bytes);
    p->text[bytes] = '\0';
    fb_free(data);
    return 1;
}

/* 1 when there is such a pointer. */
static int look(const fb_os *os, const char *dir, int kind, pointer *p)
{
    fb_os_info info;
    memset(p, 0, sizeof *p);
    p->kind = kind;
    if (fb_os_join(p->path, sizeof p->path, dir, FILES[kind], NULL) != FB_OK) return 0;
    if (os->lstat(os->ctx, p->path, &info) != 0) return 0;
    if (kind != LATEST_LINK) return info.kind == FB_OS_FILE && read_text(os, p);
    return info.kind == FB_OS_OTHER && os->readlink(os->ctx, p->path, p->text, sizeof p->text) > 0;
}

/* "./a/b/" -> "./a/" and "b": what names a folder, with the slash, and the name in it. */
static void split_text(const pointer *p, char folder[TEXT_BYTES_MAX + 1], char name[TEXT_BYTES_MAX + 1])
{
    size_t end = strlen(p->text), begin;
    while (end > 1 && p->text[end - 1] == '/') end--;
    for (begin = end; begin > 0 && p->text[begin - 1] != '/'; begin--) {}
    (void)snprintf(folder, TEXT_BYTES_MAX + 1, "%.*s", (int)begin, p->text);
    (void)snprintf(name, TEXT_BYTES_MAX + 1, "%.*s", (int)(end - begin), p->text + begin);
}

/* Trainers write a name, "./NAME", "NAME/", or the whole path. */
static int names_it(const fb_os *os, const pointer *p, const fb_place *place)
{
    char word[300], folder[TEXT_BYTES_MAX + 1], name[TEXT_BYTES_MAX + 1], from[FB_OS_PATH_MAX], real[FB_OS_PATH_MAX];
    split_text(p, folder, name);
    if (!word_for(p->kind, place->name, word, sizeof word) || strcmp(name, word) != 0) return 0;
    if (!folder[0]) return 1;
    if (folder[0] == '/') (void)snprintf(from, sizeof from, "%s", folder);
    else if (fb_os_join(from, sizeof from, place->dir, folder, NULL) != FB_OK) return 0;
    return os->realpath(os->ctx, from, real, sizeof real) >= 0 && strcmp(real, place->dir) == 0;
}

/* The newest committed one in the folder that this kind of pointer can name. */
static int find_word(const fb_registry_store *store, const fb_place *place, int kind, char *word, size_t room)
{
    const fb_registry_row *best = NULL;
    for (uint64_t i = 0; i < store->table.count; i++) {
        const fb_registry_row *row = &store->table.rows[i];
        fb_place found;
        char text[300];
        if (row->rec.state != FB_CKPT_COMMITTED || row->rec.origin.bytes || !fb_place_in(row->rec.path, place->dir)) continue;
        if (best &&
            (fb_newer(&row->rec, &best->rec) < 0 || (fb_newer(&row->rec, &best->rec) == 0 && row->sequence < best->sequence)))
            continue;
        if (strcmp(row->path, place->path) == 0 || !fb_place_taken(store->os, row->path)) continue;
        if (fb_place_split(&found, row->rec.path, NULL) != FB_OK || !word_for(kind, found.name, text, sizeof text)) continue;
        (void)snprintf(word, room, "%s", text);
        best = row;
    }
    return best != NULL;
}

/* A link is replaced as a file is: made under another name, and renamed. */
static fb_status replace_link(const fb_os *os, const char *dir, const char *path, const char *word, fb_error *err)
{
    char temp[FB_OS_PATH_MAX];
    int64_t got;
    fb_status status = fb_os_join(temp, sizeof temp, dir, ".latest.firstbad", err);
    if (status != FB_OK) return status;
    (void)os->unlink(os->ctx, temp);
    got = os->symlink(os->ctx, word, temp);
    if (got == 0) got = os->rename(os->ctx, temp, path);
    if (got == 0) got = fb_os_sync_dir(os, dir);
    return got < 0 ? fb_fail_os(err, (int)-got, "set the link %s to %s", path, word) : FB_OK;
}

static fb_status set(const fb_os *os, const fb_place *place, const pointer *p, const char *word, fb_error *err)
{
    char text[TEXT_BYTES_MAX + 320], folder[TEXT_BYTES_MAX + 1], name[TEXT_BYTES_MAX + 1];
    if (p->kind == LATEST_LINK) return replace_link(os, place->dir, p->path, word, err);
    split_text(p, folder, name); /* who reads whole paths gets one */
    (void)snprintf(text, sizeof text, "%s%s%s", folder, word, p->newline ? "\n" : "");
    return fb_os_replace(os, place->dir, FILES[p->kind], text, strlen(text), err);
}

fb_status fb_pointers_set(const fb_registry_store *store, const fb_place *place, uint64_t *done, fb_error *err)
{
    fb_status first = FB_OK;
    for (int kind = 0; kind < KINDS; kind++) {
        pointer p;
        char word[300];
        fb_status status;
        if (!look(store->os, place->dir, kind, &p) || !names_it(store->os, &p, place)) continue;
        if (!find_word(store, place, kind, word, sizeof word)) continue;
        status = set(store->os, place, &p, word, first == FB_OK ? err : NULL);
        if (status == FB_OK && done) ++*done;
        if (first == FB_OK) first = status;
    }
    return first;
}

void fb_pointers_tell(const fb_registry_store *store, const fb_place *place, char *text, size_t room)
{
    size_t used = 0;
    if (room) text[0] = '\0';
    for (int kind = 0; kind < KINDS; kind++) {
        pointer p;
        char word[300];
        if (!look(store->os, place->dir, kind, &p) || !names_it(store->os, &p, place)) continue;
        if (find_word(store, place, kind, word, sizeof word)) {
            (void)snprintf(text + used, room - used, "; %s is set to %s", FILES[kind], word);
        } else {
            (void)snprintf(text + used, room - used, "; %s still names it, since no committed checkpoint is beside it",
                           FILES[kind]);
        }
        used = strlen(text);
    }
}
