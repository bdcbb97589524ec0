/*
 * The interpreter of pickles, on what Python writes (tests/golden/pickle, made by scripts/make-golden-pickles.py) and on bytes that
 * nobody writes.
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
#include "ckpt/pickle.h"
#include "os/os.h"

#define GOLDEN "tests/golden/pickle/"

static fb_error err;

static fb_status parse_with(fb_pickle **out, const void *data, size_t bytes, const fb_pickle_limits *limits)
{
    uint64_t used;
    fb_status status;
    fb_error_clear(&err);
    status = fb_pickle_parse(out, data, bytes, 0, "memory", limits, &used, &err);
    assert_true((status == FB_OK) == (*out != NULL));
    if (status == FB_OK) assert_int_equal(used, bytes);
    return status;
}

static fb_pickle *parse(const void *data, size_t bytes)
{
    fb_pickle *pickle;
    if (parse_with(&pickle, data, bytes, NULL) != FB_OK) fail_msg("%s", err.message);
    return pickle;
}

/* A literal without the NUL that ends it. */
#define PARSE(text) parse(text, sizeof(text) - 1)
#define REFUSED(text) refused(text, sizeof(text) - 1)

static fb_status refused(const void *data, size_t bytes)
{
    fb_pickle *pickle;
    fb_status status = parse_with(&pickle, data, bytes, NULL);
    fb_pickle_free(pickle);
    assert_true(status == FB_OK || (err.code == status && err.message[0] != '\0'));
    return status;
}

static char *read_golden(const char *name, size_t *bytes)
{
    char path[256];
    char *data;
    (void)snprintf(path, sizeof path, GOLDEN "%s", name);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 20, &data, bytes, &err) != FB_OK) fail_msg("%s", err.message);
    return data;
}

static fb_node child(const fb_pickle *p, fb_node node, uint64_t i)
{
    fb_node found = fb_pickle_child(p, node, i);
    assert_int_not_equal(found, 0);
    return found;
}

static void check_objects(const char *name)
{
    size_t bytes;
    char *data = read_golden(name, &bytes);
    fb_pickle *p = parse(data, bytes);
    fb_node root = fb_pickle_root(p), node;
    uint64_t text_bytes;
    assert_int_equal(fb_pickle_kind(p, root), FB_PICKLE_LIST);
    assert_int_equal(fb_pickle_children(p, root), 17);
    node = child(p, root, 0);
    assert_int_equal(child(p, node, 2), node); /* the list holds itself */
    assert_int_equal(fb_pickle_float_bits(p, child(p, node, 1)), 0xfff0000000000000);
    node = child(p, root, 1);
    assert_int_equal(fb_pickle_get(p, node, "own"), node);
    assert_int_equal(fb_pickle_get(p, node, "none"), 0);
    node = child(p, root, 2);
    assert_int_equal(fb_pickle_kind(p, node), FB_PICKLE_CALL);
    assert_int_equal(fb_pickle_int(p, fb_pickle_get(p, fb_pickle_state(p, node), "a")), 1);
    node = child(p, root, 4);
    assert_true(fb_pickle_text_is(p, child(p, node, 0), "collections OrderedDict"));
    assert_int_equal(fb_pickle_int(p, fb_pickle_get(p, node, "a")), 1);
    assert_int_equal(fb_pickle_kind(p, fb_pickle_items(p, child(p, root, 5))), FB_PICKLE_LIST);
    node = child(p, root, 8);
    assert_int_equal(fb_pickle_kind(p, node), FB_PICKLE_BIGINT);
    (void)fb_pickle_text(p, node, &text_bytes);
    assert_int_equal(text_bytes, 9);
    assert_true(fb_pickle_int(p, child(p, root, 9)) == INT64_MIN);
    assert_true(fb_pickle_int(p, child(p, root, 10)) == INT64_MAX);
    assert_true(fb_pickle_text_is(p, child(p, root, 12), "\xe2\x82\xac"));
    fb_pickle_free(p);
    fb_free(data);
}

static void test_pickle__objects_of_python_are_read_as_data(void **state)
{
    (void)state;
    check_objects("objects2.pkl");
    check_objects("objects4.pkl");
}

static void test_pickle__an_import_and_a_call_are_nodes_and_nothing_runs(void **state)
{
    size_t bytes;
    char *data = read_golden("system.pkl", &bytes);
    fb_pickle *p = parse(data, bytes);
    fb_node root = fb_pickle_root(p);
    (void)state;
    assert_int_equal(fb_pickle_kind(p, root), FB_PICKLE_CALL);
    assert_true(fb_pickle_text_is(p, child(p, root, 0), "os system"));
    assert_true(fb_pickle_text_is(p, child(p, child(p, root, 1), 0), "id"));
    assert_int_equal(fb_pickle_global(p, 0), child(p, root, 0));
    assert_int_equal(fb_pickle_global(p, 1), 0);
    fb_pickle_free(p);
    fb_free(data);
}

static void test_pickle__the_same_import_is_one_node_whichever_opcode_names_it(void **state)
{
    fb_pickle *p = PARSE("\x80\x04]q\x01(cos\nsystem\n\x8c\x02os\x8c\x06system\x93"
                         "cos\npopen\ne.");
    fb_node root = fb_pickle_root(p);
    (void)state;
    assert_int_equal(child(p, root, 0), child(p, root, 1));
    assert_int_not_equal(child(p, root, 0), child(p, root, 2));
    assert_int_equal(fb_pickle_global(p, 1), child(p, root, 2));
    fb_pickle_free(p);
}

static void test_pickle__old_classes_and_decimal_numbers_of_python_2_are_read(void **state)
{
    size_t bytes;
    char *data = read_golden("old.pkl", &bytes);
    fb_pickle *p = parse(data, bytes);
    fb_node root = fb_pickle_root(p);
    (void)state;
    assert_true(fb_pickle_text_is(p, child(p, child(p, root, 0), 0), "theirs Old"));
    assert_int_equal(fb_pickle_kind(p, child(p, root, 1)), FB_PICKLE_BOOL);
    assert_int_equal(fb_pickle_int(p, child(p, root, 2)), 5);
    assert_int_equal(child(p, root, 3), child(p, root, 4));
    fb_pickle_free(p);
    fb_free(data);
    p = PARSE("I-3000000000\n.");
    assert_true(fb_pickle_int(p, fb_pickle_root(p)) == -3000000000);
    fb_pickle_free(p);
}

static void test_pickle__integers_of_every_length_keep_their_value(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int64_t value;
    } cases[] = {
        {"\x8a\x00.", 3, 0},
        {"\x8a\x01\xff.", 4, -1},
        {"\x8a\x02\xff\x00.", 5, 255},
        {"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff.", 12, -1},
        {"\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00.", 12, 1},
        {"J\xff\xff\xff\xff.", 6, -1},
        {"M\xff\xff.", 4, 65535},
        {"K\xff.", 3, 255},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fb_pickle *p = parse(cases[i].bytes, cases[i].n);
        assert_int_equal(fb_pickle_kind(p, fb_pickle_root(p)), FB_PICKLE_INT);
        assert_true(fb_pickle_int(p, fb_pickle_root(p)) == cases[i].value);
        fb_pickle_free(p);
    }
}

static void test_pickle__the_last_value_of_a_key_counts(void **state)
{
    fb_pickle *p = PARSE("}(U\1aK\1U\1bK\2U\1aK\3u.");
    (void)state;
    assert_int_equal(fb_pickle_int(p, fb_pickle_get(p, fb_pickle_root(p), "a")), 3);
    fb_pickle_free(p);
}

static void test_pickle__used_ends_with_stop_and_offsets_count_from_the_file(void **state)
{
    fb_pickle *p;
    uint64_t used;
    (void)state;
    assert_int_equal(fb_pickle_parse(&p, (const uint8_t *)"]K\5a.rest", 9, 1000, "memory", NULL, &used, &err), FB_OK);
    assert_int_equal(used, 5);
    assert_int_equal(fb_pickle_at(p, child(p, fb_pickle_root(p), 0)), 1001);
    fb_pickle_free(p);
    assert_int_equal(fb_pickle_parse(&p, (const uint8_t *)"]\xff", 2, 1000, "memory", NULL, &used, &err), FB_E_CORRUPT);
    assert_int_equal(err.offset_bytes, 1001);
    assert_null(p);
}

static void test_pickle__what_no_writer_writes_is_refused(void **state)
{
    (void)state;
    assert_int_equal(REFUSED(""), FB_E_CORRUPT);
    assert_int_equal(REFUSED("."), FB_E_CORRUPT);       /* nothing on the stack */
    assert_int_equal(REFUSED("N"), FB_E_CORRUPT);       /* no STOP */
    assert_int_equal(REFUSED("\xff."), FB_E_CORRUPT);   /* no opcode */
    assert_int_equal(REFUSED("N(\x85."), FB_E_CORRUPT); /* a value from below the mark */
    assert_int_equal(REFUSED("t."), FB_E_CORRUPT);      /* no mark */
    assert_int_equal(REFUSED("}(Nu."), FB_E_CORRUPT);   /* a key without a value */
    assert_int_equal(REFUSED("(Nd."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("h\1."), FB_E_CORRUPT); /* memo that was never set */
    assert_int_equal(REFUSED("NNs."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("]NNs."), FB_E_CORRUPT); /* an item of a list by key */
    assert_int_equal(REFUSED("KK\1a."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("NNa."), FB_E_CORRUPT); /* append to None */
    assert_int_equal(REFUSED("]}b."), FB_E_CORRUPT); /* state for a list */
    assert_int_equal(REFUSED("cos\nsystem\n}b."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("K\1K\2\x93."), FB_E_CORRUPT); /* an import by numbers */
    assert_int_equal(REFUSED("T\xff\xff\xff\xff."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("\x8b\xff\xff\xff\xff."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("\x95\xff\0\0\0\0\0\0\0N."), FB_E_CORRUPT); /* a frame longer than the pickle */
    assert_int_equal(REFUSED("X\xff\xff\xff\xffN."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("\x8d\xff\xff\xff\xff\xff\xff\xff\xffN."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("I12x\n."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("I\n."), FB_E_CORRUPT);
    assert_int_equal(REFUSED("p-1\nN."), FB_E_CORRUPT);
}

static void test_pickle__what_this_build_does_not_read_says_so(void **state)
{
    (void)state;
    assert_int_equal(REFUSED("\x80\x06N."), FB_E_UNSUPPORTED);
    assert_int_equal(REFUSED("S'a'\n."), FB_E_UNSUPPORTED);
    assert_int_equal(REFUSED("F1.5\n."), FB_E_UNSUPPORTED);
    assert_int_equal(REFUSED("\x82\1."), FB_E_UNSUPPORTED);
    assert_int_equal(REFUSED("\x97."), FB_E_UNSUPPORTED);
    assert_int_equal(REFUSED("I99999999999999999999\n."), FB_E_UNSUPPORTED);
    assert_int_equal(REFUSED("ca\nb\n)R}b}b."), FB_E_UNSUPPORTED);  /* one object, two states */
    assert_int_equal(REFUSED("ca\nb\n)RNaNNs."), FB_E_UNSUPPORTED); /* a list and a dict at once */
}

static void test_pickle__every_limit_is_kept(void **state)
{
    static const struct {
        fb_pickle_limits limits;
        const char *text;
    } cases[] = {
        {{3, 0, 0, 0, 0, 0, 0}, "NNNNN."},    {{0, 3, 0, 0, 0, 0, 0}, "N0N0N."},     {{0, 0, 2, 0, 0, 0, 0}, "K1K1K1K1."},
        {{0, 0, 0, 2, 0, 0, 0}, "NNNN."},     {{0, 0, 0, 0, 2, 0, 0}, "(((N."},      {{0, 0, 0, 0, 0, 7, 0}, "Nq\x08."},
        {{0, 0, 0, 0, 0, 0, 2}, "U\x03xyz."}, {{0, 0, 2, 0, 0, 0, 0}, "]]ca\nb\n."},
    };
    fb_pickle *p;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse_with(&p, cases[i].text, strlen(cases[i].text), &cases[i].limits), FB_E_LIMIT);
        assert_int_equal(err.code, FB_E_LIMIT);
    }
}

static void test_pickle__a_mark_is_popped_as_python_does(void **state)
{
    fb_pickle *p = PARSE("N(0.");
    (void)state;
    assert_int_equal(fb_pickle_kind(p, fb_pickle_root(p)), FB_PICKLE_NONE);
    fb_pickle_free(p);
    p = PARSE("K\7(NN1.");
    assert_int_equal(fb_pickle_int(p, fb_pickle_root(p)), 7);
    fb_pickle_free(p);
}

static uint8_t *repeated(const char *head, const char *unit, uint64_t count, const char *tail, size_t *bytes)
{
    size_t h = strlen(head), u = strlen(unit), t = strlen(tail);
    uint8_t *data = malloc(h + u * count + t);
    assert_non_null(data);
    memcpy(data, head, h);
    for (uint64_t i = 0; i < count; i++) memcpy(data + h + u * i, unit, u);
    memcpy(data + h + u * count, tail, t);
    *bytes = h + u * count + t;
    return data;
}

static void test_pickle__a_million_nested_tuples_end(void **state)
{
    size_t bytes;
    uint8_t *data = repeated("N", "2\x86", 1000000, ".", &bytes); /* each holds the one before twice */
    fb_pickle *p = parse(data, bytes);
    (void)state;
    assert_int_equal(fb_pickle_nodes(p), 1000001);
    fb_pickle_free(p);
    free(data);
}

static void test_pickle__lists_that_grow_in_turn_keep_their_items(void **state)
{
    enum { LISTS = 100, ROUNDS = 300 };
    size_t at = 0;
    uint8_t *data = malloc(LISTS * 3 + 16 + LISTS * ROUNDS * 6);
    fb_pickle *p;
    fb_node root;
    (void)state;
    assert_non_null(data);
    data[at++] = '(';
    for (int i = 0; i < LISTS; i++) {
        data[at++] = ']';
        data[at++] = 'q';
        data[at++] = (uint8_t)i;
    }
    data[at++] = 'l';
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < LISTS; i++) {
            const uint8_t one[] = {'h', (uint8_t)i, 'K', (uint8_t)r, 'a', '0'};
            memcpy(data + at, one, sizeof one);
            at += sizeof one;
        }
    }
    data[at++] = '.';
    p = parse(data, at);
    root = fb_pickle_root(p);
    for (uint64_t i = 0; i < LISTS; i++) {
        assert_int_equal(fb_pickle_children(p, child(p, root, i)), ROUNDS);
        for (uint64_t r = 0; r < ROUNDS; r++) assert_int_equal(fb_pickle_int(p, child(p, child(p, root, i), r)), r & 0xff);
    }
    fb_pickle_free(p);
    free(data);
}

static void test_pickle__a_memo_index_may_lie_anywhere(void **state)
{
    fb_pickle *p = PARSE("(K\1r\x40\x42\x0f\0K\2q\5K\3\x94j\x40\x42\x0f\0h\5h\2t.");
    fb_node root = fb_pickle_root(p);
    (void)state;
    assert_int_equal(fb_pickle_int(p, child(p, root, 3)), 1);
    assert_int_equal(fb_pickle_int(p, child(p, root, 4)), 2);
    assert_int_equal(fb_pickle_int(p, child(p, root, 5)), 3); /* MEMOIZE counts what was set */
    fb_pickle_free(p);
}

static void test_pickle__names_of_imports_are_bounded(void **state)
{
    size_t bytes;
    uint8_t *data = repeated("c", "x", 2000, "\ny\n.", &bytes);
    fb_pickle *p;
    (void)state;
    assert_int_equal(parse_with(&p, data, bytes, NULL), FB_E_LIMIT);
    free(data);
    data = malloc(70000 * 12);
    assert_non_null(data);
    bytes = 0;
    for (int i = 0; i < 70000; i++) bytes += (size_t)sprintf((char *)data + bytes, "c%d\nx\n0", i);
    data[bytes++] = 'N';
    data[bytes++] = '.';
    assert_int_equal(parse_with(&p, data, bytes, NULL), FB_E_LIMIT);
    free(data);
}

static void test_pickle__a_file_cut_anywhere_is_refused(void **state)
{
    static const char *const names[] = {"state.pkl", "objects2.pkl", "objects4.pkl", "numpy5.pkl", "python2.pkl", "old.pkl"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t bytes;
        char *data = read_golden(names[i], &bytes);
        for (size_t n = 0; n < bytes; n++) {
            uint8_t *cut = malloc(n ? n : 1);
            assert_non_null(cut);
            memcpy(cut, data, n);
            assert_int_equal(refused(cut, n), FB_E_CORRUPT);
            assert_true(err.offset_bytes <= n);
            free(cut);
        }
        fb_free(data);
    }
}

static void test_pickle__each_failing_allocation_is_told_and_leaks_nothing(void **state)
{
    static const char *const names[] = {"state.pkl", "objects4.pkl"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t bytes;
        char *data = read_golden(names[i], &bytes);
        fb_status status = FB_E_NOMEM;
        for (uint64_t k = 1; status != FB_OK; k++) {
            fb_alloc_fail_at(k, k % 2 == 0);
            status = refused(data, bytes);
            fb_alloc_fail_at(0, 0);
            assert_true(status == FB_OK || status == FB_E_NOMEM);
        }
        fb_free(data);
    }
}

static void test_pickle__dangerous_imports_are_known(void **state)
{
    static const char *const bad[] = {"os system",
                                      "posix system",
                                      "nt system",
                                      "subprocess Popen",
                                      "builtins eval",
                                      "__builtin__ exec",
                                      "builtins __import__",
                                      "runpy run_module",
                                      "importlib import_module",
                                      "pickle loads",
                                      "dill loads",
                                      "shutil rmtree",
                                      "socket socket",
                                      "pty spawn",
                                      "ctypes CDLL",
                                      "webbrowser open",
                                      "code InteractiveInterpreter",
                                      "pdb Pdb",
                                      "timeit timeit",
                                      "operator attrgetter",
                                      "operator methodcaller",
                                      "functools partial",
                                      "asyncio.subprocess Process",
                                      "multiprocessing.pool Pool",
                                      "torch load",
                                      "torch.serialization load",
                                      "torch.jit load",
                                      "torch.hub load",
                                      "torch.distributed.rpc rpc_sync",
                                      "numpy load",
                                      "numpy.testing._private.utils runstring",
                                      "numpy f2py.os.system",
                                      "torch serialization.os.system",
                                      "torch._utils builtins.eval",
                                      "collections OrderedDict.__init__.__globals__",
                                      "sys modules",
                                      "numpy __builtins__.eval",
                                      "torch._dynamo.guards eval_frame",
                                      "torch.storage _load_from_bytes",
                                      "bdb Bdb",
                                      "http.client X"};
    static const char *const good[] = {"torch._utils _rebuild_tensor_v2",
                                       "torch._utils _rebuild_parameter",
                                       "collections OrderedDict",
                                       "torch FloatStorage",
                                       "torch float8_e4m3fn",
                                       "torch.nn.modules.linear Linear",
                                       "numpy._core.multiarray _reconstruct",
                                       "numpy.core.multiarray scalar",
                                       "numpy dtype",
                                       "argparse Namespace",
                                       "pathlib PosixPath",
                                       "builtins getattr",
                                       "builtins set",
                                       "megatron.core.enums ModelType",
                                       "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler",
                                       "transformers.training_args TrainingArguments",
                                       "torch.distributed.checkpoint.metadata Metadata",
                                       "_codecs encode",
                                       "torch.serialization _get_layout",
                                       "__builtin__ bytearray",
                                       "io BytesIO",
                                       "numpy int64"};
    static const char *const unknown[] = {"theirs Model", "torch.nn.functional something_new", "osx system", "torchx Thing", ""};
    int is_unknown;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (!fb_pickle_dangerous(bad[i], strlen(bad[i]), &is_unknown) || is_unknown) fail_msg("%s", bad[i]);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (fb_pickle_dangerous(good[i], strlen(good[i]), &is_unknown) || is_unknown) fail_msg("%s", good[i]);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        if (fb_pickle_dangerous(unknown[i], strlen(unknown[i]), &is_unknown) || !is_unknown) fail_msg("%s", unknown[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pickle__objects_of_python_are_read_as_data),
        cmocka_unit_test(test_pickle__an_import_and_a_call_are_nodes_and_nothing_runs),
        cmocka_unit_test(test_pickle__the_same_import_is_one_node_whichever_opcode_names_it),
        cmocka_unit_test(test_pickle__old_classes_and_decimal_numbers_of_python_2_are_read),
        cmocka_unit_test(test_pickle__integers_of_every_length_keep_their_value),
        cmocka_unit_test(test_pickle__the_last_value_of_a_key_counts),
        cmocka_unit_test(test_pickle__used_ends_with_stop_and_offsets_count_from_the_file),
        cmocka_unit_test(test_pickle__what_no_writer_writes_is_refused),
        cmocka_unit_test(test_pickle__what_this_build_does_not_read_says_so),
        cmocka_unit_test(test_pickle__every_limit_is_kept),
        cmocka_unit_test(test_pickle__a_mark_is_popped_as_python_does),
        cmocka_unit_test(test_pickle__a_million_nested_tuples_end),
        cmocka_unit_test(test_pickle__lists_that_grow_in_turn_keep_their_items),
        cmocka_unit_test(test_pickle__a_memo_index_may_lie_anywhere),
        cmocka_unit_test(test_pickle__names_of_imports_are_bounded),
        cmocka_unit_test(test_pickle__a_file_cut_anywhere_is_refused),
        cmocka_unit_test(test_pickle__each_failing_allocation_is_told_and_leaks_nothing),
        cmocka_unit_test(test_pickle__dangerous_imports_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
