/*
 * Opening a file of the checkpoint, through a symbolic link where the caller wants that. The link is resolved first and the file it
 * leads to opened as any other, without following: so one that is put in its place meanwhile is refused, and one that is turned to
 * another file while we read is found by the comparison at the end, which goes by the name that was asked for.
 */
#include <errno.h>

#include "ckpt/scan.h"

fb_status fb_ckpt_scan_open(const fb_ckpt_scan *scan, fb_ckpt_file *file, const char *path, size_t buffer_bytes, fb_error *err)
{
    const fb_os *os = scan->os;
    char real[FB_OS_PATH_MAX];
    fb_os_info info;
    fb_status status;
    int64_t got;
    if (!(scan->options.flags & FB_CKPT_FOLLOW) || os->lstat(os->ctx, path, &info) < 0 || info.kind != FB_OS_OTHER)
        return fb_ckpt_file_open(file, os, path, buffer_bytes, err);
    got = os->realpath(os->ctx, path, real, sizeof real);
    if (got == -ENOENT || got == -ELOOP || got == -ENOTDIR)
        return fb_fail(err, FB_E_NOTFOUND, "read checkpoint %s: it is a symbolic link that leads nowhere", path);
    if (got < 0) return fb_fail_os(err, (int)-got, "read checkpoint %s: find out where it leads", path);
    status = fb_ckpt_file_open(file, os, real, buffer_bytes, err);
    if (status == FB_OK) file->path = path;
    return status;
}
