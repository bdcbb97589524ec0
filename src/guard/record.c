/*
 * What the guard writes into the ledger. Nothing here fails: training goes on guarded when the disk does not, and what was lost is
 * counted and told in the space that was set aside for it.
 */
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "base/status.h"
#include "guard/run.h"

enum { SLOTS_KEPT = 2, EVENT_TEXT_MAX = 1023 };

void fb_record_lost(struct fb_run *run, const fb_error *why)
{
    run->lost++;
    if (run->lost > 1) return;
    run->lost_why = *why;
#ifndef FB_BREAK_P10
    if (run->log && !run->lost_told) {
        /* The append area may be gone; set-aside space is not. */
        fb_rec_event event;
        uint8_t bytes[1400];
        uint32_t n;
        memset(&event, 0, sizeof event);
        event.step = run->step.open ? run->step.rec.step : run->last_step;
        event.event = FB_EVENT_EVIDENCE_LOST;
        event.a = 1;
        event.text.data = why->message;
        event.text.bytes = (uint32_t)strlen(why->message);
        n = fb_rec_event_encode(bytes, sizeof bytes, &event);
        run->lost_told = n && fb_log_freeze(run->log, FB_REC_EVENT, bytes, n, NULL, NULL) == FB_OK;
    }
#endif
}

void fb_record_append(struct fb_run *run, uint16_t type, uint32_t bytes, int sync)
{
    fb_error why;
    if (!run->log) {
        if (run->lost) run->lost++;
        else {
            (void)fb_fail(&why, FB_E_IO, "write to the ledger of rank %d: it could not be opened", run->rank);
            fb_record_lost(run, &why);
        }
        return;
    }
    if (bytes == 0) {
        (void)fb_fail(&why, FB_E_LIMIT, "write a record of type %u: it is larger than %d bytes", type, FB_REC_BYTES_MAX);
        fb_record_lost(run, &why);
        return;
    }
    if (fb_log_append(run->log, type, run->scratch, bytes, sync, &why) != FB_OK) fb_record_lost(run, &why);
}

static fb_text text_of(const char *text)
{
    fb_text result = {text ? text : "", text ? (uint32_t)strlen(text) : 0};
    return result;
}

void fb_record_event(struct fb_run *run, int32_t event, int64_t a, int64_t b, const char *text, int sync)
{
    fb_rec_event rec;
    memset(&rec, 0, sizeof rec);
    rec.step = run->step.open ? run->step.rec.step : run->last_step;
    rec.event = event;
    rec.a = a;
    rec.b = b;
    rec.text = text_of(text);
    if (rec.text.bytes > EVENT_TEXT_MAX) rec.text.bytes = EVENT_TEXT_MAX; /* a long path: its beginning is better than nothing */
    fb_record_append(run, FB_REC_EVENT, fb_rec_event_encode(run->scratch, sizeof run->scratch, &rec), sync);
}

void fb_record_finding(struct fb_run *run, const fb_rec_finding *finding, int sync)
{
    fb_record_append(run, FB_REC_FINDING, fb_rec_finding_encode(run->scratch, sizeof run->scratch, finding), sync);
}

void fb_findings_record(struct fb_run *run)
{
    for (uint64_t i = run->step.findings_settled; i < run->findings_count; i++) {
        fb_record_finding(run, &run->findings[i], i + 1 == run->findings_count);
    }
    run->step.findings_settled = run->findings_count;
}

int fb_record_freeze(struct fb_run *run, const fb_rec_finding *finding)
{
    fb_error why;
    uint32_t bytes = fb_rec_finding_encode(run->scratch, sizeof run->scratch, finding);
    if (!run->log) {
        (void)fb_fail(&why, FB_E_IO, "freeze the first-bad record of rank %d: its ledger could not be opened", run->rank);
        fb_record_lost(run, &why);
        return 0;
    }
    /* The first cases of an attempt go into set-aside space. A run with more of them than there are slots appends, synced, while
       the disk takes it; the last two slots are kept for when it does not. */
    if (fb_log_slots_free(run->log) <= SLOTS_KEPT &&
        fb_log_append(run->log, FB_REC_FIRST_BAD, run->scratch, bytes, 1, NULL) == FB_OK) {
        return 1;
    }
    if (fb_log_freeze(run->log, FB_REC_FIRST_BAD, run->scratch, bytes, NULL, &why) == FB_OK) return 1;
    fb_record_lost(run, &why);
    return 0;
}

void fb_record_verdict(struct fb_run *run, const fb_rec_verdict *verdict, int sync)
{
    fb_record_append(run, FB_REC_VERDICT, fb_rec_verdict_encode(run->scratch, sizeof run->scratch, verdict), sync);
}

void fb_record_pulse(struct fb_run *run, int32_t phase, int32_t action)
{
    fb_rec_pulse pulse;
    fb_error why;
    uint32_t bytes;
    if (!run->log) return;
    memset(&pulse, 0, sizeof pulse);
    pulse.step = run->step.rec.step;
    pulse.vote = run->step.votes;
    pulse.phase = phase;
    pulse.action = action;
    pulse.rank = run->rank;
    memcpy(pulse.words, run->step.words, sizeof pulse.words);
    bytes = fb_rec_pulse_encode(run->scratch, sizeof run->scratch, &pulse);
    if (fb_log_pulse(run->log, run->scratch, bytes, &why) != FB_OK) fb_record_lost(run, &why);
}

void fb_record_proof(struct fb_run *run, const fb_rec_proof *proof)
{
    fb_record_append(run, FB_REC_PROOF, fb_rec_proof_encode(run->scratch, sizeof run->scratch, proof), 0);
}

void fb_record_step(struct fb_run *run)
{
    int sync = 0;
#ifdef FB_BREAK_P11
    sync = 1; /* the broken build waits for the disk on every healthy step */
#endif
    fb_record_append(run, FB_REC_STEP, fb_rec_step_encode(run->scratch, sizeof run->scratch, &run->step.rec), sync);
}

void fb_record_site(struct fb_run *run, uint32_t id)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, id);
    fb_rec_site rec;
    memset(&rec, 0, sizeof rec);
    rec.id = id;
    rec.role = site->role;
    rec.bucket = site->bucket;
    rec.domain = site->domain;
    rec.legal = site->legal;
    rec.position = site->position;
    rec.ndim = site->ndim;
    memcpy(rec.shape, site->shape, sizeof rec.shape);
    rec.module = text_of(site->module);
    rec.tensor = text_of(site->tensor);
    rec.group = text_of(site->group);
    fb_record_append(run, FB_REC_SITE, fb_rec_site_encode(run->scratch, sizeof run->scratch, &rec), 0);
}

enum { RUN_PAIRS_MAX = 96, NUMBER_TEXT = 32, META_KEY_MAX = 255, META_VALUE_MAX = 4096, META_BYTES_MAX = 6144 };

struct pairs {
    fb_pair items[RUN_PAIRS_MAX];
    char numbers[RUN_PAIRS_MAX][NUMBER_TEXT];
    uint64_t count;
};

static void add_text(struct pairs *pairs, const char *key, const char *value)
{
    if (!value || !*value || pairs->count == RUN_PAIRS_MAX) return;
    pairs->items[pairs->count].key = key;
    pairs->items[pairs->count].value = value;
    pairs->count++;
}

static void add_number(struct pairs *pairs, const char *key, int64_t value)
{
    if (pairs->count == RUN_PAIRS_MAX) return;
    (void)snprintf(pairs->numbers[pairs->count], NUMBER_TEXT, "%lld", (long long)value);
    add_text(pairs, key, pairs->numbers[pairs->count]);
}

/* The words of `firstbad run --on-bad`. */
static const char *on_bad_name(int32_t on_bad)
{
    return on_bad == FB_ON_BAD_SKIP ? "skip" : on_bad == FB_ON_BAD_HALT ? "halt" : "observe";
}

/* What the caller wants to be kept. One pair that does not fit must not cost the record of the run: it is left out, and told. */
static uint64_t add_meta(struct pairs *pairs, const fb_run_config *config)
{
    uint64_t left_out = 0;
    size_t bytes = 0;
    for (uint64_t i = 0; i < config->meta_count; i++) {
        const char *key = config->meta[i].key, *value = config->meta[i].value;
        size_t key_bytes = strlen(key), value_bytes = value ? strlen(value) : 0;
        if (key_bytes > META_KEY_MAX || value_bytes > META_VALUE_MAX || bytes + key_bytes + value_bytes > META_BYTES_MAX) {
            left_out++;
            continue;
        }
        bytes += key_bytes + value_bytes;
        add_text(pairs, key, value);
    }
    return left_out;
}

void fb_record_run(struct fb_run *run, const fb_run_config *config, uint64_t dropped)
{
    struct pairs pairs;
    fb_error why;
    memset(&pairs, 0, sizeof pairs);
    add_text(&pairs, "run_id", run->run_id);
    add_number(&pairs, "attempt", run->attempt);
    add_number(&pairs, "rank", run->rank);
    add_number(&pairs, "world", run->world);
    if (config->dp_rank >= 0) add_number(&pairs, "dp_rank", config->dp_rank);
    if (config->tp_rank >= 0) add_number(&pairs, "tp_rank", config->tp_rank);
    if (config->pp_rank >= 0) add_number(&pairs, "pp_rank", config->pp_rank);
    add_text(&pairs, "host", run->host);
    add_number(&pairs, "device", config->device);
    add_number(&pairs, "pid", run->pid);
    add_text(&pairs, "precision", run->precision);
    add_text(&pairs, "on_bad", on_bad_name(run->on_bad));
    add_number(&pairs, "max_skips", run->gate.config.max_skips);
    add_text(&pairs, "agreement", fb_agreement_name(run->agreement));
    add_number(&pairs, "dynamic_loss_scale", run->scaler_config.enabled);
    add_number(&pairs, "injections", run->inject.count);
    add_text(&pairs, "firstbad_version", FB_VERSION_TEXT);
    dropped += add_meta(&pairs, config);
    fb_record_append(run, FB_REC_RUN, fb_rec_run_encode(run->scratch, sizeof run->scratch, pairs.items, pairs.count), 1);
    if (dropped == 0) return;
    (void)fb_fail(&why, FB_E_LIMIT,
                  "record the run: %llu of the caller's pairs do not fit and are left out; keys have at most %d bytes, values %d, "
                  "all together %d",
                  (unsigned long long)dropped, META_KEY_MAX, META_VALUE_MAX, META_BYTES_MAX);
    fb_record_lost(run, &why);
}
