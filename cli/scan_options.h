/*
 * The command line of `firstbad scan`.
 */
#ifndef FB_SCAN_OPTIONS_H
#define FB_SCAN_OPTIONS_H

#include <stdint.h>

typedef struct scan_options {
    const char **paths;
    int path_count;
    const char **allow; /* NULL-terminated; NULL when there is none */
    const char *digest; /* NULL, "xxh3" or "sha256" */
    int json, stats, first, all, crc, quiet, by_headroom;
    int32_t threads;
} scan_options;

/* Returns 1 to go on, 0 to end with *exit_code. Call scan_options_release in both cases. */
int scan_options_parse(scan_options *given, int argc, char **argv, int *exit_code);
void scan_options_release(scan_options *given);

#endif
