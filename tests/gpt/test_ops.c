/*
 * Operators that treat elements alone, or a row together: what they make, what becomes of numbers outside their domain, and their
 * backward forms against finite differences.
 */
#include "ops_bench.h"

static const float INF = INFINITY;

/* ---- element by element ------------------------------------------------------------------------------------------------------ */

typedef struct unary_row {
    gpt_kind kind;
    double (*exact)(double a, double x, double y);
    float low, high;
    double x, y;
} unary_row;

static double add_number(double a, double x, double y)
{
    (void)y;
    return a + x;
}

static double mul_number(double a, double x, double y)
{
    (void)y;
    return a * x;
}

static double square(double a, double x, double y)
{
    (void)x, (void)y;
    return a * a;
}

static double root(double a, double x, double y)
{
    (void)x, (void)y;
    return sqrt(a);
}

static double inverse_root(double a, double x, double y)
{
    (void)x, (void)y;
    return 1.0 / sqrt(a);
}

static double exponential(double a, double x, double y)
{
    (void)x, (void)y;
    return exp(a);
}

static double logarithm(double a, double x, double y)
{
    (void)x, (void)y;
    return log(a);
}

static double logarithm_of_more(double a, double x, double y)
{
    (void)x, (void)y;
    return log1p(a);
}

static double sigmoid(double a, double x, double y)
{
    (void)x, (void)y;
    return 1.0 / (1.0 + exp(-a));
}

static double inverse(double a, double x, double y)
{
    (void)x, (void)y;
    return 1.0 / a;
}

static double gelu(double a, double x, double y)
{
    (void)x, (void)y;
    return 0.5 * a * (1.0 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
}

static double clamp(double a, double x, double y)
{
    return fmin(fmax(a, x), y);
}

static double same(double a, double x, double y)
{
    (void)x, (void)y;
    return a;
}

static const unary_row UNARY[] = {
    {OP_ADD_NUMBER, add_number, -3.0f, 3.0f, 0.25, 0.0},
    {OP_MUL_NUMBER, mul_number, -3.0f, 3.0f, -1.5, 0.0},
    {OP_SQUARE, square, -3.0f, 3.0f, 0.0, 0.0},
    {OP_SQRT, root, 0.5f, 4.0f, 0.0, 0.0},
    {OP_RSQRT, inverse_root, 0.5f, 4.0f, 0.0, 0.0},
    {OP_EXP, exponential, -3.0f, 3.0f, 0.0, 0.0},
    {OP_LOG, logarithm, 0.5f, 4.0f, 0.0, 0.0},
    {OP_LOG1P, logarithm_of_more, -0.5f, 4.0f, 0.0, 0.0},
    {OP_SIGMOID, sigmoid, -4.0f, 4.0f, 0.0, 0.0},
    {OP_RECIPROCAL, inverse, 0.5f, 4.0f, 0.0, 0.0},
    {OP_GELU, gelu, -4.0f, 4.0f, 0.0, 0.0},
    {OP_CLAMP, clamp, 0.2f, 0.8f, 0.0, 1.0}, /* inside, */
    {OP_CLAMP, clamp, 2.0f, 4.0f, 0.0, 1.0}, /* and outside; at the edge there is no slope */
    {OP_NAN_TO_NUM, same, -3.0f, 3.0f, 0.0, 0.0},
    {OP_COPY, same, -3.0f, 3.0f, 0.0, 0.0},
};

static void test_ops__of_one_operand_equal_their_definition_and_their_slopes(void **state)
{
    (void)state;
    static bench b;
    for (size_t k = 0; k < sizeof UNARY / sizeof *UNARY; k++) {
        const unary_row *row = &UNARY[k];
        gpt_kind back = OP_KINDS;
        gpt_saves saves = SAVES_NOTHING;
        clear(&b);
        int a = add(&b, 5, 7, row->low, row->high), y = add(&b, 5, 7, 0, 0), g = add(&b, 5, 7, -1, 1), d = add(&b, 5, 7, 9, 9);
        gpt_op forward = operator_of(row->kind, a, -1, -1, y, -1);
        forward.x = row->x;
        forward.y = row->y;
        run(&b, &forward);
        for (size_t i = 0; i < 35; i++) {
            double expected = row->exact((double)b.data[a][i], row->x, row->y), found = (double)b.data[y][i];
            if (!(fabs(found - expected) <= 1e-6 * (1.0 + fabs(expected))))
                fail_msg("kind %d of %g: %g, expected %g", (int)row->kind, (double)b.data[a][i], found, expected);
        }
        assert_true(gpt_backward_form(row->kind, &back, &saves));
        int kept = saves == SAVES_NOTHING ? -1 : saves == SAVES_INPUT ? a : y;
        gpt_op backward = operator_of(back, g, kept, -1, d, -1);
        backward.x = row->x;
        backward.y = row->y;
        run(&b, &backward);
        check_slopes(&b, &forward, 0, g, d);
    }
}

static void spread_over(bench *b, gpt_kind kind, gpt_kind back, gpt_spread spread)
{
    const size_t rows[4] = {4, 4, 1, 1}, columns[4] = {7, 1, 7, 1};
    clear(b);
    int a = add(b, 4, 7, 0.5f, 2.0f), second = add(b, rows[spread], columns[spread], 0.5f, 2.0f), y = add(b, 4, 7, 0, 0);
    int g = add(b, 4, 7, -1.0f, 1.0f), d_a = add(b, 4, 7, 9, 9), d_b = add(b, rows[spread], columns[spread], 9, 9);
    gpt_op forward = operator_of(kind, a, second, -1, y, -1);
    forward.spread = spread;
    run(b, &forward);
    for (size_t i = 0; i < 28; i++) {
        const size_t of[4] = {i, i / 7, i % 7, 0};
        double p = (double)b->data[a][i], q = (double)b->data[second][of[spread]];
        double expected = kind == OP_ADD ? p + q : kind == OP_SUB ? p - q : kind == OP_MUL ? p * q : p / q;
        assert_true(fabs((double)b->data[y][i] - expected) <= 1e-6 * (1.0 + fabs(expected)));
    }
    if (back == OP_KINDS) return;
    gpt_op backward = operator_of(back, g, a, second, d_a, d_b);
    backward.spread = spread;
    run(b, &backward);
    check_slopes(b, &forward, 0, g, d_a);
    check_slopes(b, &forward, 1, g, d_b);
    float first = b->data[d_a][3];
    b->data[d_a][3] = 9.0f;
    backward.out_count = 1; /* the second gradient may be left out */
    run(b, &backward);
    assert_true(b->data[d_a][3] == first);
}

static void test_ops__of_two_operands_spread_the_second_and_sum_its_gradient_back(void **state)
{
    (void)state;
    static bench b;
    for (int spread = SPREAD_SAME; spread <= SPREAD_ONE; spread++) {
        spread_over(&b, OP_ADD, OP_KINDS, (gpt_spread)spread);
        spread_over(&b, OP_SUB, OP_KINDS, (gpt_spread)spread);
        spread_over(&b, OP_MUL, OP_MUL_BACKWARD, (gpt_spread)spread);
        spread_over(&b, OP_DIV, OP_DIV_BACKWARD, (gpt_spread)spread);
    }
}

static void test_ops__where_takes_one_branch_and_sends_its_gradient_there(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int c = add(&b, 3, 5, -1, 1), p = add(&b, 3, 5, -1, 1), q = add(&b, 3, 5, -1, 1), y = add(&b, 3, 5, 0, 0);
    int g = add(&b, 3, 5, -1, 1), d_p = add(&b, 3, 5, 9, 9), d_q = add(&b, 3, 5, 9, 9);
    gpt_op forward = operator_of(OP_WHERE_LESS, c, p, q, y, -1), backward = operator_of(OP_WHERE_BACKWARD, g, c, -1, d_p, d_q);
    forward.x = backward.x = 0.125;
    run(&b, &forward);
    run(&b, &backward);
    for (size_t i = 0; i < 15; i++) {
        bool less = b.data[c][i] < 0.125f;
        assert_true(b.data[y][i] == b.data[less ? p : q][i]);
        assert_true(b.data[d_p][i] == (less ? b.data[g][i] : 0.0f) && b.data[d_q][i] == (less ? 0.0f : b.data[g][i]));
    }
    b.data[c][0] = -1.0f; /* what is not taken may be anything, and its gradient is 0 whatever that is */
    b.data[q][0] = float_from_bits(0x7fc00000u);
    run(&b, &forward);
    assert_true(b.data[y][0] == b.data[p][0]);
    b.data[c][0] = float_from_bits(0x7fc00000u); /* NaN is not less */
    run(&b, &forward);
    assert_true(is_nan_bits(b.data[y][0]));
}

/* One operand, one element. */
static float of_one(gpt_kind kind, float a, double x, double y, precision format)
{
    static bench b;
    clear(&b);
    int in = add(&b, 1, 1, a, a), out = add(&b, 1, 1, 0, 0);
    b.data[in][0] = a;
    b.values[out].format = format;
    gpt_op op = operator_of(kind, in, -1, -1, out, -1);
    op.x = x;
    op.y = y;
    run(&b, &op);
    return b.data[out][0];
}

static void test_ops__outside_their_domain_give_what_mathematics_gives(void **state)
{
    (void)state;
    const float nan = float_from_bits(0x7fc00000u);
    assert_true(is_nan_bits(of_one(OP_SQRT, -1.0f, 0, 0, PRECISION_FP32)));
    assert_true(is_nan_bits(of_one(OP_RSQRT, -1.0f, 0, 0, PRECISION_FP32)));
    assert_true(of_one(OP_RSQRT, 0.0f, 0, 0, PRECISION_FP32) == INF);
    assert_true(of_one(OP_LOG, 0.0f, 0, 0, PRECISION_FP32) == -INF);
    assert_true(is_nan_bits(of_one(OP_LOG, -1.0f, 0, 0, PRECISION_FP32)));
    assert_true(of_one(OP_LOG1P, -1.0f, 0, 0, PRECISION_FP32) == -INF);
    assert_true(of_one(OP_RECIPROCAL, 0.0f, 0, 0, PRECISION_FP32) == INF);
    assert_true(of_one(OP_EXP, 89.0f, 0, 0, PRECISION_FP32) == INF);
    assert_true(of_one(OP_EXP, -INF, 0, 0, PRECISION_FP32) == 0.0f);
    assert_true(of_one(OP_SIGMOID, -200.0f, 0, 0, PRECISION_FP32) == 0.0f);
    assert_true(of_one(OP_CLAMP, INF, 0, 1, PRECISION_FP32) == 1.0f);
    assert_true(is_nan_bits(of_one(OP_CLAMP, nan, 0, 1, PRECISION_FP32)));
    assert_true(of_one(OP_NAN_TO_NUM, nan, 0, 0, PRECISION_FP16) == 0.0f);
    assert_true(of_one(OP_NAN_TO_NUM, -INF, 0, 0, PRECISION_FP16) == -65504.0f);
    /* The format has the last word: 65504 * 2 is Inf in fp16, and 1e-8 is nothing there. */
    assert_true(of_one(OP_MUL_NUMBER, 65504.0f, 2.0, 0, PRECISION_FP16) == INF);
    assert_true(of_one(OP_ADD_NUMBER, 0.0f, 1e-8, 0, PRECISION_FP16) == 0.0f);
    assert_true(of_one(OP_ADD_NUMBER, 0.0f, 1e-8, 0, PRECISION_FP32) > 0.0f);
}

static void test_ops__nan_to_num_sends_no_gradient_to_what_it_replaced(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int g = add(&b, 1, 3, 1, 2), a = add(&b, 1, 3, 0, 1), d = add(&b, 1, 3, 9, 9);
    b.data[a][1] = INF;
    b.data[a][2] = float_from_bits(0xffc00000u);
    gpt_op op = operator_of(OP_NAN_TO_NUM_BACKWARD, g, a, -1, d, -1);
    run(&b, &op);
    assert_true(b.data[d][0] == b.data[g][0] && b.data[d][1] == 0.0f && b.data[d][2] == 0.0f);
}

static void test_ops__dropout_scales_what_it_keeps_and_backward_draws_the_same(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int a = add(&b, 10, 30, 1, 2), y = add(&b, 10, 30, 0, 0), d = add(&b, 10, 30, 0, 0);
    float factors[300];
    size_t dropped = 0;
    gpt_op op = operator_of(OP_DROPOUT, a, -1, -1, y, -1), back = operator_of(OP_DROPOUT_BACKWARD, a, -1, -1, d, -1);
    op.x = back.x = 0.25;
    op.site = back.site = RNG_DROP_MLP_OUT;
    run(&b, &op);
    run(&b, &back);
    gpt_drop_factors(&op, &b.shape, op.x, factors, 300);
    for (size_t i = 0; i < 300; i++) {
        assert_true(factors[i] == 0.0f || factors[i] == 1.0f / 0.75f);
        assert_true(b.data[y][i] == b.data[a][i] * factors[i] && b.data[d][i] == b.data[y][i]);
        dropped += factors[i] == 0.0f;
    }
    assert_true(dropped > 50 && dropped < 100); /* 75 expected, deviation 7.5 */
    op.x = 1.0;                                 /* nothing is kept, and the scale is 1/0 */
    run(&b, &op);
    for (size_t i = 0; i < 300; i++) assert_true(is_nan_bits(b.data[y][i]));
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

static void check_reduction(bench *b, gpt_kind kind, gpt_kind back, size_t rows, size_t columns, float x)
{
    clear(b);
    int a = add(b, 4, 19, -2, 2), mean = add(b, 4, 1, 0, 0), y = add(b, rows, columns, 0, 0);
    int g = add(b, rows, columns, -1, 1), d = add(b, 4, 19, 9, 9);
    /* The largest has no slope where two are equal: values a tenth apart. */
    for (size_t i = 0; kind == OP_ROW_MAX && i < 76; i++) b->data[a][i] = 0.1f * (float)(i * 7 % 19) - 1.0f;
    gpt_op forward = operator_of(kind, a, -1, -1, y, -1), averages = operator_of(OP_ROW_MEAN, a, -1, -1, mean, -1);
    forward.x = (double)x;
    run(b, &averages);
    if (kind == OP_ROW_VAR) {
        forward.in[1] = mean;
        forward.in_count = 2;
    }
    run(b, &forward);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0.0, squares = 0.0, most = -1e9;
        for (size_t i = 0; i < 76; i++) {
            double value = (double)b->data[a][i];
            if (kind == OP_COLUMN_SUM || (rows == 4 && i / 19 != r)) continue;
            sum += value;
            squares += value * value;
            most = fmax(most, value);
        }
        double expected = kind == OP_ROW_MEAN ? sum / 19.0 : kind == OP_ROW_MAX ? most : sum;
        if (kind == OP_ROW_VAR) expected = (squares - sum * sum / 19.0) / (19.0 - (double)x);
        if (kind == OP_COLUMN_SUM) continue;
        assert_true(fabs((double)b->data[y][r] - expected) <= 1e-5);
    }
    for (size_t k = 0; kind == OP_COLUMN_SUM && k < 19; k++)
        assert_true(fabsf(b->data[y][k] - (b->data[a][k] + b->data[a][19 + k] + b->data[a][38 + k] + b->data[a][57 + k])) <= 1e-6f);
    if (back == OP_KINDS) return;
    gpt_op backward = operator_of(back, g, a, kind == OP_ROW_VAR ? mean : kind == OP_ROW_MAX ? y : -1, d, -1);
    backward.x = (double)x;
    run(b, &backward);
    check_slopes(b, &forward, 0, g, d);
}

static void test_ops__along_rows_reduce_and_spread_their_gradient(void **state)
{
    (void)state;
    static bench b;
    check_reduction(&b, OP_ROW_SUM, OP_ROW_SUM_BACKWARD, 4, 1, 0);
    check_reduction(&b, OP_ROW_MEAN, OP_ROW_MEAN_BACKWARD, 4, 1, 0);
    check_reduction(&b, OP_ROW_MAX, OP_ROW_MAX_BACKWARD, 4, 1, 0);
    check_reduction(&b, OP_ROW_VAR, OP_ROW_VAR_BACKWARD, 4, 1, 0);
    check_reduction(&b, OP_ROW_VAR, OP_ROW_VAR_BACKWARD, 4, 1, 1);
    check_reduction(&b, OP_SUM, OP_SUM_BACKWARD, 1, 1, 0);
    check_reduction(&b, OP_COLUMN_SUM, OP_KINDS, 1, 19, 0);
}

static void test_ops__variance_of_one_element_over_none_is_nan_and_max_keeps_nan(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int a = add(&b, 2, 1, 1, 2), mean = add(&b, 2, 1, 0, 0), y = add(&b, 2, 1, 0, 0), wide = add(&b, 1, 9, -1, 1);
    gpt_op averages = operator_of(OP_ROW_MEAN, a, -1, -1, mean, -1), op = operator_of(OP_ROW_VAR, a, mean, -1, y, -1);
    op.x = 1.0;
    run(&b, &averages);
    run(&b, &op);
    assert_true(is_nan_bits(b.data[y][0]) && is_nan_bits(b.data[y][1]));
    for (size_t i = 0; i < 9; i++) {
        float kept = b.data[wide][i];
        gpt_op most = operator_of(OP_ROW_MAX, wide, -1, -1, y, -1);
        b.data[wide][i] = float_from_bits(0x7fc00000u);
        run(&b, &most);
        assert_true(is_nan_bits(b.data[y][0]));
        b.data[wide][i] = kept;
    }
}

static void test_ops__softmax_and_its_logarithm_sum_to_one_and_have_their_slopes(void **state)
{
    (void)state;
    static bench b;
    const gpt_kind kinds[2][2] = {{OP_SOFTMAX, OP_SOFTMAX_BACKWARD}, {OP_LOG_SOFTMAX, OP_LOG_SOFTMAX_BACKWARD}};
    for (int k = 0; k < 2; k++) {
        clear(&b);
        int a = add(&b, 3, 21, -2, 2), y = add(&b, 3, 21, 0, 0), g = add(&b, 3, 21, -1, 1), d = add(&b, 3, 21, 9, 9);
        gpt_op forward = operator_of(kinds[k][0], a, -1, -1, y, -1), backward = operator_of(kinds[k][1], g, y, -1, d, -1);
        run(&b, &forward);
        for (size_t r = 0; r < 3; r++) {
            double sum = 0.0;
            for (size_t i = 0; i < 21; i++) {
                double value = (double)b.data[y][r * 21 + i];
                sum += k ? exp(value) : value;
            }
            assert_true(fabs(sum - 1.0) <= 1e-6);
        }
        run(&b, &backward);
        check_slopes(&b, &forward, 0, g, d);
    }
}

static void test_ops__softmax_gives_masked_places_0_and_a_row_of_them_nan(void **state)
{
    (void)state;
    static bench b;
    for (size_t K = 1; K <= 40; K++) {
        clear(&b);
        int a = add(&b, 2, K, -2, 2), y = add(&b, 2, K, 0, 0);
        for (size_t i = 0; i < K; i++) b.data[a][i] = -INF;
        for (size_t i = 1; i < K; i++) b.data[a][K + i] = -INF;
        gpt_op op = operator_of(OP_SOFTMAX, a, -1, -1, y, -1);
        run(&b, &op);
        for (size_t i = 0; i < K; i++) {
            assert_true(is_nan_bits(b.data[y][i]));
            assert_true(b.data[y][K + i] == (i ? 0.0f : 1.0f));
        }
    }
}

static void test_ops__every_kind_was_run_here(void **state)
{
    (void)state;
    assert_covered(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops__of_one_operand_equal_their_definition_and_their_slopes),
        cmocka_unit_test(test_ops__of_two_operands_spread_the_second_and_sum_its_gradient_back),
        cmocka_unit_test(test_ops__where_takes_one_branch_and_sends_its_gradient_there),
        cmocka_unit_test(test_ops__outside_their_domain_give_what_mathematics_gives),
        cmocka_unit_test(test_ops__nan_to_num_sends_no_gradient_to_what_it_replaced),
        cmocka_unit_test(test_ops__dropout_scales_what_it_keeps_and_backward_draws_the_same),
        cmocka_unit_test(test_ops__along_rows_reduce_and_spread_their_gradient),
        cmocka_unit_test(test_ops__variance_of_one_element_over_none_is_nan_and_max_keeps_nan),
        cmocka_unit_test(test_ops__softmax_and_its_logarithm_sum_to_one_and_have_their_slopes),
        cmocka_unit_test(test_ops__softmax_gives_masked_places_0_and_a_row_of_them_nan),
        cmocka_unit_test(test_ops__every_kind_was_run_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
