/*
 * l3/witness.safetensors and l3/stack.json. Values are kept as doubles, which hold every number of the narrower formats exactly,
 * and are written back in the format that the run had them in.
 */
#include "locate/evidence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/safetensors_write.h"
#include "evidence/site.h"
#include "locate/cause_inside.h"
#include "scan/scan_format.h"
#include "scan/scan_fpenv.h"

enum { TEXT_MAX = 320 };

/* One tensor of the file. */
typedef struct part {
    char name[32];
    const fb_witness_tensor *of; /* whose shape and names it has */
    const double *values;
    int32_t format; /* that it is written in */
    uint64_t start, count;
    void *bytes;
} part;

typedef struct parts {
    part *items;
    uint32_t count;
    fb_pair *pairs;
    size_t pair_count, pair_room;
} parts;

/* ---- numbers into bytes ------------------------------------------------------------------------------------------------------ */

/* Formats that are written as they are; others (fp8) go as FP64, which holds them exactly. */
static int32_t written_as(int32_t format)
{
    if (format == FB_F32 || format == FB_F16 || format == FB_BF16 || (format >= FB_I8 && format <= FB_U64)) return format;
    return FB_F64;
}

/* Bits of a number that the format holds; of one that it does not hold, the nearest, since nothing here may fail on a number. */
static uint64_t encode(const fb_format *format, double x)
{
    uint64_t bits, sign, magnitude;
    int exponent, smallest;
    double scaled;
    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 63 ? format->abs_mask + 1 : 0;
    if (!fb_json_is_number(x)) {
        /* A NaN's payload is not kept in the witness; first_bad.json has the bits of the finding. */
        return fb_number_is_inf(x) ? sign | format->bad_from : format->bad_from | (UINT64_C(1) << (format->mantissa_bits - 1));
    }
    if (x == 0.0) return sign;
    if (!fb_number_fits(format->dtype, x)) return sign | format->bad_from;
    (void)frexp(x, &exponent);
    (void)frexp(fb_format_value(format, format->min_normal), &smallest);
    if (exponent < smallest) exponent = smallest;
    /* The code of a number is its mantissa counted in steps, plus the steps of all binades below it. */
    scaled = rint(ldexp(fabs(x), format->mantissa_bits + 1 - exponent));
    magnitude = (uint64_t)scaled + ((uint64_t)(exponent - smallest) << format->mantissa_bits);
    return sign | magnitude;
}

static void store_integer(uint8_t *out, size_t bytes, int is_signed, double x)
{
    int64_t low = is_signed && x < 0.0 ? (x > -9.2e18 ? (int64_t)x : INT64_MIN) : 0;
    uint64_t bits = x >= 0.0 ? (x < 1.8e19 ? (uint64_t)x : UINT64_MAX) : (uint64_t)low;
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(bits >> (8 * i));
}

static void store(uint8_t *out, int32_t format, const double *values, uint64_t count)
{
    size_t bytes = (size_t)fb_dtype_bytes(format, 1);
    const fb_format *row = fb_format_of(format);
    for (uint64_t i = 0; i < count; i++, out += bytes) {
        uint64_t bits;
        if (format >= FB_I8 && format <= FB_U64) {
            store_integer(out, bytes, format == FB_I8 || format == FB_I16 || format == FB_I32 || format == FB_I64, values[i]);
            continue;
        }
        if (format == FB_F64) memcpy(&bits, &values[i], sizeof bits);
        else bits = encode(row, values[i]);
        for (size_t k = 0; k < bytes; k++) out[k] = (uint8_t)(bits >> (8 * k));
    }
}

/* ---- which tensors, and how much of them ------------------------------------------------------------------------------------- */

static void add_part(parts *p, const char *group, uint32_t number, const fb_witness_tensor *of, const double *values,
                     int32_t format)
{
    part *to = &p->items[p->count];
    if (!values || of->count == 0) return;
    snprintf(to->name, sizeof to->name, "%s.%u", group, number);
    to->of = of;
    to->values = values;
    to->format = format;
    to->count = of->count;
    p->count++;
}

static fb_status list(parts *p, const fb_witness *w, fb_error *err)
{
    size_t room = (size_t)w->input_count + 3 * (size_t)w->output_count;
    p->items = fb_calloc(room ? room : 1, sizeof *p->items);
    if (!p->items) return fb_fail(err, FB_E_NOMEM, "write the evidence: no memory for %zu tensors", room);
    for (uint32_t i = 0; i < w->input_count; i++)
        add_part(p, "input", i, &w->inputs[i], w->inputs[i].values, written_as(w->inputs[i].format));
    for (uint32_t i = 0; i < w->output_count; i++) {
        const fb_witness_tensor *out = &w->outputs[i];
        add_part(p, "output", i, out, out->values, written_as(out->format));
        if (w->exact) add_part(p, "exact", i, out, w->exact[i], FB_F64);
        if (w->module_exact) add_part(p, "module_exact", i, out, w->module_exact[i], FB_F64);
    }
    return FB_OK;
}

/*
 * Give each tensor the same share of the bytes; what small ones leave goes to the others. The element that matters lies in the
 * middle of a slice: the bad one of outputs, the one at the same part of the way in inputs, which is the same row where rows are
 * samples.
 */
static uint32_t cut(parts *p, const fb_witness *w, uint64_t bytes_max)
{
    uint64_t left = bytes_max, share = 0, whole = w->bad_output < w->output_count ? w->outputs[w->bad_output].count : 0;
    uint32_t open = p->count, sliced = 0, settled;
    do {
        uint64_t used = 0;
        settled = 0;
        share = open ? left / open : 0;
        for (uint32_t i = 0; i < p->count; i++) {
            uint64_t bytes = fb_dtype_bytes(p->items[i].format, p->items[i].of->count);
            if (p->items[i].start == UINT64_MAX || bytes > share || bytes > left - used) continue;
            p->items[i].start = UINT64_MAX; /* settled: whole */
            used += bytes;
            settled++;
        }
        left -= used;
        open -= settled;
    } while (settled && open);
    for (uint32_t i = 0; i < p->count; i++) {
        part *to = &p->items[i];
        uint64_t at, room = share / fb_dtype_bytes(to->format, 1);
        if (to->start == UINT64_MAX) {
            to->start = 0;
            continue;
        }
        sliced++;
        to->count = room;
        at = whole == to->of->count ? w->bad_index
                                    : (uint64_t)((double)w->bad_index / (double)(whole ? whole : 1) * (double)to->of->count);
        to->start = at > room / 2 ? at - room / 2 : 0;
        if (to->start > to->of->count - room) to->start = to->of->count - room;
    }
    return sliced;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------------------- */

static fb_status tell(parts *p, const char *group, const char *key, const char *value, fb_error *err)
{
    char name[TEXT_MAX];
    fb_pair *pair;
    if (p->pair_count == p->pair_room) {
        size_t room = p->pair_room ? 2 * p->pair_room : 32;
        fb_pair *more = fb_realloc(p->pairs, room * sizeof *more);
        if (!more) return fb_fail(err, FB_E_NOMEM, "write the evidence: no memory for its names");
        p->pairs = more;
        p->pair_room = room;
    }
    pair = &p->pairs[p->pair_count];
    name[0] = '\0';
    fb_say(name, sizeof name, "%s%s%s", group, group[0] ? "." : "", key);
    pair->key = fb_strdup(name);
    pair->value = fb_strdup(value);
    p->pair_count++;
    if (!pair->key || !pair->value) return fb_fail(err, FB_E_NOMEM, "write the evidence: no memory for its names");
    return FB_OK;
}

static fb_status tell_number(parts *p, const char *group, const char *key, double value, fb_error *err)
{
    char text[FB_JSON_DOUBLE_BYTES + 8];
    if (fb_json_is_number(value)) (void)fb_json_format_double(text, value);
    else snprintf(text, sizeof text, "%s", fb_number_is_neg_inf(value) ? "-inf" : fb_number_is_inf(value) ? "inf" : "nan");
    return tell(p, group, key, text, err);
}

static fb_status tell_part(parts *p, const part *of, fb_error *err)
{
    char text[TEXT_MAX] = "";
    fb_status status;
    for (int32_t i = 0; i < of->of->ndim; i++) fb_say(text, sizeof text, "%s%lld", i ? "," : "", (long long)of->of->shape[i]);
    if (of->of->ndim == 0) fb_say(text, sizeof text, "%llu", (unsigned long long)of->of->count);
    if ((status = tell(p, of->name, "module", of->of->module, err)) != FB_OK) return status;
    if ((status = tell(p, of->name, "name", of->of->name, err)) != FB_OK) return status;
    if ((status = tell(p, of->name, "shape", text, err)) != FB_OK) return status;
    return tell_number(p, of->name, "start", (double)of->start, err);
}

static fb_status tell_all(parts *p, const fb_witness *w, fb_error *err)
{
    fb_status status;
    if ((status = tell(p, "", "operator", w->place.op, err)) != FB_OK) return status;
    if ((status = tell(p, "", "module", w->place.module, err)) != FB_OK) return status;
    if ((status = tell(p, "", "source", w->place.source, err)) != FB_OK) return status;
    if ((status = tell(p, "", "boundary", fb_boundary_name(w->place.boundary), err)) != FB_OK) return status;
    if ((status = tell_number(p, "", "micro_step", w->place.micro_step, err)) != FB_OK) return status;
    if ((status = tell_number(p, "", "bad_output", w->bad_output, err)) != FB_OK) return status;
    if ((status = tell_number(p, "", "bad_index", (double)w->bad_index, err)) != FB_OK) return status;
    if ((status = tell(p, "", "bad_kind", fb_kind_name(w->bad_kind), err)) != FB_OK) return status;
    for (uint32_t i = 0; i < w->attribute_count && status == FB_OK; i++) {
        if (w->attributes[i].name) status = tell_number(p, "attribute", w->attributes[i].name, w->attributes[i].value, err);
    }
    for (uint32_t i = 0; i < p->count && status == FB_OK; i++) {
        if (p->items[i].count) status = tell_part(p, &p->items[i], err);
    }
    return status;
}

static void release(parts *p)
{
    for (uint32_t i = 0; p->items && i < p->count; i++) fb_free(p->items[i].bytes);
    for (size_t i = 0; i < p->pair_count; i++) {
        fb_free((void *)p->pairs[i].key);
        fb_free((void *)p->pairs[i].value);
    }
    fb_free(p->items);
    fb_free(p->pairs);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------- */

static void written(fb_evidence *out, const char *name, uint64_t bytes, uint64_t xxh3)
{
    fb_evidence_file *file = &out->files[out->count++];
    snprintf(file->name, sizeof file->name, "l3/%s", name);
    file->bytes = bytes;
    file->xxh3 = xxh3;
}

static fb_status size_of(const fb_os *os, const char *folder, const char *name, uint64_t *bytes, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_status status = fb_os_join(path, sizeof path, folder, name, err);
    int64_t rc;
    if (status != FB_OK) return status;
    rc = os->stat(os->ctx, path, &info);
    if (rc < 0) return fb_fail_os(err, (int)-rc, "look at %s, which was just written", path);
    *bytes = info.size_bytes;
    return FB_OK;
}

static fb_status write_tensors(const fb_os *os, const char *folder, const parts *p, fb_evidence *out, fb_error *err)
{
    fb_st_tensor *tensors = fb_calloc(p->count ? p->count : 1, sizeof *tensors);
    fb_status status = FB_OK;
    uint64_t xxh3 = 0, bytes = 0;
    uint32_t n = 0;
    if (!tensors) return fb_fail(err, FB_E_NOMEM, "write the evidence: no memory for %u tensors", p->count);
    for (uint32_t i = 0; i < p->count && status == FB_OK; i++) {
        part *of = &p->items[i];
        fb_st_tensor *to = &tensors[n];
        if (of->count == 0) continue;
        to->name = of->name;
        to->dtype = of->format;
        to->bytes = fb_dtype_bytes(of->format, of->count);
        if (of->count == of->of->count && fb_has_shape(of->of)) {
            to->ndim = of->of->ndim;
            memcpy(to->shape, of->of->shape, sizeof to->shape);
        } else {
            to->ndim = 1;
            to->shape[0] = (int64_t)of->count;
        }
        of->bytes = fb_calloc((size_t)to->bytes, 1);
        if (of->bytes) store(of->bytes, of->format, of->values + of->start, of->count);
        else
            status = fb_fail(err, FB_E_NOMEM, "write the evidence: no memory for %llu bytes of %s", (unsigned long long)to->bytes,
                             of->name);
        to->data = of->bytes;
        n++;
    }
    if (status == FB_OK) {
        status = fb_safetensors_write(os, folder, "witness.safetensors", tensors, n, p->pairs, p->pair_count, &xxh3, err);
    }
    if (status == FB_OK) status = size_of(os, folder, "witness.safetensors", &bytes, err);
    if (status == FB_OK) written(out, "witness.safetensors", bytes, xxh3);
    fb_free(tensors);
    return status;
}

static void stack_tensors(fb_json *json, const char *key, const fb_witness_tensor *tensors, uint32_t count)
{
    fb_json_key(json, key);
    fb_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) {
        const fb_witness_tensor *t = &tensors[i];
        fb_json_object_begin(json);
        fb_json_key_string(json, "module", t->module);
        fb_json_key_string(json, "name", t->name);
        fb_evidence_key_format(json, "dtype", t->format);
        fb_json_key(json, "shape");
        fb_json_array_begin(json);
        for (int32_t k = 0; k < t->ndim; k++) fb_json_int(json, t->shape[k]);
        fb_json_array_end(json);
        fb_json_key_bool(json, "entry", t->entry != 0);
        fb_json_key_uint(json, "elements", t->count);
        fb_json_key_uint(json, "nan", t->stats.nan);
        fb_json_key_uint(json, "pos_inf", t->stats.pos_inf);
        fb_json_key_uint(json, "neg_inf", t->stats.neg_inf);
        fb_evidence_key_number(json, "abs_min", t->stats.abs_min);
        fb_evidence_key_number(json, "abs_max", t->stats.abs_max);
        fb_json_object_end(json);
    }
    fb_json_array_end(json);
}

static fb_status write_stack(const fb_os *os, const char *folder, const fb_witness *w, fb_evidence *out, fb_error *err)
{
    fb_json json;
    fb_status status;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.stack/1");
    fb_json_key(&json, "operator");
    fb_evidence_link(&json, &w->place);
    fb_json_key(&json, "attributes");
    fb_json_object_begin(&json);
    for (uint32_t i = 0; i < w->attribute_count; i++) {
        if (w->attributes[i].name) fb_evidence_key_number(&json, w->attributes[i].name, w->attributes[i].value);
    }
    fb_json_object_end(&json);
    stack_tensors(&json, "inputs", w->inputs, w->input_count);
    stack_tensors(&json, "outputs", w->outputs, w->output_count);
    fb_json_key(&json, "chain");
    fb_json_array_begin(&json);
    for (uint32_t i = 0; i < w->chain_count; i++) fb_evidence_link(&json, &w->chain[i]);
    fb_json_array_end(&json);
    fb_json_object_end(&json);
    status = fb_json_finish(&json, err);
    if (status == FB_OK) status = fb_os_replace(os, folder, "stack.json", fb_json_text(&json), json.used, err);
    if (status == FB_OK) written(out, "stack.json", json.used, fb_hash64(fb_json_text(&json), json.used, 0));
    fb_json_release(&json);
    return status;
}

fb_status fb_evidence_write(const fb_os *os, const char *folder, const fb_witness *witness, uint64_t bytes_max, fb_evidence *out,
                            fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    parts p = {0};
    fb_fpenv saved = fb_fpenv_enter();
    fb_status status;
    memset(out, 0, sizeof *out);
    if ((status = fb_os_join(path, sizeof path, folder, "l3", err)) != FB_OK) goto done;
    if ((status = fb_os_mkdirs(os, path, err)) != FB_OK) goto done;
    if ((status = list(&p, witness, err)) != FB_OK) goto done;
    out->sliced = cut(&p, witness, bytes_max ? bytes_max : (uint64_t)FB_EVIDENCE_BYTES_DEFAULT);
    if ((status = tell_all(&p, witness, err)) != FB_OK) goto done;
    if ((status = write_tensors(os, path, &p, out, err)) != FB_OK) goto done;
    status = write_stack(os, path, witness, out, err);
done:
    release(&p);
    fb_fpenv_leave(saved);
    return status;
}
