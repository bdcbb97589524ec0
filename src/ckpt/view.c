#include "ckpt/view.h"

#include <string.h>

int fb_ckpt_view_is_dense(const fb_ckpt_tensor *tensor)
{
    uint64_t expected = 1;
    if (!tensor->strides || tensor->elements == 0) return 1;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->shape[d] != 1 && (uint64_t)tensor->strides[d] != expected) return 0;
        expected *= tensor->shape[d]; /* at most `elements` */
    }
    return 1;
}

/* 0 when there is nothing to take; -1 when it is not allowed. */
static int take_dimension(fb_ckpt_view *view, uint64_t size, int64_t stride, uint64_t weight)
{
    uint64_t reach;
    if (stride < 0) return -1;
    if (size == 1 || stride == 0) return 0;
    if (__builtin_mul_overflow(size - 1, (uint64_t)stride, &reach) || __builtin_add_overflow(view->span, reach, &view->span))
        return -1;
    view->shape[view->ndim] = size;
    view->stride[view->ndim] = (uint64_t)stride;
    view->weight[view->ndim] = weight;
    view->ndim++;
    if (__builtin_mul_overflow(view->stored, size, &view->stored)) view->stored = UINT64_MAX;
    return 0;
}

static void exchange(uint64_t *values, int32_t i)
{
    uint64_t keep = values[i];
    values[i] = values[i - 1];
    values[i - 1] = keep;
}

/* Insertion sort: there are at most 64. */
static void sort_by_stride(fb_ckpt_view *view)
{
    for (int32_t i = 1; i < view->ndim; i++) {
        for (int32_t k = i; k > 0 && view->stride[k - 1] < view->stride[k]; k--) {
            exchange(view->stride, k);
            exchange(view->shape, k);
            exchange(view->weight, k);
        }
    }
}

/* By falling stride: does each dimension step over everything that those after it reach? */
static int is_nested(const fb_ckpt_view *view)
{
    uint64_t reach = 1;
    for (int32_t d = view->ndim - 1; d >= 0; d--) {
        if (view->stride[d] < reach) return 0;
        reach += (view->shape[d] - 1) * view->stride[d];
    }
    return 1;
}

static uint64_t run_of(const fb_ckpt_view *view)
{
    uint64_t run = 1;
    for (int32_t d = view->ndim - 1; d >= 0 && view->stride[d] == run; d--) run *= view->shape[d];
    return run;
}

int fb_ckpt_view_init(fb_ckpt_view *view, const fb_ckpt_tensor *tensor)
{
    uint64_t weight = 1;
    fb_ckpt_view by_stride;
    view->ndim = 0;
    view->nested = 1;
    view->stored = view->span = view->run = 0;
    if (tensor->elements == 0) return 1;
    view->stored = 1;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        if (take_dimension(view, tensor->shape[d], tensor->strides ? tensor->strides[d] : (int64_t)weight, weight) < 0) return 0;
        weight *= tensor->shape[d]; /* at most `elements` */
    }
    if (__builtin_add_overflow(view->span, 1, &view->span)) return 0;
    for (int32_t i = 0; i < view->ndim / 2; i++) { /* they came last dimension first */
        int32_t k = view->ndim - 1 - i;
        uint64_t shape = view->shape[i], stride = view->stride[i], size = view->weight[i];
        view->shape[i] = view->shape[k];
        view->stride[i] = view->stride[k];
        view->weight[i] = view->weight[k];
        view->shape[k] = shape;
        view->stride[k] = stride;
        view->weight[k] = size;
    }
    by_stride = *view;
    sort_by_stride(&by_stride);
    view->nested = is_nested(&by_stride);
    if (!view->nested) return 1;
    by_stride.nested = 1;
    by_stride.run = run_of(&by_stride);
    *view = by_stride;
    return 1;
}

uint64_t fb_ckpt_view_position(const fb_ckpt_view *view, uint64_t ordinal)
{
    uint64_t position = 0;
    for (int32_t d = view->ndim - 1; d >= 0 && ordinal; d--) {
        position += ordinal % view->shape[d] * view->stride[d];
        ordinal /= view->shape[d];
    }
    return position;
}

static int find_nested(const fb_ckpt_view *view, uint64_t position, uint64_t *index)
{
    *index = 0;
    for (int32_t d = 0; d < view->ndim; d++) {
        uint64_t k = position / view->stride[d];
        if (k >= view->shape[d]) k = view->shape[d] - 1; /* what is left is then too much for the others, and is found out */
        position -= k * view->stride[d];
        *index += k * view->weight[d];
    }
    return position == 0;
}

/*
 * Overlapping windows (unfold, as_strided): indices in rising order are tried, dimension by dimension, with the bounds that the
 * dimensions behind leave; the first that fits is the smallest flat index. No recursion: depth is at most 64.
 */
static int find_overlapping(const fb_ckpt_view *view, uint64_t position, uint64_t *steps, uint64_t *index)
{
    uint64_t behind[FB_CKPT_DIMS_MAX + 1]; /* what dimensions from d on can reach */
    uint64_t k[FB_CKPT_DIMS_MAX], left[FB_CKPT_DIMS_MAX + 1];
    int32_t d = 0, fresh = 1;
    behind[view->ndim] = 0;
    for (int32_t i = view->ndim - 1; i >= 0; i--) behind[i] = behind[i + 1] + (view->shape[i] - 1) * view->stride[i];
    left[0] = position;
    for (;;) {
        uint64_t low;
        if (*steps == 0) return -1;
        --*steps;
        if (d == view->ndim) {
            if (left[d] == 0) break;
            d--;
            fresh = 0;
            if (d < 0) return 0;
            continue;
        }
        low = left[d] > behind[d + 1] ? (left[d] - behind[d + 1] + view->stride[d] - 1) / view->stride[d] : 0;
        k[d] = fresh ? low : k[d] + 1;
        if (k[d] >= view->shape[d] || k[d] > left[d] / view->stride[d]) {
            if (d == 0) return 0;
            d--;
            fresh = 0;
            continue;
        }
        left[d + 1] = left[d] - k[d] * view->stride[d];
        d++;
        fresh = 1;
    }
    *index = 0;
    for (int32_t i = 0; i < view->ndim; i++) *index += k[i] * view->weight[i];
    return 1;
}

int fb_ckpt_view_find(const fb_ckpt_view *view, uint64_t position, uint64_t *steps, uint64_t *index)
{
    if (position >= view->span) return 0;
    if (!view->nested) return find_overlapping(view, position, steps, index);
    if (*steps < (uint64_t)view->ndim + 1) return -1;
    *steps -= (uint64_t)view->ndim + 1;
    return find_nested(view, position, index);
}
