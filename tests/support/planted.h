/*
 * Files with bad numbers planted in them by a script, against what a scan says of them. truth.json of their folder:
 *
 *   {"files": [{"file": name, "outcome": "clean" | "non_finite" | "unsupported" | "legal", ...}],
 *    "findings": [{"file", "tensor", "index", "kind": "nan" | "+inf" | "-inf", "bits": "0x7fc0", "offset"}, ...]}
 */
#ifndef FB_TESTS_SUPPORT_PLANTED_H
#define FB_TESTS_SUPPORT_PLANTED_H

/* Fails the running cmocka test where a file of `folder` (with its last slash) is judged otherwise than truth.json says. Returns
 * how
   many files were scanned. format: what the reader calls itself. */
int planted_check(const char *folder, const char *format);

#endif
