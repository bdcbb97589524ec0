/*
 * Faults on purpose, so that drills travel the real path: they change the caller's tensors right before the check that must see
 * them. Off unless the run was opened with a specification. Grammar: docs/injection.md.
 */
#ifndef FB_GUARD_INJECT_H
#define FB_GUARD_INJECT_H

#include "evidence/site.h"

/* Where a fault is planted. */
enum {
    FB_INJECT_INPUT = 1, /* a float input tensor */
    FB_INJECT_TOKEN = 2,
    FB_INJECT_LABEL = 3,
    FB_INJECT_WEIGHT = 4, /* loss weights of a batch */
    FB_INJECT_ACTIVATION = 5,
    FB_INJECT_LOSS = 6,
    FB_INJECT_GRAD = 7,    /* local, before the collective */
    FB_INJECT_REDUCED = 8, /* after the collective, as if it had been corrupted inside */
    FB_INJECT_PARAM = 9,   /* owned state, at the begin of the step */
    FB_INJECT_MOMENT = 10,
    FB_INJECT_BUFFER = 11
};

/* What is planted. */
enum {
    FB_PLANT_NAN = 1,
    FB_PLANT_INF = 2,
    FB_PLANT_NEG_INF = 3,
    FB_PLANT_BITFLIP = 4, /* one bit of the element; default the highest exponent bit */
    FB_PLANT_HUGE = 5,    /* the largest finite value of the format: alone finite, its sum over ranks is not */
    FB_PLANT_SCALE = 6,   /* every element of the tensor times `factor`, in its own format */
    FB_PLANT_ZERO = 7,    /* integers: 0 everywhere; labels: the ignore index everywhere */
    FB_PLANT_BAD = 8      /* integers: one id beyond the range */
};

enum { FB_INJECT_MAX = 16, FB_INJECT_TEXT = 192, FB_INJECT_SITE_TEXT = 96 };

typedef struct fb_injection {
    int32_t where, what;
    int64_t step_first, step_last;
    int32_t rank;   /* -1: every rank */
    int32_t micro;  /* -1: every micro-step */
    int32_t bit;    /* -1: highest exponent bit */
    uint64_t index; /* flat, FB_NO_INDEX: the middle */
    uint64_t count; /* elements from index on */
    double factor;
    char site[FB_INJECT_SITE_TEXT]; /* "module.tensor" or its beginning; "": the first that comes */
    char text[FB_INJECT_TEXT];      /* the part of the specification it was read from */
} fb_injection;

typedef struct fb_inject {
    uint32_t count;
    fb_injection items[FB_INJECT_MAX];
    uint32_t
        fired[FB_INJECT_MAX]; /* tensors changed in the step that is running; a fault goes into one tensor of a boundary only */
} fb_inject;

/* Read a specification: items parted by ';' or a line end. NULL or "" gives none. Errors: FB_E_USAGE
 * naming the word; FB_E_LIMIT. */
fb_status fb_inject_parse(fb_inject *inject, const char *text, fb_error *err);

/* Forget which faults fired, at the begin of a step. */
void fb_inject_begin(fb_inject *inject);

/* The next item from *cursor on that is due here and names this site, or NULL. Start with *cursor = 0. */
const fb_injection *fb_inject_due(fb_inject *inject, uint32_t *cursor, int32_t where, int64_t step, int32_t micro, int32_t rank,
                                  const fb_site_entry *site);

/* Mark the item as fired (by its address inside inject). */
void fb_inject_fired(fb_inject *inject, const fb_injection *item);

/* Where an element lies: flat index in the view's own order, element size in bytes. */
uint8_t *fb_view_element(const fb_view *view, uint64_t flat, size_t bytes);

/* Change a float tensor. Returns the number of elements changed, 0 when the format cannot hold the fault. */
uint64_t fb_inject_plant(const fb_injection *item, const fb_view *view);

/* Change an integer array of a batch. bad: an id outside the range; ignored: what FB_PLANT_ZERO
 * writes. Returns elements changed. */
uint64_t fb_inject_plant_integers(const fb_injection *item, void *data, int32_t dtype, uint64_t count, int64_t bad,
                                  int64_t ignored);

#endif
