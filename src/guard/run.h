/*
 * The inside of a run on one rank. The guard is the policy's only home: it holds gate, scaler and vote, decides nothing by itself,
 * and turns calls into evidence.
 *
 * Files by job: open.c opens and closes; names.c sites and owned state; step.c the order of one update; check.c tensors; tokens.c
 * batches; ballot.c vote and verdict; record.c the ledger; casefile.c the case folder; proof.c digests; replicas.c their comparison
 * over the ranks; leave_out.c samples that are left out; notes.c what the trainer tells between steps; risk.c deep scanning;
 * inject.c and plant.c faults on purpose; checkpoint.c saved files, verifier.c the thread that reads them back, lineage.c what may
 * have reached them, save.c the gate before a save; load.c checkpoints without a run.
 */
#ifndef FB_GUARD_RUN_H
#define FB_GUARD_RUN_H

#include <stdatomic.h>

#include "evidence/records.h"
#include "evidence/site.h"
#include "guard/inject.h"
#include "guard/risk.h"
#include "guard/verifier.h"
#include "log/log.h"
#include "os/os.h"
#include "policy/gate.h"
#include "policy/scaler.h"
#include "policy/vote.h"

enum { FB_FINDINGS_MAX_DEFAULT = 256, FB_BOUNDARIES = 9, FB_CASE_ID_BYTES = 32, FB_CASES_KNOWN = 64, FB_RUN_ID_BYTES = 64 };

/* The words that one rank's evidence was turned into, and what came of them. */
typedef struct fb_step_state {
    int open;       /* between fb_step_begin and fb_step_end */
    int ballot_out; /* words were given out and not settled */
    int withheld;   /* a verdict of this step was not to proceed; sticky until the end */
    int unscaled, applied;
    int unsettled; /* gradients, or a proposed update, were looked at after the last settled vote */
    int proposed;  /* an update was looked at before fb_step_apply: it lies beside the state, and is not the state */
    int32_t votes, micro;
    int counting;         /* nobody knows how many micro-steps there will be: each one that begins is counted */
    uint64_t serial;      /* counts micro-steps over the run: marks "seen in this micro-step" */
    uint64_t step_serial; /* serial at the begin of the step */
    int64_t begun_ns;
    int64_t words[4];    /* our own, as given out */
    uint64_t grads_seen; /* distinct gradient sites seen at FB_LOCAL_GRAD in this micro-step, absent and exempt ones included */
    uint64_t reduced_seen;
    uint64_t findings_settled;              /* findings in the table that a ballot has carried */
    uint64_t findings_voted;                /* rec.findings at the last ballot: with those that were cut or came twice */
    uint32_t bad_boundaries;                /* bit (1 << boundary) */
    int32_t covered_micros[FB_BOUNDARIES];  /* micro-steps in which something was looked at */
    uint64_t covered_serial[FB_BOUNDARIES]; /* serial of the last of them */
    int vote_not_clean;                     /* some vote of this step failed, or found something on any rank */
    int bad_rate;                           /* the learning rate is not finite: an update with it would destroy every parameter */
    int state_searched;                     /* owned state was read whole because something was found */
    int frozen;                             /* the first-bad record of this step's case is in set-aside space */
    uint32_t deciding_boundaries;           /* FB_AGREE_NORM: those of what may decide */
    fb_rec_finding deciding;                /* and the first of it */
    int carried;                            /* the late finding of an earlier step was told again at the begin of this one */
    int replicas_asked;                     /* run->replicas_due, as it was at the begin */
    int has_replicas;                       /* the first vote of this step compares the parameters over the ranks */
    fb_rec_proof replicas;                  /* this rank's, on entry */
    fb_rec_step rec;                        /* L1 as it grows */
} fb_step_state;

struct fb_run {
    const fb_os *os;
    int64_t pid; /* of the process that opened the run: a child made by fork is refused */
    int32_t rank, world, attempt, on_bad, agreement, threads;
    char run_id[FB_RUN_ID_BYTES], host[FB_TEXT_MAX + 1], precision[32];
    char folder[FB_OS_PATH_MAX];                      /* as the trainer named it: for people */
    char home[FB_OS_PATH_MAX], cases[FB_OS_PATH_MAX]; /* the same folder and the one in it, absolute: the trainer may move on */
    uint64_t run_hash;

    fb_log *log; /* NULL when it could not be created: everything is counted as lost */
    uint64_t lost;
    int lost_told; /* the first loss was put into set-aside space */
    fb_error lost_why;

    fb_sites sites;
    uint64_t *seen;     /* sites x boundaries: serial of the micro-step in which the tensor was handed over last */
    uint64_t *read;     /* sites x boundaries: serial of the first micro-step of its last step in which its elements were read */
    uint64_t *bad;      /* sites x boundaries: step_serial of the step in which it was found bad last */
    uint64_t seen_room; /* sites that the three tables have room for */
    uint64_t sampled_steps[FB_BOUNDARIES],
        sampled_serial[FB_BOUNDARIES]; /* steps with a sampled check; serial of the last of them */
    uint64_t gradient_sites;

    fb_view *owned;
    size_t owned_count;
    int proof_pending; /* an update was withheld: compare digests at the next begin */
    int proof_equal;   /* they were compared already, and equal: only a difference is worth a record more */
    fb_rec_proof proof;
    int32_t replica_period; /* 0: parameters are not compared over the ranks */
    int replicas_due;       /* an update was withheld on all ranks: compare in the next step, whatever its number */
    int64_t replicas_equal; /* the last step that began with equal parameters on all ranks; -1: none was seen */
    int64_t *left_out;      /* ids of samples, rising */
    size_t left_out_count;
    uint64_t left_out_hash; /* goes into what ranks must agree on; 0 when none are left out */

    fb_scaler_config scaler_config;
    fb_scaler_state scaler;
    fb_gate gate;
    fb_inject inject;
    fb_risk risk;

    fb_step_state step;
    int64_t last_step;     /* -1 before the first */
    int ungated;           /* an update was applied without a full, clean vote: what descends from it is suspect */
    int mark_left;         /* the other ranks were told of it, by a file in the run's folder */
    int skip_broken;       /* the state changed although its update was withheld: the next ballot asks for a halt */
    int state_bad;         /* owned state was found bad: it is read whole at each begin until it is finite again */
    uint64_t record_ns;    /* what writing the last step's record took: counted as our own time in the next */
    int64_t parent;        /* step of the checkpoint this attempt came from, as its first step said; -1: unknown */
    fb_verifier *verifier; /* NULL until the first checkpoint is to be read back in the background */
    int64_t step_verified; /* the last step whose update was gated without a hole; -1: none */
    int64_t step_saved;    /* the largest step of a checkpoint that this rank handed over; -1: none */
    int64_t doubt_step;    /* a case opened: what was saved after this step is in doubt until its skip is proven */
    int in_doubt;
    char begun[FB_OS_PATH_MAX]; /* the last path that a save was announced for, as the trainer wrote it; "" when it was written */
    int64_t begun_step;
    int late_pending; /* found after the update was let through, and not voted on */
    fb_rec_finding late;
    char case_id[FB_CASE_ID_BYTES];     /* the open case, "" when none */
    int case_named_before;              /* the open case has the name of an earlier one: the trainer went back and counted again */
    int64_t case_steps[FB_CASES_KNOWN]; /* steps that cases of this attempt were opened in */
    uint32_t case_count;
    uint64_t not_covered[FB_NOT_COVERED_MAX]; /* digests of the lines that were said */
    uint32_t not_covered_count;
    int not_covered_more; /* there were more of them */
    fb_rec_finding *findings;
    uint64_t findings_count, findings_max, findings_cut;
    atomic_flag lock; /* over findings, coverage and the log: checks may come from any thread */
    uint8_t scratch[FB_REC_BYTES_MAX];
};

/* ---- shared by the files of this folder -------------------------------------------------------------------------------------- */

void fb_run_lock(struct fb_run *run);
void fb_run_unlock(struct fb_run *run);

/* The monotonic clock, 0 for a NULL run. */
int64_t fb_run_now(const struct fb_run *run);
/* Add the time since `begun_ns` to our own time in this step; takes the lock. Checks on several threads add up. */
void fb_run_spent(struct fb_run *run, int64_t begun_ns);

/* NULL run, or a child made by fork. what: the function's name, for the sentence. */
fb_status fb_run_usable(const struct fb_run *run, const char *what, fb_error *err);
/* As fb_run_usable, and a step must be open. */
fb_status fb_run_in_step(const struct fb_run *run, const char *what, fb_error *err);
/* Note misuse in the ledger and hand the status through. */
fb_status fb_run_misuse(struct fb_run *run, fb_status status, const fb_error *err);

/* record.c: write what was encoded. A failure is counted, never returned: training goes on guarded. */
void fb_record_append(struct fb_run *run, uint16_t type, uint32_t bytes, int sync);
void fb_record_event(struct fb_run *run, int32_t event, int64_t a, int64_t b, const char *text, int sync);
void fb_record_finding(struct fb_run *run, const fb_rec_finding *finding, int sync);
/* All findings that were not recorded yet; the last is synced. */
void fb_findings_record(struct fb_run *run);
/* Into set-aside space. Returns 1 when it is durable. */
int fb_record_freeze(struct fb_run *run, const fb_rec_finding *finding);
void fb_record_verdict(struct fb_run *run, const fb_rec_verdict *verdict, int sync);
void fb_record_pulse(struct fb_run *run, int32_t phase, int32_t action);
void fb_record_proof(struct fb_run *run, const fb_rec_proof *proof);
void fb_record_step(struct fb_run *run);
void fb_record_site(struct fb_run *run, uint32_t id);
void fb_record_lost(struct fb_run *run, const fb_error *why);
/* dropped: pairs of the caller that were left out already. */
void fb_record_run(struct fb_run *run, const fb_run_config *config, uint64_t dropped);

/* check.c: add a finding of this rank; takes the lock. Fills in what the step knows. */
void fb_finding_add(struct fb_run *run, const fb_finding *finding, int injected);
/* Look at one view at a boundary; validated before. Returns 0 when it was passed over: exempt, or of
 * a format with nothing to find. */
int fb_check_view(struct fb_run *run, int32_t boundary, const fb_view *view);
/* What of this view is not legal at its site: finding->count stays 0 when all is well. Returns 0 when it was passed over: absent,
   exempt, of a format with nothing to find, or unreadable. Nothing is noted. */
int fb_view_judge(const struct fb_run *run, const fb_view *view, fb_finding *finding);
/* A finding as it is written: with the names of its site, and all that the step knows. */
void fb_finding_fill(struct fb_run *run, fb_rec_finding *rec, const fb_finding *finding, int injected);
/* Every view is usable at this boundary, or a sentence. */
fb_status fb_check_views_valid(struct fb_run *run, const char *what, const fb_view *views, size_t n, fb_error *err);
/* Note that a tensor was handed over, in the counter of coverage that says what became of it. The caller has the lock. */
void fb_check_mark(struct fb_run *run, int32_t boundary, uint32_t site, uint32_t *counter);
/* Note how much of a boundary was looked at in this micro-step; the least counts. The caller has the lock. */
void fb_cover_level(struct fb_run *run, int32_t boundary, uint8_t level);
/* ballot.c: bring the levels down to what the step as a whole was looked at. */
void fb_cover_settle(struct fb_run *run);
/* The finding that is causally first of this step, or NULL. */
const fb_rec_finding *fb_finding_first(const struct fb_run *run);
/* As fb_finding_first, of those that may decide: all of them, but where the program's own reduction is the vote (FB_AGREE_NORM)
 * those
   alone that are equal on all ranks. */
const fb_rec_finding *fb_finding_deciding(const struct fb_run *run);
/* 1 where what one rank alone has found must decide nothing. */
int fb_run_by_norm(const struct fb_run *run);
/* Key of a finding in the vote's order. */
int64_t fb_finding_key(const fb_rec_finding *finding);

/* plant.c: change a tensor, or an integer array of a batch, by the faults that are due there. 1 when something was planted. */
typedef struct fb_plant_place {
    void *data;
    int32_t dtype;
    uint64_t count;
    int64_t bad, ignored; /* an id out of range, and what FB_PLANT_ZERO writes */
} fb_plant_place;
int fb_plant_view(struct fb_run *run, int32_t where, int32_t boundary, const fb_view *view);
int fb_plant_integers(struct fb_run *run, int32_t where, uint32_t site, fb_plant_place *place);

/* names.c: plant faults into owned state at the begin of a step; search owned state when something was found. */
void fb_owned_inject(struct fb_run *run);
void fb_owned_search(struct fb_run *run);

/* proof.c */
void fb_proof_take(struct fb_run *run);
void fb_proof_compare(struct fb_run *run);
void fb_proof_at_halt(struct fb_run *run);
/* Digest of the owned tensors of this role, or of all when it is 0. */
void fb_proof_digest(const struct fb_run *run, int32_t role, fb_rec_proof *proof);

/* replicas.c: at the begin of a step, after what changes state there: take the digest if this step compares. */
void fb_replicas_take(struct fb_run *run);
/* Put it into what the ranks must agree on; the first vote of a step alone compares. */
void fb_replicas_vote(const struct fb_run *run, fb_vote_agreement *agreement);
/* What the reduced words say of it. */
void fb_replicas_read(const struct fb_run *run, const int64_t words[4], fb_vote_outcome *outcome);
/* Record it. Where the parameters differ, all that was saved since they were last seen equal is suspect. */
void fb_replicas_settle(struct fb_run *run, const fb_vote_outcome *outcome);

/* leave_out.c: read FIRSTBAD_LEAVE_OUT; and tell the ledger. */
fb_status fb_leave_out_read(struct fb_run *run, const char *text, fb_error *err);
void fb_leave_out_record(struct fb_run *run);

/* lineage.c: an update that was not provably withheld happened at this step: what was saved since is suspect. */
void fb_checkpoint_taint(struct fb_run *run, int64_t step);
/* A case opened: what this rank saved after the last step that was gated without a hole is suspect; once the withheld update is
 * proven
   to have changed nothing, it is read again. */
void fb_checkpoint_doubt(struct fb_run *run);
void fb_checkpoint_trust(struct fb_run *run);
/* 1 when no rank of this attempt is known to have applied an update that was not gated, and what the attempt came from is
   committed, or nobody knows it. path: where the checkpoint lies; other runs that saved beside it are asked for the parent. */
int fb_checkpoint_gated(const struct fb_run *run, const char *path);
/* 1 when some rank of this attempt left its mark that it applied such an update, or it cannot be known. A rank leaves the
   mark first and taints the registry then. So who looks for it before a record is written looks again afterwards: what the
   first look missed is met either by the second or by the taint. */
int fb_checkpoint_marked(const struct fb_run *run);

/* checkpoint.c: verdicts of the thread go into the ledger, which is this thread's to write. Cheap when there is none. */
void fb_checkpoint_record(struct fb_run *run);
/* The run's verifier, opened when there is none yet; NULL when it cannot be. */
fb_verifier *fb_checkpoint_verifier(struct fb_run *run, fb_error *err);
/* At close: wait for what is queued, record it, and end the thread. In a forked child: only free. */
void fb_checkpoint_close(struct fb_run *run, int forked);

/* casefile.c: write what this rank knows of the case into its folder. opens: this verdict opened it.
 * Failures count as lost evidence. */
void fb_case_write(struct fb_run *run, const fb_rec_verdict *verdict, int opens);

/* The run as opened by a test, over its own table of system calls. */
fb_status fb_run_open_with(struct fb_run **out, const fb_run_config *config, const fb_os *os, fb_error *err);

#endif
