/* The checkpoint to resume from. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "registry/usable.h"
#include "registry/restore.h"

/* The registries that may have a say, each as it was read. */
typedef struct known {
    char *home;
    fb_registry_table table;
    uint64_t newest_ns; /* time of the newest record of a committed one that counts */
    uint8_t *refused;   /* rows that will not do */
} known;

typedef struct search {
    const fb_os *os;
    char dir[FB_OS_PATH_MAX]; /* "" : wherever they lie */
    int how;
    int64_t step_max;
    known *homes;
    uint64_t count, room;
    uint64_t committed, recorded;
    fb_error why; /* the last one that would not do */
} search;

/* ---- choosing --------------------------------------------------------------------------------------------------------------- */

static int lies_below(fb_text path, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 0 && dir[n - 1] == '/') n--;
    if (path.bytes < n || (n && memcmp(path.data, dir, n) != 0)) return 0;
    return path.bytes == n || path.data[n] == '/';
}

static int counts(const search *s, const fb_rec_ckpt *rec)
{
    if (rec->step > s->step_max) return 0;
    if (!s->dir[0]) return 1;
    return lies_below(rec->path, s->dir) || (rec->origin.bytes && lies_below(rec->origin, s->dir));
}

static int is_better(const fb_registry_row *row, const fb_registry_row *best)
{
    int newer = best ? fb_newer(&row->rec, &best->rec) : 1;
    if (newer) return newer > 0;
    if (!row->rec.origin.bytes != !best->rec.origin.bytes) return !row->rec.origin.bytes; /* itself before what stands for it */
    return row->sequence > best->sequence;
}

static const fb_registry_row *best_of(const search *s, const known *k)
{
    const fb_registry_row *best = NULL;
    for (uint64_t i = 0; i < k->table.count; i++) {
        const fb_registry_row *row = &k->table.rows[i];
        if (row->rec.state == FB_CKPT_COMMITTED && !k->refused[i] && counts(s, &row->rec) && is_better(row, best)) best = row;
    }
    return best;
}

/* Who quarantined these bytes has the last word: the same registry under another name of theirs, or another registry. */
static int is_denied(const search *s, const known *own, const fb_registry_row *row, fb_error *why)
{
    const fb_registry_row *later = fb_bytes_quarantined(&own->table, &row->rec, row->sequence);
    if (later) {
        (void)fb_fail(why, FB_E_WITHHELD, "%s holds what was quarantined as %s", row->path, later->path);
        return 1;
    }
    for (uint64_t h = 0; h < s->count; h++) {
        const known *k = &s->homes[h];
        for (uint64_t i = 0; k != own && i < k->table.count; i++) {
            const fb_rec_ckpt *rec = &k->table.rows[i].rec;
            if (rec->state != FB_CKPT_QUARANTINED || strcmp(fb_registry_text(rec->path), row->path) != 0) continue;
            if (rec->digest != row->rec.digest && (rec->digest != 0 || k->table.rows[i].time_ns < row->time_ns)) continue;
            (void)fb_fail(why, FB_E_WITHHELD, "%s is quarantined by %s", row->path, k->home);
            return 1;
        }
    }
    return 0;
}

/* By what the registry says of this name at this step: itself, or what stands for it. */
static int part_is_usable(const search *s, const known *k, const fb_rec_ckpt *part)
{
    fb_text name = part->origin.bytes ? part->origin : part->path;
    char where[FB_OS_PATH_MAX];
    for (uint64_t i = 0; i < k->table.count; i++) {
        const fb_rec_ckpt *rec = &k->table.rows[i].rec;
        fb_text own = rec->origin.bytes ? rec->origin : rec->path;
        fb_error why;
        if (rec->state != FB_CKPT_COMMITTED || fb_newer(rec, part) != 0 || rec->rank != part->rank) continue;
        if (own.bytes != name.bytes || memcmp(own.data, name.data, name.bytes) != 0) continue;
        if (fb_usable(s->os, rec, s->how, where, &why) == FB_OK) return 1;
    }
    return 0;
}

/* What several ranks saved of one step is one checkpoint, and with a part that will not do none of it will. */
static int lacks_a_part(const search *s, const known *k, const fb_registry_row *row, fb_error *why)
{
    for (uint64_t i = 0; i < k->table.count; i++) {
        const fb_registry_row *part = &k->table.rows[i];
        if (fb_newer(&part->rec, &row->rec) != 0 || part->rec.rank == row->rec.rank) continue;
        if (part_is_usable(s, k, &part->rec)) continue;
        (void)fb_fail(why, FB_E_WITHHELD, "%s is what rank %d saved of step %lld, and %s of rank %d is %s", row->path,
                      row->rec.rank, (long long)row->rec.step, part->path, part->rec.rank,
                      part->rec.state == FB_CKPT_COMMITTED ? "gone or changed" : fb_registry_state_name(part->rec.state));
        return 1;
    }
    if (!fb_step_is_told(&k->table, &row->rec)) {
        (void)fb_fail(why, FB_E_WITHHELD,
                      "%s is what rank %d saved of step %lld, and not all ranks that saved the step before have", row->path,
                      row->rec.rank, (long long)row->rec.step);
        return 1;
    }
    return 0;
}

static int choose(search *s, const known *k, fb_registry_checkpoint *out)
{
    const fb_registry_row *best;
    while ((best = best_of(s, k)) != NULL) {
        s->committed++;
        if (!is_denied(s, k, best, &s->why) && fb_usable(s->os, &best->rec, s->how, out->path, &s->why) == FB_OK &&
            !lacks_a_part(s, k, best, &s->why)) {
            out->step = best->rec.step;
            out->attempt = best->rec.attempt;
            out->rank = best->rec.rank;
            out->bytes = best->rec.bytes;
            out->digest = best->rec.digest;
            return 1;
        }
        k->refused[best - k->table.rows] = 1;
    }
    return 0;
}

static fb_status none(const search *s, const char *where, fb_error *err)
{
    if (s->committed == 0) {
        return fb_fail(err, FB_E_NOTFOUND, "find a checkpoint to resume from in %s: %llu are recorded, none is committed", where,
                       (unsigned long long)s->recorded);
    }
    return fb_fail(err, FB_E_NOTFOUND,
                   "find a checkpoint to resume from in %s: %llu were committed, none is usable now; the last: %s", where,
                   (unsigned long long)s->committed, s->why.message);
}

/* ---- gathering -------------------------------------------------------------------------------------------------------------- */

static void release(search *s)
{
    for (uint64_t i = 0; i < s->count; i++) {
        fb_free(s->homes[i].home);
        fb_registry_table_release(&s->homes[i].table);
        fb_free(s->homes[i].refused);
    }
    fb_free(s->homes);
}

static fb_status add_home(void *ctx, const char *home, fb_error *err)
{
    search *s = ctx;
    known *k;
    fb_status status;
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 4;
        known *grown = fb_realloc(s->homes, (size_t)room * sizeof *grown);
        if (!grown) return fb_fail(err, FB_E_NOMEM, "find a checkpoint to resume from: no memory");
        s->homes = grown;
        s->room = room;
    }
    k = &s->homes[s->count++];
    memset(k, 0, sizeof *k);
    k->home = fb_strdup(home);
    if (!k->home) return fb_fail(err, FB_E_NOMEM, "find a checkpoint to resume from: no memory");
    if ((status = fb_registry_load(s->os, home, &k->table, err)) != FB_OK) return status;
    k->refused = fb_calloc((size_t)k->table.count, 1);
    if (!k->refused) return fb_fail(err, FB_E_NOMEM, "find a checkpoint to resume from: no memory");
    for (uint64_t i = 0; i < k->table.count; i++) {
        if (!counts(s, &k->table.rows[i].rec)) continue;
        s->recorded++;
        /* That an old run's checkpoint was doubted just now does not make it the run to resume. */
        if (k->table.rows[i].rec.state != FB_CKPT_COMMITTED) continue;
        if (k->table.rows[i].time_ns > k->newest_ns) k->newest_ns = k->table.rows[i].time_ns;
    }
    return FB_OK;
}

static void init(search *s, const fb_os *os, int how)
{
    memset(s, 0, sizeof *s);
    s->os = os;
    s->how = how;
    s->step_max = INT64_MAX;
    fb_error_clear(&s->why);
}

static fb_status latest_of(const fb_os *os, const char *run_folder, int how, int64_t step_max, int restore,
                           fb_registry_checkpoint *out, fb_error *err)
{
    search s;
    fb_status status;
    if (!os || !run_folder || !out) return fb_fail(err, FB_E_USAGE, "find a checkpoint to resume from: an argument is NULL");
    memset(out, 0, sizeof *out);
    init(&s, os, how);
    s.step_max = step_max;
    status = add_home(&s, run_folder, err);
    if (status == FB_OK && !choose(&s, &s.homes[0], out)) status = none(&s, run_folder, err);
    if (status == FB_OK && restore) status = fb_restore(os, run_folder, out, err);
    if (status != FB_OK) memset(out, 0, sizeof *out);
    release(&s);
    return status;
}

fb_status fb_registry_latest_committed(const fb_os *os, const char *run_folder, int how, fb_registry_checkpoint *out, fb_error *err)
{
    return latest_of(os, run_folder, how, INT64_MAX, 0, out, err);
}

fb_status fb_registry_latest_until(const fb_os *os, const char *run_folder, int how, int64_t step_max, fb_registry_checkpoint *out,
                                   fb_error *err)
{
    return latest_of(os, run_folder, how, step_max, 0, out, err);
}

fb_status fb_registry_latest_of(const fb_os *os, const char *run_folder, int how, int restore, fb_registry_checkpoint *out,
                                fb_error *err)
{
    return latest_of(os, run_folder, how, INT64_MAX, restore, out, err);
}

/* The home whose newest committed record is the youngest, among those not asked yet. */
static known *next_home(const search *s, const uint8_t *asked)
{
    known *best = NULL;
    for (uint64_t i = 0; i < s->count; i++) {
        if (!asked[i] && (!best || s->homes[i].newest_ns > best->newest_ns)) best = &s->homes[i];
    }
    return best;
}

fb_status fb_registry_latest_in(const fb_os *os, const char *dir, const char *runs_dir, int how, int restore,
                                fb_registry_checkpoint *out, fb_error *err)
{
    search s;
    uint8_t *asked = NULL;
    const known *found = NULL;
    known *k;
    fb_status status;
    int64_t got;
    if (!os || !dir || !out) return fb_fail(err, FB_E_USAGE, "find a checkpoint to resume from: an argument is NULL");
    memset(out, 0, sizeof *out);
    init(&s, os, how);
    got = os->realpath(os->ctx, dir, s.dir, sizeof s.dir);
    if (got == -ENOENT || got == -ENOTDIR)
        return fb_fail(err, FB_E_NOTFOUND, "find a checkpoint to resume from: there is no %s", dir);
    if (got < 0) return fb_fail_os(err, (int)-got, "find a checkpoint to resume from: find %s", dir);
    if (fb_registry_exists(os, s.dir)) s.dir[0] = '\0'; /* a home: all that it knows */
    status = fb_registry_homes(os, dir, runs_dir, add_home, &s, err);
    if (status == FB_OK && s.count) {
        asked = fb_calloc((size_t)s.count, 1);
        if (!asked) status = fb_fail(err, FB_E_NOMEM, "find a checkpoint to resume from: no memory");
    }
    while (status == FB_OK && asked && !found && (k = next_home(&s, asked)) != NULL) {
        asked[k - s.homes] = 1;
        if (choose(&s, k, out)) found = k;
    }
    if (status == FB_OK && !found) status = none(&s, dir, err);
    if (status == FB_OK && found && restore) status = fb_restore(os, found->home, out, err);
    if (status != FB_OK) memset(out, 0, sizeof *out);
    fb_free(asked);
    release(&s);
    return status;
}
