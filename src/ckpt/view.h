/*
 * A tensor as a view of stored elements: which of them it refers to, and which index of the tensor one of them has. Expanded
 * dimensions refer to the same stored elements again and again; what is counted here is stored elements, each once.
 */
#ifndef FB_CKPT_VIEW_H
#define FB_CKPT_VIEW_H

#include "ckpt/reader.h"

/* Dimensions of size 1 and those that are expanded are left out. */
typedef struct fb_ckpt_view {
    int32_t ndim;
    int32_t
        nested; /* 1: no stored element is referred to by two indices; dimensions are by falling stride. 0: in the tensor's order */
    uint64_t stored; /* stored elements that it refers to; when not nested: as if they were distinct, saturated */
    uint64_t span;   /* from the first stored element to the last, both included; 0: the tensor is empty */
    uint64_t shape[FB_CKPT_DIMS_MAX], stride[FB_CKPT_DIMS_MAX];
    uint64_t weight[FB_CKPT_DIMS_MAX]; /* of the dimension in the tensor's flat index */
    uint64_t run;                      /* nested: elements at the end of the order that lie one after the other */
} fb_ckpt_view;

/* 0: strides are negative, or the span does not fit into 64 bits; no reader may hand out such a thing. */
int fb_ckpt_view_init(fb_ckpt_view *view, const fb_ckpt_tensor *tensor);

/* 1: dense, the last dimension fastest, whatever the strides of dimensions that do not count. */
int fb_ckpt_view_is_dense(const fb_ckpt_tensor *tensor);

/**
 * Does the view refer to the stored element that lies `position` elements after its first one?
 * index  out: the smallest flat index of the tensor that refers to it.
 * steps  what the search may still cost; counted down. Nested views take one a dimension.
 * Returns 1, 0, or -1 when the steps are used up.
 */
int fb_ckpt_view_find(const fb_ckpt_view *view, uint64_t position, uint64_t *steps, uint64_t *index);

/* Nested: where stored element number `ordinal` in the order of storage lies, counted from the first one. */
uint64_t fb_ckpt_view_position(const fb_ckpt_view *view, uint64_t ordinal);

#endif
