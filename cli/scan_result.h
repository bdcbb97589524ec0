/*
 * What one scan told, kept until it is shown. A checkpoint may hold millions of bad tensors, so lists are bounded and count what
 * they left out; each text in them is a copy.
 *
 * Order of calls: scan_result_init, scan_result_sink for the scan, [scan_text, scan_json], scan_result_release.
 */
#ifndef FB_SCAN_RESULT_H
#define FB_SCAN_RESULT_H

#include "ckpt/ckpt.h"

enum { SCAN_SHA256_TEXT = 65 };

/* A growing array of structs. */
typedef struct scan_list {
    unsigned char *items;
    size_t item_bytes, count, room;
    uint64_t max, left_out;
} scan_list;

typedef struct scan_shape {
    uint64_t *dims;
    int32_t ndim;
} scan_shape;

typedef struct scan_finding {
    char *file, *tensor, *dtype, *lane;
    scan_shape shape;
    fb_ckpt_finding facts; /* its pointers are NULL: the copies stand above */
    int32_t measured;      /* 1: with statistics, the next two are known */
    uint64_t finite;
    double largest; /* finite magnitude */
} scan_finding;

/* A part that was not looked at, something a loader would run, or a note: name is the tensor or the import. */
typedef struct scan_remark {
    char *file, *name, *text;
} scan_remark;

typedef struct scan_file {
    char *path, *format;
    int32_t outcome; /* -1: not told yet */
    uint64_t tensors, elements, bytes, digest;
    fb_status reason_code;
    uint64_t reason_offset;
    char *reason;
    char sha256[SCAN_SHA256_TEXT];
} scan_file;

/* Statistics of one tensor or piece. bins: those from first_bin to the last that is not empty, zeros and subnormals left out. */
typedef struct scan_row {
    char *file, *name, *dtype, *unscanned;
    scan_shape shape;
    int32_t floating; /* its format can be non-finite */
    int32_t measured;
    int32_t limit_dtype; /* whose maximum the headroom is measured against */
    uint64_t elements, finite, nan, pos_inf, neg_inf, zero, subnormal, at_max, low_bin;
    double min, max, abs_min, abs_max, norm;
    int32_t first_bin, bin_count;
    uint64_t *bins;
} scan_row;

struct scan_bar;

typedef struct scan_result {
    const char *path;     /* borrowed: as it was given */
    const char *target;   /* borrowed: what is read; another one where `path` is a symbolic link */
    struct scan_bar *bar; /* borrowed: told of progress */
    int folder, several, stats;
    fb_ckpt_summary summary;
    fb_status status; /* of the call */
    fb_error err;
    double seconds;
    int stopped_at_first; /* --first, and it found something */
    const char *digest;   /* "xxh3", "sha256", or NULL: none was asked for */
    char sha256[SCAN_SHA256_TEXT];
    scan_list findings, legal, unreferenced; /* scan_finding */
    scan_list unscanned, security, notes;    /* scan_remark */
    scan_list files;                         /* scan_file */
    scan_list rows;                          /* scan_row */
    int no_memory;                           /* a copy could not be made: what is kept is not all */
} scan_result;

/* list_max: entries kept of each list of findings and remarks; 0: all. */
void scan_result_init(scan_result *result, const char *path, uint64_t list_max);
void scan_result_release(scan_result *result);

/* A sink that fills `result`, and moves its bar. */
fb_ckpt_sink scan_result_sink(scan_result *result);

/* The entry of a file, made if it is new; NULL without memory. */
scan_file *scan_result_file(scan_result *result, const char *path);

/* The exit code that this result stands for, and the name of its status in JSON: they never disagree. */
int scan_exit_code(const scan_result *result);
const char *scan_status_name(const scan_result *result);

/* 1 when all of the checkpoint was looked at and judged. */
int scan_is_whole(const scan_result *result);

/* The layout of a folder, the reader of a file; "" when none is known. */
const char *scan_format(const scan_result *result);

/* Why the answer is no better, "" when there is nothing to say. */
const char *scan_reason(const scan_result *result);

/* The coordinates of a flat index; 0 when the shape has no such element. */
int scan_coordinates(const scan_shape *shape, uint64_t flat, uint64_t *coordinates);

/* Binades (factors of 2) between the largest finite magnitude and the maximum of its format; 0 when there is none to tell. */
int scan_headroom(const scan_row *row, double *binades, double *factor);

static inline const scan_finding *scan_finding_at(const scan_list *list, size_t i)
{
    return (const scan_finding *)(const void *)(list->items + i * list->item_bytes);
}

static inline const scan_remark *scan_remark_at(const scan_list *list, size_t i)
{
    return (const scan_remark *)(const void *)(list->items + i * list->item_bytes);
}

static inline const scan_file *scan_file_at(const scan_list *list, size_t i)
{
    return (const scan_file *)(const void *)(list->items + i * list->item_bytes);
}

static inline const scan_row *scan_row_at(const scan_list *list, size_t i)
{
    return (const scan_row *)(const void *)(list->items + i * list->item_bytes);
}

#endif
