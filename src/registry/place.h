/*
 * Where a checkpoint lies, and where its pins and what was moved aside lie beside it:
 *   DIR/NAME                                     the checkpoint
 *   DIR/.firstbad/pins/<home>-<slot>/NAME        its pin; <home>: hash of the home that made it, so that runs which save into one
 *                                                folder do not touch each other's
 *   DIR/.firstbad/quarantine/NAME, NAME.2, ...   moved aside
 *   DIR/.firstbad/homes                          who knows of checkpoints here
 */
#ifndef FB_REGISTRY_PLACE_H
#define FB_REGISTRY_PLACE_H

#include "evidence/records.h"
#include "os/os.h"

#define FB_PLACE_FOLDER ".firstbad"

typedef struct fb_place {
    char path[FB_OS_PATH_MAX]; /* absolute, without symbolic links */
    char dir[FB_OS_PATH_MAX];  /* the folder that holds it */
    char name[256];
} fb_place;

/**
 * The place that a path means now.
 * what   for messages: "commit checkpoint".
 * free   1: nothing needs to lie there, its folder suffices.
 * Errors: FB_E_NOTFOUND, FB_E_LIMIT, FB_E_USAGE (a path that ends in "." or "..", or is a root), FB_E_IO.
 */
fb_status fb_place_find(fb_place *place, const fb_os *os, const char *path, int free, const char *what, fb_error *err);
/* The parts of an absolute path that stands in a record. FB_E_CORRUPT when it is none. */
fb_status fb_place_split(fb_place *place, fb_text path, fb_error *err);
/* DIR/.firstbad/<sub>, or DIR/.firstbad for "". */
fb_status fb_place_below(char *out, size_t room, const char *dir, const char *sub, fb_error *err);

/* The folder around, when `dir` is one for pins or for what was moved aside; else itself. In place. */
void fb_place_outer(char *dir);
/*
 * Make a folder that is ours, and those above it. What is put there must stay there, so that from .firstbad on none may be a
 * symbolic link: whoever can write beside the checkpoints could otherwise have us write, move and remove elsewhere.
 * fb_place_is_ours asks only, of what need not exist. Errors: FB_E_IO and those of fb_os_mkdirs.
 */
fb_status fb_place_make(const fb_os *os, const char *folder, fb_error *err);
fb_status fb_place_is_ours(const fb_os *os, const char *folder, fb_error *err);

/* 1 when a path of a record lies directly in dir. */
int fb_place_in(fb_text path, const char *dir);
/* 1 when a number in the name is this step: "step-000400", "model_00400.bin". */
int fb_place_has_step(const char *name, int64_t step);
/* 1 when what lies there is what was read for this record, as far as inode, time and size tell; 0 also when the record does not
 * know.
   Of a file that was copied or moved between file systems nothing tells, and its bytes must be read. */
int fb_place_is_same(const fb_rec_ckpt *rec, const fb_os_info *info);
/* 1 when something lies there; a symbolic link counts. Errors count as something, so that nothing is put there. */
int fb_place_taken(const fb_os *os, const char *path);

#endif
