/* l3/: what is written can be read back by our own reader of safetensors, in the formats and slices that the names say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "locate/evidence.h"
#include "support/one_witness.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/fb-evidence-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/l3/witness.safetensors", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/l3/stack.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/l3", folder);
    rmdir(path);
    return rmdir(folder);
}

static char *read_file(const char *name, size_t *bytes)
{
    static char *data; /* gcc 12 at -O3 takes what an automatic one pointed to for a part of it */
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    data = NULL;
    assert_int_equal(fb_os_read_file(fb_os_posix(), path, 1 << 20, &data, bytes, NULL), FB_OK);
    return data;
}

/* Bytes of a tensor in the file, found by its name in the header: "name":{"dtype":...,"data_offsets":[a,b]}. */
static const uint8_t *tensor_in(const char *file, const char *name, const char *dtype, const char *shape, size_t *bytes)
{
    char key[64], text[128];
    uint64_t header;
    const char *at, *offsets;
    unsigned long first, last;
    memcpy(&header, file, sizeof header);
    snprintf(key, sizeof key, "\"%s\":{", name);
    at = strstr(file + 8, key);
    assert_non_null(at);
    snprintf(text, sizeof text, "\"dtype\":\"%s\",\"shape\":[%s]", dtype, shape);
    assert_non_null(strstr(at, text));
    offsets = strstr(at, "\"data_offsets\":[");
    assert_non_null(offsets);
    first = strtoul(offsets + strlen("\"data_offsets\":["), (char **)&offsets, 10);
    last = strtoul(offsets + 1, NULL, 10);
    *bytes = last - first;
    return (const uint8_t *)file + 8 + header + first;
}

static void fill(one_witness *o, double *a, double *ids, double *out, double *exact)
{
    a[0] = 1.5;
    a[1] = -65504;
    a[2] = 0x1p-24;
    a[3] = 3 * 0x1p-24;
    ids[0] = -100;
    ids[1] = 7;
    out[0] = an_inf();
    out[1] = -an_inf();
    out[2] = a_nan();
    out[3] = -0.0;
    for (int i = 0; i < 4; i++) exact[i] = 1e300 * i;
    begin(o, "mul", "h.2.mlp", FB_FORWARD);
    add_input(o, "x", FB_F16, a, 4, 2, 2, 2);
    add_input(o, "ids", FB_I32, ids, 2, 1, 2);
    add_output(o, "y", FB_BF16, out, 4, 2, 2, 2);
    add_attribute(o, "scale", 0.125);
    set_exact(o, exact);
}

static void test_evidence__each_tensor_keeps_its_format_and_its_bits(void **state)
{
    static const uint16_t x[] = {0x3e00, 0xfbff, 0x0001, 0x0003}, y[] = {0x7f80, 0xff80, 0x7fc0, 0x8000};
    static const int32_t integers[] = {-100, 7};
    double a[4], ids[2], out[4], exact[4];
    fb_evidence evidence;
    one_witness o;
    size_t bytes, file_bytes;
    char *file;
    (void)state;
    fill(&o, a, ids, out, exact);
    assert_int_equal(fb_evidence_write(fb_os_posix(), folder, &o.w, 0, &evidence, NULL), FB_OK);
    assert_int_equal(evidence.count, 2);
    assert_int_equal(evidence.sliced, 0);
    assert_string_equal(evidence.files[0].name, "l3/witness.safetensors");
    file = read_file("l3/witness.safetensors", &file_bytes);
    assert_int_equal(evidence.files[0].bytes, file_bytes);
    assert_true(evidence.files[0].xxh3 == fb_hash64(file, file_bytes, 0));
    assert_memory_equal(tensor_in(file, "input.0", "F16", "2,2", &bytes), x, sizeof x);
    assert_int_equal(bytes, sizeof x);
    assert_memory_equal(tensor_in(file, "input.1", "I32", "2", &bytes), integers, sizeof integers);
    assert_memory_equal(tensor_in(file, "output.0", "BF16", "2,2", &bytes), y, sizeof y);
    assert_memory_equal(tensor_in(file, "exact.0", "F64", "2,2", &bytes), exact, sizeof exact);
    assert_non_null(strstr(file + 8, "\"input.0.name\":\"x\""));
    assert_non_null(strstr(file + 8, "\"input.0.shape\":\"2,2\""));
    assert_non_null(strstr(file + 8, "\"attribute.scale\":\"0.125\""));
    assert_non_null(strstr(file + 8, "\"bad_kind\":\"+inf\""));
    fb_free(file);
    file = read_file("l3/stack.json", &file_bytes);
    assert_true(evidence.files[1].xxh3 == fb_hash64(file, file_bytes, 0));
    assert_non_null(strstr(file, "\"schema\": \"firstbad.stack/1\""));
    assert_non_null(strstr(file, "\"operator\": \"mul\""));
    fb_free(file);
}

static void test_evidence__a_slice_holds_the_bad_element_and_says_where_it_begins(void **state)
{
    static double big[100000], out[100000];
    double exact_element;
    fb_evidence evidence;
    one_witness o;
    size_t bytes, file_bytes;
    const uint8_t *data;
    char *file, shape[32];
    const char *at;
    unsigned long start;
    float element;
    (void)state;
    for (int i = 0; i < 100000; i++) big[i] = out[i] = i;
    out[70000] = a_nan();
    begin(&o, "mul", "h.2.mlp", FB_FORWARD);
    add_input(&o, "x", FB_F32, big, 100000, 2, 100, 1000);
    add_output(&o, "y", FB_F32, out, 100000, 2, 100, 1000);
    set_exact(&o, big);
    assert_int_equal(fb_evidence_write(fb_os_posix(), folder, &o.w, 30000, &evidence, NULL), FB_OK);
    assert_int_equal(evidence.sliced, 3);
    file = read_file("l3/witness.safetensors", &file_bytes);
    assert_true(file_bytes < 30000 + 2048);
    at = strstr(file + 8, "\"input.0.start\":\"");
    assert_non_null(at);
    start = strtoul(at + strlen("\"input.0.start\":\""), NULL, 10);
    snprintf(shape, sizeof shape, "%d", 2500); /* a third of 30000 bytes */
    data = tensor_in(file, "input.0", "F32", shape, &bytes);
    assert_true(start <= 70000 && 70000 < start + bytes / 4);
    memcpy(&element, data + 4 * (70000 - start), sizeof element);
    assert_true(element == 70000.0f);
    at = strstr(file + 8, "\"exact.0.start\":\"");
    start = strtoul(at + strlen("\"exact.0.start\":\""), NULL, 10);
    data = tensor_in(file, "exact.0", "F64", "1250", &bytes);
    memcpy(&exact_element, data + 8 * (70000 - start), sizeof exact_element);
    assert_true(exact_element == 70000.0);
    fb_free(file);
    /* Nothing at all may be written: names are, and no tensor. */
    assert_int_equal(fb_evidence_write(fb_os_posix(), folder, &o.w, 1, &evidence, NULL), FB_OK);
    file = read_file("l3/witness.safetensors", &file_bytes);
    assert_null(strstr(file + 8, "data_offsets"));
    fb_free(file);
}

static void test_evidence__tensors_that_were_not_kept_are_left_out(void **state)
{
    double a[4], ids[2], out[4], exact[4];
    fb_evidence evidence;
    one_witness o;
    size_t bytes;
    char *file;
    (void)state;
    fill(&o, a, ids, out, exact);
    o.in[0].values = NULL;
    o.w.exact = NULL;
    assert_int_equal(fb_evidence_write(fb_os_posix(), folder, &o.w, 0, &evidence, NULL), FB_OK);
    file = read_file("l3/witness.safetensors", &bytes);
    assert_null(strstr(file + 8, "\"input.0\""));
    assert_null(strstr(file + 8, "\"exact.0\""));
    assert_non_null(strstr(file + 8, "\"input.1\""));
    fb_free(file);
}

static void test_evidence__every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    double a[4], ids[2], out[4], exact[4];
    fb_evidence evidence;
    one_witness o;
    uint64_t requests;
    (void)state;
    fill(&o, a, ids, out, exact);
    fb_alloc_fail_at(0, 0);
    assert_int_equal(fb_evidence_write(fb_os_posix(), folder, &o.w, 0, &evidence, NULL), FB_OK);
    requests = fb_alloc_requests();
    assert_true(requests > 10);
    for (uint64_t k = 1; k <= requests; k++) {
        fb_error err;
        fb_status status;
        fb_alloc_fail_at(k, 0);
        status = fb_evidence_write(fb_os_posix(), folder, &o.w, 0, &evidence, &err);
        fb_alloc_fail_at(0, 0);
        assert_int_equal(status, FB_E_NOMEM);
        assert_true(evidence.count < 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_evidence__each_tensor_keeps_its_format_and_its_bits, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_evidence__a_slice_holds_the_bad_element_and_says_where_it_begins, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_evidence__tensors_that_were_not_kept_are_left_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_evidence__every_failing_allocation_is_reported_and_leaks_nothing, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
