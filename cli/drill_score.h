/*
 * One run of `firstbad drill --all` against the truth: what the ledgers of all ranks say about detection and about the state, and
 * what locate.json says about place and cause. The ledgers are read by drill_ledger.c and not by the report, so that the tool's own
 * words are not their own witness.
 */
#ifndef CLI_DRILL_SCORE_H
#define CLI_DRILL_SCORE_H

#include "drill_faults.h"
#include "drill_ledger.h"
#include "locate/locate_json.h"

/* What is asked of a fault. */
enum {
    DRILL_DETECTED = 0, /* judged a fault by every rank in the step of the truth and in none before, seen at its boundary */
    DRILL_STOPPED,      /* no rank applied that step; its state is the same before and after, and over the ranks */
    DRILL_RANK,         /* the vote, and the location, name its rank */
    DRILL_BOUNDARY,     /* of the origin */
    DRILL_MODULE,
    DRILL_ANSWER,   /* the operator; or the entry that was bad; or nobody, where nobody is to blame */
    DRILL_CAUSE,    /* the class */
    DRILL_RULE,     /* that told it */
    DRILL_SMALLEST, /* the smallest batch is as small as can be */
    DRILL_AGAIN,    /* `firstbad replay --batch minimal` shows it in a fresh process */
    DRILL_AFTER,    /* training went on with clean updates; or was halted, where ranks have parted */
    DRILL_LEVELS
};

enum {
    DRILL_NOT_ASKED = -1,
    DRILL_WRONG = 0,
    DRILL_RIGHT = 1,
    DRILL_WITHIN = 2 /* not named, and the truth is among what is left: an interval, or a set */
};

/* One run of one fault: where it was put. */
typedef struct drill_truth {
    const drill_fault *fault;
    int64_t begins, step; /* its first step; the one in which it is judged a fault */
    int32_t rank;         /* -1: every rank */
    int32_t layer, ranks;
} drill_truth;

enum { DRILL_NOTES = 12, DRILL_NOTE = 256 };

typedef struct drill_score {
    int levels[DRILL_LEVELS];
    int wrong_claims; /* a name, a rank or a certain cause that is not the truth */
    int false_alarms; /* of a healthy run, or where a fault was over */
    /* as found, for the table */
    int64_t step; /* -1: none */
    int32_t rank;
    char place[288], cause[64];
    uint32_t samples, replays; /* 0: unknown */
    double seconds;
    int note_count; /* those beyond DRILL_NOTES are counted */
    char notes[DRILL_NOTES][DRILL_NOTE];
} drill_score;

void drill_score_begin(drill_score *score);
__attribute__((format(printf, 2, 3))) void drill_note(drill_score *score, const char *format, ...);

/* file: locate.json of the case; NULL: there is none. exit_code of `firstbad run`. */
void drill_score_fault(drill_score *score, const drill_truth *truth, const drill_world *world, const fb_locate_file *file,
                       int exit_code);
/* cases: folders below cases/. at: the step in which the harmless data came, so that a skip that must come is waited for. */
void drill_score_healthy(drill_score *score, const drill_healthy *healthy, const drill_world *world, int64_t steps, int cases,
                         int exit_code);
/* `firstbad replay --batch minimal` ended with this code. */
void drill_score_again(drill_score *score, int exit_code);

/* 1: everything that was asked is right, and nothing was claimed that is not. */
int drill_score_passed(const drill_score *score);
/* 1: answer and cause are right, exactly. */
int drill_score_exact(const drill_score *score);
/* "detected", ... */
const char *drill_level_name(int level);

#endif
