/*
 * program.h: the model as a list of operators.
 *
 * A program is what one micro-step does, forward and then backward, as operators in the order in which they run. Each reads values
 * and makes values; a value has one producer, or none (a parameter, the batch, a scalar). Training runs the list from front to
 * back.
 * A replay runs the same list and tells a tape of each operator as it goes, so what is looked at is what was trained with. An
 * operator is named as PyTorch's autograd names it, and every one has a second form in FP64 (reference.h).
 *
 * The list is built once (program_build.c), and may then be changed by a fault (faults.c), which replaces operators by wrong ones
 * or puts others in between. Nothing else in the trainer knows of faults.
 *
 * Values. Memory is float, whatever the format: after an operator ran, each output is rounded to the format of its value. What is
 * inside a kernel of a real library (the statistics of a norm, probabilities before they are rounded) has the format FP32. Integers
 * (tokens, targets, positions) are int32_t. Several values may share memory when their lives do not overlap; gradients do.
 */
#ifndef GPT_PROGRAM_H
#define GPT_PROGRAM_H

#include "precision.h"
#include "rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A target that does not count. */
enum { GPT_IGNORE = -100 };

enum { GPT_IN_MAX = 6, GPT_OUT_MAX = 4, GPT_NAME_MAX = 40, GPT_MODULE_MAX = 32 };

/*
 * What an operator does. R rows, K columns of its first input; N = R * K. How a second operand is spread over the first stands in
 * gpt_op.spread. "g" is the gradient of the output.
 */
typedef enum gpt_kind {
    /* elementwise: (a, b) or (a) */
    OP_ADD,        /* a + b */
    OP_SUB,        /* a - b */
    OP_MUL,        /* a * b */
    OP_DIV,        /* a / b */
    OP_ADD_NUMBER, /* a + x */
    OP_MUL_NUMBER, /* a * x */
    OP_SQUARE,
    OP_SQRT,
    OP_RSQRT,
    OP_EXP,
    OP_LOG,
    OP_LOG1P,
    OP_SIGMOID,
    OP_RECIPROCAL,
    OP_GELU,       /* tanh form */
    OP_CLAMP,      /* to [x, y]; NaN stays NaN */
    OP_WHERE_LESS, /* (c, a, b): c < x ? a : b, element by element */
    OP_NAN_TO_NUM, /* NaN becomes 0, Inf the largest of the format */
    OP_DROPOUT,    /* x probability; see gpt_drop_factors */
    OP_COPY,
    /* rows: (R,K) -> (R) */
    OP_ROW_SUM,
    OP_ROW_MEAN,
    OP_ROW_MAX,
    OP_ROW_VAR,    /* (a, mean): mean of (a - mean)^2 over K - x; x is 0, or 1 for the unbiased one */
    OP_SUM,        /* (N) -> (1) */
    OP_COLUMN_SUM, /* (R,K) -> (K) */
    OP_SOFTMAX,
    OP_LOG_SOFTMAX, /* (R,K) along K, in FP32 inside; with the largest of the row taken off first */
    /* layers */
    OP_EMBEDDING, /* (tokens (R) int32, table (V,C)) -> (R,C); a token outside the table has no row: NaN */
    OP_NORMALIZE, /* (a (R,K), mean (R), rstd (R)) -> (a - mean) * rstd */
    OP_AFFINE,    /* (a (R,K), weight (K), bias (K)) -> a * weight + bias */
    OP_LINEAR,    /* (a (R,C), weight (O,C), bias (O) or none) -> (R,O) */
    OP_SCORES,    /* (qkv (B,T,3C)) -> query key^T, (B,NH,T,T), not scaled */
    OP_MASK,      /* (scores (B,NH,T,T), key_mask (B,T) float 1 or 0, or none): -Inf where a key lies ahead or is masked */
    OP_HEADS,     /* (probabilities (B,NH,T,T), qkv) -> probabilities value, (B,T,C) */
    OP_NLL,       /* (log_probabilities (R,V), targets (R) int32) -> (R): -log p of the target; 0 where it is GPT_IGNORE */
    OP_VALID,     /* (targets (R), weights (R)) -> (R): the weight where the target is not GPT_IGNORE, else 0 */
    /* their backward forms; inputs are (g, what forward kept ...), outputs the gradients in the order of forward's inputs */
    OP_ROW_SUM_BACKWARD, /* (g (R), a): g spread over the row */
    OP_ROW_MEAN_BACKWARD,
    OP_ROW_MAX_BACKWARD,     /* (g (R), a, y (R)): to the first that is the largest */
    OP_ROW_VAR_BACKWARD,     /* (g (R), a, mean) */
    OP_SUM_BACKWARD,         /* (g (1), a): g everywhere */
    OP_SQUARE_BACKWARD,      /* (g, a): 2 g a */
    OP_RECIPROCAL_BACKWARD,  /* (g, y): -g y^2 */
    OP_NAN_TO_NUM_BACKWARD,  /* (g, a): g where a is finite, else 0 */
    OP_MASK_BACKWARD,        /* (g, key_mask or none): 0 where forward put -Inf */
    OP_SQRT_BACKWARD,        /* (g, y): g / (2 y) */
    OP_RSQRT_BACKWARD,       /* (g, y): -g y^3 / 2 */
    OP_LOG_BACKWARD,         /* (g, a): g / a */
    OP_LOG1P_BACKWARD,       /* (g, a): g / (1 + a) */
    OP_EXP_BACKWARD,         /* (g, y): g y */
    OP_SIGMOID_BACKWARD,     /* (g, y): g y (1 - y) */
    OP_DIV_BACKWARD,         /* (g, a, b) -> d_a = g / b, d_b = -g a / b^2 summed to b's shape */
    OP_MUL_BACKWARD,         /* (g, a, b) -> d_a, d_b */
    OP_WHERE_BACKWARD,       /* (g, c) -> d_a = c < x ? g : 0, d_b = c < x ? 0 : g */
    OP_CLAMP_BACKWARD,       /* (g, a): g inside [x, y], else 0 */
    OP_GELU_BACKWARD,        /* (g, a) */
    OP_DROPOUT_BACKWARD,     /* (g) */
    OP_SOFTMAX_BACKWARD,     /* (g, y): y (g - sum of g y) */
    OP_LOG_SOFTMAX_BACKWARD, /* (g, y): g - exp(y) sum of g */
    OP_LAYER_NORM_BACKWARD,  /* (g, a, mean, rstd, weight) -> d_a, d_weight, d_bias */
    OP_LINEAR_BACKWARD,      /* (g, a, weight) -> d_a, d_weight, d_bias where forward had one */
    OP_SCORES_BACKWARD,      /* (g (B,NH,T,T), qkv) -> d_query and d_key side by side, (B,T,2C) */
    OP_HEADS_BACKWARD,       /* (g (B,T,C), probabilities, qkv) -> d_probabilities, d_value (B,T,C) */
    OP_JOIN,                 /* (a (R,K), b (R,L)) -> (R,K+L): each row of b behind that of a; d_qkv from the two above */
    OP_EMBEDDING_BACKWARD,   /* (g (R,C), tokens) -> d_table (V,C) */
    OP_NLL_BACKWARD,         /* (g (R), targets) -> (R,V) */
    OP_KINDS
} gpt_kind;

/*
 * How many inputs and outputs an operator has depends on the kind. A backward form may be asked for its first outputs alone: it
 * makes as many as out_count says.
 */
typedef enum gpt_spread {
    SPREAD_SAME,   /* one to one */
    SPREAD_ROW,    /* b has one element a row of a */
    SPREAD_COLUMN, /* b has one element a column of a */
    SPREAD_ONE     /* b has one element */
} gpt_spread;

typedef enum gpt_role {
    ROLE_PARAMETER, /* rounded weights; flat offset in `parameter` */
    ROLE_BATCH,
    ROLE_SCALAR,
    ROLE_BUFFER, /* state that is no parameter */
    ROLE_ACTIVATION,
    ROLE_GRADIENT,          /* of an activation */
    ROLE_PARAMETER_GRADIENT /* what backward adds to gradients; see gpt_value.parameter */
} gpt_role;

typedef struct gpt_value {
    char module[GPT_MODULE_MAX], name[GPT_NAME_MAX];
    gpt_role role;
    precision format;
    bool integers;   /* data is int32_t */
    bool mask;       /* -Inf may be intended */
    bool internal;   /* inside a kernel of a real library: not an activation that --check forward looks at */
    bool per_sample; /* rows and shape[0] are those of the whole batch, and fewer when samples are left out */
    size_t rows, columns;
    int ndim;
    size_t shape[4];
    int parameter;    /* index of the parameter tensor, or -1 */
    int gradient;     /* the value that holds its gradient in backward, or -1; where it joins a sum it shares that of the sum */
    int32_t position; /* of an activation that is not internal: place along the dataflow */
    void *data;       /* float * or int32_t *; set by the model, unless a fault brought its own */
    size_t room;      /* elements that `data` was taken with */
} gpt_value;

/*
 * When the numbers of an operator are those of a fault. Outside of it `idle` stands in for x, so that a wrong operator can wait for
 * its step and rank: a factor that is 1 until then. A replay of that step sees what the step saw.
 */
typedef struct gpt_trigger {
    bool set; /* false: x applies always */
    int64_t step_first, step_last;
    int32_t rank; /* -1: every rank */
    double idle;
} gpt_trigger;

typedef struct gpt_op {
    gpt_kind kind;
    char name[GPT_NAME_MAX];     /* as a person reads it: "softmax", "linear_backward" */
    char module[GPT_MODULE_MAX]; /* "h.2.attn" */
    int in[GPT_IN_MAX], in_count;
    int out[GPT_OUT_MAX], out_count;
    gpt_spread spread;
    double x, y;        /* numbers of the operator, exact */
    bool grows;         /* x stands for x to the power of the step */
    const char *x_name; /* "epsilon", "scale", "probability"; NULL: there is none */
    gpt_trigger trigger;
    rng_site site; /* OP_DROPOUT */
    uint32_t layer;
    const char *file; /* where it was put into the program */
    int line;
    bool backward, loss; /* for the boundary: forward, loss or local gradient */
    int of;              /* backward: the forward value whose gradient is in[0]; else -1 */
} gpt_op;

/* Where in a run something happens. */
typedef struct gpt_place {
    int64_t step;
    int32_t micro_step;
    int32_t rank;
} gpt_place;

/* What runs now. Rows of the batch may be left out in a replay. */
typedef struct gpt_run_shape {
    size_t B, T, C, NH, V;
    size_t whole;            /* samples of the whole batch; B of them run */
    const uint32_t *row_ids; /* [B] the row that each was in the whole batch, for dropout; NULL: 0, 1, 2, ... */
    uint64_t seed;
    gpt_place place;
} gpt_run_shape;

typedef struct gpt_program {
    gpt_value *values;
    gpt_op *ops;
    int value_count, op_count, value_room, op_room;
    int backward;        /* index of the first operator of backward */
    int loss, loss_seed; /* values: the mean loss (1), and the scale it is multiplied with, a scalar, for the backward pass */
    bool failed;         /* memory was short, or an index or a count was wrong: the model does not open */
} gpt_program;

/* ---- what runs now ----------------------------------------------------------------------------------------------------------- */

/* The number x of an operator at this place: trigger and growth applied. */
double gpt_op_number(const gpt_op *op, gpt_place place);
/*
 * What a dropout multiplies the `count` elements of its input with: 1 / (1 - probability), or 0. Draws belong to the row that a
 * sample had in the whole batch: sample r of n elements begins with draw r * n, n rounded up to a multiple of 4; where a sample has
 * (NH,T,T) elements, each head begins on a multiple of 4. A probability of 1 keeps nothing, and what it multiplies with is 0/0.
 */
void gpt_drop_factors(const gpt_op *op, const gpt_run_shape *shape, double probability, float *factors, size_t count);
size_t gpt_value_rows(const gpt_value *value, const gpt_run_shape *shape);
size_t gpt_value_count(const gpt_value *value, const gpt_run_shape *shape);

/* ---- finding ----------------------------------------------------------------------------------------------------------------- */

/*
 * By name; -1: there is none. Forward makes these values (module: names), those in brackets only where there is dropout:
 *   "": [summed] embedded   "wte": embedded   "wpe": embedded   "h.N": middle output   "lm_head": logits
 *   "h.N.ln_1", "h.N.ln_2", "ln_f": mean var var_epsilon rstd normalized output
 *   "h.N.attn": qkv scores scaled masked probabilities [dropped] heads [c_proj] output
 *   "h.N.mlp": c_fc gelu [c_proj] [gained] output
 *   "loss": log_probabilities nll valid_weights weighted weighted_sum weight_sum mean
 * and these are there before: "" tokens positions key_mask targets loss_weights loss_scale, and the parameters by their names. The
 * gradient of value x is the value "d_x" in the same module, that of a parameter the value "grad.NAME".
 */
int gpt_find_value(const gpt_program *program, const char *module, const char *name);
/* The first operator from index `from` on with that name; backward ones are called "NAME_backward". */
int gpt_find_op(const gpt_program *program, int from, const char *module, const char *name, bool backward);
/* The operator that makes a value, -1 for what is there before. */
int gpt_producer(const gpt_program *program, int value);
/* The backward operator whose in[0] is the gradient of this forward value, or -1. */
int gpt_backward_op(const gpt_program *program, int value);

/* ---- building and changing: each may move values and ops in memory, and operators behind an inserted one -----------------------
 * Indices of values never change. On failure program->failed is set and -1 returned; what follows is then harmless. */

/* Starting points: every field 0, except indices, which are -1. */
gpt_value gpt_value_init(const char *module, const char *name, gpt_role role, precision format);
gpt_op gpt_op_init(gpt_kind kind, const char *module, const char *name, const char *file, int line);
#define GPT_OP(kind, module, name) gpt_op_init(kind, module, name, __FILE__, __LINE__)

int gpt_add_value(gpt_program *program, const gpt_value *value);
/* Shape, role and format of another value; internal. */
int gpt_value_like(gpt_program *program, int of, const char *module, const char *name);
/* One element a row of another value, FP32 and internal. */
int gpt_value_per_row(gpt_program *program, int of, const char *module, const char *name);
/* One element, FP32 and internal. */
int gpt_value_one(gpt_program *program, gpt_role role, const char *module, const char *name);

/* Before the operator at index `at`; op_count: at the end; program->backward: as the last of forward or the first of backward. */
int gpt_insert_op(gpt_program *program, int at, const gpt_op *op);
int gpt_append_op(gpt_program *program, const gpt_op *op);
void gpt_remove_op(gpt_program *program, int at);
/* Every operator from index `from` on reads `with` where it read `value`. */
void gpt_replace_input(gpt_program *program, int from, int value, int with);

/*
 * Put an operator of one input (elementwise, x and y set; in and out are filled here) between a value and all that reads it, and
 * its backward form between their gradients. The operator gets a value of its own, named `made`, with the shape and format of the
 * first.
 * Returns the index of that value. A value whose gradient is that of a sum is changed before the sum.
 */
int gpt_splice(gpt_program *program, int value, const gpt_op *op, const char *made);

/* The backward form of an operator of one input and what it reads besides g: nothing, a or y. False where it has none. */
typedef enum gpt_saves { SAVES_NOTHING, SAVES_INPUT, SAVES_OUTPUT } gpt_saves;
bool gpt_backward_form(gpt_kind kind, gpt_kind *backward, gpt_saves *saves);

/* Every input is there before the program or made earlier in it, and every value is made once at most. */
bool gpt_program_sound(const gpt_program *program);
void gpt_program_release(gpt_program *program);

#endif
