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
#include "firstbad/scan.h"
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

/* What a scan does beside judging. */
enum {
    FB_CKPT_NO_DIGEST = 1, /* no digest is made, which spares the second look at each byte; the summary's digest is 0 */
    FB_CKPT_STATS = 2,     /* full statistics of each tensor, for the sink */
    FB_CKPT_CRC = 4,       /* compare checksums that the format itself keeps (zip) */
    FB_CKPT_FIRST = 8,     /* stop at the first bad element of the checkpoint; the counts are then those up to there */
    FB_CKPT_FOLLOW = 16    /* symbolic links to regular files are read, as the cache of Hugging Face has them. For a person who asks
                              what stands there now; a verdict that is kept must not be on bytes that lie elsewhere */
};

typedef struct fb_ckpt_options {
    uint64_t header_bytes_max; /* of one file's table of tensors; 0: 100,000,000, the bound of the safetensors library */
    uint64_t tensors_max;      /* of one file; 0: 2,000,000 */
    uint64_t files_max;        /* of one folder, its folders included; 0: 200,000 */
    uint64_t buffer_bytes;     /* a thread; 0: 1 MiB, which fits a second-level cache; at least 16 KiB */
    const char *const *legal;  /* NULL-terminated names with `*`: tensors that may hold -Inf, whatever their other values are. NULL:
                                  none.  Additive masks are known without it: see fb_ckpt_finding.legal */
    int32_t sync;              /* 1: make the bytes durable before they are read, so that a verdict on them outlives a power cut */
    int32_t flags;             /* FB_CKPT_NO_DIGEST | ... */
    int32_t threads;           /* 0 or 1: the calling thread alone. Outcome, findings, statistics and digest do not depend on it */
    int32_t reserved;
    /* Every byte of every file that counts, in order, for a digest of the caller's own; done: the file ended, data is NULL.
       NULL: not wanted. Called from one thread at a time. */
    void (*tap)(void *ctx, const char *file, const void *data, size_t bytes, int done);
    void *tap_ctx;
    int (*stop)(void *ctx); /* NULL, or asked now and then: a return other than 0 ends the scan with FB_E_WITHHELD */
    void *stop_ctx;
} fb_ckpt_options;

/* One tensor that holds something non-finite. Everything is borrowed for the call. */
typedef struct fb_ckpt_finding {
    const char *file; /* path */
    const char *tensor;
    const char *dtype; /* as the file writes it */
    int32_t fb_dtype;  /* FB_F32, ...; of a block format that of the bad number inside the block */
    int32_t ndim;
    const uint64_t *shape; /* of the whole tensor, where the file holds a piece of it */
    uint64_t elements;     /* of the whole tensor */
    uint64_t index; /* of the first bad element in the whole tensor, flat, the last dimension fastest. Of a block format: of the
                              first element that the bad number scales */
    uint64_t offset_bytes;          /* of that element in the file; FB_NO_INDEX when it is compressed, or lies inside a text */
    uint64_t bits;                  /* of that element; of its bad part when complex */
    uint64_t nan, pos_inf, neg_inf; /* of this piece. Of a block format: numbers inside blocks, not elements */
    int32_t kind;                   /* FB_KIND_* of that element */
    int32_t legal;                  /* 0, or why it is no fault: FB_CKPT_LEGAL_* */
    const char *lane;               /* "d": which number of the block it is; "" otherwise */
    int32_t number;                 /* 1: a plain number that the trainer saved, not a tensor */
    int32_t unreferenced; /* 1: bytes of a storage that no tensor refers to: reported, no fault; tensor is the storage's name */
} fb_ckpt_finding;

enum {
    FB_CKPT_LEGAL_NAMED = 1,       /* named by options.legal, and only -Inf is there */
    FB_CKPT_LEGAL_MASK = 2,        /* the name says mask, and it holds nothing but 0 and -Inf */
    FB_CKPT_LEGAL_NUMBER = 3,      /* an Inf that a healthy program writes, such as the best loss before the first evaluation */
    FB_CKPT_LEGAL_UNREFERENCED = 4 /* no tensor refers to it */
};

/* Statistics of one tensor, or of one piece of it. Non-finite elements are counted and enter nothing else. */
typedef struct fb_ckpt_stats {
    fb_scan_result scan;    /* its counts; extremes; sum of squares: fb_scan_norm gives the norm */
    fb_histogram histogram; /* FB_HISTOGRAM_EXACT */
    double min, max;        /* smallest and largest finite value, with sign; 0, 0 when there is none */
    uint64_t finite;
} fb_ckpt_stats;

struct fb_ckpt_tensor;

/* Where results go. Any function may be NULL. Text and structs are borrowed for the call. */
typedef struct fb_ckpt_sink {
    void *ctx;
    void (*finding)(void *ctx, const fb_ckpt_finding *finding);
    /* Each tensor or piece, after it was scanned or passed over. stats: NULL unless options.flags ask for them and it was
       looked at. */
    void (*tensor)(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats);
    /* A part that was not looked at. tensor "" when it is a whole file. */
    void (*unscanned)(void *ctx, const char *file, const char *tensor, const char *why);
    /* Something worth telling that changes no outcome, such as a tensor that the index does not list. */
    void (*note)(void *ctx, const char *file, const char *text);
    /* What a trusting loader would run: import "os.system", and what is known of it. Changes no outcome: nothing here runs it. */
    void (*security)(void *ctx, const char *file, const char *import, const char *text);
    /* Once a file: its outcome, and the reason when it is not FB_CKPT_CLEAN or FB_CKPT_NON_FINITE. */
    void (*file)(void *ctx, const char *file, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                 const fb_error *reason);
    /* Now and then: bytes read so far, and of all files of this checkpoint. Called from one thread at a time. */
    void (*progress)(void *ctx, const char *file, uint64_t done_bytes, uint64_t total_bytes);
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
    uint64_t security;     /* findings of that kind */
    uint64_t unreferenced; /* non-finite elements that no tensor refers to */
    uint64_t digest;       /* file: XXH3 of its bytes. Folder: XXH3 over name, NUL, size and digest of each file, sorted by name */
    uint64_t first_index, first_bits;
    char first_file[FB_CKPT_NAME_MAX], first_tensor[FB_CKPT_NAME_MAX]; /* "" when nothing is bad */
    char format[64]; /* of a file: its reader; of a folder: its layout ("torch.distributed.checkpoint", "deepspeed", "megatron",
                        "safetensors, 3 shards", "folder") */
    int64_t step;    /* that the files agree on; -1: none says */
    fb_error reason; /* sentence for the worst outcome other than clean and non-finite; code FB_OK when there is none */
} fb_ckpt_summary;

/**
 * Read and judge a checkpoint: one file, or a folder of them.
 * path     a regular file or a folder. Without FB_CKPT_FOLLOW symbolic links inside a folder are not followed, and a path that ends
 *          in one is refused. With it, links to regular files are; one to a folder is not, and is told.
 * options  NULL: the defaults.
 * sink     NULL: only the summary is wanted.
 * summary  filled always; on failure its outcome is FB_CKPT_UNREADABLE and it must not be called clean.
 * Returns FB_OK when an outcome was reached, whatever it is. FB_E_NOTFOUND, FB_E_IO, FB_E_NOMEM or FB_E_USAGE when none was.
 * Cost: one read of all bytes.
 */
fb_status fb_ckpt_scan_path(const fb_os *os, const char *path, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                            fb_ckpt_summary *summary, fb_error *err);

#endif
