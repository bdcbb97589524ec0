/*
 * Checkpoints whose truth is known: one is spoilt on the disk, or descends from an update that was only observed, and then the
 * library is asked what a person who resumes would ask. The training itself is judged in drill_judge.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/ckpt.h"
#include "drill.h"
#include "registry/registry.h"

enum { HEADER_MAX = 1 << 20, CONTINUE_STEPS = 4, SCENARIO_MS = 90000, GRACE_MS = 5000 };

static void file_of_step(const drill_result *result, int64_t step, char out[FB_OS_PATH_MAX])
{
    char folder[FB_OS_PATH_MAX];
    drill_saves_folder(result, folder);
    (void)snprintf(out, FB_OS_PATH_MAX, "%.4000s/step-%06" PRId64 ".safetensors", folder, step);
}

/* ---- spoiling ---------------------------------------------------------------------------------------------------------------- */

/* Where element `index` of an F32 tensor lies in a file of the trainer's, whose header has no blanks; -1: not there. */
static int64_t find_element(FILE *file, const char *tensor, uint64_t index)
{
    static const char offsets[] = "\"data_offsets\":[";
    char key[DRILL_TEXT], *header = NULL, *at = NULL;
    uint64_t bytes = 0;
    int64_t found = -1;
    (void)snprintf(key, sizeof key, "\"%s\":{", tensor);
    if (fread(&bytes, 1, 8, file) == 8 && bytes < HEADER_MAX) header = fb_calloc(1, (size_t)bytes + 1);
    if (header && fread(header, 1, (size_t)bytes, file) == bytes) at = strstr(header, key);
    if (at) at = strstr(at, offsets);
    if (at) {
        char *number = at + strlen(offsets), *end = number;
        uint64_t begin = strtoull(number, &end, 10);
        if (end != number) found = (int64_t)(8 + bytes + begin + 4 * index);
    }
    fb_free(header);
    return found;
}

static int flip(const char *path, const char *tensor, uint64_t index, uint32_t set, uint32_t change)
{
    FILE *file = fopen(path, "r+b");
    uint32_t bits = 0;
    int64_t at = file ? find_element(file, tensor, index) : -1;
    int done = at >= 0 && fseek(file, (long)at, SEEK_SET) == 0 && fread(&bits, 1, 4, file) == 4;
    bits = (bits | set) ^ change;
    done = done && fseek(file, (long)at, SEEK_SET) == 0 && fwrite(&bits, 1, 4, file) == 4;
    if (file && fclose(file) != 0) done = 0;
    return done;
}

/* In place, so that a hard link to the file has the other bytes as well. */
static int copy_over(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "r+b");
    char block[4096];
    int done = in && out;
    while (done) {
        size_t n = fread(block, 1, sizeof block, in);
        if (n == 0) break;
        done = fwrite(block, 1, n, out) == n;
    }
    if (in) (void)fclose(in);
    if (out && fclose(out) != 0) done = 0;
    return done;
}

static int cut(const char *path)
{
    fb_os_info info;
    const fb_os *os = fb_os_posix();
    return os->stat(os->ctx, path, &info) == 0 && truncate(path, (off_t)(info.size_bytes * 3 / 5)) == 0;
}

/* Two more saves of a program that has never heard of firstbad; a sum of finite gradients overflows on the way. */
static int go_on_unguarded(drill_result *result, const drill_settings *settings)
{
    char path[FB_OS_PATH_MAX + 8], more[128];
    (void)snprintf(path, sizeof path, "%s.again", result->log);
    (void)snprintf(more, sizeof more, "--no-guard --resume latest --gradient-blowup %" PRId64 " --steps %" PRId64,
                   result->scenario->spoilt - 2, result->scenario->spoilt);
    return drill_command(result, settings, more) && drill_run_plain(result, path);
}

static int spoil(drill_result *result, const drill_settings *settings, const char *path)
{
    const drill_scenario *scenario = result->scenario;
    char other[FB_OS_PATH_MAX];
    switch (scenario->spoil) {
    case DRILL_SPOIL_EXPONENT: return flip(path, scenario->site, scenario->index, 0x7f800000u, 0);
    case DRILL_SPOIL_MANTISSA: return flip(path, scenario->site, scenario->index, 0, 0x00100000u);
    case DRILL_SPOIL_CUT: return cut(path);
    case DRILL_SPOIL_OTHER_STEP: file_of_step(result, DRILL_SAVE_EVERY, other); return copy_over(other, path);
    case DRILL_SPOIL_UNGUARDED: return go_on_unguarded(result, settings);
    default: return 1;
    }
}

/* ---- asking ------------------------------------------------------------------------------------------------------------------ */

static int64_t ask_latest(const drill_result *result, const drill_settings *settings, int how, fb_registry_checkpoint *found,
                          fb_error *err)
{
    char folder[FB_OS_PATH_MAX];
    drill_saves_folder(result, folder);
    if (fb_registry_latest_in(fb_os_posix(), folder, settings->dir, how, 0, found, err) != FB_OK) return -1;
    return found->step;
}

/* Whatever is given to resume from must be the truth, and finite. */
static void check_latest(drill_result *result, const drill_settings *settings, int how, int64_t wanted)
{
    fb_registry_checkpoint found;
    fb_ckpt_summary summary;
    fb_error err = {FB_OK, 0, 0, ""};
    int64_t step = ask_latest(result, settings, how, &found, &err);
    result->resume_step = step;
    if (step != wanted) {
        drill_differs(result, "step %" PRId64 " is given to resume from, not %" PRId64 " %.150s", step, wanted, err.message);
        return;
    }
    memset(&summary, 0, sizeof summary);
    if (fb_ckpt_scan_path(fb_os_posix(), found.path, NULL, NULL, &summary, &err) != FB_OK || summary.outcome != FB_CKPT_CLEAN)
        drill_differs(result, "what is given to resume from is not finite: %.180s", found.path);
}

static void check_scan(drill_result *result, const char *path)
{
    const drill_scenario *scenario = result->scenario;
    fb_ckpt_summary summary;
    fb_error err = {FB_OK, 0, 0, ""};
    memset(&summary, 0, sizeof summary);
    if (fb_ckpt_scan_path(fb_os_posix(), path, NULL, NULL, &summary, &err) != FB_OK) {
        drill_differs(result, "the spoilt checkpoint cannot be scanned: %.200s", err.message);
        return;
    }
    (void)snprintf(result->saved_place, DRILL_TEXT, "%s", fb_ckpt_outcome_name(summary.outcome));
    if (summary.outcome == FB_CKPT_NON_FINITE)
        (void)snprintf(result->saved_place, DRILL_TEXT, "%.180s[%" PRIu64 "]", summary.first_tensor, summary.first_index);
    if (summary.outcome != scenario->outcome) {
        drill_differs(result, "the scan says %s, not %s", fb_ckpt_outcome_name(summary.outcome),
                      fb_ckpt_outcome_name(scenario->outcome));
    } else if (summary.outcome == FB_CKPT_NON_FINITE &&
               (strcmp(summary.first_tensor, scenario->site) != 0 || summary.first_index != scenario->index)) {
        drill_differs(result, "the scan names %.150s[%" PRIu64 "]", summary.first_tensor, summary.first_index);
    } else if (scenario->spoil == DRILL_SPOIL_EXPONENT && summary.bad != 1) {
        drill_differs(result, "the scan counts %" PRIu64 " bad elements, not 1", summary.bad);
    }
}

/* Bad bytes are refused; finite ones that nobody vouches for are not called committed. */
static void check_load(drill_result *result, const drill_settings *settings, const char *path)
{
    const drill_scenario *scenario = result->scenario;
    int finite = scenario->outcome == FB_CKPT_CLEAN;
    fb_ckpt_summary summary;
    fb_error err = {FB_OK, 0, 0, ""};
    int32_t state = FB_CKPT_COMMITTED;
    fb_status status;
    memset(&summary, 0, sizeof summary);
    status = fb_registry_may_load(fb_os_posix(), path, settings->dir, FB_REGISTRY_VERIFY, &state, &summary, &err);
    if (!finite && status != FB_E_WITHHELD) drill_differs(result, "the load gate lets the spoilt checkpoint through");
    if (finite && status == FB_OK && state == FB_CKPT_COMMITTED)
        drill_differs(result, "the load gate takes the spoilt checkpoint for a committed one");
    if (status != FB_OK && status != FB_E_WITHHELD) drill_differs(result, "the load gate fails: %.200s", err.message);
}

/* Read again, as `firstbad ckpt verify` does it. */
static void check_verify(drill_result *result, const char *path)
{
    fb_ckpt_summary summary;
    fb_error err = {FB_OK, 0, 0, ""};
    fb_status status;
    memset(&summary, 0, sizeof summary);
    status = fb_registry_verify(fb_os_posix(), result->job.folder, path, NULL, NULL, &summary, &result->saved_state, &err);
    if (status != FB_OK) drill_differs(result, "the spoilt checkpoint cannot be read again: %.200s", err.message);
    if (result->saved_state != result->scenario->state) {
        drill_differs(result, "the registry has it as %s, not %s", fb_registry_state_name(result->saved_state),
                      fb_registry_state_name(result->scenario->state));
    }
}

/* Out of the way of a trainer that goes by names, and refused for what it is wherever it lies now. */
static void check_aside(drill_result *result, const drill_settings *settings, const char *path)
{
    char folder[FB_OS_PATH_MAX], aside[FB_OS_PATH_MAX];
    fb_error err = {FB_OK, 0, 0, ""};
    int32_t state = FB_CKPT_SUSPECT;
    if (result->scenario->state != FB_CKPT_QUARANTINED) return;
    if (access(path, F_OK) == 0) {
        drill_differs(result, "the quarantined checkpoint lies under its name still");
        return;
    }
    drill_saves_folder(result, folder);
    (void)snprintf(aside, sizeof aside, "%.3000s/.firstbad/quarantine%.1000s", folder, strrchr(path, '/'));
    if (access(aside, F_OK) != 0) drill_differs(result, "the quarantined checkpoint is not where it was put aside");
    else if (fb_registry_may_load(fb_os_posix(), aside, settings->dir, FB_REGISTRY_LOOK, &state, NULL, &err) != FB_E_WITHHELD ||
             state != FB_CKPT_QUARANTINED)
        drill_differs(result, "the load gate does not know the quarantined checkpoint: %.200s", err.message);
}

/* ---- going on ---------------------------------------------------------------------------------------------------------------- */

/* The first step that a log tells of; -1: none. */
static int64_t first_step(const char *path)
{
    char line[512];
    int64_t step = -1;
    FILE *file = fopen(path, "r");
    while (file && step < 0 && fgets(line, sizeof line, file)) {
        char *end = line + 5;
        int64_t number = strncmp(line, "step ", 5) == 0 ? strtoll(line + 5, &end, 10) : -1;
        if (end != line + 5) step = number;
    }
    if (file) (void)fclose(file);
    return step;
}

/* Started once more, with nothing to say but "latest": the next attempt of the same run. */
static void go_on(drill_result *result, const drill_settings *settings)
{
    char path[FB_OS_PATH_MAX + 8], more[64];
    run_job_options options = result->options;
    run_job job;
    fb_error err;
    const fb_os *os = fb_os_posix();
    int64_t fd, wanted = result->scenario->resume + 1;
    memset(&job, 0, sizeof job);
    options.inject[0] = '\0';
    options.on_bad = "skip";
    (void)snprintf(path, sizeof path, "%s.again", result->log);
    (void)snprintf(more, sizeof more, "--resume latest --steps %" PRId64, result->scenario->resume + CONTINUE_STEPS);
    fd = fb_os_open(os, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || !drill_command(result, settings, more)) {
        drill_differs(result, "the training could not be started once more");
        return;
    }
    options.output = (int)fd;
    if (run_job_open(&job, &options, &err) != FB_OK || run_job_start(&job) != 0) {
        drill_differs(result, "the training could not be started once more");
    } else {
        if (!process_wait_ms(&job.child, SCENARIO_MS)) process_end(&job.child, GRACE_MS);
        run_job_close(&job);
        if (job.exit_code) drill_differs(result, "resumed from the latest, the training ended with exit code %d", job.exit_code);
        if (first_step(path) != wanted)
            drill_differs(result, "resumed from the latest, the training began with step %" PRId64 ", not %" PRId64,
                          first_step(path), wanted);
    }
    run_job_release(&job);
    (void)os->close(os->ctx, (int)fd);
}

/* Rotation deleted it, and without a pin that were the end of it. */
static void check_rotated(drill_result *result)
{
    char path[FB_OS_PATH_MAX];
    file_of_step(result, result->scenario->resume, path);
    if (access(path, F_OK) == 0)
        drill_differs(result, "rotation left step %" PRId64 " in its place, so nothing was put to the test",
                      result->scenario->resume);
}

void drill_saved(drill_result *result, const drill_settings *settings)
{
    const drill_scenario *scenario = result->scenario;
    char path[FB_OS_PATH_MAX];
    result->resume_step = -1;
    file_of_step(result, scenario->spoilt, path);
    /* Before it is spoilt the newest is the one: otherwise the line would pass where nothing is ever committed. */
    check_latest(result, settings, FB_REGISTRY_VERIFY, scenario->spoil ? scenario->steps : scenario->resume);
    if (!spoil(result, settings, path)) {
        drill_differs(result, "step %" PRId64 " could not be spoilt", scenario->spoilt);
        return;
    }
    if (scenario->continues) check_rotated(result);
    check_scan(result, path);
    check_load(result, settings, path);
    /* By a look first, as a trainer asks: it must see by itself that the newest file is another. */
    check_latest(result, settings, FB_REGISTRY_LOOK, scenario->resume);
    check_latest(result, settings, FB_REGISTRY_VERIFY, scenario->resume);
    check_verify(result, path);
    check_aside(result, settings, path);
    check_latest(result, settings, FB_REGISTRY_LOOK, scenario->resume);
    if (scenario->continues) go_on(result, settings);
}
