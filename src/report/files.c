/*
 * The JSON files of a run folder. They are convenience: the ledgers hold the same. So a file that is missing, torn or hostile costs
 * a note and nothing else.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/status.h"
#include "evidence/site.h"
#include "report/inside.h"

/* ---- small readers: each takes exactly one value, whatever it is ------------------------------------------------------------- */

typedef fb_status (*member_fn)(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err);

/* Each member of the object whose opening bracket was read; `fn` takes its value whole. */
static fb_status each_member(fb_json_reader *reader, member_fn fn, void *ctx, fb_error *err)
{
    fb_json_token key;
    fb_status status;
    for (;;) {
        if ((status = fb_json_next(reader, &key, err)) != FB_OK) return status;
        if (key.type != FB_JSON_KEY) return FB_OK;
        if ((status = fn(reader, &key, ctx, err)) != FB_OK) return status;
    }
}

static fb_status read_object(fb_json_reader *reader, member_fn fn, void *ctx, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK) return status;
    return token.type == FB_JSON_OBJECT ? each_member(reader, fn, ctx, err) : fb_json_skip_rest(reader, &token, err);
}

static fb_status read_text(fb_json_reader *reader, char *out, size_t room, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK) return status;
    if (token.type == FB_JSON_STRING) (void)fb_json_decode(&token, out, room, NULL, NULL);
    return fb_json_skip_rest(reader, &token, err);
}

/* Integers and true or false; *known (may be NULL) says whether there was one. */
static fb_status read_int(fb_json_reader *reader, int64_t *value, int *known, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    int is_int;
    if (status != FB_OK) return status;
    is_int = token.type == FB_JSON_INT || token.type == FB_JSON_BOOL;
    if (is_int) *value = token.i;
    if (known) *known = is_int;
    return fb_json_skip_rest(reader, &token, err);
}

static fb_status read_int32(fb_json_reader *reader, int32_t *value, fb_error *err)
{
    int64_t wide = 0;
    int known = 0;
    fb_status status = read_int(reader, &wide, &known, err);
    if (status == FB_OK && known && wide >= INT32_MIN && wide <= INT32_MAX) *value = (int32_t)wide;
    return status;
}

static fb_status read_uint(fb_json_reader *reader, uint64_t *value, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK) return status;
    if (token.type == FB_JSON_UINT || (token.type == FB_JSON_INT && token.i >= 0)) *value = token.u;
    return fb_json_skip_rest(reader, &token, err);
}

static fb_status read_double(fb_json_reader *reader, double *value, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK) return status;
    if (token.type >= FB_JSON_INT && token.type <= FB_JSON_DOUBLE) *value = token.d;
    return fb_json_skip_rest(reader, &token, err);
}

static fb_status read_hex(fb_json_reader *reader, uint64_t *value, fb_error *err)
{
    char text[24] = "";
    uint64_t bits = 0;
    fb_status status = read_text(reader, text, sizeof text, err);
    if (status != FB_OK || text[0] != '0' || text[1] != 'x') return status;
    for (const char *c = text + 2; *c; c++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, *c);
        if (!digit) return FB_OK;
        bits = bits << 4 | (uint64_t)(digit - digits);
    }
    *value = bits;
    return FB_OK;
}

/* An array of text, joined by spaces. */
static fb_status read_words(fb_json_reader *reader, char *out, size_t room, fb_error *err)
{
    fb_json_token token;
    char word[1024];
    size_t used = 0;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK || token.type != FB_JSON_ARRAY) return status == FB_OK ? fb_json_skip_rest(reader, &token, err) : status;
    out[0] = '\0';
    for (;;) {
        if ((status = fb_json_next(reader, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) return FB_OK;
        if (token.type == FB_JSON_STRING && fb_json_decode(&token, word, sizeof word, NULL, NULL) == FB_OK && used < room) {
            int n = snprintf(out + used, room - used, "%s%s", used ? " " : "", word);
            used += n > 0 ? (size_t)n : 0;
        }
        if ((status = fb_json_skip_rest(reader, &token, err)) != FB_OK) return status;
    }
}

/* ---- run.json and exit.json -------------------------------------------------------------------------------------------------- */

static fb_status code_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    fb_report_run *run = ctx;
    if (fb_json_is(key, "commit")) return read_text(reader, run->commit, sizeof run->commit, err);
    if (fb_json_is(key, "dirty")) return read_int32(reader, &run->dirty, err);
    return fb_json_skip(reader, err);
}

static fb_status policy_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    fb_report_run *run = ctx;
    if (fb_json_is(key, "on_bad")) return read_text(reader, run->on_bad, sizeof run->on_bad, err);
    if (fb_json_is(key, "agreement")) return read_text(reader, run->agreement, sizeof run->agreement, err);
    if (fb_json_is(key, "max_skips")) return read_int32(reader, &run->max_skips, err);
    return fb_json_skip(reader, err);
}

static fb_status meta_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    fb_report_run *run = ctx;
    if (fb_json_is(key, "model_commit") && !run->commit[0]) return read_text(reader, run->commit, sizeof run->commit, err);
    if (fb_json_is(key, "locate")) return read_text(reader, run->locate, sizeof run->locate, err);
    return fb_json_skip(reader, err);
}

static fb_status run_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    fb_report_run *run = ctx;
    if (fb_json_is(key, "run_id")) return read_text(reader, run->run_id, sizeof run->run_id, err);
    if (fb_json_is(key, "created_unix")) return read_int(reader, &run->created_unix, NULL, err);
    if (fb_json_is(key, "command")) return read_words(reader, run->command, sizeof run->command, err);
    if (fb_json_is(key, "cwd")) return read_text(reader, run->cwd, sizeof run->cwd, err);
    if (fb_json_is(key, "host")) return read_text(reader, run->host, sizeof run->host, err);
    if (fb_json_is(key, "precision")) return read_text(reader, run->precision, sizeof run->precision, err);
    if (fb_json_is(key, "world")) return read_int32(reader, &run->world, err);
    if (fb_json_is(key, "code")) return read_object(reader, code_member, run, err);
    if (fb_json_is(key, "policy")) return read_object(reader, policy_member, run, err);
    if (fb_json_is(key, "meta")) return read_object(reader, meta_member, run, err);
    return fb_json_skip(reader, err);
}

static fb_status exit_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    fb_report_run *run = ctx;
    if (fb_json_is(key, "command") && !run->command[0]) return read_words(reader, run->command, sizeof run->command, err);
    if (fb_json_is(key, "code")) return read_int32(reader, &run->exit_code, err);
    if (fb_json_is(key, "signal")) return read_int32(reader, &run->exit_signal, err);
    if (fb_json_is(key, "halted")) return read_int32(reader, &run->exit_halted, err);
    return fb_json_skip(reader, err);
}

/* Read a file whole and hand its outermost object to `fn`. */
static fb_status read_file(const fb_os *os, const char *path, member_fn fn, void *ctx, fb_error *err)
{
    fb_json_reader reader;
    fb_json_token end;
    char *data = NULL;
    size_t bytes = 0;
    fb_status status = fb_os_read_file(os, path, FB_REPORT_FILE_BYTES_MAX, &data, &bytes, err);
    if (status != FB_OK) return status;
    fb_json_read(&reader, data, bytes);
    status = read_object(&reader, fn, ctx, err);
    if (status == FB_OK) status = fb_json_next(&reader, &end, err); /* nothing may follow */
    fb_free(data);
    return status;
}

/* A missing file is silent here: whoever calls knows whether it had to be there. */
static fb_status note_problem(fb_report *report, fb_status status, const char *path, const fb_error *why)
{
    const char *name = strrchr(path, '/');
    if (status == FB_E_NOMEM) return status;
    if (status != FB_OK && status != FB_E_NOTFOUND)
        fb_notes_add(&report->notes, "%s: %.400s", name ? name + 1 : path, why->message);
    return FB_OK;
}

fb_status fb_files_run(const fb_os *os, fb_report *report, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_error why;
    fb_status status = fb_os_join(path, sizeof path, report->folder, "run.json", err);
    if (status != FB_OK) return status;
    status = read_file(os, path, run_member, &report->run, &why);
    if (status == FB_E_NOTFOUND) fb_notes_add(&report->notes, "run.json is missing; what the run is was taken from a ledger");
    if (report->run.world > FB_REPORT_RANKS_MAX || report->run.world < 1) report->run.world = -1;
    if (status == FB_E_NOMEM && err) *err = why;
    return note_problem(report, status, path, &why);
}

fb_status fb_files_exit(const fb_os *os, fb_report *report, fb_error *err)
{
    char path[FB_OS_PATH_MAX], name[48];
    fb_error why;
    fb_status status;
    (void)snprintf(name, sizeof name, "ledger/a%d/exit.json", report->attempt);
    if ((status = fb_os_join(path, sizeof path, report->folder, name, err)) != FB_OK) return status;
    status = read_file(os, path, exit_member, &report->run, &why);
    report->run.has_exit = status == FB_OK;
    if (status == FB_E_NOMEM && err) *err = why;
    return note_problem(report, status, path, &why);
}

/* ---- case files -------------------------------------------------------------------------------------------------------------- */

typedef struct case_finding {
    fb_report *report;
    fb_rec_finding rec;
    char module[FB_TEXT_MAX + 1], tensor[FB_TEXT_MAX + 1], group[FB_TEXT_MAX + 1], host[FB_TEXT_MAX + 1];
    int64_t index[FB_DIMS_MAX];
    int32_t indices;
} case_finding;

/* The number that a name stands for: the names of evidence/site.h, asked one by one. */
static int32_t number_of(const char *(*name)(int32_t), int32_t low, int32_t high, const char *text)
{
    for (int32_t i = low; i <= high; i++) {
        const char *known = name(i);
        if (known && strcmp(known, text) == 0) return i;
    }
    return 0;
}

static fb_status read_name(fb_json_reader *reader, const char *(*name)(int32_t), int32_t low, int32_t high, int32_t *out,
                           fb_error *err)
{
    char text[64] = "";
    fb_status status = read_text(reader, text, sizeof text, err);
    if (status == FB_OK) *out = number_of(name, low, high, text);
    return status;
}

static fb_status read_dims(fb_json_reader *reader, int64_t out[FB_DIMS_MAX], int32_t *count, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_json_next(reader, &token, err);
    *count = 0;
    if (status != FB_OK || token.type != FB_JSON_ARRAY) return status == FB_OK ? fb_json_skip_rest(reader, &token, err) : status;
    for (;;) {
        if ((status = fb_json_next(reader, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) return FB_OK;
        if (token.type == FB_JSON_INT && token.i >= 0 && *count < FB_DIMS_MAX) out[(*count)++] = token.i;
        if ((status = fb_json_skip_rest(reader, &token, err)) != FB_OK) return status;
    }
}

static fb_status read_boundaries(fb_json_reader *reader, uint32_t *bits, fb_error *err)
{
    fb_json_token token;
    char text[64];
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK || token.type != FB_JSON_ARRAY) return status == FB_OK ? fb_json_skip_rest(reader, &token, err) : status;
    for (;;) {
        if ((status = fb_json_next(reader, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) return FB_OK;
        if (token.type == FB_JSON_STRING && fb_json_decode(&token, text, sizeof text, NULL, NULL) == FB_OK) {
            int32_t boundary = number_of(fb_boundary_name, FB_ENTRY, FB_CHECKPOINT, text);
            if (boundary) *bits |= 1u << boundary;
        }
        if ((status = fb_json_skip_rest(reader, &token, err)) != FB_OK) return status;
    }
}

static fb_status statistics_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    fb_rec_finding *rec = ctx;
    if (fb_json_is(key, "elements")) return read_uint(reader, &rec->elements, err);
    if (fb_json_is(key, "nan")) return read_uint(reader, &rec->nan, err);
    if (fb_json_is(key, "pos_inf")) return read_uint(reader, &rec->pos_inf, err);
    if (fb_json_is(key, "neg_inf")) return read_uint(reader, &rec->neg_inf, err);
    if (fb_json_is(key, "zero")) return read_uint(reader, &rec->zero, err);
    if (fb_json_is(key, "subnormal")) return read_uint(reader, &rec->subnormal, err);
    if (fb_json_is(key, "at_max")) return read_uint(reader, &rec->at_max, err);
    if (fb_json_is(key, "abs_min")) return read_double(reader, &rec->abs_min, err);
    if (fb_json_is(key, "abs_max")) return read_double(reader, &rec->abs_max, err);
    if (fb_json_is(key, "sum_sq")) return read_double(reader, &rec->sum_sq, err);
    if (fb_json_is(key, "sum_sq_exponent")) return read_int32(reader, &rec->sum_sq_exponent, err);
    return fb_json_skip(reader, err);
}

static fb_status allowed_range(fb_json_reader *reader, fb_rec_finding *rec, fb_error *err)
{
    fb_json_token token;
    int64_t *bounds[2] = {&rec->low, &rec->high};
    int n = 0;
    fb_status status = fb_json_next(reader, &token, err);
    if (status != FB_OK || token.type != FB_JSON_ARRAY) return status == FB_OK ? fb_json_skip_rest(reader, &token, err) : status;
    for (;;) {
        if ((status = fb_json_next(reader, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) return FB_OK;
        if (token.type == FB_JSON_INT && n < 2) *bounds[n++] = token.i;
        if ((status = fb_json_skip_rest(reader, &token, err)) != FB_OK) return status;
    }
}

static fb_status place_member(fb_json_reader *reader, const fb_json_token *key, case_finding *one, int *taken, fb_error *err)
{
    fb_rec_finding *rec = &one->rec;
    *taken = 1;
    if (fb_json_is(key, "attempt")) return read_int32(reader, &rec->attempt, err);
    if (fb_json_is(key, "step")) return read_int(reader, &rec->step, NULL, err);
    if (fb_json_is(key, "micro_step")) return read_int32(reader, &rec->micro_step, err);
    if (fb_json_is(key, "rank")) return read_int32(reader, &rec->rank, err);
    if (fb_json_is(key, "host")) return read_text(reader, one->host, sizeof one->host, err);
    if (fb_json_is(key, "module")) return read_text(reader, one->module, sizeof one->module, err);
    if (fb_json_is(key, "tensor")) return read_text(reader, one->tensor, sizeof one->tensor, err);
    if (fb_json_is(key, "group")) return read_text(reader, one->group, sizeof one->group, err);
    if (fb_json_is(key, "boundary")) return read_name(reader, fb_boundary_name, FB_ENTRY, FB_CHECKPOINT, &rec->boundary, err);
    if (fb_json_is(key, "role")) return read_name(reader, fb_role_name, FB_ROLE_ACTIVATION, FB_ROLE_COUNTER, &rec->role, err);
    if (fb_json_is(key, "field")) return read_name(reader, fb_field_name, FB_FIELD_TENSOR, FB_FIELD_LENGTHS, &rec->field, err);
    if (fb_json_is(key, "kind")) return read_name(reader, fb_kind_name, FB_KIND_NAN, FB_KIND_DOMAIN, &rec->kind, err);
    if (fb_json_is(key, "dtype")) return read_name(reader, fb_dtype_name, FB_F64, FB_F6_E3M2, &rec->dtype, err);
    if (fb_json_is(key, "bucket")) return read_int32(reader, &rec->bucket, err);
    if (fb_json_is(key, "position")) return read_int(reader, &rec->position, NULL, err);
    *taken = 0;
    return FB_OK;
}

static fb_status finding_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    case_finding *one = ctx;
    fb_rec_finding *rec = &one->rec;
    uint64_t wide = 0;
    int taken;
    fb_status status = place_member(reader, key, one, &taken, err);
    if (taken || status != FB_OK) return status;
    if (fb_json_is(key, "count")) return read_uint(reader, &rec->count, err);
    if (fb_json_is(key, "bits")) return read_hex(reader, &rec->first_bits, err);
    if (fb_json_is(key, "index")) return read_dims(reader, one->index, &one->indices, err);
    if (fb_json_is(key, "shape")) return read_dims(reader, rec->shape, &rec->ndim, err);
    if (fb_json_is(key, "value")) return read_int(reader, &rec->value, NULL, err);
    if (fb_json_is(key, "allowed")) return allowed_range(reader, rec, err);
    if (fb_json_is(key, "statistics")) return read_object(reader, statistics_member, rec, err);
    if (fb_json_is(key, "loss_scale")) return read_double(reader, &rec->loss_scale, err);
    if (fb_json_is(key, "global_batch_id")) return read_int(reader, &rec->global_batch_id, NULL, err);
    if (fb_json_is(key, "batch_fingerprint")) return read_hex(reader, &rec->batch_fingerprint, err);
    if (fb_json_is(key, "rng_state_hash")) return read_hex(reader, &rec->rng_state_hash, err);
    if (fb_json_is(key, "clean_before")) return read_boundaries(reader, &rec->clean_before, err);
    if (fb_json_is(key, "sampled_before")) return read_boundaries(reader, &rec->sampled_before, err);
    if (fb_json_is(key, "injected")) return read_int32(reader, &rec->injected, err);
    if (fb_json_is(key, "time_unix_ns")) return read_uint(reader, &rec->time_ns, err);
    if (!fb_json_is(key, "site") && !fb_json_is(key, "tensors_before")) return fb_json_skip(reader, err);
    if ((status = read_uint(reader, &wide, err)) != FB_OK) return status;
    if (fb_json_is(key, "site")) rec->site = (uint32_t)wide;
    else rec->tensors_before = (uint32_t)wide;
    return FB_OK;
}

static fb_text text_of(const char *text)
{
    fb_text result = {text, (uint32_t)strlen(text)};
    return result;
}

static void begin_finding(case_finding *one, fb_report *report)
{
    memset(one, 0, sizeof *one);
    one->report = report;
    one->rec.bucket = -1;
    one->rec.rank = -1;
    one->rec.step = -1;
    one->rec.first_index = FB_NO_INDEX;
    one->rec.global_batch_id = -1;
}

/* Back from indices to the flat index; then the finding is kept if it is one of this step. */
static fb_status end_finding(case_finding *one, fb_error *err)
{
    fb_rec_finding *rec = &one->rec;
    if (rec->step != one->report->step || rec->rank < 0 || rec->boundary == 0 || rec->kind == 0) return FB_OK;
    if (one->indices > 0 && (one->indices == rec->ndim || one->indices == 1)) {
        uint64_t flat = (uint64_t)one->index[0];
        for (int32_t i = 1; i < one->indices; i++) flat = flat * (uint64_t)rec->shape[i] + (uint64_t)one->index[i];
        rec->first_index = flat;
    }
    rec->module = text_of(one->module);
    rec->tensor = text_of(one->tensor);
    rec->group = text_of(one->group);
    rec->host = text_of(one->host);
    return fb_report_keep(one->report, rec, FB_SOURCE_CASE_FILE, err);
}

static fb_status findings_member(fb_json_reader *reader, const fb_json_token *key, void *ctx, fb_error *err)
{
    case_finding *one = ctx;
    fb_report *report = one->report;
    fb_json_token token;
    fb_status status;
    if (!fb_json_is(key, "findings")) return fb_json_skip(reader, err);
    if ((status = fb_json_next(reader, &token, err)) != FB_OK) return status;
    if (token.type != FB_JSON_ARRAY) return fb_json_skip_rest(reader, &token, err);
    for (;;) {
        if ((status = fb_json_next(reader, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_ARRAY_END) return FB_OK;
        if (token.type != FB_JSON_OBJECT) {
            if ((status = fb_json_skip_rest(reader, &token, err)) != FB_OK) return status;
            continue;
        }
        begin_finding(one, report);
        if ((status = each_member(reader, finding_member, one, err)) != FB_OK) return status;
        if ((status = end_finding(one, err)) != FB_OK) return status;
    }
}

/* What one case file says. A torn one is noted, and what came before the tear was kept if it was whole. */
static fb_status read_case_file(const fb_os *os, fb_report *report, const char *name, member_fn fn, int *found, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    case_finding *one;
    fb_error why;
    fb_status status = fb_os_join(path, sizeof path, report->case_folder, name, err);
    *found = 0;
    if (status != FB_OK) return status;
    one = fb_calloc(1, sizeof *one);
    if (!one) return fb_fail(err, FB_E_NOMEM, "load report: no memory for %zu bytes", sizeof *one);
    begin_finding(one, report);
    status = read_file(os, path, fn, one, &why);
    *found = status == FB_OK;
    if (status == FB_OK && fn == finding_member) status = end_finding(one, &why);
    fb_free(one);
    if (status == FB_E_NOMEM && err) *err = why;
    return note_problem(report, status, path, &why);
}

typedef struct case_listing {
    const fb_os *os;
    fb_report *report;
    fb_error *err;
    uint64_t files;
} case_listing;

static int64_t visit_case_file(void *arg, const char *name)
{
    case_listing *listing = arg;
    size_t n = strlen(name);
    int found;
    if (n < 11 || strncmp(name, "rank-", 5) != 0 || strcmp(name + n - 5, ".json") != 0) return 0;
    if (++listing->files > FB_REPORT_FINDINGS_MAX) return 0;
    return read_case_file(listing->os, listing->report, name, findings_member, &found, listing->err) == FB_OK ? 0 : 1;
}

fb_status fb_files_case(const fb_os *os, fb_report *report, fb_error *err)
{
    case_listing listing = {os, report, err, 0};
    int found;
    fb_status status;
    if (!report->case_folder[0]) return FB_OK;
    if ((status = read_case_file(os, report, "first_bad.json", finding_member, &found, err)) != FB_OK) return status;
    if (!found) report->rebuilt = 1;
    return os->list(os->ctx, report->case_folder, visit_case_file, &listing) > 0 ? FB_E_NOMEM : FB_OK;
}
