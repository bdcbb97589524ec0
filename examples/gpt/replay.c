/* replay.c: what one replay runs, and on which memory. */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The worst status of all ranks, so that none waits in a collective for one that gave up. Statuses are 0 or negative. */
static fb_status agree_status(const replay *r, fb_status status, fb_error *err)
{
    int worst = status;
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, r->comm);
    if (worst != FB_OK && status == FB_OK && err) {
        err->code = worst;
        snprintf(err->message, sizeof err->message, "replay step %lld: another rank could not run it", (long long)r->start.step);
    }
    return worst;
}

static fb_status no_memory(const replay *r, fb_error *err)
{
    if (err) {
        err->code = FB_E_NOMEM;
        snprintf(err->message, sizeof err->message, "replay step %lld: no memory for a second model", (long long)r->start.step);
    }
    return FB_E_NOMEM;
}

gpt_place replay_place(const replay *r, size_t micro)
{
    return (gpt_place){r->start.step, (int32_t)micro, r->as};
}

/* ---- memory ----------------------------------------------------------------------------------------------------------------- */

/* The model in a format, opened when it is first asked for. NULL when memory is short. */
static replay_model *model_in(replay *r, precision format)
{
    replay_model *m = &r->models[format];
    gpt_config config = r->start.options->model;
    if (m->ids) return m;
    config.format = format;
    if (!m->model && !(m->model = gpt_open(&config))) return NULL;
    if (!m->gradients.full && gradients_open(&m->gradients, m->model, r->comm) != 0) return NULL;
    m->ids = calloc((size_t)m->model->program.value_count, sizeof *m->ids);
    return m->ids ? m : NULL;
}

static int take_memory(replay *r)
{
    const options *o = r->start.options;
    size_t largest = 1, n;
    replay_model *m = model_in(r, o->model.format);
    if (!m || !r->roles) return -1;
    n = m->model->tensor_count;
    for (size_t i = 0; i < n; i++) largest = m->model->tensors[i].count > largest ? m->model->tensors[i].count : largest;
    r->largest = largest;
    if (!n) return -1;
    r->work = calloc(WORK_ARRAYS * largest, sizeof *r->work);
    r->masters = calloc(6 * n, sizeof *r->masters);
    r->row_ids = calloc(o->model.batch, sizeof *r->row_ids);
    if (!r->work || !r->masters || !r->row_ids) return -1;
    r->weights = r->masters + n;
    r->store = r->weights + n;
    r->reduced = r->store + n;
    r->moments = r->reduced + n;
    return batch_open(&r->other, o->accumulation, o->model.batch, o->model.block) != 0 ||
                   batch_open(&r->smaller, 1, o->model.batch, o->model.block) != 0
               ? -1
               : 0;
}

int replay_open(replay *r, const replay_start *start, MPI_Comm comm)
{
    int failed, role = start->rank;
    *r = (replay){.start = *start, .comm = comm};
    MPI_Comm_rank(comm, &r->process);
    MPI_Comm_size(comm, &r->processes);
    r->roles = calloc((size_t)r->processes, sizeof *r->roles);
    failed = take_memory(r) != 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    if (failed) {
        replay_close(r);
        return -1;
    }
    MPI_Allgather(&role, 1, MPI_INT, r->roles, 1, MPI_INT, comm);
    return 0;
}

void replay_close(replay *r)
{
    for (size_t k = 0; k < 3; k++) {
        if (r->models[k].gradients.full) gradients_close(&r->models[k].gradients);
        gpt_close(r->models[k].model);
        free(r->models[k].ids);
    }
    batch_close(&r->other);
    batch_close(&r->smaller);
    free(r->row_ids);
    free(r->masters);
    free(r->work);
    free(r->roles);
    *r = (replay){0};
}

/* ---- what is asked for ------------------------------------------------------------------------------------------------------ */

static int format_named(const char *name, precision *out)
{
    for (int f = PRECISION_FP32; f <= PRECISION_FP16; f++) {
        if (strcmp(name, precision_name((precision)f)) != 0) continue;
        *out = (precision)f;
        return 0;
    }
    return -1;
}

static fb_status unsupported(fb_error *err, const char *what)
{
    if (err) {
        err->code = FB_E_UNSUPPORTED;
        snprintf(err->message, sizeof err->message, "replay: %s", what);
    }
    return FB_E_UNSUPPORTED;
}

/* Memory for this request; no collective in it. */
static fb_status prepare(replay *r, const fb_replay_request *request, fb_error *err)
{
    precision format = r->start.options->model.format;
    r->request = request;
    r->scale = r->start.scale;
    r->as = r->start.rank;
    r->batch = r->start.batch;
    if (request->precision && format_named(request->precision, &format) != 0)
        return unsupported(err, "the model runs in fp32, bf16 and fp16 only");
    if (format != r->start.options->model.format) r->scale = 1.0; /* a loss scale belongs to the format it was made for */
    if (!(r->now = model_in(r, format))) return no_memory(r, err);
    return FB_OK;
}

static int process_of(const replay *r, int32_t rank)
{
    for (int p = 0; p < r->processes; p++)
        if (r->roles[p] == rank) return p;
    return -1;
}

/* Every process takes over batch and random state of one rank. Collective. */
static fb_status play_other(replay *r, int32_t rank, fb_error *err)
{
    int root = process_of(r, rank);
    const batch *own = r->start.batch;
    int count = (int)(own->micro_steps * own->rows * own->columns);
    size_t bytes = (size_t)count * sizeof(float);
    if (root < 0) return unsupported(err, "the batch of that rank is not here");
    if (r->process == root) {
        memcpy(r->other.tokens, own->tokens, bytes);
        memcpy(r->other.targets, own->targets, bytes);
        memcpy(r->other.positions, own->positions, bytes);
        memcpy(r->other.weights, own->weights, bytes);
        memcpy(r->other.key_mask, own->key_mask, bytes);
    }
    MPI_Bcast(r->other.tokens, count, MPI_INT32_T, root, r->comm);
    MPI_Bcast(r->other.targets, count, MPI_INT32_T, root, r->comm);
    MPI_Bcast(r->other.positions, count, MPI_INT32_T, root, r->comm);
    MPI_Bcast(r->other.weights, count, MPI_FLOAT, root, r->comm);
    MPI_Bcast(r->other.key_mask, count, MPI_FLOAT, root, r->comm);
    r->batch = &r->other;
    r->as = rank;
    return FB_OK;
}

/* ---- one replay ------------------------------------------------------------------------------------------------------------- */

/* Which micro-steps the finding can have come from: forward passes do not know of each other, gradients are added up. */
static size_t first_micro(const finding *f)
{
    return f->boundary <= FB_LOSS ? (size_t)f->micro_step : 0;
}

static size_t last_micro(const replay *r)
{
    const finding *f = &r->start.finding;
    return f->boundary <= FB_LOCAL_GRAD ? (size_t)f->micro_step : r->start.options->accumulation - 1;
}

static void run_update(replay *r)
{
    const finding *f = &r->start.finding;
    gpt_model *model = r->now->model;
    memcpy(model->parameters, r->start.parameters, model->parameter_count * sizeof *model->parameters);
    gpt_load_weights(model);
    replay_tell_state(r);
    if (f->boundary <= FB_ENTRY) return;
    replay_begin_store(r);
    for (size_t micro = first_micro(f); micro <= last_micro(r); micro++) {
        replay_forward(r, micro);
        if (f->boundary <= FB_LOSS) continue;
        replay_backward(r, micro);
        replay_accumulate(r, micro);
    }
    if (f->boundary >= FB_REDUCED_GRAD) replay_reduce(r);
    if (f->boundary >= FB_UPDATE) replay_update(r);
}

fb_status replay_run(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    replay *r = ctx;
    fb_status status = agree_status(r, prepare(r, request, err), err);
    if (status == FB_OK && request->purpose == FB_REPLAY_OTHER && request->as_rank >= 0)
        status = play_other(r, request->as_rank, err);
    if (status != FB_OK) return status;
    r->teller = (teller){.tape = tape};
    run_update(r);
    if (request->purpose == FB_REPLAY_AGAIN) {
        r->shape = r->now->model->shape;
        r->shown = r->now;
    }
    if (r->teller.status != FB_OK && err) *err = r->teller.error;
    return agree_status(r, r->teller.status, err);
}

fb_status replay_max(void *ctx, int32_t *values, size_t count, fb_error *err)
{
    const replay *r = ctx;
    if (MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_INT32_T, MPI_MAX, r->comm) == MPI_SUCCESS) return FB_OK;
    err->code = FB_E_IO;
    snprintf(err->message, sizeof err->message, "locate: the ranks could not compare what they saw");
    return FB_E_IO;
}
