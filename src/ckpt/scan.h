/*
 * The scan of one file, and what the scan of a folder shares with it.
 */
#ifndef FB_CKPT_SCAN_H
#define FB_CKPT_SCAN_H

#include "ckpt/reader.h"

struct fb_ckpt_crew;
struct fb_stream;

/* One call of fb_ckpt_scan_path. */
typedef struct fb_ckpt_scan {
    const fb_os *os;
    fb_ckpt_options options; /* never NULL inside; zeros still stand for defaults */
    fb_ckpt_sink sink;       /* all zero when the caller has none */
    fb_ckpt_summary *summary;
    int32_t reason_of; /* outcome that summary->reason belongs to */
    int32_t done;      /* 1: FB_CKPT_FIRST was asked for and found; the files that are left are not opened, and that is no fault */
    uint64_t done_bytes,
        total_bytes;           /* of files behind us; of all files, 0: not known, and the current one is the last. For progress */
    struct fb_ckpt_crew *crew; /* threads, started when the first large extent comes */
    struct fb_stream *streams; /* room for statistics, taken when they are wanted for the first time */
    /* Told of each tensor, for the check against a folder's index. May be NULL. */
    void (*on_tensor)(void *ctx, const char *tensor);
    void *on_tensor_ctx;
    /* Told of each fact that a reader remarks, for checks across files. May be NULL. */
    void (*on_fact)(void *ctx, const char *file, const char *name, double value);
    void *on_fact_ctx;
} fb_ckpt_scan;

/* Ends threads and gives memory back, of which there is none before the first file. */
void fb_ckpt_scan_release(fb_ckpt_scan *scan);

/* Take an outcome into the summary: the worst stays, and with it the first sentence of its kind. reason may be NULL. */
void fb_ckpt_scan_outcome(fb_ckpt_scan *scan, int32_t outcome, const fb_error *reason);

/* The outcome that a failed call stands for, or -1 when it says nothing about the content (FB_E_IO, FB_E_NOMEM, ...). */
int32_t fb_ckpt_outcome_of(fb_status status);

void fb_ckpt_scan_unscanned(fb_ckpt_scan *scan, const char *file, const char *tensor, const char *why);

/* How to take a file that no reader knows by its content. */
enum {
    FB_CKPT_ALONE = 0,    /* it was asked for: unsupported */
    FB_CKPT_EXPECTED = 1, /* its name says safetensors: unreadable */
    FB_CKPT_BESIDE = 2    /* lies in a folder: passed over when it is text, else listed as not scanned */
};

/**
 * Read one file and judge it. On FB_OK *digest is that of its bytes, and *is_part is 1 when it holds tensors or should.
 * Errors: FB_E_NOTFOUND, FB_E_IO, FB_E_NOMEM, FB_E_DTYPE or FB_E_USAGE from a scan that cannot work.
 */
fb_status fb_ckpt_scan_file(fb_ckpt_scan *scan, const char *path, int how, int *is_part, uint64_t *size_bytes, uint64_t *digest,
                            fb_error *err);

/**
 * As fb_ckpt_scan_file, by a reader that the folder's layout chose and not the content: for files that no content can tell, or that
 * need to be told more than bytes.
 * setup  for fb_ckpt_range.setup.
 */
fb_status fb_ckpt_scan_file_as(fb_ckpt_scan *scan, const char *path, const fb_ckpt_reader *reader, const void *setup,
                               uint64_t *size_bytes, uint64_t *digest, fb_error *err);

/**
 * Read a file that is open, by this reader, and judge all that it hands out: extents, remarks, facts. Adds to the summary and to
 * *outcome; does not close or digest the rest.
 */
fb_status fb_ckpt_scan_reader(fb_ckpt_scan *scan, const fb_ckpt_reader *reader, const fb_ckpt_range *range, int32_t *outcome,
                              fb_error *err);

/* A folder of files, with or without an index. */
fb_status fb_ckpt_scan_folder(fb_ckpt_scan *scan, const char *path, fb_error *err);

/* The files that one index names (model.safetensors.index.json), asked for by the path of the index. */
fb_status fb_ckpt_scan_index(fb_ckpt_scan *scan, const char *path, fb_error *err);
/* 1: by its name it is such an index. */
int fb_ckpt_is_index(const char *path);

/**
 * Open a file of the checkpoint as fb_ckpt_file_open does, through a symbolic link where FB_CKPT_FOLLOW asks for that; it keeps the
 * name that it is asked for by. FB_E_NOTFOUND also where a link leads nowhere.
 */
fb_status fb_ckpt_scan_open(const fb_ckpt_scan *scan, fb_ckpt_file *file, const char *path, size_t buffer_bytes, fb_error *err);

/* 1 if the name fits the pattern, in which `*` stands for any text. */
int fb_ckpt_name_fits(const char *pattern, const char *name);

#endif
