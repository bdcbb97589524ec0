/*
 * What torch.save and numpy wrote (tests/golden/pickle, made by scripts/make-golden-pickles.py with torch 2.13 and numpy 2), seen
 * as tensors with names; and descriptions of tensors that reach out of their storages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "ckpt/torch_object.h"
#include "os/os.h"

#define GOLDEN "tests/golden/pickle/"

static fb_error err;

typedef struct opened {
    char *data;
    fb_pickle *pickle;
    fb_torch_object *object;
    fb_status status;
} opened;

static opened open_bytes(const void *data, size_t bytes)
{
    opened o = {NULL, NULL, NULL, FB_OK};
    uint64_t used;
    fb_error_clear(&err);
    o.status = fb_pickle_parse(&o.pickle, data, bytes, 0, "memory", NULL, &used, &err);
    if (o.status == FB_OK) o.status = fb_torch_object_open(&o.object, o.pickle, "memory", &err);
    assert_true((o.status == FB_OK) == (o.object != NULL));
    assert_true(o.status == FB_OK || (err.code == o.status && err.message[0] != '\0'));
    return o;
}

static opened open_golden(const char *name)
{
    char path[256];
    size_t bytes;
    char *data;
    opened o;
    (void)snprintf(path, sizeof path, GOLDEN "%s", name);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 20, &data, &bytes, &err) != FB_OK) fail_msg("%s", err.message);
    o = open_bytes(data, bytes);
    o.data = data;
    if (o.status != FB_OK) fail_msg("%s: %s", name, err.message);
    return o;
}

static void done(opened *o)
{
    fb_torch_object_close(o->object);
    fb_pickle_free(o->pickle);
    fb_free(o->data);
}

/* The tensor of a storage by its name, or NULL. */
static const fb_ckpt_tensor *tensor(const opened *o, const char *name, const fb_torch_storage **in)
{
    for (uint64_t i = 0; i < fb_torch_storages(o->object); i++) {
        const fb_torch_storage *storage = fb_torch_storage_at(o->object, i);
        if (in) *in = storage;
        for (uint64_t t = 0; t < storage->tensor_count; t++) {
            if (strcmp(storage->tensors[t].name, name) == 0) return &storage->tensors[t];
        }
    }
    return NULL;
}

static const fb_ckpt_tensor *in_memory(const opened *o, const char *name, fb_ckpt_extent *extent)
{
    for (uint64_t i = 0; fb_torch_extent(o->object, i, extent); i++) {
        for (uint64_t t = 0; t < extent->tensor_count; t++) {
            if (strcmp(extent->tensors[t].name, name) == 0) return &extent->tensors[t];
        }
    }
    return NULL;
}

static int has_remark(const opened *o, int32_t kind, const char *name, const char *part)
{
    fb_ckpt_remark remark;
    for (uint64_t i = 0; fb_torch_remark(o->object, i, &remark); i++) {
        if (remark.kind == kind && strcmp(remark.name, name) == 0 && strstr(remark.text, part)) return 1;
    }
    return 0;
}

static double fact(const opened *o, const char *name)
{
    fb_ckpt_remark remark;
    for (uint64_t i = 0; fb_torch_remark(o->object, i, &remark); i++) {
        if (remark.kind == FB_CKPT_REMARK_FACT && strcmp(remark.name, name) == 0) return remark.value;
    }
    return -1;
}

static void has_shape(const fb_ckpt_tensor *t, int32_t dtype, int32_t ndim, uint64_t first, uint64_t second)
{
    assert_non_null(t);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->ndim, ndim);
    if (ndim > 0) assert_int_equal(t->shape[0], first);
    if (ndim > 1) assert_int_equal(t->shape[1], second);
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

static void test_torch_object__a_training_state_has_the_names_of_its_owner(void **state)
{
    opened o = open_golden("state.pkl");
    (void)state;
    has_shape(tensor(&o, "model.0.weight", NULL), FB_F32, 2, 3, 4);
    has_shape(tensor(&o, "model.3.num_batches_tracked", NULL), FB_I64, 0, 0, 0);
    /* Two groups, weights of two dimensions first: number 1 of the optimizer is the third tensor of the model. */
    has_shape(tensor(&o, "optimizer.state.exp_avg of 2.weight", NULL), FB_F32, 2, 2, 3);
    has_shape(tensor(&o, "optimizer.state.exp_avg_sq of 0.bias", NULL), FB_F32, 1, 3, 0);
    has_shape(tensor(&o, "optimizer.state.step of 3.bias", NULL), FB_F32, 0, 0, 0);
    assert_null(tensor(&o, "optimizer.state.0.exp_avg", NULL));
    has_shape(tensor(&o, "rng.0", NULL), FB_U8, 1, 64, 0);
    done(&o);
}

static void test_torch_object__parameters_are_named_by_the_model_in_its_order(void **state)
{
    opened o = open_golden("sgd.pkl");
    (void)state;
    has_shape(tensor(&o, "optimizer.state.momentum_buffer of 2.weight", NULL), FB_F32, 2, 2, 3);
    has_shape(tensor(&o, "optimizer.state.momentum_buffer of 1.weight", NULL), FB_F32, 1, 3, 0);
    done(&o);
    o = open_golden("named.pkl");
    has_shape(tensor(&o, "state.momentum_buffer of 2.weight", NULL), FB_F32, 2, 2, 3);
    done(&o);
    o = open_golden("keyed.pkl");
    has_shape(tensor(&o, "optim.state.exp_avg of h.0.weight", NULL), FB_F32, 1, 2, 0);
    done(&o);
}

static void test_torch_object__a_part_in_a_dtensor_has_the_name_of_the_whole(void **state)
{
    opened o = open_golden("dtensor.pkl");
    (void)state;
    has_shape(tensor(&o, "model.w", NULL), FB_F32, 2, 4, 2);
    has_shape(tensor(&o, "optimizer.state.exp_avg of w", NULL), FB_F32, 2, 4, 2);
    assert_false(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "model.w", ""));
    done(&o);
}

static void test_torch_object__parameters_keep_their_numbers_where_nothing_fits(void **state)
{
    opened o = open_golden("alone.pkl");
    (void)state;
    has_shape(tensor(&o, "state.4.momentum_buffer", NULL), FB_F32, 2, 2, 3);
    done(&o);
    o = open_golden("unlike.pkl"); /* one tensor of the model has another shape */
    has_shape(tensor(&o, "optimizer.state.4.momentum_buffer", NULL), FB_F32, 2, 2, 3);
    done(&o);
}

static void test_torch_object__a_module_saved_whole_names_its_parameters(void **state)
{
    opened o = open_golden("module.pkl");
    (void)state;
    has_shape(tensor(&o, "0.weight", NULL), FB_F32, 2, 3, 4);
    has_shape(tensor(&o, "3.running_var", NULL), FB_F32, 1, 2, 0);
    done(&o);
}

static void test_torch_object__a_name_holds_no_control_character(void **state)
{
    opened o = open_golden("views.pkl");
    (void)state;
    assert_non_null(tensor(&o, "line\\x0a\\x1b[31m\xe2\x82\xac", NULL));
    done(&o);
    o = open_bytes("}U\3\xffz\xc2G\x7f\xf0\0\0\0\0\0\0s.", 17);
    assert_int_equal(o.status, FB_OK);
    fb_ckpt_extent extent;
    assert_non_null(in_memory(&o, "\\xffz\\xc2", &extent)); /* not UTF-8 */
    done(&o);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

static void test_torch_object__views_of_one_storage_keep_place_and_strides(void **state)
{
    opened o = open_golden("views.pkl");
    const fb_torch_storage *all, *in;
    const fb_ckpt_tensor *t = tensor(&o, "all", &all);
    (void)state;
    has_shape(t, FB_F32, 2, 4, 4);
    assert_null(t->strides);
    assert_int_equal(all->tensor_count, 5);
    assert_int_equal(all->elements, 16);
    has_shape(t = tensor(&o, "part", &in), FB_F32, 2, 2, 3);
    assert_ptr_equal(in, all);
    assert_int_equal(t->offset_bytes, 20);
    assert_int_equal(t->strides[0], 4);
    assert_int_equal(t->strides[1], 1);
    has_shape(t = tensor(&o, "turned", &in), FB_F32, 2, 4, 4);
    assert_int_equal(t->strides[0], 1);
    assert_non_null(tensor(&o, "parameter", &in));
    assert_ptr_equal(in, all);
    assert_non_null(tensor(&o, "same", &in)); /* the very same object, under a second name */
    assert_ptr_equal(in, all);
    has_shape(t = tensor(&o, "spread", &in), FB_F32, 2, 3, 5);
    assert_int_equal(t->strides[1], 0);
    assert_int_equal(t->elements, 15);
    assert_int_equal(in->elements, 3);
    has_shape(tensor(&o, "one", NULL), FB_F32, 0, 0, 0);
    has_shape(t = tensor(&o, "none", NULL), FB_F32, 2, 0, 3);
    assert_int_equal(t->elements, 0);
    done(&o);
}

static void test_torch_object__every_format_is_known(void **state)
{
    static const struct {
        const char *name;
        int32_t dtype;
    } cases[] = {{"bf16", FB_BF16},
                 {"e5m2", FB_F8_E5M2},
                 {"e4m3", FB_F8_E4M3FN},
                 {"e8m0", FB_F8_E8M0},
                 {"c64", FB_C64},
                 {"u16", FB_U16},
                 {"f4", FB_U8},
                 {"flag", FB_BOOL},
                 {"quantised", FB_I8},
                 {"channels", FB_U8},
                 {"channels.scale", FB_F64},
                 {"channels.zero_point", FB_I64}};
    opened o = open_golden("formats.pkl");
    fb_ckpt_extent extent;
    const fb_ckpt_tensor *t;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        t = tensor(&o, cases[i].name, NULL);
        if (!t || t->dtype != cases[i].dtype || t->unscanned)
            fail_msg("%s: %d instead of %d: %s", cases[i].name, t ? t->dtype : -1, cases[i].dtype,
                     t && t->unscanned ? t->unscanned : "");
    }
    t = tensor(&o, "c32", NULL); /* two halves, for which the scanner has no format: lanes */
    assert_int_equal(t->lane_count, 2);
    assert_int_equal(t->period_bytes, 4);
    assert_int_equal(t->lanes[1].offset_bytes, 2);
    assert_non_null(in_memory(&o, "(numbers)", &extent)); /* the scale of "quantised" */
    done(&o);
}

static void test_torch_object__tensors_inside_others_are_found(void **state)
{
    opened o = open_golden("kinds.pkl");
    (void)state;
    has_shape(tensor(&o, "coo.values", NULL), FB_F32, 1, 1, 0);
    has_shape(tensor(&o, "coo.indices", NULL), FB_I64, 2, 2, 1);
    has_shape(tensor(&o, "csr.values", NULL), FB_F32, 1, 2, 0);
    has_shape(tensor(&o, "subclass", NULL), FB_F32, 1, 2, 0);
    has_shape(tensor(&o, "subclass.extra", NULL), FB_F32, 1, 1, 0);
    has_shape(tensor(&o, "untyped", NULL), FB_U8, 1, 8, 0);
    has_shape(tensor(&o, "typed", NULL), FB_F32, 1, 2, 0);
    done(&o);
}

static void test_torch_object__what_cannot_be_looked_at_is_told(void **state)
{
    opened o = open_golden("kinds.pkl");
    (void)state;
    assert_true(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "meta", "not saved"));
    assert_true(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "io", "3 bytes"));
    assert_true(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "bytes", "65 bytes"));
    assert_false(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "digest", ""));
    assert_true(has_remark(&o, FB_CKPT_REMARK_NOTE, "te._extra_state", "another pickle"));
    assert_true(has_remark(&o, FB_CKPT_REMARK_NOTE, "theirs.Weights", "is an import that is not known"));
    done(&o);
    o = open_golden("numpy4.pkl");
    fb_ckpt_extent extent;
    assert_non_null(in_memory(&o, "record", &extent)->unscanned);
    done(&o);
}

static void test_torch_object__many_notes_do_not_hide_what_was_not_looked_at(void **state)
{
    enum { NOTES = 1100 };
    static const char one[] =
        "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nByteStorage\nU\0010U\3cpuK\1tQK\0K\1\x85K\1\x85\x89}tRq\0000";
    static const char tail[] = "U\4lastctorch._utils\n_rebuild_meta_tensor_no_storage\n)Rs.";
    char *text = malloc(sizeof one + (size_t)NOTES * 32 + sizeof tail);
    size_t at = sizeof one - 1;
    opened o;
    (void)state;
    assert_non_null(text);
    memcpy(text, one, at);
    text[at++] = '}';
    for (int i = 0; i < NOTES; i++, at += 21) {
        memcpy(text + at, "U\x10", 2);
        (void)sprintf(text + at + 2, "%04d_extra_state", i);
        memcpy(text + at + 18, "h\0s", 3);
    }
    memcpy(text + at, tail, sizeof tail - 1);
    o = open_bytes(text, at + sizeof tail - 1);
    if (o.status != FB_OK) fail_msg("%s", err.message);
    assert_true(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "last", "not saved"));
    assert_true(has_remark(&o, FB_CKPT_REMARK_NOTE, "", "1092 more tensors"));
    done(&o);
    free(text);
}

/* ---- a hand-made tensor ------------------------------------------------------------------------------------------------------ */

#define TENSOR(key, elements, offset, size, stride)                                                                          \
    "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1" key "U\3cpu" elements "tQ" offset size stride \
    "\x89}tR"

#define OPEN(text) open_bytes(text, sizeof(text) - 1)

static void test_torch_object__a_view_that_leaves_its_storage_is_refused(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
        fb_status status;
    } cases[] = {
#define CASE(elements, offset, size, stride, status) \
    {TENSOR("0", elements, offset, size, stride) ".", sizeof(TENSOR("0", elements, offset, size, stride)), status}
        CASE("K\6", "K\0", "K\2K\3\x86", "K\3K\1\x86", FB_OK),
        CASE("K\6", "K\1", "K\2K\3\x86", "K\3K\1\x86", FB_E_CORRUPT), /* one too far */
        CASE("K\5", "K\0", "K\2K\3\x86", "K\3K\1\x86", FB_E_CORRUPT),
        CASE("K\6", "K\0", "K\2K\3\x86", "K\4K\1\x86", FB_E_CORRUPT),
        CASE("K\3", "K\0", "K\2K\3\x86", "K\0K\1\x86", FB_OK), /* expanded */
        CASE("K\6", "K\0", "K\2K\3\x86", "J\xff\xff\xff\xffK\1\x86", FB_E_CORRUPT),
        CASE("K\6", "J\xff\xff\xff\xff", "K\2\x85", "K\1\x85", FB_E_CORRUPT),
        CASE("K\6", "K\0", "J\xff\xff\xff\xff\x85", "K\1\x85", FB_E_CORRUPT),
        CASE("K\6", "K\0", "K\2K\3\x86", "K\1\x85", FB_E_CORRUPT), /* a stride is missing */
        CASE("K\6", "K\0", "N", "K\1\x85", FB_E_CORRUPT),
        CASE("K\6", "N", "K\2\x85", "K\1\x85", FB_E_CORRUPT),
        CASE("J\xff\xff\xff\xff", "K\0", "K\2\x85", "K\1\x85", FB_E_CORRUPT),
        CASE("K\6", "K\0", "K\0K\3\x86", "K\3K\1\x86", FB_OK), /* nothing in it */
        CASE("K\1", "K\0", "\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86", "K\0K\0\x86", FB_E_CORRUPT), /* 2^124 */
        CASE("\x8a\x08\0\0\0\0\0\0\0\x40", "K\0", "K\2\x85", "K\1\x85", FB_E_CORRUPT), /* 2^62 elements, 2^64 bytes */
        CASE("K\6", "K\0", "K\2\x85", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85", FB_E_CORRUPT),
        CASE("K\6", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\2\x85", "K\1\x85", FB_E_CORRUPT),
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        opened o = open_bytes(cases[i].text, cases[i].bytes);
        if (o.status != cases[i].status) fail_msg("case %zu: %s", i, err.message);
        if (cases[i].status != FB_OK) assert_int_not_equal(err.offset_bytes, 0);
        done(&o);
    }
}

static void test_torch_object__one_storage_has_one_size_and_one_class(void **state)
{
    opened o = OPEN("(" TENSOR("0", "K\2", "K\0", "K\2\x85", "K\1\x85") TENSOR("0", "K\2", "K\0", "K\1\x85", "K\1\x85") "t.");
    (void)state;
    assert_int_equal(o.status, FB_OK);
    assert_int_equal(fb_torch_storages(o.object), 1);
    done(&o);
    o = OPEN("(" TENSOR("0", "K\2", "K\0", "K\2\x85", "K\1\x85") TENSOR("0", "K\3", "K\0", "K\1\x85", "K\1\x85") "t.");
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
    o = OPEN("(" TENSOR("0", "K\2", "K\0", "K\2\x85", "K\1\x85") "(U\7storagectorch\nHalfStorage\nU\0010U\3cpuK\2tQt.");
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
    o = OPEN("(U\7storagectorch\nHalfStorage\nU\1/U\3cpuK\2tQ.");
    assert_int_equal(o.status, FB_OK);
    done(&o);
    o = OPEN("(U\7storagectorch\nHalfStorage\nU\2a\nU\3cpuK\2tQ."); /* a key becomes the name of a member */
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
    o = OPEN("(U\7storagectheirs\nStorage\nU\0010U\3cpuK\2tQ.");
    assert_int_equal(o.status, FB_OK);
    assert_non_null(fb_torch_storage_at(o.object, 0)->tensors[0].unscanned);
    done(&o);
    o = OPEN("(U\5otherK\1tQ.");
    assert_true(has_remark(&o, FB_CKPT_REMARK_UNSCANNED, "(root)", "elsewhere"));
    done(&o);
}

static void test_torch_object__a_legacy_part_lies_in_its_root(void **state)
{
    opened o = OPEN("(U\7storagectorch\nFloatStorage\nU\0011U\3cpuK\nU\0012K\4K\5\x87tQ.");
    const fb_torch_storage *part;
    (void)state;
    assert_int_equal(o.status, FB_OK);
    assert_int_equal(fb_torch_storages(o.object), 2);
    part = fb_torch_storage_at(o.object, 1);
    assert_string_equal(part->key, "2");
    assert_string_equal(part->root_key, "1");
    assert_int_equal(part->root_offset_elements, 4);
    assert_int_equal(part->elements, 5);
    done(&o);
    o = OPEN("(U\7storagectorch\nFloatStorage\nU\0011U\3cpuK\nU\0012K\6K\5\x87tQ.");
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
}

static void test_torch_object__tensors_of_the_oldest_files_are_read(void **state)
{
    opened o = OPEN("ctorch\nFloatTensor\n)R((U\7storagectorch\nFloatStorage\nU\0010U\3cpuK\6tQK\1K\2\x85K\1\x85tb.");
    (void)state;
    assert_int_equal(o.status, FB_OK);
    assert_int_equal(tensor(&o, "(root)", NULL)->offset_bytes, 4);
    done(&o);
}

/* ---- arrays and numbers ----------------------------------------------------------------------------------------------------- */

static void check_arrays(const char *name)
{
    opened o = open_golden(name);
    fb_ckpt_extent extent;
    const fb_ckpt_tensor *t = in_memory(&o, "line", &extent);
    has_shape(t, FB_F64, 1, 3, 0);
    assert_int_equal(extent.encoding, FB_CKPT_MEMORY);
    assert_int_equal(extent.bytes, 24);
    assert_memory_equal(extent.memory, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\x40", 24);
    t = in_memory(&o, "turned", &extent);
    has_shape(t, FB_F32, 2, 2, 3);
    assert_int_equal(extent.swapped, 1);
    assert_int_equal(t->strides[0], 1);
    assert_int_equal(t->strides[1], 2);
    has_shape(in_memory(&o, "scalar", &extent), FB_F32, 0, 0, 0);
    has_shape(in_memory(&o, "none", &extent), FB_F64, 1, 0, 0);
    has_shape(in_memory(&o, "bf16", &extent), FB_BF16, 1, 2, 0);
    assert_null(in_memory(&o, "text", &extent));
    has_shape(in_memory(&o, "masked", &extent), FB_F64, 1, 2, 0);
    t = in_memory(&o, "objects.0", &extent); /* an infinity among objects is found as what it is */
    assert_non_null(t);
    assert_int_equal(t->number, 1);
    done(&o);
}

static void test_torch_object__numpy_arrays_are_read_in_every_protocol(void **state)
{
    (void)state;
    check_arrays("numpy2.pkl");
    check_arrays("numpy3.pkl");
    check_arrays("numpy4.pkl");
    check_arrays("numpy5.pkl");
}

#define DTYPE "cnumpy\ndtype\n(U\2f8\x89\x88tR(K\3U\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
#define ARRAY(shape, data) "cnumpy.core.multiarray\n_reconstruct\n)R(K\1" shape DTYPE "\x89" data "tb"

static void test_torch_object__an_array_must_fill_its_bytes(void **state)
{
    opened o = OPEN(ARRAY("K\1\x85", "U\x08\0\0\0\0\0\0\xf0\x3f") "."); /* as Python 2 wrote it */
    fb_ckpt_extent extent;
    (void)state;
    assert_int_equal(o.status, FB_OK);
    has_shape(in_memory(&o, "(root)", &extent), FB_F64, 1, 1, 0);
    assert_int_equal(extent.bytes, 8);
    done(&o);
    o = OPEN(ARRAY("K\2\x85", "C\x08\0\0\0\0\0\0\xf0\x3f") ".");
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
    o = OPEN(ARRAY("\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86", "C\x08\0\0\0\0\0\0\xf0\x3f") ".");
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
    o = OPEN(ARRAY("K\1\x85", "c_codecs\nencode\nX\5\0\0\0\xe2\x82\xac  U\6latin1\x86R") "."); /* a character beyond 255 */
    assert_int_equal(o.status, FB_E_CORRUPT);
    done(&o);
}

static void test_torch_object__arrays_that_share_bytes_are_one_extent(void **state)
{
    opened o = OPEN("(C\x08\0\0\0\0\0\0\xf0\x3fq\0"
                    "0" ARRAY("K\1\x85", "h\0") ARRAY("K\1\x85", "h\0") "t.");
    fb_ckpt_extent extent;
    (void)state;
    assert_int_equal(o.status, FB_OK);
    assert_true(fb_torch_extent(o.object, 0, &extent));
    assert_int_equal(extent.tensor_count, 2);
    assert_false(fb_torch_extent(o.object, 1, &extent));
    done(&o);
}

static void test_torch_object__numbers_of_python_are_gathered_and_odd_ones_named(void **state)
{
    opened o = open_golden("state.pkl");
    fb_ckpt_extent extent;
    const fb_ckpt_tensor *t = in_memory(&o, "best", &extent);
    (void)state;
    has_shape(t, FB_F64, 0, 0, 0);
    assert_memory_equal(extent.memory, "\0\0\0\0\0\0\xf0\x7f", 8);
    assert_true(t->number && t->legal_inf);
    assert_true(in_memory(&o, "scheduler.mode_worse", &extent)->legal_inf);
    assert_false(in_memory(&o, "loss", &extent)->legal_inf); /* NaN */
    assert_false(in_memory(&o, "lr", &extent)->legal_inf);
    t = in_memory(&o, "(numbers)", &extent);
    assert_true(t->number);
    assert_int_equal(extent.bytes, t->elements * 8);
    done(&o);
    o = OPEN("}(U\4bestG\x7f\xf0\0\0\0\0\0\x2eU\x0cparam_groups]}U\1xG\xff\xf0\0\0\0\0\0\0sau.");
    assert_int_equal(o.status, FB_OK);
    assert_false(in_memory(&o, "best", &extent)->legal_inf); /* a NaN whose payload is small */
    assert_false(in_memory(&o, "param_groups.0.x", &extent)->legal_inf);
    done(&o);
}

static void test_torch_object__an_infinite_loss_of_the_last_step_is_a_fault(void **state)
{
    fb_ckpt_extent extent;
    opened o = OPEN("}(U\4lossG\x7f\xf0\0\0\0\0\0\0U\x0d"
                    "learning_rateG\x7f\xf0\0\0\0\0\0\0U\x0d"
                    "best_val_lossG\x7f\xf0\0\0\0\0\0\0U\x08val_lossG\x7f\xf0\0\0\0\0\0\0u.");
    (void)state;
    if (o.status != FB_OK) fail_msg("%s", err.message);
    assert_false(in_memory(&o, "loss", &extent)->legal_inf);
    assert_false(in_memory(&o, "learning_rate", &extent)->legal_inf);
    assert_true(in_memory(&o, "best_val_loss", &extent)->legal_inf);
    assert_true(in_memory(&o, "val_loss", &extent)->legal_inf); /* before the first evaluation */
    done(&o);
}

static void test_torch_object__no_infinite_scale_of_a_quantised_tensor_is_healthy(void **state)
{
    fb_ckpt_extent extent;
    opened o = OPEN("ctorch._utils\n_rebuild_qtensor\n((U\7storagectorch\nQInt8Storage\nU\0010U\3cpuK\2tQK\0K\2\x85K\1\x85"
                    "(ctorch\nper_tensor_affine\nG\x7f\xf0\0\0\0\0\0\0K\0t\x89}tR.");
    (void)state;
    if (o.status != FB_OK) fail_msg("%s", err.message);
    assert_non_null(tensor(&o, "(root)", NULL));
    assert_non_null(in_memory(&o, "scale", &extent));
    assert_false(in_memory(&o, "scale", &extent)->legal_inf);
    done(&o);
}

static void test_torch_object__the_average_of_asgd_has_its_parameter_s_name(void **state)
{
#define TWO(key) TENSOR(key, "K\2", "K\0", "K\2\x85", "K\1\x85")
    opened o =
        OPEN("}(U\5model}U\1w" TWO("0") "sU\x09optimizer}(U\5state}K\0}U\2ax" TWO("1") "ss"
                                                                                       "U\x0cparam_groups]}U\6params]K\0asauu.");
    (void)state;
    if (o.status != FB_OK) fail_msg("%s", err.message);
    assert_non_null(tensor(&o, "optimizer.state.ax of w", NULL));
    done(&o);
}

static void test_torch_object__two_models_that_fit_must_agree_on_the_names(void **state)
{
#define OPTIMIZER                      \
    "U\x09optimizer}(U\5state}K\0}U\7" \
    "exp_avg" TWO("1") "ssU\x0cparam_groups]}U\6params]K\0asauu."
    opened o = OPEN("}(U\1g}U\1w" TWO("0") "sU\1d}U\1v" TWO("2") "s" OPTIMIZER);
    (void)state;
    if (o.status != FB_OK) fail_msg("%s", err.message);
    assert_non_null(tensor(&o, "optimizer.state.0.exp_avg", NULL));
    done(&o);
    o = OPEN("}(U\1g}U\1w" TWO("0") "sU\3ema}U\x08module.w" TWO("2") "s" OPTIMIZER);
    assert_non_null(tensor(&o, "optimizer.state.exp_avg of w", NULL));
    done(&o);
    o = OPEN("}(U\1g}U\1w" TWO("0") "sU\1d}U\2vw" TWO("2") "s" OPTIMIZER);
    assert_non_null(tensor(&o, "optimizer.state.0.exp_avg", NULL));
    done(&o);
}

static void test_torch_object__a_history_of_nan_does_not_need_a_name_for_each(void **state)
{
    enum { COUNT = 1500 };
    uint8_t data[COUNT * 9 + 8];
    size_t at = 0;
    opened o;
    fb_ckpt_extent extent;
    (void)state;
    data[at++] = ']';
    data[at++] = '(';
    for (int i = 0; i < COUNT; i++, at += 9) memcpy(data + at, "G\x7f\xf8\0\0\0\0\0\0", 9);
    data[at++] = 'e';
    data[at++] = '.';
    o = open_bytes(data, at);
    assert_int_equal(o.status, FB_OK);
    assert_non_null(in_memory(&o, "999", &extent));
    assert_null(in_memory(&o, "1000", &extent));
    assert_int_equal(in_memory(&o, "(more numbers)", &extent)->elements, COUNT - 1000);
    done(&o);
}

static void test_torch_object__a_number_that_is_a_key_is_looked_at(void **state)
{
    opened o = OPEN("}G\x7f\xf8\0\0\0\0\0\0Ns.");
    fb_ckpt_extent extent;
    (void)state;
    assert_non_null(in_memory(&o, "0.key", &extent));
    done(&o);
}

static void test_torch_object__pairs_of_python_2_name_what_they_hold(void **state)
{
    opened o = open_golden("python2.pkl");
    fb_ckpt_extent extent;
    (void)state;
    assert_non_null(in_memory(&o, "a", &extent));
    done(&o);
}

/* ---- facts and imports ------------------------------------------------------------------------------------------------------ */

static void test_torch_object__facts_are_taken_once(void **state)
{
    opened o = open_golden("state.pkl");
    (void)state;
    assert_true(fact(&o, FB_CKPT_FACT_STEP) == 7);
    assert_true(fact(&o, FB_CKPT_FACT_SCALE) == 1024);
    assert_true(fact(&o, FB_CKPT_FACT_OVERFLOW) == -1);
    done(&o);
    o = OPEN(
        "}U\x14optimizer_state_dict}(U\x08overflow\x88U\x0fpartition_count](K\2K\4eU\nzero_stagectheirs\nStage\nK\2\x85RU\x0bloss_"
        "scalerctheirs\nScaler\n)\x81}U\tcur_scaleK\x08sbus.");
    assert_int_equal(o.status, FB_OK);
    assert_true(fact(&o, FB_CKPT_FACT_OVERFLOW) == 1);
    assert_true(fact(&o, FB_CKPT_FACT_PARTITIONS) == 4);
    assert_true(fact(&o, FB_CKPT_FACT_ZERO_STAGE) == 2);
    assert_true(fact(&o, FB_CKPT_FACT_SCALE) == 8);
    done(&o);
}

static void test_torch_object__dangerous_imports_are_told_and_enums_are_not(void **state)
{
    opened o = open_golden("system.pkl");
    (void)state;
    assert_true(has_remark(&o, FB_CKPT_REMARK_SECURITY, "os.system", "only read"));
    done(&o);
    o = OPEN("cbuiltins\ngetattr\nctorch.x\nFormat\nU\4FAST\x86R.");
    assert_false(has_remark(&o, FB_CKPT_REMARK_SECURITY, "builtins.getattr", ""));
    done(&o);
    o = OPEN("cbuiltins\ngetattr\nctorch.x\nFormat\nU\x0b__globals__\x86R.");
    assert_true(has_remark(&o, FB_CKPT_REMARK_SECURITY, "builtins.getattr", ""));
    done(&o);
    o = OPEN("cbuiltins\ngetattr\nNU\4FAST\x86R0N."); /* thrown away, and it would have run all the same */
    assert_true(has_remark(&o, FB_CKPT_REMARK_SECURITY, "builtins.getattr", ""));
    done(&o);
}

/* ---- hostile ---------------------------------------------------------------------------------------------------------------- */

static void test_torch_object__circles_and_doubled_parts_end(void **state)
{
    enum { DOUBLINGS = 100000 };
    uint8_t *data = malloc(DOUBLINGS * 2 + 16);
    size_t at = 9;
    opened o;
    (void)state;
    assert_non_null(data);
    memcpy(data, "G\x7f\xf8\0\0\0\0\0\0", 9);
    for (int i = 0; i < DOUBLINGS; i++, at += 2) memcpy(data + at, "2\x86", 2);
    data[at++] = '.';
    o = open_bytes(data, at);
    assert_int_equal(o.status, FB_OK);
    done(&o);
    free(data);
    o = open_golden("objects4.pkl");
    done(&o);
    o = OPEN("ca\nb\n)Rq\0h\0b."); /* an object that is its own state */
    assert_int_equal(o.status, FB_OK);
    done(&o);
}

static void test_torch_object__a_tower_of_a_million_tuples_is_a_limit(void **state)
{
    enum { TUPLES = 1000001 };
    uint8_t *data = malloc(TUPLES + 2);
    opened o;
    (void)state;
    assert_non_null(data);
    data[0] = 'N';
    memset(data + 1, 0x85, TUPLES);
    data[TUPLES + 1] = '.';
    o = open_bytes(data, TUPLES + 2);
    assert_int_equal(o.status, FB_E_LIMIT);
    done(&o);
    data[TUPLES] = '.'; /* one less */
    o = open_bytes(data, TUPLES + 1);
    assert_int_equal(o.status, FB_OK);
    done(&o);
    free(data);
}

static void test_torch_object__more_dimensions_than_any_tensor_has_are_a_limit(void **state)
{
    char text[1024];
    size_t at = 0;
    opened o;
    (void)state;
    at += (size_t)sprintf(text + at, "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1%cU\3cpuK\1tQ", '0');
    memcpy(text + at, "K\0((", 4);
    at += 3;
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < 65; i++, at += 2) memcpy(text + at, "K\1", 2);
        text[at++] = 't';
        if (part == 0) text[at++] = '(';
    }
    memcpy(text + at, "\x89}tR.", 5);
    o = open_bytes(text, at + 5);
    assert_int_equal(o.status, FB_E_LIMIT);
    done(&o);
}

static void test_torch_object__each_failing_allocation_is_told_and_leaks_nothing(void **state)
{
    static const char *const names[] = {"state.pkl", "sgd.pkl", "formats.pkl", "kinds.pkl", "numpy2.pkl", "system.pkl"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        opened o = open_golden(names[i]);
        fb_status status = FB_E_NOMEM;
        for (uint64_t k = 1; status != FB_OK; k++) {
            fb_torch_object *again;
            fb_alloc_fail_at(k, k % 2 == 0);
            status = fb_torch_object_open(&again, o.pickle, "memory", &err);
            fb_alloc_fail_at(0, 0);
            assert_true(status == FB_OK || (status == FB_E_NOMEM && !again));
            fb_torch_object_close(again);
        }
        done(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch_object__a_training_state_has_the_names_of_its_owner),
        cmocka_unit_test(test_torch_object__parameters_are_named_by_the_model_in_its_order),
        cmocka_unit_test(test_torch_object__a_part_in_a_dtensor_has_the_name_of_the_whole),
        cmocka_unit_test(test_torch_object__parameters_keep_their_numbers_where_nothing_fits),
        cmocka_unit_test(test_torch_object__a_module_saved_whole_names_its_parameters),
        cmocka_unit_test(test_torch_object__a_name_holds_no_control_character),
        cmocka_unit_test(test_torch_object__views_of_one_storage_keep_place_and_strides),
        cmocka_unit_test(test_torch_object__every_format_is_known),
        cmocka_unit_test(test_torch_object__tensors_inside_others_are_found),
        cmocka_unit_test(test_torch_object__what_cannot_be_looked_at_is_told),
        cmocka_unit_test(test_torch_object__many_notes_do_not_hide_what_was_not_looked_at),
        cmocka_unit_test(test_torch_object__a_view_that_leaves_its_storage_is_refused),
        cmocka_unit_test(test_torch_object__one_storage_has_one_size_and_one_class),
        cmocka_unit_test(test_torch_object__a_legacy_part_lies_in_its_root),
        cmocka_unit_test(test_torch_object__tensors_of_the_oldest_files_are_read),
        cmocka_unit_test(test_torch_object__numpy_arrays_are_read_in_every_protocol),
        cmocka_unit_test(test_torch_object__an_array_must_fill_its_bytes),
        cmocka_unit_test(test_torch_object__arrays_that_share_bytes_are_one_extent),
        cmocka_unit_test(test_torch_object__numbers_of_python_are_gathered_and_odd_ones_named),
        cmocka_unit_test(test_torch_object__an_infinite_loss_of_the_last_step_is_a_fault),
        cmocka_unit_test(test_torch_object__no_infinite_scale_of_a_quantised_tensor_is_healthy),
        cmocka_unit_test(test_torch_object__the_average_of_asgd_has_its_parameter_s_name),
        cmocka_unit_test(test_torch_object__two_models_that_fit_must_agree_on_the_names),
        cmocka_unit_test(test_torch_object__a_history_of_nan_does_not_need_a_name_for_each),
        cmocka_unit_test(test_torch_object__a_number_that_is_a_key_is_looked_at),
        cmocka_unit_test(test_torch_object__pairs_of_python_2_name_what_they_hold),
        cmocka_unit_test(test_torch_object__facts_are_taken_once),
        cmocka_unit_test(test_torch_object__dangerous_imports_are_told_and_enums_are_not),
        cmocka_unit_test(test_torch_object__circles_and_doubled_parts_end),
        cmocka_unit_test(test_torch_object__a_tower_of_a_million_tuples_is_a_limit),
        cmocka_unit_test(test_torch_object__more_dimensions_than_any_tensor_has_are_a_limit),
        cmocka_unit_test(test_torch_object__each_failing_allocation_is_told_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
