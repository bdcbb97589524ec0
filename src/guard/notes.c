/* What the trainer found out about a bad update by replaying it, kept where `why` looks for it. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "guard/run.h"

enum { LOCATED_BYTES_MAX = 512 };

static fb_status note_replay(struct fb_run *run, int32_t persists, fb_error *err)
{
    fb_status status = fb_run_usable(run, "note a replay", err);
    if (status != FB_OK) return status;
    if (persists < -1 || persists > 1)
        return fb_fail(err, FB_E_USAGE, "note a replay: persists must be -1, 0 or 1, found %d", persists);
    if (run->step.open) {
        return fb_fail(err, FB_E_ORDER, "note a replay: step %lld is open; call it between fb_step_end and fb_step_begin",
                       (long long)run->step.rec.step);
    }
    if (persists < 0) return FB_OK;
    fb_gate_note_replay(&run->gate, persists);
    fb_run_lock(run);
    fb_record_event(run, FB_EVENT_REPLAY, persists, 0, NULL, 1);
    fb_run_unlock(run);
    return FB_OK;
}

fb_status fb_run_note_replay(struct fb_run *run, int32_t persists, fb_error *err)
{
    return fb_run_misuse(run, note_replay(run, persists, err), err);
}

/* As many bytes as fit, and no half character at the end. */
static int cut(const char *text)
{
    size_t n = strlen(text);
    if (n <= LOCATED_BYTES_MAX) return (int)n;
    for (n = LOCATED_BYTES_MAX; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    return (int)n;
}

static fb_status note_located(struct fb_run *run, const char *case_id, const char *text, fb_error *err)
{
    char line[LOCATED_BYTES_MAX + FB_CASE_ID_BYTES + 4];
    fb_status status = fb_run_usable(run, "note what was located", err);
    if (status != FB_OK) return status;
    if (!case_id || !case_id[0] || strlen(case_id) >= FB_CASE_ID_BYTES || !text || !text[0])
        return fb_fail(err, FB_E_USAGE, "note what was located: the case or the text is missing");
    (void)snprintf(line, sizeof line, "%s: %.*s", case_id, cut(text), text);
    fb_run_lock(run);
    fb_record_event(run, FB_EVENT_LOCATED, 0, 0, line, 1);
    fb_run_unlock(run);
    return FB_OK;
}

fb_status fb_run_note_located(struct fb_run *run, const char *case_id, const char *text, fb_error *err)
{
    return fb_run_misuse(run, note_located(run, case_id, text, err), err);
}
