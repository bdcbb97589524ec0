/* See drill_ledger.h. */
#include "drill_ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "log/log.h"

/* Room for one more, zeroed. NULL when memory is gone. */
static void *grow(void **array, uint64_t *count, uint64_t *room, size_t size)
{
    if (*count == *room) {
        uint64_t wider = *room ? *room * 2 : 32;
        void *moved = fb_realloc(*array, (size_t)wider * size);
        if (!moved) return NULL;
        *array = moved;
        *room = wider;
    }
    void *slot = (char *)*array + *count * size;
    memset(slot, 0, size);
    (*count)++;
    return slot;
}

static void copy_text(char *out, size_t room, fb_text text)
{
    size_t n = text.bytes < room ? text.bytes : room - 1;
    if (n) memcpy(out, text.data, n);
    out[n] = '\0';
}

/* ---- one record -------------------------------------------------------------------------------------------------------------- */

static void take_pair(void *ctx, fb_text key, fb_text value)
{
    drill_rank *rank = ctx;
    char name[32], text[32];
    copy_text(name, sizeof name, key);
    copy_text(text, sizeof text, value);
    if (strcmp(name, "pid") == 0) rank->pid = strtoll(text, NULL, 10);
    if (strcmp(name, "world") == 0) rank->world = strtoll(text, NULL, 10);
    if (strcmp(name, "injections") == 0) rank->injections = strtoll(text, NULL, 10);
}

static int take_step(drill_rank *rank, const fb_log_record *record)
{
    fb_rec_step rec;
    drill_step *step;
    if (fb_rec_step_decode(record->payload, record->bytes, &rec, NULL) != FB_OK) return 1;
    step = grow((void **)&rank->steps, &rank->step_count, &rank->step_room, sizeof *step);
    if (!step) return 0;
    step->step = rec.step;
    step->flags = rec.flags;
    step->action = rec.action;
    step->unanimous = rec.unanimous;
    step->findings = rec.findings;
    step->duration_ns = rec.duration_ns;
    step->guard_ns = rec.guard_ns;
    step->tokens = rec.tokens;
    return 1;
}

static int take_finding(drill_rank *rank, const fb_log_record *record, int frozen)
{
    fb_rec_finding rec;
    drill_finding *finding;
    char module[DRILL_NAME / 2], tensor[DRILL_NAME / 2];
    if (fb_rec_finding_decode(record->payload, record->bytes, &rec, NULL) != FB_OK) return 1;
    finding = grow((void **)&rank->findings, &rank->finding_count, &rank->finding_room, sizeof *finding);
    if (!finding) return 0;
    copy_text(module, sizeof module, rec.module);
    copy_text(tensor, sizeof tensor, rec.tensor);
    (void)snprintf(finding->name, sizeof finding->name, "%s%s%s", module, module[0] && tensor[0] ? "." : "", tensor);
    finding->step = rec.step;
    finding->rank = rec.rank;
    finding->boundary = rec.boundary;
    finding->micro_step = rec.micro_step;
    finding->kind = rec.kind;
    finding->field = rec.field;
    finding->injected = rec.injected;
    finding->frozen = frozen;
    finding->count = rec.count;
    finding->index = rec.first_index;
    finding->ndim = rec.ndim;
    memcpy(finding->shape, rec.shape, sizeof finding->shape);
    return 1;
}

static int take_verdict(drill_rank *rank, const fb_log_record *record)
{
    fb_rec_verdict rec;
    drill_verdict *verdict;
    if (fb_rec_verdict_decode(record->payload, record->bytes, &rec, NULL) != FB_OK) return 1;
    verdict = grow((void **)&rank->verdicts, &rank->verdict_count, &rank->verdict_room, sizeof *verdict);
    if (!verdict) return 0;
    verdict->step = rec.step;
    memcpy(verdict->words, rec.words, sizeof verdict->words);
    verdict->vote = rec.vote;
    verdict->action = rec.action;
    verdict->unanimous = rec.unanimous;
    verdict->fault = rec.fault;
    verdict->reason = rec.reason;
    verdict->first_rank = rec.first_rank;
    verdict->first_boundary = rec.first_boundary;
    verdict->first_micro_step = rec.first_micro_step;
    verdict->consecutive_skips = rec.consecutive_skips;
    copy_text(verdict->case_id, sizeof verdict->case_id, rec.case_id);
    return 1;
}

static int take_proof(drill_rank *rank, const fb_log_record *record)
{
    fb_rec_proof rec;
    drill_proof *proof;
    if (fb_rec_proof_decode(record->payload, record->bytes, &rec, NULL) != FB_OK) return 1;
    proof = grow((void **)&rank->proofs, &rank->proof_count, &rank->proof_room, sizeof *proof);
    if (!proof) return 0;
    proof->step = rec.step;
    proof->moment = rec.moment;
    proof->equal = rec.equal;
    proof->digest = rec.digest;
    proof->tensors = rec.tensors;
    return 1;
}

static int take_event(drill_rank *rank, const fb_log_record *record)
{
    fb_rec_event rec;
    drill_event *event;
    if (fb_rec_event_decode(record->payload, record->bytes, &rec, NULL) != FB_OK) return 1;
    event = grow((void **)&rank->events, &rank->event_count, &rank->event_room, sizeof *event);
    if (!event) return 0;
    event->step = rec.step;
    event->event = rec.event;
    return 1;
}

/* 0 when memory is gone. */
static int take(drill_rank *rank, const fb_log_record *record, int frozen)
{
    switch (record->type) {
    case FB_REC_RUN: (void)fb_rec_run_decode(record->payload, record->bytes, take_pair, rank, NULL); return 1;
    case FB_REC_STEP: return take_step(rank, record);
    case FB_REC_FINDING:
    case FB_REC_FIRST_BAD: return take_finding(rank, record, frozen);
    case FB_REC_VERDICT: return take_verdict(rank, record);
    case FB_REC_PROOF: return take_proof(rank, record);
    case FB_REC_EVENT: return take_event(rank, record);
    case FB_REC_CLOSE: rank->closed = 1; return 1;
    default: return 1;
    }
}

/* ---- one ledger -------------------------------------------------------------------------------------------------------------- */

static fb_status open_ledger(fb_log_reader **reader, const char *ledger, int32_t rank)
{
    char path[FB_OS_PATH_MAX], name[32];
    fb_status status;
    *reader = NULL;
    (void)snprintf(name, sizeof name, "r%05d.log", rank);
    if ((status = fb_os_join(path, sizeof path, ledger, name, NULL)) != FB_OK) return status;
    return fb_log_reader_open(reader, fb_os_posix(), path, NULL);
}

static void read_pulse(fb_log_reader *reader, drill_rank *rank)
{
    fb_log_record record;
    if (fb_log_reader_pulse(reader, &record, NULL) != FB_OK) return;
    rank->has_pulse = fb_rec_pulse_decode(record.payload, record.bytes, &rank->pulse, NULL) == FB_OK;
}

static fb_status read_ledger(drill_rank *rank, const char *ledger, int32_t number, fb_error *err)
{
    fb_log_reader *reader;
    fb_log_record record;
    fb_log_tail tail;
    int memory = 1;
    rank->pid = rank->world = rank->injections = -1;
    if (open_ledger(&reader, ledger, number) != FB_OK) return FB_OK;
    rank->present = 1;
    read_pulse(reader, rank);
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS && memory; i++) {
        if (fb_log_reader_frozen(reader, i, &record, NULL) == FB_OK) memory = take(rank, &record, 1);
    }
    while (memory && fb_log_reader_next(reader, &record, NULL) == FB_OK) memory = take(rank, &record, 0);
    rank->clean_tail = fb_log_reader_tail(reader, &tail, NULL) == FB_OK && tail.kind == FB_LOG_TAIL_CLEAN && tail.lost == 0;
    fb_log_reader_close(reader);
    return memory ? FB_OK : fb_fail(err, FB_E_NOMEM, "read the ledger of rank %d: no memory", number);
}

fb_status drill_world_read(drill_world *world, const char *ledger, int32_t ranks, fb_error *err)
{
    fb_log_reader *reader;
    memset(world, 0, sizeof *world);
    world->ranks = ranks;
    for (int32_t i = 0; i < ranks; i++) {
        fb_status status = read_ledger(&world->rank[i], ledger, i, err);
        if (status != FB_OK) return status;
    }
    if (open_ledger(&reader, ledger, ranks) == FB_OK) world->extra++;
    fb_log_reader_close(reader);
    return FB_OK;
}

static void release_rank(drill_rank *rank)
{
    fb_free(rank->steps);
    fb_free(rank->verdicts);
    fb_free(rank->findings);
    fb_free(rank->proofs);
    fb_free(rank->events);
    memset(rank, 0, sizeof *rank);
}

void drill_world_release(drill_world *world)
{
    for (int32_t i = 0; i < world->ranks; i++) release_rank(&world->rank[i]);
}

int drill_rank_peek(const char *ledger, int32_t number, drill_rank *out)
{
    fb_log_reader *reader;
    fb_log_record record;
    memset(out, 0, sizeof *out);
    out->pid = -1;
    if (open_ledger(&reader, ledger, number) != FB_OK) return 0;
    read_pulse(reader, out);
    if (fb_log_reader_next(reader, &record, NULL) == FB_OK && record.type == FB_REC_RUN) (void)take(out, &record, 0);
    fb_log_reader_close(reader);
    return out->has_pulse && out->pid > 0;
}

/* ---- looking up -------------------------------------------------------------------------------------------------------------- */

const drill_step *drill_find_step(const drill_rank *rank, int64_t step)
{
    for (uint64_t i = 0; i < rank->step_count; i++) {
        if (rank->steps[i].step == step) return &rank->steps[i];
    }
    return NULL;
}

const drill_verdict *drill_find_verdict(const drill_rank *rank, int64_t step)
{
    for (uint64_t i = rank->verdict_count; i-- > 0;) {
        if (rank->verdicts[i].step == step) return &rank->verdicts[i];
    }
    return NULL;
}

const drill_proof *drill_find_proof(const drill_rank *rank, int64_t step, int32_t moment)
{
    for (uint64_t i = 0; i < rank->proof_count; i++) {
        if (rank->proofs[i].step == step && rank->proofs[i].moment == moment) return &rank->proofs[i];
    }
    return NULL;
}

const drill_finding *drill_find_frozen(const drill_rank *rank, int64_t step)
{
    for (uint64_t i = 0; i < rank->finding_count; i++) {
        if (rank->findings[i].frozen && rank->findings[i].step == step) return &rank->findings[i];
    }
    return NULL;
}

uint64_t drill_count_events(const drill_rank *rank, int32_t event)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < rank->event_count; i++) count += rank->events[i].event == event;
    return count;
}
