/*
 * What every reader promises of what it hands out (reader.h), checked on whatever bytes it took: extents in order and inside the
 * file, every element of every tensor inside its extent, names fit for a terminal. For fuzz drivers: it aborts.
 */
#ifndef FB_TESTS_SUPPORT_CHECK_EXTENTS_H
#define FB_TESTS_SUPPORT_CHECK_EXTENTS_H

#include <stdlib.h>
#include <string.h>

#include "ckpt/reader.h"
#include "ckpt/scan.h"
#include "support/memory_os.h"

static inline void check_that(int holds)
{
    if (!holds) abort();
}

static inline void check_name(const char *name)
{
    check_that(name != NULL);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) check_that(*c >= 0x20 && *c != 0x7f);
}

/* Bytes from the first element to the end of the last one; checks shape and strides on the way. */
static inline uint64_t check_reach(const fb_ckpt_tensor *t)
{
    uint64_t product = 1, last = 0, size = fb_dtype_bytes(t->dtype, 1);
    check_that(t->ndim >= 0 && t->ndim <= FB_CKPT_DIMS_MAX);
    for (int32_t d = 0; d < t->ndim; d++) check_that(!__builtin_mul_overflow(product, t->shape[d], &product) || t->elements == 0);
    check_that(product == t->elements || t->elements == 0);
    if (t->elements == 0) return 0;
    if (t->lane_count) return (t->elements + t->block_elements - 1) / t->block_elements * t->period_bytes;
    if (!t->strides) return fb_dtype_bytes(t->dtype, t->elements);
    for (int32_t d = 0; d < t->ndim; d++) {
        uint64_t step;
        check_that(t->strides[d] >= 0);
        check_that(!__builtin_mul_overflow(t->shape[d] - 1, (uint64_t)t->strides[d], &step));
        check_that(!__builtin_add_overflow(last, step, &last));
    }
    check_that(!__builtin_mul_overflow(last + 1, size, &last));
    return last;
}

static inline void check_extent(const fb_ckpt_extent *e, uint64_t file_bytes, uint64_t *from)
{
    check_name(e->name);
    if (e->encoding == FB_CKPT_MEMORY) {
        check_that(*from == 0); /* those come first */
        check_that(e->memory != NULL || e->bytes == 0);
    } else {
        check_that(e->offset_bytes >= *from && e->offset_bytes <= file_bytes && e->stored_bytes <= file_bytes - e->offset_bytes);
        check_that(e->encoding == FB_CKPT_DEFLATED || e->stored_bytes == e->bytes);
        *from = e->offset_bytes;
    }
    for (uint64_t i = 0; i < e->tensor_count; i++) {
        const fb_ckpt_tensor *t = &e->tensors[i];
        uint64_t reach = check_reach(t);
        check_name(t->name);
        check_name(t->dtype_name);
        if (t->dtype || t->lane_count)
            check_that(t->elements == 0 || (t->offset_bytes <= e->bytes && reach <= e->bytes - t->offset_bytes));
    }
}

static inline void check_remarks(const fb_ckpt_reader *reader, void *state)
{
    fb_ckpt_remark remark;
    for (uint64_t i = 0; reader->remark && reader->remark(state, i, &remark); i++) {
        check_that(remark.kind >= FB_CKPT_REMARK_NOTE && remark.kind <= FB_CKPT_REMARK_FACT);
        check_name(remark.name);
        check_name(remark.text);
    }
}

/* The reader alone, on a window of a file: what is in front of it and behind must not matter. */
static inline fb_status check_reader(const fb_ckpt_reader *reader, const uint8_t *data, size_t bytes, size_t at, size_t count)
{
    static const fb_ckpt_options options;
    memory_os memory;
    fb_ckpt_file file;
    fb_ckpt_range range;
    fb_ckpt_extent extent;
    void *state = NULL;
    uint64_t from = 0;
    fb_error err;
    fb_status status;
    fb_error_clear(&err);
    check_that(fb_ckpt_file_open(&file, memory_os_init(&memory, data, bytes), "memory", 4096, &err) == FB_OK);
    memset(&range, 0, sizeof range);
    range.file = &file;
    range.offset_bytes = at;
    range.bytes = count;
    status = reader->open(&state, &range, &options, &err);
    check_that((status == FB_OK) == (state != NULL));
    while (status == FB_OK && (status = reader->next(state, &extent, &err)) == FB_OK) check_extent(&extent, bytes, &from);
    if (status == FB_E_NOTFOUND) {
        status = FB_OK;
        check_remarks(reader, state);
    } else {
        check_that(err.message[0] != '\0');
    }
    reader->close(state);
    fb_ckpt_file_close(&file);
    return status;
}

/* The whole scan, as a file of that name: it ends with a verdict, the same one for another size of buffer. */
static inline fb_ckpt_summary check_scan(const char *path, const uint8_t *data, size_t bytes)
{
    memory_os memory;
    fb_ckpt_options options;
    fb_ckpt_summary first, second;
    memset(&options, 0, sizeof options);
    options.buffer_bytes = 4096;
    options.flags = FB_CKPT_CRC;
    check_that(fb_ckpt_scan_path(memory_os_init(&memory, data, bytes), path, &options, NULL, &first, NULL) == FB_OK);
    options.buffer_bytes = 65536;
    check_that(fb_ckpt_scan_path(&memory.os, path, &options, NULL, &second, NULL) == FB_OK);
    check_that(first.outcome == second.outcome && first.bad == second.bad && first.checked == second.checked &&
               first.digest == second.digest && first.tensors == second.tensors && first.first_index == second.first_index &&
               first.first_bits == second.first_bits);
    check_that((first.outcome == FB_CKPT_NON_FINITE) == (first.bad > 0));
    return first;
}

#endif
