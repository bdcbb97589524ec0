/* What was located, as the block that a job prints: a label and its text in each line, never wider than 100 columns. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "firstbad/locate.h"
#include "locate/causes.h"
#include "locate/op_title.h"

enum { INDENT = 14, WIDTH = 100, FIELD_BYTES = 1536 };

typedef struct page {
    char *text;
    size_t room, used; /* used: what it takes, also where there is no room */
} page;

__attribute__((format(printf, 2, 3))) static void add(page *p, const char *format, ...)
{
    size_t left = p->used < p->room ? p->room - p->used : 0;
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(left ? p->text + p->used : NULL, left, format, args);
    va_end(args);
    if (n > 0) p->used += (size_t)n;
}

/* A field, broken between words before the last column; where the text has line ends, between the parts that they stand between. */
static void add_field(page *p, const char *label, const char *text)
{
    size_t column = INDENT;
    const char *end = text && strchr(text, '\n') ? "\n" : " ";
    const char *between = *end == '\n' ? "   " : " ";
    if (!text) return;
    text += strspn(text, " \n");
    if (!*text) return;
    add(p, "  %-11s ", label);
    while (*text) {
        size_t bytes = strcspn(text, end);
        if (column > INDENT && column + strlen(between) + bytes > WIDTH) {
            add(p, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            add(p, "%s", between);
            column += strlen(between);
        }
        add(p, "%.*s", (int)bytes, text);
        column += bytes;
        text += bytes;
        text += strspn(text, end);
    }
    add(p, "\n");
}

static const char *boundary_words(int32_t boundary)
{
    static const char *const words[] = {"",         "state on entry",   "batch",  "forward",   "loss",
                                        "backward", "reduced gradient", "update", "checkpoint"};
    return boundary >= 0 && boundary < (int32_t)(sizeof words / sizeof *words) ? words[boundary] : "";
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* A caller of an older header has no autograd node. */
static const char *node_of(const fb_locate_result *r)
{
    return r->size >= offsetof(fb_locate_result, node) + sizeof r->node ? r->node : "";
}

/* "sqrt (backward, div)", "softmax (forward)". */
static void operator_words(char *out, size_t room, const fb_locate_result *r)
{
    fb_op_title title;
    fb_op_title_of(&title, r->op, node_of(r));
    (void)snprintf(out, room, "%s (%s%s%s)", title.shown, boundary_words(r->boundary), title.kernel[0] ? ", " : "", title.kernel);
}

static void place_words(char *out, size_t room, const fb_locate_result *r)
{
    char op[160];
    operator_words(op, sizeof op, r);
    (void)snprintf(out, room, "%s %s, rank %d, micro-step %d%s%s", r->module[0] ? r->module : "top level:", op, r->owner,
                   r->micro_step, r->source[0] ? ", " : "", r->source);
}

static void add_place(page *p, const fb_locate_config *config, const fb_locate_result *r)
{
    char text[FIELD_BYTES], op[160];
    const char *module = or_empty(config->finding_module);
    operator_words(op, sizeof op, r);
    switch (r->found) {
    case FB_LOCATED_OPERATOR: place_words(text, sizeof text, r); break;
    case FB_LOCATED_SET:
        (void)snprintf(text, sizeof text, "%u operators, independent of each other; the first: %s %s%s%s", r->candidates, r->module,
                       op, r->source[0] ? ", " : "", r->source);
        break;
    case FB_LOCATED_INTERVAL:
        (void)snprintf(text, sizeof text, "one of %u places, up to %s %s%s%s: not all of it could be looked at", r->candidates,
                       r->module, op, r->source[0] ? ", " : "", r->source);
        break;
    case FB_LOCATED_ENTRY:
        (void)snprintf(text, sizeof text, "%s%s%s was bad before the step ran; no operator is blamed", r->module,
                       r->module[0] ? "." : "", r->tensor);
        break;
    default:
        (void)snprintf(text, sizeof text, "%s%s%s (%s), rank %d, micro-step %d: where it was found; no operator could be named",
                       module, module[0] ? "." : "", or_empty(config->finding_tensor), boundary_words(config->finding_boundary),
                       config->finding_rank, config->finding_micro_step);
        break;
    }
    add_field(p, "first bad", text);
}

static void add_cause(page *p, const fb_locate_result *r)
{
    const fb_cause_class *of = fb_cause_class_of(fb_cause_class_named(r->cause_class));
    char text[FIELD_BYTES];
    if (!r->cause_class[0] || strcmp(of->name, "unknown") == 0) return;
    (void)snprintf(text, sizeof text, "%s: %s", of->name, of->sentence);
    add_field(p, "cause", text);
    add_field(p, "fix", of->fix);
}

/* Rows are given only where the batch has to do with it and leaving some out was tried: one row of one tells nothing. */
static void add_batch(char *text, size_t room, const fb_locate_config *config, const fb_locate_result *r)
{
    size_t used = strlen(text);
    if (!r->rows_needed || config->rows < 2 || r->rule == FB_RULE_STATE || r->rows_alone < 0) return;
    (void)snprintf(text + used, room - used, "; smallest batch: %u sample%s", r->rows_needed, r->rows_needed == 1 ? "" : "s");
    used = strlen(text);
    if (!r->tokens_needed) return;
    (void)snprintf(text + used, room - used, ", %u token%s", r->tokens_needed, r->tokens_needed == 1 ? "" : "s");
}

static void add_proof(page *p, const fb_locate_config *config, const fb_locate_result *r)
{
    const char *witness = r->found == FB_LOCATED_OPERATOR || r->found == FB_LOCATED_SET ? "inputs finite, output not; " : "";
    const char *faithful = r->faithful ? "with the same batch and random state" : "in replays that were not the same as the run";
    const char *wide = r->persists == 1 ? ", and in FP32 too" : r->persists == 0 ? "; not in FP32" : "";
    char text[512];
    if (!r->tried) return;
    (void)snprintf(text, sizeof text, "%sreproduced %u of %u %s%s", witness, r->reproduced, r->tried, faithful, wide);
    add_batch(text, sizeof text, config, r);
    add_field(p, "proof", text);
}

static void add_cost(page *p, const fb_locate_result *r, double seconds)
{
    char text[96];
    double taken = seconds > 0.0 ? seconds : (double)r->nanoseconds / 1e9;
    if (!r->replays) return;
    (void)snprintf(text, sizeof text, "located in %.1f s, %u replay%s", taken, r->replays, r->replays == 1 ? "" : "s");
    add_field(p, "cost", text);
}

fb_status fb_locate_text(const fb_locate_config *config, const fb_locate_result *result, const fb_locate_words *words, char *text,
                         size_t *bytes, fb_error *err)
{
    const fb_locate_words none = FB_LOCATE_WORDS_INIT;
    const fb_locate_words *said = words ? words : &none;
    page p = {text, text && bytes ? *bytes : 0, 0};
    if (!config || !result || !bytes) return fb_fail(err, FB_E_USAGE, "put what was located in words: an argument is NULL");
    if (config->size < sizeof *config || result->size < offsetof(fb_locate_result, node) || said->size < sizeof *said)
        return fb_fail(err, FB_E_USAGE, "put what was located in words: sizes are %u, %u and %u; start from the FB_LOCATE_*_INIT",
                       config->size, result->size, said->size);
    if (said->headline && said->headline[0]) add(&p, "firstbad: %s\n", said->headline);
    add_place(&p, config, result);
    add_field(&p, "what", result->sentence);
    add_cause(&p, result);
    add_proof(&p, config, result);
    add_field(&p, "spread", said->spread);
    add_field(&p, "next", said->next);
    add_field(&p, "case", said->case_line);
    add_cost(&p, result, said->seconds);
    *bytes = p.used + 1;
    if (!text || p.used < p.room) return FB_OK;
    if (p.room) text[0] = '\0';
    return fb_fail(err, FB_E_LIMIT, "put what was located in words: %zu bytes are needed, and there is room for %zu", p.used + 1,
                   p.room);
}
