/* What a bad update, or a case, does to checkpoints that were saved after it. */
#include <errno.h>
#include <string.h>

#include "registry/keep.h"
#include "registry/statefile.h"

/* Committed, or what could be committed by reading it: is being read now, could not be read, a case was opened. */
static int may_be_committed(const fb_rec_ckpt *rec)
{
    if (rec->state == FB_CKPT_COMMITTED) return 1;
    if (rec->state != FB_CKPT_SUSPECT) return 0;
    return rec->reason == FB_CKPT_REASON_READ_BACK || rec->reason == FB_CKPT_REASON_CASE ||
           rec->reason == FB_CKPT_REASON_UNREADABLE || rec->reason == FB_CKPT_REASON_UNSUPPORTED;
}

typedef struct fall {
    int32_t attempt, reason;
    int64_t step; /* this one and later ones */
} fall;

static int falls(const fall *f, const fb_rec_ckpt *rec)
{
    if (rec->attempt != f->attempt || rec->step < f->step || !may_be_committed(rec)) return 0;
    if (f->reason == FB_CKPT_REASON_LINEAGE) return 1;
    /* A case condemns nothing: what is committed, or being read, is to be read again. */
    return rec->state == FB_CKPT_COMMITTED || rec->reason == FB_CKPT_REASON_READ_BACK;
}

static fb_status drop_all(fb_registry_store *store, const fall *f, char *dir, uint64_t *done, fb_error *err)
{
    fb_status status = FB_OK;
    uint64_t count = store->table.count;
    for (uint64_t i = 0; status == FB_OK && i < count; i++) {
        fb_rec_ckpt rec = store->table.rows[i].rec;
        fb_place place;
        if (!falls(f, &rec)) continue;
        rec.state = FB_CKPT_SUSPECT;
        rec.reason = f->reason;
        if (f->reason == FB_CKPT_REASON_LINEAGE) rec.gated = FB_CKPT_GATED_NO;
        if ((status = fb_registry_store_append(store, &rec, NULL, err)) != FB_OK) break;
        ++*done;
        fb_state_write(store->os, store->table.rows[i].path, store->home, &store->table.rows[i].rec, 0);
        if (fb_aside_place(&place, &store->table.rows[i].rec, NULL) == FB_OK) memcpy(dir, place.dir, sizeof place.dir);
    }
    return status;
}

static fb_status drop(const fb_os *os, const char *home, const fall *f, uint64_t *changed, fb_error *err)
{
    char dir[FB_OS_PATH_MAX] = "";
    fb_registry_store store;
    uint64_t done = 0;
    fb_status status;
    if (changed) *changed = 0;
    if (!os || !home) return fb_fail(err, FB_E_USAGE, "taint checkpoints: an argument is NULL");
    if (!fb_registry_exists(os, home)) return FB_OK; /* nothing was saved yet, so there is nothing to taint */
    if ((status = fb_registry_store_open(&store, os, home, NULL, NULL, err)) != FB_OK) return status;
    status = drop_all(&store, f, dir, &done, err);
    (void)fb_aside_finish(&store, NULL, NULL);
    fb_registry_store_close(&store);
    if (changed) *changed = done;
    /* An older one is the last committed now, and its pin may be gone. In the middle of a step there is time for links alone. */
    if (dir[0]) (void)fb_pins_settle(os, home, dir, FB_PINS_QUICK, NULL, NULL);
    return status;
}

fb_status fb_registry_taint(const fb_os *os, const char *run_folder, int32_t attempt, int64_t step, uint64_t *changed,
                            fb_error *err)
{
    fall f = {attempt, FB_CKPT_REASON_LINEAGE, step};
    return drop(os, run_folder, &f, changed, err);
}

fb_status fb_registry_doubt(const fb_os *os, const char *home, int32_t attempt, int64_t step_verified, uint64_t *changed,
                            fb_error *err)
{
    fall f = {attempt, FB_CKPT_REASON_CASE, step_verified == INT64_MAX ? INT64_MAX : step_verified + 1};
    return drop(os, home, &f, changed, err);
}
