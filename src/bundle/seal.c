/* Closing a bundle: every part is read back, and the manifest put in place once. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "bundle/check.h"
#include "bundle/inside.h"

/* All parts must be of one incident. */
static fb_status agree(fb_manifest *manifest, const fb_part *part, const char *folder, fb_error *err)
{
    if (manifest->part_count == 0) {
        manifest->step = part->step;
        manifest->run_id = fb_pool_text(&manifest->pool, part->run_id, strlen(part->run_id));
        manifest->case_id = fb_pool_text(&manifest->pool, part->case_id, strlen(part->case_id));
        if (!manifest->run_id || !manifest->case_id) return fb_fail(err, FB_E_NOMEM, "seal %s: no memory", folder);
    }
    if (part->world != manifest->world || part->step != manifest->step || strcmp(part->run_id, manifest->run_id) != 0 ||
        strcmp(part->case_id, manifest->case_id) != 0) {
        return fb_fail(err, FB_E_CORRUPT,
                       "seal %s: the part of rank %d is of run %s, case %s, step %lld, world %d; expected %s, %s, %lld, %d", folder,
                       (int)part->rank, part->run_id, part->case_id, (long long)part->step, (int)part->world, manifest->run_id,
                       manifest->case_id, (long long)manifest->step, (int)manifest->world);
    }
    return FB_OK;
}

static fb_status take_part(fb_manifest *manifest, const fb_os *os, const char *folder, int32_t rank, fb_error *err)
{
    fb_manifest_part *grown = fb_bundle_grow(manifest->parts, manifest->part_count, &manifest->part_room, sizeof *grown);
    fb_part part;
    fb_status status;
    if (!grown) return fb_fail(err, FB_E_NOMEM, "seal %s: no memory", folder);
    manifest->parts = grown;
    status = fb_part_read(&part, os, folder, rank, NULL, &manifest->parts[manifest->part_count], err);
    if (status == FB_E_NOTFOUND) return FB_OK; /* this rank had nothing to put in, or died before it could */
    if (status != FB_OK) return status;
    status = agree(manifest, &part, folder, err);
    if (status == FB_OK) manifest->part_count++;
    fb_part_release(&part);
    return status;
}

fb_status fb_bundle_seal_on(const fb_os *os, const char *folder, int32_t world, fb_error *err)
{
    fb_manifest manifest;
    char *text = NULL;
    size_t bytes = 0;
    int sealed = 0;
    fb_status status;
    memset(&manifest, 0, sizeof manifest);
    if (!folder || !folder[0] || world < 1 || world > FB_BUNDLE_WORLD_MAX)
        return fb_fail(err, FB_E_USAGE, "seal a bundle: no folder, or a world of %d", (int)world);
    manifest.world = world;
    status = fb_bundle_there(os, folder, FB_BUNDLE_MANIFEST, &sealed, err);
    if (status == FB_OK && sealed) status = fb_fail(err, FB_E_EXISTS, "seal %s: it is sealed already", folder);
    for (int32_t rank = 0; rank < world && status == FB_OK; rank++) status = take_part(&manifest, os, folder, rank, err);
    if (status == FB_OK && manifest.part_count == 0)
        status = fb_fail(err, FB_E_NOTFOUND, "seal %s: none of %d ranks has finished its part", folder, (int)world);
    if (status == FB_OK) status = fb_manifest_text(&manifest, &text, &bytes, err);
    if (status == FB_OK) status = fb_os_put_new(os, folder, FB_BUNDLE_MANIFEST, text, bytes, err);
    fb_free(text);
    fb_manifest_release(&manifest);
    return status;
}

fb_status fb_bundle_seal(const char *folder, int32_t world, fb_error *err)
{
    return fb_bundle_seal_on(fb_os_posix(), folder, world, err);
}
