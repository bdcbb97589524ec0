/*
 * A whole trainer of one process with firstbad in it: the program that docs/integrating.md quotes, compiled and run by
 * tests/unit/test_integrating.c. The model is the smallest that has an embedding lookup, a loss and an optimizer with state: a
 * table w of (V,V) logits, the next byte given this one, trained by SGD with momentum.
 */
#include <firstbad/firstbad.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 16, ROWS = 2, COLS = 8, MICRO_STEPS = 2 };

typedef struct trainer {
    float w[V * V], m[V * V], d_w[V * V], next_w[V * V], next_m[V * V];
    int32_t tokens[ROWS * COLS], labels[ROWS * COLS];
    double loss;
    int32_t updates;
    int hold_back; /* 1: an update is written beside the state, looked at, and then put in place */
    fb_run *run;
    fb_view grad, state[3], loss_view, batch;
    fb_error err;
} trainer;

/* ---- the model, which knows nothing of firstbad ------------------------------------------------------------------------------ */

static void draw_batch(trainer *t, int step, int micro)
{
    for (int i = 0; i < ROWS * COLS; i++) {
        t->tokens[i] = (step * 7 + micro * 3 + i * 5) % V;
        t->labels[i] = (t->tokens[i] + 3) % V;
    }
}

static void probabilities(const trainer *t, int i, double p[V])
{
    const float *logits = t->w + t->tokens[i] * V;
    double top = logits[0], sum = 0.0;
    for (int v = 1; v < V; v++) top = logits[v] > top ? logits[v] : top;
    for (int v = 0; v < V; v++) sum += p[v] = exp(logits[v] - top);
    for (int v = 0; v < V; v++) p[v] /= sum;
}

static void forward(trainer *t)
{
    double p[V];
    t->loss = 0.0;
    for (int i = 0; i < ROWS * COLS; i++) {
        probabilities(t, i, p);
        t->loss -= log(p[t->labels[i]]) / (ROWS * COLS);
    }
}

static void backward(trainer *t, double scale)
{
    double p[V];
    for (int i = 0; i < ROWS * COLS; i++) {
        float *d_logits = t->d_w + t->tokens[i] * V;
        probabilities(t, i, p);
        for (int v = 0; v < V; v++) d_logits[v] += (float)(scale / (ROWS * COLS) * (p[v] - (v == t->labels[i])));
    }
}

static void optimizer_step(const trainer *t, float *w, float *m, float learning_rate, float clip)
{
    for (int i = 0; i < V * V; i++) {
        m[i] = 0.9f * m[i] + clip * t->d_w[i];
        w[i] -= learning_rate * m[i];
    }
}

/* ---- once -------------------------------------------------------------------------------------------------------------------- */

/* A refused call is a mistake in this program. A bad number is not: it comes as a verdict. */
static void must(const trainer *t, fb_status status)
{
    if (status == FB_OK) return;
    fprintf(stderr, "%s: %s\n", fb_status_name(status), t->err.message);
    exit(3);
}

static void name(trainer *t, int32_t role, const char *tensor, fb_view *view, void *data, uint64_t count, int32_t dtype)
{
    *view = (fb_view)FB_VIEW_INIT(data, count, dtype, 0);
    must(t, fb_run_name_view(t->run, role, "table", tensor, view, &t->err));
}

static void guard_open(trainer *t, int loss_scaling)
{
    fb_run_config config = FB_RUN_CONFIG_INIT;
    config.precision = "fp32";
    config.scaler.enabled = loss_scaling;
    must(t, fb_run_open_alone(&t->run, &config, &t->err));
    name(t, FB_ROLE_INPUT, "tokens", &t->batch, NULL, 0, FB_I32);
    name(t, FB_ROLE_GRADIENT, "w", &t->grad, t->d_w, V * V, FB_F32);
    name(t, FB_ROLE_PARAMETER, "w", &t->state[0], t->w, V * V, FB_F32);
    name(t, FB_ROLE_MOMENT, "w.m", &t->state[1], t->m, V * V, FB_F32);
    name(t, FB_ROLE_COUNTER, "updates", &t->state[2], &t->updates, 1, FB_I32);
    name(t, FB_ROLE_LOSS, "loss", &t->loss_view, &t->loss, 1, FB_F64);
    must(t, fb_run_own(t->run, t->state, 3, &t->err));
}

/* ---- every step -------------------------------------------------------------------------------------------------------------- */

static void check_batch(trainer *t)
{
    fb_tokens tokens = FB_TOKENS_INIT;
    tokens.site = t->batch.site;
    tokens.rows = ROWS;
    tokens.cols = COLS;
    tokens.tokens = t->tokens;
    tokens.labels = t->labels;
    tokens.vocab = tokens.classes = V;
    must(t, fb_step_check_tokens(t->run, &tokens, &t->err));
}

/* Forward and backward of one micro-step. A bad batch or loss ends it early: what was found is kept for the vote. */
static void micro_step(trainer *t, int step, int micro, double scale)
{
    if (micro) must(t, fb_step_micro(t->run, micro, &t->err));
    draw_batch(t, step, micro);
    check_batch(t);
    if (fb_step_findings(t->run)) return; /* a token out of range must not become an index */
    forward(t);
    must(t, fb_step_check(t->run, FB_LOSS, &t->loss_view, 1, &t->err));
    if (fb_step_findings(t->run)) return;
    backward(t, scale / MICRO_STEPS);
    must(t, fb_step_check(t->run, FB_LOCAL_GRAD, &t->grad, 1, &t->err));
}

static int32_t update_in_place(trainer *t, float learning_rate, float clip)
{
    must(t, fb_step_apply(t->run, &t->err));
    optimizer_step(t, t->w, t->m, learning_rate, clip);
    t->updates++;
    must(t, fb_step_check_sampled(t->run, FB_UPDATE, t->state, 2, 16, &t->err));
    return FB_PROCEED;
}

/* The optimizer writes beside the state; what it wrote takes its place when every number of it was found finite. */
static int32_t update_held_back(trainer *t, float learning_rate, float clip)
{
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_view made[2] = {t->state[0], t->state[1]}; /* the names of the state, and other memory */
    memcpy(t->next_w, t->w, sizeof t->w);
    memcpy(t->next_m, t->m, sizeof t->m);
    optimizer_step(t, t->next_w, t->next_m, learning_rate, clip);
    made[0].data = t->next_w;
    made[1].data = t->next_m;
    must(t, fb_step_check(t->run, FB_UPDATE, made, 2, &t->err));
    must(t, fb_step_vote_alone(t->run, &verdict, &t->err));
    if (verdict.action != FB_PROCEED) return verdict.action; /* the state is what it was */
    must(t, fb_step_apply(t->run, &t->err));
    memcpy(t->w, t->next_w, sizeof t->w);
    memcpy(t->m, t->next_m, sizeof t->m);
    t->updates++;
    return FB_PROCEED;
}

static int32_t update(trainer *t, float learning_rate, float clip)
{
    return t->hold_back ? update_held_back(t, learning_rate, clip) : update_in_place(t, learning_rate, clip);
}

static int32_t train_step(trainer *t, int step, float learning_rate)
{
    fb_step begin = FB_STEP_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    double scale = fb_run_loss_scale(t->run), sum_sq, norm; /* 1 without a scaler */

    begin.step = step;
    begin.micro_steps = MICRO_STEPS;
    begin.learning_rate = learning_rate;
    begin.known = FB_KNOWN_LEARNING_RATE;
    must(t, fb_step_begin(t->run, &begin, &t->err));
    memset(t->d_w, 0, sizeof t->d_w);
    for (int micro = 0; micro < MICRO_STEPS; micro++) micro_step(t, step, micro, scale);
    result.loss = t->loss;
    result.known = FB_KNOWN_LOSS;

    must(t, fb_step_vote_alone(t->run, &verdict, &t->err));
    if (verdict.action == FB_PROCEED) {
        must(t, fb_step_unscale(t->run, &t->grad, 1, 1.0 / scale, &sum_sq, &t->err));
        result.grad_norm = norm = sqrt(sum_sq);
        result.known |= FB_KNOWN_GRAD_NORM;
        must(t, fb_step_vote_alone(t->run, &verdict, &t->err));
        if (verdict.action == FB_PROCEED) verdict.action = update(t, learning_rate, norm > 1.0 ? (float)(1.0 / norm) : 1.0f);
    }
    must(t, fb_step_end(t->run, &result, &t->err));
    return verdict.action;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------- */

/* safetensors: the length of the header, the header, the bytes. */
static int write_file(const trainer *t, const char *path)
{
    char header[256];
    uint64_t bytes = sizeof t->w,
             length = (uint64_t)snprintf(header, sizeof header,
                                         "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},\"m\":{\"dtype\":"
                                         "\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}}",
                                         V, V, (int)bytes, V, V, (int)bytes, (int)(2 * bytes));
    FILE *file = fopen(path, "wb");
    if (!file) return -1;
    fwrite(&length, sizeof length, 1, file);
    fwrite(header, 1, (size_t)length, file);
    fwrite(t->w, sizeof t->w, 1, file);
    fwrite(t->m, sizeof t->m, 1, file);
    return fclose(file);
}

/* Returns 1 when it was written. What firstbad refuses is no reason to stop: the last committed
 * checkpoint stays the one to resume from. */
static int save(trainer *t, const char *path, int step)
{
    fb_status gate = fb_run_save_gate(t->run, step, t->state, 2, NULL, &t->err);
    if (gate != FB_OK) fprintf(stderr, "%s\n", t->err.message);
    if (gate == FB_E_WITHHELD) return 0;
    if (fb_run_checkpoint_begin(t->run, path, step, &t->err) != FB_OK) fprintf(stderr, "%s\n", t->err.message);
    if (write_file(t, path) != 0) return 0;
    if (fb_run_checkpoint_verify(t->run, path, step, &t->err) != FB_OK) fprintf(stderr, "%s\n", t->err.message);
    return 1;
}

/* What came of the checkpoints, whenever it is there. Returns the state of the last one; 0: nothing new. */
static int32_t hear(trainer *t)
{
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    int32_t state = 0;
    while (fb_run_checkpoint_poll(t->run, &result, &t->err) == FB_OK) {
        state = result.state; /* FB_CKPT_COMMITTED, FB_CKPT_SUSPECT or FB_CKPT_QUARANTINED */
        if (state != FB_CKPT_COMMITTED) fprintf(stderr, "%s: %s\n", result.path, result.reason);
    }
    return state;
}

/* ---- the run ----------------------------------------------------------------------------------------------------------------- */

static int train(trainer *t, int steps, const char *checkpoint)
{
    int32_t action = FB_PROCEED;
    for (int step = 1; step <= steps && action != FB_HALT; step++) {
        action = train_step(t, step, 0.5f);
        if (action != FB_PROCEED) printf("step %d: update withheld\n", step);
        if (step % 10 == 0) save(t, checkpoint, step);
        hear(t);
    }
    if (fb_run_evidence_lost(t->run, &t->err)) fprintf(stderr, "evidence was lost: %s\n", t->err.message);
    fb_run_close(t->run); /* while the state it owns is still there */
    return action == FB_HALT ? 1 : 0;
}

#ifndef ALONE_IN_A_TEST
int main(void)
{
    static trainer t;
    guard_open(&t, 0);
    return train(&t, 100, "table.safetensors");
}
#endif
