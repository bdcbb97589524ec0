/* What is said in the end, the same on all ranks but for the values, which only the owner of the origin has; that one writes. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "evidence/site.h"
#include "locate/cause_inside.h"
#include "locate/locate_inside.h"
#include "locate/locate_json.h"
#include "locate/op_title.h"

static void put(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from);
}

/* The origin; of an interval, the last candidate. */
static void name_place(fb_locate *l, const fb_origin *origin)
{
    const fb_row *row = &l->row;
    fb_locate_result *r = l->result;
    if (origin->node == FB_FLOW_NONE) {
        put(r->module, sizeof r->module, fb_row_text(row, row->module[origin->tensor]));
        r->boundary = fb_row_boundary(row, origin->tensor);
        r->micro_step = -1;
    } else {
        const fb_row_node *of = &row->node[origin->node];
        put(r->module, sizeof r->module, fb_row_text(row, of->module));
        put(r->op, sizeof r->op, fb_row_text(row, of->op));
        put(r->source, sizeof r->source, fb_row_text(row, of->source));
        if (fb_locate_knows_node(r)) put(r->node, sizeof r->node, fb_row_text(row, of->node));
        r->boundary = of->boundary;
        r->micro_step = of->micro_step;
    }
    if (origin->tensor != FB_FLOW_NONE) put(r->tensor, sizeof r->tensor, fb_row_text(row, row->name[origin->tensor]));
}

static fb_status fill(fb_locate *l, fb_error *err)
{
    fb_locate_result *r = l->result;
    int32_t unfaithful = l->unfaithful || l->config->difference_count > 0;
    fb_status status = fb_ranks_any(&l->ranks, &unfaithful, err);
    r->found = l->found;
    r->reproduced = l->reproduced;
    r->tried = l->tried;
    r->replays = l->replays;
    r->candidates = l->origin_count;
    r->faithful = l->tried > 0 && !unfaithful;
    r->owner = -1;
    if (r->rows_rank < 0) r->rows_rank = l->config->finding_rank;
    if (l->origin_count == 0) return status;
    if (l->found == FB_LOCATED_INTERVAL) {
        name_place(l, &l->origins[l->origin_count - 1]);
    } else {
        name_place(l, &l->origins[0]);
        r->owner = l->origins[0].owner;
    }
    return status;
}

static void explain_reason(fb_locate *l)
{
    if (l->reason == FB_WHY_UNTESTABLE)
        fb_locate_note(
            l, "some tensors could not be looked at, or are masks behind something bad, so more than one origin is possible");
    if (l->reason == FB_WHY_BUDGET) fb_locate_note(l, "the search was given no more replays");
    if (l->found == FB_LOCATED_NOT_STEADY) fb_locate_note(l, "replays of the same step differ, so nobody is named");
}

/* ---- one paragraph ----------------------------------------------------------------------------------------------------------- */

/* Of no module of the model: an operator of the root itself, or of the program around it. */
static void say_module(char *out, size_t room, const char *module)
{
    out[0] = '\0';
    if (module[0]) fb_say(out, room, "of \"%.120s\"", module);
    else fb_say(out, room, "at the top level");
}

static void say_origin(const fb_locate *l, const fb_origin *origin, char *out, size_t room)
{
    const fb_row *row = &l->row;
    char module[160];
    out[0] = '\0';
    if (origin->node == FB_FLOW_NONE) {
        say_module(module, sizeof module, fb_row_text(row, row->module[origin->tensor]));
        fb_say(out, room, "\"%.80s\" %s, which was there before the step", fb_row_text(row, row->name[origin->tensor]), module);
    } else {
        const fb_row_node *of = &row->node[origin->node];
        const char *source = fb_row_text(row, of->source);
        char title[136];
        say_module(module, sizeof module, fb_row_text(row, of->module));
        fb_say(out, room, "%.130s %s (%s, micro-step %d%s%.160s)",
               fb_op_title_text(title, sizeof title, fb_row_text(row, of->op), fb_row_text(row, of->node)), module,
               fb_boundary_name(of->boundary), of->micro_step, source[0] ? ", " : "", source);
    }
}

static void say_interval(const fb_locate *l, char *text, size_t room)
{
    char first[480], last[480];
    say_origin(l, &l->origins[0], first, sizeof first);
    say_origin(l, &l->origins[l->origin_count - 1], last, sizeof last);
    if (l->origin_count == 1)
        fb_say(text, room, "It points to %s, but not all of that could be seen, or seen a second time, so it is not named.", last);
    else
        fb_say(
            text, room,
            "It is one of %u places, from %s to %s; what would tell them apart could not be seen, so none is named and no cause is "
            "given.",
            l->origin_count, first, last);
}

/* The explanation names the operator too, which has just been named. */
static const char *without_place(const fb_locate *l, const char *because)
{
    char place[256];
    size_t bytes = strlen(fb_say_place(place, sizeof place, &l->witness.place));
    if (!l->has_witness || strncmp(because, place, bytes) != 0 || because[bytes] != ':' || because[bytes + 1] != ' ') return NULL;
    return because + bytes + 2;
}

/* A mask of -Inf that is meant to be there is no bad number, and no finite one either. */
static const char *what_it_read(const fb_locate *l)
{
    const fb_row *row = &l->row;
    uint32_t node = l->origins[0].node;
    for (uint64_t e = row->first[node]; e < row->first[node + 1]; e++) {
        if (l->seen[row->inputs[e]] == FB_SEEN_NEG_INF) return "finite numbers and an intended mask of -Inf";
    }
    return "finite numbers";
}

static void say_operators(const fb_locate *l, char *text, size_t room, const char *because)
{
    const fb_locate_result *r = l->result;
    const char *why = without_place(l, because);
    char place[480];
    say_origin(l, &l->origins[0], place, sizeof place);
    if (r->found == FB_LOCATED_SET)
        fb_say(text, room, "%u operators failed by themselves, and none of them comes after another. The first: ", r->candidates);
    fb_say(text, room, "%s read %s on rank %d and made a non-finite \"%.80s\", in %u of %u replays", place, what_it_read(l),
           r->owner, r->tensor, r->reproduced, r->tried);
    if (why) fb_say(text, room, ": %s", why);
    else fb_say(text, room, because[0] ? ". %s" : ".%s", because);
}

/* What may have gone wrong as well is said, and never named as what was first. */
static void say_later(const fb_locate *l, char *text, size_t room)
{
    enum { SAID = 3 };
    const fb_row *row = &l->row;
    uint32_t said = l->later_count < SAID ? l->later_count : SAID;
    if (said) fb_say(text, room, " The same, or something of its own, may go wrong later at ");
    for (uint32_t i = 0; i < said; i++) {
        const fb_row_node *of = &row->node[l->later[i]];
        const char *between = i == 0 ? "" : i + 1 == said && l->result->later == said ? " and " : ", ";
        char title[136], module[160];
        say_module(module, sizeof module, fb_row_text(row, of->module));
        fb_say(text, room, "%s%.130s %s", between,
               fb_op_title_text(title, sizeof title, fb_row_text(row, of->op), fb_row_text(row, of->node)), module);
    }
    if (l->result->later > said) fb_say(text, room, " and %u more", l->result->later - said);
    if (said) fb_say(text, room, ".");
}

static int planted(const fb_locate *l)
{
    return l->config->finding_injected && l->found == FB_LOCATED_NOT_REPRODUCED;
}

static void say(fb_locate *l, const char *because)
{
    fb_locate_result *r = l->result;
    char later[640] = "";
    size_t room;
    say_later(l, later, sizeof later);
    room = sizeof r->sentence - strlen(later);
    r->sentence[0] = '\0';
    switch (l->found) {
    case FB_LOCATED_OPERATOR:
    case FB_LOCATED_SET: say_operators(l, r->sentence, room, because); break;
    case FB_LOCATED_INTERVAL: say_interval(l, r->sentence, room); break;
    case FB_LOCATED_ENTRY:
        if (because[0]) fb_say(r->sentence, room, "%s", because);
        else
            fb_say(r->sentence, room, "\"%.120s%s%.80s\" was not finite before the first operator ran; no operator is blamed.",
                   r->module, r->module[0] ? "." : "", r->tensor);
        break;
    case FB_LOCATED_NOT_REPRODUCED:
        if (planted(l)) fb_say(r->sentence, room, "%s", because);
        else fb_say(r->sentence, room, "The finding did not come again in %u replays. %s", r->tried, because);
        break;
    case FB_LOCATED_NOT_STEADY:
        fb_say(r->sentence, room, "The finding came again in %u of %u replays, which differ, so nobody is named. %s", r->reproduced,
               r->tried, because);
        break;
    case FB_LOCATED_UNDECIDED:
        fb_say(r->sentence, room, "It cannot be told where the finding comes from: %s.",
               l->notes[0] ? l->notes : "nothing was seen");
        break;
    default:
        fb_say(r->sentence, room, "The finding came again in %u of %u replays; its origin was not looked for.", r->reproduced,
               r->tried);
        break;
    }
    fb_say(r->sentence, sizeof r->sentence, "%s", later);
}

/* Nothing failed by itself: the guard was asked to plant it, and a replay, which has no guard, does not. */
static void explain_planted(const fb_locate *l, fb_cause *cause)
{
    memset(cause, 0, sizeof *cause);
    cause->row = cause->sample = cause->sample_id = -1;
    cause->rule = FB_RULE_NONE;
    cause->class_number = FB_CAUSE_UNKNOWN;
    cause->certain = 1;
    FB_EXPLAIN(
        cause,
        "The finding was planted by the guard, as it was asked to (--inject). A replay runs without it, so it did not come again "
        "in %u replays; nothing is wrong with the training.",
        l->tried);
    fb_say(cause->fix, sizeof cause->fix, "Nothing needs to be repaired; run it without --inject.");
}

/* The writer judges, for it has the values; the others are told. */
static fb_status judge(fb_locate *l, int32_t writer, fb_cause *cause, fb_error *err)
{
    fb_locate_result *r = l->result;
    int32_t told[2] = {FB_RULE_NONE, FB_CAUSE_UNKNOWN};
    fb_status status;
    memset(cause, 0, sizeof *cause);
    if ((l->config->parts & FB_LOCATE_CAUSE) && l->ranks.rank == writer) {
        fb_cause_facts facts;
        fb_cause_facts_of(&facts, l->config, r, &l->witness);
        fb_cause_judge(&facts, cause);
        if (planted(l)) explain_planted(l, cause);
        told[0] = cause->rule;
        told[1] = cause->class_number;
    }
    if ((status = fb_ranks_from(&l->ranks, writer, told, 2, err)) != FB_OK) return status;
    r->rule = told[0];
    put(r->cause_class, sizeof r->cause_class, fb_cause_class_of(told[1])->name);
    say(l, cause->explanation);
    return fb_ranks_text_from(&l->ranks, writer, r->sentence, sizeof r->sentence, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------------------- */

/* Sample ids of the rows that were left: of rank rows_rank, which need not be the one that writes. ids: [rows]. */
static fb_status share_samples(fb_locate *l, int64_t *ids, uint32_t rows, fb_error *err)
{
    for (uint32_t i = 0; i < rows; i++) {
        int32_t halves[2];
        fb_status status;
        halves[0] = l->config->sample_ids ? (int32_t)(l->config->sample_ids[i] >> 32) : 0;
        halves[1] = l->config->sample_ids ? (int32_t)(uint32_t)l->config->sample_ids[i] : 0;
        status = fb_ranks_from(&l->ranks, l->result->rows_rank, halves, 2, err);
        if (status != FB_OK) return status;
        ids[i] = (int64_t)((uint64_t)(uint32_t)halves[0] << 32 | (uint32_t)halves[1]);
    }
    return FB_OK;
}

/* The configuration as the writer needs it, with the batch of the rank whose rows were made few. */
static fb_status share_batch(fb_locate *l, fb_locate_config *config, int64_t **ids, fb_error *err)
{
    int32_t batch[3];
    fb_status status;
    memcpy(config, l->config, sizeof *config);
    *ids = NULL;
    if (l->ranks.world == 1) return FB_OK;
    batch[0] = (int32_t)config->rows;
    batch[1] = (int32_t)config->columns;
    batch[2] = config->sample_ids != NULL;
    if ((status = fb_ranks_from(&l->ranks, l->result->rows_rank, batch, 3, err)) != FB_OK) return status;
    if (batch[2]) *ids = fb_calloc((size_t)batch[0], sizeof **ids);
    status = batch[2] && !*ids ? fb_fail(err, FB_E_NOMEM, "locate: no memory for %d sample ids", batch[0]) : FB_OK;
    status = fb_ranks_agree(&l->ranks, status, err);
    if (status == FB_OK && *ids) status = share_samples(l, *ids, (uint32_t)batch[0], err);
    config->rows = (uint32_t)batch[0];
    config->columns = (uint32_t)batch[1];
    config->sample_ids = *ids;
    return status;
}

/* What another rank saw of a difference belongs into the file as well. */
static fb_status share_difference(fb_locate *l, int32_t writer, fb_error *err)
{
    char sentence[256] = "";
    int32_t from;
    fb_status status = fb_ranks_lowest(&l->ranks, l->difference_count > 0, &from, err);
    if (status != FB_OK || from < 0) return status;
    if (l->ranks.rank == from) snprintf(sentence, sizeof sentence, "rank %d: %.230s", from, l->differences[0]);
    status = fb_ranks_text_from(&l->ranks, from, sentence, sizeof sentence, err);
    if (l->ranks.rank == writer && from != writer) fb_locate_differ(l, sentence);
    return status;
}

static fb_status write_files(fb_locate *l, const fb_locate_config *config, const fb_cause *cause, fb_error *err)
{
    const char *all[FB_DIFFERENCES_MAX];
    const char **differences = all;
    uint32_t count = config->difference_count + l->difference_count;
    fb_locate_doc doc;
    fb_status status;
    if (count > FB_DIFFERENCES_MAX) differences = fb_calloc(count, sizeof *differences);
    if (!differences) return fb_fail(err, FB_E_NOMEM, "locate: no memory for %u differences", count);
    for (uint32_t i = 0; i < config->difference_count; i++) differences[i] = config->differences[i];
    for (uint32_t i = 0; i < l->difference_count; i++) differences[config->difference_count + i] = l->differences[i];
    memset(&doc, 0, sizeof doc);
    doc.config = config;
    doc.result = l->result;
    doc.witness = &l->witness;
    doc.cause = config->parts & FB_LOCATE_CAUSE ? cause : NULL;
    doc.differences = differences;
    doc.difference_count = count;
    doc.minimised = l->minimised;
    doc.minimise_tests = l->minimise_tests;
    doc.notes = l->notes[0] ? l->notes : NULL;
    status = fb_locate_write(l->os, &doc, err);
    if (differences != all) fb_free((void *)(uintptr_t)differences);
    return status;
}

fb_status fb_locate_conclude(fb_locate *l, fb_error *err)
{
    int32_t writer;
    fb_locate_config config;
    fb_cause *cause = fb_calloc(1, sizeof *cause);
    int64_t *ids = NULL;
    fb_status status = cause ? FB_OK : fb_fail(err, FB_E_NOMEM, "locate: no memory for a cause");
    explain_reason(l);
    status = fb_ranks_agree(&l->ranks, status, err);
    if (status == FB_OK) status = fill(l, err);
    writer = l->result->owner >= 0 ? l->result->owner : l->config->finding_rank;
    if (status == FB_OK && cause) status = judge(l, writer, cause, err);
    if (status == FB_OK) status = share_batch(l, &config, &ids, err);
    if (status == FB_OK) status = share_difference(l, writer, err);
    l->result->nanoseconds = (uint64_t)(l->os->monotonic_ns(l->os->ctx) - l->started_ns);
    if (status == FB_OK && config.folder && l->ranks.rank == writer) {
        fb_error why;
        fb_error_clear(&why);
        if (write_files(l, &config, cause, &why) != FB_OK && err) {
            *err = why;
            err->code = FB_OK; /* what was concluded stands, in `result` */
        }
    }
    /* Nobody goes on before the file is there. */
    if (status == FB_OK) status = fb_ranks_agree(&l->ranks, FB_OK, err);
    fb_free(ids);
    fb_free(cause);
    return status;
}
