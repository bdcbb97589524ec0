/* safetensors.c: see safetensors.h. */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

#define explain(err, ...) snprintf((err)->message, sizeof(err)->message, __VA_ARGS__)

/* The length and the JSON, padded with spaces to a multiple of 8 as the reference writer does. NULL when memory is short. */
static char *build_header(const char *metadata, const tensor_entry *entries, size_t n, size_t *bytes)
{
    char *text = NULL;
    size_t offset = 0;
    FILE *out = open_memstream(&text, bytes);
    if (!out) return NULL;
    fprintf(out, "%8s{\"__metadata__\":%s", "", metadata);
    for (size_t i = 0; i < n; i++) {
        const tensor_entry *e = &entries[i];
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", e->name, e->dtype);
        for (int d = 0; d < e->ndim; d++) fprintf(out, "%s%zu", d ? "," : "", e->shape[d]);
        fprintf(out, "],\"data_offsets\":[%zu,%zu]}", offset, offset + e->bytes);
        offset += e->bytes;
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0) fputc(' ', out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    uint64_t length = *bytes - 8;
    memcpy(text, &length, sizeof length); /* little-endian, as every machine that this trainer runs on */
    return text;
}

static int sync_folder(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(bytes ? bytes : 1) : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int status = fsync(fd);
    close(fd);
    return status;
}

static int write_all(FILE *file, const char *header, size_t header_bytes, const tensor_entry *entries, size_t n)
{
    if (fwrite(header, 1, header_bytes, file) != header_bytes) return -1;
    for (size_t i = 0; i < n; i++)
        if (fwrite(entries[i].data, 1, entries[i].bytes, file) != entries[i].bytes) return -1;
    return fflush(file) == 0 && fsync(fileno(file)) == 0 ? 0 : -1;
}

int safetensors_write(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err)
{
    char temporary[PATH_BYTES];
    size_t header_bytes = 0;
    int status = -1;
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", path) >= sizeof temporary) {
        explain(err, "write %s: the path is longer than %d bytes", path, PATH_BYTES);
        return -1;
    }
    char *header = build_header(metadata, entries, n, &header_bytes);
    if (!header) {
        explain(err, "write %s: no memory for the header of %zu tensors", path, n);
        return -1;
    }
    FILE *file = fopen(temporary, "wb");
    if (!file) {
        explain(err, "write %s: cannot create %s: %s", path, temporary, strerror(errno));
        goto done;
    }
    int written = write_all(file, header, header_bytes, entries, n);
    int saved = errno;
    if (fclose(file) != 0 && written == 0) {
        written = -1;
        saved = errno;
    }
    if (written != 0 || rename(temporary, path) != 0 || sync_folder(path) != 0) {
        explain(err, "write %s: %s", path, strerror(written != 0 ? saved : errno));
        unlink(temporary);
        goto done;
    }
    status = 0;
done:
    free(header);
    return status;
}

int safetensors_write_over(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err)
{
    size_t header_bytes = 0;
    char *header = build_header(metadata, entries, n, &header_bytes);
    FILE *file = header ? fopen(path, "wb") : NULL;
    int written = file ? write_all(file, header, header_bytes, entries, n) : -1;
    int saved = errno;
    if (file && fclose(file) != 0 && written == 0) {
        written = -1;
        saved = errno;
    }
    if (written != 0) explain(err, "write %s: %s", path, header ? strerror(saved) : "no memory");
    free(header);
    return written;
}

int safetensors_read(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err)
{
    size_t header_bytes = 0;
    int status = -1;
    char *expected = build_header(metadata, entries, n, &header_bytes), *found = calloc(1, header_bytes + 1);
    FILE *file = fopen(path, "rb");
    if (!expected || !found) {
        explain(err, "read %s: no memory for the header of %zu tensors", path, n);
        goto done;
    }
    if (!file) {
        explain(err, "read %s: %s", path, strerror(errno));
        goto done;
    }
    size_t got = fread(found, 1, header_bytes, file);
    if (got != header_bytes || memcmp(found, expected, header_bytes) != 0) {
        for (size_t i = 0; i < got; i++)
            if (found[i] < ' ' || found[i] > '~') found[i] = ' ';
        char *begin = got > 24 ? found + 8 : found, *end = strchr(begin, '}');
        if (end) end[1] = '\0';
        explain(err, "read %s: expected a checkpoint of %s, found a file that begins with %.200s", path, metadata, begin);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        if (fread(entries[i].data, 1, entries[i].bytes, file) != entries[i].bytes) {
            explain(err, "read %s: the file ends within tensor %s", path, entries[i].name);
            goto done;
        }
    }
    if (fgetc(file) != EOF) {
        explain(err, "read %s: there are bytes after the last tensor", path);
        goto done;
    }
    status = 0;
done:
    if (file) fclose(file);
    free(expected);
    free(found);
    return status;
}
