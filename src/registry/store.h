/*
 * A registry that is open for writing: the lock is held, and what it says is in memory. Read, decide, append, close.
 */
#ifndef FB_REGISTRY_STORE_H
#define FB_REGISTRY_STORE_H

#include "log/shared.h"
#include "registry/registry.h"
#include "registry/table.h"

typedef struct fb_registry_store {
    fb_log_shared *log;
    fb_registry_table table;
    uint8_t *buffer;
    fb_registry_fn fn; /* told of each record while the registry is read; may be NULL */
    void *ctx;
} fb_registry_store;

/* On failure nothing is held. Errors: those of fb_log_shared_open. */
fb_status fb_registry_store_open(fb_registry_store *store, const fb_os *os, const char *run_folder, fb_registry_fn fn, void *ctx,
                                 fb_error *err);
/* sequence: out, may be NULL: number of the record. */
fb_status fb_registry_store_append(fb_registry_store *store, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err);
/* fb_registry_record, with the number of the record. */
fb_status fb_registry_put(const fb_os *os, const char *run_folder, const fb_rec_ckpt *rec, uint64_t *sequence, fb_error *err);
void fb_registry_store_close(fb_registry_store *store);

#endif
