/*
 * firstbad/locate.h: replay a bad update, find the operator that made its first bad number, say why, and make the batch small.
 * Experimental: may change with a minor version.
 *
 * The trainer knows how to run a step again; this knows what to look at, and what may be concluded. The trainer runs the step
 * with a *tape* in hand and tells it every operator in the order in which they run, with what each reads and makes:
 *
 *   fb_locate_run(&config, &result, &err)                    on every rank, by the same decision
 *     config.replay(ctx, tape, request, &err)                called once a replay, on every rank
 *       fb_tape_entry(tape, ...)                             what is there before the step: parameters, buffers, the batch
 *       fb_tape_op(tape, ...)                                one operator, right after it ran: its outputs are read then, or never
 *     config.rerun(ctx, rerun, &err)                         one operator again, in FP64, on inputs that were kept
 *
 * The tape reads what the search asks for and nothing else, so that memory may be used again as soon as fb_tape_op returns. Tensors
 * are numbered in the order in which the tape hears of them; every replay of the same step must tell the same row of operators, and
 * one that does not is a replay that cannot be looked at, and is counted as such.
 *
 * Ranks. Every rank calls fb_locate_run with the same configuration (rank, ctx and the data of its own batch apart). Answers are
 * reduced over the ranks by config.max before anything is decided, so that all ranks ask for the same replays and end together.
 * Whatever a replay changes is the trainer's to put back; nothing here touches the training state.
 *
 * Threads: one. Nothing is kept after fb_locate_run but what is in `result`. Text is UTF-8.
 */
#ifndef FIRSTBAD_LOCATE_H
#define FIRSTBAD_LOCATE_H

#include "firstbad/firstbad.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fb_tape fb_tape;

/* ---- what the trainer tells the tape ----------------------------------------------------------------------------------------- */

enum {
    FB_TAPE_STATE = 1u, /* an entry that belongs to the state: parameter, moment, buffer, a scalar such as the loss scale */
    FB_TAPE_MASK = 2u,  /* -Inf may be intended here: an additive mask, or scores to which one was added */
    FB_TAPE_BATCH = 4u, /* an entry that belongs to the batch */
    FB_TAPE_SCALAR =
        8u, /* an entry that is one number of the configuration or the schedule: learning rate, temperature, loss scale */
    FB_TAPE_UNSEEN = 16u /* an entry of the batch that the program may have computed before what the tape is told begins */
};

/* One tensor. */
typedef struct fb_tape_value {
    uint32_t size;
    uint32_t flags;     /* FB_TAPE_* */
    const char *module; /* dotted path; NULL: that of the operator which makes it */
    const char *name;   /* "probabilities", "c_fc.weight", "loss.cross_entropy"; the name of the site where it is one */
    const void *data;   /* contiguous; NULL only where count is 0 */
    uint64_t count;     /* elements */
    int32_t dtype;      /* of the memory: FB_F32, FB_I32, ... */
    int32_t
        format; /* that the numbers were rounded to, where it is narrower than dtype (FB_F16 numbers kept in floats); else dtype */
    int32_t ndim;     /* 0: one dimension of `count` */
    int32_t reserved; /* 0 */
    int64_t shape[FB_DIMS_MAX];
} fb_tape_value;
#define FB_TAPE_VALUE_INIT                                         \
    {                                                              \
        sizeof(fb_tape_value), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, \
        {                                                          \
            0, 0, 0, 0, 0, 0, 0, 0                                 \
        }                                                          \
    }

enum { FB_TAPE_ATTRIBUTES_MAX = 6 };
/* A number that an operator was built with: {"epsilon", 1e-8}. In FP64 it is taken as written here, not as the format rounds it. */
typedef struct fb_tape_attribute {
    const char *name;
    double value;
} fb_tape_attribute;

enum {
    FB_TAPE_COLLECTIVE = 1u /* its outputs come from all ranks; rerun is called for it on every rank */
};

/*
 * One operator. `op` is its name as the field writes it: "linear", "matmul", "softmax", "log_softmax", "layer_norm_backward",
 * "gelu", "div", "mul", "add", "sub", "exp", "log", "log1p", "sqrt", "rsqrt", "pow", "sum", "mean", "var", "where", "clamp",
 * "dropout", "embedding", "nll_loss", "all_reduce", "accumulate", ... The cause of a fault is read from it:
 * docs/format/operators.md lists the names that are known and what is known of each. One that is not known is located all the same.
 * A name as a dispatcher writes it, "aten.div.Tensor", is kept and shown as "div".
 * `size` may be that of an older header, which ends before `node`.
 */
typedef struct fb_tape_op {
    uint32_t size;
    uint32_t flags;     /* FB_TAPE_COLLECTIVE */
    const char *op;     /* operator */
    const char *module; /* "h.3.attn"; "" for the root */
    const char *source; /* "model.c:88": where in the program it is called; NULL: unknown */
    int32_t boundary;   /* that it works for: FB_FORWARD, FB_LOSS, FB_LOCAL_GRAD (backward), FB_REDUCED_GRAD, FB_UPDATE */
    int32_t micro_step;
    uint32_t token; /* the trainer's own number for this operator, handed back in a rerun */
    uint32_t input_count, output_count, attribute_count;
    const uint32_t *inputs;       /* ids of tensors the tape has heard of; one may stand there twice */
    const fb_tape_value *outputs; /* what it made */
    uint32_t *output_ids;         /* out: [output_count] their ids; NULL: not wanted */
    const fb_tape_attribute *attributes;
    /* The autograd node that ran it, where backward is told kernel by kernel: "SqrtBackward0" runs a division, and people look for
       their square root. NULL: none, as in forward. */
    const char *node;
} fb_tape_op;
#define FB_TAPE_OP_INIT                                                                                  \
    {                                                                                                    \
        sizeof(fb_tape_op), 0, NULL, NULL, NULL, FB_FORWARD, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL \
    }

/* A tensor that is there before the step begins. Errors: FB_E_USAGE, FB_E_DTYPE, FB_E_LIMIT, FB_E_NOMEM. */
FB_API fb_status fb_tape_entry(fb_tape *tape, const fb_tape_value *value, uint32_t *id, fb_error *err);
/* One operator that has just run. Errors: FB_E_USAGE (an input the tape has not heard of), FB_E_DTYPE, FB_E_LIMIT, FB_E_NOMEM. */
FB_API fb_status fb_tape_op_ran(fb_tape *tape, const fb_tape_op *op, fb_error *err);
/* 1: all that this replay was to look at has been looked at, on this rank. The trainer may stop here,
 * if no other rank waits for it. */
FB_API int fb_tape_done(const fb_tape *tape);

/* ---- what a replay is asked for ---------------------------------------------------------------------------------------------- */

/* What for. */
enum {
    FB_REPLAY_AGAIN = 1,     /* the same again */
    FB_REPLAY_PRECISION = 2, /* in another format: `precision` */
    FB_REPLAY_OTHER = 3,     /* every rank runs the batch and the random state of rank `as_rank` */
    FB_REPLAY_SMALLER = 4    /* with a part of the batch: `rows`, `spans` */
};

typedef struct fb_replay_request {
    uint32_t size;
    int32_t purpose;       /* FB_REPLAY_* */
    uint32_t number;       /* counts replays of this incident from 1 */
    int32_t as_rank;       /* -1: each its own */
    const char *precision; /* "fp32", ...; NULL: as it was */
    /* Rows (samples) of the finding's micro-step to keep on rank `rows_rank`, ascending; NULL: all. The random stream and the
       positions of a row stay those it had. A trainer that cannot leave out rows answers FB_E_UNSUPPORTED. */
    const uint32_t *rows;
    uint32_t row_count;
    uint32_t column_count; /* of `keep` */
    /* [row_count x column_count] 1: this token stays; 0: it is replaced by one that does no harm, and
     * its label is ignored. NULL: all stay */
    const uint8_t *keep;
    int32_t rows_rank; /* with `rows`: that of fb_locate_result */
} fb_replay_request;

/**
 * Run the step once more, from the same state, and tell the tape. What it changes is put back before it returns.
 * Returns FB_OK when it ran, whatever numbers came out. FB_E_UNSUPPORTED: this kind of replay cannot be made, and is left out.
 * FB_E_NOMEM and other failures: the replay cannot be looked at. All ranks must return alike; fb_locate_run takes the worst.
 */
typedef fb_status (*fb_replay_fn)(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err);

/* One operator again, in FP64. */
typedef struct fb_rerun {
    uint32_t size;
    uint32_t token; /* fb_tape_op.token */
    uint32_t input_count, output_count;
    const double *const *inputs; /* [input_count] each as many elements as it had; integers are exact */
    const uint64_t *input_counts;
    double *const *outputs; /* [output_count] to fill */
    const uint64_t *output_counts;
    const fb_tape_attribute *attributes;
    uint32_t attribute_count;
} fb_rerun;

/* FB_E_UNSUPPORTED: this operator has no FP64 form. Called on the rank that owns the finding, for a collective operator on all. */
typedef fb_status (*fb_rerun_fn)(void *ctx, fb_rerun *rerun, fb_error *err);

/* Replace each value by the largest over all ranks. Integers, so that nothing is lost. */
typedef fb_status (*fb_reduce_max_fn)(void *ctx, int32_t *values, size_t count, fb_error *err);

/* ---- the call ---------------------------------------------------------------------------------------------------------------- */

/* What is done; each can be left out. */
enum {
    FB_LOCATE_REPLAY = 1u,     /* k of n, and again in FP32 */
    FB_LOCATE_SEARCH = 2u,     /* name the operator */
    FB_LOCATE_CAUSE = 4u,      /* say why, by a rerun in FP64 */
    FB_LOCATE_OTHER_RANK = 8u, /* the same batch on the other ranks' processes: hardware or data? */
    FB_LOCATE_MINIMISE = 16u,  /* make the batch small */
    FB_LOCATE_EVIDENCE = 32u,  /* write l3/ */
    FB_LOCATE_ALL = 63u
};
enum { FB_LOCATE_SWEEP = 0, FB_LOCATE_BISECT = 1 };

typedef struct fb_locate_config {
    uint32_t size;
    uint32_t parts; /* FB_LOCATE_*; 0: all */
    int32_t rank, world;
    /* The finding that opened the case, equal on all ranks: fb_verdict has its place, first_bad.json its names. */
    int32_t finding_rank;
    int32_t finding_boundary;
    int32_t finding_micro_step;
    int32_t finding_kind; /* FB_KIND_*, 0: unknown; a mask that holds -Inf then tells nothing */
    const char *finding_module, *finding_tensor;
    int32_t strategy;            /* FB_LOCATE_SWEEP, FB_LOCATE_BISECT */
    uint32_t probes_max;         /* tensors that one replay looks at; 0: any number */
    uint32_t replays_max;        /* of the search; 0: 64, or, with a bound on probes, the most that it can need (docs/design) */
    uint32_t times;              /* n of "k of n"; 0: 3 */
    uint32_t tests_max;          /* replays that minimising may take; 0: 200 */
    uint64_t evidence_bytes_max; /* of l3/ on one rank; 0: 64 MiB */
    const char *folder;          /* of the case: locate.json and l3/ go there; NULL: nothing is written */
    const char *precision;       /* of the run: "fp16" */
    /* The batch of the finding's micro-step on this rank, for minimising; 0: it cannot be made smaller. */
    uint32_t rows, columns;
    const int64_t *sample_ids; /* [rows]; NULL: unknown */
    int64_t step;
    int32_t first_step_of_attempt; /* 1: no update of this attempt came before; 2: and it was resumed from a checkpoint */
    uint32_t reserved;
    void *ctx;
    fb_replay_fn replay;
    fb_rerun_fn rerun;    /* NULL: no FP64; the cause is then what the inputs alone can tell */
    fb_reduce_max_fn max; /* NULL where world is 1 */
    /* Differences between the run and its replays that the trainer knows of, one sentence each: "4 ranks became 1". */
    const char *const *differences;
    uint32_t difference_count;
    int32_t finding_injected; /* 1: the guard planted it (first_bad.json: "injected"), which no replay does again */
    /* What locate.json is of. NULL: taken from `folder` where that is RUN/cases/CASE or lies below it, else unknown. A folder may
       have been renamed, so a trainer that knows them (fb_run_folder, fb_verdict, fb_bundle_run_id) says them. */
    const char *run_id, *case_id;
} fb_locate_config;
#define FB_LOCATE_CONFIG_INIT                                                                                                     \
    {                                                                                                                             \
        sizeof(fb_locate_config), 0, 0, 1, 0, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, NULL, 0, 0, 0, NULL, NULL, \
            NULL, NULL, NULL, 0, 0, NULL, NULL                                                                                    \
    }

/* What is concluded about the place. Numbers as in src/search/bisect.h. */
enum {
    FB_LOCATED_NOTHING = 0,
    FB_LOCATED_OPERATOR = 1,       /* one, with a witness */
    FB_LOCATED_SET = 2,            /* several, none of which comes after another, each with a witness */
    FB_LOCATED_INTERVAL = 3,       /* it is among the candidates */
    FB_LOCATED_ENTRY = 4,          /* bad before the step, or in the batch: no operator is blamed */
    FB_LOCATED_NOT_REPRODUCED = 5, /* 0 of n */
    FB_LOCATED_NOT_STEADY = 6,     /* k of n */
    FB_LOCATED_UNDECIDED = 7
};

/* Which of the rules of docs/design/locate.md gave the cause. Written to files, never renumbered. */
enum {
    FB_RULE_NONE = 0,
    FB_RULE_RANGE = 1,             /* the exact value exceeds the format */
    FB_RULE_ROUNDING = 2,          /* finite and in range in FP64: rounding or cancellation within the operator */
    FB_RULE_ROUNDING_UPSTREAM = 3, /* the operator is non-finite in FP64, its module from its own inputs is not */
    FB_RULE_DOMAIN = 4,            /* both are non-finite in FP64 */
    FB_RULE_STATE = 5,             /* bad before the step */
    FB_RULE_BATCH = 6,             /* bad, or out of range, in the batch */
    FB_RULE_NOT_REPRODUCIBLE = 7   /* transient, or a race */
};

typedef struct fb_locate_result {
    uint32_t size;
    int32_t found;      /* FB_LOCATED_* */
    int32_t rule;       /* FB_RULE_* */
    int32_t owner;      /* lowest rank on which the origin is bad and leads to the finding; -1: none */
    int32_t boundary;   /* of the origin; 0: unknown */
    int32_t micro_step; /* of the origin */
    int32_t persists;   /* in FP32: 1 yes, 0 no, -1 not tried */
    int32_t faithful;   /* 1: every replay told the same row of operators from the same bytes, and no difference is known */
    uint32_t reproduced, tried;
    uint32_t candidates;
    uint32_t replays; /* of all kinds, over the whole call */
    uint32_t search_replays;
    uint32_t rows_needed; /* samples of the smallest batch; 0: not minimised */
    uint32_t tokens_needed;
    uint32_t other_ranks_bad, other_ranks_tried; /* FB_LOCATE_OTHER_RANK */
    /* 1: without the rows of the smallest batch it does not show; -1: the other rows show it as well, so that no row is to blame;
       0: not tried */
    int32_t rows_alone;
    uint64_t nanoseconds;
    char module[128], op[64], tensor[128], source[256]; /* of the origin, or the last candidate of an interval; "" unknown */
    char cause_class[48];                               /* docs/format/causes.md; "unknown" */
    char sentence[1024];                                /* what happened, for a person */
    /* The smallest batch that reproduces: rows, and for each of them which tokens. Owned by the result; see fb_locate_release. */
    uint32_t *rows;
    uint8_t *keep; /* [rows_needed x columns], NULL: all tokens */
    /* Whose rows they are: the owner's, where one operator or batch is named that is one rank's; else the finding's rank. */
    int32_t rows_rank;
    uint32_t later; /* operators that may have failed by themselves as well, and come after the origin: not first */
    char node[64];  /* autograd node that ran the origin, "SqrtBackward0"; "" none. `size` may end before it */
} fb_locate_result;
#define FB_LOCATE_RESULT_INIT                                                                                                 \
    {                                                                                                                         \
        sizeof(fb_locate_result), 0, 0, -1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, {0}, {0}, {0}, NULL, \
            NULL, -1, 0,                                                                                                      \
        {                                                                                                                     \
            0                                                                                                                 \
        }                                                                                                                     \
    }

/**
 * Replay, locate, explain, minimise, as far as config->parts says.
 * Returns FB_OK whenever something could be concluded, "undecided" included: the answer is in `result`. A folder that cannot be
 * written does not fail the call; `result` is then all there is, and err (when given) holds the sentence with code FB_OK.
 * Errors: FB_E_USAGE; FB_E_NOMEM; what config->max returned (a rank is gone).
 * Collective where world is above 1. Cost: result->replays steps, and memory for what one operator reads and makes.
 */
FB_API fb_status fb_locate_run(const fb_locate_config *config, fb_locate_result *result, fb_error *err);
/* Free what a result owns. Accepts NULL and a result that was never filled. */
FB_API void fb_locate_release(fb_locate_result *result);

/* ---- for people -------------------------------------------------------------------------------------------------------------- */

/* What the trainer knows of the incident and fb_locate_run does not. NULL and 0: the line is left out. */
typedef struct fb_locate_words {
    uint32_t size;
    int32_t rank;          /* that prints it; nothing in the text depends on it */
    const char *headline;  /* "step 412 was not applied on any of 8 ranks: non-finite gradient on rank 5" */
    const char *spread;    /* parts with a line end between them: "collective: no", "parameters: no", ... */
    const char *next;      /* "skipped 1 of at most 3 in a row; training goes on" */
    const char *case_line; /* parts: the folder, and the command that tells more */
    double seconds;        /* that locating took */
} fb_locate_words;
#define FB_LOCATE_WORDS_INIT                                    \
    {                                                           \
        sizeof(fb_locate_words), 0, NULL, NULL, NULL, NULL, 0.0 \
    }

/**
 * The message that a trainer prints once: what was first bad, why, how it was shown, how far it spread, what to do, and where the
 * case lies; a block of lines of at most 100 columns (longer only where a word is), NUL-terminated, without colours.
 * config, result  those of fb_locate_run. words  NULL: none.
 * text   NULL, or room for *bytes bytes. bytes  in: that room (ignored where text is NULL); out: what is needed, the NUL included.
 * Errors: FB_E_USAGE; FB_E_LIMIT (it does not fit: *bytes says how much is needed, and text is ""). No allocation.
 */
FB_API fb_status fb_locate_text(const fb_locate_config *config, const fb_locate_result *result, const fb_locate_words *words,
                                char *text, size_t *bytes, fb_error *err);

#ifdef __cplusplus
}
#endif

#endif
