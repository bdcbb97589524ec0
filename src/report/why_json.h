/* The parts of why_json.c that lie in why_json_again.c: what replays told. */
#ifndef FB_REPORT_WHY_JSON_H
#define FB_REPORT_WHY_JSON_H

#include "base/json_write.h"
#include "report/report.h"

void fb_json_int_or_null(fb_json *json, const char *key, int64_t value, int known);
/* "" is null. */
void fb_json_text_or_null(fb_json *json, const char *key, const char *text);

/* operator, operator_module, operator_reason and source of a finding: members, without brackets. */
void fb_json_operator(fb_json *json, const fb_report *report, const fb_report_finding *finding);
/* The members location, replay, cause and skip_samples with leave_out. */
void fb_json_location(fb_json *json, const fb_report *report);
void fb_json_replay(fb_json *json, const fb_report *report);
void fb_json_cause(fb_json *json, const fb_report *report);
void fb_json_skip_samples(fb_json *json, const fb_report *report);

#endif
