/* torch.distributed.checkpoint: a folder with `.metadata` and the .distcp files that it names. */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/dcp.h"
#include "ckpt/layout.h"

static const uint64_t METADATA_BYTES_MAX = 1u << 30;

static void release(void *what)
{
    fb_dcp_free(what);
}

static int is_distcp(const fb_tree_file *file)
{
    return fb_ckpt_name_fits("*.distcp", file->base);
}

/* Files that only the table could explain, where there is none that can be used. */
static uint64_t pass_over(fb_folder *f, uint32_t dir)
{
    const fb_tree_file *file;
    uint64_t count = 0;
    for (uint64_t i = 0; (file = fb_tree_of_dir(&f->tree, dir, i)) != NULL; i++) {
        if (!is_distcp(file)) continue;
        fb_folder_plan_of(f, file)->take = FB_TAKE_PASS;
        count++;
    }
    return count;
}

static const char *shown(const fb_tree_dir *dir)
{
    return *dir->name ? dir->name : "it";
}

/* Each file of the table must be there, and is read by the table; a .distcp file that it does not
 * know is left from another save. */
static void match_files(fb_folder *f, uint32_t dir, const fb_dcp *dcp)
{
    const fb_tree_file *file;
    for (uint64_t i = 0; i < fb_dcp_files(dcp); i++) {
        const fb_dcp_file *entry = fb_dcp_file_at(dcp, i);
        file = fb_tree_find(&f->tree, dir, entry->name);
        if (!file) {
            fb_folder_unreadable(f, "%.300s/.metadata names the file %.200s, which is missing", f->tree.dirs[dir].name,
                                 entry->name);
            continue;
        }
        fb_folder_plan_of(f, file)->take = FB_TAKE_AS;
        fb_folder_plan_of(f, file)->reader = &fb_ckpt_distcp;
        fb_folder_plan_of(f, file)->setup = entry;
    }
    for (uint64_t i = 0; (file = fb_tree_of_dir(&f->tree, dir, i)) != NULL; i++) {
        if (!is_distcp(file) || fb_folder_plan_of(f, file)->take == FB_TAKE_AS) continue;
        fb_folder_plan_of(f, file)->take = FB_TAKE_PASS;
        fb_folder_note(f, file->name, ".metadata does not name this file: it is left from another save, and was not read");
    }
}

static fb_status take_table(fb_folder *f, const fb_tree_file *file, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_dcp *dcp = NULL;
    uint8_t *data;
    uint64_t bytes;
    fb_error reason;
    fb_status status = fb_folder_path(f, file->name, path, err);
    if (status == FB_OK) status = fb_folder_load(f, file, 1, METADATA_BYTES_MAX, &data, &bytes, err);
    if (status != FB_OK) return status;
    if (!data) {
        (void)pass_over(f, file->dir);
        return FB_OK;
    }
    status = fb_dcp_parse(&dcp, data, bytes, path, &reason);
    fb_free(data);
    if (status == FB_OK) {
        match_files(f, file->dir, dcp);
        return fb_folder_keep(f, dcp, release, err);
    }
    if (fb_ckpt_outcome_of(status) >= 0) {
        fb_ckpt_scan_outcome(f->scan, fb_ckpt_outcome_of(status), &reason);
        (void)pass_over(f, file->dir);
        return FB_OK;
    }
    if (err) *err = reason;
    return status;
}

fb_status fb_layout_dcp(fb_folder *f, fb_error *err)
{
    for (uint32_t dir = 0; dir < f->tree.dir_count; dir++) {
        const fb_tree_file *table = fb_tree_find(&f->tree, dir, ".metadata");
        const fb_tree_file *file = NULL;
        uint64_t count = 0;
        for (uint64_t i = 0; count == 0 && (file = fb_tree_of_dir(&f->tree, dir, i)) != NULL; i++)
            count += (uint64_t)is_distcp(file);
        if (count == 0 && (!table || table->size_bytes == 0)) continue;
        if (table && table->kind == FB_OS_FILE) {
            fb_status status = take_table(f, table, err);
            if (status != FB_OK) return status;
        } else {
            fb_folder_unreadable(
                f, "%.300s holds %llu .distcp files and no .metadata, which is written last: the save did not finish%s",
                shown(&f->tree.dirs[dir]), (unsigned long long)pass_over(f, dir),
                fb_tree_find(&f->tree, dir, ".metadata.tmp") ? " (.metadata.tmp is there)" : "");
        }
        fb_folder_format(f, "torch.distributed.checkpoint");
    }
    return FB_OK;
}
