/*
 * The gate's policy. judge() is the one place where an outcome becomes a decision, and it changes nothing: fb_gate_decide calls it
 * and then remembers, fb_gate_wish calls it to look ahead.
 */
#include "policy/gate.h"

#include "base/hash.h"
#include "base/status.h"
#include "policy/scaler.h"

#include <assert.h>
#include <float.h>
#include <string.h>

#define GATE_SEED UINT64_C(0x66622d6761746531) /* "fb-gate1" */

/* ---- init -------------------------------------------------------------------------------------------------------------------- */

/* Back-offs until `from` is at or below `to`. By multiplication, not by logarithms: every machine must get the same number. */
static int32_t backoffs_between(double from, double to, double backoff)
{
    int32_t n = 0;
    while (from > to && n < 1000) {
        from *= backoff;
        n++;
    }
    return n;
}

/*
 * Limit of the ratio rule. A scale in equilibrium overflows k + h - 1 times for each interval of clean updates, k being the
 * back-offs that undo one growth and h the hysteresis. Three times that share, plus six, is far outside of what chance gives a
 * healthy run; for the usual interval of 2000 the share is 0.05 % and the published floor of the rule decides. For an interval of a
 * few updates the limit passes the window's length, and the rule never fires: there a high share says nothing.
 */
static int32_t ratio_limit(const fb_scaler_config *scaler)
{
    int64_t k = backoffs_between(scaler->growth_factor, 1.0, scaler->backoff_factor);
    int64_t overflows = k + scaler->hysteresis - 1;
    int64_t limit = 6 + 3 * FB_GATE_WINDOW * overflows / (scaler->growth_interval + overflows);
    return limit < FB_GATE_WINDOW_SKIPS ? FB_GATE_WINDOW_SKIPS : (int32_t)limit;
}

fb_status fb_gate_init(fb_gate *gate, const fb_gate_config *config, fb_error *err)
{
    fb_scaler_config scaler;
    fb_scaler_state unused;
    fb_status status;
    if (!gate || !config) return fb_fail(err, FB_E_USAGE, "init gate: expected a gate and a config, found NULL");
    if (config->on_bad < FB_ON_BAD_SKIP || config->on_bad > FB_ON_BAD_OBSERVE)
        return fb_fail(err, FB_E_USAGE, "init gate: expected on_bad to be skip, halt or observe, found %d", (int)config->on_bad);
    if (config->agreement < FB_AGREE_NONE || config->agreement > FB_AGREE_VOTE)
        return fb_fail(err, FB_E_USAGE, "init gate: expected agreement to be none, norm or vote, found %d", (int)config->agreement);
    if (config->max_skips < 0)
        return fb_fail(err, FB_E_USAGE, "init gate: expected max_skips of at least 0, found %d", (int)config->max_skips);
    if (config->world < 1)
        return fb_fail(err, FB_E_USAGE, "init gate: expected a world of at least 1, found %d", (int)config->world);
    /* The limits are wanted for a trainer's own scaler too, which the run's config does not enable. */
    scaler = config->scaler;
    scaler.enabled = 1;
    status = fb_scaler_init(&scaler, &unused, err);
    if (status != FB_OK) return status;
    memset(gate, 0, sizeof *gate);
    gate->config = *config;
    gate->limit_consecutive = FB_GATE_CONSECUTIVE + scaler.hysteresis - 1;
    gate->limit_same_site = FB_GATE_SAME_SITE + scaler.hysteresis - 1;
    gate->limit_ratio = ratio_limit(&scaler);
    gate->floor = scaler.scale_min > 0.0 ? scaler.scale_min : FB_GATE_FLOOR;
    gate->scale = 1.0;
    gate->start_up = 1;
    gate->same_rank = -1;
    gate->same_position = -1;
    return FB_OK;
}

/* ---- digest ------------------------------------------------------------------------------------------------------------------ */

typedef struct digest_bytes {
    unsigned char bytes[512];
    size_t length;
} digest_bytes;

static void put(digest_bytes *to, uint64_t value)
{
    int i;
    assert(to->length + 8 <= sizeof to->bytes);
    for (i = 0; i < 8; i++) to->bytes[to->length++] = (unsigned char)(value >> 8 * i);
}

static void put_int(digest_bytes *to, int64_t value)
{
    put(to, (uint64_t)value);
}

static void put_double(digest_bytes *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(to, bits);
}

uint64_t fb_gate_digest(const fb_gate *gate)
{
    const fb_gate_config *config = &gate->config;
    digest_bytes all;
    size_t i;
    all.length = 0;
    put_int(&all, config->on_bad);
    put_int(&all, config->max_skips);
    put_int(&all, config->agreement);
    put_int(&all, config->world);
    put_int(&all, config->scaler.enabled != 0);
    put_double(&all, config->scaler.init_scale);
    put_double(&all, config->scaler.growth_factor);
    put_double(&all, config->scaler.backoff_factor);
    put_int(&all, config->scaler.growth_interval);
    put_int(&all, config->scaler.hysteresis);
    put_double(&all, config->scaler.scale_min);
    put_int(&all, gate->dynamic);
    put_int(&all, gate->voted_in_step);
    put_int(&all, gate->bad_in_step);
    put_int(&all, gate->fault_in_step);
    put_int(&all, gate->freeze_in_step);
    put_int(&all, gate->action_in_step);
    put_int(&all, gate->replay_persists);
    put_int(&all, gate->persists_in_step);
    put_double(&all, gate->scale);
    put_int(&all, gate->halted);
    put_int(&all, gate->bad_in_row);
    put_int(&all, gate->faults_in_row);
    put_int(&all, gate->started);
    put_int(&all, gate->start_up);
    put_int(&all, gate->start_steps);
    put_int(&all, gate->start_clean);
    put_int(&all, gate->start_bad);
    put_int(&all, gate->limit_start);
    put_int(&all, gate->falls);
    put_int(&all, gate->floor_in_row);
    put_int(&all, gate->same_count);
    put_int(&all, gate->same_boundary);
    put_int(&all, gate->same_rank);
    put_int(&all, gate->same_position);
    for (i = 0; i < FB_GATE_WINDOW / 64; i++) put(&all, gate->window[i]);
    put_int(&all, gate->updates);
    put_int(&all, gate->bad);
    put_int(&all, gate->faults);
    return fb_hash64(all.bytes, all.length, GATE_SEED);
}

/* ---- history ----------------------------------------------------------------------------------------------------------------- */

static void end_start_up(fb_gate *gate)
{
    if (!gate->start_up) return;
    gate->start_up = 0;
    gate->falls = 0;
    gate->same_count = 0;
    memset(gate->window, 0, sizeof gate->window);
}

void fb_gate_begin(fb_gate *gate, double scale, int32_t dynamic)
{
    gate->in_step = 1;
    gate->voted_in_step = 0;
    gate->bad_in_step = 0;
    gate->fault_in_step = 0;
    gate->freeze_in_step = 0;
    gate->persists_in_step = 0;
    gate->action_in_step = FB_PROCEED;
    gate->dynamic = dynamic != 0;
    if (gate->dynamic && !gate->started) {
        gate->started = 1;
        gate->limit_start =
            gate->config.scaler.hysteresis + backoffs_between(scale, FB_GATE_START_SCALE, gate->config.scaler.backoff_factor);
        if (gate->limit_start < gate->limit_consecutive) gate->limit_start = gate->limit_consecutive;
    } else if (gate->dynamic && scale > gate->scale) {
        end_start_up(gate);
        gate->falls = 0;
        gate->same_count = 0;
    } else if (gate->dynamic && scale < gate->scale) {
        gate->falls++;
    }
    gate->scale = scale;
}

static int32_t window_count(const fb_gate *gate)
{
    int32_t count = 0;
    size_t i;
    for (i = 0; i < FB_GATE_WINDOW / 64; i++) count += (int32_t)__builtin_popcountll(gate->window[i]);
    return count;
}

static void window_push(fb_gate *gate, uint64_t bit)
{
    size_t i;
    for (i = FB_GATE_WINDOW / 64; i-- > 1;) gate->window[i] = gate->window[i] << 1 | gate->window[i - 1] >> 63;
    gate->window[0] = gate->window[0] << 1 | bit;
}

/* ---- judgement --------------------------------------------------------------------------------------------------------------- */

static int is_gradient(int32_t boundary)
{
    return boundary == FB_LOCAL_GRAD || boundary == FB_REDUCED_GRAD;
}

/* The fault that lies in where the finding is, whatever the scale did. */
static int32_t reason_of_boundary(int32_t boundary)
{
    switch (boundary) {
    case FB_INPUT: return FB_REASON_INPUT;
    case FB_ENTRY:
    case FB_UPDATE:
    case FB_CHECKPOINT: return FB_REASON_STATE;
    case FB_FORWARD:
    case FB_LOSS: return FB_REASON_NOT_GRADIENT;
    default: return FB_REASON_WISH;
    }
}

static int fires(fb_gate_decision *decision, int32_t reason, int32_t count, int32_t limit)
{
    if (count < limit) return 0;
    decision->reason = reason;
    decision->count = count;
    decision->limit = limit;
    return 1;
}

/* Whether the bad update is already in the history: a second bad vote of one step. */
static int32_t new_bad(const fb_gate *gate)
{
    return gate->bad_in_step ? 0 : 1;
}

static int is_same_site(const fb_gate *gate, const fb_vote_outcome *outcome)
{
    return gate->same_count > 0 && gate->same_boundary == outcome->boundary && gate->same_rank == outcome->rank &&
           gate->same_position == outcome->position;
}

/* An overflow that a dynamic scale could explain: does its history say otherwise? Sets reason, count and limit. */
static void judge_overflow(const fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision)
{
    int32_t same = is_same_site(gate, outcome) ? gate->same_count + new_bad(gate) : 1;
    decision->reason = FB_REASON_PROBING;
    if (gate->replay_persists || gate->persists_in_step) {
        decision->reason = FB_REASON_PERSISTS_IN_REPLAY;
        return;
    }
    /* A scale that is NaN, Inf, 0 or negative can explain nothing. */
    if (!(gate->scale > 0.0 && gate->scale <= DBL_MAX)) {
        (void)fires(decision, FB_REASON_FLOOR, 1, 1);
        return;
    }
    if (gate->scale <= gate->floor && fires(decision, FB_REASON_FLOOR, gate->floor_in_row + new_bad(gate), FB_GATE_FLOOR_HITS))
        return;
    if (gate->start_up) {
        (void)fires(decision, FB_REASON_START, gate->start_bad + new_bad(gate), gate->limit_start + 1);
        return;
    }
    if (fires(decision, FB_REASON_CONSECUTIVE, decision->consecutive_skips, gate->limit_consecutive)) return;
    if (fires(decision, FB_REASON_SAME_SITE, same, gate->limit_same_site)) return;
    if (fires(decision, FB_REASON_FALLING, gate->falls, FB_GATE_FALLS)) return;
    (void)fires(decision, FB_REASON_RATIO, window_count(gate) + new_bad(gate), gate->limit_ratio);
}

static void judge_finding(const fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision)
{
    decision->consecutive_skips = gate->bad_in_row + new_bad(gate);
    if (!gate->dynamic) {
        decision->reason = is_gradient(outcome->boundary) ? FB_REASON_NO_SCALE : reason_of_boundary(outcome->boundary);
    } else if (outcome->wish > FB_SKIP) {
        /* Some rank holds what a scale cannot explain, though the spokesman's finding may be an overflow. */
        decision->reason = reason_of_boundary(outcome->boundary);
    } else {
        judge_overflow(gate, outcome, decision);
    }
    decision->fault = decision->reason != FB_REASON_PROBING;
    decision->action = outcome->wish > FB_SKIP ? outcome->wish : FB_SKIP;
    if (decision->reason == FB_REASON_PERSISTS_IN_REPLAY && decision->action < FB_SKIP_FREEZE) decision->action = FB_SKIP_FREEZE;
    if (!decision->fault) return;
    decision->consecutive_faults = gate->faults_in_row + (gate->fault_in_step ? 0 : 1);
    if (gate->config.on_bad == FB_ON_BAD_HALT || decision->consecutive_faults > gate->config.max_skips) decision->action = FB_HALT;
}

/* A rank that cannot vote must not leave its peers in a collective: it goes with what all hold alike, or it halts. */
static void judge_alone(const fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision)
{
    if (gate->config.agreement != FB_AGREE_NONE || gate->config.world == 1) return;
    if (!decision->fault && outcome->boundary == FB_REDUCED_GRAD) return;
    if (!decision->fault) decision->reason = FB_REASON_ALONE;
    decision->fault = 1;
    decision->action = FB_HALT;
}

static void set_halt(fb_gate_decision *decision, int32_t reason)
{
    decision->action = FB_HALT;
    decision->fault = 1;
    decision->reason = reason;
}

/* All ranks voted on the same thing: what did they find? */
static void judge_equal(const fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision)
{
#ifdef FB_BREAK_P1
    if (outcome->rank != 0) return; /* broken on purpose: only rank 0's findings count */
#endif
    if (!outcome->clean) {
        judge_finding(gate, outcome, decision);
        judge_alone(gate, outcome, decision);
    } else if (outcome->wish != FB_PROCEED) {
        set_halt(decision, FB_REASON_WISH);
        decision->action = outcome->wish;
    } else if (gate->action_in_step != FB_PROCEED) {
        /* A second, clean vote does not take back what an earlier one of the same step withheld. */
        decision->action = gate->action_in_step;
        decision->reason = FB_REASON_WITHHELD;
    }
}

static void judge(const fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision)
{
    memset(decision, 0, sizeof *decision);
    decision->consecutive_skips = gate->bad_in_row;
    decision->consecutive_faults = gate->faults_in_row;
    if (gate->halted) set_halt(decision, FB_REASON_HALTED);
    else if (outcome->quorum_equal == FB_VOTE_NO_QUORUM) set_halt(decision, FB_REASON_NO_QUORUM);
    else if (outcome->quorum_equal != FB_VOTE_EQUAL) set_halt(decision, outcome->drifted ? FB_REASON_REPLICAS : FB_REASON_DISAGREE);
    else judge_equal(gate, outcome, decision);
    if (gate->config.on_bad == FB_ON_BAD_OBSERVE) decision->action = FB_PROCEED;
}

int32_t fb_gate_wish(const fb_gate *gate, const fb_gate_local *local, fb_gate_decision *decision)
{
    const uint32_t gradients = 1u << FB_LOCAL_GRAD | 1u << FB_REDUCED_GRAD;
    uint32_t other = local->boundaries & ~gradients;
    fb_vote_outcome as_if = {FB_VOTE_EQUAL, 0, 0, FB_PROCEED, -1, 0, -1, 0, -1};
    if (local->loss_scaled_only) other &= ~(1u << FB_LOSS);
    as_if.clean = local->boundaries == 0;
    if (!as_if.clean) {
        as_if.micro_step = local->micro_step;
        as_if.boundary = local->boundary;
        as_if.rank = local->rank;
        as_if.position = local->position;
        as_if.wish = FB_SKIP;
        if (gate->dynamic && other) as_if.wish = FB_SKIP_FREEZE;
        if (gate->config.on_bad == FB_ON_BAD_HALT && (!gate->dynamic || other)) as_if.wish = FB_HALT;
    }
    if (gate->halted) as_if.wish = FB_HALT;
    if (decision) judge(gate, &as_if, decision);
    return as_if.wish;
}

static void remember_bad(fb_gate *gate, const fb_vote_outcome *outcome, const fb_gate_decision *decision)
{
    gate->bad_in_row = decision->consecutive_skips;
    gate->faults_in_row = decision->consecutive_faults;
    if (decision->fault) gate->fault_in_step = 1;
    if (outcome->wish > FB_SKIP || decision->reason == FB_REASON_PERSISTS_IN_REPLAY) gate->freeze_in_step = 1;
    /* The rest counts updates, and the first finding of an update names its place. */
    if (gate->bad_in_step) return;
    gate->same_count = is_same_site(gate, outcome) ? gate->same_count + 1 : 1;
    gate->same_boundary = outcome->boundary;
    gate->same_rank = outcome->rank;
    gate->same_position = outcome->position;
    gate->floor_in_row = gate->scale <= gate->floor ? gate->floor_in_row + 1 : 0;
    gate->start_bad++;
    gate->bad++;
    gate->bad_in_step = 1;
}

void fb_gate_decide(fb_gate *gate, const fb_vote_outcome *outcome, fb_gate_decision *decision)
{
    judge(gate, outcome, decision);
    gate->voted_in_step = 1;
    if (decision->action > gate->action_in_step) gate->action_in_step = decision->action;
    if (outcome->quorum_equal == FB_VOTE_EQUAL && !outcome->clean && !gate->halted) remember_bad(gate, outcome, decision);
    if (decision->fault) gate->faults++;
    if (decision->action == FB_HALT) gate->halted = 1;
}

int32_t fb_gate_scaler_move(const fb_gate *gate)
{
    if (!gate->bad_in_step) return gate->action_in_step == FB_PROCEED ? FB_SCALER_CLEAN : FB_SCALER_FREEZE;
    return gate->freeze_in_step ? FB_SCALER_FREEZE : FB_SCALER_OVERFLOW;
}

static void count_start_up(fb_gate *gate)
{
    if (!gate->start_up || !gate->dynamic) return;
    gate->start_steps++;
    gate->start_clean = gate->bad_in_step ? 0 : gate->start_clean + 1;
    if (gate->start_clean >= FB_GATE_START_CLEAN || gate->start_steps >= FB_GATE_START_STEPS) end_start_up(gate);
}

void fb_gate_end(fb_gate *gate)
{
    if (!gate->in_step) return;
    gate->in_step = 0;
    if (!gate->voted_in_step || gate->halted) return;
    gate->updates++;
    window_push(gate, gate->bad_in_step ? 1 : 0);
    count_start_up(gate);
    if (gate->bad_in_step) return;
    gate->bad_in_row = 0;
    gate->faults_in_row = 0;
    gate->floor_in_row = 0;
    gate->replay_persists = 0;
}

void fb_gate_note_replay(fb_gate *gate, int32_t persists)
{
    if (gate->in_step) gate->persists_in_step = persists != 0;
    else gate->replay_persists = persists != 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------- */

typedef struct reason_words {
    const char *name, *text;
} reason_words;

static const reason_words reasons[] = {
    [FB_REASON_CLEAN] = {"clean", "no rank found anything"},
    [FB_REASON_PROBING] = {"probing", "an overflow that the dynamic loss scale explains"},
    [FB_REASON_NO_SCALE] = {"no-scale", "there is no dynamic loss scale that could explain it"},
    [FB_REASON_CONSECUTIVE] = {"consecutive", "too many overflows in a row"},
    [FB_REASON_RATIO] = {"ratio", "too many overflows among the latest updates"},
    [FB_REASON_FALLING] = {"falling", "the loss scale only falls"},
    [FB_REASON_FLOOR] = {"floor", "the loss scale is at its floor"},
    [FB_REASON_SAME_SITE] = {"same-site", "the same tensor on the same rank again and again, at every scale"},
    [FB_REASON_START] = {"start", "more overflows than the way down from the first loss scale takes"},
    [FB_REASON_INPUT] = {"input", "it is in the batch"},
    [FB_REASON_STATE] = {"state", "it is in parameters, optimizer state or buffers"},
    [FB_REASON_NOT_GRADIENT] = {"not-gradient", "it is in the forward pass, which the loss scale does not touch"},
    [FB_REASON_PERSISTS_IN_REPLAY] = {"persists-in-replay", "it came back when the batch was replayed in a wider format"},
    [FB_REASON_ALONE] = {"alone", "this rank cannot vote, and a rank cannot skip alone"},
    [FB_REASON_NO_QUORUM] = {"no-quorum", "the vote failed"},
    [FB_REASON_DISAGREE] = {"disagree", "the ranks voted on different steps, scales or policies"},
    [FB_REASON_HALTED] = {"halted", "the run was halted earlier"},
    [FB_REASON_WITHHELD] = {"withheld", "an earlier vote of this step withheld the update"},
    [FB_REASON_WISH] = {"wish", "a rank holds more than an overflowing gradient"},
    [FB_REASON_REPLICAS] = {"replicas", "the parameters of the ranks differ: the replicas have drifted apart"},
};

static int is_reason(int32_t reason)
{
    return reason >= 0 && (size_t)reason < sizeof reasons / sizeof reasons[0];
}

const char *fb_gate_reason_name(int32_t reason)
{
    return is_reason(reason) ? reasons[reason].name : "?";
}

const char *fb_gate_reason_text(int32_t reason)
{
    return is_reason(reason) ? reasons[reason].text : "unknown";
}
