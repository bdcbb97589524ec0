/*
 * Shared by the files of this folder.
 *   notes.c      sentences, names, the table of bad steps
 *   files.c      run.json, exit.json and case files
 *   ledger.c     one rank's ledger, record by record
 *   load.c       which files there are, which are read, in which order
 *   renamed.c    a case folder that has another name than its case
 *   judge_case.c, judge_run.c, judge_spread.c, judge_replicas.c, judge_apart.c   the five answers, from what was read
 *   located.c    what replays told of the case
 *   say.c, happened.c           words that the renderers share (say.h)
 */
#ifndef FB_REPORT_INSIDE_H
#define FB_REPORT_INSIDE_H

#include "log/log.h"
#include "report/report.h"

__attribute__((format(printf, 2, 3))) void fb_notes_add(fb_notes *notes, const char *format, ...);
/* A sentence into a field of FB_REPORT_TEXT_MAX bytes; cut when too long. */
__attribute__((format(printf, 2, 3))) void fb_sentence(char out[FB_REPORT_TEXT_MAX], const char *format, ...);
/* Copy text that is not NUL-terminated; cut when too long. */
void fb_text_copy(char *out, size_t room, fb_text text);
/* "module tensor" of a finding, or what of it is known. */
void fb_finding_name(const fb_rec_finding *finding, char *out, size_t room);
/* A boundary for people: "state on entry". */
const char *fb_boundary_text(int32_t boundary);
/* Digits with commas, "1,184". */
const char *fb_thousands(uint64_t value, char out[32]);
/* Room for one more element of an array that grows by doubling. */
fb_status fb_grow(void **array, uint64_t count, uint64_t *room, size_t element, fb_error *err);

/* The table of bad steps, sorted by step. NULL when it is full or memory is gone. */
fb_report_bad_step *fb_bad_step(fb_report *report, int64_t step);
int fb_bad_step_counts(const fb_report_bad_step *entry);

/* The number in a file's name "<before><digits><after>", with as many digits as the writer prints; -1 for another name. */
int64_t fb_numbered_name(const char *name, const char *before, const char *after, int width);
/* Step of a case id "a1-000412" of this attempt, or -1. attempt: in and out may be 0 to accept any. */
int fb_case_id_parse(const char *text, size_t bytes, int32_t *attempt, int64_t *step);

/* files.c. A file that is missing or unreadable is a note, not an error; only FB_E_NOMEM comes back. */
fb_status fb_files_run(const fb_os *os, fb_report *report, fb_error *err);
fb_status fb_files_exit(const fb_os *os, fb_report *report, fb_error *err);
fb_status fb_files_case(const fb_os *os, fb_report *report, fb_error *err);

/* renamed.c: run and case that the first_bad.json of a folder is of. Errors: FB_E_NOTFOUND, FB_E_CORRUPT, FB_E_LIMIT, FB_E_IO,
   FB_E_NOMEM; `out` is then empty. */
typedef struct fb_case_names {
    char run_id[128], case_id[64];
} fb_case_names;
fb_status fb_case_names_read(const fb_os *os, const char *folder, fb_case_names *out, fb_error *err);
/* Look for the folder of report->case_id under another name, and set report->case_folder; "" stays when there is none. Only
   FB_E_NOMEM and FB_E_LIMIT come back. */
fb_status fb_case_folder_renamed(const fb_os *os, fb_report *report, fb_error *err);

/* Keep a finding of the bad step, unless an equal one is there. */
fb_status fb_report_keep(fb_report *report, const fb_rec_finding *finding, int32_t source, fb_error *err);

/* ledger.c: call back for each record. Frozen records come first. */
enum { FB_VISIT_FROZEN = 1, FB_VISIT_APPENDED = 2 };
typedef void (*fb_ledger_fn)(void *ctx, const fb_log_record *record, int frozen);
fb_status fb_ledger_visit(const fb_os *os, const char *path, int what, fb_ledger_fn fn, void *ctx, fb_report_rank *rank,
                          fb_error *err);

/* Records that a survey of all ledgers, and a closer look at one bad step, want to see. */
typedef struct fb_ledger_reading {
    fb_report *report;
    fb_report_rank *rank;
    int detail;       /* 0: survey; 1: the chosen step; 2: what the rank that was first was training on */
    fb_status status; /* memory gone in the middle */
    fb_error err;
} fb_ledger_reading;
void fb_ledger_record(void *ctx, const fb_log_record *record, int frozen);

/* Earliest step that can have made this bad: its own, but for a state that nobody had read whole just
 * before; -1: any step before. */
int64_t fb_judge_since(const fb_report *report, const fb_rec_finding *finding);

/* judge_spread.c: did the state take the update that a finding at FB_UPDATE of the bad step is in?
 * FB_ANSWER_NO: it was held back beside it. */
int32_t fb_judge_taken(const fb_report *report, const fb_rec_finding *finding);
/* 1: found after the reduction, and no gradient: made from the reduced gradients on each rank, such as their norm. */
int fb_judge_made_of_reduced(const fb_rec_finding *finding);
/* Where the finding is, for people: its boundary, said as exactly as the records allow. */
const char *fb_judge_boundary_text(const fb_report *report, const fb_rec_finding *finding);

/* located.c: fills report->located, after fb_judge_case. Only FB_E_NOMEM and FB_E_LIMIT come back. */
fb_status fb_located_load(const fb_os *os, fb_report *report, fb_error *err);
void fb_located_free(fb_located *located);

void fb_judge_no_vote(fb_report *report);
/* judge_spread.c: collective, parameters, optimizer_state, each with its reason; after the decision was counted. */
void fb_judge_spread(fb_report *report);
/* judge_replicas.c: which ranks differ, into report->drift. */
void fb_judge_replicas(fb_report *report);
/* judge_apart.c: ranks that voted on different steps, loss scales or policies, into report->drift. */
void fb_judge_apart(fb_report *report);
fb_status fb_judge_case(fb_report *report, fb_error *err);
void fb_judge_recovery(const fb_os *os, fb_report *report);
void fb_judge_status(fb_report *report);

#endif
