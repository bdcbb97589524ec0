/*
 * .npy: "\x93NUMPY", major and minor version, length of the header (u16 in version 1, u32 in 2 and 3), the header (a dictionary of
 * Python, see npy_header.c), and then the elements, to the end: shape and format must fill the rest exactly.
 *
 * A structured array is an array of records. Each of its fields that can be non-finite becomes a tensor of its own: the records are
 * its blocks, and the numbers of the field the one lane in them, so that an index is one of the field.
 */
#include "ckpt/npy.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/npy_header.h"

enum { MAGIC_BYTES = 6, TEXT_MAX = 65536 };
static const uint8_t magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct fb_npy {
    fb_npy_header header;
    fb_npy_source source;
    uint64_t data_at, items; /* product of the shape */
    int swapped;
    fb_ckpt_tensor *tensors;
    uint64_t tensor_count;
};

static fb_status no_memory(const fb_npy *npy, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, FB_NPY_SAY "no memory", FB_NPY_WHO(&npy->source));
}

/* ---- from header to tensors ------------------------------------------------------------------------------------------------- */

/* The shape of the array, then more dimensions inside each item. In memory order when records lie in Fortran order. */
static fb_status make_shape(fb_npy *npy, fb_ckpt_tensor *t, const uint64_t *inner, int32_t inner_count, fb_error *err)
{
    fb_npy_header *h = &npy->header;
    uint64_t *shape;
    if (h->ndim + inner_count > FB_CKPT_DIMS_MAX) {
        return fb_fail(err, FB_E_LIMIT, FB_NPY_SAY "more than %d dimensions", FB_NPY_WHO(&npy->source), FB_CKPT_DIMS_MAX);
    }
    t->ndim = h->ndim + inner_count;
    shape = fb_pool_take(&h->pool, ((size_t)t->ndim + 1) * sizeof *shape);
    if (!shape) return no_memory(npy, err);
    for (int32_t i = 0; i < h->ndim; i++) shape[i] = h->shape[h->fortran && h->structured ? h->ndim - 1 - i : i];
    for (int32_t i = 0; i < inner_count; i++) shape[h->ndim + i] = inner[i];
    t->shape = shape;
    return FB_OK;
}

/* Fortran order: the first dimension is the fastest. */
static fb_status make_strides(fb_npy *npy, fb_ckpt_tensor *t, fb_error *err)
{
    int64_t *strides, stride = 1;
    strides = fb_pool_take(&npy->header.pool, (size_t)t->ndim * sizeof *strides);
    if (!strides) return no_memory(npy, err);
    for (int32_t i = 0; i < t->ndim; i++) {
        strides[i] = stride;
        if (npy->items) stride *= (int64_t)t->shape[i]; /* at most the number of items, which the file holds */
    }
    t->strides = strides;
    return FB_OK;
}

static const char *full_name(fb_npy *npy, const char *field)
{
    const char *name = *npy->source.name ? npy->source.name : "array";
    size_t outer = strlen(name), dot = *field != '\0', inner = strlen(field);
    char *text = fb_pool_take(&npy->header.pool, outer + dot + inner + 1);
    if (!text) return NULL;
    (void)snprintf(text, outer + dot + inner + 1, "%s%s%s", name, dot ? "." : "", field);
    return text;
}

static fb_status make_plain(fb_npy *npy, fb_ckpt_tensor *t, fb_error *err)
{
    const fb_npy_format *f = &npy->header.fields[0].format;
    int text = f->parts != 1;
    fb_status status = make_shape(npy, t, &f->parts, text, err);
    if (status != FB_OK) return status;
    t->dtype_name = f->name;
    t->dtype = f->dtype;
    t->unscanned = f->unscanned;
    t->elements = npy->items * f->parts; /* at most the bytes of the file */
    if (npy->header.fortran && t->ndim > 1 && !text) return make_strides(npy, t, err);
    return FB_OK;
}

static fb_status make_field(fb_npy *npy, const fb_npy_field *field, fb_ckpt_tensor *t, fb_error *err)
{
    fb_ckpt_lane *lane;
    fb_status status = make_shape(npy, t, field->dims, field->ndim, err);
    if (status != FB_OK) return status;
    t->dtype_name = field->format.name;
    t->elements = npy->items * field->count;
    t->period_bytes = npy->header.record_bytes;
    t->block_elements = (uint32_t)field->count;
    t->unscanned = field->format.unscanned;
    if (!t->unscanned && npy->swapped != field->format.swapped && field->format.bytes > 1)
        t->unscanned = "its byte order is not that of the fields before it";
    if (t->unscanned) return FB_OK;
    if (!(lane = fb_pool_take(&npy->header.pool, sizeof *lane))) return no_memory(npy, err);
    lane->name = "";
    lane->dtype = field->format.dtype;
    lane->offset_bytes = (uint32_t)field->offset_bytes;
    lane->count = (uint32_t)field->count;
    lane->elements = 1;
    t->lanes = lane;
    t->lane_count = 1;
    return FB_OK;
}

/* Records that hold nothing but integers and texts. */
static fb_status make_bytes(fb_npy *npy, fb_ckpt_tensor *t, fb_error *err)
{
    t->dtype_name = "structured";
    t->dtype = FB_U8;
    t->elements = npy->items * npy->header.record_bytes;
    return make_shape(npy, t, &npy->header.record_bytes, 1, err);
}

static fb_status make_tensors(fb_npy *npy, fb_error *err)
{
    const fb_npy_header *h = &npy->header;
    fb_status status = FB_OK;
    if (h->structured && h->record_bytes > UINT32_MAX) {
        return fb_fail(err, FB_E_LIMIT, FB_NPY_SAY "a record of more than 2^32 bytes", FB_NPY_WHO(&npy->source));
    }
    for (uint32_t i = h->field_count; i-- > 0;) { /* ends with the first format for which the order of bytes matters */
        if (h->fields[i].format.dtype && h->fields[i].format.bytes > 1) npy->swapped = h->fields[i].format.swapped;
    }
    npy->tensor_count = h->field_count ? h->field_count : 1;
    npy->tensors = fb_calloc((size_t)npy->tensor_count, sizeof *npy->tensors);
    if (!npy->tensors) return no_memory(npy, err);
    for (uint64_t i = 0; i < npy->tensor_count && status == FB_OK; i++) {
        fb_ckpt_tensor *t = &npy->tensors[i];
        t->name = full_name(npy, h->field_count ? h->fields[i].name : "");
        if (!t->name) return no_memory(npy, err);
        if (!h->structured) status = make_plain(npy, t, err);
        else status = h->field_count ? make_field(npy, &h->fields[i], t, err) : make_bytes(npy, t, err);
    }
    return status;
}

/* ---- one array -------------------------------------------------------------------------------------------------------------- */

static fb_status check_size(fb_npy *npy, uint64_t bytes, fb_error *err)
{
    const fb_npy_header *h = &npy->header;
    uint64_t need, left = bytes - npy->data_at;
    int empty = 0;
    npy->items = 1;
    for (int32_t i = 0; i < h->ndim; i++) {
        if (h->shape[i] == 0) empty = 1;
        else if (__builtin_mul_overflow(npy->items, h->shape[i], &npy->items) || npy->items > INT64_MAX)
            return fb_fail_at(err, npy->source.base, FB_NPY_SAY "the shape has more than 2^63 elements", FB_NPY_WHO(&npy->source));
    }
    if (__builtin_mul_overflow(npy->items, h->record_bytes, &need))
        return fb_fail_at(err, npy->source.base, FB_NPY_SAY "the shape takes more than 2^64 bytes", FB_NPY_WHO(&npy->source));
    if (empty) npy->items = need = 0;
    if (need != left) {
        return fb_fail_at(err, npy->source.base + (need < left ? npy->data_at + need : bytes),
                          FB_NPY_SAY "its shape and format take %llu bytes, %llu follow the header", FB_NPY_WHO(&npy->source),
                          (unsigned long long)need, (unsigned long long)left);
    }
    return FB_OK;
}

static fb_status read_version(const fb_npy *npy, const uint8_t *head, size_t head_bytes, size_t *text_at, uint64_t *text_bytes,
                              fb_error *err)
{
    size_t length_bytes;
    if (head_bytes < MAGIC_BYTES + 2 || memcmp(head, magic, MAGIC_BYTES) != 0)
        return fb_fail_at(err, npy->source.base, FB_NPY_SAY "it does not begin with \\x93NUMPY and a version",
                          FB_NPY_WHO(&npy->source));
    if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
        return fb_fail(err, FB_E_UNSUPPORTED, FB_NPY_SAY "version %u.%u, and this build reads 1.0, 2.0 and 3.0",
                       FB_NPY_WHO(&npy->source), (unsigned)head[6], (unsigned)head[7]);
    }
    length_bytes = head[6] == 1 ? 2 : 4;
    *text_at = MAGIC_BYTES + 2 + length_bytes;
    if (head_bytes < *text_at)
        return fb_fail_at(err, npy->source.base + head_bytes, FB_NPY_SAY "it ends inside the length of its header",
                          FB_NPY_WHO(&npy->source));
    *text_bytes = 0;
    for (size_t i = 0; i < length_bytes; i++) *text_bytes |= (uint64_t)head[MAGIC_BYTES + 2 + i] << (8 * i);
    return FB_OK;
}

static fb_status parse(fb_npy *npy, const uint8_t *head, size_t head_bytes, uint64_t bytes, fb_error *err)
{
    size_t text_at = 0;
    uint64_t text_bytes = 0;
    fb_npy_source text = npy->source;
    fb_status status = read_version(npy, head, head_bytes, &text_at, &text_bytes, err);
    if (status != FB_OK) return status;
    if (text_bytes > bytes - text_at) {
        return fb_fail_at(err, npy->source.base + text_at, FB_NPY_SAY "a header of %llu bytes is announced, %llu bytes follow",
                          FB_NPY_WHO(&npy->source), (unsigned long long)text_bytes, (unsigned long long)(bytes - text_at));
    }
    if (text_bytes > TEXT_MAX) {
        return fb_fail(err, FB_E_LIMIT, FB_NPY_SAY "a header of %llu bytes, at most %d are taken", FB_NPY_WHO(&npy->source),
                       (unsigned long long)text_bytes, TEXT_MAX);
    }
    if (text_bytes > head_bytes - text_at)
        return fb_fail(err, FB_E_USAGE, FB_NPY_SAY "its header was not handed over whole", FB_NPY_WHO(&npy->source));
    npy->data_at = text_at + text_bytes;
    text.base += text_at;
    status = fb_npy_header_read(&npy->header, head + text_at, (size_t)text_bytes, head[6] < 3, &text, err);
    if (status == FB_OK) status = check_size(npy, bytes, err);
    return status == FB_OK ? make_tensors(npy, err) : status;
}

fb_status fb_npy_parse(fb_npy **out, const uint8_t *head, size_t head_bytes, uint64_t bytes, uint64_t base, const char *name,
                       const char *path, fb_error *err)
{
    fb_npy *npy = fb_calloc(1, sizeof *npy);
    fb_status status;
    *out = NULL;
    if (!npy) return fb_fail(err, FB_E_NOMEM, "read npy %s: no memory", path);
    npy->source.path = path;
    npy->source.name = name;
    npy->source.base = base;
    if (head_bytes > bytes) head_bytes = (size_t)bytes;
    status = parse(npy, head, head_bytes, bytes, err);
    npy->source.path = npy->source.name = ""; /* borrowed for this call only */
    if (status != FB_OK) {
        fb_npy_free(npy);
        return status;
    }
    *out = npy;
    return FB_OK;
}

uint64_t fb_npy_data_at(const fb_npy *npy)
{
    return npy->data_at;
}

int fb_npy_swapped(const fb_npy *npy)
{
    return npy->swapped;
}

const fb_ckpt_tensor *fb_npy_tensors(const fb_npy *npy, uint64_t *count)
{
    *count = npy->tensor_count;
    return npy->tensors;
}

void fb_npy_free(fb_npy *npy)
{
    if (!npy) return;
    fb_npy_header_release(&npy->header);
    fb_free(npy->tensors);
    fb_free(npy);
}

/* ---- the reader of a file --------------------------------------------------------------------------------------------------- */

typedef struct state {
    fb_npy *npy;
    uint64_t offset_bytes, bytes;
    int done;
} state;

static int npy_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    (void)file_bytes;
    return head_bytes >= MAGIC_BYTES && memcmp(head, magic, MAGIC_BYTES) == 0;
}

static void npy_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    fb_npy_free(s->npy);
    fb_free(s);
}

static fb_status load(state *s, const fb_ckpt_range *range, fb_error *err)
{
    size_t bytes = range->bytes < FB_NPY_HEADER_MAX ? (size_t)range->bytes : FB_NPY_HEADER_MAX;
    uint8_t *head = fb_calloc(bytes + 1, 1);
    fb_status status;
    if (!head) return fb_fail(err, FB_E_NOMEM, "read npy %s: no memory", range->file->path);
    status = fb_ckpt_file_read(range->file, range->offset_bytes, head, bytes, err);
    if (status == FB_OK) status = fb_npy_parse(&s->npy, head, bytes, range->bytes, range->offset_bytes, "", range->file->path, err);
    fb_free(head);
    return status;
}

static fb_status npy_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    (void)options;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read npy %s: no memory", range->file->path);
    status = load(s, range, err);
    if (!s->npy) {
        npy_close(s);
        return status;
    }
    s->offset_bytes = range->offset_bytes + fb_npy_data_at(s->npy);
    s->bytes = range->bytes - fb_npy_data_at(s->npy);
    *out = s;
    return FB_OK;
}

static fb_status npy_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    (void)err;
    if (s->done) return FB_E_NOTFOUND;
    s->done = 1;
    memset(extent, 0, sizeof *extent);
    extent->name = "array";
    extent->encoding = FB_CKPT_STORED;
    extent->swapped = fb_npy_swapped(s->npy);
    extent->offset_bytes = s->offset_bytes;
    extent->bytes = extent->stored_bytes = s->bytes;
    extent->tensors = fb_npy_tensors(s->npy, &extent->tensor_count);
    return FB_OK;
}

const fb_ckpt_reader fb_ckpt_npy = {
    .format = "npy",
    .detect = npy_detect,
    .open = npy_open,
    .next = npy_next,
    .close = npy_close,
};
