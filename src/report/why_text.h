/* The parts of why_text.c that lie in why_again.c (reproduce, resume, cause) and why_cover.c (coverage, steps). */
#ifndef FB_REPORT_WHY_TEXT_H
#define FB_REPORT_WHY_TEXT_H

#include "report/lines.h"
#include "report/report.h"

/* Columns before the text of a numbered answer, and of a named line. */
enum { FB_WHY_NUMBERED = 16, FB_WHY_NAMED = 10, FB_WHY_LISTED_MAX = 4 };

void fb_why_reproduce(fb_lines *lines, const fb_report *report);
void fb_why_resume(fb_lines *lines, const fb_report *report, const char *label, int indent);
void fb_why_cause(fb_lines *lines, const fb_report *report);
void fb_why_coverage(fb_lines *lines, const fb_report *report);
void fb_why_steps(fb_lines *lines, const fb_report *report, const char *label);

#endif
