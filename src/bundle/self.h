/*
 * A text that holds the hash of itself: the last member of the outermost object is "self", the XXH3 of every byte before the comma
 * that goes before it. Accidents, not forgery: who changes a text on purpose can make a new hash.
 */
#ifndef FB_BUNDLE_SELF_H
#define FB_BUNDLE_SELF_H

#include <stddef.h>

#include "base/json_write.h"
#include "base/status.h"

/* A finished, pretty object with its hash added and a newline at the end; release with fb_free. */
fb_status fb_self_close(const fb_json *json, char **text, size_t *bytes, fb_error *err);
/* FB_E_CORRUPT when the text is cut, or not the one that was hashed. */
fb_status fb_self_check(const char *text, size_t bytes, const char *path, fb_error *err);

#endif
