/*
 * A case folder that has another name than its case: renamed, or copied beside the others. Its first_bad.json says what it is of.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/status.h"
#include "report/inside.h"

/* Folders below cases/ that are looked into, for one that bears another name. */
enum { FOLDERS_LOOKED_INTO_MAX = 256 };

static fb_status take_text(fb_json_reader *reader, char *out, size_t room, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK) return status;
    if (token.type != FB_JSON_STRING) return fb_json_skip_rest(reader, &token, err);
    if (fb_json_decode(&token, out, room, NULL, NULL) != FB_OK) out[0] = '\0'; /* longer than any name of ours */
    return FB_OK;
}

static fb_status take_names(fb_json_reader *reader, fb_case_names *out, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    if (status == FB_OK && token.type != FB_JSON_OBJECT) status = fb_fail(err, FB_E_CORRUPT, "first_bad.json is no object");
    while (status == FB_OK && (status = fb_json_next(reader, &token, err)) == FB_OK && token.type != FB_JSON_OBJECT_END) {
        if (fb_json_is(&token, "run_id")) status = take_text(reader, out->run_id, sizeof out->run_id, err);
        else if (fb_json_is(&token, "case")) status = take_text(reader, out->case_id, sizeof out->case_id, err);
        else status = fb_json_skip(reader, err);
    }
    return status;
}

fb_status fb_case_names_read(const fb_os *os, const char *folder, fb_case_names *out, fb_error *err)
{
    fb_json_reader reader;
    char path[FB_OS_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    fb_status status;
    memset(out, 0, sizeof *out);
    if ((status = fb_os_join(path, sizeof path, folder, "first_bad.json", err)) != FB_OK) return status;
    if ((status = fb_os_read_file(os, path, FB_REPORT_FILE_BYTES_MAX, &data, &bytes, err)) != FB_OK) return status;
    fb_json_read(&reader, data, bytes);
    status = take_names(&reader, out, err);
    if (status != FB_OK) memset(out, 0, sizeof *out);
    fb_free(data);
    return status;
}

typedef struct search {
    const fb_os *os;
    fb_report *report;
    const char *cases;
    char name[256];
    uint32_t looked_into, found;
} search;

/* 1 ends the walk: no memory. */
static int64_t visit(void *arg, const char *name)
{
    search *look = arg;
    const char *run_id = look->report->run.run_id;
    char folder[FB_OS_PATH_MAX];
    fb_case_names names;
    fb_status status;
    int32_t attempt;
    int64_t step;
    /* What bears the name of a case is of that case. */
    if (name[0] == '.' || fb_case_id_parse(name, strlen(name), &attempt, &step) || strlen(name) >= sizeof look->name) return 0;
    if (++look->looked_into > FOLDERS_LOOKED_INTO_MAX) return 0;
    if (fb_os_join(folder, sizeof folder, look->cases, name, NULL) != FB_OK) return 0;
    status = fb_case_names_read(look->os, folder, &names, NULL);
    if (status == FB_E_NOMEM) return 1;
    if (status != FB_OK || strcmp(names.case_id, look->report->case_id) != 0) return 0;
    if (run_id[0] && names.run_id[0] && strcmp(names.run_id, run_id) != 0) return 0;
    /* Of several copies the first by name, so that the answer does not depend on how the system lists them. */
    if (look->found++ == 0 || strcmp(name, look->name) < 0) (void)snprintf(look->name, sizeof look->name, "%s", name);
    return 0;
}

fb_status fb_case_folder_renamed(const fb_os *os, fb_report *report, fb_error *err)
{
    char cases[FB_OS_PATH_MAX];
    search look = {os, report, cases, "", 0, 0};
    fb_status status = fb_os_join(cases, sizeof cases, report->folder, "cases", err);
    if (status != FB_OK) return status;
    if (os->list(os->ctx, cases, visit, &look) > 0)
        return fb_fail(err, FB_E_NOMEM, "load run %s: no memory to look for the folder of case %s", report->folder,
                       report->case_id);
    if (!look.found) return FB_OK;
    if ((status = fb_os_join(report->case_folder, sizeof report->case_folder, cases, look.name, err)) != FB_OK) return status;
    fb_notes_add(&report->notes, "the folder of case %s bears the name %.200s now", report->case_id, look.name);
    return FB_OK;
}
