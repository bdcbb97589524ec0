/*
 * From the evidence of one bad step: what was first, whether it spread, what was decided, what caused it. Nothing is claimed that
 * no record says; what is not known is left unknown, with the reason.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "evidence/site.h"
#include "policy/gate.h"
#include "report/inside.h"

/* ---- happens-before ---------------------------------------------------------------------------------------------------------- */

/*
 * Place in the program order of one rank: entry; the micro-steps, each from input to local gradients; what the collective gave
 * back; the state after the update; checkpoints. Backward runs from the loss down, so there the larger position comes first.
 */
static int phase(const fb_rec_finding *finding)
{
    switch (finding->boundary) {
    case FB_ENTRY: return 0;
    case FB_REDUCED_GRAD: return 2;
    case FB_UPDATE: return 3;
    case FB_CHECKPOINT: return 4;
    default: return 1;
    }
}

static int compare_int(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int program_order(const fb_rec_finding *a, const fb_rec_finding *b)
{
    int order = compare_int(phase(a), phase(b));
    int backward = a->boundary == FB_LOCAL_GRAD || a->boundary == FB_REDUCED_GRAD;
    if (order == 0 && phase(a) == 1) order = compare_int(a->micro_step, b->micro_step);
    if (order == 0) order = compare_int(a->boundary, b->boundary);
    if (order == 0) order = backward ? compare_int(b->position, a->position) : compare_int(a->position, b->position);
    if (order == 0) order = compare_int(a->site, b->site);
    return order ? order : compare_int(a->field, b->field);
}

static int same_text(fb_text a, fb_text b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

static int same_tensor(const fb_rec_finding *a, const fb_rec_finding *b)
{
    return same_text(a->module, b->module) && same_text(a->tensor, b->tensor);
}

/* Add a rank's earliest finding. What several ranks received from one collective is one place, named once. */
static void add_to_set(fb_report *report, uint64_t index)
{
    const fb_rec_finding *finding = &report->findings[index].rec;
    int received = finding->boundary == FB_REDUCED_GRAD && !fb_judge_made_of_reduced(finding);
    for (uint64_t i = 0; received && i < report->first_set_count; i++) {
        fb_report_finding *member = &report->findings[report->first_set[i]];
        if (same_tensor(&member->rec, finding)) {
            member->ranks++;
            return;
        }
    }
    report->first_set[report->first_set_count++] = index;
}

/* Of one rank: the finding that all others of this rank come after. */
static uint64_t earliest_of_rank(const fb_report *report, int32_t rank)
{
    uint64_t best = UINT64_MAX;
    for (uint64_t i = 0; i < report->finding_count; i++) {
        if (report->findings[i].rec.rank != rank) continue;
        if (best == UINT64_MAX || program_order(&report->findings[i].rec, &report->findings[best].rec) < 0) best = i;
    }
    return best;
}

/* By program order, then by rank: the order of files in a folder must not show. */
static void sort_set(fb_report *report)
{
    for (uint64_t i = 1; i < report->first_set_count; i++) {
        uint64_t index = report->first_set[i], k = i;
        const fb_rec_finding *finding = &report->findings[index].rec;
        for (; k > 0; k--) {
            const fb_rec_finding *before = &report->findings[report->first_set[k - 1]].rec;
            int order = program_order(before, finding);
            if (order < 0 || (order == 0 && before->rank <= finding->rank)) break;
            report->first_set[k] = report->first_set[k - 1];
        }
        report->first_set[k] = index;
    }
}

/*
 * Before the collective ranks do not know of each other: each rank's earliest finding is minimal. After it every rank may hold what
 * one of them sent, so findings there count only when no rank found anything before.
 */
static fb_status first_set(fb_report *report, fb_error *err)
{
    int before_collective = 0;
    if (report->finding_count == 0) return FB_OK;
    report->first_set = fb_calloc((size_t)report->finding_count, sizeof *report->first_set);
    if (!report->first_set) return fb_fail(err, FB_E_NOMEM, "load report: no memory for the set of first findings");
    for (uint64_t i = 0; i < report->finding_count; i++) before_collective |= phase(&report->findings[i].rec) < 2;
    for (uint64_t i = 0; i < report->finding_count; i++) {
        const fb_rec_finding *finding = &report->findings[i].rec;
        if (before_collective && phase(finding) >= 2) continue;
        if (earliest_of_rank(report, finding->rank) == i) add_to_set(report, i);
    }
    sort_set(report);
    return FB_OK;
}

/* The member that the ranks named in their vote, else the smallest. */
static void choose_first(fb_report *report)
{
    int32_t named = -1;
    for (uint64_t i = 0; i < report->rank_count && named < 0; i++) {
        if (report->ranks[i].has_verdict) named = report->ranks[i].first_rank;
    }
    if (report->first_set_count) report->first = report->first_set[0];
    for (uint64_t i = 0; i < report->first_set_count; i++) {
        if (report->findings[report->first_set[i]].rec.rank == named) report->first = report->first_set[i];
    }
}

/* ---- decision ---------------------------------------------------------------------------------------------------------------- */

/* A clean vote leaves no verdict record: what was found after it, in the state that the update left,
 * has the STEP record instead. */
int64_t fb_judge_since(const fb_report *report, const fb_rec_finding *finding)
{
    if (finding->boundary != FB_ENTRY && finding->boundary != FB_UPDATE) return finding->step;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (rank->rank != finding->rank) continue;
        /* Read whole on entry to this step, and bad after it: this step did it. */
        if (finding->boundary == FB_UPDATE && rank->has_step && rank->cover.level[FB_ENTRY] == FB_COVER_FULL) return finding->step;
        return rank->state_since;
    }
    return -1;
}

static void verdict_from_step(fb_report_rank *rank)
{
    if (rank->has_verdict || !rank->has_step) return;
    rank->has_verdict = 1;
    rank->action = rank->step_action;
    rank->agreement = rank->step_agreement;
    rank->unanimous = rank->step_unanimous;
    rank->reason = FB_REASON_CLEAN;
}

static void count_rank(fb_report *report, const fb_report_rank *rank)
{
    report->findings_total += rank->findings;
    report->findings_dropped += rank->findings_cut;
    if (rank->has_step) *(rank->step_flags & FB_STEP_APPLIED ? &report->applied_on : &report->withheld_on) += 1;
    else if (rank->has_verdict && rank->action != FB_PROCEED) report->withheld_on++;
    if (rank->proof) report->proofs++;
    if (rank->proof == 2) {
        report->proofs_compared++;
        report->proofs_equal += (uint64_t)(rank->proof_equal == 1);
    }
}

static void decision(fb_report *report)
{
    const fb_report_rank *spokesman = NULL;
    report->unanimous = -1;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        fb_report_rank *rank = &report->ranks[i];
        verdict_from_step(rank);
        count_rank(report, rank);
        if (!rank->has_verdict) continue;
        report->verdicts++;
        if (!spokesman || rank->rank == rank->first_rank) spokesman = rank;
    }
    if (report->findings_total < report->finding_count) report->findings_total = report->finding_count;
    if (!spokesman) return;
    report->action = spokesman->action;
    report->agreement = spokesman->agreement;
    report->unanimous = spokesman->unanimous;
    report->reason = spokesman->reason;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        report->agreed += (uint64_t)(report->ranks[i].has_verdict && report->ranks[i].action == spokesman->action);
    }
    if (report->case_action < report->action) report->case_action = report->action;
}

/* ---- witness and cause ------------------------------------------------------------------------------------------------------- */

static void list_boundaries(uint32_t bits, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t b = FB_ENTRY; b <= FB_CHECKPOINT && used < room; b++) {
        if (bits & (1u << b)) used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "", fb_boundary_text(b));
    }
}

/* The update was let through by clean votes: the finding carries no witness of its own, and coverage says what was checked. */
static int passed_the_gate(const fb_report *report, int32_t rank)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *entry = &report->ranks[i];
        if (entry->rank == rank) return entry->has_step && (entry->step_flags & FB_STEP_GATED) != 0;
    }
    return 0;
}

static void witness(fb_report *report, const fb_rec_finding *first)
{
    char clean[160], sampled[160], n[32];
    list_boundaries(first->clean_before, clean, sizeof clean);
    list_boundaries(first->sampled_before, sampled, sizeof sampled);
    if (first->boundary == FB_UPDATE && passed_the_gate(report, first->rank)) {
        fb_sentence(report->witness, "every gradient of that step was checked and finite, and every vote clean, before the update");
        return;
    }
    if (!clean[0] && !sampled[0] && first->tensors_before == 0) {
        fb_sentence(report->witness, "nothing before it was checked on this rank in this step; it is the first that was looked at");
        return;
    }
    fb_sentence(report->witness, "on this rank in this step %s tensor%s before it %s finite%s%s%s%s",
                fb_thousands(first->tensors_before, n), first->tensors_before == 1 ? "" : "s",
                first->tensors_before == 1 ? "was" : "were", clean[0] ? "; checked whole: " : "", clean,
                sampled[0] ? "; in part: " : "", sampled);
}

static void cause(fb_report *report, const char *class_name, const char *text, const char *fix)
{
    (void)snprintf(report->cause_class, sizeof report->cause_class, "%s", class_name);
    fb_sentence(report->cause, "%s", text);
    fb_sentence(report->fix, "%s", fix);
}

static void cause_out_of_range(fb_report *report, const fb_rec_finding *first)
{
    char text[FB_REPORT_TEXT_MAX];
    const char *class_name = first->field == FB_FIELD_POSITIONS                                   ? "position_out_of_range"
                             : first->field == FB_FIELD_TOKENS || first->field == FB_FIELD_LABELS ? "token_out_of_range"
                                                                                                  : "data_quality";
    fb_sentence(text, "the batch holds %lld in its %s, where %lld to %lld is allowed", (long long)first->value,
                fb_field_name(first->field), (long long)first->low, (long long)first->high);
    cause(report, class_name, text, "leave the sample out, and let the tokenizer and the model agree on that range");
}

static int local_gradients_were_clean(const fb_report *report)
{
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        if (!rank->has_step || rank->cover.level[FB_LOCAL_GRAD] != FB_COVER_FULL) return 0;
    }
    return report->rank_count > 0 && report->missing == 0;
}

static void cause_reduced(fb_report *report, const fb_rec_finding *first)
{
    if (fb_judge_made_of_reduced(first)) {
        cause(report, "undecidable",
              "it is no gradient: each rank made it from the reduced gradients, after the collective; how is not recorded", "");
    } else if (!local_gradients_were_clean(report)) {
        cause(report, "undecidable",
              "the local gradients were not all checked on all ranks, so whether one of them was bad before the collective is not "
              "known",
              "");
    } else if (first->kind == FB_KIND_NAN) {
        cause(report, "collective",
              "every local gradient was finite on every rank, and the reduced one is NaN: it came to be in the collective, or in "
              "what "
              "the program did with it before the check",
              "");
    } else {
        cause(report, "collective",
              "every local gradient was finite on every rank, and their sum is not: the sum left the number format in the "
              "collective, was corrupted there, or the program did it between the collective and the check",
              "divide by the number of ranks before the sum, or reduce in a wider format");
    }
}

static void cause_update(fb_report *report, const fb_rec_finding *first)
{
    int32_t taken = fb_judge_taken(report, first);
    const char *what = taken == FB_ANSWER_NO    ? "the update that was held back beside the state"
                       : taken == FB_ANSWER_YES ? "the state after the update"
                                                : "the update";
    char text[FB_REPORT_TEXT_MAX];
    fb_sentence(text, "the gradients passed the gate and %s is not finite: the optimizer made it, from what input is not recorded",
                what);
    cause(report, "undecidable", text, "");
}

static void judge_cause(fb_report *report, const fb_rec_finding *first)
{
    if (first->injected) {
        cause(report, "injected", "the guard planted it itself, as it was asked to", "");
        return;
    }
    if (first->kind == FB_KIND_ALL_IGNORED && first->field == FB_FIELD_MASK) {
        cause(report, "mask_full_row", "the mask of the batch lets no token of a row through, and a softmax over nothing is 0/0",
              "leave samples without a token out, or give rows that are masked whole a finite value");
        return;
    }
    if (first->kind == FB_KIND_ALL_IGNORED) {
        cause(report, "label_all_ignored", "no label of the batch counts, so its mean loss is 0/0",
              "leave batches without a valid label out, or divide by at least 1");
        return;
    }
    if (first->kind == FB_KIND_OUT_OF_RANGE) {
        cause_out_of_range(report, first);
        return;
    }
    if (first->kind == FB_KIND_DOMAIN) {
        cause(report, "domain_math", "a value lies outside the domain that was declared for this tensor", "");
        return;
    }
    switch (first->boundary) {
    case FB_INPUT:
        cause(report, "input_nonfinite", "the batch itself held it, before the model saw it",
              "leave the sample out, and check what wrote it");
        break;
    case FB_ENTRY:
        cause(report, first->role == FB_ROLE_MOMENT ? "optimizer_state" : "state_before_step",
              "the state was bad before this step began, so no layer of this step is to blame",
              "resume from a checkpoint that was saved before it");
        break;
    case FB_REDUCED_GRAD: cause_reduced(report, first); break;
    case FB_UPDATE: cause_update(report, first); break;
    default: cause(report, "undecidable", "undecidable from this evidence: what made it was not replayed", ""); break;
    }
}

/* Of a step without an end the finding still knows the batch; a STEP record that is read later says more. */
static void batch_from_finding(fb_report *report, const fb_rec_finding *first)
{
    fb_rec_step *step = &report->spokesman_step;
    step->global_batch_id = first->global_batch_id;
    step->batch_fingerprint = first->batch_fingerprint;
    step->rng_state_hash = first->rng_state_hash;
    if (first->global_batch_id >= 0) step->known |= FB_KNOWN_BATCH_ID;
    if (first->batch_fingerprint) step->known |= FB_KNOWN_BATCH_FINGERPRINT;
    if (first->rng_state_hash) step->known |= FB_KNOWN_RNG_HASH;
}

/* Ranks that differ in what must be equal: a cause of its own, beside which nothing needs to be bad. */
static void cause_apart(fb_report *report)
{
    fb_judge_replicas(report);
    if (!report->drift[0]) fb_judge_apart(report);
    if (!report->drift[0]) return;
    if (report->parted == FB_PARTED_REPLICAS) {
        cause(report, "replicas_differ", report->drift, "start all ranks again from one checkpoint that was saved before it");
    } else {
        cause(report, "ranks_disagree", report->drift,
              "give all ranks the same step, loss scale and policy, and start them again from one checkpoint");
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

fb_status fb_judge_case(fb_report *report, fb_error *err)
{
    const fb_rec_finding *first;
    fb_status status = first_set(report, err);
    if (status != FB_OK) return status;
    choose_first(report);
    decision(report);
    fb_judge_spread(report);
    cause_apart(report);
    if (report->first == UINT64_MAX && report->drift[0]) return FB_OK;
    if (report->first == UINT64_MAX) {
        cause(report, "undecidable", report->misuse_text[0] ? report->misuse_text : "no finding of this step could be read", "");
        return FB_OK;
    }
    first = &report->findings[report->first].rec;
    batch_from_finding(report, first);
    witness(report, first);
    judge_cause(report, first);
    if (report->findings[report->first].source == FB_SOURCE_CASE_FILE) {
        fb_notes_add(&report->notes, "the ledger of rank %d does not hold this finding; it was taken from the case folder",
                     first->rank);
    }
    return FB_OK;
}
