/* Is what a record committed still there, and where? Shared by those who ask for the latest, and by the gate of loading. */
#ifndef FB_REGISTRY_USABLE_H
#define FB_REGISTRY_USABLE_H

#include "registry/keep.h"

/*
 * FB_OK: the bytes at `path` are those of the record. FB_REGISTRY_LOOK reads them only when inode, time or size speak against it,
 * or are not known; FB_REGISTRY_VERIFY reads them always. Otherwise `why` says what is wrong.
 */
fb_status fb_usable_at(const fb_os *os, const fb_rec_ckpt *rec, const char *path, int how, fb_error *why);

/* The place that has a committed record's bytes: its own, or its pin, whose bytes are always read. where: FB_OS_PATH_MAX bytes. */
fb_status fb_usable(const fb_os *os, const fb_rec_ckpt *rec, int how, char *where, fb_error *why);

/*
 * The row of a table that quarantined the very bytes of `rec` after record number `sequence`, or NULL: a pin, or a copy that has a
 * row of its own, is no way around somebody's word against what it holds.
 */
const fb_registry_row *fb_bytes_quarantined(const fb_registry_table *table, const fb_rec_ckpt *rec, uint64_t sequence);

/*
 * Have all ranks spoken of this step? Where several ranks saved the step before, of the same attempt, each of them saves this one
 * too, and until it did nobody knows whether the step is whole. 1: all of them have, or one rank saves for all.
 */
int fb_step_is_told(const fb_registry_table *table, const fb_rec_ckpt *rec);

#endif
