/*
 * What happened, as a person would tell it: one paragraph of facts, that can be pasted into a report of the incident. A sentence
 * for each of: the place, why, what was decided, whether it comes back, what to do. Those that matter less go when it grows too
 * long.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "locate/op_title.h"
#include "policy/gate.h"
#include "report/inside.h"
#include "report/say.h"

enum { NAME_SHOWN = 40, SENTENCE_ROOM = 460 };
enum { PLACE = 0, WHY = 1, DECIDED = 2, AGAIN = 3, NEXT = 4, SENTENCES = 5 };

typedef struct sentence {
    char text[SENTENCE_ROOM];
    size_t used;
} sentence;

__attribute__((format(printf, 2, 3))) static void add(sentence *out, const char *format, ...)
{
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(out->text + out->used, sizeof out->text - out->used, format, args);
    va_end(args);
    if (n > 0) out->used += (size_t)n;
    if (out->used >= sizeof out->text) out->used = sizeof out->text - 1;
}

/* The end of a long name says more than its beginning. */
static const char *clipped(const char *name, char out[NAME_SHOWN + 4])
{
    size_t n = strlen(name), from = n > NAME_SHOWN ? n - NAME_SHOWN + 3 : 0;
    while (from && ((unsigned char)name[from] & 0xc0) == 0x80) from++; /* not within a character */
    (void)snprintf(out, NAME_SHOWN + 4, "%s%s", from ? "..." : "", name + from);
    return out;
}

static void add_named(sentence *out, const char *module, const char *name)
{
    char a[NAME_SHOWN + 4], b[NAME_SHOWN + 4];
    if (!module[0] && !name[0]) add(out, "a place without a name");
    else add(out, "%s%s%s", clipped(module, a), module[0] && name[0] ? " " : "", clipped(name, b));
}

static void add_place(sentence *out, const fb_place *place)
{
    char title[136];
    add_named(out, place->module, place->entry ? place->tensor : fb_op_title_text(title, sizeof title, place->op, place->node));
}

static void add_finding(sentence *out, const fb_rec_finding *finding)
{
    char module[FB_TEXT_MAX + 1], tensor[FB_TEXT_MAX + 1];
    fb_text_copy(module, sizeof module, finding->module);
    fb_text_copy(tensor, sizeof tensor, finding->tensor);
    if (!module[0] && !tensor[0]) add(out, "site %u", (unsigned)finding->site);
    else add_named(out, module, tensor);
}

/* " on all 4 ranks", " on 3 of 4 ranks"; nothing where there is one rank. */
static void add_ranks(sentence *out, const fb_report *report, uint64_t n)
{
    if (report->world == 1) return;
    if (report->world == 2 && n == 2) add(out, " on both ranks");
    else if (report->world > 0 && n == (uint64_t)report->world) add(out, " on all %d ranks", report->world);
    else if (report->world > 0) add(out, " on %llu of %d ranks", (unsigned long long)n, report->world);
    else add(out, " on %llu rank%s", (unsigned long long)n, fb_plural(n));
}

/* micro_step -1: it is not the point, or not known. */
static void add_when(sentence *out, const fb_report *report, int64_t step, int32_t micro_step)
{
    int many = report->has_spokesman_step && report->spokesman_step.micro_steps > 1;
    add(out, "At step %lld,", (long long)step);
    if (micro_step > 0 || (many && micro_step == 0)) add(out, " in micro-step %d,", micro_step);
}

/* ---- the place --------------------------------------------------------------------------------------------------------------- */

static void place_of_operator(sentence *out, const fb_report *report, const fb_told *told)
{
    fb_place place = fb_place_of_origin(told);
    const char *direction = fb_direction_name(&place);
    const char *part = strcmp(direction, "forward") == 0    ? "forward pass"
                       : strcmp(direction, "backward") == 0 ? "backward pass"
                                                            : direction;
    int after_reduction = place.boundary == FB_REDUCED_GRAD && strcmp(direction, "update") == 0;
    char name[NAME_SHOWN + 4], title[136];
    int32_t rank = told->file.location.rank;
    int of_batch = told->of != told->explains;
    add_when(out, report, told->file.step, place.micro_step);
    if (of_batch) add(out, " the batch of rank %d was bad, and", report->findings[told->of].rec.rank);
    add(out, " %s", clipped(fb_op_title_text(title, sizeof title, place.op, place.node), name));
    if (after_reduction) add(out, " after the reduction%s", place.module[0] ? ", in" : "");
    else if (part[0]) add(out, " in the %s%s", part, place.module[0] ? " of" : "");
    else if (place.module[0]) add(out, " in");
    if (place.module[0]) add(out, " %s", clipped(place.module, name));
    if (place.source[0]) add(out, " (%s)", clipped(place.source, name));
    add(out, " made %s", fb_kind_noun(told->file.location.kind));
    if (rank >= 0) add(out, " on rank %d", rank);
    if (!of_batch) add(out, ", though nothing that it read was bad");
    if (told->file.chain.total > 1) {
        if (told->file.step != report->step) add(out, ", and at step %lld it was found in ", (long long)report->step);
        else add(out, ", and it reached ");
        add_finding(out, &report->findings[told->explains].rec);
    }
    add(out, ".");
}

static void place_of_set(sentence *out, const fb_report *report, const fb_told *told)
{
    const fb_locate_links *links = &told->file.candidates;
    uint32_t shown = links->count < 3 ? links->count : 3;
    add_when(out, report, told->file.step, -1);
    add(out, " %u operators made something bad, though nothing that they read was bad: ", links->total);
    for (uint32_t i = 0; i < shown; i++) {
        fb_place place = fb_place_of(&links->items[i]);
        add(out, "%s", i == 0 ? "" : i + 1 == links->total ? " and " : ", ");
        add_place(out, &place);
    }
    if (links->total > shown) add(out, " and %u more", links->total - shown);
    add(out, ".");
}

static void place_of_interval(sentence *out, const fb_report *report, const fb_told *told)
{
    const fb_locate_links *links = &told->file.candidates;
    fb_place first = fb_place_of(&links->items[0]), last = fb_place_of(&links->items[links->count - 1]);
    add_when(out, report, told->file.step, -1);
    if (links->total == 1) {
        add(out, " the first bad value may have come to be in ");
        add_place(out, &first);
        add(out, ", which was not shown.");
        return;
    }
    add(out, " the first bad value came to be in one of %u places, from ", links->total);
    add_place(out, &first);
    if (links->count == links->total) {
        add(out, " to ");
        add_place(out, &last);
    } else {
        add(out, " on");
    }
    add(out, "; which of them was not shown.");
}

static void place_of_entry(sentence *out, const fb_report *report, const fb_told *told)
{
    const fb_locate_links *links = &told->file.candidates;
    fb_place place = links->count ? fb_place_of(&links->items[0]) : fb_place_of_origin(told);
    add_when(out, report, told->file.step, -1);
    add(out, " ");
    if (links->count || told->file.location.known) add_place(out, &place);
    else add_finding(out, &report->findings[report->first].rec);
    if (links->total > 1) add(out, " and %u other tensor%s were", links->total - 1, fb_plural(links->total - 1));
    else add(out, " was");
    add(out, " bad %s, so no operator of this step is to blame.",
        told->file.cause.rule == FB_RULE_BATCH ? "in the batch" : "before the step began");
}

/* What the guard found, where no replay says more. */
static void place_of_finding(sentence *out, const fb_report *report, const fb_rec_finding *finding)
{
    const char *kind = fb_kind_noun(finding->kind);
    char tensor[FB_TEXT_MAX + 1];
    int in_micro_step = finding->boundary > FB_ENTRY && finding->boundary < FB_REDUCED_GRAD;
    fb_text_copy(tensor, sizeof tensor, finding->tensor);
    add_when(out, report, report->step, in_micro_step ? finding->micro_step : -1);
    if (finding->boundary == FB_INPUT) {
        int mask = finding->kind == FB_KIND_ALL_IGNORED && finding->field == FB_FIELD_MASK;
        add(out, " the batch of rank %d held %s.", finding->rank, mask ? "a row that is masked whole" : kind);
        return;
    }
    add(out, " rank %d %s %s in ", finding->rank, finding->boundary == FB_ENTRY ? "began with" : "found", kind);
    if (finding->boundary == FB_LOCAL_GRAD) add(out, "the local gradient of ");
    if (finding->boundary == FB_REDUCED_GRAD && !fb_judge_made_of_reduced(finding)) add(out, "the reduced gradient of ");
    if (finding->boundary == FB_LOSS && strcmp(tensor, "loss") == 0 && finding->module.bytes == 0) add(out, "the loss");
    else add_finding(out, finding);
    if (finding->boundary == FB_UPDATE && fb_judge_taken(report, finding) == FB_ANSWER_NO)
        add(out, " of the update that was held back");
    else if (finding->boundary == FB_UPDATE) add(out, " %s the update", fb_judge_taken(report, finding) > 0 ? "after" : "of");
    if (fb_judge_made_of_reduced(finding)) add(out, " after the reduction");
    add(out, ".");
}

static void tell_place(sentence *out, const fb_report *report)
{
    const fb_located *located = report->located;
    const fb_told *told = located ? located->place : NULL;
    int32_t found = told && !told->doubt[0] ? located->found : FB_LOCATED_NOTHING;
    static const char *const apart[] = {"the replicas were compared over the ranks and had drifted apart",
                                        "the ranks voted on different steps", "the ranks voted with different loss scales",
                                        "the ranks voted under different policies"};
    if (report->first == UINT64_MAX && report->drift[0]) {
        add_when(out, report, report->step, -1);
        add(out, " %s.", apart[report->parted]);
    } else if (report->first == UINT64_MAX) {
        add_when(out, report, report->step, -1);
        add(out, " an update was judged bad, and no finding of it is recorded.");
    } else if (found == FB_LOCATED_OPERATOR) place_of_operator(out, report, told);
    else if (found == FB_LOCATED_SET) place_of_set(out, report, told);
    else if (found == FB_LOCATED_INTERVAL && told->file.candidates.count) place_of_interval(out, report, told);
    else if (found == FB_LOCATED_ENTRY) place_of_entry(out, report, told);
    else place_of_finding(out, report, &report->findings[report->first].rec);
}

/* ---- why --------------------------------------------------------------------------------------------------------------------- */

/* And not with a name such as "h.3.attn", which is written as it is. */
static int begins_with_a_word(const char *text)
{
    size_t n = strcspn(text, " ");
    for (size_t i = 0; i < n; i++) {
        if (text[i] < 'a' || text[i] > 'z') return 0;
    }
    return n > 0;
}

static void tell_not_known(sentence *out, const fb_report *report)
{
    const fb_located *located = report->located;
    const fb_rec_finding *first = &report->findings[report->first].rec;
    if (!located || !located->place) {
        if (first->boundary == FB_UPDATE) add(out, "Its gradients had passed the gate.");
        else add(out, "It was not replayed, so what made it is not known.");
        return;
    }
    switch (located->found) {
    case FB_LOCATED_UNDECIDED:
    case FB_LOCATED_NOTHING: add(out, "It was replayed, and what made it could not be shown."); break;
    default: break; /* the place, or the sentence on replays, says it */
    }
}

static void tell_why(sentence *out, const fb_report *report)
{
    fb_cause_words words = fb_cause_words_of(report);
    const char *told = fb_explanation_alone(report, words.explanation);
    size_t n = strlen(told), at;
    if (report->first == UINT64_MAX && !report->drift[0]) return;
    if (strcmp(words.name, "undecidable") == 0) {
        tell_not_known(out, report);
        return;
    }
    if (report->located && report->located->found == FB_LOCATED_ENTRY && report->located->place->file.cause.rule == FB_RULE_STATE)
        return; /* the place says it */
    if (n == 0 || n + 60 > sizeof out->text) return;
    if (!words.certain) add(out, "What fits best, and is not proven: ");
    at = out->used;
    add(out, "%s%s", told, told[n - 1] == '.' ? "" : ".");
    if (words.certain && begins_with_a_word(told)) out->text[at] = (char)toupper((unsigned char)out->text[at]);
}

/* ---- what was decided -------------------------------------------------------------------------------------------------------- */

static void add_halt(sentence *out, const fb_report *report)
{
    if (report->case_action != FB_HALT) return;
    add(out, "; the run was halted");
    if (report->case_last_step > report->step) add(out, " at step %lld", (long long)report->case_last_step);
}

static void tell_withheld(sentence *out, const fb_report *report)
{
    uint64_t changed = report->proofs_compared - report->proofs_equal;
    if (report->withheld_on) {
        add(out, "The update was withheld");
        add_ranks(out, report, report->withheld_on);
        if (report->applied_on) add(out, " and applied");
        if (report->applied_on) add_ranks(out, report, report->applied_on);
    } else if (report->applied_on) {
        add(out, "The update was to be withheld, and was applied");
        add_ranks(out, report, report->applied_on);
    } else {
        add(out, "The update was to be withheld, and whether it was is not recorded");
    }
    if (changed) {
        add(out, ", yet the state changed");
        add_ranks(out, report, changed);
    } else if (report->world > 0 && report->proofs_compared == (uint64_t)report->world && !report->applied_on) {
        add(out, ", and digests show that nothing changed");
    }
    add_halt(out, report);
    add(out, ".");
}

static void tell_decided(sentence *out, const fb_report *report)
{
    if (report->action < 0 && report->has_no_vote && report->no_vote_step == report->step) {
        add(out, "No rank could read the vote of that step, so none applied the update.");
    } else if (report->action < 0) {
        add(out, "What was decided is not recorded.");
    } else if (report->action != FB_PROCEED) {
        tell_withheld(out, report);
    } else if (report->applied_on) {
        add(out, "The update was applied");
        add_ranks(out, report, report->applied_on);
        add_halt(out, report);
        add(out, ".");
    } else {
        add(out, "The decision was to go on, and whether the update was applied is not recorded.");
    }
}

/* ---- again, and what next ---------------------------------------------------------------------------------------------------- */

static void tell_again(sentence *out, const fb_report *report)
{
    const fb_located *located = report->located;
    const fb_locate_file *replay = located && located->replay ? &located->replay->file : NULL;
    const fb_locate_file *batch = located && located->batch ? &located->batch->file : NULL;
    uint32_t rows, k, n;
    if (!replay) return;
    /* One sentence, one replay, or several that did the same as the run. */
    if (batch && batch != replay && !(batch->replay.faithful == 1 && replay->replay.faithful == 1)) batch = NULL;
    rows = batch ? batch->minimise.rows_needed : 0;
    k = replay->replay.reproduced;
    n = replay->replay.tried;
    if (k == 0 && n == 1) add(out, "The one replay did not show it again");
    else if (k == 0) add(out, "None of %u replays showed it again", n);
    else if (k == n && n == 1) add(out, "A replay showed it again");
    else if (k == n && n == 2) add(out, "Both replays showed it again");
    else if (k == n) add(out, "All %u replays showed it again", n);
    else add(out, "%u of %u replays showed it again", k, n);
    if (located->found == FB_LOCATED_NOT_REPRODUCED) add(out, ", so no operator is named");
    else if (located->found == FB_LOCATED_NOT_STEADY) add(out, ", and they contradict each other, so no operator is named");
    else if (k && rows && batch->minimise.rest_shows == 1)
        add(out, "; it takes no sample in particular: the others show it as well");
    else if (k && rows == 1) add(out, "; one sample is enough");
    else if (k && rows > 1 && batch->minimise.coupled) add(out, "; it takes %u samples together", rows);
    else if (k && rows > 1) add(out, "; %u samples are enough", rows);
    add(out, ".");
}

static void tell_next(sentence *out, const fb_report *report)
{
    int halted = report->case_action == FB_HALT || report->run.exit_halted == 1;
    int state_bad = report->parameters == FB_ANSWER_YES || report->optimizer_state == FB_ANSWER_YES;
    const char *joint = report->resume == UINT64_MAX ? "; leave out" : " and leave out";
    const int64_t *ids;
    uint64_t kept, count;
    if (!halted && !state_bad && report->withheld_on && !report->applied_on && fb_went_on(report)) {
        add(out, "Training went on.");
        return;
    }
    fb_skip_samples(report, &ids, &kept, &count);
    if (report->first != UINT64_MAX && report->findings[report->first].rec.injected) kept = 0;
    if (report->resume == UINT64_MAX) add(out, "No checkpoint is known to be safe");
    else add(out, "Resume from the checkpoint of step %lld", (long long)report->checkpoints[report->resume].step);
    if (kept && count == 1) add(out, "%s sample %lld", joint, (long long)ids[0]);
    else if (kept) add(out, "%s %llu samples", joint, (unsigned long long)count);
    add(out, ".");
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

void fb_why_happened(const fb_report *report, fb_phrase *phrase)
{
    static const int goes_first[] = {WHY, AGAIN, NEXT};
    sentence parts[SENTENCES];
    size_t total = 0;
    memset(parts, 0, sizeof parts);
    tell_place(&parts[PLACE], report);
    tell_why(&parts[WHY], report);
    tell_decided(&parts[DECIDED], report);
    tell_again(&parts[AGAIN], report);
    tell_next(&parts[NEXT], report);
    for (int i = 0; i < SENTENCES; i++) total += parts[i].used ? parts[i].used + 1 : 0;
    for (size_t i = 0; i < sizeof goes_first / sizeof *goes_first && total > FB_HAPPENED_BYTES_MAX; i++) {
        total -= parts[goes_first[i]].used ? parts[goes_first[i]].used + 1 : 0;
        parts[goes_first[i]].used = 0;
    }
    for (int i = 0; i < SENTENCES; i++) {
        if (parts[i].used) fb_phrase_add(phrase, "%s%s", phrase->used ? " " : "", parts[i].text);
    }
}
