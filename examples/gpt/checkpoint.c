/* checkpoint.c: see checkpoint.h. */
#include "checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct entry_list {
    tensor_entry *entries;
    size_t count;
} entry_list;

static void add(entry_list *list, const char *prefix, const char *name, const char *dtype, int ndim, const size_t *shape,
                void *data, size_t element_bytes)
{
    tensor_entry *e = &list->entries[list->count++];
    snprintf(e->name, sizeof e->name, "%s%s", prefix, name);
    e->dtype = dtype;
    e->ndim = ndim;
    e->data = data;
    e->bytes = element_bytes;
    for (int d = 0; d < ndim; d++) {
        e->shape[d] = shape[d];
        e->bytes *= shape[d];
    }
}

static void add_one(entry_list *list, const char *name, const char *dtype, void *data, size_t element_bytes)
{
    static const size_t one = 1;
    add(list, "", name, dtype, 1, &one, data, element_bytes);
}

/* One entry a parameter tensor, from an array in the layout of the parameters. */
static void add_flat(entry_list *list, const char *prefix, const gpt_model *model, float *flat)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const gpt_tensor *t = &model->tensors[i];
        char name[48];
        snprintf(name, sizeof name, "%s.%s", t->module, t->name);
        add(list, prefix, name, "F32", t->ndim, t->shape, flat + t->offset, sizeof *flat);
    }
}

static void describe(char *out, size_t bytes, const gpt_config *g)
{
    snprintf(out, bytes,
             "{\"format\":\"firstbad-gpt\",\"layers\":\"%zu\",\"channels\":\"%zu\",\"heads\":\"%zu\",\"block\":\"%zu\"}", g->layers,
             g->channels, g->heads, g->block);
}

/* What is eight bytes wide comes first, so that every tensor is aligned in the file. */
static int list_all(entry_list *list, gpt_model *model, adamw *o, train_state *state)
{
    list->count = 0;
    list->entries = calloc(6 + 3 * model->tensor_count, sizeof *list->entries);
    if (!list->entries) return -1;
    add_one(list, "train.step", "I64", &state->step, sizeof state->step);
    add_one(list, "train.updates", "I64", &state->updates, sizeof state->updates);
    add_one(list, "train.seed", "U64", &state->seed, sizeof state->seed);
    add_one(list, "scaler.scale", "F64", &state->scale, sizeof state->scale);
    add_one(list, "scaler.growth_tracker", "I32", &state->growth_tracker, sizeof state->growth_tracker);
    add_one(list, "scaler.hysteresis_left", "I32", &state->hysteresis_left, sizeof state->hysteresis_left);
    add_flat(list, "", model, model->parameters);
    add_flat(list, "optimizer.exp_avg.", model, o->exp_avg);
    add_flat(list, "optimizer.exp_avg_sq.", model, o->exp_avg_sq);
    return 0;
}

void checkpoint_path(char *out, size_t bytes, const char *folder, int64_t step)
{
    snprintf(out, bytes, "%s/step-%06lld.safetensors", folder, (long long)step);
}

/* The number in "step-000100.safetensors"; -1 for another name. */
static int64_t step_of(const char *name)
{
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    long long step = strtoll(name + 5, &end, 10);
    return strcmp(end, ".safetensors") == 0 ? step : -1;
}

void checkpoint_rotate(const char *folder, int64_t keep)
{
    for (;;) {
        DIR *dir = opendir(folder);
        int64_t count = 0, oldest = INT64_MAX;
        char path[4096];
        if (!dir) return;
        for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
            int64_t step = step_of(entry->d_name);
            count += step >= 0;
            if (step >= 0 && step < oldest) oldest = step;
        }
        closedir(dir);
        if (count <= keep) return;
        checkpoint_path(path, sizeof path, folder, oldest);
        if (unlink(path) != 0) return;
    }
}

typedef int write_file(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err);

static int save_by(write_file *write, const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err)
{
    entry_list list;
    char metadata[256];
    describe(metadata, sizeof metadata, &model->config);
    if (list_all(&list, model, optimizer, state) != 0) {
        snprintf(err->message, sizeof err->message, "write %s: no memory", path);
        return -1;
    }
    int status = write(path, metadata, list.entries, list.count, err);
    free(list.entries);
    return status;
}

int checkpoint_save(const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err)
{
    return save_by(safetensors_write, path, model, optimizer, state, err);
}

int checkpoint_save_over(const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err)
{
    return save_by(safetensors_write_over, path, model, optimizer, state, err);
}

int checkpoint_load(const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err)
{
    entry_list list;
    char metadata[256];
    describe(metadata, sizeof metadata, &model->config);
    if (list_all(&list, model, optimizer, state) != 0) {
        snprintf(err->message, sizeof err->message, "read %s: no memory", path);
        return -1;
    }
    int status = safetensors_read(path, metadata, list.entries, list.count, err);
    free(list.entries);
    return status;
}

int dump_step(const char *path, gpt_model *model, batch *b, float *gradients, file_error *err)
{
    char metadata[256];
    const size_t read[3] = {b->micro_steps, b->rows, b->columns}, logits[3] = {b->rows, b->columns, GPT_VOCAB};
    entry_list list = {calloc(4 + 2 * model->tensor_count, sizeof(tensor_entry)), 0};
    if (!list.entries) {
        snprintf(err->message, sizeof err->message, "write %s: no memory", path);
        return -1;
    }
    describe(metadata, sizeof metadata, &model->config);
    add_one(&list, "loss", "F64", &model->loss, sizeof model->loss);
    add(&list, "", "tokens", "I32", 3, read, b->tokens, sizeof *b->tokens);
    add(&list, "", "targets", "I32", 3, read, b->targets, sizeof *b->targets);
    add(&list, "", "logits", "F32", 3, logits, model->logits, sizeof *model->logits);
    add_flat(&list, "grad.", model, gradients);
    add_flat(&list, "parameter.", model, model->parameters);
    int status = safetensors_write(path, metadata, list.entries, list.count, err);
    free(list.entries);
    return status;
}
