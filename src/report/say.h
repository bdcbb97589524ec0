/*
 * Words that several renderers use: of places, kinds, numbers and samples. And the paragraph that tells what happened.
 */
#ifndef FB_REPORT_SAY_H
#define FB_REPORT_SAY_H

#include "report/lines.h"
#include "report/report.h"

/* "" for 1, else "s". */
const char *fb_plural(uint64_t n);
/* "NaN", "+Inf", "all labels ignored"; "?" for another. */
const char *fb_kind_text(int32_t kind);
/* The kind as something that a tensor can hold: "NaN", "a value out of range". */
const char *fb_kind_noun(int32_t kind);
/* "[1, 4, 0]", with spaces at which no line ends. */
void fb_why_index(fb_phrase *phrase, const int64_t *index, int32_t ndim);
/* "2006, 2007 and 3 more": the first 8 of `kept`, out of `count`. */
void fb_why_samples(fb_phrase *phrase, const int64_t *ids, uint64_t kept, uint64_t count);

/* An operator, or what was there before the step, by its names; "" unknown. Points into a told file. */
typedef struct fb_place {
    const char *op, *module, *tensor, *source;
    int32_t boundary, micro_step; /* micro_step -1: unknown */
    int32_t entry;                /* 1: no operator */
    const char *node;             /* autograd node that ran it; "" none */
} fb_place;
fb_place fb_place_of(const fb_locate_link *link);
fb_place fb_place_of_origin(const fb_told *told);
/* In which part of the step it is: "forward", "backward", "collective", "update"; "input" and "entry"
 * of what was there before; "". */
const char *fb_direction_name(const fb_place *place);
/* "h.7.attn softmax", or what of it is known. */
void fb_why_place(fb_phrase *phrase, const fb_place *place);

/* What replays found out about the place, in a sentence for the first answer; nothing when nobody located. */
void fb_why_location(const fb_report *report, fb_phrase *phrase);
/* How often it came back, and under which conditions; nothing when nobody replayed. */
void fb_why_replayed(const fb_report *report, fb_phrase *phrase);
/* What a replay told that was not faithful, beside one that was; nothing when there is none. */
void fb_why_replayed_apart(const fb_report *report, fb_phrase *phrase);
/* Operators that may have failed by themselves too, and are not first; nothing when there are none. */
void fb_why_later(const fb_report *report, fb_phrase *phrase);
/* " (replays/003)", and whether that was not faithful, where it is not the replay that the fourth answer is about. */
void fb_why_place_teller(const fb_report *report, fb_phrase *phrase);
/* "2 samples together (20417, 20418), 512 tokens"; nothing when no batch was made small. */
void fb_why_smallest(const fb_report *report, fb_phrase *phrase);
/* What is kept for a replay; nothing when there is no bundle. */
void fb_why_bundle(const fb_report *report, fb_phrase *phrase);

/* Did any rank go on after the last bad update of the case? */
int fb_went_on(const fb_report *report);
/* The explanation of a cause without the place that it begins with, "softmax (forward) in h.0.attn: ", where that was just told. */
const char *fb_explanation_alone(const fb_report *report, const char *explanation);

/* The cause as it is to be told; text is never NULL. certain 0: it fits best and is not proven. */
typedef struct fb_cause_words {
    const char *name, *explanation, *witness, *fix, *verify;
    int32_t certain;
} fb_cause_words;
fb_cause_words fb_cause_words_of(const fb_report *report);
/* Samples to leave out, in which the cause lies or may lie: `kept` ids of `count`; kept 0: none, and samples_why says why. */
void fb_skip_samples(const fb_report *report, const int64_t **ids, uint64_t *kept, uint64_t *count);
/* The commands, "" where they would not work: of a replay, and of going on without the samples. room: 128 and more. */
void fb_replay_command(const fb_report *report, char *out, size_t room);
void fb_leave_out_command(const fb_report *report, char *out, size_t room);

/* One paragraph that takes at most six lines of 100 columns. */
enum { FB_HAPPENED_BYTES_MAX = 530 };
void fb_why_happened(const fb_report *report, fb_phrase *phrase);

#endif
