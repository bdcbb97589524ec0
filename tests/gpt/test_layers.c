/* The operators that layers and the loss are made of: what they make, and their backward forms against finite differences. */
#include "ops_bench.h"

static const float INF = INFINITY;

static int add_integers(bench *b, size_t rows, int32_t below)
{
    int at = add(b, rows, 1, 0.0f, 0.0f);
    int32_t *data = b->values[at].data;
    b->values[at].integers = true;
    for (size_t i = 0; i < rows; i++) data[i] = (int32_t)random_between(0.0f, (float)below - 0.01f);
    return at;
}

static void test_layers__embedding_takes_rows_adds_gradients_up_and_has_no_row_outside(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int tokens = add_integers(&b, 10, 7), table = add(&b, 7, 6, -1, 1), y = add(&b, 10, 6, 0, 0), g = add(&b, 10, 6, -1, 1);
    int d = add(&b, 7, 6, 9, 9);
    int32_t *ids = b.values[tokens].data;
    ids[1] = ids[0];
    gpt_op forward = operator_of(OP_EMBEDDING, tokens, table, -1, y, -1);
    gpt_op backward = operator_of(OP_EMBEDDING_BACKWARD, g, tokens, -1, d, -1);
    run(&b, &forward);
    run(&b, &backward);
    check_slopes(&b, &forward, 1, g, d);
    const int32_t wrong[3] = {7, -1, INT32_MIN};
    for (int k = 0; k < 3; k++) {
        ids[4] = wrong[k];
        run(&b, &forward);
        run(&b, &backward);
        for (size_t i = 0; i < 60; i++) assert_true(is_nan_bits(b.data[y][i]) == (i / 6 == 4));
    }
}

static void test_layers__layer_norm_in_its_parts_has_the_slopes_of_the_whole(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int a = add(&b, 4, 18, -2, 2), mean = add(&b, 4, 1, 0, 0), var = add(&b, 4, 1, 0, 0), rstd = add(&b, 4, 1, 0, 0);
    int normal = add(&b, 4, 18, 0, 0), weight = add(&b, 1, 18, 0.5f, 2), bias = add(&b, 1, 18, -1, 1), y = add(&b, 4, 18, 0, 0);
    int g = add(&b, 4, 18, -1, 1), d_a = add(&b, 4, 18, 9, 9), d_weight = add(&b, 1, 18, 9, 9), d_bias = add(&b, 1, 18, 9, 9);
    const int targets[3] = {a, weight, bias}, found[3] = {d_a, d_weight, d_bias};
    gpt_op parts[5] = {operator_of(OP_ROW_MEAN, a, -1, -1, mean, -1), operator_of(OP_ROW_VAR, a, mean, -1, var, -1),
                       operator_of(OP_RSQRT, var, -1, -1, rstd, -1), operator_of(OP_NORMALIZE, a, mean, rstd, normal, -1),
                       operator_of(OP_AFFINE, normal, weight, bias, y, -1)};
    gpt_op back = operator_of(OP_LAYER_NORM_BACKWARD, g, a, mean, d_a, d_weight);
    back.in[3] = rstd;
    back.in[4] = weight;
    back.in_count = 5;
    back.out[2] = d_bias;
    back.out_count = 3;
    for (int k = 0; k < 5; k++) run(&b, &parts[k]);
    run(&b, &back);
    for (int which = 0; which < 3; which++) {
        for (size_t i = 0; i < count_of(&b, targets[which]); i++) {
            float *x = &b.data[targets[which]][i], start = *x;
            double at[2] = {0.0, 0.0};
            for (int side = 0; side < 2; side++) {
                *x = start + (side ? 0.005f : -0.005f);
                for (int k = 0; k < 4; k++) run(&b, &parts[k]);
                at[side] = weighted(&b, &parts[4], g);
            }
            *x = start;
            double expected = (at[1] - at[0]) / 0.01;
            if (!(fabs((double)b.data[found[which]][i] - expected) <= 2e-3 * (1.0 + fabs(expected))))
                fail_msg("input %d, element %zu: %g, slope %g", which, i, (double)b.data[found[which]][i], expected);
        }
    }
}

static void test_layers__linear_has_its_slopes_with_and_without_a_bias(void **state)
{
    (void)state;
    static bench b;
    for (int with = 0; with < 2; with++) {
        clear(&b);
        int a = add(&b, 5, 6, -1, 1), weight = add(&b, 17, 6, -1, 1), bias = add(&b, 1, 17, -1, 1), y = add(&b, 5, 17, 0, 0);
        int g = add(&b, 5, 17, -1, 1), d_a = add(&b, 5, 6, 9, 9), d_w = add(&b, 17, 6, 9, 9), d_b = add(&b, 1, 17, 9, 9);
        gpt_op forward = operator_of(OP_LINEAR, a, weight, with ? bias : -1, y, -1);
        gpt_op backward = operator_of(OP_LINEAR_BACKWARD, g, a, weight, d_a, d_w);
        if (with) backward.out[backward.out_count++] = d_b;
        run(&b, &forward);
        double expected = with ? (double)b.data[bias][3] : 0.0;
        for (size_t k = 0; k < 6; k++) expected += (double)b.data[a][12 + k] * (double)b.data[weight][18 + k];
        assert_true(fabs((double)b.data[y][2 * 17 + 3] - expected) <= 1e-6);
        run(&b, &backward);
        check_slopes(&b, &forward, 0, g, d_a);
        check_slopes(&b, &forward, 1, g, d_w);
        if (with) check_slopes(&b, &forward, 2, g, d_b);
        else assert_true(b.data[d_b][0] == 9.0f);
    }
}

/* B 2, T 5, C 6, NH 2, as the bench has it. */
static void test_layers__scores_and_heads_have_the_slopes_of_query_key_and_value(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int qkv = add(&b, 10, 18, -1, 1), scores = add(&b, 20, 5, 0, 0), p = add(&b, 20, 5, 0, 1), heads = add(&b, 10, 6, 0, 0);
    int g_scores = add(&b, 20, 5, -1, 1), g_heads = add(&b, 10, 6, -1, 1);
    int d_qk = add(&b, 10, 12, 9, 9), d_p = add(&b, 20, 5, 9, 9), d_v = add(&b, 10, 6, 9, 9), d_qkv = add(&b, 10, 18, 9, 9);
    gpt_op to_scores = operator_of(OP_SCORES, qkv, -1, -1, scores, -1), to_heads = operator_of(OP_HEADS, p, qkv, -1, heads, -1);
    gpt_op back_scores = operator_of(OP_SCORES_BACKWARD, g_scores, qkv, -1, d_qk, -1);
    gpt_op back_heads = operator_of(OP_HEADS_BACKWARD, g_heads, p, qkv, d_p, d_v);
    gpt_op join = operator_of(OP_JOIN, d_qk, d_v, -1, d_qkv, -1);
    run(&b, &to_scores);
    double expected = 0.0; /* sample 1, head 1, query 2, key 4 */
    for (size_t k = 0; k < 3; k++) expected += (double)b.data[qkv][7 * 18 + 3 + k] * (double)b.data[qkv][9 * 18 + 6 + 3 + k];
    assert_true(fabs((double)b.data[scores][(3 * 5 + 2) * 5 + 4] - expected) <= 1e-6);
    run(&b, &back_scores);
    run(&b, &to_heads);
    run(&b, &back_heads);
    check_slopes(&b, &to_heads, 0, g_heads, d_p);
    run(&b, &join);
    for (size_t i = 0; i < 180; i++) {
        const gpt_op *forward = i % 18 < 12 ? &to_scores : &to_heads; /* queries and keys make scores, values make heads */
        double found = (double)b.data[d_qkv][i], along = slope(&b, forward, i % 18 < 12 ? g_scores : g_heads, &b.data[qkv][i]);
        if (!(fabs(found - along) <= 1e-3)) fail_msg("element %zu of qkv: %g, slope %g", i, found, along);
    }
}

static void test_layers__mask_hides_keys_ahead_and_masked_ones_and_stops_their_gradient(void **state)
{
    (void)state;
    static bench b;
    for (int masked = 0; masked < 2; masked++) {
        clear(&b);
        int a = add(&b, 20, 5, -1, 1), keys = add(&b, 10, 1, 1, 1), y = add(&b, 20, 5, 0, 0), d = add(&b, 20, 5, 9, 9);
        b.data[keys][5 + 1] = 0.0f; /* key 1 of sample 1 */
        gpt_op op = operator_of(OP_MASK, a, masked ? keys : -1, -1, y, -1);
        gpt_op back = operator_of(OP_MASK_BACKWARD, a, masked ? keys : -1, -1, d, -1);
        run(&b, &op);
        run(&b, &back);
        for (size_t i = 0; i < 100; i++) {
            size_t sample = i / 50, t = i / 5 % 5, u = i % 5;
            bool hidden = u > t || (masked && sample == 1 && u == 1);
            assert_true(b.data[y][i] == (hidden ? -INF : b.data[a][i]) && b.data[d][i] == (hidden ? 0.0f : b.data[a][i]));
        }
    }
}

static void test_layers__loss_of_a_row_is_that_of_its_target_and_of_none_where_it_is_ignored(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int p = add(&b, 4, 7, -3, 0), targets = add_integers(&b, 4, 7), weights = add(&b, 4, 1, 1, 2), y = add(&b, 4, 1, 0, 0);
    int g = add(&b, 4, 1, -1, 1), d = add(&b, 4, 7, 9, 9), valid = add(&b, 4, 1, 9, 9);
    int32_t *ids = b.values[targets].data;
    ids[2] = GPT_IGNORE;
    b.data[p][14] = float_from_bits(0x7fc00000u); /* nobody reads a row that is ignored */
    gpt_op forward = operator_of(OP_NLL, p, targets, -1, y, -1), backward = operator_of(OP_NLL_BACKWARD, g, targets, -1, d, -1);
    gpt_op weigh = operator_of(OP_VALID, targets, weights, -1, valid, -1);
    run(&b, &forward);
    run(&b, &backward);
    run(&b, &weigh);
    for (size_t r = 0; r < 4; r++) {
        assert_true(b.data[y][r] == (r == 2 ? 0.0f : -b.data[p][r * 7 + (size_t)ids[r]]));
        assert_true(b.data[valid][r] == (r == 2 ? 0.0f : b.data[weights][r]));
        for (size_t v = 0; v < 7; v++) assert_true(b.data[d][r * 7 + v] == (r != 2 && (int32_t)v == ids[r] ? -b.data[g][r] : 0.0f));
    }
    ids[1] = 7;
    run(&b, &forward);
    run(&b, &backward);
    assert_true(is_nan_bits(b.data[y][1]) && is_nan_bits(b.data[d][7]) && is_nan_bits(b.data[d][13]) && b.data[d][14] == 0.0f);
}

static void test_layers__round_each_output_to_the_format_of_its_value(void **state)
{
    (void)state;
    static bench b;
    clear(&b);
    int a = add(&b, 5, 6, -1, 1), weight = add(&b, 3, 6, -1, 1), g = add(&b, 5, 3, -1, 1), d_a = add(&b, 5, 6, 9, 9);
    int d_weight = add(&b, 3, 6, 9, 9), wide = add(&b, 5, 6, 9, 9);
    gpt_op op = operator_of(OP_LINEAR_BACKWARD, g, a, weight, wide, d_weight);
    run(&b, &op);
    b.values[d_a].format = PRECISION_BF16;
    op.out[0] = d_a;
    run(&b, &op);
    for (size_t i = 0; i < 30; i++) assert_true(b.data[d_a][i] == round_bf16(b.data[wide][i]));
    assert_memory_not_equal(b.data[d_a], b.data[wide], 30 * sizeof(float));
}

static void test_layers__every_kind_was_run_here(void **state)
{
    (void)state;
    assert_covered(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers__embedding_takes_rows_adds_gradients_up_and_has_no_row_outside),
        cmocka_unit_test(test_layers__layer_norm_in_its_parts_has_the_slopes_of_the_whole),
        cmocka_unit_test(test_layers__linear_has_its_slopes_with_and_without_a_bias),
        cmocka_unit_test(test_layers__scores_and_heads_have_the_slopes_of_query_key_and_value),
        cmocka_unit_test(test_layers__mask_hides_keys_ahead_and_masked_ones_and_stops_their_gradient),
        cmocka_unit_test(test_layers__loss_of_a_row_is_that_of_its_target_and_of_none_where_it_is_ignored),
        cmocka_unit_test(test_layers__round_each_output_to_the_format_of_its_value),
        cmocka_unit_test(test_layers__every_kind_was_run_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
