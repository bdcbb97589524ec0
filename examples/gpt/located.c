/* located.c: see located.h. */
#include "located.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "the words of --locate stand for the parts of fb_locate_run")
SAME(LOCATE_REPLAY, FB_LOCATE_REPLAY);
SAME(LOCATE_SEARCH, FB_LOCATE_SEARCH);
SAME(LOCATE_CAUSE, FB_LOCATE_CAUSE);
SAME(LOCATE_OTHER, FB_LOCATE_OTHER_RANK);
SAME(LOCATE_MINIMISE, FB_LOCATE_MINIMISE);
SAME(LOCATE_EVIDENCE, FB_LOCATE_EVIDENCE);

fb_locate_config located_config(const trainer *t, replay *r, const char *folder)
{
    fb_locate_config c = FB_LOCATE_CONFIG_INIT;
    const replay_start *s = &r->start;
    c.rank = s->rank;
    c.world = s->world;
    c.finding_rank = s->finding.rank;
    c.finding_boundary = s->finding.boundary;
    c.finding_micro_step = s->finding.micro_step;
    c.finding_kind = s->finding.kind;
    c.finding_module = s->finding.module;
    c.finding_tensor = s->finding.tensor;
    c.parts = (uint32_t)t->options.locate & FB_LOCATE_ALL;
    c.strategy = t->options.bisect ? FB_LOCATE_BISECT : FB_LOCATE_SWEEP;
    c.folder = folder;
    c.precision = precision_name(t->options.model.format);
    c.rows = (uint32_t)(s->rows ? s->row_count : s->batch->rows);
    c.columns = (uint32_t)s->batch->columns;
    c.step = s->step;
    c.ctx = r;
    c.replay = replay_run;
    c.rerun = replay_rerun;
    c.max = s->world > 1 || r->processes > 1 ? replay_max : NULL;
    return c;
}

int located_planted(const trainer *t, const char *folder)
{
    static const char key[] = "\"injected\":"; /* within a string of the file its quotes would be escaped */
    char path[GPT_PATH_MAX + 32], text[1 << 14];
    const char *at;
    size_t bytes = 0;
    FILE *in;
    snprintf(path, sizeof path, "%s/first_bad.json", folder);
    if ((in = fopen(path, "r")) != NULL) {
        bytes = fread(text, 1, sizeof text - 1, in);
        fclose(in);
    }
    text[bytes] = '\0';
    at = strstr(text, key);
    if (at) at += strlen(key) + strspn(at + strlen(key), " ");
    return agree(t, at && strncmp(at, "true", 4) == 0);
}

const char *located_boundary(int32_t boundary)
{
    static const char *const names[] = {"",         "state on entry",   "batch",  "forward",   "loss",
                                        "backward", "reduced gradient", "update", "checkpoint"};
    return boundary >= 0 && boundary < (int32_t)(sizeof names / sizeof *names) ? names[boundary] : "";
}

enum { INDENT = 14, WIDTH = 100 };

/* A labelled text, broken between words before column 100. */
static void print_field(FILE *out, const char *label, const char *text)
{
    size_t column = INDENT;
    if (!*text) return;
    fprintf(out, "  %-11s ", label);
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > INDENT && column + 1 + word > WIDTH) {
            fprintf(out, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* The same for parts that stand apart, a line end between them: three blanks, or a line of its own where it does not fit. */
static void print_parts(FILE *out, const char *label, const char *text)
{
    size_t column = INDENT;
    if (!*text) return;
    fprintf(out, "  %-11s ", label);
    while (*text) {
        size_t part = strcspn(text, "\n");
        if (column > INDENT && column + 3 + part > WIDTH) {
            fprintf(out, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            fputs("   ", out);
            column += 3;
        }
        fprintf(out, "%.*s", (int)part, text);
        column += part;
        text += part;
        text += *text == '\n';
    }
    fputc('\n', out);
}

static void describe_place(char *out, size_t bytes, const fb_locate_result *q)
{
    const char *place = located_boundary(q->boundary);
    snprintf(out, bytes, "%s  %s (%s), rank %d, micro-step %d%s%s", *q->module ? q->module : "model", q->op, place, q->owner,
             q->micro_step, *q->source ? ", " : "", q->source);
}

static void print_place(FILE *out, const fb_locate_result *q, const finding *f)
{
    char text[1024];
    switch (q->found) {
    case FB_LOCATED_OPERATOR: describe_place(text, sizeof text, q); break;
    case FB_LOCATED_SET:
        snprintf(text, sizeof text, "%u operators, independent of each other; the last: %s %s", q->candidates, q->module, q->op);
        break;
    case FB_LOCATED_INTERVAL:
        snprintf(text, sizeof text, "one of %u places, up to %s %s (%s): not all of it could be looked at", q->candidates,
                 q->module, q->op, located_boundary(q->boundary));
        break;
    case FB_LOCATED_ENTRY:
        snprintf(text, sizeof text, "%s%s%s was bad before the step ran; no operator is blamed", q->module, *q->module ? "." : "",
                 q->tensor);
        break;
    default:
        snprintf(text, sizeof text, "%s%s%s (%s), rank %d, micro-step %d: where it was found; no operator could be named",
                 f->module, *f->module ? "." : "", f->tensor, located_boundary(f->boundary), f->rank, f->micro_step);
        break;
    }
    print_field(out, "first bad", text);
}

static void print_proof(FILE *out, const fb_locate_result *q)
{
    char text[512];
    const char *witness = q->found == FB_LOCATED_OPERATOR || q->found == FB_LOCATED_SET ? "inputs finite, output not; " : "";
    const char *faithful = q->faithful ? "with the same batch and random state" : "in replays that were not the same as the run";
    const char *wide = q->persists == 1 ? ", and in FP32 too" : q->persists == 0 ? "; not in FP32" : "";
    if (!q->tried) return;
    snprintf(text, sizeof text, "%sreproduced %u of %u %s%s", witness, q->reproduced, q->tried, faithful, wide);
    if (q->rows_needed) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "; smallest batch: %u sample%s, %u token%s", q->rows_needed,
                 q->rows_needed == 1 ? "" : "s", q->tokens_needed, q->tokens_needed == 1 ? "" : "s");
    }
    print_field(out, "proof", text);
}

/* One write for all of it: ranks share a terminal, and lines of another must not come between. */
void located_print(const fb_locate_result *result, const finding *f, const located_words *words)
{
    char *text = NULL, cost[128];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return;
    fprintf(out, "firstbad: %s\n", words->headline);
    print_place(out, result, f);
    print_field(out, "what", result->sentence);
    print_proof(out, result);
    print_parts(out, "spread", words->spread);
    print_field(out, "next", words->next);
    print_parts(out, "case", words->case_line);
    snprintf(cost, sizeof cost, "located in %.1f s, %u replay%s", words->seconds, result->replays, result->replays == 1 ? "" : "s");
    print_field(out, "cost", cost);
    if (fclose(out) == 0) fwrite(text, 1, bytes, stderr);
    free(text);
}
