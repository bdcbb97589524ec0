/*
 * The gate before a save: what would be written is looked at in memory, between two steps. No vote is open then, so what is found
 * is made durable at once, and handed to the next step's vote the way a late finding is: as a state that is bad on entry.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "evidence/site.h"
#include "guard/run.h"
#include "scan/scan_fpenv.h"

static fb_status save_valid(struct fb_run *run, const fb_view *views, size_t n, const fb_save_result *out, fb_error *err)
{
    fb_status status = fb_run_usable(run, "look before a save", err);
    if (status != FB_OK) return status;
    if (out && out->size != sizeof *out) {
        return fb_fail(err, FB_E_USAGE, "look before a save: out.size is %u, expected %zu; start from FB_SAVE_RESULT_INIT",
                       out->size, sizeof *out);
    }
    if (run->step.open) {
        return fb_fail(err, FB_E_ORDER, "look before a save: step %lld is open; save between fb_step_end and fb_step_begin",
                       (long long)run->step.rec.step);
    }
    return fb_check_views_valid(run, "look before a save", views, n, err);
}

static void name_tensor(const fb_site_entry *site, char *out, size_t room)
{
    (void)snprintf(out, room, "%.*s%s%.*s", (int)room / 2, site->module, site->module[0] && site->tensor[0] ? "." : "",
                   (int)room / 2, site->tensor);
}

/* The first of them goes to `first`. */
static void look(struct fb_run *run, const fb_view *views, size_t n, fb_save_result *result, fb_finding *first)
{
    for (size_t i = 0; i < n; i++) {
        fb_finding finding;
        if (!fb_view_judge(run, &views[i], &finding)) {
            result->passed_over++;
            continue;
        }
        result->tensors++;
        result->elements += views[i].count;
        if (finding.count == 0) continue;
        result->bad += finding.count;
        if (result->bad_tensors++) continue;
        *first = finding;
    }
    if (!result->bad_tensors) return;
    result->first_site = first->site;
    result->first_index = first->first_index;
    result->first_bits = first->stats.first_bits;
    result->first_kind = first->kind;
    name_tensor(fb_sites_get(&run->sites, first->site), result->first_tensor, sizeof result->first_tensor);
}

/* Durable before the caller hears of it, told to the next vote, and what descends from here is suspect. */
static void keep(struct fb_run *run, int64_t step, const fb_finding *first)
{
    fb_rec_finding rec;
    fb_run_lock(run);
    fb_finding_fill(run, &rec, first, 0);
    rec.step = run->last_step < 0 ? step : run->last_step;
    fb_record_finding(run, &rec, 1);
    /* One record of what came first: the case that is open has its own, and so has a state that was found at the save before. */
    if (run->case_id[0] == '\0' && !run->late_pending) (void)fb_record_freeze(run, &rec);
    /* Not every rank saves, and where nobody can be told the others would go on while this one withholds. */
    if (!fb_run_by_norm(run)) {
        run->late = rec;
        run->late_pending = 1;
        run->state_bad = 1;
    }
    fb_run_unlock(run);
    fb_checkpoint_taint(run, rec.step);
    fb_risk_raise(&run->risk);
}

static fb_status save_gate(struct fb_run *run, int64_t step, const fb_view *views, size_t n, fb_save_result *out, fb_error *err)
{
    fb_save_result result = FB_SAVE_RESULT_INIT;
    fb_finding first;
    fb_status status = save_valid(run, views, n, out, err);
    if (status != FB_OK) return status;
    result.first_index = FB_NO_INDEX;
    memset(&first, 0, sizeof first);
    look(run, views, n, &result, &first);
#ifdef FB_BREAK_P8_gate
    result.bad = 0; /* the broken gate looks, and lets everything be written */
#endif
    if (out) *out = result;
    if (!result.bad) return FB_OK;
    first.boundary = FB_CHECKPOINT;
    first.micro_step = run->step.micro;
    keep(run, step, &first);
    if (run->on_bad == FB_ON_BAD_OBSERVE) return FB_OK;
    return fb_fail(
        err, FB_E_WITHHELD,
        "save step %lld: %s holds %s at element %llu (%llu bad in all); the checkpoint must not be written, and the last "
        "committed one stays the one to resume from",
        (long long)step, result.first_tensor, fb_kind_name(result.first_kind), (unsigned long long)result.first_index,
        (unsigned long long)result.bad);
}

fb_status fb_run_save_gate(struct fb_run *run, int64_t step, const fb_view *views, size_t n, fb_save_result *out, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter();
    fb_status status = save_gate(run, step, views, n, out, err);
    fb_fpenv_leave(modes);
    return status == FB_E_WITHHELD ? status : fb_run_misuse(run, status, err); /* a gate that shuts is no misuse */
}
