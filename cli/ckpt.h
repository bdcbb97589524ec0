/*
 * firstbad ckpt: what the files of the command share.
 *   cmd_ckpt.c    options, and which action was asked for
 *   ckpt_find.c   from a path that somebody typed to the registries that know it
 *   ckpt_list.c   list and log, as text and as JSON
 *   ckpt_act.c    latest, verify, quarantine, release
 */
#ifndef CLI_CKPT_H
#define CLI_CKPT_H

#include "cli.h"
#include "registry/registry.h"

typedef struct ckpt_request {
    const fb_os *os;
    const char *runs_dir; /* folder of runs; may not exist */
    const char *why;      /* --why */
    int json, verify, restore;
    const char **paths; /* words after the action */
    int path_count;
} ckpt_request;

/* One record of a registry, with texts of its own. */
typedef struct ckpt_row {
    fb_rec_ckpt rec; /* its texts point into `text` */
    uint64_t sequence, time_ns;
    const char *home; /* of the set */
    char *text;
    int past; /* of a listing: stands for nothing any more */
} ckpt_row;

/* Rows of all registries that know checkpoints below a path. Zero it first; release it always. */
typedef struct ckpt_set {
    char dir[FB_OS_PATH_MAX]; /* absolute: what was asked for */
    char **homes;
    uint64_t home_count;
    ckpt_row *rows;
    uint64_t count, room;
    int trail; /* 1: every record; 0: the newest of each path */
} ckpt_set;

/**
 * Gather what is known of checkpoints at or below `path`; NULL: of the newest run. The path itself may be gone: a checkpoint that
 * was rotated away or moved aside is still known by its name.
 * Returns 0, or an exit code after a message.
 */
int ckpt_gather(const ckpt_request *request, const char *path, int trail, ckpt_set *set);
void ckpt_set_release(ckpt_set *set);
/* The youngest row of exactly this checkpoint, by its own path, the name that it had, or where it was moved to. NULL: none. */
const ckpt_row *ckpt_row_of(const ckpt_set *set, const char *absolute);
/* Absolute form of a path that may be gone: that of its folder, and its name. 0 after a message. */
int ckpt_absolute(const fb_os *os, const char *path, char out[FB_OS_PATH_MAX]);
/* A path as somebody who stands in this folder would type it, when it lies below; else as it is. */
const char *ckpt_short(const fb_os *os, const char *path, char out[FB_OS_PATH_MAX]);

int ckpt_list(const ckpt_request *request);
int ckpt_log(const ckpt_request *request);
int ckpt_latest(const ckpt_request *request);
int ckpt_verify(const ckpt_request *request);
int ckpt_quarantine(const ckpt_request *request);
int ckpt_release(const ckpt_request *request);

#endif
