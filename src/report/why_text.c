/*
 * The answers for a person at night: the answer first, then its proof, then what to do; one screen.
 */
#include <stdio.h>
#include <string.h>

#include "evidence/site.h"
#include "policy/gate.h"
#include "registry/registry.h"
#include "report/inside.h"
#include "report/say.h"
#include "report/why_text.h"

/* ---- head -------------------------------------------------------------------------------------------------------------------- */

static void outcome(const fb_report *report, fb_phrase *phrase)
{
    const fb_report_run *run = &report->run;
    int halted = run->exit_halted == 1 || (report->has_case && report->case_action == FB_HALT);
    uint64_t closed = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) closed += (uint64_t)report->ranks[i].closed;
    if (halted) {
        fb_phrase_add(phrase, "halted by firstbad");
        if (report->has_case) fb_phrase_add(phrase, " at step %lld", (long long)report->case_last_step);
    } else if (run->has_exit && run->exit_signal > 0) fb_phrase_add(phrase, "ended by signal %d", run->exit_signal);
    else if (run->has_exit && run->exit_code) fb_phrase_add(phrase, "ended with exit code %d", run->exit_code);
    else if (run->has_exit || (closed && closed == report->rank_count)) fb_phrase_add(phrase, "ended normally");
    else fb_phrase_add(phrase, "no end was recorded");
}

static void head(fb_lines *lines, const fb_report *report)
{
    const fb_report_run *run = &report->run;
    fb_phrase phrase = {"", 0};
    fb_phrase_add(&phrase, "%s", run->run_id[0] ? run->run_id : report->folder);
    if (report->attempts > 1 || report->attempt > 1)
        fb_phrase_add(&phrase, ", attempt %d of %d", report->attempt, report->newest_attempt);
    if (report->world > 0) fb_phrase_add(&phrase, ", %d rank%s", report->world, fb_plural((uint64_t)report->world));
    if (run->precision[0]) fb_phrase_add(&phrase, ", %s", run->precision);
    if (run->commit[0]) fb_phrase_add(&phrase, ", commit %.12s%s", run->commit, run->dirty == 1 ? " (modified)" : "");
    fb_phrase_add(&phrase, ": ");
    outcome(report, &phrase);
    fb_lines_add(lines, "Run", 4, "%s", phrase.text);
    fb_lines_blank(lines);
}

/* ---- 1 first bad ------------------------------------------------------------------------------------------------------------- */

static void index_text(const fb_rec_finding *finding, fb_phrase *phrase)
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = 0;
    if (finding->first_index == FB_NO_INDEX || finding->kind == FB_KIND_ALL_IGNORED) return;
    if (finding->field == FB_FIELD_TENSOR) n = fb_site_unravel(finding->shape, finding->ndim, finding->first_index, index);
    if (n == 0) {
        index[0] = (int64_t)finding->first_index;
        n = 1;
    }
    fb_phrase_add(phrase, ", first at ");
    fb_why_index(phrase, index, n);
}

static void value_text(const fb_rec_finding *finding, fb_phrase *phrase)
{
    char count[32], elements[32];
    if (finding->kind == FB_KIND_ALL_IGNORED && finding->field == FB_FIELD_MASK) {
        fb_phrase_add(phrase, ", mask: %s row%s every token", fb_thousands(finding->count, count),
                      finding->count == 1 ? " masks" : "s mask");
        return;
    }
    if (finding->kind == FB_KIND_ALL_IGNORED) {
        fb_phrase_add(phrase, ", %s", fb_kind_text(finding->kind));
        return;
    }
    if (finding->kind == FB_KIND_OUT_OF_RANGE) {
        fb_phrase_add(phrase, ", %s: %s", fb_field_name(finding->field), fb_thousands(finding->count, count));
        if (finding->elements) fb_phrase_add(phrase, " of %s", fb_thousands(finding->elements, elements));
        fb_phrase_add(phrase, " out of range, the first is %lld (allowed %lld to %lld)", (long long)finding->value,
                      (long long)finding->low, (long long)finding->high);
    } else {
        fb_phrase_add(phrase, ", %s x %s", fb_kind_text(finding->kind), fb_thousands(finding->count, count));
        if (finding->elements) fb_phrase_add(phrase, " of %s", fb_thousands(finding->elements, elements));
    }
    index_text(finding, phrase);
}

static void place_text(const fb_report *report, const fb_rec_finding *finding, int with_step, fb_phrase *phrase)
{
    char name[2 * FB_TEXT_MAX + 2];
    int many = report->has_spokesman_step && report->spokesman_step.micro_steps > 1;
    fb_finding_name(finding, name, sizeof name);
    if (with_step) fb_phrase_add(phrase, "step %lld, ", (long long)finding->step);
    if (many || finding->micro_step > 0) fb_phrase_add(phrase, "micro-step %d, ", finding->micro_step);
    fb_phrase_add(phrase, "rank %d, %s, %s", finding->rank, fb_judge_boundary_text(report, finding), name);
    value_text(finding, phrase);
}

static void first_details(fb_lines *lines, const fb_report *report, const fb_report_finding *one)
{
    const fb_rec_finding *finding = &one->rec;
    const char *dtype = fb_dtype_name(finding->dtype);
    int digits = (int)(2 * fb_dtype_bytes(finding->dtype, 1));
    char host[FB_TEXT_MAX + 1], group[FB_TEXT_MAX + 1];
    fb_phrase phrase = {"", 0};
    int64_t since;
    fb_text_copy(host, sizeof host, finding->host);
    fb_text_copy(group, sizeof group, finding->group);
    if (dtype && finding->kind <= FB_KIND_NEG_INF) {
        fb_phrase_add(&phrase, "%s, bits 0x%0*llx", dtype, digits > 16 ? 16 : digits, (unsigned long long)finding->first_bits);
    }
    if (finding->elements && finding->kind <= FB_KIND_NEG_INF) fb_phrase_add(&phrase, ", largest finite %.3g", finding->abs_max);
    if (group[0]) fb_phrase_add(&phrase, ", group %s", group);
    if (finding->bucket >= 0) fb_phrase_add(&phrase, ", bucket %d", finding->bucket);
    if (host[0]) fb_phrase_add(&phrase, ", host %s", host);
    if (one->ranks > 1) fb_phrase_add(&phrase, ", received by %d ranks", one->ranks);
    since = fb_judge_since(report, finding);
    if (since < 0) fb_phrase_add(&phrase, "; it may be older: the state had not been read whole before");
    else if (since < finding->step)
        fb_phrase_add(&phrase, "; made in step %lld at the earliest: then the state was last read whole", (long long)since);
    if (report->injected_text[0] && finding->injected) fb_phrase_add(&phrase, "; planted by the guard: %s", report->injected_text);
    else if (finding->injected) fb_phrase_add(&phrase, "; planted by the guard");
    if (phrase.used)
        fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s",
                     phrase.text[0] == ',' || phrase.text[0] == ';' ? phrase.text + 2 : phrase.text);
}

static int same_place(const fb_rec_finding *a, const fb_rec_finding *b)
{
    return a->boundary == b->boundary && a->kind == b->kind && a->first_index == b->first_index &&
           a->module.bytes == b->module.bytes && a->tensor.bytes == b->tensor.bytes &&
           memcmp(a->module.data, b->module.data, a->module.bytes) == 0 &&
           memcmp(a->tensor.data, b->tensor.data, a->tensor.bytes) == 0;
}

/* The other members of the set. Replicas that hold the same thing take one line together. */
static void other_firsts(fb_lines *lines, const fb_report *report, const fb_rec_finding *first)
{
    uint64_t same = 0, shown = 0, others = 0;
    for (uint64_t i = 0; i < report->first_set_count; i++) {
        const fb_rec_finding *finding = &report->findings[report->first_set[i]].rec;
        if (finding == first) continue;
        if (same_place(finding, first)) same++;
        else others++;
    }
    if (same) fb_lines_add(lines, "", FB_WHY_NUMBERED, "the same on %llu other rank%s", (unsigned long long)same, fb_plural(same));
    for (uint64_t i = 0; i < report->first_set_count && shown < others; i++) {
        const fb_rec_finding *finding = &report->findings[report->first_set[i]].rec;
        fb_phrase one = {"", 0};
        if (finding == first || same_place(finding, first)) continue;
        if (shown == FB_WHY_LISTED_MAX) {
            fb_lines_add(lines, "", FB_WHY_NUMBERED, "and %llu more that nothing comes before (--json lists all)",
                         (unsigned long long)(others - shown));
            return;
        }
        fb_phrase_add(&one, "%s", shown++ ? "" : "nothing says which came first: ");
        place_text(report, finding, 1, &one);
        fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", one.text);
    }
}

/* What replays found out, where they name no operator. */
static void located(fb_lines *lines, const fb_report *report)
{
    fb_phrase phrase = {"", 0};
    fb_why_location(report, &phrase);
    if (phrase.used) fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", phrase.text);
}

/* The operator that made it, before what the guard found: it is the answer. */
static void origin(fb_lines *lines, const fb_report *report)
{
    const fb_told *told = report->located->place;
    fb_place place = fb_place_of_origin(told);
    const char *direction = fb_direction_name(&place);
    int many = report->has_spokesman_step && report->spokesman_step.micro_steps > 1;
    char n[32];
    fb_phrase phrase = {"", 0};
    fb_phrase_add(&phrase, "step %lld", (long long)told->file.step);
    if (place.micro_step > 0 || (many && place.micro_step == 0)) fb_phrase_add(&phrase, ", micro-step %d", place.micro_step);
    if (told->file.location.rank >= 0) fb_phrase_add(&phrase, ", rank %d", told->file.location.rank);
    fb_phrase_add(&phrase, ", %s, ",
                  place.boundary == FB_REDUCED_GRAD && strcmp(direction, "update") == 0 ? "after the reduction" : direction);
    fb_why_place(&phrase, &place);
    fb_phrase_add(&phrase, ", %s", fb_kind_text(told->file.location.kind));
    if (told->file.location.bad) fb_phrase_add(&phrase, " x %s", fb_thousands(told->file.location.bad, n));
    if (told->file.location.bad && told->file.location.elements)
        fb_phrase_add(&phrase, " of %s", fb_thousands(told->file.location.elements, n));
    if (told->file.location.ndim > 0) {
        fb_phrase_add(&phrase, ", first at ");
        fb_why_index(&phrase, told->file.location.index, told->file.location.ndim);
    }
    if (place.source[0]) fb_phrase_add(&phrase, ", %s", place.source);
    fb_lines_add(lines, "1 First bad", FB_WHY_NUMBERED, "%s", phrase.text);
    phrase.used = 0;
    fb_why_location(report, &phrase);
    fb_why_place_teller(report, &phrase);
    fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", phrase.text);
}

static void later(fb_lines *lines, const fb_report *report)
{
    fb_phrase phrase = {"", 0};
    fb_why_later(report, &phrase);
    if (phrase.used) fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", phrase.text);
}

static void first_bad(fb_lines *lines, const fb_report *report)
{
    const fb_report_finding *shown;
    int named = report->located && report->located->found == FB_LOCATED_OPERATOR;
    fb_phrase phrase = {"", 0};
    if (report->first == UINT64_MAX && report->action <= FB_PROCEED) {
        fb_lines_add(lines, "1 First bad", FB_WHY_NUMBERED, "unknown: step %lld has a case, and no finding of it can be read; %s",
                     (long long)report->step, report->action < 0 ? "no verdict was recorded" : "its votes were clean");
        return;
    }
    if (report->first == UINT64_MAX && report->drift[0]) {
        fb_lines_add(lines, "1 First bad", FB_WHY_NUMBERED, "no number that is not finite; at step %lld %s",
                     (long long)report->step, report->drift);
        return;
    }
    if (report->first == UINT64_MAX) {
        fb_lines_add(lines, "1 First bad", FB_WHY_NUMBERED,
                     "unknown: step %lld was judged a fault (%s), and no finding of it was recorded", (long long)report->step,
                     report->action >= 0 ? fb_gate_reason_text(report->reason) : "no verdict was recorded");
        if (report->misuse_text[0])
            fb_lines_add(lines, "", FB_WHY_NUMBERED, "rank %d: %s", report->misuse_rank, report->misuse_text);
        return;
    }
    shown = &report->findings[named ? report->located->place->explains : report->first];
    if (named) {
        origin(lines, report);
        fb_phrase_add(&phrase, "found as: ");
    }
    place_text(report, &shown->rec, !named || shown->rec.step != report->located->place->file.step, &phrase);
    fb_lines_add(lines, named ? "" : "1 First bad", FB_WHY_NUMBERED, "%s", phrase.text);
    first_details(lines, report, shown);
    if (!named) located(lines, report);
    later(lines, report);
    if (named && report->located->place->of != report->located->place->explains) {
        phrase.used = 0;
        fb_phrase_add(&phrase, "before it, in the batch: ");
        shown = &report->findings[report->located->place->of];
        place_text(report, &shown->rec, 0, &phrase);
        fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", phrase.text);
    }
    other_firsts(lines, report, &shown->rec);
}

/* ---- 2 spread ---------------------------------------------------------------------------------------------------------------- */

static const char *answer_text(int32_t value)
{
    return value == FB_ANSWER_YES ? "yes" : value == FB_ANSWER_NO ? "no" : "unknown";
}

static int spread_to(const fb_report *report, const fb_report_checkpoint *entry)
{
    return entry->step >= report->step && entry->state != FB_CKPT_COMMITTED;
}

static void spread(fb_lines *lines, const fb_report *report)
{
    fb_phrase phrase = {"", 0};
    uint64_t checkpoints = 0;
    fb_phrase_add(&phrase, "collective %s: %s; ", answer_text(report->collective), report->collective_why);
    if (report->parameters == report->optimizer_state && strcmp(report->parameters_why, report->optimizer_why) == 0) {
        fb_phrase_add(&phrase, "parameters and optimizer state %s: %s; ", answer_text(report->parameters), report->parameters_why);
    } else {
        fb_phrase_add(&phrase, "parameters %s: %s; optimizer state %s: %s; ", answer_text(report->parameters),
                      report->parameters_why, answer_text(report->optimizer_state), report->optimizer_why);
    }
    for (uint64_t i = 0; i < report->checkpoint_count; i++) checkpoints += (uint64_t)spread_to(report, &report->checkpoints[i]);
    if (checkpoints == 0) fb_phrase_add(&phrase, "checkpoints none");
    else fb_phrase_add(&phrase, "checkpoints %llu saved since and not committed", (unsigned long long)checkpoints);
    fb_lines_add(lines, "2 Spread", FB_WHY_NUMBERED, "%s", phrase.text);
}

/* ---- 3 decision -------------------------------------------------------------------------------------------------------------- */

static void no_vote_text(const fb_report *report, fb_phrase *phrase)
{
    uint64_t shown = report->no_vote_count < 8 ? report->no_vote_count : 8;
    if (report->no_vote_count == 0) {
        fb_phrase_add(phrase, "all %llu ranks gave their vote at step %lld and none read the result",
                      (unsigned long long)report->voted_count, (long long)report->no_vote_step);
        return;
    }
    fb_phrase_add(phrase, "no vote of rank ");
    for (uint64_t i = 0; i < shown; i++) fb_phrase_add(phrase, "%s%d", i ? ", " : "", report->no_vote_ranks[i]);
    if (report->no_vote_count > shown) fb_phrase_add(phrase, " and %llu more", (unsigned long long)(report->no_vote_count - shown));
    fb_phrase_add(phrase, " at step %lld; %llu other%s voted, and without all votes no rank updates%s%s",
                  (long long)report->no_vote_step, (unsigned long long)report->voted_count, fb_plural(report->voted_count),
                  report->lost[0] ? "; seen: " : "", report->lost);
}

static void verdict_text(const fb_report *report, fb_phrase *phrase)
{
    const char *how = report->agreement == FB_AGREE_VOTE   ? "vote"
                      : report->agreement == FB_AGREE_NORM ? "reduced norm"
                                                           : "no agreement";
    fb_phrase_add(phrase, "%s", fb_action_name(report->action));
    if (report->unanimous == 1 && report->agreement == FB_AGREE_VOTE) fb_phrase_add(phrase, ", unanimous vote");
    else if (report->unanimous == 0) fb_phrase_add(phrase, ", not unanimous: the ranks voted on different things");
    else if (report->unanimous < 0 && report->agreement == FB_AGREE_VOTE) fb_phrase_add(phrase, ", the vote failed");
    else fb_phrase_add(phrase, ", by %s", how);
    fb_phrase_add(phrase, "; recorded alike on %llu of ", (unsigned long long)report->agreed);
    if (report->world > 0) fb_phrase_add(phrase, "%d rank%s", report->world, fb_plural((uint64_t)report->world));
    else fb_phrase_add(phrase, "an unknown number of ranks");
    if (report->unread) fb_phrase_add(phrase, " (%llu ledgers were not read)", (unsigned long long)report->unread);
}

static void proof_text(const fb_report *report, fb_phrase *phrase)
{
    unsigned long long compared = (unsigned long long)report->proofs_compared, equal = (unsigned long long)report->proofs_equal;
    unsigned long long ranks = report->world > 0 ? (unsigned long long)report->world : compared;
    if (compared && compared == equal)
        fb_phrase_add(phrase, "; state digests equal before and after on %llu of %llu", equal, ranks);
    else if (compared) fb_phrase_add(phrase, "; state digests CHANGED on %llu of %llu", compared - equal, ranks);
    else if (report->proofs) {
        fb_phrase_add(phrase, "; state digests taken on %llu of %llu and not compared: no step followed",
                      (unsigned long long)report->proofs, report->world > 0 ? ranks : (unsigned long long)report->proofs);
    } else {
        fb_phrase_add(phrase, "; state digests: none, the trainer named no state");
    }
}

/* The least that any rank says: one that was not read says nothing. */
static void replicas_text(const fb_report *report, fb_phrase *phrase)
{
    int64_t step = INT64_MAX;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (report->ranks[i].replicas_step < step) step = report->ranks[i].replicas_step;
    }
    if (report->rank_count && step >= 0 && step != INT64_MAX)
        fb_phrase_add(phrase, "; parameters last compared over the ranks, and equal, on entry to step %lld", (long long)step);
}

static void decision(fb_lines *lines, const fb_report *report)
{
    fb_phrase phrase = {"", 0};
    if (report->action < 0) {
        if (report->has_no_vote) no_vote_text(report, &phrase);
        else fb_phrase_add(&phrase, "unknown: no verdict of step %lld was recorded", (long long)report->step);
        fb_lines_add(lines, "3 Decision", FB_WHY_NUMBERED, "%s", phrase.text);
        return;
    }
    verdict_text(report, &phrase);
    if (report->action != FB_PROCEED) proof_text(report, &phrase);
    replicas_text(report, &phrase);
    fb_lines_add(lines, "3 Decision", FB_WHY_NUMBERED, "%s", phrase.text);
    phrase.used = 0;
    if (report->reason == FB_REASON_CLEAN)
        fb_phrase_add(&phrase, "because: every vote of that step was clean, and this was found after the update");
    else fb_phrase_add(&phrase, "because: %s", fb_gate_reason_text(report->reason));
    if (report->case_last_step > report->step) {
        fb_phrase_add(&phrase, "; %llu bad updates up to step %lld%s", (unsigned long long)report->case_updates,
                      (long long)report->case_last_step, report->case_action == FB_HALT ? ", which halted the run" : "");
    }
    fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", phrase.text);
    if (!report->has_no_vote) return;
    phrase.used = 0;
    no_vote_text(report, &phrase);
    fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", phrase.text);
}

/* ---- notes ------------------------------------------------------------------------------------------------------ */

static void notes(fb_lines *lines, const char *label, const fb_notes *list)
{
    for (uint32_t i = 0; i < list->count; i++) fb_lines_add(lines, label, FB_WHY_NAMED, "%s", list->text[i]);
    if (list->dropped) fb_lines_add(lines, label, FB_WHY_NAMED, "and %u more", list->dropped);
}

static void other_cases(fb_lines *lines, const fb_report *report)
{
    if (report->cases_before) {
        fb_lines_add(lines, "Before", FB_WHY_NAMED, "%llu earlier case%s%s; the last: firstbad why a%d-%06lld",
                     (unsigned long long)report->cases_before, fb_plural(report->cases_before),
                     report->cases_before_withheld == report->cases_before ? ", each withheld and over" : "", report->attempt,
                     (long long)report->previous_case_step);
    }
    if (report->cases_after) {
        fb_lines_add(lines, "After", FB_WHY_NAMED, "%llu later case%s; the next: firstbad why a%d-%06lld",
                     (unsigned long long)report->cases_after, fb_plural(report->cases_after), report->attempt,
                     (long long)report->next_case_step);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static void happened(fb_lines *lines, const fb_report *report)
{
    fb_phrase phrase = {"", 0};
    fb_why_happened(report, &phrase);
    fb_lines_add(lines, "", 0, "What happened: %s", phrase.text);
    fb_lines_blank(lines);
}

static void case_text(fb_lines *lines, const fb_report *report)
{
    happened(lines, report);
    first_bad(lines, report);
    spread(lines, report);
    decision(lines, report);
    fb_why_reproduce(lines, report);
    fb_why_resume(lines, report, "5 Resume", FB_WHY_NUMBERED);
    fb_lines_blank(lines);
    fb_why_cause(lines, report);
    fb_why_coverage(lines, report);
    if (report->noted[0] && !(report->located && report->located->count)) {
        fb_lines_add(lines, "Noted", FB_WHY_NAMED,
                     "by the run when it located this case; its locate.json is not there to prove it: %s", report->noted);
    }
    if (report->left_out)
        fb_lines_add(lines, "Left out", FB_WHY_NAMED, "%lld sample%s in this attempt", (long long)report->left_out,
                     fb_plural((uint64_t)report->left_out));
    if (report->case_folder[0]) fb_lines_add(lines, "Case", FB_WHY_NAMED, "%s", report->case_folder);
    else fb_lines_add(lines, "Case", FB_WHY_NAMED, "%s has no folder; this was put together from the ledgers", report->case_id);
    if (report->case_folder[0] && report->rebuilt)
        fb_lines_add(lines, "Note", FB_WHY_NAMED, "the case folder is incomplete; the ledgers filled the rest");
    other_cases(lines, report);
}

fb_status fb_report_why_text(const fb_report *report, int columns, int colour, char **text, fb_error *err)
{
    fb_lines lines;
    fb_lines_init(&lines, columns, colour);
    head(&lines, report);
    if (report->status == FB_WHY_CASE) {
        case_text(&lines, report);
        notes(&lines, "Missing", &report->undecided);
    } else {
        notes(&lines, "Undecided", &report->undecided);
        fb_why_steps(&lines, report, report->status == FB_WHY_CLEAN ? "Clean" : "Recorded");
        fb_why_coverage(&lines, report);
        fb_why_resume(&lines, report, "Resume", FB_WHY_NAMED);
    }
    notes(&lines, "Note", &report->notes);
    return fb_lines_finish(&lines, text, err);
}
