#include "scan_sha256.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"

struct scan_sha256 {
    scan_result *result;
    EVP_MD_CTX *context;
    int open;   /* a file is in the middle of its bytes */
    int failed; /* libcrypto refused something */
};

scan_sha256 *scan_sha256_new(scan_result *result)
{
    scan_sha256 *sha = fb_calloc(1, sizeof *sha);
    if (!sha) return NULL;
    sha->result = result;
    sha->context = EVP_MD_CTX_new();
    if (sha->context) return sha;
    fb_free(sha);
    return NULL;
}

void scan_sha256_free(scan_sha256 *sha)
{
    if (!sha) return;
    EVP_MD_CTX_free(sha->context);
    fb_free(sha);
}

static void begin(scan_sha256 *sha)
{
    if (!sha->open && EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL) != 1) sha->failed = 1;
    sha->open = 1;
}

static void end(scan_sha256 *sha, char out[SCAN_SHA256_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    begin(sha); /* an empty file has a digest too */
    sha->open = 0;
    if (EVP_DigestFinal_ex(sha->context, digest, &bytes) != 1 || bytes * 2 + 1 != SCAN_SHA256_TEXT) {
        sha->failed = 1;
        return;
    }
    for (unsigned i = 0; i < bytes; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * bytes] = '\0';
}

void scan_sha256_tap(void *ctx, const char *path, const void *data, size_t bytes, int done)
{
    scan_sha256 *sha = ctx;
    char digest[SCAN_SHA256_TEXT] = "";
    begin(sha);
    if (data && bytes && EVP_DigestUpdate(sha->context, data, bytes) != 1) sha->failed = 1;
    if (!done) return;
    end(sha, digest);
    if (sha->result->folder) {
        scan_file *file = scan_result_file(sha->result, path);
        if (file) memcpy(file->sha256, digest, sizeof digest);
    } else {
        memcpy(sha->result->sha256, digest, sizeof digest);
    }
}

typedef struct entry {
    const scan_file *file;
} entry;

static int by_path(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    return strcmp(a->file->path, b->file->path);
}

/* The name inside the folder, however the folder was written. */
static const char *inside(const scan_result *result, const char *path)
{
    size_t n = strlen(result->target);
    if (strncmp(path, result->target, n) == 0) path += n;
    while (*path == '/') path++;
    return path;
}

static int sum_folder(scan_sha256 *sha)
{
    scan_result *result = sha->result;
    size_t count = 0;
    entry *order = fb_calloc(result->files.count ? result->files.count : 1, sizeof *order);
    if (!order) return 0;
    for (size_t i = 0; i < result->files.count; i++) {
        const scan_file *file = scan_file_at(&result->files, i);
        if (file->path && *file->sha256) order[count++].file = file;
    }
    qsort(order, count, sizeof *order, by_path);
    if (count) begin(sha);
    for (size_t i = 0; i < count; i++) {
        const char *name = inside(result, order[i].file->path);
        if (EVP_DigestUpdate(sha->context, order[i].file->sha256, SCAN_SHA256_TEXT - 1) != 1 ||
            EVP_DigestUpdate(sha->context, "  ", 2) != 1 || EVP_DigestUpdate(sha->context, name, strlen(name)) != 1 ||
            EVP_DigestUpdate(sha->context, "\n", 1) != 1)
            sha->failed = 1;
    }
    if (count) end(sha, result->sha256);
    fb_free(order);
    return 1;
}

int scan_sha256_finish(scan_sha256 *sha)
{
    sha->open = 0;
    if (sha->result->folder && !sum_folder(sha)) sha->failed = 1;
    if (!sha->failed) return 1;
    cli_error("digest %s: SHA-256 could not be computed", sha->result->path);
    return 0;
}
