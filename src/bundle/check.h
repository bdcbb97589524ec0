/* Reading a bundle from a folder: every file against the hash that it was written with. */
#ifndef FB_BUNDLE_CHECK_H
#define FB_BUNDLE_CHECK_H

#include "bundle/part.h"

/* 1: folder/name is there. An error is one of asking. */
fb_status fb_bundle_there(const fb_os *os, const char *folder, const char *name, int *there, fb_error *err);

/**
 * Read part-r00000.json of this rank and compare all files that it names: size, XXH3 of the file, its table of tensors, XXH3 of
 * each.
 * expected  NULL, or what the manifest says of the text. out_line: NULL, or the line that a manifest would have.
 * Errors: FB_E_NOTFOUND (there is no such text), FB_E_CORRUPT, FB_E_LIMIT, FB_E_IO, FB_E_NOMEM. On failure `part` is released.
 */
fb_status fb_part_read(fb_part *part, const fb_os *os, const char *folder, int32_t rank, const fb_manifest_part *expected,
                       fb_manifest_part *out_line, fb_error *err);

#endif
