/*
 * The short calls: what nearly every trainer would write itself around the calls of firstbad.h. They hold no state and decide
 * nothing; each is a few public calls in the order that must hold.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "guard/run.h"

/* An empty variable counts as none, as fb_run_open has it. */
static const char *set_or(const char *variable, const char *otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? value : otherwise;
}

fb_status fb_run_open_alone(fb_run **out, const fb_run_config *config, fb_error *err)
{
    fb_run_config mine = FB_RUN_CONFIG_INIT;
    fb_status status;
    char id[64];
    if (!out) return fb_fail(err, FB_E_USAGE, "open run: out is NULL");
    *out = NULL;
    if (config) {
        if (config->size < offsetof(fb_run_config, dir) || config->size > 1u << 16) {
            return fb_fail(err, FB_E_USAGE, "open run: config.size is %u; start from FB_RUN_CONFIG_INIT", config->size);
        }
        memcpy(&mine, config, config->size < sizeof mine ? config->size : sizeof mine);
        mine.size = (uint32_t)sizeof mine;
    }
    mine.rank = 0;
    mine.world = 1;
    mine.run_id = set_or("FIRSTBAD_RUN_ID", mine.run_id);
    if (!mine.run_id) {
        if ((status = fb_run_new_id(id)) != FB_OK) return fb_fail(err, status, "open run: no run id could be made");
        mine.run_id = id;
    }
    /* A folder in which no number can be taken is no reason not to train: fb_run_open goes on in memory and counts what is lost.
       INT32_MAX is never given out otherwise, so no earlier launch's ledger is in the way when only the disk is full. */
    if (!set_or("FIRSTBAD_ATTEMPT", NULL)) {
        status = fb_run_next_attempt(set_or("FIRSTBAD_DIR", mine.dir), mine.run_id, &mine.attempt, err);
        if (status != FB_OK && status != FB_E_IO) return status;
        if (status == FB_E_IO) mine.attempt = INT32_MAX;
    }
    return fb_run_open(out, &mine, err);
}

fb_status fb_run_name_view(fb_run *run, int32_t role, const char *module, const char *tensor, fb_view *view, fb_error *err)
{
    fb_site site = FB_SITE_INIT;
    if (!view) return fb_run_misuse(run, fb_fail(err, FB_E_USAGE, "name view: view is NULL"), err);
    site.role = role;
    site.module = module;
    site.tensor = tensor;
    return fb_run_add_site(run, &site, &view->site, err);
}

uint64_t fb_step_findings(const fb_run *run)
{
    return run && run->step.open ? run->step.rec.findings : 0;
}

fb_status fb_step_vote_alone(fb_run *run, fb_verdict *verdict, fb_error *err)
{
    int64_t words[4];
    fb_status status;
    /* A caller that looks at the action and not at the status must not read "proceed" out of a struct that nobody filled. */
    if (verdict) verdict->action = FB_HALT;
    if (!run) return fb_fail(err, FB_E_USAGE, "vote alone: run is NULL");
    if (run->world > 1 && run->agreement == FB_AGREE_VOTE) {
        return fb_run_misuse(
            run,
            fb_fail(err, FB_E_USAGE,
                    "vote alone: the run has %d ranks that vote; reduce the words of fb_step_ballot over them with MIN, as "
                    "fb_mpi_step_vote does",
                    run->world),
            err);
    }
    if ((status = fb_step_ballot(run, words, err)) != FB_OK) return status;
    return fb_step_settle(run, words, verdict, err);
}
