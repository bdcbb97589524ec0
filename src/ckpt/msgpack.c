#include "ckpt/msgpack.h"

#include <string.h>

#define CORRUPT(m, place, err, ...) fb_fail_at(err, (m)->base + (place), __VA_ARGS__)

fb_status fb_msgpack_take(fb_msgpack *m, size_t bytes, const uint8_t **data, fb_error *err)
{
    size_t got;
    fb_status status;
    if (bytes > m->end - m->at) {
        return CORRUPT(m, m->at, err, "read %s %s: %zu bytes are due, %llu are left", m->what, m->file->path, bytes,
                       (unsigned long long)(m->end - m->at));
    }
    m->walked += bytes;
    if (m->walked > m->walked_max) {
        return fb_fail(err, FB_E_LIMIT, "read %s %s: keys and small values take more than %llu bytes", m->what, m->file->path,
                       (unsigned long long)m->walked_max);
    }
    status = fb_ckpt_file_view(m->file, m->base + m->at, bytes, data, &got, err);
    if (status == FB_OK) m->at += bytes;
    return status;
}

static fb_status take_number(fb_msgpack *m, unsigned bytes, uint64_t *value, fb_error *err)
{
    const uint8_t *data = NULL;
    fb_status status = fb_msgpack_take(m, bytes, &data, err);
    *value = 0;
    if (!data) return status;
    for (unsigned i = 0; i < bytes; i++) *value = *value << 8 | data[i];
    return FB_OK;
}

/* First bytes 0xc0 to 0xdf: what it is, bytes of the length or value that follow, and the length where it is fixed. */
typedef struct shape_of_item {
    int8_t what;
    uint8_t length_bytes, fixed;
} shape_of_item;

static const shape_of_item wide[32] = {
    {FB_MSGPACK_NIL, 0, 0},     {-1, 0, 0},
    {FB_MSGPACK_BOOLEAN, 0, 0}, {FB_MSGPACK_BOOLEAN, 0, 0},
    {FB_MSGPACK_BINARY, 1, 0},  {FB_MSGPACK_BINARY, 2, 0},
    {FB_MSGPACK_BINARY, 4, 0},  {FB_MSGPACK_EXT, 1, 0},
    {FB_MSGPACK_EXT, 2, 0},     {FB_MSGPACK_EXT, 4, 0},
    {FB_MSGPACK_FLOAT32, 0, 4}, {FB_MSGPACK_FLOAT64, 0, 8},
    {FB_MSGPACK_INTEGER, 1, 0}, {FB_MSGPACK_INTEGER, 2, 0},
    {FB_MSGPACK_INTEGER, 4, 0}, {FB_MSGPACK_INTEGER, 8, 0},
    {FB_MSGPACK_INTEGER, 1, 1}, {FB_MSGPACK_INTEGER, 2, 1},
    {FB_MSGPACK_INTEGER, 4, 1}, {FB_MSGPACK_INTEGER, 8, 1},
    {FB_MSGPACK_EXT, 0, 1},     {FB_MSGPACK_EXT, 0, 2},
    {FB_MSGPACK_EXT, 0, 4},     {FB_MSGPACK_EXT, 0, 8},
    {FB_MSGPACK_EXT, 0, 16},    {FB_MSGPACK_TEXT, 1, 0},
    {FB_MSGPACK_TEXT, 2, 0},    {FB_MSGPACK_TEXT, 4, 0},
    {FB_MSGPACK_ARRAY, 2, 0},   {FB_MSGPACK_ARRAY, 4, 0},
    {FB_MSGPACK_MAP, 2, 0},     {FB_MSGPACK_MAP, 4, 0},
};

static void set_item(fb_msgpack_item *i, int what, uint64_t value)
{
    i->what = what;
    i->value = value;
}

/* value: two's complement in so many bits, 8 at least. */
static void drop_sign(fb_msgpack_item *i, unsigned bits)
{
    uint64_t sign = UINT64_C(1) << (bits ? bits - 1 : 0);
    if (!(i->value & sign)) return;
    i->negative = 1;
    i->value = (0 - i->value) & (sign | (sign - 1));
}

static fb_status take_wide(fb_msgpack *m, uint8_t first, fb_msgpack_item *i, fb_error *err)
{
    const shape_of_item *shape = &wide[first - 0xc0];
    uint64_t type;
    fb_status status;
    if (shape->what < 0)
        return CORRUPT(m, i->at, err, "read %s %s: the byte 0xc1 has no meaning in msgpack", m->what, m->file->path);
    set_item(i, shape->what, shape->fixed);
    if (shape->length_bytes && (status = take_number(m, shape->length_bytes, &i->value, err)) != FB_OK) return status;
    if (i->what == FB_MSGPACK_INTEGER && shape->fixed) drop_sign(i, 8u * shape->length_bytes);
    if (i->what != FB_MSGPACK_EXT) return FB_OK;
    status = take_number(m, 1, &type, err);
    i->ext = (int)type;
    return status;
}

fb_status fb_msgpack_next(fb_msgpack *m, fb_msgpack_item *i, fb_error *err)
{
    uint64_t first;
    uint64_t begin = m->at;
    fb_status status = take_number(m, 1, &first, err);
    memset(i, 0, sizeof *i);
    i->at = begin;
    if (status != FB_OK) return status;
    if (first < 0x80) set_item(i, FB_MSGPACK_INTEGER, first);
    else if (first < 0x90) set_item(i, FB_MSGPACK_MAP, first & 0x0f);
    else if (first < 0xa0) set_item(i, FB_MSGPACK_ARRAY, first & 0x0f);
    else if (first < 0xc0) set_item(i, FB_MSGPACK_TEXT, first & 0x1f);
    else if (first < 0xe0) status = take_wide(m, (uint8_t)first, i, err);
    else set_item(i, FB_MSGPACK_INTEGER, 256 - first);
    if (first >= 0xe0) i->negative = 1;
    if (status != FB_OK) return status;
    if (i->what >= FB_MSGPACK_FLOAT32 && i->value > m->end - m->at) { /* an item of an array takes a byte at least */
        return CORRUPT(m, begin, err, "read %s %s: %llu bytes or items are announced, %llu bytes are left", m->what, m->file->path,
                       (unsigned long long)i->value, (unsigned long long)(m->end - m->at));
    }
    return FB_OK;
}
