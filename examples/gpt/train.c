/* train.c: the program. Data-parallel training over MPI: every rank computes the gradient of its own batch, all apply the mean. */
#include "checkpoint.h"
#include "gradients.h"
#include "options.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_HALTED = 1, EXIT_WRONG_USE = 2, EXIT_FAILED = 3 };

typedef struct trainer {
    options options;
    MPI_Comm comm;
    int rank, world;
    gpt_model *model;
    adamw optimizer;
    dataset data;
    batch batch;
    gradients gradients;
    train_state state;
} trainer;

/* What one step came to. */
typedef struct outcome {
    double loss, norm, learning_rate, scale;
    int status; /* 0, or an exit code */
} outcome;

static int complain(const trainer *t, int code, const char *sentence)
{
    if (t->rank == 0)
        fprintf(stderr, "firstbad-gpt: %s\n", sentence);
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

static double sum_of_squares(const float *x, size_t n, double factor)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] * factor) * ((double)x[i] * factor);
    return sum;
}

static void step_plain(trainer *t, int64_t step, outcome *out)
{
    const options *o = &t->options;
    out->scale = o->model.format == PRECISION_FP16 ? o->loss_scale : 1.0;
    gradients_begin(&t->gradients);
    for (size_t micro = 0; micro < o->accumulation; micro++) {
        gpt_place place = place_of(t, step, micro);
        batch_draw(&t->batch, &t->data, o->model.seed, place);
        gradients_micro_begin(&t->gradients);
        gpt_forward(t->model, t->batch.tokens, t->batch.targets, place, out->scale / (double)o->accumulation);
        gpt_backward(t->model, t->batch.tokens, place);
        gradients_micro_end(&t->gradients);
        out->loss += t->model->loss / (double)o->accumulation;
    }
    gradients_reduce(&t->gradients);
    gradients_widen(&t->gradients);
    double inverse = 1.0 / (out->scale * t->world);
    out->norm = sqrt(sum_of_squares(t->model->gradients, t->model->parameter_count, inverse));
    adamw_update(&t->optimizer, t->model, out->learning_rate, inverse * adamw_clip_coefficient(&t->optimizer, out->norm));
}

static int save(trainer *t, int64_t step)
{
    char path[4096];
    file_error err = {""};
    int status = 0;
    checkpoint_path(path, sizeof path, t->options.out, step);
    t->state.step = step;
    t->state.updates = t->optimizer.updates;
    if (t->rank == 0) {
        if (mkdir(t->options.out, 0777) != 0 && errno != EEXIST)
            snprintf(err.message, sizeof err.message, "create folder %s: %s", t->options.out, strerror(errno));
        if (err.message[0] || checkpoint_save(path, t->model, &t->optimizer, &t->state, &err) != 0)
            status = complain(t, EXIT_FAILED, err.message);
    }
    return agree(t, status);
}

static int resume(trainer *t)
{
    file_error err = {""};
    int status = checkpoint_load(t->options.resume, t->model, &t->optimizer, &t->state, &err) == 0 ? 0 : EXIT_FAILED;
    if (status)
        fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
    t->optimizer.updates = t->state.updates;
    t->options.model.seed = t->model->config.seed = t->state.seed;
    gpt_load_weights(t->model);
    return agree(t, status);
}

static int train(trainer *t)
{
    const options *o = &t->options;
    double since = MPI_Wtime();
    int64_t first = t->state.step + 1, logged = t->state.step;
    for (int64_t step = first; step <= o->steps; step++) {
        outcome out = {.learning_rate = adamw_learning_rate(&t->optimizer, step)};
        step_plain(t, step, &out);
        if (out.status)
            return out.status;
        if (o->log_every && (step % o->log_every == 0 || step == first)) {
            double now = MPI_Wtime(), loss = out.loss / t->world;
            MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, t->comm);
            if (t->rank == 0)
                printf("step %lld loss %.4f norm %.3f lr %.1e scale %g %.1f ms\n", (long long)step, loss, out.norm, out.learning_rate,
                       out.scale, 1e3 * (now - since) / (double)(step - logged));
            fflush(stdout);
            since = MPI_Wtime();
            logged = step;
        }
        if (o->save_every && step % o->save_every == 0) {
            int status = save(t, step);
            if (status)
                return status;
        }
    }
    return 0;
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
        .learning_rate_max = o->learning_rate, .learning_rate_min = o->learning_rate_min, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
        .weight_decay = o->weight_decay, .clip = o->clip, .warmup_steps = o->warmup, .decay_steps = o->steps,
    };
    if (!status && (!t->model || adamw_open(&t->optimizer, t->model->parameter_count) != 0 ||
                    batch_open(&t->batch, o->model.batch, o->model.block) != 0 || gradients_open(&t->gradients, t->model, t->comm) != 0))
        status = complain(t, EXIT_FAILED, "no memory for a model of this size");
    t->state = (train_state){.seed = o->model.seed, .scale = o->loss_scale, .hysteresis_left = 1};
    status = agree(t, status);
    return status || !o->resume ? status : resume(t);
}

static void close_all(trainer *t)
{
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
    if (!status)
        status = train(&t);
    close_all(&t);
    MPI_Finalize();
    return status;
}
