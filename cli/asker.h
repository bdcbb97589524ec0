/*
 * Answers the questions of a search by running a command: `firstbad bisect -- COMMAND`. One question, one run.
 *
 *   FIRSTBAD_BOUNDARY   the place that is asked about; with groups several, one a line
 *   FIRSTBAD_ASK        any_bad: is one of them not finite?   all_bad: are all of them not finite?
 *   exit code           0 no; 1 to 127 yes, but: 125 cannot be told; 2 of a place flagged !mask: -Inf and finite values, nothing
 *                       else; 126, 127 and what lies above stop the search
 *
 * As `git bisect run` has it, but for 126 and 127: those are the shell's "cannot be executed" and "not found", and a script with a
 * typo must not be taken for one that found a bad number. The command's output is kept aside, and shown when it stops the search.
 */
#ifndef CLI_ASKER_H
#define CLI_ASKER_H

#include <stdio.h>

#include "places.h"
#include "search/bisect.h"

typedef struct asker_options {
    char *const *command;
    const char *log;    /* file to write questions and answers to; it must not exist. NULL: none */
    const char *resume; /* a log whose answers are taken, and which is gone on with. NULL: none */
    int show;           /* 1: each question and its answer on standard error */
} asker_options;

typedef struct asker {
    const asker_options *options;
    const places *places;
    uint32_t asked, runs, taken; /* questions; runs of the command; answers taken from the log */
    int output;                  /* a file without a name, for what the command prints */
    FILE *log;
    char command_line[48]; /* the line of a log that tells one command from another */
    char *old, *old_at;    /* what is left of the log that is resumed */
    unsigned long long old_line;
    char *names; /* [names_room] of one question */
    size_t names_room;
    uint32_t *left; /* [places] those of a question that nothing is known of */
} asker;

/* Errors: FB_E_USAGE, FB_E_EXISTS (the log), FB_E_IO, FB_E_NOMEM. Close in any case. */
fb_status asker_open(asker *a, const asker_options *options, const places *p, fb_error *err);
/* A fb_search_replay; ctx is the asker. FB_E_ORDER: the command, or a signal, stopped the search. */
fb_status asker_answer(void *ctx, const fb_question *question, int32_t *seen, fb_error *err);
void asker_close(asker *a);

/* Words for files and people: "halve", ...; "bad", "finite", "-inf", "untestable". */
const char *asker_phase_name(int32_t phase);
const char *asker_seen_name(int32_t seen);

#endif
