#include "export_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "evidence/records.h"
#include "evidence/site.h"
#include "policy/gate.h"

static const char *const table_names[EXPORT_TABLES] = {"run", "sites", "steps", "findings", "verdicts", "events", "proofs"};

const char *export_table_name(int table)
{
    return table_names[table];
}

/* ---- fields ------------------------------------------------------------------------------------------------------------------ */

static export_field *add(export_row *row, const char *name, int type, int known)
{
    static export_field overflow;
    export_field *field = row->count < EXPORT_FIELDS_MAX ? &row->fields[row->count++] : &overflow;
    memset(field, 0, sizeof *field);
    field->name = name;
    field->type = type;
    field->known = known;
    return field;
}

static void integer(export_row *row, const char *name, int64_t value, int known)
{
    add(row, name, EXPORT_INTEGER, known)->integer = value;
}

/* Counts beyond 2^63 do not happen; a hostile one is unknown rather than negative. */
static void count(export_row *row, const char *name, uint64_t value)
{
    integer(row, name, (int64_t)value, value <= INT64_MAX);
}

static void real(export_row *row, const char *name, double value, int known)
{
    add(row, name, EXPORT_REAL, known)->real = value;
}

static void truth(export_row *row, const char *name, int value, int known)
{
    add(row, name, EXPORT_BOOL, known)->integer = value != 0;
}

static void text_bytes(export_row *row, const char *name, int type, const char *text, uint32_t bytes, int known)
{
    export_field *field = add(row, name, type, known && text);
    field->text = text;
    field->text_bytes = bytes;
}

static void text(export_row *row, const char *name, const char *value, int known)
{
    text_bytes(row, name, EXPORT_TEXT, value, value ? (uint32_t)strlen(value) : 0, known);
}

static void words(export_row *row, const char *name, fb_text value)
{
    text_bytes(row, name, EXPORT_TEXT, value.data, value.bytes, value.bytes > 0);
}

/* Text that is made here lives in the row. */
static char *scratch(export_row *row, size_t *room)
{
    *room = sizeof row->scratch - row->scratch_used;
    return row->scratch + row->scratch_used;
}

static void keep_scratch(export_row *row, const char *name, int type, char *from, size_t used, int known)
{
    text_bytes(row, name, type, from, (uint32_t)used, known);
    row->scratch_used += (uint32_t)used + 1;
}

static void hex(export_row *row, const char *name, uint64_t bits, int digits, int known)
{
    size_t room;
    char *at = scratch(row, &room);
    int n = snprintf(at, room, "0x%0*" PRIx64, digits, bits);
    keep_scratch(row, name, EXPORT_TEXT, at, n > 0 ? (size_t)n : 0, known);
}

/* A number with its bits beside it: SQLite turns NaN into NULL, and JSON has none. */
static void real_and_bits(export_row *row, const char *name, const char *bits_name, double value, int known)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    real(row, name, value, known);
    hex(row, bits_name, bits, 16, known);
}

static void numbers(export_row *row, const char *name, const int64_t *values, uint32_t n, int known)
{
    size_t room, used = 0;
    char *at = scratch(row, &room);
    used += (size_t)snprintf(at, room, "[");
    for (uint32_t i = 0; i < n && used + 24 < room; i++)
        used += (size_t)snprintf(at + used, room - used, "%s%" PRId64, i ? "," : "", values[i]);
    used += (size_t)snprintf(at + used, room - used, "]");
    keep_scratch(row, name, EXPORT_JSON, at, used, known);
}

static void boundaries(export_row *row, const char *name, uint32_t bits)
{
    size_t room, used = 0;
    char *at = scratch(row, &room);
    used += (size_t)snprintf(at, room, "[");
    for (int32_t b = FB_ENTRY; b <= FB_CHECKPOINT; b++) {
        if (bits & (1u << b))
            used += (size_t)snprintf(at + used, room - used, "%s\"%s\"", used > 1 ? "," : "", fb_boundary_name(b));
    }
    used += (size_t)snprintf(at + used, room - used, "]");
    keep_scratch(row, name, EXPORT_JSON, at, used, 1);
}

static void begin(export_row *row, int table, const export_origin *origin)
{
    row->table = table;
    row->count = 0;
    row->scratch_used = 0;
    integer(row, "attempt", origin->attempt, 1);
    integer(row, "rank", origin->rank, 1);
    count(row, "sequence", origin->sequence);
    integer(row, "time_unix_ns", (int64_t)origin->time_unix_ns, origin->time_unix_ns > 0 && origin->time_unix_ns <= INT64_MAX);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------ */

static void run_row(export_row *row, const export_origin *origin, fb_text key, fb_text value)
{
    begin(row, EXPORT_RUN, origin);
    words(row, "key", key);
    text_bytes(row, "value", EXPORT_TEXT, value.data, value.bytes, 1);
}

static void site_row(export_row *row, const export_origin *origin, const fb_rec_site *rec)
{
    begin(row, EXPORT_SITES, origin);
    integer(row, "site", rec->id, 1);
    words(row, "module", rec->module);
    words(row, "tensor", rec->tensor);
    words(row, "param_group", rec->group);
    text(row, "role", fb_role_name(rec->role), rec->role > 0);
    integer(row, "bucket", rec->bucket, rec->bucket >= 0);
    integer(row, "domain", rec->domain, 1);
    integer(row, "position", rec->position, 1);
    integer(row, "legal", rec->legal, 1);
    numbers(row, "shape", rec->shape, (uint32_t)rec->ndim, rec->ndim > 0);
}

static const char *level_name(int level)
{
    static const char *const names[] = {"none", "summary", "sampled", "full"};
    return level >= 0 && level <= FB_COVER_FULL ? names[level] : NULL;
}

static void coverage_fields(export_row *row, const fb_cover *cover)
{
    static const char *const levels[] = {NULL,
                                         "cover_entry_state",
                                         "cover_input",
                                         "cover_forward",
                                         "cover_loss",
                                         "cover_local_gradient",
                                         "cover_reduced_gradient",
                                         "cover_update",
                                         "cover_checkpoint"};
    static const char *const tensors[] = {NULL,
                                          "tensors_entry_state",
                                          "tensors_input",
                                          "tensors_forward",
                                          "tensors_loss",
                                          "tensors_local_gradient",
                                          "tensors_reduced_gradient",
                                          "tensors_update",
                                          "tensors_checkpoint"};
    for (int32_t b = FB_ENTRY; b <= FB_CHECKPOINT; b++) {
        text(row, levels[b], level_name(cover->level[b]), 1);
        integer(row, tensors[b], cover->tensors[b], 1);
    }
    integer(row, "exempt", cover->exempt, 1);
    integer(row, "absent", cover->absent, 1);
    integer(row, "unchecked", cover->unchecked, 1);
}

static void step_row(export_row *row, const export_origin *origin, const fb_rec_step *rec)
{
    uint32_t known = rec->known, flags = rec->flags;
    begin(row, EXPORT_STEPS, origin);
    integer(row, "step", rec->step, 1);
    integer(row, "micro_steps", rec->micro_steps, 1);
    integer(row, "global_batch_id", rec->global_batch_id, (known & FB_KNOWN_BATCH_ID) != 0);
    real(row, "learning_rate", rec->learning_rate, (known & FB_KNOWN_LEARNING_RATE) != 0);
    real_and_bits(row, "loss", "loss_bits", rec->loss, (known & FB_KNOWN_LOSS) != 0);
    real_and_bits(row, "grad_norm", "grad_norm_bits", rec->grad_norm, (known & FB_KNOWN_GRAD_NORM) != 0);
    real(row, "loss_scale_before", rec->loss_scale_before, (known & FB_KNOWN_LOSS_SCALE) != 0);
    real(row, "loss_scale_after", rec->loss_scale_after, (known & FB_KNOWN_LOSS_SCALE) != 0);
    text(row, "action", fb_action_name(rec->action), 1);
    text(row, "agreement", fb_agreement_name(rec->agreement), 1);
    truth(row, "unanimous", rec->unanimous, rec->unanimous >= 0);
    truth(row, "skipped", (flags & FB_STEP_SKIPPED) != 0, 1);
    truth(row, "applied", (flags & FB_STEP_APPLIED) != 0, 1);
    truth(row, "gated", (flags & FB_STEP_GATED) != 0, 1);
    truth(row, "probing", (flags & FB_STEP_PROBING) != 0, 1);
    truth(row, "deep", (flags & FB_STEP_DEEP) != 0, 1);
    truth(row, "entry_bad", (flags & FB_STEP_ENTRY_BAD) != 0, 1);
    text(row, "first_bad_stage", fb_boundary_name(rec->first_bad_stage), rec->first_bad_stage > 0);
    integer(row, "consecutive_skips", rec->consecutive_skips, 1);
    integer(row, "votes", rec->votes, 1);
    integer(row, "checkpoint_parent", rec->checkpoint_parent, (known & FB_KNOWN_CHECKPOINT_PARENT) != 0);
    hex(row, "batch_fingerprint", rec->batch_fingerprint, 16, (known & FB_KNOWN_BATCH_FINGERPRINT) != 0);
    hex(row, "rng_state_hash", rec->rng_state_hash, 16, (known & FB_KNOWN_RNG_HASH) != 0);
    count(row, "duration_ns", rec->duration_ns);
    count(row, "guard_ns", rec->guard_ns);
    count(row, "findings", rec->findings);
    integer(row, "batch_rows", (int64_t)rec->rows, rec->tokens > 0);
    integer(row, "tokens", (int64_t)rec->tokens, rec->tokens > 0);
    integer(row, "valid_tokens", (int64_t)rec->valid_tokens, rec->tokens > 0);
    integer(row, "token_min", rec->token_min, rec->tokens > 0);
    integer(row, "token_max", rec->token_max, rec->tokens > 0);
    integer(row, "sample_count", (int64_t)rec->sample_count, rec->sample_count > 0);
    numbers(row, "sample_ids", rec->sample_ids, rec->samples, rec->samples > 0);
    coverage_fields(row, &rec->cover);
}

static void finding_place(export_row *row, const fb_rec_finding *rec)
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = 0;
    if (rec->first_index != FB_NO_INDEX) n = fb_site_unravel(rec->shape, rec->ndim, rec->first_index, index);
    words(row, "host", rec->host);
    text(row, "boundary", fb_boundary_name(rec->boundary), 1);
    integer(row, "micro_step", rec->micro_step, 1);
    words(row, "module", rec->module);
    words(row, "tensor", rec->tensor);
    words(row, "param_group", rec->group);
    text(row, "role", fb_role_name(rec->role), rec->role > 0);
    text(row, "field", fb_field_name(rec->field), 1);
    integer(row, "bucket", rec->bucket, rec->bucket >= 0);
    integer(row, "position", rec->position, 1);
    integer(row, "site", rec->site, 1);
    text(row, "kind", fb_kind_name(rec->kind), 1);
    count(row, "count", rec->count);
    integer(row, "first_index", (int64_t)rec->first_index, rec->first_index != FB_NO_INDEX);
    numbers(row, "index_in_shape", index, (uint32_t)n, n > 0);
    numbers(row, "shape", rec->shape, (uint32_t)rec->ndim, rec->ndim > 0);
    text(row, "dtype", fb_dtype_name(rec->dtype), 1);
    hex(row, "bits", rec->first_bits, 2, rec->kind >= FB_KIND_NAN && rec->kind <= FB_KIND_NEG_INF);
}

static void finding_row(export_row *row, const export_origin *origin, int first_bad, const fb_rec_finding *rec)
{
    int ranged = rec->kind == FB_KIND_OUT_OF_RANGE, counted = rec->elements > 0;
    begin(row, EXPORT_FINDINGS, origin);
    truth(row, "frozen", first_bad, 1);
    integer(row, "step", rec->step, 1);
    finding_place(row, rec);
    integer(row, "value", rec->value, ranged);
    integer(row, "allowed_low", rec->low, ranged);
    integer(row, "allowed_high", rec->high, ranged);
    integer(row, "elements", (int64_t)rec->elements, counted);
    integer(row, "nan", (int64_t)rec->nan, counted);
    integer(row, "pos_inf", (int64_t)rec->pos_inf, counted);
    integer(row, "neg_inf", (int64_t)rec->neg_inf, counted);
    integer(row, "zero", (int64_t)rec->zero, counted);
    integer(row, "subnormal", (int64_t)rec->subnormal, counted);
    integer(row, "at_max", (int64_t)rec->at_max, counted);
    real(row, "abs_min", rec->abs_min, counted);
    real(row, "abs_max", rec->abs_max, counted);
    real(row, "sum_sq", rec->sum_sq, counted);
    integer(row, "sum_sq_exponent", rec->sum_sq_exponent, counted);
    real(row, "loss_scale", rec->loss_scale, 1);
    integer(row, "global_batch_id", rec->global_batch_id, rec->global_batch_id >= 0);
    hex(row, "batch_fingerprint", rec->batch_fingerprint, 16, rec->batch_fingerprint != 0);
    hex(row, "rng_state_hash", rec->rng_state_hash, 16, rec->rng_state_hash != 0);
    boundaries(row, "clean_before", rec->clean_before);
    boundaries(row, "sampled_before", rec->sampled_before);
    integer(row, "tensors_before", rec->tensors_before, 1);
    truth(row, "injected", rec->injected, 1);
}

static void verdict_row(export_row *row, const export_origin *origin, const fb_rec_verdict *rec)
{
    begin(row, EXPORT_VERDICTS, origin);
    integer(row, "step", rec->step, 1);
    integer(row, "vote", rec->vote, 1);
    text(row, "action", fb_action_name(rec->action), 1);
    text(row, "agreement", fb_agreement_name(rec->agreement), 1);
    truth(row, "unanimous", rec->unanimous, rec->unanimous >= 0);
    truth(row, "clean", rec->clean, 1);
    truth(row, "fault", rec->fault, 1);
    text(row, "reason", fb_gate_reason_name(rec->reason), 1);
    integer(row, "first_rank", rec->first_rank, rec->first_rank >= 0);
    text(row, "first_boundary", fb_boundary_name(rec->first_boundary), rec->first_boundary > 0);
    integer(row, "first_micro_step", rec->first_micro_step, rec->first_rank >= 0);
    integer(row, "first_position", rec->first_position, rec->first_rank >= 0);
    integer(row, "consecutive_skips", rec->consecutive_skips, 1);
    integer(row, "world", rec->world, rec->world > 0);
    count(row, "local_findings", rec->local_findings);
    numbers(row, "words", rec->words, 4, 1);
    words(row, "case_id", rec->case_id);
}

static void event_row(export_row *row, const export_origin *origin, const fb_rec_event *rec)
{
    begin(row, EXPORT_EVENTS, origin);
    truth(row, "frozen", origin->frozen, 1);
    integer(row, "step", rec->step, rec->step >= 0);
    text(row, "event", fb_event_name(rec->event), 1);
    integer(row, "a", rec->a, 1);
    integer(row, "b", rec->b, 1);
    words(row, "text", rec->text);
}

static void proof_row(export_row *row, const export_origin *origin, const fb_rec_proof *rec)
{
    static const char *const moments[] = {
        [FB_PROOF_DECISION] = "decision", [FB_PROOF_NEXT_BEGIN] = "next_begin", [FB_PROOF_REPLICAS] = "replicas"};
    int known = rec->moment >= FB_PROOF_DECISION && rec->moment <= FB_PROOF_REPLICAS;
    begin(row, EXPORT_PROOFS, origin);
    integer(row, "step", rec->step, 1);
    text(row, "moment", known ? moments[rec->moment] : NULL, known);
    truth(row, "equal", rec->equal, rec->equal >= 0);
    count(row, "tensors", rec->tensors);
    count(row, "bytes", rec->bytes);
    hex(row, "digest", rec->digest, 16, 1);
}

/* ---- records ----------------------------------------------------------------------------------------------------------------- */

union any_record {
    fb_rec_site site;
    fb_rec_step step;
    fb_rec_finding finding;
    fb_rec_verdict verdict;
    fb_rec_event event;
    fb_rec_proof proof;
};

void export_empty_row(export_row *row, int table)
{
    union any_record rec;
    export_origin origin;
    fb_text none = {NULL, 0};
    memset(&rec, 0, sizeof rec);
    memset(&origin, 0, sizeof origin);
    switch (table) {
    case EXPORT_RUN: run_row(row, &origin, none, none); break;
    case EXPORT_SITES: site_row(row, &origin, &rec.site); break;
    case EXPORT_STEPS: step_row(row, &origin, &rec.step); break;
    case EXPORT_FINDINGS: finding_row(row, &origin, 0, &rec.finding); break;
    case EXPORT_VERDICTS: verdict_row(row, &origin, &rec.verdict); break;
    case EXPORT_EVENTS: event_row(row, &origin, &rec.event); break;
    default: proof_row(row, &origin, &rec.proof); break;
    }
}

struct pair_ctx {
    const export_origin *origin;
    export_row *row;
    export_fn fn;
    void *ctx;
    int code;
};

static void each_pair(void *ctx, fb_text key, fb_text value)
{
    struct pair_ctx *pairs = ctx;
    if (pairs->code) return;
    run_row(pairs->row, pairs->origin, key, value);
    pairs->code = pairs->fn(pairs->ctx, pairs->row);
}

/* 1: `row` was filled. 0: the record does not decode. -1: nothing to export. */
static int fill(const fb_log_record *record, const export_origin *origin, export_row *row)
{
    union any_record rec;
    const void *p = record->payload;
    uint32_t n = record->bytes;
    switch (record->type) {
    case FB_REC_SITE:
        if (fb_rec_site_decode(p, n, &rec.site, NULL) != FB_OK) return 0;
        site_row(row, origin, &rec.site);
        return 1;
    case FB_REC_STEP:
        if (fb_rec_step_decode(p, n, &rec.step, NULL) != FB_OK) return 0;
        step_row(row, origin, &rec.step);
        return 1;
    case FB_REC_FINDING:
    case FB_REC_FIRST_BAD:
        if (fb_rec_finding_decode(p, n, &rec.finding, NULL) != FB_OK) return 0;
        finding_row(row, origin, record->type == FB_REC_FIRST_BAD, &rec.finding);
        return 1;
    case FB_REC_VERDICT:
        if (fb_rec_verdict_decode(p, n, &rec.verdict, NULL) != FB_OK) return 0;
        verdict_row(row, origin, &rec.verdict);
        return 1;
    case FB_REC_EVENT:
        if (fb_rec_event_decode(p, n, &rec.event, NULL) != FB_OK) return 0;
        event_row(row, origin, &rec.event);
        return 1;
    case FB_REC_PROOF:
        if (fb_rec_proof_decode(p, n, &rec.proof, NULL) != FB_OK) return 0;
        proof_row(row, origin, &rec.proof);
        return 1;
    default: return -1;
    }
}

int export_record(const fb_log_record *record, const export_origin *origin, export_row *row, export_fn fn, void *ctx, uint64_t *bad)
{
    struct pair_ctx pairs = {origin, row, fn, ctx, 0};
    int filled;
    if (record->type == FB_REC_RUN) {
        if (fb_rec_run_decode(record->payload, record->bytes, each_pair, &pairs, NULL) != FB_OK) ++*bad;
        return pairs.code;
    }
    filled = fill(record, origin, row);
    if (filled == 0) ++*bad;
    return filled == 1 ? fn(ctx, row) : 0;
}
