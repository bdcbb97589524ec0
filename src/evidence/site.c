#include "evidence/site.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"

void fb_sites_init(fb_sites *sites, uint64_t max)
{
    memset(sites, 0, sizeof *sites);
    sites->max = max ? max : FB_SITES_MAX_DEFAULT;
}

static void entry_release(fb_site_entry *entry)
{
    fb_free(entry->module);
    fb_free(entry->tensor);
    fb_free(entry->group);
}

void fb_sites_release(fb_sites *sites)
{
    for (uint64_t i = 0; i < sites->count; i++) entry_release(&sites->entries[i]);
    fb_free(sites->entries);
    memset(sites, 0, sizeof *sites);
}

static fb_status make_room(fb_sites *sites, fb_error *err)
{
    uint64_t room = sites->room ? sites->room * 2 : 64;
    fb_site_entry *grown;
    if (sites->count < sites->room) return FB_OK;
    if (sites->count >= sites->max) {
        return fb_fail(err, FB_E_LIMIT, "add site: the run was opened for %llu sites and has them all; raise sites_max",
                       (unsigned long long)sites->max);
    }
    if (room > sites->max) room = sites->max;
    grown = fb_realloc(sites->entries, (size_t)room * sizeof *grown);
    if (!grown) return fb_fail(err, FB_E_NOMEM, "add site: no memory for %llu sites", (unsigned long long)room);
    sites->entries = grown;
    sites->room = room;
    return FB_OK;
}

static fb_status check(const fb_site *site, fb_error *err)
{
    const char *texts[3] = {site->module, site->tensor, site->group};
    if (site->role < FB_ROLE_ACTIVATION || site->role > FB_ROLE_COUNTER) {
        return fb_fail(err, FB_E_USAGE, "add site: role must be one of FB_ROLE_*, found %d", site->role);
    }
    if (site->domain < FB_DOMAIN_ANY || site->domain > FB_DOMAIN_PROBABILITY) {
        return fb_fail(err, FB_E_USAGE, "add site: domain must be one of FB_DOMAIN_*, found %d", site->domain);
    }
    if (site->legal & ~(uint32_t)(FB_LEGAL_NEG_INF | FB_LEGAL_PADDING | FB_LEGAL_EXEMPT)) {
        return fb_fail(err, FB_E_USAGE, "add site: legal has unknown bits: 0x%x", site->legal);
    }
    if (site->position < -1 || site->position > FB_POSITION_MAX) {
        return fb_fail(err, FB_E_USAGE, "add site: position must lie in -1 .. %d, found %lld", FB_POSITION_MAX,
                       (long long)site->position);
    }
    if (site->ndim < 0 || site->ndim > FB_DIMS_MAX) {
        return fb_fail(err, FB_E_USAGE, "add site: ndim must lie in 0 .. %d, found %d", FB_DIMS_MAX, site->ndim);
    }
    for (int32_t i = 0; i < site->ndim; i++) {
        if (site->shape[i] < 0) {
            return fb_fail(err, FB_E_USAGE, "add site: shape[%d] must not be negative, found %lld", i, (long long)site->shape[i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        if (texts[i] && strlen(texts[i]) > FB_SITE_TEXT_MAX) {
            return fb_fail(err, FB_E_USAGE, "add site: names may have %d bytes, found %zu", FB_SITE_TEXT_MAX, strlen(texts[i]));
        }
    }
    return FB_OK;
}

static uint64_t identity(const fb_site_entry *entry)
{
    uint64_t hash = fb_hash64(entry->module, strlen(entry->module), (uint64_t)entry->role);
    return fb_hash64(entry->tensor, strlen(entry->tensor), hash);
}

fb_status fb_sites_add(fb_sites *sites, const fb_site *site, uint32_t *id, fb_error *err)
{
    fb_site_entry entry;
    fb_status status;
    if ((status = check(site, err)) != FB_OK) return status;
    if ((status = make_room(sites, err)) != FB_OK) return status;
    memset(&entry, 0, sizeof entry);
    entry.module = fb_strdup(site->module ? site->module : "");
    entry.tensor = fb_strdup(site->tensor ? site->tensor : "");
    entry.group = fb_strdup(site->group ? site->group : "");
    if (!entry.module || !entry.tensor || !entry.group) {
        entry_release(&entry);
        return fb_fail(err, FB_E_NOMEM, "add site: no memory for its names");
    }
    entry.role = site->role;
    entry.bucket = site->bucket;
    entry.domain = site->domain;
    entry.position = site->position >= 0 ? site->position : (int64_t)sites->count;
    entry.legal = site->legal;
    entry.ndim = site->ndim;
    for (int32_t i = 0; i < site->ndim; i++) entry.shape[i] = site->shape[i];
    entry.identity = identity(&entry);
    *id = (uint32_t)sites->count;
    sites->entries[sites->count++] = entry;
    return FB_OK;
}

const fb_site_entry *fb_sites_get(const fb_sites *sites, uint32_t id)
{
    return id < sites->count ? &sites->entries[id] : NULL;
}

int32_t fb_site_unravel(const int64_t *shape, int32_t ndim, uint64_t flat, int64_t index[FB_DIMS_MAX])
{
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (shape[i] <= 0) return 0;
        index[i] = (int64_t)(flat % (uint64_t)shape[i]);
        flat /= (uint64_t)shape[i];
    }
    return flat == 0 ? ndim : 0;
}

const char *fb_role_name(int32_t role)
{
    static const char *const names[] = {"?",         "activation", "input", "loss",   "gradient",
                                        "parameter", "moment",     "ema",   "buffer", "counter"};
    return role >= FB_ROLE_ACTIVATION && role <= FB_ROLE_COUNTER ? names[role] : "?";
}

const char *fb_boundary_name(int32_t boundary)
{
    static const char *const names[] = {"?",      "entry_state", "input", "forward", "loss", "local_gradient", "reduced_gradient",
                                        "update", "checkpoint"};
    return boundary >= FB_ENTRY && boundary <= FB_CHECKPOINT ? names[boundary] : "?";
}

const char *fb_kind_name(int32_t kind)
{
    static const char *const names[] = {"none", "nan", "+inf", "-inf", "out_of_range", "all_ignored", "domain"};
    return kind >= FB_KIND_NONE && kind <= FB_KIND_DOMAIN ? names[kind] : "?";
}

const char *fb_action_name(int32_t action)
{
    static const char *const names[] = {"proceed", "skip", "skip_freeze", "replay", "degrade", "halt"};
    return action >= FB_PROCEED && action <= FB_HALT ? names[action] : "?";
}

const char *fb_agreement_name(int32_t agreement)
{
    static const char *const names[] = {"none", "norm", "vote"};
    return agreement >= FB_AGREE_NONE && agreement <= FB_AGREE_VOTE ? names[agreement] : "?";
}

const char *fb_field_name(int32_t field)
{
    static const char *const names[] = {"tensor", "tokens", "labels", "positions", "mask", "weights", "lengths"};
    return field >= FB_FIELD_TENSOR && field <= FB_FIELD_LENGTHS ? names[field] : "?";
}
