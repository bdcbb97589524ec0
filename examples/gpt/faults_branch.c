/* faults_branch.c: a small expression between a value and its readers, and the chain rule for it; see faults_inside.h. */
#include "faults_inside.h"

#include <stdio.h>
#include <string.h>

const char *fault_op_name(gpt_kind kind)
{
    switch (kind) {
    case OP_ADD:
    case OP_ADD_NUMBER: return "add";
    case OP_SUB: return "sub";
    case OP_MUL:
    case OP_MUL_NUMBER: return "mul";
    case OP_DIV: return "div";
    case OP_SQUARE: return "square";
    case OP_SQRT: return "sqrt";
    case OP_RSQRT: return "rsqrt";
    case OP_EXP: return "exp";
    case OP_LOG: return "log";
    case OP_LOG1P: return "log1p";
    case OP_SIGMOID: return "sigmoid";
    case OP_RECIPROCAL: return "reciprocal";
    case OP_CLAMP: return "clamp";
    case OP_WHERE_LESS: return "where";
    case OP_NAN_TO_NUM: return "nan_to_num";
    case OP_ROW_SUM: return "sum";
    case OP_ROW_MEAN: return "mean";
    case OP_ROW_MAX: return "max";
    case OP_ROW_VAR: return "var";
    case OP_SOFTMAX: return "softmax";
    default: return "clone";
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------------------- */

static branch start(gpt_program *program, const fault *f, const char *file, int line)
{
    branch b = {.program = program, .fault = f, .file = file, .line = line, .x = -1, .made = -1};
    return b;
}

static gpt_op new_op(const branch *b, gpt_kind kind)
{
    return gpt_op_init(kind, b->module, fault_op_name(kind), b->file, b->line);
}

/* The value goes through a copy, forward and backward; what the copies read is put before them later. */
branch branch_between(gpt_program *program, const fault *f, int value, const char *file, int line)
{
    branch b = start(program, f, file, line);
    if (value < 0) program->failed = true;
    if (program->failed) return b;
    snprintf(b.module, sizeof b.module, "%s", program->values[value].module);
    b.format = program->values[value].format;
    gpt_op copy = new_op(&b, OP_COPY);
    char name[GPT_NAME_MAX];
    snprintf(name, sizeof name, "%.*s_through", GPT_NAME_MAX - 9, program->values[value].name);
    b.x = value;
    b.made = gpt_splice(program, value, &copy, name);
    return b;
}

static void become_copy(const branch *b, gpt_op *op)
{
    op->kind = OP_COPY;
    op->in_count = op->out_count = 1;
    op->x_name = NULL;
    op->file = b->file;
    op->line = b->line;
    snprintf(op->name, sizeof op->name, "%s", op->backward ? "clone_backward" : "clone");
}

/* The operator that makes the value, and its backward form, become copies. */
branch branch_instead(gpt_program *program, const fault *f, int value, const char *file, int line)
{
    branch b = start(program, f, file, line);
    int producer = gpt_producer(program, value), back = gpt_backward_op(program, value);
    if (producer < 0) program->failed = true;
    if (program->failed) return b;
    snprintf(b.module, sizeof b.module, "%s", program->values[value].module);
    b.format = program->values[value].format;
    b.x = program->ops[producer].in[0];
    b.made = value;
    become_copy(&b, &program->ops[producer]);
    if (back >= 0) become_copy(&b, &program->ops[back]);
    return b;
}

/* Before the copy that will read the result. */
static int put(branch *b, gpt_op *op, int out)
{
    int at = gpt_producer(b->program, b->made);
    if (b->program->failed || at < 0 || b->count == BRANCH_MAX || out < 0) {
        b->program->failed = true;
        return -1;
    }
    op->out[0] = out;
    op->out_count = 1;
    op->loss = b->program->ops[at].loss;
    /* -Inf in a mask may be meant; what is made of it by a function is not a mask any more. */
    if (op->kind != OP_ADD_NUMBER && op->kind != OP_MUL_NUMBER && op->kind != OP_COPY) b->program->values[out].mask = false;
    b->program->values[out].format = b->format;
    if (gpt_insert_op(b->program, at, op) < 0) return -1;
    b->nodes[b->count++] = *op;
    return out;
}

static int put_like(branch *b, gpt_op *op, const char *made)
{
    return put(b, op, gpt_value_like(b->program, op->in[0], b->module, made));
}

int branch_one(branch *b, gpt_kind kind, int in, const char *made)
{
    gpt_op op = new_op(b, kind);
    op.in[op.in_count++] = in;
    return put_like(b, &op, made);
}

int branch_row(branch *b, gpt_kind kind, int in, const char *made)
{
    gpt_op op = new_op(b, kind);
    op.in[op.in_count++] = in;
    return put(b, &op, gpt_value_per_row(b->program, in, b->module, made));
}

int branch_number(branch *b, gpt_kind kind, int in, const char *x_name, double x, const char *made)
{
    gpt_op op = new_op(b, kind);
    op.in[op.in_count++] = in;
    op.x = x;
    op.x_name = x_name;
    return put_like(b, &op, made);
}

int branch_number_then(branch *b, gpt_kind kind, int in, const char *x_name, double x, double idle, const char *made)
{
    gpt_op op = new_op(b, kind);
    op.in[op.in_count++] = in;
    op.x_name = x_name;
    fault_trigger(b->fault, &op, x, idle);
    return put_like(b, &op, made);
}

int branch_clamp(branch *b, int in, double low, double high, const char *made)
{
    gpt_op op = new_op(b, OP_CLAMP);
    op.in[op.in_count++] = in;
    op.x = low;
    op.y = high;
    op.x_name = "min";
    return put_like(b, &op, made);
}

int branch_variance(branch *b, int in, int mean, double correction, double idle, const char *made)
{
    gpt_op op = new_op(b, OP_ROW_VAR);
    op.in[op.in_count++] = in;
    op.in[op.in_count++] = mean;
    op.x_name = "correction";
    fault_trigger(b->fault, &op, correction, idle);
    return put(b, &op, gpt_value_per_row(b->program, in, b->module, made));
}

int branch_two(branch *b, gpt_kind kind, gpt_spread spread, int a, int c, const char *made)
{
    gpt_op op = new_op(b, kind);
    op.in[op.in_count++] = a;
    op.in[op.in_count++] = c;
    op.spread = spread;
    return put_like(b, &op, made);
}

int branch_where_less(branch *b, int c, double x, int then, int otherwise, const char *made)
{
    gpt_op op = new_op(b, OP_WHERE_LESS);
    op.in[op.in_count++] = c;
    op.in[op.in_count++] = then;
    op.in[op.in_count++] = otherwise;
    op.x = x;
    op.x_name = "limit";
    return put_like(b, &op, made);
}

/* ---- backward ---------------------------------------------------------------------------------------------------------------- */

/* The gradients known so far, by value; the value that holds each. */
typedef struct slopes {
    branch *b;
    int before; /* the value that the copy of the backward pass makes: operators go before it */
    int of[BRANCH_MAX + 2], holds[BRANCH_MAX + 2];
    int count;
} slopes;

static int slope_of(const slopes *s, int value)
{
    for (int i = 0; i < s->count; i++)
        if (s->of[i] == value) return s->holds[i];
    return -1;
}

/* Does the value depend on what the expression reads? Others (a table, a mean that moves nothing) need no gradient. */
static bool depends(const branch *b, int value)
{
    if (value == b->x) return true;
    for (int i = 0; i < b->count; i++)
        if (b->nodes[i].out[0] == value) return true;
    return false;
}

static int gradient_value(const slopes *s, int value)
{
    char name[GPT_NAME_MAX];
    gpt_program *p = s->b->program;
    snprintf(name, sizeof name, "d_%.*s", GPT_NAME_MAX - 3, p->values[value].name);
    int made = gpt_value_like(p, value, s->b->module, name);
    if (made < 0) return -1;
    p->values[made].role = ROLE_GRADIENT;
    p->values[made].mask = false;
    return made;
}

static void put_backward(const slopes *s, gpt_op *op)
{
    op->backward = true;
    gpt_insert_op(s->b->program, gpt_producer(s->b->program, s->before), op);
}

static gpt_op backward_op(const slopes *s, gpt_kind kind, const gpt_op *node)
{
    gpt_op op = new_op(s->b, kind);
    snprintf(op.name, sizeof op.name, "%.*s_backward", GPT_NAME_MAX - 10, node->name);
    op.x = node->x;
    op.y = node->y;
    op.x_name = node->x_name;
    op.trigger = node->trigger;
    op.spread = node->spread;
    op.of = node->out[0];
    op.in[op.in_count++] = slope_of(s, node->out[0]);
    return op;
}

/* One more part of the gradient of a value. */
static void add_slope(slopes *s, int value, int part)
{
    if (part < 0 || !depends(s->b, value)) return;
    for (int i = 0; i < s->count; i++) {
        if (s->of[i] != value) continue;
        gpt_op sum = new_op(s->b, OP_ADD);
        sum.in[sum.in_count++] = s->holds[i];
        sum.in[sum.in_count++] = part;
        sum.out[sum.out_count++] = s->holds[i] = gradient_value(s, value);
        put_backward(s, &sum);
        return;
    }
    s->of[s->count] = value;
    s->holds[s->count++] = part;
}

/* The gradient of b from that of a + b or a - b: the same, or its negative, summed over what b was spread to. */
static int summed(const slopes *s, const gpt_op *node, double sign)
{
    int part = slope_of(s, node->out[0]);
    if (sign < 0.0) {
        gpt_op negative = backward_op(s, OP_MUL_NUMBER, node);
        negative.x = sign;
        negative.x_name = "factor";
        negative.out[negative.out_count++] = part = gradient_value(s, node->out[0]);
        put_backward(s, &negative);
    }
    if (node->spread == SPREAD_ROW) {
        gpt_op sum = backward_op(s, OP_ROW_SUM, node);
        sum.in[0] = part;
        sum.out[sum.out_count++] = part = gradient_value(s, node->in[1]);
        put_backward(s, &sum);
    }
    return part;
}

/* An operator with one or two gradients to give: those of node->in[first] and the next. */
static void give(slopes *s, gpt_op *op, const gpt_op *node, int first, int both)
{
    op->out[op->out_count++] = gradient_value(s, node->in[first]);
    if (both) op->out[op->out_count++] = gradient_value(s, node->in[first + 1]);
    put_backward(s, op);
    add_slope(s, node->in[first], op->out[0]);
    if (both) add_slope(s, node->in[first + 1], op->out[1]);
}

static void of_several(slopes *s, const gpt_op *node)
{
    gpt_op op = backward_op(s,
                            node->kind == OP_MUL   ? OP_MUL_BACKWARD
                            : node->kind == OP_DIV ? OP_DIV_BACKWARD
                                                   : OP_WHERE_BACKWARD,
                            node);
    op.in[op.in_count++] = node->in[0];
    if (node->kind == OP_WHERE_LESS) {
        give(s, &op, node, 1, 1);
        return;
    }
    op.in[op.in_count++] = node->in[1];
    give(s, &op, node, 0, depends(s->b, node->in[1]));
}

static void of_rows(slopes *s, const gpt_op *node)
{
    gpt_op op = backward_op(s,
                            node->kind == OP_ROW_SUM    ? OP_ROW_SUM_BACKWARD
                            : node->kind == OP_ROW_MEAN ? OP_ROW_MEAN_BACKWARD
                            : node->kind == OP_ROW_MAX  ? OP_ROW_MAX_BACKWARD
                                                        : OP_ROW_VAR_BACKWARD,
                            node);
    op.in[op.in_count++] = node->in[0];
    if (node->kind == OP_ROW_MAX) op.in[op.in_count++] = node->out[0];
    if (node->kind == OP_ROW_VAR) op.in[op.in_count++] = node->in[1];
    give(s, &op, node, 0, 0);
}

static void of_one(slopes *s, const gpt_op *node)
{
    gpt_kind kind;
    gpt_saves saves;
    if (!gpt_backward_form(node->kind, &kind, &saves)) {
        s->b->program->failed = true;
        return;
    }
    gpt_op op = backward_op(s, kind, node);
    if (saves != SAVES_NOTHING) op.in[op.in_count++] = saves == SAVES_INPUT ? node->in[0] : node->out[0];
    give(s, &op, node, 0, 0);
}

static void undo(slopes *s, const gpt_op *node)
{
    if (slope_of(s, node->out[0]) < 0) return; /* nothing of the result hangs on it */
    switch (node->kind) {
    case OP_ADD:
    case OP_SUB:
        add_slope(s, node->in[0], slope_of(s, node->out[0]));
        if (depends(s->b, node->in[1])) add_slope(s, node->in[1], summed(s, node, node->kind == OP_SUB ? -1.0 : 1.0));
        return;
    case OP_MUL:
    case OP_DIV:
    case OP_WHERE_LESS: of_several(s, node); return;
    case OP_ROW_SUM:
    case OP_ROW_MEAN:
    case OP_ROW_MAX:
    case OP_ROW_VAR: of_rows(s, node); return;
    default: of_one(s, node); return;
    }
}

void branch_end(branch *b, int result)
{
    gpt_program *p = b->program;
    int back = gpt_backward_op(p, b->made), forward = gpt_producer(p, b->made);
    if (p->failed || result < 0 || forward < 0) {
        p->failed = true;
        return;
    }
    p->ops[forward].in[0] = result;
    if (b->straight || back < 0) return;
    slopes s = {.b = b, .before = p->ops[back].out[0]};
    add_slope(&s, result, p->ops[back].in[0]);
    for (int i = b->count; i-- > 0 && !p->failed;) undo(&s, &b->nodes[i]);
    back = gpt_producer(p, s.before);
    if (p->failed || back < 0 || slope_of(&s, b->x) < 0) {
        p->failed = true;
        return;
    }
    p->ops[back].in[0] = slope_of(&s, b->x);
}

void fault_splice(gpt_program *program, const fault *f, int value, gpt_kind kind, double x, double idle, const char *file, int line)
{
    if (value < 0) program->failed = true;
    if (program->failed) return;
    char made[GPT_NAME_MAX];
    gpt_op op = gpt_op_init(kind, program->values[value].module, fault_op_name(kind), file, line);
    op.x_name = kind == OP_ADD_NUMBER ? "offset" : "factor";
    fault_trigger(f, &op, x, idle);
    snprintf(made, sizeof made, "%.*s_%s", GPT_NAME_MAX - 8, program->values[value].name,
             kind == OP_ADD_NUMBER ? "raised" : "scaled");
    gpt_splice(program, value, &op, made);
}
