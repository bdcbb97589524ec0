/* Quarantined checkpoints are moved out of the way of trainers that resume by globbing names. Nothing is deleted or replaced. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registry/keep.h"
#include "registry/statefile.h"

enum { NAMES_MAX = 10000, TRIES_MAX = 16 };

fb_status fb_aside_place(fb_place *place, const fb_rec_ckpt *rec, fb_error *err)
{
    return fb_place_split(place, rec->origin.bytes ? rec->origin : rec->path, err);
}

fb_status fb_aside_plan(const fb_os *os, const fb_place *place, char *path, size_t room, fb_error *err)
{
    char folder[FB_OS_PATH_MAX], name[300];
    fb_status status = fb_place_below(folder, sizeof folder, place->dir, "quarantine", err);
    for (int i = 1; status == FB_OK && i < NAMES_MAX; i++) {
        if (i == 1) (void)snprintf(name, sizeof name, "%s", place->name);
        else (void)snprintf(name, sizeof name, "%s.%d", place->name, i);
        if ((status = fb_os_join(path, room, folder, name, err)) == FB_OK && !fb_place_taken(os, path)) return FB_OK;
    }
    return status == FB_OK ? fb_fail(err, FB_E_LIMIT, "move %s aside: more than %d of that name are there", place->path, NAMES_MAX)
                           : status;
}

/* What is to be moved: the checkpoint itself, or its pin when the trainer removed it. "" when neither is there any more. */
static const char *what_is_left(const fb_os *os, const fb_rec_ckpt *rec)
{
    fb_os_info info;
    if (os->lstat(os->ctx, rec->path.data, &info) == 0 && fb_place_is_same(rec, &info)) return rec->path.data;
    if (rec->pin_path.bytes && !fb_place_taken(os, rec->path.data) && fb_pin_is_there(os, rec)) return rec->pin_path.data;
    return "";
}

static fb_status move(const fb_os *os, const char *from, const char *to, fb_error *err)
{
    fb_place target;
    int64_t got;
    fb_status status = fb_place_split(&target, fb_registry_words(to), err);
    if (status == FB_OK) status = fb_place_make(os, target.dir, err);
    if (status == FB_OK) status = fb_place_is_ours(os, from, err);
    if (status != FB_OK) return status;
    got = os->rename_new(os->ctx, from, to);
    if (got == -EEXIST) return fb_fail(err, FB_E_EXISTS, "move %s aside to %s: the name is taken", from, to);
    if (got == 0) got = fb_os_sync_dir(os, target.dir);
    if (got == 0) got = fb_os_sync_parent(os, from);
    return got < 0 ? fb_fail_os(err, (int)-got, "move %s aside to %s", from, to) : FB_OK;
}

/* Another home moved one of the same name since this was planned. */
static fb_status plan_again(fb_registry_store *store, uint64_t at, const fb_place *place, fb_error *err)
{
    char aside[FB_OS_PATH_MAX];
    fb_rec_ckpt rec = store->table.rows[at].rec;
    fb_status status = fb_aside_plan(store->os, place, aside, sizeof aside, err);
    if (status != FB_OK) return status;
    rec.aside = fb_registry_words(aside);
    return fb_registry_store_append(store, &rec, NULL, err);
}

static fb_status finish_one(fb_registry_store *store, uint64_t at, uint64_t *done, fb_error *err)
{
    fb_place place;
    fb_error why;
    fb_status status = fb_aside_place(&place, &store->table.rows[at].rec, err), pointers;
    for (int i = 0; status == FB_OK && i < TRIES_MAX; i++) {
        const fb_rec_ckpt *rec = &store->table.rows[at].rec;
        const char *from = what_is_left(store->os, rec);
        if (!from[0]) return FB_OK;
        status = move(store->os, from, rec->aside.data, err);
        if (status == FB_E_EXISTS) {
            status = plan_again(store, at, &place, err);
            continue;
        }
        if (status == FB_OK && done) ++*done;
        break;
    }
    if (status == FB_E_EXISTS) status = FB_E_IO;
    /* Even where it could not be moved: a pointer that names it leads a trainer to it. */
    pointers = fb_pointers_set(store, &place, done, &why);
    if (status != FB_OK || pointers == FB_OK) return status;
    if (err) *err = why;
    return pointers;
}

fb_status fb_aside_finish(fb_registry_store *store, uint64_t *done, fb_error *err)
{
    fb_status first = FB_OK;
    uint64_t count = store->table.count; /* records that are added here are of paths that have a row */
    for (uint64_t i = 0; i < count; i++) {
        const fb_rec_ckpt *rec = &store->table.rows[i].rec;
        fb_status status;
        if (rec->state != FB_CKPT_QUARANTINED || rec->aside.bytes == 0 || fb_place_taken(store->os, rec->aside.data)) continue;
        status = finish_one(store, i, done, first == FB_OK ? err : NULL);
        if (first == FB_OK) first = status;
    }
    return first;
}
