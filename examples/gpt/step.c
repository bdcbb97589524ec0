/*
 * step.c: one update on one rank. step_guarded is the integration of firstbad into a trainer; step_plain is the same update without
 * it. What both share stands first. The hooks of faults.h do nothing where no fault was asked for.
 */
#include "finding.h"
#include "incident.h"
#include "trainer.h"
#include "update.h"

#include <firstbad/mpi.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every tensor of the state is looked at once in so many steps. */
enum { STATE_PERIOD = 16 };

static size_t batch_at(const trainer *t, size_t micro)
{
    return micro * t->batch.rows * t->batch.columns;
}

static gpt_input input_of(const trainer *t, size_t micro)
{
    size_t at = batch_at(t, micro);
    return (gpt_input){.tokens = t->batch.tokens + at,
                       .targets = t->batch.targets + at,
                       .weights = t->batch.weights + at,
                       .key_mask = t->batch.key_mask + at,
                       .positions = t->batch.positions + at};
}

static int is_left_out(void *run, int64_t offset)
{
    return fb_run_left_out(run, offset);
}

int trainer_draw(trainer *t, int64_t step)
{
    const char *named = getenv("FIRSTBAD_LEAVE_OUT"); /* the same on every rank: the launcher hands it on */
    t->left_out.is = t->guard.run && named && *named ? is_left_out : NULL;
    t->left_out.ctx = t->guard.run;
    if (batch_draw_without(&t->batch, &t->data, t->options.model.seed, step, t->rank, &t->left_out) != 0) return -1;
    for (size_t micro = 0; micro < t->batch.micro_steps; micro++) {
        size_t at = batch_at(t, micro);
        fault_batch drawn = {.rows = t->batch.rows,
                             .columns = t->batch.columns,
                             .tokens = t->batch.tokens + at,
                             .targets = t->batch.targets + at,
                             .positions = t->batch.positions + at,
                             .weights = t->batch.weights + at,
                             .key_mask = t->batch.key_mask + at};
        faults_batch(&t->options.faults, place_of(t, step, micro), &drawn);
    }
    return 0;
}

/* ---- what a step does with firstbad and without ----------------------------------------------------------------------------- */

static void heard(void *listener, const gpt_model *model, int op)
{
    trainer *t = listener;
    faults_heard(&t->options.faults, t->model, op, model->shape.place, t->rank, 0);
}

static void begin_update(trainer *t, int64_t step)
{
    fault_state state = {t->model, t->optimizer.exp_avg, t->optimizer.exp_avg_sq, &t->optimizer.updates};
    if (faults_entry(&t->options.faults, place_of(t, step, 0), &state)) gpt_load_weights(t->model);
    if (faults_hear(&t->options.faults)) {
        t->model->heard = heard;
        t->model->listener = t;
    }
}

/* The local gradients are empty, and what a fault leaves in them is there. */
static void begin_gradients(trainer *t, int64_t step)
{
    gradients_begin(&t->gradients);
    (void)faults_store(&t->options.faults, place_of(t, step, 0), t->model, t->gradients.half);
}

static void forward_micro(trainer *t, int64_t step, size_t micro, double scale)
{
    gradients_micro_begin(&t->gradients);
    faults_buffers(&t->options.faults, t->model, place_of(t, step, micro));
    gpt_forward(t->model, input_of(t, micro), place_of(t, step, micro), scale / (double)t->options.accumulation);
}

static void backward_micro(trainer *t, int64_t step, size_t micro)
{
    gpt_backward(t->model, input_of(t, micro), place_of(t, step, micro));
    gradients_micro_end(&t->gradients);
    if (step == t->options.gradient_blowup) gradients_blow_up_middle(&t->gradients, t->model);
    faults_local(&t->options.faults, place_of(t, step, micro), t->model, t->gradients.half);
}

static void reduce(trainer *t, int64_t step)
{
    gradients_reduce(&t->gradients);
    faults_reduced(&t->options.faults, place_of(t, step, 0), t->rank, 0, t->model, t->gradients.half);
    gradients_widen(&t->gradients);
}

/* What the optimizer will compute with; the norm becomes the one that it clips with. */
static adamw_numbers numbers_of(trainer *t, int64_t step, outcome *out)
{
    return update_numbers(&t->options.faults, place_of(t, step, 0), &t->optimizer, t->model->gradients, t->model->parameter_count,
                          out->learning_rate, &out->norm);
}

static void update(trainer *t, int64_t step, const adamw_numbers *numbers)
{
    if (faults_applies(&t->options.faults, place_of(t, step, 0))) adamw_update_with(&t->optimizer, t->model, numbers);
}

/* ---- one step without firstbad ---------------------------------------------------------------------------------------------- */

/* What fb_step_unscale does besides its checks: multiply in place, and the sum of squares in FP64. */
static double unscale_plain(float *x, size_t n, double inverse)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        x[i] *= (float)inverse;
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

void step_plain(trainer *t, int64_t step, outcome *out)
{
    const options *o = &t->options;
    adamw_numbers numbers;
    begin_update(t, step);
    out->scale = faults_scale(&o->faults, place_of(t, step, 0), o->model.format == PRECISION_FP16 ? o->loss_scale : 1.0);
    begin_gradients(t, step);
    for (size_t micro = 0; micro < o->accumulation; micro++) {
        forward_micro(t, step, micro, out->scale);
        backward_micro(t, step, micro);
        out->loss += t->model->loss / (double)o->accumulation;
    }
    reduce(t, step);
    out->norm = sqrt(unscale_plain(t->model->gradients, t->model->parameter_count, 1.0 / (out->scale * t->world)));
    out->norm_known = 1;
    numbers = numbers_of(t, step, out);
    update(t, step, &numbers);
}

/* ---- the same step, guarded ------------------------------------------------------------------------------------------------- */

static void guarded_begin(trainer *t, int64_t step, double learning_rate)
{
    fb_error err = {0};
    fb_step begin = FB_STEP_INIT;
    rng_stream stream = {.seed = t->options.model.seed, .step = (uint32_t)step, .rank = (uint32_t)t->rank};
    begin.step = begin.global_batch_id = step;
    begin.micro_steps = (int32_t)t->options.accumulation;
    begin.sample_ids = t->batch.offsets;
    begin.sample_count = t->batch.micro_steps * t->batch.rows;
    begin.batch_fingerprint = t->batch.fingerprint;
    begin.rng_state_hash = rng_hash(&stream);
    begin.learning_rate = learning_rate;
    begin.known = FB_KNOWN_BATCH_ID | FB_KNOWN_BATCH_FINGERPRINT | FB_KNOWN_RNG_HASH | FB_KNOWN_LEARNING_RATE;
    if (t->parent >= 0) {
        begin.checkpoint_parent = t->parent;
        begin.known |= FB_KNOWN_CHECKPOINT_PARENT;
    }
    must(t, fb_step_begin(t->guard.run, &begin, &err), &err);
    if (t->options.check_state != STATE_NONE)
        must(t,
             fb_step_check_sampled(t->guard.run, FB_ENTRY, t->guard.state, 3 * t->guard.n,
                                   t->options.check_state == STATE_FULL ? 1 : STATE_PERIOD, &err),
             &err);
}

/* A fault may give this rank a loss scale of its own. */
static void guarded_scaler(trainer *t, int64_t step)
{
    fb_scaler_state scaler;
    fb_error err = {0};
    if (!t->options.faults.count) return;
    must(t, fb_run_scaler_get(t->guard.run, &scaler, &err), &err);
    if (faults_scaler(&t->options.faults, place_of(t, step, 0), &scaler.scale))
        must(t, fb_run_scaler_set(t->guard.run, &scaler, &err), &err);
}

/* Unscale under the guard. A scale that has no inverse is none that fb_step_unscale takes: the product is then made here, whatever
 * comes of it, and judged as it is. */
static double guarded_unscale(trainer *t, double scale)
{
    guard *g = &t->guard;
    fb_error err = {0};
    double inverse = 1.0 / (scale * t->world), sum_sq = 0.0;
    if (!(inverse > 0.0 && inverse <= FLT_MAX)) {
        (void)unscale_plain(t->model->gradients, t->model->parameter_count, inverse);
        inverse = 1.0;
    }
    must(t, fb_step_unscale(g->run, g->reduced, g->n, inverse, &sum_sq, &err), &err);
    return sum_sq;
}

/* The input gate: token ids, labels, positions, the mask, and the one float input, the weights of the loss. */
static void guarded_input(trainer *t, size_t micro)
{
    fb_error err = {0};
    fb_tokens tokens = FB_TOKENS_INIT;
    size_t count = t->batch.rows * t->batch.columns, at = batch_at(t, micro);
    fb_view weights = {.data = t->batch.weights + at, .count = count, .dtype = FB_F32, .site = t->guard.weights, .device = -1};
    for (size_t i = 0; i < count; i++) t->guard.mask[i] = float_bits(t->batch.key_mask[at + i]) != 0;
    tokens.site = t->guard.tokens;
    tokens.rows = t->batch.rows;
    tokens.cols = t->batch.columns;
    tokens.tokens = t->batch.tokens + at;
    tokens.labels = t->batch.targets + at;
    tokens.positions = t->batch.positions + at;
    tokens.mask = t->guard.mask;
    tokens.mask_dtype = FB_U8;
    tokens.weights = t->batch.weights + at;
    tokens.weight_site = t->guard.weights;
    tokens.vocab = tokens.classes = GPT_VOCAB;
    tokens.positions_max = (int64_t)t->options.model.block;
    must(t, fb_step_check(t->guard.run, FB_INPUT, &weights, 1, &err), &err);
    must(t, fb_step_check_tokens(t->guard.run, &tokens, &err), &err);
}

static void step_micros(trainer *t, int64_t step, outcome *out)
{
    guard *g = &t->guard;
    fb_error err = {0};
    begin_gradients(t, step);
    for (size_t micro = 0; micro < t->options.accumulation; micro++) {
        if (micro) must(t, fb_step_micro(g->run, (int32_t)micro, &err), &err);
        guarded_input(t, micro);
        forward_micro(t, step, micro, out->scale);
        must(t, g->watched, &g->watched_error);
        must(t, fb_step_check(g->run, FB_LOSS, &g->loss, 1, &err), &err);
        backward_micro(t, step, micro);
        must(t, fb_step_check(g->run, FB_LOCAL_GRAD, g->local, g->n, &err), &err);
        out->loss += t->model->loss / (double)t->options.accumulation;
    }
}

/* The vote of all ranks. A run that only observes is told of a bad update here, while it can still be replayed. */
static void guarded_vote(trainer *t, int64_t step, fb_verdict *verdict, const outcome *out)
{
    fb_error err = {0};
    must(t, fb_mpi_step_vote(t->guard.run, t->comm, verdict, &err), &err);
    if (verdict->action == FB_PROCEED && verdict->fault) incident(t, step, verdict, out);
}

/* --keep-state: what the optimizer makes is written beside the state, looked at, and voted on. */
static void guarded_proposal(trainer *t, int64_t step, const adamw_numbers *numbers, fb_verdict *verdict, const outcome *out)
{
    fb_error err = {0};
    int applies = faults_applies(&t->options.faults, place_of(t, step, 0));
    proposal_make(&t->proposal, t->model, &t->optimizer, applies ? numbers : NULL);
    must(t, fb_step_check(t->guard.run, FB_UPDATE, t->proposal.views, 3 * t->guard.n, &err), &err);
    guarded_vote(t, step, verdict, out);
}

static void guarded_apply(trainer *t, int64_t step, const adamw_numbers *numbers)
{
    guard *g = &t->guard;
    fb_error err = {0};
    must(t, fb_step_apply(g->run, &err), &err);
    if (t->proposal.state.parameters) {
        proposal_put_in_place(&t->proposal, t->model, &t->optimizer);
    } else {
        update(t, step, numbers);
        must(t, fb_step_check_sampled(g->run, FB_UPDATE, g->state, 3 * g->n, STATE_PERIOD, &err), &err);
    }
}

void step_guarded(trainer *t, int64_t step, outcome *out)
{
    guard *g = &t->guard;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    adamw_numbers numbers = {0};
    fb_error err = {0};

    begin_update(t, step);
    guarded_scaler(t, step);
    guarded_begin(t, step, out->learning_rate);
    out->scale = faults_scale(&t->options.faults, place_of(t, step, 0), fb_run_loss_scale(g->run));
    step_micros(t, step, out);
    result.loss = out->loss;
    result.known = FB_KNOWN_LOSS;

    guarded_vote(t, step, &verdict, out);
    if (verdict.action == FB_PROCEED) {
        reduce(t, step);
        result.grad_norm = out->norm = sqrt(guarded_unscale(t, out->scale));
        result.known |= FB_KNOWN_GRAD_NORM;
        out->norm_known = 1;
        numbers = numbers_of(t, step, out);
        g->grad_norm = out->norm; /* every element can be finite, and a norm that is summed in FP32 is not */
        finding_report_norm(t);
        guarded_vote(t, step, &verdict, out);
    }
    if (verdict.action == FB_PROCEED && t->proposal.state.parameters) guarded_proposal(t, step, &numbers, &verdict, out);
    if (verdict.action == FB_PROCEED) guarded_apply(t, step, &numbers);
    must(t, fb_step_end(g->run, &result, &err), &err);
    if (verdict.action != FB_PROCEED) incident(t, step, &verdict, out);
    out->skipped = verdict.action != FB_PROCEED;
    out->halted = verdict.action == FB_HALT;
}
