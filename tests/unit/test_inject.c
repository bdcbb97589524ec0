/* Faults on purpose: what is read, what is refused, and that a fault goes where it was sent and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "guard/inject.h"

static fb_site_entry site_named(char *module, char *tensor)
{
    fb_site_entry site;
    memset(&site, 0, sizeof site);
    site.module = module;
    site.tensor = tensor;
    return site;
}

static void test_inject__a_full_item_is_read(void **state)
{
    fb_inject inject;
    fb_error err;
    (void)state;
    assert_int_equal(fb_inject_parse(&inject, "grad-bitflip@step=20-25,rank=all,micro=1,site=h.3.mlp,index=7,count=2,bit=30", &err),
                     FB_OK);
    assert_int_equal(inject.count, 1);
    assert_int_equal(inject.items[0].where, FB_INJECT_GRAD);
    assert_int_equal(inject.items[0].what, FB_PLANT_BITFLIP);
    assert_int_equal(inject.items[0].step_first, 20);
    assert_int_equal(inject.items[0].step_last, 25);
    assert_int_equal(inject.items[0].rank, -1);
    assert_int_equal(inject.items[0].micro, 1);
    assert_string_equal(inject.items[0].site, "h.3.mlp");
    assert_int_equal(inject.items[0].index, 7);
    assert_int_equal(inject.items[0].count, 2);
    assert_int_equal(inject.items[0].bit, 30);
}

static void test_inject__several_items_and_none(void **state)
{
    fb_inject inject;
    (void)state;
    assert_int_equal(fb_inject_parse(&inject, NULL, NULL), FB_OK);
    assert_int_equal(inject.count, 0);
    assert_int_equal(fb_inject_parse(&inject, " ; \n", NULL), FB_OK);
    assert_int_equal(inject.count, 0);
    assert_int_equal(fb_inject_parse(&inject, "loss-nan@step=1; token-bad@step=2,rank=3\nparam-inf@step=0", NULL), FB_OK);
    assert_int_equal(inject.count, 3);
    assert_int_equal(inject.items[1].rank, 3);
}

static void test_inject__wrong_words_are_refused_with_the_word(void **state)
{
    static const char *const wrong[] = {"grad",
                                        "grad-nan",
                                        "grad-oops@step=1",
                                        "here-nan@step=1",
                                        "grad-nan@step=x",
                                        "grad-nan@step=1,rank=-2",
                                        "grad-nan@step=5-2",
                                        "grad-nan@step=1,colour=2",
                                        "grad-zero@step=1",
                                        "token-nan@step=1",
                                        "grad-nan@step=1,bit=64",
                                        "grad-nan@step=1,count=0",
                                        "grad-nan@step=1,factor=2x"};
    fb_inject inject;
    fb_error err;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (fb_inject_parse(&inject, wrong[i], &err) != FB_E_USAGE) fail_msg("'%s' was not refused", wrong[i]);
        assert_non_null(strstr(err.message, "injection"));
    }
}

static void test_inject__too_many_or_too_long_is_a_limit(void **state)
{
    fb_inject inject;
    static const char item[] = "grad-nan@step=1;";
    char text[4096] = "";
    size_t used = 0;
    (void)state;
    for (int i = 0; i < FB_INJECT_MAX; i++, used += sizeof item - 1) memcpy(text + used, item, sizeof item);
    assert_int_equal(fb_inject_parse(&inject, text, NULL), FB_OK);
    memcpy(text + used, item, sizeof item);
    assert_int_equal(fb_inject_parse(&inject, text, NULL), FB_E_LIMIT);
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(fb_inject_parse(&inject, text, NULL), FB_E_LIMIT);
}

static const fb_injection *due(fb_inject *inject, int32_t where, int64_t step, int32_t micro, int32_t rank, char *module,
                               char *tensor)
{
    fb_site_entry site = site_named(module, tensor);
    uint32_t cursor = 0;
    return fb_inject_due(inject, &cursor, where, step, micro, rank, &site);
}

static void test_inject__is_due_at_its_place_only(void **state)
{
    fb_inject inject;
    (void)state;
    assert_int_equal(fb_inject_parse(&inject, "grad-nan@step=3,rank=2,micro=1,site=h.3", NULL), FB_OK);
    assert_non_null(due(&inject, FB_INJECT_GRAD, 3, 1, 2, "h.3.mlp", "w"));
    assert_null(due(&inject, FB_INJECT_REDUCED, 3, 1, 2, "h.3.mlp", "w"));
    assert_null(due(&inject, FB_INJECT_GRAD, 2, 1, 2, "h.3.mlp", "w"));
    assert_null(due(&inject, FB_INJECT_GRAD, 3, 0, 2, "h.3.mlp", "w"));
    assert_null(due(&inject, FB_INJECT_GRAD, 3, 1, 1, "h.3.mlp", "w"));
    assert_null(due(&inject, FB_INJECT_GRAD, 3, 1, 2, "h.30.mlp", "w"));
    fb_inject_fired(&inject, &inject.items[0]);
    assert_null(due(&inject, FB_INJECT_GRAD, 3, 1, 2, "h.3.mlp", "b"));
    fb_inject_begin(&inject);
    assert_non_null(due(&inject, FB_INJECT_GRAD, 3, 1, 2, "h.3.mlp", "w"));
}

static fb_view view_of(void *data, uint64_t count, int32_t dtype)
{
    fb_view view;
    memset(&view, 0, sizeof view);
    view.data = data;
    view.count = count;
    view.dtype = dtype;
    view.device = -1;
    return view;
}

static void test_inject__plants_bits_of_each_format_and_nothing_beside(void **state)
{
    static const struct {
        int32_t dtype;
        int bytes;
        uint64_t nan, inf;
    } formats[] = {{FB_F64, 8, 0x7ff8000000000000u, 0x7ff0000000000000u},
                   {FB_F32, 4, 0x7fc00000u, 0x7f800000u},
                   {FB_F16, 2, 0x7e00u, 0x7c00u},
                   {FB_BF16, 2, 0x7fc0u, 0x7f80u},
                   {FB_F8_E4M3FN, 1, 0x7fu, 0},
                   {FB_F8_E5M2, 1, 0x7eu, 0x7cu},
                   {FB_F8_E4M3FNUZ, 1, 0x80u, 0}};
    fb_inject inject;
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        uint8_t data[5 * 8], before[5 * 8];
        uint64_t bits = 0;
        fb_view view = view_of(data, 5, formats[f].dtype);
        memset(data, 0x11, sizeof data);
        memcpy(before, data, sizeof data);
        assert_int_equal(fb_inject_parse(&inject, "grad-nan@step=0,index=3;grad-inf@step=0,index=3", NULL), FB_OK);
        assert_int_equal(fb_inject_plant(&inject.items[0], &view), 1);
        memcpy(&bits, data + 3 * formats[f].bytes, (size_t)formats[f].bytes);
        assert_true(bits == formats[f].nan);
        memcpy(data + 3 * formats[f].bytes, before, (size_t)formats[f].bytes);
        assert_memory_equal(data, before, sizeof data);
        assert_int_equal(fb_inject_plant(&inject.items[1], &view), formats[f].inf != 0);
    }
}

static void test_inject__strided_views_and_integers(void **state)
{
    float data[8] = {0};
    fb_layout layout = {2, 0, {2, 2}, {4, 2}};
    fb_view view = view_of(data, 4, FB_F32);
    fb_inject inject;
    uint8_t bytes[4] = {1, 2, 3, 4};
    int32_t labels[3] = {5, 6, 7};
    uint32_t bits;
    (void)state;
    view.layout = &layout;
    assert_int_equal(fb_inject_parse(&inject, "grad-inf@step=0,index=3;token-bad@step=0,index=1;label-zero@step=0", NULL), FB_OK);
    assert_int_equal(fb_inject_plant(&inject.items[0], &view), 1);
    memcpy(&bits, &data[6], 4);
    assert_int_equal(bits, 0x7f800000u);
    assert_int_equal(fb_inject_plant_integers(&inject.items[1], bytes, FB_U8, 4, 200, 0), 1);
    assert_int_equal(bytes[1], 200);
    assert_int_equal(bytes[2], 3);
    assert_int_equal(fb_inject_plant_integers(&inject.items[1], bytes, FB_U8, 4, 256, 0), 0); /* a byte cannot hold 256 */
    assert_int_equal(fb_inject_plant_integers(&inject.items[2], labels, FB_I32, 3, 0, -100), 3);
    assert_int_equal(labels[2], -100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inject__a_full_item_is_read),
        cmocka_unit_test(test_inject__several_items_and_none),
        cmocka_unit_test(test_inject__wrong_words_are_refused_with_the_word),
        cmocka_unit_test(test_inject__too_many_or_too_long_is_a_limit),
        cmocka_unit_test(test_inject__is_due_at_its_place_only),
        cmocka_unit_test(test_inject__plants_bits_of_each_format_and_nothing_beside),
        cmocka_unit_test(test_inject__strided_views_and_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
