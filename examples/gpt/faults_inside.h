/*
 * faults_inside.h: what the files of the catalogue share.
 *   faults.c          reading a fault's name and keys, the list, and which hook calls what
 *   faults_table.c    the catalogue
 *   faults_branch.c   putting a small expression into the program, with its backward pass
 *   faults_forward.c faults_backward.c faults_healthy.c   changes of the program
 *   faults_data.c     changes of the batch, the state, gradients and constants
 */
#ifndef GPT_FAULTS_INSIDE_H
#define GPT_FAULTS_INSIDE_H

#include "faults.h"

extern const fault_row FAULT_ROWS[];
extern const size_t FAULT_ROW_COUNT;

/* What the hooks do for a fault: fault_row.how. */
enum {
    HOW_NOTHING,
    HOW_LABELS_IGNORED,
    HOW_LABELS_MOSTLY_IGNORED,
    HOW_LABEL_UNKNOWN,
    HOW_WEIGHTS_ZERO,
    HOW_WEIGHTS_FEW,
    HOW_WEIGHT_NAN,
    HOW_WEIGHT_INF,
    HOW_WEIGHTS_HUGE,
    HOW_TOKEN_UNKNOWN,
    HOW_POSITION_UNKNOWN,
    HOW_POSITIONS_PACKED,
    HOW_NO_KEYS,
    HOW_LEFT_PADDING,
    HOW_ONE_KEY,
    HOW_BUFFER_ZERO,
    HOW_BUFFER_INF,
    HOW_BUFFER_NAN,
    HOW_PARAMETER_NAN,
    HOW_PARAMETER_FLIP,
    HOW_PARAMETER_ZEROS,
    HOW_MOMENT_INF,
    HOW_MOMENT_NEGATIVE,
    HOW_MOMENT_NAN,
    HOW_MOMENT_TINY,
    HOW_SCALER,
    HOW_SCALE_INF,
    HOW_SCALE_ZERO,
    HOW_STORE,
    HOW_LOCAL_HUGE,
    HOW_LOCAL_HALF,
    HOW_LOCAL_LARGE,
    HOW_REDUCED_NAN,
    HOW_REDUCED_RACE,
    HOW_FLIP_ONCE,
    HOW_FLIP_DEVICE,
    HOW_RACE,
    HOW_TAIL,
    HOW_NORM_SINGLE,
    HOW_CLIP_NO_NORM,
    HOW_ADAM_HALF,
    HOW_ADAM_NO_EPSILON,
    HOW_BIAS_CORRECTION,
    HOW_RATE_NAN,
    HOW_RATE_HUGE,
    HOW_RATE_ZERO,
    HOW_LEAVES_OUT
};

/* Whether this is the step and rank. */
bool fault_is_on(const fault *f, int64_t step, int32_t rank);
/* The number x for the fault's step and rank, `idle` everywhere else. */
void fault_trigger(const fault *f, gpt_op *op, double x, double idle);
/* "h.N" and what follows: ".mlp". The layer is the fault's, or the middle one. */
typedef struct fault_name {
    char text[GPT_MODULE_MAX];
} fault_name;
fault_name fault_module(const fault *f, const gpt_config *config, const char *part);
/* A value of the fault's block, and one of the rest. */
int fault_value(const fault *f, const gpt_program *program, const gpt_config *config, const char *part, const char *name);
size_t fault_layer(const fault *f, size_t layers);

/* ---- an expression of one value ---------------------------------------------------------------------------------------------- */

enum { BRANCH_MAX = 24 };

/*
 * Operators that read one value of the program and come to one value of the same shape, which takes its place for all who read it
 * (between) or is made in the place of what one operator made of it (instead). The backward pass of all of them is put in as well.
 * branch_between or branch_instead; branch_one, branch_number, ...; branch_end.
 */
typedef struct branch {
    gpt_program *program;
    const fault *fault;
    const char *file;
    int line;
    char module[GPT_MODULE_MAX];
    precision format; /* of all that is made */
    bool straight;    /* backward passes the gradient on as it is: the forward expression only is put in */
    int x, made;      /* what is read, and what the expression stands for */
    gpt_op nodes[BRANCH_MAX];
    int count;
} branch;

branch branch_between(gpt_program *program, const fault *f, int value, const char *file, int line);
branch branch_instead(gpt_program *program, const fault *f, int value, const char *file, int line);
#define BETWEEN(program, f, value) branch_between(program, f, value, __FILE__, __LINE__)
#define INSTEAD(program, f, value) branch_instead(program, f, value, __FILE__, __LINE__)
/* Each returns the value that is made. */
int branch_one(branch *b, gpt_kind kind, int in, const char *made);
int branch_row(branch *b, gpt_kind kind, int in, const char *made); /* one element a row */
int branch_number(branch *b, gpt_kind kind, int in, const char *x_name, double x, const char *made);
/* The same, with the number x on the fault's step and rank only. */
int branch_number_then(branch *b, gpt_kind kind, int in, const char *x_name, double x, double idle, const char *made);
int branch_clamp(branch *b, int in, double low, double high, const char *made);
int branch_two(branch *b, gpt_kind kind, gpt_spread spread, int a, int c, const char *made);
int branch_where_less(branch *b, int c, double x, int then, int otherwise, const char *made);
/* Variance of each row about `mean`, with the divisor K - correction. */
int branch_variance(branch *b, int in, int mean, double correction, double idle, const char *made);
void branch_end(branch *b, int result);
/* One operator with a number, forward and backward, between a value and its readers. */
void fault_splice(gpt_program *program, const fault *f, int value, gpt_kind kind, double x, double idle, const char *file,
                  int line);
#define SPLICE(program, f, value, kind, x, idle) fault_splice(program, f, value, kind, x, idle, __FILE__, __LINE__)
typedef void fault_alter(const fault *f, gpt_program *program, const gpt_config *config);
/* Forward: wrong in FP32 already. */
fault_alter alter_temperature, alter_softmax_no_max, alter_variance_cancel, alter_norm_no_epsilon, alter_norm_half_epsilon,
    alter_l2_norm, alter_exp_ratio, alter_log_of_softmax, alter_group_std, alter_dropout_all, alter_fp8_amax, alter_table,
    alter_logsumexp_no_max, alter_entropy, alter_swallowed_then_real, alter_inf_then_nan;
/* Forward: too large for fp16. */
fault_alter alter_scores_range, alter_mlp_range, alter_residual_range, alter_logits_range, alter_embedding_range,
    alter_gelu_square_range;
/* Backward. */
fault_alter alter_reciprocal_where, alter_nan_to_num, alter_softplus_where, alter_norm_slope, alter_norm_clamp_late,
    alter_safe_division, alter_clamp_log1p, alter_gradient_range, alter_norm_backward_range, alter_accumulate_range,
    alter_zero_gradient;
/* Healthy. */
fault_alter alter_where_swallows, alter_gelu_cube, alter_large_and_back, alter_clamp_saturates, alter_subnormal, alter_signed_zero,
    alter_softmax_sharp, alter_one_over_inf, alter_norm_constant_row, alter_l2_norm_safe, alter_softplus_safe, alter_small_gradient;
/* As a person reads it: "exp". */
const char *fault_op_name(gpt_kind kind);

#endif
