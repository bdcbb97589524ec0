/*
 * The decoders of record payloads on any bytes: they stay inside, and what they accept is written again to the same bytes as far as
 * this version knows them. First byte: which decoder; the rest: the payload. The injection grammar, which reads a user's words, is
 * here too.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "evidence/records.h"
#include "guard/inject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(void *ctx, fb_text key, fb_text value)
{
    volatile uint64_t *sum = ctx;
    for (uint32_t i = 0; i < key.bytes; i++) *sum += (unsigned char)key.data[i];
    for (uint32_t i = 0; i < value.bytes; i++) *sum += (unsigned char)value.data[i];
}

/* Accepted bytes of our own version must come out of the encoder again; fields that an older release did not have follow them. */
static void again(const uint8_t *payload, size_t size, const uint8_t *encoded, uint32_t bytes)
{
    if (size < 2 || payload[0] != 1 || payload[1] != 0) return;
    if (bytes == 0 || memcmp(payload, encoded, bytes < size ? bytes : size) != 0) abort();
}

#define TRY(name)                                                                                 \
    do {                                                                                          \
        fb_rec_##name rec;                                                                        \
        if (fb_rec_##name##_decode(payload, (uint32_t)size, &rec, NULL) == FB_OK)                 \
            again(payload, size, encoded, fb_rec_##name##_encode(encoded, sizeof encoded, &rec)); \
    } while (0)

static void injections(const uint8_t *data, size_t size)
{
    char text[4096];
    fb_inject inject;
    if (size >= sizeof text) return;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    if (fb_inject_parse(&inject, text, NULL) == FB_OK && inject.count > FB_INJECT_MAX) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t encoded[1 << 16];
    const uint8_t *payload = data + 1;
    volatile uint64_t sum = 0;
    int which;
    if (size == 0 || size > sizeof encoded) return 0;
    which = data[0] % 10;
    size--;
    switch (which) {
    case 0: (void)fb_rec_run_decode(payload, (uint32_t)size, touch, (void *)&sum, NULL); break;
    case 1: TRY(site); break;
    case 2: TRY(step); break;
    case 3: TRY(finding); break;
    case 4: TRY(verdict); break;
    case 5: TRY(event); break;
    case 6: TRY(proof); break;
    case 7: TRY(pulse); break;
    case 8: TRY(ckpt); break;
    default: injections(payload, size); break;
    }
    return 0;
}
