/*
 * What is known about one attempt of a run, and the five answers drawn from it. Data only: why_text.c and why_json.c render it.
 *
 *   fb_report_find      which run folder, attempt and step a name on the command line means
 *   fb_report_load      read the folder, judge what was read
 *   fb_report_why_text, fb_report_why_json
 *
 * Everything in a run folder is hostile or torn until it was read: memory is bounded by constants here and by the number of files
 * that exist, never by a number in a file. The ledgers are the deeper truth; the case folder says where to look first.
 */
#ifndef FB_REPORT_REPORT_H
#define FB_REPORT_REPORT_H

#include "base/json_write.h"
#include "evidence/records.h"
#include "os/os.h"
#include "report/located.h"

enum { FB_WHY_CLEAN = 0, FB_WHY_CASE = 1, FB_WHY_UNDECIDED = 2 };
enum { FB_ANSWER_UNKNOWN = -1, FB_ANSWER_NO = 0, FB_ANSWER_YES = 1 };
/* What the ranks must have in common and do not. */
enum { FB_PARTED_REPLICAS = 0, FB_PARTED_STEP = 1, FB_PARTED_SCALE = 2, FB_PARTED_POLICY = 3 };

enum {
    FB_REPORT_TEXT_MAX = 512, /* bytes of one sentence */
    FB_REPORT_NOTES_MAX = 32,
    FB_REPORT_FINDINGS_MAX = 4096, /* kept of the bad step, over all ranks */
    FB_REPORT_BAD_STEPS_MAX = 65536,
    FB_REPORT_CHECKPOINTS_MAX = 4096,
    FB_REPORT_CASES_MAX = 65536,
    FB_REPORT_RANKS_MAX = 1 << 20,
    FB_REPORT_READ_GIB_MAX = 32,       /* of all ledgers, where there is no case to say which matter */
    FB_REPORT_FILE_BYTES_MAX = 8 << 20 /* of one JSON file */
};

/* Sentences; those beyond FB_REPORT_NOTES_MAX are counted. */
typedef struct fb_notes {
    uint32_t count, dropped;
    char text[FB_REPORT_NOTES_MAX][FB_REPORT_TEXT_MAX];
} fb_notes;

/* run.json, exit.json of the attempt, and the RUN record where run.json is missing. "" and -1: unknown. */
typedef struct fb_report_run {
    char run_id[64], host[256], precision[32], commit[80], on_bad[16], agreement[16];
    char command[2048]; /* words joined by spaces, for people */
    char cwd[1024];
    char locate[32]; /* meta `locate` of run.json: "none" where the trainer was told not to */
    int32_t dirty, world, max_skips;
    int64_t created_unix;
    int32_t has_exit, exit_code, exit_signal, exit_halted; /* exit_halted: -1 unknown */
    uint64_t injections;                                   /* faults that the guard was asked to plant */
} fb_report_run;

/* A finding with its own copy of its texts. */
enum { FB_SOURCE_LEDGER = 1, FB_SOURCE_FROZEN = 2, FB_SOURCE_CASE_FILE = 3 };
typedef struct fb_report_finding {
    fb_rec_finding rec;
    uint8_t *bytes; /* the encoded record, which the texts of rec point into */
    uint32_t bytes_used;
    int32_t source;
    int32_t ranks; /* in the set of first ones: ranks that received this same value from a collective; else 1 */
} fb_report_finding;

/* One rank's ledger. */
enum { FB_LEDGER_MISSING = 0, FB_LEDGER_UNREADABLE = 1, FB_LEDGER_HEAD = 2, FB_LEDGER_READ = 3 };
typedef struct fb_report_rank {
    int32_t rank, state; /* FB_LEDGER_HEAD: pulse and frozen records only; FB_LEDGER_READ: to the end of its valid prefix */
    int32_t has_pulse, pulse_vote, pulse_phase, pulse_action;
    int64_t pulse_step;
    int32_t tail_kind, closed;
    int32_t foreign; /* 1: its RUN record is of another rank, attempt or run: a copied or renamed file */
    uint64_t lost;   /* records that could not be written */
    uint64_t bytes;  /* of the file */
    uint64_t steps, applied, gated, skipped, probing;
    int64_t step_gap; /* largest distance between step records that follow each other */
    int64_t first_step, last_step;
    uint64_t duration_ns, guard_ns;
    fb_cover cover; /* without a bad step: the least of all applied updates; with one: of that step */
    /* of the bad step */
    int32_t has_step, has_verdict, action, unanimous, reason, agreement, first_rank, verdict_vote, consecutive_skips;
    int32_t step_action, step_agreement, step_unanimous; /* what the STEP record says, where no verdict was worth a record */
    uint32_t step_flags;
    uint64_t findings, findings_cut;
    double loss_scale; /* as the step began; read only with has_step */
    /* Found in the update of `update_step`, whose STEP record, which says whether the state took it, was not read yet. */
    int64_t update_step;
    uint64_t update_parameter, update_moment;
    int64_t parted_step; /* in which it was halted, since the ranks did not agree on what they voted on; -1 none */
    char policy[96];     /* what the RUN record says of it, "" nothing */
    int32_t proof;       /* 0 none, 1 digest at the decision, 2 compared at the next begin */
    int32_t proof_equal;
    uint64_t proof_tensors, proof_bytes, proof_digest;
    uint64_t replicas_compared; /* steps in which the parameters of all ranks were compared and equal */
    int64_t replicas_step;      /* newest of them; -1 none */
    int32_t drifted;            /* 1: at the bad step the ranks' parameters were compared and not equal */
    uint64_t replica_digest;    /* then this rank's own */
    int64_t
        state_since; /* earliest step that can have made the state bad, by the last whole look at it before; -1: nobody looked */
    int64_t last_good_step;  /* newest gated update before the bad step; -1 none */
    int64_t last_gated_step; /* newest of all; -1 none */
} fb_report_rank;

typedef struct fb_report_checkpoint {
    char *path, *tensor;
    int64_t step;
    int32_t state, reason, attempt;
    int32_t gone;    /* 1: there is nothing at this path any more */
    int32_t changed; /* 1: a file of another size than the one that was judged; its bytes are not read again here */
    uint64_t bad;
} fb_report_checkpoint;

/* A step in which something was found, over all ledgers that were read. */
typedef struct fb_report_bad_step {
    int64_t step, case_step; /* case_step: -1 unknown */
    int32_t fault, probing, frozen, folder, action, first_rank, no_quorum, disagree;
    int32_t broken; /* withheld, and the state changed all the same */
    uint32_t applied_on, withheld_on, findings;
} fb_report_bad_step;

typedef struct fb_report {
    char folder[FB_OS_PATH_MAX];
    fb_report_run run;
    int32_t attempt, attempts, newest_attempt;
    int32_t status;
    fb_notes undecided; /* why the status is no better; only with FB_WHY_UNDECIDED */
    fb_notes notes;     /* what was missing, torn, rebuilt or not read */

    fb_report_rank *ranks; /* those with a ledger file, by rank */
    uint64_t rank_count;
    int32_t world;    /* -1 unknown */
    uint64_t missing; /* ranks of the world without a ledger file */
    int32_t unlisted; /* 1: the folder of ledgers is there and could not be listed to its end */
    uint64_t unread;  /* ledgers of which only the head was read */
    int32_t lowest_missing;

    fb_report_bad_step *bad_steps;
    uint64_t bad_step_count;

    /* the case */
    int64_t left_out;                              /* samples that this attempt leaves out */
    int32_t has_case;                              /* a bad step was chosen, with or without a finding */
    int64_t step;                                  /* the bad step; -1 none */
    char case_id[32], case_folder[FB_OS_PATH_MAX]; /* case_folder "": there is none */
    int32_t rebuilt; /* answered from the ledgers, because the case folder is missing, torn or incomplete */
    fb_report_finding *findings;
    uint64_t finding_count, findings_dropped, findings_total;
    uint64_t *first_set; /* indices into findings: minimal under happens-before */
    uint64_t first_set_count;
    uint64_t first;        /* index into findings of the spokesman's; UINT64_MAX none */
    char misuse_text[512]; /* what the trainer did wrong in the bad step or right before it, "" nothing */
    int32_t misuse_rank;
    char drift[FB_REPORT_TEXT_MAX];     /* which ranks differ at the bad step, and in what, "" none */
    int32_t parted;                     /* in what: FB_PARTED_* */
    char noted[FB_REPORT_TEXT_MAX];     /* what the run itself noted when it located this case, "" nothing */
    char injected_text[256];            /* specification of a planted fault, "" none */
    int64_t case_last_step;             /* last bad step of the same case */
    int32_t case_action;                /* gravest action of the case */
    uint64_t case_updates;              /* bad updates in the case */
    uint64_t cases_before, cases_after; /* other cases of this attempt */
    uint64_t cases_before_withheld;     /* of those before: updates that ledgers prove withheld, and nowhere applied */
    int64_t next_case_step, previous_case_step;

    /* the vote that nobody could read */
    int32_t has_no_vote;
    int64_t no_vote_step;
    int32_t no_vote_number; /* 1: the first vote of the step */
    uint64_t no_vote_count, voted_count;
    int32_t no_vote_ranks[16];
    int32_t ended;              /* as fb_report_target has it */
    char lost[FB_TEXT_MAX + 1]; /* what a rank that waited for the vote saw of one that did not come, "" nothing */

    /* 2 spread */
    int32_t collective, parameters, optimizer_state;
    char collective_why[FB_REPORT_TEXT_MAX], parameters_why[FB_REPORT_TEXT_MAX], optimizer_why[FB_REPORT_TEXT_MAX];
    uint64_t entry_parameter, entry_moment, update_parameter, update_moment; /* findings from the bad step on, in the state */
    uint64_t held_parameter, held_moment; /* in an update that was held back beside the state, which did not take it */
    uint64_t open_parameter, open_moment; /* in an update of which no record says whether the state took it */

    /* 3 decision */
    int32_t action, agreement, unanimous, reason; /* action -1: no verdict was recorded */
    uint64_t verdicts, agreed;                    /* ranks with a verdict record; of them equal to the spokesman's */
    uint64_t proofs, proofs_equal, proofs_compared;
    uint64_t withheld_on, applied_on;

    /* 4 replay: what is recorded to reproduce it */
    int32_t has_spokesman_step;
    fb_rec_step spokesman_step; /* without the record: what the finding itself knows of batch and random state */

    fb_located *located; /* what replays told; NULL where there is no case folder or no finding */

    /* 5 recovery */
    fb_report_checkpoint *checkpoints;
    uint64_t checkpoint_count;
    uint64_t resume; /* index; UINT64_MAX none */
    int64_t last_good_step;
    char resume_why[FB_REPORT_TEXT_MAX], samples_why[FB_REPORT_TEXT_MAX];

    /* witness and cause */
    char cause_class[32], cause[FB_REPORT_TEXT_MAX], witness[FB_REPORT_TEXT_MAX], fix[FB_REPORT_TEXT_MAX];
    fb_cover cover; /* least over the ranks that were read */
    uint64_t cover_ranks;
    fb_notes not_covered; /* what the trainer's attachment said that it does not look at or cannot do; each once */
} fb_report;

/* What a person named. */
typedef struct fb_report_target {
    char folder[FB_OS_PATH_MAX];
    int32_t attempt; /* 0: the newest that has something to say */
    int64_t step;    /* -1: the newest case */
    int32_t ended;   /* 1: the caller knows that the job has ended, whether exit.json is there yet or not */
} fb_report_target;

/**
 * Resolve a name: NULL (the newest run below dir), a run id, a path of a run or case folder, a case id ("a1-000412") or a step
 * ("412", "000412") of the newest run.
 * Errors: FB_E_NOTFOUND with a sentence that says what is there, FB_E_IO, FB_E_LIMIT.
 */
fb_status fb_report_find(const fb_os *os, const char *dir, const char *name, fb_report_target *target, fb_error *err);

/**
 * Load and judge.
 * attempt  0: the newest, or the newest with a case when the newest has none.
 * step     -1: the newest case, taken back to its origin; else the case that holds this step.
 * Errors: FB_E_NOTFOUND (no such folder, attempt or case), FB_E_CORRUPT (no part of it can be read), FB_E_IO, FB_E_NOMEM.
 */
fb_status fb_report_load_target(const fb_os *os, const fb_report_target *target, fb_report **out, fb_error *err);
fb_status fb_report_load(const fb_os *os, const char *run_folder, fb_report **out, fb_error *err);
void fb_report_free(fb_report *report);

/* The whole answer as one JSON object (docs/format/json.md). */
void fb_report_why_json(const fb_report *report, fb_json *json);

/* The answer for people. columns: 40 or more; colour: 1 to use terminal colours. *text: release with fb_free. */
fb_status fb_report_why_text(const fb_report *report, int columns, int colour, char **text, fb_error *err);

/* Attempt and step of a case id such as "a1-000412": 1, or 0 for any other text, which sets nothing. */
int fb_report_case_id(const char *text, int32_t *attempt, int64_t *step);

/* "clean", "case", "undecided". */
const char *fb_why_status_name(int32_t status);

/* Put '?' for what a terminal could take for a command: names in a run folder come from anywhere. A line feed stays. */
void fb_text_disarm(char *text);

#endif
