/*
 * One file of a checkpoint, opened once and read by pread on that one descriptor: never mapped, since a mapped file that shrinks
 * kills the process. Bytes that are read in order are digested as they pass, so that the digest costs no second read.
 *
 * Order of calls: open, [read, view], finish, close.
 */
#ifndef FB_CKPT_FILE_H
#define FB_CKPT_FILE_H

#include "base/hash_stream.h"
#include "os/os.h"

typedef struct fb_ckpt_file {
    const fb_os *os;
    const char *path; /* borrowed */
    int fd;           /* -1: closed */
    fb_os_info info;  /* as it was when opened */
    fb_hash_stream *hash;
    uint64_t hashed_bytes; /* the digest covers [0, hashed_bytes) */
    uint8_t *window;
    size_t window_room, window_bytes; /* room: what was asked for, or the whole file where that is less */
    uint64_t window_at;               /* the window holds [window_at, window_at + window_bytes) of the file */
    /* Set after opening by who wants them; both see every byte once, in order. */
    void (*tap)(void *ctx, const char *path, const void *data, size_t bytes, int done);
    void *tap_ctx;
    uint64_t work_bytes, work_bytes_max; /* read and decoded so far; FB_E_LIMIT above the second. 0: no limit */
} fb_ckpt_file;

/**
 * Open a regular file for reading. No symbolic link is followed at the end of the path, and a pipe does not block.
 * Errors: FB_E_NOTFOUND, FB_E_IO, FB_E_NOMEM; FB_E_UNSUPPORTED when it is no regular file. On failure nothing is left open.
 */
fb_status fb_ckpt_file_open(fb_ckpt_file *file, const fb_os *os, const char *path, size_t buffer_bytes, fb_error *err);

/* Exactly `bytes` bytes at offset. FB_E_CORRUPT when they are not all there. */
fb_status fb_ckpt_file_read(fb_ckpt_file *file, uint64_t offset, void *data, size_t bytes, fb_error *err);

/* As many bytes at offset as the buffer holds, at least `need` (at most the size of the buffer) or up to the end of the file.
 * Borrowed until the next call. */
fb_status fb_ckpt_file_view(fb_ckpt_file *file, uint64_t offset, size_t need, const uint8_t **data, size_t *bytes, fb_error *err);

/* The digest is not wanted: digest_in_order costs nothing from here on, and 0 comes out. */
void fb_ckpt_file_no_digest(fb_ckpt_file *file);

/* Bytes [offset, offset + bytes) have been read by other means, and are handed over in order: digest them. */
void fb_ckpt_file_took(fb_ckpt_file *file, uint64_t offset, const uint8_t *data, size_t bytes);

/* 1: somebody does, so that bytes must be kept until their turn comes. */
static inline int fb_ckpt_file_wants_all(const fb_ckpt_file *file)
{
    return file->hash != NULL || file->tap != NULL;
}

/* If somebody wants all bytes in order: read up to `offset` what was not read yet. */
fb_status fb_ckpt_file_catch_up(fb_ckpt_file *file, uint64_t offset, fb_error *err);

/* Bytes were read or decoded: FB_E_LIMIT when a file makes us do more work than its size can justify. */
fb_status fb_ckpt_file_worked(fb_ckpt_file *file, uint64_t bytes, fb_error *err);

/* Make sure that the file is still the one that was opened, without reading the rest. FB_E_CORRUPT when it changed. */
fb_status fb_ckpt_file_unchanged(fb_ckpt_file *file, fb_error *err);

/* Digest what was not digested yet, and make sure that the file is still the one that was opened. FB_E_CORRUPT when it changed. */
fb_status fb_ckpt_file_finish(fb_ckpt_file *file, uint64_t *digest, fb_error *err);

/* Accepts a closed file. */
void fb_ckpt_file_close(fb_ckpt_file *file);

#endif
