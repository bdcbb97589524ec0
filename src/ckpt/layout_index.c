/*
 * Index files (model.safetensors.index.json, pytorch_model.bin.index.json) and numbered shards (-00001-of-00003): what they say
 * must be there. What an index says of a tensor is compared as the tensor passes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/index.h"
#include "ckpt/layout.h"

typedef struct one_index {
    fb_ckpt_index *index;
    uint32_t dir;
    const char *name;
} one_index;

typedef struct fb_indices {
    one_index *list; /* in the order of the tree's files, so that those of one folder stand together */
    uint64_t count, room;
    const fb_tree_file *now; /* the file that `first` and `last` belong to */
    uint64_t first, last;
} indices;

static void release(void *what)
{
    indices *x = what;
    for (uint64_t i = 0; i < x->count; i++) fb_ckpt_index_free(x->list[i].index);
    fb_free(x->list);
    fb_free(x);
}

static int is_index(const char *base)
{
    return fb_ckpt_name_fits("*.safetensors.index*.json", base) || fb_ckpt_name_fits("*.bin.index*.json", base);
}

int fb_ckpt_is_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    return is_index(slash ? slash + 1 : path);
}

/* ---- indices ---------------------------------------------------------------------------------------------------------------- */

static fb_status load_index(fb_folder *f, const fb_tree_file *file, fb_error *err)
{
    indices *x = f->indices;
    char path[FB_OS_PATH_MAX];
    uint8_t *data;
    uint64_t bytes;
    fb_error reason;
    fb_status status;
    if (x->count == x->room) {
        uint64_t room = x->room ? x->room * 2 : 8;
        one_index *grown = fb_realloc(x->list, (size_t)room * sizeof *grown);
        if (!grown) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for an index", f->tree.path);
        x->list = grown;
        x->room = room;
    }
    if ((status = fb_folder_path(f, file->name, path, err)) != FB_OK) return status;
    if ((status = fb_folder_load(f, file, 1, FB_CKPT_INDEX_BYTES_MAX, &data, &bytes, err)) != FB_OK || !data) return status;
    status = fb_ckpt_index_parse(&x->list[x->count].index, (char *)data, bytes, path, &reason); /* takes the memory over */
    if (status == FB_OK) {
        x->list[x->count].dir = file->dir;
        x->list[x->count].name = file->name;
        x->count++;
        return FB_OK;
    }
    if (fb_ckpt_outcome_of(status) >= 0) {
        fb_ckpt_scan_outcome(f->scan, fb_ckpt_outcome_of(status), &reason);
        return FB_OK;
    }
    if (err) *err = reason;
    return status;
}

static void check_shards_of(fb_folder *f, const one_index *x)
{
    const char *name;
    uint64_t count = 0;
    char format[64];
    for (; (name = fb_ckpt_index_file(x->index, count)) != NULL; count++) {
        const fb_tree_file *file = fb_tree_find(&f->tree, x->dir, name);
        if (!file) fb_folder_unreadable(f, "the index %.300s names the file %.200s, which is missing", x->name, name);
    }
    (void)snprintf(format, sizeof format, "%s, %llu shards",
                   strstr(x->name, ".safetensors.index") ? "safetensors" : "pytorch_model.bin", (unsigned long long)count);
    fb_folder_format(f, format);
}

/* ---- numbering -------------------------------------------------------------------------------------------------------------- */

static int digits(const char *text, int count)
{
    for (int i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
    }
    return 1;
}

/* "model-00002-of-00003.safetensors": where the numbers begin, or NULL. */
static const char *numbered(const char *base, unsigned long *number, unsigned long *of)
{
    const char *at = strstr(base, "-of-");
    if (!at || at - base < 6 || at[-6] != '-' || !digits(at - 5, 5)) return NULL;
    if (strlen(at) < 10 || !digits(at + 4, 5) || at[9] != '.') return NULL;
    *number = strtoul(at - 5, NULL, 10);
    *of = strtoul(at + 4, NULL, 10);
    return at - 5;
}

/* Without an index the numbering itself says how many there must be. Each shard asks for the next, so one missing is found once. */
static void check_numbering(fb_folder *f, const fb_tree_file *file)
{
    unsigned long number, of;
    const char *base = file->base, *at = numbered(base, &number, &of);
    char next[1100], format[64];
    if (!at || at - base > 1000 || strlen(base) > 1024) return;
    number = number >= of ? 1 : number + 1; /* round, so that a missing first one is asked for too */
    (void)snprintf(next, sizeof next, "%.*s%05lu-of-%05lu%s", (int)(at - base), base, number, of, at + 14);
    if (!fb_tree_find(&f->tree, file->dir, next)) {
        fb_folder_unreadable(f, "by its name %.300s has %lu parts, and %.200s is missing", file->name, of, next);
    }
    if (strcmp(at + 14, ".gguf") == 0) {
        (void)snprintf(format, sizeof format, "gguf, %lu parts", of);
        fb_folder_format(f, format);
    } else if (f->indices->count == 0 && strcmp(at + 14, ".safetensors") == 0) {
        (void)snprintf(format, sizeof format, "safetensors, %lu shards", of);
        fb_folder_format(f, format);
    }
}

/* ---- tensors against the index ---------------------------------------------------------------------------------------------- */

static void find_indices(indices *x, const fb_tree_file *now)
{
    x->now = now;
    for (x->first = 0; x->first < x->count && x->list[x->first].dir != now->dir; x->first++) continue;
    for (x->last = x->first; x->last < x->count && x->list[x->last].dir == now->dir; x->last++) continue;
}

static void meet_tensor(void *ctx, const char *tensor)
{
    fb_folder *f = ctx;
    indices *x = f->indices;
    if (x->now != f->now) find_indices(x, f->now);
    for (uint64_t i = x->first; i < x->last; i++) {
        const char *base = f->now->base, *file;
        if (!fb_ckpt_index_names_file(x->list[i].index, base)) continue;
        file = fb_ckpt_index_meet(x->list[i].index, tensor, base);
        if (file && strcmp(file, base) == 0) continue;
        if (file) fb_folder_note(f, f->now->name, "tensor %.300s is here, and the index puts it into %.300s", tensor, file);
        else fb_folder_note(f, f->now->name, "tensor %.300s is here, and the index does not list it", tensor);
    }
}

void fb_layout_index_end(fb_folder *f)
{
    for (uint64_t i = 0; i < f->indices->count; i++) {
        uint64_t count;
        const char *file, *tensor = fb_ckpt_index_missing(f->indices->list[i].index, &file, &count);
        if (!tensor) continue;
        fb_folder_unreadable(f, "%llu tensors are not where the index %.200s says, first %.200s, which should be in %.200s",
                             (unsigned long long)count, f->indices->list[i].name, tensor, file);
    }
}

/* Who asks for one index gets the files that it names and no others. */
static void restrict_to(fb_folder *f, const char *only)
{
    for (uint64_t i = 0; i < f->tree.count; i++) {
        const fb_tree_file *file = &f->tree.files[i];
        int wanted = file->dir == 0 && f->indices->count > 0 && fb_ckpt_index_names_file(f->indices->list[0].index, file->base);
        if (wanted || (file->dir == 0 && strcmp(file->base, only) == 0)) continue;
        f->plans[i].take = FB_TAKE_PASS;
        f->tree.bytes -= file->kind == FB_OS_FILE ? file->size_bytes : 0;
    }
}

fb_status fb_layout_index(fb_folder *f, const char *only, fb_error *err)
{
    indices *x = fb_calloc(1, sizeof *x);
    fb_status status;
    if (!x) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
    if ((status = fb_folder_keep(f, x, release, err)) != FB_OK) return status;
    f->indices = x;
    for (uint64_t i = 0; i < f->tree.count; i++) {
        const fb_tree_file *file = &f->tree.files[i];
        int wanted = only ? file->dir == 0 && strcmp(file->base, only) == 0 : is_index(file->base);
        if (!wanted || file->kind != FB_OS_FILE) continue;
        if ((status = load_index(f, file, err)) != FB_OK) return status;
    }
    for (uint64_t i = 0; i < x->count; i++) check_shards_of(f, &x->list[i]);
    if (only) restrict_to(f, only);
    for (uint64_t i = 0; i < f->tree.count && !only; i++) check_numbering(f, &f->tree.files[i]);
    f->scan->on_tensor = meet_tensor;
    f->scan->on_tensor_ctx = f;
    return FB_OK;
}
