/* From what a scan found to what a record says. */
#include <stdio.h>
#include <string.h>

#include "registry/keep.h"
#include "registry/tree.h"

int32_t fb_judge(fb_status scanned, const fb_ckpt_summary *summary)
{
    if (scanned != FB_OK || summary->outcome == FB_CKPT_UNREADABLE) return FB_CKPT_REASON_UNREADABLE;
    if (summary->outcome == FB_CKPT_NON_FINITE) return FB_CKPT_REASON_NOT_FINITE;
    if (summary->outcome != FB_CKPT_CLEAN || summary->checked == 0) return FB_CKPT_REASON_UNSUPPORTED;
    return FB_CKPT_REASON_READ_BACK;
}

void fb_judge_facts(fb_rec_ckpt *rec, const fb_ckpt_summary *summary, int32_t reason)
{
    rec->tensors = summary->tensors;
    rec->elements = summary->elements;
    rec->bytes = summary->bytes;
    rec->bad = summary->bad;
    rec->digest = reason == FB_CKPT_REASON_UNREADABLE || reason == FB_CKPT_REASON_UNSUPPORTED ? 0 : summary->digest;
    rec->tensor = fb_registry_words(summary->first_tensor);
}

fb_status fb_judge_scan(const fb_os *os, const char *path, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                        fb_ckpt_summary *summary, fb_rec_ckpt *rec, fb_error *err)
{
    fb_ckpt_options own;
    fb_os_info info;
    int64_t got;
    memset(&own, 0, sizeof own);
    if (options) own = *options;
    own.sync = 1;
    own.flags &= ~(FB_CKPT_NO_DIGEST | FB_CKPT_FIRST); /* a verdict is on all of the bytes, and bound to them */
    summary->outcome = FB_CKPT_UNREADABLE;
    got = os->lstat(os->ctx, path, &info);
    if (got < 0) return fb_fail_os(err, (int)-got, "look at checkpoint %s", path);
    rec->inode = info.inode;
    rec->mtime_ns = info.mtime_ns;
    rec->mark = fb_tree_mark(os, path);
    /* The scan makes the content durable; the name of the checkpoint itself is in the folder above. */
    got = fb_os_sync_parent(os, path);
    if (got < 0) return fb_fail_os(err, (int)-got, "read back checkpoint %s: make its name durable", path);
    return fb_ckpt_scan_path(os, path, &own, sink, summary, err);
}

void fb_judge_plan(const fb_registry_store *store, const fb_place *place, int links, const char *note, fb_rec_ckpt *rec,
                   fb_verdict_text *text)
{
    fb_place real = *place;
    char pointers[400] = "";
    memset(text, 0, sizeof *text);
    (void)snprintf(text->note, sizeof text->note, "%s", note);
    rec->note = fb_registry_words(text->note);
    if (rec->state == FB_CKPT_COMMITTED && rec->origin.bytes == 0) fb_pin_plan(store, place, links, rec, text->pin);
    if (rec->state != FB_CKPT_QUARANTINED) return;
    /* What stands for a pin, or was moved aside already, goes where the checkpoint of its old name would go. */
    if (rec->origin.bytes && fb_place_split(&real, rec->origin, NULL) != FB_OK) return;
    if (rec->inode && fb_aside_plan(store->os, &real, text->aside, sizeof text->aside, NULL) == FB_OK) {
        rec->aside = fb_registry_words(text->aside);
    }
    if (rec->origin.bytes == 0) fb_pointers_tell(store, place, pointers, sizeof pointers);
    (void)snprintf(text->note, sizeof text->note, "%.600s%s", note, pointers[0] && !note[0] ? pointers + 2 : pointers);
    rec->note = fb_registry_words(text->note);
}

int fb_judge_links(const fb_registry_table *table, const fb_place *place, int64_t step)
{
    if (!fb_place_has_step(place->name, step)) return 0;
    for (uint64_t i = 0; i < table->count; i++) {
        const fb_rec_ckpt *rec = &table->rows[i].rec;
        fb_text name = rec->origin.bytes ? rec->origin : rec->path;
        if (rec->step != step && strcmp(fb_registry_text(name), place->path) == 0) return 0;
    }
    return 1;
}
