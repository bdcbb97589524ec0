/* The payloads of ledger records: what is written is read back bit for bit, and nothing is read past the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "evidence/records.h"
#include "evidence/site.h"

static fb_text text(const char *s)
{
    fb_text t = {s, (uint32_t)strlen(s)};
    return t;
}

static fb_rec_finding sample_finding(void)
{
    fb_rec_finding rec;
    uint64_t snan = 0x7ff0000000000001u;
    memset(&rec, 0, sizeof rec);
    rec.step = 412;
    rec.attempt = 2;
    rec.rank = 5;
    rec.boundary = FB_LOCAL_GRAD;
    rec.micro_step = 1;
    rec.kind = FB_KIND_NAN;
    rec.site = 17;
    rec.role = FB_ROLE_GRADIENT;
    rec.dtype = FB_F16;
    rec.bucket = -1;
    rec.position = 1234567;
    rec.count = 512;
    rec.first_index = FB_NO_INDEX - 1;
    rec.first_bits = 0x7e01;
    rec.low = INT64_MIN;
    rec.high = INT64_MAX;
    memcpy(&rec.abs_max, &snan, sizeof snan);
    rec.ndim = 2;
    rec.shape[0] = 3;
    rec.shape[1] = 9;
    rec.clean_before = 1u << FB_INPUT;
    rec.module = text("h.7.attn");
    rec.tensor = text("c_attn.weight");
    rec.group = text("");
    rec.host = text("node-3");
    return rec;
}

static void test_records__finding_comes_back_bit_for_bit(void **state)
{
    uint8_t bytes[FB_REC_BYTES_MAX];
    fb_rec_finding in = sample_finding(), out;
    uint32_t n = fb_rec_finding_encode(bytes, sizeof bytes, &in);
    (void)state;
    assert_true(n > 0);
    assert_int_equal(fb_rec_finding_decode(bytes, n, &out, NULL), FB_OK);
    assert_int_equal(out.step, 412);
    assert_int_equal(out.rank, 5);
    assert_int_equal(out.position, 1234567);
    assert_true(out.first_index == FB_NO_INDEX - 1);
    assert_true(out.low == INT64_MIN && out.high == INT64_MAX);
    assert_memory_equal(&out.abs_max, &in.abs_max, sizeof in.abs_max);
    assert_int_equal(out.ndim, 2);
    assert_int_equal(out.shape[1], 9);
    assert_int_equal(out.module.bytes, 8);
    assert_memory_equal(out.module.data, "h.7.attn", 8);
    assert_int_equal(out.group.bytes, 0);
    assert_memory_equal(out.host.data, "node-3", 6);
}

static void test_records__every_truncation_is_refused(void **state)
{
    uint8_t bytes[FB_REC_BYTES_MAX];
    fb_rec_finding in = sample_finding(), out;
    fb_rec_step step_in, step_out;
    uint32_t n = fb_rec_finding_encode(bytes, sizeof bytes, &in);
    fb_error err;
    (void)state;
    for (uint32_t cut = 0; cut < n; cut++) {
        assert_int_equal(fb_rec_finding_decode(bytes, cut, &out, &err), FB_E_CORRUPT);
        assert_true(strlen(err.message) > 0);
    }
    memset(&step_in, 0, sizeof step_in);
    step_in.samples = FB_SAMPLES_MAX;
    step_in.sample_ids[FB_SAMPLES_MAX - 1] = -7;
    n = fb_rec_step_encode(bytes, sizeof bytes, &step_in);
    assert_true(n > 0);
    for (uint32_t cut = 0; cut < n; cut++) assert_int_equal(fb_rec_step_decode(bytes, cut, &step_out, NULL), FB_E_CORRUPT);
    assert_int_equal(fb_rec_step_decode(bytes, n, &step_out, NULL), FB_OK);
    assert_int_equal(step_out.sample_ids[FB_SAMPLES_MAX - 1], -7);
}

static void test_records__longer_payload_of_a_later_version_is_read(void **state)
{
    uint8_t bytes[FB_REC_BYTES_MAX];
    fb_rec_pulse in = {57, 2, FB_PULSE_BALLOT, FB_SKIP, 3, {1, -2, 2, -1}}, out;
    uint32_t n = fb_rec_pulse_encode(bytes, sizeof bytes, &in);
    (void)state;
    bytes[0] = 2; /* version 2 appends fields that we do not know */
    memset(bytes + n, 0xab, 16);
    assert_int_equal(fb_rec_pulse_decode(bytes, n + 16, &out, NULL), FB_OK);
    assert_int_equal(out.step, 57);
    assert_int_equal(out.words[1], -2);
    bytes[0] = 0;
    assert_int_equal(fb_rec_pulse_decode(bytes, n, &out, NULL), FB_E_CORRUPT);
}

static void test_records__hostile_counts_and_lengths_are_refused(void **state)
{
    uint8_t bytes[FB_REC_BYTES_MAX];
    fb_rec_site in, out;
    fb_rec_step step_in, step_out;
    uint32_t n;
    (void)state;
    memset(&in, 0, sizeof in);
    in.module = text("m");
    in.tensor = text("t");
    in.group = text("");
    n = fb_rec_site_encode(bytes, sizeof bytes, &in);
    assert_int_equal(fb_rec_site_decode(bytes, n, &out, NULL), FB_OK);
    memset(bytes + 30, 0xff, 4); /* ndim */
    assert_int_equal(fb_rec_site_decode(bytes, n, &out, NULL), FB_E_CORRUPT);
    memset(&step_in, 0, sizeof step_in);
    n = fb_rec_step_encode(bytes, sizeof bytes, &step_in);
    memset(bytes + n - 4, 0xff, 4); /* samples */
    assert_int_equal(fb_rec_step_decode(bytes, n, &step_out, NULL), FB_E_CORRUPT);
}

static void test_records__no_room_gives_zero(void **state)
{
    uint8_t bytes[64];
    fb_rec_finding in = sample_finding();
    (void)state;
    assert_int_equal(fb_rec_finding_encode(bytes, sizeof bytes, &in), 0);
}

struct seen {
    int count;
    char last[32];
};

static void each_pair(void *ctx, fb_text key, fb_text value)
{
    struct seen *seen = ctx;
    seen->count++;
    assert_true(key.bytes > 0);
    assert_true(value.bytes < sizeof seen->last);
    memcpy(seen->last, value.data, value.bytes);
    seen->last[value.bytes] = '\0';
}

static void test_records__run_pairs_come_back_in_order(void **state)
{
    uint8_t bytes[512];
    fb_pair pairs[2] = {{"model_commit", "3f9c1e2"}, {"host", "node-3"}};
    struct seen seen = {0, ""};
    uint32_t n = fb_rec_run_encode(bytes, sizeof bytes, pairs, 2);
    (void)state;
    assert_int_equal(fb_rec_run_decode(bytes, n, each_pair, &seen, NULL), FB_OK);
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.last, "node-3");
}

static void test_sites__same_names_have_the_same_identity_and_wrong_ones_change_nothing(void **state)
{
    fb_sites sites;
    fb_site site = FB_SITE_INIT;
    uint32_t a = 9, b = 9;
    fb_error err;
    (void)state;
    fb_sites_init(&sites, 2);
    site.role = FB_ROLE_GRADIENT;
    site.module = "h.0.mlp";
    site.tensor = "c_fc.weight";
    assert_int_equal(fb_sites_add(&sites, &site, &a, &err), FB_OK);
    site.role = 0;
    assert_int_equal(fb_sites_add(&sites, &site, &b, &err), FB_E_USAGE);
    assert_int_equal(sites.count, 1);
    site.role = FB_ROLE_GRADIENT;
    assert_int_equal(fb_sites_add(&sites, &site, &b, &err), FB_OK);
    assert_int_equal(a, 0);
    assert_int_equal(b, 1);
    assert_true(fb_sites_get(&sites, a)->identity == fb_sites_get(&sites, b)->identity);
    assert_int_equal(fb_sites_get(&sites, b)->position, 1);
    assert_int_equal(fb_sites_add(&sites, &site, &b, &err), FB_E_LIMIT);
    assert_null(fb_sites_get(&sites, 2));
    fb_sites_release(&sites);
}

static void test_sites__unravel_is_row_major_and_refuses_a_shape_too_small(void **state)
{
    int64_t shape[3] = {2, 3, 4}, index[FB_DIMS_MAX];
    int64_t empty[1] = {0};
    (void)state;
    assert_int_equal(fb_site_unravel(shape, 3, 23, index), 3);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 2);
    assert_int_equal(index[2], 3);
    assert_int_equal(fb_site_unravel(shape, 3, 24, index), 0);
    assert_int_equal(fb_site_unravel(empty, 1, 0, index), 0);
}

/* What the first releases wrote ends after the first bad tensor. */
static void test_records__a_checkpoint_of_the_first_releases_is_read(void **state)
{
    fb_rec_ckpt rec, back;
    uint8_t payload[512];
    uint32_t bytes, mark = 8;
    uint32_t tail = 4 + 4 + 8 + 8 + 4 * 2 + mark; /* gated, pin, inode, time, and four empty texts */
    (void)state;
    memset(&rec, 0, sizeof rec);
    rec.step = 7;
    rec.state = 2;
    rec.path.data = "/a";
    rec.path.bytes = 2;
    bytes = fb_rec_ckpt_encode(payload, sizeof payload, &rec);
    assert_true(bytes > tail);
    memset(&back, 0x55, sizeof back);
    assert_int_equal(fb_rec_ckpt_decode(payload, bytes - tail, &back, NULL), FB_OK);
    assert_int_equal(back.step, 7);
    assert_int_equal(back.path.bytes, 2);
    assert_int_equal(back.gated, FB_CKPT_GATED_UNKNOWN);
    assert_int_equal(back.pin, 0);
    assert_int_equal(back.inode, 0);
    assert_int_equal(back.aside.bytes + back.pin_path.bytes + back.origin.bytes + back.note.bytes, 0);
    assert_int_equal(fb_rec_ckpt_decode(payload, bytes - 1, &back, NULL), FB_E_CORRUPT);
    back.mark = 5;
    assert_int_equal(fb_rec_ckpt_decode(payload, bytes - mark, &back, NULL), FB_OK); /* of a later one that marks no folders */
    assert_int_equal(back.mark, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records__finding_comes_back_bit_for_bit),
        cmocka_unit_test(test_records__every_truncation_is_refused),
        cmocka_unit_test(test_records__longer_payload_of_a_later_version_is_read),
        cmocka_unit_test(test_records__hostile_counts_and_lengths_are_refused),
        cmocka_unit_test(test_records__no_room_gives_zero),
        cmocka_unit_test(test_records__run_pairs_come_back_in_order),
        cmocka_unit_test(test_sites__same_names_have_the_same_identity_and_wrong_ones_change_nothing),
        cmocka_unit_test(test_sites__unravel_is_row_major_and_refuses_a_shape_too_small),
        cmocka_unit_test(test_records__a_checkpoint_of_the_first_releases_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
