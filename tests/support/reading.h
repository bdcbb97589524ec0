/*
 * What a reader of checkpoints hands out for some bytes, as text to compare, with everything that reader.h promises checked on the
 * way. A broken promise stops the process, so that fuzz drivers can use it too.
 *
 * A line for each tensor: name, number format as written and as FB_*, [shape], (strides), place in the file +bytes of the extent,
 * then as they apply: "/bytes of a block:elements", lanes {name format offset count elements}, "swapped", "number", "inf" (is
 * legal), "group 1 start of whole", "unscanned: why".
 */
#ifndef FB_TESTS_SUPPORT_READING_H
#define FB_TESTS_SUPPORT_READING_H

#include <stdarg.h>
#include <stdio.h>

#include "ckpt/reader.h"
#include "memory_os.h"

typedef struct reading {
    fb_status status; /* FB_OK: all of it was handed out */
    fb_error err;
    uint64_t tensors;
    size_t used;
    char text[65536]; /* cut at its end */
} reading;

static inline void reading_require(int holds)
{
    if (!holds) abort();
}

__attribute__((format(printf, 2, 3))) static inline void reading_say(reading *r, const char *format, ...)
{
    va_list args;
    int length;
    va_start(args, format);
    length = vsnprintf(r->text + r->used, sizeof r->text - r->used, format, args);
    va_end(args);
    r->used += length < 0 ? 0 : (size_t)length;
    if (r->used >= sizeof r->text) r->used = sizeof r->text - 1;
}

static inline uint64_t reading_lane_bytes(const fb_ckpt_lane *lane)
{
    return lane->dtype == FB_CKPT_LANE_IQ1_M ? 8 : fb_dtype_bytes(lane->dtype, 1);
}

/* Every element lies inside the extent. */
static inline void reading_check(const fb_ckpt_extent *x, const fb_ckpt_tensor *t)
{
    uint64_t product = 1, last = 0, room = x->bytes - t->offset_bytes;
    reading_require(t->offset_bytes <= x->bytes && t->ndim >= 0 && t->ndim <= FB_CKPT_DIMS_MAX && t->name && t->dtype_name);
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0) product = 0;
        else if (product) reading_require(!__builtin_mul_overflow(product, t->shape[i], &product));
    }
    reading_require(product == t->elements && (t->dtype != 0 || t->lane_count || t->unscanned));
    if (t->period_bytes && t->elements) {
        uint64_t blocks = t->elements / t->block_elements;
        reading_require(t->elements % t->block_elements == 0 && blocks <= room / t->period_bytes);
        for (uint32_t i = 0; i < t->lane_count; i++) {
            const fb_ckpt_lane *lane = &t->lanes[i];
            uint64_t end = lane->offset_bytes + lane->count * reading_lane_bytes(lane);
            reading_require(end <= t->period_bytes && (uint64_t)lane->count * lane->elements <= t->block_elements);
        }
    } else if (t->elements && t->dtype) {
        for (int32_t i = 0; i < t->ndim && t->strides; i++) {
            reading_require(t->strides[i] >= 0);
            last += (t->shape[i] - 1) * (uint64_t)t->strides[i];
        }
        if (!t->strides) last = t->elements - 1;
        reading_require(last < room / fb_dtype_bytes(t->dtype, 1));
    }
    if (t->whole_shape) reading_require(x->group && t->ndim == 1 && t->elements <= t->whole_shape[0] - t->whole_start[0]);
}

static inline void reading_line(reading *r, const fb_ckpt_extent *x, const fb_ckpt_tensor *t)
{
    uint64_t at = x->offset_bytes + t->offset_bytes;
    reading_say(r, "%s %s %d [", t->name, t->dtype_name, t->dtype);
    for (int32_t i = 0; i < t->ndim; i++) reading_say(r, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
    reading_say(r, "]%s", t->strides ? " (" : "");
    for (int32_t i = 0; t->strides && i < t->ndim; i++) reading_say(r, "%s%lld", i ? "," : "", (long long)t->strides[i]);
    reading_say(r, "%s %llu+%llu", t->strides ? ")" : "", (unsigned long long)at, (unsigned long long)x->bytes);
    if (t->period_bytes) reading_say(r, " /%llu:%u", (unsigned long long)t->period_bytes, t->block_elements);
    for (uint32_t i = 0; i < t->lane_count; i++) {
        const fb_ckpt_lane *lane = &t->lanes[i];
        reading_say(r, " {%s %d %u %u %u}", lane->name, lane->dtype, lane->offset_bytes, lane->count, lane->elements);
    }
    reading_say(r, "%s%s%s", x->swapped ? " swapped" : "", t->number ? " number" : "", t->legal_inf ? " inf" : "");
    if (t->whole_shape)
        reading_say(r, " group %llu %llu of %llu", (unsigned long long)x->group, (unsigned long long)t->whole_start[0],
                    (unsigned long long)t->whole_shape[0]);
    if (t->unscanned) reading_say(r, " unscanned: %s", t->unscanned);
    reading_say(r, "\n");
}

static inline void reading_extents(reading *r, const fb_ckpt_reader *reader, void *state, const fb_ckpt_range *range)
{
    uint64_t end = range->offset_bytes;
    fb_ckpt_extent x;
    while ((r->status = reader->next(state, &x, &r->err)) == FB_OK) {
        reading_require(x.name && x.encoding == FB_CKPT_STORED && x.bytes == x.stored_bytes && x.offset_bytes >= end);
        end = x.offset_bytes + x.bytes;
        reading_require(end >= x.offset_bytes && end <= range->offset_bytes + range->bytes);
        for (uint64_t i = 0; i < x.tensor_count; i++) {
            reading_check(&x, &x.tensors[i]);
            reading_line(r, &x, &x.tensors[i]);
            r->tensors++;
        }
    }
    if (r->status == FB_E_NOTFOUND) r->status = FB_OK;
}

/* `bytes` bytes from `at` on of a file of memory. options, buffer_bytes: as of a scan. */
static inline void reading_range(reading *r, const fb_ckpt_reader *reader, const fb_os *os, uint64_t at, uint64_t bytes,
                                 const fb_ckpt_options *options, size_t buffer_bytes)
{
    fb_ckpt_file file;
    fb_ckpt_range range = {&file, at, bytes, NULL};
    void *state = NULL;
    r->tensors = r->used = 0;
    r->text[0] = '\0';
    fb_error_clear(&r->err);
    if ((r->status = fb_ckpt_file_open(&file, os, "/memory", buffer_bytes, &r->err)) != FB_OK) return;
    if (bytes == UINT64_MAX) range.bytes = file.info.size_bytes - at;
    r->status = reader->open(&state, &range, options, &r->err);
    reading_require((r->status == FB_OK) == (state != NULL));
    if (r->status == FB_OK) reading_extents(r, reader, state, &range);
    reader->close(state);
    fb_ckpt_file_close(&file);
}

static inline void reading_of(reading *r, const fb_ckpt_reader *reader, const void *data, size_t bytes)
{
    memory_os memory;
    fb_ckpt_options options;
    memset(&options, 0, sizeof options);
    reading_range(r, reader, memory_os_init(&memory, data, bytes), 0, bytes, &options, 4096);
}

#endif
