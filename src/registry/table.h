/*
 * The newest record of each path, gathered while a registry is read. Texts are copied; memory grows with what the file really
 * holds.
 */
#ifndef FB_REGISTRY_TABLE_H
#define FB_REGISTRY_TABLE_H

#include "evidence/records.h"

typedef struct fb_registry_row {
    fb_rec_ckpt rec; /* its texts point into `texts`, each with a NUL byte behind it */
    uint64_t sequence, time_ns;
    uint64_t key; /* hash of the path */
    char *texts;
    const char *path; /* as rec.path */
} fb_registry_row;

typedef struct fb_registry_table {
    fb_registry_row *rows; /* in the order in which paths first appeared */
    uint64_t count, room;
    uint64_t *buckets; /* row + 1; 0: empty. A power of two of them, at least twice the rows */
    uint64_t bucket_count;
} fb_registry_table;

/* A text of a row as a C string: texts of rows have a NUL byte behind them. */
static inline const char *fb_registry_text(fb_text text)
{
    return text.bytes ? text.data : "";
}

void fb_registry_table_release(fb_registry_table *table);
/* Take a record in. FB_E_NOMEM leaves the table as it was. */
fb_status fb_registry_table_put(fb_registry_table *table, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns,
                                fb_error *err);
/* NULL when the path has no record. */
const fb_registry_row *fb_registry_table_find(const fb_registry_table *table, const char *path, uint32_t path_bytes);

/* The row that was moved aside to this path, or NULL. */
const fb_registry_row *fb_registry_table_aside(const fb_registry_table *table, const char *path);
/* The row whose pin is at this path, or NULL: nobody knows a pin by the name that `latest` prints for it. */
const fb_registry_row *fb_registry_table_pinned(const fb_registry_table *table, const char *path);

#endif
