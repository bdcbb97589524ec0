/*
 * DeepSpeed: `latest` names a folder with mp_rank_00_model_states.pt (ZeRO 3: one for each rank) and one *_optim_states.pt for each
 * data-parallel rank. Each of those holds a piece of flat buffers in which all parameters of a group lie one after the other, so
 * they are read as those parameters, and the padding between them as nothing.
 *
 * ZeRO 1 and 2: the pieces of all ranks in order make the buffer of a group, and the parameters lie in it in the order of
 * param_shapes.
 * ZeRO 3: each parameter is cut into equal parts, one a rank, and the parts of a rank lie in order in its flat groups.
 * Source: deepspeed/runtime/zero/stage_1_and_2.py, stage3.py and utils/zero_to_fp32.py; tried with release 0.19.8.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/deepspeed_shard.h"
#include "ckpt/layout.h"
#include "ckpt/peek.h"
#include "ckpt/rank_name.h"

enum { GROUPS_MAX = 1024, TEXT_BYTES_MAX = 4096 };

typedef struct ds_param {
    const char *name;
    const uint64_t *shape;
    uint64_t elements;
    int32_t ndim;
    uint32_t group;
} ds_param;

/* Parameters of one model-parallel rank, in the order in which they lie in the flat buffers. */
typedef struct ds_model {
    uint32_t dir;
    uint64_t mp;
    ds_param *params;
    uint64_t param_count;
    int64_t global_steps, skipped_steps; /* -1: not said */
    const fb_tree_file *file;
    struct ds_model *next;
} ds_model;

/* One *_optim_states.pt. */
typedef struct ds_shard {
    const fb_tree_file *file;
    uint64_t dp, mp, partitions; /* partitions: how many belong together; 0: not said */
    int32_t kind;                /* which way of naming: files of one kind belong together */
    int32_t stage;
    uint64_t groups;
    uint64_t *sizes, *paddings; /* of its piece of each group, and what was cut off at its end */
    int32_t unclear;            /* 1: laid out in a way that is not known here */
    int64_t step;
    struct ds_shard *next;
} ds_shard;

typedef struct fb_deepspeed {
    ds_model *models;
    ds_shard *shards;
} deepspeed;

static const char *const shard_names[] = {
    "zero_pp_rank_#_mp_rank_#_optim_states.pt",
    "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt",
    "fp16_zero_pp_rank_#_mp_rank_#_optim_states.pt",
};
enum { SHARD_NAMES = sizeof shard_names / sizeof shard_names[0] };

static fb_status no_memory(const fb_folder *f, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
}

/* ---- model states ----------------------------------------------------------------------------------------------------------- */

/* 1: it is a file of model states; mp: its rank, dp: the other one, of ZeRO 3 alone. */
static int is_model(const char *base, uint64_t *dp, uint64_t *mp)
{
    uint64_t numbers[2];
    if (fb_rank_name("zero_pp_rank_#_mp_rank_#_model_states.pt", base, numbers)) {
        *dp = numbers[0];
        *mp = numbers[1];
        return 1;
    }
    if (!fb_rank_name("mp_rank_#_model_states.pt", base, numbers)) return 0;
    *dp = 0;
    *mp = numbers[0];
    return 1;
}

static fb_status take_shape(fb_folder *f, const fb_pickle *k, fb_node name, fb_node size, ds_param *p, fb_error *err)
{
    uint64_t bytes = 0, *shape, n;
    const char *text;
    if (fb_pickle_kind(k, size) == FB_PICKLE_CALL) size = fb_pickle_child(k, fb_pickle_child(k, size, 1), 0);
    n = fb_pickle_children(k, size);
    if (fb_pickle_kind(k, name) != FB_PICKLE_TEXT || n > FB_CKPT_DIMS_MAX) return FB_E_NOTFOUND;
    text = fb_pickle_text(k, name, &bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return FB_E_NOTFOUND;
    }
    p->name = fb_pool_text(&f->pool, text, (size_t)bytes);
    shape = fb_pool_take(&f->pool, ((size_t)n + 1) * sizeof *shape);
    if (!p->name || !shape) return no_memory(f, err);
    p->elements = 1;
    for (uint64_t i = 0; i < n; i++) {
        int64_t dim = fb_pickle_int(k, fb_pickle_child(k, size, i));
        if (fb_pickle_kind(k, fb_pickle_child(k, size, i)) != FB_PICKLE_INT || dim < 0) return FB_E_NOTFOUND;
        shape[i] = (uint64_t)dim;
        if (__builtin_mul_overflow(p->elements, shape[i], &p->elements)) return FB_E_NOTFOUND;
    }
    p->shape = shape;
    p->ndim = (int32_t)n;
    return FB_OK;
}

/* param_shapes: [{name: size}, ...], one dictionary a group; older releases have a single dictionary.
 * FB_E_NOTFOUND: not as expected. */
static fb_status take_shapes(fb_folder *f, fb_peek *p, ds_model *m, fb_error *err)
{
    static const char *const keys[] = {"param_shapes", NULL};
    const fb_pickle *k = p->pickle;
    fb_node list = fb_peek_get(p, fb_pickle_root(k), keys);
    uint64_t groups = fb_pickle_kind(k, list) == FB_PICKLE_LIST ? fb_pickle_children(k, list) : list ? 1 : 0, count = 0;
    fb_status status;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t g = 0; g < groups && g < GROUPS_MAX; g++) {
            fb_node group = fb_pickle_kind(k, list) == FB_PICKLE_LIST ? fb_pickle_child(k, list, g) : list;
            fb_node dict = fb_pickle_kind(k, group) == FB_PICKLE_CALL ? fb_pickle_items(k, group) : group;
            uint64_t n = fb_pickle_kind(k, dict) == FB_PICKLE_DICT ? fb_pickle_children(k, dict) / 2 : 0;
            if (pass == 0) count += n;
            for (uint64_t i = 0; pass == 1 && i < n; i++) {
                ds_param *param = &m->params[m->param_count++];
                param->group = (uint32_t)g;
                status = take_shape(f, k, fb_pickle_child(k, dict, 2 * i), fb_pickle_child(k, dict, 2 * i + 1), param, err);
                if (status != FB_OK) return status;
            }
        }
        if (pass == 0 && (m->params = fb_pool_take(&f->pool, (size_t)(count + 1) * sizeof *m->params)) == NULL)
            return no_memory(f, err);
    }
    return FB_OK;
}

static int64_t count_of(fb_peek *p, const char *key)
{
    const char *const keys[] = {key, NULL};
    int64_t value;
    return fb_peek_number(p, fb_peek_get(p, fb_pickle_root(p->pickle), keys), &value) ? value : -1;
}

static fb_status take_model(fb_folder *f, const fb_tree_file *file, uint64_t mp, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_peek p;
    ds_model *m;
    fb_status status = fb_folder_path(f, file->name, path, err);
    if (status == FB_OK) status = fb_peek_open(&p, f->scan, path, err);
    if (status == FB_E_NOTFOUND) return FB_OK;
    if (status != FB_OK) return status;
    m = fb_pool_take(&f->pool, sizeof *m);
    if (m) {
        m->dir = file->dir;
        m->mp = mp;
        m->file = file;
        m->global_steps = count_of(&p, "global_steps");
        m->skipped_steps = count_of(&p, "skipped_steps");
        if (m->global_steps >= 0) fb_folder_step(f, m->global_steps);
        status = take_shapes(f, &p, m, err);
        if (status == FB_E_NOTFOUND) {
            m->param_count = 0; /* names stay as they are in the file */
            status = FB_OK;
        }
        m->next = f->deepspeed->models;
        f->deepspeed->models = m;
    } else {
        status = no_memory(f, err);
    }
    fb_peek_close(&p);
    return status;
}

/* ---- optimizer states ------------------------------------------------------------------------------------------------------- */

/* Elements of a flat tensor, also where a Parameter or another type of tensor is wrapped around it; 0 when it is none. */
static uint64_t flat_size(const fb_pickle *k, fb_node tensor)
{
    fb_node args = fb_pickle_child(k, tensor, 1), first = fb_pickle_child(k, args, 0), size;
    int64_t n;
    if (fb_pickle_kind(k, first) == FB_PICKLE_CALL) args = fb_pickle_child(k, first, 1);
    if (fb_pickle_kind(k, first) == FB_PICKLE_GLOBAL) args = fb_pickle_child(k, args, 2);
    size = fb_pickle_child(k, args, 2);
    n = fb_pickle_children(k, size) == 1 ? fb_pickle_int(k, fb_pickle_child(k, size, 0)) : 0;
    return n > 0 ? (uint64_t)n : 0;
}

static uint64_t take_partitions(fb_peek *p, fb_node optimizer)
{
    static const char *const keys[] = {"partition_count", NULL};
    const fb_pickle *k = p->pickle;
    fb_node count = fb_peek_get(p, optimizer, keys);
    uint64_t most = 0, n = fb_pickle_children(k, count);
    if (fb_pickle_kind(k, count) == FB_PICKLE_INT && fb_pickle_int(k, count) > 0) return (uint64_t)fb_pickle_int(k, count);
    if (fb_pickle_kind(k, count) != FB_PICKLE_LIST && fb_pickle_kind(k, count) != FB_PICKLE_TUPLE) return 0;
    for (uint64_t i = 0; i < n; i++) { /* experts have fewer partitions than the rest */
        int64_t value = fb_pickle_int(k, fb_pickle_child(k, count, i));
        if (value > 0 && (uint64_t)value > most) most = (uint64_t)value;
    }
    return most;
}

/* Padding between parameters, which newer releases may put there, makes the layout another one. */
static int has_inner_padding(fb_peek *p, fb_node optimizer)
{
    static const char *const keys[] = {"param_alignment_paddings", NULL};
    const fb_pickle *k = p->pickle;
    fb_node list = fb_peek_get(p, optimizer, keys);
    if (!list || fb_pickle_kind(k, list) == FB_PICKLE_NONE) return 0;
    for (uint64_t g = 0; g < fb_pickle_children(k, list); g++) {
        fb_node group = fb_pickle_child(k, list, g);
        for (uint64_t i = 0; i < fb_pickle_children(k, group); i++) {
            if (fb_pickle_int(k, fb_pickle_child(k, group, i)) != 0) return 1;
        }
    }
    return 0;
}

static fb_status take_groups(fb_folder *f, fb_peek *p, fb_node optimizer, ds_shard *s, fb_error *err)
{
    static const char *const two[] = {"single_partition_of_fp32_groups", NULL}, *const three[] = {"fp32_flat_groups", NULL};
    static const char *const paddings[] = {"group_paddings", NULL};
    const fb_pickle *k = p->pickle;
    fb_node list = fb_peek_get(p, optimizer, two), padding = fb_peek_get(p, optimizer, paddings);
    s->stage = 2;
    if (!list && (list = fb_peek_get(p, optimizer, three)) != 0) s->stage = 3;
    s->groups = fb_pickle_children(k, list);
    if (s->groups > GROUPS_MAX) s->groups = 0;
    s->sizes = fb_pool_take(&f->pool, (size_t)(s->groups + 1) * sizeof *s->sizes);
    s->paddings = fb_pool_take(&f->pool, (size_t)(s->groups + 1) * sizeof *s->paddings);
    if (!s->sizes || !s->paddings) return no_memory(f, err);
    for (uint64_t g = 0; g < s->groups; g++) {
        int64_t cut = fb_pickle_int(k, fb_pickle_child(k, padding, g));
        s->sizes[g] = flat_size(k, fb_pickle_child(k, list, g));
        s->paddings[g] = fb_pickle_kind(k, padding) == FB_PICKLE_LIST && cut > 0 ? (uint64_t)cut : 0;
    }
    s->unclear = has_inner_padding(p, optimizer);
    return FB_OK;
}

static void look_at_state(fb_folder *f, fb_peek *p, fb_node optimizer, ds_shard *s)
{
    static const char *const overflow[] = {"overflow", NULL}, *const base[] = {"base_optimizer_state", NULL};
    static const char *const inner[] = {"optimizer_state_dict", NULL};
    fb_node flag = fb_peek_get(p, optimizer, overflow);
    s->partitions = take_partitions(p, optimizer);
    if (!fb_peek_optimizer_step(p, fb_peek_get(p, optimizer, base), &s->step) &&
        !fb_peek_optimizer_step(p, fb_peek_get(p, optimizer, inner), &s->step)) {
        s->step = -1;
    }
    if (fb_pickle_kind(p->pickle, flag) == FB_PICKLE_BOOL && fb_pickle_int(p->pickle, flag)) {
        fb_folder_note(f, s->file->name, "it was saved in the middle of a step whose gradients had overflowed (overflow is True)");
    }
}

static fb_status take_shard(fb_folder *f, const fb_tree_file *file, int kind, const uint64_t *numbers, fb_error *err)
{
    static const char *const keys[] = {"optimizer_state_dict", NULL};
    char path[FB_OS_PATH_MAX];
    fb_peek p;
    fb_node optimizer;
    ds_shard *s = fb_pool_take(&f->pool, sizeof *s);
    fb_status status;
    if (!s) return no_memory(f, err);
    s->file = file;
    s->dp = numbers[0];
    s->mp = numbers[1];
    s->kind = kind;
    s->step = -1;
    s->next = f->deepspeed->shards;
    f->deepspeed->shards = s;
    if ((status = fb_folder_path(f, file->name, path, err)) != FB_OK) return status;
    status = fb_peek_open(&p, f->scan, path, err);
    if (status != FB_OK) return status == FB_E_NOTFOUND ? FB_OK : status;
    optimizer = fb_peek_get(&p, fb_pickle_root(p.pickle), keys);
    look_at_state(f, &p, optimizer, s);
    status = take_groups(f, &p, optimizer, s, err);
    fb_peek_close(&p);
    return status;
}

/* ---- what must be there ----------------------------------------------------------------------------------------------------- */

static int belong_together(const ds_shard *a, const ds_shard *b)
{
    return a->file->dir == b->file->dir && a->kind == b->kind;
}

static void name_of(const char *pattern, uint64_t dp, uint64_t mp, char *name, size_t room)
{
    (void)snprintf(name, room, "%.*szero_pp_rank_%llu_mp_rank_%02llu_%s", (int)(strstr(pattern, "zero_pp") - pattern), pattern,
                   (unsigned long long)dp, (unsigned long long)mp,
                   strstr(pattern, "optim") ? "optim_states.pt" : "model_states.pt");
}

/* All ranks of one kind in one folder; `s` is the first of them in the list, so that each kind is checked once. */
static void check_kind(fb_folder *f, const ds_shard *first)
{
    const deepspeed *d = f->deepspeed;
    const char *dir = f->tree.dirs[first->file->dir].name, *slash = *dir ? "/" : "";
    uint64_t partitions = 0, highest_dp = 0, highest_mp = 0;
    uint64_t missing = 0;
    char name[128];
    for (const ds_shard *s = d->shards; s; s = s->next) {
        if (!belong_together(s, first)) continue;
        if (s->partitions > partitions) partitions = s->partitions;
        if (s->dp > highest_dp) highest_dp = s->dp;
        if (s->mp > highest_mp) highest_mp = s->mp;
    }
    if (partitions < highest_dp + 1) partitions = highest_dp + 1;
    for (uint64_t mp = 0; mp <= highest_mp && missing < 8; mp++) {
        for (uint64_t dp = 0; dp < partitions && missing < 8; dp++) {
            name_of(shard_names[first->kind], dp, mp, name, sizeof name);
            if (fb_tree_find(&f->tree, first->file->dir, name)) continue;
            missing++;
            fb_folder_unreadable(f, "%.200s%s%s is missing: the optimizer was cut into %llu parts", dir, slash, name,
                                 (unsigned long long)partitions);
        }
        (void)snprintf(name, sizeof name, "mp_rank_%02llu_model_states.pt", (unsigned long long)mp);
        if (first->stage == 2 && !fb_tree_find(&f->tree, first->file->dir, name)) {
            fb_folder_unreadable(f, "%.200s%s%s is missing", dir, slash, name);
        }
        for (uint64_t dp = 0; first->stage == 3 && dp < partitions && missing < 8; dp++) {
            name_of("zero_pp_model", dp, mp, name, sizeof name);
            if (fb_tree_find(&f->tree, first->file->dir, name)) continue;
            missing++;
            fb_folder_unreadable(f, "%.200s%s%s is missing: ZeRO 3 has one for each of %llu ranks", dir, slash, name,
                                 (unsigned long long)partitions);
        }
    }
}

/* An update that was skipped counts as a step of the engine and not of the optimizer. */
static void compare_steps(fb_folder *f, const ds_model *m)
{
    for (const ds_shard *s = f->deepspeed->shards; s; s = s->next) {
        if (s->file->dir != m->dir || s->step < 0 || m->global_steps < 0 || m->skipped_steps < 0) continue;
        if (s->step == m->global_steps - m->skipped_steps) continue;
        fb_folder_note(f, s->file->name, "its optimizer made %lld updates, and the model %lld steps of which %lld were skipped",
                       (long long)s->step, (long long)m->global_steps, (long long)m->skipped_steps);
        return;
    }
}

static void check_all(fb_folder *f)
{
    const deepspeed *d = f->deepspeed;
    for (const ds_shard *s = d->shards; s; s = s->next) {
        const ds_shard *first = d->shards;
        while (!belong_together(first, s)) first = first->next;
        if (first == s) check_kind(f, s);
    }
    for (const ds_model *m = d->models; m; m = m->next) {
        const ds_shard *s = d->shards;
        while (s && s->file->dir != m->dir) s = s->next;
        if (!s && m->param_count > 0) {
            fb_folder_unreadable(
                f, "%.300s belongs to an optimizer that ZeRO cut into parts, and there is no *_optim_states.pt beside it",
                m->file->name);
        }
        compare_steps(f, m);
    }
}

static fb_status take_latest(fb_folder *f, uint32_t dir, fb_error *err)
{
    const fb_tree_file *file = fb_tree_find(&f->tree, dir, "latest");
    uint8_t *data;
    uint64_t bytes;
    fb_status status;
    if (!file || file->kind != FB_OS_FILE || file->size_bytes == 0 || file->size_bytes > TEXT_BYTES_MAX) return FB_OK;
    if ((status = fb_folder_load(f, file, 0, TEXT_BYTES_MAX, &data, &bytes, err)) != FB_OK || !data) return status;
    while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r' || data[bytes - 1] == ' ')) data[--bytes] = '\0';
    for (uint64_t i = 0; i < bytes; i++) {
        if (data[i] < 0x20 || data[i] == 0x7f) data[i] = '?'; /* it goes into a sentence */
    }
    if (fb_tree_find_dir(&f->tree, dir, (const char *)data) == UINT32_MAX) {
        fb_folder_unreadable(f, "%.300s names %.200s, and there is no such folder", file->name, (const char *)data);
    }
    fb_free(data);
    return FB_OK;
}

/* ---- from flat buffers to parameters ---------------------------------------------------------------------------------------- */

/* Where the piece of this rank begins in the buffer of a group, ZeRO 1 and 2. 0: not certain. */
static int place_of_rank(const deepspeed *d, const ds_shard *s, uint64_t group, uint64_t total, uint64_t *place)
{
    uint64_t before = 0, real = 0, padded = 0, ranks = 0;
    for (const ds_shard *other = d->shards; other; other = other->next) {
        if (!belong_together(other, s) || other->mp != s->mp) continue;
        if (group >= other->groups || other->sizes[group] > UINT64_MAX / 4 / s->partitions) return 0;
        if (other->paddings[group] > UINT64_MAX / 4 / s->partitions || ranks++ == s->partitions) return 0;
        if (other->dp < s->dp) before += other->sizes[group] + other->paddings[group];
        real += other->sizes[group];
        padded += other->sizes[group] + other->paddings[group];
    }
    *place = before;
    return ranks == s->partitions && (real == total || (padded >= total && padded - total < 4 * ranks));
}

static void fill_piece(fb_ds_piece *piece, const ds_param *p, uint64_t start, uint64_t elements, uint64_t start_whole)
{
    piece->parameter = p->name;
    piece->shape = p->shape;
    piece->ndim = p->ndim;
    piece->elements_whole = p->elements;
    piece->start = start;
    piece->elements = elements;
    piece->start_whole = start_whole;
}

/* The parameters of a group lie one after the other in its buffer, of which this rank has [begin, end). 0: not certain. */
static int split_two(const deepspeed *d, const ds_shard *s, const ds_model *m, uint64_t group, fb_ds_piece *pieces, uint64_t *count)
{
    uint64_t total = 0, begin, end, at = 0;
    for (uint64_t i = 0; i < m->param_count; i++) {
        if (m->params[i].group == group && __builtin_add_overflow(total, m->params[i].elements, &total)) return 0;
    }
    if (!place_of_rank(d, s, group, total, &begin)) return 0;
    end = begin + s->sizes[group];
    for (uint64_t i = 0; i < m->param_count; i++) {
        const ds_param *p = &m->params[i];
        uint64_t from = at > begin ? at : begin, to = at + p->elements < end ? at + p->elements : end;
        if (p->group != group) continue;
        if (from < to) fill_piece(&pieces[(*count)++], p, from - begin, to - from, from - at);
        at += p->elements;
    }
    return 1;
}

static uint64_t part_of(const ds_param *p, const ds_shard *s)
{
    return p->elements / s->partitions + (p->elements % s->partitions != 0);
}

/* ZeRO 3: equal parts of all parameters in order; the groups of a rank make one run. 0: not certain. */
static int split_three(const ds_shard *s, const ds_model *m, uint64_t group, fb_ds_piece *pieces, uint64_t *count)
{
    uint64_t begin = 0, sum = 0, parts = 0, end, at = 0;
    for (uint64_t g = 0; g < s->groups; g++) {
        if (g == group) begin = sum;
        if (__builtin_add_overflow(sum, s->sizes[g], &sum)) return 0;
    }
    for (uint64_t i = 0; i < m->param_count; i++) {
        if (__builtin_add_overflow(parts, part_of(&m->params[i], s), &parts)) return 0;
    }
    if (parts != sum) return 0;
    end = begin + s->sizes[group];
    for (uint64_t i = 0; i < m->param_count; i++) {
        const ds_param *p = &m->params[i];
        uint64_t part = part_of(p, s), first = s->dp < p->elements / (part ? part : 1) + 1 ? s->dp * part : p->elements;
        uint64_t real = first < p->elements ? (p->elements - first < part ? p->elements - first : part) : 0;
        if (at >= begin && at + part <= end) {
            if (real) fill_piece(&pieces[(*count)++], p, at - begin, real, first);
        } else if (at < end && at + part > begin) {
            return 0; /* a part that lies in two groups: not how DeepSpeed does it */
        }
        at += part;
    }
    return 1;
}

/* pieces: room for one of each parameter. */
static fb_status map_shard(fb_folder *f, const ds_shard *s, const ds_model *m, fb_ds_piece *pieces, fb_error *err)
{
    fb_ds_shard_map *map = fb_pool_take(&f->pool, sizeof *map);
    fb_ds_group *groups = fb_pool_take(&f->pool, (size_t)(s->groups + 1) * sizeof *groups);
    fb_folder_plan *plan = fb_folder_plan_of(f, s->file);
    if (!map || !groups) return no_memory(f, err);
    for (uint64_t g = 0; g < s->groups; g++) {
        uint64_t count = 0;
        fb_ds_piece *kept;
        if (!(s->stage == 3 ? split_three(s, m, g, pieces, &count) : split_two(f->deepspeed, s, m, g, pieces, &count)))
            return FB_OK;
        kept = fb_pool_take(&f->pool, (size_t)(count + 1) * sizeof *kept);
        if (!kept) return no_memory(f, err);
        memcpy(kept, pieces, (size_t)count * sizeof *kept);
        groups[g].pieces = kept;
        groups[g].count = count;
    }
    map->groups = groups;
    map->count = s->groups;
    plan->take = FB_TAKE_AS;
    plan->reader = &fb_ckpt_deepspeed_shard;
    plan->setup = map;
    return FB_OK;
}

/* Where the places of parameters are certain, their buffers are read as parameters; elsewhere as they
 * are, by their names in the file. */
static fb_status map_all(fb_folder *f, fb_error *err)
{
    for (const ds_shard *s = f->deepspeed->shards; s; s = s->next) {
        const ds_model *m = f->deepspeed->models;
        fb_ds_piece *pieces;
        fb_status status;
        while (m && (m->dir != s->file->dir || m->mp != s->mp)) m = m->next;
        if (!m || s->unclear || s->partitions == 0 || m->param_count == 0 || s->groups == 0) continue;
        pieces = fb_calloc((size_t)m->param_count + 1, sizeof *pieces);
        if (!pieces) return no_memory(f, err);
        status = map_shard(f, s, m, pieces, err);
        fb_free(pieces);
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

fb_status fb_layout_deepspeed(fb_folder *f, fb_error *err)
{
    fb_status status;
    f->deepspeed = fb_pool_take(&f->pool, sizeof *f->deepspeed);
    if (!f->deepspeed) return no_memory(f, err);
    for (uint64_t i = 0; i < f->tree.count; i++) {
        const fb_tree_file *file = &f->tree.files[i];
        uint64_t numbers[2], dp, mp;
        if (file->kind != FB_OS_FILE) continue;
        if (is_model(file->base, &dp, &mp)) {
            fb_folder_format(f, "deepspeed");
            if ((status = take_model(f, file, mp, err)) != FB_OK) return status;
        }
        for (int kind = 0; kind < SHARD_NAMES; kind++) {
            if (!fb_rank_name(shard_names[kind], file->base, numbers)) continue;
            fb_folder_format(f, "deepspeed");
            if ((status = take_shard(f, file, kind, numbers, err)) != FB_OK) return status;
        }
    }
    for (uint32_t dir = 0; dir < f->tree.dir_count && (f->deepspeed->models || f->deepspeed->shards); dir++) {
        if ((status = take_latest(f, dir, err)) != FB_OK) return status;
    }
    check_all(f);
    return map_all(f, err);
}

/* A piece of a parameter is told in the shape of the parameter: its flat index is the same in both. */
void fb_layout_deepspeed_finding(fb_folder *f, fb_ckpt_finding *finding)
{
    const fb_folder_plan *plan = f->now ? fb_folder_plan_of(f, f->now) : NULL;
    const fb_ds_shard_map *map = plan && plan->reader == &fb_ckpt_deepspeed_shard ? plan->setup : NULL;
    const char *parameter = strstr(finding->tensor, " of ");
    if (!map || !parameter || finding->ndim != 1) return;
    for (uint64_t g = 0; g < map->count; g++) {
        for (uint64_t i = 0; i < map->groups[g].count; i++) {
            const fb_ds_piece *p = &map->groups[g].pieces[i];
            if (p->elements_whole != finding->elements || strcmp(p->parameter, parameter + 4) != 0) continue;
            finding->ndim = p->ndim;
            finding->shape = p->shape;
            return;
        }
    }
}
