/* A real fault among the scenarios: the operator that is named, and why. The whole catalogue is drilled by --all. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "drill.h"
#include "locate/locate_json.h"

static void compare(drill_result *result, const fb_locate_file *file)
{
    const drill_scenario *scenario = result->scenario;
    char why[160];
    if (file->found != FB_LOCATED_OPERATOR || !fb_locate_chain_whole(file, why, sizeof why)) {
        drill_differs(result, "no operator is named with a whole chain");
        return;
    }
    (void)snprintf(result->made, sizeof result->made, "%s %s", file->location.module, file->location.op);
    if (strcmp(file->location.op, scenario->made_by) != 0 || strcmp(file->location.module, scenario->made_in) != 0) {
        drill_differs(result, "located %s %s, not %s %s", file->location.module, file->location.op, scenario->made_in,
                      scenario->made_by);
    }
    if (result->truth_rank >= 0 && file->location.known && file->location.rank != result->truth_rank)
        drill_differs(result, "located on rank %d, not %d", file->location.rank, result->truth_rank);
    if (strcmp(file->cause.name, scenario->cause) != 0)
        drill_differs(result, "the cause is said to be %s, not %s", file->cause.name, scenario->cause);
    if (file->minimise.rows_needed != 1)
        drill_differs(result, "the smallest batch has %" PRIu32 " samples, not 1", file->minimise.rows_needed);
}

void drill_check_located(drill_result *result)
{
    char name[48], folder[FB_OS_PATH_MAX];
    fb_locate_file file;
    fb_error err;
    (void)snprintf(name, sizeof name, "cases/a1-%06" PRId64, result->truth_step);
    if (fb_os_join(folder, sizeof folder, result->job.folder, name, &err) != FB_OK ||
        fb_locate_read(&file, fb_os_posix(), folder, &err) != FB_OK) {
        drill_differs(result, "nothing was located: %.180s", err.message);
        return;
    }
    compare(result, &file);
    fb_locate_file_release(&file);
}
