/*
 * A trainer of nine operators on one rank, small enough to know by heart what must come out, with a switch for each fault.
 *
 *   tokens (R,K) -> embedding e -> sub d = e - 7 -> add g = d + epsilon (rounded to FP16) -> clamp n = 1e-4 -> div q = n / g
 *   -> mul p = q * weight, mul p2 = p * dense -> sum -> loss    side: log s = log(e), nan_to_num (read by the loss)
 *
 * Token 7 is the bad one: d is 0, epsilon is 1e-8, which is 0 in FP16, so n / g is Inf. In FP32 it is 1e4, and all is well.
 */
#ifndef FB_TESTS_LOCATE_TRAINER_H
#define FB_TESTS_LOCATE_TRAINER_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firstbad/locate.h"

enum { TR_ROWS = 4, TR_COLUMNS = 6, TR_ALL = TR_ROWS * TR_COLUMNS };
enum { OP_EMBEDDING, OP_SUB, OP_ADD, OP_DIV, OP_MUL, OP_LOG, OP_FIX, OP_SUM, OP_CLAMP };

typedef struct trainer {
    int32_t tokens[TR_ALL];
    float weight, dense; /* a number of the state; one of the batch */
    /* What is wrong, beside token 7. */
    int coupled;                 /* token 7 does harm only where two rows have it */
    uint32_t only_before;        /* only in replays with a smaller number; 0: always */
    uint32_t stray_in;           /* this replay runs one operator more; 0: none */
    uint32_t changed_in;         /* in this one the weight is another; 0: none */
    uint32_t fail_from, fail_to; /* these replays fail with `failure` */
    fb_status failure;
    int no_rows, no_tokens, no_fp32, no_rerun; /* what the trainer cannot do */
    int side_fault;                            /* the side branch takes the log of a negative number */
    uint32_t asked[5];                         /* replays by purpose */
    uint32_t reruns;
} trainer;

static const int64_t tr_samples[TR_ROWS] = {501, 502, 503, 504};

static inline void trainer_init(trainer *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TR_ALL; i++) t->tokens[i] = 1 + i % 5;
    t->tokens[2 * TR_COLUMNS + 3] = 7; /* row 2, column 3 */
    t->weight = 2.0f;
    t->dense = 1.0f;
}

/* ---- one replay -------------------------------------------------------------------------------------------------------------- */

typedef struct tr_step {
    fb_tape *tape;
    fb_error *err;
    fb_status status;
    const char *format;
    uint64_t rows;
} tr_step;

static inline uint32_t tr_entry(tr_step *s, const char *module, const char *name, uint32_t flags, int32_t dtype, const void *data,
                                uint64_t count)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    uint32_t id = 0;
    value.module = module;
    value.name = name;
    value.flags = flags;
    value.data = data;
    value.count = count;
    value.dtype = value.format = dtype;
    if (s->status == FB_OK) s->status = fb_tape_entry(s->tape, &value, &id, s->err);
    return id;
}

static inline uint32_t tr_op(tr_step *s, uint32_t token, const char *op_name, const char *module, const char *name,
                             int32_t boundary, uint32_t a, uint32_t b, const float *data, uint64_t count,
                             const fb_tape_attribute *attribute)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    fb_tape_op op = FB_TAPE_OP_INIT;
    uint32_t inputs[2], id = 0;
    inputs[0] = a;
    inputs[1] = b;
    value.name = name;
    value.data = data;
    value.count = count;
    value.dtype = FB_F32;
    value.format = strcmp(s->format, "fp32") == 0 ? FB_F32 : FB_F16;
    if (count > 1) {
        value.ndim = 2;
        value.shape[0] = (int64_t)s->rows;
        value.shape[1] = TR_COLUMNS;
    }
    op.op = op_name;
    op.module = module;
    op.source = "trainer.c:1";
    op.boundary = boundary;
    op.token = token;
    op.input_count = a == b ? 1 : 2;
    op.inputs = inputs;
    op.output_count = 1;
    op.outputs = &value;
    op.output_ids = &id;
    op.attributes = attribute;
    op.attribute_count = attribute ? 1 : 0;
    if (s->status == FB_OK) s->status = fb_tape_op_ran(s->tape, &op, s->err);
    return id;
}

static inline int tr_does_harm(const trainer *t, const float *e, uint64_t count)
{
    int rows = 0;
    if (!t->coupled) return 1;
    for (uint64_t row = 0; row < count / TR_COLUMNS; row++) {
        int has = 0;
        for (uint64_t i = 0; i < TR_COLUMNS; i++) has |= e[row * TR_COLUMNS + i] == 7.0f;
        rows += has;
    }
    return rows >= 2;
}

static inline fb_status tr_run(const trainer *t, fb_tape *tape, const int32_t *tokens, uint64_t rows, const char *format,
                               uint32_t number, fb_error *err)
{
    float e[TR_ALL], d[TR_ALL], g[TR_ALL], n[TR_ALL], q[TR_ALL], p[TR_ALL], s[TR_ALL], sum = 0, epsilon = 1e-8f;
    float weight = number == t->changed_in ? t->weight + 1 : t->weight;
    static const fb_tape_attribute eps = {"epsilon", 1e-8};
    uint64_t count = rows * TR_COLUMNS;
    tr_step step = {tape, err, FB_OK, format, rows};
    int quiet = t->only_before && number >= t->only_before, harm;
    uint32_t tokens_id, weight_id, dense_id, id[9];
    for (uint64_t i = 0; i < count; i++) e[i] = (float)tokens[i];
    harm = !quiet && tr_does_harm(t, e, count);
    for (uint64_t i = 0; i < count; i++) {
        d[i] = harm ? e[i] - 7.0f : 8.0f;
        g[i] = strcmp(format, "fp32") == 0 || d[i] != 0 ? d[i] + epsilon : 0.0f; /* 1e-8 is 0 in FP16 */
        n[i] = 1e-4f;
        q[i] = n[i] / g[i];
        p[i] = q[i] * weight * t->dense;
        s[i] = logf(t->side_fault ? -e[i] : e[i]);
        sum += p[i];
    }
    tokens_id = tr_entry(&step, "", "tokens", FB_TAPE_BATCH, FB_I32, tokens, count);
    dense_id = tr_entry(&step, "", "dense", FB_TAPE_BATCH, FB_F32, &t->dense, 1);
    weight_id = tr_entry(&step, "h.1", "weight", FB_TAPE_STATE, FB_F32, &weight, 1);
    id[0] = tr_op(&step, OP_EMBEDDING, "embedding", "wte", "e", FB_FORWARD, tokens_id, tokens_id, e, count, NULL);
    if (number == t->stray_in) (void)tr_op(&step, 99, "dropout", "wte", "x", FB_FORWARD, id[0], id[0], e, count, NULL);
    id[5] = tr_op(&step, OP_LOG, "log", "side", "s", FB_FORWARD, id[0], id[0], s, count, NULL);
    for (uint64_t i = 0; i < count; i++) s[i] = isfinite(s[i]) ? s[i] : 0.0f;
    id[6] = tr_op(&step, OP_FIX, "nan_to_num", "side", "clean", FB_FORWARD, id[5], id[5], s, count, NULL);
    id[1] = tr_op(&step, OP_SUB, "sub", "h.0", "d", FB_FORWARD, id[0], id[0], d, count, NULL);
    id[2] = tr_op(&step, OP_ADD, "add", "h.0", "g", FB_FORWARD, id[1], id[1], g, count, &eps);
    id[8] = tr_op(&step, OP_CLAMP, "clamp", "h.0", "n", FB_FORWARD, id[0], id[0], n, count, NULL);
    id[3] = tr_op(&step, OP_DIV, "div", "h.0", "q", FB_FORWARD, id[8], id[2], q, count, NULL);
    id[4] = tr_op(&step, OP_MUL, "mul", "h.1", "p", FB_FORWARD, id[3], weight_id, p, count, NULL);
    id[7] = tr_op(&step, OP_MUL, "mul", "h.1", "p2", FB_FORWARD, id[4], dense_id, p, count, NULL);
    (void)tr_op(&step, OP_SUM, "sum", "loss", "total", FB_LOSS, id[7], id[6], &sum, 1, NULL);
    return step.status;
}

static inline fb_status tr_replay(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    trainer *t = ctx;
    int32_t tokens[TR_ALL];
    uint64_t rows = TR_ROWS;
    const char *format = "fp16";
    t->asked[request->purpose]++;
    if (request->number >= t->fail_from && request->number <= t->fail_to) return t->failure;
    if (request->purpose == FB_REPLAY_PRECISION) {
        if (t->no_fp32) return FB_E_UNSUPPORTED;
        format = request->precision;
    }
    memcpy(tokens, t->tokens, sizeof tokens);
    if (request->purpose == FB_REPLAY_SMALLER) {
        if (t->no_rows || (request->keep && t->no_tokens)) return FB_E_UNSUPPORTED;
        rows = request->row_count;
        for (uint32_t r = 0; r < request->row_count; r++) {
            for (uint32_t i = 0; i < TR_COLUMNS; i++) {
                int keep = !request->keep || request->keep[r * TR_COLUMNS + i];
                tokens[r * TR_COLUMNS + i] = keep ? t->tokens[request->rows[r] * TR_COLUMNS + i] : 1;
            }
        }
    }
    return tr_run(t, tape, tokens, rows, format, request->number, err);
}

static inline fb_status tr_rerun(void *ctx, fb_rerun *rerun, fb_error *err)
{
    trainer *t = ctx;
    const double *a = rerun->inputs[0];
    (void)err;
    t->reruns++;
    if (t->no_rerun) return FB_E_UNSUPPORTED;
    for (uint64_t i = 0; i < rerun->output_counts[0]; i++) {
        double *out = &rerun->outputs[0][i];
        switch (rerun->token) {
        case OP_SUB: *out = a[i] - 7.0; break;
        case OP_ADD: *out = a[i] + rerun->attributes[0].value; break;
        case OP_CLAMP: *out = 1e-4; break;
        case OP_DIV: *out = a[i] / rerun->inputs[1][i]; break;
        default: return FB_E_UNSUPPORTED;
        }
    }
    return FB_OK;
}

static inline fb_locate_config trainer_config(trainer *t)
{
    fb_locate_config config = FB_LOCATE_CONFIG_INIT;
    config.finding_boundary = FB_LOSS;
    config.finding_kind = FB_KIND_POS_INF;
    config.finding_module = "loss";
    config.finding_tensor = "total";
    config.precision = "fp16";
    config.rows = TR_ROWS;
    config.columns = TR_COLUMNS;
    config.sample_ids = tr_samples;
    config.step = 412;
    config.ctx = t;
    config.replay = tr_replay;
    config.rerun = tr_rerun;
    return config;
}

#endif
