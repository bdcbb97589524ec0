#include "planted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "ckpt/ckpt.h"

enum { LINES_BYTES = 65536 };

typedef struct truth_row {
    char file[256], outcome[256], tensor[256], kind[256];
    uint64_t index, bits, offset;
} truth_row;

typedef struct seen {
    char lines[LINES_BYTES];
    char format[64];
} seen;

static fb_json_token next_token(fb_json_reader *json)
{
    fb_json_token token;
    fb_error err;
    if (fb_json_next(json, &token, &err) != FB_OK) fail_msg("truth.json: %s", err.message);
    return token;
}

/* The object that has just begun. */
static truth_row read_row(fb_json_reader *json)
{
    truth_row row;
    char key[32], text[256];
    memset(&row, 0, sizeof row);
    for (;;) {
        fb_json_token token = next_token(json);
        if (token.type == FB_JSON_OBJECT_END) return row;
        assert_int_equal(fb_json_decode(&token, key, sizeof key, NULL, NULL), FB_OK);
        token = next_token(json);
        text[0] = '\0';
        if (token.type == FB_JSON_STRING) assert_int_equal(fb_json_decode(&token, text, sizeof text, NULL, NULL), FB_OK);
        if (strcmp(key, "file") == 0) (void)snprintf(row.file, sizeof row.file, "%s", text);
        if (strcmp(key, "outcome") == 0) (void)snprintf(row.outcome, sizeof row.outcome, "%s", text);
        if (strcmp(key, "tensor") == 0) (void)snprintf(row.tensor, sizeof row.tensor, "%s", text);
        if (strcmp(key, "kind") == 0) (void)snprintf(row.kind, sizeof row.kind, "%s", text);
        if (strcmp(key, "bits") == 0) row.bits = strtoull(text, NULL, 16);
        if (strcmp(key, "index") == 0) row.index = (uint64_t)token.i;
        if (strcmp(key, "offset") == 0) row.offset = (uint64_t)token.i;
    }
}

static void say(seen *s, const char *tensor, uint64_t index, const char *kind, uint64_t bits, uint64_t offset)
{
    size_t used = strlen(s->lines);
    (void)snprintf(s->lines + used, sizeof s->lines - used, "%s[%llu] %s 0x%llx at %llu\n", tensor, (unsigned long long)index, kind,
                   (unsigned long long)bits, (unsigned long long)offset);
}

static void on_finding(void *ctx, const fb_ckpt_finding *f)
{
    static const char *const kinds[] = {"none", "nan", "+inf", "-inf"};
    say(ctx, f->tensor, f->index, kinds[f->kind], f->bits, f->offset_bytes);
}

static void on_file(void *ctx, const char *file, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                    const fb_error *reason)
{
    (void)file;
    (void)outcome;
    (void)bytes;
    (void)digest;
    (void)reason;
    (void)snprintf(((seen *)ctx)->format, sizeof((seen *)ctx)->format, "%s", format);
}

static void expect_findings(seen *want, const char *truth, size_t bytes, const char *file)
{
    fb_json_reader json;
    fb_json_token token;
    fb_json_read(&json, truth, bytes);
    do token = next_token(&json);
    while (token.type != FB_JSON_KEY || !fb_json_is(&token, "findings"));
    (void)next_token(&json); /* [ */
    while (next_token(&json).type == FB_JSON_OBJECT) {
        truth_row row = read_row(&json);
        if (strcmp(row.file, file) == 0) say(want, row.tensor, row.index, row.kind, row.bits, row.offset);
    }
}

static void check_file(const char *folder, const char *format, const truth_row *row, const char *truth, size_t bytes)
{
    static seen want, got;
    fb_ckpt_sink sink;
    fb_ckpt_summary summary;
    fb_error err;
    char path[512];
    const char *outcome = strcmp(row->outcome, "legal") == 0 ? "clean" : row->outcome;
    memset(&want, 0, sizeof want);
    memset(&got, 0, sizeof got);
    memset(&sink, 0, sizeof sink);
    expect_findings(&want, truth, bytes, row->file);
    sink.ctx = &got;
    sink.finding = on_finding;
    sink.file = on_file;
    (void)snprintf(path, sizeof path, "%s%s", folder, row->file);
    if (fb_ckpt_scan_path(fb_os_posix(), path, NULL, &sink, &summary, &err) != FB_OK) fail_msg("%s: %s", path, err.message);
    if (strcmp(fb_ckpt_outcome_name(summary.outcome), outcome) != 0)
        fail_msg("%s is %s: %s", path, fb_ckpt_outcome_name(summary.outcome), summary.reason.message);
    if (strcmp(got.lines, want.lines) != 0) fail_msg("%s: found\n%sand planted were\n%s", path, got.lines, want.lines);
    assert_string_equal(got.format, format);
}

int planted_check(const char *folder, const char *format)
{
    char path[256], *truth;
    size_t bytes;
    int files = 0;
    fb_json_reader json;
    fb_json_token token;
    fb_error err;
    (void)snprintf(path, sizeof path, "%struth.json", folder);
    if (fb_os_read_file(fb_os_posix(), path, 1 << 20, &truth, &bytes, &err) != FB_OK) fail_msg("%s", err.message);
    fb_json_read(&json, truth, bytes);
    do token = next_token(&json);
    while (token.type != FB_JSON_KEY || !fb_json_is(&token, "files"));
    (void)next_token(&json); /* [ */
    while (next_token(&json).type == FB_JSON_OBJECT) {
        truth_row row = read_row(&json);
        check_file(folder, format, &row, truth, bytes);
        files++;
    }
    fb_free(truth);
    return files;
}
