/*
 * The classes of causes as data: a name for programs, what it means, what to do, and where the fault lies. docs/format/causes.md is
 * this table for people; the numbers are for reductions over ranks within one run, and are never written to a file.
 */
#ifndef FB_LOCATE_CAUSES_H
#define FB_LOCATE_CAUSES_H

#include <stdint.h>

enum {
    FB_CAUSE_UNKNOWN = 0,
    FB_CAUSE_MASK_FULL_ROW,
    FB_CAUSE_DOMAIN_MATH,
    FB_CAUSE_EPSILON_UNDERFLOW,
    FB_CAUSE_FP16_FORWARD_OVERFLOW,
    FB_CAUSE_FP16_BACKWARD_OVERFLOW,
    FB_CAUSE_OVERFLOW,
    FB_CAUSE_LABEL_ALL_IGNORED,
    FB_CAUSE_ZERO_DENOMINATOR,
    FB_CAUSE_TOKEN_OUT_OF_RANGE,
    FB_CAUSE_POSITION_OUT_OF_RANGE,
    FB_CAUSE_INPUT_NONFINITE,
    FB_CAUSE_OPTIMIZER_STATE,
    FB_CAUSE_STATE_BAD,
    FB_CAUSE_UNINITIALISED_MEMORY,
    FB_CAUSE_CHECKPOINT_CORRUPT,
    FB_CAUSE_RESUME_MISMATCH,
    FB_CAUSE_SCALE_RUNAWAY,
    FB_CAUSE_SCALER_ORDER,
    FB_CAUSE_LR_INSTABILITY,
    FB_CAUSE_FP8_SCALING,
    FB_CAUSE_COLLECTIVE_RACE,
    FB_CAUSE_HARDWARE_FAULT,
    FB_CAUSE_KERNEL_BUG,
    FB_CAUSE_INIT_SCALE,
    FB_CAUSE_TRANSIENT,
    FB_CAUSES
};

typedef struct fb_cause_class {
    const char *name;     /* "mask_full_row": the `class` of locate.json; never renamed */
    const char *lies_in;  /* "data", "numbers", "state", "program", "machine", "unknown" */
    const char *sentence; /* what it means, in one */
    const char *fix;      /* what to do, in one */
} fb_cause_class;

/* Never NULL: a number that is none gives FB_CAUSE_UNKNOWN. */
const fb_cause_class *fb_cause_class_of(int32_t number);
/* FB_CAUSE_UNKNOWN for a name that is none. */
int32_t fb_cause_class_named(const char *name);

/* "range", "rounding", "rounding_upstream", "domain", "state", "batch", "not_reproducible"; "none" for anything else. */
const char *fb_rule_name(int32_t rule);
/* "nothing", "operator", "set", "interval", "entry", "not_reproduced", "not_steady", "undecided". */
const char *fb_located_name(int32_t found);

#endif
