/*
 * test_layout: sizes and offsets of the open structs of firstbad.h, and of those of locate.h that have grown, and the values of its
 * constants. A caller compiled against one header meets a library built from another, and files outlive both; a field that moves or
 * a constant that is renumbered turns their numbers into others without a word. A new field goes to the end of a struct that starts
 * with its size; when a number here has to change otherwise, FB_ABI_VERSION goes up. The numbers are those of a 64-bit platform.
 */
#include "firstbad/firstbad.h"
#include "firstbad/locate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Twice: the compiler says which field moved, and the count of tests says that somebody looked. */
#define SIZE(type, bytes)                                                   \
    do {                                                                    \
        _Static_assert(sizeof(type) == (bytes), #type " changed its size"); \
        assert_int_equal(sizeof(type), (bytes));                            \
    } while (0)
#define FIELD(type, field, at)                                                    \
    do {                                                                          \
        _Static_assert(offsetof(type, field) == (at), #type "." #field " moved"); \
        assert_int_equal(offsetof(type, field), (at));                            \
    } while (0)
#define VALUE(name, number)                                          \
    do {                                                             \
        _Static_assert((name) == (number), #name " was renumbered"); \
        assert_int_equal((name), (number));                          \
    } while (0)

static void test_layout__error_is_1040_bytes(void **state)
{
    (void)state;
    SIZE(fb_error, 1040);
    FIELD(fb_error, code, 0);
    FIELD(fb_error, os_errno, 4);
    FIELD(fb_error, offset_bytes, 8);
    FIELD(fb_error, message, 16);
}

static void test_layout__layout_is_136_bytes(void **state)
{
    (void)state;
    SIZE(fb_layout, 136);
    FIELD(fb_layout, ndim, 0);
    FIELD(fb_layout, reserved, 4);
    FIELD(fb_layout, shape, 8);
    FIELD(fb_layout, strides, 72);
}

static void test_layout__view_is_64_bytes_on_every_64_bit_platform(void **state)
{
    (void)state;
    SIZE(fb_view, 64);
    FIELD(fb_view, data, 0);
    FIELD(fb_view, count, 8);
    FIELD(fb_view, dtype, 16);
    FIELD(fb_view, site, 20);
    FIELD(fb_view, layout, 24);
    FIELD(fb_view, device, 32);
    FIELD(fb_view, flags, 36);
    FIELD(fb_view, stream, 40);
    FIELD(fb_view, reserved, 48);
}

static void test_layout__scan_result_is_120_bytes(void **state)
{
    (void)state;
    SIZE(fb_scan_result, 120);
    FIELD(fb_scan_result, size, 0);
    FIELD(fb_scan_result, dtype, 4);
    FIELD(fb_scan_result, elements, 8);
    FIELD(fb_scan_result, nan, 16);
    FIELD(fb_scan_result, pos_inf, 24);
    FIELD(fb_scan_result, neg_inf, 32);
    FIELD(fb_scan_result, zero, 40);
    FIELD(fb_scan_result, subnormal, 48);
    FIELD(fb_scan_result, at_max, 56);
    FIELD(fb_scan_result, first_index, 64);
    FIELD(fb_scan_result, first_bits, 72);
    FIELD(fb_scan_result, first_kind, 80);
    FIELD(fb_scan_result, checked, 84);
    FIELD(fb_scan_result, abs_min, 88);
    FIELD(fb_scan_result, abs_max, 96);
    FIELD(fb_scan_result, sum_sq, 104);
    FIELD(fb_scan_result, sum_sq_exponent, 112);
    FIELD(fb_scan_result, reserved, 116);
}

static void test_layout__scaler_config_is_48_bytes(void **state)
{
    (void)state;
    SIZE(fb_scaler_config, 48);
    FIELD(fb_scaler_config, size, 0);
    FIELD(fb_scaler_config, enabled, 4);
    FIELD(fb_scaler_config, init_scale, 8);
    FIELD(fb_scaler_config, growth_factor, 16);
    FIELD(fb_scaler_config, backoff_factor, 24);
    FIELD(fb_scaler_config, growth_interval, 32);
    FIELD(fb_scaler_config, hysteresis, 36);
    FIELD(fb_scaler_config, scale_min, 40);
}

static void test_layout__pair_is_16_bytes(void **state)
{
    (void)state;
    SIZE(fb_pair, 16);
    FIELD(fb_pair, key, 0);
    FIELD(fb_pair, value, 8);
}

static void test_layout__run_config_is_176_bytes(void **state)
{
    (void)state;
    SIZE(fb_run_config, 176);
    FIELD(fb_run_config, size, 0);
    FIELD(fb_run_config, rank, 4);
    FIELD(fb_run_config, world, 8);
    FIELD(fb_run_config, dp_rank, 12);
    FIELD(fb_run_config, tp_rank, 16);
    FIELD(fb_run_config, pp_rank, 20);
    FIELD(fb_run_config, device, 24);
    FIELD(fb_run_config, attempt, 28);
    FIELD(fb_run_config, dir, 32);
    FIELD(fb_run_config, run_id, 40);
    FIELD(fb_run_config, host, 48);
    FIELD(fb_run_config, precision, 56);
    FIELD(fb_run_config, on_bad, 64);
    FIELD(fb_run_config, max_skips, 68);
    FIELD(fb_run_config, agreement, 72);
    FIELD(fb_run_config, threads, 76);
    FIELD(fb_run_config, scaler, 80);
    FIELD(fb_run_config, meta, 128);
    FIELD(fb_run_config, meta_count, 136);
    FIELD(fb_run_config, inject, 144);
    FIELD(fb_run_config, sites_max, 152);
    FIELD(fb_run_config, findings_max, 160);
    FIELD(fb_run_config, replicated, 168);
    FIELD(fb_run_config, replica_period, 172);
}

static void test_layout__scaler_state_is_16_bytes(void **state)
{
    (void)state;
    SIZE(fb_scaler_state, 16);
    FIELD(fb_scaler_state, scale, 0);
    FIELD(fb_scaler_state, growth_tracker, 8);
    FIELD(fb_scaler_state, hysteresis_left, 12);
}

static void test_layout__site_is_120_bytes(void **state)
{
    (void)state;
    SIZE(fb_site, 120);
    FIELD(fb_site, size, 0);
    FIELD(fb_site, role, 4);
    FIELD(fb_site, module, 8);
    FIELD(fb_site, tensor, 16);
    FIELD(fb_site, group, 24);
    FIELD(fb_site, bucket, 32);
    FIELD(fb_site, domain, 36);
    FIELD(fb_site, position, 40);
    FIELD(fb_site, legal, 48);
    FIELD(fb_site, ndim, 52);
    FIELD(fb_site, shape, 56);
}

static void test_layout__step_is_88_bytes(void **state)
{
    (void)state;
    SIZE(fb_step, 88);
    FIELD(fb_step, size, 0);
    FIELD(fb_step, known, 4);
    FIELD(fb_step, step, 8);
    FIELD(fb_step, micro_steps, 16);
    FIELD(fb_step, reserved, 20);
    FIELD(fb_step, global_batch_id, 24);
    FIELD(fb_step, sample_ids, 32);
    FIELD(fb_step, sample_count, 40);
    FIELD(fb_step, learning_rate, 48);
    FIELD(fb_step, loss_scale, 56);
    FIELD(fb_step, batch_fingerprint, 64);
    FIELD(fb_step, rng_state_hash, 72);
    FIELD(fb_step, checkpoint_parent, 80);
}

static void test_layout__tokens_is_152_bytes(void **state)
{
    (void)state;
    SIZE(fb_tokens, 152);
    FIELD(fb_tokens, size, 0);
    FIELD(fb_tokens, site, 4);
    FIELD(fb_tokens, rows, 8);
    FIELD(fb_tokens, cols, 16);
    FIELD(fb_tokens, tokens, 24);
    FIELD(fb_tokens, labels, 32);
    FIELD(fb_tokens, positions, 40);
    FIELD(fb_tokens, mask, 48);
    FIELD(fb_tokens, weights, 56);
    FIELD(fb_tokens, lengths, 64);
    FIELD(fb_tokens, token_dtype, 72);
    FIELD(fb_tokens, label_dtype, 76);
    FIELD(fb_tokens, position_dtype, 80);
    FIELD(fb_tokens, mask_dtype, 84);
    FIELD(fb_tokens, weight_dtype, 88);
    FIELD(fb_tokens, weight_site, 92);
    FIELD(fb_tokens, vocab, 96);
    FIELD(fb_tokens, classes, 104);
    FIELD(fb_tokens, ignore_index, 112);
    FIELD(fb_tokens, positions_max, 120);
    FIELD(fb_tokens, length_min, 128);
    FIELD(fb_tokens, length_max, 136);
    FIELD(fb_tokens, valid_tokens, 144);
}

static void test_layout__finding_is_184_bytes(void **state)
{
    (void)state;
    SIZE(fb_finding, 184);
    FIELD(fb_finding, size, 0);
    FIELD(fb_finding, site, 4);
    FIELD(fb_finding, boundary, 8);
    FIELD(fb_finding, micro_step, 12);
    FIELD(fb_finding, kind, 16);
    FIELD(fb_finding, field, 20);
    FIELD(fb_finding, count, 24);
    FIELD(fb_finding, first_index, 32);
    FIELD(fb_finding, value, 40);
    FIELD(fb_finding, low, 48);
    FIELD(fb_finding, high, 56);
    FIELD(fb_finding, stats, 64);
}

static void test_layout__verdict_is_96_bytes(void **state)
{
    (void)state;
    SIZE(fb_verdict, 96);
    FIELD(fb_verdict, size, 0);
    FIELD(fb_verdict, action, 4);
    FIELD(fb_verdict, agreement, 8);
    FIELD(fb_verdict, unanimous, 12);
    FIELD(fb_verdict, clean, 16);
    FIELD(fb_verdict, fault, 20);
    FIELD(fb_verdict, first_rank, 24);
    FIELD(fb_verdict, first_boundary, 28);
    FIELD(fb_verdict, first_micro_step, 32);
    FIELD(fb_verdict, consecutive_skips, 36);
    FIELD(fb_verdict, first_position, 40);
    FIELD(fb_verdict, local_findings, 48);
    FIELD(fb_verdict, step, 56);
    FIELD(fb_verdict, case_id, 64);
}

static void test_layout__step_result_is_24_bytes(void **state)
{
    (void)state;
    SIZE(fb_step_result, 24);
    FIELD(fb_step_result, size, 0);
    FIELD(fb_step_result, known, 4);
    FIELD(fb_step_result, loss, 8);
    FIELD(fb_step_result, grad_norm, 16);
}

static void test_layout__checkpoint_result_is_4944_bytes(void **state)
{
    (void)state;
    SIZE(fb_checkpoint_result, 4944);
    FIELD(fb_checkpoint_result, state, 4);
    FIELD(fb_checkpoint_result, status, 8);
    FIELD(fb_checkpoint_result, again, 12);
    FIELD(fb_checkpoint_result, first_kind, 16);
    FIELD(fb_checkpoint_result, step, 24);
    FIELD(fb_checkpoint_result, bytes, 32);
    FIELD(fb_checkpoint_result, elements, 40);
    FIELD(fb_checkpoint_result, bad, 48);
    FIELD(fb_checkpoint_result, digest, 56);
    FIELD(fb_checkpoint_result, first_index, 64);
    FIELD(fb_checkpoint_result, first_bits, 72);
    FIELD(fb_checkpoint_result, tensor, 80);
    FIELD(fb_checkpoint_result, reason, 336);
    FIELD(fb_checkpoint_result, path, 848);
}

static void test_layout__save_result_is_328_bytes(void **state)
{
    (void)state;
    SIZE(fb_save_result, 328);
    FIELD(fb_save_result, first_site, 4);
    FIELD(fb_save_result, tensors, 8);
    FIELD(fb_save_result, elements, 16);
    FIELD(fb_save_result, passed_over, 24);
    FIELD(fb_save_result, bad, 32);
    FIELD(fb_save_result, bad_tensors, 40);
    FIELD(fb_save_result, first_index, 48);
    FIELD(fb_save_result, first_bits, 56);
    FIELD(fb_save_result, first_kind, 64);
    FIELD(fb_save_result, first_tensor, 72);
}

static void test_layout__tape_op_is_96_bytes(void **state)
{
    (void)state;
    SIZE(fb_tape_op, 96);
    FIELD(fb_tape_op, op, 8);
    FIELD(fb_tape_op, inputs, 56);
    FIELD(fb_tape_op, attributes, 80);
    FIELD(fb_tape_op, node, 88);
}

static void test_layout__locate_result_is_1816_bytes(void **state)
{
    (void)state;
    SIZE(fb_locate_result, 1816);
    FIELD(fb_locate_result, nanoseconds, 72);
    FIELD(fb_locate_result, module, 80);
    FIELD(fb_locate_result, sentence, 704);
    FIELD(fb_locate_result, rows, 1728);
    FIELD(fb_locate_result, later, 1748);
    FIELD(fb_locate_result, node, 1752);
}

static void test_layout__locate_words_is_48_bytes(void **state)
{
    (void)state;
    SIZE(fb_locate_words, 48);
    FIELD(fb_locate_words, headline, 8);
    FIELD(fb_locate_words, seconds, 40);
}

static void test_layout__constants_are_never_renumbered(void **state)
{
    (void)state;
    VALUE(FB_OK, 0);
    VALUE(FB_E_USAGE, -1);
    VALUE(FB_E_NOMEM, -2);
    VALUE(FB_E_DTYPE, -3);
    VALUE(FB_E_IO, -4);
    VALUE(FB_E_CORRUPT, -5);
    VALUE(FB_E_EXISTS, -6);
    VALUE(FB_E_LIMIT, -7);
    VALUE(FB_E_UNSUPPORTED, -8);
    VALUE(FB_E_ORDER, -9);
    VALUE(FB_E_FORKED, -10);
    VALUE(FB_E_SITE, -11);
    VALUE(FB_E_HALTED, -12);
    VALUE(FB_E_SELFTEST, -13);
    VALUE(FB_E_NOTFOUND, -14);
    VALUE(FB_E_WITHHELD, -15);
    VALUE(FB_F64, 1);
    VALUE(FB_F32, 2);
    VALUE(FB_F16, 3);
    VALUE(FB_BF16, 4);
    VALUE(FB_F8_E4M3FN, 5);
    VALUE(FB_F8_E5M2, 6);
    VALUE(FB_F8_E4M3FNUZ, 7);
    VALUE(FB_F8_E5M2FNUZ, 8);
    VALUE(FB_F8_E8M0, 9);
    VALUE(FB_C64, 10);
    VALUE(FB_C128, 11);
    VALUE(FB_I8, 16);
    VALUE(FB_U8, 17);
    VALUE(FB_I16, 18);
    VALUE(FB_U16, 19);
    VALUE(FB_I32, 20);
    VALUE(FB_U32, 21);
    VALUE(FB_I64, 22);
    VALUE(FB_U64, 23);
    VALUE(FB_BOOL, 24);
    VALUE(FB_F4_E2M1, 25);
    VALUE(FB_F6_E2M3, 26);
    VALUE(FB_F6_E3M2, 27);
    VALUE(FB_DIMS_MAX, 8);
    VALUE(FB_KIND_NONE, 0);
    VALUE(FB_KIND_NAN, 1);
    VALUE(FB_KIND_POS_INF, 2);
    VALUE(FB_KIND_NEG_INF, 3);
    VALUE(FB_KIND_OUT_OF_RANGE, 4);
    VALUE(FB_KIND_ALL_IGNORED, 5);
    VALUE(FB_KIND_DOMAIN, 6);
    VALUE(FB_ENTRY, 1);
    VALUE(FB_INPUT, 2);
    VALUE(FB_FORWARD, 3);
    VALUE(FB_LOSS, 4);
    VALUE(FB_LOCAL_GRAD, 5);
    VALUE(FB_REDUCED_GRAD, 6);
    VALUE(FB_UPDATE, 7);
    VALUE(FB_CHECKPOINT, 8);
    VALUE(FB_PROCEED, 0);
    VALUE(FB_SKIP, 1);
    VALUE(FB_SKIP_FREEZE, 2);
    VALUE(FB_REPLAY, 3);
    VALUE(FB_DEGRADE, 4);
    VALUE(FB_HALT, 5);
    VALUE(FB_AGREE_NONE, 0);
    VALUE(FB_AGREE_NORM, 1);
    VALUE(FB_AGREE_VOTE, 2);
    VALUE(FB_ON_BAD_SKIP, 0);
    VALUE(FB_ON_BAD_HALT, 1);
    VALUE(FB_ON_BAD_OBSERVE, 2);
    VALUE(FB_ROLE_ACTIVATION, 1);
    VALUE(FB_ROLE_INPUT, 2);
    VALUE(FB_ROLE_LOSS, 3);
    VALUE(FB_ROLE_GRADIENT, 4);
    VALUE(FB_ROLE_PARAMETER, 5);
    VALUE(FB_ROLE_MOMENT, 6);
    VALUE(FB_ROLE_EMA, 7);
    VALUE(FB_ROLE_BUFFER, 8);
    VALUE(FB_ROLE_COUNTER, 9);
    VALUE(FB_LEGAL_NEG_INF, 1);
    VALUE(FB_LEGAL_PADDING, 2);
    VALUE(FB_LEGAL_EXEMPT, 4);
    VALUE(FB_DOMAIN_ANY, 0);
    VALUE(FB_DOMAIN_NONZERO, 1);
    VALUE(FB_DOMAIN_POSITIVE, 2);
    VALUE(FB_DOMAIN_NONNEGATIVE, 3);
    VALUE(FB_DOMAIN_PROBABILITY, 4);
    VALUE(FB_KNOWN_BATCH_ID, 1);
    VALUE(FB_KNOWN_LEARNING_RATE, 2);
    VALUE(FB_KNOWN_LOSS_SCALE, 4);
    VALUE(FB_KNOWN_BATCH_FINGERPRINT, 8);
    VALUE(FB_KNOWN_RNG_HASH, 16);
    VALUE(FB_KNOWN_CHECKPOINT_PARENT, 32);
    VALUE(FB_KNOWN_LOSS, 64);
    VALUE(FB_KNOWN_GRAD_NORM, 128);
    VALUE(FB_FIELD_TENSOR, 0);
    VALUE(FB_FIELD_TOKENS, 1);
    VALUE(FB_FIELD_LABELS, 2);
    VALUE(FB_FIELD_POSITIONS, 3);
    VALUE(FB_FIELD_MASK, 4);
    VALUE(FB_FIELD_WEIGHTS, 5);
    VALUE(FB_FIELD_LENGTHS, 6);
    VALUE(FB_CKPT_SUSPECT, 1);
    VALUE(FB_CKPT_COMMITTED, 2);
    VALUE(FB_CKPT_QUARANTINED, 3);
}

static void test_layout__initialisers_set_the_size(void **state)
{
    const fb_scan_result scan_result = FB_SCAN_RESULT_INIT;
    const fb_scaler_config scaler_config = FB_SCALER_CONFIG_INIT;
    const fb_run_config run_config = FB_RUN_CONFIG_INIT;
    const fb_site site = FB_SITE_INIT;
    const fb_step step = FB_STEP_INIT;
    const fb_tokens tokens = FB_TOKENS_INIT;
    const fb_verdict verdict = FB_VERDICT_INIT;
    const fb_step_result step_result = FB_STEP_RESULT_INIT;
    (void)state;
    assert_int_equal(scan_result.size, sizeof(fb_scan_result));
    assert_int_equal(scaler_config.size, sizeof(fb_scaler_config));
    assert_int_equal(run_config.size, sizeof(fb_run_config));
    assert_int_equal(site.size, sizeof(fb_site));
    assert_int_equal(step.size, sizeof(fb_step));
    assert_int_equal(tokens.size, sizeof(fb_tokens));
    assert_int_equal(verdict.size, sizeof(fb_verdict));
    assert_int_equal(step_result.size, sizeof(fb_step_result));
}

/* The initialisers are lists of values in the order of the fields: one value too few shifts all that follow. */
static void test_layout__initialisers_put_each_default_into_its_field(void **state)
{
    const fb_run_config config = FB_RUN_CONFIG_INIT;
    const fb_site site = FB_SITE_INIT;
    const fb_step step = FB_STEP_INIT;
    const fb_tokens tokens = FB_TOKENS_INIT;
    (void)state;
    assert_int_equal(config.rank, 0);
    assert_int_equal(config.world, 1);
    assert_int_equal(config.dp_rank, -1);
    assert_int_equal(config.tp_rank, -1);
    assert_int_equal(config.pp_rank, -1);
    assert_int_equal(config.device, -1);
    assert_int_equal(config.attempt, 1);
    assert_null(config.dir);
    assert_null(config.run_id);
    assert_null(config.precision);
    assert_int_equal(config.on_bad, FB_ON_BAD_SKIP);
    assert_int_equal(config.max_skips, 3);
    assert_int_equal(config.replicated, 0);
    assert_int_equal(config.replica_period, 100);
    assert_int_equal(config.agreement, FB_AGREE_VOTE);
    assert_int_equal(config.scaler.size, sizeof config.scaler);
    assert_int_equal(config.scaler.enabled, 0);
    assert_true(config.scaler.init_scale >= 65536.0 && config.scaler.init_scale <= 65536.0);
    assert_int_equal(config.scaler.growth_interval, 2000);
    assert_int_equal(config.scaler.hysteresis, 1);
    assert_null(config.meta);
    assert_null(config.inject);
    assert_int_equal(config.sites_max, 0);
    assert_int_equal(config.findings_max, 0);
    assert_int_equal(site.bucket, -1);
    assert_int_equal(site.position, -1);
    assert_int_equal(site.legal, 0);
    assert_int_equal(step.micro_steps, 1);
    assert_null(step.sample_ids);
    assert_int_equal(tokens.token_dtype, FB_I32);
    assert_int_equal(tokens.label_dtype, FB_I32);
    assert_int_equal(tokens.position_dtype, FB_I32);
    assert_int_equal(tokens.mask_dtype, FB_BOOL);
    assert_int_equal(tokens.weight_dtype, FB_F32);
    assert_int_equal(tokens.weight_site, UINT32_MAX);
    assert_int_equal(tokens.ignore_index, -100);
    assert_int_equal(tokens.length_min, 1);
    assert_true(tokens.length_max == INT64_MAX);
    assert_int_equal(tokens.valid_tokens, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__error_is_1040_bytes),
        cmocka_unit_test(test_layout__layout_is_136_bytes),
        cmocka_unit_test(test_layout__view_is_64_bytes_on_every_64_bit_platform),
        cmocka_unit_test(test_layout__scan_result_is_120_bytes),
        cmocka_unit_test(test_layout__scaler_config_is_48_bytes),
        cmocka_unit_test(test_layout__pair_is_16_bytes),
        cmocka_unit_test(test_layout__run_config_is_176_bytes),
        cmocka_unit_test(test_layout__scaler_state_is_16_bytes),
        cmocka_unit_test(test_layout__site_is_120_bytes),
        cmocka_unit_test(test_layout__step_is_88_bytes),
        cmocka_unit_test(test_layout__tokens_is_152_bytes),
        cmocka_unit_test(test_layout__finding_is_184_bytes),
        cmocka_unit_test(test_layout__verdict_is_96_bytes),
        cmocka_unit_test(test_layout__step_result_is_24_bytes),
        cmocka_unit_test(test_layout__checkpoint_result_is_4944_bytes),
        cmocka_unit_test(test_layout__save_result_is_328_bytes),
        cmocka_unit_test(test_layout__tape_op_is_96_bytes),
        cmocka_unit_test(test_layout__locate_result_is_1816_bytes),
        cmocka_unit_test(test_layout__locate_words_is_48_bytes),
        cmocka_unit_test(test_layout__constants_are_never_renumbered),
        cmocka_unit_test(test_layout__initialisers_set_the_size),
        cmocka_unit_test(test_layout__initialisers_put_each_default_into_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
