/*
 * Megatron: latest_checkpointed_iteration.txt beside iter_0000010/, which holds mp_rank_TT[_PPP[_EEE]]/model_optim_rng.pt
 * (classic), or metadata.json, common.pt and a distributed checkpoint (torch_dist), or one folder of zarr chunks for each tensor.
 * Source: megatron/training/checkpointing.py and megatron/core/dist_checkpointing of Megatron-LM, core 0.7 to 0.16.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "ckpt/layout.h"
#include "ckpt/peek.h"
#include "ckpt/rank_name.h"

enum { RANK_NUMBERS = 3, TEXT_BYTES_MAX = 65536 };

/* ---- the iteration ---------------------------------------------------------------------------------------------------------- */

static void compare_iteration(fb_folder *f, uint32_t dir, const fb_tree_file *file, int64_t iteration)
{
    uint64_t named;
    fb_folder_step(f, iteration);
    if (!fb_rank_name("iter_#", fb_tree_dir_base(&f->tree, dir), &named) || (int64_t)named == iteration) return;
    fb_folder_unreadable(f, "%.300s is of iteration %lld, and its folder of %llu", file->name, (long long)iteration,
                         (unsigned long long)named);
}

static fb_status look_at_iteration(fb_folder *f, uint32_t dir, const fb_tree_file *file, fb_error *err)
{
    static const char *const keys[] = {"iteration", NULL};
    char path[FB_OS_PATH_MAX];
    int64_t iteration;
    fb_peek p;
    fb_status status = fb_folder_path(f, file->name, path, err);
    if (status == FB_OK) status = fb_peek_open(&p, f->scan, path, err);
    if (status == FB_E_NOTFOUND) return FB_OK; /* the scan says what is wrong with it */
    if (status != FB_OK) return status;
    if (fb_peek_number(&p, fb_peek_get(&p, fb_pickle_root(p.pickle), keys), &iteration)) compare_iteration(f, dir, file, iteration);
    fb_peek_close(&p);
    return FB_OK;
}

/* ---- classic ---------------------------------------------------------------------------------------------------------------- */

static int rank_dir(const char *base, uint64_t *ranks)
{
    if (fb_rank_name("mp_rank_#", base, ranks)) return 1;
    if (fb_rank_name("mp_rank_#_#", base, ranks)) return 2;
    return fb_rank_name("mp_rank_#_#_#", base, ranks) ? 3 : 0;
}

typedef struct grid {
    uint64_t max[RANK_NUMBERS], count;
    uint32_t first; /* folder of the first rank */
    int width;
} grid;

static void measure(const fb_folder *f, uint32_t dir, grid *g)
{
    memset(g, 0, sizeof *g);
    for (uint32_t i = 1; i < f->tree.dir_count; i++) {
        uint64_t ranks[RANK_NUMBERS] = {0, 0, 0};
        int width = f->tree.dirs[i].parent == dir ? rank_dir(fb_tree_dir_base(&f->tree, i), ranks) : 0;
        if (!width) continue;
        if (g->count++ == 0) g->first = i;
        if (width > g->width) g->width = width;
        for (int r = 0; r < RANK_NUMBERS; r++) {
            if (ranks[r] > g->max[r]) g->max[r] = ranks[r];
        }
    }
}

/* Every rank writes the same files, apart from optimizer states that only some may have. */
static void check_rank(fb_folder *f, const grid *g, uint32_t dir)
{
    const fb_tree_file *file;
    for (uint64_t i = 0; (file = fb_tree_of_dir(&f->tree, g->first, i)) != NULL; i++) {
        if (!fb_ckpt_name_fits("*.pt", file->base) || fb_tree_find(&f->tree, dir, file->base)) continue;
        fb_folder_unreadable(f, "%.200s has no %.100s, which %.200s has", f->tree.dirs[dir].name, file->base,
                             f->tree.dirs[g->first].name);
    }
    for (uint64_t i = 0; (file = fb_tree_of_dir(&f->tree, dir, i)) != NULL; i++) {
        if (!fb_ckpt_name_fits("*.pt", file->base) || fb_tree_find(&f->tree, g->first, file->base)) continue;
        fb_folder_unreadable(f, "%.200s has no %.100s, which %.200s has", f->tree.dirs[g->first].name, file->base,
                             f->tree.dirs[dir].name);
    }
}

static fb_status take_classic(fb_folder *f, uint32_t dir, fb_error *err)
{
    uint64_t due = 1;
    grid g;
    measure(f, dir, &g);
    if (g.count == 0) return FB_OK;
    fb_folder_format(f, "megatron");
    for (int r = 0; r < g.width; r++) {
        if (__builtin_mul_overflow(due, g.max[r] + 1, &due)) due = UINT64_MAX;
    }
    if (due != g.count) {
        fb_folder_unreadable(f, "%.200s has folders of %llu ranks, and by their numbers there are %llu: a rank is missing",
                             *f->tree.dirs[dir].name ? f->tree.dirs[dir].name : "it", (unsigned long long)g.count,
                             (unsigned long long)due);
    }
    for (uint32_t i = 1; i < f->tree.dir_count; i++) {
        uint64_t ranks[RANK_NUMBERS];
        const fb_tree_file *model;
        fb_status status;
        if (f->tree.dirs[i].parent != dir || !rank_dir(fb_tree_dir_base(&f->tree, i), ranks)) continue;
        check_rank(f, &g, i);
        model = fb_tree_find(&f->tree, i, "model_optim_rng.pt");
        if (model && (status = look_at_iteration(f, dir, model, err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* ---- distributed ------------------------------------------------------------------------------------------------------------ */

/* The value of "sharded_backend" in metadata.json; "" when it has none. */
static void find_backend(const uint8_t *data, uint64_t bytes, char *backend, size_t room)
{
    fb_json_reader json;
    fb_json_token token;
    *backend = '\0';
    fb_json_read(&json, data, (size_t)bytes);
    if (fb_json_next(&json, &token, NULL) != FB_OK || token.type != FB_JSON_OBJECT) return;
    while (fb_json_next(&json, &token, NULL) == FB_OK && token.type == FB_JSON_KEY) {
        int wanted = fb_json_is(&token, "sharded_backend");
        if (!wanted && fb_json_skip(&json, NULL) != FB_OK) return;
        if (!wanted) continue;
        if (fb_json_next(&json, &token, NULL) != FB_OK || token.type != FB_JSON_STRING) return;
        if (fb_json_decode(&token, backend, room, NULL, NULL) != FB_OK) *backend = '\0';
        return;
    }
}

static void pass_over_zarr(fb_folder *f, uint32_t dir)
{
    uint64_t arrays = 0;
    char why[160];
    for (uint32_t i = 1; i < f->tree.dir_count; i++) {
        if (f->tree.dirs[i].parent != dir || !fb_tree_find(&f->tree, i, ".zarray")) continue;
        arrays++;
        for (uint64_t k = 0; k < f->tree.dirs[i].count; k++)
            fb_folder_plan_of(f, fb_tree_of_dir(&f->tree, i, k))->take = FB_TAKE_PASS;
    }
    (void)snprintf(why, sizeof why, "%llu arrays in Megatron's zarr format, which this build does not read",
                   (unsigned long long)arrays);
    fb_folder_unscanned(f, f->tree.dirs[dir].name, why);
}

static fb_status take_distributed(fb_folder *f, uint32_t dir, fb_error *err)
{
    const fb_tree_file *file = fb_tree_find(&f->tree, dir, "metadata.json");
    const fb_tree_file *common = fb_tree_find(&f->tree, dir, "common.pt");
    const char *shown = *f->tree.dirs[dir].name ? f->tree.dirs[dir].name : "it";
    char backend[64];
    uint8_t *data;
    uint64_t bytes;
    fb_status status;
    if (!file || file->kind != FB_OS_FILE || file->size_bytes > TEXT_BYTES_MAX) return FB_OK;
    if ((status = fb_folder_load(f, file, 0, TEXT_BYTES_MAX, &data, &bytes, err)) != FB_OK || !data) return status;
    find_backend(data, bytes, backend, sizeof backend);
    fb_free(data);
    if (*backend == '\0') { /* somebody else's */
        fb_folder_plan_of(f, file)->take = FB_TAKE_BY_CONTENT;
        return FB_OK;
    }
    fb_folder_format(f, "megatron");
    if (!common && (strcmp(backend, "torch_dist") == 0 || strcmp(backend, "zarr") == 0)) {
        fb_folder_unreadable(f, "%.300s has metadata.json and no common.pt: the save did not finish", shown);
    }
    if (strcmp(backend, "zarr") == 0) pass_over_zarr(f, dir);
    else if (!fb_tree_find(&f->tree, dir, ".metadata")) {
        fb_folder_unreadable(f, "%.300s has metadata.json and no .metadata: the save did not finish", shown);
    }
    return common ? look_at_iteration(f, dir, common, err) : FB_OK;
}

/* ---- the folder above ------------------------------------------------------------------------------------------------------- */

static fb_status take_tracker(fb_folder *f, uint32_t dir, fb_error *err)
{
    const fb_tree_file *file = fb_tree_find(&f->tree, dir, "latest_checkpointed_iteration.txt");
    char name[64];
    uint64_t bytes, iteration;
    uint8_t *data;
    fb_status status;
    if (!file || file->kind != FB_OS_FILE || file->size_bytes > TEXT_BYTES_MAX) return FB_OK;
    if ((status = fb_folder_load(f, file, 0, TEXT_BYTES_MAX, &data, &bytes, err)) != FB_OK || !data) return status;
    while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r' || data[bytes - 1] == ' ')) data[--bytes] = '\0';
    if (fb_rank_name("#", (const char *)data, &iteration)) {
        (void)snprintf(name, sizeof name, "iter_%07llu", (unsigned long long)iteration);
        if (fb_tree_find_dir(&f->tree, dir, name) == UINT32_MAX) {
            fb_folder_unreadable(f, "%.300s names iteration %llu, and there is no folder %s", file->name,
                                 (unsigned long long)iteration, name);
        }
    }
    fb_free(data);
    return FB_OK;
}

fb_status fb_layout_megatron(fb_folder *f, fb_error *err)
{
    for (uint32_t dir = 0; dir < f->tree.dir_count; dir++) {
        fb_status status = take_tracker(f, dir, err);
        if (status == FB_OK) status = take_distributed(f, dir, err);
        if (status != FB_OK) return status;
    }
    /* Folders of one parent stand together in the list, so each parent is met once. */
    for (uint32_t i = 1, last = UINT32_MAX; i < f->tree.dir_count; i++) {
        uint64_t ranks[RANK_NUMBERS];
        fb_status status;
        if (f->tree.dirs[i].parent == last || !rank_dir(fb_tree_dir_base(&f->tree, i), ranks)) continue;
        last = f->tree.dirs[i].parent;
        if ((status = take_classic(f, last, err)) != FB_OK) return status;
    }
    return FB_OK;
}
