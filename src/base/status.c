#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *fb_status_name(fb_status status)
{
    switch (status) {
    case FB_OK: return "FB_OK";
    case FB_E_USAGE: return "FB_E_USAGE";
    case FB_E_NOMEM: return "FB_E_NOMEM";
    case FB_E_DTYPE: return "FB_E_DTYPE";
    case FB_E_IO: return "FB_E_IO";
    case FB_E_CORRUPT: return "FB_E_CORRUPT";
    case FB_E_EXISTS: return "FB_E_EXISTS";
    case FB_E_LIMIT: return "FB_E_LIMIT";
    case FB_E_UNSUPPORTED: return "FB_E_UNSUPPORTED";
    case FB_E_ORDER: return "FB_E_ORDER";
    case FB_E_FORKED: return "FB_E_FORKED";
    case FB_E_SITE: return "FB_E_SITE";
    case FB_E_HALTED: return "FB_E_HALTED";
    case FB_E_SELFTEST: return "FB_E_SELFTEST";
    case FB_E_NOTFOUND: return "FB_E_NOTFOUND";
    case FB_E_WITHHELD: return "FB_E_WITHHELD";
    default: return "FB_E_?";
    }
}

uint32_t fb_abi_version(void)
{
    return FB_ABI_VERSION;
}

const char *fb_version(void)
{
    return FB_VERSION_TEXT;
}

void fb_error_clear(fb_error *err)
{
    if (!err) return;
    err->code = FB_OK;
    err->os_errno = 0;
    err->offset_bytes = 0;
    err->message[0] = '\0';
}

static void set_message(fb_error *err, fb_status code, const char *format, va_list args)
{
    fb_error_clear(err);
    err->code = code;
    /* A sentence that does not fit is cut; it never overruns. */
    (void)vsnprintf(err->message, sizeof err->message, format, args);
}

static void append_message(fb_error *err, const char *text)
{
    size_t used = strlen(err->message);
    (void)snprintf(err->message + used, sizeof err->message - used, "%s", text);
}

fb_status fb_fail(fb_error *err, fb_status code, const char *format, ...)
{
    va_list args;
    if (!err) return code;
    va_start(args, format);
    set_message(err, code, format, args);
    va_end(args);
    return code;
}

/*
 * Two functions go by the name strerror_r: POSIX's fills the buffer and returns an int, GNU's returns the text and may leave the
 * buffer alone. Which one is there depends on the C library and on its feature macros, so the type of the result decides.
 */
static const char *text_gnu(const char *text, const char *buffer)
{
    (void)buffer;
    return text;
}

static const char *text_posix(int failed, const char *buffer)
{
    return failed ? "unknown error" : buffer;
}

#define ERROR_TEXT(number, buffer, room)                 \
    _Generic(strerror_r((number), (buffer), (room)), int \
             : text_posix, default                       \
             : text_gnu)(strerror_r((number), (buffer), (room)), (buffer))

fb_status fb_fail_os(fb_error *err, int os_errno, const char *format, ...)
{
    va_list args;
    char text[160];
    char reason[128] = "";
    if (!err) return FB_E_IO;
    va_start(args, format);
    set_message(err, FB_E_IO, format, args);
    va_end(args);
    err->os_errno = os_errno;
    (void)snprintf(text, sizeof text, ": %.150s", ERROR_TEXT(os_errno, reason, sizeof reason));
    append_message(err, text);
    return FB_E_IO;
}

fb_status fb_fail_at(fb_error *err, uint64_t offset_bytes, const char *format, ...)
{
    va_list args;
    char text[48];
    if (!err) return FB_E_CORRUPT;
    va_start(args, format);
    set_message(err, FB_E_CORRUPT, format, args);
    va_end(args);
    err->offset_bytes = offset_bytes;
    (void)snprintf(text, sizeof text, " (offset %llu)", (unsigned long long)offset_bytes);
    append_message(err, text);
    return FB_E_CORRUPT;
}
