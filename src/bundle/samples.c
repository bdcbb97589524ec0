/* Which samples a bundle holds. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "bundle/part.h"
#include "ckpt/order.h"

#define SAMPLE_IDS "sample_ids"

static int by_id(const void *ctx, uint32_t a, uint32_t b)
{
    const int64_t *ids = ctx;
    return ids[a] < ids[b] ? -1 : ids[a] > ids[b];
}

/* The ids of one rank are added to those that were found. */
static fb_status add_rank(const fb_bundle *bundle, int32_t rank, int64_t **all, size_t *used, fb_error *err)
{
    uint64_t count = 0;
    int64_t *grown;
    int32_t dtype = 0;
    fb_status status = fb_bundle_find(bundle, rank, FB_BUNDLE_BATCH, SAMPLE_IDS, &dtype, NULL, NULL, &count, err);
    if (status == FB_E_NOTFOUND) return FB_OK;
    if (status != FB_OK) return status;
    if (dtype != FB_I64)
        return fb_fail(err, FB_E_DTYPE, "list the samples of bundle %s: " SAMPLE_IDS " is no i64", fb_bundle_folder(bundle));
    if (count > UINT32_MAX - *used)
        return fb_fail(err, FB_E_LIMIT, "list the samples of bundle %s: more than 2^32", fb_bundle_folder(bundle));
    grown = fb_realloc(*all, (*used + (size_t)count + 1) * sizeof **all);
    if (!grown) return fb_fail(err, FB_E_NOMEM, "list the samples of bundle %s: no memory", fb_bundle_folder(bundle));
    *all = grown;
    status = fb_bundle_get(bundle, rank, FB_BUNDLE_BATCH, SAMPLE_IDS, FB_I64, count, grown + *used, err);
    if (status == FB_OK) *used += (size_t)count;
    return status;
}

/* Each id once, in rising order. */
static fb_status give(const int64_t *all, size_t used, int64_t *ids, size_t room, size_t *count, fb_error *err)
{
    uint32_t *order = fb_calloc(used + 1, sizeof *order);
    size_t n = 0;
    if (!order) return fb_fail(err, FB_E_NOMEM, "list the samples of a bundle: no memory");
    for (size_t i = 0; i < used; i++) order[i] = (uint32_t)i;
    fb_ckpt_sort(order, used, by_id, all);
    for (size_t i = 0; i < used; i++) {
        if (i > 0 && all[order[i]] == all[order[i - 1]]) continue;
        if (n < room && ids) ids[n] = all[order[i]];
        n++;
    }
    fb_free(order);
    *count = n;
    if (n > room) return fb_fail(err, FB_E_LIMIT, "list the samples of a bundle: %zu, room is for %zu", n, room);
    return FB_OK;
}

fb_status fb_bundle_samples(const fb_bundle *bundle, int64_t *ids, size_t room, size_t *count, fb_error *err)
{
    int64_t *all = NULL;
    size_t used = 0;
    fb_status status = FB_OK;
    if (!bundle || !count || (room > 0 && !ids)) {
        return fb_fail(err, FB_E_USAGE, "list the samples of a bundle: an argument is missing");
    }
    *count = 0;
    for (int32_t rank = 0; rank < fb_bundle_world(bundle) && status == FB_OK; rank++) {
        if (fb_bundle_has_rank(bundle, rank)) status = add_rank(bundle, rank, &all, &used, err);
    }
    if (status == FB_OK && used == 0)
        status = fb_fail(err, FB_E_NOTFOUND, "list the samples of bundle %s: it has no " SAMPLE_IDS, fb_bundle_folder(bundle));
    if (status == FB_OK) status = give(all, used, ids, room, count, err);
    fb_free(all);
    return status;
}
