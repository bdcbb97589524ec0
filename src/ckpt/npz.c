/*
 * npz: a zip archive of .npy files, stored (np.savez) or deflated (np.savez_compressed). The name of an array is that of its member
 * without ".npy".
 *
 * All headers are read and proven when the archive is opened. A stored array becomes an extent of its data alone; a deflated one
 * an extent of the whole member, whose first bytes, the header, belong to no tensor. Arrays of Python objects are listed as not
 * looked at; members that are no arrays are told of.
 */
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "ckpt/inflate.h"
#include "ckpt/npy.h"
#include "ckpt/order.h"
#include "ckpt/zip.h"

enum { PREAMBLE = 12, SUFFIX = 4 /* ".npy" */ };
static const char MAGIC[] = "\x93NUMPY";

typedef struct array {
    const fb_zip_member *member;
    char *name;
    fb_npy *npy;
    fb_ckpt_tensor *tensors; /* only of a deflated one: its tensors, moved behind the header */
    uint32_t head_crc;       /* of the bytes before the data */
} array;

typedef struct remark {
    const fb_zip_member *member;
    char *text; /* NULL: the note about members that are no arrays */
} remark;

typedef struct state {
    const char *path;
    fb_ckpt_file *file;
    fb_zip *zip;
    array *arrays;
    uint32_t *order; /* by place in the file */
    uint64_t count, next;
    remark *remarks;
    uint64_t remark_count;
} state;

static int ends_with_npy(const char *name)
{
    size_t bytes = strlen(name);
    return bytes > SUFFIX && memcmp(name + bytes - SUFFIX, ".npy", SUFFIX) == 0;
}

/* The first member is an array, or the archive is empty, which only np.savez writes. Other archives: torch_zip.c. */
static int npz_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    size_t name_bytes;
    if (head_bytes >= 4 && memcmp(head, "PK\5\6", 4) == 0) return file_bytes == 22;
    if (head_bytes < 30 || memcmp(head, "PK\3\4", 4) != 0) return 0;
    name_bytes = (size_t)(head[26] | head[27] << 8);
    return name_bytes > SUFFIX && name_bytes <= head_bytes - 30 && memcmp(head + 30 + name_bytes - SUFFIX, ".npy", SUFFIX) == 0;
}

/* ---- the first bytes of an array --------------------------------------------------------------------------------------------- */

/* How many bytes magic, version and header take, as far as the first PREAMBLE bytes tell; never more than there can be. */
static size_t head_length(const uint8_t *p, uint64_t bytes)
{
    uint64_t length = PREAMBLE;
    if (bytes >= PREAMBLE && memcmp(p, MAGIC, sizeof MAGIC - 1) == 0) {
        if (p[6] == 1) length = 10u + (uint64_t)(p[8] | p[9] << 8);
        else length = PREAMBLE + ((uint64_t)p[8] | (uint64_t)p[9] << 8 | (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24);
    }
    if (length > FB_NPY_HEADER_MAX) length = FB_NPY_HEADER_MAX;
    return (size_t)(length < bytes ? length : bytes);
}

static fb_status inflate_head(fb_inflate *stream, const fb_zip_member *m, uint8_t *head, size_t *head_bytes, fb_error *err)
{
    size_t got = 0, wanted = m->bytes < PREAMBLE ? (size_t)m->bytes : PREAMBLE;
    fb_status status = fb_inflate_read(stream, head, wanted, &got, err);
    if (status != FB_OK) return status;
    *head_bytes = head_length(head, m->bytes);
    if (*head_bytes <= got) return FB_OK;
    return fb_inflate_read(stream, head + got, *head_bytes - got, &got, err);
}

static fb_status read_head(state *s, const fb_zip_member *m, uint8_t *head, size_t *head_bytes, fb_error *err)
{
    size_t first = m->bytes < PREAMBLE ? (size_t)m->bytes : PREAMBLE;
    fb_inflate *stream;
    fb_status status;
    if (m->encoding == FB_CKPT_STORED) {
        status = fb_ckpt_file_read(s->file, m->data_at, head, first, err);
        *head_bytes = head_length(head, m->bytes);
        if (status != FB_OK || *head_bytes <= first) return status;
        return fb_ckpt_file_read(s->file, m->data_at + first, head + first, *head_bytes - first, err);
    }
    status = fb_inflate_open(&stream, s->file, m->data_at, m->stored_bytes, m->bytes, err);
    if (status == FB_OK) status = inflate_head(stream, m, head, head_bytes, err);
    fb_inflate_close(stream);
    return status;
}

/* ---- members ----------------------------------------------------------------------------------------------------------------- */

/* Takes text over. */
static void add_remark(state *s, const fb_zip_member *m, char *text)
{
    s->remarks[s->remark_count].member = m;
    s->remarks[s->remark_count].text = text;
    s->remark_count++;
}

/* The data of a deflated array begins behind its header. */
static fb_status move_tensors(state *s, array *a, fb_error *err)
{
    uint64_t count;
    const fb_ckpt_tensor *tensors = fb_npy_tensors(a->npy, &count);
    a->tensors = fb_calloc((size_t)count + 1, sizeof *a->tensors);
    if (!a->tensors) return fb_fail(err, FB_E_NOMEM, "read npz %s: no memory for %llu tensors", s->path, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        a->tensors[i] = tensors[i];
        a->tensors[i].offset_bytes += fb_npy_data_at(a->npy);
    }
    return FB_OK;
}

/* An array that the library understands and this build does not is told of; the others go on. */
static fb_status set_aside(state *s, const fb_zip_member *m, const fb_error *why, fb_error *err)
{
    char *text = fb_strdup(why->message);
    if (!text) return fb_fail(err, FB_E_NOMEM, "read npz %s: no memory", s->path);
    add_remark(s, m, text);
    return FB_OK;
}

static fb_status take_array(state *s, const fb_zip_member *m, uint8_t *head, fb_error *err)
{
    array *a = &s->arrays[s->count];
    size_t head_bytes = 0;
    fb_error why;
    fb_status status;
    a->member = m;
    a->name = fb_strdup(m->name);
    s->count++;
    if (!a->name) return fb_fail(err, FB_E_NOMEM, "read npz %s: no memory", s->path);
    a->name[strlen(a->name) - SUFFIX] = '\0';
    if ((status = read_head(s, m, head, &head_bytes, err)) != FB_OK) return status;
    fb_error_clear(&why);
    status = fb_npy_parse(&a->npy, head, head_bytes, m->bytes, m->data_at, a->name, s->path, &why);
    if (status == FB_E_UNSUPPORTED) {
        fb_free(a->name);
        a->name = NULL;
        s->count--;
        return set_aside(s, m, &why, err);
    }
    if (status != FB_OK) {
        if (err) *err = why;
        return status;
    }
    a->head_crc = (uint32_t)crc32_z(0, head, (size_t)fb_npy_data_at(a->npy));
    return m->encoding == FB_CKPT_DEFLATED ? move_tensors(s, a, err) : FB_OK;
}

static int by_place(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    uint64_t x = s->arrays[a].member->data_at, y = s->arrays[b].member->data_at;
    return x < y ? -1 : x > y;
}

static int is_object(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash && strcmp(slash + 1, "data.pkl") == 0;
}

static fb_status take_members(state *s, uint8_t *head, fb_error *err)
{
    for (uint64_t i = 0; i < fb_zip_count(s->zip); i++) {
        const fb_zip_member *m = fb_zip_member_at(s->zip, i);
        fb_status status;
        if (is_object(m->name)) {
            return fb_fail_at(err, m->header_bytes_at,
                              "read npz %s: it holds arrays of NumPy and an object of torch, and what is in it depends "
                              "on who loads it",
                              s->path);
        }
        if (!ends_with_npy(m->name)) add_remark(s, m, NULL);
        else if ((status = take_array(s, m, head, err)) != FB_OK) return status;
    }
    for (uint64_t i = 0; i < s->count; i++) s->order[i] = (uint32_t)i;
    fb_ckpt_sort(s->order, s->count, by_place, s);
    return FB_OK;
}

/* ---- the reader -------------------------------------------------------------------------------------------------------------- */

static void npz_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    for (uint64_t i = 0; i < s->count; i++) {
        fb_free(s->arrays[i].name);
        fb_npy_free(s->arrays[i].npy);
        fb_free(s->arrays[i].tensors);
    }
    for (uint64_t i = 0; i < s->remark_count; i++) fb_free(s->remarks[i].text);
    fb_free(s->arrays);
    fb_free(s->order);
    fb_free(s->remarks);
    fb_zip_close(s->zip);
    fb_free(s);
}

static fb_status open_archive(state *s, const fb_ckpt_range *range, fb_error *err)
{
    uint8_t *head = NULL;
    uint64_t members;
    fb_status status = fb_zip_open(&s->zip, range, err);
    if (status != FB_OK) return status;
    members = fb_zip_count(s->zip);
    s->arrays = fb_calloc((size_t)members + 1, sizeof *s->arrays);
    s->order = fb_calloc((size_t)members + 1, sizeof *s->order);
    s->remarks = fb_calloc((size_t)members + 1, sizeof *s->remarks);
    head = fb_calloc(FB_NPY_HEADER_MAX, 1);
    if (s->arrays && s->order && s->remarks && head) status = take_members(s, head, err);
    else status = fb_fail(err, FB_E_NOMEM, "read npz %s: no memory for %llu members", s->path, (unsigned long long)members);
    fb_free(head);
    return status;
}

static fb_status npz_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    (void)options;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read npz %s: no memory", range->file->path);
    s->path = range->file->path;
    s->file = range->file;
    status = open_archive(s, range, err);
    if (status != FB_OK) {
        npz_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

/*
 * The checksum of the data, from that of the whole member and that of the header: crc(head + data) is crc(head) moved on by the
 * length of data, xor crc(data).
 */
static uint32_t data_crc(const array *a, uint64_t data_bytes)
{
    return a->member->crc32 ^ (uint32_t)crc32_combine64(a->head_crc, 0, (z_off64_t)data_bytes);
}

static fb_status npz_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    const array *a;
    const fb_zip_member *m;
    uint64_t head_bytes;
    (void)err;
    if (s->next == s->count) return FB_E_NOTFOUND;
    a = &s->arrays[s->order[s->next++]];
    m = a->member;
    head_bytes = a->tensors ? 0 : fb_npy_data_at(a->npy);
    memset(extent, 0, sizeof *extent);
    extent->name = m->name;
    extent->encoding = m->encoding;
    extent->swapped = fb_npy_swapped(a->npy);
    extent->offset_bytes = m->data_at + head_bytes;
    extent->stored_bytes = m->stored_bytes - head_bytes;
    extent->bytes = m->bytes - head_bytes;
    extent->has_crc = 1;
    extent->crc32 = a->tensors ? m->crc32 : data_crc(a, extent->bytes);
    extent->tensors = fb_npy_tensors(a->npy, &extent->tensor_count);
    if (a->tensors) extent->tensors = a->tensors;
    return FB_OK;
}

static int npz_remark(void *state_, uint64_t i, fb_ckpt_remark *out)
{
    const state *s = state_;
    if (i >= s->remark_count) return 0;
    out->kind = s->remarks[i].text ? FB_CKPT_REMARK_UNSCANNED : FB_CKPT_REMARK_NOTE;
    out->name = s->remarks[i].member->name;
    out->text = s->remarks[i].text ? s->remarks[i].text : "is no array, and was not looked at";
    out->value = 0.0;
    return 1;
}

const fb_ckpt_reader fb_ckpt_npz = {
    .format = "npz",
    .detect = npz_detect,
    .open = npz_open,
    .next = npz_next,
    .remark = npz_remark,
    .close = npz_close,
};
