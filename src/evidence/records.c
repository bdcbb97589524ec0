#include "evidence/records.h"

#include <string.h>

#include "base/codec.h"
#include "base/status.h"

enum { RECORD_VERSION = 1, RUN_KEY_MAX = 255, RUN_VALUE_MAX = 4096 };

/* Every payload opens with its version. A later version has more fields at the end, so any version from 1 up is readable. */
static void version(fb_codec *codec)
{
    uint16_t value = RECORD_VERSION;
    fb_codec_u16(codec, &value);
    if (value == 0) codec->failed = 1;
}

static void text(fb_codec *codec, fb_text *value, uint32_t max)
{
    fb_codec_text(codec, &value->data, &value->bytes, max);
}

static uint32_t written(const fb_codec *codec)
{
    return codec->failed ? 0 : (uint32_t)codec->used;
}

static fb_status done_reading(const fb_codec *codec, const char *what, fb_error *err)
{
    if (!codec->failed) return FB_OK;
    return fb_fail_at(err, codec->used, "decode %s record: expected more than the %zu bytes of its payload", what, codec->room);
}

/* ---- RUN --------------------------------------------------------------------------------------------------------------------- */

uint32_t fb_rec_run_encode(uint8_t *out, uint32_t room, const fb_pair *pairs, uint64_t n)
{
    fb_codec codec;
    uint32_t count = (uint32_t)n;
    fb_codec_write(&codec, out, room);
    version(&codec);
    fb_codec_u32(&codec, &count);
    for (uint64_t i = 0; i < n; i++) {
        const char *key = pairs[i].key ? pairs[i].key : "";
        const char *value = pairs[i].value ? pairs[i].value : "";
        uint32_t key_bytes = (uint32_t)strlen(key), value_bytes = (uint32_t)strlen(value);
        fb_codec_text(&codec, &key, &key_bytes, RUN_KEY_MAX);
        fb_codec_text(&codec, &value, &value_bytes, RUN_VALUE_MAX);
    }
    return written(&codec);
}

fb_status fb_rec_run_decode(const uint8_t *payload, uint32_t bytes, void (*each)(void *, fb_text key, fb_text value), void *ctx,
                            fb_error *err)
{
    fb_codec codec;
    uint32_t count = 0;
    fb_codec_read(&codec, payload, bytes);
    version(&codec);
    fb_codec_u32(&codec, &count);
    for (uint32_t i = 0; i < count && !codec.failed; i++) {
        fb_text key = {NULL, 0}, value = {NULL, 0};
        text(&codec, &key, RUN_KEY_MAX);
        text(&codec, &value, RUN_VALUE_MAX);
        if (!codec.failed) each(ctx, key, value);
    }
    return done_reading(&codec, "run", err);
}

/* ---- the visitors: each names the fields of one payload in their order ------------------------------------------------------- */

static void shape(fb_codec *codec, int32_t *ndim, int64_t dims[FB_DIMS_MAX])
{
    fb_codec_i32(codec, ndim);
    if (*ndim < 0 || *ndim > FB_DIMS_MAX) {
        codec->failed = 1;
        return;
    }
    for (int32_t i = 0; i < *ndim; i++) fb_codec_i64(codec, &dims[i]);
}

static void visit_site(fb_codec *codec, fb_rec_site *rec)
{
    version(codec);
    fb_codec_u32(codec, &rec->id);
    fb_codec_i32(codec, &rec->role);
    fb_codec_i32(codec, &rec->bucket);
    fb_codec_i32(codec, &rec->domain);
    fb_codec_u32(codec, &rec->legal);
    fb_codec_i64(codec, &rec->position);
    shape(codec, &rec->ndim, rec->shape);
    text(codec, &rec->module, 1023);
    text(codec, &rec->tensor, 1023);
    text(codec, &rec->group, 1023);
}

static void visit_cover(fb_codec *codec, fb_cover *cover)
{
    for (int i = 1; i < 9; i++) {
        fb_codec_u8(codec, &cover->level[i]);
        fb_codec_u32(codec, &cover->tensors[i]);
    }
    fb_codec_u32(codec, &cover->exempt);
    fb_codec_u32(codec, &cover->absent);
    fb_codec_u32(codec, &cover->unchecked);
}

static void visit_step(fb_codec *codec, fb_rec_step *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->micro_steps);
    fb_codec_u32(codec, &rec->known);
    fb_codec_u32(codec, &rec->flags);
    fb_codec_i32(codec, &rec->action);
    fb_codec_i32(codec, &rec->agreement);
    fb_codec_i32(codec, &rec->unanimous);
    fb_codec_i32(codec, &rec->first_bad_stage);
    fb_codec_i32(codec, &rec->consecutive_skips);
    fb_codec_i32(codec, &rec->votes);
    fb_codec_i64(codec, &rec->global_batch_id);
    fb_codec_i64(codec, &rec->checkpoint_parent);
    fb_codec_f64(codec, &rec->learning_rate);
    fb_codec_f64(codec, &rec->loss);
    fb_codec_f64(codec, &rec->grad_norm);
    fb_codec_f64(codec, &rec->loss_scale_before);
    fb_codec_f64(codec, &rec->loss_scale_after);
    fb_codec_u64(codec, &rec->batch_fingerprint);
    fb_codec_u64(codec, &rec->rng_state_hash);
    fb_codec_u64(codec, &rec->duration_ns);
    fb_codec_u64(codec, &rec->guard_ns);
    fb_codec_u64(codec, &rec->findings);
    fb_codec_u64(codec, &rec->rows);
    fb_codec_u64(codec, &rec->tokens);
    fb_codec_u64(codec, &rec->valid_tokens);
    fb_codec_i64(codec, &rec->token_min);
    fb_codec_i64(codec, &rec->token_max);
    visit_cover(codec, &rec->cover);
    fb_codec_u64(codec, &rec->sample_count);
    fb_codec_u32(codec, &rec->samples);
    if (rec->samples > FB_SAMPLES_MAX) {
        codec->failed = 1;
        return;
    }
    for (uint32_t i = 0; i < rec->samples; i++) fb_codec_i64(codec, &rec->sample_ids[i]);
}

static void visit_finding(fb_codec *codec, fb_rec_finding *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->attempt);
    fb_codec_i32(codec, &rec->rank);
    fb_codec_i32(codec, &rec->boundary);
    fb_codec_i32(codec, &rec->micro_step);
    fb_codec_i32(codec, &rec->kind);
    fb_codec_i32(codec, &rec->field);
    fb_codec_u32(codec, &rec->site);
    fb_codec_i32(codec, &rec->role);
    fb_codec_i32(codec, &rec->dtype);
    fb_codec_i32(codec, &rec->bucket);
    fb_codec_i32(codec, &rec->injected);
    fb_codec_i64(codec, &rec->position);
    fb_codec_u64(codec, &rec->count);
    fb_codec_u64(codec, &rec->first_index);
    fb_codec_u64(codec, &rec->first_bits);
    fb_codec_i64(codec, &rec->value);
    fb_codec_i64(codec, &rec->low);
    fb_codec_i64(codec, &rec->high);
    fb_codec_u64(codec, &rec->elements);
    fb_codec_u64(codec, &rec->nan);
    fb_codec_u64(codec, &rec->pos_inf);
    fb_codec_u64(codec, &rec->neg_inf);
    fb_codec_u64(codec, &rec->zero);
    fb_codec_u64(codec, &rec->subnormal);
    fb_codec_u64(codec, &rec->at_max);
    fb_codec_f64(codec, &rec->abs_min);
    fb_codec_f64(codec, &rec->abs_max);
    fb_codec_f64(codec, &rec->sum_sq);
    fb_codec_i32(codec, &rec->sum_sq_exponent);
    shape(codec, &rec->ndim, rec->shape);
    fb_codec_f64(codec, &rec->loss_scale);
    fb_codec_u64(codec, &rec->batch_fingerprint);
    fb_codec_u64(codec, &rec->rng_state_hash);
    fb_codec_i64(codec, &rec->global_batch_id);
    fb_codec_u64(codec, &rec->time_ns);
    fb_codec_u32(codec, &rec->clean_before);
    fb_codec_u32(codec, &rec->sampled_before);
    fb_codec_u32(codec, &rec->tensors_before);
    text(codec, &rec->module, 1023);
    text(codec, &rec->tensor, 1023);
    text(codec, &rec->group, 1023);
    text(codec, &rec->host, FB_TEXT_MAX);
}

static void visit_verdict(fb_codec *codec, fb_rec_verdict *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->vote);
    fb_codec_i32(codec, &rec->action);
    fb_codec_i32(codec, &rec->agreement);
    fb_codec_i32(codec, &rec->unanimous);
    fb_codec_i32(codec, &rec->clean);
    fb_codec_i32(codec, &rec->fault);
    fb_codec_i32(codec, &rec->reason);
    fb_codec_i32(codec, &rec->first_rank);
    fb_codec_i32(codec, &rec->first_boundary);
    fb_codec_i32(codec, &rec->first_micro_step);
    fb_codec_i32(codec, &rec->consecutive_skips);
    fb_codec_i32(codec, &rec->world);
    fb_codec_i64(codec, &rec->first_position);
    for (int i = 0; i < 4; i++) fb_codec_i64(codec, &rec->words[i]);
    fb_codec_u64(codec, &rec->local_findings);
    text(codec, &rec->case_id, FB_TEXT_MAX);
}

static void visit_event(fb_codec *codec, fb_rec_event *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->event);
    fb_codec_i64(codec, &rec->a);
    fb_codec_i64(codec, &rec->b);
    text(codec, &rec->text, 1023);
}

static void visit_proof(fb_codec *codec, fb_rec_proof *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->moment);
    fb_codec_i32(codec, &rec->equal);
    fb_codec_u64(codec, &rec->tensors);
    fb_codec_u64(codec, &rec->bytes);
    fb_codec_u64(codec, &rec->digest);
    for (int i = 0; i < 10; i++) fb_codec_u64(codec, &rec->by_role[i]);
}

static void visit_pulse(fb_codec *codec, fb_rec_pulse *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->vote);
    fb_codec_i32(codec, &rec->phase);
    fb_codec_i32(codec, &rec->action);
    fb_codec_i32(codec, &rec->rank);
    for (int i = 0; i < 4; i++) fb_codec_i64(codec, &rec->words[i]);
}

static void visit_ckpt(fb_codec *codec, fb_rec_ckpt *rec)
{
    version(codec);
    fb_codec_i64(codec, &rec->step);
    fb_codec_i32(codec, &rec->attempt);
    fb_codec_i32(codec, &rec->rank);
    fb_codec_i32(codec, &rec->state);
    fb_codec_i32(codec, &rec->reason);
    fb_codec_u64(codec, &rec->tensors);
    fb_codec_u64(codec, &rec->elements);
    fb_codec_u64(codec, &rec->bytes);
    fb_codec_u64(codec, &rec->bad);
    fb_codec_u64(codec, &rec->digest);
    text(codec, &rec->path, 4095);
    text(codec, &rec->tensor, 1023);
    if (!codec->out && codec->used == codec->room) { /* of a release that knew no more */
        static const fb_text none = {"", 0};
        rec->gated = rec->pin = 0;
        rec->inode = 0;
        rec->mtime_ns = 0;
        rec->aside = rec->pin_path = rec->origin = rec->note = none;
        rec->mark = 0;
        return;
    }
    fb_codec_i32(codec, &rec->gated);
    fb_codec_i32(codec, &rec->pin);
    fb_codec_u64(codec, &rec->inode);
    fb_codec_i64(codec, &rec->mtime_ns);
    text(codec, &rec->aside, 4095);
    text(codec, &rec->pin_path, 4095);
    text(codec, &rec->origin, 4095);
    text(codec, &rec->note, 1023);
    if (!codec->out && codec->used == codec->room) { /* likewise */
        rec->mark = 0;
        return;
    }
    fb_codec_u64(codec, &rec->mark);
}

/* The pairs of functions differ in the struct and the visitor alone. */
#define RECORD(name)                                                                                            \
    uint32_t fb_rec_##name##_encode(uint8_t *out, uint32_t room, const fb_rec_##name *rec)                      \
    {                                                                                                           \
        fb_codec codec;                                                                                         \
        fb_rec_##name copy = *rec;                                                                              \
        fb_codec_write(&codec, out, room);                                                                      \
        visit_##name(&codec, &copy);                                                                            \
        return written(&codec);                                                                                 \
    }                                                                                                           \
    fb_status fb_rec_##name##_decode(const uint8_t *payload, uint32_t bytes, fb_rec_##name *rec, fb_error *err) \
    {                                                                                                           \
        fb_codec codec;                                                                                         \
        memset(rec, 0, sizeof *rec);                                                                            \
        fb_codec_read(&codec, payload, bytes);                                                                  \
        visit_##name(&codec, rec);                                                                              \
        return done_reading(&codec, #name, err);                                                                \
    }

RECORD(site)
RECORD(step)
RECORD(finding)
RECORD(verdict)
RECORD(event)
RECORD(proof)
RECORD(pulse)
RECORD(ckpt)

const char *fb_event_name(int32_t event)
{
    switch (event) {
    case FB_EVENT_PROBING_SKIP: return "probing_skip";
    case FB_EVENT_HALT: return "halt";
    case FB_EVENT_EVIDENCE_LOST: return "evidence_lost";
    case FB_EVENT_INJECTED: return "injected";
    case FB_EVENT_NORM_OVERFLOW: return "norm_overflow";
    case FB_EVENT_MISUSE: return "misuse";
    case FB_EVENT_SCALE: return "loss_scale_moved";
    case FB_EVENT_FINDINGS_CUT: return "findings_cut";
    case FB_EVENT_CHECKPOINT: return "checkpoint";
    case FB_EVENT_REPLAY: return "replay";
    case FB_EVENT_LOCATED: return "located";
    case FB_EVENT_LEFT_OUT: return "left_out";
    case FB_EVENT_NOT_COVERED: return "not_covered";
    default: return "?";
    }
}
