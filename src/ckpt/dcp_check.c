/* What must hold of a whole table: chunks that make whole tensors, each stored once, in ranges of files that do not overlap. */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/dcp_inside.h"
#include "ckpt/order.h"

/* ---- chunks of one tensor --------------------------------------------------------------------------------------------------- */

typedef struct sorted {
    const dcp_chunk *chunks;
    int32_t dim;
} sorted;

static int by_start(const void *ctx, uint32_t a, uint32_t b)
{
    const sorted *s = ctx;
    uint64_t x = s->chunks[a].start[s->dim], y = s->chunks[b].start[s->dim];
    return x < y ? -1 : x > y;
}

static int overlap(const dcp_chunk *a, const dcp_chunk *b, int32_t ndim)
{
    for (int32_t i = 0; i < ndim; i++) {
        if (a->start[i] >= b->start[i] + b->size[i] || b->start[i] >= a->start[i] + a->size[i]) return 0;
    }
    return 1;
}

/* The dimension in which the chunks begin at the most different places: sorted by it, few of them have to be compared. */
static int32_t widest(fb_dcp *d, const dcp_tensor *t, uint32_t *order, uint64_t count)
{
    sorted s = {d->chunks + t->first_chunk, 0};
    uint64_t most = 0;
    int32_t best = 0;
    for (s.dim = 0; s.dim < t->ndim; s.dim++) {
        uint64_t different = 1;
        if (s.chunks[order[0]].size[s.dim] == t->shape[s.dim]) continue; /* not cut here */
        fb_ckpt_sort(order, count, by_start, &s);
        for (uint64_t i = 1; i < count; i++) different += by_start(&s, order[i - 1], order[i]) != 0;
        if (different <= most) continue;
        most = different;
        best = s.dim;
    }
    return best;
}

static fb_status check_overlap(fb_dcp *d, const dcp_tensor *t, uint32_t *order, uint64_t count, fb_error *err)
{
    sorted s = {d->chunks + t->first_chunk, 0};
    fb_status status;
    if (count < 2) return FB_OK;
    s.dim = widest(d, t, order, count);
    fb_ckpt_sort(order, count, by_start, &s);
    for (uint64_t i = 0; i < count; i++) {
        const dcp_chunk *a = &s.chunks[order[i]];
        uint64_t j = i + 1;
        for (; j < count && s.chunks[order[j]].start[s.dim] < a->start[s.dim] + a->size[s.dim]; j++) {
            if (!overlap(a, &s.chunks[order[j]], t->ndim)) continue;
            return fb_fail(err, FB_E_CORRUPT, "read %s: two chunks of tensor %.200s overlap", d->path, t->fqn);
        }
        if ((status = fb_dcp_work(d, j - i, err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* Chunks that lie inside the tensor, do not overlap, and have as many elements as it: they fill it exactly. */
static fb_status check_tensor(fb_dcp *d, const dcp_tensor *t, fb_error *err)
{
    const dcp_chunk *chunks = d->chunks + t->first_chunk;
    uint64_t sum = 0, count = 0;
    fb_status status;
    for (uint64_t i = 0; i < t->chunk_count; i++) {
        if (chunks[i].elements == 0) continue; /* the share of a rank that got nothing */
        if (chunks[i].stored != 1) {
            return fb_fail(err, FB_E_CORRUPT, "read %s: chunk %llu of tensor %.200s is stored %u times, once is due", d->path,
                           (unsigned long long)i, t->fqn, chunks[i].stored);
        }
        d->order[count++] = (uint32_t)i;
        if (__builtin_add_overflow(sum, chunks[i].elements, &sum)) sum = UINT64_MAX;
    }
    if ((status = check_overlap(d, t, d->order, count, err)) != FB_OK) return status;
    if (sum == t->elements) return FB_OK;
    return fb_fail(err, FB_E_CORRUPT, "read %s: the chunks of tensor %.200s hold %llu of its %llu elements", d->path, t->fqn,
                   (unsigned long long)sum, (unsigned long long)t->elements);
}

static fb_status check_tensors(fb_dcp *d, fb_error *err)
{
    for (uint64_t i = 0; i < d->tensor_count; i++) {
        const dcp_tensor *t = &d->tensors[i];
        fb_status status = t->is_blob ? FB_OK : check_tensor(d, t, err);
        if (status != FB_OK) return status;
        if (t->is_blob && t->stored != 1) {
            return fb_fail(err, FB_E_CORRUPT, "read %s: %.200s is stored %u times, once is due", d->path, t->fqn, t->stored);
        }
    }
    return FB_OK;
}

/* ---- places in files -------------------------------------------------------------------------------------------------------- */

static int by_place(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_dcp *d = ctx;
    const dcp_place *x = &d->places[a], *y = &d->places[b];
    int order = strcmp(x->file, y->file);
    if (order != 0) return order;
    if (x->offset_bytes != y->offset_bytes) return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int ends_with_step(const char *fqn)
{
    size_t n = strlen(fqn);
    return n >= 4 && strcmp(fqn + n - 4, "step") == 0 && (n == 4 || fqn[n - 5] == '.');
}

static void make_slice(const fb_dcp *d, const dcp_place *p, fb_dcp_slice *slice)
{
    const dcp_tensor *t = &d->tensors[p->tensor];
    slice->offset_bytes = p->offset_bytes;
    slice->bytes = p->bytes;
    slice->name = t->name;
    slice->transformed = p->transformed;
    slice->is_blob = t->is_blob;
    if (t->is_blob) return;
    slice->dtype = t->dtype;
    slice->dtype_name = t->dtype_name;
    slice->ndim = t->ndim;
    slice->whole_shape = t->shape;
    slice->shape = d->chunks[p->chunk].size;
    slice->start = d->chunks[p->chunk].start;
    slice->is_step = t->elements == 1 && t->dtype == FB_F32 && ends_with_step(t->fqn);
    slice->group = t->chunk_count > 1 ? (uint64_t)p->tensor + 1 : 0;
}

static fb_status check_places(fb_dcp *d, fb_error *err)
{
    for (uint64_t i = 0; i < d->place_count; i++) d->order[i] = (uint32_t)i;
    fb_ckpt_sort(d->order, d->place_count, by_place, d);
    for (uint64_t i = 0; i < d->place_count; i++) {
        const dcp_place *p = &d->places[d->order[i]], *before = i > 0 ? &d->places[d->order[i - 1]] : NULL;
        fb_dcp_file *file;
        if (p->bytes > UINT64_MAX - p->offset_bytes) {
            return fb_fail(err, FB_E_CORRUPT, "read %s: a range of %.200s ends beyond 2^64", d->path, p->file);
        }
        if (!before || strcmp(before->file, p->file) != 0) {
            d->files[d->file_count].name = p->file;
            d->files[d->file_count].slices = d->slices + i;
            d->file_count++;
        } else if (p->offset_bytes < before->offset_bytes + before->bytes) {
            return fb_fail(err, FB_E_CORRUPT, "read %s: in %.200s the bytes of %.200s and %.200s overlap at %llu", d->path, p->file,
                           d->tensors[before->tensor].fqn, d->tensors[p->tensor].fqn, (unsigned long long)p->offset_bytes);
        }
        file = &d->files[d->file_count - 1];
        make_slice(d, p, &d->slices[i]);
        file->count++;
    }
    return FB_OK;
}

fb_status fb_dcp_check(fb_dcp *d, fb_error *err)
{
    uint64_t most = d->place_count > d->chunk_count ? d->place_count : d->chunk_count;
    fb_status status;
    d->order = fb_calloc((size_t)most + 1, sizeof *d->order);
    d->slices = fb_calloc((size_t)d->place_count + 1, sizeof *d->slices);
    d->files = fb_calloc((size_t)d->place_count + 1, sizeof *d->files);
    if (!d->order || !d->slices || !d->files) return fb_dcp_no_memory(d, err);
    if ((status = check_tensors(d, err)) != FB_OK) return status;
    return check_places(d, err);
}
