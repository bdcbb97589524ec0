/* faults_healthy.c: changes of the program for which nothing may be reported. See faults_forward.c. */
#include "faults_inside.h"

#include <stdio.h>

/* 1e30 for a moment: large, finite, and brought back. */
void alter_large_and_back(const fault *f, gpt_program *p, const gpt_config *g)
{
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "output"));
    int large = branch_number(&b, OP_MUL_NUMBER, b.x, "factor", 1e30, "large");
    branch_end(&b, branch_number(&b, OP_MUL_NUMBER, large, "factor", 1e-30, "back"));
}

/* A clamp that holds everything at its bounds: finite, and its gradient is 0. */
void alter_clamp_saturates(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 1000.0, 0.0);
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "c_fc_raised"));
    branch_end(&b, branch_clamp(&b, b.x, -8.0, 8.0, "bounded"));
}

/* Activations that are subnormal numbers. */
void alter_subnormal(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "output"), OP_MUL_NUMBER, 1e-38, 1.0);
}

/* -0 everywhere. */
void alter_signed_zero(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "output"), OP_MUL_NUMBER, -0.0, 1.0);
}

/* Scores so far apart that a softmax is 1 at one key and underflows to 0 at the others. */
void alter_softmax_sharp(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".attn", "scaled"), OP_MUL_NUMBER, 1e6, 1.0);
}

/* 1 / (1 + exp(200)): the Inf is an honest one, its reciprocal is 0, and backward multiplies finite
 * numbers alone (it is straight). */
void alter_one_over_inf(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, ".mlp", "c_fc"), OP_ADD_NUMBER, 200.0, 0.0);
    branch b = BETWEEN(p, f, fault_value(f, p, g, ".mlp", "c_fc_raised"));
    b.straight = true;
    int denominator = branch_number(&b, OP_ADD_NUMBER, branch_one(&b, OP_EXP, b.x, "exponential"), "one", 1.0, "denominator");
    branch_end(&b, branch_two(&b, OP_ADD, SPREAD_SAME, b.x, branch_one(&b, OP_RECIPROCAL, denominator, "share"), "sum"));
}

/* A norm of rows that do not vary, with its epsilon. */
void alter_norm_constant_row(const fault *f, gpt_program *p, const gpt_config *g)
{
    SPLICE(p, f, fault_value(f, p, g, "", "middle"), OP_MUL_NUMBER, 0.0, 1.0);
}
