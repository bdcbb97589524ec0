/*
 * Every operator in FP64 against the kernel that trains: on random numbers, in whole programs (dropout, left-out samples and all
 * the expressions that faults bring), and on numbers that have no result. FB_SEED=n draws others.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "faults.h"
#include "ops.h"
#include "reference.h"

enum { R = 6, K = 5, N = R * K, ELEMENTS_MAX = 65536 };

static bool covered[OP_KINDS];

static uint64_t seed_of_tests(void)
{
    const char *text = getenv("FB_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* ---- comparing --------------------------------------------------------------------------------------------------------------- */

static double *widened(const gpt_value *v, size_t count)
{
    double *wide = calloc(count, sizeof *wide);
    assert_non_null(wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = v->integers ? (double)((const int32_t *)v->data)[i] : (double)((const float *)v->data)[i];
    return wide;
}

/* NaN, Inf, -Inf: alike. */
static bool same_kind(double a, double b)
{
    if (reference_is_nan(a) || reference_is_nan(b)) return reference_is_nan(a) && reference_is_nan(b);
    return reference_is_bad(a) && reference_is_bad(b) && (a > 0.0) == (b > 0.0);
}

/*
 * Sums in FP32 are off by so many units of their largest part; a value of one operand is off by some units of itself. A format of
 * 16 bits rounds once more.
 */
static bool is_near(double kernel, double exact, double largest, precision format)
{
    double unit = format == PRECISION_FP16 ? 1.0 / 1024.0 : format == PRECISION_BF16 ? 1.0 / 128.0 : 1e-5;
    if (reference_is_bad(kernel) || reference_is_bad(exact)) return same_kind(kernel, exact);
    return fabs(kernel - exact) <= unit * fabs(exact) + 2e-6 * largest + (format == PRECISION_FP16 ? 6e-8 : 1e-37);
}

static double largest_of(const double *x, size_t count)
{
    double largest = 0.0;
    for (size_t i = 0; i < count; i++)
        if (!reference_is_bad(x[i]) && fabs(x[i]) > largest) largest = fabs(x[i]);
    return largest;
}

/* A sum of numbers of both signs is small beside them. */
static bool is_sum(gpt_kind kind)
{
    return kind == OP_ROW_SUM || kind == OP_ROW_MEAN || kind == OP_SUM || kind == OP_COLUMN_SUM;
}

static void compare(const char *what, const gpt_op *op, const gpt_value *made, const double *exact, size_t count, double largest)
{
    const float *x = made->data;
    for (size_t i = 0; x && i < count; i++) {
        if (is_near((double)x[i], exact[i], largest, made->format)) continue;
        fail_msg("%s: %s of %s (kind %d), element %zu of \"%s\": %.9g in the kernel, %.17g in FP64", what, op->name, op->module,
                 (int)op->kind, i, made->name, (double)x[i], exact[i]);
    }
}

/* What the operator made lies in its values. */
static void check_operator(const char *what, const gpt_op *op, const gpt_run_shape *shape, const gpt_value *values)
{
    double *in[GPT_IN_MAX] = {NULL}, *out[GPT_OUT_MAX] = {NULL};
    uint64_t in_counts[GPT_IN_MAX] = {0}, out_counts[GPT_OUT_MAX] = {0};
    for (int k = 0; k < op->in_count; k++) {
        in_counts[k] = gpt_value_count(&values[op->in[k]], shape);
        in[k] = widened(&values[op->in[k]], in_counts[k]);
    }
    for (int k = 0; k < op->out_count; k++) {
        out_counts[k] = gpt_value_count(&values[op->out[k]], shape);
        out[k] = malloc(out_counts[k] * sizeof *out[k]);
        assert_non_null(out[k]);
        for (size_t i = 0; i < out_counts[k]; i++) out[k][i] = 12345.0; /* what is not written shows */
    }
    if (reference_run(op, gpt_op_number(op, shape->place), shape, values, (const double *const *)in, in_counts, out, out_counts) !=
        0)
        fail_msg("%s: %s (kind %d) has no form in FP64", what, op->name, (int)op->kind);
    for (int k = 0; k < op->out_count; k++) {
        double largest = largest_of(is_sum(op->kind) ? in[0] : out[k], is_sum(op->kind) ? in_counts[0] : out_counts[k]);
        compare(what, op, &values[op->out[k]], out[k], out_counts[k], largest);
    }
    covered[op->kind] = true;
    for (int k = 0; k < op->in_count; k++) free(in[k]);
    for (int k = 0; k < op->out_count; k++) free(out[k]);
}

/* ---- in whole programs ------------------------------------------------------------------------------------------------------- */

static void hear(void *listener, const gpt_model *model, int op)
{
    check_operator(listener, &model->program.ops[op], &model->shape, model->program.values);
}

static void run_program(const char *what, faults *f, precision format, float dropout, bool leave_out)
{
    static const uint32_t ALL[3] = {0, 1, 2}, SOME[2] = {0, 2};
    int32_t tokens[36], targets[36];
    float weights[36], mask[36];
    gpt_config config = {.layers = 2,
                         .heads = 2,
                         .channels = 16,
                         .block = 12,
                         .batch = 3,
                         .dropout = dropout,
                         .activation_gain = 1.0f,
                         .format = format,
                         .seed = seed_of_tests(),
                         .alter = f ? faults_alter : NULL,
                         .alter_ctx = f};
    gpt_model *model = gpt_open(&config);
    gpt_place place = {4, 1, 1};
    char name[96];
    assert_non_null(model);
    snprintf(name, sizeof name, "%s", what);
    for (int i = 0; i < 36; i++) {
        tokens[i] = (i * 37 + (int)seed_of_tests()) % 256;
        targets[i] = i % 7 == 2 ? GPT_IGNORE : (i * 91) % 256;
        weights[i] = 0.5f + (float)(i % 4);
        mask[i] = i % 12 > 0 && i % 5 == 0 ? 0.0f : 1.0f;
    }
    if (f) faults_buffers(f, model, place);
    model->heard = hear;
    model->listener = name;
    gpt_input input = {.tokens = tokens,
                       .targets = targets,
                       .weights = weights,
                       .key_mask = mask,
                       .rows = leave_out ? 2 : 3,
                       .row_ids = leave_out ? SOME : ALL};
    gpt_forward(model, input, place, format == PRECISION_FP16 ? 1024.0 : 1.0);
    gpt_backward(model, input, place);
    gpt_close(model);
}

static void test_reference__agrees_with_every_kernel_of_the_model(void **state)
{
    (void)state;
    run_program("fp32", NULL, PRECISION_FP32, 0.0f, false);
    run_program("fp32 with dropout", NULL, PRECISION_FP32, 0.3f, false);
    run_program("fp32 with a sample left out", NULL, PRECISION_FP32, 0.3f, true);
    run_program("bf16", NULL, PRECISION_BF16, 0.1f, false);
    run_program("fp16", NULL, PRECISION_FP16, 0.1f, false);
}

static void test_reference__agrees_with_every_kernel_that_a_fault_brings(void **state)
{
    size_t count;
    const fault_row *rows = faults_rows(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        faults f = {0};
        char spec[96], message[256];
        if (!rows[i].alter) continue;
        snprintf(spec, sizeof spec, "%s@steps=0", rows[i].name);
        assert_int_equal(faults_read(&f, spec, message, sizeof message), 0);
        run_program(rows[i].name, &f, PRECISION_FP32, 0.0f, false);
    }
}

/* ---- one by one -------------------------------------------------------------------------------------------------------------- */

typedef enum numbers { ANY, POSITIVE, ABOVE_MINUS_ONE, NOT_SMALL } numbers;

typedef struct direct {
    gpt_kind kind;
    gpt_spread spread;
    const char *in, *out; /* N R K 1, and L for (R,3), J for (R,K+3) */
    numbers numbers;
    double x, y;
} direct;

static const direct DIRECT[] = {
    {OP_ADD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_ADD, SPREAD_ROW, "NR", "N", ANY, 0, 0},
    {OP_ADD, SPREAD_COLUMN, "NK", "N", ANY, 0, 0},
    {OP_ADD, SPREAD_ONE, "N1", "N", ANY, 0, 0},
    {OP_SUB, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_SUB, SPREAD_ROW, "NR", "N", ANY, 0, 0},
    {OP_MUL, SPREAD_COLUMN, "NK", "N", ANY, 0, 0},
    {OP_MUL, SPREAD_ONE, "N1", "N", ANY, 0, 0},
    {OP_DIV, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_DIV, SPREAD_ROW, "NR", "N", ANY, 0, 0},
    {OP_DIV, SPREAD_COLUMN, "NK", "N", ANY, 0, 0},
    {OP_ADD_NUMBER, SPREAD_SAME, "N", "N", ANY, 1.5, 0},
    {OP_MUL_NUMBER, SPREAD_SAME, "N", "N", ANY, -0.25, 0},
    {OP_SQUARE, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_SQRT, SPREAD_SAME, "N", "N", POSITIVE, 0, 0},
    {OP_RSQRT, SPREAD_SAME, "N", "N", POSITIVE, 0, 0},
    {OP_EXP, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_LOG, SPREAD_SAME, "N", "N", POSITIVE, 0, 0},
    {OP_LOG1P, SPREAD_SAME, "N", "N", ABOVE_MINUS_ONE, 0, 0},
    {OP_SIGMOID, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_RECIPROCAL, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_GELU, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_CLAMP, SPREAD_SAME, "N", "N", ANY, -0.5, 0.75},
    {OP_WHERE_LESS, SPREAD_SAME, "NNN", "N", ANY, 0.25, 0},
    {OP_NAN_TO_NUM, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_COPY, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_ROW_SUM, SPREAD_SAME, "N", "R", ANY, 0, 0},
    {OP_ROW_MEAN, SPREAD_SAME, "N", "R", ANY, 0, 0},
    {OP_ROW_MAX, SPREAD_SAME, "N", "R", ANY, 0, 0},
    {OP_ROW_VAR, SPREAD_SAME, "NR", "R", ANY, 1, 0},
    {OP_SUM, SPREAD_SAME, "N", "1", ANY, 0, 0},
    {OP_COLUMN_SUM, SPREAD_SAME, "N", "K", ANY, 0, 0},
    {OP_SOFTMAX, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_LOG_SOFTMAX, SPREAD_SAME, "N", "N", ANY, 0, 0},
    {OP_NORMALIZE, SPREAD_SAME, "NRR", "N", ANY, 0, 0},
    {OP_AFFINE, SPREAD_SAME, "NKK", "N", ANY, 0, 0},
    {OP_JOIN, SPREAD_SAME, "NL", "J", ANY, 0, 0},
    {OP_ROW_SUM_BACKWARD, SPREAD_SAME, "RN", "N", ANY, 0, 0},
    {OP_ROW_MEAN_BACKWARD, SPREAD_SAME, "RN", "N", ANY, 0, 0},
    {OP_ROW_VAR_BACKWARD, SPREAD_SAME, "RNR", "N", ANY, 1, 0},
    {OP_SUM_BACKWARD, SPREAD_SAME, "1N", "N", ANY, 0, 0},
    {OP_SQUARE_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_RECIPROCAL_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_NAN_TO_NUM_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_SQRT_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_RSQRT_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_LOG_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_LOG1P_BACKWARD, SPREAD_SAME, "NN", "N", ABOVE_MINUS_ONE, 0, 0},
    {OP_EXP_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_SIGMOID_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_DIV_BACKWARD, SPREAD_SAME, "NNN", "NN", NOT_SMALL, 0, 0},
    {OP_DIV_BACKWARD, SPREAD_ROW, "NNR", "NR", NOT_SMALL, 0, 0},
    {OP_DIV_BACKWARD, SPREAD_COLUMN, "NNK", "NK", NOT_SMALL, 0, 0},
    {OP_DIV_BACKWARD, SPREAD_ONE, "NN1", "N1", NOT_SMALL, 0, 0},
    {OP_DIV_BACKWARD, SPREAD_ROW, "NNR", "N", NOT_SMALL, 0, 0},
    {OP_MUL_BACKWARD, SPREAD_SAME, "NNN", "NN", ANY, 0, 0},
    {OP_MUL_BACKWARD, SPREAD_ROW, "NNR", "NR", ANY, 0, 0},
    {OP_MUL_BACKWARD, SPREAD_COLUMN, "NNK", "NK", ANY, 0, 0},
    {OP_WHERE_BACKWARD, SPREAD_SAME, "NN", "NN", ANY, 0.25, 0},
    {OP_WHERE_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0.25, 0},
    {OP_CLAMP_BACKWARD, SPREAD_SAME, "NN", "N", ANY, -0.5, 0.75},
    {OP_GELU_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_SOFTMAX_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_LOG_SOFTMAX_BACKWARD, SPREAD_SAME, "NN", "N", ANY, 0, 0},
    {OP_LAYER_NORM_BACKWARD, SPREAD_SAME, "NNRRK", "NKK", ANY, 0, 0},
};

typedef struct desk {
    gpt_value values[GPT_IN_MAX + GPT_OUT_MAX];
    float memory[GPT_IN_MAX + GPT_OUT_MAX][R * (K + 3)];
    gpt_run_shape shape;
    gpt_op op;
} desk;

static void lay_value(desk *d, int at, char letter)
{
    gpt_value v = gpt_value_init("", "value", ROLE_ACTIVATION, PRECISION_FP32);
    v.rows = letter == 'K' || letter == '1' ? 1 : R;
    v.columns = letter == 'R' || letter == '1' ? 1 : letter == 'L' ? 3 : letter == 'J' ? K + 3 : K;
    v.data = d->memory[at];
    d->values[at] = v;
}

static void lay(desk *d, const direct *c)
{
    memset(d, 0, sizeof *d);
    d->shape = (gpt_run_shape){.B = 1, .T = R, .C = K, .NH = 1, .V = K, .whole = 1};
    d->op = gpt_op_init(c->kind, "", "direct", __FILE__, __LINE__);
    d->op.spread = c->spread;
    d->op.x = c->x;
    d->op.y = c->y;
    for (const char *letter = c->in; *letter; letter++) {
        d->op.in[d->op.in_count] = d->op.in_count;
        lay_value(d, d->op.in_count++, *letter);
    }
    for (const char *letter = c->out; *letter; letter++) {
        int at = d->op.in_count + d->op.out_count;
        d->op.out[d->op.out_count++] = at;
        lay_value(d, at, *letter);
    }
}

static void draw_numbers(desk *d, const direct *c, uint32_t number)
{
    for (int k = 0; k < d->op.in_count; k++) {
        rng_stream stream = {.seed = seed_of_tests(), .site = RNG_DATA, .layer = number, .step = (uint32_t)k};
        float *x = d->memory[k];
        rng_normal(&stream, x, N);
        for (size_t i = 0; i < N && c->numbers == POSITIVE; i++) x[i] = fabsf(x[i]) + 0.01f;
        for (size_t i = 0; i < N && c->numbers == NOT_SMALL; i++) x[i] += x[i] > 0.0f ? 0.5f : -0.5f;
        for (size_t i = 0; i < N && c->numbers == ABOVE_MINUS_ONE; i++) x[i] = fabsf(x[i]) - 0.9f;
    }
}

static void run_desk(desk *d)
{
    static float scratch[ELEMENTS_MAX];
    assert_true(gpt_op_scratch(&d->op, &d->shape, d->values) <= ELEMENTS_MAX);
    gpt_op_run(&d->op, &d->shape, d->values, scratch);
    check_operator("alone", &d->op, &d->shape, d->values);
}

static void test_reference__agrees_with_every_kernel_alone(void **state)
{
    desk d;
    (void)state;
    for (uint32_t i = 0; i < sizeof DIRECT / sizeof *DIRECT; i++) {
        for (uint32_t again = 0; again < 5; again++) {
            lay(&d, &DIRECT[i]);
            draw_numbers(&d, &DIRECT[i], i * 8 + again);
            run_desk(&d);
        }
    }
    direct largest = {OP_ROW_MAX_BACKWARD, SPREAD_SAME, "RNR", "N", ANY, 0, 0}; /* the third input belongs to the second */
    lay(&d, &largest);
    draw_numbers(&d, &largest, 1000);
    for (size_t r = 0; r < R; r++) {
        d.memory[2][r] = d.memory[1][r * K];
        for (size_t k = 1; k < K; k++)
            if (d.memory[1][r * K + k] > d.memory[2][r]) d.memory[2][r] = d.memory[1][r * K + k];
    }
    run_desk(&d);
}

/* Runs after the tests above, which mark what they saw. */
static void test_reference__knows_every_kind(void **state)
{
    (void)state;
    for (int kind = 0; kind < OP_KINDS; kind++)
        if (!covered[kind]) fail_msg("operator kind %d was compared with nothing", kind);
}

/* Zeros of both signs, infinities, NaN and negatives, in every pairing that an input of 30 elements can hold. */
static void test_reference__is_bad_where_the_kernel_is(void **state)
{
    static const float SPECIAL[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 2.5f};
    enum { SPECIALS = sizeof SPECIAL / sizeof *SPECIAL };
    desk d;
    (void)state;
    for (size_t i = 0; i < sizeof DIRECT / sizeof *DIRECT; i++) {
        for (size_t turn = 0; turn < SPECIALS; turn++) {
            lay(&d, &DIRECT[i]);
            for (int k = 0; k < d.op.in_count; k++)
                for (size_t e = 0; e < N; e++) d.memory[k][e] = SPECIAL[(k ? e / SPECIALS + turn + e * (size_t)k : e) % SPECIALS];
            run_desk(&d);
        }
    }
}

static double one_result(gpt_kind kind, double a, double b)
{
    direct c = {kind, SPREAD_SAME, kind <= OP_DIV ? "NN" : "N", "N", ANY, 0, 0};
    desk d;
    double in[2][N], out[N];
    const double *inputs[2] = {in[0], in[1]};
    double *outputs[1] = {out};
    uint64_t counts[2] = {N, N};
    lay(&d, &c);
    for (size_t i = 0; i < N; i++) {
        in[0][i] = a;
        in[1][i] = b;
    }
    assert_int_equal(reference_run(&d.op, 0.0, &d.shape, d.values, inputs, counts, outputs, counts), 0);
    return out[N - 1];
}

static void test_reference__has_no_number_where_mathematics_has_none(void **state)
{
    const double inf = (double)INFINITY;
    (void)state;
    assert_true(reference_is_nan(one_result(OP_DIV, 0.0, 0.0)));
    assert_true(one_result(OP_DIV, 1.0, 0.0) == inf);
    assert_true(reference_is_nan(one_result(OP_SUB, inf, inf)));
    assert_true(reference_is_nan(one_result(OP_MUL, 0.0, inf)));
    assert_true(one_result(OP_LOG, 0.0, 0.0) == -inf);
    assert_true(reference_is_nan(one_result(OP_LOG, -1.0, 0.0)));
    assert_true(reference_is_nan(one_result(OP_SQRT, -1.0, 0.0)));
    assert_true(one_result(OP_RSQRT, 0.0, 0.0) == inf);
    assert_true(reference_is_nan(one_result(OP_SOFTMAX, -inf, 0.0)));                            /* a row of -Inf alone */
    assert_true(one_result(OP_EXP, 200.0, 0.0) > 7e86 && one_result(OP_EXP, 200.0, 0.0) < 8e86); /* no number of FP32 */
}

static void test_reference__takes_a_constant_as_it_is_written(void **state)
{
    direct c = {OP_ADD_NUMBER, SPREAD_SAME, "N", "N", ANY, 0, 0};
    desk d;
    double in[N] = {0}, out[N];
    const double *inputs[1] = {in};
    double *outputs[1] = {out};
    uint64_t counts[1] = {N};
    (void)state;
    lay(&d, &c);
    d.values[0].format = d.values[1].format = PRECISION_FP16;
    assert_int_equal(reference_run(&d.op, 1e-8, &d.shape, d.values, inputs, counts, outputs, counts), 0);
    assert_true(out[0] == 1e-8);
}

static void test_reference__refuses_counts_that_do_not_fit(void **state)
{
    double in[3][N] = {{0}}, out[N];
    const double *inputs[3] = {in[0], in[1], in[2]};
    double *outputs[1] = {out};
    desk d;
    (void)state;
    lay(&d, &(direct){OP_ADD, SPREAD_SAME, "NN", "N", ANY, 0, 0});
    out[0] = 7.0;
    assert_int_equal(reference_run(&d.op, 0, &d.shape, d.values, inputs, (uint64_t[]){N, N - 1}, outputs, (uint64_t[]){N}), -1);
    assert_int_equal(reference_run(&d.op, 0, &d.shape, d.values, inputs, (uint64_t[]){N - 1, N - 1}, outputs, (uint64_t[]){N - 1}),
                     -1);
    assert_int_equal(reference_run(&d.op, 0, &d.shape, d.values, inputs, (uint64_t[]){N, N}, outputs, (uint64_t[]){N + 1}), -1);
    d.op.in_count = 1;
    assert_int_equal(reference_run(&d.op, 0, &d.shape, d.values, inputs, (uint64_t[]){N}, outputs, (uint64_t[]){N}), -1);
    lay(&d, &(direct){OP_LINEAR, SPREAD_SAME, "NN", "N", ANY, 0, 0});
    assert_int_equal(reference_run(&d.op, 0, &d.shape, d.values, inputs, (uint64_t[]){N, 7}, outputs, (uint64_t[]){N}), -1);
    d.op.kind = OP_KINDS;
    assert_int_equal(reference_run(&d.op, 0, &d.shape, d.values, inputs, (uint64_t[]){N, N}, outputs, (uint64_t[]){N}), -1);
    assert_true(out[0] == 7.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference__agrees_with_every_kernel_of_the_model),
        cmocka_unit_test(test_reference__agrees_with_every_kernel_that_a_fault_brings),
        cmocka_unit_test(test_reference__agrees_with_every_kernel_alone),
        cmocka_unit_test(test_reference__knows_every_kind),
        cmocka_unit_test(test_reference__is_bad_where_the_kernel_is),
        cmocka_unit_test(test_reference__has_no_number_where_mathematics_has_none),
        cmocka_unit_test(test_reference__takes_a_constant_as_it_is_written),
        cmocka_unit_test(test_reference__refuses_counts_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
