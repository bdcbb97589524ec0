/* firstbad ckpt list and log. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "ckpt.h"
#include "report/report.h"
#include "scan_show.h"

enum { WHEN_BYTES = 32, LINE_BYTES = 3 * FB_OS_PATH_MAX };

/* ---- words ------------------------------------------------------------------------------------------------------------------- */

static const char *when(uint64_t time_ns, char out[WHEN_BYTES])
{
    time_t seconds = (time_t)(time_ns / 1000000000u);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) || strftime(out, WHEN_BYTES, "%Y-%m-%d %H:%M:%SZ", &parts) == 0)
        (void)snprintf(out, WHEN_BYTES, "-");
    return out;
}

static const char *pin_words(int32_t pin)
{
    switch (pin) {
    case FB_PIN_LINK: return "pinned by hard links";
    case FB_PIN_RENAMED: return "pinned: moved before the next save";
    case FB_PIN_REFLINK: return "pinned by shared blocks";
    case FB_PIN_COPY: return "pinned by a copy";
    case FB_PIN_IMPOSSIBLE: return "not pinned";
    default: return "";
    }
}

static int is_there(const ckpt_request *request, const fb_text *path)
{
    fb_os_info info;
    return path->bytes && request->os->stat(request->os->ctx, path->data, &info) >= 0;
}

/* How its bytes are kept a second time. Pins of older ones are removed, and their records stay as they were. */
static const char *kept_words(const ckpt_request *request, const fb_rec_ckpt *rec)
{
    if (rec->pin == FB_PIN_IMPOSSIBLE || is_there(request, &rec->pin_path)) return pin_words(rec->pin);
    return "";
}

/* The name under which people know it. */
static const char *known_as(const fb_rec_ckpt *rec)
{
    return rec->origin.bytes ? rec->origin.data : rec->path.data;
}

/* Where its bytes are when not at its name; "" otherwise. */
static const char *kept_at(const fb_rec_ckpt *rec)
{
    if (rec->origin.bytes) return rec->path.data;
    return rec->aside.data;
}

static void append(char *line, size_t *used, const char *separator, const char *text)
{
    int got;
    if (!*text || *used >= LINE_BYTES) return;
    got = snprintf(line + *used, LINE_BYTES - *used, "%s%s", *used ? separator : "", text);
    if (got > 0) *used += (size_t)got;
}

/* Why it is in its state, and how it is kept: one line. */
static void describe(const ckpt_request *request, const ckpt_row *row, char line[LINE_BYTES])
{
    char place[FB_OS_PATH_MAX];
    const char *at = kept_at(&row->rec);
    fb_text kept = {at, (uint32_t)strlen(at)};
    size_t used = 0;
    line[0] = '\0';
    append(line, &used, "; ", fb_registry_reason_text(row->rec.state, row->rec.reason));
    if (row->rec.tensor.bytes) append(line, &used, ": ", row->rec.tensor.data);
    if (row->rec.state == FB_CKPT_COMMITTED) append(line, &used, "; ", kept_words(request, &row->rec));
    if (*at) {
        append(line, &used, "; ", is_there(request, &kept) ? "kept at " : "gone from ");
        append(line, &used, "", ckpt_short(request->os, at, place));
    }
    append(line, &used, "; ", row->rec.note.data);
    if (!row->rec.aside.bytes && !is_there(request, &row->rec.path)) append(line, &used, "; ", "gone from its place");
    fb_text_disarm(line);
    for (char *c = line; *c; c++) *c = *c == '\n' ? '?' : *c;
}

static int is_text(const fb_text *a, const fb_text *b)
{
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* A row that stood for a pin, or for what was moved aside, and that has nothing to stand for any more: it is gone, or the
 * checkpoint
   itself, with the same bytes, has a row. */
static int is_past(const ckpt_request *request, const ckpt_set *set, const ckpt_row *row)
{
    if (!row->rec.origin.bytes) return 0;
    if (!is_there(request, &row->rec.path)) return 1;
    for (uint64_t i = 0; i < set->count; i++) {
        const fb_rec_ckpt *own = &set->rows[i].rec;
        if (is_text(&own->path, &row->rec.origin) && own->digest == row->rec.digest) return 1;
    }
    return 0;
}

static void drop_past(const ckpt_request *request, ckpt_set *set)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < set->count; i++) set->rows[i].past = is_past(request, set, &set->rows[i]);
    for (uint64_t i = 0; i < set->count; i++) {
        if (set->rows[i].past) fb_free(set->rows[i].text);
        else set->rows[kept++] = set->rows[i];
    }
    set->count = kept;
}

/* ---- order ------------------------------------------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b)
{
    const ckpt_row *x = a, *y = b;
    if (x->rec.attempt != y->rec.attempt) return x->rec.attempt < y->rec.attempt ? -1 : 1;
    if (x->rec.step != y->rec.step) return x->rec.step < y->rec.step ? -1 : 1;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static int by_time(const void *a, const void *b)
{
    const ckpt_row *x = a, *y = b;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* ---- text -------------------------------------------------------------------------------------------------------------------- */

static const char *step_text(int64_t step, char out[WHEN_BYTES])
{
    if (step < 0) return "-";
    (void)snprintf(out, WHEN_BYTES, "%" PRId64, step);
    return out;
}

static void print_row(const ckpt_request *request, const ckpt_row *row)
{
    char step[WHEN_BYTES], time_text[WHEN_BYTES], bytes[32], place[FB_OS_PATH_MAX], name[FB_OS_PATH_MAX * 4], line[LINE_BYTES];
    scan_fit_name(ckpt_short(request->os, known_as(&row->rec), place), FB_OS_PATH_MAX, name, sizeof name);
    describe(request, row, line);
    printf("%8s  %-11s  %s  %9s  %s\n", step_text(row->rec.step, step), fb_registry_state_name(row->rec.state),
           when(row->time_ns, time_text), row->rec.bytes ? scan_bytes(row->rec.bytes, bytes) : "-", name);
    printf("          %s\n", line);
}

/* What `latest` would give for the same question, with the sentence when there is none. */
static int find_latest(const ckpt_request *request, const ckpt_set *set, fb_registry_checkpoint *found, fb_error *err)
{
    fb_status status;
    if (set->dir[0] == '\0' && set->home_count == 1)
        status = fb_registry_latest_committed(request->os, set->homes[0], FB_REGISTRY_LOOK, found, err);
    else status = fb_registry_latest_in(request->os, set->dir, request->runs_dir, FB_REGISTRY_LOOK, 0, found, err);
    return status == FB_OK;
}

static int list_text(const ckpt_request *request, const ckpt_set *set)
{
    fb_registry_checkpoint found;
    fb_error err;
    char place[FB_OS_PATH_MAX], name[FB_OS_PATH_MAX * 4];
    if (set->count == 0) printf("no checkpoint is recorded%s%s\n", set->dir[0] ? " at or below " : "", set->dir);
    else printf("    step  state        recorded               bytes    checkpoint\n");
    for (uint64_t i = 0; i < set->count; i++) print_row(request, &set->rows[i]);
    if (set->count == 0) return cli_flush();
    if (find_latest(request, set, &found, &err)) {
        scan_fit_name(ckpt_short(request->os, found.path, place), FB_OS_PATH_MAX, name, sizeof name);
        printf("\nresume from  %s  (step %" PRId64 ")\n", name, found.step);
    } else {
        fb_text_disarm(err.message);
        printf("\nresume from  nothing yet: %s\n", err.message);
    }
    return cli_flush();
}

static int log_text(const ckpt_request *request, const ckpt_set *set)
{
    if (set->count == 0) printf("nothing is recorded%s%s\n", set->dir[0] ? " at or below " : "", set->dir);
    for (uint64_t i = 0; i < set->count; i++) {
        const ckpt_row *row = &set->rows[i];
        char step[WHEN_BYTES], time_text[WHEN_BYTES], place[FB_OS_PATH_MAX], name[FB_OS_PATH_MAX * 4], line[LINE_BYTES];
        scan_fit_name(ckpt_short(request->os, known_as(&row->rec), place), FB_OS_PATH_MAX, name, sizeof name);
        describe(request, row, line);
        printf("%s  %-11s  step %s, attempt %d, rank %d  %s\n                      %s\n", when(row->time_ns, time_text),
               fb_registry_state_name(row->rec.state), step_text(row->rec.step, step), row->rec.attempt, row->rec.rank, name, line);
    }
    return cli_flush();
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------------- */

static void text_or_null(fb_json *json, const char *key, const fb_text *text)
{
    fb_json_key(json, key);
    if (text->bytes) fb_json_string_bytes(json, text->data, text->bytes);
    else fb_json_null(json);
}

static void json_row(fb_json *json, const ckpt_row *row)
{
    const fb_rec_ckpt *rec = &row->rec;
    fb_json_object_begin(json);
    text_or_null(json, "path", &rec->path);
    text_or_null(json, "origin", &rec->origin);
    fb_json_key_string(json, "state", fb_registry_state_name(rec->state));
    fb_json_key_string(json, "reason", fb_registry_reason_text(rec->state, rec->reason));
    text_or_null(json, "note", &rec->note);
    fb_json_key_int(json, "step", rec->step);
    fb_json_key_int(json, "attempt", rec->attempt);
    fb_json_key_int(json, "rank", rec->rank);
    fb_json_key(json, "gated");
    if (rec->gated == FB_CKPT_GATED_UNKNOWN) fb_json_null(json);
    else fb_json_bool(json, rec->gated == FB_CKPT_GATED_YES);
    fb_json_key_uint(json, "tensors", rec->tensors);
    fb_json_key_uint(json, "elements", rec->elements);
    fb_json_key_uint(json, "bytes", rec->bytes);
    fb_json_key_uint(json, "bad", rec->bad);
    text_or_null(json, "tensor", &rec->tensor);
    fb_json_key_hex(json, "digest", rec->digest, 16);
    fb_json_key_string(json, "pin", fb_registry_pin_name(rec->pin));
    text_or_null(json, "pin_path", &rec->pin_path);
    text_or_null(json, "aside", &rec->aside);
    fb_json_key_uint(json, "time_unix_ns", row->time_ns);
    fb_json_key_uint(json, "sequence", row->sequence);
    fb_json_key_string(json, "home", row->home);
    fb_json_object_end(json);
}

static int print_json(const ckpt_request *request, const ckpt_set *set, const char *key, int with_latest)
{
    fb_json json;
    fb_error err;
    int code;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key(&json, "dir");
    if (set->dir[0]) fb_json_string(&json, set->dir);
    else fb_json_null(&json);
    fb_json_key(&json, "homes");
    fb_json_array_begin(&json);
    for (uint64_t i = 0; i < set->home_count; i++) fb_json_string(&json, set->homes[i]);
    fb_json_array_end(&json);
    fb_json_key(&json, key);
    fb_json_array_begin(&json);
    for (uint64_t i = 0; i < set->count; i++) json_row(&json, &set->rows[i]);
    fb_json_array_end(&json);
    if (with_latest) {
        fb_registry_checkpoint found;
        int have = set->home_count > 0 && find_latest(request, set, &found, &err);
        fb_json_key(&json, "latest");
        if (have) fb_json_string(&json, found.path);
        else fb_json_null(&json);
        fb_json_key(&json, "latest_why");
        if (have || set->home_count == 0) fb_json_null(&json);
        else fb_json_string(&json, err.message);
    }
    fb_json_object_end(&json);
    if (fb_json_finish(&json, &err) != FB_OK) code = cli_fail(&err);
    else if ((code = cli_print(fb_json_text(&json))) == 0) code = cli_print("\n");
    fb_json_release(&json);
    return code;
}

/* ---- the two actions --------------------------------------------------------------------------------------------------------- */

static int show(const ckpt_request *request, int trail)
{
    ckpt_set set;
    int code;
    memset(&set, 0, sizeof set);
    code = ckpt_gather(request, request->path_count ? request->paths[0] : NULL, trail, &set);
    if (code == 0) {
        if (!trail) drop_past(request, &set);
        if (set.count) qsort(set.rows, (size_t)set.count, sizeof *set.rows, trail ? by_time : by_step);
        if (request->json) code = print_json(request, &set, trail ? "records" : "checkpoints", !trail);
        else code = trail ? log_text(request, &set) : list_text(request, &set);
    }
    ckpt_set_release(&set);
    return code;
}

int ckpt_list(const ckpt_request *request)
{
    return show(request, 0);
}

int ckpt_log(const ckpt_request *request)
{
    return show(request, 1);
}
