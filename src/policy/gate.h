/*
 * The gate's policy: numbers in, verdict out. Pure, no memory taken; the caller holds the struct.
 *
 * Calling order on each rank:
 *   fb_gate_init                                    once
 *     fb_gate_begin                                 at each step, with the loss scale in use
 *       fb_gate_digest, fb_gate_wish                before each ballot: both go into it
 *       fb_gate_decide                              after each vote
 *     fb_gate_end                                   at the end of the step
 *   fb_gate_note_replay                             after a replay, with a result that all ranks share: between steps for the
 *                                                   anomaly that comes next, or inside the step of the anomaly and before
 *                                                   another vote of it, for that step alone
 *
 * Why every rank comes to the same decision: fb_gate_decide reads the reduced vote, the configuration and the history of earlier
 * decisions, and nothing else. History and configuration are in the digest, which the vote compares; the scale is voted on as well.
 * fb_gate_wish reads what only this rank knows, and its answer reaches the decision through the reduced word 3 alone.
 *
 * What is a fault. Without a dynamic loss scale: everything non-finite. With one, a non-finite gradient and nothing else (or a loss
 * that is finite before the scale multiplies it) is probing, as long as none of the rules below says otherwise; anything found at
 * another boundary is a fault, because the scale cannot have caused it. docs/design/policy.md has the reason and measured rate of
 * each constant.
 */
#ifndef FB_POLICY_GATE_H
#define FB_POLICY_GATE_H

#include "firstbad/firstbad.h"
#include "policy/vote.h"

/* ---- published constants ----------------------------------------------------------------------------------------------------- */

/* Overflows in a row, this one included, that are a fault once start-up is over. The hysteresis adds its extra overflows. */
enum { FB_GATE_CONSECUTIVE = 6 };
/* Window of the ratio rule, in updates, and the least number of overflows in it that is a fault. */
enum { FB_GATE_WINDOW = 128, FB_GATE_WINDOW_SKIPS = 12 };
/* Back-offs without a growth in between that make an overflow a fault: a scale that only falls. */
enum { FB_GATE_FALLS = 8 };
/* Overflows first seen at the same boundary, position and rank without a growth in between that are a fault. */
enum { FB_GATE_SAME_SITE = 6 };
/* Start-up ends with so many clean updates in a row, with the first growth, or after so many updates in all. */
enum { FB_GATE_START_CLEAN = 20, FB_GATE_START_STEPS = 200 };
/* In start-up the scale may fall to this value; the number of overflows that takes is the limit there. */
#define FB_GATE_START_SCALE 16.0
/* So many overflows in a row at the floor are a fault. Where the scaler has no floor of its own the rule takes this one: an
   overflow at a scale of 1 means that the gradient itself left the format. */
#define FB_GATE_FLOOR 1.0
enum { FB_GATE_FLOOR_HITS = 2 };

/* ---- types ------------------------------------------------------------------------------------------------------------------- */

/* Why a decision is a fault. Values are written to files and never renumbered. */
enum {
    FB_REASON_CLEAN = 0,
    FB_REASON_PROBING = 1,             /* not a fault: an overflow that the dynamic scale explains */
    FB_REASON_NO_SCALE = 2,            /* no dynamic scale: every non-finite update is a fault */
    FB_REASON_CONSECUTIVE = 3,         /* too many overflows in a row */
    FB_REASON_RATIO = 4,               /* too many overflows in the window */
    FB_REASON_FALLING = 5,             /* the scale only falls */
    FB_REASON_FLOOR = 6,               /* the scale is at its floor, or is no usable number */
    FB_REASON_SAME_SITE = 7,           /* the same rank and tensor again and again, at every scale */
    FB_REASON_START = 8,               /* in start-up: more overflows than the way down from the first scale takes */
    FB_REASON_INPUT = 9,               /* found in the batch */
    FB_REASON_STATE = 10,              /* found in parameters, moments or buffers: on entry, after the update, in a checkpoint */
    FB_REASON_NOT_GRADIENT = 11,       /* found in the forward pass or in the loss itself */
    FB_REASON_PERSISTS_IN_REPLAY = 12, /* it came back when the batch was replayed in a wider format */
    FB_REASON_ALONE = 13,              /* this rank cannot vote, and a rank cannot skip alone */
    FB_REASON_NO_QUORUM = 14,          /* the vote failed */
    FB_REASON_DISAGREE = 15,           /* ranks voted on different steps, scales or policies, or a word was corrupted */
    FB_REASON_HALTED = 16,             /* the run was halted earlier */
    FB_REASON_WISH = 17,               /* a rank asked for more than its finding explains */
    FB_REASON_WITHHELD = 18,           /* not a fault of its own: this vote is clean, an earlier one of the step was not */
    FB_REASON_REPLICAS = 19            /* the ranks agree on all but their parameters, which must be equal and are not */
};

typedef struct fb_gate_config {
    int32_t on_bad;    /* FB_ON_BAD_* */
    int32_t max_skips; /* faults in a row that are skipped; the next one halts. 0: the first fault halts */
    int32_t agreement; /* FB_AGREE_* */
    int32_t world;
    fb_scaler_config scaler; /* of the run, or of the trainer as far as it is known; sets the limits of the rules */
} fb_gate_config;

/* Everything in it is equal on all ranks as long as their votes are. Fields are for fb_gate_* alone; reports may read them. */
typedef struct fb_gate {
    fb_gate_config config;
    /* limits, computed from the configuration at init */
    int32_t limit_consecutive, limit_ratio, limit_same_site, limit_start;
    double floor;
    /* the step that is running */
    int32_t dynamic; /* a dynamic loss scale is in use in this step */
    int32_t in_step;
    int32_t voted_in_step;    /* there was a decision */
    int32_t bad_in_step;      /* a decision of this step found something: counted once */
    int32_t fault_in_step;    /* and judged it a fault */
    int32_t freeze_in_step;   /* and held what a scale cannot explain: the scale is to stay */
    int32_t action_in_step;   /* gravest action decided in this step: a later, clean vote does not take it back */
    int32_t persists_in_step; /* 1: the anomaly of this very step came back in a replay */
    int32_t replay_persists;  /* 1: the last anomaly came back in a replay; a clean update clears it */
    double scale;
    /* history */
    int32_t halted;
    int32_t bad_in_row;    /* updates in a row with a finding */
    int32_t faults_in_row; /* and judged a fault */
    int32_t started;       /* fb_gate_begin was called with a dynamic scale: start-up counts from there */
    int32_t start_up;
    int32_t start_steps, start_clean, start_bad;
    int32_t falls;        /* back-offs of the scale since it last grew or start-up ended */
    int32_t floor_in_row; /* overflows in a row at the floor */
    int32_t same_count;   /* findings in a row at the place below, without growth in between */
    int32_t same_boundary, same_rank;
    int64_t same_position;
    uint64_t window[FB_GATE_WINDOW / 64]; /* a bit an update: 1 for an overflow; bit 0 of word 0 is the latest */
    int64_t updates, bad, faults;         /* totals, for reports */
} fb_gate;

/* What this rank alone knows before the ballot. */
typedef struct fb_gate_local {
    uint32_t boundaries;      /* bit (1 << FB_INPUT) and so on for each boundary with a finding in this update; 0: clean */
    int32_t loss_scaled_only; /* 1: findings at FB_LOSS are in the loss after the scale multiplied it, which was finite before */
    int32_t micro_step;       /* place of the earliest finding, as in the ballot */
    int32_t boundary;
    int32_t rank;
    int32_t reserved;
    int64_t position;
} fb_gate_local;

typedef struct fb_gate_decision {
    int32_t action;            /* FB_PROCEED .. FB_HALT */
    int32_t fault;             /* 1: a fault; 0: clean, or probing */
    int32_t reason;            /* FB_REASON_* */
    int32_t consecutive_skips; /* updates in a row with a finding, this one included; FB_ON_BAD_OBSERVE withheld none of them */
    int32_t consecutive_faults;
    int32_t count, limit; /* the numbers of the rule that fired: count reached limit; 0, 0 where the reason has none */
    int32_t reserved;
} fb_gate_decision;

/* ---- functions --------------------------------------------------------------------------------------------------------------- */

/* Errors: FB_E_USAGE for NULL, an unknown on_bad or agreement, max_skips below 0, world below 1, or a scaler fb_scaler_init
   refuses. */
fb_status fb_gate_init(fb_gate *gate, const fb_gate_config *config, fb_error *err);

/**
 * Begin a step.
 * scale    the loss scale in use; 1 where there is none.
 * dynamic  1: a dynamic scale is in use: the run's scaler is enabled, or the trainer tells the scale it moves by itself.
 */
void fb_gate_begin(fb_gate *gate, double scale, int32_t dynamic);

/* Digest of policy and history for the ballot's agreement. Two gates that could decide differently have different digests. */
uint64_t fb_gate_digest(const fb_gate *gate);

/**
 * The action to put into the ballot: FB_PROCEED when clean, FB_SKIP for what a scale can explain, FB_SKIP_FREEZE or FB_HALT for
 * what it cannot. Changes nothing. Under FB_ON_BAD_OBSERVE the wish is that of FB_ON_BAD_SKIP; fb_gate_decide is what lets it pass.
 * decision  NULL, or what the gate would decide if this rank's finding were the first of all: for local evidence, before the vote.
 */
int32_t fb_gate_wish(const fb_gate *gate, const fb_gate_local *local, fb_gate_decision *decision);

/* Decide from the reduced vote and remember it. May be called several times in a step; a bad step counts once. */
void fb_gate_decide(fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision);

/* End the step. A step without a bad decision ends the row of skips. Without a decision at all it counts as nothing. */
void fb_gate_end(fb_gate *gate);

/**
 * What the run's own scaler has to do at the end of the step that is running, before fb_gate_end: FB_SCALER_CLEAN,
 * FB_SCALER_OVERFLOW or FB_SCALER_FREEZE. It follows what was found, not what was done about it: under FB_ON_BAD_OBSERVE an
 * overflow still backs off.
 */
int32_t fb_gate_scaler_move(const fb_gate *gate);

/* The anomaly was replayed in a wider format, and did (1) or did not (0) come back. Must be called alike on all ranks. */
void fb_gate_note_replay(fb_gate *gate, int32_t persists);

/* Short name for files ("consecutive"); "?" for an unknown one. */
const char *fb_gate_reason_name(int32_t reason);
/* Half a sentence for people: "too many overflows in a row". */
const char *fb_gate_reason_text(int32_t reason);

#endif
