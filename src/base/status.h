/*
 * Status and error text. fb_fail fills the caller's error struct and returns the code, so that a failing path is one line:
 *     if (!p) return fb_fail(err, FB_E_NOMEM, "open log %s: no memory for %zu bytes", path, bytes);
 */
#ifndef FB_BASE_STATUS_H
#define FB_BASE_STATUS_H

#include "firstbad/firstbad.h"

/* Fill err (may be NULL) with the code and a formatted sentence; os_errno and offset_bytes become 0. Returns code. */
__attribute__((format(printf, 3, 4))) fb_status fb_fail(fb_error *err, fb_status code, const char *format, ...);

/* As fb_fail with FB_E_IO, keeping os_errno and appending its text. */
__attribute__((format(printf, 3, 4))) fb_status fb_fail_os(fb_error *err, int os_errno, const char *format, ...);

/* As fb_fail with FB_E_CORRUPT at a byte offset, which is appended to the sentence. */
__attribute__((format(printf, 3, 4))) fb_status fb_fail_at(fb_error *err, uint64_t offset_bytes, const char *format, ...);

/* Empty an error struct (may be NULL). */
void fb_error_clear(fb_error *err);

#endif
