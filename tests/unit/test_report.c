#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "evidence/case_json.h"
#include "log/log.h"
#include "policy/gate.h"
#include "registry/registry.h"
#include "report/report.h"

/* ---- a run folder, written record by record ---------------------------------------------------------------------------------- */

static char root[64];

static const char *in_root(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static int remove_tree(const char *path)
{
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/firstbad-report-XXXXXX");
    assert_non_null(mkdtemp(root));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree(root);
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_root(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void make_folder(const char *name)
{
    fb_error err;
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), in_root(name), &err), FB_OK);
}

typedef struct ledger {
    fb_log *log;
    int32_t attempt, rank;
} ledger;

static fb_text text_of(const char *text)
{
    fb_text result = {text, (uint32_t)strlen(text)};
    return result;
}

static ledger open_ledger(int32_t attempt, int32_t rank, const char *world)
{
    ledger one = {NULL, attempt, rank};
    char number[2][16];
    fb_pair pairs[] = {{"run_id", "r1"}, {"world", world}, {"rank", number[0]}, {"attempt", number[1]}};
    uint8_t bytes[FB_REC_BYTES_MAX];
    char folder[64], path[64];
    fb_error err;
    (void)snprintf(number[0], sizeof number[0], "%d", rank);
    (void)snprintf(number[1], sizeof number[1], "%d", attempt);
    (void)snprintf(folder, sizeof folder, "ledger/a%d", attempt);
    make_folder(folder);
    (void)snprintf(path, sizeof path, "ledger/a%d/r%05d.log", attempt, rank);
    assert_int_equal(fb_log_create(&one.log, fb_os_posix(), in_root(path), 0x1234u + (uint64_t)(attempt * 100 + rank), &err),
                     FB_OK);
    assert_int_equal(fb_log_append(one.log, FB_REC_RUN, bytes, fb_rec_run_encode(bytes, sizeof bytes, pairs, 4), 0, &err), FB_OK);
    return one;
}

static void put(ledger *one, uint16_t type, const uint8_t *bytes, uint32_t n)
{
    assert_true(n > 0);
    assert_int_equal(fb_log_append(one->log, type, bytes, n, 0, NULL), FB_OK);
}

static void put_step(ledger *one, int64_t step, uint32_t flags)
{
    fb_rec_step rec;
    uint8_t bytes[FB_REC_BYTES_MAX];
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.micro_steps = 1;
    rec.flags = flags;
    rec.agreement = FB_AGREE_VOTE;
    rec.unanimous = 1;
    rec.action = flags & FB_STEP_SKIPPED ? FB_SKIP : FB_PROCEED;
    rec.cover.level[FB_LOCAL_GRAD] = FB_COVER_FULL;
    rec.cover.level[FB_REDUCED_GRAD] = flags & FB_STEP_APPLIED ? FB_COVER_FULL : FB_COVER_NONE;
    rec.samples = 2;
    rec.sample_count = 2;
    rec.sample_ids[0] = 10 * step;
    rec.sample_ids[1] = 10 * step + 1;
    put(one, FB_REC_STEP, bytes, fb_rec_step_encode(bytes, sizeof bytes, &rec));
}

static void put_good(ledger *one, int64_t from, int64_t to)
{
    for (int64_t step = from; step <= to; step++) put_step(one, step, FB_STEP_APPLIED | FB_STEP_GATED);
}

static fb_rec_finding finding(const ledger *one, int64_t step, int32_t boundary, int64_t position, const char *module)
{
    fb_rec_finding rec;
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.attempt = one->attempt;
    rec.rank = one->rank;
    rec.boundary = boundary;
    rec.kind = FB_KIND_NAN;
    rec.site = (uint32_t)position;
    rec.role = FB_ROLE_GRADIENT;
    rec.dtype = FB_F32;
    rec.bucket = -1;
    rec.position = position;
    rec.count = 1;
    rec.first_index = 7;
    rec.first_bits = 0x7fc00000u;
    rec.elements = 32;
    rec.nan = 1;
    rec.ndim = 2;
    rec.shape[0] = 4;
    rec.shape[1] = 8;
    rec.global_batch_id = -1;
    rec.clean_before = 1u << FB_INPUT | 1u << FB_LOSS;
    rec.tensors_before = 5;
    rec.module = text_of(module);
    rec.tensor = text_of("fc.weight");
    rec.host = text_of("node0");
    return rec;
}

static void put_finding(ledger *one, const fb_rec_finding *rec)
{
    uint8_t bytes[FB_REC_BYTES_MAX];
    put(one, FB_REC_FINDING, bytes, fb_rec_finding_encode(bytes, sizeof bytes, rec));
}

static void freeze(ledger *one, const fb_rec_finding *rec)
{
    uint8_t bytes[FB_REC_BYTES_MAX];
    uint32_t n = fb_rec_finding_encode(bytes, sizeof bytes, rec);
    assert_int_equal(fb_log_freeze(one->log, FB_REC_FIRST_BAD, bytes, n, NULL, NULL), FB_OK);
}

static void put_verdict(ledger *one, int64_t step, int32_t action, int32_t first_rank, const char *case_id)
{
    fb_rec_verdict rec;
    uint8_t bytes[FB_REC_BYTES_MAX];
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.vote = 1;
    rec.action = action;
    rec.agreement = FB_AGREE_VOTE;
    rec.unanimous = 1;
    rec.fault = case_id[0] != '\0';
    rec.reason = rec.fault ? FB_REASON_NO_SCALE : FB_REASON_PROBING;
    rec.first_rank = first_rank;
    rec.first_boundary = FB_LOCAL_GRAD;
    rec.world = 2;
    rec.case_id = text_of(case_id);
    put(one, FB_REC_VERDICT, bytes, fb_rec_verdict_encode(bytes, sizeof bytes, &rec));
}

static void put_proof(ledger *one, int64_t step, int32_t moment, int32_t equal)
{
    fb_rec_proof rec;
    uint8_t bytes[FB_REC_BYTES_MAX];
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.moment = moment;
    rec.equal = equal;
    rec.tensors = 3;
    put(one, FB_REC_PROOF, bytes, fb_rec_proof_encode(bytes, sizeof bytes, &rec));
}

static void put_pulse(ledger *one, int64_t step, int32_t vote, int32_t phase)
{
    fb_rec_pulse rec;
    uint8_t bytes[FB_REC_BYTES_MAX];
    uint32_t n;
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.vote = vote;
    rec.phase = phase;
    rec.rank = one->rank;
    n = fb_rec_pulse_encode(bytes, sizeof bytes, &rec);
    assert_int_equal(fb_log_pulse(one->log, bytes, n, NULL), FB_OK);
}

static void put_event(ledger *one, int64_t step, int32_t event, int64_t a)
{
    fb_rec_event rec;
    uint8_t bytes[FB_REC_BYTES_MAX];
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.event = event;
    rec.a = a;
    rec.text = text_of("a reason");
    put(one, FB_REC_EVENT, bytes, fb_rec_event_encode(bytes, sizeof bytes, &rec));
}

static void close_ledger(ledger *one)
{
    fb_log_close(one->log);
    one->log = NULL;
}

/* first_bad.json, and optionally a file of all findings, as the guard writes them. */
static void write_case(const char *id, const char *name, const fb_rec_finding *rec, int as_list)
{
    fb_json json;
    char path[128];
    (void)snprintf(path, sizeof path, "cases/%s", id);
    make_folder(path);
    (void)snprintf(path, sizeof path, "cases/%s/%s", id, name);
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", as_list ? "firstbad.findings/1" : "firstbad.first_bad/1");
    if (as_list) {
        fb_json_key(&json, "findings");
        fb_json_array_begin(&json);
        fb_json_object_begin(&json);
    }
    fb_finding_json(&json, rec);
    if (as_list) {
        fb_json_object_end(&json);
        fb_json_array_end(&json);
    }
    fb_json_object_end(&json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    write_file(path, fb_json_text(&json));
    fb_json_release(&json);
}

/* Two ranks, good steps 0 to 2, a NaN on rank 1 at step 3, withheld and proven, good steps after it. */
static void write_usual_case(int with_folder)
{
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 2);
        if (rank == 1) {
            fb_rec_finding rec = finding(&one, 3, FB_LOCAL_GRAD, 2, "h.1.mlp");
            put_finding(&one, &rec);
            freeze(&one, &rec);
            if (with_folder) {
                write_case("a1-000003", "first_bad.json", &rec, 0);
                write_case("a1-000003", "rank-00001.json", &rec, 1);
            }
        }
        put_verdict(&one, 3, FB_SKIP, 1, "a1-000003");
        put_proof(&one, 3, FB_PROOF_DECISION, -1);
        put_step(&one, 3, FB_STEP_SKIPPED);
        put_proof(&one, 3, FB_PROOF_NEXT_BEGIN, 1);
        put_good(&one, 4, 5);
        put_pulse(&one, 5, 2, FB_PULSE_SETTLED);
        put(&one, FB_REC_CLOSE, (const uint8_t *)"\1\0\0\0\0\0", 6);
        close_ledger(&one);
    }
}

static fb_report *load(void)
{
    fb_report *report;
    fb_error err;
    if (fb_report_load(fb_os_posix(), root, &report, &err) != FB_OK) fail_msg("load: %s", err.message);
    return report;
}

static const fb_rec_finding *first_of(const fb_report *report)
{
    assert_true(report->first != UINT64_MAX);
    return &report->findings[report->first].rec;
}

static int says(const fb_notes *notes, const char *what)
{
    for (uint32_t i = 0; i < notes->count; i++) {
        if (strstr(notes->text[i], what)) return 1;
    }
    return 0;
}

/* ---- the case ---------------------------------------------------------------------------------------------------------------- */

static void check_usual_case(const fb_report *report)
{
    assert_int_equal(report->status, FB_WHY_CASE);
    assert_int_equal(first_of(report)->rank, 1);
    assert_int_equal(first_of(report)->step, 3);
    assert_int_equal(first_of(report)->first_index, 7);
    assert_int_equal(report->first_set_count, 1);
    assert_string_equal(report->case_id, "a1-000003");
    assert_int_equal(report->action, FB_SKIP);
    assert_int_equal(report->agreed, 2);
    assert_int_equal(report->proofs_equal, 2);
    assert_int_equal(report->parameters, FB_ANSWER_NO);
    assert_int_equal(report->collective, FB_ANSWER_NO);
    assert_int_equal(report->spokesman_step.sample_ids[0], 30);
    assert_int_equal(report->last_good_step, 5); /* a proven skip cuts lineage */
}

static void test_report__answers_come_from_case_folder_and_ledgers(void **state)
{
    fb_report *report;
    (void)state;
    write_usual_case(1);
    report = load();
    check_usual_case(report);
    assert_int_equal(report->rebuilt, 0);
    assert_int_equal(report->findings[report->first].source, FB_SOURCE_FROZEN);
    fb_report_free(report);
}

static void test_report__a_missing_case_folder_is_rebuilt_from_the_ledgers(void **state)
{
    fb_report *report;
    (void)state;
    write_usual_case(0);
    report = load();
    check_usual_case(report);
    assert_int_equal(report->rebuilt, 1);
    assert_string_equal(report->case_folder, "");
    fb_report_free(report);
}

static void test_report__a_torn_case_file_costs_a_note(void **state)
{
    fb_report *report;
    (void)state;
    write_usual_case(1);
    write_file("cases/a1-000003/first_bad.json", "{\"schema\": \"firstbad.first_bad/1\", \"step\": 3, \"ra");
    write_file("cases/a1-000003/rank-00001.json", "{\"findings\": [{\"step\": 3, \"rank\": 1, \"kind\": ");
    report = load();
    check_usual_case(report);
    assert_int_equal(report->rebuilt, 1);
    assert_true(says(&report->notes, "first_bad.json"));
    fb_report_free(report);
}

static void test_report__a_frozen_record_is_enough(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_rec_finding rec = finding(&one, 7, FB_LOSS, 9, "");
    fb_report *report;
    (void)state;
    freeze(&one, &rec); /* the disk was full: nothing was appended after the RUN record */
    close_ledger(&one);
    report = load();
    assert_int_equal(report->status, FB_WHY_CASE);
    assert_int_equal(first_of(report)->step, 7);
    assert_int_equal(report->action, -1);
    assert_int_equal(report->parameters, FB_ANSWER_UNKNOWN);
    fb_report_free(report);
}

static void test_report__a_case_folder_without_its_ledger_still_tells(void **state)
{
    ledger one = open_ledger(1, 0, "2");
    ledger gone = {NULL, 1, 1};
    fb_rec_finding rec = finding(&gone, 3, FB_LOCAL_GRAD, 2, "h.1.mlp");
    fb_report *report;
    (void)state;
    put_good(&one, 0, 2);
    close_ledger(&one);
    write_case("a1-000003", "first_bad.json", &rec, 0);
    report = load();
    assert_int_equal(report->status, FB_WHY_CASE);
    assert_int_equal(first_of(report)->rank, 1);
    assert_int_equal(first_of(report)->kind, FB_KIND_NAN);
    assert_int_equal(first_of(report)->boundary, FB_LOCAL_GRAD);
    assert_int_equal(first_of(report)->first_index, 7);
    assert_int_equal(first_of(report)->clean_before, rec.clean_before);
    assert_int_equal(first_of(report)->elements, 32);
    assert_memory_equal(first_of(report)->module.data, "h.1.mlp", 7);
    assert_int_equal(report->findings[report->first].source, FB_SOURCE_CASE_FILE);
    assert_true(says(&report->notes, "taken from the case folder"));
    assert_true(says(&report->undecided, "missing"));
    fb_report_free(report);
}

/* ---- first ------------------------------------------------------------------------------------------------------------------- */

/* One bad step of two ranks with these findings. */
static fb_report *load_findings(const fb_rec_finding *recs, int n)
{
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 2);
        for (int i = 0; i < n; i++) {
            if (recs[i].rank == rank) put_finding(&one, &recs[i]);
        }
        put_verdict(&one, 3, FB_SKIP, -1, "a1-000003");
        put_step(&one, 3, FB_STEP_SKIPPED);
        close_ledger(&one);
    }
    return load();
}

static void test_report__ranks_before_a_collective_are_concurrent(void **state)
{
    ledger ranks[2] = {{NULL, 1, 0}, {NULL, 1, 1}};
    fb_rec_finding recs[3];
    fb_report *report;
    (void)state;
    recs[0] = finding(&ranks[0], 3, FB_LOCAL_GRAD, 5, "h.5");
    recs[1] = finding(&ranks[1], 3, FB_LOCAL_GRAD, 1, "h.1");
    recs[2] = finding(&ranks[0], 3, FB_REDUCED_GRAD, 9, "h.9"); /* after them */
    report = load_findings(recs, 3);
    assert_int_equal(report->finding_count, 3);
    assert_int_equal(report->first_set_count, 2);
    assert_int_equal(first_of(report)->rank, 0); /* backward runs from the loss down: h.5 is nearer to it */
    fb_report_free(report);
}

static void test_report__program_order_decides_on_one_rank(void **state)
{
    ledger rank = {NULL, 1, 0};
    fb_rec_finding recs[4];
    fb_report *report;
    (void)state;
    recs[0] = finding(&rank, 3, FB_LOCAL_GRAD, 1, "later in backward");
    recs[1] = finding(&rank, 3, FB_LOCAL_GRAD, 6, "second micro-step");
    recs[1].micro_step = 1;
    recs[2] = finding(&rank, 3, FB_LOCAL_GRAD, 4, "first");
    recs[3] = finding(&rank, 3, FB_FORWARD, 2, "forward of the second micro-step");
    recs[3].micro_step = 1;
    report = load_findings(recs, 4);
    assert_int_equal(report->first_set_count, 1);
    assert_memory_equal(first_of(report)->module.data, "first", 5);
    fb_report_free(report);
}

static void test_report__in_forward_the_smaller_position_is_earlier(void **state)
{
    ledger rank = {NULL, 1, 0};
    fb_rec_finding recs[3];
    fb_report *report;
    (void)state;
    recs[0] = finding(&rank, 3, FB_FORWARD, 6, "deep");
    recs[1] = finding(&rank, 3, FB_FORWARD, 2, "first");
    recs[2] = finding(&rank, 3, FB_LOCAL_GRAD, 1, "backward");
    report = load_findings(recs, 3);
    assert_memory_equal(first_of(report)->module.data, "first", 5);
    fb_report_free(report);
}

static void test_report__state_bad_on_entry_comes_before_every_micro_step(void **state)
{
    ledger rank = {NULL, 1, 0};
    fb_rec_finding recs[2];
    fb_report *report;
    (void)state;
    recs[0] = finding(&rank, 3, FB_INPUT, 0, "batch");
    recs[1] = finding(&rank, 3, FB_ENTRY, 4, "state");
    recs[1].micro_step = 2;
    recs[1].role = FB_ROLE_MOMENT;
    report = load_findings(recs, 2);
    assert_int_equal(first_of(report)->boundary, FB_ENTRY);
    assert_string_equal(report->cause_class, "optimizer_state");
    assert_int_equal(report->optimizer_state, FB_ANSWER_YES);
    assert_true(report->samples_why[0] != '\0'); /* no sample is to blame */
    fb_report_free(report);
}

static void test_report__what_a_collective_gave_to_all_is_one_place(void **state)
{
    ledger ranks[2] = {{NULL, 1, 0}, {NULL, 1, 1}};
    fb_rec_finding recs[2];
    fb_report *report;
    (void)state;
    recs[0] = finding(&ranks[0], 3, FB_REDUCED_GRAD, 2, "h.2");
    recs[1] = finding(&ranks[1], 3, FB_REDUCED_GRAD, 2, "h.2");
    recs[0].kind = recs[1].kind = FB_KIND_POS_INF;
    report = load_findings(recs, 2);
    assert_int_equal(report->first_set_count, 1);
    assert_int_equal(report->findings[report->first].ranks, 2);
    assert_int_equal(report->collective, FB_ANSWER_YES);
    assert_string_equal(report->cause_class, "collective"); /* local gradients were checked whole on both ranks */
    fb_report_free(report);
}

static void test_report__a_case_goes_back_over_updates_that_were_applied(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_rec_finding late = finding(&one, 3, FB_UPDATE, 1, "h.1"), entry = finding(&one, 4, FB_ENTRY, 1, "h.1");
    fb_report *report;
    (void)state;
    late.role = entry.role = FB_ROLE_PARAMETER;
    put_good(&one, 0, 2);
    put_finding(&one, &late);
    put_step(&one, 3, FB_STEP_APPLIED | FB_STEP_GATED);
    put_finding(&one, &entry);
    put_verdict(&one, 4, FB_HALT, 0, "a1-000004");
    put_step(&one, 4, FB_STEP_SKIPPED);
    close_ledger(&one);
    report = load();
    assert_int_equal(report->step, 3);
    assert_string_equal(report->case_id, "a1-000004");
    assert_int_equal(first_of(report)->boundary, FB_UPDATE);
    assert_int_equal(report->parameters, FB_ANSWER_YES);
    assert_int_equal(report->case_action, FB_HALT);
    assert_int_equal(report->last_good_step, 2);
    fb_report_free(report);
}

static void test_report__a_withheld_case_does_not_swallow_the_next(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_rec_finding a = finding(&one, 2, FB_LOCAL_GRAD, 1, "h.1"), b = finding(&one, 8, FB_LOCAL_GRAD, 1, "h.1");
    fb_report *report;
    fb_report_target target;
    (void)state;
    put_good(&one, 0, 1);
    put_finding(&one, &a);
    put_verdict(&one, 2, FB_SKIP, 0, "a1-000002");
    put_step(&one, 2, FB_STEP_SKIPPED);
    put_good(&one, 3, 7);
    put_finding(&one, &b);
    put_verdict(&one, 8, FB_SKIP, 0, "a1-000008");
    put_step(&one, 8, FB_STEP_SKIPPED);
    close_ledger(&one);
    report = load();
    assert_int_equal(report->step, 8);
    assert_int_equal(report->cases_before, 1);
    assert_int_equal(report->previous_case_step, 2);
    fb_report_free(report);
    memset(&target, 0, sizeof target);
    (void)snprintf(target.folder, sizeof target.folder, "%s", root);
    target.step = 2;
    assert_int_equal(fb_report_load_target(fb_os_posix(), &target, &report, NULL), FB_OK);
    assert_int_equal(report->step, 2);
    assert_int_equal(report->cases_after, 1);
    fb_report_free(report);
    target.step = 5;
    assert_int_equal(fb_report_load_target(fb_os_posix(), &target, &report, NULL), FB_E_NOTFOUND);
    assert_null(report);
}

static void test_report__skips_in_a_row_are_one_case(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_report *report;
    (void)state;
    put_good(&one, 0, 2);
    for (int64_t step = 3; step <= 5; step++) {
        fb_rec_finding rec = finding(&one, step, FB_LOCAL_GRAD, 1, "h.1");
        put_finding(&one, &rec);
        put_verdict(&one, step, step == 5 ? FB_HALT : FB_SKIP, 0, "a1-000003");
        put_step(&one, step, FB_STEP_SKIPPED);
    }
    close_ledger(&one);
    report = load();
    assert_int_equal(report->step, 3);
    assert_int_equal(report->case_last_step, 5);
    assert_int_equal(report->case_updates, 3);
    assert_int_equal(report->action, FB_SKIP);
    assert_int_equal(report->case_action, FB_HALT);
    fb_report_free(report);
}

/* ---- clean and undecided ----------------------------------------------------------------------------------------------------- */

static void test_report__clean_needs_all_ranks_and_gated_updates(void **state)
{
    fb_report *report;
    (void)state;
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 9);
        put_pulse(&one, 9, 2, FB_PULSE_SETTLED);
        close_ledger(&one);
    }
    report = load();
    assert_int_equal(report->status, FB_WHY_CLEAN);
    assert_int_equal(report->cover_ranks, 2);
    assert_int_equal(report->cover.level[FB_LOCAL_GRAD], FB_COVER_FULL);
    assert_int_equal(report->cover.level[FB_FORWARD], FB_COVER_NONE);
    fb_report_free(report);
}

static fb_report *load_one(void (*fill)(ledger *))
{
    ledger one = open_ledger(1, 0, "1");
    fill(&one);
    close_ledger(&one);
    return load();
}

static void fill_nothing(ledger *one)
{
    (void)one;
}

static void fill_ungated(ledger *one)
{
    put_good(one, 0, 3);
    put_step(one, 4, FB_STEP_APPLIED);
}

static void fill_lost(ledger *one)
{
    put_good(one, 0, 3);
    put_event(one, 3, FB_EVENT_EVIDENCE_LOST, 2);
}

static void fill_probing(ledger *one)
{
    fb_rec_finding rec = finding(one, 4, FB_LOCAL_GRAD, 1, "h.1");
    put_good(one, 0, 3);
    put_finding(one, &rec);
    put_verdict(one, 4, FB_SKIP, 0, "");
    put_step(one, 4, FB_STEP_SKIPPED | FB_STEP_PROBING);
    put_good(one, 5, 6);
}

static void test_report__nothing_checked_is_not_clean(void **state)
{
    fb_report *report = load_one(fill_nothing);
    (void)state;
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "nothing was checked"));
    fb_report_free(report);
}

static void test_report__an_ungated_update_is_not_clean(void **state)
{
    fb_report *report = load_one(fill_ungated);
    (void)state;
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "1 of 5 updates"));
    fb_report_free(report);
}

static void test_report__lost_evidence_is_not_clean(void **state)
{
    fb_report *report = load_one(fill_lost);
    (void)state;
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "2 records could not be written"));
    fb_report_free(report);
}

static void test_report__a_probing_skip_is_clean(void **state)
{
    fb_report *report = load_one(fill_probing);
    (void)state;
    assert_int_equal(report->status, FB_WHY_CLEAN);
    assert_int_equal(report->ranks[0].probing, 1);
    fb_report_free(report);
}

static void test_report__a_missing_ledger_is_undecided(void **state)
{
    ledger one = open_ledger(1, 1, "4");
    fb_report *report;
    (void)state;
    put_good(&one, 0, 3);
    close_ledger(&one);
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_int_equal(report->missing, 3);
    assert_int_equal(report->lowest_missing, 0);
    fb_report_free(report);
}

static void test_report__garbage_at_the_end_of_a_ledger_is_undecided(void **state)
{
    fb_report *report = load_one(fill_probing);
    FILE *file;
    (void)state;
    fb_report_free(report);
    file = fopen(in_root("ledger/a1/r00000.log"), "ab");
    assert_non_null(file);
    assert_int_equal(fwrite("not a record at all, but long enough to be one", 1, 46, file), 46);
    assert_int_equal(fclose(file), 0);
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "no record"));
    fb_report_free(report);
}

static void test_report__an_unreadable_ledger_is_undecided(void **state)
{
    ledger one = open_ledger(1, 0, "2");
    fb_report *report;
    (void)state;
    put_good(&one, 0, 3);
    close_ledger(&one);
    write_file("ledger/a1/r00001.log", "short");
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_int_equal(report->ranks[1].state, FB_LEDGER_UNREADABLE);
    fb_report_free(report);
}

static void test_report__a_copied_ledger_does_not_stand_in_for_a_lost_one(void **state)
{
    fb_report *report;
    char command[300], from[200];
    (void)state;
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 3);
        close_ledger(&one);
    }
    report = load();
    assert_int_equal(report->status, FB_WHY_CLEAN);
    fb_report_free(report);
    (void)snprintf(from, sizeof from, "%s", in_root("ledger/a1/r00000.log"));
    (void)snprintf(command, sizeof command, "cp %s %s", from, in_root("ledger/a1/r00001.log"));
    assert_int_equal(system(command), 0);
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "1 ledger is of another rank"));
    fb_report_free(report);
}

static void test_report__a_ledger_of_another_run_is_not_clean(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_report *report;
    (void)state;
    put_good(&one, 0, 3);
    close_ledger(&one);
    write_file("run.json", "{\"run_id\": \"r2\", \"world\": 1}");
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "1 ledger is of another rank, attempt or run"));
    fb_report_free(report);
}

/* The file is a hole, so it costs no disk; its size is what the reader goes by. */
static void grow_ledger(int32_t rank, int64_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof path, "ledger/a1/r%05d.log", rank);
    assert_int_equal(truncate(in_root(path), bytes), 0);
}

static void test_report__a_ledger_that_was_not_read_is_not_clean(void **state)
{
    fb_report *report;
    (void)state;
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 3);
        if (rank == 1) put_step(&one, 4, FB_STEP_APPLIED);
        close_ledger(&one);
    }
    grow_ledger(1, INT64_C(2) << 30); /* more than is read where a case says which ledgers matter */
    report = load();
    assert_int_equal(report->unread, 0);
    assert_true(says(&report->undecided, "1 of 9 updates"));
    fb_report_free(report);
    grow_ledger(1, INT64_C(1) << 40);
    report = load();
    assert_int_equal(report->unread, 1);
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "of 1 ledgers only the head was read"));
    fb_report_free(report);
}

static void fill_cut(ledger *one)
{
    put_good(one, 0, 3);
    put_pulse(one, 5, 2, FB_PULSE_SETTLED); /* the record of step 4 comes before a vote in step 5 */
}

static void fill_killed(ledger *one)
{
    put_good(one, 0, 3);
    put_pulse(one, 4, 2, FB_PULSE_SETTLED);
}

static void fill_tens(ledger *one)
{
    for (int64_t step = 0; step < 40; step += 10) put_step(one, step, FB_STEP_APPLIED | FB_STEP_GATED);
    put_pulse(one, 40, 2, FB_PULSE_SETTLED);
}

static void test_report__a_ledger_that_lost_its_end_is_not_clean(void **state)
{
    fb_report *report = load_one(fill_cut);
    (void)state;
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "of rank 0 ends at step 3, and the rank had come to step 5"));
    fb_report_free(report);
}

static void test_report__a_rank_killed_within_a_step_lost_no_record(void **state)
{
    fb_report *report = load_one(fill_killed);
    (void)state;
    assert_int_equal(report->status, FB_WHY_CLEAN);
    fb_report_free(report);
}

static void test_report__steps_numbered_by_tens_lost_no_record(void **state)
{
    fb_report *report = load_one(fill_tens);
    (void)state;
    assert_int_equal(report->status, FB_WHY_CLEAN);
    fb_report_free(report);
}

static void test_report__ledgers_that_cannot_be_listed_were_not_missing(void **state)
{
    fb_report *report;
    (void)state;
    make_folder("ledger");
    write_file("ledger/a1", "where a folder should be");
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_true(says(&report->undecided, "cannot be listed: Not a directory"));
    assert_false(says(&report->undecided, "nothing was guarded"));
    fb_report_free(report);
}

static void test_report__an_empty_case_folder_is_not_called_a_judgement(void **state)
{
    fb_report *report;
    char *text = NULL;
    (void)state;
    fb_report_free(load_one(fill_lost));
    make_folder("cases/a1-000002");
    make_folder("cases/a1-000003");
    report = load();
    assert_int_equal(report->status, FB_WHY_CASE);
    assert_int_equal(fb_report_why_text(report, 100, 0, &text, NULL), FB_OK);
    assert_non_null(strstr(text, "unknown: step 2 has a case, and no finding of it can be read; "));
    assert_null(strstr(text, "judged a fault"));
    assert_null(strstr(text, "withheld and over"));
    fb_free(text);
    fb_report_free(report);
}

/* ---- no vote ----------------------------------------------------------------------------------------------------------------- */

static void test_report__a_rank_that_never_voted_is_named(void **state)
{
    fb_report *report;
    (void)state;
    for (int32_t rank = 0; rank < 4; rank++) {
        ledger one = open_ledger(1, rank, "4");
        put_good(&one, 0, 56);
        if (rank == 3) put_pulse(&one, 56, 2, FB_PULSE_SETTLED);
        else put_pulse(&one, 57, 0, FB_PULSE_BALLOT);
        close_ledger(&one);
    }
    report = load();
    assert_int_equal(report->status, FB_WHY_UNDECIDED);
    assert_int_equal(report->no_vote_step, 57);
    assert_int_equal(report->no_vote_number, 1);
    assert_int_equal(report->no_vote_count, 1);
    assert_int_equal(report->no_vote_ranks[0], 3);
    assert_int_equal(report->voted_count, 3);
    assert_true(says(&report->undecided, "no vote of rank 3 at step 57"));
    fb_report_free(report);
}

static void test_report__a_second_vote_that_one_rank_missed(void **state)
{
    fb_report *report;
    (void)state;
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 3);
        if (rank == 0) put_pulse(&one, 4, 1, FB_PULSE_BALLOT); /* its second ballot */
        else put_pulse(&one, 4, 1, FB_PULSE_SETTLED);          /* has read the first and given no other */
        close_ledger(&one);
    }
    report = load();
    assert_true(report->has_no_vote);
    assert_int_equal(report->no_vote_number, 2);
    assert_int_equal(report->no_vote_ranks[0], 1);
    fb_report_free(report);
}

static void test_report__a_vote_that_one_rank_has_read_took_place(void **state)
{
    fb_report *report;
    (void)state;
    for (int32_t rank = 0; rank < 2; rank++) {
        ledger one = open_ledger(1, rank, "2");
        put_good(&one, 0, 3);
        put_pulse(&one, 4, rank == 0 ? 0 : 1, rank == 0 ? FB_PULSE_BALLOT : FB_PULSE_SETTLED);
        close_ledger(&one);
    }
    report = load();
    assert_false(report->has_no_vote);
    assert_true(says(&report->notes, "took place"));
    fb_report_free(report);
}

/* ---- proof, recovery, attempts ----------------------------------------------------------------------------------------------- */

static void test_report__state_that_changed_after_a_skip_is_told(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_rec_finding rec = finding(&one, 3, FB_LOCAL_GRAD, 1, "h.1");
    fb_report *report;
    (void)state;
    put_finding(&one, &rec);
    put_verdict(&one, 3, FB_SKIP, 0, "a1-000003");
    put_proof(&one, 3, FB_PROOF_DECISION, -1);
    put_step(&one, 3, FB_STEP_SKIPPED);
    put_proof(&one, 3, FB_PROOF_NEXT_BEGIN, 0);
    put_verdict(&one, 4, FB_HALT, -1, "a1-000003"); /* the guard halts, and there is no finding of its own */
    close_ledger(&one);
    report = load();
    assert_int_equal(report->step, 3);
    assert_int_equal(report->parameters, FB_ANSWER_UNKNOWN);
    assert_non_null(strstr(report->parameters_why, "the state changed on 1 of 1 ranks"));
    fb_report_free(report);
}

static void put_checkpoint(const char *name, int64_t step, int32_t state_number, int32_t reason)
{
    fb_rec_ckpt rec;
    fb_error err;
    memset(&rec, 0, sizeof rec);
    rec.step = step;
    rec.attempt = 1;
    rec.state = state_number;
    rec.reason = reason;
    rec.bytes = 1;
    rec.path = text_of(in_root(name));
    rec.tensor = text_of("");
    if (fb_registry_record(fb_os_posix(), root, &rec, &err) != FB_OK) fail_msg("%s", err.message);
}

static void test_report__resume_from_the_newest_committed_before_the_fault(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_rec_finding rec = finding(&one, 8, FB_UPDATE, 1, "h.1");
    fb_report *report;
    (void)state;
    put_good(&one, 0, 7);
    put_finding(&one, &rec);
    put_step(&one, 8, FB_STEP_APPLIED);
    close_ledger(&one);
    write_file("ck2", "x");
    write_file("ck5", "x");
    write_file("ck8", "x");
    put_checkpoint("ck2", 2, FB_CKPT_COMMITTED, 0);
    put_checkpoint("ck5", 5, FB_CKPT_SUSPECT, FB_CKPT_REASON_READ_BACK);
    put_checkpoint("ck5", 5, FB_CKPT_COMMITTED, 0);
    put_checkpoint("ck6", 6, FB_CKPT_COMMITTED, 0); /* and deleted since */
    put_checkpoint("ck8", 8, FB_CKPT_QUARANTINED, FB_CKPT_REASON_NOT_FINITE);
    report = load();
    assert_int_equal(report->last_good_step, 7);
    assert_true(report->resume != UINT64_MAX);
    assert_string_equal(report->checkpoints[report->resume].path, in_root("ck5"));
    assert_int_equal(report->checkpoint_count, 4);
    fb_report_free(report);
}

static void test_report__a_checkpoint_that_changed_size_is_not_offered(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_report *report;
    fb_rec_ckpt rec;
    char *text = NULL;
    (void)state;
    put_good(&one, 0, 7);
    close_ledger(&one);
    write_file("ck5", "12345678");
    memset(&rec, 0, sizeof rec);
    rec.step = 5;
    rec.attempt = 1;
    rec.state = FB_CKPT_COMMITTED;
    rec.bytes = 8;
    rec.path = text_of(in_root("ck5"));
    rec.tensor = text_of("");
    assert_int_equal(fb_registry_record(fb_os_posix(), root, &rec, NULL), FB_OK);
    report = load();
    assert_true(report->resume != UINT64_MAX);
    fb_report_free(report);
    write_file("ck5", "cut");
    report = load();
    assert_true(report->resume == UINT64_MAX);
    assert_int_equal(fb_report_why_text(report, 100, 0, &text, NULL), FB_OK);
    assert_non_null(strstr(text, "another size"));
    fb_free(text);
    fb_report_free(report);
}

static void test_report__a_clean_restart_does_not_hide_the_case(void **state)
{
    ledger one;
    fb_report *report;
    fb_report_target target;
    (void)state;
    write_usual_case(1);
    one = open_ledger(2, 0, "1");
    put_good(&one, 0, 3);
    close_ledger(&one);
    report = load();
    assert_int_equal(report->attempt, 1);
    assert_int_equal(report->newest_attempt, 2);
    assert_true(says(&report->notes, "attempt 2"));
    fb_report_free(report);
    memset(&target, 0, sizeof target);
    (void)snprintf(target.folder, sizeof target.folder, "%s", root);
    target.step = -1;
    target.attempt = 2;
    assert_int_equal(fb_report_load_target(fb_os_posix(), &target, &report, NULL), FB_OK);
    assert_int_equal(report->has_case, 0);
    fb_report_free(report);
}

/* ---- names ------------------------------------------------------------------------------------------------------------------- */

static void find(const char *name, const char *folder, int32_t attempt, int64_t step)
{
    fb_report_target target;
    fb_error err;
    if (fb_report_find(fb_os_posix(), root, name, &target, &err) != FB_OK) fail_msg("%s: %s", name, err.message);
    assert_string_equal(target.folder, in_root(folder));
    assert_int_equal(target.attempt, attempt);
    assert_int_equal(target.step, step);
}

static void test_report__names_of_runs_cases_steps_and_paths(void **state)
{
    fb_report_target target;
    fb_error err;
    char path[256];
    (void)state;
    assert_int_equal(fb_report_find(fb_os_posix(), root, NULL, &target, &err), FB_E_NOTFOUND);
    make_folder("77/ledger/a1");
    make_folder("77/cases/a1-000412");
    find(NULL, "77", 0, -1);
    find("77", "77", 0, -1); /* a run before a step */
    find("412", "77", 0, 412);
    find("000412", "77", 0, 412);
    find("a1-000412", "77", 1, 412);
    (void)snprintf(path, sizeof path, "%s/77", root);
    find(path, "77", 0, -1);
    (void)snprintf(path, sizeof path, "%s/77/cases/a1-000412/", root);
    find(path, "77", 1, 412);
    (void)snprintf(path, sizeof path, "%s", root);
    find(path, "77", 0, -1);
    assert_int_equal(fb_report_find(fb_os_posix(), root, "nosuch", &target, &err), FB_E_NOTFOUND);
    assert_int_equal(fb_report_find(fb_os_posix(), in_root("absent"), NULL, &target, &err), FB_E_NOTFOUND);
}

/* ---- rendering, hostile input ------------------------------------------------------------------------------------------------ */

static void render(const fb_report *report)
{
    fb_json json;
    fb_json_reader reader;
    fb_json_token token;
    fb_error err;
    char *text;
    fb_json_init(&json, 1);
    fb_report_why_json(report, &json);
    assert_int_equal(fb_json_finish(&json, &err), FB_OK);
    fb_json_read(&reader, fb_json_text(&json), json.used);
    do assert_int_equal(fb_json_next(&reader, &token, &err), FB_OK);
    while (token.type != FB_JSON_END);
    fb_json_release(&json);
    assert_int_equal(fb_report_why_text(report, 100, 0, &text, &err), FB_OK);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        for (size_t i = 0; i < strcspn(line, "\n"); i++) assert_true((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
    }
    fb_free(text);
}

static void test_report__hostile_names_reach_neither_terminal_nor_json(void **state)
{
    ledger one = open_ledger(1, 0, "1");
    fb_rec_finding rec = finding(&one, 3, FB_LOCAL_GRAD, 1, "\033]0;owned\007\"},\xff\x9b\n\xc2\x9b");
    fb_report *report;
    (void)state;
    put_finding(&one, &rec);
    put_verdict(&one, 3, FB_SKIP, 0, "a1-000003");
    close_ledger(&one);
    write_file("run.json",
               "{\"run_id\": \"x\\u001b[2J\", \"command\": [\"a\\nb\"], \"world\": 99999999999, \"policy\": 3, \"meta\": [1]}");
    report = load();
    render(report);
    fb_report_free(report);
}

static void test_report__text_is_wrapped_to_the_columns(void **state)
{
    fb_report *report;
    char *text;
    (void)state;
    write_usual_case(1);
    report = load();
    render(report);
    assert_int_equal(fb_report_why_text(report, 60, 1, &text, NULL), FB_OK);
    assert_non_null(strstr(text, "\033[1m1 First bad\033[0m"));
    fb_free(text);
    assert_int_equal(fb_report_why_text(report, 60, 0, &text, NULL), FB_OK);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        if (strchr(line, '/') && strchr(line, '/') < line + strcspn(line, "\n")) continue; /* a path is not broken */
        assert_true(strcspn(line, "\n") <= 60);
    }
    fb_free(text);
    fb_report_free(report);
}

static void flip_bytes(const char *name, uint64_t *x)
{
    FILE *file = fopen(in_root(name), "r+b");
    long bytes;
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    bytes = ftell(file);
    for (int i = 0; i < 8; i++) {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        /* Half of them where records are, not in the large space that is set aside. */
        assert_int_equal(fseek(file, (long)(*x % (uint64_t)bytes), SEEK_SET), 0);
        if (bytes > 143360 && i % 2) assert_int_equal(fseek(file, 143360 + (long)(*x % (uint64_t)(bytes - 143360)), SEEK_SET), 0);
        assert_int_not_equal(fputc((int)(*x >> 32 & 0xff), file), EOF);
    }
    assert_int_equal(fclose(file), 0);
}

static void test_report__damaged_files_never_harm_the_reader(void **state)
{
    static const char *const names[] = {"ledger/a1/r00000.log", "ledger/a1/r00001.log", "cases/a1-000003/first_bad.json",
                                        "cases/a1-000003/rank-00001.json", "run.json"};
    uint64_t seed = (uint64_t)getpid() * 2654435761u + 88172645463325252u, x = seed;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20; round++) {
        fb_report *report;
        fb_error err;
        (void)remove_tree(in_root("ledger"));
        (void)remove_tree(in_root("cases"));
        write_usual_case(1);
        write_file("run.json", "{\"schema\": \"firstbad.run/1\", \"run_id\": \"r1\", \"world\": 2, \"command\": [\"a\", \"b\"]}");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) flip_bytes(names[i], &x);
        if (fb_report_load(fb_os_posix(), root, &report, &err) != FB_OK) continue;
        render(report);
        fb_report_free(report);
    }
}

static void test_report__every_failing_allocation_is_told_or_survived(void **state)
{
    uint64_t k;
    (void)state;
    write_usual_case(1);
    put_checkpoint("ck2", 2, FB_CKPT_COMMITTED, 0);
    for (k = 1; k < 2000; k++) {
        fb_report *report = NULL;
        fb_error err;
        fb_status status;
        uint64_t requests;
        fb_alloc_fail_at(k, 0);
        status = fb_report_load(fb_os_posix(), root, &report, &err);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        if (status != FB_OK) assert_int_equal(status, FB_E_NOMEM);
        else fb_report_free(report);
        if (requests < k) break;
    }
    assert_true(k > 10 && k < 2000);
}

/* ---- a system that fails ----------------------------------------------------------------------------------------------------- */

static uint64_t system_calls, fail_call;
static int fail_on; /* and on, for good */

static int must_fail(void)
{
    system_calls++;
    return system_calls == fail_call || (fail_on && fail_call && system_calls > fail_call);
}

static int64_t failing_open(void *ctx, const char *path, int flags, int mode)
{
    return must_fail() ? -EIO : fb_os_posix()->open(ctx, path, flags, mode);
}

static int64_t failing_read(void *ctx, int fd, void *data, size_t bytes)
{
    return must_fail() ? -EIO : fb_os_posix()->read(ctx, fd, data, bytes);
}

static int64_t failing_pread(void *ctx, int fd, void *data, size_t bytes, uint64_t offset)
{
    return must_fail() ? -EIO : fb_os_posix()->pread(ctx, fd, data, bytes, offset);
}

static int64_t failing_fstat(void *ctx, int fd, fb_os_info *info)
{
    return must_fail() ? -EIO : fb_os_posix()->fstat(ctx, fd, info);
}

static int64_t failing_stat(void *ctx, const char *path, fb_os_info *info)
{
    return must_fail() ? -EACCES : fb_os_posix()->stat(ctx, path, info);
}

static int64_t failing_list(void *ctx, const char *path, fb_os_list_fn fn, void *arg)
{
    return must_fail() ? -EACCES : fb_os_posix()->list(ctx, path, fn, arg);
}

static void test_report__a_failing_system_never_makes_a_case_clean(void **state)
{
    fb_os os = *fb_os_posix();
    uint64_t answered = 0;
    (void)state;
    os.open = failing_open;
    os.read = failing_read;
    os.pread = failing_pread;
    os.fstat = failing_fstat;
    os.stat = failing_stat;
    os.list = failing_list;
    write_usual_case(1);
    write_file("run.json", "{\"world\": 2}");
    for (fail_on = 0; fail_on < 2; fail_on++) {
        for (fail_call = 1; fail_call < 5000; fail_call++) {
            fb_report *report = NULL;
            fb_error err;
            system_calls = 0;
            if (fb_report_load(&os, root, &report, &err) != FB_OK) continue;
            assert_int_not_equal(report->status, FB_WHY_CLEAN);
            render(report);
            fb_report_free(report);
            answered++;
            if (system_calls < fail_call) break;
        }
        assert_true(fail_call > 20 && fail_call < 5000);
    }
    fail_call = 0;
    assert_true(answered > 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_report__answers_come_from_case_folder_and_ledgers),
        TEST(test_report__a_missing_case_folder_is_rebuilt_from_the_ledgers),
        TEST(test_report__a_torn_case_file_costs_a_note),
        TEST(test_report__a_frozen_record_is_enough),
        TEST(test_report__a_case_folder_without_its_ledger_still_tells),
        TEST(test_report__ranks_before_a_collective_are_concurrent),
        TEST(test_report__program_order_decides_on_one_rank),
        TEST(test_report__in_forward_the_smaller_position_is_earlier),
        TEST(test_report__state_bad_on_entry_comes_before_every_micro_step),
        TEST(test_report__what_a_collective_gave_to_all_is_one_place),
        TEST(test_report__a_case_goes_back_over_updates_that_were_applied),
        TEST(test_report__a_withheld_case_does_not_swallow_the_next),
        TEST(test_report__skips_in_a_row_are_one_case),
        TEST(test_report__clean_needs_all_ranks_and_gated_updates),
        TEST(test_report__nothing_checked_is_not_clean),
        TEST(test_report__an_ungated_update_is_not_clean),
        TEST(test_report__lost_evidence_is_not_clean),
        TEST(test_report__a_probing_skip_is_clean),
        TEST(test_report__a_missing_ledger_is_undecided),
        TEST(test_report__garbage_at_the_end_of_a_ledger_is_undecided),
        TEST(test_report__an_unreadable_ledger_is_undecided),
        TEST(test_report__a_copied_ledger_does_not_stand_in_for_a_lost_one),
        TEST(test_report__a_ledger_of_another_run_is_not_clean),
        TEST(test_report__a_ledger_that_was_not_read_is_not_clean),
        TEST(test_report__a_ledger_that_lost_its_end_is_not_clean),
        TEST(test_report__a_rank_killed_within_a_step_lost_no_record),
        TEST(test_report__steps_numbered_by_tens_lost_no_record),
        TEST(test_report__ledgers_that_cannot_be_listed_were_not_missing),
        TEST(test_report__an_empty_case_folder_is_not_called_a_judgement),
        TEST(test_report__a_rank_that_never_voted_is_named),
        TEST(test_report__a_second_vote_that_one_rank_missed),
        TEST(test_report__a_vote_that_one_rank_has_read_took_place),
        TEST(test_report__state_that_changed_after_a_skip_is_told),
        TEST(test_report__resume_from_the_newest_committed_before_the_fault),
        TEST(test_report__a_checkpoint_that_changed_size_is_not_offered),
        TEST(test_report__a_clean_restart_does_not_hide_the_case),
        TEST(test_report__names_of_runs_cases_steps_and_paths),
        TEST(test_report__hostile_names_reach_neither_terminal_nor_json),
        TEST(test_report__text_is_wrapped_to_the_columns),
        TEST(test_report__damaged_files_never_harm_the_reader),
        TEST(test_report__every_failing_allocation_is_told_or_survived),
        TEST(test_report__a_failing_system_never_makes_a_case_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
