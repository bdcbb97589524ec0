/*
 * Case files as text: a finding, and a verdict, with the names that docs/format/json.md documents.
 */
#ifndef FB_EVIDENCE_CASE_JSON_H
#define FB_EVIDENCE_CASE_JSON_H

#include "base/json_write.h"
#include "evidence/records.h"

/* The members of one finding, inside an object that the caller has begun. */
void fb_finding_json(fb_json *json, const fb_rec_finding *finding);

/* The members of one verdict, inside an object that the caller has begun. reason: its text. */
void fb_verdict_json(fb_json *json, const fb_rec_verdict *verdict, const char *reason);

#endif
