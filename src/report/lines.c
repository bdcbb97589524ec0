#include "report/lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "report/report.h"

void fb_lines_init(fb_lines *lines, int columns, int colour)
{
    memset(lines, 0, sizeof *lines);
    lines->columns = columns < 40 ? 40 : columns;
    lines->colour = colour;
}

static void put(fb_lines *lines, const char *bytes, size_t n)
{
    if (lines->status != FB_OK) return;
    if (lines->used + n + 1 > lines->room) {
        size_t room = lines->room ? lines->room : 1024;
        char *data;
        while (room < lines->used + n + 1) room *= 2;
        data = fb_realloc(lines->data, room);
        if (!data) {
            lines->status = FB_E_NOMEM;
            return;
        }
        lines->data = data;
        lines->room = room;
    }
    memcpy(lines->data + lines->used, bytes, n);
    lines->used += n;
    lines->data[lines->used] = '\0';
}

static void put_spaces(fb_lines *lines, int n)
{
    for (int i = 0; i < n; i++) put(lines, " ", 1);
}

/* Bytes of the well-formed UTF-8 character at `c`, 0 when there is none. Overlong forms and surrogates are none. */
static int character(const unsigned char *c)
{
    int n = *c < 0x80 ? 1 : *c >= 0xc2 && *c < 0xe0 ? 2 : (*c & 0xf0) == 0xe0 ? 3 : *c >= 0xf0 && *c < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) || (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] > 0x8f))
        return 0;
    return n;
}

/* C0, DEL, C1, what is no UTF-8 (a terminal in another mode reads 0x9b as a command), and the marks that turn text around. */
static int is_armed(const unsigned char *c, int n)
{
    if (n == 0) return 1;
    if (n == 1) return *c < 0x20 || *c == 0x7f;
    if (n == 2) return *c == 0xc2 && c[1] <= 0x9f;
    return n == 3 && c[0] == 0xe2 &&
           ((c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae))) ||
            (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
}

static void disarm(char *text, char but)
{
    for (unsigned char *c = (unsigned char *)text; *c;) {
        int n = character(c), bytes = n ? n : 1;
        if (is_armed(c, n) && *c != (unsigned char)but) memset(c, '?', (size_t)bytes);
        c += bytes;
    }
}

void fb_text_disarm(char *text)
{
    disarm(text, '\n');
}

/* Columns that these bytes take: bytes that continue a UTF-8 character take none. */
static int width(const char *text, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static void put_wrapped(fb_lines *lines, const char *text, int indent)
{
    int at = indent, fresh = 1;
    size_t from = lines->used;
    while (*text) {
        size_t n = strcspn(text, " ");
        int columns = width(text, n);
        if (!fresh && at + 1 + columns > lines->columns) {
            put(lines, "\n", 1);
            put_spaces(lines, indent);
            at = indent;
            fresh = 1;
        }
        if (!fresh) put(lines, " ", 1);
        put(lines, text, n);
        at += columns + !fresh;
        fresh = 0;
        text += n;
        while (*text == ' ') text++;
    }
    put(lines, "\n", 1);
    for (size_t i = from; i < lines->used; i++) {
        if (lines->data[i] == FB_LINES_NO_BREAK[0]) lines->data[i] = ' ';
    }
}

void fb_lines_add(fb_lines *lines, const char *label, int indent, const char *format, ...)
{
    char text[FB_LINES_PARAGRAPH_MAX];
    int columns = width(label, strlen(label));
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    disarm(text, FB_LINES_NO_BREAK[0]);
    if (lines->colour && *label) put(lines, "\033[1m", 4);
    put(lines, label, strlen(label));
    if (lines->colour && *label) put(lines, "\033[0m", 4);
    put_spaces(lines, indent - columns);
    put_wrapped(lines, text, indent > columns ? indent : columns);
}

void fb_lines_blank(fb_lines *lines)
{
    put(lines, "\n", 1);
}

fb_status fb_lines_finish(fb_lines *lines, char **text, fb_error *err)
{
    put(lines, "", 0);
    if (lines->status != FB_OK) {
        fb_free(lines->data);
        *text = NULL;
        return fb_fail(err, lines->status, "write a report: no memory after %zu bytes", lines->used);
    }
    *text = lines->data;
    return FB_OK;
}

void fb_phrase_add(fb_phrase *phrase, const char *format, ...)
{
    va_list args;
    int n;
    if (phrase->used + 1 >= sizeof phrase->text) return;
    va_start(args, format);
    n = vsnprintf(phrase->text + phrase->used, sizeof phrase->text - phrase->used, format, args);
    va_end(args);
    if (n > 0) phrase->used += (size_t)n;
    if (phrase->used >= sizeof phrase->text) phrase->used = sizeof phrase->text - 1;
}
