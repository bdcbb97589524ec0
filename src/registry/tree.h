/*
 * A file, or a folder with all that is in it, as one thing: given a second name, copied, removed. Symbolic links are never
 * followed.
 */
#ifndef FB_REGISTRY_TREE_H
#define FB_REGISTRY_TREE_H

#include "os/os.h"

enum { FB_TREE_LINK = 1, FB_TREE_CLONE = 2, FB_TREE_COPY = 3 };

/**
 * Put what lies at `from` a second time at `to`: whole and durable on return, or not at all. The folder of `to` must exist, and
 * `to`.part in it is ours: what a crash left there is removed.
 * A folder gets folders of its own with the files in them; firstbad-state.json and .firstbad are left out.
 * digest  of a file that is copied: XXH3 that its bytes must give; 0: whatever they are.
 * Errors: FB_E_UNSUPPORTED (the file system cannot do it in this way, or there is a link or a pipe in the folder), FB_E_EXISTS,
 * FB_E_CORRUPT (it changed meanwhile), FB_E_IO, FB_E_NOMEM, FB_E_LIMIT.
 */
fb_status fb_tree_twice(const fb_os *os, const char *from, const char *to, int how, uint64_t digest, fb_error *err);

/* Nothing there is no error. */
fb_status fb_tree_remove(const fb_os *os, const char *path, fb_error *err);

/*
 * A number that changes when anything in a folder is added, removed, replaced or written to: names, kinds, sizes, times and inodes
 * of all in it, without what is ours. 0: it is no folder, or could not be listed.
 */
uint64_t fb_tree_mark(const fb_os *os, const char *path);

/* When a file, or anything in a folder, was written to last, by the clock of its file system. INT64_MAX when that is not known. */
int64_t fb_tree_newest_ns(const fb_os *os, const char *path);

/* Bytes of its files. */
fb_status fb_tree_bytes(const fb_os *os, const char *path, uint64_t *bytes, fb_error *err);

#endif
