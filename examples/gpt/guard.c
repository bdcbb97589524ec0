/* guard.c: see guard.h. */
#include "guard.h"

#include <firstbad/mpi.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t dtype_of(precision format)
{
    return format == PRECISION_FP32 ? FB_F32 : format == PRECISION_BF16 ? FB_BF16 : FB_F16;
}

static fb_status add_site(guard *g, int32_t role, const char *module, const char *name, int32_t position, const gpt_tensor *shape,
                          uint32_t *id, fb_error *err)
{
    fb_site site = FB_SITE_INIT;
    site.role = role;
    site.module = module;
    site.tensor = name;
    site.position = position;
    for (int d = 0; shape && d < shape->ndim; d++) site.shape[d] = (int64_t)shape->shape[d];
    site.ndim = shape ? shape->ndim : 0;
    return fb_run_add_site(g->run, &site, id, err);
}

static fb_view view_of(void *data, uint64_t count, int32_t dtype, uint32_t site)
{
    return (fb_view){.data = data, .count = count, .dtype = dtype, .site = site, .device = -1};
}

/* The gradient of a tensor is one place before and after the collective; the tensor itself and its moments are others. */
static fb_status name_parameters(guard *g, gpt_model *model, adamw *optimizer, gradients *grads, fb_error *err)
{
    for (size_t i = 0; i < g->n; i++) {
        const gpt_tensor *t = &model->tensors[i];
        char exp_avg[40], exp_avg_sq[40];
        uint32_t id[4] = {0};
        snprintf(exp_avg, sizeof exp_avg, "%s.exp_avg", t->name);
        snprintf(exp_avg_sq, sizeof exp_avg_sq, "%s.exp_avg_sq", t->name);
        fb_status status = add_site(g, FB_ROLE_GRADIENT, t->module, t->name, t->position, t, &id[0], err);
        if (status == FB_OK) status = add_site(g, FB_ROLE_PARAMETER, t->module, t->name, t->position, t, &id[1], err);
        if (status == FB_OK) status = add_site(g, FB_ROLE_MOMENT, t->module, exp_avg, t->position, t, &id[2], err);
        if (status == FB_OK) status = add_site(g, FB_ROLE_MOMENT, t->module, exp_avg_sq, t->position, t, &id[3], err);
        if (status != FB_OK) return status;
        g->local[i] = view_of(gradients_local(grads, t), t->count, dtype_of(g->format), id[0]);
        g->reduced[i] = view_of(model->gradients + t->offset, t->count, FB_F32, id[0]);
        g->state[i] = view_of(model->parameters + t->offset, t->count, FB_F32, id[1]);
        g->state[g->n + i] = view_of(optimizer->exp_avg + t->offset, t->count, FB_F32, id[2]);
        g->state[2 * g->n + i] = view_of(optimizer->exp_avg_sq + t->offset, t->count, FB_F32, id[3]);
    }
    return FB_OK;
}

static fb_status name_activations(guard *g, const gpt_model *model, fb_error *err)
{
    size_t largest = 1;
    g->activations = calloc(model->activation_count, sizeof *g->activations);
    for (size_t i = 0; i < model->activation_count; i++)
        largest = model->activations[i].count > largest ? model->activations[i].count : largest;
    g->narrow = calloc(largest, sizeof *g->narrow);
    if (!g->activations || !g->narrow) {
        snprintf(err->message, sizeof err->message, "open the guard: no memory to look at activations of %zu elements", largest);
        return FB_E_NOMEM;
    }
    for (size_t i = 0; i < model->activation_count; i++) {
        const gpt_activation *a = &model->activations[i];
        fb_status status = add_site(g, FB_ROLE_ACTIVATION, a->module, a->name, a->position, NULL, &g->activations[i], err);
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

static fb_status name_all(guard *g, gpt_model *model, adamw *optimizer, gradients *grads, int forward, fb_error *err)
{
    uint32_t id = 0;
    int32_t last = model->tensors[g->n - 1].position + 2;
    fb_status status = add_site(g, FB_ROLE_INPUT, "", "tokens", 0, NULL, &g->tokens, err);
    if (status == FB_OK) status = add_site(g, FB_ROLE_INPUT, "", "loss_weights", 0, NULL, &g->weights, err);
    if (status == FB_OK) status = name_parameters(g, model, optimizer, grads, err);
    if (status == FB_OK && forward) status = name_activations(g, model, err);
    if (status == FB_OK) status = add_site(g, FB_ROLE_LOSS, "", "loss.cross_entropy", last, NULL, &id, err);
    g->loss = view_of(&model->loss, 1, FB_F64, id);
    if (status == FB_OK) status = add_site(g, FB_ROLE_BUFFER, "optimizer", "grad_norm", NORM_POSITION, NULL, &g->norm.site, err);
    g->norm = view_of(&g->grad_norm, 1, FB_F64, g->norm.site);
    if (status == FB_OK) status = add_site(g, FB_ROLE_COUNTER, "", "updates", last + 1, NULL, &id, err);
    g->state[3 * g->n] = view_of(&optimizer->updates, 1, FB_I64, id);
    return status == FB_OK ? fb_run_own(g->run, g->state, 3 * g->n + 1, err) : status;
}

static uint64_t fnv1a(const uint8_t *bytes, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

void guard_watch(void *watcher, size_t index, const gpt_activation *activation)
{
    guard *g = watcher;
    fb_view view = view_of(activation->data, activation->count, dtype_of(g->format), g->activations[index]);
    if (g->watched != FB_OK) return;
    if (g->format != PRECISION_FP32) {
        precision_pack(g->format, g->narrow, activation->data, activation->count);
        view.data = g->narrow;
    }
    g->watched = fb_step_check(g->run, FB_FORWARD, &view, 1, &g->watched_error);
    if (g->format != PRECISION_FP32) /* an injected fault is carried on */
        precision_unpack(g->format, activation->data, g->narrow, activation->count);
}

fb_status guard_open(guard *g, const options *o, gpt_model *model, adamw *optimizer, gradients *grads, const dataset *data,
                     MPI_Comm comm, fb_error *err)
{
    char version[64], shape[160], hash[24];
    fb_run_config config = FB_RUN_CONFIG_INIT;
    int shape_bytes = snprintf(shape, sizeof shape, "layers %zu channels %zu heads %zu block %zu batch %zu accum %zu seed %" PRIu64,
                               o->model.layers, o->model.channels, o->model.heads, o->model.block, o->model.batch, o->accumulation,
                               o->model.seed);
    snprintf(version, sizeof version, "fnv1a:%016" PRIx64, fnv1a(data->bytes, data->count));
    snprintf(hash, sizeof hash, "%016" PRIx64, fnv1a((const uint8_t *)shape, (size_t)shape_bytes));
    const fb_pair meta[] = {
        {"dataset", o->data}, {"dataset_version", version}, {"tokenizer_hash", "bytes"}, {"config", shape}, {"config_hash", hash}};
    MPI_Comm_rank(comm, &config.dp_rank);
    config.dir = o->dir;
    config.precision = precision_name(o->model.format);
    config.inject = o->inject;
    config.meta = meta;
    config.meta_count = sizeof meta / sizeof *meta;
    config.max_skips = o->max_skips > 0 ? (int32_t)o->max_skips : config.max_skips;
    config.replicated = 1;
    config.replica_period = (int32_t)o->replica_period;
    config.scaler.enabled = o->model.format == PRECISION_FP16;
    config.scaler.init_scale = o->loss_scale;
    config.scaler.growth_interval = (int32_t)o->scale_growth_interval;

    *g = (guard){.n = model->tensor_count, .format = o->model.format};
    g->local = calloc(g->n, sizeof *g->local);
    g->reduced = calloc(g->n, sizeof *g->reduced);
    g->state = calloc(3 * g->n + 1, sizeof *g->state);
    g->mask = calloc(o->model.batch * o->model.block, sizeof *g->mask);
    if (!g->local || !g->reduced || !g->state || !g->mask) {
        snprintf(err->message, sizeof err->message, "open the guard: no memory for the views of %zu tensors", g->n);
        return FB_E_NOMEM;
    }
    fb_status status = fb_mpi_run_open(&g->run, &config, comm, err);
    if (status == FB_OK) status = name_all(g, model, optimizer, grads, o->check_forward, err);
    if (status == FB_OK && o->check_forward) {
        model->watch = guard_watch;
        model->watcher = g;
    }
    return status;
}

void guard_close(guard *g)
{
    fb_run_close(g->run);
    free(g->local);
    free(g->reduced);
    free(g->state);
    free(g->mask);
    free(g->activations);
    free(g->narrow);
    *g = (guard){0};
}
