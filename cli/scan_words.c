/*
 * Numbers and names as `firstbad scan` writes them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"
#include "scan_show.h"

const char *scan_count(uint64_t n, char out[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n), used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

const char *scan_bytes(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes / 1000;
    size_t unit = 0;
    if (bytes < 1000) {
        (void)snprintf(out, 32, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
        return out;
    }
    /* 999.95 would be written as 1000. */
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(out, 32, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
    return out;
}

const char *scan_dims(const uint64_t *dims, int32_t ndim, char *out, size_t room)
{
    static const char cut[] = "...]";
    size_t used = (size_t)snprintf(out, room, "[");
    for (int32_t i = 0; i < ndim; i++) {
        char number[32];
        size_t bytes = (size_t)snprintf(number, sizeof number, "%s%" PRIu64, i ? ", " : "", dims[i]);
        if (used + bytes + sizeof cut + 2 > room) {
            (void)snprintf(out + used, room - used, "%s%s", i ? ", " : "", cut);
            return out;
        }
        memcpy(out + used, number, bytes + 1);
        used += bytes;
    }
    (void)snprintf(out + used, room - used, "]");
    return out;
}

static int begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

int scan_width(const char *text)
{
    int columns = 0;
    for (; *text; text++) columns += begins_character(*text);
    return columns;
}

/* The first byte of the character that begins in column `column`. */
static const char *at_column(const char *text, int column)
{
    for (; *text; text++) {
        if (begins_character(*text) && column-- == 0) break;
    }
    return text;
}

void scan_fit_name(const char *name, int columns, char *out, size_t room)
{
    static const char gap[] = "...";
    char copy[FB_CKPT_NAME_MAX * 4 + 64];
    int width, head, tail;
    (void)snprintf(copy, sizeof copy, "%s", name);
    fb_text_disarm(copy);
    for (char *c = copy; *c; c++) *c = *c == '\n' ? '?' : *c;
    width = scan_width(copy);
    if (width <= columns || columns < 8) {
        (void)snprintf(out, room, "%s", copy);
        return;
    }
    /* The end tells tensors apart (weight, bias), the beginning says where they are. */
    head = (columns - 3) / 2;
    tail = columns - 3 - head;
    (void)snprintf(out, room, "%.*s%s%s", (int)(at_column(copy, head) - copy), copy, gap, at_column(copy, width - tail));
}
