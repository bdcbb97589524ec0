/*
 * How one scan is shown: text for people (scan_text.c), its table of statistics (scan_table.c), one line of JSON (scan_json.c), and
 * the bar that is seen while it runs (scan_progress.c).
 */
#ifndef FB_SCAN_SHOW_H
#define FB_SCAN_SHOW_H

#include "base/json_write.h"
#include "scan_result.h"

typedef struct scan_style {
    int columns, colour;
    int unicode;     /* 1: the locale is UTF-8, so a picture may use block characters */
    int by_headroom; /* the table is sorted: least headroom first */
    int quiet;       /* nothing about a checkpoint that is clean */
} scan_style;

/* 0, or an exit code after a message: what could not be written is said. */
int scan_show_text(const scan_result *result, const scan_style *style);
/* One object on a line of its own. */
int scan_show_json(const scan_result *result);
/* The statistics of all tensors, and their sum by format. */
int scan_show_table(const scan_result *result, const scan_style *style);

/* "1,234,567". */
const char *scan_count(uint64_t n, char out[32]);
/* "13.4 GB", "865 bytes". */
const char *scan_bytes(uint64_t bytes, char out[32]);
/* "[12, 1999]", cut where it would not fit. */
const char *scan_dims(const uint64_t *dims, int32_t ndim, char *out, size_t room);
/* A name made fit for a column: what a terminal could take for a command is '?', and the middle of a long one is left out. */
void scan_fit_name(const char *name, int columns, char *out, size_t room);
/* Columns that UTF-8 text takes, one for each character. */
int scan_width(const char *text);

/* ---- the bar ----------------------------------------------------------------------------------------------------------------- */

/* Held by the caller; the fields are the bar's own. */
typedef struct scan_bar {
    int on; /* 0: standard error is no terminal, or it was switched off */
    int drawn;
    const char *path;
    int64_t begun_ns, last_ns, rate_ns;
    uint64_t rate_bytes;
    double rate; /* bytes a second, of late */
} scan_bar;

void scan_bar_begin(scan_bar *bar, const char *path, int wanted);
/* Fits fb_ckpt_sink.progress, with the bar in place of its ctx. */
void scan_bar_progress(scan_bar *bar, uint64_t done_bytes, uint64_t total_bytes);
/* Takes it off the screen, before anything else is written. */
void scan_bar_end(scan_bar *bar);
/* The bar as text for so many columns, NUL-terminated; what is not known (a rate, the time left) is left out. */
void scan_bar_text(const scan_bar *bar, uint64_t done_bytes, uint64_t total_bytes, int columns, char *out, size_t room);

#endif
