/*
 * A registry that is open for writing: the lock is held, and what it says is in memory. Read, decide, append, close.
 */
#ifndef FB_REGISTRY_STORE_H
#define FB_REGISTRY_STORE_H

#include "log/shared.h"
#include "registry/registry.h"
#include "registry/table.h"

typedef struct fb_registry_store {
    const fb_os *os;
    fb_log_shared *log;
    fb_registry_table table;
    uint8_t *buffer;
    fb_registry_fn fn; /* told of each record while the registry is read; may be NULL */
    void *ctx;
    char home[FB_OS_PATH_MAX]; /* absolute */
} fb_registry_store;

/* On failure nothing is held. Errors: those of fb_log_shared_open. */
fb_status fb_registry_store_open(fb_registry_store *store, const fb_os *os, const char *home, fb_registry_fn fn, void *ctx,
                                 fb_error *err);
/*
 * Into the file and into the table. sequence: out, may be NULL: number of the record.
 * Rows move and texts of the row that is replaced die with it: `rec` may point into them, and no longer after the call.
 */
fb_status fb_registry_store_append(fb_registry_store *store, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err);
/* fb_registry_record, with the number of the record. */
fb_status fb_registry_put(const fb_os *os, const char *home, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err);
/* Accepts one that is not open. */
void fb_registry_store_close(fb_registry_store *store);

/* The newest record of each path, without the lock. `table` is zeroed by the caller, and released by it in any case. */
fb_status fb_registry_load(const fb_os *os, const char *home, fb_registry_table *table, fb_error *err);
/* 1 when a home has a registry at all. */
int fb_registry_exists(const fb_os *os, const char *home);

/* A text of records from a C string. */
fb_text fb_registry_words(const char *text);

#endif
