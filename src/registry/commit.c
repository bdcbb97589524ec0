/*
 * From a file that a trainer says it wrote to a verdict. Three steps, each durable before the next, so that a crash between any two
 * leaves a suspect and never a committed checkpoint:
 *   1. record suspect            2. make the bytes durable, read them back, scan and digest them        3. record the verdict
 * The lock is held for 1 and for 3, not for 2, which may take minutes. What the verdict asks for comes after it: a pin, or the way
 * aside. Both are in the record, so that whoever comes after a crash does them.
 */
#include <string.h>

#include "registry/keep.h"
#include "registry/statefile.h"

typedef struct commit {
    const fb_os *os;
    const char *home;
    fb_place place;
    fb_rec_ckpt rec;
    uint64_t birth; /* number of the record that made it suspect */
    int links;      /* the trainer does not write into this file again */
    const fb_ckpt_summary *summary;
    fb_verdict_text text;
} commit;

static void set(commit *c, int32_t state, int32_t reason)
{
    c->rec.state = state;
    c->rec.reason = reason;
}

/* ---- 1 ---------------------------------------------------------------------------------------------------------------------- */

static fb_status record_birth(commit *c, fb_error *err)
{
    fb_registry_store store;
    const fb_registry_row *row;
    fb_status status = fb_registry_store_open(&store, c->os, c->home, NULL, NULL, err);
    if (status != FB_OK) return status;
    row = fb_registry_table_find(&store.table, c->place.path, c->rec.path.bytes);
    /* Announced: what lay there was moved away first, and the next one will be, too. */
    c->links = row && row->rec.state == FB_CKPT_SUSPECT && row->rec.pin == FB_PIN_RENAMED && fb_newer(&row->rec, &c->rec) == 0;
    if (c->links) c->rec.pin = FB_PIN_RENAMED;
    else c->links = fb_judge_links(&store.table, &c->place, c->rec.step);
    set(c, FB_CKPT_SUSPECT, FB_CKPT_REASON_READ_BACK);
    status = fb_keep_row(&store, c->place.path, err);
    if (status == FB_OK) status = fb_registry_store_append(&store, &c->rec, &c->birth, err);
    if (status == FB_OK) fb_state_write(c->os, c->place.path, store.home, &c->rec, 1);
    fb_registry_store_close(&store);
    return status;
}

/* ---- 3 ---------------------------------------------------------------------------------------------------------------------- */

/* What the bytes say, and what the history of updates says, in this order: bad content is bad whatever came before. */
static void judge(commit *c, fb_status scanned)
{
    int32_t reason = fb_judge(scanned, c->summary);
    fb_judge_facts(&c->rec, c->summary, reason);
    c->rec.pin = FB_PIN_NONE;
#ifdef FB_BREAK_P8
    set(c, c->rec.gated == FB_CKPT_GATED_YES ? FB_CKPT_COMMITTED : FB_CKPT_SUSPECT, FB_CKPT_REASON_READ_BACK);
#else
    if (reason == FB_CKPT_REASON_NOT_FINITE) set(c, FB_CKPT_QUARANTINED, reason);
    else if (reason != FB_CKPT_REASON_READ_BACK) set(c, FB_CKPT_SUSPECT, reason);
    else if (c->rec.gated != FB_CKPT_GATED_YES) set(c, FB_CKPT_SUSPECT, FB_CKPT_REASON_LINEAGE);
    else set(c, FB_CKPT_COMMITTED, reason);
#endif
}

typedef struct history {
    const commit *c;
    int32_t state, reason; /* of the newest verdict of this attempt on the same bytes; 0: none */
} history;

static fb_status look_back(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    history *h = ctx;
    const fb_rec_ckpt *own = &h->c->rec;
    (void)sequence;
    (void)time_ns;
    (void)err;
    if (rec->path.bytes != own->path.bytes || memcmp(rec->path.data, own->path.data, own->path.bytes) != 0) return FB_OK;
    if (rec->attempt != own->attempt || rec->digest != own->digest || rec->digest == 0) return FB_OK;
    h->state = rec->state;
    h->reason = rec->reason;
    return FB_OK;
}

/* Under the lock: did somebody say more of this path since record_birth? */
static const fb_registry_row *superseded(const fb_registry_store *store, const commit *c)
{
    const fb_registry_row *row = fb_registry_table_find(&store->table, c->rec.path.data, c->rec.path.bytes);
    return row && row->sequence != c->birth ? row : NULL;
}

/*
 * Another save to the same path has a verdict of its own to come, and a taint or a doubt stands; only that the bytes are not finite
 * is worth saying after those.
 */
static int still_worth_saying(const commit *c, const fb_registry_row *newer)
{
    if (newer->rec.state == FB_CKPT_QUARANTINED || c->rec.state != FB_CKPT_QUARANTINED) return 0;
    return newer->rec.reason != FB_CKPT_REASON_READ_BACK && fb_newer(&newer->rec, &c->rec) == 0;
}

static fb_status write_verdict(fb_registry_store *store, commit *c, const history *h, fb_error *err)
{
    int kept = h->state == FB_CKPT_QUARANTINED || (h->state == FB_CKPT_SUSPECT && h->reason == FB_CKPT_REASON_LINEAGE);
    fb_status status;
    if (c->rec.state == FB_CKPT_COMMITTED && kept) set(c, h->state, h->reason);
    fb_judge_plan(store, &c->place, c->links, "", &c->rec, &c->text);
    if ((status = fb_registry_store_append(store, &c->rec, NULL, err)) != FB_OK) return status;
    fb_state_write(c->os, c->place.path, store->home, &c->rec, 0);
    return FB_OK;
}

static fb_status record_verdict(commit *c, fb_error *err)
{
    fb_registry_store store;
    const fb_registry_row *newer;
    history h = {c, 0, 0};
    fb_status status = fb_registry_store_open(&store, c->os, c->home, look_back, &h, err);
    if (status != FB_OK) return status;
    newer = superseded(&store, c);
    if (newer && !still_worth_saying(c, newer)) {
        int32_t state = newer->rec.state == FB_CKPT_QUARANTINED ? FB_CKPT_QUARANTINED : FB_CKPT_SUSPECT;
        set(c, state, newer->rec.reason);
    } else {
        status = write_verdict(&store, c, &h, err);
    }
    if (status == FB_OK) (void)fb_aside_finish(&store, NULL, NULL); /* what fails is in the record, for the next one */
    fb_registry_store_close(&store);
    return status;
}

/* ---- all three -------------------------------------------------------------------------------------------------------------- */

static fb_status commit_checkpoint(commit *c, const fb_ckpt_options *options, const fb_ckpt_sink *sink, fb_ckpt_summary *summary,
                                   int32_t *state, fb_error *err)
{
    fb_error recorded;
    fb_status scanned, status = record_birth(c, err);
    if (status != FB_OK) return status;
    /* Where it cannot be written: `latest` then needs to be told the folder of the run. */
    (void)fb_homes_add(c->os, c->place.dir, c->home, NULL);
    scanned = fb_judge_scan(c->os, c->place.path, options, sink, summary, &c->rec, err);
    if (scanned == FB_E_WITHHELD) return scanned; /* the caller stopped it: not read back yet */
    judge(c, scanned);
    status = record_verdict(c, &recorded);
    if (status != FB_OK) { /* not in the registry, so it is what the registry says: suspect */
        if (err) *err = recorded;
        return status;
    }
    if (c->rec.state == FB_CKPT_COMMITTED) (void)fb_pins_settle(c->os, c->home, c->place.dir, FB_PINS_ALL, NULL, NULL);
    *state = c->rec.state;
    return scanned;
}

fb_status fb_registry_commit_with(const fb_os *os, const char *run_folder, const char *path, int64_t step, int32_t attempt,
                                  int32_t rank, int gated, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                                  fb_ckpt_summary *summary, int32_t *state, fb_error *err)
{
    commit c;
    fb_ckpt_summary own;
    fb_status status;
    if (!os || !run_folder || !path || !state) return fb_fail(err, FB_E_USAGE, "commit checkpoint: an argument is NULL");
    *state = FB_CKPT_SUSPECT;
    if (!summary) summary = &own;
    memset(summary, 0, sizeof *summary);
    memset(&c, 0, sizeof c);
    c.os = os;
    c.home = run_folder;
    c.summary = summary;
    if ((status = fb_place_find(&c.place, os, path, 0, "commit checkpoint", err)) != FB_OK) return status;
    c.rec.path = fb_registry_words(c.place.path);
    c.rec.step = step;
    c.rec.attempt = attempt;
    c.rec.rank = rank;
    c.rec.gated = gated ? FB_CKPT_GATED_YES : FB_CKPT_GATED_NO;
    return commit_checkpoint(&c, options, sink, summary, state, err);
}

fb_status fb_registry_commit(const fb_os *os, const char *run_folder, const char *path, int64_t step, int32_t attempt, int32_t rank,
                             int gated, int32_t *state, fb_error *err)
{
    return fb_registry_commit_with(os, run_folder, path, step, attempt, rank, gated, NULL, NULL, NULL, state, err);
}
