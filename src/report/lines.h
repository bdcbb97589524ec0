/*
 * Text for a terminal: a label and a paragraph beside it, wrapped between words. Text from files may hold anything, so control
 * characters are shown as '?'. Errors stick, as in base/json_write.h.
 */
#ifndef FB_REPORT_LINES_H
#define FB_REPORT_LINES_H

#include "base/status.h"

typedef struct fb_lines {
    char *data;
    size_t used, room;
    int columns, colour;
    fb_status status;
} fb_lines;

enum { FB_LINES_PARAGRAPH_MAX = 6000 };
/* Written as a space, and no line ends there. */
#define FB_LINES_NO_BREAK "\001"

void fb_lines_init(fb_lines *lines, int columns, int colour);
/* A paragraph: `label` padded to `indent` columns, then the text, wrapped and indented. */
__attribute__((format(printf, 4, 5))) void fb_lines_add(fb_lines *lines, const char *label, int indent, const char *format, ...);
void fb_lines_blank(fb_lines *lines);
/* Hand the text over (release with fb_free); "" is never NULL. FB_E_NOMEM. */
fb_status fb_lines_finish(fb_lines *lines, char **text, fb_error *err);

/* A paragraph being put together from parts; cut when too long. */
typedef struct fb_phrase {
    char text[FB_LINES_PARAGRAPH_MAX];
    size_t used;
} fb_phrase;
__attribute__((format(printf, 2, 3))) void fb_phrase_add(fb_phrase *phrase, const char *format, ...);

#endif
