/* locate.json: what is written is what is read; what was concluded first stays; nothing in a hostile file is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fault/os_sim.h"
#include "support/one_location.h"

#define FOLDER "/runs/r1/cases/a1-000412"

static fb_error err;

static void write_one(os_sim *sim, one_location *l, fb_status expected)
{
    assert_int_equal(fb_os_mkdirs(os_sim_os(sim), FOLDER, NULL), FB_OK);
    assert_int_equal(fb_locate_write(os_sim_os(sim), &l->doc, &err), expected);
}

static void test_locate_json__what_is_written_is_what_is_read(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    (void)state;
    make_location(&l, FOLDER);
    write_one(sim, &l, FB_OK);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
    assert_string_equal(f.run_id, "r1");
    assert_string_equal(f.case_id, "a1-000412");
    assert_string_equal(f.precision, "fp16");
    assert_string_equal(f.sentence, "sqrt read finite numbers");
    assert_string_equal(f.notes, "no note");
    assert_true(f.step == 412 && f.world == 4 && f.rank == 1 && f.found == FB_LOCATED_OPERATOR);
    assert_true(f.finding.rank == 1 && f.finding.boundary == FB_LOSS && f.finding.kind == FB_KIND_NAN && f.finding.tensor_id == 42);
    assert_string_equal(f.finding.module, "loss");
    assert_true(f.location.known && f.location.boundary == FB_FORWARD && f.location.rank == 1 && f.location.kind == FB_KIND_NAN);
    assert_string_equal(f.location.op, "sqrt");
    assert_string_equal(f.location.source, "model.c:88");
    assert_true(f.location.ndim == 2 && f.location.index[0] == 1 && f.location.index[1] == 0);
    assert_true(f.location.shape_ndim == 2 && f.location.format == FB_F16 && f.location.bad == 1 && f.location.elements == 4);
    assert_true(f.chain.count == 3 && f.chain.total == 3 && f.chain.items[0].reads == -1 && f.chain.items[2].reads == 41);
    assert_int_equal(f.chain.items[1].label, FB_LABEL_PROPAGATE);
    assert_true(f.candidates.count == 0 && f.swallowed.count == 1);
    assert_string_equal(f.swallowed.items[0].op, "div");
    assert_true(f.replay.tried == 3 && f.replay.reproduced == 3 && !f.replay.faithful && f.replay.persists == 1);
    assert_true(f.replay.other_tried == 3 && f.replay.other_bad == 3 && f.replay.difference_count == 2);
    assert_string_equal(f.replay.differences[1], "another \"build\"");
    assert_int_equal(f.cause.class_number, FB_CAUSE_DOMAIN_MATH);
    assert_true(f.cause.rule == FB_RULE_DOMAIN && f.cause.certain && !f.cause.has_value && f.cause.sample == 1 &&
                f.cause.sample_id == -1);
    assert_string_equal(f.cause.lies_in, "program");
    assert_string_equal(f.cause.explanation, l.one.cause.explanation);
    assert_string_equal(f.cause.fix, l.one.cause.fix);
    assert_true(f.minimise.state == FB_MINIMISE_MINIMAL && f.minimise.rows_needed == 2 && f.minimise.coupled &&
                f.minimise.tests == 17);
    assert_true(f.minimise.kept_count == 2 && f.minimise.rows_kept[1] == 2);
    assert_true(f.minimise.sample_count == 2 && f.minimise.sample_ids[1] == 20418);
    assert_true(f.minimise.span_count == 3 && f.minimise.spans[0][0] == 0 && f.minimise.spans[0][1] == 0 &&
                f.minimise.spans[0][2] == 1);
    assert_true(f.minimise.spans[2][0] == 2 && f.minimise.spans[2][1] == 2 && f.minimise.spans[2][2] == 2);
    assert_true(f.cost.replays == 9 && f.cost.search_replays == 2 && f.cost.seconds == 0.8);
    assert_true(f.evidence.count == 2 && f.evidence.files[0].bytes > 0 && f.evidence.files[0].xxh3 != 0);
    assert_int_equal(fb_locate_chain_whole(&f, NULL, 0), 1);
    fb_locate_file_release(&f);
    fb_locate_file_release(&f);
    fb_locate_file_release(NULL);
    os_sim_free(sim);
}

static void test_locate_json__what_was_concluded_first_is_never_replaced(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    (void)state;
    make_location(&l, FOLDER);
    write_one(sim, &l, FB_OK);
    l.config.step = 413;
    write_one(sim, &l, FB_E_EXISTS);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
    assert_int_equal(f.step, 412);
    fb_locate_file_release(&f);
    os_sim_free(sim);
}

/* A case that was copied elsewhere is replayed into a folder that says nothing, or something else. */
static void test_locate_json__run_and_case_are_those_that_the_trainer_says(void **state)
{
    static const char *const folders[] = {"/out", "/runs/renamed/cases/kept/replays/001"};
    (void)state;
    /* At the end of the struct: programs that were built before set `size` too small, and are told. */
    assert_int_equal(offsetof(fb_locate_config, case_id) + sizeof(const char *), sizeof(fb_locate_config));
    for (size_t i = 0; i < 2; i++) {
        for (int said = 0; said < 2; said++) {
            os_sim *sim = os_sim_new();
            one_location l;
            fb_locate_file f;
            make_location(&l, folders[i]);
            l.config.run_id = said ? "r\"1" : NULL;
            l.config.case_id = said ? "a1-000412" : "";
            assert_int_equal(fb_os_mkdirs(os_sim_os(sim), folders[i], NULL), FB_OK);
            assert_int_equal(fb_locate_write(os_sim_os(sim), &l.doc, &err), FB_OK);
            assert_int_equal(fb_locate_read(&f, os_sim_os(sim), folders[i], &err), FB_OK);
            assert_string_equal(f.run_id, said ? "r\"1" : i ? "renamed" : "");
            assert_string_equal(f.case_id, said ? "a1-000412" : i ? "kept" : "");
            fb_locate_file_release(&f);
            os_sim_free(sim);
        }
    }
}

static void test_locate_json__a_part_larger_than_its_whole_is_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        {"\"replay\": {\"attempts\": 3, \"reproduced\": 4}", "\"reproduced\" is 4, and \"attempts\" 3"},
        {"\"replay\": {\"reproduced\": 1}", "\"reproduced\" is 1, and \"attempts\" 0"},
        {"\"replay\": {\"other_ranks\": {\"bad\": 4, \"tried\": 3}}", "\"other_ranks.bad\" is 4"},
        {"\"minimise\": {\"state\": \"minimal\", \"rows\": 2, \"columns\": 4, \"rows_needed\": 3}", "\"rows_needed\" is 3"},
        {"\"minimise\": {\"rows\": 2, \"columns\": 4, \"rows_needed\": 1, \"rows_kept\": [0, 1]}", "\"rows_kept\" is 2"},
        {"\"minimise\": {\"rows\": 2, \"columns\": 4, \"rows_needed\": 1, \"rows_kept\": [2]}", "\"rows_kept\" is 2"},
        {"\"minimise\": {\"rows\": 2, \"columns\": 4, \"rows_needed\": 1, \"sample_ids\": [7, 8]}", "\"sample_ids\" is 2"},
        {"\"minimise\": {\"rows\": 2, \"columns\": 4, \"rows_needed\": 1, \"tokens_needed\": 5}", "\"tokens_needed\" is 5"},
        {"\"location\": {\"bad\": 5, \"elements\": 4}", "\"bad\" is 5, and \"elements\" 4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char text[512];
        fb_locate_file f;
        (void)snprintf(text, sizeof text, "{\"schema\": \"firstbad.locate/1\", \"found\": \"undecided\", %s}", files[i].text);
        assert_int_equal(fb_locate_parse(&f, text, strlen(text), &err), FB_E_CORRUPT);
        if (!strstr(err.message, files[i].says)) fail_msg("'%s' does not say '%s'", err.message, files[i].says);
    }
}

static void test_locate_json__little_can_be_known_and_is_null(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    char why[128];
    (void)state;
    make_location(&l, "/out");
    l.doc.witness = NULL;
    l.doc.cause = NULL;
    l.doc.minimised = 0;
    l.doc.notes = NULL;
    l.result.found = FB_LOCATED_NOT_REPRODUCED;
    l.result.persists = -1;
    assert_int_equal(fb_os_mkdirs(os_sim_os(sim), "/out", NULL), FB_OK);
    assert_int_equal(fb_locate_write(os_sim_os(sim), &l.doc, &err), FB_OK);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), "/out", &err), FB_OK);
    assert_string_equal(f.run_id, "");
    assert_true(!f.location.known && f.replay.persists == -1 && f.minimise.state == 0 && f.finding.tensor_id == -1);
    assert_true(f.cause.name[0] == '\0' && f.evidence.count == 0 && f.notes[0] == '\0');
    assert_int_equal(fb_locate_chain_whole(&f, why, sizeof why), 0);
    assert_string_equal(why, "no location is given");
    fb_locate_file_release(&f);
    l.config.folder = NULL;
    assert_int_equal(fb_locate_write(os_sim_os(sim), &l.doc, &err), FB_OK);
    l.doc.result = NULL;
    assert_int_equal(fb_locate_write(os_sim_os(sim), &l.doc, &err), FB_E_USAGE);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), "/nowhere", &err), FB_E_NOTFOUND);
    os_sim_free(sim);
}

static void test_locate_json__an_interval_has_ends_and_no_name(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    char why[128];
    (void)state;
    make_location(&l, FOLDER);
    l.result.found = FB_LOCATED_INTERVAL;
    l.one.w.candidates = l.one.chain;
    l.one.w.candidate_count = 2;
    write_one(sim, &l, FB_OK);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
    assert_true(!f.location.known && f.candidates.count == 2);
    assert_string_equal(f.candidates.items[1].op, "mul");
    assert_int_equal(fb_locate_chain_whole(&f, why, sizeof why), 0);
    fb_locate_file_release(&f);
    os_sim_free(sim);
}

static void test_locate_json__numbers_that_are_none_are_text(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    uint64_t bits;
    (void)state;
    make_location(&l, FOLDER);
    l.one.cause.has_value = 1;
    l.one.cause.value = -an_inf();
    l.one.cause.limit = 65504;
    l.one.cause.format = FB_F16;
    l.one.cause.format_needed = FB_BF16;
    write_one(sim, &l, FB_OK);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
    memcpy(&bits, &f.cause.value, sizeof bits);
    assert_true(f.cause.has_value && bits == UINT64_C(0xfff0000000000000) && f.cause.limit == 65504.0);
    assert_true(f.cause.format == FB_F16 && f.cause.format_needed == FB_BF16);
    fb_locate_file_release(&f);
    os_sim_free(sim);
}

/* ---- chains ------------------------------------------------------------------------------------------------------------------ */

static void break_link(fb_locate_file *f, int how)
{
    fb_locate_link *links = f->chain.items;
    switch (how) {
    case 0: links[1].reads = 39; break;
    case 1: links[2].made = 43; break;
    case 2: links[0].reads = 3; break;
    case 3: strcpy(links[0].op, "exp"); break;
    case 4: strcpy(links[0].module, "h.1.mlp"); break;
    case 5: links[1].label = FB_LABEL_KILL; break;
    case 6: links[0].label = FB_LABEL_PROPAGATE; break;
    case 7: f->chain.total = 4; break;
    case 8: f->chain.count = f->chain.total = 0; break;
    case 9: f->finding.tensor_id = -1; break;
    case 10: f->found = FB_LOCATED_INTERVAL; break;
    case 11: links[1].made = -1; break;
    case 12: links[0].boundary = FB_LOSS; break;
    default: links[0].entry = 1; break;
    }
}

static void test_locate_json__a_chain_with_a_gap_names_nobody(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    (void)state;
    make_location(&l, FOLDER);
    write_one(sim, &l, FB_OK);
    for (int how = 0; how < 14; how++) {
        fb_locate_file f;
        char why[160] = "";
        uint32_t count;
        assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
        count = f.chain.count;
        break_link(&f, how);
        if (fb_locate_chain_whole(&f, why, sizeof why) != 0) fail_msg("break %d was not seen", how);
        assert_true(why[0] != '\0');
        f.chain.count = count;
        fb_locate_file_release(&f);
    }
    os_sim_free(sim);
}

static void test_locate_json__the_chain_of_an_entry_begins_with_it(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    (void)state;
    make_location(&l, FOLDER);
    l.result.found = FB_LOCATED_ENTRY;
    set_place(&l.one.chain[0], "", "h.2.mlp", "c_fc.weight", FB_ENTRY);
    l.one.chain[0].entry = 1;
    l.one.chain[0].made = 40;
    l.one.chain[0].micro_step = -1;
    l.one.w.candidates = l.one.chain;
    l.one.w.candidate_count = 1;
    write_one(sim, &l, FB_OK);
    assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
    assert_true(f.location.known && f.location.op[0] == '\0' && f.location.micro_step == -1);
    assert_string_equal(f.location.tensor, "c_fc.weight");
    assert_int_equal(fb_locate_chain_whole(&f, NULL, 0), 1);
    fb_locate_file_release(&f);
    os_sim_free(sim);
}

/* ---- hostile files ----------------------------------------------------------------------------------------------------------- */

static void test_locate_json__a_member_of_the_wrong_kind_refuses_the_file_by_name(void **state)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"", ""},
        {"[]", "an object"},
        {"{}", "schema"},
        {"{\"schema\":\"firstbad.locate/2\",\"found\":\"operator\"}", "firstbad.locate/2"},
        {"{\"schema\":\"firstbad.locate/1\"}", "found"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":1}", "found"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"chain\":3}", "chain"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"chain\":[3]}", "chain"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"chain\":[{\"made\":-4}]}", "made"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"chain\":[{\"made\":1.5}]}", "made"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"chain\":[{}],\"chain\":[{}]}", "once only"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"world\":99999999999}", "world"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"cause\":{\"value\":\"many\"}}", "value"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"cause\":{\"certain\":1}}", "certain"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"minimise\":{\"rows_kept\":[-1]}}", "rows_kept"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"minimise\":{\"spans\":[[1,2]]}}", "spans"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"minimise\":{\"spans\":[[1,2,3,4]]}}", "spans"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"location\":{\"index\":[1,2,3,4,5,6,7,8,9]}}", "index"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"replay\":{\"differences\":[{}]}}", "differences"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"evidence\":{\"files\":[{\"xxh3\":\"0xZZ\"}]}}", "xxh3"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"evidence\":{\"files\":[{},{},{},{},{}]}}", "files"},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\"", ""},
        {"{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\"} x", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fb_locate_file f;
        memset(&err, 0, sizeof err);
        if (fb_locate_parse(&f, cases[i].text, strlen(cases[i].text), &err) != FB_E_CORRUPT)
            fail_msg("%s was taken", cases[i].text);
        if (!strstr(err.message, cases[i].named)) fail_msg("%s: %s", cases[i].text, err.message);
        assert_null(f.chain.items);
    }
}

static void test_locate_json__unknown_keys_and_names_are_passed_over(void **state)
{
    static const char text[] =
        "{\"new\":{\"a\":[1,{}]},\"schema\":\"firstbad.locate/1\",\"found\":\"by magic\",\"cause\":{\"class\":\"new_class\","
        "\"rule\":\"new\",\"a key that is much longer than any key that this reader has room for\":1},\"location\":null}";
    fb_locate_file f;
    (void)state;
    assert_int_equal(fb_locate_parse(&f, text, sizeof text - 1, &err), FB_OK);
    assert_int_equal(f.found, FB_LOCATED_UNDECIDED);
    assert_int_equal(f.cause.class_number, FB_CAUSE_UNKNOWN);
    assert_string_equal(f.cause.name, "new_class");
    assert_int_equal(f.cause.rule, FB_RULE_NONE);
    fb_locate_file_release(&f);
}

static void test_locate_json__long_texts_are_cut_and_long_lists_counted(void **state)
{
    size_t links = FB_LOCATE_LINKS_MAX + 10, used;
    char *text = malloc(links * 4 + 4096);
    fb_locate_file f;
    char why[160];
    (void)state;
    assert_non_null(text);
    used = (size_t)sprintf(text, "{\"schema\":\"firstbad.locate/1\",\"found\":\"operator\",\"precision\":\"");
    for (int i = 0; i < 300; i++) used += (size_t)sprintf(text + used, "\xc3\xa9");
    used += (size_t)sprintf(text + used, "\",\"location\":{},\"chain\":[{}");
    for (size_t i = 1; i < links; i++) used += (size_t)sprintf(text + used, ",{}");
    used += (size_t)sprintf(text + used, "]}");
    assert_int_equal(fb_locate_parse(&f, text, used, &err), FB_OK);
    assert_int_equal(strlen(f.precision), 30);
    assert_int_equal(f.chain.count, FB_LOCATE_LINKS_MAX);
    assert_int_equal(f.chain.total, links);
    assert_int_equal(fb_locate_chain_whole(&f, why, sizeof why), 0);
    assert_non_null(strstr(why, "too long"));
    fb_locate_file_release(&f);
    free(text);
}

/* ---- failures ---------------------------------------------------------------------------------------------------------------- */

static void test_locate_json__whatever_call_fails_there_is_a_whole_file_or_none(void **state)
{
    static const int errnos[] = {5, 28, OS_SIM_SHORT};
    (void)state;
    for (size_t e = 0; e < sizeof errnos / sizeof *errnos; e++) {
        for (int for_good = 0; for_good < 2; for_good++) {
            uint64_t calls = 1;
            for (uint64_t k = 1; k <= calls; k++) {
                os_sim *sim = os_sim_new();
                one_location l;
                fb_locate_file f;
                fb_status status, read;
                make_location(&l, FOLDER);
                assert_int_equal(fb_os_mkdirs(os_sim_os(sim), FOLDER, NULL), FB_OK);
                os_sim_fail(sim, k, errnos[e], for_good);
                status = fb_locate_write(os_sim_os(sim), &l.doc, &err);
                calls = os_sim_calls(sim);
                os_sim_fail(sim, 0, 0, 0);
                read = fb_locate_read(&f, os_sim_os(sim), FOLDER, &err);
                if (status == FB_OK && read != FB_OK) fail_msg("call %d: said to be there, and is not: %s", (int)k, err.message);
                assert_true(read == FB_OK || read == FB_E_NOTFOUND);
                if (read == FB_OK && status == FB_OK)
                    assert_true(f.evidence.count == 2 || strstr(f.notes, "The evidence is not whole"));
                if (read == FB_OK) fb_locate_file_release(&f);
                else assert_int_equal(fb_locate_write(os_sim_os(sim), &l.doc, &err), FB_OK);
                os_sim_free(sim);
                assert_true(k < 500);
            }
            assert_true(for_good || errnos[e] == OS_SIM_SHORT || calls > 10);
        }
    }
}

static void test_locate_json__every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    os_sim *sim = os_sim_new();
    one_location l;
    fb_locate_file f;
    uint64_t requests;
    char *text = NULL;
    size_t bytes = 0;
    (void)state;
    make_location(&l, FOLDER);
    write_one(sim, &l, FB_OK);
    assert_int_equal(fb_os_read_file(os_sim_os(sim), FOLDER "/locate.json", 1 << 20, &text, &bytes, &err), FB_OK);
    fb_alloc_fail_at(0, 0);
    assert_int_equal(fb_locate_parse(&f, text, bytes, &err), FB_OK);
    requests = fb_alloc_requests();
    fb_locate_file_release(&f);
    assert_true(requests > 10);
    for (uint64_t k = 1; k <= requests; k++) {
        fb_alloc_fail_at(k, 0);
        assert_int_equal(fb_locate_parse(&f, text, bytes, &err), FB_E_NOMEM);
        fb_alloc_fail_at(0, 0);
        assert_null(f.chain.items);
    }
    fb_free(text);
    os_sim_free(sim);
    for (uint64_t k = 1; k < 400; k++) {
        fb_status status;
        sim = os_sim_new();
        assert_int_equal(fb_os_mkdirs(os_sim_os(sim), FOLDER, NULL), FB_OK);
        fb_alloc_fail_at(k, 0);
        status = fb_locate_write(os_sim_os(sim), &l.doc, &err);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        assert_true(status == FB_OK || status == FB_E_NOMEM);
        if (status == FB_OK) {
            assert_int_equal(fb_locate_read(&f, os_sim_os(sim), FOLDER, &err), FB_OK);
            assert_true(f.evidence.count == 2 || strstr(f.notes, "The evidence is not whole"));
            fb_locate_file_release(&f);
        }
        os_sim_free(sim);
        if (requests < k) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locate_json__what_is_written_is_what_is_read),
        cmocka_unit_test(test_locate_json__what_was_concluded_first_is_never_replaced),
        cmocka_unit_test(test_locate_json__run_and_case_are_those_that_the_trainer_says),
        cmocka_unit_test(test_locate_json__a_part_larger_than_its_whole_is_refused),
        cmocka_unit_test(test_locate_json__little_can_be_known_and_is_null),
        cmocka_unit_test(test_locate_json__an_interval_has_ends_and_no_name),
        cmocka_unit_test(test_locate_json__numbers_that_are_none_are_text),
        cmocka_unit_test(test_locate_json__a_chain_with_a_gap_names_nobody),
        cmocka_unit_test(test_locate_json__the_chain_of_an_entry_begins_with_it),
        cmocka_unit_test(test_locate_json__a_member_of_the_wrong_kind_refuses_the_file_by_name),
        cmocka_unit_test(test_locate_json__unknown_keys_and_names_are_passed_over),
        cmocka_unit_test(test_locate_json__long_texts_are_cut_and_long_lists_counted),
        cmocka_unit_test(test_locate_json__whatever_call_fails_there_is_a_whole_file_or_none),
        cmocka_unit_test(test_locate_json__every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
