/*
 * From a file that a trainer says it wrote to a verdict. Three steps, each durable before the next, so that a crash between any two
 * leaves a suspect and never a committed checkpoint:
 *   1. record suspect            2. make the bytes durable, read them back, scan and digest them        3. record the verdict
 * The lock is held for 1 and for 3, not for 2, which may take minutes.
 */
#include <errno.h>
#include <string.h>

#include "registry/registry.h"
#include "registry/store.h"

typedef struct commit {
    const fb_os *os;
    const char *run_folder;
    int gated;
    fb_rec_ckpt rec;
    char path[FB_OS_PATH_MAX];
    uint64_t birth; /* number of the record that made it suspect */
    const fb_ckpt_summary *summary;
} commit;

static fb_status record_birth(commit *c, fb_error *err)
{
    c->rec.state = FB_CKPT_SUSPECT;
    c->rec.reason = FB_CKPT_REASON_READ_BACK;
    return fb_registry_put(c->os, c->run_folder, &c->rec, &c->birth, err);
}

static void set(commit *c, int32_t state, int32_t reason)
{
    c->rec.state = state;
    c->rec.reason = reason;
}

/* What the bytes say, and what the history of updates says, in this order: bad content is bad whatever came before. */
static void judge(commit *c, fb_status scanned)
{
    const fb_ckpt_summary *s = c->summary;
    c->rec.tensors = s->tensors;
    c->rec.elements = s->elements;
    c->rec.bytes = s->bytes;
    c->rec.bad = s->bad;
    c->rec.digest = s->digest;
    c->rec.tensor.data = s->first_tensor;
    c->rec.tensor.bytes = (uint32_t)strlen(s->first_tensor);
#ifdef FB_BREAK_P8
    set(c, c->gated ? FB_CKPT_COMMITTED : FB_CKPT_SUSPECT, FB_CKPT_REASON_READ_BACK);
    (void)scanned;
#else
    if (scanned != FB_OK || s->outcome == FB_CKPT_UNREADABLE) set(c, FB_CKPT_SUSPECT, FB_CKPT_REASON_UNREADABLE);
    else if (s->outcome == FB_CKPT_NON_FINITE) set(c, FB_CKPT_QUARANTINED, FB_CKPT_REASON_NOT_FINITE);
    else if (s->outcome != FB_CKPT_CLEAN || s->checked == 0) set(c, FB_CKPT_SUSPECT, FB_CKPT_REASON_UNSUPPORTED);
    else if (!c->gated) set(c, FB_CKPT_SUSPECT, FB_CKPT_REASON_LINEAGE);
    else set(c, FB_CKPT_COMMITTED, FB_CKPT_REASON_READ_BACK);
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

/*
 * Under the lock: did somebody say more of this path since record_birth? Another save to the same path has a verdict of its own to
 * come, and a taint stands; only that the bytes are not finite is worth saying after a taint.
 */
static int superseded(const fb_registry_store *store, const commit *c)
{
    const fb_registry_row *row = fb_registry_table_find(&store->table, c->rec.path.data, c->rec.path.bytes);
    if (!row || row->sequence == c->birth) return 0;
    return !(c->rec.state == FB_CKPT_QUARANTINED && row->rec.step == c->rec.step && row->rec.attempt == c->rec.attempt);
}

static fb_status record_verdict(commit *c, fb_error *err)
{
    fb_registry_store store;
    history h = {c, 0, 0};
    fb_status status = fb_registry_store_open(&store, c->os, c->run_folder, look_back, &h, err);
    if (status != FB_OK) return status;
    if (superseded(&store, c)) {
        set(c, FB_CKPT_SUSPECT, FB_CKPT_REASON_LINEAGE);
    } else {
        int kept = h.state == FB_CKPT_QUARANTINED || (h.state == FB_CKPT_SUSPECT && h.reason == FB_CKPT_REASON_LINEAGE);
        if (c->rec.state == FB_CKPT_COMMITTED && kept) set(c, h.state, h.reason);
        status = fb_registry_store_append(&store, &c->rec, NULL, err);
    }
    fb_registry_store_close(&store);
    return status;
}

/* Which file is meant must not depend on the folder that somebody happens to stand in later. */
static fb_status find_path(commit *c, const char *path, fb_error *err)
{
    int64_t got = c->os->realpath(c->os->ctx, path, c->path, sizeof c->path);
    if (got == -ENOENT || got == -ENOTDIR) return fb_fail(err, FB_E_NOTFOUND, "commit checkpoint %s: no such file or folder", path);
    if (got == -ENAMETOOLONG) return fb_fail(err, FB_E_LIMIT, "commit checkpoint %.200s: its path is too long", path);
    if (got < 0) return fb_fail_os(err, (int)-got, "commit checkpoint %s: find its absolute path", path);
    c->rec.path.data = c->path;
    c->rec.path.bytes = (uint32_t)strlen(c->path);
    return FB_OK;
}

/* The scan makes the content durable; the name of the checkpoint itself is in the folder above. */
static fb_status scan_durably(const commit *c, const fb_ckpt_options *options, const fb_ckpt_sink *sink, fb_ckpt_summary *summary,
                              fb_error *err)
{
    fb_ckpt_options own;
    int64_t got;
    memset(&own, 0, sizeof own);
    if (options) own = *options;
    own.sync = 1;
    got = fb_os_sync_parent(c->os, c->path);
    if (got < 0) {
        summary->outcome = FB_CKPT_UNREADABLE;
        return fb_fail_os(err, (int)-got, "commit checkpoint %s: make its name durable", c->path);
    }
    return fb_ckpt_scan_path(c->os, c->path, &own, sink, summary, err);
}

fb_status fb_registry_commit_with(const fb_os *os, const char *run_folder, const char *path, int64_t step, int32_t attempt,
                                  int32_t rank, int gated, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                                  fb_ckpt_summary *summary, int32_t *state, fb_error *err)
{
    commit c;
    fb_ckpt_summary own;
    fb_error recorded;
    fb_status scanned, status;
    if (!os || !run_folder || !path || !state) return fb_fail(err, FB_E_USAGE, "commit checkpoint: an argument is NULL");
    *state = FB_CKPT_SUSPECT;
    if (!summary) summary = &own;
    memset(summary, 0, sizeof *summary);
    memset(&c, 0, sizeof c);
    c.os = os;
    c.run_folder = run_folder;
    c.gated = gated;
    c.rec.step = step;
    c.rec.attempt = attempt;
    c.rec.rank = rank;
    c.rec.tensor.data = "";
    c.summary = summary;
    if ((status = find_path(&c, path, err)) != FB_OK) return status;
    if ((status = record_birth(&c, err)) != FB_OK) return status;
    scanned = scan_durably(&c, options, sink, summary, err);
    judge(&c, scanned);
    status = record_verdict(&c, &recorded);
    if (status != FB_OK) { /* not in the registry, so it is what the registry says: suspect */
        if (err) *err = recorded;
        return status;
    }
    *state = c.rec.state;
    return scanned;
}

fb_status fb_registry_commit(const fb_os *os, const char *run_folder, const char *path, int64_t step, int32_t attempt, int32_t rank,
                             int gated, int32_t *state, fb_error *err)
{
    return fb_registry_commit_with(os, run_folder, path, step, attempt, rank, gated, NULL, NULL, NULL, state, err);
}
