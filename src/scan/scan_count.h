/*
 * Counts that few blocks need, in plain C that compilers vectorise: included by each kernel so that it is compiled for its
 * registers.
 * Subnormals are counted only when the smallest magnitude says that there are some, and the largest codes likewise.
 */
#ifndef FB_SCAN_COUNT_H
#define FB_SCAN_COUNT_H

#include "scan/scan_kernel.h"

#define FB_INLINE static inline __attribute__((always_inline))

/* Parts whose magnitude lies in [low, high]. */
#define FB_COUNT(bits, type)                                                                         \
    FB_INLINE uint64_t fb_count##bits(const uint8_t *data, size_t n, type mask, type low, type high) \
    {                                                                                                \
        uint32_t count = 0;                                                                          \
        size_t i;                                                                                    \
        for (i = 0; i < n; i++) {                                                                    \
            type part;                                                                               \
            memcpy(&part, data + i * sizeof part, sizeof part);                                      \
            part = (type)((part & mask) - low);                                                      \
            count += part <= (type)(high - low);                                                     \
        }                                                                                            \
        return count;                                                                                \
    }
FB_COUNT(8, uint8_t)
FB_COUNT(16, uint16_t)
FB_COUNT(32, uint32_t)
FB_COUNT(64, uint64_t)

FB_INLINE uint64_t fb_count(const fb_format *format, const uint8_t *data, size_t n, uint64_t low, uint64_t high)
{
    switch (format->part_bits) {
    case 8: return fb_count8(data, n, (uint8_t)format->abs_mask, (uint8_t)low, (uint8_t)high);
    case 16: return fb_count16(data, n, (uint16_t)format->abs_mask, (uint16_t)low, (uint16_t)high);
    case 32: return fb_count32(data, n, (uint32_t)format->abs_mask, (uint32_t)low, (uint32_t)high);
    default: return fb_count64(data, n, format->abs_mask, low, high);
    }
}

/* subnormals and at_max, once peak and low_less1 are known. */
FB_INLINE void fb_count_rare(const fb_format *format, const uint8_t *data, size_t n, fb_block *out)
{
    out->subnormals = out->low_less1 < format->min_normal - 1 ? fb_count(format, data, n, 1, format->min_normal - 1) : 0;
    out->at_max = out->peak >= format->max_bits ? fb_count(format, data, n, format->max_bits, format->max_bits) : 0;
}

#endif
