/*
 * SHA-256 of the files of a checkpoint, by libcrypto, as their bytes pass by: for those who fear forgery. In the tool alone; the
 * library stays without it.
 */
#ifndef FB_SCAN_SHA256_H
#define FB_SCAN_SHA256_H

#include "scan_result.h"

typedef struct scan_sha256 scan_sha256;

/* Results go into the files of `result`, and with scan_sha256_finish into its sum. NULL without memory. */
scan_sha256 *scan_sha256_new(scan_result *result);
/* fb_ckpt_options.tap, with the scan_sha256 as its ctx. */
void scan_sha256_tap(void *ctx, const char *file, const void *data, size_t bytes, int done);
/* Of a file: its digest. Of a folder: that of the lines "DIGEST  NAME" of its files, sorted by name. 0 after a message. */
int scan_sha256_finish(scan_sha256 *sha);
/* Accepts NULL. */
void scan_sha256_free(scan_sha256 *sha);

#endif
