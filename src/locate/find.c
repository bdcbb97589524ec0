/*
 * The first replay, which tells what the step consists of, and the search in it. Under a sweep with no bound on what one replay may
 * look at, the first replay has looked at everything already and answers the first question of the search; the second is the
 * witness.
 */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* What an unbounded search may take: it needs some 4 + log2 L, and one for each place that cannot be told. */
enum { RECORD_TRIES = 2, SEARCH_REPLAYS = 64 };

/* ---- the first replay -------------------------------------------------------------------------------------------------------- */

/* Through which tensors can another rank's values come to the finding? Those from which a way to it leads through a collective. */
static void mark_far(fb_locate *l)
{
    enum { LEADS = 1, FAR = 2 };
    const fb_row *row = &l->row;
    if (l->finding == FB_FLOW_NONE) return;
    l->far[l->finding] = LEADS;
    for (uint32_t k = row->nodes; k-- > 0;) {
        const fb_row_node *node = &row->node[k];
        uint8_t way = 0;
        for (uint32_t i = 0; i < node->output_count; i++) way |= l->far[node->first_output + i];
        if (!way) continue;
        if (node->flags & FB_TAPE_COLLECTIVE) way |= FAR;
        for (uint64_t e = row->first[k]; e < row->first[k + 1]; e++) l->far[row->inputs[e]] |= way;
    }
    for (uint32_t t = 0; t < row->tensors; t++) l->far[t] = (l->far[t] & FAR) != 0;
}

static fb_status take_row(fb_locate *l, const fb_tape *tape, fb_error *err)
{
    size_t tensors = l->row.tensors;
    fb_status status = fb_row_finish(&l->row, err);
    if (status != FB_OK) return status;
    l->first_seen = fb_calloc(tensors, 1);
    l->seen = fb_calloc(tensors, 1);
    l->far = fb_calloc(tensors, 1);
    l->wanted = fb_calloc(tensors, 1);
    l->answers = fb_calloc(tensors, sizeof *l->answers);
    if (!l->first_seen || !l->seen || !l->far || !l->wanted || !l->answers)
        return fb_fail(err, FB_E_NOMEM, "locate: no memory for what is seen of %zu tensors", tensors);
    if (tensors) memcpy(l->first_seen, tape->seen, tensors);
    l->finding = tape->finding_id != FB_FLOW_NONE ? tape->finding_id : tape->finding_near;
    if (l->finding != FB_FLOW_NONE) l->first_seen[l->finding] = (uint8_t)fb_locate_of_finding(l, l->first_seen[l->finding]);
    mark_far(l);
    return FB_OK;
}

static fb_status undecided(fb_locate *l)
{
    l->found = FB_LOCATED_UNDECIDED;
    return FB_OK;
}

static fb_status settle_row(fb_locate *l, const fb_tape *tape, fb_error *err)
{
    int32_t same = 1, missing;
    fb_status status = fb_ranks_agree(&l->ranks, take_row(l, tape, err), err);
    if (status == FB_OK) status = fb_ranks_same(&l->ranks, l->row.digest, &same, err);
    if (status != FB_OK) return status;
    if (!same) {
        fb_locate_note(l, "the ranks ran different operators, so they cannot be looked at together");
        return undecided(l);
    }
    missing = l->finding == FB_FLOW_NONE;
    if (missing) {
        fb_locate_note(l, "the finding, %s of \"%s\", was not on the tape: no operator that was told of makes it",
                       l->config->finding_tensor, l->config->finding_module ? l->config->finding_module : "");
        return undecided(l);
    }
    if (tape->finding_id == FB_FLOW_NONE)
        fb_locate_note(l, "the finding was not on the tape in micro-step %d, and was looked at in another",
                       l->config->finding_micro_step);
    return fb_locate_count_finding(l, fb_tape_saw_finding(tape), err);
}

fb_status fb_locate_record(fb_locate *l, fb_error *err)
{
    const fb_locate_config *config = l->config;
    int search = (config->parts & FB_LOCATE_SEARCH) && !config->probes_max;
    fb_tape_finding finding = {config->finding_module, config->finding_tensor, config->finding_boundary,
                               config->finding_micro_step};
    int32_t played = FB_PLAYED_FAILED;
    fb_status status = FB_OK;
    fb_tape tape;
    fb_tape_init(&tape, FB_TAPE_RECORD, &l->row, &finding);
    for (int i = 0; i < RECORD_TRIES && status == FB_OK && played != FB_PLAYED && played != FB_PLAYED_NOT_SUPPORTED; i++) {
        fb_replay_request request;
        fb_locate_request(&request, FB_REPLAY_AGAIN);
        fb_tape_release(&tape);
        fb_row_release(&l->row);
        fb_tape_init(&tape, FB_TAPE_RECORD, &l->row, &finding);
        tape.look_all = search && config->strategy == FB_LOCATE_SWEEP;
        tape.entries_too = search;
        status = fb_locate_play(l, &tape, &request, &played, err);
    }
    if (status == FB_OK && played == FB_PLAYED) {
        l->result->search_replays = 1;
        status = settle_row(l, &tape, err);
    } else if (status == FB_OK) {
        if (played == FB_PLAYED_NOT_SUPPORTED)
            fb_locate_note(l, "the trainer cannot replay this step%s%s", l->refusal[0] ? ": " : "", l->refusal);
        status = undecided(l);
    }
    fb_tape_release(&tape);
    return status;
}

/* ---- the search -------------------------------------------------------------------------------------------------------------- */

static int was_seen_at_once(const fb_locate *l, const fb_question *question)
{
    for (uint32_t i = 0; i < question->count; i++) {
        if (!l->first_seen[question->tensors[i]]) return 0;
    }
    return 1;
}

static int asks_for_finding(const fb_locate *l, const fb_question *question)
{
    for (uint32_t i = 0; i < question->count; i++) {
        if (question->tensors[i] == l->finding) return 1;
    }
    return 0;
}

static fb_status play_question(fb_locate *l, const fb_question *question, fb_error *err)
{
    fb_tape_finding finding = {l->config->finding_module, l->config->finding_tensor, l->config->finding_boundary,
                               l->config->finding_micro_step};
    fb_replay_request request;
    int32_t played = FB_PLAYED_FAILED;
    fb_status status;
    fb_tape tape;
    fb_tape_init(&tape, FB_TAPE_COMPARE, &l->row, &finding);
    fb_locate_request(&request, FB_REPLAY_AGAIN);
    fb_locate_want_nothing(l, &tape);
    for (uint32_t i = 0; i < question->count; i++) fb_locate_want(l, &tape, question->tensors[i], FB_WANT_LOOK);
    status = fb_locate_play(l, &tape, &request, &played, err);
    l->result->search_replays++;
    for (uint32_t i = 0; i < question->count && status == FB_OK; i++) {
        l->answers[i] = played == FB_PLAYED ? fb_tape_saw(&tape, question->tensors[i]) : FB_SEEN_UNTESTABLE;
        if (question->tensors[i] == l->finding) l->answers[i] = fb_locate_of_finding(l, l->answers[i]);
    }
    if (status == FB_OK && played == FB_PLAYED && asks_for_finding(l, question))
        status = fb_locate_count_finding(l, fb_tape_saw(&tape, l->finding), err);
    fb_tape_release(&tape);
    return status;
}

/* What this rank saw is kept for the judge; what the search hears is the worst of those ranks whose tensor it is. */
static fb_status answer(fb_locate *l, fb_search *search, const fb_question *question, fb_error *err)
{
    fb_status status;
    for (uint32_t i = 0; i < question->count; i++) {
        fb_locate_saw(l, question->tensors[i], l->answers[i]);
        if (!fb_locate_counts(l, question->tensors[i])) l->answers[i] = FB_SEEN_NOT;
    }
    status = fb_ranks_max(&l->ranks, l->answers, question->count, err);
    return status == FB_OK ? fb_search_answer(search, l->answers, question->count, err) : status;
}

static fb_status ask_all(fb_locate *l, fb_search *search, fb_error *err)
{
    const fb_question *question;
    fb_status status = FB_OK;
    for (int first = 1; status == FB_OK && (question = fb_search_ask(search)) != NULL; first = 0) {
        if (first && was_seen_at_once(l, question)) {
            for (uint32_t i = 0; i < question->count; i++) l->answers[i] = l->first_seen[question->tensors[i]];
        } else {
            status = play_question(l, question, err);
        }
        if (status == FB_OK) status = answer(l, search, question, err);
    }
    return status;
}

/* With p probes a replay each tensor is looked at twice at most, p - 1 at a time beside the finding: search/bisect.h has the sum. A
   budget below that would end searches that were going to name somebody. */
static uint32_t replays_for(const fb_locate *l)
{
    uint64_t each = l->config->probes_max > 1 ? l->config->probes_max - 1 : 1;
    uint64_t most = SEARCH_REPLAYS;
    if (l->config->replays_max) return l->config->replays_max;
    if (l->config->probes_max) most += (2 * (uint64_t)l->row.tensors + 2 + each - 1) / each;
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

fb_status fb_locate_search(fb_locate *l, fb_error *err)
{
    const fb_locate_config *config = l->config;
    fb_search_options options;
    fb_search *search = NULL;
    fb_status status;
    memset(&options, 0, sizeof options);
    options.finding = l->finding;
    options.strategy = config->strategy == FB_LOCATE_BISECT ? FB_SEARCH_BISECT : FB_SEARCH_SWEEP;
    options.probes_max = config->probes_max;
    options.replays_max = replays_for(l);
    options.repeats = l->times;
    status = fb_ranks_agree(&l->ranks, fb_search_open(&search, &l->row.flow, &options, err), err);
    if (status == FB_OK) status = ask_all(l, search, err);
    if (status == FB_OK) status = fb_locate_judge(l, search, err);
    fb_search_free(search);
    return status;
}
