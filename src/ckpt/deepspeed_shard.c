#include "ckpt/deepspeed_shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/pool.h"

typedef struct state {
    void *inner; /* of fb_ckpt_torch_zip */
    const fb_ds_shard_map *map;
    const char *path;
    fb_ckpt_tensor *tensors;
    uint64_t count, room;
    fb_pool pool; /* names and shapes of the extent in work */
} state;

static fb_status no_memory(const state *s, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "read deepspeed %s: no memory", s->path);
}

/* "....single_partition_of_fp32_groups.1", "....state.1.exp_avg": number of the group, and what is kept there. */
static int parse_name(const char *name, uint64_t *group, const char **what)
{
    static const char *const masters[] = {"single_partition_of_fp32_groups.", "fp32_flat_groups."};
    const char *at;
    char *end;
    *what = "fp32_param";
    for (size_t i = 0; i < sizeof masters / sizeof masters[0]; i++) {
        if ((at = strstr(name, masters[i])) == NULL) continue;
        *group = strtoul(at + strlen(masters[i]), &end, 10);
        return *end == '\0' && end > at + strlen(masters[i]);
    }
    if ((at = strstr(name, "state.")) == NULL) return 0;
    while ((end = strstr(at + 6, "state.")) != NULL) at = end;
    *group = strtoul(at + 6, &end, 10);
    if (end == at + 6 || *end != '.') return 0;
    *what = end + 1;
    return **what != '\0' && strchr(*what, '.') == NULL && strcmp(*what, "step") != 0;
}

static fb_ckpt_tensor *add(state *s)
{
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 64;
        fb_ckpt_tensor *grown = fb_realloc(s->tensors, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        s->tensors = grown;
        s->room = room;
    }
    return &s->tensors[s->count++];
}

/* A run that is the whole parameter has its shape; another is a piece of the flat parameter. */
static fb_status add_piece(state *s, const fb_ckpt_tensor *flat, uint64_t unit, const char *what, const fb_ds_piece *piece,
                           fb_error *err)
{
    fb_ckpt_tensor *t = add(s);
    size_t bytes = strlen(what) + strlen(piece->parameter) + 32;
    char *name = t ? fb_pool_take(&s->pool, bytes) : NULL;
    uint64_t *shape = t ? fb_pool_take(&s->pool, 3 * sizeof *shape) : NULL;
    if (!t || !name || !shape) return no_memory(s, err);
    (void)snprintf(name, bytes, "optimizer.state.%s of %s", what, piece->parameter);
    *t = *flat;
    t->name = name;
    t->elements = piece->elements;
    t->offset_bytes = flat->offset_bytes + piece->start * unit;
    if (piece->elements == piece->elements_whole) {
        t->ndim = piece->ndim;
        t->shape = piece->shape;
        return FB_OK;
    }
    shape[0] = piece->elements;
    shape[1] = piece->elements_whole;
    shape[2] = piece->start_whole;
    t->ndim = 1;
    t->shape = shape;
    t->whole_shape = shape + 1;
    t->whole_start = shape + 2;
    return FB_OK;
}

/* The group whose parameters lie in this tensor, or NULL: it stays as it is. */
static const fb_ds_group *group_of(const state *s, const fb_ckpt_tensor *t, const char **what)
{
    const fb_ds_group *g;
    uint64_t number;
    int dense = t->strides == NULL || t->strides[0] == 1;
    if (t->ndim != 1 || t->period_bytes || t->whole_shape || t->unscanned || t->number || !dense) return NULL;
    if (!parse_name(t->name, &number, what) || number >= s->map->count) return NULL;
    g = &s->map->groups[number];
    if (g->count == 0) return NULL;
    /* Pieces come in order: when the last one fits, all do. */
    if (g->pieces[g->count - 1].start + g->pieces[g->count - 1].elements > t->elements) return NULL;
    return g;
}

static fb_status split(state *s, fb_ckpt_extent *extent, fb_error *err)
{
    s->count = 0;
    for (uint64_t i = 0; i < extent->tensor_count; i++) {
        const fb_ckpt_tensor *t = &extent->tensors[i];
        const char *what;
        const fb_ds_group *g = group_of(s, t, &what);
        uint64_t unit = fb_dtype_bytes(t->dtype, 1);
        fb_status status;
        if (!g || unit == 0) {
            fb_ckpt_tensor *same = add(s);
            if (!same) return no_memory(s, err);
            *same = *t;
            continue;
        }
        for (uint64_t p = 0; p < g->count; p++) {
            if ((status = add_piece(s, t, unit, what, &g->pieces[p], err)) != FB_OK) return status;
        }
    }
    extent->tensors = s->tensors;
    extent->tensor_count = s->count;
    return FB_OK;
}

static fb_status shard_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    fb_status status = fb_ckpt_torch_zip.next(s->inner, extent, err);
    fb_pool_release(&s->pool);
    if (status != FB_OK || extent->tensor_count == 0) return status;
    return split(s, extent, err);
}

static int shard_remark(void *state_, uint64_t i, fb_ckpt_remark *remark)
{
    const state *s = state_;
    return fb_ckpt_torch_zip.remark ? fb_ckpt_torch_zip.remark(s->inner, i, remark) : 0;
}

static void shard_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    fb_ckpt_torch_zip.close(s->inner);
    fb_free(s->tensors);
    fb_pool_release(&s->pool);
    fb_free(s);
}

static fb_status shard_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    fb_ckpt_range inner = *range;
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read deepspeed %s: no memory", range->file->path);
    s->map = range->setup;
    s->path = range->file->path;
    inner.setup = NULL;
    if ((status = fb_ckpt_torch_zip.open(&s->inner, &inner, options, err)) != FB_OK) {
        shard_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

const fb_ckpt_reader fb_ckpt_deepspeed_shard = {
    .format = "torch_zip",
    .detect = NULL,
    .open = shard_open,
    .next = shard_next,
    .remark = shard_remark,
    .close = shard_close,
};
