/*
 * The paragraph that tells what happened, over every combination of what can be known: it is grammatical, fits six lines of 100
 * columns, names an operator only where one was proven, and repeats facts only as they are.
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
#include "report/say.h"
#include "search/minimise.h"

typedef struct scene {
    fb_report report;
    fb_located located;
    fb_told told;
    fb_report_finding finding;
    fb_report_rank rank;
    fb_report_checkpoint checkpoint;
    fb_locate_link links[3];
} scene;

static fb_text text_of(const char *text)
{
    fb_text result = {text, (uint32_t)strlen(text)};
    return result;
}

static fb_locate_link link_of(const char *op, const char *module, int entry)
{
    fb_locate_link link;
    memset(&link, 0, sizeof link);
    (void)snprintf(link.op, sizeof link.op, "%s", entry ? "" : op);
    (void)snprintf(link.module, sizeof link.module, "%s", module);
    (void)snprintf(link.tensor, sizeof link.tensor, "weight");
    link.boundary = FB_FORWARD;
    link.entry = entry;
    link.made = link.reads = -1;
    return link;
}

/* Rank 5 of 8 found NaN in a local gradient at step 412; nothing more is known. */
static void scene_init(scene *s)
{
    memset(s, 0, sizeof *s);
    s->report.step = s->report.case_last_step = 412;
    s->report.world = 8;
    s->report.has_case = 1;
    s->report.status = FB_WHY_CASE;
    s->report.findings = &s->finding;
    s->report.finding_count = 1;
    s->report.first = 0;
    s->report.resume = UINT64_MAX;
    s->report.action = s->report.case_action = -1;
    s->report.ranks = &s->rank;
    s->report.rank_count = 1;
    s->report.checkpoints = &s->checkpoint;
    (void)snprintf(s->report.cause_class, sizeof s->report.cause_class, "undecidable");
    (void)snprintf(s->report.cause, sizeof s->report.cause, "what made it was not replayed");
    s->rank.last_step = 412;
    s->checkpoint.step = 400;
    s->finding.rec.step = 412;
    s->finding.rec.rank = 5;
    s->finding.rec.boundary = FB_LOCAL_GRAD;
    s->finding.rec.kind = FB_KIND_NAN;
    s->finding.rec.module = text_of("h.1.mlp");
    s->finding.rec.tensor = text_of("fc.weight");
    s->told.file.step = 412;
    s->told.file.replay.persists = -1;
    s->told.file.cause.sample_id = -1;
}

static void scene_locate(scene *s, int32_t found, const fb_locate_link *links, uint32_t count)
{
    memcpy(s->links, links, count * sizeof *links);
    s->report.located = &s->located;
    s->located.place = &s->told;
    s->located.found = s->told.found = found;
    s->told.file.candidates.items = s->links;
    s->told.file.candidates.count = s->told.file.candidates.total = count;
    s->told.file.chain.total = 7;
    s->told.file.location.known = found == FB_LOCATED_OPERATOR;
    s->told.file.location.rank = 5;
    s->told.file.location.kind = FB_KIND_POS_INF;
    s->told.file.location.boundary = FB_FORWARD;
    s->told.file.location.micro_step = -1;
    (void)snprintf(s->told.file.location.op, sizeof s->told.file.location.op, "softmax");
    (void)snprintf(s->told.file.location.module, sizeof s->told.file.location.module, "h.7.attn");
    (void)snprintf(s->told.file.location.source, sizeof s->told.file.location.source, "train.py:88");
}

static void scene_replay(scene *s, uint32_t k, uint32_t n, uint32_t rows, int coupled)
{
    s->located.replay = &s->told;
    s->told.file.replay.reproduced = k;
    s->told.file.replay.tried = n;
    if (rows == 0) return;
    s->located.batch = &s->told;
    s->told.file.minimise.state = FB_MINIMISE_MINIMAL;
    s->told.file.minimise.rows_needed = rows;
    s->told.file.minimise.coupled = coupled;
}

static void scene_cause(scene *s, const char *name, int certain)
{
    s->located.cause_told = 1;
    s->told.file.cause.certain = certain;
    (void)snprintf(s->told.file.cause.name, sizeof s->told.file.cause.name, "%s", name);
    (void)snprintf(s->told.file.cause.lies_in, sizeof s->told.file.cause.lies_in, "data");
    (void)snprintf(s->told.file.cause.explanation, sizeof s->told.file.cause.explanation,
                   "row 3 of the mask is full, so softmax is 0/0");
}

/* ---- what must hold of every paragraph --------------------------------------------------------------------------------------- */

static int lines_of(const char *text)
{
    fb_lines lines;
    char *out;
    int count = 0;
    fb_lines_init(&lines, 100, 0);
    fb_lines_add(&lines, "", 0, "What happened: %s", text);
    assert_int_equal(fb_lines_finish(&lines, &out, NULL), FB_OK);
    for (const char *c = out; *c; c++) count += *c == '\n';
    fb_free(out);
    return count;
}

static void check(const scene *s)
{
    static const char *const never[] = {"  ",         " ,",         " .",        "..",        ",.",
                                        ";.",         "!",          " 1 ranks",  "1 samples", "1 operators",
                                        "1 replays ", "one places", "None of 1", "All 1",     "All 2 ",
                                        " all 1 ",    " 1 places",  " in of ",   " of  ",     "(null)",
                                        " was were",  "a NaN",      " ;",        ". and",     " 1 other tensors",
                                        "?"};
    fb_phrase phrase = {"", 0};
    const char *text = phrase.text;
    fb_why_happened(&s->report, &phrase);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        if (strchr(never[i], '.') && s->finding.rec.module.bytes > 100) continue; /* clipped names begin with "..." */
        if (strstr(text, never[i])) fail_msg("'%s' stands in: %s", never[i], text);
    }
    if (getenv("FB_SHOW")) (void)fprintf(stderr, "%s\n", text);
    if (strncmp(text, "At step 412", 11) != 0) fail_msg("does not begin with the step: %s", text);
    if (text[phrase.used - 1] != '.') fail_msg("does not end with a full stop: %s", text);
    for (const char *c = text; (c = strstr(c, ". ")) != NULL; c += 2) {
        if (c[2] >= 'a' && c[2] <= 'z' && strncmp(c + 2, "row", 3) != 0) fail_msg("a sentence begins small: %s", text);
    }
    if (lines_of(text) > 6) fail_msg("takes %d lines: %s", lines_of(text), text);
    if (s->located.found != FB_LOCATED_OPERATOR && strstr(text, "softmax in the")) fail_msg("names an operator: %s", text);
}

static void check_decisions(scene *s)
{
    static const int32_t actions[] = {-1, FB_PROCEED, FB_SKIP, FB_HALT};
    for (size_t a = 0; a < sizeof actions / sizeof *actions; a++) {
        for (int ranks = 0; ranks < 4; ranks++) {
            for (int next = 0; next < 4; next++) {
                s->report.action = s->report.case_action = actions[a];
                s->report.withheld_on = ranks == 0 ? 0 : ranks == 1 ? (uint64_t)s->report.world : 1;
                s->report.applied_on = ranks == 3 && s->report.world > 1 ? (uint64_t)s->report.world - 1 : 0;
                s->report.proofs_compared = ranks == 1 ? (uint64_t)s->report.world : 0;
                s->report.proofs_equal = next == 3 && ranks == 1 ? 0 : s->report.proofs_compared;
                s->rank.last_step = next == 1 ? 420 : 412;
                s->report.resume = next == 2 ? 0 : UINT64_MAX;
                s->report.case_last_step = next == 3 ? 415 : 412;
                check(s);
            }
        }
    }
}

static void test_happened__every_finding_makes_a_paragraph(void **state)
{
    static const int32_t worlds[] = {1, 2, 8, -1};
    scene s;
    (void)state;
    for (int32_t boundary = FB_ENTRY; boundary <= FB_CHECKPOINT; boundary++) {
        for (int32_t kind = FB_KIND_NAN; kind <= FB_KIND_DOMAIN; kind++) {
            for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
                scene_init(&s);
                s.finding.rec.boundary = boundary;
                s.finding.rec.kind = kind;
                s.finding.rec.micro_step = kind % 2;
                s.finding.rec.injected = kind == FB_KIND_DOMAIN;
                s.report.world = worlds[w] < 0 ? -1 : worlds[w];
                if (w == 3) {
                    s.finding.rec.module = text_of("");
                    s.finding.rec.tensor = text_of(boundary == FB_LOSS ? "loss" : "");
                }
                if (s.report.world > 0) check_decisions(&s);
                else check(&s);
            }
        }
    }
}

static void test_happened__every_location_makes_a_paragraph(void **state)
{
    static const uint32_t tried[][2] = {{0, 0}, {0, 1}, {1, 1}, {2, 2}, {0, 3}, {1, 3}, {3, 3}};
    const fb_locate_link operators[3] = {link_of("softmax", "h.7.attn", 0), link_of("linear", "", 0), link_of("", "h.2.ln", 0)};
    const fb_locate_link entries[3] = {link_of("", "h.7.attn", 1), link_of("", "", 1), link_of("", "h.2.ln", 1)};
    scene s;
    (void)state;
    for (int32_t found = FB_LOCATED_NOTHING; found <= FB_LOCATED_UNDECIDED; found++) {
        for (uint32_t count = found == FB_LOCATED_SET ? 2 : 0; count <= 3; count++) {
            for (size_t t = 0; t < sizeof tried / sizeof *tried; t++) {
                for (uint32_t rows = 0; rows < 4; rows++) {
                    scene_init(&s);
                    scene_locate(&s, found, found == FB_LOCATED_ENTRY ? entries : operators, count);
                    s.told.file.cause.rule = rows == 2 ? FB_RULE_BATCH : FB_RULE_STATE;
                    s.told.file.chain.total = rows;
                    if (rows == 3) s.told.file.location.source[0] = s.told.file.location.module[0] = '\0';
                    if (rows == 3) s.told.file.location.micro_step = 2;
                    if (tried[t][1]) scene_replay(&s, tried[t][0], tried[t][1], rows, rows == 3);
                    if (count % 2) scene_cause(&s, "mask_full_row", count == 1);
                    check_decisions(&s);
                }
            }
        }
    }
}

static void test_happened__long_names_and_explanations_stay_within_six_lines(void **state)
{
    const fb_locate_link operators[1] = {link_of("softmax", "h.7.attn", 0)};
    char name[FB_TEXT_MAX];
    scene s;
    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t explanation = 0; explanation < 600; explanation += 7) {
        scene_init(&s);
        scene_locate(&s, FB_LOCATED_OPERATOR, operators, 1);
        scene_replay(&s, 3, 3, 3, 1);
        scene_cause(&s, "mask_full_row", 0);
        memset(s.told.file.cause.explanation, 'y', explanation);
        s.told.file.cause.explanation[explanation] = '\0';
        memset(s.told.file.location.op, 'x', sizeof s.told.file.location.op - 1);
        memset(s.told.file.location.module, 'x', sizeof s.told.file.location.module - 1);
        memset(s.told.file.location.source, 'x', sizeof s.told.file.location.source - 1);
        s.finding.rec.module = s.finding.rec.tensor = text_of(name);
        s.told.file.location.micro_step = INT32_MAX;
        s.report.world = 1 << 20;
        check_decisions(&s);
    }
}

static void test_happened__one_bad_id_of_a_known_row_costs_one_sample(void **state)
{
    const int64_t *ids;
    uint64_t kept, count;
    fb_rec_finding *first;
    scene s;
    (void)state;
    scene_init(&s);
    first = &s.finding.rec;
    first->boundary = FB_INPUT;
    first->kind = FB_KIND_OUT_OF_RANGE;
    first->field = FB_FIELD_LABELS;
    first->count = 1;
    first->ndim = 2;
    first->shape[0] = 4;
    first->shape[1] = 8;
    first->first_index = 19; /* row 2, column 3 */
    s.report.spokesman_step.samples = 4;
    s.report.spokesman_step.sample_count = 4;
    for (int i = 0; i < 4; i++) s.report.spokesman_step.sample_ids[i] = 70 + i;
    fb_skip_samples(&s.report, &ids, &kept, &count);
    assert_true(kept == 1 && count == 1 && ids[0] == 72);
    first->count = 2; /* where the other one lies was not kept */
    fb_skip_samples(&s.report, &ids, &kept, &count);
    assert_true(kept == 4 && count == 4 && ids[0] == 70);
    first->count = 1;
    first->shape[0] = 2; /* rows are no samples here */
    fb_skip_samples(&s.report, &ids, &kept, &count);
    assert_true(kept == 4 && count == 4);
}

static void test_happened__a_located_fault_reads_as_a_person_would_tell_it(void **state)
{
    const fb_locate_link operators[1] = {link_of("softmax", "h.7.attn", 0)};
    fb_phrase phrase = {"", 0};
    scene s;
    (void)state;
    scene_init(&s);
    scene_locate(&s, FB_LOCATED_OPERATOR, operators, 1);
    scene_replay(&s, 3, 3, 1, 0);
    scene_cause(&s, "mask_full_row", 1);
    s.told.file.location.micro_step = 2;
    s.told.file.cause.sample_id = 20417;
    s.report.action = s.report.case_action = FB_HALT;
    s.report.withheld_on = s.report.proofs_compared = s.report.proofs_equal = 8;
    s.report.resume = 0;
    fb_why_happened(&s.report, &phrase);
    assert_string_equal(
        phrase.text,
        "At step 412, in micro-step 2, softmax in the forward pass of h.7.attn (train.py:88) made +Inf on rank 5, "
        "though nothing that it read was bad, and it reached h.1.mlp fc.weight. Row 3 of the mask is full, so softmax is 0/0. The "
        "update was withheld on all 8 ranks, and digests show that nothing changed; the run was halted. All 3 "
        "replays showed it again; one sample is enough. Resume from the checkpoint of step 400 and leave out sample "
        "20417.");
}

static void test_happened__what_is_doubted_names_nothing(void **state)
{
    const fb_locate_link operators[2] = {link_of("softmax", "h.7.attn", 0), link_of("softmax", "h.7.attn", 0)};
    fb_phrase phrase = {"", 0};
    scene s;
    (void)state;
    scene_init(&s);
    scene_locate(&s, FB_LOCATED_NOT_STEADY, operators, 2);
    (void)snprintf(s.told.doubt, sizeof s.told.doubt, "two files tell different places");
    scene_replay(&s, 3, 3, 0, 0);
    fb_why_happened(&s.report, &phrase);
    assert_null(strstr(phrase.text, "softmax"));
    assert_null(strstr(phrase.text, "h.7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_happened__every_finding_makes_a_paragraph),
        cmocka_unit_test(test_happened__every_location_makes_a_paragraph),
        cmocka_unit_test(test_happened__long_names_and_explanations_stay_within_six_lines),
        cmocka_unit_test(test_happened__one_bad_id_of_a_known_row_costs_one_sample),
        cmocka_unit_test(test_happened__a_located_fault_reads_as_a_person_would_tell_it),
        cmocka_unit_test(test_happened__what_is_doubted_names_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
