/*
 * The order of one update on one rank: begin, micro-steps, unscale, the last gate, end. Every call that comes out of order is told
 * apart, changes nothing, and is noted.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/json_write.h"
#include "base/status.h"
#include "firstbad/scan.h"
#include "guard/run.h"
#include "scan/scan_format.h"
#include "scan/scan_fpenv.h"
#include "scan/scan_walk.h"

enum { MICRO_MAX = FB_VOTE_MICRO_MAX, UNSCALE_CHUNK = 64 };

/* ---- begin ------------------------------------------------------------------------------------------------------------------- */

static fb_status begin_valid(const struct fb_run *run, const fb_step *step, fb_error *err)
{
    if (!step) return fb_fail(err, FB_E_USAGE, "begin step: step is NULL");
    if (step->size != sizeof *step) {
        return fb_fail(err, FB_E_USAGE, "begin step: size is %u, expected %zu; start from FB_STEP_INIT", step->size, sizeof *step);
    }
    if (run->step.open) {
        return fb_fail(err, FB_E_ORDER, "begin step %lld: step %lld has no end; call fb_step_end first", (long long)step->step,
                       (long long)run->step.rec.step);
    }
    if (run->gate.halted) {
        return fb_fail(err, FB_E_HALTED,
                       "begin step %lld: the run was halted at step %lld and its gate stays shut; see firstbad why %s",
                       (long long)step->step, (long long)run->last_step, run->folder);
    }
    if (step->step < 0)
        return fb_fail(err, FB_E_USAGE, "begin step: the step number must not be negative, found %lld", (long long)step->step);
    if (step->micro_steps < 0 || step->micro_steps > MICRO_MAX) {
        return fb_fail(err, FB_E_USAGE, "begin step %lld: micro_steps must lie in 1 .. %d, or be 0 where it is not known, found %d",
                       (long long)step->step, MICRO_MAX, step->micro_steps);
    }
    if (step->sample_count && !step->sample_ids)
        return fb_fail(err, FB_E_USAGE, "begin step: sample_ids is NULL and sample_count is not 0");
    return FB_OK;
}

static void fill_record(struct fb_run *run, const fb_step *step)
{
    fb_rec_step *rec = &run->step.rec;
    rec->step = step->step;
    run->step.counting = step->micro_steps == 0;
    rec->micro_steps = run->step.counting ? 1 : step->micro_steps;
    rec->known = step->known & (uint32_t)(FB_KNOWN_BATCH_ID | FB_KNOWN_LEARNING_RATE | FB_KNOWN_LOSS_SCALE |
                                          FB_KNOWN_BATCH_FINGERPRINT | FB_KNOWN_RNG_HASH | FB_KNOWN_CHECKPOINT_PARENT);
    rec->global_batch_id = step->known & FB_KNOWN_BATCH_ID ? step->global_batch_id : -1;
    rec->checkpoint_parent = step->known & FB_KNOWN_CHECKPOINT_PARENT ? step->checkpoint_parent : -1;
    rec->learning_rate = step->learning_rate;
    rec->batch_fingerprint = step->batch_fingerprint;
    rec->rng_state_hash = step->rng_state_hash;
    rec->agreement = run->agreement;
    rec->unanimous = -1;
    rec->sample_count = step->sample_count;
    rec->samples = (uint32_t)(step->sample_count < FB_SAMPLES_MAX ? step->sample_count : FB_SAMPLES_MAX);
    for (uint32_t i = 0; i < rec->samples; i++) rec->sample_ids[i] = step->sample_ids[i];
    rec->loss_scale_before = run->scaler.scale;
    if (run->scaler_config.enabled) rec->known |= FB_KNOWN_LOSS_SCALE;
    else if (step->known & FB_KNOWN_LOSS_SCALE) rec->loss_scale_before = step->loss_scale;
    if (fb_risk_deep(&run->risk)) rec->flags |= FB_STEP_DEEP;
}

/* What was found after the last vote reaches nobody: it is told here, and where the update was let through it taints what descends.
   After a verdict to withhold it is more of the same evidence, and the state is as it was. */
static void settle_late_findings(struct fb_run *run)
{
    if (run->step.rec.findings == run->step.findings_voted) return;
    fb_findings_record(run);
    if (!run->step.applied) return;
    if (run->case_id[0] == '\0' && !run->step.frozen) (void)fb_record_freeze(run, fb_finding_first(run));
    fb_checkpoint_taint(run, run->step.rec.step);
    fb_risk_raise(&run->risk);
    if (!fb_finding_deciding(run)) return;
    run->late = *fb_finding_deciding(run); /* its names live in the table of sites */
    run->late_pending = 1;
}

/* A state that was found bad does not become good by leaving updates out: it is read whole at every begin until the trainer has put
   it right, and each step until then is withheld as part of the same case. One read of the state a step, while it is bad. */
static void search_bad_state(struct fb_run *run)
{
    if (!run->state_bad) return;
    run->state_bad = 0; /* a finding sets it again */
    fb_owned_search(run);
}

/* The state that a late finding left behind is bad on entry to this step, and this step's vote must hear of it: once even where the
   trainer of this rank has put it right meanwhile, since the others know nothing of it yet. */
static void carry_late_finding(struct fb_run *run)
{
    fb_finding finding;
    if (!run->late_pending) return;
    run->late_pending = 0;
    run->step.carried = 1;
    if (run->findings_count) return;
    memset(&finding, 0, sizeof finding);
    finding.size = (uint32_t)sizeof finding;
    finding.site = run->late.site;
    finding.boundary = FB_ENTRY;
    finding.kind = run->late.kind;
    finding.count = run->late.count;
    finding.first_index = run->late.first_index;
    finding.stats.dtype = run->late.dtype;
    finding.stats.first_bits = run->late.first_bits;
    finding.stats.elements = run->late.elements;
    fb_finding_add(run, &finding, run->late.injected);
}

static fb_status begin(struct fb_run *run, const fb_step *step, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_usable(run, "begin step", err);
    uint64_t serial;
    int dynamic;
    if (status != FB_OK) return status;
    if ((status = begin_valid(run, step, err)) != FB_OK) return status;
    fb_proof_compare(run); /* before anything of this step can change state */
    serial = run->step.serial + 1;
    memset(&run->step, 0, sizeof run->step);
    run->step.open = 1;
    run->step.serial = run->step.step_serial = serial;
    run->step.begun_ns = begun;
    run->step.rec.guard_ns = run->record_ns;
    if (run->last_step < 0 && (step->known & FB_KNOWN_CHECKPOINT_PARENT)) run->parent = step->checkpoint_parent;
    run->findings_count = run->findings_cut = 0;
    fb_inject_begin(&run->inject);
    fill_record(run, step);
    dynamic = run->scaler_config.enabled || (run->step.rec.known & FB_KNOWN_LOSS_SCALE) != 0;
    fb_gate_begin(&run->gate, run->step.rec.loss_scale_before, dynamic);
    if ((step->known & FB_KNOWN_LEARNING_RATE) && !fb_json_is_number(step->learning_rate)) {
        run->step.bad_rate = 1;
        fb_record_event(run, FB_EVENT_MISUSE, FB_E_USAGE, 0,
                        "the learning rate is not finite; an update with it would destroy every parameter", 1);
    }
    fb_owned_inject(run);
    fb_replicas_take(run);
    search_bad_state(run);
    carry_late_finding(run);
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_begin(struct fb_run *run, const fb_step *step, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, begin(run, step, err), err);
    fb_fpenv_leave(modes);
    return status;
}

static fb_status micro(struct fb_run *run, int32_t index, fb_error *err)
{
    fb_status status = fb_run_in_step(run, "begin micro-step", err);
    if (status != FB_OK) return status;
    if (run->step.ballot_out || run->step.votes) {
        return fb_fail(err, FB_E_ORDER,
                       "begin micro-step %d: the update of step %lld was voted on already; the whole window is one update", index,
                       (long long)run->step.rec.step);
    }
    if (index == 0 && run->step.micro == 0) return FB_OK;
    if (index != run->step.micro + 1 || index >= (run->step.counting ? MICRO_MAX : run->step.rec.micro_steps)) {
        return fb_fail(err, FB_E_ORDER, "begin micro-step %d: micro-step %d of %d is running, expected %d next", index,
                       run->step.micro, run->step.counting ? MICRO_MAX : run->step.rec.micro_steps, run->step.micro + 1);
    }
    run->step.micro = index;
    if (run->step.counting) run->step.rec.micro_steps = index + 1;
    run->step.serial++;
    /* Gradients accumulate: what counts is what the last micro-step's check saw. */
    run->step.grads_seen = run->step.reduced_seen = 0;
    return FB_OK;
}

fb_status fb_step_micro(struct fb_run *run, int32_t index, fb_error *err)
{
    return fb_run_misuse(run, micro(run, index, err), err);
}

/* ---- unscale ----------------------------------------------------------------------------------------------------------------- */

static fb_status unscale_valid(struct fb_run *run, const fb_view *views, size_t n, double inv_scale, const double *sum_sq,
                               fb_error *err)
{
    fb_status status = fb_run_in_step(run, "unscale", err);
    long long step;
    if (status != FB_OK) return status;
    step = (long long)run->step.rec.step;
    if (!sum_sq) return fb_fail(err, FB_E_USAGE, "unscale: sum_sq is NULL");
    if (run->step.unscaled)
        return fb_fail(err, FB_E_ORDER,
                       "unscale: the gradients of step %lld were unscaled already; a second time would divide them again", step);
    if (run->step.applied) return fb_fail(err, FB_E_ORDER, "unscale: step %lld was applied already", step);
    if (run->step.proposed)
        return fb_fail(err, FB_E_ORDER, "unscale: the update of step %lld was made from these gradients and looked at already",
                       step);
    if (run->step.ballot_out) return fb_fail(err, FB_E_ORDER, "unscale: the ballot of step %lld is not settled", step);
    if (run->step.votes == 0 || run->step.unsettled) {
        return fb_fail(err, FB_E_ORDER,
                       "unscale: no settled vote covers the local gradients of step %lld; call fb_step_ballot and fb_step_settle",
                       step);
    }
    if (run->step.withheld)
        return fb_fail(err, FB_E_WITHHELD, "unscale: the update of step %lld was withheld; call fb_step_end", step);
    if (!(fb_json_is_number(inv_scale) && inv_scale > 0.0)) {
        return fb_fail(err, FB_E_USAGE, "unscale: inv_scale must be finite and above 0, found %g", inv_scale);
    }
    if ((status = fb_check_views_valid(run, "unscale", views, n, err)) != FB_OK) return status;
    for (size_t i = 0; i < n; i++) {
        int32_t dtype = views[i].dtype;
        fb_walk walk;
        if (views[i].count == 0) continue;
        if (dtype != FB_F32 && dtype != FB_F64 && dtype != FB_BF16) {
            return fb_fail(err, FB_E_DTYPE,
                           "unscale: view %zu is %s; in place only f64, f32 and bf16 are unscaled: use fb_unscale into f32 first",
                           i, fb_dtype_name(dtype));
        }
        /* Views are multiplied in groups: one that is refused must be refused before the first of them was. */
        if ((status = fb_walk_init(&walk, &views[i], "view", i, err)) != FB_OK) return status;
        if ((status = fb_walk_writable(&walk, "view", i, err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* Returns 0 when the tensor was passed over by declaration. */
static int judge_reduced(struct fb_run *run, const fb_view *view, const fb_measure_result *measured, int injected)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, view->site);
    fb_cover *cover = &run->step.rec.cover;
    fb_finding finding;
    int exempt = (site->legal & (FB_LEGAL_PADDING | FB_LEGAL_EXEMPT)) != 0;
    uint32_t *counter = view->count == 0 ? &cover->absent : exempt ? &cover->exempt : &cover->tensors[FB_REDUCED_GRAD];
    fb_run_lock(run);
    fb_check_mark(run, FB_REDUCED_GRAD, view->site, counter);
    fb_run_unlock(run);
    if (view->count == 0 || exempt || measured->bad == 0) return view->count == 0 || !exempt;
    memset(&finding, 0, sizeof finding);
    finding.size = (uint32_t)sizeof finding;
    finding.site = view->site;
    finding.boundary = FB_REDUCED_GRAD;
    finding.micro_step = run->step.rec.micro_steps - 1;
    finding.stats.size = (uint32_t)sizeof finding.stats;
    (void)fb_scan(view, &finding.stats, NULL);
    finding.kind = measured->first_kind;
    finding.count = measured->bad;
    finding.first_index = measured->first_index;
    fb_finding_add(run, &finding, injected);
    return 1;
}

#ifdef FB_BREAK_P4
/* The broken build repairs what it finds; the test of the promise must notice. */
static void repair(const fb_view *view, fb_measure_result *measured)
{
    if (measured->bad == 0 || view->dtype != FB_F32) return;
    for (uint64_t i = 0; i < view->count; i++) {
        uint32_t bits;
        memcpy(&bits, (uint8_t *)view->data + 4 * i, 4);
        if ((bits & 0x7f800000u) == 0x7f800000u) memset((uint8_t *)view->data + 4 * i, 0, 4);
    }
    measured->bad = 0;
}
#endif

static fb_status unscale(struct fb_run *run, const fb_view *views, size_t n, double inv_scale, double *sum_sq, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = unscale_valid(run, views, n, inv_scale, sum_sq, err);
    fb_scan_options options = FB_SCAN_OPTIONS_INIT;
    fb_measure_result measured[UNSCALE_CHUNK], total;
    uint8_t injected[UNSCALE_CHUNK];
    double sum = 0.0, abs_max = 0.0;
    int looked_at = 0;
    if (status != FB_OK) return status;
    options.threads = run->threads;
    for (size_t from = 0; from < n; from += UNSCALE_CHUNK) {
        size_t m = n - from < UNSCALE_CHUNK ? n - from : UNSCALE_CHUNK;
        for (size_t i = 0; i < m; i++) {
            injected[i] = (uint8_t)fb_plant_view(run, FB_INJECT_REDUCED, FB_REDUCED_GRAD, &views[from + i]);
        }
        memset(measured, 0, sizeof measured);
        memset(&total, 0, sizeof total);
        for (size_t i = 0; i < m; i++) measured[i].size = (uint32_t)sizeof measured[i];
        total.size = (uint32_t)sizeof total;
        /* Nothing to multiply: then nothing is written, either. */
        if (inv_scale >= 1.0 && inv_scale <= 1.0) status = fb_measure(&views[from], m, 1.0, &options, measured, &total, err);
        else status = fb_unscale_many(&views[from], NULL, m, inv_scale, &options, measured, &total, err);
        if (status != FB_OK) return status;
        for (size_t i = 0; i < m; i++) {
#ifdef FB_BREAK_P4
            repair(&views[from + i], &measured[i]);
#endif
            looked_at |= judge_reduced(run, &views[from + i], &measured[i], injected[i]);
        }
        sum += ldexp(total.sum_sq, 2 * total.sum_sq_exponent);
        if (total.abs_max > abs_max) abs_max = total.abs_max;
    }
    if (looked_at) {
        fb_run_lock(run);
        fb_cover_level(run, FB_REDUCED_GRAD, FB_COVER_FULL); /* brought down to what it was by fb_cover_settle */
        fb_run_unlock(run);
    }
    /* All elements finite and their norm beyond FP32: a trainer that sums in FP32 will see Inf. Not a bad element. */
    if (!(sqrt(sum) <= (double)FLT_MAX)) fb_record_event(run, FB_EVENT_NORM_OVERFLOW, 0, 0, "the gradient norm exceeds FP32", 0);
    if (abs_max > (double)FLT_MAX / 4) fb_risk_raise(&run->risk);
    run->step.unscaled = 1;
    run->step.unsettled = 1;
    *sum_sq = sum;
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_unscale(struct fb_run *run, const fb_view *views, size_t n, double inv_scale, double *sum_sq, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, unscale(run, views, n, inv_scale, sum_sq, err), err);
    fb_fpenv_leave(modes);
    return status;
}

/* ---- the last gate ----------------------------------------------------------------------------------------------------------- */

/* Whether the votes of this step covered every gradient that takes part in it. */
static int fully_gated(const struct fb_run *run)
{
    const fb_step_state *step = &run->step;
    int reduced = step->rec.cover.level[FB_REDUCED_GRAD] == FB_COVER_FULL;
    int local = step->rec.cover.level[FB_LOCAL_GRAD] == FB_COVER_FULL;
    if (step->rec.findings || step->withheld || step->votes == 0 || step->vote_not_clean) return 0;
    if (run->world == 1) return reduced || local;
    return reduced && run->agreement != FB_AGREE_NONE;
}

static fb_status apply(struct fb_run *run, fb_error *err)
{
    fb_status status = fb_run_in_step(run, "apply step", err);
    long long step;
    if (status != FB_OK) return status;
    step = (long long)run->step.rec.step;
    if (run->step.applied) return fb_fail(err, FB_E_ORDER, "apply step %lld: it was applied already", step);
    if (run->step.ballot_out) return fb_fail(err, FB_E_ORDER, "apply step %lld: its ballot is not settled", step);
    if (run->step.withheld) {
        return fb_fail(
            err, FB_E_WITHHELD,
            "apply step %lld: the verdict was to withhold it; leave parameters, moments, EMA, scheduler and counters as they are",
            step);
    }
    if (run->step.votes == 0)
        return fb_fail(err, FB_E_ORDER, "apply step %lld: nothing was voted on; call fb_step_ballot and fb_step_settle first",
                       step);
    if (run->step.unsettled) {
        return fb_fail(
            err, FB_E_ORDER,
            "apply step %lld: tensors were looked at after the last vote; call fb_step_ballot and fb_step_settle once more", step);
    }
    run->step.applied = 1;
    run->step.rec.flags |= FB_STEP_APPLIED;
    /* A run that only observes lets a bad proposal through: from here on it is the state. */
    if (run->step.bad_boundaries & (1u << FB_UPDATE)) run->state_bad = 1;
    if (fully_gated(run)) run->step.rec.flags |= FB_STEP_GATED;
    else if (!run->ungated) fb_checkpoint_taint(run, run->step.rec.step);
    return FB_OK;
}

fb_status fb_step_apply(struct fb_run *run, fb_error *err)
{
    return fb_run_misuse(run, apply(run, err), err);
}

/* ---- end --------------------------------------------------------------------------------------------------------------------- */

static fb_status end_valid(const struct fb_run *run, const fb_step_result *result, fb_error *err)
{
    fb_status status = fb_run_in_step(run, "end step", err);
    long long step;
    if (status != FB_OK) return status;
    step = (long long)run->step.rec.step;
    if (!result) return fb_fail(err, FB_E_USAGE, "end step: result is NULL");
    if (result->size != sizeof *result) {
        return fb_fail(err, FB_E_USAGE, "end step: size is %u, expected %zu; start from FB_STEP_RESULT_INIT", result->size,
                       sizeof *result);
    }
    if (run->step.ballot_out) return fb_fail(err, FB_E_ORDER, "end step %lld: its ballot is not settled", step);
    if (run->step.votes == 0)
        return fb_fail(err, FB_E_ORDER, "end step %lld: nothing was voted on; call fb_step_ballot and fb_step_settle first", step);
    if (!run->step.withheld && !run->step.applied) {
        return fb_fail(err, FB_E_ORDER,
                       "end step %lld: the gate let the update through and fb_step_apply was not called; a scale that moves "
                       "without a step is a fault",
                       step);
    }
    return FB_OK;
}

static void move_scale(struct fb_run *run)
{
    double before = run->scaler.scale;
    fb_scaler_update(&run->scaler_config, &run->scaler, fb_gate_scaler_move(&run->gate));
    run->step.rec.loss_scale_after = run->scaler_config.enabled ? run->scaler.scale : run->step.rec.loss_scale_before;
    if (run->scaler.scale < before || run->scaler.scale > before) {
        int64_t a, b;
        memcpy(&a, &before, sizeof a);
        memcpy(&b, &run->scaler.scale, sizeof b);
        fb_record_event(run, FB_EVENT_SCALE, a, b, NULL, 0);
    }
}

/* Write the step's record and shut the step. */
static void close_step(struct fb_run *run)
{
    fb_rec_step *rec = &run->step.rec;
    int64_t now = fb_run_now(run);
    rec->duration_ns = (uint64_t)(now - run->step.begun_ns);
    fb_record_step(run);
    run->record_ns = (uint64_t)(fb_run_now(run) - now);
    run->last_step = rec->step;
    run->step.open = 0;
}

static fb_status end(struct fb_run *run, const fb_step_result *result, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = end_valid(run, result, err);
    fb_rec_step *rec;
    if (status != FB_OK) return status;
    rec = &run->step.rec;
    rec->known |= result->known & (uint32_t)(FB_KNOWN_LOSS | FB_KNOWN_GRAD_NORM);
    rec->loss = result->loss;
    rec->grad_norm = result->grad_norm;
    if (run->step.withheld) rec->flags |= FB_STEP_SKIPPED;
    fb_cover_settle(run); /* what was looked at after the last vote counts too, and no more than it is */
    settle_late_findings(run);
    move_scale(run);
    if (run->findings_cut) fb_record_event(run, FB_EVENT_FINDINGS_CUT, (int64_t)run->findings_cut, 0, NULL, 0);
    if (fb_risk_update(&run->risk, (result->known & FB_KNOWN_LOSS) != 0, result->loss)) fb_risk_raise(&run->risk);
    fb_gate_end(&run->gate);
    fb_proof_at_halt(run);
    /* A clean update closes the case: clean on all ranks, so that all of them close it in the same step. */
    if (!run->step.withheld && !run->step.vote_not_clean) run->case_id[0] = '\0';
    if ((rec->flags & FB_STEP_GATED) && !run->late_pending) run->step_verified = rec->step;
    fb_checkpoint_record(run);
    fb_run_spent(run, begun);
    close_step(run);
    return FB_OK;
}

fb_status fb_step_end(struct fb_run *run, const fb_step_result *result, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, end(run, result, err), err);
    fb_fpenv_leave(modes);
    return status;
}

/* ---- giving up --------------------------------------------------------------------------------------------------------------- */

static fb_status abandon(struct fb_run *run, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "abandon step", err);
    fb_rec_step *rec;
    if (status != FB_OK) return status;
    rec = &run->step.rec;
    if (run->step.applied) {
        return fb_fail(err, FB_E_ORDER, "abandon step %lld: it was applied already; call fb_step_end", (long long)rec->step);
    }
    fb_cover_settle(run);
    fb_findings_record(run);
    rec->flags |= FB_STEP_SKIPPED | FB_STEP_ABANDONED;
    if (rec->action < FB_SKIP) rec->action = FB_SKIP;
    rec->loss_scale_after = rec->loss_scale_before;
    fb_gate_end(&run->gate);
    run->replicas_due = 1;
    if (!run->proof_pending) fb_proof_take(run);
    if (run->step.ballot_out) fb_record_pulse(run, FB_PULSE_ENDED, FB_SKIP); /* an intent that is over is not a vote that failed */
    fb_run_spent(run, begun);
    close_step(run);
    return FB_OK;
}

fb_status fb_step_abandon(struct fb_run *run, fb_error *err)
{
    return fb_run_misuse(run, abandon(run, err), err);
}

/* Only what the begin took is given back: nothing was voted on, so neither the gate nor the other ranks know of this step. */
static fb_status forget(struct fb_run *run, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "forget step", err);
    if (status != FB_OK) return status;
    if (run->step.ballot_out || run->step.votes) {
        return fb_fail(err, FB_E_ORDER, "forget step %lld: its ballot was given out; call fb_step_abandon",
                       (long long)run->step.rec.step);
    }
    fb_gate_end(&run->gate);
    run->findings_count = run->findings_cut = 0;
    run->replicas_due = run->step.replicas_asked;
    run->late_pending = run->step.carried;
    run->step.open = 0;
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_forget(struct fb_run *run, fb_error *err)
{
    return fb_run_misuse(run, forget(run, err), err);
}
