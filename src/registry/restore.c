#include "registry/restore.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registry/keep.h"
#include "registry/tree.h"

static const uint64_t MARGIN_BYTES = 64 << 20;

/* The row that a chosen place belongs to: its own, or that of which it is the pin. */
static const fb_registry_row *row_at(const fb_registry_table *table, const char *path)
{
    const fb_registry_row *row = fb_registry_table_find(table, path, (uint32_t)strlen(path));
    for (uint64_t i = 0; !row && i < table->count; i++) {
        if (strcmp(fb_registry_text(table->rows[i].rec.pin_path), path) == 0) row = &table->rows[i];
    }
    return row;
}

/*
 * What lies at the name now is not what is wanted there, and is kept all the same: recorded as quarantined by hand, which is what
 * moves things aside.
 */
static fb_status clear_name(const fb_os *os, const char *home, const fb_place *place, int64_t step, fb_error *err)
{
    char why[128];
    if (!fb_place_taken(os, place->path)) return FB_OK;
    (void)snprintf(why, sizeof why, "moved aside to put the checkpoint of step %lld back", (long long)step);
    return fb_registry_quarantine(os, home, place->path, why, err);
}

/* The pin's bytes under the name. A link is enough where the trainer never writes into it again. way:
 * what the pin is from here on. */
static fb_status put_back(const fb_os *os, const fb_place *place, const char *pin, uint64_t digest, int links, int32_t *way,
                          fb_error *err)
{
    uint64_t bytes = 0;
    int64_t got;
    fb_status status = FB_E_UNSUPPORTED;
    *way = FB_PIN_LINK;
    if (links) status = fb_tree_twice(os, pin, place->path, FB_TREE_LINK, 0, err);
    if (status != FB_E_UNSUPPORTED) return status;
    *way = FB_PIN_REFLINK;
    status = fb_tree_twice(os, pin, place->path, FB_TREE_CLONE, 0, err);
    if (status != FB_E_UNSUPPORTED) return status;
    *way = FB_PIN_COPY;
    if ((status = fb_tree_bytes(os, pin, &bytes, err)) != FB_OK) return status;
    got = os->free_bytes(os->ctx, place->dir);
    if (got > 0 && (uint64_t)got > MARGIN_BYTES && (uint64_t)got - MARGIN_BYTES >= bytes) {
        return fb_tree_twice(os, pin, place->path, FB_TREE_COPY, digest, err);
    }
    *way = FB_PIN_NONE;
    got = os->rename_new(os->ctx, pin, place->path);
    if (got == 0) got = fb_os_sync_dir(os, place->dir);
    if (got == 0) got = fb_os_sync_parent(os, pin);
    return got < 0 ? fb_fail_os(err, (int)-got, "put %s back to %s", pin, place->path) : FB_OK;
}

/* The row of `pin` as it is from here on: at its old name, with the files that are there now. */
static fb_status append_back(fb_registry_store *store, const fb_registry_row *row, const fb_place *place, const char *pin,
                             int32_t way, const fb_os_info *info, fb_error *err)
{
    fb_rec_ckpt rec = row->rec;
    rec.path = fb_registry_words(place->path);
    rec.origin = rec.aside = fb_registry_words("");
    rec.pin = way;
    rec.pin_path = fb_registry_words(way == FB_PIN_NONE ? "" : pin);
    rec.inode = info->inode;
    rec.mtime_ns = info->mtime_ns;
    rec.mark = 0; /* of these files it is not known: they are read when somebody asks */
    rec.note = fb_registry_words("put back from its pin");
    return fb_registry_store_append(store, &rec, NULL, err);
}

static fb_status record(const fb_os *os, const char *home, const fb_place *place, const char *pin, int32_t way, fb_error *err)
{
    fb_registry_store store;
    const fb_registry_row *row;
    fb_os_info info;
    fb_status status = fb_registry_store_open(&store, os, home, NULL, NULL, err);
    if (status != FB_OK) return status;
    row = row_at(&store.table, pin);
    if (!row || row->rec.state != FB_CKPT_COMMITTED) {
        status = fb_fail(err, FB_E_ORDER, "put %s back: it is not committed any more", pin);
    } else if (os->lstat(os->ctx, place->path, &info) != 0) {
        status = fb_fail(err, FB_E_NOTFOUND, "put %s back: it is gone again", place->path);
    } else {
        status = fb_keep_row(&store, place->path, err); /* what was moved aside keeps a row, and may move the others */
        row = row_at(&store.table, pin);
        if (row && status == FB_OK) status = append_back(&store, row, place, pin, way, &info, err);
    }
    fb_registry_store_close(&store);
    return status;
}

fb_status fb_restore(const fb_os *os, const char *home, fb_registry_checkpoint *found, fb_error *err)
{
    fb_registry_table table;
    const fb_registry_row *row;
    fb_place place;
    int32_t way;
    int links = 0, is_pin = 0;
    fb_status status;
    memset(&table, 0, sizeof table);
    if ((status = fb_registry_load(os, home, &table, err)) == FB_OK) {
        row = row_at(&table, found->path);
        is_pin = row && (row->rec.origin.bytes || strcmp(row->path, found->path) != 0);
        if (is_pin) status = fb_aside_place(&place, &row->rec, err);
        if (is_pin && status == FB_OK) links = fb_judge_links(&table, &place, found->step);
    }
    fb_registry_table_release(&table);
    if (status != FB_OK || !is_pin) return status;
    if ((status = clear_name(os, home, &place, found->step, err)) != FB_OK) return status;
    if ((status = put_back(os, &place, found->path, found->digest, links, &way, err)) != FB_OK) return status;
    if ((status = record(os, home, &place, found->path, way, err)) != FB_OK) return status;
    (void)snprintf(found->path, sizeof found->path, "%s", place.path);
    return FB_OK;
}
