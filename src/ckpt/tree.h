/*
 * All files below a folder, by name, before any of them is read: what a checkpoint consists of, and how many bytes it has. Folders
 * inside are entered, symbolic links to folders are not; links to files are files where the caller wants that. What is firstbad's
 * own is left out, and so are folders that never hold a checkpoint (.git, __pycache__).
 */
#ifndef FB_CKPT_TREE_H
#define FB_CKPT_TREE_H

#include "ckpt/pool.h"
#include "os/os.h"

enum { FB_TREE_DEPTH_MAX = 16 };

typedef struct fb_tree_file {
    const char *name; /* below the folder: "iter_0000010/common.pt" */
    const char *base; /* its last part */
    uint64_t size_bytes;
    uint32_t dir;
    int32_t kind; /* FB_OS_FILE; FB_OS_OTHER: a link that is not followed, a pipe, a device */
} fb_tree_file;

typedef struct fb_tree_dir {
    const char *name; /* below the folder; "" for the folder itself */
    fb_os_info info;  /* when it was listed */
    uint32_t parent, depth;
    uint64_t first, count; /* its own files: in fb_tree.by_dir */
} fb_tree_dir;

typedef struct fb_tree {
    const char *path;
    fb_tree_file *files; /* sorted by name, as bytes */
    uint64_t count;
    fb_tree_dir *dirs; /* the folder itself is number 0; parents before children */
    uint64_t dir_count;
    uint32_t *by_dir; /* files, those of one folder together, and sorted by name there */
    uint64_t file_room, dir_room;
    uint64_t bytes;  /* of all regular files */
    int32_t changed; /* 1: a file was gone again while the folder was listed */
    fb_pool pool;
} fb_tree;

/**
 * List. entries_max: of files and folders together. follow: other than 0, a symbolic link to a regular file is listed as that
 * file, with its size, unless it leads into the folder itself, where the file is listed anyway. Errors: FB_E_LIMIT (too many, too
 * deep, a path too long), FB_E_NOTFOUND,
 * FB_E_IO,
 * FB_E_NOMEM. The tree is released with fb_tree_release in any case; one that is all zero may be released too.
 */
fb_status fb_tree_list(fb_tree *tree, const fb_os *os, const char *path, uint64_t entries_max, int follow, fb_error *err);
void fb_tree_release(fb_tree *tree);

/* 1: the symbolic link of this path leads to something below the listed folder. */
int fb_tree_leads_inside(const fb_tree *tree, const fb_os *os, const char *path);

/* The file of this name in a folder, or NULL. */
const fb_tree_file *fb_tree_find(const fb_tree *tree, uint32_t dir, const char *base);
/* Number i of the files of a folder. */
const fb_tree_file *fb_tree_of_dir(const fb_tree *tree, uint32_t dir, uint64_t i);
/* The folder of this name below the root, or UINT32_MAX. */
uint32_t fb_tree_find_dir(const fb_tree *tree, uint32_t parent, const char *base);
/* The last part of a folder's name; of the root, that of the path it was asked for. */
const char *fb_tree_dir_base(const fb_tree *tree, uint32_t dir);

#endif
