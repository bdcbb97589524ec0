/* Read a checkpoint again, and record what came of it. The lock is held for the record, not for the reading. */
#include <stdio.h>
#include <string.h>

#include "registry/keep.h"
#include "registry/statefile.h"

typedef struct verify {
    const fb_os *os;
    const char *home;
    fb_place place;
    char where[FB_OS_PATH_MAX]; /* where it lies: its place, or aside */
    fb_rec_ckpt rec;            /* inode and time of what was read */
    uint64_t sequence;          /* of the record that was the newest before the reading; 0: there was none */
    int32_t state;              /* of that record; 0: there was none */
    int is_pin, is_aside;       /* what was asked for, and read, is the pin of `place`, or what was moved aside from there */
    int32_t reason;             /* what the scan says */
    const fb_ckpt_summary *summary;
    fb_verdict_text text;
} verify;

static const fb_registry_row *row_of(const fb_registry_table *table, const verify *v)
{
    return fb_registry_table_find(table, v->place.path, (uint32_t)strlen(v->place.path));
}

/* What is known, and where it lies. */
static fb_status look(verify *v, fb_error *err)
{
    fb_registry_table table;
    const fb_registry_row *row;
    fb_status status = FB_OK;
    memset(&table, 0, sizeof table);
    if (fb_registry_exists(v->os, v->home)) status = fb_registry_load(v->os, v->home, &table, err);
    row = status == FB_OK ? row_of(&table, v) : NULL;
    (void)snprintf(v->where, sizeof v->where, "%s", v->place.path);
    if (status == FB_OK && !row && (row = fb_registry_table_aside(&table, v->where)) != NULL) v->is_aside = 1;
    if (status == FB_OK && !row && (row = fb_registry_table_pinned(&table, v->where)) != NULL) v->is_pin = 1;
    if (row && (v->is_aside || v->is_pin)) status = fb_place_split(&v->place, row->rec.path, err);
    if (row) {
        v->sequence = row->sequence;
        v->state = row->rec.state;
    }
    if (status == FB_OK && !v->is_pin && !v->is_aside && !fb_place_taken(v->os, v->place.path)) {
        if (row && row->rec.state == FB_CKPT_QUARANTINED && row->rec.aside.bytes && fb_place_taken(v->os, row->rec.aside.data)) {
            (void)snprintf(v->where, sizeof v->where, "%s", row->rec.aside.data);
        } else if (row && fb_pin_is_there(v->os, &row->rec)) {
            status = fb_fail(err, FB_E_NOTFOUND, "verify checkpoint %s: it is gone, and its pin is %s", v->place.path,
                             fb_pin_of(&row->rec).data);
        } else {
            status = fb_fail(err, FB_E_NOTFOUND, "verify checkpoint %s: no such file or folder", v->place.path);
        }
    }
    fb_registry_table_release(&table);
    return status;
}

/* ---- what follows from it --------------------------------------------------------------------------------------------------- */

static void set(fb_rec_ckpt *rec, int32_t state, int32_t reason)
{
    rec->state = state;
    rec->reason = reason;
}

/* Only the reading was missing. */
static int wants_reading(int32_t reason)
{
    return reason == FB_CKPT_REASON_READ_BACK || reason == FB_CKPT_REASON_UNREADABLE || reason == FB_CKPT_REASON_UNSUPPORTED ||
           reason == FB_CKPT_REASON_CASE;
}

/* State and reason that follow from the old ones, the bytes of the old verdict (0: none), and what was read now. */
static void conclude(const verify *v, const fb_rec_ckpt *old, fb_rec_ckpt *rec)
{
    int same = old->digest == v->summary->digest || old->digest == 0;
    *rec = *old;
    if (v->reason == FB_CKPT_REASON_NOT_FINITE) {
        set(rec, FB_CKPT_QUARANTINED, v->reason);
    } else if (v->reason != FB_CKPT_REASON_READ_BACK) {
        set(rec, FB_CKPT_SUSPECT, v->reason);
        if (old->state == FB_CKPT_SUSPECT && !wants_reading(old->reason)) rec->reason = old->reason; /* that weighs more */
    } else if (old->state == FB_CKPT_COMMITTED) {
        if (!same || old->digest == 0) set(rec, FB_CKPT_SUSPECT, FB_CKPT_REASON_CHANGED);
    } else if (wants_reading(old->reason)) {
        if (!same) set(rec, FB_CKPT_SUSPECT, FB_CKPT_REASON_CHANGED);
        else if (old->gated == FB_CKPT_GATED_YES) set(rec, FB_CKPT_COMMITTED, FB_CKPT_REASON_READ_BACK);
        else set(rec, FB_CKPT_SUSPECT, FB_CKPT_REASON_LINEAGE);
    }
}

static int is_news(const fb_rec_ckpt *old, const fb_rec_ckpt *rec)
{
    return old->state != rec->state || old->reason != rec->reason || old->digest != rec->digest || old->inode != rec->inode ||
           old->mtime_ns != rec->mtime_ns || old->mark != rec->mark;
}

/* What nobody vouches for: its step is what its state file says, which is a claim and no more. */
static void stranger(const verify *v, fb_rec_ckpt *rec, char *note, size_t room)
{
    fb_state_claim claim;
    memset(rec, 0, sizeof *rec);
    rec->path = fb_registry_words(v->place.path);
    rec->step = -1;
    fb_state_read(v->os, v->where, &claim);
    if (claim.state == 0) return;
    rec->step = claim.step;
    (void)snprintf(note, room, "its state file says %s by run %.100s; no registry here confirms it",
                   fb_registry_state_name(claim.state), claim.run_id[0] ? claim.run_id : "(none)");
}

/* A newer save under the name of a quarantined checkpoint, which no record knows. */
static int is_another(const verify *v, const fb_registry_row *row)
{
    const fb_rec_ckpt *rec = &row->rec;
    if (rec->state != FB_CKPT_QUARANTINED || rec->digest == v->summary->digest) return 0;
    if (rec->aside.bytes && fb_place_taken(v->os, rec->aside.data)) return 1;
    return rec->inode != 0 && (rec->inode != v->rec.inode || rec->mtime_ns != v->rec.mtime_ns);
}

static fb_status write_down(fb_registry_store *store, verify *v, fb_error *err)
{
    const fb_registry_row *row = row_of(&store->table, v);
    fb_rec_ckpt old, rec;
    char note[512] = "";
    fb_status status;
    if (v->is_pin) { /* a pin is given only when its bytes are those of the verdict, so others are no news of the checkpoint */
        if (row->rec.digest == 0 || row->rec.digest != v->summary->digest) {
            v->rec.state = v->reason == FB_CKPT_REASON_NOT_FINITE ? FB_CKPT_QUARANTINED : FB_CKPT_SUSPECT;
            return FB_OK;
        }
        v->rec.inode = row->rec.inode;
        v->rec.mtime_ns = row->rec.mtime_ns;
        v->rec.mark = row->rec.mark;
    }
    if (row && !v->is_pin && is_another(v, row)) {
        if ((status = fb_keep_row(store, v->place.path, err)) != FB_OK) return status;
        row = NULL;
    }
    if (row) {
        old = row->rec;
        conclude(v, &old, &rec);
    } else {
        stranger(v, &old, note, sizeof note);
        old.state = FB_CKPT_SUSPECT;
        old.reason = FB_CKPT_REASON_NO_RUN;
        conclude(v, &old, &rec);
        old.state = 0;
        if (rec.state == FB_CKPT_SUSPECT) rec.reason = v->reason == FB_CKPT_REASON_READ_BACK ? FB_CKPT_REASON_NO_RUN : v->reason;
    }
    v->rec.state = rec.state;
    fb_judge_facts(&rec, v->summary, v->reason);
    /* A changed file may have been changed back when it is read next: what it is compared with stays the digest of the verdict. */
    if (rec.reason == FB_CKPT_REASON_UNREADABLE && old.state == FB_CKPT_COMMITTED) rec.digest = old.digest;
    rec.inode = v->rec.inode;
    rec.mtime_ns = v->rec.mtime_ns;
    rec.mark = v->rec.mark;
    if (row && !is_news(&old, &rec)) return FB_OK;
    if (row && old.digest != rec.digest && (status = fb_keep_row(store, v->place.path, err)) != FB_OK) return status;
    row = old.state ? row_of(&store->table, v) : NULL; /* a record may have been added, and rows have moved */
    if (row && (old.digest == rec.digest || old.digest == 0)) {
        rec.pin_path = row->rec.pin_path;
        rec.pin = row->rec.pin;
    } else {
        rec.pin = FB_PIN_NONE;
        rec.pin_path = fb_registry_words("");
    }
    if (row) {
        rec.path = row->rec.path;
        rec.origin = row->rec.origin;
    }
    rec.aside = fb_registry_words("");
    rec.note = fb_registry_words("");
    if (rec.state != FB_CKPT_COMMITTED || !fb_pin_is_there(v->os, &rec))
        fb_judge_plan(store, &v->place, fb_judge_links(&store->table, &v->place, rec.step), note, &rec, &v->text);
    if ((status = fb_registry_store_append(store, &rec, NULL, err)) != FB_OK) return status;
    row = row_of(&store->table, v);
    if (row) fb_state_write(v->os, v->where, store->home, &row->rec, 0);
    return FB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

/* Did the record change while the bytes were read? Then what was read may be of another save; only a taint leaves it the same. */
static int moved_on(const verify *v, const fb_registry_row *row)
{
    if (!row) return v->sequence != 0;
    if (row->sequence == v->sequence) return 0;
    return !(v->reason == FB_CKPT_REASON_NOT_FINITE && row->rec.state == FB_CKPT_SUSPECT && v->sequence != 0 &&
             (row->rec.reason == FB_CKPT_REASON_LINEAGE || row->rec.reason == FB_CKPT_REASON_CASE));
}

static fb_status record(verify *v, fb_error *err)
{
    fb_registry_store store;
    const fb_registry_row *row;
    fb_status status = fb_place_make(v->os, v->home, err);
    if (status == FB_OK) status = fb_registry_store_open(&store, v->os, v->home, NULL, NULL, err);
    if (status != FB_OK) return status;
    row = row_of(&store.table, v);
    if (moved_on(v, row)) v->rec.state = row && row->rec.state == FB_CKPT_QUARANTINED ? FB_CKPT_QUARANTINED : FB_CKPT_SUSPECT;
    else if (row && row->rec.state == FB_CKPT_QUARANTINED && (strcmp(v->where, v->place.path) != 0 || row->rec.origin.bytes))
        v->rec.state = FB_CKPT_QUARANTINED;
    else status = write_down(&store, v, err);
    if (status == FB_OK) (void)fb_aside_finish(&store, NULL, NULL);
    fb_registry_store_close(&store);
    return status;
}

static void tell_claim(const verify *v, const fb_ckpt_sink *sink)
{
    fb_state_claim claim;
    char text[512];
    if (!sink || !sink->note) return;
    fb_state_read(v->os, v->where, &claim);
    if (claim.state != FB_CKPT_COMMITTED || v->state == FB_CKPT_COMMITTED) return;
    (void)snprintf(text, sizeof text, "its state file says committed by run %.100s; no registry here confirms it",
                   claim.run_id[0] ? claim.run_id : "(none)");
    sink->note(sink->ctx, v->where, text);
}

fb_status fb_registry_verify(const fb_os *os, const char *home, const char *path, const fb_ckpt_options *options,
                             const fb_ckpt_sink *sink, fb_ckpt_summary *summary, int32_t *state, fb_error *err)
{
    verify v;
    fb_ckpt_summary own;
    fb_status status;
    if (!os || !home || !path || !state) return fb_fail(err, FB_E_USAGE, "verify checkpoint: an argument is NULL");
    *state = FB_CKPT_SUSPECT;
    if (!summary) summary = &own;
    memset(summary, 0, sizeof *summary);
    memset(&v, 0, sizeof v);
    v.os = os;
    v.home = home;
    v.summary = summary;
    if ((status = fb_place_find(&v.place, os, path, 1, "verify checkpoint", err)) != FB_OK) return status;
    if ((status = look(&v, err)) != FB_OK) return status;
    tell_claim(&v, sink);
    status = fb_judge_scan(os, v.where, options, sink, summary, &v.rec, err);
    if (status != FB_OK) return status; /* nothing was learned of the bytes: what was recorded stands */
    v.reason = fb_judge(status, summary);
    if ((status = record(&v, err)) != FB_OK) return status;
    (void)fb_homes_add(os, v.place.dir, home, NULL);
    (void)fb_pins_settle(os, home, v.place.dir, FB_PINS_AGAIN, NULL, NULL);
    *state = v.rec.state;
    return FB_OK;
}
