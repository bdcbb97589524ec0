/*
 * Loading a run folder: which attempts, ledgers and cases there are; a survey of the ledgers that finds the bad steps; the choice
 * of one; a closer look at it; judgement. With a case folder the survey of a very large run reads the ledgers that matter and the
 * heads of the others; a small run is read whole.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "registry/registry.h"
#include "report/inside.h"

/*
 * Appended bytes that are read over all ledgers before the others are read by their heads alone. With a case folder: seconds, on
 * any disk. Without one the question is whether the run was clean, which only a ledger that was read can answer; so nearly
 * everything is read, and what is not makes the answer "undecided".
 */
#define READ_BYTES_MAX (UINT64_C(1) << 30)
#define READ_BYTES_MAX_CLEAN ((uint64_t)FB_REPORT_READ_GIB_MAX << 30)
enum { FIXED_BYTES = 143360 }; /* a ledger before its first appended record (docs/format/ledger.md) */

const char *fb_why_status_name(int32_t status)
{
    return status == FB_WHY_CLEAN ? "clean" : status == FB_WHY_CASE ? "case" : "undecided";
}

/* ---- what is there ----------------------------------------------------------------------------------------------------------- */

typedef struct attempts {
    int32_t newest, count, below; /* below: only attempts up to this one */
} attempts;

static int64_t visit_attempt(void *arg, const char *name)
{
    attempts *found = arg;
    int64_t number = fb_numbered_name(name, "a", "", 1);
    if (number < 1) return 0;
    found->count++;
    if (number > found->newest && number <= found->below) found->newest = (int32_t)number;
    return 0;
}

typedef struct cases {
    fb_report *report;
    int32_t attempt;        /* whose cases go into the table; 0: none */
    int32_t newest_attempt; /* of any case */
    uint64_t count;
} cases;

static int64_t visit_case(void *arg, const char *name)
{
    cases *found = arg;
    int32_t attempt;
    int64_t step;
    fb_report_bad_step *entry;
    if (!fb_case_id_parse(name, strlen(name), &attempt, &step) || ++found->count > FB_REPORT_CASES_MAX) return 0;
    if (attempt > found->newest_attempt) found->newest_attempt = attempt;
    if (attempt != found->attempt) return 0;
    entry = fb_bad_step(found->report, step);
    if (entry) {
        entry->folder = 1;
        entry->case_step = step;
    }
    return 0;
}

static fb_status list_cases(const fb_os *os, fb_report *report, cases *found, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_status status = fb_os_join(path, sizeof path, report->folder, "cases", err);
    fb_error why;
    int64_t listed;
    if (status != FB_OK) return status;
    listed = os->list(os->ctx, path, visit_case, found);
    if (listed < 0 && listed != -ENOENT && found->attempt) { /* asked twice, told once */
        (void)fb_fail_os(&why, (int)-listed, "the folder of cases cannot be listed");
        fb_notes_add(&report->notes, "%s", why.message);
    }
    return FB_OK;
}

/* The attempt that was asked for, or the newest; the newest with a case where the newest has none. */
static fb_status choose_attempt(const fb_os *os, fb_report *report, int32_t wanted, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    attempts found = {0, 0, INT32_MAX};
    cases with_case = {report, 0, 0, 0};
    int64_t listed;
    fb_status status = fb_os_join(path, sizeof path, report->folder, "ledger", err);
    if (status != FB_OK) return status;
    listed = os->list(os->ctx, path, visit_attempt, &found);
    if (listed < 0 && listed != -ENOENT) return fb_fail_os(err, (int)-listed, "list %s", path);
    if ((status = list_cases(os, report, &with_case, err)) != FB_OK) return status;
    report->attempts = found.count;
    report->newest_attempt = found.newest > with_case.newest_attempt ? found.newest : with_case.newest_attempt;
    if (report->newest_attempt == 0) {
        return fb_fail(err, FB_E_NOTFOUND,
                       "load run %s: neither a ledger nor a case is there; was the job started with firstbad run?", report->folder);
    }
    if (wanted > report->newest_attempt) {
        return fb_fail(err, FB_E_NOTFOUND, "load run %s: attempt %d is not there, the newest is %d", report->folder, wanted,
                       report->newest_attempt);
    }
    report->attempt = wanted > 0 ? wanted : with_case.newest_attempt ? with_case.newest_attempt : report->newest_attempt;
    if (wanted == 0 && report->attempt < report->newest_attempt) {
        fb_notes_add(&report->notes, "attempt %d is newer and has no case: firstbad why --attempt %d", report->newest_attempt,
                     report->newest_attempt);
    }
    return FB_OK;
}

typedef struct ledgers {
    fb_report *report;
    uint64_t room;
    fb_error *err;
} ledgers;

static int64_t visit_ledger(void *arg, const char *name)
{
    ledgers *found = arg;
    fb_report *report = found->report;
    int64_t rank = fb_numbered_name(name, "r", ".log", 5);
    fb_report_rank *entry;
    void *array = report->ranks;
    if (rank < 0 || rank >= FB_REPORT_RANKS_MAX) return 0;
    if (fb_grow(&array, report->rank_count, &found->room, sizeof *entry, found->err) != FB_OK) return 1;
    report->ranks = array;
    entry = &report->ranks[report->rank_count++];
    memset(entry, 0, sizeof *entry);
    entry->rank = (int32_t)rank;
    entry->action = -1;
    entry->first_rank = -1;
    entry->first_step = entry->last_step = entry->last_good_step = entry->last_gated_step = entry->state_since =
        entry->replicas_step = entry->update_step = entry->parted_step = -1;
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    int32_t x = ((const fb_report_rank *)a)->rank, y = ((const fb_report_rank *)b)->rank;
    return (x > y) - (x < y);
}

static fb_status list_ledgers(const fb_os *os, fb_report *report, fb_error *err)
{
    char path[FB_OS_PATH_MAX], name[32];
    ledgers found = {report, 0, err};
    fb_error why;
    fb_status status;
    int64_t listed;
    (void)snprintf(name, sizeof name, "ledger/a%d", report->attempt);
    if ((status = fb_os_join(path, sizeof path, report->folder, name, err)) != FB_OK) return status;
    listed = os->list(os->ctx, path, visit_ledger, &found);
    if (listed > 0) return FB_E_NOMEM;
    if (listed < 0 && listed != -ENOENT) {
        (void)fb_fail_os(&why, (int)-listed, "the ledgers of attempt %d cannot be listed", report->attempt);
        fb_notes_add(&report->undecided, "%s", why.message);
        report->unlisted = 1;
    }
    if (report->rank_count) qsort(report->ranks, (size_t)report->rank_count, sizeof *report->ranks, by_rank);
    return FB_OK;
}

/* ---- reading ledgers --------------------------------------------------------------------------------------------------------- */

static fb_status ledger_path(const fb_report *report, int32_t rank, char path[FB_OS_PATH_MAX], fb_error *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, "ledger/a%d/r%05d.log", report->attempt, rank);
    return fb_os_join(path, FB_OS_PATH_MAX, report->folder, name, err);
}

static fb_status visit_rank(const fb_os *os, fb_report *report, fb_report_rank *rank, int what, int detail, fb_error *err)
{
    fb_ledger_reading reading;
    char path[FB_OS_PATH_MAX];
    fb_error why;
    fb_status status = ledger_path(report, rank->rank, path, err);
    if (status != FB_OK) return status;
    memset(&reading, 0, sizeof reading);
    reading.report = report;
    reading.rank = rank;
    reading.detail = detail;
    status = fb_ledger_visit(os, path, what, fb_ledger_record, &reading, rank, &why);
    if (reading.status != FB_OK) {
        if (err) *err = reading.err;
        return reading.status;
    }
    if (status == FB_E_NOMEM) {
        if (err) *err = why;
        return status;
    }
    if (status != FB_OK && !detail) {
        fb_notes_add(&report->notes, "ledger of rank %d: %.400s", rank->rank, why.message);
        if (rank->state < FB_LEDGER_HEAD) rank->state = FB_LEDGER_UNREADABLE;
    }
    return FB_OK;
}

static fb_status survey_ledgers(const fb_os *os, fb_report *report, fb_error *err)
{
    uint64_t total = 0, total_max = report->bad_step_count ? READ_BYTES_MAX : READ_BYTES_MAX_CLEAN; /* steps: of case folders */
    for (uint64_t i = 0; i < report->rank_count; i++) {
        fb_report_rank *rank = &report->ranks[i];
        char path[FB_OS_PATH_MAX];
        fb_os_info info;
        fb_status status = ledger_path(report, rank->rank, path, err);
        int what = FB_VISIT_FROZEN | FB_VISIT_APPENDED;
        if (status != FB_OK) return status;
        if (os->stat(os->ctx, path, &info) >= 0) rank->bytes = info.size_bytes;
        if (rank->bytes > FIXED_BYTES) total += rank->bytes - FIXED_BYTES;
        if (total > total_max && i > 0) {
            what = FB_VISIT_FROZEN;
            report->unread++;
        }
        if ((status = visit_rank(os, report, rank, what, 0, err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* Ranks with findings are read in any case; others if the survey read them. */
static fb_status look_closer(const fb_os *os, fb_report *report, fb_error *err)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        fb_report_rank *rank = &report->ranks[i];
        int what = FB_VISIT_FROZEN, before = (int)report->finding_count, state = rank->state;
        fb_status status;
        if (state < FB_LEDGER_HEAD) continue;
        for (uint64_t k = 0; k < report->finding_count; k++) {
            if (report->findings[k].rec.rank == rank->rank) what |= FB_VISIT_APPENDED;
        }
        if (state == FB_LEDGER_READ) what |= FB_VISIT_APPENDED;
        memset(&rank->cover, 0, sizeof rank->cover);
        if ((status = visit_rank(os, report, rank, what, 1, err)) != FB_OK) return status;
        if ((what & FB_VISIT_APPENDED) == 0 && (uint64_t)before < report->finding_count) {
            if ((status = visit_rank(os, report, rank, FB_VISIT_APPENDED, 1, err)) != FB_OK) return status;
        }
        if (state == FB_LEDGER_HEAD && rank->state == FB_LEDGER_READ && report->unread) report->unread--;
    }
    return FB_OK;
}

/* The STEP record of the rank that was first: batch, samples, random state. */
static fb_status read_spokesman(const fb_os *os, fb_report *report, fb_error *err)
{
    if (report->first == UINT64_MAX) return FB_OK;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        fb_report_rank *rank = &report->ranks[i];
        if (rank->rank != report->findings[report->first].rec.rank || rank->state < FB_LEDGER_HEAD) continue;
        return visit_rank(os, report, rank, FB_VISIT_APPENDED, 2, err);
    }
    return FB_OK;
}

/* ---- which bad step ---------------------------------------------------------------------------------------------------------- */

static int64_t entry_case(const fb_report_bad_step *entry)
{
    return entry->case_step >= 0 ? entry->case_step : entry->step;
}

/* Index of the newest bad step, or of the one that is or belongs to `wanted`; UINT64_MAX when there is none. */
static uint64_t find_bad_step(const fb_report *report, int64_t wanted)
{
    for (uint64_t i = report->bad_step_count; i-- > 0;) {
        const fb_report_bad_step *entry = &report->bad_steps[i];
        if (!fb_bad_step_counts(entry)) continue;
        if (wanted < 0 || entry->step == wanted || entry->case_step == wanted) return i;
    }
    return UINT64_MAX;
}

/*
 * Back to where it began: to the step that opened the case, and over a bad update that was not provably withheld, since everything
 * after it may descend from it. A bad update that was withheld is a case of its own.
 */
static uint64_t origin_of(const fb_report *report, uint64_t at)
{
    int64_t opened = entry_case(&report->bad_steps[at]);
    uint64_t i = at;
    while (i-- > 0) {
        const fb_report_bad_step *entry = &report->bad_steps[i];
        if (!fb_bad_step_counts(entry)) continue;
        if (entry->step < opened && !entry->applied_on && !entry->broken) break;
        at = i;
        if (entry_case(entry) < opened) opened = entry_case(entry);
    }
    return at;
}

static void count_cases(fb_report *report, int64_t first_step, int64_t opened)
{
    int64_t last = -1;
    report->next_case_step = report->previous_case_step = -1;
    for (uint64_t i = 0; i < report->bad_step_count; i++) {
        const fb_report_bad_step *entry = &report->bad_steps[i];
        int64_t step = entry_case(entry);
        if (!fb_bad_step_counts(entry)) continue;
        if (step == opened || step == first_step) report->case_updates++;
        else if (step != last && step < first_step) {
            report->cases_before++;
            report->cases_before_withheld += (uint64_t)(entry->withheld_on > 0 && !entry->applied_on && !entry->broken);
            report->previous_case_step = step;
        } else if (step != last && step > first_step) {
            report->cases_after++;
            if (report->next_case_step < 0) report->next_case_step = step;
        }
        last = step;
    }
}

static fb_status choose_step(const fb_os *os, fb_report *report, int64_t wanted, fb_error *err)
{
    uint64_t asked = find_bad_step(report, wanted), origin;
    int64_t opened;
    char name[64];
    fb_os_info info;
    fb_status status;
    if (asked == UINT64_MAX && wanted >= 0) {
        return fb_fail(err, FB_E_NOTFOUND,
                       "load run %s: no case at step %lld in attempt %d; firstbad why without a step shows the newest",
                       report->folder, (long long)wanted, report->attempt);
    }
    if (asked == UINT64_MAX) return FB_OK;
    origin = origin_of(report, asked);
    opened = entry_case(&report->bad_steps[asked]);
    if (opened < report->bad_steps[origin].step && report->bad_steps[origin].case_step < 0) opened = report->bad_steps[origin].step;
    report->has_case = 1;
    report->step = report->case_last_step = report->bad_steps[origin].step;
    report->case_action = -1;
    (void)snprintf(report->case_id, sizeof report->case_id, "a%d-%06lld", report->attempt, (long long)opened);
    (void)snprintf(name, sizeof name, "cases/%s", report->case_id);
    if ((status = fb_os_join(report->case_folder, sizeof report->case_folder, report->folder, name, err)) != FB_OK) return status;
    if (os->stat(os->ctx, report->case_folder, &info) < 0) {
        report->case_folder[0] = '\0';
        if ((status = fb_case_folder_renamed(os, report, err)) != FB_OK) return status;
        report->rebuilt = !report->case_folder[0];
    }
    count_cases(report, report->step, opened);
    return FB_OK;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------- */

typedef struct checkpoint_reading {
    const fb_os *os;
    fb_report *report;
    uint64_t room, dropped;
} checkpoint_reading;

static fb_status keep_checkpoint(void *ctx, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns, fb_error *err)
{
    checkpoint_reading *reading = ctx;
    fb_report *report = reading->report;
    fb_report_checkpoint *entry;
    void *array = report->checkpoints;
    char text[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_status status;
    int64_t found;
    (void)sequence;
    (void)time_ns;
    if (report->checkpoint_count == FB_REPORT_CHECKPOINTS_MAX) {
        reading->dropped++;
        return FB_OK;
    }
    if ((status = fb_grow(&array, report->checkpoint_count, &reading->room, sizeof *entry, err)) != FB_OK) return status;
    report->checkpoints = array;
    entry = &report->checkpoints[report->checkpoint_count];
    memset(entry, 0, sizeof *entry);
    fb_text_copy(text, sizeof text, rec->path);
    entry->path = fb_strdup(text);
    found = reading->os->stat(reading->os->ctx, text, &info);
    entry->gone = found == -ENOENT || found == -ENOTDIR;
    entry->changed = found == 0 && info.kind == FB_OS_FILE && rec->bytes && info.size_bytes != rec->bytes;
    fb_text_copy(text, sizeof text, rec->tensor);
    entry->tensor = fb_strdup(text);
    report->checkpoint_count++;
    entry->step = rec->step;
    entry->state = rec->state;
    entry->reason = rec->reason;
    entry->attempt = rec->attempt;
    entry->bad = rec->bad;
    if (!entry->path || !entry->tensor) return fb_fail(err, FB_E_NOMEM, "load report: no memory for a path");
    return FB_OK;
}

static fb_status read_checkpoints(const fb_os *os, fb_report *report, fb_error *err)
{
    checkpoint_reading reading = {os, report, 0, 0};
    fb_error why;
    fb_status status = fb_registry_each(os, report->folder, keep_checkpoint, &reading, &why);
    if (status == FB_E_NOMEM) {
        if (err) *err = why;
        return status;
    }
    if (status != FB_OK) fb_notes_add(&report->notes, "the record of checkpoints: %.400s", why.message);
    if (reading.dropped) {
        fb_notes_add(&report->notes, "more than %d checkpoints were registered; the rest was not read", FB_REPORT_CHECKPOINTS_MAX);
    }
    return FB_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static void count_missing(fb_report *report)
{
    uint64_t present = 0;
    int32_t expected = 0;
    int32_t highest = report->rank_count ? report->ranks[report->rank_count - 1].rank : -1;
    report->world = report->run.world;
    report->lowest_missing = -1;
    if (report->world < 0) return;
    if (highest >= report->world) {
        fb_notes_add(&report->notes, "the run says %d ranks, and there is a ledger of rank %d", report->world, highest);
        report->world = highest + 1;
    }
    for (uint64_t i = 0; i < report->rank_count && report->ranks[i].rank < report->world; i++) {
        if (report->ranks[i].rank > expected && report->lowest_missing < 0) report->lowest_missing = expected;
        expected = report->ranks[i].rank + 1;
        present++;
    }
    if (expected < report->world && report->lowest_missing < 0) report->lowest_missing = expected;
    report->missing = (uint64_t)report->world - present;
}

/* Least coverage over the ranks, of the bad step or of all applied updates. */
static void join_cover(fb_report *report)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (rank->state != FB_LEDGER_READ || !(report->has_case ? rank->has_step : rank->applied > 0)) continue;
        if (report->cover_ranks++ == 0) report->cover = rank->cover;
        for (int b = 1; b < 9; b++) {
            if (rank->cover.level[b] < report->cover.level[b]) report->cover.level[b] = rank->cover.level[b];
            if (rank->cover.tensors[b] < report->cover.tensors[b]) report->cover.tensors[b] = rank->cover.tensors[b];
        }
        if (rank->cover.exempt > report->cover.exempt) report->cover.exempt = rank->cover.exempt;
        if (rank->cover.absent > report->cover.absent) report->cover.absent = rank->cover.absent;
        if (rank->cover.unchecked > report->cover.unchecked) report->cover.unchecked = rank->cover.unchecked;
    }
}

static fb_status load_case(const fb_os *os, fb_report *report, fb_error *err)
{
    fb_status status;
    if (!report->has_case) return FB_OK;
    if ((status = fb_files_case(os, report, err)) != FB_OK) return status;
    if ((status = look_closer(os, report, err)) != FB_OK) return status;
    if ((status = fb_judge_case(report, err)) != FB_OK) return status;
    if ((status = fb_located_load(os, report, err)) != FB_OK) return status;
    return read_spokesman(os, report, err);
}

static fb_status load(const fb_os *os, fb_report *report, const fb_report_target *target, fb_error *err)
{
    cases of_attempt = {report, 0, 0, 0};
    fb_status status;
    report->ended = target->ended;
    if ((status = choose_attempt(os, report, target->attempt, err)) != FB_OK) return status;
    if ((status = fb_files_run(os, report, err)) != FB_OK) return status;
    if ((status = fb_files_exit(os, report, err)) != FB_OK) return status;
    of_attempt.attempt = report->attempt;
    if ((status = list_cases(os, report, &of_attempt, err)) != FB_OK) return status;
    if ((status = list_ledgers(os, report, err)) != FB_OK) return status;
    if ((status = survey_ledgers(os, report, err)) != FB_OK) return status;
    count_missing(report);
    fb_judge_no_vote(report);
    if ((status = choose_step(os, report, target->step, err)) != FB_OK) return status;
    if ((status = load_case(os, report, err)) != FB_OK) return status;
    if ((status = read_checkpoints(os, report, err)) != FB_OK) return status;
    join_cover(report);
    fb_judge_recovery(os, report);
    fb_judge_status(report);
    return FB_OK;
}

fb_status fb_report_load_target(const fb_os *os, const fb_report_target *target, fb_report **out, fb_error *err)
{
    fb_report *report = fb_calloc(1, sizeof *report);
    fb_os_info info;
    fb_status status;
    int64_t got;
    *out = NULL;
    if (!report) return fb_fail(err, FB_E_NOMEM, "load run %s: no memory for %zu bytes", target->folder, sizeof *report);
    (void)snprintf(report->folder, sizeof report->folder, "%s", target->folder);
    report->run.world = report->run.dirty = report->run.max_skips = report->run.exit_halted = -1;
    report->run.created_unix = -1;
    report->step = report->case_last_step = report->last_good_step = -1;
    report->first = report->resume = UINT64_MAX;
    report->action = report->case_action = -1;
    report->collective = report->parameters = report->optimizer_state = FB_ANSWER_UNKNOWN;
    got = os->stat(os->ctx, target->folder, &info);
    if (got == -ENOENT) status = fb_fail(err, FB_E_NOTFOUND, "load run %s: there is no such folder", target->folder);
    else if (got < 0) status = fb_fail_os(err, (int)-got, "load run %s", target->folder);
    else status = load(os, report, target, err);
    if (status == FB_OK) {
        *out = report; /* the caller owns it from here */
        report = NULL;
    }
    fb_report_free(report);
    return status;
}

fb_status fb_report_load(const fb_os *os, const char *run_folder, fb_report **out, fb_error *err)
{
    fb_report_target target;
    memset(&target, 0, sizeof target);
    target.step = -1;
    *out = NULL;
    if (strlen(run_folder) >= sizeof target.folder) {
        return fb_fail(err, FB_E_LIMIT, "load run: the path has more than %d bytes", FB_OS_PATH_MAX - 1);
    }
    (void)snprintf(target.folder, sizeof target.folder, "%s", run_folder);
    return fb_report_load_target(os, &target, out, err);
}

void fb_report_free(fb_report *report)
{
    if (!report) return;
    for (uint64_t i = 0; i < report->finding_count; i++) fb_free(report->findings[i].bytes);
    for (uint64_t i = 0; i < report->checkpoint_count; i++) {
        fb_free(report->checkpoints[i].path);
        fb_free(report->checkpoints[i].tensor);
    }
    fb_located_free(report->located);
    fb_free(report->findings);
    fb_free(report->checkpoints);
    fb_free(report->first_set);
    fb_free(report->bad_steps);
    fb_free(report->ranks);
    fb_free(report);
}
