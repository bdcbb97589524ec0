/* Records in and out of checkpoints.log, and the questions that the newest states answer. */
#include "registry/registry.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "log/log.h"
#include "registry/place.h"
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
    case FB_CKPT_REASON_CASE: return "a case was opened after it was saved";
    case FB_CKPT_REASON_OPERATOR: return state == FB_CKPT_COMMITTED ? "released by an operator" : "an operator said so";
    case FB_CKPT_REASON_CHANGED: return "its bytes changed after the verdict";
    case FB_CKPT_REASON_NO_RUN: return "no run vouches for it";
    default: return "?";
    }
}

const char *fb_registry_pin_name(int32_t pin)
{
    switch (pin) {
    case FB_PIN_NONE: return "none";
    case FB_PIN_LINK: return "link";
    case FB_PIN_RENAMED: return "renamed";
    case FB_PIN_REFLINK: return "reflink";
    case FB_PIN_COPY: return "copy";
    case FB_PIN_IMPOSSIBLE: return "impossible";
    default: return "?";
    }
}

fb_text fb_registry_words(const char *text)
{
    fb_text out;
    out.data = text;
    out.bytes = (uint32_t)strlen(text);
    return out;
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

fb_status fb_registry_store_open(fb_registry_store *store, const fb_os *os, const char *home, fb_registry_fn fn, void *ctx,
                                 fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    int64_t got;
    fb_status status;
    memset(store, 0, sizeof *store);
    store->os = os;
    store->fn = fn;
    store->ctx = ctx;
    if ((status = fb_place_is_ours(os, home, err)) != FB_OK) return status;
    got = os->realpath(os->ctx, home, store->home, sizeof store->home);
    if (got < 0) return fb_fail_os(err, (int)-got, "open the registry in %s: find the folder", home);
    if ((status = fb_os_join(path, sizeof path, store->home, FB_REGISTRY_FILE, err)) != FB_OK) return status;
    store->buffer = fb_calloc(FB_LOG_PAYLOAD_MAX, 1);
    if (!store->buffer) return fb_fail(err, FB_E_NOMEM, "open registry %s: no memory for %d bytes", path, FB_LOG_PAYLOAD_MAX);
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
    uint32_t bytes = fb_rec_ckpt_encode(store->buffer, FB_LOG_PAYLOAD_MAX, rec);
    fb_rec_ckpt written;
    int64_t now = store->os->realtime_ns(store->os->ctx);
    fb_status status;
    if (bytes == 0)
        return fb_fail(err, FB_E_LIMIT, "record checkpoint %.*s: it does not fit a record", (int)rec->path.bytes, rec->path.data);
    /* Into the table first: memory that is missing must not turn a record that is written into an error. */
    if ((status = fb_rec_ckpt_decode(store->buffer, bytes, &written, err)) != FB_OK) return status;
    status =
        fb_registry_table_put(&store->table, &written, fb_log_shared_sequence(store->log) + 1, now < 0 ? 0 : (uint64_t)now, err);
    if (status == FB_OK) status = fb_log_shared_append(store->log, FB_REC_CKPT, store->buffer, bytes, err);
    if (status == FB_OK && sequence) *sequence = fb_log_shared_sequence(store->log);
    return status;
}

fb_status fb_registry_put(const fb_os *os, const char *home, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err)
{
    fb_registry_store store;
    fb_status status;
    if (!os || !home || !rec) return fb_fail(err, FB_E_USAGE, "record checkpoint: an argument is NULL");
    if (rec->path.bytes == 0) return fb_fail(err, FB_E_USAGE, "record checkpoint: it has no path");
    if (rec->path.bytes >= FB_OS_PATH_MAX)
        return fb_fail(err, FB_E_LIMIT, "record checkpoint: a path of %u bytes", rec->path.bytes);
    if (rec->state < FB_CKPT_SUSPECT || rec->state > FB_CKPT_QUARANTINED) {
        return fb_fail(err, FB_E_USAGE, "record checkpoint: %d is no state", rec->state);
    }
    if ((status = fb_registry_store_open(&store, os, home, NULL, NULL, err)) != FB_OK) return status;
    status = fb_registry_store_append(&store, rec, sequence, err);
    fb_registry_store_close(&store);
    return status;
}

fb_status fb_registry_record(const fb_os *os, const char *run_folder, const fb_rec_ckpt *rec, fb_error *err)
{
    return fb_registry_put(os, run_folder, rec, NULL, err);
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

fb_status fb_registry_load(const fb_os *os, const char *home, fb_registry_table *table, fb_error *err)
{
    return fb_registry_trail(os, home, put_row, table, err);
}

int fb_registry_exists(const fb_os *os, const char *home)
{
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    int64_t got;
    if (fb_os_join(path, sizeof path, home, FB_REGISTRY_FILE, NULL) != FB_OK) return 0;
    got = os->lstat(os->ctx, path, &info);
    return got != -ENOENT && got != -ENOTDIR; /* one that cannot be looked at is one all the same */
}

fb_status fb_registry_each(const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx, fb_error *err)
{
    fb_registry_table table;
    fb_status status;
    memset(&table, 0, sizeof table);
    status = fb_registry_load(os, run_folder, &table, err);
    for (uint64_t i = 0; status == FB_OK && i < table.count; i++) {
        const fb_registry_row *row = &table.rows[i];
        status = fn(ctx, &row->rec, row->sequence, row->time_ns, err);
    }
    fb_registry_table_release(&table);
    return status;
}
