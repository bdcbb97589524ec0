/*
 * Keys that mean something wherever they stand: counters and scales that are compared across files, and what a number under them
 * says about an infinity.
 */
#ifndef FB_CKPT_TORCH_FACTS_H
#define FB_CKPT_TORCH_FACTS_H

#include "ckpt/torch_inside.h"

enum { FB_TORCH_FACTS = 5 };

/* What was told so far: each fact once, the one that stands nearest to the root. */
typedef struct fb_torch_facts {
    struct {
        int known;
        uint32_t depth, rank;
        double value;
    } of[FB_TORCH_FACTS];
} fb_torch_facts;

/* What one look over the keys of a dict tells. */
typedef struct fb_torch_keys {
    fb_node state, groups, params, growth_factor, scale;
} fb_torch_keys;

/* Look over a DICT once: take its facts, fill *keys. depth: of the dict, the root is 0. */
void fb_torch_look_at_keys(const fb_pickle *pickle, fb_node dict, uint32_t depth, fb_torch_facts *facts, fb_torch_keys *keys);
fb_status fb_torch_tell_facts(fb_torch_object *object, const fb_torch_facts *facts, fb_error *err);
/* 1: no healthy program has an infinity below this key (a learning rate, a scale, the groups of an optimizer). */
int fb_torch_key_is_strict(const fb_pickle *pickle, fb_node key);
/* The same of a path of keys, joined by '.': 1 when one of them is such a key. */
int fb_torch_path_is_strict(const char *path);

#endif
