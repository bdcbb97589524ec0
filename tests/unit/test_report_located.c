/*
 * What `why` believes of locate.json: only what is of this case, and a name only with a witness chain that is whole (promise P5).
 * Each test writes a case with the guard itself, and beside it what a replay might have told.
 */
#include "support/world.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "firstbad/bundle.h"
#include "report/report.h"

static const char link_format[] = "{\"operator\": %s, \"module\": \"%s\", \"tensor\": \"%s\", \"source\": \"model.c:88\", "
                                  "\"boundary\": \"%s\", \"micro_step\": 0, \"label\": \"%s\", \"entry\": %s, \"made\": %s, "
                                  "\"reads\": %s}";

/* The file in parts that tests change one by one. */
typedef struct told_text {
    const char *schema, *run_id, *case_id, *step, *finding, *found, *location, *candidates, *chain[3], *replay, *cause, *minimise;
} told_text;

static char links[8][512];

static const char *link_text(int slot, const char *op, const char *module, const char *tensor, const char *boundary,
                             const char *label, const char *made, const char *reads)
{
    (void)snprintf(links[slot], sizeof links[slot], link_format, op, module, tensor, boundary, label,
                   strcmp(op, "null") == 0 ? "true" : "false", made, reads);
    return links[slot];
}

static told_text usual(void)
{
    told_text t;
    memset(&t, 0, sizeof t);
    t.schema = "\"firstbad.locate/1\"";
    t.run_id = "\"test\"";
    t.case_id = "\"a1-000003\"";
    t.step = "3";
    t.finding = "{\"rank\": 1, \"boundary\": \"local_gradient\", \"module\": \"h.1.mlp\", \"tensor\": \"w\", \"micro_step\": 0, "
                "\"kind\": \"nan\", \"tensor_id\": 9}";
    t.found = "\"operator\"";
    t.location = "{\"boundary\": \"forward\", \"micro_step\": 0, \"rank\": 1, \"module\": \"h.1.attn\", \"operator\": \"softmax\", "
                 "\"tensor\": \"p\", \"source\": \"model.c:88\", \"index\": [1, 2], \"shape\": [4, 4], \"dtype\": \"f32\", "
                 "\"kind\": \"nan\", \"bad\": 4, \"elements\": 16}";
    t.candidates = "[]";
    t.chain[0] = link_text(0, "\"softmax\"", "h.1.attn", "p", "forward", "generate", "7", "null");
    t.chain[1] = link_text(1, "\"matmul\"", "h.1.attn", "y", "forward", "propagate", "8", "7");
    t.chain[2] = link_text(2, "\"linear_backward\"", "h.1.mlp", "w", "local_gradient", "propagate", "9", "8");
    t.replay = "{\"attempts\": 3, \"reproduced\": 3, \"faithful\": true, \"differences\": [], \"other_ranks\": {\"tried\": 1, "
               "\"bad\": 1}, \"persists_fp32\": true}";
    t.cause = "{\"class\": \"mask_full_row\", \"rule\": \"domain\", \"lies_in\": \"data\", \"certain\": true, \"explanation\": "
              "\"a full row\", \"witness\": \"it read finite values\", \"fix\": \"drop it\", \"verify\": \"firstbad replay\", "
              "\"value\": null, \"limit\": null, \"format\": null, \"format_needed\": null, \"row\": 3, \"sample\": 0, "
              "\"sample_id\": 71}";
    t.minimise =
        "{\"state\": \"minimal\", \"rows\": 2, \"columns\": 4, \"rows_needed\": 1, \"rows_kept\": [0], \"sample_ids\": [71], "
        "\"tokens_needed\": 4, \"spans\": [], \"coupled\": false, \"tests\": 5}";
    return t;
}

static void write_text(const world *w, const char *below, const char *text)
{
    char path[512];
    FILE *file;
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000003/replays", w->dir);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000003/%s", w->dir, below);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000003/%s/locate.json", w->dir, below);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void write_told(const world *w, const char *below, const told_text *t)
{
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "{\"schema\": %s, \"run_id\": %s, \"case\": %s, \"step\": %s, \"world\": 2, \"rank\": 1, \"precision\": null, "
                     "\"first_step_of_attempt\": false, \"finding\": %s, \"found\": %s, \"sentence\": \"s\", \"location\": %s, "
                     "\"candidates\": %s, \"interval\": null, \"chain\": [%s, %s, %s], \"swallowed\": [], \"replay\": %s, "
                     "\"cause\": %s, \"minimise\": %s, \"cost\": {\"replays\": 5, \"search_replays\": 2, \"seconds\": 0.5, "
                     "\"strategy\": \"sweep\"}, \"evidence\": {\"files\": [], \"sliced\": 0}, \"notes\": null}",
                     t->schema, t->run_id, t->case_id, t->step, t->finding, t->found, t->location, t->candidates, t->chain[0],
                     t->chain[1], t->chain[2], t->replay, t->cause, t->minimise);
    assert_true(n > 0 && (size_t)n < sizeof text);
    write_text(w, below, text);
}

static void nan_on_rank_1(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank == 1) w->rank[1].grad[1][2] = world_bits(0x7fc00000u);
}

/* Two ranks; rank 1 finds NaN in the gradient of h.1.mlp w at step 3. */
static void begin(world *w)
{
    world_init(w, 2);
    world_open(w);
    for (int64_t step = 1; step <= 2; step++) assert_int_equal(world_step(w, step, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(w, 3, nan_on_rank_1, NULL), FB_SKIP);
}

static fb_report *load(const world *w)
{
    char folder[128];
    fb_report *report = NULL;
    fb_error err;
    (void)snprintf(folder, sizeof folder, "%s/test", w->dir);
    if (fb_report_load(fb_os_posix(), folder, &report, &err) != FB_OK) fail_msg("%s", err.message);
    assert_true(report->first != UINT64_MAX);
    return report;
}

static int says(const fb_notes *notes, const char *what)
{
    for (uint32_t i = 0; i < notes->count; i++) {
        if (strstr(notes->text[i], what)) return 1;
    }
    return 0;
}

/* Does any of the two renderings hold this? */
static int shows(const fb_report *report, const char *what)
{
    fb_json json;
    char *text;
    int found;
    assert_int_equal(fb_report_why_text(report, 1000, 0, &text, NULL), FB_OK);
    found = strstr(text, what) != NULL;
    fb_free(text);
    fb_json_init(&json, 1);
    fb_report_why_json(report, &json);
    assert_int_equal(fb_json_finish(&json, NULL), FB_OK);
    found |= strstr(fb_json_text(&json), what) != NULL;
    fb_json_release(&json);
    return found;
}

/* Loads what one file makes of the case; release both. */
static fb_report *with(world *w, const told_text *t)
{
    begin(w);
    write_told(w, ".", t);
    return load(w);
}

static void end(world *w, fb_report *report)
{
    fb_report_free(report);
    world_close(w);
}

static void test_located__an_operator_with_a_whole_chain_is_named(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report = with(&w, &t);
    (void)state;
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    assert_true(shows(report, "h.1.attn softmax"));
    assert_true(shows(report, "\"operator\": \"softmax\""));
    assert_true(shows(report, "\"source\": \"model.c:88\""));
    assert_true(shows(report, "mask_full_row: a full row"));
    assert_true(shows(report, "leave out sample 71"));
    assert_int_equal(report->notes.count, 0);
    end(&w, report);
}

static void expect_no_name(const told_text *t)
{
    world w;
    fb_report *report = with(&w, t);
    assert_true(report->located->count == 0 || report->located->found == FB_LOCATED_UNDECIDED);
    assert_false(shows(report, "softmax"));
    assert_false(shows(report, "h.1.attn"));
    assert_false(shows(report, "mask_full_row"));
    assert_false(shows(report, "sample 71"));
    end(&w, report);
}

static void test_located__a_chain_with_a_gap_names_nothing(void **state)
{
    told_text t = usual();
    (void)state;
    t.chain[1] = link_text(1, "\"matmul\"", "h.1.attn", "y", "forward", "propagate", "8", "6"); /* reads what nobody made */
    expect_no_name(&t);
}

static void test_located__a_chain_that_does_not_reach_the_finding_names_nothing(void **state)
{
    told_text t = usual();
    (void)state;
    t.chain[2] = link_text(2, "\"linear_backward\"", "h.1.mlp", "w", "local_gradient", "propagate", "10", "8");
    expect_no_name(&t);
}

static void test_located__a_chain_that_begins_elsewhere_names_nothing(void **state)
{
    told_text t = usual();
    (void)state;
    t.chain[0] = link_text(0, "\"exp\"", "h.1.attn", "p", "forward", "generate", "7", "null");
    expect_no_name(&t);
}

static void test_located__an_origin_that_read_something_bad_names_nothing(void **state)
{
    told_text t = usual();
    (void)state;
    t.chain[0] = link_text(0, "\"softmax\"", "h.1.attn", "p", "forward", "propagate", "7", "6");
    expect_no_name(&t);
}

static void test_located__a_name_without_a_location_names_nothing(void **state)
{
    told_text t = usual();
    (void)state;
    t.location = "null";
    expect_no_name(&t);
}

static void test_located__a_set_needs_members_that_read_nothing_bad(void **state)
{
    char members[1200];
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    t.found = "\"set\"";
    t.location = "null";
    (void)snprintf(members, sizeof members, "[%s, %s]", t.chain[0],
                   link_text(3, "\"log\"", "h.0.mlp", "z", "forward", "generate", "5", "null"));
    t.candidates = members;
    report = with(&w, &t);
    assert_int_equal(report->located->found, FB_LOCATED_SET);
    assert_true(shows(report, "2 operators made it, and none of them comes after another: h.1.attn softmax and h.0.mlp log"));
    end(&w, report);
    (void)snprintf(members, sizeof members, "[%s, %s]", t.chain[0],
                   link_text(3, "\"log\"", "h.0.mlp", "z", "forward", "generate", "5", "4"));
    expect_no_name(&t);
}

/* A note says why, and the answer is as if nobody had replayed. */
static void expect_unused(const told_text *t, const char *note)
{
    world w;
    fb_report *report = with(&w, t);
    if (!says(&report->notes, note)) fail_msg("no note says '%s'", note);
    assert_int_equal(report->located->count, 0);
    assert_true(shows(report, "not attempted"));
    end(&w, report);
    expect_no_name(t);
}

static void test_located__a_file_of_another_run_is_not_used(void **state)
{
    told_text t = usual();
    (void)state;
    t.run_id = "\"other\"";
    expect_unused(&t, "locate.json is of run other");
}

static void test_located__a_file_of_another_case_is_not_used(void **state)
{
    told_text t = usual();
    (void)state;
    t.case_id = "\"a1-000004\"";
    expect_unused(&t, "locate.json is of case a1-000004");
}

static void test_located__a_file_that_explains_another_finding_is_not_used(void **state)
{
    static const char *const others[] = {
        "{\"rank\": 0, \"boundary\": \"local_gradient\", \"module\": \"h.1.mlp\", \"tensor\": \"w\", \"micro_step\": 0, "
        "\"kind\": \"nan\", \"tensor_id\": 9}",
        "{\"rank\": 1, \"boundary\": \"forward\", \"module\": \"h.1.mlp\", \"tensor\": \"w\", \"micro_step\": 0, \"kind\": "
        "\"nan\", "
        "\"tensor_id\": 9}",
        "{\"rank\": 1, \"boundary\": \"local_gradient\", \"module\": \"h.0.mlp\", \"tensor\": \"w\", \"micro_step\": 0, "
        "\"kind\": \"nan\", \"tensor_id\": 9}",
        "{\"rank\": 1, \"boundary\": \"local_gradient\", \"module\": \"h.1.mlp\", \"tensor\": \"b\", \"micro_step\": 0, "
        "\"kind\": \"nan\", \"tensor_id\": 9}",
        "{\"rank\": 1, \"boundary\": \"local_gradient\", \"module\": \"h.1.mlp\", \"tensor\": \"w\", \"micro_step\": 1, "
        "\"kind\": \"nan\", \"tensor_id\": 9}",
        "{\"rank\": 1, \"boundary\": \"local_gradient\", \"module\": \"h.1.mlp\", \"tensor\": \"w\", \"micro_step\": 0, "
        "\"kind\": \"+inf\", \"tensor_id\": 9}",
    };
    told_text t = usual();
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        t.finding = others[i];
        expect_unused(&t, "explains another finding");
    }
    t = usual();
    t.step = "4";
    expect_unused(&t, "explains another finding");
}

static void test_located__a_torn_or_foreign_file_costs_a_note(void **state)
{
    static const char *const texts[] = {"", "{\"schema\": \"firstbad.locate/1\", \"step\": 3, \"fou", "[1, 2]",
                                        "{\"schema\": \"firstbad.locate/9\"}", "\xff\xfe"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        world w;
        fb_report *report;
        begin(&w);
        write_text(&w, ".", texts[i]);
        report = load(&w);
        assert_true(says(&report->notes, "locate.json was not used"));
        assert_int_equal(report->located->count, 0);
        assert_true(shows(report, "It was not replayed"));
        end(&w, report);
    }
}

static void test_located__the_newest_replay_counts_and_the_most_exact_place_wins(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    begin(&w);
    write_told(&w, ".", &t);
    t.found = "\"not_reproduced\"";
    t.location = "null";
    t.replay =
        "{\"attempts\": 5, \"reproduced\": 0, \"faithful\": false, \"differences\": [\"4 ranks became 1\"], \"other_ranks\": "
        "{\"tried\": 0, \"bad\": 0}, \"persists_fp32\": null}";
    t.run_id = t.case_id = "null";
    write_told(&w, "replays/002", &t);
    write_told(&w, "replays/x", &t); /* no number: not ours */
    report = load(&w);
    assert_int_equal(report->located->count, 2);
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    assert_string_equal(report->located->place->from, "locate.json");
    assert_string_equal(report->located->replay->from, "locate.json");
    assert_true(shows(report, "3 of 3, faithful; in FP32 as well; on the other rank too, so it is not the device\n"));
    assert_true(shows(report, "apart from it replays/002, 0 of 5, not faithful: 4 ranks became 1\n"));
    fb_report_free(report);
    t.replay = "{\"attempts\": 4, \"reproduced\": 4, \"faithful\": true, \"differences\": [], \"other_ranks\": {\"tried\": 0, "
               "\"bad\": 0}, \"persists_fp32\": null}";
    write_told(&w, "replays/003", &t);
    report = load(&w);
    assert_string_equal(report->located->replay->from, "replays/003/locate.json");
    assert_true(shows(report, "4 of 4, faithful; in FP32 as well (told by locate.json); on the other rank too, so it is not the "
                              "device (told by locate.json); told by replays/003; when the case was opened 3 of 3\n"));
    assert_false(shows(report, "apart from it")); /* older, and it knows nothing that the others do not */
    end(&w, report);
}

/* One of another build in another format tells of that one, and of nothing else. */
static void test_located__facts_of_a_replay_that_differed_stay_with_its_differences(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    begin(&w);
    t.replay = "{\"attempts\": 3, \"reproduced\": 3, \"faithful\": true, \"differences\": [], \"other_ranks\": {\"tried\": 0, "
               "\"bad\": 0}, \"persists_fp32\": null}";
    t.minimise = "null";
    write_told(&w, ".", &t);
    t.minimise = usual().minimise;
    t.replay = "{\"attempts\": 2, \"reproduced\": 1, \"faithful\": false, \"differences\": [\"another build\"], \"other_ranks\": "
               "{\"tried\": 2, \"bad\": 2}, \"persists_fp32\": true}";
    write_told(&w, "replays/001", &t);
    t.minimise = "null";
    t.replay = "{\"attempts\": 6, \"reproduced\": 6, \"faithful\": true, \"differences\": [], \"other_ranks\": {\"tried\": 0, "
               "\"bad\": 0}, \"persists_fp32\": null}";
    write_told(&w, "replays/002", &t);
    report = load(&w);
    assert_string_equal(report->located->place->from, "replays/002/locate.json");
    assert_null(report->located->precision);
    assert_null(report->located->others);
    assert_true(shows(report, "6 of 6, faithful; told by replays/002; when the case was opened 3 of 3\n"));
    assert_true(shows(report,
                      "apart from it replays/001, 1 of 2, not faithful: another build; in FP32 as well; on all 2 other ranks "
                      "too, so it is not the device\n"));
    assert_true(shows(report, "4 tokens; told by replays/001, which was not faithful"));
    assert_true(shows(report, "\"persists_fp32_from\": null"));
    assert_true(shows(report, "All 6 replays showed it again.")); /* and not: one sample is enough */
    end(&w, report);
}

/* It did something else than the run, so what it found there is no contradiction. */
static void test_located__a_replay_that_differed_does_not_contradict_a_faithful_one(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    begin(&w);
    write_told(&w, ".", &t);
    t.location = "{\"boundary\": \"forward\", \"micro_step\": 0, \"rank\": 1, \"module\": \"h.0.mlp\", \"operator\": \"log\", "
                 "\"tensor\": \"p\", \"source\": null, \"index\": [], \"shape\": [], \"dtype\": null, \"kind\": \"nan\", \"bad\": "
                 "null, \"elements\": null}";
    t.chain[0] = link_text(0, "\"log\"", "h.0.mlp", "p", "forward", "generate", "7", "null");
    t.replay = "{\"attempts\": 2, \"reproduced\": 2, \"faithful\": false, \"differences\": [\"another build\"], \"other_ranks\": "
               "{\"tried\": 0, \"bad\": 0}, \"persists_fp32\": null}";
    write_told(&w, "replays/001", &t);
    report = load(&w);
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    assert_string_equal(report->located->place->from, "locate.json");
    assert_false(shows(report, "h.0.mlp log"));
    assert_true(says(&report->notes, "replays/001/locate.json, which was not faithful, tells another place than locate.json"));
    end(&w, report);
}

/* Known only from one that differed: then that is said where the place is said. */
static void test_located__a_place_of_a_replay_that_differed_says_so(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    begin(&w);
    t.replay = "{\"attempts\": 2, \"reproduced\": 2, \"faithful\": false, \"differences\": [\"another build\"], \"other_ranks\": "
               "{\"tried\": 0, \"bad\": 0}, \"persists_fp32\": null}";
    write_told(&w, "replays/001", &t);
    t.found = "\"undecided\"";
    t.replay = usual().replay;
    write_told(&w, "replays/002", &t);
    report = load(&w);
    assert_true(shows(report, "carried it on to the finding (replays/001/locate.json, not faithful: another build)"));
    end(&w, report);
}

static void test_located__what_may_have_failed_too_is_one_line(void **state)
{
    char text[2000];
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    (void)snprintf(text, sizeof text, "[], \"later\": [%s, %s]",
                   link_text(3, "\"softmax\"", "h.2.attn", "p", "forward", "generate", "5", "null"),
                   link_text(4, "\"log\"", "h.2.mlp", "z", "forward", "generate", "6", "null"));
    t.candidates = text;
    report = with(&w, &t);
    assert_true(shows(report, "later, too: h.2.attn softmax, h.2.mlp log\n"));
    end(&w, report);
}

static void move_case(const world *w, const char *to, const char *run_to)
{
    char from[512], path[512];
    (void)snprintf(from, sizeof from, "%s/test/cases/a1-000003", w->dir);
    (void)snprintf(path, sizeof path, "%s/test/cases/%s", w->dir, to);
    assert_int_equal(rename(from, path), 0);
    if (!run_to) return;
    (void)snprintf(from, sizeof from, "%s/test", w->dir);
    (void)snprintf(path, sizeof path, "%s/%s", w->dir, run_to);
    assert_int_equal(rename(from, path), 0);
}

/* What is in it says what it is of, and so do results; those of a trainer that knows only the folder name the folder. */
static void test_located__a_case_folder_that_was_renamed_is_found(void **state)
{
    told_text t = usual();
    char folder[512];
    world w;
    fb_report *report = NULL;
    fb_report_target target;
    (void)state;
    begin(&w);
    write_told(&w, ".", &t);
    t.run_id = "\"kept\"";
    t.case_id = "\"softmax\"";
    write_told(&w, "replays/001", &t);
    t.case_id = "\"a1-000007\"";
    write_told(&w, "replays/002", &t);
    move_case(&w, "softmax", "kept");
    (void)snprintf(folder, sizeof folder, "%s/kept/cases/softmax", w.dir);
    assert_int_equal(fb_report_find(fb_os_posix(), w.dir, folder, &target, NULL), FB_OK);
    assert_true(target.attempt == 1 && target.step == 3);
    assert_int_equal(fb_report_load_target(fb_os_posix(), &target, &report, NULL), FB_OK);
    assert_string_equal(report->case_folder, folder);
    assert_int_equal(report->rebuilt, 0);
    assert_true(says(&report->notes, "the folder of case a1-000003 bears the name softmax now"));
    assert_true(says(&report->notes, "replays/002/locate.json is of case a1-000007"));
    assert_int_equal(report->located->count, 2);
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    end(&w, report);
}

static void test_located__a_folder_of_another_case_or_run_does_not_stand_in(void **state)
{
    static const char *const others[] = {"{\"run_id\": \"other\", \"case\": \"a1-000003\"}",
                                         "{\"run_id\": \"test\", \"case\": \"a1-000004\"}", "[]", "{\"case\": 3}", "{\"case\""};
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char path[512];
        world w;
        FILE *file;
        fb_report *report;
        begin(&w);
        move_case(&w, "b", NULL);
        (void)snprintf(path, sizeof path, "%s/test/cases/b/first_bad.json", w.dir);
        file = fopen(path, "wb");
        assert_non_null(file);
        assert_true(fputs(others[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
        report = load(&w);
        assert_string_equal(report->case_folder, "");
        assert_int_equal(report->rebuilt, 1);
        end(&w, report);
    }
}

static void test_located__a_later_search_may_be_more_exact(void **state)
{
    told_text t = usual(), wide = usual();
    char one[600];
    world w;
    fb_report *report;
    (void)state;
    begin(&w);
    wide.found = "\"interval\"";
    wide.location = "null";
    (void)snprintf(one, sizeof one, "[%s]", wide.chain[0]);
    wide.candidates = one;
    write_told(&w, ".", &wide);
    report = load(&w);
    assert_int_equal(report->located->found, FB_LOCATED_INTERVAL);
    assert_true(shows(report, "perhaps h.1.attn softmax, which was not shown"));
    fb_report_free(report);
    write_told(&w, "replays/001", &t);
    report = load(&w);
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    assert_string_equal(report->located->place->from, "replays/001/locate.json");
    end(&w, report);
}

static void test_located__two_proven_places_are_no_place(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    begin(&w);
    write_told(&w, ".", &t);
    t.location = "{\"boundary\": \"forward\", \"micro_step\": 0, \"rank\": 1, \"module\": \"h.0.mlp\", \"operator\": \"log\", "
                 "\"tensor\": \"p\", \"source\": null, \"index\": [], \"shape\": [], \"dtype\": null, \"kind\": \"nan\", \"bad\": "
                 "null, \"elements\": null}";
    t.chain[0] = link_text(0, "\"log\"", "h.0.mlp", "p", "forward", "generate", "7", "null");
    write_told(&w, "replays/001", &t);
    report = load(&w);
    assert_int_equal(report->located->found, FB_LOCATED_NOT_STEADY);
    assert_false(shows(report, "softmax"));
    assert_false(shows(report, "h.0.mlp log"));
    assert_true(shows(report, "tell different places"));
    end(&w, report);
}

static void unknown_token(world *w, int rank, int micro, void *ctx)
{
    (void)micro;
    (void)ctx;
    if (rank != 1) return;
    w->rank[1].tokens[3] = 70000;
    w->rank[1].loss = world_bits(0x7fc00000u);
}

/* A token that does not exist is no NaN: the replay follows the loss that came of it. */
static void test_located__what_came_of_a_bad_batch_belongs_to_the_batch(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    t.finding = "{\"rank\": 1, \"boundary\": \"loss\", \"module\": \"\", \"tensor\": \"loss\", \"micro_step\": 0, \"kind\": "
                "\"out_of_range\", \"tensor_id\": 9}";
    world_init(&w, 2);
    world_open(&w);
    for (int64_t step = 1; step <= 2; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 3, unknown_token, NULL), FB_SKIP);
    write_told(&w, ".", &t);
    report = load(&w);
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    assert_true(shows(report, "found as: rank 1, loss, loss, NaN"));
    assert_true(shows(report, "before it, in the batch: rank 1, input, tokens, tokens: 1"));
    assert_true(shows(report, "\"operator\": \"softmax\""));
    fb_report_free(report);
    t.finding = "{\"rank\": 0, \"boundary\": \"loss\", \"module\": \"\", \"tensor\": \"loss\", \"micro_step\": 0, \"kind\": "
                "\"out_of_range\", \"tensor_id\": 9}"; /* of another rank's batch */
    write_told(&w, ".", &t);
    report = load(&w);
    assert_int_equal(report->located->count, 0);
    end(&w, report);
}

/* A state that was bad on entry was made by an update before: that one may be what was replayed. */
static void test_located__an_update_before_may_be_what_made_a_bad_state(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    t.step = "2";
    t.finding = "{\"rank\": 0, \"boundary\": \"update\", \"module\": \"h.1.mlp\", \"tensor\": \"w\", \"micro_step\": 0, "
                "\"kind\": \"nan\", \"tensor_id\": 9}";
    world_init(&w, 2);
    w.entry_at = 3;
    world_open(&w);
    for (int64_t step = 1; step <= 2; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    for (int i = 0; i < 2; i++) w.rank[i].param[1][2] = world_bits(0x7fc00000u);
    assert_int_not_equal(world_step(&w, 3, NULL, NULL), FB_PROCEED);
    write_told(&w, ".", &t);
    report = load(&w);
    assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
    assert_true(shows(report, "1 First bad     step 2, rank 1, forward, h.1.attn softmax"));
    assert_true(shows(report, "found as: step 3, rank 0, state on entry"));
    assert_true(shows(report, "and at step 3 it was found in h.1.mlp w"));
    fb_report_free(report);
    t.step = "4"; /* after it: no cause of it */
    write_told(&w, ".", &t);
    report = load(&w);
    assert_int_equal(report->located->count, 0);
    end(&w, report);
}

/* The run can replay only the step in which it stops, and that began with what the update before had left. */
static void test_located__a_step_that_began_with_a_bad_state_is_no_other_finding(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    char path[128];
    (void)state;
    t.case_id = "null";
    t.step = "4";
    t.found = "\"entry\"";
    t.finding = "{\"rank\": 1, \"boundary\": \"entry_state\", \"module\": \"h.0.mlp\", \"tensor\": \"w\", \"micro_step\": 0, "
                "\"kind\": \"+inf\", \"tensor_id\": 9}";
    t.location = "null";
    world_init(&w, 2);
    w.overflow_at = 3;
    world_open(&w);
    for (int64_t step = 1; step <= 3; step++) assert_int_equal(world_step(&w, step, NULL, NULL), FB_PROCEED);
    assert_int_equal(world_step(&w, 4, NULL, NULL), FB_SKIP);
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000003", w.dir);
    assert_int_equal(symlink("a1-000004", path), 0); /* write_told writes there */
    write_told(&w, ".", &t);
    assert_int_equal(unlink(path), 0);
    report = load(&w);
    assert_int_equal(report->step, 3);
    assert_int_equal(report->findings[report->first].rec.boundary, FB_UPDATE);
    assert_int_equal(report->located->count, 0);
    assert_true(says(&report->notes, "locate.json tells of step 4, which began with what the update of step 3 had left"));
    assert_false(says(&report->notes, "another finding"));
    end(&w, report);
}

/* What the run noted stands in for a file that is lost, and is called what it is: not proven any more. */
static void test_located__a_lost_file_leaves_what_the_run_noted(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    fb_error err;
    (void)state;
    begin(&w);
    assert_int_equal(fb_run_note_located(w.rank[1].run, "a1-000003", "softmax of h.1.attn made it", &err), FB_OK);
    assert_int_equal(fb_run_note_located(w.rank[1].run, "a1-000001", "log of h.0.mlp made it", &err), FB_OK);
    report = load(&w);
    assert_true(shows(report, "its locate.json is not there to prove it: softmax of h.1.attn made it"));
    assert_false(shows(report, "log of"));
    assert_false(shows(report, "\"operator\": \"softmax\""));
    fb_report_free(report);
    write_told(&w, ".", &t);
    report = load(&w);
    assert_false(shows(report, "to prove it"));
    end(&w, report);
}

static void test_located__samples_are_left_out_only_where_the_cause_is_in_the_data(void **state)
{
    told_text t = usual();
    world w;
    fb_report *report;
    (void)state;
    t.cause = "{\"class\": \"overflow\", \"rule\": \"range\", \"lies_in\": \"numbers\", \"certain\": true, \"explanation\": \"too "
              "large\", \"witness\": \"w\", \"fix\": \"f\", \"verify\": \"v\", \"value\": 7e38, \"limit\": 3e38, \"format\": "
              "\"f32\", \"format_needed\": null, \"row\": null, \"sample\": 0, \"sample_id\": 71}";
    report = with(&w, &t);
    assert_true(shows(report, "leave out no sample: the cause lies in the number format or a scale, not in the batch"));
    assert_true(shows(report, "smallest batch: 1 sample (71) of 2"));
    assert_false(shows(report, "--leave-out"));
    end(&w, report);
}

/* ---- the bundle -------------------------------------------------------------------------------------------------------------- */

static void write_bundle(const world *w, int64_t step, uint64_t bytes_max, int seal)
{
    fb_bundle_config config = FB_BUNDLE_CONFIG_INIT;
    fb_bundle_writer *writer;
    const int64_t shape[1] = {64};
    int64_t ids[64] = {71};
    char path[512];
    fb_error err;
    fb_status put;
    (void)snprintf(path, sizeof path, "%s/test/cases/a1-000003/bundle", w->dir);
    config.folder = path;
    config.run_id = "test";
    config.case_id = "a1-000003";
    config.step = step;
    config.bytes_max = bytes_max;
    assert_int_equal(fb_bundle_create(&writer, &config, &err), FB_OK);
    put = fb_bundle_put(writer, FB_BUNDLE_BATCH, "sample_ids", FB_I64, 1, shape, ids, &err);
    assert_int_equal(put, bytes_max && bytes_max < sizeof ids ? FB_E_LIMIT : FB_OK);
    assert_int_equal(fb_bundle_finish(writer, &err), FB_OK);
    if (seal) assert_int_equal(fb_bundle_seal(path, 1, &err), FB_OK);
}

static void expect_bundle(int64_t step, uint64_t bytes_max, int seal, int spoil, const char *words, int replayable)
{
    told_text t = usual();
    world w;
    fb_report *report;
    begin(&w);
    write_told(&w, ".", &t);
    write_bundle(&w, step, bytes_max, seal);
    if (spoil) {
        char path[512];
        FILE *file;
        (void)snprintf(path, sizeof path, "%s/test/cases/a1-000003/bundle/batch-r00000.safetensors", w.dir);
        file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, -3, SEEK_END), 0);
        assert_int_equal(fputc('x', file), 'x');
        assert_int_equal(fclose(file), 0);
    }
    report = load(&w);
    if (!shows(report, words)) fail_msg("the bundle is not told as: %s", words);
    assert_int_equal(shows(report, "; firstbad replay a1-000003"), replayable);
    end(&w, report);
}

static void test_located__a_bundle_is_called_unchanged_only_after_it_was_read(void **state)
{
    (void)state;
    expect_bundle(3, 0, 1, 0, "bundle sealed and unchanged", 1);
    expect_bundle(3, 0, 0, 0, "the bundle was never sealed, so it cannot be replayed", 0);
    expect_bundle(3, 0, 1, 1, "bundle refused: ", 0);
    expect_bundle(3, 0, 1, 1, "batch-r00000.safetensors", 0);
    expect_bundle(4, 0, 1, 0, "bundle refused: it is of step 4", 0);
    expect_bundle(3, 100, 1, 0, "1 tensor was too large and left out", 1);
}

/* ---- a system that fails ----------------------------------------------------------------------------------------------------- */

static void fail_every_allocation(const char *case_name)
{
    told_text t = usual();
    char folder[128];
    world w;
    uint64_t k;
    begin(&w);
    write_told(&w, ".", &t);
    write_told(&w, "replays/001", &t);
    write_bundle(&w, 3, 0, 1);
    if (case_name) move_case(&w, case_name, NULL);
    (void)snprintf(folder, sizeof folder, "%s/test", w.dir);
    for (k = 1; k < 5000; k++) {
        fb_report *report = NULL;
        fb_error err;
        fb_status status;
        uint64_t requests;
        fb_alloc_fail_at(k, 0);
        status = fb_report_load(fb_os_posix(), folder, &report, &err);
        requests = fb_alloc_requests();
        fb_alloc_fail_at(0, 0);
        if (status != FB_OK) assert_int_equal(status, FB_E_NOMEM);
        else assert_true(report->case_folder[0]); /* a folder that is there is never called gone */
        fb_report_free(report);
        if (requests < k) break;
    }
    assert_true(k > 30 && k < 5000);
    world_close(&w);
}

static void test_located__every_failing_allocation_is_told_or_survived(void **state)
{
    (void)state;
    fail_every_allocation(NULL);
    fail_every_allocation("renamed");
}

static uint64_t system_calls, fail_call;

static int must_fail(void)
{
    return ++system_calls == fail_call;
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

static int64_t failing_list(void *ctx, const char *path, fb_os_list_fn fn, void *arg)
{
    return must_fail() ? -EACCES : fb_os_posix()->list(ctx, path, fn, arg);
}

/* One call fails: what is told is then less, never something else. */
static void test_located__a_failing_system_tells_less_and_nothing_else(void **state)
{
    told_text t = usual();
    fb_os os = *fb_os_posix();
    char folder[128];
    world w;
    uint64_t named = 0, unnamed = 0;
    (void)state;
    os.open = failing_open;
    os.read = failing_read;
    os.pread = failing_pread;
    os.fstat = failing_fstat;
    os.list = failing_list;
    begin(&w);
    write_told(&w, ".", &t);
    write_bundle(&w, 3, 0, 1);
    (void)snprintf(folder, sizeof folder, "%s/test", w.dir);
    for (fail_call = 1; fail_call < 5000; fail_call++) {
        fb_report *report = NULL;
        fb_error err;
        system_calls = 0;
        if (fb_report_load(&os, folder, &report, &err) == FB_OK && report->located) {
            int32_t bundle = report->located->bundle.state;
            if (report->located->count) assert_int_equal(report->located->found, FB_LOCATED_OPERATOR);
            else assert_int_equal(report->located->found, FB_LOCATED_NOTHING);
            assert_true(bundle == FB_BUNDLE_SEALED || bundle == FB_BUNDLE_UNKNOWN || bundle == FB_BUNDLE_REFUSED);
            named += report->located->count;
            unnamed += !report->located->count;
        }
        fb_report_free(report);
        if (system_calls < fail_call) break;
    }
    assert_true(fail_call > 30 && fail_call < 5000 && named > 10 && unnamed > 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_located__an_operator_with_a_whole_chain_is_named),
        cmocka_unit_test(test_located__a_chain_with_a_gap_names_nothing),
        cmocka_unit_test(test_located__a_chain_that_does_not_reach_the_finding_names_nothing),
        cmocka_unit_test(test_located__a_chain_that_begins_elsewhere_names_nothing),
        cmocka_unit_test(test_located__an_origin_that_read_something_bad_names_nothing),
        cmocka_unit_test(test_located__a_name_without_a_location_names_nothing),
        cmocka_unit_test(test_located__a_set_needs_members_that_read_nothing_bad),
        cmocka_unit_test(test_located__a_file_of_another_run_is_not_used),
        cmocka_unit_test(test_located__a_file_of_another_case_is_not_used),
        cmocka_unit_test(test_located__a_file_that_explains_another_finding_is_not_used),
        cmocka_unit_test(test_located__a_torn_or_foreign_file_costs_a_note),
        cmocka_unit_test(test_located__the_newest_replay_counts_and_the_most_exact_place_wins),
        cmocka_unit_test(test_located__facts_of_a_replay_that_differed_stay_with_its_differences),
        cmocka_unit_test(test_located__a_replay_that_differed_does_not_contradict_a_faithful_one),
        cmocka_unit_test(test_located__a_place_of_a_replay_that_differed_says_so),
        cmocka_unit_test(test_located__what_may_have_failed_too_is_one_line),
        cmocka_unit_test(test_located__a_case_folder_that_was_renamed_is_found),
        cmocka_unit_test(test_located__a_folder_of_another_case_or_run_does_not_stand_in),
        cmocka_unit_test(test_located__a_later_search_may_be_more_exact),
        cmocka_unit_test(test_located__two_proven_places_are_no_place),
        cmocka_unit_test(test_located__what_came_of_a_bad_batch_belongs_to_the_batch),
        cmocka_unit_test(test_located__an_update_before_may_be_what_made_a_bad_state),
        cmocka_unit_test(test_located__a_step_that_began_with_a_bad_state_is_no_other_finding),
        cmocka_unit_test(test_located__a_lost_file_leaves_what_the_run_noted),
        cmocka_unit_test(test_located__samples_are_left_out_only_where_the_cause_is_in_the_data),
        cmocka_unit_test(test_located__a_bundle_is_called_unchanged_only_after_it_was_read),
        cmocka_unit_test(test_located__every_failing_allocation_is_told_or_survived),
        cmocka_unit_test(test_located__a_failing_system_tells_less_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
