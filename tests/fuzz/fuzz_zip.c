/*
 * The directory of zip archives, against any bytes. What must hold: it ends, reads inside the file, and of an archive that is taken
 * names are unique and safe, members lie inside it and share no byte, and what is loaded is as long as its member. An archive that
 * is taken is taken again inside a larger file, with the same members.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/zip.h"
#include "support/memory_os.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { LOAD_MAX = 1 << 16, FRONT = 3 };

static void require(int holds)
{
    if (!holds) abort();
}

static void check_members(fb_zip *zip, size_t bytes)
{
    for (uint64_t i = 0; i < fb_zip_count(zip); i++) {
        const fb_zip_member *m = fb_zip_member_at(zip, i);
        uint8_t *content;
        fb_error err;
        require(m->name[0] != '\0' && m->name[0] != '/' && strchr(m->name, '\\') == NULL);
        require(fb_zip_find(zip, m->name) == m);
        require(m->header_bytes_at + 30 <= m->data_at && m->data_at <= bytes && m->stored_bytes <= bytes - m->data_at);
        for (uint64_t k = 0; k < i; k++) {
            const fb_zip_member *other = fb_zip_member_at(zip, k);
            require(m->header_bytes_at >= other->data_at + other->stored_bytes ||
                    other->header_bytes_at >= m->data_at + m->stored_bytes);
        }
        if (fb_zip_load(zip, m, LOAD_MAX, &content, &err) == FB_OK) {
            require(content != NULL && content[m->bytes] == '\0');
            fb_free(content);
        } else {
            require(content == NULL && err.message[0] != '\0');
        }
    }
}

static uint64_t open_and_check(const uint8_t *data, size_t bytes, size_t front, size_t count, fb_status *status)
{
    memory_os memory;
    fb_ckpt_file file;
    fb_ckpt_range range;
    fb_zip *zip;
    fb_error err;
    uint64_t members = 0;
    fb_error_clear(&err);
    require(fb_ckpt_file_open(&file, memory_os_init(&memory, data, bytes), "memory.zip", 4096, &err) == FB_OK);
    memset(&range, 0, sizeof range);
    range.file = &file;
    range.offset_bytes = front;
    range.bytes = count;
    *status = fb_zip_open(&zip, &range, &err);
    require((*status == FB_OK) == (zip != NULL));
    require(*status == FB_OK || err.message[0] != '\0');
    if (zip) {
        members = fb_zip_count(zip);
        check_members(zip, bytes);
    }
    fb_zip_close(zip);
    fb_ckpt_file_close(&file);
    return members;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *larger = calloc(bytes + 2 * FRONT, 1);
    fb_status alone, inside;
    uint64_t members = open_and_check(data, bytes, 0, bytes, &alone);
    require(larger != NULL);
    if (bytes) memcpy(larger + FRONT, data, bytes);
    require(open_and_check(larger, bytes + 2 * FRONT, FRONT, bytes, &inside) == members);
    require(inside == alone);
    free(larger);
    return 0;
}
