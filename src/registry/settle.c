/* Bring the files into line with the records, wherever a crash, or a disk that was full, left something undone. */
#include <string.h>

#include "registry/keep.h"

/* Each folder that holds a checkpoint of this home, once. */
static fb_status gather(const fb_registry_table *table, fb_registry_table *dirs, fb_error *err)
{
    fb_status status = FB_OK;
    for (uint64_t i = 0; status == FB_OK && i < table->count; i++) {
        fb_place place;
        fb_rec_ckpt rec;
        if (fb_aside_place(&place, &table->rows[i].rec, NULL) != FB_OK) continue; /* written by hand, or by a test */
        memset(&rec, 0, sizeof rec);
        rec.path = fb_registry_words(place.dir);
        if (!fb_registry_table_find(dirs, place.dir, rec.path.bytes)) status = fb_registry_table_put(dirs, &rec, 1, 0, err);
    }
    return status;
}

/* A pointer that a crash kept from being set: its checkpoint is aside already. */
static fb_status set_pointers(const fb_registry_store *store, uint64_t *done, fb_error *err)
{
    fb_status first = FB_OK;
    for (uint64_t i = 0; i < store->table.count; i++) {
        const fb_rec_ckpt *rec = &store->table.rows[i].rec;
        fb_place place;
        fb_status status;
        if (rec->state != FB_CKPT_QUARANTINED || rec->origin.bytes || fb_place_split(&place, rec->path, NULL) != FB_OK) continue;
        if (rec->aside.bytes && fb_place_taken(store->os, rec->aside.data) && fb_place_taken(store->os, place.path)) continue;
        status = fb_pointers_set(store, &place, done, first == FB_OK ? err : NULL);
        if (first == FB_OK) first = status;
    }
    return first;
}

fb_status fb_registry_settle(const fb_os *os, const char *home, uint64_t *done, fb_error *err)
{
    fb_registry_store store;
    fb_registry_table dirs;
    fb_error why;
    fb_status status, first;
    uint64_t own = 0;
    if (done) *done = 0;
    if (!os || !home) return fb_fail(err, FB_E_USAGE, "settle checkpoints: an argument is NULL");
    if (!fb_registry_exists(os, home)) return FB_OK;
    if ((status = fb_registry_store_open(&store, os, home, NULL, NULL, err)) != FB_OK) return status;
    memset(&dirs, 0, sizeof dirs);
    first = fb_aside_finish(&store, &own, err);
    status = set_pointers(&store, &own, &why);
    if (status == FB_OK) status = gather(&store.table, &dirs, &why);
    fb_registry_store_close(&store);
    for (uint64_t i = 0; i < dirs.count; i++) {
        if (first == FB_OK && status != FB_OK) {
            first = status;
            if (err) *err = why;
        }
        status =
            fb_place_taken(os, dirs.rows[i].path) ? fb_pins_settle(os, home, dirs.rows[i].path, FB_PINS_AGAIN, &own, &why) : FB_OK;
    }
    if (first == FB_OK && status != FB_OK) {
        first = status;
        if (err) *err = why;
    }
    fb_registry_table_release(&dirs);
    if (done) *done = own;
    return first;
}
