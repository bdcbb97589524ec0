/*
 * ops_bench.h: a few values with memory of their own, on which one operator runs, and the comparison of its backward form with
 * finite differences of the forward one. Included by the tests of operators, each of which is one file.
 */
#ifndef GPT_OPS_BENCH_H
#define GPT_OPS_BENCH_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops.h"

enum { VALUES = 12, ROOM = 1024 };

/* A few values with memory of their own, and the shape in which operators run. */
typedef struct bench {
    gpt_value values[VALUES];
    float data[VALUES][ROOM];
    float scratch[ROOM];
    gpt_run_shape shape;
    int count;
} bench;

static bool covered[OP_KINDS];
static uint32_t random_state;

static float random_between(float low, float high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (high - low) * ((float)(random_state >> 8) / 16777216.0f);
}

static void clear(bench *b)
{
    memset(b, 0, sizeof *b);
    b->shape = (gpt_run_shape){.B = 2, .T = 5, .C = 6, .NH = 2, .V = 7, .whole = 2, .seed = 1, .place = {3, 0, 1}};
    random_state = 12345u;
}

static int add(bench *b, size_t rows, size_t columns, float low, float high)
{
    gpt_value *v = &b->values[b->count];
    assert_true(b->count < VALUES && rows * columns <= ROOM);
    *v = gpt_value_init("m", "v", ROLE_ACTIVATION, PRECISION_FP32);
    v->rows = rows;
    v->columns = columns;
    v->data = b->data[b->count];
    for (size_t i = 0; i < rows * columns; i++) b->data[b->count][i] = random_between(low, high);
    return b->count++;
}

/* -1: one input or output less. */
static gpt_op operator_of(gpt_kind kind, int in_0, int in_1, int in_2, int out_0, int out_1)
{
    gpt_op op = GPT_OP(kind, "m", "op");
    const int in[3] = {in_0, in_1, in_2}, out[2] = {out_0, out_1};
    while (op.in_count < 3 && in[op.in_count] >= 0) {
        op.in[op.in_count] = in[op.in_count];
        op.in_count++;
    }
    while (op.out_count < 2 && out[op.out_count] >= 0) {
        op.out[op.out_count] = out[op.out_count];
        op.out_count++;
    }
    return op;
}

static void run(bench *b, const gpt_op *op)
{
    assert_true(gpt_op_scratch(op, &b->shape, b->values) <= ROOM);
    covered[op->kind] = true;
    gpt_op_run(op, &b->shape, b->values, b->scratch);
}

static size_t count_of(const bench *b, int value)
{
    return b->values[value].rows * b->values[value].columns;
}

static bool is_nan_bits(float x)
{
    return (float_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

/* sum of weight * output: one number, whose slopes are what backward makes when g holds the weights. */
static double weighted(bench *b, const gpt_op *forward, int g)
{
    double sum = 0.0;
    run(b, forward);
    for (size_t i = 0; i < count_of(b, g); i++) sum += (double)b->data[g][i] * (double)b->data[forward->out[0]][i];
    return sum;
}

static double slope(bench *b, const gpt_op *forward, int g, float *x)
{
    const float start = *x, h = 0.01f * (1.0f + fabsf(start));
    double at[4];
    for (int k = 0; k < 4; k++) {
        const float steps[4] = {-2.0f, -1.0f, 1.0f, 2.0f};
        *x = start + steps[k] * h;
        at[k] = weighted(b, forward, g);
    }
    *x = start;
    return (at[0] - 8.0 * at[1] + 8.0 * at[2] - at[3]) / (12.0 * (double)h);
}

/* The gradient that backward left in value `d`, against the slopes along each element of forward's input. */
static void check_slopes(bench *b, const gpt_op *forward, int input, int g, int d)
{
    for (size_t i = 0; i < count_of(b, forward->in[input]); i++) {
        double found = (double)b->data[d][i], expected = slope(b, forward, g, &b->data[forward->in[input]][i]);
        if (!(fabs(found - expected) <= 1e-3 * (1.0 + fabs(expected))))
            fail_msg("kind %d, input %d, element %zu: gradient %g, slope %g", (int)forward->kind, input, i, found, expected);
    }
    run(b, forward);
}

/* Whether test_layers.c runs a kind; test_ops.c runs the others. */
static inline bool of_layers(int kind)
{
    switch (kind) {
    case OP_EMBEDDING:
    case OP_NORMALIZE:
    case OP_AFFINE:
    case OP_LINEAR:
    case OP_SCORES:
    case OP_MASK:
    case OP_HEADS:
    case OP_NLL:
    case OP_VALID:
    case OP_MASK_BACKWARD:
    case OP_LAYER_NORM_BACKWARD:
    case OP_LINEAR_BACKWARD:
    case OP_SCORES_BACKWARD:
    case OP_HEADS_BACKWARD:
    case OP_JOIN:
    case OP_EMBEDDING_BACKWARD:
    case OP_NLL_BACKWARD: return true;
    default: return false;
    }
}

static void assert_covered(bool layers)
{
    for (int kind = 0; kind < OP_KINDS; kind++)
        if (of_layers(kind) == layers && !covered[kind]) fail_msg("kind %d has no test", kind);
}

#endif
