/* A well-formed zip archive, member by member, for tests that damage what is inside. It aborts when memory is gone. */
#ifndef FB_TESTS_SUPPORT_MAKE_ZIP_H
#define FB_TESTS_SUPPORT_MAKE_ZIP_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct made_zip {
    uint8_t *data, *directory;
    size_t bytes, directory_bytes, members;
} made_zip;

static inline void made_zip_put(uint8_t **to, size_t *bytes, const void *from, size_t count)
{
    *to = realloc(*to, *bytes + count + 1);
    if (!*to) abort();
    if (count) memcpy(*to + *bytes, from, count);
    *bytes += count;
}

static inline void made_zip_set(uint8_t *p, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(value >> 8 * i);
}

static inline void made_zip_begin(made_zip *z)
{
    memset(z, 0, sizeof *z);
}

static inline void made_zip_add(made_zip *z, const char *name, const void *content, size_t bytes, int deflated)
{
    uint8_t local[30] = "PK\3\4", central[46] = "PK\1\2";
    uLong room = compressBound((uLong)bytes) + 64;
    uint8_t *packed = malloc(room);
    size_t stored = bytes, name_bytes = strlen(name);
    uint32_t crc = (uint32_t)crc32(0, content, (uInt)bytes);
    if (!packed) abort();
    if (deflated) {
        z_stream s;
        memset(&s, 0, sizeof s);
        if (deflateInit2(&s, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
        s.next_in = (Bytef *)(uintptr_t)content;
        s.avail_in = (uInt)bytes;
        s.next_out = packed;
        s.avail_out = (uInt)room;
        if (deflate(&s, Z_FINISH) != Z_STREAM_END) abort();
        stored = room - s.avail_out;
        (void)deflateEnd(&s);
    }
    made_zip_set(local + 8, deflated ? 8 : 0, 2);
    made_zip_set(local + 14, crc, 4);
    made_zip_set(local + 18, stored, 4);
    made_zip_set(local + 22, bytes, 4);
    made_zip_set(local + 26, name_bytes, 2);
    memcpy(central + 10, local + 8, 2);
    memcpy(central + 16, local + 14, 14);
    made_zip_set(central + 42, z->bytes, 4);
    made_zip_put(&z->data, &z->bytes, local, sizeof local);
    made_zip_put(&z->data, &z->bytes, name, name_bytes);
    made_zip_put(&z->data, &z->bytes, deflated ? packed : content, stored);
    made_zip_put(&z->directory, &z->directory_bytes, central, sizeof central);
    made_zip_put(&z->directory, &z->directory_bytes, name, name_bytes);
    z->members++;
    free(packed);
}

static inline void made_zip_end(made_zip *z)
{
    uint8_t end[22] = "PK\5\6";
    made_zip_set(end + 8, z->members, 2);
    made_zip_set(end + 10, z->members, 2);
    made_zip_set(end + 12, z->directory_bytes, 4);
    made_zip_set(end + 16, z->bytes, 4);
    made_zip_put(&z->data, &z->bytes, z->directory, z->directory_bytes);
    made_zip_put(&z->data, &z->bytes, end, sizeof end);
}

static inline void made_zip_free(made_zip *z)
{
    free(z->data);
    free(z->directory);
}

#endif
