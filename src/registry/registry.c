/* Records in and out of checkpoints.log, and the questions that the newest states answer. */
#include "registry/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "log/log.h"
#include "registry/store.h"
#include "registry/table.h"

const char *fb_registry_state_name(int32_t state)
{
    switch (state) {
    case FB_CKPT_SUSPECT: return "suspect";
    case FB_CKPT_COMMITTED: return "committed";
    case FB_CKPT_QUARANTINED: return "quarantined";
    default: return "?";
    }
}

const char *fb_registry_reason_text(int32_t state, int32_t reason)
{
    switch (reason) {
    case FB_CKPT_REASON_READ_BACK: return state == FB_CKPT_COMMITTED ? "read back and finite" : "not read back yet";
    case FB_CKPT_REASON_NOT_FINITE: return "not finite";
    case FB_CKPT_REASON_UNREADABLE: return "could not be read";
    case FB_CKPT_REASON_LINEAGE: return "an update before it was not provably gated";
    case FB_CKPT_REASON_UNSUPPORTED: return "some of it could not be looked at";
    default: return "?";
    }
}

/* ---- writing ---------------------------------------------------------------------------------------------------------------- */

/* Unique enough to tell blocks of one file from those of another: the place, the process and the time of creation. */
static uint64_t new_file_id(const fb_os *os, const char *path)
{
    uint64_t words[4];
    words[0] = (uint64_t)os->realtime_ns(os->ctx);
    words[1] = (uint64_t)os->monotonic_ns(os->ctx);
    words[2] = (uint64_t)os->getpid(os->ctx);
    words[3] = fb_hash64(path, strlen(path), 0);
    return fb_hash64(words, sizeof words, 0x636b7074);
}

static fb_status take_record(void *ctx, const fb_log_record *record, fb_error *err)
{
    fb_registry_store *store = ctx;
    fb_rec_ckpt rec;
    fb_status status;
    if (record->type != FB_REC_CKPT) return FB_OK; /* of a later version */
    if ((status = fb_rec_ckpt_decode(record->payload, record->bytes, &rec, err)) != FB_OK) return status;
    if (store->fn && (status = store->fn(store->ctx, &rec, record->sequence, record->time_ns, err)) != FB_OK) return status;
    return fb_registry_table_put(&store->table, &rec, record->sequence, record->time_ns, err);
}

fb_status fb_registry_store_open(fb_registry_store *store, const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx,
                                 fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_status status;
    memset(store, 0, sizeof *store);
    store->fn = fn;
    store->ctx = ctx;
    if ((status = fb_os_join(path, sizeof path, run_folder, FB_REGISTRY_FILE, err)) != FB_OK) return status;
    store->buffer = fb_calloc(FB_REC_BYTES_MAX, 1);
    if (!store->buffer) return fb_fail(err, FB_E_NOMEM, "open registry %s: no memory for %d bytes", path, FB_REC_BYTES_MAX);
    status = fb_log_shared_open(&store->log, os, path, new_file_id(os, path), take_record, store, err);
    if (status != FB_OK) fb_registry_store_close(store);
    return status;
}

void fb_registry_store_close(fb_registry_store *store)
{
    fb_log_shared_close(store->log);
    fb_registry_table_release(&store->table);
    fb_free(store->buffer);
    memset(store, 0, sizeof *store);
}

fb_status fb_registry_store_append(fb_registry_store *store, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err)
{
    uint32_t bytes = fb_rec_ckpt_encode(store->buffer, FB_REC_BYTES_MAX, rec);
    fb_status status;
    if (bytes == 0)
        return fb_fail(err, FB_E_LIMIT, "record checkpoint %.*s: it does not fit a record", (int)rec->path.bytes, rec->path.data);
    status = fb_log_shared_append(store->log, FB_REC_CKPT, store->buffer, bytes, err);
    if (status == FB_OK && sequence) *sequence = fb_log_shared_sequence(store->log);
    return status;
}

fb_status fb_registry_put(const fb_os *os, const char *run_folder, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err)
{
    fb_registry_store store;
    fb_status status;
    if (!os || !run_folder || !rec) return fb_fail(err, FB_E_USAGE, "record checkpoint: an argument is NULL");
    if (rec->path.bytes == 0) return fb_fail(err, FB_E_USAGE, "record checkpoint: it has no path");
    if (rec->path.bytes >= FB_OS_PATH_MAX)
        return fb_fail(err, FB_E_LIMIT, "record checkpoint: a path of %u bytes", rec->path.bytes);
    if (rec->state < FB_CKPT_SUSPECT || rec->state > FB_CKPT_QUARANTINED) {
        return fb_fail(err, FB_E_USAGE, "record checkpoint: %d is no state", rec->state);
    }
    if ((status = fb_registry_store_open(&store, os, run_folder, NULL, NULL, err)) != FB_OK) return status;
    status = fb_registry_store_append(&store, rec, sequence, err);
    fb_registry_store_close(&store);
    return status;
}

fb_status fb_registry_record(const fb_os *os, const char *run_folder, const fb_rec_ckpt *rec, fb_error *err)
{
    return fb_registry_put(os, run_folder, rec, NULL, err);
}

/* Committed, or about to be: its bytes are being read back now. */
static int can_taint(const fb_rec_ckpt *rec)
{
    return rec->state == FB_CKPT_COMMITTED || (rec->state == FB_CKPT_SUSPECT && rec->reason == FB_CKPT_REASON_READ_BACK);
}

fb_status fb_registry_taint(const fb_os *os, const char *run_folder, int32_t attempt, int64_t step, uint64_t *changed,
                            fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_registry_store store;
    uint64_t done = 0;
    fb_status status;
    if (changed) *changed = 0;
    if (!os || !run_folder) return fb_fail(err, FB_E_USAGE, "taint checkpoints: an argument is NULL");
    if ((status = fb_os_join(path, sizeof path, run_folder, FB_REGISTRY_FILE, err)) != FB_OK) return status;
    if (os->stat(os->ctx, path, &info) == -ENOENT) return FB_OK; /* nothing was saved yet, so there is nothing to taint */
    if ((status = fb_registry_store_open(&store, os, run_folder, NULL, NULL, err)) != FB_OK) return status;
    for (uint64_t i = 0; status == FB_OK && i < store.table.count; i++) {
        fb_rec_ckpt rec = store.table.rows[i].rec;
        if (!can_taint(&rec) || rec.attempt != attempt || rec.step < step) continue;
        rec.state = FB_CKPT_SUSPECT;
        rec.reason = FB_CKPT_REASON_LINEAGE;
        status = fb_registry_store_append(&store, &rec, NULL, err);
        if (status == FB_OK) done++;
    }
    fb_registry_store_close(&store);
    if (changed) *changed = done;
    return status;
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

/*
 * A reader stops at the first record that is not valid. If valid ones follow, an older state could pass for the newest one: a
 * quarantined checkpoint for a committed one. That is refused, unless a writer was at work and reading on gives the record now.
 */
static fb_status at_end(const fb_os *os, const char *path, fb_log_reader *reader, int *more, fb_error *err)
{
    fb_log_tail tail;
    int hidden, tried_again = *more;
    fb_status status = fb_log_reader_tail(reader, &tail, err);
    *more = 0;
    if (status != FB_OK) return status;
    if ((status = fb_log_shared_hidden(os, path, tail.offset_bytes, tail.after_bytes, &hidden, err)) != FB_OK || !hidden)
        return status;
    *more = 1;
    if (!tried_again) return FB_OK;
    return fb_fail_at(err, tail.offset_bytes,
                      "read registry %s: it is damaged here and records follow, so the newest states are not known", path);
}

fb_status fb_registry_trail(const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_log_reader *reader;
    fb_log_record record;
    fb_rec_ckpt rec;
    fb_status status;
    int more = 0;
    if (!os || !run_folder || !fn) return fb_fail(err, FB_E_USAGE, "read the registry: an argument is NULL");
    if ((status = fb_os_join(path, sizeof path, run_folder, FB_REGISTRY_FILE, err)) != FB_OK) return status;
    status = fb_log_reader_open(&reader, os, path, err);
    if (status == FB_E_NOTFOUND) {
        fb_error_clear(err);
        return FB_OK;
    }
    if (status != FB_OK) return status;
    do {
        while ((status = fb_log_reader_next(reader, &record, err)) == FB_OK) {
            more = 0;
            if (record.type != FB_REC_CKPT) continue;
            if ((status = fb_rec_ckpt_decode(record.payload, record.bytes, &rec, err)) != FB_OK) break;
            if ((status = fn(ctx, &rec, record.sequence, record.time_ns, err)) != FB_OK) break;
        }
        if (status == FB_E_NOTFOUND) status = at_end(os, path, reader, &more, err);
    } while (status == FB_OK && more);
    fb_log_reader_close(reader);
    return status;
}

static fb_status put_row(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    return fb_registry_table_put(ctx, rec, sequence, time_ns, err);
}

fb_status fb_registry_each(const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx, fb_error *err)
{
    fb_registry_table table;
    fb_status status;
    memset(&table, 0, sizeof table);
    status = fb_registry_trail(os, run_folder, put_row, &table, err);
    for (uint64_t i = 0; status == FB_OK && i < table.count; i++) {
        const fb_registry_row *row = &table.rows[i];
        status = fn(ctx, &row->rec, row->sequence, row->time_ns, err);
    }
    fb_registry_table_release(&table);
    return status;
}

/* ---- the one to resume from ------------------------------------------------------------------------------------------------- */

static int is_better(const fb_registry_row *row, const fb_registry_row *best)
{
    if (!best) return 1;
    if (row->rec.attempt != best->rec.attempt) return row->rec.attempt > best->rec.attempt;
    if (row->rec.step != best->rec.step) return row->rec.step > best->rec.step;
    return row->sequence > best->sequence;
}

/* Is it still what was committed? `why` gets the reason when it is not. */
static fb_status still_good(const fb_os *os, const fb_registry_row *row, int how, fb_error *why)
{
    fb_os_info info;
    fb_ckpt_summary summary;
    fb_status status;
    int64_t got = os->stat(os->ctx, row->path, &info);
    if (got < 0) return fb_fail_os(why, (int)-got, "look at %s", row->path);
    if (info.kind == FB_OS_FILE && info.size_bytes != row->rec.bytes) {
        return fb_fail(why, FB_E_CORRUPT, "%s has %llu bytes now, and %llu were committed", row->path,
                       (unsigned long long)info.size_bytes, (unsigned long long)row->rec.bytes);
    }
    if (how != FB_REGISTRY_VERIFY) return FB_OK;
    if ((status = fb_ckpt_scan_path(os, row->path, NULL, NULL, &summary, why)) != FB_OK) return status;
    if (summary.digest != row->rec.digest) {
        return fb_fail(why, FB_E_CORRUPT, "%s was changed after it was committed", row->path);
    }
    return FB_OK;
}

static fb_status choose(const fb_os *os, const char *run_folder, const fb_registry_table *table, uint8_t *refused, int how,
                        fb_registry_checkpoint *out, fb_error *err)
{
    uint64_t committed = 0;
    fb_error why;
    fb_error_clear(&why);
    for (;;) {
        const fb_registry_row *best = NULL;
        for (uint64_t i = 0; i < table->count; i++) {
            const fb_registry_row *row = &table->rows[i];
            if (row->rec.state == FB_CKPT_COMMITTED && !refused[i] && is_better(row, best)) best = row;
        }
        if (!best) break;
        committed++;
        if (still_good(os, best, how, &why) == FB_OK) {
            out->step = best->rec.step;
            out->attempt = best->rec.attempt;
            out->rank = best->rec.rank;
            out->bytes = best->rec.bytes;
            out->digest = best->rec.digest;
            (void)snprintf(out->path, sizeof out->path, "%s", best->path);
            return FB_OK;
        }
        refused[best - table->rows] = 1;
    }
    if (committed == 0) {
        return fb_fail(err, FB_E_NOTFOUND, "find a checkpoint to resume from in %s: %llu are recorded, none is committed",
                       run_folder, (unsigned long long)table->count);
    }
    return fb_fail(err, FB_E_NOTFOUND,
                   "find a checkpoint to resume from in %s: %llu were committed, none is usable now; the last: %s", run_folder,
                   (unsigned long long)committed, why.message);
}

fb_status fb_registry_latest_committed(const fb_os *os, const char *run_folder, int how, fb_registry_checkpoint *out, fb_error *err)
{
    fb_registry_table table;
    uint8_t *refused = NULL;
    fb_status status;
    if (!out) return fb_fail(err, FB_E_USAGE, "find a checkpoint to resume from: an argument is NULL");
    memset(out, 0, sizeof *out);
    memset(&table, 0, sizeof table);
    status = fb_registry_trail(os, run_folder, put_row, &table, err);
    if (status == FB_OK) {
        refused = fb_calloc((size_t)table.count, 1);
        if (!refused) status = fb_fail(err, FB_E_NOMEM, "find a checkpoint to resume from: no memory");
    }
    if (status == FB_OK && refused) status = choose(os, run_folder, &table, refused, how, out, err);
    fb_free(refused);
    fb_registry_table_release(&table);
    return status;
}
