/*
 * faults_forward.c: changes of the program that show in the forward pass. Each tells what the mistake is and how its numbers come
 * about. What brings the data to the point of failing is an operator with a number that waits for its step; until then it does
 * nothing. Offsets are preferred to factors: they do not depend on what the weights happen to be.
 */
#include "faults_inside.h"

#include <math.h>
#include <stdio.h>

static int add_buffer(gpt_program *p, const char *module, const char *name, gpt_role role, size_t columns)
{
    gpt_value value = gpt_value_init(module, name, role, PRECISION_FP32);
    value.columns = value.shape[0] = columns;
    value.internal = true;
    return gpt_add_value(p, &value);
}

/* ---- attention --------------------------------------------------------------------------------------------------------------- */

/* Scores are divided by a temperature that the schedule let fall to 0. */
void alter_temperature(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".attn", "scaled"));
    int temperature = add_buffer(p, b.module, "temperature", ROLE_SCALAR, 1);
    branch_end(&b, branch_two(&b, OP_DIV, SPREAD_ONE, b.x, temperature, "tempered"));
}

/*
 * Softmax as exp / sum, without taking off the largest first. A bias of 200 on all scores is nothing to a softmax; exp(200) is
 * 7e86.
 */
void alter_softmax_no_max(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = INSTEAD(p, f, fault_value(f, p, g, ".attn", "probabilities"));
    int e = branch_one(&b, OP_EXP, b.x, "exponentials");
    branch_end(&b, branch_two(&b, OP_DIV, SPREAD_ROW, e, branch_row(&b, OP_ROW_SUM, e, "exponential_sum"), "shares"));
    SPLICE(p, f, fault_value(f, p, g, ".attn", "scaled"), OP_ADD_NUMBER, 200.0, 0.0);
}

/* An entropy penalty p log(p + epsilon) whose epsilon got lost: log 0 where the mask left a probability of 0. */
void alter_entropy(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".attn", "probabilities"));
    int safe = branch_number_then(&b, OP_ADD_NUMBER, b.x, "epsilon", 0.0, 1e-9, "safe");
    int product = branch_two(&b, OP_MUL, SPREAD_SAME, b.x, branch_one(&b, OP_LOG, safe, "log"), "entropy");
    branch_end(&b, branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, product, "weight", 1e-3, "penalty"),
                              "penalised"));
}

/* Heads divided by their norm, with no epsilon at all; a sample whose heads are all 0 gives 0/0. */
void alter_l2_norm(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".attn", "heads"), OP_MUL_NUMBER, 0.0, 1.0);
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".attn", "heads_scaled"));
    int squares = branch_row(&b, OP_ROW_SUM, branch_one(&b, OP_SQUARE, b.x, "squares"), "square_sum");
    branch_end(&b, branch_two(&b, OP_DIV, SPREAD_ROW, b.x, branch_one(&b, OP_SQRT, squares, "length"), "unit"));
}

/* No 1/sqrt(d) and queries that grew: the dot product leaves fp16 before any softmax can help. */
void alter_scores_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".attn", "qkv"), OP_MUL_NUMBER, 1000.0, 1.0);
}

/* ---- norms ------------------------------------------------------------------------------------------------------------------- */

/* Variance as E[x^2] - E[x]^2. With a mean of 30000 both are 9e8, whose last bit is 64: the difference comes out below 0. */
void alter_variance_cancel(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, "", "middle"), OP_ADD_NUMBER, 30000.0, 0.0);
    int at = gpt_producer(p, fault_value(f, p, g, ".ln_2", "var"));
    int mean = at < 0 ? -1 : p->ops[at].in[1];
    branch b = INSTEAD(p, f, fault_value(f, p, g, ".ln_2", "var"));
    int of_squares = branch_row(&b, OP_ROW_MEAN, branch_one(&b, OP_SQUARE, b.x, "squares"), "square_mean");
    branch_end(&b, branch_two(&b, OP_SUB, SPREAD_SAME, of_squares, branch_one(&b, OP_SQUARE, mean, "mean_square"), "difference"));
}

static void set_epsilon(const fault *f, gpt_program *p, const gpt_config *g, double epsilon)
{
    int at = gpt_producer(p, fault_value(f, p, g, ".ln_2", "var_epsilon"));
    if (at < 0) p->failed = true;
    else p->ops[at].x = epsilon;
}

/* A norm without epsilon meets rows that do not vary: 1/sqrt(0). */
void alter_norm_no_epsilon(const fault *f, gpt_program *p, const gpt_config *g)
{
    set_epsilon(f, p, g, 0.0);
    SPLICE(p, f, fault_value(f, p, g, "", "middle"), OP_MUL_NUMBER, 0.0, 1.0);
}

/* A norm whose statistics are in the format of the model: an epsilon of 1e-8 is 0 in fp16. */
void alter_norm_half_epsilon(const fault *f, gpt_program *p, const gpt_config *g)
{
    static const char *const NAMES[] = {"mean", "var", "var_epsilon", "rstd"};
    set_epsilon(f, p, g, 1e-8);
    SPLICE(p, f, fault_value(f, p, g, "", "middle"), OP_MUL_NUMBER, 0.0, 1.0);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        int value = fault_value(f, p, g, ".ln_2", NAMES[i]);
        if (value >= 0) p->values[value].format = g->format;
    }
}

/* ---- MLP --------------------------------------------------------------------------------------------------------------------- */

/* x exp(x) / (1 + exp(x)): right for any x on paper; at 200 both are Inf. */
void alter_exp_ratio(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = INSTEAD(p, f, fault_value(f, p, g, ".mlp", "gelu"));
    int e = branch_one(&b, OP_EXP, b.x, "exponential");
    int gate = branch_two(&b, OP_DIV, SPREAD_SAME, e, branch_number(&b, OP_ADD_NUMBER, e, "one", 1.0, "denominator"), "gate");
    branch_end(&b, branch_two(&b, OP_MUL, SPREAD_SAME, b.x, gate, "gated"));
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 200.0, 0.0);
}

/* A squared activation: 1e21 is a number, its square is not. The Inf becomes NaN only in the next norm. */
void alter_inf_then_nan(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = INSTEAD(p, f, fault_value(f, p, g, ".mlp", "gelu"));
    branch_end(&b, branch_one(&b, OP_SQUARE, b.x, "squared"));
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 1e21, 0.0);
}

/* Inverted dropout written as x * mask / keep, with a probability of 1: 0/0. */
void alter_dropout_all(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "output"));
    int keep = add_buffer(p, b.module, "keep", ROLE_SCALAR, 1);
    int dropped = branch_number_then(&b, OP_MUL_NUMBER, b.x, "mask", 0.0, 1.0, "dropped");
    branch_end(&b, branch_two(&b, OP_DIV, SPREAD_ONE, dropped, keep, "rescaled"));
}

/* To e4m3 and back with one scale a row, 448 / amax: a row of zeros has no scale. Backward goes
 * straight through, as it does there. */
void alter_fp8_amax(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "gelu"), OP_MUL_NUMBER, 0.0, 1.0);
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "gelu_scaled"));
    b.straight = true;
    int amax = branch_row(&b, OP_ROW_MAX, branch_one(&b, OP_SQRT, branch_one(&b, OP_SQUARE, b.x, "squares"), "magnitude"), "amax");
    int scale =
        branch_number(&b, OP_MUL_NUMBER, branch_one(&b, OP_RECIPROCAL, amax, "amax_inverse"), "fp8_max", 448.0, "fp8_scale");
    int packed = branch_clamp(&b, branch_two(&b, OP_MUL, SPREAD_ROW, b.x, scale, "fp8_scaled"), -448.0, 448.0, "fp8");
    int back = branch_number(&b, OP_MUL_NUMBER, amax, "fp8_max_inverse", 1.0 / 448.0, "fp8_scale_inverse");
    branch_end(&b, branch_two(&b, OP_MUL, SPREAD_ROW, packed, back, "unpacked"));
}

/*
 * The GELU written out in fp16 with sigmoid: x s(1.5958 (x + 0.044715 x^3)). Forward hides the Inf of x^2 beyond 256 (a sigmoid of
 * Inf is 1); backward multiplies it with the slope of the sigmoid, which is 0.
 */
static void write_out_gelu(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = INSTEAD(p, f, fault_value(f, p, g, ".mlp", "gelu"));
    int cube = branch_two(&b, OP_MUL, SPREAD_SAME, branch_one(&b, OP_SQUARE, b.x, "square"), b.x, "cube");
    int inner =
        branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, cube, "cubic", 0.044715, "cubic"), "inner");
    int gate = branch_one(&b, OP_SIGMOID, branch_number(&b, OP_MUL_NUMBER, inner, "slope", 1.5957691216057308, "argument"), "gate");
    branch_end(&b, branch_two(&b, OP_MUL, SPREAD_SAME, b.x, gate, "gated"));
}

void alter_gelu_square_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    write_out_gelu(f, p, g);
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 1000.0, 0.0);
}

/* Healthy: x^3 beyond 40 leaves fp16, x^2 does not, and backward does not read the cube. */
void alter_gelu_cube(const fault *f, gpt_program *p, const gpt_config *g)
{
    write_out_gelu(f, p, g);
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 100.0, 0.0);
}

/* ---- range in fp16 ----------------------------------------------------------------------------------------------------------- */

/* The linear that makes `value` reads a weight that has grown by the factor. */
static void grow_weight(const fault *f, gpt_program *p, int value, double factor)
{
    int at = gpt_producer(p, value);
    if (at < 0 || p->ops[at].kind != OP_LINEAR) {
        p->failed = true;
        return;
    }
    int weight = p->ops[at].in[1];
    char name[GPT_NAME_MAX], module[GPT_MODULE_MAX];
    snprintf(name, sizeof name, "%.*s_grown", GPT_NAME_MAX - 7, p->values[weight].name);
    snprintf(module, sizeof module, "%s", p->values[weight].module);
    gpt_op op = GPT_OP(OP_MUL_NUMBER, module, "mul");
    op.x_name = "factor";
    fault_trigger(f, &op, factor, 1.0);
    op.in[op.in_count++] = weight;
    op.out[op.out_count++] = gpt_value_like(p, weight, module, name);
    if (gpt_insert_op(p, at, &op) >= 0) p->ops[at + 1].in[1] = op.out[0];
}

/* c_fc sums 64 products of about 400 x 0.02 x 1000: 64000 is one standard deviation of what comes out. */
void alter_mlp_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    grow_weight(f, p, fault_value(f, p, g, ".mlp", "c_fc"), 400.0);
    SPLICE(p, f, fault_value(f, p, g, ".ln_2", "output"), OP_MUL_NUMBER, 1000.0, 1.0);
}

void alter_logits_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    grow_weight(f, p, gpt_find_value(p, "lm_head", "logits"), 400.0);
    SPLICE(p, f, gpt_find_value(p, "ln_f", "output"), OP_MUL_NUMBER, 1000.0, 1.0);
}

/* The stream and the branch that joins it are 40000 each. */
void alter_residual_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, "", "middle"), OP_ADD_NUMBER, 40000.0, 0.0);
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "output"), OP_ADD_NUMBER, 40000.0, 0.0);
}

/* Embeddings are multiplied with a constant that was meant for another width. */
void alter_embedding_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    SPLICE(p, f, gpt_find_value(p, "", "embedded"), OP_MUL_NUMBER, 1e7, 1.0);
}

/* ---- tables and loss --------------------------------------------------------------------------------------------------------- */

/* A table (rotary angles, a scale for each channel) is kept beside the parameters. */
void alter_table(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, gpt_find_value(p, "", "embedded"));
    int table = add_buffer(p, "", "table", ROLE_BUFFER, g->channels);
    branch_end(&b, branch_two(&b, OP_MUL, SPREAD_COLUMN, b.x, table, "turned"));
}

/* log(softmax(x)) in two operators: with logits 140 apart a probability is 0 in FP32, and 1e-61 in FP64. */
void alter_log_of_softmax(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    branch b = INSTEAD(p, f, gpt_find_value(p, "loss", "log_probabilities"));
    branch_end(&b, branch_one(&b, OP_LOG, branch_one(&b, OP_SOFTMAX, b.x, "probabilities"), "log"));
    SPLICE(p, f, gpt_find_value(p, "lm_head", "logits"), OP_MUL_NUMBER, 300.0, 1.0);
}

/* log(sum(exp(x))) as it is written; logits of 200 are no trouble to the softmax that follows. */
void alter_logsumexp_no_max(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    SPLICE(p, f, gpt_find_value(p, "lm_head", "logits"), OP_ADD_NUMBER, 200.0, 0.0);
    branch b = BETWEEN(p, f, gpt_find_value(p, "lm_head", "logits_raised"));
    b.format = PRECISION_FP32;
    int sum = branch_row(&b, OP_ROW_SUM, branch_one(&b, OP_EXP, b.x, "exponentials"), "exponential_sum");
    branch_end(&b, branch_two(&b, OP_SUB, SPREAD_ROW, b.x, branch_one(&b, OP_LOG, sum, "logsumexp"), "normalised"));
}

/* The unbiased deviation of a group that has one member: 0/(1 - 1). */
void alter_group_std(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    branch b = BETWEEN(p, f, gpt_find_value(p, "loss", "nll"));
    int mean = branch_row(&b, OP_ROW_MEAN, b.x, "group_mean");
    int variance = branch_variance(&b, b.x, mean, 1.0, 0.0, "group_var");
    branch_end(&b, branch_two(&b, OP_ADD, SPREAD_SAME, b.x, variance, "with_spread"));
}

/* ---- two at once ------------------------------------------------------------------------------------------------------------- */

/*
 * Healthy by itself: the logarithm of what is negative is NaN, and is dropped by where, forward and backward (0 / x is 0).
 */
static void swallow(const fault *f, gpt_program *p, int value)
{
    branch b = BETWEEN(p, f, value);
    int log = branch_one(&b, OP_LOG, b.x, "log");
    int chosen = branch_where_less(&b, b.x, 0.01, b.x, log, "chosen");
    branch_end(&b,
               branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, chosen, "weight", 1e-3, "small"), "sum"));
}

void alter_where_swallows(const fault *f, gpt_program *p, const gpt_config *g)
{
    swallow(f, p, fault_value(f, p, g, ".mlp", "c_fc"));
}

/* A NaN that is dropped in the first block, and a real one later. */
void alter_swallowed_then_real(const fault *f, gpt_program *p, const gpt_config *g)
{
    alter_temperature(f, p, g);
    swallow(f, p, gpt_find_value(p, "h.0.mlp", "c_fc"));
}
