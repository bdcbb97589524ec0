/* What people decide: quarantine, and release from it. Both with a reason, both in the audit trail. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registry/keep.h"
#include "registry/statefile.h"

static const fb_registry_row *find(const fb_registry_table *table, const char *path)
{
    return fb_registry_table_find(table, path, (uint32_t)strlen(path));
}

/* By its name, by the place that it was moved to, or by its pin. */
static const fb_registry_row *find_anywhere(const fb_registry_table *table, const char *path)
{
    const fb_registry_row *row = find(table, path);
    if (!row) row = fb_registry_table_aside(table, path);
    return row ? row : fb_registry_table_pinned(table, path);
}

static fb_status check(const fb_os *os, const char *home, const char *path, const char *why, const char *what, fb_error *err)
{
    if (!os || !home || !path || !why) return fb_fail(err, FB_E_USAGE, "%s checkpoint: an argument is NULL", what);
    if (why[0] == '\0') return fb_fail(err, FB_E_USAGE, "%s checkpoint %.200s: a reason is expected, for the record", what, path);
    return FB_OK;
}

/* ---- quarantine ------------------------------------------------------------------------------------------------------------- */

/*
 * Somebody points at a pin, which is what `latest` prints when a trainer took the checkpoint away: meant is the checkpoint, or the
 * pin alone, with a row of its own, where other bytes have the name now.
 */
static fb_status from_pin(fb_registry_store *store, fb_place *place, fb_error *err)
{
    const fb_registry_row *row = find(&store->table, place->path) ? NULL : fb_registry_table_pinned(&store->table, place->path);
    char name[FB_OS_PATH_MAX];
    fb_os_info info;
    if (!row) return FB_OK;
    (void)snprintf(name, sizeof name, "%s", row->path);
    if (store->os->lstat(store->os->ctx, name, &info) == 0 && !fb_place_is_same(&row->rec, &info))
        return fb_keep_row(store, name, err);
    return fb_place_split(place, fb_registry_words(name), err);
}

/* It was moved aside already, and somebody names the place where it is. */
static int is_aside(const fb_registry_table *table, const char *path)
{
    const fb_registry_row *row = find(table, path);
    if (!row) row = fb_registry_table_aside(table, path);
    if (!row || row->rec.state != FB_CKPT_QUARANTINED) return 0;
    return strcmp(row->path, path) != 0 || row->rec.origin.bytes != 0;
}

/* The record that says so: what was known of these bytes, or nothing where others lie there now. */
static void compose(fb_rec_ckpt *rec, const fb_registry_row *row, const fb_os_info *lies, int same)
{
    fb_text path = rec->path;
    if (row) *rec = row->rec;
    if (row && !same) {
        memset(rec, 0, sizeof *rec);
        rec->rank = row->rec.rank;
    }
    if (!row || !same) rec->step = -1;
    rec->path = path;
    if (lies) {
        rec->inode = lies->inode;
        rec->mtime_ns = lies->mtime_ns;
        if (lies->kind == FB_OS_FILE) rec->bytes = lies->size_bytes;
    }
    rec->state = FB_CKPT_QUARANTINED;
    rec->reason = FB_CKPT_REASON_OPERATOR;
}

static fb_status say_so(fb_registry_store *store, const fb_place *place, const char *why, fb_error *err)
{
    const fb_registry_row *row = find(&store->table, place->path);
    fb_rec_ckpt rec;
    fb_os_info info;
    fb_verdict_text text;
    int lies = store->os->lstat(store->os->ctx, place->path, &info) == 0;
    int same = row && (!lies || row->rec.inode == 0 || fb_place_is_same(&row->rec, &info));
    fb_status status;
    if (!row && !lies)
        return fb_fail(err, FB_E_NOTFOUND, "quarantine checkpoint %s: nothing is there, and no record knows it", place->path);
    if (row && row->rec.state == FB_CKPT_QUARANTINED && (!lies || (same && row->rec.aside.bytes))) return FB_OK; /* it is already */
    memset(&rec, 0, sizeof rec);
    rec.path = fb_registry_words(place->path);
    if (row && !same) {
        if ((status = fb_keep_row(store, place->path, err)) != FB_OK) return status;
        row = find(&store->table, place->path);
    }
    if (lies && info.kind == FB_OS_FOLDER) {
        compose(&rec, row, &info, same);
        fb_state_write(store->os, place->path, store->home, &rec, 1); /* before its time is taken, which this changes */
        if (store->os->lstat(store->os->ctx, place->path, &info) != 0) lies = 0;
        rec.path = fb_registry_words(place->path);
    }
    compose(&rec, row, lies ? &info : NULL, same);
    fb_judge_plan(store, place, 0, why, &rec, &text);
    return fb_registry_store_append(store, &rec, NULL, err);
}

/* Was it moved? The record stands in any case, and the next call tries again. */
static fb_status moved(const fb_registry_store *store, const char *path, fb_error *err)
{
    const fb_registry_row *row = find(&store->table, path);
    fb_os_info info;
    if (store->os->lstat(store->os->ctx, path, &info) != 0) return FB_OK;
    if (row && row->rec.state == FB_CKPT_QUARANTINED && row->rec.inode && !fb_place_is_same(&row->rec, &info)) return FB_OK;
    return fb_fail(err, FB_E_IO, "quarantine checkpoint %s: it is recorded, and could not be moved aside", path);
}

fb_status fb_registry_quarantine(const fb_os *os, const char *home, const char *path, const char *why, fb_error *err)
{
    fb_registry_store store;
    fb_place place;
    fb_status status = check(os, home, path, why, "quarantine", err), finished;
    if (status == FB_OK) status = fb_place_find(&place, os, path, 1, "quarantine checkpoint", err);
    if (status == FB_OK) status = fb_place_make(os, home, err);
    if (status == FB_OK) status = fb_registry_store_open(&store, os, home, NULL, NULL, err);
    if (status != FB_OK) return status;
    if (is_aside(&store.table, place.path) && fb_place_taken(os, place.path)) {
        fb_registry_store_close(&store);
        return FB_OK;
    }
    status = from_pin(&store, &place, err);
    if (status == FB_OK) status = say_so(&store, &place, why, err);
    if (status == FB_OK) {
        const fb_registry_row *row = find(&store.table, place.path);
        finished = fb_aside_finish(&store, NULL, err);
        if (row) (void)fb_pointers_set(&store, &place, NULL, NULL);
        status = moved(&store, place.path, finished == FB_OK ? err : NULL);
        if (status == FB_OK) fb_error_clear(err); /* what others left to do, and could not be done, is not the caller's affair */
    }
    fb_registry_store_close(&store);
    if (status == FB_E_USAGE || status == FB_E_NOTFOUND) return status;
    (void)fb_homes_add(os, place.dir, home, NULL);
    (void)fb_pins_settle(os, home, place.dir, FB_PINS_ALL, NULL, NULL); /* an older one may be the last committed now */
    return status;
}

/* ---- release ---------------------------------------------------------------------------------------------------------------- */

typedef struct release {
    const fb_os *os;
    const char *home, *why;
    char where[FB_OS_PATH_MAX]; /* it lies here */
    fb_place target;            /* and goes back there */
    char row_path[FB_OS_PATH_MAX];
    uint64_t sequence;
} release;

static fb_status plan_release(release *r, const char *path, fb_error *err)
{
    fb_registry_table table;
    const fb_registry_row *row;
    fb_place given;
    fb_status status;
    memset(&table, 0, sizeof table);
    status = fb_place_find(&given, r->os, path, 1, "release checkpoint", err);
    if (status == FB_OK) status = fb_registry_load(r->os, r->home, &table, err);
    row = status == FB_OK ? find_anywhere(&table, given.path) : NULL;
    if (row) {
        int aside = row->rec.aside.bytes && fb_place_taken(r->os, row->rec.aside.data);
        int pin = !aside && row->rec.pin_path.bytes && !fb_place_taken(r->os, row->path) && fb_pin_is_there(r->os, &row->rec);
        (void)snprintf(r->row_path, sizeof r->row_path, "%s", row->path);
        (void)snprintf(r->where, sizeof r->where, "%s", aside ? row->rec.aside.data : pin ? row->rec.pin_path.data : row->path);
        r->sequence = row->sequence;
        status = fb_aside_place(&r->target, &row->rec, err);
    } else if (status == FB_OK) {
        status =
            fb_fail(err, FB_E_NOTFOUND, "release checkpoint %s: no record in %s knows it; verify it first", given.path, r->home);
    }
    if (row && status == FB_OK && strcmp(r->where, r->target.path) != 0 && fb_place_taken(r->os, r->target.path)) {
        status =
            fb_fail(err, FB_E_EXISTS, "release checkpoint %s: its name %s was given to another one meanwhile; move that one first",
                    r->where, r->target.path);
    }
    fb_registry_table_release(&table);
    return status;
}

static fb_status may_be_released(const release *r, fb_status scanned, const fb_ckpt_summary *s, fb_error *err)
{
    int32_t reason = fb_judge(scanned, s);
    if (scanned != FB_OK) return scanned;
    if (reason == FB_CKPT_REASON_READ_BACK) return FB_OK;
    if (reason == FB_CKPT_REASON_NOT_FINITE) {
        return fb_fail(err, FB_E_WITHHELD, "release checkpoint %s: %llu not finite, first in %.200s; it stays", r->where,
                       (unsigned long long)s->bad, s->first_tensor);
    }
    return fb_fail(err, FB_E_WITHHELD,
                   "release checkpoint %s: it could not be read whole, so nobody knows what it holds; it stays: %.400s", r->where,
                   s->reason.message[0] ? s->reason.message : "it holds no numbers that could be looked at");
}

/* Back to its name and then recorded: a crash between the two leaves a quarantined one at its name, which is moved aside again. */
static fb_status put_back(const release *r, fb_error *err)
{
    int64_t got;
    fb_status status;
    if (strcmp(r->where, r->target.path) == 0) return FB_OK;
    if ((status = fb_place_is_ours(r->os, r->where, err)) != FB_OK) return status;
    got = r->os->rename_new(r->os->ctx, r->where, r->target.path);
    if (got == -EEXIST) {
        return fb_fail(err, FB_E_EXISTS,
                       "release checkpoint %s: its name %s was given to another one meanwhile; move that one first", r->where,
                       r->target.path);
    }
    if (got == 0) got = fb_os_sync_dir(r->os, r->target.dir);
    if (got == 0) got = fb_os_sync_parent(r->os, r->where);
    return got < 0 ? fb_fail_os(err, (int)-got, "release checkpoint %s: move it back to %s", r->where, r->target.path) : FB_OK;
}

static fb_status record_release(fb_registry_store *store, const release *r, const fb_rec_ckpt *scanned,
                                const fb_ckpt_summary *summary, fb_error *err)
{
    const fb_registry_row *row = find(&store->table, r->row_path);
    fb_verdict_text text;
    fb_rec_ckpt rec;
    fb_status status;
    if (!row || row->sequence != r->sequence) {
        return fb_fail(err, FB_E_ORDER, "release checkpoint %s: its record changed while it was read; ask again", r->where);
    }
    if ((status = put_back(r, err)) != FB_OK) return status;
    rec = row->rec;
    if (strcmp(r->row_path, r->target.path) != 0) { /* its name has a row of its own, of a newer save that is gone */
        if ((status = fb_keep_row(store, r->target.path, err)) != FB_OK) return status;
        rec = find(&store->table, r->row_path)->rec;
    }
    fb_judge_facts(&rec, summary, FB_CKPT_REASON_READ_BACK);
    rec.path = fb_registry_words(r->target.path);
    rec.aside = rec.origin = fb_registry_words("");
    rec.inode = scanned->inode;
    rec.mtime_ns = scanned->mtime_ns;
    rec.mark = scanned->mark;
    rec.state = FB_CKPT_COMMITTED;
    rec.reason = FB_CKPT_REASON_OPERATOR;
    rec.gated = FB_CKPT_GATED_YES; /* the operator vouches for it */
    fb_judge_plan(store, &r->target, fb_judge_links(&store->table, &r->target, rec.step), r->why, &rec, &text);
    if ((status = fb_registry_store_append(store, &rec, NULL, err)) != FB_OK) return status;
    fb_state_write(r->os, r->target.path, store->home, &rec, 0);
    return FB_OK;
}

fb_status fb_registry_release(const fb_os *os, const char *home, const char *path, const char *why, fb_ckpt_summary *summary,
                              fb_error *err)
{
    release r;
    fb_ckpt_summary own;
    fb_rec_ckpt scanned;
    fb_registry_store store;
    fb_status status = check(os, home, path, why, "release", err);
    if (status != FB_OK) return status;
    if (!summary) summary = &own;
    memset(summary, 0, sizeof *summary);
    memset(&scanned, 0, sizeof scanned);
    memset(&r, 0, sizeof r);
    r.os = os;
    r.home = home;
    r.why = why;
    if ((status = plan_release(&r, path, err)) != FB_OK) return status;
    status = may_be_released(&r, fb_judge_scan(os, r.where, NULL, NULL, summary, &scanned, err), summary, err);
    if (status != FB_OK) return status;
    if ((status = fb_registry_store_open(&store, os, home, NULL, NULL, err)) != FB_OK) return status;
    status = record_release(&store, &r, &scanned, summary, err);
    fb_registry_store_close(&store);
    if (status == FB_OK) (void)fb_pins_settle(os, home, r.target.dir, FB_PINS_ALL, NULL, NULL);
    return status;
}
