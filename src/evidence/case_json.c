#include "evidence/case_json.h"

#include "evidence/site.h"

static void key_text(fb_json *json, const char *key, fb_text text)
{
    fb_json_key(json, key);
    fb_json_string_bytes(json, text.data ? text.data : "", text.bytes);
}

static void boundaries(fb_json *json, const char *key, uint32_t bits)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (int32_t boundary = FB_ENTRY; boundary <= FB_CHECKPOINT; boundary++) {
        if (bits & (1u << boundary)) fb_json_string(json, fb_boundary_name(boundary));
    }
    fb_json_array_end(json);
}

static void place(fb_json *json, const fb_rec_finding *finding)
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = 0;
    if (finding->field == FB_FIELD_TENSOR && finding->first_index != FB_NO_INDEX) {
        n = fb_site_unravel(finding->shape, finding->ndim, finding->first_index, index);
    }
    fb_json_key(json, "index");
    if (n == 0 && finding->first_index == FB_NO_INDEX) fb_json_null(json);
    else {
        fb_json_array_begin(json);
        if (n == 0) fb_json_uint(json, finding->first_index);
        for (int32_t i = 0; i < n; i++) fb_json_int(json, index[i]);
        fb_json_array_end(json);
    }
    fb_json_key(json, "shape");
    fb_json_array_begin(json);
    for (int32_t i = 0; i < finding->ndim; i++) fb_json_int(json, finding->shape[i]);
    fb_json_array_end(json);
}

static void statistics(fb_json *json, const fb_rec_finding *finding)
{
    fb_json_key(json, "statistics");
    if (finding->elements == 0) {
        fb_json_null(json);
        return;
    }
    fb_json_object_begin(json);
    fb_json_key_uint(json, "elements", finding->elements);
    fb_json_key_uint(json, "nan", finding->nan);
    fb_json_key_uint(json, "pos_inf", finding->pos_inf);
    fb_json_key_uint(json, "neg_inf", finding->neg_inf);
    fb_json_key_uint(json, "zero", finding->zero);
    fb_json_key_uint(json, "subnormal", finding->subnormal);
    fb_json_key_uint(json, "at_max", finding->at_max);
    fb_json_key_double(json, "abs_min", finding->abs_min);
    fb_json_key_double(json, "abs_max", finding->abs_max);
    fb_json_key_double(json, "sum_sq", finding->sum_sq);
    fb_json_key_int(json, "sum_sq_exponent", finding->sum_sq_exponent);
    fb_json_object_end(json);
}

static void integers(fb_json *json, const fb_rec_finding *finding)
{
    int ranged = finding->kind == FB_KIND_OUT_OF_RANGE;
    fb_json_key(json, "value");
    if (ranged) fb_json_int(json, finding->value);
    else fb_json_null(json);
    fb_json_key(json, "allowed");
    if (!ranged) {
        fb_json_null(json);
        return;
    }
    fb_json_array_begin(json);
    fb_json_int(json, finding->low);
    fb_json_int(json, finding->high);
    fb_json_array_end(json);
}

void fb_finding_json(fb_json *json, const fb_rec_finding *finding)
{
    fb_json_key_int(json, "attempt", finding->attempt);
    fb_json_key_int(json, "step", finding->step);
    fb_json_key_int(json, "micro_step", finding->micro_step);
    fb_json_key_int(json, "rank", finding->rank);
    key_text(json, "host", finding->host);
    fb_json_key_string(json, "boundary", fb_boundary_name(finding->boundary));
    key_text(json, "module", finding->module);
    key_text(json, "tensor", finding->tensor);
    key_text(json, "group", finding->group);
    fb_json_key_string(json, "role", fb_role_name(finding->role));
    fb_json_key_string(json, "field", fb_field_name(finding->field));
    fb_json_key(json, "bucket");
    if (finding->bucket >= 0) fb_json_int(json, finding->bucket);
    else fb_json_null(json);
    fb_json_key_int(json, "position", finding->position);
    fb_json_key_uint(json, "site", finding->site);
    fb_json_key_string(json, "kind", fb_kind_name(finding->kind));
    fb_json_key_uint(json, "count", finding->count);
    place(json, finding);
    fb_json_key_string(json, "dtype", fb_dtype_name(finding->dtype));
    fb_json_key_hex(json, "bits", finding->first_bits, 2);
    integers(json, finding);
    statistics(json, finding);
    fb_json_key_double(json, "loss_scale", finding->loss_scale);
    fb_json_key_int(json, "global_batch_id", finding->global_batch_id);
    fb_json_key_hex(json, "batch_fingerprint", finding->batch_fingerprint, 16);
    fb_json_key_hex(json, "rng_state_hash", finding->rng_state_hash, 16);
    boundaries(json, "clean_before", finding->clean_before);
    boundaries(json, "sampled_before", finding->sampled_before);
    fb_json_key_uint(json, "tensors_before", finding->tensors_before);
    fb_json_key_bool(json, "injected", finding->injected);
    fb_json_key_uint(json, "time_unix_ns", finding->time_ns);
}

void fb_verdict_json(fb_json *json, const fb_rec_verdict *verdict, const char *reason)
{
    fb_json_key_int(json, "step", verdict->step);
    fb_json_key_int(json, "vote", verdict->vote);
    fb_json_key_string(json, "action", fb_action_name(verdict->action));
    fb_json_key_string(json, "agreement", fb_agreement_name(verdict->agreement));
    fb_json_key(json, "unanimous");
    if (verdict->unanimous < 0) fb_json_null(json);
    else fb_json_bool(json, verdict->unanimous);
    fb_json_key_bool(json, "clean", verdict->clean);
    fb_json_key_bool(json, "fault", verdict->fault);
    fb_json_key_string(json, "reason", reason);
    fb_json_key(json, "first_rank");
    if (verdict->first_rank >= 0) fb_json_int(json, verdict->first_rank);
    else fb_json_null(json);
    fb_json_key(json, "first_boundary");
    if (verdict->first_boundary > 0) fb_json_string(json, fb_boundary_name(verdict->first_boundary));
    else fb_json_null(json);
    fb_json_key_int(json, "first_micro_step", verdict->first_micro_step);
    fb_json_key_int(json, "first_position", verdict->first_position);
    fb_json_key_int(json, "consecutive_skips", verdict->consecutive_skips);
    fb_json_key_int(json, "world", verdict->world);
}
