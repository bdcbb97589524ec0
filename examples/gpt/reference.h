/*
 * reference.h: every operator of the program once more, in double.
 *
 * It is what the operator *is*: plain loops and the C library's exp and log, written from the definitions in program.h and not from
 * the kernels that train, so that the two can be compared. Nothing is rounded to a format, and a constant is taken as it was
 * written: an epsilon of 1e-8 is 1e-8 here, whatever fp16 makes of it. What has no value in mathematics has none here either: 0/0
 * is NaN, log 0 is -Inf, Inf - Inf is NaN, and a softmax over nothing but -Inf is NaN. So a number that is bad in training and good
 * here was lost to the format, and one that is bad in both was never there.
 */
#ifndef GPT_REFERENCE_H
#define GPT_REFERENCE_H

#include "program.h"

#include <stdint.h>
#include <string.h>

/*
 * op      one of the program, `number` its effective x (gpt_op_number): that of the step and rank, fault or not.
 * shape   what ran: the rows, and the place and seed that a dropout draws from. values: those of the program.
 * in      dense arrays, in_counts elements each; integers (tokens, targets) come as whole numbers. out: to be filled.
 * Returns 0; or -1 when the operator is not known here, or when counts do not fit its definition: then nothing is written.
 */
int reference_run(const gpt_op *op, double number, const gpt_run_shape *shape, const gpt_value *values, const double *const *in,
                  const uint64_t *in_counts, double *const *out, const uint64_t *out_counts);

/* Judged by bits: a compiler flag cannot delete that. Not finite, and NaN. */
static inline uint64_t reference_magnitude(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffffffffffu;
}
static inline int reference_is_bad(double x)
{
    return reference_magnitude(x) >= 0x7ff0000000000000u;
}
static inline int reference_is_nan(double x)
{
    return reference_magnitude(x) > 0x7ff0000000000000u;
}

/* For the backward half, in reference_backward.c. */
typedef struct reference_call {
    const gpt_op *op;
    double x;
    const gpt_run_shape *shape;
    precision format; /* of the first output */
    size_t R, K;      /* of the first input, or of what the gradient belongs to */
    const double *const *in;
    double *const *out;
    const uint64_t *in_counts, *out_counts;
} reference_call;
typedef void reference_function(const reference_call *call);
/* NULL: not a backward operator. */
reference_function *reference_backward(gpt_kind kind);
/* Element of b that belongs to element i of a. */
size_t reference_spread(const reference_call *call, size_t i);
/* Forward and backward are the same: a product with 0 or 1 / (1 - p). */
void reference_dropout(const reference_call *call);

#endif
