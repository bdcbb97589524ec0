/*
 * Is every stored number of a checkpoint finite, and if not, which tensor, which element, which code? Nothing that a file says is
 * run, and nothing it says is trusted before it is compared with the bytes that are there.
 *
 * One call reads a file, or a folder of files, once: it checks the structure, scans each tensor and digests all bytes in the same
 * pass, through a fixed buffer, so a file may be larger than memory. What it finds goes to a sink as it is found; the sum goes to a
 * summary. docs/design/checkpoints.md has the reasons.
 */
#ifndef FB_CKPT_CKPT_H
#define FB_CKPT_CKPT_H

#include "base/status.h"
#include "os/os.h"

/* What became of a file or folder, worst last. Anything but FB_CKPT_CLEAN keeps a checkpoint from being committed. */
enum {
    FB_CKPT_CLEAN = 0,       /* all of it was read, and every number that can be non-finite is finite or legal */
    FB_CKPT_UNSUPPORTED = 1, /* some of it could not be looked at by this build, or there was nothing to look at */
    FB_CKPT_LIMIT = 2,       /* a documented bound was reached */
    FB_CKPT_UNREADABLE = 3,  /* not what its format says, incomplete, or changed while it was read */
    FB_CKPT_NON_FINITE = 4
};

/* "clean", "unsupported", "limit", "unreadable", "non_finite"; "?" for another number. Never NULL. */
const char *fb_ckpt_outcome_name(int32_t outcome);

typedef struct fb_ckpt_options {
    uint64_t header_bytes_max; /* of one file's table of tensors; 0: 100,000,000, the bound of the safetensors library */
    uint64_t tensors_max;      /* of one file; 0: 2,000,000 */
    uint64_t files_max;        /* of one folder; 0: 100,000 */
    uint64_t buffer_bytes;     /* 0: 4 MiB; at least 4096 */
    const char *const *legal;  /* NULL-terminated names with `*`: tensors that may hold -Inf, whatever their other values are. NULL:
                                  none.  Additive masks are known without it: see fb_ckpt_finding.legal */
    int32_t sync;              /* 1: make the bytes durable before they are read, so that a verdict on them outlives a power cut */
    int32_t reserved;
} fb_ckpt_options;

/* One tensor that holds something non-finite. Everything is borrowed for the call. */
typedef struct fb_ckpt_finding {
    const char *file; /* path */
    const char *tensor;
    const char *dtype; /* as the file writes it */
    int32_t fb_dtype;  /* FB_F32, ... */
    int32_t ndim;
    const uint64_t *shape;
    uint64_t elements;
    uint64_t index;        /* of the first bad element, flat */
    uint64_t offset_bytes; /* of that element in the file */
    uint64_t bits;         /* of that element; of its bad part when complex */
    uint64_t nan, pos_inf, neg_inf;
    int32_t kind;  /* FB_KIND_* of that element */
    int32_t legal; /* 1: no fault. Either named by options.legal and only -Inf is there; or the name says mask, and the
                      tensor is an additive mask: nothing but 0 and -Inf */
} fb_ckpt_finding;

struct fb_ckpt_tensor;

/* Where results go. Any function may be NULL. Text and structs are borrowed for the call. */
typedef struct fb_ckpt_sink {
    void *ctx;
    void (*finding)(void *ctx, const fb_ckpt_finding *finding);
    /* Each tensor, after it was scanned or passed over. */
    void (*tensor)(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor);
    /* A part that was not looked at. tensor "" when it is a whole file. */
    void (*unscanned)(void *ctx, const char *file, const char *tensor, const char *why);
    /* Something worth telling that changes no outcome, such as a tensor that the index does not list. */
    void (*note)(void *ctx, const char *file, const char *text);
    /* Once a file: its outcome, and the reason when it is not FB_CKPT_CLEAN or FB_CKPT_NON_FINITE. */
    void (*file)(void *ctx, const char *file, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                 const fb_error *reason);
    /* After each piece that was read. */
    void (*progress)(void *ctx, const char *file, uint64_t done_bytes, uint64_t file_bytes);
} fb_ckpt_sink;

enum {
    FB_CKPT_NAME_MAX = 1024
}; /* bytes of a name in the summary, its NUL included; longer ones are cut there, never in the sink */

typedef struct fb_ckpt_summary {
    int32_t outcome; /* the worst of all files */
    int32_t first_kind;
    uint64_t files; /* that hold tensors and were opened */
    uint64_t tensors;
    uint64_t elements;
    uint64_t bytes;     /* of these files */
    uint64_t checked;   /* elements whose format has non-finite codes, and that were looked at */
    uint64_t unscanned; /* parts that were not looked at */
    uint64_t bad;       /* non-finite elements that are not legal */
    uint64_t bad_tensors;
    uint64_t legal_tensors;
    uint64_t digest; /* file: XXH3 of its bytes. Folder: XXH3 over name, NUL, size and digest of each file, sorted by name */
    uint64_t first_index, first_bits;
    char first_file[FB_CKPT_NAME_MAX], first_tensor[FB_CKPT_NAME_MAX]; /* "" when nothing is bad */
    fb_error reason; /* sentence for the worst outcome other than clean and non-finite; code FB_OK when there is none */
} fb_ckpt_summary;

/**
 * Read and judge a checkpoint: one file, or a folder of them.
 * path     a regular file or a folder; symbolic links inside a folder are not followed, and a path that ends in one is refused.
 * options  NULL: the defaults.
 * sink     NULL: only the summary is wanted.
 * summary  filled always; on failure its outcome is FB_CKPT_UNREADABLE and it must not be called clean.
 * Returns FB_OK when an outcome was reached, whatever it is. FB_E_NOTFOUND, FB_E_IO, FB_E_NOMEM or FB_E_USAGE when none was.
 * Cost: one read of all bytes.
 */
fb_status fb_ckpt_scan_path(const fb_os *os, const char *path, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                            fb_ckpt_summary *summary, fb_error *err);

#endif
