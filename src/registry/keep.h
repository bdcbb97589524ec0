/*
 * What is done to files so that a trainer cannot harm a committed checkpoint and cannot resume from a quarantined one. Every move
 * is recorded before it is made, and made by whoever comes next if a crash comes between.
 *
 * Two locks: the registry's, held for moments, under which is decided and renamed; and one for the pins of one home in one folder
 * (DIR/.firstbad/pins/<home>.lock), under which pins are made and removed, which may take as long as a copy takes. The second is
 * never waited for with the first in hand.
 */
#ifndef FB_REGISTRY_KEEP_H
#define FB_REGISTRY_KEEP_H

#include "registry/place.h"
#include "registry/store.h"

/* ---- pins (pin.c) ---- */

/* A newer one by attempt and step: > 0, equal: 0. */
int fb_newer(const fb_rec_ckpt *a, const fb_rec_ckpt *b);
/* 1 when a record belongs to this folder, by its name or by the name that it had. */
int fb_belongs(const fb_rec_ckpt *rec, const char *dir);
/* Where the second copy of a record's bytes is: its pin, or itself when it stands for one. "" if there is none. */
fb_text fb_pin_of(const fb_rec_ckpt *rec);
/* 1 when the pin is there and nothing cheap speaks against it. Its digest is compared when it is used. */
int fb_pin_is_there(const fb_os *os, const fb_rec_ckpt *rec);

/* A free place for a pin: DIR/.firstbad/pins/<home>-<slot>/NAME. The registry's lock is held. */
fb_status fb_pin_slot(const fb_registry_store *store, const fb_place *place, char *path, size_t room, fb_error *err);
/*
 * How a checkpoint that is about to be recorded as committed will be kept: fills rec->pin and rec->pin_path, which points into
 * `path`.
 * links  1: the trainer never writes into a file that it wrote earlier.
 */
void fb_pin_plan(const fb_registry_store *store, const fb_place *place, int links, fb_rec_ckpt *rec, char path[FB_OS_PATH_MAX]);
/*
 * Before the row of a path is given to a newer save: its pin, or what was moved aside, gets a row of its own, so that it stays
 * known.
 */
fb_status fb_keep_row(fb_registry_store *store, const char *path, fb_error *err);

enum { FB_PINS_ALL = 0, FB_PINS_QUICK = 1, FB_PINS_AGAIN = 2 }; /* links alone; also those that were impossible */
/*
 * In one folder (or the one around it, if it is ours): make the pins of the newest committed checkpoint, then remove those of older
 * ones. The registry's lock is not
 * held.
 * done: out, may be NULL: pins made or removed are added.
 */
fb_status fb_pins_settle(const fb_os *os, const char *home, const char *folder, int how, uint64_t *done, fb_error *err);

/* ---- moved aside (aside.c) ---- */

/* The place whose folder and name count for it: that of what it stands for. */
fb_status fb_aside_place(fb_place *place, const fb_rec_ckpt *rec, fb_error *err);
/* A free name for it: DIR/.firstbad/quarantine/NAME, NAME.2, ... */
fb_status fb_aside_plan(const fb_os *os, const fb_place *place, char *path, size_t room, fb_error *err);
/* Make all moves that quarantined records intend and nobody made, and set the pointer files beside them. */
fb_status fb_aside_finish(fb_registry_store *store, uint64_t *done, fb_error *err);

/* ---- verdicts (judge.c) ---- */

/* What a scan says, as a reason: FB_CKPT_REASON_READ_BACK: all of it was read and is finite;
 * NOT_FINITE, UNREADABLE, UNSUPPORTED. */
int32_t fb_judge(fb_status scanned, const fb_ckpt_summary *summary);
/* Counts, digest and first bad tensor into a record, which points into the summary. The digest of
 * what could not be read whole is 0. */
void fb_judge_facts(fb_rec_ckpt *rec, const fb_ckpt_summary *summary, int32_t reason);
/* Make the bytes durable, names included, read them and judge. inode and time of `rec` become those of what is about to be read. */
fb_status fb_judge_scan(const fb_os *os, const char *path, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                        fb_ckpt_summary *summary, fb_rec_ckpt *rec, fb_error *err);
/*
 * State, pin and the place aside of a record that is about to be written. Texts go into `text`.
 * links  as for fb_pin_plan.
 */
typedef struct fb_verdict_text {
    char aside[FB_OS_PATH_MAX], pin[FB_OS_PATH_MAX], note[1024];
} fb_verdict_text;
void fb_judge_plan(const fb_registry_store *store, const fb_place *place, int links, const char *note, fb_rec_ckpt *rec,
                   fb_verdict_text *text);
/* 1 when the trainer will not write into this file again: its name has the step, and no other step was saved under it. */
int fb_judge_links(const fb_registry_table *table, const fb_place *place, int64_t step);

/* ---- pointer files (pointer.c) ---- */

/* `latest` and `latest_checkpointed_iteration.txt` in the folder of `place`: those that name it get the newest committed one.
   done: out, may be NULL. */
fb_status fb_pointers_set(const fb_registry_store *store, const fb_place *place, uint64_t *done, fb_error *err);
/* The same, only told: text gets "" or "; latest is set to step-000300" and the like. */
void fb_pointers_tell(const fb_registry_store *store, const fb_place *place, char *text, size_t room);

/* ---- homes (homes.c) ---- */

/* Name this home in DIR/.firstbad/homes, durably, if it is not there. */
fb_status fb_homes_add(const fb_os *os, const char *dir, const char *home, fb_error *err);

#endif
