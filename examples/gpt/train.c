/* train.c: the program. Data-parallel training over MPI: every rank computes the gradient of its own batch, all apply the mean. */
#include "replay_main.h"
#include "trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int complain(const trainer *t, int code, const char *sentence)
{
    if (t->rank == 0) fprintf(stderr, "firstbad-gpt: %s\n", sentence);
    return code;
}

int agree(const trainer *t, int status)
{
    MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, t->comm);
    return status;
}

void must(const trainer *t, fb_status status, const fb_error *err)
{
    if (status == FB_OK) return;
    fprintf(stderr, "firstbad-gpt: rank %d: %s: %s\n", t->rank, fb_status_name(status), err->message);
    MPI_Abort(t->comm, EXIT_FAILED);
}

gpt_place place_of(const trainer *t, int64_t step, size_t micro)
{
    return (gpt_place){step, (int32_t)micro, t->rank};
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

adamw optimizer_of(const options *o)
{
    return (adamw){
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
}

static int draw(trainer *t, int64_t step)
{
    int failed = trainer_draw(t, step) != 0;
    /* It can fail only where something is left out, so that a healthy step needs no collective for it. */
    if (!t->left_out.is || !agree(t, failed)) return 0;
    return complain(t, EXIT_FAILED,
                    "nothing is left to train on: every window that was drawn is one that FIRSTBAD_LEAVE_OUT names");
}

/* How often a window was left out and another drawn in its place. Only where something is to be left
 * out, since all ranks add up. */
static void tell_left_out(const trainer *t)
{
    unsigned long long count = t->left_out.count;
    if (!t->left_out.is) return;
    MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, t->comm);
    if (t->rank == 0 && count)
        printf("left out %llu window%s, and drew %s instead\n", count, count == 1 ? "" : "s", count == 1 ? "another" : "others");
}

static int train(trainer *t)
{
    const options *o = &t->options;
    double since = MPI_Wtime();
    int64_t first = t->first = t->state.step + 1, logged = t->state.step;
    /* The start is a checkpoint, too: a run that fails before the next one has something safe to go back to. */
    int status = o->save_every && t->parent < 0 ? save(t, 0) : 0;
    for (int64_t step = first; step <= o->steps && !status; step++) {
        outcome out = {.learning_rate = adamw_learning_rate(&t->optimizer, step)};
        gpt_load_weights(t->model);
        if ((status = draw(t, step)) != 0) break;
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
    tell_left_out(t);
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
    t->optimizer = optimizer_of(o);
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
        } else if (o->keep_state && proposal_open(&t->proposal, t->model, &t->guard) != 0) {
            status = complain(t, EXIT_FAILED, "no memory for a second copy of the state (--keep-state)");
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
    proposal_close(&t->proposal);
    guard_close(&t->guard);
    gradients_close(&t->gradients);
    batch_close(&t->batch);
    adamw_close(&t->optimizer);
    gpt_close(t->model);
    dataset_close(&t->data);
}

/* What is asked for by the environment: FB_OK to replay a bundle, FB_E_NOTFOUND to train. */
static fb_status wanted(fb_replay_wanted *out, char *message, size_t bytes)
{
    fb_error err = {0};
    fb_status status = fb_replay_asked(out, &err);
    if (status != FB_OK && status != FB_E_NOTFOUND) snprintf(message, bytes, "%s", err.message);
    return status;
}

int main(int argc, char **argv)
{
    static trainer t = {.comm = MPI_COMM_WORLD};
    static fb_replay_wanted replay = FB_REPLAY_WANTED_INIT;
    char message[512];
    int status = 0, wrong = options_read(&t.options, argc, argv, message, sizeof message);
    fb_status asked = wrong ? FB_E_NOTFOUND : wanted(&replay, message, sizeof message);
    if (!wrong && t.options.help) {
        options_help();
        return 0;
    }
    if (!wrong && t.options.list_faults != LIST_NOTHING) {
        if (t.options.list_faults == LIST_FAULTS) faults_list(stdout);
        else faults_list_truths(stdout);
        return 0;
    }
    if (t.options.faults.count) {
        t.options.model.alter = faults_alter;
        t.options.model.alter_ctx = &t.options.faults;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(t.comm, &t.rank);
    MPI_Comm_size(t.comm, &t.world);
    if (wrong || (asked != FB_OK && asked != FB_E_NOTFOUND)) {
        status = complain(&t, EXIT_WRONG_USE, message);
    } else if (asked == FB_OK) {
        status = replay_main(&t, &replay);
    } else {
        status = open_all(&t);
        if (!status) status = train(&t);
        close_all(&t);
    }
    MPI_Finalize();
    return status;
}
