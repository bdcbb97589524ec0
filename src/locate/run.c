/* fb_locate_run: the order of things, and what is refused. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "locate/locate_inside.h"

enum { TIMES = 3, TIMES_MAX = 1000, ROWS_MAX = 1 << 20 };

static fb_status refuse(const fb_locate_config *config, const fb_locate_result *result, fb_error *err)
{
    if (!config || !result) return fb_fail(err, FB_E_USAGE, "locate: an argument is NULL");
    if (config->size < sizeof *config || result->size < offsetof(fb_locate_result, node))
        return fb_fail(err, FB_E_USAGE, "locate: sizes are %u and %u; use FB_LOCATE_CONFIG_INIT and FB_LOCATE_RESULT_INIT",
                       config->size, result->size);
    if (config->world < 1 || config->rank < 0 || config->rank >= config->world)
        return fb_fail(err, FB_E_USAGE, "locate: rank %d of %d", config->rank, config->world);
    if (!config->replay || (config->world > 1 && !config->max))
        return fb_fail(err, FB_E_USAGE, "locate: there is no callback for %s",
                       config->replay ? "the largest of all ranks" : "replays");
    if (config->finding_rank < 0 || config->finding_rank >= config->world || !config->finding_tensor)
        return fb_fail(err, FB_E_USAGE, "locate: the finding is tensor \"%s\" of rank %d, and there are %d ranks",
                       config->finding_tensor ? config->finding_tensor : "(NULL)", config->finding_rank, config->world);
    if ((config->parts & ~(uint32_t)FB_LOCATE_ALL) ||
        (config->strategy != FB_LOCATE_SWEEP && config->strategy != FB_LOCATE_BISECT) || config->times > TIMES_MAX ||
        config->rows > ROWS_MAX || (config->difference_count && !config->differences))
        return fb_fail(err, FB_E_USAGE, "locate: parts 0x%x, strategy %d, times %u or rows %u is out of range", config->parts,
                       config->strategy, config->times, config->rows);
    return FB_OK;
}

static fb_status look_closer(fb_locate *l, fb_error *err)
{
    uint32_t parts = l->config->parts;
    fb_status status = FB_OK;
    if (l->reproduced && (parts & FB_LOCATE_REPLAY)) status = fb_locate_in_fp32(l, err);
    if (status == FB_OK && l->reproduced && (parts & FB_LOCATE_OTHER_RANK)) status = fb_locate_on_others(l, err);
    if (status == FB_OK) status = fb_locate_witness(l, err);
    if (status == FB_OK && (parts & FB_LOCATE_CAUSE)) status = fb_locate_rerun(l, err);
    if (status == FB_OK && (parts & FB_LOCATE_MINIMISE)) status = fb_locate_shrink(l, err);
    return status;
}

static fb_status run(fb_locate *l, fb_error *err)
{
    fb_status status = fb_locate_record(l, err);
    if (status == FB_OK && l->found == FB_LOCATED_NOTHING) {
        if (l->config->parts & FB_LOCATE_SEARCH) status = fb_locate_search(l, err);
        if (status == FB_OK) status = fb_locate_prove(l, err);
        if (status == FB_OK) status = fb_locate_repeat(l, err);
        if (status == FB_OK) status = look_closer(l, err);
    }
    return status == FB_OK ? fb_locate_conclude(l, err) : status;
}

static void release(fb_locate *l)
{
    fb_locate_witness_release(&l->witness);
    fb_tape_release(&l->proof);
    fb_row_release(&l->row);
    fb_free(l->first_seen);
    fb_free(l->seen);
    fb_free(l->far);
    fb_free(l->wanted);
    fb_free(l->answers);
    fb_free(l->origins);
    fb_free(l->chain);
    fb_free(l->swallowed);
    fb_free(l->later);
    fb_free(l->in_module);
    fb_free(l->module_nodes);
    fb_free(l);
}

/* A rank that cannot begin says so before the others wait for it, if it knows how to reach them. */
static fb_status begin(const fb_locate_config *config, const fb_locate_result *result, fb_locate **out, fb_error *err)
{
    fb_status status = refuse(config, result, err);
    fb_ranks ranks;
    *out = status == FB_OK ? fb_calloc(1, sizeof **out) : NULL;
    if (status == FB_OK && !*out) status = fb_fail(err, FB_E_NOMEM, "locate: no memory for %zu bytes", sizeof **out);
    if (!config || config->size < sizeof *config || config->world <= 1 || !config->max) return status;
    ranks.rank = config->rank;
    ranks.world = config->world;
    ranks.ctx = config->ctx;
    ranks.max = config->max;
    status = fb_ranks_agree(&ranks, status, err);
    if (*out) (*out)->ranks = ranks;
    return status;
}

fb_status fb_locate_run(const fb_locate_config *given, fb_locate_result *result, fb_error *err)
{
    fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    fb_locate_config config;
    fb_locate *l;
    fb_status status = begin(given, result, &l, err);
    if (status == FB_OK && l) {
        memcpy(&config, given, sizeof config);
        if (config.parts == 0) config.parts = FB_LOCATE_ALL;
        empty.size = result->size;
        memcpy(result, &empty, result->size < sizeof empty ? result->size : sizeof empty);
        l->config = &config;
        l->result = result;
        if (config.world == 1) l->ranks.world = 1;
        l->os = fb_os_posix();
        l->finding = FB_FLOW_NONE;
        l->times = config.times ? config.times : TIMES;
        l->started_ns = l->os->monotonic_ns(l->os->ctx);
        status = run(l, err);
        if (status != FB_OK) fb_locate_release(result);
    }
    if (l) release(l);
    return status;
}

void fb_locate_release(fb_locate_result *result)
{
    if (!result) return;
    fb_free(result->rows);
    fb_free(result->keep);
    result->rows = NULL;
    result->keep = NULL;
    result->rows_needed = result->tokens_needed = 0;
}
