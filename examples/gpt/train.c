/* train.c: the program. Data-parallel training over MPI: every rank computes the gradient of its own batch, all apply the mean. */
#include "checkpoint.h"
#include "gradients.h"
#include "guard.h"

#include <firstbad/ckpt.h>
#include <firstbad/firstbad.h>
#include <firstbad/mpi.h>

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_HALTED = 1, EXIT_WRONG_USE = 2, EXIT_FAILED = 3 };

/* Every tensor of the state is looked at once in so many steps. */
enum { STATE_PERIOD = 16 };

typedef struct trainer {
    options options;
    MPI_Comm comm;
    int rank, world;
    gpt_model *model;
    adamw optimizer;
    dataset data;
    batch batch;
    gradients gradients;
    guard guard;
    train_state state;
    int64_t parent; /* step of the checkpoint that this run continues, or -1 */
} trainer;

/* What one step came to. */
typedef struct outcome {
    double loss, norm, learning_rate, scale;
    int norm_known, skipped, halted;
} outcome;

static int complain(const trainer *t, int code, const char *sentence)
{
    if (t->rank == 0) fprintf(stderr, "firstbad-gpt: %s\n", sentence);
    return code;
}

/* The worst status of all ranks, so that none goes on alone. */
static int agree(const trainer *t, int status)
{
    MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, t->comm);
    return status;
}

static gpt_place place_of(const trainer *t, int64_t step, size_t micro)
{
    return (gpt_place){step, (int32_t)micro, t->rank};
}

static gpt_input input_of(const trainer *t, size_t micro)
{
    size_t at = micro * t->batch.rows * t->batch.columns;
    return (gpt_input){.tokens = t->batch.tokens + at, .targets = t->batch.targets + at, .weights = t->batch.weights + at};
}

static void finish_micro(trainer *t, int64_t step)
{
    gradients_micro_end(&t->gradients);
    if (step == t->options.gradient_blowup) {
        size_t middle = 2 + t->options.model.layers / 2 * BLOCK_TENSORS + C_FC_WEIGHT;
        gradients_blow_up(&t->gradients, &t->model->tensors[middle]);
    }
}

/* ---- one step without firstbad ----------------------------------------------------------------------------------------------- */

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

static void step_plain(trainer *t, int64_t step, outcome *out)
{
    const options *o = &t->options;
    out->scale = o->model.format == PRECISION_FP16 ? o->loss_scale : 1.0;
    gradients_begin(&t->gradients);
    for (size_t micro = 0; micro < o->accumulation; micro++) {
        gradients_micro_begin(&t->gradients);
        gpt_forward(t->model, input_of(t, micro), place_of(t, step, micro), out->scale / (double)o->accumulation);
        gpt_backward(t->model, input_of(t, micro), place_of(t, step, micro));
        finish_micro(t, step);
        out->loss += t->model->loss / (double)o->accumulation;
    }
    gradients_reduce(&t->gradients);
    gradients_widen(&t->gradients);
    out->norm = sqrt(unscale_plain(t->model->gradients, t->model->parameter_count, 1.0 / (out->scale * t->world)));
    out->norm_known = 1;
    adamw_update(&t->optimizer, t->model, out->learning_rate, adamw_clip_coefficient(&t->optimizer, out->norm));
}

/* ---- the same step, guarded -------------------------------------------------------------------------------------------------- */

/*
 * A refused call is a mistake of this program: one rank cannot stop alone, so all are ended. A bad number is no such thing; it
 * comes as a verdict, which all ranks share.
 */
static void must(const trainer *t, fb_status status, const fb_error *err)
{
    if (status == FB_OK) return;
    fprintf(stderr, "firstbad-gpt: rank %d: %s: %s\n", t->rank, fb_status_name(status), err->message);
    MPI_Abort(t->comm, EXIT_FAILED);
}

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

/* The input gate: token ids, labels, and the one float input, the weights of the loss. */
static void guarded_input(trainer *t, size_t micro)
{
    fb_error err = {0};
    fb_tokens tokens = FB_TOKENS_INIT;
    size_t count = t->batch.rows * t->batch.columns, at = micro * count;
    fb_view weights = {.data = t->batch.weights + at, .count = count, .dtype = FB_F32, .site = t->guard.weights, .device = -1};
    tokens.site = t->guard.tokens;
    tokens.rows = t->batch.rows;
    tokens.cols = t->batch.columns;
    tokens.tokens = t->batch.tokens + at;
    tokens.labels = t->batch.targets + at;
    tokens.weights = t->batch.weights + at;
    tokens.weight_site = t->guard.weights;
    tokens.vocab = tokens.classes = GPT_VOCAB;
    must(t, fb_step_check(t->guard.run, FB_INPUT, &weights, 1, &err), &err);
    must(t, fb_step_check_tokens(t->guard.run, &tokens, &err), &err);
}

static void step_guarded(trainer *t, int64_t step, outcome *out)
{
    const options *o = &t->options;
    guard *g = &t->guard;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_error err = {0};
    double sum_sq = 0.0;

    guarded_begin(t, step, out->learning_rate);
    out->scale = fb_run_loss_scale(g->run);
    gradients_begin(&t->gradients);
    for (size_t micro = 0; micro < o->accumulation; micro++) {
        if (micro) must(t, fb_step_micro(g->run, (int32_t)micro, &err), &err);
        guarded_input(t, micro);
        gradients_micro_begin(&t->gradients);
        gpt_forward(t->model, input_of(t, micro), place_of(t, step, micro), out->scale / (double)o->accumulation);
        must(t, g->watched, &g->watched_error);
        must(t, fb_step_check(g->run, FB_LOSS, &g->loss, 1, &err), &err);
        gpt_backward(t->model, input_of(t, micro), place_of(t, step, micro));
        finish_micro(t, step);
        must(t, fb_step_check(g->run, FB_LOCAL_GRAD, g->local, g->n, &err), &err);
        out->loss += t->model->loss / (double)o->accumulation;
    }
    result.loss = out->loss;
    result.known = FB_KNOWN_LOSS;

    must(t, fb_mpi_step_vote(g->run, t->comm, &verdict, &err), &err);
    if (verdict.action == FB_PROCEED) {
        gradients_reduce(&t->gradients);
        gradients_widen(&t->gradients);
        must(t, fb_step_unscale(g->run, g->reduced, g->n, 1.0 / (out->scale * t->world), &sum_sq, &err), &err);
        result.grad_norm = out->norm = sqrt(sum_sq);
        result.known |= FB_KNOWN_GRAD_NORM;
        out->norm_known = 1;
        must(t, fb_mpi_step_vote(g->run, t->comm, &verdict, &err), &err);
    }
    if (verdict.action == FB_PROCEED) {
        must(t, fb_step_apply(g->run, &err), &err);
        adamw_update(&t->optimizer, t->model, out->learning_rate, adamw_clip_coefficient(&t->optimizer, out->norm));
        must(t, fb_step_check_sampled(g->run, FB_UPDATE, g->state, 3 * g->n, STATE_PERIOD, &err), &err);
    }
    must(t, fb_step_end(g->run, &result, &err), &err);
    out->skipped = verdict.action != FB_PROCEED;
    out->halted = verdict.action == FB_HALT;
}

/* ---- the run ----------------------------------------------------------------------------------------------------------------- */

static void save_path(const trainer *t, int64_t step, char *out, size_t bytes)
{
    if (t->options.save_name) snprintf(out, bytes, "%s/%s", t->options.out, t->options.save_name);
    else checkpoint_path(out, bytes, t->options.out, step);
}

/*
 * What firstbad found while training went on. A checkpoint that is merely suspect has its reasons in the registry; one that is bad,
 * or that nobody could judge, is worth a line.
 */
static void tell_verdicts(const trainer *t)
{
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    while (t->guard.run && fb_run_checkpoint_poll(t->guard.run, &result, NULL) == FB_OK) {
        if (result.state == FB_CKPT_QUARANTINED)
            fprintf(stderr, "firstbad-gpt: checkpoint %s is quarantined: %s\n", result.path, result.reason);
        else if (result.status != FB_OK) fprintf(stderr, "firstbad-gpt: checkpoint %s: %s\n", result.path, result.reason);
    }
}

/* Before a byte is written: keep the older one safe, and look at what is in memory. 0: do not write. */
static int may_save(const trainer *t, const char *path, int64_t step)
{
    fb_error refused = {0};
    fb_status status;
    if (!t->guard.run) return 1;
    status = fb_run_save_gate(t->guard.run, step, t->guard.state, 3 * t->guard.n, NULL, &refused);
    if (status == FB_E_WITHHELD) {
        complain(t, 0, refused.message);
        return 0;
    }
    must(t, status, &refused);
    /* A register that cannot be written is no reason to stop training; the file is then one that nobody vouches for. */
    if (fb_run_checkpoint_begin(t->guard.run, path, step, &refused) != FB_OK) complain(t, 0, refused.message);
    return 1;
}

static int write_checkpoint(trainer *t, const char *path, int64_t step)
{
    file_error err = {""};
    fb_error refused = {0};
    int failed = 0;
    if (mkdir(t->options.out, 0777) != 0 && errno != EEXIST) {
        snprintf(err.message, sizeof err.message, "create folder %s: %s", t->options.out, strerror(errno));
        return complain(t, EXIT_FAILED, err.message);
    }
    if (!may_save(t, path, step)) return 0;
    failed = t->options.save_name ? checkpoint_save_over(path, t->model, &t->optimizer, &t->state, &err)
                                  : checkpoint_save(path, t->model, &t->optimizer, &t->state, &err);
    if (failed) return complain(t, EXIT_FAILED, err.message);
    if (t->guard.run && fb_run_checkpoint_verify(t->guard.run, path, step, &refused) != FB_OK) complain(t, 0, refused.message);
    if (t->options.keep) checkpoint_rotate(t->options.out, t->options.keep);
    return 0;
}

/* Rank 0 writes; the others wait for that, and nobody waits for firstbad to read it back. */
static int save(trainer *t, int64_t step)
{
    char path[4096];
    int status = 0;
    save_path(t, step, path, sizeof path);
    t->state.step = step;
    t->state.updates = t->optimizer.updates;
    if (t->guard.run) {
        fb_scaler_state scaler;
        fb_error refused = {0};
        must(t, fb_run_scaler_get(t->guard.run, &scaler, &refused), &refused);
        t->state.scale = scaler.scale;
        t->state.growth_tracker = scaler.growth_tracker;
        t->state.hysteresis_left = scaler.hysteresis_left;
    }
    if (t->rank == 0) status = write_checkpoint(t, path, step);
    return agree(t, status);
}

/* Which file to continue from, and whether it may be loaded: asked once, since an answer may take a read of the file. */
static int choose_checkpoint(const trainer *t, char path[4096])
{
    fb_error refused = {0};
    size_t bytes = 4096;
    int32_t state = 0;
    fb_status status = FB_OK;
    if (strcmp(t->options.resume, "latest") == 0) status = fb_ckpt_latest(t->options.out, path, &bytes, &refused);
    else snprintf(path, bytes, "%s", t->options.resume);
    if (status == FB_OK && t->guard.run) status = fb_ckpt_may_load(path, t->options.dir, FB_CKPT_CHECK_BYTES, &state, &refused);
    if (status != FB_OK) {
        fprintf(stderr, "firstbad-gpt: checkpoint %s is refused: %s\n", t->options.resume, refused.message);
        return EXIT_FAILED;
    }
    if (t->guard.run && state == FB_CKPT_SUSPECT)
        fprintf(stderr, "firstbad-gpt: checkpoint %s is finite, and no run vouches for the updates that made it\n", path);
    if (t->options.log_every) printf("resume from %s\n", path);
    return 0;
}

static int resume(trainer *t)
{
    file_error err = {""};
    char path[4096] = "";
    int status = agree(t, t->rank == 0 ? choose_checkpoint(t, path) : 0);
    if (status) return status;
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, t->comm);
    status = checkpoint_load(path, t->model, &t->optimizer, &t->state, &err) == 0 ? 0 : EXIT_FAILED;
    if (status) fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
    t->optimizer.updates = t->state.updates;
    t->options.model.seed = t->model->config.seed = t->state.seed;
    t->parent = t->state.step;
    if (!status && t->guard.run) {
        fb_scaler_state scaler = {t->state.scale, t->state.growth_tracker, t->state.hysteresis_left};
        fb_error refused = {0};
        must(t, fb_run_scaler_set(t->guard.run, &scaler, &refused), &refused);
    }
    return agree(t, status);
}

/* Every rank dumps its own batch, logits and loss; the gradients are the mean over ranks, unscaled, before the clip. */
static int dump(trainer *t, int64_t step)
{
    file_error err = {""};
    char path[4096], suffix[16] = "";
    int status = 0;
    if (t->rank > 0) snprintf(suffix, sizeof suffix, "-r%d", t->rank);
    snprintf(path, sizeof path, "%s-%06lld%s.safetensors", t->options.dump, (long long)step, suffix);
    if (dump_step(path, t->model, &t->batch, t->model->gradients, &err) != 0) {
        fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
        status = EXIT_FAILED;
    }
    return agree(t, status);
}

/* A number for the log. A NaN has no sign worth printing, and a norm that was never computed is not 0. */
static const char *number(char out[32], const char *format, double x, int known)
{
    snprintf(out, 32, known ? format : "-", x);
    return strstr(out, "nan") ? "nan" : out;
}

static void log_step(trainer *t, int64_t step, const outcome *out, double step_ms)
{
    char loss_text[32], norm_text[32];
    double loss = out->loss / t->world;
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, t->comm);
    if (t->rank != 0) return;
    printf("step %lld loss %s norm %s lr %.1e scale %g %.1f ms%s\n", (long long)step, number(loss_text, "%.4f", loss, 1),
           number(norm_text, out->norm < 1e6 ? "%.3f" : "%.3e", out->norm, out->norm_known), out->learning_rate, out->scale,
           step_ms, out->skipped ? " skipped" : "");
    fflush(stdout);
}

static int halted(const trainer *t, int64_t step)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence, "halted by firstbad at step %lld on all %d ranks; ask firstbad why", (long long)step,
             t->world);
    return complain(t, EXIT_HALTED, sentence);
}

static int train(trainer *t)
{
    const options *o = &t->options;
    double since = MPI_Wtime();
    int64_t first = t->state.step + 1, logged = t->state.step;
    /* The start is a checkpoint, too: a run that fails before the next one has something safe to go back to. */
    int status = o->save_every && t->parent < 0 ? save(t, 0) : 0;
    for (int64_t step = first; step <= o->steps && !status; step++) {
        outcome out = {.learning_rate = adamw_learning_rate(&t->optimizer, step)};
        gpt_load_weights(t->model);
        batch_draw(&t->batch, &t->data, o->model.seed, step, t->rank);
        if (t->guard.run) step_guarded(t, step, &out);
        else step_plain(t, step, &out);
        if (o->log_every && (step % o->log_every == 0 || step == first || out.halted)) {
            log_step(t, step, &out, 1e3 * (MPI_Wtime() - since) / (double)(step - logged));
            since = MPI_Wtime();
            logged = step;
        }
        tell_verdicts(t);
        if (out.halted) return halted(t, step);
        if (o->dump) status = dump(t, step);
        if (!status && o->save_every && step % o->save_every == 0) status = save(t, step);
    }
    return status;
}

static int open_all(trainer *t)
{
    const options *o = &t->options;
    int status = 0;
    if (dataset_open(&t->data, o->data, o->model.block) != 0) {
        char sentence[512];
        snprintf(sentence, sizeof sentence, "read %s: %s", o->data,
                 errno == EINVAL ? "the file is shorter than one window (--block)" : strerror(errno));
        status = complain(t, EXIT_FAILED, sentence);
    }
    t->model = gpt_open(&o->model);
    t->optimizer = (adamw){
        .learning_rate_max = o->learning_rate,
        .learning_rate_min = o->learning_rate_min,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .weight_decay = o->weight_decay,
        .clip = o->clip,
        .warmup_steps = o->warmup,
        .decay_steps = o->steps,
    };
    if (!status && (!t->model || adamw_open(&t->optimizer, t->model->parameter_count) != 0 ||
                    batch_open(&t->batch, o->accumulation, o->model.batch, o->model.block) != 0 ||
                    gradients_open(&t->gradients, t->model, t->comm) != 0))
        status = complain(t, EXIT_FAILED, "no memory for a model of this size");
    t->state = (train_state){.seed = o->model.seed, .scale = o->loss_scale, .hysteresis_left = 1};
    t->parent = -1;
    status = agree(t, status);
    if (!status && o->guard) {
        fb_error err = {0};
        fb_status opened = guard_open(&t->guard, o, t->model, &t->optimizer, &t->gradients, &t->data, t->comm, &err);
        if (opened != FB_OK) {
            if (err.message[0]) fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
            status = opened == FB_E_USAGE ? EXIT_WRONG_USE : EXIT_FAILED;
        }
        status = agree(t, status);
    }
    return status || !o->resume ? status : resume(t);
}

/* firstbad never prints; evidence that its disk did not take is the trainer's to tell, on the rank that lost it. */
static void tell_lost_evidence(const trainer *t)
{
    fb_error why = {0};
    uint64_t lost = fb_run_evidence_lost(t->guard.run, &why);
    if (lost) {
        fprintf(stderr, "firstbad-gpt: rank %d: %llu records of evidence were lost, training went on guarded; the first: %s\n",
                t->rank, (unsigned long long)lost, why.message);
    }
}

static void close_all(trainer *t)
{
    if (t->guard.run) {
        fb_run_checkpoint_wait(t->guard.run, -1, NULL);
        tell_verdicts(t);
    }
    tell_lost_evidence(t);
    guard_close(&t->guard);
    gradients_close(&t->gradients);
    batch_close(&t->batch);
    adamw_close(&t->optimizer);
    gpt_close(t->model);
    dataset_close(&t->data);
}

int main(int argc, char **argv)
{
    trainer t = {.comm = MPI_COMM_WORLD};
    char message[512];
    int wrong = options_read(&t.options, argc, argv, message, sizeof message);
    if (!wrong && t.options.help) {
        options_help();
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(t.comm, &t.rank);
    MPI_Comm_size(t.comm, &t.world);
    int status = wrong ? complain(&t, EXIT_WRONG_USE, message) : open_all(&t);
    if (!status) status = train(&t);
    close_all(&t);
    MPI_Finalize();
    return status;
}
