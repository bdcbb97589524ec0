/*
 * ops_attention.c: what attention is made of besides its softmax. qkv(B,T,3C) holds query, key and value side by side; NH heads
 * have HS = C / NH channels each. scratch: (HS,T), keys or values transposed.
 */
#include "matmul.h"
#include "ops.h"

#include <math.h>

typedef struct head {
    size_t T, C, HS;
    size_t qkv, out, pairs; /* where it begins in (B,T,3C), in (B,T,C), and in (B,NH,T,T) */
} head;

/* Head number i of B * NH. */
static head head_of(const gpt_run_shape *shape, size_t i)
{
    size_t T = shape->T, C = shape->C, HS = C / shape->NH, b = i / shape->NH, h = i % shape->NH;
    return (head){T, C, HS, b * T * 3 * C + h * HS, b * T * C + h * HS, i * T * T};
}

void op_scores(const op_call *c)
{
    for (size_t i = 0; i < c->shape->B * c->shape->NH; i++) {
        head h = head_of(c->shape, i);
        const float *query = c->in[0] + h.qkv, *key = query + h.C; // (T,HS), rows 3C apart
        transpose(c->scratch, key, 3 * h.C, h.T, h.HS);
        matmul(c->out[0] + h.pairs, h.T, (matrix){query, 3 * h.C, 1}, c->scratch, h.T, h.T, h.T, h.HS, false); // (T,T)
    }
}

/* d_query and d_key lie side by side in (B,T,2C). */
void op_scores_backward(const op_call *c)
{
    for (size_t i = 0; i < c->shape->B * c->shape->NH; i++) {
        head h = head_of(c->shape, i);
        const float *g = c->in[0] + h.pairs, *query = c->in[1] + h.qkv, *key = query + h.C; // (T,T) (T,HS) (T,HS)
        size_t at = i / c->shape->NH * h.T * 2 * h.C + i % c->shape->NH * h.HS;
        float *d_query = c->out[0] + at, *d_key = d_query + h.C; // (T,HS), rows 2C apart
        matmul(d_query, 2 * h.C, (matrix){g, h.T, 1}, key, 3 * h.C, h.T, h.HS, h.T, false);
        matmul(d_key, 2 * h.C, (matrix){g, 1, h.T}, query, 3 * h.C, h.T, h.HS, h.T, false);
    }
}

/* Forward puts -Inf where a key is not seen, backward 0. */
GPT_CLONES void op_mask(const op_call *c)
{
    const float *in = c->in[0], *key_mask = c->op->in_count > 1 ? c->in[1] : NULL; // (B,NH,T,T) (B,T)
    float *out = c->out[0], hidden = c->op->kind == OP_MASK ? -INFINITY : 0.0f;
    size_t T = c->shape->T, each = c->shape->NH * T;
    for (size_t r = 0; r < c->shape->B * each; r++) {
        const float *seen = key_mask ? key_mask + r / each * T : NULL; // (T)
        size_t t = r % T;
        for (size_t u = 0; u < T; u++) out[r * T + u] = u > t ? hidden : in[r * T + u];
        for (size_t u = 0; seen && u <= t; u++) out[r * T + u] = seen[u] == 0.0f ? hidden : out[r * T + u];
    }
}

void op_heads(const op_call *c)
{
    for (size_t i = 0; i < c->shape->B * c->shape->NH; i++) {
        head h = head_of(c->shape, i);
        const float *p = c->in[0] + h.pairs, *value = c->in[1] + h.qkv + 2 * h.C; // (T,T) (T,HS)
        matmul(c->out[0] + h.out, h.C, (matrix){p, h.T, 1}, value, 3 * h.C, h.T, h.HS, h.T, false);
    }
}

void op_heads_backward(const op_call *c)
{
    for (size_t i = 0; i < c->shape->B * c->shape->NH; i++) {
        head h = head_of(c->shape, i);
        const float *g = c->in[0] + h.out, *p = c->in[1] + h.pairs, *value = c->in[2] + h.qkv + 2 * h.C; // (T,HS) (T,T) (T,HS)
        transpose(c->scratch, value, 3 * h.C, h.T, h.HS);
        matmul(c->out[0] + h.pairs, h.T, (matrix){g, h.C, 1}, c->scratch, h.T, h.T, h.T, h.HS, false);     // g v^T
        if (c->out[1]) matmul(c->out[1] + h.out, h.C, (matrix){p, 1, h.T}, g, h.C, h.T, h.HS, h.T, false); // p^T g
    }
}
