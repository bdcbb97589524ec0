/* finding.c: see finding.h. */
#include "finding.h"

#include <firstbad/scan.h>

#include <stdio.h>
#include <string.h>

static int32_t kind_of(const void *data, uint64_t count, int32_t dtype)
{
    fb_view view = FB_VIEW_INIT((void *)(uintptr_t)data, count, dtype, 0);
    fb_scan_result result = FB_SCAN_RESULT_INIT;
    return fb_scan(&view, &result, NULL) == FB_OK ? result.first_kind : FB_KIND_NONE;
}

int finding_is_norm(const finding *f)
{
    return f->boundary == FB_REDUCED_GRAD && strcmp(f->tensor, "grad_norm") == 0;
}

static void name(finding *f, const char *module, const char *tensor, const char *suffix, int32_t kind)
{
    snprintf(f->module, sizeof f->module, "%s", module);
    snprintf(f->tensor, sizeof f->tensor, "%s%s", tensor, suffix);
    f->kind = kind;
}

static const gpt_tensor *tensor_at(const gpt_model *model, int64_t position)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].position == position) return &model->tensors[i];
    return NULL;
}

/* ---- by boundary ------------------------------------------------------------------------------------------------------------ */

static int out_of_range(const int32_t *x, size_t count, int32_t classes, int32_t also)
{
    for (size_t i = 0; i < count; i++)
        if ((x[i] < 0 || x[i] >= classes) && x[i] != also) return 1;
    return 0;
}

static int row_without_key(const batch *b, const float *mask)
{
    for (size_t row = 0; row < b->rows; row++) {
        size_t seen = 0;
        for (size_t c = 0; c < b->columns; c++) seen += (float_bits(mask[row * b->columns + c]) & 0x7fffffffu) != 0;
        if (!seen) return 1;
    }
    return 0;
}

static int none_counts(const batch *b, size_t at, size_t count)
{
    for (size_t i = at; i < at + count; i++)
        if (b->targets[i] != GPT_IGNORE && (float_bits(b->weights[i]) & 0x7fffffffu) != 0) return 0;
    return 1;
}

/* The fields of a batch share a position: which of them is bad is asked of the batch itself. */
static void name_input(const trainer *t, finding *f)
{
    const batch *b = &t->batch;
    size_t count = b->rows * b->columns, at = (size_t)f->micro_step * count;
    int32_t weights = kind_of(b->weights + at, count, FB_F32);
    if (weights != FB_KIND_NONE) name(f, "", "loss_weights", "", weights);
    else if (out_of_range(b->tokens + at, count, GPT_VOCAB, 0)) name(f, "", "tokens", "", FB_KIND_OUT_OF_RANGE);
    else if (out_of_range(b->targets + at, count, GPT_VOCAB, GPT_IGNORE)) name(f, "", "targets", "", FB_KIND_OUT_OF_RANGE);
    else if (out_of_range(b->positions + at, count, (int32_t)b->columns, 0)) name(f, "", "positions", "", FB_KIND_OUT_OF_RANGE);
    else if (row_without_key(b, b->key_mask + at)) name(f, "", "key_mask", "", FB_KIND_ALL_IGNORED);
    else if (none_counts(b, at, count)) name(f, "", "targets", "", FB_KIND_ALL_IGNORED);
    else name(f, "", "tokens", "", FB_KIND_NONE);
}

/* Of the three tensors of a place, which of them is bad: in the state, or in what is to take its place. */
static int name_state(const trainer *t, int64_t position, finding *f)
{
    const gpt_tensor *p = tensor_at(t->model, position);
    static const char *const suffix[3] = {"", ".exp_avg", ".exp_avg_sq"};
    const float *const state[3] = {t->model->parameters, t->optimizer.exp_avg, t->optimizer.exp_avg_sq};
    const float *const proposed[3] = {t->proposal.state.parameters, t->proposal.state.exp_avg, t->proposal.state.exp_avg_sq};
    const float *const *flat = f->boundary == FB_UPDATE ? proposed : state;
    if (!p || !flat[0]) return -1;
    name(f, p->module, p->name, "", FB_KIND_NONE); /* unless one is: it was put right meanwhile */
    for (int k = 3; k-- > 0;) {
        int32_t kind = kind_of(flat[k] + p->offset, p->count, FB_F32);
        if (kind != FB_KIND_NONE) name(f, p->module, p->name, suffix[k], kind);
    }
    return 0;
}

static int name_gradient(const trainer *t, int64_t position, finding *f)
{
    const gpt_tensor *p = tensor_at(t->model, position);
    int32_t kind = FB_KIND_NONE;
    if (f->boundary == FB_REDUCED_GRAD && position == NORM_POSITION) {
        name(f, "optimizer", "grad_norm", "", kind_of(&t->guard.grad_norm, 1, FB_F64));
        return 0;
    }
    if (!p) return -1;
    for (size_t i = 0; i < t->guard.n; i++) {
        const fb_view *view = f->boundary == FB_LOCAL_GRAD ? &t->guard.local[i] : &t->guard.reduced[i];
        if (&t->model->tensors[i] == p) kind = kind_of(view->data, view->count, view->dtype);
    }
    name(f, p->module, p->name, "", kind);
    return 0;
}

static int name_activation(const trainer *t, int64_t position, finding *f)
{
    for (size_t i = 0; i < t->model->activation_count; i++) {
        const gpt_activation *a = &t->model->activations[i];
        if (a->position != position) continue;
        name(f, a->module, a->name, "", FB_KIND_NONE);
        return 0;
    }
    return -1;
}

static int name_it(const trainer *t, int64_t position, finding *f)
{
    switch (f->boundary) {
    case FB_INPUT: name_input(t, f); return 0;
    case FB_FORWARD: return name_activation(t, position, f);
    case FB_LOSS: name(f, "", "loss.cross_entropy", "", kind_of(&t->model->loss, 1, FB_F64)); return 0;
    case FB_LOCAL_GRAD:
    case FB_REDUCED_GRAD: return name_gradient(t, position, f);
    default: return name_state(t, position, f);
    }
}

/* ---- the norm --------------------------------------------------------------------------------------------------------------- */

void finding_report_norm(trainer *t)
{
    guard *g = &t->guard;
    fb_finding f = {.size = sizeof f, .site = g->norm.site, .boundary = FB_REDUCED_GRAD, .count = 1, .stats = FB_SCAN_RESULT_INIT};
    fb_error err = {0};
    must(t, fb_scan(&g->norm, &f.stats, &err), &err);
    f.micro_step = (int32_t)t->options.accumulation - 1;
    f.kind = f.stats.first_kind;
    if (f.kind != FB_KIND_NONE) must(t, fb_step_report(g->run, &f, 1, &err), &err);
}

/* ---- for all ranks ---------------------------------------------------------------------------------------------------------- */

int finding_of(const trainer *t, const fb_verdict *verdict, finding *out)
{
    struct {
        int failed;
        finding finding;
    } all = {.failed = 0};
    if (verdict->first_rank < 0 || verdict->first_rank >= t->world || verdict->unanimous != 1) return -1;
    all.finding.rank = verdict->first_rank;
    all.finding.boundary = verdict->first_boundary;
    all.finding.micro_step = verdict->first_micro_step;
    if (all.finding.boundary == FB_CHECKPOINT) all.finding.boundary = FB_ENTRY;
    if (t->rank == verdict->first_rank) all.failed = name_it(t, verdict->first_position, &all.finding);
    MPI_Bcast(&all, (int)sizeof all, MPI_BYTE, verdict->first_rank, t->comm);
    *out = all.finding;
    return all.failed;
}
