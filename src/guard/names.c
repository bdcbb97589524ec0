/*
 * Sites and owned state: what is said once, between steps.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "guard/run.h"
#include "scan/scan_fpenv.h"

/* The tables that mark what was looked at grow with the sites, so that checks take no memory. */
static fb_status grow_marks(struct fb_run *run, fb_error *err)
{
    uint64_t **tables[] = {&run->seen, &run->read, &run->bad};
    uint64_t room = run->seen_room ? run->seen_room * 2 : 64;
    size_t used = (size_t)run->seen_room * FB_BOUNDARIES, wanted = (size_t)room * FB_BOUNDARIES;
    if (run->sites.count < run->seen_room) return FB_OK;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        uint64_t *grown = fb_realloc(*tables[i], wanted * sizeof *grown);
        if (!grown) return fb_fail(err, FB_E_NOMEM, "add site: no memory for the marks of %llu sites", (unsigned long long)room);
        memset(grown + used, 0, (wanted - used) * sizeof *grown);
        *tables[i] = grown;
    }
    run->seen_room = room;
    return FB_OK;
}

static fb_status add_site(struct fb_run *run, const fb_site *given, uint32_t *id, fb_error *err)
{
    fb_site site = FB_SITE_INIT;
    fb_status status = fb_run_usable(run, "add site", err);
    if (status != FB_OK) return status;
    if (!given || !id) return fb_fail(err, FB_E_USAGE, "add site: site or id is NULL");
    if (given->size < offsetof(fb_site, shape) || given->size > 1u << 16) {
        return fb_fail(err, FB_E_USAGE, "add site: site.size is %u; start from FB_SITE_INIT", given->size);
    }
    if (run->step.open)
        return fb_fail(err, FB_E_ORDER, "add site: a step is open; add sites between fb_step_end and fb_step_begin");
    memcpy(&site, given, given->size < sizeof site ? given->size : sizeof site);
    if ((status = grow_marks(run, err)) != FB_OK) return status;
    return fb_sites_add(&run->sites, &site, id, err);
}

fb_status fb_run_add_site(struct fb_run *run, const fb_site *site, uint32_t *id, fb_error *err)
{
    fb_status status = add_site(run, site, id, err);
    if (status != FB_OK) return fb_run_misuse(run, status, err);
    if (site->role == FB_ROLE_GRADIENT) run->gradient_sites++;
    fb_record_site(run, *id);
    return FB_OK;
}

/* Nothing is read: the memory may be gone. */
static fb_status disown(struct fb_run *run, fb_error *err)
{
    if (run->step.open && !run->step.withheld) {
        return fb_fail(err, FB_E_ORDER,
                       "own nothing: the update of step %lld is open and was not withheld; the state is about to change",
                       (long long)run->step.rec.step);
    }
    fb_free(run->owned);
    run->owned = NULL;
    run->owned_count = 0;
    run->proof_pending = 0;
    return FB_OK;
}

static fb_status own(struct fb_run *run, const fb_view *views, size_t n, fb_error *err)
{
    fb_view *copy;
    fb_status status = fb_run_usable(run, "own state", err);
    if (status != FB_OK) return status;
    if (n == 0) return disown(run, err);
    if (run->step.open) return fb_fail(err, FB_E_ORDER, "own state: a step is open; call it between fb_step_end and fb_step_begin");
    if ((status = fb_check_views_valid(run, "own state", views, n, err)) != FB_OK) return status;
    for (size_t i = 0; i < n; i++) {
        if (views[i].layout) {
            return fb_fail(err, FB_E_UNSUPPORTED, "own state: view %zu is strided; digests are taken of contiguous memory", i);
        }
    }
    copy = fb_calloc(n, sizeof *copy);
    if (!copy) return fb_fail(err, FB_E_NOMEM, "own state: no memory for %zu views", n);
    memcpy(copy, views, n * sizeof *copy);
    fb_free(run->owned);
    run->owned = copy;
    run->owned_count = n;
    run->proof_pending = 0; /* digests of other memory cannot be compared */
    return FB_OK;
}

fb_status fb_run_own(struct fb_run *run, const fb_view *views, size_t n, fb_error *err)
{
    return fb_run_misuse(run, own(run, views, n, err), err);
}

static int32_t place_of_role(int32_t role)
{
    switch (role) {
    case FB_ROLE_PARAMETER: return FB_INJECT_PARAM;
    case FB_ROLE_MOMENT: return FB_INJECT_MOMENT;
    case FB_ROLE_EMA:
    case FB_ROLE_BUFFER: return FB_INJECT_BUFFER;
    default: return 0;
    }
}

void fb_owned_inject(struct fb_run *run)
{
    for (size_t i = 0; run->inject.count && i < run->owned_count; i++) {
        const fb_view *view = &run->owned[i];
        (void)fb_plant_view(run, place_of_role(fb_sites_get(&run->sites, view->site)->role), FB_ENTRY, view);
    }
}

void fb_owned_search(struct fb_run *run)
{
    int looked_at = 0;
    if (run->step.state_searched || run->step.applied) return;
    run->step.state_searched = 1;
    for (size_t i = 0; i < run->owned_count; i++) {
        const fb_site_entry *site = fb_sites_get(&run->sites, run->owned[i].site);
        if (site->role == FB_ROLE_COUNTER) continue;
        looked_at |= fb_check_view(run, FB_ENTRY, &run->owned[i]);
    }
    if (looked_at) run->step.rec.cover.level[FB_ENTRY] = FB_COVER_FULL;
}

fb_status fb_run_scaler_get(const struct fb_run *run, fb_scaler_state *out, fb_error *err)
{
    fb_status status = fb_run_usable(run, "read the loss scaler", err);
    if (status != FB_OK) return status;
    if (!out) return fb_fail(err, FB_E_USAGE, "read the loss scaler: out is NULL");
    *out = run->scaler;
    return FB_OK;
}

static fb_status scaler_set(struct fb_run *run, const fb_scaler_state *state, fb_error *err)
{
    fb_status status = fb_run_usable(run, "set the loss scaler", err);
    if (status != FB_OK) return status;
    if (!state) return fb_fail(err, FB_E_USAGE, "set the loss scaler: state is NULL");
    if (run->step.open) return fb_fail(err, FB_E_ORDER, "set the loss scaler: a step is open");
    if ((status = fb_scaler_check(&run->scaler_config, state, err)) != FB_OK) return status;
    run->scaler = *state;
    return FB_OK;
}

fb_status fb_run_scaler_set(struct fb_run *run, const fb_scaler_state *state, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = fb_run_misuse(run, scaler_set(run, state, err), err);
    fb_fpenv_leave(modes);
    return status;
}

double fb_run_loss_scale(const struct fb_run *run)
{
    return run ? run->scaler.scale : 1.0;
}
