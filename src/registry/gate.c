/*
 * May this checkpoint be loaded? All registries that may know of it are asked, of the path itself, of a folder that it lies in, and
 * of what lies in it; one that says quarantined decides. What nobody vouches for is read before it is loaded.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registry/statefile.h"
#include "registry/usable.h"

typedef struct gate {
    const fb_os *os;
    const char *path; /* absolute */
    int how;
    int committed; /* a registry says so, and the bytes are those */
    int quarantined;
    fb_status denied;
    uint64_t bad_digest; /* of something quarantined that had this name; 0: none */
    char why[1024];      /* for a suspect */
} gate;

static int is_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return n > 0 && strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static fb_status deny(gate *g, const fb_registry_row *row, const char *home, fb_error *err)
{
    g->quarantined = 1;
    g->denied = fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: %s is quarantined in %s (%s%s%s); see `firstbad ckpt log`",
                        g->path, row->path, home, fb_registry_reason_text(row->rec.state, row->rec.reason),
                        row->rec.note.bytes ? ": " : "", fb_registry_text(row->rec.note));
    return g->denied;
}

/* A quarantined row: it denies what it speaks of, wherever that lies now, and not what was saved under its name since. */
static fb_status meet_quarantined(gate *g, const fb_registry_row *row, const char *home, fb_error *err)
{
    const char *aside = fb_registry_text(row->rec.aside);
    int moved = aside[0] && fb_place_taken(g->os, aside);
    if (is_in(g->path, aside) || is_in(g->path, fb_registry_text(row->rec.pin_path))) return deny(g, row, home, err);
    if (is_in(g->path, row->path) || is_in(row->path, g->path)) {
        if (!moved && fb_place_taken(g->os, row->path)) return deny(g, row, home, err);
        g->bad_digest = row->rec.digest;
    }
    return FB_OK;
}

static fb_status meet_other(gate *g, const fb_registry_table *table, const fb_registry_row *row, const char *home, fb_error *err)
{
    const fb_rec_ckpt *rec = &row->rec;
    const char *pin = fb_registry_text(rec->pin_path);
    int in_pin = is_in(g->path, pin);
    const fb_registry_row *later;
    fb_error why;
    if (!in_pin && !is_in(g->path, row->path)) return FB_OK;
    later = fb_bytes_quarantined(table, rec, row->sequence);
    if (later) return deny(g, later, home, err);
    if (rec->state == FB_CKPT_COMMITTED) {
        int how = in_pin || rec->origin.bytes ? FB_REGISTRY_VERIFY : g->how;
        if (fb_usable_at(g->os, rec, in_pin ? pin : row->path, how, &why) == FB_OK) g->committed = 1;
        else (void)snprintf(g->why, sizeof g->why, "it was committed, and then: %.600s", why.message);
        return FB_OK;
    }
    (void)snprintf(g->why, sizeof g->why, "%s%s%.600s", fb_registry_reason_text(rec->state, rec->reason),
                   rec->note.bytes ? ": " : "", fb_registry_text(rec->note));
    return FB_OK;
}

static fb_status ask_home(void *ctx, const char *home, fb_error *err)
{
    gate *g = ctx;
    fb_registry_table table;
    fb_status status;
    memset(&table, 0, sizeof table);
    status = fb_registry_load(g->os, home, &table, err);
    if (status != FB_OK && status != FB_E_NOMEM) {
        fb_error why;
        if (err) why = *err;
        g->denied = fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: what the registry in %s says of it is not known: %.500s",
                            g->path, home, err ? why.message : "it cannot be read");
        status = g->denied;
    }
    for (uint64_t i = 0; status == FB_OK && i < table.count; i++) {
        if (table.rows[i].rec.state == FB_CKPT_QUARANTINED) status = meet_quarantined(g, &table.rows[i], home, err);
    }
    for (uint64_t i = 0; status == FB_OK && !g->committed && i < table.count; i++) {
        if (table.rows[i].rec.state != FB_CKPT_QUARANTINED) status = meet_other(g, &table, &table.rows[i], home, err);
    }
    fb_registry_table_release(&table);
    return status;
}

/* Nobody vouches for it: what do the bytes say? */
static fb_status read_it(const gate *g, fb_ckpt_summary *summary, fb_error *err)
{
    fb_status status = fb_ckpt_scan_path(g->os, g->path, NULL, NULL, summary, err);
    if (status == FB_E_NOMEM || status == FB_E_USAGE || status == FB_E_NOTFOUND) return status;
    if (status != FB_OK) {
        fb_error why;
        if (err) why = *err;
        return fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: it could not be read: %.600s", g->path,
                       err ? why.message : "an error");
    }
    if (summary->outcome == FB_CKPT_NON_FINITE) {
        return fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: %llu not finite, first in %.300s at %llu", g->path,
                       (unsigned long long)summary->bad, summary->first_tensor, (unsigned long long)summary->first_index);
    }
    if (summary->outcome == FB_CKPT_UNREADABLE) {
        return fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: it is not whole: %.600s", g->path, summary->reason.message);
    }
    if (g->bad_digest && summary->digest == g->bad_digest) {
        return fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: these bytes were quarantined under this name", g->path);
    }
    return FB_OK;
}

/* Why a finite one is a suspect all the same. A sentence without a code, since it is no failure. */
static void say_why(const gate *g, const fb_ckpt_summary *summary, fb_error *err)
{
    fb_state_claim claim;
    char text[900];
    if (!err) return;
    fb_state_read(g->os, g->path, &claim);
    if (g->why[0]) (void)snprintf(text, sizeof text, "%.800s", g->why);
    else if (claim.state == FB_CKPT_COMMITTED) {
        (void)snprintf(text, sizeof text, "its state file says committed by run %.100s; no registry here confirms it",
                       claim.run_id[0] ? claim.run_id : "(none)");
    } else (void)snprintf(text, sizeof text, "no registry knows it");
    fb_error_clear(err);
    (void)snprintf(err->message, sizeof err->message, "%s is suspect: %s%s", g->path, text,
                   summary->outcome == FB_CKPT_CLEAN ? "" : "; and not all of it could be looked at");
}

fb_status fb_registry_may_load(const fb_os *os, const char *path, const char *runs_dir, int how, int32_t *state,
                               fb_ckpt_summary *summary, fb_error *err)
{
    gate g;
    fb_place place;
    fb_ckpt_summary own;
    fb_error inner;
    fb_status status;
    if (!os || !path || !state) return fb_fail(err, FB_E_USAGE, "load checkpoint: an argument is NULL");
    *state = FB_CKPT_SUSPECT;
    if (!summary) summary = &own;
    memset(summary, 0, sizeof *summary);
    if (!err) err = &inner;
    if ((status = fb_place_find(&place, os, path, 0, "load checkpoint", err)) != FB_OK) return status;
    memset(&g, 0, sizeof g);
    g.os = os;
    g.path = place.path;
    g.how = how;
    status = fb_registry_homes(os, place.path, runs_dir, ask_home, &g, err);
    if (g.quarantined) *state = FB_CKPT_QUARANTINED;
    if (status == FB_E_NOMEM || g.denied != FB_OK) return status;
    if (status != FB_OK) { /* a list of registries that cannot be read: nobody knows what they say */
        fb_error why = *err;
        return fb_fail(err, FB_E_WITHHELD, "load checkpoint %s: who knows of it is not known: %.600s", path, why.message);
    }
    if (g.committed) {
        *state = FB_CKPT_COMMITTED;
        fb_error_clear(err);
        return FB_OK;
    }
    if ((status = read_it(&g, summary, err)) != FB_OK) return status;
    say_why(&g, summary, err);
    return FB_OK;
}
