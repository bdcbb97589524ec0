/*
 * Looking at tensors. A check says whether the call was right; what it found waits for the ballot.
 */
#include <string.h>

#include "base/status.h"
#include "firstbad/scan.h"
#include "guard/run.h"
#include "scan/scan_format.h"
#include "scan/scan_fpenv.h"
#include "scan/scan_walk.h"

/* ---- what was looked at ------------------------------------------------------------------------------------------------------ */

static size_t mark_index(uint32_t site, int32_t boundary)
{
    return (size_t)site * FB_BOUNDARIES + (size_t)boundary;
}

void fb_check_mark(struct fb_run *run, int32_t boundary, uint32_t site, uint32_t *counter)
{
    fb_cover *cover = &run->step.rec.cover;
    size_t at = mark_index(site, boundary);
    if (counter == &cover->tensors[boundary] && run->read[at] < run->step.step_serial) run->read[at] = run->step.serial;
    if (run->seen[at] == run->step.serial) return; /* tied weights, or the same view twice */
    if (run->seen[at] < run->step.step_serial) (*counter)++;
    run->seen[at] = run->step.serial;
    /* A format without non-finite codes says nothing of a gradient: such a tensor is counted, and covers nothing. */
    if (counter == &cover->unchecked || fb_sites_get(&run->sites, site)->role != FB_ROLE_GRADIENT) return;
    if (boundary == FB_LOCAL_GRAD) run->step.grads_seen++;
    if (boundary == FB_REDUCED_GRAD) run->step.reduced_seen++;
}

static void count_tensor(struct fb_run *run, int32_t boundary, uint32_t site, uint32_t *counter)
{
    fb_run_lock(run);
    fb_check_mark(run, boundary, site, counter);
    fb_run_unlock(run);
}

/* ---- findings ---------------------------------------------------------------------------------------------------------------- */

int64_t fb_finding_key(const fb_rec_finding *finding)
{
    uint32_t clamped;
    return fb_vote_key(finding->micro_step, finding->boundary, finding->position, finding->rank, &clamped);
}

const fb_rec_finding *fb_finding_first(const struct fb_run *run)
{
    const fb_rec_finding *first = NULL;
    for (uint64_t i = 0; i < run->findings_count; i++) {
        if (!first || fb_finding_key(&run->findings[i]) < fb_finding_key(first)) first = &run->findings[i];
    }
    return first;
}

int fb_run_by_norm(const struct fb_run *run)
{
    return run->agreement == FB_AGREE_NORM && run->world > 1;
}

/* Buffers and averages may belong to one rank; parameters and moments are replicas, and reduced
 * gradients come out of a collective. */
static int is_equal_on_all_ranks(const fb_rec_finding *finding)
{
    int replica = finding->role == FB_ROLE_PARAMETER || finding->role == FB_ROLE_MOMENT;
    return finding->boundary == FB_REDUCED_GRAD || (replica && (finding->boundary == FB_ENTRY || finding->boundary == FB_UPDATE));
}

const fb_rec_finding *fb_finding_deciding(const struct fb_run *run)
{
    if (!fb_run_by_norm(run)) return fb_finding_first(run);
    return run->step.deciding_boundaries ? &run->step.deciding : NULL;
}

/* Kept beside the table: what a rank found by itself may fill that, and all ranks must have the same to decide by. */
static int note_deciding(struct fb_run *run, const fb_finding *finding)
{
    fb_rec_finding rec;
    uint32_t known = run->step.deciding_boundaries;
    if (!fb_run_by_norm(run)) return 1;
    fb_finding_fill(run, &rec, finding, 0);
    if (!is_equal_on_all_ranks(&rec)) return 0;
    if (!known || fb_finding_key(&rec) < fb_finding_key(&run->step.deciding)) run->step.deciding = rec;
    run->step.deciding_boundaries |= 1u << finding->boundary;
    return 1;
}

static fb_rec_finding *room_for(struct fb_run *run, int64_t key)
{
    fb_rec_finding *last = NULL;
    if (run->findings_count < run->findings_max) return &run->findings[run->findings_count++];
    run->findings_cut++;
    for (uint64_t i = 0; i < run->findings_count; i++) {
        if (!last || fb_finding_key(&run->findings[i]) > fb_finding_key(last)) last = &run->findings[i];
    }
    /* The table is full: the causally last one gives way to an earlier one. One that a ballot has carried stays. */
    if (!last || fb_finding_key(last) <= key || (uint64_t)(last - run->findings) < run->step.findings_settled) return NULL;
    return last;
}

static fb_text text_of(const char *text)
{
    fb_text result = {text, (uint32_t)strlen(text)};
    return result;
}

static void copy_statistics(fb_rec_finding *rec, const fb_scan_result *stats)
{
    rec->dtype = stats->dtype;
    rec->first_bits = stats->first_bits;
    rec->elements = stats->elements;
    rec->nan = stats->nan;
    rec->pos_inf = stats->pos_inf;
    rec->neg_inf = stats->neg_inf;
    rec->zero = stats->zero;
    rec->subnormal = stats->subnormal;
    rec->at_max = stats->at_max;
    rec->abs_min = stats->abs_min;
    rec->abs_max = stats->abs_max;
    rec->sum_sq = stats->sum_sq;
    rec->sum_sq_exponent = stats->sum_sq_exponent;
}

void fb_finding_fill(struct fb_run *run, fb_rec_finding *rec, const fb_finding *finding, int injected)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, finding->site);
    memset(rec, 0, sizeof *rec);
    rec->step = run->step.rec.step;
    rec->attempt = run->attempt;
    rec->rank = run->rank;
    rec->boundary = finding->boundary;
    rec->micro_step = finding->micro_step;
    rec->kind = finding->kind;
    rec->field = finding->field;
    rec->site = finding->site;
    rec->role = site->role;
    rec->bucket = site->bucket;
    rec->injected = injected;
    rec->position = site->position;
    rec->count = finding->count;
    rec->first_index = finding->first_index;
    rec->value = finding->value;
    rec->low = finding->low;
    rec->high = finding->high;
    copy_statistics(rec, &finding->stats);
    rec->ndim = site->ndim;
    memcpy(rec->shape, site->shape, sizeof rec->shape);
    rec->loss_scale = run->step.rec.loss_scale_before;
    rec->batch_fingerprint = run->step.rec.batch_fingerprint;
    rec->rng_state_hash = run->step.rec.rng_state_hash;
    rec->global_batch_id = run->step.rec.global_batch_id;
    rec->time_ns = (uint64_t)run->os->realtime_ns(run->os->ctx);
    rec->module = text_of(site->module);
    rec->tensor = text_of(site->tensor);
    rec->group = text_of(site->group);
    rec->host = text_of(run->host);
}

/* Results of a device may arrive out of order: the record of the same tensor from a later micro-step,
 * if no ballot has carried it. */
static fb_rec_finding *later_one(struct fb_run *run, const fb_finding *finding)
{
    for (uint64_t i = run->step.findings_settled; i < run->findings_count; i++) {
        fb_rec_finding *rec = &run->findings[i];
        if (rec->site != finding->site || rec->boundary != finding->boundary || rec->field != FB_FIELD_TENSOR) continue;
        return finding->micro_step < rec->micro_step ? rec : NULL;
    }
    return NULL;
}

void fb_finding_add(struct fb_run *run, const fb_finding *finding, int injected)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, finding->site);
    uint64_t *mark = &run->bad[mark_index(finding->site, finding->boundary)];
    fb_rec_finding *rec;
    uint32_t clamped;
    int decides;
    fb_run_lock(run);
    decides = note_deciding(run, finding);
    run->step.rec.findings++;
    run->step.unsettled = 1;
    run->step.bad_boundaries |= 1u << finding->boundary;
    /* A proposed update lies beside the state: the state itself is what it was. */
    if (decides && (finding->boundary == FB_ENTRY || (finding->boundary == FB_UPDATE && run->step.applied))) run->state_bad = 1;
    /* Later micro-steps add to the same gradient: what came first is kept, and they are not blamed.
     * The fields of a batch are apart. */
    if (finding->field == FB_FIELD_TENSOR && *mark == run->step.step_serial) {
        rec = later_one(run, finding);
    } else {
        if (finding->field == FB_FIELD_TENSOR) *mark = run->step.step_serial;
        rec = room_for(run, fb_vote_key(finding->micro_step, finding->boundary, site->position, run->rank, &clamped));
    }
    if (rec) fb_finding_fill(run, rec, finding, injected);
    fb_run_unlock(run);
}

/* ---- one tensor -------------------------------------------------------------------------------------------------------------- */

static int32_t place_of(int32_t boundary)
{
    switch (boundary) {
    case FB_INPUT: return FB_INJECT_INPUT;
    case FB_FORWARD: return FB_INJECT_ACTIVATION;
    case FB_LOSS: return FB_INJECT_LOSS;
    case FB_LOCAL_GRAD: return FB_INJECT_GRAD;
    case FB_REDUCED_GRAD: return FB_INJECT_REDUCED;
    default: return 0; /* owned state is changed at the begin of the step */
    }
}

static int in_domain(int32_t domain, double x)
{
    switch (domain) {
    case FB_DOMAIN_NONZERO: return x > 0.0 || x < 0.0;
    case FB_DOMAIN_POSITIVE: return x > 0.0;
    case FB_DOMAIN_NONNEGATIVE: return x >= 0.0;
    case FB_DOMAIN_PROBABILITY: return x >= 0.0 && x <= 1.0;
    default: return 1;
    }
}

/* What of this element is not legal at its site: FB_KIND_NONE for a good one. */
static int32_t judge_element(const fb_site_entry *site, const fb_format *format, const uint8_t *at)
{
    uint64_t bits = fb_part_bits(at, fb_format_part_bytes(format), 0);
    if (fb_format_is_bad(format, bits)) {
        int32_t kind = fb_format_kind(format, bits);
        return kind == FB_KIND_NEG_INF && (site->legal & FB_LEGAL_NEG_INF) ? FB_KIND_NONE : kind;
    }
    return in_domain(site->domain, fb_format_value(format, bits)) ? FB_KIND_NONE : FB_KIND_DOMAIN;
}

/* A site with a domain or with legal -inf is read element by element. Few sites have either, and they are small. */
static void judge_elements(const fb_site_entry *site, const fb_view *view, fb_finding *finding)
{
    const fb_format *format = fb_format_of(view->dtype);
    size_t bytes = fb_format_part_bytes(format);
    for (uint64_t i = 0; i < view->count; i++) {
        int32_t kind = judge_element(site, format, fb_view_element(view, i, bytes));
        if (kind == FB_KIND_NONE) continue;
        if (finding->count++ == 0) {
            finding->kind = kind;
            finding->first_index = i;
            finding->stats.first_bits = fb_part_bits(fb_view_element(view, i, bytes), bytes, 0);
        }
    }
}

static int has_parts(int32_t dtype)
{
    return dtype == FB_C64 || dtype == FB_C128;
}

/* Fills a finding; its count stays 0 when all is well. Returns 0 when the view could not be read, which says nothing of it. */
static int judge_view(const fb_site_entry *site, const fb_view *view, fb_finding *finding)
{
    fb_scan_result stats = FB_SCAN_RESULT_INIT;
    uint64_t first = FB_NO_INDEX;
    int by_element = (site->domain != FB_DOMAIN_ANY || (site->legal & FB_LEGAL_NEG_INF)) && !has_parts(view->dtype);
    if (fb_scan_first(view, &first, NULL) != FB_OK) return 0;
    if (first == FB_NO_INDEX && site->domain == FB_DOMAIN_ANY) return 1;
    if (fb_scan(view, &stats, NULL) != FB_OK) return 0;
    finding->stats = stats;
    finding->kind = stats.first_kind;
    finding->first_index = stats.first_index;
    finding->count = stats.nan + stats.pos_inf + stats.neg_inf;
    if (!by_element) return 1;
    finding->count = 0;
    judge_elements(site, view, finding);
    return 1;
}

int fb_view_judge(const struct fb_run *run, const fb_view *view, fb_finding *finding)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, view->site);
    memset(finding, 0, sizeof *finding);
    finding->size = (uint32_t)sizeof *finding;
    finding->site = view->site;
    if (view->count == 0 || (site->legal & (FB_LEGAL_PADDING | FB_LEGAL_EXEMPT)) || view->dtype >= FB_I8) return 0;
    return judge_view(site, view, finding);
}

int fb_check_view(struct fb_run *run, int32_t boundary, const fb_view *view)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, view->site);
    fb_cover *cover = &run->step.rec.cover;
    fb_finding finding;
    int injected;
    if (view->count == 0) {
        count_tensor(run, boundary, view->site, &cover->absent);
        return 1;
    }
    injected = fb_plant_view(run, place_of(boundary), boundary, view);
    if (site->legal & (FB_LEGAL_PADDING | FB_LEGAL_EXEMPT)) {
        count_tensor(run, boundary, view->site, &cover->exempt);
        return 0;
    }
    if (view->dtype >= FB_I8) {
        count_tensor(run, boundary, view->site, &cover->unchecked);
        return 0;
    }
    memset(&finding, 0, sizeof finding);
    if (!judge_view(site, view, &finding)) {
        count_tensor(run, boundary, view->site, &cover->unchecked);
        return 0;
    }
    count_tensor(run, boundary, view->site, &cover->tensors[boundary]);
    if (finding.count == 0) return 1;
    finding.site = view->site;
    finding.boundary = boundary;
    finding.micro_step = boundary == FB_ENTRY ? 0 : run->step.micro;
    fb_finding_add(run, &finding, injected);
    return 1;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------- */

static fb_status view_valid(struct fb_run *run, const char *what, const fb_view *view, size_t i, fb_error *err)
{
    fb_walk walk;
    if (!fb_sites_get(&run->sites, view->site)) {
        return fb_fail(err, FB_E_SITE, "%s: view %zu names site %u, and this run gave out %llu", what, i, view->site,
                       (unsigned long long)run->sites.count);
    }
    if (!fb_dtype_name(view->dtype))
        return fb_fail(err, FB_E_DTYPE, "%s: view %zu has the unknown number format %d", what, i, view->dtype);
    if (view->device != -1) {
        return fb_fail(err, FB_E_USAGE, "%s: view %zu lies on device %d; check it there and hand the result to fb_step_report",
                       what, i, view->device);
    }
    if (view->count && !view->data)
        return fb_fail(err, FB_E_USAGE, "%s: view %zu has %llu elements and data NULL", what, i, (unsigned long long)view->count);
    /* By the scanner's own rules: what it would refuse later must be refused now, or a tensor that nobody read would pass. */
    return fb_walk_init(&walk, view, "view", i, err);
}

fb_status fb_check_views_valid(struct fb_run *run, const char *what, const fb_view *views, size_t n, fb_error *err)
{
    if (n && !views) return fb_fail(err, FB_E_USAGE, "%s: views is NULL and n is %zu", what, n);
    for (size_t i = 0; i < n; i++) {
        fb_status status = view_valid(run, what, &views[i], i, err);
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

/* An update may be proposed exactly where fb_step_apply would let it through, so that its vote has nothing else to decide; more of
   the same proposal may follow. Under the lock, since other threads may be looking at their part of it. */
static fb_status proposal_due(struct fb_run *run, fb_error *err)
{
    const fb_step_state *step = &run->step;
    int covered;
    fb_run_lock(run);
    covered = step->votes > 0 && (!step->unsettled || step->proposed);
    fb_run_unlock(run);
    if (step->withheld) {
        return fb_fail(err, FB_E_WITHHELD, "check tensors at update: the update of step %lld was withheld; call fb_step_end",
                       (long long)step->rec.step);
    }
    if (covered) return FB_OK;
    return fb_fail(
        err, FB_E_ORDER,
        "check tensors at update: no settled vote covers the gradients of step %lld; look at the update after that vote, "
        "beside the state, or after fb_step_apply",
        (long long)step->rec.step);
}

/* Which boundaries may be looked at now. */
static fb_status boundary_due(struct fb_run *run, int32_t boundary, fb_error *err)
{
    const fb_step_state *step = &run->step;
    if (step->ballot_out) return fb_fail(err, FB_E_ORDER, "check tensors: a ballot is out; call fb_step_settle first");
    switch (boundary) {
    case FB_ENTRY:
    case FB_INPUT:
    case FB_FORWARD:
    case FB_LOSS:
    case FB_LOCAL_GRAD:
        if (step->unscaled || step->applied) {
            return fb_fail(err, FB_E_ORDER, "check tensors at %s: the gradients of step %lld are reduced and unscaled already",
                           fb_boundary_name(boundary), (long long)step->rec.step);
        }
        if (step->proposed) {
            return fb_fail(err, FB_E_ORDER, "check tensors at %s: the update of step %lld was looked at already",
                           fb_boundary_name(boundary), (long long)step->rec.step);
        }
        return FB_OK;
    case FB_REDUCED_GRAD:
        if (!step->applied && !step->proposed) return FB_OK;
        return fb_fail(err, FB_E_ORDER, "check tensors at %s: the update of step %lld was %s already", fb_boundary_name(boundary),
                       (long long)step->rec.step, step->applied ? "applied" : "looked at");
    case FB_UPDATE: return step->applied ? FB_OK : proposal_due(run, err);
    case FB_CHECKPOINT: return FB_OK;
    default: return fb_fail(err, FB_E_USAGE, "check tensors: expected a boundary FB_ENTRY .. FB_CHECKPOINT, found %d", boundary);
    }
}

void fb_cover_level(struct fb_run *run, int32_t boundary, uint8_t level)
{
    uint8_t *now = &run->step.rec.cover.level[boundary];
    if (*now == FB_COVER_NONE || level < *now) *now = level;
    if (run->step.covered_serial[boundary] == run->step.serial) return;
    run->step.covered_serial[boundary] = run->step.serial;
    run->step.covered_micros[boundary]++;
}

/* Which part of the tensors is due in a sampled check. Counted in steps that sample this boundary and not by the step's number, so
   that a trainer which samples every tenth step only does not see the same tenth for ever. */
static size_t sampling_phase(struct fb_run *run, int32_t boundary, int32_t period)
{
    uint64_t turn;
    fb_run_lock(run);
    if (run->sampled_serial[boundary] < run->step.step_serial) {
        run->sampled_serial[boundary] = run->step.serial;
        run->sampled_steps[boundary]++;
    }
    turn = run->sampled_steps[boundary];
    fb_run_unlock(run);
    return (size_t)(turn % (uint64_t)period);
}

/* Before the first tensor is read: a finding of one thread must not make the calls of the others seem out of order. */
static void propose(struct fb_run *run)
{
    fb_run_lock(run);
    run->step.proposed = run->step.unsettled = 1;
    fb_run_unlock(run);
}

static fb_status check(struct fb_run *run, int32_t boundary, const fb_view *views, size_t n, int32_t period, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "check tensors", err);
    size_t phase;
    int looked_at = 0;
    if (status != FB_OK) return status;
    if (period < 1) return fb_fail(err, FB_E_USAGE, "check tensors: the sampling period must be 1 or more, found %d", period);
    if ((status = boundary_due(run, boundary, err)) != FB_OK) return status;
    if ((status = fb_check_views_valid(run, "check tensors", views, n, err)) != FB_OK) return status;
    if (n && boundary == FB_UPDATE && !run->step.applied) propose(run);
    if (fb_risk_deep(&run->risk) && run->risk.steps >= FB_RISK_FIRST_STEPS) period = 1;
    phase = period == 1 ? 0 : sampling_phase(run, boundary, period);
    for (size_t i = 0; i < n; i++) {
        if ((i + phase) % (size_t)period == 0) looked_at |= fb_check_view(run, boundary, &views[i]);
    }
    fb_run_lock(run);
    /* A call that passed over every tensor it was given has checked nothing. */
    if (looked_at) fb_cover_level(run, boundary, period == 1 ? FB_COVER_FULL : FB_COVER_SAMPLED);
    /* Gradients looked at after a vote are not covered by it. */
    if (n && boundary != FB_UPDATE && boundary != FB_CHECKPOINT) run->step.unsettled = 1;
    fb_run_unlock(run);
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_check(struct fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, check(run, boundary, views, n, 1, err), err);
    fb_fpenv_leave(modes);
    return status;
}

fb_status fb_step_check_sampled(struct fb_run *run, int32_t boundary, const fb_view *views, size_t n, int32_t period, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, check(run, boundary, views, n, period, err), err);
    fb_fpenv_leave(modes);
    return status;
}

/* ---- looked at elsewhere ----------------------------------------------------------------------------------------------------- */

static fb_status looked_valid(struct fb_run *run, const fb_view *views, size_t n, fb_error *err)
{
    if (n && !views) return fb_fail(err, FB_E_USAGE, "count tensors: views is NULL and n is %zu", n);
    for (size_t i = 0; i < n; i++) {
        if (!fb_sites_get(&run->sites, views[i].site)) {
            return fb_fail(err, FB_E_SITE, "count tensors: view %zu names site %u, and this run gave out %llu", i, views[i].site,
                           (unsigned long long)run->sites.count);
        }
        if (!fb_dtype_name(views[i].dtype))
            return fb_fail(err, FB_E_DTYPE, "count tensors: view %zu has the unknown number format %d", i, views[i].dtype);
    }
    return FB_OK;
}

static uint32_t *counter_of(struct fb_run *run, int32_t boundary, const fb_view *view)
{
    fb_cover *cover = &run->step.rec.cover;
    if (view->count == 0) return &cover->absent;
    if (fb_sites_get(&run->sites, view->site)->legal & (FB_LEGAL_PADDING | FB_LEGAL_EXEMPT)) return &cover->exempt;
    return view->dtype >= FB_I8 ? &cover->unchecked : &cover->tensors[boundary];
}

/* Was all of the state handed over in this step? Who looks elsewhere may look at a part of it each time. */
static int state_is_whole(const struct fb_run *run, int32_t boundary)
{
    for (uint32_t i = 0; i < run->sites.count; i++) {
        int32_t role = run->sites.entries[i].role;
        if (role < FB_ROLE_PARAMETER || role > FB_ROLE_BUFFER) continue;
        if (run->seen[mark_index(i, boundary)] < run->step.step_serial) return 0;
    }
    return 1;
}

static fb_status looked(struct fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err)
{
    int64_t begun = fb_run_now(run);
    fb_status status = fb_run_in_step(run, "count tensors", err);
    int looked_at = 0;
    if (status != FB_OK) return status;
    if ((status = boundary_due(run, boundary, err)) != FB_OK) return status;
    if ((status = looked_valid(run, views, n, err)) != FB_OK) return status;
    if (n && boundary == FB_UPDATE && !run->step.applied) propose(run);
    fb_run_lock(run);
    for (size_t i = 0; i < n; i++) {
        uint32_t *counter = counter_of(run, boundary, &views[i]);
        fb_check_mark(run, boundary, views[i].site, counter);
        looked_at |= counter == &run->step.rec.cover.tensors[boundary] || views[i].count == 0;
    }
    if (looked_at) {
        int whole = (boundary != FB_ENTRY && boundary != FB_UPDATE) || state_is_whole(run, boundary);
        fb_cover_level(run, boundary, FB_COVER_FULL);
        /* The parts of a state add up to the whole of it, so here the last call says how much it was. */
        if (boundary == FB_ENTRY || boundary == FB_UPDATE)
            run->step.rec.cover.level[boundary] = whole ? FB_COVER_FULL : FB_COVER_SAMPLED;
    }
    if (n && boundary != FB_UPDATE && boundary != FB_CHECKPOINT) run->step.unsettled = 1;
    fb_run_unlock(run);
    fb_run_spent(run, begun);
    return FB_OK;
}

fb_status fb_step_looked(struct fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err)
{
    return fb_run_misuse(run, looked(run, boundary, views, n, err), err);
}

static fb_status report(struct fb_run *run, const fb_finding *findings, size_t n, fb_error *err)
{
    fb_status status = fb_run_in_step(run, "report findings", err);
    if (status != FB_OK) return status;
    if (n && !findings) return fb_fail(err, FB_E_USAGE, "report findings: findings is NULL and n is %zu", n);
    if (run->step.ballot_out) return fb_fail(err, FB_E_ORDER, "report findings: a ballot is out; call fb_step_settle first");
    for (size_t i = 0; i < n; i++) {
        const fb_finding *finding = &findings[i];
        if (finding->size != sizeof *finding) {
            return fb_fail(err, FB_E_USAGE, "report findings: size of finding %zu is %u, expected %zu", i, finding->size,
                           sizeof *finding);
        }
        if (!fb_sites_get(&run->sites, finding->site)) {
            return fb_fail(err, FB_E_SITE, "report findings: finding %zu names site %u, and this run gave out %llu", i,
                           finding->site, (unsigned long long)run->sites.count);
        }
        if (finding->micro_step >= run->step.rec.micro_steps) {
            return fb_fail(err, FB_E_USAGE, "report findings: finding %zu names micro-step %d, and step %lld has %d", i,
                           finding->micro_step, (long long)run->step.rec.step, run->step.rec.micro_steps);
        }
        if (finding->boundary < FB_ENTRY || finding->boundary > FB_CHECKPOINT || finding->kind <= FB_KIND_NONE ||
            finding->kind > FB_KIND_DOMAIN || finding->micro_step < 0 || finding->field < FB_FIELD_TENSOR ||
            finding->field > FB_FIELD_LENGTHS) {
            return fb_fail(err, FB_E_USAGE, "report findings: finding %zu has boundary %d, kind %d, micro-step %d, field %d", i,
                           finding->boundary, finding->kind, finding->micro_step, finding->field);
        }
    }
    for (size_t i = 0; i < n; i++) fb_finding_add(run, &findings[i], 0);
    return FB_OK;
}

fb_status fb_step_report(struct fb_run *run, const fb_finding *findings, size_t n, fb_error *err)
{
    return fb_run_misuse(run, report(run, findings, n, err), err);
}
