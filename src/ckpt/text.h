/*
 * Text that a file hands out as a name: it reaches terminals and reports, so it must be UTF-8 and hold no control character.
 */
#ifndef FB_CKPT_TEXT_H
#define FB_CKPT_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* NULL, or what is wrong with these bytes as the end of a sentence: "holds a control character", "is not UTF-8". The answer
   lives for ever. */
const char *fb_ckpt_text_fault(const void *text, size_t bytes);

/* The UTF-8 of a code point, without a NUL. Returns its length, 0 for a surrogate or a number beyond U+10FFFF. */
size_t fb_ckpt_text_put(char out[4], uint32_t code);

#endif
