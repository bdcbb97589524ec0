#include "scan/scan_finite_math.h"

#include "scan/scan_walk.h"

#include <stdlib.h>

#include "base/status.h"

static fb_status check_layout(const fb_view *view, const char *name, size_t number, fb_error *err)
{
    const fb_layout *layout = view->layout;
    uint64_t product = 1;
    int d;
    if (layout->ndim < 1 || layout->ndim > FB_DIMS_MAX)
        return fb_fail(err, FB_E_USAGE, "scan %s %zu: layout has %d dimensions, expected 1 to %d", name, number, (int)layout->ndim,
                       (int)FB_DIMS_MAX);
    for (d = 0; d < layout->ndim; d++)
        if (layout->shape[d] < 0 || __builtin_mul_overflow(product, (uint64_t)layout->shape[d], &product))
            return fb_fail(err, FB_E_USAGE, "scan %s %zu: shape[%d] is %lld, which makes no tensor", name, number, d,
                           (long long)layout->shape[d]);
    if (product != view->count)
        return fb_fail(err, FB_E_USAGE, "scan %s %zu: the shape multiplies to %llu elements, but count is %llu", name, number,
                       (unsigned long long)product, (unsigned long long)view->count);
    return FB_OK;
}

/* Leave dimensions of size 1 out, and merge neighbours that are one run: fewer, longer inner loops. */
static int fold_layout(fb_walk *walk, const fb_layout *layout)
{
    int d;
    walk->ndim = 0;
    for (d = 0; d < layout->ndim; d++) {
        int64_t stride, reach;
        int last = walk->ndim - 1;
        if (layout->shape[d] == 1) continue;
        if (__builtin_mul_overflow(layout->strides[d], (int64_t)walk->element_bytes, &stride)) return 0;
        if (__builtin_mul_overflow(stride, layout->shape[d], &reach)) return 0;
        if (last >= 0 && walk->strides[last] == reach) {
            walk->shape[last] *= (uint64_t)layout->shape[d];
            walk->strides[last] = stride;
            continue;
        }
        walk->shape[walk->ndim] = (uint64_t)layout->shape[d];
        walk->strides[walk->ndim] = stride;
        walk->ndim++;
    }
    walk->strided = !(walk->ndim == 0 || (walk->ndim == 1 && walk->strides[0] == (int64_t)walk->element_bytes));
    return 1;
}

fb_status fb_walk_init(fb_walk *walk, const fb_view *view, const char *name, size_t number, fb_error *err)
{
    fb_status status;
    memset(walk, 0, sizeof *walk);
    walk->format = fb_format_of(view->dtype);
    if (!walk->format) return fb_fail(err, FB_E_DTYPE, "scan %s %zu: number format %d is unknown", name, number, (int)view->dtype);
    if (view->device != -1)
        return fb_fail(err, FB_E_USAGE,
                       "scan %s %zu: device is %d, but only host memory (-1) can be read here; report what was found "
                       "on a device with fb_step_report",
                       name, number, (int)view->device);
    if (view->flags != 0)
        return fb_fail(err, FB_E_USAGE, "scan %s %zu: flags are 0x%x, expected 0", name, number, (unsigned)view->flags);
    if (!view->data && view->count)
        return fb_fail(err, FB_E_USAGE, "scan %s %zu: data is NULL for %llu elements", name, number,
                       (unsigned long long)view->count);
    if (view->count && (fb_dtype_bytes(view->dtype, view->count) == 0 || view->count > UINT64_MAX / 32))
        return fb_fail(err, FB_E_USAGE, "scan %s %zu: %llu elements do not fit into memory", name, number,
                       (unsigned long long)view->count);
    if (view->layout && (status = check_layout(view, name, number, err)) != FB_OK) return status;
    walk->data = view->data;
    walk->elements = view->count;
    if (walk->format->scheme == FB_SCHEME_NONE) return FB_OK;
    walk->element_bytes = fb_format_part_bytes(walk->format) * walk->format->parts;
    walk->block_elements = FB_BLOCK_BYTES / walk->element_bytes;
    walk->blocks = (view->count + walk->block_elements - 1) / walk->block_elements;
    if (view->layout && view->count && !fold_layout(walk, view->layout))
        return fb_fail(err, FB_E_USAGE, "scan %s %zu: a stride times its shape does not fit in 64 bits", name, number);
    return FB_OK;
}

fb_status fb_walk_writable(const fb_walk *walk, const char *name, size_t number, fb_error *err)
{
    int order[FB_DIMS_MAX], d, k;
    uint64_t reach = walk->element_bytes;
    if (!walk->strided) return FB_OK;
    for (d = 0; d < walk->ndim; d++) {
        for (k = d; k > 0 && llabs(walk->strides[order[k - 1]]) > llabs(walk->strides[d]); k--) order[k] = order[k - 1];
        order[k] = d;
    }
    /* Sorted by stride, each dimension must step over all that the smaller ones can reach. */
    for (d = 0; d < walk->ndim; d++) {
        uint64_t step = (uint64_t)llabs(walk->strides[order[d]]);
        if (step < reach)
            return fb_fail(err, FB_E_USAGE,
                           "write %s %zu: elements of the view share memory, so they would be multiplied more than once", name,
                           number);
        reach += step * (walk->shape[order[d]] - 1);
    }
    return FB_OK;
}

typedef struct cursor {
    uint64_t at[FB_DIMS_MAX];
    uint8_t *place; /* of the innermost dimension's element 0 */
} cursor;

static void cursor_seek(const fb_walk *walk, uint64_t start, cursor *c)
{
    int d;
    intptr_t offset = 0;
    for (d = walk->ndim - 1; d >= 0; d--) {
        c->at[d] = start % walk->shape[d];
        start /= walk->shape[d];
        if (d < walk->ndim - 1) offset += (intptr_t)(c->at[d]) * walk->strides[d];
    }
    c->place = walk->data + offset;
}

static void cursor_next_row(const fb_walk *walk, cursor *c)
{
    int d;
    c->at[walk->ndim - 1] = 0;
    for (d = walk->ndim - 2; d >= 0; d--) {
        c->place += walk->strides[d];
        if (++c->at[d] < walk->shape[d]) return;
        c->place -= (intptr_t)walk->shape[d] * walk->strides[d];
        c->at[d] = 0;
    }
}

static void copy_run(uint8_t *target, int64_t target_stride, const uint8_t *source, int64_t source_stride, size_t n, size_t bytes)
{
    size_t i;
    if (target_stride == (int64_t)bytes && source_stride == (int64_t)bytes) {
        memcpy(target, source, n * bytes);
        return;
    }
    for (i = 0; i < n; i++) memcpy(target + (int64_t)i * target_stride, source + (int64_t)i * source_stride, bytes);
}

/* Move [start, start + n) between the view and a dense buffer. */
static void transfer(const fb_walk *walk, uint64_t start, size_t n, uint8_t *buffer, int into_view)
{
    int inner = walk->ndim - 1;
    int64_t dense = (int64_t)walk->element_bytes, stride = walk->strides[inner];
    cursor c;
    cursor_seek(walk, start, &c);
    while (n) {
        uint64_t left = walk->shape[inner] - c.at[inner];
        size_t run = left < n ? (size_t)left : n;
        uint8_t *place = c.place + (int64_t)c.at[inner] * stride;
        if (into_view) copy_run(place, stride, buffer, dense, run, walk->element_bytes);
        else copy_run(buffer, dense, place, stride, run, walk->element_bytes);
        buffer += run * walk->element_bytes;
        n -= run;
        if (n) cursor_next_row(walk, &c);
    }
}

const uint8_t *fb_walk_read(const fb_walk *walk, uint64_t start, size_t n, uint8_t *buffer)
{
    if (!walk->strided) return walk->data + start * walk->element_bytes;
    transfer(walk, start, n, buffer, 0);
    return buffer;
}

uint8_t *fb_walk_write(const fb_walk *walk, uint64_t start, uint8_t *buffer)
{
    return walk->strided ? buffer : walk->data + start * walk->element_bytes;
}

void fb_walk_write_end(const fb_walk *walk, uint64_t start, size_t n, uint8_t *buffer)
{
    if (walk->strided) transfer(walk, start, n, buffer, 1);
}
