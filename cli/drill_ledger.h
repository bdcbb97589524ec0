/*
 * What the ledgers of all ranks of one attempt say, record by record, for comparing with what was planted. The report answers from
 * the same files for a person; a drill reads them by itself, so that an error of the report is a failed line and not a blind spot.
 */
#ifndef CLI_DRILL_LEDGER_H
#define CLI_DRILL_LEDGER_H

#include "evidence/records.h"
#include "os/os.h"

enum { DRILL_RANKS_MAX = 64, DRILL_NAME = 160, DRILL_CASE = 32 };

typedef struct drill_step {
    int64_t step;
    uint32_t flags;
    int32_t action, unanimous;
    uint64_t findings, duration_ns, guard_ns, tokens;
} drill_step;

typedef struct drill_verdict {
    int64_t step, words[4];
    int32_t vote, action, unanimous, fault, reason, first_rank, first_boundary, first_micro_step, consecutive_skips;
    char case_id[DRILL_CASE];
} drill_verdict;

typedef struct drill_finding {
    int64_t step;
    int32_t rank, boundary, micro_step, kind, field, injected, frozen;
    uint64_t count, index;
    int32_t ndim;
    int64_t shape[FB_DIMS_MAX];
    char name[DRILL_NAME]; /* module.tensor */
} drill_finding;

typedef struct drill_proof {
    int64_t step;
    int32_t moment, equal;
    uint64_t digest, tensors;
} drill_proof;

typedef struct drill_event {
    int64_t step;
    int32_t event;
} drill_event;

typedef struct drill_rank {
    int32_t present; /* the ledger is there and opens */
    int32_t closed, clean_tail;
    int64_t pid; /* -1: unknown */
    int64_t world, injections;
    int32_t has_pulse;
    fb_rec_pulse pulse;
    drill_step *steps;
    drill_verdict *verdicts;
    drill_finding *findings;
    drill_proof *proofs;
    drill_event *events;
    uint64_t step_count, verdict_count, finding_count, proof_count, event_count;
    uint64_t step_room, verdict_room, finding_room, proof_room, event_room;
} drill_rank;

typedef struct drill_world {
    int32_t ranks;
    uint64_t extra; /* ledgers of ranks that should not exist */
    drill_rank rank[DRILL_RANKS_MAX];
} drill_world;

/* Read ledger/aN of all ranks. A rank without a readable ledger is not present, which is no error
 * here. Errors: FB_E_NOMEM, FB_E_IO. */
fb_status drill_world_read(drill_world *world, const char *ledger, int32_t ranks, fb_error *err);
void drill_world_release(drill_world *world);

/* Only pid and pulse of one rank, while it runs. 1 when both are there. */
int drill_rank_peek(const char *ledger, int32_t rank, drill_rank *out);

const drill_step *drill_find_step(const drill_rank *rank, int64_t step);
/* The last, and so the deciding, verdict that is a fault or withheld something in that step. */
const drill_verdict *drill_find_verdict(const drill_rank *rank, int64_t step);
const drill_proof *drill_find_proof(const drill_rank *rank, int64_t step, int32_t moment);
/* The record in set-aside space of that step. */
const drill_finding *drill_find_frozen(const drill_rank *rank, int64_t step);
uint64_t drill_count_events(const drill_rank *rank, int32_t event);

#endif
