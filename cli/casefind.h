/*
 * Which case a person means, and what lies in its folder. A name is what `why` takes (a run, a case id, a step, a path), the path
 * of a case folder that was copied somewhere else, or the path of a bundle.
 */
#ifndef CLI_CASEFIND_H
#define CLI_CASEFIND_H

#include "locate/locate_json.h"
#include "os/os.h"
#include "report/report.h"

typedef struct case_place {
    char folder[FB_OS_PATH_MAX]; /* of the case, absolute; "": the bundle stands alone */
    char bundle[FB_OS_PATH_MAX]; /* the one that was named, or the case's whole one; absolute */
    char id[64];                 /* "a1-000412"; of a bundle alone, the name of its folder */
    int is_minimal;              /* 1: a smallest batch itself was named: a bundle of the name bundle-min */
    fb_report *report;           /* of the run; NULL where the case stands alone */
} case_place;

/**
 * dir   NULL: FIRSTBAD_DIR, else firstbad-runs.
 * name  NULL: the newest run.
 * Errors: those of fb_report_find and fb_report_load_target; FB_E_NOTFOUND when the run has no case, or the case has no folder.
 */
fb_status case_find(case_place *place, const char *dir, const char *name, fb_error *err);
void case_release(case_place *place);

/* The smallest batch: what was named, else bundle-min of the case, else of its newest replay that
 * made one. FB_E_NOTFOUND: nobody made one. */
fb_status case_minimal_bundle(const case_place *place, char path[FB_OS_PATH_MAX], fb_error *err);

/* locate.json of the newest replay that has one, else of the case. FB_E_NOTFOUND: there is none. Release `out` after FB_OK. */
fb_status case_located(const case_place *place, fb_locate_file *out, fb_error *err);

/* A new folder for the results of a replay: replays/NNN in the case, NAME-replays/NNN beside a bundle that stands alone. */
fb_status case_new_replay(const case_place *place, char path[FB_OS_PATH_MAX], fb_error *err);

#endif
