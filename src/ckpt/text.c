#include "ckpt/text.h"

size_t fb_ckpt_text_put(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        if (code >= 0xd800 && code < 0xe000) return 0;
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    if (code > 0x10ffff) return 0;
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Bytes of the character that begins here, its code in *code; 0 when it is not UTF-8 or not in its shortest form. */
static size_t take(const unsigned char *s, size_t bytes, uint32_t *code)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : (s[0] & 0xf8) == 0xf0 ? 4 : 0;
    if (length == 0 || length > bytes) return 0;
    *code = length == 1 ? s[0] : s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    if (*code < smallest[length] || (*code >= 0xd800 && *code < 0xe000) || *code > 0x10ffff) return 0;
    return length;
}

const char *fb_ckpt_text_fault(const void *text, size_t bytes)
{
    const unsigned char *s = text;
    size_t at = 0;
    while (at < bytes) {
        uint32_t code = 0;
        size_t length = take(s + at, bytes - at, &code);
        if (length == 0) return "is not UTF-8";
        if (code == 0) return "holds a NUL character";
        /* C1 too: some terminals obey it. */
        if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return "holds a control character";
        at += length;
    }
    return NULL;
}
