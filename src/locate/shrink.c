/*
 * The smallest batch that still shows it: rows of one rank first, then spans of tokens of the rows that are left. A
 * subset counts when the finding is bad in it and, where an operator was named, that operator is again the first: all of it seen in
 * the one replay. Anything else would make the batch of some other fault small.
 */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "search/minimise.h"

enum { TESTS_MAX = 200, SPANS_MAX = 4096 };

typedef struct shrinker {
    fb_locate *l;
    uint32_t tests_left;
    uint32_t rows, columns; /* of the batch */
    const uint32_t *kept;   /* [kept_count] rows that are left; NULL while rows are tried */
    uint32_t kept_count;
    uint32_t span;  /* tokens in one item */
    uint8_t *keep;  /* [kept_count x columns] of the subset at hand */
    int32_t played; /* of the last replay */
} shrinker;

/* ---- one subset -------------------------------------------------------------------------------------------------------------- */

static void keep_spans(shrinker *s, const uint32_t *items, uint32_t count)
{
    size_t tokens = (size_t)s->kept_count * s->columns;
    if (!s->keep) return;
    memset(s->keep, 0, tokens);
    for (uint32_t i = 0; i < count; i++) {
        size_t from = (size_t)items[i] * s->span, to = from + s->span;
        memset(s->keep + from, 1, (to < tokens ? to : tokens) - from);
    }
}

static fb_status play_subset(shrinker *s, const fb_subset *subset, int32_t *shows, fb_error *err)
{
    fb_locate *l = s->l;
    fb_tape_finding finding = {l->config->finding_module, l->config->finding_tensor, l->config->finding_boundary,
                               l->config->finding_micro_step};
    fb_replay_request request;
    int32_t not_here;
    fb_status status;
    fb_tape tape;
    fb_tape_init(&tape, FB_TAPE_SMALLER, &l->row, &finding);
    fb_locate_request(&request, FB_REPLAY_SMALLER);
    request.rows = s->kept ? s->kept : subset->items;
    request.row_count = s->kept ? s->kept_count : subset->count;
    request.rows_rank = l->result->rows_rank;
    request.column_count = s->columns;
    if (s->kept) {
        keep_spans(s, subset->items, subset->count);
        request.keep = s->keep;
    }
    fb_locate_want_nothing(l, &tape);
    fb_locate_want_witness(l, &tape, FB_WANT_LOOK);
    status = fb_locate_play(l, &tape, &request, &s->played, err);
    not_here = !fb_locate_holds(l, &tape);
    fb_tape_release(&tape);
    l->minimise_tests++;
    if (status == FB_OK) status = fb_ranks_any(&l->ranks, &not_here, err);
    *shows = s->played != FB_PLAYED ? FB_SHOWS_UNRESOLVED : not_here ? FB_SHOWS_NO : FB_SHOWS_YES;
    return status;
}

/* ---- one round of ddmin ------------------------------------------------------------------------------------------------------ */

/* known: all items together were seen to show it. The answers are those of all ranks, so every rank asks the same. */
static fb_status shrink_round(shrinker *s, fb_minimise *m, int known, fb_error *err)
{
    const fb_subset *subset;
    fb_status status = FB_OK;
    while (status == FB_OK && (subset = fb_minimise_ask(m)) != NULL) {
        int32_t shows = FB_SHOWS_YES;
        if (!known) status = play_subset(s, subset, &shows, err);
        known = 0;
        if (status == FB_OK && s->played == FB_PLAYED_NOT_SUPPORTED) return FB_OK;
        if (status == FB_OK) status = fb_ranks_agree(&s->l->ranks, fb_minimise_answer(m, shows, err), err);
    }
    return status;
}

static fb_status open_round(shrinker *s, uint32_t items, int known, fb_minimise **m, fb_error *err)
{
    fb_minimise_options options;
    memset(&options, 0, sizeof options);
    options.items = items;
    options.tests_max = s->tests_left + (known ? 1 : 0);
    s->played = FB_PLAYED;
    return fb_ranks_agree(&s->l->ranks, fb_minimise_open(m, &options, err), err);
}

static void spend(shrinker *s, uint32_t before)
{
    uint32_t used = s->l->minimise_tests - before;
    s->tests_left = used < s->tests_left ? s->tests_left - used : 0;
}

static fb_status take_rows(fb_locate *l, const fb_minimise_verdict *verdict, uint32_t columns, fb_error *err)
{
    fb_locate_result *result = l->result;
    result->rows = fb_calloc(verdict->count, sizeof *result->rows);
    if (!result->rows) return fb_fail(err, FB_E_NOMEM, "make the batch small: no memory for %u rows", verdict->count);
    memcpy(result->rows, verdict->items, (size_t)verdict->count * sizeof *result->rows);
    result->rows_needed = verdict->count;
    result->tokens_needed = (uint32_t)((uint64_t)verdict->count * columns);
    return FB_OK;
}

/*
 * A set that shows it proves that these rows suffice, and not that they are to blame: where the weights make the NaN, any row does.
 * So the others are run once without them.
 */
static fb_status try_the_rest(shrinker *s, fb_error *err)
{
    fb_locate_result *result = s->l->result;
    uint32_t rest = s->rows - result->rows_needed, kept = 0;
    uint32_t *rows = fb_calloc(rest, sizeof *rows);
    fb_subset subset = {rows, rest, 0};
    int32_t shows = FB_SHOWS_UNRESOLVED;
    fb_status status = rows ? FB_OK : fb_fail(err, FB_E_NOMEM, "make the batch small: no memory for %u rows", rest);
    status = fb_ranks_agree(&s->l->ranks, status, err);
    for (uint32_t row = 0, i = 0; rows && row < s->rows; row++) {
        if (i < result->rows_needed && result->rows[i] == row) i++;
        else rows[kept++] = row;
    }
    if (status == FB_OK) status = play_subset(s, &subset, &shows, err);
    if (status == FB_OK && shows != FB_SHOWS_UNRESOLVED) result->rows_alone = shows == FB_SHOWS_YES ? -1 : 1;
    fb_free(rows);
    return status;
}

static fb_status shrink_rows(shrinker *s, fb_error *err)
{
    fb_locate *l = s->l;
    uint32_t before = l->minimise_tests;
    const fb_minimise_verdict *verdict;
    fb_minimise *m = NULL;
    fb_status status = open_round(s, s->rows, 0, &m, err);
    if (status == FB_OK) status = shrink_round(s, m, 0, err);
    spend(s, before);
    if (status == FB_OK && s->played == FB_PLAYED_NOT_SUPPORTED) {
        fb_locate_note(l, "the trainer cannot leave out samples, so the batch was not made smaller");
    } else if (status == FB_OK) {
        verdict = fb_minimise_result(m);
        l->minimised = verdict->found;
        if (verdict->items) status = take_rows(l, verdict, s->columns, err);
        status = fb_ranks_agree(&l->ranks, status, err);
        if (status == FB_OK && verdict->found == FB_MINIMISE_MINIMAL && verdict->count < s->rows && s->tests_left) {
            before = l->minimise_tests;
            status = try_the_rest(s, err);
            spend(s, before);
        }
    }
    fb_minimise_free(m);
    return status;
}

static fb_status take_tokens(shrinker *s, const fb_minimise_verdict *verdict, fb_error *err)
{
    fb_locate_result *result = s->l->result;
    size_t tokens = (size_t)s->kept_count * s->columns;
    keep_spans(s, verdict->items, verdict->count);
    result->tokens_needed = 0;
    for (size_t i = 0; i < tokens; i++) result->tokens_needed += s->keep[i];
    if (result->tokens_needed == tokens) return FB_OK;
    result->keep = fb_calloc(tokens, 1);
    if (!result->keep) return fb_fail(err, FB_E_NOMEM, "make the batch small: no memory for %zu tokens", tokens);
    memcpy(result->keep, s->keep, tokens);
    return FB_OK;
}

static fb_status shrink_tokens(shrinker *s, fb_error *err)
{
    fb_locate *l = s->l;
    uint32_t before = l->minimise_tests;
    size_t tokens = (size_t)l->result->rows_needed * s->columns;
    const fb_minimise_verdict *verdict;
    fb_minimise *m = NULL;
    fb_status status = FB_OK;
    s->kept = l->result->rows;
    s->kept_count = l->result->rows_needed;
    s->span = (uint32_t)((tokens + SPANS_MAX - 1) / SPANS_MAX);
    s->keep = fb_calloc(tokens, 1);
    if (!s->keep) status = fb_fail(err, FB_E_NOMEM, "make the batch small: no memory for %zu tokens", tokens);
    status = fb_ranks_agree(&l->ranks, status, err);
    if (status == FB_OK) status = open_round(s, (uint32_t)((tokens + s->span - 1) / s->span), 1, &m, err);
    if (status == FB_OK) status = shrink_round(s, m, 1, err);
    spend(s, before);
    if (status == FB_OK && s->played == FB_PLAYED_NOT_SUPPORTED) {
        fb_locate_note(l, "the trainer cannot leave out tokens, so the samples were kept whole");
    } else if (status == FB_OK) {
        verdict = fb_minimise_result(m);
        if (verdict->found == FB_MINIMISE_BUDGET) l->minimised = FB_MINIMISE_BUDGET;
        if (verdict->items) status = take_tokens(s, verdict, err);
        status = fb_ranks_agree(&l->ranks, status, err);
    }
    fb_minimise_free(m);
    return status;
}

/* ---- when -------------------------------------------------------------------------------------------------------------------- */

static int depends_on_batch(const fb_locate *l)
{
    if (l->found == FB_LOCATED_ENTRY && l->origin_count) return !(l->row.flow_flags[l->origins[0].tensor] & FB_FLOW_STATE);
    return l->found == FB_LOCATED_OPERATOR || l->found == FB_LOCATED_SET || l->found == FB_LOCATED_INTERVAL ||
           (l->found == FB_LOCATED_NOTHING && l->reproduced > 0 && l->reproduced == l->tried);
}

/*
 * Whose rows? Those that the origin read, where it is one rank's own: behind a collective the finding is on every rank, and the
 * rows of the rank that was asked about it need not have any part in it. What a collective makes is of all ranks.
 */
static int32_t rank_of_rows(const fb_locate *l)
{
    const fb_origin *origin = &l->origins[0];
    int one = l->has_witness && (l->found == FB_LOCATED_OPERATOR || l->found == FB_LOCATED_ENTRY) && l->origin_count;
    if (!one) return l->config->finding_rank;
    if (origin->node != FB_FLOW_NONE && (l->row.node[origin->node].flags & FB_TAPE_COLLECTIVE)) return l->config->finding_rank;
    return origin->owner;
}

/* Rows of another micro-step than the origin's have no part in it, and all of them could be left out. */
static int of_another_micro_step(const fb_locate *l)
{
    const fb_origin *origin = &l->origins[0];
    return l->has_witness && l->found == FB_LOCATED_OPERATOR && l->row.node[origin->node].boundary <= FB_LOCAL_GRAD &&
           l->row.node[origin->node].micro_step != l->config->finding_micro_step;
}

fb_status fb_locate_shrink(fb_locate *l, fb_error *err)
{
    shrinker s;
    int32_t size[2];
    fb_status status;
    memset(&s, 0, sizeof s);
    if (!depends_on_batch(l)) return FB_OK;
    if (of_another_micro_step(l)) {
        fb_locate_note(l, "the origin lies in micro-step %d and the finding in micro-step %d, so the batch was not made smaller",
                       l->row.node[l->origins[0].node].micro_step, l->config->finding_micro_step);
        return FB_OK;
    }
    l->result->rows_rank = rank_of_rows(l);
    size[0] = (int32_t)l->config->rows;
    size[1] = (int32_t)l->config->columns;
    status = fb_ranks_from(&l->ranks, l->result->rows_rank, size, 2, err);
    if (status != FB_OK || size[0] <= 0 || size[0] > FB_MINIMISE_ITEMS_MAX) return status;
    s.l = l;
    s.rows = (uint32_t)size[0];
    s.columns = size[1] > 0 ? (uint32_t)size[1] : 0;
    if (s.rows == 1 && s.columns <= 1) return FB_OK; /* nothing to leave out */
    s.tests_left = l->config->tests_max ? l->config->tests_max : TESTS_MAX;
    status = shrink_rows(&s, err);
    if (status == FB_OK && l->result->rows_needed && s.columns > 1 && s.tests_left) status = shrink_tokens(&s, err);
    fb_free(s.keep);
    return status;
}
