/* capture_read.c: the reading half of capture.h. The library has compared every byte with what was
 * captured before this sees any. */
#include "capture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row of reads that ends with the first that fails. */
typedef struct reading {
    const fb_bundle *bundle;
    int32_t rank;
    fb_status status;
    fb_error *err;
} reading;

static int64_t integer(reading *r, const char *key)
{
    int64_t value = 0;
    if (r->status == FB_OK) r->status = fb_bundle_integer(r->bundle, r->rank, key, &value, r->err);
    return value;
}

static double number(reading *r, const char *key)
{
    double value = 0.0;
    if (r->status == FB_OK) r->status = fb_bundle_number(r->bundle, r->rank, key, &value, r->err);
    return value;
}

static void tensor(reading *r, int32_t part, const char *name, int32_t dtype, size_t count, void *out)
{
    if (r->status == FB_OK) r->status = fb_bundle_get(r->bundle, r->rank, part, name, dtype, count, out, r->err);
}

static int holds(const reading *r, int32_t part, const char *name, uint64_t *count)
{
    int32_t dtype, ndim;
    int64_t shape[FB_DIMS_MAX];
    return fb_bundle_find(r->bundle, r->rank, part, name, &dtype, &ndim, shape, count, NULL) == FB_OK;
}

enum { DIFFERENCE_BYTES = 256 };

/* Room for one more sentence about what is not as it was; the last one's where there is no more. */
static char *difference(captured *c)
{
    if (c->difference_count < sizeof c->difference / sizeof *c->difference) c->difference_count++;
    c->difference[c->difference_count - 1] = c->differences[c->difference_count - 1];
    return c->differences[c->difference_count - 1];
}

/* ---- what must be equal, and what may differ -------------------------------------------------------------------------------- */

static int check_shape(reading *r, const options *o, fb_error *err)
{
    const struct {
        const char *key;
        size_t here;
    } rows[] = {{"layers", o->model.layers}, {"heads", o->model.heads}, {"channels", o->model.channels},
                {"block", o->model.block},   {"batch", o->model.batch}, {"micro_steps", o->accumulation}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int64_t there = integer(r, rows[k].key);
        if (r->status != FB_OK || there == (int64_t)rows[k].here) continue;
        snprintf(err->message, sizeof err->message,
                 "replay %s: it was captured with %s %" PRId64 ", and this program was started with %zu; start it with the "
                 "arguments of the run",
                 fb_bundle_folder(r->bundle), rows[k].key, there, rows[k].here);
        return EXIT_WRONG_USE;
    }
    return r->status == FB_OK ? 0 : EXIT_FAILED;
}

static void compare_text(captured *c, const reading *r, const char *key, const char *here, const char *what)
{
    const char *there = fb_bundle_text(r->bundle, r->rank, key);
    if (there && strcmp(there, here) != 0) snprintf(difference(c), DIFFERENCE_BYTES, "%s was %s and is %s", what, there, here);
}

static void compare(captured *c, reading *r, const trainer *t)
{
    const options *o = &t->options;
    char build[24];
    snprintf(build, sizeof build, "%016" PRIx64, capture_build());
    compare_text(c, r, "precision", precision_name(o->model.format), "precision");
    compare_text(c, r, "version", fb_version(), "the version of firstbad");
    if (fb_bundle_text(r->bundle, r->rank, "build") && strcmp(fb_bundle_text(r->bundle, r->rank, "build"), build) != 0)
        snprintf(difference(c), DIFFERENCE_BYTES, "the program is another build");
    if (!(number(r, "dropout") == (double)o->model.dropout)) snprintf(difference(c), DIFFERENCE_BYTES, "dropout is another");
    if (integer(r, "faults") != (int64_t)o->faults.count)
        snprintf(difference(c), DIFFERENCE_BYTES, "the number of faults asked for is another");
    if (c->start.world != t->world)
        snprintf(difference(c), DIFFERENCE_BYTES, "%d %s became %d", c->start.world, c->start.world == 1 ? "rank" : "ranks",
                 t->world);
}

/* ---- batch ------------------------------------------------------------------------------------------------------------------ */

/* A rank of which the bundle holds no batch takes part with one that does no harm. */
static void fill_harmless(batch *b)
{
    for (size_t at = 0; at < b->micro_steps * b->rows * b->columns; at++) {
        b->tokens[at] = b->targets[at] = ' ';
        b->weights[at] = b->key_mask[at] = 1.0f;
        b->positions[at] = (int32_t)(at % b->columns);
    }
}

static void read_rows(captured *c, reading *r)
{
    uint64_t rows = 0, ids = 0;
    size_t all = c->batch.rows;
    int part = holds(r, FB_BUNDLE_BATCH, "rows", &rows);
    if (!holds(r, FB_BUNDLE_BATCH, "sample_ids", &ids)) return;
    if (part && (!rows || rows > all || ids != rows)) {
        r->status = FB_E_CORRUPT;
        snprintf(r->err->message, sizeof r->err->message, "replay %s: rows and sample_ids do not fit each other",
                 fb_bundle_folder(r->bundle));
        return;
    }
    if (!part && ids != c->batch.micro_steps * all) return;
    c->rows = calloc(all, sizeof *c->rows);
    c->sample_ids = calloc(ids, sizeof *c->sample_ids);
    if (!c->rows || !c->sample_ids) {
        r->status = FB_E_NOMEM;
        return;
    }
    tensor(r, FB_BUNDLE_BATCH, "sample_ids", FB_I64, ids, c->sample_ids);
    if (part) {
        tensor(r, FB_BUNDLE_BATCH, "rows", FB_U32, rows, c->rows);
        for (uint64_t k = 0; r->status == FB_OK && k < rows; k++)
            if (c->rows[k] >= all || (k && c->rows[k] <= c->rows[k - 1])) r->status = FB_E_CORRUPT;
        c->start.rows = c->rows;
        c->start.row_count = rows;
    } else {
        memmove(c->sample_ids, c->sample_ids + (size_t)c->start.finding.micro_step * all, all * sizeof *c->sample_ids);
    }
}

static void read_batch(captured *c, reading *r, const options *o)
{
    size_t count = o->accumulation * o->model.batch * o->model.block;
    if (batch_open(&c->batch, o->accumulation, o->model.batch, o->model.block) != 0) {
        r->status = FB_E_NOMEM;
        return;
    }
    c->start.batch = &c->batch;
    if (!holds(r, FB_BUNDLE_BATCH, "tokens", &(uint64_t){0})) {
        fill_harmless(&c->batch);
        return;
    }
    tensor(r, FB_BUNDLE_BATCH, "tokens", FB_I32, count, c->batch.tokens);
    tensor(r, FB_BUNDLE_BATCH, "targets", FB_I32, count, c->batch.targets);
    tensor(r, FB_BUNDLE_BATCH, "positions", FB_I32, count, c->batch.positions);
    tensor(r, FB_BUNDLE_BATCH, "loss_weights", FB_F32, count, c->batch.weights);
    tensor(r, FB_BUNDLE_BATCH, "key_mask", FB_F32, count, c->batch.key_mask);
    read_rows(c, r);
}

/* ---- state ------------------------------------------------------------------------------------------------------------------ */

static void read_state_inside(captured *c, reading *r, const gpt_model *model)
{
    static const char *const prefixes[3] = {"parameter", "exp_avg", "exp_avg_sq"};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < model->tensor_count; i++) {
            const gpt_tensor *t = &model->tensors[i];
            char name[96];
            snprintf(name, sizeof name, "%s.%s.%s", prefixes[k], t->module, t->name);
            tensor(r, FB_BUNDLE_STATE, name, FB_F32, t->count, c->state + k * model->parameter_count + t->offset);
        }
    }
}

/* The state as its checkpoint has it, which may lie some updates before the step. */
static void read_state_of_parent(captured *c, reading *r, const trainer *t)
{
    const char *path = NULL;
    int64_t step = 0;
    int32_t exact = 0;
    train_state state = {0};
    file_error err = {""};
    adamw optimizer = {0};
    size_t n = t->model->parameter_count;
    if (r->status == FB_OK) r->status = fb_bundle_parent(r->bundle, &path, &step, &exact, r->err);
    if (r->status != FB_OK) return;
    optimizer.exp_avg = c->state + n;
    optimizer.exp_avg_sq = c->state + 2 * n;
    if (checkpoint_load(path, t->model, &optimizer, &state, &err) != 0 || state.step != step) {
        r->status = FB_E_NOTFOUND;
        snprintf(r->err->message, sizeof r->err->message, "replay %s: the state is in checkpoint %s of step %lld, and that is %s",
                 fb_bundle_folder(r->bundle), path, (long long)step, err.message[0] ? err.message : "of another step by now");
        return;
    }
    memcpy(c->state, t->model->parameters, n * sizeof *c->state);
    if (exact) return;
    c->start.updates = state.updates;
    snprintf(difference(c), DIFFERENCE_BYTES,
             "parameters are those of step %lld, since the bundle had no room for those of step %lld", (long long)step,
             (long long)c->start.step);
}

static void read_state(captured *c, reading *r, const trainer *t)
{
    size_t n = t->model->parameter_count;
    int64_t state_of = integer(r, "state_of");
    c->state = calloc(3 * n, sizeof *c->state);
    if (!c->state) r->status = FB_E_NOMEM;
    if (r->status != FB_OK) return;
    c->start.parameters = c->state;
    c->start.exp_avg = c->state + n;
    c->start.exp_avg_sq = c->state + 2 * n;
    if (state_of < 0) {
        read_state_of_parent(c, r, t);
    } else {
        r->rank = (int32_t)state_of;
        read_state_inside(c, r, t->model);
    }
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static void read_numbers(captured *c, reading *r)
{
    replay_start *s = &c->start;
    finding *f = &s->finding;
    const char *module = fb_bundle_text(r->bundle, r->rank, "finding.module"),
               *name = fb_bundle_text(r->bundle, r->rank, "finding.tensor");
    s->step = integer(r, "step");
    s->world = (int32_t)integer(r, "world");
    s->updates = integer(r, "updates");
    s->scale = number(r, "loss_scale");
    s->learning_rate = number(r, "learning_rate");
    f->rank = (int32_t)integer(r, "finding.rank");
    f->boundary = (int32_t)integer(r, "finding.boundary");
    f->micro_step = (int32_t)integer(r, "finding.micro_step");
    f->kind = (int32_t)integer(r, "finding.kind");
    snprintf(f->module, sizeof f->module, "%s", module ? module : "");
    snprintf(f->tensor, sizeof f->tensor, "%s", name ? name : "");
}

static int numbers_make_sense(const captured *c, const options *o)
{
    const finding *f = &c->start.finding;
    return c->start.world >= 1 && f->rank >= 0 && f->rank < c->start.world && f->boundary >= FB_ENTRY &&
           f->boundary <= FB_CHECKPOINT && f->micro_step >= 0 && (size_t)f->micro_step < o->accumulation;
}

/* The rank whose numbers are read: a process beyond those of the run has those of rank 0. */
static int32_t rank_to_read(const fb_bundle *bundle, int32_t rank)
{
    return rank < fb_bundle_world(bundle) ? rank : 0;
}

int capture_read(captured *c, const fb_bundle *bundle, const trainer *t, int32_t rank, fb_error *err)
{
    reading r = {.bundle = bundle, .rank = rank_to_read(bundle, rank), .err = err};
    uint64_t seed = t->options.model.seed;
    int wrong;
    *c = (captured){.start = {.options = &t->options, .optimizer = &t->optimizer, .rank = rank}};
    if ((wrong = check_shape(&r, &t->options, err)) != 0) goto done;
    read_numbers(c, &r);
    if (r.status == FB_OK && !numbers_make_sense(c, &t->options)) {
        r.status = FB_E_CORRUPT;
        snprintf(err->message, sizeof err->message, "replay %s: the finding lies outside the run", fb_bundle_folder(bundle));
    }
    if (r.status == FB_OK) compare(c, &r, t);
    tensor(&r, FB_BUNDLE_RNG, "seed", FB_U64, 1, &seed);
    if (r.status == FB_OK && seed != t->options.model.seed) snprintf(difference(c), DIFFERENCE_BYTES, "the random seed is another");
    r.rank = rank; /* a process beyond those of the run finds no batch there */
    if (r.status == FB_OK) read_batch(c, &r, &t->options);
    r.rank = rank_to_read(bundle, rank);
    if (r.status == FB_OK) read_state(c, &r, t);
    wrong = r.status == FB_OK ? 0 : EXIT_FAILED;
    if (r.status == FB_E_NOMEM && !err->message[0]) snprintf(err->message, sizeof err->message, "replay: no memory for the batch");
done:
    if (wrong) capture_free(c);
    return wrong;
}

void capture_free(captured *c)
{
    batch_close(&c->batch);
    free(c->state);
    free(c->rows);
    free(c->sample_ids);
    *c = (captured){0};
}
