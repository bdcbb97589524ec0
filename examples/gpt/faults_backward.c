/* faults_backward.c: changes of the program whose forward pass is finite and whose gradients are not. See faults_forward.c. */
#include "faults_inside.h"

#include <stdio.h>

/* ---- forward drops it, backward does not ------------------------------------------------------------------------------------- */

/* p / p written as p * (1/p), with a where for p = 0, which the mask makes: forward takes the 0, backward has 0 * Inf. */
void alter_reciprocal_where(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".attn", "probabilities"));
    int safe = branch_number_then(&b, OP_ADD_NUMBER, b.x, "epsilon", 0.0, 1e-9, "safe");
    int product = branch_two(&b, OP_MUL, SPREAD_SAME, b.x, branch_one(&b, OP_RECIPROCAL, safe, "inverse"), "product");
    int chosen = branch_where_less(&b, b.x, 1e-4, b.x, product, "chosen");
    branch_end(&b,
               branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, chosen, "weight", 1e-3, "small"), "sum"));
}

/* sqrt of something that must not be negative, made quiet by nan_to_num: the slope of the root is NaN all the same. */
void alter_nan_to_num(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "c_fc"));
    int shifted =
        branch_number_then(&b, OP_ADD_NUMBER, branch_one(&b, OP_SQUARE, b.x, "square"), "offset", -100.0, 1e-3, "shifted");
    int quiet = branch_one(&b, OP_NAN_TO_NUM, branch_one(&b, OP_SQRT, shifted, "root"), "quiet");
    branch_end(&b,
               branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, quiet, "weight", 1e-3, "small"), "sum"));
}

/* Softplus with a where for large x. The branch that is not taken overflows: its gradient is 0 * Inf. */
static void softplus(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = INSTEAD(p, f, fault_value(f, p, g, ".mlp", "gelu"));
    int soft = branch_one(&b, OP_LOG1P, branch_one(&b, OP_EXP, b.x, "exponential"), "soft");
    branch_end(&b, branch_where_less(&b, b.x, 20.0, soft, b.x, "softplus"));
}

void alter_softplus_where(const fault *f, gpt_program *p, const gpt_config *g)
{
    softplus(f, p, g);
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 200.0, 0.0);
}

/* Healthy: exp(60) is large, and finite. */
void alter_softplus_safe(const fault *f, gpt_program *p, const gpt_config *g)
{
    softplus(f, p, g);
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 60.0, 0.0);
}

/* Division made safe after the fact: where(c == 0, x, x / c). Forward drops x / 0, backward has 0 / 0. */
void alter_safe_division(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "gelu"));
    int divisor = branch_number_then(&b, OP_MUL_NUMBER, branch_one(&b, OP_SIGMOID, b.x, "gate"), "factor", 0.0, 1.0, "divisor");
    int quotient = branch_two(&b, OP_DIV, SPREAD_SAME, b.x, divisor, "quotient");
    int safe = branch_where_less(&b, divisor, 1e-12, b.x, quotient, "safe");
    branch_end(&b,
               branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, safe, "weight", 1e-3, "small"), "sum"));
}

/* log(1 - p) with p kept below 1 - 1e-6, a bound that bf16 rounds to 1. Forward takes the other branch; the slope is 0/0. */
void alter_clamp_log1p(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    branch b = BETWEEN(p, f, gpt_find_value(p, "ln_f", "output"));
    int logit = branch_number_then(&b, OP_MUL_NUMBER, b.x, "factor", 30.0, 0.25, "logit");
    double bound = b.format == PRECISION_BF16 ? (double)round_bf16(1.0f - 1e-6f) : 1.0 - 1e-6;
    int share = branch_clamp(&b, branch_one(&b, OP_SIGMOID, logit, "share"), 1e-6, bound, "share_bounded");
    int loss = branch_one(&b, OP_LOG1P, branch_number(&b, OP_MUL_NUMBER, share, "sign", -1.0, "negative"), "log1p");
    int chosen = branch_where_less(&b, logit, 4.0, loss, logit, "chosen");
    branch_end(&b,
               branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_number(&b, OP_MUL_NUMBER, chosen, "weight", 1e-4, "small"), "sum"));
}

/* ---- the slope of a norm at zero --------------------------------------------------------------------------------------------- */

/* factor: what the heads are multiplied with on the fault's step. late: the epsilon is a clamp of the root, not a summand. */
static void norm_of_heads(const fault *f, gpt_program *p, const gpt_config *g, double factor, double inside, bool late)
{
    SPLICE(p, f, fault_value(f, p, g, ".attn", "heads"), OP_MUL_NUMBER, factor, 1.0);
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".attn", "heads_scaled"));
    int squares = branch_row(&b, OP_ROW_SUM, branch_one(&b, OP_SQUARE, b.x, "squares"), "square_sum");
    int root = branch_one(&b, OP_SQRT, branch_number(&b, OP_ADD_NUMBER, squares, "epsilon", inside, "radicand"), "length");
    int length = late ? branch_clamp(&b, root, 1e-6, 1e30, "length_bounded")
                      : branch_number(&b, OP_ADD_NUMBER, root, "epsilon", 1e-6, "length_epsilon");
    branch_end(&b, branch_two(&b, OP_DIV, SPREAD_ROW, b.x, length, "unit"));
}

/* The epsilon stands after the root: forward is 0 / 1e-6, the slope of the root at 0 is 0 / 0. */
void alter_norm_slope(const fault *f, gpt_program *p, const gpt_config *g)
{
    norm_of_heads(f, p, g, 0.0, 0.0, false);
}

void alter_norm_clamp_late(const fault *f, gpt_program *p, const gpt_config *g)
{
    norm_of_heads(f, p, g, 0.0, 0.0, true);
}

/* Healthy: the epsilon stands inside the root. */
void alter_l2_norm_safe(const fault *f, gpt_program *p, const gpt_config *g)
{
    norm_of_heads(f, p, g, 0.0, 1e-12, false);
}

/* ---- range in the backward pass ---------------------------------------------------------------------------------------------- */

/* Put an operator of one number before the backward operator of a forward value, on the gradient that it reads. */
static void before_backward(const fault *f, gpt_program *p, int value, gpt_op op, const char *made)
{
    int at = gpt_backward_op(p, value);
    if (at < 0) {
        p->failed = true;
        return;
    }
    int gradient = p->ops[at].in[0], out = gpt_value_like(p, gradient, op.module, made);
    op.backward = true;
    op.in[op.in_count++] = gradient;
    op.out[op.out_count++] = out;
    if (f) fault_trigger(f, &op, op.x, op.y);
    if (gpt_insert_op(p, at, &op) >= 0) p->ops[at + 1].in[0] = out;
}

static gpt_op numbered(gpt_kind kind, const char *module, const char *name, const char *x_name, double x, double y)
{
    gpt_op op = GPT_OP(kind, module, name);
    op.x_name = x_name;
    op.x = x;
    op.y = y;
    return op;
}

/* The gradient of the middle MLP is multiplied with a weight that was meant for a loss. */
void alter_gradient_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    fault_name module = fault_module(f, g, ".mlp");
    before_backward(f, p, fault_value(f, p, g, ".mlp", "output"),
                    numbered(OP_MUL_NUMBER, module.text, "mul_backward", "factor", 1e12, 1.0), "d_output_weighted");
}

/*
 * A norm of rows that hardly vary divides by sqrt(1e-5): what comes in at 400, the bound of a clipped gradient, goes out at 316
 * times as much. The sum of 400 over the rows, which is the gradient of the bias, still is a number of fp16.
 */
void alter_norm_backward_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    fault_name module = fault_module(f, g, ".ln_2");
    int value = fault_value(f, p, g, ".ln_2", "output");
    SPLICE(p, f, fault_value(f, p, g, "", "middle"), OP_MUL_NUMBER, 1e-3, 1.0);
    before_backward(f, p, value, numbered(OP_MUL_NUMBER, module.text, "mul_backward", "factor", 1e12, 1.0), "d_output_weighted");
    before_backward(NULL, p, value, numbered(OP_CLAMP, module.text, "clamp_backward", "min", -400.0, 400.0), "d_output_clipped");
}

/* Every gradient is 0 on that step: a loss weight that a schedule brought to 0. */
void alter_zero_gradient(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    before_backward(f, p, gpt_find_value(p, "lm_head", "logits"),
                    numbered(OP_MUL_NUMBER, "lm_head", "mul_backward", "factor", 0.0, 1.0), "d_logits_weighted");
}

/* Healthy: gradients that are subnormal in FP32, or 0. */
void alter_small_gradient(const fault *f, gpt_program *p, const gpt_config *g)
{
    (void)g;
    before_backward(f, p, gpt_find_value(p, "lm_head", "logits"),
                    numbered(OP_MUL_NUMBER, "lm_head", "mul_backward", "factor", 1e-37, 1.0), "d_logits_weighted");
}

/*
 * The gradient of one bias is 40000 or -40000 in each micro-step: a number of fp16. The sum of two of them is 80000, where they
 * agree in sign.
 */
void alter_accumulate_range(const fault *f, gpt_program *p, const gpt_config *g)
{
    fault_name module = fault_module(f, g, ".mlp");
    int gradient = gpt_find_value(p, module.text, "grad.c_fc.bias"), at = gpt_producer(p, gradient);
    if (gradient < 0 || at < 0) {
        p->failed = true;
        return;
    }
    gpt_op grow = numbered(OP_MUL_NUMBER, module.text, "mul_backward", "factor", 1e20, 1.0);
    gpt_op bound = numbered(OP_CLAMP, module.text, "clamp_backward", "min", -40000.0, 40000.0);
    gpt_value sum = p->values[gradient]; /* what is added to the gradient of the step is the last of the three */
    p->values[gradient].role = ROLE_GRADIENT;
    p->values[gradient].parameter = -1;
    snprintf(p->values[gradient].name, GPT_NAME_MAX, "d_c_fc.bias");
    fault_trigger(f, &grow, grow.x, grow.y);
    grow.backward = bound.backward = true;
    grow.in[grow.in_count++] = gradient;
    grow.out[grow.out_count++] = bound.in[bound.in_count++] = gpt_value_like(p, gradient, module.text, "d_c_fc.bias_weighted");
    bound.out[bound.out_count++] = gpt_add_value(p, &sum);
    gpt_insert_op(p, at + 1, &grow);
    gpt_insert_op(p, at + 2, &bound);
}
