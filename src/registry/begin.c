/*
 * Before a trainer writes over a name: what is committed there is moved to a pin of its own. In this order, under one lock:
 *   1. record the pin as a checkpoint that is committed        2. move        3. record that the name is suspect from here on
 * A crash after 1 leaves a record of a pin that is not there, which nobody is given; one after 2 leaves the pin, and a name without
 * bytes, which nobody is given either.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registry/keep.h"

static fb_status move(const fb_os *os, const fb_place *from, const char *to, fb_error *err)
{
    fb_place target;
    int64_t got;
    fb_status status = fb_place_split(&target, fb_registry_words(to), err);
    if (status != FB_OK) return status;
    got = os->rename_new(os->ctx, from->path, to);
    if (got == 0) got = fb_os_sync_dir(os, target.dir);
    if (got == 0) got = fb_os_sync_dir(os, from->dir);
    return got < 0 ? fb_fail_os(err, (int)-got, "move checkpoint %s to its pin %s before it is written over", from->path, to)
                   : FB_OK;
}

static fb_status move_to_pin(fb_registry_store *store, const fb_place *place, const fb_registry_row *row, fb_error *err)
{
    const fb_os *os = store->os;
    char path[FB_OS_PATH_MAX];
    fb_place slot;
    fb_rec_ckpt rec = row->rec;
    fb_status status = fb_pin_slot(store, place, path, sizeof path, err);
    if (status == FB_OK) status = fb_place_split(&slot, fb_registry_words(path), err);
    if (status == FB_OK) status = fb_place_make(os, slot.dir, err);
    if (status != FB_OK) return status;
    rec.origin = row->rec.path;
    rec.path = fb_registry_words(path);
    rec.pin = FB_PIN_RENAMED;
    rec.pin_path = fb_registry_words("");
    if ((status = fb_registry_store_append(store, &rec, NULL, err)) != FB_OK) return status;
    return move(os, place, path, err);
}

/* What lies there now, and is it what was committed? */
static fb_status free_the_name(fb_registry_store *store, const fb_place *place, fb_error *err)
{
    const fb_registry_row *row = fb_registry_table_find(&store->table, place->path, (uint32_t)strlen(place->path));
    fb_os_info info;
    int64_t got = store->os->lstat(store->os->ctx, place->path, &info);
    if (got < 0 && got != -ENOENT) return fb_fail_os(err, (int)-got, "look at checkpoint %s", place->path);
    if (row && got == 0 && row->rec.state == FB_CKPT_COMMITTED && row->rec.origin.bytes == 0) {
        /* Other bytes than those of the verdict stay where they are; the pin of the right ones is kept below. */
        int unknown = row->rec.inode == 0 && (info.kind == FB_OS_FOLDER || info.size_bytes == row->rec.bytes);
        if (unknown || fb_place_is_same(&row->rec, &info)) return move_to_pin(store, place, row, err);
    }
    return fb_keep_row(store, place->path, err);
}

fb_status fb_registry_begin(const fb_os *os, const char *home, const char *path, int64_t step, int32_t attempt, int32_t rank,
                            fb_error *err)
{
    fb_registry_store store;
    fb_place place;
    fb_rec_ckpt rec;
    fb_status status;
    if (!os || !home || !path) return fb_fail(err, FB_E_USAGE, "announce checkpoint: an argument is NULL");
    if ((status = fb_place_find(&place, os, path, 1, "announce checkpoint", err)) != FB_OK) return status;
    (void)fb_homes_add(os, place.dir, home, NULL);
    if ((status = fb_registry_store_open(&store, os, home, NULL, NULL, err)) != FB_OK) return status;
    (void)fb_aside_finish(&store, NULL, NULL);
    status = free_the_name(&store, &place, err);
    if (status == FB_OK) {
        memset(&rec, 0, sizeof rec);
        rec.path = fb_registry_words(place.path);
        rec.step = step;
        rec.attempt = attempt;
        rec.rank = rank;
        rec.state = FB_CKPT_SUSPECT;
        rec.reason = FB_CKPT_REASON_READ_BACK;
        rec.pin = FB_PIN_RENAMED;
        status = fb_registry_store_append(&store, &rec, NULL, err);
    }
    fb_registry_store_close(&store);
    return status;
}
