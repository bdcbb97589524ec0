/*
 * What a reader hands out, judged in the plainest way: every extent is loaded whole, every element of every tensor is found by its
 * own multiplication and looked at alone. Slow, and shares no line with the scan that it stands in for. The results of a folder of
 * files are compared with its truth.json, [{"file", "outcome", "findings": ["NAME INDEX KIND", ...]}, ...], where NAME may hold a
 * star.
 */
#ifndef FB_TESTS_SUPPORT_CKPT_TRUTH_H
#define FB_TESTS_SUPPORT_CKPT_TRUTH_H

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "ckpt/inflate.h"
#include "ckpt/reader.h"

enum { TRUTH_LINES = 64, TRUTH_LINE = 256 };

typedef struct truth {
    char lines[TRUTH_LINES][TRUTH_LINE]; /* "name index kind" of the first bad element of each tensor */
    size_t count;
    uint64_t tensors, extents, notes, unscanned, security;
    char all_notes[2048], last_unscanned[1200]; /* "name: text", notes one a line, as far as they fit */
    fb_status status;
    fb_error err;
} truth;

/* ---- one number -------------------------------------------------------------------------------------------------------------- */

static inline const char *truth_kind_by_parts(uint64_t bits, int exponent_bits, int mantissa_bits)
{
    uint64_t mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1);
    uint64_t exponent = bits >> mantissa_bits & ((UINT64_C(1) << exponent_bits) - 1);
    if (exponent != (UINT64_C(1) << exponent_bits) - 1) return NULL;
    if (mantissa) return "nan";
    return bits >> (exponent_bits + mantissa_bits) & 1 ? "-inf" : "+inf";
}

static inline uint64_t truth_bits(const uint8_t *p, size_t bytes, int swapped)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++) bits = bits << 8 | p[swapped ? i : bytes - 1 - i];
    return bits;
}

/* NULL: finite, or nothing that could be otherwise. */
static inline const char *truth_kind(const uint8_t *p, int32_t dtype, int swapped)
{
    const char *kind;
    switch (dtype) {
    case FB_F64: return truth_kind_by_parts(truth_bits(p, 8, swapped), 11, 52);
    case FB_F32: return truth_kind_by_parts(truth_bits(p, 4, swapped), 8, 23);
    case FB_F16: return truth_kind_by_parts(truth_bits(p, 2, swapped), 5, 10);
    case FB_BF16: return truth_kind_by_parts(truth_bits(p, 2, swapped), 8, 7);
    case FB_F8_E5M2: return truth_kind_by_parts(*p, 5, 2);
    case FB_F8_E4M3FN: return (*p & 0x7f) == 0x7f ? "nan" : NULL;
    case FB_F8_E4M3FNUZ:
    case FB_F8_E5M2FNUZ: return *p == 0x80 ? "nan" : NULL;
    case FB_F8_E8M0: return *p == 0xff ? "nan" : NULL;
    case FB_C64: kind = truth_kind(p, FB_F32, swapped); return kind ? kind : truth_kind(p + 4, FB_F32, swapped);
    case FB_C128: kind = truth_kind(p, FB_F64, swapped); return kind ? kind : truth_kind(p + 8, FB_F64, swapped);
    default: return NULL;
    }
}

/* ---- one tensor -------------------------------------------------------------------------------------------------------------- */

static inline void truth_line(truth *t, const char *name, uint64_t index, const char *kind)
{
    if (t->count == TRUTH_LINES) return;
    (void)snprintf(t->lines[t->count++], TRUTH_LINE, "%.180s %llu %s", name, (unsigned long long)index, kind);
}

static inline uint64_t truth_place(const fb_ckpt_tensor *tensor, uint64_t flat, uint64_t size)
{
    uint64_t place = 0;
    if (!tensor->strides) return tensor->offset_bytes + flat * size;
    for (int32_t d = tensor->ndim; d-- > 0;) {
        place += flat % tensor->shape[d] * (uint64_t)tensor->strides[d];
        flat /= tensor->shape[d];
    }
    return tensor->offset_bytes + place * size;
}

static inline void truth_tensor(truth *t, const fb_ckpt_extent *extent, const uint8_t *data, const fb_ckpt_tensor *tensor)
{
    uint64_t size = fb_dtype_bytes(tensor->dtype, 1), product = 1;
    t->tensors++;
    if (tensor->unscanned) t->unscanned++;
    for (int32_t d = 0; d < tensor->ndim; d++) product *= tensor->shape[d];
    if (product != tensor->elements) abort();
    if (tensor->lane_count) {
        for (uint64_t block = 0; block * tensor->block_elements < tensor->elements; block++) {
            for (uint32_t n = 0; n < tensor->lane_count; n++) {
                const fb_ckpt_lane *lane = &tensor->lanes[n];
                uint64_t lane_size = fb_dtype_bytes(lane->dtype, 1);
                for (uint32_t i = 0; i < lane->count; i++) {
                    uint64_t at = tensor->offset_bytes + block * tensor->period_bytes + lane->offset_bytes + i * lane_size;
                    const char *kind;
                    if (lane_size == 0 || at > extent->bytes || lane_size > extent->bytes - at) abort();
                    kind = truth_kind(data + at, lane->dtype, extent->swapped);
                    if (kind) {
                        truth_line(t, tensor->name, block * tensor->block_elements + (uint64_t)i * lane->elements, kind);
                        return;
                    }
                }
            }
        }
        return;
    }
    if (tensor->dtype == 0 || tensor->dtype == FB_F4_E2M1) return;
    for (uint64_t i = 0; i < tensor->elements; i++) {
        uint64_t at = truth_place(tensor, i, size);
        const char *kind;
        if (size == 0 || at > extent->bytes || size > extent->bytes - at) abort();
        kind = truth_kind(data + at, tensor->dtype, extent->swapped);
        if (!kind || (tensor->legal_inf && strcmp(kind, "nan") != 0)) continue;
        truth_line(t, tensor->name, i, kind);
        return;
    }
}

/* ---- one file ---------------------------------------------------------------------------------------------------------------- */

/* The decoded bytes of an extent, in memory of exactly that size; NULL on failure. */
static inline uint8_t *truth_load(fb_ckpt_file *file, const fb_ckpt_extent *extent, fb_error *err)
{
    uint8_t *data = malloc(extent->bytes ? (size_t)extent->bytes : 1);
    fb_inflate *stream = NULL;
    size_t got = 0;
    fb_status status = FB_OK;
    if (!data) abort();
    if (extent->encoding == FB_CKPT_MEMORY) {
        if (extent->bytes) memcpy(data, extent->memory, (size_t)extent->bytes);
    } else if (extent->encoding == FB_CKPT_STORED) {
        if (extent->stored_bytes != extent->bytes) abort();
        status = fb_ckpt_file_read(file, extent->offset_bytes, data, (size_t)extent->bytes, err);
    } else {
        status = fb_inflate_open(&stream, file, extent->offset_bytes, extent->stored_bytes, extent->bytes, err);
        if (status == FB_OK) status = fb_inflate_read(stream, data, (size_t)extent->bytes, &got, err);
        fb_inflate_close(stream);
    }
    if (status == FB_OK && extent->has_crc && crc32(0, data, (uInt)extent->bytes) != extent->crc32) {
        status = FB_E_CORRUPT;
        if (err) (void)snprintf(err->message, sizeof err->message, "extent %s: checksum", extent->name);
    }
    if (status == FB_OK) return data;
    free(data);
    return NULL;
}

static inline void truth_remarks(truth *t, const fb_ckpt_reader *reader, void *state)
{
    fb_ckpt_remark remark;
    for (uint64_t i = 0; reader->remark && reader->remark(state, i, &remark); i++) {
        if (remark.kind == FB_CKPT_REMARK_NOTE) {
            t->notes++;
            size_t used = strlen(t->all_notes);
            (void)snprintf(t->all_notes + used, sizeof t->all_notes - used, "%s: %s\n", remark.name, remark.text);
        }
        if (remark.kind == FB_CKPT_REMARK_SECURITY) t->security++;
        if (remark.kind == FB_CKPT_REMARK_UNSCANNED) {
            t->unscanned++;
            (void)snprintf(t->last_unscanned, sizeof t->last_unscanned, "%s: %s", remark.name, remark.text);
        }
    }
}

static inline void truth_of(truth *t, const fb_os *os, const char *path, const fb_ckpt_reader *reader)
{
    fb_ckpt_file file;
    fb_ckpt_range range;
    fb_ckpt_options options;
    fb_ckpt_extent extent;
    void *state = NULL;
    uint64_t last_at = 0;
    memset(t, 0, sizeof *t);
    memset(&options, 0, sizeof options);
    memset(&range, 0, sizeof range);
    t->status = fb_ckpt_file_open(&file, os, path, 4096, &t->err);
    if (t->status != FB_OK) return;
    range.file = &file;
    range.bytes = file.info.size_bytes;
    t->status = reader->open(&state, &range, &options, &t->err);
    while (t->status == FB_OK && (t->status = reader->next(state, &extent, &t->err)) == FB_OK) {
        uint8_t *data;
        t->extents++;
        if (extent.encoding != FB_CKPT_MEMORY) { /* in the order of the file, those in memory first */
            if (extent.offset_bytes < last_at) abort();
            last_at = extent.offset_bytes + extent.stored_bytes;
            if (last_at > file.info.size_bytes) abort();
        } else if (last_at) {
            abort();
        }
        data = truth_load(&file, &extent, &t->err);
        if (!data) {
            t->status = t->err.code ? t->err.code : FB_E_CORRUPT;
            break;
        }
        for (uint64_t i = 0; i < extent.tensor_count; i++) truth_tensor(t, &extent, data, &extent.tensors[i]);
        free(data);
    }
    if (t->status == FB_E_NOTFOUND) {
        t->status = FB_OK;
        truth_remarks(t, reader, state);
    }
    reader->close(state);
    fb_ckpt_file_close(&file);
}

static inline const char *truth_outcome(const truth *t)
{
    if (t->status != FB_OK) return fb_status_name(t->status);
    if (t->count) return "non_finite";
    return t->unscanned || t->tensors == 0 ? "unsupported" : "clean";
}

/* ---- a folder of files ------------------------------------------------------------------------------------------------------- */

typedef struct truth_entry {
    char file[128], outcome[32];
    char lines[TRUTH_LINES][TRUTH_LINE];
    size_t count;
} truth_entry;

/* "" or what differs. */
static inline void truth_compare(const truth *t, const truth_entry *e, char *text, size_t room)
{
    char used[TRUTH_LINES] = {0};
    text[0] = '\0';
    if (strcmp(truth_outcome(t), e->outcome) != 0) {
        (void)snprintf(text, room, "%s: %s instead of %s: %s %s %s", e->file, truth_outcome(t), e->outcome,
                       t->status == FB_OK ? "" : t->err.message, t->last_unscanned, t->count ? t->lines[0] : "");
        return;
    }
    for (size_t i = 0; i < e->count; i++) {
        size_t k = 0;
        while (k < t->count && (used[k] || fnmatch(e->lines[i], t->lines[k], 0) != 0)) k++;
        if (k == t->count) {
            (void)snprintf(text, room, "%s: \"%s\" was not found among %zu, of which the first is \"%s\"", e->file, e->lines[i],
                           t->count, t->count ? t->lines[0] : "");
            return;
        }
        used[k] = 1;
    }
    for (size_t k = 0; k < t->count; k++) {
        if (!used[k]) (void)snprintf(text, room, "%s: \"%s\" was found, and nothing was planted there", e->file, t->lines[k]);
    }
}

/* Calls `one` for each entry of FOLDER/truth.json; returns their number. */
static inline size_t truth_each(const char *folder, void (*one)(const char *path, const truth_entry *entry))
{
    static truth_entry e;
    char path[512], *text;
    size_t bytes, entries = 0;
    fb_json_reader json;
    fb_json_token token;
    fb_error err;
    int in_file = 0, in_outcome = 0;
    (void)snprintf(path, sizeof path, "%s/truth.json", folder);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 20, &text, &bytes, &err) != FB_OK) abort();
    fb_json_read(&json, text, bytes);
    while (fb_json_next(&json, &token, &err) == FB_OK && token.type != FB_JSON_END) {
        if (token.type == FB_JSON_OBJECT) memset(&e, 0, sizeof e);
        if (token.type == FB_JSON_KEY) {
            in_file = fb_json_is(&token, "file");
            in_outcome = fb_json_is(&token, "outcome");
        }
        if (token.type == FB_JSON_STRING) {
            if (in_file) (void)fb_json_decode(&token, e.file, sizeof e.file, NULL, NULL);
            else if (in_outcome) (void)fb_json_decode(&token, e.outcome, sizeof e.outcome, NULL, NULL);
            else if (e.count < TRUTH_LINES) (void)fb_json_decode(&token, e.lines[e.count++], TRUTH_LINE, NULL, NULL);
        }
        if (token.type == FB_JSON_OBJECT_END) {
            (void)snprintf(path, sizeof path, "%s/%s", folder, e.file);
            one(path, &e);
            entries++;
        }
    }
    fb_free(text);
    return entries;
}

#endif
