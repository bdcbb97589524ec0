/* What the trainer tells beside its steps, kept where `why` looks for it. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "guard/run.h"

enum { LINE_BYTES_MAX = 512 };

static fb_status note_replay(struct fb_run *run, int32_t persists, fb_error *err)
{
    fb_status status = fb_run_usable(run, "note a replay", err);
    if (status != FB_OK) return status;
    if (persists < -1 || persists > 1)
        return fb_fail(err, FB_E_USAGE, "note a replay: persists must be -1, 0 or 1, found %d", persists);
    if (run->step.open && !run->gate.bad_in_step) {
        return fb_fail(err, FB_E_ORDER,
                       "note a replay: step %lld is open and no vote of it was bad; call it after that vote, or between steps",
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
    if (n <= LINE_BYTES_MAX) return (int)n;
    for (n = LINE_BYTES_MAX; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    return (int)n;
}

static fb_status note_located(struct fb_run *run, const char *case_id, const char *text, fb_error *err)
{
    char line[LINE_BYTES_MAX + FB_CASE_ID_BYTES + 4];
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

/* Said before? Otherwise it is now. Returns -1 where there is no room to remember one more. The caller has the lock. */
static int said_before(struct fb_run *run, uint64_t digest)
{
    for (uint32_t i = 0; i < run->not_covered_count; i++) {
        if (run->not_covered[i] == digest) return 1;
    }
    if (run->not_covered_count == FB_NOT_COVERED_MAX) return -1;
    run->not_covered[run->not_covered_count++] = digest;
    return 0;
}

static fb_status not_covered(struct fb_run *run, const char *what, fb_error *err)
{
    static const char more[] = "more than is listed here";
    fb_status status = fb_run_usable(run, "note what is not covered", err);
    char line[LINE_BYTES_MAX + 1];
    int before;
    if (status != FB_OK) return status;
    if (!what || !what[0]) return fb_fail(err, FB_E_USAGE, "note what is not covered: there is no text");
    (void)snprintf(line, sizeof line, "%.*s", cut(what), what);
    fb_run_lock(run);
    before = said_before(run, fb_hash64(line, strlen(line), 1));
    if (before == 0) fb_record_event(run, FB_EVENT_NOT_COVERED, 0, 0, line, 0);
    if (before < 0 && !run->not_covered_more) fb_record_event(run, FB_EVENT_NOT_COVERED, 1, 0, more, 0);
    run->not_covered_more |= before < 0;
    fb_run_unlock(run);
    if (before >= 0) return FB_OK;
    return fb_fail(err, FB_E_LIMIT, "note what is not covered: this run has said %d lines already", FB_NOT_COVERED_MAX);
}

fb_status fb_run_not_covered(struct fb_run *run, const char *what, fb_error *err)
{
    fb_status status = not_covered(run, what, err);
    return status == FB_E_LIMIT ? status : fb_run_misuse(run, status, err); /* the ledger has that there is more, once */
}
