/*
 * Copies of folders of tests/golden that a test may damage, and what a scan of them says. Every copy lies below one folder of the
 * process, which goes with drop_folders.
 */
#ifndef FB_TESTS_SUPPORT_CKPT_FOLDER_H
#define FB_TESTS_SUPPORT_CKPT_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt/ckpt.h"

typedef struct folder_seen {
    uint64_t findings, unscanned, notes, files;
    char found[4096]; /* "file|tensor|index\n" for each finding, without the folder */
    char all_notes[8192], all_unscanned[4096];
    char shape[128]; /* of the last finding */
    uint64_t progress_last, progress_total;
} folder_seen;

static char folders_root[64];
static unsigned folders_made;

static inline void put_text(char *out, size_t room, const char *text)
{
    size_t used = strlen(out);
    (void)snprintf(out + used, room - used, "%s\n", text);
}

static inline const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static inline void folder_finding(void *ctx, const fb_ckpt_finding *f)
{
    folder_seen *s = ctx;
    char text[1024];
    s->findings++;
    (void)snprintf(text, sizeof text, "%s|%s|%llu", last_name(f->file), f->tensor, (unsigned long long)f->index);
    put_text(s->found, sizeof s->found, text);
    s->shape[0] = '\0';
    for (int i = 0; i < f->ndim; i++) {
        size_t used = strlen(s->shape);
        (void)snprintf(s->shape + used, sizeof s->shape - used, "%s%llu", i ? "," : "", (unsigned long long)f->shape[i]);
    }
}

static inline void folder_unscanned(void *ctx, const char *file, const char *tensor, const char *why)
{
    folder_seen *s = ctx;
    char text[1024];
    s->unscanned++;
    (void)snprintf(text, sizeof text, "%s|%s|%s", last_name(file), tensor, why);
    put_text(s->all_unscanned, sizeof s->all_unscanned, text);
}

static inline void folder_note(void *ctx, const char *file, const char *text)
{
    folder_seen *s = ctx;
    (void)file;
    s->notes++;
    put_text(s->all_notes, sizeof s->all_notes, text);
}

static inline void folder_file(void *ctx, const char *file, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                               const fb_error *reason)
{
    (void)file;
    (void)format;
    (void)outcome;
    (void)bytes;
    (void)digest;
    (void)reason;
    ((folder_seen *)ctx)->files++;
}

static inline void folder_progress(void *ctx, const char *file, uint64_t done, uint64_t total)
{
    folder_seen *s = ctx;
    (void)file;
    assert_true(done <= total);
    assert_true(done >= s->progress_last);
    s->progress_last = done;
    s->progress_total = total;
}

static inline fb_ckpt_summary scan_folder_with(const char *path, const fb_ckpt_options *options, folder_seen *seen)
{
    static folder_seen ignored;
    fb_ckpt_sink sink;
    fb_ckpt_summary summary;
    fb_error err;
    if (!seen) seen = &ignored;
    memset(seen, 0, sizeof *seen);
    memset(&sink, 0, sizeof sink);
    memset(&err, 0, sizeof err);
    sink.ctx = seen;
    sink.finding = folder_finding;
    sink.unscanned = folder_unscanned;
    sink.note = folder_note;
    sink.file = folder_file;
    sink.progress = folder_progress;
    if (fb_ckpt_scan_path(fb_os_posix(), path, options, &sink, &summary, &err) != FB_OK) fail_msg("%s: %s", path, err.message);
    return summary;
}

static inline fb_ckpt_summary scan_folder(const char *path, folder_seen *seen)
{
    return scan_folder_with(path, NULL, seen);
}

/* ---- copies ----------------------------------------------------------------------------------------------------------------- */

static inline void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    size_t got;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!in || !out) fail_msg("copy %s to %s", from, to);
    while (in && out && (got = fread(buffer, 1, sizeof buffer, in)) > 0) assert_int_equal(fwrite(buffer, 1, got, out), got);
    if (in) (void)fclose(in);
    if (out) assert_int_equal(fclose(out), 0);
}

static inline void copy_tree(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    const struct dirent *entry;
    if (!dir) fail_msg("no folder %s: run the tests from the root of the repository", from);
    assert_int_equal(mkdir(to, 0755), 0);
    while (dir && (entry = readdir(dir)) != NULL) {
        char a[1024], b[1024];
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        (void)snprintf(a, sizeof a, "%s/%s", from, entry->d_name);
        (void)snprintf(b, sizeof b, "%s/%s", to, entry->d_name);
        assert_int_equal(stat(a, &st), 0);
        if (S_ISDIR(st.st_mode)) copy_tree(a, b);
        else copy_file(a, b);
    }
    if (dir) (void)closedir(dir);
}

static inline void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        char name[1024];
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (lstat(name, &st) == 0 && S_ISDIR(st.st_mode)) remove_tree(name);
        else (void)unlink(name);
    }
    if (dir) (void)closedir(dir);
    (void)rmdir(path);
}

static inline int drop_folders(void **ignored)
{
    (void)ignored;
    if (folders_root[0]) remove_tree(folders_root);
    folders_root[0] = '\0';
    return 0;
}

/* A new folder for this test: an empty one when golden is NULL. Its path lives in `path`. as: its last name. */
static inline void new_folder(const char *golden, const char *as, char path[512])
{
    char parent[256];
    if (!folders_root[0]) {
        (void)snprintf(folders_root, sizeof folders_root, "/tmp/firstbad-folders-XXXXXX");
        assert_non_null(mkdtemp(folders_root));
    }
    (void)snprintf(parent, sizeof parent, "%s/%u", folders_root, folders_made++);
    assert_int_equal(mkdir(parent, 0755), 0);
    (void)snprintf(path, 512, "%s/%s", parent, as);
    if (golden) copy_tree(golden, path);
    else assert_int_equal(mkdir(path, 0755), 0);
}

static inline void in_folder(const char *folder, const char *name, char path[1024])
{
    (void)snprintf(path, 1024, "%s/%s", folder, name);
}

static inline void drop_file(const char *folder, const char *name)
{
    char path[1024];
    in_folder(folder, name, path);
    assert_int_equal(unlink(path), 0);
}

static inline void put_file(const char *folder, const char *name, const char *text)
{
    char path[1024];
    FILE *out;
    in_folder(folder, name, path);
    out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    assert_int_equal(fclose(out), 0);
}

/* The first half of a file stays. */
static inline void tear_file(const char *folder, const char *name)
{
    char path[1024];
    struct stat st;
    in_folder(folder, name, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
}

static inline void take_file_from(const char *folder, const char *name, const char *from)
{
    char path[1024];
    in_folder(folder, name, path);
    copy_file(from, path);
}

#endif
