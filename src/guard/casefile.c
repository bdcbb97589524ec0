/*
 * The case folder: what people and other programs read first. The ledger holds the same and more, so a folder that cannot be
 * written costs nothing but convenience; the loss is counted all the same.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "evidence/case_json.h"
#include "guard/run.h"

static void begin_file(fb_json *json, const char *schema, const struct fb_run *run)
{
    fb_json_init(json, 1);
    fb_json_object_begin(json);
    fb_json_key_string(json, "schema", schema);
    fb_json_key_string(json, "run_id", run->run_id);
    fb_json_key_string(json, "case", run->case_id);
}

/* once: the file is put in place where there is none and never replaced. */
static void finish_file(struct fb_run *run, fb_json *json, const char *folder, const char *name, int once)
{
    fb_error why;
    fb_status status;
    fb_json_object_end(json);
    status = fb_json_finish(json, &why);
    if (status == FB_OK && once) status = fb_os_put_new(run->os, folder, name, fb_json_text(json), json->used, &why);
    else if (status == FB_OK) status = fb_os_replace(run->os, folder, name, fb_json_text(json), json->used, &why);
    if (status != FB_OK && status != FB_E_EXISTS) fb_record_lost(run, &why);
    fb_json_release(json);
}

static void write_first_bad(struct fb_run *run, const char *folder)
{
    fb_json json;
    begin_file(&json, "firstbad.first_bad/1", run);
    fb_finding_json(&json, fb_finding_first(run));
    finish_file(run, &json, folder, "first_bad.json", 1);
}

static void write_findings(struct fb_run *run, const char *folder)
{
    fb_json json;
    char name[32];
    begin_file(&json, "firstbad.findings/1", run);
    fb_json_key_int(&json, "rank", run->rank);
    fb_json_key_uint(&json, "not_kept", run->findings_cut);
    fb_json_key(&json, "findings");
    fb_json_array_begin(&json);
    for (uint64_t i = 0; i < run->findings_count; i++) {
        fb_json_object_begin(&json);
        fb_finding_json(&json, &run->findings[i]);
        fb_json_object_end(&json);
    }
    fb_json_array_end(&json);
    (void)snprintf(name, sizeof name, "rank-%05d.json", run->rank);
    finish_file(run, &json, folder, name, 1);
}

static void write_verdict(struct fb_run *run, const char *folder, const fb_rec_verdict *verdict)
{
    fb_json json;
    begin_file(&json, "firstbad.verdict/1", run);
    fb_verdict_json(&json, verdict, fb_gate_reason_name(verdict->reason));
    finish_file(run, &json, folder, "verdict.json", 0);
}

void fb_case_write(struct fb_run *run, const fb_rec_verdict *verdict, int opens)
{
    char folder[FB_OS_PATH_MAX];
    fb_error why;
    fb_status status;
    int spokesman = verdict->first_rank == run->rank;
    int writes_verdict = spokesman || (verdict->first_rank < 0 && run->rank == 0);
    if (!writes_verdict && run->findings_count == 0) return;
    status = fb_os_join(folder, sizeof folder, run->cases, run->case_id, &why);
    if (status == FB_OK) status = fb_os_mkdirs(run->os, folder, &why);
    if (status != FB_OK) {
        fb_record_lost(run, &why);
        return;
    }
    /* A later step of the same case adds its verdict; what was first stays what the case was opened with. */
    if (opens && spokesman && run->findings_count) write_first_bad(run, folder);
    if (opens && run->findings_count) write_findings(run, folder);
    if (writes_verdict) write_verdict(run, folder, verdict);
}
