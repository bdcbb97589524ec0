/* capture.c: the writing half of capture.h. */
#include "capture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A row of puts that ends with the first that fails. */
typedef struct putting {
    fb_bundle_writer *writer;
    fb_status status;
    fb_error *err;
} putting;

static void put(putting *p, int32_t part, const char *name, int32_t dtype, int32_t ndim, const int64_t *shape, const void *data)
{
    if (p->status == FB_OK) p->status = fb_bundle_put(p->writer, part, name, dtype, ndim, shape, data, p->err);
}

static void integer(putting *p, const char *key, int64_t value)
{
    if (p->status == FB_OK) p->status = fb_bundle_set_integer(p->writer, key, value, p->err);
}

static void number(putting *p, const char *key, double value)
{
    if (p->status == FB_OK) p->status = fb_bundle_set_number(p->writer, key, value, p->err);
}

static void text(putting *p, const char *key, const char *value)
{
    if (p->status == FB_OK) p->status = fb_bundle_set_text(p->writer, key, value, p->err);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------------------- */

uint64_t capture_mix(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t word;
    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; bytes; bytes--, at++) hash = (hash ^ *at) * 0x100000001b3u;
    return hash;
}

/* What tells two builds of this program apart: a hash of its file. 0 when it cannot be read. */
uint64_t capture_build(void)
{
    unsigned char bytes[1 << 14];
    uint64_t hash = 0xcbf29ce484222325u;
    size_t n;
    FILE *file = fopen("/proc/self/exe", "rb");
    if (!file) return 0;
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0) hash = capture_mix(hash, bytes, n);
    fclose(file);
    return hash;
}

static void put_scalars(putting *p, const trainer *t, const replay_start *s)
{
    const options *o = s->options;
    const finding *f = &s->finding;
    char build[24];
    text(p, "program", "firstbad-gpt");
    text(p, "version", fb_version());
    snprintf(build, sizeof build, "%016" PRIx64, capture_build());
    text(p, "build", build);
    text(p, "precision", precision_name(o->model.format));
    integer(p, "layers", (int64_t)o->model.layers);
    integer(p, "heads", (int64_t)o->model.heads);
    integer(p, "channels", (int64_t)o->model.channels);
    integer(p, "block", (int64_t)o->model.block);
    integer(p, "batch", (int64_t)o->model.batch);
    integer(p, "micro_steps", (int64_t)o->accumulation);
    number(p, "dropout", (double)o->model.dropout);
    number(p, "weight_decay", o->weight_decay);
    number(p, "clip", o->clip);
    integer(p, "faults", (int64_t)o->faults.count);
    integer(p, "world", s->world);
    integer(p, "step", s->step);
    integer(p, "first_step", t->first);
    integer(p, "resumed", t->parent >= 0);
    integer(p, "updates", s->updates);
    number(p, "loss_scale", s->scale);
    number(p, "learning_rate", s->learning_rate);
    integer(p, "finding.rank", f->rank);
    integer(p, "finding.boundary", f->boundary);
    integer(p, "finding.micro_step", f->micro_step);
    integer(p, "finding.kind", f->kind);
    text(p, "finding.module", f->module);
    text(p, "finding.tensor", f->tensor);
}

static void put_random(putting *p, const replay_start *s)
{
    const int64_t one = 1, two = 2, place[2] = {s->step, s->rank};
    uint64_t seed = s->options->model.seed;
    put(p, FB_BUNDLE_RNG, "seed", FB_U64, 1, &one, &seed);
    put(p, FB_BUNDLE_RNG, "step_and_rank", FB_I64, 1, &two, place);
}

/* ---- the batch -------------------------------------------------------------------------------------------------------------- */

static void put_windows(putting *p, const batch *b)
{
    const int64_t shape[3] = {(int64_t)b->micro_steps, (int64_t)b->rows, (int64_t)b->columns};
    put(p, FB_BUNDLE_BATCH, "tokens", FB_I32, 3, shape, b->tokens);
    put(p, FB_BUNDLE_BATCH, "targets", FB_I32, 3, shape, b->targets);
    put(p, FB_BUNDLE_BATCH, "positions", FB_I32, 3, shape, b->positions);
    put(p, FB_BUNDLE_BATCH, "loss_weights", FB_F32, 3, shape, b->weights);
    put(p, FB_BUNDLE_BATCH, "key_mask", FB_F32, 3, shape, b->key_mask);
}

static void blank_window(batch *b, size_t window)
{
    for (size_t at = window * b->columns; at < (window + 1) * b->columns; at++) batch_blank(b, at);
}

/* Is this window needed? The row of the minimal batch that it is, or -1. */
static int64_t needed_as(const replay_start *s, const minimal_batch *minimal, size_t micro, size_t row)
{
    if ((int32_t)micro != s->finding.micro_step) return -1;
    for (size_t k = 0; k < minimal->row_count; k++)
        if (minimal->rows[k] == row) return (int64_t)k;
    return -1;
}

static void keep_tokens(batch *b, size_t window, const uint8_t *keep)
{
    for (size_t c = 0; c < b->columns; c++)
        if (!keep[c]) batch_blank(b, window * b->columns + c);
}

/*
 * The batch of that rank with nothing in it but what is needed, in the shape of the whole, so that every number of a row stays
 * where it was; and which rows those are. Other micro-steps stay where their gradients are part of the finding.
 */
static void put_minimal(putting *p, const replay_start *s, const minimal_batch *minimal)
{
    const batch *from = s->batch;
    size_t n = from->micro_steps * from->rows * from->columns;
    const int64_t count = (int64_t)minimal->row_count;
    batch b = {0};
    int64_t *ids = calloc(minimal->row_count, sizeof *ids);
    if (p->status != FB_OK) goto done;
    if (!ids || batch_open(&b, from->micro_steps, from->rows, from->columns) != 0) {
        p->status = FB_E_NOMEM;
        snprintf(p->err->message, sizeof p->err->message, "write the minimal bundle: no memory for a batch");
        goto done;
    }
    memcpy(b.tokens, from->tokens, n * sizeof *b.tokens);
    memcpy(b.targets, from->targets, n * sizeof *b.targets);
    memcpy(b.positions, from->positions, n * sizeof *b.positions);
    memcpy(b.weights, from->weights, n * sizeof *b.weights);
    memcpy(b.key_mask, from->key_mask, n * sizeof *b.key_mask);
    for (size_t w = 0; w < b.micro_steps * b.rows; w++) {
        int64_t k = needed_as(s, minimal, w / b.rows, w % b.rows);
        int other_counts = s->finding.boundary >= FB_LOCAL_GRAD && (int32_t)(w / b.rows) != s->finding.micro_step;
        if (k < 0 && !other_counts) blank_window(&b, w);
        if (k < 0) continue;
        ids[k] = from->offsets[w];
        if (minimal->keep) keep_tokens(&b, w, minimal->keep + (size_t)k * b.columns);
    }
    put_windows(p, &b);
    put(p, FB_BUNDLE_BATCH, "rows", FB_U32, 1, &count, minimal->rows);
    put(p, FB_BUNDLE_BATCH, "sample_ids", FB_I64, 1, &count, ids);
done:
    batch_close(&b);
    free(ids);
}

static void put_batch(putting *p, const replay_start *s, const minimal_batch *minimal)
{
    const int64_t windows[2] = {(int64_t)s->batch->micro_steps, (int64_t)s->batch->rows};
    if (minimal && s->rank == minimal->rank) {
        put_minimal(p, s, minimal);
    } else if (!minimal) {
        put_windows(p, s->batch);
        put(p, FB_BUNDLE_BATCH, "sample_ids", FB_I64, 2, windows, s->batch->offsets);
    } else if (s->finding.boundary > FB_LOCAL_GRAD) {
        put_windows(p, s->batch); /* its part of the sum; no sample of it is to blame, so none is named */
    }
}

/* ---- the state -------------------------------------------------------------------------------------------------------------- */

uint64_t capture_digest(const float *parameters, const float *exp_avg, const float *exp_avg_sq, size_t count, int64_t updates)
{
    uint64_t hash = 0xcbf29ce484222325u;
    hash = capture_mix(hash, parameters, count * sizeof *parameters);
    hash = capture_mix(hash, exp_avg, count * sizeof *exp_avg);
    hash = capture_mix(hash, exp_avg_sq, count * sizeof *exp_avg_sq);
    return capture_mix(hash, &updates, sizeof updates);
}

/* The rank whose part holds the bytes of this rank's state: rank 0 where they are the same. Collective. */
static int32_t owner_of_state(const trainer *t, const replay_start *s)
{
    uint64_t own = capture_digest(s->parameters, s->exp_avg, s->exp_avg_sq, t->model->parameter_count, s->updates), first = own;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, t->comm);
    return first == own ? 0 : s->rank;
}

static void put_state(putting *p, const trainer *t, const replay_start *s)
{
    const struct {
        const char *prefix;
        const float *flat;
    } parts[3] = {{"parameter", s->parameters}, {"exp_avg", s->exp_avg}, {"exp_avg_sq", s->exp_avg_sq}};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < t->model->tensor_count; i++) {
            const gpt_tensor *tensor = &t->model->tensors[i];
            const int64_t shape[2] = {(int64_t)tensor->shape[0], (int64_t)tensor->shape[1]};
            char name[96];
            snprintf(name, sizeof name, "%s.%s.%s", parts[k].prefix, tensor->module, tensor->name);
            put(p, FB_BUNDLE_STATE, name, FB_F32, tensor->ndim, shape, parts[k].flat + tensor->offset);
        }
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------------------ */

enum { COMMAND_BYTES = 1 << 16, COMMAND_WORDS = 256 };

/* As this process was started, but with the program's whole path. Whoever starts it again puts the launcher in front. */
static void set_command(putting *p)
{
    char *bytes = calloc(1, COMMAND_BYTES), program[GPT_PATH_MAX], cwd[GPT_PATH_MAX];
    const char *argv[COMMAND_WORDS + 1] = {0};
    size_t used = 0, count = 0;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    FILE *file = fopen("/proc/self/cmdline", "rb");
    if (p->status == FB_OK && bytes && file && length > 0 && getcwd(cwd, sizeof cwd)) {
        program[length] = '\0';
        used = fread(bytes, 1, COMMAND_BYTES - 1, file);
        for (size_t at = 0; at < used && count < COMMAND_WORDS; at += strlen(bytes + at) + 1) argv[count++] = bytes + at;
        if (count) argv[0] = program;
        if (count) p->status = fb_bundle_set_command(p->writer, argv, cwd, p->err);
    }
    if (file) fclose(file);
    free(bytes);
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static void put_all(putting *p, const trainer *t, const replay_start *s, const minimal_batch *minimal, int32_t state_of)
{
    size_t state_bytes = 3 * t->model->parameter_count * sizeof(float);
    int inside = state_bytes <= (size_t)t->options.bundle_max << 20;
    put_scalars(p, t, s);
    put_random(p, s);
    put_batch(p, s, minimal);
    integer(p, "state_of", inside ? state_of : -1);
    if (inside && state_of == s->rank) put_state(p, t, s);
    if (p->status == FB_OK && t->saved.path[0])
        p->status = fb_bundle_set_parent(p->writer, t->saved.path, t->saved.step, t->saved.updates == s->updates, p->err);
    set_command(p);
}

int capture_write(const trainer *t, const replay_start *start, const minimal_batch *minimal, const char *folder,
                  const char *case_id, const char *run_id, fb_error *err)
{
    fb_bundle_config config = FB_BUNDLE_CONFIG_INIT;
    putting p = {.err = err};
    int32_t state_of = owner_of_state(t, start);
    int failed;
    config.rank = start->rank;
    config.world = start->world;
    config.folder = folder;
    config.run_id = run_id;
    config.case_id = case_id;
    config.step = start->step;
    config.bytes_max =
        ((uint64_t)t->options.bundle_max << 20) + (UINT64_C(1) << 30); /* the state is measured above; a batch is small */
    p.status = fb_bundle_create(&p.writer, &config, err);
    if (p.status == FB_OK) {
        put_all(&p, t, start, minimal, state_of);
        if (p.status == FB_OK) p.status = fb_bundle_finish(p.writer, err);
        else fb_bundle_abandon(p.writer);
    }
    failed = agree(t, p.status != FB_OK);
    if (failed) return -1;
    if (t->rank == 0) p.status = fb_bundle_seal(folder, start->world, err);
    return agree(t, p.status != FB_OK) ? -1 : 0;
}
