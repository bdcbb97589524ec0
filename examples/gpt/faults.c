/* faults.c: reading what "--fault NAME@key=value" says, the list, and what belongs to every fault. */
#include "faults_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_DEFAULT = 5, RANK_DEFAULT = 1 };

const fault_row *faults_rows(size_t *count)
{
    *count = FAULT_ROW_COUNT;
    return FAULT_ROWS;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------- */

static int refuse(char *message, size_t bytes, const char *spec, const char *expected)
{
    snprintf(message, bytes, "fault \"%s\": expected %s; see firstbad-gpt --fault list", spec, expected);
    return -1;
}

/* A whole number from 0 to 2^31 - 1 that ends at `end`. */
static int read_count(const char *text, const char *end, int64_t *out)
{
    char *stop;
    errno = 0;
    long long number = strtoll(text, &stop, 10);
    if (stop == text || stop != end || errno || *text == '+' || *text == '-' || *text == ' ') return -1;
    if (number < 0 || number > INT32_MAX) return -1;
    *out = number;
    return 0;
}

static int is_key(const char *text, const char *end, const char *key)
{
    size_t bytes = strlen(key);
    return (size_t)(end - text) == bytes && !strncmp(text, key, bytes);
}

/* One "key=value" between text and end. */
static int read_key(fault *f, const char *text, const char *end)
{
    const char *equals = memchr(text, '=', (size_t)(end - text));
    int64_t number;
    if (!equals) return -1;
    if (is_key(text, equals, "rank") && is_key(equals + 1, end, "all")) {
        f->rank = -1;
        return 0;
    }
    if (read_count(equals + 1, end, &number) != 0) return -1;
    if (is_key(text, equals, "step")) f->step = number;
    else if (is_key(text, equals, "steps")) f->steps = number;
    else if (is_key(text, equals, "rank")) f->rank = (int32_t)number;
    else if (is_key(text, equals, "layer")) f->layer = (int32_t)number;
    else return -1;
    return 0;
}

static const fault_row *find_row(const char *name, const char *end)
{
    for (size_t i = 0; i < FAULT_ROW_COUNT; i++)
        if (is_key(name, end, FAULT_ROWS[i].name)) return &FAULT_ROWS[i];
    return NULL;
}

int faults_read(faults *f, const char *spec, char *message, size_t bytes)
{
    const char *keys = strchr(spec, '@'), *end = keys ? keys : spec + strlen(spec);
    const fault_row *row = find_row(spec, end);
    if (f->count == FAULTS_MAX) return refuse(message, bytes, spec, "at most 4 faults");
    if (!row) return refuse(message, bytes, spec, "the name of a fault");
    fault one = {.row = row, .step = STEP_DEFAULT, .steps = row->steps ? row->steps : 1, .layer = -1};
    one.rank = row->every_rank ? -1 : RANK_DEFAULT;
    while (keys && *keys) {
        const char *key = keys + 1, *next = strchr(key, ',');
        if (read_key(&one, key, next ? next : key + strlen(key)) != 0)
            return refuse(message, bytes, spec, "NAME@key=value,... with the keys step, steps, rank (a number, or all) and layer");
        keys = next;
    }
    f->of[f->count++] = one;
    return 0;
}

/* ---- the list ---------------------------------------------------------------------------------------------------------------- */

void faults_list(FILE *out)
{
    fputs("NAME[@step=N,steps=N,rank=N|all,layer=N]: by default at step 5 on rank 1, in the middle layer; names with ok- are "
          "healthy\n",
          out);
    for (size_t i = 0; i < FAULT_ROW_COUNT; i++) {
        const fault_row *row = &FAULT_ROWS[i];
        fprintf(out, "  %-26s %s%s%s%s\n", row->name, row->sentence, *row->options ? " [" : "", row->options,
                *row->options ? "]" : "");
    }
}

static void text_member(FILE *out, const char *key, const char *text)
{
    if (text) fprintf(out, ",\"%s\":\"%s\"", key, text);
    else fprintf(out, ",\"%s\":null", key);
}

void faults_list_truths(FILE *out)
{
    for (size_t i = 0; i < FAULT_ROW_COUNT; i++) {
        const fault_row *row = &FAULT_ROWS[i];
        const fault_truth *t = &row->truth;
        fprintf(out, "{\"name\":\"%s\"", row->name);
        text_member(out, "sentence", row->sentence);
        text_member(out, "options", row->options);
        text_member(out, "seen", t->seen);
        text_member(out, "seen_with_check_forward", t->forward);
        text_member(out, "boundary", t->origin);
        text_member(out, "module", t->module);
        text_member(out, "operator", t->op);
        text_member(out, "tensor", t->tensor);
        text_member(out, "cause", t->cause);
        text_member(out, "rule", t->rule);
        fprintf(out, ",\"samples\":%d,\"in_fp32\":%d,\"every_rank\":%s,\"steps\":%d,\"late\":%d,\"replayable\":%s}\n", t->samples,
                t->in_fp32, row->every_rank ? "true" : "false", row->steps ? row->steps : 1, row->late,
                row->alter ? "true" : "false");
    }
}

/* ---- what belongs to every fault --------------------------------------------------------------------------------------------- */

bool fault_is_on(const fault *f, int64_t step, int32_t rank)
{
    return step >= f->step && step < f->step + f->steps && (f->rank < 0 || f->rank == rank);
}

void fault_trigger(const fault *f, gpt_op *op, double x, double idle)
{
    op->x = x;
    op->trigger =
        (gpt_trigger){.set = true, .step_first = f->step, .step_last = f->step + f->steps - 1, .rank = f->rank, .idle = idle};
}

size_t fault_layer(const fault *f, size_t layers)
{
    if (f->layer < 0) return layers / 2;
    return (size_t)f->layer < layers ? (size_t)f->layer : layers - 1;
}

fault_name fault_module(const fault *f, const gpt_config *config, const char *part)
{
    fault_name name;
    snprintf(name.text, sizeof name.text, "h.%u%s", (unsigned)fault_layer(f, config->layers), part);
    return name;
}

int fault_value(const fault *f, const gpt_program *program, const gpt_config *config, const char *part, const char *name)
{
    fault_name module = fault_module(f, config, part);
    return gpt_find_value(program, module.text, name);
}

void faults_alter(void *context, gpt_program *program, const gpt_config *config)
{
    const faults *f = context;
    for (size_t i = 0; i < f->count && !program->failed; i++)
        if (f->of[i].row->alter) f->of[i].row->alter(&f->of[i], program, config);
}
