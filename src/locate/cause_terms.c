/*
 * Sums, term by term, in FP64. What a matrix product does to the bad element is one dot product: two rows of numbers, each with a
 * step. The result is only believed when it is what the rerun in FP64 gave, so a layout that was guessed wrong says nothing.
 */
#include <math.h>

#include "base/json_write.h"
#include "locate/cause_inside.h"

typedef struct dot {
    const fb_witness_tensor *x, *y; /* y NULL: numbers alone */
    uint64_t x_start, x_step, y_start, y_step, count;
    const fb_witness_tensor *extra; /* one more term: a bias; NULL: none */
    uint64_t extra_at;
    double scale;
    int squares, root;
} dot;

static const fb_witness_tensor *input(const fb_look *look, uint32_t k)
{
    return k < look->w->input_count && look->w->inputs[k].values && look->w->inputs[k].count > 0 ? &look->w->inputs[k] : NULL;
}

/* a (R,C), weight (O,C), bias (O) or none -> (R,O) */
static int linear(const fb_look *look, dot *d)
{
    const fb_witness_tensor *a = input(look, 0), *weight = input(look, 1), *bias = input(look, 2);
    uint64_t columns, outputs = fb_last_dim(look->out), row = look->at / outputs, column = look->at % outputs;
    if (!a || !weight) return 0;
    columns = fb_last_dim(a);
    if (a->count % columns != 0 || weight->count != outputs * columns || look->out->count != a->count / columns * outputs) return 0;
    *d = (dot){a, weight, row * columns, 1, column * columns, 1, columns, NULL, 0, 1.0, 0, 0};
    if (bias && bias->count == outputs) {
        d->extra = bias;
        d->extra_at = column;
    }
    return 1;
}

/* bias (O), a (R,C), b (C,O) -> (R,O), as PyTorch writes a linear layer */
static int addmm(const fb_look *look, dot *d)
{
    const fb_witness_tensor *bias = input(look, 0), *a = input(look, 1), *b = input(look, 2);
    uint64_t columns, outputs = fb_last_dim(look->out);
    if (!bias || !a || !b) return 0;
    columns = fb_last_dim(a);
    if (b->count != outputs * columns || look->out->count != a->count / columns * outputs || bias->count != outputs) return 0;
    *d = (dot){a, b, look->at / outputs * columns, 1, look->at % outputs, outputs, columns, bias, look->at % outputs, 1.0, 0, 0};
    return 1;
}

/* g (R,O), a (R,C), weight (O,C) -> d_a (R,C), d_weight (O,C), d_bias (O) */
static int linear_backward(const fb_look *look, dot *d)
{
    const fb_witness_tensor *g = input(look, 0), *a = input(look, 1), *weight = input(look, 2);
    uint64_t rows, outputs, columns, at = look->at;
    if (!g || !a || !weight) return 0;
    outputs = fb_last_dim(g);
    columns = fb_last_dim(a);
    rows = g->count / outputs;
    if (a->count != rows * columns || weight->count != outputs * columns) return 0;
    if (look->w->bad_output == 0 && look->out->count == rows * columns) {
        *d = (dot){g, weight, at / columns * outputs, 1, at % columns, columns, outputs, NULL, 0, 1.0, 0, 0};
        return 1;
    }
    if (look->w->bad_output == 1 && look->out->count == outputs * columns) {
        *d = (dot){g, a, at / columns, outputs, at % columns, columns, rows, NULL, 0, 1.0, 0, 0};
        return 1;
    }
    if (look->w->bad_output == 2 && look->out->count == outputs) {
        *d = (dot){g, NULL, at, outputs, 0, 0, rows, NULL, 0, 1.0, 0, 0};
        return 1;
    }
    return 0;
}

/* (.., M, K), (.., K, N) -> (.., M, N) with the same leading dimensions */
static int product(const fb_look *look, dot *d)
{
    const fb_witness_tensor *a = input(look, 0), *b = input(look, 1), *out = look->out;
    uint64_t m, k, n, batch, at;
    if (!a || !b || !fb_has_shape(a) || !fb_has_shape(b) || !fb_has_shape(out)) return 0;
    if (a->ndim < 2 || b->ndim < 2 || out->ndim < 2) return 0;
    n = fb_last_dim(out);
    k = fb_last_dim(a);
    m = (uint64_t)out->shape[out->ndim - 2];
    if (m == 0 || fb_last_dim(b) != n || (uint64_t)b->shape[b->ndim - 2] != k || out->count % (m * n) != 0) return 0;
    batch = out->count / (m * n);
    if (a->count != batch * m * k || b->count != batch * k * n) return 0;
    at = look->at % (m * n);
    batch = look->at / (m * n);
    *d = (dot){a, b, batch * m * k + at / n * k, 1, batch * k * n + at % n, n, k, NULL, 0, 1.0, 0, 0};
    return 1;
}

/* qkv (B,T,3C) -> query key^T (B,NH,T,T), where query, key and value of all heads lie side by side */
static int scores(const fb_look *look, dot *d)
{
    const fb_witness_tensor *qkv = input(look, 0), *out = look->out;
    uint64_t heads, tokens, wide, size, key, query, head, sample;
    if (!qkv || look->w->input_count != 1 || !fb_has_shape(qkv) || !fb_has_shape(out)) return 0;
    if (qkv->ndim != 3 || out->ndim != 4 || out->shape[2] != out->shape[3]) return 0;
    heads = (uint64_t)out->shape[1];
    tokens = (uint64_t)out->shape[2];
    wide = fb_last_dim(qkv);
    if (heads == 0 || tokens == 0 || wide % (3 * heads) != 0 || (uint64_t)qkv->shape[1] != tokens || qkv->shape[0] != out->shape[0])
        return 0;
    size = wide / 3 / heads;
    key = look->at % tokens;
    query = look->at / tokens % tokens;
    head = look->at / (tokens * tokens) % heads;
    sample = look->at / (tokens * tokens * heads);
    *d = (dot){qkv,
               qkv,
               (sample * tokens + query) * wide + head * size,
               1,
               (sample * tokens + key) * wide + wide / 3 + head * size,
               1,
               size,
               NULL,
               0,
               1.0,
               0,
               0};
    return 1;
}

/* probabilities (B,NH,T,T), qkv (B,T,3C) -> probabilities value (B,T,C) */
static int weighted_values(const fb_look *look, dot *d)
{
    const fb_witness_tensor *p = input(look, 0), *qkv = input(look, 1), *out = look->out;
    uint64_t heads, tokens, wide, columns, column, query, head, sample;
    if (!p || !qkv || !fb_has_shape(p) || !fb_has_shape(qkv) || !fb_has_shape(out)) return 0;
    if (p->ndim != 4 || qkv->ndim != 3 || out->ndim != 3) return 0;
    heads = (uint64_t)p->shape[1];
    tokens = fb_last_dim(p);
    wide = fb_last_dim(qkv);
    columns = fb_last_dim(out);
    if (heads == 0 || columns * 3 != wide || columns % heads != 0 || (uint64_t)qkv->shape[1] != tokens ||
        out->shape[1] != qkv->shape[1] || out->count != qkv->count / 3 ||
        p->count != (uint64_t)out->shape[0] * heads * tokens * tokens) {
        return 0;
    }
    column = look->at % columns;
    query = look->at / columns % tokens;
    sample = look->at / (columns * tokens);
    head = column / (columns / heads);
    *d = (dot){p,
               qkv,
               ((sample * heads + head) * tokens + query) * tokens,
               1,
               sample * tokens * wide + 2 * columns + column,
               wide,
               tokens,
               NULL,
               0,
               1.0,
               0,
               0};
    return 1;
}

/* Sums over the last dimensions, or over all. */
static int sum(const fb_look *look, dot *d)
{
    const fb_witness_tensor *a = input(look, 0);
    uint64_t terms;
    if (!a || look->out->count == 0 || a->count % look->out->count != 0) return 0;
    terms = a->count / look->out->count;
    *d = (dot){a, NULL, look->at * terms, 1, 0, 0, terms, NULL, 0, 1.0, 0, 0};
    if (look->kind == FB_OP_MEAN) d->scale = 1.0 / (double)terms;
    if (look->kind == FB_OP_NORM) d->squares = d->root = 1;
    return 1;
}

static int find(const fb_look *look, dot *d)
{
    switch (look->kind) {
    case FB_OP_LINEAR: return look->backward ? linear_backward(look, d) : linear(look, d);
    case FB_OP_ADDMM: return !look->backward && addmm(look, d);
    case FB_OP_MATMUL: return !look->backward && (product(look, d) || scores(look, d) || weighted_values(look, d));
    case FB_OP_SUM:
    case FB_OP_MEAN:
    case FB_OP_NORM: return !look->backward && sum(look, d);
    default: return 0;
    }
}

static void add(fb_terms *t, const dot *d)
{
    uint64_t n = d->count + (d->extra ? 1 : 0), before = t->count;
    t->count += n;
    t->scale = d->scale;
    t->products = d->squares ? 2 : d->y ? 1 : 0;
    t->x = d->x;
    t->y = d->y;
    t->extra = d->extra;
    for (uint64_t i = 0; i < n; i++) {
        double left = i < d->count ? d->x->values[d->x_start + i * d->x_step] : d->extra->values[d->extra_at];
        double right = i == d->count ? 1.0 : d->squares ? left : d->y ? d->y->values[d->y_start + i * d->y_step] : 1.0;
        double term = left * right;
        if ((left == 0.0 && fb_number_is_inf(right)) || (right == 0.0 && fb_number_is_inf(left))) t->zero_times_inf = 1;
        t->sum += term;
        t->absolute += fabs(term);
        if (term > 0.0) t->above += term;
        if (term < 0.0) t->below += term;
        if (before + i == 0 || fabs(term) > fabs(t->largest)) {
            t->largest = term;
            t->left = left;
            t->right = right;
            t->largest_at = before + i;
        }
        if (before + i == 0 || fabs(t->sum) > fabs(t->partial)) {
            t->partial = t->sum;
            t->partial_after = before + i + 1;
        }
    }
}

/* The norm of all gradients together reads each of them. */
static int norm_of_all(const fb_look *look, fb_terms *t)
{
    if (look->kind != FB_OP_NORM || look->backward || look->w->input_count < 2 || look->out->count != 1) return 0;
    for (uint32_t k = 0; k < look->w->input_count; k++) {
        const fb_witness_tensor *x = input(look, k);
        dot d = {.x = x, .x_step = 1, .scale = 1.0, .squares = 1};
        if (!x) return 0;
        d.count = x->count;
        add(t, &d);
    }
    return 1;
}

static int within(const dot *d)
{
    uint64_t x = d->x_start + (d->count ? d->count - 1 : 0) * d->x_step, y = d->y_start + (d->count ? d->count - 1 : 0) * d->y_step;
    return x < d->x->count && (!d->y || y < d->y->count) && (!d->extra || d->extra_at < d->extra->count);
}

double fb_terms_value(const fb_terms *terms)
{
    return terms->root && terms->sum >= 0.0 ? sqrt(terms->sum) : terms->sum * terms->scale;
}

int fb_terms_of(fb_look *look)
{
    fb_terms t = {0};
    dot d = {0};
    double value;
    if (look->out->count == 0) return 0;
    if (norm_of_all(look, &t)) d.root = 1;
    else if (find(look, &d) && within(&d)) add(&t, &d);
    else return 0;
    t.root = d.root;
    value = fb_terms_value(&t);
    /* Sums of FP64 in another order differ by some rounding of the magnitudes; a wrong layout differs by more than that. */
    if (look->exact_known && fb_json_is_number(look->exact) && fb_json_is_number(value)) {
        double room = (d.root ? fabs(value) : t.absolute * t.scale) * 1e-9;
        if (!(fabs(value - look->exact) <= room)) return 0;
    }
    if (look->exact_known && fb_json_is_number(look->exact) != fb_json_is_number(value) && !d.root) return 0;
    look->terms = t;
    return 1;
}
