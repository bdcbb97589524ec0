/*
 * Checkpoints without a run: firstbad/ckpt.h over the scanner and the registry.
 */
#include "firstbad/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "registry/registry.h"
#include "scan/scan_fpenv.h"

/* What the public numbers say must be what the inside means. */
_Static_assert((int)FB_CKPT_OUTCOME_CLEAN == (int)FB_CKPT_CLEAN && (int)FB_CKPT_OUTCOME_UNSUPPORTED == (int)FB_CKPT_UNSUPPORTED &&
                   (int)FB_CKPT_OUTCOME_LIMIT == (int)FB_CKPT_LIMIT && (int)FB_CKPT_OUTCOME_UNREADABLE == (int)FB_CKPT_UNREADABLE &&
                   (int)FB_CKPT_OUTCOME_NON_FINITE == (int)FB_CKPT_NON_FINITE,
               "outcomes differ");
_Static_assert((int)FB_CKPT_CHECK_SIZE == (int)FB_REGISTRY_LOOK && (int)FB_CKPT_CHECK_BYTES == (int)FB_REGISTRY_VERIFY,
               "ways to compare differ");

static void copy_text(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text);
}

static void fill_result(fb_ckpt_result *out, const fb_ckpt_summary *summary)
{
    out->outcome = summary->outcome;
    out->files = summary->files;
    out->tensors = summary->tensors;
    out->elements = summary->elements;
    out->bytes = summary->bytes;
    out->checked = summary->checked;
    out->unscanned = summary->unscanned;
    out->bad = summary->bad;
    out->bad_tensors = summary->bad_tensors;
    out->digest = summary->digest;
    out->first_index = summary->bad ? summary->first_index : FB_NO_INDEX;
    out->first_bits = summary->first_bits;
    out->step = summary->step;
    out->first_kind = summary->first_kind;
    copy_text(out->first_tensor, sizeof out->first_tensor, summary->first_tensor);
    copy_text(out->first_file, sizeof out->first_file, summary->first_file);
    copy_text(out->format, sizeof out->format, summary->format);
    if (summary->reason.code != FB_OK) copy_text(out->reason, sizeof out->reason, summary->reason.message);
}

fb_status fb_ckpt_scan(const char *path, uint32_t flags, fb_ckpt_result *out, fb_error *err)
{
    const uint32_t known = FB_CKPT_SCAN_NO_DIGEST | FB_CKPT_SCAN_FIRST;
    fb_ckpt_options options;
    fb_ckpt_summary summary;
    fb_fpenv modes;
    fb_status status;
    if (!out || out->size != sizeof *out) {
        return fb_fail(err, FB_E_USAGE, "scan checkpoint: out is NULL or its size is not %zu; start from FB_CKPT_RESULT_INIT",
                       sizeof *out);
    }
    memset((char *)out + sizeof out->size, 0, sizeof *out - sizeof out->size);
    out->outcome = FB_CKPT_OUTCOME_UNREADABLE;
    out->step = -1;
    out->first_index = FB_NO_INDEX;
    if (!path || !*path) return fb_fail(err, FB_E_USAGE, "scan checkpoint: path is missing");
    if (flags & ~known) return fb_fail(err, FB_E_USAGE, "scan checkpoint %s: unknown flags %u", path, flags & ~known);
    memset(&options, 0, sizeof options);
    if (flags & FB_CKPT_SCAN_NO_DIGEST) options.flags |= FB_CKPT_NO_DIGEST;
    if (flags & FB_CKPT_SCAN_FIRST) options.flags |= FB_CKPT_FIRST;
    memset(&summary, 0, sizeof summary);
    modes = fb_fpenv_enter();
    status = fb_ckpt_scan_path(fb_os_posix(), path, &options, NULL, &summary, err);
    fb_fpenv_leave(modes);
    if (status == FB_OK) fill_result(out, &summary);
    return status;
}

/* An empty variable counts as none, as fb_run_open has it. */
static const char *folder_of_runs(void)
{
    const char *dir = getenv("FIRSTBAD_DIR");
    return dir && *dir ? dir : "firstbad-runs";
}

fb_status fb_ckpt_may_load(const char *path, const char *runs_dir, int32_t how, int32_t *state, fb_error *err)
{
    fb_ckpt_summary summary;
    fb_fpenv modes;
    fb_status status;
    int32_t own = FB_CKPT_SUSPECT;
    if (state) *state = FB_CKPT_SUSPECT;
    if (!path || !*path) return fb_fail(err, FB_E_USAGE, "ask for checkpoint: path is missing");
    if (how != FB_CKPT_CHECK_SIZE && how != FB_CKPT_CHECK_BYTES)
        return fb_fail(err, FB_E_USAGE, "ask for checkpoint %s: expected FB_CKPT_CHECK_SIZE or FB_CKPT_CHECK_BYTES, found %d", path,
                       how);
    memset(&summary, 0, sizeof summary);
    modes = fb_fpenv_enter();
    status = fb_registry_may_load(fb_os_posix(), path, runs_dir ? runs_dir : folder_of_runs(), how, &own, &summary, err);
    fb_fpenv_leave(modes);
    if (state) *state = own;
    return status;
}

fb_status fb_ckpt_latest(const char *dir, char *path, size_t *bytes, fb_error *err)
{
    fb_registry_checkpoint found;
    fb_status status;
    size_t needed, room;
    if (!dir || !*dir || !path || !bytes) return fb_fail(err, FB_E_USAGE, "find the latest checkpoint: an argument is missing");
    room = *bytes;
    if (room) path[0] = '\0';
    status = fb_registry_latest_in(fb_os_posix(), dir, folder_of_runs(), FB_REGISTRY_LOOK, 0, &found, err);
    if (status != FB_OK) return status;
    needed = strlen(found.path) + 1;
    *bytes = needed;
    if (needed > room)
        return fb_fail(err, FB_E_LIMIT, "find the latest checkpoint: its path has %zu bytes, and there is room for %zu", needed,
                       room);
    memcpy(path, found.path, needed);
    return FB_OK;
}
