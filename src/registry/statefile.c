#include "registry/statefile.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "registry/registry.h"

static const char SCHEMA[] = "firstbad.checkpoint/1";
enum { FILE_BYTES = 8192, READ_BYTES_MAX = 65536 };

/* The folder of a run is named after it; other homes stand for no run. */
static const char *run_of(const char *home)
{
    const char *slash = strrchr(home, '/');
    const char *name = slash ? slash + 1 : home;
    return strcmp(name, ".firstbad") == 0 ? "" : name;
}

static int compose(char text[FILE_BYTES], const fb_os *os, const char *home, const fb_rec_ckpt *rec)
{
    fb_json json;
    int64_t now = os->realtime_ns(os->ctx);
    fb_json_init_fixed(&json, text, FILE_BYTES, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", SCHEMA);
    fb_json_key_string(&json, "run_id", run_of(home));
    fb_json_key_int(&json, "attempt", rec->attempt);
    fb_json_key_int(&json, "step", rec->step);
    fb_json_key_string(&json, "state", fb_registry_state_name(rec->state));
    fb_json_key_string(&json, "reason", fb_registry_reason_text(rec->state, rec->reason));
    fb_json_key_hex(&json, "digest", rec->digest, 16);
    fb_json_key_int(&json, "time_ns", now);
    fb_json_key_string(&json, "home", home);
    fb_json_object_end(&json);
    if (fb_json_finish(&json, NULL) != FB_OK || json.used >= FILE_BYTES) return 0;
    memset(text + json.used, ' ', FILE_BYTES - json.used); /* always of one size */
    text[FILE_BYTES - 1] = '\n';
    return 1;
}

/* 1 when it was written over. A file of two names is not ours alone: who copied the folder by links means the old text. */
static int write_over(const fb_os *os, const char *path, const char *text)
{
    int64_t fd = fb_os_open(os, path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    fb_os_info info;
    int done = 0;
    if (fd < 0) return 0;
    if (os->fstat(os->ctx, (int)fd, &info) == 0 && info.kind == FB_OS_FILE && info.links == 1 && info.size_bytes == FILE_BYTES) {
        done = fb_os_pwrite_all(os, (int)fd, text, FILE_BYTES, 0, NULL) == 0;
        if (done) (void)fb_os_fsync(os, (int)fd);
    }
    (void)os->close(os->ctx, (int)fd);
    return done;
}

void fb_state_write(const fb_os *os, const char *path, const char *home, const fb_rec_ckpt *rec, int create)
{
    char file[FB_OS_PATH_MAX], *text;
    fb_os_info info;
    if (os->lstat(os->ctx, path, &info) != 0 || info.kind != FB_OS_FOLDER) return;
    if (fb_os_join(file, sizeof file, path, FB_STATE_FILE, NULL) != FB_OK) return;
    text = fb_calloc(FILE_BYTES, 1);
    if (text && compose(text, os, home, rec) && !write_over(os, file, text) && create) {
        (void)fb_os_replace(os, path, FB_STATE_FILE, text, FILE_BYTES, NULL);
    }
    fb_free(text);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

static int32_t state_of(const fb_json_token *value)
{
    for (int32_t state = FB_CKPT_SUSPECT; state <= FB_CKPT_QUARANTINED; state++) {
        if (fb_json_is(value, fb_registry_state_name(state))) return state;
    }
    return 0;
}

static uint64_t hex_of(const fb_json_token *value)
{
    uint64_t bits = 0;
    if (value->text_bytes != 18 || memcmp(value->text, "0x", 2) != 0) return 0;
    for (size_t i = 2; i < 18; i++) {
        char c = value->text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return 0;
        bits = bits << 4 | (uint64_t)digit;
    }
    return bits;
}

static void take(fb_state_claim *claim, int *schema, const fb_json_token *key, const fb_json_token *value)
{
    if (value->type == FB_JSON_STRING) {
        if (fb_json_is(key, "schema")) *schema = fb_json_is(value, SCHEMA);
        if (fb_json_is(key, "state")) claim->state = state_of(value);
        if (fb_json_is(key, "digest")) claim->digest = hex_of(value);
        if (fb_json_is(key, "run_id")) (void)fb_json_decode(value, claim->run_id, sizeof claim->run_id, NULL, NULL);
    }
    if (value->type == FB_JSON_INT) {
        if (fb_json_is(key, "step")) claim->step = value->i;
        if (fb_json_is(key, "attempt") && value->i >= INT32_MIN && value->i <= INT32_MAX) claim->attempt = (int32_t)value->i;
    }
}

static fb_status parse(fb_state_claim *claim, const char *text, size_t bytes)
{
    fb_json_reader reader;
    fb_json_token key, value;
    fb_status status;
    int schema = 0;
    fb_json_read(&reader, text, bytes);
    status = fb_json_next(&reader, &key, NULL);
    if (status == FB_OK && key.type != FB_JSON_OBJECT) return FB_E_CORRUPT;
    while (status == FB_OK && (status = fb_json_next(&reader, &key, NULL)) == FB_OK && key.type == FB_JSON_KEY) {
        if ((status = fb_json_next(&reader, &value, NULL)) != FB_OK) break;
        take(claim, &schema, &key, &value);
        status = fb_json_skip_rest(&reader, &value, NULL);
    }
    if (status == FB_OK) status = fb_json_next(&reader, &key, NULL);
    return status == FB_OK && key.type == FB_JSON_END && schema ? FB_OK : FB_E_CORRUPT;
}

void fb_state_read(const fb_os *os, const char *path, fb_state_claim *claim)
{
    char file[FB_OS_PATH_MAX], *text;
    fb_os_info info;
    size_t bytes;
    memset(claim, 0, sizeof *claim);
    if (fb_os_join(file, sizeof file, path, FB_STATE_FILE, NULL) != FB_OK) return;
    if (os->lstat(os->ctx, file, &info) != 0 || info.kind != FB_OS_FILE) return;
    if (fb_os_read_file(os, file, READ_BYTES_MAX, &text, &bytes, NULL) != FB_OK) return;
    if (parse(claim, text, bytes) != FB_OK) memset(claim, 0, sizeof *claim);
    fb_free(text);
}
