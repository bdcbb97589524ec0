/*
 * One reader, and the scan over it, against any bytes. What must hold: it ends, reads inside the file, and whatever it hands out is
 * as reader.h promises. The size of the buffer changes nothing, and neither do bytes around the range.
 */
#ifndef FB_TESTS_FUZZ_ANY_READER_H
#define FB_TESTS_FUZZ_ANY_READER_H

#include <string.h>

#include "support/reading.h"

static reading first, second;

static void fuzz_reader_alone(const fb_ckpt_reader *reader, const uint8_t *data, size_t bytes)
{
    memory_os memory;
    fb_ckpt_options options;
    uint8_t *around = malloc(bytes + 32);
    reading_require(around != NULL);
    memset(&options, 0, sizeof options);
    reading_of(&first, reader, data, bytes);
    memset(around, 0x7f, bytes + 32);
    if (bytes) memcpy(around, data, bytes);
    reading_range(&second, reader, memory_os_init(&memory, around, bytes + 32), 0, bytes, &options, 5003);
    reading_require(first.status == second.status && first.tensors == second.tensors && strcmp(first.text, second.text) == 0);
    reading_require(first.status == FB_OK || first.err.message[0] != '\0');
    reading_require(first.status == FB_OK || first.status == FB_E_CORRUPT || first.status == FB_E_LIMIT ||
                    first.status == FB_E_UNSUPPORTED);
    free(around);
}

/* The whole way, when the content shows the format. */
static void fuzz_reader_scan(const fb_ckpt_reader *reader, const uint8_t *data, size_t bytes)
{
    memory_os memory;
    fb_ckpt_options options;
    fb_ckpt_summary once, again;
    const fb_os *os = memory_os_init(&memory, data, bytes);
    memset(&options, 0, sizeof options);
    options.flags = FB_CKPT_STATS;
    if (fb_ckpt_reader_find(data, bytes < FB_CKPT_HEAD_BYTES ? bytes : FB_CKPT_HEAD_BYTES, bytes) != reader) return;
    reading_require(fb_ckpt_scan_path(os, "memory", NULL, NULL, &once, NULL) == FB_OK);
    options.buffer_bytes = 5003;
    reading_require(fb_ckpt_scan_path(os, "memory", &options, NULL, &again, NULL) == FB_OK);
    reading_require(once.outcome == again.outcome && once.bad == again.bad && once.tensors == again.tensors);
    reading_require(once.first_index == again.first_index && once.first_bits == again.first_bits && once.digest == again.digest);
    reading_require((once.outcome == FB_CKPT_NON_FINITE) == (once.bad > 0));
}

static void fuzz_reader(const fb_ckpt_reader *reader, const uint8_t *data, size_t bytes)
{
    fuzz_reader_alone(reader, data, bytes);
    fuzz_reader_scan(reader, data, bytes);
}

#endif
