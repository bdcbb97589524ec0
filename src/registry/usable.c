#include "registry/usable.h"

#include <stdio.h>

#include "registry/tree.h"

fb_status fb_usable_at(const fb_os *os, const fb_rec_ckpt *rec, const char *path, int how, fb_error *why)
{
    fb_os_info info;
    fb_ckpt_summary summary;
    fb_status status;
    int64_t got = os->stat(os->ctx, path, &info);
    if (got < 0) return fb_fail_os(why, (int)-got, "look at %s", path);
    if (info.kind == FB_OS_FILE && info.size_bytes != rec->bytes) {
        return fb_fail(why, FB_E_CORRUPT, "%s has %llu bytes now, and %llu were committed", path,
                       (unsigned long long)info.size_bytes, (unsigned long long)rec->bytes);
    }
    /* A trainer that saves over its own file writes as many bytes each time: only the time tells. A folder's own time tells nothing
     * of the files in it, nor that a rotation which was killed took half of them. */
    if (how != FB_REGISTRY_VERIFY) {
        if (info.kind == FB_OS_FOLDER ? rec->mark != 0 && fb_tree_mark(os, path) == rec->mark
                                      : rec->inode == 0 || fb_place_is_same(rec, &info)) {
            return FB_OK;
        }
    }
    if ((status = fb_ckpt_scan_path(os, path, NULL, NULL, &summary, why)) != FB_OK) return status;
    if (summary.digest != rec->digest) return fb_fail(why, FB_E_CORRUPT, "%s was changed after it was committed", path);
    return FB_OK;
}

fb_status fb_usable(const fb_os *os, const fb_rec_ckpt *rec, int how, char *where, fb_error *why)
{
    /* A row that stands for a pin has nothing but the pin. */
    fb_status status = fb_usable_at(os, rec, rec->path.data, rec->origin.bytes ? FB_REGISTRY_VERIFY : how, why);
    if (status == FB_OK) {
        (void)snprintf(where, FB_OS_PATH_MAX, "%s", rec->path.data);
        return FB_OK;
    }
    if (rec->pin_path.bytes == 0 || !fb_place_taken(os, rec->pin_path.data)) return status;
    status = fb_usable_at(os, rec, rec->pin_path.data, FB_REGISTRY_VERIFY, why);
    if (status == FB_OK) (void)snprintf(where, FB_OS_PATH_MAX, "%s", rec->pin_path.data);
    return status;
}

const fb_registry_row *fb_bytes_quarantined(const fb_registry_table *table, const fb_rec_ckpt *rec, uint64_t sequence)
{
    for (uint64_t i = 0; rec->digest != 0 && i < table->count; i++) {
        const fb_registry_row *row = &table->rows[i];
        if (row->rec.state == FB_CKPT_QUARANTINED && row->rec.digest == rec->digest && row->sequence > sequence) return row;
    }
    return NULL;
}

static int has_rank(const fb_registry_table *table, const fb_rec_ckpt *step, int32_t rank)
{
    for (uint64_t i = table->count; i-- > 0;) {
        const fb_rec_ckpt *rec = &table->rows[i].rec;
        if (rec->rank == rank && fb_newer(rec, step) == 0) return 1;
    }
    return 0;
}

int fb_step_is_told(const fb_registry_table *table, const fb_rec_ckpt *rec)
{
    const fb_rec_ckpt *before = NULL;
    int several = 0;
    for (uint64_t i = table->count; i-- > 0;) {
        const fb_rec_ckpt *other = &table->rows[i].rec;
        if (other->attempt == rec->attempt && other->step < rec->step && (!before || other->step > before->step)) before = other;
    }
    for (uint64_t i = 0; before && i < table->count; i++) {
        const fb_rec_ckpt *other = &table->rows[i].rec;
        if (fb_newer(other, before) == 0 && other->rank != before->rank) several = 1;
    }
    for (uint64_t i = 0; several && i < table->count; i++) {
        const fb_rec_ckpt *other = &table->rows[i].rec;
        if (fb_newer(other, before) == 0 && !has_rank(table, rec, other->rank)) return 0;
    }
    return 1;
}
