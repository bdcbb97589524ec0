/*
 * A scan for programs: one object a path, on one line (docs/format/json.md). Its keys are stable.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "scan/scan_format.h"
#include "scan_show.h"

static const char *kind_key(int32_t kind)
{
    return kind == FB_KIND_NAN ? "nan" : kind == FB_KIND_POS_INF ? "+inf" : kind == FB_KIND_NEG_INF ? "-inf" : NULL;
}

static const char *legal_key(int32_t legal)
{
    switch (legal) {
    case FB_CKPT_LEGAL_NAMED: return "allowed";
    case FB_CKPT_LEGAL_MASK: return "mask";
    case FB_CKPT_LEGAL_NUMBER: return "number";
    case FB_CKPT_LEGAL_UNREFERENCED: return "unreferenced";
    default: return NULL;
    }
}

static void write_dims(fb_json *json, const char *key, const uint64_t *dims, int32_t ndim)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (int32_t i = 0; i < ndim; i++) fb_json_uint(json, dims[i]);
    fb_json_array_end(json);
}

static void write_index(fb_json *json, const scan_finding *finding)
{
    uint64_t coordinates[FB_DIMS_MAX * 8];
    uint64_t flat = finding->facts.index;
    if (flat == FB_NO_INDEX) {
        fb_json_key_null(json, "index");
        fb_json_key_null(json, "flat_index");
        return;
    }
    if (finding->shape.ndim <= (int32_t)(sizeof coordinates / sizeof *coordinates) &&
        scan_coordinates(&finding->shape, flat, coordinates)) {
        write_dims(json, "index", coordinates, finding->shape.ndim);
    } else {
        fb_json_key_null(json, "index");
    }
    fb_json_key_uint(json, "flat_index", flat);
}

static void write_finding(fb_json *json, const scan_finding *finding)
{
    const fb_ckpt_finding *facts = &finding->facts;
    const fb_format *format = fb_format_of(facts->fb_dtype);
    fb_json_object_begin(json);
    fb_json_key_string(json, "file", finding->file);
    fb_json_key_string(json, "tensor", finding->tensor);
    fb_json_key_string(json, "dtype", finding->dtype);
    write_dims(json, "shape", finding->shape.dims, finding->shape.ndim);
    fb_json_key_uint(json, "elements", facts->elements);
    write_index(json, finding);
    if (facts->offset_bytes == FB_NO_INDEX) fb_json_key_null(json, "offset");
    else fb_json_key_uint(json, "offset", facts->offset_bytes);
    fb_json_key_string(json, "kind", kind_key(facts->kind));
    fb_json_key_uint(json, "nan", facts->nan);
    fb_json_key_uint(json, "pos_inf", facts->pos_inf);
    fb_json_key_uint(json, "neg_inf", facts->neg_inf);
    fb_json_key_hex(json, "bits", facts->bits, format ? format->part_bits / 4 : 1);
    fb_json_key_string(json, "lane", finding->lane && *finding->lane ? finding->lane : NULL);
    fb_json_key_bool(json, "number", facts->number != 0);
    fb_json_key_string(json, "legal", legal_key(facts->legal));
    fb_json_object_end(json);
}

static void write_findings(fb_json *json, const char *key, const scan_list *list)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (size_t i = 0; i < list->count; i++) write_finding(json, scan_finding_at(list, i));
    fb_json_array_end(json);
}

/* name_key: NULL where a remark has no name. */
static void write_remarks(fb_json *json, const char *key, const scan_list *list, const char *name_key, const char *text_key)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (size_t i = 0; i < list->count; i++) {
        const scan_remark *remark = scan_remark_at(list, i);
        fb_json_object_begin(json);
        fb_json_key_string(json, "file", remark->file);
        if (name_key) fb_json_key_string(json, name_key, remark->name);
        fb_json_key_string(json, text_key, remark->text);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

/* The digest as the command prints it, without "0x": what xxhsum and sha256sum print. */
static void write_digest(fb_json *json, const scan_result *result, uint64_t xxh3, const char *sha256, int known)
{
    char text[24];
    if (!result->digest || result->stopped_at_first || !known) {
        fb_json_key_null(json, "digest");
    } else if (strcmp(result->digest, "sha256") == 0) {
        fb_json_key_string(json, "digest", *sha256 ? sha256 : NULL);
    } else {
        (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)xxh3);
        fb_json_key_string(json, "digest", text);
    }
}

/* Not every fault has a place in the file; the sentence of one that has names it (fb_fail_at). */
static void write_error(fb_json *json, const char *reason, fb_status code, uint64_t offset)
{
    if (!reason || !*reason) {
        fb_json_key_null(json, "error");
        return;
    }
    fb_json_key(json, "error");
    fb_json_object_begin(json);
    fb_json_key_string(json, "reason", reason);
    fb_json_key(json, "offset");
    if (code == FB_E_CORRUPT && strstr(reason, "(offset ")) fb_json_uint(json, offset);
    else fb_json_null(json);
    fb_json_object_end(json);
}

static void write_files(fb_json *json, const scan_result *result)
{
    fb_json_key(json, "files");
    fb_json_array_begin(json);
    for (size_t i = 0; result->folder && i < result->files.count; i++) {
        const scan_file *file = scan_file_at(&result->files, i);
        /* Without an outcome: an index or the like, which the digest covers; or the scan ended in it, and says why. */
        if (file->outcome < 0 && !*file->sha256) continue;
        fb_json_object_begin(json);
        fb_json_key_string(json, "path", file->path);
        fb_json_key_string(json, "format", file->format);
        fb_json_key_string(json, "status", file->outcome < 0 ? NULL : fb_ckpt_outcome_name(file->outcome));
        fb_json_key_uint(json, "tensors", file->tensors);
        fb_json_key_uint(json, "elements", file->elements);
        fb_json_key_uint(json, "bytes", file->bytes);
        write_digest(json, result, file->digest, file->sha256, 1);
        write_error(json, file->reason, file->reason_code, file->reason_offset);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

static void write_histogram(fb_json *json, const scan_row *row)
{
    enum { BIN_OF_ONE = 127 };
    fb_json_key(json, "exponents");
    fb_json_object_begin(json);
    fb_json_key(json, "first");
    if (row->bin_count) fb_json_int(json, row->first_bin - BIN_OF_ONE);
    else fb_json_null(json);
    fb_json_key(json, "counts");
    fb_json_array_begin(json);
    for (int32_t i = 0; i < row->bin_count; i++) fb_json_uint(json, row->bins[i]);
    fb_json_array_end(json);
    fb_json_key_uint(json, "zero_or_subnormal", row->low_bin);
    fb_json_object_end(json);
}

static void write_row(fb_json *json, const scan_row *row)
{
    double binades = 0, factor = 0;
    int has_headroom = scan_headroom(row, &binades, &factor), some = row->finite > 0;
    fb_json_object_begin(json);
    fb_json_key_string(json, "file", row->file);
    fb_json_key_string(json, "tensor", row->name);
    fb_json_key_string(json, "dtype", row->dtype);
    write_dims(json, "shape", row->shape.dims, row->shape.ndim);
    fb_json_key_uint(json, "elements", row->elements);
    fb_json_key_bool(json, "measured", row->measured);
    if (row->measured) {
        fb_json_key_uint(json, "finite", row->finite);
        fb_json_key_uint(json, "nan", row->nan);
        fb_json_key_uint(json, "pos_inf", row->pos_inf);
        fb_json_key_uint(json, "neg_inf", row->neg_inf);
        fb_json_key_uint(json, "zero", row->zero);
        fb_json_key_uint(json, "subnormal", row->subnormal);
        fb_json_key_uint(json, "at_max", row->at_max);
        fb_json_key(json, "min"), fb_json_number_or_null(json, row->min, some);
        fb_json_key(json, "max"), fb_json_number_or_null(json, row->max, some);
        fb_json_key(json, "abs_min"), fb_json_number_or_null(json, row->abs_min, row->abs_min > 0);
        fb_json_key(json, "abs_max"), fb_json_number_or_null(json, row->abs_max, some);
        fb_json_key(json, "norm"), fb_json_number_or_null(json, row->norm, some);
        fb_json_key(json, "headroom_binades"), fb_json_number_or_null(json, binades, has_headroom);
        write_histogram(json, row);
    }
    fb_json_object_end(json);
}

static void write_rows(fb_json *json, const scan_result *result)
{
    fb_json_key(json, "statistics");
    if (!result->stats) {
        fb_json_null(json);
        return;
    }
    fb_json_array_begin(json);
    for (size_t i = 0; i < result->rows.count; i++) write_row(json, scan_row_at(&result->rows, i));
    fb_json_array_end(json);
}

static void write_left_out(fb_json *json, const scan_result *result)
{
    fb_json_key(json, "left_out");
    fb_json_object_begin(json);
    fb_json_key_uint(json, "findings", result->findings.left_out);
    fb_json_key_uint(json, "legal", result->legal.left_out);
    fb_json_key_uint(json, "unreferenced", result->unreferenced.left_out);
    fb_json_key_uint(json, "unscanned", result->unscanned.left_out);
    fb_json_key_uint(json, "security", result->security.left_out);
    fb_json_key_uint(json, "notes", result->notes.left_out);
    fb_json_object_end(json);
}

static void write_sum(fb_json *json, const scan_result *result)
{
    const fb_ckpt_summary *summary = &result->summary;
    int read = result->status == FB_OK;
    fb_json_key_string(json, "schema", "firstbad.scan/1");
    fb_json_key_string(json, "path", result->path);
    fb_json_key_string(json, "kind", result->folder ? "folder" : "file");
    fb_json_key_string(json, "format", *scan_format(result) ? scan_format(result) : NULL);
    fb_json_key_string(json, "status", scan_status_name(result));
    fb_json_key_int(json, "exit", scan_exit_code(result));
    fb_json_key_bool(json, "whole", scan_is_whole(result));
    fb_json_key_bool(json, "stopped_at_first", result->stopped_at_first);
    fb_json_key_uint(json, "tensors", summary->tensors);
    fb_json_key_uint(json, "elements", summary->elements);
    fb_json_key_uint(json, "checked", summary->checked);
    fb_json_key_uint(json, "bytes", summary->bytes);
    fb_json_key_uint(json, "bad", summary->bad);
    fb_json_key_uint(json, "bad_tensors", summary->bad_tensors);
    fb_json_key_uint(json, "legal_tensors", summary->legal_tensors);
    fb_json_key(json, "step");
    if (read && summary->step >= 0) fb_json_int(json, summary->step);
    else fb_json_null(json);
    fb_json_key_double(json, "seconds", result->seconds);
    fb_json_key(json, "bytes_per_second");
    fb_json_number_or_null(json, (double)summary->bytes / (result->seconds > 0 ? result->seconds : 1), read && result->seconds > 0);
    fb_json_key_string(json, "digest_of", result->digest);
    write_digest(json, result, summary->digest, result->sha256, read);
    write_error(json, scan_reason(result), read ? summary->reason.code : result->err.code,
                read ? summary->reason.offset_bytes : result->err.offset_bytes);
}

int scan_show_json(const scan_result *result)
{
    fb_json json;
    fb_error err;
    int code;
    fb_json_init(&json, 0);
    fb_json_object_begin(&json);
    write_sum(&json, result);
    write_findings(&json, "findings", &result->findings);
    write_findings(&json, "legal", &result->legal);
    write_findings(&json, "unreferenced", &result->unreferenced);
    write_remarks(&json, "unscanned", &result->unscanned, "tensor", "why");
    write_remarks(&json, "security", &result->security, "import", "text");
    write_remarks(&json, "notes", &result->notes, NULL, "text");
    write_left_out(&json, result);
    write_files(&json, result);
    write_rows(&json, result);
    fb_json_object_end(&json);
    if (fb_json_finish(&json, &err) != FB_OK) code = cli_fail(&err);
    else if ((code = cli_print(fb_json_text(&json))) == 0) code = cli_print("\n");
    fb_json_release(&json);
    return code;
}
