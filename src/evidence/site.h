/*
 * Sites: the table of named tensor places of one rank. Filled between steps, read by every check. Memory grows only in
 * fb_sites_add, which the guard calls outside steps.
 */
#ifndef FB_EVIDENCE_SITE_H
#define FB_EVIDENCE_SITE_H

#include "firstbad/firstbad.h"

/* As fb_site, owning its strings. */
typedef struct fb_site_entry {
    char *module, *tensor, *group; /* never NULL; "" when unknown */
    int32_t role, bucket, domain;
    int64_t position;
    uint32_t legal;
    int32_t ndim;
    int64_t shape[FB_DIMS_MAX];
    uint64_t identity; /* hash of module, tensor and role: the same on every rank and in every attempt */
} fb_site_entry;

typedef struct fb_sites {
    fb_site_entry *entries;
    uint64_t count, room, max;
} fb_sites;

enum { FB_SITES_MAX_DEFAULT = 65536, FB_POSITION_MAX = (1 << 24) - 2, FB_SITE_TEXT_MAX = 1023 };

void fb_sites_init(fb_sites *sites, uint64_t max);
void fb_sites_release(fb_sites *sites);
/* Copy a site into the table. Errors: FB_E_USAGE, FB_E_LIMIT, FB_E_NOMEM; on error nothing changed. */
fb_status fb_sites_add(fb_sites *sites, const fb_site *site, uint32_t *id, fb_error *err);
/* NULL when the id was not given out. */
const fb_site_entry *fb_sites_get(const fb_sites *sites, uint32_t id);

/* Indices of a flat index in a shape (row-major). Returns the number of indices written, 0 when the
 * shape is unknown or too small. */
int32_t fb_site_unravel(const int64_t *shape, int32_t ndim, uint64_t flat, int64_t index[FB_DIMS_MAX]);

const char *fb_role_name(int32_t role);         /* "parameter", ...; "?" */
const char *fb_boundary_name(int32_t boundary); /* "local_gradient", ...; "?" */
const char *fb_kind_name(int32_t kind);         /* "nan", "+inf", "-inf", "out_of_range", "all_ignored", "domain"; "none" */
const char *fb_action_name(int32_t action);     /* "proceed", "skip", ... */
const char *fb_agreement_name(int32_t agreement);
const char *fb_field_name(int32_t field); /* "tensor", "tokens", ... */

#endif
